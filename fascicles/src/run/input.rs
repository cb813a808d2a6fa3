//! The inputs of a run, and the facts and effects that follow from them.

use std::sync::Arc;

use neurons::neuron::{ToolCall, ToolResult};
use serde_json::Value;
use store::{Event, Timestamp};

use super::{Fact, Step, Taint};
use crate::graph::{Action, Authors};

/// An input of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum RunInput {
    /// The job was accepted.
    Accepted {
        /// The input events.
        events: Vec<Event>,
        /// The deadline in UTC; `None` means none.
        deadline_at: Option<Timestamp>,
    },
    /// A try of a step has ended.
    Done {
        /// The step's id.
        step: Step,
        /// The number of the try, from 1.
        attempt: u32,
        /// The output.
        output: Value,
        /// The source of untrusted text in the output.
        taint: Taint,
    },
    /// A try of a step has failed.
    Failed {
        /// The step's id.
        step: Step,
        /// The number of the try, from 1.
        attempt: u32,
        /// The reason.
        error: String,
        /// `true` if another try may help.
        retry: bool,
    },
    /// A step waits for tools that the client runs.
    Paused {
        /// The step's id.
        step: Step,
        /// The number of the try, from 1.
        attempt: u32,
        /// The calls for the client to make.
        calls: Vec<ToolCall>,
    },
    /// A wait was answered.
    Answered {
        /// The number of the wait.
        wait: u32,
        /// The digest of the answer; a repeated answer has the same digest.
        body: String,
        /// The answer.
        answer: Answer,
    },
    /// The daemon restarted, so all running work was interrupted.
    Restarted,
    /// A timer fired.
    Tick,
    /// A principal cancelled the job.
    Cancelled,
    /// The job cannot continue, for this reason.
    GivenUp(String),
    /// A principal retries a failed job.
    Retried,
}

/// An answer to a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The results of the client's tools.
    Results(Vec<ToolResult>),
    /// The decision on an approval.
    Approval {
        /// `true` if the principal approved.
        approved: bool,
        /// The comment of the principal.
        comment: Option<String>,
        /// The principal who decided.
        by: String,
    },
    /// The content of the event.
    Event(Value),
}

impl Answer {
    /// Returns `true` for an approval of an `approve` node or of a tool call.
    pub(crate) fn approves(&self) -> bool {
        match self {
            Self::Results(results) => results.iter().any(|result| result.approved == Some(true)),
            Self::Approval { approved, .. } => *approved,
            Self::Event(_) => false,
        }
    }
}

/// The work to do once the facts are committed.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Starts or continues work.
    Start(Start),
    /// Stops all work at or below this step.
    Stop(Step),
}

/// The description of work to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The step's id.
    pub step: Step,
    /// The number of the try, from 1.
    pub attempt: u32,
    /// The number of the try whose conversation is continued.
    pub conversation: u32,
    /// `true` if this try, or a try that it continues, ran before, so parts of its work may be done.
    pub again: bool,
    /// `true` for a background step: the job's output does not depend on it.
    pub is_afterthought: bool,
    /// The work.
    pub(crate) leaf: Arc<Action>,
    /// The authors of the step's definitions, outermost first.
    pub(crate) authors: Authors,
    /// The untrusted text that the job has read so far: see [`Fact::Tainted`](super::Fact::Tainted).
    pub(crate) taint: Taint,
    /// The input of the job.
    pub input: Arc<[Event]>,
    /// The events that the step reads.
    pub events: Vec<Event>,
    /// The delay before the start, in milliseconds.
    pub delay_ms: u64,
    /// The timeout in seconds; `None` means none.
    pub timeout_s: Option<u64>,
}

/// The facts and effects that follow from an input.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The facts, to be committed together.
    pub facts: Vec<Fact>,
    /// The effects, to be performed after the commit.
    pub effects: Vec<Effect>,
}

/// The state of a wait for which an answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// The wait is open.
    Open,
    /// The same answer was given before.
    Given,
    /// A different answer was given before.
    GivenOther,
    /// The wait has ended without an answer.
    Over,
    /// The job never had such a wait.
    Unknown,
}
