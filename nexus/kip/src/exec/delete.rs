//! DELETE: attributes, metadata, links, and concepts with their links.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::draft::{Draft, check_metadata};
use super::rows::{Rows, Run};
use super::{Budget, Options};
use crate::graph::{ElementId, source_of};
use crate::lang::ast::{Clause, Delete, Deleted};
use crate::lang::{ErrorKind, KipError, Span};
use crate::plan;

/// Runs a bound DELETE on a draft and returns its receipt. A DELETE without matches succeeds with zeros (R17).
///
/// # Errors
/// Any [`KipError`]; the caller must then undo the draft.
pub(super) fn delete(delete: &Delete<'_>, draft: &mut Draft<'_>, options: &Options<'_>) -> Result<Value, KipError> {
    let wanted = match delete.what {
        Deleted::Propositions => Some(true),
        Deleted::Concepts => Some(false),
        _ => None,
    };
    let targets = targets(delete.target, &delete.clauses, wanted, draft, options)?;
    let at = |error: KipError| error.at(delete.target.1);
    match &delete.what {
        Deleted::Attributes(keys) => {
            let mut counts = [0, 0];
            for el in &targets {
                draft.check_writable(*el, keys.iter().map(|key| &**key)).map_err(at)?;
                let changed = draft.change(*el, |record| {
                    let (attributes, ..) = record.parts();
                    *attributes = attributes.without(keys);
                });
                counts[usize::from(el.is_link())] += usize::from(changed);
            }
            Ok(json!({"updated_concepts": counts[0], "updated_propositions": counts[1]}))
        }
        Deleted::Metadata(keys) => {
            check_metadata(keys.iter().map(|key| &**key)).map_err(at)?;
            let mut counts = [0, 0];
            for el in &targets {
                let changed = draft.change(*el, |record| {
                    let (_, metadata, stamp) = record.parts();
                    // Without its source, the present metadata is no longer a claim of that source.
                    if let (true, Some(source), Some(later)) =
                        (keys.iter().any(|key| key == "source"), source_of(metadata), &mut stamp.later)
                    {
                        Arc::make_mut(later).claims.retain(|(of, _)| *of != source);
                    }
                    *metadata = metadata.without(keys);
                });
                counts[usize::from(el.is_link())] += usize::from(changed);
            }
            Ok(json!({"updated_concepts": counts[0], "updated_propositions": counts[1]}))
        }
        Deleted::Propositions | Deleted::Concepts => {
            targets.iter().try_for_each(|el| draft.check_deletable(*el)).map_err(at)?;
            let links: usize = targets.iter().map(|el| draft.remove(*el)).sum();
            Ok(match delete.what {
                Deleted::Propositions => json!({"deleted_propositions": links}),
                _ => json!({"deleted_concepts": targets.len(), "deleted_propositions": links}),
            })
        }
    }
}

/// Returns the elements that the target of a write names, without duplicates and in order. `link` selects links or
/// concepts.
pub(super) fn targets(
    (name, span): (&str, Span),
    clauses: &[Clause<'_>],
    link: Option<bool>,
    draft: &Draft<'_>,
    options: &Options<'_>,
) -> Result<BTreeSet<ElementId>, KipError> {
    let refuse = |what: String| KipError::new(ErrorKind::Reference, what).at(span);
    let plan = plan::build_where(clauses, &*draft.graph)?;
    let slot = plan.slot(name).ok_or_else(|| refuse(format!("?{name} is bound nowhere in WHERE")))?;
    if plan.slots[slot].holds_name {
        return Err(refuse(format!("?{name} stands for a predicate's name, not for an element")));
    }
    let named = clauses.iter().find_map(|clause| match clause {
        Clause::Concept(var, _) if *var == name => Some(false),
        Clause::Proposition(Some(var), _) if *var == name => Some(true),
        _ => None,
    });
    let wrong = || refuse(format!("?{name} must be {}", if link == Some(true) { "a link" } else { "a concept" }));
    if link.is_some() && named.is_some() && named != link {
        return Err(wrong());
    }
    let budget = Budget::new(options.limits);
    let run = Run::new(&*draft.graph, &plan, &budget);
    let rows = run.block(&plan.root, 0, Rows::seed(plan.slots.len()))?;
    let targets: BTreeSet<ElementId> =
        rows.iter().map(|row| ElementId(row[slot])).filter(|el| *el != ElementId::NONE).collect();
    if link.is_some_and(|link| targets.iter().any(|el| el.is_link() != link)) {
        return Err(wrong());
    }
    Ok(targets)
}
