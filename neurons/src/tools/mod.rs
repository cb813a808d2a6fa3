//! Tools that run on the server: KIP, HTTP requests, MCP servers, fascicles. Each call is bounded in time and number,
//! its arguments fit its schema, and its failure is reported to the model like any other result.

mod bound;
mod builtin;
pub(crate) mod effect;
pub(crate) mod egress;
pub mod expression;
mod fascicle;
pub(crate) mod finding;
pub(crate) mod form;
pub(crate) mod handles;
mod hosts;
mod http;
mod inert;
mod key_argument;
pub(crate) mod kip;
pub mod lesson;
mod limits;
mod mcp;
mod named;
mod openapi;
pub(crate) mod projection;
pub(crate) mod provenance;
mod reachable;
pub(crate) mod reckoning;
mod resolving;
mod rules;
pub(crate) mod said;
pub(crate) mod shortening;
pub(crate) mod spec;
mod tasks;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

pub use bound::{Binding, Grant, PlannedCall, ToolCard, work_of_step};
pub use builtin::{BuiltinTool, Builtins, Vault};
pub use effect::{Effect, EffectClass, EffectScope, EffectState, Effects, NotedCall};
pub use egress::carries_memory;
pub use fascicle::{Assembled, Caller, DEPTH_MAX, FascicleCall, FascicleRunner};
pub use form::Form;
use form::{AskedForm, Forms};
pub use hosts::Host;
pub use inert::{NAME_CHARS, VALUE_CHARS, is_inert, is_name};
pub use kip::MindGate;
pub use limits::ToolLimits;
pub(crate) use limits::Used;
pub use mcp::{Accept, At, EFFECT_KEY, McpServer, Pin, PinState, Pins, Task};
pub use named::{Give, GivenTools, NamedTool, ToolId, ToolUse};
use nexus::Nexus;
pub use projection::{passes_texts, rename_texts};
pub use provenance::ArgumentOrigin;
pub use reachable::{GivenNow, NamedToolEntry, ReachableServer, ReachableTools, ServerTool};
pub(crate) use resolving::GIVEN_MAX;
pub use rules::names_a_secret;
use rules::place_of;
use serde_json::{Map, Value};
use store::{Hash, Origin, Timestamp, json as text};
use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::NeuronError;
use crate::effects::STOPPED;
use crate::llm::wire::repeated_member;
use crate::neuron::{ToolCall, ToolResult};
use crate::spec::compile;
use fascicle::Written;
use hosts::Hosts;
use limits::Counters;
use mcp::Servers;
use named::NamedTools;
use spec::{Runner, ToolSpec};

/// The maximum size of a result of which a model reads parts, in bytes. Even escaped as JSON it fits into a commit.
pub(crate) const WHOLE_BYTES_MAX: usize = 256 << 10;
/// The maximum size of a tool result in the prompt, in bytes.
pub(crate) const RESULT_BYTES_MAX: usize = 64 << 10;
/// The maximum size of a tool description in the prompt, in bytes.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 4 << 10;
/// The maximum number of times that a call is made again because its server asked for time.
const LATER_MAX: u32 = 3;
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
    /// The named tools that the daemon ships, checked.
    pub shipped: BTreeMap<ToolId, NamedTool>,
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
    /// The server carries the call out as a task, and is to be asked about it after this time.
    Task(Box<Task>, Duration),
    /// The server goes on once a person has answered its form.
    Form(Box<AskedForm>),
}

impl Failure {
    /// Returns the failure with its words changed.
    fn with_words(self, change: impl Fn(String) -> String) -> Self {
        match self {
            Self::Failed(why) => Self::Failed(change(why)),
            Self::Later(why, wait) => Self::Later(change(why), wait),
            Self::Unknown(why) => Self::Unknown(change(why)),
            Self::Task(task, wait) => Self::Task(task, wait),
            Self::Form(mut asked) => {
                asked.form.message = change(std::mem::take(&mut asked.form.message));
                Self::Form(asked)
            }
        }
    }
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
    /// The tools of the neuron that makes it.
    pub(crate) beside: &'c [ToolSpec],
    /// The questions that its server may ask, and the answers to those that it asked.
    pub(crate) forms: Forms<'c>,
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
    /// The tasks of servers that are waited for, with the invocations that wait.
    tasks: Mutex<Vec<(Arc<str>, Task)>>,
    /// The locks by name: see [`Tools::alone`].
    locks: Mutex<HashMap<Arc<str>, Weak<tokio::sync::Mutex<()>>>>,
    /// The start of the daemon.
    started_at: OnceLock<Timestamp>,
    /// The moment at which the daemon was restored to an earlier state.
    restored_at: OnceLock<Timestamp>,
}

/// The result of a call with an effect.
pub(crate) struct Made {
    pub(crate) result: ToolResult,
    /// The whole result, if `result` holds only its beginning.
    pub(crate) whole: Option<String>,
    /// `true` if it is not known whether the call was done.
    pub(crate) is_unknown: bool,
    /// The task as which the server carries the call out, and the time after which to ask about it: there is no result yet.
    pub(crate) task: Option<(Task, Duration)>,
    /// The form that a person must answer before the call goes on: there is no result yet.
    pub(crate) form: Option<Box<AskedForm>>,
}

impl Made {
    /// Creates the result of a call that has ended.
    pub(crate) fn of(result: ToolResult) -> Self {
        Self { result, whole: None, is_unknown: false, task: None, form: None }
    }
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
            named: NamedTools::new(reach.named.clone(), reach.shipped.clone()),
            given: OnceLock::new(),
            counters: Counters::default(),
            permits: Mutex::default(),
            under_way: Mutex::default(),
            tasks: Mutex::default(),
            locks: Mutex::default(),
            started_at: OnceLock::new(),
            restored_at: OnceLock::new(),
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

    /// Cancels the fascicles that an invocation called, and the tasks that it waited for.
    pub(crate) async fn cancel(&self, parent: &str) {
        self.cancel_tasks(|waits| **waits == *parent);
        if let Some(fascicles) = self.0.fascicles.get() {
            fascicles.cancel(parent).await;
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

    /// Returns an effect as it is known now: a call that is announced, and that this process does not make, was cut off, so its outcome
    /// is unknown.
    pub fn as_known(&self, mut effect: Effect) -> Effect {
        if effect.state == EffectState::Announced && !self.is_under_way(&effect.id) {
            effect.state = EffectState::Unknown;
            effect.why.get_or_insert_with(|| STOPPED.to_owned());
        }
        effect
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

    /// Sets the moment at which the daemon was restored to an earlier state. Only the first call has an effect.
    pub fn restored(&self, at: Timestamp) {
        let _ = self.0.restored_at.set(at);
    }

    /// Returns the moment at which the daemon was restored to an earlier state, if it ever was.
    pub fn restored_at(&self) -> Option<Timestamp> {
        self.0.restored_at.get().copied()
    }

    /// Makes a call. A failure is also a result; it tells the model the reason.
    pub(crate) async fn run(&self, calling: Calling<'_>) -> Made {
        let limit = Duration::from_secs(calling.tool.seconds());
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
        if let Err(Failure::Task(task, _)) = &made {
            self.wait_for(calling.parent, task);
        }
        self.made_of(&calling, made)
    }

    /// Returns the result of a call for its model.
    fn made_of(&self, calling: &Calling<'_>, made: Result<String, Failure>) -> Made {
        let id = calling.call.id.clone();
        match made {
            Ok(result) => {
                let most = calling.tool.limits.result_bytes.unwrap_or(RESULT_BYTES_MAX);
                let whole = (result.len() > most).then(|| cut_to(result.clone(), WHOLE_BYTES_MAX));
                let result = Some(cut_to(result, most));
                Made { whole, ..Made::of(ToolResult { id, result, ..ToolResult::default() }) }
            }
            Err(failure) => {
                let is_unknown = matches!(failure, Failure::Unknown(_));
                let (mut task, mut form) = (None, None);
                let error = match failure {
                    Failure::Unknown(why) if self.writes(calling.tool, calling.call) => {
                        format!("{why}; {}", projection::UNKNOWN)
                    }
                    Failure::Unknown(why) | Failure::Failed(why) => why,
                    Failure::Later(why, wait) => format!("{why}; try again in {} s", wait.as_secs()),
                    Failure::Task(begun, wait) => {
                        task = Some((*begun, wait));
                        "its server has not ended it".to_owned()
                    }
                    Failure::Form(asked) => {
                        form = Some(asked);
                        "its server waits for an answer of a person".to_owned()
                    }
                };
                let error = Some(cut_to(error, RESULT_BYTES_MAX));
                let result = ToolResult { id, error, ..ToolResult::default() };
                Made { is_unknown, task, form, ..Made::of(result) }
            }
        }
    }

    /// Makes a call. `is_sent` becomes `true` before anything leaves the daemon.
    async fn make(&self, calling: &Calling<'_>, limit: Duration, is_sent: &AtomicBool) -> Result<String, Failure> {
        let Calling { call, tool, key, origin, caller, .. } = calling;
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
                let given = tool.with_key(given(call).map_err(Failure::Failed)?, key);
                let place = place_of(tool);
                let filled = self.0.builtins.fill(given, &tool.name, &place, origin).await;
                let (given, filled) = filled.map_err(Failure::Failed)?;
                let made = match &tool.run {
                    Runner::Mcp(mcp) => {
                        // A form could bring a secret of the call back into what is kept and shown.
                        let may_ask = calling.forms.may_ask && !names_a_secret(call);
                        let forms = Forms { may_ask, ..calling.forms };
                        self.0.servers.run(mcp, given, key, (is_sent, forms)).await
                    }
                    Runner::Http(request) => {
                        let key = self.writes(tool, call).then_some(&**key);
                        http::run(&self.0.hosts, request, &given, key, is_sent).await
                    }
                    _ => unreachable!("those two"),
                };
                made.map(|result| filled.scrubbed(result))
                    .map_err(|failure| failure.with_words(|why| filled.scrubbed(why)))
            }
            Runner::Calculate(formulas) => {
                let results = formulas.results(&given(call).map_err(Failure::Failed)?).map_err(Failure::Failed)?;
                Ok(results.to_string())
            }
            Runner::Openapi(_) | Runner::Named(_) | Runner::Given | Runner::Bound => {
                Err(Failure::Failed("this tool stands for many, and none of them".into()))
            }
            Runner::Fascicle(fascicle) => {
                let input = match given(call).map_err(Failure::Failed)? {
                    input if input.len() == 1 && input.contains_key("input") => input["input"].clone(),
                    input => Value::Object(input),
                };
                let (runner, call) = self.fascicle_call(calling, fascicle.id.clone(), input, limit)?;
                output_text(&runner.run(call).await.map_err(Failure::Failed)?)
            }
            Runner::Assembled => {
                let written: Written = serde_json::from_value(Value::Object(given(call).map_err(Failure::Failed)?))
                    .map_err(|error| Failure::Failed(error.to_string()))?;
                let tools: Vec<ToolSpec> =
                    calling.beside.iter().filter(|tool| self.only_reads(tool, caller)).cloned().collect();
                let named =
                    |is: &dyn Fn(&&ToolSpec) -> bool| tools.iter().filter(is).map(|tool| tool.name.clone()).collect();
                let memory = named(&|tool| self.brings_in(tool) && !tool.run.leads_outside());
                let outside = named(&|tool| tool.run.leads_outside());
                let tokens_max = caller.binding.as_ref().and_then(|binding| binding.tokens_left);
                let (runner, call) = self.fascicle_call(calling, Arc::default(), written.input, limit)?;
                let assembled = Assembled { spec: written.spec, tools, memory, outside, tokens_max, why: written.why };
                output_text(&runner.run_assembled(assembled, call).await.map_err(Failure::Failed)?)
            }
        }
    }

    /// Returns the runner of fascicles with the request for one.
    fn fascicle_call(
        &self,
        calling: &Calling<'_>,
        fascicle: Arc<str>,
        input: Value,
        limit: Duration,
    ) -> Result<(&Arc<dyn FascicleRunner>, FascicleCall), Failure> {
        let Calling { key, owner, account, caller, parent, .. } = calling;
        if caller.depth >= DEPTH_MAX {
            return Err(Failure::Failed(format!("fascicles that are tools are at most {DEPTH_MAX} within each other")));
        }
        let none = || Failure::Failed("nothing here runs fascicles".into());
        let call = FascicleCall {
            fascicle,
            key: key.clone(),
            input,
            origin: (*owner).clone(),
            account: (*account).clone(),
            caller: Caller { depth: caller.depth + 1, ..(*caller).clone() },
            parent: (*parent).clone(),
            // A deadline of the job itself, in case no caller is left to cancel it.
            deadline_s: limit.as_secs() + 1,
        };
        Ok((self.0.fascicles.get().ok_or_else(none)?, call))
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

/// Returns the output of a fascicle as a text for a model.
fn output_text(output: &Value) -> Result<String, Failure> {
    let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
    // A model takes an empty result for a fault.
    Ok(if text.trim().is_empty() { "It brought nothing.".to_owned() } else { text })
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

/// Checks the arguments of a call against the schema of its tool.
///
/// # Errors
/// Returns the faults, as a text for the model.
pub(crate) fn fits(tool: &ToolSpec, call: &ToolCall) -> Result<(), String> {
    // KIP reports faults of a command more precisely itself.
    if matches!(tool.run, Runner::Client | Runner::Kip { .. }) {
        return Ok(());
    }
    let given = given(call)?;
    if let Some(name) = tool.key_argument.as_ref().filter(|name| given.contains_key(*name)) {
        return Err(format!("the parameters do not fit: the daemon fills in {name}, leave it out"));
    }
    let given = Value::Object(given);
    let validator = compile(&tool.asked_parameters())?;
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
