//! `/v1/reputation`, `/v1/providers`: the reputation of agents and the providers of units, for KnowledgePulse clients.
//! Refusals have the form of the protocol.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{ApiPath, ApiQuery, Reader};
use super::units::Refusal;

/// The reputation of an agent.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the routes of the protocol answer")]
pub(super) struct ReputationAnswer {
    /// The contributions and their ratings.
    data: Reputation,
}

/// The contributions of an agent, with their ratings.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the routes of the protocol answer")]
struct Reputation {
    /// The id of the agent.
    agent_id: String,
    /// The score.
    score: f64,
    /// The number of contributions.
    contributions: u64,
    /// The number of validations of them.
    validations: u64,
    /// The number of cases in which they helped.
    helpful: u64,
    /// The number of cases in which they did not help.
    harmful: u64,
}

/// The providers of units.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the routes of the protocol answer")]
pub(super) struct Providers {
    /// The providers: this daemon, if it has the capability.
    data: Vec<Provider>,
    /// Their number.
    total: usize,
}

/// A provider of units.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the routes of the protocol answer")]
struct Provider {
    /// The name.
    name: String,
    /// The path of the units.
    endpoint: String,
    /// The version of the schema.
    schema_version: String,
    /// `active`.
    status: String,
    /// The capabilities.
    capabilities: Vec<String>,
}

/// Returns the contributions of an agent with their ratings.
///
/// An unknown agent has contributed nothing.
#[utoipa::path(
    get, path = "/v1/reputation/{agent_id}",
    params(("agent_id" = String, Path, description = "`user:ada`, `lifeform:…`, or either after `kp:`")),
    responses((status = 200, description = "the reputation", body = ReputationAnswer)),
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
    responses((status = 200, description = "the providers", body = Providers)),
)]
pub(super) async fn providers(
    State(app): State<App>,
    _reader: Reader,
    ApiQuery(query): ApiQuery<ProvidersQuery>,
) -> Json<Value> {
    let known = app.knowledge.provider(query.capability.as_deref());
    Json(json!({"data": known["providers"], "total": known["total"]}))
}
