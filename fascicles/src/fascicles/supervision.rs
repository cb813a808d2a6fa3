//! Restarts of jobs whose actor died by a panic or an error.
//!
//! A job is taken up from its journal, as after a restart of the daemon: at once after its first death, later after a
//! pause, and given up after [`DEATHS_MAX`] deaths, because each would come back.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Fascicles, WeakFascicles};
use crate::run::RunInput;
use crate::{FascicleError, JobId};

/// The number of deaths of a job's actor, since the start of the daemon, after which the job fails.
const DEATHS_MAX: u32 = 5;
/// The pause after the second death. It is four times as long after each further one.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of jobs whose deaths are counted. Above it, the counts begin again.
const COUNTED_MAX: usize = 1_024;

/// Restarts the jobs that `died` names, until the daemon's last handle is gone.
pub(super) async fn restart_dead_jobs(fascicles: WeakFascicles, mut died: mpsc::UnboundedReceiver<JobId>) {
    let mut deaths: HashMap<JobId, u32> = HashMap::new();
    while let Some(job) = died.recv().await {
        if deaths.len() >= COUNTED_MAX && !deaths.contains_key(&job) {
            deaths.clear();
        }
        let count = deaths.entry(job.clone()).or_default();
        *count += 1;
        let (count, fascicles) = (*count, fascicles.clone());
        if count > DEATHS_MAX {
            deaths.remove(&job);
        }
        tokio::spawn(async move {
            if count > 1 {
                tokio::time::sleep(PAUSE * 4_u32.pow((count - 2).min(DEATHS_MAX))).await;
            }
            let Some(fascicles) = fascicles.upgrade() else { return };
            if let Err(error) = fascicles.restart(&job, count).await {
                tracing::error!(%job, %error, "a job that died cannot be taken up again before the next start");
            }
        });
    }
}

impl Fascicles {
    /// Takes up a job whose actor died, or gives it up.
    async fn restart(&self, job: &JobId, deaths: u32) -> Result<(), FascicleError> {
        if deaths > DEATHS_MAX {
            let why = format!("its actor died {deaths} times");
            return self.change(self.job(job).await?, RunInput::GivenUp(why)).await.map(drop);
        }
        let _one = self.inner.taking_up.lock().await;
        let head = self.job(job).await?;
        // Without a toolbox, the owner has stopped; its jobs are resumed with it.
        let toolbox = self.inner.toolboxes().get(&head.owner).cloned();
        let Some(toolbox) = toolbox.filter(|_| !head.status.is_final()) else { return Ok(()) };
        if self.inner.running().contains_key(job) {
            return Ok(());
        }
        let run = self.run_of(&head).await?;
        let place = self.inner.working.take(&head.origin.principal).ok();
        tracing::warn!(%job, deaths, "a job that died is taken up from its journal");
        self.spawn(head, run, toolbox, Vec::new(), Some(RunInput::Restarted), place).await
    }
}
