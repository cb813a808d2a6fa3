//! What a living lifeform does: it hears its canvases, decides what it can afford, starts the fascicles that answer,
//! breaks a thought off for what is newer, and rests when it cannot pay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fascicles::run::{Fact, Status as JobStatus};
use fascicles::{FascicleError, Fascicles, JobOrder, Priority, Toolbox};
use jiff::SignedDuration;
use neurons::llm::Usage;
use nexus::ledger::Amount;
use nexus::store::{Entry, Expect, Follow, Hash, Key, Kind, json};
use nexus::{Batch, Cause, Event, Origin, Principal, Store, StoreError, Timestamp};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::LifeformError;
use crate::agenda::Act;
use crate::alarm::Alarm;
use crate::attention::{Attention, BrokenOff, Next, Reading, reading_key};
use crate::canvas::{CHAT, Canvas, Op, Refusal, chat};
use crate::guard::{self, Counts, Guard, GuardLimits, Step};
use crate::hands::{Canvases, ERRAND, Hands, PERCEPTION, Speaking};
use crate::life::{Body, Head, Mailbox, Msg, Status};
use crate::maintenance::Task;
use crate::memory::Memory;
use crate::metabolism::{Fed, Means, Mode, Policy, means, mode};
use crate::perception::{self, Bearing, Heard, Perception, Place, Said, Speech, Thought};
use crate::plans::Plans;
use crate::{spending, trace};

/// What a reply may read at most, in tokens: its reservation must be covered before it starts.
const REPLY_PROMPT_TOKENS: u64 = 4_000;
/// How long until a journal that could not be read is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Memories that may be at fault and are kept in mind.
const SUSPECTED_MAX: usize = 256;
/// Marks of unfinished jobs that are looked at when it wakes.
const UNFINISHED_MAX: usize = 1024;

/// See the module.
pub(crate) struct Alive {
    pub(crate) head: Head,
    version: u64,
    restarted_at: Option<Timestamp>,
    store: Store,
    fascicles: Fascicles,
    me: Principal,
    canvases: Canvases,
    hands: Arc<dyn Toolbox>,
    speaking: Speaking,
    attention: Attention,
    /// Who reads each canvas.
    readers: BTreeMap<Arc<str>, JoinHandle<()>>,
    /// The jobs under way, each with whoever waits for its end, and since when.
    jobs: BTreeMap<Arc<str>, (JoinHandle<()>, Timestamp)>,
    /// Readers that wait until there is room for more.
    held_readers: Vec<oneshot::Sender<()>>,
    plans: Plans,
    memory: Memory,
    limits: GuardLimits,
    counts: Counts,
    /// Failures of answers that rest on a memory, and whether others succeeded since.
    suspected: BTreeMap<String, (u32, bool)>,
    /// The version of the mark that it is awake.
    awake: u64,
    asleep: Arc<AtomicBool>,
    /// When it last had something to do.
    busy_at: Timestamp,
    /// Beats that were let go by.
    beats: u32,
}

impl Alive {
    pub(crate) fn new(body: Body) -> Self {
        let Body {
            store,
            fascicles,
            canvases: taken_part_in,
            memory,
            plans,
            guard,
            head,
            version,
            asleep,
            restarted_at,
        } = body;
        let me = Principal::lifeform(&head.id);
        let definition = &head.definition;
        let identity = format!("Your name is {}. {}", definition.name, definition.persona).trim().to_owned();
        let canvases = Canvases::default();
        taken_part_in.into_iter().for_each(|canvas| canvases.join(canvas));
        let speaking = Speaking::default();
        let hands = Hands {
            speaking: speaking.clone(),
            canvases: canvases.clone(),
            memory: memory.clone(),
            plans: plans.clone(),
            home: format!("{}/{CHAT}", head.id).into(),
            me: me.clone(),
            identity,
        };
        let busy_at = store.clock().now();
        Self {
            head,
            version,
            restarted_at,
            store,
            fascicles,
            me,
            canvases,
            hands: Arc::new(hands),
            speaking,
            attention: Attention::default(),
            readers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            held_readers: Vec::new(),
            plans,
            memory,
            limits: guard,
            counts: Counts::default(),
            suspected: BTreeMap::new(),
            awake: 0,
            asleep,
            busy_at,
            beats: 0,
        }
    }

    fn owner(&self) -> String {
        format!("lifeform:{}", self.head.id)
    }

    fn because(&self, why: impl Into<Arc<str>>) -> Origin {
        Origin::new(self.me.clone(), Cause::of(why))
    }

    /// Where the reading of a canvas stands.
    fn cursor(&self, canvas: &str) -> Key {
        reading_key(&self.head.id, canvas)
    }

    // ---- waking and resting ----

    /// Takes up what was left: unfinished jobs first, then each canvas from where it was read to.
    pub(crate) async fn wake(&mut self, me: &Mailbox) -> Result<(), LifeformError> {
        // Whoever dies awake is roused when the daemon starts.
        let mark = Batch::new(&self.because("wake")).put(Alarm::awake(&self.head.id), &self.head.id);
        self.awake = self.store.commit(mark).await?.versions[0];
        if !matches!(self.head.status, Status::Running | Status::Dormant) {
            self.head.status = Status::Running;
            self.keep(&Origin::system("wake"), "woke").await?;
        }
        let unfinished = self.unfinished().await?;
        let mut thoughts = BTreeMap::new();
        for job in &unfinished {
            if let Some(thought) = self.thought_of(job).await? {
                thoughts.insert(job.clone(), thought);
            }
        }
        for canvas in self.canvases.all() {
            let reading = self.reading_of(&canvas).await?;
            // What was broken off when the last life ended is not gone on with: it is begun anew, or completed later.
            for BrokenOff { thought, .. } in &reading.again {
                if thoughts.remove(&thought.job).is_some() {
                    self.fascicles.cancel(&self.me, &thought.job).await?;
                }
            }
            self.attention.listen(&canvas.name().into(), reading);
            self.interrupt_orphans(&canvas, &thoughts).await;
        }
        self.fascicles.resume(&self.owner(), &self.hands).await?;
        // Jobs of goals that ended while nobody watched.
        let agenda = self.plans.agenda();
        let gone = agenda.goals.values().filter_map(|goal| goal.job.as_ref()).filter(|job| !unfinished.contains(job));
        for job in gone {
            self.fail_goal(job).await;
        }
        for job in unfinished {
            if let Some(thought) = thoughts.remove(&job) {
                self.attention.occupy(thought);
            }
            self.watch(me, job);
        }
        for canvas in self.canvases.all() {
            self.listen(me, &canvas).await;
        }
        Ok(())
    }

    /// Leaves everything as it is, to be taken up by the next life.
    pub(crate) async fn rest(&mut self) {
        if self.asleep.load(Ordering::SeqCst) {
            return;
        }
        for canvas in self.canvases.all() {
            canvas.sleepers().sleeps(&self.head.id).await;
        }
        self.readers.values().chain(self.jobs.values().map(|(watcher, _)| watcher)).for_each(JoinHandle::abort);
        self.fascicles.halt(&self.owner()).await;
        self.fascicles.let_go(&self.owner());
    }

    /// A beat: looks at what waits and at what is due. Answers whether it stays awake.
    pub(crate) async fn beat(&mut self, me: &Mailbox) -> Result<bool, LifeformError> {
        self.give_up_what_is_stuck().await?;
        self.attend(me, true).await?;
        self.beats += 1;
        if self.beats >= means(self.head.mode).beats {
            self.beats = 0;
            self.take_initiative(me).await?;
        }
        let now = self.store.clock().now();
        if !self.attention.is_idle() || !self.jobs.is_empty() {
            self.busy_at = now;
        }
        let sleep_after_s = self.head.definition.initiative.sleep_after_s;
        let is_idle = now.duration_since(self.busy_at) >= SignedDuration::from_secs(sleep_after_s as i64);
        let is_due = self.plans.agenda().next_due(self.plans.initiative()).is_some_and(|at| at <= now);
        if sleep_after_s == 0 || !is_idle || is_due {
            return Ok(true);
        }
        self.fall_asleep().await.map(|asleep| !asleep)
    }

    /// Leaves memory until it is called, if nothing calls it now. Whatever is said from here on writes the mark of being awake
    /// again, which keeps this from removing it.
    async fn fall_asleep(&mut self) -> Result<bool, LifeformError> {
        let canvases = self.canvases.all();
        for canvas in &canvases {
            canvas.sleepers().sleeps(&self.head.id).await;
        }
        let origin = self.because("sleep");
        let mark = Alarm::awake(&self.head.id);
        // When this is written, whatever was said before is, too.
        let barrier = Batch::new(&origin).put_expecting(mark.clone(), Expect::Version(self.awake), &self.head.id);
        let slept = async {
            let version = self.store.commit(barrier).await?.versions[0];
            self.awake = version;
            for canvas in &canvases {
                if self.store.head(canvas.stream()).await? != self.attention.heard(canvas.name()) {
                    return Ok(false);
                }
            }
            self.store.commit(Batch::new(&origin).delete(mark, Expect::Version(version))).await?;
            Ok(true)
        };
        match slept.await {
            Ok(true) => {
                self.readers.values().for_each(JoinHandle::abort);
                self.fascicles.let_go(&self.owner());
                self.asleep.store(true, Ordering::SeqCst);
                Ok(true)
            }
            // Somebody called just now, or the store cannot tell.
            Ok(false) | Err(StoreError::Conflict { .. }) => {
                let mark = Batch::new(&origin).put(Alarm::awake(&self.head.id), &self.head.id);
                self.awake = self.store.commit(mark).await?.versions[0];
                for canvas in &canvases {
                    canvas.sleepers().reads(&self.head.id).await;
                }
                self.busy_at = self.store.clock().now();
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn unfinished(&self) -> Result<Vec<Arc<str>>, LifeformError> {
        let prefix = format!("{}/", self.owner());
        let marks = self.store.documents::<Arc<str>>(Kind::Running, &prefix, UNFINISHED_MAX).await?;
        Ok(marks.into_iter().filter(|(mark, _)| mark.starts_with(&prefix)).map(|(_, job)| job.value).collect())
    }

    /// What a job of an earlier life is about, if it is a reply.
    async fn thought_of(&self, job: &Arc<str>) -> Result<Option<Thought>, LifeformError> {
        let accepted = self.store.entries(&format!("job:{job}").into(), 0, 1).await?;
        let Some(Ok(Fact::Accepted { events, .. })) = accepted.first().map(Entry::decode::<Fact>) else {
            return Ok(None);
        };
        let perceived = events.into_iter().find(|event| &*event.role == PERCEPTION);
        let perception = perceived.and_then(|event| serde_json::from_value::<Perception>(event.content).ok());
        Ok(perception.map(|perception| Thought { job: job.clone(), perception, extended: 0 }))
    }

    /// How far a canvas was read, without what was completed after all.
    async fn reading_of(&self, canvas: &Canvas) -> Result<Reading, LifeformError> {
        let kept = self.store.document::<Reading>(&self.cursor(canvas.name())).await?;
        let mut reading = kept.map(|kept| kept.value).unwrap_or_default();
        let mut again = Vec::new();
        for broken in reading.again {
            let Place { topic, .. } = &broken.thought.perception.place;
            let state = canvas.snapshot().state;
            let answer = state.get(&chat::message_path(topic, &broken.thought.answer()));
            let is_said = answer.is_some_and(|answer| answer["status"] == "final");
            let head = self.fascicles.job(&broken.thought.job).await;
            if !is_said && !head.is_ok_and(|head| head.status == JobStatus::Completed) {
                again.push(broken);
            }
        }
        reading.again = again;
        Ok(reading)
    }

    /// Reads a canvas from where it was read to, and on.
    async fn listen(&mut self, me: &Mailbox, canvas: &Canvas) {
        let name: Arc<str> = canvas.name().into();
        canvas.sleepers().reads(&self.head.id).await;
        self.introduce(canvas).await;
        // What the log holds no more was too long ago to be answered.
        let from = self.attention.heard(&name).max(canvas.snapshot().floor);
        let mut follow = self.store.follow(canvas.stream().clone(), from);
        let (me, of, mut published) = (me.clone(), name.clone(), canvas.watch());
        let reader = tokio::spawn(async move {
            while let Some(entry) = next_of(&mut follow).await {
                // An entry is committed before it is shown; what it means is told by the canvas as it stands with it.
                if published.wait_for(|rev| *rev >= entry.seq).await.is_err() {
                    break;
                }
                let (taken_in, wait) = oneshot::channel();
                if me.cast(Msg::Heard(of.clone(), Box::new(entry), taken_in)).is_err() || wait.await.is_err() {
                    break;
                }
            }
        });
        if let Some(before) = self.readers.insert(name, reader) {
            before.abort();
        }
    }

    /// On a canvas of another it says its name, so that it can be called.
    async fn introduce(&self, canvas: &Canvas) {
        let known = canvas.snapshot().state;
        let path = format!("/users/{}", crate::canvas::escape(&self.me.id.0));
        let name = &self.head.definition.name;
        let is_known = known.get(&path).is_some_and(|user| user["name"] == **name);
        if is_known || canvas.kind != crate::canvas::Kind::Chat || canvas.name() == self.home() {
            return;
        }
        let op = chat::Op::UserName { name: name.clone() };
        if let Err(error) = canvas.apply(op, None, None, &self.because("join")).await {
            tracing::warn!(lifeform = %self.head.id, %error, "it cannot introduce itself");
        }
    }

    /// The canvas it has from birth.
    fn home(&self) -> String {
        format!("{}/{CHAT}", self.head.id)
    }

    pub(crate) async fn join(&mut self, me: &Mailbox, canvas: Canvas) -> Result<(), LifeformError> {
        if self.readers.contains_key(canvas.name()) {
            return Ok(());
        }
        let mut reading = self.reading_of(&canvas).await?;
        if reading == Reading::default() {
            // What was said before it came was not said to it.
            reading.upto = canvas.rev();
            let kept = Batch::new(&self.because("join")).put(self.cursor(canvas.name()), &reading);
            self.store.commit(kept).await?;
        }
        self.attention.listen(&canvas.name().into(), reading);
        self.canvases.join(canvas.clone());
        self.listen(me, &canvas).await;
        Ok(())
    }

    pub(crate) async fn leave(&mut self, canvas: &Arc<str>) -> Result<(), LifeformError> {
        // What it is saying there is broken off.
        for thought in self.attention.thoughts_on(canvas) {
            self.break_off(thought, None, "it left").await?;
        }
        if let Some(reader) = self.readers.remove(canvas) {
            reader.abort();
        }
        self.attention.leave(canvas);
        self.canvases.leave(canvas);
        Ok(())
    }

    /// Messages that were being written when the last life ended and whose job is gone are marked so.
    async fn interrupt_orphans(&self, canvas: &Canvas, going_on: &BTreeMap<Arc<str>, Thought>) {
        let state = canvas.snapshot().state;
        let mut orphans: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        let is_home = canvas.name() == self.home();
        for topic in state.children("/topics").filter_map(|topic| topic["id"].as_str()) {
            for message in state.children(&format!("{}/messages", chat::topic_path(topic))) {
                let id = message["id"].as_str().unwrap_or_default();
                // Another lifeform's message is for that one to go on with.
                let sender = message["sender"].as_str().unwrap_or_default();
                let opened_at = message["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
                let is_of_before = self.restarted_at.zip(opened_at).is_some_and(|(start, opened)| opened <= start);
                let is_ours = sender == &*self.me.id.0 || (is_home && is_of_before && !sender.starts_with("lifeform:"));
                let is_open = message["status"] == "streaming" && is_ours;
                if is_open && !going_on.keys().any(|job| *id == format!("msg_{job}")) {
                    orphans.push((topic.into(), id.into()));
                }
            }
        }
        for (topic, id) in orphans {
            let reason = "the daemon stopped while this was being written".into();
            let op = chat::Op::Interrupt { topic, id, reason };
            let _ = canvas.apply(op, None, None, &self.because("restart")).await;
        }
    }

    // ---- hearing ----

    /// Takes in an entry of a canvas: what it says waits to be thought about, and may break off what is thought now.
    pub(crate) async fn hear(&mut self, canvas: &Arc<str>, entry: &Entry) -> Result<(), LifeformError> {
        self.attention.pass(canvas, entry.seq);
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(()) };
        let Some(op) = Op::of_entry(canvas.kind, entry) else { return Ok(()) };
        let source = format!("{}@{}", canvas.stream(), entry.seq).into();
        let heard = perception::perceive(&self.me.id, entry, op, &canvas.snapshot().state, source);
        let place = |topic| Place { canvas: canvas.name().into(), topic };
        match heard {
            Some(Heard::Said(topic, mut said)) => {
                let place = place(topic);
                if !self.attention.has(&place, said.rev) {
                    self.hear_of_goal(&place, &said).await?;
                    self.counts.heard(self.store.clock().now());
                    self.bear(&place, &mut said).await?;
                    self.attention.hear(place, said);
                }
            }
            Some(Heard::BrokenOff(topic, message)) => {
                let thought = self.attention.thought(&place(topic)).cloned();
                if let Some(thought) = thought.filter(|thought| thought.answer() == message) {
                    self.break_off(thought, None, "").await?;
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Lets readers go on that waited for room; `reader` waits with them if there is none.
    pub(crate) fn let_read_on(&mut self, reader: Option<oneshot::Sender<()>>) {
        self.held_readers.extend(reader);
        if !self.attention.is_full() {
            self.held_readers.drain(..).for_each(|reader| {
                let _ = reader.send(());
            });
        }
    }

    /// What something newer does to the thought of its topic.
    async fn bear(&mut self, place: &Place, said: &mut Said) -> Result<(), LifeformError> {
        let Some(thought) = self.attention.thought(place).cloned() else { return Ok(()) };
        let bearing = perception::bearing(said, &thought, self.speech(&thought));
        let is_torn = self.attention.is_torn(&place.canvas);
        match bearing {
            Bearing::Extends | Bearing::Redirects if is_torn => Ok(()),
            Bearing::Waits => Ok(()),
            Bearing::Extends => self.break_off(thought, Some(true), "more was said").await,
            Bearing::Redirects => self.break_off(thought, Some(false), "something more urgent was said").await,
            Bearing::Cancels => {
                said.to_answer = false;
                self.break_off(thought, None, "it was not wanted any more").await
            }
        }
    }

    fn speech(&self, thought: &Thought) -> Speech {
        let Place { canvas, topic } = &thought.perception.place;
        let state = self.canvases.get(canvas).map(|canvas| canvas.snapshot().state);
        let path = chat::message_path(topic, &thought.answer());
        match state.as_ref().and_then(|state| state.get(&path)).and_then(|message| message["status"].as_str()) {
            None => Speech::Silent,
            Some("streaming") => Speech::Speaking,
            Some(_) => Speech::Over,
        }
    }

    /// Breaks a thought off: for good, or to be begun anew with what is newer (`Some(true)`), or to be completed after it
    /// (`Some(false)`). That it is to be thought again is written before its job is stopped.
    async fn break_off(&mut self, thought: Thought, again: Option<bool>, why: &str) -> Result<(), LifeformError> {
        let place = thought.perception.place.clone();
        let reading = again.map(|anew| self.attention.reading_without(&thought, anew));
        if let Some(reading) = &reading {
            let origin = self.because(thought.perception.last().source.clone());
            self.store.commit(Batch::new(&origin).put(self.cursor(&place.canvas), reading)).await?;
        }
        match self.fascicles.cancel(&self.me, &thought.job).await {
            Ok(_) | Err(FascicleError::JobNotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.unwatch(&thought.job);
        let speech = self.speech(&thought);
        self.close_off(&thought, why).await;
        // It may have come to its end first; then there is nothing left to think.
        self.attention.give_up(&place, reading.filter(|_| speech != Speech::Over));
        Ok(())
    }

    /// A message that is being written and that nobody writes any more is marked so.
    async fn close_off(&self, thought: &Thought, why: &str) {
        let Place { canvas, topic } = &thought.perception.place;
        let Some(canvas) = self.canvases.get(canvas) else { return };
        let said = self.speaking.end(&thought.answer());
        if self.speech(thought) == Speech::Speaking {
            // What people saw of it stays.
            if let Some(content) = said.filter(|said| said.len() <= chat::CONTENT_BYTES_MAX) {
                let op = chat::Op::Checkpoint { topic: topic.clone(), id: thought.answer(), content };
                let _ = canvas.apply(op, None, None, &self.because(format!("job:{}", thought.job))).await;
            }
            // A reason is bounded, and an error may quote what a provider said.
            let reason: String = why.chars().take(240).collect();
            let op = chat::Op::Interrupt { topic: topic.clone(), id: thought.answer(), reason };
            let origin = self.because(format!("job:{}", thought.job));
            if let Err(error) = canvas.apply(op, None, None, &origin).await {
                tracing::warn!(%error, "a message that is broken off cannot be marked so");
            }
        }
    }

    pub(crate) async fn ended(&mut self, job: &Arc<str>, status: JobStatus) -> Result<(), LifeformError> {
        if self.jobs.remove(job).is_none() {
            return Ok(());
        }
        self.fail_goal(job).await;
        let Some(thought) = self.attention.release(job) else {
            // An errand: what nobody asked for just now is counted.
            if status != JobStatus::Completed {
                self.admit_schedule(job).await;
            }
            return self.count_unasked().await;
        };
        self.suspect(job, status).await?;
        if status == JobStatus::Completed {
            self.speaking.end(&thought.answer());
        }
        match status {
            JobStatus::Failed => self.admit_failure(&thought).await,
            JobStatus::Cancelled => self.close_off(&thought, "its job was cancelled").await,
            _ => {}
        }
        Ok(())
    }

    /// Jobs that did not come to their end in this life within the time that is given them are cancelled, and that is told.
    async fn give_up_what_is_stuck(&mut self) -> Result<(), LifeformError> {
        let patience = SignedDuration::from_secs(self.limits.stuck_s as i64);
        let now = self.store.clock().now();
        let stuck: Vec<Arc<str>> = self
            .jobs
            .iter()
            .filter(|(_, (_, since))| now.duration_since(*since) >= patience)
            .map(|(job, _)| job.clone())
            .collect();
        for job in stuck {
            match self.fascicles.cancel(&self.me, &job).await {
                Ok(_) | Err(FascicleError::JobNotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
            self.unwatch(&job);
            self.fail_goal(&job).await;
            if let Some(thought) = self.attention.release(&job) {
                self.admit(&thought, "it did not come to its end in time").await;
            }
        }
        Ok(())
    }

    /// An answer that failed is not left hanging.
    async fn admit_failure(&self, thought: &Thought) {
        let error = self.fascicles.job(&thought.job).await.ok().and_then(|head| head.error).unwrap_or_default();
        self.admit(thought, &error).await;
    }

    /// What was begun is marked as broken off, and what was not is said.
    async fn admit(&self, thought: &Thought, error: &str) {
        let job = &thought.job;
        tracing::warn!(lifeform = %self.head.id, %job, %error, "an answer failed");
        let Place { canvas, topic } = &thought.perception.place;
        match (self.speech(thought), self.canvases.get(canvas)) {
            (Speech::Speaking, _) => self.close_off(thought, error).await,
            (Speech::Silent, Some(canvas)) if thought.perception.to_answer() => {
                let error: String = error.chars().take(240).collect();
                let op = chat::Op::say(topic, thought.answer(), format!("I could not answer: {error}"), None);
                if let Err(error) = canvas.apply(op, None, None, &self.because(format!("job:{job}"))).await {
                    tracing::warn!(%error, "a failure cannot be shown");
                }
            }
            _ => {}
        }
    }

    // ---- looking after itself ----

    /// Intervenes when too much happens, and ends it when it is calm again; each step is written with what was counted.
    async fn look_after_itself(&mut self) -> Result<(), LifeformError> {
        let now = self.store.clock().now();
        let Some(next) = guard::judge(&self.head.guard, &mut self.counts, &self.limits, now) else { return Ok(()) };
        tracing::warn!(lifeform = %self.head.id, step = ?next.step, evidence = %next.evidence, "the guard intervenes");
        self.head.guard = next;
        if self.head.guard.step == Step::Stop {
            self.head.status = Status::Stopped;
        }
        self.keep(&self.because("guard"), "guard").await
    }

    /// Ends what the guard does.
    pub(crate) async fn calm(&mut self, origin: &Origin) -> Result<(), LifeformError> {
        (self.head.guard, self.counts) = (Guard::default(), Counts::default());
        self.keep(origin, "calmed").await
    }

    /// In quarantine it says so, once in each topic in which somebody waits.
    async fn say_that_it_is_quarantined(&self) -> Result<(), LifeformError> {
        let since = self.head.guard.since.unwrap_or_default();
        let until = since + SignedDuration::from_secs(self.limits.quarantine_s.into());
        let content = format!("Too much came at once, so I answer nothing until {until}. An operator can end that.");
        let name = format!("quarantine_{}", since.as_second());
        let mut told: BTreeSet<Place> = BTreeSet::new();
        while let Some(next) = self.attention.next(|place| !told.contains(place)) {
            if next.perception.to_answer() {
                self.say_by_reflex(&next.perception, &name, content.clone(), None).await?;
            }
            told.insert(next.perception.place);
        }
        Ok(())
    }

    /// What it has spent so far on what nobody asked for just now.
    async fn count_unasked(&mut self) -> Result<(), LifeformError> {
        let report = spending::report(&self.store, &self.fascicles, &self.head.id).await?;
        let unasked = report.by.get("goal").into_iter().flat_map(|goals| goals.values());
        let tokens = unasked.map(|tally| tally.charged.tokens).sum();
        self.counts.spent_unasked(tokens, self.store.clock().now());
        Ok(())
    }

    /// A memory on which answers fail again and again, while others succeed, is set apart.
    async fn suspect(&mut self, job: &Arc<str>, status: JobStatus) -> Result<(), LifeformError> {
        match status {
            JobStatus::Failed => {
                for concept in trace::recalled_by(&self.store, job).await? {
                    let (failures, others_succeed) = self.suspected.entry(concept.clone()).or_default();
                    *failures += 1;
                    if *failures >= self.limits.poison_after && *others_succeed {
                        self.suspected.remove(&concept);
                        tracing::warn!(lifeform = %self.head.id, %concept, "a memory is set apart");
                        let origin = self.because(format!("job:{job}"));
                        self.memory.set_apart(&concept, &origin).await?;
                        let told = serde_json::json!({"what": "memory set apart", "concept": concept, "failures": self.limits.poison_after});
                        let told = Batch::new(&origin).append(format!("trace:{}", self.head.id), "guard", &told);
                        self.store.commit(told).await?;
                    }
                }
                // Where everything fails it is no memory's fault, and what is remembered of that is bounded.
                if self.suspected.len() > SUSPECTED_MAX {
                    self.suspected.clear();
                }
            }
            JobStatus::Completed if !self.suspected.is_empty() => {
                for concept in trace::recalled_by(&self.store, job).await? {
                    self.suspected.remove(&concept);
                }
                self.suspected.values_mut().for_each(|(_, others_succeed)| *others_succeed = true);
            }
            _ => {}
        }
        Ok(())
    }

    // ---- taking the initiative ----

    /// Somebody else changed the agenda.
    pub(crate) async fn replan(&self) -> Result<(), LifeformError> {
        self.plans.reload().await
    }

    /// Begins what is due, as far as the means go. With nothing due this reads memory only.
    pub(crate) async fn take_initiative(&mut self, me: &Mailbox) -> Result<(), LifeformError> {
        let now = self.store.clock().now();
        let background = means(self.head.mode).background;
        let due = self.plans.agenda().due(self.plans.initiative(), now, background);
        if due.is_empty() || self.head.guard.step >= Step::Inhibit {
            return Ok(());
        }
        let means = self.feel().await?;
        for act in due {
            let room = (0..=self.jobs.len()).fold(Amount::default(), |sum, _| sum.plus(self.need(means)));
            if !self.free().covers(room) {
                continue;
            }
            match self.begin(me, &act, means).await {
                Err(LifeformError::Fascicle(FascicleError::Overloaded)) => break,
                Err(LifeformError::Fascicle(error)) if !is_passing(&error) => {
                    tracing::error!(lifeform = %self.head.id, %error, "what is due cannot be begun");
                }
                begun => begun?,
            }
        }
        Ok(())
    }

    /// Starts the job that does something by itself; its start and its place on the agenda share a commit.
    async fn begin(&mut self, me: &Mailbox, act: &Act, means: Means) -> Result<(), LifeformError> {
        let now = self.store.clock().now();
        let Some((job, errand)) = self.plans.agenda().errand(act, &self.head.id, now) else { return Ok(()) };
        let origin = self.because(act.reference());
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle: self.head.definition.pursue.variant(self.head.mode).clone(),
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(ERRAND, errand, origin.cause.clone())],
            tier: Some(means.tier),
            priority: Priority::Low,
            ..JobOrder::default()
        };
        if self.counts.knows_nothing_unasked() {
            // What is spent from here on is counted.
            self.count_unasked().await?;
        }
        let mut begun = self.plans.changed(|agenda| agenda.begin(act, &job, now));
        let plans = self.plans.clone();
        let hands = self.hands.clone();
        let started = self.fascicles.start(&origin, order, hands, |batch| plans.with(batch, &mut begun)).await;
        self.plans.reload().await?;
        match started {
            Ok(_) => {
                self.counts.act(now);
                self.watch(me, job);
            }
            // The agenda was changed meanwhile: there is a next beat.
            Err(FascicleError::Store(StoreError::Conflict { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Begins a task of maintenance; answers its job.
    pub(crate) async fn maintain(
        &mut self,
        me: &Mailbox,
        task: Task,
        origin: &Origin,
    ) -> Result<Arc<str>, LifeformError> {
        let job: Arc<str> =
            format!("{}.system.{}.{}", self.head.id, task.as_str(), uuid::Uuid::now_v7().simple()).into();
        let errand = serde_json::json!({"maintenance": task});
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle: "maintenance".into(),
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(ERRAND, errand, origin.cause.clone())],
            priority: Priority::Low,
            ..JobOrder::default()
        };
        self.fascicles.start(origin, order, self.hands.clone(), |batch| batch).await?;
        self.watch(me, job.clone());
        Ok(job)
    }

    /// What is said in the topic of a goal is about it.
    async fn hear_of_goal(&self, place: &Place, said: &Said) -> Result<(), LifeformError> {
        let goal = place.topic.strip_prefix("goal_").filter(|_| *place.canvas == *self.home());
        let Some(goal) = goal.filter(|goal| self.plans.agenda().goals.contains_key(*goal)) else { return Ok(()) };
        let origin = self.because(said.source.clone());
        let heard = self.plans.change(&origin, "heard", |agenda, now| {
            Ok(agenda.hear(goal, &said.sender, &said.content, &said.source, now))
        });
        match heard.await {
            // An agenda that is full takes no more notes.
            Err(LifeformError::Refused(refusal)) => {
                tracing::warn!(lifeform = %self.head.id, %refusal, "what was said of a goal is not noted");
                Ok(())
            }
            heard => heard.map(drop),
        }
    }

    /// What was scheduled and failed is told, since it does not come again by itself.
    async fn admit_schedule(&self, job: &Arc<str>) {
        let prefix = format!("{}.schedule.", self.head.id);
        let Some(id) = job.strip_prefix(&prefix).and_then(|rest| rest.split('.').next()) else { return };
        let Some(canvas) = self.canvases.get(&self.home()) else { return };
        let error = self.fascicles.job(job).await.ok().and_then(|head| head.error).unwrap_or_default();
        let error: String = error.chars().take(240).collect();
        let (topic, origin): (Arc<str>, Origin) = (format!("schedule_{id}").into(), self.because(format!("job:{job}")));
        let open =
            chat::Op::TopicCreate { id: topic.clone(), title: format!("Schedule {id}"), turns: chat::Turns::default() };
        let say =
            chat::Op::say(&topic, format!("msg_{job}").into(), format!("What was scheduled failed: {error}"), None);
        for op in [open, say] {
            match canvas.apply(op, None, None, &origin).await {
                Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => {}
                Err(error) => return tracing::warn!(%error, "that a schedule failed cannot be told"),
            }
        }
    }

    /// A job that ended without an outcome leaves its goal blocked.
    async fn fail_goal(&self, job: &Arc<str>) {
        if !self.plans.agenda().goals.values().any(|goal| goal.job.as_ref() == Some(job)) {
            return;
        }
        let error = self.fascicles.job(job).await.ok().and_then(|head| head.error);
        let error = error.unwrap_or_else(|| "it came to no outcome".to_owned());
        let origin = self.because(format!("job:{job}"));
        let failed = self.plans.change(&origin, "failed", |agenda, now| {
            agenda.fail(job, &error, &self.me.id, now);
            Ok(())
        });
        if let Err(error) = failed.await {
            tracing::warn!(lifeform = %self.head.id, %job, %error, "that a goal failed cannot be noted");
        }
    }

    // ---- thinking ----

    /// Answers what waits, as far as the means go; in a storm only from beat to beat.
    pub(crate) async fn attend(&mut self, me: &Mailbox, by_beat: bool) -> Result<(), LifeformError> {
        self.look_after_itself().await?;
        match self.head.guard.step {
            Step::Calm => {}
            Step::Coalesce | Step::Inhibit if by_beat => {}
            Step::Quarantine => return self.say_that_it_is_quarantined().await,
            _ => return Ok(()),
        }
        let means = self.feel().await?;
        let needed = self.need(means);
        // Topics in which it is not its turn.
        let mut not_now: BTreeSet<Place> = BTreeSet::new();
        while let Some(mut next) = self.attention.next(|place| !not_now.contains(place)) {
            next.perception.history = means.history;
            let to_answer = next.perception.to_answer();
            if to_answer && self.head.status == Status::Dormant {
                self.say_that_it_rests(&next.perception).await?;
                not_now.insert(next.perception.place);
                continue;
            }
            // Each answer under way may still draw as much as one more would.
            let room = (0..=self.jobs.len()).fold(Amount::default(), |sum, _| sum.plus(needed));
            if to_answer && !self.free().covers(room) {
                not_now.insert(next.perception.place);
                continue;
            }
            if to_answer && self.head.mode == Mode::Eco && self.head.in_want {
                self.say_that_it_is_in_want(&next.perception).await?;
            }
            let place = next.perception.place.clone();
            match self.think(me, next, means).await {
                // There is a next beat.
                Err(LifeformError::Fascicle(FascicleError::Overloaded)) => break,
                // What cannot be begun as it is keeps nothing else from being thought about.
                Err(LifeformError::Fascicle(error)) if !is_passing(&error) => {
                    tracing::error!(lifeform = %self.head.id, %error, "a thought cannot be begun");
                    not_now.insert(place);
                }
                Ok(false) => drop(not_now.insert(place)),
                begun => {
                    begun?;
                    self.counts.act(self.store.clock().now());
                }
            }
        }
        Ok(())
    }

    /// Looks at the balance and settles into a mode; what changed is written.
    async fn feel(&mut self) -> Result<Means, LifeformError> {
        let now = self.store.clock().now();
        let (was, status) = (self.head.mode, self.head.status);
        let account = self.store.account(&self.head.id).unwrap_or_default();
        let fed = Fed::of(&account, now);
        let metabolism = &self.head.definition.metabolism;
        let now_in = mode(fed, metabolism, &self.head.policy, was, now);
        let was_hungry = if self.head.in_want { Mode::Eco } else { Mode::Standard };
        let in_want = mode(fed, metabolism, &Policy::default(), was_hungry, now) == Mode::Eco;
        let wanted = std::mem::replace(&mut self.head.in_want, in_want);
        self.head.mode = now_in;
        self.head.wants += u64::from(in_want && !wanted);
        let means = means(now_in);
        // Holds of answers under way come back when they are settled; only a lifeform at rest can starve.
        let starving = !self.free().covers(self.need(means)) && self.jobs.is_empty();
        self.head.status = if starving { Status::Dormant } else { Status::Running };
        if self.head.status != status || now_in != was || wanted != in_want {
            self.head.rests += u64::from(starving && status != Status::Dormant);
            self.keep(&self.because("metabolism"), "metabolism").await?;
        }
        Ok(means)
    }

    fn free(&self) -> Amount {
        self.store.account(&self.head.id).map(|account| account.available()).unwrap_or_default()
    }

    /// What must be free before an answer is begun, at the price of the model that would give it.
    fn need(&self, means: Means) -> Amount {
        let usage = Usage {
            prompt_tokens: REPLY_PROMPT_TOKENS,
            completion_tokens: means.output_tokens_max.into(),
            ..Usage::default()
        };
        let mut need = self.fascicles.price(means.tier, usage);
        need.tokens = need.tokens.max(self.head.definition.metabolism.rest_below_tokens);
        need
    }

    /// The reflex of a starving lifeform: it needs no model to say that it rests, once a rest.
    async fn say_that_it_rests(&self, perception: &Perception) -> Result<(), LifeformError> {
        let content = format!(
            "I am resting: what I have left ({}) does not pay for an answer. A top-up wakes me, and then I will answer.",
            self.free()
        );
        let answered = Some(perception.last().message.clone());
        self.say_by_reflex(perception, &format!("{}", self.head.rests), content, answered).await
    }

    /// Tells a person, once in each time of want, why answers are shorter now. It needs no model.
    async fn say_that_it_is_in_want(&self, perception: &Perception) -> Result<(), LifeformError> {
        let content = "I am running low, so my answers are shorter for now. A top-up restores them.".to_owned();
        self.say_by_reflex(perception, &format!("want_{}", self.head.wants), content, None).await
    }

    /// Says something without a model; `name` once in a topic.
    async fn say_by_reflex(
        &self,
        perception: &Perception,
        name: &str,
        content: String,
        reply_to: Option<Arc<str>>,
    ) -> Result<(), LifeformError> {
        let Place { canvas, topic } = &perception.place;
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(()) };
        let id: Arc<str> = format!("msg_resting_{}_{name}_{topic}", self.head.id).into();
        let op = chat::Op::say(topic, id, content, reply_to);
        match canvas.apply(op, None, None, &self.because(perception.last().source.clone())).await {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Starts the job that thinks about something; its start and how far the canvas is read share a commit. Answers whether
    /// it was started: where lifeforms speak one at a time, it may not be its turn.
    async fn think(&mut self, me: &Mailbox, next: Next, means: Means) -> Result<bool, LifeformError> {
        let reading = self.attention.reading_with(&next);
        let Next { mut perception, extended, .. } = next;
        self.see_as_it_stands(&mut perception);
        let origin = Origin::new(self.me.clone(), perception.cause());
        let job = self.job_name(&perception);
        let definition = &self.head.definition;
        let skill = match (perception.to_answer(), self.head.guard.step) {
            (false, _) => &definition.heed,
            (true, Step::Inhibit) => &definition.inhibit,
            (true, _) => &definition.reply,
        };
        let content = serde_json::to_value(&perception).unwrap_or_default();
        let order = JobOrder {
            id: Some(job.clone()),
            fascicle: skill.variant(self.head.mode).clone(),
            owner: self.owner().into(),
            account: self.head.id.clone(),
            events: vec![Event::json(PERCEPTION, content, origin.cause.clone())],
            tier: Some(means.tier),
            output_tokens_max: Some(means.output_tokens_max),
            ..JobOrder::default()
        };
        let thought = Thought { job: job.clone(), perception, extended };
        if !self.take_the_floor(&thought, &origin).await? {
            return Ok(false);
        }
        let cursor = self.cursor(&thought.perception.place.canvas);
        let kept = reading.clone();
        let started = self.fascicles.start(&origin, order, self.hands.clone(), |batch| batch.put(cursor, &kept)).await;
        if let Err(error) = started {
            self.close_off(&thought, "it could not be begun").await;
            return Err(error.into());
        }
        self.attention.take_up(thought, reading);
        self.watch(me, job);
        Ok(true)
    }

    /// `{lifeform}.{topic}.r{rev}`; on a canvas of another it is named, too, and so is the number of a later try.
    fn job_name(&self, perception: &Perception) -> Arc<str> {
        let Place { canvas, topic } = &perception.place;
        let rev = perception.said.iter().map(|said| said.rev).max().unwrap_or(0);
        let mut name = format!("{}.{topic}.", self.head.id);
        if **canvas != *self.home() {
            name.push_str(&Hash::of(canvas.as_bytes()).hex()[..8]);
            name.push('.');
        }
        name.push_str(&format!("r{rev}"));
        if perception.tries > 0 {
            name.push_str(&format!("x{}", perception.tries));
        }
        name.into()
    }

    /// Messages as they are now: they may have been amended while they waited.
    fn see_as_it_stands(&self, perception: &mut Perception) {
        let Place { canvas, topic } = &perception.place;
        let Some(canvas) = self.canvases.get(canvas) else { return };
        let state = canvas.snapshot().state;
        for said in &mut perception.said {
            let message = state.get(&chat::message_path(topic, &said.message));
            if let Some(("final", content)) =
                message.and_then(|message| Some((message["status"].as_str()?, message["content"].as_str()?)))
            {
                said.content = content.to_owned();
            }
        }
    }

    /// Where lifeforms speak one at a time, an answer is opened before it is thought: the canvas lets one do so.
    async fn take_the_floor(&self, thought: &Thought, origin: &Origin) -> Result<bool, LifeformError> {
        let Perception { place: Place { canvas, topic }, resumes, .. } = &thought.perception;
        let Some(canvas) = self.canvases.get(canvas) else { return Ok(false) };
        let is_in_turns = {
            let state = canvas.snapshot().state;
            state.get(&chat::topic_path(topic)).is_some_and(|topic| topic["turns"] == "one_at_a_time")
        };
        if !is_in_turns || !thought.perception.to_answer() {
            return Ok(true);
        }
        let reply_to = Some(thought.perception.last().message.clone());
        let supplements = resumes.clone();
        let op =
            chat::Op::Open { topic: topic.clone(), id: thought.answer(), reply_to, supplements, answers: Vec::new() };
        match canvas.apply(op, None, None, origin).await {
            Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => Ok(true),
            Err(LifeformError::Refused(Refusal::State(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells the lifeform when a job ends.
    fn watch(&mut self, me: &Mailbox, job: Arc<str>) {
        let mut follow = self.store.follow(format!("job:{job}").into(), 0);
        let (me, name) = (me.clone(), job.clone());
        let watcher = tokio::spawn(async move {
            while let Some(entry) = next_of(&mut follow).await {
                if let Ok(Fact::Ended { status, .. }) = entry.decode::<Fact>() {
                    let _ = me.cast(Msg::Ended(name, status));
                    break;
                }
            }
        });
        self.jobs.insert(job, (watcher, self.store.clock().now()));
    }

    fn unwatch(&mut self, job: &str) {
        if let Some((watcher, _)) = self.jobs.remove(job) {
            watcher.abort();
        }
    }

    /// Writes the head and why it changed.
    pub(crate) async fn keep(&mut self, origin: &Origin, what: &str) -> Result<(), LifeformError> {
        let Head { status, mode, policy, guard, .. } = &self.head;
        let body =
            json(&serde_json::json!({"what": what, "status": status, "mode": mode, "policy": policy, "guard": guard}));
        let mut batch =
            Batch::new(origin).put_expecting(Head::key(&self.head.id), Expect::Version(self.version), &self.head);
        batch.push(nexus::store::Op::Append {
            stream: format!("trace:{}", self.head.id).into(),
            expect: None,
            kind: "lifeform".into(),
            data: body,
        });
        self.version = match self.store.commit(batch).await {
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

/// The next entry; a fault of the disk passes or is told again.
async fn next_of(follow: &mut Follow) -> Option<Entry> {
    loop {
        match follow.next().await {
            Ok(entry) => return Some(entry),
            Err(StoreError::Closed) => return None,
            Err(error) => {
                tracing::error!(%error, "a journal cannot be read, trying again");
                tokio::time::sleep(READ_AGAIN).await;
            }
        }
    }
}

/// Whether the same may succeed later, as it is.
fn is_passing(error: &FascicleError) -> bool {
    !matches!(error, FascicleError::TooLarge { .. } | FascicleError::Invalid(_) | FascicleError::NotFound(_))
        && !matches!(error, FascicleError::Store(StoreError::TooLarge { .. }))
}
