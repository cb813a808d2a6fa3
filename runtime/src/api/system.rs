//! `$system`: it maintains minds, observes, and can intervene with messages that are visibly its own.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use lifeform::LifeformId;
use lifeform::canvas::chat::Op;
use lifeform::canvas::{CHAT, WriteRequest};
use lifeform::maintenance::Task;
use serde::{Deserialize, Serialize};
use store::{Origin, Principal, PrincipalKind, Role};
use utoipa::ToSchema;

use super::App;
use super::canvases::{Written, apply, fresh};
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, IdempotencyKey, Operator};

/// A request for maintenance.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MaintenanceBody {
    /// The task: `form_claims`, `read_statements`, `merge_concepts`, `file_domains`, `describe_domains`, `describe_people`, `consolidate_memory`,
    /// `weigh_claims`, `check_claims`, `expire`, `evolve_schema`, `archive_persons`, `summarise_people`, `distil_knowledge` or `reflect`.
    #[schema(value_type = String)]
    task: Task,
    /// `true` to change nothing: the output of the job is what the task would change. The tasks `form_claims`,
    /// `read_statements`, `describe_domains`, `describe_people`, `distil_knowledge` and `reflect` have no dry run. The default is `false`.
    #[serde(default)]
    dry_run: bool,
}

/// A job of `$system`.
#[derive(Serialize, ToSchema)]
pub(super) struct Maintenance {
    /// The id of the job.
    job_id: String,
    /// The links.
    links: MaintenanceLinks,
}

/// The links of a job of `$system`.
#[derive(Serialize, ToSchema)]
struct MaintenanceLinks {
    /// The path of the job.
    job: String,
}

/// Starts a maintenance job by `$system` for a lifeform's mind.
///
/// The job is paid and traced like other jobs.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/system/run-maintenance",
    params(("id" = String, Path), IdempotencyKey),
    request_body = MaintenanceBody,
    responses(
        (status = 202, description = "the job", body = Maintenance),
        (status = 409, description = "it does not live"),
        (status = 422, description = "no such task, or a dry run of a task that has none"),
    ),
)]
pub(super) async fn maintain(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<MaintenanceBody>,
) -> Result<(StatusCode, Json<Maintenance>), ApiError> {
    let job = Box::pin(app.lifeforms.maintain(&origin, &id, (body.task, body.dry_run), key)).await?;
    let links = MaintenanceLinks { job: format!("/v1/jobs/{job}") };
    Ok((StatusCode::ACCEPTED, Json(Maintenance { job_id: job.to_string(), links })))
}

/// A message of `$system`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WordBody {
    /// The topic of the lifeform's main chat.
    #[schema(value_type = String)]
    topic: Arc<str>,
    /// The text. The lifeform's models receive it as an order, unlike messages of people.
    content: String,
}

/// Posts a message of `$system`.
///
/// Its sender is `system:{id}`. The lifeform gives it priority over messages of people.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/system/messages",
    params(("id" = String, Path), IdempotencyKey),
    request_body = WordBody,
    responses(
        (status = 201, description = "the outcome, with the id of the message", body = Written),
        (status = 404, description = "no such lifeform or topic"),
        (status = 422, description = "not a message"),
    ),
)]
pub(super) async fn intervene(
    State(app): State<App>,
    Operator(operator): Operator,
    ApiPath(id): ApiPath<LifeformId>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<WordBody>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &CHAT.into()).await?;
    let system = Principal::new(format!("system:{id}"), PrincipalKind::System, Role::Operator);
    let origin = Origin::new(system, operator.because(format!("principal:{}", operator.principal.id)).cause);
    let message = fresh("msg", key.as_ref(), &origin);
    let op = Op::say(&body.topic, message.clone(), body.content, None);
    apply(&canvas, WriteRequest::Ops(vec![op.into()]), key, None, &origin, StatusCode::CREATED, Some(&message)).await
}
