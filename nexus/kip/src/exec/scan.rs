//! Scans for concepts, and lookups of links by id.

use super::rows::{Rows, Run, agree};
use crate::graph::{ElementId, ElementRef, GraphRead};
use crate::lang::KipError;
use crate::plan::Which;

/// The number of elements per read of a scan.
pub(super) const BATCH: usize = 1024;

/// Binds `slot` to the concepts in `which`; a bound slot is checked instead.
pub(super) fn concepts(
    run: &Run<'_>,
    mut rows: Rows,
    slot: usize,
    bound: bool,
    which: &Which,
) -> Result<Rows, KipError> {
    if bound {
        rows.retain(|row| {
            run.budget.hop(1)?;
            Ok(row[slot] != 0 && fits(run.graph, ElementId(row[slot]), which))
        })?;
        return Ok(rows);
    }
    let these = match which {
        Which::These(these) => these.clone(),
        Which::Type(kind) => {
            let mut all = Vec::with_capacity(run.graph.type_len(*kind));
            let mut after = ElementId::NONE;
            loop {
                let batch = run.graph.of_type(*kind, after, BATCH);
                let Some(last) = batch.last() else { break all };
                after = *last;
                run.budget.hop(batch.len())?;
                all.extend(batch);
            }
        }
    };
    let mut out = Rows::new(rows.width);
    for row in rows.iter() {
        run.budget.hop(these.len())?;
        run.budget.check_rows(out.len() + these.len(), rows.width)?;
        for el in &these {
            let at = out.data.len();
            out.push(row);
            if !agree(&mut out.data[at..], slot, false, el.0) {
                out.data.truncate(at);
            }
        }
    }
    Ok(out)
}

fn fits(graph: &dyn GraphRead, el: ElementId, which: &Which) -> bool {
    match which {
        Which::These(these) => these.contains(&el),
        Which::Type(kind) => {
            let mut of_type = false;
            graph.look(el, &mut |look| of_type = matches!(look, ElementRef::Concept(concept) if concept.kind == *kind));
            of_type
        }
    }
}

/// Binds `slot` to the link with the given id.
pub(super) fn link(
    _run: &Run<'_>,
    rows: Rows,
    slot: usize,
    bound: bool,
    el: Option<ElementId>,
) -> Result<Rows, KipError> {
    let mut out = Rows::new(rows.width);
    let Some(el) = el else { return Ok(out) };
    for row in rows.iter() {
        let at = out.data.len();
        out.push(row);
        if !agree(&mut out.data[at..], slot, bound, el.0) {
            out.data.truncate(at);
        }
    }
    Ok(out)
}
