//! The lifeforms that take part in a canvas and sleep. What is said there calls them: the mark by which they are roused
//! shares the commit of what was said, so that a daemon that dies in between rouses them when it starts.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::{Batch, PrincipalId, Receipt, Store, StoreError};
use tokio::sync::Mutex;

use crate::alarm::Alarm;
use crate::spec::LifeformId;

/// Ops that nobody is roused for.
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

/// See the module.
#[derive(Clone, Default)]
pub struct Sleepers {
    asleep: Arc<Mutex<BTreeSet<LifeformId>>>,
    alarm: Alarm,
}

impl Sleepers {
    /// These sleep; `alarm` rouses them.
    pub(crate) fn new(asleep: impl IntoIterator<Item = LifeformId>, alarm: Alarm) -> Self {
        Self { asleep: Arc::new(Mutex::new(asleep.into_iter().collect())), alarm }
    }

    /// A lifeform reads this canvas no more, and is to be called. What was said before is handed to the store when this
    /// returns.
    pub(crate) async fn sleeps(&self, id: &LifeformId) {
        self.asleep.lock().await.insert(id.clone());
    }

    /// A lifeform reads this canvas, and need not be called.
    pub(crate) async fn reads(&self, id: &LifeformId) {
        self.asleep.lock().await.remove(id);
    }

    /// Hands a batch of ops of these names by `writer` to the store, with the marks of those it calls. Answers whom,
    /// and the wait for it.
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
            batch = batch.put(Alarm::awake(id), id);
        }
        (called, store.submit(batch).await)
    }

    /// Calls them, once what calls them is durable.
    pub(super) fn call(&self, called: &[LifeformId]) {
        called.iter().for_each(|id| self.alarm.call(id));
    }
}
