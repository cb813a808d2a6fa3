//! The refusals and failures of the store.

use std::sync::Arc;

use crate::ledger::LedgerError;

/// The reason why the store refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// A document or stream did not have the expected version. Nothing was written.
    #[error("{what} is at {found}, not at {expected}")]
    Conflict {
        /// The document or stream.
        what: Arc<str>,
        /// The version that the caller expected.
        expected: u64,
        /// The current version.
        found: u64,
    },
    /// An account refused the change. Nothing was written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Another daemon has opened this store.
    #[error("the store {0} is in use by another lifeformd: stop that one, or give this one another --data folder")]
    Locked(String),
    /// Another daemon took over the store while this daemon was running.
    #[error("another lifeformd took over the store (lease epoch {0}): this one must stop")]
    LeaseLost(u64),
    /// A commit is larger than a row of the log may be.
    #[error("a commit of {bytes} bytes is over the bound of {max}")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
        /// The maximum size in bytes.
        max: usize,
    },
    /// The data on disk cannot be read.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Rows at the end of the log are missing. Nothing was changed.
    #[error(
        "the store lost its last commits: {0}. Put the files back, or start with --accept-loss to go on without them"
    )]
    Lost(String),
    /// A newer release wrote the data on disk.
    #[error("the store was written by a newer lifeformd: {0}. Run that one")]
    Newer(String),
    /// The disk or the database failed. Nothing was written, unless the store found the write later and answered it.
    #[error("the store could not write or read: {0}")]
    Io(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Returns `true` for the refusal of an account, the only error that a top-up resolves.
    pub fn is_ledger_refusal(&self) -> bool {
        matches!(self, Self::Ledger(_))
    }
}
