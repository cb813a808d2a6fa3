//! The facts of a job. Each fact is a journal entry, and the facts alone determine the state of the job.

use std::sync::Arc;

use neurons::neuron::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Event, Timestamp};
use utoipa::ToSchema;

/// Names a step: a node, `each[3]` of a map or a repeat, `plan/draft` within a fascicle, `plan!/draft` within the one
/// that is run instead when that failed.
pub type Step = Arc<str>;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fact")]
pub enum Fact {
    /// The job was accepted with this input.
    Accepted {
        /// The input.
        events: Vec<Event>,
        /// The deadline.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_at: Option<Timestamp>,
    },
    /// A step was announced; its work may be under way.
    Started {
        /// The step's id.
        #[serde(alias = "node")]
        step: Step,
        /// 1 for the first try.
        attempt: u32,
        /// `true` if the node's fall-back is tried.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fall_back: bool,
    },
    /// A step waits for the world.
    Paused {
        /// The step's id.
        step: Step,
        /// The wait.
        wait: Wait,
    },
    /// A wait was answered.
    Answered {
        /// The number of the wait.
        wait: u32,
        /// Names the answer.
        body: String,
    },
    /// A step ended; it is never run again.
    Done {
        /// The step's id.
        #[serde(alias = "node")]
        step: Step,
        /// The output.
        output: Value,
    },
    /// A step has nothing to do, or failed where that is allowed; its output is null.
    Passed {
        /// The step's id.
        step: Step,
    },
    /// Too few edges of a node fired.
    Skipped {
        /// The step's id.
        step: Step,
    },
    /// A try of a step failed.
    Failed {
        /// The step's id.
        #[serde(alias = "node")]
        step: Step,
        /// The reason.
        error: String,
        /// `true` if another try may help.
        retry: bool,
    },
    /// A node failed, and with it the fascicle.
    Broken {
        /// The step's id.
        step: Step,
    },
    /// A node failed, and what needs it is not run.
    GivenUp {
        /// The step's id.
        step: Step,
    },
    /// The daemon stopped while a step was under way.
    Interrupted {
        /// The step's id.
        #[serde(alias = "node")]
        step: Step,
    },
    /// A step brought text from a principal that the job's owner does not trust. From here on calls of tools that
    /// change something outside wait for an approval.
    Tainted {
        /// The step's id.
        step: Step,
    },
    /// A job that failed is taken up again where it failed.
    Retried,
    /// An event for observers.
    Observed(Observed),
    /// The job ended.
    Ended {
        /// The final status.
        status: Status,
        /// The reason of a failure.
        error: Option<String>,
    },
}

impl Fact {
    /// Returns `true` if the stored text of a fact is that of an event for observers. Clients that poll a job want only
    /// those, and need not read the outputs in the others.
    pub fn is_observed(kept: &[u8]) -> bool {
        kept.starts_with(br#"{"fact":"observed""#)
    }

    /// Returns `true` if the stored text of a fact may be that of an end, or of the beginning of a wait.
    pub fn ends_or_waits(kept: &[u8]) -> bool {
        kept.starts_with(br#"{"fact":"ended""#) || kept.starts_with(br#"{"fact":"paused""#)
    }
}

/// A wait of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Counts the waits of the job from 1.
    pub n: u32,
    /// The kind of wait.
    pub pause: Pause,
    /// The time at which the wait is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The kind of a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "for")]
pub enum Pause {
    /// The results of the client's tools.
    Tools {
        /// The calls for the client to make.
        tool_calls: Vec<ToolCall>,
    },
    /// Somebody's approval.
    Approval {
        /// The question.
        message: String,
        /// The principals besides operators who may approve.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        by: Vec<Arc<str>>,
        /// The exact content to approve.
        #[schema(value_type = Vec<Object>)]
        events: Vec<Event>,
    },
    /// An event.
    Event {
        /// The name of the event.
        #[schema(value_type = String)]
        event: Arc<str>,
    },
}

/// An event for observers, as the author of the fascicle defines it (F4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Observed {
    /// `evt_` and the ordinal among the job's observable events, at least three digits.
    pub id: String,
    /// The stage.
    #[schema(value_type = String)]
    pub stage: Arc<str>,
    /// `stage_started`, `info`, `stage_completed` or `stage_failed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The message.
    pub message: String,
    /// Parts of the stage's output.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
}

impl Observed {
    /// Returns the ordinal.
    pub fn ordinal(&self) -> u64 {
        ordinal(&self.id).unwrap_or(0)
    }
}

/// The ordinal in an event's id, `evt_012` or `12`.
pub fn ordinal(id: &str) -> Option<u64> {
    id.strip_prefix("evt_").unwrap_or(id).parse().ok()
}

/// The status of a job (F3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, nothing started.
    #[default]
    Pending,
    /// Something is under way.
    Running,
    /// Some of it waits for the client's tools; the rest goes on.
    WaitingForTools,
    /// Some of it waits for an approval; the rest goes on.
    WaitingForApproval,
    /// The job has its output.
    Completed,
    /// The job has failed.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl Status {
    /// Returns `true` for a final status.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_look_for_is_told_apart_by_its_beginning() {
        let told = Observed { id: "evt_001".into(), stage: "a".into(), ..Observed::default() };
        assert!(Fact::is_observed(&store::json(&Fact::Observed(told))));
        let output = serde_json::json!({"fact": "observed"});
        let done = store::json(&Fact::Done { step: "a".into(), output });
        assert!(!Fact::is_observed(&done) && !Fact::ends_or_waits(&done));
        let ended = Fact::Ended { status: Status::Completed, error: None };
        let wait = Wait { n: 1, pause: Pause::Event { event: "e".into() }, expires_at: None };
        for fact in [ended, Fact::Paused { step: "a".into(), wait }] {
            assert!(Fact::ends_or_waits(&store::json(&fact)));
        }
    }
}
