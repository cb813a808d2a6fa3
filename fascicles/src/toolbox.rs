//! The tools that a fascicle's tool nodes may call: those of the job's owner.

use std::sync::Arc;

use async_trait::async_trait;
use neurons::llm::Delta;
use serde_json::Value;
use store::{Event, Origin};
use tokio::sync::mpsc;

use crate::JobId;
use crate::run::{Step, Taint};
use crate::spec::NodeId;

/// The context of a tool call. `job` and `step` together are its idempotency key: after a crash the call is repeated,
/// and two calls must have the effect of one.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The id of the job.
    pub job: JobId,
    /// The path of the step.
    pub step: Step,
    /// The id of the node in its fascicle.
    pub node: NodeId,
    /// The number of the try, from 1.
    pub attempt: u32,
    /// The origin on whose behalf the call is made, with its causes.
    pub origin: Origin,
    /// The input of the job.
    pub input: Arc<[Event]>,
    /// The events that the node reads.
    pub events: Vec<Event>,
    /// The untrusted text that the steps of the job have read so far.
    pub taint: Taint,
}

impl ToolContext {
    /// Returns the last event of a role among the events that the node reads.
    pub fn event(&self, role: &str) -> Option<&Event> {
        self.events.iter().rev().find(|event| &*event.role == role)
    }
}

/// The failure of a tool.
#[derive(Clone, Debug)]
pub struct ToolFailure {
    /// The reason.
    pub message: String,
    /// `true` if the call may be retried.
    pub retry: bool,
}

impl ToolFailure {
    /// Creates a permanent failure, which is not retried.
    pub fn fatal(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), retry: false }
    }

    /// Creates a transient failure, which is retried.
    pub fn passing(error: impl std::fmt::Display) -> Self {
        Self { message: error.to_string(), retry: true }
    }
}

/// The tools of a job's owner: see the module.
#[async_trait]
pub trait Toolbox: Send + Sync + 'static {
    /// Calls the tool `name` and returns the node's output, at most 256 KiB of JSON: `{"events": [{role, content}]}` is
    /// passed on as events, null as none, other JSON as one event. `arguments` are the node's, with each `$take`
    /// replaced; null if the node has none.
    ///
    /// # Errors
    /// Returns a [`ToolFailure`]; its `retry` says whether another try may help.
    async fn call(&self, name: &Arc<str>, arguments: &Value, context: &ToolContext) -> Result<Value, ToolFailure>;

    /// Returns `true` if a tool is read-only. After a crash it is called again, so its result is committed together
    /// with the facts that follow from it. The events of its stages are then delayed, too. Default: `false`.
    fn only_reads(&self, _name: &str) -> bool {
        false
    }

    /// Returns the receiver of a streaming neuron's text; `None` disables streaming.
    async fn listen(&self, context: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure>;
}
