//! The single writer of one canvas. It decides ops in order against its state, and commits all waiting ops as one
//! flush. Only after the commit does it reply and publish.

mod keeping;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use json_patch::Patch;
use serde_json::{Value, json};
use store::{
    Batch, Cause, Entry, Expect, Hash, Op as StoreOp, Origin, Principal, PrincipalId, PrincipalKind, Receipt,
    StoreError, Timestamp,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::handle::{Page, Shared, Snapshot, Upload, snapshot_of};
use super::log::{Delta, Done, Frame, Head, Loaded, Log, Once, Tail, frame};
use super::rate_limit::Allowance;
use super::{HOPS_MAX, Host, Limits, OPS_AT_ONCE, Op, Refusal, State, UnloadedMembers, WriteContext, json_patch_ops};
use crate::LifeformError;
use crate::spec::LifeformId;
use keeping::Keeping;

/// The maximum number of writes in one flush.
const BATCH_MAX: usize = 128;
/// The maximum size of one write in the journal, in bytes.
const WRITTEN_MAX: usize = 2 << 20;
/// The number of ops between two writes of rows.
const KEEP_EVERY: u64 = 1_000;
/// The size of the ops between two writes of rows, in bytes.
const KEEP_BYTES: usize = 1 << 20;

/// A write to a canvas.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteRequest {
    /// Ops, applied all or none.
    Ops(Vec<Op>),
    /// A JSON Patch; `true` if the writer named the revision that it saw.
    Patch(Patch, bool),
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The revision of the last op.
    pub rev: u64,
    /// The number of ops.
    pub ops: u64,
    /// `true` if an earlier request had already applied the write.
    pub dup: bool,
}

/// A write request in the queue.
pub(super) struct Write {
    pub(super) what: WriteRequest,
    pub(super) op_id: Option<Arc<str>>,
    pub(super) base: Option<u64>,
    pub(super) origin: Origin,
    pub(super) reply: oneshot::Sender<Result<Applied, LifeformError>>,
}

/// The state of the owner task.
pub(super) struct Owner {
    log: Log,
    host: Host,
    head: Head,
    /// The state that includes the writes being committed. Readers see `shared`.
    trial: State,
    rev: u64,
    stale: BTreeSet<Arc<str>>,
    /// The bytes and the number of ops since the last write of rows.
    unkept: (usize, u64),
    /// The write of rows in progress, if any.
    keeping: Option<Keeping>,
    /// The revision up to which the log must be cut because of a permanent removal.
    purged: Option<u64>,
    shared: Arc<RwLock<Shared>>,
    inbox: mpsc::Receiver<Write>,
    published: watch::Sender<u64>,
    closed: watch::Receiver<bool>,
    limits: Limits,
    unloaded_members: UnloadedMembers,
    allowance: Allowance,
    done: Done,
    /// The liveness token. Each handle of this canvas holds a clone.
    alive: Arc<()>,
    /// The revision of the next cut of the log and its time, cached.
    oldest: Option<(u64, Timestamp)>,
}

/// A write that was decided and is being committed.
struct UnderWay {
    write: Write,
    deltas: Vec<Delta>,
    names: Vec<Arc<str>>,
    /// The sleeping lifeforms that the write wakes.
    called: Vec<LifeformId>,
    /// The state after the write, with its revision.
    state: State,
    commit: BoxFuture<'static, Result<Receipt, StoreError>>,
}

/// The decided ops of a write.
struct Decided {
    state: State,
    deltas: Vec<Delta>,
    names: Vec<Arc<str>>,
    /// The encoded deltas for the journal.
    bodies: Vec<Bytes>,
    /// The hashes of the attachments that no message refers to any more after a purge.
    detached: BTreeSet<Arc<str>>,
}

/// Returns the number of canvas entries in a chain of causes.
fn hops(cause: &Cause) -> usize {
    cause.0.iter().filter(|reference| reference.starts_with("canvas:")).count()
}

impl Owner {
    #[expect(clippy::too_many_arguments, reason = "the handle hands over each of its parts once")]
    pub(super) fn new(
        log: Log,
        host: Host,
        loaded: Loaded,
        limits: Limits,
        unloaded_members: UnloadedMembers,
        inbox: mpsc::Receiver<Write>,
        published: watch::Sender<u64>,
        closed: watch::Receiver<bool>,
        alive: Arc<()>,
    ) -> (Self, Arc<RwLock<Shared>>) {
        let Loaded { head, rev, state, ring, stale, done, purged } = loaded;
        let snapshot = snapshot_of(&head, rev, head.made_at, &state);
        let shared = Arc::new(RwLock::new(Shared { snapshot, ring, page: Page::default(), whole: Default::default() }));
        let unkept = (0, rev - head.rev);
        let allowance = Allowance::default();
        let owner = Self {
            log,
            host,
            head,
            trial: state,
            rev,
            stale,
            unkept,
            keeping: None,
            purged,
            shared: shared.clone(),
            inbox,
            published,
            closed,
            limits,
            unloaded_members,
            allowance,
            done,
            alive,
            oldest: None,
        };
        (owner, shared)
    }

    pub(super) async fn run(mut self) {
        let mut waiting = Vec::with_capacity(BATCH_MAX);
        self.purge().await;
        loop {
            tokio::select! {
                _ = self.closed.wait_for(|closed| *closed) => return,
                count = self.inbox.recv_many(&mut waiting, BATCH_MAX) => if count == 0 {
                    return;
                },
            }
            // Writes of different origins share a flush but not a batch, because each has its own journal entries.
            let mut under_way: Vec<UnderWay> = Vec::new();
            for write in waiting.drain(..) {
                let twice = write.op_id.is_some() && under_way.iter().any(|other| other.write.op_id == write.op_id);
                if twice {
                    // A repetition is decided after the outcome of the first write is known.
                    self.settle(std::mem::take(&mut under_way)).await;
                }
                under_way.extend(self.decide(write).await);
            }
            self.settle(under_way).await;
            self.purge().await;
            let (bytes, ops) = self.unkept;
            if self.kept().await && (bytes >= KEEP_BYTES || ops >= KEEP_EVERY) {
                self.keep().await;
            }
        }
    }

    async fn note_kept_rows(&mut self, Keeping { rows, written }: Keeping) {
        match written.await {
            Ok(Ok(head)) => return self.head = head,
            Ok(Err(error)) => {
                tracing::warn!(canvas = %self.log.stream, %error, "its rows are not written; waking will replay more");
            }
            Err(panic) => tracing::error!(canvas = %self.log.stream, %panic, "its rows are not written"),
        }
        self.stale.extend(rows.iter().cloned());
    }

    /// Decides one write and starts its commit. Refusals and repetitions are answered immediately.
    async fn decide(&mut self, write: Write) -> Option<UnderWay> {
        let request = store::json(&match &write.what {
            WriteRequest::Ops(ops) => json!(ops),
            WriteRequest::Patch(patch, _) => json!(patch),
        });
        let asked: Arc<str> = Hash::of(&request).hex()[..16].into();
        if let Some(op_id) = &write.op_id
            && let Some(answer) = self.seen(&write.origin.principal.id, op_id, &asked).await
        {
            let _ = write.reply.send(answer);
            return None;
        }
        let now = self.log.store.clock().now();
        let decided = match self.ops(&write, request.len()).await {
            Ok((ops, uploads)) => {
                self.judge(&write, &ops, request.len(), &asked, now).map(|decided| (decided, uploads))
            }
            Err(refusal) => Err(refusal),
        };
        let (Decided { state, deltas, names, bodies, detached }, uploads) = match decided {
            Ok(decided) => decided,
            Err(refusal) => {
                let _ = write.reply.send(Err(LifeformError::Refused(refusal)));
                return None;
            }
        };
        let mut batch = Batch::new(&write.origin);
        for (at, (data, kind)) in bodies.into_iter().zip(&names).enumerate() {
            let (stream, expect) = (self.log.stream.clone(), Some(self.rev + at as u64));
            batch.push(StoreOp::Append { stream, expect, kind: kind.clone(), data });
        }
        // The versions of the receipt begin with those of the entries, so these operations come last. A purge that is
        // being committed may remove an attachment that this write refers to, so the write keeps it.
        for upload in uploads {
            batch = batch.put(self.log.attachment(&upload.hash), &upload);
        }
        let detached = detached.iter().map(|hash| self.log.attachment(hash));
        detached.for_each(|key| batch.push(StoreOp::Delete { key, expect: Expect::Any }));
        self.rev += deltas.len() as u64;
        self.trial = state.clone();
        // The batch is already submitted. Only the wait for its commit is stored.
        let who = &write.origin.principal.id;
        let (called, commit) = self.unloaded_members.submit(&self.log.store, batch, &names, who).await;
        let commit = Box::pin(commit);
        Some(UnderWay { write, deltas, names, called, state, commit })
    }

    /// Returns the ops of a write, and the attachments that its messages refer to. Checks the rate limit of the writer,
    /// and that all these attachments exist.
    async fn ops(&mut self, write: &Write, bytes: usize) -> Result<(Vec<Op>, Vec<Upload>), Refusal> {
        let who = &write.origin.principal;
        let hops = hops(&write.origin.cause);
        if who.kind == PrincipalKind::Lifeform && hops > HOPS_MAX {
            return Err(Refusal::Cascade(hops));
        }
        let count = match &write.what {
            WriteRequest::Ops(ops) => ops.len(),
            WriteRequest::Patch(patch, _) => patch.0.len(),
        };
        if count == 0 || count > OPS_AT_ONCE {
            return Err(Refusal::schema("ops", format!("1 to {OPS_AT_ONCE} at once")));
        }
        if write.base.is_some_and(|base| base > self.rev) {
            return Err(Refusal::schema("base_rev", format!("the canvas is at revision {}", self.rev)));
        }
        if let Some(wait) = self.log.store.disk_wait(who) {
            return Err(Refusal::Rate(format!(
                "as much was written for you as may be in a day; wait {} s",
                wait.as_secs()
            )));
        }
        if !is_daemon(who) {
            self.allowance.take(&who.id, count, bytes, &self.limits, Instant::now())?;
        }
        let ops = match &write.what {
            WriteRequest::Ops(ops) => ops.clone(),
            WriteRequest::Patch(patch, is_guarded) => {
                json_patch_ops::read(&self.head.kind, &self.trial, patch, *is_guarded)?
            }
        };
        let uploads = self.carried(&ops).await?;
        Ok((ops, uploads))
    }

    async fn carried(&self, ops: &[Op]) -> Result<Vec<Upload>, Refusal> {
        let mut uploads = Vec::new();
        for attachment in ops.iter().flat_map(|op| self.head.kind.rules().attached(op)) {
            let known = self.log.store.document::<Upload>(&self.log.attachment(&attachment.hash)).await;
            match known {
                Ok(Some(known)) if known.value.bytes == attachment.bytes => uploads.push(known.value),
                _ => {
                    let why = format!("{} of {} bytes was not kept for this canvas", attachment.hash, attachment.bytes);
                    return Err(Refusal::schema("attachments", why));
                }
            }
        }
        Ok(uploads)
    }

    /// Returns the outcome of an earlier write with the same idempotency key; `None` if the write is new.
    async fn seen(
        &mut self,
        who: &PrincipalId,
        op_id: &Arc<str>,
        asked: &Arc<str>,
    ) -> Option<Result<Applied, LifeformError>> {
        if let Err(error) = self.log.remember(&self.head, &mut self.done).await {
            return Some(Err(error.into()));
        }
        let Once { rev, ops, asked: before } = self.done.get(who, op_id)?;
        let other = || Refusal::schema("idempotency key", "it was used for something else before");
        Some(if before == *asked { Ok(Applied { rev, ops, dup: true }) } else { Err(LifeformError::Refused(other())) })
    }

    /// Decides all ops of a write on a copy of the state, which becomes the new state only if all are accepted.
    fn judge(
        &mut self,
        write: &Write,
        ops: &[Op],
        bytes: usize,
        asked: &Arc<str>,
        at: Timestamp,
    ) -> Result<Decided, Refusal> {
        let who = &write.origin.principal;
        let mut decided = Decided {
            state: self.trial.clone(),
            deltas: Vec::new(),
            names: Vec::new(),
            bodies: Vec::new(),
            detached: BTreeSet::new(),
        };
        let (mut stale, mut written) = (Vec::new(), 0);
        for (place, op) in ops.iter().enumerate() {
            let rev = self.rev + 1 + place as u64;
            let ask = WriteContext { host: &self.host, who, base: write.base, first: self.rev + 1, rev, at };
            let placed = |refusal| if ops.len() > 1 { in_place(refusal, place) } else { refusal };
            let rules = self.head.kind.rules();
            let is_purge = rules.purge() == Some(op.name());
            let attached = if is_purge { rules.attachments(&decided.state) } else { BTreeSet::new() };
            let patch = rules.decide(&decided.state, op, &ask).map_err(placed)?.patch();
            // Subscribers receive exactly the patch that was applied here.
            let touched = decided.state.apply(&patch).map_err(|misfit| placed(Refusal::State(misfit.to_string())))?;
            stale.extend(touched.paths);
            if !attached.is_empty() {
                let left = rules.attachments(&decided.state);
                decided.detached.extend(attached.into_iter().filter(|hash| !left.contains(hash)));
            }
            let op_id = write.op_id.clone();
            let asked = op_id.as_ref().map(|_| asked.clone());
            // A permanent removal has no inverse, so the removed content cannot be restored from an earlier revision.
            let inverse = Patch(if is_purge { Vec::new() } else { touched.inverse });
            let delta = Delta { op: json!(op), patch, inverse, op_id, asked };
            let body = store::json(&delta);
            written += body.len();
            if written > WRITTEN_MAX {
                let why = format!("all of it changes over {WRITTEN_MAX} bytes of the canvas: do it in several writes");
                return Err(Refusal::schema("ops", why));
            }
            decided.bodies.push(body);
            decided.deltas.push(delta);
            decided.names.push(Arc::from(op.name()));
        }
        if !decided.detached.is_empty() {
            // A later op of the write may have attached one again.
            let left = self.head.kind.rules().attachments(&decided.state);
            decided.detached.retain(|hash| !left.contains(hash));
        }
        // A short request can cause a large write.
        if !is_daemon(who) {
            self.allowance.take(&who.id, 0, written.saturating_sub(bytes) / 4, &self.limits, Instant::now())?;
        }
        self.stale.extend(stale);
        self.unkept.0 += written;
        self.unkept.1 += ops.len() as u64;
        Ok(decided)
    }

    /// Waits for the commits in order, publishes the successful ones, and replies.
    async fn settle(&mut self, under_way: Vec<UnderWay>) {
        let (mut answers, mut is_whole) = (Vec::with_capacity(under_way.len()), true);
        let mut uncertain = Vec::new();
        for UnderWay { write, deltas, names, called, state, commit } in under_way {
            let committed = commit.await;
            match committed.is_ok() {
                true => self.unloaded_members.call(&called),
                false => uncertain.push(called),
            }
            let purges = committed.iter().flat_map(|receipt| names.iter().zip(&receipt.versions));
            let purged = purges
                .filter(|(name, _)| self.head.kind.rules().purge() == Some(&***name))
                .map(|(_, rev)| rev - 1)
                .max();
            self.purged = self.purged.max(purged);
            let asked = deltas.first().and_then(|delta| Some((delta.op_id.clone()?, delta.asked.clone()?)));
            let answer = committed.map(|receipt| {
                let entries = deltas.iter().zip(&names).zip(&receipt.versions);
                let frames = entries.map(|((delta, name), rev)| {
                    let entry = Entry {
                        seq: *rev,
                        at: receipt.at,
                        by: write.origin.principal.id.clone(),
                        cause: write.origin.cause.clone(),
                        kind: name.clone(),
                        data: store::json(&Value::Null),
                    };
                    frame(&entry, delta)
                });
                // Writes after a failed one are reread together with it, so that no frame before them is missing.
                let frames: Vec<Frame> = frames.collect();
                match is_whole {
                    true => self.publish(frames, state, receipt.at),
                    false => Applied {
                        rev: frames.last().map_or(0, |frame| frame.rev),
                        ops: frames.len() as u64,
                        dup: false,
                    },
                }
            });
            is_whole &= answer.is_ok();
            if let (Ok(Applied { rev, ops, .. }), Some((id, asked))) = (&answer, asked) {
                self.done.add(&write.origin.principal.id, &id, Once { rev: *rev, ops: *ops, asked });
            }
            answers.push((write.reply, answer));
        }
        if answers.iter().any(|(_, answer)| answer.is_err()) {
            self.reread().await;
            // A write that reported a failure may have been committed. A lifeform that is woken for nothing sleeps
            // again.
            uncertain.iter().for_each(|called| self.unloaded_members.call(called));
        }
        // From here on, removed revisions are not served, although the log is cut later.
        self.hide();
        // Watchers are notified once for all writes of a flush.
        let rev = self.shared.read().unwrap_or_else(PoisonError::into_inner).snapshot.rev;
        self.published.send_if_modified(|known| std::mem::replace(known, rev) != rev);
        for (reply, answer) in answers {
            let _ = reply.send(answer.map_err(LifeformError::from));
        }
    }

    /// Returns to the published state and applies the later journal entries, because a write that reported a failure
    /// may still have been committed. Only the journal is read: the canvas may be large, and a disk failure may last.
    async fn reread(&mut self) {
        let published = || self.shared.read().unwrap_or_else(PoisonError::into_inner).snapshot.clone();
        let (mut snapshot, mut done) = (published(), Done::default());
        let tail = self.log.tail(&self.head.kind, snapshot.rev, &mut snapshot.state, &HashMap::new(), &mut done).await;
        match tail {
            Ok(Tail { rev, ring, stale, purged }) if rev > snapshot.rev => {
                self.purged = purged.or(self.purged);
                self.stale.extend(stale);
                self.done.extend(done);
                let newer = snapshot_of(&self.head, rev, self.log.store.clock().now(), &snapshot.state);
                let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
                shared.snapshot = Snapshot { floor: snapshot.floor, ..newer };
                shared.ring.append(ring);
                drop(shared);
                self.published.send_replace(rev);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, canvas = %self.log.stream, "what follows a write that failed cannot be read")
            }
        }
        let snapshot = published();
        (self.trial, self.rev) = (snapshot.state, snapshot.rev);
    }

    fn publish(&self, frames: Vec<Frame>, state: State, at: Timestamp) -> Applied {
        let rev = frames.last().map_or(self.rev, |frame| frame.rev);
        let ops = frames.len() as u64;
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        let floor = shared.snapshot.floor;
        shared.snapshot = Snapshot { floor, ..snapshot_of(&self.head, rev, at, &state) };
        frames.into_iter().for_each(|frame| shared.ring.push(frame));
        Applied { rev, ops, dup: false }
    }
}

/// Returns `true` for the daemon itself. After a restart, it may write many marks at once.
fn is_daemon(who: &Principal) -> bool {
    who.id == Principal::system().id
}

/// Adds the position of the op to a refusal of one of several ops.
fn in_place(refusal: Refusal, at: usize) -> Refusal {
    match refusal {
        Refusal::Schema { path, message } => Refusal::Schema { path: format!("ops/{at}/{path}"), message },
        Refusal::Missing(what) => Refusal::Missing(format!("ops/{at}: {what}")),
        Refusal::Exists(what) => Refusal::Exists(format!("ops/{at}: {what}")),
        Refusal::Forbidden(why) => Refusal::Forbidden(format!("ops/{at}: {why}")),
        Refusal::State(why) => Refusal::State(format!("ops/{at}: {why}")),
        other => other,
    }
}
