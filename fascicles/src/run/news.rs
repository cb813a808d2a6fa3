//! What a job is told, and what follows from it for whoever runs it.

use std::sync::Arc;

use neurons::neuron::{ToolCall, ToolResult};
use nexus::{Event, Timestamp};
use serde_json::Value;

use super::{Fact, Step};
use crate::graph::{Authors, Leaf};

/// What a job is told.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// It was accepted.
    Accepted {
        /// What it works on.
        events: Vec<Event>,
        /// When it is given up.
        deadline_at: Option<Timestamp>,
    },
    /// A try of a step has ended.
    Done {
        /// The step's id.
        step: Step,
        /// Which try.
        attempt: u32,
        /// Its output.
        output: Value,
        /// `true` if the output holds text from a principal that the job's owner does not trust.
        untrusted: bool,
    },
    /// A try of a step has failed.
    Failed {
        /// The step's id.
        step: Step,
        /// Which try.
        attempt: u32,
        /// Why.
        error: String,
        /// Whether another try may help.
        retry: bool,
    },
    /// A step needs its client's tools.
    Paused {
        /// The step's id.
        step: Step,
        /// Which try.
        attempt: u32,
        /// What is to be called.
        calls: Vec<ToolCall>,
    },
    /// A wait was answered.
    Answered {
        /// Which wait.
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
    /// It cannot go on.
    GivenUp(String),
    /// Somebody takes it up again.
    Retried,
}

/// An answer to a wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// What the tools brought.
    Results(Vec<ToolResult>),
    /// Whether it is approved.
    Approval {
        /// Yes or no.
        approved: bool,
        /// Why.
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

/// What must be done once the facts are committed.
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
    /// Whether this try, or one that it goes on from, was under way before, so that some of it may be done.
    pub again: bool,
    /// Whether the job's output does not come from it.
    pub is_afterthought: bool,
    /// What is done.
    pub(crate) leaf: Arc<Leaf>,
    /// Authors of the step, outermost first.
    pub(crate) authors: Authors,
    /// `true` once the job has read untrusted text: see [`Fact::Tainted`](super::Fact::Tainted).
    pub(crate) untrusted: bool,
    /// What the job works on.
    pub input: Arc<[Event]>,
    /// What it reads.
    pub events: Vec<Event>,
    /// Milliseconds to wait before.
    pub delay_ms: u64,
    /// Seconds it may take.
    pub timeout_s: Option<u64>,
}

/// What follows from news.
#[derive(Debug, Default)]
pub struct Outcome {
    /// To be committed, all together.
    pub facts: Vec<Fact>,
    /// To be done afterwards.
    pub effects: Vec<Effect>,
}

/// What became of an answer to a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is waited for.
    Open,
    /// This very answer was given before.
    Given,
    /// Another answer was given before.
    GivenOther,
    /// It was given up.
    Over,
    /// There never was such a wait.
    Unknown,
}
