//! A record as its readers see it, and the place of each part in the graph (MISSION R1): the content in the attributes
//! of a `Knowledge` concept, the facts about it in its metadata.

use jiff::Timestamp;
use nexus::OWNER_KEY;
use nexus::kip::datum::{Bag, Datum};
use nexus::kip::graph::{Concept, SCOPES_KEY};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::scope::{PUBLIC, Visibility};

/// The concept type of records.
pub const KIND: &str = "Knowledge";
/// The score of a record without a judgement.
pub const SCORE: f64 = 3.0;
/// The confidence of a record that nobody has used yet.
pub const CONFIDENCE: f64 = 0.5;

/// A type of knowledge; a record may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    /// A person's likes, habits, background and constraints.
    UserProfile,
    /// A lesson of experience.
    Strategy,
    /// The use of a tool.
    Tool,
    /// An example of use with its outcome.
    Usecase,
    /// A definition of a term.
    Definition,
    /// Steps to take.
    Plan,
}

impl Type {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::UserProfile, Self::Strategy, Self::Tool, Self::Usecase, Self::Definition, Self::Plan];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserProfile => "user_profile",
            Self::Strategy => "strategy",
            Self::Tool => "tool",
            Self::Usecase => "usecase",
            Self::Definition => "definition",
            Self::Plan => "plan",
        }
    }

    /// The type of that name.
    ///
    /// # Errors
    /// Which there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::as_str).join(", ");
        Self::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| format!("is one of {known}"))
    }
}

/// The status of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The record is in use.
    #[default]
    Active,
    /// The record was deleted; its owner may restore it.
    Retracted,
    /// The record was merged into another one; its owner may restore it.
    Merged,
}

/// The evaluation of a record by its users (MISSION H1).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Eval {
    /// The author's score, 1 to 5.
    #[serde(serialize_with = "whole_if_it_is")]
    pub score: f64,
    /// The number of times that it helped.
    pub helpful: u64,
    /// The number of times that it did not.
    pub harmful: u64,
    /// 0 to 1.
    pub confidence: f64,
    /// The newest cases in which it helped; only of a record looked at by itself or in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helpful_history: Option<Vec<Value>>,
    /// The same where it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub harmful_history: Option<Vec<Value>>,
}

/// A number that is whole is written so.
fn whole_if_it_is<S: serde::Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 { serializer.serialize_i64(*number as i64) } else { serializer.serialize_f64(*number) }
}

impl Eval {
    /// Returns the value by which records are ordered: `score + helpful − 2·harmful`.
    pub fn quality(&self) -> f64 {
        self.score + self.helpful as f64 - 2.0 * self.harmful as f64
    }

    pub(crate) fn of(metadata: &Bag) -> Self {
        let number = |key: &str| metadata.named(key).and_then(Datum::as_f64);
        Self {
            // KIP sets what it likes; nobody is better than the best.
            score: number("score").unwrap_or(SCORE).clamp(1.0, 5.0),
            helpful: number("helpful").unwrap_or(0.0).max(0.0) as u64,
            harmful: number("harmful").unwrap_or(0.0).max(0.0) as u64,
            confidence: number("confidence").unwrap_or(CONFIDENCE).clamp(0.0, 1.0),
            helpful_history: None,
            harmful_history: None,
        }
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// `knowledge-{day}-{random}`: the concept's name.
    pub id: String,
    /// The message it came from.
    pub message_id: Option<String>,
    /// The types of knowledge.
    pub types: Vec<Type>,
    /// In which situation, and to what end, it applies.
    pub task: String,
    /// Labels: `category`, `domain`, and others.
    pub tags: Map<String, Value>,
    /// The scopes that see it.
    pub scopes: Vec<String>,
    /// The owner, who may change and delete it.
    pub owner: String,
    /// The scopes in the words of older records.
    pub visibility: Visibility,
    /// The content.
    pub content: String,
    /// The text around it at its source; a search finds it too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// Resources it needs.
    pub resource_ids: Vec<String>,
    /// The source.
    pub source: Map<String, Value>,
    /// The evaluation.
    pub eval: Eval,
    /// The status.
    pub status: Status,
    /// Counts its changes, from 1.
    pub version: u64,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The open wishes of its users; only for a record that is read alone or in a list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_feedback: Vec<Value>,
    /// The resources that do not exist, or not for the reader; only for a record that is read alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_resource_ids: Vec<String>,
    /// Further members of the request, as they were.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
    /// The unit that it was contributed as.
    #[serde(skip)]
    pub unit: Option<Value>,
    /// The principals who found that it holds, by the names that clients use.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validated_by: Vec<String>,
    /// The number of open wishes.
    #[serde(skip)]
    pub(crate) wishes: usize,
}

/// The unit that a record was contributed as, and the id it then goes by.
pub(crate) const UNIT_KEY: &str = "unit";
pub(crate) const KP_ID_KEY: &str = "kp_id";
/// The metadata key of the principals who found that a record holds.
pub(crate) const VALIDATED_KEY: &str = "validated_by";
/// The metadata key of the number of wishes.
pub(crate) const WISHES_KEY: &str = "needs_evolution";

/// The members of a record itself: no further member of a request replaces one of them.
const MEMBERS: [&str; 20] = [
    "id",
    "message_id",
    "types",
    "task",
    "tags",
    "scopes",
    "owner",
    "visibility",
    "content",
    "context",
    "resource_ids",
    "source",
    "eval",
    "status",
    "created_at",
    "updated_at",
    "version",
    "pending_feedback",
    "missing_resource_ids",
    VALIDATED_KEY,
];

/// The attributes of a record's concept that have members of their own, or that only the reader of units needs.
const ATTRIBUTES: [&str; 10] =
    ["task", "content", "types", "tags", "context", "resource_ids", EXTRA_KEY, UNIT_KEY, KP_ID_KEY, "form"];

/// Members of a record that stand elsewhere than under their own name in its attributes.
pub(crate) const EXTRA_KEY: &str = "x";
/// The metadata key of the source.
pub(crate) const SOURCE_KEY: &str = "source_info";

/// Returns the source of a record; without a time, that of its creation (seed 004).
fn source_of(mut source: Map<String, Value>, created_at: Timestamp) -> Map<String, Value> {
    source.entry("timestamp").or_insert_with(|| created_at.to_string().into());
    source
}

impl Record {
    /// The record that a concept is.
    pub fn of(concept: &Concept) -> Self {
        let (attributes, metadata) = (&concept.attributes, &concept.metadata);
        let text = |bag: &Bag, key: &str| bag.named(key).and_then(Datum::as_str).map(str::to_owned);
        let scopes = match metadata.named(SCOPES_KEY) {
            None | Some(Datum::Null) => vec![PUBLIC.to_owned()],
            Some(listed) => texts(listed),
        };
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
        let said = |key: &str| text(attributes, key).filter(|said| !said.trim().is_empty());
        Self {
            id: concept.name.to_string(),
            message_id: text(metadata, "message_id"),
            types: types_of(attributes),
            // What KIP leaves open is said by what it says, or by its name.
            task: said("task").or_else(|| said("content")).unwrap_or_else(|| concept.name.to_string()),
            tags: object(attributes, "tags"),
            visibility: Visibility::of(&scopes),
            scopes,
            owner: text(metadata, OWNER_KEY).unwrap_or_else(|| "system:daemon".to_owned()),
            content: said("content").or_else(|| said("task")).unwrap_or_else(|| concept.name.to_string()),
            context: attributes.named("context").map(texts).unwrap_or_default(),
            resource_ids: attributes.named("resource_ids").map(texts).unwrap_or_default(),
            source: source_of(object(metadata, SOURCE_KEY), time(concept.stamp.created)),
            eval: Eval::of(metadata),
            status: status_of(metadata),
            version: concept.stamp.version(),
            created_at: time(concept.stamp.created),
            updated_at: time(concept.stamp.updated()),
            extra: {
                let mut extra = object(attributes, EXTRA_KEY);
                // Attributes that KIP wrote under other names are returned too.
                let own = attributes.pairs().iter().map(|(key, value)| (key.as_str(), value));
                let own = own.filter(|(key, _)| !ATTRIBUTES.contains(key));
                extra.extend(own.map(|(key, value)| (key.to_owned(), value.to_json())));
                extra.retain(|key, _| !MEMBERS.contains(&key.as_str()));
                extra
            },
            pending_feedback: Vec::new(),
            missing_resource_ids: Vec::new(),
            wishes: metadata.named(WISHES_KEY).and_then(Datum::as_f64).map_or(0, |count| count as usize),
            unit: attributes.named(UNIT_KEY).map(Datum::to_json).filter(Value::is_object),
            validated_by: metadata.named(VALIDATED_KEY).map(texts).unwrap_or_default(),
        }
    }
}

/// The types of a record; one that KIP wrote without any is a definition.
pub(crate) fn types_of(attributes: &Bag) -> Vec<Type> {
    let named = attributes.named("types").map(texts).unwrap_or_default();
    let types: Vec<Type> = named.iter().filter_map(|name| Type::parse(name).ok()).collect();
    if types.is_empty() { vec![Type::Definition] } else { types }
}

/// Returns the status of a record; KIP's own words for a concept that is not in use mean retracted.
pub(crate) fn status_of(metadata: &Bag) -> Status {
    match metadata.named("status").and_then(Datum::as_str) {
        None | Some("active") => Status::Active,
        Some("merged") => Status::Merged,
        Some(_) => Status::Retracted,
    }
}

pub(crate) fn texts(datum: &Datum) -> Vec<String> {
    match datum {
        Datum::Str(text) => vec![text.to_string()],
        Datum::Json(json) => {
            json.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

pub(crate) fn object(bag: &Bag, key: &str) -> Map<String, Value> {
    match bag.named(key).map(Datum::to_json) {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_are_those_that_the_commons_take() {
        assert_eq!(Type::ALL.map(Type::as_str), nexus::RECORD_TYPES);
    }
}
