//! Requests for goals and schedules.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::checks::{check_line, next_of};
use super::plan::{StepId, StepOutcome};
use super::{AgendaItemId, GoalStatus, Question};
use crate::canvas::Refusal;

/// A request for a new goal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GoalSpec {
    /// The title, one line.
    pub title: String,
    /// The description.
    pub description: String,
    /// The parent goal that this goal serves.
    #[schema(value_type = Option<String>)]
    pub parent: Option<AgendaItemId>,
    /// The time at which the lifeform pursues the goal; immediately if absent.
    pub at: Option<Timestamp>,
    /// The deadline.
    pub deadline: Option<Timestamp>,
    /// The principals whose words led to the goal, besides its author.
    #[serde(skip)]
    #[schema(ignore)]
    pub behind: BTreeSet<Arc<str>>,
    /// The topic of the lifeform's own chat in which it was asked for.
    #[serde(skip)]
    #[schema(ignore)]
    pub topic: Option<Arc<str>>,
}

/// A change of a goal. Absent members stay unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GoalChange {
    /// The title, one line.
    pub title: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// The status.
    pub status: Option<GoalStatus>,
    /// The next time at which the lifeform pursues the goal.
    pub at: Option<Timestamp>,
    /// The deadline.
    pub deadline: Option<Timestamp>,
    /// The plan.
    pub plan: Option<Vec<String>>,
    /// A note to add.
    pub note: Option<String>,
}

/// A request for a new schedule: with `cron` or with `at`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleSpec {
    /// The task.
    pub what: String,
    /// The cron pattern of five fields.
    pub cron: Option<String>,
    /// The time zone of the pattern (default: UTC).
    pub zone: Option<String>,
    /// The time of a single run.
    pub at: Option<Timestamp>,
    /// The chat topic for messages about the schedule; if absent, a separate topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<Arc<str>>,
    /// `true` for a reminder: the lifeform posts the text unchanged, without a model.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub remind: bool,
}

impl ScheduleSpec {
    /// Checks the request and returns the time of the first run from `now` on.
    ///
    /// # Errors
    /// [`Refusal::Schema`] names the invalid member.
    pub(super) fn first(&self, now: Timestamp) -> Result<Timestamp, Refusal> {
        check_line("what", &self.what)?;
        if let Some(topic) = &self.topic {
            neurons::spec::check_id(topic).map_err(|message| schema("topic", message))?;
        }
        match (&self.cron, self.at) {
            (Some(cron), None) => next_of(cron, self.zone.as_deref(), now),
            (None, Some(at)) if self.zone.is_none() => Ok(at),
            (None, Some(_)) => Err(schema("zone", "it is for cron; at names its own")),
            _ => Err(schema("cron", "a schedule has either cron or at")),
        }
    }
}

/// The outcome of pursuing a goal, as a model writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Outcome {
    /// The further plan.
    pub(crate) plan: Vec<String>,
    /// The message to people; empty in most cases.
    pub(crate) say: String,
    /// The new status: `active`, `blocked` or `done`.
    pub(crate) status: Option<GoalStatus>,
    /// The number of minutes until the lifeform resumes the goal; 0 means a day, unless it waits for something.
    pub(crate) again_in_minutes: u32,
    /// The titles of new subgoals.
    pub(crate) subgoals: Vec<String>,
    /// The schedules that the lifeform sets for itself.
    pub(crate) schedules: Vec<OwnSchedule>,
    /// The steps that the job carried out.
    #[serde(skip)]
    pub(crate) steps: Vec<String>,
    /// `true` if the job did research for the goal.
    #[serde(skip)]
    pub(crate) researched: bool,
    /// The researched questions without a finding.
    #[serde(skip)]
    pub(crate) not_found: Vec<String>,
    /// The outcomes of the steps of the plan that the job carried out, with the effects of each.
    #[serde(skip)]
    pub(crate) wave: Vec<(StepId, StepOutcome, Vec<Arc<str>>)>,
    /// The principals whose words led to this outcome, besides those behind the goal.
    #[serde(skip)]
    pub(crate) strangers: Vec<Arc<str>>,
    /// `true` if the results of the steps may hold words of others.
    #[serde(skip)]
    pub(crate) foreign: bool,
    /// `true` if the plan stands, so that the next wave needs no model.
    #[serde(skip)]
    pub(crate) goes_on: bool,
    /// `true` if the lifeform resumes the goal now.
    #[serde(skip)]
    pub(crate) at_once: bool,
    /// `true` if the goal does not go on without an answer to the message, so that no share keeps it back.
    #[serde(skip)]
    pub(crate) is_needed: bool,
    /// The question about the plan that the message asks.
    #[serde(skip)]
    pub(crate) asks: Option<Question>,
    /// The message that the job posted.
    #[serde(skip)]
    pub(crate) said: Option<Arc<str>>,
}

/// A schedule that the lifeform sets for itself, as a model writes it: once after some minutes, or by a cron pattern.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct OwnSchedule {
    /// The task.
    pub(crate) what: String,
    /// The delay in minutes.
    pub(crate) in_minutes: u32,
    /// The cron pattern.
    pub(crate) cron: String,
}

pub(super) fn schema(path: &str, message: impl ToString) -> Refusal {
    Refusal::schema(path, message)
}
