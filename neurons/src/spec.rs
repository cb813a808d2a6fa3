//! A neuron at rest: what is stored, shipped in `config/`, and edited over the API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::llm::Tier;

/// Names a neuron.
pub type NeuronId = Arc<str>;

/// Which of the kinds it is (MISSION N2). This release has three of the six.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `(input, calltools) → string`
    #[default]
    Base,
    /// `{memory, events, structured_output} → JSON`; it calls no tools.
    StructuredOutput,
    /// `{memory, events, tools} → string`, or the JSON registered through `finalize_output`.
    ToolAugmented,
}

/// A neuron's definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeuronSpec {
    /// Its name; made when absent.
    #[serde(default)]
    pub id: Option<NeuronId>,
    /// Which kind.
    #[serde(default)]
    pub kind: Kind,
    /// Its inner, static knowledge and instructions.
    #[serde(default)]
    pub memory: String,
    /// Which tier of model it thinks with.
    #[serde(default)]
    pub tier: Tier,
    /// 0 is greedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
    /// What it may call. Only base and tool-augmented neurons call tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The JSON Schema of a structured output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<Value>,
}

/// A tool as a neuron knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// What the model calls it.
    pub name: String,
    /// What it is for, in words for the model. A KIP tool without a description gets the grammar card.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its parameters.
    #[serde(default = "any_object")]
    pub parameters: Value,
    /// Who runs it: the client by `continue`, or the server.
    #[serde(default)]
    pub run: Runner,
}

/// Who runs a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// The client: the call pauses with `202` until `continue` brings the result.
    #[default]
    Client,
    /// The server runs KIP on the named nexus, as the caller.
    Kip {
        /// Which nexus.
        nexus: Arc<str>,
        /// Whether whatever could write is refused.
        #[serde(default)]
        readonly: bool,
    },
}

fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

/// Tools one neuron may have.
const TOOLS_MAX: usize = 64;
/// Bytes of a neuron's memory.
const MEMORY_BYTES_MAX: usize = 256 << 10;

impl NeuronSpec {
    /// Checks what serde cannot.
    ///
    /// # Errors
    /// A sentence naming the member and what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        if let Some(id) = &self.id {
            check_id(id)?;
        }
        if self.memory.len() > MEMORY_BYTES_MAX {
            return Err(format!("memory has {} bytes, the bound is {MEMORY_BYTES_MAX}", self.memory.len()));
        }
        if self.tools.len() > TOOLS_MAX {
            return Err(format!("tools has {} entries, the bound is {TOOLS_MAX}", self.tools.len()));
        }
        for (place, tool) in self.tools.iter().enumerate() {
            let legal = !tool.name.is_empty()
                && tool.name.len() <= 64
                && tool.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if !legal {
                return Err(format!(
                    "tools[{place}].name \"{}\" is not 1 to 64 letters, digits, '_' or '-'",
                    tool.name
                ));
            }
            if self.tools[..place].iter().any(|other| other.name == tool.name) {
                return Err(format!("tools[{place}].name \"{}\" stands twice", tool.name));
            }
            check_schema(&tool.parameters).map_err(|error| format!("tools[{place}].parameters: {error}"))?;
        }
        match (self.kind, &self.structured_output) {
            (Kind::StructuredOutput, None) => {
                return Err(
                    "structured_output is missing: a structured-output neuron needs the JSON Schema of its output"
                        .into(),
                );
            }
            (Kind::StructuredOutput, Some(_)) if !self.tools.is_empty() => {
                return Err("a structured-output neuron calls no tools".into());
            }
            (_, Some(schema)) => check_schema(schema).map_err(|error| format!("structured_output: {error}"))?,
            _ => {}
        }
        match self.temperature {
            Some(t) if !(0.0..=2.0).contains(&t) => Err(format!("temperature {t} is not between 0 and 2")),
            _ => Ok(()),
        }
    }
}

/// An id that may stand in a path: 1 to 128 letters, digits, `_`, `-`, `.`.
///
/// # Errors
/// A sentence saying so.
pub fn check_id(id: &str) -> Result<(), String> {
    let legal = !id.is_empty() && id.len() <= 128 && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if legal { Ok(()) } else { Err(format!("id \"{id}\" is not 1 to 128 letters, digits, '_', '-' or '.'")) }
}

/// A schema that can be compiled without reaching outside of it.
///
/// # Errors
/// What is wrong with it.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    compile(schema).map(drop)
}

/// Compiles a schema with patterns that run in linear time.
///
/// # Errors
/// What is wrong with it.
pub fn compile(schema: &Value) -> Result<jsonschema::Validator, String> {
    jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(schema)
        .map_err(|error| error.to_string())
}
