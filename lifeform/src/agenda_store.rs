//! The storage of an agenda: one document per lifeform, changed on its newest version, the plans of its goals as documents
//! that are only written together with it, and a wake marker with the time at which a sleeping lifeform must wake for it.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::json;
use store::{Batch, Expect, Key, Kind, Origin, Store, StoreError, Timestamp};

use crate::LifeformError;
use crate::agenda::{Agenda, AgendaItemId, Goal, PlanStep};
use crate::canvas::Refusal;
use crate::spec::{Initiative, LifeformId};
use crate::wake_queue::WakeQueue;

/// The maximum size of an agenda, in bytes.
const AGENDA_BYTES_MAX: usize = 1 << 20;

/// The number of plans that are read at once.
const PLANS_PAGE: usize = 64;

/// The stored agenda of one lifeform. Clones share a cached copy.
#[derive(Clone)]
pub(crate) struct AgendaStore {
    store: Store,
    id: LifeformId,
    initiative: Initiative,
    alarm: WakeQueue,
    known: Arc<RwLock<Known>>,
}

/// The cached agenda with its version, and whether plans are stored within its document, as an earlier release did.
#[derive(Clone, Default)]
struct Known {
    version: u64,
    agenda: Arc<Agenda>,
    holds_plans: bool,
}

/// Returns the open goals that wait for a decision about their plan.
fn waiting(agenda: &Agenda) -> BTreeSet<&AgendaItemId> {
    let waits = |goal: &&Goal| goal.course.asks.is_some() && !goal.status.is_over();
    agenda.goals.values().filter(waits).map(|goal| &goal.id).collect()
}

/// A change of an agenda that the batch of a caller commits.
pub(crate) struct Changed {
    known: Known,
    next: Agenda,
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

    fn plan_key(&self, goal: &str) -> Key {
        Key::new(Kind::Plan, format!("{}/{goal}", self.id))
    }

    fn asked_key(&self, goal: &str) -> Key {
        Key::new(Kind::Asked, format!("{}/{goal}", self.id))
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
        let (version, mut agenda) = kept.map_or_else(Default::default, |kept| (kept.version, kept.value));
        let holds_plans = agenda.goals.values().any(|goal| !goal.plan.is_empty());
        // Read after the agenda: a plan that is newer than it is never written back, because the version has moved on.
        for (goal, plan) in self.plans(&agenda).await? {
            if let Some(goal) = agenda.goals.get_mut(&goal) {
                goal.plan = plan;
            }
        }
        self.know(version, agenda, holds_plans);
        Ok(())
    }

    /// Returns the stored plans of an agenda's goals.
    async fn plans(&self, agenda: &Agenda) -> Result<Vec<(AgendaItemId, Vec<PlanStep>)>, LifeformError> {
        let own = format!("{}/", self.id);
        let (mut plans, mut after) = (Vec::new(), own.clone());
        if agenda.goals.is_empty() {
            return Ok(plans);
        }
        loop {
            let page = self.store.documents::<Vec<PlanStep>>(Kind::Plan, &after, PLANS_PAGE).await?;
            let full = page.len() == PLANS_PAGE;
            let page: Vec<_> = page.into_iter().take_while(|(name, _)| name.starts_with(&own)).collect();
            let last = page.last().map(|(name, _)| name.to_string());
            let is_whole = !full || page.len() < PLANS_PAGE;
            plans.extend(page.into_iter().map(|(name, kept)| (name[own.len()..].into(), kept.value)));
            match last {
                Some(last) if !is_whole => after = last,
                _ => return Ok(plans),
            }
        }
    }

    fn know(&self, version: u64, agenda: Agenda, holds_plans: bool) {
        let known = Known { version, agenda: Arc::new(agenda), holds_plans };
        let mut newest = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another task may have written in between.
        if newest.version <= known.version {
            *newest = known;
        }
    }

    fn known(&self) -> Known {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the cached agenda.
    pub(crate) fn agenda(&self) -> Arc<Agenda> {
        self.known().agenda
    }

    /// The store of the daemon.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the rules of the lifeform's initiative.
    pub(crate) fn initiative(&self) -> &Initiative {
        &self.initiative
    }

    /// Adds to a batch the write of `agenda` over the known one, of the plans that changed, and of its wake marker.
    fn kept(&self, batch: Batch, known: &Known, agenda: &mut Agenda) -> Batch {
        let before = agenda.rouse_at;
        agenda.rouse_at = agenda.next_due(&self.initiative);
        let mut batch = batch.put_expecting(self.key(), Expect::Version(known.version), &agenda.without_plans());
        for goal in agenda.goals.values() {
            let stored = known.agenda.goals.get(&goal.id).map(|goal| &goal.plan).filter(|_| !known.holds_plans);
            if stored.unwrap_or(&Vec::new()) != &goal.plan {
                batch = batch.put(self.plan_key(&goal.id), &goal.plan);
            }
        }
        for gone in known.agenda.goals.values().filter(|goal| !goal.plan.is_empty()) {
            if !agenda.goals.contains_key(&gone.id) {
                batch = batch.delete(self.plan_key(&gone.id), Expect::Any);
            }
        }
        let (asked, asks) = (waiting(&known.agenda), waiting(agenda));
        for goal in asks.difference(&asked) {
            batch = batch.put(self.asked_key(goal), &self.id);
        }
        for goal in asked.difference(&asks) {
            batch = batch.delete(self.asked_key(goal), Expect::Any);
        }
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
            let known = self.known();
            let (version, agenda) = (known.version, known.agenda.clone());
            let mut next = (*agenda).clone();
            let made = change(&mut next, self.store.clock().now());
            let made = match made {
                Ok(made) => made,
                // The refusal may rest on an outdated version.
                Err(refusal) => {
                    self.reload().await?;
                    if self.known().version == version {
                        return Err(LifeformError::Refused(refusal));
                    }
                    continue;
                }
            };
            if next == *agenda {
                return Ok(made);
            }
            if store::json(&next.without_plans()).len() > AGENDA_BYTES_MAX {
                let full = format!("an agenda has at most {AGENDA_BYTES_MAX} bytes: remove goals that are over");
                return Err(LifeformError::Refused(Refusal::State(full)));
            }
            let batch = self.kept(Batch::new(origin), &known, &mut next);
            let is_changed = |goal: &&Goal| agenda.goals.get(&goal.id) != Some(*goal);
            let changed: Vec<Goal> = next.goals.values().filter(is_changed).map(Goal::outline).collect();
            let batch = batch.append(format!("trace:{}", self.id), "agenda", &json!({"what": what, "goals": changed}));
            match self.store.commit(with(batch, &made)).await {
                Ok(receipt) => {
                    self.know(receipt.versions[0], next, false);
                    self.alarm.changed();
                    return Ok(made);
                }
                Err(conflict @ StoreError::Conflict { .. }) => {
                    self.reload().await?;
                    if self.known().version == version {
                        return Err(conflict.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns a change for a batch of the caller. After the commit, the caller reloads the agenda.
    pub(crate) fn changed(&self, change: impl FnOnce(&mut Agenda)) -> Changed {
        let known = self.known();
        let mut next = (*known.agenda).clone();
        change(&mut next);
        Changed { known, next }
    }

    /// Adds a change to a batch.
    pub(crate) fn with(&self, batch: Batch, changed: &mut Changed) -> Batch {
        self.kept(batch, &changed.known, &mut changed.next)
    }
}
