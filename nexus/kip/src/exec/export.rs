//! EXPORT: returns the matched elements as a capsule that recreates the same graph when it is imported.
//!
//! A link between two exported elements is written on the page of the later element, so that both ends exist when the
//! pages are imported in order. A link to an element that is not exported is written on its subject; the import skips
//! it if its target does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::json;

use super::draft::{CONCEPT_TYPE, PROPOSITION_TYPE, is_core};
use super::rows::{Rows, Run};
use super::{Answer, Budget, Options, cursor, limit_of};
use crate::datum::{Properties, Sym};
use crate::graph::{Direction, ElementId, ElementRef, GraphRead};
use crate::lang::ast::{Command, Export};
use crate::lang::print::{print_key, print_text};
use crate::lang::{COMMAND_BYTES_MAX, ErrorKind, KipError};
use crate::plan;

/// The maximum size of a page in bytes; an import accepts no larger command.
const CAPSULE_BYTES_MAX: usize = COMMAND_BYTES_MAX;
/// The maximum number of elements per page.
const PAGE_ELEMENTS: usize = 16_384;

/// Runs a bound EXPORT. A page ends at its LIMIT, or before the capsule would exceed the size limit of an import
/// ([`COMMAND_BYTES_MAX`]). The cursor of the answer names the next page.
///
/// # Errors
/// A [`KipError`] of any kind that a query can return.
pub fn export(export: &Export<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Answer, KipError> {
    let whole = matched(export, graph, options)?;
    let text = crate::lang::print(&Command::Export(Export { limit: None, cursor: None, ..export.clone() }));
    let hidden: Option<u32> = cursor::place(&text, export.cursor.as_ref())?;
    let after = hidden.map(|hidden| graph.ids().seek(hidden));
    let limit = limit_of(export.limit.as_ref())?.unwrap_or(usize::MAX).min(PAGE_ELEMENTS);
    let mut page: Vec<ElementId> = whole.iter().copied().filter(|el| after.is_none_or(|after| *el > after)).collect();
    let left = page.len();
    page.truncate(limit);
    let mut written = write(graph, &page, &whole);
    // An export must be importable, so a page ends at the size limit of an import.
    while written.capsule.len() > CAPSULE_BYTES_MAX && page.len() > 1 {
        let fits = page.len() * CAPSULE_BYTES_MAX / written.capsule.len();
        page.truncate(fits.clamp(1, page.len() - 1));
        written = write(graph, &page, &whole);
    }
    if written.capsule.len() > CAPSULE_BYTES_MAX {
        let bytes = written.capsule.len();
        written.warnings.push(format!("one element with its links takes {bytes} bytes, an import {CAPSULE_BYTES_MAX}"));
    }
    let next_cursor =
        page.last().filter(|_| page.len() < left).map(|last| cursor::token(&text, &graph.ids().hide(*last)));
    Ok(written.answer(next_cursor))
}

/// Returns the elements that an EXPORT matches.
fn matched(export: &Export<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<BTreeSet<ElementId>, KipError> {
    let plan = plan::build_where(&export.clauses, graph)?;
    let (name, span) = export.target;
    let slot = plan.slot(name).filter(|slot| !plan.slots[*slot].holds_name).ok_or_else(|| {
        KipError::new(ErrorKind::Reference, format!("?{name} stands for no element in WHERE")).at(span)
    })?;
    let budget = Budget::new(options.limits);
    let run = Run::new(graph, &plan, &budget);
    let rows = run.block(&plan.root, 0, Rows::seed(plan.slots.len()))?;
    Ok(rows.iter().map(|row| ElementId(row[slot])).filter(|el| *el != ElementId::NONE).collect())
}

/// Exports the neighbourhood of the matched elements as one complete capsule: the elements, everything within `hops`
/// links of them, the links among these elements, and the definitions of every type and predicate used.
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
    let mut edge: Vec<ElementId> = whole.iter().copied().collect();
    for _ in 0..hops {
        let mut fresh = Vec::new();
        for el in &edge {
            for way in [Direction::Out, Direction::In] {
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
        if edge.is_empty() {
            break;
        }
    }
    // A link needs its ends, and every element needs its definition.
    let mut waiting: Vec<ElementId> = whole.iter().copied().collect();
    while let Some(el) = waiting.pop() {
        budget.hop(1)?;
        let mut needed: Vec<ElementId> = Vec::new();
        let mut definition = None;
        graph.look(el, &mut |look| match look {
            ElementRef::Link(link) => {
                needed.extend([link.subject, link.object]);
                definition = Some((PROPOSITION_TYPE, link.predicate));
            }
            ElementRef::Concept(concept) => definition = Some((CONCEPT_TYPE, concept.kind)),
        });
        // A link to an element that is not exported is set wherever its target exists.
        graph.edges(el, Direction::Out, None, &mut |edge| {
            let outward = Sym::new(PROPOSITION_TYPE);
            needed.extend(
                graph.concept(outward, edge.predicate.as_str()).filter(|_| !is_core(outward, edge.predicate.as_str())),
            );
            true
        });
        // Every nexus that imports the capsule has the core already.
        let definition = definition.filter(|(meta, name)| !is_core(Sym::new(meta), name.as_str()));
        needed.extend(definition.and_then(|(meta, name)| graph.concept(Sym::new(meta), name.as_str())));
        for el in needed {
            if whole.insert(el) {
                waiting.push(el);
            }
        }
    }
    let page: Vec<ElementId> = whole.iter().copied().collect();
    Ok(write(graph, &page, &whole).answer(None))
}

/// Returns `true` for an element that every nexus has from the start and that no command may change.
fn meta(look: ElementRef<'_>) -> bool {
    matches!(look, ElementRef::Concept(concept) if concept.kind.as_str() == CONCEPT_TYPE && concept.name.starts_with('$'))
}

/// A page of a capsule.
struct Written {
    capsule: String,
    concepts: usize,
    propositions: usize,
    warnings: Vec<String>,
}

impl Written {
    fn answer(self, next_cursor: Option<String>) -> Answer {
        let Self { capsule, concepts, propositions, warnings } = self;
        let result = json!({"capsule": capsule, "concepts": concepts, "propositions": propositions});
        Answer { result, next_cursor, warnings, ..Answer::default() }
    }
}

/// The contents of one page of a capsule.
struct Contents {
    /// Concepts in the order of writing.
    concepts: Vec<ElementId>,
    /// Links that are written in separate blocks.
    facts: BTreeSet<ElementId>,
    /// Links to elements that are not exported, by the concept where they start.
    outside: BTreeMap<ElementId, BTreeSet<ElementId>>,
}

/// Returns the contents of `page`; `whole` holds the elements exported on all pages.
fn gather(graph: &dyn GraphRead, page: &[ElementId], whole: &BTreeSet<ElementId>) -> Contents {
    let here: BTreeSet<ElementId> = page.iter().copied().collect();
    let mut facts: BTreeSet<ElementId> = page.iter().copied().filter(|el| el.is_link()).collect();
    let mut concepts: Vec<ElementId> = page.iter().copied().filter(|el| !el.is_link()).collect();
    // Definitions precede the elements that use them.
    concepts.sort_by_key(|el| {
        let rank = |kind: Sym| match kind.as_str() {
            CONCEPT_TYPE => 0,
            PROPOSITION_TYPE => 1,
            _ => 2,
        };
        (graph.key(*el).map_or(2, |(kind, _)| rank(kind)), *el)
    });
    let mut outside: BTreeMap<ElementId, BTreeSet<ElementId>> = BTreeMap::new();
    for el in &concepts {
        for way in [Direction::Out, Direction::In] {
            graph.edges(*el, way, None, &mut |edge| {
                if edge.other.is_link() {
                    // A claim about a link needs that link.
                    facts.extend((way == Direction::Out).then_some(edge.link));
                } else if whole.contains(&edge.other) {
                    // The link belongs to the page of its later end.
                    if here.contains(&edge.other) || edge.other < *el {
                        facts.insert(edge.link);
                    }
                } else if way == Direction::Out && !whole.contains(&edge.link) {
                    outside.entry(*el).or_default().insert(edge.link);
                }
                true
            });
        }
    }
    // Claims that connect an exported link with an exported element belong to the page.
    let mut waiting: Vec<ElementId> = facts.iter().copied().collect();
    while let Some(el) = waiting.pop() {
        for way in [Direction::Out, Direction::In] {
            graph.edges(el, way, None, &mut |edge| {
                if (here.contains(&edge.other) || facts.contains(&edge.other)) && facts.insert(edge.link) {
                    waiting.push(edge.link);
                }
                true
            });
        }
    }
    // A link that is an end of another link gets its own block before it, so names do not nest.
    let mut waiting: Vec<ElementId> = facts.iter().copied().collect();
    while let Some(el) = waiting.pop() {
        graph.look(el, &mut |look| {
            if let ElementRef::Link(link) = look {
                let ends = [link.subject, link.object];
                waiting.extend(ends.into_iter().filter(|end| end.is_link() && facts.insert(*end)));
            }
        });
    }
    Contents { concepts, facts, outside }
}

/// Writes `page` as UPSERT text; `whole` holds the elements exported on all pages.
fn write(graph: &dyn GraphRead, page: &[ElementId], whole: &BTreeSet<ElementId>) -> Written {
    let Contents { concepts, facts, outside } = gather(graph, page, whole);
    let mut out = String::from("UPSERT {\n");
    let (mut links, mut warnings) = (0, Vec::new());
    let (mut written, mut handles) = (0, BTreeMap::new());
    for el in &concepts {
        graph.look(*el, &mut |look| {
            let ElementRef::Concept(concept) = look else { return };
            let _ = write!(out, "  CONCEPT ?c{} {{\n    {}\n", el.no(), identity(concept.kind, &concept.name));
            object("    SET ATTRIBUTES ", &exported(look), &mut out);
            // The metadata of a block also applies to its links, so the links are written in a block without
            // metadata.
            out.push_str("  }");
            metadata(&concept.metadata, &mut out);
            if let Some(targets) = outside.get(el) {
                let _ = write!(out, "  CONCEPT ?l{} {{\n    {}\n", el.no(), identity(concept.kind, &concept.name));
                links += write_targets(graph, targets, &mut out, &mut warnings);
                out.push_str("  }\n");
            }
            handles.insert(*el, format!("?c{}", el.no()));
            written += 1;
        });
    }
    for el in in_order(graph, &facts) {
        graph.look(el, &mut |look| {
            let ElementRef::Link(link) = look else { return };
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
    Written { capsule: out, concepts: written, propositions: links, warnings }
}

/// Returns the attributes of a concept, except those that another mind refuses to import (R28).
fn exported(look: ElementRef<'_>) -> Properties {
    let actor = matches!(look, ElementRef::Concept(concept) if concept.kind.as_str() == "Person" && concept.name.starts_with('$'));
    match (meta(look), actor) {
        (true, _) => look.attributes().without(&["instance_schema"]),
        (_, true) => look.attributes().without(&["core_directives", "id"]),
        _ => look.attributes().clone(),
    }
}

/// Writes the links of one concept to elements that are not exported, each target by its name; returns their number.
fn write_targets(
    graph: &dyn GraphRead,
    targets: &BTreeSet<ElementId>,
    out: &mut String,
    warnings: &mut Vec<String>,
) -> usize {
    let mut links = 0;
    out.push_str("    SET PROPOSITIONS {\n");
    for target in targets {
        graph.look(*target, &mut |look| {
            let ElementRef::Link(link) = look else { return };
            if !link.attributes.is_empty() {
                let id = graph.ids().show(*target);
                warnings.push(format!("the attributes of {id} stay behind: it leads to what is not exported"));
            }
            out.push_str("      (");
            print_text(link.predicate.as_str(), out);
            let _ = write!(out, ", {})", named(graph, link.object, &BTreeMap::new()));
            metadata(&link.metadata, out);
            links += 1;
        });
    }
    out.push_str("    }\n");
    links
}

/// Sorts links so that each follows the links it is about.
fn in_order(graph: &dyn GraphRead, facts: &BTreeSet<ElementId>) -> Vec<ElementId> {
    let mut done: Vec<ElementId> = Vec::with_capacity(facts.len());
    let mut placed: BTreeSet<ElementId> = BTreeSet::new();
    for fact in facts {
        let mut chain = vec![*fact];
        while let Some(el) = chain.last().copied() {
            let mut first = None;
            graph.look(el, &mut |look| {
                if let ElementRef::Link(link) = look {
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

/// Returns the text for an end of a link: its handle if it has one, otherwise its identity.
fn named(graph: &dyn GraphRead, el: ElementId, handles: &BTreeMap<ElementId, String>) -> String {
    if let Some(handle) = handles.get(&el) {
        return handle.clone();
    }
    let key = graph.key(el);
    key.map_or_else(|| format!("(id: \"{}\")", graph.ids().show(el)), |(kind, name)| identity(kind, &name))
}

fn object(before: &str, bag: &Properties, out: &mut String) {
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

fn metadata(bag: &Properties, out: &mut String) {
    if bag.is_empty() {
        out.push('\n');
    } else {
        object(" WITH METADATA ", bag, out);
    }
}
