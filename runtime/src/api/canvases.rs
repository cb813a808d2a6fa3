//! `/v1/lifeforms/{id}/canvases`: the seed's REST over a canvas (seed 003 §6.3.4). Lists are arrays here
//! and keyed maps on the wire; both are renderings of one state.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lifeform::canvas::chat::{self, Op};
use lifeform::canvas::{Applied, Frames};
use lifeform::{Canvas, CanvasId, LifeformId};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant};
use super::neurons::Entries;

fn base_path(id: &str, canvas: &str) -> String {
    format!("/v1/lifeforms/{id}/canvases/{canvas}")
}

fn meta(id: &str, canvas: &Canvas) -> Value {
    let snapshot = canvas.snapshot();
    let base = base_path(id, &canvas.id);
    json!({
        "id": canvas.id,
        "type": "chat",
        "rev": snapshot.rev,
        "epoch": snapshot.epoch,
        "api": {"rest_base_path": base, "realtime_protocol": {"type": "websocket", "endpoint": format!("{base}/subscribe"), "subprotocol": super::ws::SUBPROTOCOL}},
    })
}

/// Lists the canvases of a lifeform.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases", params(("id" = String, Path)), responses((status = 200, description = "its canvases")))]
pub(super) async fn list(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Value>, ApiError> {
    let canvas = app.lifeforms.canvas(&id).await?;
    Ok(Json(json!({"canvases": [meta(&id, &canvas)]})))
}

/// What a canvas is and how to work on it.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases/{canvas}", params(("id" = String, Path), ("canvas" = String, Path)), responses((status = 200, description = "the meta-information")))]
pub(super) async fn read(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): ApiPath<(LifeformId, CanvasId)>,
) -> Result<Json<Value>, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    Ok(Json(meta(&id, &canvas)))
}

/// The whole canvas, lists as arrays.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases/{canvas}/state", params(("id" = String, Path), ("canvas" = String, Path)), responses((status = 200, description = "the state")))]
pub(super) async fn state(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): ApiPath<(LifeformId, CanvasId)>,
) -> Result<Response, ApiError> {
    let snapshot = app.lifeforms.named_canvas(&id, &canvas).await?.snapshot();
    let tag = format!("\"{}:{}\"", snapshot.epoch, snapshot.rev);
    let body = json!({"epoch": snapshot.epoch, "rev": snapshot.rev, "state": chat::as_arrays(&snapshot.state)});
    Ok(([(header::ETAG, tag)], Json(body)).into_response())
}

/// The deltas after a revision: the same objects a subscriber gets.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases/{canvas}/ops", params(("id" = String, Path), ("canvas" = String, Path), Entries), responses((status = 200, description = "deltas in order"), (status = 410, description = "this canvas never had that revision")))]
pub(super) async fn ops(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): ApiPath<(LifeformId, CanvasId)>,
    ApiQuery(page): ApiQuery<Entries>,
) -> Result<Json<Value>, ApiError> {
    let after = page.after;
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    match canvas.frames(after).await? {
        Frames::Deltas(frames) => {
            let deltas: Vec<Value> =
                frames.iter().take(page.limit()).filter_map(|(_, frame)| serde_json::from_str(frame).ok()).collect();
            Ok(Json(json!({"ops": deltas, "rev": canvas.snapshot().rev})))
        }
        Frames::Reset => {
            Err(ApiError::new(StatusCode::GONE, "reset", format!("this canvas is at an earlier revision than {after}"))
                .hint("read /state and go on from there"))
        }
    }
}

/// What a new topic takes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicBody {
    /// Its title.
    title: String,
    /// Its id; made when absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    id: Option<Arc<str>>,
}

/// Does an op and answers `{id, rev, epoch}`; a repetition says so in a header.
async fn apply(
    canvas: &Canvas,
    op: Op,
    key: Option<Arc<str>>,
    base: Option<u64>,
    origin: &nexus::Origin,
    made: StatusCode,
    id: &str,
) -> Result<Response, ApiError> {
    let Applied { rev, dup } = canvas.apply(op, key, base, origin).await?;
    let body = Json(json!({"id": id, "rev": rev, "epoch": canvas.snapshot().epoch}));
    let replayed = dup.then_some((HeaderName::from_static("idempotency-replayed"), "true"));
    Ok((made, replayed.map(|header| [header]).into_iter().flatten().collect::<HeaderPairs>(), body).into_response())
}

/// Headers that may be none.
struct HeaderPairs(Vec<(HeaderName, &'static str)>);

impl FromIterator<(HeaderName, &'static str)> for HeaderPairs {
    fn from_iter<T: IntoIterator<Item = (HeaderName, &'static str)>>(pairs: T) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl axum::response::IntoResponseParts for HeaderPairs {
    type Error = std::convert::Infallible;

    fn into_response_parts(
        self,
        mut parts: axum::response::ResponseParts,
    ) -> Result<axum::response::ResponseParts, Self::Error> {
        for (name, value) in self.0 {
            parts.headers_mut().insert(name, header::HeaderValue::from_static(value));
        }
        Ok(parts)
    }
}

fn fresh(prefix: &str, key: Option<&Arc<str>>, origin: &nexus::Origin) -> Arc<str> {
    match key {
        // The same key names the same thing, so that a repetition finds it.
        Some(key) => format!(
            "{prefix}_{}",
            &nexus::store::Hash::of(format!("{}\n{key}", origin.principal.id).as_bytes()).hex()[..24]
        )
        .into(),
        None => format!("{prefix}_{}", uuid::Uuid::now_v7().simple()).into(),
    }
}

/// Opens a topic.
#[utoipa::path(post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics", params(("id" = String, Path), ("canvas" = String, Path)), request_body = TopicBody, responses((status = 201, description = "opened")))]
pub(super) async fn create_topic(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas)): ApiPath<(LifeformId, CanvasId)>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<TopicBody>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let topic = body.id.unwrap_or_else(|| fresh("topic", key.as_ref(), &origin));
    let op = Op::TopicCreate { id: topic.clone(), title: body.title };
    apply(&canvas, op, key, None, &origin, StatusCode::CREATED, &topic).await
}

/// Lists topics, without their messages.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics", params(("id" = String, Path), ("canvas" = String, Path)), responses((status = 200, description = "the topics in order")))]
pub(super) async fn topics(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): ApiPath<(LifeformId, CanvasId)>,
) -> Result<Json<Value>, ApiError> {
    let snapshot = app.lifeforms.named_canvas(&id, &canvas).await?.snapshot();
    let mut arrays = chat::as_arrays(&snapshot.state);
    let topics: Vec<Value> = arrays["topics"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .map(|topic| {
            let count = topic["messages"].as_array().map_or(0, Vec::len);
            if let Some(topic) = topic.as_object_mut() {
                topic.shift_remove("messages");
                topic.insert("message_count".into(), count.into());
            }
            topic.take()
        })
        .collect();
    Ok(Json(json!({"topics": topics, "rev": snapshot.rev})))
}

/// What a new message takes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageBody {
    /// What is said.
    content: String,
    /// Its id; made when absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    id: Option<Arc<str>>,
    /// What it answers.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    reply_to: Option<Arc<str>>,
}

type TopicPath = ApiPath<(LifeformId, CanvasId, Arc<str>)>;
type MessagePath = ApiPath<(LifeformId, CanvasId, Arc<str>, Arc<str>)>;

/// Says something. Nobody has to wait for an answer before saying more.
#[utoipa::path(post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages", params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path)), request_body = MessageBody, responses((status = 201, description = "said, durably"), (status = 404, description = "no such topic"), (status = 422, description = "not a message")))]
pub(super) async fn append(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic)): TopicPath,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<MessageBody>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let message = body.id.unwrap_or_else(|| fresh("msg", key.as_ref(), &origin));
    let op = Op::Append { topic, id: message.clone(), content: body.content, reply_to: body.reply_to };
    apply(&canvas, op, key, None, &origin, StatusCode::CREATED, &message).await
}

/// The messages of a topic in order.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages", params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path)), responses((status = 200, description = "the messages")))]
pub(super) async fn messages(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic)): TopicPath,
) -> Result<Json<Value>, ApiError> {
    let snapshot = app.lifeforms.named_canvas(&id, &canvas).await?.snapshot();
    let arrays = chat::as_arrays(&snapshot.state);
    let found = arrays["topics"].as_array().into_iter().flatten().find(|found| found["id"] == *topic);
    match found {
        Some(found) => Ok(Json(json!({"messages": found["messages"], "rev": snapshot.rev}))),
        None => Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("topic {topic} does not exist"))),
    }
}

async fn find(
    app: &App,
    id: &LifeformId,
    canvas: &CanvasId,
    topic: &str,
    message: &str,
) -> Result<(Canvas, Value), ApiError> {
    let canvas = app.lifeforms.named_canvas(id, canvas).await?;
    let snapshot = canvas.snapshot();
    match snapshot.state["topics"][topic]["messages"].get(message) {
        Some(found) => Ok((canvas, chat::message_as_array(found.clone()))),
        None => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("message {message} does not exist in topic {topic}"),
        )),
    }
}

/// One message with its history.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}", params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)), responses((status = 200, description = "the message")))]
pub(super) async fn message(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic, message)): MessagePath,
) -> Result<Response, ApiError> {
    let (canvas, found) = find(&app, &id, &canvas, &topic, &message).await?;
    let tag = format!("\"{}:{}\"", canvas.snapshot().epoch, found["rev"]);
    Ok(([(header::ETAG, tag)], Json(found)).into_response())
}

/// What was said before, oldest first.
#[utoipa::path(get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/revisions", params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)), responses((status = 200, description = "the history")))]
pub(super) async fn revisions(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic, message)): MessagePath,
) -> Result<Json<Value>, ApiError> {
    let (_, found) = find(&app, &id, &canvas, &topic, &message).await?;
    Ok(Json(json!({"revisions": found["revisions"]})))
}

/// What an amendment takes.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AmendBody {
    /// The new text.
    content: String,
    /// Why.
    #[serde(default)]
    reason: String,
    /// The revision of the message that was seen.
    #[serde(default)]
    base_rev: Option<u64>,
}

/// The revision in `If-Match: "epoch:rev"`, or `base_rev` of the body.
fn base_of(canvas: &Canvas, headers: &HeaderMap, base_rev: Option<u64>) -> Result<Option<u64>, ApiError> {
    let Some(tag) = headers.get(header::IF_MATCH) else { return Ok(base_rev) };
    let wrong = || ApiError::new(StatusCode::BAD_REQUEST, "if_match", "If-Match is \"epoch:rev\", as ETag gave it");
    let (epoch, rev) = tag.to_str().ok().and_then(|tag| tag.trim_matches('"').rsplit_once(':')).ok_or_else(wrong)?;
    if epoch != &*canvas.snapshot().epoch {
        return Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "stale", "this canvas was made anew since"));
    }
    Ok(Some(rev.parse().map_err(|_| wrong())?))
}

/// Says a message differently; what was said before is kept.
#[utoipa::path(patch, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}", params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)), request_body = AmendBody, responses((status = 200, description = "amended"), (status = 403, description = "not its author"), (status = 412, description = "it was changed meanwhile")))]
pub(super) async fn amend(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiJson(body): ApiJson<AmendBody>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let base = base_of(&canvas, &headers, body.base_rev)?;
    let op = Op::Amend { topic, id: message.clone(), content: body.content, reason: body.reason };
    apply(&canvas, op, key, base, &origin, StatusCode::OK, &message).await
}

/// Why something is done.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Why {
    /// In words.
    #[serde(default)]
    reason: String,
}

/// Takes a message back; its text stays in its history.
#[utoipa::path(delete, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}", params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path), Why), responses((status = 200, description = "retracted"), (status = 403, description = "not its author")))]
pub(super) async fn retract(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    ApiQuery(why): ApiQuery<Why>,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let base = base_of(&canvas, &headers, None)?;
    let op = Op::Retract { topic, id: message.clone(), reason: why.reason };
    apply(&canvas, op, key, base, &origin, StatusCode::OK, &message).await
}

/// Asks whoever is writing a message to break off; the text so far stays.
#[utoipa::path(post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/interrupt", params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path), Why), responses((status = 200, description = "interrupted"), (status = 409, description = "it is not being written")))]
pub(super) async fn interrupt(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    ApiQuery(why): ApiQuery<Why>,
) -> Result<Response, ApiError> {
    let canvas = app.lifeforms.named_canvas(&id, &canvas).await?;
    let op = Op::Interrupt { topic, id: message.clone(), reason: why.reason };
    apply(&canvas, op, None, None, &origin, StatusCode::OK, &message).await
}
