//! Fascicles: workflows of neurons and tools as data, run as supervised jobs (MISSION rows F1–F6).
//!
//! `FascicleSpec` (data) → `Graph` (can only be built valid) → `Run` (pure) → a job actor that commits
//! before it acts. A finished step is never run again.

mod as_tool;
mod build;
mod catalogue;
mod draw;
mod dry_run;
mod fascicles;
mod fault;
mod graph;
mod job;
mod observe;
mod part;
mod retention;
pub mod run;
pub mod spec;
mod toolbox;
mod turns;
mod work;

use std::sync::Arc;

pub use catalogue::{Definitions, Version, read, schema};
pub use draw::{dot, mermaid};
pub use dry_run::{DryRun, Script, StepTaken};
pub use fascicles::{Ended, Fascicles, JobFilter, JobOrder};
pub use fault::{Fault, Faults};
pub use graph::{Graph, Plan};
pub use job::{Head as JobHead, Waiting};
pub use spec::{FascicleId, FascicleSpec, NodeId};
pub use toolbox::{ToolContext, ToolFailure, Toolbox};
pub use turns::Priority;

/// Names a job.
pub type JobId = Arc<str>;

/// The reason why a fascicle was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum FascicleError {
    /// Nobody defined it.
    #[error("fascicle {0} not found")]
    NotFound(FascicleId),
    /// The id is taken.
    #[error("fascicle {0} exists already")]
    Exists(FascicleId),
    /// The fascicle is shipped with the daemon.
    #[error("fascicle {0} is shipped with the daemon and cannot be changed")]
    Shipped(FascicleId),
    /// Approvals are given by operators, or by those whom the definition names.
    #[error("only an operator approves this, or whom its definition names")]
    NotApprover,
    /// Only its owner and operators change it.
    #[error("fascicle {0} belongs to {1}")]
    NotOwner(FascicleId, store::PrincipalId),
    /// Others are made of it.
    #[error("fascicle {0} is used by {1:?}")]
    InUse(FascicleId, Vec<FascicleId>),
    /// The definition is malformed.
    #[error("{0}")]
    Invalid(Faults),
    /// There is no such job, or it belongs to another principal.
    #[error("job {0} not found")]
    JobNotFound(JobId),
    /// Only a job that failed is taken up again.
    #[error("job {0} has not failed")]
    NotFailed(JobId),
    /// The tools of a job are its owner's.
    #[error("{0}, whose job this is, is not alive")]
    NoOwner(Arc<str>),
    /// No wait goes by this token for this job.
    #[error("nothing waits under this token")]
    NoWait,
    /// The wait was given up.
    #[error("this is no longer waited for")]
    Expired,
    /// The answer is none to what was asked.
    #[error("{0}")]
    Answer(String),
    /// The input is too large.
    #[error("the input has {bytes} bytes, the bound is {max}")]
    TooLarge {
        /// The size in bytes.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// Too much is running.
    #[error("too many jobs are running")]
    Overloaded,
    /// Too much of the caller's is running.
    #[error("too many jobs of yours are running: wait for some, or cancel them")]
    Share,
    /// The actor ended.
    #[error("the job died: {0}")]
    Died(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

impl From<store::NoPlace> for FascicleError {
    fn from(why: store::NoPlace) -> Self {
        match why {
            store::NoPlace::Share => Self::Share,
            store::NoPlace::All => Self::Overloaded,
        }
    }
}
