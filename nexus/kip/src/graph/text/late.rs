//! The full-text index of a graph. It is updated with every change; for a bulk-built graph, it is built on first use.
//! A loaded mind can therefore answer queries before its index exists.

use std::sync::{Arc, LazyLock};

use super::Index;

/// The index of the concepts, and the index of the links.
type Both = [Index; 2];
type Find = Box<dyn FnOnce() -> Both + Send>;

/// The full-text index, possibly not built yet; see the module documentation.
#[derive(Clone)]
pub struct Lexicon(State);

#[derive(Clone)]
enum State {
    Known(Both),
    /// The first user builds the index; all others wait for it.
    Late(Arc<LazyLock<Both, Find>>),
}

impl Default for Lexicon {
    fn default() -> Self {
        Self(State::Known(Both::default()))
    }
}

impl Lexicon {
    /// Returns an index that `find` builds on first use.
    pub fn late(find: impl FnOnce() -> Both + Send + 'static) -> Self {
        Self(State::Late(Arc::new(LazyLock::new(Box::new(find)))))
    }

    /// Returns the index of the concepts, or of the links.
    pub fn get(&self, links: bool) -> &Index {
        let both = match &self.0 {
            State::Known(both) => both,
            State::Late(late) => &***late,
        };
        &both[usize::from(links)]
    }

    /// Returns the same index for modification.
    pub fn get_mut(&mut self, links: bool) -> &mut Index {
        if let State::Late(late) = &self.0 {
            self.0 = State::Known((***late).clone());
        }
        match &mut self.0 {
            State::Known(both) => &mut both[usize::from(links)],
            State::Late(_) => unreachable!("they were made known above"),
        }
    }
}
