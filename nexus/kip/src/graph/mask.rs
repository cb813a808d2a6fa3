//! Veils: filters that hide elements of a graph, for example because of scopes or because a newer state of an element
//! exists.

use std::collections::{HashMap, HashSet};

use super::sorted::{Batch, Place};
use super::text::{Postings, Words};
use super::{Direction, Edge, ElementId, ElementRef, GraphRead, Ids, Record};
use crate::datum::Sym;

/// A filter that hides elements of a graph.
pub trait Mask {
    /// Returns `true` if nothing is hidden, so that no element needs a test.
    fn is_open(&self) -> bool;
    /// Returns `true` if an element of `graph` is hidden.
    fn hides(&self, graph: &dyn GraphRead, el: ElementId) -> bool;
    /// Appends the elements of `els` that are not hidden to `seen`. `els` are sorted.
    fn let_through(&self, graph: &dyn GraphRead, els: &[ElementId], seen: &mut Vec<ElementId>) {
        seen.extend(els.iter().filter(|el| !self.hides(graph, **el)));
    }
    /// Returns the state of a visible element that the reader sees, if it is another one than the stored one.
    fn seen_as(&self, _: ElementRef<'_>) -> Option<Record> {
        None
    }
    /// Returns `true` if the concepts of a type may be read in the order of a stored attribute.
    fn sorts(&self, _kind: Sym) -> bool {
        true
    }
    /// Returns the number of hidden concepts of a type, or of all.
    fn hidden_concepts(&self, graph: &dyn GraphRead, kind: Option<Sym>) -> usize;
    /// Returns the number of hidden links of a predicate, or of all.
    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize;
}

/// Sums counts by type or predicate (the flag is `true` for links), for one or for all.
pub fn counted<'c>(
    counts: impl IntoIterator<Item = (&'c (bool, Sym), &'c usize)>,
    links: bool,
    kind: Option<Sym>,
) -> usize {
    let wanted = |(of, name): &(bool, Sym)| *of == links && kind.is_none_or(|kind| kind == *name);
    counts.into_iter().filter(|(key, _)| wanted(key)).map(|(_, count)| count).sum()
}

/// Counts hidden elements by type and predicate (the flag is `true` for links): the elements in `hidden` and the
/// links attached to them.
pub fn hidden_with_links(graph: &dyn GraphRead, mut hidden: Vec<ElementId>) -> HashMap<(bool, Sym), usize> {
    let (mut counts, mut gone) = (HashMap::new(), HashSet::new());
    while let Some(el) = hidden.pop() {
        if !gone.insert(el) {
            continue;
        }
        graph.look(el, &mut |look| *counts.entry((el.is_link(), look.kind())).or_default() += 1);
        for way in [Direction::Out, Direction::In] {
            graph.edges(el, way, None, &mut |edge| {
                hidden.push(edge.link);
                true
            });
        }
    }
    counts
}

/// Returns `true` if an element is hidden. A link is hidden if one of its ends is. `hides` decides on an element
/// without its ends; it receives `None` for an element that does not exist.
pub fn hides_with_ends(
    graph: &dyn GraphRead,
    el: ElementId,
    hides: &dyn Fn(ElementId, Option<ElementRef<'_>>) -> bool,
) -> bool {
    // Links about links may form a deep and wide web, so each element is tested only once.
    let (mut asked, mut waiting) = (HashSet::new(), vec![el]);
    while let Some(el) = waiting.pop() {
        let (mut there, mut hidden, mut ends) = (false, false, None);
        graph.look(el, &mut |look| {
            there = true;
            hidden = hides(el, Some(look));
            if let ElementRef::Link(link) = look {
                ends = Some([link.subject, link.object]);
            }
        });
        if hidden || (!there && hides(el, None)) {
            return true;
        }
        if let Some(ends) = ends
            && asked.insert(el)
        {
            waiting.extend(ends.into_iter().filter(|end| !asked.contains(end)));
        }
    }
    false
}

/// A graph behind a veil; see the module documentation.
pub struct Masked<'g, V> {
    graph: &'g dyn GraphRead,
    mask: V,
    open: bool,
}

impl<'g, V: Mask> Masked<'g, V> {
    /// Returns `graph` behind `mask`.
    pub fn behind(mask: V, graph: &'g dyn GraphRead) -> Self {
        let open = mask.is_open();
        Self { graph, mask, open }
    }

    #[inline]
    fn sees(&self, el: ElementId) -> bool {
        self.open || !self.mask.hides(self.graph, el)
    }

    /// Reads batches of `more` until `max` visible elements are found or there are no more.
    fn visible(
        &self,
        after: ElementId,
        max: usize,
        more: impl Fn(ElementId, usize) -> Vec<ElementId>,
    ) -> Vec<ElementId> {
        let mut found = more(after, max);
        if self.open {
            return found;
        }
        let mut out = Vec::new();
        while let Some(last) = found.last().copied() {
            out.extend(found.iter().copied().filter(|el| self.sees(*el)));
            if out.len() >= max {
                break;
            }
            found = more(last, max);
        }
        out.truncate(max);
        out
    }
}

impl<V: Mask> GraphRead for Masked<'_, V> {
    fn look(&self, el: ElementId, see: &mut dyn FnMut(ElementRef<'_>)) {
        if self.open {
            self.graph.look(el, see);
        } else if self.sees(el) {
            self.graph.look(el, &mut |look| match self.mask.seen_as(look) {
                Some(record) => see(record.look()),
                None => see(look),
            });
        }
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<ElementId> {
        self.graph.concept(kind, name).filter(|el| self.sees(*el))
    }

    fn link(&self, subject: ElementId, predicate: Sym, object: ElementId) -> Option<ElementId> {
        self.graph.link(subject, predicate, object).filter(|el| self.sees(*el))
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        let types = self.graph.types();
        if self.open {
            return types;
        }
        types.into_iter().map(|(kind, _)| (kind, self.type_len(kind))).filter(|(_, len)| *len > 0).collect()
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        let all = self.graph.predicates();
        if self.open {
            return all;
        }
        all.into_iter().map(|(name, _)| (name, self.predicate_len(Some(name)))).filter(|(_, len)| *len > 0).collect()
    }

    fn type_len(&self, kind: Sym) -> usize {
        let all = self.graph.type_len(kind);
        if self.open { all } else { all.saturating_sub(self.mask.hidden_concepts(self.graph, Some(kind))) }
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        let all = self.graph.predicate_len(predicate);
        if self.open { all } else { all.saturating_sub(self.mask.hidden_links(self.graph, predicate)) }
    }

    fn of_type(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId> {
        self.visible(after, max, |after, max| self.graph.of_type(kind, after, max))
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: ElementId, max: usize) -> Vec<ElementId> {
        self.visible(after, max, |after, max| self.graph.of_predicate(predicate, after, max))
    }

    fn concepts(&self, after: ElementId, max: usize) -> Vec<ElementId> {
        self.visible(after, max, |after, max| self.graph.concepts(after, max))
    }

    fn edges(&self, el: ElementId, way: Direction, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        if self.open {
            self.graph.edges(el, way, predicate, see);
        } else {
            self.graph.edges(el, way, predicate, &mut |edge| !self.sees(edge.link) || see(edge));
        }
    }

    fn degree(&self, el: ElementId, way: Direction, predicate: Option<Sym>) -> usize {
        if self.open {
            return self.graph.degree(el, way, predicate);
        }
        let mut count = 0;
        self.edges(el, way, predicate, &mut |_| {
            count += 1;
            true
        });
        count
    }

    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, ElementId)>> {
        if !self.open && !self.mask.sorts(batch.kind) {
            return None;
        }
        let mut found = self.graph.sorted(batch)?;
        if self.open {
            return Some(found);
        }
        let mut out = Vec::new();
        while let Some(last) = found.last().cloned() {
            out.extend(found.into_iter().filter(|(_, el)| self.sees(*el)));
            if out.len() >= batch.max {
                break;
            }
            found = self.graph.sorted(&Batch { after: Some(&last), ..*batch })?;
        }
        out.truncate(batch.max);
        Some(out)
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        if self.open || self.mask.sorts(kind) { self.graph.sorted_len(kind, key) } else { None }
    }

    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words)) {
        if self.open {
            return self.graph.words(links, ask);
        }
        let hidden = match links {
            true => self.mask.hidden_links(self.graph, None),
            false => self.mask.hidden_concepts(self.graph, None),
        };
        self.graph.words(links, &mut |words| {
            let elements = words.elements().saturating_sub(hidden);
            ask(&MaskedWords { words, elements, masked: self });
        });
    }

    fn ids(&self) -> Ids {
        self.graph.ids()
    }
}

/// The full-text index of a graph, restricted to visible elements. A word that occurs only in hidden elements does
/// not exist, and hidden elements do not influence scores; otherwise a search would reveal them.
struct MaskedWords<'w, V> {
    words: &'w dyn Words,
    elements: usize,
    masked: &'w Masked<'w, V>,
}

struct MaskedPostings<'w, V> {
    postings: Box<dyn Postings + 'w>,
    count: usize,
    masked: &'w Masked<'w, V>,
}

impl<V: Mask> Words for MaskedWords<'_, V> {
    fn postings(&self, word: &str) -> Option<Box<dyn Postings + '_>> {
        let postings = self.words.postings(word)?;
        // An estimate from a sample would let hidden elements influence the count.
        let (mut count, mut seen) = (0, Vec::new());
        postings.each(&mut |els, _| {
            seen.clear();
            self.masked.mask.let_through(self.masked.graph, els, &mut seen);
            count += seen.len();
            true
        });
        (count > 0).then(|| Box::new(MaskedPostings { postings, count, masked: self.masked }) as Box<dyn Postings>)
    }

    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool) {
        self.words.words_from(first, see);
    }

    fn elements(&self) -> usize {
        self.elements
    }
}

impl<V: Mask> Postings for MaskedPostings<'_, V> {
    fn count(&self) -> usize {
        self.count
    }

    fn level(&self, el: ElementId) -> Option<u8> {
        self.postings.level(el).filter(|_| self.masked.sees(el))
    }

    fn each(&self, see: &mut dyn FnMut(&[ElementId], u8) -> bool) {
        let mut seen = Vec::new();
        self.postings.each(&mut |els, level| {
            seen.clear();
            self.masked.mask.let_through(self.masked.graph, els, &mut seen);
            seen.is_empty() || see(&seen, level)
        });
    }

    fn at(&self, level: u8, see: &mut dyn FnMut(&[ElementId]) -> bool) {
        let mut seen = Vec::new();
        self.postings.at(level, &mut |els| {
            seen.clear();
            self.masked.mask.let_through(self.masked.graph, els, &mut seen);
            seen.is_empty() || see(&seen)
        });
    }
}
