//! The storage medium below a store. Everything else is decided above it.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use super::batch::{Entry, Hash, Key, Kind, Stream, Versioned};
use crate::clock::Timestamp;
use crate::ledger::Account;

/// The content of a backend when it is opened.
#[derive(Debug, Default)]
pub struct Opened {
    /// The last log row whose effects are all in the projections.
    pub checkpoint: u64,
    /// The rows after the checkpoint, in order.
    pub log: Vec<(u64, Bytes)>,
}

/// Everything one checkpoint writes. Writing it twice does no harm.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    /// The log row it covers up to; rows up to it may be dropped afterwards.
    pub upto: u64,
    /// Documents as they stand.
    pub documents: Vec<Projected>,
    /// New journal entries of each stream, in order and without gaps.
    pub journals: Vec<(Stream, Vec<Arc<Entry>>)>,
    /// Streams that were removed, before what is new in them.
    pub forgotten: Vec<Stream>,
    /// Streams whose entries up to a number may go, before what is new in them is written.
    pub trimmed: Vec<(Stream, u64)>,
    /// Accounts as they stand.
    pub accounts: Vec<(Arc<str>, Account)>,
    /// Elements of graphs as they stand, by nexus and number, in order; `None` is a deletion.
    pub elements: Vec<(Arc<str>, u64, Option<Bytes>)>,
    /// New payloads.
    pub payloads: Vec<(Hash, Bytes)>,
    /// `true` if part of it may be written already, since a checkpoint before it failed or was interrupted.
    pub unsure: bool,
}

/// A document as a checkpoint writes it.
#[derive(Clone, Debug)]
pub struct Projected {
    /// The key.
    pub key: Key,
    /// The document; `None` is a deletion.
    pub document: Option<Versioned<Bytes>>,
    /// `true` if the checkpoint holds a document of this name already.
    pub stored: bool,
}

/// Element numbers in one page of a graph. A row of its own for each element would make loading a graph
/// twenty times slower.
pub const PAGE_ELEMENTS: u64 = 64;

/// A page of a graph: its number, and its elements by theirs.
pub type Page = (u64, Vec<(u64, Bytes)>);

/// A durable medium: an append-only log and the projections of it.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Takes the lease, migrates, and answers where the last life ended.
    async fn open(&self, now: Timestamp) -> Result<Opened, StoreError>;

    /// Writes log row `n`, fenced by whatever keeps a second process out; durable when it returns. A row `n` that is
    /// there already was never acknowledged and is replaced, so an unknown outcome is resolved by asking again.
    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError>;

    /// Writes a projection, moves the checkpoint to `upto` and drops the log rows up to it, in one
    /// transaction: replaying the log over half a projection would count versions twice. Elements and payloads, which
    /// replaying leaves as they are, may be there before the rest.
    async fn project(&self, projection: Projection) -> Result<(), StoreError>;

    /// One projected document.
    async fn document(&self, key: &Key) -> Result<Option<Versioned<Bytes>>, StoreError>;

    /// Several projected documents, in the order they are asked for.
    async fn each(&self, keys: &[Key]) -> Result<Vec<Option<Versioned<Bytes>>>, StoreError> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            found.push(self.document(key).await?);
        }
        Ok(found)
    }

    /// Projected documents of a kind with ids after `after`, in order.
    async fn documents(
        &self,
        kind: Kind,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Versioned<Bytes>)>, StoreError>;

    /// Projected entries of a stream after number `after`, in order.
    async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// The number of the last projected entry of a stream.
    async fn head(&self, stream: &Stream) -> Result<u64, StoreError>;

    /// The same for several streams, in the order they are asked for.
    async fn heads(&self, streams: &[Stream]) -> Result<Vec<u64>, StoreError> {
        let mut found = Vec::with_capacity(streams.len());
        for stream in streams {
            found.push(self.head(stream).await?);
        }
        Ok(found)
    }

    /// Projected accounts, in the order they are asked for; `None` was never opened.
    async fn accounts(&self, names: &[Arc<str>]) -> Result<Vec<Option<Account>>, StoreError>;

    /// A projected payload.
    async fn payload(&self, hash: &Hash) -> Result<Option<Bytes>, StoreError>;

    /// Projected pages of one graph from page `from` on, at most `max`, in order: the number of each page
    /// and its elements. A page holds [`PAGE_ELEMENTS`] numbers.
    async fn pages(&self, nexus: &str, from: u64, max: usize) -> Result<Vec<Page>, StoreError>;

    /// Releases whatever is held; nothing is called afterwards.
    async fn close(&self) -> Result<(), StoreError>;
}
