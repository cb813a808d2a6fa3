//! The chat canvas: users, topics, messages (seed 003 §3.5.2 `zChat`). Pure rules: an op and the state
//! it meets make a patch, or a refusal.
//!
//! A message is `streaming`, then `final`; or `interrupted`, or `retracted`. What it said before stays in its
//! `revisions`, each with who changed it, when and why.

mod messages;
mod topics;
mod values;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::PrincipalId;

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

/// The collections of a chat.
pub(super) const COLLECTIONS: &[Collection] = &[&["users"], &["topics"], &["topics", "messages"]];

/// The names of the ops.
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
    /// Says what one is called, by which others may call one in a text.
    #[serde(rename = "user.name")]
    UserName {
        /// One's name.
        name: String,
    },
    /// Opens a topic.
    #[serde(rename = "topic.create")]
    TopicCreate {
        /// The id.
        id: Arc<str>,
        /// The title.
        title: String,
        /// The rule of turns.
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
        /// The new rule of turns.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turns: Option<Turns>,
        /// `true` to archive it: no message is accepted then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        archived: Option<bool>,
    },
    /// Gives a principal a role in a topic, or removes it.
    #[serde(rename = "topic.role")]
    TopicRole {
        /// The topic.
        id: Arc<str>,
        /// The principal.
        who: PrincipalId,
        /// The role; `None` removes it.
        #[serde(default)]
        role: Option<TopicRole>,
    },
    /// Notes how far one has read.
    #[serde(rename = "topic.read")]
    Read {
        /// The topic.
        id: Arc<str>,
        /// The last message that was read.
        upto: Arc<str>,
    },
    /// Says in short what was said up to some message. What was said stays; each keeps his own summary.
    #[serde(rename = "topic.summarize")]
    Summarize {
        /// The topic.
        id: Arc<str>,
        /// The last message that is in it.
        upto: Arc<str>,
        /// The summary.
        content: String,
    },
    /// Says something.
    #[serde(rename = "message.append")]
    Append {
        /// The topic.
        topic: Arc<str>,
        /// The message's id.
        id: Arc<str>,
        /// The text.
        content: String,
        /// The message that it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<Arc<str>>,
        /// The message that it adds to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        supplements: Option<Arc<str>>,
        /// `true` to interrupt a present answer.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        urgent: bool,
        /// The attachments.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
        /// All the messages it answers, when there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<Arc<str>>,
        /// The concepts it rests on, by their ids in its author's mind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rests_on: Vec<Arc<str>>,
        /// The principals whose goal or schedule a lifeform speaks of.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        behind: Vec<Arc<str>>,
    },
    /// Begins to say something that is not finished yet.
    #[serde(rename = "message.stream_open")]
    Open {
        /// The topic.
        topic: Arc<str>,
        /// The message's id.
        id: Arc<str>,
        /// The message that it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<Arc<str>>,
        /// The message that it adds to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        supplements: Option<Arc<str>>,
        /// All the messages it answers, when there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<Arc<str>>,
    },
    /// Begins an own interrupted message again; its text is kept.
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
    /// Makes what was said so far durable.
    #[serde(rename = "message.checkpoint")]
    Checkpoint {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// All of its text so far.
        content: String,
    },
    /// Has said it.
    #[serde(rename = "message.finish")]
    Finish {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// All of its text.
        content: String,
        /// The concepts it rests on, by their ids in its author's mind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rests_on: Vec<Arc<str>>,
    },
    /// Breaks off; the text so far stays.
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
    /// Says it differently; what was said before is kept.
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
    },
    /// Takes it back; what was said is kept in its history.
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
    /// Says again what was taken back.
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
    /// Takes a message away with all it ever said. Only that it was there stays, and the log before it goes. An
    /// operator's.
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
    /// Puts a sign on a message, or takes it off.
    #[serde(rename = "message.react")]
    React {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The sign.
        reaction: String,
        /// `true` to add the reaction, `false` to remove it.
        #[serde(default = "yes")]
        on: bool,
    },
    /// Proposes other words for a message; its author or an operator decides.
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
    /// Accepts a suggestion, which amends the message, or declines it.
    #[serde(rename = "message.settle")]
    Settle {
        /// The topic.
        topic: Arc<str>,
        /// The message.
        id: Arc<str>,
        /// The number of the suggestion.
        suggestion: u64,
        /// `true` to accept it.
        accept: bool,
    },
}

fn yes() -> bool {
    true
}

fn is_free(turns: &Turns) -> bool {
    *turns == Turns::Free
}

/// The name of the op that takes away what was said for good.
pub(super) const PURGE: &str = "message.purge";
/// Bytes of one message.
pub const CONTENT_BYTES_MAX: usize = 32 << 10;
/// Topics of one chat.
pub const TOPICS_MAX: usize = 10_000;
/// Topics of one chat that one participant opens, unless it is an operator.
pub const TOPICS_EACH_MAX: usize = TOPICS_MAX / 4;
/// Messages of one topic.
pub const MESSAGES_MAX: usize = 100_000;
/// Characters of a topic's id: the ids of answers are made from it.
pub const TOPIC_ID_MAX: usize = 64;
/// Times one message may be amended, and suggestions it may have.
pub const REVISIONS_MAX: u64 = 1_000;
/// Bytes of a summary, and summaries of one topic.
pub const SUMMARY_BYTES_MAX: usize = 8 << 10;
const SUMMARIES_MAX: usize = 64;
/// Roles, and marks of readers, in one topic.
const MARKS_MAX: usize = 1_000;

impl Op {
    /// Says something whole.
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

    /// The op's name on the wire.
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

/// The most principals behind one message.
const BEHIND_MAX: usize = 64;

/// Checks the principals behind a message.
fn principals(behind: &[Arc<str>]) -> Result<&[Arc<str>], Refusal> {
    let is_one = |who: &Arc<str>| store::Principal::parse_id(who).is_ok();
    match behind.len() <= BEHIND_MAX && behind.iter().all(is_one) {
        true => Ok(behind),
        false => Err(Refusal::schema("behind", format!("at most {BEHIND_MAX} ids of principals"))),
    }
}

/// Returns the pointer of a topic in the state.
pub fn topic_path(topic: &str) -> String {
    format!("/topics/{}", escape(topic))
}

/// Returns the pointer of a message in the state.
pub fn message_path(topic: &str, id: &str) -> String {
    format!("/topics/{}/messages/{}", escape(topic), escape(id))
}

/// Returns the change that `op` makes to `state`.
///
/// # Errors
/// A [`Refusal`]; the state is then as it was.
pub(super) fn decide(state: &State, op: &Op, ask: &Ask) -> Result<Edit, Refusal> {
    let mut edit = Edit::default();
    edit.introduce(state, ask);
    edit.then(match op {
        Op::UserName { name } => name_user(name, ask)?,
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
        Op::Checkpoint { topic, id, content } => write(state, topic, id, content, "streaming", ask)?,
        Op::Finish { topic, id, content, rests_on } => {
            let mut edit = write(state, topic, id, content, "final", ask)?;
            if !rests_on.is_empty() {
                edit.put(format!("{}/rests_on", message_path(topic, id)), json!(concepts(rests_on)?));
            }
            edit
        }
        Op::Interrupt { topic, id, reason } => interrupt(state, topic, id, reason, ask)?,
        Op::Amend { topic, id, content, reason } => {
            check_text("content", content, CONTENT_BYTES_MAX)?;
            let found = settled(state, topic, id, ask)?;
            revise(found, &message_path(topic, id), content, "final", reason, state, ask)?
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

/// Sets the display name of a principal. Any op introduces an unknown one.
fn name_user(name: &str, ask: &Ask) -> Result<Edit, Refusal> {
    if name.trim().is_empty() || name.chars().count() > 80 || name.contains(char::is_control) {
        return Err(Refusal::schema("name", "a name is 1 to 80 characters, none of them a control character"));
    }
    Ok(put(format!("/users/{}/name", escape(&ask.who.id.0)), json!(name)))
}
