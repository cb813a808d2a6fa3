//! A paused call, and the sealed token that names it (DESIGN §4).
//!
//! The token is an id, sealed with XChaCha20-Poly1305 and bound to the neuron, the principal, the step and an expiry.
//! All other data stays on the server, so a token cannot be forged, used elsewhere, or leak data.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use rand::RngExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::{PrincipalId, Timestamp};

use crate::invocation::Answer;
use crate::neuron::ToolResult;
use crate::spec::{NeuronId, NeuronSpec};

/// The time that a paused call waits for its results, in seconds.
pub const EXPIRY_S: i64 = 15 * 60;
/// The maximum length of a token in bytes; longer tokens are refused without decoding.
const TOKEN_BYTES_MAX: usize = 512;

/// The stage of a paused call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The call waits for its results.
    Pending,
    /// A daemon process has consumed the results and is computing the answer.
    Consumed {
        /// The hash of the results.
        body: String,
        /// The name of that daemon process.
        life: Arc<str>,
    },
    /// The call was answered.
    Done {
        /// The hash of the results.
        body: String,
        /// The answer.
        answer: Box<Answer>,
    },
}

/// A paused call. Its conversation is stored separately, in the journal `invocation:{id}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Continuation {
    /// The invocation.
    pub invocation: Arc<str>,
    /// The number of pauses so far.
    pub step: u32,
    /// The definition of the neuron at the start of the call.
    pub neuron: NeuronSpec,
    /// The neuron's id.
    pub neuron_id: NeuronId,
    /// The author of the neuron's version, if it is not the caller.
    #[serde(default)]
    pub author: Option<PrincipalId>,
    /// The caller.
    pub principal: PrincipalId,
    /// The account that pays.
    pub account: Arc<str>,
    /// The ids of the calls that need a result. The client must answer exactly these.
    pub expected: Vec<String>,
    /// The ids of the calls that need an approval.
    #[serde(default)]
    pub approvals: Vec<String>,
    /// The time at which the call expires.
    pub expires_at: Timestamp,
    /// The stage.
    pub stage: Stage,
}

/// The sealed contents of a token.
#[derive(Serialize, Deserialize)]
struct Sealed {
    id: Arc<str>,
    step: u32,
    exp: i64,
}

/// The key that seals tokens, kept in the store.
#[derive(Clone, Serialize, Deserialize)]
pub struct SealingKey {
    /// The id of the key. It is part of each token, so keys can be rotated.
    pub id: Arc<str>,
    key: [u8; 32],
}

impl SealingKey {
    /// Generates a new key.
    pub fn generate() -> Self {
        Self { id: "k1".into(), key: rand::rng().random() }
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(&Key::from(self.key))
    }

    /// Returns the data that a token is bound to in addition to its contents.
    fn binding(neuron: &str, principal: &PrincipalId) -> Vec<u8> {
        format!("lifeformd continuation v1\n{}:{neuron}\n{principal}", neuron.len()).into_bytes()
    }

    /// Seals the name of a paused call.
    pub fn seal(&self, id: &Arc<str>, continuation: &Continuation) -> String {
        let (of, principal) = (&continuation.neuron_id, &continuation.principal);
        self.seal_for(id, continuation.step, Some(continuation.expires_at), of, principal)
    }

    /// Seals a name for a principal. It can be opened only for the same neuron or job.
    pub fn seal_for(
        &self,
        id: &Arc<str>,
        step: u32,
        expires_at: Option<Timestamp>,
        of: &str,
        principal: &PrincipalId,
    ) -> String {
        let sealed = Sealed { id: id.clone(), step, exp: expires_at.map_or(i64::MAX, Timestamp::as_second) };
        let plain = serde_json::to_vec(&sealed).unwrap_or_default();
        let nonce: [u8; 24] = rand::rng().random();
        let aad = Self::binding(of, principal);
        let boxed = self.cipher().encrypt(&XNonce::from(nonce), Payload { msg: &plain, aad: &aad }).unwrap_or_default();
        format!("v1.{}.{}", self.id, BASE64_URL_SAFE_NO_PAD.encode([&nonce[..], &boxed].concat()))
    }

    /// Returns the id in a token, if this key sealed it for this neuron or job and this principal.
    pub fn open(&self, token: &str, neuron: &str, principal: &PrincipalId) -> Option<Arc<str>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let boxed = token.strip_prefix("v1.")?.strip_prefix(&*self.id)?.strip_prefix('.')?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(boxed).ok()?;
        let (nonce, boxed) = bytes.split_at_checked(24)?;
        let nonce: [u8; 24] = nonce.try_into().ok()?;
        let plain = self
            .cipher()
            .decrypt(&XNonce::from(nonce), Payload { msg: boxed, aad: &Self::binding(neuron, principal) })
            .ok()?;
        serde_json::from_slice::<Sealed>(&plain).ok().map(|sealed| sealed.id)
    }
}

/// Returns the hash of a set of results. The order of the results does not matter.
pub fn body_hash(results: &[ToolResult]) -> String {
    let mut sorted: Vec<&ToolResult> = results.iter().collect();
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    let text = serde_json::to_vec(&sorted).unwrap_or_default();
    Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that `results` answer exactly the expected calls, in any order, and that each call in `approvals` has a
/// decision; a call in `take_results`, whose outcome is unknown or whose server asks a person, may have a result instead.
///
/// # Errors
/// Returns a sentence that names the missing, unknown or repeated call.
pub fn check_results(
    expected: &[String],
    approvals: &[String],
    take_results: &[String],
    results: &[ToolResult],
) -> Result<(), String> {
    for (place, result) in results.iter().enumerate() {
        if !expected.contains(&result.id) {
            return Err(format!(
                "tool_results[{place}].id \"{}\" was not asked for; asked for were {expected:?}",
                result.id
            ));
        }
        if results[..place].iter().any(|other| other.id == result.id) {
            return Err(format!("tool_results[{place}].id: duplicate \"{}\"", result.id));
        }
        let ToolResult { result, error, approved, .. } = result;
        let one = match approvals.contains(&results[place].id) {
            true if take_results.contains(&results[place].id) => {
                [result.is_some(), approved.is_some(), error.is_some()].into_iter().filter(|given| *given).count() == 1
            }
            true if result.is_some() => {
                return Err(format!(
                    "tool_results[{place}] is a call that the server makes: it needs approved, or an error that says why not"
                ));
            }
            true => approved.is_some() != error.is_some(),
            false if approved.is_some() => {
                return Err(format!(
                    "tool_results[{place}] is a call that nobody need approve: it needs a result or an error"
                ));
            }
            false => result.is_some() != error.is_some(),
        };
        if !one {
            let wanted = if approvals.contains(&results[place].id) { "approved" } else { "a result" };
            return Err(format!("tool_results[{place}] needs either {wanted} or an error"));
        }
    }
    let missing: Vec<&String> = expected.iter().filter(|id| results.iter().all(|result| result.id != **id)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("tool_results lacks {missing:?}")) }
}
