//! Waking and resting: a lifeform resumes its unfinished work when it wakes, and leaves memory when it has nothing to
//! do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fascicles::run::{Fact, Status as JobStatus};
use jiff::SignedDuration;
use store::{Batch, Entry, Expect, Kind, Origin, StoreError};
use tokio::task::JoinHandle;

use super::LifeformState;
use crate::LifeformError;
use crate::attention::{BrokenOff, Reading};
use crate::canvas::chat::{MessageStatus, MessageView, TopicView};
use crate::canvas::{Canvas, OPS_AT_ONCE, Op, WriteRequest, chat};
use crate::life::{Head, Mailbox, Status};
use crate::lifeforms::members_under;
use crate::perception::{ActiveReply, Perception, ThreadRef};
use crate::tools::PERCEPTION;
use crate::wake_queue::WakeQueue;

/// The maximum number of markers of unfinished jobs that are read on waking.
const UNFINISHED_MAX: usize = 1024;
/// The maximum number of topics of a canvas that are examined on waking.
const TOPICS_LOOKED_AT: usize = 64;

impl LifeformState {
    /// Resumes unfinished jobs first, and then each canvas from its read position.
    pub(crate) async fn wake(&mut self, me: &Mailbox) -> Result<(), LifeformError> {
        // A lifeform whose process dies while it is awake is woken when the daemon starts.
        let mark = Batch::new(&self.because("wake")).put(WakeQueue::awake(&self.head.id), &self.head.id);
        self.awake = self.store.commit(mark).await?.versions[0];
        if !matches!(self.head.status, Status::Running | Status::Dormant) {
            let head = Head { status: Status::Running, ..self.head.clone() };
            self.keep(head, &Origin::system("wake"), "woke").await?;
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
            // A reply that was interrupted before the process ended is not continued. It is restarted, or completed
            // later.
            for BrokenOff { thought, .. } in &reading.again {
                if thoughts.remove(&thought.job).is_some() {
                    self.fascicles.cancel(&self.me, &thought.job).await?;
                }
            }
            self.attention.listen(&canvas.name().into(), reading);
            self.interrupt_orphans(&canvas, &thoughts).await;
            self.admit_what_failed(&canvas).await?;
        }
        self.fascicles.resume(&self.owner(), &self.toolbox).await?;
        // These jobs of goals ended while the lifeform was not running.
        let agenda = self.plans.agenda();
        let gone = agenda.goals.values().filter_map(|goal| goal.job.as_ref()).filter(|job| !unfinished.contains(job));
        for job in gone {
            self.fail_goal(job, super::watchdog::NO_OUTCOME).await;
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
        self.resume_night(me).await?;
        self.plan_upkeep().await
    }

    pub(super) async fn unfinished(&self) -> Result<Vec<Arc<str>>, LifeformError> {
        let prefix = format!("{}/", self.owner());
        let marks = self.store.documents::<Arc<str>>(Kind::Running, &prefix, UNFINISHED_MAX).await?;
        Ok(marks.into_iter().filter(|(mark, _)| mark.starts_with(&prefix)).map(|(_, job)| job.value).collect())
    }

    /// Returns the thought of a job from an earlier process, if it is a reply.
    pub(super) async fn thought_of(&self, job: &Arc<str>) -> Result<Option<ActiveReply>, LifeformError> {
        let accepted = self.store.entries(&format!("job:{job}").into(), 0, 1).await?;
        let Some(Ok(Fact::Accepted { events, .. })) = accepted.first().map(Entry::decode::<Fact>) else {
            return Ok(None);
        };
        let perceived = events.into_iter().find(|event| &*event.role == PERCEPTION);
        let perception = perceived.and_then(|event| serde_json::from_value::<Perception>(event.content).ok());
        Ok(perception.map(|perception| ActiveReply { job: job.clone(), perception, extended: 0 }))
    }

    /// Returns the read position of a canvas, without replies that were completed after all.
    pub(super) async fn reading_of(&self, canvas: &Canvas) -> Result<Reading, LifeformError> {
        let kept = self.store.document::<Reading>(&self.cursor(canvas.name())).await?;
        let mut reading = kept.map(|kept| kept.value).unwrap_or_default();
        let mut again = Vec::new();
        for broken in reading.again {
            let ThreadRef { topic, .. } = &broken.thought.perception.place;
            let state = canvas.snapshot().state;
            let answer = chat::message_in(&state, topic, &broken.thought.answer());
            let is_said = answer.is_some_and(|answer| answer.status() == MessageStatus::Final);
            let head = self.fascicles.job(&broken.thought.job).await;
            if !is_said && !head.is_ok_and(|head| head.status == JobStatus::Completed) {
                again.push(broken);
            }
        }
        reading.again = again;
        Ok(reading)
    }

    /// Reports answers that failed when the last process ended. The newest message of each topic shows this.
    async fn admit_what_failed(&self, canvas: &Canvas) -> Result<(), LifeformError> {
        let state = canvas.snapshot().state;
        for topic in chat::topics_in(&state).rev().map(TopicView::id).take(TOPICS_LOOKED_AT) {
            let newest = chat::messages_in(&state, topic).next_back().filter(|newest| !newest.is_by(&self.me.id.0));
            let Some(rev) = newest.and_then(MessageView::rev) else { continue };
            let place = ThreadRef { canvas: canvas.name().into(), topic: topic.into() };
            let job = self.job_at(&place, rev, 0);
            let Some(thought) = self.thought_of(&job).await? else { continue };
            if self.fascicles.job(&job).await.is_ok_and(|head| head.status == JobStatus::Failed) {
                self.admit_failure(&thought).await;
            }
        }
        Ok(())
    }

    /// Marks messages as interrupted that were being written when the last process ended and whose jobs no longer
    /// exist.
    pub(super) async fn interrupt_orphans(&self, canvas: &Canvas, going_on: &BTreeMap<Arc<str>, ActiveReply>) {
        let state = canvas.snapshot().state;
        let mut orphans: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        let is_home = canvas.name() == self.home();
        let guests = self.guests_of(canvas).await;
        let begun_at = self.restarted_at.max(self.head.imported_at);
        for topic in chat::topics_in(&state).map(TopicView::id) {
            for message in chat::messages_in(&state, topic) {
                let (id, sender) = (message.id(), message.sender());
                // Another member continues its own message, as long as it is a member.
                let is_of_before = begun_at.zip(message.at()).is_some_and(|(begun, opened)| opened <= begun);
                let is_nobodys = match sender.strip_prefix("lifeform:") {
                    None => is_home && is_of_before,
                    Some(guest) => is_of_before && guests.as_ref().is_some_and(|guests| !guests.contains(guest)),
                };
                let is_ours = sender == &*self.me.id.0 || is_nobodys;
                if message.is_streaming() && is_ours && !going_on.keys().any(|job| *id == format!("msg_{job}")) {
                    orphans.push((topic.into(), id.into()));
                }
            }
        }
        let marks = orphans.into_iter().map(|(topic, id)| {
            let reason = "its author stopped before its end".into();
            Op::from(chat::Op::Interrupt { topic, id, reason })
        });
        let marks: Vec<Op> = marks.collect();
        for some in marks.chunks(OPS_AT_ONCE) {
            let origin = Origin::system("restart");
            if canvas.write(WriteRequest::Ops(some.to_vec()), None, None, &origin).await.is_ok() {
                continue;
            }
            // One of them may have been completed in the meantime.
            for one in some {
                let _ = canvas.apply(one.clone(), None, None, &origin).await;
            }
        }
    }

    /// Returns the members of one of its own canvases; `None` for a canvas of another lifeform, or if the members
    /// cannot be read.
    async fn guests_of(&self, canvas: &Canvas) -> Option<BTreeSet<Arc<str>>> {
        if canvas.name().split_once('/')?.0 != &*self.head.id {
            return None;
        }
        members_under(&self.store, &format!("of/{}/", canvas.name()))
            .await
            .ok()
            .map(|all| all.into_iter().map(|(id, _)| id).collect())
    }

    /// Halts. The next process resumes the unfinished work.
    pub(crate) async fn rest(&mut self) {
        if self.asleep.load(Ordering::SeqCst) {
            return;
        }
        for canvas in self.canvases.all() {
            canvas.unloaded_members().sleeps(&self.head.id).await;
        }
        self.readers.values().chain(self.jobs.values().map(|(watcher, _)| watcher)).for_each(JoinHandle::abort);
        self.fascicles.halt(&self.owner()).await;
        self.fascicles.unregister_owner(&self.owner());
    }

    /// Processes a heartbeat: checks waiting messages and due entries. Returns `true` if the lifeform stays awake.
    pub(crate) async fn beat(&mut self, me: &Mailbox) -> Result<bool, LifeformError> {
        self.give_up_what_is_stuck().await?;
        self.attend(me, true).await?;
        self.beats += 1;
        if self.beats >= self.beats_to_act().await? {
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

    /// Leaves memory until the lifeform is called, unless it is being called now. A later message writes the awake
    /// marker again, and the version conflict prevents its removal here.
    pub(super) async fn fall_asleep(&mut self) -> Result<bool, LifeformError> {
        let canvases = self.canvases.all();
        for canvas in &canvases {
            canvas.unloaded_members().sleeps(&self.head.id).await;
        }
        let origin = self.because("sleep");
        let mark = WakeQueue::awake(&self.head.id);
        // The barrier: when this is written, all earlier messages are written too.
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
                self.fascicles.unregister_owner(&self.owner());
                self.asleep.store(true, Ordering::SeqCst);
                Ok(true)
            }
            // A message arrived at the same moment, or the outcome in the store is unknown.
            Ok(false) | Err(StoreError::Conflict { .. }) => {
                let mark = Batch::new(&origin).put(WakeQueue::awake(&self.head.id), &self.head.id);
                self.awake = self.store.commit(mark).await?.versions[0];
                for canvas in &canvases {
                    canvas.unloaded_members().reads(&self.head.id).await;
                }
                self.busy_at = self.store.clock().now();
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
