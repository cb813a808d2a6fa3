//! Concepts and links found by what they are.

use super::{Bound, Row, push};
use crate::graph::{Element, GraphRead, No};
use crate::kip::KipError;

/// Binds `slot` to every concept of that id, type and name; a bound slot is checked instead.
pub(super) fn concepts(
    graph: &dyn GraphRead,
    rows: Vec<Row>,
    slot: usize,
    id: Option<&str>,
    kind: Option<&str>,
    name: Option<&str>,
) -> Result<Vec<Row>, KipError> {
    let fits = |no: No| match graph.element(no).as_deref() {
        Some(element @ Element::Concept(concept)) => {
            id.is_none_or(|id| element.id(no) == id)
                && kind.is_none_or(|kind| &*concept.kind == kind)
                && name.is_none_or(|name| &*concept.name == name)
        }
        _ => false,
    };
    let mut found: Option<Vec<No>> = None;
    let mut out = Vec::new();
    for row in rows {
        match &row[slot] {
            Bound::Element(no) if fits(*no) => push(&mut out, row)?,
            Bound::Element(_) | Bound::Name(_) => {}
            Bound::Free => {
                let candidates = found.get_or_insert_with(|| match (id, kind, name) {
                    (Some(id), ..) => graph.by_id(id).into_iter().filter(|no| fits(*no)).collect(),
                    (None, Some(kind), Some(name)) => graph.concept(kind, name).into_iter().collect(),
                    (None, Some(kind), None) => graph.of_type(kind),
                    (None, None, Some(name)) => graph.named(name),
                    (None, None, None) => Vec::new(),
                });
                for no in candidates.iter() {
                    let mut row = row.clone();
                    row[slot] = Bound::Element(*no);
                    push(&mut out, row)?;
                }
            }
        }
    }
    Ok(out)
}

/// Binds `slot` to the link of that id.
pub(super) fn link(graph: &dyn GraphRead, rows: Vec<Row>, slot: usize, id: &str) -> Result<Vec<Row>, KipError> {
    let found = graph.by_id(id).filter(|no| matches!(graph.element(*no).as_deref(), Some(Element::Link(_))));
    let Some(no) = found else { return Ok(Vec::new()) };
    let mut out = Vec::new();
    for mut row in rows {
        if row[slot] == Bound::Free || row[slot] == Bound::Element(no) {
            row[slot] = Bound::Element(no);
            push(&mut out, row)?;
        }
    }
    Ok(out)
}
