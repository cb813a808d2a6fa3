//! Type 2, structured output: JSON that fits a schema, or a typed failure; never anything else.

use serde_json::{Value, json};

use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, Step};
use crate::spec::{NeuronSpec, compile};

/// Answers that do not fit before it gives up.
const TRIES_MAX: u32 = 3;

pub(crate) fn begin(spec: &NeuronSpec, input: &Value) -> Result<Vec<ChatMessage>, NeuronError> {
    super::conversation(spec, input)
}

pub(crate) fn shape(spec: &NeuronSpec, request: &mut ChatRequest) {
    request.response_format = Some(
        json!({"type": "json_schema", "json_schema": {"name": "output", "strict": true, "schema": spec.structured_output}}),
    );
}

pub(crate) fn step(spec: &NeuronSpec, reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
    let schema = spec.structured_output.clone().unwrap_or(Value::Bool(true));
    let validator = compile(&schema).map_err(NeuronError::Output)?;
    let wrong = match serde_json::from_str::<Value>(reply.text.trim()) {
        Ok(output) => {
            let wrong =
                validator.iter_errors(&output).next().map(|error| format!("{error} at {}", error.instance_path()));
            match wrong {
                None => return Ok(Step::Completed(Completed { output })),
                Some(wrong) => wrong,
            }
        }
        Err(error) => format!("it is not JSON: {error}"),
    };
    if reply.finish == "length" {
        return Err(NeuronError::Output("the bound on its output cut the JSON short".into()));
    }
    if tries >= TRIES_MAX {
        return Err(NeuronError::Output(format!("{TRIES_MAX} answers did not fit the schema; the last: {wrong}")));
    }
    let repair = format!("That answer does not fit the schema: {wrong}. Answer again with the JSON alone.");
    Ok(Step::Again(vec![ChatMessage::text("assistant", reply.text.clone()), ChatMessage::text("user", repair)]))
}
