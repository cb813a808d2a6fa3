//! The chat canvas (`zChat`): users, topics and messages. The rules are plain functions: they take an op and the state,
//! and return a patch or a refusal.
//!
//! A message is first `streaming`, then `final`, `interrupted` or `retracted`. Its `revisions` keep each earlier text
//! with the author, the time and the reason of the change.

mod messages;
mod topics;
mod values;

use std::sync::Arc;

use knowledge::provenance::OUTSIDE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Principal, PrincipalId, PrincipalKind};
use unicode_normalization::UnicodeNormalization;
use unicode_security::confusable_detection::skeleton;

use super::edit::{check_text, mentions};
use super::state::{Collection, escape};
use super::{Ask, Edit, Refusal, State};
pub(crate) use messages::RESTS_ON_BYTES_MAX;
use messages::{
    check_attachments, concepts, interrupt, link, message, purge, react, reopen, restore, revise, settle, settled,
    suggest, write,
};
use topics::{create_topic, edit_topic, give_role, read, summarize};
pub use values::{Attachment, TopicRole, Turns};

/// The entity collections of a chat.
pub(super) const COLLECTIONS: &[Collection] = &[&["users"], &["topics"], &["topics", "messages"]];

/// The wire names of the ops.
pub const OPS: &[&str] = &[
    "user.name",
    "topic.create",
    "topic.edit",
    "topic.role",
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

/// The name of the op that removes a message permanently.
pub(super) const PURGE: &str = "message.purge";
/// The maximum size of a message, in bytes.
pub const CONTENT_BYTES_MAX: usize = 32 << 10;
/// The maximum number of topics in a chat.
pub const TOPICS_MAX: usize = 10_000;
/// The maximum number of topics that one participant may create in a chat. Operators have no limit of their own.
pub const TOPICS_EACH_MAX: usize = TOPICS_MAX / 4;
/// The maximum number of messages in a topic.
pub const MESSAGES_MAX: usize = 100_000;
/// The maximum length of a topic's id, in characters. The ids of answers contain it.
pub const TOPIC_ID_MAX: usize = 64;
/// The maximum number of revisions, and of suggestions, of one message.
pub const REVISIONS_MAX: u64 = 1_000;
/// The maximum size of a summary, in bytes, and the maximum number of summaries of one topic.
pub const SUMMARY_BYTES_MAX: usize = 8 << 10;
const SUMMARIES_MAX: usize = 64;
/// The maximum number of roles, and of read positions, in one topic.
const MARKS_MAX: usize = 1_000;

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

/// The maximum number of principals that one message may name in `behind`.
pub(crate) const BEHIND_MAX: usize = 64;

/// Returns at most as many principals as one message may name. [`OUTSIDE`] stands for the others.
pub(crate) fn bounded(mut behind: Vec<Arc<str>>) -> Vec<Arc<str>> {
    if behind.len() > BEHIND_MAX {
        behind.truncate(BEHIND_MAX - 1);
        behind.push(OUTSIDE.into());
    }
    behind
}

/// Checks the principals that a message names in `behind`.
pub(super) fn principals(behind: &[Arc<str>]) -> Result<&[Arc<str>], Refusal> {
    let is_one = |who: &Arc<str>| **who == *OUTSIDE || store::Principal::parse_id(who).is_ok();
    match behind.len() <= BEHIND_MAX && behind.iter().all(is_one) {
        true => Ok(behind),
        false => Err(Refusal::schema("behind", format!("at most {BEHIND_MAX} ids of principals"))),
    }
}

/// Returns the JSON Pointer of a topic in the state.
pub fn topic_path(topic: &str) -> String {
    format!("/topics/{}", escape(topic))
}

/// Returns the JSON Pointer of a message in the state.
pub fn message_path(topic: &str, id: &str) -> String {
    format!("/topics/{}/messages/{}", escape(topic), escape(id))
}

/// Returns the change that `op` makes to `state`.
///
/// # Errors
/// A [`Refusal`]. The state is then unchanged.
pub(super) fn decide(state: &State, op: &Op, ask: &Ask) -> Result<Edit, Refusal> {
    let mut edit = Edit::default();
    edit.introduce(state, ask);
    edit.then(match op {
        Op::UserName { name } => name_user(state, name, ask)?,
        Op::TopicCreate { id, title, turns } => create_topic(state, id, title, *turns, ask)?,
        Op::TopicEdit { id, title, turns, archived } => {
            edit_topic(state, id, title.as_deref(), *turns, *archived, ask)?
        }
        Op::TopicRole { id, who, role } => give_role(state, id, who, *role, ask)?,
        Op::Read { id, upto } => read(state, id, upto, ask)?,
        Op::Summarize { id, upto, content } => summarize(state, id, upto, content, ask)?,
        Op::Append { topic, id, content, reply_to, supplements, urgent, attachments, answers, rests_on, behind } => {
            check_text("content", content, CONTENT_BYTES_MAX)?;
            let mut message = message(state, topic, id, reply_to.as_deref(), supplements.as_deref(), ask)?;
            link(&mut message, state, topic, answers)?;
            if !rests_on.is_empty() {
                message["rests_on"] = json!(concepts(rests_on)?);
            }
            message["content"] = json!(content);
            let mentioned = mentions(state, content);
            if !mentioned.is_empty() {
                message["mentions"] = json!(mentioned);
            }
            if !behind.is_empty() {
                message["behind"] = json!(principals(behind)?);
            }
            if *urgent {
                message["urgent"] = json!(true);
            }
            if !attachments.is_empty() {
                check_attachments(attachments)?;
                message["attachments"] = json!(attachments);
            }
            put(message_path(topic, id), message)
        }
        Op::Open { topic, id, reply_to, supplements, answers } => {
            let mut message = message(state, topic, id, reply_to.as_deref(), supplements.as_deref(), ask)?;
            link(&mut message, state, topic, answers)?;
            message["status"] = json!("streaming");
            put(message_path(topic, id), message)
        }
        Op::Reopen { topic, id, reason } => reopen(state, topic, id, reason, ask)?,
        Op::Checkpoint { topic, id, content, behind } => {
            // Before the first word, a checkpoint says only whose words will follow.
            if behind.is_empty() {
                check_text("content", content, CONTENT_BYTES_MAX)?;
            }
            let mut edit = write(state, topic, id, content, "streaming", ask)?;
            if !behind.is_empty() {
                edit.put(format!("{}/behind", message_path(topic, id)), json!(principals(behind)?));
            }
            edit
        }
        Op::Finish { topic, id, content, rests_on, behind } => {
            check_text("content", content, CONTENT_BYTES_MAX)?;
            let mut edit = write(state, topic, id, content, "final", ask)?;
            let path = format!("{}/behind", message_path(topic, id));
            if !behind.is_empty() {
                edit.put(path, json!(principals(behind)?));
            } else if state.get(&path).is_some() {
                edit.remove(path);
            }
            if !rests_on.is_empty() {
                edit.put(format!("{}/rests_on", message_path(topic, id)), json!(concepts(rests_on)?));
            }
            edit
        }
        Op::Interrupt { topic, id, reason } => interrupt(state, topic, id, reason, ask)?,
        Op::Amend { topic, id, content, reason, behind } => {
            check_text("content", content, CONTENT_BYTES_MAX)?;
            let found = settled(state, topic, id, ask)?;
            let mut edit = revise(found, &message_path(topic, id), content, "final", reason, state, ask)?;
            if !behind.is_empty() {
                edit.put(format!("{}/behind", message_path(topic, id)), json!(principals(behind)?));
            }
            edit
        }
        Op::Retract { topic, id, reason } => {
            let found = settled(state, topic, id, ask)?;
            revise(found, &message_path(topic, id), "", "retracted", reason, state, ask)?
        }
        Op::Restore { topic, id, reason } => restore(state, topic, id, reason, ask)?,
        Op::Purge { topic, id, reason } => purge(state, topic, id, reason, ask)?,
        Op::React { topic, id, reaction, on } => react(state, topic, id, reaction, *on, ask)?,
        Op::Suggest { topic, id, content, reason } => suggest(state, topic, id, content, reason, ask)?,
        Op::Settle { topic, id, suggestion, accept } => settle(state, topic, id, *suggestion, *accept, ask)?,
    });
    Ok(edit)
}

fn put(path: String, value: Value) -> Edit {
    let mut edit = Edit::default();
    edit.put(path, value);
    edit
}

/// Sets the display name of a principal. Any op of an unknown principal adds it to the users.
/// The names that nobody may take besides the principals of that name.
const RESERVED_NAMES: [&str; 4] = ["operator", "system", "daemon", "self"];

/// Returns the form in which names are compared: names that look alike have the same form (UTS #39 §4). Signs and spaces
/// do not count, unless there is nothing else.
fn look_of(name: &str) -> String {
    let plain: String = name.nfkc().collect::<String>().to_lowercase();
    let alike: String = skeleton(&plain).flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric()).collect();
    if alike.is_empty() { plain } else { alike }
}

/// Returns `true` for a character that changes how a text looks or runs without being seen. The joiners, which some
/// scripts and emoji need, are allowed.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn name_user(state: &State, name: &str, ask: &Ask) -> Result<Edit, Refusal> {
    if name.trim().is_empty() || name.chars().count() > 80 || name.contains(is_unseen) {
        return Err(Refusal::schema("name", "a name is 1 to 80 characters, all of them visible"));
    }
    // A model and a reader tell people apart by their names. The lifeforms of this daemon bring those of their
    // definitions.
    let look = look_of(name);
    let is_same = |other: &str| look_of(other) == look;
    let own = ask.who.id.0.split_once(':').map_or("", |(_, own)| own);
    let is_others = |user: &&Value| {
        let names = [&user["name"], &user["id"]].into_iter().filter_map(Value::as_str);
        user["id"] != *ask.who.id.0 && names.into_iter().any(is_same)
    };
    let is_reserved = RESERVED_NAMES.iter().any(|reserved| is_same(reserved) && !own.eq_ignore_ascii_case(reserved));
    let plain: String = name.nfkc().collect();
    let is_id = Principal::parse_id(plain.trim()).is_ok() && *plain.trim() != *ask.who.id.0;
    let lives_here = ask.who.kind == PrincipalKind::Lifeform && !ask.who.guest;
    if !lives_here && (is_id || is_reserved || state.children("/users").any(|user| is_others(&user))) {
        return Err(Refusal::State(format!("the name {name} is taken here: choose another")));
    }
    Ok(put(format!("/users/{}/name", escape(&ask.who.id.0)), json!(name)))
}
