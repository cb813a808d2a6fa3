//! The links at one end of an element, in order of predicate: a few in one piece of memory, many in a tree that a
//! writer changes without copying all of it.

use imbl::OrdSet;
use std::sync::Arc;
use triomphe::ThinArc;

use super::ElementId;
use crate::datum::Sym;

/// One link as seen from one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The predicate.
    pub predicate: Sym,
    /// The element at the other end.
    pub other: ElementId,
    /// The link itself.
    pub link: ElementId,
}

/// The maximum number of edges in one piece of memory.
const FEW: usize = 32;

/// The links at one end of an element; see the module documentation.
#[derive(Clone, Default)]
pub enum Edges {
    /// No edges.
    #[default]
    None,
    /// A sorted array of a few edges.
    Few(ThinArc<(), Edge>),
    /// A sorted tree.
    Many(Arc<OrdSet<Edge>>),
}

impl Edges {
    /// Returns the number of edges.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Few(few) => few.slice.len(),
            Self::Many(many) => many.len(),
        }
    }

    /// Returns `true` if there are no edges.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an edge.
    pub fn insert(&mut self, edge: Edge) {
        match self {
            Self::None => *self = Self::few(vec![edge]),
            Self::Few(few) => {
                let mut list = Vec::with_capacity(few.slice.len() + 1);
                list.extend_from_slice(&few.slice);
                match list.binary_search(&edge) {
                    Ok(_) => return,
                    Err(at) => list.insert(at, edge),
                }
                *self = Self::of(list);
            }
            Self::Many(many) => drop(Arc::make_mut(many).insert(edge)),
        }
    }

    /// Removes an edge.
    pub fn remove(&mut self, edge: &Edge) {
        match self {
            Self::None => {}
            Self::Few(few) => {
                let list: Vec<Edge> = few.slice.iter().filter(|known| *known != edge).copied().collect();
                *self = Self::of(list);
            }
            Self::Many(many) => {
                let set = Arc::make_mut(many);
                set.remove(edge);
                if set.is_empty() {
                    *self = Self::None;
                }
            }
        }
    }

    /// Returns the given edges, which must be sorted.
    pub fn of(sorted: Vec<Edge>) -> Self {
        match sorted.len() {
            0 => Self::None,
            1..=FEW => Self::few(sorted),
            _ => Self::Many(Arc::new(sorted.into_iter().collect())),
        }
    }

    fn few(list: Vec<Edge>) -> Self {
        Self::Few(ThinArc::from_header_and_iter((), list.into_iter()))
    }

    /// Calls `see` for each edge, of one predicate or of all, until `see` returns `false`. Returns `true` if it
    /// visited all.
    pub fn each(&self, predicate: Option<Sym>, see: &mut dyn FnMut(Edge) -> bool) -> bool {
        match (self, predicate) {
            (Self::None, _) => true,
            (Self::Few(few), None) => few.slice.iter().all(|edge| see(*edge)),
            (Self::Few(few), Some(wanted)) => {
                few.slice.iter().filter(|edge| edge.predicate == wanted).all(|edge| see(*edge))
            }
            (Self::Many(many), None) => many.iter().all(|edge| see(*edge)),
            (Self::Many(many), Some(wanted)) => {
                let first = Edge { predicate: wanted, other: ElementId(0), link: ElementId(0) };
                many.range(first..).take_while(|edge| edge.predicate == wanted).all(|edge| see(*edge))
            }
        }
    }

    /// Returns the link with this predicate and this other end.
    pub fn find(&self, predicate: Sym, other: ElementId) -> Option<ElementId> {
        let fits = |edge: &&Edge| edge.predicate == predicate && edge.other == other;
        match self {
            Self::None => None,
            Self::Few(few) => few.slice.iter().find(fits).map(|edge| edge.link),
            Self::Many(many) => {
                let first = Edge { predicate, other, link: ElementId(0) };
                many.range(first..).next().filter(fits).map(|edge| edge.link)
            }
        }
    }

    /// Returns the approximate number of edges of one predicate, or the exact number of all edges.
    pub fn count(&self, predicate: Option<Sym>) -> usize {
        match (self, predicate) {
            (Self::Few(few), Some(wanted)) => few.slice.iter().filter(|edge| edge.predicate == wanted).count(),
            _ => self.len(),
        }
    }
}
