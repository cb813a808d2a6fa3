//! Fascicles: workflows of neurons and tools, defined as data and run as supervised jobs (MISSION rows F1–F6).
//!
//! `FascicleSpec` (data) → `Graph` (validated) → `Run` (pure) → a job actor that commits before it acts. A finished
//! step is never run again.

mod assembled;
mod build;
mod catalogue;
mod draw;
mod dry_run;
mod fascicle_tool;
mod fascicles;
mod fault;
mod graph;
mod job;
mod mapping;
mod observe;
mod retention;
pub mod run;
pub mod spec;
mod step_scheduler;
mod toolbox;
pub mod work;

use std::sync::Arc;

use neurons::definition_quota::Refused;

pub use catalogue::{Definitions, Version, read, schema};
pub use draw::{dot, mermaid};
pub use dry_run::{DryRun, Script, StepTaken};
pub use fascicles::{
    Approval, Decided, Decider, Ended, Fascicles, JobFilter, JobOrder, PersonsDecision, Question, approval_id,
};
pub use fault::{Fault, Faults};
pub use graph::{Graph, Plan};
pub use job::{Head as JobHead, Waiting};
pub use spec::{FascicleId, FascicleSpec, NodeId};
pub use step_scheduler::Priority;
pub use toolbox::{ToolContext, ToolFailure, Toolbox};

/// The id of a job.
pub type JobId = Arc<str>;

/// The reason why a fascicle was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum FascicleError {
    /// The fascicle does not exist.
    #[error("fascicle {0} not found")]
    NotFound(FascicleId),
    /// The id is taken.
    #[error("fascicle {0} exists already")]
    Exists(FascicleId),
    /// The fascicle is shipped with the daemon.
    #[error("fascicle {0} is shipped with the daemon and cannot be changed")]
    Shipped(FascicleId),
    /// The caller is neither an operator nor an approver that the definition names.
    #[error("only an operator, or an approver that the definition names, approves this")]
    NotApprover,
    /// The caller is neither the owner of the fascicle nor an operator.
    #[error("fascicle {0} belongs to {1}")]
    NotOwner(FascicleId, store::PrincipalId),
    /// Other fascicles use this fascicle.
    #[error("fascicle {0} is used by {1:?}")]
    InUse(FascicleId, Vec<FascicleId>),
    /// The definition is malformed.
    #[error("{0}")]
    Invalid(Faults),
    /// The job does not exist, or belongs to another principal.
    #[error("job {0} not found")]
    JobNotFound(JobId),
    /// Only failed jobs can be retried.
    #[error("job {0} has not failed")]
    NotFailed(JobId),
    /// The owner of the job, whose tools it needs, is not running.
    #[error("{0}, the owner of this job, is not running")]
    NoOwner(Arc<str>),
    /// The token names no wait of this job.
    #[error("no wait has this token")]
    NoWait,
    /// The wait has expired or was answered.
    #[error("this wait has expired or was answered")]
    Expired,
    /// The answer does not match the question.
    #[error("{0}")]
    Answer(String),
    /// The input is too large.
    #[error("the input has {bytes} bytes, the bound is {max}")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
        /// The maximum in bytes.
        max: usize,
    },
    /// The caller has another token with more rights, which its definitions would run with.
    #[error("{0} has a token with more rights, and what it defines runs with them: define it with that one")]
    LesserToken(store::PrincipalId),
    /// The caller has the maximum number of stored definitions.
    #[error("{0} definitions of yours are stored, which is the most: delete one first")]
    TooManyDefinitions(u64),
    /// The maximum number of running jobs is reached.
    #[error("too many jobs are running")]
    Overloaded,
    /// The maximum number of running jobs of one caller is reached.
    #[error("too many jobs of yours are running: wait for some, or cancel them")]
    Share,
    /// The actor of the job ended without an answer.
    #[error("the job died: {0}")]
    Died(String),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

impl From<Refused> for FascicleError {
    fn from(why: Refused) -> Self {
        match why {
            Refused::TooMany(max) => Self::TooManyDefinitions(max),
            Refused::Store(error) => Self::Store(error),
        }
    }
}

impl From<store::NoPlace> for FascicleError {
    fn from(why: store::NoPlace) -> Self {
        match why {
            store::NoPlace::Share => Self::Share,
            store::NoPlace::All => Self::Overloaded,
        }
    }
}
