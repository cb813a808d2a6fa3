//! The reach of the server's tools.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::App;
use super::extract::Participant;

/// The reach of tools, by the configuration.
#[derive(Serialize, ToSchema)]
pub(super) struct ToolsBody {
    /// Hosts of HTTP tools.
    hosts: Vec<String>,
    /// MCP servers.
    servers: Vec<ServerBody>,
}

/// An MCP server.
#[derive(Serialize, ToSchema)]
struct ServerBody {
    /// The name.
    name: String,
    /// The calls that need an approval, whatever a neuron says.
    approval: ::neurons::spec::Approval,
    /// The reason why it cannot be reached.
    error: Option<String>,
    /// The tools, as it lists them now.
    tools: Vec<ServersTool>,
}

/// A tool of an MCP server.
#[derive(Serialize, ToSchema)]
struct ServersTool {
    /// The name at the server.
    name: String,
    /// The description.
    description: String,
    /// The JSON Schema of its parameters.
    #[schema(value_type = Object)]
    parameters: Value,
    /// `true` if it may change something, as far as its server is trusted to say so.
    writes: bool,
}

/// Shows what tools may reach: the hosts of HTTP tools, and the MCP servers with their tools. It reaches for servers
/// that were not needed yet.
#[utoipa::path(get, path = "/v1/tools", responses((status = 200, body = ToolsBody, description = "hosts and servers")))]
pub(super) async fn list(State(app): State<App>, _: Participant) -> Json<Value> {
    Json(app.neurons.tools().shown().await)
}
