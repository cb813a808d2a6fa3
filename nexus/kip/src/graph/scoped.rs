//! A graph as one principal may see it: what carries scopes the principal is not in does not exist, and a
//! link is as hidden as either of its ends.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;

use super::{El, GraphRead, Limited, Look, Veil, Veiled, counted, hidden_with_links, hides_with_ends};
use crate::datum::{Datum, Sym};

/// The metadata key that limits who sees an element: a list of scopes.
pub const SCOPES_KEY: &str = "access_scopes";
/// The metadata key that says whose an element is. The owner sees it whoever else does.
pub const OWNER_KEY: &str = "owner";

/// See the module.
pub type Scoped<'g> = Veiled<'g, Scopes<'g>>;

/// What somebody in some scopes does not see.
pub struct Scopes<'g> {
    /// `None` sees everything.
    scopes: Option<&'g BTreeSet<Arc<str>>>,
    /// Where links that lead out of the graph lead to; without it, their ends are taken to be there.
    commons: Option<&'g dyn GraphRead>,
    limited: Limited,
    /// What is hidden, by type or predicate: found out once a view, when it is first asked for.
    hidden: OnceCell<HashMap<(bool, Sym), usize>>,
}

impl<'g> Scoped<'g> {
    /// `graph` as somebody in `scopes` sees it, or whole.
    pub fn new(graph: &'g dyn GraphRead, scopes: Option<&'g BTreeSet<Arc<str>>>) -> Self {
        Self::behind(Scopes { scopes, commons: None, limited: graph.limited(), hidden: OnceCell::new() }, graph)
    }

    /// `graph` as somebody in `scopes` sees it, with links into `commons` where their ends are visible there.
    pub fn beside(
        commons: &'g dyn GraphRead,
        graph: &'g dyn GraphRead,
        scopes: Option<&'g BTreeSet<Arc<str>>>,
    ) -> Self {
        Self::behind(
            Scopes { scopes, commons: Some(commons), limited: graph.limited(), hidden: OnceCell::new() },
            graph,
        )
    }
}

impl Scopes<'_> {
    /// Those limited themselves, and the links on what is hidden. A count of what is hidden would tell that it is
    /// there, so it is exact.
    fn hidden(&self, graph: &dyn GraphRead) -> &HashMap<(bool, Sym), usize> {
        self.hidden.get_or_init(|| {
            let limited = self.limited.iter().copied();
            hidden_with_links(graph, limited.filter(|el| self.hides(graph, *el)).collect())
        })
    }

    fn lets(&self, el: El, look: Look<'_>) -> bool {
        !self.limited.contains(&el) || self.scopes.is_none_or(|scopes| allowed(look, scopes))
    }
}

impl Veil for Scopes<'_> {
    fn is_open(&self) -> bool {
        // Where nothing is limited, nothing need be asked.
        self.limited.is_empty() || (self.scopes.is_none() && self.commons.is_none())
    }

    fn hides(&self, graph: &dyn GraphRead, el: El) -> bool {
        if !el.is_link() && !el.is_abroad() {
            let mut lets = !self.limited.contains(&el);
            if !lets {
                graph.look(el, &mut |look| lets = self.lets(el, look));
            }
            return !lets;
        }
        hides_with_ends(graph, el, &|el, look| match look {
            Some(look) => !self.lets(el, look),
            None if el.is_abroad() => self.commons.is_some_and(|commons| !commons.has(el)),
            None => true,
        })
    }

    fn hidden_concepts(&self, graph: &dyn GraphRead, kind: Option<Sym>) -> usize {
        counted(self.hidden(graph), false, kind)
    }

    fn hidden_links(&self, graph: &dyn GraphRead, predicate: Option<Sym>) -> usize {
        counted(self.hidden(graph), true, predicate)
    }
}

/// Whether one of the scopes listed is the principal's, or the owner is. What is no list of scopes lets nobody else in.
fn allowed(look: Look<'_>, scopes: &BTreeSet<Arc<str>>) -> bool {
    if look.metadata().named(OWNER_KEY).and_then(Datum::as_str).is_some_and(|owner| scopes.contains(owner)) {
        return true;
    }
    match look.metadata().named(SCOPES_KEY) {
        None | Some(Datum::Null) => true,
        Some(Datum::Str(scope)) => scopes.contains(scope.as_str()),
        Some(Datum::Json(listed)) => {
            listed.as_array().into_iter().flatten().filter_map(Value::as_str).any(|scope| scopes.contains(scope))
        }
        Some(_) => false,
    }
}
