//! The OpenAI-compatible API: `/v1/chat/completions`, `/v1/embeddings`, `/v1/models`.
//!
//! `model` is a tier (`economy`, `standard`, `high`), a provider's model by its name or as `provider/model`, a neuron
//! (`neuron:ID`) or a fascicle (`fascicle:ID`). The house account pays for all requests, as for other calls by people.
//! The wire format is the one of the models in this process. Each request has its own engine, which knows the caller.

mod shapes;

use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fascicles::run::{Fact, Status};
use fascicles::{JobId, JobOrder};
use neurons::llm::wire::{Engine, Part, Refusal, error, router};
use neurons::llm::{ChatMessage, ChatReply, ChatRequest, Delta, Model, Usage, WireFunction, WireToolCall};
use neurons::neuron::Completed;
use neurons::spec::ToolSpec;
use neurons::{HOUSE, NeuronId, Stop};
use store::{Cause, Event, Origin};
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::App;
use super::error::{ApiError, Said};
use super::extract::{Caller, Participant};
use shapes::{ChatBody, ChatCompletion, EmbeddingList, EmbeddingsBody, ListedModel, ModelList};

/// The maximum number of names in a listing, for models, neurons and fascicles each.
const LISTED_MAX: usize = 1_000;
/// The maximum number of pieces that wait for a slow reader.
const PIECES: usize = 64;

/// The engine of one request.
struct Door {
    app: App,
    origin: Origin,
    models: Vec<String>,
}

/// The target of a model name.
enum Named {
    Model(Box<Model>),
    Neuron(NeuronId),
    Fascicle(Arc<str>),
}

type Answering = std::pin::Pin<Box<dyn Future<Output = Result<ChatReply, ApiError>> + Send>>;

impl Door {
    fn named(&self, name: &str) -> Result<Named, Refusal> {
        if let Some(id) = name.strip_prefix("neuron:") {
            return Ok(Named::Neuron(id.into()));
        }
        if let Some(id) = name.strip_prefix("fascicle:") {
            return Ok(Named::Fascicle(id.into()));
        }
        let missing = || {
            let message = format!("the model \"{name}\" is not known here; GET /v1/models lists them");
            Refusal { status: 404, message, retry_after_s: None }
        };
        self.app.neurons.models().named(name).cloned().map(|model| Named::Model(Box::new(model))).ok_or_else(missing)
    }

    fn answer(&self, named: Named, request: ChatRequest, deltas: Option<mpsc::Sender<Delta>>) -> Answering {
        let (app, origin) = (self.app.clone(), self.origin.clone());
        Box::pin(async move {
            match named {
                Named::Model(model) => Ok(app.neurons.chat(&origin, &HOUSE.into(), &model, request, deltas).await?),
                Named::Neuron(id) => {
                    let tools = request.tools.iter().map(tool).collect::<Result<_, _>>()?;
                    let thought = app.neurons.converse(&origin, &id, request.messages, tools, deltas).await?;
                    Ok(replied(thought.stop, thought.usage))
                }
                Named::Fascicle(id) => job(app, origin, id, request.messages).await,
            }
        })
    }
}

/// Converts a tool of the caller to the form for a neuron.
fn tool(given: &serde_json::Value) -> Result<ToolSpec, ApiError> {
    let function = &given["function"];
    let wrong = |error| ApiError::invalid(format!("tools: {error}"));
    let mut written = serde_json::json!({
        "name": function["name"],
        "description": function["description"].as_str().unwrap_or_default(),
    });
    if function["parameters"].is_object() {
        written["parameters"] = function["parameters"].clone();
    }
    serde_json::from_value(written).map_err(wrong)
}

fn replied(stop: Stop, usage: Usage) -> ChatReply {
    match stop {
        Stop::Completed(completed) => ChatReply {
            text: Completed::as_text(&completed),
            finish: "stop".into(),
            usage: Some(usage),
            ..ChatReply::default()
        },
        Stop::Paused(calls) => {
            let call = |(index, call): (usize, neurons::neuron::ToolCall)| WireToolCall {
                index: Some(index),
                id: call.id,
                kind: "function".into(),
                function: WireFunction { name: call.name, arguments: call.params },
            };
            let tool_calls = calls.into_iter().enumerate().map(call).collect();
            ChatReply { tool_calls, finish: "tool_calls".into(), usage: Some(usage), ..ChatReply::default() }
        }
    }
}

/// Runs a fascicle as a job and returns its output. If the client disconnects, the job is cancelled.
async fn job(app: App, origin: Origin, id: Arc<str>, messages: Vec<ChatMessage>) -> Result<ChatReply, ApiError> {
    let said = messages.into_iter().filter(|message| message.role != "tool");
    let events = said.map(|it| Event::text(&it.role, it.content.unwrap_or_default(), Cause::default())).collect();
    let order = JobOrder { fascicle: id, owner: HOUSE.into(), account: HOUSE.into(), events, ..JobOrder::default() };
    let job = app.fascicles.start(&origin, order, app.house.clone(), |batch| batch).await?;
    let cancels = Cancels { app: app.clone(), origin: origin.clone(), job: Some(job.clone()) };
    let mut follow = app.fascicles.follow(&job);
    loop {
        let head = app.fascicles.job(&job).await?;
        match head.status {
            Status::Completed => {
                cancels.keep();
                let text = match head.output {
                    serde_json::Value::String(text) => text,
                    other => other.to_string(),
                };
                return Ok(ChatReply { text, finish: "stop".into(), ..ChatReply::default() });
            }
            Status::Failed | Status::Cancelled => {
                cancels.keep();
                return Err(ApiError::failed_job(head.error.unwrap_or_else(|| "the job was cancelled".into())));
            }
            Status::WaitingForTools | Status::WaitingForApproval => {
                let what = "this fascicle waits for its caller; start it by POST /v1/fascicles/{id}/execute";
                return Err(ApiError::invalid(what));
            }
            Status::Pending | Status::Running => {}
        }
        // The head is read again after each fact that may change it.
        loop {
            let entry = follow.next().await?;
            if !matches!(entry.decode::<Fact>(), Ok(Fact::Observed(_) | Fact::Started { .. })) {
                break;
            }
        }
    }
}

/// Cancels a job when the waiting request is dropped.
struct Cancels {
    app: App,
    origin: Origin,
    job: Option<JobId>,
}

impl Cancels {
    fn keep(mut self) {
        self.job = None;
    }
}

impl Drop for Cancels {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let (app, origin) = (self.app.clone(), self.origin.clone());
            tokio::spawn(async move { app.fascicles.cancel(&origin.principal, &job).await });
        }
    }
}

#[async_trait]
impl Engine for Door {
    fn models(&self) -> Vec<String> {
        self.models.clone()
    }

    async fn chat(&self, request: ChatRequest) -> Result<mpsc::Receiver<Part>, Refusal> {
        let named = self.named(&request.model)?;
        // A remote model receives members that are unknown here. Other targets cannot act on them.
        if !matches!(named, Named::Model(_)) {
            request.only_harmless().and_then(|()| request.without_settings()).map_err(Refusal::wrong)?;
        }
        if matches!(named, Named::Fascicle(_)) && !request.tools.is_empty() {
            return Err(Refusal::wrong("tools: a fascicle has its own; leave them out"));
        }
        let (parts, receiver) = mpsc::channel(PIECES);
        let (deltas, mut pieces) = mpsc::channel(PIECES);
        let streaming = request.stream;
        let mut answer = self.answer(named, request, streaming.then_some(deltas));
        // Before the first text is sent, a failure can still set the status.
        let first = tokio::select! {
            biased;
            Some(delta) = pieces.recv() => Ok(delta),
            answered = &mut answer => Err(answered.map_err(ApiError::refusal)?),
        };
        tokio::spawn(async move {
            let said = match first {
                Err(reply) => {
                    let _ = parts.send(Part::Text(reply.text.clone())).await;
                    Ok(reply)
                }
                Ok(first) => stream(first, &mut pieces, &mut answer, &parts).await,
            };
            let last = match said {
                Ok(reply) => {
                    for (index, call) in reply.tool_calls.into_iter().enumerate() {
                        let _ = parts.send(Part::Tool(WireToolCall { index: Some(index), ..call })).await;
                    }
                    let finish = match &*reply.finish {
                        "length" => "length",
                        "tool_calls" => "tool_calls",
                        "content_filter" => "content_filter",
                        _ => "stop",
                    };
                    Part::Done { finish, usage: reply.usage.unwrap_or_default() }
                }
                Err(error) => Part::Failed(error),
            };
            let _ = parts.send(last).await;
        });
        Ok(receiver)
    }

    async fn embed(&self, model: &str, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Usage), Refusal> {
        let embedded = self.app.neurons.embed(&self.origin, &HOUSE.into(), model, texts).await;
        embedded.map_err(|error| ApiError::refusal(error.into()))
    }
}

/// Sends the pieces until the answer is complete. If the reader disconnects, the call is cancelled.
async fn stream(
    first: Delta,
    pieces: &mut mpsc::Receiver<Delta>,
    answer: &mut Answering,
    parts: &mpsc::Sender<Part>,
) -> Result<ChatReply, String> {
    let gone = "whoever was listening went away".to_owned();
    let mut next = Some(first);
    loop {
        // A tool call is sent when it is complete. Text that the model withdraws cannot be withdrawn here.
        if let Some(Delta::Text(text)) = next.take() {
            parts.send(Part::Text(text)).await.map_err(|_| gone.clone())?;
        }
        tokio::select! {
            biased;
            Some(delta) = pieces.recv() => next = Some(delta),
            () = parts.closed() => return Err(gone),
            answered = &mut *answer => {
                while let Ok(delta) = pieces.try_recv() {
                    if let Delta::Text(text) = delta {
                        parts.send(Part::Text(text)).await.map_err(|_| gone.clone())?;
                    }
                }
                return answered.map_err(|error| error.refusal().message);
            }
        }
    }
}

async fn through(app: App, origin: Origin, models: Vec<String>, request: Request) -> Response {
    let Ok(response) = router(Arc::new(Door { app, origin, models })).oneshot(request).await;
    response
}

/// Creates a chat completion with a model, neuron or fascicle.
///
/// The response has the OpenAI format, complete or, with `stream`, in chunks.
#[utoipa::path(
    post, path = "/v1/chat/completions",
    request_body(content = ChatBody, description = "as OpenAI has it"),
    responses(
        (
            status = 200,
            description = "a chat.completion, or chat.completion.chunk events",
            content(
                (ChatCompletion = "application/json"),
                (String = "text/event-stream"),
            ),
        ),
        (status = 400, description = "{error}: not a request"),
        (status = 402, description = "{error}: the house cannot pay"),
        (status = 404, description = "{error}: no such model"),
        (status = 429, description = "{error}: too much at once"),
    ),
)]
pub(super) async fn chat(
    State(app): State<App>,
    Participant(origin): Participant,
    request: Request,
) -> Result<Response, ApiError> {
    Ok(through(app, origin, Vec::new(), request).await)
}

/// Creates embeddings of texts in the OpenAI format.
#[utoipa::path(
    post, path = "/v1/embeddings",
    request_body(content = EmbeddingsBody, description = "as OpenAI has it"),
    responses(
        (status = 200, description = "a list of embeddings", body = EmbeddingList),
        (status = 400, description = "{error}: not a request"),
        (status = 404, description = "{error}: no such model"),
    ),
)]
pub(super) async fn embeddings(
    State(app): State<App>,
    Participant(origin): Participant,
    request: Request,
) -> Result<Response, ApiError> {
    Ok(through(app, origin, Vec::new(), request).await)
}

/// Returns a model by its name from `GET /v1/models`.
#[utoipa::path(
    get, path = "/v1/models/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "the model", body = ListedModel),
        (status = 404, description = "{error}: no such model"),
    ),
)]
pub(super) async fn model(
    State(app): State<App>,
    Caller(origin): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let known = known(&app).await?;
    Ok(through(app, origin, known, request).await.into_response())
}

/// Converts refusals on the OpenAI routes to the OpenAI format, so that clients show the reason.
pub(super) async fn refuse_in_own_shape(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_own = matches!(path, "/v1/chat/completions" | "/v1/embeddings") || path.starts_with("/v1/models");
    let response = next.run(request).await;
    let Some(said) = response.extensions().get::<Said>().filter(|_| is_own) else { return response };
    let mut refused = error(response.status().as_u16(), &said.detail);
    for name in [header::RETRY_AFTER, header::WWW_AUTHENTICATE] {
        if let Some(value) = response.headers().get(&name) {
            refused.headers_mut().insert(name, value.clone());
        }
    }
    refused
}

/// Returns the known model names.
async fn known(app: &App) -> Result<Vec<String>, ApiError> {
    let mut models = app.neurons.models().names();
    models.extend(app.neurons.list("", LISTED_MAX).await?.into_iter().map(|(id, _)| format!("neuron:{id}")));
    models.extend(app.fascicles.list("", LISTED_MAX).await?.into_iter().map(|(id, _)| format!("fascicle:{id}")));
    Ok(models)
}

/// Lists the models: tiers, providers' models, neurons and fascicles.
#[utoipa::path(
    get, path = "/v1/models",
    responses((status = 200, description = "the models", body = ModelList)),
)]
pub(super) async fn models(
    State(app): State<App>,
    Caller(origin): Caller,
    request: Request,
) -> Result<Response, ApiError> {
    let known = known(&app).await?;
    Ok(through(app, origin, known, request).await.into_response())
}
