//! SEARCH CONCEPT: from words to nodes, best first, each hit with `metadata._score`.

use serde_json::Value;

use super::limit_of;
use crate::graph::GraphRead;
use crate::kip::ast::Search;
use crate::kip::{ErrorKind, KipError};

/// Hits when no LIMIT says otherwise.
const HITS_DEFAULT: usize = 20;

/// Runs a bound SEARCH.
///
/// # Errors
/// `parameter` when the term or the type is no string.
pub fn search(search: &Search, graph: &dyn GraphRead) -> Result<Value, KipError> {
    let text = |value: &Value, what: &str| {
        value
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| KipError::new(ErrorKind::Parameter, format!("{what} is a string, not {value}")))
    };
    let term = text(search.term.json(), "the term")?;
    let kind = search.kind.as_ref().map(|kind| text(kind.json(), "the type")).transpose()?;
    let limit = limit_of(search.limit.as_ref(), HITS_DEFAULT)?;
    let hits = graph.search(&term, kind.as_deref(), limit);
    Ok(hits
        .into_iter()
        .map(|(no, score)| {
            let mut hit = graph.json(no);
            hit["metadata"]["_score"] = ((f64::from(score) * 1000.0).round() / 1000.0).into();
            hit
        })
        .collect())
}
