//! `LlmProvider` on async-openai, with request and response types of this crate (feature `byot`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_trait::async_trait;
use futures::StreamExt;
use serde_json::{Value, json};
use store::{Turn, Wants};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::time::Instant;

use super::abilities::{Abilities, CompletionMode, as_completion, prefix_of};
use super::breaker::{Breaker, Trial};
use super::endpoint::{CALL, Call};
use super::wire::types::{ChatMessage, ChatResponse, EmbeddingRequest, EmbeddingResponse, Texts, WireToolCall};
use super::{ChatReply, ChatRequest, Class, Delta, Endpoint, LlmError, LlmProvider, Usage, repetition};

/// The number of bytes of an answer between two checks for endless repetition.
const REPETITION_EVERY: usize = 64;
/// The time to wait for the provider's usage report after an answer was stopped for endless repetition.
const USAGE_WITHIN: Duration = Duration::from_secs(10);
/// The minimum overlap in bytes from which a continuation that starts with its own prefix counts as an echo.
const ECHO_BYTES_MIN: usize = 16;
/// The limits of an answer's size: the bytes per requested token, and the bytes of an answer without a token limit.
const TOKEN_BYTES_MAX: usize = 64;
const ANSWER_BYTES_MIN: usize = 64 << 10;
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// The limits of other answers: the bytes per embedding, and the bytes of everything else.
const EMBEDDING_BYTES_MAX: usize = 256 << 10;
const LIST_BYTES_MAX: usize = 4 << 20;
/// The number of stream parts that an answer may have in addition to four per requested token.
const CHUNKS_MIN: usize = 64;
/// The maximum silence of a stream, after which the call fails.
const IDLE: Duration = Duration::from_secs(60);
/// The maximum time of a streamed answer. A provider that sends a piece now and then is never silent, and holds a turn.
const WHOLE: Duration = Duration::from_secs(30 * 60);
/// The maximum time that a subscriber may take to accept a part, after which the call ends.
pub(crate) const LISTENER_MAX: Duration = Duration::from_secs(30);

/// A provider with the OpenAI protocol, remote or in this process.
pub struct OpenAi {
    name: Arc<str>,
    client: Client<OpenAIConfig>,
    endpoint: Endpoint,
    abilities: Abilities,
    /// The maximum silence of a stream.
    idle: Duration,
    /// The maximum time of a streamed answer.
    whole: Duration,
    /// The circuit breakers by model.
    breakers: Mutex<HashMap<String, Breaker>>,
}

impl OpenAi {
    /// Creates a provider at `base_url`, with or without a trailing slash, behind `endpoint`.
    ///
    /// # Errors
    /// Returns an error if the key is no valid HTTP header value.
    pub fn new(name: &str, base_url: &str, key: &str, endpoint: Endpoint) -> Result<Self, LlmError> {
        let key = key.trim();
        // The client library would panic at the first call with such a key.
        if http::HeaderValue::from_str(key).is_err() {
            return Err(LlmError::Unavailable(format!("the key of {name} holds characters no header may have")));
        }
        let config = OpenAIConfig::new().with_api_base(base_url.trim_end_matches('/')).with_api_key(key);
        let client = Client::with_config(config).with_http_service(endpoint.clone());
        Ok(Self {
            name: name.into(),
            client,
            endpoint,
            abilities: Abilities::default(),
            idle: IDLE,
            whole: WHOLE,
            breakers: Mutex::default(),
        })
    }

    /// Sets the abilities of the provider.
    #[must_use]
    pub fn with_abilities(self, abilities: Abilities) -> Self {
        Self { abilities, ..self }
    }

    /// Sets the maximum silence of a stream.
    #[must_use]
    pub fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Sets the maximum time of a streamed answer.
    #[must_use]
    pub fn with_whole(self, whole: Duration) -> Self {
        Self { whole, ..self }
    }

    fn breakers(&self) -> MutexGuard<'_, HashMap<String, Breaker>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call of `model` unless its circuit breaker is open, and records the outcome.
    async fn guarded<T>(
        &self,
        model: &str,
        caller: Option<&Arc<str>>,
        call: impl Future<Output = Result<T, LlmError>>,
    ) -> Result<T, LlmError> {
        let (admitted, is_parked) = {
            let mut breakers = self.breakers();
            let breaker = breakers.entry(model.to_owned()).or_default();
            (breaker.admit(caller, Instant::now()), breaker.is_parked())
        };
        let is_trial = *admitted.as_ref().unwrap_or(&false);
        if let Err((left, why)) = admitted {
            let (provider, message) =
                (self.name.to_string(), format!("it is left alone after failures; the last: {why}"));
            return Err(match is_parked {
                true => LlmError::Exhausted { provider, message },
                false => LlmError::Busy { provider, message, retry_after: Some(left) },
            });
        }
        let trial = is_trial.then(|| Trial { breakers: &self.breakers, model });
        let came = call.await;
        std::mem::forget(trial);
        let mut breakers = self.breakers();
        breakers.entry(model.to_owned()).or_default().note(came.as_ref().map(|_| ()), caller, is_trial, Instant::now());
        came
    }

    fn error(&self, error: OpenAIError) -> LlmError {
        let broken = |message: String| LlmError::Broken { provider: self.name.to_string(), message };
        match error {
            OpenAIError::Boxed(inner) => match inner.downcast::<LlmError>() {
                Ok(ours) => *ours,
                Err(other) => broken(other.to_string()),
            },
            OpenAIError::JSONDeserialize(error, _) => {
                broken(format!("its answer is not of the expected shape: {error}"))
            }
            other => broken(other.to_string()),
        }
    }

    async fn whole(&self, request: ChatRequest) -> Result<ChatReply, LlmError> {
        let response: ChatResponse =
            self.client.chat().create_byot(request).await.map_err(|error| self.error(error))?;
        let broken = |message: &str| LlmError::Broken { provider: self.name.to_string(), message: message.into() };
        if let Some(error) = response.error.filter(|error| !error.is_null()) {
            return Err(broken(error["message"].as_str().unwrap_or("its answer is an error")));
        }
        let choice = response.choices.into_iter().next().ok_or_else(|| broken("its answer has no choices"))?;
        let message = choice.message.ok_or_else(|| broken("its answer has no message"))?;
        Ok(ChatReply {
            text: message.content.unwrap_or_default(),
            tool_calls: message.tool_calls.unwrap_or_default(),
            finish: choice.finish_reason.unwrap_or_default(),
            usage: response.usage,
        })
    }

    /// Continues a text with `POST /completions`.
    async fn continued(&self, request: ChatRequest) -> Result<ChatReply, LlmError> {
        let request = as_completion(request);
        let response: Value =
            self.client.completions().create_byot(request).await.map_err(|error| self.error(error))?;
        let choice = &response["choices"][0];
        let text = choice["text"].as_str().ok_or_else(|| LlmError::Broken {
            provider: self.name.to_string(),
            message: "its completion has no text".into(),
        })?;
        Ok(ChatReply {
            text: text.to_owned(),
            finish: choice["finish_reason"].as_str().unwrap_or_default().to_owned(),
            usage: serde_json::from_value(response["usage"].clone()).ok(),
            ..ChatReply::default()
        })
    }

    async fn streamed(&self, mut request: ChatRequest, deltas: mpsc::Sender<Delta>) -> Result<ChatReply, LlmError> {
        let bytes_max = answer_bytes_max(&request);
        let request_tokens = request.max_tokens;
        let (ends_repetition, mut looked_at, mut stopped_at) = (request.ends_repetition, 0, None);
        request.stream = true;
        request.stream_options = Some(json!({"include_usage": true}));
        let broken = |message: String| LlmError::Broken { provider: self.name.to_string(), message };
        let mut stream = self
            .client
            .chat()
            .create_stream_byot::<_, ChatResponse>(request)
            .await
            .map_err(|error| self.error(error))?;
        let mut reply = ChatReply::default();
        // A part has one or more tokens. A provider that sends more parts than the token limit allows has its stream
        // ended.
        let chunks_max = request_tokens.map_or(usize::MAX, |tokens| CHUNKS_MIN + 4 * tokens as usize);
        let (mut chunks, begun) = (0, Instant::now());
        loop {
            chunks += 1;
            if chunks > chunks_max {
                return Err(broken(format!(
                    "its answer came in more than {chunks_max} pieces, and it was to stop before"
                )));
            }
            let patience = if stopped_at.is_some() { USAGE_WITHIN.min(self.idle) } else { self.idle };
            let left = self.whole.saturating_sub(begun.elapsed());
            let next = match tokio::time::timeout(patience.min(left), stream.next()).await {
                Ok(next) => next,
                Err(_) if stopped_at.is_some() => break,
                Err(_) if left < patience => {
                    return Err(broken(format!("its answer took longer than {} s", self.whole.as_secs_f32())));
                }
                Err(_) => {
                    return Err(broken(format!("the stream said nothing for {} s", self.idle.as_secs_f32())));
                }
            };
            let Some(chunk) = next else { break };
            if stopped_at.is_some_and(|at: Instant| at.elapsed() > USAGE_WITHIN) {
                break;
            }
            let chunk = match chunk {
                Err(_) if stopped_at.is_some() => break,
                chunk => chunk.map_err(|error| self.error(error))?,
            };
            if let Some(error) = chunk.error {
                return Err(broken(error["message"].as_str().map_or_else(|| error.to_string(), Into::into)));
            }
            reply.usage = chunk.usage.or(reply.usage);
            let Some(choice) = chunk.choices.into_iter().next() else { continue };
            if let Some(finish) = choice.finish_reason.filter(|_| stopped_at.is_none()) {
                reply.finish = finish;
            }
            if let Some(delta) = choice.delta.filter(|_| stopped_at.is_none()) {
                add(&mut reply, delta, &deltas, &self.name).await?;
                // An answer that exceeds its size limit is not kept.
                let arguments: usize = reply.tool_calls.iter().map(|call| call.function.arguments.len()).sum();
                if ends_repetition && reply.text.len() >= looked_at + REPETITION_EVERY {
                    looked_at = reply.text.len();
                    if let Some(once) = repetition::without(&reply.text) {
                        // The repeated text is not forwarded, but the usage report is still awaited.
                        reply.text.truncate(once);
                        reply.finish = "stop".into();
                        stopped_at = Some(Instant::now());
                    }
                }
                if reply.text.len() + arguments > bytes_max {
                    return Err(broken(format!(
                        "its answer is longer than {bytes_max} bytes, and it was to stop before"
                    )));
                }
            }
        }
        // The client library treats a stream that merely ends as a success; only a finish reason marks success.
        if reply.finish.is_empty() { Err(broken("the stream ended in the middle".into())) } else { Ok(reply) }
    }
}

/// Returns the maximum size of an answer in bytes, by the tokens that were asked for.
fn answer_bytes_max(request: &ChatRequest) -> usize {
    request
        .max_tokens
        .map_or(ANSWER_BYTES_MAX, |tokens| ANSWER_BYTES_MAX.min(ANSWER_BYTES_MIN + tokens as usize * TOKEN_BYTES_MAX))
}

/// Returns the maximum size of the body of an answer that is not streamed. It has room for what a provider says besides
/// the text, such as its thoughts.
fn body_bytes_max(request: &ChatRequest) -> usize {
    3 * answer_bytes_max(request)
}

fn unheard(provider: &str, message: &str) -> LlmError {
    LlmError::Unheard { provider: provider.into(), message: message.into() }
}

async fn add(
    reply: &mut ChatReply,
    delta: ChatMessage,
    deltas: &mpsc::Sender<Delta>,
    provider: &str,
) -> Result<(), LlmError> {
    let gone = |error: SendTimeoutError<Delta>| match error {
        SendTimeoutError::Timeout(_) => unheard(provider, "whoever was listening took nothing for too long"),
        SendTimeoutError::Closed(_) => unheard(provider, "whoever was listening went away"),
    };
    if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
        reply.text.push_str(&text);
        deltas.send_timeout(Delta::Text(text), LISTENER_MAX).await.map_err(gone)?;
    }
    for part in delta.tool_calls.into_iter().flatten() {
        let place = part.index.unwrap_or(reply.tool_calls.len());
        let shown = WireToolCall { index: Some(place.min(reply.tool_calls.len())), ..part.clone() };
        deltas.send_timeout(Delta::ToolCall(shown), LISTENER_MAX).await.map_err(gone)?;
        match reply.tool_calls.get_mut(place) {
            Some(call) => {
                // Some providers repeat the name in every part.
                if call.function.name != part.function.name {
                    call.function.name.push_str(&part.function.name);
                }
                call.function.arguments.push_str(&part.function.arguments);
            }
            None => reply.tool_calls.push(WireToolCall { index: None, ..part }),
        }
    }
    Ok(())
}

#[async_trait]
impl LlmProvider for OpenAi {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_failing(&self, model: &str) -> bool {
        self.breakers().get(model).is_some_and(Breaker::is_failing)
    }

    async fn turn(&self, bytes: usize, wants: Wants<Class>) -> Result<Option<Turn<Class>>, LlmError> {
        self.endpoint.turn(bytes, wants).await.map(Some)
    }

    async fn chat(&self, request: ChatRequest, deltas: Option<mpsc::Sender<Delta>>) -> Result<ChatReply, LlmError> {
        let prefix = prefix_of(&request);
        let request = self.abilities.fit(request);
        let ends_repetition = request.ends_repetition;
        let (model, caller) = (request.model.clone(), request.caller.clone());
        let of = Call { caller: caller.clone(), bytes_max: deltas.is_none().then(|| body_bytes_max(&request)) };
        let call = CALL.scope(of, async {
            match (&prefix, self.abilities.completion, deltas) {
                (Some(_), CompletionMode::Completions, deltas) => {
                    let reply = self.continued(request).await?;
                    if let Some(deltas) = deltas {
                        let _ = deltas.send_timeout(Delta::Text(reply.text.clone()), LISTENER_MAX).await;
                    }
                    Ok(reply)
                }
                (_, _, Some(deltas)) => self.streamed(request, deltas).await,
                (_, _, None) => self.whole(request).await,
            }
        });
        let mut reply = self.guarded(&model, caller.as_ref(), call).await?;
        // Some chat models that are asked in words repeat the text that they should continue.
        let echo = prefix
            .filter(|prefix| prefix.len() >= ECHO_BYTES_MIN && self.abilities.completion == CompletionMode::Instruct);
        if let Some(rest) = echo.and_then(|prefix| reply.text.strip_prefix(&*prefix)) {
            reply.text = rest.to_owned();
        }
        if let Some(once) = repetition::without(&reply.text).filter(|_| ends_repetition) {
            reply.text.truncate(once);
        }
        Ok(reply)
    }

    async fn embed(&self, model: &str, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Option<Usage>), LlmError> {
        let wanted = texts.len();
        let request = EmbeddingRequest {
            model: model.to_owned(),
            input: Texts::Many(texts),
            encoding_format: Some("float".into()),
            dimensions: None,
            user: None,
        };
        let of =
            Call { bytes_max: Some(wanted.saturating_mul(EMBEDDING_BYTES_MAX) + LIST_BYTES_MAX), ..Call::default() };
        let call = async { self.client.embeddings().create_byot(request).await.map_err(|error| self.error(error)) };
        let response: EmbeddingResponse = self.guarded(model, None, CALL.scope(of, call)).await?;
        let broken = |message: String| LlmError::Broken { provider: self.name.to_string(), message };
        let mut vectors: Vec<Vec<f32>> = vec![Vec::new(); wanted];
        for embedding in response.data {
            let vector = serde_json::from_value(embedding.embedding)
                .map_err(|error| broken(format!("an embedding is not a list of numbers: {error}")))?;
            *vectors.get_mut(embedding.index).ok_or_else(|| broken("it answered more than was asked".into()))? = vector;
        }
        let length = vectors.first().map_or(0, Vec::len);
        if length == 0 || vectors.iter().any(|vector| vector.len() != length) {
            return Err(broken("it did not answer an embedding of one length for every text".into()));
        }
        Ok((vectors, response.usage))
    }

    async fn models(&self) -> Result<Vec<String>, LlmError> {
        let of = Call { bytes_max: Some(LIST_BYTES_MAX), ..Call::default() };
        let listed: Result<Value, _> = CALL.scope(of, self.client.models().list_byot()).await;
        let listed = listed.map_err(|error| self.error(error))?;
        let names = listed["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str());
        Ok(names.map(Into::into).collect())
    }
}
