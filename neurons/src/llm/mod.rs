//! Models behind one seam. A remote endpoint, the embedded engine and the scripted model of the tests
//! are all reached through async-openai over one tower service; nothing else knows a vendor.

mod abilities;
mod breaker;
#[cfg(feature = "embedded")]
pub mod embedded;
mod endpoint;
mod limits;
mod meaning;
mod openai;
pub mod paid;
mod repetition;
pub mod scripted;
pub mod tiers;
pub mod weights;
pub mod wire;

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use store::{Origin, PrincipalKind, Role, Turn, Wants};
use tokio::sync::mpsc;

pub use abilities::{Abilities, CompletionMode, JsonMode};
pub use endpoint::{Endpoint, Transport};
pub use limits::Limits;
pub use meaning::Meaning;
pub(crate) use openai::LISTENER_MAX;
pub use openai::OpenAi;
pub use tiers::{Model, Models, Price, Tier};
pub use wire::types::{ChatMessage, ChatRequest, Usage, WireFunction, WireToolCall};

/// The answer of a model.
#[derive(Clone, Debug, Default)]
pub struct ChatReply {
    /// The text; empty beside tool calls.
    pub text: String,
    /// The tool calls.
    pub tool_calls: Vec<WireToolCall>,
    /// The reason of the end.
    pub finish: String,
    /// The usage; `None` if the provider does not report it.
    pub usage: Option<Usage>,
}

/// A piece of an answer as it comes.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// More of its text.
    Text(String),
    /// More of a call it wants made; a first piece has an id and a name, each piece some of the arguments.
    ToolCall(WireToolCall),
    /// The text so far did not fit and is withdrawn; another answer follows.
    Again,
}

/// The reason why a model did not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LlmError {
    /// No model is configured or installed for what was asked.
    #[error("no model answers: {0}")]
    Unavailable(String),
    /// The provider asks to be called later, and said when or was asked often enough.
    #[error("{provider} is busy: {message}")]
    Busy {
        /// The provider.
        provider: String,
        /// The provider's message.
        message: String,
        /// The time for which the provider asked not to be called.
        retry_after: Option<Duration>,
    },
    /// The provider's quota is used up: it is left alone for a while.
    #[error("{provider} has no quota left: {message}")]
    Exhausted {
        /// The provider.
        provider: String,
        /// The provider's message.
        message: String,
    },
    /// The provider refused the request: repeating it would not help.
    #[error("{provider} refused ({status}): {message}")]
    Refused {
        /// The provider.
        provider: String,
        /// The HTTP status.
        status: u16,
        /// The provider's message.
        message: String,
    },
    /// The request never reached the provider.
    #[error("{provider} cannot be reached: {message}")]
    Unreachable {
        /// The provider.
        provider: String,
        /// The message.
        message: String,
    },
    /// Nobody listened any more; what the call used is unknown, and nothing is the provider's fault.
    #[error("the answer of {provider} was not heard: {message}")]
    Unheard {
        /// The provider.
        provider: String,
        /// The message.
        message: String,
    },
    /// The call was sent and what became of it is unknown: it may have been paid for.
    #[error("{provider} did not finish: {message}")]
    Broken {
        /// The provider.
        provider: String,
        /// The message.
        message: String,
    },
}

impl LlmError {
    /// Returns `true` if the provider may have done the work although no answer came.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::Unheard { .. })
    }

    /// Returns `true` if another model may answer instead: the request itself was not at fault.
    pub fn another_may_answer(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Unreachable { .. } | Self::Broken { .. } | Self::Exhausted { .. } => true,
            Self::Refused { status, .. } => matches!(status, 401 | 403 | 404),
            Self::Unavailable(_) | Self::Unheard { .. } => false,
        }
    }
}

/// The classes of calls, in the order in which a provider's turns are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A step of a lifeform's answer.
    Answer,
    /// An invocation, or a step of a job, that a person asked for.
    Invocation,
    /// A lifeform's own initiative: goals and schedules.
    Initiative,
    /// Background work: learning, compaction, maintenance.
    Afterthought,
}

impl Class {
    /// Returns the class of a call for `origin`, as far as its principal says.
    pub fn of(origin: &Origin) -> Self {
        match origin.principal.kind {
            PrincipalKind::System => Self::Afterthought,
            _ if origin.principal.may(Role::Lifeform) => Self::Answer,
            _ => Self::Invocation,
        }
    }

    /// Returns what a call of this class for `origin` wants of a provider.
    pub fn wants(self, origin: &Origin) -> Wants<Self> {
        let participant = origin.participant();
        let who = participant.unwrap_or(&origin.principal.id.0).clone();
        Wants { class: self, who, is_bound: participant.is_some() }
    }
}

/// A provider of models.
#[async_trait]
pub trait LlmProvider: Send + Sync + 'static {
    /// Returns the name in the configuration.
    fn name(&self) -> &str;

    /// Returns `true` if the last call of `model` got no answer: the provider is down, busy, without quota, or refuses
    /// the key (default: `false`, it is not known).
    fn is_failing(&self, model: &str) -> bool {
        let _ = model;
        false
    }

    /// Waits until the provider may be asked by a request of so many bytes. The turn is held until the answer is there;
    /// a call that waits for it has not been sent.
    async fn turn(&self, bytes: usize, wants: Wants<Class>) -> Result<Option<Turn<Class>>, LlmError> {
        let _ = (bytes, wants);
        Ok(None)
    }

    /// Asks for an answer. With `deltas` the answer is streamed and each piece is sent there as
    /// it comes; a receiver that went away stops the stream.
    async fn chat(&self, request: ChatRequest, deltas: Option<mpsc::Sender<Delta>>) -> Result<ChatReply, LlmError>;

    /// The embeddings of texts by `model`, in order, each of the same length, and what that used.
    async fn embed(&self, model: &str, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Option<Usage>), LlmError>;

    /// The models it has, as it names them.
    async fn models(&self) -> Result<Vec<String>, LlmError>;
}
