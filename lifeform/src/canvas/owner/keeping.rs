//! Writes the rows of a canvas, and hides permanently removed content.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use store::StoreError;
use tokio::task::JoinHandle;

use super::Owner;
use crate::canvas::handle::Page;
use crate::canvas::log::Head;

/// A write of rows in progress.
pub(super) struct Keeping {
    pub(super) rows: Arc<BTreeSet<Arc<str>>>,
    pub(super) written: JoinHandle<Result<Head, StoreError>>,
}

impl Owner {
    /// Cuts the log before a permanent removal, and removes other copies of the content.
    pub(super) async fn purge(&mut self) {
        let Some(upto) = self.purged else { return };
        if let Some(keeping) = self.keeping.take() {
            self.note_kept_rows(keeping).await;
        }
        self.hide();
        self.keep().await;
        if let Some(keeping) = self.keeping.take() {
            self.note_kept_rows(keeping).await;
        }
        if self.head.floor >= upto {
            self.purged = None;
        }
    }

    /// Hides the log before a permanent removal from subscribers and readers.
    pub(super) fn hide(&self) {
        let Some(upto) = self.purged else { return };
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        shared.ring.trim(upto);
        shared.page = Page::default();
        shared.snapshot.floor = shared.snapshot.floor.max(upto);
    }

    /// Starts to write the rows of changed entities and to cut the log, so that a load need not replay the complete
    /// journal. The canvas accepts writes at the same time.
    pub(super) async fn keep(&mut self) {
        let floor = match self.log.floor(&self.head, self.rev, &self.limits, &mut self.oldest).await {
            Ok(floor) => floor.max(self.purged.unwrap_or_default()),
            Err(error) => return tracing::warn!(canvas = %self.log.stream, %error, "its log is not cut"),
        };
        let (log, head, state, rev) = (self.log.clone(), self.head.clone(), self.trial.clone(), self.rev);
        let rows = Arc::new(std::mem::take(&mut self.stale));
        let (stale, alive, shared) = (rows.clone(), self.alive.clone(), self.shared.clone());
        self.unkept = (0, 0);
        let written = tokio::spawn(async move {
            let head = log.keep(&head, &state, rev, &stale, floor).await;
            if let Ok(head) = &head {
                let mut shared = shared.write().unwrap_or_else(PoisonError::into_inner);
                shared.snapshot.floor = shared.snapshot.floor.max(head.floor);
            }
            drop(alive);
            head
        });
        self.keeping = Some(Keeping { rows, written });
    }

    /// Processes the result of a finished write of rows. Returns `true` if none is in progress.
    pub(super) async fn kept(&mut self) -> bool {
        match self.keeping.take_if(|keeping| keeping.written.is_finished()) {
            Some(keeping) => self.note_kept_rows(keeping).await,
            None => return self.keeping.is_none(),
        }
        true
    }
}
