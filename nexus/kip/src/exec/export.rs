//! EXPORT: what a pattern matches, as a capsule that makes the same graph again wherever it is imported
//! (superset 11, K10).
//!
//! A link between two exported elements stands on the page of the one that was made later, so that both
//! its ends are there when the pages are imported in order. A link to something that is not exported is
//! set on its subject and passed over where its target does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::json;

use super::draft::{CONCEPT_TYPE, PROPOSITION_TYPE, is_core};
use super::rows::{Rows, Run};
use super::{Answer, Budget, Options, cursor, limit_of};
use crate::datum::{Bag, Sym};
use crate::graph::{El, GraphRead, Look, Way};
use crate::lang::ast::{Command, Export};
use crate::lang::print::{print_key, print_text};
use crate::lang::{ErrorKind, KipError};
use crate::plan;

/// Runs a bound EXPORT.
///
/// # Errors
/// A [`KipError`] of any kind a query can have.
pub fn export(export: &Export<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Answer, KipError> {
    let whole = matched(export, graph, options)?;
    let text = crate::lang::print(&Command::Export(Export { limit: None, cursor: None, ..export.clone() }));
    let after: Option<u32> = cursor::place(&text, export.cursor.as_ref())?;
    let limit = limit_of(export.limit.as_ref())?.unwrap_or(usize::MAX);
    let mut page: Vec<El> = whole.iter().copied().filter(|el| after.is_none_or(|after| el.0 > after)).collect();
    let more = page.len() > limit;
    page.truncate(limit);
    let next_cursor = page.last().filter(|_| more).map(|last| cursor::token(&text, &last.0));
    let (capsule, concepts, propositions) = write(graph, &page, &whole);
    Ok(Answer {
        result: json!({"capsule": capsule, "concepts": concepts, "propositions": propositions}),
        next_cursor,
        ..Answer::default()
    })
}

/// The elements an EXPORT names.
fn matched(export: &Export<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<BTreeSet<El>, KipError> {
    let plan = plan::build_where(&export.clauses, graph)?;
    let (name, span) = export.target;
    let slot = plan.slot(name).filter(|slot| !plan.slots[*slot].holds_name).ok_or_else(|| {
        KipError::new(ErrorKind::Reference, format!("?{name} stands for no element in WHERE")).at(span)
    })?;
    let budget = Budget::new(options.limits);
    let run = Run::new(graph, &plan, &budget);
    let rows = run.block(&plan.root, 0, Rows::seed(plan.slots.len()))?;
    Ok(rows.iter().map(|row| El(row[slot])).filter(|el| *el != El::NONE).collect())
}

/// The neighbourhood of what an EXPORT names as one whole capsule: the elements, the links among them, what
/// lies within `hops` links of them, and the definitions of every type and predicate in it.
///
/// # Errors
/// As [`export`].
pub fn neighbourhood(
    query: &Export<'_>,
    hops: usize,
    graph: &dyn GraphRead,
    options: &Options<'_>,
) -> Result<Answer, KipError> {
    let mut whole = matched(query, graph, options)?;
    let budget = Budget::new(options.limits);
    let mut edge: Vec<El> = whole.iter().copied().collect();
    for _ in 0..hops {
        let mut fresh = Vec::new();
        for el in &edge {
            for way in [Way::Out, Way::In] {
                let mut spent = Ok(());
                graph.edges(*el, way, None, &mut |found| {
                    spent = budget.hop(1);
                    fresh.extend([found.other, found.link].into_iter().filter(|el| !whole.contains(el)));
                    spent.is_ok()
                });
                spent?;
            }
        }
        whole.extend(fresh.iter().copied());
        edge = fresh;
    }
    // A link is nothing without its ends, and nothing is without its definition.
    let mut waiting: Vec<El> = whole.iter().copied().collect();
    while let Some(el) = waiting.pop() {
        let mut needed: Vec<El> = Vec::new();
        let mut definition = None;
        graph.look(el, &mut |look| match look {
            Look::Link(link) => {
                needed.extend([link.subject, link.object]);
                definition = Some((PROPOSITION_TYPE, link.predicate));
            }
            Look::Concept(concept) => definition = Some((CONCEPT_TYPE, concept.kind)),
        });
        // Wherever the capsule goes, the core is there already.
        let definition = definition.filter(|(meta, name)| !is_core(Sym::new(meta), name.as_str()));
        needed.extend(definition.and_then(|(meta, name)| graph.concept(Sym::new(meta), name.as_str())));
        for el in needed {
            if whole.insert(el) {
                waiting.push(el);
            }
        }
    }
    let page: Vec<El> = whole.iter().copied().collect();
    let (capsule, concepts, propositions) = write(graph, &page, &whole);
    Ok(Answer::of(json!({"capsule": capsule, "concepts": concepts, "propositions": propositions})))
}

/// Whether an element is one that every nexus is born with and none may change.
fn meta(look: Look<'_>) -> bool {
    matches!(look, Look::Concept(concept) if concept.kind.as_str() == CONCEPT_TYPE && concept.name.starts_with('$'))
}

/// The UPSERT text of `page`, given everything that is exported on any page.
fn write(graph: &dyn GraphRead, page: &[El], whole: &BTreeSet<El>) -> (String, usize, usize) {
    let here: BTreeSet<El> = page.iter().copied().collect();
    let mut concepts: Vec<El> = page.iter().copied().filter(|el| !el.is_link()).collect();
    // Definitions come before what they define.
    concepts.sort_by_key(|el| {
        (
            graph.key(*el).map_or(2, |(kind, _)| {
                if kind.as_str() == CONCEPT_TYPE { 0 } else { usize::from(kind.as_str() != PROPOSITION_TYPE) }
            }),
            *el,
        )
    });
    let mut facts: BTreeSet<El> = page.iter().copied().filter(|el| el.is_link()).collect();
    let mut outside: BTreeMap<El, Vec<El>> = BTreeMap::new();
    for el in &concepts {
        for way in [Way::Out, Way::In] {
            graph.edges(*el, way, None, &mut |edge| {
                if whole.contains(&edge.other) {
                    // On the page of the end that comes last.
                    if here.contains(&edge.other) || edge.other < *el {
                        facts.insert(edge.link);
                    }
                } else if way == Way::Out && !whole.contains(&edge.link) {
                    outside.entry(*el).or_default().push(edge.link);
                }
                true
            });
        }
    }
    let mut out = String::from("UPSERT {\n");
    let mut links = 0;
    let (mut written, mut handles) = (0, BTreeMap::new());
    for el in &concepts {
        graph.look(*el, &mut |look| {
            let Look::Concept(concept) = look else { return };
            let _ = write!(out, "  CONCEPT ?c{} {{\n    {}\n", el.no(), identity(concept.kind, &concept.name));
            let attributes = if meta(look) {
                concept.attributes.without(&["instance_schema"])
            } else if concept.name.starts_with('$') {
                concept.attributes.without(&["core_directives", "id"])
            } else {
                concept.attributes.clone()
            };
            object("    SET ATTRIBUTES ", &attributes, &mut out);
            if let Some(targets) = outside.get(el) {
                out.push_str("    SET PROPOSITIONS {\n");
                for link in targets {
                    graph.look(*link, &mut |look| {
                        if let Look::Link(link) = look {
                            out.push_str("      (");
                            print_text(link.predicate.as_str(), &mut out);
                            let _ = write!(out, ", {})", named(graph, link.object, &BTreeMap::new()));
                            metadata(&link.metadata, &mut out);
                            links += 1;
                        }
                    });
                }
                out.push_str("    }\n");
            }
            out.push_str("  }");
            metadata(&concept.metadata, &mut out);
            handles.insert(*el, format!("?c{}", el.no()));
            written += 1;
        });
    }
    for el in in_order(graph, &facts) {
        graph.look(el, &mut |look| {
            let Look::Link(link) = look else { return };
            let (subject, object_end) = (named(graph, link.subject, &handles), named(graph, link.object, &handles));
            let _ = write!(out, "  PROPOSITION ?p{} {{\n    ({subject}, ", el.no());
            print_text(link.predicate.as_str(), &mut out);
            let _ = writeln!(out, ", {object_end})");
            object("    SET ATTRIBUTES ", &link.attributes, &mut out);
            out.push_str("  }");
            metadata(&link.metadata, &mut out);
            handles.insert(el, format!("?p{}", el.no()));
            links += 1;
        });
    }
    out.push_str("}\n");
    (out, written, links)
}

/// Links with those they are about before them.
fn in_order(graph: &dyn GraphRead, facts: &BTreeSet<El>) -> Vec<El> {
    let mut done: Vec<El> = Vec::with_capacity(facts.len());
    let mut placed: BTreeSet<El> = BTreeSet::new();
    for fact in facts {
        let mut chain = vec![*fact];
        while let Some(el) = chain.last().copied() {
            let mut first = None;
            graph.look(el, &mut |look| {
                if let Look::Link(link) = look {
                    first = [link.subject, link.object]
                        .into_iter()
                        .find(|end| facts.contains(end) && !placed.contains(end));
                }
            });
            match first {
                Some(end) => chain.push(end),
                None => {
                    chain.pop();
                    if placed.insert(el) {
                        done.push(el);
                    }
                }
            }
        }
    }
    done
}

fn identity(kind: Sym, name: &str) -> String {
    let mut out = String::from("{type: ");
    print_text(kind.as_str(), &mut out);
    out.push_str(", name: ");
    print_text(name, &mut out);
    out.push('}');
    out
}

/// An end of a link: by its handle if it has one, else by what it is.
fn named(graph: &dyn GraphRead, el: El, handles: &BTreeMap<El, String>) -> String {
    if let Some(handle) = handles.get(&el) {
        return handle.clone();
    }
    let mut out = String::new();
    let mut ends = None;
    graph.look(el, &mut |look| match look {
        Look::Concept(concept) => out = identity(concept.kind, &concept.name),
        Look::Link(link) => ends = Some((link.subject, link.predicate, link.object)),
    });
    if let Some((subject, predicate, object)) = ends {
        let (subject, object) = (named(graph, subject, handles), named(graph, object, handles));
        let _ = write!(out, "({subject}, ");
        print_text(predicate.as_str(), &mut out);
        let _ = write!(out, ", {object})");
    }
    out
}

fn object(before: &str, bag: &Bag, out: &mut String) {
    if bag.is_empty() {
        return;
    }
    out.push_str(before);
    out.push_str("{ ");
    for (at, (key, value)) in bag.pairs().iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        print_key(key.as_str(), out);
        let _ = write!(out, ": {}", value.to_json());
    }
    out.push_str(" }\n");
}

fn metadata(bag: &Bag, out: &mut String) {
    if bag.is_empty() {
        out.push('\n');
    } else {
        object(" WITH METADATA ", bag, out);
    }
}
