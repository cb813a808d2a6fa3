//! Cancellation and retries of jobs.

use futures::stream::{self, StreamExt};
use store::{Batch, Expect, Key, Kind, Principal, PrincipalId};

use super::order::JobFilter;
use super::{CANCELLED_AT_ONCE, CANCELLED_MAX, Fascicles, LOOKED_AT_MAX, may};
use crate::job::{Head, commit_of};
use crate::run::{RunInput, Status};
use crate::{FascicleError, JobId};

impl Fascicles {
    /// Cancels a job. A job that has ended does not change.
    ///
    /// # Errors
    /// Returns [`FascicleError::JobNotFound`].
    pub async fn cancel(&self, who: &Principal, job: &JobId) -> Result<Head, FascicleError> {
        let head = self.job_of(who, job).await?;
        self.inner.has_started(job).await;
        match self.inner.handle(job) {
            Some(handle) => handle.cancel().await,
            None if !head.status.is_final() => self.end(head, RunInput::Cancelled).await?,
            None => {}
        }
        self.inner.cancel_within(job).await;
        self.job(job).await
    }

    /// Cancels up to a thousand unfinished jobs that match `filter` and were started by `ordered_by`, in no particular
    /// order. Returns the number of cancelled jobs, and `true` if there may be more.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn cancel_many(
        &self,
        who: &Principal,
        ordered_by: &PrincipalId,
        filter: &JobFilter,
    ) -> Result<(usize, bool), FascicleError> {
        let (mut after, mut found) = (String::new(), Vec::new());
        'pages: loop {
            let page = self.inner.store.documents::<JobId>(Kind::Running, &after, LOOKED_AT_MAX).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.to_string();
            for (_, job) in page {
                let head = match self.job(&job.value).await {
                    // The job was removed meanwhile.
                    Err(FascicleError::JobNotFound(_)) => continue,
                    head => head?,
                };
                if head.origin.principal.id == *ordered_by && may(who, &head) && filter.fits(&head) {
                    found.push(job.value);
                }
                if found.len() == CANCELLED_MAX {
                    break 'pages;
                }
            }
        }
        let is_all = found.len() < CANCELLED_MAX;
        let cancelled = stream::iter(found).map(|job| async move { self.cancel(who, &job).await });
        let cancelled: Vec<_> = cancelled.buffer_unordered(CANCELLED_AT_ONCE).collect().await;
        let mut count = 0;
        for outcome in cancelled {
            match outcome {
                Ok(head) => count += usize::from(head.status == Status::Cancelled),
                // The job was removed meanwhile.
                Err(FascicleError::JobNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((count, !is_all))
    }

    /// Ends a job without an actor by an input. If the job has an actor again meanwhile, cancels it.
    pub(super) async fn end(&self, mut head: Head, news: RunInput) -> Result<(), FascicleError> {
        let taking_up = self.inner.taking_up.lock().await;
        if let Some(handle) = self.inner.handle(&head.id) {
            drop(taking_up);
            handle.cancel().await;
            return Ok(());
        }
        let mut run = self.run_of(&head).await?;
        let now = self.inner.store.clock().now();
        let out = run.on(news, now);
        let batch = commit_of(&mut head, &run, &out.facts, Expect::Any, now);
        self.inner.store.commit(batch).await?;
        self.inner.has_ended(&head);
        Ok(())
    }

    /// Retries a failed job from the point of its failure. Completed steps are not repeated.
    ///
    /// # Errors
    /// Returns [`FascicleError::JobNotFound`], [`FascicleError::NotFailed`] or [`FascicleError::NoOwner`].
    pub async fn retry(&self, who: &Principal, job: &JobId) -> Result<Head, FascicleError> {
        let mut head = self.job_of(who, job).await?;
        if head.status != Status::Failed {
            return Err(FascicleError::NotFailed(job.clone()));
        }
        let place = self.inner.working_place(&head)?;
        let toolbox = self.toolbox(&head.owner)?;
        let mut run = self.run_of(&head).await?;
        let now = self.inner.store.clock().now();
        let out = run.on(RunInput::Retried, now);
        let mark = Key::new(Kind::Running, format!("{}/{}", head.owner, head.id));
        let mut batch = Batch::new(&head.origin).create(mark, &head.id);
        batch.ops.extend(commit_of(&mut head, &run, &out.facts, Expect::Any, now).ops);
        let (this, job) = (self.clone(), job.clone());
        let begun = tokio::spawn(async move {
            match this.inner.store.commit(batch).await {
                Ok(_) if head.status.is_final() => this.inner.has_ended(&head),
                Ok(_) => this.spawn(head.clone(), run, toolbox, out.effects, None, Some(place)).await?,
                Err(store::StoreError::Conflict { what, .. }) if what.starts_with("running:") => {
                    return Err(FascicleError::NotFailed(job));
                }
                Err(error) => return Err(error.into()),
            }
            Ok(head)
        });
        begun.await.map_err(|panic| FascicleError::Died(panic.to_string()))?
    }
}
