//! Ownership of elements of the commons, and the rights of other principals on them (MISSION R2).

use std::sync::Arc;

use kip::datum::{Datum, Properties, Sym};
use kip::exec::Change;
use kip::graph::{Direction, ElementRef, GraphRead, Record, SCOPES_KEY};
use kip::{ErrorKind, KipError};
use serde_json::{Value, json};
use store::principal::{Principal, Role};

use super::validation::check_shape;
use super::{OWNER_KEY, is_shared};
use crate::command::WriteAuthority;

/// Attributes that count the feedback of principals; no request sets them directly.
const COUNTED: [&str; 3] = ["helpful", "harmful", "validated_by"];
/// The key that marks a resource with a sealed part; [`SEAL_KEY`] holds the seal.
pub const HAS_SECRET_KEY: &str = "has_secure_body";
/// The key of the seal; see [`HAS_SECRET_KEY`].
pub const SEAL_KEY: &str = "seal";
/// Attributes that change when a principal gives feedback on a record.
const JUDGED: [&str; 5] = ["helpful", "harmful", "confidence", "needs_evolution", "validated_by"];

/// Sets the owner of a new element and, unless the element has its own scopes, makes it private to the owner.
pub(super) fn own_up(by: &Principal, bag: &Properties) -> Properties {
    if by.may(Role::Operator) {
        return bag.clone();
    }
    let id = by.id.0.as_ref();
    let said = [(OWNER_KEY, Datum::Str(id.into())), (SCOPES_KEY, Datum::Json(Arc::new(json!([id]))))];
    Properties::new(said.into_iter().map(|(key, value)| (Sym::new(key), value)).collect()).merged(bag)
}

/// Checks that a principal may make these changes of the commons; `changes` are already applied (MISSION R2). Only
/// the owner changes or deletes an element. No principal adds a scope that it does not have, and no element is
/// removed while others link to it. Every reader may give feedback that is counted, and no one sets a count directly.
///
/// # Errors
/// `KIP_4003`, naming the change that is not allowed.
pub(crate) fn check_rights(
    commons: &dyn GraphRead,
    changes: &[Change],
    by: &Principal,
    right: WriteAuthority,
) -> Result<(), KipError> {
    let refuse = |what: String| Err(KipError::new(ErrorKind::Execution, what).code("KIP_4003"));
    let taken = |what: String| Err(KipError::new(ErrorKind::Execution, what).code("KIP_3005"));
    let operator = by.may(Role::Operator);
    for change @ Change { el, before, after } in changes {
        match (before, after) {
            (None, Some(Record::Concept(new))) if commons.concept(new.kind, &new.name) != Some(*el) => {
                return taken(format!("the name \"{}\" is taken in the commons", new.name));
            }
            (None, Some(Record::Link(new))) if commons.link(new.subject, new.predicate, new.object) != Some(*el) => {
                return taken(format!("\"{}\" is said of these two already", new.predicate.as_str()));
            }
            _ => {}
        }
        check_shape(change)?;
        let name = before.as_ref().or(after.as_ref()).map(named).unwrap_or_default();
        if right != WriteAuthority::Seal {
            check_seal(before.as_ref(), after.as_ref())?;
        }
        let judges = right == WriteAuthority::Judge && is_judgement(before.as_ref(), after.as_ref());
        if let Some(before) = before
            && !operator
            && !judges
            && !is_owner(commons, changes, before, by)
            && !(after.is_none() && loses_an_own_end(commons, changes, before, by))
        {
            return refuse(format!("{name} belongs to somebody else"));
        }
        if after.is_none() && [Direction::Out, Direction::In].iter().any(|way| commons.degree(*el, *way, None) > 0) {
            return refuse(format!("{name} still has links of others"));
        }
        if operator || judges {
            continue;
        }
        let Some(after) = after else { continue };
        if let Record::Concept(concept) = after
            && !is_shared(concept.kind)
        {
            let kind = concept.kind.as_str();
            return refuse(format!("a {kind} is not kept in the commons by others than operators"));
        }
        let had: Vec<String> = before.as_ref().map(scopes_of).unwrap_or_default();
        let mut new = scopes_of(after).into_iter().filter(|scope| !had.contains(scope));
        if let Some(scope) = new.find(|scope| !by.scopes.iter().any(|own| *own.0 == **scope)) {
            return refuse(format!("{name} cannot be shown to {scope}, which is no scope of {}", by.id));
        }
        if !is_owner(commons, changes, after, by) {
            return refuse(format!("{name} cannot be given to somebody else"));
        }
        let by_hand =
            |key: &&&str| before.as_ref().map_or_else(|| json!(0), |before| count(before, key)) != count(after, key);
        if right != WriteAuthority::Judge
            && let Some(key) = COUNTED.iter().find(by_hand)
        {
            return refuse(format!("\"{key}\" of {name} is counted as people say so, and cannot be set"));
        }
    }
    Ok(())
}

/// Returns `true` for a link with an end that its owner removes. The owner of an element may remove it whatever links
/// to it, because links of others may be hidden from the owner.
fn loses_an_own_end(commons: &dyn GraphRead, changes: &[Change], link: &Record, by: &Principal) -> bool {
    let Record::Link(link) = link else { return false };
    changes.iter().any(|Change { el, before, after }| {
        let is_end = *el == link.subject || *el == link.object;
        is_end && after.is_none() && before.as_ref().is_some_and(|end| is_owner(commons, changes, end, by))
    })
}

/// Returns the value of a count; 0 if there is none.
fn count(record: &Record, key: &str) -> Value {
    record.look().metadata().named(key).map(Datum::to_json).filter(|count| !count.is_null()).unwrap_or_else(|| json!(0))
}

/// Returns the display name of an element for a message, without its number.
fn named(record: &Record) -> String {
    match record {
        Record::Concept(concept) => format!("{} \"{}\"", concept.kind.as_str(), concept.name),
        Record::Link(link) => format!("a \"{}\"", link.predicate.as_str()),
    }
}

/// Checks that the sealed part of an element and its readers do not change, unless the element is removed.
///
/// # Errors
/// `KIP_4003` if the sealed part could no longer be opened.
pub(crate) fn check_seal(before: Option<&Record>, after: Option<&Record>) -> Result<(), KipError> {
    if after.is_none() || seal_of(before) == seal_of(after) {
        return Ok(());
    }
    let name = before.or(after).map(named).unwrap_or_default();
    let message = format!("what is sealed of {name}, and for whom, is changed where it is sealed");
    Err(KipError::new(ErrorKind::Execution, message).code("KIP_4003"))
}

/// Returns the members that describe the sealed part of a resource. Only the sealing code sets them.
fn seal_of(record: Option<&Record>) -> Option<[Value; 3]> {
    let Some(Record::Concept(concept)) = record else { return None };
    let value = |bag: &Properties, key: &str| bag.named(key).map(Datum::to_json).unwrap_or_default();
    let (has, seal) = (value(&concept.attributes, HAS_SECRET_KEY), value(&concept.metadata, SEAL_KEY));
    let is_sealed = concept.kind.as_str() == "Resource" && (!seal.is_null() || has == true);
    is_sealed.then(|| [has, seal, value(&concept.metadata, OWNER_KEY)])
}

/// Returns `true` if only the feedback on an element changed.
fn is_judgement(before: Option<&Record>, after: Option<&Record>) -> bool {
    let (Some(before), Some(after)) = (before, after) else { return false };
    let (before, after) = (before.look(), after.look());
    before.attributes() == after.attributes() && before.metadata().without(&JUDGED) == after.metadata().without(&JUDGED)
}

/// Returns `true` if the principal owns an element. The metadata names the owner; a link without an owner belongs to
/// the owner of its subject before the changes.
fn is_owner(commons: &dyn GraphRead, changes: &[Change], record: &Record, by: &Principal) -> bool {
    let owner = |look: ElementRef<'_>| look.metadata().named(OWNER_KEY).map(Datum::to_json);
    let owns = |owner: Value| owner.as_str().is_some_and(|owner| by.answers_for(owner));
    match (owner(record.look()), record) {
        (Some(said), _) => owns(said),
        (None, Record::Concept(_)) => false,
        (None, Record::Link(link)) => {
            let before = changes.iter().find(|change| change.el == link.subject).map(|change| change.before.as_ref());
            let mut said = before.flatten().and_then(|before| owner(before.look()));
            if before.is_none() {
                commons.look(link.subject, &mut |look| said = owner(look));
            }
            said.is_some_and(owns)
        }
    }
}

fn scopes_of(record: &Record) -> Vec<String> {
    match record.look().metadata().named(SCOPES_KEY) {
        Some(Datum::Str(scope)) => vec![scope.to_string()],
        Some(Datum::Json(listed)) => {
            listed.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}
