//! `GET /api/knowledge/export` and `POST /api/knowledge/import`: export and import of records as lines, files, units or
//! Markdown, and import from other memory systems.

use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use knowledge::exchange::{Format, Imported};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::App;
use super::error::ApiError;
use super::extract::{ApiQuery, ApiText, Caller, Participant};
use super::knowledge::which;

/// The maximum size of one import, in bytes.
pub(super) const IMPORT_BYTES_MAX: usize = 64 << 20;

/// Returns the size limit of imports, which is higher than for other requests.
pub(super) fn limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(IMPORT_BYTES_MAX)
}

/// A selection of records, and their format.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// The format: `jsonl` (the default), `tree`, `units` or `markdown`.
    format: Option<String>,
    /// The accepted types, separated by commas.
    types: Option<String>,
    /// The accepted scopes, separated by commas.
    scopes: Option<String>,
    /// The owner.
    owner: Option<String>,
}

/// The form of an import.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportQuery {
    /// The format: `jsonl` (the default), `tree`, `units`, `markdown`, `mem0` or `letta`.
    format: Option<String>,
    /// `true` for a dry run: nothing is written.
    #[serde(default)]
    dry_run: bool,
}

fn format(named: Option<String>) -> Result<Format, ApiError> {
    let Some(named) = named.filter(|named| !named.is_empty()) else { return Ok(Format::Jsonl) };
    serde_json::from_value(Value::String(named))
        .map_err(|_| ApiError::invalid("format is one of jsonl, tree, units, markdown; to import also mem0, letta"))
}

/// Exports the records that the caller can see.
///
/// An import ignores counts and judgements by others. Sealed bodies are not exported. The format `units` contains only
/// the protocol's part of a record; the other formats also contain owners, scopes and skills.
#[utoipa::path(
    get, path = "/api/knowledge/export",
    params(ExportQuery),
    responses(
        (
            status = 200,
            description = "a record a line, files by their paths, units, or Markdown",
            content(
                (String = "application/jsonl"),
                (Object = "application/json"),
                (String = "text/markdown"),
            ),
        ),
        (status = 422, description = "no such format"),
    ),
)]
pub(super) async fn export(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiQuery(asked): ApiQuery<ExportQuery>,
) -> Result<Response, ApiError> {
    let format = format(asked.format)?;
    let which = which(asked.types.as_ref(), asked.scopes.as_ref(), asked.owner)?;
    let text = app.knowledge.export(format, &which, &origin).await?;
    Ok(([(header::CONTENT_TYPE, format.media_type())], text).into_response())
}

/// Imports records, each like a separate request of the caller.
///
/// Invalid records are reported with their positions, and the others are imported. A repetition changes nothing.
#[utoipa::path(
    post, path = "/api/knowledge/import",
    params(ImportQuery),
    request_body(
        content = String,
        content_type = "text/plain",
        description = "what was written down, up to 64 MiB and 10,000 records",
    ),
    responses(
        (
            status = 200,
            body = Object,
            description = "{imported, unchanged, refused, errors: [{file?, at, id?, error}], warnings, dry_run}",
        ),
        (status = 422, description = "nothing that can be read"),
    ),
)]
pub(super) async fn import(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiQuery(asked): ApiQuery<ImportQuery>,
    ApiText(text): ApiText,
) -> Result<Json<Imported>, ApiError> {
    let format = format(asked.format)?;
    Ok(Json(Box::pin(app.knowledge.import(format, &text, asked.dry_run, &origin)).await?))
}
