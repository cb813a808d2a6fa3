//! The tools that a fascicle's tool nodes may call: those of the job's owner.

use std::sync::Arc;

use async_trait::async_trait;
use neurons::llm::Delta;
use serde_json::Value;
use store::{Event, Origin};
use tokio::sync::mpsc;

use crate::JobId;
use crate::run::Step;
use crate::spec::NodeId;

/// The context of a tool call. `job` and `step` together are its idempotency key: after a crash the same call comes
/// again, and calling twice must have the effect of calling once.
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
    /// The input of the job.
    pub input: Arc<[Event]>,
    /// The events of the node.
    pub events: Vec<Event>,
}

impl ToolContext {
    /// The last event of a role among those the node reads.
    pub fn event(&self, role: &str) -> Option<&Event> {
        self.events.iter().rev().find(|event| &*event.role == role)
    }
}

/// The failure of a tool.
#[derive(Clone, Debug)]
pub struct ToolFailure {
    /// The reason.
    pub message: String,
    /// `true` if another try may help.
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

    /// Returns `true` if a tool only reads: after a crash it is called again, so its answer is stored with its
    /// consequences instead of at once. The events of its stages then come a little later, too.
    fn only_reads(&self, _name: &str) -> bool {
        false
    }

    /// Returns the receiver of a streaming neuron's text; `None` shows it to nobody.
    async fn listen(&self, context: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure>;
}
