//! The store: documents, journals, accounts, graph rows and payloads behind one write path.
//!
//! [`Store::commit`] is atomic, checks expected versions and is durable when it returns. [`Store::follow`] reads a
//! journal stream and then waits for new entries. A [`Backend`] makes bytes durable. The rules of the store are
//! implemented once, in this crate, and hold for every backend.

mod address;
mod backend;
mod batch;
pub mod clock;
mod committer;
mod error;
pub mod event;
#[cfg(feature = "testing")]
pub mod faulty;
mod frame;
mod invisible;
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
use tokio::sync::{broadcast, mpsc, oneshot, watch};

pub use backend::{Backend, PAGE_ELEMENTS, Page, Projected, Projection, Recovered};
pub use batch::{
    Batch, Entry, Expect, Hash, Key, Kind, Op, Receipt, Stream, Versioned, json, last_version, written_by,
};
pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use error::StoreError;
pub use event::Event;
pub use frame::Frame;
pub use invisible::is_invisible;
pub use memory::Memory;
pub use principal::{Cause, Directory, NoDirectory, Origin, Principal, PrincipalId, PrincipalKind, Role, Scope};
pub use shares::{NoPlace, Place, Shares};
pub use turns::{Turn, Turns, Wants};
pub use vital::vital;

use crate::ledger::Account;
use committer::{Committer, DIRTY_BYTES, Request};
use state::State;
use written::Written;

/// The largest commit, in bytes of its packed frame.
pub const COMMIT_BYTES_MAX: usize = 4 << 20;
/// The maximum number of entries that one read of a stream returns.
pub const PAGE_MAX: usize = 256;

/// An entry that a commit appended to a journal.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The journal.
    pub stream: Stream,
    /// The entry.
    pub entry: Arc<Entry>,
}

/// A cheap handle to the store; all clones share one store.
#[derive(Clone)]
pub struct Store {
    requests: mpsc::Sender<Request>,
    state: Arc<RwLock<State>>,
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    health: Arc<watch::Sender<Health>>,
    /// The number of bytes that each participant submitted recently.
    written: Arc<Written>,
}

/// The health of the store. A field is `None` while the operation succeeds, and again after it recovers.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// The reason why the last append to the log failed. The next commit tries again.
    pub commits: Option<StoreError>,
    /// The reason why the last checkpoint failed. The store accepts commits until 28 MiB of them wait for a
    /// checkpoint.
    pub checkpoints: Option<StoreError>,
    /// The files that were damaged when [`Store::check_files`] last read them.
    pub damaged: Vec<String>,
}

impl Store {
    /// Opens the store: takes the lease, migrates the data, and replays the rows that no checkpoint covers yet.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another daemon has opened the store, [`StoreError::Corrupt`] when it is
    /// unreadable.
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
                // Rewrites the complete frames of a torn last row as a complete row before other rows follow it.
                let mut mended = bytes::BytesMut::new();
                frames.iter().try_for_each(|frame| frame::encode(frame, &mut mended))?;
                backend.append(n, mended.freeze()).await?;
            }
            for frame in &frames {
                state.warm(&*backend, &frame.ops).await?;
                state.replay(n, frame);
            }
            state.logged_bytes += row.len();
            // Writes a long log as several checkpoints, because one checkpoint has a maximum size.
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

    /// Sets the maximum number of bytes that a participant may write per day (default 512 MiB); 0 means no limit.
    #[must_use]
    pub fn with_bytes_a_day(self, bytes: u64) -> Self {
        Self { written: Arc::new(Written::new(bytes)), ..self }
    }

    /// Returns the time that `principal` must wait before new work is admitted; `None` means no wait. Work under way
    /// is not affected: callers check this only on admission. The count of written bytes does not survive a restart.
    pub fn disk_wait(&self, principal: &Principal) -> Option<Duration> {
        self.written.wait(principal, self.clock.now())
    }

    /// Opens a store in memory, for tests and for `--memory`.
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

    /// Reads all files that hold checkpoints, slowly, and records the damaged ones in the [health](Self::health). A
    /// damaged file shows otherwise only when the damaged part is read, or when the database rewrites it and fails.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub async fn check_files(&self) -> Result<(), StoreError> {
        let damaged = self.backend.damaged_files().await?;
        for file in &damaged {
            tracing::error!(file, "a file of the store is damaged: stop, and put it back from a backup that has it");
        }
        self.health.send_modify(|health| health.damaged = damaged);
        Ok(())
    }

    /// The clock that timestamps every commit.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Writes `batch` atomically; the batch is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] and [`StoreError::Ledger`] refuse only this batch; all other errors concern the
    /// store.
    pub async fn commit(&self, batch: Batch) -> Result<Receipt, StoreError> {
        self.submit(batch).await.await
    }

    /// Writes `batch` and then runs `then`, even if the write failed. Both happen even if the caller is dropped
    /// meanwhile, so `then` can invalidate caches of stored data.
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

    /// Writes `batch` and retries while the disk fails. For records of actions that must not be repeated.
    ///
    /// # Errors
    /// As [`Self::commit`], except for [`StoreError::Io`].
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

    /// Queues `batch` and returns a future of its receipt. The committer takes batches in the order of submission, so
    /// one writer may have several in flight.
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

    /// Returns a document with its version, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the document does not have the form of `T`.
    pub async fn document<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<Versioned<T>>, StoreError> {
        let cached = self.read(|state| state.document(key));
        let found = match cached {
            Some(known) => known,
            None => self.backend.document(key).await?,
        };
        found.map(|found| decode(key, found)).transpose()
    }

    /// Returns at most `limit` documents of one kind, in id order, whose ids come after `after`.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a document does not have the form of `T`.
    pub async fn documents<T: DeserializeOwned>(
        &self,
        kind: Kind,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(Arc<str>, Versioned<T>)>, StoreError> {
        let fresh = self.read(|state| state.documents(kind, after, limit));
        // A deletion in memory hides a row of the backend, so the query asks for one more row per deletion.
        let deleted = fresh.iter().filter(|(_, found)| found.is_none()).count();
        let stored = self.backend.documents(kind, after, limit.saturating_add(deleted)).await?;
        let mut merged: std::collections::BTreeMap<Arc<str>, Option<Versioned<Bytes>>> =
            stored.into_iter().map(|(id, found)| (id, Some(found))).collect();
        merged.extend(fresh);
        let present = merged.into_iter().filter_map(|(id, found)| Some((id, found?)));
        present.take(limit).map(|(id, found)| Ok((id.clone(), decode(&Key(kind, id), found)?))).collect()
    }

    /// Returns the entries of `stream` after number `after`, in order; at most `limit` and at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// Errors of the store only.
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
        // A gap between entries is an error that names the stream, so that readers never skip an entry.
        if let Some(pair) = entries.windows(2).find(|pair| pair[1].seq != pair[0].seq + 1) {
            let (last, next) = (pair[0].seq, pair[1].seq);
            return Err(StoreError::Corrupt(format!("{stream}: entry {next} follows entry {last}")));
        }
        Ok(entries)
    }

    /// Returns all entries that `stream` still has. For streams that are known to be short.
    ///
    /// # Errors
    /// Errors of the store only.
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

    /// Returns the number of the last entry of `stream`; 0 when it is empty.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn head(&self, stream: &Stream) -> Result<u64, StoreError> {
        match self.read(|state| state.head(stream)) {
            Some(head) => Ok(head),
            None => self.backend.head(stream).await,
        }
    }

    /// Follows `stream` after number `after`: first the backlog, then each entry as it is committed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), store::StoreError> {
    /// use std::sync::Arc;
    /// use store::{Batch, ManualClock, Origin, Store, Stream};
    /// let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    /// let stream = Stream::from("journal".to_owned());
    /// let mut follow = store.follow(stream.clone(), 0);
    /// store.commit(Batch::new(&Origin::system("example")).append(stream, "said", &1)).await?;
    /// assert_eq!(follow.next().await?.seq, 1);
    /// # Ok(()) }
    /// ```
    pub fn follow(&self, stream: Stream, after: u64) -> Follow {
        // Watching starts before reading, so no commit can fall between the two.
        let wake = self.write(|state| state.watch(&stream));
        Follow { store: self.clone(), stream, after, wake, page: Vec::new().into_iter() }
    }

    /// Returns an account, with its released nutrients until now; `None` if it was never opened.
    ///
    /// # Errors
    /// Errors of the store only.
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

    /// Returns the payload stored under `hash`.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn payload(&self, hash: &Hash) -> Result<Option<Bytes>, StoreError> {
        match self.read(|state| state.payload(hash)) {
            Some(body) => Ok(Some(body)),
            None => self.backend.payload(hash).await,
        }
    }

    /// Returns one page range of the graph of `nexus`, from page `from` on: the elements by number, in order, and the
    /// page where the next range begins, if there is one.
    ///
    /// # Errors
    /// Errors of the store only.
    pub async fn elements(
        &self,
        nexus: &str,
        from: u64,
        max: usize,
    ) -> Result<(Vec<(u64, Bytes)>, Option<u64>), StoreError> {
        // Reads memory first: rows that a checkpoint moves to the backend meanwhile are then found twice instead of
        // never.
        let fresh = self.read(|state| state.elements(nexus, from * PAGE_ELEMENTS..u64::MAX));
        let pages = self.backend.pages(nexus, from, max).await?;
        let next = if pages.len() < max { None } else { pages.last().map(|(page, _)| page + 1) };
        let end = next.map_or(u64::MAX, |next| next * PAGE_ELEMENTS);
        let mut rows: std::collections::BTreeMap<u64, Option<Bytes>> =
            pages.into_iter().flat_map(|(_, elements)| elements).map(|(no, body)| (no, Some(body))).collect();
        rows.extend(fresh.into_iter().filter(|(no, _)| *no < end));
        Ok((rows.into_iter().filter_map(|(no, body)| Some((no, body?))).collect(), next))
    }

    /// Writes a checkpoint of everything committed so far and trims the log.
    ///
    /// # Errors
    /// Errors of the store only; the log keeps every row that the checkpoint did not write.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Checkpoint(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Stops accepting commits, finishes the accepted ones, writes a checkpoint and releases the backend.
    ///
    /// # Errors
    /// Fails when the last checkpoint fails; acknowledged commits are not lost.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Close(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Follows all journals from now on: each entry that a commit appends comes once, in the order of the commits. Entries that
    /// [`Op::Restore`] brings back from an archive are history, and do not come. A receiver that is too slow learns how many it
    /// missed ([`RecvError::Lagged`](tokio::sync::broadcast::error::RecvError::Lagged)).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), store::StoreError> {
    /// use std::sync::Arc;
    /// use store::{Batch, ManualClock, Origin, Store};
    /// let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    /// let mut tap = store.tap();
    /// store.commit(Batch::new(&Origin::system("example")).append("s", "said", &1)).await?;
    /// let committed = tap.recv().await.unwrap();
    /// assert_eq!((committed.stream, committed.entry.seq), ("s".into(), 1));
    /// # Ok(()) }
    /// ```
    pub fn tap(&self) -> broadcast::Receiver<Committed> {
        self.read(|state| state.tap.subscribe())
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

/// A cursor in a stream that only moves forward. It returns every entry exactly once.
pub struct Follow {
    store: Store,
    stream: Stream,
    after: u64,
    wake: watch::Receiver<u64>,
    page: std::vec::IntoIter<Entry>,
}

impl Follow {
    /// Returns the next entry; waits until it is committed.
    ///
    /// # Errors
    /// [`StoreError::Closed`] once the store is closed and the backlog is read; otherwise errors of the store.
    pub async fn next(&mut self) -> Result<Entry, StoreError> {
        loop {
            if let Some(entry) = self.ready().await? {
                return Ok(entry);
            }
            self.wake.changed().await.map_err(|_| StoreError::Closed)?;
        }
    }

    /// Returns the next entry if it is committed already, otherwise `None`.
    ///
    /// # Errors
    /// Errors of the store.
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

    /// The number of the last entry that was returned.
    pub fn position(&self) -> u64 {
        self.after
    }
}

/// The time without commits after which the store writes a checkpoint.
pub(crate) const QUIET: Duration = Duration::from_millis(1500);
