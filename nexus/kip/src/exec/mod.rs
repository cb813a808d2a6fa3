//! Runs plans against a graph, one operator per file. Writes run on a draft: the writer's own graph with a record of
//! all changes, so that they can be reverted.

mod budget;
mod conflicts;
mod cursor;
mod delete;
mod describe;
mod draft;
mod driver;
mod export;
mod find;
mod group;
mod merge;
mod path;
mod primer;
mod rows;
mod scan;
mod search;
mod triple;
mod undefined;
mod update;
mod upsert;
mod warnings;

pub use budget::{Budget, Limits, json_size};
pub use describe::describe;
pub use draft::{Change, Draft};
pub use export::{export, neighbourhood};
pub use find::{Answer, Shape, explain, find};
pub use search::{Semantic, search};

use crate::graph::GraphRead;
use crate::lang::ast::{Command, Lit, Placed};
use crate::lang::{ErrorKind, KipError};
use serde_json::Value;

/// The dialect, which decides the four conflicts between draft7 and the release candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// The reading of draft7; the default.
    #[default]
    Draft7,
    /// The reading of 1.0-RC11.
    Rc11,
}

/// The options of a command.
#[derive(Clone, Copy, Default)]
pub struct Options<'o> {
    /// The dialect.
    pub dialect: Dialect,
    /// The form of the result; `None` means the dialect's default.
    pub shape: Option<Shape>,
    /// The bounds of the command.
    pub limits: Limits,
    /// The semantic search, if an embedder is configured.
    pub semantic: Option<&'o dyn Semantic>,
}

/// Runs a bound command that only reads.
///
/// # Errors
/// Any [`KipError`] that the command can return.
pub fn read(command: &Command<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Answer, KipError> {
    match command {
        Command::Find(query) => find(query, graph, options),
        Command::Explain(query) => explain(query, graph, options).map(Answer::of),
        Command::Describe(what) => describe(what, graph, options),
        Command::Search(query) => search(query, graph, options),
        Command::Export(query) => export(query, graph, options),
        _ => Err(KipError::new(ErrorKind::Execution, "this command writes, and this is a place that only reads")
            .code("KIP_4003")),
    }
}

/// Runs a bound command that writes, on a draft.
///
/// # Errors
/// Any [`KipError`]; the caller must then undo the draft.
pub fn write(command: &Command<'_>, draft: &mut Draft<'_>, options: &Options<'_>) -> Result<Value, KipError> {
    match command {
        Command::Upsert(statements) => upsert::upsert(statements, draft, options),
        Command::Update(update) => update::update(update, draft, options),
        Command::Merge(merge) => merge::merge(merge, draft, options),
        Command::Delete(delete) => delete::delete(delete, draft, options),
        _ => Err(KipError::new(ErrorKind::Execution, "this command does not write")),
    }
}

/// Returns the number of a LIMIT; `None` when there is no LIMIT.
fn limit_of(limit: Option<&Placed<'_>>) -> Result<Option<usize>, KipError> {
    let Some((lit, span)) = limit else { return Ok(None) };
    match lit {
        Lit::Int(n) if *n > 0 => Ok(Some(usize::try_from(*n).unwrap_or(usize::MAX))),
        other => {
            let message = format!("LIMIT is a whole number from 1, not {}", other.to_json());
            Err(KipError::new(ErrorKind::Parameter, message).at(*span))
        }
    }
}

/// Returns the text of a value, which must be a text.
fn text_of<'a>(value: &'a Lit<'_>, what: &str, span: crate::lang::Span) -> Result<&'a str, KipError> {
    value.as_str().ok_or_else(|| {
        KipError::new(ErrorKind::Parameter, format!("{what} is a string, not {}", value.to_json())).at(span)
    })
}

/// Checks a read command for a `dry_run`: finds every error that can be found without running it (U11).
///
/// # Errors
/// As [`read`], except for errors that occur only at run time.
pub fn check(command: &Command<'_>, graph: &dyn GraphRead) -> Result<(), KipError> {
    match command {
        Command::Find(query) | Command::Explain(query) => crate::plan::build(query, graph).map(drop),
        Command::Export(query) => crate::plan::build_where(&query.clauses, graph).map(drop),
        _ => Ok(()),
    }
}
