//! Conversion of messages to a prompt by the chat template in the model file.

use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::engine::EmbeddedError;
use crate::llm::wire::types::ChatMessage;

/// Renders `messages`. The prompt ends where the assistant's answer starts or is to be continued.
pub(super) fn render(template: &str, eos: &str, messages: &[ChatMessage]) -> Result<String, EmbeddedError> {
    let mut environment = Environment::new();
    // Templates are written for Python and call methods of Python strings.
    environment.set_unknown_method_callback(|_, value, method, arguments| match (value.as_str(), method) {
        (Some(text), "strip") => Ok(text.trim().into()),
        (Some(text), "startswith") => {
            Ok(arguments.first().and_then(Value::as_str).is_some_and(|prefix| text.starts_with(prefix)).into())
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    });
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    let failed = |error: Error| EmbeddedError::Prompt(error.to_string());
    environment.add_template("chat", template).map_err(failed)?;
    // The templates of small models have no role for tool results.
    let (messages, prefix) = match messages.split_last() {
        Some((last, before)) if last.prefix == Some(true) => (before, last.content.as_deref().unwrap_or_default()),
        _ => (messages, ""),
    };
    let shown: Vec<_> = messages
        .iter()
        .map(|message| {
            let calls: Vec<String> = message
                .tool_calls
                .iter()
                .flatten()
                .map(|call| {
                    format!("{{\"name\": \"{}\", \"arguments\": {}}}", call.function.name, call.function.arguments)
                })
                .collect();
            let text = message.content.clone().unwrap_or_default() + &calls.join("\n");
            let role = if message.role == "tool" { "user" } else { &message.role };
            serde_json::json!({"role": role, "content": text})
        })
        .collect();
    let chat = environment.get_template("chat").map_err(failed)?;
    let said = context! { messages => Value::from_serialize(&shown), add_generation_prompt => true, bos_token => "", eos_token => eos };
    Ok(chat.render(said).map_err(failed)? + prefix)
}
