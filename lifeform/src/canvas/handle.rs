//! A cheap handle on one canvas: what there is, what changes, and the way to its owner.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Batch, Hash, Origin, PrincipalId, Store, StoreError, Stream, Timestamp};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::allowance::Allowance;
use super::log::{FRAMES_BYTES, Head, Loaded, Log, Ring};
use super::owner::{Applied, Owner, What, Write};
use super::presence::{Presence, Present, STATE_BYTES_MAX, TTL_MAX};
use super::telling::{self, Crowd, HeldUp};
use super::{CanvasId, Frames, Kind, Limits, Op, Refusal, Sleepers, State};
use crate::LifeformError;

/// Requests that may wait for one canvas.
const WRITES_WAITING_MAX: usize = 1024;
/// Ephemeral frames a slow subscriber may fall behind before it misses some.
const EPHEMERAL_MAX: usize = 1024;
/// Frames of one page.
const FRAMES_MAX: usize = 256;

/// The whole canvas at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Names this log; another epoch can never be resumed.
    pub epoch: Arc<str>,
    /// The revision.
    pub rev: u64,
    /// The revision before the first that the log still holds.
    pub floor: u64,
    /// The time of the last change.
    pub at: Timestamp,
    /// The state.
    pub state: State,
}

/// Bytes that messages of a canvas may carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// SHA-256 of the bytes, in hexadecimal.
    pub hash: Arc<str>,
    /// Their media type, as the uploader named it.
    pub media_type: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// Frames as they are sent, and the revisions they go from and to.
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
    /// The last page that several subscribers were sent.
    pub(super) page: Page,
    /// The frame with all of a revision, as long as it is being sent to a subscriber.
    pub(super) whole: (u64, Weak<Bytes>),
}

/// A frame that is shown to present subscribers and not stored.
#[derive(Clone, Debug)]
pub enum Shown {
    /// A piece of a message that is being written.
    Stream {
        /// The pointer of the message.
        path: Arc<str>,
        /// The frame.
        text: Arc<str>,
    },
    /// A change of presence.
    Presence {
        /// The frame.
        text: Arc<str>,
    },
}

impl Shown {
    /// The frame.
    pub fn text(&self) -> &Arc<str> {
        match self {
            Self::Stream { text, .. } | Self::Presence { text } => text,
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Canvas {
    /// The name.
    pub id: CanvasId,
    /// The kind.
    pub kind: Kind,
    /// The title.
    pub title: Arc<str>,
    log: Log,
    shared: Arc<RwLock<Shared>>,
    writer: mpsc::Sender<Write>,
    /// The published revision, as subscribers are notified of it.
    newest: watch::Receiver<u64>,
    head: watch::Receiver<u64>,
    crowd: Arc<Crowd>,
    ephemeral: broadcast::Sender<Shown>,
    presence: Arc<Mutex<Presence>>,
    /// The remaining uploads of each writer.
    uploads: Arc<Mutex<Allowance>>,
    limits: Limits,
    close: Arc<watch::Sender<bool>>,
    sleepers: Sleepers,
    /// Held by the owner, by every handle, and while rows are written.
    alive: Arc<()>,
}

impl Canvas {
    /// Makes a canvas; one that is there already stays as it is.
    ///
    /// # Errors
    /// The store's own.
    pub async fn make(
        store: &Store,
        lifeform: &str,
        id: &CanvasId,
        kind: Kind,
        title: &str,
        origin: &Origin,
    ) -> Result<(), LifeformError> {
        let log = Log::new(store.clone(), lifeform, id);
        match store.commit(log.birth(kind, title, origin)).await {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict { .. }) => match log.head().await? {
                Some(head) if head.kind == kind => Ok(()),
                _ => Err(LifeformError::Refused(Refusal::Exists(format!("canvas {id}, of another type,")))),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes the canvas `id` of `lifeform`; `None` when nobody made it.
    ///
    /// # Errors
    /// The store's own.
    pub async fn open(
        store: Store,
        lifeform: &str,
        id: CanvasId,
        limits: Limits,
        sleepers: Sleepers,
    ) -> Result<Option<Self>, LifeformError> {
        let log = Log::new(store, lifeform, &id);
        let Some(loaded) = log.load().await? else { return Ok(None) };
        let Loaded { head: kept, rev, .. } = &loaded;
        let (writer, inbox) = mpsc::channel(WRITES_WAITING_MAX);
        let (published, newest) = watch::channel(*rev);
        let (told, head) = watch::channel(*rev);
        let (kind, title) = (kept.kind, kept.title.as_str().into());
        let (ephemeral, _) = broadcast::channel(EPHEMERAL_MAX);
        let (close, closed) = watch::channel(false);
        let alive = Arc::new(());
        let (owner, shared) =
            Owner::new(log.clone(), loaded, limits, sleepers.clone(), inbox, published, closed, alive.clone());
        let crowd: Arc<Crowd> = Arc::default();
        tokio::spawn(store::vital("fan-out", telling::run(newest.clone(), told, ephemeral.downgrade(), crowd.clone())));
        tokio::spawn(store::vital("canvas", owner.run()));
        let presence = Arc::default();
        let close = Arc::new(close);
        let uploads = Arc::default();
        Ok(Some(Self {
            id,
            kind,
            title,
            log,
            limits,
            shared,
            writer,
            newest,
            head,
            crowd,
            ephemeral,
            presence,
            uploads,
            close,
            sleepers,
            alive,
        }))
    }

    /// Returns the name among all canvases, `{lifeform}/{canvas}`.
    pub fn name(&self) -> &str {
        self.log.stream.strip_prefix("canvas:").unwrap_or(&self.log.stream)
    }

    /// Returns the lifeform that the canvas belongs to.
    pub fn lifeform(&self) -> &str {
        self.name().split_once('/').map_or("", |(lifeform, _)| lifeform)
    }

    /// Returns the sleeping members, which writes call.
    pub(crate) fn sleepers(&self) -> &Sleepers {
        &self.sleepers
    }

    /// The journal stream of this canvas; its entry numbers are the revisions.
    pub fn stream(&self) -> &Stream {
        &self.log.stream
    }

    fn shared(&self) -> RwLockReadGuard<'_, Shared> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn presence_now(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the present state.
    pub fn snapshot(&self) -> Snapshot {
        self.shared().snapshot.clone()
    }

    /// The revision it is at.
    pub fn rev(&self) -> u64 {
        self.shared().snapshot.rev
    }

    /// The canvas as it stood at an earlier revision.
    ///
    /// # Errors
    /// [`Refusal::Missing`] when there is no such revision yet, [`Refusal::State`] when the log holds it no more.
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

    /// Returns a watch on the revision, which is updated at once, or for many subscribers a few revisions together.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.head.clone()
    }

    /// Notes that a subscriber has taken a notification: many subscribers are notified again when all have.
    pub fn took(&self) {
        self.crowd.done();
    }

    /// Notes that a subscriber cannot take more just now; nobody waits for it until this is dropped.
    pub fn hold_up(&self) -> HeldUp {
        self.crowd.hold_up()
    }

    /// A watch on the revision as it is published.
    pub(crate) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }

    /// Does `op`: durable when this returns. The same `op_id` of the same principal is done once.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] when the rules say no, [`LifeformError::Overloaded`] when too much waits.
    pub async fn apply(
        &self,
        op: impl Into<Op>,
        op_id: Option<Arc<str>>,
        base: Option<u64>,
        origin: &Origin,
    ) -> Result<Applied, LifeformError> {
        self.write(What::Ops(vec![op.into()]), op_id, base, origin).await
    }

    /// Does several ops, all of them or none.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub async fn write(
        &self,
        what: What,
        op_id: Option<Arc<str>>,
        base: Option<u64>,
        origin: &Origin,
    ) -> Result<Applied, LifeformError> {
        self.submit(what, op_id, base, origin)?.await.map_err(|_| LifeformError::Store(StoreError::Closed))?
    }

    /// Hands a write over and answers the wait for it: writes are done in the order they are handed over.
    ///
    /// # Errors
    /// [`LifeformError::Overloaded`] when too much waits.
    pub fn submit(
        &self,
        what: What,
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

    /// Delta frames after revision `after`, at most a page of them.
    ///
    /// # Errors
    /// The store's own.
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

    /// Returns the least retention of its log, in days.
    pub(crate) fn keep_days(&self) -> i32 {
        i32::try_from(self.limits.keep_days).unwrap_or(i32::MAX)
    }

    /// Closes the canvas: subscribers are notified, and no op is accepted any more.
    pub fn close(&self) {
        self.close.send_replace(true);
    }

    /// Returns `true` if only the owner and the caller hold this canvas, and no write waits.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.alive) == 2 && self.writer.capacity() == self.writer.max_capacity()
    }

    /// Keeps bytes that messages may carry, once, under their hash.
    ///
    /// # Errors
    /// [`Refusal::Rate`] when that is too much in too short a time, else the store's own.
    pub async fn attach(&self, body: Bytes, media_type: &str, origin: &Origin) -> Result<Kept, LifeformError> {
        let bytes = body.len() as u64;
        let who = &origin.principal.id;
        let may = {
            let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
            uploads.take(who, 1, body.len(), &self.limits, Instant::now())
        };
        may.map_err(LifeformError::Refused)?;
        let mut batch = Batch::new(origin);
        let hash = batch.payload(body).hex();
        let kept = Kept { hash: hash.as_str().into(), media_type: media_type.to_owned(), bytes };
        match self.log.store.commit(batch.create(self.log.attachment(&hash), &kept)).await {
            Ok(_) => Ok(kept),
            // Whoever kept it first named its type.
            Err(StoreError::Conflict { .. }) => {
                let known = self.log.store.document::<Kept>(&self.log.attachment(&hash)).await?;
                Ok(known.map_or(kept, |known| known.value))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The media type and the bytes of what was kept under a hash for this canvas.
    ///
    /// # Errors
    /// The store's own.
    pub async fn attachment(&self, hash: &str) -> Result<Option<(String, Bytes)>, LifeformError> {
        let Some(kept) = self.log.store.document::<Kept>(&self.log.attachment(hash)).await? else { return Ok(None) };
        let Some(hash) = Hash::parse(&kept.value.hash) else { return Ok(None) };
        Ok(self.log.store.payload(&hash).await?.map(|body| (kept.value.media_type, body)))
    }

    /// Returns the frame of the whole revision `rev`, if it is being sent.
    pub fn shared_whole(&self, rev: u64) -> Option<Arc<Bytes>> {
        let shared = self.shared();
        let (made, frame) = &shared.whole;
        if *made == rev { frame.upgrade() } else { None }
    }

    /// Shares the frame with all of revision `rev` with those who subscribe while it is being sent.
    pub fn share_whole(&self, rev: u64, frame: &Arc<Bytes>) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).whole = (rev, Arc::downgrade(frame));
    }

    /// Returns the frames after revision `from` and the revision they reach, if they were made already.
    pub fn shared_page(&self, from: u64) -> Option<(Arc<[Bytes]>, u64)> {
        let shared = self.shared();
        let Page { from: begins, to, frames } = &shared.page;
        // Removed revisions are not served from here either.
        (*begins == from && *to > from && from >= shared.snapshot.floor).then(|| (frames.clone(), *to))
    }

    /// Shares what follows revision `from` up to `to`, as subscribers get it, with all who are as far.
    pub fn share_page(&self, from: u64, to: u64, frames: Arc<[Bytes]>) {
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever read it before something in it was taken away for good shares it with nobody.
        if from >= shared.snapshot.floor {
            shared.page = Page { from, to, frames };
        }
    }

    /// Shows a piece of a message that is being written.
    pub fn stream_piece(&self, topic: &str, id: &str, seq: u64, at_len: usize, text: &str) {
        if self.ephemeral.receiver_count() > 0 {
            let frame = json!({"t": "stream", "topic": topic, "msg": id, "seq": seq, "at_len": at_len, "text": text});
            let path = super::chat::message_path(topic, id).into();
            let _ = self.ephemeral.send(Shown::Stream { path, text: frame.to_string().into() });
        }
    }

    fn show_presence(&self, frame: &Value) {
        let _ = self.ephemeral.send(Shown::Presence { text: frame.to_string().into() });
    }

    /// Receives what is shown.
    pub fn ephemeral(&self) -> broadcast::Receiver<Shown> {
        self.ephemeral.subscribe()
    }

    /// Shows the presence of a principal and its state, for `ttl`.
    ///
    /// # Errors
    /// [`Refusal::Schema`] if that is too much, [`Refusal::Rate`] if too many are present.
    pub fn be_present(&self, who: &PrincipalId, session: u128, state: &Value, ttl: Duration) -> Result<(), Refusal> {
        let bytes = state.to_string().len();
        if !state.is_object() || bytes > STATE_BYTES_MAX {
            return Err(Refusal::schema("state", format!("an object of at most {STATE_BYTES_MAX} bytes")));
        }
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(Refusal::schema("ttl", format!("1 to {} seconds", TTL_MAX.as_secs())));
        }
        let now = Instant::now();
        if !self.presence_now().note(who, session, state.clone(), now + ttl, now) {
            return Err(Refusal::Rate("too many are there already to show one more".into()));
        }
        self.show_presence(&json!({"t": "presence", "who": {"id": who}, "state": state, "ttl": ttl.as_secs()}));
        Ok(())
    }

    /// Ends a session of a principal, and shows that the principal is gone after the last one.
    pub fn leave(&self, who: &PrincipalId, session: u128) {
        if self.presence_now().leave(who, session) {
            self.show_presence(&json!({"t": "gone", "who": {"id": who}}));
        }
    }

    /// Shows that a principal is there no more, in whatever session.
    pub(crate) fn leave_all(&self, who: &PrincipalId) {
        if self.presence_now().leave_all(who) {
            self.show_presence(&json!({"t": "gone", "who": {"id": who}}));
        }
    }

    /// All who are there.
    pub fn present(&self) -> Vec<Present> {
        self.presence_now().list(Instant::now())
    }
}

/// Returns the snapshot of a head and a state.
pub(super) fn snapshot_of(head: &Head, rev: u64, at: Timestamp, state: &State) -> Snapshot {
    Snapshot { epoch: head.epoch.clone(), rev, floor: head.floor, at, state: state.clone() }
}
