//! A transport that does not trust its server. It disconnects a server that floods the client or does not read. A child
//! process ends together with all processes that it started.

use std::io;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::{Instant, timeout};

use super::child::Process;

/// The maximum time that a server may take to read a message.
const SEND: Duration = Duration::from_secs(10);
/// The maximum time of each step of closing.
const CLOSE: Duration = Duration::from_secs(1);
/// The maximum number of a server's requests and notifications within [`WINDOW`].
const UNASKED_MAX: u32 = 200;
const WINDOW: Duration = Duration::from_secs(1);

/// The guarded transport: see the module.
pub(super) struct Guarded<T> {
    inner: T,
    process: Option<Process>,
    since: Instant,
    unasked: u32,
}

impl<T: Transport<RoleClient>> Guarded<T> {
    pub(super) fn new(inner: T, process: Option<Process>) -> Self {
        Self { inner, process, since: Instant::now(), unasked: 0 }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let sending = self.inner.send(item);
        async move {
            match timeout(SEND, sending).await {
                Ok(sent) => sent.map_err(io::Error::other),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not read")),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.inner.receive().await?;
        if matches!(message, JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_)) {
            if self.since.elapsed() > WINDOW {
                (self.since, self.unasked) = (Instant::now(), 0);
            }
            self.unasked += 1;
            if self.unasked > UNASKED_MAX {
                tracing::warn!("an MCP server floods; it is hung up on");
                return None;
            }
        }
        Some(message)
    }

    async fn close(&mut self) -> io::Result<()> {
        let _ = timeout(CLOSE, self.inner.close()).await;
        if let Some(process) = self.process.take() {
            process.end(CLOSE).await;
        }
        Ok(())
    }
}
