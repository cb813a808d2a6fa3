//! The chat canvas (`zChat`): users, topics and messages. The rules are plain functions: they take an op and the state,
//! and return a patch or a refusal.
//!
//! A message is first `streaming`, then `final`, `interrupted` or `retracted`. Its `revisions` keep each earlier text
//! with the author, the time and the reason of the change.

mod messages;
mod ops;
mod rules;
mod topics;
mod users;
mod values;
mod view;

use std::sync::Arc;

use nexus::OUTSIDE;
use serde_json::{Value, json};

use super::edit::{check_text, mentions};
use super::state::escape;
use super::{Edit, Refusal, State, WriteContext};
pub(crate) use messages::RESTS_ON_BYTES_MAX;
use messages::{
    attachments, check_attachments, concepts, interrupt, link, message, purge, react, reopen, restore, revise, settle,
    settled, suggest, write,
};
use ops::OPS;
pub use ops::Op;
use ops::PURGE;
pub(crate) use rules::Chat;
pub use rules::NAME;
use topics::{create_topic, edit_topic, give_role, pin, read, summarize, take_stance};
use users::name_user;
pub use values::{Attachment, Stance, TopicRole, Turns};
use view::status;
pub(crate) use view::{
    MessageStatus, MessageView, StanceView, SummaryView, TopicView, message_in, messages_in, topic_in, topics_in,
};

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
/// The maximum number of items of an agenda.
pub const ITEMS_MAX: usize = 12;
/// The maximum length of an item, in characters.
pub const ITEM_CHARS: usize = 200;
/// The maximum number of roles, and of read positions, in one topic.
const MARKS_MAX: usize = 1_000;

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
fn decide(state: &State, op: &Op, ask: &WriteContext) -> Result<Edit, Refusal> {
    let mut edit = Edit::default();
    edit.introduce(state, ask);
    edit.then(match op {
        Op::UserName { name } => name_user(state, name, ask)?,
        Op::TopicCreate { id, title, turns } => create_topic(state, id, title, *turns, ask)?,
        Op::TopicEdit { id, title, turns, archived } => {
            edit_topic(state, id, title.as_deref(), *turns, *archived, ask)?
        }
        Op::TopicRole { id, who, role } => give_role(state, id, who, *role, ask)?,
        Op::TopicStance { id, who, stance, agenda, until } => {
            take_stance(state, id, who, (*stance, agenda, *until), ask)?
        }
        Op::TopicPin { id, message } => pin(state, id, message.as_deref(), ask)?,
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
            message["status"] = status(MessageStatus::Streaming);
            put(message_path(topic, id), message)
        }
        Op::Reopen { topic, id, reason } => reopen(state, topic, id, reason, ask)?,
        Op::Checkpoint { topic, id, content, behind } => {
            // Before the first word, a checkpoint says only whose words will follow.
            if behind.is_empty() {
                check_text("content", content, CONTENT_BYTES_MAX)?;
            }
            let mut edit = write(state, topic, id, content, MessageStatus::Streaming, ask)?;
            if !behind.is_empty() {
                edit.put(format!("{}/behind", message_path(topic, id)), json!(principals(behind)?));
            }
            edit
        }
        Op::Finish { topic, id, content, rests_on, behind } => {
            check_text("content", content, CONTENT_BYTES_MAX)?;
            let mut edit = write(state, topic, id, content, MessageStatus::Final, ask)?;
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
            let mut edit = revise(found, &message_path(topic, id), content, MessageStatus::Final, reason, state, ask)?;
            if !behind.is_empty() {
                edit.put(format!("{}/behind", message_path(topic, id)), json!(principals(behind)?));
            }
            edit
        }
        Op::Retract { topic, id, reason } => {
            let found = settled(state, topic, id, ask)?;
            revise(found, &message_path(topic, id), "", MessageStatus::Retracted, reason, state, ask)?
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
