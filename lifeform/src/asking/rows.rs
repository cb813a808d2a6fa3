//! The rows that a query finds: which of them are meant, which still hold, and how sure each is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use store::Timestamp;

use super::query::{Concept, Identity, Link, Query, is_like};
use crate::formation::confidence::{OF_OTHERS, Said, against, confidence};
use crate::formation::vocabulary::{is_functional, is_replaced};
use crate::formation::{Kind, ends_former, key_of};
use crate::memory::StoredFact;

/// The share of the confidence in its weakest premise that a conclusion has.
const CONCLUDED: f64 = 0.8;

/// A row that a query finds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'r> {
    /// The concepts.
    pub(super) concepts: &'r [Value],
    /// The fact that states each link.
    pub(super) facts: &'r [Value],
    /// The metadata of each link.
    links: &'r [Value],
}

/// A statement, known to all readers, of an object that the subject of a link has: it may be another one than that of the row.
#[derive(Debug)]
pub(super) struct Told {
    /// The place of the link in the query.
    pub(super) link: usize,
    /// The id of the subject.
    pub(super) subject: String,
    /// The id of the object.
    pub(super) object: String,
    /// The fact.
    pub(super) fact: Value,
    /// The metadata of the link that it states.
    pub(super) metadata: Value,
}

impl<'r> Row<'r> {
    /// Returns the row of a query's answer; `None` if its form is another.
    pub(super) fn of(value: &'r Value, query: &Query) -> Option<Self> {
        // A row of one column is its value.
        let columns = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let (concepts, rest) = columns.split_at_checked(query.concepts.len())?;
        let (facts, links) = rest.split_at_checked(query.links.len())?;
        Some(Self { concepts, facts, links })
    }

    /// Returns `true` if the concepts are those that a query means, as far as its command leaves that open.
    pub(super) fn fits(self, query: &Query) -> bool {
        let attribute = |concept: &Value, name: &str| concept["attributes"][name].as_str().map(str::to_owned);
        let is_of = |concept: &Value, kinds: &[String]| {
            let sort = attribute(concept, "kind").map(|kind| key_of(Kind::Theme, &kind));
            // "fishing boat" is a boat.
            let is_such = |kind: &String| {
                let key = key_of(Kind::Theme, kind);
                sort.as_deref().is_some_and(|sort| sort == key || sort.ends_with(&format!(" {key}")))
            };
            kinds.is_empty() || kinds.iter().any(is_such)
        };
        let is_meant = |wanted: &Concept, concept: &Value| match &wanted.identity {
            Identity::Named(_, name) if wanted.is_word() => {
                attribute(concept, "key").is_some_and(|known| is_like(name, &known))
            }
            _ => true,
        };
        let ids: Vec<&str> = self.concepts.iter().map(id_of).collect();
        let both = || query.concepts.iter().zip(self.concepts);
        both().all(|(wanted, concept)| is_of(concept, &wanted.kinds) && is_meant(wanted, concept))
            && query.are_apart(&ids)
    }

    /// Returns the ids of the subject and the object of a link.
    pub(super) fn ends(self, link: &Link) -> (&'r str, &'r str) {
        (id_of(&self.concepts[link.subject]), id_of(&self.concepts[link.object]))
    }

    /// Returns the fact that states a link.
    pub(super) fn fact(self, at: usize) -> StoredFact<'r> {
        StoredFact::of(&self.facts[at])
    }

    fn said(self, at: usize) -> Said<'r> {
        said(self.fact(at), &self.links[at])
    }
}

fn id_of(concept: &Value) -> &str {
    concept["id"].as_str().unwrap_or_default()
}

/// Returns `true` for a link that stands against others: it is active, what was found out is not its only evidence, and nobody who was
/// asked decided against it.
fn stands_against(fact: StoredFact<'_>, link: &Value) -> bool {
    link["status"] == "active" && link["review_info"]["verdict"] != "disputed" && fact.found_by().is_none()
}

/// Returns a statement of a link with the metadata of the link, among whose sources its own is.
fn said<'r>(fact: StoredFact<'r>, link: &'r Value) -> Said<'r> {
    let own = link["_claims"].get(fact.id()).and_then(Said::of);
    let person = fact.author().unwrap_or_default();
    let reliability = own.map_or(OF_OTHERS, |own| own.reliability);
    // What is said again is as new as its last statement.
    Said { person, reliability, at: fact.stated_at() }
}

/// Returns `true` if a subject mostly has one object of a link at a time.
pub(super) fn is_one(link: &Link) -> bool {
    link.predicate.as_deref().is_some_and(is_replaced) || is_boss(link)
}

/// Returns `true` for a link to a boss, of whom a person has one at a time.
fn is_boss(link: &Link) -> bool {
    link.relations == ["boss"]
}

/// Returns `true` if a statement ends what the same person said of a link before.
fn ends(link: &Link, said: &str) -> bool {
    match &link.predicate {
        Some(predicate) if is_replaced(predicate) => ends_former(predicate, said),
        _ => is_boss(link) && ends_former("works_for", said),
    }
}

/// Returns the rows without those of which a statement was outdated by a later one of the same person: who moved lives where he
/// moved to. Two persons who disagree are both kept.
pub(super) fn newest<'r>(query: &Query, rows: Vec<Row<'r>>, others: &[Told]) -> Vec<Row<'r>> {
    let mut latest: BTreeMap<(usize, String, String), (Option<Timestamp>, String)> = BTreeMap::new();
    let slot = |at: usize, subject: &str, fact: StoredFact<'_>| {
        (at, subject.to_owned(), fact.author().unwrap_or_default().to_owned())
    };
    let mut note = |at: usize, (subject, object): (&str, &str), fact: StoredFact<'_>| {
        if !fact.statement().is_some_and(|said| ends(&query.links[at], said)) {
            return;
        }
        let now = (fact.stated_at(), object.to_owned());
        let known = latest.entry(slot(at, subject, fact)).or_insert_with(|| now.clone());
        // Of two at one time, the one that was stored later counts.
        if now.0 >= known.0 {
            *known = now;
        }
    };
    let replaced: Vec<usize> = (0..query.links.len()).filter(|at| is_one(&query.links[*at])).collect();
    for other in others {
        note(other.link, (&other.subject, &other.object), StoredFact::of(&other.fact));
    }
    for row in &rows {
        for at in &replaced {
            note(*at, row.ends(&query.links[*at]), row.fact(*at));
        }
    }
    let holds = |row: &Row<'_>| {
        replaced.iter().all(|at| {
            let (fact, (subject, object)) = (row.fact(*at), row.ends(&query.links[*at]));
            let known = latest.get(&slot(*at, subject, fact));
            known.is_none_or(|(changed_at, to)| fact.stated_at() > *changed_at || *to == object)
        })
    };
    rows.into_iter().filter(holds).collect()
}

/// The confidence in the links of the rows of an answer.
pub(super) struct Surety<'r> {
    links: BTreeMap<(usize, &'r str, &'r str), f64>,
}

impl<'r> Surety<'r> {
    /// Folds the statements of all rows. What others say of a functional predicate takes from the confidence, unless one of the places is
    /// in the other: `within` has these.
    pub(super) fn of(
        query: &Query,
        rows: &[Row<'r>],
        others: &'r [Told],
        within: &BTreeSet<(String, String)>,
        now: Timestamp,
    ) -> Self {
        let mut standing: BTreeSet<(usize, &str, &str)> = BTreeSet::new();
        let mut stated: BTreeMap<(usize, &str, &str), BTreeMap<&str, Said<'_>>> = BTreeMap::new();
        for row in rows {
            for (at, link) in query.links.iter().enumerate() {
                let (subject, object) = row.ends(link);
                stated.entry((at, subject, object)).or_default().insert(row.fact(at).id(), row.said(at));
                if stands_against(row.fact(at), &row.links[at]) {
                    standing.insert((at, subject, object));
                }
            }
        }
        for other in others {
            let (fact, key) = (StoredFact::of(&other.fact), (other.link, &*other.subject, &*other.object));
            stated.entry(key).or_default().insert(fact.id(), said(fact, &other.metadata));
            if stands_against(fact, &other.metadata) {
                standing.insert(key);
            }
        }
        let predicate = |at: usize| query.links[at].predicate.as_deref().unwrap_or_default();
        let own = |key: &(usize, &str, &str)| {
            let said = stated.get(key).into_iter().flat_map(BTreeMap::values).cloned();
            confidence(said, predicate(key.0), now)
        };
        let tellers =
            |key: &(usize, &str, &str)| stated[key].values().map(|said| said.person).collect::<BTreeSet<&str>>();
        let mut links = BTreeMap::new();
        for key @ (at, subject, object) in stated.keys() {
            let is_rival = |other: &&(usize, &'r str, &'r str)| {
                let is_part = |one: &str, of: &str| within.contains(&(one.to_owned(), of.to_owned()));
                is_functional(predicate(*at))
                    && standing.contains(*other)
                    && !is_part(other.2, object)
                    && !is_part(object, other.2)
                    && (other.0, other.1) == (*at, *subject)
                    && other.2 != *object
                    && tellers(other).is_disjoint(&tellers(key))
            };
            let rival = stated.keys().filter(is_rival).map(own).fold(0.0, f64::max);
            links.insert(*key, against(own(key), rival));
        }
        Self { links }
    }

    /// Returns the confidence in a row: that of its weakest link, and less in what only follows from claims.
    pub(super) fn of_row(&self, query: &Query, row: Row<'_>) -> f64 {
        let of_link = |(at, link): (usize, &Link)| {
            let (subject, object) = row.ends(link);
            self.links.get(&(at, subject, object)).copied().unwrap_or_default()
        };
        let weakest = query.links.iter().enumerate().map(of_link).fold(1.0, f64::min);
        if query.is_inferred { weakest * CONCLUDED } else { weakest }
    }
}
