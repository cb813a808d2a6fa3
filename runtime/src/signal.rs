//! Handles stop signals: first a regular stop, then an immediate one.

use tokio::signal::unix::{SignalKind, signal};

/// The signal of a write past the limit on file sizes, on Linux and macOS.
const SIGXFSZ: i32 = 25;

/// Keeps a limit on file sizes (`ulimit -f`) from ending the process: the write fails instead, as on a full disk.
pub(crate) fn outlive_file_size_limits() {
    if let Err(error) = signal(SignalKind::from_raw(SIGXFSZ)) {
        tracing::debug!(%error, "a limit on file sizes ends the process");
    }
}

/// Waits for SIGTERM or SIGINT. A second signal ends the process immediately. No acknowledged write is lost.
pub(crate) async fn stop() {
    let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        std::process::exit(130);
    });
}
