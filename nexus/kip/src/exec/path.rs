//! Paths: the set of pairs that a walk of a permitted length connects (R19, R20). A walk may pass a node twice, so
//! the search follows lengths up to the minimum level by level. Beyond the minimum, a node need not be visited again,
//! so the search terminates on cycles.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::rows::{Rows, Run, agree};
use super::scan::BATCH;
use crate::datum::Sym;
use crate::graph::{Direction, Edge, ElementId, ElementRef};
use crate::lang::ast::Hops;
use crate::lang::{ErrorKind, KipError};
use crate::plan::Path;

/// Binds both ends for every pair.
pub(super) fn paths(run: &Run<'_>, rows: Rows, pattern: &Path) -> Result<Rows, KipError> {
    let [start_bound, end_bound] = pattern.bound;
    let backwards = !start_bound && end_bound;
    let way = if backwards { Direction::In } else { Direction::Out };
    let (near, far) = if backwards { (pattern.object, pattern.subject) } else { (pattern.subject, pattern.object) };
    let mut known: HashMap<ElementId, Vec<ElementId>> = HashMap::new();
    let starts = if start_bound || end_bound { Vec::new() } else { every_start(run, pattern)? };
    let mut out = Rows::new(rows.width);
    for row in rows.iter() {
        let here = [ElementId(row[near])];
        let from: &[ElementId] = if start_bound || end_bound { &here } else { &starts };
        for start in from.iter().filter(|el| **el != ElementId::NONE) {
            if !known.contains_key(start) {
                known.insert(*start, reach(run, *start, way, pattern)?);
            }
            for end in &known[start] {
                run.budget.hop(1)?;
                let at = out.data.len();
                out.push(row);
                let fresh = &mut out.data[at..];
                let near_bound = start_bound || end_bound;
                let far_bound = start_bound && end_bound;
                if !(agree(fresh, near, near_bound, start.0) && agree(fresh, far, far_bound, end.0)) {
                    out.data.truncate(at);
                }
            }
            run.budget.check_rows(out.len(), out.width)?;
        }
    }
    Ok(out)
}

/// Returns every possible start of a path: the elements with such links, and for zero hops every concept as well.
fn every_start(run: &Run<'_>, pattern: &Path) -> Result<Vec<ElementId>, KipError> {
    let mut starts: BTreeSet<ElementId> = BTreeSet::new();
    for (name, hops) in &pattern.walks {
        let mut after = ElementId::FIRST_LINK;
        while let Some(name) = name {
            let batch = run.graph.of_predicate(Some(*name), after, BATCH);
            let Some(last) = batch.last() else { break };
            after = *last;
            run.budget.hop(batch.len())?;
            for el in batch {
                run.graph.look(el, &mut |look| {
                    if let ElementRef::Link(link) = look {
                        starts.insert(link.subject);
                        if hops.min == 0 {
                            starts.insert(link.object);
                        }
                    }
                });
            }
        }
        let mut after = ElementId::NONE;
        let with_all = hops.min == 0;
        loop {
            let batch = if with_all { run.graph.concepts(after, BATCH) } else { Vec::new() };
            let Some(last) = batch.last() else { break };
            after = *last;
            run.budget.hop(batch.len())?;
            starts.extend(batch);
        }
    }
    Ok(starts.into_iter().collect())
}

/// Returns every end of a walk from `start`, in order.
fn reach(run: &Run<'_>, start: ElementId, way: Direction, pattern: &Path) -> Result<Vec<ElementId>, KipError> {
    let mut ends: BTreeSet<ElementId> = BTreeSet::new();
    for (name, hops) in &pattern.walks {
        walk(run, start, way, *name, *hops, &mut ends)
            .map_err(|error| if error.kind == ErrorKind::Execution { error.at(pattern.span) } else { error })?;
    }
    Ok(ends.into_iter().collect())
}

fn walk(
    run: &Run<'_>,
    start: ElementId,
    way: Direction,
    name: Option<Sym>,
    hops: Hops,
    ends: &mut BTreeSet<ElementId>,
) -> Result<(), KipError> {
    let mut level: HashSet<ElementId> = HashSet::from([start]);
    for _ in 0..hops.min {
        level = next(run, &level, way, name, |_| true)?;
        if level.is_empty() {
            return Ok(());
        }
    }
    let mut reached: HashSet<ElementId> = level.clone();
    let mut left = hops.max.map_or(u32::MAX, |max| max - hops.min);
    while left > 0 && !level.is_empty() {
        level = next(run, &level, way, name, |el| !reached.contains(&el))?;
        reached.extend(level.iter().copied());
        left -= 1;
    }
    ends.extend(reached);
    Ok(())
}

/// Returns the wanted elements that are one hop further.
fn next(
    run: &Run<'_>,
    level: &HashSet<ElementId>,
    way: Direction,
    name: Option<Sym>,
    wanted: impl Fn(ElementId) -> bool,
) -> Result<HashSet<ElementId>, KipError> {
    let mut found = HashSet::new();
    let Some(name) = name else { return Ok(found) };
    for el in level {
        let mut spent = Ok(());
        run.graph.edges(*el, way, Some(name), &mut |Edge { other, .. }| {
            spent = run.budget.hop(1);
            if wanted(other) {
                found.insert(other);
            }
            spent.is_ok()
        });
        spent?;
    }
    Ok(found)
}
