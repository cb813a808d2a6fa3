//! Writes to shared graphs: a mind together with the commons, and the commons alone.

use std::cell::Cell;
use std::collections::BTreeSet;

use kip::datum::Sym;
use kip::exec::Change;
use kip::graph::{Direction, ElementId, ElementRef, GraphRead, GraphWrite, LEVEL_KEY, Record, SCOPES_KEY, Scoped};
use kip::reads_through;
use store::principal::Principal;

use super::foreign_ids::{homeward, outward};
use super::permissions::own_up;
use super::{COMMONS, Scopes, is_shared, view};
use crate::mind::Mind;

/// A mind and the commons as one writable graph.
pub(crate) struct Overlay<'m> {
    own: &'m mut Mind,
    commons: &'m mut Mind,
    by: &'m Principal,
    scopes: Scopes,
    /// Set to the reason when a write is not allowed.
    refused: &'m Cell<Option<&'static str>>,
}

/// The maximum number of warnings in one answer.
const WARNINGS_MAX: usize = 32;
const LEADS_INTO_ONE: &str = "a link of the commons cannot lead into one mind";
const CHANGES_ELSEWHERE: &str = "a definition of the commons is changed at the commons, by an operator";

impl<'m> Overlay<'m> {
    /// Returns `own` together with `commons`, for writes by `by`.
    pub(crate) fn new(
        own: &'m mut Mind,
        commons: &'m mut Mind,
        by: &'m Principal,
        refused: &'m Cell<Option<&'static str>>,
    ) -> Self {
        let scopes = crate::view::scopes(by, &COMMONS.into());
        Self { own, commons, by, scopes, refused }
    }

    /// Returns `true` for a type or a predicate that the commons defines.
    fn is_definition(&self, el: ElementId) -> bool {
        let mut is_definition = false;
        if el.is_abroad() && !el.is_link() {
            self.commons.read().look(el.home(), &mut |look| {
                is_definition = matches!(look, ElementRef::Concept(concept) if concept.kind.as_str().starts_with('$'));
            });
        }
        is_definition
    }

    fn view<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> R {
        view((&*self.own, &None), Some((&*self.commons, &self.scopes)), then)
    }
}

impl GraphRead for Overlay<'_> {
    reads_through!(view);

    // A writer may hide an element from itself and can still write it.
    fn record(&self, el: ElementId) -> Option<Record> {
        if el.is_abroad() { self.commons.read().record(el.home()).map(outward) } else { self.own.read().record(el) }
    }
}

impl GraphWrite for Overlay<'_> {
    fn add(&mut self, record: Record) -> ElementId {
        let stands_there = match &record {
            Record::Concept(concept) => is_shared(concept.kind),
            // A link whose predicate the commons does not define belongs to the mind.
            Record::Link(link) => {
                link.subject.is_abroad()
                    && link.object.is_abroad()
                    && self.commons.read().concept(Sym::new("$PropositionType"), link.predicate.as_str()).is_some()
            }
        };
        match record {
            Record::Concept(mut concept) if stands_there => {
                concept.metadata = own_up(self.by, &concept.metadata);
                self.commons.write().add(Record::Concept(concept)).abroad()
            }
            Record::Link(mut link) if stands_there => {
                link.metadata = own_up(self.by, &link.metadata);
                self.commons.write().add(homeward(Record::Link(link))).abroad()
            }
            record => self.own.write().add(record),
        }
    }

    fn put(&mut self, el: ElementId, record: Record) {
        if el.is_abroad() {
            if matches!(&record, Record::Link(link) if !(link.subject.is_abroad() && link.object.is_abroad())) {
                return self.refused.set(Some(LEADS_INTO_ONE));
            }
            if self.is_definition(el) {
                return self.refused.set(Some(CHANGES_ELSEWHERE));
            }
            self.commons.write().put(el.home(), homeward(record));
        } else {
            self.own.write().put(el, record);
        }
    }

    fn remove(&mut self, el: ElementId) {
        if self.is_definition(el) {
            self.refused.set(Some(CHANGES_ELSEWHERE));
        } else if el.is_abroad() {
            self.commons.write().remove(el.home());
        } else {
            self.own.write().remove(el);
        }
    }

    fn is_lent(&self, el: ElementId) -> bool {
        self.is_definition(el)
    }

    // All links of a mind itself are included, whatever they point to.
    fn links_at(&self, el: ElementId) -> BTreeSet<ElementId> {
        let mut found = self.own.read_links(el);
        self.view(|graph| {
            for way in [Direction::Out, Direction::In] {
                graph.edges(el, way, None, &mut |edge| {
                    found.insert(edge.link);
                    true
                });
            }
        });
        found
    }

    fn unmake(&mut self, el: ElementId) {
        if el.is_abroad() { self.commons.write().unmake(el.home()) } else { self.own.write().unmake(el) }
    }
}

/// The commons alone, written by a principal that sees only a part of it.
pub(crate) struct Common<'m> {
    mind: &'m mut Mind,
    by: &'m Principal,
    scopes: Scopes,
}

impl<'m> Common<'m> {
    /// Returns the commons for writes by `by`.
    pub(crate) fn new(mind: &'m mut Mind, by: &'m Principal) -> Self {
        Self { mind, by, scopes: crate::view::scopes(by, &COMMONS.into()) }
    }

    fn view<R>(&self, then: impl FnOnce(&dyn GraphRead) -> R) -> R {
        then(&Scoped::new(self.mind.read(), self.mind.limited(), self.scopes.as_ref()))
    }
}

impl GraphRead for Common<'_> {
    reads_through!(view);

    // A writer may hide an element from itself and can still write it.
    fn record(&self, el: ElementId) -> Option<Record> {
        self.mind.read().record(el)
    }
}

impl GraphWrite for Common<'_> {
    fn add(&mut self, mut record: Record) -> ElementId {
        match &mut record {
            Record::Concept(concept) => concept.metadata = own_up(self.by, &concept.metadata),
            Record::Link(link) => link.metadata = own_up(self.by, &link.metadata),
        }
        self.mind.write().add(record)
    }

    fn put(&mut self, el: ElementId, record: Record) {
        self.mind.write().put(el, record);
    }

    fn remove(&mut self, el: ElementId) {
        self.mind.write().remove(el);
    }

    fn links_at(&self, el: ElementId) -> BTreeSet<ElementId> {
        self.mind.read_links(el)
    }

    fn unmake(&mut self, el: ElementId) {
        self.mind.write().unmake(el);
    }
}

/// Returns a warning for each new public concept that a write in a mind created in the commons, and for each
/// definition that the mind now has in addition to that of the commons.
pub(crate) fn warnings(changes: &[Change], commons: &dyn GraphRead) -> Vec<String> {
    let warning = |change: &Change| {
        let (None, Some(Record::Concept(concept))) = (&change.before, &change.after) else { return None };
        let (kind, name) = (concept.kind.as_str(), concept.name.as_str());
        let limits = [SCOPES_KEY, LEVEL_KEY].iter().any(|key| concept.metadata.named(key).is_some());
        let is_open = change.el.is_abroad() && !limits;
        let is_own = !change.el.is_abroad() && kind.starts_with('$') && commons.concept(concept.kind, name).is_some();
        let what = match name {
            _ if is_open => format!(
                "{kind} \"{name}\" is kept in the commons, and everyone may read it: {SCOPES_KEY} in its metadata limits that"
            ),
            _ if is_own && is_shared(Sym::new(name)) => format!(
                "this mind now has its own definition of \"{name}\"; concepts of that type are still kept in the commons"
            ),
            _ if is_own => {
                format!("this mind now has its own definition of \"{name}\"; that of the commons is unchanged")
            }
            _ => return None,
        };
        Some(what)
    };
    let mut found: Vec<String> = changes.iter().filter_map(warning).collect();
    if found.len() > WARNINGS_MAX {
        let more = found.len() - WARNINGS_MAX;
        found.truncate(WARNINGS_MAX);
        found.push(format!("and {more} more"));
    }
    found
}

/// Splits changes into those of the mind and those of the commons, the latter in the commons' own numbering.
pub(crate) fn split(changes: Vec<Change>) -> (Vec<Change>, Vec<Change>) {
    let (theirs, own): (Vec<Change>, Vec<Change>) = changes.into_iter().partition(|change| change.el.is_abroad());
    let home = |change: Change| Change {
        el: change.el.home(),
        before: change.before.map(homeward),
        after: change.after.map(homeward),
    };
    (own, theirs.into_iter().map(home).collect())
}
