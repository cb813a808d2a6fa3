//! The only ractor actors of this crate. Each invocation is a short-lived actor under one supervisor, so a panic of a
//! neuron fails only its own call.

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::oneshot;

use crate::NeuronError;
use crate::conversation::Conversation;
use crate::invocation::{Run, Spent, Stop};
use crate::neuron::FirstStep;

/// The outcome of a run, and the conversation after it.
pub(crate) struct Outcome {
    pub(crate) stop: Result<Stop, NeuronError>,
    pub(crate) talk: Conversation,
    pub(crate) spent: Spent,
}

/// The supervisor of all invocations. It outlives its children.
struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    // ractor's default stops the parent with any child. Here, the end of an invocation is normal.
    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, cause) = event {
            tracing::error!(%cause, "a neuron died");
        }
        Ok(())
    }
}

/// The actor of one invocation. It handles one message and stops.
struct NeuronActor;

/// The arguments that an invocation starts with.
type Start = (Run, FirstStep, Conversation, oneshot::Sender<Outcome>);

impl Actor for NeuronActor {
    type Msg = ();
    type State = Option<Start>;
    type Arguments = Start;

    async fn pre_start(&self, me: ActorRef<()>, start: Start) -> Result<Option<Start>, ActorProcessingErr> {
        me.cast(())?;
        Ok(Some(start))
    }

    // Awaiting a model inside a handler is acceptable only here, because this actor has only one message to handle.
    async fn handle(&self, me: ActorRef<()>, (): (), state: &mut Option<Start>) -> Result<(), ActorProcessingErr> {
        if let Some((run, begun, mut talk, mut reply)) = state.take() {
            let mut spent = Spent::default();
            let stop = tokio::select! {
                // A run without a waiting receiver must not start another step.
                biased;
                // If the caller is dropped, the run ends. A running paid call settles itself.
                () = reply.closed() => None,
                stop = run.drive(begun, &mut talk, &mut spent) => Some(stop),
            };
            if let Some(stop) = stop {
                let _ = reply.send(Outcome { stop, talk, spent });
            }
        }
        me.stop(None);
        Ok(())
    }
}

/// The handle that starts invocations.
#[derive(Clone)]
pub(crate) struct Tree(ActorCell);

impl Tree {
    pub(crate) async fn plant() -> Result<Self, NeuronError> {
        let (supervisor, _) =
            Actor::spawn(None, Supervisor, ()).await.map_err(|error| NeuronError::Died(error.to_string()))?;
        Ok(Self(supervisor.get_cell()))
    }

    pub(crate) async fn run(&self, run: Run, begun: FirstStep, talk: Conversation) -> Result<Outcome, NeuronError> {
        let (reply, outcome) = oneshot::channel();
        Actor::spawn_linked(None, NeuronActor, (run, begun, talk, reply), self.0.clone())
            .await
            .map_err(|error| NeuronError::Died(error.to_string()))?;
        outcome.await.map_err(|_| NeuronError::Died("it stopped without an answer".into()))
    }
}
