//! Puts steps in a good order: the most selective next, and each filter as soon as it can be judged.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::build::variables;
use super::{Plan, Step};
use crate::graph::{GraphRead, Pattern};

/// Reorders the steps of `plan`; the answer is the same in any order (U12).
pub(super) fn optimize(plan: &mut Plan, graph: &dyn GraphRead) {
    let mut waiting: Vec<Step> = std::mem::take(&mut plan.steps);
    let mut bound: BTreeSet<usize> = BTreeSet::new();
    while !waiting.is_empty() {
        let cheapest = waiting
            .iter()
            .enumerate()
            .min_by_key(|(place, step)| (cost(plan, graph, step, &bound), *place))
            .map_or(0, |(place, _)| place);
        let step = waiting.remove(cheapest);
        bound.extend(binds(&step));
        plan.steps.push(step);
    }
}

fn binds(step: &Step) -> Vec<usize> {
    match step {
        Step::Concept { slot, .. } | Step::LinkById { slot, .. } => vec![*slot],
        Step::Triple { link, subject, predicate, object, .. } => {
            [Some(*link), Some(*subject), Some(*object), *predicate].into_iter().flatten().collect()
        }
        Step::Filter(_) => Vec::new(),
    }
}

/// About how many rows the step makes out of one.
fn cost(plan: &Plan, graph: &dyn GraphRead, step: &Step, bound: &BTreeSet<usize>) -> usize {
    let kind_size = |kind: &Arc<str>| graph.of_type(kind).len();
    match step {
        Step::Filter(test) => {
            let ready = variables(test).iter().all(|name| plan.slot(name).is_some_and(|slot| bound.contains(&slot)));
            if ready { 0 } else { usize::MAX }
        }
        Step::LinkById { .. } | Step::Concept { id: Some(_), .. } => 1,
        Step::Concept { slot, .. } if bound.contains(slot) => 1,
        Step::Concept { kind: Some(_), name: Some(_), .. } => 1,
        Step::Concept { name: Some(name), .. } => graph.named(name).len().max(1),
        Step::Concept { kind: Some(kind), .. } => kind_size(kind).max(2),
        Step::Concept { .. } => usize::MAX - 1,
        Step::Triple { link, subject, predicates, object, .. } => {
            let all = graph.links_estimate(&Pattern { predicates, ..Pattern::default() });
            match (bound.contains(link), bound.contains(subject), bound.contains(object)) {
                (true, ..) | (_, true, true) => 1,
                (_, true, false) | (_, false, true) => 2 + all.isqrt(),
                (_, false, false) => 3 + all,
            }
        }
    }
}
