//! The operations of the engine on a graph. Implementations are the resident graph, a principal's view of it, the
//! union of two graphs, and a graph on disk.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::sorted::{Batch, Place};
use super::text::{self, Hit, Words};
use super::{Edge, ElementId, ElementRef, Ids, Record};
use crate::datum::Sym;

/// A direction: the end of a link that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From its subject to its object.
    Out,
    /// From its object to its subject.
    In,
}

/// Read access to a graph; see the module documentation. Invisible elements behave as if they did not exist.
pub trait GraphRead {
    /// Calls `see` with an element if it exists.
    fn look(&self, el: ElementId, see: &mut dyn FnMut(ElementRef<'_>));
    /// Returns the concept of a type and name.
    fn concept(&self, kind: Sym, name: &str) -> Option<ElementId>;
    /// Returns the link with these ends and this predicate.
    fn link(&self, subject: ElementId, predicate: Sym, object: ElementId) -> Option<ElementId>;
    /// Returns every type that has visible concepts, with their number.
    fn types(&self) -> Vec<(Sym, usize)>;
    /// Returns every predicate that has visible links, with their number.
    fn predicates(&self) -> Vec<(Sym, usize)>;
    /// Returns the exact number of visible concepts of a type; `COUNT` relies on it.
    fn type_len(&self, kind: Sym) -> usize;
    /// Returns the exact number of visible links of a predicate; `None` for all predicates.
    fn predicate_len(&self, predicate: Option<Sym>) -> usize;
    /// Returns up to `max` concepts of a type after `after`, in order of creation.
    fn of_type(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId>;
    /// Returns up to `max` links of a predicate, or of all, after `after`, in order of creation.
    fn of_predicate(&self, predicate: Option<Sym>, after: ElementId, max: usize) -> Vec<ElementId>;
    /// Returns up to `max` concepts of any type after `after`.
    fn concepts(&self, after: ElementId, max: usize) -> Vec<ElementId>;
    /// Calls `see` for the links at one end of an element until `see` returns `false`.
    fn edges(&self, el: ElementId, way: Direction, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool);
    /// Returns the approximate number of links at one end of an element.
    fn degree(&self, el: ElementId, way: Direction, predicate: Option<Sym>) -> usize;
    /// Returns a batch from the index of a type by an attribute; `None` when there is no such index.
    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, ElementId)>>;
    /// Returns the number of concepts in the index of a type by an attribute, or `None` if there is no such index.
    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize>;
    /// Calls `ask` with the full-text index of the concepts, or of the links. Its counts may include hidden elements.
    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words));

    /// Returns up to `limit` elements, concepts or links, that contain the words and that `fits` accepts, best first.
    fn search(
        &self,
        words: &[Arc<str>],
        links: bool,
        limit: usize,
        fits: &mut dyn FnMut(ElementId) -> bool,
    ) -> Vec<Hit> {
        let mut hits = Vec::new();
        self.words(links, &mut |known| hits = text::search(known, words, limit, &mut |el| self.has(el) && fits(el)));
        hits
    }

    /// Returns the ids of the elements in this graph.
    fn ids(&self) -> Ids;

    /// Returns an owned copy of an element.
    fn record(&self, el: ElementId) -> Option<Record> {
        let mut found = None;
        self.look(el, &mut |look| found = Some(look.record()));
        found
    }

    /// Returns `true` if the graph has an element.
    fn has(&self, el: ElementId) -> bool {
        let mut found = false;
        self.look(el, &mut |_| found = true);
        found
    }

    /// Returns the type and name of a concept.
    fn key(&self, el: ElementId) -> Option<(Sym, arcstr::ArcStr)> {
        let mut found = None;
        self.look(el, &mut |look| {
            if let ElementRef::Concept(concept) = look {
                found = Some((concept.kind, concept.name.clone()));
            }
        });
        found
    }

    /// Returns `true` for a concept of that type, or a link of that predicate.
    fn is_of(&self, el: ElementId, kind: Sym) -> bool {
        let mut is = false;
        self.look(el, &mut |look| is = look.kind() == kind);
        is
    }

    /// Returns the whole element in the form of KIP output.
    fn json(&self, el: ElementId) -> serde_json::Value {
        let mut shown = serde_json::Value::Null;
        self.look(el, &mut |look| shown = look.to_json(el, &self.ids()));
        shown
    }
}

/// The operations of a writer on a graph.
pub trait GraphWrite: GraphRead {
    /// Adds a new element under the next number of its kind.
    fn add(&mut self, record: Record) -> ElementId;
    /// Stores an element under a number that it has or had, replacing the present one.
    fn put(&mut self, el: ElementId, record: Record);
    /// Removes an element; the caller must remove the links that point at it.
    fn remove(&mut self, el: ElementId);
    /// Returns every link at an element, in order, including those whose other end is invisible.
    fn links_at(&self, el: ElementId) -> BTreeSet<ElementId> {
        let mut found = BTreeSet::new();
        for way in [Direction::Out, Direction::In] {
            self.edges(el, way, None, &mut |edge| {
                found.insert(edge.link);
                true
            });
        }
        found
    }
    /// Returns `true` for a definition of another graph that is only readable here. A change of it becomes a
    /// definition of this graph with the same name.
    fn is_lent(&self, _el: ElementId) -> bool {
        false
    }
    /// Removes the newest element without a trace: its number is assigned again.
    fn unmake(&mut self, el: ElementId);
}

/// Implements [`GraphRead`] through a method that provides a view of the graph: `fn view<R>(&self, then: impl
/// FnOnce(&dyn GraphRead) -> R) -> R`.
#[macro_export]
macro_rules! reads_through {
    ($view:ident) => {
        fn look(&self, el: $crate::ElementId, see: &mut dyn FnMut($crate::graph::ElementRef<'_>)) {
            self.$view(|graph| graph.look(el, see))
        }
        fn concept(&self, kind: $crate::datum::Sym, name: &str) -> Option<$crate::ElementId> {
            self.$view(|graph| graph.concept(kind, name))
        }
        fn link(
            &self,
            subject: $crate::ElementId,
            predicate: $crate::datum::Sym,
            object: $crate::ElementId,
        ) -> Option<$crate::ElementId> {
            self.$view(|graph| graph.link(subject, predicate, object))
        }
        fn types(&self) -> Vec<($crate::datum::Sym, usize)> {
            self.$view(|graph| graph.types())
        }
        fn predicates(&self) -> Vec<($crate::datum::Sym, usize)> {
            self.$view(|graph| graph.predicates())
        }
        fn type_len(&self, kind: $crate::datum::Sym) -> usize {
            self.$view(|graph| graph.type_len(kind))
        }
        fn predicate_len(&self, predicate: Option<$crate::datum::Sym>) -> usize {
            self.$view(|graph| graph.predicate_len(predicate))
        }
        fn of_type(&self, kind: $crate::datum::Sym, after: $crate::ElementId, max: usize) -> Vec<$crate::ElementId> {
            self.$view(|graph| graph.of_type(kind, after, max))
        }
        fn of_predicate(
            &self,
            predicate: Option<$crate::datum::Sym>,
            after: $crate::ElementId,
            max: usize,
        ) -> Vec<$crate::ElementId> {
            self.$view(|graph| graph.of_predicate(predicate, after, max))
        }
        fn concepts(&self, after: $crate::ElementId, max: usize) -> Vec<$crate::ElementId> {
            self.$view(|graph| graph.concepts(after, max))
        }
        fn edges(
            &self,
            el: $crate::ElementId,
            way: $crate::graph::Direction,
            predicate: Option<$crate::datum::Sym>,
            see: &mut dyn FnMut($crate::graph::Edge) -> bool,
        ) {
            self.$view(|graph| graph.edges(el, way, predicate, see))
        }
        fn degree(
            &self,
            el: $crate::ElementId,
            way: $crate::graph::Direction,
            predicate: Option<$crate::datum::Sym>,
        ) -> usize {
            self.$view(|graph| graph.degree(el, way, predicate))
        }
        fn sorted(
            &self,
            batch: &$crate::graph::sorted::Batch<'_>,
        ) -> Option<Vec<($crate::graph::sorted::Place, $crate::ElementId)>> {
            self.$view(|graph| graph.sorted(batch))
        }
        fn sorted_len(&self, kind: $crate::datum::Sym, key: $crate::datum::Sym) -> Option<usize> {
            self.$view(|graph| graph.sorted_len(kind, key))
        }
        fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn $crate::graph::text::Words)) {
            self.$view(|graph| graph.words(links, ask))
        }
        fn ids(&self) -> $crate::graph::Ids {
            self.$view(|graph| graph.ids())
        }
    };
}
