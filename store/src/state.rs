//! The store's memory: everything committed that no checkpoint holds yet, and the versions and accounts that the
//! committer needed lately.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

use super::StoreError;
use super::backend::{Backend, Projected, Projection};
use super::batch::{Entry, Expect, Hash, Key, Kind, Op, Stream, Versioned};
use super::frame::Frame;
use crate::clock::Timestamp;
use crate::ledger::Account;
use crate::principal::{Cause, Origin};

/// The cost of a row for a checkpoint, besides its own bytes.
pub(super) const ROW_BYTES: usize = 512;
/// The cost of a journal entry, besides its own bytes: entries are packed into rows.
const ENTRY_BYTES: usize = 128;
/// The cost of an account.
const ACCOUNT_BYTES: usize = 2_048;
/// Clean documents kept for their versions before all of them are let go.
const CLEAN_MAX: usize = 16_384;
/// The same by their bytes.
const CLEAN_BYTES_MAX: usize = 64 << 20;
/// Accounts known before those that are projected are let go. Each beat of a lifeform looks at one.
const ACCOUNTS_MAX: usize = if cfg!(test) { 8 } else { 65_536 };

#[derive(Clone)]
struct Document {
    /// 0 is absent.
    version: u64,
    body: Option<Bytes>,
    /// The log row that changed it last; 0 when a projection holds it.
    row: u64,
    /// `true` if the checkpoint holds a document of this name.
    stored: bool,
    /// The value that `stored` takes if the checkpoint under way succeeds; `None` if that does not write this document.
    storing: Option<bool>,
}

#[derive(Default)]
struct Journal {
    head: u64,
    /// Entries no projection holds, each with its log row; a checkpoint shares them.
    fresh: VecDeque<(u64, Arc<Entry>)>,
    /// The log row that removed what projections hold of it; 0 when none did.
    forgotten: u64,
    /// The last entry that projections need not hold, and the log row that said so; 0 when none did.
    trimmed: (u64, u64),
}

impl Document {
    /// Returns its cost for the next checkpoint, which begins after row `projecting`.
    fn cost(&self, projecting: u64) -> usize {
        if self.row > projecting { ROW_BYTES + self.body.as_ref().map_or(0, Bytes::len) } else { 0 }
    }
}

/// Elements of one graph that no projection holds, each with its log row; `None` is a removal.
type Elements = BTreeMap<u64, (Option<Bytes>, u64)>;

/// See the module.
pub(super) struct State {
    documents: BTreeMap<Key, Document>,
    journals: HashMap<Stream, Journal>,
    /// Accounts with the log row that changed them last, 0 when a projection holds them; `None` was never opened.
    accounts: BTreeMap<Arc<str>, (Option<Account>, u64)>,
    /// The number of evictions of accounts.
    accounts_forgotten: u64,
    elements: HashMap<Arc<str>, Elements>,
    payloads: HashMap<Hash, (Bytes, u64)>,
    /// Payloads that are known to be kept, so that a prompt is not written again with every call.
    kept: HashSet<Hash>,
    watchers: HashMap<Stream, watch::Sender<u64>>,
    /// The last row of the log.
    pub(super) row: u64,
    /// The last row the projections cover.
    pub(super) checkpoint: u64,
    /// The last row that the checkpoint before, or the one under way, covers.
    projecting: u64,
    /// Bytes that the next checkpoint has to write, roughly.
    pub(super) dirty_bytes: usize,
    /// Bytes of the log since the checkpoint before: a document that is written a thousand times is in it a thousand
    /// times.
    pub(super) logged_bytes: usize,
    /// Bytes of documents that became clean since the clean ones were let go last.
    clean_bytes: usize,
    /// `true` if a checkpoint failed, so that its writes may exist or not.
    unsure: bool,
    /// The most documents, journals and accounts that may be known before clean ones are evicted.
    bounds: [usize; 3],
}

/// The objects that a checkpoint has written and nobody needs any more.
#[derive(Default)]
pub(super) struct Gone {
    entries: Vec<VecDeque<(u64, Arc<Entry>)>>,
    elements: Vec<Elements>,
    payloads: Vec<(Hash, (Bytes, u64))>,
}

/// The effects of one row under way: seen by the batches behind it, not yet by readers.
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
            row: checkpoint,
            checkpoint,
            projecting: checkpoint,
            dirty_bytes: 0,
            logged_bytes: 0,
            unsure: false,
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

    pub(super) fn documents(&self, kind: Kind, after: &str) -> Vec<(Arc<str>, Option<Versioned<Bytes>>)> {
        let from = (std::ops::Bound::Excluded(Key::new(kind, after)), std::ops::Bound::Unbounded);
        let of_kind = self.documents.range(from).take_while(|(key, _)| key.0 == kind);
        of_kind
            .map(|(key, known)| {
                (key.1.clone(), known.body.clone().map(|value| Versioned { version: known.version, value }))
            })
            .collect()
    }

    /// The first entry number held here, and the entries after `after` from there on.
    pub(super) fn entries(&self, stream: &Stream, after: u64, limit: usize) -> (Option<u64>, Vec<Entry>) {
        let Some(journal) = self.journals.get(stream) else { return (None, Vec::new()) };
        if journal.forgotten > 0 {
            // Whatever the backend still holds is no more.
            let fresh = journal.fresh.iter().filter(|(_, entry)| entry.seq > after);
            let fresh = fresh.take(limit).map(|(_, entry)| Entry::clone(entry));
            return (Some(after.saturating_add(1)), fresh.collect());
        }
        let Some((_, first)) = journal.fresh.front() else {
            // Everything is projected; a reader at the head needs no database for that.
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

    /// Notes an account that a reader `asked` the backend for, and answers it as it is known. One that was changed
    /// since is known, unless accounts were `forgotten` since, too: then what was asked is as it stood when it was
    /// asked, and nothing is noted.
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

    /// Elements of a graph in a range of numbers that no projection holds yet.
    pub(super) fn elements(&self, nexus: &str, range: std::ops::Range<u64>) -> Vec<(u64, Option<Bytes>)> {
        let fresh = self.elements.get(nexus).into_iter().flat_map(|fresh| fresh.range(range.clone()));
        fresh.map(|(no, (body, _))| (*no, body.clone())).collect()
    }

    pub(super) fn watch(&mut self, stream: &Stream) -> watch::Receiver<u64> {
        self.watchers.entry(stream.clone()).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    // ---- what the committer needs to know before it can judge a batch ----

    /// Returns the objects of `ops` that are not known here.
    pub(super) fn unknown(&self, ops: &[Op]) -> Unknown {
        let (mut keys, mut streams, mut accounts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for op in ops {
            match op {
                Op::Put { key, .. } | Op::Delete { key, .. } if !self.documents.contains_key(key) => {
                    keys.insert(key.clone());
                }
                Op::Append { stream, .. }
                | Op::Restore { stream, .. }
                | Op::Forget { stream }
                | Op::Trim { stream, .. }
                    if !self.journals.contains_key(stream) =>
                {
                    streams.insert(stream.clone());
                }
                Op::Account { account, .. } => {
                    let stream = ledger_stream(account);
                    if !self.journals.contains_key(&stream) {
                        streams.insert(stream);
                    }
                    if !self.accounts.contains_key(account) {
                        accounts.insert(account.clone());
                    }
                }
                _ => {}
            }
        }
        Unknown { keys, streams, accounts }
    }

    /// Notes what the backend answered about [`State::unknown`].
    pub(super) fn learn(&mut self, known: Known) {
        let Known { documents, heads, accounts } = known;
        for (name, account) in accounts {
            self.accounts.entry(name).or_insert((account, 0));
        }
        for (key, found) in documents {
            let (version, body) = found.map_or((0, None), |found| (found.version, Some(found.value)));
            let stored = body.is_some();
            self.clean_bytes += body.as_ref().map_or(0, Bytes::len);
            self.documents.entry(key).or_insert(Document { version, body, row: 0, stored, storing: None });
        }
        for (stream, head) in heads {
            self.journals.entry(stream).or_insert(Journal { head, ..Journal::default() });
        }
    }

    /// Takes the bytes out of payloads that are kept already.
    pub(super) fn strip_kept(&self, ops: &mut [Op]) {
        for op in ops {
            if let Op::Payload { hash, body } = op
                && self.kept.contains(hash)
            {
                *body = Bytes::new();
            }
        }
    }

    /// Asks the backend about everything `ops` touch; used while replaying, when nobody else writes.
    pub(super) async fn warm(&mut self, backend: &dyn Backend, ops: &[Op]) -> Result<(), StoreError> {
        let known = ask(backend, self.unknown(ops)).await?;
        self.learn(known);
        Ok(())
    }

    // ---- judging and applying ----

    /// Judges one batch against what is committed and what is staged before it. On success its
    /// effects are staged and its versions answered; on refusal nothing changed.
    pub(super) fn judge(&self, staged: &mut Staged, ops: &[Op], at: Timestamp) -> Result<Vec<u64>, StoreError> {
        let mut trial = Staged::default();
        let mut versions = Vec::with_capacity(ops.len());
        for op in ops {
            versions.push(self.judge_op(staged, &mut trial, op, at)?);
        }
        staged.documents.extend(trial.documents);
        staged.heads.extend(trial.heads);
        staged.accounts.extend(trial.accounts);
        Ok(versions)
    }

    fn judge_op(&self, staged: &Staged, trial: &mut Staged, op: &Op, at: Timestamp) -> Result<u64, StoreError> {
        let version_of = |trial: &Staged, key: &Key| {
            let pending = trial
                .documents
                .get(key)
                .or_else(|| staged.documents.get(key))
                .map(|(version, body)| if body.is_some() { *version } else { 0 });
            pending.unwrap_or_else(|| {
                self.documents.get(key).map_or(0, |known| if known.body.is_some() { known.version } else { 0 })
            })
        };
        let next_head = |trial: &Staged, stream: &Stream| {
            let pending = trial.heads.get(stream).or_else(|| staged.heads.get(stream)).copied();
            pending.unwrap_or_else(|| self.journals.get(stream).map_or(0, |journal| journal.head))
        };
        match op {
            Op::Put { key, expect, body } => {
                let found = version_of(trial, key);
                check(*expect, found, || key.to_string())?;
                trial.documents.insert(key.clone(), (found + 1, Some(body.clone())));
                Ok(found + 1)
            }
            Op::Delete { key, expect } => {
                check(*expect, version_of(trial, key), || key.to_string())?;
                trial.documents.insert(key.clone(), (0, None));
                Ok(0)
            }
            Op::Append { stream, expect, .. } => {
                let head = next_head(trial, stream);
                check(expect.map_or(Expect::Any, Expect::Version), head, || format!("stream {stream}"))?;
                trial.heads.insert(stream.clone(), head + 1);
                Ok(head + 1)
            }
            Op::Account { account, op, .. } => {
                let known = trial
                    .accounts
                    .get(account)
                    .or_else(|| staged.accounts.get(account))
                    .or_else(|| self.accounts.get(account)?.0.as_ref());
                let changed = next_account(account, known, op, at)?;
                let stream = ledger_stream(account);
                let head = next_head(trial, &stream);
                trial.heads.insert(stream, head + 1);
                trial.accounts.insert(account.clone(), changed);
                Ok(head + 1)
            }
            Op::Restore { stream, entries } => {
                let (Some(first), head) = (entries.first(), next_head(trial, stream)) else { return Ok(0) };
                let before = first.seq.saturating_sub(1);
                if head != 0 {
                    check(Expect::Version(before), head, || format!("stream {stream}"))?;
                }
                if let Some(gap) = entries.iter().zip(first.seq..).find(|(entry, seq)| entry.seq != *seq || *seq == 0) {
                    let why = format!("{stream}: entry {} stands where {} should", gap.0.seq, gap.1);
                    return Err(StoreError::Corrupt(why));
                }
                let head = before + entries.len() as u64;
                trial.heads.insert(stream.clone(), head);
                Ok(head)
            }
            Op::Forget { stream } => {
                trial.heads.insert(stream.clone(), 0);
                Ok(0)
            }
            Op::Elements { .. } | Op::Payload { .. } | Op::Trim { .. } => Ok(0),
        }
    }

    /// Applies a frame that is durable in row `n`.
    pub(super) fn replay(&mut self, n: u64, frame: &Frame) {
        self.row = self.row.max(n);
        let projecting = self.projecting;
        for op in frame.ops.iter() {
            self.dirty_bytes += cost(op, &frame.cause);
            match op {
                Op::Put { key, body, .. } => {
                    let known = self.known(key);
                    // What is written over before a checkpoint is not written by it.
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
                Op::Account { account, op, memo } => {
                    let known = self.accounts.get(account).and_then(|(account, _)| account.as_ref());
                    // The batch was judged before it was written, so this cannot refuse.
                    let before = known.map(|account| account.released).unwrap_or_default();
                    if let Ok(changed) = next_account(account, known, op, frame.at) {
                        let mut line = serde_json::json!({
                            "op": op,
                            "memo": memo,
                            "balance": changed.balance,
                            "held": changed.held(),
                        });
                        // What came by itself since the line before is part of this one.
                        if changed.released != before {
                            line["released"] = serde_json::json!(changed.released.minus(before));
                        }
                        let line = super::json(&line);
                        let before = self.accounts.insert(account.clone(), (Some(changed), n));
                        if before.is_some_and(|(_, row)| row > projecting) {
                            self.spare(ACCOUNT_BYTES);
                        }
                        self.push(n, frame, &ledger_stream(account), "transaction".into(), line);
                    }
                }
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
                // Kept by an earlier row.
                Op::Payload { body, .. } if body.is_empty() => {}
                Op::Payload { hash, body } => {
                    self.kept.insert(*hash);
                    self.payloads.insert(*hash, (body.clone(), n));
                }
            }
        }
    }

    /// A document that a change was judged by, and that is known therefore.
    fn known(&mut self, key: &Key) -> &mut Document {
        debug_assert!(self.documents.contains_key(key), "{key} was changed without a look at it");
        self.documents.entry(key.clone()).or_insert_with(|| {
            self.unsure = true;
            Document { version: 0, body: None, row: 0, stored: true, storing: None }
        })
    }

    fn push(&mut self, n: u64, frame: &Frame, stream: &Stream, kind: Arc<str>, data: Bytes) {
        let journal = self.journals.entry(stream.clone()).or_default();
        let is_packed = journal.fresh.back().is_some_and(|(row, _)| *row > self.projecting);
        journal.head += 1;
        let entry =
            Entry { seq: journal.head, at: frame.at, by: frame.by.clone(), cause: frame.cause.clone(), kind, data };
        journal.fresh.push_back((n, Arc::new(entry)));
        if is_packed {
            self.spare(ROW_BYTES);
        }
    }

    /// Takes back what was counted and is not written.
    fn spare(&mut self, bytes: usize) {
        self.dirty_bytes -= bytes.min(self.dirty_bytes);
    }

    /// Wakes the followers of the streams that `ops` appended to.
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

    // ---- projections ----

    /// Returns the contents of a checkpoint up to the present row.
    pub(super) fn projection(&mut self) -> Projection {
        self.projecting = self.row;
        self.logged_bytes = 0;
        let dirty_documents = self.documents.iter_mut().filter(|(_, known)| known.row > 0);
        let unsure = std::mem::take(&mut self.unsure);
        let documents = dirty_documents.filter_map(|(key, known)| {
            known.storing = Some(known.body.is_some());
            let document = known.body.clone().map(|value| Versioned { version: known.version, value });
            // What came and went between two checkpoints was never there.
            let is_nothing = document.is_none() && !known.stored && !unsure;
            (!is_nothing).then(|| Projected { key: key.clone(), document, stored: known.stored })
        });
        let documents = documents.collect();
        let (mut journals, mut forgotten, mut trimmed) = (Vec::new(), Vec::new(), Vec::new());
        for (stream, journal) in &self.journals {
            if !journal.fresh.is_empty() {
                // What was let go of before it was ever written is not written.
                let kept = journal.fresh.iter().filter(|(_, entry)| entry.seq > journal.trimmed.0);
                journals.push((stream.clone(), kept.map(|(_, entry)| entry.clone()).collect()));
            }
            if journal.forgotten > 0 {
                forgotten.push(stream.clone());
            }
            if journal.trimmed.1 > 0 {
                trimmed.push((stream.clone(), journal.trimmed.0));
            }
        }
        Projection {
            upto: self.row,
            documents,
            journals,
            forgotten,
            trimmed,
            accounts: self
                .accounts
                .iter()
                .filter(|(_, (_, row))| *row > 0)
                .filter_map(|(name, (account, _))| Some((name.clone(), account.clone()?)))
                .collect(),
            elements: self
                .elements
                .iter()
                .flat_map(|(nexus, fresh)| fresh.iter().map(|(no, (body, _))| (nexus.clone(), *no, body.clone())))
                .collect(),
            payloads: self.payloads.iter().map(|(hash, (body, _))| (*hash, body.clone())).collect(),
            unsure,
        }
    }

    /// Takes note that a projection failed, of which nobody knows what was written.
    pub(super) fn not_projected(&mut self, bytes: usize) {
        self.dirty_bytes += bytes;
        self.unsure = true;
    }

    /// Lets go of what the projection up to row `upto` holds. Answers it, so that nobody waits here until all of it is
    /// given back.
    #[must_use]
    pub(super) fn projected(&mut self, upto: u64) -> Gone {
        let mut gone = Gone::default();
        self.checkpoint = upto;
        for known in self.documents.values_mut() {
            known.stored = known.storing.take().unwrap_or(known.stored);
            if known.row > 0 && known.row <= upto {
                known.row = 0;
                self.clean_bytes += known.body.as_ref().map_or(0, Bytes::len);
            }
        }
        for journal in self.journals.values_mut() {
            let written = journal.fresh.partition_point(|(row, _)| *row <= upto);
            if written > 0 {
                let rest = journal.fresh.split_off(written);
                gone.entries.push(std::mem::replace(&mut journal.fresh, rest));
            }
            if journal.forgotten <= upto {
                journal.forgotten = 0;
            }
            if journal.trimmed.1 <= upto {
                journal.trimmed = (0, 0);
            }
        }
        self.watchers.retain(|_, watcher| watcher.receiver_count() > 0);
        for (_, row) in self.accounts.values_mut().filter(|(_, row)| *row <= upto) {
            *row = 0;
        }
        self.elements.retain(|_, fresh| {
            if fresh.values().all(|(_, row)| *row <= upto) {
                gone.elements.push(std::mem::take(fresh));
            } else {
                fresh.retain(|_, (_, row)| *row > upto);
            }
            !fresh.is_empty()
        });
        gone.payloads.extend(self.payloads.extract_if(|_, (_, row)| *row <= upto));
        gone
    }

    /// Lets go of what is only remembered for its version. Only between rows: a batch that was judged by
    /// a version must find it when it is applied.
    pub(super) fn forget_clean(&mut self) {
        if self.kept.len() > CLEAN_MAX {
            self.kept.clear();
        }
        // What is left is not looked through again before there is as much more: all of it may be dirty.
        let [documents, journals, accounts] = &mut self.bounds;
        if self.documents.len() > *documents || self.clean_bytes > CLEAN_BYTES_MAX {
            self.documents.retain(|_, known| known.row > 0);
            self.clean_bytes = 0;
            *documents = CLEAN_MAX.max(2 * self.documents.len());
        }
        if self.accounts.len() >= *accounts {
            self.accounts.retain(|_, (_, row)| *row > 0);
            self.accounts_forgotten += 1;
            *accounts = ACCOUNTS_MAX.max(2 * self.accounts.len());
        }
        if self.journals.len() > *journals {
            self.journals
                .retain(|_, journal| !journal.fresh.is_empty() || journal.forgotten > 0 || journal.trimmed.1 > 0);
            *journals = CLEAN_MAX.max(2 * self.journals.len());
        }
    }

    /// Lets go of every watcher, so that followers end.
    pub(super) fn close(&mut self) {
        self.watchers.clear();
    }
}

/// Returns an upper bound of a change's cost for a checkpoint. Documents that are overwritten first, and entries that
/// are packed with others, cost less.
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

/// Returns the cost of an entry's references: there may be more of them than other content.
fn weight(cause: &Cause) -> usize {
    cause.0.iter().map(|reference| reference.len() + 8).sum()
}

fn check(expect: Expect, found: u64, what: impl FnOnce() -> String) -> Result<(), StoreError> {
    match expect {
        Expect::Version(expected) if expected != found => {
            Err(StoreError::Conflict { what: what().into(), expected, found })
        }
        _ => Ok(()),
    }
}

fn next_account(
    name: &Arc<str>,
    known: Option<&Account>,
    op: &crate::ledger::AccountOp,
    at: Timestamp,
) -> Result<Account, StoreError> {
    use crate::ledger::{AccountOp, LedgerError};
    let mut account = match (known, op) {
        (_, AccountOp::Restore(as_it_was)) => return Ok((**as_it_was).clone()),
        (Some(account), _) => account.clone(),
        (None, AccountOp::Open(balance)) => Account::with(*balance),
        (None, _) => return Err(LedgerError::NotOpen(name.clone()).into()),
    };
    account.apply(name, op, at)?;
    Ok(account)
}

pub(super) fn ledger_stream(account: &str) -> Stream {
    format!("ledger:{account}").into()
}

/// Documents, streams and accounts of which nobody here knows how they stand.
#[derive(Default)]
pub(super) struct Unknown {
    pub(super) keys: BTreeSet<Key>,
    pub(super) streams: BTreeSet<Stream>,
    pub(super) accounts: BTreeSet<Arc<str>>,
}

impl Unknown {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.streams.is_empty() && self.accounts.is_empty()
    }

    /// Returns the result if none of the objects exists.
    pub(super) fn absent(self) -> Known {
        Known {
            documents: self.keys.into_iter().map(|key| (key, None)).collect(),
            heads: self.streams.into_iter().map(|stream| (stream, 0)).collect(),
            accounts: self.accounts.into_iter().map(|name| (name, None)).collect(),
        }
    }
}

/// The result of an [`Unknown`].
pub(super) struct Known {
    documents: Vec<(Key, Option<Versioned<Bytes>>)>,
    heads: Vec<(Stream, u64)>,
    accounts: Vec<(Arc<str>, Option<Account>)>,
}

/// Asks the backend for documents, stream heads and accounts.
pub(super) async fn ask(backend: &dyn Backend, unknown: Unknown) -> Result<Known, StoreError> {
    let keys: Vec<Key> = unknown.keys.into_iter().collect();
    let streams: Vec<Stream> = unknown.streams.into_iter().collect();
    let documents = match keys.as_slice() {
        [] => Vec::new(),
        [key] => vec![backend.document(key).await?],
        several => backend.each(several).await?,
    };
    let heads = match streams.as_slice() {
        [] => Vec::new(),
        [stream] => vec![backend.head(stream).await?],
        several => backend.heads(several).await?,
    };
    let names: Vec<Arc<str>> = unknown.accounts.into_iter().collect();
    let accounts = if names.is_empty() { Vec::new() } else { backend.accounts(&names).await? };
    Ok(Known {
        documents: keys.into_iter().zip(documents).collect(),
        heads: streams.into_iter().zip(heads).collect(),
        accounts: names.into_iter().zip(accounts).collect(),
    })
}

/// The frame of a batch committed at `at`.
pub(super) fn frame_of(at: Timestamp, origin: Origin, ops: Vec<Op>) -> Frame {
    Frame { at, by: origin.principal.id, cause: origin.cause, ops: ops.into() }
}
