//! What the engine may ask a graph. The resident graph answers it; so do a principal's view of it and a
//! graph whose elements stay in the store.

use std::sync::Arc;

use super::sorted::{Place, Range};
use super::text::Hit;
use super::{Edge, El, Look, Record};
use crate::datum::Sym;

/// Which end of a link is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From its subject to its object.
    Out,
    /// From its object to its subject.
    In,
}

/// See the module. Whatever is not visible is not there.
pub trait GraphRead {
    /// Calls `see` with an element, if it is there.
    fn look(&self, el: El, see: &mut dyn FnMut(Look<'_>));
    /// The concept of that type and name.
    fn concept(&self, kind: Sym, name: &str) -> Option<El>;
    /// The link between these two.
    fn link(&self, subject: El, predicate: Sym, object: El) -> Option<El>;
    /// Every type that has concepts, with how many there are about.
    fn types(&self) -> Vec<(Sym, usize)>;
    /// Every predicate that has links, with how many there are about.
    fn predicates(&self) -> Vec<(Sym, usize)>;
    /// About how many concepts a type has.
    fn type_len(&self, kind: Sym) -> usize;
    /// About how many links a predicate has; `None` for all predicates.
    fn predicate_len(&self, predicate: Option<Sym>) -> usize;
    /// Up to `max` concepts of a type after `after`, in order of creation.
    fn of_type(&self, kind: Sym, after: El, max: usize) -> Vec<El>;
    /// Up to `max` links of a predicate, or of all, after `after`, in order of creation.
    fn of_predicate(&self, predicate: Option<Sym>, after: El, max: usize) -> Vec<El>;
    /// Up to `max` concepts of any type after `after`.
    fn concepts(&self, after: El, max: usize) -> Vec<El>;
    /// Calls `see` for the links at one end of an element until it answers `false`.
    fn edges(&self, el: El, way: Way, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool);
    /// About how many links an element has at one end.
    fn degree(&self, el: El, way: Way, predicate: Option<Sym>) -> usize;
    /// Up to `max` entries of the index of a type by an attribute, after the last one of the batch before;
    /// `None` when there is no such index.
    fn sorted(
        &self,
        kind: Sym,
        key: Sym,
        range: &Range,
        descending: bool,
        after: Option<&(Place, El)>,
        max: usize,
    ) -> Option<Vec<(Place, El)>>;
    /// Whether there is an index of a type by an attribute, and how many concepts it holds.
    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize>;
    /// The elements, concepts or links, that hold the words, best first.
    fn search(&self, words: &[Arc<str>], links: bool, kind: Option<Sym>, limit: usize) -> Vec<Hit>;

    /// An owned copy of an element.
    fn record(&self, el: El) -> Option<Record> {
        let mut found = None;
        self.look(el, &mut |look| found = Some(look.record()));
        found
    }

    /// Whether an element is there.
    fn has(&self, el: El) -> bool {
        let mut found = false;
        self.look(el, &mut |_| found = true);
        found
    }

    /// Type and name of a concept.
    fn key(&self, el: El) -> Option<(Sym, arcstr::ArcStr)> {
        let mut found = None;
        self.look(el, &mut |look| {
            if let Look::Concept(concept) = look {
                found = Some((concept.kind, concept.name.clone()));
            }
        });
        found
    }

    /// The whole element as KIP answers it.
    fn json(&self, el: El) -> serde_json::Value {
        let mut shown = serde_json::Value::Null;
        self.look(el, &mut |look| shown = look.to_json(el));
        shown
    }
}
