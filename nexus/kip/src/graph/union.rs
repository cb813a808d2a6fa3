//! The union of two graphs. They share no element, but a link of one may connect elements of the other.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::sorted::{Batch, Place};
use super::text::{LEVELS_MAX, Postings, Words};
use super::{Direction, Edge, ElementId, ElementRef, GraphRead, Ids};
use crate::datum::Sym;

/// The union of two graphs; see the module documentation.
pub struct Union<'g>(pub &'g dyn GraphRead, pub &'g dyn GraphRead);

impl Union<'_> {
    fn both(&self, more: impl Fn(&dyn GraphRead) -> Vec<ElementId>, max: usize) -> Vec<ElementId> {
        merged(more(self.0), more(self.1), max, ElementId::cmp)
    }
}

/// Merges two sorted lists.
fn merged<T>(a: Vec<T>, b: Vec<T>, max: usize, order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if a.is_empty() || b.is_empty() {
        let mut only = if a.is_empty() { b } else { a };
        only.truncate(max);
        return only;
    }
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    let mut out = Vec::new();
    while out.len() < max {
        let first = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if order(x, y).is_gt() => b.next(),
            (Some(_), _) => a.next(),
            (None, _) => b.next(),
        };
        let Some(first) = first else { break };
        out.push(first);
    }
    out
}

/// Adds counts by name.
fn summed(a: Vec<(Sym, usize)>, b: Vec<(Sym, usize)>) -> Vec<(Sym, usize)> {
    let mut all: BTreeMap<&str, (Sym, usize)> = BTreeMap::new();
    for (name, count) in a.into_iter().chain(b) {
        all.entry(name.as_str()).or_insert((name, 0)).1 += count;
    }
    all.into_values().collect()
}

impl GraphRead for Union<'_> {
    fn look(&self, el: ElementId, see: &mut dyn FnMut(ElementRef<'_>)) {
        let mut found = false;
        self.0.look(el, &mut |look| {
            found = true;
            see(look);
        });
        if !found {
            self.1.look(el, see);
        }
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<ElementId> {
        self.0.concept(kind, name).or_else(|| self.1.concept(kind, name))
    }

    fn link(&self, subject: ElementId, predicate: Sym, object: ElementId) -> Option<ElementId> {
        self.0.link(subject, predicate, object).or_else(|| self.1.link(subject, predicate, object))
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        summed(self.0.types(), self.1.types())
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        summed(self.0.predicates(), self.1.predicates())
    }

    fn type_len(&self, kind: Sym) -> usize {
        self.0.type_len(kind) + self.1.type_len(kind)
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        self.0.predicate_len(predicate) + self.1.predicate_len(predicate)
    }

    fn of_type(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId> {
        self.both(|graph| graph.of_type(kind, after, max), max)
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: ElementId, max: usize) -> Vec<ElementId> {
        self.both(|graph| graph.of_predicate(predicate, after, max), max)
    }

    fn concepts(&self, after: ElementId, max: usize) -> Vec<ElementId> {
        self.both(|graph| graph.concepts(after, max), max)
    }

    fn edges(&self, el: ElementId, way: Direction, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        let mut more = true;
        self.0.edges(el, way, predicate, &mut |edge| {
            more = see(edge);
            more
        });
        if more {
            self.1.edges(el, way, predicate, see);
        }
    }

    fn degree(&self, el: ElementId, way: Direction, predicate: Option<Sym>) -> usize {
        self.0.degree(el, way, predicate) + self.1.degree(el, way, predicate)
    }

    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, ElementId)>> {
        let (a, b) = (self.0.sorted(batch), self.1.sorted(batch));
        let (a, b) = match (a, b) {
            (Some(a), Some(b)) => (a, b),
            // A graph without concepts of the type needs no index of them.
            (Some(a), None) if self.1.type_len(batch.kind) == 0 => return Some(a),
            (None, Some(b)) if self.0.type_len(batch.kind) == 0 => return Some(b),
            _ => return None,
        };
        let order = |x: &(Place, ElementId), y: &(Place, ElementId)| if batch.descending { y.cmp(x) } else { x.cmp(y) };
        Some(merged(a, b, batch.max, order))
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        match (self.0.sorted_len(kind, key), self.1.sorted_len(kind, key)) {
            (Some(a), Some(b)) => Some(a + b),
            (Some(a), None) if self.1.type_len(kind) == 0 => Some(a),
            (None, Some(b)) if self.0.type_len(kind) == 0 => Some(b),
            _ => None,
        }
    }

    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words)) {
        self.0.words(links, &mut |first| self.1.words(links, &mut |second| ask(&UnionWords(first, second))));
    }

    fn ids(&self) -> Ids {
        self.0.ids().or(self.1.ids())
    }
}

struct UnionWords<'w>(&'w dyn Words, &'w dyn Words);

struct UnionPostings<'w>(Box<dyn Postings + 'w>, Box<dyn Postings + 'w>);

impl Words for UnionWords<'_> {
    fn postings(&self, word: &str) -> Option<Box<dyn Postings + '_>> {
        match (self.0.postings(word), self.1.postings(word)) {
            (Some(a), Some(b)) => Some(Box::new(UnionPostings(a, b))),
            (a, b) => a.or(b),
        }
    }

    fn beginning(&self, stem: &str) -> Vec<String> {
        merged(self.0.beginning(stem), self.1.beginning(stem), usize::MAX, |a, b| {
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        })
    }

    fn slips(&self, word: &str) -> Vec<(String, usize)> {
        merged(self.0.slips(word), self.1.slips(word), usize::MAX, |a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)))
    }

    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool) {
        self.0.words_from(first, see);
        self.1.words_from(first, see);
    }

    fn elements(&self) -> usize {
        self.0.elements() + self.1.elements()
    }
}

impl Postings for UnionPostings<'_> {
    fn count(&self) -> usize {
        self.0.count() + self.1.count()
    }

    fn level(&self, el: ElementId) -> Option<u8> {
        self.0.level(el).or_else(|| self.1.level(el))
    }

    fn each(&self, see: &mut dyn FnMut(&[ElementId], u8) -> bool) {
        // The scan goes level by level, so that the highest levels of both graphs come first.
        for wanted in (1..=LEVELS_MAX).rev() {
            let mut more = true;
            for postings in [&self.0, &self.1] {
                postings.at(wanted, &mut |els| {
                    more = see(els, wanted);
                    more
                });
                if !more {
                    return;
                }
            }
        }
    }

    fn at(&self, level: u8, see: &mut dyn FnMut(&[ElementId]) -> bool) {
        let mut more = true;
        self.0.at(level, &mut |els| {
            more = see(els);
            more
        });
        if more {
            self.1.at(level, see);
        }
    }
}
