//! The ops on nodes.

use std::collections::BTreeSet;

use fractional_index::FractionalIndex;
use serde_json::json;

use super::view::{NodeView, RevisionView, comments_in, links_in, node_in};
use super::{
    Among, BODY_BYTES_MAX, LINE_BYTES_MAX, NODES_MAX, REVISIONS_MAX, changed, family, found, key, made, path, removed,
    under,
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
    let node = NodeView::of(found(state, "nodes", id)?);
    unchanged(node.entity(), ask)?;
    if title.is_none() && body.is_none() {
        return Err(Refusal::schema("title", "an edit has a title, a body or both"));
    }
    revised(node, title.unwrap_or(node.title()), body.unwrap_or(node.body()), reason, ask)
}

/// Replaces the content of a node, and keeps the earlier content as a revision.
pub(super) fn revised(
    node: NodeView<'_>,
    title: &str,
    body: &str,
    reason: &str,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_text("title", title, LINE_BYTES_MAX)?;
    check_length("body", body, BODY_BYTES_MAX)?;
    check_length("reason", reason, LINE_BYTES_MAX)?;
    let id = node.id();
    let mut kept: Vec<RevisionView<'_>> = node.revisions().collect();
    kept.sort_by_key(|past| std::cmp::Reverse(past.number()));
    let number = kept.first().map_or(0, |last| last.number()) + 1;
    let mut history: usize = kept.iter().map(|past| past.bytes()).sum();
    let mut edit = Edit::default();
    // The oldest revisions are removed for new ones, so that no author can block a node for others.
    while kept.len() >= REVISIONS_MAX || history + node.bytes() > ENTITY_BYTES_MAX / 2 {
        let Some(oldest) = kept.pop() else { break };
        history -= oldest.bytes();
        edit.remove(format!("{}/revisions/{}", path("nodes", id), oldest.number()));
    }
    let past = json!({
        "n": number,
        "title": node.title(),
        "body": node.body(),
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
        above = node_in(state, &node).and_then(NodeView::parent).map(str::to_owned);
    }
    Ok(())
}

pub(super) fn merge(state: &State, id: &str, into: &str, reason: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    let (gone, stays) = (NodeView::of(found(state, "nodes", id)?), NodeView::of(found(state, "nodes", into)?));
    unchanged(gone.entity(), ask)?;
    if id == into {
        return Err(Refusal::schema("into", "a node is not merged into itself"));
    }
    acyclic(state, id, into, "into")?;
    let words = [stays.body(), gone.title(), gone.body()];
    let body = words.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("\n\n");
    let mut edit = revised(stays, stays.title(), &body, reason, ask)?;
    // The moved children come after the existing ones, in their order.
    let mut last = under(state, Some(into)).next_back().map(|node| node.ord().to_owned());
    for child in under(state, Some(id)) {
        let lower = last.as_deref().and_then(|ord| FractionalIndex::from_string(ord).ok());
        let ord = FractionalIndex::new(lower.as_ref(), None).map(|key| key.to_string()).unwrap_or_default();
        edit.then(changed("nodes", child.id(), &[("parent", json!(into)), ("ord", json!(ord))], ask));
        last = Some(ord);
    }
    let mut ends: BTreeSet<(String, String)> = links_in(state)
        .filter(|link| !link.touches(id))
        .map(|link| (link.from().to_owned(), link.to().to_owned()))
        .collect();
    for link in links_in(state).filter(|link| link.touches(id)) {
        let other = |end: &str| if end == id { into.to_owned() } else { end.to_owned() };
        let (from, to) = (other(link.from()), other(link.to()));
        if from == to || !ends.insert((from.clone(), to.clone())) {
            edit.then(removed("links", link.id()));
        } else {
            edit.then(changed("links", link.id(), &[("from", json!(from)), ("to", json!(to))], ask));
        }
    }
    for comment in comments_in(state).filter(|comment| comment.node() == id) {
        edit.then(changed("comments", comment.id(), &[("node", json!(into))], ask));
    }
    edit.then(removed("nodes", id));
    Ok(edit)
}

pub(super) fn remove_node(state: &State, id: &str, with_children: bool, ask: &WriteContext) -> Result<Edit, Refusal> {
    unchanged(found(state, "nodes", id)?, ask)?;
    let gone = family(state, id);
    if gone.len() > 1 && !with_children {
        let others = gone.len() - 1;
        return Err(Refusal::State(format!("{others} other nodes stand under it: move them, or say with_children")));
    }
    let mut edit = Edit::default();
    let links = links_in(state).filter(|link| gone.contains(link.from()) || gone.contains(link.to()));
    links.for_each(|link| edit.remove(path("links", link.id())));
    let comments = comments_in(state).filter(|comment| gone.contains(comment.node()));
    comments.for_each(|comment| edit.remove(path("comments", comment.id())));
    gone.iter().for_each(|node| edit.remove(path("nodes", node)));
    Ok(edit)
}
