//! The inputs of a job, and their consequences for its actor.

use std::sync::Arc;

use neurons::neuron::{ToolCall, ToolResult};
use serde_json::Value;
use store::{Event, Timestamp};

use super::{Fact, Step};
use crate::graph::{Authors, Leaf};

/// An input of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The job was accepted.
    Accepted {
        /// The input.
        events: Vec<Event>,
        /// The deadline.
        deadline_at: Option<Timestamp>,
    },
    /// A try of a step has ended.
    Done {
        /// The step's id.
        step: Step,
        /// The number of the try.
        attempt: u32,
        /// The output.
        output: Value,
        /// `true` if the output holds text from a principal that the job's owner does not trust.
        untrusted: bool,
    },
    /// A try of a step has failed.
    Failed {
        /// The step's id.
        step: Step,
        /// The number of the try.
        attempt: u32,
        /// The reason.
        error: String,
        /// `true` if another try may help.
        retry: bool,
    },
    /// A step needs its client's tools.
    Paused {
        /// The step's id.
        step: Step,
        /// The number of the try.
        attempt: u32,
        /// The calls to make.
        calls: Vec<ToolCall>,
    },
    /// A wait was answered.
    Answered {
        /// The number of the wait.
        wait: u32,
        /// Names the answer.
        body: String,
        /// With what.
        answer: Answer,
    },
    /// The daemon stopped while whatever is under way was under way.
    Restarted,
    /// Time has passed.
    Tick,
    /// Somebody stops it.
    Cancelled,
    /// The job cannot continue.
    GivenUp(String),
    /// Somebody takes it up again.
    Retried,
}

/// An answer to a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The results of tools.
    Results(Vec<ToolResult>),
    /// The decision on an approval.
    Approval {
        /// Yes or no.
        approved: bool,
        /// The reason.
        comment: Option<String>,
        /// By whom.
        by: String,
    },
    /// An event's content.
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
    /// Work begins, or goes on.
    Start(Start),
    /// Whatever is under way at or below this step is no longer wanted.
    Stop(Step),
}

/// Work that begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The step's id.
    pub step: Step,
    /// 1 for the first try.
    pub attempt: u32,
    /// The try whose conversation goes on.
    pub conversation: u32,
    /// `true` if this try, or one that it continues, was running before, so that some of it may be done.
    pub again: bool,
    /// `true` if the job's output does not depend on it.
    pub is_afterthought: bool,
    /// The work.
    pub(crate) leaf: Arc<Leaf>,
    /// Authors of the step, outermost first.
    pub(crate) authors: Authors,
    /// `true` once the job has read untrusted text: see [`Fact::Tainted`](super::Fact::Tainted).
    pub(crate) untrusted: bool,
    /// The input of the job.
    pub input: Arc<[Event]>,
    /// The events that it reads.
    pub events: Vec<Event>,
    /// Milliseconds to wait before.
    pub delay_ms: u64,
    /// Seconds it may take.
    pub timeout_s: Option<u64>,
}

/// The consequences of an input.
#[derive(Debug, Default)]
pub struct Outcome {
    /// To be committed, all together.
    pub facts: Vec<Fact>,
    /// To be done afterwards.
    pub effects: Vec<Effect>,
}

/// The state of a wait that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The wait is open.
    Open,
    /// This very answer was given before.
    Given,
    /// Another answer was given before.
    GivenOther,
    /// The wait was given up.
    Over,
    /// There never was such a wait.
    Unknown,
}
