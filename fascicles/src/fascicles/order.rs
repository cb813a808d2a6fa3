//! Orders and filters of jobs.

use std::sync::Arc;

use neurons::Tier;
use neurons::llm::Class;
use store::ledger::Amount;
use store::{Event, PrincipalId};

use crate::JobId;
use crate::job::Head;
use crate::run::Status;
use crate::spec::FascicleId;
use crate::turns::Priority;

/// The order of a job.
#[derive(Clone, Default)]
pub struct JobOrder {
    /// The job's name; the same order twice is one job. Made when absent.
    pub id: Option<JobId>,
    /// The fascicle.
    pub fascicle: FascicleId,
    /// The owner of its tools.
    pub owner: Arc<str>,
    /// The account that pays.
    pub account: Arc<str>,
    /// The input.
    pub events: Vec<Event>,
    /// A tier that overrides the neurons' own.
    pub tier: Option<Tier>,
    /// A bound that only lowers the neurons' own.
    pub output_tokens_max: Option<u32>,
    /// The class of its calls; by its principal if absent.
    pub class: Option<Class>,
    /// The principal in whose queue the work waits, within its class.
    pub priority: Priority,
    /// Seconds it may take; the fascicle's own when absent.
    pub deadline_s: Option<u64>,
    /// The hash of what was ordered.
    pub ordered: String,
    /// The nesting depth of fascicle tools.
    pub depth: usize,
    /// The invocation that calls it as a tool.
    pub parent: Option<Arc<str>>,
    /// `true` if an untrusted speaker asked for it: tool calls that change something outside then wait for an approval.
    pub untrusted: bool,
    /// Authors of the definitions that order it, outermost first; empty when a principal orders it itself.
    pub authors: Vec<PrincipalId>,
    /// The amount that is reserved for its calls while it runs. They may draw on other free amounts, and the rest is
    /// returned.
    pub reserve: Amount,
}

/// A selection of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// The status.
    pub status: Option<Status>,
    /// The fascicle.
    pub fascicle: Option<FascicleId>,
}

impl JobFilter {
    pub(super) fn fits(&self, head: &Head) -> bool {
        self.status.is_none_or(|status| head.status == status)
            && self.fascicle.as_ref().is_none_or(|fascicle| head.fascicle == *fascicle)
    }
}
