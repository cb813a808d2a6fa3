//! Canvases: live documents that people and lifeforms write together. One owner, one revision number,
//! typed ops in, RFC 6902 patches out (MISSION L7; the protocol is in `runtime/src/api/ws.rs`).

pub mod chat;
mod owner;

use std::sync::Arc;

pub use owner::{Applied, Canvas, Frames, Snapshot};

/// Names a canvas within its lifeform.
pub type CanvasId = Arc<str>;
/// The chat canvas every lifeform has.
pub const CHAT: &str = "canvas_chat_main";

/// Why an op was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Something it names does not exist.
    #[error("{0} does not exist")]
    Missing(String),
    /// Something it makes exists already.
    #[error("{0} exists already")]
    Exists(String),
    /// A member is not as it must be.
    #[error("{path}: {message}")]
    Schema {
        /// Which member.
        path: &'static str,
        /// What is wrong.
        message: String,
    },
    /// It is another's.
    #[error("{0}")]
    Forbidden(String),
    /// The message is in a state that does not allow it.
    #[error("{0}")]
    State(String),
    /// The writer looked at an older revision of what it changes.
    #[error("it was changed at revision {now}, after revision {base} that you saw")]
    Stale {
        /// What the writer saw.
        base: u64,
        /// What there is.
        now: u64,
    },
}
