//! The abilities of a provider, and the adaptation of requests to a provider that lacks some.

use serde::Deserialize;
use serde_json::json;

use super::wire::types::CompletionRequest;
use super::{ChatMessage, ChatRequest};

/// The abilities of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Abilities {
    /// The method for JSON output.
    pub json: JsonMode,
    /// The method to continue a text.
    pub completion: CompletionMode,
    /// `true` if its models call tools reliably (default). It does not count for a model that is marked `small`.
    pub tools: bool,
}

impl Default for Abilities {
    fn default() -> Self {
        Self { json: JsonMode::default(), completion: CompletionMode::default(), tools: true }
    }
}

/// The method to make a provider answer in JSON. In each case the output is checked, and faults are reported to the
/// model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonMode {
    /// `response_format: json_schema`.
    #[default]
    Schema,
    /// `response_format: json_object`, with the schema in the prompt.
    Object,
    /// Only an instruction in the prompt.
    Prompt,
}

/// The method to make a provider continue a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionMode {
    /// An instruction in words, which any chat model understands.
    #[default]
    Instruct,
    /// A last assistant message with the mark `prefix`.
    Prefix,
    /// A request to `POST /completions`.
    Completions,
}

impl Abilities {
    /// The abilities of an embedded model.
    pub const LOCAL: Self = Self { json: JsonMode::Schema, completion: CompletionMode::Prefix, tools: false };

    /// Adapts a request to this provider.
    pub(super) fn fit(self, mut request: ChatRequest) -> ChatRequest {
        let schema = request.response_format.as_ref().filter(|format| format["type"] == "json_schema");
        if let Some(schema) = schema.map(|format| format["json_schema"]["schema"].clone())
            && self.json != JsonMode::Schema
        {
            instruct(
                &mut request,
                &format!("Answer with JSON alone, without words around it, of this JSON Schema: {schema}"),
            );
            request.response_format = (self.json == JsonMode::Object).then(|| json!({"type": "json_object"}));
        }
        if self.completion == CompletionMode::Instruct
            && let Some(prefix) = prefix_of(&request)
        {
            request.messages.pop();
            let asked = format!(
                "Continue this text exactly where it ends. Answer with the continuation alone: do not repeat the text, do not explain.\n\n{prefix}"
            );
            request.messages.push(ChatMessage::text("user", asked));
        }
        request
    }
}

/// Returns the text that a request asks to continue; `None` for other requests.
pub(super) fn prefix_of(request: &ChatRequest) -> Option<String> {
    let last = request.messages.last().filter(|last| last.prefix == Some(true))?;
    Some(last.content.clone().unwrap_or_default())
}

/// Converts a request that continues a text to one for `POST /completions`, with plain text as the prompt.
pub(super) fn as_completion(request: ChatRequest) -> CompletionRequest {
    let texts: Vec<&str> = request.messages.iter().filter_map(|message| message.content.as_deref()).collect();
    let prompt = texts.join("\n\n");
    let ChatRequest { model, max_tokens, temperature, seed, stop, .. } = request;
    CompletionRequest { model, prompt, max_tokens, temperature, seed, stop }
}

fn instruct(request: &mut ChatRequest, instruction: &str) {
    match request.messages.first_mut() {
        Some(first) if first.role == "system" => {
            let text = first.content.get_or_insert_default();
            text.push_str("\n\n");
            text.push_str(instruction);
        }
        _ => request.messages.insert(0, ChatMessage::text("system", instruction)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> ChatRequest {
        ChatRequest {
            messages: vec![ChatMessage::text("system", "Be brief."), ChatMessage::text("user", "Who?")],
            response_format: Some(
                json!({"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}}),
            ),
            ..ChatRequest::default()
        }
    }

    #[test]
    fn a_schema_goes_where_the_provider_looks_for_it() {
        let by = |json| Abilities { json, ..Abilities::default() }.fit(request());
        assert_eq!(by(JsonMode::Schema), request());
        let object = by(JsonMode::Object);
        assert_eq!(object.response_format, Some(json!({"type": "json_object"})));
        assert!(object.messages[0].content.as_deref().unwrap().ends_with(r#"{"type":"object"}"#));
        let prompt = by(JsonMode::Prompt);
        assert_eq!((prompt.response_format, prompt.messages.len()), (None, 2));
    }

    #[test]
    fn a_text_is_continued_as_the_provider_can() {
        let mut wanted = request();
        wanted.response_format = None;
        wanted.messages.push(ChatMessage { prefix: Some(true), ..ChatMessage::text("assistant", "fn main") });
        let by = |completion| Abilities { completion, ..Abilities::default() }.fit(wanted.clone());
        assert_eq!(by(CompletionMode::Prefix), wanted);
        let asked = by(CompletionMode::Instruct).messages.pop().unwrap();
        assert!(asked.role == "user" && asked.content.unwrap().ends_with("fn main") && asked.prefix.is_none());
        wanted.stop = Some(json!(["}"]));
        let asked = as_completion(wanted);
        assert_eq!((&*asked.prompt, asked.stop), ("Be brief.\n\nWho?\n\nfn main", Some(json!(["}"]))));
    }
}
