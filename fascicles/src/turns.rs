//! Turns: so many steps of all jobs are worked on at once, and whoever waits is let in by priority, then in order.
//! Afterthoughts let those pass for a while whom somebody waits for.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use utoipa::ToSchema;

/// Whose turn comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// After all others.
    Low,
    /// In between.
    #[default]
    Normal,
    /// Before all others.
    High,
}

/// How a step goes about its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Manner {
    /// The job's output comes from it, and it waits for nobody's thoughts.
    Prompt,
    /// The job's output comes from it, and it waits for a model.
    Patient,
    /// The output comes without it, so it lets those pass that are prompt, but not for longer than that.
    After(Instant),
}

/// How long the afterthoughts of a job let others pass.
pub(crate) const LETS_PASS: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<Inner>>);

struct Inner {
    free: usize,
    next: u64,
    waiting: BTreeMap<(Reverse<Priority>, u64), oneshot::Sender<Turn>>,
    /// How many are prompt, and have or want a turn.
    prompt: watch::Sender<usize>,
}

/// A turn; dropping it gives it to the next.
pub(crate) struct Turn {
    turns: Option<Turns>,
    /// One of those that are prompt.
    _prompt: Option<Prompt>,
}

/// Counted as long as it lives.
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
        // Whoever waits for it waits until there are none.
        self.0.send_if_modified(|count| {
            *count -= 1;
            *count == 0
        });
    }
}

impl Turns {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            free: at_once,
            next: 0,
            waiting: BTreeMap::new(),
            prompt: watch::Sender::new(0),
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn.
    pub(crate) async fn take(&self, priority: Priority, manner: Manner) -> Turn {
        let count = self.inner().prompt.clone();
        if let Manner::After(until) = manner {
            let _ = tokio::time::timeout_at(until, count.subscribe().wait_for(|prompt| *prompt == 0)).await;
        }
        let prompt = (manner == Manner::Prompt).then(|| Prompt::new(count));
        let waiting = {
            let mut inner = self.inner();
            if inner.free > 0 {
                inner.free -= 1;
                return Turn { turns: Some(self.clone()), _prompt: prompt };
            }
            let (turn, waiting) = oneshot::channel();
            let place = (Reverse(priority), inner.next);
            inner.next += 1;
            inner.waiting.insert(place, turn);
            waiting
        };
        // The sender lives in the queue that this handle keeps alive.
        let mut turn = waiting.await.unwrap_or(Turn { turns: None, _prompt: None });
        turn._prompt = prompt;
        turn
    }

    fn give_back(&self) {
        loop {
            let next = {
                let mut inner = self.inner();
                match inner.waiting.pop_first() {
                    Some((_, next)) => next,
                    None => {
                        inner.free += 1;
                        return;
                    }
                }
            };
            match next.send(Turn { turns: Some(self.clone()), _prompt: None }) {
                Ok(()) => return,
                // Whoever went away does not give it on by itself: there may be thousands of them.
                Err(mut turn) => turn.turns = None,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_of_the_highest_priority_is_next_and_who_went_away_is_passed_over() {
        let turns = Turns::new(1);
        let first = turns.take(Priority::Normal, Manner::Patient).await;
        let mut low = Box::pin(turns.take(Priority::Low, Manner::Patient));
        let mut normal = Box::pin(turns.take(Priority::Normal, Manner::Patient));
        let mut gone = Box::pin(turns.take(Priority::High, Manner::Patient));
        for waiting in [&mut low, &mut normal, &mut gone] {
            assert!(futures::poll!(waiting.as_mut()).is_pending());
        }
        drop(gone);
        drop(first);
        let second = normal.await;
        assert!(futures::poll!(low.as_mut()).is_pending());
        drop(second);
        low.await;
        assert_eq!(turns.inner().free, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_afterthought_lets_those_pass_that_are_prompt_but_not_for_ever() {
        let turns = Turns::new(8);
        let begun = tokio::time::Instant::now();
        let prompt = turns.take(Priority::Normal, Manner::Prompt).await;
        let _patient = turns.take(Priority::Normal, Manner::Patient).await;
        let mut after = Box::pin(turns.take(Priority::Normal, Manner::After(begun + LETS_PASS)));
        assert!(futures::poll!(after.as_mut()).is_pending());
        drop(prompt);
        drop(after.await);
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let _prompt = turns.take(Priority::Normal, Manner::Prompt).await;
        turns.take(Priority::Low, Manner::After(begun + LETS_PASS)).await;
        assert!(begun.elapsed() >= LETS_PASS);
    }
}
