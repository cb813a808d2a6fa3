//! The mind map as a kind of canvas.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use store::PrincipalId;

use super::view::comment_in;
use super::{OPS, decide};
use crate::canvas::kind::{CanvasKind, PatchRule, Skill};
use crate::canvas::state::Collection;
use crate::canvas::user::users_in;
use crate::canvas::{Edit, Kind, Op, Refusal, State, WriteContext, mind_map};
use crate::perception::{self, Incoming, Stimulus};

/// The wire name of the mind map.
pub const NAME: &str = "zmind";

/// The kind of mind maps: a tree of nodes, links between them, comments, proposals.
pub(crate) struct MindMap;

impl CanvasKind for MindMap {
    fn name(&self) -> &str {
        NAME
    }

    fn collections(&self) -> Arc<[Collection]> {
        ["users", "nodes", "links", "comments", "proposals"].map(|name| vec![name.into()]).into()
    }

    fn ops(&self) -> Vec<&str> {
        OPS.to_vec()
    }

    fn parse(&self, op: Value) -> serde_json::Result<Op> {
        serde_json::from_value(op).map(Op::Mind)
    }

    fn decide(&self, state: &State, op: &Op, ask: &WriteContext<'_>) -> Result<Edit, Refusal> {
        match op {
            Op::Mind(op) => decide(state, op, ask),
            _ => Err(Kind::other_op(self)),
        }
    }

    fn patch_rules(&self) -> Vec<PatchRule<'_>> {
        vec![
            PatchRule::Member { collection: "nodes", member: "title", op: "node.edit" },
            PatchRule::Member { collection: "nodes", member: "body", op: "node.edit" },
            PatchRule::Member { collection: "nodes", member: "parent", op: "node.move" },
            PatchRule::Member { collection: "links", member: "label", op: "link.edit" },
            PatchRule::Member { collection: "comments", member: "content", op: "comment.edit" },
            PatchRule::Member { collection: "comments", member: "resolved", op: "comment.resolve" },
            PatchRule::Entity { collection: "nodes", add: "node.add", remove: Some("node.remove") },
            PatchRule::Entity { collection: "links", add: "link.add", remove: Some("link.remove") },
            PatchRule::Entity { collection: "comments", add: "comment.add", remove: Some("comment.remove") },
        ]
    }

    fn stimulus<'s>(&self, incoming: &Incoming<'s>, op: Op) -> Option<Box<dyn Stimulus + 's>> {
        match op {
            Op::Mind(op) => perception::on_map(incoming, op),
            _ => None,
        }
    }

    /// Returns all users, since the prompt shows the map completely, and merges and removals delete the author names of
    /// nodes; and the creator, whose title the prompt shows.
    fn writers<'s>(&self, state: &'s State, _place: &str, by: Option<&'s PrincipalId>) -> BTreeSet<&'s str> {
        // A user without an id is nobody whom a lifeform trusts.
        let users = users_in(state).map(|user| user.id().unwrap_or_default());
        users.chain(by.map(|by| &*by.0)).collect()
    }

    fn message(&self, state: &State, node: &Arc<str>, id: Arc<str>, content: String, reply_to: Option<Arc<str>>) -> Op {
        let reply_to = reply_to.filter(|said| comment_in(state, said).is_some());
        mind_map::Op::AddComment { id, node: node.clone(), content, reply_to }.into()
    }

    fn skill(&self) -> Skill {
        Skill::CoAuthor
    }
}
