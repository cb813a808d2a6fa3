//! The goals of a lifeform in its talks: what people say of them, what they take back, and what failed.

use std::sync::Arc;

use fascicles::{FascicleError, PersonsDecision};
use store::{Origin, Role};

use super::LifeformState;
use crate::LifeformError;
use crate::agenda::{Act, AgendaItemId, Goal, Noted};
use crate::canvas::chat;
use crate::canvas::chat::{MessageStatus, MessageView};
use crate::perception::{Change, PerceivedMessage, ThreadRef, decision_in, is_below, message_name};
use crate::tools::hears;
use crate::traced_steps::traced_steps;

/// The maximum length of the words that withdraw a call, for the model, in characters.
const WITHDRAWN_CHARS: usize = 500;

impl LifeformState {
    /// Stores a message as a note about the goal that waits for it in its topic ([`Agenda::waiting_in`]), or that is being pursued there
    /// ([`Agenda::pursued_in`]). A goal that waited is pursued again; the plan of another is looked at again after its wave. Returns
    /// `true` if the message decides a question about the plan, and needs no answer.
    pub(super) async fn hear_of_goal(
        &mut self,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<bool, LifeformError> {
        if *place.canvas != *self.home() || !hears(&said.sender, &self.me) {
            return Ok(false);
        }
        let Some(canvas) = self.canvases.get(&place.canvas) else { return Ok(false) };
        let origin = self.because(said.source.clone());
        if said.change == Change::Retracted {
            let agenda = self.plans.agenda();
            let has_it = |goal: &&Goal| goal.notes.iter().any(|note| note.message.as_ref() == Some(&said.message));
            let goals: Vec<AgendaItemId> = agenda.goals.values().filter(has_it).map(|goal| goal.id.clone()).collect();
            if goals.is_empty() {
                return Ok(false);
            }
            let unheard = self.plans.change(&origin, "unheard", |agenda, _| {
                Ok(goals.iter().filter(|goal| agenda.unhear(goal, &said.message)).count())
            });
            return unheard.await.map(|_| false);
        }
        let state = canvas.snapshot().state;
        let message = chat::message_in(&state, &place.topic, &said.message);
        let reply_to = message.and_then(MessageView::reply_to);
        let agenda = self.plans.agenda();
        // A message that asked for the goal is no answer to it.
        let name = message_name(place, &said.message);
        let asked_for = |goal: &&Goal| goal.asked_in.iter().any(|request| request.split(' ').any(|one| *one == *name));
        // A word that decided about a plan is read again after a restart, and is no other request.
        if agenda.goals.values().any(|goal| goal.course.decided_in.as_ref() == Some(&said.source)) {
            return Ok(true);
        }
        let waiting = agenda.waiting_in(&place.topic, reply_to, &self.waits);
        let meant = waiting.or_else(|| agenda.pursued_in(&place.topic, &said.sender, &said.content));
        let Some(goal) = meant.filter(|goal| !asked_for(goal)) else { return Ok(false) };
        // After the first answer to its question, other talk of the topic is no word for the goal.
        let is_setter = agenda.set_by(&Act::Goal(goal.id.clone())).as_ref() == Some(&said.sender);
        if reply_to.is_none() && !place.topic.starts_with("goal_") && !goal.concerns(&said.content, is_setter) {
            return Ok(false);
        }
        let goal = goal.id.clone();
        let behind: Vec<Arc<str>> = message.into_iter().flat_map(MessageView::behind).map(Arc::from).collect();
        // Only the person who asked for a goal says whether it is reached.
        let verdict = knowledge::verdict(&said.content).filter(|_| is_setter);
        let is_operator = self.fascicles.neurons().least_principal(&said.sender).may(Role::Operator);
        let may_decide = self.head.definition.may_decide(&agenda, &agenda.goals[&goal], &said.sender, is_operator);
        let decision = self.decision_about_plan(place, &agenda.goals[&goal], said).filter(|_| may_decide);
        let heard = self.plans.change(&origin, "heard", |agenda, now| {
            let (behind, message) = (behind.clone(), said.message.clone());
            let noted = Noted { by: &said.sender, text: &said.content, behind, message, verdict, may_decide, decision };
            Ok(agenda.hear(&goal, noted, &said.source, now))
        });
        match heard.await {
            // The agenda has reached its size limit.
            Err(LifeformError::Refused(refusal)) => {
                tracing::warn!(lifeform = %self.head.id, %refusal, "what was said of a goal is not noted");
                Ok(false)
            }
            heard => {
                let heard = heard?;
                // Other words of a person who may decide withdraw a call that waits, as in a talk.
                let waits = agenda.goals[&goal].job.clone().filter(|job| self.waits.contains(job));
                let is_word = decision_in(&said.content, true).is_some()
                    || decision_in(&said.content, false) == Some(PersonsDecision::Approve);
                if let Some(job) = waits.filter(|_| heard && may_decide && !is_word) {
                    let words: String = said.content.chars().take(WITHDRAWN_CHARS).collect();
                    self.refuse_calls(&job, &format!("not made, because the person said: {words}"), false).await;
                }
                Ok(decision.is_some())
            }
        }
    }

    /// Returns the decision about the question of a goal's plan that a message consists of, if it stands below the question.
    fn decision_about_plan(&self, place: &ThreadRef, goal: &Goal, said: &PerceivedMessage) -> Option<bool> {
        let decision = decision_in(&said.content, false).filter(|_| said.change == Change::New)?;
        let question = goal.said.as_ref().filter(|_| goal.course.asks.is_some())?;
        let state = self.canvases.get(&place.canvas)?.snapshot().state;
        is_below(&state, &place.topic, &said.message, question).then_some(decision == PersonsDecision::Approve)
    }

    /// Removes the goals, schedules and reminders that a message asked for, once it is retracted or purged, and cancels
    /// the jobs of the goals.
    pub(super) async fn drop_what_was_asked(
        &self,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<(), LifeformError> {
        if said.change != Change::Retracted {
            return Ok(());
        }
        let origin = self.because(said.source.clone());
        self.drop_request(&message_name(place, &said.message), &origin).await
    }

    /// Drops the requests whose messages are retracted on their canvas, although the lifeform has not read so yet: after
    /// a stop, what is due comes before what waits on the canvases.
    pub(super) async fn drop_retracted_requests(&self) -> Result<(), LifeformError> {
        for message in self.plans.agenda().requests() {
            if self.is_retracted(&message) {
                self.drop_request(&message, &self.because(message.clone())).await?;
            }
        }
        Ok(())
    }

    fn is_retracted(&self, message: &str) -> bool {
        let parts = message.rsplit_once('/').and_then(|(place, id)| Some((place.rsplit_once('/')?, id)));
        let Some(((canvas, topic), id)) = parts else { return false };
        let Some(canvas) = self.canvases.get(canvas) else { return false };
        let state = canvas.snapshot().state;
        let found = chat::message_in(&state, topic, id);
        found.is_some_and(|message| message.status() == MessageStatus::Retracted)
    }

    async fn drop_request(&self, asked_in: &str, origin: &Origin) -> Result<(), LifeformError> {
        for job in self.plans.change(origin, "taken back", |agenda, _| Ok(agenda.unask(asked_in))).await? {
            match self.fascicles.cancel(&self.me, &job).await {
                Ok(_) | Err(FascicleError::JobNotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Blocks the goal of a job that ended without an outcome, and says so where the goal was asked for.
    pub(super) async fn fail_goal(&self, job: &Arc<str>, otherwise: &str) {
        let agenda = self.plans.agenda();
        let Some(goal) = agenda.goals.values().find(|goal| goal.job.as_ref() == Some(job)) else { return };
        let error = self.fascicles.job(job).await.ok().and_then(|head| head.error);
        let error = error.unwrap_or_else(|| otherwise.to_owned());
        let origin = self.because(format!("job:{job}"));
        let failed = self.plans.change(&origin, "failed", |agenda, now| {
            agenda.fail(job, &error, &self.me.id, now);
            Ok(())
        });
        if let Err(error) = failed.await {
            tracing::warn!(lifeform = %self.head.id, %job, %error, "that a goal failed cannot be noted");
        }
        // A principal ended it, which cancelled the job.
        if goal.status.is_over() {
            return;
        }
        let mut behind = agenda.behind(&Act::Goal(goal.id.clone()), &self.me.id).unwrap_or_default();
        behind.extend(goal.read_outside());
        let recorded = async {
            let steps = traced_steps(&self.store, goal).await.map_err(LifeformError::Store)?;
            let recorded = self.knowledge.record_end_of(goal, steps, job, &error, &behind, &origin.cause).await;
            recorded.map_err(LifeformError::Knowledge)
        };
        if let Err(error) = recorded.await {
            tracing::warn!(lifeform = %self.head.id, %job, %error, "the trace of a failed goal cannot be stored");
        }
        // A goal that serves another fails to that one.
        let (true, Some(canvas)) = (goal.parent.is_none(), self.canvases.get(&self.home())) else { return };
        let topic = &goal.speaks_in();
        let error: String = error.chars().take(240).collect();
        let content = format!("I could not go on with \"{}\": {error}", goal.title);
        let mut say = chat::Op::say(topic, format!("msg_{job}").into(), content, None);
        if let chat::Op::Append { behind: of_message, .. } = &mut say {
            *of_message = behind;
        }
        let (id, title) = (topic.clone(), goal.title.clone());
        let open = chat::Op::TopicCreate { id, title, turns: chat::Turns::default() };
        for op in [open, say] {
            match canvas.apply(op, None, None, &origin).await {
                Ok(_) | Err(LifeformError::Refused(_)) => {}
                Err(error) => tracing::warn!(lifeform = %self.head.id, %error, "a failed goal is not reported"),
            }
        }
    }
}
