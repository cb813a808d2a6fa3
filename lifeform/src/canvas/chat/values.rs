//! Values of a chat.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The lifeforms that answer in a topic without a mention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// Whoever has something to say.
    #[default]
    Free,
    /// A lifeform answers only where it is mentioned or replied to.
    Mentioned,
    /// A lifeform waits until no other one is writing.
    OneAtATime,
}

/// The role of a principal in a topic; without one, the token decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicRole {
    /// Gives roles, changes the topic, breaks off any message.
    Moderator,
    /// Talks.
    Speaker,
    /// Only reads and reacts.
    Listener,
}

/// Something a message carries, by the hash of its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// SHA-256 of the bytes, in hexadecimal, as the upload answered it.
    pub hash: Arc<str>,
    /// The file name.
    pub name: String,
    /// The media type.
    pub media_type: String,
    /// The size in bytes.
    pub bytes: u64,
}
