//! Tasks that a process cannot do without.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// The exit status of a process that a [`vital`] task took with it: `EX_SOFTWARE` of `sysexits.h`.
pub const EXIT_STATUS: i32 = 70;

/// Runs `task`, and ends the process when it panics, with a line in the log that names it.
///
/// An owner of state that is gone leaves callers waiting for answers that nobody gives. A new process reads everything
/// acknowledged back from the store.
pub async fn vital<T>(name: &str, task: impl Future<Output = T>) -> T {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::error!(task = name, "a task panicked that the daemon cannot do without: the process ends");
            std::process::exit(EXIT_STATUS);
        }
    }
}
