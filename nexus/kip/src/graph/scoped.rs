//! A principal's view of a graph. An element with scopes that the principal does not have does not exist in the view,
//! and a link is hidden if one of its ends is.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arcstr::ArcStr;
use serde_json::Value;

use super::acl_groups::{HEARD_KEY, ScopeFilter};
use super::privacy::Privacy;
use super::record::{Later, Stamp};
use super::{
    ElementId, ElementRef, GraphRead, Limited, Mask, Masked, Record, SCOPES_KEY, counted, hidden_with_links,
    hides_with_ends,
};
use crate::datum::{Datum, Properties, Sym};

/// A principal's view of a graph; see the module documentation.
pub type Scoped<'g> = Masked<'g, Scopes<'g>>;

/// The sources of concepts that were made from what people stated.
const FORMED: [&str; 2] = ["formation", "filing"];

/// A veil over the elements that a reader in some scopes does not see.
pub struct Scopes<'g> {
    sight: ScopeFilter<'g>,
    /// The commons, into which links may point. Without it, the ends of such links are assumed to exist.
    commons: Option<&'g dyn GraphRead>,
    /// The numbers of hidden elements by type or predicate, computed at most once per view.
    hidden: OnceCell<HashMap<(bool, Sym), usize>>,
}

impl<'g> Scoped<'g> {
    /// Returns the view of a reader in `scopes` (`None` sees everything) on `graph` with the restrictions `limited`.
    pub fn new(graph: &'g dyn GraphRead, limited: &'g Limited, scopes: Option<&'g BTreeSet<Arc<str>>>) -> Self {
        Self::behind(Scopes { sight: ScopeFilter::new(limited, scopes), commons: None, hidden: OnceCell::new() }, graph)
    }

    /// Returns a view on `graph` with the restrictions `limited`. Links into `commons` are visible where their ends
    /// are visible there.
    pub fn beside(
        commons: &'g dyn GraphRead,
        graph: &'g dyn GraphRead,
        limited: &'g Limited,
        scopes: Option<&'g BTreeSet<Arc<str>>>,
    ) -> Self {
        let sight = ScopeFilter::new(limited, scopes);
        Self::behind(Scopes { sight, commons: Some(commons), hidden: OnceCell::new() }, graph)
    }
}

impl Scopes<'_> {
    /// Returns the scopes of an element that are scopes of the reader.
    fn own_scopes(&self, metadata: &Properties) -> Properties {
        let listed = metadata.named(SCOPES_KEY).map(Datum::to_json).unwrap_or_default();
        let own = listed
            .as_array()
            .into_iter()
            .flatten()
            .filter(|scope| scope.as_str().is_some_and(|scope| self.sight.is_in(scope)));
        let own: Vec<Value> = own.cloned().collect();
        Properties::new(vec![(Sym::new(SCOPES_KEY), Datum::Json(Arc::new(own.into())))])
    }

    /// Returns `true` if an element other than a concept of this graph is hidden.
    fn hides_elsewhere(&self, graph: &dyn GraphRead, el: ElementId) -> bool {
        hides_with_ends(graph, el, &|el, look| match look {
            Some(_) => !self.sight.lets(el),
            None if el.is_abroad() => self.commons.is_some_and(|commons| !commons.has(el)),
            None => true,
        })
    }
}

impl Mask for Scopes<'_> {
    fn is_open(&self) -> bool {
        // Without restrictions, no element needs a test.
        self.sight.limited().is_empty() || (self.sight.is_whole() && self.commons.is_none())
    }

    // Inlined, because a search tests every posting.
    #[inline]
    fn hides(&self, graph: &dyn GraphRead, el: ElementId) -> bool {
        if el.is_link() || el.is_abroad() { self.hides_elsewhere(graph, el) } else { !self.sight.lets(el) }
    }

    fn let_through(&self, graph: &dyn GraphRead, els: &[ElementId], seen: &mut Vec<ElementId>) {
        // In a sorted list, links and commons elements come last.
        match els.last() {
            Some(last) if !last.is_link() && !last.is_abroad() => self.sight.let_through(els, seen),
            _ => seen.extend(els.iter().filter(|el| !self.hides(graph, **el))),
        }
    }

    /// Shows of a claim only the sources that the reader heard, and of a concept that was made from statements nothing of who else
    /// heard of it: neither metadata, nor the number and the time of changes, tell of others.
    fn seen_as(&self, look: ElementRef<'_>) -> Option<Record> {
        let link = match look {
            ElementRef::Link(link) => link,
            ElementRef::Concept(concept) => {
                let source = concept.metadata.named("source").and_then(Datum::as_str);
                let is_formed = source.is_some_and(|source| FORMED.contains(&source));
                let privacy = Privacy::of(look).filter(|privacy| !self.sight.is_in(privacy.principal()));
                if self.sight.is_whole() || (!is_formed && privacy.is_none()) {
                    return None;
                }
                let mut seen = concept.clone();
                if let Some(privacy) = privacy {
                    let shown = seen.attributes.pairs().iter().filter(|(key, _)| !privacy.hides(key.as_str()));
                    seen.attributes = Properties::new(shown.cloned().collect());
                }
                if is_formed {
                    seen.metadata = seen.metadata.merged(&self.own_scopes(&concept.metadata));
                    seen.stamp = Stamp::new(0);
                }
                return Some(Record::Concept(seen));
            }
        };
        if self.sight.is_whole() || link.metadata.named(HEARD_KEY).is_none() {
            return None;
        }
        let claims = link.stamp.later.as_ref().map_or(&[][..], |later| &later.claims);
        let single = [(ArcStr::from(""), link.metadata.clone())];
        let claims = if claims.is_empty() { &single[..] } else { claims };
        let status = [("status", "active"), ("valid_until", "")].into_iter().filter_map(|(key, usual)| {
            let value = link.metadata.named(key)?;
            (value.as_str() != Some(usual)).then(|| (Sym::new(key), value.clone()))
        });
        let has_ended = link.metadata.named("status").is_some_and(|status| status.as_str() != Some("active"));
        let over = Properties::new(status.filter(|_| has_ended).collect());
        let heard = claims.iter().filter(|(_, bag)| self.sight.hears(bag));
        // What has ended has ended for all who see it; who else heard of it is nothing that the reader heard.
        let heard: Vec<_> =
            heard.map(|(source, bag)| (source.clone(), bag.merged(&over).merged(&self.own_scopes(bag)))).collect();
        let mut seen = link.clone();
        seen.metadata = heard.last().map_or_else(|| Properties::new(Vec::new()), |(_, bag)| bag.clone());
        seen.stamp = Stamp::new(0);
        if heard.len() > 1 {
            let later = Later { version: heard.len() as u64, updated: 0, claims: heard, merged_from: Vec::new() };
            seen.stamp.later = Some(Arc::new(later));
        }
        Some(Record::Link(seen))
    }

    fn sorts(&self, kind: Sym) -> bool {
        // The order of the stored values would tell private ones.
        self.sight.is_whole() || kind.as_str() != "Person"
    }

    fn hidden_concepts(&self, _: &dyn GraphRead, kind: Option<Sym>) -> usize {
        self.sight.hidden_concepts(kind)
    }

    /// Returns the number of links that are restricted themselves or attached to hidden elements. The count is exact,
    /// because a wrong count would reveal hidden elements. From a reader who sees everything nothing is hidden, and no element is
    /// looked at: a mind restricts most of its elements, and each query of a link asks for the number.
    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        if self.sight.is_whole() {
            return 0;
        }
        let hidden = self.hidden.get_or_init(|| {
            let limited = self.sight.limited().iter().map(|(el, _)| el);
            hidden_with_links(graph, limited.filter(|el| self.hides(graph, *el)).collect())
        });
        counted(hidden, true, predicate)
    }
}
