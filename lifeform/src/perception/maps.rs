//! Derives the meaning of a mind map change for a lifeform that did not make the change.

use std::sync::Arc;

use serde_json::{Value, json};
use store::Entry;

use super::{Change, Incoming, Me, PerceivedMessage, Stimulus, is_lifeform};
use crate::canvas::mind_map::view::{CommentView, LinkView, NodeView, comment_in, node_in};
use crate::canvas::mind_map::{Op, path};
use crate::canvas::{State, called, undone};

/// The place of changes that concern no single node.
const WHOLE: &str = "map";

/// A change of a mind map.
struct MapStimulus<'s> {
    me: Me<'s>,
    entry: &'s Entry,
    op: Op,
    state: &'s State,
    place: Arc<str>,
    message: Arc<str>,
    content: String,
}

/// Returns a change of a mind map as rules of perception read it, at the node that it concerns.
pub(crate) fn on_map<'s>(incoming: &Incoming<'s>, op: Op) -> Option<Box<dyn Stimulus + 's>> {
    let Incoming { me, entry, state, .. } = *incoming;
    let (place, message, content) = described(entry, &op, state)?;
    Some(Box::new(MapStimulus { me, entry, op, state, place, message, content }))
}

impl Stimulus for MapStimulus<'_> {
    fn fact(&self, member: &str) -> Value {
        let (me, state) = (self.me, self.state);
        match (member, &self.op) {
            ("change", _) => json!(Change::New.name()),
            ("sender", _) => json!(self.entry.by),
            ("from_lifeform", _) => json!(is_lifeform(&self.entry.by.0)),
            ("chars", _) => json!(self.content.chars().count()),
            ("is_called", Op::AddComment { content, .. }) => {
                let called = called(content);
                json!(called.contains(&me.name.to_lowercase()) || called.contains(&*me.id.0))
            }
            ("asks", Op::AddComment { content, .. }) => json!(content.trim_end().ends_with(['?', '？'])),
            ("answers_own", Op::AddComment { reply_to: Some(comment), .. }) => {
                json!(comment_in(state, comment).is_some_and(|comment| comment.is_by(me.id)))
            }
            ("is_on_own", Op::Propose { ops, .. }) => {
                json!(ops.iter().filter_map(touched).any(|node| self.is_own(node)))
            }
            ("is_on_own", op) => json!(touched(op).is_some_and(|node| self.is_own(node))),
            _ => Value::Null,
        }
    }

    fn message(&self, to_answer: bool) -> (Arc<str>, PerceivedMessage) {
        // Changes that need no answer are processed together, for all nodes.
        let place = if to_answer { self.place.clone() } else { WHOLE.into() };
        let said = PerceivedMessage {
            message: self.message.clone(),
            content: self.content.clone(),
            keeps_reminders: to_answer,
            ..PerceivedMessage::of(self.entry, Change::New)
        };
        (place, said)
    }
}

impl MapStimulus<'_> {
    fn is_own(&self, node: &str) -> bool {
        node_in(self.state, node).is_some_and(|node| node.is_by(self.me.id))
    }
}

/// Returns the node, the entity and the text of a change; `None` for an op that changes nothing by itself.
fn described(entry: &Entry, op: &Op, state: &State) -> Option<(Arc<str>, Arc<str>, String)> {
    let entity = |collection: &str, id: &str| -> Option<Value> {
        let path = path(collection, id);
        state.get(&path).cloned().or_else(|| undone(entry, &path))
    };
    let commented = |id: &str| Some(Arc::<str>::from(CommentView::of(&entity("comments", id)?).node()));
    let linked = |id: &str| Some(Arc::<str>::from(LinkView::of(&entity("links", id)?).from()));
    let whole = || Arc::<str>::from(WHOLE);
    let was = |id: &str, member: &str| match undone(entry, &format!("{}/{member}", path("nodes", id))) {
        Some(Value::String(before)) => before,
        _ => String::new(),
    };
    let title = |id: &str| {
        let node = entity("nodes", id);
        let title = node.as_ref().map_or("", |node| NodeView::of(node).title());
        format!("\"{title}\" [{id}]")
    };
    let under = |parent: Option<&str>| parent.map_or("the top".to_owned(), &title);
    let (place, message, content): (Arc<str>, &Arc<str>, String) = match op {
        // It says whose words the ops after it bear.
        Op::Credit { .. } => return None,
        Op::AddNode { id, parent, .. } => {
            (id.clone(), id, format!("added {} under {}", title(id), under(parent.as_deref())))
        }
        Op::EditNode { id, reason, .. } => {
            let before = undone(entry, &format!("{}/title", path("nodes", id)));
            let before = before.as_ref().and_then(Value::as_str).map(str::to_owned).unwrap_or_else(|| was(id, "body"));
            (id.clone(), id, format!("changed {}; before: \"{before}\"{}", title(id), because(reason)))
        }
        Op::MoveNode { id, parent, .. } => {
            let from = was(id, "parent");
            let from = if from.is_empty() { "the top".to_owned() } else { title(&from) };
            (id.clone(), id, format!("moved {} from {from} to {}", title(id), under(parent.as_deref())))
        }
        Op::MergeNode { id, into, reason } => {
            (into.clone(), id, format!("merged {} into {}{}", title(id), title(into), because(reason)))
        }
        Op::RemoveNode { id, .. } => (whole(), id, format!("removed {}", title(id))),
        Op::AddLink { id, from, to, label } => {
            (from.clone(), id, format!("linked {} to {}: {label}", title(from), title(to)))
        }
        Op::EditLink { id, label } => (linked(id)?, id, format!("named a link [{id}]: {label}")),
        Op::RemoveLink { id } => (linked(id)?, id, format!("removed a link [{id}]")),
        Op::AddComment { id, node, content, .. } => {
            (node.clone(), id, format!("commented on {} [{id}]: {content}", title(node)))
        }
        Op::EditComment { id, content } => (commented(id)?, id, format!("changed a comment [{id}]: {content}")),
        Op::ResolveComment { id, resolved } => {
            let now = if *resolved { "dealt with" } else { "open again" };
            (commented(id)?, id, format!("called a comment [{id}] {now}"))
        }
        Op::RemoveComment { id } => (commented(id)?, id, format!("removed a comment [{id}]")),
        Op::Propose { id, reason, ops } => {
            let kinds: Vec<String> = ops
                .iter()
                .map(|op| format!("{} {}", op.name(), touched(op).map(|id| title(id)).unwrap_or_default()))
                .collect();
            let place = ops.iter().find_map(touched).filter(|id| state.get(&path("nodes", id)).is_some());
            (
                place.cloned().unwrap_or_else(whole),
                id,
                format!("proposes [{id}]: {}{}", kinds.join(", "), because(reason)),
            )
        }
        Op::Accept { id } => (whole(), id, format!("accepted proposal [{id}]")),
        Op::Reject { id, reason } => (whole(), id, format!("rejected proposal [{id}]{}", because(reason))),
    };
    Some((place, message.clone(), content))
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" (because: {reason})") }
}

/// Returns the node that an op concerns.
fn touched(op: &Op) -> Option<&Arc<str>> {
    match op {
        Op::AddNode { parent, .. } => parent.as_ref(),
        Op::EditNode { id, .. } | Op::MoveNode { id, .. } | Op::MergeNode { id, .. } | Op::RemoveNode { id, .. } => {
            Some(id)
        }
        Op::AddLink { from, .. } => Some(from),
        Op::AddComment { node, .. } => Some(node),
        _ => None,
    }
}
