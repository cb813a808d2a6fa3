//! Restarts of jobs whose actor died by a panic or an error: from the journal, as after a restart of the daemon. When,
//! and how often, [`Deaths`] decides.

use std::collections::HashMap;
use std::sync::Arc;

use neurons::actors::Deaths;
use store::Clock;
use tokio::sync::mpsc;

use super::{Fascicles, WeakFascicles};
use crate::run::RunInput;
use crate::{FascicleError, JobId};

/// The number of jobs whose deaths are counted. Above it, the counts of calm jobs are dropped, and if there are none,
/// all.
const COUNTED_MAX: usize = 1_024;

/// Restarts the jobs that `died` names, until the daemon's last handle is gone.
pub(super) async fn restart_dead_jobs(
    fascicles: WeakFascicles,
    clock: Arc<dyn Clock>,
    mut died: mpsc::UnboundedReceiver<JobId>,
) {
    let mut counted: HashMap<JobId, Deaths> = HashMap::new();
    while let Some(job) = died.recv().await {
        let now = clock.now();
        if counted.len() >= COUNTED_MAX && !counted.contains_key(&job) {
            counted.retain(|_, deaths| !deaths.is_over(now));
            if counted.len() >= COUNTED_MAX {
                counted.clear();
            }
        }
        let deaths = counted.entry(job.clone()).or_default();
        let pause = deaths.another(now);
        let (count, fascicles, clock) = (deaths.in_a_row(), fascicles.clone(), clock.clone());
        if pause.is_none() {
            counted.remove(&job);
        }
        tokio::spawn(async move {
            clock.until(now + pause.unwrap_or_default()).await;
            let Some(fascicles) = fascicles.upgrade() else { return };
            let taken_up = match pause {
                Some(_) => fascicles.restart(&job, count).await,
                None => fascicles.give_up(&job, count).await,
            };
            if let Err(error) = taken_up {
                tracing::error!(%job, %error, "job not resumed before the next start");
            }
        });
    }
}

impl Fascicles {
    /// Fails a job whose actor died too often.
    async fn give_up(&self, job: &JobId, deaths: u32) -> Result<(), FascicleError> {
        let head = self.job(job).await?;
        // It may have been cancelled meanwhile.
        match head.status.is_final() {
            true => Ok(()),
            false => self.end(head, RunInput::GivenUp(format!("its actor died {deaths} times"))).await,
        }
    }

    /// Takes up a job whose actor died.
    async fn restart(&self, job: &JobId, deaths: u32) -> Result<(), FascicleError> {
        let _one = self.inner.taking_up.lock().await;
        let head = self.job(job).await?;
        // Without a toolbox, the owner has stopped; its jobs are resumed with it.
        let toolbox = self.inner.toolboxes().get(&head.owner).cloned();
        let Some(toolbox) = toolbox.filter(|_| !head.status.is_final()) else { return Ok(()) };
        if self.inner.running().contains_key(job) {
            return Ok(());
        }
        let run = self.run_of(&head).await?;
        let place = self.inner.working_place(&head).ok();
        tracing::warn!(%job, deaths, "a job whose actor died is resumed from its journal");
        self.spawn(head, run, toolbox, Vec::new(), Some(RunInput::Restarted), place).await
    }
}
