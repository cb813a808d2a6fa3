//! Export and import of lifeforms: `GET /v1/lifeforms/{id}/archive`, `POST /v1/lifeforms/import`.

use axum::Json;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::TryStreamExt;
use lifeform::LifeformId;
use lifeform::archive::Imported;
use tokio_util::io::{ReaderStream, StreamReader};

use super::App;
use super::error::ApiError;
use super::extract::{ApiPath, Operator};

/// Returns no size limit: an archive is read line by line.
pub(super) fn no_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::disable()
}

/// Exports a complete lifeform as lines of JSON.
///
/// The archive contains the mind, canvases, goals, jobs and account, and the fascicles and neurons that the lifeform
/// uses. The lifeform is halted during the export. After starting the copy on another daemon, terminate this one,
/// because both would otherwise run.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/archive",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = String, content_type = "application/jsonl", description = "the archive"),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn export(
    State(app): State<App>,
    _operator: Operator,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Response, ApiError> {
    let file = app.lifeforms.archive(&id).await?;
    let name = format!("attachment; filename=\"{id}.jsonl\"");
    let headers = [(header::CONTENT_TYPE, "application/jsonl".to_owned()), (header::CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(ReaderStream::new(file))).into_response())
}

/// Imports a lifeform from an archive.
///
/// It is stopped until it is started. If it exists here, the import is refused.
#[utoipa::path(
    post, path = "/v1/lifeforms/import",
    request_body(content = String, content_type = "text/plain", description = "the lines of an archive"),
    responses(
        (
            status = 201,
            body = Object,
            description = "{id, adopted, kept}: the definitions that came with it, and those that are here already and stay",
        ),
        (status = 409, description = "it lives here"),
        (status = 422, description = "the archive is damaged, cut short, or of another form"),
    ),
)]
pub(super) async fn import(
    State(app): State<App>,
    Operator(origin): Operator,
    body: Body,
) -> Result<(StatusCode, Json<Imported>), ApiError> {
    let stream = body.into_data_stream().map_err(std::io::Error::other);
    let imported = app.lifeforms.import(&origin, StreamReader::new(stream)).await?;
    Ok((StatusCode::CREATED, Json(imported)))
}
