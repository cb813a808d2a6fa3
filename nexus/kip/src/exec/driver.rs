//! The source of the rows of a FIND: all rows at once, or batches in an order in which the query can stop when its
//! answer is full.

use std::ops::Bound;

use super::rows::{Rows, Run};
use crate::datum::{Datum, Sym};
use crate::graph::ElementId;
use crate::graph::sorted::{Batch, Place, Range};
use crate::lang::KipError;
use crate::lang::ast::{Comparison, Find, Selected};
use crate::plan::{Access, Field, Step, Test, Which};

/// The number of concepts from which an index is worth building.
const INDEX_FROM: usize = 512;
/// The number of concepts in the first batch; later batches are larger.
const BATCH_FIRST: usize = 128;
const BATCH_MAX: usize = 4096;

/// The source of the solutions: all at once, or batches in an order in which the query can stop when its answer is
/// full.
pub(super) enum Driver {
    /// All solutions at once.
    Whole,
    /// The concepts of a type in order of creation.
    Type { slot: usize, kind: Sym },
    /// The concepts of a type in the order of an attribute; those without the attribute come last.
    Sorted { slot: usize, kind: Sym, key: Sym, range: Range, descending: bool, by_order: bool },
}

impl Driver {
    pub(super) fn of(query: &Find<'_>, run: &Run<'_>, wants: &mut Vec<(Sym, Sym)>) -> Self {
        let root = &run.plan.root;
        let Some(Step::Concept { slot, bound: false, which: Which::Type(kind), .. }) =
            root.stages.first().map(|stage| &stage.step)
        else {
            return Self::Whole;
        };
        let (slot, kind) = (*slot, *kind);
        if root.has_union {
            return Self::Whole;
        }
        let large = run.graph.type_len(kind) >= INDEX_FROM;
        let mut usable = |key: Sym| {
            let there = run.graph.sorted_len(kind, key).is_some();
            if !there && large && !wants.contains(&(kind, key)) {
                wants.push((kind, key));
            }
            there
        };
        let ranges: Vec<(Sym, Range, bool)> = root
            .stages
            .iter()
            .filter_map(|stage| if let Step::Filter(test) = &stage.step { range_of(test, slot) } else { None })
            .collect();
        let order = match (query.order.first(), &query.limit) {
            (Some((Selected::Path(path), descending)), Some(_)) if run.plan.slot(path.var) == Some(slot) => {
                match Field::of(path) {
                    Some(Field::Attribute(Some(key), deeper)) if deeper.is_empty() => Some((key, *descending)),
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some((key, range, _)) = ranges.iter().find(|(_, _, exact)| *exact)
            && usable(*key)
        {
            return Self::Sorted { slot, kind, key: *key, range: range.clone(), descending: false, by_order: false };
        }
        if let Some((key, descending)) = order
            && usable(key)
        {
            let range = ranges.iter().find(|(of, ..)| *of == key).map(|(_, range, _)| range.clone());
            let range = range.unwrap_or((Bound::Unbounded, Bound::Unbounded));
            return Self::Sorted { slot, kind, key, range, descending, by_order: true };
        }
        if let Some((key, range, _)) = ranges.first()
            && usable(*key)
        {
            return Self::Sorted { slot, kind, key: *key, range: range.clone(), descending: false, by_order: false };
        }
        Self::Type { slot, kind }
    }

    pub(super) fn in_words(&self) -> String {
        match self {
            Self::Whole => "all solutions at once".into(),
            Self::Type { kind, .. } => format!("every {} in order of creation", kind.as_str()),
            Self::Sorted { kind, key, descending, .. } => {
                format!(
                    "the index of {} by {}{}",
                    kind.as_str(),
                    key.as_str(),
                    if *descending { ", backwards" } else { "" }
                )
            }
        }
    }

    /// Solves the plan and passes the rows to `sink` until it has enough. `sink` also receives the position reached;
    /// no later row precedes it.
    pub(super) fn solve(&self, run: &Run<'_>, few: bool, from: ElementId, sink: Sink<'_>) -> Result<(), KipError> {
        let (plan, root) = (run.plan, &run.plan.root);
        let width = plan.slots.len();
        let mut size = if few { BATCH_FIRST } else { BATCH_MAX };
        // Runs one batch through the stages after the first.
        let push = |slot: usize, els: &[ElementId]| {
            run.budget.hop(els.len())?;
            let mut rows = Rows::new(width);
            rows.data.resize(els.len() * width, 0);
            rows.data.chunks_exact_mut(width).zip(els).for_each(|(row, el)| row[slot] = el.0);
            run.count(root.stages[0].no, els.len());
            run.block(root, 1, rows)
        };
        match self {
            Self::Whole => sink(run.block(root, 0, Rows::seed(width))?, None).map(drop),
            Self::Type { slot, kind } => {
                let mut after = from;
                loop {
                    let els = run.graph.of_type(*kind, after, size);
                    let Some(last) = els.last().copied() else { return Ok(()) };
                    after = last;
                    size = (size * 2).min(BATCH_MAX);
                    if !sink(push(*slot, &els)?, Some(&Reached::Element(last)))? {
                        return Ok(());
                    }
                }
            }
            Self::Sorted { slot, kind, key, range, descending, by_order } => {
                let mut after: Option<(Place, ElementId)> = None;
                loop {
                    let (kind, key, descending) = (*kind, *key, *descending);
                    let batch = Batch { kind, key, range, descending, after: after.as_ref(), max: size };
                    let found = run.graph.sorted(&batch).unwrap_or_default();
                    let Some(last) = found.last().cloned() else { break };
                    size = (size * 2).min(BATCH_MAX);
                    let els: Vec<ElementId> = found.iter().map(|(_, el)| *el).collect();
                    let reached = by_order.then(|| Reached::Place(last.0.clone()));
                    after = Some(last);
                    if !sink(push(*slot, &els)?, reached.as_ref())? {
                        return Ok(());
                    }
                }
                // The attribute is null for concepts without it: they come last in any order, and are in no range.
                if !matches!(range, (Bound::Unbounded, Bound::Unbounded)) {
                    return Ok(());
                }
                let mut after = ElementId::NONE;
                loop {
                    let els = run.graph.of_type(*kind, after, BATCH_MAX);
                    let Some(last) = els.last() else { return Ok(()) };
                    after = *last;
                    let without = |el: &ElementId| {
                        let mut null = false;
                        run.graph.look(*el, &mut |look| null = look.attributes().get(*key).is_none_or(Datum::is_null));
                        null
                    };
                    let els: Vec<ElementId> = els.into_iter().filter(without).collect();
                    if !sink(push(*slot, &els)?, None)? {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Receives rows with the position of the driver, and returns `true` if it needs more rows.
pub(super) type Sink<'s> = &'s mut dyn FnMut(Rows, Option<&Reached>) -> Result<bool, KipError>;

/// The position that a driver has reached.
pub(super) enum Reached {
    /// A position in order of creation.
    Element(ElementId),
    /// A position in the order of an attribute.
    Place(Place),
}

/// Returns the range of an attribute of `slot` that a filter allows. The flag is `true` if the range is a single
/// value.
fn range_of(test: &Test, slot: usize) -> Option<(Sym, Range, bool)> {
    let Test::Compare(a, operator, b) = test else { return None };
    let (access, value, operator) = match (&**a, &**b) {
        (Test::Get(access), Test::Value(value)) => (access, value, *operator),
        (Test::Value(value), Test::Get(access)) => (access, value, turned(*operator)),
        _ => return None,
    };
    let Access { slot: of, field: Field::Attribute(Some(key), deeper), holds_name: false } = access else {
        return None;
    };
    let orderable = matches!(value, Datum::Bool(_) | Datum::Int(_) | Datum::Float(_) | Datum::Str(_));
    if *of != slot || !deeper.is_empty() || !orderable {
        return None;
    }
    let place = Place::of(value)?;
    let from = |bound| (bound, Bound::Unbounded);
    let to = |bound| (Bound::Unbounded, bound);
    // The filter checks the rows again, so the range may be too wide but never too narrow.
    let (range, exact) = match operator {
        Comparison::Eq => ((Bound::Included(place.clone()), Bound::Included(place)), true),
        Comparison::Lt | Comparison::Le => (to(Bound::Included(place)), false),
        Comparison::Gt | Comparison::Ge => (from(Bound::Included(place)), false),
        Comparison::Ne => return None,
    };
    Some((*key, range, exact))
}

/// Returns the operator for swapped operands.
fn turned(operator: Comparison) -> Comparison {
    match operator {
        Comparison::Lt => Comparison::Gt,
        Comparison::Le => Comparison::Ge,
        Comparison::Gt => Comparison::Lt,
        Comparison::Ge => Comparison::Le,
        same => same,
    }
}
