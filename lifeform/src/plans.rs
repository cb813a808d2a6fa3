//! The storage of an agenda: one document a lifeform, changed on its newest version, and a wake marker under the time
//! at which a sleeping lifeform is to be woken for it.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use store::{Batch, Expect, Key, Kind, Origin, Store, StoreError, Timestamp};

use crate::LifeformError;
use crate::agenda::Agenda;
use crate::alarm::Alarm;
use crate::canvas::Refusal;
use crate::spec::{Initiative, LifeformId};

/// Bytes of one agenda.
const AGENDA_BYTES_MAX: usize = 1 << 20;

/// See the module. Clones share what they know.
#[derive(Clone)]
pub(crate) struct Plans {
    store: Store,
    id: LifeformId,
    initiative: Initiative,
    alarm: Alarm,
    known: Arc<RwLock<(u64, Arc<Agenda>)>>,
}

impl Plans {
    /// The agenda of a lifeform as it is kept.
    ///
    /// # Errors
    /// The store's own.
    pub(crate) async fn load(
        store: Store,
        id: LifeformId,
        initiative: Initiative,
        alarm: Alarm,
    ) -> Result<Self, LifeformError> {
        let plans = Self { store, id, initiative, alarm, known: Arc::default() };
        plans.reload().await?;
        Ok(plans)
    }

    fn key(&self) -> Key {
        Key::new(Kind::Agenda, self.id.clone())
    }

    /// Looks again at what is kept.
    ///
    /// # Errors
    /// The store's own.
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

    /// The agenda as it is known.
    pub(crate) fn agenda(&self) -> Arc<Agenda> {
        self.known().1
    }

    /// Returns the rules of its initiative.
    pub(crate) fn initiative(&self) -> &Initiative {
        &self.initiative
    }

    /// A batch that keeps `agenda` after `version`, and under which time it is to be roused.
    fn kept(&self, batch: Batch, version: u64, agenda: &mut Agenda) -> Batch {
        let before = agenda.rouse_at;
        agenda.rouse_at = agenda.next_due(&self.initiative);
        let mut batch = batch.put_expecting(self.key(), Expect::Version(version), agenda);
        if before != agenda.rouse_at {
            if let Some(at) = before {
                batch = batch.delete(Alarm::mark(at, &self.id), Expect::Any);
            }
            if let Some(at) = agenda.rouse_at {
                batch = batch.put(Alarm::mark(at, &self.id), &self.id);
            }
        }
        batch
    }

    /// Changes the newest version of the agenda, whatever other writers do. The change is part of the lifeform's trace.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] as `change` has it, or the store's own.
    pub(crate) async fn change<T>(
        &self,
        origin: &Origin,
        what: &str,
        change: impl FnMut(&mut Agenda, Timestamp) -> Result<T, Refusal>,
    ) -> Result<T, LifeformError> {
        self.change_with(origin, what, change, |batch, _| batch).await
    }

    /// The same, with what `with` makes of the batch in the commit.
    ///
    /// # Errors
    /// As [`Self::change`]; a conflict when what was added cannot be.
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
                // It may be refused for what is not so any more.
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

    /// Returns a change that is committed together with something else by the caller: the version and the agenda after
    /// it, for [`Self::took`].
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
