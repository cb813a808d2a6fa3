//! Validation of batches: versions, balances and names, before anything is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::{Document, Journal, Staged, State, ledger_stream};
use crate::StoreError;
use crate::backend::Backend;
use crate::batch::{Expect, Key, Op, Stream, Versioned};
use crate::clock::Timestamp;
use crate::ledger::Account;

impl State {
    /// Returns the objects of `ops` that are not in memory.
    pub(crate) fn unknown(&self, ops: &[Op]) -> Unknown {
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

    /// Adds the backend's results for [`State::unknown`].
    pub(crate) fn learn(&mut self, known: Known) {
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

    /// Validates a batch against the committed state and the batches staged before it. On success, stages its effects
    /// and returns its versions; on refusal, changes nothing.
    pub(crate) fn judge(&self, staged: &mut Staged, ops: &[Op], at: Timestamp) -> Result<Vec<u64>, StoreError> {
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

    pub(crate) fn judge_op(
        &self,
        staged: &Staged,
        trial: &mut Staged,
        op: &Op,
        at: Timestamp,
    ) -> Result<u64, StoreError> {
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
}

pub(super) fn check(expect: Expect, found: u64, what: impl FnOnce() -> String) -> Result<(), StoreError> {
    match expect {
        Expect::Version(expected) if expected != found => {
            Err(StoreError::Conflict { what: what().into(), expected, found })
        }
        _ => Ok(()),
    }
}

pub(super) fn next_account(
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

/// Documents, streams and accounts that are not in memory.
#[derive(Default)]
pub(crate) struct Unknown {
    pub(crate) keys: BTreeSet<Key>,
    pub(crate) streams: BTreeSet<Stream>,
    pub(crate) accounts: BTreeSet<Arc<str>>,
}

impl Unknown {
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.streams.is_empty() && self.accounts.is_empty()
    }

    /// Returns the result for the case that none of the objects exists.
    pub(crate) fn absent(self) -> Known {
        Known {
            documents: self.keys.into_iter().map(|key| (key, None)).collect(),
            heads: self.streams.into_iter().map(|stream| (stream, 0)).collect(),
            accounts: self.accounts.into_iter().map(|name| (name, None)).collect(),
        }
    }
}

/// The backend's results for an [`Unknown`].
pub(crate) struct Known {
    pub(crate) documents: Vec<(Key, Option<Versioned<Bytes>>)>,
    pub(crate) heads: Vec<(Stream, u64)>,
    pub(crate) accounts: Vec<(Arc<str>, Option<Account>)>,
}

/// Reads documents, stream heads and accounts from the backend.
pub(crate) async fn ask(backend: &dyn Backend, unknown: Unknown) -> Result<Known, StoreError> {
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
