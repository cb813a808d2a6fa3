//! Typed views of a chat's entities. A state keeps entities as JSON, because clients patch them; only this file and the
//! rules that write them name their members.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::Timestamp;

use super::{Stance, TopicRole, Turns, message_path, topic_path};
use crate::canvas::State;

/// The status of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MessageStatus {
    /// The author is writing the message.
    Streaming,
    /// The message is complete.
    Final,
    /// The writing was interrupted.
    Interrupted,
    /// The message was retracted.
    Retracted,
}

fn text<'s>(entity: &'s Value, member: &str) -> &'s str {
    entity[member].as_str().unwrap_or_default()
}

fn texts<'s>(entity: &'s Value, member: &str) -> impl Iterator<Item = &'s str> + use<'s> {
    entity[member].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn numbered<'s>(entity: &'s Value, member: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    entity[member].as_object().into_iter().flat_map(Map::values)
}

/// A message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageView<'s>(&'s Value);

impl<'s> MessageView<'s> {
    pub(crate) fn of(entity: &'s Value) -> Self {
        Self(entity)
    }

    /// Returns the entity itself, for patches that copy members.
    pub(super) fn entity(self) -> &'s Value {
        self.0
    }

    pub(crate) fn id(self) -> &'s str {
        text(self.0, "id")
    }

    /// Returns the id of the principal that posted the message.
    pub(crate) fn sender(self) -> &'s str {
        text(self.0, "sender")
    }

    pub(crate) fn is_by(self, who: &str) -> bool {
        self.sender() == who
    }

    pub(crate) fn content(self) -> &'s str {
        text(self.0, "content")
    }

    pub(crate) fn status(self) -> MessageStatus {
        MessageStatus::deserialize(&self.0["status"]).unwrap_or(MessageStatus::Final)
    }

    pub(crate) fn is_streaming(self) -> bool {
        self.status() == MessageStatus::Streaming
    }

    /// Returns `true` for a message with a text that stays: neither one that is being written nor a retracted one.
    pub(crate) fn is_said(self) -> bool {
        matches!(self.status(), MessageStatus::Final | MessageStatus::Interrupted)
    }

    /// Returns the order key: messages of a topic are in the order of their keys.
    pub(crate) fn ord(self) -> &'s str {
        text(self.0, "ord")
    }

    /// Returns the revision of the canvas at which the message was created, which is its order key.
    pub(crate) fn created_rev(self) -> Option<u64> {
        self.ord().parse().ok()
    }

    /// Returns the revision of the canvas at which the message changed last.
    pub(crate) fn rev(self) -> Option<u64> {
        self.0["rev"].as_u64()
    }

    /// Returns the time of creation.
    pub(crate) fn at(self) -> Option<Timestamp> {
        text(self.0, "at").parse().ok()
    }

    pub(crate) fn reply_to(self) -> Option<&'s str> {
        self.0["reply_to"].as_str()
    }

    /// Returns the message that this one completes.
    pub(crate) fn supplements(self) -> Option<&'s str> {
        self.0["supplements"].as_str()
    }

    /// Returns the answered messages, if there are several.
    pub(crate) fn answers(self) -> impl Iterator<Item = &'s str> + use<'s> {
        texts(self.0, "answers")
    }

    /// Returns the ids of the mentioned principals.
    pub(crate) fn mentions(self) -> impl Iterator<Item = &'s str> + use<'s> {
        texts(self.0, "mentions")
    }

    /// Returns the principals whose words the message bears.
    pub(crate) fn behind(self) -> impl Iterator<Item = &'s str> + use<'s> {
        texts(self.0, "behind")
    }

    /// Returns the ids of the concepts and records that the message rests on.
    pub(crate) fn rests_on(self) -> impl Iterator<Item = &'s str> + use<'s> {
        texts(self.0, "rests_on")
    }

    /// Returns the hashes of the attachments.
    pub(super) fn attachments(self) -> impl Iterator<Item = &'s str> + use<'s> {
        self.0["attachments"].as_array().into_iter().flatten().map(|one| text(one, "hash"))
    }

    pub(crate) fn is_urgent(self) -> bool {
        self.0["urgent"] == true
    }

    /// Returns the principal that interrupted the message.
    pub(crate) fn interrupted_by(self) -> Option<&'s str> {
        self.0["interrupted_by"]["by"].as_str()
    }

    pub(super) fn is_purged(self) -> bool {
        self.0.get("purged_by").is_some()
    }

    /// Returns the earlier texts.
    pub(crate) fn revisions(self) -> impl Iterator<Item = RevisionView<'s>> + use<'s> {
        numbered(self.0, "revisions").map(RevisionView)
    }

    /// Returns the last earlier text.
    pub(crate) fn last_revision(self) -> Option<RevisionView<'s>> {
        self.revisions().max_by_key(|past| past.number())
    }

    /// Returns the suggested texts.
    pub(super) fn suggestions(self) -> impl Iterator<Item = RevisionView<'s>> + use<'s> {
        numbered(self.0, "suggestions").map(RevisionView)
    }

    pub(super) fn suggestion(self, number: u64) -> Option<RevisionView<'s>> {
        self.0["suggestions"].get(number.to_string()).map(RevisionView)
    }

    /// Returns `true` if the entity has a member.
    pub(super) fn has(self, member: &str) -> bool {
        self.0.get(member).is_some()
    }

    /// Returns the principals that gave a reaction, by reaction.
    pub(crate) fn reactions(self) -> Option<&'s Map<String, Value>> {
        self.0["reactions"].as_object()
    }
}

/// An earlier text of a message, or a suggested one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RevisionView<'s>(&'s Value);

impl<'s> RevisionView<'s> {
    /// Returns the number, from 1.
    pub(crate) fn number(self) -> u64 {
        self.0["n"].as_u64().unwrap_or(0)
    }

    pub(crate) fn content(self) -> &'s str {
        text(self.0, "content")
    }

    pub(crate) fn reason(self) -> &'s str {
        text(self.0, "reason")
    }

    /// Returns the revision of the canvas at which the text was replaced.
    pub(crate) fn rev(self) -> Option<u64> {
        self.0["rev"].as_u64()
    }

    /// Returns the time at which the text was replaced or suggested.
    pub(super) fn at(self) -> Option<Timestamp> {
        text(self.0, "at").parse().ok()
    }

    /// Returns the principal that replaced or suggested the text.
    pub(super) fn by(self) -> &'s str {
        text(self.0, "by")
    }

    /// Returns the status that the message had with this text.
    pub(super) fn status(self) -> MessageStatus {
        MessageStatus::deserialize(&self.0["status"]).unwrap_or(MessageStatus::Final)
    }

    /// Returns `true` for a suggestion that was neither accepted nor declined.
    pub(super) fn is_open(self) -> bool {
        self.0["status"] == "open"
    }

    /// Returns the size that counts against the history of a message, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.content().len() + self.reason().len()
    }
}

/// A topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopicView<'s>(&'s Value);

impl<'s> TopicView<'s> {
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

    pub(crate) fn is_created_by(self, who: &str) -> bool {
        self.0["created_by"] == who
    }

    pub(crate) fn is_archived(self) -> bool {
        self.0["archived"] == true
    }

    pub(crate) fn turns(self) -> Turns {
        Turns::deserialize(&self.0["turns"]).unwrap_or_default()
    }

    /// Returns the role of a principal in the topic, if it has one.
    pub(crate) fn role_of(self, who: &str) -> Option<TopicRole> {
        TopicRole::deserialize(self.0["roles"].get(who)?).ok()
    }

    /// Returns the stance of a lifeform in the topic, if one was set.
    pub(crate) fn stance_of(self, who: &str) -> Option<StanceView<'s>> {
        self.0["stances"].get(who).map(StanceView)
    }

    /// Returns the id of the pinned message.
    pub(crate) fn pinned(self) -> Option<&'s str> {
        self.0["pinned"].as_str()
    }

    /// Returns the principals with a role in the topic, and the one who opened it.
    pub(crate) fn principals(self) -> impl Iterator<Item = (&'s str, Option<TopicRole>)> + use<'s> {
        let roles = self.0["roles"].as_object().into_iter().flatten();
        let roles = roles.map(|(who, role)| (who.as_str(), TopicRole::deserialize(role).ok()));
        roles.chain(self.0["created_by"].as_str().map(|who| (who, None)))
    }

    /// Returns the principals that have marked how far they have read.
    pub(crate) fn read_by(self) -> impl Iterator<Item = &'s str> + use<'s> {
        self.0["read"].as_object().into_iter().flatten().map(|(who, _)| who.as_str())
    }

    /// Returns a principal's summary of the topic.
    pub(crate) fn summary_of(self, who: &str) -> Option<SummaryView<'s>> {
        self.0["summaries"].get(who).map(SummaryView)
    }

    /// Returns all summaries, by author.
    pub(super) fn summaries(self) -> impl Iterator<Item = (&'s str, SummaryView<'s>)> + use<'s> {
        let all = self.0["summaries"].as_object().into_iter().flatten();
        all.map(|(who, summary)| (who.as_str(), SummaryView(summary)))
    }

    /// Returns `true` if the map `roles`, `read` or `summaries` of the topic has `max` entries, none of them of `who`.
    pub(super) fn is_full(self, map: &str, max: usize, who: &str) -> bool {
        self.0[map].as_object().is_some_and(|known| known.len() >= max && !known.contains_key(who))
    }

    /// Returns `true` if the entity has a member.
    pub(super) fn has(self, member: &str) -> bool {
        self.0.get(member).is_some()
    }
}

/// The stance of a lifeform in a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StanceView<'s>(&'s Value);

impl<'s> StanceView<'s> {
    pub(crate) fn stance(self) -> Stance {
        Stance::deserialize(&self.0["stance"]).unwrap_or_default()
    }

    /// Returns the revision at which the stance was set. Messages before it are not part of a meeting.
    pub(crate) fn rev(self) -> u64 {
        self.0["rev"].as_u64().unwrap_or_default()
    }

    pub(crate) fn agenda(self) -> impl Iterator<Item = &'s str> + use<'s> {
        self.0["agenda"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    pub(crate) fn until(self) -> Option<Timestamp> {
        text(self.0, "until").parse().ok()
    }
}

/// A summary of a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryView<'s>(&'s Value);

impl<'s> SummaryView<'s> {
    pub(crate) fn content(self) -> &'s str {
        text(self.0, "content")
    }

    /// Returns the order key of the last message in the summary.
    pub(crate) fn ord(self) -> &'s str {
        text(self.0, "ord")
    }

    /// Returns the id of the last message in the summary.
    pub(crate) fn upto(self) -> &'s str {
        text(self.0, "upto")
    }
}

/// Returns the topics of a chat, oldest first.
pub(crate) fn topics_in(state: &State) -> impl DoubleEndedIterator<Item = TopicView<'_>> {
    state.children("/topics").map(TopicView)
}

/// Returns a topic.
pub(crate) fn topic_in<'s>(state: &'s State, topic: &str) -> Option<TopicView<'s>> {
    state.get(&topic_path(topic)).map(TopicView)
}

/// Returns the messages of a topic, oldest first.
pub(crate) fn messages_in<'s>(
    state: &'s State,
    topic: &str,
) -> impl DoubleEndedIterator<Item = MessageView<'s>> + use<'s> {
    state.children(&format!("{}/messages", topic_path(topic))).map(MessageView)
}

/// Returns a message.
pub(crate) fn message_in<'s>(state: &'s State, topic: &str, id: &str) -> Option<MessageView<'s>> {
    state.get(&message_path(topic, id)).map(MessageView)
}

/// Returns the status as the entity keeps it.
pub(super) fn status(status: MessageStatus) -> Value {
    json!(status)
}
