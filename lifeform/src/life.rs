//! The actor of one running lifeform, the only ractor actor of this crate. Its reactions are in `alive`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fascicles::Fascicles;
use fascicles::run::Status as JobStatus;
use neurons::actors::named;
use neurons::tools::{ToolId, ToolUse};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Batch, Entry, Expect, Key, Kind, Origin, Principal, Scope, Store, Timestamp};
use tokio::sync::oneshot;

use crate::LifeformError;
use crate::agenda_store::AgendaStore;
use crate::alive::LifeformState;
use crate::canvas::Canvas;
use crate::guard::{Guard, GuardLimits, Step};
use crate::maintenance::{Task, Way};
use crate::memory::Memory;
use crate::metabolism::{Mode, Policy};
use crate::perception::{PassLog, Passed};
use crate::shared_knowledge::KnowledgeAccess;
use crate::spec::{LifeformId, LifeformSpec};
use crate::tools::LifeformToolbox;

/// The status of a lifeform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LifeformStatus)]
pub enum Status {
    /// The lifeform was created and has not been started yet.
    #[default]
    Created,
    /// The lifeform is running.
    Running,
    /// The lifeform is running and cannot pay for a thought. A top-up wakes it.
    Dormant,
    /// A principal or the guard stopped the lifeform.
    Stopped,
    /// The lifeform has ended. Its records stay.
    Terminated,
}

/// The stored head of a lifeform.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The id.
    pub id: LifeformId,
    /// The definition.
    pub definition: LifeformSpec,
    /// The status.
    pub status: Status,
    /// The present metabolic mode.
    pub mode: Mode,
    /// The policy that an operator set.
    pub policy: Policy,
    /// The time of creation.
    pub created_at: Timestamp,
    /// The time of the last import from an archive; `None` if it was never imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported_at: Option<Timestamp>,
    /// The number of times that the lifeform became dormant.
    #[serde(default)]
    pub rests: u64,
    /// The number of times that the lifeform entered `eco` by itself.
    #[serde(default)]
    pub wants: u64,
    /// `true` while the lifeform is in `eco` by itself.
    #[serde(default)]
    pub in_want: bool,
    /// The state of its guard.
    #[serde(default)]
    pub guard: Guard,
}

impl Head {
    /// Returns the principal of the lifeform, with its scopes.
    pub(crate) fn principal(&self) -> Principal {
        let mut me = Principal::lifeform(&self.id);
        me.scopes.extend(self.definition.scopes.iter().map(|scope| Scope(scope.as_str().into())));
        me
    }

    pub(crate) fn key(id: &str) -> Key {
        Key::new(Kind::Lifeform, id)
    }

    /// Returns the batch that stores this head, and a trace entry that says `what` changed.
    pub(crate) fn change(&self, expect: Expect, origin: &Origin, what: &str) -> Batch {
        let Self { status, mode, policy, guard, .. } = self;
        let changed = json!({"what": what, "status": status, "mode": mode, "policy": policy, "guard": guard});
        let batch = Batch::new(origin).put_expecting(Self::key(&self.id), expect, self);
        batch.append(format!("trace:{}", self.id), "lifeform", &changed)
    }
}

/// A change of a lifeform by an operator.
pub(crate) enum HeadChange {
    /// A new policy.
    Policy(Policy),
    /// The tools that it is given, in place of those that it had.
    Tools(Vec<ToolUse>),
    /// A tool that is taken from it.
    Take(ToolId),
}

impl HeadChange {
    /// Returns the name of the change in the trace.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Policy(_) => "policy",
            Self::Tools(_) | Self::Take(_) => "tools",
        }
    }

    /// Returns the head after the change.
    pub(crate) fn applied_to(self, mut head: Head) -> Head {
        match self {
            Self::Policy(policy) => head.policy = policy,
            Self::Tools(tools) => head.definition.tools = tools,
            Self::Take(tool) => head.definition.tools.retain(|used| used.tool != tool),
        }
        head
    }
}

/// The dependencies of a running lifeform.
pub(crate) struct Body {
    pub(crate) store: Store,
    pub(crate) fascicles: Fascicles,
    /// The canvases that the lifeform listens to.
    pub(crate) canvases: Vec<Canvas>,
    pub(crate) memory: Memory,
    pub(crate) knowledge: KnowledgeAccess,
    pub(crate) plans: AgendaStore,
    pub(crate) guard: GuardLimits,
    pub(crate) head: Head,
    pub(crate) version: u64,
    /// Set when the lifeform falls asleep by itself.
    pub(crate) asleep: Arc<AtomicBool>,
    /// The changes of canvases that it passes over.
    pub(crate) passed: PassLog,
    /// The start of the process, in the first run after it: writers from before the start write no more.
    pub(crate) restarted_at: Option<Timestamp>,
}

pub(crate) enum Msg {
    /// A canvas changed. The reader waits until the lifeform has processed the entry.
    Heard(Arc<str>, Box<Entry>, oneshot::Sender<()>),
    /// The lifeform joins a canvas.
    Join(Canvas),
    /// The lifeform leaves a canvas.
    Leave(Arc<str>),
    /// A job of the lifeform ended.
    Ended(Arc<str>, JobStatus),
    /// A job of the lifeform begins or ends to wait for input.
    Waits(Arc<str>),
    /// Checks the balance and the waiting messages: a heartbeat, or a top-up.
    Beat,
    /// Another writer changed the agenda of the lifeform.
    Replanned,
    /// A failed job of the lifeform was resumed.
    TakenUp(Arc<str>),
    /// Starts a maintenance task.
    Maintain((Task, Way), Arc<str>, Origin, oneshot::Sender<Result<Arc<str>, LifeformError>>),
    /// Ends the intervention of the guard, for an operator.
    Calm(Origin, oneshot::Sender<Result<Head, LifeformError>>),
    /// Changes the head, for an operator.
    Change(HeadChange, Origin, oneshot::Sender<Result<Head, LifeformError>>),
    /// Returns the tools of the lifeform.
    Tools(oneshot::Sender<Arc<LifeformToolbox>>),
    /// Returns the head.
    Inspect(oneshot::Sender<Head>),
    /// Halts without a status change. The lifeform wakes at the next start of the daemon.
    Halt,
    /// Stops the lifeform with this status.
    Stop(Status, Origin, oneshot::Sender<Result<Head, LifeformError>>),
}

/// The mailbox of a running lifeform.
pub(crate) type Mailbox = ActorRef<Msg>;

pub(crate) struct Life;

impl Actor for Life {
    type Msg = Msg;
    type State = LifeformState;
    type Arguments = Body;

    async fn pre_start(&self, me: ActorRef<Msg>, body: Body) -> Result<LifeformState, ActorProcessingErr> {
        let mut alive = LifeformState::new(body);
        alive.wake(&me).await?;
        // An entry of the agenda may have woken the lifeform.
        alive.take_initiative(&me).await?;
        Ok(alive)
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        message: Msg,
        alive: &mut LifeformState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Heard(canvas, entry, taken_in) => {
                alive.hear(&canvas, &entry).await?;
                alive.attend(&me, false).await?;
                alive.let_read_on(Some(taken_in));
            }
            Msg::Join(canvas) => {
                alive.join(&me, canvas).await?;
                alive.attend(&me, false).await?;
            }
            Msg::Leave(canvas) => alive.leave(&canvas).await?,
            Msg::Ended(job, status) => {
                alive.ended(&me, &job, status).await?;
                alive.attend(&me, false).await?;
                alive.let_read_on(None);
            }
            Msg::Waits(job) => alive.say_that_it_waits(&job).await?,
            Msg::Beat => {
                if !Box::pin(alive.beat(&me)).await? {
                    // The lifeform is asleep now and has no further work.
                    me.stop(None);
                }
            }
            Msg::Replanned => {
                alive.replan().await?;
                alive.take_initiative(&me).await?;
            }
            Msg::TakenUp(job) => alive.take_up_again(&me, job).await?,
            Msg::Halt => me.stop(None),
            Msg::Change(change, origin, reply) => {
                let what = change.name();
                let kept = alive.keep(change.applied_to(alive.head.clone()), &origin, what).await;
                // The reply contains the head after the effects of the change.
                alive.attend(&me, true).await?;
                let _ = reply.send(kept.map(|()| alive.head.clone()));
            }
            Msg::Maintain(task, job, origin, reply) => {
                let _ = reply.send(alive.maintain(&me, task, job, &origin).await);
            }
            Msg::Calm(origin, reply) => {
                let calmed = alive.calm(&origin).await;
                alive.attend(&me, true).await?;
                let _ = reply.send(calmed.map(|()| alive.head.clone()));
            }
            Msg::Tools(reply) => {
                let _ = reply.send(alive.tools.clone());
            }
            Msg::Inspect(reply) => {
                let _ = reply.send(alive.head.clone());
            }
            Msg::Stop(status, origin, reply) => {
                let kept = alive.keep(Head { status, ..alive.head.clone() }, &origin, "stopped").await;
                let _ = reply.send(kept.map(|()| alive.head.clone()));
                me.stop(None);
            }
        }
        if alive.head.guard.step == Step::Stop {
            me.stop(None);
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, alive: &mut LifeformState) -> Result<(), ActorProcessingErr> {
        alive.rest().await;
        Ok(())
    }
}

/// A handle on a running lifeform, for code outside the actor.
#[derive(Clone)]
pub(crate) struct Handle {
    mailbox: Mailbox,
    asleep: Arc<AtomicBool>,
    passed: PassLog,
}

impl Handle {
    pub(crate) async fn spawn(body: Body, supervisor: ActorCell) -> Result<Self, LifeformError> {
        let (asleep, passed) = (body.asleep.clone(), body.passed.clone());
        let name = named("lifeform", &body.head.id);
        let (mailbox, _) = Actor::spawn_linked(Some(name), Life, body, supervisor)
            .await
            .map_err(|error| LifeformError::Died(error.to_string()))?;
        Ok(Self { mailbox, asleep, passed })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.mailbox.get_status() == ractor::ActorStatus::Running && !self.is_asleep()
    }

    /// Halts the lifeform without a status change, and waits until its actor has ended.
    pub(crate) async fn halt(&self) {
        if self.mailbox.cast(Msg::Halt).is_ok() {
            let _ = self.mailbox.wait(None).await;
        }
    }

    /// Waits until the actor has ended.
    pub(crate) async fn ended(&self) {
        let _ = self.mailbox.wait(None).await;
    }

    pub(crate) fn beat(&self) {
        let _ = self.mailbox.cast(Msg::Beat);
    }

    pub(crate) fn join(&self, canvas: Canvas) {
        let _ = self.mailbox.cast(Msg::Join(canvas));
    }

    pub(crate) fn replanned(&self) {
        let _ = self.mailbox.cast(Msg::Replanned);
    }

    pub(crate) fn taken_up(&self, job: &Arc<str>) {
        let _ = self.mailbox.cast(Msg::TakenUp(job.clone()));
    }

    /// Returns the changes of canvases that the lifeform passed over since it was woken.
    pub(crate) fn passed(&self) -> Passed {
        self.passed.shown()
    }

    /// Returns `true` if the lifeform went to sleep by itself.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    pub(crate) fn leave(&self, canvas: &str) {
        let _ = self.mailbox.cast(Msg::Leave(canvas.into()));
    }

    /// Returns the tools of the lifeform; `None` if its actor has ended.
    pub(crate) async fn tools(&self) -> Option<Arc<LifeformToolbox>> {
        let (reply, tools) = oneshot::channel();
        self.mailbox.cast(Msg::Tools(reply)).ok()?;
        tools.await.ok()
    }

    pub(crate) async fn inspect(&self) -> Option<Head> {
        let (reply, head) = oneshot::channel();
        self.mailbox.cast(Msg::Inspect(reply)).ok()?;
        head.await.ok()
    }

    pub(crate) async fn change(&self, change: HeadChange, origin: &Origin) -> Result<Head, LifeformError> {
        let (reply, head) = oneshot::channel();
        self.ask(Msg::Change(change, origin.clone(), reply), head).await
    }

    pub(crate) async fn maintain(
        &self,
        task: (Task, Way),
        job: Arc<str>,
        origin: &Origin,
    ) -> Result<Arc<str>, LifeformError> {
        let (reply, begun) = oneshot::channel();
        self.ask(Msg::Maintain(task, job, origin.clone(), reply), begun).await
    }

    pub(crate) async fn calm(&self, origin: &Origin) -> Result<Head, LifeformError> {
        let (reply, head) = oneshot::channel();
        self.ask(Msg::Calm(origin.clone(), reply), head).await
    }

    pub(crate) async fn stop(&self, status: Status, origin: &Origin) -> Result<Head, LifeformError> {
        let (reply, head) = oneshot::channel();
        let head = self.ask(Msg::Stop(status, origin.clone(), reply), head).await?;
        // The caller relies on the actor having ended.
        let _ = self.mailbox.wait(None).await;
        Ok(head)
    }

    async fn ask<T>(
        &self,
        message: Msg,
        answer: oneshot::Receiver<Result<T, LifeformError>>,
    ) -> Result<T, LifeformError> {
        let gone = || LifeformError::Died("the lifeform is not running".into());
        self.mailbox.cast(message).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
