//! The input of a job that carries out a goal, a schedule or a maintenance task.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::plan::{PlanStep, steps_or_lines};
use super::{AgendaItemId, GoalStatus};
use crate::maintenance::{Task, Way};
use crate::memory::OpenThing;
use crate::perception::Supply;

/// The role of the input event.
pub(crate) const ERRAND: &str = "errand";

/// The work of a job that the lifeform starts by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Errand {
    /// A maintenance task of the mind.
    Maintenance {
        /// The task.
        maintenance: Task,
        /// The means of the task.
        #[serde(default)]
        supply: Supply,
        /// The way in which it runs.
        #[serde(default)]
        way: Way,
    },
    /// An own thought about an open thing.
    Thought {
        /// The thing.
        thought: Box<OpenThing>,
    },
    /// A goal or a schedule.
    Act(Box<ActErrand>),
}

/// A goal to pursue, or a schedule that is due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ActErrand {
    /// The goal; `None` for a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<AgendaItemId>,
    /// The schedule; `None` for a goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<AgendaItemId>,
    /// The time at which the schedule was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<Timestamp>,
    /// The topic in which the lifeform speaks about the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) speaks_in: Option<Arc<str>>,
    /// The topic in which a requested schedule speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<Arc<str>>,
    /// The title of the goal, or the task of the schedule.
    pub(crate) title: String,
    /// The description of the goal.
    #[serde(default)]
    pub(crate) description: String,
    /// The plan of the goal, step by step.
    #[serde(default, deserialize_with = "steps_or_lines")]
    pub(crate) plan: Vec<PlanStep>,
    /// `true` if the fascicle of the job carries out the steps of the plan.
    #[serde(default)]
    pub(crate) acts: bool,
    /// `true` if some of the people behind the goal may not cause changes outside.
    #[serde(default)]
    pub(crate) by_stranger: bool,
    /// `true` if the person of the goal may approve calls, so that they are shown where the goal speaks.
    #[serde(default)]
    pub(crate) decides: bool,
    /// The reason why the plan is to be looked at; `None` if it stands.
    #[serde(default = "as_before")]
    pub(crate) replan: Option<String>,
    /// The fault of the last plan, which was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fault: Option<String>,
    /// The words by which a plan looked for further tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sought: Vec<String>,
    /// The number of tokens that the goal has used, and with the goals that serve the same topmost goal.
    #[serde(default)]
    pub(crate) own_tokens: u64,
    #[serde(default)]
    pub(crate) spent_tokens: u64,
    /// The number of tokens that the goal may use.
    #[serde(default)]
    pub(crate) budget_tokens: u64,
    /// The latest notes on the goal, oldest first.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// The goals that serve this one.
    #[serde(default)]
    pub(crate) subgoals: Vec<Subgoal>,
    /// The person who set the goal, or the goal above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) asked_by: Option<Arc<str>>,
    /// The title of the goal above, which this one serves, if the same person set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// The description of the goal above, and its latest notes.
    #[serde(default)]
    pub(crate) of_parent: Vec<String>,
    /// The other goals that serve the goal above.
    #[serde(default)]
    pub(crate) siblings: Vec<Subgoal>,
    /// The questions that were researched without a finding.
    #[serde(default)]
    pub(crate) not_found: Vec<String>,
    /// The deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<Timestamp>,
    /// The means of the thought.
    #[serde(default)]
    pub(crate) supply: Supply,
    /// The reason why the job runs now.
    pub(crate) occasion: String,
    /// The principals whose words led to the act.
    #[serde(default)]
    pub(crate) behind: Vec<Arc<str>>,
    /// The ids of the records that are related to the goal.
    #[serde(default)]
    pub(crate) knows: Vec<String>,
    /// The text of these records for a prompt.
    #[serde(default)]
    pub(crate) knowledge: String,
    /// The strangers whose words these records bear.
    #[serde(default)]
    pub(crate) strangers: Vec<String>,
}

/// Returns the reason for an errand of an earlier release, each of which made a plan.
fn as_before() -> Option<String> {
    Some("it is time to look at it again".to_owned())
}

/// A goal that serves another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Subgoal {
    /// The title.
    pub(crate) title: String,
    /// The status.
    pub(crate) status: GoalStatus,
    /// The latest note of the lifeform, which is the result of a goal that is done.
    #[serde(default)]
    pub(crate) result: String,
}
