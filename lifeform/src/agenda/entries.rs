//! The entries of an agenda: goals with their notes, and schedules.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use knowledge::Record;
use neurons::tools::Grant;
use nexus::kip::graph::text::{terms, terms_of_query};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::PrincipalId;

use super::AgendaItemId;
use super::plan::{PlanStep, StepId, steps_or_lines};

/// The beginning of a note that holds a message of the lifeform.
pub(super) const I_SAID: &str = "I said: ";

/// The status of a goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GoalStatus {
    /// No job has pursued the goal yet.
    #[default]
    Open,
    /// The goal is pursued.
    Active,
    /// The goal needs a person's input.
    Blocked,
    /// The result was reported where the goal was asked for. The person who asked for it confirms it or says what is
    /// missing; without a word, the goal is done after three days.
    Reported,
    /// The goal is reached.
    Done,
    /// The goal was abandoned.
    Dropped,
}

impl Goal {
    /// Returns the sign of words of others, if the results of its steps may hold some.
    pub(crate) fn read_outside(&self) -> Option<Arc<str>> {
        self.plan.iter().any(|step| step.foreign).then(|| nexus::OUTSIDE.into())
    }

    /// Returns the goal without its plan, as the trace shows it.
    pub(crate) fn outline(&self) -> Self {
        Self { plan: Vec::new(), course: Course::default(), ..self.clone() }
    }

    /// Removes, for people who read the goal, the lifeform's own state of the plan, and unless `may_see_calls` also the arguments
    /// and the results of the steps.
    pub fn show_to(&mut self, may_see_calls: bool) {
        self.course = Course::default();
        for step in self.plan.iter_mut().filter(|_| !may_see_calls) {
            (step.with, step.grant, step.result) = (None, None, None);
            step.values.clear();
        }
    }

    /// Returns the topic of the lifeform's own chat in which it speaks about the goal.
    pub(crate) fn speaks_in(&self) -> Arc<str> {
        self.topic.clone().unwrap_or_else(|| format!("goal_{}", self.id).into())
    }

    /// Returns `true` if a person wrote the title and the description, and not a model that understood a talk, a plan or a schedule.
    pub(crate) fn is_in_words_of_a_person(&self) -> bool {
        let is_derived = self.parent.is_some() || self.schedule.is_some() || !self.asked_in.is_empty();
        !is_derived && !self.by.0.starts_with("lifeform:")
    }

    /// Returns the time at which the lifeform looks at the goal before its deadline: a quarter of the time for it is left.
    pub(crate) fn nears_at(&self) -> Option<Timestamp> {
        let deadline = self.deadline?;
        let left = deadline.duration_since(self.course.deadline_set_at.unwrap_or(self.set_at)) / 4;
        deadline.checked_sub(left).ok().filter(|_| left.is_positive())
    }

    /// Returns the latest message of the lifeform about the goal.
    pub(crate) fn asks(&self) -> Option<&str> {
        self.notes.iter().rev().find_map(|note| note.text.strip_prefix(I_SAID))
    }

    /// Returns `true` if a message can be a word for the goal: of its setter, the first one since the goal's question or report, a
    /// judgement of the result, or one that shares a word with the goal or the question; of others, one that shares two words.
    pub(crate) fn concerns(&self, message: &str, is_setter: bool) -> bool {
        let since = self.notes.iter().rev().take_while(|note| !note.text.starts_with(I_SAID));
        let is_first = since.into_iter().all(|note| note.message.is_none());
        match is_setter {
            true => is_first || knowledge::verdict(message).is_some() || self.shared_words(message) > 0,
            false => self.shared_words(message) > 1,
        }
    }

    /// Returns the number of words that a message shares with the goal and its question.
    pub(crate) fn shared_words(&self, message: &str) -> usize {
        let about = format!("{} {} {}", self.title, self.description, self.asks().unwrap_or_default());
        let about = terms_of_query(&about);
        terms(message).into_iter().collect::<BTreeSet<_>>().iter().filter(|word| about.contains(word)).count()
    }
}

impl GoalStatus {
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Dropped)
    }
}

/// A note about the progress of a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = GoalNote)]
pub struct Note {
    /// The time.
    pub at: Timestamp,
    /// The author.
    pub by: PrincipalId,
    /// The text.
    pub text: String,
    /// The principals whose words the noted message bears, besides its author.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub behind: Vec<Arc<str>>,
    /// The noted message; `None` for a note that is not a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub message: Option<Arc<str>>,
}

impl Note {
    /// Creates a note that is not a message of others.
    pub(crate) fn plain(at: Timestamp, by: &PrincipalId, text: String) -> Self {
        Self { at, by: by.clone(), text, behind: Vec::new(), message: None }
    }
}

/// A knowledge record that is related to a goal. Only the readers of the record see its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Related {
    /// The id of the record.
    pub id: Arc<str>,
    /// The quality of the record at the time of the search.
    pub quality: f64,
    /// The time of the search.
    pub at: Timestamp,
}

impl Related {
    /// Converts records to related records, best first.
    pub(crate) fn of(records: &[Record], at: Timestamp) -> Vec<Self> {
        records
            .iter()
            .map(|record| Self { id: record.id.as_str().into(), quality: record.eval.quality(), at })
            .collect()
    }
}

/// A goal of a lifeform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = GoalItself)]
pub struct Goal {
    /// The id.
    #[schema(value_type = String)]
    pub id: AgendaItemId,
    /// The title, one line.
    pub title: String,
    /// The description.
    #[serde(default)]
    pub description: String,
    /// The parent goal that this goal serves.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub parent: Option<AgendaItemId>,
    /// The status.
    pub status: GoalStatus,
    /// The next time at which the lifeform pursues the goal; `None` means that it does not do so by itself.
    #[serde(default)]
    pub next: Option<Timestamp>,
    /// The deadline. The goal is looked at when a quarter of the time is left. When it passes, the goal is pursued once more and
    /// `late` is set.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// The topic of the lifeform's own chat in which the goal was asked for. The lifeform asks and reports there, and
    /// hears answers there; without one, in the topic `goal_{id}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub topic: Option<Arc<str>>,
    /// The message with the question that the goal waits for, or with its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub said: Option<Arc<str>>,
    /// The questions that were researched without a finding. They are not researched again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_found: Vec<String>,
    /// The plan: the steps that are done, and those that are left.
    #[serde(default, deserialize_with = "steps_or_lines")]
    pub plan: Vec<PlanStep>,
    /// The state of the plan.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(ignore)]
    pub(crate) course: Course,
    /// The notes, oldest first.
    #[serde(default)]
    pub notes: Vec<Note>,
    /// The steps that were carried out, oldest first: questions that were researched, and messages that were posted.
    /// The plan says only what is intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// The evidence of progress, as journal references.
    #[serde(default)]
    pub evidence: Vec<Arc<str>>,
    /// The principals whose words the lifeform has read for the goal, besides those that set it and noted on it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub behind: BTreeSet<Arc<str>>,
    /// The author: `user:ada`, `lifeform:…` for the lifeform itself, `system:…` for a goal from its definition.
    pub by: PrincipalId,
    /// The schedule whose due work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub schedule: Option<AgendaItemId>,
    /// The requests for it. A request is one message or several, with spaces between; a message is
    /// `{lifeform}/{canvas}/{topic}/{message}`. A request ends when one of its messages is retracted or purged, and
    /// the goal is removed with its last request.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(ignore)]
    pub asked_in: BTreeSet<Arc<str>>,
    /// The time of creation.
    pub set_at: Timestamp,
    /// The records that were related to the goal when the lifeform last pursued it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(ignore)]
    pub knowledge: Vec<Related>,
    /// The number of research jobs for the goal.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub researched: u32,
    /// The number of times that the lifeform pursued the goal.
    #[serde(default)]
    pub pursued: u32,
    /// The running job that pursues the goal.
    #[serde(default)]
    pub job: Option<Arc<str>>,
    /// `true` once the lifeform has pursued the goal after its deadline.
    #[serde(default)]
    pub late: bool,
}

/// The state of a goal's plan besides its steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Course {
    /// `true` if the plan stands and the next wave needs no model to look at it.
    pub(crate) goes_on: bool,
    /// `true` once the lifeform has looked at the goal shortly before its deadline.
    pub(crate) nears: bool,
    /// The time at which the schedule was due whose work it is.
    pub(crate) due_at: Option<Timestamp>,
    /// The time at which the deadline was changed.
    pub(crate) deadline_set_at: Option<Timestamp>,
    /// `true` if a message about the goal came that no job has read.
    pub(crate) told: bool,
    /// The number of step ids that were given out.
    pub(crate) made: u32,
    /// The number of waves.
    pub(crate) waves: u32,
    /// The number of times that the plan was made or changed since a step was done or a person spoke.
    pub(crate) replans: u32,
    /// The fault of the last plan, which was not taken.
    pub(crate) fault: Option<String>,
    /// The words by which further tools were looked for since a step was done or a person spoke.
    pub(crate) sought: Vec<String>,
    /// The number of tokens that the goal may use, if a person allowed more than the lifeform's own bound.
    pub(crate) budget_tokens: Option<u64>,
    /// The job of the wave that was chosen last, and the choice, for a repetition after a crash.
    pub(crate) ready: Option<(Arc<str>, Value)>,
    /// The question to a person about which the goal waits.
    pub(crate) asks: Option<Question>,
    /// The last such question that was answered, by its message, and the answer.
    pub(crate) decided: Option<(Arc<str>, bool)>,
    /// `true` if the answer was no, and no other plan was made since.
    pub(crate) refused: bool,
    /// The message that answered it, as a journal reference.
    pub(crate) decided_in: Option<Arc<str>>,
}

/// A question about a plan that a word answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "about")]
pub(crate) enum Question {
    /// The permission to use so many tokens.
    Budget {
        /// The number of tokens.
        tokens: u64,
    },
    /// The approval of the calls of these steps.
    Calls {
        /// The steps, with the calls that were shown.
        steps: Vec<(StepId, Grant)>,
    },
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A task that runs once at a given time, or repeatedly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Schedule {
    /// The id.
    #[schema(value_type = String)]
    pub id: AgendaItemId,
    /// The task.
    pub what: String,
    /// The cron pattern of five fields; `None` means that the schedule runs once.
    #[serde(default)]
    pub cron: Option<String>,
    /// The time zone of the cron pattern; `None` means UTC.
    #[serde(default)]
    pub zone: Option<String>,
    /// The next time.
    pub next: Timestamp,
    /// The chat topic for messages about the schedule; `None` means a separate topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<Arc<str>>,
    /// The author.
    pub by: PrincipalId,
    /// The number of runs.
    #[serde(default)]
    pub runs: u32,
    /// `true` for a reminder: the lifeform posts the text unchanged, without a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remind: bool,
    /// The requests for it. A request is one message or several, with spaces between; a message is
    /// `{lifeform}/{canvas}/{topic}/{message}`. A request ends when one of its messages is retracted or purged, and
    /// the schedule is removed with its last request.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(ignore)]
    pub asked_in: BTreeSet<Arc<str>>,
    /// The principals whose words led to the schedule, besides its author.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub behind: BTreeSet<Arc<str>>,
}
