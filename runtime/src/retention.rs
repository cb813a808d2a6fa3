//! The removal of old records, once an hour, and of unused canvases from memory, once a minute.

use std::sync::Arc;

use fascicles::Fascicles;
use jiff::SignedDuration;
use lifeform::Lifeforms;
use neurons::Neurons;
use store::Clock;

use crate::config::Keep;

/// The interval of removals.
const EVERY: SignedDuration = SignedDuration::from_hours(1);

/// The interval at which unused canvases are evicted.
const EVICT_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// Evicts unused canvases from memory, once a minute.
pub(crate) async fn evict(clock: Arc<dyn Clock>, lifeforms: Lifeforms) {
    loop {
        clock.until(clock.now() + EVICT_EVERY).await;
        lifeforms.evict_idle_canvases();
    }
}

/// Removes records that are older than the configured retention, now and once an hour.
pub(crate) async fn run(keep: Keep, clock: Arc<dyn Clock>, neurons: Neurons, fascicles: Fascicles) {
    let days = |days: u32| (days > 0).then(|| SignedDuration::from_hours(24 * i64::from(days)));
    loop {
        let now = clock.now();
        if let Some(kept) = days(keep.jobs_days) {
            match fascicles.prune(now - kept).await {
                Ok(0) => {}
                Ok(jobs) => tracing::info!(jobs, "jobs that ended long ago are gone"),
                Err(error) => tracing::warn!(%error, "old jobs cannot be removed"),
            }
        }
        if let Some(kept) = days(keep.invocations_days) {
            match neurons.prune(now - kept).await {
                Ok(0) => {}
                Ok(invocations) => tracing::info!(invocations, "invocations that ended long ago are gone"),
                Err(error) => tracing::warn!(%error, "old invocations cannot be removed"),
            }
        }
        clock.until(now + EVERY).await;
    }
}
