//! Canvases: live documents that people and lifeforms write together. A canvas has one owner task and one revision
//! number. It takes typed ops and emits RFC 6902 patches (the protocol is in `runtime/src/api/ws/`).
//!
//! The rules of each kind are plain functions in a separate file ([`chat`], [`mind_map`]). Order, durability, history
//! and subscriptions are the same for all kinds.

pub mod chat;
mod edit;
mod fan_out;
mod handle;
mod json_patch_ops;
mod log;
pub mod mind_map;
mod owner;
mod presence;
mod rate_limit;
mod state;
mod wake_on_write;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Principal, Timestamp};

pub use edit::Edit;
pub(crate) use edit::called;
pub use fan_out::HeldUp;
pub use handle::{Canvas, Kept, Shown, Snapshot};
pub(crate) use log::undone;
pub use log::{Frame, Frames, Head as CanvasHead};
pub use owner::{Applied, What};
pub use presence::Present;
pub use rate_limit::Limits;
pub use state::{Misfit, State, Touched, escape, with_lists};
pub use wake_on_write::UnloadedMembers;

/// The id of a canvas within its lifeform.
pub type CanvasId = Arc<str>;
/// The id of the chat canvas that every lifeform has.
pub const CHAT: &str = "canvas_chat_main";
/// The maximum number of ops in one request. They are applied all or none.
pub const OPS_AT_ONCE: usize = 100;
/// The maximum size of an entity, for example a message with its complete history, in bytes.
pub const ENTITY_BYTES_MAX: usize = 1 << 20;
/// The maximum length of a chain of canvas entries that cause each other. The next op of a lifeform is refused.
pub const HOPS_MAX: usize = 8;

/// The kind of a canvas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = CanvasKind)]
pub enum Kind {
    /// A chat (`zChat`): users, topics, messages.
    #[default]
    Chat,
    /// A mind map (`zMind`): a tree of nodes, links between them, comments, proposals.
    ZMind,
}

/// An op on a canvas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Op {
    /// An op on a chat.
    Chat(chat::Op),
    /// An op on a mind map.
    Mind(mind_map::Op),
}

/// The context of an op for the rules.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The writer.
    pub who: &'a Principal,
    /// The revision that the writer saw, if it guards the op.
    pub base: Option<u64>,
    /// The first revision of this write. Changes by the write's own ops cause no conflict.
    pub first: u64,
    /// The revision of the op.
    pub rev: u64,
    /// The time.
    pub at: Timestamp,
}

impl Kind {
    /// Returns the name of the kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::ZMind => "zmind",
        }
    }

    /// Returns an empty canvas of this kind.
    pub fn empty(self) -> State {
        match self {
            Self::Chat => State::empty(chat::COLLECTIONS),
            Self::ZMind => State::empty(mind_map::COLLECTIONS),
        }
    }

    /// Returns the names of the ops of this kind.
    pub fn ops(self) -> &'static [&'static str] {
        match self {
            Self::Chat => chat::OPS,
            Self::ZMind => mind_map::OPS,
        }
    }

    /// Parses an op.
    ///
    /// # Errors
    /// [`Refusal::Schema`] names the invalid member.
    pub fn read(self, op: Value) -> Result<Op, Refusal> {
        let name = op["kind"].as_str().unwrap_or_default();
        if !self.ops().contains(&name) {
            let message = format!("a {} takes {}, not \"{name}\"", self.as_str(), self.ops().join(", "));
            return Err(Refusal::schema("kind", message));
        }
        let read = match self {
            Self::Chat => serde_json::from_value(op).map(Op::Chat),
            Self::ZMind => serde_json::from_value(op).map(Op::Mind),
        };
        read.map_err(|error| Refusal::schema("op", error))
    }

    /// Returns the change that `op` makes to `state`, by the rules of this kind.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub fn decide(self, state: &State, op: &Op, ask: &Ask) -> Result<Edit, Refusal> {
        match (self, op) {
            (Self::Chat, Op::Chat(op)) => chat::decide(state, op, ask),
            (Self::ZMind, Op::Mind(op)) => mind_map::decide(state, op, ask),
            _ => Err(Refusal::schema("kind", format!("it is no op of a {}", self.as_str()))),
        }
    }
}

impl Op {
    /// Returns the name of the op on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Chat(op) => op.name(),
            Self::Mind(op) => op.name(),
        }
    }
}

impl From<mind_map::Op> for Op {
    fn from(op: mind_map::Op) -> Self {
        Self::Mind(op)
    }
}

impl From<chat::Op> for Op {
    fn from(op: chat::Op) -> Self {
        Self::Chat(op)
    }
}

/// The reason for which an op is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The op names an entity that does not exist.
    #[error("{0} does not exist")]
    Missing(String),
    /// The op creates an entity that already exists.
    #[error("{0} exists already")]
    Exists(String),
    /// A member of the op is invalid.
    #[error("{path}: {message}")]
    Schema {
        /// The path of the member.
        path: String,
        /// The message.
        message: String,
    },
    /// The entity belongs to another principal.
    #[error("{0}")]
    Forbidden(String),
    /// The state of the entity does not allow the op.
    #[error("{0}")]
    State(String),
    /// The writer saw an older revision of the changed entity.
    #[error("it was changed at revision {now}, after revision {base} that you saw")]
    Stale {
        /// The revision that the writer saw.
        base: u64,
        /// The present revision.
        now: u64,
        /// The present entity.
        current: Arc<Value>,
    },
    /// The principal does too much in too short a time.
    #[error("{0}")]
    Rate(String),
    /// The chain of causes is too long.
    #[error("this came about by {0} acts on canvases, each because of the one before: it goes no further")]
    Cascade(usize),
}

impl Refusal {
    /// Returns a refusal that names an invalid member.
    pub fn schema(path: impl ToString, message: impl ToString) -> Self {
        Self::Schema { path: path.to_string(), message: message.to_string() }
    }
}
