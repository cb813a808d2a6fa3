//! The connections to MCP servers, in the newest version of the protocol that a server speaks. Versions from 2026-07-28 on have no
//! handshake: each request holds what the client can do, and changes of a list come over a subscription.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability, Implementation,
    ProtocolVersion, SubscriptionFilter,
};
use rmcp::service::{ClientServiceExt, NotificationContext, Peer, RunningService, Subscription};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientCacheConfig, ClientHandler, ClientLifecycleMode, RoleClient};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::child::Process;
use super::config::At;
use super::guard::Guarded;
use super::{LIST, LISTED, MESSAGE_BYTES_MAX, PAUSE, Server};

/// The timeout until a server accepts requests. The question which version it speaks takes at most 10 s of it.
const START: Duration = Duration::from_secs(20);
/// The time within which a failed connection is followed by one with a handshake at once.
const QUICK: Duration = Duration::from_secs(5);
/// The timeout for the answer to a subscription, while others wait for the connection. A later one is waited for beside them.
const SUBSCRIBE: Duration = Duration::from_secs(2);
/// The maximum number of reconnections of a notification stream.
const RETRIES: usize = 2;

/// The last failure to reach a server.
#[derive(Clone, Debug)]
pub(super) struct Unreachable {
    pub(super) why: String,
    pub(super) at: Instant,
}

/// A connection to a server.
pub(super) struct Link {
    pub(super) client: RunningService<RoleClient, Handler>,
    /// The number of list-change notifications that the server has sent.
    changes: watch::Receiver<u64>,
    /// The number of notifications at the last read of the list, and the time of that read.
    pub(super) seen: tokio::sync::Mutex<Option<(u64, Instant)>>,
    /// The last failure to read the list.
    failed: Mutex<Option<Unreachable>>,
    /// The task that receives changes over a subscription. It ends with the connection.
    _listener: JoinSet<()>,
}

impl Link {
    pub(super) fn failed(&self) -> MutexGuard<'_, Option<Unreachable>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changes(&self) -> u64 {
        *self.changes.borrow()
    }
}

/// The receiver of a server's notifications, which counts announced changes of the list.
pub(super) struct Handler(watch::Sender<u64>);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut can = ClientCapabilities::builder().enable_tasks().build();
        can.elicitation = Some(ElicitationCapability::default().with_form(FormElicitationCapability::default()));
        ClientConfig::new(can, Implementation::new("lifeformd", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.send_modify(|changes| *changes += 1);
    }
}

impl Server {
    /// Returns the connection to the server and establishes it if necessary.
    pub(super) async fn link(&self) -> Result<Arc<Link>, String> {
        let mut link = self.link.lock().await;
        match &*link {
            Ok(link) if !link.client.is_transport_closed() => return Ok(link.clone()),
            Err(Some(failed)) if failed.at.elapsed() < PAUSE => return Err(failed.why.clone()),
            _ => {}
        }
        let reached = self.negotiate().await;
        let reached = reached.map(Arc::new).map_err(|why| {
            let why = format!("the MCP server {} cannot be reached: {why}", self.name);
            Unreachable { why, at: Instant::now() }
        });
        *link = reached.clone().map_err(Some);
        reached.map_err(|failed| failed.why)
    }

    /// Connects to the server in the newest version that it speaks. A server that ends or fails when it is asked for its versions gets a
    /// connection that begins with a handshake: at once, or with the next call if it took long.
    async fn negotiate(&self) -> Result<Link, String> {
        let began = Instant::now();
        if !self.is_legacy.load(Ordering::Relaxed) {
            let auto = ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            };
            match self.connect(auto).await {
                Ok(link) => {
                    let server = link.client.peer_info();
                    let is_legacy = server.is_none_or(|server| server.protocol_version.has_initialize());
                    self.is_legacy.store(is_legacy, Ordering::Relaxed);
                    return Ok(link);
                }
                Err(why) if began.elapsed() > QUICK => {
                    self.is_legacy.store(true, Ordering::Relaxed);
                    return Err(why);
                }
                Err(_) => {}
            }
        }
        let link = self.connect(ClientLifecycleMode::Initialize).await;
        link.inspect_err(|_| self.is_legacy.store(false, Ordering::Relaxed))
    }

    /// Establishes a connection within the timeout.
    async fn connect(&self, mode: ClientLifecycleMode) -> Result<Link, String> {
        timeout(START, self.connect_without_limit(mode)).await.unwrap_or_else(|_| Err("no answer in time".into()))
    }

    async fn connect_without_limit(&self, mode: ClientLifecycleMode) -> Result<Link, String> {
        let (sender, changes) = watch::channel(0);
        let handler = Handler(sender.clone());
        let client = match &self.settings.at {
            At::Command { command, environment } => {
                let started = Process::start(&self.name, command, environment);
                let (process, input, output) = started.map_err(|error| error.to_string())?;
                let transport =
                    AsyncRwTransport::<RoleClient, _, _>::new(output, input).with_max_line_length(MESSAGE_BYTES_MAX);
                handler.serve_with_lifecycle(Guarded::new(transport, Some(process)), mode).await
            }
            At::Url { url, secret } => {
                // Redirects are off, since they would send the secret to another host. There is no timeout, since it
                // would cut the stream of notifications.
                let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
                let builder = builder.connect_timeout(START);
                let http = builder.pool_max_idle_per_host(0).build().map_err(|error| error.to_string())?;
                let mut retry = ExponentialBackoff::default();
                retry.max_times = Some(RETRIES);
                let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(HashMap::from_iter(secret.clone()))
                    .max_sse_event_size(MESSAGE_BYTES_MAX)
                    .reinit_on_expired_session(true);
                config.retry_config = Arc::new(retry);
                let transport = StreamableHttpClientTransport::with_client(http, config);
                handler.serve_with_lifecycle(Guarded::new(transport, None), mode).await
            }
        };
        let client = client.map_err(|error| self.without_address(error.to_string()))?;
        client.set_response_cache_config(ClientCacheConfig::disabled()).await;
        let mut listener = JoinSet::new();
        if announces_changes(&client) {
            // Before the list is read, so that no change is missed.
            let subscription = timeout(SUBSCRIBE, subscribe(&client)).await.ok().flatten();
            listener.spawn(listen(client.peer().clone(), subscription, sender));
        }
        let (seen, failed) = (tokio::sync::Mutex::new(None), Mutex::default());
        Ok(Link { client, changes, seen, failed, _listener: listener })
    }
}

/// Returns `true` if the server announces changes of its list over a subscription.
fn announces_changes(client: &Peer<RoleClient>) -> bool {
    client.peer_info().is_some_and(|server| {
        let announces = server.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true));
        announces && !server.protocol_version.has_initialize()
    })
}

async fn subscribe(client: &Peer<RoleClient>) -> Option<Subscription> {
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    timeout(LIST, client.listen(filter)).await.ok().and_then(Result::ok)
}

/// Counts the changes that a server announces, and subscribes again when its stream ends. What was missed meanwhile counts as a change.
async fn listen(client: Peer<RoleClient>, mut subscription: Option<Subscription>, changes: watch::Sender<u64>) {
    let mut pause = PAUSE;
    loop {
        while let Some(stream) = &mut subscription
            && let Ok(Some(_)) = stream.next().await
        {
            pause = PAUSE;
            changes.send_modify(|changes| *changes += 1);
        }
        if client.is_transport_closed() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LISTED);
        subscription = subscribe(&client).await;
        if subscription.is_some() {
            changes.send_modify(|changes| *changes += 1);
        }
    }
}
