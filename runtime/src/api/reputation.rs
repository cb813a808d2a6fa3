//! `/v1/reputation`, `/v1/providers`: the reputation of agents and the providers of units, for KnowledgePulse clients.
//! Refusals have the form of the protocol.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::App;
use super::extract::{ApiPath, ApiQuery, Reader};
use super::units::Refusal;

/// Returns the contributions of an agent with their ratings.
///
/// An unknown agent has contributed nothing.
#[utoipa::path(
    get, path = "/v1/reputation/{agent_id}",
    params(("agent_id" = String, Path, description = "`user:ada`, `lifeform:…`, or either after `kp:`")),
    responses((status = 200, description = "{data: {agent_id, score, contributions, validations, helpful, harmful}}")),
)]
pub(super) async fn of_agent(
    State(app): State<App>,
    Reader(origin): Reader,
    ApiPath(agent): ApiPath<String>,
) -> Result<Json<Value>, Refusal> {
    Ok(Json(json!({"data": app.knowledge.reputation(&agent, &origin).await?})))
}

/// The query of a list of providers.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ProvidersQuery {
    /// The required capability: `knowledge`, `skills`, `validation` or `migration`.
    capability: Option<String>,
}

/// Lists the providers of units.
///
/// This daemon is the only one.
#[utoipa::path(
    get, path = "/v1/providers",
    params(ProvidersQuery),
    responses((status = 200, description = "{data: [{name, endpoint, schema_version, status, capabilities}], total}")),
)]
pub(super) async fn providers(
    State(app): State<App>,
    _reader: Reader,
    ApiQuery(query): ApiQuery<ProvidersQuery>,
) -> Json<Value> {
    let known = app.knowledge.provider(query.capability.as_deref());
    Json(json!({"data": known["providers"], "total": known["total"]}))
}
