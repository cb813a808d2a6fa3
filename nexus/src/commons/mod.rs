//! The commons, and the combined view of a mind and the commons. The commons is one graph: the concepts of three
//! types and the links between them. Every other mind sees the parts of the commons that its scopes allow as parts of
//! itself, and writes concepts of these types there. Principals also write there directly, under the same rules.

mod foreign_ids;
mod overlay;
mod permissions;
mod redaction;
mod validation;
mod versions;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kip::datum::Sym;
use kip::graph::{
    ElementId, ElementRef, GraphRead, Ids, Mask, Masked, Scoped, Union, counted, hidden_with_links, hides_with_ends,
};

use super::mind::Mind;
use foreign_ids::Abroad;

pub use kip::graph::OWNER_KEY;
pub(super) use overlay::{Common, Overlay, split, warnings};
pub use permissions::{HAS_SECRET_KEY, SEAL_KEY};
pub(super) use permissions::{check_rights, check_seal};
pub use redaction::SecretPolicy;
pub(super) use redaction::clean;
pub use validation::RECORD_TYPES;
pub(super) use versions::versions_of;
pub use versions::{Version, versions_stream};

/// The id of the shared nexus.
pub const COMMONS: &str = "commons";
/// The types whose concepts belong to the commons.
pub const SHARED: [&str; 3] = ["Knowledge", "Resource", "Scope"];

fn is_shared(kind: Sym) -> bool {
    SHARED.contains(&kind.as_str())
}

/// The scopes of a reader; `None` sees everything.
pub(super) type Scopes = Option<BTreeSet<Arc<str>>>;

/// Calls a function with a reader's view of a mind and the commons.
pub(super) fn view<R>(
    own: (&Mind, &Scopes),
    commons: Option<(&Mind, &Scopes)>,
    then: impl FnOnce(&dyn GraphRead) -> R,
) -> R {
    let ((mind, scopes), own) = (own, own.0.read());
    let Some((commons, commons_scopes)) = commons else {
        return then(&Scoped::new(own, mind.limited(), scopes.as_ref()));
    };
    let seen = Scoped::new(commons.read(), commons.limited(), commons_scopes.as_ref());
    let shared = Masked::behind(Shared { own, hidden: OnceCell::new() }, &seen);
    let abroad = Abroad(&shared);
    then(&Union(&Scoped::beside(&abroad, own, mind.limited(), scopes.as_ref()), &abroad))
}

/// Returns the id schemes of a mind's elements and of the commons elements in it.
pub(super) fn ids(own: &Mind, commons: Option<&Mind>) -> Ids {
    commons.map_or(own.read().ids(), |commons| own.read().ids().or(commons.read().ids().abroad()))
}

/// A veil over the commons elements that a mind does not see: concepts of other types, and definitions that the mind
/// has itself.
struct Shared<'g> {
    own: &'g dyn GraphRead,
    /// The numbers of hidden elements by type or predicate, computed at most once per view.
    hidden: OnceCell<HashMap<(bool, Sym), usize>>,
}

impl Shared<'_> {
    fn shows(&self, look: ElementRef<'_>) -> bool {
        match look {
            ElementRef::Concept(concept) => {
                is_shared(concept.kind)
                    || (concept.kind.as_str().starts_with('$')
                        && self.own.concept(concept.kind, &concept.name).is_none())
            }
            ElementRef::Link(_) => true,
        }
    }
}

impl Shared<'_> {
    /// Counts the elements that are not shared. They are few: the commons' own schema.
    fn hidden(&self, graph: &dyn GraphRead) -> &HashMap<(bool, Sym), usize> {
        self.hidden.get_or_init(|| {
            let kinds = graph.types().into_iter().map(|(kind, _)| kind).filter(|kind| !is_shared(*kind));
            let others = kinds.flat_map(|kind| graph.of_type(kind, ElementId::NONE, usize::MAX));
            hidden_with_links(graph, others.filter(|el| self.hides(graph, *el)).collect())
        })
    }
}

impl Mask for Shared<'_> {
    fn is_open(&self) -> bool {
        false
    }

    fn hides(&self, graph: &dyn GraphRead, el: ElementId) -> bool {
        hides_with_ends(graph, el, &|_, look| look.is_none_or(|look| !self.shows(look)))
    }

    fn hidden_concepts(&self, graph: &dyn GraphRead, kind: Option<Sym>) -> usize {
        counted(self.hidden(graph), false, kind)
    }

    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        counted(self.hidden(graph), true, predicate)
    }
}
