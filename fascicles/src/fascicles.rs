//! `Fascicles`, the handle of this crate: jobs and their resumption after a restart. `catalogue.rs` has the
//! definitions.

mod approvals;
mod control;
mod deciding;
mod order;
mod reading;
mod starting;
mod supervision;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use neurons::actors::{ActorCell, Supervisor};
use neurons::llm::{Model, ModelTraits, Usage};
use neurons::neuron::ToolCall;
use neurons::tools::{DEPTH_MAX, names_a_secret};
use neurons::{Neurons, Tier};
use store::ledger::Amount;
use store::{Key, Kind, NoPlace, Place, Principal, PrincipalId, Role, Shares, Store, Stream, Timestamp};
use tokio::sync::{Notify, broadcast, mpsc};

use crate::catalogue::Catalogue;
use crate::fascicle_tool::Runner;
use crate::graph::Graph;
use crate::job::{Handle, Head, refusal};
use crate::run::{Answer, Pause, Run, RunInput, Step, WaitState};
use crate::spec::FascicleSpec;
use crate::step_scheduler::StepScheduler;
use crate::toolbox::Toolbox;
use crate::{FascicleError, JobId};
pub use approvals::{Approval, PersonsDecision, Question, approval_id};
pub use deciding::{Decided, Decider};
pub use order::{JobFilter, JobOrder};
pub(crate) use reading::{each_fact, replay};

/// The maximum number of jobs with a running step: in all, and per participant.
const WORKING_MAX: usize = 4_096;
const WORKING_EACH_MAX: usize = WORKING_MAX / 4;
/// The maximum number of waiting jobs: in all, and per participant. A job that gets no place here keeps its place among
/// the working jobs.
const WAITING_MAX: usize = 16_384;
const WAITING_EACH_MAX: usize = WAITING_MAX / 4;
/// The input, in bytes, that one place covers, for working and for waiting jobs: a job with a larger input takes
/// several places, because its input stays in memory.
const WORKING_BYTES: usize = 64 << 10;
const WAITING_BYTES: usize = 16 << 10;
/// The maximum number of jobs of one owner that are resumed after a restart.
const RESUMED_MAX: usize = 4 * WAITING_MAX;
/// The maximum number of steps that run at once, over all jobs.
const STEPS_MAX: usize = 256;
/// The maximum size of a job's input, in bytes.
const INPUT_BYTES_MAX: usize = 512 << 10;
/// The maximum number of jobs that one call cancels, and the number that it cancels concurrently.
const CANCELLED_MAX: usize = 1_000;
const CANCELLED_AT_ONCE: usize = 64;
/// The maximum number of heads that one listing reads.
const LOOKED_AT_MAX: usize = 2_000;

/// A cheap handle; clones share one supervisor.
#[derive(Clone)]
pub struct Fascicles {
    pub(crate) inner: Arc<Inner>,
    supervisor: ActorCell,
}

/// A weak handle, which does not keep the crate's state alive.
#[derive(Clone)]
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
    /// One step scheduler per nesting depth of fascicle tools. A job only ever waits for a job of depth + 1, so turns
    /// cannot deadlock.
    turns: [StepScheduler; DEPTH_MAX + 1],
    running: Mutex<HashMap<JobId, Running>>,
    /// Jobs that are being started: before or during their first commit, without an actor yet.
    starting: Mutex<HashMap<JobId, usize>>,
    /// Notifies the tasks that wait for a starting job.
    started: Notify,
    /// Permits for working jobs, and for waiting jobs.
    pub(crate) working: Shares,
    pub(crate) waiting: Shares,
    serial: AtomicU64,
    /// The number of jobs with a running step.
    busy: AtomicUsize,
    /// The toolboxes of the job owners that are running.
    toolboxes: Mutex<HashMap<Arc<str>, Arc<dyn Toolbox>>>,
    /// Broadcasts the jobs that have ended.
    ended: broadcast::Sender<Ended>,
    /// Receives the jobs whose actor died.
    died: mpsc::UnboundedSender<JobId>,
    /// The lock for changes of jobs without an actor, and for taking them up.
    taking_up: tokio::sync::Mutex<()>,
}

/// A notification that a job has ended, with any status.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The job.
    pub job: JobId,
    /// The owner.
    pub owner: Arc<str>,
}

/// The capacity of the broadcast of ended jobs: a subscriber that lags further behind loses notifications.
const ENDED_MAX: usize = 1_024;

/// A job that has an actor.
struct Running {
    handle: Handle,
    /// The serial number of the job's actor.
    serial: u64,
    /// The owner.
    owner: Arc<str>,
    /// The invocation that called the job as a tool; `None` for other jobs.
    parent: Option<Arc<str>>,
}

impl Inner {
    /// Takes the places of a job with a running step.
    pub(crate) fn working_place(&self, head: &Head) -> Result<Place, NoPlace> {
        self.working.take_many(&head.origin.principal, 1 + head.input_bytes / WORKING_BYTES)
    }

    /// Takes the places of a waiting job.
    pub(crate) fn waiting_place(&self, head: &Head) -> Result<Place, NoPlace> {
        self.waiting.take_many(&head.origin.principal, 1 + head.input_bytes / WAITING_BYTES)
    }

    /// Returns the step scheduler of a nesting depth.
    pub(crate) fn turns(&self, depth: usize) -> &StepScheduler {
        &self.turns[depth.min(DEPTH_MAX)]
    }

    /// Cancels the jobs that `parent`, or a step within it, called as tools, and the tasks of servers that it waited for.
    pub(crate) async fn cancel_within(&self, parent: &str) {
        // A try number follows a dot, but a node's name and a job's id may also contain a dot.
        let is_try = |rest: &str| {
            let number = rest.strip_prefix('.').unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        let within = |of: &Arc<str>| {
            let rest = of.strip_prefix(parent);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '!']) || is_try(rest))
        };
        self.neurons.tools().cancel_tasks(within);
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

    /// Removes a job's actor, identified by its serial number, from the running jobs.
    pub(crate) fn forget(&self, job: &JobId, serial: u64) {
        let mut running = self.running();
        if running.get(job).is_some_and(|known| known.serial == serial) {
            running.remove(job);
        }
    }

    /// Counts a job that starts to work, or stops working.
    pub(crate) fn count(&self, busy: bool) {
        if busy {
            self.busy.fetch_add(1, Ordering::SeqCst);
        } else {
            self.busy.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Reports that the actor of a job died, so that the job is taken up again.
    pub(crate) fn has_died(&self, job: &JobId) {
        // Without a receiver, the daemon is stopping.
        let _ = self.died.send(job.clone());
    }

    /// Broadcasts the end of a job. The end is already in the job's journal.
    pub(crate) fn has_ended(&self, head: &Head) {
        // An error means that there are no subscribers.
        let _ = self.ended.send(Ended { job: head.id.clone(), owner: head.owner.clone() });
    }

    fn handle(&self, job: &JobId) -> Option<Handle> {
        self.running().get(job).map(|running| running.handle.clone())
    }

    fn starting(&self) -> MutexGuard<'_, HashMap<JobId, usize>> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a job that is being started has an actor, or its start has failed.
    async fn has_started(&self, job: &JobId) {
        loop {
            let started = self.started.notified();
            if !self.starting().contains_key(job) {
                return;
            }
            started.await;
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<JobId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn toolboxes(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<dyn Toolbox>>> {
        self.toolboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn job_stream(id: &JobId) -> Stream {
    format!("job:{id}").into()
}

/// Returns `true` if the definition or the order of the job names `who` as an approver of the open wait `n`, or of any open
/// wait for `None`.
fn is_named(who: &Principal, head: &Head, n: Option<u32>) -> bool {
    // A lifeform approves nothing, even if a definition names it.
    let is_lifeform = who.id.0.starts_with("lifeform:");
    !is_lifeform
        && head.waits.iter().filter(|waiting| n.is_none_or(|n| waiting.wait.n == n)).any(|waiting| {
            match &waiting.wait.pause {
                Pause::Approval { by, .. } => by.iter().any(|named| **named == *who.id.0),
                // An operator says what nobody knows, and where a secret of the lifeform goes.
                Pause::Tools { tool_calls } => {
                    let is_plain = |call: &ToolCall| call.needs_approval && !call.unsure && !names_a_secret(call);
                    tool_calls.iter().all(is_plain) && head.approvers.contains(&who.id)
                }
                Pause::Event { .. } => false,
            }
        })
}

/// Returns `true` if `who` may approve what the definition leaves to operators.
fn may_approve(who: &Principal) -> bool {
    who.may(Role::Operator) && !who.id.0.starts_with("lifeform:")
}

/// Returns `true` if an answer says that a call was done whose outcome nobody knows.
fn says_it_was_done(answer: &Answer, head: &Head, n: u32) -> bool {
    let Answer::Results(results) = answer else { return false };
    let mut waits = head.waits.iter().filter(|waiting| waiting.wait.n == n);
    waits.any(|waiting| match &waiting.wait.pause {
        Pause::Tools { tool_calls } => tool_calls
            .iter()
            .filter(|call| call.unsure)
            .any(|call| results.iter().any(|result| result.id == call.id && result.result.is_some())),
        Pause::Approval { .. } | Pause::Event { .. } => false,
    })
}

/// Returns `true` if `who` may read and control a job: the job's principal and operators may.
fn may(who: &Principal, head: &Head) -> bool {
    (head.origin.principal.id == who.id && !who.limited) || who.may(Role::Operator)
}

impl Fascicles {
    /// Subscribes to the ends of all jobs from now on.
    pub fn ended(&self) -> broadcast::Receiver<Ended> {
        self.inner.ended.subscribe()
    }

    /// Returns the neurons that the fascicles use.
    pub fn neurons(&self) -> &Neurons {
        &self.inner.neurons
    }

    /// Opens the shipped fascicles and the stored ones. `tools` are the names that tool nodes may call.
    ///
    /// # Errors
    /// Returns a [`FascicleError`] if a shipped definition is invalid.
    pub async fn open(
        store: Store,
        neurons: Neurons,
        shipped: Vec<FascicleSpec>,
        tools: BTreeSet<Arc<str>>,
    ) -> Result<Self, FascicleError> {
        let (died, dead) = mpsc::unbounded_channel();
        let clock = store.clock().clone();
        let inner = Inner {
            store,
            neurons,
            catalogue: Catalogue::new(shipped, tools),
            turns: std::array::from_fn(|_| StepScheduler::new(STEPS_MAX)),
            running: Mutex::default(),
            starting: Mutex::default(),
            started: Notify::new(),
            working: Shares::new(WORKING_MAX, WORKING_EACH_MAX),
            waiting: Shares::new(WAITING_MAX, WAITING_EACH_MAX),
            serial: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            toolboxes: Mutex::default(),
            ended: broadcast::Sender::new(ENDED_MAX),
            died,
            taking_up: tokio::sync::Mutex::default(),
        };
        let supervisor = Supervisor::start("jobs").await.map_err(|error| FascicleError::Died(error.to_string()))?;
        let this = Self { inner: Arc::new(inner), supervisor };
        let weak = WeakFascicles(Arc::downgrade(&this.inner), this.supervisor.clone());
        tokio::spawn(supervision::restart_dead_jobs(weak.clone(), clock, dead));
        this.inner.neurons.with_fascicles(Arc::new(Runner(weak)));
        for id in this.inner.catalogue.shipped.keys() {
            this.built(id).await?;
        }
        Ok(this)
    }

    /// Resumes all unfinished jobs of `owner` and returns their number.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn resume(&self, owner: &str, toolbox: &Arc<dyn Toolbox>) -> Result<usize, FascicleError> {
        self.inner.toolboxes().insert(owner.into(), toolbox.clone());
        let prefix = format!("{owner}/");
        let marks = self.inner.store.documents::<JobId>(Kind::Running, &prefix, RESUMED_MAX).await?;
        let mut count = 0;
        for (mark, job) in marks {
            if !mark.starts_with(&prefix) {
                break;
            }
            let _one = self.inner.taking_up.lock().await;
            let already = self.inner.running().contains_key(&job.value);
            let resumed = async {
                let head = self.inner.store.document::<Head>(&Key::new(Kind::Job, job.value.clone())).await?;
                let (false, Some(head)) = (already, head) else { return Ok(false) };
                let run = self.run_of(&head.value).await?;
                let place = self.inner.working_place(&head.value).ok();
                let first = Some(RunInput::Restarted);
                self.spawn(head.value, run, toolbox.clone(), Vec::new(), first, place).await?;
                Ok::<_, FascicleError>(true)
            };
            // A job that cannot be read must not prevent the others from continuing.
            match resumed.await {
                Ok(is_resumed) => count += usize::from(is_resumed),
                Err(error) => tracing::error!(job = %job.value, %error, "job not resumed"),
            }
        }
        Ok(count)
    }

    /// Returns the toolbox of a running owner.
    pub(crate) fn toolbox(&self, owner: &Arc<str>) -> Result<Arc<dyn Toolbox>, FascicleError> {
        self.inner.toolboxes().get(owner).cloned().ok_or_else(|| FascicleError::NoOwner(owner.clone()))
    }

    /// Unregisters the toolbox of an owner that has stopped.
    pub fn unregister_owner(&self, owner: &str) {
        self.inner.toolboxes().remove(owner);
    }

    /// Restores the run of a job from its journal.
    async fn run_of(&self, head: &Head) -> Result<Run, FascicleError> {
        let graph: Arc<Graph> = match &head.plan {
            Some(hash) => self.graph_of(hash).await?,
            None => self.built(&head.fascicle).await?.graph,
        };
        let mut run = Run::new(graph);
        replay(&self.inner.store, &head.id, &mut run).await?;
        Ok(run)
    }

    /// Suspends the jobs of an owner and waits until their actors have stopped. [`Self::resume`] continues them.
    pub async fn halt(&self, owner: &str) {
        self.halt_those(|running| &*running.owner == owner).await;
    }

    /// Suspends all running jobs, as [`Self::halt`] does.
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

    /// Returns the paths of the steps of a job that run now; none if the job only waits or has no actor.
    pub fn running_steps(&self, job: &JobId) -> Vec<Step> {
        self.inner.handle(job).map_or_else(Vec::new, |handle| handle.steps())
    }

    /// The supervisor of the jobs' actors.
    pub fn supervisor(&self) -> &ActorCell {
        &self.supervisor
    }

    /// Returns the number of unfinished jobs.
    pub fn running(&self) -> usize {
        self.inner.running().len()
    }

    /// Returns the number of jobs with a running step; the others wait for input.
    pub fn busy(&self) -> usize {
        self.inner.busy.load(Ordering::SeqCst)
    }

    /// Returns the maximum cost of a call of `tier` with that usage. Without a model of the tier, only the tokens
    /// count.
    pub fn price(&self, tier: Tier, usage: Usage) -> Amount {
        match self.inner.neurons.models().pick(tier) {
            Ok(model) => model.price.of(usage),
            Err(_) => Amount::tokens((usage.prompt_tokens + usage.completion_tokens) as i64),
        }
    }

    /// Returns the traits of the first model of `tier`; `None` if there is no model.
    pub fn model_of(&self, tier: Tier) -> Option<ModelTraits> {
        self.inner.neurons.models().pick(tier).ok().map(Model::traits)
    }

    /// Returns the token of a job's wait. The token is bound to the principal of the job.
    pub fn token(&self, head: &Head, wait: u32, expires_at: Option<Timestamp>) -> String {
        let name = format!("{}#{wait}", head.id).into();
        self.inner.neurons.sealing_key().seal_for(&name, wait, expires_at, &bound_to(&head.id), self.principal(head))
    }

    fn principal<'h>(&self, head: &'h Head) -> &'h PrincipalId {
        &head.origin.principal.id
    }

    /// Answers the wait that `token` names. A repetition of the same answer changes nothing.
    ///
    /// # Errors
    /// Returns [`FascicleError::NoWait`] if the token does not belong to this job, [`FascicleError::Expired`],
    /// [`FascicleError::Answer`] if the answer does not match the question or differs from an earlier answer, and
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
        let decides = answer.approves() || says_it_was_done(&answer, &head, wait);
        if !(is_named || may(who, &head)) || (decides && !is_named && !may_approve(who)) {
            return Err(FascicleError::NotApprover);
        }
        let answered = match self.inner.handle(job) {
            Some(handle) => handle.answer(wait, body.clone(), answer).await,
            None => None,
        };
        match answered {
            Some(answered) => answered?,
            // The job has ended, or its owner is not running.
            None => match self.run_of(&head).await?.wait_state(wait, &body) {
                WaitState::Given => {}
                WaitState::Open => return Err(FascicleError::NoOwner(head.owner)),
                other => return Err(refusal(other)),
            },
        }
        self.job(job).await
    }
}

/// Returns the string that binds a job's tokens to the job.
fn bound_to(job: &JobId) -> String {
    format!("job:{job}")
}
