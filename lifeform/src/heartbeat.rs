//! One timer for all heartbeats. A beat is a message; with nothing due it costs neither a token nor a write.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::life::Handle;
use crate::spec::LifeformId;

#[derive(Default)]
struct Wheel {
    due: BinaryHeap<Reverse<(Instant, u64, LifeformId)>>,
    beating: HashMap<LifeformId, (u64, Handle, Duration)>,
    /// Tells a heart that was started again from its former self.
    generation: u64,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Heartbeat {
    wheel: Arc<Mutex<Wheel>>,
    changed: Arc<Notify>,
}

/// Who beats now, and when the next one is due.
fn due(wheel: &mut Wheel, now: Instant) -> (Vec<Handle>, Option<Instant>) {
    let mut beats = Vec::new();
    while let Some(Reverse((at, generation, id))) = wheel.due.peek().cloned() {
        if at > now {
            return (beats, Some(at));
        }
        wheel.due.pop();
        if let Some((_, handle, period)) = wheel.beating.get(&id).filter(|(current, ..)| *current == generation) {
            beats.push(handle.clone());
            // From now, not from when it was due: a machine that slept must not catch up a night of beats.
            wheel.due.push(Reverse((now + *period, generation, id)));
        }
    }
    (beats, None)
}

impl Heartbeat {
    /// Runs until the daemon ends.
    pub(crate) async fn run(self) {
        loop {
            let (beats, next) = due(&mut self.wheel.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
            beats.iter().for_each(Handle::beat);
            match next {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }

    /// Lets a lifeform's heart beat.
    pub(crate) fn start(&self, id: &LifeformId, handle: Handle, period: Duration) {
        let mut wheel = self.wheel.lock().unwrap_or_else(PoisonError::into_inner);
        wheel.generation += 1;
        let generation = wheel.generation;
        wheel.beating.insert(id.clone(), (generation, handle, period));
        wheel.due.push(Reverse((Instant::now() + period, generation, id.clone())));
        drop(wheel);
        self.changed.notify_one();
    }

    /// Lets it stop. Its entry leaves the wheel when it comes up.
    pub(crate) fn stop(&self, id: &LifeformId) {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner).beating.remove(id);
    }
}
