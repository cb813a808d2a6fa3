//! The state of a running lifeform. It reads its canvases, decides what it can afford, starts the fascicles that
//! answer, interrupts a reply for newer messages, and rests when it cannot pay.

mod adding;
mod approvals;
mod dispatch;
mod forms;
mod goals;
mod ingest;
mod meetings;
mod night;
mod observer;
mod recovery;
mod reflexes;
mod scheduler;
mod supply;
mod upkeep;
mod watchdog;

pub(crate) use approvals::in_code;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fascicles::run::{Fact, Status as JobStatus};
use fascicles::{FascicleError, Fascicles, Toolbox};
use store::{Cause, Entry, Expect, Follow, Hash, Key, Origin, Principal, Store, StoreError, Timestamp};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::LifeformError;
use crate::agenda_store::AgendaStore;
use crate::attention::{Attention, reading_key};
use crate::canvas::CHAT;
use crate::guard::{Counts, GuardLimits};
use crate::life::{Body, Head, Mailbox, Msg};
use crate::memory::Memory;
use crate::perception::{PassLog, Rules, ThreadRef};
use crate::shared_knowledge::KnowledgeAccess;
use crate::tools::{Canvases, LifeformToolbox, Speaking};

/// The pause before an unreadable journal is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The state of a running lifeform.
pub(crate) struct LifeformState {
    pub(crate) head: Head,
    version: u64,
    restarted_at: Option<Timestamp>,
    store: Store,
    fascicles: Fascicles,
    me: Principal,
    canvases: Canvases,
    toolbox: Arc<dyn Toolbox>,
    /// The same toolbox, for what is settled without a job and for the tools of the mind.
    pub(crate) tools: Arc<LifeformToolbox>,
    speaking: Speaking,
    attention: Attention,
    /// The reader tasks of the canvases.
    readers: BTreeMap<Arc<str>, JoinHandle<()>>,
    /// The running jobs, each with the task that waits for its end, and its start time.
    jobs: BTreeMap<Arc<str>, (JoinHandle<()>, Timestamp)>,
    /// The readers that wait for room in the queue.
    held_readers: Vec<oneshot::Sender<()>>,
    plans: AgendaStore,
    memory: Memory,
    knowledge: KnowledgeAccess,
    limits: GuardLimits,
    counts: Counts,
    /// The goals and schedules of participants. Finished ones stay as long as their spending is counted.
    asked: BTreeSet<String>,
    /// The number of failed answers per memory; `true` if other answers have succeeded since.
    suspected: BTreeMap<String, (u32, bool)>,
    /// The version of the marker that says that the lifeform is awake.
    awake: u64,
    asleep: Arc<AtomicBool>,
    /// The rules of perception, and the changes that they passed over.
    perceiving: Rules,
    /// The states of meetings that stand in the mind.
    recorded: BTreeMap<ThreadRef, Hash>,
    passed: PassLog,
    /// The running compactions by job, and the topics whose compaction failed; `true` marks those by extract.
    compacting: BTreeMap<Arc<str>, (ThreadRef, bool)>,
    not_compacted_until: BTreeMap<(ThreadRef, bool), Timestamp>,
    /// The jobs that wait for input.
    waits: BTreeSet<Arc<str>>,
    /// The time of the latest work.
    busy_at: Timestamp,
    /// The number of skipped heartbeats.
    beats: u32,
    /// The time at which a deadline last interrupted an answer.
    put_off_at: Option<Timestamp>,
}

impl LifeformState {
    pub(crate) fn new(body: Body) -> Self {
        let Body {
            store,
            fascicles,
            canvases: taken_part_in,
            memory,
            knowledge,
            plans,
            guard,
            head,
            version,
            asleep,
            passed,
            restarted_at,
        } = body;
        let me = head.principal();
        let definition = &head.definition;
        let canvases = Canvases::default();
        taken_part_in.into_iter().for_each(|canvas| canvases.join(canvas));
        let speaking = Speaking::default();
        let toolbox = LifeformToolbox {
            speaking: speaking.clone(),
            canvases: canvases.clone(),
            memory: memory.clone(),
            knowledge: knowledge.clone(),
            plans: plans.clone(),
            neurons: fascicles.neurons().clone(),
            home: format!("{}/{CHAT}", head.id).into(),
            me: me.clone(),
            name: definition.name.clone(),
            persona: definition.persona_text(),
            unasked_per_day: definition.initiative.unasked_per_day,
        };
        let (busy_at, tools) = (store.clock().now(), Arc::new(toolbox));
        Self {
            head,
            version,
            restarted_at,
            store,
            fascicles,
            me,
            canvases,
            toolbox: tools.clone(),
            tools,
            speaking,
            attention: Attention::default(),
            readers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            held_readers: Vec::new(),
            plans,
            memory,
            knowledge,
            limits: guard,
            counts: Counts::default(),
            asked: BTreeSet::new(),
            suspected: BTreeMap::new(),
            awake: 0,
            asleep,
            perceiving: Rules::default(),
            recorded: BTreeMap::new(),
            passed,
            compacting: BTreeMap::new(),
            not_compacted_until: BTreeMap::new(),
            waits: BTreeSet::new(),
            busy_at,
            beats: 0,
            put_off_at: None,
        }
    }

    fn owner(&self) -> String {
        format!("lifeform:{}", self.head.id)
    }

    fn because(&self, why: impl Into<Arc<str>>) -> Origin {
        Origin::new(self.me.clone(), Cause::of(why))
    }

    /// Returns the key of the read position of a canvas.
    fn cursor(&self, canvas: &str) -> Key {
        reading_key(&self.head.id, canvas)
    }

    /// Returns the name of the chat canvas that the lifeform has from birth.
    fn home(&self) -> String {
        format!("{}/{CHAT}", self.head.id)
    }

    pub(crate) async fn ended(&mut self, me: &Mailbox, job: &Arc<str>, status: JobStatus) -> Result<(), LifeformError> {
        if self.jobs.remove(job).is_none() {
            return Ok(());
        }
        if self.fascicles.job(job).await.is_ok_and(|head| !head.status.is_final()) {
            // The job was resumed before its end was processed.
            self.watch(me, job.clone());
            return Ok(());
        }
        self.waits.remove(job);
        self.fail_goal(job, watchdog::NO_OUTCOME).await;
        let Some(thought) = self.attention.release(job) else {
            // The reply was resumed while the lifeform processed another thought in this topic.
            if status != JobStatus::Completed
                && let Some(thought) = self.thought_of(job).await?
            {
                self.close_off(&thought, "it failed again").await;
                return Ok(());
            }
            // A job without a present request: its spending is counted.
            let is_compaction = self.compacted(job, status);
            if status != JobStatus::Completed && !is_compaction {
                self.admit_schedule(job).await;
            }
            self.night_job_ended(me, job).await?;
            return self.count_unasked().await;
        };
        self.suspect(job, status).await?;
        if status == JobStatus::Completed {
            self.speaking.end(&thought.answer());
            self.compact(me, &thought).await?;
            self.observe(&thought).await?;
        }
        match status {
            JobStatus::Failed => self.admit_failure(&thought).await,
            JobStatus::Cancelled => self.close_off(&thought, "its job was cancelled").await,
            _ => {}
        }
        Ok(())
    }

    /// Watches a failed job that was resumed. Newer messages can again interrupt its answer.
    pub(crate) async fn take_up_again(&mut self, me: &Mailbox, job: Arc<str>) -> Result<(), LifeformError> {
        // The job may have ended again in the meantime.
        if self.jobs.contains_key(&job) || self.fascicles.job(&job).await.is_ok_and(|head| head.status.is_final()) {
            return Ok(());
        }
        if let Some(thought) = self.thought_of(&job).await?
            && self.attention.thought(&thought.perception.place).is_none()
        {
            self.attention.occupy(thought);
        }
        self.watch(me, job);
        Ok(())
    }

    /// Notifies the lifeform when a job ends. For a job that failed and was resumed, an earlier end in the journal does
    /// not count.
    fn watch(&mut self, me: &Mailbox, job: Arc<str>) {
        let mut follow = self.store.follow(format!("job:{job}").into(), 0);
        let (me, name, fascicles) = (me.clone(), job.clone(), self.fascicles.clone());
        let watcher = tokio::spawn(async move {
            while let Some(entry) = next_of(&mut follow).await {
                if !Fact::ends_or_waits(&entry.data) {
                    continue;
                }
                match entry.decode::<Fact>() {
                    Ok(Fact::Ended { status, .. }) => {
                        let now = fascicles.job(&name).await.map_or(status, |head| head.status);
                        if now.is_final() {
                            let _ = me.cast(Msg::Ended(name, now));
                            break;
                        }
                    }
                    Ok(Fact::Paused { .. } | Fact::Answered { .. }) => drop(me.cast(Msg::Waits(name.clone()))),
                    _ => {}
                }
            }
        });
        self.jobs.insert(job, (watcher, self.store.clock().now()));
    }

    fn unwatch(&mut self, job: &str) {
        self.waits.remove(job);
        if let Some((watcher, _)) = self.jobs.remove(job) {
            watcher.abort();
        }
    }

    /// Stores a changed head with the reason for the change, and makes it the head of this lifeform.
    pub(crate) async fn keep(&mut self, head: Head, origin: &Origin, what: &str) -> Result<(), LifeformError> {
        loop {
            let batch = head.change(Expect::Version(self.version), origin, what);
            match self.store.commit(batch).await {
                Ok(receipt) => {
                    (self.version, self.head) = (receipt.versions[0], head);
                    return Ok(());
                }
                // Only this actor writes the head, so a write that reported a failure had succeeded.
                Err(StoreError::Conflict { found, .. }) => self.version = found,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the next entry. A disk failure is retried or reported elsewhere.
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

/// Returns `true` if a retry may succeed.
fn is_passing(error: &FascicleError) -> bool {
    !matches!(error, FascicleError::TooLarge { .. } | FascicleError::Invalid(_) | FascicleError::NotFound(_))
        && !matches!(error, FascicleError::Store(StoreError::TooLarge { .. }))
}
