//! The graph of one nexus: in memory, or on a shelf once it has outgrown its memory budget.

use std::collections::BTreeSet;

use kip::datum::Sym;
use kip::graph::{ElementId, Graph, GraphRead, GraphWrite, Limited, Numbering};
use store::StoreError;

use super::disk_graph::DiskGraph;

/// The number of elements from which a command is long enough to be kept off the runtime's async threads.
const LARGE: usize = 20_000;
/// The same number for queries, which may visit the elements many times.
const LARGE_TO_READ: usize = 1_000;

/// The graph of one nexus; see the module documentation. A clone is a snapshot.
#[derive(Clone)]
pub enum Mind {
    /// In memory.
    Resident(Box<Graph>),
    /// On disk.
    DiskGraph(Box<DiskGraph>),
}

impl Mind {
    /// Returns the graph for reading.
    pub fn read(&self) -> &dyn GraphRead {
        match self {
            Self::Resident(graph) => &**graph,
            Self::DiskGraph(shelved) => &**shelved,
        }
    }

    /// Returns the restricted elements.
    pub(super) fn limited(&self) -> &Limited {
        match self {
            Self::Resident(graph) => graph.limited(),
            Self::DiskGraph(shelved) => shelved.limited(),
        }
    }

    /// Returns every link that begins or ends at an element.
    pub(super) fn read_links(&self, el: ElementId) -> BTreeSet<ElementId> {
        match self {
            Self::Resident(graph) => graph.links_at(el),
            Self::DiskGraph(shelved) => shelved.links_at(el),
        }
    }

    /// Returns `true` if a command on the mind takes too long for an async thread.
    pub(super) fn is_large(&self) -> bool {
        self.has_elements(LARGE)
    }

    /// Returns `true` if a query of the mind may take too long for an async thread.
    pub(super) fn is_large_to_read(&self) -> bool {
        self.has_elements(LARGE_TO_READ)
    }

    fn has_elements(&self, count: usize) -> bool {
        match self {
            Self::Resident(graph) => {
                let (concepts, links) = graph.len();
                concepts + links >= count
            }
            Self::DiskGraph(_) => true,
        }
    }

    /// Returns the graph for writing.
    pub(super) fn write(&mut self) -> &mut dyn GraphWrite {
        match self {
            Self::Resident(graph) => &mut **graph,
            Self::DiskGraph(shelved) => &mut **shelved,
        }
    }

    /// Returns the numbers of concepts and of links.
    pub fn len(&self) -> (usize, usize) {
        match self {
            Self::Resident(graph) => graph.len(),
            Self::DiskGraph(shelved) => shelved.len(),
        }
    }

    /// Returns `true` if the mind has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// Returns the estimated memory of the mind if it were resident, in bytes.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Resident(graph) => graph.weight(),
            Self::DiskGraph(shelved) => shelved.weight(),
        }
    }

    /// The numbers of the next concept and the next link.
    pub(super) fn next(&self) -> (u32, u32) {
        match self {
            Self::Resident(graph) => (graph.next_concept, graph.next_link),
            Self::DiskGraph(shelved) => shelved.next(),
        }
    }

    /// Sets the numbering, which maps element numbers to ids.
    pub(super) fn set_numbering(&mut self, numbering: Numbering) {
        match self {
            Self::Resident(graph) => graph.numbering = numbering,
            Self::DiskGraph(shelved) => shelved.set_numbering(numbering),
        }
    }

    /// Returns the numbering, which maps element numbers to ids.
    pub(super) fn numbering(&self) -> Numbering {
        match self {
            Self::Resident(graph) => graph.numbering,
            Self::DiskGraph(shelved) => shelved.numbering(),
        }
    }

    /// Builds the index of a type by an attribute, if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::Io`] of a shelf.
    pub(super) fn sort_by(&mut self, kind: Sym, key: Sym) -> Result<(), StoreError> {
        match self {
            Self::Resident(graph) => {
                graph.sort_by(kind, key);
                Ok(())
            }
            Self::DiskGraph(shelved) => shelved.sort_by(kind, key),
        }
    }

    /// Checks that every read succeeded.
    ///
    /// # Errors
    /// [`StoreError::Io`] if a read of a shelf failed; the caller must not return an answer that depends on that
    /// read.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Resident(_) => Ok(()),
            Self::DiskGraph(shelved) => shelved.check(),
        }
    }
}
