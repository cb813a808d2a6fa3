//! A whole graph made at once. Everything is gathered first and then put in order, which for millions of elements
//! is several times faster than to put them in one by one.

use std::collections::HashMap;

use arcstr::ArcStr;

use super::text::{Gathered, words_of};
use super::{Edge, Edges, El, Ends, Graph, Record, hash, is_dense, is_limited};
use crate::datum::Sym;

/// See the module.
#[derive(Default)]
pub struct Builder {
    graph: Graph,
    keys: Vec<(u64, El)>,
    by_kind: HashMap<(bool, Sym), Vec<El>>,
    /// Where an element's links go, with the flag set, and come from.
    edges: Vec<(El, bool, Edge)>,
    words: [Gathered; 2],
}

/// An element with its words, which may be found on another thread.
pub struct Prepared {
    el: El,
    record: Record,
    words: Vec<(ArcStr, u8)>,
}

impl Prepared {
    /// Finds the words of an element.
    pub fn new(el: El, record: Record) -> Self {
        let words = words_of(record.look());
        Self { el, record, words }
    }
}

impl Builder {
    /// Takes up an element that was not taken up before.
    pub fn push(&mut self, Prepared { el, record, words }: Prepared) {
        let look = record.look();
        self.by_kind.entry((el.is_link(), look.kind())).or_default().push(el);
        self.graph.weight += look.weight();
        if is_limited(look) {
            self.graph.scoped.insert(el);
        }
        self.words[usize::from(el.is_link())].take(el, words);
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

    /// The graph of everything taken up.
    pub fn finish(self) -> Graph {
        let Self { mut graph, mut keys, by_kind, mut edges, words: [words, link_words] } = self;
        graph.next_concept = graph.next_concept.max(1);
        graph.next_link = graph.next_link.max(1);
        keys.sort_unstable();
        let mut last = None;
        for (hash, el) in keys {
            match graph.concepts.get(el.no()) {
                // Two keys of one hash.
                Some(concept) if last == Some(hash) => {
                    graph.crowded.insert((concept.kind, concept.name.clone()), el);
                }
                _ => drop(graph.keys.insert(hash, el)),
            }
            last = Some(hash);
        }
        for ((links, kind), mut els) in by_kind {
            els.sort_unstable();
            let set = els.into_iter().collect();
            if links {
                graph.by_predicate.insert(kind, set)
            } else {
                graph.by_type.insert(kind, set)
            };
        }
        edges.sort_unstable();
        for at in edges.chunk_by(|a, b| a.0 == b.0) {
            let side = |out: bool| at.iter().filter(move |(_, way, _)| *way == out).map(|(.., edge)| *edge);
            let ends = Ends { out: Edges::of(side(true).collect()), into: Edges::of(side(false).collect()) };
            let el = at[0].0;
            if is_dense(el) { drop(graph.ends.put(el.no(), ends)) } else { drop(graph.sparse_ends.insert(el, ends)) }
        }
        graph.words = words.finish();
        graph.link_words = link_words.finish();
        graph
    }
}

impl Graph {
    /// A graph of elements, each of which stands there once.
    pub fn of(elements: impl IntoIterator<Item = (El, Record)>) -> Self {
        let mut builder = Builder::default();
        elements.into_iter().for_each(|(el, record)| builder.push(Prepared::new(el, record)));
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{GraphRead, GraphWrite, Way};
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
        let numbers = |graph: &Graph| (graph.next_concept, graph.next_link, graph.len(), graph.weight());
        assert_eq!(numbers(&fast), numbers(&slow));
        assert_eq!(
            (fast.types(), fast.predicates(), fast.limited()),
            (slow.types(), slow.predicates(), slow.limited())
        );
        let ask = |graph: &Graph| {
            let mut told = Vec::new();
            for (el, record) in slow.records() {
                let mut edges = Vec::new();
                for way in [Way::Out, Way::In] {
                    graph.edges(el, way, None, &mut |edge| {
                        edges.push(edge);
                        true
                    });
                }
                let found = match &record {
                    Record::Concept(concept) => graph.concept(concept.kind, &concept.name),
                    Record::Link(link) => graph.link(link.subject, link.predicate, link.object),
                };
                told.push((el, graph.json(el), edges, found));
            }
            told
        };
        assert_eq!(ask(&fast), ask(&slow));
        for words in [&["boat"][..], &["3", "many"], &["numbr"], &["afa"]] {
            let words: Vec<std::sync::Arc<str>> = words.iter().map(|word| (*word).into()).collect();
            for links in [false, true] {
                let search = |graph: &Graph| graph.search(&words, links, 50, &mut |_| true);
                assert_eq!(search(&fast), search(&slow), "{words:?}");
            }
        }
        // It goes on as the other does.
        for el in slow.records().map(|(el, _)| el).collect::<Vec<_>>().into_iter().rev() {
            fast.remove(el);
        }
        assert_eq!((fast.len(), fast.weight(), fast.words.words(), fast.link_words.words()), ((0, 0), 0, 0, 0));
        assert!(fast.keys.is_empty() && fast.sparse_ends.is_empty() && fast.by_predicate.is_empty());
    }
}
