//! DELETE: attributes, metadata, links, and concepts with their links.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::draft::Draft;
use super::{Bound, solve};
use crate::graph::{Element, GraphRead, No};
use crate::kip::ast::{Delete, Deleted};
use crate::kip::{ErrorKind, KipError};
use crate::plan;

/// Runs a bound DELETE on a draft and answers its receipt; matching nothing is success with zeros (R17).
///
/// # Errors
/// Any [`KipError`]; the draft is then worthless and nothing was written.
pub fn delete(delete: &Delete, draft: &mut Draft) -> Result<Value, KipError> {
    let plan = plan::build_where(&delete.clauses, &draft.graph)?;
    let slot = plan.slot(&delete.target).ok_or_else(|| {
        KipError::new(ErrorKind::Reference, format!("?{} is bound nowhere in WHERE", delete.target)).at(delete.span)
    })?;
    let targets: BTreeSet<No> = solve(&plan, &draft.graph)?
        .into_iter()
        .filter_map(|row| if let Bound::Element(no) = row[slot] { Some(no) } else { None })
        .collect();
    match &delete.what {
        Deleted::Attributes(keys) => {
            let mut counts = [0, 0];
            for no in &targets {
                draft.check_writable(*no, keys.iter().map(|key| &**key))?;
                let changed = draft.change(*no, |element| {
                    keys.iter().for_each(|key| drop(element.properties_mut().attributes.shift_remove(&**key)))
                });
                count(draft, *no, changed, &mut counts);
            }
            Ok(json!({"updated_concepts": counts[0], "updated_propositions": counts[1]}))
        }
        Deleted::Metadata(keys) => {
            if let Some(key) = keys.iter().find(|key| key.starts_with('_')) {
                return Err(KipError::new(ErrorKind::Schema, format!("metadata key {key} is kept by the engine")));
            }
            let mut counts = [0, 0];
            for no in &targets {
                let changed = draft.change(*no, |element| {
                    keys.iter().for_each(|key| drop(element.properties_mut().metadata.shift_remove(&**key)))
                });
                count(draft, *no, changed, &mut counts);
            }
            Ok(json!({"updated_concepts": counts[0], "updated_propositions": counts[1]}))
        }
        Deleted::Propositions => {
            require(draft, &targets, delete, |element| matches!(element, Element::Link(_)), "a link")?;
            let links: usize = targets.iter().map(|no| draft.remove(*no)).sum();
            Ok(json!({"deleted_propositions": links}))
        }
        Deleted::Concepts => {
            require(draft, &targets, delete, |element| matches!(element, Element::Concept(_)), "a concept")?;
            let links: usize = targets.iter().map(|no| draft.remove(*no)).sum();
            Ok(json!({"deleted_concepts": targets.len(), "deleted_propositions": links}))
        }
    }
}

fn count(draft: &Draft, no: No, changed: bool, counts: &mut [usize; 2]) {
    if changed {
        counts[usize::from(matches!(draft.graph.element(no).as_deref(), Some(Element::Link(_))))] += 1;
    }
}

/// Every target is of the right sort and may go, judged before the first one goes.
fn require(
    draft: &Draft,
    targets: &BTreeSet<No>,
    delete: &Delete,
    fits: impl Fn(&Element) -> bool,
    what: &str,
) -> Result<(), KipError> {
    for no in targets {
        if draft.graph.element(*no).is_some_and(|element| !fits(&element)) {
            return Err(
                KipError::new(ErrorKind::Reference, format!("?{} must be {what}", delete.target)).at(delete.span)
            );
        }
        draft.check_deletable(*no)?;
    }
    Ok(())
}
