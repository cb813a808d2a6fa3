//! The storage of an agenda: one document per lifeform, changed on its newest version, and a wake marker with the time
//! at which a sleeping lifeform must wake for it.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use store::{Batch, Expect, Key, Kind, Origin, Store, StoreError, Timestamp};

use crate::LifeformError;
use crate::agenda::Agenda;
use crate::canvas::Refusal;
use crate::spec::{Initiative, LifeformId};
use crate::wake_queue::WakeQueue;

/// The maximum size of an agenda, in bytes.
const AGENDA_BYTES_MAX: usize = 1 << 20;

/// The stored agenda of one lifeform. Clones share a cached copy.
#[derive(Clone)]
pub(crate) struct AgendaStore {
    store: Store,
    id: LifeformId,
    initiative: Initiative,
    alarm: WakeQueue,
    known: Arc<RwLock<(u64, Arc<Agenda>)>>,
}

impl AgendaStore {
    /// Loads the agenda of a lifeform.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn load(
        store: Store,
        id: LifeformId,
        initiative: Initiative,
        alarm: WakeQueue,
    ) -> Result<Self, LifeformError> {
        let plans = Self { store, id, initiative, alarm, known: Arc::default() };
        plans.reload().await?;
        Ok(plans)
    }

    fn key(&self) -> Key {
        Key::new(Kind::Agenda, self.id.clone())
    }

    /// Reloads the agenda from the store.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn reload(&self) -> Result<(), LifeformError> {
        let kept = self.store.document::<Agenda>(&self.key()).await?;
        let (version, agenda) = kept.map_or_else(Default::default, |kept| (kept.version, kept.value));
        self.know(version, agenda);
        Ok(())
    }

    fn know(&self, version: u64, agenda: Agenda) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = (version, Arc::new(agenda));
    }

    fn known(&self) -> (u64, Arc<Agenda>) {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the cached agenda.
    pub(crate) fn agenda(&self) -> Arc<Agenda> {
        self.known().1
    }

    /// The store of the daemon.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the rules of the lifeform's initiative.
    pub(crate) fn initiative(&self) -> &Initiative {
        &self.initiative
    }

    /// Adds to a batch the write of `agenda` over `version`, and its wake marker.
    fn kept(&self, batch: Batch, version: u64, agenda: &mut Agenda) -> Batch {
        let before = agenda.rouse_at;
        agenda.rouse_at = agenda.next_due(&self.initiative);
        let mut batch = batch.put_expecting(self.key(), Expect::Version(version), agenda);
        if before != agenda.rouse_at {
            if let Some(at) = before {
                batch = batch.delete(WakeQueue::mark(at, &self.id), Expect::Any);
            }
            if let Some(at) = agenda.rouse_at {
                batch = batch.put(WakeQueue::mark(at, &self.id), &self.id);
            }
        }
        batch
    }

    /// Changes the newest version of the agenda, with retries on conflicts. The trace of the lifeform includes the
    /// change.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] from `change`, or a store error.
    pub(crate) async fn change<T>(
        &self,
        origin: &Origin,
        what: &str,
        change: impl FnMut(&mut Agenda, Timestamp) -> Result<T, Refusal>,
    ) -> Result<T, LifeformError> {
        self.change_with(origin, what, change, |batch, _| batch).await
    }

    /// Changes the agenda and commits the additions of `with` in the same batch.
    ///
    /// # Errors
    /// As [`Self::change`]. A conflict if the additions conflict.
    pub(crate) async fn change_with<T>(
        &self,
        origin: &Origin,
        what: &str,
        mut change: impl FnMut(&mut Agenda, Timestamp) -> Result<T, Refusal>,
        with: impl Fn(Batch, &T) -> Batch,
    ) -> Result<T, LifeformError> {
        loop {
            let (version, agenda) = self.known();
            let mut next = (*agenda).clone();
            let made = change(&mut next, self.store.clock().now());
            let made = match made {
                Ok(made) => made,
                // The refusal may rest on an outdated version.
                Err(refusal) => {
                    self.reload().await?;
                    if self.known().0 == version {
                        return Err(LifeformError::Refused(refusal));
                    }
                    continue;
                }
            };
            if next == *agenda {
                return Ok(made);
            }
            if store::json(&next).len() > AGENDA_BYTES_MAX {
                let full = format!("an agenda has at most {AGENDA_BYTES_MAX} bytes: remove goals that are over");
                return Err(LifeformError::Refused(Refusal::State(full)));
            }
            let batch = self.kept(Batch::new(origin), version, &mut next);
            let changed: Vec<_> = next.goals.values().filter(|goal| agenda.goals.get(&goal.id) != Some(goal)).collect();
            let batch = batch.append(format!("trace:{}", self.id), "agenda", &json!({"what": what, "goals": changed}));
            match self.store.commit(with(batch, &made)).await {
                Ok(receipt) => {
                    self.know(receipt.versions[0], next);
                    self.alarm.changed();
                    return Ok(made);
                }
                Err(conflict @ StoreError::Conflict { .. }) => {
                    self.reload().await?;
                    if self.known().0 == version {
                        return Err(conflict.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns a change for a batch of the caller: the version and the new agenda. After the commit, the caller passes
    /// them to [`Self::took`].
    pub(crate) fn changed(&self, change: impl FnOnce(&mut Agenda)) -> (u64, Agenda) {
        let (version, agenda) = self.known();
        let mut next = (*agenda).clone();
        change(&mut next);
        (version, next)
    }

    /// Adds a change to a batch.
    pub(crate) fn with(&self, batch: Batch, (version, next): &mut (u64, Agenda)) -> Batch {
        self.kept(batch, *version, next)
    }
}
