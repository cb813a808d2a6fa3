//! The storage medium below a store. The store's rules are implemented above it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use super::batch::{Entry, Hash, Key, Kind, Stream, Versioned};
use crate::clock::Timestamp;
use crate::ledger::Account;

/// The contents of a backend at opening.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The last log row that the checkpoint covers.
    pub checkpoint: u64,
    /// The rows after the checkpoint, in order.
    pub log: Vec<(u64, Bytes)>,
}

/// The contents of one checkpoint. Writing it twice has the same effect as writing it once.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    /// The last log row that the checkpoint covers; rows up to it may be dropped afterwards.
    pub upto: u64,
    /// The current state of documents.
    pub documents: Vec<Projected>,
    /// New journal entries of each stream, in order and without gaps.
    pub journals: Vec<(Stream, Vec<Arc<Entry>>)>,
    /// Removed streams. They are removed before their new entries are written.
    pub forgotten: Vec<Stream>,
    /// Streams with the number up to which their entries may be removed, before the new entries are written.
    pub trimmed: Vec<(Stream, u64)>,
    /// The current state of accounts.
    pub accounts: Vec<(Arc<str>, Account)>,
    /// The current state of graph elements, by nexus and number, in order; `None` is a deletion.
    pub elements: Vec<(Arc<str>, u64, Option<Bytes>)>,
    /// New payloads.
    pub payloads: Vec<(Hash, Bytes)>,
    /// `true` if a failed or interrupted checkpoint may have written a part of it already.
    pub outcome_unknown: bool,
}

/// A document in a checkpoint.
#[derive(Clone, Debug)]
pub struct Projected {
    /// The key.
    pub key: Key,
    /// The document; `None` is a deletion.
    pub document: Option<Versioned<Bytes>>,
    /// `true` if the database holds a document of this key already.
    pub stored: bool,
}

/// The number of element numbers per page of a graph. One row per element would make loading a graph twenty times
/// slower.
pub const PAGE_ELEMENTS: u64 = 64;

/// A page of a graph: its number, and its elements by number.
pub type Page = (u64, Vec<(u64, Bytes)>);

/// A durable medium: an append-only log and its checkpoint.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Opens the medium: takes the lease, migrates the data, and returns the checkpoint with the rows after it.
    async fn open(&self, now: Timestamp) -> Result<Recovered, StoreError>;

    /// Appends log row `n`; the row is durable when this returns. The medium keeps a second process out. An existing
    /// row `n` was never acknowledged and is replaced, so an append with an unknown outcome can be repeated.
    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError>;

    /// Writes a checkpoint, sets its position to `upto` and drops the log rows up to it, in one transaction:
    /// replaying the log over half a checkpoint would count versions twice. Elements and payloads may be written
    /// earlier, because a replay leaves them unchanged.
    async fn project(&self, projection: Projection) -> Result<(), StoreError>;

    /// Returns a document of the checkpoint.
    async fn document(&self, key: &Key) -> Result<Option<Versioned<Bytes>>, StoreError>;

    /// Returns several documents of the checkpoint, in the order of `keys`.
    async fn each(&self, keys: &[Key]) -> Result<Vec<Option<Versioned<Bytes>>>, StoreError> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.document(key).await?);
        }
        Ok(found)
    }

    /// Returns documents of a kind in the checkpoint with ids after `after`, in order.
    async fn documents(
        &self,
        kind: Kind,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Versioned<Bytes>)>, StoreError>;

    /// Returns entries of a stream in the checkpoint after number `after`, in order.
    async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// Returns the number of the last entry of a stream in the checkpoint.
    async fn head(&self, stream: &Stream) -> Result<u64, StoreError>;

    /// Returns the same for several streams, in their order.
    async fn heads(&self, streams: &[Stream]) -> Result<Vec<u64>, StoreError> {
        let mut found = Vec::with_capacity(streams.len());
        for stream in streams {
            found.push(self.head(stream).await?);
        }
        Ok(found)
    }

    /// Returns accounts of the checkpoint, in the order of `names`; `None` was never opened.
    async fn accounts(&self, names: &[Arc<str>]) -> Result<Vec<Option<Account>>, StoreError>;

    /// Returns a payload of the checkpoint.
    async fn payload(&self, hash: &Hash) -> Result<Option<Bytes>, StoreError>;

    /// Returns at most `max` pages of one graph from page `from` on, in order: the number of each page and its
    /// elements. A page holds [`PAGE_ELEMENTS`] numbers.
    async fn pages(&self, nexus: &str, from: u64, max: usize) -> Result<Vec<Page>, StoreError>;

    /// Reads all files that hold checkpoints, slowly, and returns the damaged ones. It is one read for each caller.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    async fn damaged_files(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// Releases all resources; the store makes no further calls.
    async fn close(&self) -> Result<(), StoreError>;
}
