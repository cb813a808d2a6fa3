//! The contents of a checkpoint, and the release of state that it has written.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::{ACCOUNTS_MAX, CLEAN_BYTES_MAX, CLEAN_MAX, Elements, State};
use crate::backend::{Projected, Projection};
use crate::batch::{Entry, Hash, Versioned};

/// State that a checkpoint has written and that is no longer needed.
#[derive(Default)]
pub(crate) struct Gone {
    pub(crate) entries: Vec<VecDeque<(u64, Arc<Entry>)>>,
    pub(crate) elements: Vec<Elements>,
    pub(crate) payloads: Vec<(Hash, (Bytes, u64))>,
}

impl State {
    /// Returns the contents of a checkpoint up to the present row.
    pub(crate) fn projection(&mut self) -> Projection {
        self.projecting = self.row;
        self.projecting_bytes = std::mem::take(&mut self.logged_bytes);
        let dirty_documents = self.documents.iter_mut().filter(|(_, known)| known.row > 0);
        let outcome_unknown = std::mem::take(&mut self.outcome_unknown);
        let documents = dirty_documents.filter_map(|(key, known)| {
            known.storing = Some(known.body.is_some());
            let document = known.body.clone().map(|value| Versioned { version: known.version, value });
            // A document that was created and deleted between two checkpoints does not appear in any.
            let is_nothing = document.is_none() && !known.stored && !outcome_unknown;
            (!is_nothing).then(|| Projected { key: key.clone(), document, stored: known.stored })
        });
        let documents = documents.collect();
        let (mut journals, mut forgotten, mut trimmed) = (Vec::new(), Vec::new(), Vec::new());
        for (stream, journal) in &self.journals {
            if !journal.fresh.is_empty() {
                // Entries that were trimmed before they were checkpointed are not written.
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
            outcome_unknown,
        }
    }

    /// Records that a checkpoint failed, so that it is unknown which of its rows were written.
    pub(crate) fn not_projected(&mut self, bytes: usize) {
        self.dirty_bytes += bytes;
        self.logged_bytes += std::mem::take(&mut self.projecting_bytes);
        self.outcome_unknown = true;
    }

    /// Releases the state that the checkpoint up to row `upto` has written. Returns it, so that the caller can free
    /// it outside the lock.
    #[must_use]
    pub(crate) fn projected(&mut self, upto: u64) -> Gone {
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

    /// Evicts documents that are cached only for their versions. This happens only between rows: a batch that was
    /// validated against a version must find it when it is applied.
    pub(crate) fn forget_clean(&mut self) {
        if self.kept.len() > CLEAN_MAX {
            self.kept.clear();
        }
        // The bounds grow with the remaining state, because all of it may be dirty; otherwise every call would scan
        // it again.
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
}
