//! `/v1/fascicles`: definitions, their versions, and job starts.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fascicles::run::Status;
use fascicles::{
    DryRun, FascicleError, FascicleId, FascicleSpec, Fault, Faults, JobId, JobOrder, Priority, Script, Version,
};
use neurons::HOUSE;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Event, Hash, Principal, Versioned, json};
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant, Patience, if_match};
use super::jobs::{self, JobBody};
use super::pace::Definer;
use super::paging::{Entries, Page};
use crate::default_toolbox;

/// The maximum deadline of a job, in seconds: thirty days.
const DEADLINE_S_MAX: u64 = 30 * 24 * 3600;

/// A stored definition.
#[derive(Serialize, ToSchema)]
pub(super) struct DefinedFascicle {
    #[schema(inline)]
    #[serde(flatten)]
    spec: FascicleSpec,
    /// The version.
    version: u64,
    /// `true` if the definition is shipped with the daemon and cannot be changed.
    shipped: bool,
}

/// A page of definitions.
#[derive(Serialize, ToSchema)]
pub(super) struct FasciclePage {
    /// The definitions by id.
    fascicles: Vec<DefinedFascicle>,
    /// The `after` of the next page; `null` at the end.
    #[schema(value_type = Option<String>)]
    next: Option<FascicleId>,
}

/// A page of the versions of a fascicle.
#[derive(Serialize, ToSchema)]
pub(super) struct FascicleVersions {
    /// The versions, oldest first.
    versions: Vec<Version>,
    /// The `after` of the next page; `null` at the end.
    next: Option<u64>,
}

fn shown(app: &App, found: &Versioned<FascicleSpec>) -> DefinedFascicle {
    let (spec, version) = (found.value.clone(), found.version);
    DefinedFascicle { shipped: app.fascicles.is_shipped(&spec.id), spec, version }
}

fn tagged(app: &App, status: StatusCode, found: &Versioned<FascicleSpec>) -> Response {
    let tag = HeaderValue::from_str(&format!("\"{}\"", found.version));
    let tag = tag.unwrap_or(HeaderValue::from_static("\"0\""));
    (status, [(header::ETAG, tag)], Json(shown(app, found))).into_response()
}

/// Defines a fascicle.
///
/// If the definition has faults, the refusal lists all of them.
#[utoipa::path(
    post, path = "/v1/fascicles",
    request_body = FascicleSpec,
    responses(
        (status = 201, body = DefinedFascicle, description = "defined"),
        (status = 409, description = "the id is taken"),
        (status = 422, description = "not well made: `faults` holds {path, reason, cure} for each"),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Definer(origin): Definer,
    ApiJson(spec): ApiJson<FascicleSpec>,
) -> Result<Response, ApiError> {
    let made = app.fascicles.create(&origin, spec).await?;
    Ok(tagged(&app, StatusCode::CREATED, &made))
}

/// Lists fascicles by id.
#[utoipa::path(
    get, path = "/v1/fascicles",
    params(Page),
    responses((status = 200, description = "a page of definitions", body = FasciclePage)),
)]
pub(super) async fn list(
    State(app): State<App>,
    _caller: Caller,
    ApiQuery(page): ApiQuery<Page>,
) -> Result<Json<FasciclePage>, ApiError> {
    let found = app.fascicles.list(&page.after, page.limit.0).await?;
    let next = (found.len() == page.limit.0).then(|| found.last().map(|(id, _)| id.clone())).flatten();
    Ok(Json(FasciclePage { fascicles: found.iter().map(|(_, found)| shown(&app, found)).collect(), next }))
}

/// The result of a check.
#[derive(Serialize, ToSchema)]
pub(super) struct Checked {
    /// All faults; empty if the definition can be stored.
    faults: Vec<Fault>,
}

/// Checks a definition without storing it.
#[utoipa::path(
    post, path = "/v1/fascicles/check",
    request_body = FascicleSpec,
    responses(
        (status = 200, body = Checked, description = "the faults"),
        (status = 403, description = "it gives a tool, or names an approver, that the caller may not"),
    ),
)]
pub(super) async fn check(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiJson(spec): ApiJson<FascicleSpec>,
) -> Result<Json<Checked>, ApiError> {
    match app.fascicles.check_by(&origin, &spec).await {
        Ok(()) => Ok(Json(Checked { faults: Vec::new() })),
        Err(FascicleError::Invalid(Faults(faults))) => Ok(Json(Checked { faults })),
        Err(error) => Err(error.into()),
    }
}

/// Returns the JSON Schema of a fascicle definition.
#[utoipa::path(
    get,
    path = "/v1/fascicles/schema",
    responses((status = 200, description = "a JSON Schema (2020-12)", body = Object)),
)]
pub(super) async fn schema(_caller: Caller) -> Json<Value> {
    Json(fascicles::schema())
}

/// Returns the definition of a fascicle.
#[utoipa::path(
    get, path = "/v1/fascicles/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = DefinedFascicle, description = "the definition"),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<FascicleId>,
) -> Result<Response, ApiError> {
    let found = app.fascicles.get(&id).await?;
    Ok(tagged(&app, StatusCode::OK, &found))
}

/// Replaces the definition of a fascicle.
///
/// `If-Match` names the expected version. Running jobs keep their version.
#[utoipa::path(
    put, path = "/v1/fascicles/{id}",
    params(("id" = String, Path)),
    request_body = FascicleSpec,
    responses(
        (status = 200, body = DefinedFascicle, description = "replaced"),
        (status = 404, description = "there is none"),
        (status = 409, description = "it was changed meanwhile, or comes with the daemon"),
        (status = 422, description = "not well made"),
    ),
)]
pub(super) async fn update(
    State(app): State<App>,
    Definer(origin): Definer,
    ApiPath(id): ApiPath<FascicleId>,
    headers: HeaderMap,
    ApiJson(spec): ApiJson<FascicleSpec>,
) -> Result<Response, ApiError> {
    let made = app.fascicles.update(&origin, &id, spec, if_match(&headers)?).await?;
    Ok(tagged(&app, StatusCode::OK, &made))
}

/// The option to remove a definition that is in use.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Forced {
    /// `true` to remove the definition although others use it.
    #[serde(default)]
    pub(super) force: bool,
}

/// Removes a fascicle definition.
///
/// A definition in use is removed only with `force`.
#[utoipa::path(
    delete, path = "/v1/fascicles/{id}",
    params(("id" = String, Path), Forced),
    responses(
        (status = 204, description = "removed"),
        (status = 404, description = "there is none"),
        (status = 409, description = "it is used, or comes with the daemon"),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Definer(origin): Definer,
    ApiPath(id): ApiPath<FascicleId>,
    ApiQuery(Forced { force }): ApiQuery<Forced>,
) -> Result<StatusCode, ApiError> {
    if !force && let Some(lifeform) = app.lifeforms.living_by(&id).await? {
        let detail = format!("lifeform {lifeform} answers by fascicle {id}");
        return Err(
            ApiError::new(StatusCode::CONFLICT, "in_use", detail).hint("DELETE …?force=true removes it nevertheless")
        );
    }
    app.fascicles.delete(&origin, &id, force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the versions of a fascicle with author and reason.
///
/// This includes removed fascicles.
#[utoipa::path(
    get, path = "/v1/fascicles/{id}/versions",
    params(("id" = String, Path), Entries),
    responses(
        (status = 200, description = "a page of versions", body = FascicleVersions),
        (status = 404, description = "there never was one"),
    ),
)]
pub(super) async fn versions(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<FascicleId>,
    ApiQuery(asked): ApiQuery<Entries>,
) -> Result<Json<FascicleVersions>, ApiError> {
    let limit = asked.limit.0;
    let (versions, next) = app.fascicles.versions(&id, asked.after, limit).await?;
    if versions.is_empty() && app.fascicles.versions(&id, 0, 1).await?.0.is_empty() {
        app.fascicles.get(&id).await?;
    }
    let next = (versions.len() == limit).then_some(next);
    Ok(Json(FascicleVersions { versions, next }))
}

/// The input of a job: a text of the user, or events.
#[derive(Deserialize, ToSchema)]
#[serde(untagged, expecting = "input is a text, or {\"events\": [{\"role\": …, \"content\": …}]}")]
pub(super) enum JobInput {
    /// A text, as one event of the user.
    Text(String),
    /// A list of events.
    Events(JobEvents),
}

/// Events `{role, content}`, with further information of their author as `metadata`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JobEvents {
    #[schema(value_type = Vec<Object>)]
    events: Vec<Event>,
}

impl JobInput {
    fn events(self) -> Vec<Event> {
        match self {
            Self::Text(text) => vec![Event::text("user", text, store::Cause::default())],
            Self::Events(JobEvents { events }) => events,
        }
    }
}

/// A request for a job.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecuteBody {
    /// The input.
    input: JobInput,
    /// The priority among the caller's jobs.
    #[serde(default)]
    priority: Priority,
    /// The deadline in seconds; `None` means none.
    #[serde(default)]
    deadline_s: Option<u64>,
}

/// The answer of `execute`.
#[derive(Serialize, ToSchema)]
pub(super) struct Accepted {
    /// The job.
    #[schema(value_type = String)]
    job_id: JobId,
    /// The status, always `pending`. Poll the job or subscribe to it.
    status: Status,
    /// The links to the job.
    links: Links,
}

/// The links to a job.
#[derive(Serialize, ToSchema)]
pub(super) struct Links {
    status: String,
    subscribe: String,
}

pub(super) fn links(job: &JobId) -> Links {
    Links { status: format!("/v1/jobs/{job}"), subscribe: format!("/v1/jobs/{job}/subscribe") }
}

/// Starts a job of a fascicle, paid by the house account.
///
/// Requests with the same `Idempotency-Key` start one job. With `Prefer: wait=30`, the response is the job with 200
/// when it ends or waits for input, or 202 after this number of seconds (60 at most).
#[utoipa::path(
    post, path = "/v1/fascicles/{id}/execute",
    params(("id" = String, Path), IdempotencyKey, ("Prefer" = Option<String>, Header, description = "wait=seconds")),
    request_body = ExecuteBody,
    responses(
        (status = 200, body = JobBody, description = "the job as it was waited for"),
        (status = 202, body = Accepted, description = "accepted, and durable"),
        (status = 404, description = "there is no such fascicle"),
        (status = 413, description = "the input is too large"),
        (status = 422, description = "something it is made of is gone, or the key was used for another job"),
        (status = 429, description = "too many jobs are running"),
    ),
)]
pub(super) async fn execute(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<FascicleId>,
    IdempotencyKey(key): IdempotencyKey,
    patience: Patience,
    ApiJson(body): ApiJson<Value>,
) -> Result<Response, ApiError> {
    let ordered = Hash::of(&json(&(&id, &body))).hex();
    let body: ExecuteBody = serde_json::from_value(body).map_err(|error| ApiError::invalid(error.to_string()))?;
    if body.deadline_s.is_some_and(|seconds| seconds == 0 || seconds > DEADLINE_S_MAX) {
        return Err(ApiError::invalid(format!("deadline_s is 1 to {DEADLINE_S_MAX}")));
    }
    let named: Option<JobId> = key.map(|key| {
        let name = Hash::of(&json(&(&origin.principal.id, "execute", key))).hex();
        format!("job_{}", &name[..32]).into()
    });
    let reused = || {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", "this Idempotency-Key was used for another job")
            .hint("use a fresh Idempotency-Key for another job")
    };
    // A repeated request gets the same response, even if the fascicle has changed or was removed.
    if let Some(job) = &named
        && let Ok(known) = app.fascicles.job(job).await
    {
        return if known.ordered == ordered {
            begun(&app, &origin.principal, job.clone(), &patience).await
        } else {
            Err(reused())
        };
    }
    let missing: Vec<_> = app
        .fascicles
        .tools_of(&id)
        .await?
        .into_iter()
        .filter(|name| !default_toolbox::HAS.contains(&&**name))
        .collect();
    if !missing.is_empty() {
        let detail =
            format!("fascicle {id} calls {missing:?}, which only a lifeform has; it is run by lifeforms alone");
        return Err(ApiError::invalid(detail));
    }
    let order = JobOrder {
        id: named.clone(),
        fascicle: id,
        owner: HOUSE.into(),
        account: HOUSE.into(),
        events: body.input.events(),
        priority: body.priority,
        deadline_s: body.deadline_s,
        ordered: ordered.clone(),
        ..JobOrder::default()
    };
    let job = app.fascicles.start(&origin, order, app.house.clone(), |batch| batch).await?;
    if named.is_some() && app.fascicles.job(&job).await?.ordered != ordered {
        return Err(reused());
    }
    begun(&app, &origin.principal, job, &patience).await
}

/// Returns the response for a job that is not settled within the caller's time limit.
async fn begun(app: &App, who: &Principal, job: JobId, patience: &Patience) -> Result<Response, ApiError> {
    match jobs::awaited(app, who, &job, &[], patience).await? {
        Some(head) => jobs::answered(app, head).await,
        None => Ok(accepted(job)),
    }
}

fn accepted(job: JobId) -> Response {
    let at = HeaderValue::from_str(&format!("/v1/jobs/{job}")).unwrap_or(HeaderValue::from_static("/v1/jobs"));
    let accepted = Accepted { links: links(&job), job_id: job, status: Status::Pending };
    (StatusCode::ACCEPTED, [(header::LOCATION, at)], Json(accepted)).into_response()
}

/// A request for a simulation with scripted outputs.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DryRunBody {
    /// The input.
    input: JobInput,
    /// The scripted outputs by node or step. Missing outputs of text neurons are generated.
    #[serde(default)]
    #[schema(value_type = Object)]
    script: Script,
    /// The definition to run instead of the stored one. It is not stored.
    #[serde(default)]
    spec: Option<FascicleSpec>,
}

/// Simulates a fascicle with scripted outputs.
///
/// This calls no model, stores nothing and costs nothing.
#[utoipa::path(
    post, path = "/v1/fascicles/{id}/dry-run",
    params(("id" = String, Path)),
    request_body = DryRunBody,
    responses(
        (status = 200, body = DryRun, description = "what became of each step"),
        (status = 404, description = "there is none"),
        (status = 422, description = "the script lacks an output that is needed"),
    ),
)]
pub(super) async fn dry_run(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<FascicleId>,
    ApiJson(body): ApiJson<DryRunBody>,
) -> Result<Json<DryRun>, ApiError> {
    let spec = match body.spec {
        Some(spec) => {
            app.fascicles.check_by(&origin, &spec).await?;
            spec
        }
        None => app.fascicles.get(&id).await?.value,
    };
    Ok(Json(app.fascicles.dry_run(&spec, body.input.events(), &body.script).await?))
}

/// The languages of drawings.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Mermaid,
    Dot,
}

/// The options of a drawing.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Drawing {
    /// The language of the drawing.
    #[serde(default)]
    #[param(inline)]
    format: Format,
}

/// Returns a drawing of a fascicle as text.
#[utoipa::path(
    get, path = "/v1/fascicles/{id}/drawing",
    params(("id" = String, Path), Drawing),
    responses(
        (status = 200, body = String, content_type = "text/plain", description = "Mermaid or DOT"),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn drawing(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<FascicleId>,
    ApiQuery(Drawing { format }): ApiQuery<Drawing>,
) -> Result<String, ApiError> {
    let spec = app.fascicles.get(&id).await?.value;
    Ok(match format {
        Format::Mermaid => fascicles::mermaid(&spec),
        Format::Dot => fascicles::dot(&spec),
    })
}
