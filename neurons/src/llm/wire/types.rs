//! The OpenAI chat format as real peers send it: every member that a peer may omit is optional, unknown members are
//! ignored, and no enum is closed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `POST /chat/completions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatRequest {
    /// The model's name at its provider.
    pub model: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub tools: Vec<Value>,
    /// `none`, `auto`, `required`, or one tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// `{type: "json_schema", json_schema: {name, schema, strict}}` or another response format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
    /// The sampling temperature; 0 is greedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The seed, which makes sampling repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The maximum number of output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts that end the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Value>,
    /// `true` if the answer is streamed as server-sent events.
    #[serde(default, deserialize_with = "or_default")]
    pub stream: bool,
    /// Options such as `{include_usage: true}`, which requests the usage in the last event of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<Value>,
    /// Members that this release does not know. They are passed unchanged to a remote provider. An in-process model, a
    /// neuron and a fascicle refuse those that would change the answer: see [`ChatRequest::only_harmless`] and
    /// [`ChatRequest::without_settings`].
    #[serde(flatten)]
    pub extra: serde_json::Map<String, Value>,
    /// `true` if generation stops when the answer repeats itself endlessly. Set for texts that a lifeform writes.
    #[serde(skip)]
    pub ends_repetition: bool,
    /// The participant for whom the call is made. A provider that fails for one participant only is paused for that
    /// participant only.
    #[serde(skip)]
    pub caller: Option<std::sync::Arc<str>>,
}

impl ChatRequest {
    /// Merges the two OpenAI names of one member: `max_completion_tokens` becomes `max_tokens`.
    ///
    /// # Errors
    /// Returns a sentence that names the invalid member.
    pub fn normalized(mut self) -> Result<Self, String> {
        match self.extra.remove("max_completion_tokens") {
            None | Some(Value::Null) => {}
            Some(value) => {
                if self.max_tokens.is_some() {
                    return Err("max_tokens and max_completion_tokens are one bound: send one of them".into());
                }
                let tokens = value.as_u64().and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0);
                self.max_tokens = Some(tokens.ok_or("max_completion_tokens is a number of tokens from 1")?);
            }
        }
        match self.extra.remove("n") {
            None | Some(Value::Null) => {}
            Some(value) if value == 1 => {}
            Some(_) => return Err("n: one answer is given to a request; ask several times for several".into()),
        }
        Ok(self)
    }

    /// Checks that no unknown member would change the answer. Members that state the default behaviour are accepted.
    ///
    /// # Errors
    /// Returns a sentence that names the first other member.
    pub fn only_harmless(&self) -> Result<(), String> {
        let is_harmless = |name: &str, value: &Value| match name {
            "user" | "metadata" | "safety_identifier" | "prompt_cache_key" => true,
            "store" | "logprobs" => *value == false,
            "service_tier" => *value == "auto" || *value == "default",
            "parallel_tool_calls" => *value == true,
            "top_p" => value.as_f64() == Some(1.0),
            "presence_penalty" | "frequency_penalty" => value.as_f64() == Some(0.0),
            "logit_bias" => value.as_object().is_some_and(serde_json::Map::is_empty),
            "modalities" => *value == serde_json::json!(["text"]),
            _ => false,
        };
        match self.extra.iter().find(|(name, value)| !value.is_null() && !is_harmless(name, value)) {
            Some((name, _)) => Err(format!("{name} cannot be done here: leave it out")),
            None => Ok(()),
        }
    }

    /// Checks that a request has messages and leaves the sampling settings to the neuron or fascicle that answers.
    ///
    /// # Errors
    /// Returns a sentence that names the first setting, or reports the missing messages.
    pub fn without_settings(&self) -> Result<(), String> {
        let is_auto = |choice: &Value| *choice == "auto" || *choice == "none" && self.tools.is_empty();
        let is_text = |format: &Value| format["type"] == "text";
        let given = [
            ("temperature", self.temperature.is_some_and(|temperature| temperature != 1.0)),
            ("seed", self.seed.is_some()),
            ("max_tokens", self.max_tokens.is_some()),
            ("stop", self.stop.as_ref().is_some_and(|stop| !stop.is_null() && *stop != serde_json::json!([]))),
            ("tool_choice", self.tool_choice.as_ref().is_some_and(|choice| !choice.is_null() && !is_auto(choice))),
            ("response_format", self.response_format.as_ref().is_some_and(|it| !it.is_null() && !is_text(it))),
        ];
        if let Some((name, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(format!("{name} is the neuron's or fascicle's own: leave it out"));
        }
        if self.messages.is_empty() {
            return Err("messages: there must be at least one".into());
        }
        Ok(())
    }
}

/// The supported members of a message, and the members of an assistant's answer that clients send back.
const OF_MESSAGE: [&str; 14] = [
    "role",
    "content",
    "name",
    "tool_calls",
    "tool_call_id",
    "prefix",
    "refusal",
    "annotations",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking_blocks",
    "provider_specific_fields",
    "parsed",
];

/// The supported roles of messages, and the supported members of content parts.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
const OF_PART: [&str; 7] = ["type", "text", "refusal", "annotations", "cache_control", "id", "index"];

/// Checks that the messages of a request are plain text and contain nothing that would be dropped silently: parts of
/// another type (images, audio, files), unsupported roles and unsupported members.
///
/// # Errors
/// Returns a sentence that names the first unsupported item.
pub fn only_text(request: &Value) -> Result<(), String> {
    let messages = request["messages"].as_array().into_iter().flatten().enumerate();
    for (place, message) in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if !ROLES.contains(&role) {
            return Err(format!("messages[{place}].role is one of {}", ROLES.join(", ")));
        }
        for part in message["content"].as_array().into_iter().flatten() {
            if part.is_string() {
                continue;
            }
            let kind = part["type"].as_str().unwrap_or("text");
            if !matches!(kind, "text" | "refusal") {
                return Err(format!("messages[{place}].content: this endpoint takes text, not a part of type {kind}"));
            }
            if !part[kind].is_string() {
                return Err(format!("messages[{place}].content: a part of type {kind} has a text under {kind}"));
            }
            if let Some(name) = unknown_member(part, &OF_PART) {
                return Err(format!(
                    "messages[{place}].content: {name} of a part is not understood here: leave it out"
                ));
            }
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            if call["type"].as_str().is_some_and(|kind| kind != "function") || !call["function"]["name"].is_string() {
                return Err(format!("messages[{place}].tool_calls: this endpoint takes calls of functions"));
            }
        }
        if let Some(name) = unknown_member(message, &OF_MESSAGE) {
            return Err(format!("messages[{place}].{name} is not understood here: leave it out"));
        }
    }
    Ok(())
}

fn unknown_member<'v>(value: &'v Value, known: &[&str]) -> Option<&'v str> {
    let mut members = value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    members.find(|(name, _)| !known.contains(&name.as_str())).map(|(name, _)| name.as_str())
}

/// Reads null as the default.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// The content; null beside tool calls. A list of text parts is joined to one text.
    #[serde(default, deserialize_with = "content")]
    pub content: Option<String>,
    /// The name of the author, to distinguish several authors in the same role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tool calls of the assistant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<WireToolCall>>,
    /// The id of the tool call that a `tool` message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// `true` if the model continues the text of this last assistant message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<bool>,
}

/// A text, or a list of its parts.
fn content<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        Value::Array(parts) => {
            let said = |part: &Value| -> Option<String> {
                let text = part.as_str().or(part["text"].as_str()).or(part["refusal"].as_str());
                text.map(str::to_owned)
            };
            Some(parts.iter().filter_map(said).collect())
        }
        _ => return Err(serde::de::Error::custom("content is a text or a list of parts")),
    })
}

impl ChatMessage {
    /// Creates a text message.
    pub fn text(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: Some(content.into()), ..Self::default() }
    }
}

/// A tool call on the wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WireToolCall {
    /// The index of the call among parallel calls; only in streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The id; empty in all but the first part of a stream.
    #[serde(default)]
    pub id: String,
    /// Always `function`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// The function that is called.
    #[serde(default)]
    pub function: WireFunction,
}

/// The function of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WireFunction {
    /// The name; empty in all but the first part of a stream.
    #[serde(default)]
    pub name: String,
    /// The arguments as JSON text.
    #[serde(default)]
    pub arguments: String,
}

/// The tokens used by a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenUsage")]
pub struct Usage {
    /// The number of input tokens.
    pub prompt_tokens: u64,
    /// The number of output tokens.
    pub completion_tokens: u64,
    /// The sum of input and output tokens.
    pub total_tokens: u64,
    /// The number of input tokens that the provider read from its prompt cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
}

impl Usage {
    /// Returns the usage to charge: the provider's report, limited to `bound`, the most that the call could use.
    pub fn within(self, bound: Usage) -> Usage {
        let (prompt, completion) = (bound.prompt_tokens, bound.completion_tokens);
        if self.prompt_tokens <= prompt && self.completion_tokens <= completion {
            return self;
        }
        let prompt_tokens = self.prompt_tokens.min(prompt);
        let completion_tokens = self.completion_tokens.min(completion);
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            cached_tokens: self.cached_tokens.min(prompt_tokens),
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// [`Usage`] in the forms that providers send.
#[derive(Deserialize)]
struct WrittenUsage {
    #[serde(default)]
    prompt_tokens: Option<u64>,
    #[serde(default)]
    completion_tokens: Option<u64>,
    #[serde(default)]
    total_tokens: Option<u64>,
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<Value>,
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
}

impl From<WrittenUsage> for Usage {
    fn from(written: WrittenUsage) -> Self {
        let details = written.prompt_tokens_details.as_ref().and_then(|details| details["cached_tokens"].as_u64());
        let prompt_tokens = written.prompt_tokens.unwrap_or_default();
        let completion_tokens = written.completion_tokens.unwrap_or_default();
        let cached = written.cached_tokens.or(details).or(written.prompt_cache_hit_tokens);
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: written.total_tokens.unwrap_or(prompt_tokens.saturating_add(completion_tokens)),
            cached_tokens: cached.unwrap_or_default().min(prompt_tokens),
        }
    }
}

impl Usage {
    /// Returns the sum of two usages.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        let completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
        }
    }
}

/// A response, or one event of a streamed response. The two differ only in `message` and `delta`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ChatResponse {
    /// The provider's id of the response.
    #[serde(default)]
    pub id: String,
    /// `chat.completion` or `chat.completion.chunk`.
    #[serde(default)]
    pub object: String,
    /// The Unix time in seconds.
    #[serde(default)]
    pub created: i64,
    /// The model that answered.
    #[serde(default)]
    pub model: String,
    /// The choices.
    #[serde(default)]
    pub choices: Vec<Choice>,
    /// The usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The error, if a stream failed after its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// One choice.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Choice {
    /// The index.
    #[serde(default)]
    pub index: usize,
    /// The whole message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<ChatMessage>,
    /// The next part of the message, in a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<ChatMessage>,
    /// The reason for the end: `stop`, `length`, `tool_calls`, or a provider's own word.
    #[serde(default)]
    pub finish_reason: Option<String>,
}

/// `POST /completions`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionRequest {
    /// The model's name at its provider.
    pub model: String,
    /// The text to continue.
    pub prompt: String,
    /// The maximum number of output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// The sampling temperature; 0 is greedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The seed, which makes sampling repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Texts that end the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Value>,
}

/// `POST /embeddings`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingRequest {
    /// The model's name at its provider.
    pub model: String,
    /// The texts to embed.
    pub input: Texts,
    /// `float` or `base64`; floats when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding_format: Option<String>,
    /// The number of dimensions; the embedder's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dimensions: Option<usize>,
    /// The end user, for a provider's own records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// One text, or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "input is a text or a list of texts")]
pub enum Texts {
    /// One text.
    One(String),
    /// Several texts.
    Many(Vec<String>),
}

impl Default for Texts {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Texts {
    /// Returns the texts as a list.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// The response to `POST /embeddings`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EmbeddingResponse {
    /// `list`.
    #[serde(default)]
    pub object: String,
    /// The embeddings, one per text.
    #[serde(default)]
    pub data: Vec<Embedding>,
    /// The model that computed the embeddings.
    #[serde(default)]
    pub model: String,
    /// The usage.
    #[serde(default)]
    pub usage: Option<Usage>,
}

/// One embedding.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Embedding {
    /// `embedding`.
    #[serde(default)]
    pub object: String,
    /// The index of the text in the request.
    #[serde(default)]
    pub index: usize,
    /// The vector as numbers, or as little-endian bytes in base64.
    #[serde(default)]
    pub embedding: Value,
}
