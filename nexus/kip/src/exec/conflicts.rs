//! DESCRIBE CONFLICTS: contradicting claims with their sources and ranks (K12). This module only reports them;
//! `$system` resolves them.
//!
//! There are three kinds of conflicts: several objects for one subject of a predicate defined as functional
//! (`is_functional: true`), if they are active and their periods of validity meet; a `contradicts` link; and a link whose
//! sources state a different `status` or `value`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::describe::rank;
use super::draft::PROPOSITION_TYPE;
use super::{Answer, Budget, Options, cursor, limit_of};
use crate::datum::{Datum, Sym};
use crate::graph::{Direction, ElementId, ElementRef, GraphRead, shown};
use crate::lang::KipError;
use crate::lang::ast::Page;

const BATCH: usize = 1024;

/// Runs DESCRIBE CONFLICTS.
///
/// # Errors
/// `parameter` for an invalid limit or cursor; `execution` when the budget is exceeded.
pub(super) fn conflicts(graph: &dyn GraphRead, page: &Page<'_>, options: &Options<'_>) -> Result<Answer, KipError> {
    let budget = Budget::new(options.limits);
    let limit = limit_of(page.limit.as_ref())?.unwrap_or(options.limits.answer);
    let ids = graph.ids();
    let after: Option<(String, u32)> = cursor::place("conflicts", page.cursor.as_ref())?;
    let after = after.map(|(kind, hidden)| (kind, ids.seek(hidden).0));
    let mut found: BTreeMap<(String, u32), Value> = BTreeMap::new();
    for definition in graph.of_type(Sym::new(PROPOSITION_TYPE), ElementId::NONE, usize::MAX) {
        let mut functional = false;
        graph.look(definition, &mut |look| {
            functional = matches!(look.attributes().named("is_functional"), Some(Datum::Bool(true)));
        });
        if let Some((_, name)) = graph.key(definition).filter(|_| functional) {
            several_objects(graph, Sym::new(&name), &budget, &mut found)?;
        }
    }
    each_link(graph, Some(Sym::new("contradicts")), &budget, &mut |el, look| {
        if let ElementRef::Link(link) = look {
            let ends = [link.subject, link.object].map(|end| claim(graph, end));
            found.insert(
                ("contradicts".into(), el.0),
                json!({"kind": "contradicts", "link": ids.show(el), "claims": ranked(ends.to_vec())}),
            );
        }
    })?;
    each_link(graph, None, &budget, &mut |el, look| {
        let ElementRef::Link(link) = look else { return };
        let claims = link.stamp.later.as_ref().map_or(&[][..], |later| &later.claims);
        let differs = |key: &str| claims.iter().any(|(_, bag)| bag.named(key) != claims[0].1.named(key));
        if claims.len() > 1 && (differs("status") || differs("value")) {
            let listed = claims.iter().map(|(source, bag)| {
                let confidence = bag.named("confidence").and_then(Datum::as_f64).unwrap_or(0.5);
                (
                    confidence,
                    look.stamp().updated(),
                    json!({"source": source.as_str(), "confidence": confidence, "metadata": bag.to_json()}),
                )
            });
            found.insert(
                ("sources".into(), el.0),
                json!({
                    "kind": "sources",
                    "link": ids.show(el),
                    "subject": name_of(graph, link.subject),
                    "predicate": link.predicate,
                    "object": name_of(graph, link.object),
                    "claims": ranked(listed.collect()),
                }),
            );
        }
    })?;
    let mut rest = found.into_iter().filter(|(key, _)| after.as_ref().is_none_or(|after| key > after));
    let mut result = Vec::new();
    let mut last = None;
    for (key, conflict) in rest.by_ref().take(limit) {
        result.push(conflict);
        last = Some(key);
    }
    let next_cursor =
        rest.next().and(last).map(|last| cursor::token("conflicts", &(&last.0, ids.hide(ElementId(last.1)))));
    Ok(Answer { result: Value::Array(result), next_cursor, ..Answer::default() })
}

fn each_link(
    graph: &dyn GraphRead,
    predicate: Option<Sym>,
    budget: &Budget,
    see: &mut dyn FnMut(ElementId, ElementRef<'_>),
) -> Result<(), KipError> {
    let mut after = ElementId::FIRST_LINK;
    loop {
        let batch = graph.of_predicate(predicate, after, BATCH);
        let Some(last) = batch.last() else { return Ok(()) };
        after = *last;
        budget.hop(batch.len())?;
        for el in batch {
            graph.look(el, &mut |look| see(el, look));
        }
    }
}

fn several_objects(
    graph: &dyn GraphRead,
    predicate: Sym,
    budget: &Budget,
    found: &mut BTreeMap<(String, u32), Value>,
) -> Result<(), KipError> {
    let mut subjects = Vec::new();
    each_link(graph, Some(predicate), budget, &mut |_, look| {
        if let ElementRef::Link(link) = look {
            subjects.push(link.subject);
        }
    })?;
    subjects.sort_unstable();
    let several = subjects.chunk_by(|a, b| a == b).filter(|same| same.len() > 1).map(|same| same[0]);
    for subject in several {
        let mut links = Vec::new();
        graph.edges(subject, Direction::Out, Some(predicate), &mut |edge| {
            links.extend(Period::of(graph, edge.link).map(|period| (edge.link, period)));
            true
        });
        // Two objects one after the other are no conflict.
        let is_rival =
            |(link, period): &&(ElementId, Period)| links.iter().any(|(other, of)| other != link && period.meets(of));
        let claims: Vec<(f64, i64, Value)> =
            links.iter().filter(is_rival).map(|(link, _)| claim(graph, *link)).collect();
        if claims.is_empty() {
            continue;
        }
        let key = (format!("functional {}", predicate.as_str()), subject.0);
        found.insert(
            key,
            json!({
                "kind": "functional",
                "subject": name_of(graph, subject),
                "predicate": predicate,
                "claims": ranked(claims),
            }),
        );
    }
    Ok(())
}

/// The time in which a claim holds, as its metadata says; an open end is `None`.
struct Period {
    from: Option<String>,
    until: Option<String>,
}

impl Period {
    /// Returns the period of a claim; `None` if the claim does not hold any more.
    fn of(graph: &dyn GraphRead, el: ElementId) -> Option<Self> {
        let mut period = None;
        graph.look(el, &mut |look| {
            let text = |key: &str| look.metadata().named(key).and_then(Datum::as_str).map(str::to_owned);
            if text("status").is_none_or(|status| status == "active") {
                period = Some(Self { from: text("valid_from"), until: text("valid_until") });
            }
        });
        period
    }

    fn meets(&self, other: &Self) -> bool {
        let begins_before_end_of = |one: &Self, other: &Self| match (&one.from, &other.until) {
            (Some(from), Some(until)) => from < until,
            _ => true,
        };
        begins_before_end_of(self, other) && begins_before_end_of(other, self)
    }
}

fn name_of(graph: &dyn GraphRead, el: ElementId) -> Value {
    graph.key(el).map_or_else(
        || json!({"id": graph.ids().show(el)}),
        |(kind, name)| json!({"id": graph.ids().show(el), "type": kind, "name": name.as_str()}),
    )
}

/// Returns one side of a conflict with its rank.
fn claim(graph: &dyn GraphRead, el: ElementId) -> (f64, i64, Value) {
    let mut side = (0.0, 0, Value::Null);
    graph.look(el, &mut |look| {
        let (confidence, updated) = rank(look);
        let source = look.metadata().named("source").map_or(Value::Null, Datum::to_json);
        let mut shown = json!({
            "id": graph.ids().show(el),
            "source": source,
            "confidence": confidence,
            "updated_at": shown(updated),
        });
        match look {
            ElementRef::Link(link) => {
                shown["subject"] = name_of(graph, link.subject);
                shown["predicate"] = link.predicate.as_str().into();
                shown["object"] = name_of(graph, link.object);
            }
            ElementRef::Concept(concept) => shown["name"] = concept.name.as_str().into(),
        }
        side = (confidence, updated, shown);
    });
    side
}

/// Sorts claims by confidence and then by recency, highest first, and adds each one's rank.
fn ranked(mut claims: Vec<(f64, i64, Value)>) -> Vec<Value> {
    claims.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    let with_rank = |(at, (_, _, mut claim)): (usize, (f64, i64, Value))| {
        claim["rank"] = (at + 1).into();
        claim
    };
    claims.into_iter().enumerate().map(with_rank).collect()
}
