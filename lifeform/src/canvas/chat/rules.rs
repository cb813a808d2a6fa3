//! The chat as a kind of canvas.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use store::PrincipalId;

use super::{Attachment, OPS, PURGE, attachments, decide, topic_path};
use crate::canvas::kind::{CanvasKind, PatchRule, Skill};
use crate::canvas::state::Collection;
use crate::canvas::{Edit, Kind, Op, Refusal, State, WriteContext, chat};
use crate::perception::{self, Incoming, Stimulus};

/// The wire name of the chat.
pub const NAME: &str = "chat";

/// The kind of chats: users, topics, messages.
pub(crate) struct Chat;

impl CanvasKind for Chat {
    fn name(&self) -> &str {
        NAME
    }

    fn collections(&self) -> Arc<[Collection]> {
        [vec!["users".into()], vec!["topics".into()], vec!["topics".into(), "messages".into()]].into()
    }

    fn ops(&self) -> Vec<&str> {
        OPS.to_vec()
    }

    fn parse(&self, op: Value) -> serde_json::Result<Op> {
        serde_json::from_value(op).map(Op::Chat)
    }

    fn decide(&self, state: &State, op: &Op, ask: &WriteContext<'_>) -> Result<Edit, Refusal> {
        match op {
            Op::Chat(op) => decide(state, op, ask),
            _ => Err(Kind::other_op(self)),
        }
    }

    fn patch_rules(&self) -> Vec<PatchRule<'_>> {
        vec![
            PatchRule::Member { collection: "topics", member: "title", op: "topic.edit" },
            PatchRule::Member { collection: "topics", member: "turns", op: "topic.edit" },
            PatchRule::Member { collection: "topics", member: "archived", op: "topic.edit" },
            PatchRule::Member { collection: "messages", member: "content", op: "message.amend" },
            PatchRule::Entity { collection: "topics", add: "topic.create", remove: None },
            PatchRule::Entity { collection: "messages", add: "message.append", remove: Some("message.retract") },
        ]
    }

    fn stimulus<'s>(&self, incoming: &Incoming<'s>, op: Op) -> Option<Box<dyn Stimulus + 's>> {
        match op {
            Op::Chat(op) => perception::in_chat(incoming, op),
            _ => None,
        }
    }

    /// Returns all who ever posted in the topic, since a lifeform's own messages may repeat their words.
    fn writers<'s>(&self, state: &'s State, topic: &str, _by: Option<&'s PrincipalId>) -> BTreeSet<&'s str> {
        let topic = topic_path(topic);
        let messages = state.children(&format!("{topic}/messages"));
        state.get(&topic).into_iter().chain(messages).flat_map(writers_of).collect()
    }

    fn message(&self, _: &State, topic: &Arc<str>, id: Arc<str>, content: String, reply_to: Option<Arc<str>>) -> Op {
        chat::Op::say(topic, id, content, reply_to).into()
    }

    fn skill(&self) -> Skill {
        Skill::Reply
    }

    fn purge(&self) -> Option<&str> {
        Some(PURGE)
    }

    fn attached<'o>(&self, op: &'o Op) -> &'o [Attachment] {
        match op {
            Op::Chat(chat::Op::Append { attachments, .. }) => attachments,
            _ => &[],
        }
    }

    fn attachments(&self, state: &State) -> BTreeSet<Arc<str>> {
        attachments(state)
    }
}

/// Returns all principals that wrote or changed a part of a chat.
fn writers_of(part: &Value) -> Vec<&str> {
    let (mut writers, mut waiting) = (Vec::new(), vec![part]);
    while let Some(value) = waiting.pop() {
        match value {
            Value::Object(members) => {
                let named = members.iter().filter(|(key, _)| matches!(key.as_str(), "by" | "created_by" | "sender"));
                writers.extend(named.filter_map(|(_, who)| who.as_str()));
                // A lifeform's message about a principal's goal or schedule contains that principal's words.
                let behind = members.get("behind").and_then(|behind| behind.as_array());
                writers.extend(behind.into_iter().flatten().filter_map(|who| who.as_str()));
                waiting.extend(members.values());
            }
            Value::Array(items) => waiting.extend(items),
            _ => {}
        }
    }
    writers
}
