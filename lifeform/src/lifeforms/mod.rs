//! `Lifeforms`: the handle on all lifeforms. Creation, start, stop, reboot and termination; canvases, nutrients and
//! policy.

mod agenda;
mod audiences;
mod canvases;
mod forgetting;
mod given_tools;
mod lifecycle;
mod mind_tools;
mod plan_questions;
mod resources;
mod supervision;
mod transfer;

pub use plan_questions::PlanQuestion;

pub(crate) use canvases::members_under;
use mind_tools::MindTools;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fascicles::Fascicles;
use knowledge::Knowledge;
use neurons::actors::{ActorCell, Deaths, Supervisor};
use neurons::tools::Builtins;
use nexus::Nexus;
use store::ledger::{AccountOp, Release, SHARE_DEFAULT, share_of};
use store::{Batch, Hash, Key, Kind, Origin, Store, StoreError, Timestamp};

use crate::LifeformError;
use crate::agenda::Agenda;
use crate::canvas::{Canvas, CanvasId, Limits};
use crate::guard::{Guard, GuardLimits};
use crate::heartbeat::Heartbeat;
use crate::homeostasis;
use crate::life::{Handle, Head, Status};
use crate::memory::Memory;
use crate::metabolism::{Mode, Policy};
use crate::perception;
use crate::shared_knowledge::KnowledgeAccess;
use crate::spec::{LifeformId, LifeformSpec};
use crate::trace::{self, Walk};
use crate::wake_queue::WakeQueue;

/// The maximum number of lifeforms on a page.
pub const PAGE_MAX: usize = 1_000;
/// The number of locks for opening canvases. Canvases that share a lock are opened one after the other.
const OPENINGS: usize = 64;
/// The number of locks for changes of status. Lifeforms that share a lock change one after the other.
const STANDINGS: usize = 64;

/// A cheap handle. Clones share one registry.
#[derive(Clone)]
pub struct Lifeforms {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    nexus: Nexus,
    fascicles: Fascicles,
    knowledge: Knowledge,
    supervisor: ActorCell,
    /// The deaths of lifeforms' actors.
    deaths: Mutex<HashMap<LifeformId, Deaths>>,
    heartbeat: Heartbeat,
    alive: Mutex<HashMap<LifeformId, Handle>>,
    canvases: Mutex<HashMap<(LifeformId, CanvasId), Canvas>>,
    limits: Limits,
    guard: GuardLimits,
    /// The lifeforms that have run since the daemon started.
    lived: Mutex<HashSet<LifeformId>>,
    /// The start of the daemon.
    started_at: Timestamp,
    /// The locks for changes of status, by the hash of the lifeform's id.
    lifecycle_lock: [tokio::sync::Mutex<()>; STANDINGS],
    /// The locks for opening canvases, by the hash of the canvas name.
    opening: [tokio::sync::Mutex<()>; OPENINGS],
    /// The lock under which canvases and members are counted and added.
    joining: tokio::sync::Mutex<()>,
    alarm: WakeQueue,
}

impl Inner {
    fn canvases(&self) -> MutexGuard<'_, HashMap<(LifeformId, CanvasId), Canvas>> {
        self.canvases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lived(&self) -> MutexGuard<'_, HashSet<LifeformId>> {
        self.lived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deaths(&self) -> MutexGuard<'_, HashMap<LifeformId, Deaths>> {
        self.deaths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the handle of a lifeform whose actor runs.
    fn running(&self, id: &LifeformId) -> Option<Handle> {
        self.alive().get(id).filter(|handle| handle.is_alive()).cloned()
    }

    fn alive(&self) -> MutexGuard<'_, HashMap<LifeformId, Handle>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lifeforms {
    /// The supervisor of the lifeforms' actors.
    pub fn supervisor(&self) -> &ActorCell {
        &self.inner.supervisor
    }

    /// Opens the registry and wakes each lifeform that was awake when the daemon stopped.
    ///
    /// # Errors
    /// A store error.
    pub async fn open(
        store: Store,
        nexus: Nexus,
        fascicles: Fascicles,
        knowledge: Knowledge,
        limits: Limits,
        guard: GuardLimits,
    ) -> Result<Self, LifeformError> {
        let clock = store.clock().clone();
        let supervisor = Supervisor::start("lifeforms").await;
        let supervisor = supervisor.map_err(|error| LifeformError::Died(error.to_string()))?;
        let inner = Inner {
            store,
            nexus,
            fascicles,
            knowledge,
            supervisor,
            deaths: Mutex::default(),
            joining: tokio::sync::Mutex::default(),
            heartbeat: Heartbeat::new(clock.clone()),
            alive: Mutex::default(),
            canvases: Mutex::default(),
            limits,
            guard,
            lived: Mutex::default(),
            started_at: clock.now(),
            lifecycle_lock: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            opening: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            alarm: WakeQueue::default(),
        };
        let lifeforms = Self { inner: Arc::new(inner) };
        // The tools must exist before a lifeform wakes that may use them.
        let mind: Arc<dyn Builtins> = Arc::new(MindTools::of(&lifeforms));
        let tools = lifeforms.inner.fascicles.neurons().tools();
        tools.add(&mind);
        tools.guard_minds(Arc::new(MindTools::of(&lifeforms)));
        tools.give(Arc::new(MindTools::of(&lifeforms)));
        lifeforms.inner.knowledge.guard_audiences(Arc::new(MindTools::of(&lifeforms)));
        tokio::spawn(store::vital("heartbeat", lifeforms.inner.heartbeat.clone().run()));
        lifeforms.mark_those_from_before().await?;
        lifeforms.wake_all().await?;
        let weak = Arc::downgrade(&lifeforms.inner);
        let is_awake = move |id: &str| {
            let Some(inner) = weak.upgrade() else { return true };
            let awake = inner.alive().get(id).filter(|handle| handle.is_alive()).cloned();
            // The lifeform then does not wait for its next heartbeat.
            awake.inspect(Handle::replanned).is_some()
        };
        tokio::spawn(store::vital(
            "wake queue",
            lifeforms.inner.alarm.clone().run(lifeforms.inner.store.clone(), is_awake),
        ));
        tokio::spawn(store::vital("calls", lifeforms.clone().answer_calls()));
        lifeforms.keep_copies_together();
        Ok(lifeforms)
    }

    /// Creates a lifeform. It does not run until it is started. With a `key`, repeated calls of the same caller create
    /// one lifeform.
    ///
    /// # Errors
    /// [`LifeformError::Spec`] if the definition is invalid.
    pub async fn create(
        &self,
        origin: &Origin,
        definition: LifeformSpec,
        key: Option<Arc<str>>,
    ) -> Result<Head, LifeformError> {
        definition.check().map_err(LifeformError::Spec)?;
        let tools = self.inner.fascicles.neurons().tools();
        tools.check_uses(&definition.tools, &[]).await.map_err(LifeformError::Spec)?;
        for fascicle in definition.fascicles() {
            self.inner.fascicles.get(fascicle).await.map_err(|error| LifeformError::Spec(error.to_string()))?;
        }
        homeostasis::check(&self.inner.fascicles, &definition.homeostasis, &definition.metabolism)
            .await
            .map_err(LifeformError::Spec)?;
        perception::check(&self.inner.fascicles, &definition.perceive).await.map_err(LifeformError::Spec)?;
        let name = match &key {
            Some(key) => Hash::of(format!("{}\n{key}", origin.principal.id).as_bytes()).hex(),
            None => {
                // The start of the UUID is the time. Its end distinguishes ids of the same millisecond.
                let made = uuid::Uuid::now_v7().simple().to_string();
                format!("{}{}", &made[..12], &made[24..])
            }
        };
        let id: LifeformId = format!("lf_{}", &name[..20]).into();
        let head = Head {
            id: id.clone(),
            definition,
            status: Status::Created,
            mode: Mode::Standard,
            policy: Policy::default(),
            created_at: self.inner.store.clock().now(),
            imported_at: None,
            rests: 0,
            wants: 0,
            in_want: false,
            guard: Guard::default(),
        };
        let mut birth = Batch::new(origin).create(Head::key(&id), &head).account(
            id.clone(),
            AccountOp::Open(head.definition.nutrients),
            "birth",
        );
        let release = head.definition.metabolism.release;
        if release != Release::default() {
            birth = birth.account(id.clone(), AccountOp::Release(Some(release)), "birth");
        }
        let share = share_of(head.definition.metabolism.person_share).map_err(LifeformError::Spec)?;
        if share != SHARE_DEFAULT {
            birth = birth.account(id.clone(), AccountOp::Share(share), "birth");
        }
        let now = self.inner.store.clock().now();
        let mut agenda = head.definition.agenda(now).map_err(LifeformError::Spec)?;
        if agenda != Agenda::default() {
            agenda.rouse_at = agenda.next_due(&head.definition.initiative);
            birth = birth.put(Key::new(Kind::Agenda, id.clone()), &agenda);
        }
        match self.inner.store.commit(birth).await {
            Err(StoreError::Conflict { .. }) if key.is_some() => {
                let made = self.get(&id).await?;
                return if made.definition == head.definition {
                    Ok(made)
                } else {
                    Err(LifeformError::Spec("this Idempotency-Key was used for another definition".into()))
                };
            }
            outcome => outcome.map(drop)?,
        }
        self.memory(&head).name_self(&head.definition.name, &head.definition.persona_text()).await?;
        self.canvas(&id).await?;
        Ok(head)
    }

    /// Returns up to `limit` lifeforms with ids after `after`, in order, and the start of the next page. Terminated
    /// lifeforms are left out.
    ///
    /// # Errors
    /// A store error.
    pub async fn page(&self, after: &str, limit: usize) -> Result<(Vec<Head>, Option<LifeformId>), LifeformError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut heads, mut after) = (Vec::new(), after.to_owned());
        loop {
            let page = self.inner.store.documents::<Head>(Kind::Lifeform, &after, limit).await?;
            let Some((last, _)) = page.last() else { return Ok((heads, None)) };
            after = last.to_string();
            for (id, head) in page {
                if head.value.status == Status::Terminated {
                    continue;
                }
                heads.push(head.value);
                if heads.len() == limit {
                    return Ok((heads, Some(id)));
                }
            }
        }
    }

    /// Returns a lifeform that uses a fascicle, if there is one.
    ///
    /// # Errors
    /// A store error.
    pub async fn living_by(&self, fascicle: &str) -> Result<Option<LifeformId>, LifeformError> {
        let mut after = String::new();
        loop {
            let (heads, next) = self.page(&after, PAGE_MAX).await?;
            let lives_by_it = |head: &&Head| head.definition.fascicles().any(|known| **known == *fascicle);
            if let Some(head) = heads.iter().find(lives_by_it) {
                return Ok(Some(head.id.clone()));
            }
            let Some(next) = next else { return Ok(None) };
            after = next.to_string();
        }
    }

    /// Returns the head of a lifeform.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn get(&self, id: &LifeformId) -> Result<Head, LifeformError> {
        Ok(self.versioned(id).await?.0)
    }

    async fn versioned(&self, id: &LifeformId) -> Result<(Head, u64), LifeformError> {
        let found = self
            .inner
            .store
            .document::<Head>(&Head::key(id))
            .await?
            .filter(|found| found.value.status != Status::Terminated);
        let found = found.ok_or_else(|| LifeformError::NotFound(id.clone()))?;
        let handle = self.inner.alive().get(id).cloned();
        let living = match handle {
            Some(handle) => handle.inspect().await,
            None => None,
        };
        Ok((living.unwrap_or(found.value), found.version))
    }

    /// Returns the causes and the effects of an entry of a lifeform; `None` if the entry does not exist.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn trace(&self, id: &LifeformId, from: &str) -> Result<Option<Walk>, LifeformError> {
        let journals = self.journals(id).await?;
        let Some(mut walk) = trace::walk(&self.inner.store, id, &journals, from).await? else { return Ok(None) };
        // A goal leads on to the messages that asked for it.
        for reference in self.requests_of(id, &walk.roots).await? {
            if let Some(request) = trace::walk(&self.inner.store, id, &journals, &reference).await? {
                walk.back.push(request.from);
                walk.back.extend(request.back);
            }
        }
        Ok(Some(walk))
    }

    /// Returns the references to the messages that asked for the goals among some roots.
    async fn requests_of(&self, id: &LifeformId, roots: &[Arc<str>]) -> Result<Vec<String>, LifeformError> {
        let goals: Vec<&str> = roots.iter().filter_map(|root| root.strip_prefix("goal:")).collect();
        if goals.is_empty() {
            return Ok(Vec::new());
        }
        let (agenda, mut references) = (self.agenda(id).await?, Vec::new());
        let asked = goals.iter().filter_map(|goal| agenda.goals.get(*goal)).flat_map(|goal| &goal.asked_in);
        for message in asked.flat_map(|all| all.split(' ')) {
            let mut parts = message.rsplitn(3, '/');
            let (Some(message), Some(topic), Some(name)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let Some((owner, canvas)) = name.split_once('/') else { continue };
            let Ok(open) = self.named_canvas(&owner.into(), &canvas.into()).await else { continue };
            let state = open.snapshot().state;
            let created =
                crate::canvas::chat::message_in(&state, topic, message).and_then(|message| message.created_rev());
            references.extend(created.map(|rev| format!("canvas:{name}@{rev}")));
        }
        Ok(references)
    }

    /// Returns the effects of an entry or a job, without causes. It returns more effects than a [trace](Self::trace).
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn effects(&self, id: &LifeformId, from: &str) -> Result<Option<Walk>, LifeformError> {
        Ok(trace::effects(&self.inner.store, id, &self.journals(id).await?, from).await?)
    }

    /// Returns the journals of the canvases that a lifeform takes part in.
    async fn journals(&self, id: &LifeformId) -> Result<Vec<Arc<str>>, LifeformError> {
        let own = self.canvases(id).await?.into_iter().map(|(name, ..)| format!("{id}/{name}").into());
        let others = self.memberships(id).await?.into_iter().map(|(name, _)| name);
        Ok(own.chain(others).map(|name: Arc<str>| format!("canvas:{name}").into()).collect())
    }

    /// Returns the KIP commands whose results the answer of a job received, as they were run.
    ///
    /// # Errors
    /// A store error.
    pub async fn kip_of(&self, job: &str) -> Result<Vec<serde_json::Value>, LifeformError> {
        Ok(trace::kip_of(&self.inner.store, job).await?)
    }

    fn memory(&self, head: &Head) -> Memory {
        let me = Origin::new(head.principal(), store::Cause::default());
        let directory = self.inner.knowledge.directory().clone();
        Memory::new(self.inner.nexus.clone(), self.inner.store.clock().clone(), directory, head.id.clone(), me)
    }

    fn knowledge(&self, head: &Head) -> KnowledgeAccess {
        let (knowledge, clock) = (self.inner.knowledge.clone(), self.inner.store.clock().clone());
        // The lifeform pays for model calls about its own records.
        let knowledge = knowledge.paid_by(head.id.clone());
        KnowledgeAccess::new(knowledge, clock, head.principal(), head.definition.trusts.clone().into())
    }

    /// Returns the number of lifeforms in memory.
    pub fn awake(&self) -> usize {
        self.inner.alive().len()
    }
}
