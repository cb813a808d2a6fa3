//! The primitive: one step of a neuron. *Termination* and *continuation* are different types (N1), so code that matches
//! on a step cannot mistake a tool call for a result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::NeuronError;
use crate::kinds::Event;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::spec::NeuronSpec;
use crate::tools::{ArgumentOrigin, Form};

/// The result of a neuron that has completed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completed {
    /// The output: text for base, tool-augmented and completion neurons, JSON for the others.
    pub output: Value,
}

/// The tool calls of a neuron that needs results before it can continue.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCallRequired {
    /// The calls, at least one.
    pub calls: Vec<ToolCall>,
}

/// A tool call. In the wire format `params` is JSON text (seed 003 §6.1.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolCall {
    /// The id of the call; its result refers to it.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The parameters as JSON text.
    pub params: String,
    /// `true` if the call only needs an approval: the server makes it, with exactly these parameters, after the client
    /// sends `{id, approved: true}`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// `true` if the call was made and nobody knows whether it was done: `{id, approved: true}` makes it again under the same
    /// key, `{id, approved: false}` leaves it, and `{id, result}` says that it was done.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsure: bool,
    /// The form that the tool's server asks a person to fill in before the call goes on: `{id, result}` brings the answers as JSON
    /// text, and `{id, approved: false}` declines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Box<Form>>,
    /// The reason why it waits, if it is not the rule of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The origin of each parameter of a call that needs an approval, by its place (JSON Pointer, RFC 6901).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: BTreeMap<String, ArgumentOrigin>,
}

/// The result of a tool call, or the decision about its approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The result: JSON text or any other text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The error message, which is reported to the model. For a refused approval, the reason of the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The decision about a call that needs an approval: `true` approves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
}

/// The interpretation of a model's reply for a neuron.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The neuron has completed.
    Completed(Completed),
    /// The neuron needs the results of tools.
    ToolCallRequired(ToolCallRequired),
    /// The reply did not fit. The neuron sends these messages to the model and asks again, a bounded number of times.
    Again(Vec<ChatMessage>),
}

/// The first step of a neuron.
#[derive(Clone, Debug, PartialEq)]
pub enum FirstStep {
    /// The neuron has completed without a model.
    Completed(Completed),
    /// The opening messages of a conversation.
    Conversation(Vec<ChatMessage>),
    /// The events to route, by a model or by similarity.
    Routing(Vec<Event>),
    /// The events that a model transforms.
    Transforming(Vec<Event>),
}

/// Parses the caller's input. Values that replace the neuron's own are written into `spec`.
///
/// # Errors
/// Returns [`NeuronError::Input`] if the input does not have the form of the neuron's kind.
pub fn begin(spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError> {
    spec.kind.rules().begin(spec, input)
}

/// Returns the request to the model for the conversation so far. `given` are the input events of a transformer.
pub fn request(spec: &NeuronSpec, given: &[Event], messages: &[ChatMessage]) -> ChatRequest {
    let mut request = ChatRequest {
        messages: messages.to_vec(),
        temperature: spec.temperature,
        max_tokens: spec.output_tokens_max,
        ..ChatRequest::default()
    };
    spec.kind.rules().shape(spec, given, &mut request);
    request
}

/// Interprets the model's reply. `given` are the input events of a transformer.
///
/// # Errors
/// Returns [`NeuronError::Output`] for a reply that cannot be interpreted.
pub fn step(spec: &NeuronSpec, given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
    spec.kind.rules().step(spec, given, reply, tries)
}
