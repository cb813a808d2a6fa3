//! The definition of a tool in a neuron or a fascicle's node: its description for the model, its runner and its rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{http, openapi};
use crate::kinds::tool_augmented::FINALIZE;
use crate::spec::{check_id, check_schema};

/// Seconds a tool on the server may take, when it does not say.
const TIMEOUT_S: u64 = 30;
/// Seconds a fascicle may take as a tool, when it does not say.
const FASCICLE_TIMEOUT_S: u64 = 300;
/// Seconds a tool may ask for.
const TIMEOUT_S_MAX: u64 = 3_600;
/// Calls of one tool at once, when it does not say, and the most it may ask for.
const CONCURRENCY: usize = 8;
const CONCURRENCY_MAX: usize = 256;
/// Bytes of what a tool is for.
const DESCRIPTION_BYTES_MAX: usize = 16 << 10;

/// A tool as a neuron knows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// The name for the model. The names of all tools of a server or a document begin with it.
    pub name: String,
    /// The description for the model. If absent, the tool's own: the grammar card of KIP, the description of an
    /// operation, of a server's tool, of a fascicle.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its parameters; left out, what the tool says of itself.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// The runner: the client by `continue`, or the server.
    #[serde(default)]
    pub run: Runner,
    /// Seconds one call on the server may take: 30 when absent, 300 for a fascicle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Calls of it on the server at once: 8 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// The calls that need an approval before the server makes them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub approval: Approval,
    /// `true` if a call that was interrupted by the daemon's end may be repeated. Otherwise the outcome of a call that
    /// writes is reported as unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repeatable: bool,
}

fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The calls that need an approval. Of two rules the stricter holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// No call.
    #[default]
    Never,
    /// Calls that may change something.
    OnWrite,
    /// Always.
    Always,
}

/// The runner of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Runner {
    /// The client: the call pauses with `202` until `continue` brings the result.
    #[default]
    Client,
    /// The server runs KIP on the named nexus, as the caller.
    Kip {
        /// The nexus.
        #[schema(value_type = String)]
        nexus: Arc<str>,
        /// `true` if commands that could write are refused.
        #[serde(default)]
        readonly: bool,
    },
    /// The server makes an HTTP request, to a host that its configuration allows.
    Http(HttpTool),
    /// The server makes the request that an OpenAPI document describes.
    Openapi(OpenapiTool),
    /// The server calls a tool of an MCP server that its configuration names.
    Mcp(McpTool),
    /// The server runs a fascicle, paid from the neuron's account.
    Fascicle(FascicleTool),
    /// The daemon does it itself, as the caller: the tool's name is that of a tool on knowledge, resources or goals.
    Builtin,
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

/// An HTTP request with places for a call's parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpTool {
    /// `GET` when absent.
    #[serde(default)]
    pub method: Method,
    /// The URL, such as `https://api.example.com/v1/cities/{city}`: a parameter in braces is a segment or a part of it.
    pub url: String,
    /// Parameters that go into the query, under their names; a list goes there once for each of its items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query: Vec<String>,
    /// Headers; a parameter may stand in braces. Secrets belong into the configuration of the host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body; by default none for `GET`, `HEAD` and `DELETE`, and the remaining parameters for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
    /// `true` if it may change something; by default for all but `GET` and `HEAD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
}

/// The form of a request's body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// There is none.
    None,
    /// A JSON object of the parameters that stand nowhere else.
    Json,
    /// One parameter as JSON.
    Parameter(String),
}

/// An operation of an OpenAPI document, or all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenapiTool {
    /// An OpenAPI 3 document, or the part of one that matters: `servers`, `paths`, and the `components` they refer to.
    #[schema(value_type = Object)]
    pub document: Value,
    /// The `operationId`. Without it each operation is a tool, named after this one and its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

/// A tool of an MCP server, or all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct McpTool {
    /// The server, by its name in the configuration.
    #[schema(value_type = String)]
    pub server: Arc<str>,
    /// The server's name for the tool. Without it each tool of the server is one, with this name as prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// A fascicle as a tool. Without `parameters` it takes `{input}`, the text of one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FascicleTool {
    /// The fascicle.
    #[schema(value_type = String)]
    pub id: Arc<str>,
    /// `true` if it may change something (default).
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub writes: bool,
}

fn yes() -> bool {
    true
}

impl ToolSpec {
    /// Seconds one call may take.
    pub(crate) fn seconds(&self) -> u64 {
        let default = if matches!(self.run, Runner::Fascicle(_)) { FASCICLE_TIMEOUT_S } else { TIMEOUT_S };
        self.timeout_s.unwrap_or(default)
    }

    /// Calls at once.
    pub(crate) fn at_once(&self) -> usize {
        self.concurrency.unwrap_or(CONCURRENCY)
    }

    /// Returns `true` if it means as many tools as a server or a document has.
    pub fn is_many(&self) -> bool {
        match &self.run {
            Runner::Mcp(mcp) => mcp.tool.is_none(),
            Runner::Openapi(document) => document.operation.is_none(),
            _ => false,
        }
    }

    /// Checks what serde cannot.
    ///
    /// # Errors
    /// A sentence naming the member and what is wrong with it.
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
        match &self.run {
            Runner::Client => {
                let rules = [
                    ("timeout_s", self.timeout_s.is_some()),
                    ("concurrency", self.concurrency.is_some()),
                    ("approval", self.approval != Approval::Never),
                    ("repeatable", self.repeatable),
                ];
                match rules.into_iter().find(|(_, given)| *given) {
                    Some((rule, _)) => {
                        Err(format!("{rule} is of tools that the server runs, and run says the client does"))
                    }
                    None => Ok(()),
                }
            }
            Runner::Builtin => Ok(()),
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

/// A name that every provider lets pass.
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

/// The name of one of many tools, of what every provider lets pass.
pub(crate) fn name_within(prefix: &str, name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{prefix}_{name}").chars().map(legal).take(64).collect()
}
