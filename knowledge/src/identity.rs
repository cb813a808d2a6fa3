//! The key pairs of lifeforms. The identity of a lifeform (the `id` of `$self`, MISSION K13) is an Ed25519 public key, derived
//! from the key ring and the lifeform's address, and written as a [`did:key`](https://w3c-ccg.github.io/did-key-spec/).

use std::sync::Arc;

use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use nexus::{Identities, Identity, NexusId};
use secrecy::zeroize::Zeroizing;

use crate::seal::{KeyRing, SealError};
use crate::{Knowledge, KnowledgeError};

/// The domain of the derivation. It differs from every owner of a sealed body.
const DERIVED_FOR: &str = "lifeformd/identity/v1/";
/// The prefix of each signed text, so that a signature proves an identity and nothing else.
const SIGNED_AS: &str = "lifeformd/identity/v1\n";
/// The multicodec prefix of an Ed25519 public key.
const ED25519_PUB: [u8; 2] = [0xed, 0x01];

/// Returns a public key as a `did:key`.
fn did_of(key: &VerifyingKey) -> String {
    let bytes = [ED25519_PUB.as_slice(), key.as_bytes()].concat();
    format!("did:key:z{}", bs58::encode(bytes).into_string())
}

impl KeyRing {
    fn key_pair(&self, kid: &str, lifeform: &str) -> Result<SigningKey, SealError> {
        let mut seed = Zeroizing::new([0; 32]);
        self.derive(kid, format!("{DERIVED_FOR}{lifeform}").as_bytes(), &mut seed)?;
        Ok(SigningKey::from_bytes(&seed))
    }

    /// Signs a text with the private key of an identity.
    ///
    /// # Errors
    /// [`SealError::NoKey`] if the key ring has no key of that name; [`SealError::Broken`] if the identity is of another ring.
    fn sign(&self, lifeform: &str, identity: &Identity, text: &str) -> Result<[u8; 64], SealError> {
        let pair = self.key_pair(&identity.key, lifeform)?;
        if did_of(&pair.verifying_key()) != *identity.id {
            return Err(SealError::Broken);
        }
        Ok(pair.sign(text.as_bytes()).to_bytes())
    }
}

/// The proof of an identity.
#[derive(Clone, Debug)]
pub struct Proof {
    /// The public key as a `did:key`.
    pub id: Arc<str>,
    /// The signed text: the line `lifeformd/identity/v1`, a line break, and the challenge.
    pub signed: String,
    /// The Ed25519 signature (RFC 8032).
    pub signature: [u8; 64],
}

impl Knowledge {
    /// Returns the identity of a lifeform; `None` if its mind was loaded while the daemon had no key.
    ///
    /// # Errors
    /// [`KnowledgeError::Nexus`] if its mind cannot be loaded.
    pub async fn identity(&self, lifeform: &NexusId) -> Result<Option<Identity>, KnowledgeError> {
        Ok(self.nexus.identity(lifeform).await?)
    }

    /// Signs a challenge with the private key of a lifeform.
    ///
    /// # Errors
    /// [`KnowledgeError::Sealed`] if the key ring lacks the key of the identity.
    pub async fn prove(&self, lifeform: &NexusId, challenge: &str) -> Result<Proof, KnowledgeError> {
        let identity = self.identity(lifeform).await?;
        let identity = identity.ok_or_else(|| SealError::NoKey("of this identity".to_owned()))?;
        let signed = format!("{SIGNED_AS}{challenge}");
        let signature = self.keys.sign(lifeform, &identity, &signed)?;
        Ok(Proof { id: identity.id, signed, signature })
    }
}

impl Identities for KeyRing {
    fn identity(&self, nexus: &str) -> Option<Identity> {
        let key = self.current();
        let pair = self.key_pair(&key, nexus).ok()?;
        Some(Identity { id: did_of(&pair.verifying_key()).into(), key: key.into() })
    }
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::Verifier;

    use super::*;

    /// Reads a public key out of its `did:key`.
    fn key_of(did: &str) -> VerifyingKey {
        let bytes = bs58::decode(did.strip_prefix("did:key:z").unwrap()).into_vec().unwrap();
        assert_eq!(bytes[..2], ED25519_PUB);
        VerifyingKey::from_bytes(bytes[2..].try_into().unwrap()).unwrap()
    }

    #[test]
    fn an_identity_is_proved_by_a_signature_also_after_a_new_key() {
        let folder = tempfile::tempdir().unwrap();
        let ring = KeyRing::open(&folder.path().join("keys/master.key"), false).unwrap();
        let identity = ring.identity("lf_a").unwrap();
        assert_ne!(identity, ring.identity("lf_b").unwrap());
        assert!(!identity.id.contains("lf_a"), "{}", identity.id);
        ring.add_key().unwrap();
        let signature = ring.sign("lf_a", &identity, "prove it").unwrap();
        key_of(&identity.id).verify(b"prove it", &signature.into()).unwrap();
        assert_eq!(
            ring.sign("lf_b", &identity, "prove it"),
            Err(SealError::Broken),
            "the identity of another lifeform"
        );
        let other = KeyRing::open(&folder.path().join("other/master.key"), false).unwrap();
        assert!(matches!(other.sign("lf_a", &identity, "prove it"), Err(SealError::NoKey(_))));
        assert_eq!(KeyRing::default().identity("lf_a"), None, "a ring without keys");
    }

    #[test]
    fn a_did_key_is_written_as_the_specification_shows() {
        // The seed and the identifier of the first test vector of did:key.
        let seed: [u8; 32] = std::array::from_fn(|_| 0);
        let did = did_of(&SigningKey::from_bytes(&seed).verifying_key());
        assert_eq!(did, "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp");
    }
}
