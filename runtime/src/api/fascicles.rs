//! `/v1/fascicles` and `/v1/jobs`: what there is, and how a job stands (seed 003 §6.2). Definitions are
//! shipped; making and executing them over the API comes later.

use axum::Json;
use axum::extract::{Path, State};
use fascicles::{FascicleId, JobId};
use serde_json::{Value, json};

use super::App;
use super::error::ApiError;
use super::extract::Caller;

/// Lists fascicles.
#[utoipa::path(get, path = "/v1/fascicles", responses((status = 200, description = "all definitions")))]
pub(super) async fn list(State(app): State<App>, _caller: Caller) -> Json<Value> {
    Json(json!({"fascicles": app.fascicles.list()}))
}

/// A fascicle's definition.
#[utoipa::path(get, path = "/v1/fascicles/{id}", params(("id" = String, Path)), responses((status = 200, description = "the definition"), (status = 404, description = "there is none")))]
pub(super) async fn read(
    State(app): State<App>,
    _caller: Caller,
    Path(id): Path<FascicleId>,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!(app.fascicles.get(&id)?)))
}

/// How a job stands and what the world was told about it.
#[utoipa::path(get, path = "/v1/jobs/{id}", params(("id" = String, Path)), responses((status = 200, description = "the job"), (status = 404, description = "there is none")))]
pub(super) async fn job(
    State(app): State<App>,
    _caller: Caller,
    Path(id): Path<JobId>,
) -> Result<Json<Value>, ApiError> {
    let head = app.fascicles.job(&id).await?;
    let events = app.fascicles.observed(&id).await?;
    Ok(Json(
        json!({"job_id": head.id, "fascicle": head.fascicle, "status": head.status, "current_stage": head.current_stage, "events": events, "output": head.output, "error": head.error}),
    ))
}
