//! The requests and answers of the OpenAI endpoints, as the OpenAPI document describes them.

use neurons::llm::wire::TEXTS_MAX;
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};

/// The body of `/v1/chat/completions`. Other members of OpenAI's API are forwarded to remote models. For other targets,
/// members that would change the answer are refused.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what the door reads")]
pub(super) struct ChatBody {
    /// The target: a tier, a provider's model, `neuron:ID` or `fascicle:ID`.
    model: String,
    /// The conversation.
    #[schema(min_items = 1)]
    messages: Vec<MessageBody>,
    /// The tools of the caller.
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Value>,
    /// The response format: `text`, `json_object` or `json_schema`.
    #[schema(value_type = Option<Object>)]
    response_format: Option<Value>,
    /// `true` for an answer as server-sent events.
    stream: Option<bool>,
    /// The maximum number of tokens in the answer.
    #[schema(minimum = 1)]
    max_tokens: Option<u32>,
    /// The sampling temperature; 0 means greedy decoding.
    #[schema(minimum = 0.0, maximum = 2.0)]
    temperature: Option<f64>,
}

/// A message of a conversation.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what the door reads")]
pub(super) struct MessageBody {
    /// The role: `system`, `user`, `assistant` or `tool`.
    role: String,
    /// The content: a text, or an array of parts.
    content: Option<Value>,
}

/// The body of `/v1/embeddings`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what the door reads")]
pub(super) struct EmbeddingsBody {
    /// The model: `embedder`, or the name of the embedder.
    model: String,
    /// The texts.
    #[schema(schema_with = texts)]
    input: Value,
    /// The encoding of the numbers.
    #[schema(inline)]
    encoding_format: Option<Encoding>,
    /// The number of dimensions. It must equal the embedder's.
    dimensions: Option<usize>,
    /// The end user, for a provider's own records.
    user: Option<String>,
}

/// Returns the schema of one text or several.
fn texts() -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let several = ArrayBuilder::new().items(text()).min_items(Some(1)).max_items(Some(TEXTS_MAX));
    OneOfBuilder::new().item(text()).item(several).into()
}

/// The encoding of numbers.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it only describes what the door reads")]
pub(super) enum Encoding {
    Float,
    Base64,
}

/// A completion in OpenAI's format.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes the format of OpenAI")]
pub(super) struct ChatCompletion {
    /// The unique id.
    id: String,
    /// `chat.completion`.
    object: String,
    /// The time in seconds since 1970.
    created: u64,
    /// The requested model.
    model: String,
    /// One choice: `{index, message, finish_reason}`.
    #[schema(value_type = Vec<Object>)]
    choices: Vec<Value>,
    /// The usage.
    #[schema(value_type = Option<Object>)]
    usage: Option<Value>,
}

/// Embeddings in OpenAI's format.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes the format of OpenAI")]
pub(super) struct EmbeddingList {
    /// `list`.
    object: String,
    /// The embeddings: `{object, index, embedding}`, with an array of numbers or Base64 text.
    #[schema(value_type = Vec<Object>)]
    data: Vec<Value>,
    /// The model.
    model: String,
    /// The usage.
    #[schema(value_type = Object)]
    usage: Value,
}

/// A model in OpenAI's format.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes the format of OpenAI")]
pub(super) struct ListedModel {
    /// The name: a tier, `neuron:{id}` or `fascicle:{id}`.
    id: String,
    /// `model`.
    object: String,
    /// The time in seconds since 1970.
    created: u64,
    /// `lifeformd`.
    owned_by: String,
}

/// The models in OpenAI's format.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes the format of OpenAI")]
pub(super) struct ModelList {
    /// `list`.
    object: String,
    /// The models.
    data: Vec<ListedModel>,
}
