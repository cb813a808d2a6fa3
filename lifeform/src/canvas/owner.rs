//! The single writer of one canvas. It decides ops in order against its state, commits all that wait as
//! one batch, and only then answers and shows them. Frames are made once and shared by all subscribers.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

use nexus::store::{Entry, Hash, Key, Kind, Receipt, Stream};
use nexus::{Batch, Origin, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::{CanvasId, Refusal, chat};
use crate::LifeformError;

/// Ops that may wait for one canvas.
const OPS_WAITING_MAX: usize = 1024;
/// Ops that share one commit.
const BATCH_MAX: usize = 128;
/// Recent frames kept for subscribers; older ones are read from the journal.
const RING_MAX: usize = 1024;
/// Ops between two snapshots.
const SNAPSHOT_EVERY: u64 = 500;
/// Ephemeral frames a slow subscriber may fall behind before it misses some.
const EPHEMERAL_MAX: usize = 1024;

/// A canvas as a document.
#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    epoch: Arc<str>,
    rev: u64,
    state: Value,
}

/// A journal entry of a canvas.
#[derive(Serialize, Deserialize)]
struct Delta {
    op: chat::Op,
    patch: json_patch::Patch,
}

/// What an op did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// The revision it made.
    pub rev: u64,
    /// Whether it had been done before.
    pub dup: bool,
}

/// The whole canvas at one revision.
#[derive(Clone)]
pub struct Snapshot {
    /// Names this log; another epoch can never be resumed.
    pub epoch: Arc<str>,
    /// The revision.
    pub rev: u64,
    /// The state, with keyed maps.
    pub state: Value,
}

/// What a subscriber gets next.
pub enum Frames {
    /// Delta frames in order, each with the revision it makes; empty when there is nothing new.
    Deltas(Vec<(u64, Arc<str>)>),
    /// The subscriber asks for what this log never had: it must start from a snapshot.
    Reset,
}

struct Shared {
    snapshot: Snapshot,
    ring: VecDeque<(u64, Arc<str>)>,
}

struct Write {
    op: chat::Op,
    op_id: Option<Arc<str>>,
    base: Option<u64>,
    origin: Origin,
    reply: oneshot::Sender<Result<Applied, LifeformError>>,
}

/// A cheap handle on one canvas.
#[derive(Clone)]
pub struct Canvas {
    /// Its name.
    pub id: CanvasId,
    stream: Stream,
    store: Store,
    shared: Arc<RwLock<Shared>>,
    writer: mpsc::Sender<Write>,
    head: watch::Receiver<u64>,
    ephemeral: broadcast::Sender<Arc<str>>,
    close: Arc<watch::Sender<bool>>,
}

impl Canvas {
    /// Wakes the chat canvas `id` of `lifeform`, or makes it.
    ///
    /// # Errors
    /// The store's own.
    pub async fn open(store: Store, lifeform: &str, id: CanvasId) -> Result<Self, LifeformError> {
        let stream: Stream = format!("canvas:{lifeform}/{id}").into();
        let key = Key::new(Kind::Canvas, format!("{lifeform}/{id}"));
        let (snapshot, ring) = load(&store, &key, &stream).await?;
        let (writer, inbox) = mpsc::channel(OPS_WAITING_MAX);
        let (head_sender, head) = watch::channel(snapshot.rev);
        let shared = Arc::new(RwLock::new(Shared { snapshot, ring }));
        let (ephemeral, _) = broadcast::channel(EPHEMERAL_MAX);
        let (close, closed) = watch::channel(false);
        let owner = Owner {
            store: store.clone(),
            key,
            stream: stream.clone(),
            trial: shared.read().unwrap_or_else(PoisonError::into_inner).snapshot.clone(),
            shared: shared.clone(),
            inbox,
            head: head_sender,
            closed,
        };
        tokio::spawn(owner.run());
        Ok(Self { id, stream, store, shared, writer, head, ephemeral, close: Arc::new(close) })
    }

    /// The journal stream of this canvas; its entry numbers are the revisions.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The canvas as it stands.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.read().unwrap_or_else(PoisonError::into_inner).snapshot.clone()
    }

    /// A watch on the revision.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.head.clone()
    }

    /// Does `op`: durable when this returns. The same `op_id` of the same principal is done once.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] when the rules say no, [`LifeformError::Overloaded`] when too much waits.
    pub async fn apply(
        &self,
        op: chat::Op,
        op_id: Option<Arc<str>>,
        base: Option<u64>,
        origin: &Origin,
    ) -> Result<Applied, LifeformError> {
        let (reply, answer) = oneshot::channel();
        let write = Write { op, op_id, base, origin: origin.clone(), reply };
        self.writer.try_send(write).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => LifeformError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => LifeformError::NoCanvas(self.id.clone()),
        })?;
        answer.await.map_err(|_| LifeformError::Store(StoreError::Closed))?
    }

    /// Delta frames after revision `after`, at most a page of them.
    ///
    /// # Errors
    /// The store's own.
    pub async fn frames(&self, after: u64) -> Result<Frames, LifeformError> {
        {
            let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
            if after > shared.snapshot.rev {
                return Ok(Frames::Reset);
            }
            if after == shared.snapshot.rev || shared.ring.front().is_some_and(|(first, _)| *first <= after + 1) {
                return Ok(Frames::Deltas(
                    shared.ring.iter().filter(|(rev, _)| *rev > after).take(256).cloned().collect(),
                ));
            }
        }
        let mut frames = Vec::new();
        for entry in self.store.entries(&self.stream, after, usize::MAX).await? {
            let delta: Delta = entry.decode()?;
            frames.push((entry.seq, frame(&entry, &delta)));
        }
        Ok(Frames::Deltas(frames))
    }

    /// Ends the canvas for everyone: subscribers are told, and no op is taken any more.
    pub fn close(&self) {
        self.close.send_replace(true);
    }

    /// Shows something that need not last.
    pub fn show(&self, frame: &Value) {
        let _ = self.ephemeral.send(frame.to_string().into());
    }

    /// Receives what is shown.
    pub fn ephemeral(&self) -> broadcast::Receiver<Arc<str>> {
        self.ephemeral.subscribe()
    }
}

/// The canvas as its last snapshot and the journal after it have it; a canvas nobody made is made.
async fn load(store: &Store, key: &Key, stream: &Stream) -> Result<(Snapshot, VecDeque<(u64, Arc<str>)>), StoreError> {
    let mut kept = match store.document::<Kept>(key).await? {
        Some(found) => found.value,
        None => {
            let fresh =
                Kept { epoch: uuid::Uuid::new_v4().simple().to_string()[..8].into(), rev: 0, state: chat::empty() };
            store.commit(Batch::new(&Origin::system("birth of a canvas")).create(key.clone(), &fresh)).await?;
            fresh
        }
    };
    let mut ring = VecDeque::new();
    loop {
        let page = store.entries(stream, kept.rev, usize::MAX).await?;
        if page.is_empty() {
            break;
        }
        for entry in page {
            let delta: Delta = entry.decode()?;
            apply(&mut kept.state, &delta.patch)?;
            kept.rev = entry.seq;
            push(&mut ring, entry.seq, frame(&entry, &delta));
        }
    }
    Ok((Snapshot { epoch: kept.epoch, rev: kept.rev, state: kept.state }, ring))
}

fn apply(state: &mut Value, patch: &json_patch::Patch) -> Result<(), StoreError> {
    json_patch::patch(state, patch)
        .map_err(|error| StoreError::Corrupt(format!("a canvas patch does not apply: {error}")))
}

fn push(ring: &mut VecDeque<(u64, Arc<str>)>, rev: u64, frame: Arc<str>) {
    if ring.len() == RING_MAX {
        ring.pop_front();
    }
    ring.push_back((rev, frame));
}

/// The delta as every subscriber gets it.
fn frame(entry: &Entry, delta: &Delta) -> Arc<str> {
    let by = &*entry.by.0;
    let kind = by.split_once(':').map_or("system", |(kind, _)| kind);
    json!({"t": "delta", "rev": entry.seq, "prev": entry.seq - 1, "at": entry.at, "actor": {"kind": kind, "id": by}, "kind": delta.op.kind(), "cause": entry.cause, "patch": delta.patch}).to_string().into()
}

struct Owner {
    store: Store,
    key: Key,
    stream: Stream,
    /// The state with everything that is being committed; readers see `shared`.
    trial: Snapshot,
    shared: Arc<RwLock<Shared>>,
    inbox: mpsc::Receiver<Write>,
    head: watch::Sender<u64>,
    closed: watch::Receiver<bool>,
}

type UnderWay = (Write, Delta, JoinHandle<Result<Receipt, StoreError>>);

impl Owner {
    async fn run(mut self) {
        let mut waiting = Vec::with_capacity(BATCH_MAX);
        loop {
            tokio::select! {
                _ = self.closed.wait_for(|closed| *closed) => return,
                count = self.inbox.recv_many(&mut waiting, BATCH_MAX) => if count == 0 {
                    return;
                },
            }
            let before = self.trial.rev;
            // Ops of different origins share a flush, not a batch: each stands for itself in the journal.
            let mut under_way: Vec<UnderWay> = Vec::new();
            for write in waiting.drain(..) {
                let twice = under_way.iter().any(|(other, ..)| other.op_id.is_some() && other.op_id == write.op_id);
                if twice {
                    // A repetition is judged by what became of the first.
                    self.settle(std::mem::take(&mut under_way)).await;
                }
                under_way.extend(self.decide(write).await);
            }
            self.settle(under_way).await;
            if before / SNAPSHOT_EVERY < self.trial.rev / SNAPSHOT_EVERY {
                self.keep().await;
            }
        }
    }

    /// Writes a snapshot, so that waking need not replay the whole journal. It is no part of any op.
    async fn keep(&self) {
        let snapshot = &self.trial;
        let kept = Kept { epoch: snapshot.epoch.clone(), rev: snapshot.rev, state: snapshot.state.clone() };
        let batch = Batch::new(&Origin::system("canvas snapshot")).put(self.key.clone(), &kept);
        if let Err(error) = self.store.commit(batch).await {
            tracing::warn!(canvas = %self.stream, %error, "no snapshot; waking will replay more");
        }
    }

    /// Decides one op and starts its commit; answers refusals and repetitions at once.
    async fn decide(&mut self, write: Write) -> Option<UnderWay> {
        let op_hash = Hash::of(&nexus::store::json(&write.op));
        let seen = write
            .op_id
            .as_ref()
            .map(|op_id| Key::new(Kind::Idempotency, format!("{}#{}#{op_id}", self.stream, write.origin.principal.id)));
        if let Some(seen) = &seen {
            match self.store.document::<(u64, Hash)>(seen).await {
                Ok(None) => {}
                Ok(Some(found)) => {
                    let (rev, before) = found.value;
                    let message = "it was used for something else before".to_owned();
                    let other = LifeformError::Refused(Refusal::Schema { path: "idempotency key", message });
                    let _ =
                        write.reply.send(if before == op_hash { Ok(Applied { rev, dup: true }) } else { Err(other) });
                    return None;
                }
                Err(error) => {
                    let _ = write.reply.send(Err(error.into()));
                    return None;
                }
            }
        }
        let rev = self.trial.rev + 1;
        let decided = chat::decide(
            &self.trial.state,
            &write.op,
            &write.origin.principal,
            write.base,
            rev,
            self.store.clock().now(),
        );
        let refused = |write: Write, refusal: Refusal| {
            let _ = write.reply.send(Err(LifeformError::Refused(refusal)));
            None
        };
        let patch: json_patch::Patch = match decided.map(serde_json::from_value) {
            Ok(Ok(patch)) => patch,
            Ok(Err(error)) => return refused(write, Refusal::State(format!("the patch is not well made: {error}"))),
            Err(refusal) => return refused(write, refusal),
        };
        // What is sent out is what was applied here.
        if let Err(error) = apply(&mut self.trial.state, &patch) {
            return refused(write, Refusal::State(error.to_string()));
        }
        self.trial.rev = rev;
        let delta = Delta { op: write.op.clone(), patch };
        let mut batch = Batch::new(&write.origin).append_after(self.stream.clone(), rev - 1, write.op.kind(), &delta);
        if let Some(seen) = seen {
            batch = batch.create(seen, &(rev, op_hash));
        }
        let store = self.store.clone();
        // The committer takes batches in the order they are handed over, and `spawn` alone would not keep it.
        let commit = store.submit(batch).await;
        Some((write, delta, tokio::spawn(commit)))
    }

    /// Waits for the commits in order, publishes what went through, answers.
    async fn settle(&mut self, under_way: Vec<UnderWay>) {
        let mut answers = Vec::with_capacity(under_way.len());
        for (write, delta, commit) in under_way {
            let committed = commit.await.unwrap_or_else(|panic| Err(StoreError::Io(panic.to_string())));
            let answer = committed.and_then(|receipt| self.publish(&write, &delta, &receipt));
            answers.push((write.reply, answer));
        }
        if answers.iter().any(|(_, answer)| answer.is_err()) {
            // What was not committed did not happen; and if somebody else wrote this stream, that did.
            match load(&self.store, &self.key, &self.stream).await {
                Ok((snapshot, ring)) => {
                    self.trial = snapshot.clone();
                    let rev = snapshot.rev;
                    *self.shared.write().unwrap_or_else(PoisonError::into_inner) = Shared { snapshot, ring };
                    self.head.send_replace(rev);
                }
                Err(_) => self.trial = self.shared.read().unwrap_or_else(PoisonError::into_inner).snapshot.clone(),
            }
        }
        for (reply, answer) in answers {
            let _ = reply.send(answer.map_err(LifeformError::from));
        }
    }

    fn publish(&self, write: &Write, delta: &Delta, receipt: &Receipt) -> Result<Applied, StoreError> {
        let rev = receipt.versions[0];
        let entry = Entry {
            seq: rev,
            at: receipt.at,
            by: write.origin.principal.id.clone(),
            cause: write.origin.cause.clone(),
            kind: delta.op.kind().into(),
            data: nexus::store::json(&Value::Null),
        };
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        apply(&mut shared.snapshot.state, &delta.patch)?;
        shared.snapshot.rev = rev;
        push(&mut shared.ring, rev, frame(&entry, delta));
        drop(shared);
        self.head.send_replace(rev);
        Ok(Applied { rev, dup: false })
    }
}
