//! Type 1, base: a string in, a string out, tools on the way.

use serde_json::Value;

use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, Step, ToolCall, ToolCallRequired};
use crate::spec::NeuronSpec;

pub(crate) fn begin(spec: &NeuronSpec, input: &Value) -> Result<Vec<ChatMessage>, NeuronError> {
    super::conversation(spec, input)
}

pub(crate) fn shape(spec: &NeuronSpec, request: &mut ChatRequest) {
    request.tools = super::tools(spec);
}

pub(crate) fn step(reply: &ChatReply) -> Step {
    if reply.tool_calls.is_empty() {
        return Step::Completed(Completed { output: Value::String(reply.text.clone()) });
    }
    let calls = reply.tool_calls.iter().map(|call| ToolCall {
        id: call.id.clone(),
        name: call.function.name.clone(),
        params: call.function.arguments.clone(),
    });
    Step::ToolCallRequired(ToolCallRequired { calls: calls.collect() })
}
