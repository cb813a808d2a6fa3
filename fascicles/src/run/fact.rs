//! The facts of a job. Each fact is a journal entry, and the facts alone determine the state of the job.

use std::sync::Arc;

use neurons::neuron::ToolCall;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Event, Timestamp};
use utoipa::ToSchema;

use super::Taint;

/// The path of a step in a run: a node, `each[3]` of a map or repeat, `plan/draft` in a fascicle, or `plan!/draft` in
/// the fascicle that runs as a fallback after `plan` failed.
pub type Step = Arc<str>;

/// A fact of a job: see the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fact")]
pub enum Fact {
    /// The job was accepted with this input.
    Accepted {
        /// The input events.
        events: Vec<Event>,
        /// The deadline in UTC; `None` means none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_at: Option<Timestamp>,
    },
    /// A step was started; its work may be running.
    Started {
        /// The step's id.
        #[serde(alias = "node")]
        step: Step,
        /// The number of the try, from 1.
        attempt: u32,
        /// `true` if this is the fallback of the node.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fall_back: bool,
    },
    /// A step waits for the client, an approval or an event.
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
        /// The digest of the answer; a repeated answer has the same digest.
        body: String,
    },
    /// A step completed; it never runs again.
    Done {
        /// The step's id.
        #[serde(alias = "node")]
        step: Step,
        /// The output.
        output: Value,
    },
    /// A step had no work, or failed and its node allows that; its output is null.
    Passed {
        /// The step's id.
        step: Step,
    },
    /// A node was skipped, because too few of its edges fired.
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
        /// `true` if the step may be tried again.
        retry: bool,
    },
    /// A node failed and makes its fascicle fail.
    Broken {
        /// The step's id.
        step: Step,
    },
    /// A node failed; the nodes that need its output do not run.
    GivenUp {
        /// The step's id.
        step: Step,
    },
    /// The daemon stopped while a step was running.
    Interrupted {
        /// The step's id.
        #[serde(alias = "node")]
        step: Step,
    },
    /// A step read text from a principal that the job's owner does not trust. From here on, tool calls with external
    /// effects wait for an approval.
    Tainted {
        /// The step's id.
        step: Step,
        /// The source of the text.
        #[serde(default = "Taint::unknown")]
        by: Taint,
    },
    /// A failed job was retried from the point of its failure.
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
    /// Returns `true` if a stored fact is an event for observers. Clients that poll a job read only these, so the
    /// outputs in other facts need not be parsed.
    pub fn is_observed(kept: &[u8]) -> bool {
        kept.starts_with(br#"{"fact":"observed""#)
    }

    /// Returns `true` if a stored fact may be the end of the job, or the start or the end of a wait.
    pub fn ends_or_waits(kept: &[u8]) -> bool {
        [&br#"{"fact":"ended""#[..], br#"{"fact":"paused""#, br#"{"fact":"answered""#]
            .iter()
            .any(|fact| kept.starts_with(fact))
    }
}

/// A wait of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The number of the wait, counted from 1 within the job.
    pub n: u32,
    /// The kind of wait.
    pub pause: Pause,
    /// The time at which the wait expires; `None` means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The kind of a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "for")]
pub enum Pause {
    /// A wait for the results of the client's tools.
    Tools {
        /// The calls for the client to make.
        tool_calls: Vec<ToolCall>,
    },
    /// A wait for an approval.
    Approval {
        /// The question to the approver.
        message: String,
        /// The principals besides operators who may approve.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(value_type = Vec<String>)]
        by: Vec<Arc<str>>,
        /// The exact content to approve.
        #[schema(value_type = Vec<Object>)]
        events: Vec<Event>,
    },
    /// A wait for an external event.
    Event {
        /// The name of the event.
        #[schema(value_type = String)]
        event: Arc<str>,
    },
}

/// An event for observers, as defined by the author of the fascicle (F4).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Observed {
    /// `evt_` and the ordinal among the job's observable events, at least three digits.
    pub id: String,
    /// The name of the stage.
    #[schema(value_type = String)]
    pub stage: Arc<str>,
    /// `stage_started`, `info`, `stage_completed` or `stage_failed`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The message, rendered from the node's template.
    pub message: String,
    /// The selected parts of the stage's output, by name.
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

/// Parses the ordinal of an event id, given as `evt_012` or `12`.
pub fn ordinal(id: &str) -> Option<u64> {
    id.strip_prefix("evt_").unwrap_or(id).parse().ok()
}

/// The status of a job (F3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The job was accepted, and no step has started.
    #[default]
    Pending,
    /// At least one step is running.
    Running,
    /// At least one step waits for the client's tools; other steps continue.
    WaitingForTools,
    /// At least one step waits for an approval; other steps continue.
    WaitingForApproval,
    /// The job completed and has an output.
    Completed,
    /// The job has failed.
    Failed,
    /// A principal cancelled the job.
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
        let observed = Observed { id: "evt_001".into(), stage: "a".into(), ..Observed::default() };
        assert!(Fact::is_observed(&store::json(&Fact::Observed(observed))));
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
