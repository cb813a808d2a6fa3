//! The stored form of a canvas, and its recovery: its head, its entities at some revisions, and the journal of all ops
//! since. The frames of subscribers are made from the same entries.
//!
//! An entity's row has the revision at which it was written. Rows are written piece by piece and the head last, so a
//! crash in between leaves some rows ahead of the head; the journal's entries of those are skipped.

mod ring;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Batch, Entry, Expect, Key, Kind as Rows, Origin, PrincipalId, Store, StoreError, Stream, Timestamp};

use super::chat::PURGE;
use super::{CanvasId, Kind, Limits, Op, State};
pub(super) use ring::{Delta, Ring, frame};
pub use ring::{Frame, Frames};

/// The head of a canvas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The kind.
    #[serde(default)]
    pub kind: Kind,
    /// The title.
    #[serde(default)]
    pub title: String,
    /// Names this log; another epoch can never be resumed.
    pub epoch: Arc<str>,
    /// The revision at which all entities were written last.
    pub rev: u64,
    /// The revision before the first one that the log still holds.
    #[serde(default)]
    pub floor: u64,
    /// The creator; `None` for canvases that are older than this member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<PrincipalId>,
    /// The time of creation.
    #[serde(default)]
    pub made_at: Timestamp,
    /// The whole state, as canvases were kept before their entities had rows.
    #[serde(default, skip_serializing)]
    state: Option<Value>,
}

/// The row of an entity: as it stood at a revision, or that it was gone then.
#[derive(Serialize, Deserialize)]
struct Row {
    rev: u64,
    entity: Option<Value>,
}

/// Frames kept in memory for subscribers; older ones are read from the journal.
const RING_MAX: usize = 1024;
/// Bytes of them.
const RING_BYTES_MAX: usize = 1 << 20;
/// Bytes of one page of frames.
pub(super) const FRAMES_BYTES: usize = 256 << 10;
/// Bytes of rows in one commit.
const CHUNK_BYTES: usize = 1 << 20;
/// Rows in one commit, so that others get a turn.
const CHUNK_ROWS: usize = 128;
/// Rows read at once.
const PAGE: usize = 512;
/// Ops by which a log is cut, and how often at once.
const CUT: u64 = 1_000;
const CUTS_AT_ONCE: usize = 16;
/// Entries that are taken back at once.
const BACK: u64 = 256;

/// The place of a canvas in the store.
#[derive(Clone)]
pub(super) struct Log {
    pub(super) store: Store,
    pub(super) key: Key,
    pub(super) stream: Stream,
}

/// A canvas as it was found.
pub(super) struct Loaded {
    pub(super) head: Head,
    pub(super) rev: u64,
    pub(super) state: State,
    pub(super) ring: Ring,
    /// The entities that changed since their rows were written.
    pub(super) stale: BTreeSet<Arc<str>>,
    /// The writes by their ids.
    pub(super) done: Done,
    /// The revision up to which the log is still to be cut, since something was taken away for good after it.
    pub(super) purged: Option<u64>,
}

/// The part of a journal after a revision.
pub(super) struct Tail {
    pub(super) rev: u64,
    pub(super) ring: Ring,
    /// The entities that it changed.
    pub(super) stale: BTreeSet<Arc<str>>,
    /// See [`Loaded::purged`].
    pub(super) purged: Option<u64>,
}

/// Ops that are known by their ids; what was done longer ago under one would be done again.
const DONE_MAX: usize = 20_000;

/// The recent writes by their ids, so that each is done once. The journal is the record.
#[derive(Default)]
pub(super) struct Done {
    known: HashMap<(PrincipalId, Arc<str>), Once>,
    order: VecDeque<(PrincipalId, Arc<str>)>,
    /// The revision up to which nobody has looked yet.
    unread: u64,
}

/// A write under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Once {
    /// The revision of its last op.
    pub(super) rev: u64,
    /// The number of its ops.
    pub(super) ops: u64,
    /// The hash of its request.
    pub(super) asked: Arc<str>,
}

impl Done {
    /// Takes note of an entry of the journal.
    fn note(&mut self, entry: &Entry, delta: &Delta) {
        let (Some(id), Some(asked)) = (&delta.op_id, &delta.asked) else { return };
        let name = (entry.by.clone(), id.clone());
        let once = self.known.entry(name.clone()).or_insert_with(|| {
            self.order.push_back(name);
            Once { rev: entry.seq, ops: 0, asked: asked.clone() }
        });
        // The ops of one write follow each other.
        (once.rev, once.ops) = (once.rev.max(entry.seq), once.ops + 1);
    }

    /// Takes note of what was just done.
    pub(super) fn add(&mut self, who: &PrincipalId, id: &Arc<str>, once: Once) {
        self.order.push_back((who.clone(), id.clone()));
        self.known.insert((who.clone(), id.clone()), once);
        while self.order.len() > DONE_MAX {
            self.order.pop_front().map(|oldest| self.known.remove(&oldest));
        }
    }

    /// Takes note of what was read again.
    pub(super) fn extend(&mut self, mut read: Self) {
        for (who, id) in read.order {
            if let Some(once) = read.known.remove(&(who.clone(), id.clone()))
                && !self.known.contains_key(&(who.clone(), id.clone()))
            {
                self.add(&who, &id, once);
            }
        }
    }

    /// Returns the write under an id.
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

    /// The row of an attachment.
    pub(super) fn attachment(&self, hash: &str) -> Key {
        Key::new(Rows::Attachment, format!("{}/{hash}", self.key.1))
    }

    /// The batch that makes the canvas.
    pub(super) fn birth(&self, kind: Kind, title: &str, origin: &Origin) -> Batch {
        let epoch = uuid::Uuid::new_v4().simple().to_string()[..8].into();
        let made_at = self.store.clock().now();
        let head = Head {
            kind,
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

    /// The canvas as its rows and the journal after them have it; `None` when nobody made it.
    pub(super) async fn load(&self) -> Result<Option<Loaded>, StoreError> {
        let Some(mut head) = self.head().await? else { return Ok(None) };
        let mut state = head.kind.empty();
        let mut stale = BTreeSet::new();
        if let Some(whole) = head.state.take() {
            stale.extend(state.restore_whole(whole).map_err(corrupt)?);
            // Its journal has nothing to look back by.
            head.floor = self.store.head(&self.stream).await?;
        }
        // Of which revision each row is that is ahead of the head.
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
        let Tail { rev, ring, stale: changed, purged } = self.tail(head.rev, &mut state, &ahead, &mut done).await?;
        stale.extend(changed);
        // A tombstone whose head was not written yet is taken away with the next one.
        stale.extend(ahead.into_keys());
        Ok(Some(Loaded { head, rev, state, ring, stale, done, purged }))
    }

    /// Reads what follows revision `rev`, of which `state` is, and applies it where no row is `ahead` of it.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when a revision is missing or does not fit.
    pub(super) async fn tail(
        &self,
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
                if &*entry.kind == PURGE {
                    purged = Some(rev - 1);
                }
                done.note(&entry, &delta);
                ring.push(frame(&entry, &delta));
            }
        }
    }

    /// Reads the writes before the rows were written, which matter only to writers that use ids.
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
        // What is known already is newer.
        earlier.order.append(&mut done.order);
        earlier.known.extend(done.known.drain());
        *done = earlier;
        Ok(())
    }

    /// Writes the rows of what changed and then the head, which it answers; the log is cut at `floor`.
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

    /// Returns the revision up to which the log may be cut: what is older than both bounds. `known` is the last
    /// revision that was looked at, and its time: it is not read again each time that rows are written.
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

    /// The state at an earlier revision, by taking back what was done since.
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

    /// Frames after `after` up to `rev`, from the journal; none when it holds the next one no more.
    pub(super) async fn frames(&self, after: u64, rev: u64) -> Result<Vec<Frame>, StoreError> {
        let mut frames: Vec<Frame> = Vec::new();
        let mut bytes = 0;
        for entry in self.store.entries(&self.stream, after, usize::MAX).await? {
            // What is committed and not published yet is nobody's business; and what was cut leaves a gap.
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

/// Returns the value at `path`, or above it, before an entry.
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
    /// The op of a journal entry.
    pub(crate) fn of_entry(kind: Kind, entry: &Entry) -> Option<Self> {
        let delta: Delta = entry.decode().ok()?;
        kind.read(delta.op).ok()
    }
}
