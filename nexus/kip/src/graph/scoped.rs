//! A graph as one principal may see it: what carries scopes the principal is not in does not exist, and a
//! link is as hidden as either of its ends.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::sorted::{Place, Range};
use super::text::Hit;
use super::{Edge, El, Graph, GraphRead, Look, Way};
use crate::datum::{Datum, Sym};

/// The metadata key that limits who sees an element: a list of scopes.
pub const SCOPES_KEY: &str = "access_scopes";

/// See the module.
pub struct Scoped<'g> {
    graph: &'g Graph,
    /// `None` sees everything.
    scopes: Option<&'g BTreeSet<Arc<str>>>,
}

impl<'g> Scoped<'g> {
    /// `graph` as somebody in `scopes` sees it, or whole.
    pub fn new(graph: &'g Graph, scopes: Option<&'g BTreeSet<Arc<str>>>) -> Self {
        // Where nothing is limited, nothing need be asked.
        Self { graph, scopes: scopes.filter(|_| !graph.limited().is_empty()) }
    }

    fn sees(&self, el: El) -> bool {
        let Some(scopes) = self.scopes else { return true };
        if !el.is_link() {
            return self.graph.get(el).is_some_and(|look| self.lets(el, look, scopes));
        }
        // Links about links form a web that may be deep and wide: each one is asked once.
        let (mut asked, mut waiting) = (HashSet::new(), vec![el]);
        while let Some(el) = waiting.pop() {
            if !asked.insert(el) {
                continue;
            }
            match self.graph.get(el) {
                Some(look) if self.lets(el, look, scopes) => {
                    if let Look::Link(link) = look {
                        waiting.extend([link.subject, link.object]);
                    }
                }
                _ => return false,
            }
        }
        true
    }

    fn lets(&self, el: El, look: Look<'_>, scopes: &BTreeSet<Arc<str>>) -> bool {
        !self.graph.limited().contains(&el) || allowed(look, scopes)
    }

    /// The links of a predicate, or of all, that are hidden: those limited themselves, and those on what is hidden.
    fn hidden_links(&self, predicate: Option<Sym>) -> usize {
        let mut hidden: HashSet<El> = HashSet::new();
        let mut waiting: Vec<El> = self.graph.limited().iter().copied().filter(|el| !self.sees(*el)).collect();
        while let Some(el) = waiting.pop() {
            if !hidden.insert(el) {
                continue;
            }
            for way in [Way::Out, Way::In] {
                self.graph.edges(el, way, None, &mut |edge| {
                    waiting.push(edge.link);
                    true
                });
            }
        }
        let counts = |el: &&El| el.is_link() && predicate.is_none_or(|predicate| self.graph.is_of(**el, predicate));
        hidden.iter().filter(counts).count()
    }

    /// Batches of `more` until `max` visible ones are found or there are no more.
    fn visible(&self, after: El, max: usize, more: impl Fn(El, usize) -> Vec<El>) -> Vec<El> {
        let mut found = more(after, max);
        if self.scopes.is_none() {
            return found;
        }
        let mut out = Vec::new();
        while let Some(last) = found.last().copied() {
            out.extend(found.iter().copied().filter(|el| self.sees(*el)));
            if out.len() >= max {
                break;
            }
            found = more(last, max);
        }
        out.truncate(max);
        out
    }
}

/// Whether one of the scopes listed is the principal's. What is no list of scopes lets nobody in.
fn allowed(look: Look<'_>, scopes: &BTreeSet<Arc<str>>) -> bool {
    match look.metadata().named(SCOPES_KEY) {
        None | Some(Datum::Null) => true,
        Some(Datum::Str(scope)) => scopes.contains(scope.as_str()),
        Some(Datum::Json(listed)) => {
            listed.as_array().into_iter().flatten().filter_map(Value::as_str).any(|scope| scopes.contains(scope))
        }
        Some(_) => false,
    }
}

impl GraphRead for Scoped<'_> {
    fn look(&self, el: El, see: &mut dyn FnMut(Look<'_>)) {
        if self.sees(el) {
            self.graph.look(el, see);
        }
    }

    fn concept(&self, kind: Sym, name: &str) -> Option<El> {
        self.graph.concept(kind, name).filter(|el| self.sees(*el))
    }

    fn link(&self, subject: El, predicate: Sym, object: El) -> Option<El> {
        self.graph.link(subject, predicate, object).filter(|el| self.sees(*el))
    }

    fn types(&self) -> Vec<(Sym, usize)> {
        let types = self.graph.types();
        if self.scopes.is_none() {
            return types;
        }
        types.into_iter().map(|(kind, _)| (kind, self.type_len(kind))).filter(|(_, len)| *len > 0).collect()
    }

    fn predicates(&self) -> Vec<(Sym, usize)> {
        let all = self.graph.predicates();
        if self.scopes.is_none() {
            return all;
        }
        all.into_iter().map(|(name, _)| (name, self.predicate_len(Some(name)))).filter(|(_, len)| *len > 0).collect()
    }

    // A count of what is hidden would tell that it is there.
    fn type_len(&self, kind: Sym) -> usize {
        match self.scopes {
            None => self.graph.type_len(kind),
            Some(_) => {
                let hidden = self.graph.limited().iter().filter(|el| self.graph.is_of(**el, kind) && !self.sees(**el));
                self.graph.type_len(kind) - hidden.count()
            }
        }
    }

    fn predicate_len(&self, predicate: Option<Sym>) -> usize {
        match self.scopes {
            None => self.graph.predicate_len(predicate),
            Some(_) => self.graph.predicate_len(predicate) - self.hidden_links(predicate),
        }
    }

    fn of_type(&self, kind: Sym, after: El, max: usize) -> Vec<El> {
        self.visible(after, max, |after, max| self.graph.of_type(kind, after, max))
    }

    fn of_predicate(&self, predicate: Option<Sym>, after: El, max: usize) -> Vec<El> {
        self.visible(after, max, |after, max| self.graph.of_predicate(predicate, after, max))
    }

    fn concepts(&self, after: El, max: usize) -> Vec<El> {
        self.visible(after, max, |after, max| self.graph.concepts(after, max))
    }

    fn edges(&self, el: El, way: Way, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) {
        match self.scopes {
            None => self.graph.edges(el, way, predicate, see),
            Some(_) => self.graph.edges(el, way, predicate, &mut |edge| !self.sees(edge.link) || see(edge)),
        }
    }

    fn degree(&self, el: El, way: Way, predicate: Option<Sym>) -> usize {
        match self.scopes {
            None => self.graph.degree(el, way, predicate),
            Some(_) => {
                let mut count = 0;
                self.edges(el, way, predicate, &mut |_| {
                    count += 1;
                    true
                });
                count
            }
        }
    }

    fn sorted(
        &self,
        kind: Sym,
        key: Sym,
        range: &Range,
        descending: bool,
        after: Option<&(Place, El)>,
        max: usize,
    ) -> Option<Vec<(Place, El)>> {
        // Hidden ones are passed over when they are looked at; here they only mark how far a batch came.
        self.graph.sorted(kind, key, range, descending, after, max)
    }

    fn sorted_len(&self, kind: Sym, key: Sym) -> Option<usize> {
        self.graph.sorted_len(kind, key)
    }

    fn search(&self, words: &[Arc<str>], links: bool, kind: Option<Sym>, limit: usize) -> Vec<Hit> {
        // Hidden hits must not take up the places of visible ones.
        self.graph.search_where(words, links, limit, &mut |el| {
            self.sees(el) && kind.is_none_or(|kind| self.graph.is_of(el, kind))
        })
    }
}
