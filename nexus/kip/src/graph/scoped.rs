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

/// What somebody in some scopes does not see.
pub struct Scopes<'g> {
    sight: Sight<'g>,
    /// Where links that lead out of the graph lead to; without it, their ends are taken to be there.
    commons: Option<&'g dyn GraphRead>,
    /// What is hidden, by type or predicate: found out once a view, when it is first asked for.
    hidden: OnceCell<HashMap<(bool, Sym), usize>>,
}

impl<'g> Scoped<'g> {
    /// `graph`, of which some is `limited`, as somebody in `scopes` sees it, or whole.
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
    /// Whether what is no concept of this graph is hidden.
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

    /// Those limited themselves, and those on what is hidden. A count of what is hidden would tell that it is there,
    /// so it is exact.
    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        let hidden = self.hidden.get_or_init(|| {
            let limited = self.sight.limited().iter().map(|(el, _)| el);
            hidden_with_links(graph, limited.filter(|el| self.hides(graph, *el)).collect())
        });
        counted(hidden, true, predicate)
    }
}
