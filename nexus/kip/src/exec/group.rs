//! Aggregates: groups rows by the values of the plain expressions, and counts and sums in each group (R14).

use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::driver::Driver;
use super::find::{At, Id, compare_keys, query_text, shape, too_long};
use super::rows::Run;
use super::{Answer, Budget, cursor};
use crate::datum::Datum;
use crate::graph::ElementId;
use crate::lang::ast::{Aggregate, Find, Selected};
use crate::lang::{ErrorKind, KipError};
use crate::plan::{self, Access, Field, Step, Which};

/// One group: the values of its plain expressions, its aggregates, and its first row.
struct Group {
    plain: Vec<Datum>,
    sums: Vec<Sum>,
    first: Vec<u32>,
}

/// Groups the distinct solutions by the values of the plain expressions (R14). Without plain expressions, the answer
/// is one row, even without solutions (R42).
pub(super) fn grouped(query: &Find<'_>, run: &Run<'_>, limit: Option<usize>) -> Result<Answer, KipError> {
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
        driver.solve(run, false, ElementId::NONE, &mut |rows, _| {
            let names = run.names();
            for row in rows.iter() {
                run.budget.hop(1)?;
                if !distinct {
                    let answers =
                        row.iter().zip(&run.plan.slots).filter(|(_, slot)| slot.answers && slot.name.is_some());
                    if !seen.insert(answers.map(|(value, _)| *value).collect()) {
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
                    match index.entry(group_key(&values)) {
                        Entry::Occupied(known) => *known.get(),
                        Entry::Vacant(vacant) => {
                            run.budget.hold_text(vacant.key().len())?;
                            groups.push(Group { plain: values, sums: fresh(), first: row.to_vec() });
                            *vacant.insert(groups.len() - 1)
                        }
                    }
                };
                for (sum, (function, _, access)) in groups[at].sums.iter_mut().zip(&sums) {
                    // A whole element is only counted; its number identifies it.
                    let value = match (&access.field, row[access.slot]) {
                        (_, 0) => Datum::Null,
                        (Field::Whole, id) if !access.holds_name => match function {
                            Aggregate::Count => Datum::Int(id.into()),
                            _ => Datum::Null,
                        },
                        _ => access.get(row, &names, run.graph),
                    };
                    sum.add(&value, run.budget)?;
                }
            }
            run.budget.check_rows(seen.len() + groups.len(), run.plan.slots.len())?;
            Ok(true)
        })?;
    }
    if groups.is_empty() && plain.is_empty() {
        groups.push(Group { plain: Vec::new(), sums: fresh(), first: vec![0; run.plan.slots.len()] });
    }
    sorted_groups(query, run, groups, limit)
}

/// Returns the number of concepts of a type if the query asks only for it.
fn counted(query: &Find<'_>, run: &Run<'_>, plain: &[Access], sums: &[(Aggregate, bool, Access)]) -> Option<usize> {
    let [stage] = run.plan.root.stages.as_slice() else { return None };
    let Step::Concept { slot, bound: false, which: Which::Type(kind), .. } = &stage.step else { return None };
    let all = |(function, _, access): &(Aggregate, bool, Access)| {
        *function == Aggregate::Count
            && access.slot == *slot
            && matches!(access.field, Field::Whole | Field::Id | Field::Name)
    };
    let fits = plain.is_empty() && query.order.is_empty() && sums.iter().all(all);
    // Names are unique within a type, so a distinct count of names is the same number.
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
    let mut rows: Vec<(Vec<Datum>, String, Vec<Datum>)> = Vec::with_capacity(groups.len());
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
        rows.push((keys, tie, cells));
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
    let shown = rows.iter().map(|(_, _, cells)| {
        let shown = shape(cells.iter().map(Datum::to_json).collect());
        run.budget.answered(&shown).map(|()| shown)
    });
    let result = shown.collect::<Result<_, _>>()?;
    Ok(Answer { result: Value::Array(result), next_cursor, ..Answer::default() })
}

/// Returns a text key that is the same for equal values, whatever the order of their members: 7 and 7.0 form one
/// group (R22).
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
        // Whole numbers are written as integers, so that a large one loses no digits.
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

/// One aggregate in progress; null values are not counted.
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

    fn add(&mut self, value: &Datum, budget: &Budget) -> Result<(), KipError> {
        if value.is_null() {
            return Ok(());
        }
        if let Some(seen) = &mut self.seen {
            let key = group_key(std::slice::from_ref(value));
            if seen.contains(&key) {
                return Ok(());
            }
            budget.hold_text(key.len())?;
            seen.insert(key);
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
        Ok(())
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
