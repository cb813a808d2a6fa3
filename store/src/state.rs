//! The store's in-memory state: everything committed that no checkpoint holds yet, and a cache of the versions and
//! accounts that the committer needed recently.

mod judging;
mod projecting;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{broadcast, watch};

use super::Committed;
use super::StoreError;
use super::backend::Backend;
use super::batch::{Entry, Hash, Key, Kind, Op, Stream, Versioned};
use super::frame::Frame;
use crate::clock::Timestamp;
use crate::ledger::{Account, AccountOp};
use crate::principal::{Cause, Origin};
use judging::next_account;
pub(super) use judging::{Unknown, ask};

/// The cost of a row for a checkpoint, in addition to its own bytes.
pub(super) const ROW_BYTES: usize = 512;
/// The cost of a journal entry, in addition to its own bytes. Entries are packed into rows.
const ENTRY_BYTES: usize = 128;
/// The cost of an account, in bytes.
const ACCOUNT_BYTES: usize = 2_048;
/// The maximum number of clean documents in the cache; beyond it, all clean documents are evicted.
const CLEAN_MAX: usize = 16_384;
/// The same bound in bytes.
const CLEAN_BYTES_MAX: usize = 64 << 20;
/// The maximum number of entries that wait for a follower of all journals; of more, it learns the number that it missed.
const TAP_MAX: usize = 16_384;
/// The maximum number of cached accounts; beyond it, the clean ones are evicted. Each heartbeat of a lifeform reads
/// an account.
const ACCOUNTS_MAX: usize = if cfg!(test) { 8 } else { 65_536 };

#[derive(Clone)]
struct Document {
    /// The version; 0 means that the document does not exist.
    version: u64,
    body: Option<Bytes>,
    /// The log row of the last change; 0 when a checkpoint holds it.
    row: u64,
    /// `true` if the checkpoint holds a document of this name.
    stored: bool,
    /// The value that `stored` takes if the running checkpoint succeeds; `None` if that checkpoint does not write
    /// this document.
    storing: Option<bool>,
}

#[derive(Default)]
struct Journal {
    head: u64,
    /// Entries that no checkpoint holds, each with its log row. A running checkpoint shares them.
    fresh: VecDeque<(u64, Arc<Entry>)>,
    /// The log row that removed the checkpointed entries of the stream; 0 when none did.
    forgotten: u64,
    /// The last entry that checkpoints need not keep, and the log row of that trim; 0 when there was none.
    trimmed: (u64, u64),
}

impl Document {
    /// Returns the document's cost for the next checkpoint, which begins after row `projecting`.
    fn cost(&self, projecting: u64) -> usize {
        if self.row > projecting { ROW_BYTES + self.body.as_ref().map_or(0, Bytes::len) } else { 0 }
    }
}

/// The elements of one graph that no checkpoint holds, each with its log row; `None` is a removal.
type Elements = BTreeMap<u64, (Option<Bytes>, u64)>;

/// The in-memory state; see the module documentation.
pub(super) struct State {
    documents: BTreeMap<Key, Document>,
    journals: HashMap<Stream, Journal>,
    /// Accounts with the log row of their last change, 0 when a checkpoint holds it. `None` means that the account
    /// was never opened.
    accounts: BTreeMap<Arc<str>, (Option<Account>, u64)>,
    /// The number of evictions of accounts.
    accounts_forgotten: u64,
    elements: HashMap<Arc<str>, Elements>,
    payloads: HashMap<Hash, (Bytes, u64)>,
    /// Hashes of payloads that are known to be stored, so that a prompt is not written again with every call.
    kept: HashSet<Hash>,
    watchers: HashMap<Stream, watch::Sender<u64>>,
    /// The sender of each appended entry, of all journals.
    pub(super) tap: broadcast::Sender<Committed>,
    /// The last row of the log.
    pub(super) row: u64,
    /// The last row that the checkpoint covers.
    pub(super) checkpoint: u64,
    /// The last row that the previous or the running checkpoint covers.
    projecting: u64,
    /// The approximate number of bytes that the next checkpoint has to write.
    pub(super) dirty_bytes: usize,
    /// The size in bytes of the log since the previous checkpoint. A document that is written a thousand times counts
    /// a thousand times.
    pub(super) logged_bytes: usize,
    /// The part of `logged_bytes` that the running checkpoint covers. It counts again if the checkpoint fails.
    projecting_bytes: usize,
    /// The bytes of documents that became clean since the last eviction.
    clean_bytes: usize,
    /// `true` if a checkpoint failed, so that it is unknown which of its rows exist.
    outcome_unknown: bool,
    /// The maximum numbers of documents, journals and accounts in the cache before clean ones are evicted.
    bounds: [usize; 3],
}

/// The effects of one row in flight: visible to the batches after it, but not to readers yet.
#[derive(Default)]
pub(super) struct Staged {
    documents: HashMap<Key, (u64, Option<Bytes>)>,
    heads: HashMap<Stream, u64>,
    accounts: HashMap<Arc<str>, Account>,
}

impl State {
    pub(super) fn new(checkpoint: u64) -> Self {
        Self {
            documents: BTreeMap::new(),
            journals: HashMap::new(),
            accounts: BTreeMap::new(),
            accounts_forgotten: 0,
            elements: HashMap::new(),
            payloads: HashMap::new(),
            kept: HashSet::new(),
            watchers: HashMap::new(),
            tap: broadcast::Sender::new(TAP_MAX),
            row: checkpoint,
            checkpoint,
            projecting: checkpoint,
            projecting_bytes: 0,
            dirty_bytes: 0,
            logged_bytes: 0,
            outcome_unknown: false,
            clean_bytes: 0,
            bounds: [CLEAN_MAX, CLEAN_MAX, ACCOUNTS_MAX],
        }
    }

    // ---- reads: `None` means "ask the backend" ----

    #[expect(clippy::option_option, reason = "outer: known here; inner: exists")]
    pub(super) fn document(&self, key: &Key) -> Option<Option<Versioned<Bytes>>> {
        let known = self.documents.get(key)?;
        Some(known.body.clone().map(|value| Versioned { version: known.version, value }))
    }

    /// Returns the documents of a kind in memory after `after`, in order: `None` for a deleted one. It ends with the
    /// `limit`th that is not deleted.
    pub(super) fn documents(&self, kind: Kind, after: &str, limit: usize) -> Vec<(Arc<str>, Option<Versioned<Bytes>>)> {
        let from = (std::ops::Bound::Excluded(Key::new(kind, after)), std::ops::Bound::Unbounded);
        let of_kind = self.documents.range(from).take_while(|(key, _)| key.0 == kind);
        let mut present = 0;
        let until_full = of_kind.take_while(|(_, known)| {
            let is_full = present >= limit;
            present += usize::from(known.body.is_some());
            !is_full
        });
        until_full
            .map(|(key, known)| {
                (key.1.clone(), known.body.clone().map(|value| Versioned { version: known.version, value }))
            })
            .collect()
    }

    /// Returns the number of the first entry in memory, and the entries after `after` from that one on.
    pub(super) fn entries(&self, stream: &Stream, after: u64, limit: usize) -> (Option<u64>, Vec<Entry>) {
        let Some(journal) = self.journals.get(stream) else { return (None, Vec::new()) };
        if journal.forgotten > 0 {
            // The stream was removed: any entries that the backend still holds no longer count.
            let fresh = journal.fresh.iter().filter(|(_, entry)| entry.seq > after);
            let fresh = fresh.take(limit).map(|(_, entry)| Entry::clone(entry));
            return (Some(after.saturating_add(1)), fresh.collect());
        }
        let Some((_, first)) = journal.fresh.front() else {
            // Every entry is checkpointed. A reader at the head needs no query for that.
            return if after >= journal.head {
                (Some(after.saturating_add(1)), Vec::new())
            } else {
                (None, Vec::new())
            };
        };
        let first = first.seq;
        let skip = after.saturating_add(1).saturating_sub(first) as usize;
        (Some(first), journal.fresh.iter().skip(skip).take(limit).map(|(_, entry)| Entry::clone(entry)).collect())
    }

    pub(super) fn head(&self, stream: &Stream) -> Option<u64> {
        self.journals.get(stream).map(|journal| journal.head)
    }

    #[expect(clippy::option_option, reason = "outer: known here; inner: exists")]
    pub(super) fn account(&self, name: &str) -> Option<Option<Account>> {
        self.accounts.get(name).map(|(account, _)| account.clone())
    }

    /// Returns the number of evictions of accounts; see [`State::learn_account`].
    pub(super) fn accounts_forgotten(&self) -> u64 {
        self.accounts_forgotten
    }

    /// Caches an account that a reader read from the backend, and returns the current value. If the account was
    /// changed meanwhile, the cached value is newer and wins. If accounts were evicted meanwhile (`forgotten`), the
    /// read value may be outdated: it is returned but not cached.
    pub(super) fn learn_account(&mut self, name: &str, asked: Option<Account>, forgotten: u64) -> Option<Account> {
        match self.accounts.get(name) {
            Some((known, _)) => known.clone(),
            None => {
                if self.accounts_forgotten == forgotten && self.accounts.len() < self.bounds[2] {
                    self.accounts.insert(name.into(), (asked.clone(), 0));
                }
                asked
            }
        }
    }

    pub(super) fn payload(&self, hash: &Hash) -> Option<Bytes> {
        self.payloads.get(hash).map(|(body, _)| body.clone())
    }

    /// Returns the elements of a graph in a range of numbers that no checkpoint holds yet.
    pub(super) fn elements(&self, nexus: &str, range: std::ops::Range<u64>) -> Vec<(u64, Option<Bytes>)> {
        let fresh = self.elements.get(nexus).into_iter().flat_map(|fresh| fresh.range(range.clone()));
        fresh.map(|(no, (body, _))| (*no, body.clone())).collect()
    }

    pub(super) fn watch(&mut self, stream: &Stream) -> watch::Receiver<u64> {
        self.watchers.entry(stream.clone()).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    // ---- data that the committer needs before it validates a batch ----

    /// Removes the bytes of payloads that are stored already.
    pub(super) fn strip_kept(&self, ops: &mut [Op]) {
        for op in ops {
            if let Op::Payload { hash, body } = op
                && self.kept.contains(hash)
            {
                *body = Bytes::new();
            }
        }
    }

    /// Fetches everything that `ops` touch from the backend. Used during replay, when there is no other writer.
    pub(super) async fn warm(&mut self, backend: &dyn Backend, ops: &[Op]) -> Result<(), StoreError> {
        let known = ask(backend, self.unknown(ops)).await?;
        self.learn(known);
        Ok(())
    }

    // ---- validating and applying ----

    /// Applies a frame that is durable in row `n`.
    pub(super) fn replay(&mut self, n: u64, frame: &Frame) {
        self.row = self.row.max(n);
        let projecting = self.projecting;
        for op in frame.ops.iter() {
            self.dirty_bytes += cost(op, &frame.cause);
            match op {
                Op::Put { key, body, .. } => {
                    let known = self.known(key);
                    // A value that is overwritten before a checkpoint costs that checkpoint nothing.
                    let before = known.cost(projecting);
                    (known.version, known.body, known.row) = (known.version + 1, Some(body.clone()), n);
                    self.spare(before);
                }
                Op::Delete { key, .. } => {
                    let known = self.known(key);
                    let before = known.cost(projecting);
                    (known.version, known.body, known.row) = (0, None, n);
                    self.spare(before);
                }
                Op::Append { stream, kind, data, .. } => self.push(n, frame, stream, kind.clone(), data.clone()),
                Op::Account { account, op, memo } => self.replay_account(n, frame, account, op, memo),
                Op::Restore { stream, entries } => {
                    let journal = self.journals.entry(stream.clone()).or_default();
                    journal.head = entries.last().map_or(journal.head, |last| last.seq);
                    journal.fresh.extend(entries.iter().map(|entry| (n, Arc::new(entry.clone()))));
                }
                Op::Forget { stream } => {
                    let gone = Journal { forgotten: n, ..Journal::default() };
                    self.journals.insert(stream.clone(), gone);
                }
                Op::Trim { stream, upto } => {
                    let journal = self.journals.entry(stream.clone()).or_default();
                    journal.trimmed = (journal.trimmed.0.max(*upto), n);
                }
                Op::Elements { nexus, rows } => {
                    let fresh = self.elements.entry(nexus.clone()).or_default();
                    for (no, body) in rows {
                        fresh.insert(*no, (body.clone(), n));
                    }
                }
                // An earlier row stored the payload.
                Op::Payload { body, .. } if body.is_empty() => {}
                Op::Payload { hash, body } => {
                    self.kept.insert(*hash);
                    self.payloads.insert(*hash, (body.clone(), n));
                }
            }
        }
    }

    /// Applies a change of an account, and appends its line to the ledger.
    fn replay_account(&mut self, n: u64, frame: &Frame, account: &Arc<str>, op: &AccountOp, memo: &str) {
        let known = self.accounts.get(account).and_then(|(account, _)| account.as_ref());
        let before = known.map(|account| account.released).unwrap_or_default();
        // The batch was validated before it was written, so this cannot fail.
        let Ok(changed) = next_account(account, known, op, frame.at) else { return };
        let mut line = serde_json::json!({"op": op, "memo": memo, "balance": changed.balance, "held": changed.held()});
        // Automatic income since the previous line belongs to this line.
        if changed.released != before {
            line["released"] = serde_json::json!(changed.released.minus(before));
        }
        let line = super::json(&line);
        let before = self.accounts.insert(account.clone(), (Some(changed), n));
        if before.is_some_and(|(_, row)| row > self.projecting) {
            self.spare(ACCOUNT_BYTES);
        }
        self.push(n, frame, &ledger_stream(account), "transaction".into(), line);
    }

    /// Returns a document that validation has read, so it is in memory.
    fn known(&mut self, key: &Key) -> &mut Document {
        debug_assert!(self.documents.contains_key(key), "{key} was changed without a look at it");
        self.documents.entry(key.clone()).or_insert_with(|| {
            self.outcome_unknown = true;
            Document { version: 0, body: None, row: 0, stored: true, storing: None }
        })
    }

    fn push(&mut self, n: u64, frame: &Frame, stream: &Stream, kind: Arc<str>, data: Bytes) {
        let journal = self.journals.entry(stream.clone()).or_default();
        let is_packed = journal.fresh.back().is_some_and(|(row, _)| *row > self.projecting);
        journal.head += 1;
        let entry =
            Entry { seq: journal.head, at: frame.at, by: frame.by.clone(), cause: frame.cause.clone(), kind, data };
        let entry = Arc::new(entry);
        journal.fresh.push_back((n, entry.clone()));
        if self.tap.receiver_count() > 0 {
            let _ = self.tap.send(Committed { stream: stream.clone(), entry });
        }
        if is_packed {
            self.spare(ROW_BYTES);
        }
    }

    /// Subtracts counted bytes that the checkpoint need not write.
    fn spare(&mut self, bytes: usize) {
        self.dirty_bytes -= bytes.min(self.dirty_bytes);
    }

    /// Wakes the subscribers of the streams to which `frames` appended.
    pub(super) fn wake(&self, frames: &[Frame]) {
        for op in frames.iter().flat_map(|frame| frame.ops.iter()) {
            let stream = match op {
                Op::Append { stream, .. } | Op::Restore { stream, .. } => stream.clone(),
                Op::Account { account, .. } => ledger_stream(account),
                _ => continue,
            };
            if let Some(watcher) = self.watchers.get(&stream) {
                let _ = watcher.send(self.journals.get(&stream).map_or(0, |journal| journal.head));
            }
        }
    }

    // ---- checkpoints ----

    /// Drops all watchers, so that subscribers end.
    pub(super) fn close(&mut self) {
        self.watchers.clear();
        self.tap = broadcast::Sender::new(1);
    }
}

/// Returns an upper bound of a change's cost for a checkpoint. Overwritten documents and packed entries cost less.
pub(super) fn cost(op: &Op, cause: &Cause) -> usize {
    let entry = |data: &Bytes, cause: &Cause| ENTRY_BYTES + data.len() + weight(cause);
    let element = |body: &Option<Bytes>| 16 + body.as_ref().map_or(0, Bytes::len);
    match op {
        Op::Put { body, .. } => ROW_BYTES + body.len(),
        Op::Append { data, .. } => ROW_BYTES + entry(data, cause),
        Op::Account { memo, .. } => ACCOUNT_BYTES + ROW_BYTES + 2 * ENTRY_BYTES + memo.len() + weight(cause),
        Op::Elements { rows, .. } => rows.iter().map(|(_, body)| element(body)).sum(),
        Op::Payload { body, .. } if body.is_empty() => 0,
        Op::Payload { body, .. } => ROW_BYTES + body.len(),
        Op::Restore { entries, .. } => {
            ROW_BYTES + entries.iter().map(|kept| entry(&kept.data, &kept.cause)).sum::<usize>()
        }
        Op::Delete { .. } | Op::Forget { .. } | Op::Trim { .. } => ROW_BYTES,
    }
}

/// Returns the cost of an entry's references, which may exceed the cost of its other contents.
fn weight(cause: &Cause) -> usize {
    cause.0.iter().map(|reference| reference.len() + 8).sum()
}

pub(super) fn ledger_stream(account: &str) -> Stream {
    format!("ledger:{account}").into()
}

/// Returns the frame of a batch that is committed at `at`.
pub(super) fn frame_of(at: Timestamp, origin: Origin, ops: Vec<Op>) -> Frame {
    Frame { at, by: origin.principal.id, cause: origin.cause, ops: ops.into() }
}
