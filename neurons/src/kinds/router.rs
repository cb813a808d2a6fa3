//! Type 5, router: splits and rewrites events and sends them to named neurons. A name that is no destination cannot be
//! in the output. The output is empty if there is nothing to send. A router calls no tools.
//!
//! A model decides. If the model is too small for that, similarity decides: each event goes unchanged to the neuron
//! with the most similar description.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::structured_output::fitting;
use super::{Event, NeuronKind, OutputShape};
use crate::NeuronError;
use crate::llm::{ChatMessage, ChatReply, ChatRequest};
use crate::neuron::{Completed, FirstStep, Step};
use crate::spec::{Destination, Named, NeuronId, NeuronSpec};

/// The input of a router. A string means one event of the user.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = RouterInput)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The memory that replaces the neuron's own; the neuron's own if absent.
    #[serde(default)]
    pub memory: Option<String>,
    /// The events to route.
    pub events: Vec<Event>,
    /// The destinations that replace the neuron's own; the neuron's own if absent.
    #[serde(default)]
    #[schema(value_type = Option<Vec<Named>>)]
    pub neurons: Option<Vec<Destination>>,
    /// The destination of events that are similar to no neuron; it replaces the neuron's own.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub otherwise: Option<NeuronId>,
}

/// The events for one neuron. A router's output is a list of these, with each neuron at most once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The id of the neuron.
    #[schema(value_type = String)]
    pub neuron: NeuronId,
    /// The events for this destination.
    pub events: Vec<Event>,
}

/// The answer of a model.
#[derive(Deserialize)]
struct Routes {
    routes: Vec<Route>,
}

/// The maximum number of routes in one answer.
const ROUTES_MAX: usize = 64;
/// The minimum similarity of an event to a neuron; below it the event is similar to none.
const FLOOR: f32 = 0.1;

/// Parses the events to route. Values from the caller replace those in `spec`.
fn take(spec: &mut NeuronSpec, input: &Value) -> Result<Vec<Event>, NeuronError> {
    let none = |events| Input { memory: None, events, neurons: None, otherwise: None };
    let Input { memory, events, neurons, otherwise } = super::read(input, none)?;
    spec.memory = memory.unwrap_or_else(|| std::mem::take(&mut spec.memory));
    if let Some(neurons) = neurons {
        spec.otherwise = spec.otherwise.take().filter(|own| neurons.iter().any(|to| to.neuron == *own));
        spec.neurons = neurons;
    }
    spec.otherwise = otherwise.or(spec.otherwise.take());
    spec.check().map_err(|error| NeuronError::Input(format!("input.{error}")))?;
    if spec.neurons.is_empty() {
        return Err(NeuronError::Input("input.neurons: neither the input nor the neuron names any".into()));
    }
    Ok(events)
}

/// Returns the opening messages of the conversation with the model that routes.
pub(crate) fn begin(spec: &NeuronSpec, events: &[Event]) -> Vec<ChatMessage> {
    let described = |to: &Destination| {
        let examples: String = to.examples.iter().map(|example| format!("\n  for example: {example}")).collect();
        format!("- {}: {}{examples}", to.neuron, to.description)
    };
    let list: Vec<String> = spec.neurons.iter().map(described).collect();
    let instruction = format!(
        "You hand events on to neurons. Split what holds several tasks, rewrite each so that it can be understood alone, \
         and assign it to the neuron that fits. Leave out what fits none.\nThe neurons:\n{}",
        list.join("\n")
    );
    super::instructed(&instruction, &spec.memory, events)
}

/// The rules of the kind.
pub(super) struct Router;

impl NeuronKind for Router {
    fn begin(&self, spec: &mut NeuronSpec, input: &Value) -> Result<FirstStep, NeuronError> {
        let events = take(spec, input)?;
        // Without events there is nothing to route.
        Ok(match events.is_empty() {
            true => FirstStep::Completed(Completed { output: Value::Array(Vec::new()) }),
            false => FirstStep::Routing(events),
        })
    }

    fn members(&self) -> &'static [&'static str] {
        &["neurons", "otherwise"]
    }

    fn shape(&self, spec: &NeuronSpec, _given: &[Event], request: &mut ChatRequest) {
        request.response_format = Some(super::format_of(&schema(spec)));
    }

    fn step(&self, spec: &NeuronSpec, _given: &[Event], reply: &ChatReply, tries: u32) -> Result<Step, NeuronError> {
        fitting(&schema(spec), reply, tries, |output| {
            let Routes { routes } = serde_json::from_value(output).map_err(|error| error.to_string())?;
            Ok(completed(routes))
        })
    }

    fn output(&self, spec: &NeuronSpec) -> OutputShape {
        OutputShape::Routes(spec.neurons.iter().map(|to| to.neuron.clone()).collect())
    }
}

fn schema(spec: &NeuronSpec) -> Value {
    let names: Vec<&NeuronId> = spec.neurons.iter().map(|to| &to.neuron).collect();
    let event = super::event_schema(&json!({"type": "string", "minLength": 1}));
    let route = json!({"type": "object", "additionalProperties": false, "required": ["neuron", "events"], "properties": {
        "neuron": {"type": "string", "enum": names}, "events": {"type": "array", "items": event, "minItems": 1, "maxItems": ROUTES_MAX}}});
    json!({"type": "object", "additionalProperties": false, "required": ["routes"],
        "properties": {"routes": {"type": "array", "items": route, "maxItems": ROUTES_MAX}}})
}

/// Returns the texts to embed: the events, then each neuron's description and examples.
pub(crate) fn texts(spec: &NeuronSpec, events: &[Event]) -> Vec<String> {
    let of_neurons = spec.neurons.iter().flat_map(|to| {
        let own = if to.description.is_empty() { to.neuron.replace(['_', '-'], " ") } else { to.description.clone() };
        std::iter::once(own).chain(to.examples.iter().cloned())
    });
    events.iter().map(Event::said).chain(of_neurons).collect()
}

/// Routes each event to the most similar neuron. `vectors` are the embeddings of [`texts`], in the same order.
pub(crate) fn by_likeness(spec: &NeuronSpec, events: Vec<Event>, vectors: &[Vec<f32>]) -> Completed {
    let (of_events, mut rest) = vectors.split_at(events.len().min(vectors.len()));
    let mut neurons: Vec<(&NeuronId, &[Vec<f32>])> = Vec::new();
    for to in &spec.neurons {
        let (own, left) = rest.split_at((1 + to.examples.len()).min(rest.len()));
        neurons.push((&to.neuron, own));
        rest = left;
    }
    let mut routes = Vec::new();
    for (event, vector) in events.into_iter().zip(of_events) {
        let nearest = neurons
            .iter()
            .map(|(neuron, own)| (*neuron, own.iter().map(|other| likeness(vector, other)).fold(f32::MIN, f32::max)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .filter(|(_, likeness)| *likeness >= FLOOR)
            .map(|(neuron, _)| neuron)
            .or(spec.otherwise.as_ref());
        if let Some(neuron) = nearest {
            routes.push(Route { neuron: neuron.clone(), events: vec![event] });
        }
    }
    completed(routes)
}

/// Returns the cosine similarity of two vectors.
pub(crate) fn likeness(one: &[f32], other: &[f32]) -> f32 {
    let dot = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f32>();
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 { dot(one, other) / lengths } else { 0.0 }
}

/// Returns the routes with each neuron once, in the order of its first event.
fn completed(routes: Vec<Route>) -> Completed {
    let mut merged: Vec<Route> = Vec::new();
    for route in routes {
        match merged.iter_mut().find(|known| known.neuron == route.neuron) {
            Some(known) => known.events.extend(route.events),
            None => merged.push(route),
        }
    }
    Completed { output: json!(merged) }
}
