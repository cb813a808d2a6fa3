//! A graph as one principal may see it: what carries scopes the principal is not in does not exist, and a
//! link is as hidden as either of its ends.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::limited::Sight;
use super::{El, GraphRead, Limited, Veil, Veiled, counted, hidden_with_links, hides_with_ends};
use crate::datum::Sym;

/// See the module.
pub type Scoped<'g> = Veiled<'g, Scopes<'g>>;

/// The elements that a reader in some scopes does not see.
pub struct Scopes<'g> {
    sight: Sight<'g>,
    /// The graph that links lead out to. Without it, the ends of such links are taken to exist.
    commons: Option<&'g dyn GraphRead>,
    /// The numbers of hidden elements by type or predicate, computed once a view when first needed.
    hidden: OnceCell<HashMap<(bool, Sym), usize>>,
}

impl<'g> Scoped<'g> {
    /// Makes the view of a reader in `scopes` (`None` sees everything) on `graph`, of which some is `limited`.
    pub fn new(graph: &'g dyn GraphRead, limited: &'g Limited, scopes: Option<&'g BTreeSet<Arc<str>>>) -> Self {
        Self::behind(Scopes { sight: Sight::new(limited, scopes), commons: None, hidden: OnceCell::new() }, graph)
    }

    /// `graph`, of which some is `limited`, with links into `commons` where their ends are visible there.
    pub fn beside(
        commons: &'g dyn GraphRead,
        graph: &'g dyn GraphRead,
        limited: &'g Limited,
        scopes: Option<&'g BTreeSet<Arc<str>>>,
    ) -> Self {
        let sight = Sight::new(limited, scopes);
        Self::behind(Scopes { sight, commons: Some(commons), hidden: OnceCell::new() }, graph)
    }
}

impl Scopes<'_> {
    /// Returns `true` if an element that is not a concept of this graph is hidden.
    fn hides_elsewhere(&self, graph: &dyn GraphRead, el: El) -> bool {
        hides_with_ends(graph, el, &|el, look| match look {
            Some(_) => !self.sight.lets(el),
            None if el.is_abroad() => self.commons.is_some_and(|commons| !commons.has(el)),
            None => true,
        })
    }
}

impl Veil for Scopes<'_> {
    fn is_open(&self) -> bool {
        // Where nothing is limited, nothing need be asked.
        self.sight.limited().is_empty() || (self.sight.is_whole() && self.commons.is_none())
    }

    // Every posting of a search is asked about.
    #[inline]
    fn hides(&self, graph: &dyn GraphRead, el: El) -> bool {
        if el.is_link() || el.is_abroad() { self.hides_elsewhere(graph, el) } else { !self.sight.lets(el) }
    }

    fn let_through(&self, graph: &dyn GraphRead, els: &[El], seen: &mut Vec<El>) {
        // In order, what is neither a link nor abroad comes first.
        match els.last() {
            Some(last) if !last.is_link() && !last.is_abroad() => self.sight.let_through(els, seen),
            _ => seen.extend(els.iter().filter(|el| !self.hides(graph, **el))),
        }
    }

    fn hidden_concepts(&self, _: &dyn GraphRead, kind: Option<Sym>) -> usize {
        self.sight.hidden_concepts(kind)
    }

    /// Returns the number of links that are restricted themselves or attached to hidden elements. The count is exact: a
    /// wrong one would reveal hidden elements.
    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        let hidden = self.hidden.get_or_init(|| {
            let limited = self.sight.limited().iter().map(|(el, _)| el);
            hidden_with_links(graph, limited.filter(|el| self.hides(graph, *el)).collect())
        });
        counted(hidden, true, predicate)
    }
}
