//! The chat canvas: users, topics, messages (seed 003 §3.5.2 `zChat`). Pure rules: an op and the state
//! it meets make a patch, or a refusal.
//!
//! The state is JSON with keyed maps, so that a path names the same thing whatever else changes:
//! `{users: {id: …}, topics: {id: {…, messages: {id: …}}}}`. REST shows the maps as arrays in order.

use std::sync::Arc;

use nexus::{Principal, PrincipalKind, Role, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Refusal;

/// What can be done to a chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum Op {
    /// Opens a topic.
    #[serde(rename = "topic.create")]
    TopicCreate {
        /// Its id.
        id: Arc<str>,
        /// Its title.
        title: String,
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
}

/// Bytes of one message.
pub const CONTENT_BYTES_MAX: usize = 32 << 10;
/// Topics of one chat.
pub const TOPICS_MAX: usize = 10_000;
/// Messages of one topic.
pub const MESSAGES_MAX: usize = 10_000;
/// Characters of a topic's id: the ids of answers are made from it.
pub const TOPIC_ID_MAX: usize = 64;
/// Times one message may be amended.
pub const REVISIONS_MAX: u64 = 1_000;

/// A chat in which nothing was said yet.
pub fn empty() -> Value {
    json!({"users": {}, "topics": {}})
}

impl Op {
    /// The op's name on the wire.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TopicCreate { .. } => "topic.create",
            Self::Append { .. } => "message.append",
            Self::Open { .. } => "message.stream_open",
            Self::Checkpoint { .. } => "message.checkpoint",
            Self::Finish { .. } => "message.finish",
            Self::Interrupt { .. } => "message.interrupt",
            Self::Amend { .. } => "message.amend",
            Self::Retract { .. } => "message.retract",
        }
    }
}

/// The patch that `op` of `who` makes at revision `rev`, guarded by `base` if the writer gave one.
///
/// # Errors
/// A [`Refusal`]; the state is then as it was.
pub fn decide(
    state: &Value,
    op: &Op,
    who: &Principal,
    base: Option<u64>,
    rev: u64,
    at: Timestamp,
) -> Result<Value, Refusal> {
    let mut patch = Vec::new();
    let id = &*who.id.0;
    if state["users"].get(id).is_none() {
        let name = id.split_once(':').map_or(id, |(_, name)| name);
        patch.push(json!({"op": "add", "path": format!("/users/{}", escape(id)), "value": {"id": id, "name": name, "kind": who.kind}}));
    }
    match op {
        Op::TopicCreate { id, title } => patch.push(topic(state, id, title, who, rev, at)?),
        Op::Append { topic, id, content, reply_to } => {
            check_content(content)?;
            patch.push(message(state, topic, id, content, "final", reply_to.as_ref(), who, rev, at)?);
        }
        Op::Open { topic, id, reply_to } => {
            patch.push(message(state, topic, id, "", "streaming", reply_to.as_ref(), who, rev, at)?)
        }
        Op::Checkpoint { topic, id, content } | Op::Finish { topic, id, content } => {
            check_content(content)?;
            let found = streaming(state, topic, id, who)?;
            let path = path(topic, id);
            if found["content"] != content.as_str() {
                patch.push(json!({"op": "replace", "path": format!("{path}/content"), "value": content}));
            }
            if matches!(op, Op::Finish { .. }) {
                patch.push(json!({"op": "replace", "path": format!("{path}/status"), "value": "final"}));
            }
            patch.push(json!({"op": "replace", "path": format!("{path}/rev"), "value": rev}));
        }
        Op::Interrupt { topic, id, reason } => {
            let found = find(state, topic, id)?;
            if found["status"] != "streaming" {
                return Err(Refusal::State("only a message that is still being written can be interrupted".into()));
            }
            let path = path(topic, id);
            patch.push(json!({"op": "replace", "path": format!("{path}/status"), "value": "interrupted"}));
            patch.push(json!({"op": "add", "path": format!("{path}/interrupted_by"), "value": {"by": who.id, "reason": reason}}));
            patch.push(json!({"op": "replace", "path": format!("{path}/rev"), "value": rev}));
        }
        Op::Amend { topic, id, content, reason } => {
            check_content(content)?;
            let found = settled(state, topic, id, who, base)?;
            patch.extend(revise(found, &path(topic, id), Some(content), reason, who, rev, at)?);
        }
        Op::Retract { topic, id, reason } => {
            let found = settled(state, topic, id, who, base)?;
            patch.extend(revise(found, &path(topic, id), None, reason, who, rev, at)?);
        }
    }
    Ok(Value::Array(patch))
}

fn check_content(content: &str) -> Result<(), Refusal> {
    let wrong = |message: String| Err(Refusal::Schema { path: "content", message });
    if content.trim().is_empty() {
        return wrong("a message says something".into());
    }
    if content.len() > CONTENT_BYTES_MAX {
        return wrong(format!("{} bytes are over the bound of {CONTENT_BYTES_MAX}", content.len()));
    }
    Ok(())
}

fn check_id(path: &'static str, id: &str) -> Result<(), Refusal> {
    neurons::spec::check_id(id).map_err(|message| Refusal::Schema { path, message })
}

/// JSON Pointer escaping.
fn escape(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

fn path(topic: &str, id: &str) -> String {
    format!("/topics/{}/messages/{}", escape(topic), escape(id))
}

/// Keys that sort in the order of revisions: ours is the one authority that appends.
fn order(rev: u64) -> String {
    format!("{rev:012}")
}

fn topic(
    state: &Value,
    id: &Arc<str>,
    title: &str,
    who: &Principal,
    rev: u64,
    at: Timestamp,
) -> Result<Value, Refusal> {
    check_id("id", id)?;
    if id.len() > TOPIC_ID_MAX {
        return Err(Refusal::Schema {
            path: "id",
            message: format!("a topic's id is at most {TOPIC_ID_MAX} characters"),
        });
    }
    if title.trim().is_empty() || title.chars().count() > 200 {
        return Err(Refusal::Schema { path: "title", message: "a title is 1 to 200 characters".into() });
    }
    let topics = state["topics"].as_object();
    if topics.is_some_and(|topics| topics.contains_key(&**id)) {
        return Err(Refusal::Exists(format!("topic {id}")));
    }
    if topics.is_some_and(|topics| topics.len() >= TOPICS_MAX) {
        return Err(Refusal::State(format!("a chat has at most {TOPICS_MAX} topics")));
    }
    let value =
        json!({"id": id, "title": title, "ord": order(rev), "created_by": who.id, "created_at": at, "messages": {}});
    Ok(json!({"op": "add", "path": format!("/topics/{}", escape(id)), "value": value}))
}

#[expect(clippy::too_many_arguments, reason = "a message has so many members, and they are all different")]
fn message(
    state: &Value,
    topic: &Arc<str>,
    id: &Arc<str>,
    content: &str,
    status: &str,
    reply_to: Option<&Arc<str>>,
    who: &Principal,
    rev: u64,
    at: Timestamp,
) -> Result<Value, Refusal> {
    check_id("id", id)?;
    let messages =
        &state["topics"].get(&**topic).ok_or_else(|| Refusal::Missing(format!("topic {topic}")))?["messages"];
    if messages.get(&**id).is_some() {
        return Err(Refusal::Exists(format!("message {id}")));
    }
    if messages.as_object().is_some_and(|messages| messages.len() >= MESSAGES_MAX) {
        return Err(Refusal::State(format!("a topic has at most {MESSAGES_MAX} messages: open another")));
    }
    if who.kind != PrincipalKind::Lifeform && (id.starts_with("msg_lf_") || id.starts_with("msg_resting_")) {
        return Err(Refusal::Schema { path: "id", message: "ids like this are the lifeform's own".into() });
    }
    if let Some(answered) = reply_to.filter(|answered| messages.get(&***answered).is_none()) {
        return Err(Refusal::Missing(format!("message {answered}")));
    }
    let mut value = json!({"id": id, "sender": who.id, "content": content, "status": status, "ord": order(rev), "rev": rev, "at": at, "revisions": {}});
    if let Some(answered) = reply_to {
        value["reply_to"] = json!(answered);
    }
    Ok(json!({"op": "add", "path": path(topic, id), "value": value}))
}

fn find<'a>(state: &'a Value, topic: &str, id: &str) -> Result<&'a Value, Refusal> {
    let topic = state["topics"].get(topic).ok_or_else(|| Refusal::Missing(format!("topic {topic}")))?;
    topic["messages"].get(id).ok_or_else(|| Refusal::Missing(format!("message {id}")))
}

fn streaming<'a>(state: &'a Value, topic: &str, id: &str, who: &Principal) -> Result<&'a Value, Refusal> {
    let found = find(state, topic, id)?;
    if found["sender"] != *who.id.0 {
        return Err(Refusal::Forbidden("only its author writes a message".into()));
    }
    if found["status"] == "streaming" {
        Ok(found)
    } else {
        Err(Refusal::State(format!("the message is {} already", found["status"].as_str().unwrap_or("settled"))))
    }
}

/// A message that `who` may amend or retract, unchanged since `base`.
fn settled<'a>(
    state: &'a Value,
    topic: &str,
    id: &str,
    who: &Principal,
    base: Option<u64>,
) -> Result<&'a Value, Refusal> {
    let found = find(state, topic, id)?;
    if found["sender"] != *who.id.0 && !(who.may(Role::Operator) && who.kind != PrincipalKind::Lifeform) {
        return Err(Refusal::Forbidden("only its author or an operator changes a message".into()));
    }
    match found["status"].as_str() {
        Some("streaming") => {
            return Err(Refusal::State("the message is still being written; interrupt it first".into()));
        }
        Some("retracted") => return Err(Refusal::State("the message was retracted".into())),
        _ => {}
    }
    let now = found["rev"].as_u64().unwrap_or(0);
    match base {
        Some(base) if base < now => Err(Refusal::Stale { base, now }),
        _ => Ok(found),
    }
}

/// The old text goes into the history; the new one, or none, takes its place.
fn revise(
    found: &Value,
    path: &str,
    content: Option<&str>,
    reason: &str,
    who: &Principal,
    rev: u64,
    at: Timestamp,
) -> Result<Vec<Value>, Refusal> {
    let number = found["revisions"].as_object().map_or(0, |revisions| revisions.len() as u64) + 1;
    if number > REVISIONS_MAX {
        return Err(Refusal::State(format!("a message is changed at most {REVISIONS_MAX} times")));
    }
    let past = json!({"content": found["content"], "by": who.id, "reason": reason, "at": at, "rev": rev});
    Ok(vec![
        json!({"op": "add", "path": format!("{path}/revisions/{number}"), "value": past}),
        json!({"op": "replace", "path": format!("{path}/content"), "value": content.unwrap_or_default()}),
        json!({"op": "replace", "path": format!("{path}/status"), "value": if content.is_some() { "final" } else { "retracted" }}),
        json!({"op": "replace", "path": format!("{path}/rev"), "value": rev}),
    ])
}

/// The state as REST shows it: maps as arrays in order (the seed's `zChat`).
pub fn as_arrays(state: &Value) -> Value {
    let sorted = |map: &Value| {
        let mut items: Vec<Value> = map.as_object().into_iter().flatten().map(|(_, item)| item.clone()).collect();
        items.sort_by_key(|item| {
            (item["ord"].as_str().unwrap_or_default().to_owned(), item["id"].as_str().unwrap_or_default().to_owned())
        });
        items
    };
    let topics: Vec<Value> = sorted(&state["topics"])
        .into_iter()
        .map(|mut topic| {
            topic["messages"] = sorted(&topic["messages"]).into_iter().map(message_as_array).collect();
            topic
        })
        .collect();
    json!({"users": sorted(&state["users"]), "topics": topics})
}

/// A message with its history as an array, oldest first.
pub fn message_as_array(mut message: Value) -> Value {
    let mut revisions: Vec<(u64, Value)> = message["revisions"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(number, revision)| (number.parse().unwrap_or(0), revision.clone()))
        .collect();
    revisions.sort_by_key(|(number, _)| *number);
    message["revisions"] = revisions.into_iter().map(|(_, revision)| revision).collect();
    message
}
