//! One living lifeform: the only ractor of this crate. It hears the canvas, decides what it can afford,
//! starts the fascicles that answer, and rests when it cannot pay.

use std::sync::Arc;

use fascicles::run::{Fact, Status as JobStatus};
use fascicles::{FascicleError, Fascicles, JobOrder, Toolbox};
use neurons::llm::Usage;
use nexus::ledger::Amount;
use nexus::store::{Entry, Expect, Key, Kind, json};
use nexus::{Batch, Event, Origin, Principal, Store, StoreError, Timestamp};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::LifeformError;
use crate::attention::Attention;
use crate::canvas::{Canvas, Op, chat};
use crate::hands::{Hands, PERCEPTION, Perception};
use crate::memory::Memory;
use crate::metabolism::{Fed, Mode, Policy, means, mode};
use crate::spec::{LifeformId, LifeformSpec};

/// How a lifeform stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Made, not started yet.
    #[default]
    Created,
    /// It lives.
    Running,
    /// It lives and cannot pay for a thought; a top-up wakes it.
    Dormant,
    /// Somebody stopped it.
    Stopped,
    /// It is gone; its records stay.
    Terminated,
}

/// What is kept of a lifeform.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Its id.
    pub id: LifeformId,
    /// What it was born as.
    pub definition: LifeformSpec,
    /// How it stands.
    pub status: Status,
    /// The mode it lives in.
    pub mode: Mode,
    /// What an operator ordered.
    pub policy: Policy,
    /// When it was made.
    pub created_at: Timestamp,
    /// How often it fell dormant.
    #[serde(default)]
    pub rests: u64,
    /// How often it came into want by itself, whatever was ordered.
    #[serde(default)]
    pub wants: u64,
    /// Whether it is in want.
    #[serde(default)]
    pub in_want: bool,
}

impl Head {
    pub(crate) fn key(id: &str) -> Key {
        Key::new(Kind::Lifeform, id)
    }
}

/// What the body of a living lifeform is made of.
pub(crate) struct Body {
    pub(crate) store: Store,
    pub(crate) fascicles: Fascicles,
    pub(crate) canvas: Canvas,
    pub(crate) memory: Memory,
    pub(crate) head: Head,
    pub(crate) version: u64,
    /// Whether the daemon was started just now: whoever was writing then writes no more.
    pub(crate) restarted: bool,
}

pub(crate) enum Msg {
    /// The canvas changed; the reader waits until this is taken in.
    Heard(Box<Entry>, oneshot::Sender<()>),
    /// A job ended.
    Ended(Arc<str>, JobStatus),
    /// Look at the balance and at what waits: a beat, or a top-up.
    Beat,
    /// A new policy, from an operator.
    Policy(Policy, Origin, oneshot::Sender<Result<Head, LifeformError>>),
    /// Answers the head.
    Inspect(oneshot::Sender<Head>),
    /// Stop without a word; it wakes at the next start.
    Halt,
    /// Stop living, in this status.
    Stop(Status, Origin, oneshot::Sender<Result<Head, LifeformError>>),
}

pub(crate) struct Life;

pub(crate) struct Alive {
    body: Body,
    me: Principal,
    hands: Arc<dyn Toolbox>,
    attention: Attention,
    readers: Vec<JoinHandle<()>>,
    jobs: Vec<Arc<str>>,
    /// The reader, waiting until there is room for more.
    held_reader: Option<oneshot::Sender<()>>,
}

/// What a reply may read at most, in tokens: its reservation must be covered before it starts.
const REPLY_PROMPT_TOKENS: u64 = 4_000;

impl Actor for Life {
    type Msg = Msg;
    type State = Alive;
    type Arguments = Body;

    async fn pre_start(&self, me: ActorRef<Msg>, body: Body) -> Result<Alive, ActorProcessingErr> {
        let principal = Principal::lifeform(&body.head.id);
        let definition = &body.head.definition;
        let identity = format!("Your name is {}. {}", definition.name, definition.persona).trim().to_owned();
        let hands = Arc::new(Hands {
            canvas: body.canvas.clone(),
            memory: body.memory.clone(),
            me: principal.clone(),
            identity,
        });
        let mut alive = Alive {
            body,
            me: principal,
            hands,
            attention: Attention::default(),
            readers: Vec::new(),
            jobs: Vec::new(),
            held_reader: None,
        };
        alive.wake(&me).await?;
        Ok(alive)
    }

    async fn handle(&self, me: ActorRef<Msg>, message: Msg, alive: &mut Alive) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Heard(entry, taken_in) => {
                alive.hear(&entry);
                alive.attend(&me).await?;
                if alive.attention.is_full() {
                    // The reader goes on when there is room again.
                    alive.held_reader = Some(taken_in);
                } else {
                    let _ = taken_in.send(());
                }
            }
            Msg::Ended(job, status) => {
                alive.ended(&job, status).await;
                alive.attend(&me).await?;
                if let Some(reader) = alive.held_reader.take_if(|_| !alive.attention.is_full()) {
                    let _ = reader.send(());
                }
            }
            Msg::Beat => alive.attend(&me).await?,
            Msg::Halt => me.stop(None),
            Msg::Policy(policy, origin, reply) => {
                alive.body.head.policy = policy;
                let kept = alive.keep(&origin, "policy").await;
                // What is answered is what follows from it.
                alive.attend(&me).await?;
                let _ = reply.send(kept.map(|()| alive.body.head.clone()));
            }
            Msg::Inspect(reply) => {
                let _ = reply.send(alive.body.head.clone());
            }
            Msg::Stop(status, origin, reply) => {
                alive.body.head.status = status;
                let kept = alive.keep(&origin, "stopped").await;
                let _ = reply.send(kept.map(|()| alive.body.head.clone()));
                me.stop(None);
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, alive: &mut Alive) -> Result<(), ActorProcessingErr> {
        alive.readers.iter().for_each(JoinHandle::abort);
        alive.body.fascicles.halt(&alive.owner()).await;
        alive.body.fascicles.let_go(&alive.owner());
        Ok(())
    }
}

impl Alive {
    fn owner(&self) -> String {
        format!("lifeform:{}", self.body.head.id)
    }

    /// Where the reading of the canvas stands.
    fn cursor(&self) -> Key {
        Key::new(Kind::Cursor, format!("{}/{}", self.body.head.id, self.body.canvas.id))
    }

    /// Takes up what was left: unfinished jobs first, then the canvas from where it was read to.
    async fn wake(&mut self, me: &ActorRef<Msg>) -> Result<(), LifeformError> {
        self.body.head.status = Status::Running;
        self.keep(&Origin::system("wake"), "woke").await?;
        let definition = &self.body.head.definition;
        self.body.memory.name_self(&definition.name, &definition.persona).await?;
        let marks = self.body.store.documents::<Arc<str>>(Kind::Running, &format!("{}/", self.owner()), 1024).await?;
        let unfinished: Vec<Arc<str>> = marks
            .into_iter()
            .filter(|(mark, _)| mark.starts_with(&format!("{}/", self.owner())))
            .map(|(_, job)| job.value)
            .collect();
        self.interrupt_orphans(&unfinished).await;
        self.body.fascicles.resume(&self.owner(), &self.hands).await?;
        for job in unfinished {
            if let Some(topic) = topic_of(&job) {
                self.attention.occupy(topic);
            }
            self.watch(me, job);
        }
        let read = self.body.store.document::<u64>(&self.cursor()).await?.map_or(0, |found| found.value);
        self.attention.hear(read, None);
        // What the log holds no more was too long ago to be answered.
        let from = read.max(self.body.canvas.snapshot().floor);
        let mut follow = self.body.store.follow(self.body.canvas.stream().clone(), from);
        let me = me.clone();
        self.readers.push(tokio::spawn(async move {
            while let Ok(entry) = follow.next().await {
                let (taken_in, wait) = oneshot::channel();
                if me.cast(Msg::Heard(Box::new(entry), taken_in)).is_err() || wait.await.is_err() {
                    break;
                }
            }
        }));
        Ok(())
    }

    /// Messages that were being written when the last life ended and whose job is gone are marked so.
    async fn interrupt_orphans(&self, unfinished: &[Arc<str>]) {
        let state = self.body.canvas.snapshot().state;
        let mut orphans: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        for topic in state.children("/topics").filter_map(|topic| topic["id"].as_str()) {
            for message in state.children(&format!("{}/messages", chat::topic_path(topic))) {
                let id = message["id"].as_str().unwrap_or_default();
                // Another lifeform's message is for that one to go on with.
                let sender = message["sender"].as_str().unwrap_or_default();
                let is_ours = sender == &*self.me.id.0 || (self.body.restarted && !sender.starts_with("lifeform:"));
                let is_open = message["status"] == "streaming" && is_ours;
                if is_open && !unfinished.iter().any(|job| *id == format!("msg_{job}")) {
                    orphans.push((topic.into(), id.into()));
                }
            }
        }
        for (topic, id) in orphans {
            let reason = "the daemon stopped while this was being written".into();
            let op = chat::Op::Interrupt { topic, id, reason };
            let _ = self
                .body
                .canvas
                .apply(op, None, None, &Origin::new(self.me.clone(), nexus::Cause::of("restart")))
                .await;
        }
    }

    /// Turns a canvas entry into a perception, if a person said something new.
    fn hear(&mut self, entry: &Entry) {
        let perception = match Op::of_entry(self.body.canvas.kind, entry) {
            Some(Op::Chat(chat::Op::Append { topic, id, content, .. })) if entry.by != self.me.id => Some(Perception {
                topic,
                message: id,
                sender: entry.by.to_string(),
                content,
                source: format!("{}@{}", self.body.canvas.stream(), entry.seq),
                history: means(self.body.head.mode).history,
                cause: entry.cause.clone(),
            }),
            _ => None,
        };
        self.attention.hear(entry.seq, perception);
    }

    async fn ended(&mut self, job: &Arc<str>, status: JobStatus) {
        self.jobs.retain(|running| running != job);
        let Some(topic) = topic_of(job) else { return };
        self.attention.release(topic);
        if status == JobStatus::Failed {
            self.admit_failure(job, topic).await;
        }
    }

    /// An answer that failed is not left hanging: what was begun is marked, and what was not is said.
    async fn admit_failure(&self, job: &Arc<str>, topic: &str) {
        let error = self.body.fascicles.job(job).await.ok().and_then(|head| head.error).unwrap_or_default();
        tracing::warn!(lifeform = %self.body.head.id, %job, %error, "an answer failed");
        let (topic, id): (Arc<str>, Arc<str>) = (topic.into(), format!("msg_{job}").into());
        let state = self.body.canvas.snapshot().state;
        let found = state.get(&chat::message_path(&topic, &id));
        // A reason is bounded, and an error may quote what a provider said.
        let error: String = error.chars().take(240).collect();
        let op = match found.and_then(|message| message["status"].as_str()) {
            Some("streaming") => chat::Op::Interrupt { topic, id, reason: error },
            None => chat::Op::say(&topic, id, format!("I could not answer: {error}"), None),
            Some(_) => return,
        };
        let origin = Origin::new(self.me.clone(), nexus::Cause::of(format!("job:{job}")));
        if let Err(error) = self.body.canvas.apply(op, None, None, &origin).await {
            tracing::warn!(%error, "a failure cannot be shown");
        }
    }

    /// Answers what waits, as far as the means go.
    async fn attend(&mut self, me: &ActorRef<Msg>) -> Result<(), LifeformError> {
        let free = self.free();
        let now = self.body.store.clock().now();
        let (was, status) = (self.body.head.mode, self.body.head.status);
        let account = self.body.store.account(&self.body.head.id).unwrap_or_default();
        let fed = Fed::of(&account, now);
        self.body.head.mode = mode(fed, &self.body.head.definition.metabolism, &self.body.head.policy, was, now);
        let was_hungry = if self.body.head.in_want { Mode::Eco } else { Mode::Standard };
        let by_itself = mode(fed, &self.body.head.definition.metabolism, &Policy::default(), was_hungry, now);
        let in_want = by_itself == Mode::Eco;
        self.body.head.wants += u64::from(in_want && !self.body.head.in_want);
        let wanted = std::mem::replace(&mut self.body.head.in_want, in_want);
        let means = means(self.body.head.mode);
        let needed = self.need(means);
        // Holds of answers under way come back when they are settled; only a lifeform at rest can starve.
        let starving = !free.covers(needed) && self.jobs.is_empty();
        self.body.head.status = if starving { Status::Dormant } else { Status::Running };
        if self.body.head.status != status || self.body.head.mode != was || wanted != in_want {
            self.body.head.rests += u64::from(self.body.head.status == Status::Dormant && status != Status::Dormant);
            self.keep(&Origin::new(self.me.clone(), nexus::Cause::of("metabolism")), "metabolism").await?;
        }
        if starving || !free.covers(needed) {
            return self.say_so(starving).await;
        }
        while let Some((rev, perception)) = self.attention.next() {
            // Each answer under way may still draw as much as one more would.
            let room = (0..=self.jobs.len()).fold(Amount::default(), |sum, _| sum.plus(needed));
            if !self.free().covers(room) {
                break;
            }
            let perception = Perception { history: means.history, ..self.as_it_stands(perception.clone()) };
            if self.body.head.mode == Mode::Eco && in_want {
                self.say_that_it_is_in_want(&perception).await?;
            }
            let job: Arc<str> = format!("{}.{}.r{rev}", self.body.head.id, perception.topic).into();
            match self.answer(me, rev, perception, job, means).await {
                // There is a next beat.
                Err(LifeformError::Fascicle(FascicleError::Overloaded)) => break,
                started => started?,
            }
        }
        Ok(())
    }

    /// The message as it is now: it may have been amended while it waited.
    fn as_it_stands(&self, mut perception: Perception) -> Perception {
        let state = self.body.canvas.snapshot().state;
        let message = state.get(&chat::message_path(&perception.topic, &perception.message));
        if let Some(("final", content)) = message.and_then(|m| Some((m["status"].as_str()?, m["content"].as_str()?))) {
            perception.content = content.to_owned();
        }
        perception
    }

    fn free(&self) -> Amount {
        self.body.store.account(&self.body.head.id).map(|account| account.available()).unwrap_or_default()
    }

    /// What must be free before an answer is begun, at the price of the model that would give it.
    fn need(&self, means: crate::metabolism::Means) -> Amount {
        let usage = Usage {
            prompt_tokens: REPLY_PROMPT_TOKENS,
            completion_tokens: means.output_tokens_max.into(),
            ..Usage::default()
        };
        let mut need = self.body.fascicles.price(means.tier, usage);
        need.tokens = need.tokens.max(self.body.head.definition.metabolism.rest_below_tokens);
        need
    }

    /// The reflex of a starving lifeform: it needs no model to say that it rests, once a rest.
    async fn say_so(&self, starving: bool) -> Result<(), LifeformError> {
        let Some((_, perception)) = self.attention.next().filter(|_| starving) else { return Ok(()) };
        let id: Arc<str> = format!("msg_resting_{}_{}", self.body.head.rests, perception.topic).into();
        let content = format!(
            "I am resting: what I have left ({}) does not pay for an answer. A top-up wakes me, and then I will answer.",
            self.free()
        );
        let op = chat::Op::say(&perception.topic, id, content, Some(perception.message.clone()));
        match self
            .body
            .canvas
            .apply(op, None, None, &Origin::new(self.me.clone(), nexus::Cause::of(perception.source.as_str())))
            .await
        {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tells a person, once in each time of want, why answers are shorter now. It needs no model.
    async fn say_that_it_is_in_want(&self, perception: &Perception) -> Result<(), LifeformError> {
        let id: Arc<str> = format!("msg_resting_want_{}_{}", self.body.head.wants, perception.topic).into();
        let content = "I am running low, so my answers are shorter for now. A top-up restores them.".to_owned();
        let op = chat::Op::say(&perception.topic, id, content, None);
        let origin = Origin::new(self.me.clone(), nexus::Cause::of(perception.source.as_str()));
        match self.body.canvas.apply(op, None, None, &origin).await {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Starts the job that answers one message. Its start and the reading of the message share a commit.
    async fn answer(
        &mut self,
        me: &ActorRef<Msg>,
        rev: u64,
        perception: Perception,
        job: Arc<str>,
        means: crate::metabolism::Means,
    ) -> Result<(), LifeformError> {
        let origin = Origin::new(self.me.clone(), perception.cause.and(perception.source.as_str()));
        let event =
            Event::json(PERCEPTION, serde_json::to_value(&perception).unwrap_or_default(), origin.cause.clone());
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle: self.body.head.definition.reply.variant(self.body.head.mode).clone(),
            owner: self.owner().into(),
            account: self.body.head.id.clone(),
            events: vec![event],
            tier: Some(means.tier),
            output_tokens_max: Some(means.output_tokens_max),
            ..JobOrder::default()
        };
        let (cursor, read) = (self.cursor(), self.attention.cursor_without(rev));
        self.body.fascicles.start(&origin, order, self.hands.clone(), |batch| batch.put(cursor, &read)).await?;
        self.attention.take_up(rev);
        self.watch(me, job);
        Ok(())
    }

    /// Tells the lifeform when a job ends.
    fn watch(&mut self, me: &ActorRef<Msg>, job: Arc<str>) {
        self.jobs.push(job.clone());
        let mut follow = self.body.store.follow(format!("job:{job}").into(), 0);
        let me = me.clone();
        self.readers.retain(|reader| !reader.is_finished());
        self.readers.push(tokio::spawn(async move {
            while let Ok(entry) = follow.next().await {
                if let Ok(Fact::Ended { status, .. }) = entry.decode::<Fact>() {
                    let _ = me.cast(Msg::Ended(job, status));
                    break;
                }
            }
        }));
    }

    /// Writes the head and why it changed.
    async fn keep(&mut self, origin: &Origin, what: &str) -> Result<(), LifeformError> {
        let key = Head::key(&self.body.head.id);
        let body = json(
            &serde_json::json!({"what": what, "status": self.body.head.status, "mode": self.body.head.mode, "policy": self.body.head.policy}),
        );
        let mut batch = Batch::new(origin).put_expecting(key, Expect::Version(self.body.version), &self.body.head);
        batch.push(nexus::store::Op::Append {
            stream: format!("trace:{}", self.body.head.id).into(),
            expect: None,
            kind: "lifeform".into(),
            data: body,
        });
        self.body.version = match self.body.store.commit(batch).await {
            Ok(receipt) => receipt.versions[0],
            Err(StoreError::Conflict { found, .. }) => {
                // Only this actor writes the head, so a conflict is an unknown outcome that was a success.
                found
            }
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }
}

/// The topic in the name of a reply job, `{lifeform}.{topic}.r{rev}`; a topic's own name may hold dots.
fn topic_of(job: &str) -> Option<&str> {
    Some(job.split_once('.')?.1.rsplit_once('.')?.0)
}

/// Outlives every lifeform, whatever becomes of it.
pub(crate) struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    // ractor's default stops the parent with any child; a lifeform that died is woken by the registry.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, cause) = event {
            tracing::error!(%cause, "a lifeform died");
        }
        Ok(())
    }
}

/// Starts the supervisor of all lifeforms.
pub(crate) async fn plant() -> Result<ActorCell, LifeformError> {
    let (supervisor, _) =
        Actor::spawn(None, Supervisor, ()).await.map_err(|error| LifeformError::Died(error.to_string()))?;
    Ok(supervisor.get_cell())
}

/// A living lifeform, from outside the actor.
#[derive(Clone)]
pub(crate) struct Handle(ActorRef<Msg>);

impl Handle {
    pub(crate) async fn spawn(body: Body, supervisor: ActorCell) -> Result<Self, LifeformError> {
        let (life, _) = Actor::spawn_linked(None, Life, body, supervisor)
            .await
            .map_err(|error| LifeformError::Died(error.to_string()))?;
        Ok(Self(life))
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.0.get_status() == ractor::ActorStatus::Running
    }

    /// Stops it as it is, and waits until it has.
    pub(crate) async fn halt(&self) {
        if self.0.cast(Msg::Halt).is_ok() {
            let _ = self.0.wait(None).await;
        }
    }

    /// Waits until it lives no more.
    pub(crate) async fn ended(&self) {
        let _ = self.0.wait(None).await;
    }

    pub(crate) fn beat(&self) {
        let _ = self.0.cast(Msg::Beat);
    }

    pub(crate) async fn inspect(&self) -> Option<Head> {
        let (reply, head) = oneshot::channel();
        self.0.cast(Msg::Inspect(reply)).ok()?;
        head.await.ok()
    }

    pub(crate) async fn policy(&self, policy: Policy, origin: &Origin) -> Result<Head, LifeformError> {
        let (reply, head) = oneshot::channel();
        self.ask(Msg::Policy(policy, origin.clone(), reply), head).await
    }

    pub(crate) async fn stop(&self, status: Status, origin: &Origin) -> Result<Head, LifeformError> {
        let (reply, head) = oneshot::channel();
        let head = self.ask(Msg::Stop(status, origin.clone(), reply), head).await?;
        // What comes after must find it gone.
        let _ = self.0.wait(None).await;
        Ok(head)
    }

    async fn ask(
        &self,
        message: Msg,
        answer: oneshot::Receiver<Result<Head, LifeformError>>,
    ) -> Result<Head, LifeformError> {
        let gone = || LifeformError::Died("it is not alive".into());
        self.0.cast(message).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
