//! The definition of a tool in a neuron or a fascicle's node: its description for the model, its runner and its rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::effect::EffectClass;
use super::lesson::{LESSONS_MAX, Lesson};
use super::limits::ToolLimits;
use super::reckoning::Formulas;
use super::{http, openapi};
use crate::kinds::tool_augmented::FINALIZE;
use crate::spec::{check_id, check_schema};

/// The default timeout of a server tool, in seconds.
const TIMEOUT_S: u64 = 30;
/// The default timeout of a fascicle that is called as a tool, in seconds.
const FASCICLE_TIMEOUT_S: u64 = 300;
/// The maximum timeout that a tool may set, in seconds.
const TIMEOUT_S_MAX: u64 = 3_600;
/// The default number of concurrent calls of one tool, and the maximum that a tool may set.
const CONCURRENCY: usize = 8;
const CONCURRENCY_MAX: usize = 256;
/// The maximum length of a description, in bytes.
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;
/// The maximum number of arguments that a definition names as sinks, and of readable parts.
const SINKS_MAX: usize = 16;
/// The maximum length of a JSON Pointer to a readable part, in bytes.
const POINTER_BYTES_MAX: usize = 256;

/// A tool in the definition of a neuron.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// The name that the model sees. If the entry stands for all tools of a server or document, their names begin with
    /// it.
    pub name: String,
    /// The description for the model. If absent, the tool's own description: the grammar card of KIP, or the
    /// description of the operation, of the MCP tool or of the fascicle.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the parameters. If absent, the tool's own schema.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// The runner of the tool: the client, which sends results by `continue`, or the server.
    #[serde(default)]
    pub run: Runner,
    /// The timeout of one call on the server, in seconds. Default: 30, or 300 for a fascicle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// The maximum number of concurrent calls on the server. Default: 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// The calls that need an approval before the server makes them. Default: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approval: Approval,
    /// `true` if a call whose outcome is unknown may be made again under the same idempotency key. Otherwise a look-up or a
    /// person says whether it was done.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repeatable: bool,
    /// The look-up that says whether a call with an unknown outcome was done. Without one, a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Settle>,
    /// The effect class. Default: `read` for GET and HEAD, `idempotent` for PUT and DELETE, `write` for other methods; the hints
    /// of a trusted MCP server; otherwise `write`. Only a definition by an operator may lower it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectClass>,
    /// The arguments to which money or words go: accounts, recipients, addresses. Where a call needs an approval, a person sees
    /// their values first, and never approves them before a step of the plan has found them. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sinks: Vec<String>,
    /// The parts of its results, as JSON Pointers (RFC 6901) with `*` for any item, that a step which may change something reads although
    /// others wrote them; `""` is the whole result. Other prose stays under a handle there. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readable: Vec<String>,
    /// The sentences that a lifeform learns from its results. Only a definition by an operator may set it. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learn: Vec<Lesson>,
    /// The argument in which a service takes the idempotency key of a call: the daemon fills it, as a text, a UUID or shortened, as its
    /// schema says, and models do not see it. HTTP requests carry the key in `Idempotency-Key`, MCP calls in `_meta`, in any case. Of
    /// a server or document, it holds for the tools that have it. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_argument: Option<String>,
    /// The limits of its calls and results. Default: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ToolLimits,
    /// The price of a call in micro-dollars, charged to the account that pays for the model. Default: 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub price_micro_usd: u32,
    /// The named tool that the daemon resolved this one from, as it was then. Definitions cannot set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub pin: Option<Arc<str>>,
}

/// A look-up that says whether a call was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// The runner of the look-up: an HTTP request that only reads, or a tool of an MCP server. A look-up that would need an
    /// approval is not made.
    pub run: Runner,
    /// The arguments of the look-up. `"{{effect}}"` stands for the idempotency key of the call, and `"{{/pointer}}"` for a part
    /// of its arguments (RFC 6901).
    #[serde(default)]
    #[schema(value_type = Object)]
    pub arguments: serde_json::Map<String, Value>,
    /// The sign that the call was done. What the look-up found is then the result of the call.
    pub done: Check,
    /// The sign that the call was not done; it is then made again. A failed look-up is `{"error": "…"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<Check>,
    /// The time after which absence counts, in seconds after the last moment at which the request may have been sent, at most
    /// 600. Default: twice the timeout of the tool, and at least 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_s: Option<u32>,
}

/// A condition on a document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The part of the document, as a JSON Pointer (RFC 6901); it must be there.
    pub at: String,
    /// The JSON Schema that this part must fit.
    pub is: Value,
}

/// The maximum of [`Settle::after_s`].
const AFTER_S_MAX: u32 = 600;

impl Settle {
    fn check(&self) -> Result<(), String> {
        match &self.run {
            Runner::Http(request) => {
                http::check(request).map_err(|error| format!("run.http.{error}"))?;
                if http::writes(request) {
                    return Err("run.http may change something: a look-up only reads".into());
                }
            }
            Runner::Mcp(mcp) => check_id(&mcp.server).map_err(|error| format!("run.mcp.server: {error}"))?,
            _ => return Err("run is http or mcp".into()),
        }
        for (name, check) in [("done", Some(&self.done)), ("absent", self.absent.as_ref())] {
            let Some(check) = check else { continue };
            if !check.at.is_empty() && !check.at.starts_with('/') {
                return Err(format!("{name}.at is a JSON Pointer"));
            }
            check_schema(&check.is).map_err(|error| format!("{name}.is: {error}"))?;
        }
        match self.after_s {
            Some(seconds) if seconds > AFTER_S_MAX => Err(format!("after_s is at most {AFTER_S_MAX}")),
            _ => Ok(()),
        }
    }
}

pub(super) fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The calls that need an approval. If two rules apply, the stricter rule holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// No call needs an approval.
    #[default]
    Never,
    /// Calls that may change something need an approval.
    OnWrite,
    /// Every call needs an approval.
    Always,
}

/// The runner of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Runner {
    /// The client runs the tool: the invocation pauses with `202` until `continue` brings the result.
    #[default]
    Client,
    /// The server runs KIP commands on the named nexus with the caller's rights.
    Kip {
        /// The nexus; `self` is the mind of the lifeform that owns the job.
        #[schema(value_type = String)]
        nexus: Arc<str>,
        /// `true` if the server refuses commands that could write. Default: `false`.
        #[serde(default)]
        readonly: bool,
    },
    /// The server makes an HTTP request to a host that its configuration allows.
    Http(HttpTool),
    /// The server makes a request that an OpenAPI document describes.
    Openapi(OpenapiTool),
    /// The server calls a tool of an MCP server that its configuration names.
    Mcp(McpTool),
    /// The server runs a fascicle, paid from the neuron's account.
    Fascicle(FascicleTool),
    /// The daemon runs a built-in tool with the caller's rights; `name` is the name of a tool for knowledge, resources
    /// or goals.
    Builtin,
    /// The server runs a fascicle that the model writes for the task at hand, with those tools of this neuron that only read. It is
    /// kept as a job and nowhere else.
    Assembled,
    /// The daemon evaluates formulas with the parameters as exact numbers.
    Calculate(Formulas),
    /// The server runs the named tool with this id (`GET /v1/tools`).
    Named(String),
    /// The server runs the named tools that the lifeform was given (`PUT /v1/lifeforms/{id}/tools`), as many as there are; none
    /// outside of a lifeform.
    Given,
    /// The server runs those of the given tools that the plan of a goal binds to the step that runs; none elsewhere.
    Bound,
}

impl Runner {
    /// Returns `true` if an argument that is null is a value to the tool, and not an absent one.
    pub(crate) fn keeps_null(&self) -> bool {
        matches!(self, Self::Http(request) if request.method == Method::Patch)
    }

    /// Returns `true` for a tool that reaches outside the daemon, itself or by the tools of a fascicle.
    pub(crate) fn leads_outside(&self) -> bool {
        self.is_outside() || self.runs_fascicle()
    }

    /// Returns `true` for a tool that runs a fascicle.
    pub(crate) fn runs_fascicle(&self) -> bool {
        matches!(self, Self::Fascicle(_) | Self::Assembled)
    }

    /// Returns `true` if a named tool with this runner stands for itself alone.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// Returns `true` for a request or call that leaves the daemon.
    pub(crate) fn is_outside(&self) -> bool {
        matches!(self, Self::Http(_) | Self::Mcp(_) | Self::Openapi(_))
    }
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "RFC 9110 says what each is")]
pub enum Method {
    #[default]
    #[serde(alias = "get")]
    Get,
    #[serde(alias = "head")]
    Head,
    #[serde(alias = "post")]
    Post,
    #[serde(alias = "put")]
    Put,
    #[serde(alias = "patch")]
    Patch,
    #[serde(alias = "delete")]
    Delete,
}

/// An HTTP request with placeholders for the parameters of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    /// The method. Default: `GET`.
    #[serde(default)]
    pub method: Method,
    /// The URL, such as `https://api.example.com/v1/cities/{city}`. A parameter in braces fills a path segment or a
    /// part of one.
    pub url: String,
    /// The parameters that go into the query string under their names. A list adds one query parameter per item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<String>,
    /// The headers; a value may contain a parameter in braces. Put secrets into the host's configuration instead.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body. Default: none for `GET`, `HEAD` and `DELETE`; for other methods a JSON object of the remaining
    /// parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// `true` if the request may change something. Default: `false` for `GET` and `HEAD`, `true` for other methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
}

/// The form of a request's body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// No body.
    None,
    /// A JSON object of all parameters that are not used elsewhere in the request.
    Json,
    /// One parameter as JSON.
    Parameter(String),
}

/// An operation of an OpenAPI document, or all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenapiTool {
    /// An OpenAPI 3 document, or the needed part of it: `servers`, `paths` and the `components` that they refer to.
    #[schema(value_type = Object)]
    pub document: Value,
    /// The `operationId`. If absent, every operation is a tool, named after this tool and the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

/// A tool of an MCP server, or all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    /// The name of the server in the configuration.
    #[schema(value_type = String)]
    pub server: Arc<str>,
    /// The tool's name on the server. If absent, every tool of the server is a tool, with this tool's name as a prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// A fascicle as a tool. Without `parameters` it takes `{input}`, which becomes the text of one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FascicleTool {
    /// The id of the fascicle.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// `true` if the fascicle may change something. Default: `true`.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub writes: bool,
}

fn yes() -> bool {
    true
}

impl ToolSpec {
    /// Returns the timeout of one call in seconds.
    pub(crate) fn seconds(&self) -> u64 {
        let default =
            if matches!(self.run, Runner::Fascicle(_) | Runner::Assembled) { FASCICLE_TIMEOUT_S } else { TIMEOUT_S };
        self.timeout_s.unwrap_or(default)
    }

    /// Returns the maximum number of concurrent calls.
    pub(crate) fn at_once(&self) -> usize {
        self.concurrency.unwrap_or(CONCURRENCY)
    }

    /// Returns `true` if this entry stands for all tools of a server or document.
    pub fn is_many(&self) -> bool {
        match &self.run {
            Runner::Mcp(mcp) => mcp.tool.is_none(),
            Runner::Openapi(document) => document.operation.is_none(),
            Runner::Given | Runner::Bound => true,
            _ => false,
        }
    }

    /// Returns the rules of a call that only the definition of the tool itself states, and whether this one states them.
    fn rules(&self) -> [(&'static str, bool); 9] {
        [
            ("timeout_s", self.timeout_s.is_some()),
            ("concurrency", self.concurrency.is_some()),
            ("repeatable", self.repeatable),
            ("settle", self.settle.is_some()),
            ("price_micro_usd", self.price_micro_usd > 0),
            ("sinks", !self.sinks.is_empty()),
            ("readable", !self.readable.is_empty()),
            ("learn", !self.learn.is_empty()),
            ("key_argument", self.key_argument.is_some()),
        ]
    }

    /// Returns the member by which a call counts as more harmless than its runner says. Only operators may set it.
    pub fn lowers(&self) -> Option<&'static str> {
        let is_said_to_read = |request: &HttpTool| request.writes == Some(false) && !http::reads_by_method(request);
        let (least, says) = match &self.run {
            Runner::Http(request) => (http::class_of(request), is_said_to_read(request)),
            Runner::Openapi(_) => (EffectClass::Write, false),
            // The configuration or the server may say so.
            Runner::Mcp(_) => (EffectClass::Irreversible, false),
            Runner::Fascicle(fascicle) if !fascicle.writes => return Some("run.fascicle.writes"),
            Runner::Fascicle(_) => (EffectClass::Write, false),
            _ => (EffectClass::Read, false),
        };
        let looks = self.settle.as_ref().map(|settle| &settle.run);
        match () {
            () if says => Some("run.http.writes"),
            () if self.repeatable && least > EffectClass::Read => Some("repeatable"),
            () if self.effect.is_some_and(|effect| effect < least) => Some("effect"),
            () if matches!(looks, Some(Runner::Http(request)) if is_said_to_read(request)) => {
                Some("settle.run.http.writes")
            }
            // It would make any call repeatable.
            () if self.settle.as_ref().is_some_and(|settle| settle.absent.is_some()) => Some("settle.absent"),
            () if !self.readable.is_empty() => Some("readable"),
            // What it finds would become what the lifeform knows.
            () if !self.learn.is_empty() => Some("learn"),
            () => None,
        }
    }

    /// Takes back what [`ToolSpec::lowers`] names, for a definition that is not an operator's.
    pub(super) fn without_lowering(&mut self) {
        while let Some(member) = self.lowers() {
            match (member, &mut self.run) {
                ("run.http.writes", Runner::Http(request)) => request.writes = None,
                ("run.fascicle.writes", Runner::Fascicle(fascicle)) => fascicle.writes = true,
                ("repeatable", _) => self.repeatable = false,
                ("effect", _) => self.effect = None,
                ("readable", _) => self.readable.clear(),
                ("learn", _) => self.learn.clear(),
                ("settle.absent", _) => {
                    self.settle.iter_mut().for_each(|settle| settle.absent = None);
                }
                _ => self.settle = None,
            }
        }
    }

    /// Checks that the arguments are there, where the definition itself names the parameters.
    fn check_sinks(&self) -> Result<(), String> {
        if self.sinks.len() > SINKS_MAX {
            return Err(format!("{} of them, the bound is {SINKS_MAX}", self.sinks.len()));
        }
        let Some(properties) = self.parameters["properties"].as_object() else {
            return match &self.run {
                Runner::Http(_) if !self.sinks.is_empty() => Err("parameters name no properties".into()),
                _ => Ok(()),
            };
        };
        match self.sinks.iter().find(|name| !properties.contains_key(*name)) {
            Some(unknown) => Err(format!("there is no parameter \"{unknown}\"")),
            None => Ok(()),
        }
    }

    fn check_readable(&self) -> Result<(), String> {
        let is_pointer = |place: &&String| {
            let escapes = place.match_indices('~').all(|(at, _)| place[at + 1..].starts_with(['0', '1']));
            place.len() <= POINTER_BYTES_MAX && escapes && (place.is_empty() || place.starts_with('/'))
        };
        match self.readable.iter().find(|place| !is_pointer(place)) {
            _ if self.readable.len() > SINKS_MAX => {
                Err(format!("{} of them, the bound is {SINKS_MAX}", self.readable.len()))
            }
            Some(place) => Err(format!(
                "\"{place:.80}\" is no JSON Pointer of at most {POINTER_BYTES_MAX} bytes: it begins with /"
            )),
            None => Ok(()),
        }
    }

    /// Checks the constraints that deserialization cannot check.
    ///
    /// # Errors
    /// Returns a sentence that names the member and the fault.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if self.description.len() > DESCRIPTION_BYTES_MAX {
            return Err(format!("description is over {DESCRIPTION_BYTES_MAX} bytes"));
        }
        check_schema(&self.parameters).map_err(|error| format!("parameters: {error}"))?;
        if self.timeout_s.is_some_and(|seconds| seconds == 0 || seconds > TIMEOUT_S_MAX) {
            return Err(format!("timeout_s is 1 to {TIMEOUT_S_MAX}"));
        }
        if self.concurrency.is_some_and(|calls| calls == 0 || calls > CONCURRENCY_MAX) {
            return Err(format!("concurrency is 1 to {CONCURRENCY_MAX}"));
        }
        if self.pin.is_some() {
            return Err("pin cannot be set".into());
        }
        let may_settle = matches!(self.run, Runner::Client | Runner::Named(_) | Runner::Given | Runner::Bound);
        if self.settle.is_some() && !self.run.is_outside() && !may_settle {
            return Err("settle is of tools with effects outside: http, openapi and mcp".into());
        }
        if self.effect.is_some() && !self.run.is_outside() && !matches!(self.run, Runner::Named(_)) {
            return Err("effect needs a tool that runs http, openapi, mcp or named".into());
        }
        self.limits.check().map_err(|error| format!("limits.{error}"))?;
        self.check_sinks().map_err(|error| format!("sinks: {error}"))?;
        self.check_readable().map_err(|error| format!("readable: {error}"))?;
        if self.learn.len() > LESSONS_MAX {
            return Err(format!("learn has {} sentences, the bound is {LESSONS_MAX}", self.learn.len()));
        }
        for (at, lesson) in self.learn.iter().enumerate() {
            lesson.check().map_err(|error| format!("learn[{at}].{error}"))?;
        }
        if !matches!(self.run, Runner::Client | Runner::Named(_) | Runner::Given | Runner::Bound) {
            self.check_key_argument().map_err(|error| format!("key_argument: {error}"))?;
        }
        if let Some(settle) = &self.settle {
            settle.check().map_err(|error| format!("settle.{error}"))?;
        }
        match &self.run {
            Runner::Client => {
                let rules = self
                    .rules()
                    .into_iter()
                    .chain([("approval", self.approval != Approval::Never), ("limits", !is_default(&self.limits))]);
                match rules.into_iter().find(|(_, given)| *given) {
                    Some((rule, _)) => {
                        Err(format!("{rule} is of tools that the server runs, and run says the client does"))
                    }
                    None => Ok(()),
                }
            }
            Runner::Named(id) => {
                check_id(id).map_err(|error| format!("run.named: {error}"))?;
                let rules = self.rules().into_iter().chain([("parameters", self.parameters != any_object())]);
                match rules.into_iter().find(|(_, given)| *given) {
                    Some((rule, _)) => Err(format!("{rule} stands in the named tool, not in a reference to it")),
                    None => Ok(()),
                }
            }
            Runner::Given | Runner::Bound => {
                let (name, run) = (self.name.clone(), self.run.clone());
                let plain = Self { name, run, parameters: any_object(), ..Self::default() };
                if *self == plain {
                    Ok(())
                } else {
                    Err("given tools have their own rules: only name stands here".into())
                }
            }
            Runner::Builtin | Runner::Assembled => Ok(()),
            Runner::Calculate(formulas) => {
                formulas.check(&self.parameters).map_err(|error| format!("run.calculate.{error}"))
            }
            Runner::Kip { nexus, .. } => check_id(nexus).map_err(|error| format!("run.kip.nexus: {error}")),
            Runner::Http(request) => http::check(request).map_err(|error| format!("run.http.{error}")),
            Runner::Openapi(tool) => {
                openapi::tools(self, tool).map(drop).map_err(|error| format!("run.openapi.{error}"))
            }
            Runner::Mcp(mcp) => check_id(&mcp.server).map_err(|error| format!("run.mcp.server: {error}")),
            Runner::Fascicle(fascicle) => check_id(&fascicle.id).map_err(|error| format!("run.fascicle.id: {error}")),
        }
    }
}

/// Checks that every provider accepts a name.
fn check_name(name: &str) -> Result<(), String> {
    let legal =
        !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !legal {
        return Err(format!("name \"{name}\" is not 1 to 64 letters, digits, '_' or '-'"));
    }
    if name == FINALIZE {
        return Err(format!("name \"{FINALIZE}\" is the tool by which an output is registered"));
    }
    Ok(())
}

/// Returns the name of one tool of a server or document, in a form that every provider accepts.
pub(crate) fn name_within(prefix: &str, name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{prefix}_{name}").chars().map(legal).take(64).collect()
}
