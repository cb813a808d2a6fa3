//! Type 3, tool-augmented: events in, with tool calls in between, and `finalize_output` to end with JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::base::step_of;
use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, FirstStep, Step};
use crate::spec::{NeuronSpec, ToolSpec, check_schema, compile};
use crate::tools::finding::TOOL_FIND;
use crate::tools::handles::RESULT_READ;

/// The input of a tool-augmented neuron. A string means one event of the user.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ToolAugmentedInput)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The memory that replaces the neuron's own; the neuron's own if absent.
    #[serde(default)]
    pub memory: Option<String>,
    /// The input events.
    pub events: Vec<Event>,
    /// Tools of the caller, in addition to the neuron's own. The caller runs them.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// The JSON Schema of the output registered by `finalize_output`; it replaces the neuron's own.
    #[serde(default, alias = "structuredOutput")]
    pub structured_output: Option<Value>,
}

/// The tool that registers a structured output (seed 003 §1.3).
pub(crate) const FINALIZE: &str = "finalize_output";
/// The number of outputs that do not fit after which the neuron fails.
const TRIES_MAX: u32 = 3;

/// The rules of the kind.
pub(super) struct ToolAugmented;

impl NeuronKind for ToolAugmented {
    fn members(&self) -> &'static [&'static str] {
        &["tools", "structured_output", "fills", "returns_results"]
    }

    fn begin(&self, spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError> {
        let none = |events| Input { memory: None, events, tools: Vec::new(), structured_output: None };
        let Input { memory, events, tools, structured_output } = super::read(input, none)?;
        spec.memory = memory.unwrap_or_else(|| std::mem::take(&mut spec.memory));
        if let Some(schema) = structured_output {
            check_schema(&schema).map_err(|error| NeuronError::Input(format!("input.structured_output: {error}")))?;
            spec.structured_output = Some(schema);
        }
        // Only the author of the neuron may define tools that run on the server.
        if let Some(tool) = tools.iter().find(|tool| tool.run != crate::spec::Runner::Client || tool.pin.is_some()) {
            return Err(NeuronError::Input(format!("input.tools: {} may only be run by the caller", tool.name)));
        }
        spec.tools.extend(tools);
        // The neuron's own tools may have been resolved before.
        spec.check_resolved().map_err(|error| NeuronError::Input(format!("input.{error}")))?;
        Ok(FirstStep::Conversation(super::conversation(&spec.memory, &events)))
    }

    fn shape(&self, spec: &NeuronSpec, _given: &[Event], request: &mut ChatRequest) {
        request.tools = super::tools(spec);
        if let Some(schema) = &spec.structured_output {
            let described = "Registers the final output and ends. Call it once, when the work is done.";
            request.tools.push(
                json!({"type": "function", "function": {"name": FINALIZE, "description": described, "parameters": schema}}),
            );
        }
    }

    /// Evaluates a reply. A registered output completes the neuron, even beside other calls. The output is a string in the
    /// wire format, so registered JSON is returned as text. An output that does not fit is rejected and requested again.
    fn step(&self, spec: &NeuronSpec, _given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
        let Some(call) = reply.tool_calls.iter().find(|call| call.function.name == FINALIZE) else {
            return step_of(spec, reply, tries);
        };
        let registered = &call.function.arguments;
        let fault = match serde_json::from_str::<Value>(registered) {
            Err(error) => Some(format!("it is not JSON: {error}")),
            Ok(output) => match &spec.structured_output {
                None => None,
                Some(schema) => {
                    let validator = compile(schema).map_err(NeuronError::Output)?;
                    validator
                        .iter_errors(&output)
                        .next()
                        .map(|fault| format!("{fault} at \"{}\"", fault.instance_path()))
                }
            },
        };
        let Some(fault) = fault else {
            return Ok(Step::Completed(Completed { output: Value::String(registered.clone()) }));
        };
        if tries >= TRIES_MAX {
            return Err(NeuronError::Output(format!("{FINALIZE} was called with what does not fit: {fault}")));
        }
        // The model continues only after every call has a result.
        let answers = reply.tool_calls.iter().map(|call| {
            let why =
                if call.function.name == FINALIZE { &fault } else { "not called, since the output was registered" };
            ChatMessage {
                role: "tool".into(),
                content: Some(json!({"error": why}).to_string()),
                tool_call_id: Some(call.id.clone()),
                ..ChatMessage::default()
            }
        });
        Ok(Step::Again(answers.collect()))
    }

    fn output(&self, spec: &NeuronSpec) -> OutputShape {
        match spec.returns_results {
            true => OutputShape::Json(json!({"type": "object"})),
            false => OutputShape::Text,
        }
    }
}

/// The beginning of the result of a call that was not the one to fill in.
pub(crate) const NOT_FILLED: &str = "not called: fill in the one tool that is offered, once";

/// Returns the tool calls of a conversation that have a result, in order, each with its tool and the result.
fn results(messages: &[ChatMessage]) -> impl Iterator<Item = (&str, &str)> {
    let calls = messages.iter().filter_map(|message| message.tool_calls.as_ref()).flatten();
    calls.filter_map(|call| {
        let result = messages.iter().find(|message| message.tool_call_id.as_ref() == Some(&call.id))?;
        let result = result.content.as_deref().unwrap_or_default();
        (!result.contains(NOT_FILLED)).then_some((&*call.function.name, result))
    })
}

/// Returns the next tool for which the model only writes the arguments: see [`NeuronSpec::fills`]. `None` if each was called, or is not
/// there.
pub(crate) fn next_to_fill<'s>(spec: &'s NeuronSpec, messages: &[ChatMessage]) -> Option<&'s str> {
    let called: Vec<&str> = results(messages).map(|(tool, _)| tool).collect();
    let is_there = |name: &&str| spec.tools.iter().any(|tool| tool.name == *name);
    spec.fills.iter().map(String::as_str).filter(is_there).find(|tool| !called.contains(tool))
}

/// Returns the output of a neuron that returns results: see [`NeuronSpec::returns_results`]. `whole` maps a cut result, as the
/// conversation shows it, to the whole one.
pub(crate) fn output_of_results(
    spec: &NeuronSpec,
    messages: &[ChatMessage],
    whole: impl Fn(&str) -> Option<String>,
) -> Completed {
    let has_failed =
        |result: &Value| result.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("error"));
    let mut output: Map<String, Value> = Map::new();
    let mut done: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for (tool, result) in results(messages).filter(|(tool, _)| ![RESULT_READ, TOOL_FIND].contains(tool)) {
        let result = whole(result).unwrap_or_else(|| result.to_owned());
        let result = match serde_json::from_str::<Value>(&result) {
            // A number that a float would round stays a text.
            Ok(Value::Number(number)) if number.to_string() != result.trim() => Value::String(result),
            Ok(parsed) => parsed,
            Err(_) => Value::String(result),
        };
        match has_failed(&result) {
            true => drop(output.insert(tool.to_owned(), result)),
            false => done.entry(tool).or_default().push(result),
        }
    }
    for (tool, mut results) in done {
        let result = if results.len() == 1 { results.remove(0) } else { Value::Array(results) };
        output.insert(tool.to_owned(), result);
    }
    for tool in &spec.fills {
        output.entry(tool.clone()).or_insert_with(|| json!({"error": "it was not called"}));
    }
    Completed { output: Value::Object(output) }
}
