//! The join over one proposition pattern.

use std::sync::Arc;

use super::{Bound, Row, push};
use crate::graph::{Element, GraphRead, Pattern};
use crate::kip::KipError;

/// Which slots a pattern binds, and which predicates it takes.
pub(super) struct Slots<'a> {
    pub(super) link: usize,
    pub(super) subject: usize,
    pub(super) predicates: &'a [Arc<str>],
    pub(super) predicate: Option<usize>,
    pub(super) object: usize,
}

/// Binds the link and its ends for every link that agrees with what is bound already.
pub(super) fn triples(graph: &dyn GraphRead, rows: Vec<Row>, slots: &Slots<'_>) -> Result<Vec<Row>, KipError> {
    let mut out = Vec::new();
    for row in rows {
        let named: Vec<Arc<str>>;
        let predicates = match slots.predicate.map(|slot| &row[slot]) {
            Some(Bound::Name(name)) => {
                named = vec![name.clone()];
                &named[..]
            }
            Some(Bound::Element(_)) => continue,
            _ => slots.predicates,
        };
        let end = |slot: usize| match &row[slot] {
            Bound::Free => Ok(None),
            Bound::Element(no) => Ok(Some(*no)),
            Bound::Name(_) => Err(()),
        };
        let (Ok(subject), Ok(object), Ok(link)) = (end(slots.subject), end(slots.object), end(slots.link)) else {
            continue;
        };
        let found = match link {
            Some(no) => vec![no],
            None => graph.links(&Pattern { subject, predicates, object }),
        };
        for no in found {
            let Some(element) = graph.element(no) else { continue };
            let Element::Link(link) = &*element else { continue };
            if !predicates.is_empty() && !predicates.contains(&link.predicate) {
                continue;
            }
            let mut row = row.clone();
            let agrees = bind(&mut row, slots.link, Bound::Element(no))
                && bind(&mut row, slots.subject, Bound::Element(link.subject))
                && bind(&mut row, slots.object, Bound::Element(link.object))
                && slots.predicate.is_none_or(|slot| bind(&mut row, slot, Bound::Name(link.predicate.clone())));
            if agrees {
                push(&mut out, row)?;
            }
        }
    }
    Ok(out)
}

/// Binds a slot, or checks that it holds the same already: `(?a, "p", ?a)` needs both ends equal (R43).
fn bind(row: &mut Row, slot: usize, value: Bound) -> bool {
    if row[slot] == Bound::Free {
        row[slot] = value;
        return true;
    }
    row[slot] == value
}
