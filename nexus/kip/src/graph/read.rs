//! The operations of the engine on a graph. The resident graph implements them, and so do a principal's view of it, two
//! graphs as one, and a graph that does not fit into memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::sorted::{Batch, Place};
use super::text::{self, Hit, Words};
use super::{Edge, El, Ids, Look, Record};
use crate::datum::Sym;

/// The end of a link that is known.
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
    /// A batch of the index of a type by an attribute; `None` when there is no such index.
    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, El)>>;
    /// Returns the number of concepts in the index of a type by an attribute, or `None` if there is no such index.
    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize>;
    /// Calls `ask` with the words of the concepts, or of the links. What is hidden may still be counted there.
    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words));

    /// Up to `limit` elements, concepts or links, that hold the words and that `fits` lets through, best first.
    fn search(&self, words: &[Arc<str>], links: bool, limit: usize, fits: &mut dyn FnMut(El) -> bool) -> Vec<Hit> {
        let mut hits = Vec::new();
        self.words(links, &mut |known| hits = text::search(known, words, limit, &mut |el| self.has(el) && fits(el)));
        hits
    }

    /// The ids of the elements that are seen here.
    fn ids(&self) -> Ids;

    /// An owned copy of an element.
    fn record(&self, el: El) -> Option<Record> {
        let mut found = None;
        self.look(el, &mut |look| found = Some(look.record()));
        found
    }

    /// Returns `true` if the graph has an element.
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

    /// Returns `true` for a concept of that type, or a link of that predicate.
    fn is_of(&self, el: El, kind: Sym) -> bool {
        let mut is = false;
        self.look(el, &mut |look| is = look.kind() == kind);
        is
    }

    /// The whole element as KIP answers it.
    fn json(&self, el: El) -> serde_json::Value {
        let mut shown = serde_json::Value::Null;
        self.look(el, &mut |look| shown = look.to_json(el, &self.ids()));
        shown
    }
}

/// The operations of a writer on a graph.
pub trait GraphWrite: GraphRead {
    /// Puts a new element in, under the next number of its kind.
    fn add(&mut self, record: Record) -> El;
    /// Puts an element in under a number that it has or had, replacing the present one.
    fn put(&mut self, el: El, record: Record);
    /// Takes an element out; what points at it is the caller's to remove.
    fn remove(&mut self, el: El);
    /// Every link that begins or ends at an element, in order; also those whose other end is out of sight.
    fn links_at(&self, el: El) -> BTreeSet<El> {
        let mut found = BTreeSet::new();
        for way in [Way::Out, Way::In] {
            self.edges(el, way, None, &mut |edge| {
                found.insert(edge.link);
                true
            });
        }
        found
    }
    /// Returns `true` for a definition that is read here and changes elsewhere: a new wording of it becomes a
    /// definition of this graph's own, with the same name.
    fn is_lent(&self, _el: El) -> bool {
        false
    }
    /// Takes the newest element out as if it had never been: its number is given again.
    fn unmake(&mut self, el: El);
}

/// Answers [`GraphRead`] through a method that lends a view of the graph:
/// `fn view<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> R`.
#[macro_export]
macro_rules! reads_through {
    ($view:ident) => {
        fn look(&self, el: $crate::El, see: &mut dyn FnMut($crate::graph::Look<'_>)) {
            self.$view(|graph| graph.look(el, see))
        }
        fn concept(&self, kind: $crate::datum::Sym, name: &str) -> Option<$crate::El> {
            self.$view(|graph| graph.concept(kind, name))
        }
        fn link(&self, subject: $crate::El, predicate: $crate::datum::Sym, object: $crate::El) -> Option<$crate::El> {
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
        fn of_type(&self, kind: $crate::datum::Sym, after: $crate::El, max: usize) -> Vec<$crate::El> {
            self.$view(|graph| graph.of_type(kind, after, max))
        }
        fn of_predicate(
            &self,
            predicate: Option<$crate::datum::Sym>,
            after: $crate::El,
            max: usize,
        ) -> Vec<$crate::El> {
            self.$view(|graph| graph.of_predicate(predicate, after, max))
        }
        fn concepts(&self, after: $crate::El, max: usize) -> Vec<$crate::El> {
            self.$view(|graph| graph.concepts(after, max))
        }
        fn edges(
            &self,
            el: $crate::El,
            way: $crate::graph::Way,
            predicate: Option<$crate::datum::Sym>,
            see: &mut dyn FnMut($crate::graph::Edge) -> bool,
        ) {
            self.$view(|graph| graph.edges(el, way, predicate, see))
        }
        fn degree(&self, el: $crate::El, way: $crate::graph::Way, predicate: Option<$crate::datum::Sym>) -> usize {
            self.$view(|graph| graph.degree(el, way, predicate))
        }
        fn sorted(
            &self,
            batch: &$crate::graph::sorted::Batch<'_>,
        ) -> Option<Vec<($crate::graph::sorted::Place, $crate::El)>> {
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
