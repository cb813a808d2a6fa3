//! The in-memory backend. After the last holder was dropped, it can be opened again with its rows, so a test can kill
//! a store and open another one on the same "disk". It refuses late writes of the killed store, as a database refuses
//! a writer without the lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;

use super::StoreError;
use super::backend::{Backend, PAGE_ELEMENTS, Page, Projected, Projection, Recovered};
use super::batch::{Entry, Hash, Key, Kind, Stream, Versioned};
use crate::clock::Timestamp;
use crate::ledger::Account;

#[derive(Default)]
struct Rows {
    in_use: bool,
    /// The epoch of the lease; incremented by every opening. A writer with another epoch is refused.
    epoch: u64,
    log: BTreeMap<u64, Bytes>,
    checkpoint: u64,
    documents: BTreeMap<Key, Versioned<Bytes>>,
    journals: BTreeMap<Stream, Vec<Entry>>,
    accounts: BTreeMap<Arc<str>, Account>,
    elements: BTreeMap<(Arc<str>, u64), Bytes>,
    payloads: BTreeMap<Hash, Bytes>,
}

/// The in-memory backend; see the module documentation.
#[derive(Default)]
pub struct Memory {
    rows: Arc<Mutex<Rows>>,
    /// The epoch of this opening.
    epoch: AtomicU64,
}

impl Memory {
    /// Returns the disk in the state after a kill of the process: the rows remain, and the lock is released.
    #[must_use = "what is killed writes no more"]
    pub fn kill(&self) -> Arc<Self> {
        let mut rows = self.rows();
        rows.in_use = false;
        rows.epoch += 1;
        Arc::new(Self { rows: self.rows.clone(), epoch: AtomicU64::default() })
    }

    /// Returns the rows if this backend holds the lease.
    fn held(&self) -> Result<MutexGuard<'_, Rows>, StoreError> {
        let rows = self.rows();
        let epoch = rows.epoch;
        if epoch == self.epoch.load(Ordering::SeqCst) { Ok(rows) } else { Err(StoreError::LeaseLost(epoch)) }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Memory {
    async fn open(&self, _now: Timestamp) -> Result<Recovered, StoreError> {
        let mut rows = self.rows();
        if std::mem::replace(&mut rows.in_use, true) {
            return Err(StoreError::Locked("in memory".into()));
        }
        rows.epoch += 1;
        self.epoch.store(rows.epoch, Ordering::SeqCst);
        Ok(Recovered { checkpoint: rows.checkpoint, log: rows.log.iter().map(|(n, row)| (*n, row.clone())).collect() })
    }

    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError> {
        // The bytes are copied: the slice would keep the whole packing buffer alive.
        self.held()?.log.insert(n, Bytes::copy_from_slice(&row));
        Ok(())
    }

    async fn project(&self, projection: Projection) -> Result<(), StoreError> {
        let mut rows = self.held()?;
        for Projected { key, document, .. } in projection.documents {
            match document {
                Some(document) => rows.documents.insert(key, document),
                None => rows.documents.remove(&key),
            };
        }
        for stream in &projection.forgotten {
            rows.journals.remove(stream);
        }
        for (stream, upto) in &projection.trimmed {
            rows.journals.entry(stream.clone()).or_default().retain(|entry| entry.seq > *upto);
        }
        for (stream, entries) in projection.journals {
            rows.journals.entry(stream).or_default().extend(entries.into_iter().map(Arc::unwrap_or_clone));
        }
        rows.accounts.extend(projection.accounts);
        for (nexus, no, body) in projection.elements {
            match body {
                Some(body) => rows.elements.insert((nexus, no), body),
                None => rows.elements.remove(&(nexus, no)),
            };
        }
        rows.payloads.extend(projection.payloads);
        rows.checkpoint = projection.upto;
        rows.log = rows.log.split_off(&(projection.upto + 1));
        Ok(())
    }

    async fn document(&self, key: &Key) -> Result<Option<Versioned<Bytes>>, StoreError> {
        Ok(self.rows().documents.get(key).cloned())
    }

    async fn documents(
        &self,
        kind: Kind,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Versioned<Bytes>)>, StoreError> {
        let from = (std::ops::Bound::Excluded(Key::new(kind, after)), std::ops::Bound::Unbounded);
        let rows = self.rows();
        Ok(rows
            .documents
            .range(from)
            .take_while(|(key, _)| key.0 == kind)
            .take(limit)
            .map(|(key, document)| (key.1.clone(), document.clone()))
            .collect())
    }

    async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let rows = self.rows();
        let entries = rows.journals.get(stream).map_or(&[][..], Vec::as_slice);
        let skip = entries.partition_point(|entry| entry.seq <= after);
        Ok(entries.iter().skip(skip).take(limit).cloned().collect())
    }

    async fn head(&self, stream: &Stream) -> Result<u64, StoreError> {
        Ok(self.rows().journals.get(stream).and_then(|entries| entries.last()).map_or(0, |last| last.seq))
    }

    async fn accounts(&self, names: &[Arc<str>]) -> Result<Vec<Option<Account>>, StoreError> {
        let rows = self.rows();
        Ok(names.iter().map(|name| rows.accounts.get(name).cloned()).collect())
    }

    async fn payload(&self, hash: &Hash) -> Result<Option<Bytes>, StoreError> {
        Ok(self.rows().payloads.get(hash).cloned())
    }

    async fn pages(&self, nexus: &str, from: u64, max: usize) -> Result<Vec<Page>, StoreError> {
        let rows = self.rows();
        let mut pages: Vec<Page> = Vec::new();
        let all = rows.elements.range((Arc::from(nexus), from * PAGE_ELEMENTS)..);
        for ((_, no), body) in all.take_while(|((of, _), _)| &**of == nexus) {
            let page = no / PAGE_ELEMENTS;
            if pages.last().is_none_or(|(last, _)| *last != page) {
                if pages.len() == max {
                    break;
                }
                pages.push((page, Vec::new()));
            }
            if let Some((_, elements)) = pages.last_mut() {
                elements.push((*no, body.clone()));
            }
        }
        Ok(pages)
    }

    async fn close(&self) -> Result<(), StoreError> {
        if let Ok(mut rows) = self.held() {
            rows.in_use = false;
        }
        Ok(())
    }
}
