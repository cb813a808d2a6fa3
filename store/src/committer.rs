//! Group commit: one task collects the waiting batches, validates each in memory, and makes all valid ones durable in
//! one row. A refused batch is answered alone and does not affect the others.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::{debug, error, warn};

use super::backend::Backend;
use super::batch::{Batch, Key, Newness, Receipt};
use super::frame::{self, Frame};
use super::state::{Staged, State, Unknown, ask, cost, frame_of};
use super::{COMMIT_BYTES_MAX, Health, QUIET, StoreError};
use crate::clock::Clock;

/// A request to the committer.
pub(super) enum Request {
    Commit(Batch, oneshot::Sender<Result<Receipt, StoreError>>),
    Checkpoint(oneshot::Sender<Result<(), StoreError>>),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// The target size of a row in bytes.
const ROW_BYTES: usize = 512 << 10;
/// A row takes no more batches when their cost for the checkpoint reaches this number of bytes.
const ROW_COST: usize = 1 << 20;
/// The amount of changes, in bytes, that starts a checkpoint. A smaller burst ends before a checkpoint could delay
/// it.
pub(super) const DIRTY_BYTES: usize = 16 << 20;
/// The log size, in bytes, that starts a checkpoint, however few changes it has to write.
const LOGGED_BYTES: usize = 64 << 20;
/// The maximum amount of unwritten changes in bytes, those of the running checkpoint included. Beyond it, writers
/// wait. If the running checkpoint fails, the next one writes both parts, and it may have to be written again. It
/// must therefore fit into the database's memory table twice; otherwise no checkpoint ever succeeds.
const DIRTY_BYTES_MAX: usize = 28 << 20;
/// The maximum number of attempts of an append with an unknown outcome.
const APPEND_TRIES: u32 = 4;

type Reply = (oneshot::Sender<Result<Receipt, StoreError>>, Receipt);

pub(super) struct Committer {
    backend: Arc<dyn Backend>,
    state: Arc<RwLock<State>>,
    clock: Arc<dyn Clock>,
    inbox: mpsc::Receiver<Request>,
    /// A request that arrived while a row was being filled; it is processed after the row.
    deferred: Option<Request>,
    /// The running checkpoint with the number of bytes that it writes. Commits go on meanwhile.
    projecting: Option<(JoinHandle<Result<(), StoreError>>, usize)>,
    /// The error of the last awaited checkpoint. While the amount of unwritten changes is at its maximum, no commit
    /// is accepted.
    failure: Option<StoreError>,
    /// The buffer in which the rows are packed.
    packed: BytesMut,
    health: Arc<watch::Sender<Health>>,
}

impl Committer {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        state: Arc<RwLock<State>>,
        clock: Arc<dyn Clock>,
        inbox: mpsc::Receiver<Request>,
    ) -> Self {
        let health = Arc::new(watch::Sender::default());
        Self {
            backend,
            state,
            clock,
            inbox,
            deferred: None,
            projecting: None,
            failure: None,
            packed: BytesMut::new(),
            health,
        }
    }

    /// Returns the health, which holds the outcomes of the last commit and the last checkpoint.
    pub(super) fn health(&self) -> Arc<watch::Sender<Health>> {
        self.health.clone()
    }

    /// Records the outcome of a commit or a checkpoint.
    fn note(
        health: &watch::Sender<Health>,
        outcome: Option<&StoreError>,
        of: impl Fn(&mut Health) -> &mut Option<StoreError>,
    ) {
        health.send_if_modified(|health| {
            let is_news = of(health).is_some() != outcome.is_some();
            *of(health) = outcome.cloned();
            is_news
        });
    }

    pub(super) async fn run(mut self) {
        while let Some(request) = self.next().await {
            match request {
                Request::Commit(batch, reply) => self.flush(batch, reply).await,
                Request::Checkpoint(reply) => {
                    let _ = reply.send(self.checkpoint().await);
                }
                Request::Close(reply) => {
                    self.inbox.close();
                    while let Some(request) = self.inbox.recv().await {
                        if let Request::Commit(batch, reply) = request {
                            self.flush(batch, reply).await;
                        }
                    }
                    let done = self.checkpoint().await;
                    let closed = self.backend.close().await;
                    self.change(State::close);
                    let _ = reply.send(done.and(closed));
                    return;
                }
            }
        }
        // All handles are dropped, so there is no caller to answer. The log holds everything.
        let _ = self.backend.close().await;
    }

    /// Returns the next request. Before that, writes a checkpoint if the store is quiet and has rows that no
    /// checkpoint covers.
    async fn next(&mut self) -> Option<Request> {
        self.change(State::forget_clean);
        if let Some(request) = self.deferred.take() {
            return Some(request);
        }
        if self.is_full()
            && let Some((running, _)) = self.projecting.take()
        {
            self.failure = running.await.ok().and_then(Result::err);
        }
        if self.read(|state| state.dirty_bytes > DIRTY_BYTES || state.logged_bytes > LOGGED_BYTES) {
            self.start_checkpoint();
        }
        if self.read(|state| state.row == state.checkpoint) {
            return self.inbox.recv().await;
        }
        match tokio::time::timeout(QUIET, self.inbox.recv()).await {
            Ok(request) => request,
            Err(_) => {
                self.start_checkpoint();
                self.inbox.recv().await
            }
        }
    }

    /// Makes `first` and the batches that wait after it durable in one row.
    async fn flush(&mut self, first: Batch, reply: oneshot::Sender<Result<Receipt, StoreError>>) {
        if self.is_full()
            && let Some(failure) = &self.failure
        {
            Self::note(&self.health, Some(failure), |health| &mut health.commits);
            return drop(reply.send(Err(failure.clone())));
        }
        let n = self.read(|state| state.row) + 1;
        let (mut staged, mut row) = (Staged::default(), std::mem::take(&mut self.packed));
        row.reserve(ROW_BYTES);
        let (mut frames, mut replies): (Vec<Frame>, Vec<Reply>) = (Vec::new(), Vec::new());
        let mut refusals = Vec::new();
        let cost_of = |batch: &Batch| batch.ops.iter().map(|op| cost(op, &batch.origin.cause)).sum::<usize>();
        let mut cost = cost_of(&first);
        let mut group = vec![(first, reply)];
        while cost < ROW_COST
            && let Some(next) = self.waiting()
        {
            cost += cost_of(&next.0);
            group.push(next);
        }
        if let Err(failure) = self.learn(group.iter().map(|(batch, _)| batch)).await {
            if matches!(failure, StoreError::Io(_)) {
                Self::note(&self.health, Some(&failure), |health| &mut health.commits);
            }
            return group.into_iter().for_each(|(_, reply)| drop(reply.send(Err(failure.clone()))));
        }
        for (batch, reply) in group {
            match self.admit(n, batch, &mut staged, &mut row) {
                Ok((frame, receipt)) => {
                    frames.push(frame);
                    replies.push((reply, receipt));
                }
                Err(refusal) => refusals.push((reply, refusal)),
            }
        }
        let refuse = || refusals.into_iter().for_each(|(reply, refusal)| drop(reply.send(Err(refusal))));
        let packed = row.split().freeze();
        self.packed = row;
        let bytes = packed.len();
        if frames.is_empty() {
            return refuse();
        }
        let appended = self.append(n, packed).await;
        Self::note(&self.health, appended.as_ref().err(), |health| &mut health.commits);
        match appended {
            Ok(()) => {
                self.change(|state| {
                    state.logged_bytes += bytes;
                    frames.iter().for_each(|frame| state.replay(n, frame));
                    state.wake(&frames);
                });
                // A caller that was refused because of this row can now read the row.
                refuse();
                for (reply, receipt) in replies {
                    let _ = reply.send(Ok(receipt));
                }
            }
            Err(failure) => {
                refuse();
                error!(row = n, %failure, "commit failed");
                for (reply, _) in replies {
                    let _ = reply.send(Err(failure.clone()));
                }
            }
        }
    }

    /// Returns a commit that is waiting already; defers any other request until the row is written.
    fn waiting(&mut self) -> Option<(Batch, oneshot::Sender<Result<Receipt, StoreError>>)> {
        if self.deferred.is_some() {
            return None;
        }
        match self.inbox.try_recv().ok()? {
            Request::Commit(batch, reply) => Some((batch, reply)),
            other => {
                self.deferred = Some(other);
                None
            }
        }
    }

    /// Fetches data that the batches need and that is not in memory, with one query for all of them. One query per
    /// batch would be most of the cost of many small batches.
    async fn learn(&self, batches: impl Iterator<Item = &Batch>) -> Result<(), StoreError> {
        let (mut new, mut asked) = (Unknown::default(), Unknown::default());
        let mut without: BTreeMap<&Key, Unknown> = BTreeMap::new();
        for batch in batches {
            let Unknown { keys, streams, accounts } = self.read(|state| state.unknown(&batch.ops));
            for key in keys {
                match batch.newness(&key.1) {
                    Newness::Certain => new.keys.insert(key),
                    Newness::Without(other) if *other != key => without.entry(other).or_default().keys.insert(key),
                    _ => asked.keys.insert(key),
                };
            }
            for stream in streams {
                match batch.newness(&stream) {
                    Newness::Certain => new.streams.insert(stream),
                    Newness::Without(other) => without.entry(other).or_default().streams.insert(stream),
                    Newness::Unknown => asked.streams.insert(stream),
                };
            }
            for account in accounts {
                match batch.newness(&account) {
                    Newness::Certain => new.accounts.insert(account),
                    Newness::Without(other) => without.entry(other).or_default().accounts.insert(account),
                    Newness::Unknown => asked.accounts.insert(account),
                };
            }
        }
        let learn = |known| self.change(|state| state.learn(known));
        learn(new.absent());
        if !asked.is_empty() {
            learn(ask(&*self.backend, asked).await?);
        }
        for (key, unknown) in without {
            let is_absent = self.read(|state| state.document(key)).is_some_and(|found| found.is_none());
            learn(if is_absent { unknown.absent() } else { ask(&*self.backend, unknown).await? });
        }
        Ok(())
    }

    fn admit(
        &self,
        n: u64,
        batch: Batch,
        staged: &mut Staged,
        row: &mut BytesMut,
    ) -> Result<(Frame, Receipt), StoreError> {
        let at = self.clock.now();
        let mut ops = batch.ops;
        self.read(|state| state.strip_kept(&mut ops));
        let frame = frame_of(at, batch.origin, ops);
        let start = row.len();
        frame::encode(&frame, row)?;
        let bytes = row.len() - start;
        let judged = if bytes > COMMIT_BYTES_MAX {
            Err(StoreError::TooLarge { bytes, max: COMMIT_BYTES_MAX })
        } else {
            self.read(|state| state.judge(staged, &frame.ops, at))
        };
        match judged {
            Ok(versions) => Ok((frame, Receipt { log: n, at, versions })),
            Err(refusal) => {
                row.truncate(start);
                Err(refusal)
            }
        }
    }

    /// Appends row `n`. A failed append may still have written the row, so the same row is appended again: the
    /// backend replaces it.
    async fn append(&self, n: u64, row: Bytes) -> Result<(), StoreError> {
        let mut tried = 1;
        loop {
            match self.backend.append(n, row.clone()).await {
                Err(StoreError::Io(reason)) if tried < APPEND_TRIES => {
                    warn!(row = n, tried, %reason, "append failed, trying again");
                    tried += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(5 << tried)).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Writes a checkpoint and waits for it.
    async fn checkpoint(&mut self) -> Result<(), StoreError> {
        if let Some((running, _)) = self.projecting.take() {
            let _ = running.await;
        }
        self.start_checkpoint();
        match self.projecting.take() {
            Some((running, _)) => {
                running.await.map_err(|panic| StoreError::Io(format!("the checkpoint died: {panic}")))?
            }
            None => Ok(()),
        }
    }

    /// Starts a checkpoint in the background, while commits go on. Only one checkpoint runs at a time.
    fn start_checkpoint(&mut self) {
        if self.projecting.as_ref().is_some_and(|(running, _)| !running.is_finished())
            || self.read(|state| state.row == state.checkpoint)
        {
            return;
        }
        let (projection, bytes) = self.change(|state| (state.projection(), std::mem::take(&mut state.dirty_bytes)));
        let (backend, state) = (self.backend.clone(), self.state.clone());
        let health = self.health.clone();
        let running = tokio::spawn(crate::vital("checkpoint", async move {
            let (upto, begun) = (projection.upto, std::time::Instant::now());
            let written = backend.project(projection).await;
            Self::note(&health, written.as_ref().err(), |health| &mut health.checkpoints);
            match &written {
                Ok(()) => {
                    debug!(upto, bytes, took = ?begun.elapsed(), "checkpoint");
                    let gone = state.write().unwrap_or_else(PoisonError::into_inner).projected(upto);
                    drop(gone);
                }
                // The log still holds all rows; the next quiet period tries again.
                Err(failure) => {
                    warn!(upto, %failure, "checkpoint failed");
                    state.write().unwrap_or_else(PoisonError::into_inner).not_projected(bytes);
                }
            }
            written
        }));
        self.projecting = Some((running, bytes));
    }

    /// Returns `true` if the unwritten changes, those of the running checkpoint included, have reached their maximum.
    fn is_full(&self) -> bool {
        let under_way = self.projecting.as_ref().filter(|(running, _)| !running.is_finished());
        self.read(|state| state.dirty_bytes) + under_way.map_or(0, |(_, bytes)| *bytes) > DIRTY_BYTES_MAX
    }

    fn read<T>(&self, ask: impl FnOnce(&State) -> T) -> T {
        ask(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use crate::faulty::{Fault, Faulty};
    use crate::ledger::{AccountOp, Amount};
    use crate::{Batch, Key, Kind, Memory, Store};
    use crate::{ManualClock, Origin};
    use std::sync::Arc;

    #[tokio::test]
    async fn accounts_that_were_let_go_of_are_found_again_as_they_stood() {
        let store = Store::open(Arc::new(Memory::default()), Arc::new(ManualClock::default())).await.unwrap();
        let name = |n: usize| format!("a{n}");
        let change =
            async |n: usize, op| store.commit(Batch::new(&Origin::system("test")).account(name(n), op, "")).await;
        // Many more accounts than the cache holds, each changed and read between checkpoints that evict them.
        for n in 0..40 {
            change(n, AccountOp::Open(Amount::tokens(1))).await.unwrap();
        }
        for round in 1..=5 {
            store.checkpoint().await.unwrap();
            for n in 0..40 {
                let before = store.account(&name(n)).await.unwrap().unwrap();
                assert_eq!(before.balance, Amount::tokens(round));
                change(n, AccountOp::Credit(Amount::tokens(1))).await.unwrap();
                assert_eq!(store.account(&name(n)).await.unwrap().unwrap().balance, Amount::tokens(round + 1));
            }
        }
        assert_eq!(store.account("nobody").await.unwrap(), None);
    }

    #[tokio::test]
    async fn the_store_accepts_commits_again_after_a_checkpoint_succeeds() {
        let disk = Arc::new(Memory::default());
        let faulty = Faulty::new(disk, []).with_checkpoints(vec![Fault::Before; 60]);
        let store = Store::open(Arc::new(faulty), Arc::new(ManualClock::default())).await.unwrap();
        let megabyte = "x".repeat(1 << 20);
        let write = async |n: usize| {
            let batch = Batch::new(&Origin::system("test")).put(Key::new(Kind::Meta, format!("k{n}")), &megabyte);
            store.commit(batch).await.is_ok()
        };
        let mut taken = 0;
        while write(taken).await {
            taken += 1;
            assert!(taken < 64, "what waits is bounded");
        }
        let mut tries = 0;
        while !write(taken).await {
            tries += 1;
            assert!(tries < 200, "it is taken again");
        }
        for n in 0..=taken {
            assert!(store.document::<String>(&Key::new(Kind::Meta, format!("k{n}"))).await.unwrap().is_some());
        }
    }
}
