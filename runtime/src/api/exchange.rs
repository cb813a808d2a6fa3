//! `GET /api/knowledge/export` and `POST /api/knowledge/import`: records out and in, as lines, files, units or
//! Markdown, and in from other memories.

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

/// Bytes of what is taken in at once.
pub(super) const IMPORT_BYTES_MAX: usize = 64 << 20;

/// More than other requests bring.
pub(super) fn limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(IMPORT_BYTES_MAX)
}

/// A selection of records, and their format.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    /// `jsonl` (the default), `tree`, `units` or `markdown`.
    format: Option<String>,
    /// Of any of these types, with commas between.
    types: Option<String>,
    /// In any of these scopes, with commas between.
    scopes: Option<String>,
    /// The owner.
    owner: Option<String>,
}

/// The form of an import.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportQuery {
    /// `jsonl` (the default), `tree`, `units`, `markdown`, `mem0` or `letta`.
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

/// Exports the records that the caller sees. Counts and judgements of others are not imported again, and sealed bodies
/// are not exported. Units are the protocol's part of a record: owners, scopes and skills are in the other formats.
#[utoipa::path(
    get, path = "/api/knowledge/export",
    params(ExportQuery),
    responses(
        (status = 200, description = "a record a line, files by their paths, units, or Markdown"),
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

/// Imports records, each as a request of the caller: a faulty one is reported by its place, and the others are
/// imported. A repetition changes nothing.
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
