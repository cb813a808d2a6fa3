//! The check of claims at night: a claim is seen only by those who heard one of the statements that still state it.

use std::collections::{BTreeMap, BTreeSet};

use nexus::NexusError;
use serde::Serialize;
use serde_json::{Value, json};
use store::Origin;

use crate::memory::{Memory, StoredFact, rows};

/// The maximum number of claims of a predicate that are checked.
const CLAIMS_MAX: usize = 5_000;
/// The maximum number of claims that one run narrows.
const NARROWED_MAX: usize = 200;

/// Finds the active claims of a predicate with the facts that state them.
const CLAIMED: &str = r#"
FIND(?l, ?f) WHERE { ?l (?s, $predicate, ?o) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active" && IS_NOT_NULL(?l.metadata.heard_by)) } LIMIT $limit"#;
const NARROW: &str = r#"UPDATE ?l SET METADATA { access_scopes: $scopes } WHERE { ?l (id: $link) }"#;

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Checked {
    /// The number of claims that were checked.
    pub(crate) claims: usize,
    /// The ids of the claims that were seen by people who heard none of their statements, and are not any more.
    pub(crate) narrowed: Vec<String>,
    /// The predicates with more claims than are checked.
    pub(crate) unchecked: Vec<String>,
}

impl Memory {
    /// Returns what a check finds, and the commands that mend it.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn checked(&self, cause: &Origin) -> Result<(Checked, Vec<(&'static str, Value)>), NexusError> {
        let (mut checked, mut commands) = (Checked::default(), Vec::new());
        if !self.has_claims(cause).await? {
            return Ok((checked, commands));
        }
        for predicate in self.predicates_of_claims(cause).await? {
            let found = self.ask(CLAIMED, json!({"predicate": predicate, "limit": CLAIMS_MAX}), cause).await?;
            // Of more, some would be checked by a part of their statements.
            if rows(&found).len() >= CLAIMS_MAX {
                checked.unchecked.push(predicate);
                continue;
            }
            let mut claims: BTreeMap<&str, (&Value, Option<BTreeSet<String>>)> = BTreeMap::new();
            for row in rows(&found) {
                let (Some(id), fact) = (row[0]["id"].as_str(), StoredFact::of(&row[1])) else { continue };
                let (_, heard) = claims.entry(id).or_insert((&row[0], Some(BTreeSet::new())));
                // What a person may tell everybody, and what nobody stated, is not narrowed.
                let own = fact.audience(fact.author()).filter(|_| !fact.is_for_all());
                *heard = heard.take().zip(own).map(|(heard, own)| &heard | &own);
            }
            checked.claims += claims.len();
            for (id, (link, heard)) in claims {
                let Some(heard) = heard else { continue };
                let scopes = link["metadata"]["access_scopes"].as_array().into_iter().flatten();
                let scopes: BTreeSet<String> = scopes.filter_map(Value::as_str).map(str::to_owned).collect();
                if !scopes.is_subset(&heard) && checked.narrowed.len() < NARROWED_MAX {
                    let kept: BTreeSet<&String> = scopes.intersection(&heard).collect();
                    let scopes = if kept.is_empty() { json!(heard) } else { json!(kept) };
                    commands.push((NARROW, json!({"link": id, "scopes": scopes})));
                    checked.narrowed.push(id.to_owned());
                }
            }
        }
        Ok((checked, commands))
    }
}
