//! `/v1/lifeforms/{id}/canvases`: the routes that all kinds of canvas share. Collections are arrays here and keyed maps
//! in the WebSocket protocol. Both are renderings of the same state. The routes of chats are in `chat.rs`.

mod answers;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lifeform::canvas::{Applied, Frames, Kind, Snapshot, Upload, WriteRequest};
use lifeform::{Canvas, CanvasId, LifeformId};
use neurons::llm::wire::repeated_member;
use serde::Deserialize;
use serde_json::Value;
use store::Origin;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiBytes, ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant};
use super::paging::Entries;
pub(super) use answers::Written;
use answers::{CanvasList, CanvasState, Deltas, Meta, PresentPrincipals, meta, meta_of};

pub(super) type CanvasPath = ApiPath<(LifeformId, CanvasId)>;

/// Lists the canvases of a lifeform.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases",
    params(("id" = String, Path)),
    responses((status = 200, description = "its canvases", body = CanvasList)),
)]
pub(super) async fn list(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<CanvasList>, ApiError> {
    let canvases = app.lifeforms.canvases(&id).await?;
    let shown = canvases
        .iter()
        .map(|(name, head, rev)| meta_of(&id, name, &head.kind, &head.title, &head.epoch, *rev, head.floor));
    Ok(Json(CanvasList { canvases: shown.collect() }))
}

/// A request for a new canvas.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CanvasBody {
    /// The kind: `chat` or `zmind`.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: Kind,
    /// The title.
    title: String,
    /// The id; generated if absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    id: Option<CanvasId>,
}

/// Creates a canvas.
///
/// If one with this id and kind exists, the response is that canvas.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases",
    params(("id" = String, Path), IdempotencyKey),
    request_body = CanvasBody,
    responses(
        (status = 201, description = "the head of the canvas", body = Meta),
        (status = 404, description = "no such lifeform"),
        (status = 409, description = "the id is another type's"),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<LifeformId>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<CanvasBody>,
) -> Result<(StatusCode, Json<Meta>), ApiError> {
    let name = body.id.unwrap_or_else(|| fresh("canvas", key.as_ref(), &origin));
    let canvas = app.lifeforms.create_canvas(&origin, &id, &name, body.kind, &body.title).await?;
    Ok((StatusCode::CREATED, Json(meta(&id, &canvas))))
}

/// Returns the head of a canvas and the links to it.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}",
    params(("id" = String, Path), ("canvas" = String, Path)),
    responses((status = 200, description = "the head of the canvas", body = Meta)),
)]
pub(super) async fn read(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): CanvasPath,
) -> Result<Json<Meta>, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    Ok(Json(meta(&id, &canvas)))
}

/// The revision and the form of a state.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct At {
    /// The revision; the latest if absent.
    #[serde(default)]
    at_rev: Option<u64>,
    /// The form of collections: `arrays`, or `maps` as subscribers fold them.
    #[serde(default)]
    #[param(inline)]
    form: Form,
}

/// The form of collections in a state.
#[derive(Clone, Copy, Default, Deserialize, PartialEq, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// Ordered arrays.
    #[default]
    Arrays,
    /// Maps by id.
    Maps,
}

/// Returns a canvas, now or at an earlier revision.
///
/// The log must still contain the revision.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/state",
    params(("id" = String, Path), ("canvas" = String, Path), At),
    responses(
        (status = 200, description = "the state", body = CanvasState),
        (status = 409, description = "the log holds that revision no more"),
    ),
)]
pub(super) async fn state(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): CanvasPath,
    ApiQuery(asked): ApiQuery<At>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let snapshot = match asked.at_rev {
        Some(rev) => canvas.snapshot_at(rev).await?,
        None => canvas.snapshot(),
    };
    // A state of several megabytes takes a tenth of a second, during which a worker would serve nobody else.
    let written = tokio::task::spawn_blocking(move || {
        let state = match asked.form {
            Form::Arrays => snapshot.state.to_arrays(),
            Form::Maps => snapshot.state.to_json(),
        };
        let body = CanvasState { epoch: snapshot.epoch.clone(), rev: snapshot.rev, state };
        ([(header::ETAG, tag(&snapshot, snapshot.rev))], Json(body)).into_response()
    });
    written.await.map_err(|panic| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "answer", panic.to_string()))
}

/// Returns the entity tag of an entity that was last changed at `rev`.
pub(super) fn tag(snapshot: &Snapshot, rev: u64) -> String {
    format!("\"{}:{rev}\"", snapshot.epoch)
}

/// Returns the deltas after a revision.
///
/// They are the same objects as a subscriber receives.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/ops",
    params(("id" = String, Path), ("canvas" = String, Path), Entries),
    responses(
        (status = 200, description = "deltas in order", body = Deltas),
        (status = 410, description = "this canvas never had that revision, or its log holds it no more"),
    ),
)]
pub(super) async fn ops(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): CanvasPath,
    ApiQuery(page): ApiQuery<Entries>,
) -> Result<Json<Deltas>, ApiError> {
    let after = page.after;
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    match canvas.frames(after).await? {
        Frames::Deltas(frames) => {
            let deltas = frames.iter().take(page.limit.0);
            let ops = deltas.filter_map(|frame| serde_json::from_str(&frame.text).ok()).collect();
            Ok(Json(Deltas { ops, rev: canvas.rev() }))
        }
        Frames::Reset(reason) => {
            let detail = format!("revision {after} of this canvas cannot be gone on from: {reason}");
            Err(ApiError::new(StatusCode::GONE, "reset", detail).hint("read /state and go on from there"))
        }
    }
}

/// A request to apply several ops.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OpsBody {
    /// The ops in the form of the WebSocket protocol: `{kind, …}`.
    #[schema(value_type = Vec<Object>)]
    ops: Vec<Value>,
    /// The revision that the client saw. Ops on entities that changed after it are refused.
    #[serde(default)]
    base_rev: Option<u64>,
}

/// Applies several ops to a canvas, all or none.
///
/// Each op is a revision of its own.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/ops",
    params(("id" = String, Path), ("canvas" = String, Path), IdempotencyKey),
    request_body = OpsBody,
    responses(
        (status = 200, description = "the outcome", body = Written),
        (status = 403, description = "one of them is not allowed"),
        (status = 404, description = "one of them names what is not there"),
        (status = 409, description = "one of them cannot be done as things stand"),
        (status = 412, description = "it was changed meanwhile"),
        (status = 422, description = "one of them is not well made"),
    ),
)]
pub(super) async fn write(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas)): CanvasPath,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiJson(body): ApiJson<OpsBody>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let base = base_of(&canvas, &headers, body.base_rev)?;
    let read = body.ops.into_iter().map(|op| canvas.kind.read(op));
    let ops = read.collect::<Result<Vec<_>, _>>().map_err(lifeform::LifeformError::Refused)?;
    apply(&canvas, WriteRequest::Ops(ops), key, base, &origin, StatusCode::OK, None).await
}

/// Changes a canvas by a JSON Patch (RFC 6902).
///
/// The rules of the corresponding ops apply. The client must name the state it saw: by `If-Match`, or by a `test`
/// operation.
#[utoipa::path(
    patch, path = "/v1/lifeforms/{id}/canvases/{canvas}",
    params(("id" = String, Path), ("canvas" = String, Path), IdempotencyKey),
    request_body(content = Vec<Object>, content_type = "application/json-patch+json"),
    responses(
        (status = 200, description = "the outcome", body = Written),
        (status = 403, description = "one of them is not allowed"),
        (status = 404, description = "it names what is not there"),
        (status = 409, description = "a test fails, or it cannot be done as things stand"),
        (status = 412, description = "it was changed meanwhile"),
        (status = 422, description = "it writes what a patch cannot"),
    ),
)]
pub(super) async fn patch(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas)): CanvasPath,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiBytes(body): ApiBytes,
) -> Result<Response, ApiError> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if media_type.split(';').next().map(str::trim) != Some("application/json-patch+json") {
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_a_patch", "the body is a JSON Patch")
            .hint("send Content-Type: application/json-patch+json"));
    }
    if let Some(repeated) = repeated_member(&body) {
        return Err(ApiError::invalid(repeated));
    }
    let patch =
        serde_json::from_slice(&body).map_err(|error| ApiError::invalid(format!("not a JSON Patch: {error}")))?;
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let base = base_of(&canvas, &headers, None)?;
    apply(&canvas, WriteRequest::Patch(patch, base.is_some()), key, base, &origin, StatusCode::OK, None).await
}

/// Lists the present principals and their states.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/presence",
    params(("id" = String, Path), ("canvas" = String, Path)),
    responses((status = 200, description = "the present principals", body = PresentPrincipals)),
)]
pub(super) async fn present(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): CanvasPath,
) -> Result<Json<PresentPrincipals>, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    Ok(Json(PresentPrincipals { present: canvas.present() }))
}

/// The presence state of the caller.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PresenceBody {
    /// The state, in a form that the clients of the canvas agree on: `{"typing": {"topic": "t1"}}`.
    #[schema(value_type = Object)]
    state: Value,
    /// The validity in seconds, up to 120.
    #[serde(default = "eight")]
    ttl: u64,
}

fn eight() -> u64 {
    8
}

/// Shows the caller as present, for clients without a WebSocket.
///
/// The daemon does not store presence.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/presence",
    params(("id" = String, Path), ("canvas" = String, Path)),
    request_body = PresenceBody,
    responses((status = 204, description = "shown")),
)]
pub(super) async fn be_present(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas)): CanvasPath,
    ApiJson(body): ApiJson<PresenceBody>,
) -> Result<StatusCode, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let noted = canvas.be_present(&origin.principal.id, 0, &body.state, Duration::from_secs(body.ttl));
    noted.map_err(lifeform::LifeformError::Refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The largest attachment.
const ATTACHMENT_BYTES_MAX: usize = 2 << 20;

/// Returns the size limit of uploads.
pub(super) fn upload_limit() -> DefaultBodyLimit {
    DefaultBodyLimit::max(ATTACHMENT_BYTES_MAX)
}

/// Uploads an attachment for messages of this canvas, up to 2 MiB.
///
/// The daemon stores identical content once, under its SHA-256 hash.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/attachments",
    params(("id" = String, Path), ("canvas" = String, Path)),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 201, description = "the attachment", body = Upload), (status = 413, description = "over 2 MiB")),
)]
pub(super) async fn attach(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas)): CanvasPath,
    headers: HeaderMap,
    ApiBytes(body): ApiBytes,
) -> Result<(StatusCode, Json<Upload>), ApiError> {
    if body.is_empty() {
        return Err(ApiError::invalid("an attachment has at least one byte"));
    }
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.filter(|name| name.len() <= 255).unwrap_or("application/octet-stream");
    let kept = canvas.attach(body, media_type, &origin).await?;
    Ok((StatusCode::CREATED, Json(kept)))
}

/// Returns the content of an attachment.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/attachments/{hash}",
    params(("id" = String, Path), ("canvas" = String, Path), ("hash" = String, Path)),
    responses(
        (
            status = 200,
            description = "the bytes, in their media type",
            body = String,
            content_type = "application/octet-stream",
        ),
    ),
)]
pub(super) async fn attachment(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, hash)): ApiPath<(LifeformId, CanvasId, String)>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let missing = || ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("attachment {hash} does not exist"));
    let (media_type, body) = canvas.attachment(&hash).await?.ok_or_else(missing)?;
    // A browser must never show an upload as a page of this daemon.
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_DISPOSITION, "attachment".into()),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".into()),
        (header::ETAG, format!("\"{hash}\"")),
    ];
    Ok((headers, body).into_response())
}

/// Applies a write and returns `{id, rev, ops, epoch}`. A response header marks a repetition.
pub(super) async fn apply(
    canvas: &Canvas,
    what: WriteRequest,
    key: Option<Arc<str>>,
    base: Option<u64>,
    origin: &Origin,
    made: StatusCode,
    id: Option<&str>,
) -> Result<Response, ApiError> {
    let Applied { rev, ops, dup } = canvas.write(what, key, base, origin).await?;
    let body = Written { rev, ops, epoch: canvas.snapshot().epoch, id: id.map(str::to_owned) };
    let mut response = (made, Json(body)).into_response();
    if dup {
        let replayed = HeaderName::from_static("idempotency-replayed");
        response.headers_mut().insert(replayed, header::HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Returns an id for a new entity.
pub(super) fn fresh(prefix: &str, key: Option<&Arc<str>>, origin: &Origin) -> Arc<str> {
    match key {
        // The same key gives the same id, so that a repetition finds the entity.
        Some(key) => {
            format!("{prefix}_{}", &store::Hash::of(format!("{}\n{key}", origin.principal.id).as_bytes()).hex()[..24])
                .into()
        }
        None => format!("{prefix}_{}", uuid::Uuid::now_v7().simple()).into(),
    }
}

/// Returns the revision from `If-Match: "epoch:rev"`, or from `base_rev` of the body.
pub(super) fn base_of(canvas: &Canvas, headers: &HeaderMap, base_rev: Option<u64>) -> Result<Option<u64>, ApiError> {
    let Some(tag) = headers.get(header::IF_MATCH) else { return Ok(base_rev) };
    let wrong = || ApiError::new(StatusCode::BAD_REQUEST, "if_match", "If-Match is \"epoch:rev\", as ETag gave it");
    let (epoch, rev) = tag.to_str().ok().and_then(|tag| tag.trim_matches('"').rsplit_once(':')).ok_or_else(wrong)?;
    if epoch != &*canvas.snapshot().epoch {
        return Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "stale", "this canvas was created again since"));
    }
    Ok(Some(rev.parse().map_err(|_| wrong())?))
}
