//! The job actor. It decides with `Run`, commits the facts, and only then performs the effects. The steps that run are
//! its children: they end with it, and the death of one fails only that step.

mod handle;
mod head;

use std::collections::HashMap;
use std::sync::Arc;

use neurons::Neurons;
use neurons::actors::{named, spawn_worker};
use neurons::neuron::{ToolCall, ToolResult};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use store::ledger::{AccountOp, Amount};
use store::{Batch, Expect, Key, Kind, Place, Timestamp, json};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::FascicleError;
use crate::fascicles::{Inner, job_stream};
use crate::graph::{Action, Work};
use crate::run::{
    Answer, Effect, Fact, OUTPUT_BYTES_MAX, Outcome, Pause, Run, RunInput, Start, Step, WaitState, bytes_of,
};
use crate::spec::CalledBy;
use crate::step_scheduler::YIELD_MAX;
use crate::toolbox::Toolbox;
use crate::work::{invocation, may_repeat, work};
pub(crate) use handle::Handle;
pub(crate) use head::hold_of;
pub use head::{Head, Waiting};

/// Checks the answers to the forms that servers ask.
fn check_forms(calls: &[ToolCall], results: &[ToolResult]) -> Result<(), String> {
    let asked = calls
        .iter()
        .filter_map(|call| Some((call.form.as_ref()?, results.iter().find(|result| result.id == call.id)?)));
    asked.into_iter().try_for_each(|(form, result)| match (&result.result, result.approved) {
        (_, Some(true)) => {
            Err("a server asks for answers to its form: a result brings them, and approved: false declines".into())
        }
        (Some(answers), _) => {
            let answers = serde_json::from_str(answers).map_err(|error| format!("the answers are no JSON: {error}"))?;
            form.check(&answers)
        }
        (None, _) => Ok(()),
    })
}

/// The result of a call whose outcome nobody knows, and which a person leaves at that.
const LEFT: &str = "it is not known whether this was done, and a person left it at that";
/// The maximum size of the outputs that may stay uncommitted, in bytes.
const UNKEPT_BYTES_MAX: usize = 256 << 10;

pub(crate) enum JobMsg {
    /// Starts the job, or continues it after a restart.
    Resume,
    /// Delivers an input from a step's work.
    RunInput(RunInput),
    /// Delivers an answer to a wait.
    Answer { wait: u32, body: String, answer: Answer, reply: oneshot::Sender<Result<(), FascicleError>> },
    /// Cancels the job.
    Cancel(oneshot::Sender<()>),
    /// Suspends the job. It continues when its owner is resumed.
    Halt,
}

pub(crate) struct JobArgs {
    pub(crate) inner: Arc<Inner>,
    pub(crate) head: Head,
    pub(crate) run: Run,
    pub(crate) toolbox: Arc<dyn Toolbox>,
    /// The effects of the acceptance of a new job.
    pub(crate) effects: Vec<Effect>,
    /// The first input of a resumed job.
    pub(crate) first: Option<RunInput>,
    /// The serial number, which distinguishes this actor from earlier actors of the same job.
    pub(crate) serial: u64,
    /// The permit among the working jobs; `None` if a job was resumed after a restart when all permits were taken.
    pub(crate) place: Option<Place>,
}

pub(crate) struct Job {
    args: JobArgs,
    /// The facts that are not committed yet, because their work can be repeated, and the bytes of their outputs.
    unkept: Vec<Fact>,
    unkept_bytes: usize,
    /// The time until which the job's background steps yield to other steps.
    yields_until: Option<Instant>,
    /// The steps that run.
    under_way: HashMap<Step, RunningStep>,
    /// The time of the next deadline.
    due: Option<Timestamp>,
    /// The timer of the next deadline. Dropping the set aborts it.
    alarm: JoinSet<()>,
    /// `true` if the job is counted as busy.
    busy: bool,
    /// The permit among the waiting jobs.
    waiting: Option<Place>,
    /// `true` once the actor ends by a message: at the end of the job, or when it is suspended.
    is_over: bool,
}

/// A try of a step that runs.
struct RunningStep {
    actor: ActorCell,
    attempt: u32,
    /// `true` if the step may be tried again when its actor dies.
    may_repeat: bool,
}

// Runs however the actor ends: by a stop, an error or a panic. The job must not stay registered as running.
impl Drop for Job {
    fn drop(&mut self) {
        self.leave();
        if !self.is_over {
            self.args.inner.has_died(&self.args.head.id);
        }
    }
}

pub(crate) struct JobActor;

impl Actor for JobActor {
    type Msg = JobMsg;
    type State = Job;
    type Arguments = JobArgs;

    async fn pre_start(&self, me: ActorRef<JobMsg>, args: JobArgs) -> Result<Job, ActorProcessingErr> {
        me.cast(JobMsg::Resume)?;
        Ok(Job {
            args,
            unkept: Vec::new(),
            unkept_bytes: 0,
            yields_until: None,
            under_way: HashMap::new(),
            due: None,
            alarm: JoinSet::new(),
            busy: false,
            waiting: None,
            is_over: false,
        })
    }

    async fn handle(&self, me: ActorRef<JobMsg>, message: JobMsg, job: &mut Job) -> Result<(), ActorProcessingErr> {
        match message {
            JobMsg::Resume => {
                let effects = std::mem::take(&mut job.args.effects);
                job.perform(&me, effects);
                if let Some(news) = job.args.first.take() {
                    job.take(&me, news).await?;
                }
                job.set_alarm(&me);
            }
            JobMsg::Halt => {
                job.is_over = true;
                me.stop(None);
            }
            JobMsg::RunInput(news) => job.take(&me, news).await?,
            JobMsg::Answer { wait, body, answer, reply } => {
                let taken = job.answer(&me, wait, body, answer).await;
                let _ = reply.send(taken);
            }
            JobMsg::Cancel(done) => {
                job.take(&me, RunInput::Cancelled).await?;
                let _ = done.send(());
            }
        }
        job.count();
        if job.args.run.status().is_final() {
            // Jobs that its steps called as tools end with it.
            let (inner, id) = (job.args.inner.clone(), job.args.head.id.clone());
            inner.has_ended(&job.args.head);
            tokio::spawn(async move { inner.cancel_within(&id).await });
            job.is_over = true;
            me.stop(None);
        }
        Ok(())
    }

    // ractor's default would end the job with any of its steps.
    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<JobMsg>,
        event: SupervisionEvent,
        job: &mut Job,
    ) -> Result<(), ActorProcessingErr> {
        let (actor, why) = match event {
            SupervisionEvent::ActorFailed(actor, _) => (actor, "it panicked"),
            SupervisionEvent::ActorTerminated(actor, _, Some(_)) => (actor, "it was killed"),
            // The result of a step that has done its work is, or will be, a message.
            _ => return Ok(()),
        };
        match job.death_of(&actor, why) {
            Some(failed) => self.handle(me, JobMsg::RunInput(failed), job).await,
            None => Ok(()),
        }
    }

    async fn post_stop(&self, _: ActorRef<JobMsg>, job: &mut Job) -> Result<(), ActorProcessingErr> {
        job.leave();
        Ok(())
    }
}

impl Job {
    /// Updates the count of busy jobs and the job's permits.
    fn count(&mut self) {
        let busy = !self.under_way.is_empty();
        if busy != self.busy {
            self.busy = busy;
            self.args.inner.count(busy);
        }
        // A waiting job holds only a permit for waiting jobs. A job that continues was admitted before, so it continues
        // even without a permit.
        if busy && self.waiting.take().is_some() {
            self.args.place = self.args.inner.working_place(&self.args.head).ok();
        } else if !busy && self.waiting.is_none() && !self.args.run.status().is_final() {
            self.waiting = self.args.inner.waiting_place(&self.args.head).ok();
            if self.waiting.is_some() {
                self.args.place = None;
            }
        }
    }

    fn leave(&mut self) {
        self.stop_steps(|_| true);
        self.count();
        self.args.inner.forget(&self.args.head.id, self.args.serial);
    }

    /// Handles an input: decide, commit, act.
    async fn take(&mut self, me: &ActorRef<JobMsg>, news: RunInput) -> Result<(), store::StoreError> {
        let empty = Batch::new(&self.args.head.origin);
        match self.take_with(me, news, empty).await {
            // The job has ended with this failure.
            Err(store::StoreError::TooLarge { .. }) => Ok(()),
            taken => taken,
        }
    }

    /// Handles an input and commits the operations of `with` together with its facts.
    async fn take_with(&mut self, me: &ActorRef<JobMsg>, news: RunInput, with: Batch) -> Result<(), store::StoreError> {
        if let RunInput::Done { step, .. } | RunInput::Failed { step, .. } | RunInput::Paused { step, .. } = &news {
            self.under_way.remove(step);
        }
        if news == RunInput::Tick {
            self.due = None;
        }
        let now = self.args.inner.store.clock().now();
        let deferrable_bytes = self.deferrable_bytes(&news);
        let Outcome { facts, effects } = self.args.run.on(news, now);
        let is_noted =
            facts.iter().any(|fact| matches!(fact, Fact::Paused { .. } | Fact::Tainted { .. } | Fact::Ended { .. }));
        let goes_on = !self.under_way.is_empty() || !effects.is_empty();
        self.unkept.extend(facts);
        self.unkept_bytes += deferrable_bytes.unwrap_or_default();
        let may_wait = deferrable_bytes.is_some() && !is_noted && goes_on && self.unkept_bytes <= UNKEPT_BYTES_MAX;
        if may_wait && effects.iter().all(|effect| self.only_reads(effect)) {
            self.perform(me, effects);
        } else if !self.unkept.is_empty() {
            let facts = std::mem::take(&mut self.unkept);
            self.unkept_bytes = 0;
            let mut batch = commit_of(&mut self.args.head, &self.args.run, &facts, Expect::Any, now);
            batch.ops.extend(with.ops);
            // The work is done and must not be repeated, so the commit is retried for as long as the disk fails.
            match self.args.inner.store.commit_at_last(batch).await {
                Ok(_) => self.perform(me, effects),
                Err(error @ store::StoreError::TooLarge { .. }) => {
                    self.give_up(&error).await?;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.set_alarm(me);
        Ok(())
    }

    /// Returns the bytes of an output that may stay uncommitted: that of a read-only tool, which can be called again.
    fn deferrable_bytes(&self, news: &RunInput) -> Option<usize> {
        let RunInput::Done { step, output, .. } = news else { return None };
        self.args.run.leaf(step).filter(|leaf| self.is_reading(leaf)).map(|_| bytes_of(output))
    }

    fn only_reads(&self, effect: &Effect) -> bool {
        matches!(effect, Effect::Start(start) if self.is_reading(&start.leaf))
    }

    fn is_reading(&self, leaf: &Action) -> bool {
        matches!(leaf, Action::Tool { name, by: CalledBy::Owner, .. } if self.args.toolbox.only_reads(name))
    }

    /// Fails a job whose step cannot be stored, based on the state in its journal.
    async fn give_up(&mut self, error: &store::StoreError) -> Result<(), store::StoreError> {
        let now = self.args.inner.store.clock().now();
        let mut run = Run::new(self.args.run.graph().clone());
        crate::fascicles::replay(&self.args.inner.store, &self.args.head.id, &mut run).await?;
        self.args.run = run;
        (self.unkept, self.unkept_bytes) = (Vec::new(), 0);
        let out = self.args.run.on(RunInput::GivenUp(format!("a step of it cannot be kept: {error}")), now);
        let batch = commit_of(&mut self.args.head, &self.args.run, &out.facts, Expect::Any, now);
        self.args.inner.store.commit_at_last(batch).await?;
        self.stop_steps(|_| true);
        Ok(())
    }

    async fn answer(
        &mut self,
        me: &ActorRef<JobMsg>,
        wait: u32,
        body: String,
        answer: Answer,
    ) -> Result<(), FascicleError> {
        match self.args.run.wait_state(wait, &body) {
            WaitState::Open => {}
            WaitState::Given => return Ok(()),
            other => return Err(refusal(other)),
        }
        let with = self.checked(wait, &answer)?;
        Ok(self.take_with(me, RunInput::Answered { wait, body, answer }, with).await?)
    }

    /// Checks an answer against its wait and returns the operations to commit with it.
    fn checked(&self, wait: u32, answer: &Answer) -> Result<Batch, FascicleError> {
        let batch = Batch::new(&self.args.head.origin);
        let Some((step, _, asked, node)) = self.args.run.asked(wait) else {
            return Err(refusal(WaitState::Unknown));
        };
        match (&asked.pause, answer) {
            (Pause::Tools { tool_calls }, Answer::Results(results)) => {
                let expected: Vec<String> = tool_calls.iter().map(|call| call.id.clone()).collect();
                let approvals = tool_calls.iter().filter(|call| call.needs_approval);
                let approvals: Vec<String> = approvals.map(|call| call.id.clone()).collect();
                let take_results = tool_calls.iter().filter(|call| call.unsure || call.form.is_some());
                let take_results: Vec<String> = take_results.map(|call| call.id.clone()).collect();
                let checked = neurons::continuation::check_results(&expected, &approvals, &take_results, results);
                checked.and_then(|()| check_forms(tool_calls, results)).map_err(FascicleError::Answer)?;
                let unsure: Vec<&String> = tool_calls.iter().filter(|call| call.unsure).map(|call| &call.id).collect();
                // "Not approved" would say that the call was not made.
                let left = |result: &ToolResult| match unsure.contains(&&result.id) && result.approved == Some(false) {
                    true => ToolResult { approved: None, error: Some(LEFT.into()), ..result.clone() },
                    false => result.clone(),
                };
                Ok(self.with_results(batch, step, &results.iter().map(left).collect::<Vec<_>>()))
            }
            (Pause::Approval { .. }, Answer::Approval { .. }) => Ok(batch),
            (Pause::Event { .. }, Answer::Event(content)) if bytes_of(content) > OUTPUT_BYTES_MAX => {
                let bytes = bytes_of(content);
                Err(FascicleError::Answer(format!("the event has {bytes} bytes, the bound is {OUTPUT_BYTES_MAX}")))
            }
            (Pause::Event { .. }, Answer::Event(content)) => match &node.work {
                Work::Wait(_, Some(is)) => match is.iter_errors(content).next() {
                    None => Ok(batch),
                    Some(fault) => {
                        let place = fault.instance_path();
                        Err(FascicleError::Answer(format!("the event does not fit: {fault} at \"{place}\"")))
                    }
                },
                _ => Ok(batch),
            },
            (pause, _) => {
                let wanted = match pause {
                    Pause::Tools { .. } => "tool_results",
                    Pause::Approval { .. } => "approved",
                    Pause::Event { .. } => "event",
                };
                Err(FascicleError::Answer(format!("this wait is answered by {wanted}")))
            }
        }
    }

    /// Adds the results of tools to the conversations of neurons and server tools.
    fn with_results(&self, batch: Batch, step: &Step, results: &[ToolResult]) -> Batch {
        match self.args.run.conversation(step) {
            Some(number) => Neurons::answer(batch, &invocation(&self.args.head.id, step, number), results),
            None => batch,
        }
    }

    fn perform(&mut self, me: &ActorRef<JobMsg>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start(start) => self.begin(me, start),
                Effect::Stop(step) => {
                    let below = |other: &Step| {
                        other
                            .strip_prefix(&*step)
                            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '[', '!']))
                    };
                    self.stop_steps(below);
                    let (inner, called_by) = (self.args.inner.clone(), format!("{}/{step}", self.args.head.id));
                    tokio::spawn(async move { inner.cancel_within(&called_by).await });
                }
            }
        }
    }

    /// Ends the actors of the running steps that `which` selects.
    fn stop_steps(&mut self, which: impl Fn(&Step) -> bool) {
        self.under_way.extract_if(|step, _| which(step)).for_each(|(_, running)| running.actor.kill());
    }

    /// Returns the failure of the step whose actor died; `None` for a step that was stopped.
    fn death_of(&self, actor: &ActorCell, why: &str) -> Option<RunInput> {
        let died = self.under_way.iter().find(|(_, running)| running.actor.get_id() == actor.get_id());
        let (step, &RunningStep { attempt, may_repeat: retry, .. }) = died?;
        Some(RunInput::Failed { step: step.clone(), attempt, error: why.into(), retry })
    }

    /// Starts a step's work in an actor under this one. It sends its result as a message.
    fn begin(&mut self, me: &ActorRef<JobMsg>, start: Start) {
        let (inner, head, toolbox) = (self.args.inner.clone(), self.args.head.clone(), self.args.toolbox.clone());
        let (job, step, attempt) = (me.clone(), start.step.clone(), start.attempt);
        let may_repeat = may_repeat(&inner, &start.leaf);
        let yields_until =
            start.is_afterthought.then(|| *self.yields_until.get_or_insert_with(|| Instant::now() + YIELD_MAX));
        let doing = move |actor| async move {
            let news = work(inner, Arc::new(head), toolbox, start, yields_until, actor).await;
            let _ = job.cast(JobMsg::RunInput(news));
        };
        match spawn_worker(named("step", &step), me.get_cell(), doing) {
            Ok(actor) => {
                if let Some(before) = self.under_way.insert(step, RunningStep { actor, attempt, may_repeat }) {
                    before.actor.kill();
                }
            }
            // Without an actor, nothing was done.
            Err(error) => {
                let failed = RunInput::Failed { step, attempt, error: error.to_string(), retry: true };
                let _ = me.cast(JobMsg::RunInput(failed));
            }
        }
    }

    /// Sets the timer for the next expiry of a wait, or for the deadline of the job.
    fn set_alarm(&mut self, me: &ActorRef<JobMsg>) {
        let due = self.args.run.due().filter(|_| !self.args.run.status().is_final());
        if self.due == due {
            return;
        }
        (self.due, self.alarm) = (due, JoinSet::new());
        if let Some(at) = due {
            let (clock, me) = (self.args.inner.store.clock().clone(), me.clone());
            self.alarm.spawn(async move {
                clock.until(at).await;
                let _ = me.cast(JobMsg::RunInput(RunInput::Tick));
            });
        }
    }
}

pub(crate) fn refusal(wait_state: WaitState) -> FascicleError {
    match wait_state {
        WaitState::Over => FascicleError::Expired,
        WaitState::GivenOther => FascicleError::Answer("this wait was answered already, with something else".into()),
        WaitState::Open | WaitState::Given | WaitState::Unknown => FascicleError::NoWait,
    }
}

/// Returns the batch that commits `facts` together with the resulting head.
pub(crate) fn commit_of(head: &mut Head, run: &Run, facts: &[Fact], expect: Expect, now: Timestamp) -> Batch {
    head.status = run.status();
    head.current_stage = run.current_stage().cloned();
    head.output = run.output();
    head.error = run.error().cloned();
    head.waits = match head.status.is_final() {
        true => Vec::new(),
        false => run.waits().map(|(step, wait)| Waiting { step: step.clone(), wait: wait.clone() }).collect(),
    };
    head.updated_at = now;
    let stream = job_stream(&head.id);
    let mut batch = Batch::new(&head.origin.because(format!("job:{}", head.id)));
    for fact in facts {
        batch.ops.push(store::Op::Append {
            stream: stream.clone(),
            expect: None,
            kind: "fact".into(),
            data: json(fact),
        });
    }
    batch = batch.put_expecting(Key::new(Kind::Job, head.id.clone()), expect, head);
    let mark = Key::new(Kind::Running, format!("{}/{}", head.owner, head.id));
    if !head.status.is_final() {
        return batch;
    }
    if head.reserve != Amount::default() {
        let rest = AccountOp::Return { id: hold_of(&head.id) };
        batch = batch.account(head.account.clone(), rest, "job ended");
    }
    batch.delete(mark, Expect::Any)
}
