//! Restricted elements, grouped by access rule. A rule is stored once for all its elements, so hidden elements are
//! counted without visiting each of them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pages::Pages;
use super::privacy::Privacy;
use super::{ElementId, ElementRef};
use crate::datum::{Datum, Properties, Sym};

/// The metadata key that restricts the readers of an element: a list of scopes.
pub const SCOPES_KEY: &str = "access_scopes";
/// The metadata of a source of a link that names those who heard it.
pub(super) const HEARD_KEY: &str = "heard_by";
/// The metadata key of an element's owner. The owner always sees the element.
pub const OWNER_KEY: &str = "owner";

/// The access rule of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    /// The owner.
    owner: Option<Arc<str>>,
    /// The scopes of which a reader must have at least one. With `None`, the visibility of the commons element at the
    /// other end decides.
    scopes: Option<BTreeSet<Arc<str>>>,
    /// The person of whom some attributes are private; the others see the element without these.
    #[serde(default)]
    person: Option<Arc<str>>,
}

/// The metadata key of the level of access (KIP v1.0, appendix 1). An element of another level than `public` is its owner's, or its
/// author's if it has no owner.
pub const LEVEL_KEY: &str = "access_level";
const PUBLIC: &str = "public";
const AUTHOR_KEY: &str = "author";

/// Returns `true` if the metadata of an element, or of one of its sources, names another level of access than `public`.
pub fn is_private(metadata: &Properties) -> bool {
    let level = metadata.named(LEVEL_KEY).filter(|level| !matches!(level, Datum::Null));
    level.is_some_and(|level| level.as_str() != Some(PUBLIC))
}

impl Rule {
    /// Returns the rule of an element; `None` if the element, and every commons element it points to, needs no rule.
    pub fn of(look: ElementRef<'_>) -> Option<Self> {
        let leads_abroad =
            matches!(look, ElementRef::Link(link) if link.subject.is_abroad() || link.object.is_abroad());
        let scopes = match look.metadata().named(SCOPES_KEY) {
            None | Some(Datum::Null) => None,
            Some(Datum::Str(scope)) => Some(BTreeSet::from([Arc::from(scope.as_str())])),
            Some(Datum::Json(listed)) => {
                let listed = listed.as_array().into_iter().flatten().filter_map(Value::as_str);
                Some(listed.map(Arc::from).collect())
            }
            // A value that is not a list of scopes admits only the owner.
            Some(_) => Some(BTreeSet::new()),
        };
        let named = |key| look.metadata().named(key).and_then(Datum::as_str).map(Arc::from);
        let person = Privacy::of(look).map(|privacy| Arc::from(privacy.principal()));
        let claims = look.stamp().later.iter().flat_map(|later| &later.claims);
        let private: Vec<&Properties> =
            claims.map(|(_, source)| source).chain([look.metadata()]).filter(|source| is_private(source)).collect();
        match scopes {
            _ if !private.is_empty() => {
                let authors = private.iter().filter_map(|source| source.named(AUTHOR_KEY)?.as_str().map(Arc::from));
                let scopes = if named(OWNER_KEY).is_some() { BTreeSet::new() } else { authors.collect() };
                Some(Self { owner: named(OWNER_KEY), scopes: Some(scopes), person })
            }
            Some(_) => Some(Self { owner: named(OWNER_KEY), scopes, person }),
            None => (leads_abroad || person.is_some()).then(|| Self { person, ..Self::default() }),
        }
    }

    /// Returns the rule in the metadata of an element as JSON; `None` if it needs no rule.
    pub fn of_metadata(metadata: &Value) -> Option<Self> {
        let named = |key: &str| metadata[key].as_str().map(Arc::from);
        let level = &metadata[LEVEL_KEY];
        if !level.is_null() && level != PUBLIC {
            let owner = named(OWNER_KEY).or_else(|| named(AUTHOR_KEY));
            return Some(Self { owner, scopes: Some(BTreeSet::new()), person: None });
        }
        let scopes = match &metadata[SCOPES_KEY] {
            Value::Null => return None,
            Value::String(scope) => BTreeSet::from([Arc::from(scope.as_str())]),
            Value::Array(listed) => listed.iter().filter_map(Value::as_str).map(Arc::from).collect(),
            _ => BTreeSet::new(),
        };
        Some(Self { owner: named(OWNER_KEY), scopes: Some(scopes), person: None })
    }

    /// Returns `true` if a reader in `scopes` sees the elements of the rule, with all of their attributes.
    fn lets_whole(&self, scopes: &BTreeSet<Arc<str>>) -> bool {
        self.lets(scopes) && self.person.as_ref().is_none_or(|person| scopes.contains(person))
    }

    /// Returns `true` if a reader in `scopes` sees the elements of the rule.
    pub fn lets(&self, scopes: &BTreeSet<Arc<str>>) -> bool {
        let Some(of) = &self.scopes else { return true };
        self.owner.as_ref().is_some_and(|owner| scopes.contains(owner)) || of.iter().any(|scope| scopes.contains(scope))
    }
}

/// The restricted elements of a graph; see the module documentation. A clone is a snapshot of a few pointers.
#[derive(Clone, Default)]
pub struct Limited {
    groups: Pages<Group>,
    numbers: OrdMap<(bool, Sym, Rule), u32>,
    /// The numbers of empty groups.
    free: OrdSet<u32>,
    /// The group numbers of concepts, and of links.
    concepts: Numbers,
    links: Numbers,
    /// The lowest number that was never assigned to a group.
    next: u32,
}

/// The concepts of a type, or the links of a predicate, with the same rule.
#[derive(Clone)]
struct Group {
    links: bool,
    kind: Sym,
    rule: Rule,
    count: usize,
}

impl Limited {
    /// Returns `true` if no element is restricted.
    pub fn is_empty(&self) -> bool {
        self.groups.len() == 0
    }

    /// Updates the rule of an element to its present state.
    pub fn put(&mut self, el: ElementId, look: ElementRef<'_>) {
        let rule = Rule::of(look);
        if let Some(number) = self.group(el) {
            let group = self.groups.get(number);
            if group.is_some_and(|group| Some(&group.rule) == rule.as_ref() && group.kind == look.kind()) {
                return;
            }
            self.remove(el);
        }
        if let Some(rule) = rule {
            self.insert(el, look.kind(), rule);
        }
    }

    /// Adds an element that has no rule yet.
    pub fn insert(&mut self, el: ElementId, kind: Sym, rule: Rule) {
        let key = (el.is_link(), kind, rule);
        let number = self.numbers.get(&key).copied().unwrap_or_else(|| self.found(key));
        if let Some(group) = self.groups.get(number).cloned() {
            self.groups.put(number, Group { count: group.count + 1, ..group });
        }
        self.of_kind(el).set(el.no(), number);
    }

    /// Removes an element.
    pub fn remove(&mut self, el: ElementId) {
        let Some(number) = self.group(el) else { return };
        self.of_kind(el).set(el.no(), 0);
        let Some(group) = self.groups.get(number).cloned() else { return };
        if group.count > 1 {
            self.groups.put(number, Group { count: group.count - 1, ..group });
        } else {
            self.groups.remove(number);
            self.numbers.remove(&(group.links, group.kind, group.rule));
            self.free.insert(number);
        }
    }

    /// Creates an empty group and returns its number.
    fn found(&mut self, key: (bool, Sym, Rule)) -> u32 {
        let number = self.free.remove_min().unwrap_or_else(|| {
            self.next += 1;
            self.next
        });
        let (links, kind, rule) = key.clone();
        self.groups.put(number, Group { links, kind, rule, count: 0 });
        self.numbers.insert(key, number);
        number
    }

    fn of_kind(&mut self, el: ElementId) -> &mut Numbers {
        if el.is_link() { &mut self.links } else { &mut self.concepts }
    }

    #[inline]
    fn group(&self, el: ElementId) -> Option<u32> {
        if el.is_abroad() {
            return None;
        }
        if el.is_link() { &self.links } else { &self.concepts }.get(el.no())
    }

    /// Iterates over the restricted elements with their rules; concepts first, each kind in order.
    pub fn iter(&self) -> impl Iterator<Item = (ElementId, &Rule)> {
        let concepts = self.concepts.iter().map(|(no, group)| (ElementId::concept(no), group));
        let links = self.links.iter().map(|(no, group)| (ElementId::link(no), group));
        concepts.chain(links).filter_map(|(el, group)| Some((el, &self.groups.get(group)?.rule)))
    }
}

/// A compact array of one number per element, because each posting of a search reads one. 0 means no rule.
#[derive(Clone, Default)]
struct Numbers(Arc<Vec<Option<Arc<Chunk>>>>);

/// The group numbers of consecutive elements.
#[derive(Clone)]
struct Chunk {
    numbers: [u32; CHUNK],
    /// The only number in the chunk besides 0, if there is known to be only one.
    only: Option<u32>,
}

/// The number of elements per chunk. A chunk is copied when one of its elements changes during a read.
const CHUNK: usize = 2_048;

impl Numbers {
    #[inline]
    fn get(&self, no: u32) -> Option<u32> {
        let number = self.0.get(no as usize / CHUNK)?.as_ref()?.numbers[no as usize % CHUNK];
        (number > 0).then_some(number)
    }

    /// Returns the chunk of an element number, or `None` if none of its elements has a rule.
    fn chunk(&self, at: usize) -> Option<&Chunk> {
        self.0.get(at)?.as_deref()
    }

    fn set(&mut self, no: u32, number: u32) {
        let chunks = Arc::make_mut(&mut self.0);
        if chunks.len() <= no as usize / CHUNK {
            chunks.resize(no as usize / CHUNK + 1, None);
        }
        let chunk = chunks[no as usize / CHUNK]
            .get_or_insert_with(|| Arc::new(Chunk { numbers: [0; CHUNK], only: Some(number) }));
        let chunk = Arc::make_mut(chunk);
        chunk.numbers[no as usize % CHUNK] = number;
        chunk.only = chunk.only.filter(|only| number == 0 || *only == number);
    }

    fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().enumerate().flat_map(|(at, chunk)| {
            let numbers = chunk.iter().flat_map(|chunk| chunk.numbers.iter().enumerate());
            numbers.filter(|(_, number)| **number > 0).map(move |(no, number)| ((at * CHUNK + no) as u32, *number))
        })
    }
}

/// A reader's visibility of restricted elements. Each group is evaluated once.
pub(super) struct ScopeFilter<'g> {
    limited: &'g Limited,
    /// The reader's scopes; `None` sees everything.
    scopes: Option<&'g BTreeSet<Arc<str>>>,
    /// Cached results, by the number of the group.
    known: Vec<Cell<Option<bool>>>,
}

impl<'g> ScopeFilter<'g> {
    /// Returns the visibility for a reader in `scopes`; `None` sees everything.
    pub(super) fn new(limited: &'g Limited, scopes: Option<&'g BTreeSet<Arc<str>>>) -> Self {
        // A reader who sees everything, such as the only author, needs no further checks. For most other readers, the
        // first group already decides that this is not the case.
        let sees_all = |scopes| limited.groups.after(0).all(|(_, group)| group.rule.lets_whole(scopes));
        let scopes = scopes.filter(|scopes| !sees_all(scopes));
        let groups = if scopes.is_some() { limited.next as usize + 1 } else { 0 };
        Self { limited, scopes, known: vec![Cell::new(None); groups] }
    }

    /// Returns `true` if the reader sees everything.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.scopes.is_none()
    }

    /// Returns `true` if the reader heard what a source of a link said: its metadata `heard_by` names one of the scopes, or nobody.
    pub(super) fn hears(&self, source: &Properties) -> bool {
        let Some(scopes) = self.scopes else { return true };
        match source.named(HEARD_KEY) {
            Some(Datum::Json(listed)) => {
                let listed = listed.as_array().into_iter().flatten().filter_map(Value::as_str);
                listed.into_iter().any(|heard| scopes.contains(heard))
            }
            _ => true,
        }
    }

    /// Returns `true` if the reader is in a scope.
    pub(super) fn is_in(&self, scope: &str) -> bool {
        self.scopes.is_none_or(|scopes| scopes.contains(scope))
    }

    /// Returns the restrictions.
    pub(super) fn limited(&self) -> &'g Limited {
        self.limited
    }

    /// Returns `true` if an element is visible by its own rule, regardless of the elements that it points to.
    #[inline]
    pub(super) fn lets(&self, el: ElementId) -> bool {
        if self.is_whole() {
            return true;
        }
        self.limited.group(el).is_none_or(|number| self.lets_group(number))
    }

    /// Appends the visible ones of some sorted concepts to `seen`.
    pub(super) fn let_through(&self, els: &[ElementId], seen: &mut Vec<ElementId>) {
        if self.is_whole() {
            return seen.extend_from_slice(els);
        }
        let chunk_of = |el: &ElementId| el.no() as usize / CHUNK;
        for together in els.chunk_by(|one, next| chunk_of(one) == chunk_of(next)) {
            match self.limited.concepts.chunk(chunk_of(&together[0])) {
                None => seen.extend_from_slice(together),
                // Elements of one author are usually adjacent, so most chunks have a single rule.
                Some(chunk) if chunk.only.is_some_and(|only| self.lets_group(only)) => seen.extend_from_slice(together),
                Some(chunk) => {
                    let lets = |el: &&ElementId| {
                        let group = chunk.numbers[el.no() as usize % CHUNK];
                        group == 0 || self.lets_group(group)
                    };
                    seen.extend(together.iter().filter(lets));
                }
            }
        }
    }

    #[inline]
    fn lets_group(&self, number: u32) -> bool {
        let known = &self.known[number as usize];
        known.get().unwrap_or_else(|| {
            let lets = self.ask(number);
            known.set(Some(lets));
            lets
        })
    }

    #[cold]
    fn ask(&self, number: u32) -> bool {
        let group = self.limited.groups.get(number);
        self.scopes.is_none_or(|scopes| group.is_none_or(|group| group.rule.lets(scopes)))
    }

    /// Returns the number of hidden concepts of a type, or of all.
    pub(super) fn hidden_concepts(&self, kind: Option<Sym>) -> usize {
        if self.is_whole() {
            return 0;
        }
        let groups = self.limited.groups.after(0);
        let of_kind = groups.filter(|(_, group)| !group.links && kind.is_none_or(|kind| group.kind == kind));
        of_kind.filter(|(number, _)| !self.lets_group(*number)).map(|(_, group)| group.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bulk_access_check_equals_the_check_of_each_element() {
        let mut limited = Limited::default();
        let kind = Sym::new("Boat");
        let rule =
            |n: u32| Rule { owner: None, scopes: Some(BTreeSet::from([Arc::from(format!("user:{n}"))])), person: None };
        // Chunks with one rule, with two, with none, and with one that was another reader's before.
        for no in 1..4 * CHUNK as u32 {
            let whose = match no as usize / CHUNK {
                0 => 1,
                1 => no % 3,
                2 => continue,
                _ => 2,
            };
            limited.insert(ElementId::concept(no), kind, rule(whose));
            if no as usize / CHUNK == 3 && no % 2 == 0 {
                limited.remove(ElementId::concept(no));
                limited.insert(ElementId::concept(no), kind, rule(1));
            }
        }
        limited.remove(ElementId::concept(7));
        let els: Vec<ElementId> = (1..4 * CHUNK as u32).map(ElementId::concept).collect();
        for who in ["user:0", "user:1", "user:2", "user:9"] {
            let scopes = BTreeSet::from([Arc::from(who)]);
            let (sight, mut seen) = (ScopeFilter::new(&limited, Some(&scopes)), Vec::new());
            sight.let_through(&els, &mut seen);
            assert!(seen.into_iter().eq(els.iter().copied().filter(|el| sight.lets(*el))), "{who}");
        }
    }

    #[test]
    fn an_empty_group_makes_room_for_another() {
        let mut limited = Limited::default();
        let rule = |scope: &str| Rule { owner: None, scopes: Some(BTreeSet::from([Arc::from(scope)])), person: None };
        let kind = Sym::new("Boat");
        for n in 1..100 {
            limited.insert(ElementId::concept(n), kind, rule(&format!("user:{n}")));
            limited.insert(ElementId::link(n), kind, rule("user:1"));
            let scopes = BTreeSet::from([Arc::from("user:1")]);
            let sight = ScopeFilter::new(&limited, Some(&scopes));
            assert_eq!((sight.hidden_concepts(None), sight.is_whole()), (usize::from(n > 1), n == 1));
            assert_eq!((sight.lets(ElementId::concept(n)), sight.lets(ElementId::link(n))), (n == 1, true));
            limited.remove(ElementId::concept(n));
            limited.remove(ElementId::link(n));
            assert!(limited.is_empty() && limited.next <= 2 && limited.iter().next().is_none());
        }
    }
}
