//! MCP servers as tools. A server is a child process or a URL; the daemon connects to it at first use and reconnects
//! after a loss. Its list of tools is cached and read again when it changes. All its output is untrusted: lines, lists
//! and answers are bounded, and its hints count only where the configuration trusts them.

mod child;
mod config;
mod guard;
mod pins;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock, ErrorCode, Implementation,
    MetaObject, PaginatedRequestParams, RequestMetaObject,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientCacheConfig, ClientHandler, RoleClient, ServiceError, ServiceExt};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use self::child::Process;
pub use self::config::{At, McpServer};
use self::guard::Guarded;
pub use self::pins::{Accept, Pin, PinState, Pins};
use super::effect::EffectClass;
use super::reachable::{ReachableServer, ServerTool};
use super::spec::{Approval, McpTool, Runner, ToolSpec, name_within};
use super::{DESCRIPTION_BYTES_MAX, Failure, cut_to};
use crate::spec::{TOOLS_MAX, check_schema};

/// The timeout until a started server accepts requests.
const START: Duration = Duration::from_secs(20);
/// The timeout for reading the list of tools.
const LIST: Duration = Duration::from_secs(10);
/// The timeout for stopping a server.
const STOP: Duration = Duration::from_secs(5);
/// The maximum age of a cached list. It is read again even without a notification, since a notification may be lost.
const LISTED: Duration = Duration::from_secs(300);
/// The maximum number of reconnections of a notification stream.
const RETRIES: usize = 2;
/// The pause before the next try to reach an unreachable server.
const PAUSE: Duration = Duration::from_secs(2);
/// The maximum size of one message, in bytes.
const MESSAGE_BYTES_MAX: usize = 2 << 20;
/// The maximum number of pages of a list, and of tools in it.
const PAGES_MAX: usize = 64;
const LISTED_MAX: usize = 512;
/// The maximum size of one tool's parameter schema, in bytes.
const SCHEMA_BYTES_MAX: usize = 16 << 10;
/// The member of a request's `_meta` that holds the idempotency key of the call.
pub const EFFECT_KEY: &str = "dev.lifeformd/effect";
/// A tool as the server lists it.
#[derive(Clone, Debug)]
struct Listed {
    name: String,
    description: String,
    parameters: Value,
    /// `true` if the server declares the tool as read-only.
    reads: bool,
    /// `true` if the server declares that a repetition of a call changes nothing.
    is_idempotent: bool,
    /// `false` if the server declares that the tool only adds.
    is_destructive: bool,
    pin: Pin,
    state: PinState,
    /// The accepted definition, if it is another one.
    accepted: Option<Value>,
}

/// The last failure to reach a server.
#[derive(Clone, Debug)]
struct Unreachable {
    why: String,
    at: Instant,
}

/// The configured servers, by name.
pub(crate) struct Servers {
    servers: BTreeMap<Arc<str>, Server>,
    pins: Arc<OnceLock<Arc<dyn Pins>>>,
}

struct Server {
    name: Arc<str>,
    settings: McpServer,
    permits: Semaphore,
    link: tokio::sync::Mutex<Result<Arc<Link>, Option<Unreachable>>>,
    /// The last known list of tools.
    listed: Mutex<Arc<Vec<Listed>>>,
    /// The store of accepted definitions.
    pins: Arc<OnceLock<Arc<dyn Pins>>>,
}

/// A connection to a server.
struct Link {
    client: RunningService<RoleClient, Handler>,
    /// The number of list-change notifications that the server has sent.
    changes: watch::Receiver<u64>,
    /// The number of notifications at the last read of the list, and the time of that read.
    seen: tokio::sync::Mutex<Option<(u64, Instant)>>,
    /// The last failure to read the list.
    failed: Mutex<Option<Unreachable>>,
}

impl Link {
    fn failed(&self) -> MutexGuard<'_, Option<Unreachable>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiver of a server's notifications, which counts announced changes of the list.
struct Handler(watch::Sender<u64>);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("lifeformd", env!("CARGO_PKG_VERSION")))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.send_modify(|changes| *changes += 1);
    }
}

impl Servers {
    pub(crate) fn new(servers: &BTreeMap<Arc<str>, McpServer>) -> Self {
        let pins: Arc<OnceLock<Arc<dyn Pins>>> = Arc::default();
        let server = |(name, settings): (&Arc<str>, &McpServer)| {
            let server = Server {
                name: name.clone(),
                settings: settings.clone(),
                permits: Semaphore::new(settings.concurrency),
                link: tokio::sync::Mutex::new(Err(None)),
                listed: Mutex::default(),
                pins: pins.clone(),
            };
            (name.clone(), server)
        };
        let servers = servers.iter().map(server).collect();
        Self { servers, pins }
    }

    fn server(&self, name: &str) -> Result<&Server, String> {
        self.servers
            .get(name)
            .ok_or_else(|| format!("there is no MCP server {name}: [tools.servers] names {:?}", self.servers.keys()))
    }

    /// Returns the tools that `spec` stands for, with its rules.
    ///
    /// # Errors
    /// Returns an error if the server was never reached or lacks the tool.
    pub(crate) async fn tools(&self, spec: &ToolSpec, mcp: &McpTool) -> Result<Vec<ToolSpec>, String> {
        let listed = self.server(&mcp.server)?.tools().await?;
        let server = self.server(&mcp.server)?;
        if let Some(why) = mcp.tool.as_ref().and_then(|tool| server.not_accepted(tool)) {
            return Err(why);
        }
        let wanted = |tool: &&Listed| {
            tool.state == PinState::Accepted && mcp.tool.as_ref().is_none_or(|wanted| *wanted == tool.name)
        };
        let as_spec = |tool: &Listed| ToolSpec {
            name: if mcp.tool.is_some() { spec.name.clone() } else { name_within(&spec.name, &tool.name) },
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            run: Runner::Mcp(McpTool { server: mcp.server.clone(), tool: Some(tool.name.clone()) }),
            ..spec.clone()
        };
        let tools: Vec<ToolSpec> = listed.iter().filter(wanted).map(as_spec).collect();
        match &mcp.tool {
            Some(wanted) if tools.is_empty() => Err(format!("the MCP server {} has no tool {wanted}", mcp.server)),
            _ => Ok(tools),
        }
    }

    /// Returns the calls that need an approval by the configuration.
    pub(crate) fn approval(&self, mcp: &McpTool) -> Approval {
        self.server(&mcp.server).map_or(Approval::Always, |server| server.settings.approval)
    }

    /// Returns `true` if the class of a tool is known: the configuration states it, or trusts the server's hints.
    pub(crate) fn knows(&self, mcp: &McpTool) -> bool {
        let states = |server: &Server| mcp.tool.as_ref().is_some_and(|tool| server.settings.effects.contains_key(tool));
        self.server(&mcp.server).is_ok_and(|server| server.settings.trusts_hints || states(server))
    }

    /// Returns the effect class of a tool: as the configuration states it, or by the hints of a trusted server (MCP, tool
    /// annotations). Without a hint a trusted server's tool is irreversible, as the protocol has it.
    pub(crate) fn class(&self, mcp: &McpTool) -> EffectClass {
        let (Ok(server), Some(tool)) = (self.server(&mcp.server), &mcp.tool) else { return EffectClass::Write };
        if let Some(stated) = server.settings.effects.get(tool) {
            return *stated;
        }
        server.class(server.listed().iter().find(|listed| listed.name == *tool))
    }

    /// Calls a tool. `key` is the idempotency key of the call, for servers that look at it.
    pub(crate) async fn run(
        &self,
        mcp: &McpTool,
        given: Map<String, Value>,
        key: &str,
        is_sent: &AtomicBool,
    ) -> Result<String, Failure> {
        let server = self.server(&mcp.server).map_err(Failure::Failed)?;
        let tool = mcp.tool.clone().unwrap_or_default();
        if server.settings.tools.as_ref().is_some_and(|tools| !tools.contains(&tool)) {
            return Err(Failure::Failed(format!("[tools.servers.{}] does not let {tool} be called", mcp.server)));
        }
        if let Some(why) = server.not_accepted(&tool) {
            return Err(Failure::Failed(why));
        }
        let _permit = server.permits.acquire().await;
        let link = server.link().await.map_err(Failure::Failed)?;
        let mut meta = MetaObject::default();
        meta.0.insert(EFFECT_KEY.to_owned(), key.into());
        let mut params = CallToolRequestParams::new(tool).with_arguments(given);
        params.meta = Some(RequestMetaObject(meta));
        is_sent.store(true, Ordering::SeqCst);
        // If the call is dropped, for example on timeout, the server is notified of the cancellation.
        match link.client.call_tool(params).await {
            Ok(result) if result.is_error == Some(true) => Err(Failure::Failed(text(&result))),
            Ok(result) => Ok(text(&result)),
            Err(ServiceError::McpError(error)) => {
                let was_not_run = [ErrorCode::INVALID_PARAMS, ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_REQUEST]
                    .contains(&error.code);
                let why = error.message.into_owned();
                Err(if was_not_run { Failure::Failed(why) } else { Failure::Unknown(why) })
            }
            Err(error) => Err(Failure::Unknown(server.without_address(error.to_string()))),
        }
    }

    /// Returns each server with its tools, or with the reason why it cannot be reached.
    pub(crate) async fn reachable(&self) -> Vec<ReachableServer> {
        let reached = self.servers.values().map(|server| async move {
            let listed = server.tools().await;
            let shown = |tool: &Listed| {
                let effect = server.settings.effects.get(&tool.name).copied();
                let effect = effect.unwrap_or_else(|| server.class(Some(tool)));
                ServerTool {
                    name: tool.name.clone(),
                    description: tool.description.clone(),
                    parameters: tool.parameters.clone(),
                    writes: effect > EffectClass::Read,
                    effect,
                    state: tool.state,
                    hash: Some(tool.pin.hash.clone()),
                    accepted: tool.accepted.clone(),
                }
            };
            ReachableServer {
                name: server.name.to_string(),
                approval: server.settings.approval,
                tools: listed.iter().flat_map(|listed| listed.iter()).map(shown).collect(),
                error: listed.err().map(|error| error.to_string()),
            }
        });
        futures::future::join_all(reached).await
    }

    /// Sets the store of accepted definitions. Only the first call has an effect.
    pub(crate) fn keep_pins_in(&self, pins: Arc<dyn Pins>) {
        let _ = self.pins.set(pins);
    }

    /// Returns the present definition of a tool, if its hash is the one that was seen.
    ///
    /// # Errors
    /// A sentence if the server or the tool is not there, or if the definition is another one.
    pub(crate) async fn definition(&self, server: &str, tool: &str, hash: &str) -> Result<Pin, String> {
        let listed = self.server(server)?.tools().await?;
        let found = listed.iter().find(|listed| listed.name == tool);
        match found {
            None => Err(format!("the MCP server {server} has no tool {tool}")),
            Some(found) if *found.pin.hash != *hash => {
                Err(format!("the tool {tool} has another definition now: look at it again"))
            }
            Some(found) => Ok(found.pin.clone()),
        }
    }

    /// Marks a definition as accepted in the list that is known.
    pub(crate) fn is_accepted(&self, server: &str, tool: &str, pin: &Pin) {
        let Ok(server) = self.server(server) else { return };
        let mut listed = server.listed();
        let mark = |known: &Listed| match known.name == tool && known.pin == *pin {
            true => Listed { state: PinState::Accepted, accepted: None, ..known.clone() },
            false => known.clone(),
        };
        *listed = Arc::new(listed.iter().map(mark).collect());
    }

    /// Stops the servers that were started.
    pub(crate) async fn close(&self) {
        futures::future::join_all(self.servers.values().map(|server| async {
            // A connection that is still being established ends together with its task.
            let Ok(mut held) = server.link.try_lock() else { return };
            if let Ok(mut link) = std::mem::replace(&mut *held, Err(None))
                && let Some(link) = Arc::get_mut(&mut link)
            {
                let _ = link.client.close_with_timeout(STOP).await;
            }
        }))
        .await;
    }
}

impl Server {
    /// Returns the class of a tool by the server's hints.
    fn class(&self, tool: Option<&Listed>) -> EffectClass {
        match tool {
            _ if !self.settings.trusts_hints => EffectClass::Write,
            Some(tool) if tool.reads => EffectClass::Read,
            Some(tool) if tool.is_idempotent => EffectClass::Idempotent,
            Some(tool) if !tool.is_destructive => EffectClass::Write,
            _ => EffectClass::Irreversible,
        }
    }

    fn listed(&self) -> MutexGuard<'_, Arc<Vec<Listed>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a failure without the server's address, which may hold a secret.
    fn without_address(&self, why: String) -> String {
        let why = match &self.settings.at {
            At::Url { url, .. } => why.replace(url.as_str(), "its address"),
            At::Command { .. } => why,
        };
        cut_to(why, DESCRIPTION_BYTES_MAX)
    }

    /// Returns the connection to the server and establishes it if necessary.
    async fn link(&self) -> Result<Arc<Link>, String> {
        let mut link = self.link.lock().await;
        match &*link {
            Ok(link) if !link.client.is_transport_closed() => return Ok(link.clone()),
            Err(Some(failed)) if failed.at.elapsed() < PAUSE => return Err(failed.why.clone()),
            _ => {}
        }
        let reached =
            tokio::time::timeout(START, self.reach()).await.unwrap_or_else(|_| Err("no answer in time".into()));
        let reached = reached.map(Arc::new).map_err(|why| {
            let why = format!("the MCP server {} cannot be reached: {why}", self.name);
            Unreachable { why, at: Instant::now() }
        });
        *link = reached.clone().map_err(Some);
        reached.map_err(|failed| failed.why)
    }

    async fn reach(&self) -> Result<Link, String> {
        let (sender, changes) = watch::channel(0);
        let handler = Handler(sender);
        let client = match &self.settings.at {
            At::Command { command, environment } => {
                let started = Process::start(&self.name, command, environment);
                let (process, input, output) = started.map_err(|error| error.to_string())?;
                let transport =
                    AsyncRwTransport::<RoleClient, _, _>::new(output, input).with_max_line_length(MESSAGE_BYTES_MAX);
                handler.serve(Guarded::new(transport, Some(process))).await
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
                handler.serve(Guarded::new(StreamableHttpClientTransport::with_client(http, config), None)).await
            }
        };
        let client = client.map_err(|error| self.without_address(error.to_string()))?;
        client.set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(Link { client, changes, seen: tokio::sync::Mutex::new(None), failed: Mutex::default() })
    }

    /// Returns the cached list of tools, or reads it again if it changed. If the server is lost, the last list stays
    /// valid.
    async fn tools(&self) -> Result<Arc<Vec<Listed>>, String> {
        let read = async {
            let link = self.link().await?;
            let mut seen = link.seen.lock().await;
            let changes = *link.changes.borrow();
            if seen.is_none_or(|(known, at)| known != changes || at.elapsed() > LISTED) {
                // While the server pauses after a failure, the last list is used.
                if let Some(failed) = link.failed().clone().filter(|failed| failed.at.elapsed() < PAUSE) {
                    return Err(failed.why);
                }
                let listed = tokio::time::timeout(LIST, self.read(&link)).await;
                let listed = listed.unwrap_or_else(|_| Err("its list of tools does not come".into()));
                let listed = match listed {
                    Ok(listed) => self.pinned(listed).await,
                    Err(why) => Err(why),
                };
                let listed = listed.inspect_err(|why| {
                    *link.failed() = Some(Unreachable { why: why.clone(), at: Instant::now() });
                })?;
                *self.listed() = Arc::new(listed);
                *seen = Some((changes, Instant::now()));
            }
            Ok(self.listed().clone())
        };
        match read.await {
            Ok(listed) => Ok(listed),
            Err(why) => {
                let known = self.listed().clone();
                if known.is_empty() {
                    return Err(why);
                }
                tracing::warn!(server = %self.name, %why, "its tools are taken to be what they were");
                Ok(known)
            }
        }
    }

    /// Compares a list with the accepted definitions, and accepts those of tools that are new, where the configuration lets it.
    async fn pinned(&self, mut listed: Vec<Listed>) -> Result<Vec<Listed>, String> {
        let Some(pins) = self.pins.get() else { return Ok(listed) };
        let accepted = pins.pins(&self.name).await?;
        let mut fresh = Vec::new();
        for tool in &mut listed {
            let known = accepted.get(&tool.name);
            let (state, is_fresh) = pins::judged(&tool.pin, known, self.settings.accept);
            fresh.extend(is_fresh.then(|| (tool.name.clone(), tool.pin.clone())));
            if state == PinState::Changed && self.listed().iter().all(|before| before.pin.hash != tool.pin.hash) {
                let (server, tool) = (&self.name, &tool.name);
                tracing::warn!(%server, tool, "its definition was changed: lifeformd tools accept {server} shows and accepts it");
            }
            tool.state = state;
            tool.accepted = known.filter(|_| state == PinState::Changed).map(|pin| pin.definition.clone());
        }
        if !fresh.is_empty() {
            pins.pin(&self.name, &fresh).await?;
        }
        Ok(listed)
    }

    /// Returns the reason why a tool is not called.
    fn not_accepted(&self, tool: &str) -> Option<String> {
        let state = self.listed().iter().find(|listed| listed.name == tool).map(|listed| listed.state);
        let server = &self.name;
        match state {
            Some(PinState::Changed) => Some(format!(
                "the tool {tool} of the MCP server {server} was changed, and no operator has accepted that"
            )),
            Some(PinState::New) => Some(format!("no operator has accepted the tool {tool} of the MCP server {server}")),
            Some(PinState::Accepted) | None => None,
        }
    }

    async fn read(&self, link: &Link) -> Result<Vec<Listed>, String> {
        let (mut listed, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = link.client.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor)));
            let page = page.await.map_err(|error| self.without_address(format!("its list of tools: {error}")))?;
            for tool in page.tools {
                let pin = Pin::of(&tool);
                let name = tool.name.into_owned();
                if self.settings.tools.as_ref().is_some_and(|tools| !tools.contains(&name)) {
                    continue;
                }
                // Models read what people do not see.
                let seen = |text: &str| text.chars().filter(|c| !store::is_invisible(*c)).collect::<String>();
                let parameters = seen(&Value::Object(Arc::unwrap_or_clone(tool.input_schema)).to_string());
                let bytes = parameters.len();
                let parameters: Value = serde_json::from_str(&parameters).unwrap_or_default();
                let fits = if bytes > SCHEMA_BYTES_MAX {
                    Err(format!("they have {bytes} bytes"))
                } else {
                    check_schema(&parameters)
                };
                if let Err(why) = fits {
                    tracing::warn!(server = %self.name, tool = name, why, "left out: its parameters cannot be checked");
                    continue;
                }
                let description = tool.description.map(|text| cut_to(seen(&text), DESCRIPTION_BYTES_MAX));
                let hints = tool.annotations.as_ref();
                let reads = hints.is_some_and(|hints| hints.read_only_hint == Some(true));
                let is_idempotent = hints.is_some_and(|hints| hints.idempotent_hint == Some(true));
                let is_destructive = hints.is_none_or(|hints| hints.destructive_hint != Some(false));
                let description = description.unwrap_or_default();
                let (state, accepted) = (PinState::default(), None);
                listed.push(Listed {
                    name,
                    description,
                    parameters,
                    reads,
                    is_idempotent,
                    is_destructive,
                    pin,
                    state,
                    accepted,
                });
            }
            cursor = page.next_cursor;
            if listed.len() > LISTED_MAX {
                return Err(format!("it has more than {LISTED_MAX} tools"));
            }
            if cursor.is_none() {
                return Ok(listed);
            }
        }
        Err(format!("its list of tools has more than {PAGES_MAX} pages"))
    }
}

/// Returns the text of a result for a model.
fn text(result: &CallToolResult) -> String {
    let blocks = result.content.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[an image, {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[a sound, {}]", audio.mime_type),
        ContentBlock::ResourceLink(link) => format!("[{}]", link.uri),
        ContentBlock::Resource(resource) => resource.get_text().to_owned(),
        _ => "[something else]".to_owned(),
    });
    let said: Vec<String> = blocks.collect();
    match &result.structured_content {
        Some(structured) if said.is_empty() => structured.to_string(),
        _ => said.join("\n"),
    }
}

const _: () = assert!(TOOLS_MAX <= LISTED_MAX, "a neuron cannot be given more tools than are listed");
