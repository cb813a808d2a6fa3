//! Tools that run on the server: KIP, HTTP requests, MCP servers, fascicles. Each call is bounded in time and number,
//! its arguments fit its schema, and its failure is reported to the model like any other result.

mod builtin;
pub(crate) mod effect;
mod fascicle;
pub(crate) mod handles;
mod hosts;
mod http;
pub(crate) mod kip;
mod limits;
mod mcp;
mod named;
mod openapi;
mod reachable;
pub(crate) mod spec;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

pub use builtin::{BuiltinTool, Builtins, Vault};
pub use effect::{Effect, EffectClass, EffectScope, EffectState, Effects};
pub use fascicle::{Caller, DEPTH_MAX, FascicleCall, FascicleRunner};
pub use hosts::Host;
pub use kip::MindGate;
pub use limits::ToolLimits;
pub(crate) use limits::Used;
pub use mcp::{Accept, At, McpServer, Pin, PinState, Pins};
pub use named::{Give, GivenTools, NamedTool, ToolId, ToolUse};
use nexus::Nexus;
pub use reachable::{GivenNow, NamedToolEntry, ReachableServer, ReachableTools, ServerTool};
use serde_json::{Map, Value, json};
use store::{Hash, Origin, Timestamp, json as text};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::NeuronError;
use crate::llm::wire::repeated_member;
use crate::neuron::{ToolCall, ToolResult};
use crate::spec::{NeuronSpec, TOOLS_MAX, compile};
use hosts::Hosts;
use limits::Counters;
use mcp::Servers;
use named::NamedTools;
use spec::{Approval, Runner, ToolSpec};

/// The maximum size of a result of which a model reads parts, in bytes. Even escaped as JSON it fits into a commit.
pub(crate) const WHOLE_BYTES_MAX: usize = 256 << 10;
/// The maximum size of a tool result in the prompt, in bytes.
pub(crate) const RESULT_BYTES_MAX: usize = 64 << 10;
/// The maximum size of a tool description in the prompt, in bytes.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4 << 10;
/// The note for a model on a tool whose calls are asked about.
const ASKS: &str = " Call it when it is wanted: the person is asked before it is done.";
/// The maximum number of times that a call is made again because its server asked for time.
const LATER_MAX: u32 = 3;
/// The maximum number of tools that a lifeform may be given, and of single tools of which a model sees the definitions.
const GIVEN_MAX: usize = 16;
/// The number of known tools above which the semaphores of idle tools are removed.
const COUNTED_MAX: usize = 1_024;

/// The hosts and servers that tools may reach, from the configuration. None by default.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The hosts of HTTP tools, such as `api.example.com` or `127.0.0.1:8080`.
    pub hosts: BTreeMap<String, Host>,
    /// The MCP servers by name.
    pub servers: BTreeMap<Arc<str>, McpServer>,
    /// The named tools by id, checked.
    pub named: BTreeMap<ToolId, NamedTool>,
}

/// The reason why a tool returned no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call was not made, or the tool itself reported an error.
    Failed(String),
    /// The call was certainly not done, and the server says when to try again.
    Later(String, Duration),
    /// The outcome is unknown.
    Unknown(String),
}

/// A tool call for the server to make.
pub(crate) struct Calling<'c> {
    pub(crate) call: &'c ToolCall,
    pub(crate) tool: &'c ToolSpec,
    /// The idempotency key of the call: a repetition of the call has the same key.
    pub(crate) key: String,
    /// The principal for whom the call is made.
    pub(crate) owner: &'c Origin,
    /// The acting principal: `owner`, limited to the rights of the authors of the calling definitions.
    pub(crate) origin: &'c Origin,
    pub(crate) account: &'c Arc<str>,
    pub(crate) caller: &'c Caller,
    /// The invocation that makes the call.
    pub(crate) parent: &'c Arc<str>,
}

/// The tools of this daemon; a cheap handle.
#[derive(Clone)]
pub struct Tools(Arc<Inner>);

struct Inner {
    nexus: Nexus,
    hosts: Hosts,
    servers: Servers,
    fascicles: OnceLock<Arc<dyn FascicleRunner>>,
    gate: OnceLock<Arc<dyn MindGate>>,
    builtins: builtin::Registry,
    named: NamedTools,
    given: OnceLock<Arc<dyn GivenTools>>,
    counters: Counters,
    /// The semaphores that limit concurrent calls of a tool, by the tool's hash and the nesting depth.
    permits: Mutex<HashMap<(Hash, usize), Weak<Semaphore>>>,
    /// The effects whose calls are under way.
    under_way: Mutex<HashSet<Arc<str>>>,
    /// The locks by name: see [`Tools::alone`].
    locks: Mutex<HashMap<Arc<str>, Weak<tokio::sync::Mutex<()>>>>,
    /// The start of the daemon.
    started_at: OnceLock<Timestamp>,
}

/// The result of a call with an effect.
pub(crate) struct Made {
    pub(crate) result: ToolResult,
    /// The whole result, if `result` holds only its beginning.
    pub(crate) whole: Option<String>,
    /// `true` if it is not known whether the call was done.
    pub(crate) is_unknown: bool,
}

/// A call with an effect that is under way, until it is dropped.
pub(crate) struct UnderWay {
    tools: Tools,
    id: Arc<str>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.tools.0.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl Tools {
    /// Creates the tools with the reach that the configuration allows.
    ///
    /// # Errors
    /// Returns an error if the HTTP client cannot be created.
    pub fn new(nexus: Nexus, reach: &Reach) -> Result<Self, NeuronError> {
        let hosts = Hosts::new(&reach.hosts).map_err(|error| NeuronError::Tools(error.to_string()))?;
        Ok(Self(Arc::new(Inner {
            nexus,
            hosts,
            servers: Servers::new(&reach.servers),
            fascicles: OnceLock::new(),
            gate: OnceLock::new(),
            builtins: builtin::Registry::default(),
            named: NamedTools::new(reach.named.clone()),
            given: OnceLock::new(),
            counters: Counters::default(),
            permits: Mutex::default(),
            under_way: Mutex::default(),
            locks: Mutex::default(),
            started_at: OnceLock::new(),
        })))
    }

    /// Sets the runner of fascicles. Only the first call has an effect.
    pub(crate) fn with_fascicles(&self, runner: Arc<dyn FascicleRunner>) {
        let _ = self.0.fascicles.set(runner);
    }

    /// Sets the judge of the jobs that may use the mind of their lifeform. Only the first call has an effect.
    pub fn guard_minds(&self, gate: Arc<dyn MindGate>) {
        let _ = self.0.gate.set(gate);
    }

    /// Adds the built-in tools of one part of the daemon.
    pub fn add(&self, part: &Arc<dyn Builtins>) {
        self.0.builtins.add(part);
    }

    /// Sets the source of the tools that lifeforms were given. Only the first call has an effect.
    pub fn give(&self, given: Arc<dyn GivenTools>) {
        let _ = self.0.given.set(given);
    }

    /// Sets the store of the accepted definitions of MCP tools. Only the first call has an effect.
    pub(crate) fn keep_pins_in(&self, pins: Arc<dyn Pins>) {
        self.0.servers.keep_pins_in(pins);
    }

    /// Returns the present definition of an MCP tool, if its hash is the one that was seen.
    ///
    /// # Errors
    /// A sentence if the server or the tool is not there, or if the definition is another one.
    pub(crate) async fn definition(&self, server: &str, tool: &str, hash: &str) -> Result<Pin, String> {
        self.0.servers.definition(server, tool, hash).await
    }

    /// Marks the definition of an MCP tool as accepted.
    pub(crate) fn accepted(&self, server: &str, tool: &str, pin: &Pin) {
        self.0.servers.is_accepted(server, tool, pin);
    }

    /// Sets the vault that opens sealed secrets. Only the first call has an effect.
    pub fn keep_secrets_in(&self, vault: Arc<dyn Vault>) {
        self.0.builtins.keep_secrets_in(vault);
    }

    /// Checks what a definition alone cannot: that the built-in and named tools that it refers to exist, that its author may
    /// refer to them, and that only operators lower an effect class.
    ///
    /// # Errors
    /// Returns a sentence that names the tool and the fault.
    pub fn check<'t>(&self, mut tools: impl Iterator<Item = &'t ToolSpec>, is_operators: bool) -> Result<(), String> {
        tools.try_for_each(|tool| match &tool.run {
            Runner::Builtin => self.0.builtins.tool(&tool.name).map(drop),
            Runner::Named(id) => self.0.named.resolved(tool, id, is_operators).map(drop),
            Runner::Given if !is_operators => {
                Err(format!("{}: only an operator's definition uses the tools that a lifeform was given", tool.name))
            }
            _ if !is_operators && tool.lowers().is_some() => Err(format!(
                "the tool {} has {}: only an operator says that a call is more harmless than it looks; leave it out",
                tool.name,
                tool.lowers().unwrap_or_default()
            )),
            _ => Ok(()),
        })
    }

    /// Checks the tools that a lifeform is given.
    ///
    /// # Errors
    /// Returns a sentence that names the tool and the fault.
    pub async fn check_uses(&self, uses: &[ToolUse]) -> Result<(), String> {
        if uses.len() > GIVEN_MAX {
            return Err(format!("tools has {} entries, the bound is {GIVEN_MAX}", uses.len()));
        }
        for (place, tool) in uses.iter().enumerate() {
            let at = |why: String| format!("tools[{place}]: {why}");
            if uses[..place].iter().any(|other| other.tool == tool.tool) {
                return Err(at(format!("duplicate \"{}\"", tool.tool)));
            }
            tool.check().map_err(at)?;
            let named = self.0.named.resolved(&tool.as_spec(), &tool.tool, true).map_err(at)?;
            // The class of a server's tool is known once its list was read.
            if tool.effect.is_some() {
                let _ = self.one_or_many(named.clone()).await;
            }
            let own = match named.effect {
                None if !named.is_many() => self.class(&named, &ToolCall::default()),
                declared => declared.unwrap_or(EffectClass::Read),
            };
            if tool.effect.is_some_and(|effect| effect < own) {
                return Err(at(format!("effect would be lower than that of \"{}\"; it may only be raised", tool.tool)));
            }
            let its = self.0.named.get(&tool.tool).map_or(Approval::Never, |known| known.tool.approval);
            if tool.approval.is_some_and(|approval| approval < its) {
                return Err(at(format!(
                    "approval would be laxer than that of \"{}\"; it may only be stricter",
                    tool.tool
                )));
            }
        }
        Ok(())
    }

    /// Returns the hosts, the servers with their tools, and the named tools.
    pub async fn reachable(&self) -> ReachableTools {
        let named = self.0.named.all();
        let named = futures::future::join_all(named.into_iter().map(|(id, tool)| self.entry(id, tool))).await;
        ReachableTools { hosts: self.0.hosts.names().to_vec(), servers: self.0.servers.reachable().await, named }
    }

    /// Returns a named tool with the single tools that it stands for.
    pub async fn named(&self, id: &ToolId) -> Option<NamedToolEntry> {
        let tool = self.0.named.get(id)?;
        Some(self.entry(id.clone(), tool).await)
    }

    async fn entry(&self, id: ToolId, tool: NamedTool) -> NamedToolEntry {
        let expanded = self.one_or_many(tool.tool.clone()).await;
        let is_configured = self.0.named.is_configured(&id);
        let (tools, error) = match expanded {
            Ok(expanded) => {
                let unreached = |tool: &ToolSpec| match &tool.run {
                    Runner::Http(request) => self.0.hosts.allows(http::host_of(request), &request.url).err(),
                    _ => None,
                };
                let why = expanded.iter().find_map(unreached);
                (expanded.iter().map(|tool| self.shown(tool)).collect(), why)
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        NamedToolEntry { id, definition: Some(tool), is_configured, tools, error }
    }

    /// Returns a single tool as the API shows it.
    fn shown(&self, tool: &ToolSpec) -> ServerTool {
        let effect = self.class(tool, &ToolCall::default());
        ServerTool {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
            writes: effect > EffectClass::Read,
            effect,
            state: PinState::Accepted,
            hash: None,
            accepted: None,
        }
    }

    /// Returns `true` if the configuration defines a named tool, so that the API cannot change it.
    pub(crate) fn is_configured(&self, id: &str) -> bool {
        self.0.named.is_configured(id)
    }

    /// Takes over a stored named tool, or forgets it.
    pub(crate) fn set_named(&self, id: &ToolId, tool: Option<NamedTool>) {
        self.0.named.set(id, tool);
    }

    /// Returns the name under which the calls of a tool are counted: `{user}/{tool}`.
    pub(crate) fn counted_as(&self, tool: &ToolSpec, calling: &Caller, origin: &Origin) -> Arc<str> {
        let by = if calling.owner.starts_with("lifeform:") { &calling.owner } else { &origin.principal.id.0 };
        match tool.pin.as_deref().and_then(|pin| pin.split('@').next()) {
            Some(named) => format!("{by}/{named}").into(),
            None => format!("{by}/inline:{}", tool.name).into(),
        }
    }

    /// Returns the counters of calls.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Stops the MCP servers that the daemon started.
    pub async fn close(&self) {
        self.0.servers.close().await;
    }

    /// Cancels the fascicles that an invocation called.
    pub(crate) async fn cancel(&self, parent: &str) {
        if let Some(fascicles) = self.0.fascicles.get() {
            fascicles.cancel(parent).await;
        }
    }

    /// Replaces each reference to a named tool, and each tool that stands for a whole server or document, by the single tools,
    /// and fills in missing descriptions and parameters. Unless an operator wrote the definition, nothing in it counts as more
    /// harmless than its runner says.
    ///
    /// # Errors
    /// Returns [`NeuronError::Tools`] if a server was never reached, and [`NeuronError::Spec`] if a named tool is gone.
    pub(crate) async fn expand(
        &self,
        spec: &mut NeuronSpec,
        owner: &str,
        is_operators: bool,
    ) -> Result<(), NeuronError> {
        let mut written = std::mem::take(&mut spec.tools);
        if !is_operators {
            written.iter_mut().for_each(ToolSpec::without_lowering);
        }
        let stands = |tool: &ToolSpec| {
            matches!(tool.run, Runner::Client | Runner::Kip { .. } | Runner::Http(_))
                && (is_operators || tool.settle.is_none())
        };
        if written.iter().all(stands) {
            spec.tools = written;
            return Ok(());
        }
        let mut tools: Vec<ToolSpec> = Vec::with_capacity(written.len());
        let (given, written): (Vec<_>, Vec<_>) = written.into_iter().partition(|tool| tool.run == Runner::Given);
        // Tools that the author named come first, so a server cannot replace one of them by a tool of the same name.
        let (mut many, mut single) = (Vec::new(), Vec::new());
        for tool in written {
            let (tool, least) = self.resolved(tool, is_operators).map_err(NeuronError::Spec)?;
            if tool.is_many() { many.push((tool, least)) } else { single.push((tool, least)) }
        }
        for (tool, least) in single {
            tools.extend(self.raised(self.one_or_many(tool).await?, least));
        }
        for (tool, least) in many {
            add(&mut tools, self.raised(self.one_or_many(tool).await?, least), TOOLS_MAX);
        }
        if !given.is_empty() && is_operators {
            let most = TOOLS_MAX.min(tools.len() + GIVEN_MAX);
            for tool in self.given(owner).await {
                add(&mut tools, tool, most);
            }
        }
        if !is_operators {
            for tool in tools.iter_mut().filter(|tool| tool.pin.is_none()) {
                tool.without_lowering();
                // A look-up is not recorded, so it must not write.
                let writes = |looks: &spec::Settle| {
                    let looks = ToolSpec { run: looks.run.clone(), ..ToolSpec::default() };
                    self.class(&looks, &ToolCall::default()) > EffectClass::Read
                };
                tool.settle.take_if(|settle| writes(settle));
            }
        }
        spec.tools = tools;
        Ok(())
    }

    /// Returns the tools that a lifeform was given, each with the single tools that it stands for. A tool that is gone or cannot
    /// be reached is left out: it stops nothing else.
    pub(crate) async fn given(&self, owner: &str) -> Vec<Vec<ToolSpec>> {
        let uses = match self.0.given.get() {
            Some(given) => given.given(owner).await,
            None => Vec::new(),
        };
        let expanded = futures::future::join_all(uses.iter().map(|tool| self.given_one(tool))).await.into_iter();
        let usable = |one: Result<Vec<ToolSpec>, String>| {
            one.inspect_err(|why| tracing::warn!(owner, why, "a given tool is left out")).ok()
        };
        expanded.filter_map(usable).collect()
    }

    /// Returns uses of named tools with the single tools that a model sees, or the reason why it sees none or fewer.
    pub async fn given_now(&self, uses: &[ToolUse]) -> Vec<(ToolUse, GivenNow)> {
        let expanded = futures::future::join_all(uses.iter().map(|tool| self.given_one(tool))).await;
        let mut room = GIVEN_MAX;
        let now = |(tool, expanded): (&ToolUse, Result<Vec<ToolSpec>, String>)| {
            let now = match expanded {
                Err(error) => GivenNow { tools: Vec::new(), error: Some(error) },
                Ok(tools) => {
                    let left_out = tools.len().saturating_sub(room);
                    let shown: Vec<ServerTool> = tools.iter().take(room).map(|tool| self.shown(tool)).collect();
                    room -= shown.len();
                    let why =
                        format!("a model sees {GIVEN_MAX} given tools at most, and {left_out} of these are left out");
                    GivenNow { tools: shown, error: (left_out > 0).then_some(why) }
                }
            };
            (tool.clone(), now)
        };
        uses.iter().zip(expanded).map(now).collect()
    }

    /// Returns the single tools of a use, with its rules.
    async fn given_one(&self, tool: &ToolUse) -> Result<Vec<ToolSpec>, String> {
        let (resolved, least) = self.resolved(tool.as_spec(), true)?;
        let tools = self.one_or_many(resolved).await.map_err(|error| error.to_string())?;
        let mut tools = self.raised(tools, least);
        for tool in &mut tools {
            let is_asked = match tool.approval {
                Approval::Never => false,
                Approval::OnWrite => self.writes(tool, &ToolCall::default()),
                Approval::Always => true,
            };
            if is_asked || tool.effect == Some(EffectClass::Irreversible) {
                // Otherwise a model asks, too.
                tool.description.push_str(ASKS);
            }
        }
        Ok(tools)
    }

    /// Returns the tool that an entry refers to, with the class that the entry raises it to.
    fn resolved(&self, tool: ToolSpec, is_operators: bool) -> Result<(ToolSpec, Option<EffectClass>), String> {
        match &tool.run {
            Runner::Named(id) => Ok((self.0.named.resolved(&tool, id, is_operators)?, tool.effect)),
            _ => Ok((tool, None)),
        }
    }

    /// Raises the class of tools to at least `least`.
    fn raised(&self, mut tools: Vec<ToolSpec>, least: Option<EffectClass>) -> Vec<ToolSpec> {
        for tool in &mut tools {
            if let Some(least) = least {
                tool.effect = Some(self.class(tool, &ToolCall::default()).max(least));
            }
        }
        tools
    }

    /// Removes the tools that can do nothing for a caller now: built-in ones that do not apply, and the whole mind where
    /// its gate refuses the caller.
    pub(crate) async fn keep_offered(&self, spec: &mut NeuronSpec, origin: &Origin, caller: &Caller) {
        let mut kept = Vec::with_capacity(spec.tools.len());
        for tool in std::mem::take(&mut spec.tools) {
            let is_offered = match &tool.run {
                Runner::Builtin => self.0.builtins.offers(&tool.name, origin, caller).await,
                Runner::Kip { nexus, .. } => kip::nexus_of(nexus, caller, self.0.gate.get()).await.is_ok(),
                _ => true,
            };
            if is_offered {
                kept.push(tool);
            }
        }
        spec.tools = kept;
    }

    async fn one_or_many(&self, tool: ToolSpec) -> Result<Vec<ToolSpec>, NeuronError> {
        let own = match &tool.run {
            Runner::Mcp(mcp) => self.0.servers.tools(&tool, mcp).await.map_err(NeuronError::Tools)?,
            Runner::Openapi(document) => openapi::tools(&tool, document).map_err(NeuronError::Spec)?,
            Runner::Fascicle(fascicle) => {
                let description = match self.0.fascicles.get() {
                    Some(fascicles) => fascicles.description(&fascicle.id).await,
                    None => None,
                };
                let description = description.unwrap_or_default();
                let parameters =
                    json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]});
                vec![ToolSpec { description, parameters, ..tool.clone() }]
            }
            Runner::Builtin => {
                let own = self.0.builtins.tool(&tool.name).map_err(NeuronError::Spec)?;
                vec![ToolSpec { description: own.description.into(), parameters: own.closed(), ..tool.clone() }]
            }
            Runner::Client | Runner::Kip { .. } | Runner::Http(_) => vec![tool.clone()],
            Runner::Named(_) | Runner::Given => return Err(NeuronError::Spec(format!("{} is a reference", tool.name))),
        };
        // A description or schema by the author takes precedence.
        let given = (!tool.is_many() && tool.parameters != json!({"type": "object"})).then_some(&tool.parameters);
        Ok(own
            .into_iter()
            .map(|mut own| {
                if !tool.is_many() && !tool.description.is_empty() {
                    own.description.clone_from(&tool.description);
                }
                if let Some(parameters) = given {
                    own.parameters.clone_from(parameters);
                }
                own
            })
            .collect())
    }

    /// Returns `true` if any call of a tool may change something.
    pub(crate) fn may_write(&self, tool: &ToolSpec) -> bool {
        match &tool.run {
            Runner::Kip { readonly, .. } => !readonly,
            // The named tool may be anything, and is not looked up here.
            Runner::Named(_) | Runner::Given => true,
            _ => self.writes(tool, &ToolCall::default()),
        }
    }

    /// Returns `true` if a call may change something.
    pub(crate) fn writes(&self, tool: &ToolSpec, call: &ToolCall) -> bool {
        self.class(tool, call) > EffectClass::Read
    }

    /// Returns the effect class of a call.
    pub(crate) fn class(&self, tool: &ToolSpec, call: &ToolCall) -> EffectClass {
        let write_if = |writes: bool| if writes { EffectClass::Write } else { EffectClass::Read };
        let own = match &tool.run {
            Runner::Client => EffectClass::Read,
            Runner::Kip { readonly, .. } => write_if(!readonly && kip::writes(&call.params)),
            Runner::Http(request) => http::class_of(request),
            Runner::Mcp(mcp) => self.0.servers.class(mcp),
            Runner::Fascicle(fascicle) => write_if(fascicle.writes),
            Runner::Builtin => write_if(!self.0.builtins.only_reads(&tool.name)),
            Runner::Openapi(_) | Runner::Named(_) | Runner::Given => EffectClass::Write,
        };
        let own = if tool.repeatable { own.min(EffectClass::Idempotent) } else { own };
        tool.effect.unwrap_or(own)
    }

    /// Returns the class of the effect of a call outside the daemon, the place where it happens, and whether the call may only
    /// read although nobody said so; `None` for a call that reads or stays in the daemon.
    pub(crate) fn effect_of(&self, tool: &ToolSpec, call: &ToolCall) -> Option<(EffectClass, Arc<str>, bool)> {
        let class = self.class(tool, call);
        if class == EffectClass::Read {
            return None;
        }
        let may_read = match &tool.run {
            Runner::Http(_) => false,
            Runner::Mcp(mcp) => tool.effect.is_none() && !self.0.servers.knows(mcp),
            _ => return None,
        };
        Some((class, place_of(tool).into(), may_read))
    }

    /// Checks that the secrets that a call names may be sent where it goes.
    ///
    /// # Errors
    /// A sentence for the model.
    pub(crate) async fn may_send(&self, tool: &ToolSpec, call: &ToolCall, origin: &Origin) -> Result<(), String> {
        match tool.run.is_outside() && names_a_secret(call) {
            true => self.0.builtins.may_send(&Value::Object(given(call)?), &place_of(tool), origin).await,
            false => Ok(()),
        }
    }

    /// Marks the call of an effect as under way until the result is dropped.
    pub(crate) fn under_way(&self, id: &Arc<str>) -> UnderWay {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        UnderWay { tools: self.clone(), id: id.clone() }
    }

    /// Returns `true` if the call of an effect is under way.
    pub(crate) fn is_under_way(&self, id: &str) -> bool {
        self.0.under_way.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Waits until nothing else holds the lock of this name, and holds it until the result is dropped.
    pub(crate) async fn alone(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.locks.lock().unwrap_or_else(PoisonError::into_inner);
            if locks.len() > COUNTED_MAX {
                locks.retain(|_, known| known.strong_count() > 0);
            }
            let known = locks.get(name).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                locks.insert(name.into(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }

    /// Sets the start of the daemon. Only the first call has an effect.
    pub(crate) fn started(&self, at: Timestamp) {
        let _ = self.0.started_at.set(at);
    }

    /// Returns the start of the daemon.
    pub(crate) fn started_at(&self) -> Timestamp {
        self.0.started_at.get().copied().unwrap_or(Timestamp::MIN)
    }

    /// Returns `true` if a tool's results contain content of other authors: from the network, from a mind or the
    /// commons, or from a fascicle.
    pub(crate) fn brings_in(&self, tool: &ToolSpec) -> bool {
        match &tool.run {
            Runner::Client => false,
            Runner::Builtin => self.0.builtins.quotes(&tool.name),
            _ => true,
        }
    }

    /// Returns `true` if a call needs an approval. A call with external effects that an untrusted speaker caused always
    /// needs one, and so does each irreversible call of a lifeform.
    pub(crate) fn needs_approval(&self, tool: &ToolSpec, call: &ToolCall, caller: &Caller) -> bool {
        let outside = tool.run.is_outside();
        let is_final = caller.owner.starts_with("lifeform:") && self.class(tool, call) == EffectClass::Irreversible;
        let for_a_stranger = match outside {
            // Any author can name a secret in a definition, so a person must approve this very call before the secret
            // is used.
            true if names_a_secret(call) => Approval::Always,
            true if caller.is_untrusted() || is_final => Approval::OnWrite,
            _ => Approval::Never,
        };
        let configured = match &tool.run {
            Runner::Mcp(mcp) => self.0.servers.approval(mcp),
            _ => Approval::Never,
        };
        match tool.approval.max(configured).max(for_a_stranger) {
            Approval::Never => false,
            Approval::OnWrite => self.writes(tool, call),
            Approval::Always => true,
        }
    }

    /// Returns `true` if a call that was interrupted by a daemon stop simply continues. This holds for fascicles: the
    /// job is found by its name.
    pub(crate) fn is_repeatable(&self, tool: &ToolSpec, call: &ToolCall) -> bool {
        tool.repeatable || matches!(tool.run, Runner::Kip { .. } | Runner::Fascicle(_)) || !self.writes(tool, call)
    }

    /// Returns `true` if a call that failed, or whose outcome is unknown, may be repeated.
    pub(crate) fn may_repeat(&self, tool: &ToolSpec) -> bool {
        tool.repeatable || matches!(tool.run, Runner::Kip { .. }) || !self.may_write(tool)
    }

    /// Makes a call. A failure is also a result; it tells the model the reason.
    pub(crate) async fn run(&self, calling: Calling<'_>) -> Made {
        let (id, limit) = (calling.call.id.clone(), Duration::from_secs(calling.tool.seconds()));
        let permits = self.permits(calling.tool, calling.caller.depth);
        let end = tokio::time::Instant::now() + limit;
        let (is_sent, mut tries) = (AtomicBool::new(false), 0);
        let made = loop {
            let made = match tokio::time::timeout_at(end, permits.acquire()).await {
                Ok(_permit) => {
                    let made = tokio::time::timeout(limit, self.make(&calling, limit, &is_sent)).await;
                    made.unwrap_or_else(|_| match is_sent.load(Ordering::SeqCst) {
                        true => Err(Failure::Unknown(format!("it took longer than {} s", limit.as_secs()))),
                        false => Err(Failure::Failed(format!("not called: {} s waited for its turn", limit.as_secs()))),
                    })
                }
                Err(_) => Err(Failure::Failed(format!("not called: {} s waited for its turn", limit.as_secs()))),
            };
            match made {
                // The call was not done, so it is made again if the server can take it in time. Others have the turn meanwhile.
                Err(Failure::Later(_, wait)) if tries < LATER_MAX && tokio::time::Instant::now() + wait < end => {
                    tries += 1;
                    is_sent.store(false, Ordering::SeqCst);
                    tokio::time::sleep(wait).await;
                }
                made => break made,
            }
        };
        match made {
            Ok(result) => {
                let most = calling.tool.limits.result_bytes.unwrap_or(RESULT_BYTES_MAX);
                let whole = (result.len() > most).then(|| cut_to(result.clone(), WHOLE_BYTES_MAX));
                let result = Some(cut_to(result, most));
                Made { result: ToolResult { id, result, ..ToolResult::default() }, whole, is_unknown: false }
            }
            Err(failure) => {
                let is_unknown = matches!(failure, Failure::Unknown(_));
                let error = match failure {
                    Failure::Unknown(why) if self.writes(calling.tool, calling.call) => {
                        format!("{why}; its outcome is unknown")
                    }
                    Failure::Unknown(why) | Failure::Failed(why) => why,
                    Failure::Later(why, wait) => format!("{why}; try again in {} s", wait.as_secs()),
                };
                let error = Some(cut_to(error, RESULT_BYTES_MAX));
                Made { result: ToolResult { id, error, ..ToolResult::default() }, whole: None, is_unknown }
            }
        }
    }

    /// Makes a call. `is_sent` becomes `true` before anything leaves the daemon.
    async fn make(&self, calling: &Calling<'_>, limit: Duration, is_sent: &AtomicBool) -> Result<String, Failure> {
        let Calling { call, tool, key, owner, origin, account, caller, parent } = calling;
        if let Some(pin) = &tool.pin {
            self.0.named.check_pin(pin).map_err(Failure::Failed)?;
        }
        is_sent.store(!tool.run.is_outside(), Ordering::SeqCst);
        match &tool.run {
            Runner::Client => Err(Failure::Failed("this tool is the client's".into())),
            Runner::Kip { nexus, readonly } => {
                let nexus = kip::nexus_of(nexus, caller, self.0.gate.get()).await.map_err(Failure::Failed)?;
                kip::run(&self.0.nexus, &nexus, *readonly, &call.params, origin).await.map_err(Failure::Failed)
            }
            Runner::Builtin => {
                self.0.builtins.run(&tool.name, given(call).map_err(Failure::Failed)?, origin, caller).await
            }
            Runner::Http(_) | Runner::Mcp(_) => {
                let given = given(call).map_err(Failure::Failed)?;
                let place = place_of(tool);
                let filled = self.0.builtins.fill(given, &tool.name, &place, origin).await;
                let (given, filled) = filled.map_err(Failure::Failed)?;
                let made = match &tool.run {
                    Runner::Mcp(mcp) => self.0.servers.run(mcp, given, key, is_sent).await,
                    Runner::Http(request) => {
                        let key = self.writes(tool, call).then_some(&**key);
                        http::run(&self.0.hosts, request, &given, key, is_sent).await
                    }
                    _ => unreachable!("those two"),
                };
                match made {
                    Ok(result) => Ok(filled.scrubbed(result)),
                    Err(Failure::Failed(why)) => Err(Failure::Failed(filled.scrubbed(why))),
                    Err(Failure::Later(why, wait)) => Err(Failure::Later(filled.scrubbed(why), wait)),
                    Err(Failure::Unknown(why)) => Err(Failure::Unknown(filled.scrubbed(why))),
                }
            }
            Runner::Openapi(_) | Runner::Named(_) | Runner::Given => {
                Err(Failure::Failed("this tool stands for many, and none of them".into()))
            }
            Runner::Fascicle(fascicle) => {
                if caller.depth >= DEPTH_MAX {
                    return Err(Failure::Failed(format!(
                        "fascicles that are tools are at most {DEPTH_MAX} within each other"
                    )));
                }
                let none = || Failure::Failed("nothing here runs fascicles".into());
                let runner = self.0.fascicles.get().ok_or_else(none)?;
                let input = match given(call).map_err(Failure::Failed)? {
                    input if input.len() == 1 && input.contains_key("input") => input["input"].clone(),
                    input => Value::Object(input),
                };
                let call = FascicleCall {
                    fascicle: fascicle.id.clone(),
                    key: key.clone(),
                    input,
                    origin: (*owner).clone(),
                    account: (*account).clone(),
                    caller: Caller { depth: caller.depth + 1, ..(*caller).clone() },
                    parent: (*parent).clone(),
                    // A deadline of the job itself, in case no caller is left to cancel it.
                    deadline_s: limit.as_secs() + 1,
                };
                let output = runner.run(call).await.map_err(Failure::Failed)?;
                let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
                // A model takes an empty result for a fault.
                Ok(if text.trim().is_empty() { "It brought nothing.".to_owned() } else { text })
            }
        }
    }

    /// Returns the semaphore of a tool at a depth. A caller that waits for a fascicle keeps its permit, so each depth
    /// has permits of its own: a caller waits only for a greater depth, so waits cannot form a cycle.
    fn permits(&self, tool: &ToolSpec, depth: usize) -> Arc<Semaphore> {
        let mut permits = self.0.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if permits.len() > COUNTED_MAX {
            permits.retain(|_, known| known.strong_count() > 0);
        }
        let known = permits.entry((Hash::of(&text(tool)), depth)).or_default();
        known.upgrade().unwrap_or_else(|| {
            let fresh = Arc::new(Semaphore::new(tool.at_once()));
            *known = Arc::downgrade(&fresh);
            fresh
        })
    }
}

/// Returns the place outside where the calls of a tool have their effects: a host, or `mcp:` and the name of a server.
fn place_of(tool: &ToolSpec) -> String {
    match &tool.run {
        Runner::Http(request) => http::host_of(request).to_owned(),
        Runner::Mcp(mcp) => format!("mcp:{}", mcp.server),
        _ => String::new(),
    }
}

/// Adds tools, as long as there is room and no tool has the name already.
fn add(tools: &mut Vec<ToolSpec>, more: Vec<ToolSpec>, most: usize) {
    for tool in more {
        if tools.len() >= most || tools.iter().any(|known| known.name == tool.name) {
            tracing::warn!(tool = tool.name, "left out: the neuron has one of that name, or too many");
        } else {
            tools.push(tool);
        }
    }
}

/// Parses the arguments of a call.
fn given(call: &ToolCall) -> Result<Map<String, Value>, String> {
    if call.params.trim().is_empty() {
        return Ok(Map::new());
    }
    if let Some(repeated) = repeated_member(call.params.as_bytes()) {
        return Err(format!("the parameters are not JSON: {repeated}"));
    }
    match serde_json::from_str(&call.params) {
        Ok(Value::Object(given)) => Ok(given),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("the parameters must be a JSON object".into()),
        Err(error) => Err(format!("the parameters are not JSON: {error}")),
    }
}

/// Returns `true` if the decoded arguments of a call name a secret. The arguments are decoded first, because JSON can
/// write the same text in several ways. Arguments that cannot be parsed count as naming a secret.
pub fn names_a_secret(call: &ToolCall) -> bool {
    given(call).map_or(true, |given| !builtin::named(&Value::Object(given)).is_empty())
}

/// Checks the arguments of a call against the schema of its tool.
///
/// # Errors
/// Returns the faults, as a text for the model.
pub(crate) fn fits(tool: &ToolSpec, call: &ToolCall) -> Result<(), String> {
    // KIP reports faults of a command more precisely itself.
    if matches!(tool.run, Runner::Client | Runner::Kip { .. }) {
        return Ok(());
    }
    let given = Value::Object(given(call)?);
    let validator = compile(&tool.parameters)?;
    match validator.iter_errors(&given).next() {
        None => Ok(()),
        Some(fault) => Err(format!("the parameters do not fit: {fault} at \"{}\"", fault.instance_path())),
    }
}

/// The marker at the end of a truncated text.
const CUT: &str = "\n[… cut short]";

/// Truncates a text and appends the marker.
fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let room = bytes_max - CUT.len();
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(CUT);
    }
}

pub(crate) fn cut_to(mut text: String, bytes_max: usize) -> String {
    cut(&mut text, bytes_max);
    text
}
