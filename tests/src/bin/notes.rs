//! The MCP server for tests, on standard input and output.

use rmcp::ServiceExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let serving = tests::notes::Notes::default().serve(rmcp::transport::stdio()).await?;
    serving.waiting().await?;
    Ok(())
}
