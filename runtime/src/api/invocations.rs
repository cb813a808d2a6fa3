//! `invoke`, `continue`, and `/v1/invocations`. With `Accept: text/event-stream`, the response is a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream};
use neurons::kinds::{base, completion, router, structured_output, tool_augmented, transformer};
use neurons::llm::Delta;
use neurons::neuron::{ToolCall, ToolResult};
use neurons::{Answer, InvocationStatus, InvokeOptions, Invoked, NeuronError, NeuronId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Timestamp;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant};
use super::paging::Limit;

/// The maximum deadline that a caller may set, in seconds.
const DEADLINE_S_MAX: f64 = 600.0;
/// The response header with the id of the invocation.
const INVOCATION: HeaderName = HeaderName::from_static("x-invocation-id");
/// The maximum number of pieces that wait for a slow reader. The model then waits (back-pressure).
const PIECES: usize = 64;

/// A request to a neuron.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InvokeBody {
    /// The input: a string, or the object of the neuron's kind.
    #[schema(value_type = InvokeInput)]
    input: Value,
    /// The deadline in seconds, up to 600.
    #[serde(default)]
    #[schema(exclusive_minimum = 0.0, maximum = 600.0)]
    deadline_s: Option<f64>,
}

/// The input by kind of neuron. A string means one event of the user, or the text to continue.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what the neurons read")]
pub(super) enum InvokeInput {
    Text(String),
    Base(base::Input),
    StructuredOutput(structured_output::Input),
    ToolAugmented(tool_augmented::Input),
    Completion(completion::Input),
    Router(router::Input),
    Transformer(transformer::Input),
}

/// The output by kind of neuron: a string for base, tool-augmented and completion neurons; JSON by a schema, routes, or
/// events for others.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what the neurons write")]
pub(super) enum InvokeOutput {
    Text(String),
    Routes(Vec<router::Route>),
    Events(transformer::Output),
    Json(Value),
}

/// The results of tools.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContinueBody {
    /// The token from the `202` response.
    context_token: String,
    /// A result for each call, in any order: `{id, result}` or `{id, error}`. For a call with `needs_approval`: `{id,
    /// approved}`, or `{id, error}` with the reason for a refusal.
    tool_results: Vec<ToolResult>,
    /// The deadline in seconds, up to 600.
    #[serde(default)]
    #[schema(exclusive_minimum = 0.0, maximum = 600.0)]
    deadline_s: Option<f64>,
}

/// The answer of `invoke` and `continue`.
#[derive(Serialize, ToSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(super) enum InvokeAnswer {
    /// The neuron has ended.
    Completed {
        /// The output.
        #[schema(value_type = InvokeOutput)]
        output: Value,
    },
    /// The neuron waits for tool results from the client.
    ToolCallRequired {
        /// The token of the pause, for `continue`.
        context_token: String,
        /// The calls. The client must approve calls with `needs_approval` and must not make them itself.
        tool_calls: Vec<ToolCall>,
    },
}

fn body_of(answer: Answer) -> InvokeAnswer {
    match answer {
        Answer::Completed(completed) => InvokeAnswer::Completed { output: completed.output },
        Answer::Paused { token, calls } => InvokeAnswer::ToolCallRequired { context_token: token, tool_calls: calls },
    }
}

fn answered(invoked: Invoked) -> Response {
    let status = match invoked.answer {
        Answer::Completed(_) => StatusCode::OK,
        Answer::Paused { .. } => StatusCode::ACCEPTED,
    };
    let id = HeaderValue::from_str(&invoked.id).unwrap_or(HeaderValue::from_static("?"));
    (status, [(INVOCATION, id)], Json(body_of(invoked.answer))).into_response()
}

fn options(key: Option<Arc<str>>, deadline_s: Option<f64>) -> Result<InvokeOptions, ApiError> {
    let deadline = match deadline_s {
        None => None,
        Some(seconds) if seconds > 0.0 && seconds <= DEADLINE_S_MAX => Some(Duration::from_secs_f64(seconds)),
        Some(seconds) => {
            return Err(ApiError::invalid(format!(
                "deadline_s is {seconds}: it must be more than 0 and at most {DEADLINE_S_MAX}"
            )));
        }
    };
    Ok(InvokeOptions { key, deadline, deltas: None })
}

type Answering = Pin<Box<dyn Future<Output = Result<Invoked, NeuronError>> + Send>>;

/// Sends the response as a whole, or as server-sent events on request. Dropping the stream cancels the call.
async fn respond(
    headers: &HeaderMap,
    mut options: InvokeOptions,
    call: impl FnOnce(InvokeOptions) -> Answering,
) -> Result<Response, ApiError> {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepted.contains("text/event-stream") {
        return Ok(answered(call(options).await?));
    }
    let (pieces, inbox) = mpsc::channel(PIECES);
    options.deltas = Some(pieces);
    let frames = frames(inbox, call(options));
    Ok(Sse::new(frames).keep_alive(KeepAlive::default()).into_response())
}

/// The state of a stream of frames.
enum Streaming {
    Open(mpsc::Receiver<Delta>, Answering),
    /// The answer is complete. The remaining pieces are sent before it.
    Answered(mpsc::Receiver<Delta>, Result<Invoked, NeuronError>),
    /// Only the last frame is left.
    Last(Frame),
    Over,
}

fn frames(inbox: mpsc::Receiver<Delta>, call: Answering) -> impl Stream<Item = Result<Frame, Infallible>> {
    stream::unfold(Streaming::Open(inbox, call), |mut standing| async move {
        loop {
            standing = match standing {
                Streaming::Open(mut inbox, mut call) => tokio::select! {
                    biased;
                    Some(delta) = inbox.recv() => return Some((Ok(shown(delta)), Streaming::Open(inbox, call))),
                    answer = &mut call => Streaming::Answered(inbox, answer),
                },
                Streaming::Answered(mut inbox, answer) => match inbox.try_recv() {
                    Ok(delta) => return Some((Ok(shown(delta)), Streaming::Answered(inbox, answer))),
                    Err(_) => match answer {
                        Ok(invoked) => {
                            let usage = frame("usage", &json!(invoked.usage));
                            let mut body = json!(body_of(invoked.answer));
                            body["invocation_id"] = json!(invoked.id);
                            return Some((Ok(usage), Streaming::Last(frame("done", &body))));
                        }
                        Err(error) => Streaming::Last(frame("error", &json!(ApiError::from(error).problem()))),
                    },
                },
                Streaming::Last(frame) => return Some((Ok(frame), Streaming::Over)),
                Streaming::Over => return None,
            };
        }
    })
}

fn frame(event: &str, data: &Value) -> Frame {
    Frame::default().event(event).data(data.to_string())
}

fn shown(delta: Delta) -> Frame {
    match delta {
        Delta::Text(text) => frame("delta", &json!({"text": text})),
        Delta::ToolCall(call) => frame(
            "tool_call_delta",
            &json!({"index": call.index, "id": call.id, "name": call.function.name, "params": call.function.arguments}),
        ),
        Delta::Again => frame("again", &json!({})),
    }
}

/// Invokes a neuron.
///
/// Requests with the same `Idempotency-Key` start one invocation. With `Accept: text/event-stream` the response
/// consists of the events `delta {text}`, `tool_call_delta {index, id, name, params}`, `again` (the text so far was
/// invalid and is withdrawn), `usage`, and `done` with the body of a complete response and `invocation_id`, or `error`
/// with a problem.
#[utoipa::path(
    post, path = "/v1/neurons/{id}/invoke",
    params(("id" = String, Path), IdempotencyKey),
    request_body = InvokeBody,
    responses(
        (status = 200, body = InvokeAnswer, description = "it has ended"),
        (status = 202, body = InvokeAnswer, description = "it waits for tools"),
        (status = 402, description = "the account cannot pay"),
        (status = 409, description = "the same call is under way"),
        (status = 422, description = "the input is not of the kind's shape, or the key was used for another"),
        (status = 503, description = "no model answers"),
        (status = 504, description = "the deadline passed"),
    ),
)]
pub(super) async fn invoke(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<NeuronId>,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiJson(body): ApiJson<InvokeBody>,
) -> Result<Response, ApiError> {
    let options = options(key, body.deadline_s)?;
    let call = move |options| -> Answering {
        Box::pin(async move { app.neurons.invoke(&origin, &id, &body.input, options).await })
    };
    respond(&headers, options, call).await
}

/// Continues a paused invocation.
///
/// The response has the same forms as for `invoke`.
#[utoipa::path(
    post, path = "/v1/neurons/{id}/continue",
    params(("id" = String, Path)),
    request_body = ContinueBody,
    responses(
        (status = 200, body = InvokeAnswer, description = "it has ended"),
        (status = 202, body = InvokeAnswer, description = "it waits again"),
        (status = 404, description = "no paused call has this token"),
        (status = 409, description = "in flight, or cancelled"),
        (status = 410, description = "expired"),
        (status = 422, description = "not the results asked for"),
    ),
)]
pub(super) async fn resume(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<NeuronId>,
    headers: HeaderMap,
    ApiJson(body): ApiJson<ContinueBody>,
) -> Result<Response, ApiError> {
    let options = options(None, body.deadline_s)?;
    let call = move |options| -> Answering {
        Box::pin(async move { app.neurons.resume(&origin, &id, &body.context_token, body.tool_results, options).await })
    };
    respond(&headers, options, call).await
}

/// The record of an invocation.
#[derive(Serialize, ToSchema)]
pub(super) struct InvocationBody {
    /// The id.
    id: String,
    /// The neuron.
    neuron: String,
    /// The status.
    status: InvocationStatus,
    /// The last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<InvokeAnswer>,
    /// The reason for a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The token usage so far: `{prompt_tokens, completion_tokens, total_tokens}`.
    #[schema(value_type = Object)]
    usage: Value,
    /// The number of paid calls so far.
    calls: usize,
    /// The time of creation.
    #[schema(value_type = String)]
    created_at: Timestamp,
    /// The time of the last change.
    #[schema(value_type = String)]
    updated_at: Timestamp,
}

fn known(invocation: neurons::Invocation) -> Json<InvocationBody> {
    Json(InvocationBody {
        id: invocation.id.to_string(),
        neuron: invocation.neuron.to_string(),
        status: invocation.status,
        answer: invocation.answer.map(body_of),
        error: invocation.error,
        usage: json!(invocation.usage),
        calls: invocation.paid_calls,
        created_at: invocation.created_at,
        updated_at: invocation.updated_at,
    })
}

/// A selection of invocations.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Invocations {
    /// The id after which the page starts.
    #[serde(default)]
    after: String,
    /// The maximum number of entries, up to 200.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The status.
    #[serde(default)]
    #[param(inline)]
    status: Option<InvocationStatus>,
}

/// A page of invocations.
#[derive(Serialize, ToSchema)]
pub(super) struct InvocationPage {
    /// The invocations by id.
    invocations: Vec<InvocationBody>,
    /// The `after` of the next page; `null` at the end.
    #[schema(value_type = Option<String>)]
    next: Option<Arc<str>>,
}

/// Lists invocations by id.
///
/// Callers see their own invocations; operators see all. A page can be short although `next` names more.
#[utoipa::path(
    get, path = "/v1/invocations",
    params(Invocations),
    responses((status = 200, description = "a page of invocations", body = InvocationPage)),
)]
pub(super) async fn list(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiQuery(asked): ApiQuery<Invocations>,
) -> Result<Json<InvocationPage>, ApiError> {
    let (found, next) = app.neurons.invocations(&origin, asked.status, &asked.after, asked.limit.0).await?;
    Ok(Json(InvocationPage { invocations: found.into_iter().map(|found| known(found).0).collect(), next }))
}

/// Returns an invocation.
///
/// Only its caller and operators can see it.
#[utoipa::path(
    get, path = "/v1/invocations/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = InvocationBody, description = "how it stands"),
        (status = 404, description = "there is none of yours"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<Arc<str>>,
) -> Result<Json<InvocationBody>, ApiError> {
    Ok(known(app.neurons.invocation(&origin, &id).await?))
}

/// Cancels an invocation and settles its reservation.
///
/// An invocation that has ended stays unchanged.
#[utoipa::path(
    post, path = "/v1/invocations/{id}/cancel",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = InvocationBody, description = "how it stands now"),
        (status = 404, description = "there is none of yours"),
    ),
)]
pub(super) async fn cancel(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<Arc<str>>,
) -> Result<Json<InvocationBody>, ApiError> {
    Ok(known(app.neurons.cancel(&origin, &id).await?))
}
