//! `/v1/lifeforms`: creation, life cycle, nutrients, policy, introspection.

pub(super) mod nutrients;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lifeform::metabolism::{self, Mode, Policy, Strategy};
use lifeform::{LifeformHead, LifeformId, LifeformSpec, Status};
use neurons::HOUSE;
use neurons::llm::paid;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::Timestamp;
use store::ledger::Account;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Operator};
use super::paging::{JournalEntry, JournalPage, Limit};
use crate::daemon::shipped_lifeform;
use lifeform::guard::Guard;
use nutrients::Nutrients;

/// A request for a new lifeform.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateBody {
    /// The name of a shipped definition, or a complete definition.
    definition: Value,
    /// The name; overrides the definition's.
    #[serde(default)]
    name: Option<String>,
}

/// The summary of a lifeform.
#[derive(Serialize, ToSchema)]
#[schema(as = Lifeform)]
pub(super) struct Summary {
    /// The id.
    #[schema(value_type = String, example = "lf_01a216aab5d55622becf")]
    id: LifeformId,
    /// The name.
    name: String,
    /// The status.
    status: Status,
    /// The present metabolic mode.
    mode: Mode,
    /// The need for nutrients, from 0 (well fed) to 1 (it cannot think).
    hunger: f64,
    /// The policy that an operator set.
    policy: Policy,
    /// The state of the guard.
    guard: Guard,
    /// The account.
    nutrients: Nutrients,
    /// The time of creation.
    created_at: Timestamp,
    /// The paths of the lifeform and of its canvases.
    links: Links,
}

/// The paths of a lifeform.
#[derive(Serialize, ToSchema)]
#[schema(as = LifeformLinks)]
struct Links {
    /// The path of the lifeform.
    #[serde(rename = "self")]
    itself: String,
    /// The path of its canvases.
    canvases: String,
}

/// A page of lifeforms.
#[derive(Serialize, ToSchema)]
#[schema(as = LifeformList)]
pub(super) struct LifeformPage {
    /// The lifeforms, by id.
    lifeforms: Vec<Summary>,
    /// The `after` of the next page; `null` at the end.
    #[schema(value_type = Option<String>)]
    next: Option<LifeformId>,
}

/// A policy and the mode that follows from it.
#[derive(Serialize, ToSchema)]
pub(super) struct PolicyAndMode {
    /// The policy that an operator set.
    policy: Policy,
    /// The present metabolic mode.
    mode: Mode,
}

/// A page of recorded model calls.
#[derive(Serialize, ToSchema)]
pub(super) struct CallPage {
    /// The entries of the record: requests with their messages, and answers.
    #[schema(value_type = Vec<JournalEntry>)]
    calls: Vec<Value>,
    /// The number with which the next page begins; `null` at the end.
    next: Option<u64>,
}

fn summary(head: &LifeformHead, account: &Account) -> Summary {
    let path = format!("/v1/lifeforms/{}", head.id);
    Summary {
        id: head.id.clone(),
        name: head.definition.name.clone(),
        status: head.status,
        mode: head.mode,
        hunger: metabolism::hunger(account.available().tokens, &head.definition.metabolism),
        policy: head.policy.clone(),
        guard: head.guard.clone(),
        nutrients: Nutrients::of(account),
        created_at: head.created_at,
        links: Links { canvases: format!("{path}/canvases"), itself: path },
    }
}

async fn summed_up(app: &App, head: &LifeformHead) -> Result<Json<Summary>, ApiError> {
    Ok(Json(summary(head, &app.store.account(&head.id).await?.unwrap_or_default())))
}

/// Creates a lifeform.
#[utoipa::path(
    post, path = "/v1/lifeforms",
    params(IdempotencyKey),
    request_body = CreateBody,
    responses(
        (status = 201, description = "the summary", body = Summary),
        (status = 404, description = "no such shipped definition"),
        (status = 422, description = "not well made"),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Operator(origin): Operator,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<CreateBody>,
) -> Result<(StatusCode, Json<Summary>), ApiError> {
    let mut definition: LifeformSpec = match body.definition {
        Value::String(name) => shipped_lifeform(&name).ok_or_else(|| {
            ApiError::new(StatusCode::NOT_FOUND, "no_definition", format!("there is no shipped definition \"{name}\""))
                .hint("\"first\" is one; or send the definition itself")
        })?,
        other => serde_json::from_value(other).map_err(|error| ApiError::invalid(format!("definition: {error}")))?,
    };
    if let Some(name) = body.name {
        definition.name = name;
    }
    let head = Box::pin(app.lifeforms.create(&origin, definition, key)).await?;
    Ok((StatusCode::CREATED, summed_up(&app, &head).await?))
}

type LifeformsLimit = Limit<100, 1000>;

/// A page of lifeforms.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// The id after which the page starts.
    #[serde(default)]
    after: String,
    /// The maximum number of lifeforms, up to 1000.
    #[serde(default)]
    #[param(inline)]
    limit: LifeformsLimit,
}

/// Lists lifeforms by id, without terminated ones.
#[utoipa::path(
    get, path = "/v1/lifeforms",
    params(Page),
    responses((status = 200, description = "a page of lifeforms", body = LifeformPage)),
)]
pub(super) async fn list(
    State(app): State<App>,
    _caller: Caller,
    ApiQuery(page): ApiQuery<Page>,
) -> Result<Json<LifeformPage>, ApiError> {
    let (heads, next) = app.lifeforms.page(&page.after, page.limit.0).await?;
    let mut lifeforms = Vec::new();
    for head in heads {
        lifeforms.push(summed_up(&app, &app.lifeforms.get(&head.id).await?).await?.0);
    }
    Ok(Json(LifeformPage { lifeforms, next }))
}

/// Returns the summary of a lifeform.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "the summary", body = Summary),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Summary>, ApiError> {
    let head = app.lifeforms.get(&id).await?;
    summed_up(&app, &head).await
}

/// Terminates a lifeform.
#[utoipa::path(
    delete, path = "/v1/lifeforms/{id}",
    params(("id" = String, Path)),
    responses((status = 204, description = "terminated"), (status = 404, description = "there is none")),
)]
pub(super) async fn terminate(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<StatusCode, ApiError> {
    app.lifeforms.terminate(&origin, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// An act on a lifeform.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes what the route takes")]
enum Action {
    Start,
    Stop,
    Reboot,
}

/// Starts, stops or reboots a lifeform.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/{action}",
    params(("id" = String, Path), ("action" = inline(Action), Path, description = "what it is to do")),
    responses(
        (status = 200, description = "the summary", body = Summary),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn act(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath((id, action)): ApiPath<(LifeformId, String)>,
) -> Result<Json<Summary>, ApiError> {
    let head = match action.as_str() {
        "start" => app.lifeforms.start(&id).await?,
        "stop" => app.lifeforms.stop(&origin, &id).await?,
        "reboot" => app.lifeforms.reboot(&origin, &id).await?,
        _ => {
            return Err(ApiError::new(StatusCode::NOT_FOUND, "no_action", format!("there is no action \"{action}\""))
                .hint("there are start, stop and reboot"));
        }
    };
    summed_up(&app, &head).await
}

/// Lists the model calls that the house account paid, with their messages.
///
/// Only operators may do this.
#[utoipa::path(
    get, path = "/v1/house/calls",
    params(JournalPage),
    responses(
        (status = 200, description = "a page of recorded calls", body = CallPage),
        (status = 403, description = "this is for operators"),
    ),
)]
pub(super) async fn house_calls(
    State(app): State<App>,
    _operator: Operator,
    ApiQuery(page): ApiQuery<JournalPage>,
) -> Result<Json<CallPage>, ApiError> {
    let (entries, next) = raw_journal(&app, paid::calls_stream(HOUSE), &page).await?;
    Ok(Json(CallPage { calls: paid::recorded(&app.store, entries).await?, next }))
}

/// Returns a page of a journal and the start of the next page.
pub(super) async fn journal(
    app: &App,
    stream: Arc<str>,
    page: &JournalPage,
) -> Result<(Vec<JournalEntry>, Option<u64>), ApiError> {
    let (entries, next) = page.of(&app.store, &stream).await?;
    Ok((entries.iter().map(JournalEntry::from).collect(), next))
}

async fn raw_journal(app: &App, stream: Arc<str>, page: &JournalPage) -> Result<(Vec<Value>, Option<u64>), ApiError> {
    let (entries, next) = page.of(&app.store, &stream).await?;
    Ok((entries.iter().map(store::Entry::to_json).collect(), next))
}

/// A policy.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyBody {
    /// The strategy: `default`, `force_hyper` or `force_eco`.
    #[schema(value_type = String)]
    strategy: Strategy,
    /// The reason.
    #[serde(default)]
    reason: String,
    /// The end.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    expires_at: Option<Timestamp>,
}

/// Sets the metabolic policy of a lifeform.
///
/// The cap of its account still applies.
#[utoipa::path(
    put, path = "/v1/lifeforms/{id}/metabolism/policy",
    params(("id" = String, Path)),
    request_body = PolicyBody,
    responses((status = 200, description = "the summary", body = Summary)),
)]
pub(super) async fn set_policy(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<PolicyBody>,
) -> Result<Json<Summary>, ApiError> {
    if body.reason.len() > 1000 {
        return Err(ApiError::invalid("reason is at most 1000 bytes"));
    }
    let policy = Policy { strategy: body.strategy, reason: body.reason, set_by: None, expires_at: body.expires_at };
    let head = app.lifeforms.set_policy(&origin, &id, policy).await?;
    summed_up(&app, &head).await
}

/// Ends the intervention of a lifeform's guard, for example a quarantine.
///
/// A lifeform that the guard stopped is started with `start`.
#[utoipa::path(
    delete, path = "/v1/lifeforms/{id}/guard",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "the summary", body = Summary),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn calm(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Summary>, ApiError> {
    let head = app.lifeforms.calm(&origin, &id).await?;
    summed_up(&app, &head).await
}

/// Returns the present metabolic policy of a lifeform.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/metabolism/policy",
    params(("id" = String, Path)),
    responses((status = 200, description = "the policy", body = PolicyAndMode)),
)]
pub(super) async fn policy(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<PolicyAndMode>, ApiError> {
    let head = app.lifeforms.get(&id).await?;
    Ok(Json(PolicyAndMode { policy: head.policy, mode: head.mode }))
}

/// Lists the model calls of a lifeform with unchanged prompts and answers.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/calls",
    params(("id" = String, Path), JournalPage),
    responses((status = 200, description = "a page of recorded calls", body = CallPage)),
)]
pub(super) async fn calls(
    State(app): State<App>,
    _operator: Operator,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(page): ApiQuery<JournalPage>,
) -> Result<Json<CallPage>, ApiError> {
    app.lifeforms.get(&id).await?;
    let (entries, next) = raw_journal(&app, paid::calls_stream(&id), &page).await?;
    Ok(Json(CallPage { calls: paid::recorded(&app.store, entries).await?, next }))
}
