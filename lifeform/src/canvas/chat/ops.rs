//! The ops on a chat, as they are on the wire.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{PrincipalId, Timestamp};

use super::{Attachment, Stance, TopicRole, Turns};

/// The name of the op that removes a message permanently.
pub(super) const PURGE: &str = "message.purge";
/// The wire names of the ops.
pub(super) const OPS: &[&str] = &[
    "user.name",
    "topic.create",
    "topic.edit",
    "topic.role",
    "topic.stance",
    "topic.pin",
    "topic.read",
    "topic.summarize",
    "message.append",
    "message.stream_open",
    "message.reopen",
    "message.checkpoint",
    "message.finish",
    "message.interrupt",
    "message.amend",
    "message.retract",
    "message.restore",
    "message.purge",
    "message.react",
    "message.suggest",
    "message.settle",
];

/// An op on a chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum Op {
    /// Sets the display name of the writer. Other users mention the writer by this name.
    #[serde(rename = "user.name")]
    UserName {
        /// The display name.
        name: String,
    },
    /// Opens a topic.
    #[serde(rename = "topic.create")]
    TopicCreate {
        /// The id.
        id: Arc<str>,
        /// The title.
        title: String,
        /// The rule that decides which lifeform answers.
        #[serde(default, skip_serializing_if = "is_free")]
        turns: Turns,
    },
    /// Changes a topic.
    #[serde(rename = "topic.edit")]
    TopicEdit {
        /// The topic.
        id: Arc<str>,
        /// The new title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The new rule that decides which lifeform answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turns: Option<Turns>,
        /// `true` to archive the topic. An archived topic accepts no messages.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        archived: Option<bool>,
    },
    /// Assigns a role in a topic to a principal, or removes it.
    #[serde(rename = "topic.role")]
    TopicRole {
        /// The topic.
        id: Arc<str>,
        /// The principal.
        who: PrincipalId,
        /// The role; `None` removes the present one.
        #[serde(default)]
        role: Option<TopicRole>,
    },
    /// Sets the stance of a lifeform in a topic. A coordinator starts again at the first item of the agenda.
    #[serde(rename = "topic.stance")]
    TopicStance {
        /// The topic.
        id: Arc<str>,
        /// The lifeform.
        who: PrincipalId,
        /// The stance.
        stance: Stance,
        /// The items that a coordinator brings to a decision, in their order; by default the title of the topic.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        agenda: Vec<String>,
        /// The time at which a coordinator sums up in any case.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// Pins a message of a topic, so that readers see it first, or removes the pin.
    #[serde(rename = "topic.pin")]
    TopicPin {
        /// The topic.
        id: Arc<str>,
        /// The message; `None` removes the pin.
        #[serde(default)]
        message: Option<Arc<str>>,
    },
    /// Stores the writer's read position in a topic.
    #[serde(rename = "topic.read")]
    Read {
        /// The topic.
        id: Arc<str>,
        /// The id of the last message that the writer has read.
        upto: Arc<str>,
    },
    /// Stores the writer's summary of a topic up to a message. The messages stay, and each writer has a summary of its
    /// own.
    #[serde(rename = "topic.summarize")]
    Summarize {
        /// The topic.
        id: Arc<str>,
        /// The id of the last message that the summary covers.
        upto: Arc<str>,
        /// The summary.
        content: String,
    },
    /// Posts a complete message.
    #[serde(rename = "message.append")]
    Append {
        /// The topic.
        topic: Arc<str>,
        /// The id of the new message.
        id: Arc<str>,
        /// The text.
        content: String,
        /// The id of the message that this message answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<Arc<str>>,
        /// The id of the message that this message supplements.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        supplements: Option<Arc<str>>,
        /// `true` to interrupt an answer that is being written.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        urgent: bool,
        /// The attachments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
        /// The ids of all messages that this message answers, if there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<Arc<str>>,
        /// The ids of the concepts that the message rests on, in its author's mind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rests_on: Vec<Arc<str>>,
        /// The principals whose words the text bears, besides the speakers of the topic: those whose goal or schedule led
        /// a lifeform to write it, and those whose facts and records it rests on. `outside` stands for sources outside
        /// this daemon.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        behind: Vec<Arc<str>>,
    },
    /// Opens a message that is written piece by piece.
    #[serde(rename = "message.stream_open")]
    Open {
        /// The topic.
        topic: Arc<str>,
        /// The id of the new message.
        id: Arc<str>,
        /// The id of the message that this message answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<Arc<str>>,
        /// The id of the message that this message supplements.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        supplements: Option<Arc<str>>,
        /// The ids of all messages that this message answers, if there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<Arc<str>>,
    },
    /// Reopens an interrupted message of the writer. The earlier text is kept as a revision.
    #[serde(rename = "message.reopen")]
    Reopen {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// Stores the present text of a streaming message durably.
    #[serde(rename = "message.checkpoint")]
    Checkpoint {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The complete text so far.
        content: String,
        /// The principals whose words the text bears, besides the speakers of the topic.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        behind: Vec<Arc<str>>,
    },
    /// Completes a streaming message.
    #[serde(rename = "message.finish")]
    Finish {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The complete text.
        content: String,
        /// The ids of the concepts that the message rests on, in its author's mind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rests_on: Vec<Arc<str>>,
        /// The principals whose words the text bears, besides the speakers of the topic.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        behind: Vec<Arc<str>>,
    },
    /// Interrupts a streaming message. The text so far stays.
    #[serde(rename = "message.interrupt")]
    Interrupt {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// Replaces the text of a message. The earlier text is kept as a revision.
    #[serde(rename = "message.amend")]
    Amend {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The new text.
        content: String,
        /// The reason.
        #[serde(default)]
        reason: String,
        /// The principals whose words the new text bears, besides the speakers of the topic.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        behind: Vec<Arc<str>>,
    },
    /// Retracts a message. The text is kept as a revision.
    #[serde(rename = "message.retract")]
    Retract {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// Restores a retracted message.
    #[serde(rename = "message.restore")]
    Restore {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// Removes a message with all its revisions permanently, and cuts the log before it. Only a placeholder stays. Only
    /// an operator may do this.
    #[serde(rename = "message.purge")]
    Purge {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// Adds a reaction to a message, or removes it.
    #[serde(rename = "message.react")]
    React {
        /// The topic.
        topic: Arc<str>,
        /// The reaction, for example an emoji.
        id: Arc<str>,
        /// The sign.
        reaction: String,
        /// `true` to add the reaction, `false` to remove it.
        #[serde(default = "yes")]
        on: bool,
    },
    /// Suggests another text for a message. The author of the message or an operator decides.
    #[serde(rename = "message.suggest")]
    Suggest {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The proposed text.
        content: String,
        /// The reason.
        #[serde(default)]
        reason: String,
    },
    /// Accepts or declines a suggestion. Acceptance amends the message.
    #[serde(rename = "message.settle")]
    Settle {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The number of the suggestion.
        suggestion: u64,
        /// `true` to accept the suggestion, `false` to decline it.
        accept: bool,
    },
}

fn yes() -> bool {
    true
}

fn is_free(turns: &Turns) -> bool {
    *turns == Turns::Free
}

impl Op {
    /// Returns an op that posts a complete message without attachments.
    pub fn say(topic: &Arc<str>, id: Arc<str>, content: String, reply_to: Option<Arc<str>>) -> Self {
        Self::Append {
            topic: topic.clone(),
            id,
            content,
            reply_to,
            supplements: None,
            urgent: false,
            attachments: Vec::new(),
            answers: Vec::new(),
            rests_on: Vec::new(),
            behind: Vec::new(),
        }
    }

    /// Returns the name of the op on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::UserName { .. } => "user.name",
            Self::TopicCreate { .. } => "topic.create",
            Self::TopicEdit { .. } => "topic.edit",
            Self::TopicRole { .. } => "topic.role",
            Self::TopicStance { .. } => "topic.stance",
            Self::TopicPin { .. } => "topic.pin",
            Self::Read { .. } => "topic.read",
            Self::Summarize { .. } => "topic.summarize",
            Self::Append { .. } => "message.append",
            Self::Open { .. } => "message.stream_open",
            Self::Reopen { .. } => "message.reopen",
            Self::Checkpoint { .. } => "message.checkpoint",
            Self::Finish { .. } => "message.finish",
            Self::Interrupt { .. } => "message.interrupt",
            Self::Amend { .. } => "message.amend",
            Self::Retract { .. } => "message.retract",
            Self::Restore { .. } => "message.restore",
            Self::Purge { .. } => PURGE,
            Self::React { .. } => "message.react",
            Self::Suggest { .. } => "message.suggest",
            Self::Settle { .. } => "message.settle",
        }
    }
}
