//! Type 1, base: events in, a string out, with tool calls in between.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::printed_call::printed_call;
use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest, WireToolCall};
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

    fn step(&self, spec: &NeuronSpec, _given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
        step_of(spec, reply, tries)
    }

    fn output(&self, _spec: &NeuronSpec) -> OutputShape {
        OutputShape::Text
    }
}

/// The number of printed tool calls after which the neuron fails.
const PRINTED_MAX: u32 = 3;

/// Returns the step of a reply with text or tool calls. A tool call that the model printed as text is rejected, and the
/// model is asked again.
pub(super) fn step_of(spec: &NeuronSpec, reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
    if reply.finish == "content_filter" {
        return Err(NeuronError::Output("the provider's filter held it back".into()));
    }
    if reply.tool_calls.is_empty() && reply.text.is_empty() && reply.finish == "length" {
        return Err(NeuronError::Output("the bound on its output cut it short before it said anything".into()));
    }
    if reply.tool_calls.is_empty() {
        if let Some(tool) = printed_call(&reply.text, &spec.tools) {
            if tries >= PRINTED_MAX {
                return Err(NeuronError::Output(format!("it printed calls of {tool} instead of making them")));
            }
            let why = format!(
                "That was the text of a call of {tool}, and nothing was called. Call the tool, or answer in words."
            );
            return Ok(Step::Again(vec![ChatMessage::text("user", why)]));
        }
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
        ..ToolCall::default()
    };
    reply.tool_calls.iter().map(call).collect()
}
