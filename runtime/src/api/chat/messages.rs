//! The routes for messages of a topic.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lifeform::canvas::chat::{Attachment, Op, message_path, topic_path};
use lifeform::canvas::{Snapshot, WriteRequest, with_lists};
use lifeform::{CanvasId, LifeformId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Origin, Timestamp};
use utoipa::ToSchema;

use super::{MessagePath, TopicPath, chat, no_topic, one};
use crate::api::App;
use crate::api::canvases::{Written, apply, base_of, fresh, tag};
use crate::api::error::ApiError;
use crate::api::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant};
use crate::api::paging::Limit;

/// A new message.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageBody {
    /// The text. `@name` mentions a principal.
    pub(super) content: String,
    /// The id; generated if absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(super) id: Option<Arc<str>>,
    /// The id of the message that this message answers.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(super) reply_to: Option<Arc<str>>,
    /// The id of the message that this message supplements.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(super) supplements: Option<Arc<str>>,
    /// `true` to interrupt an answer that is being written.
    #[serde(default)]
    pub(super) urgent: bool,
    /// The attachments: `{hash, name, media_type, bytes}` of uploads.
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub(super) attachments: Vec<Attachment>,
}

/// Posts a message in a topic.
///
/// Clients can post more messages without waiting for an answer.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), IdempotencyKey),
    request_body = MessageBody,
    responses(
        (status = 201, description = "the outcome, with the id of the message", body = Written),
        (status = 404, description = "no such topic"),
        (status = 422, description = "not a message"),
    ),
)]
pub(crate) async fn append(
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

/// Posts a message in a topic. If the topic does not exist, it is created with this id.
pub(crate) async fn say(
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
    let applied = canvas.write(WriteRequest::Ops(ops), None, None, origin).await?;
    Ok(json!({"id": message, "rev": applied.rev}))
}

/// A message of a topic. Members that do not apply are absent.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes an entity of the canvas's state")]
pub(crate) struct Message {
    /// The id.
    id: String,
    /// The author.
    sender: String,
    /// The text.
    content: String,
    /// `final`, `streaming`, `interrupted` or `retracted`.
    status: String,
    /// The order within the topic.
    ord: String,
    /// The revision of the last change.
    rev: u64,
    /// The time of the message.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The message that this one replies to.
    reply_to: Option<String>,
    /// The message that this one continues.
    supplements: Option<String>,
    /// `true` for a message that interrupts.
    urgent: Option<bool>,
    /// The attachments: `{hash, media_type, bytes, name?}`.
    #[schema(value_type = Option<Vec<Object>>)]
    attachments: Option<Value>,
    /// The messages that this one answers.
    answers: Option<Vec<String>>,
    /// The ids of the concepts and records that the answer rests on.
    rests_on: Option<Vec<String>>,
    /// The reactions by sign.
    #[schema(value_type = Option<Object>)]
    reactions: Option<Value>,
    /// The earlier versions, oldest first.
    revisions: Vec<Revision>,
}

/// An earlier version of a message.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes an entity of the canvas's state")]
struct Revision {
    /// The number, from 1.
    n: u64,
    /// The text.
    content: String,
    /// The status.
    status: String,
    /// The principal that replaced this version.
    by: String,
    /// The reason.
    reason: String,
    /// The time at which it was replaced.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The revision of the canvas at which it was replaced.
    rev: u64,
}

/// The messages of a topic.
#[derive(Serialize, ToSchema)]
pub(crate) struct Messages {
    /// The messages in order.
    #[schema(value_type = Vec<Message>)]
    messages: Vec<Value>,
    /// The revision of the canvas.
    rev: u64,
}

/// The earlier versions of a message.
#[derive(Serialize, ToSchema)]
pub(crate) struct Revisions {
    /// The versions, oldest first.
    #[schema(value_type = Vec<Revision>)]
    revisions: Value,
}

/// A section of a topic.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MessageRange {
    /// The id of the message before which the section ends.
    #[serde(default)]
    pub(super) before: Option<String>,
    /// The maximum number of messages, the latest ones, up to 1000; all if absent.
    #[serde(default)]
    #[param(value_type = Option<usize>, minimum = 1, maximum = 1000)]
    pub(super) limit: Option<Limit<1000, 1000>>,
}

/// Lists the messages of a topic in order.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), MessageRange),
    responses((status = 200, description = "the messages", body = Messages)),
)]
pub(crate) async fn messages(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic)): TopicPath,
    ApiQuery(asked): ApiQuery<MessageRange>,
) -> Result<Json<Messages>, ApiError> {
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
    let latest = latest.take(asked.limit.map_or(usize::MAX, |limit| limit.0));
    let mut messages: Vec<Value> = latest.map(|message| with_lists(message.clone())).collect();
    messages.reverse();
    Ok(Json(Messages { messages, rev }))
}

pub(super) fn no_message(topic: &str, message: &str) -> ApiError {
    let detail = format!("message {message} does not exist in topic {topic}");
    ApiError::new(StatusCode::NOT_FOUND, "not_found", detail)
}

pub(super) async fn find(
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

/// Returns a message with its revisions.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), ("message" = String, Path)),
    responses((status = 200, description = "the message", body = Message)),
)]
pub(crate) async fn message(
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
    responses((status = 200, description = "the earlier versions", body = Revisions)),
)]
pub(crate) async fn revisions(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas, topic, message)): MessagePath,
) -> Result<Json<Revisions>, ApiError> {
    let (_, found) = find(&app, &id, &canvas, &topic, &message).await?;
    Ok(Json(Revisions { revisions: found["revisions"].clone() }))
}

/// An amendment.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AmendBody {
    /// The new text.
    pub(super) content: String,
    /// The reason.
    #[serde(default)]
    pub(super) reason: String,
    /// The revision of the message that the client saw.
    #[serde(default)]
    pub(super) base_rev: Option<u64>,
}

/// Amends a message.
///
/// The earlier text is kept as a revision.
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
        (status = 200, description = "the outcome", body = Written),
        (status = 403, description = "not its author"),
        (status = 412, description = "it was changed meanwhile; `current` is what there is"),
    ),
)]
pub(crate) async fn amend(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiJson(body): ApiJson<AmendBody>,
) -> Result<Response, ApiError> {
    let canvas = chat(&app, &id, &canvas).await?;
    let base = base_of(&canvas, &headers, body.base_rev)?;
    let op = Op::Amend { topic, id: message.clone(), content: body.content, reason: body.reason, behind: Vec::new() };
    apply(&canvas, one(op), key, base, &origin, StatusCode::OK, Some(&message)).await
}

/// The reason for an act.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Why {
    /// The reason, as text.
    #[serde(default)]
    pub(super) reason: String,
}

/// The reason for a removal, and its extent.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Taken {
    /// The reason, as text.
    #[serde(default)]
    pub(super) reason: String,
    /// 1 to remove the message permanently, with its revisions and the log before it. Only an operator may do this.
    #[serde(default)]
    #[param(minimum = 0, maximum = 1)]
    pub(super) purge: u8,
}

/// Retracts a message.
///
/// Its text is kept as a revision, unless the message is purged. The memories of a lifeform from this message are
/// marked as retracted in both cases. KIP can delete them.
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
        (status = 200, description = "the outcome", body = Written),
        (status = 403, description = "not its author"),
        (status = 412, description = "it was changed meanwhile"),
    ),
)]
pub(crate) async fn retract(
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

/// Applies one op without a body to a message.
pub(super) async fn act(
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

/// Interrupts a message that is being written.
///
/// The text so far stays.
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
    responses(
        (status = 200, description = "the outcome", body = Written),
        (status = 409, description = "it is not being written"),
    ),
)]
pub(crate) async fn interrupt(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    ApiQuery(why): ApiQuery<Why>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Response, ApiError> {
    let op = Op::Interrupt { topic, id: message.clone(), reason: why.reason };
    act(&app, &origin, (&id, &canvas), key, &message, op).await
}

/// Restores a retracted message.
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
    responses(
        (status = 200, description = "the outcome", body = Written),
        (status = 409, description = "it was not retracted"),
    ),
)]
pub(crate) async fn restore(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, canvas, topic, message)): MessagePath,
    ApiQuery(why): ApiQuery<Why>,
    IdempotencyKey(key): IdempotencyKey,
) -> Result<Response, ApiError> {
    let op = Op::Restore { topic, id: message.clone(), reason: why.reason };
    act(&app, &origin, (&id, &canvas), key, &message, op).await
}
