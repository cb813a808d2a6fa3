//! Intermediate rows of a plan, and the stages that work on whole rows: NOT, OPTIONAL, UNION.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

use super::{Budget, path, scan, triple};
use crate::datum::Sym;
use crate::graph::GraphRead;
use crate::lang::KipError;
use crate::plan::{Block, Plan, Step};

/// Rows of equal width in contiguous memory. 0 means null or not bound yet; the plan distinguishes the two.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) width: usize,
    pub(super) data: Vec<u32>,
}

impl Rows {
    pub(super) fn new(width: usize) -> Self {
        Self { width, data: Vec::new() }
    }

    /// Returns a single row with no bound slots.
    pub(super) fn seed(width: usize) -> Self {
        Self { width, data: vec![0; width] }
    }

    pub(super) fn len(&self) -> usize {
        self.data.len() / self.width
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.data.chunks_exact(self.width)
    }

    pub(super) fn push(&mut self, row: &[u32]) {
        self.data.extend_from_slice(row);
    }

    /// Keeps the rows for which `keep` returns `true`.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&[u32]) -> Result<bool, KipError>) -> Result<(), KipError> {
        let (mut kept, width) = (0, self.width);
        for at in (0..self.data.len()).step_by(width) {
            if keep(&self.data[at..at + width])? {
                self.data.copy_within(at..at + width, kept);
                kept += width;
            }
        }
        self.data.truncate(kept);
        Ok(())
    }
}

/// The state that all stages of a run share.
pub(super) struct Run<'r> {
    pub(super) graph: &'r dyn GraphRead,
    pub(super) plan: &'r Plan<'r>,
    pub(super) budget: &'r Budget,
    /// The predicates in slots for predicate names; a slot holds the index in this list plus one.
    names: RefCell<Vec<Sym>>,
    /// The number of rows from each stage, for EXPLAIN.
    made: Vec<Cell<usize>>,
}

impl<'r> Run<'r> {
    pub(super) fn new(graph: &'r dyn GraphRead, plan: &'r Plan<'r>, budget: &'r Budget) -> Self {
        Self { graph, plan, budget, names: RefCell::default(), made: vec![Cell::new(0); plan.stages] }
    }

    /// Returns the predicates that slots refer to by number.
    pub(super) fn names(&self) -> std::cell::Ref<'_, Vec<Sym>> {
        self.names.borrow()
    }

    /// Returns the slot value for a predicate's name.
    pub(super) fn name(&self, name: Sym) -> u32 {
        let mut names = self.names.borrow_mut();
        let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        at as u32 + 1
    }

    /// Returns the number of rows from stage `no`.
    pub(super) fn made(&self, no: usize) -> usize {
        self.made[no].get()
    }

    pub(super) fn count(&self, no: usize, rows: usize) {
        self.made[no].set(self.made[no].get() + rows);
    }

    /// Runs the stages of `block` from number `from` on.
    pub(super) fn block(&self, block: &Block, from: usize, mut rows: Rows) -> Result<Rows, KipError> {
        // The branch of a UNION is joined with the input rows of the block; at top level, the input is one row with
        // no bound slots.
        let seeds = if block.has_union { Some(rows.clone()) } else { None };
        for (at, stage) in block.stages.iter().enumerate().skip(from) {
            rows = match &stage.step {
                Step::Union(branch) => {
                    let found = self.block(branch, 0, Rows::seed(rows.width))?;
                    // A UNION at the beginning of WHERE is a plain block (R8).
                    let so_far = if at == 0 { Rows::new(rows.width) } else { rows };
                    self.union(so_far, found, seeds.as_ref())?
                }
                _ if rows.is_empty() && !block.has_union => return Ok(rows),
                step => self.step(step, rows)?,
            };
            self.count(stage.no, rows.len());
            self.budget.check_rows(rows.len(), rows.width)?;
        }
        Ok(rows)
    }

    fn step(&self, step: &Step, rows: Rows) -> Result<Rows, KipError> {
        match step {
            Step::Concept { slot, bound, which, .. } => scan::concepts(self, rows, *slot, *bound, which),
            Step::Link { slot, bound, el } => scan::link(self, rows, *slot, *bound, *el),
            Step::Triple(pattern) => triple::triples(self, rows, pattern),
            Step::Path(pattern) => path::paths(self, rows, pattern),
            Step::Filter(test) => {
                let (mut rows, names) = (rows, self.names());
                rows.retain(|row| {
                    self.budget.hop(1)?;
                    test.holds(row, &names, self.graph)
                })?;
                Ok(rows)
            }
            Step::Not(inner) => {
                let mut rows = rows;
                let found = self.origins(&inner.block, inner.origin, &rows)?;
                let with: HashSet<u32> = found.iter().map(|row| row[inner.origin]).collect();
                let mut no = 0;
                rows.retain(|_| {
                    no += 1;
                    Ok(!with.contains(&no))
                })?;
                Ok(rows)
            }
            Step::Optional(inner) => {
                let mut found = self.origins(&inner.block, inner.origin, &rows)?;
                let with: HashSet<u32> = found.iter().map(|row| row[inner.origin]).collect();
                for (no, row) in rows.iter().enumerate() {
                    if !with.contains(&(no as u32 + 1)) {
                        found.push(row);
                    }
                }
                let width = found.width;
                found.data.chunks_exact_mut(width).for_each(|row| row[inner.origin] = 0);
                Ok(found)
            }
            Step::Union(_) => Ok(rows),
        }
    }

    /// Solves `block` for each of `rows`; each solution carries the number of its row in `origin`.
    fn origins(&self, block: &Block, origin: usize, rows: &Rows) -> Result<Rows, KipError> {
        let mut seeds = rows.clone();
        for (no, row) in seeds.data.chunks_exact_mut(rows.width).enumerate() {
            row[origin] = no as u32 + 1;
        }
        self.block(block, 0, seeds)
    }

    /// Adds the solutions of a branch row by row, without duplicates. A branch inside NOT or OPTIONAL applies to
    /// every outer row with which it agrees.
    fn union(&self, so_far: Rows, found: Rows, seeds: Option<&Rows>) -> Result<Rows, KipError> {
        let mut out = Rows::new(so_far.width);
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        for row in so_far.iter() {
            if seen.insert(self.told_apart(row)) {
                out.push(row);
            }
        }
        // A slot that is bound in every outer row and in every solution serves as the join key.
        let shared = seeds.and_then(|seeds| {
            let bound = |rows: &Rows, slot: usize| rows.iter().all(|row| row[slot] != 0);
            (0..found.width).find(|slot| !seeds.is_empty() && bound(seeds, *slot) && bound(&found, *slot))
        });
        let mut by_slot: HashMap<u32, Vec<&[u32]>> = HashMap::new();
        for row in found.iter() {
            by_slot.entry(shared.map_or(0, |slot| row[slot])).or_default().push(row);
        }
        for seed in seeds.into_iter().flat_map(Rows::iter) {
            for row in by_slot.get(&shared.map_or(0, |slot| seed[slot])).into_iter().flatten() {
                self.budget.hop(1)?;
                if seed.iter().zip(*row).any(|(a, b)| *a != 0 && *b != 0 && a != b) {
                    continue;
                }
                let joined: Vec<u32> = seed.iter().zip(*row).map(|(a, b)| if *b == 0 { *a } else { *b }).collect();
                if seen.insert(self.told_apart(&joined)) {
                    out.push(&joined);
                    self.budget.check_rows(out.len(), out.width)?;
                }
            }
        }
        Ok(out)
    }

    /// Returns the key of a row for duplicate detection: the named slots and those that identify its outer row.
    fn told_apart(&self, row: &[u32]) -> Vec<u32> {
        row.iter()
            .zip(&self.plan.slots)
            .filter(|(_, slot)| slot.name.is_some() || slot.keeps_rows_apart)
            .map(|(value, _)| *value)
            .collect()
    }
}

/// Binds a slot, or compares it. A slot that was bound before the stage must hold the same value, and null matches
/// nothing. In `(?a, "p", ?a)`, the second end is compared with the slot just bound (R43).
pub(super) fn agree(row: &mut [u32], slot: usize, bound: bool, value: u32) -> bool {
    if bound {
        return row[slot] == value;
    }
    if row[slot] == 0 {
        row[slot] = value;
    }
    row[slot] == value
}
