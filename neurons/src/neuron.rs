//! The primitive: one step of a neuron. *Termination* and *continuation* are different types (N1):
//! whoever matches on a step cannot mistake a tool call for a result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::spec::{Kind, NeuronSpec};
use crate::{NeuronError, kinds};

/// A neuron has ended with a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completed {
    /// Text for base and tool-augmented neurons, JSON for the others.
    pub output: Value,
}

/// A neuron cannot go on until the world has answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallRequired {
    /// What it wants called, at least one.
    pub calls: Vec<ToolCall>,
}

/// One call a neuron asks for. On the wire `params` is JSON text (seed 003 §6.1.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id; the result names it.
    pub id: String,
    /// Which tool.
    pub name: String,
    /// Its parameters as JSON text.
    pub params: String,
}

/// What a call brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// The call it answers.
    pub id: String,
    /// The result; JSON text or any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// What went wrong instead; the model is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a model's reply means for a neuron.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It has ended.
    Completed(Completed),
    /// It needs the world.
    ToolCallRequired(ToolCallRequired),
    /// It was told what was wrong and thinks again; only so many times.
    Again(Vec<ChatMessage>),
}

/// The conversation a neuron begins with.
///
/// # Errors
/// [`NeuronError::Input`] when the input is not of the kind's shape.
pub fn begin(spec: &NeuronSpec, input: &Value) -> Result<Vec<ChatMessage>, NeuronError> {
    match spec.kind {
        Kind::Base => kinds::base::begin(spec, input),
        Kind::StructuredOutput => kinds::structured_output::begin(spec, input),
        Kind::ToolAugmented => kinds::tool_augmented::begin(spec, input),
    }
}

/// What the model is asked, given the conversation so far.
pub fn request(spec: &NeuronSpec, messages: &[ChatMessage]) -> ChatRequest {
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
    }
    request
}

/// What the model's reply means.
///
/// # Errors
/// [`NeuronError::Output`] when it cannot be made sense of.
pub fn step(spec: &NeuronSpec, reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
    match spec.kind {
        Kind::Base => Ok(kinds::base::step(reply)),
        Kind::StructuredOutput => kinds::structured_output::step(spec, reply, tries),
        Kind::ToolAugmented => Ok(kinds::tool_augmented::step(reply)),
    }
}
