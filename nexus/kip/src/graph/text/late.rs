//! The words of a graph: kept up with every change, or, for a graph made at once, found when they are first needed.
//! A mind that wakes can so be asked before its words are known.

use std::sync::{Arc, LazyLock};

use super::Index;

/// The index of the concepts and that of the links.
type Both = [Index; 2];
type Find = Box<dyn FnOnce() -> Both + Send>;

/// See the module.
#[derive(Clone)]
pub struct Lexicon(State);

#[derive(Clone)]
enum State {
    Known(Both),
    /// Whoever needs them first finds them; all others wait for him.
    Late(Arc<LazyLock<Both, Find>>),
}

impl Default for Lexicon {
    fn default() -> Self {
        Self(State::Known(Both::default()))
    }
}

impl Lexicon {
    /// Words that `find` finds once they are needed.
    pub fn late(find: impl FnOnce() -> Both + Send + 'static) -> Self {
        Self(State::Late(Arc::new(LazyLock::new(Box::new(find)))))
    }

    /// The words of the concepts, or of the links.
    pub fn get(&self, links: bool) -> &Index {
        let both = match &self.0 {
            State::Known(both) => both,
            State::Late(late) => &***late,
        };
        &both[usize::from(links)]
    }

    /// The same, to be changed.
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
