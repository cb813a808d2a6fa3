//! The merge of persons and things at night: a person stated that another name is of the same one, and the claims
//! under the other name become claims of that one.
//!
//! The other name stays, as a concept that only `same_as` links: a later statement that uses it is about the one (see
//! [`resolving`](super::resolving)), and it leaves with the statement that introduced it. A claim moves only if all who see it heard
//! that the two are one, and no claim moves if anyone but the teller of that spoke of the other name: then both remain, and
//! questions follow the link.

use std::collections::{BTreeMap, BTreeSet};

use nexus::NexusError;
use serde::Serialize;
use serde_json::{Value, json};
use store::Origin;

use super::draft::{Draft, Handle, LinkState};
use super::vocabulary::SAME_AS;
use super::writing::Statement;
use crate::memory::{Memory, StoredFact, rows};

/// The maximum number of pairs that one run looks at, and of statements whose claims it moves.
const PAIRS_MAX: usize = 100;
const MOVED_MAX: usize = 200;

/// Finds what is called by another name, with the facts that say so.
const SAME: &str = r#"
FIND(?name, ?one, ?f) WHERE { ?l (?name, "same_as", ?one) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active" && ?name.metadata.source == "formation") } LIMIT $limit"#;
/// Finds the active facts that mention a concept.
const MENTIONED_IN: &str =
    r#"FIND(?f) WHERE { (?f, "mentions", {id: $concept}) FILTER(?f.metadata.status == "active") } LIMIT 1000"#;
/// Finds the active claims of a concept, with the facts that state them.
const CLAIMED_OF: &str = r#"
FIND(?l, ?other, ?f) WHERE { ?l ({id: $concept}, ?predicate, ?other) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active") } LIMIT 1000"#;
/// Finds the active claims about a concept, with the facts that state them.
const CLAIMED_ABOUT: &str = r#"
FIND(?l, ?other, ?f) WHERE { ?l (?other, ?predicate, {id: $concept}) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active") } LIMIT 1000"#;
const LINK: &str = r#"FIND(?l) WHERE { ?l ({id: $subject}, $predicate, {id: $object}) }"#;
const STATES_NO_MORE: &str = r#"DELETE PROPOSITIONS ?x WHERE { ?x ({id: $fact}, "states", (id: $link)) }"#;
const MENTIONS_NO_MORE: &str = r#"DELETE PROPOSITIONS ?x WHERE { ?x ({id: $fact}, "mentions", {id: $concept}) }"#;

/// The outcome of a merge.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Merged {
    /// The names whose claims moved, with the concept that has them now and the number of statements.
    pub(crate) merged: Vec<Value>,
    /// The names that stay apart, because others spoke of them, too, or because some see a claim who did not hear that the two are one.
    pub(crate) kept_apart: Vec<String>,
}

/// Another name of a concept, and the statements of one teller that say so.
struct OtherName<'r> {
    name: &'r Value,
    one: &'r Value,
    teller: &'r str,
    facts: BTreeSet<&'r str>,
    heard: BTreeSet<String>,
}

/// A claim under another name, with the fact that states it.
struct Misplaced {
    link: Value,
    other: Value,
    fact: Value,
    is_subject: bool,
}

impl Memory {
    /// Returns what a merge finds, and the commands that carry it out. The caller has the turn.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn merges(&self, cause: &Origin) -> Result<(Merged, Vec<(String, Value)>), NexusError> {
        let (mut merged, mut commands) = (Merged::default(), Vec::new());
        if !self.has_claims(cause).await? {
            return Ok((merged, commands));
        }
        let found = self.ask(SAME, json!({"limit": PAIRS_MAX}), cause).await?;
        let mut moved = 0;
        for other in other_names(rows(&found)) {
            let name = other.name["name"].as_str().unwrap_or_default().to_owned();
            let claims = self.misplaced(&other, cause).await?;
            if claims.is_empty() || moved + claims.len() > MOVED_MAX {
                continue;
            }
            if !self.is_of_teller(&other, cause).await? || !claims.iter().all(|claim| is_seen_with(claim, &other)) {
                merged.kept_apart.push(name);
                continue;
            }
            moved += claims.len();
            let mut facts: BTreeSet<&str> = BTreeSet::new();
            for claim in &claims {
                commands.extend(self.moving(claim, &other, cause).await?);
                facts.insert(StoredFact::of(&claim.fact).id());
            }
            let concept = &other.name["id"];
            commands.extend(
                facts.iter().map(|fact| (MENTIONS_NO_MORE.to_owned(), json!({"fact": fact, "concept": concept}))),
            );
            merged.merged.push(json!({"name": name, "into": other.one["id"], "statements": facts.len()}));
        }
        Ok((merged, commands))
    }

    /// Returns `true` if the active statements that mention another name are all of the teller who introduced it.
    async fn is_of_teller(&self, other: &OtherName<'_>, cause: &Origin) -> Result<bool, NexusError> {
        let found = self.ask(MENTIONED_IN, json!({"concept": other.name["id"]}), cause).await?;
        Ok(rows(&found).iter().all(|fact| StoredFact::of(fact).author() == Some(other.teller)))
    }

    /// Returns the claims under another name, but for the one that it is another name.
    async fn misplaced(&self, other: &OtherName<'_>, cause: &Origin) -> Result<Vec<Misplaced>, NexusError> {
        let mut claims = Vec::new();
        for (find, is_subject) in [(CLAIMED_OF, true), (CLAIMED_ABOUT, false)] {
            let found = self.ask(find, json!({"concept": other.name["id"]}), cause).await?;
            let claimed =
                rows(&found).iter().filter(|row| row[0]["predicate"] != SAME_AS && row[1]["id"] != other.one["id"]);
            claims.extend(claimed.map(|row| Misplaced {
                link: row[0].clone(),
                other: row[1].clone(),
                fact: row[2].clone(),
                is_subject,
            }));
        }
        Ok(claims)
    }

    /// Returns the commands that write a claim at its new place, and remove what stated it at the former one. What nothing states any
    /// more, a sweep deletes.
    async fn moving(
        &self,
        claim: &Misplaced,
        other: &OtherName<'_>,
        cause: &Origin,
    ) -> Result<[(String, Value); 2], NexusError> {
        let fact = StoredFact::of(&claim.fact);
        let author = fact.author().unwrap_or_default();
        let audience = fact.audience(Some(author)).unwrap_or_default();
        let predicate = claim.link["predicate"].as_str().unwrap_or_default();
        let (one, end) = (Handle::known(other.one), Handle::known(&claim.other));
        let (subject, object) = if claim.is_subject { (&one, &end) } else { (&end, &one) };
        let ends = json!({"subject": subject.id(), "predicate": predicate, "object": object.id()});
        let there = self.ask(LINK, ends, cause).await?;
        let there = rows(&there).first().unwrap_or(&Value::Null);
        let said = fact.statement().unwrap_or_default();
        let mut draft = Draft::new(&format!("{} merged", fact.id()), &audience, (said, ""));
        let bag = &claim.link["metadata"]["_claims"][fact.id()];
        let number = |key: &str, of: &Value| of[key].as_f64().or_else(|| claim.link["metadata"][key].as_f64());
        let state = LinkState {
            scopes: [&claim.link, there]
                .into_iter()
                .flat_map(|link| texts(&link["metadata"]["access_scopes"]))
                .collect(),
            said_to: [&claim.link, there]
                .into_iter()
                .flat_map(|link| heard_of(link, author))
                .chain(audience.clone())
                .collect(),
            has_relation: there["attributes"]["relation"].is_string(),
            reliability: number("reliability", bag).unwrap_or_default(),
            confidence: number("confidence", &claim.link["metadata"])
                .into_iter()
                .chain(there["metadata"]["confidence"].as_f64())
                .fold(0.0, f64::max),
        };
        let relation = claim.link["attributes"]["relation"].as_str().filter(|_| !state.has_relation);
        let statement = Statement { fact, author, audience };
        let one = draft.mention(one.clone());
        draft.mention(end.clone());
        let (subject, object) = if claim.is_subject { (&one, &end) } else { (&end, &one) };
        draft.claim(&statement, (subject, predicate, object), relation, state, "?c");
        let written = (draft.whole(fact.id()), Value::Object(draft.parameters));
        let removed = (STATES_NO_MORE.to_owned(), json!({"fact": fact.id(), "link": claim.link["id"]}));
        Ok([written, removed])
    }
}

/// Returns the other names of concepts of the same type, by teller. A name with several concepts or several tellers is none.
fn other_names(found: &[Value]) -> Vec<OtherName<'_>> {
    let mut by_name: BTreeMap<&str, Option<OtherName<'_>>> = BTreeMap::new();
    for row in found {
        let (name, one, fact) = (&row[0], &row[1], StoredFact::of(&row[2]));
        let (Some(id), Some(teller)) = (name["id"].as_str(), fact.author()) else { continue };
        let heard = fact.audience(Some(teller)).unwrap_or_default();
        let known = by_name.entry(id).or_insert_with(|| {
            let is_alike = name["type"] == one["type"] && name["id"] != one["id"];
            is_alike.then(|| OtherName { name, one, teller, facts: BTreeSet::new(), heard: BTreeSet::new() })
        });
        match known {
            Some(other) if other.one["id"] == one["id"] && other.teller == teller => {
                other.facts.insert(fact.id());
                other.heard.extend(heard);
            }
            // Which of two it is, is not for a rule to say.
            ambiguous => *ambiguous = None,
        }
    }
    by_name.into_values().flatten().collect()
}

/// Returns `true` if all who see a claim heard that the two are one, and see that one.
fn is_seen_with(claim: &Misplaced, other: &OtherName<'_>) -> bool {
    let (seen_by, shown) = (&claim.link["metadata"]["access_scopes"], &other.one["metadata"]["access_scopes"]);
    let shown: Option<BTreeSet<String>> = shown.is_array().then(|| texts(shown).collect());
    seen_by.is_array()
        && texts(seen_by)
            .all(|who| other.heard.contains(&who) && shown.as_ref().is_none_or(|shown| shown.contains(&who)))
}

/// Returns those who heard a person state a link.
fn heard_of(link: &Value, author: &str) -> Vec<String> {
    let bags = link["metadata"]["_claims"].as_object().into_iter().flatten().map(|(_, bag)| bag);
    bags.filter(|bag| bag["author"] == author).flat_map(|bag| texts(&bag["heard_by"])).collect()
}

fn texts(list: &Value) -> impl Iterator<Item = String> + '_ {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned)
}
