//! A query as steps over numbered slots: the tree with its names resolved and its joins in order.

mod build;
mod optimize;

use std::sync::Arc;

use crate::kip::ast::Expr;

pub use build::{build, build_where};

/// One step of a plan. A step binds the slots it names that no earlier step bound.
#[derive(Clone, Debug)]
pub enum Step {
    /// Binds `slot` to concepts.
    Concept {
        /// Where the concept goes.
        slot: usize,
        /// Its id, if given.
        id: Option<Arc<str>>,
        /// Its type, if given.
        kind: Option<Arc<str>>,
        /// Its name, if given.
        name: Option<Arc<str>>,
    },
    /// Binds `slot` to the link of that id.
    LinkById {
        /// Where the link goes.
        slot: usize,
        /// The id.
        id: Arc<str>,
    },
    /// Binds a link and its two ends.
    Triple {
        /// Where the link goes.
        link: usize,
        /// Where its subject goes.
        subject: usize,
        /// Which predicates; empty is any.
        predicates: Vec<Arc<str>>,
        /// Where the predicate's name goes, if it is asked for.
        predicate: Option<usize>,
        /// Where its object goes.
        object: usize,
    },
    /// Keeps the rows for which it is true.
    Filter(Expr),
}

/// A plan: the slots by name, hidden ones unnamed, and the steps in order.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The variable behind each slot.
    pub slots: Vec<Option<Arc<str>>>,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// The slot of a variable.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_deref() == Some(name))
    }
}
