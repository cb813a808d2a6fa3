//! `Fascicles`: the handle. Jobs, and their resumption after a restart; definitions are in `catalogue.rs`.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::stream::{self, StreamExt};
use neurons::llm::{Class, Usage};
use neurons::tools::DEPTH_MAX;
use neurons::{Neurons, Tier};
use ractor::ActorCell;
use serde_json::Value;
use store::ledger::{AccountOp, Amount};
use store::{
    Batch, Entry, Event, Expect, Follow, Key, Kind, Op, Origin, Place, Principal, PrincipalId, Role, Shares, Store,
    Stream, Timestamp,
};
use tokio::sync::broadcast;

use crate::as_tool::Runner;
use crate::catalogue::Catalogue;
use crate::graph::Graph;
use crate::job::{Handle, Head, JobArgs, Waiting, commit_of, plant, refusal};
use crate::run::{Answer, Effect, Fact, News, Observed, Pause, Run, Standing, Status};
use crate::spec::{FascicleId, FascicleSpec};
use crate::toolbox::Toolbox;
use crate::turns::{Priority, StepTurns};
use crate::{FascicleError, JobId};

/// Jobs with a step under way at once, and those of one participant.
const WORKING_MAX: usize = 4_096;
const WORKING_EACH_MAX: usize = WORKING_MAX / 4;
/// Jobs that wait for the world, and those of one participant; what finds no place here keeps the one of a job at work.
const WAITING_MAX: usize = 16_384;
const WAITING_EACH_MAX: usize = WAITING_MAX / 4;
/// Jobs of an owner that are taken up after a restart.
const RESUMED_MAX: usize = 4 * WAITING_MAX;
/// Steps of all jobs that are worked on at once.
const STEPS_MAX: usize = 256;
/// Bytes of a job's input.
const INPUT_BYTES_MAX: usize = 512 << 10;
/// Jobs that one call stops, and those that it stops at once.
const CANCELLED_MAX: usize = 1_000;
const CANCELLED_AT_ONCE: usize = 64;
/// Heads that one listing looks at.
const LOOKED_AT_MAX: usize = 2_000;

/// A cheap handle; clones share one supervisor.
#[derive(Clone)]
pub struct Fascicles {
    pub(crate) inner: Arc<Inner>,
    supervisor: ActorCell,
}

/// A handle that keeps nothing alive.
pub(crate) struct WeakFascicles(Weak<Inner>, ActorCell);

impl WeakFascicles {
    pub(crate) fn upgrade(&self) -> Option<Fascicles> {
        Some(Fascicles { inner: self.0.upgrade()?, supervisor: self.1.clone() })
    }
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) neurons: Neurons,
    pub(crate) catalogue: Catalogue,
    /// Turns by how many fascicles that are tools a job is within: who waits for another does so for one further in.
    turns: [StepTurns; DEPTH_MAX + 1],
    running: Mutex<HashMap<JobId, Running>>,
    /// Places for jobs at work, and for those that wait.
    pub(crate) working: Shares,
    pub(crate) waiting: Shares,
    serial: AtomicU64,
    /// Jobs with a step under way.
    busy: AtomicUsize,
    /// The hands of those who own jobs.
    toolboxes: Mutex<HashMap<Arc<str>, Arc<dyn Toolbox>>>,
    /// Tells which jobs came to their end.
    ended: broadcast::Sender<Ended>,
}

/// A job that came to its end, however it did.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The job.
    pub job: JobId,
    /// The owner.
    pub owner: Arc<str>,
}

/// The most ended jobs that a listener may be behind.
const ENDED_MAX: usize = 1_024;

/// A job that has an actor.
struct Running {
    handle: Handle,
    /// The serial number of the job's actor.
    serial: u64,
    /// The owner.
    owner: Arc<str>,
    /// The invocation that called it as a tool.
    parent: Option<Arc<str>>,
}

impl Inner {
    /// The turns that jobs of that depth wait for.
    pub(crate) fn turns(&self, depth: usize) -> &StepTurns {
        &self.turns[depth.min(DEPTH_MAX)]
    }

    /// Cancels the jobs that were called as tools by `parent`, or by what is within it.
    pub(crate) async fn cancel_within(&self, parent: &str) {
        // The number of a try follows a dot; a dot may also stand in a node's name.
        let is_try = |rest: &str| {
            let number = rest.strip_prefix('.').and_then(|rest| rest.split('/').next());
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let within = |of: &Arc<str>| {
            let rest = of.strip_prefix(parent);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '!']) || is_try(rest))
        };
        let called: Vec<(JobId, Handle)> = self
            .running()
            .iter()
            .filter(|(_, running)| running.parent.as_ref().is_some_and(within))
            .map(|(job, running)| (job.clone(), running.handle.clone()))
            .collect();
        for (job, handle) in called {
            handle.cancel().await;
            Box::pin(self.cancel_within(&job)).await;
        }
    }

    /// The actor of that number is no more.
    pub(crate) fn forget(&self, job: &JobId, serial: u64) {
        let mut running = self.running();
        if running.get(job).is_some_and(|known| known.serial == serial) {
            running.remove(job);
        }
    }

    /// A job has begun to work, or no longer does.
    pub(crate) fn count(&self, busy: bool) {
        if busy {
            self.busy.fetch_add(1, Ordering::SeqCst);
        } else {
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A job has come to its end, and its journal says so.
    pub(crate) fn has_ended(&self, head: &Head) {
        // Nobody may be listening.
        let _ = self.ended.send(Ended { job: head.id.clone(), owner: head.owner.clone() });
    }

    fn handle(&self, job: &JobId) -> Option<Handle> {
        self.running().get(job).map(|running| running.handle.clone())
    }

    fn running(&self) -> MutexGuard<'_, HashMap<JobId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn toolboxes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<dyn Toolbox>>> {
        self.toolboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The order of a job.
#[derive(Clone, Default)]
pub struct JobOrder {
    /// The job's name; the same order twice is one job. Made when absent.
    pub id: Option<JobId>,
    /// The fascicle.
    pub fascicle: FascicleId,
    /// The owner of its tools.
    pub owner: Arc<str>,
    /// The account that pays.
    pub account: Arc<str>,
    /// The input.
    pub events: Vec<Event>,
    /// A tier that overrides the neurons' own.
    pub tier: Option<Tier>,
    /// A bound that only lowers the neurons' own.
    pub output_tokens_max: Option<u32>,
    /// The class of its calls; by its principal if absent.
    pub class: Option<Class>,
    /// The principal in whose queue the work waits, within its class.
    pub priority: Priority,
    /// Seconds it may take; the fascicle's own when absent.
    pub deadline_s: Option<u64>,
    /// The hash of what was ordered.
    pub ordered: String,
    /// The nesting depth of fascicle tools.
    pub depth: usize,
    /// The invocation that calls it as a tool.
    pub parent: Option<Arc<str>>,
    /// `true` if an untrusted speaker asked for it: tool calls that change something outside then wait for an approval.
    pub untrusted: bool,
    /// Authors of the definitions that order it, outermost first; empty when a principal orders it itself.
    pub authors: Vec<PrincipalId>,
    /// The amount that is reserved for its calls while it runs. They may draw on other free amounts, and the rest is
    /// returned.
    pub reserve: Amount,
}

/// A selection of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// The status.
    pub status: Option<Status>,
    /// The fascicle.
    pub fascicle: Option<FascicleId>,
}

impl JobFilter {
    fn fits(&self, head: &Head) -> bool {
        self.status.is_none_or(|status| head.status == status)
            && self.fascicle.as_ref().is_none_or(|fascicle| head.fascicle == *fascicle)
    }
}

pub(crate) fn job_stream(id: &JobId) -> Stream {
    format!("job:{id}").into()
}

/// Returns `true` if the definition names `who` as an approver of the open wait `n`, or of any open wait for `None`.
fn is_named(who: &Principal, head: &Head, n: Option<u32>) -> bool {
    head.waits.iter().filter(|waiting| n.is_none_or(|n| waiting.wait.n == n)).any(|waiting| match &waiting.wait.pause {
        Pause::Approval { by, .. } => by.iter().any(|named| **named == *who.id.0),
        _ => false,
    })
}

/// Returns `true` if `who` may see and steer a job: its principal, and operators.
fn may(who: &Principal, head: &Head) -> bool {
    (head.origin.principal.id == who.id && !who.limited) || who.may(Role::Operator)
}

impl Fascicles {
    /// Tells of every job that comes to its end from here on.
    pub fn ended(&self) -> broadcast::Receiver<Ended> {
        self.inner.ended.subscribe()
    }

    /// The neurons that its fascicles are made of.
    pub fn neurons(&self) -> &Neurons {
        &self.inner.neurons
    }

    /// A handle on the shipped fascicles and those in the store. `tools` are the names that tool nodes may call.
    ///
    /// # Errors
    /// [`FascicleError`] when one of the shipped is not well made.
    pub async fn open(
        store: Store,
        neurons: Neurons,
        shipped: Vec<FascicleSpec>,
        tools: BTreeSet<Arc<str>>,
    ) -> Result<Self, FascicleError> {
        let inner = Inner {
            store,
            neurons,
            catalogue: Catalogue::new(shipped, tools),
            turns: std::array::from_fn(|_| StepTurns::new(STEPS_MAX)),
            running: Mutex::default(),
            working: Shares::new(WORKING_MAX, WORKING_EACH_MAX),
            waiting: Shares::new(WAITING_MAX, WAITING_EACH_MAX),
            serial: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            toolboxes: Mutex::default(),
            ended: broadcast::Sender::new(ENDED_MAX),
        };
        let this = Self { inner: Arc::new(inner), supervisor: plant().await? };
        let weak = WeakFascicles(Arc::downgrade(&this.inner), this.supervisor.clone());
        this.inner.neurons.with_fascicles(Arc::new(Runner(weak)));
        for id in this.inner.catalogue.shipped.keys() {
            this.built(id).await?;
        }
        Ok(this)
    }

    /// Starts a job. Its acceptance and its first steps are durable when this returns; `with` is
    /// committed together with them, or not at all. The same order again changes nothing. Answers the job's name.
    ///
    /// # Errors
    /// [`FascicleError::NotFound`], [`FascicleError::Invalid`], [`FascicleError::TooLarge`],
    /// [`FascicleError::Overloaded`], or the store's own.
    pub async fn start(
        &self,
        origin: &Origin,
        order: JobOrder,
        toolbox: Arc<dyn Toolbox>,
        with: impl FnOnce(Batch) -> Batch,
    ) -> Result<JobId, FascicleError> {
        let place = self.inner.working.take(&origin.principal)?;
        let bytes = serde_json::to_vec(&order.events).map_or(0, |text| text.len());
        if bytes > INPUT_BYTES_MAX {
            return Err(FascicleError::TooLarge { bytes, max: INPUT_BYTES_MAX });
        }
        let built = self.built(&order.fascicle).await?;
        let now = self.inner.store.clock().now();
        let seconds = order.deadline_s.or(built.graph.deadline_s);
        let deadline_at = seconds.map(|seconds| now + jiff::SignedDuration::from_secs(seconds as i64));
        let made = order.id.is_none();
        let id: JobId = order.id.unwrap_or_else(|| format!("job_{}", uuid::Uuid::now_v7().simple()).into());
        let mut head = Head {
            id: id.clone(),
            fascicle: order.fascicle,
            plan: Some(built.hash.hex()),
            owner: order.owner,
            account: order.account,
            origin: origin.clone(),
            status: Status::Pending,
            current_stage: None,
            waits: Vec::new(),
            output: Value::Null,
            error: None,
            tier: order.tier,
            output_tokens_max: order.output_tokens_max,
            class: order.class,
            priority: order.priority,
            ordered: order.ordered,
            depth: order.depth,
            parent: order.parent,
            untrusted: order.untrusted,
            authors: order.authors,
            reserve: order.reserve,
            created_at: now,
            updated_at: now,
        };
        let mut run = Run::new(built.graph);
        let out = run.on(News::Accepted { events: order.events, deadline_at }, now);
        // The head must not exist yet: the commit refuses a job that was started before.
        let key = Key::new(Kind::Job, id.clone());
        let batch = Batch::new(origin);
        let mut batch = if made { batch.made(&id) } else { batch.made_with(&id, key) };
        batch.push(Op::Payload { hash: built.hash, body: built.plan });
        batch = batch.create(Key::new(Kind::Running, format!("{}/{}", head.owner, head.id)), &head.id);
        if head.reserve != Amount::default() {
            let (hold, amount) = (crate::job::hold_of(&id), head.reserve);
            batch = batch.account(
                head.account.clone(),
                AccountOp::Hold { id: hold, parent: None, amount, of: origin.participant().cloned() },
                "job",
            );
        }
        batch.ops.extend(commit_of(&mut head, &run, &out.facts, Expect::Version(0), now).ops);
        self.inner.toolboxes().insert(head.owner.clone(), toolbox.clone());
        let (this, batch) = (self.clone(), with(batch));
        // From here on the job is the daemon's: its principal may disconnect.
        let begun = tokio::spawn(async move {
            match this.inner.store.commit(batch).await {
                Ok(_) if head.status.is_final() => {
                    this.inner.has_ended(&head);
                    Ok(())
                }
                Ok(_) => this.spawn(head, run, toolbox, out.effects, None, Some(place)).await,
                Err(store::StoreError::Conflict { what, .. })
                    if what.starts_with("job:") || what.starts_with("running:") =>
                {
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        });
        begun.await.map_err(|panic| FascicleError::Died(panic.to_string()))??;
        Ok(id)
    }

    async fn spawn(
        &self,
        head: Head,
        run: Run,
        toolbox: Arc<dyn Toolbox>,
        effects: Vec<Effect>,
        first: Option<News>,
        place: Option<Place>,
    ) -> Result<(), FascicleError> {
        let (id, owner, parent) = (head.id.clone(), head.owner.clone(), head.parent.clone());
        let serial = self.inner.serial.fetch_add(1, Ordering::SeqCst);
        let args = JobArgs { inner: self.inner.clone(), head, run, toolbox, effects, first, serial, place };
        let handle = Handle::spawn(args, self.supervisor.clone()).await?;
        // A quick job may be over by now; what has ended is not put down as running.
        let mut running = self.inner.running();
        if !handle.has_ended() {
            running.insert(id, Running { handle, serial, owner, parent });
        }
        Ok(())
    }

    /// Takes up every unfinished job of `owner`; answers how many there were.
    ///
    /// # Errors
    /// The store's own.
    pub async fn resume(&self, owner: &str, toolbox: &Arc<dyn Toolbox>) -> Result<usize, FascicleError> {
        self.inner.toolboxes().insert(owner.into(), toolbox.clone());
        let prefix = format!("{owner}/");
        let marks = self.inner.store.documents::<JobId>(Kind::Running, &prefix, RESUMED_MAX).await?;
        let mut count = 0;
        for (mark, job) in marks {
            if !mark.starts_with(&prefix) {
                break;
            }
            let already = self.inner.running().contains_key(&job.value);
            let head = self.inner.store.document::<Head>(&Key::new(Kind::Job, job.value.clone())).await?;
            let (false, Some(head)) = (already, head) else { continue };
            // One that cannot be read keeps no other from going on.
            match self.run_of(&head.value).await {
                Ok(run) => {
                    let place = self.inner.working.take(&head.value.origin.principal).ok();
                    self.spawn(head.value, run, toolbox.clone(), Vec::new(), Some(News::Restarted), place).await?;
                    count += 1;
                }
                Err(error) => tracing::error!(job = %job.value, %error, "a job cannot be taken up again"),
            }
        }
        Ok(count)
    }

    /// The tools of an owner that is alive.
    pub(crate) fn toolbox(&self, owner: &Arc<str>) -> Result<Arc<dyn Toolbox>, FascicleError> {
        self.inner.toolboxes().get(owner).cloned().ok_or_else(|| FascicleError::NoOwner(owner.clone()))
    }

    /// Forgets the tools of an owner that is no longer alive.
    pub fn let_go(&self, owner: &str) {
        self.inner.toolboxes().remove(owner);
    }

    /// A job as its journal has it.
    async fn run_of(&self, head: &Head) -> Result<Run, FascicleError> {
        let graph: Arc<Graph> = match &head.plan {
            Some(hash) => self.graph_of(hash).await?,
            None => self.built(&head.fascicle).await?.graph,
        };
        let mut run = Run::new(graph);
        replay(&self.inner.store, &head.id, &mut run).await?;
        Ok(run)
    }

    /// Stops the jobs of an owner where they are, and waits until they have; they go on when it is taken up again.
    pub async fn halt(&self, owner: &str) {
        self.halt_those(|running| &*running.owner == owner).await;
    }

    /// Stops whatever jobs run, as [`Self::halt`] does.
    pub async fn halt_all(&self) {
        self.halt_those(|_| true).await;
    }

    async fn halt_those(&self, which: impl Fn(&Running) -> bool) {
        let handles: Vec<Handle> = self
            .inner
            .running()
            .values()
            .filter(|running| which(running))
            .map(|running| running.handle.clone())
            .collect();
        for handle in handles {
            handle.halt().await;
        }
    }

    /// Returns the number of unfinished jobs.
    pub fn running(&self) -> usize {
        self.inner.running().len()
    }

    /// Returns the number of jobs with a running step; the others wait for input.
    pub fn busy(&self) -> usize {
        self.inner.busy.load(Ordering::SeqCst)
    }

    /// Returns the greatest cost of a call of `tier` with that usage; only tokens if there is no model.
    pub fn price(&self, tier: Tier, usage: Usage) -> Amount {
        match self.inner.neurons.models().pick(tier) {
            Ok(model) => model.price.of(usage),
            Err(_) => Amount::tokens((usage.prompt_tokens + usage.completion_tokens) as i64),
        }
    }

    /// Stops a job for good; one that has ended stays as it is.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`].
    pub async fn cancel(&self, who: &Principal, job: &JobId) -> Result<Head, FascicleError> {
        let head = self.job_of(who, job).await?;
        match self.inner.handle(job) {
            Some(handle) => handle.cancel().await,
            None if !head.status.is_final() => self.change(head, News::Cancelled).await.map(drop)?,
            None => {}
        }
        self.inner.cancel_within(job).await;
        self.job(job).await
    }

    /// Stops the unfinished jobs that fit `filter` and were ordered by `ordered_by`, at most a thousand and in no
    /// order. Returns the number of stopped jobs, and `true` if there may be more.
    ///
    /// # Errors
    /// The store's own.
    pub async fn cancel_many(
        &self,
        who: &Principal,
        ordered_by: &PrincipalId,
        filter: &JobFilter,
    ) -> Result<(usize, bool), FascicleError> {
        let (mut after, mut found) = (String::new(), Vec::new());
        'pages: loop {
            let page = self.inner.store.documents::<JobId>(Kind::Running, &after, LOOKED_AT_MAX).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.to_string();
            for (_, job) in page {
                let head = match self.job(&job.value).await {
                    // It was let go of meanwhile.
                    Err(FascicleError::JobNotFound(_)) => continue,
                    head => head?,
                };
                if head.origin.principal.id == *ordered_by && may(who, &head) && filter.fits(&head) {
                    found.push(job.value);
                }
                if found.len() == CANCELLED_MAX {
                    break 'pages;
                }
            }
        }
        let is_all = found.len() < CANCELLED_MAX;
        let cancelled = stream::iter(found).map(|job| async move { self.cancel(who, &job).await });
        let cancelled: Vec<_> = cancelled.buffer_unordered(CANCELLED_AT_ONCE).collect().await;
        let mut count = 0;
        for outcome in cancelled {
            match outcome {
                Ok(head) => count += usize::from(head.status == Status::Cancelled),
                // It was let go of meanwhile.
                Err(FascicleError::JobNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((count, !is_all))
    }

    /// Tells news to a job that does not run.
    async fn change(&self, mut head: Head, news: News) -> Result<(Head, Run, Vec<Effect>), FascicleError> {
        let mut run = self.run_of(&head).await?;
        let now = self.inner.store.clock().now();
        let out = run.on(news, now);
        let batch = commit_of(&mut head, &run, &out.facts, Expect::Any, now);
        self.inner.store.commit(batch).await?;
        if head.status.is_final() {
            self.inner.has_ended(&head);
        }
        Ok((head, run, out.effects))
    }

    /// Takes a job that failed up again where it failed; what had ended is not run again.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`], [`FascicleError::NotFailed`], [`FascicleError::NoOwner`].
    pub async fn retry(&self, who: &Principal, job: &JobId) -> Result<Head, FascicleError> {
        let mut head = self.job_of(who, job).await?;
        if head.status != Status::Failed {
            return Err(FascicleError::NotFailed(job.clone()));
        }
        let place = self.inner.working.take(&head.origin.principal)?;
        let toolbox = self.toolbox(&head.owner)?;
        let mut run = self.run_of(&head).await?;
        let now = self.inner.store.clock().now();
        let out = run.on(News::Retried, now);
        let mark = Key::new(Kind::Running, format!("{}/{}", head.owner, head.id));
        let mut batch = Batch::new(&head.origin).create(mark, &head.id);
        batch.ops.extend(commit_of(&mut head, &run, &out.facts, Expect::Any, now).ops);
        let (this, job) = (self.clone(), job.clone());
        let begun = tokio::spawn(async move {
            match this.inner.store.commit(batch).await {
                Ok(_) if head.status.is_final() => this.inner.has_ended(&head),
                Ok(_) => this.spawn(head.clone(), run, toolbox, out.effects, None, Some(place)).await?,
                Err(store::StoreError::Conflict { what, .. }) if what.starts_with("running:") => {
                    return Err(FascicleError::NotFailed(job));
                }
                Err(error) => return Err(error.into()),
            }
            Ok(head)
        });
        begun.await.map_err(|panic| FascicleError::Died(panic.to_string()))?
    }

    /// Returns the token of a wait of a job; it is bound to the principal of the job.
    pub fn token(&self, head: &Head, wait: u32, expires_at: Option<Timestamp>) -> String {
        let name = format!("{}#{wait}", head.id).into();
        self.inner.neurons.sealing_key().seal_for(&name, wait, expires_at, &bound_to(&head.id), self.principal(head))
    }

    fn principal<'h>(&self, head: &'h Head) -> &'h PrincipalId {
        &head.origin.principal.id
    }

    /// Answers the wait that `token` names. The same answer again changes nothing.
    ///
    /// # Errors
    /// [`FascicleError::NoWait`] for a token that is not this job's, [`FascicleError::Expired`], and
    /// [`FascicleError::Answer`] when it is no answer to what was asked, or another than was given before;
    /// [`FascicleError::NotApprover`].
    pub async fn answer(
        &self,
        who: &Principal,
        job: &JobId,
        token: &str,
        body: String,
        answer: Answer,
    ) -> Result<Head, FascicleError> {
        let head = self.seen_by(who, job).await?;
        let name = self.inner.neurons.sealing_key().open(token, &bound_to(job), self.principal(&head));
        let wait = name.as_deref().and_then(|name| name.strip_prefix(&**job)?.strip_prefix('#')?.parse().ok());
        let wait: u32 = wait.ok_or(FascicleError::NoWait)?;
        let is_named = is_named(who, &head, Some(wait));
        if !(is_named || may(who, &head)) || (answer.approves() && !is_named && !who.may(Role::Operator)) {
            return Err(FascicleError::NotApprover);
        }
        let answered = match self.inner.handle(job) {
            Some(handle) => handle.answer(wait, body.clone(), answer).await,
            None => None,
        };
        match answered {
            Some(answered) => answered?,
            // It has ended, or its owner is not alive.
            None => match self.run_of(&head).await?.standing(wait, &body) {
                Standing::Given => {}
                Standing::Open => return Err(FascicleError::NoOwner(head.owner)),
                other => return Err(refusal(other)),
            },
        }
        self.job(job).await
    }

    /// The head of a job.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`].
    pub async fn job(&self, id: &JobId) -> Result<Head, FascicleError> {
        let head = self.inner.store.document::<Head>(&Key::new(Kind::Job, id.clone())).await?;
        head.map(|head| head.value).ok_or_else(|| FascicleError::JobNotFound(id.clone()))
    }

    /// Returns the head of a job as soon as it has ended or waits for something that `known` does not contain.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`], or the store's own when it is closed.
    pub async fn settled(&self, id: &JobId, known: &[Waiting]) -> Result<Head, FascicleError> {
        let stream = job_stream(id);
        // Following begins before looking: whatever is committed in between is heard of.
        let mut follow = self.inner.store.follow(stream.clone(), self.inner.store.head(&stream).await?);
        loop {
            let head = self.job(id).await?;
            if head.status.is_final() || head.waits != known {
                return Ok(head);
            }
            follow.next().await?;
            while follow.ready().await?.is_some() {}
        }
    }

    /// The head of a job, if `who` may see it.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`].
    pub async fn job_of(&self, who: &Principal, id: &JobId) -> Result<Head, FascicleError> {
        let head = self.job(id).await?;
        if may(who, &head) { Ok(head) } else { Err(FascicleError::JobNotFound(id.clone())) }
    }

    /// The head of a job, if `who` may see it or is named to approve something in it.
    ///
    /// # Errors
    /// [`FascicleError::JobNotFound`].
    pub async fn seen_by(&self, who: &Principal, id: &JobId) -> Result<Head, FascicleError> {
        let head = self.job(id).await?;
        if may(who, &head) || is_named(who, &head, None) {
            Ok(head)
        } else {
            Err(FascicleError::JobNotFound(id.clone()))
        }
    }

    /// Jobs that `who` may see with ids after `after`, at most `limit`, and where the next ones begin, if there may be
    /// any.
    ///
    /// # Errors
    /// The store's own.
    pub async fn jobs(
        &self,
        who: &Principal,
        filter: &JobFilter,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Head>, Option<JobId>), FascicleError> {
        let (mut found, mut after, mut looked_at) = (Vec::new(), after.to_owned(), 0);
        loop {
            let page = self.inner.store.documents::<Head>(Kind::Job, &after, limit.max(64)).await?;
            let Some((last, _)) = page.last() else { return Ok((found, None)) };
            let last = last.clone();
            looked_at += page.len();
            for (id, head) in page {
                let head = head.value;
                if filter.fits(&head) && may(who, &head) {
                    found.push(head);
                }
                if found.len() == limit {
                    return Ok((found, Some(id)));
                }
            }
            if looked_at >= LOOKED_AT_MAX {
                return Ok((found, Some(last)));
            }
            after = last.to_string();
        }
    }

    /// Returns the events of a job for observers, in order.
    ///
    /// # Errors
    /// The store's own.
    pub async fn observed(&self, id: &JobId) -> Result<Vec<Observed>, FascicleError> {
        let mut told = Vec::new();
        each_entry(&self.inner.store, id, |entry| {
            if Fact::is_observed(&entry.data)
                && let Fact::Observed(observed) = entry.decode()?
            {
                told.push(observed);
            }
            Ok(())
        })
        .await?;
        Ok(told)
    }

    /// The journal of a job from its beginning, and on as it grows.
    pub fn follow(&self, id: &JobId) -> Follow {
        self.inner.store.follow(job_stream(id), 0)
    }
}

/// Tells a run everything that its journal holds.
///
/// # Errors
/// The store's own.
pub(crate) async fn replay(store: &Store, id: &JobId, run: &mut Run) -> Result<(), store::StoreError> {
    each_fact(store, id, |fact| run.apply(&fact)).await
}

pub(crate) async fn each_fact(store: &Store, id: &JobId, mut take: impl FnMut(Fact)) -> Result<(), store::StoreError> {
    each_entry(store, id, |entry| {
        take(entry.decode()?);
        Ok(())
    })
    .await
}

async fn each_entry(
    store: &Store,
    id: &JobId,
    mut take: impl FnMut(&Entry) -> Result<(), store::StoreError>,
) -> Result<(), store::StoreError> {
    let (stream, mut after) = (job_stream(id), 0);
    loop {
        let page = store.entries(&stream, after, usize::MAX).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        page.iter().try_for_each(&mut take)?;
    }
}

/// Returns what a job's tokens are bound to.
fn bound_to(job: &JobId) -> String {
    format!("job:{job}")
}
