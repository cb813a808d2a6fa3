//! FILTER: comparison, logic and tests on text (R21–R26).

use std::cell::RefCell;
use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

use super::{Row, value_at};
use crate::graph::GraphRead;
use crate::kip::ast::{Comparison, Expr, TextTest};
use crate::kip::{ErrorKind, KipError};
use crate::plan::Plan;

/// Keeps the rows for which `test` is true.
pub(super) fn keep(graph: &dyn GraphRead, plan: &Plan, rows: Vec<Row>, test: &Expr) -> Result<Vec<Row>, KipError> {
    let mut kept = Vec::with_capacity(rows.len());
    let patterns = Patterns::default();
    for row in rows {
        if evaluate(graph, plan, &row, test, &patterns)? == Value::Bool(true) {
            kept.push(row);
        }
    }
    Ok(kept)
}

/// Regular expressions that were compiled for this filter, by their text.
type Patterns = RefCell<HashMap<String, Regex>>;

fn evaluate(
    graph: &dyn GraphRead,
    plan: &Plan,
    row: &Row,
    test: &Expr,
    patterns: &Patterns,
) -> Result<Value, KipError> {
    let truth = |test: &Expr| evaluate(graph, plan, row, test, patterns).map(|value| value == Value::Bool(true));
    Ok(match test {
        Expr::Value(value) => value.json().clone(),
        Expr::Path(path) => plan.slot(&path.var).map_or(Value::Null, |slot| value_at(graph, &row[slot], &path.fields)),
        Expr::Not(inner) => Value::Bool(!truth(inner)?),
        Expr::And(a, b) => Value::Bool(truth(a)? && truth(b)?),
        Expr::Or(a, b) => Value::Bool(truth(a)? || truth(b)?),
        Expr::Compare(a, operator, b) => Value::Bool(compare(
            &evaluate(graph, plan, row, a, patterns)?,
            *operator,
            &evaluate(graph, plan, row, b, patterns)?,
        )),
        Expr::Text(kind, a, b, span) => {
            let (text, part) = (evaluate(graph, plan, row, a, patterns)?, evaluate(graph, plan, row, b, patterns)?);
            let (Some(text), Some(part)) = (text.as_str(), part.as_str()) else { return Ok(Value::Bool(false)) };
            Value::Bool(match kind {
                TextTest::Contains => text.contains(part),
                TextTest::StartsWith => text.starts_with(part),
                TextTest::EndsWith => text.ends_with(part),
                TextTest::Regex => {
                    let mut patterns = patterns.borrow_mut();
                    if !patterns.contains_key(part) {
                        let wrong = |error| {
                            KipError::new(ErrorKind::Parameter, format!("not a regular expression: {error}")).at(*span)
                        };
                        patterns.insert(part.to_owned(), Regex::new(part).map_err(wrong)?);
                    }
                    patterns[part].is_match(text)
                }
            })
        }
    })
}

fn compare(a: &Value, operator: Comparison, b: &Value) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    match operator {
        Comparison::Eq => same(a, b),
        Comparison::Ne => !same(a, b),
        _ => matches!(
            (order(a, b), operator),
            (Some(Less), Comparison::Lt | Comparison::Le)
                | (Some(Greater), Comparison::Gt | Comparison::Ge)
                | (Some(Equal), Comparison::Le | Comparison::Ge)
        ),
    }
}

/// JSON equality with 7 equal to 7.0 (R22).
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}

/// Two numbers or two strings have an order; nothing else does.
pub(super) fn order(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => Some(x.cmp(&y)),
            _ => x.as_f64()?.partial_cmp(&y.as_f64()?),
        },
        (Value::String(x), Value::String(y)) => Some(x.cmp(y)),
        _ => None,
    }
}
