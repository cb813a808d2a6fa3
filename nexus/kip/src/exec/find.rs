//! FIND: solve, sort, project. Rows have one total order: the keys of ORDER BY, then the projected elements in order
//! of creation. A cursor can therefore be a position in this order instead of an offset.

use std::cmp::Ordering;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::driver::{Driver, Reached};
use super::group::grouped;
use super::rows::Run;
use super::undefined::undefined;
use super::{Budget, Dialect, Options, cursor, limit_of};
use crate::datum::{Datum, Sym};
use crate::graph::sorted::Place;
use crate::graph::{ElementId, GraphRead};
use crate::lang::ast::{Find, Selected};
use crate::lang::{Command, ErrorKind, KipError};
use crate::plan::{self, Access, Field, Plan, Step, Which};

/// The answer of a command.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The result, as JSON.
    pub result: Value,
    /// The cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// Warnings about skipped items.
    pub warnings: Vec<String>,
    /// Pairs of type and attribute whose index would have helped.
    pub wants: Vec<(Sym, Sym)>,
}

impl Answer {
    /// Returns an answer with a result only.
    pub fn of(result: Value) -> Self {
        Self { result, ..Self::default() }
    }
}

/// The form of a FIND result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// One row per solution.
    Rows,
    /// One array per expression, aligned by solution.
    Columns,
}

/// Runs a bound FIND.
///
/// # Errors
/// A [`KipError`] of any kind that a query can return.
pub fn find(query: &Find<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Answer, KipError> {
    let plan = plan::build(query, graph)?;
    let budget = Budget::new(options.limits);
    let run = Run::new(graph, &plan, &budget);
    if options.dialect == Dialect::Rc11 {
        addressed(&plan)?;
    }
    let mut answer = answer(query, &run)?;
    if answer.result.as_array().is_some_and(Vec::is_empty) {
        answer.warnings = undefined(&query.clauses, graph);
    }
    if options.shape.unwrap_or(if options.dialect == Dialect::Rc11 { Shape::Columns } else { Shape::Rows })
        == Shape::Columns
    {
        answer.result = columns(query, answer.result);
    }
    Ok(answer)
}

/// Checks, for the rc11 dialect, that every grounded pattern at top level names an existing element.
fn addressed(plan: &Plan<'_>) -> Result<(), KipError> {
    let missing = plan.root.stages.iter().any(|stage| match &stage.step {
        Step::Concept { which: Which::These(these), grounded: true, .. } => these.is_empty(),
        Step::Link { el, .. } => el.is_none(),
        _ => false,
    });
    if missing {
        return Err(KipError::new(ErrorKind::NotFound, "a node or link that WHERE names does not exist")
            .hint("SEARCH CONCEPT finds its exact name"));
    }
    Ok(())
}

/// Runs `EXPLAIN FIND …` and returns the plan, with the estimated and the actual numbers of rows.
///
/// # Errors
/// As [`find`].
pub fn explain(query: &Find<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Value, KipError> {
    let plan = plan::build(query, graph)?;
    let budget = Budget::new(options.limits);
    let run = Run::new(graph, &plan, &budget);
    let driver = Driver::of(query, &run, &mut Vec::new());
    let how = driver.in_words();
    let answer = answer(query, &run)?;
    let lines = plan.explain(&graph.ids()).into_iter().map(|(no, depth, estimate, words)| {
        json!({"depth": depth, "operator": words, "estimated_rows": estimate, "actual_rows": run.made(no)})
    });
    Ok(json!({
        "driver": how,
        "plan": lines.collect::<Vec<_>>(),
        "rows": answer.result.as_array().map_or(0, Vec::len),
        "more": answer.next_cursor.is_some(),
        "wants_index": answer.wants.iter().map(|(kind, key)| format!("{}.{}", kind.as_str(), key.as_str())).collect::<Vec<_>>(),
    }))
}

/// A candidate row of the answer: its sort keys, and the values that distinguish it from every other row.
#[derive(Clone, Debug)]
struct Candidate {
    keys: Vec<Datum>,
    ids: Vec<u32>,
}

/// The position of a row in a cursor. Predicates are stored as text, because their numbers are valid only in this
/// process.
#[derive(Serialize, Deserialize)]
pub(super) struct At {
    pub(super) keys: Vec<Datum>,
    pub(super) ids: Vec<Id>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Id {
    ElementId(u32),
    Name(String),
}

impl At {
    /// Returns the same position with other numbers for its elements, such as permuted ones.
    fn with_numbers(mut self, number: impl Fn(u32) -> u32) -> Self {
        for id in &mut self.ids {
            if let Id::ElementId(no) = id {
                *no = number(*no);
            }
        }
        self
    }
}

pub(super) fn compare_keys(a: &[Datum], b: &[Datum], descending: &[bool]) -> Ordering {
    for ((a, b), descending) in a.iter().zip(b).zip(descending) {
        let compared = match (a.is_null(), b.is_null()) {
            (false, false) if *descending => b.sort(a),
            // Null sorts last in both directions (R31).
            _ => a.sort(b),
        };
        if compared != Ordering::Equal {
            return compared;
        }
    }
    Ordering::Equal
}

fn answer(query: &Find<'_>, run: &Run<'_>) -> Result<Answer, KipError> {
    let limit = limit_of(query.limit.as_ref())?;
    let aggregates = query.select.iter().any(|selected| matches!(selected, Selected::Aggregate { .. }));
    if aggregates {
        return grouped(query, run, limit);
    }
    if let Some((Selected::Aggregate { path, .. }, _)) =
        query.order.iter().find(|(key, _)| matches!(key, Selected::Aggregate { .. }))
    {
        return Err(
            KipError::new(ErrorKind::Reference, "an aggregate that sorts must stand in FIND as well").at(path.span)
        );
    }
    let accesses: Vec<Access> =
        query.select.iter().map(|selected| plan::access(run.plan, selected.path())).collect::<Result<_, _>>()?;
    let keys: Vec<Access> =
        query.order.iter().map(|(key, _)| plan::access(run.plan, key.path())).collect::<Result<_, _>>()?;
    let descending: Vec<bool> = query.order.iter().map(|(_, descending)| *descending).collect();
    let mut projected: Vec<usize> = Vec::new();
    for access in &accesses {
        if !projected.contains(&access.slot) {
            projected.push(access.slot);
        }
    }
    // If every sort key is a value of a projected element, equal rows have equal keys, so only the best rows must be
    // held.
    let keyed = keys.iter().all(|key| projected.contains(&key.slot));
    let text = query_text(query);
    let ids = run.graph.ids();
    let after: Option<At> = cursor::place(&text, query.cursor.as_ref())?;
    let after = after.map(|at| at.with_numbers(|hidden| ids.seek(hidden).0));

    let mut wants = Vec::new();
    let driver = Driver::of(query, run, &mut wants);
    let id_of = |at: usize, id: u32| match run.plan.slots[projected[at]].holds_name {
        true => Id::Name(run.names().get((id as usize).wrapping_sub(1)).map_or("", |name| name.as_str()).to_owned()),
        false => Id::ElementId(id),
    };
    let has_names = projected.iter().any(|slot| run.plan.slots[*slot].holds_name);
    let compare_ids = |a: &[u32], b: &[u32]| {
        if !has_names {
            return a.cmp(b);
        }
        let ids = |ids: &[u32]| ids.iter().enumerate().map(|(at, id)| id_of(at, *id)).collect::<Vec<_>>();
        ids(a).cmp(&ids(b))
    };
    let compare = |a: &Candidate, b: &Candidate| {
        compare_keys(&a.keys, &b.keys, &descending).then_with(|| compare_ids(&a.ids, &b.ids))
    };
    let behind = |candidate: &Candidate| match &after {
        None => true,
        Some(at) => {
            let ids = candidate.ids.iter().enumerate().map(|(at, id)| id_of(at, *id));
            compare_keys(&candidate.keys, &at.keys, &descending).then_with(|| ids.collect::<Vec<_>>().cmp(&at.ids))
                == Ordering::Greater
        }
    };

    let held_max = limit.filter(|_| keyed).map(|limit| limit.saturating_add(1));
    let mut held: Vec<Candidate> = Vec::new();
    let settle = |held: &mut Vec<Candidate>| {
        held.sort_by(&compare);
        if keyed {
            held.dedup_by(|a, b| a.ids == b.ids);
        }
        if let Some(max) = held_max {
            held.truncate(max);
        }
    };
    // For rows in order of creation, the scan begins where the previous page ended.
    let from = match (&driver, &after) {
        (Driver::Type { slot, .. }, Some(At { ids, .. })) if keys.is_empty() && projected.first() == Some(slot) => {
            if let Some(Id::ElementId(id)) = ids.first() {
                ElementId(id.saturating_sub(1))
            } else {
                ElementId::NONE
            }
        }
        _ => ElementId::NONE,
    };
    driver.solve(run, limit.is_some(), from, &mut |rows, reached| {
        let names = run.names();
        for row in rows.iter() {
            let candidate = Candidate {
                keys: keys.iter().map(|key| key.get(row, &names, run.graph)).collect(),
                ids: projected.iter().map(|slot| row[*slot]).collect(),
            };
            if !keyed || behind(&candidate) {
                held.push(candidate);
            }
        }
        drop(names);
        run.budget.check_rows(held.len(), projected.len() + 8 + 6 * keys.len())?;
        let Some(max) = held_max else { return Ok(true) };
        if held.len() >= max * 2 || reached.is_some() {
            settle(&mut held);
        }
        // The result is full, and all further rows sort after the held ones.
        let full = held.len() == max;
        Ok(!(full
            && match (reached, held.last()) {
                (Some(Reached::Element(el)), Some(last)) => {
                    keys.is_empty()
                        && matches!(driver, Driver::Type { slot, .. } if slot == projected[0])
                        && last.ids[0] <= el.0
                }
                (Some(Reached::Place(place)), Some(last)) => Place::of(&last.keys[0])
                    .is_some_and(|held| if descending[0] { *place < held } else { *place > held }),
                _ => false,
            }))
    })?;
    settle(&mut held);
    if !keyed {
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        held.retain(|candidate| seen.insert(candidate.ids.clone()));
        held.retain(&behind);
    }
    let more = limit.is_some_and(|limit| held.len() > limit);
    held.truncate(limit.unwrap_or(usize::MAX));
    too_long(held.len(), run.budget)?;
    let next_cursor = held.last().filter(|_| more).map(|last| {
        let at =
            At { keys: last.keys.clone(), ids: last.ids.iter().enumerate().map(|(at, id)| id_of(at, *id)).collect() };
        cursor::token(&text, &at.with_numbers(|no| ids.hide(ElementId(no))))
    });
    let names = run.names();
    let mut row = vec![0; run.plan.slots.len()];
    let result = held
        .iter()
        .map(|candidate| {
            projected.iter().zip(&candidate.ids).for_each(|(slot, id)| row[*slot] = *id);
            let shown = shape(accesses.iter().map(|access| shown(access, &row, &names, run.graph)).collect());
            run.budget.answered(&shown).map(|()| shown)
        })
        .collect::<Result<_, _>>()?;
    Ok(Answer { result: Value::Array(result), next_cursor, wants, ..Answer::default() })
}

/// Returns the value of an access as JSON. A whole element is converted directly.
fn shown(access: &Access, row: &[u32], names: &[Sym], graph: &dyn GraphRead) -> Value {
    let el = ElementId(row[access.slot]);
    if access.holds_name || el == ElementId::NONE {
        return access.get(row, names, graph).to_json();
    }
    let mut value = Value::Null;
    let ids = graph.ids();
    graph.look(el, &mut |look| {
        value = match &access.field {
            Field::Whole => look.to_json(el, &ids),
            Field::Attributes => look.attributes().to_json().into(),
            Field::Metadata => look.metadata_json().into(),
            field => field.of_element(el, look, &ids).to_json(),
        };
    });
    value
}

/// Returns the text of the query without its cursor, to which a cursor token is bound.
pub(super) fn query_text(query: &Find<'_>) -> String {
    if query.limit.is_none() && query.cursor.is_none() {
        return String::new();
    }
    crate::lang::print(&Command::Find(Find { cursor: None, limit: None, ..query.clone() }))
}

pub(super) fn too_long(rows: usize, budget: &Budget) -> Result<(), KipError> {
    if rows > budget.answer() {
        let message = format!("the answer has {rows} rows, over the bound of {}", budget.answer());
        return Err(KipError::new(ErrorKind::Execution, message)
            .code("KIP_4002")
            .hint("add a LIMIT and follow the CURSOR"));
    }
    Ok(())
}

pub(super) fn shape(mut cells: Vec<Value>) -> Value {
    if cells.len() == 1 { cells.remove(0) } else { Value::Array(cells) }
}

/// Converts rows to columns: a single column is unwrapped, and an ungrouped aggregate becomes a scalar.
fn columns(query: &Find<'_>, rows: Value) -> Value {
    let Value::Array(rows) = rows else { return rows };
    let lone = query.select.len() == 1;
    if query.select.iter().all(|selected| matches!(selected, Selected::Aggregate { .. })) {
        return rows.into_iter().next().unwrap_or_default();
    }
    if lone {
        return Value::Array(rows);
    }
    let mut out: Vec<Vec<Value>> = vec![Vec::with_capacity(rows.len()); query.select.len()];
    for row in rows {
        if let Value::Array(cells) = row {
            cells.into_iter().zip(&mut out).for_each(|(cell, column)| column.push(cell));
        }
    }
    out.into_iter().map(Value::Array).collect()
}
