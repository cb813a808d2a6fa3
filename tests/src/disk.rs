//! A disk that is watched: something happens before and after each row that is written to its log.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use store::ledger::Account;
use store::{Backend, Entry, Hash, Key, Kind, Page, Projection, Recovered, StoreError, Stream, Timestamp, Versioned};

/// What watches a disk.
#[async_trait]
pub trait Watch: Send + Sync + 'static {
    /// Before a row is written.
    async fn before(&self, row: &Bytes);
    /// Once it is durable.
    async fn after(&self, row: &Bytes);
    /// Before documents of a kind are listed; does nothing by default.
    async fn listing(&self, _kind: Kind) {}
}

/// See the module.
pub struct Watched<B, W> {
    inner: Arc<B>,
    /// What watches it.
    pub watch: W,
}

impl<B: Backend, W: Watch> Watched<B, W> {
    /// `inner`, watched.
    pub fn new(inner: Arc<B>, watch: W) -> Self {
        Self { inner, watch }
    }
}

#[async_trait]
impl<B: Backend, W: Watch> Backend for Watched<B, W> {
    async fn open(&self, now: Timestamp) -> Result<Recovered, StoreError> {
        self.inner.open(now).await
    }

    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError> {
        self.watch.before(&row).await;
        self.inner.append(n, row.clone()).await?;
        self.watch.after(&row).await;
        Ok(())
    }

    async fn project(&self, projection: Projection) -> Result<(), StoreError> {
        self.inner.project(projection).await
    }

    async fn document(&self, key: &Key) -> Result<Option<Versioned<Bytes>>, StoreError> {
        self.inner.document(key).await
    }

    async fn documents(
        &self,
        kind: Kind,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Versioned<Bytes>)>, StoreError> {
        self.watch.listing(kind).await;
        self.inner.documents(kind, after, limit).await
    }

    async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.inner.entries(stream, after, limit).await
    }

    async fn head(&self, stream: &Stream) -> Result<u64, StoreError> {
        self.inner.head(stream).await
    }

    async fn accounts(&self, names: &[Arc<str>]) -> Result<Vec<Option<Account>>, StoreError> {
        self.inner.accounts(names).await
    }

    async fn payload(&self, hash: &Hash) -> Result<Option<Bytes>, StoreError> {
        self.inner.payload(hash).await
    }

    async fn pages(&self, nexus: &str, from: u64, max: usize) -> Result<Vec<Page>, StoreError> {
        self.inner.pages(nexus, from, max).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
