//! The hosts and servers that tools may reach, and the named tools, for the API.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::effect::EffectClass;
use super::mcp::PinState;
use super::named::{NamedTool, ToolId};
use super::spec::Approval;

/// The hosts and servers that tools may reach, from the configuration, and the named tools.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ToolsBody)]
pub struct ReachableTools {
    /// The hosts of HTTP tools.
    pub hosts: Vec<String>,
    /// The MCP servers.
    pub servers: Vec<ReachableServer>,
    /// The named tools, by id.
    pub named: Vec<NamedToolEntry>,
}

/// A named tool with the single tools that it stands for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = NamedToolBody)]
pub struct NamedToolEntry {
    /// The id.
    #[schema(value_type = String)]
    pub id: ToolId,
    /// The definition; `null` for a tool that only operators refer to, for others.
    pub definition: Option<NamedTool>,
    /// `true` if the configuration defines it, so that the API cannot change it.
    pub is_configured: bool,
    /// `true` for a tool of the daemon itself. A definition over the API takes its place.
    pub is_shipped: bool,
    /// The tools that models see.
    pub tools: Vec<ServerTool>,
    /// The reason for which its tools are not known.
    pub error: Option<String>,
}

/// The single tools of a use of a named tool, as a model sees them now.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GivenNow {
    /// The tools.
    pub tools: Vec<ServerTool>,
    /// The reason for which a model sees none.
    pub error: Option<String>,
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ServerBody)]
pub struct ReachableServer {
    /// The name.
    pub name: String,
    /// The calls that need an approval, independently of the neuron's definition.
    pub approval: Approval,
    /// The reason for which the server cannot be reached.
    pub error: Option<String>,
    /// The tools that the server lists now.
    pub tools: Vec<ServerTool>,
}

/// A single tool of an MCP server or of a named tool.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ServersTool)]
pub struct ServerTool {
    /// The name: of a server's tool at the server, of others as models see it.
    pub name: String,
    /// The description.
    pub description: String,
    /// The JSON Schema of its parameters.
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// `true` if the tool may change something. The server's hint counts only if it is trusted.
    pub writes: bool,
    /// The effect class.
    pub effect: EffectClass,
    /// The state of the definition of an MCP server's tool.
    pub state: PinState,
    /// The hash of the definition, by which an operator accepts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub hash: Option<Arc<str>>,
    /// The accepted definition, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub accepted: Option<Value>,
}
