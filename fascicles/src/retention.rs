//! The retention of jobs. A job is removed with its head, its journal and the conversations of its steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use store::{Batch, Expect, Key, Kind, Origin, StoreError, Timestamp};

use crate::FascicleError;
use crate::fascicles::{Fascicles, each_fact, job_stream};
use crate::job::Head;
use crate::run::Fact;
use crate::work::invocation;

/// The number of heads examined before the task yields.
const PAGE: usize = 64;
/// The maximum number of streams removed in one commit.
const STREAMS_MAX: usize = 4_096;

impl Fascicles {
    /// Removes jobs that ended before a time. Returns their number.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn prune(&self, before: Timestamp) -> Result<usize, FascicleError> {
        let (mut after, mut pruned) = (String::new(), 0);
        loop {
            let page = self.inner.store.documents::<Head>(Kind::Job, &after, PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(pruned) };
            after = last.to_string();
            for (id, found) in page {
                if !found.value.status.is_final() || found.value.updated_at >= before {
                    continue;
                }
                let mut conversations: BTreeSet<Arc<str>> = BTreeSet::new();
                each_fact(&self.inner.store, &id, |fact| {
                    if let Fact::Started { step, attempt, .. } = fact {
                        conversations.insert(invocation(&id, &step, attempt));
                    }
                })
                .await?;
                let conversations: Vec<Arc<str>> = conversations.into_iter().collect();
                let batch = || Batch::new(&Origin::system("retention"));
                for some in conversations.chunks(STREAMS_MAX) {
                    let gone = some.iter().fold(batch(), |gone, name| gone.forget(neurons::conversation::stream(name)));
                    self.inner.store.commit(gone).await?;
                }
                // The head is removed last, so an interrupted removal starts again.
                let gone = batch().delete(Key::new(Kind::Job, id.clone()), Expect::Version(found.version));
                let gone = gone.delete(neurons::effects_key(&id), Expect::Any);
                match self.inner.store.commit(gone.forget(job_stream(&id))).await {
                    Ok(_) => pruned += 1,
                    // The job was retried meanwhile.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            tokio::task::yield_now().await;
        }
    }
}
