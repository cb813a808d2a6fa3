//! The handle on the actor of a running job.

use neurons::actors::{named, running_children, view};
use ractor::{Actor, ActorCell, ActorRef, ActorStatus};
use tokio::sync::oneshot;

use super::{JobActor, JobArgs, JobMsg};
use crate::FascicleError;
use crate::run::{Answer, Step};

/// A handle on a running job.
#[derive(Clone)]
pub(crate) struct Handle(ActorRef<JobMsg>);

impl Handle {
    pub(crate) async fn spawn(args: JobArgs, supervisor: ActorCell) -> Result<Self, FascicleError> {
        let name = named("job", &args.head.id);
        let (job, _) = Actor::spawn_linked(Some(name), JobActor, args, supervisor)
            .await
            .map_err(|error| FascicleError::Died(error.to_string()))?;
        Ok(Self(job))
    }

    pub(crate) async fn cancel(&self) {
        let (done, finished) = oneshot::channel();
        if self.0.cast(JobMsg::Cancel(done)).is_ok() {
            let _ = finished.await;
        }
    }

    /// Answers a wait. Returns `None` if the job has ended meanwhile.
    pub(crate) async fn answer(&self, wait: u32, body: String, answer: Answer) -> Option<Result<(), FascicleError>> {
        let (reply, answered) = oneshot::channel();
        self.0.cast(JobMsg::Answer { wait, body, answer, reply }).ok()?;
        answered.await.ok()
    }

    /// Suspends the job without an entry in the journal, and waits until the actor has stopped. The next start resumes
    /// it.
    pub(crate) async fn halt(&self) {
        if self.0.cast(JobMsg::Halt).is_ok() {
            let _ = self.0.wait(None).await;
        }
    }

    /// Returns the paths of the steps that run now.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = running_children(&self.0).iter().map(|step| view(step).id.into()).collect();
        steps.sort();
        steps
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.get_status() > ActorStatus::Upgrading
    }
}
