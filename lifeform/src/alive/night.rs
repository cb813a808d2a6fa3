//! The night of `$system`: its tasks, one after the other, each as a job of its own that can be looked at, paid and undone.

use fascicles::FascicleError;
use fascicles::run::Status as JobStatus;
use jiff::civil::Date;
use serde_json::Value;
use store::{Origin, StoreError, Timestamp};

use super::LifeformState;
use crate::LifeformError;
use crate::agenda::Night;
use crate::homeostasis::{Request, Task as Release};
use crate::life::Mailbox;
use crate::maintenance::{Task, Way};

/// The hour of the day at which open things come to mind.
const THINKS_AT: i8 = 10;

/// Returns the steps of a night: a task, and which of its runs.
fn steps() -> Vec<(Task, u32)> {
    Task::NIGHTLY.into_iter().flat_map(|task| (1..=task.runs()).map(move |run| (task, run))).collect()
}

/// Returns the place of the step after one that has ended with an output. What is left of a task is passed over if a run of it failed,
/// or had nothing to read.
fn next_step(at: usize, status: JobStatus, output: &Value) -> usize {
    let steps = steps();
    let Some((task, _)) = steps.get(at) else { return at };
    let has_more = status == JobStatus::Completed && output["statements"].as_u64() != Some(0);
    let is_other = |(other, _): &(Task, u32)| has_more || other != task;
    steps[at + 1..].iter().position(is_other).map_or(steps.len(), |further| at + 1 + further)
}

impl LifeformState {
    fn job_of_night(&self, day: Date, (task, run): (Task, u32)) -> String {
        let again = if run > 1 { format!("_{run}") } else { String::new() };
        format!("{}.night.{day}.{}{again}", self.head.id, task.as_str())
    }

    /// Begins the night of `$system`, and plans the next one.
    pub(super) async fn tend(&mut self, me: &Mailbox, now: Timestamp) -> Result<(), LifeformError> {
        let origin = self.because("errand:night");
        let next = self.next_night(now).filter(|_| self.head.definition.initiative.upkeep);
        // Both at once: after a crash, the night goes on.
        let night = Night { day: self.today(now), step: 0 };
        let planned = self.plans.change(&origin, "tended", |agenda, _| {
            (agenda.upkeep_at, agenda.night) = (next, Some(night));
            Ok(())
        });
        planned.await?;
        self.go_on_with_night(me, night).await
    }

    /// Goes on with the night after the end of one of its jobs.
    pub(super) async fn night_job_ended(&mut self, me: &Mailbox, job: &str) -> Result<(), LifeformError> {
        let Some(night) = self.plans.agenda().night else { return Ok(()) };
        let is_its_job = steps().get(night.step).is_some_and(|step| *self.job_of_night(night.day, *step) == *job);
        match is_its_job {
            true => self.go_on_with_night(me, self.night_after(night).await).await,
            false => Ok(()),
        }
    }

    /// Goes on with a night that a stop or a crash interrupted. One of an earlier day is over.
    pub(super) async fn resume_night(&mut self, me: &Mailbox) -> Result<(), LifeformError> {
        let Some(night) = self.plans.agenda().night else { return Ok(()) };
        let is_watched = steps().get(night.step).is_some_and(|step| {
            let job = self.job_of_night(night.day, *step);
            self.jobs.contains_key(&*job)
        });
        if is_watched {
            return Ok(());
        }
        if night.day != self.today(self.store.clock().now()) {
            return self.end_night().await;
        }
        self.go_on_with_night(me, night).await
    }

    /// Returns the night at its next step, after the job of its present one.
    async fn night_after(&self, night: Night) -> Night {
        let Some(step) = steps().get(night.step).copied() else { return night };
        let head = self.fascicles.job(&self.job_of_night(night.day, step).into()).await;
        let step = head.map_or(night.step + 1, |head| next_step(night.step, head.status, &head.output));
        Night { step, ..night }
    }

    /// Starts the next job of a night that can be started; after the last one, plans the own thoughts of the day.
    async fn go_on_with_night(&mut self, me: &Mailbox, mut night: Night) -> Result<(), LifeformError> {
        let origin = self.because("errand:night");
        let steps = steps();
        while let Some(step) = steps.get(night.step).copied() {
            match self.start_of_night(me, night.day, step, &origin).await {
                Ok(true) => {
                    let begun = self.plans.change(&origin, "night", |agenda, _| {
                        agenda.night = Some(night);
                        Ok(())
                    });
                    return begun.await;
                }
                Ok(false) => night.step += 1,
                Err(LifeformError::Fascicle(FascicleError::Store(StoreError::Conflict { .. }))) => {
                    night = self.night_after(night).await;
                }
                // Another task still runs if one cannot.
                Err(error) => {
                    tracing::warn!(lifeform = %self.head.id, task = step.0.as_str(), %error, "the mind is not tended");
                    night.step += 1;
                }
            }
        }
        self.end_night().await
    }

    /// Starts a job of a night. Returns `false` if the tokens for it are not released.
    async fn start_of_night(
        &mut self,
        me: &Mailbox,
        day: Date,
        step: (Task, u32),
        origin: &Origin,
    ) -> Result<bool, LifeformError> {
        let request = Request { task: Release::Upkeep, by: "system", person: "system:gardener", ..Request::default() };
        let need = if step.0.asks_a_model() { self.need(self.means_now().await?) } else { Default::default() };
        if !self.is_released(request, need).await? {
            return Ok(false);
        }
        let job = self.job_of_night(day, step).into();
        self.maintain(me, (step.0, Way::Bounded), job, origin).await.map(|_| true)
    }

    /// Ends a night, and plans the own thoughts of the day.
    async fn end_night(&self) -> Result<(), LifeformError> {
        let (origin, now) = (self.because("errand:night"), self.store.clock().now());
        let at = self.today(now).at(THINKS_AT, 0, 0, 0).to_zoned(self.head.definition.zone()).ok();
        let at = at.map_or(now, |at| at.timestamp().max(now));
        // What may be thought of is a matter of that hour: the thought of the day before is a day ago by then.
        let is_open =
            self.head.definition.initiative.thoughts && !self.open_things(at).await.unwrap_or_default().is_empty();
        let at = is_open.then_some(at);
        let ended = self.plans.change(&origin, "night", |agenda, _| {
            (agenda.night, agenda.thought_at) = (None, at);
            Ok(())
        });
        ended.await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_night_passes_over_what_has_nothing_to_read() {
        let steps = steps();
        let read = steps.iter().position(|(task, _)| *task == Task::ReadStatements).unwrap();
        let after = |at, output: Value| steps.get(next_step(at, JobStatus::Completed, &output)).copied();
        assert_eq!(after(0, json!({"done": {}})), Some((Task::ReadStatements, 1)));
        assert_eq!(after(read, json!({"statements": 12})), Some((Task::ReadStatements, 2)));
        assert_eq!(after(read, json!({"statements": 0})), Some((Task::MergeConcepts, 1)));
        assert_eq!(after(steps.len() - 1, json!({})), None);
        assert_eq!(steps[next_step(read, JobStatus::Failed, &json!(null))].0, Task::MergeConcepts);
    }
}
