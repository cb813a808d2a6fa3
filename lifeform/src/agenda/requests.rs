//! Requests for goals and schedules.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AimId, GoalStatus};
use crate::canvas::Refusal;

/// A request for a new goal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoalSpec {
    /// The title, in a line.
    pub title: String,
    /// The description.
    pub description: String,
    /// The goal that it serves.
    pub parent: Option<AimId>,
    /// The time at which it is pursued; at once if absent.
    pub at: Option<Timestamp>,
    /// The deadline.
    pub deadline: Option<Timestamp>,
}

/// A change of a goal; absent members stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoalChange {
    /// The title, in a line.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The status.
    pub status: Option<GoalStatus>,
    /// The time at which it is pursued next.
    pub at: Option<Timestamp>,
    /// The deadline.
    pub deadline: Option<Timestamp>,
    /// The plan.
    pub plan: Option<Vec<String>>,
    /// A note to be added.
    pub note: Option<String>,
}

/// A request for a new schedule: with `cron` or with `at`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleSpec {
    /// The task.
    pub what: String,
    /// A cron pattern of five fields.
    pub cron: Option<String>,
    /// The time zone of the pattern, UTC when absent.
    pub zone: Option<String>,
    /// The time of a single run.
    pub at: Option<Timestamp>,
    /// The topic of its chat in which it is spoken of; one of its own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<Arc<str>>,
    /// `true` for a reminder: its text is posted as it is, without a model.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remind: bool,
}

/// The outcome of pursuing a goal, as a model writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Outcome {
    /// The further plan.
    pub(crate) plan: Vec<String>,
    /// The message to people; mostly empty.
    pub(crate) say: String,
    /// `active`, `blocked` or `done`.
    pub(crate) status: Option<GoalStatus>,
    /// Minutes until it is taken up again; 0 is not by itself.
    pub(crate) again_in_minutes: u32,
    /// Goals that serve it.
    pub(crate) subgoals: Vec<String>,
    /// The schedules that the lifeform sets for itself.
    pub(crate) schedules: Vec<OwnSchedule>,
    /// `true` if a research was made for it.
    #[serde(skip)]
    pub(crate) researched: bool,
}

/// A schedule that it sets for itself, as a model has it: once, after so many minutes, or by a cron pattern.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct OwnSchedule {
    /// The task.
    pub(crate) what: String,
    /// After so many minutes.
    pub(crate) in_minutes: u32,
    /// By this pattern.
    pub(crate) cron: String,
}

pub(super) fn schema(path: &str, message: impl ToString) -> Refusal {
    Refusal::schema(path, message)
}
