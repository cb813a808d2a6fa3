//! Bulk construction of a graph. All elements are collected first and then sorted, which is several times faster for
//! millions of elements than inserting them one by one.

use std::collections::HashMap;

use imbl::OrdMap;

use super::pages::Pages;
use super::text::{Gathered, Index, Lexicon, words_of};
use super::{Edge, Edges, ElementId, ElementRef, Ends, Graph, Record, Rule, hash, is_dense};
use crate::datum::Sym;

/// A builder of a graph; see the module documentation.
#[derive(Default)]
pub struct Builder {
    graph: Graph,
    keys: Vec<(u64, ElementId)>,
    by_kind: HashMap<(bool, Sym), Vec<ElementId>>,
    /// The link ends of elements; the flag is `true` for links that start at the element.
    edges: Vec<(ElementId, bool, Edge)>,
}

impl Builder {
    /// Adds an element that was not added before.
    pub fn push(&mut self, el: ElementId, record: Record) {
        let look = record.look();
        self.by_kind.entry((el.is_link(), look.kind())).or_default().push(el);
        self.graph.weight += look.weight();
        if let Some(rule) = Rule::of(look) {
            self.graph.limited.insert(el, look.kind(), rule);
        }
        match record {
            Record::Concept(concept) => {
                self.keys.push((hash(concept.kind, &concept.name), el));
                self.graph.next_concept = self.graph.next_concept.max(el.no() + 1);
                self.graph.concepts.put(el.no(), concept);
            }
            Record::Link(link) => {
                let (predicate, subject, object) = (link.predicate, link.subject, link.object);
                self.edges.push((subject, true, Edge { predicate, other: object, link: el }));
                self.edges.push((object, false, Edge { predicate, other: subject, link: el }));
                self.graph.next_link = self.graph.next_link.max(el.no() + 1);
                self.graph.links.put(el.no(), link);
            }
        }
    }

    /// Builds the graph of all added elements. The full-text index is built later.
    pub fn finish(self) -> Graph {
        let Self { mut graph, keys, by_kind, edges } = self;
        graph.next_concept = graph.next_concept.max(1);
        graph.next_link = graph.next_link.max(1);
        // Building the links takes as long as all other parts together.
        (graph.ends, graph.sparse_ends) = std::thread::scope(|scope| {
            let ends = scope.spawn(|| ends_of(edges));
            graph.take_keys(keys);
            graph.take_kinds(by_kind);
            ends.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let now = graph.clone();
        graph.words = Lexicon::late(move || now.find_words());
        graph
    }
}

/// Builds the links at both ends of every element.
fn ends_of(mut edges: Vec<(ElementId, bool, Edge)>) -> (Pages<Ends>, OrdMap<ElementId, Ends>) {
    let (mut dense, mut sparse) = (Pages::default(), OrdMap::new());
    edges.sort_unstable();
    for at in edges.chunk_by(|a, b| a.0 == b.0) {
        let side = |out: bool| at.iter().filter(move |(_, way, _)| *way == out).map(|(.., edge)| *edge);
        let ends = Ends { out: Edges::of(side(true).collect()), into: Edges::of(side(false).collect()) };
        let el = at[0].0;
        if is_dense(el) { drop(dense.put(el.no(), ends)) } else { drop(sparse.insert(el, ends)) }
    }
    (dense, sparse)
}

impl Graph {
    /// Builds a graph of elements. Each may occur only once.
    pub fn of(elements: impl IntoIterator<Item = (ElementId, Record)>) -> Self {
        let mut builder = Builder::default();
        elements.into_iter().for_each(|(el, record)| builder.push(el, record));
        builder.finish()
    }

    /// Builds the full-text index of a bulk-built graph now instead of on first use.
    pub fn ready_words(&self) {
        self.words.get(false);
    }

    fn take_keys(&mut self, mut keys: Vec<(u64, ElementId)>) {
        keys.sort_unstable();
        let mut last = None;
        for (hash, el) in keys {
            match self.concepts.get(el.no()) {
                // Two keys with the same hash.
                Some(concept) if last == Some(hash) => {
                    self.crowded.insert((concept.kind, concept.name.clone()), el);
                }
                _ => drop(self.keys.insert(hash, el)),
            }
            last = Some(hash);
        }
    }

    fn take_kinds(&mut self, by_kind: HashMap<(bool, Sym), Vec<ElementId>>) {
        for ((links, kind), mut els) in by_kind {
            els.sort_unstable();
            let set = els.into_iter().collect();
            if links {
                self.by_predicate.insert(kind, set)
            } else {
                self.by_type.insert(kind, set)
            };
        }
    }

    fn find_words(&self) -> [Index; 2] {
        let (mut words, mut link_words) = (Gathered::default(), Gathered::default());
        self.concepts
            .after(0)
            .for_each(|(no, concept)| words.take(ElementId::concept(no), words_of(ElementRef::Concept(concept))));
        self.links
            .after(0)
            .for_each(|(no, link)| link_words.take(ElementId::link(no), words_of(ElementRef::Link(link))));
        [words.finish(), link_words.finish()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Direction, GraphRead, GraphWrite};
    use crate::{Engine, Request};

    #[test]
    fn a_graph_made_at_once_is_the_one_made_step_by_step() {
        let mut engine = Engine::born(|| 0);
        engine.execute(&Request::new(
            r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Boat"} } CONCEPT { {type: "$PropositionType", name: "near"} } }"#,
        ));
        for n in 0..200 {
            let answer = engine.execute(&Request::new(format!(
                r#"UPSERT {{ CONCEPT ?b {{ {{type: "Boat", name: "boat {n}"}} SET ATTRIBUTES {{ note: "number {} of many" }}
                   SET PROPOSITIONS {{ ("near", {{type: "Boat", name: "boat 0"}}) ("near", {{type: "Boat", name: "boat {}"}}) }} }}
                   PROPOSITION {{ ({{type: "Boat", name: "boat {n}"}}, "near", ({{type: "Boat", name: "boat {n}"}}, "near", {{type: "Boat", name: "boat 0"}})) SET ATTRIBUTES {{ seen: "from afar" }} }} }}
                   WITH METADATA {{ access_scopes: ["user:u{}"] }}"#,
                n % 7, n / 2, n % 3
            )));
            assert!(answer.get("error").is_none(), "{answer}");
        }
        let (slow, mut fast) = (engine.graph.clone(), Graph::of(engine.graph.records()));
        let limited = |graph: &Graph| format!("{:?}", graph.limited().iter().collect::<Vec<_>>());
        let numbers = |graph: &Graph| (graph.next_concept, graph.next_link, graph.len(), graph.weight());
        assert_eq!(numbers(&fast), numbers(&slow));
        assert_eq!(
            (fast.types(), fast.predicates(), limited(&fast)),
            (slow.types(), slow.predicates(), limited(&slow))
        );
        let ask = |graph: &Graph| {
            let mut listed = Vec::new();
            for (el, record) in slow.records() {
                let mut edges = Vec::new();
                for way in [Direction::Out, Direction::In] {
                    graph.edges(el, way, None, &mut |edge| {
                        edges.push(edge);
                        true
                    });
                }
                let found = match &record {
                    Record::Concept(concept) => graph.concept(concept.kind, &concept.name),
                    Record::Link(link) => graph.link(link.subject, link.predicate, link.object),
                };
                listed.push((el, graph.json(el), edges, found));
            }
            listed
        };
        assert_eq!(ask(&fast), ask(&slow));
        for words in [&["boat"][..], &["3", "many"], &["numbr"], &["afa"]] {
            let words: Vec<std::sync::Arc<str>> = words.iter().map(|word| (*word).into()).collect();
            for links in [false, true] {
                let search = |graph: &Graph| graph.search(&words, links, 50, &mut |_| true);
                assert_eq!(search(&fast), search(&slow), "{words:?}");
            }
        }
        // Later changes have the same effect on both graphs.
        for el in slow.records().map(|(el, _)| el).collect::<Vec<_>>().into_iter().rev() {
            fast.remove(el);
        }
        assert_eq!(
            (fast.len(), fast.weight(), fast.words.get(false).words(), fast.words.get(true).words()),
            ((0, 0), 0, 0, 0)
        );
        assert!(
            fast.limited.is_empty()
                && fast.keys.is_empty()
                && fast.sparse_ends.is_empty()
                && fast.by_predicate.is_empty()
        );
    }
}
