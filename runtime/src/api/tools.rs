//! What the tools of the server may reach.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::App;
use super::extract::Participant;

/// What tools may reach, as the configuration has it.
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
    /// Its name.
    name: String,
    /// Which of its calls must be approved, whatever a neuron says.
    approval: ::neurons::spec::Approval,
    /// Why it cannot be reached.
    error: Option<String>,
    /// Its tools, as it lists them now.
    tools: Vec<ServersTool>,
}

/// A tool of an MCP server.
#[derive(Serialize, ToSchema)]
struct ServersTool {
    /// Its name there.
    name: String,
    /// What it is for.
    description: String,
    /// The JSON Schema of its parameters.
    #[schema(value_type = Object)]
    parameters: Value,
    /// Whether it may change something, as far as its server is trusted to say so.
    writes: bool,
}

/// Shows what tools may reach: the hosts of HTTP tools, and the MCP servers with their tools. It reaches for servers that
/// were not needed yet.
#[utoipa::path(get, path = "/v1/tools", responses((status = 200, body = ToolsBody, description = "hosts and servers")))]
pub(super) async fn list(State(app): State<App>, _: Participant) -> Json<Value> {
    Json(app.neurons.tools().shown().await)
}
