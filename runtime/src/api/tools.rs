//! `/v1/tools`: the hosts and servers that the server's tools may reach, and the named tools.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use lifeform::LifeformError;
use neurons::tools::{Give, NamedTool, NamedToolEntry, ReachableTools, ToolId};
use serde::{Deserialize, Serialize};
use store::{Origin, Role};
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Operator, Participant, if_match};
use super::fascicles::Forced;

/// A named tool with its version.
#[derive(Serialize, ToSchema)]
pub(super) struct VersionedTool {
    #[schema(inline)]
    #[serde(flatten)]
    tool: NamedToolEntry,
    /// The version; 0 for a tool of the configuration.
    version: u64,
}

async fn shown(app: &App, origin: &Origin, id: &ToolId) -> Result<Json<VersionedTool>, ApiError> {
    let found = app.neurons.named_tool(id).await?;
    Ok(Json(VersionedTool { tool: seen_by(origin, found.value), version: found.version }))
}

/// Removes the definition of a tool that only operators refer to, for others.
fn seen_by(origin: &Origin, entry: NamedToolEntry) -> NamedToolEntry {
    let sees = |tool: &NamedTool| tool.give == Give::Participant || origin.principal.may(Role::Operator);
    NamedToolEntry { definition: entry.definition.filter(sees), ..entry }
}

/// Lists the hosts and MCP servers that tools may reach, and the named tools.
///
/// This connects to servers that no call has used yet.
#[utoipa::path(
    get, path = "/v1/tools",
    responses((status = 200, body = ReachableTools, description = "hosts, servers and named tools")),
)]
pub(super) async fn list(State(app): State<App>, Participant(origin): Participant) -> Json<ReachableTools> {
    let found = app.neurons.tools().reachable().await;
    let named = found.named.into_iter().map(|entry| seen_by(&origin, entry)).collect();
    Json(ReachableTools { named, ..found })
}

/// Returns a named tool with the single tools that models see.
#[utoipa::path(
    get, path = "/v1/tools/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = VersionedTool, description = "the tool"),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<ToolId>,
) -> Result<Json<VersionedTool>, ApiError> {
    shown(&app, &origin, &id).await
}

/// Defines or replaces a named tool.
///
/// `If-Match` names the expected version. Calls that were offered the earlier definition are refused.
#[utoipa::path(
    put, path = "/v1/tools/{id}",
    params(("id" = String, Path)),
    request_body = NamedTool,
    responses(
        (status = 200, body = VersionedTool, description = "replaced"),
        (status = 201, body = VersionedTool, description = "defined"),
        (status = 409, description = "it was changed meanwhile, or the configuration defines it"),
        (status = 422, description = "not well made"),
    ),
)]
pub(super) async fn define(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<ToolId>,
    headers: HeaderMap,
    ApiJson(tool): ApiJson<NamedTool>,
) -> Result<(StatusCode, Json<VersionedTool>), ApiError> {
    let version = app.neurons.define_tool(&origin, &id, tool, if_match(&headers)?).await?;
    let status = if version == 1 { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, shown(&app, &origin, &id).await?))
}

/// A definition of an MCP tool that an operator looked at.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SeenDefinition {
    /// The MCP server.
    server: String,
    /// The name of the tool at the server.
    tool: String,
    /// The hash of the definition, as listed.
    hash: String,
}

/// Accepts the present definition of an MCP tool.
///
/// A tool whose definition is new (with `accept = "ask"`) or was changed is not called, and no model sees it, until then.
#[utoipa::path(
    post, path = "/v1/tools/pins",
    request_body = SeenDefinition,
    responses(
        (status = 204, description = "accepted"),
        (status = 422, description = "there is no such tool, or it has another definition now"),
    ),
)]
pub(super) async fn accept(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiJson(SeenDefinition { server, tool, hash }): ApiJson<SeenDefinition>,
) -> Result<StatusCode, ApiError> {
    app.neurons.accept_tool(&origin, &server, &tool, &hash).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a named tool.
///
/// If lifeforms were given it, this requires `force`, and takes it from them.
#[utoipa::path(
    delete, path = "/v1/tools/{id}",
    params(("id" = String, Path), Forced),
    responses(
        (status = 204, description = "removed"),
        (status = 404, description = "there is none"),
        (status = 409, description = "it is used, or the configuration defines it"),
    ),
)]
pub(super) async fn remove(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<ToolId>,
    ApiQuery(Forced { force }): ApiQuery<Forced>,
) -> Result<StatusCode, ApiError> {
    let users = app.lifeforms.users_of_tool(&id).await?;
    if !users.is_empty() && !force {
        let detail = format!("the lifeforms {users:?} were given {id}");
        let in_use = ApiError::new(StatusCode::CONFLICT, "in_use", detail);
        return Err(in_use.hint("DELETE …?force=true removes it nevertheless"));
    }
    app.neurons.remove_tool(&origin, &id).await?;
    // A new tool of the same id is not theirs.
    for user in users {
        match app.lifeforms.take_tool(&origin, &user, &id).await {
            // It was deleted meanwhile.
            Ok(()) | Err(LifeformError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(StatusCode::NO_CONTENT)
}
