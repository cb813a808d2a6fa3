//! The store: documents, journals, accounts, graph rows and payloads behind one way to write.
//!
//! [`Store::commit`] is all or nothing, checks expected versions and is durable when it returns.
//! [`Store::follow`] reads a journal stream and then waits for more. What makes bytes durable is a
//! [`Backend`]; the rules are written once, here, and hold for every backend alike.

mod backend;
mod batch;
pub mod clock;
mod committer;
pub mod event;
#[cfg(feature = "testing")]
pub mod faulty;
mod frame;
pub mod ledger;
mod memory;
pub mod principal;
pub mod secrets;
pub mod shares;
mod state;
#[cfg(feature = "testing")]
pub mod suite;
#[cfg(feature = "surreal")]
pub mod surreal;
pub mod turns;
pub mod vital;
mod written;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};

pub use backend::{Backend, Opened, PAGE_ELEMENTS, Page, Projected, Projection};
pub use batch::{Batch, Entry, Expect, Hash, Key, Kind, Op, Receipt, Stream, Versioned, json, last_version};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use event::Event;
pub use frame::Frame;
pub use memory::Memory;
pub use principal::{Cause, Directory, NoDirectory, Origin, Principal, PrincipalId, PrincipalKind, Role, Scope};
pub use shares::{NoPlace, Place, Shares};
pub use turns::{Turn, Turns, Wants};
pub use vital::vital;

use crate::ledger::{Account, LedgerError};
use committer::{Committer, DIRTY_BYTES, Request};
use state::State;
use written::Written;

/// The reason why the store refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// A document or stream was not at the expected version. Nothing was written.
    #[error("{what} is at {found}, not at {expected}")]
    Conflict {
        /// The document or stream.
        what: Arc<str>,
        /// The version that was named.
        expected: u64,
        /// The version it has.
        found: u64,
    },
    /// An account refused. Nothing was written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Another daemon has this store open.
    #[error("the store {0} is in use by another lifeformd: stop that one, or give this one another --data folder")]
    Locked(String),
    /// Another daemon took the store over while this one ran.
    #[error("another lifeformd took over the store (lease epoch {0}): this one must stop")]
    LeaseLost(u64),
    /// One commit is larger than a row of the log may be.
    #[error("a commit of {bytes} bytes is over the bound of {max}")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The data on disk cannot be read.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Rows at the end of the log are lost. Nothing was changed.
    #[error(
        "the store lost its last commits: {0}. Put the files back, or start with --accept-loss to go on without them"
    )]
    Lost(String),
    /// A newer release wrote what is on disk.
    #[error("the store was written by a newer lifeformd: {0}. Run that one")]
    Newer(String),
    /// The disk or the database failed; nothing was written, or the write was found and answered.
    #[error("the store could not write or read: {0}")]
    Io(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// The largest commit, in bytes of its packed frame.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// The most entries that one read of a stream returns.
pub const PAGE_MAX: usize = 256;

/// A cheap handle; clones share one store.
#[derive(Clone)]
pub struct Store {
    requests: mpsc::Sender<Request>,
    state: Arc<RwLock<State>>,
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    health: watch::Receiver<Health>,
    /// The bytes that participants had written lately.
    written: Arc<Written>,
}

/// The health of the store. A member is `None` while writing works, and after it works again.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The reason why the last commit failed: nothing is accepted.
    pub commits: Option<StoreError>,
    /// The reason why the last checkpoint failed: commits go on until 28 MiB of them wait.
    pub checkpoints: Option<StoreError>,
}

impl Store {
    /// Opens the store: takes its lease, migrates, and replays what the last checkpoint had not covered.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another daemon has it, [`StoreError::Corrupt`] when it cannot be read.
    pub async fn open(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let opened = backend.open(clock.now()).await?;
        let mut state = State::new(opened.checkpoint);
        let rows = opened.log.len();
        for (index, (n, row)) in opened.log.into_iter().enumerate() {
            let (frames, whole) = frame::decode(&row)?;
            if !whole && index + 1 < rows {
                return Err(StoreError::Corrupt(format!("log row {n} is torn and later rows follow it")));
            }
            if !whole {
                // What is left of a torn last row is made a whole one, before other rows follow it.
                let mut mended = bytes::BytesMut::new();
                frames.iter().try_for_each(|frame| frame::encode(frame, &mut mended))?;
                backend.append(n, mended.freeze()).await?;
            }
            for frame in &frames {
                state.warm(&*backend, &frame.ops).await?;
                state.replay(n, frame);
            }
            state.logged_bytes += row.len();
            // A log that outgrew what one checkpoint may write is projected piece by piece.
            if state.dirty_bytes > DIRTY_BYTES {
                backend.project(state.projection()).await?;
                state.dirty_bytes = 0;
                drop(state.projected(n));
                state.forget_clean();
            }
        }
        let state = Arc::new(RwLock::new(state));
        let (requests, inbox) = mpsc::channel(1024);
        let committer = Committer::new(backend.clone(), state.clone(), clock.clone(), inbox);
        let health = committer.health();
        tokio::spawn(crate::vital("store", committer.run()));
        let written = Arc::new(Written::new(written::BYTES_A_DAY));
        Ok(Self { requests, state, backend, clock, health, written })
    }

    /// The same, with so many bytes that a participant may have written in a day (512 MiB by default); 0 binds nobody.
    #[must_use]
    pub fn with_bytes_a_day(self, bytes: u64) -> Self {
        Self { written: Arc::new(Written::new(bytes)), ..self }
    }

    /// Returns how long `principal` has to wait until it may have something written again; `None` when it may now. What
    /// is under way is written all the same: this is asked where work is admitted. A restart forgets what was written.
    pub fn disk_wait(&self, principal: &Principal) -> Option<Duration> {
        self.written.wait(principal, self.clock.now())
    }

    /// A store in memory, for tests and for `--memory`.
    pub async fn in_memory(clock: Arc<dyn Clock>) -> Self {
        match Self::open(Arc::new(Memory::default()), clock).await {
            Ok(store) => store,
            Err(error) => unreachable!("an empty memory store opens: {error}"),
        }
    }

    /// Returns the outcome of the last commit and the last checkpoint.
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// The clock every commit is stamped with.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Writes `batch`: all of it or nothing, durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] and [`StoreError::Ledger`] refuse this batch alone; the others are the store's.
    pub async fn commit(&self, batch: Batch) -> Result<Receipt, StoreError> {
        self.submit(batch).await.await
    }

    /// Writes `batch` and then runs `then`, whether or not it was written. Both happen even when the caller is dropped
    /// meanwhile, so that `then` can mark caches of the store as out of date.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub async fn commit_then(&self, batch: Batch, then: impl FnOnce() + Send + 'static) -> Result<Receipt, StoreError> {
        let store = self.clone();
        let committing = tokio::spawn(async move {
            let committed = store.commit(batch).await;
            then();
            committed
        });
        committing.await.unwrap_or_else(|died| Err(StoreError::Io(died.to_string())))
    }

    /// Writes `batch`, and keeps at it while the disk fails: for what was done and must not be done again.
    ///
    /// # Errors
    /// As [`Self::commit`], but for [`StoreError::Io`].
    pub async fn commit_at_last(&self, batch: Batch) -> Result<Receipt, StoreError> {
        let mut wait = Duration::from_millis(50);
        loop {
            match self.commit(batch.clone()).await {
                Err(StoreError::Io(reason)) => {
                    tracing::warn!(%reason, "what was done cannot be written, trying again");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(Duration::from_secs(5));
                }
                other => return other,
            }
        }
    }

    /// Hands `batch` over and answers the wait for it. Batches are taken in the order they are handed
    /// over, so one owner may have several under way.
    pub async fn submit(&self, batch: Batch) -> impl Future<Output = Result<Receipt, StoreError>> + Send + 'static {
        let bytes = || batch.ops.iter().map(|op| state::cost(op, &batch.origin.cause)).sum();
        self.written.count(&batch.origin.principal, bytes, self.clock.now());
        let (reply, answer) = oneshot::channel();
        let handed = self.requests.send(Request::Commit(batch, reply)).await;
        async move {
            handed.map_err(|_| StoreError::Closed)?;
            answer.await.map_err(|_| StoreError::Closed)?
        }
    }

    /// A document and its version, or `None`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it has another shape than `T`.
    pub async fn document<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<Versioned<T>>, StoreError> {
        let cached = self.read(|state| state.document(key));
        let found = match cached {
            Some(known) => known,
            None => self.backend.document(key).await?,
        };
        found.map(|found| decode(key, found)).transpose()
    }

    /// Documents of one kind whose ids come after `after`, in id order, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when one has another shape than `T`.
    pub async fn documents<T: DeserializeOwned>(
        &self,
        kind: Kind,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Versioned<T>)>, StoreError> {
        let fresh = self.read(|state| state.documents(kind, after));
        // A deletion in memory hides a row, so as many more are asked for as memory knows.
        let stored = self.backend.documents(kind, after, limit.saturating_add(fresh.len())).await?;
        let mut merged: std::collections::BTreeMap<Arc<str>, Option<Versioned<Bytes>>> =
            stored.into_iter().map(|(id, found)| (id, Some(found))).collect();
        merged.extend(fresh);
        let present = merged.into_iter().filter_map(|(id, found)| Some((id, found?)));
        present.take(limit).map(|(id, found)| Ok((id.clone(), decode(&Key(kind, id), found)?))).collect()
    }

    /// Entries of `stream` after number `after`, in order, at most `limit` and [`PAGE_MAX`].
    ///
    /// # Errors
    /// Only the store's own.
    pub async fn entries(&self, stream: &Stream, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let limit = limit.min(PAGE_MAX);
        let (first, fresh) = self.read(|state| state.entries(stream, after, limit));
        if first.is_some_and(|first| first <= after.saturating_add(1)) {
            return Ok(fresh);
        }
        let mut entries = self.backend.entries(stream, after, limit).await?;
        if let Some(first) = first {
            entries.retain(|entry| entry.seq < first);
            entries.extend(fresh);
        }
        entries.truncate(limit);
        // A missing entry is reported by name, and not skipped.
        if let Some(pair) = entries.windows(2).find(|pair| pair[1].seq != pair[0].seq + 1) {
            let (last, next) = (pair[0].seq, pair[1].seq);
            return Err(StoreError::Corrupt(format!("{stream}: entry {next} follows entry {last}")));
        }
        Ok(entries)
    }

    /// All entries of `stream` that it still holds: for streams that are known to be short.
    ///
    /// # Errors
    /// Only the store's own.
    pub async fn all_entries(&self, stream: &Stream) -> Result<Vec<Entry>, StoreError> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let page = self.entries(stream, all.last().map_or(0, |last| last.seq), PAGE_MAX).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// The number of the last entry of `stream`; 0 when it has none.
    ///
    /// # Errors
    /// Only the store's own.
    pub async fn head(&self, stream: &Stream) -> Result<u64, StoreError> {
        match self.read(|state| state.head(stream)) {
            Some(head) => Ok(head),
            None => self.backend.head(stream).await,
        }
    }

    /// Follows `stream` from after number `after`: first the backlog, then each entry as it is committed.
    pub fn follow(&self, stream: Stream, after: u64) -> Follow {
        // Watching starts before reading, so no commit can fall between the two.
        let wake = self.write(|state| state.watch(&stream));
        Follow { store: self.clone(), stream, after, wake, page: Vec::new().into_iter() }
    }

    /// Returns an account with its releases until now, or `None` if it was never opened.
    ///
    /// # Errors
    /// Only the store's own.
    pub async fn account(&self, account: &str) -> Result<Option<Account>, StoreError> {
        let (known, forgotten) = self.read(|state| (state.account(account), state.accounts_forgotten()));
        let account = match known {
            Some(known) => known,
            None => {
                let asked = self.backend.accounts(&[account.into()]).await?.pop().flatten();
                self.write(|state| state.learn_account(account, asked, forgotten))
            }
        };
        Ok(account.map(|account| account.at(self.clock.now())))
    }

    /// The bytes kept under `hash`.
    ///
    /// # Errors
    /// Only the store's own.
    pub async fn payload(&self, hash: &Hash) -> Result<Option<Bytes>, StoreError> {
        match self.read(|state| state.payload(hash)) {
            Some(body) => Ok(Some(body)),
            None => self.backend.payload(hash).await,
        }
    }

    /// A stretch of the graph of `nexus` from page `from` on: its elements by number, in order, and the
    /// page where the next stretch begins, if there is one.
    ///
    /// # Errors
    /// Only the store's own.
    pub async fn elements(
        &self,
        nexus: &str,
        from: u64,
        max: usize,
    ) -> Result<(Vec<(u64, Bytes)>, Option<u64>), StoreError> {
        // Memory is asked first: what a checkpoint moves to the backend in between is then found twice, not never.
        let fresh = self.read(|state| state.elements(nexus, from * PAGE_ELEMENTS..u64::MAX));
        let pages = self.backend.pages(nexus, from, max).await?;
        let next = if pages.len() < max { None } else { pages.last().map(|(page, _)| page + 1) };
        let end = next.map_or(u64::MAX, |next| next * PAGE_ELEMENTS);
        let mut rows: std::collections::BTreeMap<u64, Option<Bytes>> =
            pages.into_iter().flat_map(|(_, elements)| elements).map(|(no, body)| (no, Some(body))).collect();
        rows.extend(fresh.into_iter().filter(|(no, _)| *no < end));
        Ok((rows.into_iter().filter_map(|(no, body)| Some((no, body?))).collect(), next))
    }

    /// Writes the projections of everything committed so far and trims the log.
    ///
    /// # Errors
    /// Only the store's own; the log still holds whatever was not projected.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Checkpoint(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Stops taking commits, finishes the ones taken, checkpoints and releases the backend.
    ///
    /// # Errors
    /// When the last checkpoint fails; nothing acknowledged is lost by that.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Close(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    fn read<T>(&self, ask: impl FnOnce(&State) -> T) -> T {
        ask(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn decode<T: DeserializeOwned>(key: &Key, found: Versioned<Bytes>) -> Result<Versioned<T>, StoreError> {
    let value = serde_json::from_slice(&found.value)
        .map_err(|error| StoreError::Corrupt(format!("document {key}: {error}")))?;
    Ok(Versioned { version: found.version, value })
}

/// A position in a stream that moves forward; nothing is skipped and nothing comes twice.
pub struct Follow {
    store: Store,
    stream: Stream,
    after: u64,
    wake: watch::Receiver<u64>,
    page: std::vec::IntoIter<Entry>,
}

impl Follow {
    /// The next entry; waits for it if it is not there yet.
    ///
    /// # Errors
    /// [`StoreError::Closed`] once the store is closed and the backlog is read, else the store's own.
    pub async fn next(&mut self) -> Result<Entry, StoreError> {
        loop {
            if let Some(entry) = self.ready().await? {
                return Ok(entry);
            }
            self.wake.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }

    /// The next entry if it is committed already.
    ///
    /// # Errors
    /// The store's own.
    pub async fn ready(&mut self) -> Result<Option<Entry>, StoreError> {
        if let Some(entry) = self.page.next() {
            self.after = entry.seq;
            return Ok(Some(entry));
        }
        self.wake.mark_unchanged();
        self.page = self.store.entries(&self.stream, self.after, PAGE_MAX).await?.into_iter();
        Ok(self.page.next().inspect(|entry| self.after = entry.seq))
    }

    /// Returns `true` if every committed entry was returned.
    pub async fn is_at_end(&self) -> bool {
        self.page.as_slice().is_empty() && self.store.head(&self.stream).await.is_ok_and(|head| head <= self.after)
    }

    /// The number of the last entry answered.
    pub fn position(&self) -> u64 {
        self.after
    }
}

/// The quiet time after which a store writes a checkpoint.
pub(crate) const QUIET: Duration = Duration::from_millis(1500);

impl StoreError {
    /// Returns `true` for the refusal of an account: the one failure that a top-up mends.
    pub fn is_ledger_refusal(&self) -> bool {
        matches!(self, Self::Ledger(_))
    }
}
