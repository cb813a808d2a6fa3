//! The weighing of claims at night: confidence fades with time, grows with tellers and falls with rivals, and where two people state
//! what cannot hold together, a question is kept for one who heard both. Nothing that a person said is removed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use nexus::NexusError;
use serde::Serialize;
use serde_json::{Value, json};
use store::{Hash, Origin, Timestamp};

use super::confidence::{OF_OTHERS, Said, against, confidence};
use super::vocabulary::is_functional;
use super::writing::{author_of, ends_former};
use crate::memory::{Memory, StoredFact, rows};

/// The maximum number of claims of a predicate that one night weighs, of confidences that it changes, and of questions that it keeps.
const CLAIMS_MAX: usize = 5_000;
const MOVED_MAX: usize = 200;
const QUESTIONS_MAX: usize = 10;
/// The change of a confidence below which it is not written, and the confidence below which a claim expires.
const MOVED_MIN: f64 = 0.05;
const EXPIRED_BELOW: f64 = 0.15;

/// Finds the active claims of a predicate with the names of their subjects and the facts that state them.
const CLAIMED: &str = r#"
FIND(?s.name, ?l, ?f) WHERE { ?l (?s, $predicate, ?o) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active" && IS_NOT_NULL(?l.metadata.heard_by)) } LIMIT $limit"#;
const MOVED: &str = r#"UPDATE ?l SET METADATA { confidence: $confidence, status: $status } WHERE { ?l (id: $link) }"#;
/// Finds the names of all questions about conflicts.
const QUESTIONS: &str =
    r#"FIND(?q.name) WHERE { ?q {type: "Question"} FILTER(?q.attributes.kind == "conflict") } LIMIT 5000"#;
const KEEP_QUESTION: &str = r#"
UPSERT { CONCEPT ?q { {type: "Question", name: $name} SET ATTRIBUTES { kind: "conflict", state: "open", person: $person, facts: $facts, claims: $claims } } }
WITH METADATA { source: "weighing", status: "active", confidence: 1.0, access_scopes: $scopes, observed_at: $now }"#;

/// The outcome of weighing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Weighed {
    /// The number of claims whose confidence moved.
    pub(crate) moved: usize,
    /// The number of claims that expired, because hardly anything bears them out any more.
    pub(crate) expired: usize,
    /// The names of the questions that were kept.
    pub(crate) questions: Vec<String>,
}

/// A claim with the statements that state it.
struct Weighing<'v> {
    link: &'v Value,
    subject: &'v str,
    facts: Vec<StoredFact<'v>>,
}

impl<'v> Weighing<'v> {
    fn id(&self) -> &'v str {
        self.link["id"].as_str().unwrap_or_default()
    }

    fn scopes(&self) -> BTreeSet<String> {
        let scopes = self.link["metadata"]["access_scopes"].as_array().into_iter().flatten();
        scopes.filter_map(|scope| scope.as_str().map(str::to_owned)).collect()
    }

    fn tellers(&self) -> BTreeSet<&'v str> {
        self.facts.iter().filter_map(|fact| fact.author()).collect()
    }

    fn newest(&self) -> Option<StoredFact<'v>> {
        self.facts.iter().copied().max_by_key(|fact| fact.stated_at())
    }

    /// Returns the statements that all of an audience heard.
    fn heard_by<'s>(&'s self, audience: &'s BTreeSet<String>) -> impl Iterator<Item = Said<'v>> + 's {
        let is_heard = |fact: &&StoredFact<'v>| {
            fact.is_for_all() || fact.audience(fact.author()).is_some_and(|heard| audience.is_subset(&heard))
        };
        self.facts.iter().filter(is_heard).map(|fact| self.said(*fact))
    }

    fn said(&self, fact: StoredFact<'v>) -> Said<'v> {
        let own = self.link["metadata"]["_claims"].get(fact.id()).and_then(Said::of);
        let reliability = own.map_or(OF_OTHERS, |own| own.reliability);
        Said { person: fact.author().unwrap_or_default(), reliability, at: fact.stated_at() }
    }

    /// Returns the confidence that may be stored: that of the statements which everybody who sees the claim heard.
    fn own(&self, predicate: &str, now: Timestamp) -> f64 {
        let scopes = self.scopes();
        let said: Vec<Said<'_>> = self.heard_by(&scopes).collect();
        match said.is_empty() {
            true => self.facts.iter().map(|fact| confidence([self.said(*fact)], predicate, now)).fold(0.0, f64::max),
            false => confidence(said, predicate, now),
        }
    }

    /// Returns the confidence of all statements, for any audience.
    fn of_all(&self, predicate: &str, now: Timestamp) -> f64 {
        confidence(self.facts.iter().map(|fact| self.said(*fact)), predicate, now)
    }

    fn object(&self) -> &'v str {
        self.link["object"].as_str().unwrap_or_default()
    }

    /// Returns `true` if two claims cannot both hold, by different people.
    fn is_rival_of(&self, other: &Self) -> bool {
        self.tellers().is_disjoint(&other.tellers()) && self.cannot_hold_with(other)
    }

    /// Returns `true` if one person stated both of two claims that cannot both hold, in different messages, and did not say that
    /// something changed.
    fn contradicts(&self, other: &Self, predicate: &str) -> bool {
        let (Some(own), Some(others)) = (self.newest(), other.newest()) else { return false };
        let says_change = |fact: StoredFact<'_>| fact.statement().is_some_and(|said| ends_former(predicate, said));
        let is_changed = match own.stated_at().cmp(&others.stated_at()) {
            Ordering::Greater => says_change(own),
            Ordering::Less => says_change(others),
            Ordering::Equal => says_change(own) || says_change(others),
        };
        let tellers = self.tellers();
        tellers.len() == 1
            && tellers == other.tellers()
            && own.message() != others.message()
            && !is_changed
            && self.cannot_hold_with(other)
    }

    /// Returns `true` if two claims have another object of the same subject at the same time.
    fn cannot_hold_with(&self, other: &Self) -> bool {
        let day = |claim: &Self, member: &str| claim.link["metadata"][member].as_str().map(str::to_owned);
        let ends_before = |one: &Self, next: &Self| {
            day(one, "valid_until").zip(day(next, "valid_from")).is_some_and(|(until, from)| until < from)
        };
        self.link["subject"] == other.link["subject"]
            && self.link["object"] != other.link["object"]
            && !ends_before(self, other)
            && !ends_before(other, self)
    }
}

impl Memory {
    /// Returns which of the places of claims is in which other: a town and its country are no rivals.
    async fn places_within(
        &self,
        claims: &[Weighing<'_>],
        predicate: &str,
        cause: &Origin,
    ) -> Result<BTreeSet<(String, String)>, NexusError> {
        let mut within = BTreeSet::new();
        if is_functional(predicate) && claims.len() > 1 {
            let places: BTreeSet<&str> = claims.iter().map(Weighing::object).collect();
            for place in places {
                let around = self.places_around(place, cause).await?;
                within.extend(around.into_iter().map(|around| (place.to_owned(), around)));
            }
        }
        Ok(within)
    }

    /// Returns the ids of the places in which a place is, as far as is claimed, over two steps.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn places_around(&self, place: &str, cause: &Origin) -> Result<BTreeSet<String>, NexusError> {
        const AROUND: &str = r#"FIND(?o.id) WHERE { ?l ({id: $place}, "located_in", ?o) FILTER(?l.metadata.status == "active") } LIMIT 100"#;
        let mut around = BTreeSet::new();
        let mut next = vec![place.to_owned()];
        for _ in 0..2 {
            let mut further = Vec::new();
            for place in next {
                let found = self.ask(AROUND, json!({"place": place}), cause).await?;
                further.extend(rows(&found).iter().filter_map(|id| id.as_str().map(str::to_owned)));
            }
            around.extend(further.iter().cloned());
            next = further;
        }
        Ok(around)
    }

    /// Returns what a night weighs at a time, and the commands that write it.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn weighed(
        &self,
        now: Timestamp,
        cause: &Origin,
    ) -> Result<(Weighed, Vec<(&'static str, Value)>), NexusError> {
        let (mut weighed, mut commands) = (Weighed::default(), Vec::new());
        if !self.has_claims(cause).await? {
            return Ok((weighed, commands));
        }
        let known = self.ask(QUESTIONS, json!({}), cause).await?;
        let known: BTreeSet<&str> = rows(&known).iter().filter_map(Value::as_str).collect();
        for predicate in self.predicates_of_claims(cause).await? {
            let found = self.ask(CLAIMED, json!({"predicate": predicate, "limit": CLAIMS_MAX}), cause).await?;
            // Of more, some would be weighed by a part of their statements.
            if rows(&found).len() >= CLAIMS_MAX {
                continue;
            }
            let claims = claims_of(rows(&found));
            let within = self.places_within(&claims, &predicate, cause).await?;
            let are_apart = |one: &Weighing<'_>, other: &Weighing<'_>| {
                let ends =
                    |one: &Weighing<'_>, other: &Weighing<'_>| (one.object().to_owned(), other.object().to_owned());
                is_functional(&predicate) && !within.contains(&ends(one, other)) && !within.contains(&ends(other, one))
            };
            let are_rivals = |one: &Weighing<'_>, other: &Weighing<'_>| one.is_rival_of(other) && are_apart(one, other);
            let is_asked_about = |one: &Weighing<'_>, other: &Weighing<'_>| {
                (one.is_rival_of(other) || one.contradicts(other, &predicate)) && are_apart(one, other)
            };
            let mut by_subject: BTreeMap<String, Vec<&Weighing<'_>>> = BTreeMap::new();
            for claim in &claims {
                by_subject.entry(claim.link["subject"].to_string()).or_default().push(claim);
            }
            for claim in &claims {
                let rivals = by_subject[&claim.link["subject"].to_string()].iter();
                let rivals = rivals.filter(|other| are_rivals(claim, other));
                let scopes = claim.scopes();
                let most = rivals.map(|rival| confidence(rival.heard_by(&scopes), &predicate, now)).fold(0.0, f64::max);
                let confidence = against(claim.own(&predicate, now), most);
                // Only time ends a claim: neither do others, nor that some of its statements were heard by few.
                let is_over = claim.of_all(&predicate, now) < EXPIRED_BELOW;
                let stored = claim.link["metadata"]["confidence"].as_f64().unwrap_or_default();
                if (confidence - stored).abs() <= MOVED_MIN || weighed.moved == MOVED_MAX {
                    continue;
                }
                let status = if is_over { "expired" } else { "active" };
                weighed.expired += usize::from(status == "expired");
                weighed.moved += 1;
                let confidence = (confidence * 1e3).round() / 1e3;
                commands.push((MOVED, json!({"link": claim.id(), "confidence": confidence, "status": status})));
            }
            for claims in by_subject.values().filter(|claims| claims.len() > 1 && is_functional(&predicate)) {
                for (at, one) in claims.iter().enumerate() {
                    for other in claims[..at].iter().filter(|other| is_asked_about(one, other)) {
                        let Some((name, question)) = question(one, other, now) else { continue };
                        let is_new = !known.contains(&*name) && !weighed.questions.contains(&name);
                        if is_new && weighed.questions.len() < QUESTIONS_MAX {
                            weighed.questions.push(name);
                            commands.push((KEEP_QUESTION, question));
                        }
                    }
                }
            }
        }
        Ok((weighed, commands))
    }
}

/// Returns the claims of the rows of a predicate, each once, with its statements.
fn claims_of(rows: &[Value]) -> Vec<Weighing<'_>> {
    let mut claims: Vec<Weighing<'_>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        let (subject, link, fact) = (&row[0], &row[1], StoredFact::of(&row[2]));
        let Some(id) = link["id"].as_str().filter(|_| author_of(fact).is_some() && fact.found_by().is_none()) else {
            continue;
        };
        let at = *places.entry(id).or_insert_with(|| {
            claims.push(Weighing { link, subject: subject.as_str().unwrap_or_default(), facts: Vec::new() });
            claims.len() - 1
        });
        claims[at].facts.push(fact);
    }
    claims
}

/// Returns the name and the parameters of the question about two claims that cannot both hold; `None` if no person heard both. The
/// person of whom they are is asked before the one who spoke last.
fn question(one: &Weighing<'_>, other: &Weighing<'_>, now: Timestamp) -> Option<(String, Value)> {
    let (first, second) = (one.newest()?, other.newest()?);
    let heard = |fact: StoredFact<'_>| fact.audience(fact.author()).unwrap_or_default();
    let both: BTreeSet<String> = heard(first).intersection(&heard(second)).cloned().collect();
    let mut tellers = [first, second];
    tellers.sort_by_key(|fact| std::cmp::Reverse(fact.stated_at()));
    let asked = [Some(one.subject)].into_iter().chain(tellers.iter().map(|fact| fact.author())).flatten();
    let person = asked.filter(|who| who.starts_with("user:")).find(|who| both.contains(*who))?.to_owned();
    let mut claims = [one.id(), other.id()];
    claims.sort_unstable();
    let name = format!("conflict {}", &Hash::of(claims.join(" ").as_bytes()).hex()[..12]);
    tellers.reverse();
    let facts = tellers.map(|fact| fact.id());
    let question =
        json!({"name": name, "person": person, "facts": facts, "claims": claims, "scopes": both, "now": now});
    Some((name, question))
}
