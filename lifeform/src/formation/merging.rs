//! The merge of people at night: a person stated that another name is of the same one, and the claims under the other name become
//! claims of that one.
//!
//! The other name stays, as a concept that only `same_as` links: a later statement that uses it is about the one (see
//! [`resolving`](super::resolving)), and it leaves with the statement that introduced it. A claim moves only if all who see it heard
//! that the two are one, and no claim moves if anyone but the teller of that spoke of the other name: then both remain, and
//! questions follow the link.

use std::collections::{BTreeMap, BTreeSet};

use nexus::NexusError;
use serde_json::{Value, json};
use store::Origin;

use super::draft::{Draft, Handle};
use super::vocabulary::SAME_AS;
use super::writing::Statement;
use crate::memory::{Memory, StoredFact, rows};

/// The maximum number of statements of other names that are looked at. With more, a name with two owners might look like one.
const NAMES_MAX: usize = 2_000;
/// The maximum number of claims that one run moves: each makes about five entries in the journal, and 500 are undone together.
pub(crate) const MOVED_MAX: usize = 80;

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
/// Removes that a fact states a claim.
pub(crate) const STATES_NO_MORE: &str = r#"DELETE PROPOSITIONS ?x WHERE { ?x ({id: $fact}, "states", (id: $link)) }"#;
/// Removes that a fact mentions a concept.
pub(crate) const MENTIONS_NO_MORE: &str =
    r#"DELETE PROPOSITIONS ?x WHERE { ?x ({id: $fact}, "mentions", {id: $concept}) }"#;

/// Another name of a person, with what is to be done about it.
pub(crate) struct OtherName {
    /// The concept of the name.
    pub(crate) name: Value,
    /// The person.
    pub(crate) one: Value,
    teller: String,
    heard: BTreeSet<String>,
    /// The ids of the facts that say that the two are one.
    facts: BTreeSet<String>,
    /// The claims under the name, in the order of their statements.
    pub(crate) claims: Vec<Misplaced>,
    /// `true` if others spoke of the name, or see a claim and did not hear that the two are one.
    pub(crate) is_apart: bool,
}

/// A claim under another name, with a fact that states it.
pub(crate) struct Misplaced {
    link: Value,
    other: Value,
    fact: Value,
    is_subject: bool,
}

impl Misplaced {
    /// Returns the parameters of [`STATES_NO_MORE`] for the former place.
    pub(crate) fn former(&self) -> Value {
        json!({"fact": StoredFact::of(&self.fact).id(), "link": self.link["id"]})
    }
}

impl Memory {
    /// Returns the other names of people with the claims under them. The caller has the turn.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn other_names(&self, cause: &Origin) -> Result<Vec<OtherName>, NexusError> {
        if !self.has_claims(cause).await? {
            return Ok(Vec::new());
        }
        let found = self.ask(SAME, json!({"limit": NAMES_MAX}), cause).await?;
        if rows(&found).len() >= NAMES_MAX {
            tracing::warn!("too many other names of people to tell which are of one person: none is merged");
            return Ok(Vec::new());
        }
        let mut names = names_of(rows(&found));
        let circles: BTreeSet<String> = in_circles(&names);
        for other in &mut names {
            other.claims = self.misplaced(other, cause).await?;
            let mentioned = self.ask(MENTIONED_IN, json!({"concept": other.name["id"]}), cause).await?;
            let is_own = |fact: &Value| StoredFact::of(fact).author() == Some(other.teller.as_str());
            let is_in_circle = other.name["id"].as_str().is_some_and(|id| circles.contains(id));
            let may_move = !is_in_circle
                && rows(&mentioned).iter().all(is_own)
                && other.claims.iter().all(|claim| is_seen_with(claim, other));
            other.is_apart = !may_move && !other.claims.is_empty();
        }
        Ok(names)
    }

    /// Returns the claims under another name, but for the one that it is another name.
    async fn misplaced(&self, other: &OtherName, cause: &Origin) -> Result<Vec<Misplaced>, NexusError> {
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
        claims.sort_by_key(|claim| StoredFact::of(&claim.fact).stated_at());
        Ok(claims)
    }

    /// Returns the command that writes a claim at its new place, with its parameters; `None` for a claim that a later statement has
    /// ended there. What nothing states any more at the former place, a sweep deletes.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn moved(
        &self,
        claim: &Misplaced,
        other: &OtherName,
        cause: &Origin,
    ) -> Result<Option<(String, Value)>, NexusError> {
        let fact = StoredFact::of(&claim.fact);
        let author = fact.author().unwrap_or_default();
        let predicate = claim.link["predicate"].as_str().unwrap_or_default();
        let (one, end) = (Handle::known(&other.one), Handle::known(&claim.other));
        let (subject, object) = if claim.is_subject { (&one, &end) } else { (&end, &one) };
        let ends = json!({"subject": subject.id(), "predicate": predicate, "object": object.id()});
        let there = self.ask(LINK, ends, cause).await?;
        let there = rows(&there).first().unwrap_or(&Value::Null);
        if there.is_object() && there["metadata"]["status"] != "active" {
            return Ok(None);
        }
        let audience = fact.audience(Some(author)).unwrap_or_default();
        let statement = Statement { fact, author, audience };
        if self.is_ended(&statement, predicate, (subject, object), cause).await? {
            return Ok(None);
        }
        let bag = &claim.link["metadata"]["_claims"][fact.id()];
        let reliability = bag["reliability"].as_f64().or_else(|| claim.link["metadata"]["reliability"].as_f64());
        let state = self.link(&statement, predicate, reliability.unwrap_or_default(), (subject, object), cause).await?;
        let outdated = self.outdated(&statement, predicate, (subject, object), cause).await?;
        let said = fact.statement().unwrap_or_default();
        let mut draft = Draft::new(&format!("{} merged", fact.id()), &statement.audience, (said, ""));
        draft.mention(one.clone());
        draft.mention(end.clone());
        let relation = claim.link["attributes"]["relation"].as_str().filter(|_| !state.has_relation);
        draft.claim(&statement, (subject, predicate, object), relation, state, "?c");
        let until = self.now().strftime("%Y-%m-%d").to_string();
        for link in outdated {
            draft.outdate(&link, fact.id(), &until);
        }
        Ok(Some((draft.whole(fact.id()), Value::Object(draft.parameters))))
    }

    /// Returns the parameters of [`MENTIONS_NO_MORE`] for the facts that speak of the person now: they mention it, and state nothing of
    /// the other name any more.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn renamed(&self, other: &OtherName, cause: &Origin) -> Result<Vec<Value>, NexusError> {
        /// Finds the active facts that mention both of two concepts.
        const BOTH: &str = r#"
FIND(?f.id) WHERE { (?f, "mentions", {id: $concept}) (?f, "mentions", {id: $one}) FILTER(?f.metadata.status == "active") } LIMIT 1000"#;
        let left = self.misplaced(other, cause).await?;
        let states: BTreeSet<&str> = left.iter().map(|claim| StoredFact::of(&claim.fact).id()).collect();
        let concept = &other.name["id"];
        let both = self.ask(BOTH, json!({"concept": concept, "one": other.one["id"]}), cause).await?;
        let over = rows(&both).iter().filter_map(Value::as_str);
        let over = over.filter(|fact| !states.contains(fact) && !other.facts.contains(*fact));
        Ok(over.map(|fact| json!({"fact": fact, "concept": concept})).collect())
    }
}

/// Returns the other names, each with the one person that one teller names. A name with several persons or tellers is left out:
/// no rule can say whom it names.
fn names_of(found: &[Value]) -> Vec<OtherName> {
    let mut by_name: BTreeMap<&str, Option<OtherName>> = BTreeMap::new();
    for row in found {
        let (name, one, fact) = (&row[0], &row[1], StoredFact::of(&row[2]));
        let (Some(id), Some(teller)) = (name["id"].as_str(), fact.author()) else { continue };
        let known = by_name.entry(id).or_insert_with(|| {
            let is_alike = name["type"] == one["type"] && name["id"] != one["id"];
            is_alike.then(|| OtherName {
                name: name.clone(),
                one: one.clone(),
                teller: teller.to_owned(),
                heard: BTreeSet::new(),
                facts: BTreeSet::new(),
                claims: Vec::new(),
                is_apart: false,
            })
        });
        match known {
            Some(other) if other.one["id"] == one["id"] && other.teller == teller => {
                other.facts.insert(fact.id().to_owned());
                other.heard.extend(fact.audience(Some(teller)).unwrap_or_default());
            }
            ambiguous => *ambiguous = None,
        }
    }
    by_name.into_values().flatten().collect()
}

/// Returns the ids of the names that name each other in a circle: none of them is the person.
fn in_circles(names: &[OtherName]) -> BTreeSet<String> {
    let id = |concept: &Value| concept["id"].as_str().unwrap_or_default().to_owned();
    let ones: BTreeMap<String, String> = names.iter().map(|other| (id(&other.name), id(&other.one))).collect();
    let is_in_one = |name: &&String| {
        let mut at = *name;
        for _ in 0..ones.len() {
            match ones.get(at) {
                Some(one) if one == *name => return true,
                Some(one) => at = one,
                None => return false,
            }
        }
        false
    };
    ones.keys().filter(is_in_one).cloned().collect()
}

/// Returns `true` if all who see a claim heard that the two are one, and see that one.
fn is_seen_with(claim: &Misplaced, other: &OtherName) -> bool {
    let (seen_by, shown) = (&claim.link["metadata"]["access_scopes"], &other.one["metadata"]["access_scopes"]);
    let shown: Option<BTreeSet<&str>> = shown.is_array().then(|| texts(shown).collect());
    seen_by.is_array()
        && texts(seen_by).all(|who| other.heard.contains(who) && shown.as_ref().is_none_or(|shown| shown.contains(who)))
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}
