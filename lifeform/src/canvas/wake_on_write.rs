//! The sleeping members of a canvas. A message wakes them: the wake markers share the commit of the message. If the
//! daemon dies in between, it wakes these lifeforms at its next start.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::{Batch, PrincipalId, Receipt, Store, StoreError};
use tokio::sync::Mutex;

use crate::spec::LifeformId;
use crate::wake_queue::WakeQueue;

/// The ops that wake nobody.
const QUIET: [&str; 8] = [
    "user.name",
    "topic.read",
    "topic.role",
    "message.stream_open",
    "message.reopen",
    "message.checkpoint",
    "message.react",
    "message.suggest",
];

/// The sleeping members of a canvas.
#[derive(Clone, Default)]
pub struct UnloadedMembers {
    asleep: Arc<Mutex<BTreeSet<LifeformId>>>,
    alarm: WakeQueue,
}

impl UnloadedMembers {
    /// Creates the list of sleeping members; `alarm` wakes them.
    pub(crate) fn new(asleep: impl IntoIterator<Item = LifeformId>, alarm: WakeQueue) -> Self {
        Self { asleep: Arc::new(Mutex::new(asleep.into_iter().collect())), alarm }
    }

    /// Records that a lifeform no longer reads this canvas and must be woken. All earlier messages have been submitted
    /// to the store when this returns.
    pub(crate) async fn sleeps(&self, id: &LifeformId) {
        self.asleep.lock().await.insert(id.clone());
    }

    /// Records that a lifeform reads this canvas and need not be woken.
    pub(crate) async fn reads(&self, id: &LifeformId) {
        self.asleep.lock().await.remove(id);
    }

    /// Submits a batch of ops by `writer` to the store, with the wake markers of the called lifeforms. `names` are the
    /// ops in the batch. Returns the called lifeforms, and a future of the commit.
    pub(super) async fn submit(
        &self,
        store: &Store,
        mut batch: Batch,
        names: &[Arc<str>],
        writer: &PrincipalId,
    ) -> (Vec<LifeformId>, impl Future<Output = Result<Receipt, StoreError>> + Send + 'static) {
        let asleep = self.asleep.lock().await;
        let is_quiet = names.iter().all(|name| QUIET.contains(&&**name));
        let is_other = |id: &&LifeformId| writer.0.strip_prefix("lifeform:") != Some(&***id);
        let called: Vec<LifeformId> = asleep.iter().filter(is_other).filter(|_| !is_quiet).cloned().collect();
        for id in &called {
            batch = batch.put(WakeQueue::awake(id), id);
        }
        (called, store.submit(batch).await)
    }

    /// Wakes the called lifeforms, after the commit is durable.
    pub(super) fn call(&self, called: &[LifeformId]) {
        called.iter().for_each(|id| self.alarm.call(id));
    }
}
