//! The ops on topics.

use std::sync::Arc;

use serde_json::json;
use store::{PrincipalId, PrincipalKind};

use super::super::edit::{check_id, check_text, is_operator, order, unchanged};
use super::super::state::escape;
use super::super::{Edit, Refusal, State, WriteContext};
use super::messages::find;
use super::view::TopicView;
use super::{
    MARKS_MAX, SUMMARIES_MAX, SUMMARY_BYTES_MAX, TOPIC_ID_MAX, TOPICS_EACH_MAX, TOPICS_MAX, TopicRole, Turns, put,
    topic_in, topic_path, topics_in,
};

pub(super) fn topic<'s>(state: &'s State, id: &str) -> Result<TopicView<'s>, Refusal> {
    topic_in(state, id).ok_or_else(|| Refusal::Missing(format!("topic {id}")))
}

pub(super) fn role_in(topic: TopicView<'_>, ask: &WriteContext) -> Option<TopicRole> {
    topic.role_of(&ask.who.id.0)
}

/// Returns `true` for the id of a topic in which a lifeform speaks about a goal or a schedule.
fn is_of_agenda(id: &str) -> bool {
    let number = id.strip_prefix("goal_g").or_else(|| id.strip_prefix("schedule_s"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn moderates(topic: TopicView<'_>, ask: &WriteContext) -> bool {
    is_operator(ask) || topic.is_created_by(&ask.who.id.0) || role_in(topic, ask) == Some(TopicRole::Moderator)
}

pub(super) fn check_title(title: &str) -> Result<(), Refusal> {
    match title.trim().is_empty() || title.chars().count() > 200 {
        true => Err(Refusal::schema("title", "a title is 1 to 200 characters")),
        false => Ok(()),
    }
}

pub(super) fn create_topic(
    state: &State,
    id: &Arc<str>,
    title: &str,
    turns: Turns,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_id("id", id)?;
    if id.len() > TOPIC_ID_MAX {
        return Err(Refusal::schema("id", format!("a topic's id is at most {TOPIC_ID_MAX} characters")));
    }
    check_title(title)?;
    if is_of_agenda(id) && (ask.who.id != ask.host.id || ask.who.guest) && ask.who.kind != PrincipalKind::System {
        return Err(Refusal::schema("id", "ids like this are of the lifeform's goals and schedules"));
    }
    if state.get(&topic_path(id)).is_some() {
        return Err(Refusal::Exists(format!("topic {id}")));
    }
    if state.count("/topics") >= TOPICS_MAX {
        return Err(Refusal::State(format!("a chat has at most {TOPICS_MAX} topics")));
    }
    // One participant must not use the room of all others. Counting is needed only with enough topics.
    let own = || topics_in(state).filter(|topic| topic.is_created_by(&ask.who.id.0)).count();
    if !is_operator(ask) && state.count("/topics") >= TOPICS_EACH_MAX && own() >= TOPICS_EACH_MAX {
        return Err(Refusal::State(format!("one participant opens at most {TOPICS_EACH_MAX} topics of a chat")));
    }
    let topic = json!({
        "id": id,
        "title": title,
        "turns": turns,
        "ord": order(ask.rev),
        "rev": ask.rev,
        "created_by": ask.who.id,
        "created_at": ask.at,
        "roles": {},
        "read": {},
        "messages": {},
    });
    Ok(put(topic_path(id), topic))
}

pub(super) fn edit_topic(
    state: &State,
    id: &str,
    title: Option<&str>,
    turns: Option<Turns>,
    archived: Option<bool>,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    let found = topic(state, id)?;
    if !moderates(found, ask) {
        return Err(Refusal::Forbidden("only who opened it, a moderator or an operator changes a topic".into()));
    }
    unchanged(found.entity(), ask)?;
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

pub(super) fn give_role(
    state: &State,
    id: &str,
    who: &PrincipalId,
    role: Option<TopicRole>,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    let found = topic(state, id)?;
    if !moderates(found, ask) {
        return Err(Refusal::Forbidden("only who opened it, a moderator or an operator gives roles".into()));
    }
    store::Principal::parse_id(&who.0).map_err(|message| Refusal::schema("who", message))?;
    bounded(found, "roles", &who.0)?;
    let path = format!("{}/roles/{}", topic_path(id), escape(&who.0));
    let mut edit = Edit::default();
    match role {
        Some(role) => edit.put(path, json!(role)),
        None if found.role_of(&who.0).is_some() => edit.remove(path),
        None => return Err(Refusal::Missing(format!("a role of {who}"))),
    }
    edit.touch(&topic_path(id), ask);
    Ok(edit)
}

/// Refuses another entry in a map of a topic that has the maximum number.
pub(super) fn bounded(topic: TopicView<'_>, map: &str, name: &str) -> Result<(), Refusal> {
    match topic.is_full(map, MARKS_MAX, name) {
        true => Err(Refusal::State(format!("a topic keeps {map} of at most {MARKS_MAX}"))),
        false => Ok(()),
    }
}

/// Stores a reader's position: the newest message read. This does not change the topic's own revision.
pub(super) fn read(state: &State, id: &str, upto: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    bounded(topic(state, id)?, "read", &ask.who.id.0)?;
    let message = find(state, id, upto)?;
    let mark = json!({"upto": upto, "ord": message.ord(), "at": ask.at});
    Ok(put(format!("{}/read/{}", topic_path(id), escape(&ask.who.id.0)), mark))
}

/// Stores a writer's summary of a topic up to a message. A summary that ends before the previous one is refused.
pub(super) fn summarize(
    state: &State,
    id: &str,
    upto: &str,
    content: &str,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_text("content", content, SUMMARY_BYTES_MAX)?;
    let found = topic(state, id)?;
    if found.is_full("summaries", SUMMARIES_MAX, &ask.who.id.0) {
        return Err(Refusal::State(format!("a topic keeps {SUMMARIES_MAX} summaries")));
    }
    if role_in(found, ask) == Some(TopicRole::Listener) {
        return Err(Refusal::Forbidden("you listen in this topic; a moderator can make you a speaker".into()));
    }
    let ord = find(state, id, upto)?.ord();
    if let Some(before) = found.summary_of(&ask.who.id.0).filter(|before| ord < before.ord()) {
        return Err(Refusal::State(format!("your summary reaches up to message \"{}\" already", before.upto())));
    }
    let (path, mut edit) = (format!("{}/summaries", topic_path(id)), Edit::default());
    if !found.has("summaries") {
        edit.put(&path, json!({}));
    }
    let summary = json!({"upto": upto, "ord": ord, "content": content, "at": ask.at});
    edit.put(format!("{path}/{}", escape(&ask.who.id.0)), summary);
    Ok(edit)
}
