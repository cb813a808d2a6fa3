//! The hosts and servers that the server's tools may reach.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::App;
use super::extract::Participant;

/// The hosts and servers that tools may reach, from the configuration.
#[derive(Serialize, ToSchema)]
pub(super) struct ToolsBody {
    /// The hosts of HTTP tools.
    hosts: Vec<String>,
    /// The MCP servers.
    servers: Vec<ServerBody>,
}

/// An MCP server.
#[derive(Serialize, ToSchema)]
struct ServerBody {
    /// The name.
    name: String,
    /// The calls that need an approval, independently of the neuron's definition.
    approval: ::neurons::spec::Approval,
    /// The reason for which the server cannot be reached.
    error: Option<String>,
    /// The tools that the server lists now.
    tools: Vec<ServersTool>,
}

/// A tool of an MCP server.
#[derive(Serialize, ToSchema)]
struct ServersTool {
    /// The name of the tool at the server.
    name: String,
    /// The description.
    description: String,
    /// The JSON Schema of its parameters.
    #[schema(value_type = Object)]
    parameters: Value,
    /// `true` if the tool may change something. The server's hint counts only if it is trusted.
    writes: bool,
}

/// Lists the hosts and MCP servers that tools may reach.
///
/// This connects to servers that no call has used yet.
#[utoipa::path(get, path = "/v1/tools", responses((status = 200, body = ToolsBody, description = "hosts and servers")))]
pub(super) async fn list(State(app): State<App>, _: Participant) -> Json<Value> {
    Json(app.neurons.tools().shown().await)
}
