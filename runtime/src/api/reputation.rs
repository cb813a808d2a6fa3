//! `/v1/reputation`, `/v1/providers`: the reputation of agents and the providers of units, for KnowledgePulse clients.
//! Refusals have the form of the protocol.

use axum::Json;
use axum::extract::State;
use knowledge::{Provider, Reputation};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{ApiPath, ApiQuery, Reader};
use super::units::Refusal;

/// The reputation of an agent.
#[derive(Serialize, ToSchema)]
pub(super) struct ReputationAnswer {
    /// The contributions and their ratings.
    data: Reputation,
}

/// The providers of units.
#[derive(Serialize, ToSchema)]
pub(super) struct Providers {
    /// The providers: this daemon, if it has the capability.
    data: Vec<Provider>,
    /// Their number.
    total: usize,
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
) -> Result<Json<ReputationAnswer>, Refusal> {
    Ok(Json(ReputationAnswer { data: app.knowledge.reputation(&agent, &origin).await? }))
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
) -> Json<Providers> {
    let data = app.knowledge.providers(query.capability.as_deref());
    Json(Providers { total: data.len(), data })
}
