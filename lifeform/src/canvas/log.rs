//! The stored form of a canvas and its recovery. The store has a head, one row per entity, and the journal of all ops.
//! Subscriber frames are made from the same journal entries.
//!
//! Each row contains the revision at which it was written. Rows are written in several commits, and the head last.
//! After a crash in between, some rows are ahead of the head; recovery skips the journal entries of those rows.

mod ring;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Batch, Entry, Expect, Key, Kind as Rows, Origin, PrincipalId, Store, StoreError, Stream, Timestamp};

use super::{CanvasId, Kind, Limits, Op, State};
pub(super) use ring::{Delta, Ring, frame};
pub use ring::{Frame, Frames};

/// The stored head of a canvas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The kind.
    #[serde(default)]
    pub kind: Kind,
    /// The title.
    #[serde(default)]
    pub title: String,
    /// The id of this log. A subscriber cannot resume from another epoch.
    pub epoch: Arc<str>,
    /// The revision at which all rows were last complete.
    pub rev: u64,
    /// The revision before the first one that the log still contains.
    #[serde(default)]
    pub floor: u64,
    /// The creator; `None` for canvases that are older than this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<PrincipalId>,
    /// The time of creation.
    #[serde(default)]
    pub made_at: Timestamp,
    /// The complete state of a canvas in the older format, without rows.
    #[serde(default, skip_serializing)]
    state: Option<Value>,
}

/// The row of an entity: its value at a revision, or a tombstone.
#[derive(Serialize, Deserialize)]
struct Row {
    rev: u64,
    entity: Option<Value>,
}

/// The maximum number of frames that are kept in memory for subscribers. Older frames are read from the journal.
const RING_MAX: usize = 1024;
/// The maximum size of the frames in memory, in bytes.
const RING_BYTES_MAX: usize = 1 << 20;
/// The maximum size of one page of frames, in bytes.
pub(super) const FRAMES_BYTES: usize = 256 << 10;
/// The maximum size of the rows in one commit, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// The maximum number of rows in one commit, so that other writers are not blocked for long.
const CHUNK_ROWS: usize = 128;
/// The number of rows per read.
const PAGE: usize = 512;
/// The number of ops per cut of the log, and the maximum number of such cuts at once.
const CUT: u64 = 1_000;
const CUTS_AT_ONCE: usize = 16;
/// The number of entries that are reverted per read.
const BACK: u64 = 256;

/// The storage location of a canvas.
#[derive(Clone)]
pub(super) struct Log {
    pub(super) store: Store,
    pub(super) key: Key,
    pub(super) stream: Stream,
}

/// A canvas as loaded from the store.
pub(super) struct Loaded {
    pub(super) head: Head,
    pub(super) rev: u64,
    pub(super) state: State,
    pub(super) ring: Ring,
    /// The entities that changed since their rows were written.
    pub(super) stale: BTreeSet<Arc<str>>,
    /// The recent writes by idempotency key.
    pub(super) done: Done,
    /// The revision up to which the log must still be cut because of a permanent removal.
    pub(super) purged: Option<u64>,
}

/// The journal of a canvas after a revision.
pub(super) struct Tail {
    pub(super) rev: u64,
    pub(super) ring: Ring,
    /// The entities that the entries changed.
    pub(super) stale: BTreeSet<Arc<str>>,
    /// The revision up to which the log must still be cut; see [`Loaded::purged`].
    pub(super) purged: Option<u64>,
}

/// The maximum number of idempotency keys in memory. A repetition with an older key is applied again.
const DONE_MAX: usize = 20_000;

/// The recent writes by idempotency key, so that each is applied once. They are restored from the journal.
#[derive(Default)]
pub(super) struct Done {
    known: HashMap<(PrincipalId, Arc<str>), Once>,
    order: VecDeque<(PrincipalId, Arc<str>)>,
    /// The revision up to which the journal has not been read for idempotency keys.
    unread: u64,
}

/// A write with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Once {
    /// The revision of the last op.
    pub(super) rev: u64,
    /// The number of ops.
    pub(super) ops: u64,
    /// The hash of the request.
    pub(super) asked: Arc<str>,
}

impl Done {
    /// Records the idempotency key of a journal entry.
    fn note(&mut self, entry: &Entry, delta: &Delta) {
        let (Some(id), Some(asked)) = (&delta.op_id, &delta.asked) else { return };
        let name = (entry.by.clone(), id.clone());
        let once = self.known.entry(name.clone()).or_insert_with(|| {
            self.order.push_back(name);
            Once { rev: entry.seq, ops: 0, asked: asked.clone() }
        });
        // The ops of one write are consecutive entries.
        (once.rev, once.ops) = (once.rev.max(entry.seq), once.ops + 1);
    }

    /// Records a write that was just applied.
    pub(super) fn add(&mut self, who: &PrincipalId, id: &Arc<str>, once: Once) {
        self.order.push_back((who.clone(), id.clone()));
        self.known.insert((who.clone(), id.clone()), once);
        while self.order.len() > DONE_MAX {
            self.order.pop_front().map(|oldest| self.known.remove(&oldest));
        }
    }

    /// Adds the writes that were read from the journal.
    pub(super) fn extend(&mut self, mut read: Self) {
        for (who, id) in read.order {
            if let Some(once) = read.known.remove(&(who.clone(), id.clone()))
                && !self.known.contains_key(&(who.clone(), id.clone()))
            {
                self.add(&who, &id, once);
            }
        }
    }

    /// Returns the write with an idempotency key.
    pub(super) fn get(&self, who: &PrincipalId, id: &Arc<str>) -> Option<Once> {
        self.known.get(&(who.clone(), id.clone())).cloned()
    }
}

fn corrupt(error: impl ToString) -> StoreError {
    StoreError::Corrupt(format!("a canvas: {}", error.to_string()))
}

impl Log {
    pub(super) fn new(store: Store, lifeform: &str, id: &CanvasId) -> Self {
        let name = format!("{lifeform}/{id}");
        Self { store, stream: format!("canvas:{name}").into(), key: Key::new(Rows::Canvas, name) }
    }

    /// Returns the key of an attachment's row.
    pub(super) fn attachment(&self, hash: &str) -> Key {
        Key::new(Rows::Attachment, format!("{}/{hash}", self.key.1))
    }

    /// Returns the batch that creates the canvas.
    pub(super) fn birth(&self, kind: &Kind, title: &str, origin: &Origin) -> Batch {
        let epoch = uuid::Uuid::new_v4().simple().to_string()[..8].into();
        let made_at = self.store.clock().now();
        let head = Head {
            kind: kind.clone(),
            title: title.to_owned(),
            epoch,
            rev: 0,
            floor: 0,
            by: Some(origin.principal.id.clone()),
            made_at,
            state: None,
        };
        Batch::new(origin).create(self.key.clone(), &head)
    }

    pub(super) async fn head(&self) -> Result<Option<Head>, StoreError> {
        Ok(self.store.document::<Head>(&self.key).await?.map(|found| found.value))
    }

    /// Loads the canvas from its rows and the journal after them; returns `None` if it does not exist.
    pub(super) async fn load(&self) -> Result<Option<Loaded>, StoreError> {
        let Some(mut head) = self.head().await? else { return Ok(None) };
        let mut state = head.kind.empty();
        let mut stale = BTreeSet::new();
        if let Some(whole) = head.state.take() {
            stale.extend(state.restore_whole(whole).map_err(corrupt)?);
            // The journal in the older format has no inverse patches, so earlier revisions cannot be restored.
            head.floor = self.store.head(&self.stream).await?;
        }
        // The revision of each row that is ahead of the head.
        let mut ahead: HashMap<Arc<str>, u64> = HashMap::new();
        let prefix = format!("{}/", self.key.1);
        let mut after = prefix.clone();
        loop {
            let page = self.store.documents::<Row>(Rows::Entity, &after, PAGE).await?;
            let rows = page.len();
            let of_this = page.into_iter().take_while(|(name, _)| name.starts_with(&prefix));
            let mut seen = 0;
            for (name, row) in of_this {
                seen += 1;
                let path = &name[prefix.len() - 1..];
                if row.value.rev > head.rev {
                    ahead.insert(path.into(), row.value.rev);
                }
                if let Some(entity) = row.value.entity {
                    state.restore(path, entity);
                }
                after = name.to_string();
            }
            if seen < rows || rows < PAGE {
                break;
            }
        }
        let mut done = Done { unread: head.rev, ..Done::default() };
        let Tail { rev, ring, stale: changed, purged } =
            self.tail(&head.kind, head.rev, &mut state, &ahead, &mut done).await?;
        stale.extend(changed);
        // Tombstones ahead of the head are removed with the next write of rows.
        stale.extend(ahead.into_keys());
        Ok(Some(Loaded { head, rev, state, ring, stale, done, purged }))
    }

    /// Reads the journal after revision `rev`, to which `state` belongs, and applies each entry unless the row is
    /// `ahead` of it.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if a revision is missing or does not apply.
    pub(super) async fn tail(
        &self,
        kind: &Kind,
        mut rev: u64,
        state: &mut State,
        ahead: &HashMap<Arc<str>, u64>,
        done: &mut Done,
    ) -> Result<Tail, StoreError> {
        let (mut ring, mut stale, mut purged) = (Ring::default(), BTreeSet::new(), None);
        loop {
            let page = self.store.entries(&self.stream, rev, usize::MAX).await?;
            if page.is_empty() {
                return Ok(Tail { rev, ring, stale, purged });
            }
            for entry in page {
                if entry.seq != rev + 1 {
                    return Err(StoreError::Corrupt(format!("{}: revision {} is missing", self.stream, rev + 1)));
                }
                let delta: Delta = entry.decode()?;
                let is_due = |path: &str| ahead.get(path).is_none_or(|written| *written < entry.seq);
                stale.extend(state.apply_where(&delta.patch, is_due).map_err(corrupt)?.paths);
                rev = entry.seq;
                if kind.rules().purge() == Some(&*entry.kind) {
                    purged = Some(rev - 1);
                }
                done.note(&entry, &delta);
                ring.push(frame(&entry, &delta));
            }
        }
    }

    /// Reads the idempotency keys of entries before the last write of rows. Only writers with idempotency keys need
    /// them.
    pub(super) async fn remember(&self, head: &Head, done: &mut Done) -> Result<(), StoreError> {
        let upto = done.unread;
        if upto == 0 {
            return Ok(());
        }
        let mut after = head.floor.max(upto.saturating_sub(DONE_MAX as u64));
        let mut earlier = Done::default();
        while after < upto {
            let page = self.store.entries(&self.stream, after, usize::MAX).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for entry in page.iter().filter(|entry| entry.seq <= upto) {
                earlier.note(entry, &entry.decode()?);
            }
        }
        // The writes that are already in memory are newer.
        earlier.order.append(&mut done.order);
        earlier.known.extend(done.known.drain());
        *done = earlier;
        Ok(())
    }

    /// Writes the rows of changed entities and then the head, and returns the head. Cuts the log at `floor`.
    pub(super) async fn keep(
        &self,
        head: &Head,
        state: &State,
        rev: u64,
        stale: &BTreeSet<Arc<str>>,
        floor: u64,
    ) -> Result<Head, StoreError> {
        let origin = Origin::system("canvas snapshot");
        let name = |path: &str| Key::new(Rows::Entity, format!("{}{path}", self.key.1));
        let (mut batch, mut bytes, mut gone) = (Batch::new(&origin), 0, Vec::new());
        for path in stale {
            let row = Row { rev, entity: state.get(path).cloned() };
            if row.entity.is_none() {
                gone.push(name(path));
            }
            bytes += row.entity.as_ref().map_or(64, |entity| entity.to_string().len());
            batch = batch.put(name(path), &row);
            if bytes >= CHUNK_BYTES || batch.ops.len() >= CHUNK_ROWS {
                self.store.commit(std::mem::replace(&mut batch, Batch::new(&origin))).await?;
                bytes = 0;
            }
        }
        let kept = Head { rev, floor, ..head.clone() };
        batch = batch.put(self.key.clone(), &kept);
        batch = gone.into_iter().fold(batch, |batch, key| batch.delete(key, Expect::Any));
        if floor > head.floor {
            batch = batch.trim(self.stream.clone(), floor);
        }
        self.store.commit(batch).await.map(|_| kept)
    }

    /// Returns the revision up to which the log may be cut: the entries that exceed both retention limits. `known`
    /// caches the last checked revision and its time, so that it is not read again at each write of rows.
    pub(super) async fn floor(
        &self,
        head: &Head,
        rev: u64,
        limits: &Limits,
        known: &mut Option<(u64, Timestamp)>,
    ) -> Result<u64, StoreError> {
        let kept = Duration::from_secs(limits.keep_days.saturating_mul(86_400));
        let oldest = self.store.clock().now().checked_sub(kept).unwrap_or(Timestamp::MIN);
        let mut floor = head.floor;
        for _ in 0..CUTS_AT_ONCE {
            let next = floor + CUT;
            if next > rev.saturating_sub(limits.keep_ops) {
                break;
            }
            if known.is_none_or(|(known, _)| known != next) {
                let last = self.store.entries(&self.stream, next - 1, 1).await?;
                *known = last.first().map(|entry| (next, entry.at));
            }
            if known.is_none_or(|(_, at)| at >= oldest) {
                break;
            }
            floor = next;
        }
        Ok(floor)
    }

    /// Returns the state at an earlier revision, by applying the inverse patches of all later entries.
    pub(super) async fn at(&self, mut state: State, now: u64, rev: u64) -> Result<State, StoreError> {
        let mut upto = now;
        while upto > rev {
            let from = rev.max(upto.saturating_sub(BACK));
            let page = self.store.entries(&self.stream, from, (upto - from) as usize).await?;
            if page.first().map(|entry| entry.seq) != Some(from + 1) || page.last().map(|entry| entry.seq) != Some(upto)
            {
                return Err(corrupt("its log has a gap"));
            }
            for entry in page.iter().rev() {
                state.apply(&entry.decode::<Delta>()?.inverse).map_err(corrupt)?;
            }
            upto = from;
            tokio::task::yield_now().await;
        }
        Ok(state)
    }

    /// Reads the frames after `after` up to `rev` from the journal; returns none if the log no longer contains the next
    /// one.
    pub(super) async fn frames(&self, after: u64, rev: u64) -> Result<Vec<Frame>, StoreError> {
        let mut frames: Vec<Frame> = Vec::new();
        let mut bytes = 0;
        for entry in self.store.entries(&self.stream, after, usize::MAX).await? {
            // Entries that are committed but not published are not sent. A cut leaves a gap.
            if entry.seq > rev || bytes > FRAMES_BYTES || entry.seq != after + 1 + frames.len() as u64 {
                break;
            }
            let delta: Delta = entry.decode()?;
            let frame = frame(&entry, &delta);
            bytes += frame.text.len();
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// Returns the value at `path` before an entry; `None` if the entry did not change it.
pub(crate) fn undone(entry: &Entry, path: &str) -> Option<Value> {
    let delta: Delta = entry.decode().ok()?;
    delta.inverse.0.iter().find_map(|op| match op {
        PatchOperation::Add(AddOperation { path: at, value })
        | PatchOperation::Replace(ReplaceOperation { path: at, value })
            if at.as_str() == path =>
        {
            Some(value.clone())
        }
        _ => None,
    })
}

impl Op {
    /// Returns the op of a journal entry.
    pub(crate) fn of_entry(kind: &Kind, entry: &Entry) -> Option<Self> {
        let delta: Delta = entry.decode().ok()?;
        kind.read(delta.op).ok()
    }
}
