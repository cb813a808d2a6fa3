//! The open things in memory: what people said of a day that has come.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::civil;
use jiff::tz::TimeZone;
use nexus::NexusError;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::Origin;

use super::{Memory, Readers, StoredFact, rows};
use crate::formation::Conflict;
use crate::perception::Supply;

/// Finds the valid facts about days from one day to another.
const DATED: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.attributes.on_date >= $from && ?f.attributes.on_date <= $to && ?f.metadata.status == "active") } LIMIT 200"#;

/// A thing of which a person spoke, and whose day has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenThing {
    /// The id of the fact.
    pub(crate) fact: String,
    /// The person who stated it.
    pub(crate) person: Arc<str>,
    /// The statement.
    pub(crate) statement: String,
    /// The day.
    pub(crate) on: civil::Date,
    /// The topic of the lifeform's chat in which it was stated last.
    pub(crate) topic: Arc<str>,
    /// The readers of the topic.
    pub(crate) people: BTreeSet<String>,
    /// The means of the thought.
    #[serde(default)]
    pub(crate) supply: Supply,
    /// The conflict, if two statements cannot both hold; the fact is then the earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) conflict: Option<Conflict>,
}

impl OpenThing {
    /// Returns the id of what is thought of once: the question about a conflict, or the fact.
    pub(crate) fn key(&self) -> &str {
        self.conflict.as_ref().map_or(&self.fact, |conflict| &conflict.question)
    }
}

/// Finds a fact by its id.
const FACT: &str = r#"FIND(?f) WHERE { ?f {id: $fact} }"#;

impl Memory {
    /// Returns `true` if a fact still holds and all readers may know it.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn is_open(&self, fact: &str, readers: Readers<'_>, cause: &Origin) -> Result<bool, NexusError> {
        let found = self.run(FACT, json!({"fact": fact}), cause).await?;
        match rows(&found).first().map(StoredFact::of).filter(|fact| fact.holds()) {
            Some(fact) => self.is_known_to(fact, readers, cause).await,
            None => Ok(false),
        }
    }

    /// Returns the things of days from `from` to `to` that people stated on a canvas, the oldest day first, as far as all
    /// readers of their topic may know them. `readers_of` returns the readers of a topic that still takes messages.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn open_things(
        &self,
        canvas: &str,
        (from, to): (civil::Date, civil::Date),
        readers_of: impl Fn(&str) -> Option<(BTreeSet<String>, bool)>,
        cause: &Origin,
    ) -> Result<Vec<OpenThing>, NexusError> {
        let found = self.run(DATED, json!({"from": from, "to": to}), cause).await?;
        let mut open = Vec::new();
        for fact in rows(&found).iter().map(StoredFact::of) {
            let (Some(statement), Some(person), Some(on)) = (fact.statement(), fact.author(), fact.dates().on) else {
                continue;
            };
            // A day that had come when it was stated is no open thing.
            if fact.dates().heard_on.is_none_or(|heard_on| on <= heard_on) {
                continue;
            }
            let place = fact.places().pop().filter(|place| place.0 == canvas && person.starts_with("user:"));
            let Some((topic, (people, are_trusted))) =
                place.and_then(|place| Some((place.1.clone(), readers_of(&place.1)?)))
            else {
                continue;
            };
            let readers = Readers { people: &people, are_trusted };
            if self.is_known_to(fact, readers, cause).await? {
                let (fact, person, topic) = (fact.id().to_owned(), person.into(), topic.into());
                let statement = statement.to_owned();
                let supply = Supply::default();
                open.push(OpenThing { fact, person, statement, on, topic, people, supply, conflict: None });
            }
        }
        open.sort_by_key(|thing| thing.on);
        Ok(open)
    }

    /// Returns the conflicts that can be asked about on a canvas, each in the latest of its topics in which the person reads, and in
    /// which all readers may know both statements. `readers_of` returns the readers of a topic that still takes messages.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn conflicts_to_ask(
        &self,
        canvas: &str,
        readers_of: impl Fn(&str) -> Option<(BTreeSet<String>, bool)>,
        cause: &Origin,
    ) -> Result<Vec<OpenThing>, NexusError> {
        let mut open = Vec::new();
        for conflict in self.open_conflicts(cause).await? {
            let Some(facts) = self.facts_of(&conflict.facts, cause).await? else { continue };
            let facts: Vec<StoredFact<'_>> = facts.iter().map(StoredFact::of).collect();
            let Some(first) = facts.first() else { continue };
            let places = facts.iter().flat_map(|fact| fact.places()).filter(|place| place.0 == canvas);
            let topics: Vec<String> = places.map(|place| place.1).collect();
            for topic in topics.iter().rev() {
                let Some((people, are_trusted)) =
                    readers_of(topic).filter(|(people, _)| people.contains(&conflict.person))
                else {
                    continue;
                };
                let readers = Readers { people: &people, are_trusted };
                let mut are_known = true;
                for fact in &facts {
                    are_known &= self.is_known_to(*fact, readers, cause).await?;
                }
                if are_known {
                    open.push(OpenThing {
                        fact: first.id().to_owned(),
                        person: conflict.person.as_str().into(),
                        statement: first.statement().unwrap_or_default().to_owned(),
                        on: self.now().to_zoned(TimeZone::UTC).date(),
                        topic: topic.as_str().into(),
                        people,
                        supply: Supply::default(),
                        conflict: Some(conflict.clone()),
                    });
                    break;
                }
            }
        }
        Ok(open)
    }
}
