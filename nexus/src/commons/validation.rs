//! The form of records and resources in the commons (MISSION R1, H4). It is checked on every write route, because
//! readers rely on it.

use kip::datum::{Datum, Properties};
use kip::exec::Change;
use kip::graph::{Concept, Record};
use kip::{ErrorKind, KipError};
use serde_json::Value;

/// The valid types of a record.
pub const RECORD_TYPES: [&str; 6] = ["user_profile", "strategy", "tool", "usecase", "definition", "plan"];
/// The statuses of a record: `active`, or the reason why the record is not used.
const RECORD_STATUSES: [&str; 5] = ["active", "deprecated", "retracted", "quarantined", "merged"];
const FORMS: [&str; 4] = ["note", "trace", "pattern", "sop"];
/// The member that holds a secret to be sealed. Only the sealing route accepts it; it is never stored in a graph.
const SECRET_KEY: &str = "secure_body";

/// Checks the members of a record or a resource that a change writes.
///
/// # Errors
/// `KIP_2002`, naming the member and its valid form; `KIP_4003` for a secret to be sealed.
pub(super) fn check_shape(change: &Change) -> Result<(), KipError> {
    let Some(Record::Concept(after)) = &change.after else { return Ok(()) };
    let before = match &change.before {
        Some(Record::Concept(before)) => Some(before),
        _ => None,
    };
    let (attributes, metadata) =
        (written(after, before, |concept| &concept.attributes), written(after, before, |concept| &concept.metadata));
    let is_kept_by_shape = ["Knowledge", "Resource"].contains(&after.kind.as_str());
    if is_kept_by_shape && attributes.iter().chain(&metadata).any(|(key, value)| holds_secret(key, value)) {
        let error = KipError::new(ErrorKind::Execution, format!("\"{SECRET_KEY}\" is kept in no graph"));
        return Err(error.code("KIP_4003").hint("POST /api/resource seals it"));
    }
    let found = match after.kind.as_str() {
        "Knowledge" => {
            attributes.iter().find_map(fault_of_record).or_else(|| metadata.iter().find_map(fault_of_metadata))
        }
        "Resource" => attributes.iter().find_map(fault_of_resource),
        _ => None,
    };
    match found {
        None => Ok(()),
        Some((key, what)) => {
            let message = format!("\"{key}\" of {} \"{}\" is {what}", after.kind.as_str(), after.name);
            Err(KipError::new(ErrorKind::Schema, message).code("KIP_2002"))
        }
    }
}

/// Returns the members that a write sets or changes.
fn written<'c>(
    after: &'c Concept,
    before: Option<&'c Concept>,
    of: fn(&Concept) -> &Properties,
) -> Vec<(&'c str, Value)> {
    let is_new = |(key, value): &&(kip::datum::Sym, Datum)| {
        !value.is_null() && before.and_then(|before| of(before).get(*key)).is_none_or(|was| !was.same(value))
    };
    of(after).pairs().iter().filter(is_new).map(|(key, value)| (key.as_str(), value.to_json())).collect()
}

type Fault = (String, String);

fn fault_of_record((key, value): &(&str, Value)) -> Option<Fault> {
    let is_text = |value: &Value| value.is_string();
    let texts = || value.as_array().is_some_and(|items| items.iter().all(is_text));
    let fault = |what: &str| Some(((*key).to_owned(), what.to_owned()));
    match *key {
        "task" | "content" if !is_text(value) => fault("a text"),
        "context" | "resource_ids" if !texts() => fault("a list of texts"),
        "tags" if !value.is_object() => fault("an object"),
        "types" if !texts() || !is_each_of(value, &RECORD_TYPES) => {
            fault(&format!("a list of {}", RECORD_TYPES.join(", ")))
        }
        "form" if !is_one_of(value, &FORMS) => fault(&format!("one of {}", FORMS.join(", "))),
        _ => None,
    }
}

fn fault_of_metadata((key, value): &(&str, Value)) -> Option<Fault> {
    let within = |least: f64, most: f64| value.as_f64().is_some_and(|number| (least..=most).contains(&number));
    let fault = |what: &str| Some(((*key).to_owned(), what.to_owned()));
    match *key {
        "status" if !is_one_of(value, &RECORD_STATUSES) => fault(&format!("one of {}", RECORD_STATUSES.join(", "))),
        "score" if !within(1.0, 5.0) => fault("a number from 1 to 5"),
        "confidence" if !within(0.0, 1.0) => fault("a number from 0 to 1"),
        _ => None,
    }
}

fn fault_of_resource((key, value): &(&str, Value)) -> Option<Fault> {
    let is_text = ["title", "body", "content_type"].contains(key);
    (is_text && !value.is_string()).then(|| ((*key).to_owned(), "a text".to_owned()))
}

fn is_one_of(value: &Value, known: &[&str]) -> bool {
    value.as_str().is_some_and(|value| known.contains(&value))
}

fn is_each_of(value: &Value, known: &[&str]) -> bool {
    value.as_array().is_some_and(|items| items.iter().all(|item| is_one_of(item, known)))
}

/// Returns `true` if a member at any depth is a secret to be sealed.
fn holds_secret(key: &str, value: &Value) -> bool {
    key.eq_ignore_ascii_case(SECRET_KEY)
        || match value {
            Value::Object(members) => members.iter().any(|(key, value)| holds_secret(key, value)),
            Value::Array(items) => items.iter().any(|item| holds_secret("", item)),
            _ => false,
        }
}
