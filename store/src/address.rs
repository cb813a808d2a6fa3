//! The addresses of what the store keeps: documents by kind and id, journals by name, payloads by hash.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The kind of a document. Each kind is a variant, so that a typing error cannot open a new table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A neuron's definition.
    Neuron,
    /// A fascicle's definition.
    Fascicle,
    /// The head of a job.
    Job,
    /// A marker that a job is running, `{owner}/{job}`; the last commit of the job removes it.
    Running,
    /// The head of a lifeform.
    Lifeform,
    /// The head of a canvas.
    Canvas,
    /// The state of a canvas entity at one revision.
    Entity,
    /// An attachment of canvas messages.
    Attachment,
    /// The membership of a lifeform in another lifeform's canvas.
    Member,
    /// The goals and schedules of a lifeform.
    Agenda,
    /// The plan of a goal of a lifeform, `{lifeform}/{goal}`.
    Plan,
    /// A marker that a goal of a lifeform waits for a decision about its plan, `{lifeform}/{goal}`.
    Asked,
    /// A marker that a lifeform is awake or must be woken.
    Awake,
    /// A marker whose id is the time at which a lifeform is to be woken.
    Due,
    /// An invocation of a neuron.
    Invocation,
    /// A paused neuron call.
    Continuation,
    /// A stored answer, by idempotency key.
    Idempotency,
    /// A principal and the hash of its token.
    Token,
    /// The position of a subscriber in a stream.
    Cursor,
    /// A report about the use of an account's nutrients.
    Spending,
    /// Keys, counters and markers of the daemon itself.
    Meta,
    /// The head of a nexus: the number of its next element.
    Nexus,
    /// A marker that feedback on a record was counted.
    Feedback,
    /// The encrypted part of a resource.
    Sealed,
    /// The record of an id of the unit protocol.
    Unit,
    /// The effects of tool calls in one topic, goal, job or invocation.
    Effect,
    /// A named tool.
    Tool,
    /// The accepted definition of an MCP tool, `{server}/{tool}`.
    Pin,
    /// The number of calls of a tool by one lifeform or principal on a day, `{user}/{tool}`.
    Used,
    /// A note that something was deleted whose copies have not been removed yet.
    Forgotten,
}

impl Kind {
    /// The name under which the kind is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Neuron => "neuron",
            Self::Fascicle => "fascicle",
            Self::Job => "job",
            Self::Running => "running",
            Self::Lifeform => "lifeform",
            Self::Canvas => "canvas",
            Self::Entity => "entity",
            Self::Attachment => "attachment",
            Self::Member => "member",
            Self::Agenda => "agenda",
            Self::Plan => "plan",
            Self::Asked => "asked",
            Self::Awake => "awake",
            Self::Due => "due",
            Self::Invocation => "invocation",
            Self::Continuation => "continuation",
            Self::Idempotency => "idempotency",
            Self::Token => "token",
            Self::Cursor => "cursor",
            Self::Spending => "spending",
            Self::Meta => "meta",
            Self::Nexus => "nexus",
            Self::Feedback => "feedback",
            Self::Sealed => "sealed",
            Self::Unit => "unit",
            Self::Effect => "effect",
            Self::Tool => "tool",
            Self::Pin => "pin",
            Self::Used => "used",
            Self::Forgotten => "forgotten",
        }
    }
}

/// Addresses one document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key(pub Kind, pub Arc<str>);

impl Key {
    /// The document `id` of `kind`.
    pub fn new(kind: Kind, id: impl Into<Arc<str>>) -> Self {
        Self(kind, id.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.as_str(), self.1)
    }
}

/// Names a journal stream: `job:{id}`, `canvas:{lifeform}/{id}`, `ledger:{account}`, …
pub type Stream = Arc<str>;

/// The address of a payload: the SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The address of `bytes`.
    ///
    /// ```
    /// use store::Hash;
    /// let hash = Hash::of(b"hello");
    /// assert_eq!(Hash::parse(&hash.hex()), Some(hash));
    /// assert_eq!(Hash::parse(&hash.hex().to_uppercase()), None);
    /// ```
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Lower-case hexadecimal, 64 characters.
    pub fn hex(&self) -> String {
        use fmt::Write;
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Parses the output of [`Hash::hex`]; `None` if `text` has another form.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        let bytes: Vec<u8> = (0..text.len() / 2)
            .map(|i| u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok())
            .collect::<Option<_>>()?;
        Some(Self(bytes.try_into().ok()?))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}
