//! Tasks without which the process cannot continue.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// The exit status after the panic of a [`vital`] task: `EX_SOFTWARE` of `sysexits.h`.
pub const EXIT_STATUS: i32 = 70;

/// Runs `task`. If it panics, logs its name and ends the process.
///
/// Without the owner of a state, callers would wait for answers forever. A new process reads all acknowledged data
/// back from the store.
pub async fn vital<T>(name: &str, task: impl Future<Output = T>) -> T {
    match AssertUnwindSafe(task).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::error!(task = name, "a task panicked that the daemon cannot do without: the process ends");
            std::process::exit(EXIT_STATUS);
        }
    }
}
