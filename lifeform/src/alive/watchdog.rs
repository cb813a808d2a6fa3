//! The watchdog of a lifeform. It limits and reports stuck, failing and too frequent work.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::run::Status as JobStatus;
use fascicles::{FascicleError, PersonsDecision, approval_id};
use jiff::SignedDuration;
use store::{Batch, Origin, Principal};

use super::LifeformState;
use super::approvals::waits_unsure;
use super::reflexes::word;
use crate::LifeformError;
use crate::agenda::Act;
use crate::canvas::{Skill, chat};
use crate::guard::{self, Counts, Guard, Step};
use crate::life::{Head, Status};
use crate::perception::{ActiveReply, Perception, ReplyProgress, ThreadRef};
use crate::tools::NO_ANSWER;
use crate::{spending, trace};

/// The maximum number of suspected memories.
const SUSPECTED_MAX: usize = 256;

/// The maximum wait of a call for an approval.
const APPROVED_WITHIN: SignedDuration = SignedDuration::from_hours(24);

/// The reasons for which a goal does not go on whose job was given up.
const NOBODY_ANSWERED: &str = "nobody answered within a day whether it may be done";
pub(super) const NO_OUTCOME: &str = "it came to no outcome";

/// The words of the store for a share that is used up, and those for a person.
const SHARE_USED_UP: &str = "may draw";
const SHARE_IN_WORDS: &str = "your share of what I have is used up for this hour. Ask again when the next hour begins, or an operator raises your share.";

impl LifeformState {
    /// Cancels and reports the jobs that exceeded their time limit in this process.
    pub(super) async fn give_up_what_is_stuck(&mut self) -> Result<(), LifeformError> {
        let patience = SignedDuration::from_secs(self.limits.stuck_s as i64);
        let now = self.store.clock().now();
        let stuck: Vec<Arc<str>> = self
            .jobs
            .iter()
            .filter(|(job, (_, since))| {
                let patience = if self.waits.contains(*job) { APPROVED_WITHIN } else { patience };
                now.duration_since(*since) >= patience
            })
            .map(|(job, _)| job.clone())
            .collect();
        for job in stuck {
            if self.waits.contains(&job) && self.refuse_calls(&job, NOBODY_ANSWERED, true).await {
                continue;
            }
            match self.fascicles.cancel(&self.me, &job).await {
                Ok(_) | Err(FascicleError::JobNotFound(_)) => {}
                // A job that cannot be cancelled does not block the rest.
                Err(error) => tracing::error!(lifeform = %self.head.id, %job, %error, "a job cannot be given up"),
            }
            let why = if self.waits.contains(&job) { NOBODY_ANSWERED } else { NO_OUTCOME };
            self.unwatch(&job);
            self.waits.remove(&job);
            self.compacted(&job, JobStatus::Cancelled);
            self.fail_goal(&job, why).await;
            if let Some(thought) = self.attention.release(&job) {
                self.admit(&thought, "it did not come to its end in time").await;
            }
        }
        Ok(())
    }

    /// Answers the questions of a goal's job about its calls: they are not made, because of `why`. The steps end with that, and what
    /// other steps of the wave did stays. A call whose outcome is unknown is given up only if `all`. Returns `false` for other jobs,
    /// and if this fails.
    pub(super) async fn refuse_calls(&mut self, job: &Arc<str>, why: &str, all: bool) -> bool {
        let is_of_goal = self.plans.agenda().goals.values().any(|goal| goal.job.as_ref() == Some(job));
        let Ok(head) = self.fascicles.job(job).await else { return false };
        if !is_of_goal || head.waits.is_empty() {
            return false;
        }
        for waiting in head.waits.iter().filter(|waiting| all || !waits_unsure(std::slice::from_ref(waiting))) {
            let (id, who) = (approval_id(job, waiting.wait.n), Principal::system());
            let refused = self.fascicles.decide_approval(&who, &id, PersonsDecision::Refuse, Some(why.to_owned()));
            if let Err(error) = refused.await {
                tracing::warn!(lifeform = %self.head.id, %job, %error, "a call that waits cannot be refused");
                return false;
            }
        }
        if let Some((_, since)) = self.jobs.get_mut(job) {
            *since = self.store.clock().now();
        }
        true
    }

    /// Reports the failure of an answer.
    pub(super) async fn admit_failure(&self, thought: &ActiveReply) {
        let error = self.fascicles.job(&thought.job).await.ok().and_then(|head| head.error).unwrap_or_default();
        self.admit(thought, &error).await;
    }

    /// Marks a started answer as interrupted, or posts the reason for a missing one.
    pub(super) async fn admit(&self, thought: &ActiveReply, error: &str) {
        let job = &thought.job;
        tracing::warn!(lifeform = %self.head.id, %job, %error, "an answer failed");
        // A person reads no names of accounts.
        let error = if error.contains(SHARE_USED_UP) { SHARE_IN_WORDS } else { error };
        let ThreadRef { canvas, topic } = &thought.perception.place;
        match (self.speech(thought), self.canvases.get(canvas)) {
            // The message is still empty, so its text becomes the reason.
            (ReplyProgress::Speaking, Some(canvas)) if thought.perception.to_answer() && self.is_unsaid(thought) => {
                self.speaking.end(&thought.answer());
                let content = format!("{NO_ANSWER}{}", error.chars().take(240).collect::<String>());
                let op = chat::Op::Finish {
                    topic: topic.clone(),
                    id: thought.answer(),
                    content,
                    rests_on: Vec::new(),
                    behind: Vec::new(),
                };
                if let Err(error) = canvas.apply(op, None, None, &self.because(format!("job:{job}"))).await {
                    tracing::warn!(%error, "a failure cannot be shown");
                }
            }
            (ReplyProgress::Speaking, _) => self.close_off(thought, error).await,
            (ReplyProgress::Silent, Some(canvas)) if thought.perception.to_answer() => {
                let error: String = error.chars().take(240).collect();
                let asked =
                    thought.perception.last().reply_to().filter(|_| canvas.kind.rules().skill() == Skill::CoAuthor);
                let op = word(&canvas, topic, thought.answer(), format!("{NO_ANSWER}{error}"), asked);
                if let Err(error) = canvas.apply(op, None, None, &self.because(format!("job:{job}"))).await {
                    tracing::warn!(%error, "a failure cannot be shown");
                }
            }
            _ => {}
        }
    }

    /// Returns `true` if an answer has no text yet.
    fn is_unsaid(&self, thought: &ActiveReply) -> bool {
        let ThreadRef { canvas, topic } = &thought.perception.place;
        let state = self.canvases.get(canvas).map(|canvas| canvas.snapshot().state);
        let answer = state.as_ref().and_then(|state| chat::message_in(state, topic, &thought.answer()));
        answer.is_none_or(|answer| answer.content().trim().is_empty()) && !self.speaking.has_said(&thought.answer())
    }

    /// Runs the guard: it intervenes on an excess, and ends the intervention after a calm period. Each step is stored
    /// with its counts.
    pub(super) async fn look_after_itself(&mut self) -> Result<(), LifeformError> {
        let now = self.store.clock().now();
        let Some(next) = guard::judge(&self.head.guard, &mut self.counts, &self.limits, now) else { return Ok(()) };
        tracing::warn!(lifeform = %self.head.id, step = ?next.step, evidence = %next.evidence, "the guard intervenes");
        let mut head = Head { guard: next, ..self.head.clone() };
        if head.guard.step == Step::Stop {
            head.status = Status::Stopped;
        }
        self.keep(head, &self.because("guard"), "guard").await
    }

    /// Ends the intervention of the guard.
    pub(crate) async fn calm(&mut self, origin: &Origin) -> Result<(), LifeformError> {
        self.keep(Head { guard: Guard::default(), ..self.head.clone() }, origin, "calmed").await?;
        self.counts = Counts::default();
        Ok(())
    }

    /// Posts that the lifeform is in quarantine, once in each topic with a waiting message.
    pub(super) async fn say_that_it_is_quarantined(&self) -> Result<(), LifeformError> {
        let since = self.head.guard.since.unwrap_or_default();
        let until = since + SignedDuration::from_secs(self.limits.quarantine_s.into());
        let content = format!("Too much came at once, so I answer nothing until {until}. An operator can end that.");
        let name = format!("quarantine_{}", since.as_second());
        let mut informed: BTreeSet<ThreadRef> = BTreeSet::new();
        while let Some(next) = self.attention.next(|place| !informed.contains(place)) {
            if next.perception.to_answer() {
                let Perception { place, .. } = &next.perception;
                self.say_by_reflex(place, next.perception.last(), &name, content.clone(), None).await?;
            }
            informed.insert(next.perception.place);
        }
        Ok(())
    }

    /// Updates the count of tokens spent without a present request. Acts that a participant set are not counted: the
    /// participant's share limits them. Neither are goals of people that are carried out: the
    /// lifeform asks a person before such a goal goes beyond its own bound.
    pub(super) async fn count_unasked(&mut self) -> Result<(), LifeformError> {
        let report = spending::report(&self.store, &self.fascicles, &self.head.id).await?;
        let goals = report.by.get("goal");
        let agenda = self.plans.agenda();
        let acts =
            agenda.goals.keys().cloned().map(Act::Goal).chain(agenda.schedules.keys().cloned().map(Act::Schedule));
        for act in acts {
            let setter = agenda.set_by(&act);
            let has_budget = match &act {
                Act::Goal(id) => agenda.goals[id].plan.iter().any(|step| step.tries > 0),
                Act::Schedule(_) => false,
            };
            let is_bounded = |by: &Arc<str>| self.participant(by).is_some() || (has_budget && by.starts_with("user:"));
            if setter.as_ref().is_some_and(is_bounded) {
                let (Act::Goal(id) | Act::Schedule(id)) = act;
                self.asked.insert(id.to_string());
            }
        }
        let is_spent_on = |id: &String| goals.is_some_and(|goals| goals.contains_key(id));
        let is_there = |id: &String| agenda.goals.contains_key(&**id) || agenda.schedules.contains_key(&**id);
        self.asked.retain(|id| is_spent_on(id) || is_there(id));
        let unasked =
            goals.into_iter().flatten().filter(|(id, _)| !self.asked.contains(*id) && **id != spending::OTHER);
        let tokens = unasked.map(|(_, tally)| tally.charged.tokens).sum();
        self.counts.spent_unasked(tokens, self.store.clock().now());
        Ok(())
    }

    /// Quarantines a memory if answers that rest on it fail repeatedly while others succeed.
    pub(super) async fn suspect(&mut self, job: &Arc<str>, status: JobStatus) -> Result<(), LifeformError> {
        match status {
            JobStatus::Failed => {
                for concept in trace::recalled_by(&self.store, job).await? {
                    let (failures, others_succeed) = self.suspected.entry(concept.clone()).or_default();
                    *failures += 1;
                    if *failures >= self.limits.poison_after && *others_succeed {
                        self.suspected.remove(&concept);
                        tracing::warn!(lifeform = %self.head.id, %concept, "a memory is set apart");
                        let origin = self.because(format!("job:{job}"));
                        self.memory.set_apart(&concept, &origin).await?;
                        let finding = serde_json::json!({
                            "what": "memory set apart",
                            "concept": concept,
                            "failures": self.limits.poison_after,
                        });
                        let batch = Batch::new(&origin).append(format!("trace:{}", self.head.id), "guard", &finding);
                        self.store.commit(batch).await?;
                    }
                }
                // If all answers fail, no memory is the cause. This also bounds the map.
                if self.suspected.len() > SUSPECTED_MAX {
                    self.suspected.clear();
                }
            }
            JobStatus::Completed if !self.suspected.is_empty() => {
                for concept in trace::recalled_by(&self.store, job).await? {
                    self.suspected.remove(&concept);
                }
                self.suspected.values_mut().for_each(|(_, others_succeed)| *others_succeed = true);
            }
            _ => {}
        }
        Ok(())
    }
}
