//! Turns: so many steps of all jobs are worked on at once, and whoever waits is let in by priority, then in order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
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

/// See the module.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<Inner>>);

struct Inner {
    free: usize,
    next: u64,
    waiting: BTreeMap<(Reverse<Priority>, u64), oneshot::Sender<Turn>>,
}

/// A turn; dropping it gives it to the next.
pub(crate) struct Turn(Option<Turns>);

impl Turns {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner { free: at_once, next: 0, waiting: BTreeMap::new() })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn.
    pub(crate) async fn take(&self, priority: Priority) -> Turn {
        let waiting = {
            let mut inner = self.inner();
            if inner.free > 0 {
                inner.free -= 1;
                return Turn(Some(self.clone()));
            }
            let (turn, waiting) = oneshot::channel();
            let place = (Reverse(priority), inner.next);
            inner.next += 1;
            inner.waiting.insert(place, turn);
            waiting
        };
        // The sender lives in the queue that this handle keeps alive.
        waiting.await.unwrap_or(Turn(None))
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
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // Whoever went away does not give it on by itself: there may be thousands of them.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
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
        let first = turns.take(Priority::Normal).await;
        let mut low = Box::pin(turns.take(Priority::Low));
        let mut normal = Box::pin(turns.take(Priority::Normal));
        let mut gone = Box::pin(turns.take(Priority::High));
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
}
