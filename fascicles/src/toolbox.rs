//! What a fascicle's tool nodes may call: the hands of whoever owns the job.

use std::sync::Arc;

use async_trait::async_trait;
use neurons::llm::Delta;
use nexus::{Event, Origin};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::JobId;
use crate::run::Step;
use crate::spec::NodeId;

/// Which call this is. `job` and `step` together are its idempotency key: after a crash the same call
/// comes again, and doing it twice must be doing it once.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The job.
    pub job: JobId,
    /// The step.
    pub step: Step,
    /// The node, by its name in its fascicle.
    pub node: NodeId,
    /// 1 for the first try.
    pub attempt: u32,
    /// For whom, and what led to it.
    pub origin: Origin,
    /// What the job works on.
    pub input: Arc<[Event]>,
    /// What the node reads.
    pub events: Vec<Event>,
}

impl ToolContext {
    /// The last event of a role among those the node reads.
    pub fn event(&self, role: &str) -> Option<&Event> {
        self.events.iter().rev().find(|event| &*event.role == role)
    }
}

/// Why a tool failed.
#[derive(Clone, Debug)]
pub struct ToolFailure {
    /// What went wrong.
    pub message: String,
    /// Whether another try may help.
    pub retry: bool,
}

impl ToolFailure {
    /// A failure that another try would only repeat.
    pub fn fatal(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), retry: false }
    }

    /// A failure that may pass.
    pub fn passing(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), retry: true }
    }
}

/// See the module.
#[async_trait]
pub trait Toolbox: Send + Sync + 'static {
    /// Calls a tool.
    async fn call(&self, name: &Arc<str>, arguments: &Value, context: &ToolContext) -> Result<Value, ToolFailure>;

    /// Whether a tool only reads: after a crash it is called again, so what it answered is kept with whatever follows from
    /// it instead of at once. What its stages tell the world is then told a little later, too.
    fn only_reads(&self, _name: &str) -> bool {
        false
    }

    /// Where what a streaming neuron says goes; `None` shows it to nobody.
    async fn listen(&self, context: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure>;
}
