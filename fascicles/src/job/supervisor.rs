//! The supervisor of all jobs.

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::FascicleError;

/// The supervisor of all jobs. It outlives every job.
struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    // ractor's default stops the parent with any child. Here, a job that died is taken up again from its journal.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, cause) = event {
            tracing::error!(%cause, "a job died");
        }
        Ok(())
    }
}

/// Starts the supervisor.
pub(crate) async fn plant() -> Result<ActorCell, FascicleError> {
    let (supervisor, _) =
        Actor::spawn(None, Supervisor, ()).await.map_err(|error| FascicleError::Died(error.to_string()))?;
    Ok(supervisor.get_cell())
}
