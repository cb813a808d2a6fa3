//! The members of a canvas: lifeforms other than its owner.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lifeform::{CanvasId, LifeformId};
use serde::Serialize;
use store::Timestamp;
use utoipa::ToSchema;

use super::App;
use super::canvases::CanvasPath;
use super::error::ApiError;
use super::extract::{ApiPath, Caller, Operator};

type MemberPath = ApiPath<(LifeformId, CanvasId, LifeformId)>;

/// A member of a canvas.
#[derive(Serialize, ToSchema)]
struct Member {
    /// The id of the lifeform.
    #[schema(value_type = String)]
    id: LifeformId,
    /// The time from which it perceives messages.
    since: Timestamp,
}

/// The members of a canvas.
#[derive(Serialize, ToSchema)]
pub(super) struct Members {
    /// The lifeforms besides the owner.
    members: Vec<Member>,
}

/// Lists the members of a canvas, without its owner.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/members",
    params(("id" = String, Path), ("canvas" = String, Path)),
    responses(
        (status = 200, description = "the members", body = Members),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): CanvasPath,
) -> Result<Json<Members>, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let members = app.lifeforms.members(&canvas).await?;
    Ok(Json(Members { members: members.into_iter().map(|(id, since)| Member { id, since }).collect() }))
}

/// Adds a lifeform as a member of a canvas.
///
/// The member perceives messages from now on, and answers when it is addressed.
#[utoipa::path(
    put, path = "/v1/lifeforms/{id}/canvases/{canvas}/members/{member}",
    params(("id" = String, Path), ("canvas" = String, Path), ("member" = String, Path)),
    responses(
        (status = 204, description = "it takes part"),
        (status = 404, description = "there is no such lifeform"),
        (status = 409, description = "it cannot take part"),
    ),
)]
pub(super) async fn join(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath((id, canvas, member)): MemberPath,
) -> Result<StatusCode, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    app.lifeforms.join(&origin, &canvas, &member).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a member from a canvas.
#[utoipa::path(
    delete, path = "/v1/lifeforms/{id}/canvases/{canvas}/members/{member}",
    params(("id" = String, Path), ("canvas" = String, Path), ("member" = String, Path)),
    responses((status = 204, description = "it takes part no more"), (status = 404, description = "it did not")),
)]
pub(super) async fn leave(
    State(app): State<App>,
    Operator(origin): Operator,
    ApiPath((id, canvas, member)): MemberPath,
) -> Result<StatusCode, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    app.lifeforms.leave(&origin, &canvas, &member).await?;
    Ok(StatusCode::NO_CONTENT)
}
