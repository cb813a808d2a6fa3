//! A record as its readers see it, and the place of each part in the graph (MISSION R1): the content in the attributes
//! of a `Knowledge` concept, the facts about it in its metadata.

use jiff::Timestamp;
use nexus::kip::datum::{Datum, Properties};
use nexus::kip::graph::{Concept, LEVEL_KEY, SCOPES_KEY};
use nexus::{OWNER_KEY, PROVENANCE_KEY, Provenance};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::scope::{PUBLIC, Visibility};

/// The concept type of records.
pub const KIND: &str = "Knowledge";
/// The score of a record without a judgement.
pub const SCORE: f64 = 3.0;
/// The confidence of a record without a judgement.
pub const CONFIDENCE: f64 = 0.5;

/// A type of knowledge; a record may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecordType)]
pub enum Type {
    /// A person's likes, habits, background and constraints.
    UserProfile,
    /// A lesson learned from experience.
    Strategy,
    /// Instructions for the use of a tool.
    Tool,
    /// An example of use with its outcome.
    Usecase,
    /// A definition of a term.
    Definition,
    /// A sequence of steps.
    Plan,
}

impl Type {
    /// All types.
    pub const ALL: [Self; 6] =
        [Self::UserProfile, Self::Strategy, Self::Tool, Self::Usecase, Self::Definition, Self::Plan];

    /// Returns the wire name.
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

    /// Parses the name of a type.
    ///
    /// # Errors
    /// Returns a message that lists the known types.
    pub fn parse(name: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::as_str).join(", ");
        Self::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| format!("is one of {known}"))
    }
}

/// The status of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecordStatus)]
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
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Eval {
    /// The author's score, 1 to 5.
    #[serde(serialize_with = "whole_if_it_is")]
    pub score: f64,
    /// The number of cases in which the record helped.
    pub helpful: u64,
    /// The number of cases in which the record did not help.
    pub harmful: u64,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
    /// The newest cases in which the record helped; only if the record is read alone or in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub helpful_history: Option<Vec<Value>>,
    /// The newest cases in which the record did not help; only if it is read alone or in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub harmful_history: Option<Vec<Value>>,
}

/// Serializes an integral number without a fraction.
fn whole_if_it_is<S: serde::Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 { serializer.serialize_i64(*number as i64) } else { serializer.serialize_f64(*number) }
}

impl Eval {
    /// Returns the value by which records are ordered: `score + helpful − 2·harmful`.
    pub fn quality(&self) -> f64 {
        self.score + self.helpful as f64 - 2.0 * self.harmful as f64
    }

    pub(crate) fn of(metadata: &Properties) -> Self {
        let number = |key: &str| metadata.named(key).and_then(Datum::as_f64);
        Self {
            // KIP clients may write any number into the metadata, so it is clamped to the valid range.
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
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Record {
    /// The id, the name of the concept: `knowledge-{day}-{random}`.
    pub id: String,
    /// The id of the message that the record was learned from.
    pub message_id: Option<String>,
    /// The types of knowledge.
    pub types: Vec<Type>,
    /// The situation and purpose to which the record applies.
    pub task: String,
    /// Labels: `category`, `domain`, and others.
    #[schema(value_type = Object)]
    pub tags: Map<String, Value>,
    /// The scopes that may read the record.
    pub scopes: Vec<String>,
    /// The owner, who may change and delete it.
    pub owner: String,
    /// The visibility, which expresses the scopes in the terms of older records.
    pub visibility: Visibility,
    /// The content.
    pub content: String,
    /// The text around the content at its source; the search index includes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// The ids of the resources that the record needs.
    pub resource_ids: Vec<String>,
    /// The source.
    #[schema(value_type = Object)]
    pub source: Map<String, Value>,
    /// The evaluation.
    pub eval: Eval,
    /// The status.
    pub status: Status,
    /// The number of the version, from 1.
    pub version: u64,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The open wishes of the users; only if the record is read alone or in a list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub pending_feedback: Vec<Value>,
    /// The ids of resources that do not exist or that the reader may not see; only if the record is read alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_resource_ids: Vec<String>,
    /// Further members of the request, unchanged.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub extra: Map<String, Value>,
    /// The provenance of a record that a lifeform made; `None` if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// The KnowledgeUnit that the record was contributed as.
    #[serde(skip)]
    pub unit: Option<Value>,
    /// The principals who confirmed that the record is valid, by their client-visible names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub validated_by: Vec<String>,
    /// The number of open wishes.
    #[serde(skip)]
    pub(crate) wishes: usize,
}

/// The metadata key of the contributed KnowledgeUnit and its id.
pub(crate) const UNIT_KEY: &str = "unit";
pub(crate) const KP_ID_KEY: &str = "kp_id";
/// The metadata key of the principals who confirmed the record.
pub(crate) const VALIDATED_KEY: &str = "validated_by";
/// The metadata key of the number of wishes.
pub(crate) const WISHES_KEY: &str = "needs_evolution";

/// The names of a record's own members; further members of a request cannot replace them.
const MEMBERS: [&str; 21] = [
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
    PROVENANCE_KEY,
    "pending_feedback",
    "missing_resource_ids",
    VALIDATED_KEY,
];

/// The attributes of a record's concept that have members of their own, or that only the unit protocol reads.
const ATTRIBUTES: [&str; 10] =
    ["task", "content", "types", "tags", "context", "resource_ids", EXTRA_KEY, UNIT_KEY, KP_ID_KEY, "form"];

/// The attribute that holds the further members of a request.
pub(crate) const EXTRA_KEY: &str = "x";
/// The metadata key of the source.
pub(crate) const SOURCE_KEY: &str = "source_info";

/// Returns the source of a record; a source without a time has the creation time (seed 004).
fn source_of(mut source: Map<String, Value>, created_at: Timestamp) -> Map<String, Value> {
    source.entry("timestamp").or_insert_with(|| created_at.to_string().into());
    source
}

impl Record {
    /// Reads the record that a concept represents.
    pub fn of(concept: &Concept) -> Self {
        let (attributes, metadata) = (&concept.attributes, &concept.metadata);
        let text = |bag: &Properties, key: &str| bag.named(key).and_then(Datum::as_str).map(str::to_owned);
        let is_private = text(metadata, LEVEL_KEY).is_some_and(|level| level != PUBLIC);
        let scopes = match metadata.named(SCOPES_KEY) {
            _ if is_private => text(metadata, OWNER_KEY).into_iter().collect(),
            None | Some(Datum::Null) => vec![PUBLIC.to_owned()],
            Some(listed) => texts(listed),
        };
        let time = |micros| Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
        let said = |key: &str| text(attributes, key).filter(|said| !said.trim().is_empty());
        Self {
            id: concept.name.to_string(),
            message_id: text(metadata, "message_id"),
            types: types_of(attributes),
            // A KIP client may omit the task; the content or the name then replaces it.
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
                // Attributes that a KIP client wrote under other names are returned too.
                let own = attributes.pairs().iter().map(|(key, value)| (key.as_str(), value));
                let own = own.filter(|(key, _)| !ATTRIBUTES.contains(key));
                extra.extend(own.map(|(key, value)| (key.to_owned(), value.to_json())));
                extra.retain(|key, _| !MEMBERS.contains(&key.as_str()));
                extra
            },
            pending_feedback: Vec::new(),
            missing_resource_ids: Vec::new(),
            wishes: metadata.named(WISHES_KEY).and_then(Datum::as_f64).map_or(0, |count| count as usize),
            provenance: Provenance::of(metadata),
            unit: attributes.named(UNIT_KEY).map(Datum::to_json).filter(Value::is_object),
            validated_by: metadata.named(VALIDATED_KEY).map(texts).unwrap_or_default(),
        }
    }
}

/// Returns the types of a record; a record that a KIP client wrote without types is a definition.
pub(crate) fn types_of(attributes: &Properties) -> Vec<Type> {
    let named = attributes.named("types").map(texts).unwrap_or_default();
    let types: Vec<Type> = named.iter().filter_map(|name| Type::parse(name).ok()).collect();
    if types.is_empty() { vec![Type::Definition] } else { types }
}

/// Returns the status of a record. Other statuses that KIP clients set for unused concepts mean retracted.
pub(crate) fn status_of(metadata: &Properties) -> Status {
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

pub(crate) fn object(bag: &Properties, key: &str) -> Map<String, Value> {
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
