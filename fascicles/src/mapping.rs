//! Parts of outputs and events: JSON Pointers, conditions, mappings. The functions are pure and shared by edges,
//! branches, repeats, arguments and observations.

use std::sync::Arc;

use jsonschema::Validator;
use serde_json::{Map, Value};
use store::{Cause, Event};

use crate::spec::{Condition, Part, Take, Taken};

/// The maximum number of input events with which others are compared.
const COMPARED_MAX: usize = 64;

/// Returns the part of a value at a JSON Pointer, which was validated when the graph was built.
pub(crate) fn at<'v>(value: &'v Value, pointer: &str) -> Option<&'v Value> {
    value.pointer(pointer)
}

/// Returns `true` for a JSON Pointer (RFC 6901).
pub(crate) fn is_pointer(text: &str) -> bool {
    text.is_empty() || text.starts_with('/')
}

/// A condition with its compiled schema.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    at: String,
    is: Arc<Validator>,
}

impl Test {
    /// Compiles the schema of a condition.
    ///
    /// # Errors
    /// Returns the fault of the schema.
    pub(crate) fn build(condition: &Condition) -> Result<Self, String> {
        Ok(Self { at: condition.at.clone(), is: Arc::new(neurons::spec::compile(&condition.is)?) })
    }

    pub(crate) fn holds(&self, value: &Value) -> bool {
        at(value, &self.at).is_some_and(|part| self.is.is_valid(part))
    }
}

/// The mapping of an edge, with its compiled schema.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    take: Take,
    is: Option<Arc<Validator>>,
}

impl Mapping {
    /// Compiles the schema of a mapping.
    ///
    /// # Errors
    /// Returns the fault of the schema.
    pub(crate) fn build(take: &Take) -> Result<Self, String> {
        let is = match take {
            Take::Part(Part { is: Some(is), .. }) => Some(Arc::new(neurons::spec::compile(is)?)),
            _ => None,
        };
        Ok(Self { take: take.clone(), is })
    }

    /// Returns `true` for the mapping of an edge that names none.
    pub(crate) fn is_whole(&self) -> bool {
        self.take == Take::default()
    }

    /// Returns the events that the edge delivers from the `output` of `node`.
    ///
    /// # Errors
    /// Returns an error if the part does not exist or does not fit the schema.
    pub(crate) fn events(&self, node: &str, output: &Value) -> Result<Vec<Event>, String> {
        match &self.take {
            Take::Nothing => Ok(Vec::new()),
            Take::Output => Ok(events_of(node, output)),
            Take::Part(Part { at: pointer, role, .. }) => {
                let part =
                    at(output, pointer).ok_or_else(|| format!("the output of {node} has nothing at \"{pointer}\""))?;
                if let Some(fault) = self.is.as_ref().and_then(|is| is.iter_errors(part).next()) {
                    return Err(format!("the output of {node} at \"{pointer}\" does not fit: {fault}"));
                }
                Ok(events_of(role.as_deref().unwrap_or(node), part))
            }
        }
    }
}

/// Adds events to those that a neuron reads, of which the first `own` are the job's input. What the input holds already, as a router
/// sends it on, is not read twice.
pub(crate) fn add_events(events: &mut Vec<Event>, own: usize, more: Vec<Event>) {
    let is_there =
        |event: &Event| events[..own].iter().any(|known| known.role == event.role && known.content == event.content);
    let new: Vec<Event> = more.into_iter().filter(|event| own > COMPARED_MAX || !is_there(event)).collect();
    events.extend(new);
}

/// Returns an output as events: its member `events` if each item of it is an event with a role and a content, none for
/// null, else the whole output as one event in that role. An event without an id gets one that is derived from its
/// source, so equal outputs yield equal events.
pub(crate) fn events_of(role: &str, output: &Value) -> Vec<Event> {
    let named = |(place, event): (usize, &Value)| {
        let mut event = event.clone();
        let members = event.as_object_mut()?;
        members.entry("id").or_insert_with(|| format!("ev_{role}_{place}").into());
        serde_json::from_value(event).ok()
    };
    let given = output.get("events").and_then(Value::as_array);
    match given.and_then(|given| given.iter().enumerate().map(named).collect()) {
        Some(events) => events,
        None if output.is_null() => Vec::new(),
        None => vec![event(role, output.clone())],
    }
}

/// Creates an event in that role. The role also determines its id.
pub(crate) fn event(role: &str, content: Value) -> Event {
    Event { id: format!("ev_{role}").into(), role: role.into(), content, metadata: Map::new(), cause: Cause::default() }
}

/// Returns the output of a router or a branch for one route; `None` if there is none.
pub(crate) fn routed(output: &Value, route: &str) -> Option<Value> {
    let sent: Vec<&Value> = output.as_array()?.iter().filter(|to| to["neuron"] == route).collect();
    if sent.is_empty() {
        return None;
    }
    let events: Vec<Value> = sent.iter().filter_map(|to| to["events"].as_array()).flatten().cloned().collect();
    Some(serde_json::json!({"events": events}))
}

/// Returns the selected part of a node's events.
pub(crate) fn taken<'e>(events: &'e [Event], taken: &Taken) -> Option<&'e Value> {
    let mut from = events.iter().rev().filter(|event| taken.role.as_ref().is_none_or(|role| event.role == *role));
    at(&from.next()?.content, &taken.at)
}

/// Returns the arguments with each `{"$take": …}` replaced.
///
/// # Errors
/// Returns an error if the selected part does not exist.
pub(crate) fn filled(arguments: &Value, events: &[Event]) -> Result<Value, String> {
    Ok(match arguments {
        Value::Object(members) => match members.get("$take").filter(|_| members.len() == 1) {
            Some(which) => {
                let which: Taken = serde_json::from_value(which.clone()).map_err(|error| format!("$take: {error}"))?;
                let missing = || format!("nothing among the events is at {}", serde_json::json!(which));
                taken(events, &which).cloned().ok_or_else(missing)?
            }
            None => {
                let filled = members.iter().map(|(name, value)| Ok((name.clone(), filled(value, events)?)));
                Value::Object(filled.collect::<Result<Map<_, _>, String>>()?)
            }
        },
        Value::Array(items) => Value::Array(items.iter().map(|item| filled(item, events)).collect::<Result<_, _>>()?),
        other => other.clone(),
    })
}
