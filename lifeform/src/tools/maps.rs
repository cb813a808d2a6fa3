//! The tools for mind maps that the lifeform edits with people: the outline for a model, and the changes that a model
//! requests, with nodes identified by name.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Hash, Origin};

use super::{LifeformToolbox, MESSAGE_CHARS, ToolScope, called, cut, hears, strangers_behind, unmarked};
use crate::LifeformError;
use crate::canvas::mind_map::Op;
use crate::canvas::mind_map::view::{
    CommentView, NodeView, comment_in, comments_in, links_in, node_in, nodes_in, proposal_in, proposals_in,
};
use crate::canvas::user::{UserView, users_in};
use crate::canvas::{Canvas, Refusal, State, chat, escape, mind_map};
use crate::formation::{OnMap, statement_of_node};

/// The maximum length of a map's outline, in characters.
const OUTLINE_CHARS: usize = 6_000;
/// The maximum length of one node, link or comment in an outline, in characters.
const LINE_CHARS: usize = 200;
/// The maximum number of changes at once.
const EDITS_MAX: usize = 12;
/// The words that refer to a mind map.
const MAP_WORDS: [&str; 6] = ["mind map", "mindmap", "mind-map", "思维导图", "导图", "マインドマップ"];

/// The changes of a map that a model requests. Nodes are identified by ids or titles.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    edits: Vec<Wish>,
    say: String,
}

/// The outcome of changes of a map.
pub(super) struct Drawn {
    /// The names of the applied ops.
    pub(super) done: Vec<&'static str>,
    /// The reasons for which others were not applied.
    pub(super) refused: Vec<String>,
}

/// A change of a map that a model requests.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Wish {
    #[serde(rename = "do")]
    act: Act,
    #[serde(default)]
    node: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    text: String,
}

/// Returns `true` if a text names a title: as whole words, and not by a letter or two.
fn names(text: &str, title: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_long = title.chars().count() > 2 || title.chars().any(|c| !c.is_ascii() && c.is_alphabetic());
    is_long
        && text.match_indices(title).any(|(at, _)| {
            let (before, after) = (text[..at].chars().next_back(), text[at + title.len()..].chars().next());
            !is_part(before) && !is_part(after)
        })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Act {
    Add,
    Rename,
    Move,
    Link,
    Comment,
    Remove,
    Accept,
    Reject,
}

/// The metadata key of the map.
const MAP: &str = "map";

impl LifeformToolbox {
    /// Returns the outline of the map and the request, for a model; nothing if the request concerns no map or nobody
    /// asks.
    pub(super) async fn look(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let asked = here.perception.said.iter().filter(|said| said.to_answer);
        let state = here.canvas.snapshot().state;
        let asked: Vec<String> = asked
            .map(|said| format!("{}: {}", called(&state, &said.sender), cut(&said.content, MESSAGE_CHARS)))
            .collect();
        let Some(map) = self.map_meant(here).filter(|_| !asked.is_empty()) else {
            return Ok(json!({"events": []}));
        };
        let shown = map.snapshot().state;
        // The map may be another canvas than the one with the message.
        let writers = users_in(&shown).filter_map(UserView::id);
        // The title is a part of the outline.
        let writers = writers.chain(map.by.iter().map(|by| &*by.0));
        let is_strange = |who: &&str| **who != *self.me.id.0 && !self.knowledge.trusts_word_of(who);
        let strangers = writers.filter(is_strange).map(str::to_owned).collect();
        let outline = cut(&outline(&map.title, &shown), OUTLINE_CHARS);
        let asked = json!({"role": "user", "content": asked.join("\n"), "metadata": {MAP: map.name()}});
        let outline = format!("<map>\n{outline}\n</map>");
        let outline = super::marked(json!({"role": "user", "content": outline}), &strangers);
        let situation = self.situation_here(here, origin).await?;
        Ok(json!({"events": [situation, outline, asked]}))
    }

    /// Returns the mind maps of which the lifeform is an author.
    pub(super) fn maps(&self) -> Vec<Canvas> {
        self.canvases.all().into_iter().filter(|canvas| canvas.kind.is(mind_map::NAME)).collect()
    }

    /// Returns the mind maps that a talk may be about, those of its speakers first: each reader of the talk has made the map or
    /// has written on it, or a person whom the lifeform trusts has made it.
    pub(super) fn maps_of(&self, here: &ToolScope) -> Vec<Canvas> {
        let people = self.readers_here(here);
        let is_made_by = |map: &Canvas, who: &str| map.by.as_ref().is_some_and(|by| *by.0 == *who);
        let is_open = |map: &Canvas| {
            let state = map.snapshot().state;
            let is_of = |who: &String| is_made_by(map, who) || users_in(&state).any(|user| user.id() == Some(who));
            map.by.as_ref().is_none_or(|by| self.knowledge.trusts_word_of(&by.0)) || people.iter().all(is_of)
        };
        let mut maps: Vec<Canvas> = self.maps().into_iter().filter(is_open).collect();
        let asked = here.perception.said.iter().filter(|said| said.to_answer);
        let senders: Vec<&str> = asked.map(|said| &*said.sender).collect();
        maps.sort_by_key(|map| !senders.iter().any(|sender| is_made_by(map, sender)));
        maps
    }

    /// Returns the map on which a message was posted or, for a chat, the map that the message names.
    pub(super) fn map_meant(&self, here: &ToolScope) -> Option<Canvas> {
        if here.canvas.kind.is(mind_map::NAME) {
            return Some(here.canvas.clone());
        }
        let content = here.perception.content().to_lowercase();
        let maps = self.maps_of(here);
        let is_named = |map: &&Canvas| names(&content, &map.title.to_lowercase());
        let is_meant = MAP_WORDS.iter().any(|words| content.contains(words));
        maps.iter().find(is_named).or_else(|| maps.first().filter(|_| is_meant)).cloned()
    }

    /// Learns what people wrote on the mind maps. Returns the numbers of new statements, and of those that no longer stand there.
    pub(super) async fn learn_of_maps(&self, origin: &Origin) -> Result<(usize, usize), ToolFailure> {
        let mut statements = Vec::new();
        for map in self.maps() {
            let state = map.snapshot().state;
            // The users of a map include people whose words others drew there.
            let authors = nodes_in(&state).flat_map(|node| [node.by(), node.title_by()]);
            let authors = authors.chain(comments_in(&state).map(CommentView::by)).chain(map.by.iter().map(|by| &*by.0));
            let people: BTreeSet<String> =
                authors.filter(|who| !who.is_empty() && hears(who, &self.me)).map(str::to_owned).collect();
            for node in nodes_in(&state).filter(|node| people.contains(node.title_by())) {
                let parent = node.parent().and_then(|parent| node_in(&state, parent)).map(NodeView::title);
                let said = statement_of_node(&map.title, node.title(), parent.or(Some(&map.title)));
                let is_open =
                    |said: &str| !knowledge::is_confided(said) && knowledge::without_secrets(said, "map") == said;
                let Some((statement, part)) = said.filter(|(said, _)| is_open(said)) else { continue };
                let (canvas, node_id, person) =
                    (map.name().to_string(), node.id().to_owned(), node.title_by().to_owned());
                let people = people.clone();
                statements.push(OnMap { canvas, node: node_id, person, people, statement, part });
            }
        }
        self.memory.learn_of_maps(&statements, origin).await.map_err(ToolFailure::passing)
    }

    /// Applies the changes that a model requests. A removal of another author's content becomes a proposal.
    pub(super) async fn sketch(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let meant = context.events.iter().find_map(|event| event.metadata.get(MAP)?.as_str());
        let map = meant.and_then(|name| self.canvases.get(name));
        let wanted = context.event("draw").map_or(Value::Null, |event| event.content.clone());
        let Some(map) = map else { return Ok(json!({"done": [], "refused": ["there is no such map any more"]})) };
        let wanted: Wanted = serde_json::from_value(wanted).unwrap_or_default();
        let senders = self.here(context).map(|here| here.perception.said).unwrap_or_default();
        let who = self.strangers_among(senders.into_iter().map(|said| said.sender), strangers_behind(context));
        let drawn = self.draw(&map, &wanted.edits, &context.job, who, origin).await?;
        if let Some(op) = self.word(context, &map, wanted.say.trim()) {
            match map.apply(op, None, None, origin).await {
                Ok(_) | Err(LifeformError::Refused(_)) => {}
                Err(error) => return Err(ToolFailure::passing(error)),
            }
        }
        Ok(json!({"map": map.name(), "done": drawn.done, "refused": drawn.refused}))
    }

    /// Applies changes to a map, once for each `seed`. Its drawing bears the words of `who`.
    pub(super) async fn draw(
        &self,
        map: &Canvas,
        edits: &[Wish],
        seed: &str,
        who: BTreeSet<Arc<str>>,
        origin: &Origin,
    ) -> Result<Drawn, ToolFailure> {
        if !edits.is_empty() {
            self.credit(map, who, origin).await?;
        }
        let (mut done, mut refused) = (Vec::new(), Vec::new());
        for (n, wish) in edits.iter().take(EDITS_MAX).enumerate() {
            let id = made_by(seed, &n.to_string());
            let op = match self.op_of(&map.snapshot().state, wish, id) {
                Ok(op) => op,
                Err(why) => {
                    refused.push(why);
                    continue;
                }
            };
            let name = op.name();
            // An earlier attempt of this step may have applied it.
            match map.apply(op, Some(format!("{seed}-{n}").into()), None, origin).await {
                Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => done.push(name),
                Err(error @ LifeformError::Refused(Refusal::Rate(_))) => return Err(ToolFailure::passing(error)),
                Err(LifeformError::Refused(refusal)) => refused.push(refusal.to_string()),
                Err(error) => return Err(ToolFailure::passing(error)),
            }
        }
        Ok(Drawn { done, refused })
    }

    /// Returns those whose word does not count like the lifeform's own.
    pub(super) fn strangers_among(
        &self,
        senders: impl Iterator<Item = Arc<str>>,
        behind: Vec<Arc<str>>,
    ) -> BTreeSet<Arc<str>> {
        let is_strange = |who: &Arc<str>| *who != self.me.id.0 && !self.knowledge.trusts_word_of(who);
        senders.filter(is_strange).chain(behind).collect()
    }

    /// Names on a map the strangers whose words the lifeform is about to draw. The drawing has the lifeform's name and
    /// bears their words.
    async fn credit(&self, map: &Canvas, who: BTreeSet<Arc<str>>, origin: &Origin) -> Result<(), ToolFailure> {
        let state = map.snapshot().state;
        if who.iter().all(|who| state.get(&format!("/users/{}", escape(who))).is_some()) {
            return Ok(());
        }
        let credit = Op::Credit { who: chat::bounded(who.into_iter().collect()) };
        map.apply(credit, None, None, origin).await.map(drop).map_err(ToolFailure::passing)
    }

    /// Posts an answer on a map as a comment.
    pub(super) async fn say_on_map(
        &self,
        context: &ToolContext,
        here: &ToolScope,
        content: &str,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        let Some(op) = self.word(context, &here.canvas, content.trim()) else { return Ok(json!({"message": null})) };
        match here.canvas.apply(op, None, None, origin).await {
            Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => Ok(json!({"map": here.canvas.name()})),
            Err(LifeformError::Refused(refusal @ Refusal::Rate(_))) => Err(ToolFailure::passing(refusal)),
            Err(LifeformError::Refused(refusal)) => Err(ToolFailure::fatal(refusal)),
            Err(error) => Err(ToolFailure::passing(error)),
        }
    }

    /// Returns the op that answers a comment with a comment.
    fn word(&self, context: &ToolContext, map: &Canvas, say: &str) -> Option<Op> {
        let here = self.here(context).ok().filter(|here| here.canvas.name() == map.name())?;
        let state = map.snapshot().state;
        let said = here.perception.said.iter().rev().find(|said| said.to_answer)?;
        let asked = comment_in(&state, &said.message);
        let node = node_in(&state, asked.map_or(here.topic().as_ref(), CommentView::node))?.id().into();
        let reply_to = asked.is_some().then(|| said.message.clone());
        let content: String = say.chars().take(LINE_CHARS * 5).collect();
        // The answer replaces the earlier message about a failed answer.
        let id = Self::answer_id(context);
        if let Some(failed) = comment_in(&state, &id).filter(|comment| comment.is_by(&self.me.id)) {
            let is_new = !say.is_empty() && failed.content() != content;
            return is_new.then_some(Op::EditComment { id, content });
        }
        (!say.is_empty()).then(|| Op::AddComment { id: made_by(&context.job, "said"), node, content, reply_to })
    }

    /// Returns the op for a requested change.
    fn op_of(&self, state: &State, wish: &Wish, id: Arc<str>) -> Result<Op, String> {
        let text = cut(wish.text.trim(), LINE_CHARS);
        let needs_text = || match text.is_empty() {
            true => Err(format!("{:?} needs a text", wish.act)),
            false => Ok(text.clone()),
        };
        let node = || node_named(state, &wish.node);
        let to = |name: &str| if name.trim().is_empty() { Ok(None) } else { node_named(state, name).map(Some) };
        let is_mine = |id: &str| node_in(state, id).is_some_and(|node| node.is_by(&self.me.id));
        let or_proposed = |node: Arc<str>, op: Op| match is_mine(&node) {
            true => op,
            false => Op::Propose { id: id.clone(), reason: text.clone(), ops: vec![op] },
        };
        Ok(match wish.act {
            Act::Add => {
                let parent = to(if wish.to.trim().is_empty() { &wish.node } else { &wish.to })?;
                Op::AddNode { id, title: needs_text()?, body: String::new(), parent, before: None, after: None }
            }
            Act::Rename => {
                let (node, title) = (node()?, Some(needs_text()?));
                or_proposed(node.clone(), Op::EditNode { id: node, title, body: None, reason: String::new() })
            }
            Act::Move => {
                let node = node()?;
                or_proposed(node.clone(), Op::MoveNode { id: node, parent: to(&wish.to)?, before: None, after: None })
            }
            Act::Remove => {
                let node = node()?;
                or_proposed(node.clone(), Op::RemoveNode { id: node, with_children: false })
            }
            Act::Link => {
                let to = node_named(state, &wish.to)?;
                Op::AddLink { id, from: node()?, to, label: text }
            }
            Act::Comment => Op::AddComment { id, node: node()?, content: needs_text()?, reply_to: None },
            Act::Accept => Op::Accept { id: proposal_named(state, &wish.node)? },
            Act::Reject => Op::Reject { id: proposal_named(state, &wish.node)?, reason: text },
        })
    }
}

/// Returns the id of an entity that a step creates. A repeated step has the same id. It is short enough for a model to
/// repeat.
fn made_by(seed: &str, what: &str) -> Arc<str> {
    let hash = Hash::of(format!("{seed}/{what}").as_bytes()).hex();
    format!("n{}", &hash[..12]).into()
}

/// Removes the marks around a name that a model may have copied from an outline.
fn bare(name: &str) -> &str {
    name.trim().trim_matches(['[', ']', '"']).trim()
}

/// Returns the node with this id, or otherwise the only one with this title.
fn node_named(state: &State, name: &str) -> Result<Arc<str>, String> {
    let name = bare(name);
    if node_in(state, name).is_some() {
        return Ok(name.into());
    }
    let wanted = name.to_lowercase();
    let mut alike = nodes_in(state).filter(|node| node.title().trim().to_lowercase() == wanted).map(NodeView::id);
    match (alike.next(), alike.next()) {
        (Some(id), None) => Ok(id.into()),
        (None, _) => Err(format!("there is no node \"{name}\"")),
        (Some(one), Some(other)) => Err(format!("\"{name}\" may be [{one}] or [{other}]")),
    }
}

fn proposal_named(state: &State, name: &str) -> Result<Arc<str>, String> {
    let name = bare(name);
    match proposal_in(state, name) {
        Some(_) => Ok(name.into()),
        None => Err(format!("there is no proposal \"{name}\"")),
    }
}

/// Returns the outline of a map for a model: each node under its parent with its id, then links, open comments and open
/// proposals.
pub(super) fn outline(title: &str, state: &State) -> String {
    let line = |text: &str| {
        let text = store::secrets::redacted(text).map_or(Cow::Borrowed(text), |(left, _)| Cow::Owned(left));
        cut(&unmarked(&text).replace(char::is_control, " "), LINE_CHARS)
    };
    let mut children: BTreeMap<&str, Vec<NodeView<'_>>> = BTreeMap::new();
    for node in nodes_in(state) {
        children.entry(node.parent().unwrap_or_default()).or_default().push(node);
    }
    let mut outline = format!("The mind map \"{}\":", line(title));
    let mut waiting: Vec<(usize, NodeView<'_>)> =
        children.remove("").into_iter().flatten().rev().map(|node| (0, node)).collect();
    while let Some((depth, node)) = waiting.pop() {
        let body = if node.body().is_empty() { String::new() } else { format!(": {}", line(node.body())) };
        outline.push_str(&format!("\n{}- [{}] {}{body}", "  ".repeat(depth), node.id(), line(node.title())));
        waiting.extend(children.remove(node.id()).into_iter().flatten().rev().map(|node| (depth + 1, node)));
    }
    for link in links_in(state) {
        outline.push_str(&format!("\n[{}] → [{}] {}", line(link.from()), line(link.to()), line(link.label())));
    }
    for comment in comments_in(state).filter(|comment| !comment.is_resolved()) {
        let (node, by) = (line(comment.node()), line(&called(state, comment.by())));
        outline.push_str(&format!("\nOn [{node}], {by} says: {}", line(comment.content())));
    }
    for proposal in proposals_in(state).filter(|proposal| proposal.is_open()) {
        let (id, by) = (line(proposal.id()), line(&called(state, proposal.by())));
        outline.push_str(&format!("\nProposal [{id}] by {by}: {}", line(&proposal.ops_text())));
    }
    outline
}
