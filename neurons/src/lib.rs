//! Neurons: typed units of thought over language models (MISSION rows N1–N5).
//!
//! [`Neurons`] is the handle, with definitions, `invoke` and `continue`. All access to a model, remote, embedded or
//! scripted, goes through [`llm`], and all payment goes through [`llm::paid`].

pub mod actors;
mod choosing;
mod conclusion;
pub mod continuation;
pub mod conversation;
pub mod definition_quota;
mod effects;
mod history;
mod invocation;
mod invocations;
pub mod kinds;
pub mod llm;
mod nearest;
pub mod neuron;
mod neurons;
mod retention;
mod schema_cost;
pub mod spec;
mod tool_calls;
pub mod tools;

use std::sync::Arc;

use store::PrincipalId;

pub use effects::effects_key;
pub use history::Version;
pub use invocation::{Answer, Stop};
pub use invocations::{Invocation, InvocationStatus, InvokeOptions, Invoked};
pub use llm::{LlmError, Models, Tier};
pub use neurons::{CallOptions, HOUSE, NeuronReply, Neurons};
pub use spec::{NeuronId, NeuronSpec};

/// The reason why a neuron did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NeuronError {
    /// The neuron does not exist.
    #[error("neuron {0} not found")]
    NotFound(NeuronId),
    /// A lifeform tried to approve a call of its own.
    #[error("a lifeform does not approve its own calls: an operator does")]
    NotApprover,
    /// The caller is neither the owner of the neuron nor an operator.
    #[error("neuron {0} belongs to {1}")]
    NotOwner(NeuronId, PrincipalId),
    /// The neuron has no version of this number, or the version is older than its history.
    #[error("neuron {0} has no version {1}")]
    NoVersion(NeuronId, u64),
    /// The id is taken.
    #[error("neuron {0} exists already")]
    Exists(NeuronId),
    /// The definition is malformed.
    #[error("{0}")]
    Spec(String),
    /// The input does not have the form of the neuron's kind.
    #[error("{0}")]
    Input(String),
    /// The model's output cannot be interpreted.
    #[error("the neuron gave no usable output: {0}")]
    Output(String),
    /// No paused call of this neuron and principal has this token.
    #[error("no paused call has this token")]
    NoContinuation,
    /// The paused call has expired.
    #[error("this call waited too long for its results")]
    Expired,
    /// Another request is continuing the call with the same results.
    #[error("this call is being continued right now")]
    InFlight,
    /// The results do not match the requested calls.
    #[error("{0}")]
    Results(String),
    /// The invocation does not exist, or belongs to another principal.
    #[error("there is no invocation {0}")]
    NoInvocation(Arc<str>),
    /// The idempotency key was used for a different call.
    #[error("this Idempotency-Key was used for another call")]
    KeyReused,
    /// A principal cancelled the call.
    #[error("this call was cancelled")]
    Cancelled,
    /// The deadline of the call has passed.
    #[error("the call did not end within its deadline")]
    Deadline,
    /// The daemon stopped twice during a model call of this invocation.
    #[error("the daemon stopped twice during this call, whose outcome is unknown; it is not made a third time")]
    Lost,
    /// No model has this name.
    #[error("{0}")]
    NoModel(String),
    /// There is no named tool with this id.
    #[error("there is no named tool {0}")]
    NoTool(Arc<str>),
    /// Only operators define named tools.
    #[error("named tools are defined by operators")]
    NotOperator,
    /// The configuration defines the named tool, so the API cannot change it.
    #[error("the configuration defines the tool {0}: change it there")]
    Configured(Arc<str>),
    /// A tool server cannot be reached.
    #[error("{0}")]
    Tools(String),
    /// A tool call of a fascicle failed.
    #[error("{why}")]
    ToolFailed {
        /// The reason.
        why: String,
        /// `true` if the call may be repeated.
        repeatable: bool,
    },
    /// The caller has another token with more rights, which its definitions would run with.
    #[error("{0} has a token with more rights, and what it defines runs with them: define it with that one")]
    LesserToken(PrincipalId),
    /// The caller has the maximum number of stored definitions.
    #[error("{0} definitions of yours are stored, which is the most: delete one first")]
    TooManyDefinitions(u64),
    /// The maximum number of running invocations is reached.
    #[error("too many neurons are running")]
    Overloaded,
    /// The maximum number of running invocations of one caller is reached.
    #[error("too many neurons of yours are running: wait for some, or cancel them")]
    Share,
    /// The actor ended without an answer.
    #[error("the neuron died: {0}")]
    Died(String),
    /// The model did not answer.
    #[error(transparent)]
    Llm(#[from] LlmError),
    /// The store or the ledger returned an error.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

impl From<definition_quota::Refused> for NeuronError {
    fn from(why: definition_quota::Refused) -> Self {
        match why {
            definition_quota::Refused::TooMany(max) => Self::TooManyDefinitions(max),
            definition_quota::Refused::Store(error) => Self::Store(error),
        }
    }
}

impl From<store::NoPlace> for NeuronError {
    fn from(why: store::NoPlace) -> Self {
        match why {
            store::NoPlace::Share => Self::Share,
            store::NoPlace::All => Self::Overloaded,
        }
    }
}
