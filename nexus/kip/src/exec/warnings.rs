//! Schema warnings about a write: guidance, never a refusal (draft7 App. 2, U4). They include the naming conventions
//! of §2.8.2.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::Change;
use super::draft::{CONCEPT_TYPE, PROPOSITION_TYPE};
use crate::datum::{Datum, Sym};
use crate::graph::{Concept, ElementId, GraphRead, Record};

/// The maximum number of warnings in one answer.
const WARNINGS_MAX: usize = 32;

/// Adds the schema's warnings about `changes`.
pub(super) fn of_schema(graph: &dyn GraphRead, changes: &[Change], out: &mut Vec<String>) {
    let mut schemas: HashMap<Sym, Option<Arc<Value>>> = HashMap::new();
    let mut ends: HashMap<Sym, [Option<Arc<Value>>; 2]> = HashMap::new();
    let mut more = 0;
    let mut warn = |text: String| {
        if out.len() < WARNINGS_MAX {
            if !out.contains(&text) {
                out.push(text);
            }
        } else {
            more += 1;
        }
    };
    for change in changes {
        match &change.after {
            Some(Record::Concept(concept)) => {
                if change.before.is_none() {
                    naming(concept.kind.as_str(), &concept.name, &mut warn);
                }
                let schema = schemas
                    .entry(concept.kind)
                    .or_insert_with(|| definition(graph, CONCEPT_TYPE, concept.kind, "instance_schema"));
                if let Some(schema) = schema {
                    instance(concept, change.before.is_none(), schema, &mut warn);
                }
            }
            Some(Record::Link(link)) if change.before.is_none() => {
                let [subjects, objects] = ends.entry(link.predicate).or_insert_with(|| {
                    ["subject_types", "object_types"]
                        .map(|key| definition(graph, PROPOSITION_TYPE, link.predicate, key))
                });
                for (what, allowed, el) in [("subject", subjects, link.subject), ("object", objects, link.object)] {
                    if let Some(allowed) = allowed {
                        end(graph, link.predicate, what, allowed, el, &mut warn);
                    }
                }
            }
            _ => {}
        }
    }
    if more > 0 {
        out.push(format!("and {more} more"));
    }
}

/// Returns an attribute of a definition of a type or predicate, if it is an array or object.
fn definition(graph: &dyn GraphRead, meta: &str, name: Sym, key: &str) -> Option<Arc<Value>> {
    let el = graph.concept(Sym::new(meta), name.as_str())?;
    let mut found = None;
    graph.look(el, &mut |look| {
        if let Some(Datum::Json(value)) = look.attributes().named(key) {
            found = Some(value.clone());
        }
    });
    found
}

fn naming(kind: &str, name: &str, warn: &mut impl FnMut(String)) {
    let lower = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
    let camel = name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains('_');
    if kind == CONCEPT_TYPE && !name.starts_with('$') && !camel {
        warn(format!("types are named in UpperCamelCase: \"{name}\""));
    }
    if kind == PROPOSITION_TYPE && !name.chars().all(lower) {
        warn(format!("predicates are named in snake_case: \"{name}\""));
    }
}

/// Warns of missing attributes of a new concept, and of attributes with wrong types.
fn instance(concept: &Concept, new: bool, schema: &Value, warn: &mut impl FnMut(String)) {
    let (kind, name) = (concept.kind.as_str(), concept.name.as_str());
    let mut lacks: Vec<&str> = Vec::new();
    for (key, rule) in schema.as_object().into_iter().flatten() {
        let given = concept.attributes.named(key);
        let required = rule.get("is_required").and_then(Value::as_bool).unwrap_or(false);
        match (given, rule.get("type").and_then(Value::as_str)) {
            (None, _) if required && new => lacks.push(key),
            (Some(value), Some(wanted)) if !value.is_null() && !is_of(&value.to_json(), wanted) => {
                warn(format!("{key} of {kind} \"{name}\" should be of type {wanted}"));
            }
            _ => {}
        }
    }
    if !lacks.is_empty() {
        warn(format!("{kind} \"{name}\" lacks {}, which its type asks for", lacks.join(", ")));
    }
}

fn is_of(value: &Value, wanted: &str) -> bool {
    match wanted {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        // An unknown type name cannot be checked.
        _ => true,
    }
}

fn end(
    graph: &dyn GraphRead,
    predicate: Sym,
    what: &str,
    allowed: &Value,
    el: ElementId,
    warn: &mut impl FnMut(String),
) {
    let Some(allowed) = allowed.as_array() else { return };
    let Some((kind, name)) = graph.key(el) else { return };
    let kind = kind.as_str();
    if !allowed.is_empty() && !allowed.iter().filter_map(Value::as_str).any(|name| name == "*" || name == kind) {
        let names: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        warn(format!(
            "the {what} of \"{}\" should be {}, not {kind} \"{name}\"",
            predicate.as_str(),
            names.join(" or "),
        ));
    }
}
