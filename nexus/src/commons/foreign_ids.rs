//! The commons with the element numbers that other minds use for it.

use kip::datum::Sym;
use kip::graph::sorted::{Batch, Place};
use kip::graph::text::{Postings, Words};
use kip::graph::{Direction, Edge, ElementId, ElementRef, GraphRead, Ids, Link, Record};

use super::is_shared;

/// The commons with the element numbers of other minds.
pub(super) struct Abroad<'g>(pub(super) &'g dyn GraphRead);

impl Abroad<'_> {
    /// Converts the position of an ordered scan to this graph. `after` is an element of this graph or of the graph
    /// before it in the order.
    fn after(after: ElementId) -> ElementId {
        match after {
            here if here.is_abroad() => here.home(),
            link if link.is_link() => ElementId::FIRST_LINK,
            _ => ElementId::NONE,
        }
    }

    fn named(els: Vec<ElementId>) -> Vec<ElementId> {
        els.into_iter().map(ElementId::abroad).collect()
    }
}

impl GraphRead for Abroad<'_> {
    fn look(&self, el: ElementId, see: &mut dyn FnMut(ElementRef<'_>)) {
        if el.is_abroad() {
            self.0.look(el.home(), &mut |look| match look {
                ElementRef::Concept(_) => see(look),
                ElementRef::Link(_) => see(outward(look.record()).look()),
            });
        }
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<ElementId> {
        self.0.concept(kind, name).map(ElementId::abroad)
    }

    fn link(&self, subject: ElementId, predicate: Sym, object: ElementId) -> Option<ElementId> {
        let both = subject.is_abroad() && object.is_abroad();
        self.0.link(subject.home(), predicate, object.home()).filter(|_| both).map(ElementId::abroad)
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        self.0.types()
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        self.0.predicates()
    }

    fn type_len(&self, kind: Sym) -> usize {
        // Concepts of other types are not shared, so they need no count.
        if is_shared(kind) || kind.as_str().starts_with('$') { self.0.type_len(kind) } else { 0 }
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        self.0.predicate_len(predicate)
    }

    fn of_type(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId> {
        Self::named(self.0.of_type(kind, Self::after(after), max))
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: ElementId, max: usize) -> Vec<ElementId> {
        Self::named(self.0.of_predicate(predicate, Self::after(after), max))
    }

    fn concepts(&self, after: ElementId, max: usize) -> Vec<ElementId> {
        Self::named(self.0.concepts(Self::after(after), max))
    }

    fn edges(&self, el: ElementId, way: Direction, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        if el.is_abroad() {
            self.0.edges(el.home(), way, predicate, &mut |edge| {
                see(Edge { predicate: edge.predicate, other: edge.other.abroad(), link: edge.link.abroad() })
            });
        }
    }

    fn degree(&self, el: ElementId, way: Direction, predicate: Option<Sym>) -> usize {
        if el.is_abroad() { self.0.degree(el.home(), way, predicate) } else { 0 }
    }

    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, ElementId)>> {
        // Among equal values, commons elements sort after the mind's own.
        let after =
            batch.after.map(|(place, el)| (place.clone(), if el.is_abroad() { el.home() } else { ElementId::NONE }));
        let found = self.0.sorted(&Batch { after: after.as_ref(), ..*batch })?;
        Some(found.into_iter().map(|(place, el)| (place, el.abroad())).collect())
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        self.0.sorted_len(kind, key)
    }

    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn Words)) {
        self.0.words(links, &mut |words| ask(&WordsAbroad(words)));
    }

    fn ids(&self) -> Ids {
        self.0.ids().abroad()
    }
}

struct WordsAbroad<'w>(&'w dyn Words);

struct ForeignPostings<'w>(Box<dyn Postings + 'w>);

impl Words for WordsAbroad<'_> {
    fn postings(&self, word: &str) -> Option<Box<dyn Postings + '_>> {
        Some(Box::new(ForeignPostings(self.0.postings(word)?)))
    }

    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool) {
        self.0.words_from(first, see);
    }

    fn elements(&self) -> usize {
        self.0.elements()
    }
}

impl Postings for ForeignPostings<'_> {
    fn count(&self) -> usize {
        self.0.count()
    }

    fn level(&self, el: ElementId) -> Option<u8> {
        if el.is_abroad() { self.0.level(el.home()) } else { None }
    }

    fn each(&self, see: &mut dyn FnMut(&[ElementId], u8) -> bool) {
        let mut named = Vec::new();
        self.0.each(&mut |els, level| {
            named.clear();
            named.extend(els.iter().map(|el| el.abroad()));
            see(&named, level)
        });
    }

    fn at(&self, level: u8, see: &mut dyn FnMut(&[ElementId]) -> bool) {
        let mut named = Vec::new();
        self.0.at(level, &mut |els| {
            named.clear();
            named.extend(els.iter().map(|el| el.abroad()));
            see(&named)
        });
    }
}

/// Converts a record of the commons to the numbering of other minds.
pub(super) fn outward(record: Record) -> Record {
    match record {
        Record::Link(link) => {
            Record::Link(Link { subject: link.subject.abroad(), object: link.object.abroad(), ..link })
        }
        concept => concept,
    }
}

/// Converts a record of the commons to the commons' own numbering.
pub(super) fn homeward(record: Record) -> Record {
    match record {
        Record::Link(link) => Record::Link(Link { subject: link.subject.home(), object: link.object.home(), ..link }),
        concept => concept,
    }
}
