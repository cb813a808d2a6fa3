//! Handles stop signals: first a regular stop, then an immediate one.

use tokio::signal::unix::{SignalKind, signal};

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
