//! FIND: solve, sort, project. Rows come in one total order: the keys of ORDER BY, then the elements
//! projected, in order of creation; so a page can begin behind a row and not behind a number.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::draft::{CONCEPT_TYPE, PROPOSITION_TYPE};
use super::rows::{Rows, Run};
use super::{Budget, Dialect, Options, cursor, limit_of};
use crate::datum::{Datum, Sym};
use crate::graph::sorted::{Place, Range};
use crate::graph::{El, GraphRead};
use crate::lang::ast::{Aggregate, Clause, Comparison, Find, Lit, Predicate, PropositionPattern, Selected, Term};
use crate::lang::error::nearest;
use crate::lang::{Command, ErrorKind, KipError};
use crate::plan::{self, Access, Field, Plan, Step, Test, Which};

/// What a command answers.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The result.
    pub result: Value,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// What was passed over, in words.
    pub warnings: Vec<String>,
    /// Types by attributes whose index would have helped.
    pub wants: Vec<(Sym, Sym)>,
}

impl Answer {
    /// A result without more.
    pub fn of(result: Value) -> Self {
        Self { result, ..Self::default() }
    }
}

/// The form of FIND's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// One row a solution.
    Rows,
    /// One array an expression, aligned by solution.
    Columns,
}

/// From so many concepts on, an index of them is worth building.
const INDEX_FROM: usize = 512;
/// Concepts a driver takes up at first; the batches grow.
const BATCH_FIRST: usize = 128;
const BATCH_MAX: usize = 4096;

/// Runs a bound FIND.
///
/// # Errors
/// A [`KipError`] of any kind a query can have.
pub fn find(query: &Find<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Answer, KipError> {
    let plan = plan::build(query, graph)?;
    let budget = Budget::new(options.limits);
    let run = Run::new(graph, &plan, &budget);
    if options.dialect == Dialect::Rc11 {
        addressed(&plan)?;
    }
    let mut answer = answer(query, &run)?;
    if answer.result.as_array().is_some_and(Vec::is_empty) {
        answer.warnings = undefined(&query.clauses, graph);
    }
    if options.shape.unwrap_or(if options.dialect == Dialect::Rc11 { Shape::Columns } else { Shape::Rows })
        == Shape::Columns
    {
        answer.result = columns(query, answer.result);
    }
    Ok(answer)
}

/// Why a query may have found nothing: types and predicates it names that nobody defined, each with the
/// nearest one that is.
fn undefined(clauses: &[Clause<'_>], graph: &dyn GraphRead) -> Vec<String> {
    let (mut kinds, mut predicates) = (Vec::new(), Vec::new());
    names_of(clauses, &mut kinds, &mut predicates);
    let mut told = Vec::new();
    for (meta, what, names) in [(CONCEPT_TYPE, "concept type", kinds), (PROPOSITION_TYPE, "predicate", predicates)] {
        for name in names {
            if name.starts_with('$') || graph.concept(Sym::new(meta), name).is_some() {
                continue;
            }
            let known: Vec<arcstr::ArcStr> = graph
                .of_type(Sym::new(meta), El::NONE, 1000)
                .into_iter()
                .filter_map(|el| graph.key(el).map(|(_, name)| name))
                .collect();
            let near = nearest(name, known.iter().map(arcstr::ArcStr::as_str));
            let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
            told.push(format!("{what} \"{name}\" is not defined{near}"));
        }
    }
    told
}

/// The types and predicates that clauses name.
fn names_of<'q>(clauses: &'q [Clause<'_>], kinds: &mut Vec<&'q str>, predicates: &mut Vec<&'q str>) {
    fn term<'q>(term: &'q Term<'_>, kinds: &mut Vec<&'q str>, predicates: &mut Vec<&'q str>) {
        match term {
            Term::Var(..) => {}
            Term::Concept(_, pattern) => kinds.extend(pattern.kind.as_ref().and_then(Lit::as_str)),
            Term::Proposition(_, pattern) => proposition(pattern, kinds, predicates),
        }
    }
    fn proposition<'q>(pattern: &'q PropositionPattern<'_>, kinds: &mut Vec<&'q str>, predicates: &mut Vec<&'q str>) {
        let PropositionPattern::Triple(triple) = pattern else { return };
        term(&triple.subject, kinds, predicates);
        term(&triple.object, kinds, predicates);
        if let Predicate::Names(names) = &triple.predicate {
            predicates.extend(names.iter().filter_map(|(name, _)| name.as_str()));
        }
    }
    for clause in clauses {
        match clause {
            Clause::Concept(_, pattern) => kinds.extend(pattern.kind.as_ref().and_then(Lit::as_str)),
            Clause::Proposition(_, pattern) => proposition(pattern, kinds, predicates),
            Clause::Filter(_) => {}
            Clause::Not(inner) | Clause::Optional(inner) | Clause::Union(inner) => names_of(inner, kinds, predicates),
        }
    }
}

/// In the rc11 dialect a grounded pattern at top level must name something that is there.
fn addressed(plan: &Plan<'_>) -> Result<(), KipError> {
    let missing = plan.root.stages.iter().any(|stage| match &stage.step {
        Step::Concept { which: Which::These(these), grounded: true, .. } => these.is_empty(),
        Step::Link { el, .. } => el.is_none(),
        _ => false,
    });
    if missing {
        return Err(KipError::new(ErrorKind::NotFound, "a node or link that WHERE names does not exist")
            .hint("SEARCH CONCEPT finds its exact name"));
    }
    Ok(())
}

/// `EXPLAIN FIND …`: the plan, with the rows that were guessed and that came.
///
/// # Errors
/// As [`find`].
pub fn explain(query: &Find<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Value, KipError> {
    let plan = plan::build(query, graph)?;
    let budget = Budget::new(options.limits);
    let run = Run::new(graph, &plan, &budget);
    let driver = Driver::of(query, &run, &mut Vec::new());
    let how = driver.in_words();
    let answer = answer(query, &run)?;
    let lines = plan.explain().into_iter().map(|(no, depth, estimate, words)| {
        json!({"depth": depth, "operator": words, "estimated_rows": estimate, "actual_rows": run.made(no)})
    });
    Ok(json!({
        "driver": how,
        "plan": lines.collect::<Vec<_>>(),
        "rows": answer.result.as_array().map_or(0, Vec::len),
        "more": answer.next_cursor.is_some(),
        "wants_index": answer.wants.iter().map(|(kind, key)| format!("{}.{}", kind.as_str(), key.as_str())).collect::<Vec<_>>(),
    }))
}

/// Where the solutions come from: all at once, or batch by batch, so that an answer in that very order can
/// stop when it is full.
enum Driver {
    /// All at once.
    Whole,
    /// The concepts of a type in order of creation.
    Type { slot: usize, kind: Sym },
    /// The concepts of a type in the order of an attribute; those without it come last.
    Sorted { slot: usize, kind: Sym, key: Sym, range: Range, descending: bool, by_order: bool },
}

impl Driver {
    fn of(query: &Find<'_>, run: &Run<'_>, wants: &mut Vec<(Sym, Sym)>) -> Self {
        let root = &run.plan.root;
        let Some(Step::Concept { slot, bound: false, which: Which::Type(kind), .. }) =
            root.stages.first().map(|stage| &stage.step)
        else {
            return Self::Whole;
        };
        let (slot, kind) = (*slot, *kind);
        if root.has_union {
            return Self::Whole;
        }
        let large = run.graph.type_len(kind) >= INDEX_FROM;
        let mut usable = |key: Sym| {
            let there = run.graph.sorted_len(kind, key).is_some();
            if !there && large && !wants.contains(&(kind, key)) {
                wants.push((kind, key));
            }
            there
        };
        let ranges: Vec<(Sym, Range, bool)> = root
            .stages
            .iter()
            .filter_map(|stage| if let Step::Filter(test) = &stage.step { range_of(test, slot) } else { None })
            .collect();
        let order = match (query.order.first(), &query.limit) {
            (Some((Selected::Path(path), descending)), Some(_)) if run.plan.slot(path.var) == Some(slot) => {
                match Field::of(path) {
                    Some(Field::Attribute(Some(key), deeper)) if deeper.is_empty() => Some((key, *descending)),
                    _ => None,
                }
            }
            _ => None,
        };
        if let Some((key, range, _)) = ranges.iter().find(|(_, _, exact)| *exact)
            && usable(*key)
        {
            return Self::Sorted { slot, kind, key: *key, range: range.clone(), descending: false, by_order: false };
        }
        if let Some((key, descending)) = order
            && usable(key)
        {
            let range = ranges.iter().find(|(of, ..)| *of == key).map(|(_, range, _)| range.clone());
            let range = range.unwrap_or((Bound::Unbounded, Bound::Unbounded));
            return Self::Sorted { slot, kind, key, range, descending, by_order: true };
        }
        if let Some((key, range, _)) = ranges.first()
            && usable(*key)
        {
            return Self::Sorted { slot, kind, key: *key, range: range.clone(), descending: false, by_order: false };
        }
        Self::Type { slot, kind }
    }

    fn in_words(&self) -> String {
        match self {
            Self::Whole => "all solutions at once".into(),
            Self::Type { kind, .. } => format!("every {} in order of creation", kind.as_str()),
            Self::Sorted { kind, key, descending, .. } => {
                format!(
                    "the index of {} by {}{}",
                    kind.as_str(),
                    key.as_str(),
                    if *descending { ", backwards" } else { "" }
                )
            }
        }
    }

    /// Solves the plan and gives the rows to `sink` until it has enough; it is told the place that no later
    /// row comes before.
    fn solve(&self, run: &Run<'_>, few: bool, from: El, sink: Sink<'_>) -> Result<(), KipError> {
        let (plan, root) = (run.plan, &run.plan.root);
        let width = plan.slots.len();
        let mut size = if few { BATCH_FIRST } else { BATCH_MAX };
        // Runs one batch through the stages behind the first.
        let push = |slot: usize, els: &[El]| {
            run.budget.hop(els.len())?;
            let mut rows = Rows::new(width);
            rows.data.resize(els.len() * width, 0);
            rows.data.chunks_exact_mut(width).zip(els).for_each(|(row, el)| row[slot] = el.0);
            run.count(root.stages[0].no, els.len());
            run.block(root, 1, rows)
        };
        match self {
            Self::Whole => sink(run.block(root, 0, Rows::seed(width))?, None).map(drop),
            Self::Type { slot, kind } => {
                let mut after = from;
                loop {
                    let els = run.graph.of_type(*kind, after, size);
                    let Some(last) = els.last().copied() else { return Ok(()) };
                    after = last;
                    size = (size * 2).min(BATCH_MAX);
                    if !sink(push(*slot, &els)?, Some(&Reached::Element(last)))? {
                        return Ok(());
                    }
                }
            }
            Self::Sorted { slot, kind, key, range, descending, by_order } => {
                let mut after: Option<(Place, El)> = None;
                loop {
                    let found =
                        run.graph.sorted(*kind, *key, range, *descending, after.as_ref(), size).unwrap_or_default();
                    let Some(last) = found.last().cloned() else { break };
                    size = (size * 2).min(BATCH_MAX);
                    let els: Vec<El> = found.iter().map(|(_, el)| *el).filter(|el| run.graph.has(*el)).collect();
                    let reached = by_order.then(|| Reached::Place(last.0.clone()));
                    after = Some(last);
                    if !sink(push(*slot, &els)?, reached.as_ref())? {
                        return Ok(());
                    }
                }
                // Concepts without the attribute are null there: last in any order, and in no range.
                if !matches!(range, (Bound::Unbounded, Bound::Unbounded)) {
                    return Ok(());
                }
                let mut after = El::NONE;
                loop {
                    let els = run.graph.of_type(*kind, after, BATCH_MAX);
                    let Some(last) = els.last() else { return Ok(()) };
                    after = *last;
                    let without = |el: &El| {
                        let mut null = false;
                        run.graph.look(*el, &mut |look| null = look.attributes().get(*key).is_none_or(Datum::is_null));
                        null
                    };
                    let els: Vec<El> = els.into_iter().filter(without).collect();
                    if !sink(push(*slot, &els)?, None)? {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Takes rows with how far the driver came, and answers whether it wants more.
type Sink<'s> = &'s mut dyn FnMut(Rows, Option<&Reached>) -> Result<bool, KipError>;

/// How far a driver came.
enum Reached {
    /// In order of creation.
    Element(El),
    /// In the order of an attribute.
    Place(Place),
}

/// The range of an attribute of `slot` that a filter asks for, and whether it is one value.
fn range_of(test: &Test, slot: usize) -> Option<(Sym, Range, bool)> {
    let Test::Compare(a, operator, b) = test else { return None };
    let (access, value, operator) = match (&**a, &**b) {
        (Test::Get(access), Test::Value(value)) => (access, value, *operator),
        (Test::Value(value), Test::Get(access)) => (access, value, turned(*operator)),
        _ => return None,
    };
    let Access { slot: of, field: Field::Attribute(Some(key), deeper), holds_name: false } = access else {
        return None;
    };
    let orderable = matches!(value, Datum::Bool(_) | Datum::Int(_) | Datum::Float(_) | Datum::Str(_));
    if *of != slot || !deeper.is_empty() || !orderable {
        return None;
    }
    let place = Place::of(value)?;
    let from = |bound| (bound, Bound::Unbounded);
    let to = |bound| (Bound::Unbounded, bound);
    // The filter looks again at what comes, so the range may hold too much, never too little.
    let (range, exact) = match operator {
        Comparison::Eq => ((Bound::Included(place.clone()), Bound::Included(place)), true),
        Comparison::Lt | Comparison::Le => (to(Bound::Included(place)), false),
        Comparison::Gt | Comparison::Ge => (from(Bound::Included(place)), false),
        Comparison::Ne => return None,
    };
    Some((*key, range, exact))
}

/// The operator with its sides changed.
fn turned(operator: Comparison) -> Comparison {
    match operator {
        Comparison::Lt => Comparison::Gt,
        Comparison::Le => Comparison::Ge,
        Comparison::Gt => Comparison::Lt,
        Comparison::Ge => Comparison::Le,
        same => same,
    }
}

/// A row on its way to the answer: its keys, and what tells it from every other row.
#[derive(Clone, Debug)]
struct Candidate {
    keys: Vec<Datum>,
    ids: Vec<u32>,
}

/// The place of a row as a cursor holds it. Names of predicates go by text, since their numbers are the run's.
#[derive(Serialize, Deserialize)]
struct At {
    keys: Vec<Datum>,
    ids: Vec<Id>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum Id {
    El(u32),
    Name(String),
}

fn compare_keys(a: &[Datum], b: &[Datum], descending: &[bool]) -> Ordering {
    for ((a, b), descending) in a.iter().zip(b).zip(descending) {
        let compared = match (a.is_null(), b.is_null()) {
            (false, false) if *descending => b.sort(a),
            // Null is last in both directions (R31).
            _ => a.sort(b),
        };
        if compared != Ordering::Equal {
            return compared;
        }
    }
    Ordering::Equal
}

fn answer(query: &Find<'_>, run: &Run<'_>) -> Result<Answer, KipError> {
    let limit = limit_of(query.limit.as_ref())?;
    let aggregates = query.select.iter().any(|selected| matches!(selected, Selected::Aggregate { .. }));
    if aggregates {
        return grouped(query, run, limit);
    }
    if let Some((Selected::Aggregate { path, .. }, _)) =
        query.order.iter().find(|(key, _)| matches!(key, Selected::Aggregate { .. }))
    {
        return Err(
            KipError::new(ErrorKind::Reference, "an aggregate that sorts must stand in FIND as well").at(path.span)
        );
    }
    let accesses: Vec<Access> =
        query.select.iter().map(|selected| plan::access(run.plan, selected.path())).collect::<Result<_, _>>()?;
    let keys: Vec<Access> =
        query.order.iter().map(|(key, _)| plan::access(run.plan, key.path())).collect::<Result<_, _>>()?;
    let descending: Vec<bool> = query.order.iter().map(|(_, descending)| *descending).collect();
    let mut projected: Vec<usize> = Vec::new();
    for access in &accesses {
        if !projected.contains(&access.slot) {
            projected.push(access.slot);
        }
    }
    // When every key is a value of what is projected, equal rows have equal keys and only the best rows need be held.
    let keyed = keys.iter().all(|key| projected.contains(&key.slot));
    let text = query_text(query);
    let after: Option<At> = cursor::place(&text, query.cursor.as_ref())?;

    let mut wants = Vec::new();
    let driver = Driver::of(query, run, &mut wants);
    let id_of = |at: usize, id: u32| match run.plan.slots[projected[at]].holds_name {
        true => Id::Name(run.names().get((id as usize).wrapping_sub(1)).map_or("", |name| name.as_str()).to_owned()),
        false => Id::El(id),
    };
    let has_names = projected.iter().any(|slot| run.plan.slots[*slot].holds_name);
    let compare_ids = |a: &[u32], b: &[u32]| {
        if !has_names {
            return a.cmp(b);
        }
        let ids = |ids: &[u32]| ids.iter().enumerate().map(|(at, id)| id_of(at, *id)).collect::<Vec<_>>();
        ids(a).cmp(&ids(b))
    };
    let compare = |a: &Candidate, b: &Candidate| {
        compare_keys(&a.keys, &b.keys, &descending).then_with(|| compare_ids(&a.ids, &b.ids))
    };
    let behind = |candidate: &Candidate| match &after {
        None => true,
        Some(at) => {
            let ids = candidate.ids.iter().enumerate().map(|(at, id)| id_of(at, *id));
            compare_keys(&candidate.keys, &at.keys, &descending).then_with(|| ids.collect::<Vec<_>>().cmp(&at.ids))
                == Ordering::Greater
        }
    };

    let held_max = limit.filter(|_| keyed).map(|limit| limit.saturating_add(1));
    let mut held: Vec<Candidate> = Vec::new();
    let settle = |held: &mut Vec<Candidate>| {
        held.sort_by(&compare);
        if keyed {
            held.dedup_by(|a, b| a.ids == b.ids);
        }
        if let Some(max) = held_max {
            held.truncate(max);
        }
    };
    // A page of rows in order of creation begins where the one before it ended.
    let from = match (&driver, &after) {
        (Driver::Type { slot, .. }, Some(At { ids, .. })) if keys.is_empty() && projected.first() == Some(slot) => {
            if let Some(Id::El(id)) = ids.first() {
                El(id.saturating_sub(1))
            } else {
                El::NONE
            }
        }
        _ => El::NONE,
    };
    driver.solve(run, limit.is_some(), from, &mut |rows, reached| {
        let names = run.names();
        for row in rows.iter() {
            let candidate = Candidate {
                keys: keys.iter().map(|key| key.get(row, &names, run.graph)).collect(),
                ids: projected.iter().map(|slot| row[*slot]).collect(),
            };
            if !keyed || behind(&candidate) {
                held.push(candidate);
            }
        }
        drop(names);
        run.budget.hold(held.len(), projected.len() + 8 + 6 * keys.len())?;
        let Some(max) = held_max else { return Ok(true) };
        if held.len() >= max * 2 || reached.is_some() {
            settle(&mut held);
        }
        // Full, and whatever comes now comes later in the order than what is held.
        let full = held.len() == max;
        Ok(!(full
            && match (reached, held.last()) {
                (Some(Reached::Element(el)), Some(last)) => {
                    keys.is_empty()
                        && matches!(driver, Driver::Type { slot, .. } if slot == projected[0])
                        && last.ids[0] <= el.0
                }
                (Some(Reached::Place(place)), Some(last)) => Place::of(&last.keys[0])
                    .is_some_and(|held| if descending[0] { *place < held } else { *place > held }),
                _ => false,
            }))
    })?;
    settle(&mut held);
    if !keyed {
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        held.retain(|candidate| seen.insert(candidate.ids.clone()));
        held.retain(&behind);
    }
    let more = limit.is_some_and(|limit| held.len() > limit);
    held.truncate(limit.unwrap_or(usize::MAX));
    too_long(held.len(), run.budget)?;
    let next_cursor = held.last().filter(|_| more).map(|last| {
        let ids = last.ids.iter().enumerate().map(|(at, id)| id_of(at, *id)).collect();
        cursor::token(&text, &At { keys: last.keys.clone(), ids })
    });
    let names = run.names();
    let mut row = vec![0; run.plan.slots.len()];
    let result = held
        .iter()
        .map(|candidate| {
            projected.iter().zip(&candidate.ids).for_each(|(slot, id)| row[*slot] = *id);
            shape(accesses.iter().map(|access| shown(access, &row, &names, run.graph)).collect())
        })
        .collect();
    Ok(Answer { result: Value::Array(result), next_cursor, wants, ..Answer::default() })
}

/// The value of an access as JSON; a whole element without a detour through a value of the graph.
fn shown(access: &Access, row: &[u32], names: &[Sym], graph: &dyn GraphRead) -> Value {
    let el = El(row[access.slot]);
    if access.holds_name || el == El::NONE {
        return access.get(row, names, graph).to_json();
    }
    let mut value = Value::Null;
    graph.look(el, &mut |look| {
        value = match &access.field {
            Field::Whole => look.to_json(el),
            Field::Attributes => look.attributes().to_json().into(),
            Field::Metadata => look.metadata_json().into(),
            field => field.of_element(el, look).to_json(),
        };
    });
    value
}

/// The query without its cursor: what a token belongs to.
fn query_text(query: &Find<'_>) -> String {
    if query.limit.is_none() && query.cursor.is_none() {
        return String::new();
    }
    crate::lang::print(&Command::Find(Find { cursor: None, limit: None, ..query.clone() }))
}

fn too_long(rows: usize, budget: &Budget) -> Result<(), KipError> {
    if rows > budget.answer() {
        let message = format!("the answer has {rows} rows, over the bound of {}", budget.answer());
        return Err(KipError::new(ErrorKind::Execution, message)
            .code("KIP_4002")
            .hint("add a LIMIT and follow the CURSOR"));
    }
    Ok(())
}

fn shape(mut cells: Vec<Value>) -> Value {
    if cells.len() == 1 { cells.remove(0) } else { Value::Array(cells) }
}

/// Rows as columns: a lone column is unwrapped, an ungrouped aggregate a scalar.
fn columns(query: &Find<'_>, rows: Value) -> Value {
    let Value::Array(rows) = rows else { return rows };
    let lone = query.select.len() == 1;
    if query.select.iter().all(|selected| matches!(selected, Selected::Aggregate { .. })) {
        return rows.into_iter().next().unwrap_or_default();
    }
    if lone {
        return Value::Array(rows);
    }
    let mut out: Vec<Vec<Value>> = vec![Vec::with_capacity(rows.len()); query.select.len()];
    for row in rows {
        if let Value::Array(cells) = row {
            cells.into_iter().zip(&mut out).for_each(|(cell, column)| column.push(cell));
        }
    }
    out.into_iter().map(Value::Array).collect()
}

// ---- grouping ----

/// One group: the values of its plain expressions, its sums, and the row it was first seen in.
struct Group {
    plain: Vec<Datum>,
    sums: Vec<Sum>,
    first: Vec<u32>,
}

/// Groups by the values of the plain expressions; the inputs are the distinct solutions (R14). Without
/// plain expressions there is one row, even over nothing (R42).
fn grouped(query: &Find<'_>, run: &Run<'_>, limit: Option<usize>) -> Result<Answer, KipError> {
    let mut plain: Vec<Access> = Vec::new();
    let mut sums: Vec<(Aggregate, bool, Access)> = Vec::new();
    for selected in &query.select {
        let access = plan::access(run.plan, selected.path())?;
        match selected {
            Selected::Path(_) => plain.push(access),
            Selected::Aggregate { function, distinct, .. } => sums.push((*function, *distinct, access)),
        }
    }
    let fresh = || sums.iter().map(|(function, distinct, _)| Sum::new(*function, *distinct)).collect::<Vec<_>>();
    let mut groups: Vec<Group> = Vec::new();
    if let Some(count) = counted(query, run, &plain, &sums) {
        let mut whole = fresh();
        whole.iter_mut().for_each(|sum| sum.count = count);
        groups.push(Group { plain: Vec::new(), sums: whole, first: vec![0; run.plan.slots.len()] });
    } else {
        let mut index: HashMap<String, usize> = HashMap::new();
        let distinct = run.plan.rows_are_distinct();
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        let driver = Driver::of(query, run, &mut Vec::new());
        driver.solve(run, false, El::NONE, &mut |rows, _| {
            let names = run.names();
            for row in rows.iter() {
                run.budget.hop(1)?;
                if !distinct {
                    let told = row.iter().zip(&run.plan.slots).filter(|(_, slot)| slot.answers && slot.name.is_some());
                    if !seen.insert(told.map(|(value, _)| *value).collect()) {
                        continue;
                    }
                }
                let values: Vec<Datum> = plain.iter().map(|access| access.get(row, &names, run.graph)).collect();
                let at = if plain.is_empty() {
                    if groups.is_empty() {
                        groups.push(Group { plain: Vec::new(), sums: fresh(), first: row.to_vec() });
                    }
                    0
                } else {
                    *index.entry(group_key(&values)).or_insert_with(|| {
                        groups.push(Group { plain: values, sums: fresh(), first: row.to_vec() });
                        groups.len() - 1
                    })
                };
                for (sum, (function, _, access)) in groups[at].sums.iter_mut().zip(&sums) {
                    // A whole element is only counted, and told from others by its number.
                    let value = match (&access.field, row[access.slot]) {
                        (_, 0) => Datum::Null,
                        (Field::Whole, id) if !access.holds_name => match function {
                            Aggregate::Count => Datum::Int(id.into()),
                            _ => Datum::Null,
                        },
                        _ => access.get(row, &names, run.graph),
                    };
                    sum.add(&value);
                }
            }
            run.budget.hold(seen.len() + groups.len(), run.plan.slots.len())?;
            Ok(true)
        })?;
    }
    if groups.is_empty() && plain.is_empty() {
        groups.push(Group { plain: Vec::new(), sums: fresh(), first: vec![0; run.plan.slots.len()] });
    }
    sorted_groups(query, run, groups, limit)
}

/// How many there are of a type, where that is all that was asked.
fn counted(query: &Find<'_>, run: &Run<'_>, plain: &[Access], sums: &[(Aggregate, bool, Access)]) -> Option<usize> {
    let [stage] = run.plan.root.stages.as_slice() else { return None };
    let Step::Concept { slot, bound: false, which: Which::Type(kind), .. } = &stage.step else { return None };
    let all = |(function, _, access): &(Aggregate, bool, Access)| {
        *function == Aggregate::Count
            && access.slot == *slot
            && matches!(access.field, Field::Whole | Field::Id | Field::Name)
    };
    let fits = plain.is_empty() && query.order.is_empty() && sums.iter().all(all);
    // Names are unique within a type, so a distinct count of them is the same.
    fits.then(|| run.graph.type_len(*kind))
}

fn sorted_groups(
    query: &Find<'_>,
    run: &Run<'_>,
    groups: Vec<Group>,
    limit: Option<usize>,
) -> Result<Answer, KipError> {
    let text = query_text(query);
    let after: Option<At> = cursor::place(&text, query.cursor.as_ref())?;
    let descending: Vec<bool> = query.order.iter().map(|(_, descending)| *descending).collect();
    let names = run.names();
    let mut rows: Vec<(Vec<Datum>, String, Vec<Value>)> = Vec::with_capacity(groups.len());
    for group in groups {
        let tie = group_key(&group.plain);
        let (mut plain, mut sums) = (group.plain.iter(), group.sums.iter());
        let cells: Vec<Datum> = query
            .select
            .iter()
            .map(|selected| match selected {
                Selected::Path(_) => plain.next().cloned().unwrap_or_default(),
                Selected::Aggregate { .. } => sums.next().map(Sum::value).unwrap_or_default(),
            })
            .collect();
        let mut keys = Vec::with_capacity(query.order.len());
        for (key, _) in &query.order {
            let same = |selected: &Selected<'_>| selected == key;
            keys.push(match (query.select.iter().position(same), key) {
                (Some(at), _) => cells[at].clone(),
                (None, Selected::Path(path)) => plan::access(run.plan, path)?.get(&group.first, &names, run.graph),
                (None, Selected::Aggregate { path, .. }) => {
                    return Err(KipError::new(
                        ErrorKind::Reference,
                        "an aggregate that sorts must stand in FIND as well",
                    )
                    .at(path.span));
                }
            });
        }
        rows.push((keys, tie, cells.iter().map(Datum::to_json).collect()));
    }
    rows.sort_by(|a, b| compare_keys(&a.0, &b.0, &descending).then_with(|| a.1.cmp(&b.1)));
    if let Some(at) = &after {
        let tie = |at: &At| {
            at.ids
                .first()
                .map_or(String::new(), |id| if let Id::Name(name) = id { name.clone() } else { String::new() })
        };
        rows.retain(|row| {
            compare_keys(&row.0, &at.keys, &descending).then_with(|| row.1.cmp(&tie(at))) == Ordering::Greater
        });
    }
    let more = limit.is_some_and(|limit| rows.len() > limit);
    rows.truncate(limit.unwrap_or(usize::MAX));
    too_long(rows.len(), run.budget)?;
    let next_cursor = rows
        .last()
        .filter(|_| more)
        .map(|(keys, tie, _)| cursor::token(&text, &At { keys: keys.clone(), ids: vec![Id::Name(tie.clone())] }));
    let result = rows.into_iter().map(|(_, _, cells)| shape(cells)).collect();
    Ok(Answer { result: Value::Array(result), next_cursor, ..Answer::default() })
}

/// Values as one text that equal values share, whatever the order of their members: 7 and 7.0 are one group
/// (R22).
fn group_key(values: &[Datum]) -> String {
    let mut key = String::new();
    for value in values {
        match value {
            Datum::Str(text) => canonical(&Value::from(text.as_str()), &mut key),
            other => canonical(&other.to_json(), &mut key),
        }
        key.push('\n');
    }
    key
}

fn canonical(value: &Value, key: &mut String) {
    match value {
        // A number is written as a whole one if it is one, so that no digit of a large one is lost.
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15);
            match whole {
                Some(float) => *key += &(float as i64).to_string(),
                None => *key += &number.to_string(),
            }
        }
        Value::Array(items) => {
            key.push('[');
            for item in items {
                canonical(item, key);
                key.push(',');
            }
            key.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            key.push('{');
            for (name, item) in sorted {
                *key += &Value::from(name.as_str()).to_string();
                key.push(':');
                canonical(item, key);
            }
            key.push('}');
        }
        other => *key += &other.to_string(),
    }
}

/// One aggregate under way; null counts for nothing.
struct Sum {
    function: Aggregate,
    seen: Option<HashSet<String>>,
    count: usize,
    numbers: usize,
    whole: Option<i64>,
    total: f64,
    best: Datum,
}

impl Sum {
    fn new(function: Aggregate, distinct: bool) -> Self {
        Self {
            function,
            seen: distinct.then(HashSet::new),
            count: 0,
            numbers: 0,
            whole: Some(0),
            total: 0.0,
            best: Datum::Null,
        }
    }

    fn add(&mut self, value: &Datum) {
        if value.is_null()
            || self.seen.as_mut().is_some_and(|seen| !seen.insert(group_key(std::slice::from_ref(value))))
        {
            return;
        }
        self.count += 1;
        if let Some(number) = value.as_f64() {
            self.numbers += 1;
            self.total += number;
            self.whole = match value {
                Datum::Int(int) => self.whole.and_then(|whole| whole.checked_add(*int)),
                _ => None,
            };
        }
        let better = match self.function {
            Aggregate::Min => self.best.is_null() || value.sort(&self.best) == Ordering::Less,
            Aggregate::Max => self.best.is_null() || value.sort(&self.best) == Ordering::Greater,
            _ => false,
        };
        if better {
            self.best = value.clone();
        }
    }

    fn value(&self) -> Datum {
        match self.function {
            Aggregate::Count => Datum::Int(self.count as i64),
            Aggregate::Sum => self.whole.map_or(Datum::Float(self.total), Datum::Int),
            Aggregate::Avg if self.numbers == 0 => Datum::Null,
            Aggregate::Avg => Datum::Float(self.total / self.numbers as f64),
            Aggregate::Min | Aggregate::Max => self.best.clone(),
        }
    }
}
