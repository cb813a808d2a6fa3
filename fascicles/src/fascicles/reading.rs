//! Reading of jobs: heads, events and journals.

use store::{Entry, Follow, Key, Kind, Principal, Store};

use super::order::JobFilter;
use super::{Fascicles, LOOKED_AT_MAX, is_named, job_stream, may};
use crate::job::{Head, Waiting};
use crate::run::{Fact, Observed, Run};
use crate::{FascicleError, JobId};

impl Fascicles {
    /// Returns the head of a job.
    ///
    /// # Errors
    /// Returns [`FascicleError::JobNotFound`].
    pub async fn job(&self, id: &JobId) -> Result<Head, FascicleError> {
        let head = self.inner.store.document::<Head>(&Key::new(Kind::Job, id.clone())).await?;
        head.map(|head| head.value).ok_or_else(|| FascicleError::JobNotFound(id.clone()))
    }

    /// Returns the head of a job as soon as the job has ended or has a wait that `known` does not contain.
    ///
    /// # Errors
    /// Returns [`FascicleError::JobNotFound`], or the store's error if the store is closed.
    pub async fn settled(&self, id: &JobId, known: &[Waiting]) -> Result<Head, FascicleError> {
        let stream = job_stream(id);
        // The subscription starts before the first read, so no commit in between is missed.
        let mut follow = self.inner.store.follow(stream.clone(), self.inner.store.head(&stream).await?);
        loop {
            let head = self.job(id).await?;
            if head.status.is_final() || head.waits != known {
                return Ok(head);
            }
            follow.next().await?;
            while follow.ready().await?.is_some() {}
        }
    }

    /// Returns the head of a job, if `who` may see it.
    ///
    /// # Errors
    /// Returns [`FascicleError::JobNotFound`].
    pub async fn job_of(&self, who: &Principal, id: &JobId) -> Result<Head, FascicleError> {
        let head = self.job(id).await?;
        if may(who, &head) { Ok(head) } else { Err(FascicleError::JobNotFound(id.clone())) }
    }

    /// Returns the head of a job, if `who` may see it or is named as an approver in it.
    ///
    /// # Errors
    /// Returns [`FascicleError::JobNotFound`].
    pub async fn seen_by(&self, who: &Principal, id: &JobId) -> Result<Head, FascicleError> {
        let head = self.job(id).await?;
        if may(who, &head) || is_named(who, &head, None) {
            Ok(head)
        } else {
            Err(FascicleError::JobNotFound(id.clone()))
        }
    }

    /// Returns at most `limit` jobs with ids after `after` that `who` may see, and the id after which the next page
    /// starts, if there may be one.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn jobs(
        &self,
        who: &Principal,
        filter: &JobFilter,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Head>, Option<JobId>), FascicleError> {
        let (mut found, mut after, mut looked_at) = (Vec::new(), after.to_owned(), 0);
        loop {
            let page = self.inner.store.documents::<Head>(Kind::Job, &after, limit.max(64)).await?;
            let Some((last, _)) = page.last() else { return Ok((found, None)) };
            let last = last.clone();
            looked_at += page.len();
            for (id, head) in page {
                let head = head.value;
                if filter.fits(&head) && (may(who, &head) || is_named(who, &head, None)) {
                    found.push(head);
                }
                if found.len() == limit {
                    return Ok((found, Some(id)));
                }
            }
            if looked_at >= LOOKED_AT_MAX {
                return Ok((found, Some(last)));
            }
            after = last.to_string();
        }
    }

    /// Returns the events of a job for observers, in order.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn observed(&self, id: &JobId) -> Result<Vec<Observed>, FascicleError> {
        let mut read = Vec::new();
        each_entry(&self.inner.store, id, |entry| {
            if Fact::is_observed(&entry.data)
                && let Fact::Observed(observed) = entry.decode()?
            {
                read.push(observed);
            }
            Ok(())
        })
        .await?;
        Ok(read)
    }

    /// Returns the journal of a job from its start, and new entries as they are written.
    pub fn follow(&self, id: &JobId) -> Follow {
        self.inner.store.follow(job_stream(id), 0)
    }
}

/// Applies all facts in a job's journal to a run.
///
/// # Errors
/// Returns the store's error.
pub(crate) async fn replay(store: &Store, id: &JobId, run: &mut Run) -> Result<(), store::StoreError> {
    each_fact(store, id, |fact| run.apply(&fact)).await
}

pub(crate) async fn each_fact(store: &Store, id: &JobId, mut take: impl FnMut(Fact)) -> Result<(), store::StoreError> {
    each_entry(store, id, |entry| {
        take(entry.decode()?);
        Ok(())
    })
    .await
}

pub(super) async fn each_entry(
    store: &Store,
    id: &JobId,
    mut take: impl FnMut(&Entry) -> Result<(), store::StoreError>,
) -> Result<(), store::StoreError> {
    let (stream, mut after) = (job_stream(id), 0);
    loop {
        let page = store.entries(&stream, after, usize::MAX).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        page.iter().try_for_each(&mut take)?;
    }
}
