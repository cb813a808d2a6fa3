//! The contents of one commit.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::clock::Timestamp;
use crate::ledger::AccountOp;
use crate::principal::{Cause, Origin, PrincipalId};

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
    /// A mark that a job is under way, `{owner}/{job}`; it goes with the job's last commit.
    Running,
    /// The head of a lifeform.
    Lifeform,
    /// The head of a canvas.
    Canvas,
    /// An entity of a canvas as it stood at some revision.
    Entity,
    /// Something that messages of a canvas carry.
    Attachment,
    /// That a lifeform takes part in a canvas of another.
    Member,
    /// The goals and schedules of a lifeform.
    Agenda,
    /// A mark that a lifeform is awake, or is to be.
    Awake,
    /// A mark under the time at which a lifeform is to be roused.
    Due,
    /// An invocation of a neuron.
    Invocation,
    /// A paused neuron call.
    Continuation,
    /// A kept answer, by idempotency key.
    Idempotency,
    /// A principal and the hash of its token.
    Token,
    /// The position of a follower in a stream.
    Cursor,
    /// A report of where an account's nutrients went.
    Spending,
    /// Keys, counters and marks of the daemon itself.
    Meta,
    /// The head of a nexus: its next element number.
    Nexus,
    /// That something said of a record was counted.
    Feedback,
    /// The sealed part of a resource.
    Sealed,
    /// The record of an id of the unit protocol.
    Unit,
    /// A note that something was deleted whose copies are not removed yet.
    Forgotten,
}

impl Kind {
    /// The name the kind is stored under.
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

/// The version that a document must have for a change to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// Whatever it is.
    Any,
    /// Exactly this version; 0 means that the document must not exist.
    Version(u64),
}

/// The address of a payload: SHA-256 of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The address of `bytes`.
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

    /// Reads what [`Hash::hex`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
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

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Writes a document.
    Put {
        /// The key.
        key: Key,
        /// The version it must have now.
        expect: Expect,
        /// The JSON text.
        body: Bytes,
    },
    /// Removes a document; removing what is not there is no error unless a version was expected.
    Delete {
        /// The key.
        key: Key,
        /// The version it must have now.
        expect: Expect,
    },
    /// Appends an entry to a journal stream.
    Append {
        /// The stream.
        stream: Stream,
        /// The sequence number the stream's last entry must have now.
        expect: Option<u64>,
        /// The kind of entry.
        kind: Arc<str>,
        /// The JSON text.
        data: Bytes,
    },
    /// Changes an account and writes the statement line to `ledger:{account}`.
    Account {
        /// The account.
        account: Arc<str>,
        /// The change.
        op: AccountOp,
        /// The purpose.
        memo: Arc<str>,
    },
    /// Writes and removes elements of a graph.
    Elements {
        /// The nexus.
        nexus: Arc<str>,
        /// The elements by number, packed; `None` is a removal.
        rows: Vec<(u64, Option<Bytes>)>,
    },
    /// Keeps bytes under their hash, once.
    Payload {
        /// SHA-256 of the bytes.
        hash: Hash,
        /// The bytes; empty in the log when they were kept before.
        body: Bytes,
    },
    /// Puts entries into a journal stream as they were once: with their numbers, times and authors. They follow the
    /// stream's last entry, or begin it, with whatever number they have.
    Restore {
        /// The stream.
        stream: Stream,
        /// The entries, in order and without gaps.
        entries: Vec<Entry>,
    },
    /// Removes a journal stream with all its entries.
    Forget {
        /// The stream.
        stream: Stream,
    },
    /// Lets go of the oldest entries of a journal stream; some of them may stay for a while.
    Trim {
        /// The stream.
        stream: Stream,
        /// The number of the last entry that may go.
        upto: u64,
    },
}

/// Changes that happen all or not at all, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The principal and the cause.
    pub origin: Origin,
    /// The changes.
    pub ops: Vec<Op>,
    /// Names that were made just now: see [`Batch::made`]; and the document without which they were.
    made: Vec<(Arc<str>, Option<Key>)>,
}

/// The knowledge whether an id is new, so that the database need not be asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Newness<'b> {
    /// The id is new.
    Certain,
    /// The id is new if that document does not exist.
    Without(&'b Key),
    /// Nobody said so.
    Unknown,
}

/// The version that the last entry of a journal of definitions tells of; 1 when there is none.
pub fn last_version(history: &[Entry]) -> u64 {
    let told = history.last().and_then(|last| serde_json::from_slice::<Value>(&last.data).ok());
    told.and_then(|told| told["version"].as_u64()).unwrap_or(1).max(1)
}

/// JSON text of `value`. Serializing plain data cannot fail; a map with non-string keys is a bug.
pub fn json<T: Serialize + ?Sized>(value: &T) -> Bytes {
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_else(|error| unreachable!("plain data serializes: {error}"))
}

impl Batch {
    /// An empty batch on behalf of `origin`.
    pub fn new(origin: &Origin) -> Self {
        Self { origin: origin.clone(), ops: Vec::new(), made: Vec::new() }
    }

    /// Says that `name` was made at random just now, or is written under for the first time: nothing is kept yet under
    /// an id or in a stream that ends with it, so the database need not be asked. Saying so of a name in use damages
    /// it.
    pub fn made(mut self, name: &Arc<str>) -> Self {
        self.made.push((name.clone(), None));
        self
    }

    /// Says the same as long as document `key` is not there: it must go in the same commit as whatever is kept under
    /// `name`, or after it.
    pub fn made_with(mut self, name: &Arc<str>, key: Key) -> Self {
        self.made.push((name.clone(), Some(key)));
        self
    }

    /// Returns whether the object that `id` names is known to be new.
    pub(super) fn newness(&self, id: &str) -> Newness<'_> {
        let is_named =
            |name: &str| id.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with([':', '/']));
        match self.made.iter().find(|(name, _)| is_named(name)) {
            Some((_, None)) => Newness::Certain,
            Some((_, Some(key))) => Newness::Without(key),
            None => Newness::Unknown,
        }
    }

    /// Writes a document whatever its version.
    pub fn put<T: Serialize + ?Sized>(self, key: Key, value: &T) -> Self {
        self.put_expecting(key, Expect::Any, value)
    }

    /// Writes a document that must not exist yet.
    pub fn create<T: Serialize + ?Sized>(self, key: Key, value: &T) -> Self {
        self.put_expecting(key, Expect::Version(0), value)
    }

    /// Writes a document that must not exist yet as version `version` of it, as it was somewhere else.
    pub fn adopt<T: Serialize + ?Sized>(mut self, key: Key, value: &T, version: u64) -> Self {
        for before in 0..version.saturating_sub(1) {
            let (key, expect) = (key.clone(), Expect::Version(before));
            self.ops.push(Op::Put { key, expect, body: Bytes::from_static(b"null") });
        }
        self.put_expecting(key, Expect::Version(version.saturating_sub(1)), value)
    }

    /// Writes a document that must have the expected version.
    pub fn put_expecting<T: Serialize + ?Sized>(mut self, key: Key, expect: Expect, value: &T) -> Self {
        self.ops.push(Op::Put { key, expect, body: json(value) });
        self
    }

    /// Removes a document.
    pub fn delete(mut self, key: Key, expect: Expect) -> Self {
        self.ops.push(Op::Delete { key, expect });
        self
    }

    /// Appends to a stream.
    pub fn append<T: Serialize + ?Sized>(mut self, stream: impl Into<Stream>, kind: &str, data: &T) -> Self {
        self.ops.push(Op::Append { stream: stream.into(), expect: None, kind: kind.into(), data: json(data) });
        self
    }

    /// Appends to a stream whose last entry must be number `head`.
    pub fn append_after<T: Serialize + ?Sized>(
        mut self,
        stream: impl Into<Stream>,
        head: u64,
        kind: &str,
        data: &T,
    ) -> Self {
        self.ops.push(Op::Append { stream: stream.into(), expect: Some(head), kind: kind.into(), data: json(data) });
        self
    }

    /// Puts entries into a stream as they were once.
    pub fn restore(mut self, stream: impl Into<Stream>, entries: Vec<Entry>) -> Self {
        self.ops.push(Op::Restore { stream: stream.into(), entries });
        self
    }

    /// Removes a stream with all its entries.
    pub fn forget(mut self, stream: impl Into<Stream>) -> Self {
        self.ops.push(Op::Forget { stream: stream.into() });
        self
    }

    /// Lets go of the entries of a stream up to number `upto`: nobody reads from before it any more.
    pub fn trim(mut self, stream: impl Into<Stream>, upto: u64) -> Self {
        self.ops.push(Op::Trim { stream: stream.into(), upto });
        self
    }

    /// Changes an account.
    pub fn account(mut self, account: impl Into<Arc<str>>, op: AccountOp, memo: impl Into<Arc<str>>) -> Self {
        self.ops.push(Op::Account { account: account.into(), op, memo: memo.into() });
        self
    }

    /// Keeps `body` under its hash and answers the hash.
    pub fn payload(&mut self, body: Bytes) -> Hash {
        let hash = Hash::of(&body);
        self.ops.push(Op::Payload { hash, body });
        hash
    }

    /// Adds one change.
    pub fn push(&mut self, op: Op) {
        self.ops.push(op);
    }
}

/// The answer to a durable commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Receipt {
    /// The row of the log that holds it.
    pub log: u64,
    /// The time of the commit.
    pub at: Timestamp,
    /// For each change in order: the new version of a document, the number of a journal entry, else 0.
    pub versions: Vec<u64>,
}

/// One entry of a journal stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// 1, 2, 3 … without gaps within its stream.
    pub seq: u64,
    /// The time of the commit.
    pub at: Timestamp,
    /// The author.
    pub by: PrincipalId,
    /// The cause.
    pub cause: Cause,
    /// The kind of entry.
    pub kind: Arc<str>,
    /// The JSON text.
    pub data: Bytes,
}

impl Entry {
    /// The entry's data as a value of the expected shape.
    ///
    /// # Errors
    /// [`super::StoreError::Corrupt`] when it has another shape.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, super::StoreError> {
        serde_json::from_slice(&self.data)
            .map_err(|error| super::StoreError::Corrupt(format!("journal entry {} {}: {error}", self.seq, self.kind)))
    }

    /// The entry as the API shows it.
    pub fn to_json(&self) -> Value {
        let data: Value = serde_json::from_slice(&self.data).unwrap_or(Value::Null);
        serde_json::json!({
            "seq": self.seq,
            "at": self.at,
            "by": self.by,
            "cause": self.cause,
            "kind": self.kind,
            "data": data,
        })
    }
}

/// A document and the version a change of it must name.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    /// 1 when it was created, one more with every change.
    pub version: u64,
    /// The document.
    pub value: T,
}
