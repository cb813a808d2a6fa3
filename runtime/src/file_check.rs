//! The check of the store's files, once a day.

use jiff::SignedDuration;
use store::Store;

/// The interval of checks.
const EVERY: SignedDuration = SignedDuration::from_hours(24);

/// Reads all files of the store's checkpoints, now and once a day, so that damage shows while a backup still helps.
pub(crate) async fn run(store: Store) {
    loop {
        if let Err(error) = store.check_files().await {
            tracing::warn!(%error, "the files of the store cannot be checked");
        }
        let now = store.clock().now();
        store.clock().until(now + EVERY).await;
    }
}
