//! The kinds of neurons, a file each. `neuron.rs` holds the `match` that knows them all.

pub(crate) mod base;
pub(crate) mod structured_output;
pub(crate) mod tool_augmented;

use serde_json::{Value, json};

use crate::NeuronError;
use crate::llm::ChatMessage;
use crate::spec::NeuronSpec;

/// `{memory?, events, …}` → the conversation: the neuron's memory, then each event.
fn conversation(spec: &NeuronSpec, input: &Value) -> Result<Vec<ChatMessage>, NeuronError> {
    let wrong = |what: &str| NeuronError::Input(what.to_owned());
    let mut messages = Vec::new();
    let memory = input.get("memory").map_or(Ok(spec.memory.as_str()), |memory| {
        memory.as_str().ok_or_else(|| wrong("input.memory must be a string"))
    })?;
    if !memory.is_empty() {
        messages.push(ChatMessage::text("system", memory));
    }
    match input {
        Value::String(text) => messages.push(ChatMessage::text("user", text)),
        Value::Object(_) => {
            let events = input
                .get("events")
                .and_then(Value::as_array)
                .ok_or_else(|| wrong("input must be a string or {\"events\": [{\"role\", \"content\"}]}"))?;
            for (place, event) in events.iter().enumerate() {
                let next = message(event)
                    .ok_or_else(|| wrong(&format!("input.events[{place}] must have a role and a content")))?;
                match messages.last_mut() {
                    // Many models take one system message only.
                    Some(last) if last.role == "system" && next.role == "system" => {
                        let text = last.content.get_or_insert_default();
                        text.push_str("\n\n");
                        text.push_str(next.content.as_deref().unwrap_or_default());
                    }
                    _ => messages.push(next),
                }
            }
        }
        _ => return Err(wrong("input must be a string or an object with events")),
    }
    Ok(messages)
}

/// An event as a model reads it. Roles a model does not have are said in words.
fn message(event: &Value) -> Option<ChatMessage> {
    let role = event.get("role")?.as_str()?;
    let content = match event.get("content")? {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Some(match role {
        "system" | "user" | "assistant" => ChatMessage::text(role, content),
        other => ChatMessage::text("user", format!("[{other}] {content}")),
    })
}

/// The tools of a neuron as the model is shown them.
fn tools(spec: &NeuronSpec) -> Vec<Value> {
    let described = |tool: &crate::spec::ToolSpec| match tool.run {
        crate::spec::Runner::Kip { .. } if tool.description.is_empty() => {
            (crate::tools::kip::description(), crate::tools::kip::parameters())
        }
        _ => (tool.description.clone(), tool.parameters.clone()),
    };
    spec.tools
        .iter()
        .map(|tool| {
            let (description, parameters) = described(tool);
            json!({"type": "function", "function": {"name": tool.name, "description": description, "parameters": parameters}})
        })
        .collect()
}
