//! Supervision of lifeforms: a lifeform whose actor died is started again from its journals. When, and how often,
//! [`Deaths`](neurons::actors::Deaths) decides.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;
use store::{Expect, Origin, Timestamp};

use super::{Inner, Lifeforms};
use crate::LifeformError;
use crate::guard::{Guard, Step};
use crate::life::{Handle, Head, Status};
use crate::perception::Passed;
use crate::spec::LifeformId;
use crate::wake_queue::WakeQueue;

impl Inner {
    /// Counts the death of a lifeform's actor and returns the pause before its restart; `None` if it is not restarted.
    fn count_death(&self, id: &LifeformId, now: Timestamp) -> Option<SignedDuration> {
        let mut deaths = self.deaths();
        deaths.retain(|_, deaths| !deaths.is_over(now));
        deaths.entry(id.clone()).or_default().another(now)
    }
}

impl Lifeforms {
    /// Returns the changes of canvases that a lifeform passed over since it was woken; none if it is asleep.
    pub fn passed_over(&self, id: &LifeformId) -> Passed {
        self.inner.alive().get(id).map(Handle::passed).unwrap_or_default()
    }

    /// Restarts a lifeform whose actor failed. A stopped lifeform is no longer registered and is not restarted. A
    /// lifeform that fell asleep is woken if it was called at the same moment.
    pub(super) fn supervise(&self, id: LifeformId, handle: Handle) {
        let this = self.clone();
        tokio::spawn(async move {
            handle.ended().await;
            let is_registered = || this.inner.alive().get(&id).is_some_and(|registered| !registered.is_alive());
            if handle.is_asleep() {
                {
                    // A concurrent wake-up must not be unregistered by this.
                    let _one = this.lifecycle_lock(&id).await;
                    if is_registered() {
                        this.inner.heartbeat.stop(&id);
                        this.inner.alive().remove(&id);
                    }
                }
                // An entry of the agenda may have become due while the lifeform fell asleep.
                this.inner.alarm.changed();
                if let Ok(Some(_)) = this.inner.store.document::<LifeformId>(&WakeQueue::awake(&id)).await {
                    this.inner.alarm.call(&id);
                }
                return;
            }
            // A lifeform that its guard stopped is not restarted.
            {
                let _one = this.lifecycle_lock(&id).await;
                if let Ok(Some(head)) = this.inner.store.document::<Head>(&Head::key(&id)).await
                    && head.value.status == Status::Stopped
                    && is_registered()
                {
                    this.inner.heartbeat.stop(&id);
                    this.inner.alive().remove(&id);
                }
            }
            // A stopped or halted lifeform is no longer registered, so this one died.
            if !is_registered() {
                return;
            }
            let clock = this.inner.store.clock().clone();
            let now = clock.now();
            let Some(pause) = this.inner.count_death(&id, now) else {
                return this.give_up(&id).await;
            };
            clock.until(now + pause).await;
            let mut wait = Duration::from_secs(1);
            while is_registered() {
                match Box::pin(this.wake_or_unmark(&id)).await {
                    Ok(()) => break,
                    Err(error) => tracing::error!(lifeform = %id, %error, "restart of a lifeform failed, retrying"),
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(60));
            }
        });
    }

    /// Stops a lifeform whose actor died too often, until a person starts it. Its guard shows why.
    async fn give_up(&self, id: &LifeformId) {
        tracing::error!(lifeform = %id, "its actor died too often in a row: it is stopped until a person starts it");
        let _one = self.lifecycle_lock(id).await;
        self.inner.heartbeat.stop(id);
        self.inner.alive().remove(id);
        let deaths = self.inner.deaths().remove(id).unwrap_or_default().in_a_row();
        let stopped = async {
            let (mut head, version) = self.versioned(id).await?;
            let (since, evidence) = (Some(self.inner.store.clock().now()), json!({"actor_deaths": deaths}));
            head.status = Status::Stopped;
            head.guard = Guard { step: Step::Stop, since, evidence, ..Guard::default() };
            let change = head.change(Expect::Version(version), &Origin::system("supervision"), "stopped");
            self.inner.store.commit_at_last(change).await?;
            Ok::<(), LifeformError>(())
        };
        if let Err(error) = stopped.await {
            tracing::error!(lifeform = %id, %error, "its stop cannot be stored");
        }
    }
}
