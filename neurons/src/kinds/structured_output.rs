//! Type 2, structured output: the output is JSON that fits a schema, or a typed failure.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, FirstStep, Step};
use crate::spec::{NeuronSpec, check_schema, compile};

/// The input of a structured-output neuron. A string means one event of the user.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = StructuredOutputInput)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The memory that replaces the neuron's own; the neuron's own if absent.
    #[serde(default)]
    pub memory: Option<String>,
    /// The input events.
    pub events: Vec<Event>,
    /// The JSON Schema of the output, which replaces the neuron's own; the neuron's own if absent.
    #[serde(default, alias = "structuredOutput")]
    pub structured_output: Option<Value>,
}

/// The number of answers that do not fit after which the neuron fails.
const TRIES_MAX: u32 = 3;
/// The most faults of one answer that are reported to the model.
const FAULTS_MAX: usize = 5;

/// The rules of the kind.
pub(super) struct StructuredOutput;

impl NeuronKind for StructuredOutput {
    fn members(&self) -> &'static [&'static str] {
        &["structured_output"]
    }

    fn begin(&self, spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError> {
        let Input { memory, events, structured_output } =
            super::read(input, |events| Input { memory: None, events, structured_output: None })?;
        spec.memory = memory.unwrap_or_else(|| std::mem::take(&mut spec.memory));
        if let Some(schema) = structured_output {
            check_schema(&schema).map_err(|error| NeuronError::Input(format!("input.structured_output: {error}")))?;
            spec.structured_output = Some(schema);
        }
        if spec.structured_output.is_none() {
            return Err(NeuronError::Input(
                "input.structured_output: neither the input nor the neuron has a schema".into(),
            ));
        }
        Ok(FirstStep::Conversation(super::conversation(&spec.memory, &events)))
    }

    fn shape(&self, spec: &NeuronSpec, _given: &[Event], request: &mut ChatRequest) {
        request.response_format = Some(super::format_of(spec.structured_output.as_ref().unwrap_or(&Value::Bool(true))));
    }

    fn step(&self, spec: &NeuronSpec, _given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
        let schema = spec.structured_output.as_ref().unwrap_or(&Value::Bool(true));
        fitting(schema, reply, tries, |output| Ok(Completed { output }))
    }

    fn output(&self, spec: &NeuronSpec) -> OutputShape {
        OutputShape::Json(spec.structured_output.clone().unwrap_or(Value::Bool(true)))
    }
}

/// Evaluates a JSON reply: completes with the output of `then`, reports the faults and asks again, or fails.
pub(super) fn fitting(
    schema: &Value,
    reply: &ChatReply,
    tries: u32,
    then: impl FnOnce(Value) -> Result<Completed, String>,
) -> Result<Step, NeuronError> {
    let wrong = match read(schema, &reply.text)?.and_then(then) {
        Ok(completed) => return Ok(Step::Completed(completed)),
        Err(wrong) => wrong,
    };
    if reply.finish == "length" {
        return Err(NeuronError::Output("the bound on its output cut the JSON short".into()));
    }
    if tries >= TRIES_MAX {
        return Err(NeuronError::Output(format!("{TRIES_MAX} answers did not fit the schema; the last: {wrong}")));
    }
    let repair = format!("That answer does not fit the schema: {wrong}. Answer again with the JSON alone.");
    Ok(Step::Again(vec![ChatMessage::text("user", repair)]))
}

/// Parses the JSON in a text. Returns the fault if it is no JSON or does not fit the schema.
fn read(schema: &Value, text: &str) -> Result<Result<Value, String>, NeuronError> {
    let validator = compile(schema).map_err(NeuronError::Output)?;
    Ok(match serde_json::from_str::<Value>(unfenced(text)) {
        Ok(output) => {
            let faults = validator.iter_errors(&output).take(FAULTS_MAX);
            let faults: Vec<String> = faults.map(|error| format!("{error} at \"{}\"", error.instance_path())).collect();
            if faults.is_empty() { Ok(output) } else { Err(faults.join("; ")) }
        }
        Err(error) => Err(format!("it is not JSON: {error}")),
    })
}

/// Removes code fences, since models without a JSON mode often add them.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")) else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}
