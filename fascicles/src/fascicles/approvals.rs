//! The waits for a person's decision: tool calls that must be approved, calls whose outcome nobody knows, and `approve` nodes.

use std::sync::Arc;

use neurons::neuron::{ToolCall, ToolResult};
use serde::{Deserialize, Serialize};

use store::{Event, Hash, Kind, Principal, Role, Timestamp, json};
use utoipa::ToSchema;

use super::{Fascicles, is_named, may};
use crate::job::{Head, Waiting};
use crate::run::{Answer, Pause};
use crate::spec::FascicleId;
use crate::{FascicleError, JobId};

/// The number of unfinished jobs that one page looks at.
const LOOKED_AT: usize = 256;
/// The number of pages that are looked at for a principal who does not see every job.
const PAGES_MAX: usize = 16;

/// Something that waits for a person's decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// The id: the job and the number of its wait.
    pub id: Arc<str>,
    /// The job.
    pub job: JobId,
    /// The owner of the job: a lifeform, or the daemon.
    pub owner: Arc<str>,
    /// The work around it: a topic, a goal or a job.
    pub root: Arc<str>,
    /// The participant for whom the job runs; `None` for an operator, the daemon or the lifeform itself.
    pub participant: Option<Arc<str>>,
    /// The fascicle of the job.
    pub fascicle: FascicleId,
    /// The step that waits.
    pub step: Arc<str>,
    /// The question.
    pub question: Question,
    /// The time of the job's last change.
    pub since: Timestamp,
    /// The end of the wait; `None` if the step itself sets none.
    pub expires_at: Option<Timestamp>,
}

/// The question to the person who decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// Tool calls, with exactly the parameters that are sent.
    Calls(Vec<ToolCall>),
    /// The input of an `approve` node.
    Input {
        /// The question.
        message: String,
        /// The content.
        events: Vec<Event>,
    },
}

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PersonsDecision {
    /// The calls are made. A call whose outcome is unknown was not done, and is made again.
    Approve,
    /// The calls are not made. A call whose outcome is unknown is left at that.
    Refuse,
    /// Calls whose outcome is unknown were done.
    Done,
    /// The form that a server asks is answered.
    Answer,
}

/// Returns the id of a wait.
pub fn approval_id(job: &str, n: u32) -> Arc<str> {
    format!("{job}.w{n}").into()
}

/// Returns the question of a wait, if a person decides it.
fn question(pause: &Pause) -> Option<Question> {
    match pause {
        // The client's own calls in between need results.
        Pause::Tools { tool_calls } => {
            tool_calls.iter().all(|call| call.needs_approval).then(|| Question::Calls(tool_calls.clone()))
        }
        Pause::Approval { message, events, .. } => {
            Some(Question::Input { message: message.clone(), events: events.clone() })
        }
        Pause::Event { .. } => None,
    }
}

impl PersonsDecision {
    /// Returns the answer to a wait.
    ///
    /// # Errors
    /// Returns [`FascicleError::Answer`] if the decision is none about this question.
    fn answer(self, pause: &Pause, comment: Option<String>, by: &Principal) -> Result<Answer, FascicleError> {
        let calls = match pause {
            Pause::Tools { tool_calls } => tool_calls.as_slice(),
            Pause::Approval { .. } | Pause::Event { .. } => &[],
        };
        let unsure = calls.iter().filter(|call| call.unsure).count();
        // To approve a call, and to say that another one was not done, are two decisions.
        if unsure > 0 && unsure < calls.len() {
            let why =
                "some of these calls wait for an approval, and of others the outcome is unknown: answer each of them";
            return Err(FascicleError::Answer(why.into()));
        }
        let forms = calls.iter().filter(|call| call.form.is_some()).count();
        if (self == Self::Answer) != (forms > 0) && self != Self::Refuse {
            let why = match forms {
                0 => "answer is said to a form of a server: approve or refuse",
                _ => "a server asks for answers to its form: answer, or refuse",
            };
            return Err(FascicleError::Answer(why.into()));
        }
        if self == Self::Done && unsure == 0 {
            let why = "done is said of calls whose outcome is unknown: approve or refuse";
            return Err(FascicleError::Answer(why.into()));
        }
        let approved = self == Self::Approve;
        let Pause::Tools { tool_calls } = pause else {
            return Ok(Answer::Approval { approved, comment, by: by.id.to_string() });
        };
        let said = |call: &ToolCall| {
            let id = call.id.clone();
            match self {
                Self::Done => {
                    let result = comment.clone().unwrap_or_else(|| format!("It was done, says {}.", by.id));
                    ToolResult { id, result: Some(result), ..ToolResult::default() }
                }
                Self::Answer => ToolResult { id, result: comment.clone(), ..ToolResult::default() },
                Self::Approve => ToolResult { id, approved: Some(true), ..ToolResult::default() },
                Self::Refuse => match &comment {
                    Some(why) => ToolResult { id, error: Some(why.clone()), ..ToolResult::default() },
                    None => ToolResult { id, approved: Some(false), ..ToolResult::default() },
                },
            }
        };
        Ok(Answer::Results(tool_calls.iter().map(said).collect()))
    }
}

impl Fascicles {
    /// Returns what waits for a decision and that `who` may see, among the unfinished jobs after `after`, and the start of the next
    /// page, if there may be one. For those who do not see every job it is one page.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn approvals(
        &self,
        who: &Principal,
        after: &str,
    ) -> Result<(Vec<Approval>, Option<Arc<str>>), FascicleError> {
        // The start of a page names a job, which others need not know.
        let sees_all = who.may(Role::Operator);
        let (mut approvals, mut after) = (Vec::new(), Arc::from(after));
        for _ in 0..if sees_all { 1 } else { PAGES_MAX } {
            let marks = self.inner.store.documents::<JobId>(Kind::Running, &after, LOOKED_AT).await?;
            let full = marks.len() == LOOKED_AT;
            let Some((last, _)) = marks.last() else { return Ok((approvals, None)) };
            after = last.clone();
            for (_, job) in marks {
                // A job may end in between.
                let Ok(head) = self.job(&job.value).await else { continue };
                let sees = |waiting: &&Waiting| may(who, &head) || is_named(who, &head, Some(waiting.wait.n));
                approvals.extend(head.waits.iter().filter(sees).filter_map(|waiting| approval(&head, waiting)));
            }
            if !full {
                return Ok((approvals, None));
            }
        }
        Ok((approvals, sees_all.then_some(after)))
    }

    /// Returns what waits under an id.
    ///
    /// # Errors
    /// Returns [`FascicleError::NoWait`] if nothing waits under it that `who` may see.
    pub async fn approval(&self, who: &Principal, id: &str) -> Result<Approval, FascicleError> {
        let (head, n) = self.waiting(who, id).await?;
        let waiting = head.waits.iter().find(|waiting| waiting.wait.n == n);
        waiting.and_then(|waiting| approval(&head, waiting)).ok_or(FascicleError::NoWait)
    }

    /// Decides what waits under an id. A repetition of the same decision changes nothing.
    ///
    /// # Errors
    /// Returns [`FascicleError::NoWait`], and the errors of [`Fascicles::answer`].
    pub async fn decide_approval(
        &self,
        who: &Principal,
        id: &str,
        decision: PersonsDecision,
        comment: Option<String>,
    ) -> Result<Head, FascicleError> {
        let (head, n) = self.waiting(who, id).await?;
        let name = Hash::of(&json(&(decision, &comment))).hex();
        let waiting = head.waits.iter().find(|waiting| waiting.wait.n == n);
        let (answer, expires_at) = match waiting {
            Some(waiting) if question(&waiting.wait.pause).is_none() => return Err(FascicleError::NoWait),
            Some(waiting) => (decision.answer(&waiting.wait.pause, comment, who)?, waiting.wait.expires_at),
            // It was decided before, or is over; then the answer itself does not count.
            None => (Answer::Results(Vec::new()), None),
        };
        self.answer(who, &head.id, &self.token(&head, n, expires_at), name, answer).await
    }

    async fn waiting(&self, who: &Principal, id: &str) -> Result<(Head, u32), FascicleError> {
        let parts = id.rsplit_once(".w").and_then(|(job, n)| Some((JobId::from(job), n.parse().ok()?)));
        let (job, n) = parts.filter(|(job, n)| *approval_id(job, *n) == *id).ok_or(FascicleError::NoWait)?;
        let head = self.seen_by(who, &job).await.map_err(|error| match error {
            FascicleError::JobNotFound(_) => FascicleError::NoWait,
            error => error,
        })?;
        Ok((head, n))
    }
}

fn approval(head: &Head, waiting: &Waiting) -> Option<Approval> {
    Some(Approval {
        id: approval_id(&head.id, waiting.wait.n),
        job: head.id.clone(),
        owner: head.owner.clone(),
        root: head.scope.as_ref().map_or_else(|| head.id.clone(), |scope| scope.root.clone()),
        participant: head.origin.participant().cloned(),
        fascicle: head.fascicle.clone(),
        step: waiting.step.clone(),
        question: question(&waiting.wait.pause)?,
        since: head.updated_at,
        expires_at: waiting.wait.expires_at,
    })
}
