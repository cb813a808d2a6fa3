//! The values of a chat.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The rule that decides which lifeforms answer in a topic without a mention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Turns {
    /// The lifeform that a message mentions or replies to answers it, and otherwise the one whose canvas it is.
    #[default]
    Free,
    /// A lifeform answers only messages that mention it or reply to it.
    Mentioned,
    /// A lifeform answers only while no other lifeform is writing in the topic.
    OneAtATime,
}

/// The role of a principal in a topic. Without one, the role of the token applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicRole {
    /// May assign roles, change the topic, and interrupt messages.
    Moderator,
    /// May post messages.
    Speaker,
    /// May only read and react.
    Listener,
}

/// The stance of a lifeform in a topic: its part in a talk of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stance {
    /// Answers like others.
    #[default]
    Participant,
    /// Keeps the agenda, asks who is silent, sums up, and notes what is decided.
    Coordinator,
    /// Tells what it learned elsewhere, as far as all readers of the topic may hear it.
    Hub,
}

/// An attachment of a message, identified by the hash of its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The SHA-256 hash of the content in hexadecimal, from the response to the upload.
    pub hash: Arc<str>,
    /// The file name.
    pub name: String,
    /// The media type.
    pub media_type: String,
    /// The size in bytes.
    pub bytes: u64,
}
