//! One timer for all heartbeats, on the clock of the store. A heartbeat is an actor message. Without due work, it costs
//! no token and no write.

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
    /// The number that distinguishes a restarted heartbeat from the earlier one.
    generation: u64,
}

struct Heart {
    generation: u64,
    handle: Handle,
    period: SignedDuration,
}

/// The timer of all heartbeats. Clones share it.
#[derive(Clone)]
pub(crate) struct Heartbeat {
    clock: Arc<dyn Clock>,
    wheel: Arc<Mutex<Wheel>>,
    changed: Arc<Notify>,
}

/// Returns the lifeforms whose heartbeat is due, and the time of the next heartbeat.
fn due(wheel: &mut Wheel, now: Timestamp) -> (Vec<Handle>, Option<Timestamp>) {
    let mut beats = Vec::new();
    while let Some(Reverse((at, generation, id))) = wheel.due.peek().cloned() {
        if at > now {
            return (beats, Some(at));
        }
        wheel.due.pop();
        if let Some(heart) = wheel.beating.get(&id).filter(|heart| heart.generation == generation) {
            beats.push(heart.handle.clone());
            // The period counts from now and not from the due time, so that a suspended machine does not catch up on
            // missed heartbeats.
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

    /// Starts the heartbeat of a lifeform.
    pub(crate) fn start(&self, id: &LifeformId, handle: Handle, period: SignedDuration) {
        let mut wheel = self.wheel();
        wheel.generation += 1;
        let generation = wheel.generation;
        wheel.beating.insert(id.clone(), Heart { generation, handle, period });
        wheel.due.push(Reverse((self.clock.now() + period, generation, id.clone())));
        drop(wheel);
        self.changed.notify_one();
    }

    /// Stops the heartbeat of a lifeform. Its entry leaves the queue when it becomes due.
    pub(crate) fn stop(&self, id: &LifeformId) {
        self.wheel().beating.remove(id);
    }
}
