//! The actor tree: supervisors, actors that do one piece of work, the view of the tree, and the restart of actors that
//! died.
//!
//! The daemon has one [`Supervisor`] for lifeforms, one for jobs and one for the invocations of clients. A job's
//! running steps are children of its actor, and an invocation of a step is a child of the step. The end of an actor
//! ends its children, and nobody else's.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::SignedDuration;
pub use ractor::ActorCell;
use ractor::{Actor, ActorName, ActorProcessingErr, ActorRef, ActorRuntime, ActorStatus, SpawnErr, SupervisionEvent};
use serde::{Deserialize, Serialize};
use store::Timestamp;

/// The maximum number of children that [`view`] lists of one actor.
pub const CHILDREN_MAX: usize = 1_000;
/// The maximum number of deaths in a row after which an actor is started again.
pub const RESTARTS_MAX: u32 = 5;
/// The pause before the second restart in a row, in seconds. Each further pause is four times as long.
const PAUSE_S: i64 = 1;
/// The time without a death after which deaths are no longer in a row.
const CALM: SignedDuration = SignedDuration::from_mins(10);

/// The number of actors that were named in this process.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// Returns the name of an actor: a number that is unique in this process, its level and its id.
pub fn named(level: &str, id: &str) -> ActorName {
    format!("{} {level} {id}", NAMED.fetch_add(1, Ordering::Relaxed))
}

/// The supervisor of one level of actors. It outlives its children: their owner decides what their end means.
pub struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    // ractor's default stops the parent with any child.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(actor, cause) = event {
            tracing::error!(actor = actor.get_name(), %cause, "an actor died");
        }
        Ok(())
    }
}

impl Supervisor {
    /// Starts the supervisor of a level, for example `jobs`.
    ///
    /// # Errors
    /// Returns a [`SpawnErr`] if the runtime is shutting down.
    pub async fn start(level: &str) -> Result<ActorCell, SpawnErr> {
        let (supervisor, _) = Actor::spawn(Some(named(level, "")), Self, ()).await?;
        Ok(supervisor.get_cell())
    }
}

/// The work of an actor, started with the actor itself.
type Work = Box<dyn FnOnce(ActorCell) -> BoxFuture<'static, ()> + Send>;

/// An actor that does one piece of work and stops.
struct Worker;

impl Actor for Worker {
    type Msg = ();
    type State = Option<Work>;
    type Arguments = Work;

    async fn pre_start(&self, me: ActorRef<()>, work: Work) -> Result<Option<Work>, ActorProcessingErr> {
        me.cast(())?;
        Ok(Some(work))
    }

    // Awaiting the work inside a handler is acceptable only here, because this actor handles one message.
    async fn handle(&self, me: ActorRef<()>, (): (), work: &mut Option<Work>) -> Result<(), ActorProcessingErr> {
        if let Some(work) = work.take() {
            work(me.get_cell()).await;
        }
        me.stop(None);
        Ok(())
    }

    // What became of a child is known to the work that waits for it.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        _: SupervisionEvent,
        _: &mut Option<Work>,
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

/// Starts an actor under `supervisor` that does the work which `work` returns for it, and stops. If the actor is
/// killed, the work is dropped where it awaits. If the work panics, the supervisor receives
/// [`SupervisionEvent::ActorFailed`].
///
/// # Errors
/// Returns a [`SpawnErr`] if the name is taken.
pub fn spawn_worker<F>(
    name: ActorName,
    supervisor: ActorCell,
    work: impl FnOnce(ActorCell) -> F + Send + 'static,
) -> Result<ActorCell, SpawnErr>
where
    F: Future<Output = ()> + Send + 'static,
{
    let work: Work = Box::new(|actor| work(actor).boxed());
    let (worker, _) = ActorRuntime::spawn_linked_instant(Some(name), Worker, work, supervisor)?;
    Ok(worker.get_cell())
}

/// An actor in the tree, as `GET /v1/system/actors` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ActorView {
    /// The name: a number that is unique in this process, the level and the id, as log lines show it.
    pub name: String,
    /// The level: `lifeforms`, `jobs` or `invocations` for a supervisor; `lifeform`, `job`, `step` or `invocation`.
    pub level: String,
    /// The id of the lifeform, job, step (`{job}/{path}`) or invocation; empty for a supervisor.
    pub id: String,
    /// The actors that end with this one, oldest first: at most 1,000.
    #[schema(no_recursion)]
    pub children: Vec<ActorView>,
    /// The number of further children.
    pub more: usize,
}

/// Returns the view of an actor with all actors below it.
pub fn view(actor: &ActorCell) -> ActorView {
    let name = actor.get_name().unwrap_or_default();
    let mut parts = name.splitn(3, ' ').skip(1).map(str::to_owned);
    let (level, id) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut children = running_children(actor);
    let more = children.len().saturating_sub(CHILDREN_MAX);
    children.truncate(CHILDREN_MAX);
    ActorView { name, level, id, children: children.iter().map(view).collect(), more }
}

/// Returns the children of an actor that have not ended, oldest first.
pub fn running_children(actor: &ActorCell) -> Vec<ActorCell> {
    let mut children = actor.get_children();
    children.retain(|child| child.get_status() <= ActorStatus::Upgrading);
    children.sort_by_key(|child| child.get_id().pid());
    children
}

/// The deaths of an actor, which decide when it is started again: at once after the first, after a pause of 1, 4, 16
/// and 64 s after the next ones, and no more after [`RESTARTS_MAX`] in a row, because each would come back. Deaths are
/// in a row if less than 10 minutes pass between them.
///
/// ```
/// use jiff::{SignedDuration, Timestamp};
/// let mut deaths = neurons::actors::Deaths::default();
/// let mut pause = || deaths.another(Timestamp::UNIX_EPOCH).map(|pause| pause.as_secs());
/// let pauses: Vec<Option<i64>> = (0..6).map(|_| pause()).collect();
/// assert_eq!(pauses, [Some(0), Some(1), Some(4), Some(16), Some(64), None]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaths {
    in_a_row: u32,
    last: Option<Timestamp>,
}

impl Deaths {
    /// Counts a death, and returns the pause before the restart; `None` if the actor is not started again.
    pub fn another(&mut self, now: Timestamp) -> Option<SignedDuration> {
        if self.is_over(now) {
            self.in_a_row = 0;
        }
        self.last = Some(now);
        self.in_a_row += 1;
        match self.in_a_row {
            1 => Some(SignedDuration::ZERO),
            count if count <= RESTARTS_MAX => Some(SignedDuration::from_secs(PAUSE_S * 4_i64.pow(count - 2))),
            _ => None,
        }
    }

    /// The number of deaths in a row.
    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Returns `true` if the next death begins a new row.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.last.is_none_or(|last| now.duration_since(last) > CALM)
    }
}
