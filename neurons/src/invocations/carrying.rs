//! The task that runs an invocation until it ends, pauses or is cancelled.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use store::{Batch, PrincipalId, StoreError};
use tokio::sync::{oneshot, watch};

use super::{InvokeOptions, Invoked, Standing, Stretch};
use crate::NeuronError;
use crate::actor::Outcome;
use crate::conclusion::Conclusion;
use crate::invocation::{Answer, Run, Spent, Stop};
use crate::neurons::Neurons;

impl Neurons {
    /// Runs a stretch in a task of its own until it ends, is cancelled, or its time is over. A caller that goes away
    /// cancels a call that was made without a key.
    pub(super) async fn carry(&self, stretch: Stretch, options: InvokeOptions) -> Result<Invoked, NeuronError> {
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
        // A revocation either finds it under way, or is seen here.
        if !self.is_admitted(&principal) {
            self.cancel_all_of(&principal);
        }
        let this = self.clone();
        let work = tokio::spawn(async move {
            let Stretch { mut run, begun, talk, record, continued, take, stays, place } = stretch;
            let begun_as = Standing { record, continued };
            let conclusion = Conclusion::new({
                let (begun_as, clock) = (begun_as.clone(), this.store.clock().clone());
                move |completed, spent| begun_as.ended(Ok(&Answer::Completed(completed)), spent, clock.now()).1
            });
            run.conclusion = Some(conclusion.clone());
            let _ended = ended;
            let _leaves = Leaves(&this, &id);
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
            let mut thinking = Box::pin(this.tree.run(run.clone(), begun, talk));
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
                    // Whatever it called ends with it.
                    this.tools.cancel(&id).await;
                    Err(stopped)
                }
                // It is being written that it completed, which nobody takes back.
                Err(_) => thinking.await,
            };
            let finished = match outcome {
                // Another call under the same key was quicker; the record is that one's.
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

    /// Keeps what a stretch came to, unless that was written with its answer, and answers it.
    pub(super) async fn finish(
        &self,
        run: &Run,
        begun_as: Standing,
        outcome: Result<Outcome, NeuronError>,
        conclusion: &Conclusion,
    ) -> Result<Invoked, NeuronError> {
        let mut batch = Batch::new(&run.origin);
        let (ended, spent) = match outcome {
            Ok(Outcome { stop, mut talk, spent }) => {
                // A record that no paid call has made yet is made now.
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
                // Another call under the same key was quicker.
                Err(StoreError::Conflict { .. }) => return Err(NeuronError::InFlight),
                kept => kept?,
            };
        }
        Ok(Invoked { id: record.id, answer: answer?, usage: record.usage })
    }
}

/// Something that is carried.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(super) principal: PrincipalId,
    pub(super) cancel: Option<oneshot::Sender<()>>,
    /// Closes when it is over.
    pub(super) ended: watch::Receiver<()>,
}

/// However the task that carries an invocation ends, it is no longer under way.
pub(super) struct Leaves<'n>(&'n Neurons, &'n Arc<str>);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.under_way().remove(self.1);
    }
}
