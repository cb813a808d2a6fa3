//! The definition of a neuron: stored, shipped in `config/`, or edited over the API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use crate::kinds::Kind;
pub use crate::kinds::transformer::{Inhibition, Throttle, Transform, tokens_about};
use crate::llm::Tier;
use crate::schema_cost;
pub use crate::tools::spec::{Approval, Body, FascicleTool, HttpTool, McpTool, Method, OpenapiTool, Runner, ToolSpec};

/// The id of a neuron.
pub type NeuronId = Arc<str>;

/// A destination of a router. A plain id is a destination without a description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Named")]
pub struct Destination {
    /// The id of the neuron.
    pub neuron: NeuronId,
    /// The description of the events that the destination handles.
    pub description: String,
    /// Example messages for this destination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

/// A [`Destination`] as written in a definition: an id, or an object.
#[derive(Deserialize, ToSchema)]
#[schema(as = Destination)]
#[serde(untagged, expecting = "a destination is the id of a neuron, or {neuron, description?, examples?}")]
pub(crate) enum Named {
    Name(String),
    Whole(Described),
}

#[derive(Deserialize, ToSchema)]
#[schema(as = DescribedDestination)]
#[serde(deny_unknown_fields)]
pub(crate) struct Described {
    #[schema(value_type = String)]
    neuron: NeuronId,
    #[serde(default)]
    description: String,
    #[serde(default)]
    examples: Vec<String>,
}

impl From<Named> for Destination {
    fn from(named: Named) -> Self {
        match named {
            Named::Name(neuron) => Self { neuron: neuron.into(), description: String::new(), examples: Vec::new() },
            Named::Whole(Described { neuron, description, examples }) => Self { neuron, description, examples },
        }
    }
}

/// A neuron's definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NeuronSpec {
    /// The id of the neuron; generated if absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub id: Option<NeuronId>,
    /// The kind.
    #[serde(default)]
    pub kind: Kind,
    /// The description of the neuron's purpose, for people and routers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The memory: static knowledge and instructions, used as the system message.
    #[serde(default)]
    pub memory: String,
    /// The tier of the model.
    #[serde(default)]
    pub tier: Tier,
    /// The sampling temperature, 0 to 2; 0 is greedy. `None` leaves it to the provider; the embedded model uses 0.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The maximum number of output tokens of one model call. `None` means 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
    /// The time in seconds that calls outside which only read may take in one invocation, in total: 1 to 600. A call that takes longer
    /// ends with an error that says so. `None` leaves it to the timeouts of the tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_s: Option<u32>,
    /// The tools that the neuron may call. Only base and tool-augmented neurons call tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The JSON Schema of the output. Only structured-output and tool-augmented neurons have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<Value>,
    /// The texts that end a completion: at most 16, of 1 to 256 bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The destinations of a router: at most 256, each with at most 16 examples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Named>)]
    pub neurons: Vec<Destination>,
    /// The fallback destination of a router that uses similarity, for events that are similar to no destination. If
    /// absent, such events are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub otherwise: Option<NeuronId>,
    /// The transformation that a transformer applies.
    #[serde(default, skip_serializing_if = "Transform::is_default")]
    pub transform: Transform,
    /// `true` to shorten the texts and lists of an output that exceed `maxLength` and `maxItems` of its schema, instead
    /// of asking the model again. Only structured-output neurons have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_too_long: bool,
    /// The tools that the model fills in, each once and in this order: it writes their arguments and chooses nothing, and a number
    /// that the input does not hold is left out. Empty: the model chooses. Only tool-augmented neurons have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fills: Vec<String>,
    /// `true` if the output is not the text of the model but an object with the result of each tool that was called, by its name:
    /// JSON, or a text, or `{"error": "…"}`; a list if several calls of a tool succeeded. Only tool-augmented neurons have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns_results: bool,
    /// The members that replace those of the neuron if its model is marked `small`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small: Option<Box<SmallSpec>>,
}

/// The members of a definition for a model that is marked `small`. An absent member keeps the neuron's own value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SmallSpec {
    /// The memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// The maximum number of output tokens of one model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
    /// The JSON Schema of the output. Only structured-output and tool-augmented neurons have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<Value>,
    /// The tools that the model fills in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fills: Option<Vec<String>>,
    /// The transformation. Only transformers have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
}

/// The maximum number of tools of one neuron.
pub(crate) const TOOLS_MAX: usize = 64;
/// The maximum of [`NeuronSpec::reads_s`].
const READS_S_MAX: u32 = 600;
/// The maximum number of stop texts, which many providers also limit, and the maximum length of one in bytes.
const STOPS_MAX: usize = 16;
const STOP_BYTES_MAX: usize = 256;
/// The maximum number of destinations of a router, and of examples per destination.
const DESTINATIONS_MAX: usize = 256;
const EXAMPLES_MAX: usize = 16;
/// The maximum length of a description, in bytes.
const DESCRIPTION_BYTES_MAX: usize = 4 << 10;
/// The maximum size of a memory, in bytes.
const MEMORY_BYTES_MAX: usize = 256 << 10;

impl NeuronSpec {
    /// Checks the constraints that deserialization cannot check.
    ///
    /// # Errors
    /// Returns a sentence that names the member and the fault.
    pub fn check(&self) -> Result<(), String> {
        if let Some(id) = &self.id {
            check_id(id)?;
        }
        let small = self.small.as_deref();
        let memories =
            [("memory", Some(&self.memory)), ("small.memory", small.and_then(|small| small.memory.as_ref()))];
        for (member, memory) in memories {
            if let Some(memory) = memory.filter(|memory| memory.len() > MEMORY_BYTES_MAX) {
                return Err(format!("{member} has {} bytes, the bound is {MEMORY_BYTES_MAX}", memory.len()));
            }
        }
        if self.description.len() > DESCRIPTION_BYTES_MAX {
            return Err(format!("description is over {DESCRIPTION_BYTES_MAX} bytes"));
        }
        if self.tools.len() > TOOLS_MAX {
            return Err(format!("tools has {} entries, the bound is {TOOLS_MAX}", self.tools.len()));
        }
        for (place, tool) in self.tools.iter().enumerate() {
            tool.check().map_err(|error| format!("tools[{place}].{error}"))?;
            if self.tools[..place].iter().any(|other| other.name == tool.name) {
                return Err(format!("tools[{place}].name: duplicate \"{}\"", tool.name));
            }
        }
        if let Some(schema) = &self.structured_output {
            check_schema(schema).map_err(|error| format!("structured_output: {error}"))?;
        }
        if let Some(schema) = small.and_then(|small| small.structured_output.as_ref()) {
            check_schema(schema).map_err(|error| format!("small.structured_output: {error}"))?;
        }
        self.check_members_of_kinds()?;
        self.check_lists()?;
        self.check_fills()?;
        if self.reads_s.is_some_and(|seconds| !(1..=READS_S_MAX).contains(&seconds)) {
            return Err(format!("reads_s is 1 to {READS_S_MAX}"));
        }
        match self.temperature {
            Some(t) if !(0.0..=2.0).contains(&t) => Err(format!("temperature {t} is not between 0 and 2")),
            _ => Ok(()),
        }
    }
}

impl NeuronSpec {
    /// As [`NeuronSpec::check`], for a definition whose tools were resolved already.
    ///
    /// # Errors
    /// Returns a sentence that names the member and the fault.
    pub fn check_resolved(&self) -> Result<(), String> {
        let mut written = self.clone();
        written.tools.iter_mut().for_each(|tool| tool.pin = None);
        written.check()
    }

    /// Replaces the members that have a variant for small models, if the model is small.
    pub(crate) fn fit(&mut self, is_small: bool) {
        let Some(small) = self.small.take().filter(|_| is_small) else { return };
        let SmallSpec { memory, output_tokens_max, structured_output, fills, transform } = *small;
        self.memory = memory.unwrap_or_else(|| std::mem::take(&mut self.memory));
        self.output_tokens_max = output_tokens_max.or(self.output_tokens_max);
        self.structured_output = structured_output.or_else(|| self.structured_output.take());
        self.fills = fills.unwrap_or_else(|| std::mem::take(&mut self.fills));
        self.transform = transform.unwrap_or_else(|| std::mem::take(&mut self.transform));
    }

    /// Refuses members that belong to another kind, since they would be ignored silently.
    fn check_members_of_kinds(&self) -> Result<(), String> {
        let given = [
            ("tools", !self.tools.is_empty()),
            ("structured_output", self.structured_output.is_some()),
            ("structured_output", self.small.as_ref().is_some_and(|small| small.structured_output.is_some())),
            ("cut_too_long", self.cut_too_long),
            ("fills", !self.fills.is_empty()),
            ("fills", self.small.as_ref().is_some_and(|small| small.fills.is_some())),
            ("returns_results", self.returns_results),
            ("stop", !self.stop.is_empty()),
            ("neurons", !self.neurons.is_empty()),
            ("otherwise", self.otherwise.is_some()),
            ("transform", !self.transform.is_default()),
            ("transform", self.small.as_ref().is_some_and(|small| small.transform.is_some())),
        ];
        let uses = |kind: &Kind, member: &str| kind.rules().members().contains(&member);
        let kind = |kind: Kind| serde_json::to_value(kind).unwrap_or_default().as_str().unwrap_or_default().to_owned();
        match given.into_iter().find(|(member, given)| *given && !uses(&self.kind, member)) {
            None => Ok(()),
            Some((member, _)) => {
                let kinds: Vec<String> = Kind::ALL.iter().copied().filter(|of| uses(of, member)).map(kind).collect();
                Err(format!("{member} is of {}, and this neuron is {}", kinds.join(" and "), kind(self.kind)))
            }
        }
    }

    /// Checks that the tools to fill in are tools of the neuron that the server runs, and that something else than the call ends it.
    fn check_fills(&self) -> Result<(), String> {
        let small = self.small.as_deref().and_then(|small| small.fills.as_ref());
        for (member, fills) in [("fills", Some(&self.fills)), ("small.fills", small)] {
            let is_known = |name: &String| {
                let mut known = self.tools.iter().filter(|tool| tool.name == *name);
                known.any(|tool| !tool.is_many() && tool.run != Runner::Client)
            };
            let fills = fills.map(Vec::as_slice).unwrap_or_default();
            if let Some((_, twice)) = fills.iter().enumerate().find(|(at, name)| fills[..*at].contains(name)) {
                return Err(format!("{member}: duplicate \"{twice}\""));
            }
            if let Some(unknown) = fills.iter().find(|name| !is_known(name)) {
                return Err(format!(
                    "{member} names \"{unknown}\", which is no single tool of the neuron that the server runs"
                ));
            }
        }
        if let Some(transform) = self.small.as_deref().and_then(|small| small.transform.as_ref()) {
            transform.check().map_err(|error| format!("small.{error}"))?;
        }
        match self.returns_results && self.structured_output.is_some() {
            true => Err("returns_results and structured_output exclude each other".into()),
            false => Ok(()),
        }
    }

    fn check_lists(&self) -> Result<(), String> {
        if self.stop.len() > STOPS_MAX || self.stop.iter().any(|stop| stop.is_empty() || stop.len() > STOP_BYTES_MAX) {
            return Err(format!("stop holds at most {STOPS_MAX} texts of 1 to {STOP_BYTES_MAX} bytes"));
        }
        if self.neurons.len() > DESTINATIONS_MAX {
            return Err(format!("neurons has {} entries, the bound is {DESTINATIONS_MAX}", self.neurons.len()));
        }
        for (place, to) in self.neurons.iter().enumerate() {
            check_id(&to.neuron).map_err(|error| format!("neurons[{place}].neuron: {error}"))?;
            if self.neurons[..place].iter().any(|other| other.neuron == to.neuron) {
                return Err(format!("neurons[{place}].neuron: duplicate \"{}\"", to.neuron));
            }
            let words = std::iter::once(&to.description).chain(&to.examples);
            if to.examples.len() > EXAMPLES_MAX || words.into_iter().any(|text| text.len() > DESCRIPTION_BYTES_MAX) {
                return Err(format!(
                    "neurons[{place}] has a text over {DESCRIPTION_BYTES_MAX} bytes, or more than {EXAMPLES_MAX} examples"
                ));
            }
        }
        if let Some(otherwise) = &self.otherwise
            && !self.neurons.is_empty()
            && self.neurons.iter().all(|to| to.neuron != *otherwise)
        {
            return Err(format!("otherwise names \"{otherwise}\", which is not among the neurons"));
        }
        self.transform.check()
    }
}

impl Transform {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Checks that an id can be used in a URL path: 1 to 128 letters, digits, `_`, `-`, `.`.
///
/// # Errors
/// Returns a sentence that states the rule.
pub fn check_id(id: &str) -> Result<(), String> {
    // HTTP clients remove `.` and `..` from paths.
    let legal = !matches!(id, "" | "." | "..")
        && id.len() <= 128
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if legal { Ok(()) } else { Err(format!("id \"{id}\" is not 1 to 128 letters, digits, '_', '-' or '.'")) }
}

/// Checks that a schema compiles without references outside of it.
///
/// # Errors
/// Returns the fault of the schema.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    compile(schema).map(drop)
}

/// Compiles a schema with patterns that run in linear time.
///
/// # Errors
/// Returns the fault of the schema.
pub fn compile(schema: &Value) -> Result<jsonschema::Validator, String> {
    schema_cost::check(schema)?;
    jsonschema::options()
        .with_pattern_options(jsonschema::PatternOptions::regex())
        .build(schema)
        .map_err(|error| error.to_string())
}
