//! Requests to start jobs, and filters of jobs.

use std::sync::Arc;

use neurons::Tier;
use neurons::llm::Class;
use neurons::tools::EffectScope;
use store::ledger::Amount;
use store::{Event, PrincipalId};

use crate::JobId;
use crate::job::Head;
use crate::run::Status;
use crate::spec::FascicleId;
use crate::step_scheduler::Priority;

/// A request to start a job.
#[derive(Clone, Default)]
pub struct JobOrder {
    /// The id of the job and idempotency key of the request: a repetition starts no second job. `None` generates an id.
    pub id: Option<JobId>,
    /// The id of the fascicle.
    pub fascicle: FascicleId,
    /// The owner of the job's tools.
    pub owner: Arc<str>,
    /// The account that pays.
    pub account: Arc<str>,
    /// The input events.
    pub events: Vec<Event>,
    /// The tier that overrides the tiers of the neurons; `None` keeps them.
    pub tier: Option<Tier>,
    /// The maximum number of output tokens. It only lowers the bounds of the neurons.
    pub output_tokens_max: Option<u32>,
    /// The scheduling class of the job's calls; `None` derives it from the principal.
    pub class: Option<Class>,
    /// The priority of the job within its class.
    pub priority: Priority,
    /// The deadline in seconds; `None` uses the fascicle's default.
    pub deadline_s: Option<u64>,
    /// The hash of the request. `start` stores it in the head; a caller that starts a job under an id of a client's
    /// compares it there, to find a reuse of the id for another request.
    pub ordered: String,
    /// The nesting depth of fascicle tools.
    pub depth: usize,
    /// The invocation that calls the job as a tool.
    pub parent: Option<Arc<str>>,
    /// The work in which the job's calls have their effects, if it is more than one job: a message, a goal, a due schedule.
    /// `None` is each step of the job.
    pub scope: Option<EffectScope>,
    /// The outermost job for which the job is called as a tool.
    pub root: Option<JobId>,
    /// `true` if an untrusted speaker caused the job: tool calls with external effects then wait for an approval.
    pub untrusted: bool,
    /// The authors of the definitions that start the job, outermost first; empty if a principal starts it directly.
    pub authors: Vec<PrincipalId>,
    /// The principals besides operators who may approve the job's tool calls.
    pub approvers: Vec<PrincipalId>,
    /// The amount reserved for the job's calls. The calls may also use other free funds of the account, and the rest is
    /// released at the end.
    pub reserve: Amount,
}

/// A filter of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// The status; `None` selects all.
    pub status: Option<Status>,
    /// The fascicle; `None` selects all.
    pub fascicle: Option<FascicleId>,
}

impl JobFilter {
    pub(super) fn fits(&self, head: &Head) -> bool {
        self.status.is_none_or(|status| head.status == status)
            && self.fascicle.as_ref().is_none_or(|fascicle| head.fascicle == *fascicle)
    }
}
