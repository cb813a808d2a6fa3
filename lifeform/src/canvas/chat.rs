//! The chat canvas: users, topics, messages (seed 003 §3.5.2 `zChat`). Pure rules: an op and the state
//! it meets make a patch, or a refusal.
//!
//! A message is `streaming`, then `final`; or `interrupted`, or `retracted`. What it said before stays in its
//! `revisions`, each with who changed it, when and why.

use std::collections::BTreeSet;
use std::sync::Arc;

use nexus::{PrincipalId, PrincipalKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::edit::{check_id, check_length, check_text, is_operator, order, unchanged};
use super::state::{Collection, escape};
use super::{Ask, ENTITY_BYTES_MAX, Edit, Refusal, State};

/// What a chat is made of.
pub(super) const COLLECTIONS: &[Collection] = &[&["users"], &["topics"], &["topics", "messages"]];

/// The names of the ops.
pub const OPS: &[&str] = &[
    "user.name",
    "topic.create",
    "topic.edit",
    "topic.role",
    "topic.read",
    "message.append",
    "message.stream_open",
    "message.checkpoint",
    "message.finish",
    "message.interrupt",
    "message.amend",
    "message.retract",
    "message.restore",
    "message.react",
    "message.suggest",
    "message.settle",
];

/// Who answers in a topic without being asked by name.
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

/// What one may do in a topic; without a role, whatever the token allows.
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
    /// What it is called.
    pub name: String,
    /// Its media type.
    pub media_type: String,
    /// How many bytes it has.
    pub bytes: u64,
}

/// What can be done to a chat.
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
        /// Its id.
        id: Arc<str>,
        /// Its title.
        title: String,
        /// Who answers in it.
        #[serde(default, skip_serializing_if = "is_free")]
        turns: Turns,
    },
    /// Changes a topic.
    #[serde(rename = "topic.edit")]
    TopicEdit {
        /// Which one.
        id: Arc<str>,
        /// Its new title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// Who answers in it from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turns: Option<Turns>,
        /// Whether it is put away: nothing more is said in it then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        archived: Option<bool>,
    },
    /// Gives somebody a role in a topic, or takes it back.
    #[serde(rename = "topic.role")]
    TopicRole {
        /// Which topic.
        id: Arc<str>,
        /// Whose role.
        who: PrincipalId,
        /// Which; none takes it back.
        #[serde(default)]
        role: Option<TopicRole>,
    },
    /// Notes how far one has read.
    #[serde(rename = "topic.read")]
    Read {
        /// Which topic.
        id: Arc<str>,
        /// The last message that was read.
        upto: Arc<str>,
    },
    /// Says something.
    #[serde(rename = "message.append")]
    Append {
        /// Where.
        topic: Arc<str>,
        /// The message's id.
        id: Arc<str>,
        /// What.
        content: String,
        /// What it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<Arc<str>>,
        /// What it adds to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        supplements: Option<Arc<str>>,
        /// Whether whoever is writing should break off for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        urgent: bool,
        /// What it carries.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<Attachment>,
        /// All the messages it answers, when there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<Arc<str>>,
        /// The concepts it rests on, by their ids in its author's mind.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rests_on: Vec<Arc<str>>,
    },
    /// Begins to say something that is not finished yet.
    #[serde(rename = "message.stream_open")]
    Open {
        /// Where.
        topic: Arc<str>,
        /// The message's id.
        id: Arc<str>,
        /// What it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<Arc<str>>,
        /// What it adds to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        supplements: Option<Arc<str>>,
        /// All the messages it answers, when there are several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<Arc<str>>,
    },
    /// Makes what was said so far durable.
    #[serde(rename = "message.checkpoint")]
    Checkpoint {
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// All of its text so far.
        content: String,
    },
    /// Has said it.
    #[serde(rename = "message.finish")]
    Finish {
        /// Where.
        topic: Arc<str>,
        /// Which message.
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
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// Says it differently; what was said before is kept.
    #[serde(rename = "message.amend")]
    Amend {
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// The new text.
        content: String,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// Takes it back; what was said is kept in its history.
    #[serde(rename = "message.retract")]
    Retract {
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// Says again what was taken back.
    #[serde(rename = "message.restore")]
    Restore {
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// Puts a sign on a message, or takes it off.
    #[serde(rename = "message.react")]
    React {
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// The sign.
        reaction: String,
        /// Whether it is put on.
        #[serde(default = "yes")]
        on: bool,
    },
    /// Proposes other words for a message; its author or an operator decides.
    #[serde(rename = "message.suggest")]
    Suggest {
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// The proposed text.
        content: String,
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// Accepts a suggestion, which amends the message, or declines it.
    #[serde(rename = "message.settle")]
    Settle {
        /// Where.
        topic: Arc<str>,
        /// Which message.
        id: Arc<str>,
        /// The number of the suggestion.
        suggestion: u64,
        /// Whether it is accepted.
        accept: bool,
    },
}

fn yes() -> bool {
    true
}

fn is_free(turns: &Turns) -> bool {
    *turns == Turns::Free
}

/// Bytes of one message.
pub const CONTENT_BYTES_MAX: usize = 32 << 10;
/// Topics of one chat.
pub const TOPICS_MAX: usize = 10_000;
/// Messages of one topic.
pub const MESSAGES_MAX: usize = 100_000;
/// Characters of a topic's id: the ids of answers are made from it.
pub const TOPIC_ID_MAX: usize = 64;
/// Times one message may be amended, and suggestions it may have.
pub const REVISIONS_MAX: u64 = 1_000;
/// Signs on one message, and who may put the same one.
const REACTIONS_MAX: usize = 64;
/// Attachments of one message.
const ATTACHMENTS_MAX: usize = 16;
/// Roles, and marks of readers, in one topic.
const MARKS_MAX: usize = 1_000;
/// Messages that one answers, and concepts it rests on.
const LINKS_MAX: usize = 64;
/// Bytes of a reason.
const REASON_BYTES_MAX: usize = 1_000;

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
            Self::Append { .. } => "message.append",
            Self::Open { .. } => "message.stream_open",
            Self::Checkpoint { .. } => "message.checkpoint",
            Self::Finish { .. } => "message.finish",
            Self::Interrupt { .. } => "message.interrupt",
            Self::Amend { .. } => "message.amend",
            Self::Retract { .. } => "message.retract",
            Self::Restore { .. } => "message.restore",
            Self::React { .. } => "message.react",
            Self::Suggest { .. } => "message.suggest",
            Self::Settle { .. } => "message.settle",
        }
    }
}

/// Where a topic stands in the state.
pub fn topic_path(topic: &str) -> String {
    format!("/topics/{}", escape(topic))
}

/// Where a message stands in the state.
pub fn message_path(topic: &str, id: &str) -> String {
    format!("/topics/{}/messages/{}", escape(topic), escape(id))
}

/// What `op` makes of `state`.
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
        Op::Append { topic, id, content, reply_to, supplements, urgent, attachments, answers, rests_on } => {
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

/// What one is called. Who is not known yet is introduced by any op.
fn name_user(name: &str, ask: &Ask) -> Result<Edit, Refusal> {
    if name.trim().is_empty() || name.chars().count() > 80 || name.contains(char::is_control) {
        return Err(Refusal::schema("name", "a name is 1 to 80 characters, none of them a control character"));
    }
    Ok(put(format!("/users/{}/name", escape(&ask.who.id.0)), json!(name)))
}

// ---- topics ----

fn topic<'a>(state: &'a State, id: &str) -> Result<&'a Value, Refusal> {
    state.get(&topic_path(id)).ok_or_else(|| Refusal::Missing(format!("topic {id}")))
}

fn role_in(topic: &Value, ask: &Ask) -> Option<TopicRole> {
    serde_json::from_value(topic["roles"].get(&*ask.who.id.0)?.clone()).ok()
}

fn moderates(topic: &Value, ask: &Ask) -> bool {
    is_operator(ask) || topic["created_by"] == *ask.who.id.0 || role_in(topic, ask) == Some(TopicRole::Moderator)
}

fn check_title(title: &str) -> Result<(), Refusal> {
    match title.trim().is_empty() || title.chars().count() > 200 {
        true => Err(Refusal::schema("title", "a title is 1 to 200 characters")),
        false => Ok(()),
    }
}

fn create_topic(state: &State, id: &Arc<str>, title: &str, turns: Turns, ask: &Ask) -> Result<Edit, Refusal> {
    check_id("id", id)?;
    if id.len() > TOPIC_ID_MAX {
        return Err(Refusal::schema("id", format!("a topic's id is at most {TOPIC_ID_MAX} characters")));
    }
    check_title(title)?;
    if state.get(&topic_path(id)).is_some() {
        return Err(Refusal::Exists(format!("topic {id}")));
    }
    if state.count("/topics") >= TOPICS_MAX {
        return Err(Refusal::State(format!("a chat has at most {TOPICS_MAX} topics")));
    }
    let topic = json!({"id": id, "title": title, "turns": turns, "ord": order(ask.rev), "rev": ask.rev, "created_by": ask.who.id, "created_at": ask.at, "roles": {}, "read": {}, "messages": {}});
    Ok(put(topic_path(id), topic))
}

fn edit_topic(
    state: &State,
    id: &str,
    title: Option<&str>,
    turns: Option<Turns>,
    archived: Option<bool>,
    ask: &Ask,
) -> Result<Edit, Refusal> {
    let found = topic(state, id)?;
    if !moderates(found, ask) {
        return Err(Refusal::Forbidden("only who opened it, a moderator or an operator changes a topic".into()));
    }
    unchanged(found, ask)?;
    let (path, mut edit) = (topic_path(id), Edit::default());
    if let Some(title) = title {
        check_title(title)?;
        edit.put(format!("{path}/title"), json!(title));
    }
    if let Some(turns) = turns {
        edit.put(format!("{path}/turns"), json!(turns));
    }
    if let Some(archived) = archived {
        edit.put(format!("{path}/archived"), json!(archived));
    }
    edit.touch(&path, ask);
    Ok(edit)
}

fn give_role(state: &State, id: &str, who: &PrincipalId, role: Option<TopicRole>, ask: &Ask) -> Result<Edit, Refusal> {
    let found = topic(state, id)?;
    if !moderates(found, ask) {
        return Err(Refusal::Forbidden("only who opened it, a moderator or an operator gives roles".into()));
    }
    nexus::Principal::parse_id(&who.0).map_err(|message| Refusal::schema("who", message))?;
    bounded(found, "roles", &who.0)?;
    let path = format!("{}/roles/{}", topic_path(id), escape(&who.0));
    let mut edit = Edit::default();
    match role {
        Some(role) => edit.put(path, json!(role)),
        None if found["roles"].get(&*who.0).is_some() => edit.remove(path),
        None => return Err(Refusal::Missing(format!("a role of {who}"))),
    }
    edit.touch(&topic_path(id), ask);
    Ok(edit)
}

/// Refuses one more in a map of a topic that has as many as it may.
fn bounded(topic: &Value, map: &str, name: &str) -> Result<(), Refusal> {
    let known = topic[map].as_object();
    match known.is_some_and(|known| known.len() >= MARKS_MAX && !known.contains_key(name)) {
        true => Err(Refusal::State(format!("a topic keeps {map} of at most {MARKS_MAX}"))),
        false => Ok(()),
    }
}

/// One mark a reader: the newest message read. Reading does not change the topic's own revision.
fn read(state: &State, id: &str, upto: &str, ask: &Ask) -> Result<Edit, Refusal> {
    bounded(topic(state, id)?, "read", &ask.who.id.0)?;
    let message = find(state, id, upto)?;
    let mark = json!({"upto": upto, "ord": message["ord"], "at": ask.at});
    Ok(put(format!("{}/read/{}", topic_path(id), escape(&ask.who.id.0)), mark))
}

// ---- messages ----

fn find<'a>(state: &'a State, in_topic: &str, id: &str) -> Result<&'a Value, Refusal> {
    topic(state, in_topic)?;
    state.get(&message_path(in_topic, id)).ok_or_else(|| Refusal::Missing(format!("message {id}")))
}

/// A new message, final and empty.
fn message(
    state: &State,
    in_topic: &str,
    id: &str,
    reply_to: Option<&str>,
    supplements: Option<&str>,
    ask: &Ask,
) -> Result<Value, Refusal> {
    check_id("id", id)?;
    let topic = topic(state, in_topic)?;
    if topic["archived"] == true {
        return Err(Refusal::State("the topic was put away".into()));
    }
    if role_in(topic, ask) == Some(TopicRole::Listener) {
        return Err(Refusal::Forbidden("you listen in this topic; a moderator can make you a speaker".into()));
    }
    if state.get(&message_path(in_topic, id)).is_some() {
        return Err(Refusal::Exists(format!("message {id}")));
    }
    if state.count(&format!("{}/messages", topic_path(in_topic))) >= MESSAGES_MAX {
        return Err(Refusal::State(format!("a topic has at most {MESSAGES_MAX} messages: open another")));
    }
    let is_lifeform = ask.who.kind == PrincipalKind::Lifeform;
    if is_lifeform && topic["turns"] == json!(Turns::OneAtATime) && another_speaks(state, in_topic, ask) {
        return Err(Refusal::State("another lifeform is speaking; one at a time".into()));
    }
    if !is_lifeform && (id.starts_with("msg_lf_") || id.starts_with("msg_resting_")) {
        return Err(Refusal::schema("id", "ids like this are the lifeform's own"));
    }
    for linked in [reply_to, supplements].into_iter().flatten() {
        find(state, in_topic, linked)?;
    }
    let mut message = json!({"id": id, "sender": ask.who.id, "content": "", "status": "final", "ord": order(ask.rev), "rev": ask.rev, "at": ask.at, "revisions": {}});
    if let Some(answered) = reply_to {
        message["reply_to"] = json!(answered);
    }
    if let Some(supplemented) = supplements {
        message["supplements"] = json!(supplemented);
    }
    Ok(message)
}

/// Whether a lifeform other than the writer is writing in a topic.
fn another_speaks(state: &State, topic: &str, ask: &Ask) -> bool {
    let newest = state.children(&format!("{}/messages", topic_path(topic))).rev().take(NEWEST);
    newest
        .filter(|message| message["status"] == "streaming" && message["sender"] != *ask.who.id.0)
        .any(|message| message["sender"].as_str().is_some_and(|sender| sender.starts_with("lifeform:")))
}

/// Messages of a topic among which it is looked for who is speaking.
const NEWEST: usize = 64;

/// Notes the messages that a new one answers.
fn link(message: &mut Value, state: &State, topic: &str, answers: &[Arc<str>]) -> Result<(), Refusal> {
    if answers.len() > LINKS_MAX {
        return Err(Refusal::schema("answers", format!("at most {LINKS_MAX}")));
    }
    answers.iter().try_for_each(|answered| find(state, topic, answered).map(drop))?;
    if !answers.is_empty() {
        message["answers"] = json!(answers);
    }
    Ok(())
}

fn concepts(ids: &[Arc<str>]) -> Result<&[Arc<str>], Refusal> {
    match ids.len() > LINKS_MAX || ids.iter().any(|id| id.is_empty() || id.len() > 128) {
        true => Err(Refusal::schema("rests_on", format!("at most {LINKS_MAX} ids of 1 to 128 bytes"))),
        false => Ok(ids),
    }
}

/// Calls in one text that are looked at.
const CALLS_MAX: usize = 64;

/// Who is called by name in a text: `@name`, or `@kind:name`.
fn mentions(state: &State, content: &str) -> Vec<String> {
    let is_name = |c: &char| c.is_alphanumeric() || "-_:.".contains(*c);
    let called =
        content.split('@').skip(1).take(CALLS_MAX).map(|rest| rest.chars().take_while(is_name).collect::<String>());
    // A sentence may end, or a list begin, right after a name.
    let called: BTreeSet<String> =
        called.map(|name| name.trim_end_matches(['.', ':']).to_lowercase()).filter(|name| !name.is_empty()).collect();
    if called.is_empty() {
        return Vec::new();
    }
    let is_called = |user: &&Value| {
        ["id", "name"]
            .iter()
            .any(|member| user[*member].as_str().is_some_and(|name| called.contains(&name.to_lowercase())))
    };
    let users = state.children("/users").filter(is_called);
    users.filter_map(|user| user["id"].as_str().map(str::to_owned)).collect()
}

fn check_attachments(attachments: &[Attachment]) -> Result<(), Refusal> {
    if attachments.len() > ATTACHMENTS_MAX {
        return Err(Refusal::schema("attachments", format!("at most {ATTACHMENTS_MAX}")));
    }
    for one in attachments {
        if nexus::store::Hash::parse(&one.hash).is_none() {
            return Err(Refusal::schema("attachments", format!("\"{}\" is not a SHA-256 in hexadecimal", one.hash)));
        }
        check_text("attachments/name", &one.name, 255)?;
        check_text("attachments/media_type", &one.media_type, 255)?;
    }
    Ok(())
}

/// All of a streaming message's text so far, by its author.
fn write(state: &State, topic: &str, id: &str, content: &str, status: &str, ask: &Ask) -> Result<Edit, Refusal> {
    check_text("content", content, CONTENT_BYTES_MAX)?;
    let found = find(state, topic, id)?;
    if found["sender"] != *ask.who.id.0 {
        return Err(Refusal::Forbidden("only its author writes a message".into()));
    }
    if found["status"] != "streaming" {
        let status = found["status"].as_str().unwrap_or("settled");
        return Err(Refusal::State(format!("the message is {status} already")));
    }
    let (path, mut edit) = (message_path(topic, id), Edit::default());
    if found["content"] != content {
        edit.put(format!("{path}/content"), json!(content));
    }
    if status != "streaming" {
        edit.put(format!("{path}/status"), json!(status));
        let mentioned = mentions(state, content);
        if !mentioned.is_empty() {
            edit.put(format!("{path}/mentions"), json!(mentioned));
        }
    }
    edit.touch(&path, ask);
    Ok(edit)
}

fn interrupt(state: &State, topic: &str, id: &str, reason: &str, ask: &Ask) -> Result<Edit, Refusal> {
    check_length("reason", reason, REASON_BYTES_MAX)?;
    let found = find(state, topic, id)?;
    if found["status"] != "streaming" {
        return Err(Refusal::State("only a message that is still being written can be interrupted".into()));
    }
    let (path, mut edit) = (message_path(topic, id), Edit::default());
    edit.put(format!("{path}/status"), json!("interrupted"));
    edit.put(format!("{path}/interrupted_by"), json!({"by": ask.who.id, "reason": reason, "at": ask.at}));
    edit.touch(&path, ask);
    Ok(edit)
}

/// A message that the writer may change: its author's own, or any for an operator.
fn own<'a>(state: &'a State, topic: &str, id: &str, ask: &Ask) -> Result<&'a Value, Refusal> {
    let found = find(state, topic, id)?;
    match found["sender"] == *ask.who.id.0 || is_operator(ask) {
        true => Ok(found),
        false => Err(Refusal::Forbidden("only its author or an operator changes a message; you may suggest".into())),
    }
}

/// An own message that is neither being written nor taken back, as the writer saw it.
fn settled<'a>(state: &'a State, topic: &str, id: &str, ask: &Ask) -> Result<&'a Value, Refusal> {
    let found = own(state, topic, id, ask)?;
    match found["status"].as_str() {
        Some("streaming") => Err(Refusal::State("the message is still being written; interrupt it first".into())),
        Some("retracted") => Err(Refusal::State("the message was retracted".into())),
        _ => unchanged(found, ask).map(|()| found),
    }
}

/// The old text goes into the history; the new one takes its place.
fn revise(
    found: &Value,
    path: &str,
    content: &str,
    status: &str,
    reason: &str,
    state: &State,
    ask: &Ask,
) -> Result<Edit, Refusal> {
    check_length("reason", reason, REASON_BYTES_MAX)?;
    let number = count(&found["revisions"]) + 1;
    let history: usize = found["revisions"].as_object().into_iter().flatten().map(|(_, past)| past_bytes(past)).sum();
    if number > REVISIONS_MAX || history + past_bytes(found) > ENTITY_BYTES_MAX / 2 {
        return Err(Refusal::State(format!(
            "a message is changed at most {REVISIONS_MAX} times, and keeps at most {} bytes of history",
            ENTITY_BYTES_MAX / 2
        )));
    }
    let past = json!({"n": number, "content": found["content"], "status": found["status"], "by": ask.who.id, "reason": reason, "at": ask.at, "rev": ask.rev});
    let mut edit = put(format!("{path}/revisions/{number}"), past);
    edit.put(format!("{path}/content"), json!(content));
    edit.put(format!("{path}/status"), json!(status));
    let mentioned = mentions(state, content);
    if !mentioned.is_empty() || found.get("mentions").is_some() {
        edit.put(format!("{path}/mentions"), json!(mentioned));
    }
    edit.touch(path, ask);
    Ok(edit)
}

fn count(numbered: &Value) -> u64 {
    numbered.as_object().map_or(0, |map| map.len() as u64)
}

fn past_bytes(past: &Value) -> usize {
    past["content"].as_str().map_or(0, str::len) + past["reason"].as_str().map_or(0, str::len)
}

fn restore(state: &State, topic: &str, id: &str, reason: &str, ask: &Ask) -> Result<Edit, Refusal> {
    let found = own(state, topic, id, ask)?;
    unchanged(found, ask)?;
    if found["status"] != "retracted" {
        return Err(Refusal::State("only a message that was retracted can be restored".into()));
    }
    let last = &found["revisions"][count(&found["revisions"]).to_string()];
    let (content, status) = (last["content"].as_str().unwrap_or_default(), last["status"].as_str().unwrap_or("final"));
    revise(found, &message_path(topic, id), content, status, reason, state, ask)
}

fn react(state: &State, topic: &str, id: &str, reaction: &str, on: bool, ask: &Ask) -> Result<Edit, Refusal> {
    let found = find(state, topic, id)?;
    if reaction.trim().is_empty() || reaction.chars().count() > 16 || reaction.contains(char::is_control) {
        return Err(Refusal::schema("reaction", "a reaction is 1 to 16 characters"));
    }
    let (path, reactions) = (format!("{}/reactions", message_path(topic, id)), &found["reactions"]);
    let who = &*ask.who.id.0;
    let mut given: Vec<&str> = reactions[reaction].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    given.retain(|other| *other != who);
    if on {
        given.push(who);
    }
    let kinds = reactions.as_object().map_or(0, serde_json::Map::len);
    if given.len() > REACTIONS_MAX || (kinds >= REACTIONS_MAX && reactions.get(reaction).is_none()) {
        return Err(Refusal::State(format!("a message takes at most {REACTIONS_MAX} reactions")));
    }
    let (mut edit, at) = (Edit::default(), format!("{path}/{}", escape(reaction)));
    if reactions.is_null() {
        edit.put(&path, json!({}));
    }
    match given.is_empty() {
        false => edit.put(at, json!(given)),
        true if reactions.get(reaction).is_some() => edit.remove(at),
        true => return Err(Refusal::Missing(format!("your reaction {reaction}"))),
    }
    Ok(edit)
}

fn suggest(state: &State, topic: &str, id: &str, content: &str, reason: &str, ask: &Ask) -> Result<Edit, Refusal> {
    check_text("content", content, CONTENT_BYTES_MAX)?;
    check_length("reason", reason, REASON_BYTES_MAX)?;
    let found = find(state, topic, id)?;
    if matches!(found["status"].as_str(), Some("streaming" | "retracted")) {
        return Err(Refusal::State("the message is not there to be changed".into()));
    }
    let number = count(&found["suggestions"]) + 1;
    let kept: usize = found["suggestions"].as_object().into_iter().flatten().map(|(_, past)| past_bytes(past)).sum();
    if number > REVISIONS_MAX || kept + content.len() > ENTITY_BYTES_MAX / 4 {
        return Err(Refusal::State("the message has as many suggestions as it can keep".into()));
    }
    let (path, mut edit) = (format!("{}/suggestions", message_path(topic, id)), Edit::default());
    if found["suggestions"].is_null() {
        edit.put(&path, json!({}));
    }
    let suggestion =
        json!({"n": number, "content": content, "reason": reason, "by": ask.who.id, "at": ask.at, "status": "open"});
    edit.put(format!("{path}/{number}"), suggestion);
    edit.touch(&message_path(topic, id), ask);
    Ok(edit)
}

fn settle(state: &State, topic: &str, id: &str, number: u64, accept: bool, ask: &Ask) -> Result<Edit, Refusal> {
    let found = settled(state, topic, id, ask)?;
    let suggestion = found["suggestions"].get(number.to_string());
    let suggestion = suggestion.ok_or_else(|| Refusal::Missing(format!("suggestion {number}")))?;
    if suggestion["status"] != "open" {
        return Err(Refusal::State("that suggestion was decided already".into()));
    }
    let path = message_path(topic, id);
    let mut edit = Edit::default();
    if accept {
        let content = suggestion["content"].as_str().unwrap_or_default();
        let why = format!(
            "suggested by {}: {}",
            suggestion["by"].as_str().unwrap_or_default(),
            suggestion["reason"].as_str().unwrap_or_default()
        );
        let why: String = why.chars().take(REASON_BYTES_MAX / 4).collect();
        edit.then(revise(found, &path, content, "final", &why, state, ask)?);
    } else {
        edit.touch(&path, ask);
    }
    edit.put(format!("{path}/suggestions/{number}/status"), json!(if accept { "accepted" } else { "declined" }));
    edit.put(format!("{path}/suggestions/{number}/decided_by"), json!(ask.who.id));
    Ok(edit)
}
