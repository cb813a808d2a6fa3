//! Starting jobs.

use std::collections::hash_map;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use store::ledger::{AccountOp, Amount};
use store::{Batch, Expect, Key, Kind, Op, Origin, Place};

use super::order::JobOrder;
use super::{Fascicles, INPUT_BYTES_MAX, Inner, Running, WORKING_BYTES};
use crate::catalogue::Built;
use crate::job::{Handle, Head, JobArgs, commit_of};
use crate::run::{Effect, Run, RunInput, Status};
use crate::toolbox::Toolbox;
use crate::{FascicleError, JobId};

/// Registers a job as starting until it is dropped.
pub(super) struct Starting(Arc<Inner>, JobId);

impl Starting {
    pub(super) fn new(fascicles: &Fascicles, job: &JobId) -> Self {
        *fascicles.inner.starting().entry(job.clone()).or_default() += 1;
        Self(fascicles.inner.clone(), job.clone())
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // Two concurrent requests may start the same job id.
        if let hash_map::Entry::Occupied(mut starts) = self.0.starting().entry(self.1.clone()) {
            *starts.get_mut() -= 1;
            if *starts.get() == 0 {
                starts.remove();
            }
        }
        self.0.started.notify_waiters();
    }
}

/// The size of an input up to which its first steps are derived on the caller's thread, in bytes.
const INLINE_BYTES: usize = 2 << 10;

impl Fascicles {
    /// Starts a job and returns its id. The acceptance and the first steps are durable when this function returns. The
    /// operations of `with` are committed atomically with them. A repeated request changes nothing.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`], [`FascicleError::Invalid`], [`FascicleError::TooLarge`],
    /// [`FascicleError::Overloaded`], [`FascicleError::Share`], [`FascicleError::Died`], or the store's error.
    pub async fn start(
        &self,
        origin: &Origin,
        order: JobOrder,
        toolbox: Arc<dyn Toolbox>,
        with: impl FnOnce(Batch) -> Batch,
    ) -> Result<JobId, FascicleError> {
        let built = self.built(&order.fascicle).await?;
        self.start_built(origin, order, built, toolbox, with).await
    }

    /// As [`Fascicles::start`], with a plan that was built before.
    pub(crate) async fn start_built(
        &self,
        origin: &Origin,
        order: JobOrder,
        built: Built,
        toolbox: Arc<dyn Toolbox>,
        with: impl FnOnce(Batch) -> Batch,
    ) -> Result<JobId, FascicleError> {
        let bytes = serde_json::to_vec(&order.events).map_or(0, |text| text.len());
        if bytes > INPUT_BYTES_MAX {
            return Err(FascicleError::TooLarge { bytes, max: INPUT_BYTES_MAX });
        }
        let place = self.inner.working.take_many(&origin.principal, 1 + bytes / WORKING_BYTES)?;
        let now = self.inner.store.clock().now();
        let seconds = order.deadline_s.or(built.graph.deadline_s);
        let deadline_at = seconds.map(|seconds| now + jiff::SignedDuration::from_secs(seconds as i64));
        let made = order.id.is_none();
        let id: JobId = order.id.unwrap_or_else(|| format!("job_{}", uuid::Uuid::now_v7().simple()).into());
        let mut head = Head {
            id: id.clone(),
            fascicle: order.fascicle,
            plan: Some(built.hash.hex()),
            owner: order.owner,
            account: order.account,
            origin: origin.clone(),
            status: Status::Pending,
            current_stage: None,
            waits: Vec::new(),
            output: Value::Null,
            error: None,
            tier: order.tier,
            output_tokens_max: order.output_tokens_max,
            class: order.class,
            priority: order.priority,
            ordered: order.ordered,
            depth: order.depth,
            parent: order.parent,
            scope: order.scope,
            root: order.root,
            untrusted: order.untrusted,
            authors: order.authors,
            approvers: order.approvers,
            reserve: order.reserve,
            input_bytes: bytes,
            created_at: now,
            updated_at: now,
        };
        let (graph, events) = (built.graph, order.events);
        // A map over many items takes the processor for a while.
        let accept = move || {
            let mut run = Run::new(graph);
            let out = run.on(RunInput::Accepted { events, deadline_at }, now);
            (run, out)
        };
        let (run, out) = match bytes > INLINE_BYTES {
            true => {
                let accepted = tokio::task::spawn_blocking(accept).await;
                accepted.map_err(|panic| FascicleError::Died(panic.to_string()))?
            }
            false => accept(),
        };
        // The commit expects that the head does not exist, so it fails for a job that was already started.
        let key = Key::new(Kind::Job, id.clone());
        let batch = Batch::new(origin);
        let mut batch = if made { batch.made(&id) } else { batch.made_with(&id, key) };
        batch.push(Op::Payload { hash: built.hash, body: built.plan });
        batch = batch.create(Key::new(Kind::Running, format!("{}/{}", head.owner, head.id)), &head.id);
        if head.reserve != Amount::default() {
            let (hold, amount) = (crate::job::hold_of(&id), head.reserve);
            batch = batch.account(
                head.account.clone(),
                AccountOp::Hold { id: hold, parent: None, amount, of: origin.participant().cloned() },
                "job",
            );
        }
        batch.ops.extend(commit_of(&mut head, &run, &out.facts, Expect::Version(0), now).ops);
        self.inner.toolboxes().insert(head.owner.clone(), toolbox.clone());
        let (this, batch, starting) = (self.clone(), with(batch), Starting::new(self, &id));
        // From here on the start runs in a task of its own: it finishes even if the principal disconnects.
        let begun = tokio::spawn(async move {
            let _starting = starting;
            match this.inner.store.commit(batch).await {
                Ok(_) if head.status.is_final() => {
                    this.inner.has_ended(&head);
                    Ok(())
                }
                Ok(_) => this.spawn(head, run, toolbox, out.effects, None, Some(place)).await,
                Err(store::StoreError::Conflict { what, .. })
                    if what.starts_with("job:") || what.starts_with("running:") =>
                {
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        });
        begun.await.map_err(|panic| FascicleError::Died(panic.to_string()))??;
        Ok(id)
    }

    pub(super) async fn spawn(
        &self,
        head: Head,
        run: Run,
        toolbox: Arc<dyn Toolbox>,
        effects: Vec<Effect>,
        first: Option<RunInput>,
        place: Option<Place>,
    ) -> Result<(), FascicleError> {
        let (id, owner, parent) = (head.id.clone(), head.owner.clone(), head.parent.clone());
        let ordered_by = head.origin.principal.id.clone();
        let serial = self.inner.serial.fetch_add(1, Ordering::SeqCst);
        let args = JobArgs { inner: self.inner.clone(), head, run, toolbox, effects, first, serial, place };
        let handle = Handle::spawn(args, self.supervisor.clone()).await?;
        {
            // A short job may have ended already and must not be registered as running. An actor that ends unregisters
            // itself after its status has changed, so under the lock it is either registered in time or not at all.
            let mut running = self.inner.running();
            if !handle.has_ended() {
                running.insert(id, Running { handle: handle.clone(), serial, owner, parent });
            }
        }
        // A concurrent revocation either finds the running job, or is seen by this check.
        if !self.inner.neurons.is_admitted(&ordered_by) {
            handle.cancel().await;
        }
        Ok(())
    }
}
