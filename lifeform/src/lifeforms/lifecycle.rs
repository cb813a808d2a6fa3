//! The life cycle of lifeforms: start, stop, reboot, termination, and waking.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::SignedDuration;
use neurons::llm::paid;
use store::{Batch, Expect, Hash, Key, Kind, Origin, StoreError};
use tokio::sync::Semaphore;

use super::canvases::without_member;
use super::{Lifeforms, PAGE_MAX, STANDINGS, members_under};
use crate::LifeformError;
use crate::agenda::Agenda;
use crate::canvas::chat::TopicView;
use crate::canvas::{Canvas, CanvasId, Refusal, chat};
use crate::guard::Guard;
use crate::life::{Body, Handle, Head, Status};
use crate::maintenance::{Task, Way};
use crate::perception::PassLog;
use crate::spec::LifeformId;
use crate::wake_queue::WakeQueue;

/// The pause before a failed wake-up is retried.
const ROUSED_AGAIN: Duration = Duration::from_secs(5);
/// The maximum number of lifeforms that are woken at the same time.
const ROUSED_AT_ONCE: usize = 64;

/// Marks streaming messages as interrupted if `is_gone` returns `true` for their sender.
pub(super) async fn close_speech(canvas: &Canvas, is_gone: impl Fn(&str) -> bool, reason: &str) {
    if !canvas.kind.is(chat::NAME) {
        return;
    }
    let state = canvas.snapshot().state;
    for topic in chat::topics_in(&state).map(TopicView::id) {
        let open =
            chat::messages_in(&state, topic).filter(|message| message.is_streaming() && is_gone(message.sender()));
        for message in open {
            let op = chat::Op::Interrupt { topic: topic.into(), id: message.id().into(), reason: reason.to_owned() };
            match canvas.apply(op, None, None, &Origin::system("ended")).await {
                // The message was completed in the meantime.
                Ok(_) | Err(LifeformError::Refused(_)) => {}
                Err(error) => tracing::warn!(%error, "a message without a writer cannot be marked as interrupted"),
            }
        }
    }
}

impl Lifeforms {
    /// Writes the wake markers for an older store, which has none. This reads all lifeforms once.
    pub(super) async fn mark_those_from_before(&self) -> Result<(), LifeformError> {
        let done = Key::new(Kind::Meta, "lifeforms.marked");
        if self.inner.store.document::<bool>(&done).await?.is_some() {
            return Ok(());
        }
        let origin = Origin::system("start");
        let mut after = String::new();
        loop {
            let (heads, next) = self.page(&after, PAGE_MAX).await?;
            let living = heads.iter().filter(|head| matches!(head.status, Status::Running | Status::Dormant));
            for head in living {
                self.inner.store.commit(Batch::new(&origin).put(WakeQueue::awake(&head.id), &head.id)).await?;
            }
            let Some(next) = next else { break };
            after = next.to_string();
        }
        self.inner.store.commit(Batch::new(&origin).put(done, &true)).await?;
        Ok(())
    }

    /// Wakes the lifeforms that were in memory when the daemon stopped.
    pub(super) async fn wake_all(&self) -> Result<(), LifeformError> {
        let mut after = String::new();
        loop {
            let page = self.inner.store.documents::<LifeformId>(Kind::Awake, &after, PAGE_MAX).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = last.to_string();
            let roused = page.into_iter().map(|(id, _)| self.wake_with_retries(id));
            futures::stream::iter(roused).buffer_unordered(ROUSED_AT_ONCE).collect::<()>().await;
        }
    }

    /// Wakes a lifeform if it is running. Removes the wake markers of a lifeform that is not.
    pub(super) async fn wake_or_unmark(&self, id: &LifeformId) -> Result<(), LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        match self.versioned(id).await {
            Ok((head, _)) if matches!(head.status, Status::Running | Status::Dormant) => self.ensure_running(id).await,
            Ok(_) | Err(LifeformError::NotFound(_)) => {
                // The lifeform is not woken again until it is started. It then reads the messages in between.
                let open: Vec<(LifeformId, CanvasId)> = self.inner.canvases().keys().cloned().collect();
                for name in open {
                    let canvas = self.inner.canvases().get(&name).cloned();
                    if let Some(canvas) = canvas {
                        canvas.unloaded_members().reads(id).await;
                    }
                }
                let kept = self.inner.store.document::<Agenda>(&Key::new(Kind::Agenda, id.clone())).await?;
                let is_marked = self.inner.store.document::<LifeformId>(&WakeQueue::awake(id)).await?.is_some();
                let mut gone = Batch::new(&Origin::system("rouse"));
                if is_marked {
                    gone = gone.delete(WakeQueue::awake(id), Expect::Any);
                }
                if let Some(at) = kept.and_then(|kept| kept.value.rouse_at) {
                    gone = gone.delete(WakeQueue::mark(at, id), Expect::Any);
                }
                if !gone.ops.is_empty() {
                    self.inner.store.commit(gone).await?;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Wakes the lifeforms in the wake queue, until the daemon ends.
    pub(super) async fn answer_calls(self) {
        let alarm = self.inner.alarm.clone();
        let places = Arc::new(Semaphore::new(ROUSED_AT_ONCE));
        loop {
            for id in alarm.called().await {
                // A slow lifeform does not delay the others.
                let Ok(place) = places.clone().acquire_owned().await else { return };
                let this = self.clone();
                tokio::spawn(async move {
                    Box::pin(this.wake_with_retries(id)).await;
                    drop(place);
                });
            }
        }
    }

    /// Wakes a lifeform, or retries later. A lifeform that cannot be woken does not block the others.
    pub(super) async fn wake_with_retries(&self, id: LifeformId) {
        match Box::pin(self.wake_or_unmark(&id)).await {
            Ok(()) | Err(LifeformError::Store(StoreError::Closed | StoreError::LeaseLost(_))) => {}
            Err(error) => {
                tracing::error!(lifeform = %id, %error, "wake-up failed, retrying in 5 s");
                let alarm = self.inner.alarm.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(ROUSED_AGAIN).await;
                    alarm.call(&id);
                });
            }
        }
    }

    pub(super) async fn lifecycle_lock(&self, id: &str) -> tokio::sync::MutexGuard<'_, ()> {
        let place = usize::from(Hash::of(id.as_bytes()).0[0]) % STANDINGS;
        self.inner.lifecycle_lock[place].lock().await
    }

    /// Wakes a lifeform that a client is looking at, if it sleeps.
    pub fn visit(&self, id: &LifeformId) {
        if self.inner.running(id).is_none() {
            self.inner.alarm.call(id);
        }
    }

    /// Notifies the owner of a job that failed and was resumed, if the owner is in memory.
    pub fn taken_up(&self, owner: &str, job: &Arc<str>) {
        let handle = owner.strip_prefix("lifeform:").and_then(|id| self.inner.alive().get(id).cloned());
        if let Some(handle) = handle {
            handle.taken_up(job);
        }
    }

    /// Starts a lifeform. A running lifeform continues.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn start(&self, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        Box::pin(self.start_locked(id)).await?;
        self.get(id).await
    }

    /// Starts a lifeform under the caller's lock: stores its status and its wake marker, and wakes it.
    pub(super) async fn start_locked(&self, id: &LifeformId) -> Result<(), LifeformError> {
        if self.inner.alive().get(id).is_some_and(Handle::is_alive) {
            return Ok(());
        }
        let (mut head, version) = self.versioned(id).await?;
        Box::pin(self.memory(&head).name_self(&head.definition.name, &head.definition.persona_text())).await?;
        let mut batch = Batch::new(&Origin::system("start"));
        if !matches!(head.status, Status::Running | Status::Dormant) {
            (head.status, head.guard) = (Status::Running, Guard::default());
            let why =
                serde_json::json!({"what": "woke", "status": head.status, "mode": head.mode, "policy": head.policy});
            batch = batch.put_expecting(Head::key(id), Expect::Version(version), &head);
            batch = batch.append(format!("trace:{id}"), "lifeform", &why);
        }
        let agenda = self.inner.store.document::<Agenda>(&Key::new(Kind::Agenda, id.clone())).await?;
        if let Some(at) = agenda.and_then(|agenda| agenda.value.rouse_at) {
            batch = batch.put(WakeQueue::mark(at, id), id);
        }
        self.inner.store.commit(batch.put(WakeQueue::awake(id), id)).await?;
        self.ensure_running(id).await
    }

    /// Stops a lifeform. Its unfinished work continues after the next start.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn stop(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        self.rest(origin, id, Status::Stopped).await
    }

    /// Stops and starts a lifeform. Its mind is unchanged.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn reboot(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        self.rest(origin, id, Status::Stopped).await?;
        Box::pin(self.start_locked(id)).await?;
        self.get(id).await
    }

    /// Terminates a lifeform. Its journals stay, but it is no longer listed or found.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn terminate(&self, origin: &Origin, id: &LifeformId) -> Result<(), LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        let me = format!("lifeform:{id}");
        let canvases = self.taken_part_in(id).await?;
        self.rest(origin, id, Status::Terminated).await?;
        for canvas in &canvases {
            close_speech(canvas, |sender| sender == me, "it has ended").await;
        }
        self.inner.nexus.forget(id);
        let mut left = Batch::new(origin);
        for (name, ..) in self.canvases_of(id).await? {
            let name = format!("{id}/{name}");
            for (member, _) in members_under(&self.inner.store, &format!("of/{name}/")).await? {
                left = without_member(left, &name, &member);
                if let Some(handle) = self.inner.alive().get(&member) {
                    handle.leave(&name);
                }
            }
        }
        for (canvas, _) in self.memberships(id).await? {
            left = without_member(left, &canvas, id);
        }
        if !left.ops.is_empty() {
            self.inner.store.commit(left).await?;
        }
        let mut canvases = self.inner.canvases();
        canvases.extract_if(|(of, _), _| of == id).for_each(|(_, canvas)| canvas.close());
        Ok(())
    }

    /// Halts all lifeforms without a status change. They wake at the next start of the daemon.
    pub async fn halt(&self) {
        let handles: Vec<(LifeformId, Handle)> = self.inner.alive().drain().collect();
        for (id, handle) in handles {
            self.inner.heartbeat.stop(&id);
            handle.halt().await;
        }
    }

    pub(super) async fn ensure_running(&self, id: &LifeformId) -> Result<(), LifeformError> {
        let living = self.inner.alive().get(id).is_some_and(Handle::is_alive);
        if living {
            return Ok(());
        }
        let (head, version) = self.versioned(id).await?;
        let is_first = !self.inner.lived().contains(id);
        if is_first {
            paid::settle_unknown(&self.inner.store, id).await?;
            self.inner.lived().insert(id.clone());
        }
        let canvases = self.taken_part_in(id).await?;
        let period = SignedDuration::from_millis(head.definition.metabolism.beat_ms as i64);
        let body = Body {
            store: self.inner.store.clone(),
            fascicles: self.inner.fascicles.clone(),
            canvases,
            memory: self.memory(&head),
            knowledge: self.knowledge(&head),
            plans: self.plans(id, &head).await?,
            guard: self.inner.guard,
            head,
            version,
            asleep: Arc::default(),
            passed: PassLog::default(),
            restarted_at: is_first.then_some(self.inner.started_at),
        };
        let handle = Box::pin(Handle::spawn(body, self.inner.supervisor.clone())).await?;
        self.inner.heartbeat.start(id, handle.clone(), period);
        self.inner.alive().insert(id.clone(), handle.clone());
        self.supervise(id.clone(), handle);
        Ok(())
    }

    pub(super) async fn rest(&self, origin: &Origin, id: &LifeformId, status: Status) -> Result<Head, LifeformError> {
        let (mut head, version) = self.versioned(id).await?;
        self.inner.heartbeat.stop(id);
        let handle = self.inner.alive().remove(id);
        if let Some(handle) = handle.filter(Handle::is_alive) {
            return handle.stop(status, origin).await;
        }
        head.status = status;
        self.inner.store.commit(head.change(Expect::Version(version), origin, "stopped")).await?;
        Ok(head)
    }

    /// Ends the intervention of a lifeform's guard, for example a quarantine.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn calm(&self, origin: &Origin, id: &LifeformId) -> Result<Head, LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        let (mut head, version) = self.versioned(id).await?;
        if let Some(handle) = self.inner.running(id) {
            return handle.calm(origin).await;
        }
        head.guard = Guard::default();
        self.inner.store.commit(head.change(Expect::Version(version), origin, "calmed")).await?;
        Ok(head)
    }

    /// Starts a maintenance job by `$system` for the mind of a lifeform and returns the job. With a `key`, repeated
    /// calls of the same caller start one job. A trial changes nothing: the result of its job is what the task would change.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`]. [`LifeformError::Refused`] if the lifeform is not running. [`LifeformError::Spec`] for a
    /// trial of a task that has none.
    pub async fn maintain(
        &self,
        origin: &Origin,
        id: &LifeformId,
        (task, is_trial): (Task, bool),
        key: Option<Arc<str>>,
    ) -> Result<Arc<str>, LifeformError> {
        let name: Arc<str> = match key {
            Some(key) => Hash::of(format!("{}\n{key}", origin.principal.id).as_bytes()).hex()[..32].into(),
            None => uuid::Uuid::now_v7().simple().to_string().into(),
        };
        if is_trial && !task.has_trial() {
            return Err(LifeformError::Spec(format!("the task {} cannot be tried out", task.as_str())));
        }
        let way = if is_trial { Way::Trial } else { Way::Whole };
        let _one = self.lifecycle_lock(id).await;
        // A repeated request gets the same answer, whatever the present status.
        let job: Arc<str> = format!("{id}.{}.{name}", if is_trial { "trial" } else { "system" }).into();
        if let Ok(known) = self.inner.fascicles.job(&job).await {
            let is_same = known.ordered == task.as_str();
            let other = || LifeformError::Spec("this Idempotency-Key was used for another task".into());
            return is_same.then_some(job).ok_or_else(other);
        }
        let (head, _) = self.versioned(id).await?;
        if !matches!(head.status, Status::Running | Status::Dormant) {
            return Err(LifeformError::Refused(Refusal::State("it is not running: start it first".into())));
        }
        self.ensure_running(id).await?;
        let handle = self.inner.alive().get(id).cloned().ok_or_else(|| LifeformError::NotFound(id.clone()))?;
        handle.maintain((task, way), job, origin).await
    }
}
