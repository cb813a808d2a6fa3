//! The neuron kinds, one file each: the input, the request to the model, and the interpretation of a reply. Another kind
//! is a file that implements [`NeuronKind`], its `mod`, and a line in the list `kinds!`.

pub mod base;
pub mod completion;
pub mod decide;
mod printed_call;
pub mod router;
pub mod structured_output;
pub mod tool_augmented;
pub mod transformer;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{FirstStep, Step};
use crate::spec::{NeuronId, NeuronSpec, Runner, ToolSpec};

/// The rules of a neuron kind: everything that differs between kinds.
pub trait NeuronKind: Sync {
    /// Returns the members of a definition that this kind uses and some other kind does not. A definition with other
    /// ones is refused.
    fn members(&self) -> &'static [&'static str];

    /// Parses the caller's input. Values that replace the neuron's own are written into `spec`.
    ///
    /// # Errors
    /// Returns [`NeuronError::Input`] if the input does not have the form of the kind.
    fn begin(&self, spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError>;

    /// Adds the tools, the response format and the limits of the kind to a request. `given` are the input events of a
    /// transformer.
    fn shape(&self, spec: &NeuronSpec, given: &[Event], request: &mut ChatRequest);

    /// Interprets the model's reply after `tries` replies, this one included. `given` are the input events of a
    /// transformer.
    ///
    /// # Errors
    /// Returns [`NeuronError::Output`] for a reply that cannot be interpreted.
    fn step(&self, spec: &NeuronSpec, given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError>;

    /// Returns the shape of the output.
    fn output(&self, spec: &NeuronSpec) -> OutputShape;

    /// Returns the events of a fascicle as input.
    fn input_of(&self, events: &[store::Event]) -> Value {
        let event = |event: &store::Event| json!({"role": event.role, "content": event.content});
        json!({"events": events.iter().map(event).collect::<Vec<_>>()})
    }

    /// Returns the messages of a chat as input.
    fn input_of_chat(&self, messages: &[ChatMessage]) -> Value {
        let content = |message: &ChatMessage| message.content.clone().unwrap_or_default();
        let event = |message: &ChatMessage| json!({"role": message.role, "content": content(message)});
        json!({"events": messages.iter().map(event).collect::<Vec<_>>()})
    }
}

/// The shape of a neuron's output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputShape {
    /// Text.
    Text,
    /// JSON that fits a schema.
    Json(Value),
    /// `{events: […]}`.
    Events,
    /// `[{neuron, events}]` for some of these neurons.
    Routes(Vec<NeuronId>),
}

/// Declares the kinds. A line has the name of the kind, which is also the name of its rules, and the module of the rules.
macro_rules! kinds {
    ($($(#[$about:meta])+ $kind:ident in $module:ident),+ $(,)?) => {
        /// The kind of a neuron (MISSION N2).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $($(#[$about])+ $kind),+
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the rules of the kind.
            pub fn rules(self) -> &'static dyn NeuronKind {
                match self {
                    $(Self::$kind => &$module::$kind),+
                }
            }
        }
    };
}

kinds! {
    /// Input: a string or `{memory?, events}`. Output: a text. It may call tools.
    #[default]
    Base in base,
    /// Input: a string or `{memory?, events}`. Output: JSON that fits `structured_output`. It calls no tools.
    StructuredOutput in structured_output,
    /// Input: a string or `{memory?, events}`. Output: a text, or the JSON that the model gave to the tool
    /// `finalize_output`. It may call tools.
    ToolAugmented in tool_augmented,
    /// Input: `{prefix_message, stop?}`. Output: the text that continues the prefix. It calls no tools.
    Completion in completion,
    /// Input: `{events}`. Output: `[{neuron, events}]`, a destination for each event. It calls no tools.
    Router in router,
    /// Input: `{events}`. Output: `{events}`, changed as `transform` says. It calls no tools.
    Transformer in transformer,
}

impl Kind {
    /// Returns `true` if the kind may call tools; the others always complete.
    pub fn calls_tools(self) -> bool {
        self.rules().members().contains(&"tools")
    }
}

/// One event of the streams that neurons read and write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The role of the source.
    pub role: String,
    /// The content: text or any other JSON.
    pub content: Value,
    /// Further members set by the source: an id, a time (`at`), metadata.
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: Map<String, Value>,
}

impl Event {
    /// Creates an event of text.
    pub fn text(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: Value::String(content.into()), more: Map::new() }
    }

    /// Returns the content in the form that a model reads.
    pub fn said(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// Converts the event to a message. A role that models do not have is written into the text.
    fn message(&self) -> ChatMessage {
        match self.role.as_str() {
            role @ ("system" | "user" | "assistant") => ChatMessage::text(role, self.said()),
            other => ChatMessage::text("user", format!("[{other}] {}", self.said())),
        }
    }
}

/// Parses the input of a caller: a string, or the object of the neuron's kind.
fn read<T: DeserializeOwned>(input: &Value, of_text: impl FnOnce(Vec<Event>) -> T) -> Result<T, NeuronError> {
    match input {
        Value::String(text) => Ok(of_text(vec![Event::text("user", text)])),
        Value::Object(_) => {
            serde_json::from_value(input.clone()).map_err(|error| NeuronError::Input(format!("input: {error}")))
        }
        _ => Err(NeuronError::Input("input must be a string or an object with events".into())),
    }
}

/// Returns the opening messages of a conversation: the memory, then the events.
fn conversation(memory: &str, events: &[Event]) -> Vec<ChatMessage> {
    let mut messages = Vec::new();
    if !memory.is_empty() {
        messages.push(ChatMessage::text("system", memory));
    }
    for next in events.iter().map(Event::message) {
        match messages.last_mut() {
            // Many models accept only one system message.
            Some(last) if last.role == "system" && next.role == "system" => {
                let text = last.content.get_or_insert_default();
                text.push_str("\n\n");
                text.push_str(next.content.as_deref().unwrap_or_default());
            }
            _ => messages.push(next),
        }
    }
    messages
}

/// Returns the opening messages of a conversation with an instruction of the kind before the memory.
fn instructed(instruction: &str, memory: &str, events: &[Event]) -> Vec<ChatMessage> {
    let both = if memory.is_empty() { instruction.to_owned() } else { format!("{instruction}\n\n{memory}") };
    conversation(&both, events)
}

/// Returns the response format that requests JSON of a schema.
fn format_of(schema: &Value) -> Value {
    json!({"type": "json_schema", "json_schema": {"name": "output", "strict": true, "schema": schema}})
}

/// Returns the schema of one event whose content fits a schema.
fn event_schema(content: &Value) -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["role", "content"],
        "properties": {"role": {"type": "string", "minLength": 1, "maxLength": 32}, "content": content}})
}

/// Returns the tools of a neuron in the form that the model reads.
fn tools(spec: &NeuronSpec) -> Vec<Value> {
    let described = |tool: &ToolSpec| match tool.run {
        Runner::Kip { readonly, .. } if tool.description.is_empty() => {
            (crate::tools::kip::description(), crate::tools::kip::parameters(readonly))
        }
        _ => (tool.description.clone(), tool.asked_parameters().into_owned()),
    };
    spec.tools
        .iter()
        .map(|tool| {
            let (description, mut parameters) = described(tool);
            // Models add no members of their own, and the server checks its calls against the whole schema.
            if let Some(members) = parameters.as_object_mut()
                && members.get("additionalProperties") == Some(&Value::Bool(false))
            {
                members.remove("additionalProperties");
            }
            json!({
                "type": "function",
                "function": {"name": tool.name, "description": description, "parameters": parameters},
            })
        })
        .collect()
}
