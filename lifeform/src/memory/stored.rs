//! Typed views of what the memory's KIP commands return. Only this file and the commands name the members of a stored
//! fact.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, civil};
use knowledge::Dates;
use nexus::{PROVENANCE_KEY, Provenance};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use store::Principal;

use super::{FoundBy, PUBLIC, Stated};
use crate::formation::PersonDescription;

/// The time by which the latest time zone is behind UTC.
const ZONES: SignedDuration = SignedDuration::from_hours(12);

/// The maximum number of places that one fact stores.
const PLACES_MAX: usize = 64;

/// Returns the rows of a KIP response; none for an error.
pub(crate) fn rows(response: &Value) -> &[Value] {
    response["result"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns `true` if a search for meaning had no embedder and looked for words instead, of which its warnings tell.
pub(super) fn found_by_words_alone(response: &Value) -> bool {
    warns(response, "by words alone")
}

/// Returns `true` if a warning of a response contains a text.
pub(super) fn warns(response: &Value, text: &str) -> bool {
    let mut warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    warnings.any(|warning| warning.contains(text))
}

/// A stored fact: the concept as KIP returns it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredFact<'f>(&'f Value);

impl<'f> StoredFact<'f> {
    pub(crate) fn of(concept: &'f Value) -> Self {
        Self(concept)
    }

    /// Returns `true` if the fact is its author's alone.
    pub(crate) fn is_private(self) -> bool {
        self.0["metadata"]["access_level"].as_str().is_some_and(|level| level != "public")
    }

    /// Returns the id of the concept; empty if the value is no concept.
    pub(crate) fn id(self) -> &'f str {
        self.0["id"].as_str().unwrap_or_default()
    }

    pub(crate) fn statement(self) -> Option<&'f str> {
        self.0["attributes"]["statement"].as_str()
    }

    /// Returns the message of the latest statement.
    pub(crate) fn message(self) -> Option<&'f str> {
        self.0["attributes"]["message"].as_str()
    }

    /// Returns the canvas of the latest statement.
    pub(crate) fn canvas(self) -> Option<&'f str> {
        self.0["attributes"]["canvas"].as_str()
    }

    /// Returns the topic of the latest statement.
    pub(crate) fn topic(self) -> Option<&'f str> {
        self.0["attributes"]["topic"].as_str()
    }

    /// Returns the status; `None` if it has none.
    pub(crate) fn status(self) -> Option<&'f str> {
        self.0["metadata"]["status"].as_str()
    }

    /// Returns the id or the words of the fact that superseded it.
    pub(crate) fn superseded_by(self) -> Option<&'f str> {
        self.0["metadata"]["superseded_by"].as_str()
    }

    /// Returns `true` if the status marks the fact as valid.
    pub(crate) fn holds(self) -> bool {
        self.0["metadata"]["status"].as_str().is_none_or(|status| status == "active")
    }

    /// Returns the dates that the fact names.
    pub(crate) fn dates(self) -> Dates {
        let date = |member: &str| self.0["attributes"][member].as_str()?.parse().ok();
        Dates { on: date("on_date"), heard_on: date("heard_on"), from: date("valid_from"), until: date("valid_until") }
    }

    /// Returns `true` if the fact holds and its validity has not ended. The last day is over everywhere on Earth 12 hours
    /// after its end in UTC.
    pub(crate) fn holds_at(self, now: store::Timestamp) -> bool {
        let is_over = |until: civil::Date| {
            let end = until.tomorrow().ok().and_then(|end| end.to_zoned(TimeZone::UTC).ok());
            end.is_some_and(|end| now.duration_since(end.timestamp()) > ZONES)
        };
        self.holds() && !self.dates().until.is_some_and(is_over)
    }

    /// Returns the text that the metadata names as the author, which may be no principal.
    pub(crate) fn author_text(self) -> Option<&'f str> {
        self.0["metadata"]["author"].as_str()
    }

    /// Returns the principal that stated the fact, as the memory wrote it into the metadata.
    pub(crate) fn author(self) -> Option<&'f str> {
        self.author_text().filter(|author| Principal::parse_id(author).is_ok())
    }

    /// Returns the time of the last statement. For an older fact without it, this is the time of the last change.
    pub(crate) fn stated_at(self) -> Option<store::Timestamp> {
        let stated = self.0["attributes"]["stated_at"].as_str();
        stated.or_else(|| self.0["metadata"]["_updated_at"].as_str())?.parse().ok()
    }

    /// Returns the share of the search words that the fact covers, if a search found it.
    pub(crate) fn score(self) -> f64 {
        self.0["metadata"]["_score"].as_f64().unwrap_or(0.0)
    }

    pub(crate) fn provenance(self) -> Option<Provenance> {
        Provenance::read(&self.0["metadata"][PROVENANCE_KEY])
    }

    /// Returns `true` if the access rules of the concept show it to a principal.
    pub(crate) fn is_shown_to(self, who: &Principal) -> bool {
        nexus::is_shown(&self.0["metadata"], who)
    }

    /// Returns `true` if its access rules show it to lifeforms alone, besides operators.
    pub(crate) fn is_shown_to_lifeforms_alone(self) -> bool {
        let scopes = self.0["metadata"]["access_scopes"].as_array();
        scopes.is_some_and(|scopes| {
            !scopes.is_empty()
                && scopes.iter().all(|scope| scope.as_str().is_some_and(|scope| scope.starts_with("lifeform:")))
        })
    }

    /// Returns the way in which the lifeform found the fact out; `None` for what a person stated.
    pub(crate) fn found_by(self) -> Option<FoundBy> {
        FoundBy::deserialize(&self.0["attributes"]["found_by"]).ok()
    }

    /// Returns the subject: a few words, or the whole statement.
    pub(crate) fn subject(self) -> Option<&'f str> {
        self.0["attributes"]["subject"].as_str()
    }

    /// Returns the places of the fact before the latest.
    pub(crate) fn earlier_places(self) -> Vec<Place> {
        Vec::deserialize(&self.0["attributes"]["also_in"]).unwrap_or_default()
    }

    /// Returns the places of the fact, the latest last.
    pub(crate) fn places(self) -> Vec<Place> {
        let mut places = self.earlier_places();
        let text = |member: &str| self.0["attributes"][member].as_str().map(str::to_owned);
        if let (Some(topic), Some(message)) = (text("topic"), text("message")) {
            places.push(Place(text("canvas").unwrap_or_default(), topic, message));
        }
        places
    }

    /// Returns the people who could hear the fact when it was stated; `None` if no person stated it in a conversation.
    /// For an older fact without a stored audience, this is the person who stated it.
    pub(crate) fn audience(self, person: Option<&str>) -> Option<BTreeSet<String>> {
        let among = self.0["attributes"]["among"].as_array();
        let heard = among.map(|among| among.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect());
        let mut audience: BTreeSet<String> = heard.or_else(|| person.map(|_| BTreeSet::new()))?;
        audience.extend(person.map(str::to_owned));
        audience.remove(PUBLIC);
        Some(audience)
    }

    /// Returns `true` if the person who stated the fact said that everybody may hear it.
    pub(crate) fn is_for_all(self) -> bool {
        let among = self.0["attributes"]["among"].as_array();
        !self.is_private() && among.is_some_and(|among| among.iter().any(|one| one == PUBLIC))
    }
}

/// The summary of the conversations with a person, as the concept of the person stores it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Interactions {
    pub(crate) last_seen_at: Option<store::Timestamp>,
    pub(crate) interaction_count: u64,
    /// The topics, latest first.
    pub(crate) key_topics: Vec<String>,
    /// The reference of the canvas revision of the last message.
    pub(crate) last_source: String,
    /// The time at which the person spoke again after a long absence, and the days of that absence.
    pub(crate) back_at: Option<store::Timestamp>,
    pub(crate) away_days: i64,
    /// The subjects of the statements of the person, most frequent first, as `$system` counts them at night.
    pub(crate) subjects: Vec<String>,
    /// The description of the person by a model.
    #[serde(deserialize_with = "if_it_fits")]
    pub(crate) described: Option<PersonDescription>,
}

/// Reads a value of another form as none, so that what stands beside it is still read.
fn if_it_fits<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    Value::deserialize(deserializer).map(|value| T::deserialize(value).ok())
}

/// The place of a statement: canvas, topic, message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Place(pub(super) String, pub(super) String, pub(super) String);

impl Place {
    /// Returns the reference of the message, as knowledge records use it.
    pub(crate) fn message(&self) -> String {
        format!("{}/{}/{}", self.0, self.1, self.2)
    }

    /// Returns the canvas, the topic and the message.
    pub(crate) fn parts(&self) -> (&str, &str, &str) {
        (&self.0, &self.1, &self.2)
    }

    pub(crate) fn is_of(&self, Stated { canvas, topic, message, .. }: Stated<'_>) -> bool {
        // Older facts do not name their canvas. They match by topic and message.
        (self.0.is_empty() || self.0 == canvas) && self.1 == topic && self.2 == message
    }
}

/// Returns all places except the latest, in the form in which a fact stores them.
pub(crate) fn also_in(mut places: Vec<Place>) -> Option<Vec<Place>> {
    places.drain(..places.len().saturating_sub(PLACES_MAX));
    Some(places).filter(|places| !places.is_empty())
}
