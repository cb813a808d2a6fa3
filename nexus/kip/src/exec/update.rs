//! UPDATE: sets values computed from each matched element itself (superset 9).

use serde_json::{Value, json};

use super::draft::{Draft, check_metadata, claim};
use super::{Options, delete::targets, limit_of};
use crate::datum::{Datum, Properties, Sym};
use crate::graph::{ElementId, Record};
use crate::lang::ast::{Compute, Function, Text, Update};
use crate::lang::{ErrorKind, KipError};
use crate::plan::Field;

/// Runs a bound UPDATE on a draft and returns `{updated, matched}`.
///
/// # Errors
/// Any [`KipError`]; the caller must then undo the draft.
pub(super) fn update(update: &Update<'_>, draft: &mut Draft<'_>, options: &Options<'_>) -> Result<Value, KipError> {
    check_metadata(update.metadata.iter().map(|(key, _)| &**key)).map_err(|error| error.at(update.target.1))?;
    let limit = limit_of(update.limit.as_ref())?.unwrap_or(usize::MAX);
    let targets = targets(update.target, &update.clauses, None, draft, options)?;
    let (mut updated, mut matched) = (0, 0);
    for el in targets.into_iter().take(limit) {
        matched += 1;
        if draft.is_protected(el) && !draft.privileged {
            let what = format!("{} is part of the core, which UPDATE leaves alone", draft.graph.ids().show(el));
            return Err(KipError::new(ErrorKind::Immutable, what)
                .at(update.target.1)
                .hint("UPSERT sets its attributes by name"));
        }
        let attributes = computed(&update.attributes, el, draft)?;
        let metadata = computed(&update.metadata, el, draft)?;
        updated += usize::from(draft.change(el, |record| {
            let link = matches!(record, Record::Link(_));
            let (own, known, stamp) = record.parts();
            if link {
                claim(known, stamp, &metadata);
            }
            *own = own.merged(&attributes);
            *known = known.merged(&metadata);
        }));
    }
    Ok(json!({"updated": updated, "matched": matched}))
}

/// Returns the values for one element. A key with an operand that is null or not a number is left out.
fn computed(sets: &[(Text<'_>, Compute<'_>)], el: ElementId, draft: &Draft<'_>) -> Result<Properties, KipError> {
    let mut pairs = Vec::with_capacity(sets.len());
    for (key, compute) in sets {
        if let Some(value) = value(compute, el, draft)? {
            pairs.push((Sym::new(key), value));
        }
    }
    Ok(Properties::new(pairs))
}

fn value(compute: &Compute<'_>, el: ElementId, draft: &Draft<'_>) -> Result<Option<Datum>, KipError> {
    match compute {
        Compute::Value(lit) => Ok(Some(lit.to_datum())),
        Compute::Path(path) => {
            let field = Field::of(path).ok_or_else(|| {
                KipError::new(ErrorKind::Syntax, "only attributes and metadata have something inside").at(path.span)
            })?;
            let (mut found, ids) = (Datum::Null, draft.graph.ids());
            draft.graph.look(el, &mut |look| found = field.of_element(el, look, &ids));
            // A missing value sets nothing.
            Ok((!found.is_null()).then_some(found))
        }
        Compute::Call(function, operands) => {
            let values: Vec<Option<Datum>> =
                operands.iter().map(|operand| value(operand, el, draft)).collect::<Result<_, _>>()?;
            if *function == Function::Coalesce {
                return Ok(values.into_iter().flatten().find(|value| !value.is_null()));
            }
            let Some(values) = values.into_iter().collect::<Option<Vec<Datum>>>() else { return Ok(None) };
            let Some(numbers) = values.iter().map(Datum::as_f64).collect::<Option<Vec<f64>>>() else { return Ok(None) };
            let whole = |exact: fn(i64, i64) -> Option<i64>| match (&values[0], &values[1]) {
                (Datum::Int(a), Datum::Int(b)) => exact(*a, *b).map(Datum::Int),
                _ => None,
            };
            let result = match function {
                Function::Add => whole(i64::checked_add).unwrap_or(Datum::Float(numbers[0] + numbers[1])),
                Function::Mul => whole(i64::checked_mul).unwrap_or(Datum::Float(numbers[0] * numbers[1])),
                Function::Clamp if numbers[0] < numbers[1] => values[1].clone(),
                Function::Clamp if numbers[0] > numbers[2] => values[2].clone(),
                Function::Clamp | Function::Coalesce => values[0].clone(),
            };
            // An infinite number is not a valid JSON number.
            Ok(result.as_f64().is_some_and(f64::is_finite).then_some(result))
        }
    }
}
