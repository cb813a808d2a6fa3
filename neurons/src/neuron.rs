//! The primitive: one step of a neuron. *Termination* and *continuation* are different types (N1): code that matches on
//! a step cannot mistake a tool call for a result.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::kinds::Event;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::spec::{Kind, NeuronSpec};
use crate::{NeuronError, kinds};

/// A neuron has ended with a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completed {
    /// Text for base, tool-augmented and completion neurons, JSON for the others.
    pub output: Value,
}

/// A neuron cannot go on until the world has answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallRequired {
    /// The calls, at least one.
    pub calls: Vec<ToolCall>,
}

/// One call a neuron asks for. On the wire `params` is JSON text (seed 003 §6.1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// The id; the result names it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The parameters as JSON text.
    pub params: String,
    /// `true` if the server makes the call, with exactly these parameters, once `{id, approved: true}` approves it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
}

/// The result of a call, or its approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// The call it answers.
    pub id: String,
    /// The result; JSON text or any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The failure, which is reported to the model; of a call that needs an approval, the reason of a refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of a call that needs an approval, whether it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
}

/// The meaning of a model's reply for a neuron.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The neuron has completed.
    Completed(Completed),
    /// The neuron needs the results of tools.
    ToolCallRequired(ToolCallRequired),
    /// The neuron reports these messages about the reply and asks again, a bounded number of times.
    Again(Vec<ChatMessage>),
}

/// The first step of a neuron.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// The neuron has completed already: no model is needed.
    Completed(Completed),
    /// With a conversation.
    Conversation(Vec<ChatMessage>),
    /// With events to be handed on, by a model or by likeness.
    Routing(Vec<Event>),
    /// With events that a model transforms.
    Transforming(Vec<Event>),
}

/// Takes up what a caller gave: what replaces the neuron's own goes into `spec`.
///
/// # Errors
/// [`NeuronError::Input`] when the input is not of the kind's shape.
pub fn begin(spec: &mut NeuronSpec, input: &Value) -> Result<Begun, NeuronError> {
    Ok(match spec.kind {
        Kind::Base => Begun::Conversation(kinds::base::begin(spec, input)?),
        Kind::StructuredOutput => Begun::Conversation(kinds::structured_output::begin(spec, input)?),
        Kind::ToolAugmented => Begun::Conversation(kinds::tool_augmented::begin(spec, input)?),
        Kind::Completion => Begun::Conversation(kinds::completion::begin(spec, input)?),
        Kind::Router => match kinds::router::take(spec, input)? {
            // Nothing to hand on goes nowhere.
            events if events.is_empty() => Begun::Completed(Completed { output: Value::Array(Vec::new()) }),
            events => Begun::Routing(events),
        },
        Kind::Transformer => {
            let events = kinds::transformer::take(spec, input)?;
            match kinds::transformer::without_a_model(spec, &events)? {
                Some(completed) => Begun::Completed(completed),
                None => Begun::Transforming(events),
            }
        }
    })
}

/// Returns the request to the model, given the conversation so far. `given` are the events of a transformer.
pub fn request(spec: &NeuronSpec, given: &[Event], messages: &[ChatMessage]) -> ChatRequest {
    let mut request = ChatRequest {
        messages: messages.to_vec(),
        temperature: spec.temperature,
        max_tokens: spec.output_tokens_max,
        ..ChatRequest::default()
    };
    match spec.kind {
        Kind::Base => kinds::base::shape(spec, &mut request),
        Kind::StructuredOutput => kinds::structured_output::shape(spec, &mut request),
        Kind::ToolAugmented => kinds::tool_augmented::shape(spec, &mut request),
        Kind::Completion => kinds::completion::shape(spec, &mut request),
        Kind::Router => kinds::router::shape(spec, &mut request),
        Kind::Transformer => kinds::transformer::shape(spec, given, &mut request),
    }
    request
}

/// Judges the model's reply. `given` are the events of a transformer.
///
/// # Errors
/// [`NeuronError::Output`] for a reply without a meaning.
pub fn step(spec: &NeuronSpec, given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
    match spec.kind {
        Kind::Base => kinds::base::step(reply),
        Kind::StructuredOutput => kinds::structured_output::step(spec, reply, tries),
        Kind::ToolAugmented => kinds::tool_augmented::step(spec, reply, tries),
        Kind::Completion => Ok(kinds::completion::step(spec, reply)),
        Kind::Router => kinds::router::step(spec, reply, tries),
        Kind::Transformer => kinds::transformer::step(spec, given, reply, tries),
    }
}
