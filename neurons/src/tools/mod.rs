//! Tools that run on the server: KIP, HTTP requests, MCP servers, fascicles. Each call is bounded in time and number,
//! its arguments fit its schema, and its failure is reported to the model like any other result.

mod builtin;
pub(crate) mod effect;
mod fascicle;
mod hosts;
mod http;
pub(crate) mod kip;
mod mcp;
mod openapi;
mod reachable;
pub(crate) mod spec;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

pub use builtin::{BuiltinTool, Builtins, Vault};
pub use effect::{Effect, EffectClass, EffectScope, EffectState, Effects};
pub use fascicle::{Caller, DEPTH_MAX, FascicleCall, FascicleRunner};
pub use hosts::Host;
pub use kip::MindGate;
pub use mcp::{At, McpServer};
use nexus::Nexus;
pub use reachable::{ReachableServer, ReachableTools, ServerTool};
use serde_json::{Map, Value, json};
use store::{Hash, Origin, Timestamp, json as text};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::NeuronError;
use crate::llm::wire::repeated_member;
use crate::neuron::{ToolCall, ToolResult};
use crate::spec::{NeuronSpec, TOOLS_MAX, compile};
use hosts::Hosts;
use mcp::Servers;
use spec::{Approval, Runner, ToolSpec};

/// The maximum size of a tool result in the prompt, in bytes.
pub(crate) const RESULT_BYTES_MAX: usize = 64 << 10;
/// The maximum size of a tool description in the prompt, in bytes.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4 << 10;
/// The number of known tools above which the semaphores of idle tools are removed.
const COUNTED_MAX: usize = 1_024;

/// The hosts and servers that tools may reach, from the configuration. None by default.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The hosts of HTTP tools, such as `api.example.com` or `127.0.0.1:8080`.
    pub hosts: BTreeMap<String, Host>,
    /// The MCP servers by name.
    pub servers: BTreeMap<Arc<str>, McpServer>,
}

/// The reason why a tool returned no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call was not made, or the tool itself reported an error.
    Failed(String),
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
        let servers = Servers::new(&reach.servers);
        let (fascicles, gate) = (OnceLock::new(), OnceLock::new());
        let (builtins, permits) = (builtin::Registry::default(), Mutex::default());
        let (under_way, locks, started_at) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let inner = Inner { nexus, hosts, servers, fascicles, gate, builtins, permits, under_way, locks, started_at };
        Ok(Self(Arc::new(inner)))
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

    /// Sets the vault that opens sealed secrets. Only the first call has an effect.
    pub fn keep_secrets_in(&self, vault: Arc<dyn Vault>) {
        self.0.builtins.keep_secrets_in(vault);
    }

    /// Checks what a definition alone cannot: that the built-in tools that it names exist.
    ///
    /// # Errors
    /// Returns [`NeuronError::Spec`] with the names of the existing tools.
    pub(crate) fn check(&self, spec: &NeuronSpec) -> Result<(), NeuronError> {
        let mut own = spec.tools.iter().filter(|tool| tool.run == Runner::Builtin);
        own.try_for_each(|tool| self.0.builtins.tool(&tool.name).map(drop).map_err(NeuronError::Spec))
    }

    /// Returns the hosts and the tools that a definition may name.
    pub async fn reachable(&self) -> ReachableTools {
        ReachableTools { hosts: self.0.hosts.names().to_vec(), servers: self.0.servers.reachable().await }
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

    /// Replaces each tool that stands for a whole server or document by its single tools, and fills in missing
    /// descriptions and parameters.
    ///
    /// # Errors
    /// Returns [`NeuronError::Tools`] if a server was never reached, and [`NeuronError::Input`] if there are too many
    /// tools.
    pub(crate) async fn expand(&self, spec: &mut NeuronSpec) -> Result<(), NeuronError> {
        if spec.tools.iter().all(|tool| matches!(tool.run, Runner::Client | Runner::Kip { .. } | Runner::Http(_))) {
            return Ok(());
        }
        let mut tools: Vec<ToolSpec> = Vec::with_capacity(spec.tools.len());
        // Tools that the author named come first, so a server cannot replace one of them by a tool of the same name.
        let (many, single): (Vec<ToolSpec>, Vec<ToolSpec>) =
            std::mem::take(&mut spec.tools).into_iter().partition(ToolSpec::is_many);
        for tool in single {
            tools.extend(self.one_or_many(tool).await?);
        }
        for tool in many {
            for own in self.one_or_many(tool).await? {
                if tools.len() >= TOOLS_MAX || tools.iter().any(|known| known.name == own.name) {
                    tracing::warn!(tool = own.name, "left out: the neuron has one of that name, or too many");
                } else {
                    tools.push(own);
                }
            }
        }
        spec.tools = tools;
        Ok(())
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
            _ => self.writes(tool, &ToolCall::default()),
        }
    }

    /// Returns `true` if a call may change something.
    pub(crate) fn writes(&self, tool: &ToolSpec, call: &ToolCall) -> bool {
        match &tool.run {
            Runner::Client => false,
            Runner::Kip { readonly, .. } => !readonly && kip::writes(&call.params),
            Runner::Http(request) => http::writes(request),
            Runner::Mcp(mcp) => self.0.servers.rules(mcp).0,
            Runner::Fascicle(fascicle) => fascicle.writes,
            Runner::Builtin => !self.0.builtins.only_reads(&tool.name),
            Runner::Openapi(_) => true,
        }
    }

    /// Returns the class of the effect of a call outside the daemon, the place where it happens, and whether the call may only
    /// read although nobody said so; `None` for a call that reads or stays in the daemon.
    pub(crate) fn effect_of(&self, tool: &ToolSpec, call: &ToolCall) -> Option<(EffectClass, Arc<str>, bool)> {
        if !self.writes(tool, call) {
            return None;
        }
        let class =
            |idempotent| if tool.repeatable || idempotent { EffectClass::Idempotent } else { EffectClass::Write };
        match &tool.run {
            Runner::Http(request) => {
                let repeats = matches!(request.method, spec::Method::Put | spec::Method::Delete);
                Some((class(repeats), http::host_of(request).into(), false))
            }
            Runner::Mcp(mcp) => {
                let knows = self.0.servers.trusts_hints(mcp);
                Some((class(self.0.servers.is_idempotent(mcp)), format!("mcp:{}", mcp.server).into(), !knows))
            }
            _ => None,
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
            Runner::Kip { .. } | Runner::Http(_) | Runner::Mcp(_) | Runner::Openapi(_) | Runner::Fascicle(_) => true,
        }
    }

    /// Returns `true` if a call needs an approval. A call with external effects that an untrusted speaker caused always
    /// needs one.
    pub(crate) fn needs_approval(&self, tool: &ToolSpec, call: &ToolCall, caller: &Caller) -> bool {
        let outside = matches!(tool.run, Runner::Http(_) | Runner::Mcp(_) | Runner::Openapi(_));
        let for_a_stranger = match outside {
            // Any author can name a secret in a definition, so a person must approve this very call before the secret
            // is used.
            true if names_a_secret(call) => Approval::Always,
            true if caller.is_untrusted() => Approval::OnWrite,
            _ => Approval::Never,
        };
        let configured = match &tool.run {
            Runner::Mcp(mcp) => self.0.servers.rules(mcp).1,
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
        let made = match tokio::time::timeout(limit, permits.acquire()).await {
            Ok(_permit) => {
                let late = || Failure::Unknown(format!("it took longer than {} s", limit.as_secs()));
                let made = tokio::time::timeout(limit, self.make(&calling, limit)).await;
                made.unwrap_or_else(|_| Err(late()))
            }
            Err(_) => Err(Failure::Failed(format!("not called: {} s waited for its turn", limit.as_secs()))),
        };
        match made {
            Ok(result) => {
                let result = Some(cut_to(result, RESULT_BYTES_MAX));
                Made { result: ToolResult { id, result, ..ToolResult::default() }, is_unknown: false }
            }
            Err(failure) => {
                let is_unknown = matches!(failure, Failure::Unknown(_));
                let error = match failure {
                    Failure::Unknown(why) if self.writes(calling.tool, calling.call) => {
                        format!("{why}; its outcome is unknown")
                    }
                    Failure::Unknown(why) | Failure::Failed(why) => why,
                };
                let error = Some(cut_to(error, RESULT_BYTES_MAX));
                Made { result: ToolResult { id, error, ..ToolResult::default() }, is_unknown }
            }
        }
    }

    async fn make(&self, calling: &Calling<'_>, limit: Duration) -> Result<String, Failure> {
        let Calling { call, tool, key, owner, origin, account, caller, parent } = calling;
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
                let (given, filled) = self.0.builtins.fill(given, &tool.name, origin).await.map_err(Failure::Failed)?;
                let made = match &tool.run {
                    Runner::Mcp(mcp) => self.0.servers.run(mcp, given).await,
                    Runner::Http(request) => http::run(&self.0.hosts, request, &given, key).await,
                    _ => unreachable!("those two"),
                };
                match made {
                    Ok(result) => Ok(filled.scrubbed(result)),
                    Err(Failure::Failed(why)) => Err(Failure::Failed(filled.scrubbed(why))),
                    Err(Failure::Unknown(why)) => Err(Failure::Unknown(filled.scrubbed(why))),
                }
            }
            Runner::Openapi(_) => Err(Failure::Failed("this tool stands for many, and none of them".into())),
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
fn names_a_secret(call: &ToolCall) -> bool {
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

fn cut_to(mut text: String, bytes_max: usize) -> String {
    cut(&mut text, bytes_max);
    text
}
