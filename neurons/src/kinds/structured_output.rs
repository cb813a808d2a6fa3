//! Type 2, structured output: the output is JSON that fits a schema, or a typed failure.

use jsonschema::error::ValidationErrorKind;
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

/// The maximum length of a text that is not cut, in characters.
const MACHINE_CHARS: u64 = 64;

/// The rules of the kind.
pub(super) struct StructuredOutput;

impl NeuronKind for StructuredOutput {
    fn members(&self) -> &'static [&'static str] {
        &["structured_output", "cut_too_long"]
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
        let shortened = if spec.cut_too_long { shortened(schema, reply)? } else { None };
        fitting(schema, shortened.as_ref().unwrap_or(reply), tries, |output| Ok(Completed { output }))
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

/// Returns a reply whose texts and lists are cut to the bounds of the schema; `None` if none is too long or the reply is
/// no JSON. A cut text ends in an ellipsis.
fn shortened(schema: &Value, reply: &ChatReply) -> Result<Option<ChatReply>, NeuronError> {
    let validator = compile(schema).map_err(NeuronError::Output)?;
    let Ok(mut output) = serde_json::from_str::<Value>(unfenced(&reply.text)) else { return Ok(None) };
    let too_long: Vec<(String, usize)> = validator
        .iter_errors(&output)
        .filter_map(|error| match error.kind() {
            // Short texts are for machines: an id or a pattern that is cut means something else.
            ValidationErrorKind::MaxLength { limit } if *limit <= MACHINE_CHARS => None,
            ValidationErrorKind::MaxLength { limit } | ValidationErrorKind::MaxItems { limit } => {
                Some((error.instance_path().to_string(), *limit as usize))
            }
            _ => None,
        })
        .collect();
    for (path, limit) in &too_long {
        match output.pointer_mut(path) {
            Some(Value::String(text)) => *text = cut(text, *limit),
            Some(Value::Array(items)) => items.truncate(*limit),
            _ => {}
        }
    }
    Ok((!too_long.is_empty()).then(|| ChatReply { text: output.to_string(), ..reply.clone() }))
}

fn cut(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max.saturating_sub(1)).chain((chars_max > 0).then_some('…')).collect()
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
pub(super) fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inner) = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")) else { return text };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn completed(schema: &Value, text: &str, cut_too_long: bool) -> Option<Value> {
        let spec = NeuronSpec { structured_output: Some(schema.clone()), cut_too_long, ..NeuronSpec::default() };
        let reply = ChatReply { text: text.to_owned(), ..ChatReply::default() };
        match StructuredOutput.step(&spec, &[], &reply, 1).unwrap() {
            Step::Completed(Completed { output }) => Some(output),
            _ => None,
        }
    }

    #[test]
    fn what_is_too_long_is_cut_if_the_neuron_says_so() {
        let schema = json!({"type": "object", "required": ["say"], "properties": {
            "say": {"type": "string", "maxLength": 70}, "cron": {"type": "string", "maxLength": 9},
            "plan": {"type": "array", "maxItems": 2, "items": {"type": "string", "maxLength": 70}}}});
        let (long, cut) = ("世".repeat(80), format!("{}…", "世".repeat(69)));
        let answer = json!({"say": long, "plan": ["one", long, "three"]}).to_string();
        assert_eq!(completed(&schema, &answer, true), Some(json!({"say": cut, "plan": ["one", cut]})));
        assert_eq!(completed(&schema, &answer, false), None, "the model is asked again");
        assert_eq!(completed(&schema, r#"{"plan": ["three"]}"#, true), None, "a missing member is no length");
        assert_eq!(completed(&schema, r#"{"say": "", "cron": "0 9 * * 1,2,3"}"#, true), None, "a pattern is not cut");
        let fits = r#"{"say": "hello", "plan": []}"#;
        assert_eq!(completed(&schema, fits, true), completed(&schema, fits, false));
    }

    #[test]
    fn members_for_small_models_replace_the_others() {
        let spec: NeuronSpec = serde_json::from_value(json!({
            "kind": "structured_output", "memory": "long", "output_tokens_max": 2000, "structured_output": {"type": "object"},
            "small": {"memory": "short", "structured_output": {"type": "array"}}}))
        .unwrap();
        spec.check().unwrap();
        let fitted = |is_small| {
            let mut fitted = spec.clone();
            fitted.fit(is_small);
            (fitted.memory, fitted.output_tokens_max, fitted.structured_output.unwrap()["type"].clone(), fitted.small)
        };
        assert_eq!(fitted(false), ("long".into(), Some(2000), json!("object"), None));
        assert_eq!(fitted(true), ("short".into(), Some(2000), json!("array"), None));
        let wrong = NeuronSpec { kind: crate::spec::Kind::Base, structured_output: None, ..spec };
        assert!(wrong.check().unwrap_err().starts_with("structured_output is of"));
    }
}
