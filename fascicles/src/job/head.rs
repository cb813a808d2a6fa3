//! The stored head of a job.

use std::sync::Arc;

use neurons::Tier;
use neurons::llm::Class;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::ledger::Amount;
use store::{Origin, PrincipalId, Timestamp};

use crate::JobId;
use crate::run::{Status, Step, Wait};
use crate::spec::FascicleId;
use crate::turns::Priority;

/// The head of a job as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The id.
    pub id: JobId,
    /// The fascicle.
    pub fascicle: FascicleId,
    /// The plan it began with, by hash.
    #[serde(default)]
    pub plan: Option<String>,
    /// The owner of its tools.
    pub owner: Arc<str>,
    /// The account that pays.
    pub account: Arc<str>,
    /// For whom it runs.
    pub origin: Origin,
    /// The status.
    pub status: Status,
    /// The observed stage that it is in.
    pub current_stage: Option<Arc<str>>,
    /// The waits.
    #[serde(default)]
    pub waits: Vec<Waiting>,
    /// The output.
    pub output: Value,
    /// The reason of a failure.
    pub error: Option<String>,
    /// A tier that overrides the neurons' own.
    pub tier: Option<Tier>,
    /// A bound that only lowers the neurons' own.
    pub output_tokens_max: Option<u32>,
    /// The class of its calls; by its principal if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The principal in whose queue the work waits, within its class.
    #[serde(default)]
    pub priority: Priority,
    /// The hash of what was ordered.
    #[serde(default)]
    pub ordered: String,
    /// The nesting depth of fascicle tools.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: usize,
    /// The invocation that called it as a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<str>>,
    /// `true` if an untrusted speaker asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// Authors of the definitions that ordered it, outermost first. Its steps act with the rights that all of them
    /// share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<PrincipalId>,
    /// The amount that was reserved for its calls.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub reserve: Amount,
    /// The time of its acceptance.
    #[serde(default)]
    pub created_at: Timestamp,
    /// The time of its last change.
    #[serde(default)]
    pub updated_at: Timestamp,
}

pub(super) fn is_nothing(amount: &Amount) -> bool {
    *amount == Amount::default()
}

/// The name under which an account holds what is set aside for a job; its calls draw on it.
pub(crate) fn hold_of(job: &str) -> Arc<str> {
    format!("job:{job}").into()
}

pub(super) fn is_zero(depth: &usize) -> bool {
    *depth == 0
}

/// A wait as a job's head shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The step that waits.
    pub step: Step,
    /// The wait.
    #[serde(flatten)]
    pub wait: Wait,
}
