//! Fascicles: workflows of neurons and tools as data, run as supervised jobs (MISSION rows F1–F6).
//!
//! `FascicleSpec` (data) → `Graph` (can only be built valid) → `Run` (pure) → a job actor that commits
//! before it acts. A finished step is never run again.

mod fascicles;
pub mod graph;
pub mod job;
pub mod run;
pub mod spec;
pub mod toolbox;

use std::sync::Arc;

pub use fascicles::{Fascicles, JobOrder};
pub use job::Head as JobHead;
pub use spec::{FascicleId, FascicleSpec, NodeId};
pub use toolbox::{ToolContext, ToolFailure, Toolbox};

/// Names a job.
pub type JobId = Arc<str>;

/// Why a fascicle was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum FascicleError {
    /// Nobody defined it.
    #[error("fascicle {0} not found")]
    NotFound(FascicleId),
    /// There is no such job.
    #[error("job {0} not found")]
    JobNotFound(JobId),
    /// Its definition is not well made.
    #[error("{0}")]
    Spec(String),
    /// A node waits for one that does not exist.
    #[error("node {node} waits for {after}, which does not exist")]
    UnknownNode {
        /// The one that waits.
        node: NodeId,
        /// What it waits for.
        after: NodeId,
    },
    /// Nodes wait for each other.
    #[error("edge {from} -> {to} closes a cycle")]
    Cycle {
        /// Where the edge starts.
        from: NodeId,
        /// Where it ends.
        to: NodeId,
    },
    /// Too much is running.
    #[error("too many jobs are running")]
    Overloaded,
    /// Its actor ended.
    #[error("the job died: {0}")]
    Died(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] nexus::StoreError),
}
