//! The ops on nodes.

use std::collections::BTreeSet;

use fractional_index::FractionalIndex;
use serde_json::{Value, json};

use super::{
    Among, BODY_BYTES_MAX, LINE_BYTES_MAX, NODES_MAX, REVISIONS_MAX, changed, family, found, key, made, path, removed,
    text, under,
};
use crate::canvas::edit::{check_length, check_text, unchanged};
use crate::canvas::{ENTITY_BYTES_MAX, Edit, Refusal, State, WriteContext};

pub(super) fn add_node(
    state: &State,
    id: &str,
    title: &str,
    body: &str,
    parent: Option<&str>,
    among: Among,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_text("title", title, LINE_BYTES_MAX)?;
    check_length("body", body, BODY_BYTES_MAX)?;
    if let Some(parent) = parent {
        found(state, "nodes", parent)?;
    }
    let ord = key(state, parent, among, None)?;
    let node = json!({"title": title, "body": body, "parent": parent, "ord": ord, "revisions": {}});
    made(state, "nodes", id, node, NODES_MAX, ask)
}

pub(super) fn edit_node(
    state: &State,
    id: &str,
    title: Option<&str>,
    body: Option<&str>,
    reason: &str,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    let node = found(state, "nodes", id)?;
    unchanged(node, ask)?;
    if title.is_none() && body.is_none() {
        return Err(Refusal::schema("title", "an edit has a title, a body or both"));
    }
    revised(node, title.unwrap_or(text(node, "title")), body.unwrap_or(text(node, "body")), reason, ask)
}

/// Replaces the content of a node, and keeps the earlier content as a revision.
pub(super) fn revised(
    node: &Value,
    title: &str,
    body: &str,
    reason: &str,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_text("title", title, LINE_BYTES_MAX)?;
    check_length("body", body, BODY_BYTES_MAX)?;
    check_length("reason", reason, LINE_BYTES_MAX)?;
    let id = text(node, "id");
    let bytes = |past: &Value| text(past, "title").len() + text(past, "body").len() + text(past, "reason").len();
    let number_of = |past: &Value| past["n"].as_u64().unwrap_or_default();
    let mut kept: Vec<&Value> = node["revisions"].as_object().into_iter().flatten().map(|(_, past)| past).collect();
    kept.sort_by_key(|past| std::cmp::Reverse(number_of(past)));
    let number = kept.first().map_or(0, |last| number_of(last)) + 1;
    let mut history: usize = kept.iter().map(|past| bytes(past)).sum();
    let mut edit = Edit::default();
    // The oldest revisions are removed for new ones, so that no author can block a node for others.
    while kept.len() >= REVISIONS_MAX || history + bytes(node) > ENTITY_BYTES_MAX / 2 {
        let Some(oldest) = kept.pop() else { break };
        history -= bytes(oldest);
        edit.remove(format!("{}/revisions/{}", path("nodes", id), number_of(oldest)));
    }
    let past = json!({
        "n": number,
        "title": node["title"],
        "body": node["body"],
        "by": ask.who.id,
        "reason": reason,
        "at": ask.at,
        "rev": ask.rev,
    });
    edit.put(format!("{}/revisions/{number}", path("nodes", id)), past);
    edit.then(changed("nodes", id, &[("title", json!(title)), ("body", json!(body))], ask));
    Ok(edit)
}

pub(super) fn move_node(
    state: &State,
    id: &str,
    parent: Option<&str>,
    among: Among,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    unchanged(found(state, "nodes", id)?, ask)?;
    if let Some(parent) = parent {
        found(state, "nodes", parent)?;
        acyclic(state, id, parent, "parent")?;
    }
    let ord = key(state, parent, among, Some(id))?;
    Ok(changed("nodes", id, &[("parent", json!(parent)), ("ord", json!(ord))], ask))
}

/// Refuses a cycle: `parent` must not be `id` or one of its descendants.
pub(super) fn acyclic(state: &State, id: &str, parent: &str, member: &'static str) -> Result<(), Refusal> {
    let mut above = Some(parent.to_owned());
    while let Some(node) = above {
        if node == id {
            return Err(Refusal::schema(
                member,
                format!("node {parent} stands under node {id}: that would be a cycle"),
            ));
        }
        above = state.get(&path("nodes", &node)).and_then(|node| node["parent"].as_str()).map(str::to_owned);
    }
    Ok(())
}

pub(super) fn merge(state: &State, id: &str, into: &str, reason: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    let (gone, stays) = (found(state, "nodes", id)?, found(state, "nodes", into)?);
    unchanged(gone, ask)?;
    if id == into {
        return Err(Refusal::schema("into", "a node is not merged into itself"));
    }
    acyclic(state, id, into, "into")?;
    let words = [text(stays, "body"), text(gone, "title"), text(gone, "body")];
    let body = words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("\n\n");
    let mut edit = revised(stays, text(stays, "title"), &body, reason, ask)?;
    // The moved children come after the existing ones, in their order.
    let mut last = under(state, Some(into)).next_back().map(|node| text(node, "ord").to_owned());
    for child in under(state, Some(id)) {
        let lower = last.as_deref().and_then(|ord| FractionalIndex::from_string(ord).ok());
        let ord = FractionalIndex::new(lower.as_ref(), None).map(|key| key.to_string()).unwrap_or_default();
        edit.then(changed("nodes", text(child, "id"), &[("parent", json!(into)), ("ord", json!(ord))], ask));
        last = Some(ord);
    }
    let mut ends: BTreeSet<(String, String)> = state
        .children("/links")
        .filter(|link| !touches(link, id))
        .map(|link| (text(link, "from").to_owned(), text(link, "to").to_owned()))
        .collect();
    for link in state.children("/links").filter(|link| touches(link, id)) {
        let other = |end: &str| if text(link, end) == id { into.to_owned() } else { text(link, end).to_owned() };
        let (from, to) = (other("from"), other("to"));
        if from == to || !ends.insert((from.clone(), to.clone())) {
            edit.then(removed("links", text(link, "id")));
        } else {
            edit.then(changed("links", text(link, "id"), &[("from", json!(from)), ("to", json!(to))], ask));
        }
    }
    for comment in state.children("/comments").filter(|comment| text(comment, "node") == id) {
        edit.then(changed("comments", text(comment, "id"), &[("node", json!(into))], ask));
    }
    edit.then(removed("nodes", id));
    Ok(edit)
}

pub(super) fn touches(link: &Value, id: &str) -> bool {
    text(link, "from") == id || text(link, "to") == id
}

pub(super) fn remove_node(state: &State, id: &str, with_children: bool, ask: &WriteContext) -> Result<Edit, Refusal> {
    unchanged(found(state, "nodes", id)?, ask)?;
    let gone = family(state, id);
    if gone.len() > 1 && !with_children {
        let others = gone.len() - 1;
        return Err(Refusal::State(format!("{others} other nodes stand under it: move them, or say with_children")));
    }
    let mut edit = Edit::default();
    let links =
        state.children("/links").filter(|link| gone.contains(text(link, "from")) || gone.contains(text(link, "to")));
    links.for_each(|link| edit.remove(path("links", text(link, "id"))));
    let comments = state.children("/comments").filter(|comment| gone.contains(text(comment, "node")));
    comments.for_each(|comment| edit.remove(path("comments", text(comment, "id"))));
    gone.iter().for_each(|node| edit.remove(path("nodes", node)));
    Ok(edit)
}
