//! The only ractor of this crate: one actor a job. It decides with `Run`, commits the facts, and only
//! then starts what they call for.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use neurons::{CallOptions, NeuronError, Tier};
use nexus::store::{Expect, Key, Kind};
use nexus::{Batch, Event, Origin};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::fascicles::{Inner, job_stream};
use crate::run::{Fact, Run, Start, Status};
use crate::spec::{FascicleId, NodeId, NodeRun};
use crate::toolbox::{ToolContext, Toolbox};
use crate::{FascicleError, JobId};

/// The head of a job as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Its name.
    pub id: JobId,
    /// What it runs.
    pub fascicle: FascicleId,
    /// Whose it is: the toolbox its tools come from.
    pub owner: Arc<str>,
    /// Who pays.
    pub account: Arc<str>,
    /// For whom it runs.
    pub origin: Origin,
    /// How it stands.
    pub status: Status,
    /// A node that is under way.
    pub current_stage: Option<NodeId>,
    /// What it brought.
    pub output: Value,
    /// Why it failed.
    pub error: Option<String>,
    /// A tier that overrides the neurons' own.
    pub tier: Option<Tier>,
    /// A bound that only lowers the neurons' own.
    pub output_tokens_max: Option<u32>,
}

pub(crate) enum JobMsg {
    /// Begin, or go on after a restart.
    Resume,
    /// A node's work brought news.
    News(Fact),
    /// Somebody stops the job for good.
    Cancel(oneshot::Sender<()>),
    /// Stop here; the job goes on when its owner is taken up again.
    Halt,
}

pub(crate) struct JobArgs {
    pub(crate) inner: Arc<Inner>,
    pub(crate) head: Head,
    pub(crate) run: Run,
    pub(crate) toolbox: Arc<dyn Toolbox>,
    /// What a new job begins with; a resumed one finds out itself.
    pub(crate) starts: Vec<Start>,
    /// Whether an earlier life of the daemon began it.
    pub(crate) resumed: bool,
}

pub(crate) struct Job {
    args: JobArgs,
    /// Dropping it ends whatever is under way.
    work: JoinSet<()>,
}

// However the actor ends, by a stop, an error or a panic, the job is no longer called running.
impl Drop for Job {
    fn drop(&mut self) {
        self.args.inner.forget(&self.args.head.id);
    }
}

pub(crate) struct JobActor;

impl Actor for JobActor {
    type Msg = JobMsg;
    type State = Job;
    type Arguments = JobArgs;

    async fn pre_start(&self, me: ActorRef<JobMsg>, args: JobArgs) -> Result<Job, ActorProcessingErr> {
        me.cast(JobMsg::Resume)?;
        Ok(Job { args, work: JoinSet::new() })
    }

    async fn handle(&self, me: ActorRef<JobMsg>, message: JobMsg, job: &mut Job) -> Result<(), ActorProcessingErr> {
        match message {
            JobMsg::Resume if !job.args.resumed => {
                for start in std::mem::take(&mut job.args.starts) {
                    job.perform(&me, start);
                }
            }
            JobMsg::Resume => {
                for node in job.args.run.under_way() {
                    job.take(&me, Fact::Interrupted { node }).await?;
                }
            }
            JobMsg::Halt => me.stop(None),
            JobMsg::News(news) => job.take(&me, news).await?,
            JobMsg::Cancel(done) => {
                job.take(&me, Fact::Ended { status: Status::Cancelled, output: Value::Null, error: None }).await?;
                let _ = done.send(());
            }
        }
        if job.args.run.status().is_final() {
            me.stop(None);
        }
        Ok(())
    }
}

impl Job {
    /// Decide, commit, act.
    async fn take(&mut self, me: &ActorRef<JobMsg>, news: Fact) -> Result<(), ActorProcessingErr> {
        let (facts, starts) = self.args.run.on(news);
        if facts.is_empty() {
            return Ok(());
        }
        let batch = commit_of(&mut self.args.head, &self.args.run, &facts);
        self.commit(batch).await?;
        for start in starts {
            self.perform(me, start);
        }
        Ok(())
    }

    /// Commits, and keeps at it while the disk fails: the work is done and must not be done again.
    async fn commit(&self, batch: Batch) -> Result<(), nexus::StoreError> {
        let mut wait_ms = 50;
        loop {
            match self.args.inner.store.commit(batch.clone()).await {
                Err(nexus::StoreError::Io(reason)) => {
                    tracing::warn!(job = %self.args.head.id, %reason, "a job's step cannot be written, trying again");
                    tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
                    wait_ms = (wait_ms * 2).min(5_000);
                }
                other => return other.map(drop),
            }
        }
    }

    /// Starts a node's work beside the actor; its news comes back as a message.
    fn perform(&mut self, me: &ActorRef<JobMsg>, start: Start) {
        let (inner, head, toolbox) = (self.args.inner.clone(), self.args.head.clone(), self.args.toolbox.clone());
        let Some(run) = inner.node_run(&head.fascicle, &start.node) else { return };
        let me = me.clone();
        while self.work.try_join_next().is_some() {}
        self.work.spawn(async move {
            let node = start.node.clone();
            // A panic in the work is a failure of its node.
            let outcome = AssertUnwindSafe(work(inner, head, toolbox, run, start)).catch_unwind().await;
            let news = match outcome {
                Ok(Ok(output)) => Fact::Done { node, output },
                Ok(Err((error, retry))) => Fact::Failed { node, error, retry },
                Err(_) => Fact::Failed { node, error: "it panicked".into(), retry: true },
            };
            let _ = me.cast(JobMsg::News(news));
        });
    }
}

/// The batch that makes `facts` durable, with the head as they leave it.
pub(crate) fn commit_of(head: &mut Head, run: &Run, facts: &[Fact]) -> Batch {
    head.status = run.status();
    head.current_stage = run.current().cloned();
    if let Some(Fact::Ended { output, error, .. }) = facts.last() {
        head.output = output.clone();
        head.error.clone_from(error);
    }
    let mut batch = facts.iter().fold(Batch::new(&head.origin.because(format!("job:{}", head.id))), |batch, fact| {
        batch.append(job_stream(&head.id), "fact", fact)
    });
    batch = batch.put(Key::new(Kind::Job, head.id.clone()), head);
    let mark = Key::new(Kind::Running, format!("{}/{}", head.owner, head.id));
    if head.status.is_final() { batch.delete(mark, Expect::Any) } else { batch }
}

async fn work(
    inner: Arc<Inner>,
    head: Head,
    toolbox: Arc<dyn Toolbox>,
    run: NodeRun,
    start: Start,
) -> Result<Value, (String, bool)> {
    let origin = head.origin.because(format!("job:{}/{}", head.id, start.node));
    let context = ToolContext {
        job: head.id.clone(),
        node: start.node.clone(),
        attempt: start.attempt,
        origin: origin.clone(),
        input: start.input,
        events: start.events,
    };
    match run {
        NodeRun::Tool { name, arguments } => {
            toolbox.call(&name, &arguments, &context).await.map_err(|error| (error.message, error.retry))
        }
        NodeRun::Neuron { spec, stream } => {
            let input = json!({"events": context.events.iter().map(spoken).collect::<Vec<_>>()});
            let deltas = if stream {
                toolbox.listen(&context).await.map_err(|error| (error.message, error.retry))?
            } else {
                None
            };
            let options =
                CallOptions { tier: head.tier, output_tokens_max: head.output_tokens_max, deltas, first: false };
            let name: Arc<str> = format!("{}/{}.{}", head.id, start.node, start.attempt).into();
            let thought =
                inner.neurons.think(&origin, &head.account, &name, &spec, &input, options).await.map_err(|error| {
                    let retry = worth_retrying(&error);
                    (error.to_string(), retry)
                })?;
            match thought.stop {
                neurons::Stop::Completed(completed) => Ok(completed.output),
                neurons::Stop::Paused(_) => Err(("no client".into(), false)),
            }
        }
    }
}

/// An event as a neuron is given it: its role and what it says.
fn spoken(event: &Event) -> Value {
    json!({"role": event.role, "content": event.content})
}

fn worth_retrying(error: &NeuronError) -> bool {
    match error {
        NeuronError::Llm(error) => {
            !matches!(error, neurons::LlmError::Refused { .. } | neurons::LlmError::Unavailable(_))
        }
        NeuronError::Overloaded | NeuronError::Died(_) => true,
        NeuronError::Store(error) => !error.is_ledger_refusal(),
        _ => false,
    }
}

/// Outlives every job, whatever becomes of it.
pub(crate) struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    // ractor's default stops the parent with any child; a job that failed to commit is taken up at the next start.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, cause) = event {
            tracing::error!(%cause, "a job died");
        }
        Ok(())
    }
}

/// Starts the supervisor of all jobs.
pub(crate) async fn plant() -> Result<ActorCell, FascicleError> {
    let (supervisor, _) =
        Actor::spawn(None, Supervisor, ()).await.map_err(|error| FascicleError::Died(error.to_string()))?;
    Ok(supervisor.get_cell())
}

/// A running job, from outside the actor.
#[derive(Clone)]
pub(crate) struct Handle(ActorRef<JobMsg>);

impl Handle {
    pub(crate) async fn spawn(args: JobArgs, supervisor: ActorCell) -> Result<Self, FascicleError> {
        let (job, _) = Actor::spawn_linked(None, JobActor, args, supervisor)
            .await
            .map_err(|error| FascicleError::Died(error.to_string()))?;
        Ok(Self(job))
    }

    pub(crate) async fn cancel(&self) {
        let (done, finished) = oneshot::channel();
        if self.0.cast(JobMsg::Cancel(done)).is_ok() {
            let _ = finished.await;
        }
    }

    /// Stops without a trace in the journal and waits until it has; the job goes on at the next start.
    pub(crate) async fn halt(&self) {
        if self.0.cast(JobMsg::Halt).is_ok() {
            let _ = self.0.wait(None).await;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(
            self.0.get_status(),
            ractor::ActorStatus::Running
                | ractor::ActorStatus::Starting
                | ractor::ActorStatus::Unstarted
                | ractor::ActorStatus::Upgrading
        )
    }
}
