//! The wake queue of sleeping lifeforms: messages on their canvases, and the due times of their agendas. Both are
//! stored as markers, so that a starting daemon reads the markers alone, however many lifeforms it hosts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use store::{Key, Kind, Store, StoreError, Timestamp};
use tokio::sync::Notify;

use crate::spec::LifeformId;

/// Marks that are looked at at once.
const PAGE: usize = 256;
/// The longest sleep when no due time is known.
const NAP: SignedDuration = SignedDuration::from_mins(60);

#[derive(Default)]
struct Shared {
    called: Mutex<BTreeSet<LifeformId>>,
    changed: Notify,
    calling: Notify,
}

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Alarm(Arc<Shared>);

impl Alarm {
    /// The mark of a lifeform that is to be roused at `at`.
    pub(crate) fn mark(at: Timestamp, id: &str) -> Key {
        Key::new(Kind::Due, format!("{:020}/{id}", at.as_millisecond().max(0)))
    }

    /// The mark of a lifeform that is awake, or is to be: it is roused when the daemon starts.
    pub(crate) fn awake(id: &str) -> Key {
        Key::new(Kind::Awake, id)
    }

    /// Some agenda changed.
    pub(crate) fn changed(&self) {
        self.0.changed.notify_one();
    }

    /// A lifeform is called.
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

    /// Calls each lifeform when its time has come, until the daemon ends. `is_awake` tells those that are awake to
    /// look, and whether they were.
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

    /// Calls those whose time has come; answers when that is so for the next one.
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
