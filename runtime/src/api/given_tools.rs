//! The tools that a lifeform was given, and what its calls did outside of the daemon.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use lifeform::LifeformId;
use neurons::tools::{EffectClass, EffectState, GivenNow, ToolUse};
use serde::{Deserialize, Serialize};
use store::Timestamp;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Operator, Participant};
use super::paging::Limit;

/// The tools of a lifeform.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolsOfLifeform {
    /// The named tools, in order of preference.
    tools: Vec<ToolUse>,
}

/// A named tool of a lifeform, with the single tools that a model sees now.
#[derive(Serialize, ToSchema)]
struct GivenTool {
    #[schema(inline)]
    #[serde(flatten)]
    given: ToolUse,
    /// The single tools, or the reason for which there are none.
    now: GivenNow,
}

/// The tools of a lifeform, with the single tools that a model sees now.
#[derive(Serialize, ToSchema)]
pub(super) struct GivenTools {
    /// The tools.
    tools: Vec<GivenTool>,
}

async fn shown(app: &App, id: &LifeformId) -> Result<Json<GivenTools>, ApiError> {
    let given = app.lifeforms.given_tools(id).await?.into_iter();
    Ok(Json(GivenTools { tools: given.map(|(given, now)| GivenTool { given, now }).collect() }))
}

/// Lists the tools that a lifeform was given.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/tools",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "its tools", body = GivenTools),
        (status = 404, description = "there is no such lifeform"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    _: Participant,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<GivenTools>, ApiError> {
    shown(&app, &id).await
}

/// Gives a lifeform its tools, in place of those that it had.
///
/// Its next answer has them.
#[utoipa::path(
    put, path = "/v1/lifeforms/{id}/tools",
    params(("id" = String, Path)),
    request_body = ToolsOfLifeform,
    responses(
        (status = 200, description = "its tools", body = GivenTools),
        (status = 404, description = "there is no such lifeform"),
        (status = 422, description = "a tool does not exist, or its rules would be laxer than its own"),
    ),
)]
pub(super) async fn give(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<ToolsOfLifeform>,
) -> Result<Json<GivenTools>, ApiError> {
    app.lifeforms.set_tools(&origin, &id, body.tools).await?;
    shown(&app, &id).await
}

/// A call that had an effect outside of the daemon.
#[derive(Serialize, ToSchema)]
struct EffectBody {
    /// The idempotency key of the call.
    #[schema(value_type = String)]
    id: Arc<str>,
    /// The work around the call: a topic, a goal or a job.
    #[schema(value_type = String)]
    root: Arc<str>,
    /// The piece of work in which the call happens once.
    #[schema(value_type = String)]
    work: Arc<str>,
    /// The name of the tool.
    tool: String,
    /// The arguments as JSON, cut to 1 KiB, without secrets.
    arguments: String,
    /// The host, or `mcp:` and the name of the server.
    #[schema(value_type = String)]
    place: Arc<str>,
    /// The effect class.
    class: EffectClass,
    /// The state.
    state: EffectState,
    /// The number of attempts.
    tries: u32,
    /// The time of the first announcement.
    announced_at: Timestamp,
    /// The time of the latest attempt or of the outcome.
    at: Timestamp,
    /// The invocation that made the latest attempt: `GET …/trace` walks from it.
    #[schema(value_type = String)]
    by: Arc<str>,
    /// The result, cut to 4 KiB.
    result: Option<String>,
    /// The reason why it was refused or is unknown.
    why: Option<String>,
}

/// A page of effects.
#[derive(Serialize, ToSchema)]
pub(super) struct EffectPage {
    /// The effects by root, oldest first within each.
    effects: Vec<EffectBody>,
    /// The `after` of the next page; `null` at the end.
    #[schema(value_type = Option<String>)]
    next: Option<Arc<str>>,
}

/// A page of effects.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EffectQuery {
    /// The root after which the page starts.
    #[serde(default)]
    after: String,
    /// Only effects in this state.
    #[serde(default)]
    state: Option<EffectState>,
    /// Only effects of this tool.
    #[serde(default)]
    tool: Option<String>,
    /// The maximum number of roots, up to 1000.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<100, 1000>,
}

/// Lists what a lifeform's calls did outside of the daemon.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/effects",
    params(("id" = String, Path), EffectQuery),
    responses(
        (status = 200, description = "a page of effects", body = EffectPage),
        (status = 404, description = "there is no such lifeform"),
    ),
)]
pub(super) async fn effects(
    State(app): State<App>,
    _: Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(asked): ApiQuery<EffectQuery>,
) -> Result<Json<EffectPage>, ApiError> {
    let (found, next) = app.lifeforms.tool_effects(&id, &asked.after, asked.limit.0).await?;
    let found = found.into_iter().filter(|(_, effect)| {
        asked.state.is_none_or(|state| effect.state == state)
            && asked.tool.as_ref().is_none_or(|tool| effect.tool == *tool)
    });
    let body = |(root, effect): (Arc<str>, neurons::tools::Effect)| EffectBody {
        id: effect.id,
        root,
        work: effect.work,
        tool: effect.tool,
        arguments: effect.arguments,
        place: effect.place,
        class: effect.class,
        state: effect.state,
        tries: effect.tries,
        announced_at: effect.announced_at,
        at: effect.at,
        by: effect.by,
        result: effect.result,
        why: effect.why,
    };
    Ok(Json(EffectPage { effects: found.map(body).collect(), next }))
}
