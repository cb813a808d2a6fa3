//! `Lifeforms`: the handle. Birth, start, stop, reboot, death; canvases, nutrients and policy.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fascicles::Fascicles;
use futures::StreamExt;
use jiff::SignedDuration;
use neurons::llm::paid;
use nexus::ledger::{Account, AccountOp, Amount, Release};
use nexus::store::{Expect, Hash, Key, Kind};
use nexus::{Batch, Nexus, Origin, Principal, Store, StoreError, Timestamp};
use ractor::ActorCell;

use crate::LifeformError;
use crate::agenda::{Agenda, AimId, GoalChange, GoalSpec, ScheduleSpec};
use crate::alarm::Alarm;
use crate::attention::{Reading, reading_key};
use crate::canvas::{CHAT, Canvas, CanvasHead, CanvasId, Kind as CanvasKind, Limits, Refusal, Sleepers};
use crate::guard::{Guard, GuardLimits};
use crate::heartbeat::Heartbeat;
use crate::life::{Body, Handle, Head, Status, plant};
use crate::maintenance::Task;
use crate::memory::Memory;
use crate::metabolism::{Mode, Policy};
use crate::plans::Plans;
use crate::spec::{LifeformId, LifeformSpec, check_release};
use crate::spending::{self, Spending};
use crate::trace::{self, Walk};

/// Canvases in memory, past which those that nobody uses are let go.
const CANVASES_AWAKE: usize = 256;
/// Canvases one lifeform has.
const CANVASES_MAX: usize = 100;
/// Members of one canvas, and canvases of others that a lifeform takes part in.
const MEMBERS_MAX: usize = 64;
/// Lifeforms of one page of a listing.
pub const PAGE_MAX: usize = 1_000;
/// Lifeforms whose standing may change at once.
const STANDINGS: usize = 64;
/// How long it takes until one that could not be roused is called again.
const ROUSED_AGAIN: Duration = Duration::from_secs(5);
/// Lifeforms that are roused at once.
const ROUSED_AT_ONCE: usize = 64;

/// A cheap handle; clones share one registry.
#[derive(Clone)]
pub struct Lifeforms {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    nexus: Nexus,
    fascicles: Fascicles,
    supervisor: ActorCell,
    heartbeat: Heartbeat,
    alive: Mutex<HashMap<LifeformId, Handle>>,
    canvases: Mutex<HashMap<(LifeformId, CanvasId), Canvas>>,
    limits: Limits,
    guard: GuardLimits,
    /// Who lived since the daemon was started.
    lived: Mutex<HashSet<LifeformId>>,
    /// When the daemon was started.
    started_at: Timestamp,
    /// One change of standing at a time, of those that share a place here.
    standing: [tokio::sync::Mutex<()>; STANDINGS],
    alarm: Alarm,
}

impl Inner {
    fn canvases(&self) -> MutexGuard<'_, HashMap<(LifeformId, CanvasId), Canvas>> {
        self.canvases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lived(&self) -> MutexGuard<'_, HashSet<LifeformId>> {
        self.lived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> MutexGuard<'_, HashMap<LifeformId, Handle>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lifeforms {
    /// Opens the registry and wakes every lifeform that was alive when the daemon stopped.
    ///
    /// # Errors
    /// The store's own.
    pub async fn open(
        store: Store,
        nexus: Nexus,
        fascicles: Fascicles,
        limits: Limits,
        guard: GuardLimits,
    ) -> Result<Self, LifeformError> {
        let clock = store.clock().clone();
        let inner = Inner {
            store,
            nexus,
            fascicles,
            supervisor: plant().await?,
            heartbeat: Heartbeat::new(clock.clone()),
            alive: Mutex::default(),
            canvases: Mutex::default(),
            limits,
            guard,
            lived: Mutex::default(),
            started_at: clock.now(),
            standing: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            alarm: Alarm::default(),
        };
        let lifeforms = Self { inner: Arc::new(inner) };
        tokio::spawn(lifeforms.inner.heartbeat.clone().run());
        lifeforms.mark_those_from_before().await?;
        lifeforms.rouse_all().await?;
        let weak = Arc::downgrade(&lifeforms.inner);
        let is_awake = move |id: &str| {
            let Some(inner) = weak.upgrade() else { return true };
            let awake = inner.alive().get(id).filter(|handle| handle.is_alive()).cloned();
            // It need not wait for its next beat.
            awake.inspect(Handle::replanned).is_some()
        };
        tokio::spawn(lifeforms.inner.alarm.clone().run(lifeforms.inner.store.clone(), is_awake));
        tokio::spawn(lifeforms.clone().answer_calls());
        Ok(lifeforms)
    }

    /// A store of before lifeforms slept has no marks of who is awake: it is looked through once.
    async fn mark_those_from_before(&self) -> Result<(), LifeformError> {
        let done = Key::new(Kind::Meta, "lifeforms.marked");
        if self.inner.store.document::<bool>(&done).await?.is_some() {
            return Ok(());
        }
        let origin = Origin::system("start");
        let mut after = String::new();
        loop {
            let (heads, next) = self.page(&after, PAGE_MAX).await?;
            let living = heads.iter().filter(|head| matches!(head.status, Status::Running | Status::Dormant));
            for head in living {
                self.inner.store.commit(Batch::new(&origin).put(Alarm::awake(&head.id), &head.id)).await?;
            }
            let Some(next) = next else { break };
            after = next.to_string();
        }
        self.inner.store.commit(Batch::new(&origin).put(done, &true)).await?;
        Ok(())
    }

    /// Rouses whoever was awake when the daemon stopped.
    async fn rouse_all(&self) -> Result<(), LifeformError> {
        let mut after = String::new();
        loop {
            let page = self.inner.store.documents::<LifeformId>(Kind::Awake, &after, PAGE_MAX).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = last.to_string();
            let roused = page.into_iter().map(|(id, _)| self.rouse_at_last(id));
            futures::stream::iter(roused).buffer_unordered(ROUSED_AT_ONCE).collect::<()>().await;
        }
    }

    /// Wakes a lifeform if it lives; the marks of one that does not are removed.
    async fn rouse(&self, id: &LifeformId) -> Result<(), LifeformError> {
        let _one = self.standing(id).await;
        match self.versioned(id).await {
            Ok((head, _)) if matches!(head.status, Status::Running | Status::Dormant) => self.live(id).await,
            Ok(_) | Err(LifeformError::NotFound(_)) => {
                let kept = self.inner.store.document::<Agenda>(&Key::new(Kind::Agenda, id.clone())).await?;
                let mut gone = Batch::new(&Origin::system("rouse")).delete(Alarm::awake(id), Expect::Any);
                if let Some(at) = kept.and_then(|kept| kept.value.rouse_at) {
                    gone = gone.delete(Alarm::mark(at, id), Expect::Any);
                }
                self.inner.store.commit(gone).await?;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Rouses whoever is called, until the daemon ends.
    async fn answer_calls(self) {
        let alarm = self.inner.alarm.clone();
        loop {
            let called = alarm.called().await;
            let roused = called.into_iter().map(|id| self.rouse_at_last(id));
            futures::stream::iter(roused).buffer_unordered(ROUSED_AT_ONCE).collect::<()>().await;
        }
    }

    /// Rouses a lifeform, or tries again later: one that cannot be woken keeps no other from living.
    async fn rouse_at_last(&self, id: LifeformId) {
        match self.rouse(&id).await {
            Ok(()) | Err(LifeformError::Store(StoreError::Closed | StoreError::LeaseLost(_))) => {}
            Err(error) => {
                tracing::error!(lifeform = %id, %error, "it cannot be roused yet");
                let alarm = self.inner.alarm.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(ROUSED_AGAIN).await;
                    alarm.call(&id);
                });
            }
        }
    }

    async fn standing(&self, id: &str) -> tokio::sync::MutexGuard<'_, ()> {
        let place = usize::from(Hash::of(id.as_bytes()).0[0]) % STANDINGS;
        self.inner.standing[place].lock().await
    }

    /// Makes a lifeform; it does not live until it is started.
    ///
    /// # Errors
    /// [`LifeformError::Spec`] when the definition is not well made. With a `key`, the same caller makes
    /// one lifeform however often it asks.
    pub async fn create(
        &self,
        origin: &Origin,
        definition: LifeformSpec,
        key: Option<Arc<str>>,
    ) -> Result<Head, LifeformError> {
        definition.check().map_err(LifeformError::Spec)?;
        for fascicle in definition.fascicles() {
            self.inner.fascicles.get(fascicle).await.map_err(|error| LifeformError::Spec(error.to_string()))?;
        }
        let name = match &key {
            Some(key) => Hash::of(format!("{}\n{key}", origin.principal.id).as_bytes()).hex(),
            None => {
                // The time, and the end, in which those of one millisecond differ.
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
        self.memory(&id).name_self(&head.definition.name, &head.definition.persona).await?;
        self.canvas(&id).await?;
        Ok(head)
    }

    /// Lifeforms that were not terminated with ids after `after`, in order, at most `limit`, and where the next ones begin.
    ///
    /// # Errors
    /// The store's own.
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

    /// A lifeform that lives by a fascicle, if there is one.
    ///
    /// # Errors
    /// The store's own.
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

    /// One lifeform as it stands.
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

    /// The account of a lifeform.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn account(&self, id: &LifeformId) -> Result<Account, LifeformError> {
        self.get(id).await?;
        Ok(self.inner.store.account(id).unwrap_or_default())
    }

    /// Starts a lifeform; one that lives already goes on.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn start(&self, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.standing(id).await;
        self.begin(id).await?;
        self.get(id).await
    }

    /// What a start does besides waking: it is written that the lifeform is to live, and when it is to be roused.
    async fn begin(&self, id: &LifeformId) -> Result<(), LifeformError> {
        if self.inner.alive().get(id).is_some_and(Handle::is_alive) {
            return Ok(());
        }
        let (mut head, version) = self.versioned(id).await?;
        self.memory(id).name_self(&head.definition.name, &head.definition.persona).await?;
        let mut batch = Batch::new(&Origin::system("start"));
        if !matches!(head.status, Status::Running | Status::Dormant) {
            (head.status, head.guard) = (Status::Running, Guard::default());
            let why =
                serde_json::json!({"what": "woke", "status": head.status, "mode": head.mode, "policy": head.policy});
            batch = batch.put_expecting(Head::key(id), Expect::Version(version), &head);
            batch = batch.append(format!("trace:{id}"), "lifeform", &why);
        }
        let agenda = self.inner.store.document::<Agenda>(&Key::new(Kind::Agenda, id.clone())).await?;
        if let Some(at) = agenda.and_then(|agenda| agenda.value.rouse_at) {
            batch = batch.put(Alarm::mark(at, id), id);
        }
        self.inner.store.commit(batch.put(Alarm::awake(id), id)).await?;
        self.live(id).await
    }

    /// Stops a lifeform: what it is doing goes on when it is started again.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn stop(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.standing(id).await;
        self.rest(origin, id, Status::Stopped).await
    }

    /// Stops and starts: it wakes with its whole mind.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn reboot(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.standing(id).await;
        self.rest(origin, id, Status::Stopped).await?;
        self.begin(id).await?;
        self.get(id).await
    }

    /// Ends a lifeform. Its journals stay; it is found no more.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn terminate(&self, origin: &Origin, id: &LifeformId) -> Result<(), LifeformError> {
        let _one = self.standing(id).await;
        self.rest(origin, id, Status::Terminated).await?;
        self.inner.nexus.forget(id);
        for (name, ..) in self.canvases_of(id).await? {
            let name = format!("{id}/{name}");
            for (member, _) in self.members_under(&format!("of/{name}/")).await? {
                if let Some(handle) = self.inner.alive().get(&member) {
                    handle.leave(&name);
                }
            }
        }
        let mut canvases = self.inner.canvases();
        canvases.extract_if(|(of, _), _| of == id).for_each(|(_, canvas)| canvas.close());
        Ok(())
    }

    /// Adds to what a lifeform lives on, or takes from it, and wakes it if it rested.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`]. With a `key` it is booked once, and the key stands for this
    /// transaction alone.
    pub async fn credit(
        &self,
        origin: &Origin,
        id: &LifeformId,
        amount: Amount,
        memo: &str,
        key: Option<Arc<str>>,
    ) -> Result<Account, LifeformError> {
        self.get(id).await?;
        let taken = Amount { tokens: -amount.tokens, micro_usd: -amount.micro_usd };
        let op = match amount.tokens < 0 || amount.micro_usd < 0 {
            true => AccountOp::Debit(taken),
            false => AccountOp::Credit(amount),
        };
        let mut batch = Batch::new(origin).account(id.clone(), op, memo);
        let seen = key.map(|key| Key::new(Kind::Idempotency, format!("credit#{id}#{}#{key}", origin.principal.id)));
        let booked = (amount, memo.to_owned());
        if let Some(seen) = &seen {
            batch = batch.create(seen.clone(), &booked);
        }
        match (self.inner.store.commit(batch).await, seen) {
            (Err(StoreError::Conflict { .. }), Some(seen)) => {
                let before = self.inner.store.document::<(Amount, String)>(&seen).await?;
                if before.is_none_or(|before| before.value != booked) {
                    return Err(LifeformError::Spec("this Idempotency-Key was used for another transaction".into()));
                }
            }
            (outcome, _) => outcome.map(drop)?,
        }
        let awake = self.inner.alive().get(id).cloned();
        match awake {
            Some(handle) => handle.beat(),
            // It may have fallen asleep over something that it could not pay for.
            None => self.inner.alarm.call(id),
        }
        self.account(id).await
    }

    /// From now on nutrients come to a lifeform by this rule.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Spec`] when the rule is none.
    pub async fn release(&self, origin: &Origin, id: &LifeformId, rule: Release) -> Result<Account, LifeformError> {
        check_release(&rule).map_err(LifeformError::Spec)?;
        self.get(id).await?;
        let rule = (rule != Release::default()).then_some(rule);
        self.inner.store.commit(Batch::new(origin).account(id.clone(), AccountOp::Release(rule), "release")).await?;
        self.account(id).await
    }

    /// Where the nutrients of an account went: a lifeform's, or the house's.
    ///
    /// # Errors
    /// The store's own.
    pub async fn spending(&self, account: &str) -> Result<Spending, LifeformError> {
        Ok(spending::report(&self.inner.store, &self.inner.fascicles, account).await?)
    }

    /// What led to an entry of a lifeform's life, and what came of it. `None` when there is no such entry.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn trace(&self, id: &LifeformId, from: &str) -> Result<Option<Walk>, LifeformError> {
        let own = self.canvases(id).await?.into_iter().map(|(name, ..)| format!("{id}/{name}").into());
        let others = self.memberships(id).await?.into_iter().map(|(name, _)| name);
        let canvases: Vec<Arc<str>> = own.chain(others).map(|name: Arc<str>| format!("canvas:{name}").into()).collect();
        Ok(trace::walk(&self.inner.store, id, &canvases, from).await?)
    }

    /// The KIP that the answer of a job was given, as it was run.
    ///
    /// # Errors
    /// The store's own.
    pub async fn kip_of(&self, job: &str) -> Result<Vec<serde_json::Value>, LifeformError> {
        Ok(trace::kip_of(&self.inner.store, job).await?)
    }

    /// Orders how a lifeform is to live.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn set_policy(
        &self,
        origin: &Origin,
        id: &LifeformId,
        mut policy: Policy,
    ) -> Result<Head, LifeformError> {
        policy.set_by = Some(origin.principal.id.clone());
        let _one = self.standing(id).await;
        let (mut head, version) = self.versioned(id).await?;
        let handle = self.inner.alive().get(id).cloned();
        if let Some(handle) = handle {
            return handle.policy(policy, origin).await;
        }
        head.policy = policy;
        self.inner
            .store
            .commit(Batch::new(origin).put_expecting(Head::key(id), Expect::Version(version), &head))
            .await?;
        Ok(head)
    }

    /// The chat canvas of a lifeform, which it has from birth.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn canvas(&self, id: &LifeformId) -> Result<Canvas, LifeformError> {
        match self.named_canvas(id, &CHAT.into()).await {
            Err(LifeformError::NoCanvas(chat)) => {
                let origin = Origin::system("birth of a canvas");
                Canvas::make(&self.inner.store, id, &chat, CanvasKind::Chat, "chat", &origin).await?;
                self.named_canvas(id, &chat).await
            }
            found => found,
        }
    }

    /// The canvas of that name.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::NoCanvas`].
    pub async fn named_canvas(&self, id: &LifeformId, canvas: &CanvasId) -> Result<Canvas, LifeformError> {
        let name = (id.clone(), canvas.clone());
        if let Some(canvas) = self.inner.canvases().get(&name) {
            return Ok(canvas.clone());
        }
        let members = self.members_under(&format!("of/{id}/{canvas}/")).await?.into_iter().map(|(member, _)| member);
        let sleepers = Sleepers::new(members.chain([id.clone()]), self.inner.alarm.clone());
        let opened = Canvas::open(self.inner.store.clone(), id, canvas.clone(), self.inner.limits, sleepers).await?;
        let opened = {
            let mut canvases = self.inner.canvases();
            if canvases.len() >= CANVASES_AWAKE {
                canvases.retain(|_, canvas| !canvas.is_idle());
            }
            // Whoever opened first is the owner; the other one's is dropped unused.
            opened.map(|opened| canvases.entry(name.clone()).or_insert(opened).clone())
        };
        // One that was terminated meanwhile has none.
        if let Err(error) = self.versioned(id).await {
            let gone = self.inner.canvases().remove(&name);
            gone.into_iter().for_each(|canvas| canvas.close());
            return Err(error);
        }
        opened.ok_or_else(|| LifeformError::NoCanvas(canvas.clone()))
    }

    /// Makes a canvas; one of that name and type is found instead.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`]; [`LifeformError::Refused`] when the name is taken by another type, is none,
    /// or the lifeform has as many as it may.
    pub async fn create_canvas(
        &self,
        origin: &Origin,
        id: &LifeformId,
        canvas: &CanvasId,
        kind: CanvasKind,
        title: &str,
    ) -> Result<Canvas, LifeformError> {
        let refused = |path: &str, message: String| LifeformError::Refused(Refusal::schema(path, message));
        neurons::spec::check_id(canvas).map_err(|message| refused("id", message))?;
        if title.trim().is_empty() || title.chars().count() > 200 {
            return Err(refused("title", "a title is 1 to 200 characters".into()));
        }
        let known = self.canvases(id).await?;
        if known.len() >= CANVASES_MAX && !known.iter().any(|(name, ..)| name == canvas) {
            return Err(refused("id", format!("a lifeform has at most {CANVASES_MAX} canvases")));
        }
        Canvas::make(&self.inner.store, id, canvas, kind, title, origin).await?;
        let made = self.named_canvas(id, canvas).await?;
        if kind == CanvasKind::Chat
            && let Some(handle) = self.inner.alive().get(id)
        {
            handle.join(made.clone());
        }
        Ok(made)
    }

    /// The canvases of a lifeform with the revisions they are at, the chat first, then by age. None is opened for that.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn canvases(&self, id: &LifeformId) -> Result<Vec<(CanvasId, CanvasHead, u64)>, LifeformError> {
        self.canvas(id).await?;
        self.canvases_of(id).await
    }

    async fn canvases_of(&self, id: &LifeformId) -> Result<Vec<(CanvasId, CanvasHead, u64)>, LifeformError> {
        let prefix = format!("{id}/");
        let heads = self.inner.store.documents::<CanvasHead>(Kind::Canvas, &prefix, CANVASES_MAX + 1).await?;
        let mut canvases = Vec::new();
        for (name, head) in heads {
            let Some(canvas) = name.strip_prefix(&prefix) else { break };
            let rev = self.inner.store.head(&format!("canvas:{name}").into()).await?;
            canvases.push((CanvasId::from(canvas), head.value, rev));
        }
        canvases.sort_by_key(|(name, head, _)| (&**name != CHAT, head.made_at));
        Ok(canvases)
    }

    /// Lets a lifeform take part in a canvas of another: it hears what is said there from now on, and speaks when it is spoken
    /// to. What it is already, it stays.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::NoCanvas`], [`LifeformError::Refused`] for its own canvas, one that is no
    /// chat, or when there are as many as there may be.
    pub async fn join(&self, origin: &Origin, canvas: &Canvas, member: &LifeformId) -> Result<(), LifeformError> {
        self.get(member).await?;
        let refused = |why: String| Err(LifeformError::Refused(Refusal::State(why)));
        if canvas.name().starts_with(&format!("{member}/")) {
            return refused("a lifeform takes part in its own canvases anyway".into());
        }
        if canvas.kind != CanvasKind::Chat {
            return refused("only chats have members".into());
        }
        let known = self.members(canvas).await?;
        if known.iter().any(|(known, _)| known == member) {
            return Ok(());
        }
        if known.len() >= MEMBERS_MAX || self.memberships(member).await?.len() >= MEMBERS_MAX {
            return refused(format!("a canvas has at most {MEMBERS_MAX} members, and a lifeform as many memberships"));
        }
        let since = self.inner.store.clock().now();
        let [of_member, of_canvas] = membership(canvas.name(), member);
        // What was said before it came was not said to it, and what is said from now on calls it.
        canvas.sleepers().sleeps(member).await;
        let reading = Reading { upto: canvas.rev(), ..Reading::default() };
        let joined = Batch::new(origin).put(of_member, &since).put(of_canvas, &since);
        self.inner.store.commit(joined.put(reading_key(member, canvas.name()), &reading)).await?;
        if let Some(handle) = self.inner.alive().get(member) {
            handle.join(canvas.clone());
        }
        Ok(())
    }

    /// Lets it take part no more.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] when it did not.
    pub async fn leave(&self, origin: &Origin, canvas: &Canvas, member: &LifeformId) -> Result<(), LifeformError> {
        let [of_member, of_canvas] = membership(canvas.name(), member);
        if self.inner.store.document::<Timestamp>(&of_canvas).await?.is_none() {
            return Err(LifeformError::Refused(Refusal::Missing(format!("member {member}"))));
        }
        let left = Batch::new(origin).delete(of_member, Expect::Any).delete(of_canvas, Expect::Any);
        self.inner.store.commit(left.delete(reading_key(member, canvas.name()), Expect::Any)).await?;
        canvas.sleepers().reads(member).await;
        if let Some(handle) = self.inner.alive().get(member) {
            handle.leave(canvas.name());
        }
        Ok(())
    }

    /// The lifeforms that take part in a canvas of another, and since when.
    ///
    /// # Errors
    /// The store's own.
    pub async fn members(&self, canvas: &Canvas) -> Result<Vec<(LifeformId, Timestamp)>, LifeformError> {
        self.members_under(&format!("of/{}/", canvas.name())).await
    }

    /// The canvases of others that a lifeform takes part in, as `{lifeform}/{canvas}`.
    async fn memberships(&self, id: &LifeformId) -> Result<Vec<(Arc<str>, Timestamp)>, LifeformError> {
        self.members_under(&format!("in/{id}/")).await
    }

    async fn members_under(&self, prefix: &str) -> Result<Vec<(Arc<str>, Timestamp)>, LifeformError> {
        let found = self.inner.store.documents::<Timestamp>(Kind::Member, prefix, MEMBERS_MAX).await?;
        let under = found.into_iter().map_while(|(key, since)| Some((key.strip_prefix(prefix)?.into(), since.value)));
        Ok(under.collect())
    }

    /// The canvases on which a lifeform listens: its own chats, and those of others that it takes part in.
    async fn taken_part_in(&self, id: &LifeformId) -> Result<Vec<Canvas>, LifeformError> {
        let mut canvases = Vec::new();
        for (name, head, _) in self.canvases(id).await? {
            if head.kind == CanvasKind::Chat {
                canvases.push(self.named_canvas(id, &name).await?);
            }
        }
        for (name, _) in self.memberships(id).await? {
            let Some((owner, canvas)) = name.split_once('/') else { continue };
            match self.named_canvas(&owner.into(), &canvas.into()).await {
                Ok(canvas) => canvases.push(canvas),
                // Its owner is gone.
                Err(LifeformError::NotFound(_) | LifeformError::NoCanvas(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(canvases)
    }

    /// Halts every lifeform as it is: they wake at the next start of the daemon.
    pub async fn halt(&self) {
        let handles: Vec<(LifeformId, Handle)> = self.inner.alive().drain().collect();
        for (id, handle) in handles {
            self.inner.heartbeat.stop(&id);
            handle.halt().await;
        }
    }

    fn memory(&self, id: &LifeformId) -> Memory {
        let me = Origin::new(Principal::lifeform(id), nexus::Cause::default());
        Memory::new(self.inner.nexus.clone(), self.inner.store.clock().clone(), id.clone(), me)
    }

    async fn live(&self, id: &LifeformId) -> Result<(), LifeformError> {
        let living = self.inner.alive().get(id).is_some_and(Handle::is_alive);
        if living {
            return Ok(());
        }
        let (head, version) = self.versioned(id).await?;
        let is_first = !self.inner.lived().contains(id);
        if is_first {
            paid::settle_unknown(&self.inner.store, id).await?;
            self.inner.lived().insert(id.clone());
        }
        let canvases = self.taken_part_in(id).await?;
        let period = SignedDuration::from_millis(head.definition.metabolism.beat_ms as i64);
        let body = Body {
            store: self.inner.store.clone(),
            fascicles: self.inner.fascicles.clone(),
            canvases,
            memory: self.memory(id),
            plans: self.plans(id, &head).await?,
            guard: self.inner.guard,
            head,
            version,
            asleep: Arc::default(),
            restarted_at: is_first.then_some(self.inner.started_at),
        };
        let handle = Handle::spawn(body, self.inner.supervisor.clone()).await?;
        self.inner.heartbeat.start(id, handle.clone(), period);
        self.inner.alive().insert(id.clone(), handle.clone());
        self.guard(id.clone(), handle);
        Ok(())
    }

    /// Wakes a lifeform again that died by itself; one that was stopped is no longer registered. One that fell asleep is
    /// roused again if somebody called it in that very moment.
    fn guard(&self, id: LifeformId, handle: Handle) {
        let this = self.clone();
        tokio::spawn(async move {
            handle.ended().await;
            let is_registered = || this.inner.alive().get(&id).is_some_and(|registered| !registered.is_alive());
            if handle.is_asleep() {
                {
                    // Whoever is roused meanwhile is not to be taken off with it.
                    let _one = this.standing(&id).await;
                    if is_registered() {
                        this.inner.heartbeat.stop(&id);
                        this.inner.alive().remove(&id);
                    }
                }
                // Something may have come due while it fell asleep.
                this.inner.alarm.changed();
                if let Ok(Some(_)) = this.inner.store.document::<LifeformId>(&Alarm::awake(&id)).await {
                    this.inner.alarm.call(&id);
                }
                return;
            }
            // One that its guard stopped is not woken again.
            {
                let _one = this.standing(&id).await;
                if let Ok(Some(head)) = this.inner.store.document::<Head>(&Head::key(&id)).await
                    && head.value.status == Status::Stopped
                    && is_registered()
                {
                    this.inner.heartbeat.stop(&id);
                    this.inner.alive().remove(&id);
                }
            }
            let mut wait = Duration::from_secs(1);
            // One that was stopped or halted is no longer registered; this one died.
            while is_registered() {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(60));
                if let (true, Err(error)) = (is_registered(), Box::pin(this.rouse(&id)).await) {
                    tracing::error!(lifeform = %id, %error, "it cannot be woken yet");
                }
            }
        });
    }

    /// The agenda of a lifeform, as whoever asks may change it.
    async fn plans(&self, id: &LifeformId, head: &Head) -> Result<Plans, LifeformError> {
        let (store, initiative) = (self.inner.store.clone(), head.definition.initiative.clone());
        Plans::load(store, id.clone(), initiative, self.inner.alarm.clone()).await
    }

    /// The goals and schedules of a lifeform.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn agenda(&self, id: &LifeformId) -> Result<Arc<Agenda>, LifeformError> {
        let head = self.get(id).await?;
        Ok(self.plans(id, &head).await?.agenda())
    }

    /// Changes the agenda of a lifeform; one that is awake hears of it.
    async fn change<T>(
        &self,
        origin: &Origin,
        id: &LifeformId,
        what: &str,
        change: impl FnMut(&mut Agenda, Timestamp) -> Result<T, Refusal>,
    ) -> Result<T, LifeformError> {
        let head = self.get(id).await?;
        let changed = self.plans(id, &head).await?.change(origin, what, change).await?;
        if let Some(handle) = self.inner.alive().get(id) {
            handle.replanned();
        }
        Ok(changed)
    }

    /// Sets a goal; answers its id.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn set_goal(&self, origin: &Origin, id: &LifeformId, goal: GoalSpec) -> Result<AimId, LifeformError> {
        let by = &origin.principal.id;
        self.change(origin, id, "goal set", |agenda, now| agenda.set_goal(goal.clone(), by, now)).await
    }

    /// Changes a goal.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn change_goal(
        &self,
        origin: &Origin,
        id: &LifeformId,
        goal: &AimId,
        change: GoalChange,
    ) -> Result<(), LifeformError> {
        let by = &origin.principal.id;
        let changed = self.change(origin, id, "goal changed", |agenda, now| {
            may_change(origin, &agenda.goal(goal)?.by)?;
            agenda.change_goal(goal, change.clone(), by, now)
        });
        changed.await
    }

    /// Removes a goal and all that serve it.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn remove_goal(&self, origin: &Origin, id: &LifeformId, goal: &AimId) -> Result<(), LifeformError> {
        let removed = self.change(origin, id, "goal removed", |agenda, _| {
            may_change(origin, &agenda.goal(goal)?.by)?;
            agenda.remove_goal(goal)
        });
        removed.await
    }

    /// Sets a schedule; answers its id.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn set_schedule(
        &self,
        origin: &Origin,
        id: &LifeformId,
        schedule: ScheduleSpec,
    ) -> Result<AimId, LifeformError> {
        let by = &origin.principal.id;
        self.change(origin, id, "schedule set", |agenda, now| agenda.set_schedule(schedule.clone(), by, now)).await
    }

    /// Removes a schedule.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`].
    pub async fn remove_schedule(&self, origin: &Origin, id: &LifeformId, one: &AimId) -> Result<(), LifeformError> {
        let removed = self.change(origin, id, "schedule removed", |agenda, _| {
            if let Some(schedule) = agenda.schedules.get(one) {
                may_change(origin, &schedule.by)?;
            }
            agenda.remove_schedule(one)
        });
        removed.await
    }

    /// Has `$system` tidy the mind of a lifeform, by a job of it; answers the job.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::Refused`] for one that does not live.
    pub async fn maintain(&self, origin: &Origin, id: &LifeformId, task: Task) -> Result<Arc<str>, LifeformError> {
        let _one = self.standing(id).await;
        let (head, _) = self.versioned(id).await?;
        if !matches!(head.status, Status::Running | Status::Dormant) {
            return Err(LifeformError::Refused(Refusal::State("it does not live: start it first".into())));
        }
        self.live(id).await?;
        let handle = self.inner.alive().get(id).cloned().ok_or_else(|| LifeformError::NotFound(id.clone()))?;
        handle.maintain(task, origin).await
    }

    /// Ends what the guard of a lifeform does: a quarantine, say.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn calm(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.standing(id).await;
        let (mut head, version) = self.versioned(id).await?;
        let handle = self.inner.alive().get(id).filter(|handle| handle.is_alive()).cloned();
        if let Some(handle) = handle {
            return handle.calm(origin).await;
        }
        head.guard = Guard::default();
        let calmed = Batch::new(origin).put_expecting(Head::key(id), Expect::Version(version), &head);
        self.inner.store.commit(calmed).await?;
        Ok(head)
    }

    /// How many lifeforms are awake.
    pub fn awake(&self) -> usize {
        self.inner.alive().len()
    }

    async fn rest(&self, origin: &Origin, id: &LifeformId, status: Status) -> Result<Head, LifeformError> {
        let (mut head, version) = self.versioned(id).await?;
        self.inner.heartbeat.stop(id);
        let handle = self.inner.alive().remove(id);
        if let Some(handle) = handle.filter(Handle::is_alive) {
            return handle.stop(status, origin).await;
        }
        head.status = status;
        self.inner
            .store
            .commit(Batch::new(origin).put_expecting(Head::key(id), Expect::Version(version), &head))
            .await?;
        Ok(head)
    }
}

/// Under which names it is kept that a lifeform takes part in a canvas: by the lifeform, and by the canvas.
fn membership(canvas: &str, member: &str) -> [Key; 2] {
    [Key::new(Kind::Member, format!("in/{member}/{canvas}")), Key::new(Kind::Member, format!("of/{canvas}/{member}"))]
}

/// What somebody set he may change, and an operator may change all.
fn may_change(origin: &Origin, by: &nexus::PrincipalId) -> Result<(), Refusal> {
    match origin.principal.id == *by || origin.principal.may(nexus::Role::Operator) {
        true => Ok(()),
        false => Err(Refusal::Forbidden(format!("{by} set that; only {by} or an operator changes it"))),
    }
}
