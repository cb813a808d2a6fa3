//! Type 4, completion: continues a text from the end of its prefix to a stop text. It calls no tools.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, FirstStep, Step};
use crate::spec::NeuronSpec;

/// The input of a completion neuron. A string means the prefix.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = CompletionInput)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The memory that replaces the neuron's own; the neuron's own if absent.
    #[serde(default)]
    pub memory: Option<String>,
    /// The context, such as the file around the prefix.
    #[serde(default)]
    pub events: Vec<Event>,
    /// The text to continue.
    #[serde(default, alias = "prefixMessage")]
    pub prefix_message: String,
    /// The texts that end the continuation, in addition to the neuron's own. They are not part of the output.
    #[serde(default)]
    pub stop: Stop,
}

/// One stop text, or several.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "stop is a text or a list of texts")]
pub enum Stop {
    /// One stop text.
    One(String),
    /// Several stop texts.
    Many(Vec<String>),
}

impl Default for Stop {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// The rules of the kind.
pub(super) struct Completion;

impl NeuronKind for Completion {
    fn members(&self) -> &'static [&'static str] {
        &["stop"]
    }

    fn begin(&self, spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError> {
        let input = match input {
            Value::String(prefix) => Input { prefix_message: prefix.clone(), ..Input::default() },
            other => super::read(other, |events| Input { events, ..Input::default() })?,
        };
        if input.prefix_message.is_empty() && input.events.is_empty() {
            return Err(NeuronError::Input("input.prefix_message: there is nothing to continue".into()));
        }
        spec.memory = input.memory.unwrap_or_else(|| std::mem::take(&mut spec.memory));
        spec.stop.extend(match input.stop {
            Stop::One(stop) => vec![stop],
            Stop::Many(stops) => stops,
        });
        spec.check().map_err(|error| NeuronError::Input(format!("input.{error}")))?;
        let memory = if spec.memory.is_empty() { "You continue texts." } else { &spec.memory };
        let mut messages = super::conversation(memory, &input.events);
        messages.push(ChatMessage { prefix: Some(true), ..ChatMessage::text("assistant", input.prefix_message) });
        Ok(FirstStep::Conversation(messages))
    }

    fn shape(&self, spec: &NeuronSpec, _given: &[Event], request: &mut ChatRequest) {
        request.stop = (!spec.stop.is_empty()).then(|| spec.stop.clone().into());
    }

    /// Completes with the continuation up to the first stop text, even if the provider did not stop there.
    fn step(&self, spec: &NeuronSpec, _given: &[Event], reply: &ChatReply, _tries: u32) -> Result<Step, NeuronError> {
        let ends = spec.stop.iter().filter_map(|stop| reply.text.find(stop.as_str()));
        let text = &reply.text[..ends.min().unwrap_or(reply.text.len())];
        Ok(Step::Completed(Completed { output: Value::String(text.to_owned()) }))
    }

    fn output(&self, _spec: &NeuronSpec) -> OutputShape {
        OutputShape::Text
    }

    fn input_of(&self, events: &[store::Event]) -> Value {
        let texts: Vec<String> = events.iter().map(store::Event::as_text).collect();
        json!({"prefix_message": texts.join("\n")})
    }

    fn input_of_chat(&self, messages: &[ChatMessage]) -> Value {
        messages.last().and_then(|last| last.content.clone()).unwrap_or_default().into()
    }
}
