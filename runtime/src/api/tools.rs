//! The hosts and servers that the server's tools may reach.

use axum::Json;
use axum::extract::State;
use neurons::tools::ReachableTools;

use super::App;
use super::extract::Participant;

/// Lists the hosts and MCP servers that tools may reach.
///
/// This connects to servers that no call has used yet.
#[utoipa::path(get, path = "/v1/tools", responses((status = 200, body = ReachableTools, description = "hosts and servers")))]
pub(super) async fn list(State(app): State<App>, _: Participant) -> Json<ReachableTools> {
    Json(app.neurons.tools().reachable().await)
}
