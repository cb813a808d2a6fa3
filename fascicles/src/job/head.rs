//! The stored head of a job.

use std::sync::Arc;

use neurons::Tier;
use neurons::llm::Class;
use neurons::tools::EffectScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::ledger::Amount;
use store::{Origin, PrincipalId, Timestamp};

use crate::JobId;
use crate::run::{Status, Step, Wait};
use crate::spec::FascicleId;
use crate::step_scheduler::Priority;

/// The stored head of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The id of the job.
    pub id: JobId,
    /// The id of the fascicle.
    pub fascicle: FascicleId,
    /// The hash of the plan that the job started with.
    #[serde(default)]
    pub plan: Option<String>,
    /// The owner of the job's tools.
    pub owner: Arc<str>,
    /// The account that pays.
    pub account: Arc<str>,
    /// The origin on whose behalf the job runs.
    pub origin: Origin,
    /// The status.
    pub status: Status,
    /// The current observed stage.
    pub current_stage: Option<Arc<str>>,
    /// The open waits.
    #[serde(default)]
    pub waits: Vec<Waiting>,
    /// The output.
    pub output: Value,
    /// The reason of a failure.
    pub error: Option<String>,
    /// The tier that overrides the tiers of the neurons; `None` keeps them.
    pub tier: Option<Tier>,
    /// The maximum number of output tokens. It only lowers the bounds of the neurons.
    pub output_tokens_max: Option<u32>,
    /// The scheduling class of the job's calls; `None` derives it from the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The priority of the job's steps within their class; default `normal`.
    #[serde(default)]
    pub priority: Priority,
    /// The hash of the request, to detect a reuse of the job's name for another request.
    #[serde(default)]
    pub ordered: String,
    /// The nesting depth of fascicle tools.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: usize,
    /// The invocation that called the job as a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<str>>,
    /// The work in which the job's calls have their effects; `None` for each of its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<EffectScope>,
    /// The outermost job for which this one was called as a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<JobId>,
    /// `true` if an untrusted speaker caused the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untrusted: bool,
    /// The authors of the definitions that started the job, outermost first. Its steps act with the rights that all of
    /// them have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<PrincipalId>,
    /// The principals besides operators who may approve the job's tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<PrincipalId>,
    /// The amount reserved for the job's calls.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub reserve: Amount,
    /// The size of the input in bytes; it decides how many places the job takes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub input_bytes: usize,
    /// The time at which the job was accepted.
    #[serde(default)]
    pub created_at: Timestamp,
    /// The time of its last change.
    #[serde(default)]
    pub updated_at: Timestamp,
}

pub(super) fn is_nothing(amount: &Amount) -> bool {
    *amount == Amount::default()
}

/// Returns the name of a job's reservation in its account. The job's calls are paid from it.
pub(crate) fn hold_of(job: &str) -> Arc<str> {
    format!("job:{job}").into()
}

pub(super) fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// An open wait in a job's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The step that waits.
    pub step: Step,
    /// The wait.
    #[serde(flatten)]
    pub wait: Wait,
}
