//! `/api/knowledge`: the records of the commons, in the API of KnowHub clients. Additions to that API: reading one
//! record, its history, rollback and deletion.

mod answers;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use knowledge::{
    Change, Draft, Judged, Listed, Query, Record, Router, SlimReport, SlimRules, THRESHOLD, Type, Which, check_owner,
    check_scope,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiJsonOr, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant, if_match};
use answers::{RecordHistory, SavedRecord, SearchAnswer};

/// The maximum number of records on a page.
const LIMIT_MAX: usize = 1_000;

/// A new record. Unknown members are stored unchanged.
#[derive(ToSchema)]
#[schema(as = KnowledgeRecord)]
#[expect(dead_code, reason = "it only describes what the records' own reader reads")]
pub(super) struct RecordBody {
    /// The situation and the purpose for which the record applies: up to 2,000 characters.
    #[schema(min_length = 1, max_length = 2000)]
    task: String,
    /// The content: up to 100,000 characters.
    #[schema(min_length = 1, max_length = 100_000)]
    content: String,
    /// The types of knowledge: `user_profile`, `strategy`, `tool`, `usecase`, `definition`, `plan`.
    types: Vec<String>,
    /// The tags: `category`, `domain`, and others.
    #[schema(value_type = Option<Object>)]
    tags: Option<Value>,
    /// The scopes that see the record: `public`, or `entity:id` of user, agent, lifeform, project, team, org. Default:
    /// the owner's own scope.
    scopes: Option<Vec<String>>,
    /// The owner (default: the caller).
    owner: Option<String>,
    /// The source: `name`, `category`, `urls`, `agent_id`, `submitted_by`, `timestamp`, `message_id`.
    #[schema(value_type = Option<Object>)]
    source: Option<Value>,
    /// The score, from 1 to 5 (default 3).
    #[schema(minimum = 1, maximum = 5)]
    score: Option<f64>,
    /// The id of the source message.
    message_id: Option<String>,
    /// The text around the content at its source. A search covers it too.
    context: Option<Vec<String>>,
    /// The ids of resources that the record needs.
    resource_ids: Option<Vec<String>>,
}

/// A change of a record.
#[derive(ToSchema)]
#[schema(as = KnowledgeChange)]
#[expect(dead_code, reason = "it only describes what the records' own reader reads")]
pub(super) struct ChangeBody {
    /// A case in which the record helped: `task`, `outcome`, `timestamp`. A case with `message_id` or `trace_id` counts
    /// once.
    #[schema(value_type = Option<Object>)]
    add_helpful_case: Option<Value>,
    /// A case in which the record did not help, with the same members.
    #[schema(value_type = Option<Object>)]
    add_harmful_case: Option<Value>,
    /// The new score, from 1 to 5. Only the owner may set it.
    update_score: Option<f64>,
    /// A suggestion for an improvement.
    evolve_feedback: Option<String>,
    /// The new task. Only the owner may change this member and the following ones.
    task: Option<String>,
    /// The new content.
    content: Option<String>,
    /// The new types.
    types: Option<Vec<String>>,
    /// The new tags.
    #[schema(value_type = Option<Object>)]
    tags: Option<Value>,
    /// The new scopes.
    scopes: Option<Vec<String>>,
    /// The new context.
    context: Option<Vec<String>>,
    /// The new resource ids.
    resource_ids: Option<Vec<String>>,
}

/// The query of a search.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchQuery {
    /// The question.
    #[serde(default)]
    q: String,
    /// The maximum number of results, from 1 to 50.
    #[serde(default = "five")]
    top_k: usize,
    /// The minimum score, from 0 to 5.
    #[serde(default = "three")]
    min_score: f64,
    /// The accepted types, separated by commas.
    types: Option<String>,
    /// The accepted scopes, separated by commas.
    scopes: Option<String>,
    /// The owner.
    owner: Option<String>,
    /// The search method: `lexical` (words), `hybrid` (words and embeddings, the default if there is an embedder) or
    /// `llm` (a model, which costs nutrients). If a method is unavailable, the search uses the method before it in this
    /// list.
    router: Option<String>,
    /// 1 to explain the rank of each result.
    #[serde(default)]
    #[param(maximum = 255)]
    explain: u8,
    /// The order: `scope` (nearest scope first, the default for profiles) or `quality` (the default otherwise).
    order: Option<String>,
    /// `001` adds the first type of each result as `type`, for older clients.
    compat: Option<String>,
}

fn five() -> usize {
    5
}

fn three() -> f64 {
    3.0
}

/// The filter of a list of records.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The maximum number of records, up to 1000.
    #[serde(default = "ten")]
    #[param(minimum = 1, maximum = 1000)]
    limit: usize,
    /// The accepted types, separated by commas.
    types: Option<String>,
    /// The accepted scopes, separated by commas.
    scopes: Option<String>,
    /// The owner.
    owner: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

fn ten() -> usize {
    10
}

/// Splits a list at its commas. The KnowHub client sends `None` for an absent list.
fn listed(text: Option<&String>) -> impl Iterator<Item = &str> {
    text.filter(|text| *text != "None")
        .into_iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

pub(super) fn which(types: Option<&String>, scopes: Option<&String>, owner: Option<String>) -> Result<Which, ApiError> {
    let wrong = |member: &'static str| move |what: String| ApiError::invalid(format!("{member} {what}"));
    let types = listed(types).map(Type::parse).collect::<Result<_, _>>().map_err(wrong("types"))?;
    let scopes: Vec<&str> = listed(scopes).collect();
    scopes.iter().try_for_each(|scope| check_scope(scope)).map_err(wrong("scopes"))?;
    let owner = owner.filter(|owner| !owner.is_empty());
    owner.iter().try_for_each(|owner| check_owner(owner)).map_err(wrong("owner"))?;
    Ok(Which { types, scopes: scopes.into_iter().map(str::to_owned).collect(), owner, ..Which::default() })
}

/// Searches the records that best answer a question.
///
/// The search first selects twice as many matching records as requested. It then ranks them by `score + helpful −
/// 2·harmful`. New records are searchable immediately.
#[utoipa::path(
    get, path = "/api/knowledge/search",
    params(SearchQuery),
    responses(
        (status = 200, description = "the results", body = SearchAnswer),
        (status = 422, description = "no question, or one that cannot be asked"),
    ),
)]
pub(super) async fn search(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiQuery(asked): ApiQuery<SearchQuery>,
) -> Result<Json<Value>, ApiError> {
    let router = match asked.router.as_deref() {
        None | Some("") => None,
        Some("lexical") => Some(Router::Lexical),
        Some("hybrid") => Some(Router::Hybrid),
        Some("llm") => Some(Router::Llm),
        Some(_) => return Err(ApiError::invalid("router is lexical, hybrid or llm")),
    };
    if !(0.0..=5.0).contains(&asked.min_score) {
        return Err(ApiError::invalid("min_score is a number from 0 to 5"));
    }
    let which = which(asked.types.as_ref(), asked.scopes.as_ref(), asked.owner)?;
    let scope_first = match asked.order.as_deref() {
        None | Some("") => which.types.iter().eq([&Type::UserProfile]),
        Some("quality") => false,
        Some("scope") => true,
        Some(_) => return Err(ApiError::invalid("order is quality or scope")),
    };
    let older = match asked.compat.as_deref() {
        None | Some("") => false,
        Some("001") => true,
        Some(_) => return Err(ApiError::invalid("compat is 001")),
    };
    let which = Which { min_score: Some(asked.min_score), ..which };
    let query = Query { which, router, scope_first, ..Query::new(asked.q, asked.top_k) };
    let found = app.knowledge.search(&query, &origin).await?;
    let mut answer = found.to_json(asked.explain > 0);
    for result in answer["results"].as_array_mut().into_iter().flatten().filter(|_| older) {
        result["type"] = result["types"][0].clone();
    }
    Ok(Json(answer))
}

/// Creates a record.
///
/// Requests of the same caller with the same `Idempotency-Key` create one record.
#[utoipa::path(
    post, path = "/api/knowledge",
    params(IdempotencyKey),
    request_body = RecordBody,
    responses((status = 201, description = "the record", body = SavedRecord)),
)]
pub(super) async fn create(
    State(app): State<App>,
    Participant(origin): Participant,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<Map<String, Value>>,
) -> Result<(StatusCode, Json<SavedRecord>), ApiError> {
    let draft = Draft::read(body, &origin.principal).map_err(knowledge::KnowledgeError::from)?;
    let saved = app.knowledge.save(draft, key.as_deref(), &origin).await?;
    Ok((StatusCode::CREATED, Json(SavedRecord::of(saved.record, saved.warnings))))
}

/// Lists the records that the caller can see, newest first.
#[utoipa::path(
    get, path = "/api/knowledge",
    params(ListQuery),
    responses(
        (status = 200, description = "a page of records", body = Listed),
        (status = 422, description = "a part of the query cannot be"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiQuery(asked): ApiQuery<ListQuery>,
) -> Result<Json<Listed>, ApiError> {
    if !(1..=LIMIT_MAX).contains(&asked.limit) {
        return Err(ApiError::invalid(format!("limit is a number from 1 to {LIMIT_MAX}")));
    }
    let which = which(asked.types.as_ref(), asked.scopes.as_ref(), asked.owner)?;
    let listed = app.knowledge.list(&which, asked.limit, asked.cursor.as_deref(), &origin).await?;
    Ok(Json(listed))
}

/// Returns a record with its newest helpful and harmful cases.
#[utoipa::path(
    get, path = "/api/knowledge/{id}",
    params(("id" = String, Path)),
    responses((status = 200, description = "the record", body = Record)),
)]
pub(super) async fn read(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Record>, ApiError> {
    Ok(Json(app.knowledge.get(&id, &origin).await?))
}

/// Judges a record, or changes a record of the caller.
///
/// With `If-Match`, the change applies only to that `version`.
#[utoipa::path(
    put, path = "/api/knowledge/{id}",
    params(("id" = String, Path)),
    request_body = ChangeBody,
    responses((status = 200, description = "the record", body = SavedRecord)),
)]
pub(super) async fn update(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
    ApiJson(body): ApiJson<Map<String, Value>>,
) -> Result<Json<SavedRecord>, ApiError> {
    let version = if_match(&headers)?;
    let change = Change::read(body, &origin)?;
    let asks_to_evolve = change.evolve.is_some();
    let saved = Box::pin(app.knowledge.change(&id, change, version, &origin)).await?;
    let evolved = asks_to_evolve.then_some(saved.evolved.is_none());
    let reason = saved.evolved.filter(|_| asks_to_evolve);
    Ok(Json(SavedRecord { evolved, reason, ..SavedRecord::of(saved.record, saved.warnings) }))
}

/// The kind of deletion.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteQuery {
    /// 1 to remove the record permanently, with its versions and cases.
    #[serde(default)]
    #[param(maximum = 255)]
    purge: u8,
}

/// Deletes a record.
///
/// Searches no longer find it, but its owner can roll it back to an earlier version. With `purge=1`, the deletion is
/// permanent.
#[utoipa::path(
    delete, path = "/api/knowledge/{id}",
    params(("id" = String, Path), DeleteQuery),
    responses((status = 204, description = "deleted")),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
    ApiQuery(asked): ApiQuery<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    app.knowledge.delete(&id, asked.purge > 0, &origin).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The start of a page of a history.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AfterQuery {
    /// The version after which the page starts.
    #[serde(default)]
    after: u64,
}

/// Returns up to 256 versions of a record with authors and causes.
#[utoipa::path(
    get, path = "/api/knowledge/{id}/history",
    params(("id" = String, Path), AfterQuery),
    responses((status = 200, description = "the versions", body = RecordHistory)),
)]
pub(super) async fn history(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<String>,
    ApiQuery(asked): ApiQuery<AfterQuery>,
) -> Result<Json<RecordHistory>, ApiError> {
    Ok(Json(RecordHistory { versions: app.knowledge.history(&id, asked.after, &origin).await? }))
}

/// The target of a rollback.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollbackBody {
    /// The version in the history of the record.
    version: u64,
}

/// Rolls a record back to an earlier version.
///
/// The rollback is a new version. A deleted or merged record becomes available again.
#[utoipa::path(
    post, path = "/api/knowledge/{id}/rollback",
    params(("id" = String, Path)),
    request_body = RollbackBody,
    responses((status = 200, description = "the record", body = SavedRecord)),
)]
pub(super) async fn rollback(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
    ApiJson(body): ApiJson<RollbackBody>,
) -> Result<Json<SavedRecord>, ApiError> {
    let record = app.knowledge.roll_back(&id, body.version, &origin).await?;
    Ok(Json(SavedRecord::of(record, Vec::new())))
}

/// A list of judgements of records.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JudgementsBody {
    /// The judgements, each `{knowledge_id, is_helpful, case?}`. A malformed one is listed among the errors.
    feedback_list: Vec<Value>,
}

/// Judges several records.
///
/// The response reports invalid judgements, and the others count.
#[utoipa::path(
    post, path = "/api/knowledge/batch_update",
    request_body = JudgementsBody,
    responses((status = 200, description = "the number of counted judgements, and the refused ones", body = Judged)),
)]
pub(super) async fn judge(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiJson(body): ApiJson<JudgementsBody>,
) -> Result<Json<Judged>, ApiError> {
    Ok(Json(app.knowledge.judge_all(body.feedback_list, &origin).await?))
}

/// The rules of merging.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlimBody {
    /// `true` to report the duplicates without merging them.
    #[serde(default)]
    dry_run: bool,
    /// The minimum share of common words of two duplicates, from 0.5 to 1 (default 0.85).
    threshold: Option<f64>,
    /// The model that judges pairs of records which share fewer words: its name, or a tier. Absent: none.
    model: Option<String>,
}

/// Merges duplicates among the caller's records.
///
/// Merged records keep their versions and can be rolled back.
#[utoipa::path(
    post, path = "/api/knowledge/slim",
    request_body = Option<SlimBody>,
    responses((status = 200, description = "the outcome", body = SlimReport)),
)]
pub(super) async fn slim(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiJsonOr(body): ApiJsonOr<SlimBody>,
) -> Result<Json<SlimReport>, ApiError> {
    let threshold = body.threshold.unwrap_or(THRESHOLD);
    if !(0.5..=1.0).contains(&threshold) {
        return Err(ApiError::invalid("threshold is a number from 0.5 to 1"));
    }
    let rules = SlimRules { threshold, dry_run: body.dry_run, model: body.model };
    Ok(Json(Box::pin(app.knowledge.slim(rules, &origin)).await?.report(body.dry_run)))
}
