//! `lifeformd example`: serves the example world on the loopback interface.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::bail;

use super::say;

/// Serves the world until the process is interrupted.
pub(super) async fn run(address: SocketAddr) -> anyhow::Result<ExitCode> {
    if !address.ip().is_loopback() {
        bail!("{address} is not on the loopback interface, and the example world has no access control");
    }
    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?.to_string();
    say(&format!("the example world is at http://{address}: GET /openapi.json describes it; Ctrl-C ends it"));
    crate::example::serve(listener, &address).await?;
    Ok(ExitCode::SUCCESS)
}
