//! Secrets in shared text (MISSION H4). They are found on every write route, and removed, sealed or refused.

use std::sync::Arc;

use kip::datum::{Datum, Properties};
use kip::exec::Change;
use kip::graph::{Record, SCOPES_KEY};
use kip::{ErrorKind, KipError};
use serde::{Deserialize, Serialize};
use store::secrets::{redacted, redacted_under};

use super::{OWNER_KEY, is_shared};
use crate::mind::Mind;

/// The policy for secrets in ordinary text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretPolicy {
    /// The secret is removed, and the caller receives a warning (the default).
    #[default]
    Redact,
    /// The write is refused.
    Reject,
    /// The secret is sealed as a resource to which the text then refers. A route that cannot seal removes it.
    Seal,
}

/// Removes the secrets from a write and returns warnings for the caller.
///
/// # Errors
/// `KIP_4003` if the policy refuses secrets; the caller then reverts the changes.
pub(crate) fn clean(mind: &mut Mind, changes: &mut [Change], policy: SecretPolicy) -> Result<Vec<String>, KipError> {
    let mut redactions = Vec::new();
    for change in changes {
        let Some(after) = &mut change.after else { continue };
        let (was, name) = match (&change.before, &*after) {
            (_, Record::Concept(concept)) if !is_shared(concept.kind) => continue,
            (before, Record::Concept(concept)) => (before.as_ref(), concept.name.to_string()),
            (before, Record::Link(link)) => (before.as_ref(), link.predicate.as_str().to_owned()),
        };
        if redacted(&name).is_some() {
            let error = KipError::new(ErrorKind::Execution, "a secret cannot be the name of what others read");
            return Err(error.code("KIP_4003"));
        }
        let keys = || after.look().attributes().pairs().iter().chain(after.look().metadata().pairs());
        if keys().any(|(key, _)| redacted(key.as_str()).is_some()) {
            let error = KipError::new(ErrorKind::Execution, "a secret cannot be the name of a key");
            return Err(error.code("KIP_4003"));
        }
        let mut found = Vec::new();
        let claims = claims_of(after, &mut found);
        let attributes = cleaned(after.look().attributes(), was.map(|was| was.look().attributes()), &mut found);
        let metadata = cleaned(after.look().metadata(), was.map(|was| was.look().metadata()), &mut found);
        if found.is_empty() {
            continue;
        }
        let what = found.iter().map(|(key, kind)| format!("a {kind} in \"{key}\"")).collect::<Vec<_>>().join(", ");
        if policy == SecretPolicy::Reject {
            let message = format!("{what} of {name}: a secret is not written into what others read");
            return Err(KipError::new(ErrorKind::Execution, message)
                .code("KIP_4003")
                .hint("keep it in the secure_body of a resource, and name that"));
        }
        redactions.push(format!("{what} of {name} was left out"));
        match after {
            Record::Concept(concept) => (concept.attributes, concept.metadata) = (attributes, metadata),
            Record::Link(link) => {
                (link.attributes, link.metadata) = (attributes, metadata);
                if let (Some(later), Some(claims)) = (&mut link.stamp.later, claims) {
                    Arc::make_mut(later).claims = claims;
                }
            }
        }
        mind.write().put(change.el, after.clone());
    }
    Ok(redactions)
}

/// Returns the metadata of a link by source, without secrets; `None` for a single source.
fn claims_of(record: &Record, found: &mut Vec<(String, &'static str)>) -> Option<Vec<(arcstr::ArcStr, Properties)>> {
    let Record::Link(link) = record else { return None };
    let claims = &link.stamp.later.as_ref()?.claims;
    Some(claims.iter().map(|(source, bag)| (source.clone(), cleaned(bag, None, found))).collect())
}

/// Returns a bag without the secrets in its changed members.
fn cleaned(bag: &Properties, was: Option<&Properties>, found: &mut Vec<(String, &'static str)>) -> Properties {
    let mut changed = Vec::new();
    for (key, value) in bag.pairs() {
        let kept = was.and_then(|was| was.get(*key)).is_some_and(|was| was.same(value));
        let is_whose = [OWNER_KEY, SCOPES_KEY].contains(&key.as_str());
        if kept || is_whose {
            continue;
        }
        let mut kinds = Vec::new();
        let clean = match value {
            Datum::Str(text) => redacted_under(key.as_str(), text).map(|(text, all)| {
                kinds = all;
                Datum::Str(text.into())
            }),
            Datum::Json(json) => {
                let mut json = (**json).clone();
                let mut under = serde_json::json!({ (key.as_str()): json });
                kinds = store::secrets::clean(&mut under);
                json = under[key.as_str()].take();
                (!kinds.is_empty()).then(|| Datum::Json(Arc::new(json)))
            }
            number @ (Datum::Int(_) | Datum::Float(_)) => {
                let digits = number.to_json().to_string();
                redacted_under(key.as_str(), &digits).map(|(text, all)| {
                    kinds = all;
                    Datum::Str(text.into())
                })
            }
            _ => None,
        };
        found.extend(kinds.into_iter().map(|kind| (key.as_str().to_owned(), kind)));
        changed.extend(clean.map(|clean| (*key, clean)));
    }
    if changed.is_empty() { bag.clone() } else { bag.merged(&Properties::new(changed)) }
}
