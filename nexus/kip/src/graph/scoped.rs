//! A principal's view of a graph. An element with scopes that the principal does not have does not exist in the view,
//! and a link is hidden if one of its ends is.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::acl_groups::ScopeFilter;
use super::{ElementId, GraphRead, Limited, Mask, Masked, counted, hidden_with_links, hides_with_ends};
use crate::datum::Sym;

/// A principal's view of a graph; see the module documentation.
pub type Scoped<'g> = Masked<'g, Scopes<'g>>;

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

    fn hidden_concepts(&self, _: &dyn GraphRead, kind: Option<Sym>) -> usize {
        self.sight.hidden_concepts(kind)
    }

    /// Returns the number of links that are restricted themselves or attached to hidden elements. The count is exact,
    /// because a wrong count would reveal hidden elements.
    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        let hidden = self.hidden.get_or_init(|| {
            let limited = self.sight.limited().iter().map(|(el, _)| el);
            hidden_with_links(graph, limited.filter(|el| self.hides(graph, *el)).collect())
        });
        counted(hidden, true, predicate)
    }
}
