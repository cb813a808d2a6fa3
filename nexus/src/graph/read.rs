//! What the engine may ask a graph, and the view through which everyone asks.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::element::{Element, No, number, to_json};
use super::{Graph, text};
use crate::principal::{Principal, Scope};

/// Which links are wanted; what is `None` may be anything.
#[derive(Clone, Debug, Default)]
pub struct Pattern<'a> {
    /// Where it starts.
    pub subject: Option<No>,
    /// One of these predicates; empty is any.
    pub predicates: &'a [Arc<str>],
    /// Where it points.
    pub object: Option<No>,
}

/// What the executor asks of a graph. The resident snapshot answers it; so will a store-backed reader.
pub trait GraphRead {
    /// One element.
    fn element(&self, no: No) -> Option<Arc<Element>>;
    /// The concept of that type and name.
    fn concept(&self, kind: &str, name: &str) -> Option<No>;
    /// Concepts of a type, in order of creation.
    fn of_type(&self, kind: &str) -> Vec<No>;
    /// Concepts of a name, in order of creation.
    fn named(&self, name: &str) -> Vec<No>;
    /// Links that fit, in order of creation.
    fn links(&self, pattern: &Pattern<'_>) -> Vec<No>;
    /// About how many links fit; used to order joins.
    fn links_estimate(&self, pattern: &Pattern<'_>) -> usize;
    /// Concepts that the words find, best first, with a score in (0, 1].
    fn search(&self, words: &str, kind: Option<&str>, limit: usize) -> Vec<(No, f32)>;

    /// The element an id names.
    fn by_id(&self, id: &str) -> Option<No> {
        let no = number(id)?;
        (self.element(no)?.id(no) == id).then_some(no)
    }

    /// The whole element as KIP answers it.
    fn json(&self, no: No) -> Value {
        let id_of = |end| self.element(end).map_or_else(|| format!("C:{end}"), |element| element.id(end));
        self.element(no).map_or(Value::Null, |element| to_json(no, &element, id_of))
    }
}

impl GraphRead for Graph {
    fn element(&self, no: No) -> Option<Arc<Element>> {
        self.elements.get(&no).cloned()
    }

    fn concept(&self, kind: &str, name: &str) -> Option<No> {
        self.by_key.get(&(Arc::from(kind), Arc::from(name))).copied()
    }

    fn of_type(&self, kind: &str) -> Vec<No> {
        self.by_type.get(kind).map_or_else(Vec::new, |set| set.iter().copied().collect())
    }

    fn named(&self, name: &str) -> Vec<No> {
        self.by_name.get(name).map_or_else(Vec::new, |set| set.iter().copied().collect())
    }

    fn links(&self, pattern: &Pattern<'_>) -> Vec<No> {
        if let (Some(subject), [predicate], Some(object)) = (pattern.subject, pattern.predicates, pattern.object) {
            return self.links.get(&(subject, predicate.clone(), object)).copied().into_iter().collect();
        }
        let fits = |no: &No| match self.elements.get(no).map(|element| &**element) {
            Some(Element::Link(link)) => {
                pattern.subject.is_none_or(|subject| subject == link.subject)
                    && pattern.object.is_none_or(|object| object == link.object)
                    && (pattern.predicates.is_empty() || pattern.predicates.contains(&link.predicate))
            }
            _ => false,
        };
        let from_end = pattern.subject.map(|no| self.out.get(&no)).or(pattern.object.map(|no| self.into.get(&no)));
        match from_end {
            Some(set) => set.into_iter().flatten().copied().filter(fits).collect(),
            None if pattern.predicates.is_empty() => self.elements.keys().copied().filter(fits).collect(),
            None => {
                let mut found: Vec<No> = pattern
                    .predicates
                    .iter()
                    .filter_map(|predicate| self.by_predicate.get(predicate))
                    .flatten()
                    .copied()
                    .collect();
                found.sort_unstable();
                found
            }
        }
    }

    fn links_estimate(&self, pattern: &Pattern<'_>) -> usize {
        let ends = [pattern.subject.map(|no| self.out.get(&no)), pattern.object.map(|no| self.into.get(&no))];
        let smallest_end = ends.into_iter().flatten().map(|set| set.map_or(0, OrdSetLen::length)).min();
        let by_predicate: usize = pattern
            .predicates
            .iter()
            .filter_map(|predicate| self.by_predicate.get(predicate))
            .map(OrdSetLen::length)
            .sum();
        match (smallest_end, pattern.predicates.is_empty()) {
            (Some(end), true) => end,
            (Some(end), false) => end.min(by_predicate),
            (None, false) => by_predicate,
            (None, true) => self.elements.len(),
        }
    }

    fn search(&self, words: &str, kind: Option<&str>, limit: usize) -> Vec<(No, f32)> {
        let of_kind = |no: No| match (kind, self.elements.get(&no).map(|element| &**element)) {
            (None, Some(_)) => true,
            (Some(kind), Some(Element::Concept(concept))) => &*concept.kind == kind,
            _ => false,
        };
        self.text.search(&text::terms(words), of_kind, limit)
    }
}

trait OrdSetLen {
    fn length(&self) -> usize;
}

impl OrdSetLen for imbl::OrdSet<No> {
    fn length(&self) -> usize {
        self.len()
    }
}

/// A snapshot as one principal may see it: what carries scopes the principal is not in does not exist.
#[derive(Clone)]
pub struct View {
    graph: Arc<Graph>,
    /// `None` sees everything.
    scopes: Option<BTreeSet<Scope>>,
}

/// The metadata key that limits who sees an element: a list of scopes.
const SCOPES_KEY: &str = "access_scopes";

impl View {
    /// `graph` as `principal` may see it; its own mind (`own`) a lifeform sees whole.
    pub fn new(graph: Arc<Graph>, principal: &Principal, own: bool) -> Self {
        let sees_all = own || principal.may(crate::principal::Role::Operator);
        Self { graph, scopes: (!sees_all).then(|| principal.scopes.clone()) }
    }

    /// The snapshot itself, for a writer that has been let in.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    fn sees(&self, no: No) -> bool {
        let Some(scopes) = &self.scopes else { return true };
        let Some(element) = self.graph.element(no) else { return false };
        let itself = match element.properties().metadata.get(SCOPES_KEY) {
            Some(Value::Array(listed)) => {
                listed.iter().filter_map(Value::as_str).any(|scope| scopes.contains(&Scope(scope.into())))
            }
            _ => true,
        };
        // A link is as hidden as either of its ends.
        itself
            && match &*element {
                Element::Link(link) => self.sees(link.subject) && self.sees(link.object),
                Element::Concept(_) => true,
            }
    }
}

impl GraphRead for View {
    fn element(&self, no: No) -> Option<Arc<Element>> {
        self.sees(no).then(|| self.graph.element(no))?
    }

    fn concept(&self, kind: &str, name: &str) -> Option<No> {
        self.graph.concept(kind, name).filter(|no| self.sees(*no))
    }

    fn of_type(&self, kind: &str) -> Vec<No> {
        self.graph.of_type(kind).into_iter().filter(|no| self.sees(*no)).collect()
    }

    fn named(&self, name: &str) -> Vec<No> {
        self.graph.named(name).into_iter().filter(|no| self.sees(*no)).collect()
    }

    fn links(&self, pattern: &Pattern<'_>) -> Vec<No> {
        self.graph.links(pattern).into_iter().filter(|no| self.sees(*no)).collect()
    }

    fn links_estimate(&self, pattern: &Pattern<'_>) -> usize {
        self.graph.links_estimate(pattern)
    }

    fn search(&self, words: &str, kind: Option<&str>, limit: usize) -> Vec<(No, f32)> {
        // Hidden hits must not take up the places of visible ones.
        let of_kind = |no: No| {
            self.sees(no) && kind.is_none_or(|kind| matches!(self.graph.element(no).as_deref(), Some(Element::Concept(concept)) if &*concept.kind == kind))
        };
        self.graph.text().search(&text::terms(words), of_kind, limit)
    }
}
