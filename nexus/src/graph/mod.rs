//! The resident graph: an immutable snapshot that readers share and a draft that one writer changes.
//!
//! Every map is persistent, so a snapshot is a few pointers and a writer never disturbs a reader.
//! Elements are numbered in order of creation; `C:7` and `P:8` are the numbers as KIP shows them.

mod element;
mod read;
pub mod text;

use std::sync::Arc;

use imbl::{HashMap, OrdMap, OrdSet};

pub use element::{Concept, Element, Link, No, Properties, number};
pub use read::{GraphRead, Pattern, View};

/// See the module.
#[derive(Clone, Default)]
pub struct Graph {
    elements: OrdMap<No, Arc<Element>>,
    by_key: HashMap<(Arc<str>, Arc<str>), No>,
    by_type: HashMap<Arc<str>, OrdSet<No>>,
    by_name: HashMap<Arc<str>, OrdSet<No>>,
    by_predicate: HashMap<Arc<str>, OrdSet<No>>,
    out: HashMap<No, OrdSet<No>>,
    into: HashMap<No, OrdSet<No>>,
    links: HashMap<(No, Arc<str>, No), No>,
    text: text::Index,
    /// The number of the next element; numbers are never used twice.
    pub next: No,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self { next: 1, ..Self::default() }
    }

    /// Puts an element in, replacing the one of that number.
    pub fn put(&mut self, no: No, element: Element) {
        self.remove(no);
        match &element {
            Element::Concept(concept) => {
                self.by_key.insert((concept.kind.clone(), concept.name.clone()), no);
                self.by_type.entry(concept.kind.clone()).or_default().insert(no);
                self.by_name.entry(concept.name.clone()).or_default().insert(no);
                self.text.insert(no, concept);
            }
            Element::Link(link) => {
                self.by_predicate.entry(link.predicate.clone()).or_default().insert(no);
                self.out.entry(link.subject).or_default().insert(no);
                self.into.entry(link.object).or_default().insert(no);
                self.links.insert((link.subject, link.predicate.clone(), link.object), no);
            }
        }
        self.elements.insert(no, Arc::new(element));
        self.next = self.next.max(no + 1);
    }

    /// Takes an element out; what points at it is the caller's to remove.
    pub fn remove(&mut self, no: No) {
        let Some(old) = self.elements.remove(&no) else { return };
        match &*old {
            Element::Concept(concept) => {
                self.by_key.remove(&(concept.kind.clone(), concept.name.clone()));
                drop_from(&mut self.by_type, &concept.kind, no);
                drop_from(&mut self.by_name, &concept.name, no);
                self.text.remove(no, concept);
            }
            Element::Link(link) => {
                drop_from(&mut self.by_predicate, &link.predicate, no);
                drop_from(&mut self.out, &link.subject, no);
                drop_from(&mut self.into, &link.object, no);
                self.links.remove(&(link.subject, link.predicate.clone(), link.object));
            }
        }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// The text index, for `SEARCH`.
    pub fn text(&self) -> &text::Index {
        &self.text
    }
}

fn drop_from<K: Clone + std::hash::Hash + Eq>(sets: &mut HashMap<K, OrdSet<No>>, key: &K, no: No) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&no);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
