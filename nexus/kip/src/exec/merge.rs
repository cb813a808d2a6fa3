//! MERGE CONCEPT ?source INTO ?target: merges two concepts for the same thing into one (superset 10).

use std::sync::Arc;

use arcstr::ArcStr;
use serde_json::{Value, json};

use super::draft::{Draft, claim};
use super::{Options, delete::targets};
use crate::datum::{Datum, Properties, Sym};
use crate::graph::{ElementId, Later, Record, Stamp, source_of};
use crate::lang::ast::Merge;
use crate::lang::{ErrorKind, KipError, Span};

/// Runs a bound MERGE on a draft.
///
/// # Errors
/// `KIP_3002`, `KIP_3003` or `KIP_2002` when the two are not exactly one concept each, of one type.
pub(super) fn merge(merge: &Merge<'_>, draft: &mut Draft<'_>, options: &Options<'_>) -> Result<Value, KipError> {
    let source = one(merge.source, merge, draft, options)?;
    let target = one(merge.target, merge, draft, options)?;
    let refuse = |kind, code, what: String| Err(KipError::new(kind, what).code(code).at(merge.source.1));
    let id = draft.graph.ids().show(source);
    if source == target {
        return refuse(ErrorKind::Schema, "KIP_2002", format!("both variables stand for {id}"));
    }
    if draft.is_protected(source) {
        return refuse(ErrorKind::Immutable, "KIP_3004", format!("{id} is part of the core and cannot go"));
    }
    let (Some((source_kind, source_name)), Some((target_kind, _))) = (draft.graph.key(source), draft.graph.key(target))
    else {
        return refuse(ErrorKind::NotFound, "KIP_3002", "a concept to merge is gone".into());
    };
    if source_kind != target_kind {
        return refuse(
            ErrorKind::Schema,
            "KIP_2002",
            format!("a {} cannot become a {}", source_kind.as_str(), target_kind.as_str()),
        );
    }
    draft.check_deletable(source).map_err(|error| error.at(merge.source.1))?;
    let mut counts = (0, 0);
    repoint(draft, source, target, &mut counts);
    let filled = fill(draft, source, target, &source_name);
    draft.remove(source);
    Ok(json!({
        "merged": true,
        "links_repointed": counts.0,
        "links_deduplicated": counts.1,
        "attributes_filled": filled,
    }))
}

fn one(
    (name, span): (&str, Span),
    merge: &Merge<'_>,
    draft: &Draft<'_>,
    options: &Options<'_>,
) -> Result<ElementId, KipError> {
    let found = targets((name, span), &merge.clauses, Some(false), draft, options)?;
    match (found.first(), found.len()) {
        (Some(el), 1) => Ok(*el),
        (None, _) => Err(KipError::new(ErrorKind::NotFound, format!("?{name} matches nothing")).at(span)),
        (_, several) => Err(KipError::new(
            ErrorKind::Reference,
            format!("?{name} matches {several} concepts, and a merge takes one"),
        )
        .code("KIP_3003")
        .at(span)
        .hint("name it by {type, name} or by {id}")),
    }
}

/// One step of moving links. Links about links are queued instead of moved recursively.
enum Step {
    /// Moves the links on the first element to the second.
    Move(ElementId, ElementId),
    /// Removes the element whose links were moved.
    Remove(ElementId),
}

/// Moves every link on `old` to `new`. If `new` has the same link already, that link survives and receives the
/// missing attributes, metadata and claims, and links about the other one are moved to it.
fn repoint(draft: &mut Draft<'_>, old: ElementId, new: ElementId, counts: &mut (usize, usize)) {
    let mut steps = vec![Step::Move(old, new)];
    while let Some(step) = steps.pop() {
        let (old, new) = match step {
            Step::Move(old, new) => (old, new),
            Step::Remove(el) => {
                draft.remove(el);
                continue;
            }
        };
        for el in draft.graph.links_at(old) {
            let Some(Record::Link(mut link)) = draft.graph.record(el) else { continue };
            if link.subject == old {
                link.subject = new;
            }
            if link.object == old {
                link.object = new;
            }
            match draft.graph.link(link.subject, link.predicate, link.object) {
                Some(survivor) if survivor != el => {
                    draft.change(survivor, |record| {
                        let claims = claims_of(&link.metadata, &link.stamp);
                        let (attributes, metadata, stamp) = record.parts();
                        let own = metadata.clone();
                        *attributes = link.attributes.merged(attributes);
                        // The claim of each source is kept, and the surviving link keeps its own.
                        claims.iter().for_each(|(_, said)| claim(&own, stamp, said));
                        *metadata = link.metadata.merged(&own);
                    });
                    steps.push(Step::Remove(el));
                    steps.push(Step::Move(el, survivor));
                    counts.1 += 1;
                }
                _ => {
                    draft.change(el, |record| {
                        if let Record::Link(own) = record {
                            (own.subject, own.object) = (link.subject, link.object);
                        }
                    });
                    counts.0 += 1;
                }
            }
        }
    }
}

/// Returns the metadata of a link by source.
fn claims_of(metadata: &Properties, stamp: &Stamp) -> Vec<(ArcStr, Properties)> {
    match &stamp.later {
        Some(later) if !later.claims.is_empty() => later.claims.clone(),
        _ => source_of(metadata).map(|source| (source, metadata.clone())).into_iter().collect(),
    }
}

/// Adds the source's missing attributes to the target, its names to the aliases, and a note of their origin.
fn fill(draft: &mut Draft<'_>, source: ElementId, target: ElementId, source_name: &ArcStr) -> usize {
    let (Some(Record::Concept(from)), Some(Record::Concept(into))) =
        (draft.graph.record(source), draft.graph.record(target))
    else {
        return 0;
    };
    let missing: Vec<(Sym, Datum)> =
        from.attributes.pairs().iter().filter(|(key, _)| into.attributes.get(*key).is_none()).cloned().collect();
    let listed = |bag: &Properties| match bag.named("aliases") {
        Some(Datum::Json(list)) => list.as_array().cloned().unwrap_or_default(),
        Some(Datum::Str(one)) => vec![Value::from(one.as_str())],
        _ => Vec::new(),
    };
    let mut aliases = listed(&into.attributes);
    for alias in listed(&from.attributes).into_iter().chain([Value::from(source_name.as_str())]) {
        if !aliases.contains(&alias) && alias.as_str() != Some(into.name.as_str()) {
            aliases.push(alias);
        }
    }
    let older = from.stamp.later.as_ref().map(|later| later.merged_from.clone()).unwrap_or_default();
    let (metadata, filled) =
        (from.metadata.clone(), missing.iter().filter(|(key, _)| key.as_str() != "aliases").count());
    let additions = Properties::new(missing);
    draft.change(target, |record| {
        let (attributes, known, stamp) = record.parts();
        let created = stamp.created;
        let later =
            stamp.later.get_or_insert_with(|| Arc::new(Later { version: 1, updated: created, ..Later::default() }));
        let merged_from = &mut Arc::make_mut(later).merged_from;
        merged_from.extend(older);
        merged_from.push(source_name.clone());
        let with_aliases = Properties::new(vec![(Sym::new("aliases"), Datum::Json(Arc::new(Value::Array(aliases))))]);
        *attributes = additions.merged(attributes).merged(&with_aliases);
        *known = metadata.merged(known);
    });
    filled
}
