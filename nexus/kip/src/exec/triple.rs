//! The join over one proposition pattern, starting from the end that is known.

use super::rows::{Rows, Run, agree};
use super::scan::BATCH;
use crate::datum::Sym;
use crate::graph::{Direction, Edge, ElementId, ElementRef, GraphRead};
use crate::lang::KipError;
use crate::plan::Triple;

/// A link with both its ends.
struct Found {
    link: ElementId,
    subject: ElementId,
    predicate: Sym,
    object: ElementId,
}

/// Binds the link and its ends for every link that matches the bound slots.
pub(super) fn triples(run: &Run<'_>, rows: Rows, pattern: &Triple) -> Result<Rows, KipError> {
    let mut out = Rows::new(rows.width);
    let [link_bound, subject_bound, object_bound, name_bound] = pattern.bound;
    for row in rows.iter() {
        let known = |slot: usize, bound: bool| if bound { Some(ElementId(row[slot])) } else { None };
        let (link, subject, object) = (
            known(pattern.link, link_bound),
            known(pattern.subject, subject_bound),
            known(pattern.object, object_bound),
        );
        if [link, subject, object].contains(&Some(ElementId::NONE)) {
            continue;
        }
        let named = match pattern.name.filter(|_| name_bound) {
            Some(slot) => match run.names().get((row[slot] as usize).wrapping_sub(1)) {
                Some(name) => Some(vec![*name]),
                None => continue,
            },
            None => pattern.predicates.clone(),
        };
        let mut failure = None;
        let mut take = |found: Found| {
            let at = out.data.len();
            out.push(row);
            let fresh = &mut out.data[at..];
            let agrees = agree(fresh, pattern.link, link_bound, found.link.0)
                && agree(fresh, pattern.subject, subject_bound, found.subject.0)
                && agree(fresh, pattern.object, object_bound, found.object.0)
                && pattern.name.is_none_or(|slot| agree(fresh, slot, name_bound, run.name(found.predicate)));
            if !agrees {
                out.data.truncate(at);
            }
            let spent = run.budget.hop(1).and_then(|()| run.budget.check_rows(out.data.len() / out.width, out.width));
            failure = spent.err();
            failure.is_none()
        };
        find(run.graph, link, subject, object, named.as_deref(), &mut take);
        if let Some(failure) = failure {
            return Err(failure);
        }
    }
    Ok(out)
}

/// Passes every matching link to `take`, until `take` has enough.
fn find(
    graph: &dyn GraphRead,
    link: Option<ElementId>,
    subject: Option<ElementId>,
    object: Option<ElementId>,
    names: Option<&[Sym]>,
    take: &mut dyn FnMut(Found) -> bool,
) {
    let predicates: Vec<Option<Sym>> =
        names.map_or_else(|| vec![None], |names| names.iter().copied().map(Some).collect());
    match (link, subject, object) {
        (Some(el), ..) => {
            graph.look(el, &mut |look| {
                if let ElementRef::Link(link) = look
                    && names.is_none_or(|names| names.contains(&link.predicate))
                {
                    take(Found { link: el, subject: link.subject, predicate: link.predicate, object: link.object });
                }
            });
        }
        (None, Some(subject), Some(object)) if names.is_some() => {
            for predicate in predicates.into_iter().flatten() {
                if let Some(link) = graph.link(subject, predicate, object)
                    && !take(Found { link, subject, predicate, object })
                {
                    return;
                }
            }
        }
        (None, Some(subject), object) => {
            let mut go_on = true;
            for predicate in predicates {
                graph.edges(subject, Direction::Out, predicate, &mut |Edge { predicate, other, link }| {
                    if object.is_none_or(|object| object == other) {
                        go_on = take(Found { link, subject, predicate, object: other });
                    }
                    go_on
                });
                if !go_on {
                    return;
                }
            }
        }
        (None, None, Some(object)) => {
            let mut go_on = true;
            for predicate in predicates {
                graph.edges(object, Direction::In, predicate, &mut |Edge { predicate, other, link }| {
                    go_on = take(Found { link, subject: other, predicate, object });
                    go_on
                });
                if !go_on {
                    return;
                }
            }
        }
        (None, None, None) => {
            for predicate in predicates {
                let mut after = ElementId::FIRST_LINK;
                loop {
                    let batch = graph.of_predicate(predicate, after, BATCH);
                    let Some(last) = batch.last() else { break };
                    after = *last;
                    for el in batch {
                        let mut go_on = true;
                        graph.look(el, &mut |look| {
                            if let ElementRef::Link(link) = look {
                                go_on = take(Found {
                                    link: el,
                                    subject: link.subject,
                                    predicate: link.predicate,
                                    object: link.object,
                                });
                            }
                        });
                        if !go_on {
                            return;
                        }
                    }
                }
            }
        }
    }
}
