//! The OpenAI-compatible API of a model in this process. The embedded engine and the scripted model of the tests use
//! the same router, and the client calls it without a network.

mod body;
pub mod types;

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::{Stream, StreamExt, stream};
use serde_json::json;
use store::Clock;
use tokio::sync::mpsc;

pub use body::{Object, repeated_member};

use body::{Body, Unique};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use types::{
    ChatMessage, ChatRequest, ChatResponse, Choice, CompletionRequest, Embedding, EmbeddingRequest, EmbeddingResponse,
    Usage, WireToolCall,
};

/// The maximum number of texts in one request for embeddings.
pub const TEXTS_MAX: usize = 2048;

/// A part of an answer; the last part is `Done`.
#[derive(Clone, Debug)]
pub enum Part {
    /// The next part of the text.
    Text(String),
    /// A complete tool call.
    Tool(WireToolCall),
    /// The end of the answer.
    Done {
        /// `stop`, `length`, `tool_calls` or `content_filter`.
        finish: &'static str,
        /// The usage.
        usage: Usage,
    },
    /// The answer failed after it had started.
    Failed(String),
    /// The request was refused before any work, and a repetition would not help. Only the first part can be a refusal.
    Refused(String),
}

/// A refusal before the first part of an answer.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The message.
    pub message: String,
    /// The delay in seconds before a repetition, for status 429.
    pub retry_after_s: Option<u32>,
}

/// A model in this process. Dropping the receiver stops its answer.
#[async_trait::async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Returns the names of the model.
    fn models(&self) -> Vec<String>;
    /// Starts an answer.
    async fn chat(&self, request: ChatRequest) -> Result<mpsc::Receiver<Part>, Refusal> {
        Err(Refusal::wrong(format!("{} does not chat", request.model)))
    }
    /// Returns the embeddings of texts, in order.
    async fn embed(&self, model: &str, _texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Usage), Refusal> {
        Err(Refusal::wrong(format!("{model} makes no embeddings")))
    }
}

impl Refusal {
    /// Creates a refusal of an invalid request, whose repetition would not help.
    pub fn wrong(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), retry_after_s: None }
    }

    /// Creates a refusal because the queue is full.
    pub fn busy(message: impl Into<String>) -> Self {
        Self { status: 429, message: message.into(), retry_after_s: Some(2) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = error(self.status, &self.message);
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert("retry-after", seconds.into());
        }
        response
    }
}

/// Returns the router of the API for `engine`.
pub fn router(engine: Arc<dyn Engine>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(model))
        .with_state(engine)
}

async fn models(State(engine): State<Arc<dyn Engine>>) -> Response {
    let data: Vec<_> = engine
        .models()
        .into_iter()
        .map(|id| json!({"id": id, "object": "model", "created": 0, "owned_by": "lifeformd"}))
        .collect();
    Json(json!({"object": "list", "data": data})).into_response()
}

async fn model(State(engine): State<Arc<dyn Engine>>, uri: Uri) -> Response {
    // An outer router may have path parameters of its own, which an extractor would also return.
    let id = uri.path().strip_prefix("/v1/models/").unwrap_or_default();
    let id = percent_encoding::percent_decode_str(id).decode_utf8_lossy().into_owned();
    match engine.models().contains(&id) {
        true => Json(json!({"id": id, "object": "model", "created": 0, "owned_by": "lifeformd"})).into_response(),
        false => error(404, &format!("the model \"{id}\" is not known here; GET /v1/models lists them")),
    }
}

/// Returns an error response in OpenAI's format: `{error: {message, type, param, code}}`.
pub fn error(status: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = match status.as_u16() {
        401 | 403 => "authentication_error",
        402 => "insufficient_quota",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    (status, Json(json!({"error": {"message": message, "type": kind, "param": null, "code": status.as_str()}})))
        .into_response()
}

async fn chat(State(engine): State<Arc<dyn Engine>>, Body(Unique(request)): Body<Unique>) -> Response {
    let read = types::only_text(&request)
        .and_then(|()| serde_json::from_value::<ChatRequest>(request).map_err(|error| error.to_string()))
        .and_then(ChatRequest::normalized);
    let request = match read {
        Ok(request) => request,
        Err(why) => return error(400, &why),
    };
    let answer = Head::new(&request.model);
    let (model, streaming) = (request.model.clone(), request.stream);
    let parts = match engine.chat(request).await {
        Ok(parts) => parts,
        Err(refusal) => return refusal.into_response(),
    };
    // The status is sent with the first part, so a refusal can still set it.
    let mut parts = parts;
    let first = parts.recv().await;
    if let Some(Part::Refused(message)) = first {
        return error(400, &message);
    }
    drop(model);
    if streaming { Sse::new(events(answer, first, parts)).into_response() } else { whole(answer, first, parts).await }
}

/// Continues a text, as the last message of an assistant.
async fn completions(State(engine): State<Arc<dyn Engine>>, Body(request): Body<CompletionRequest>) -> Response {
    let CompletionRequest { model, prompt, max_tokens, temperature, seed, stop } = request;
    let prefix = ChatMessage { prefix: Some(true), ..ChatMessage::text("assistant", prompt) };
    let messages = vec![prefix];
    let request =
        ChatRequest { model: model.clone(), messages, max_tokens, temperature, seed, stop, ..ChatRequest::default() };
    let mut parts = match engine.chat(request).await {
        Ok(parts) => parts,
        Err(refusal) => return refusal.into_response(),
    };
    let mut text = String::new();
    while let Some(part) = parts.recv().await {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::Tool(_) => {}
            Part::Refused(message) => return error(400, &message),
            Part::Failed(message) => return error(500, &message),
            Part::Done { finish, usage } => {
                let choice = json!({"index": 0, "text": text, "finish_reason": finish, "logprobs": null});
                let Head { id, created, model } = Head::new(&model);
                return Json(json!({
                    "id": id,
                    "object": "text_completion",
                    "created": created,
                    "model": model,
                    "choices": [choice],
                    "usage": usage,
                }))
                .into_response();
            }
        }
    }
    error(500, "the engine stopped before it was done")
}

async fn embeddings(State(engine): State<Arc<dyn Engine>>, Body(request): Body<EmbeddingRequest>) -> Response {
    let packed = match request.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => return error(400, &format!("encoding_format is \"float\" or \"base64\", not \"{other}\"")),
    };
    let (texts, dimensions) = (request.input.into_vec(), request.dimensions);
    if texts.is_empty() || texts.len() > TEXTS_MAX {
        return error(400, &format!("input holds 1 to {TEXTS_MAX} texts, not {}", texts.len()));
    }
    match engine.embed(&request.model, texts).await {
        Err(refusal) => refusal.into_response(),
        Ok((vectors, _)) if dimensions.is_some_and(|wanted| vectors.iter().any(|vector| vector.len() != wanted)) => {
            let made = vectors.first().map_or(0, Vec::len);
            error(400, &format!("dimensions: this embedder makes vectors of {made} numbers and no others"))
        }
        Ok((vectors, usage)) => {
            let shown = |vector: Vec<f32>| {
                let bytes = || vector.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
                if packed { json!(BASE64_STANDARD.encode(bytes())) } else { json!(vector) }
            };
            let data = vectors.into_iter().enumerate().map(|(index, vector)| Embedding {
                object: "embedding".into(),
                index,
                embedding: shown(vector),
            });
            let (data, model) = (data.collect(), request.model);
            Json(EmbeddingResponse { object: "list".into(), data, model, usage: Some(usage) }).into_response()
        }
    }
}

/// The members that all parts of one answer have in common.
struct Head {
    id: String,
    created: i64,
    model: String,
}

impl Head {
    fn new(model: &str) -> Self {
        let id = format!("chatcmpl-{}", uuid::Uuid::now_v7().simple());
        Self { id, created: store::SystemClock.now().as_second(), model: model.into() }
    }

    fn response(&self, object: &str, choices: Vec<Choice>) -> ChatResponse {
        ChatResponse {
            id: self.id.clone(),
            object: object.into(),
            created: self.created,
            model: self.model.clone(),
            choices,
            ..ChatResponse::default()
        }
    }
}

async fn whole(head: Head, first: Option<Part>, mut parts: mpsc::Receiver<Part>) -> Response {
    let (mut text, mut calls) = (String::new(), Vec::new());
    let mut next = first;
    while let Some(part) = next {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::Tool(call) => calls.push(call),
            Part::Failed(message) | Part::Refused(message) => return error(500, &message),
            Part::Done { finish, usage } => {
                let content = (calls.is_empty() || !text.is_empty()).then_some(text);
                let message = ChatMessage {
                    role: "assistant".into(),
                    content,
                    tool_calls: (!calls.is_empty()).then_some(calls),
                    ..ChatMessage::default()
                };
                let choice = Choice { message: Some(message), finish_reason: Some(finish.into()), ..Choice::default() };
                let mut answer = head.response("chat.completion", vec![choice]);
                answer.usage = Some(usage);
                return Json(answer).into_response();
            }
        }
        next = parts.recv().await;
    }
    error(500, "the engine stopped before it was done")
}

fn events(
    head: Head,
    first: Option<Part>,
    parts: mpsc::Receiver<Part>,
) -> impl Stream<Item = Result<Event, Infallible>> {
    let parts = stream::unfold(parts, |mut parts| async move { parts.recv().await.map(|part| (part, parts)) });
    stream::iter(first).chain(parts).flat_map(move |part| {
        let chunk = |delta: ChatMessage, finish: Option<&str>| {
            head.response(
                "chat.completion.chunk",
                vec![Choice { delta: Some(delta), finish_reason: finish.map(Into::into), ..Choice::default() }],
            )
        };
        let frames = match part {
            Part::Text(text) => vec![json_event(&chunk(ChatMessage::text("assistant", text), None))],
            Part::Tool(call) => vec![json_event(&chunk(
                ChatMessage { role: "assistant".into(), tool_calls: Some(vec![call]), ..ChatMessage::default() },
                None,
            ))],
            Part::Failed(message) | Part::Refused(message) => vec![json_event(&json!({"error": {"message": message}}))],
            Part::Done { finish, usage } => {
                let mut last = head.response("chat.completion.chunk", Vec::new());
                last.usage = Some(usage);
                vec![
                    json_event(&chunk(ChatMessage::default(), Some(finish))),
                    json_event(&last),
                    Event::default().data("[DONE]"),
                ]
            }
        };
        stream::iter(frames.into_iter().map(Ok))
    })
}

fn json_event<T: serde::Serialize>(value: &T) -> Event {
    Event::default().json_data(value).unwrap_or_default()
}
