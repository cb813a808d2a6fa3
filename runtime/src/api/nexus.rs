//! The HTTP API of a mind: KIP, its journal, undo, capsules. `{id}` is a lifeform's id or `commons`. A response to a
//! parsed command is 200 with the KIP envelope, errors included.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lifeform::LifeformId;
use nexus::kip::exec::json_size;
use nexus::{Export, NexusId, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::Origin;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, ApiText, Caller};
use super::paging::{EntriesLimit, JournalEntry, JournalPage};

/// Returns the nexus of a path: a lifeform's mind, or the commons.
async fn known(app: &App, id: LifeformId) -> Result<NexusId, ApiError> {
    if &*id != "commons" {
        app.lifeforms.get(&id).await?;
    }
    Ok(id)
}

/// A KIP request: the commands themselves, or a method of the public skill and MCP server with its parameters.
#[derive(ToSchema)]
#[schema(as = KipRequest)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what the engine reads")]
pub(super) enum KipBody {
    Commands(KipCommands),
    Method(KipMethod),
}

/// A method with its parameters.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it only describes what the engine reads")]
pub(super) struct KipMethod {
    /// `execute_kip`, `execute_kip_readonly` (which refuses writes) or `list_logs` (the journal; only for an operator
    /// or the lifeform itself).
    #[schema(inline)]
    method: KipMethodName,
    /// For `list_logs`: `{cursor?, limit?}`. For the others: the members of a request with `command` or `commands`.
    #[serde(default)]
    #[schema(value_type = Object)]
    params: Value,
}

/// The methods.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes what the engine reads")]
enum KipMethodName {
    ExecuteKip,
    ExecuteKipReadonly,
    ListLogs,
}

/// KIP commands: `command`, or `commands`.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it only describes what the engine reads")]
pub(super) struct KipCommands {
    /// A single command.
    command: Option<String>,
    /// Several commands, each a string or `{command, parameters}`.
    commands: Option<Vec<Value>>,
    /// The values of `$name` placeholders in the commands.
    #[serde(default)]
    #[schema(value_type = Object)]
    parameters: Value,
    /// `true` to check the commands without writing.
    #[serde(default)]
    dry_run: bool,
    /// `true` to refuse commands that could write.
    #[serde(default)]
    readonly: bool,
    /// The dialect: the specification text that decides where interpretations of KIP differ.
    #[serde(default)]
    #[schema(inline)]
    dialect: Readings,
    /// The shape of results: rows or columns.
    #[schema(inline)]
    result_shape: Option<ResultShape>,
}

/// The dialects of KIP.
#[derive(Default, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes what the engine reads")]
enum Readings {
    #[default]
    Draft7,
    Rc11,
}

/// Shapes of results.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes what the engine reads")]
enum ResultShape {
    Rows,
    Columns,
}

/// Runs KIP on the nexus of a lifeform.
///
/// The body is `{command | commands, parameters, dry_run, readonly, dialect, result_shape}`. Only operators and the
/// lifeform itself may write.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/kip",
    params(("id" = String, Path)),
    request_body = KipBody,
    responses(
        (status = 200, description = "a result or an error", body = KipAnswer),
        (status = 404, description = "no such lifeform"),
    ),
)]
pub(super) async fn of_lifeform(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<Map<String, Value>>,
) -> Result<Response, ApiError> {
    app.lifeforms.get(&id).await?;
    answer(&app, &id, Asked::read(body)?, &origin).await
}

/// A KIP request, or the function call in which KIP clients and agents wrap one: `{method: execute_kip |
/// execute_kip_readonly | list_logs, params}`.
enum Asked {
    Kip(Request),
    Logs(Logs),
}

/// The parameters of `list_logs`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Logs {
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
    /// The maximum number of entries on a page, 1 to 256 (default 50).
    limit: EntriesLimit,
}

impl Asked {
    fn read(mut body: Map<String, Value>) -> Result<Self, ApiError> {
        let wrong = |error: serde_json::Error| ApiError::invalid(error.to_string());
        let Some(method) = body.remove("method") else {
            return serde_json::from_value(Value::Object(body)).map(Self::Kip).map_err(wrong);
        };
        let params = body.remove("params").unwrap_or_else(|| json!({}));
        if let Some(other) = body.keys().next() {
            return Err(ApiError::invalid(format!("unknown field `{other}` beside method and params")));
        }
        match method.as_str() {
            Some("execute_kip") => serde_json::from_value(params).map(Self::Kip).map_err(wrong),
            Some("execute_kip_readonly") => {
                let request: Request = serde_json::from_value(params).map_err(wrong)?;
                Ok(Self::Kip(Request { readonly: true, ..request }))
            }
            Some("list_logs") => serde_json::from_value(params).map(Self::Logs).map_err(wrong),
            _ => Err(ApiError::invalid("method is execute_kip, execute_kip_readonly or list_logs")),
        }
    }
}

/// The answer to KIP: a result, or an error.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the nexus answers")]
pub(super) struct KipAnswer {
    /// The result, by the command.
    #[schema(value_type = Option<serde_json::Value>)]
    result: Option<Value>,
    /// The error, with its code, its message and a hint (KIP's specification, error codes).
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    /// The parts of a capsule that were not accepted.
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    warnings: Option<Value>,
    /// The cursor of the next page.
    next_cursor: Option<String>,
}

/// A page of the journal of a nexus.
#[derive(Serialize, ToSchema)]
pub(super) struct NexusJournal {
    /// The entries.
    entries: Vec<JournalEntry>,
    /// The number with which the next page begins; `null` at the end.
    next: Option<u64>,
    /// The number of the last entry of the page, for a client that waits for new entries.
    next_after: u64,
}

async fn answer(app: &App, nexus: &NexusId, asked: Asked, origin: &Origin) -> Result<Response, ApiError> {
    let logs = match asked {
        Asked::Kip(request) => {
            if request.may_write() {
                app.check_disk_share(&origin.principal)?;
            }
            return json_response(app.nexus.execute(nexus, request, origin).await?).await;
        }
        Asked::Logs(logs) => logs,
    };
    if !nexus::may_write(&origin.principal, nexus) {
        return Err(ApiError::forbidden("only an operator or the lifeform itself reads its journal"));
    }
    let wrong = |_| ApiError::invalid("cursor must be the next_cursor of an earlier page");
    let after: u64 = logs.cursor.map_or(Ok(0), |cursor| cursor.parse()).map_err(wrong)?;
    let limit = logs.limit.0;
    let entries = app.nexus.journal(nexus, after, limit).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|last| last["seq"].to_string());
    json_response(json!({"result": entries, "next_cursor": next})).await
}

/// The size of an answer above which it is written on a thread of its own, in bytes.
const LARGE_BYTES: usize = 64 << 10;

/// Returns an answer as JSON. A large one takes a worker of the server too long.
async fn json_response(answer: Value) -> Result<Response, ApiError> {
    if json_size(&answer) <= LARGE_BYTES {
        return Ok(Json(answer).into_response());
    }
    let written = tokio::task::spawn_blocking(move || Json(answer).into_response());
    written.await.map_err(|panic| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "answer", panic.to_string()))
}

/// Runs KIP on any nexus, including the commons.
#[utoipa::path(
    post, path = "/v1/nexus/{id}/kip",
    params(("id" = String, Path)),
    request_body = KipBody,
    responses(
        (status = 200, description = "a result or an error", body = KipAnswer),
        (status = 404, description = "no such nexus"),
    ),
)]
pub(super) async fn execute(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<Map<String, Value>>,
) -> Result<Response, ApiError> {
    let nexus = known(&app, id).await?;
    answer(&app, &nexus, Asked::read(body)?, &origin).await
}

/// A request to undo an entry, or all entries of a job. Exactly one member is given.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UndoBody {
    /// The number of the journal entry to revert.
    #[serde(default)]
    seq: Option<u64>,
    /// The job whose entries are reverted, newest first; `{lifeform}.night.{date}` for all jobs of a night of `$system`. At most 500
    /// entries, of those that an undo looks back to.
    #[serde(default)]
    job: Option<String>,
}

/// Reverts a journal entry, or the entries of a job.
///
/// If a later entry depends on it, the entry is refused (`KIP_3005`). Of a job, the other entries are reverted, and the result
/// lists both: `{undone: [seq], refused: [{seq, error}]}`.
#[utoipa::path(
    post, path = "/v1/nexus/{id}/undo",
    params(("id" = String, Path)),
    request_body = UndoBody,
    responses((status = 200, description = "`{undone, elements}`, or an error", body = KipAnswer)),
)]
pub(super) async fn undo(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(body): ApiJson<UndoBody>,
) -> Result<Json<Value>, ApiError> {
    let nexus = known(&app, id).await?;
    Ok(Json(match (body.seq, body.job) {
        (Some(seq), None) => app.nexus.undo(&nexus, seq, &origin).await?,
        (None, Some(job)) => app.nexus.undo_job(&nexus, &job, &origin).await?,
        _ => return Err(ApiError::invalid("give either seq or job")),
    }))
}

/// Returns the journal of a nexus: author, change, time, reason and previous content.
///
/// Only operators and the lifeform itself may read it, because it shows content that scopes may hide.
#[utoipa::path(
    get, path = "/v1/nexus/{id}/journal",
    params(("id" = String, Path), JournalPage),
    responses((status = 200, description = "a page of the journal", body = NexusJournal)),
)]
pub(super) async fn journal(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(page): ApiQuery<JournalPage>,
) -> Result<Json<NexusJournal>, ApiError> {
    let nexus = known(&app, id).await?;
    if !nexus::may_write(&origin.principal, &nexus) {
        return Err(ApiError::forbidden("only an operator or the lifeform itself reads its journal"));
    }
    let (entries, next) = page.of(&app.store, &nexus::journal_stream(&nexus)).await?;
    let next_after = entries.iter().map(|entry| entry.seq).max().unwrap_or(page.after);
    Ok(Json(NexusJournal { entries: entries.iter().map(JournalEntry::from).collect(), next, next_after }))
}

/// The options of an import.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ImportQuery {
    /// `true` to return the resulting difference without writing.
    #[serde(default)]
    dry_run: bool,
}

/// Imports a capsule, the text of the body, as one transaction.
#[utoipa::path(
    post, path = "/v1/nexus/{id}/capsules",
    params(("id" = String, Path), ("dry_run" = Option<bool>, Query)),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "a result or an error; with `dry_run` `{capsule, diff}`", body = KipAnswer)),
)]
pub(super) async fn import(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(query): ApiQuery<ImportQuery>,
    ApiText(text): ApiText,
) -> Result<Json<Value>, ApiError> {
    let nexus = known(&app, id).await?;
    Ok(Json(app.nexus.import(&nexus, &text, query.dry_run, &origin).await?))
}

/// A request for a capsule.
#[derive(ToSchema)]
#[schema(as = ExportRequest)]
#[expect(dead_code, reason = "it only describes what the nexus reads")]
pub(super) struct ExportBody {
    /// The variable of the pattern whose elements are exported.
    target: String,
    /// The pattern, `WHERE {…}`.
    pattern: String,
    /// The values of the pattern's placeholders.
    #[schema(value_type = Option<Object>)]
    parameters: Option<Value>,
    /// The distance around the matches to include, in links.
    hops: Option<usize>,
    /// The name of the capsule.
    name: Option<String>,
    /// The version of the capsule.
    version: Option<String>,
}

/// Exports matching elements and their neighbourhood as a capsule.
///
/// An import of the capsule gives the same graph.
#[utoipa::path(
    post, path = "/v1/nexus/{id}/export",
    params(("id" = String, Path)),
    request_body = ExportBody,
    responses((status = 200, description = "`{capsule, concepts, propositions}`, or an error", body = KipAnswer)),
)]
pub(super) async fn export(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiJson(query): ApiJson<Export>,
) -> Result<Json<Value>, ApiError> {
    let nexus = known(&app, id).await?;
    Ok(Json(app.nexus.export(&nexus, &query, &origin).await?))
}

/// Returns the grammar card: KIP in as few tokens as possible.
#[utoipa::path(
    get, path = "/v1/kip/grammar",
    responses((status = 200, body = String, description = "text", content_type = "text/plain")),
)]
pub(super) async fn grammar(_caller: Caller) -> String {
    nexus::kip::lang::card::card()
}
