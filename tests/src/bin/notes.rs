//! The MCP server for tests, on standard input and output. `NOTES_SPEAK=brittle` makes one of an earlier version.

use rmcp::ServiceExt;
use tests::notes::{Notes, Speaks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let is_brittle = std::env::var("NOTES_SPEAK").is_ok_and(|speaks| speaks == "brittle");
    let notes = Notes::speaking(if is_brittle { Speaks::Brittle } else { Speaks::Newest });
    let serving = notes.serve(rmcp::transport::stdio()).await?;
    serving.waiting().await?;
    Ok(())
}
