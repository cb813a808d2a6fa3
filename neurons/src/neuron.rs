//! The primitive: one step of a neuron. *Termination* and *continuation* are different types (N1):
//! whoever matches on a step cannot mistake a tool call for a result.

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
    /// What it wants called, at least one.
    pub calls: Vec<ToolCall>,
}

/// One call a neuron asks for. On the wire `params` is JSON text (seed 003 §6.1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// Its id; the result names it.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// Its parameters as JSON text.
    pub params: String,
    /// Whether the server makes it, with exactly these parameters, once `{id, approved: true}` says that it may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
}

/// What a call brought, or whether it may be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// The call it answers.
    pub id: String,
    /// The result; JSON text or any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What went wrong instead; the model is told. Of a call that needs an approval, why it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of a call that needs an approval, whether it has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
}

/// What a model's reply means for a neuron.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It has ended.
    Completed(Completed),
    /// It needs the world.
    ToolCallRequired(ToolCallRequired),
    /// It is told this about its reply and thinks again; only so many times.
    Again(Vec<ChatMessage>),
}

/// How a neuron begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Begun {
    /// It has ended already: no model is needed.
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

/// What the model is asked, given the conversation so far. `given` are the events that a transformer was given.
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

/// What the model's reply means. `given` are the events that a transformer was given.
///
/// # Errors
/// [`NeuronError::Output`] when it cannot be made sense of.
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
