//! A draft: a command in progress. It changes the writer's own graph in place and records the earlier state, so that
//! a refusal or a failed commit can be rolled back, and so that the journal can undo the command.

use std::collections::HashMap;

use super::upsert::RESERVED;
use super::warnings;
use crate::datum::{Properties, Sym};
use crate::graph::{Concept, Direction, ElementId, GraphWrite, LEVEL_KEY, Link, Record, Stamp, is_private, source_of};
use crate::lang::{ErrorKind, KipError};

/// The outcome of a write for one element.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The element.
    pub el: ElementId,
    /// The earlier state; `None` if the element is new.
    pub before: Option<Record>,
    /// The new state; `None` if the element was removed.
    pub after: Option<Record>,
}

/// A command in progress; see the module documentation.
pub struct Draft<'g> {
    /// The graph as changed so far.
    pub graph: &'g mut dyn GraphWrite,
    /// The earlier state of each changed element, in order.
    touched: Vec<(ElementId, Option<Record>)>,
    index: HashMap<ElementId, usize>,
    /// Warnings in words: skipped items and suspicious input.
    pub warnings: Vec<String>,
    /// The time of the command, in microseconds since 1970.
    now: i64,
    /// `true` if the command may write protected elements, as an operator's capsule may (R28).
    pub privileged: bool,
}

/// Concepts that no command may delete (R28).
const PROTECTED: [(&str, &str); 8] = [
    ("$ConceptType", "$ConceptType"),
    ("$ConceptType", "$PropositionType"),
    ("$ConceptType", "Domain"),
    ("$ConceptType", "Person"),
    ("$PropositionType", "belongs_to_domain"),
    ("Domain", "CoreSchema"),
    ("Person", "$self"),
    ("Person", "$system"),
];

/// Returns `true` for a concept that every nexus has from the start and that cannot be deleted.
pub(super) fn is_core(kind: Sym, name: &str) -> bool {
    PROTECTED.contains(&(kind.as_str(), name))
}

/// The type of types.
pub(super) const CONCEPT_TYPE: &str = "$ConceptType";
/// The type of predicates.
pub(super) const PROPOSITION_TYPE: &str = "$PropositionType";

impl<'g> Draft<'g> {
    /// Returns a draft on `graph` at time `now`, in microseconds since 1970.
    pub fn new(graph: &'g mut dyn GraphWrite, now: i64, privileged: bool) -> Self {
        Self { graph, touched: Vec::new(), index: HashMap::new(), warnings: Vec::new(), now, privileged }
    }

    /// Reverts every change.
    pub fn undo(self) {
        for (el, before) in self.touched.into_iter().rev() {
            match before {
                Some(record) => self.graph.put(el, record),
                None => self.graph.unmake(el),
            }
        }
    }

    /// Returns the elements changed so far.
    pub fn touched(&self) -> impl Iterator<Item = ElementId> {
        self.touched.iter().map(|(el, _)| *el)
    }

    /// Returns the changes in the order in which their elements were first touched, with the schema's warnings about
    /// them.
    pub fn finish(mut self) -> (Vec<Change>, Vec<String>) {
        let changes: Vec<Change> = std::mem::take(&mut self.touched)
            .into_iter()
            .map(|(el, before)| Change { el, before, after: self.graph.record(el) })
            .filter(|change| change.before != change.after)
            .collect();
        let mut all = self.warnings;
        warnings::of_schema(self.graph, &changes, &mut all);
        (changes, all)
    }

    /// Restores an earlier record of an element, or removes the element for `None`: one step of an undo.
    ///
    /// # Errors
    /// `immutable` when the step would remove or corrupt the core or a definition in use (R28).
    pub fn restore(&mut self, el: ElementId, record: Option<Record>) -> Result<(), KipError> {
        let now = self.now;
        match &record {
            None => self.check_deletable(el)?,
            Some(record) => {
                let own = self.graph.record(el).map(|now| now.look().attributes().clone()).unwrap_or_default();
                let new = record.look().attributes();
                let keys = own.pairs().iter().chain(new.pairs()).map(|(key, _)| *key);
                let changed = keys.filter(|key| own.get(*key) != new.get(*key));
                self.check_writable(el, changed.map(Sym::as_str))?;
            }
        }
        let before = self.graph.record(el);
        self.touch(el, before.clone());
        match record {
            Some(mut record) => {
                if let Some(before) = &before {
                    // An undo is a change like any other, so the version increases.
                    let version = before.look().stamp().version();
                    let (_, _, stamp) = record.parts();
                    stamp.touch(now).version = version + 1;
                }
                self.graph.put(el, record);
            }
            None => self.graph.remove(el),
        }
        Ok(())
    }

    fn touch(&mut self, el: ElementId, before: Option<Record>) -> bool {
        if self.index.contains_key(&el) {
            return false;
        }
        self.index.insert(el, self.touched.len());
        self.touched.push((el, before));
        true
    }

    /// Adds a new concept.
    pub(super) fn insert_concept(
        &mut self,
        kind: Sym,
        name: &str,
        attributes: Properties,
        metadata: Properties,
    ) -> ElementId {
        let stamp = Stamp::new(self.now);
        let el = self.graph.add(Record::Concept(Concept { kind, name: name.into(), attributes, metadata, stamp }));
        self.touch(el, None);
        el
    }

    /// Adds a new link.
    pub(super) fn insert_link(
        &mut self,
        subject: ElementId,
        predicate: Sym,
        object: ElementId,
        attributes: Properties,
        metadata: Properties,
    ) -> ElementId {
        let stamp = Stamp::new(self.now);
        let el = self.graph.add(Record::Link(Link { subject, object, predicate, attributes, metadata, stamp }));
        self.touch(el, None);
        el
    }

    /// Changes an element. An equal result counts as no change, so repeating a command does not raise versions. The
    /// version rises at most once per command. Returns `true` if the element changed.
    pub(super) fn change(&mut self, el: ElementId, change: impl FnOnce(&mut Record)) -> bool {
        let Some(old) = self.graph.record(el) else { return false };
        let mut new = old.clone();
        change(&mut new);
        if new == old {
            return false;
        }
        if self.touch(el, Some(old)) {
            let now = self.now;
            new.parts().2.touch(now);
        }
        self.graph.put(el, new);
        true
    }

    /// Sets attributes and metadata of an element, key by key, and returns the element that holds them: a definition
    /// of the commons is copied first. Metadata of a further source is stored as an additional claim (K12).
    pub(super) fn set(&mut self, el: ElementId, attributes: &Properties, metadata: &Properties) -> ElementId {
        let held =
            |own: &Properties, new: &Properties| new.pairs().iter().all(|(key, value)| own.get(*key) == Some(value));
        let lent = self.graph.is_lent(el);
        let mut same = false;
        self.graph.look(el, &mut |look| {
            same = held(look.attributes(), attributes) && (lent || held(look.metadata(), metadata));
        });
        if same {
            return el;
        }
        if lent && let Some(Record::Concept(lent)) = self.graph.record(el) {
            return self.insert_concept(lent.kind, &lent.name, lent.attributes.merged(attributes), metadata.clone());
        }
        self.change(el, |record| {
            let claimed = matches!(record, Record::Link(_));
            let (own, known, stamp) = record.parts();
            if claimed {
                claim(known, stamp, metadata);
            }
            *own = own.merged(attributes);
            // What is private stays its author's, also where others say the same.
            *known = match is_private(known) && metadata.named(LEVEL_KEY).is_none() {
                true => known.merged(&metadata.without(&["author"])),
                false => known.merged(metadata),
            };
        });
        el
    }

    /// Removes an element and, transitively, every link on it (R29); returns the number of removed links.
    pub(super) fn remove(&mut self, el: ElementId) -> usize {
        let mut links = 0;
        let mut waiting = vec![el];
        while let Some(el) = waiting.pop() {
            let Some(before) = self.graph.record(el) else { continue };
            waiting.extend(self.graph.links_at(el));
            links += usize::from(el.is_link());
            self.touch(el, Some(before));
            self.graph.remove(el);
        }
        links
    }

    /// Returns `true` if an element is part of the core.
    pub(super) fn is_protected(&self, el: ElementId) -> bool {
        self.graph.key(el).is_some_and(|(kind, name)| is_core(kind, &name))
    }

    /// Refuses a deletion that would remove the core or a definition in use.
    pub(super) fn check_deletable(&self, el: ElementId) -> Result<(), KipError> {
        let refuse = |what: String| Err(KipError::new(ErrorKind::Immutable, what));
        match self.graph.record(el) {
            Some(Record::Concept(concept)) => {
                let (kind, name) = (concept.kind.as_str(), concept.name.as_str());
                if self.is_protected(el) {
                    return refuse(format!("{{type: \"{kind}\", name: \"{name}\"}} is part of the core and cannot go"));
                }
                let used = Sym::known(name).map_or(0, |defined| match kind {
                    CONCEPT_TYPE => self.graph.type_len(defined),
                    PROPOSITION_TYPE => self.graph.predicate_len(Some(defined)),
                    _ => 0,
                });
                let mut holds_core = false;
                self.graph.edges(el, Direction::In, Some(Sym::new("belongs_to_domain")), &mut |edge| {
                    holds_core = self.is_protected(edge.other);
                    !holds_core
                });
                if holds_core {
                    return refuse(format!("\"{name}\" holds part of the core, which would lose its domain with it"));
                }
                if used > 0 {
                    return refuse(format!("{kind} \"{name}\" is in use by {used} elements"));
                }
            }
            Some(Record::Link(link))
                if link.predicate.as_str() == "belongs_to_domain" && self.is_protected(link.subject) =>
            {
                return refuse("the core's membership in its domain cannot go".into());
            }
            Some(Record::Link(_)) | None => {}
        }
        Ok(())
    }

    /// Refuses to set or delete an attribute that protects the core (R28).
    pub(super) fn check_writable<'k>(
        &self,
        el: ElementId,
        mut keys: impl Iterator<Item = &'k str>,
    ) -> Result<(), KipError> {
        let Some((kind, name)) = self.graph.key(el) else { return Ok(()) };
        let guarded: &[&str] = match (kind.as_str(), name.as_str()) {
            (CONCEPT_TYPE, CONCEPT_TYPE | PROPOSITION_TYPE | "Person" | "Domain") => &["instance_schema"],
            ("Person", "$self" | "$system") => &["core_directives", "id", "person_class"],
            _ => return Ok(()),
        };
        // The identity is given once, at birth; until then a placeholder may hold its place.
        let is_open = |key: &str| {
            let known = || self.graph.record(el).and_then(|now| now.look().attributes().named(key).cloned());
            (key, &*name) == ("id", "$self")
                && known().is_none_or(|known| known.as_str().is_some_and(|known| RESERVED.contains(&known)))
        };
        match keys.find(|key| guarded.contains(key) && !is_open(key)) {
            Some(key) if !self.privileged => {
                Err(KipError::new(ErrorKind::Immutable, format!("{key} of \"{name}\" is protected"))
                    .hint("an operator may change it by importing a capsule"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the symbol of a type or predicate, which must be defined before it is used (K3).
    pub(super) fn check_defined(&self, meta: &'static str, name: &str) -> Result<Sym, KipError> {
        let root = meta == CONCEPT_TYPE && (name == CONCEPT_TYPE || name == PROPOSITION_TYPE);
        match self.graph.concept(Sym::new(meta), name) {
            Some(_) => Ok(Sym::new(name)),
            None if root => Ok(Sym::new(name)),
            None => {
                let what = if meta == CONCEPT_TYPE { "concept type" } else { "predicate" };
                let known: Vec<arcstr::ArcStr> = self
                    .graph
                    .of_type(Sym::new(meta), ElementId::NONE, 10_000)
                    .into_iter()
                    .filter_map(|el| self.graph.key(el).map(|(_, name)| name))
                    .collect();
                let hint = match crate::lang::error::nearest(name, known.iter().map(arcstr::ArcStr::as_str)) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => format!(
                        "define it first: UPSERT {{ CONCEPT ?t {{ {{type: \"{meta}\", name: \"{name}\"}} SET ATTRIBUTES {{ description: \"…\" }} }} }}"
                    ),
                };
                Err(KipError::new(ErrorKind::Schema, format!("{what} \"{name}\" is not defined")).hint(hint))
            }
        }
    }
}

/// Stores the metadata of each source once a link has more than one source.
pub(super) fn claim(known: &Properties, stamp: &mut Stamp, metadata: &Properties) {
    let Some(source) = source_of(metadata) else { return };
    let before = stamp.later.as_ref().map(|later| later.claims.clone()).unwrap_or_default();
    let mut claims = before.clone();
    if claims.is_empty() {
        match source_of(known) {
            Some(first) if first != source => claims.push((first, known.clone())),
            _ => return,
        }
    }
    match claims.iter_mut().find(|(of, _)| *of == source) {
        Some((_, said)) => *said = said.merged(metadata),
        None => claims.push((source, metadata.clone())),
    }
    if claims != before {
        std::sync::Arc::make_mut(stamp.later.get_or_insert_with(|| {
            std::sync::Arc::new(crate::graph::Later { version: 1, updated: stamp.created, ..Default::default() })
        }))
        .claims = claims;
    }
}

/// Refuses keys that begin with `_`, which belong to the engine (superset 12).
pub(super) fn check_metadata<'k>(mut keys: impl Iterator<Item = &'k str>) -> Result<(), KipError> {
    match keys.find(|key| key.starts_with('_')) {
        Some(key) => Err(KipError::new(ErrorKind::Schema, format!("metadata key {key} is kept by the engine"))
            .code("KIP_2002")
            .hint("use a key that does not begin with '_'")),
        None => Ok(()),
    }
}
