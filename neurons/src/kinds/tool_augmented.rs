//! Type 3, tool-augmented: events in, tools on the way, and `finalize_output` to end with JSON.

use serde_json::{Value, json};

use super::base;
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, Step};
use crate::spec::NeuronSpec;

/// The tool by which such a neuron registers a structured output (seed 003 §1.3).
const FINALIZE: &str = "finalize_output";

pub(crate) fn begin(spec: &NeuronSpec, input: &Value) -> Result<Vec<ChatMessage>, NeuronError> {
    super::conversation(spec, input)
}

pub(crate) fn shape(spec: &NeuronSpec, request: &mut ChatRequest) {
    request.tools = super::tools(spec);
    if let Some(schema) = &spec.structured_output {
        let described = "Registers the final output and ends. Call it once, when the work is done.";
        request.tools.push(
            json!({"type": "function", "function": {"name": FINALIZE, "description": described, "parameters": schema}}),
        );
    }
}

/// Registering the output ends the neuron, whatever else it asked for beside it. The output is a
/// string on the wire, so the registered JSON is given as text.
pub(crate) fn step(reply: &ChatReply) -> Step {
    match reply.tool_calls.iter().find(|call| call.function.name == FINALIZE) {
        Some(call) => Step::Completed(Completed { output: Value::String(call.function.arguments.clone()) }),
        None => base::step(reply),
    }
}
