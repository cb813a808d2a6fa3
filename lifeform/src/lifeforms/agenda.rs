//! Changes of goals and schedules by people.

use std::sync::Arc;

use fascicles::FascicleError;
use jiff::SignedDuration;
use serde::Serialize;
use store::{Batch, Hash, Key, Kind, Origin, Principal, PrincipalKind, Role, StoreError, Timestamp, json};

use super::Lifeforms;
use crate::LifeformError;
use crate::agenda::{Act, Agenda, AgendaItemId, Goal, GoalChange, GoalSpec, GoalStatus, ScheduleSpec};
use crate::agenda_store::AgendaStore;
use crate::canvas::chat::TopicRole;
use crate::canvas::{Refusal, chat};
use crate::life::Head;
use crate::spec::LifeformId;
use crate::tools::{effects_of, report_of_stop, speakers};
use crate::traced_steps::traced_steps;

/// The tolerance for a single run in the past, because a client's clock may be slow.
const LATE_MAX: SignedDuration = SignedDuration::from_mins(1);

/// The minimum period of a participant's schedule.
const PERIOD_MIN: SignedDuration = SignedDuration::from_mins(10);

impl Lifeforms {
    /// Returns the agenda of a lifeform for a change.
    pub(super) async fn plans(&self, id: &LifeformId, head: &Head) -> Result<AgendaStore, LifeformError> {
        let (store, initiative) = (self.inner.store.clone(), head.definition.initiative.clone());
        AgendaStore::load(store, id.clone(), initiative, self.inner.alarm.clone()).await
    }

    /// Returns the goals and schedules of a lifeform.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn agenda(&self, id: &LifeformId) -> Result<Arc<Agenda>, LifeformError> {
        let head = self.get(id).await?;
        Ok(self.plans(id, &head).await?.agenda())
    }

    /// Changes the agenda of a lifeform, and notifies the lifeform if it is awake.
    pub(super) async fn change<T>(
        &self,
        origin: &Origin,
        id: &LifeformId,
        what: &str,
        change: impl FnMut(&mut Agenda, Timestamp) -> Result<T, Refusal>,
    ) -> Result<T, LifeformError> {
        self.change_with(origin, id, what, change, |batch, _| batch).await
    }

    async fn change_with<T>(
        &self,
        origin: &Origin,
        id: &LifeformId,
        what: &str,
        change: impl FnMut(&mut Agenda, Timestamp) -> Result<T, Refusal>,
        with: impl Fn(Batch, &T) -> Batch,
    ) -> Result<T, LifeformError> {
        let head = self.get(id).await?;
        let changed = self.plans(id, &head).await?.change_with(origin, what, change, with).await?;
        if let Some(handle) = self.inner.alive().get(id) {
            handle.replanned();
        }
        Ok(changed)
    }

    /// Adds a goal or a schedule, as `asked`. With a `key`, repeated calls of the same caller add it once.
    async fn set(
        &self,
        origin: &Origin,
        id: &LifeformId,
        what: &str,
        asked: &impl Serialize,
        key: Option<Arc<str>>,
        mut set: impl FnMut(&mut Agenda, Timestamp) -> Result<AgendaItemId, Refusal>,
    ) -> Result<AgendaItemId, LifeformError> {
        let Some(key) = key else { return self.change(origin, id, &format!("{what} set"), set).await };
        let seen = Key::new(Kind::Idempotency, format!("set#{id}#{what}#{}#{key}", origin.principal.id));
        let asked = Hash::of(&json(asked)).hex();
        loop {
            if let Some(before) = self.inner.store.document::<(String, AgendaItemId)>(&seen).await? {
                let (asked_before, made) = before.value;
                return match asked_before == asked {
                    true => Ok(made),
                    false => Err(LifeformError::Spec("this Idempotency-Key was used for another one".into())),
                };
            }
            let keyed = |batch: Batch, made: &AgendaItemId| batch.create(seen.clone(), &(&asked, made));
            match self.change_with(origin, id, &format!("{what} set"), &mut set, keyed).await {
                // A concurrent call with the same key was faster.
                Err(LifeformError::Store(StoreError::Conflict { .. })) => {}
                outcome => return outcome,
            }
        }
    }

    /// Adds a goal and returns its id. With a `key`, repeated calls of the same caller add it once.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`]. [`LifeformError::Spec`] for a key that was used for
    /// another request.
    pub async fn set_goal(
        &self,
        origin: &Origin,
        id: &LifeformId,
        goal: GoalSpec,
        key: Option<Arc<str>>,
    ) -> Result<AgendaItemId, LifeformError> {
        let by = &origin.principal.id;
        let set = |agenda: &mut Agenda, now| {
            agenda.has_room_for_goal(&origin.principal)?;
            // A part of a goal wakes it and speaks to those whom it concerns.
            if let Some(parent) = goal.parent.as_ref().filter(|_| origin.principal.kind == PrincipalKind::User) {
                may_change(origin, &agenda.goal(parent)?.by)?;
            }
            agenda.set_goal(goal.clone(), by, now)
        };
        self.set(origin, id, "goal", &goal, key, set).await
    }

    /// Changes a goal. If the goal is then finished, its running jobs are cancelled.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn change_goal(
        &self,
        origin: &Origin,
        id: &LifeformId,
        goal: &AgendaItemId,
        change: GoalChange,
    ) -> Result<(), LifeformError> {
        let by = &origin.principal.id;
        let changed = self.change(origin, id, "goal changed", |agenda, now| {
            may_change(origin, &agenda.goal(goal)?.by)?;
            agenda.change_goal(goal, change.clone(), by, now)
        });
        changed.await?;
        self.end_of_goal(id, goal, origin).await
    }

    /// Cancels the job of a goal that is over, and stores what was carried out for a dropped goal, once.
    pub(super) async fn end_of_goal(
        &self,
        id: &LifeformId,
        goal: &AgendaItemId,
        origin: &Origin,
    ) -> Result<(), LifeformError> {
        let agenda = self.agenda(id).await?;
        let Some(goal) = agenda.goals.get(goal).filter(|goal| goal.status.is_over()) else { return Ok(()) };
        self.stop_pursuing(goal.job.clone()).await?;
        if goal.status == GoalStatus::Dropped {
            self.record_drop(origin, id, goal).await;
        }
        if goal.status == GoalStatus::Dropped || goal.job.is_some() {
            self.report_stop(origin, id, (&agenda, goal), |_| false).await;
        }
        Ok(())
    }

    /// Says, where a goal was pursued, what was done for it before a person stopped it.
    /// `is_gone` says which other goals were removed with it.
    async fn report_stop(
        &self,
        origin: &Origin,
        id: &LifeformId,
        (agenda, goal): (&Agenda, &Goal),
        is_gone: impl Fn(&Goal) -> bool,
    ) {
        let reported = async {
            let head = self.get(id).await?;
            let mut stopped = Vec::new();
            // Where a goal is removed, those that serve it are, too.
            let below = agenda.goals.values().filter(|other| is_gone(other) && agenda.serves(other, &goal.id));
            for goal in std::iter::once(goal).chain(below) {
                stopped.push((goal, effects_of(&self.inner.store, agenda, goal, id).await?));
            }
            let setter = agenda.set_by(&Act::Goal(goal.id.clone())).unwrap_or_default();
            let is_operator = || self.inner.fascicles.neurons().least_principal(&setter).may(Role::Operator);
            let decides = setter.starts_with("user:") && (head.definition.trusts(&setter) || is_operator());
            let Some(report) = report_of_stop(&stopped, decides) else { return Ok(()) };
            let canvas = self.canvas(id).await?;
            let origin = Origin::new(head.principal(), origin.cause.clone());
            let (topic, title) = (goal.speaks_in(), goal.title.clone());
            let open = chat::Op::TopicCreate { id: topic.clone(), title, turns: chat::Turns::default() };
            let say = chat::Op::say(&topic, format!("msg_stopped_{id}_{}", goal.id).into(), report, None);
            for op in [open, say] {
                match canvas.apply(op, None, None, &origin).await {
                    Ok(_) | Err(LifeformError::Refused(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        if let Err(error) = reported.await {
            tracing::warn!(lifeform = %id, goal = %goal.id, %error, "what was done for a stopped goal is not reported");
        }
    }

    /// Stores what was carried out for a goal that a principal dropped.
    async fn record_drop(&self, origin: &Origin, id: &LifeformId, goal: &Goal) {
        let recorded = async {
            let head = self.get(id).await?;
            let agenda = self.agenda(id).await?;
            let mut behind = agenda.behind(&Act::Goal(goal.id.clone()), &head.principal().id).unwrap_or_default();
            behind.extend(goal.read_outside());
            let result = goal.notes.last().map_or("it was dropped", |note| note.text.as_str());
            let (name, cause) = (format!("{id}.goal.{}.dropped", goal.id), &origin.cause);
            let steps = traced_steps(&self.inner.store, goal).await?;
            self.knowledge(&head)
                .record_end_of(goal, steps, &name, result, &behind, cause)
                .await
                .map_err(LifeformError::Knowledge)
        };
        if let Err(error) = recorded.await {
            tracing::warn!(lifeform = %id, goal = %goal.id, %error, "the trace of a dropped goal cannot be stored");
        }
    }

    /// Cancels the jobs that pursue finished goals.
    async fn stop_pursuing(&self, jobs: impl IntoIterator<Item = Arc<str>>) -> Result<(), LifeformError> {
        for job in jobs {
            match self.inner.fascicles.cancel(&Principal::system(), &job).await {
                Ok(_) | Err(FascicleError::JobNotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes a goal and all its subgoals, and cancels their jobs.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn remove_goal(
        &self,
        origin: &Origin,
        id: &LifeformId,
        goal: &AgendaItemId,
    ) -> Result<(), LifeformError> {
        let before = self.agenda(id).await?;
        let removed = self.change(origin, id, "goal removed", |agenda, _| {
            may_change(origin, &agenda.goal(goal)?.by)?;
            agenda.remove_goal(goal)
        });
        self.stop_pursuing(removed.await?).await?;
        if let Some(gone) = before.goals.get(goal).filter(|goal| !goal.status.is_over()) {
            let after = self.agenda(id).await?;
            let is_gone = |other: &Goal| !after.goals.contains_key(&other.id);
            self.report_stop(origin, id, (&before, gone), is_gone).await;
        }
        Ok(())
    }

    /// Adds a schedule and returns its id. With a `key`, repeated calls of the same caller add it once.
    ///
    /// # Errors
    /// As [`Self::set_goal`].
    pub async fn set_schedule(
        &self,
        origin: &Origin,
        id: &LifeformId,
        schedule: ScheduleSpec,
        key: Option<Arc<str>>,
    ) -> Result<AgendaItemId, LifeformError> {
        let by = &origin.principal.id;
        let is_bound = origin.principal.is_bound();
        if let Some(topic) = schedule.topic.as_ref().filter(|_| is_bound) {
            let state = self.canvas(id).await?.snapshot().state;
            let is_theirs = chat::topic_in(&state, topic).is_some_and(|topic| topic.is_created_by(&by.0));
            let listens =
                chat::topic_in(&state, topic).and_then(|topic| topic.role_of(&by.0)) == Some(TopicRole::Listener);
            if listens || (!is_theirs && !speakers(&state, topic).contains(&*by.0)) {
                let why = "a schedule speaks in a topic of its own, or in one where you have spoken";
                return Err(LifeformError::Refused(Refusal::Forbidden(why.into())));
            }
        }
        let set = |agenda: &mut Agenda, now| {
            agenda.has_room_for_schedule(&origin.principal)?;
            if schedule.at.is_some_and(|at| at < now - LATE_MAX) {
                return Err(Refusal::schema("at", "is in the past; give a future time"));
            }
            let made = agenda.set_schedule(schedule.clone(), by, now)?;
            match agenda.comes_every(&made).filter(|period| is_bound && *period < PERIOD_MIN) {
                Some(_) => Err(Refusal::schema("cron", "comes at most every ten minutes")),
                None => Ok(made),
            }
        };
        self.set(origin, id, "schedule", &schedule, key, set).await
    }

    /// Removes a schedule.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn remove_schedule(
        &self,
        origin: &Origin,
        id: &LifeformId,
        one: &AgendaItemId,
    ) -> Result<(), LifeformError> {
        let removed = self.change(origin, id, "schedule removed", |agenda, _| {
            if let Some(schedule) = agenda.schedules.get(one) {
                may_change(origin, &schedule.by)?;
            }
            agenda.remove_schedule(one)
        });
        removed.await
    }
}

/// Checks that the caller may change an entry: its author or an operator may.
fn may_change(origin: &Origin, by: &store::PrincipalId) -> Result<(), Refusal> {
    match origin.principal.answers_for(&by.0) || origin.principal.may(store::Role::Operator) {
        true => Ok(()),
        false => Err(Refusal::Forbidden(format!("{by} set that; only {by} or an operator changes it"))),
    }
}
