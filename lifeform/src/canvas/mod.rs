//! Canvases: live documents that people and lifeforms write together. A canvas has one owner task and one revision
//! number. It takes typed ops and emits RFC 6902 patches (the protocol is in `runtime/src/api/ws/`).
//!
//! The rules of each kind are plain functions in a separate file ([`chat`], [`mind_map`]), behind the trait in
//! `kind.rs`. Order, durability, history and subscriptions are the same for all kinds.

pub mod chat;
mod edit;
mod fan_out;
mod handle;
mod json_patch_ops;
mod kind;
mod log;
pub mod mind_map;
mod owner;
mod presence;
mod rate_limit;
mod state;
pub(crate) mod user;
mod wake_on_write;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Principal, PrincipalId, Timestamp};

pub use edit::Edit;
pub(crate) use edit::called;
pub use fan_out::Lagging;
pub use handle::{Canvas, EphemeralFrame, Snapshot, Upload};
pub use kind::Kind;
pub(crate) use kind::Skill;
pub(crate) use log::undone;
pub use log::{Frame, Frames, Head as CanvasHead};
pub use owner::{Applied, WriteRequest};
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

/// An op on a canvas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Op {
    /// An op on a chat.
    Chat(chat::Op),
    /// An op on a mind map.
    Mind(mind_map::Op),
    /// An op on a canvas whose kind is made of data.
    Data(DataOp),
}

/// An op whose members its kind checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataOp {
    /// The wire name of the op.
    pub kind: Arc<str>,
    /// The other members.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

/// The lifeform that a canvas belongs to.
#[derive(Clone, Debug)]
pub struct Host {
    /// The id of the principal, `lifeform:{id}`.
    pub id: PrincipalId,
    /// The name of the lifeform.
    pub name: Arc<str>,
}

impl Host {
    /// Returns the host with the id of a lifeform and its name.
    pub fn new(lifeform: &str, name: &str) -> Self {
        Self { id: PrincipalId::new(format!("lifeform:{lifeform}")), name: name.into() }
    }
}

/// The context of an op for the rules.
#[derive(Clone, Copy, Debug)]
pub struct WriteContext<'a> {
    /// The lifeform that the canvas belongs to.
    pub host: &'a Host,
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

impl Op {
    /// Returns the name of the op on the wire.
    pub fn name(&self) -> &str {
        match self {
            Self::Chat(op) => op.name(),
            Self::Mind(op) => op.name(),
            Self::Data(op) => &op.kind,
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
    #[error("a chain of {0} acts on canvases, each caused by the one before, ends here")]
    Cascade(usize),
}

impl Refusal {
    /// Returns a refusal that names an invalid member.
    pub fn schema(path: impl ToString, message: impl ToString) -> Self {
        Self::Schema { path: path.to_string(), message: message.to_string() }
    }
}
