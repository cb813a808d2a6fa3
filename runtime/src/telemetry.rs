//! The log output.

use std::io::IsTerminal;

use store::surreal;
use tracing::Dispatch;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// Returns the directives with additions that keep confidential content out of the log.
pub fn bounded(directives: &str) -> String {
    format!("{directives},async_openai=off,rmcp=warn,{}", surreal::LOGS)
}

/// Starts logging to standard error by `directives`. Prompts and answers of models never appear in the log: the error
/// log of the client library, which contains complete payloads, and the request log of the MCP server are off.
pub(crate) fn start(directives: &str, json: bool) -> anyhow::Result<()> {
    // Colours are used only on a terminal.
    let logger = logger(directives, json, std::io::stderr().is_terminal(), std::io::stderr)?;
    logger.try_init().map_err(|error| anyhow::anyhow!(error))
}

/// Returns a logger that writes events by `directives` to `writer`: a line of text per event or, with `json`, a JSON
/// object.
fn logger<W>(directives: &str, json: bool, ansi: bool, writer: W) -> anyhow::Result<Dispatch>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse(bounded(directives))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    // A line that cannot be written (full disk, closed reader) is dropped. An error report would write again, and
    // panic.
    let builder = builder.log_internal_errors(false).with_ansi(ansi);
    Ok(if json { Dispatch::new(builder.json().finish()) } else { Dispatch::new(builder.finish()) })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone)]
    struct Writer(Arc<Mutex<std::fs::File>>);

    impl std::io::Write for Writer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn events_are_lines_of_text_or_of_json() {
        for json in [false, true] {
            let file = Arc::new(Mutex::new(tempfile::tempfile().unwrap()));
            let logger = {
                let writer = Writer(file.clone());
                logger("info", json, false, move || writer.clone())
            }
            .unwrap();
            tracing::dispatcher::with_default(&logger, || tracing::info!(answer = 42, "it is done"));
            let mut written = String::new();
            let mut file = file.lock().unwrap();
            std::io::Seek::rewind(&mut *file).unwrap();
            std::io::Read::read_to_string(&mut *file, &mut written).unwrap();
            match json {
                true => {
                    let event: serde_json::Value = serde_json::from_str(written.trim()).unwrap();
                    assert_eq!(
                        (&event["fields"]["message"], &event["fields"]["answer"]),
                        (&"it is done".into(), &42.into())
                    );
                }
                false => assert!(written.trim_end().ends_with("INFO it is done answer=42"), "{written}"),
            }
        }
    }
}
