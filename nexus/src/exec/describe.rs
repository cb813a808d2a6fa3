//! DESCRIBE: what is in here, and how to ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{ANSWER_MAX, limit_of};
use crate::graph::{Element, GraphRead, No, Pattern};
use crate::kip::ast::{Describe, Val};
use crate::kip::{ErrorKind, KipError};

/// Key concepts and predicates listed for each domain.
const KEY_MAX: usize = 12;

/// Runs a bound DESCRIBE.
///
/// # Errors
/// `not_found` for a type or predicate that is not defined.
pub fn describe(what: &Describe, graph: &dyn GraphRead) -> Result<Value, KipError> {
    match what {
        Describe::Primer => Ok(primer(graph)),
        Describe::Domains => Ok(names(graph, "Domain", ANSWER_MAX)),
        Describe::ConceptTypes(limit) => Ok(names(graph, "$ConceptType", limit_of(limit.as_ref(), ANSWER_MAX)?)),
        Describe::PropositionTypes(limit) => {
            Ok(names(graph, "$PropositionType", limit_of(limit.as_ref(), ANSWER_MAX)?))
        }
        Describe::ConceptType(name) => definition(graph, "$ConceptType", name),
        Describe::PropositionType(name) => definition(graph, "$PropositionType", name),
    }
}

fn names(graph: &dyn GraphRead, kind: &str, limit: usize) -> Value {
    graph
        .of_type(kind)
        .into_iter()
        .take(limit)
        .filter_map(|no| name_of(graph, no))
        .map(|name| name.to_string())
        .collect()
}

fn name_of(graph: &dyn GraphRead, no: No) -> Option<Arc<str>> {
    match &*graph.element(no)? {
        Element::Concept(concept) => Some(concept.name.clone()),
        Element::Link(_) => None,
    }
}

fn definition(graph: &dyn GraphRead, meta: &str, name: &Val) -> Result<Value, KipError> {
    let name = name.json().as_str().unwrap_or_default();
    match graph.concept(meta, name) {
        Some(no) => Ok(graph.json(no)),
        None => Err(KipError::new(ErrorKind::NotFound, format!("{meta} \"{name}\" is not defined")).hint(
            if meta == "$ConceptType" {
                "DESCRIBE CONCEPT TYPES lists them"
            } else {
                "DESCRIBE PROPOSITION TYPES lists them"
            },
        )),
    }
}

/// Identity, the domains with what is most linked in each, the sizes, and how to ask (§5.1.1).
/// The principal id of `$self` is nobody's business (the Principle of Privacy) and is left out.
fn primer(graph: &dyn GraphRead) -> Value {
    let attributes = |kind: &str, name: &str| {
        graph
            .concept(kind, name)
            .and_then(|no| graph.element(no))
            .map(|element| element.properties().attributes.clone())
    };
    let mut identity = attributes("Person", "$self").unwrap_or_default();
    identity.shift_remove("id");
    let membership: Arc<str> = "belongs_to_domain".into();
    let domains: Vec<Value> = graph
        .of_type("Domain")
        .into_iter()
        .filter_map(|domain| {
            let name = name_of(graph, domain)?;
            let members: Vec<No> = graph.links(&Pattern { predicates: std::slice::from_ref(&membership), object: Some(domain), ..Pattern::default() }).into_iter().filter_map(|link| subject_of(graph, link)).collect();
            let description = graph.element(domain)?.properties().attributes.get("description").cloned().unwrap_or(Value::Null);
            Some(json!({"name": name, "description": description, "concepts": members.len(), "key_concepts": key_concepts(graph, &members), "key_propositions": key_predicates(graph, &members)}))
        })
        .collect();
    let types: BTreeMap<String, usize> = graph
        .of_type("$ConceptType")
        .into_iter()
        .filter_map(|no| name_of(graph, no))
        .map(|name| (name.to_string(), graph.of_type(&name).len()))
        .collect();
    json!({
        "identity": identity,
        "domain_map": domains,
        "concept_types": types,
        "how_to_ask": ["SEARCH CONCEPT \"words\" LIMIT 5", "FIND(?x.name, ?x.attributes) WHERE { ?x {type: \"Person\"} } LIMIT 10", "DESCRIBE CONCEPT TYPES"],
    })
}

fn subject_of(graph: &dyn GraphRead, link: No) -> Option<No> {
    match &*graph.element(link)? {
        Element::Link(link) => Some(link.subject),
        Element::Concept(_) => None,
    }
}

fn degree(graph: &dyn GraphRead, no: No) -> usize {
    graph.links_estimate(&Pattern { subject: Some(no), ..Pattern::default() })
        + graph.links_estimate(&Pattern { object: Some(no), ..Pattern::default() })
}

fn key_concepts(graph: &dyn GraphRead, members: &[No]) -> Vec<String> {
    let mut ranked: Vec<(usize, No)> = members.iter().map(|no| (degree(graph, *no), *no)).collect();
    ranked.sort_by_key(|(degree, no)| (std::cmp::Reverse(*degree), *no));
    ranked.into_iter().take(KEY_MAX).filter_map(|(_, no)| name_of(graph, no)).map(|name| name.to_string()).collect()
}

fn key_predicates(graph: &dyn GraphRead, members: &[No]) -> Vec<String> {
    let mut uses: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for no in members {
        for link in graph.links(&Pattern { subject: Some(*no), ..Pattern::default() }) {
            if let Some(Element::Link(link)) = graph.element(link).as_deref() {
                *uses.entry(link.predicate.clone()).or_default() += 1;
            }
        }
    }
    let mut ranked: Vec<(usize, Arc<str>)> = uses.into_iter().map(|(name, uses)| (uses, name)).collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    ranked.into_iter().take(KEY_MAX).map(|(_, name)| name.to_string()).collect()
}
