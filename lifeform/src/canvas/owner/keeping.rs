//! Writing the rows of a canvas, and hiding what was removed for good.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use store::StoreError;
use tokio::task::JoinHandle;

use super::Owner;
use crate::canvas::handle::Page;
use crate::canvas::log::Head;

/// Rows that are being written.
pub(super) struct Keeping {
    pub(super) rows: Arc<BTreeSet<Arc<str>>>,
    pub(super) written: JoinHandle<Result<Head, StoreError>>,
}

impl Owner {
    /// Lets go of the log before what was taken away for good, and of whatever else still tells of it.
    pub(super) async fn purge(&mut self) {
        let Some(upto) = self.purged else { return };
        if let Some(keeping) = self.keeping.take() {
            self.take_in(keeping).await;
        }
        self.hide();
        self.keep().await;
        if let Some(keeping) = self.keeping.take() {
            self.take_in(keeping).await;
        }
        if self.head.floor >= upto {
            self.purged = None;
        }
    }

    /// Shows nothing any more of the log before what was taken away for good.
    pub(super) fn hide(&self) {
        let Some(upto) = self.purged else { return };
        let mut shared = self.shared.write().unwrap_or_else(PoisonError::into_inner);
        shared.ring.let_go(upto);
        shared.page = Page::default();
        shared.snapshot.floor = shared.snapshot.floor.max(upto);
    }

    /// Writes the rows of what changed, so that waking need not replay the whole journal, and cuts the log; beside
    /// whatever is written meanwhile.
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

    /// Takes in what came of writing rows, once that is done; answers whether it is.
    pub(super) async fn kept(&mut self) -> bool {
        match self.keeping.take_if(|keeping| keeping.written.is_finished()) {
            Some(keeping) => self.take_in(keeping).await,
            None => return self.keeping.is_none(),
        }
        true
    }
}
