//! The answers of the routes of KnowledgePulse.

use serde::Serialize;
use serde_json::Value;
use store::{PrincipalId, Timestamp};
use utoipa::ToSchema;

/// A page of units or skills.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the routes of the protocol answer")]
pub(in crate::api) struct UnitPage {
    /// The units in their stored form, or the skills.
    #[schema(value_type = Vec<Object>)]
    pub(super) data: Vec<Value>,
    /// The number of all matches.
    pub(super) total: usize,
    /// The number of skipped ones.
    pub(super) offset: usize,
    /// The maximum number on a page.
    pub(super) limit: usize,
}

/// A contributed unit or skill.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the routes of the protocol answer")]
pub(in crate::api) struct ContributedUnit {
    /// The id.
    pub(super) id: String,
    /// The quality from 0 to 1.
    pub(super) quality_score: f64,
    /// The unit in its stored form, or the skill.
    #[schema(value_type = Object)]
    pub(super) data: Value,
    /// The parts of the request that were not accepted, with reasons.
    pub(super) warnings: Option<Vec<String>>,
}

/// A unit: the document, or `{data}` for clients that accept only `application/json`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the routes of the protocol answer")]
pub(in crate::api) struct UnitAnswer {
    /// The type of the document.
    #[schema(rename = "@type")]
    pub(super) kind: Option<String>,
    /// The id of the document.
    pub(super) id: Option<String>,
    /// The unit in its stored form, or the skill.
    #[schema(value_type = Option<Object>)]
    pub(super) data: Option<Value>,
}

/// A noted judgement.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Validation {
    /// The judgement.
    pub(super) data: ValidationNote,
}

/// The contents of a noted judgement.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ValidationNote {
    /// The id of the unit.
    pub(super) id: String,
    /// `true`.
    pub(super) validated: bool,
    /// `true` if the unit is valid.
    pub(super) valid: bool,
    /// The findings.
    pub(super) feedback: Option<String>,
}

/// A deleted unit.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct DeletedUnit {
    /// `true`.
    pub(super) deleted: bool,
    /// The id of the unit.
    pub(super) unit_id: String,
    /// The time of the deletion.
    pub(super) deleted_at: Timestamp,
    /// The principal that deleted it.
    pub(super) deleted_by: PrincipalId,
}
