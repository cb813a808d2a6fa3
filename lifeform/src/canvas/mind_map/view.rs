//! Typed views of a mind map's entities. A state keeps entities as JSON, because clients patch them; only this file and
//! the rules that write them name their members.

use serde_json::{Map, Value};
use store::PrincipalId;

use super::{Op, path};
use crate::canvas::State;

fn text<'s>(entity: &'s Value, member: &str) -> &'s str {
    entity[member].as_str().unwrap_or_default()
}

/// Returns `true` if a principal made an entity of any collection.
pub(crate) fn is_by(entity: &Value, who: &PrincipalId) -> bool {
    entity["by"] == *who.0
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView<'s>(&'s Value);

impl<'s> NodeView<'s> {
    pub(crate) fn of(entity: &'s Value) -> Self {
        Self(entity)
    }

    /// Returns the entity itself, for checks that all entities share.
    pub(super) fn entity(self) -> &'s Value {
        self.0
    }

    pub(crate) fn id(self) -> &'s str {
        text(self.0, "id")
    }

    pub(crate) fn title(self) -> &'s str {
        text(self.0, "title")
    }

    pub(crate) fn body(self) -> &'s str {
        text(self.0, "body")
    }

    /// Returns the parent node; `None` for a node at the top level.
    pub(crate) fn parent(self) -> Option<&'s str> {
        self.0["parent"].as_str()
    }

    /// Returns the order key among the siblings.
    pub(super) fn ord(self) -> &'s str {
        text(self.0, "ord")
    }

    pub(crate) fn is_by(self, who: &PrincipalId) -> bool {
        is_by(self.0, who)
    }

    pub(crate) fn by(self) -> &'s str {
        text(self.0, "by")
    }

    /// Returns the person who wrote the title as it is now: the one who changed it last, or who added the node; empty if the change is no
    /// longer kept.
    pub(crate) fn title_by(self) -> &'s str {
        let mut earlier: Vec<&'s Value> =
            self.0["revisions"].as_object().into_iter().flatten().map(|(_, past)| past).collect();
        earlier.sort_by_key(|past| std::cmp::Reverse(past["n"].as_u64()));
        let first = earlier.last().and_then(|past| past["n"].as_u64());
        let changed = earlier.into_iter().find(|past| text(past, "title") != self.title());
        match (changed, first) {
            (Some(past), _) => text(past, "by"),
            (None, Some(first)) if first > 1 => "",
            (None, _) => self.by(),
        }
    }

    /// Returns the earlier contents.
    pub(super) fn revisions(self) -> impl Iterator<Item = RevisionView<'s>> + use<'s> {
        self.0["revisions"].as_object().into_iter().flat_map(Map::values).map(RevisionView)
    }

    /// Returns the size of the content in a history, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.title().len() + self.body().len()
    }
}

/// An earlier content of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevisionView<'s>(&'s Value);

impl RevisionView<'_> {
    /// Returns the number, from 1.
    pub(super) fn number(self) -> u64 {
        self.0["n"].as_u64().unwrap_or_default()
    }

    /// Returns the size that counts against the history of a node, in bytes.
    pub(super) fn bytes(self) -> usize {
        NodeView(self.0).bytes() + text(self.0, "reason").len()
    }
}

/// A link between two nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkView<'s>(&'s Value);

impl<'s> LinkView<'s> {
    pub(crate) fn of(entity: &'s Value) -> Self {
        Self(entity)
    }

    pub(super) fn id(self) -> &'s str {
        text(self.0, "id")
    }

    pub(crate) fn from(self) -> &'s str {
        text(self.0, "from")
    }

    pub(crate) fn to(self) -> &'s str {
        text(self.0, "to")
    }

    pub(crate) fn label(self) -> &'s str {
        text(self.0, "label")
    }

    /// Returns `true` if the node `id` is an end of the link.
    pub(super) fn touches(self, id: &str) -> bool {
        self.from() == id || self.to() == id
    }
}

/// A comment on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommentView<'s>(&'s Value);

impl<'s> CommentView<'s> {
    pub(crate) fn of(entity: &'s Value) -> Self {
        Self(entity)
    }

    pub(super) fn id(self) -> &'s str {
        text(self.0, "id")
    }

    pub(crate) fn node(self) -> &'s str {
        text(self.0, "node")
    }

    pub(crate) fn content(self) -> &'s str {
        text(self.0, "content")
    }

    /// Returns the id of the author.
    pub(crate) fn by(self) -> &'s str {
        text(self.0, "by")
    }

    pub(crate) fn is_by(self, who: &PrincipalId) -> bool {
        is_by(self.0, who)
    }

    pub(super) fn reply_to(self) -> Option<&'s str> {
        self.0["reply_to"].as_str()
    }

    pub(crate) fn is_resolved(self) -> bool {
        self.0["resolved"] == true
    }
}

/// A proposal of changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProposalView<'s>(&'s Value);

impl<'s> ProposalView<'s> {
    pub(super) fn of(entity: &'s Value) -> Self {
        Self(entity)
    }

    pub(crate) fn id(self) -> &'s str {
        text(self.0, "id")
    }

    /// Returns the id of the author.
    pub(crate) fn by(self) -> &'s str {
        text(self.0, "by")
    }

    pub(super) fn is_by(self, who: &PrincipalId) -> bool {
        is_by(self.0, who)
    }

    /// Returns `open`, `accepted` or `rejected`.
    pub(super) fn status(self) -> &'s str {
        text(self.0, "status")
    }

    pub(crate) fn is_open(self) -> bool {
        self.status() == "open"
    }

    /// Returns the proposed ops as they were stored, for a text.
    pub(crate) fn ops_text(self) -> String {
        self.0["ops"].to_string()
    }

    /// Returns the proposed ops.
    ///
    /// # Errors
    /// The error of ops that this version does not know.
    pub(super) fn ops(self) -> serde_json::Result<Vec<Op>> {
        serde_json::from_value(self.0["ops"].clone())
    }
}

/// Returns the nodes in the order of their keys.
pub(crate) fn nodes_in(state: &State) -> impl DoubleEndedIterator<Item = NodeView<'_>> {
    state.children("/nodes").map(NodeView)
}

/// Returns a node.
pub(crate) fn node_in<'s>(state: &'s State, id: &str) -> Option<NodeView<'s>> {
    state.get(&path("nodes", id)).map(NodeView)
}

/// Returns the links, oldest first.
pub(crate) fn links_in(state: &State) -> impl DoubleEndedIterator<Item = LinkView<'_>> {
    state.children("/links").map(LinkView)
}

/// Returns the comments, oldest first.
pub(crate) fn comments_in(state: &State) -> impl DoubleEndedIterator<Item = CommentView<'_>> {
    state.children("/comments").map(CommentView)
}

/// Returns a comment.
pub(crate) fn comment_in<'s>(state: &'s State, id: &str) -> Option<CommentView<'s>> {
    state.get(&path("comments", id)).map(CommentView)
}

/// Returns the proposals, oldest first.
pub(crate) fn proposals_in(state: &State) -> impl DoubleEndedIterator<Item = ProposalView<'_>> {
    state.children("/proposals").map(ProposalView)
}

/// Returns a proposal.
pub(crate) fn proposal_in<'s>(state: &'s State, id: &str) -> Option<ProposalView<'s>> {
    state.get(&path("proposals", id)).map(ProposalView)
}
