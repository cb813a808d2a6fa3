//! Type 3, tool-augmented: events in, with tool calls in between, and `finalize_output` to end with JSON.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::base::step_of;
use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, FirstStep, Step};
use crate::spec::{NeuronSpec, ToolSpec, check_schema, compile};

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
        &["tools", "structured_output"]
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
        if let Some(tool) = tools.iter().find(|tool| tool.run != crate::spec::Runner::Client) {
            return Err(NeuronError::Input(format!("input.tools: {} may only be run by the caller", tool.name)));
        }
        spec.tools.extend(tools);
        spec.check().map_err(|error| NeuronError::Input(format!("input.{error}")))?;
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

    fn output(&self, _spec: &NeuronSpec) -> OutputShape {
        OutputShape::Text
    }
}
