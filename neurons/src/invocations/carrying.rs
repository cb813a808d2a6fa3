//! The task that runs an invocation until it ends, pauses or is cancelled.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use store::{Batch, PrincipalId, StoreError};
use tokio::sync::{oneshot, watch};

use super::{InvokeOptions, Invoked, RunSegment, SegmentBase};
use crate::NeuronError;
use crate::conclusion::Conclusion;
use crate::invocation::{Answer, Outcome, Run, Spent, Stop};
use crate::neurons::Neurons;

impl Neurons {
    /// Runs a segment in a task of its own until it ends, is cancelled, or its time limit passes. If the caller
    /// disconnects, a segment that does not `stay` is cancelled.
    pub(super) async fn carry(&self, stretch: RunSegment, options: InvokeOptions) -> Result<Invoked, NeuronError> {
        let (asking, gone) = oneshot::channel::<()>();
        let (cancel, cancelled) = oneshot::channel::<()>();
        let id = stretch.record.id.clone();
        let (ended, has_ended) = watch::channel(());
        let principal = stretch.record.principal.clone();
        match self.under_way().entry(id.clone()) {
            Entry::Occupied(_) => return Err(NeuronError::InFlight),
            Entry::Vacant(free) => {
                let principal = principal.clone();
                free.insert(UnderWay { principal, cancel: Some(cancel), ended: has_ended });
            }
        }
        // A concurrent revocation either finds the running invocation, or is seen by this check.
        if !self.is_admitted(&principal) {
            self.cancel_all_of(&principal);
        }
        let this = self.clone();
        let work = tokio::spawn(async move {
            let RunSegment { mut run, begun, talk, record, continued, take, stays, place } = stretch;
            let begun_as = SegmentBase { record, continued };
            let conclusion = Conclusion::new({
                let (begun_as, clock) = (begun_as.clone(), this.store.clock().clone());
                move |completed, spent| begun_as.ended(Ok(&Answer::Completed(completed)), spent, clock.now()).1
            });
            run.conclusion = Some(conclusion.clone());
            let _ended = ended;
            let _leaves = InvocationGuard(&this, &id);
            if let Some(take) = take {
                match this.store.commit(take).await {
                    Ok(_) => {}
                    Err(StoreError::Conflict { .. }) => return Err(NeuronError::InFlight),
                    Err(error) => return Err(error.into()),
                }
            }
            let late = async {
                match options.deadline {
                    Some(deadline) => tokio::time::sleep(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let went_away = async {
                let _ = gone.await;
                if stays {
                    std::future::pending::<()>().await;
                }
            };
            let mut thinking = Box::pin(run.clone().in_actor(begun, talk));
            let stopped = tokio::select! {
                outcome = &mut thinking => Ok(outcome),
                Ok(()) = cancelled => Err(NeuronError::Cancelled),
                () = went_away => Err(NeuronError::Cancelled),
                () = late => Err(NeuronError::Deadline),
            };
            let outcome = match stopped {
                Ok(outcome) => outcome,
                Err(stopped) if conclusion.take() => {
                    drop(thinking);
                    // Fascicles that the invocation called end with it.
                    this.tools.cancel(&id).await;
                    Err(stopped)
                }
                // The completion is being committed, so the invocation can no longer be cancelled.
                Err(_) => thinking.await,
            };
            let finished = match outcome {
                // Another call with the same idempotency key was faster; the record belongs to it.
                Ok(Outcome { stop: Err(NeuronError::Store(StoreError::Conflict { .. })), .. }) => {
                    Err(NeuronError::InFlight)
                }
                outcome => this.finish(&run, begun_as, outcome, &conclusion).await,
            };
            drop(place);
            finished
        });
        let finished = work.await.map_err(|panic| NeuronError::Died(panic.to_string()))?;
        drop(asking);
        finished
    }

    /// Writes the outcome of a segment, unless it was committed with the answer, and returns it.
    pub(super) async fn finish(
        &self,
        run: &Run,
        begun_as: SegmentBase,
        outcome: Result<Outcome, NeuronError>,
        conclusion: &Conclusion,
    ) -> Result<Invoked, NeuronError> {
        let mut batch = Batch::new(&run.origin);
        let (ended, spent) = match outcome {
            Ok(Outcome { stop, mut talk, spent }) => {
                // If no paid call has created the record yet, it is created now.
                if stop.is_ok() || begun_as.record.paid_calls + spent.paid_calls == 0 {
                    batch = talk.write(batch);
                }
                (stop, spent)
            }
            Err(error) => (Err(error), Spent::default()),
        };
        let answer = match ended {
            Ok(Stop::Completed(completed)) => Ok(Answer::Completed(completed)),
            Ok(Stop::Paused(calls)) => {
                let (more, answer) = self.pause(run, batch, &begun_as.record, calls);
                batch = more;
                Ok(answer)
            }
            Err(error) => Err(error),
        };
        let (record, ops) = begun_as.ended(answer.as_ref(), &spent, self.store.clock().now());
        let is_written = matches!(answer, Ok(Answer::Completed(_))) && !conclusion.take();
        if !is_written {
            batch.ops.extend(ops);
        }
        if !batch.ops.is_empty() {
            match self.store.commit_at_last(batch).await {
                // Another call with the same idempotency key was faster.
                Err(StoreError::Conflict { .. }) => return Err(NeuronError::InFlight),
                kept => kept?,
            };
        }
        Ok(Invoked { id: record.id, answer: answer?, usage: record.usage })
    }
}

/// A running invocation.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(super) principal: PrincipalId,
    pub(super) cancel: Option<oneshot::Sender<()>>,
    /// The receiver that closes when the run is over.
    pub(super) ended: watch::Receiver<()>,
}

/// Unregisters an invocation when its task ends, for whatever reason.
pub(super) struct InvocationGuard<'n>(&'n Neurons, &'n Arc<str>);

impl Drop for InvocationGuard<'_> {
    fn drop(&mut self) {
        self.0.under_way().remove(self.1);
    }
}
