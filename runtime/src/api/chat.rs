//! The routes of a chat: topics and their messages (seed 003 §6.3.4). Every route is one op of
//! `lifeform::canvas::chat`.

use std::num::NonZeroUsize;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lifeform::canvas::chat::{Attachment, Op, Turns, message_path, topic_path};
use lifeform::canvas::{Kind, Snapshot, What, with_lists};
use lifeform::{Canvas, CanvasId, LifeformId};
use serde::Deserialize;
use serde_json::{Value, json};
use store::Origin;
use utoipa::ToSchema;

use super::App;
use super::canvases::{CanvasPath, apply, base_of, fresh, tag};
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant};

type TopicPath = ApiPath<(LifeformId, CanvasId, Arc<str>)>;
pub(super) type MessagePath = ApiPath<(LifeformId, CanvasId, Arc<str>, Arc<str>)>;

/// The chat of that name.
async fn chat(app: &App, id: &LifeformId, canvas: &CanvasId) -> Result<Canvas, ApiError> {
    let found = app.lifeforms.named_canvas(id, canvas).await?;
    match found.kind {
        Kind::Chat => Ok(found),
        other => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "not_a_chat",
            format!("canvas {canvas} is a {} and has no topics", other.as_str()),
        )
        .hint("send its ops to …/ops")),
    }
}

fn one(op: Op) -> What {
    What::Ops(vec![op.into()])
}

/// A request for a new topic.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicBody {
    /// The title.
    title: String,
    /// The id; generated if absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    id: Option<Arc<str>>,
    /// The lifeforms that answer unasked: `free`, `mentioned` or `one_at_a_time`.
    #[serde(default)]
    #[schema(value_type = String)]
    turns: Turns,
}

/// Opens a topic.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics",
    params(("id" = String, Path), ("canvas" = String, Path), IdempotencyKey),
    request_body = TopicBody,
    responses((status = 201, description = "opened")),
)]
pub(super) async fn create_topic(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas)): CanvasPath,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<TopicBody>,
) -> Result<Response, ApiError> {
    let canvas = chat(&app, &id, &canvas).await?;
    let topic = body.id.unwrap_or_else(|| fresh("topic", key.as_ref(), &origin));
    let op = Op::TopicCreate { id: topic.clone(), title: body.title, turns: body.turns };
    apply(&canvas, one(op), key, None, &origin, StatusCode::CREATED, Some(&topic)).await
}

/// A topic as REST shows it in a list: how many messages it has instead of them.
fn summary(state: &lifeform::canvas::State, topic: &Value) -> Value {
    let mut shown = topic.clone();
    let id = topic["id"].as_str().unwrap_or_default();
    shown["message_count"] = json!(state.count(&format!("{}/messages", topic_path(id))));
    shown
}

/// Lists topics, without their messages.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics",
    params(("id" = String, Path), ("canvas" = String, Path)),
    responses((status = 200, description = "the topics in order")),
)]
pub(super) async fn topics(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): CanvasPath,
) -> Result<Json<Value>, ApiError> {
    let Snapshot { state, rev, .. } = chat(&app, &id, &canvas).await?.snapshot();
    let topics: Vec<Value> = state.children("/topics").map(|topic| summary(&state, topic)).collect();
    Ok(Json(json!({"topics": topics, "rev": rev})))
}

fn no_topic(topic: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("topic {topic} does not exist"))
}

/// One topic, without its messages.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path)),
    responses((status = 200, description = "the topic")),
)]
pub(super) async fn topic(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic)): TopicPath,
) -> Result<Response, ApiError> {
    let snapshot = chat(&app, &id, &canvas).await?.snapshot();
    let found = snapshot.state.get(&topic_path(&topic)).ok_or_else(|| no_topic(&topic))?;
    let tag = tag(&snapshot, found["rev"].as_u64().unwrap_or(0));
    Ok(([(header::ETAG, tag)], Json(summary(&snapshot.state, found))).into_response())
}

/// A change of a topic.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicChange {
    /// The new title.
    #[serde(default)]
    title: Option<String>,
    /// The new rule of turns.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    turns: Option<Turns>,
    /// `true` to archive it.
    #[serde(default)]
    archived: Option<bool>,
}

/// Changes a topic: who opened it, a moderator or an operator may.
#[utoipa::path(
    patch, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), IdempotencyKey),
    request_body = TopicChange,
    responses((status = 200, description = "changed"), (status = 412, description = "it was changed meanwhile")),
)]
pub(super) async fn edit_topic(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic)): TopicPath,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiJson(body): ApiJson<TopicChange>,
) -> Result<Response, ApiError> {
    let canvas = chat(&app, &id, &canvas).await?;
    let base = base_of(&canvas, &headers, None)?;
    let TopicChange { title, turns, archived } = body;
    let op = Op::TopicEdit { id: topic.clone(), title, turns, archived };
    apply(&canvas, one(op), key, base, &origin, StatusCode::OK, Some(&topic)).await
}

/// The read position of a principal.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadBody {
    /// The last message that was read.
    #[schema(value_type = String)]
    upto: Arc<str>,
}

/// Notes how far one has read in a topic.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/read",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), IdempotencyKey),
    request_body = ReadBody,
    responses((status = 200, description = "noted")),
)]
pub(super) async fn mark_read(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic)): TopicPath,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<ReadBody>,
) -> Result<Response, ApiError> {
    let canvas = chat(&app, &id, &canvas).await?;
    let op = Op::Read { id: topic.clone(), upto: body.upto };
    apply(&canvas, one(op), key, None, &origin, StatusCode::OK, Some(&topic)).await
}

/// A new message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageBody {
    /// The text. `@name` mentions a principal.
    content: String,
    /// The id; generated if absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    id: Option<Arc<str>>,
    /// The message that it answers.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    reply_to: Option<Arc<str>>,
    /// The message that it adds to.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    supplements: Option<Arc<str>>,
    /// `true` to interrupt a present answer.
    #[serde(default)]
    urgent: bool,
    /// The attachments: `{hash, name, media_type, bytes}` of uploads.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    attachments: Vec<Attachment>,
}

/// Says something. Nobody has to wait for an answer before saying more.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), IdempotencyKey),
    request_body = MessageBody,
    responses(
        (status = 201, description = "said, durably"),
        (status = 404, description = "no such topic"),
        (status = 422, description = "not a message"),
    ),
)]
pub(super) async fn append(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic)): TopicPath,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(body): ApiJson<MessageBody>,
) -> Result<Response, ApiError> {
    let canvas = chat(&app, &id, &canvas).await?;
    let message = body.id.unwrap_or_else(|| fresh("msg", key.as_ref(), &origin));
    let MessageBody { content, reply_to, supplements, urgent, attachments, .. } = body;
    let op = Op::Append {
        topic,
        id: message.clone(),
        content,
        reply_to,
        supplements,
        urgent,
        attachments,
        answers: Vec::new(),
        rests_on: Vec::new(),
        behind: Vec::new(),
    };
    apply(&canvas, one(op), key, None, &origin, StatusCode::CREATED, Some(&message)).await
}

/// Says something in a topic, which is opened by that name where there is none.
pub(super) async fn say(
    app: &App,
    id: &LifeformId,
    canvas: &CanvasId,
    topic: Arc<str>,
    content: String,
    origin: &Origin,
) -> Result<Value, ApiError> {
    let canvas = chat(app, id, canvas).await?;
    let mut ops: Vec<lifeform::canvas::Op> = Vec::new();
    if canvas.snapshot().state.get(&topic_path(&topic)).is_none() {
        ops.push(Op::TopicCreate { id: topic.clone(), title: topic.to_string(), turns: Default::default() }.into());
    }
    let message = fresh("msg", None, origin);
    let append = Op::Append {
        topic,
        id: message.clone(),
        content,
        reply_to: None,
        supplements: None,
        urgent: false,
        attachments: Vec::new(),
        answers: Vec::new(),
        rests_on: Vec::new(),
        behind: Vec::new(),
    };
    ops.push(append.into());
    let applied = canvas.write(What::Ops(ops), None, None, origin).await?;
    Ok(json!({"id": message, "rev": applied.rev}))
}

/// A stretch of a topic.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Stretch {
    /// Only what was said before this message.
    #[serde(default)]
    before: Option<String>,
    /// Only so many, the latest; all when absent.
    #[serde(default)]
    #[param(value_type = Option<usize>, minimum = 1)]
    limit: Option<NonZeroUsize>,
}

/// The messages of a topic in order.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), Stretch),
    responses((status = 200, description = "the messages")),
)]
pub(super) async fn messages(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic)): TopicPath,
    ApiQuery(asked): ApiQuery<Stretch>,
) -> Result<Json<Value>, ApiError> {
    let Snapshot { state, rev, .. } = chat(&app, &id, &canvas).await?.snapshot();
    state.get(&topic_path(&topic)).ok_or_else(|| no_topic(&topic))?;
    let ord = |message: &Value| message["ord"].as_str().unwrap_or_default().to_owned();
    let before = match &asked.before {
        Some(before) => {
            Some(ord(state.get(&message_path(&topic, before)).ok_or_else(|| no_message(&topic, before))?))
        }
        None => None,
    };
    let latest = state.children(&format!("{}/messages", topic_path(&topic))).rev();
    let latest = latest.filter(|message| before.as_ref().is_none_or(|before| ord(message) < *before));
    let latest = latest.take(asked.limit.map_or(usize::MAX, NonZeroUsize::get));
    let mut messages: Vec<Value> = latest.map(|message| with_lists(message.clone())).collect();
    messages.reverse();
    Ok(Json(json!({"messages": messages, "rev": rev})))
}

fn no_message(topic: &str, message: &str) -> ApiError {
    let detail = format!("message {message} does not exist in topic {topic}");
    ApiError::new(StatusCode::NOT_FOUND, "not_found", detail)
}

async fn find(
    app: &App,
    id: &LifeformId,
    canvas: &CanvasId,
    topic: &str,
    message: &str,
) -> Result<(Snapshot, Value), ApiError> {
    let snapshot = chat(app, id, canvas).await?.snapshot();
    let found = snapshot.state.get(&message_path(topic, message)).cloned();
    let found = found.ok_or_else(|| no_message(topic, message))?;
    Ok((snapshot, with_lists(found)))
}

/// One message with its history.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)),
    responses((status = 200, description = "the message")),
)]
pub(super) async fn message(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic, message)): MessagePath,
) -> Result<Response, ApiError> {
    let (snapshot, found) = find(&app, &id, &canvas, &topic, &message).await?;
    let tag = tag(&snapshot, found["rev"].as_u64().unwrap_or(0));
    Ok(([(header::ETAG, tag)], Json(found)).into_response())
}

/// Lists the earlier versions of a message, oldest first.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/revisions",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)),
    responses((status = 200, description = "the history")),
)]
pub(super) async fn revisions(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic, message)): MessagePath,
) -> Result<Json<Value>, ApiError> {
    let (_, found) = find(&app, &id, &canvas, &topic, &message).await?;
    Ok(Json(json!({"revisions": found["revisions"]})))
}

/// An amendment.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AmendBody {
    /// The new text.
    content: String,
    /// The reason.
    #[serde(default)]
    reason: String,
    /// The revision of the message that was seen.
    #[serde(default)]
    base_rev: Option<u64>,
}

/// Says a message differently; what was said before is kept.
#[utoipa::path(
    patch, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}",
    params(
        ("id" = String, Path),
        ("canvas" = String, Path),
        ("topic" = String, Path),
        ("message" = String, Path),
        IdempotencyKey,
    ),
    request_body = AmendBody,
    responses(
        (status = 200, description = "amended"),
        (status = 403, description = "not its author"),
        (status = 412, description = "it was changed meanwhile; `current` is what there is"),
    ),
)]
pub(super) async fn amend(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiJson(body): ApiJson<AmendBody>,
) -> Result<Response, ApiError> {
    let canvas = chat(&app, &id, &canvas).await?;
    let base = base_of(&canvas, &headers, body.base_rev)?;
    let op = Op::Amend { topic, id: message.clone(), content: body.content, reason: body.reason };
    apply(&canvas, one(op), key, base, &origin, StatusCode::OK, Some(&message)).await
}

/// The reason of an act.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Why {
    /// In words.
    #[serde(default)]
    reason: String,
}

/// The reason and the extent of a removal.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Taken {
    /// In words.
    #[serde(default)]
    reason: String,
    /// 1 takes it away for good, with its history and the log before it: an operator's.
    #[serde(default)]
    #[param(minimum = 0, maximum = 1)]
    purge: u8,
}

/// Takes a message back; its text stays in its history, unless it is purged. What a lifeform remembers of it is marked
/// as retracted either way, and is forgotten by KIP.
#[utoipa::path(
    delete, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}",
    params(
        ("id" = String, Path),
        ("canvas" = String, Path),
        ("topic" = String, Path),
        ("message" = String, Path),
        Taken,
        IdempotencyKey,
    ),
    responses(
        (status = 200, description = "retracted"),
        (status = 403, description = "not its author"),
        (status = 412, description = "it was changed meanwhile"),
    ),
)]
pub(super) async fn retract(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    ApiQuery(Taken { reason, purge }): ApiQuery<Taken>,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let canvas = chat(&app, &id, &canvas).await?;
    let base = base_of(&canvas, &headers, None)?;
    let op = match purge {
        0 => Op::Retract { topic, id: message.clone(), reason },
        1 => Op::Purge { topic, id: message.clone(), reason },
        other => return Err(ApiError::invalid(format!("purge is 0 or 1, not {other}"))),
    };
    apply(&canvas, one(op), key, base, &origin, StatusCode::OK, Some(&message)).await
}

/// Does one op to a message, without a body.
async fn act(
    app: &App,
    origin: &Origin,
    (id, canvas): (&LifeformId, &CanvasId),
    key: Option<Arc<str>>,
    message: &str,
    op: Op,
) -> Result<Response, ApiError> {
    let canvas = chat(app, id, canvas).await?;
    apply(&canvas, one(op), key, None, origin, StatusCode::OK, Some(message)).await
}

/// Interrupts the author of a message that is being written; the text so far stays.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/interrupt",
    params(
        ("id" = String, Path),
        ("canvas" = String, Path),
        ("topic" = String, Path),
        ("message" = String, Path),
        Why,
        IdempotencyKey,
    ),
    responses((status = 200, description = "interrupted"), (status = 409, description = "it is not being written")),
)]
pub(super) async fn interrupt(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    ApiQuery(why): ApiQuery<Why>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Response, ApiError> {
    let op = Op::Interrupt { topic, id: message.clone(), reason: why.reason };
    act(&app, &origin, (&id, &canvas), key, &message, op).await
}

/// Says again what was taken back.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/restore",
    params(
        ("id" = String, Path),
        ("canvas" = String, Path),
        ("topic" = String, Path),
        ("message" = String, Path),
        Why,
        IdempotencyKey,
    ),
    responses((status = 200, description = "restored"), (status = 409, description = "it was not retracted")),
)]
pub(super) async fn restore(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    ApiQuery(why): ApiQuery<Why>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Response, ApiError> {
    let op = Op::Restore { topic, id: message.clone(), reason: why.reason };
    act(&app, &origin, (&id, &canvas), key, &message, op).await
}
