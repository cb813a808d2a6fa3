//! A backend that fails on demand: before a write, after it, or with only part of it written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;

use super::StoreError;
use super::backend::{Backend, Page, Projection, Recovered};
use super::batch::{Entry, Hash, Key, Kind, Stream, Versioned};
use crate::clock::Timestamp;
use crate::ledger::Account;

/// A fault of one append.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No fault.
    None,
    /// The append fails without writing anything.
    Before,
    /// The append is written but reported as failed, so the caller does not know the outcome.
    After,
    /// Only the first bytes are written before the append fails, as in a power failure.
    Torn(usize),
    /// The append waits until the test releases it.
    Held(Arc<Notify>),
    /// The disk is full: every attempt fails.
    Full,
}

/// A wrapper around any backend. Each append uses up one fault, and each checkpoint one of its own faults.
pub struct Faulty<B> {
    inner: Arc<B>,
    faults: Mutex<VecDeque<Fault>>,
    of_checkpoints: Mutex<VecDeque<Fault>>,
}

impl<B: Backend> Faulty<B> {
    /// Returns `inner`, with appends that fail according to `faults`.
    pub fn new(inner: Arc<B>, faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { inner, faults: Mutex::new(faults.into_iter().collect()), of_checkpoints: Mutex::default() }
    }

    /// Adds faults of checkpoints.
    pub fn with_checkpoints(self, faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { of_checkpoints: Mutex::new(faults.into_iter().collect()), ..self }
    }

    /// Adds a fault of appends.
    pub fn add(&self, fault: Fault) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    /// Removes all faults of appends, as when a full disk has room again.
    pub fn clear(&self) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn next(faults: &Mutex<VecDeque<Fault>>) -> Fault {
        let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(faults.front(), Some(Fault::Full)) {
            Fault::Full
        } else {
            faults.pop_front().unwrap_or(Fault::None)
        }
    }
}

#[async_trait]
impl<B: Backend> Backend for Faulty<B> {
    async fn open(&self, now: Timestamp) -> Result<Recovered, StoreError> {
        self.inner.open(now).await
    }

    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError> {
        let failed = |what: &str| Err(StoreError::Io(format!("injected: {what}")));
        match Self::next(&self.faults) {
            Fault::None => self.inner.append(n, row).await,
            Fault::Held(go_on) => {
                go_on.notified().await;
                self.inner.append(n, row).await
            }
            Fault::Before => failed("before the write"),
            Fault::Full => failed("no space left on device"),
            Fault::After => {
                self.inner.append(n, row).await?;
                failed("after the write")
            }
            Fault::Torn(bytes) => {
                self.inner.append(n, row.slice(..bytes.min(row.len()))).await?;
                failed("in the middle of the write")
            }
        }
    }

    async fn project(&self, projection: Projection) -> Result<(), StoreError> {
        let failed = |what: &str| Err(StoreError::Io(format!("injected: {what}")));
        match Self::next(&self.of_checkpoints) {
            // A checkpoint is one transaction, so it is never torn.
            Fault::None | Fault::Torn(_) => self.inner.project(projection).await,
            Fault::Held(go_on) => {
                go_on.notified().await;
                self.inner.project(projection).await
            }
            Fault::Before => failed("before the checkpoint"),
            Fault::Full => failed("no space left on device"),
            Fault::After => {
                self.inner.project(projection).await?;
                failed("after the checkpoint")
            }
        }
    }

    async fn each(&self, keys: &[Key]) -> Result<Vec<Option<Versioned<Bytes>>>, StoreError> {
        self.inner.each(keys).await
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
        self.inner.documents(kind, after, limit).await
    }

    async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.inner.entries(stream, after, limit).await
    }

    async fn head(&self, stream: &Stream) -> Result<u64, StoreError> {
        self.inner.head(stream).await
    }

    async fn heads(&self, streams: &[Stream]) -> Result<Vec<u64>, StoreError> {
        self.inner.heads(streams).await
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

    async fn damaged_files(&self) -> Result<Vec<String>, StoreError> {
        self.inner.damaged_files().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
