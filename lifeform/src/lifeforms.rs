//! `Lifeforms`: the handle. Birth, start, stop, reboot, death; canvases, nutrients and policy.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fascicles::Fascicles;
use neurons::llm::paid;
use nexus::ledger::{Account, AccountOp, Amount, Release};
use nexus::store::{Expect, Hash, Key, Kind};
use nexus::{Batch, Nexus, Origin, Principal, Store, StoreError, Timestamp};
use ractor::ActorCell;

use crate::LifeformError;
use crate::canvas::{CHAT, Canvas, CanvasHead, CanvasId, Kind as CanvasKind, Limits, Refusal};
use crate::heartbeat::Heartbeat;
use crate::life::{Body, Handle, Head, Status, plant};
use crate::memory::Memory;
use crate::metabolism::{Mode, Policy};
use crate::spec::{LifeformId, LifeformSpec, check_release};
use crate::spending::{self, Spending};
use crate::trace::{self, Walk};

/// Canvases in memory, past which those that nobody uses are let go.
const CANVASES_AWAKE: usize = 256;
/// Canvases one lifeform has.
const CANVASES_MAX: usize = 100;
/// Members of one canvas, and canvases of others that a lifeform takes part in.
const MEMBERS_MAX: usize = 64;
/// Lifeforms one daemon hosts.
const LIFEFORMS_MAX: usize = 1000;

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
    /// Who lived since the daemon was started.
    lived: Mutex<HashSet<LifeformId>>,
    /// One change of standing at a time.
    standing: tokio::sync::Mutex<()>,
}

impl Inner {
    fn canvases(&self) -> MutexGuard<'_, HashMap<(LifeformId, CanvasId), Canvas>> {
        self.canvases.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub async fn open(store: Store, nexus: Nexus, fascicles: Fascicles, limits: Limits) -> Result<Self, LifeformError> {
        let inner = Inner {
            store,
            nexus,
            fascicles,
            supervisor: plant().await?,
            heartbeat: Heartbeat::default(),
            alive: Mutex::default(),
            canvases: Mutex::default(),
            limits,
            lived: Mutex::default(),
            standing: tokio::sync::Mutex::default(),
        };
        let lifeforms = Self { inner: Arc::new(inner) };
        tokio::spawn(lifeforms.inner.heartbeat.clone().run());
        for head in lifeforms.list().await? {
            paid::settle_unknown(&lifeforms.inner.store, &head.id).await?;
            if matches!(head.status, Status::Running | Status::Dormant) {
                lifeforms.live(&head.id).await?;
            }
        }
        Ok(lifeforms)
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
        if self.list().await?.len() >= LIFEFORMS_MAX {
            return Err(LifeformError::Spec(format!("a daemon hosts at most {LIFEFORMS_MAX} lifeforms")));
        }
        let name = match &key {
            Some(key) => Hash::of(format!("{}\n{key}", origin.principal.id).as_bytes()).hex(),
            None => uuid::Uuid::now_v7().simple().to_string(),
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

    /// Every lifeform that was not terminated, in order of birth.
    ///
    /// # Errors
    /// The store's own.
    pub async fn list(&self) -> Result<Vec<Head>, LifeformError> {
        let (mut heads, mut after) = (Vec::new(), Arc::<str>::from(""));
        loop {
            let page = self.inner.store.documents::<Head>(Kind::Lifeform, &after, 256).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.clone();
            heads.extend(page.into_iter().map(|(_, head)| head.value).filter(|head| head.status != Status::Terminated));
        }
        heads.sort_by_key(|head| head.created_at);
        Ok(heads)
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
        let _one = self.inner.standing.lock().await;
        self.live(id).await?;
        self.get(id).await
    }

    /// Stops a lifeform: what it is doing goes on when it is started again.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn stop(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.inner.standing.lock().await;
        self.rest(origin, id, Status::Stopped).await
    }

    /// Stops and starts: it wakes with its whole mind.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn reboot(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.inner.standing.lock().await;
        self.rest(origin, id, Status::Stopped).await?;
        self.live(id).await?;
        self.get(id).await
    }

    /// Ends a lifeform. Its journals stay; it is found no more.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn terminate(&self, origin: &Origin, id: &LifeformId) -> Result<(), LifeformError> {
        let _one = self.inner.standing.lock().await;
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
        if let Some(handle) = self.inner.alive().get(id) {
            handle.beat();
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
        let _one = self.inner.standing.lock().await;
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
        let opened = Canvas::open(self.inner.store.clone(), id, canvas.clone(), self.inner.limits).await?;
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
        self.inner.store.commit(Batch::new(origin).put(of_member, &since).put(of_canvas, &since)).await?;
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
        self.inner
            .store
            .commit(Batch::new(origin).delete(of_member, Expect::Any).delete(of_canvas, Expect::Any))
            .await?;
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
        let canvases = self.taken_part_in(id).await?;
        let period = Duration::from_millis(head.definition.metabolism.beat_ms);
        let body = Body {
            store: self.inner.store.clone(),
            fascicles: self.inner.fascicles.clone(),
            canvases,
            memory: self.memory(id),
            head,
            version,
            restarted: self.inner.lived.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone()),
        };
        let handle = Handle::spawn(body, self.inner.supervisor.clone()).await?;
        self.inner.heartbeat.start(id, handle.clone(), period);
        self.inner.alive().insert(id.clone(), handle.clone());
        self.guard(id.clone(), handle);
        Ok(())
    }

    /// Wakes a lifeform again that died by itself; one that was stopped is no longer registered.
    fn guard(&self, id: LifeformId, handle: Handle) {
        let this = self.clone();
        tokio::spawn(async move {
            handle.ended().await;
            let mut wait = Duration::from_secs(1);
            // One that was stopped or halted is no longer registered; this one died.
            while this.inner.alive().get(&id).is_some_and(|registered| !registered.is_alive()) {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(60));
                let ordered = this.inner.alive().get(&id).is_some_and(|registered| !registered.is_alive());
                if let (true, Err(error)) = (ordered, Box::pin(this.start(&id)).await) {
                    tracing::error!(lifeform = %id, %error, "it cannot be woken yet");
                }
            }
        });
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
