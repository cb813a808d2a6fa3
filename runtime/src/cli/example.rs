//! `lifeformd example`: serves the example world on the loopback interface.

use std::net::SocketAddr;
use std::process::ExitCode;

use super::say;
use crate::example;

/// Serves the world until the process is interrupted.
pub(super) async fn run(address: SocketAddr) -> anyhow::Result<ExitCode> {
    let listener = example::listen(address).await?;
    let address = listener.local_addr()?;
    say(&format!(
        "the example world is at http://{address}: GET /openapi.json describes it, /mcp serves its tools; Ctrl-C ends it"
    ));
    example::serve(listener).await?;
    Ok(ExitCode::SUCCESS)
}
