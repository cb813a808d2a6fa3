//! The hosts and servers that tools may reach, from the configuration, for the API.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::spec::Approval;

/// The hosts and servers that tools may reach, from the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ToolsBody)]
pub struct ReachableTools {
    /// The hosts of HTTP tools.
    pub hosts: Vec<String>,
    /// The MCP servers.
    pub servers: Vec<ReachableServer>,
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

/// A tool of an MCP server.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ServersTool)]
pub struct ServerTool {
    /// The name of the tool at the server.
    pub name: String,
    /// The description.
    pub description: String,
    /// The JSON Schema of its parameters.
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// `true` if the tool may change something. The server's hint counts only if it is trusted.
    pub writes: bool,
}
