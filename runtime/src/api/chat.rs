//! The routes of a chat: topics and their messages. Each route applies one op of `lifeform::canvas::chat`.

pub(super) mod messages;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lifeform::canvas::chat::{Op, Turns, topic_path};
use lifeform::canvas::{Snapshot, WriteRequest};
use lifeform::{Canvas, CanvasId, LifeformId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Timestamp;
use utoipa::ToSchema;

use super::App;
use super::canvases::{CanvasPath, Written, apply, base_of, fresh, tag};
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, Caller, IdempotencyKey, Participant};
pub(super) use messages::say;

type TopicPath = ApiPath<(LifeformId, CanvasId, Arc<str>)>;
pub(super) type MessagePath = ApiPath<(LifeformId, CanvasId, Arc<str>, Arc<str>)>;

/// Returns the chat with a given id.
async fn chat(app: &App, id: &LifeformId, canvas: &CanvasId) -> Result<Canvas, ApiError> {
    let found = app.lifeforms.named_canvas(id, canvas).await?;
    if found.kind.is(lifeform::canvas::chat::NAME) {
        return Ok(found);
    }
    let why = format!("canvas {canvas} is a {} and has no topics", found.kind.name());
    Err(ApiError::new(StatusCode::NOT_FOUND, "not_a_chat", why).hint("send its ops to …/ops"))
}

fn one(op: Op) -> WriteRequest {
    WriteRequest::Ops(vec![op.into()])
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
    /// The lifeforms that answer without a mention: `free`, `mentioned` or `one_at_a_time`.
    #[serde(default)]
    #[schema(value_type = String)]
    turns: Turns,
}

/// Creates a topic.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics",
    params(("id" = String, Path), ("canvas" = String, Path), IdempotencyKey),
    request_body = TopicBody,
    responses((status = 201, description = "the outcome, with the id of the topic", body = Written)),
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

/// A topic without its messages.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes an entity of the canvas's state")]
pub(super) struct Topic {
    /// The id.
    id: String,
    /// The title.
    title: String,
    /// The rule that decides which lifeform answers.
    turns: Turns,
    /// The order within the canvas.
    ord: String,
    /// The revision of the last change.
    rev: u64,
    /// The creator.
    created_by: String,
    /// The time of creation.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// `true` if the topic is archived.
    archived: Option<bool>,
    /// The roles in the topic by principal.
    #[schema(value_type = Object)]
    roles: Value,
    /// The read positions by principal.
    #[schema(value_type = Object)]
    read: Value,
    /// The number of messages.
    message_count: u64,
}

/// The topics of a chat.
#[derive(Serialize, ToSchema)]
pub(super) struct Topics {
    /// The topics in order.
    #[schema(value_type = Vec<Topic>)]
    topics: Vec<Value>,
    /// The revision of the canvas.
    rev: u64,
}

/// Returns a topic for a list, with the number of its messages instead of the messages.
fn summary(state: &lifeform::canvas::State, topic: &Value) -> Value {
    let mut shown = topic.clone();
    let id = topic["id"].as_str().unwrap_or_default();
    shown["message_count"] = json!(state.count(&format!("{}/messages", topic_path(id))));
    shown
}

/// Lists the topics of a chat, without their messages.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics",
    params(("id" = String, Path), ("canvas" = String, Path)),
    responses((status = 200, description = "the topics in order", body = Topics)),
)]
pub(super) async fn topics(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, canvas)): CanvasPath,
) -> Result<Json<Topics>, ApiError> {
    let Snapshot { state, rev, .. } = chat(&app, &id, &canvas).await?.snapshot();
    let topics = state.children("/topics").map(|topic| summary(&state, topic)).collect();
    Ok(Json(Topics { topics, rev }))
}

fn no_topic(topic: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("topic {topic} does not exist"))
}

/// Returns a topic without its messages.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path)),
    responses((status = 200, description = "the topic", body = Topic)),
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
    /// The new rule that decides which lifeform answers.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    turns: Option<Turns>,
    /// `true` to archive the topic.
    #[serde(default)]
    archived: Option<bool>,
}

/// Changes a topic.
///
/// Its creator, a moderator or an operator may do this.
#[utoipa::path(
    patch, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), IdempotencyKey),
    request_body = TopicChange,
    responses(
        (status = 200, description = "the outcome", body = Written),
        (status = 412, description = "it was changed meanwhile"),
    ),
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
    /// The id of the last message that the principal has read.
    #[schema(value_type = String)]
    upto: Arc<str>,
}

/// Stores the caller's read position in a topic.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/read",
    params(("id" = String, Path), ("canvas" = String, Path), ("topic" = String, Path), IdempotencyKey),
    request_body = ReadBody,
    responses((status = 200, description = "the outcome", body = Written)),
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
