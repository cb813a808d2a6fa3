//! The step scheduler: it limits the steps of all jobs that run at once ([`Turns`]). Background steps yield for a while
//! to steps with a waiting caller.

use std::cmp::Reverse;
use std::time::Duration;

use neurons::llm::Class;
use serde::{Deserialize, Serialize};
use store::{Turn, Turns, Wants};
use tokio::sync::watch;
use tokio::time::Instant;
use utoipa::ToSchema;

/// The priority of a job within its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// The job's steps run after those of other priorities.
    Low,
    /// The default priority.
    #[default]
    Normal,
    /// The job's steps run before those of other priorities.
    High,
}

/// The scheduling class of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Manner {
    /// A step that contributes to the output and does not wait for a model.
    Prompt,
    /// A step that contributes to the output and waits for a model.
    Patient,
    /// A background step. It yields to prompt steps, but at most until the given time.
    After(Instant),
}

/// The maximum time for which the background steps of a job yield to other steps.
pub(crate) const YIELD_MAX: Duration = Duration::from_secs(1);

/// The step scheduler. It orders steps by the class of their job, then by its priority.
pub(crate) struct StepScheduler {
    turns: Turns<(Class, Reverse<Priority>)>,
    /// The number of prompt steps that have a turn or wait for one.
    prompt: watch::Sender<usize>,
}

/// A turn. Dropping it passes it to the next step.
pub(crate) struct StepTurn {
    _turn: Turn<(Class, Reverse<Priority>)>,
    /// The count of a prompt step.
    _prompt: Option<Prompt>,
}

/// Counts a prompt step until it is dropped.
struct Prompt(watch::Sender<usize>);

impl Prompt {
    fn new(count: watch::Sender<usize>) -> Self {
        count.send_if_modified(|count| {
            *count += 1;
            false
        });
        Self(count)
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        // Only background steps subscribe, and they wait for zero.
        self.0.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }
}

impl StepScheduler {
    pub(crate) fn new(at_once: usize) -> Self {
        Self { turns: Turns::new(at_once), prompt: watch::Sender::new(0) }
    }

    /// Waits for a turn.
    pub(crate) async fn take(&self, wants: Wants<Class>, priority: Priority, manner: Manner) -> StepTurn {
        if let Manner::After(until) = manner {
            let _ = tokio::time::timeout_at(until, self.prompt.subscribe().wait_for(|prompt| *prompt == 0)).await;
        }
        let prompt = (manner == Manner::Prompt).then(|| Prompt::new(self.prompt.clone()));
        let Wants { class, who, is_bound } = wants;
        let turn = self.turns.take(Wants { class: (class, Reverse(priority)), who, is_bound }).await;
        StepTurn { _turn: turn, _prompt: prompt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada() -> Wants<Class> {
        Wants { class: Class::Invocation, who: "user:ada".into(), is_bound: true }
    }

    #[tokio::test]
    async fn the_class_of_a_job_is_before_its_priority() {
        let turns = StepScheduler::new(1);
        let first = turns.take(ada(), Priority::Normal, Manner::Patient).await;
        let mut low = Box::pin(turns.take(ada(), Priority::Low, Manner::Patient));
        let mut high = Box::pin(turns.take(ada(), Priority::High, Manner::Patient));
        let answer = Wants { class: Class::Answer, who: "lifeform:lf".into(), is_bound: false };
        let mut answer = Box::pin(turns.take(answer, Priority::Low, Manner::Patient));
        for waiting in [&mut low, &mut high, &mut answer] {
            assert!(futures::poll!(waiting.as_mut()).is_pending());
        }
        drop(first);
        let second = answer.await;
        assert!(futures::poll!(high.as_mut()).is_pending());
        drop(second);
        let third = high.await;
        assert!(futures::poll!(low.as_mut()).is_pending());
        drop(third);
        low.await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_afterthought_yields_to_prompt_steps_for_a_limited_time() {
        let turns = StepScheduler::new(8);
        let begun = tokio::time::Instant::now();
        let prompt = turns.take(ada(), Priority::Normal, Manner::Prompt).await;
        let _patient = turns.take(ada(), Priority::Normal, Manner::Patient).await;
        let mut after = Box::pin(turns.take(ada(), Priority::Normal, Manner::After(begun + YIELD_MAX)));
        assert!(futures::poll!(after.as_mut()).is_pending());
        drop(prompt);
        drop(after.await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let _prompt = turns.take(ada(), Priority::Normal, Manner::Prompt).await;
        turns.take(ada(), Priority::Low, Manner::After(begun + YIELD_MAX)).await;
        assert!(begun.elapsed() >= YIELD_MAX);
    }
}
