//! The contents of one commit.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::address::{Hash, Key, Kind, Stream};
use crate::clock::Timestamp;
use crate::ledger::AccountOp;
use crate::principal::{Cause, Origin, PrincipalId};

/// The version that a document must have for a change to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// Any version, or no document at all.
    Any,
    /// Exactly this version; 0 means that the document must not exist.
    Version(u64),
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// Writes a document.
    Put {
        /// The key.
        key: Key,
        /// The version that the document must have now.
        expect: Expect,
        /// The JSON text.
        body: Bytes,
    },
    /// Removes a document. Removing a missing document is an error only if a version was expected.
    Delete {
        /// The key.
        key: Key,
        /// The version that the document must have now.
        expect: Expect,
    },
    /// Appends an entry to a journal stream.
    Append {
        /// The stream.
        stream: Stream,
        /// The sequence number that the stream's last entry must have now; `None` accepts any.
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
    /// Stores bytes under their hash. Bytes that are stored already are not stored again.
    Payload {
        /// SHA-256 of the bytes.
        hash: Hash,
        /// The bytes; empty in the log if the store already had them.
        body: Bytes,
    },
    /// Restores entries of a journal stream with their original numbers, times and authors. They follow the stream's
    /// last entry. In an empty stream, the first restored entry may have any number.
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
    /// Removes the oldest entries of a journal stream; some of them may remain for a while.
    Trim {
        /// The stream.
        stream: Stream,
        /// The number of the last entry that the store may remove.
        upto: u64,
    },
}

/// Changes that the store applies in order, all or none.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The principal and the cause.
    pub origin: Origin,
    /// The changes.
    pub ops: Vec<Op>,
    /// New names ([`Batch::made`]), each with the document whose absence makes the name new, if there is one.
    made: Vec<(Arc<str>, Option<Key>)>,
}

/// The newness of an id. The committer does not query the database for a new id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Newness<'b> {
    /// The id is new.
    Certain,
    /// The id is new if that document does not exist.
    Without(&'b Key),
    /// The batch does not declare the id.
    Unknown,
}

/// Returns the version in the last entry of a journal of definitions; 1 when the journal is empty.
pub fn last_version(history: &[Entry]) -> u64 {
    let last = history.last().and_then(|last| serde_json::from_slice::<Value>(&last.data).ok());
    last.and_then(|last| last["version"].as_u64()).unwrap_or(1).max(1)
}

/// Returns a journal from another daemon with `author` as the author of each entry. The cause names the author there.
pub fn written_by(history: Vec<Entry>, author: &PrincipalId) -> Vec<Entry> {
    let by_author = |entry: Entry| Entry {
        cause: entry.cause.and(format!("written-by:{}", entry.by)),
        by: author.clone(),
        ..entry
    };
    history.into_iter().map(by_author).collect()
}

/// Returns the JSON text of `value`. Serializing plain data cannot fail; a map with non-string keys is a bug.
pub fn json<T: Serialize + ?Sized>(value: &T) -> Bytes {
    serde_json::to_vec(value).map(Bytes::from).unwrap_or_else(|error| unreachable!("plain data serializes: {error}"))
}

impl Batch {
    /// Returns an empty batch on behalf of `origin`.
    pub fn new(origin: &Origin) -> Self {
        Self { origin: origin.clone(), ops: Vec::new(), made: Vec::new() }
    }

    /// Declares that `name` was just created at random, or is used for the first time. No id or stream that ends with
    /// `name` is stored yet, so the committer need not query the database. Declaring a name that is in use damages
    /// its data.
    pub fn made(mut self, name: &Arc<str>) -> Self {
        self.made.push((name.clone(), None));
        self
    }

    /// Declares `name` as new unless document `key` exists. The document must be removed in the same commit as
    /// everything stored under `name`, or later.
    pub fn made_with(mut self, name: &Arc<str>, key: Key) -> Self {
        self.made.push((name.clone(), Some(key)));
        self
    }

    /// Returns the newness of the object that `id` names.
    pub(super) fn newness(&self, id: &str) -> Newness<'_> {
        let is_named =
            |name: &str| id.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with([':', '/']));
        match self.made.iter().find(|(name, _)| is_named(name)) {
            Some((_, None)) => Newness::Certain,
            Some((_, Some(key))) => Newness::Without(key),
            None => Newness::Unknown,
        }
    }

    /// Writes a document, whatever version it has.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), store::StoreError> {
    /// use std::sync::Arc;
    /// use store::{Batch, Key, Kind, ManualClock, Origin, Store};
    /// let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    /// let (key, origin) = (Key::new(Kind::Meta, "motto"), Origin::system("example"));
    /// store.commit(Batch::new(&origin).put(key.clone(), "festina lente")).await?;
    /// assert_eq!(store.document::<String>(&key).await?.unwrap().value, "festina lente");
    /// # Ok(()) }
    /// ```
    pub fn put<T: Serialize + ?Sized>(self, key: Key, value: &T) -> Self {
        self.put_expecting(key, Expect::Any, value)
    }

    /// Writes a document that must not exist yet.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), store::StoreError> {
    /// use std::sync::Arc;
    /// use store::{Batch, Key, Kind, ManualClock, Origin, Store, StoreError};
    /// let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    /// let create = || Batch::new(&Origin::system("example")).create(Key::new(Kind::Meta, "once"), &1);
    /// store.commit(create()).await?;
    /// assert!(matches!(store.commit(create()).await, Err(StoreError::Conflict { .. })));
    /// # Ok(()) }
    /// ```
    pub fn create<T: Serialize + ?Sized>(self, key: Key, value: &T) -> Self {
        self.put_expecting(key, Expect::Version(0), value)
    }

    /// Writes a document that must not exist yet, and gives it version `version`, the version that it had elsewhere.
    pub fn adopt<T: Serialize + ?Sized>(mut self, key: Key, value: &T, version: u64) -> Self {
        for before in 0..version.saturating_sub(1) {
            let (key, expect) = (key.clone(), Expect::Version(before));
            self.ops.push(Op::Put { key, expect, body: Bytes::from_static(b"null") });
        }
        self.put_expecting(key, Expect::Version(version.saturating_sub(1)), value)
    }

    /// Writes a document that must have the expected version.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), store::StoreError> {
    /// use std::sync::Arc;
    /// use store::{Batch, Expect, Key, Kind, ManualClock, Origin, Store};
    /// let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    /// let write = |expected| {
    ///     let key = Key::new(Kind::Meta, "count");
    ///     Batch::new(&Origin::system("example")).put_expecting(key, Expect::Version(expected), &expected)
    /// };
    /// let first = store.commit(write(0)).await?;
    /// assert_eq!(first.versions, [1]);
    /// assert!(store.commit(write(0)).await.is_err(), "it has version 1 by now");
    /// # Ok(()) }
    /// ```
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
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), store::StoreError> {
    /// use std::sync::Arc;
    /// use store::{Batch, ManualClock, Origin, Store, Stream};
    /// let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    /// let stream = Stream::from("journal".to_owned());
    /// let said = Batch::new(&Origin::system("example")).append(stream.clone(), "said", "hello");
    /// assert_eq!(store.commit(said).await?.versions, [1]);
    /// assert_eq!(store.entries(&stream, 0, 10).await?[0].decode::<String>()?, "hello");
    /// # Ok(()) }
    /// ```
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

    /// Restores entries of a stream, as described at [`Op::Restore`].
    pub fn restore(mut self, stream: impl Into<Stream>, entries: Vec<Entry>) -> Self {
        self.ops.push(Op::Restore { stream: stream.into(), entries });
        self
    }

    /// Removes a stream with all its entries.
    pub fn forget(mut self, stream: impl Into<Stream>) -> Self {
        self.ops.push(Op::Forget { stream: stream.into() });
        self
    }

    /// Removes the entries of a stream up to number `upto`, which no reader needs any more.
    pub fn trim(mut self, stream: impl Into<Stream>, upto: u64) -> Self {
        self.ops.push(Op::Trim { stream: stream.into(), upto });
        self
    }

    /// Changes an account.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), store::StoreError> {
    /// use std::sync::Arc;
    /// use store::ledger::{AccountOp, Amount};
    /// use store::{Batch, ManualClock, Origin, Store};
    /// let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    /// let open = AccountOp::Open(Amount::tokens(1_000));
    /// store.commit(Batch::new(&Origin::system("example")).account("lf_1", open, "birth")).await?;
    /// assert_eq!(store.account("lf_1").await?.unwrap().available(), Amount::tokens(1_000));
    /// # Ok(()) }
    /// ```
    pub fn account(mut self, account: impl Into<Arc<str>>, op: AccountOp, memo: impl Into<Arc<str>>) -> Self {
        self.ops.push(Op::Account { account: account.into(), op, memo: memo.into() });
        self
    }

    /// Stores `body` under its hash and returns the hash.
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
    /// The number of the log row that holds the commit.
    pub log: u64,
    /// The time of the commit.
    pub at: Timestamp,
    /// One number for each change, in order: the new version of a document, the number of a journal entry, or 0.
    pub versions: Vec<u64>,
}

/// One entry of a journal stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The entry's number: 1, 2, 3 … without gaps within the stream.
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
    /// Decodes the entry's data.
    ///
    /// # Errors
    /// [`super::StoreError::Corrupt`] when the data does not have the form of `T`.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, super::StoreError> {
        serde_json::from_slice(&self.data)
            .map_err(|error| super::StoreError::Corrupt(format!("journal entry {} {}: {error}", self.seq, self.kind)))
    }

    /// Returns the entry in the form that the API returns.
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

/// A document, with the version that a change of it must expect.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    /// The version: 1 at creation, incremented by every change.
    pub version: u64,
    /// The document.
    pub value: T,
}
