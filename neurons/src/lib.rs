//! Neurons: typed units of thought over language models (MISSION rows N1–N5).
//!
//! [`Neurons`] is the handle: definitions, `invoke` and `continue`. [`llm`] is the one way to a model,
//! remote, embedded or scripted, and [`llm::paid`] the one way to pay for it.

mod actor;
mod calls;
mod conclusion;
pub mod continuation;
pub mod conversation;
mod history;
mod invocation;
mod invocations;
pub mod kinds;
pub mod llm;
pub mod neuron;
mod neurons;
mod retention;
mod schema_cost;
pub mod spec;
pub mod tools;

use std::sync::Arc;

use store::PrincipalId;

pub use history::Version;
pub use invocation::{Answer, Stop};
pub use invocations::{Invocation, InvocationStatus, InvokeOptions, Invoked};
pub use llm::{LlmError, Models, Tier};
pub use neurons::{CallOptions, HOUSE, Neurons, Thought};
pub use spec::{NeuronId, NeuronSpec};

/// The reason why a neuron did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NeuronError {
    /// Nobody defined it.
    #[error("neuron {0} not found")]
    NotFound(NeuronId),
    /// A call that needs an approval is approved by the person who made it, or an operator.
    #[error("a lifeform does not approve its own calls: an operator does")]
    NotApprover,
    /// Only its owner and operators change it.
    #[error("neuron {0} belongs to {1}")]
    NotOwner(NeuronId, PrincipalId),
    /// There is no version of this number, or it is older than the history.
    #[error("neuron {0} has no version {1}")]
    NoVersion(NeuronId, u64),
    /// The id is taken.
    #[error("neuron {0} exists already")]
    Exists(NeuronId),
    /// The definition is malformed.
    #[error("{0}")]
    Spec(String),
    /// The input is not of the kind's shape.
    #[error("{0}")]
    Input(String),
    /// The model's output cannot be made sense of.
    #[error("the neuron gave no usable output: {0}")]
    Output(String),
    /// No paused call goes by this token for this neuron and principal.
    #[error("no call waits under this token")]
    NoContinuation,
    /// The paused call was given up.
    #[error("this call waited too long for its results")]
    Expired,
    /// The same results are being worked on right now.
    #[error("this call is being continued right now")]
    InFlight,
    /// The results are not the ones asked for.
    #[error("{0}")]
    Results(String),
    /// There is no such invocation, or it belongs to another principal.
    #[error("there is no invocation {0}")]
    NoInvocation(Arc<str>),
    /// The key was used for another call.
    #[error("this Idempotency-Key was used for another call")]
    KeyReused,
    /// Somebody stopped it.
    #[error("this call was cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("the call did not end within its deadline")]
    Deadline,
    /// The daemon stopped twice while its model was being asked.
    #[error(
        "the daemon stopped twice while this call was under way, and nobody knows what became of it; it is not made a third time"
    )]
    Lost,
    /// No model goes by that name.
    #[error("{0}")]
    NoModel(String),
    /// A server of tools cannot be reached.
    #[error("{0}")]
    Tools(String),
    /// A tool that a fascicle called brought nothing.
    #[error("{why}")]
    ToolFailed {
        /// The reason.
        why: String,
        /// `true` if the call may be repeated.
        repeatable: bool,
    },
    /// Too much is running.
    #[error("too many neurons are running")]
    Overloaded,
    /// Too much of the caller's is running.
    #[error("too many neurons of yours are running: wait for some, or cancel them")]
    Share,
    /// The actor ended without an answer.
    #[error("the neuron died: {0}")]
    Died(String),
    /// The model did not answer.
    #[error(transparent)]
    Llm(#[from] LlmError),
    /// The store or the ledger refused.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

/// Names an account of the ledger.
pub type AccountId = Arc<str>;

impl From<store::NoPlace> for NeuronError {
    fn from(why: store::NoPlace) -> Self {
        match why {
            store::NoPlace::Share => Self::Share,
            store::NoPlace::All => Self::Overloaded,
        }
    }
}
