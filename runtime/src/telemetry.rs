//! Logs.

use std::io::IsTerminal;

use nexus::store::surreal;
use tracing_subscriber::EnvFilter;

/// Directives without what must not get into a log, whatever they say.
pub fn bounded(directives: &str) -> String {
    format!("{directives},async_openai=off,rmcp=warn,{}", surreal::LOGS)
}

/// Starts logging to standard error by `directives`. What models are asked and say never gets into a log:
/// the client library's own error log, which holds whole payloads, is off, and so are the requests that the MCP server logs.
pub(crate) fn start(directives: &str, json: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(bounded(directives))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    // Colours are for people, not for files.
    // A line that cannot be written (a full disk, a reader that is gone) is dropped: reporting that would write again, and panic.
    let builder = builder.log_internal_errors(false).with_ansi(std::io::stderr().is_terminal());
    let started = if json { builder.json().try_init() } else { builder.try_init() };
    started.map_err(|error| anyhow::anyhow!(error))
}
