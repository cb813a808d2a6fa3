//! Runs plans over a graph: one operator a file, rows in and rows out, within a budget.

mod delete;
mod describe;
mod draft;
mod filter;
mod find;
mod scan;
mod search;
mod triple;
mod upsert;

use std::sync::Arc;

use serde_json::Value;

use crate::graph::{GraphRead, No};
use crate::kip::{ErrorKind, KipError};
use crate::plan::{Plan, Step};

pub use delete::delete;
pub use describe::describe;
pub use draft::Draft;
pub use find::find;
pub use search::search;
pub use upsert::upsert;

/// How many rows a query may hold at once; past it the query is refused, never cut.
pub const ROWS_MAX: usize = 200_000;
/// How many rows an answer holds when no LIMIT says less.
pub const ANSWER_MAX: usize = 10_000;

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    /// Nothing yet.
    Free,
    /// A concept or a link.
    Element(No),
    /// A predicate's name.
    Name(Arc<str>),
}

/// One solution: a value for each slot.
type Row = Vec<Bound>;

/// All solutions of a plan.
fn solve(plan: &Plan, graph: &dyn GraphRead) -> Result<Vec<Row>, KipError> {
    let mut rows: Vec<Row> = vec![vec![Bound::Free; plan.slots.len()]];
    for step in &plan.steps {
        rows = match step {
            Step::Concept { slot, id, kind, name } => {
                scan::concepts(graph, rows, *slot, id.as_deref(), kind.as_deref(), name.as_deref())?
            }
            Step::LinkById { slot, id } => scan::link(graph, rows, *slot, id)?,
            Step::Triple { link, subject, predicates, predicate, object } => triple::triples(
                graph,
                rows,
                &triple::Slots { link: *link, subject: *subject, predicates, predicate: *predicate, object: *object },
            )?,
            Step::Filter(test) => filter::keep(graph, plan, rows, test)?,
        };
        if rows.is_empty() {
            break;
        }
    }
    Ok(rows)
}

/// Adds `row`, or says that the query is too large.
fn push(rows: &mut Vec<Row>, row: Row) -> Result<(), KipError> {
    if rows.len() == ROWS_MAX {
        return Err(KipError::new(ErrorKind::Execution, format!("the query holds more than {ROWS_MAX} rows at once"))
            .hint("name a type or a name in more of its clauses"));
    }
    rows.push(row);
    Ok(())
}

/// The value of a path on what a slot holds; whatever is missing is null (RESOLUTIONS §1.2).
fn value_at(graph: &dyn GraphRead, bound: &Bound, fields: &[Arc<str>]) -> Value {
    let no = match bound {
        Bound::Free => return Value::Null,
        Bound::Name(name) => return if fields.is_empty() { Value::String(name.to_string()) } else { Value::Null },
        Bound::Element(no) => *no,
    };
    let Some(element) = graph.element(no) else { return Value::Null };
    let properties = element.properties();
    let bag = |bag: &serde_json::Map<String, Value>, rest: &[Arc<str>]| match rest {
        [] => Value::Object(bag.clone()),
        [key, deeper @ ..] => deeper.iter().fold(bag.get(&**key).cloned().unwrap_or(Value::Null), |value, key| {
            value.get(&**key).cloned().unwrap_or(Value::Null)
        }),
    };
    match fields {
        [] => graph.json(no),
        [first, rest @ ..] => match &**first {
            "attributes" => bag(&properties.attributes, rest),
            "metadata" => bag(&properties.metadata, rest),
            top => graph.json(no).get(top).cloned().unwrap_or(Value::Null),
        },
    }
}

/// The number behind a LIMIT.
fn limit_of(
    limit: Option<&(crate::kip::ast::Val, crate::kip::error::Span)>,
    default: usize,
) -> Result<usize, KipError> {
    let Some((value, span)) = limit else { return Ok(default) };
    match value.json().as_u64() {
        Some(n) if (1..=ANSWER_MAX as u64).contains(&n) => Ok(n as usize),
        _ => Err(KipError::new(
            ErrorKind::Parameter,
            format!("LIMIT is a whole number from 1 to {ANSWER_MAX}, not {}", value.json()),
        )
        .at(*span)),
    }
}
