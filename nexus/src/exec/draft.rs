//! A graph under change: a clone of the snapshot, and which elements differ from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::clock::Timestamp;
use crate::graph::{Element, Graph, GraphRead, No, Pattern};
use crate::kip::{ErrorKind, KipError};

/// See the module. Dropping it undoes everything.
pub struct Draft {
    /// The graph as changed so far.
    pub graph: Graph,
    /// Every element that was written (`true`) or removed (`false`).
    pub changed: BTreeMap<No, bool>,
    /// Things that were ignored, in words.
    pub warnings: Vec<String>,
    now: Timestamp,
    /// An operator's capsule may write what is protected.
    pub privileged: bool,
}

/// Concepts that no command may delete (R28).
const PROTECTED: [(&str, &str); 8] = [
    ("$ConceptType", "$ConceptType"),
    ("$ConceptType", "$PropositionType"),
    ("$ConceptType", "Domain"),
    ("$ConceptType", "Person"),
    ("$PropositionType", "belongs_to_domain"),
    ("Domain", "CoreSchema"),
    ("Person", "$self"),
    ("Person", "$system"),
];

impl Draft {
    /// A draft of `graph` at time `now`.
    pub fn new(graph: &Graph, now: Timestamp, privileged: bool) -> Self {
        Self { graph: graph.clone(), changed: BTreeMap::new(), warnings: Vec::new(), now, privileged }
    }

    /// Adds a new element.
    pub(super) fn insert(&mut self, mut element: Element) -> No {
        let no = self.graph.next;
        let metadata = &mut element.properties_mut().metadata;
        metadata.insert("_version".into(), 1.into());
        metadata.insert("_created_at".into(), self.now.to_string().into());
        metadata.insert("_updated_at".into(), self.now.to_string().into());
        self.graph.put(no, element);
        self.changed.insert(no, true);
        no
    }

    /// Changes an element's properties; what comes out equal is no change, so that repeating a
    /// command leaves versions alone. Answers whether it changed.
    pub(super) fn change(&mut self, no: No, change: impl FnOnce(&mut Element)) -> bool {
        let Some(old) = self.graph.element(no) else { return false };
        let mut new = (*old).clone();
        change(&mut new);
        if new == *old {
            return false;
        }
        let metadata = &mut new.properties_mut().metadata;
        let version = metadata.get("_version").and_then(Value::as_u64).unwrap_or(0) + 1;
        metadata.insert("_version".into(), version.into());
        metadata.insert("_updated_at".into(), self.now.to_string().into());
        self.graph.put(no, new);
        self.changed.insert(no, true);
        true
    }

    /// Removes an element and, transitively, every link on it (R29); answers how many links went.
    pub(super) fn remove(&mut self, no: No) -> usize {
        let mut links = 0;
        let mut waiting = vec![no];
        while let Some(no) = waiting.pop() {
            let Some(element) = self.graph.element(no) else { continue };
            waiting.extend(self.graph.links(&Pattern { subject: Some(no), ..Pattern::default() }));
            waiting.extend(self.graph.links(&Pattern { object: Some(no), ..Pattern::default() }));
            links += usize::from(matches!(*element, Element::Link(_)));
            self.graph.remove(no);
            self.changed.insert(no, false);
        }
        links
    }

    /// Refuses a deletion that would take the core or a definition in use.
    pub(super) fn check_deletable(&self, no: No) -> Result<(), KipError> {
        let refuse = |what: String| Err(KipError::new(ErrorKind::Immutable, what));
        let Some(element) = self.graph.element(no) else { return Ok(()) };
        match &*element {
            Element::Concept(concept) => {
                let key = (&*concept.kind, &*concept.name);
                if PROTECTED.contains(&key) {
                    return refuse(format!(
                        "{{type: \"{}\", name: \"{}\"}} is part of the core and cannot be deleted",
                        key.0, key.1
                    ));
                }
                let in_use = match key.0 {
                    "$ConceptType" => self.graph.of_type(key.1).len(),
                    "$PropositionType" => self
                        .graph
                        .links(&Pattern { predicates: std::slice::from_ref(&concept.name), ..Pattern::default() })
                        .len(),
                    _ => 0,
                };
                if in_use > 0 {
                    return refuse(format!("{} \"{}\" is in use by {in_use} elements", key.0, key.1));
                }
            }
            Element::Link(link) => {
                let core = matches!(self.graph.element(link.subject).as_deref(), Some(Element::Concept(concept)) if PROTECTED.contains(&(&*concept.kind, &*concept.name)));
                if core && &*link.predicate == "belongs_to_domain" {
                    return refuse("the core's membership in its domain cannot be deleted".into());
                }
            }
        }
        Ok(())
    }

    /// Refuses to set or delete an attribute that protects the core (R28).
    pub(super) fn check_writable<'a>(&self, no: No, mut keys: impl Iterator<Item = &'a str>) -> Result<(), KipError> {
        let Some(Element::Concept(concept)) = self.graph.element(no).as_deref().cloned() else { return Ok(()) };
        let guarded = match (&*concept.kind, &*concept.name) {
            ("$ConceptType", "$ConceptType" | "$PropositionType") => "instance_schema",
            ("Person", "$self" | "$system") => "core_directives",
            _ => return Ok(()),
        };
        if !self.privileged && keys.any(|key| key == guarded) {
            return Err(KipError::new(ErrorKind::Immutable, format!("{guarded} of \"{}\" is protected", concept.name)));
        }
        Ok(())
    }
}

/// Keys that begin with `_` belong to the engine.
pub(super) fn check_metadata(metadata: &Map<String, Value>) -> Result<(), KipError> {
    match metadata.keys().find(|key| key.starts_with('_')) {
        Some(key) => Err(KipError::new(ErrorKind::Schema, format!("metadata key {key} is kept by the engine"))
            .hint("use a key that does not begin with '_'")),
        None => Ok(()),
    }
}

/// The predicate must be defined, and so must the type (K3).
pub(super) fn check_defined(graph: &Graph, meta: &str, name: &Arc<str>) -> Result<(), KipError> {
    if name.starts_with('$') && meta == "$ConceptType" && (&**name == "$ConceptType" || &**name == "$PropositionType") {
        return Ok(());
    }
    match graph.concept(meta, name) {
        Some(_) => Ok(()),
        None => {
            let what = if meta == "$ConceptType" { "concept type" } else { "predicate" };
            Err(KipError::new(ErrorKind::Schema, format!("{what} \"{name}\" is not defined"))
                .hint(format!("define it first: UPSERT {{ CONCEPT ?t {{ {{type: \"{meta}\", name: \"{name}\"}} SET ATTRIBUTES {{ description: \"…\" }} }} }}")))
        }
    }
}
