//! Group commit: one task gathers what is waiting, judges each batch in memory, and makes all that
//! pass durable as one row. A batch that fails is answered alone and costs the others nothing.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::{Bytes, BytesMut};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{error, warn};

use super::backend::Backend;
use super::batch::{Batch, Key, Receipt, Stream};
use super::frame::{self, Frame};
use super::state::{Staged, State, ask, frame_of};
use super::{COMMIT_BYTES_MAX, QUIET, StoreError};
use crate::clock::Clock;

/// What the committer is asked to do.
pub(super) enum Request {
    Commit(Batch, oneshot::Sender<Result<Receipt, StoreError>>),
    Checkpoint(oneshot::Sender<Result<(), StoreError>>),
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// A row takes no more batches past this size.
const ROW_BYTES: usize = 512 << 10;
/// Projections are written once this much is committed without them.
pub(super) const DIRTY_BYTES: usize = 8 << 20;
/// Once this much more is committed while projections are being written, they are waited for: what one checkpoint writes
/// must fit into the database's memory, or none ever succeeds again.
const DIRTY_BYTES_MAX: usize = 2 * DIRTY_BYTES;
/// How often an append whose outcome is unknown is asked about again.
const APPEND_TRIES: u32 = 4;

type Reply = (oneshot::Sender<Result<Receipt, StoreError>>, Receipt);

pub(super) struct Committer {
    backend: Arc<dyn Backend>,
    state: Arc<RwLock<State>>,
    clock: Arc<dyn Clock>,
    inbox: mpsc::Receiver<Request>,
    /// A request that was met while a row was being filled, to be taken up after it.
    deferred: Option<Request>,
    /// The checkpoint under way; commits go on beside it.
    projecting: Option<JoinHandle<Result<(), StoreError>>>,
}

impl Committer {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        state: Arc<RwLock<State>>,
        clock: Arc<dyn Clock>,
        inbox: mpsc::Receiver<Request>,
    ) -> Self {
        Self { backend, state, clock, inbox, deferred: None, projecting: None }
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
        // Every handle is gone: nobody is left to be answered, the log holds everything.
        let _ = self.backend.close().await;
    }

    /// The next request. A store with unprojected rows that falls quiet is checkpointed first.
    async fn next(&mut self) -> Option<Request> {
        self.change(State::forget_clean);
        if let Some(request) = self.deferred.take() {
            return Some(request);
        }
        if self.read(|state| state.dirty_bytes) > DIRTY_BYTES_MAX
            && let Some(running) = self.projecting.take()
        {
            let _ = running.await;
        }
        if self.read(|state| state.dirty_bytes) > DIRTY_BYTES {
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

    /// Makes `first` and whatever waits behind it durable as one row.
    async fn flush(&mut self, first: Batch, reply: oneshot::Sender<Result<Receipt, StoreError>>) {
        let n = self.read(|state| state.row) + 1;
        let (mut staged, mut row) = (Staged::default(), BytesMut::new());
        let (mut frames, mut replies): (Vec<Frame>, Vec<Reply>) = (Vec::new(), Vec::new());
        let mut refusals = Vec::new();
        let mut next = Some((first, reply));
        while let Some((batch, reply)) = next.take() {
            match self.admit(n, batch, &mut staged, &mut row).await {
                Ok((frame, receipt)) => {
                    frames.push(frame);
                    replies.push((reply, receipt));
                }
                Err(refusal) => refusals.push((reply, refusal)),
            }
            if row.len() < ROW_BYTES {
                next = self.waiting();
            }
        }
        let refuse = || refusals.into_iter().for_each(|(reply, refusal)| drop(reply.send(Err(refusal))));
        if frames.is_empty() {
            return refuse();
        }
        match self.append(n, row.freeze()).await {
            Ok(()) => {
                self.change(|state| {
                    frames.iter().for_each(|frame| state.replay(n, frame));
                    state.wake(&frames);
                });
                // Whoever was refused for what stands in this row finds it.
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

    /// A commit that is waiting already; any other request is put off until the row is written.
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

    async fn admit(
        &self,
        n: u64,
        batch: Batch,
        staged: &mut Staged,
        row: &mut BytesMut,
    ) -> Result<(Frame, Receipt), StoreError> {
        let (mut keys, mut streams) = self.read(|state| state.unknown(&batch.ops));
        if !keys.is_empty() || !streams.is_empty() {
            let new_keys: Vec<Key> = keys.extract_if(.., |key| batch.is_new(&key.1)).collect();
            let new_streams: Vec<Stream> = streams.extract_if(.., |stream| batch.is_new(stream)).collect();
            let (mut documents, mut heads) = ask(&*self.backend, keys, streams).await?;
            documents.extend(new_keys.into_iter().map(|key| (key, None)));
            heads.extend(new_streams.into_iter().map(|stream| (stream, 0)));
            self.change(|state| state.learn(documents, heads));
        }
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

    /// Appends row `n`. A failure may hide a write that happened, so the same row is offered again:
    /// a backend that already holds it says yes.
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

    /// Writes the projections and waits for it.
    async fn checkpoint(&mut self) -> Result<(), StoreError> {
        if let Some(running) = self.projecting.take() {
            let _ = running.await;
        }
        self.start_checkpoint();
        match self.projecting.take() {
            Some(running) => running.await.map_err(|panic| StoreError::Io(format!("the checkpoint died: {panic}")))?,
            None => Ok(()),
        }
    }

    /// Writes the projections beside whatever is committed meanwhile; one checkpoint at a time.
    fn start_checkpoint(&mut self) {
        if self.projecting.as_ref().is_some_and(|running| !running.is_finished())
            || self.read(|state| state.row == state.checkpoint)
        {
            return;
        }
        let (projection, bytes) = self.change(|state| (state.projection(), std::mem::take(&mut state.dirty_bytes)));
        let (backend, state) = (self.backend.clone(), self.state.clone());
        self.projecting = Some(tokio::spawn(async move {
            let upto = projection.upto;
            let written = backend.project(projection).await;
            match &written {
                Ok(()) => state.write().unwrap_or_else(PoisonError::into_inner).projected(upto),
                // The log still holds everything; the next quiet moment tries again.
                Err(failure) => {
                    warn!(upto, %failure, "checkpoint failed");
                    state.write().unwrap_or_else(PoisonError::into_inner).not_projected(bytes);
                }
            }
            written
        }));
    }

    fn read<T>(&self, ask: impl FnOnce(&State) -> T) -> T {
        ask(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }
}
