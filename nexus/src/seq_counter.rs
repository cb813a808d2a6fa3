//! The counter by which a reader takes consistent snapshots of a mind and of the commons.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter (a seqlock) that is incremented before and after a mind and the commons are published together. A reader
/// that sees the same even count before and after taking both snapshots knows that they are consistent.
#[derive(Default)]
pub(crate) struct SeqCounter(AtomicU64);

impl SeqCounter {
    /// Returns the count; it is odd while both are being published.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn publish(&self, publish: impl FnOnce()) {
        self.0.fetch_add(1, Ordering::SeqCst);
        publish();
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
