//! MCP servers as tools. A server is a child process or a URL; the daemon connects to it at first use and reconnects
//! after a loss. Its list of tools is cached and read again when it changes. All its output is untrusted: lines, lists
//! and answers are bounded, and its hints count only where the configuration trusts them.

mod calls;
mod child;
mod config;
mod guard;
mod link;
mod pins;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::model::PaginatedRequestParams;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use self::calls::Task;
pub(super) use self::calls::TaskState;
pub use self::config::{At, McpServer};
use self::link::{Link, Unreachable};
pub use self::pins::{Accept, Pin, PinState, Pins};
use super::effect::EffectClass;
use super::reachable::{ReachableServer, ServerTool};
use super::spec::{Approval, McpTool, Runner, ToolSpec, name_within};
use super::{DESCRIPTION_BYTES_MAX, cut_to};
use crate::spec::{TOOLS_MAX, check_schema};

/// The timeout for reading the list of tools.
const LIST: Duration = Duration::from_secs(10);
/// The timeout for stopping a server.
const STOP: Duration = Duration::from_secs(5);
/// The maximum age of a cached list. It is read again even without a notification, since a notification may be lost.
const LISTED: Duration = Duration::from_secs(300);
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
    /// The schema that the server declares for the structured results of the tool.
    results: Option<Value>,
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
    /// `true` if the next connection begins with a handshake: the server said that it speaks no version without one, or it did not
    /// answer in time.
    is_legacy: AtomicBool,
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
                is_legacy: AtomicBool::new(false),
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

    /// Returns the cached list of tools, or reads it again if it changed. If the server is lost, the last list stays
    /// valid.
    async fn tools(&self) -> Result<Arc<Vec<Listed>>, String> {
        let read = async {
            let link = self.link().await?;
            let mut seen = link.seen.lock().await;
            let changes = link.changes();
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
                let results = tool.output_schema.map(|schema| Value::Object(Arc::unwrap_or_clone(schema)));
                let results = results.filter(|schema| check_schema(schema).is_ok());
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
                    results,
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

const _: () = assert!(TOOLS_MAX <= LISTED_MAX, "a neuron cannot be given more tools than are listed");
