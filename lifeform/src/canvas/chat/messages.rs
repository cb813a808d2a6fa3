//! The ops on a message: post, stream, interrupt, amend, retract, react.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use store::PrincipalKind;

use super::super::edit::{check_id, check_length, check_text, is_operator, mentions, order, unchanged};
use super::super::state::escape;
use super::super::{ENTITY_BYTES_MAX, Edit, Refusal, State, WriteContext};
use super::topics::{moderates, role_in, topic};
use super::view::{MessageStatus, MessageView, RevisionView, TopicView, status};
use super::{
    Attachment, CONTENT_BYTES_MAX, MESSAGES_MAX, REVISIONS_MAX, TopicRole, Turns, message_in, message_path,
    messages_in, put, topic_in, topic_path, topics_in,
};

/// The maximum number of different reactions on a message, and of principals per reaction.
const REACTIONS_MAX: usize = 64;
/// The maximum number of reactions of one principal on a message.
const OWN_REACTIONS_MAX: usize = 8;
/// The maximum number of attachments of a message.
const ATTACHMENTS_MAX: usize = 16;
/// The maximum number of answered messages, and of concepts that a message rests on.
const LINKS_MAX: usize = 64;
/// The maximum length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 1_000;
pub(super) fn find<'s>(state: &'s State, in_topic: &str, id: &str) -> Result<MessageView<'s>, Refusal> {
    topic(state, in_topic)?;
    message_in(state, in_topic, id).ok_or_else(|| Refusal::Missing(format!("message {id}")))
}

/// Returns a new message, final and empty.
pub(super) fn message(
    state: &State,
    in_topic: &str,
    id: &str,
    reply_to: Option<&str>,
    supplements: Option<&str>,
    ask: &WriteContext,
) -> Result<Value, Refusal> {
    check_id("id", id)?;
    let topic = topic(state, in_topic)?;
    if topic.is_archived() {
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
    if is_lifeform && topic.turns() == Turns::OneAtATime && another_speaks(state, in_topic, ask) {
        return Err(Refusal::State("another lifeform is speaking; one at a time".into()));
    }
    if !may_name_message(id, ask) {
        return Err(Refusal::schema("id", "ids like this are the lifeform's own"));
    }
    for linked in [reply_to, supplements].into_iter().flatten() {
        find(state, in_topic, linked)?;
    }
    let mut message = json!({
        "id": id,
        "sender": ask.who.id,
        "content": "",
        "status": "final",
        "ord": order(ask.rev),
        "rev": ask.rev,
        "at": ask.at,
        "revisions": {},
    });
    if let Some(answered) = reply_to {
        message["reply_to"] = json!(answered);
    }
    if let Some(supplemented) = supplements {
        message["supplements"] = json!(supplemented);
    }
    Ok(message)
}

/// Returns `true` if the writer may create a message with this id. The ids of a lifeform's answers are derived from
/// their jobs, so another writer could take them in advance.
fn may_name_message(id: &str, ask: &WriteContext) -> bool {
    let own = ask.who.id.0.strip_prefix("lifeform:").filter(|_| !ask.who.guest);
    let is_of = |lifeform: &str| {
        let rest = id.strip_prefix("msg_resting_").or_else(|| id.strip_prefix("msg_"));
        rest.and_then(|rest| rest.strip_prefix(lifeform)).is_some_and(|rest| rest.starts_with(['.', '_']))
    };
    match id.starts_with("msg_lf_") || id.starts_with("msg_resting_") {
        true => own.is_some_and(is_of),
        false => true,
    }
}

/// Returns `true` if a lifeform other than the writer is writing in a topic, and began within [`FLOOR_MAX`].
pub(super) fn another_speaks(state: &State, topic: &str, ask: &WriteContext) -> bool {
    let mut newest = messages_in(state, topic).rev().take(NEWEST);
    newest.any(|message| {
        // A failed answer that is written again began with its last revision.
        let begun = message.last_revision().and_then(RevisionView::at).max(message.at());
        let is_recent = begun.is_none_or(|at| ask.at.duration_since(at) < FLOOR_MAX);
        let is_by_another = !message.is_by(&ask.who.id.0) && message.sender().starts_with("lifeform:");
        message.is_streaming() && is_by_another && is_recent
    })
}

/// The longest time for which an answer that is being written keeps other lifeforms from answering.
const FLOOR_MAX: SignedDuration = SignedDuration::from_mins(10);

/// The number of newest messages in a topic that are checked for a streaming one.
const NEWEST: usize = 64;

/// Adds the answered messages to a new message.
pub(super) fn link(message: &mut Value, state: &State, topic: &str, answers: &[Arc<str>]) -> Result<(), Refusal> {
    if answers.len() > LINKS_MAX {
        return Err(Refusal::schema("answers", format!("at most {LINKS_MAX}")));
    }
    answers.iter().try_for_each(|answered| find(state, topic, answered).map(drop))?;
    if !answers.is_empty() {
        message["answers"] = json!(answers);
    }
    Ok(())
}

/// The maximum length of a memory's or record's id, in bytes. A record's id may be any name.
pub(crate) const RESTS_ON_BYTES_MAX: usize = 1_024;

pub(super) fn concepts(ids: &[Arc<str>]) -> Result<&[Arc<str>], Refusal> {
    match ids.len() > LINKS_MAX || ids.iter().any(|id| !(1..=RESTS_ON_BYTES_MAX).contains(&id.len())) {
        true => Err(Refusal::schema("rests_on", format!("at most {LINKS_MAX} ids of 1 to {RESTS_ON_BYTES_MAX} bytes"))),
        false => Ok(ids),
    }
}

pub(super) fn check_attachments(attachments: &[Attachment]) -> Result<(), Refusal> {
    if attachments.len() > ATTACHMENTS_MAX {
        return Err(Refusal::schema("attachments", format!("at most {ATTACHMENTS_MAX}")));
    }
    for one in attachments {
        if store::Hash::parse(&one.hash).is_none() {
            return Err(Refusal::schema("attachments", format!("\"{}\" is not a SHA-256 in hexadecimal", one.hash)));
        }
        check_text("attachments/name", &one.name, 255)?;
        check_text("attachments/media_type", &one.media_type, 255)?;
    }
    Ok(())
}

/// Returns the hashes of the attachments of all messages.
pub(super) fn attachments(state: &State) -> BTreeSet<Arc<str>> {
    let messages = topics_in(state).flat_map(|topic| messages_in(state, topic.id()));
    messages.flat_map(MessageView::attachments).map(Arc::from).collect()
}

/// Replaces the text of a streaming message, by its author.
pub(super) fn write(
    state: &State,
    topic: &str,
    id: &str,
    content: &str,
    new_status: MessageStatus,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_length("content", content, CONTENT_BYTES_MAX)?;
    let found = find(state, topic, id)?;
    if !found.is_by(&ask.who.id.0) {
        return Err(Refusal::Forbidden("only its author writes a message".into()));
    }
    if !found.is_streaming() {
        let now = status(found.status());
        return Err(Refusal::State(format!("the message is {} already", now.as_str().unwrap_or_default())));
    }
    let (path, mut edit) = (message_path(topic, id), Edit::default());
    if found.content() != content {
        edit.put(format!("{path}/content"), json!(content));
    }
    if new_status != MessageStatus::Streaming {
        edit.put(format!("{path}/status"), status(new_status));
        let mentioned = mentions(state, content);
        if !mentioned.is_empty() {
            edit.put(format!("{path}/mentions"), json!(mentioned));
        }
    }
    edit.touch(&path, ask);
    Ok(edit)
}

/// Reopens a message of the writer. The earlier text is kept as a revision.
pub(super) fn reopen(state: &State, topic: &str, id: &str, reason: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    let (found, path) = (settled(state, topic, id, ask)?, message_path(topic, id));
    if !found.is_by(&ask.who.id.0) {
        return Err(Refusal::Forbidden("only its author writes a message".into()));
    }
    let mut edit = revise(found, &path, "", MessageStatus::Streaming, reason, state, ask)?;
    for gone in ["interrupted_by", "rests_on", "behind"].into_iter().filter(|member| found.has(member)) {
        edit.remove(format!("{path}/{gone}"));
    }
    Ok(edit)
}

pub(super) fn interrupt(
    state: &State,
    topic: &str,
    id: &str,
    reason: &str,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_length("reason", reason, REASON_BYTES_MAX)?;
    let in_topic = self::topic(state, topic)?;
    let found = find(state, topic, id)?;
    if !found.is_streaming() {
        return Err(Refusal::State("only a message that is still being written can be interrupted".into()));
    }
    let who = &*ask.who.id.0;
    let is_theirs = |id: &str| message_in(state, topic, id).is_some_and(|answered| answered.is_by(who));
    let is_asked = found.reply_to().into_iter().chain(found.answers()).any(is_theirs);
    let is_internal = ask.who.kind == PrincipalKind::System || found.is_by(who);
    if !is_asked && !is_internal && !moderates(in_topic, ask) {
        let why =
            "only its author, those whom it answers, who opened the topic, a moderator or an operator interrupts it";
        return Err(Refusal::Forbidden(why.into()));
    }
    let (path, mut edit) = (message_path(topic, id), Edit::default());
    edit.put(format!("{path}/status"), json!("interrupted"));
    edit.put(format!("{path}/interrupted_by"), json!({"by": ask.who.id, "reason": reason, "at": ask.at}));
    edit.touch(&path, ask);
    Ok(edit)
}

/// Returns a message that the writer may change: the writer's own or, for an operator, any.
pub(super) fn own<'s>(state: &'s State, topic: &str, id: &str, ask: &WriteContext) -> Result<MessageView<'s>, Refusal> {
    let found = find(state, topic, id)?;
    match found.is_by(&ask.who.id.0) || is_operator(ask) {
        true => Ok(found),
        false => Err(Refusal::Forbidden("only its author or an operator changes a message; you may suggest".into())),
    }
}

/// Returns a message that the writer may change, if it is neither streaming nor retracted and has not changed after the
/// revision that the writer saw.
pub(super) fn settled<'s>(
    state: &'s State,
    topic: &str,
    id: &str,
    ask: &WriteContext,
) -> Result<MessageView<'s>, Refusal> {
    let found = own(state, topic, id, ask)?;
    match found.status() {
        MessageStatus::Streaming => {
            Err(Refusal::State("the message is still being written; interrupt it first".into()))
        }
        MessageStatus::Retracted => Err(Refusal::State("the message was retracted".into())),
        MessageStatus::Final | MessageStatus::Interrupted => unchanged(found.entity(), ask).map(|()| found),
    }
}

/// Replaces the text of a message, and keeps the earlier text as a revision.
pub(super) fn revise(
    found: MessageView<'_>,
    path: &str,
    content: &str,
    new_status: MessageStatus,
    reason: &str,
    state: &State,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_length("reason", reason, REASON_BYTES_MAX)?;
    let number = found.revisions().count() as u64 + 1;
    let history: usize = found.revisions().map(RevisionView::bytes).sum();
    if number > REVISIONS_MAX || history + found.content().len() > ENTITY_BYTES_MAX / 2 {
        return Err(Refusal::State(format!(
            "a message is changed at most {REVISIONS_MAX} times, and keeps at most {} bytes of history",
            ENTITY_BYTES_MAX / 2
        )));
    }
    let past = json!({
        "n": number,
        "content": found.content(),
        "status": status(found.status()),
        "by": ask.who.id,
        "reason": reason,
        "at": ask.at,
        "rev": ask.rev,
    });
    let mut edit = put(format!("{path}/revisions/{number}"), past);
    edit.put(format!("{path}/content"), json!(content));
    edit.put(format!("{path}/status"), status(new_status));
    let mentioned = mentions(state, content);
    if !mentioned.is_empty() || found.has("mentions") {
        edit.put(format!("{path}/mentions"), json!(mentioned));
    }
    edit.touch(path, ask);
    Ok(edit)
}

pub(super) fn restore(state: &State, topic: &str, id: &str, reason: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    let found = own(state, topic, id, ask)?;
    unchanged(found.entity(), ask)?;
    if found.status() != MessageStatus::Retracted {
        return Err(Refusal::State("only a message that was retracted can be restored".into()));
    }
    // The last revision names who retracted it.
    let is_by_author = found.last_revision().is_none_or(|last| last.by() == found.sender());
    if !is_by_author && !is_operator(ask) {
        return Err(Refusal::Forbidden("an operator retracted it, and only an operator restores it".into()));
    }
    if found.is_purged() {
        return Err(Refusal::State("it was taken away for good: nothing of it is left to restore".into()));
    }
    let last = found.last_revision();
    let (content, status) = last.map_or(("", MessageStatus::Final), |last| (last.content(), last.status()));
    revise(found, &message_path(topic, id), content, status, reason, state, ask)
}

pub(super) fn purge(state: &State, topic: &str, id: &str, reason: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    check_length("reason", reason, REASON_BYTES_MAX)?;
    let found = find(state, topic, id)?;
    if !is_operator(ask) {
        return Err(Refusal::Forbidden("only an operator takes away for good what was said; you may retract".into()));
    }
    if found.is_streaming() {
        return Err(Refusal::State("the message is still being written; interrupt it first".into()));
    }
    let kept = ["id", "sender", "ord", "at"].map(|member| (member.to_owned(), found.entity()[member].clone()));
    let mut message = Value::Object(kept.into_iter().collect());
    message["content"] = json!("");
    message["status"] = status(MessageStatus::Retracted);
    message["revisions"] = json!({});
    message["purged_by"] = json!({"by": ask.who.id, "reason": reason, "at": ask.at});
    message["rev"] = json!(ask.rev);
    let mut edit = put(message_path(topic, id), message);
    // Summaries that cover the message are removed too.
    let summaries = topic_in(state, topic).into_iter().flat_map(TopicView::summaries);
    for (who, _) in summaries.filter(|(_, summary)| summary.ord() >= found.ord()) {
        edit.remove(format!("{}/summaries/{}", topic_path(topic), escape(who)));
    }
    Ok(edit)
}

pub(super) fn react(
    state: &State,
    topic: &str,
    id: &str,
    reaction: &str,
    on: bool,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    let found = find(state, topic, id)?;
    if reaction.trim().is_empty() || reaction.chars().count() > 16 || reaction.contains(char::is_control) {
        return Err(Refusal::schema("reaction", "a reaction is 1 to 16 characters"));
    }
    let (path, reactions) = (format!("{}/reactions", message_path(topic, id)), found.reactions());
    let who = &*ask.who.id.0;
    let known = reactions.and_then(|reactions| reactions.get(reaction));
    let mut given: Vec<&str> =
        known.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    given.retain(|other| *other != who);
    if on {
        given.push(who);
    }
    let kinds = reactions.map_or(0, serde_json::Map::len);
    let all = reactions.into_iter().flatten();
    let own = all.filter(|(_, who_gave)| who_gave.as_array().is_some_and(|all| all.iter().any(|one| *one == *who)));
    if on && own.count() >= OWN_REACTIONS_MAX && !is_operator(ask) {
        return Err(Refusal::State(format!("you have {OWN_REACTIONS_MAX} reactions on this message")));
    }
    if given.len() > REACTIONS_MAX || (kinds >= REACTIONS_MAX && known.is_none()) {
        return Err(Refusal::State(format!("a message takes at most {REACTIONS_MAX} reactions")));
    }
    let (mut edit, at) = (Edit::default(), format!("{path}/{}", escape(reaction)));
    if reactions.is_none() {
        edit.put(&path, json!({}));
    }
    match given.is_empty() {
        false => edit.put(at, json!(given)),
        true if known.is_some() => edit.remove(at),
        true => return Err(Refusal::Missing(format!("your reaction {reaction}"))),
    }
    Ok(edit)
}

pub(super) fn suggest(
    state: &State,
    topic: &str,
    id: &str,
    content: &str,
    reason: &str,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_text("content", content, CONTENT_BYTES_MAX)?;
    check_length("reason", reason, REASON_BYTES_MAX)?;
    let found = find(state, topic, id)?;
    if !found.is_said() {
        return Err(Refusal::State("the message is not there to be changed".into()));
    }
    let number = found.suggestions().count() as u64 + 1;
    let kept: usize = found.suggestions().map(RevisionView::bytes).sum();
    if number > REVISIONS_MAX || kept + content.len() > ENTITY_BYTES_MAX / 4 {
        return Err(Refusal::State("the message has as many suggestions as it can keep".into()));
    }
    let (path, mut edit) = (format!("{}/suggestions", message_path(topic, id)), Edit::default());
    if !found.has("suggestions") {
        edit.put(&path, json!({}));
    }
    let suggestion =
        json!({"n": number, "content": content, "reason": reason, "by": ask.who.id, "at": ask.at, "status": "open"});
    edit.put(format!("{path}/{number}"), suggestion);
    edit.touch(&message_path(topic, id), ask);
    Ok(edit)
}

pub(super) fn settle(
    state: &State,
    topic: &str,
    id: &str,
    number: u64,
    accept: bool,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    let found = settled(state, topic, id, ask)?;
    let suggestion = found.suggestion(number).ok_or_else(|| Refusal::Missing(format!("suggestion {number}")))?;
    if !suggestion.is_open() {
        return Err(Refusal::State("that suggestion was decided already".into()));
    }
    let path = message_path(topic, id);
    let mut edit = Edit::default();
    if accept {
        let why = format!("suggested by {}: {}", suggestion.by(), suggestion.reason());
        let why: String = why.chars().take(REASON_BYTES_MAX / 4).collect();
        edit.then(revise(found, &path, suggestion.content(), MessageStatus::Final, &why, state, ask)?);
    } else {
        edit.touch(&path, ask);
    }
    edit.put(format!("{path}/suggestions/{number}/status"), json!(if accept { "accepted" } else { "declined" }));
    edit.put(format!("{path}/suggestions/{number}/decided_by"), json!(ask.who.id));
    Ok(edit)
}
