//! A cheap handle on one canvas: reads, subscriptions, and requests to the owner task.

mod attachments;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use store::{Origin, PrincipalId, Store, StoreError, Stream, Timestamp};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::fan_out::{self, Lagging, SubscriberGroup};
use super::log::{FRAMES_BYTES, Head, Loaded, Log, Ring};
use super::owner::{Applied, Owner, Write, WriteRequest};
use super::presence::{Presence, Present, STATE_BYTES_MAX, TTL_MAX};
use super::rate_limit::Allowance;
use super::{CanvasId, Frames, Host, Kind, Limits, Op, Refusal, State, UnloadedMembers};
use crate::LifeformError;
pub use attachments::Upload;

/// The maximum number of write requests that wait for one canvas.
const WRITES_WAITING_MAX: usize = 1024;
/// The maximum number of ephemeral frames that a slow subscriber may fall behind before it misses some.
const EPHEMERAL_MAX: usize = 1024;
/// The maximum number of frames in one page.
const FRAMES_MAX: usize = 256;

/// The complete canvas at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The id of this log. A subscriber cannot resume from another epoch.
    pub epoch: Arc<str>,
    /// The revision.
    pub rev: u64,
    /// The revision before the first one that the log still contains.
    pub floor: u64,
    /// The time of the last change.
    pub at: Timestamp,
    /// The state.
    pub state: State,
}

/// A page of frames as they are sent, with its first and last revision.
#[derive(Default)]
pub(super) struct Page {
    from: u64,
    to: u64,
    frames: Arc<[Bytes]>,
}

/// The state that readers and subscribers see.
pub(super) struct Shared {
    pub(super) snapshot: Snapshot,
    pub(super) ring: Ring,
    /// The page that was last sent to several subscribers.
    pub(super) page: Page,
    /// The snapshot frame of a revision, as long as it is being sent to a subscriber.
    pub(super) whole: (u64, Weak<Bytes>),
}

/// An ephemeral frame: subscribers receive it now, and it is not stored.
#[derive(Clone, Debug)]
pub enum EphemeralFrame {
    /// A piece of a message that is being written.
    Stream {
        /// The JSON Pointer of the message.
        path: Arc<str>,
        /// The frame.
        text: Arc<str>,
    },
    /// A change in the presence of a principal.
    Presence {
        /// The frame.
        text: Arc<str>,
    },
}

impl EphemeralFrame {
    /// The frame.
    pub fn text(&self) -> &Arc<str> {
        match self {
            Self::Stream { text, .. } | Self::Presence { text } => text,
        }
    }
}

/// A handle on one canvas. Clones share the canvas.
#[derive(Clone)]
pub struct Canvas {
    /// The name.
    pub id: CanvasId,
    /// The kind.
    pub kind: Kind,
    /// The title.
    pub title: Arc<str>,
    /// The principal that made the canvas; `None` for canvases of early releases.
    pub by: Option<PrincipalId>,
    log: Log,
    shared: Arc<RwLock<Shared>>,
    writer: mpsc::Sender<Write>,
    /// The published revision, before subscribers are notified of it.
    newest: watch::Receiver<u64>,
    head: watch::Receiver<u64>,
    subscribers: Arc<SubscriberGroup>,
    ephemeral: broadcast::Sender<EphemeralFrame>,
    presence: Arc<Mutex<Presence>>,
    /// The upload allowance of each writer.
    uploads: Arc<Mutex<Allowance>>,
    limits: Limits,
    close: Arc<watch::Sender<bool>>,
    unloaded_members: UnloadedMembers,
    /// The liveness token: the owner task, each handle and each running write of rows hold a clone.
    alive: Arc<()>,
}

impl Canvas {
    /// Creates a canvas. An existing canvas stays unchanged.
    ///
    /// # Errors
    /// A store error.
    pub async fn make(
        store: &Store,
        lifeform: &str,
        id: &CanvasId,
        kind: Kind,
        title: &str,
        origin: &Origin,
    ) -> Result<(), LifeformError> {
        let log = Log::new(store.clone(), lifeform, id);
        match store.commit(log.birth(&kind, title, origin)).await {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict { .. }) => match log.head().await? {
                Some(head) if head.kind == kind => Ok(()),
                _ => Err(LifeformError::Refused(Refusal::Exists(format!("canvas {id}, of another type,")))),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Loads the canvas `id` of `lifeform`, whose name is `host_name`; returns `None` if it does not exist.
    ///
    /// # Errors
    /// A store error.
    pub async fn open(
        store: Store,
        lifeform: &str,
        host_name: &str,
        id: CanvasId,
        limits: Limits,
        unloaded_members: UnloadedMembers,
    ) -> Result<Option<Self>, LifeformError> {
        let log = Log::new(store, lifeform, &id);
        let Some(loaded) = log.load().await? else { return Ok(None) };
        let Loaded { head: kept, rev, .. } = &loaded;
        let (writer, inbox) = mpsc::channel(WRITES_WAITING_MAX);
        let (published, newest) = watch::channel(*rev);
        let (progress, head) = watch::channel(*rev);
        let (kind, title, by) = (kept.kind.clone(), kept.title.as_str().into(), kept.by.clone());
        let (ephemeral, _) = broadcast::channel(EPHEMERAL_MAX);
        let (close, closed) = watch::channel(false);
        let alive = Arc::new(());
        let (owner, shared) = Owner::new(
            log.clone(),
            Host::new(lifeform, host_name),
            loaded,
            limits,
            unloaded_members.clone(),
            inbox,
            published,
            closed,
            alive.clone(),
        );
        let subscribers: Arc<SubscriberGroup> = Arc::default();
        tokio::spawn(store::vital(
            "fan-out",
            fan_out::run(newest.clone(), progress, ephemeral.downgrade(), subscribers.clone()),
        ));
        tokio::spawn(store::vital("canvas", owner.run()));
        let presence = Arc::default();
        let close = Arc::new(close);
        let uploads = Arc::default();
        Ok(Some(Self {
            id,
            kind,
            title,
            by,
            log,
            limits,
            shared,
            writer,
            newest,
            head,
            subscribers,
            ephemeral,
            presence,
            uploads,
            close,
            unloaded_members,
            alive,
        }))
    }

    /// Returns the globally unique name, `{lifeform}/{canvas}`.
    pub fn name(&self) -> &str {
        self.log.stream.strip_prefix("canvas:").unwrap_or(&self.log.stream)
    }

    /// Returns the lifeform that the canvas belongs to.
    pub fn lifeform(&self) -> &str {
        self.name().split_once('/').map_or("", |(lifeform, _)| lifeform)
    }

    /// Returns the sleeping members, which a write wakes.
    pub(crate) fn unloaded_members(&self) -> &UnloadedMembers {
        &self.unloaded_members
    }

    /// Returns the journal stream of this canvas. Its entry numbers are the revisions.
    pub fn stream(&self) -> &Stream {
        &self.log.stream
    }

    fn shared(&self) -> RwLockReadGuard<'_, Shared> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn presence_now(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a snapshot of the published state.
    pub fn snapshot(&self) -> Snapshot {
        self.shared().snapshot.clone()
    }

    /// Returns the published revision.
    pub fn rev(&self) -> u64 {
        self.shared().snapshot.rev
    }

    /// Returns the canvas at an earlier revision.
    ///
    /// # Errors
    /// [`Refusal::Missing`] if the revision does not exist yet. [`Refusal::State`] if the log no longer contains it.
    pub async fn snapshot_at(&self, rev: u64) -> Result<Snapshot, LifeformError> {
        let now = self.snapshot();
        if rev > now.rev {
            return Err(LifeformError::Refused(Refusal::Missing(format!("revision {rev}"))));
        }
        if rev < now.floor {
            let gone = format!("the log of this canvas begins after revision {}", now.floor);
            return Err(LifeformError::Refused(Refusal::State(gone)));
        }
        let state = self.log.at(now.state.clone(), now.rev, rev).await?;
        Ok(Snapshot { rev, state, ..now })
    }

    /// Returns a watch on the revision. With many subscribers, one update covers several revisions; otherwise each
    /// revision updates the watch immediately.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.head.clone()
    }

    /// Records that a subscriber has taken a notification. With many subscribers, the next notification waits until all
    /// have taken this one.
    pub fn took(&self) {
        self.subscribers.done();
    }

    /// Records that a subscriber cannot take more for now. The next notification does not wait for this subscriber
    /// until the returned value is dropped.
    pub fn hold_up(&self) -> Lagging {
        self.subscribers.hold_up()
    }

    /// Returns a watch on the published revision.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }

    /// Applies `op`. The op is durable when this returns. A repeated `op_id` of the same principal is applied only
    /// once.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] if the rules refuse the op. [`LifeformError::Overloaded`] if too many writes wait.
    pub async fn apply(
        &self,
        op: impl Into<Op>,
        op_id: Option<Arc<str>>,
        base: Option<u64>,
        origin: &Origin,
    ) -> Result<Applied, LifeformError> {
        self.write(WriteRequest::Ops(vec![op.into()]), op_id, base, origin).await
    }

    /// Applies several ops, all or none.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub async fn write(
        &self,
        what: WriteRequest,
        op_id: Option<Arc<str>>,
        base: Option<u64>,
        origin: &Origin,
    ) -> Result<Applied, LifeformError> {
        self.submit(what, op_id, base, origin)?.await.map_err(|_| match *self.close.borrow() {
            // The canvas was deleted while the write waited.
            true => LifeformError::NoCanvas(self.id.clone()),
            false => LifeformError::Store(StoreError::Closed),
        })?
    }

    /// Queues a write and returns a future of its result. The owner task applies writes in the order of these calls.
    ///
    /// # Errors
    /// [`LifeformError::Overloaded`] if too many writes wait.
    pub fn submit(
        &self,
        what: WriteRequest,
        op_id: Option<Arc<str>>,
        base: Option<u64>,
        origin: &Origin,
    ) -> Result<oneshot::Receiver<Result<Applied, LifeformError>>, LifeformError> {
        let (reply, answer) = oneshot::channel();
        let write = Write { what, op_id, base, origin: origin.clone(), reply };
        self.writer.try_send(write).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => LifeformError::Overloaded,
            mpsc::error::TrySendError::Closed(_) => LifeformError::NoCanvas(self.id.clone()),
        })?;
        Ok(answer)
    }

    /// Returns at most one page of delta frames after revision `after`.
    ///
    /// # Errors
    /// A store error.
    pub async fn frames(&self, after: u64) -> Result<Frames, LifeformError> {
        let rev = {
            let shared = self.shared();
            if after > shared.snapshot.rev {
                return Ok(Frames::Reset("ahead_of_log"));
            }
            if after < shared.snapshot.floor {
                return Ok(Frames::Reset("log_trimmed"));
            }
            if after == shared.snapshot.rev {
                return Ok(Frames::Deltas(Vec::new()));
            }
            if let Some(frames) = shared.ring.after(after) {
                let mut bytes = 0;
                let page = frames.take(FRAMES_MAX).take_while(|frame| {
                    let room = bytes <= FRAMES_BYTES;
                    bytes += frame.text.len();
                    room
                });
                return Ok(Frames::Deltas(page.cloned().collect()));
            }
            shared.snapshot.rev
        };
        match self.log.frames(after, rev).await? {
            none if none.is_empty() => Ok(Frames::Reset("log_trimmed")),
            frames => Ok(Frames::Deltas(frames)),
        }
    }

    /// Returns the minimum retention of the log, in days.
    pub(crate) fn keep_days(&self) -> i32 {
        i32::try_from(self.limits.keep_days).unwrap_or(i32::MAX)
    }

    /// Closes the canvas: subscribers are notified, and the canvas accepts no more ops.
    pub fn close(&self) {
        self.close.send_replace(true);
    }

    /// Returns `true` if only the owner task and the caller hold this canvas, and no write waits.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.alive) == 2 && self.writer.capacity() == self.writer.max_capacity()
    }

    /// Returns the snapshot frame of revision `rev`, if it is being sent to another subscriber.
    pub fn shared_whole(&self, rev: u64) -> Option<Arc<Bytes>> {
        let shared = self.shared();
        let (made, frame) = &shared.whole;
        if *made == rev { frame.upgrade() } else { None }
    }

    /// Shares the snapshot frame of revision `rev` with other subscribers while it is being sent.
    pub fn share_whole(&self, rev: u64, frame: &Arc<Bytes>) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).whole = (rev, Arc::downgrade(frame));
    }

    /// Returns the frames after revision `from` and the last revision in them, if they are already encoded.
    pub fn shared_page(&self, from: u64) -> Option<(Arc<[Bytes]>, u64)> {
        let shared = self.shared();
        let Page { from: begins, to, frames } = &shared.page;
        // Revisions below the floor were removed and are not served from this cache either.
        (*begins == from && *to > from && from >= shared.snapshot.floor).then(|| (frames.clone(), *to))
    }

    /// Shares the frames from revision `from` up to `to` with other subscribers at the same revision.
    pub fn share_page(&self, from: u64, to: u64, frames: Arc<[Bytes]>) {
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        // Frames that were read before a permanent removal are not shared.
        if from >= shared.snapshot.floor {
            shared.page = Page { from, to, frames };
        }
    }

    /// Sends a piece of a message that is being written to the present subscribers.
    pub fn stream_piece(&self, topic: &str, id: &str, seq: u64, at_len: usize, text: &str) {
        if self.ephemeral.receiver_count() > 0 {
            let frame = json!({"t": "stream", "topic": topic, "msg": id, "seq": seq, "at_len": at_len, "text": text});
            let path = super::chat::message_path(topic, id).into();
            let _ = self.ephemeral.send(EphemeralFrame::Stream { path, text: frame.to_string().into() });
        }
    }

    fn show_presence(&self, frame: &Value) {
        let _ = self.ephemeral.send(EphemeralFrame::Presence { text: frame.to_string().into() });
    }

    /// Returns a receiver of ephemeral frames.
    pub fn ephemeral(&self) -> broadcast::Receiver<EphemeralFrame> {
        self.ephemeral.subscribe()
    }

    /// Shows the presence of a principal and its state, for `ttl`.
    ///
    /// # Errors
    /// [`Refusal::Schema`] if the state is too large. [`Refusal::Rate`] if too many principals are present.
    pub fn be_present(&self, who: &PrincipalId, session: u128, state: &Value, ttl: Duration) -> Result<(), Refusal> {
        let bytes = state.to_string().len();
        if !state.is_object() || bytes > STATE_BYTES_MAX {
            return Err(Refusal::schema("state", format!("an object of at most {STATE_BYTES_MAX} bytes")));
        }
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(Refusal::schema("ttl", format!("1 to {} seconds", TTL_MAX.as_secs())));
        }
        let now = Instant::now();
        if !self.presence_now().may_show(who, now) {
            return Err(Refusal::Rate("you show your presence too often: at most 10 times a second".into()));
        }
        if !self.presence_now().note(who, session, state.clone(), now + ttl, now) {
            return Err(Refusal::Rate("too many are there already to show one more".into()));
        }
        self.show_presence(&json!({"t": "presence", "who": {"id": who}, "state": state, "ttl": ttl.as_secs()}));
        Ok(())
    }

    /// Ends a session of a principal. After the last session, subscribers see that the principal has left.
    pub fn leave(&self, who: &PrincipalId, session: u128) {
        if self.presence_now().leave(who, session) {
            self.show_presence(&json!({"t": "gone", "who": {"id": who}}));
        }
    }

    /// Ends all sessions of a principal, and shows that it has left.
    pub(crate) fn leave_all(&self, who: &PrincipalId) {
        if self.presence_now().leave_all(who) {
            self.show_presence(&json!({"t": "gone", "who": {"id": who}}));
        }
    }

    /// Returns the present principals.
    pub fn present(&self) -> Vec<Present> {
        self.presence_now().list(Instant::now())
    }
}

/// Returns the snapshot of a head and a state.
pub(super) fn snapshot_of(head: &Head, rev: u64, at: Timestamp, state: &State) -> Snapshot {
    Snapshot { epoch: head.epoch.clone(), rev, floor: head.floor, at, state: state.clone() }
}
