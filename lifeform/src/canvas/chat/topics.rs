//! The ops on topics.

use std::sync::Arc;

use serde_json::json;
use store::{PrincipalId, PrincipalKind, Timestamp};

use super::super::edit::{check_id, check_text, is_operator, order, unchanged};
use super::super::state::escape;
use super::super::{Edit, Refusal, State, WriteContext};
use super::messages::find;
use super::view::TopicView;
use super::{
    ITEM_CHARS, ITEMS_MAX, MARKS_MAX, SUMMARIES_MAX, SUMMARY_BYTES_MAX, Stance, TOPIC_ID_MAX, TOPICS_EACH_MAX,
    TOPICS_MAX, TopicRole, Turns, message_in, put, topic_in, topic_path, topics_in,
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

/// Sets the stance of a lifeform, with the agenda of a coordinator. A lifeform may set its own.
pub(super) fn take_stance(
    state: &State,
    id: &str,
    who: &PrincipalId,
    (stance, agenda, until): (Stance, &[String], Option<Timestamp>),
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    let found = topic(state, id)?;
    if !moderates(found, ask) && *who != ask.who.id {
        return Err(Refusal::Forbidden("only who opened it, a moderator or an operator sets a stance".into()));
    }
    if !matches!(store::Principal::parse_id(&who.0), Ok(("lifeform", _))) {
        return Err(Refusal::schema("who", "a stance is of a lifeform, as lifeform:lf_…"));
    }
    if stance != Stance::Coordinator && (!agenda.is_empty() || until.is_some()) {
        return Err(Refusal::schema("agenda", "agenda and until are of a coordinator"));
    }
    let is_item = |item: &String| !item.trim().is_empty() && item.chars().count() <= ITEM_CHARS;
    if agenda.len() > ITEMS_MAX
        || !agenda.iter().all(is_item)
        || agenda.iter().any(|item| item.contains(char::is_control))
    {
        let why = format!("an agenda has at most {ITEMS_MAX} items of 1 to {ITEM_CHARS} characters, each on one line");
        return Err(Refusal::schema("agenda", why));
    }
    if until.is_some_and(|until| until <= ask.at) {
        return Err(Refusal::schema("until", "it is in the past"));
    }
    bounded(found, "stances", &who.0)?;
    let (path, mut edit) = (format!("{}/stances", topic_path(id)), Edit::default());
    if !found.has("stances") {
        edit.put(&path, json!({}));
    }
    let mut set = json!({"stance": stance, "by": ask.who.id, "at": ask.at, "rev": ask.rev});
    if stance == Stance::Coordinator {
        let of_title = [found.title().chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>()];
        set["agenda"] = json!(if agenda.is_empty() { &of_title[..] } else { agenda });
        set["until"] = json!(until);
    }
    edit.put(format!("{path}/{}", escape(&who.0)), set);
    edit.touch(&topic_path(id), ask);
    Ok(edit)
}

/// Pins a message, or removes the pin. The coordinator of a topic may do so, too, and authors remove the pin of their messages.
pub(super) fn pin(state: &State, id: &str, message: Option<&str>, ask: &WriteContext) -> Result<Edit, Refusal> {
    let found = topic(state, id)?;
    let coordinates = found.stance_of(&ask.who.id.0).is_some_and(|own| own.stance() == Stance::Coordinator);
    let pinned = found.pinned().and_then(|pinned| message_in(state, id, pinned));
    let unpins_own = message.is_none() && pinned.is_some_and(|pinned| pinned.is_by(&ask.who.id.0));
    if !moderates(found, ask) && !coordinates && !unpins_own {
        return Err(Refusal::Forbidden("only who opened it, a moderator, a coordinator or an operator pins".into()));
    }
    let (path, mut edit) = (topic_path(id), Edit::default());
    match message {
        Some(message) => {
            find(state, id, message)?;
            edit.put(format!("{path}/pinned"), json!(message));
        }
        None if found.has("pinned") => edit.remove(format!("{path}/pinned")),
        None => return Err(Refusal::Missing("a pin".into())),
    }
    edit.touch(&path, ask);
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
