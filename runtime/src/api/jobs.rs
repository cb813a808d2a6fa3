//! `/v1/jobs`: the status of jobs, their events, and answers to their waits.

pub(super) mod events;
pub(super) mod steps;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use fascicles::run::{Answer, Observed, Pause, Status, Step, ordinal};
use fascicles::{FascicleError, FascicleId, Fascicles, JobFilter, JobHead, JobId, Priority, Waiting};
use neurons::continuation::body_hash;
use neurons::neuron::ToolResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Hash, Principal, PrincipalId, Role, Timestamp, json};
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiJsonOr, ApiPath, ApiQuery, Caller, Participant, Patience};
use super::paging::Limit;

/// The name of the WebSocket subprotocol.
const SUBPROTOCOL: &str = "ailf.job.v1";
/// The longest time for a subscriber to receive a frame.
const SEND_MAX: Duration = Duration::from_secs(20);
/// The interval of pings on a quiet subscription.
const PING_EVERY: Duration = Duration::from_secs(20);

/// A job.
#[derive(Serialize, ToSchema)]
pub(super) struct JobBody {
    /// The id.
    #[schema(value_type = String)]
    job_id: JobId,
    /// The fascicle.
    fascicle: String,
    /// The status.
    status: Status,
    /// The stage of the job's fascicle that is running.
    current_stage: Option<String>,
    /// The paths of the steps that run now, also of nested fascicles; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    running: Vec<Step>,
    /// The events.
    events: Vec<Observed>,
    /// The output.
    output: Value,
    /// The reason for a failure.
    error: Option<String>,
    /// The waits. `continue` answers each one separately.
    waits: Vec<WaitBody>,
    /// The priority.
    priority: Priority,
    /// The time at which the job was accepted.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// The time of the last change.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

/// A wait of a job for input.
#[derive(Serialize, ToSchema)]
pub(super) struct WaitBody {
    /// The token of the wait, for `continue`.
    context_token: String,
    /// The step that waits.
    step: String,
    /// The kind of wait.
    #[serde(flatten)]
    pause: Pause,
    /// The time at which the wait expires.
    #[schema(value_type = Option<String>)]
    expires_at: Option<Timestamp>,
}

fn shown(fascicles: &Fascicles, head: JobHead, events: Vec<Observed>) -> JobBody {
    let wait = |waiting: &fascicles::Waiting| WaitBody {
        context_token: fascicles.token(&head, waiting.wait.n, waiting.wait.expires_at),
        step: waiting.step.to_string(),
        pause: waiting.wait.pause.clone(),
        expires_at: waiting.wait.expires_at,
    };
    JobBody {
        waits: head.waits.iter().map(wait).collect(),
        fascicle: head.fascicle.to_string(),
        status: head.status,
        current_stage: head.current_stage.as_deref().map(str::to_owned),
        // The actor of a job that has ended may not have stopped yet.
        running: if head.status.is_final() { Vec::new() } else { fascicles.running_steps(&head.id) },
        events,
        output: head.output,
        error: head.error,
        priority: head.priority,
        created_at: head.created_at,
        updated_at: head.updated_at,
        job_id: head.id,
    }
}

/// The start of a list of events.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    /// The id (`evt_003`) or number of the event after which the list starts.
    #[serde(default)]
    #[param(pattern = "^((evt_)?[0-9]{1,18})?$")]
    after: Option<String>,
}

impl After {
    fn ordinal(&self) -> Result<u64, ApiError> {
        let Some(after) = self.after.as_deref().filter(|after| !after.is_empty()) else { return Ok(0) };
        let wrong = || {
            ApiError::new(StatusCode::BAD_REQUEST, "after", format!("after=\"{after}\" is no event id like evt_003"))
        };
        ordinal(after).ok_or_else(wrong)
    }
}

/// Waits until a job has ended or has a wait that is not in `known`. Returns `None` if the caller's time limit expires,
/// if too many callers wait in all or for this principal, or if the daemon stops.
pub(super) async fn awaited(
    app: &App,
    who: &Principal,
    id: &JobId,
    known: &[Waiting],
    patience: &Patience,
) -> Result<Option<JobHead>, ApiError> {
    let (Some(most), Ok(_place)) = (patience.0, app.patience.take(who)) else { return Ok(None) };
    let mut stopping = app.stopping.clone();
    tokio::select! {
        head = app.fascicles.settled(id, known) => Ok(Some(head?)),
        () = tokio::time::sleep(most) => Ok(None),
        _ = stopping.wait_for(|stop| *stop) => Ok(None),
    }
}

/// The headers that confirm that the server applied the caller's preference.
const APPLIED: [(HeaderName, HeaderValue); 1] =
    [(HeaderName::from_static("preference-applied"), HeaderValue::from_static("wait"))];

/// Returns the response that a caller waited for.
pub(super) async fn answered(app: &App, head: JobHead) -> Result<Response, ApiError> {
    let events = app.fascicles.observed(&head.id).await?;
    Ok((APPLIED, Json(shown(&app.fascicles, head, events))).into_response())
}

/// Returns a job with its events.
///
/// With `Prefer: wait=30`, the response is sent when the job ends, when its waits change, or after this number of
/// seconds (60 at most).
#[utoipa::path(
    get, path = "/v1/jobs/{id}",
    params(("id" = String, Path), After, ("Prefer" = Option<String>, Header, description = "wait=seconds")),
    responses(
        (status = 200, body = JobBody, description = "the job"),
        (status = 404, description = "there is none of yours"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(after): ApiQuery<After>,
    patience: Patience,
) -> Result<Response, ApiError> {
    let after = after.ordinal()?;
    let known = app.fascicles.seen_by(&origin.principal, &id).await?;
    let awaited = awaited(&app, &origin.principal, &id, &known.waits, &patience).await?;
    let applied = awaited.is_some().then_some(APPLIED);
    let head = match (awaited, patience.0) {
        (Some(awaited), _) => awaited,
        (None, None) => known,
        // The job may have made progress during the wait.
        (None, Some(_)) => app.fascicles.job(&id).await?,
    };
    let mut events = app.fascicles.observed(&id).await?;
    events.retain(|event| event.ordinal() > after);
    Ok((applied, Json(shown(&app.fascicles, head, events))).into_response())
}

/// A selection of jobs.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Jobs {
    /// The id after which the page starts.
    #[serde(default)]
    after: String,
    /// The maximum number of entries, up to 200.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The status.
    #[serde(default)]
    #[param(inline)]
    status: Option<Status>,
    /// The fascicle.
    #[serde(default)]
    fascicle: Option<String>,
}

/// A job in a list.
#[derive(Serialize, ToSchema)]
struct ListedJob {
    /// The id.
    #[schema(value_type = String)]
    job_id: JobId,
    /// The id of the fascicle.
    #[schema(value_type = String)]
    fascicle: FascicleId,
    /// The status.
    status: Status,
    /// The step that runs now.
    #[schema(value_type = Option<String>)]
    current_stage: Option<Arc<str>>,
    /// The error of a failed job.
    error: Option<String>,
    /// The time of creation.
    created_at: Timestamp,
    /// The time of the last change.
    updated_at: Timestamp,
}

/// A page of jobs.
#[derive(Serialize, ToSchema)]
pub(super) struct JobPage {
    /// The jobs by id.
    jobs: Vec<ListedJob>,
    /// The `after` of the next page; `null` at the end.
    #[schema(value_type = Option<String>)]
    next: Option<JobId>,
}

/// The number of cancelled jobs.
#[derive(Serialize, ToSchema)]
pub(super) struct Cancelled {
    /// The number of jobs.
    cancelled: usize,
    /// `true` if there are more; the request can be repeated.
    more: bool,
}

/// Lists jobs by id.
///
/// Callers see their own jobs; operators see all. A page can be short although `next` names more.
#[utoipa::path(
    get, path = "/v1/jobs",
    params(Jobs),
    responses(
        (status = 200, description = "a page of jobs", body = JobPage),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiQuery(asked): ApiQuery<Jobs>,
) -> Result<Json<JobPage>, ApiError> {
    let filter = JobFilter { status: asked.status, fascicle: asked.fascicle.map(Into::into) };
    let (heads, next) = app.fascicles.jobs(&origin.principal, &filter, &asked.after, asked.limit.0).await?;
    let listed = |head: JobHead| ListedJob {
        job_id: head.id,
        fascicle: head.fascicle,
        status: head.status,
        current_stage: head.current_stage,
        error: head.error,
        created_at: head.created_at,
        updated_at: head.updated_at,
    };
    Ok(Json(JobPage { jobs: heads.into_iter().map(listed).collect(), next }))
}

/// Cancels a job.
///
/// A job that has ended stays unchanged.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/cancel",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = JobBody, description = "the job as it stands now"),
        (status = 404, description = "there is none of yours"),
    ),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<JobId>,
) -> Result<Json<JobBody>, ApiError> {
    let head = app.fascicles.cancel(&origin.principal, &id).await?;
    let events = app.fascicles.observed(&id).await?;
    Ok(Json(shown(&app.fascicles, head, events)))
}

/// The filter of the jobs to cancel.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CancelJobsBody {
    /// The status.
    #[schema(inline)]
    status: Option<Status>,
    /// The fascicle.
    fascicle: Option<String>,
    /// The principal that started the jobs, for example `user:ada` (default: the caller). Only operators may name
    /// another one.
    ordered_by: Option<String>,
}

/// Cancels up to a thousand unfinished jobs.
///
/// `more` means that there may be others. Without a body, all jobs of the caller are cancelled.
#[utoipa::path(
    post, path = "/v1/jobs/cancel",
    request_body = Option<CancelJobsBody>,
    responses(
        (status = 200, description = "the number of cancelled jobs", body = Cancelled),
        (status = 403, description = "this is for operators"),
    ),
)]
pub(super) async fn cancel_many(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiJsonOr(body): ApiJsonOr<CancelJobsBody>,
) -> Result<Json<Cancelled>, ApiError> {
    let CancelJobsBody { status, fascicle, ordered_by } = body;
    let own = &origin.principal.id;
    let ordered_by = ordered_by.map_or_else(|| own.clone(), PrincipalId::new);
    if ordered_by != *own && !origin.principal.may(Role::Operator) {
        return Err(ApiError::forbidden("only operators stop the jobs of others"));
    }
    let filter = JobFilter { status, fascicle: fascicle.map(Into::into) };
    let (cancelled, more) = app.fascicles.cancel_many(&origin.principal, &ordered_by, &filter).await?;
    Ok(Json(Cancelled { cancelled, more }))
}

/// Retries a failed job from the failed step.
///
/// Completed steps are not run or paid again.
#[utoipa::path(
    post, path = "/v1/jobs/{id}/retry",
    params(("id" = String, Path)),
    responses(
        (status = 202, body = JobBody, description = "it runs again"),
        (status = 404, description = "there is none of yours"),
        (status = 409, description = "it has not failed, or its owner is not alive"),
    ),
)]
pub(super) async fn retry(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<JobId>,
) -> Result<(StatusCode, Json<JobBody>), ApiError> {
    // The owner of the job is notified even if the caller disconnects.
    let taken_up = tokio::spawn({
        let (app, id) = (app.clone(), id.clone());
        async move {
            let head = app.fascicles.retry(&origin.principal, &id).await?;
            app.lifeforms.taken_up(&head.owner, &head.id);
            Ok::<_, FascicleError>(head)
        }
    });
    let head = taken_up
        .await
        .map_err(|panic| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "died", panic.to_string()))??;
    let events = app.fascicles.observed(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(shown(&app.fascicles, head, events))))
}

/// The answer to a wait of a job.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContinueJobBody {
    /// The token of the wait.
    context_token: String,
    /// The answer to a wait for tools: a result for each call, in any order. For a call with `needs_approval`: `{id,
    /// approved}`.
    #[serde(default)]
    tool_results: Option<Vec<ToolResult>>,
    /// The answer to a wait for an approval.
    #[serde(default)]
    approved: Option<bool>,
    /// The reason for the decision.
    #[serde(default)]
    comment: Option<String>,
    /// The answer to a wait for an event: the content of the event.
    #[serde(default)]
    event: Option<Value>,
}

/// Answers a wait of a job.
///
/// A repetition changes nothing. With `Prefer: wait=30`, the response is 200 when the job ends or waits for input, or
/// 202 after this number of seconds (60 at most).
#[utoipa::path(
    post, path = "/v1/jobs/{id}/continue",
    params(("id" = String, Path), ("Prefer" = Option<String>, Header, description = "wait=seconds")),
    request_body = ContinueJobBody,
    responses(
        (status = 200, body = JobBody, description = "taken; the job as it was waited for"),
        (status = 202, body = JobBody, description = "taken; the job goes on"),
        (status = 404, description = "no wait has this token"),
        (status = 409, description = "its owner is not alive"),
        (status = 410, description = "it is no longer waited for"),
        (status = 422, description = "no answer to what was asked, or another than was given before"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<JobId>,
    patience: Patience,
    ApiJson(body): ApiJson<ContinueJobBody>,
) -> Result<Response, ApiError> {
    let ContinueJobBody { context_token, tool_results, approved, comment, event } = body;
    let (name, answer) = match (tool_results, approved, event) {
        (Some(results), None, None) => (body_hash(&results), Answer::Results(results)),
        (None, Some(approved), None) => {
            let name = Hash::of(&json(&(approved, &comment))).hex();
            (name, Answer::Approval { approved, comment, by: origin.principal.id.to_string() })
        }
        (None, None, Some(content)) => (Hash::of(&json(&content)).hex(), Answer::Event(content)),
        _ => return Err(ApiError::invalid("exactly one of tool_results, approved and event answers a wait")),
    };
    let head = app.fascicles.answer(&origin.principal, &id, &context_token, name, answer).await?;
    let later = awaited(&app, &origin.principal, &id, &[], &patience).await?;
    if app.fascicles.seen_by(&origin.principal, &id).await.is_err() {
        // An approver of another principal's job sees it while it waits for the approval.
        let head = JobHead { output: Value::Null, error: None, waits: Vec::new(), ..later.unwrap_or(head) };
        return Ok((StatusCode::ACCEPTED, Json(shown(&app.fascicles, head, Vec::new()))).into_response());
    }
    if let Some(head) = later {
        return answered(&app, head).await;
    }
    let events = app.fascicles.observed(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(shown(&app.fascicles, head, events))).into_response())
}
