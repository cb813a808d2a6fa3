//! The wake queue of sleeping lifeforms, for messages on their canvases and due times of their agendas. Both are stored
//! as markers. A starting daemon thus reads only the markers, however many lifeforms it hosts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use store::{Key, Kind, Store, StoreError, Timestamp};
use tokio::sync::Notify;

use crate::spec::LifeformId;

/// The number of markers per read.
const PAGE: usize = 256;
/// The maximum wait when no due time is known.
const NAP: SignedDuration = SignedDuration::from_mins(60);

#[derive(Default)]
struct Shared {
    called: Mutex<BTreeSet<LifeformId>>,
    changed: Notify,
    calling: Notify,
}

/// The wake queue. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct WakeQueue(Arc<Shared>);

impl WakeQueue {
    /// Returns the key of the marker that wakes a lifeform at `at`.
    pub(crate) fn mark(at: Timestamp, id: &str) -> Key {
        Key::new(Kind::Due, format!("{:020}/{id}", at.as_millisecond().max(0)))
    }

    /// Returns the key of the marker for a lifeform that is awake or must be woken. The daemon wakes it at its start.
    pub(crate) fn awake(id: &str) -> Key {
        Key::new(Kind::Awake, id)
    }

    /// Signals that an agenda has changed.
    pub(crate) fn changed(&self) {
        self.0.changed.notify_one();
    }

    /// Calls a lifeform: it is woken.
    pub(crate) fn call(&self, id: &LifeformId) {
        self.0.called.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        self.0.calling.notify_one();
    }

    /// Waits until lifeforms are called, and returns them.
    pub(crate) async fn called(&self) -> BTreeSet<LifeformId> {
        loop {
            let called = std::mem::take(&mut *self.0.called.lock().unwrap_or_else(PoisonError::into_inner));
            if !called.is_empty() {
                return called;
            }
            self.0.calling.notified().await;
        }
    }

    /// Calls each lifeform at its due time, until the daemon ends. `is_awake` notifies a lifeform that is awake, and
    /// returns `true` if it was.
    pub(crate) async fn run(self, store: Store, is_awake: impl Fn(&str) -> bool + Send + 'static) {
        loop {
            let next = match self.look(&store, &is_awake).await {
                Ok(next) => next,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "it is not known who is to be roused");
                    store.clock().now() + SignedDuration::from_secs(1)
                }
            };
            tokio::select! {
                () = store.clock().until(next) => {}
                () = self.0.changed.notified() => {}
            }
        }
    }

    /// Calls all lifeforms that are due, and returns the next due time.
    async fn look(&self, store: &Store, is_awake: &impl Fn(&str) -> bool) -> Result<Timestamp, StoreError> {
        let now = store.clock().now();
        let mut after = String::new();
        loop {
            let page = store.documents::<LifeformId>(Kind::Due, &after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(now + NAP) };
            after = last.to_string();
            for (mark, id) in page {
                let at = mark.split_once('/').and_then(|(at, _)| Timestamp::from_millisecond(at.parse().ok()?).ok());
                match at {
                    Some(at) if at > now => return Ok(at),
                    _ if is_awake(&id.value) => {}
                    _ => self.call(&id.value),
                }
            }
        }
    }
}
