//! One timer for all heartbeats, on the clock of the store. A beat is a message; with nothing due it costs neither a
//! token nor a write.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::SignedDuration;
use store::{Clock, Timestamp};
use tokio::sync::Notify;

use crate::life::Handle;
use crate::spec::LifeformId;

#[derive(Default)]
struct Wheel {
    due: BinaryHeap<Reverse<(Timestamp, u64, LifeformId)>>,
    beating: HashMap<LifeformId, Heart>,
    /// Tells a heart that was started again from its former self.
    generation: u64,
}

struct Heart {
    generation: u64,
    handle: Handle,
    period: SignedDuration,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct Heartbeat {
    clock: Arc<dyn Clock>,
    wheel: Arc<Mutex<Wheel>>,
    changed: Arc<Notify>,
}

/// Returns the lifeforms that beat now, and the time of the next beat.
fn due(wheel: &mut Wheel, now: Timestamp) -> (Vec<Handle>, Option<Timestamp>) {
    let mut beats = Vec::new();
    while let Some(Reverse((at, generation, id))) = wheel.due.peek().cloned() {
        if at > now {
            return (beats, Some(at));
        }
        wheel.due.pop();
        if let Some(heart) = wheel.beating.get(&id).filter(|heart| heart.generation == generation) {
            beats.push(heart.handle.clone());
            // From now, not from when it was due: a machine that slept must not catch up a night of beats.
            let next = now + heart.period;
            wheel.due.push(Reverse((next, generation, id)));
        }
    }
    (beats, None)
}

impl Heartbeat {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, wheel: Arc::default(), changed: Arc::default() }
    }

    fn wheel(&self) -> MutexGuard<'_, Wheel> {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until the daemon ends.
    pub(crate) async fn run(self) {
        loop {
            let (beats, next) = due(&mut self.wheel(), self.clock.now());
            beats.iter().for_each(Handle::beat);
            let wait = async {
                match next {
                    Some(at) => self.clock.until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Lets a lifeform's heart beat.
    pub(crate) fn start(&self, id: &LifeformId, handle: Handle, period: SignedDuration) {
        let mut wheel = self.wheel();
        wheel.generation += 1;
        let generation = wheel.generation;
        wheel.beating.insert(id.clone(), Heart { generation, handle, period });
        wheel.due.push(Reverse((self.clock.now() + period, generation, id.clone())));
        drop(wheel);
        self.changed.notify_one();
    }

    /// Lets it stop. Its entry leaves the wheel when it comes up.
    pub(crate) fn stop(&self, id: &LifeformId) {
        self.wheel().beating.remove(id);
    }
}
