//! Type 1, base: events in, a string out, with tool calls in between.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatReply, ChatRequest, WireToolCall};
use crate::neuron::{Completed, FirstStep, Step, ToolCall, ToolCallRequired};
use crate::spec::NeuronSpec;

/// The input of a base neuron. A string means one event of the user.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = BaseInput)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The memory that replaces the neuron's own; the neuron's own if absent.
    #[serde(default)]
    pub memory: Option<String>,
    /// The input events.
    pub events: Vec<Event>,
}

/// The rules of the kind.
pub(super) struct Base;

impl NeuronKind for Base {
    fn members(&self) -> &'static [&'static str] {
        &["tools"]
    }

    fn begin(&self, spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError> {
        let Input { memory, events } = super::read(input, |events| Input { memory: None, events })?;
        spec.memory = memory.unwrap_or_else(|| std::mem::take(&mut spec.memory));
        Ok(FirstStep::Conversation(super::conversation(&spec.memory, &events)))
    }

    fn shape(&self, spec: &NeuronSpec, _given: &[Event], request: &mut ChatRequest) {
        request.tools = super::tools(spec);
    }

    fn step(&self, _spec: &NeuronSpec, _given: &[Event], reply: &ChatReply, _tries: u32) -> Result<Step, NeuronError> {
        step_of(reply)
    }

    fn output(&self, _spec: &NeuronSpec) -> OutputShape {
        OutputShape::Text
    }
}

/// Returns the step of a reply with text or tool calls.
pub(super) fn step_of(reply: &ChatReply) -> Result<Step, NeuronError> {
    if reply.finish == "content_filter" {
        return Err(NeuronError::Output("the provider's filter held it back".into()));
    }
    if reply.tool_calls.is_empty() && reply.text.is_empty() && reply.finish == "length" {
        return Err(NeuronError::Output("the bound on its output cut it short before it said anything".into()));
    }
    if reply.tool_calls.is_empty() {
        return Ok(Step::Completed(Completed { output: Value::String(reply.text.clone()) }));
    }
    Ok(Step::ToolCallRequired(ToolCallRequired { calls: calls_of(reply) }))
}

/// Returns the tool calls in an answer.
pub(crate) fn calls_of(reply: &ChatReply) -> Vec<ToolCall> {
    let call = |call: &WireToolCall| ToolCall {
        id: call.id.clone(),
        name: call.function.name.clone(),
        params: call.function.arguments.clone(),
        needs_approval: false,
    };
    reply.tool_calls.iter().map(call).collect()
}
