//! Access to language models. A remote endpoint, the embedded engine and the scripted model of the tests are all
//! reached through async-openai over one tower service. No other module depends on a vendor.

mod abilities;
mod breaker;
#[cfg(feature = "embedded")]
pub mod embedded;
mod embedder;
mod endpoint;
mod limits;
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
pub use embedder::Meaning;
pub use endpoint::{Endpoint, Transport};
pub use limits::Limits;
pub(crate) use openai::LISTENER_MAX;
pub use openai::OpenAi;
pub use tiers::{Model, ModelTraits, Models, Price, Tier};
pub use wire::types::{ChatMessage, ChatRequest, Usage, WireFunction, WireToolCall};

/// The answer of a model.
#[derive(Clone, Debug, Default)]
pub struct ChatReply {
    /// The text; empty beside tool calls.
    pub text: String,
    /// The tool calls.
    pub tool_calls: Vec<WireToolCall>,
    /// The reason for the end of the answer.
    pub finish: String,
    /// The usage; `None` if the provider does not report it.
    pub usage: Option<Usage>,
}

/// A part of a streamed answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// The next part of the text.
    Text(String),
    /// A part of a tool call. The first part has an id and a name; each part has a piece of the arguments.
    ToolCall(WireToolCall),
    /// The text so far was rejected and is withdrawn; another answer follows.
    Again,
}

/// The reason why a model did not answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LlmError {
    /// No model is configured or installed for the request.
    #[error("no model answers: {0}")]
    Unavailable(String),
    /// The provider is rate-limited or overloaded, and all retries are used up or the requested delay is too long.
    #[error("{provider} is busy: {message}")]
    Busy {
        /// The provider.
        provider: String,
        /// The provider's message.
        message: String,
        /// The delay that the provider requested; `None` if it named none.
        retry_after: Option<Duration>,
    },
    /// The provider's quota is exhausted; its models pause for a while.
    #[error("{provider} has no quota left: {message}")]
    Exhausted {
        /// The provider.
        provider: String,
        /// The provider's message.
        message: String,
    },
    /// The provider refused the request; a repetition would not help.
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
    /// The receiver of the answer disconnected. The usage is unknown, and the provider is not at fault.
    #[error("the answer of {provider} was not heard: {message}")]
    Unheard {
        /// The provider.
        provider: String,
        /// The message.
        message: String,
    },
    /// The call was sent, and its outcome is unknown; it may have cost money.
    #[error("{provider} did not finish: {message}")]
    Broken {
        /// The provider.
        provider: String,
        /// The message.
        message: String,
    },
}

impl LlmError {
    /// Returns `true` if the provider may have processed the request although no answer arrived.
    pub fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Broken { .. } | Self::Unheard { .. })
    }

    /// Returns `true` if a fallback model may answer instead: the request itself was not at fault.
    pub fn another_may_answer(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Unreachable { .. } | Self::Broken { .. } | Self::Exhausted { .. } => true,
            Self::Refused { status, .. } => matches!(status, 401 | 403 | 404),
            Self::Unavailable(_) | Self::Unheard { .. } => false,
        }
    }
}

/// The classes of calls, in descending order of priority for a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A step of a lifeform's answer.
    Answer,
    /// An invocation or a job step that a person requested.
    Invocation,
    /// A goal or schedule of a lifeform, without a request by a person.
    Initiative,
    /// Background work: learning, compaction, maintenance.
    Afterthought,
}

impl Class {
    /// Returns the class of a call for `origin`, derived from its principal.
    pub fn of(origin: &Origin) -> Self {
        match origin.principal.kind {
            PrincipalKind::System => Self::Afterthought,
            _ if origin.principal.may(Role::Lifeform) => Self::Answer,
            _ => Self::Invocation,
        }
    }

    /// Returns the scheduling parameters of a call of this class for `origin`.
    pub fn wants(self, origin: &Origin) -> Wants<Self> {
        let participant = origin.participant();
        let who = participant.unwrap_or(&origin.principal.id.0).clone();
        Wants { class: self, who, is_bound: participant.is_some() }
    }
}

/// A provider of language models.
#[async_trait]
pub trait LlmProvider: Send + Sync + 'static {
    /// Returns the name in the configuration.
    fn name(&self) -> &str;

    /// Returns `true` if the last call of `model` failed: the provider is down, overloaded, without quota, or refuses
    /// the key. Default: `false`, for providers without this information.
    fn is_failing(&self, model: &str) -> bool {
        let _ = model;
        false
    }

    /// Waits until the provider accepts a request of `bytes` bytes. The caller holds the returned turn until the answer
    /// arrives. A call that still waits for its turn has not been sent.
    async fn turn(&self, bytes: usize, wants: Wants<Class>) -> Result<Option<Turn<Class>>, LlmError> {
        let _ = (bytes, wants);
        Ok(None)
    }

    /// Requests an answer. With `deltas`, the answer is streamed and each part is sent there. If the receiver is
    /// dropped, the stream stops.
    async fn chat(&self, request: ChatRequest, deltas: Option<mpsc::Sender<Delta>>) -> Result<ChatReply, LlmError>;

    /// Returns the embeddings of texts by `model`, in the order of the texts and of equal length, and the usage.
    async fn embed(&self, model: &str, texts: Vec<String>) -> Result<(Vec<Vec<f32>>, Option<Usage>), LlmError>;

    /// Returns the names of the provider's models.
    async fn models(&self) -> Result<Vec<String>, LlmError>;
}
