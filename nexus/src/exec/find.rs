//! FIND: solve, sort, project. Answers rows: bare values for one expression, arrays for several.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{ANSWER_MAX, Bound, Row, filter, limit_of, solve, value_at};
use crate::graph::GraphRead;
use crate::kip::ast::{Find, Selected};
use crate::kip::{ErrorKind, KipError};
use crate::plan;

/// Runs a bound FIND.
///
/// # Errors
/// A [`KipError`] of any kind a query can have.
pub fn find(find: &Find, graph: &dyn GraphRead) -> Result<Value, KipError> {
    let limit = limit_of(find.limit.as_ref(), usize::MAX)?;
    let plan = plan::build(find, graph)?;
    let slot = |name: &str| plan.slot(name).unwrap_or_default();
    let rows = solve(&plan, graph)?;
    let counts = find.select.iter().any(|selected| matches!(selected, Selected::Count { .. }));
    // What is counted are solutions; what is answered are rows of the projected variables.
    let solutions: Vec<usize> = (0..plan.slots.len()).filter(|slot| plan.slots[*slot].is_some()).collect();
    let projected: Vec<usize> = find.select.iter().map(|selected| slot(&path_of(selected).var)).collect();
    let mut rows = distinct(rows, &solutions);
    if !find.order.is_empty() {
        let descending: Vec<bool> = find.order.iter().map(|(_, descending)| *descending).collect();
        let key = |row: &Row| {
            find.order.iter().map(|(path, _)| value_at(graph, &row[slot(&path.var)], &path.fields)).collect()
        };
        rows.sort_by_cached_key(|row| Keys(key(row), descending.clone()));
    }
    if !counts {
        rows = distinct(rows, &projected);
    }
    let mut answer: Vec<Value> = if counts {
        grouped(find, graph, &rows, &slot)
    } else {
        let cell = |row: &Row, selected: &Selected| {
            value_at(graph, &row[slot(&path_of(selected).var)], &path_of(selected).fields)
        };
        rows.iter()
            .take(limit)
            .map(|row| shape(find.select.iter().map(|selected| cell(row, selected)).collect()))
            .collect()
    };
    if answer.len() > limit {
        answer.truncate(limit);
    }
    if answer.len() > ANSWER_MAX {
        return Err(KipError::new(
            ErrorKind::Execution,
            format!("the answer has {} rows, over the bound of {ANSWER_MAX}", answer.len()),
        )
        .hint("add a LIMIT"));
    }
    Ok(Value::Array(answer))
}

fn path_of(selected: &Selected) -> &crate::kip::ast::Path {
    match selected {
        Selected::Path(path) | Selected::Count { path, .. } => path,
    }
}

fn shape(mut cells: Vec<Value>) -> Value {
    if cells.len() == 1 { cells.remove(0) } else { Value::Array(cells) }
}

/// Rows that differ only in slots nobody asked about are one row (R34).
fn distinct(rows: Vec<Row>, slots: &[usize]) -> Vec<Row> {
    let mut seen: BTreeSet<Vec<Bound>> = BTreeSet::new();
    rows.into_iter().filter(|row| seen.insert(slots.iter().map(|slot| row[*slot].clone()).collect())).collect()
}

/// Groups by the plain expressions and counts the others (R14). Without plain ones there is one row.
fn grouped(find: &Find, graph: &dyn GraphRead, rows: &[Row], slot: &impl Fn(&str) -> usize) -> Vec<Value> {
    let plain: Vec<_> = find.select.iter().filter(|selected| matches!(selected, Selected::Path(_))).collect();
    let mut order: Vec<(Vec<Value>, Vec<&Row>)> = Vec::new();
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        let values: Vec<Value> = plain
            .iter()
            .map(|selected| value_at(graph, &row[slot(&path_of(selected).var)], &path_of(selected).fields))
            .collect();
        let place = *index.entry(Value::Array(values.clone()).to_string()).or_insert_with(|| {
            order.push((values, Vec::new()));
            order.len() - 1
        });
        order[place].1.push(row);
    }
    if order.is_empty() && plain.is_empty() {
        order.push((Vec::new(), Vec::new()));
    }
    let count = |members: &[&Row], selected: &Selected| match selected {
        Selected::Path(_) => Value::Null,
        Selected::Count { distinct, path } => {
            let values = members
                .iter()
                .map(|row| value_at(graph, &row[slot(&path.var)], &path.fields))
                .filter(|value| !value.is_null());
            if *distinct {
                values.map(|value| value.to_string()).collect::<BTreeSet<_>>().len().into()
            } else {
                values.count().into()
            }
        }
    };
    order
        .into_iter()
        .map(|(values, members)| {
            let mut values = values.into_iter();
            shape(
                find.select
                    .iter()
                    .map(|selected| {
                        if matches!(selected, Selected::Path(_)) {
                            values.next().unwrap_or_default()
                        } else {
                            count(&members, selected)
                        }
                    })
                    .collect(),
            )
        })
        .collect()
}

/// Sort keys of one row with the direction of each; null is last in both directions (R31).
struct Keys(Vec<Value>, Vec<bool>);

impl Ord for Keys {
    fn cmp(&self, other: &Self) -> Ordering {
        for ((a, b), descending) in self.0.iter().zip(&other.0).zip(&self.1) {
            let compared = match (a.is_null(), b.is_null()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    let forward = filter::order(a, b).unwrap_or_else(|| rank(a).cmp(&rank(b)));
                    if *descending { forward.reverse() } else { forward }
                }
            };
            if compared != Ordering::Equal {
                return compared;
            }
        }
        Ordering::Equal
    }
}

/// Values of different kinds have a fixed order among each other.
fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 5,
        Value::Bool(_) => 0,
        Value::Number(_) => 1,
        Value::String(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
    }
}

impl PartialOrd for Keys {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Keys {}
