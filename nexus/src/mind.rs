//! The graph of one nexus, wherever it lies: in memory, or on a shelf once it has outgrown its budget.

use std::collections::BTreeSet;

use kip::datum::Sym;
use kip::graph::{El, Graph, GraphRead, GraphWrite, Limited, Numbering};
use store::StoreError;

use super::shelf::Shelved;

/// From so many elements on, a command is long enough to be kept off the runtime's other work.
const LARGE: usize = 20_000;

/// See the module. A clone is a snapshot.
#[derive(Clone)]
pub enum Mind {
    /// In memory.
    Resident(Box<Graph>),
    /// On disk.
    Shelved(Box<Shelved>),
}

impl Mind {
    /// The graph, to be read.
    pub fn read(&self) -> &dyn GraphRead {
        match self {
            Self::Resident(graph) => &**graph,
            Self::Shelved(shelved) => &**shelved,
        }
    }

    /// The elements that not everybody may see.
    pub(super) fn limited(&self) -> &Limited {
        match self {
            Self::Resident(graph) => graph.limited(),
            Self::Shelved(shelved) => shelved.limited(),
        }
    }

    /// Every link that begins or ends at an element.
    pub(super) fn read_links(&self, el: El) -> BTreeSet<El> {
        match self {
            Self::Resident(graph) => graph.links_at(el),
            Self::Shelved(shelved) => shelved.links_at(el),
        }
    }

    /// Returns `true` if work on the mind takes too long for a thread that serves others.
    pub(super) fn is_large(&self) -> bool {
        match self {
            Self::Resident(graph) => {
                let (concepts, links) = graph.len();
                concepts + links >= LARGE
            }
            Self::Shelved(_) => true,
        }
    }

    /// The graph, to be written.
    pub(super) fn write(&mut self) -> &mut dyn GraphWrite {
        match self {
            Self::Resident(graph) => &mut **graph,
            Self::Shelved(shelved) => &mut **shelved,
        }
    }

    /// Returns the numbers of concepts and of links.
    pub fn len(&self) -> (usize, usize) {
        match self {
            Self::Resident(graph) => graph.len(),
            Self::Shelved(shelved) => shelved.len(),
        }
    }

    /// Returns `true` if the mind has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// About how many bytes it takes up, or would take up, in memory.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Resident(graph) => graph.weight(),
            Self::Shelved(shelved) => shelved.weight(),
        }
    }

    /// The numbers of the next concept and the next link.
    pub(super) fn next(&self) -> (u32, u32) {
        match self {
            Self::Resident(graph) => (graph.next_concept, graph.next_link),
            Self::Shelved(shelved) => shelved.next(),
        }
    }

    /// Sets the ids of its elements.
    pub(super) fn set_numbering(&mut self, numbering: Numbering) {
        match self {
            Self::Resident(graph) => graph.numbering = numbering,
            Self::Shelved(shelved) => shelved.set_numbering(numbering),
        }
    }

    /// The ids of its elements.
    pub(super) fn numbering(&self) -> Numbering {
        match self {
            Self::Resident(graph) => graph.numbering,
            Self::Shelved(shelved) => shelved.numbering(),
        }
    }

    /// Builds the index of a type by an attribute, unless it is there.
    ///
    /// # Errors
    /// [`StoreError::Io`] of a shelf.
    pub(super) fn sort_by(&mut self, kind: Sym, key: Sym) -> Result<(), StoreError> {
        match self {
            Self::Resident(graph) => {
                graph.sort_by(kind, key);
                Ok(())
            }
            Self::Shelved(shelved) => shelved.sort_by(kind, key),
        }
    }

    /// Checks that every read succeeded.
    ///
    /// # Errors
    /// [`StoreError::Io`] of a shelf: an answer that depends on it must not be given.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match self {
            Self::Resident(_) => Ok(()),
            Self::Shelved(shelved) => shelved.check(),
        }
    }
}
