//! `POST /v1/lifeforms/{id}/kip` (K7): 200 with the KIP envelope whenever a command was read.

use axum::Json;
use axum::extract::{Path, State};
use lifeform::LifeformId;
use nexus::Request;
use serde_json::Value;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, Caller};

/// Runs one KIP command on a lifeform's nexus. Only operators and the lifeform itself may write.
#[utoipa::path(post, path = "/v1/lifeforms/{id}/kip", params(("id" = String, Path)), request_body = Value, responses((status = 200, description = "{result} or {error}"), (status = 404, description = "no such lifeform")))]
pub(super) async fn execute(
    State(app): State<App>,
    Caller(origin): Caller,
    Path(id): Path<LifeformId>,
    ApiJson(request): ApiJson<Request>,
) -> Result<Json<Value>, ApiError> {
    app.lifeforms.get(&id).await?;
    Ok(Json(app.nexus.execute(&id, request, &origin).await?))
}
