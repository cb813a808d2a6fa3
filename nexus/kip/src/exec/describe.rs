//! DESCRIBE: descriptions of the contents of a nexus (draft7 §5.1).

use serde_json::{Value, json};

use super::draft::{CONCEPT_TYPE, PROPOSITION_TYPE};
use super::{Answer, Dialect, Options, conflicts, cursor, limit_of, primer, text_of};
use crate::datum::Sym;
use crate::graph::{Direction, ElementId, ElementRef, GraphRead};
use crate::lang::ast::{Describe, Lit, Page, Placed};
use crate::lang::{ErrorKind, KipError};

/// Runs a bound DESCRIBE.
///
/// # Errors
/// `not_found` for an undefined type or predicate, `parameter` for an invalid limit or cursor.
pub fn describe(what: &Describe<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Answer, KipError> {
    match what {
        Describe::Primer(budget) => primer::primer(graph, budget_of(budget.as_ref())?).map(Answer::of),
        Describe::Domains if options.dialect == Dialect::Rc11 => Ok(Answer::of(domains(graph))),
        Describe::Domains => names(graph, "Domain", &Page::default(), options),
        Describe::ConceptTypes(page) => names(graph, CONCEPT_TYPE, page, options),
        Describe::PropositionTypes(page) => names(graph, PROPOSITION_TYPE, page, options),
        Describe::ConceptType(name) => definition(graph, CONCEPT_TYPE, name),
        Describe::PropositionType(name) => definition(graph, PROPOSITION_TYPE, name),
        Describe::Conflicts(page) => conflicts::conflicts(graph, page, options),
    }
}

/// Returns the maximum number of tokens of a primer.
fn budget_of(budget: Option<&Placed<'_>>) -> Result<Option<usize>, KipError> {
    match budget {
        None => Ok(None),
        Some((Lit::Int(n), _)) if *n > 0 => Ok(Some(usize::try_from(*n).unwrap_or(usize::MAX))),
        Some((other, span)) => Err(KipError::new(
            ErrorKind::Parameter,
            format!("a budget is a whole number of tokens, not {}", other.to_json()),
        )
        .at(*span)),
    }
}

/// Returns the names of the concepts of a type, in order of creation, one page at a time.
fn names(
    graph: &dyn GraphRead,
    kind: &'static str,
    page: &Page<'_>,
    options: &Options<'_>,
) -> Result<Answer, KipError> {
    let limit = limit_of(page.limit.as_ref())?.unwrap_or(options.limits.answer);
    let after: Option<u32> = cursor::place(kind, page.cursor.as_ref())?;
    let after = after.map_or(ElementId::NONE, |hidden| graph.ids().seek(hidden));
    let mut found = graph.of_type(Sym::new(kind), after, limit.saturating_add(1));
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| more).map(|last| cursor::token(kind, &graph.ids().hide(*last)));
    let result = found.into_iter().filter_map(|el| graph.key(el)).map(|(_, name)| Value::from(name.as_str())).collect();
    Ok(Answer { result: Value::Array(result), next_cursor, ..Answer::default() })
}

/// Returns the domains in the form of the release candidates.
fn domains(graph: &dyn GraphRead) -> Value {
    let membership = Sym::new("belongs_to_domain");
    let one = |el: ElementId| {
        let mut description = Value::Null;
        graph.look(el, &mut |look| {
            description = look.attributes().named("description").map_or(Value::Null, crate::datum::Datum::to_json)
        });
        let (_, name) = graph.key(el)?;
        Some(json!({
            "name": name.as_str(),
            "description": description,
            "concepts": graph.degree(el, Direction::In, Some(membership)),
        }))
    };
    graph.of_type(Sym::new("Domain"), ElementId::NONE, 1000).into_iter().filter_map(one).collect()
}

fn definition(graph: &dyn GraphRead, meta: &'static str, (name, span): &Placed<'_>) -> Result<Answer, KipError> {
    let name = text_of(name, "a name", *span)?;
    if let Some(el) = graph.concept(Sym::new(meta), name) {
        return Ok(Answer::of(graph.json(el)));
    }
    let known: Vec<arcstr::ArcStr> = graph
        .of_type(Sym::new(meta), ElementId::NONE, 10_000)
        .into_iter()
        .filter_map(|el| graph.key(el))
        .map(|(_, name)| name)
        .collect();
    let list = if meta == CONCEPT_TYPE { "DESCRIBE CONCEPT TYPES" } else { "DESCRIBE PROPOSITION TYPES" };
    let hint = match crate::lang::error::nearest(name, known.iter().map(arcstr::ArcStr::as_str)) {
        Some(near) => format!("did you mean \"{near}\"? {list} lists them all"),
        None => format!("{list} lists what is defined"),
    };
    Err(KipError::new(ErrorKind::NotFound, format!("{meta} \"{name}\" is not defined")).at(*span).hint(hint))
}

/// Returns the rank of an element: its confidence, then its recency.
pub(super) fn rank(look: ElementRef<'_>) -> (f64, i64) {
    let confidence = look.metadata().named("confidence").and_then(crate::datum::Datum::as_f64).unwrap_or(0.5);
    (confidence.clamp(0.0, 1.0), look.stamp().updated())
}
