//! `LlmProvider` over async-openai with types of our own (`byot`).

use std::sync::Arc;
use std::time::Duration;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_trait::async_trait;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::abilities::{Abilities, CompletionMode, as_completion, prefix_of};
use super::wire::types::{ChatMessage, ChatResponse, EmbeddingRequest, EmbeddingResponse, Texts, WireToolCall};
use super::{ChatReply, ChatRequest, Delta, Endpoint, LlmError, LlmProvider, Usage};

/// A continuation that begins with so much of its own prefix is taken for saying it again.
const ECHO_BYTES_MIN: usize = 16;
/// A stream that says nothing for so long is given up.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A provider that speaks the OpenAI protocol, wherever it runs.
pub struct OpenAi {
    name: Arc<str>,
    client: Client<OpenAIConfig>,
    abilities: Abilities,
}

impl OpenAi {
    /// A provider at `base_url` (without a trailing slash or with) behind `endpoint`.
    ///
    /// # Errors
    /// When the key could not stand in a header.
    pub fn new(name: &str, base_url: &str, key: &str, endpoint: Endpoint) -> Result<Self, LlmError> {
        let key = key.trim();
        // The client would panic on it at the first call.
        if http::HeaderValue::from_str(key).is_err() {
            return Err(LlmError::Unavailable(format!("the key of {name} holds characters no header may have")));
        }
        let config = OpenAIConfig::new().with_api_base(base_url.trim_end_matches('/')).with_api_key(key);
        let client = Client::with_config(config).with_http_service(endpoint);
        Ok(Self { name: name.into(), client, abilities: Abilities::default() })
    }

    /// The same, for a provider that can do more or less than the usual.
    #[must_use]
    pub fn with_abilities(self, abilities: Abilities) -> Self {
        Self { abilities, ..self }
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
        let choice = response.choices.into_iter().next().ok_or_else(|| broken("its answer has no choices"))?;
        let message = choice.message.ok_or_else(|| broken("its answer has no message"))?;
        Ok(ChatReply {
            text: message.content.unwrap_or_default(),
            tool_calls: message.tool_calls.unwrap_or_default(),
            finish: choice.finish_reason.unwrap_or_default(),
            usage: response.usage,
        })
    }

    /// Continues a text at `POST /completions`.
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
        loop {
            let next = tokio::time::timeout(IDLE_MAX, stream.next())
                .await
                .map_err(|_| broken(format!("the stream said nothing for {} s", IDLE_MAX.as_secs())))?;
            let Some(chunk) = next else { break };
            let chunk = chunk.map_err(|error| self.error(error))?;
            if let Some(error) = chunk.error {
                return Err(broken(error["message"].as_str().map_or_else(|| error.to_string(), Into::into)));
            }
            reply.usage = chunk.usage.or(reply.usage);
            let Some(choice) = chunk.choices.into_iter().next() else { continue };
            if let Some(finish) = choice.finish_reason {
                reply.finish = finish;
            }
            if let Some(delta) = choice.delta {
                add(&mut reply, delta, &deltas, &broken).await?;
            }
        }
        // A stream that just ends looks like success to the client library; only a finish reason is one.
        if reply.finish.is_empty() { Err(broken("the stream ended in the middle".into())) } else { Ok(reply) }
    }
}

async fn add(
    reply: &mut ChatReply,
    delta: ChatMessage,
    deltas: &mpsc::Sender<Delta>,
    broken: &impl Fn(String) -> LlmError,
) -> Result<(), LlmError> {
    let gone = |_| broken("whoever was listening went away".into());
    if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
        reply.text.push_str(&text);
        deltas.send(Delta::Text(text)).await.map_err(gone)?;
    }
    for part in delta.tool_calls.into_iter().flatten() {
        let place = part.index.unwrap_or(reply.tool_calls.len());
        let shown = WireToolCall { index: Some(place.min(reply.tool_calls.len())), ..part.clone() };
        deltas.send(Delta::ToolCall(shown)).await.map_err(gone)?;
        match reply.tool_calls.get_mut(place) {
            Some(call) => {
                call.function.name.push_str(&part.function.name);
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

    async fn chat(&self, request: ChatRequest, deltas: Option<mpsc::Sender<Delta>>) -> Result<ChatReply, LlmError> {
        let prefix = prefix_of(&request);
        let request = self.abilities.fit(request);
        let mut reply = match (&prefix, self.abilities.completion, deltas) {
            (Some(_), CompletionMode::Completions, deltas) => {
                let reply = self.continued(request).await?;
                if let Some(deltas) = deltas {
                    let _ = deltas.send(Delta::Text(reply.text.clone())).await;
                }
                reply
            }
            (_, _, Some(deltas)) => self.streamed(request, deltas).await?,
            (_, _, None) => self.whole(request).await?,
        };
        // Some that are asked in words say again what they were to continue.
        let echo = prefix
            .filter(|prefix| prefix.len() >= ECHO_BYTES_MIN && self.abilities.completion == CompletionMode::Instruct);
        if let Some(rest) = echo.and_then(|prefix| reply.text.strip_prefix(&*prefix)) {
            reply.text = rest.to_owned();
        }
        Ok(reply)
    }

    async fn embed(&self, model: &str, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Option<Usage>), LlmError> {
        let wanted = texts.len();
        let request = EmbeddingRequest {
            model: model.to_owned(),
            input: Texts::Many(texts),
            encoding_format: Some("float".into()),
        };
        let response: EmbeddingResponse =
            self.client.embeddings().create_byot(request).await.map_err(|error| self.error(error))?;
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
        let listed: Value = self.client.models().list_byot().await.map_err(|error| self.error(error))?;
        let names = listed["data"].as_array().into_iter().flatten().filter_map(|model| model["id"].as_str());
        Ok(names.map(Into::into).collect())
    }
}
