//! Query plans: stages over numbered slots. Planning resolves names, looks constants up and orders the joins.

mod access;
mod build;
mod optimize;
mod test;

use std::fmt::Write;

pub use access::{Access, Field};
pub(crate) use build::access;
pub use build::{build, build_where};
pub use test::Test;

use crate::datum::Sym;
use crate::graph::{ElementId, Ids};
use crate::lang::Span;
use crate::lang::ast::Hops;

/// A query plan.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The slots of a row.
    pub slots: Vec<Slot<'a>>,
    /// The root block.
    pub root: Block,
    /// The number of stages, those of inner blocks included.
    pub stages: usize,
}

/// One slot of a row.
#[derive(Debug)]
pub struct Slot<'a> {
    /// The name of the variable; `None` for an element that the query does not name.
    pub name: Option<&'a str>,
    /// `true` if the slot holds the name of a predicate (R5) and not an element.
    pub holds_name: bool,
    /// `true` if the slot is bound at the top level, where FIND sees it. A slot that is bound only inside a NOT is
    /// not.
    pub answers: bool,
    /// `true` if the slot identifies the outer row of a solution.
    pub keeps_rows_apart: bool,
}

/// Stages in order.
#[derive(Debug, Default)]
pub struct Block {
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// `true` if one of the stages is a UNION; its branch does not see the earlier rows.
    pub has_union: bool,
}

/// One stage, which maps rows to rows.
#[derive(Debug)]
pub struct Stage {
    /// The number of the stage in the plan, for EXPLAIN.
    pub no: usize,
    /// The optimizer's estimate of the number of output rows per input row.
    pub estimate: usize,
    /// The step.
    pub step: Step,
}

/// A step of a plan. It binds the slots that are not `bound` yet and compares the bound ones. A bound slot that is
/// null never matches.
#[derive(Debug)]
pub enum Step {
    /// Binds a slot to concepts.
    Concept {
        /// The slot of the concept.
        slot: usize,
        /// `true` if an earlier step binds the slot.
        bound: bool,
        /// The concepts that match.
        which: Which,
        /// `true` if the step identifies one concept: by id, or by type and name.
        grounded: bool,
    },
    /// Binds a slot to the link with an id.
    Link {
        /// The slot of the link.
        slot: usize,
        /// `true` if an earlier step binds the slot.
        bound: bool,
        /// The link; `None` if the id is not that of a link.
        el: Option<ElementId>,
    },
    /// Binds a link and its two ends.
    Triple(Triple),
    /// Binds the two ends of a path.
    Path(Path),
    /// Keeps the rows that satisfy the condition.
    Filter(Test),
    /// Keeps the rows for which the block has no solution.
    Not(Inner),
    /// Joins the solutions of the block; keeps a row without a solution as it is.
    Optional(Inner),
    /// Adds the solutions of the block, which does not see the rows.
    Union(Block),
}

/// A block that is solved for each outer row.
#[derive(Debug)]
pub struct Inner {
    /// The slot that holds the number of the outer row.
    pub origin: usize,
    /// The block that is solved.
    pub block: Block,
}

/// The concepts that a pattern names.
#[derive(Clone, Debug)]
pub enum Which {
    /// These concepts. Constants are looked up when the plan is built.
    These(Vec<ElementId>),
    /// All concepts of a type.
    Type(Sym),
}

/// One proposition pattern.
#[derive(Clone, Debug)]
pub struct Triple {
    /// The slot of the link.
    pub link: usize,
    /// The slot of the subject.
    pub subject: usize,
    /// The slot of the object.
    pub object: usize,
    /// The slot of the predicate's name, if the query uses it.
    pub name: Option<usize>,
    /// The predicates that match; `None` means any.
    pub predicates: Option<Vec<Sym>>,
    /// `true` for each of link, subject, object and name that an earlier step binds.
    pub bound: [bool; 4],
}

/// One path pattern: the set of pairs that paths connect (R20).
#[derive(Clone, Debug)]
pub struct Path {
    /// The slot of the start.
    pub subject: usize,
    /// The slot of the end.
    pub object: usize,
    /// The alternatives: the predicate of every hop and the number of hops.
    pub walks: Vec<(Option<Sym>, Hops)>,
    /// `true` for each of start and end that an earlier step binds.
    pub bound: [bool; 2],
    /// The place in the text.
    pub span: Span,
}

impl Plan<'_> {
    /// Returns the slot of a variable.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.answers && slot.name == Some(name))
    }

    /// Returns `true` if the rows need no duplicate check: two rows can differ only in slots that the query names.
    pub fn rows_are_distinct(&self) -> bool {
        let mut bound = vec![false; self.slots.len()];
        self.mark_bound(&self.root, &mut bound)
            && self
                .slots
                .iter()
                .zip(bound)
                .all(|(slot, bound)| bound || (slot.answers && slot.name.is_some()) || slot.keeps_rows_apart)
    }

    /// Marks the slots whose value is determined by the named slots.
    fn mark_bound(&self, block: &Block, bound: &mut [bool]) -> bool {
        block.stages.iter().all(|stage| match &stage.step {
            Step::Concept { slot, which: Which::These(these), .. } if these.len() <= 1 => {
                bound[*slot] = true;
                true
            }
            Step::Link { slot, .. } => {
                bound[*slot] = true;
                true
            }
            Step::Triple(Triple { link, predicates: Some(names), .. }) if names.len() <= 1 => {
                bound[*link] = true;
                true
            }
            Step::Optional(inner) => self.mark_bound(&inner.block, bound),
            Step::Not(inner) => {
                self.hidden_of(&inner.block, bound);
                true
            }
            Step::Union(_) => false,
            _ => true,
        })
    }

    /// Marks the slots that are bound only inside a NOT.
    fn hidden_of(&self, block: &Block, bound: &mut [bool]) {
        for stage in &block.stages {
            match &stage.step {
                Step::Concept { slot, .. } | Step::Link { slot, .. } => bound[*slot] = true,
                Step::Triple(triple) => {
                    [triple.link, triple.subject, triple.object].into_iter().for_each(|slot| bound[slot] = true);
                }
                Step::Path(path) => [path.subject, path.object].into_iter().for_each(|slot| bound[slot] = true),
                Step::Not(inner) | Step::Optional(inner) => self.hidden_of(&inner.block, bound),
                Step::Union(block) => self.hidden_of(block, bound),
                Step::Filter(_) => {}
            }
        }
    }

    /// Returns the display name of a slot.
    fn shown(&self, slot: usize) -> String {
        self.slots[slot].name.map_or_else(|| format!("#{slot}"), |name| format!("?{name}"))
    }

    /// Returns every stage in order, with its depth and a description in words.
    pub fn explain(&self, ids: &Ids) -> Vec<(usize, usize, usize, String)> {
        let mut lines = Vec::new();
        self.explain_block(&self.root, 0, ids, &mut lines);
        lines
    }

    fn explain_block(&self, block: &Block, depth: usize, ids: &Ids, lines: &mut Vec<(usize, usize, usize, String)>) {
        for stage in &block.stages {
            lines.push((stage.no, depth, stage.estimate, self.in_words(&stage.step, ids)));
            match &stage.step {
                Step::Not(inner) | Step::Optional(inner) => self.explain_block(&inner.block, depth + 1, ids, lines),
                Step::Union(block) => self.explain_block(block, depth + 1, ids, lines),
                _ => {}
            }
        }
    }

    fn in_words(&self, step: &Step, ids: &Ids) -> String {
        match step {
            Step::Concept { slot, bound: true, which, .. } => {
                format!("check that {} {}", self.shown(*slot), which_words(which, ids))
            }
            Step::Concept { slot, which, .. } => {
                format!("bind {} to what {}", self.shown(*slot), which_words(which, ids))
            }
            Step::Link { slot, el, .. } => {
                format!("bind {} to {}", self.shown(*slot), el.map_or("nothing".into(), |el| ids.show(el)))
            }
            Step::Triple(triple) => {
                let side = match triple.bound {
                    [true, ..] => "from the link",
                    [_, true, true, _] => "between both ends",
                    [_, true, ..] => "from the subject",
                    [_, _, true, _] => "from the object",
                    _ => "over all its links",
                };
                let names = triple.predicates.as_ref().map_or("any predicate".into(), |names| {
                    names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" | ")
                });
                format!("join ({}, {names}, {}) {side}", self.shown(triple.subject), self.shown(triple.object))
            }
            Step::Path(path) => {
                let mut walks = String::new();
                for (name, hops) in &path.walks {
                    let most = hops.max.map_or(String::new(), |max| max.to_string());
                    let _ = write!(walks, "{}{{{},{most}}} ", name.map_or("(unknown)", Sym::as_str), hops.min);
                }
                format!("walk ({}, {}, {})", self.shown(path.subject), walks.trim_end(), self.shown(path.object))
            }
            Step::Filter(_) => "filter".into(),
            Step::Not(_) => "keep rows without".into(),
            Step::Optional(_) => "join if there is".into(),
            Step::Union(_) => "add".into(),
        }
    }
}

fn which_words(which: &Which, ids: &Ids) -> String {
    match which {
        Which::These(these) => match these.as_slice() {
            [] => "nothing is".into(),
            [one] => format!("is {}", ids.show(*one)),
            many => format!("is one of {} elements", many.len()),
        },
        Which::Type(kind) => format!("is of type {}", kind.as_str()),
    }
}
