//! Join order: the most selective end next, and each filter as early as it can be evaluated.

use super::{Path, Step, Triple, Which};
use crate::graph::{Direction, ElementId, GraphRead};

/// Orders the steps of a series of AND-ed clauses, whose result does not depend on the order (U12). Returns each step
/// with an estimate of its output rows per input row. Adds the slots that the steps bind to `bound`.
pub(super) fn order(mut waiting: Vec<Step>, bound: &mut Vec<usize>, graph: &dyn GraphRead) -> Vec<(usize, Step)> {
    let mut ordered = Vec::with_capacity(waiting.len());
    // Slots that hold one known element, for exact degrees.
    let mut known: Vec<(usize, ElementId)> = Vec::new();
    while !waiting.is_empty() {
        let (place, cost) = waiting
            .iter()
            .enumerate()
            .map(|(place, step)| (place, cost(step, bound, &known, graph)))
            .min_by_key(|(place, cost)| (*cost, *place))
            .unwrap_or((0, 0));
        let mut step = waiting.remove(place);
        mark(&mut step, bound);
        if let Step::Concept { slot, bound: false, which: Which::These(these), .. } = &step
            && let [one] = these.as_slice()
        {
            known.push((*slot, *one));
        }
        binds(&step, bound);
        ordered.push((cost, step));
    }
    ordered
}

/// Marks which slots of a step are bound before it.
fn mark(step: &mut Step, before: &[usize]) {
    let has = |slot: &usize| before.contains(slot);
    match step {
        Step::Concept { slot, bound, .. } | Step::Link { slot, bound, .. } => *bound = has(slot),
        Step::Triple(triple) => {
            triple.bound =
                [has(&triple.link), has(&triple.subject), has(&triple.object), triple.name.as_ref().is_some_and(has)];
        }
        Step::Path(path) => path.bound = [has(&path.subject), has(&path.object)],
        _ => {}
    }
}

/// Adds the slots that a step binds.
pub(super) fn binds(step: &Step, bound: &mut Vec<usize>) {
    let mut add = |slot: usize| {
        if !bound.contains(&slot) {
            bound.push(slot);
        }
    };
    match step {
        Step::Concept { slot, .. } | Step::Link { slot, .. } => add(*slot),
        Step::Triple(Triple { link, subject, object, name, .. }) => {
            [Some(*link), Some(*subject), Some(*object), *name].into_iter().flatten().for_each(add);
        }
        Step::Path(Path { subject, object, .. }) => [*subject, *object].into_iter().for_each(add),
        _ => {}
    }
}

/// Estimates the number of output rows per input row; a step that cannot run yet has the highest cost.
fn cost(step: &Step, bound: &[usize], known: &[(usize, ElementId)], graph: &dyn GraphRead) -> usize {
    let has = |slot: usize| bound.contains(&slot);
    let of = |slot: usize| known.iter().find(|(known, _)| *known == slot).map(|(_, el)| *el);
    match step {
        Step::Filter(test) => {
            let mut slots = Vec::new();
            test.slots(&mut slots);
            if slots.iter().all(|slot| has(*slot)) { 0 } else { usize::MAX }
        }
        Step::Link { .. } => 1,
        Step::Concept { slot, .. } if has(*slot) => 1,
        Step::Concept { which: Which::These(these), .. } => these.len().max(1),
        Step::Concept { which: Which::Type(kind), .. } => graph.type_len(*kind).max(2),
        Step::Triple(triple) => {
            let all = match &triple.predicates {
                None => graph.predicate_len(None),
                Some(names) => names.iter().map(|name| graph.predicate_len(Some(*name))).sum(),
            };
            let one = triple.predicates.as_deref().and_then(|names| if let [one] = names { Some(*one) } else { None });
            let fan = |slot: usize, way: Direction| match of(slot) {
                Some(el) => graph.degree(el, way, one).min(all) + 1,
                None => 2 + all.isqrt(),
            };
            match (has(triple.link), has(triple.subject), has(triple.object)) {
                (true, ..) | (_, true, true) => 1,
                (_, true, false) => fan(triple.subject, Direction::Out),
                (_, false, true) => fan(triple.object, Direction::In),
                (_, false, false) => 3 + all,
            }
        }
        Step::Path(path) => {
            let all: usize =
                path.walks.iter().filter_map(|(name, _)| *name).map(|name| graph.predicate_len(Some(name))).sum();
            match (has(path.subject), has(path.object)) {
                (true, true) => 4 + all.isqrt(),
                (true, false) | (false, true) => 5 + 2 * all.isqrt(),
                (false, false) => 6 + all.saturating_mul(4),
            }
        }
        Step::Not(_) | Step::Optional(_) | Step::Union(_) => 1,
    }
}
