//! The answers of the routes of records.

use knowledge::{Eval, Record, RecordVersion, Router, Type};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// The response to the writer of a record.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct SavedRecord {
    /// The id of the record.
    pub(super) id: String,
    /// The id of the record, by its older name.
    pub(super) knowledge_id: String,
    /// `success`.
    pub(super) status: &'static str,
    /// The record.
    pub(super) knowledge: Record,
    /// The parts of the request that were not accepted, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
    /// `true` if the record evolved; only if the request asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evolved: Option<bool>,
    /// The reason for which the record did not evolve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// A result of a search.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the search answers")]
pub(in crate::api) struct SearchHit {
    /// The id of the record.
    pub(super) id: String,
    /// The task.
    pub(super) task: String,
    /// The content.
    pub(super) content: String,
    /// The types.
    pub(super) types: Vec<Type>,
    /// The labels.
    #[schema(value_type = Object)]
    pub(super) tags: Value,
    /// The evaluation.
    pub(super) eval: Eval,
    /// The quality from 0 to 1.
    pub(super) quality_score: f64,
    /// The scopes that may read the record.
    pub(super) scopes: Vec<String>,
    /// The owner.
    pub(super) owner: String,
    /// The ids of the resources that the record needs.
    pub(super) resource_ids: Vec<String>,
    /// The relevance, at most 1.
    pub(super) relevance: f64,
    /// The explanation of the rank; only if the request asked for it.
    #[schema(value_type = Option<Object>)]
    pub(super) explain: Option<Value>,
}

/// The results of a search.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what the search answers")]
pub(in crate::api) struct SearchAnswer {
    /// The results, best first.
    pub(super) results: Vec<SearchHit>,
    /// The number of results.
    pub(super) count: usize,
    /// The method that picked the candidates.
    pub(super) router: Router,
    /// The reason for which a better method was not used.
    pub(super) degraded: Option<String>,
}

/// The versions of a record.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct RecordHistory {
    /// The versions, oldest first.
    pub(super) versions: Vec<RecordVersion>,
}

impl SavedRecord {
    /// Returns the response for a record.
    pub(super) fn of(knowledge: Record, warnings: Vec<String>) -> Self {
        let (id, knowledge_id) = (knowledge.id.clone(), knowledge.id.clone());
        Self { id, knowledge_id, status: "success", knowledge, warnings, evolved: None, reason: None }
    }
}
