//! The mind map canvas (`zMind`): a tree of nodes, links between nodes, comments, and proposals that another author
//! decides. The rules are plain functions, like the rules of the chat.
//!
//! The order of a node among its siblings is a fractional key. The canvas computes the key from the two neighbours that
//! the writer names, so a concurrent write cannot shift the position. A node is never its own ancestor.

mod made;
mod nodes;
mod proposals;
mod rules;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fractional_index::FractionalIndex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::PrincipalKind;

use super::edit::{check_length, check_text, is_operator, unchanged};
use super::state::escape;
use super::{Edit, Refusal, State, WriteContext};
use made::made;
use nodes::{add_node, edit_node, merge, move_node, remove_node};
use proposals::{accept, open_proposal, propose};
pub(crate) use rules::MindMap;
pub use rules::NAME;
use view::{CommentView, NodeView, comments_in, is_by, links_in, nodes_in};

/// The wire names of the ops.
const OPS: &[&str] = &[
    "node.add",
    "node.edit",
    "node.move",
    "node.merge",
    "node.remove",
    "link.add",
    "link.edit",
    "link.remove",
    "comment.add",
    "comment.edit",
    "comment.resolve",
    "comment.remove",
    "proposal.make",
    "proposal.accept",
    "proposal.reject",
];

/// The position of a node among its siblings: directly before one, directly after one, or last.
#[derive(Clone, Copy)]
struct Among<'a> {
    before: &'a Option<Arc<str>>,
    after: &'a Option<Arc<str>>,
}

/// An op on a mind map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum Op {
    /// Names the principals whose words a lifeform brings onto the map. From then on they count as its writers.
    #[serde(rename = "user.credit")]
    Credit {
        /// The principals; `outside` stands for sources outside this daemon.
        who: Vec<Arc<str>>,
    },
    /// Adds a node below another one, or at the top level.
    #[serde(rename = "node.add")]
    AddNode {
        /// The id.
        id: Arc<str>,
        /// The title.
        title: String,
        /// The text below the title.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        body: String,
        /// The parent node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Arc<str>>,
        /// The sibling directly after the new node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Arc<str>>,
        /// The sibling directly before the new node. Without `before` and `after`, the node becomes the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Arc<str>>,
    },
    /// Changes the content of a node. The earlier content is kept as a revision.
    #[serde(rename = "node.edit")]
    EditNode {
        /// The node.
        id: Arc<str>,
        /// The new title.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The new text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        /// The reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Moves a node with its descendants.
    #[serde(rename = "node.move")]
    MoveNode {
        /// The node.
        id: Arc<str>,
        /// The new parent; `None` means the top level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Arc<str>>,
        /// The sibling directly after the new position.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Arc<str>>,
        /// The sibling directly before the new position. Without `before` and `after`, the node becomes the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Arc<str>>,
    },
    /// Merges the node `id` into the node `into`, which takes over its children, links and comments.
    #[serde(rename = "node.merge")]
    MergeNode {
        /// The node that goes.
        id: Arc<str>,
        /// The remaining node. It keeps its title, and the text of the other node is added to its body.
        into: Arc<str>,
        /// The reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// Removes a node with its links and comments.
    #[serde(rename = "node.remove")]
    RemoveNode {
        /// The node.
        id: Arc<str>,
        /// `true` to remove its descendants too; otherwise a node with children is not removed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        with_children: bool,
    },
    /// Links two nodes independently of the tree.
    #[serde(rename = "link.add")]
    AddLink {
        /// The id.
        id: Arc<str>,
        /// The id of the source node.
        from: Arc<str>,
        /// The id of the target node.
        to: Arc<str>,
        /// The relation.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        label: String,
    },
    /// Changes the label of a link.
    #[serde(rename = "link.edit")]
    EditLink {
        /// Changes the label of a link.
        id: Arc<str>,
        /// The relation.
        label: String,
    },
    /// Removes a link.
    #[serde(rename = "link.remove")]
    RemoveLink {
        /// The link.
        id: Arc<str>,
    },
    /// Adds a comment to a node.
    #[serde(rename = "comment.add")]
    AddComment {
        /// The id.
        id: Arc<str>,
        /// The id of the node.
        node: Arc<str>,
        /// The text.
        content: String,
        /// The id of the comment that this comment answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<Arc<str>>,
    },
    /// Changes the text of a comment.
    #[serde(rename = "comment.edit")]
    EditComment {
        /// The comment.
        id: Arc<str>,
        /// The text.
        content: String,
    },
    /// Marks a comment as resolved or unresolved.
    #[serde(rename = "comment.resolve")]
    ResolveComment {
        /// The comment.
        id: Arc<str>,
        /// `true` if the comment is resolved.
        resolved: bool,
    },
    /// Removes a comment and the replies to it.
    #[serde(rename = "comment.remove")]
    RemoveComment {
        /// The comment.
        id: Arc<str>,
    },
    /// Proposes a change that another author accepts or rejects.
    #[serde(rename = "proposal.make")]
    Propose {
        /// The id.
        id: Arc<str>,
        /// The reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// The proposed ops.
        ops: Vec<Op>,
    },
    /// Accepts a proposal and applies its ops.
    #[serde(rename = "proposal.accept")]
    Accept {
        /// The proposal.
        id: Arc<str>,
    },
    /// Rejects a proposal. The author of the proposal may do this too.
    #[serde(rename = "proposal.reject")]
    Reject {
        /// The proposal.
        id: Arc<str>,
        /// The reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
}

/// The maximum number of nodes in a map.
pub const NODES_MAX: usize = 10_000;
/// The maximum number of links, of comments, and of proposals in a map.
pub const OTHERS_MAX: usize = 10_000;
/// The divisor for one participant's share: at most 1/4 of each collection.
const SHARES: usize = 4;
/// The maximum size of a node's body or a comment, in bytes.
pub const BODY_BYTES_MAX: usize = 16 << 10;
/// The maximum number of revisions of one node.
pub const REVISIONS_MAX: usize = 1_000;
/// The maximum number of ops in a proposal.
pub const PROPOSED_MAX: usize = 20;
/// The maximum length of an order key, in characters.
const ORD_MAX: usize = 512;
/// The maximum size of a title, a label or a reason, in bytes.
const LINE_BYTES_MAX: usize = 1_000;

impl Op {
    /// Returns the name of the op on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Credit { .. } => "user.credit",
            Self::AddNode { .. } => "node.add",
            Self::EditNode { .. } => "node.edit",
            Self::MoveNode { .. } => "node.move",
            Self::MergeNode { .. } => "node.merge",
            Self::RemoveNode { .. } => "node.remove",
            Self::AddLink { .. } => "link.add",
            Self::EditLink { .. } => "link.edit",
            Self::RemoveLink { .. } => "link.remove",
            Self::AddComment { .. } => "comment.add",
            Self::EditComment { .. } => "comment.edit",
            Self::ResolveComment { .. } => "comment.resolve",
            Self::RemoveComment { .. } => "comment.remove",
            Self::Propose { .. } => "proposal.make",
            Self::Accept { .. } => "proposal.accept",
            Self::Reject { .. } => "proposal.reject",
        }
    }
}

/// Returns the change that `op` makes to `state`.
///
/// # Errors
/// A [`Refusal`]. The state is then unchanged.
fn decide(state: &State, op: &Op, ask: &WriteContext) -> Result<Edit, Refusal> {
    let mut edit = Edit::default();
    edit.introduce(state, ask);
    edit.then(match op {
        Op::Credit { who } => credit(state, who, ask)?,
        Op::AddNode { id, title, body, parent, before, after } => {
            add_node(state, id, title, body, parent.as_deref(), Among { before, after }, ask)?
        }
        Op::EditNode { id, title, body, reason } => {
            edit_node(state, id, title.as_deref(), body.as_deref(), reason, ask)?
        }
        Op::MoveNode { id, parent, before, after } => {
            move_node(state, id, parent.as_deref(), Among { before, after }, ask)?
        }
        Op::MergeNode { id, into, reason } => merge(state, id, into, reason, ask)?,
        Op::RemoveNode { id, with_children } => remove_node(state, id, *with_children, ask)?,
        Op::AddLink { id, from, to, label } => add_link(state, id, from, to, label, ask)?,
        Op::EditLink { id, label } => {
            unchanged(found(state, "links", id)?, ask)?;
            check_length("label", label, LINE_BYTES_MAX)?;
            changed("links", id, &[("label", json!(label))], ask)
        }
        Op::RemoveLink { id } => {
            unchanged(found(state, "links", id)?, ask)?;
            removed("links", id)
        }
        Op::AddComment { id, node, content, reply_to } => {
            add_comment(state, id, node, content, reply_to.as_deref(), ask)?
        }
        Op::EditComment { id, content } => {
            check_text("content", content, BODY_BYTES_MAX)?;
            unchanged(own(state, "comments", id, ask)?, ask)?;
            changed("comments", id, &[("content", json!(content)), ("edited_at", json!(ask.at))], ask)
        }
        Op::ResolveComment { id, resolved } => {
            found(state, "comments", id)?;
            changed("comments", id, &[("resolved", json!(resolved)), ("resolved_by", json!(ask.who.id))], ask)
        }
        Op::RemoveComment { id } => {
            own(state, "comments", id, ask)?;
            let mut edit = removed("comments", id);
            for answer in comments_in(state).filter(|other| other.reply_to() == Some(id)) {
                edit.remove(path("comments", answer.id()));
            }
            edit
        }
        Op::Propose { id, reason, ops } => propose(state, id, reason, ops, ask)?,
        Op::Accept { id } => accept(state, id, ask)?,
        Op::Reject { id, reason } => {
            check_length("reason", reason, LINE_BYTES_MAX)?;
            open_proposal(state, id)?;
            let decided = [("status", json!("rejected")), ("decided_by", json!(ask.who.id)), ("answer", json!(reason))];
            changed("proposals", id, &decided, ask)
        }
    });
    Ok(edit)
}

fn credit(state: &State, who: &[Arc<str>], ask: &WriteContext) -> Result<Edit, Refusal> {
    if ask.who.kind != PrincipalKind::Lifeform || ask.who.guest {
        return Err(Refusal::Forbidden("only a lifeform brings the words of others onto a map".into()));
    }
    let mut edit = Edit::default();
    for who in super::chat::principals(who)? {
        let path = format!("/users/{}", escape(who));
        if state.get(&path).is_none() {
            let name = who.split_once(':').map_or(&**who, |(_, name)| name);
            edit.put(path, json!({"id": who, "name": name}));
        }
    }
    Ok(edit)
}

/// Returns the JSON Pointer of an entity in the state.
pub fn path(collection: &str, id: &str) -> String {
    format!("/{collection}/{}", escape(id))
}

fn found<'a>(state: &'a State, collection: &str, id: &str) -> Result<&'a Value, Refusal> {
    let what = collection.trim_end_matches('s');
    state.get(&path(collection, id)).ok_or_else(|| Refusal::Missing(format!("{what} {id}")))
}

fn own<'a>(state: &'a State, collection: &str, id: &str, ask: &WriteContext) -> Result<&'a Value, Refusal> {
    let found = found(state, collection, id)?;
    match is_by(found, &ask.who.id) || is_operator(ask) {
        true => Ok(found),
        false => Err(Refusal::Forbidden("only its author or an operator changes it".into())),
    }
}

fn changed(collection: &str, id: &str, members: &[(&str, Value)], ask: &WriteContext) -> Edit {
    let (path, mut edit) = (path(collection, id), Edit::default());
    for (name, value) in members {
        edit.put(format!("{path}/{name}"), value.clone());
    }
    edit.touch(&path, ask);
    edit
}

fn removed(collection: &str, id: &str) -> Edit {
    let mut edit = Edit::default();
    edit.remove(path(collection, id));
    edit
}

// ---- the tree ----

fn under<'a>(state: &'a State, parent: Option<&'a str>) -> impl DoubleEndedIterator<Item = NodeView<'a>> {
    nodes_in(state).filter(move |node| node.parent() == parent)
}

/// Returns the ids of a node and its descendants.
fn family(state: &State, id: &str) -> BTreeSet<String> {
    let mut children: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes_in(state) {
        children.entry(node.parent().unwrap_or_default()).or_default().push(node.id());
    }
    let mut family = BTreeSet::new();
    let mut waiting = vec![id];
    while let Some(node) = waiting.pop() {
        family.insert(node.to_owned());
        waiting.extend(children.remove(node).into_iter().flatten());
    }
    family
}

/// Returns an order key for a position below `parent`, between the named neighbours.
fn key(state: &State, parent: Option<&str>, among: Among, moving: Option<&str>) -> Result<String, Refusal> {
    let siblings: Vec<NodeView> = under(state, parent).filter(|node| Some(node.id()) != moving).collect();
    let at = |id: &Arc<str>, member: &str| {
        let place = siblings.iter().position(|sibling| sibling.id() == &**id);
        place.ok_or_else(|| Refusal::schema(member, format!("node {id} does not stand there")))
    };
    let place = match (among.before, among.after) {
        (Some(before), None) => at(before, "before")?,
        (None, Some(after)) => at(after, "after")? + 1,
        (None, None) => siblings.len(),
        (Some(before), Some(after)) => match (at(before, "before")?, at(after, "after")? + 1) {
            (place, next) if place == next => place,
            _ => return Err(Refusal::schema("before", "the two neighbours do not stand side by side")),
        },
    };
    let ord = |sibling: &NodeView| FractionalIndex::from_string(sibling.ord()).ok();
    let (lower, upper) =
        (place.checked_sub(1).and_then(|place| siblings.get(place)).and_then(ord), siblings.get(place).and_then(ord));
    let key = FractionalIndex::new(lower.as_ref(), upper.as_ref()).map(|key| key.to_string());
    key.filter(|key| key.len() <= ORD_MAX)
        .ok_or_else(|| Refusal::State("there is no more room between these two: move one of them first".into()))
}

// ---- links and comments ----

fn add_link(state: &State, id: &str, from: &str, to: &str, label: &str, ask: &WriteContext) -> Result<Edit, Refusal> {
    check_length("label", label, LINE_BYTES_MAX)?;
    found(state, "nodes", from)?;
    found(state, "nodes", to)?;
    if from == to {
        return Err(Refusal::schema("to", "a node is not linked to itself"));
    }
    if links_in(state).any(|link| link.from() == from && link.to() == to) {
        return Err(Refusal::Exists(format!("a link from {from} to {to}")));
    }
    made(state, "links", id, json!({"from": from, "to": to, "label": label}), OTHERS_MAX, ask)
}

fn add_comment(
    state: &State,
    id: &str,
    node: &str,
    content: &str,
    reply_to: Option<&str>,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_text("content", content, BODY_BYTES_MAX)?;
    found(state, "nodes", node)?;
    let mut comment = json!({"node": node, "content": content, "resolved": false});
    if let Some(answered) = reply_to {
        if CommentView::of(found(state, "comments", answered)?).node() != node {
            return Err(Refusal::schema("reply_to", "it is said about another node"));
        }
        comment["reply_to"] = json!(answered);
    }
    made(state, "comments", id, comment, OTHERS_MAX, ask)
}

// ---- proposals ----
