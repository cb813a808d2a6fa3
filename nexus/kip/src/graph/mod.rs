//! The resident graph: compact, interned, and persistent. A clone is a snapshot of a few pointers that readers share.
//! A writer changes its own clone in place and copies only the parts that a snapshot still holds.

pub mod acl_groups;
mod build;
mod edges;
mod ids;
mod mask;
mod pages;
mod privacy;
mod read;
mod record;
mod scoped;
pub mod sorted;
pub mod text;
mod union;

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use arcstr::ArcStr;
use imbl::{HashMap, OrdMap, OrdSet};

pub use acl_groups::{LEVEL_KEY, Limited, OWNER_KEY, Rule, SCOPES_KEY, is_private};
pub use build::Builder;
pub use edges::{Edge, Edges};
pub use ids::{Ids, Numbering};
pub use mask::{Mask, Masked, counted, hidden_with_links, hides_with_ends};
pub use read::{Direction, GraphRead, GraphWrite};
pub use record::{Concept, ElementId, ElementRef, Later, Link, Record, Stamp, shown, source_of};
pub use scoped::Scoped;
use sorted::{Batch, Place, Sorted};
pub use union::Union;

use crate::datum::Sym;
use pages::Pages;

/// The resident graph; see the module documentation.
#[derive(Clone, Default)]
pub struct Graph {
    concepts: Pages<Concept>,
    links: Pages<Link>,
    /// The links at concepts, and the links at other ends: at links, and at elements of the commons.
    ends: Pages<Ends>,
    sparse_ends: OrdMap<ElementId, Ends>,
    /// Concepts by the hash of type and name. Keys with the same hash are stored together in `crowded`.
    keys: OrdMap<u64, ElementId>,
    crowded: OrdMap<(Sym, ArcStr), ElementId>,
    by_type: HashMap<Sym, OrdSet<ElementId>>,
    by_predicate: HashMap<Sym, OrdSet<ElementId>>,
    words: text::Lexicon,
    sorted: HashMap<(Sym, Sym), Sorted>,
    limited: Limited,
    weight: usize,
    /// The numbering, which maps element numbers to ids.
    pub numbering: Numbering,
    /// The number of the next concept.
    pub next_concept: u32,
    /// The number of the next link.
    pub next_link: u32,
}

/// The maximum number of secondary indexes per graph.
pub const INDEXES_MAX: usize = 64;

/// The links at both ends of an element.
#[derive(Clone, Default)]
struct Ends {
    out: Edges,
    into: Edges,
}

/// The hash key is random, so that nobody can create names that collide on purpose.
static HASH: LazyLock<RandomState> = LazyLock::new(RandomState::new);

fn hash(kind: Sym, name: &str) -> u64 {
    HASH.hash_one((kind.as_str().as_ptr() as usize, name))
}

impl Graph {
    /// Returns an empty graph.
    pub fn new() -> Self {
        Self { next_concept: 1, next_link: 1, ..Self::default() }
    }

    /// Returns the numbers of concepts and of links.
    pub fn len(&self) -> (usize, usize) {
        (self.concepts.len(), self.links.len())
    }

    /// Returns `true` if the graph has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Returns copies of all elements: concepts first, each kind in order.
    pub fn records(&self) -> impl Iterator<Item = (ElementId, Record)> {
        let concepts =
            self.concepts.after(0).map(|(no, concept)| (ElementId::concept(no), Record::Concept(concept.clone())));
        let links = self.links.after(0).map(|(no, link)| (ElementId::link(no), Record::Link(link.clone())));
        concepts.chain(links)
    }

    /// Returns the restricted elements.
    pub fn limited(&self) -> &Limited {
        &self.limited
    }

    /// Returns the estimated memory of the graph, in bytes.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns a borrowed view of an element.
    pub fn get(&self, el: ElementId) -> Option<ElementRef<'_>> {
        if el.is_link() {
            self.links.get(el.no()).map(ElementRef::Link)
        } else {
            self.concepts.get(el.no()).map(ElementRef::Concept)
        }
    }

    fn put_concept(&mut self, el: ElementId, concept: Concept) {
        self.next_concept = self.next_concept.max(el.no() + 1);
        let old = self.concepts.get(el.no()).cloned();
        let renamed = old.as_ref().is_none_or(|old| old.kind != concept.kind || old.name != concept.name);
        if renamed {
            if let Some(old) = &old {
                self.drop_key(el, old);
            }
            self.by_type.entry(concept.kind).or_default().insert(el);
            self.put_key(el, &concept);
        }
        self.words.get_mut(false).change(
            el,
            old.as_ref().map(ElementRef::Concept),
            Some(ElementRef::Concept(&concept)),
        );
        self.resort(el, old.as_ref(), Some(&concept));
        self.limited.put(el, ElementRef::Concept(&concept));
        self.reweigh(old.as_ref().map(ElementRef::Concept), Some(ElementRef::Concept(&concept)));
        self.concepts.put(el.no(), concept);
    }

    fn put_link(&mut self, el: ElementId, link: Link) {
        self.next_link = self.next_link.max(el.no() + 1);
        let old = self.links.get(el.no()).cloned();
        let moved = old
            .as_ref()
            .is_none_or(|old| (old.subject, old.predicate, old.object) != (link.subject, link.predicate, link.object));
        if moved {
            if let Some(old) = &old {
                self.drop_edges(el, old);
            }
            self.by_predicate.entry(link.predicate).or_default().insert(el);
            self.ends_mut(link.subject).out.insert(Edge { predicate: link.predicate, other: link.object, link: el });
            self.ends_mut(link.object).into.insert(Edge { predicate: link.predicate, other: link.subject, link: el });
        }
        self.words.get_mut(true).change(el, old.as_ref().map(ElementRef::Link), Some(ElementRef::Link(&link)));
        self.limited.put(el, ElementRef::Link(&link));
        self.reweigh(old.as_ref().map(ElementRef::Link), Some(ElementRef::Link(&link)));
        self.links.put(el.no(), link);
    }

    fn put_key(&mut self, el: ElementId, concept: &Concept) {
        let hash = hash(concept.kind, &concept.name);
        match self.keys.get(&hash) {
            Some(other) if *other != el => {
                self.crowded.insert((concept.kind, concept.name.clone()), el);
            }
            _ => drop(self.keys.insert(hash, el)),
        }
    }

    fn drop_key(&mut self, el: ElementId, concept: &Concept) {
        let hash = hash(concept.kind, &concept.name);
        if self.keys.get(&hash) == Some(&el) {
            self.keys.remove(&hash);
        }
        self.crowded.remove(&(concept.kind, concept.name.clone()));
        if let Some(set) = self.by_type.get_mut(&concept.kind) {
            set.remove(&el);
            if set.is_empty() {
                self.by_type.remove(&concept.kind);
            }
        }
    }

    fn drop_edges(&mut self, el: ElementId, link: &Link) {
        self.change_ends(link.subject, |ends| {
            ends.out.remove(&Edge { predicate: link.predicate, other: link.object, link: el })
        });
        self.change_ends(link.object, |ends| {
            ends.into.remove(&Edge { predicate: link.predicate, other: link.subject, link: el })
        });
        if let Some(set) = self.by_predicate.get_mut(&link.predicate) {
            set.remove(&el);
            if set.is_empty() {
                self.by_predicate.remove(&link.predicate);
            }
        }
    }

    fn ends(&self, el: ElementId) -> Option<&Ends> {
        if is_dense(el) { self.ends.get(el.no()) } else { self.sparse_ends.get(&el) }
    }

    fn ends_mut(&mut self, el: ElementId) -> &mut Ends {
        if is_dense(el) { self.ends.entry(el.no()) } else { self.sparse_ends.entry(el).or_default() }
    }

    /// Changes the links at an element, and frees their entry when none remains.
    fn change_ends(&mut self, el: ElementId, change: impl FnOnce(&mut Ends)) {
        let ends = self.ends_mut(el);
        change(ends);
        if ends.out.is_empty() && ends.into.is_empty() {
            if is_dense(el) {
                self.ends.remove(el.no());
            } else {
                self.sparse_ends.remove(&el);
            }
        }
    }

    fn edges_of(&self, el: ElementId, way: Direction) -> Option<&Edges> {
        let ends = self.ends(el)?;
        Some(if way == Direction::Out { &ends.out } else { &ends.into })
    }

    fn reweigh(&mut self, old: Option<ElementRef<'_>>, new: Option<ElementRef<'_>>) {
        let weight = |look: Option<ElementRef<'_>>| look.map_or(0, ElementRef::weight);
        self.weight = self.weight + weight(new) - weight(old);
    }

    // ---- secondary indexes ----

    /// Builds the index of a type by an attribute, if it does not exist.
    pub fn sort_by(&mut self, kind: Sym, key: Sym) {
        if self.sorted.contains_key(&(kind, key)) || self.sorted.len() == INDEXES_MAX {
            return;
        }
        let mut index = Sorted::default();
        for el in self.by_type.get(&kind).into_iter().flatten() {
            if let Some(value) = self.concepts.get(el.no()).and_then(|concept| concept.attributes.get(key)) {
                index.insert(value, *el);
            }
        }
        self.sorted.insert((kind, key), index);
    }

    /// Updates the indexes for a changed concept.
    fn resort(&mut self, el: ElementId, old: Option<&Concept>, new: Option<&Concept>) {
        if self.sorted.is_empty() {
            return;
        }
        let keys = |concept: Option<&Concept>| {
            let kind = concept.map(|concept| concept.kind);
            concept
                .into_iter()
                .flat_map(move |c| c.attributes.pairs())
                .filter_map(move |(key, value)| Some((kind?, *key, value.clone())))
                .collect::<Vec<_>>()
        };
        let (old, new) = (keys(old), keys(new));
        for (kind, key, value) in &old {
            if !new.contains(&(*kind, *key, value.clone()))
                && let Some(index) = self.sorted.get_mut(&(*kind, *key))
            {
                index.remove(value, el);
            }
        }
        for (kind, key, value) in &new {
            if !old.contains(&(*kind, *key, value.clone()))
                && let Some(index) = self.sorted.get_mut(&(*kind, *key))
            {
                index.insert(value, el);
            }
        }
    }
}

/// Returns `true` for an element whose links are stored in an array by number, because this graph's concepts have
/// consecutive numbers.
fn is_dense(el: ElementId) -> bool {
    !el.is_link() && !el.is_abroad()
}

/// Returns up to `max` elements of a set after `after`.
fn batch(set: Option<&OrdSet<ElementId>>, after: ElementId, max: usize) -> Vec<ElementId> {
    let Some(set) = set else { return Vec::new() };
    set.range((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded)).take(max).copied().collect()
}

impl GraphRead for Graph {
    fn look(&self, el: ElementId, see: &mut dyn FnMut(ElementRef<'_>)) {
        if let Some(look) = self.get(el) {
            see(look);
        }
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<ElementId> {
        let fits =
            |el: &ElementId| self.concepts.get(el.no()).is_some_and(|found| found.kind == kind && found.name == name);
        let found = self.keys.get(&hash(kind, name)).copied().filter(fits);
        if found.is_some() || self.crowded.is_empty() {
            return found;
        }
        self.crowded.get(&(kind, ArcStr::from(name))).copied()
    }

    fn link(&self, subject: ElementId, predicate: Sym, object: ElementId) -> Option<ElementId> {
        let (out, into) = (self.edges_of(subject, Direction::Out)?, self.edges_of(object, Direction::In)?);
        if into.len() < out.len() { into.find(predicate, subject) } else { out.find(predicate, object) }
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        let mut types: Vec<(Sym, usize)> = self.by_type.iter().map(|(kind, set)| (*kind, set.len())).collect();
        types.sort_by_key(|(kind, _)| kind.as_str());
        types
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        let mut all: Vec<(Sym, usize)> = self.by_predicate.iter().map(|(name, set)| (*name, set.len())).collect();
        all.sort_by_key(|(name, _)| name.as_str());
        all
    }

    fn type_len(&self, kind: Sym) -> usize {
        self.by_type.get(&kind).map_or(0, OrdSet::len)
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        match predicate {
            Some(name) => self.by_predicate.get(&name).map_or(0, OrdSet::len),
            None => self.links.len(),
        }
    }

    fn of_type(&self, kind: Sym, after: ElementId, max: usize) -> Vec<ElementId> {
        batch(self.by_type.get(&kind), after, max)
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: ElementId, max: usize) -> Vec<ElementId> {
        match predicate {
            Some(name) => batch(self.by_predicate.get(&name), after, max),
            None => self.links.after(after.no()).take(max).map(|(no, _)| ElementId::link(no)).collect(),
        }
    }

    fn concepts(&self, after: ElementId, max: usize) -> Vec<ElementId> {
        self.concepts.after(after.no()).take(max).map(|(no, _)| ElementId::concept(no)).collect()
    }

    fn edges(&self, el: ElementId, way: Direction, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        if let Some(edges) = self.edges_of(el, way) {
            edges.each(predicate, see);
        }
    }

    fn degree(&self, el: ElementId, way: Direction, predicate: Option<Sym>) -> usize {
        self.edges_of(el, way).map_or(0, |edges| edges.count(predicate))
    }

    fn sorted(&self, batch: &Batch<'_>) -> Option<Vec<(Place, ElementId)>> {
        Some(self.sorted.get(&(batch.kind, batch.key))?.batch(batch))
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        self.sorted.get(&(kind, key)).map(Sorted::len)
    }

    fn words(&self, links: bool, ask: &mut dyn FnMut(&dyn text::Words)) {
        ask(self.words.get(links));
    }

    fn ids(&self) -> Ids {
        self.numbering.into()
    }
}

impl GraphWrite for Graph {
    fn add(&mut self, record: Record) -> ElementId {
        let el = match record {
            Record::Concept(_) => ElementId::concept(self.next_concept),
            Record::Link(_) => ElementId::link(self.next_link),
        };
        self.put(el, record);
        el
    }

    fn put(&mut self, el: ElementId, record: Record) {
        match record {
            Record::Concept(concept) => self.put_concept(el, concept),
            Record::Link(link) => self.put_link(el, link),
        }
    }

    fn remove(&mut self, el: ElementId) {
        self.limited.remove(el);
        if el.is_link() {
            let Some(old) = self.links.remove(el.no()) else { return };
            self.drop_edges(el, &old);
            self.words.get_mut(true).change(el, Some(ElementRef::Link(&old)), None);
            self.reweigh(Some(ElementRef::Link(&old)), None);
        } else {
            let Some(old) = self.concepts.remove(el.no()) else { return };
            self.drop_key(el, &old);
            self.words.get_mut(false).change(el, Some(ElementRef::Concept(&old)), None);
            self.resort(el, Some(&old), None);
            self.reweigh(Some(ElementRef::Concept(&old)), None);
        }
    }

    fn unmake(&mut self, el: ElementId) {
        self.remove(el);
        let next = if el.is_link() { &mut self.next_link } else { &mut self.next_concept };
        if *next == el.no() + 1 {
            *next = el.no();
        }
    }
}
