//! What a lifeform has heard and not yet answered. Plain bookkeeping: which message to take up next,
//! and how far the canvas may be called read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::hands::Perception;

/// Topics a lifeform answers in at once.
const TOPICS_AT_ONCE: usize = 4;
/// Messages it keeps in mind; beyond them it reads on when it has answered some.
pub(crate) const HEARD_MAX: usize = 256;

/// See the module. Messages are known by their revision.
#[derive(Default)]
pub(crate) struct Attention {
    heard: BTreeMap<u64, Perception>,
    busy: BTreeSet<Arc<str>>,
    read: u64,
}

impl Attention {
    /// Takes note of a canvas entry; `perception` is `None` for one that asks for nothing.
    pub(crate) fn hear(&mut self, rev: u64, perception: Option<Perception>) {
        self.read = self.read.max(rev);
        if let Some(perception) = perception {
            self.heard.insert(rev, perception);
        }
    }

    /// The oldest message whose topic is free.
    pub(crate) fn next(&self) -> Option<(u64, &Perception)> {
        if self.busy.len() >= TOPICS_AT_ONCE {
            return None;
        }
        self.heard
            .iter()
            .find(|(_, perception)| !self.busy.contains(&perception.topic))
            .map(|(rev, perception)| (*rev, perception))
    }

    /// How far the canvas is read once the message of `rev` is taken up: up to the oldest other one.
    pub(crate) fn cursor_without(&self, rev: u64) -> u64 {
        self.heard.keys().find(|other| **other != rev).map_or(self.read, |oldest| oldest - 1)
    }

    /// The message of `rev` is being answered.
    pub(crate) fn take_up(&mut self, rev: u64) {
        if let Some(perception) = self.heard.remove(&rev) {
            self.busy.insert(perception.topic);
        }
    }

    /// A topic is being answered in by a job of an earlier life.
    pub(crate) fn occupy(&mut self, topic: &str) {
        self.busy.insert(topic.into());
    }

    /// A topic is free again.
    pub(crate) fn release(&mut self, topic: &str) {
        self.busy.remove(topic);
    }

    /// Whether no more should be read for now.
    pub(crate) fn is_full(&self) -> bool {
        self.heard.len() >= HEARD_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(topic: &str) -> Option<Perception> {
        Some(Perception {
            topic: topic.into(),
            message: "m".into(),
            sender: "user:ada".into(),
            content: "hi".into(),
            source: String::new(),
            history: 6,
            cause: nexus::Cause::default(),
        })
    }

    #[test]
    fn one_answer_a_topic_at_a_time_and_nothing_unanswered_is_called_read() {
        let mut a = Attention::default();
        a.hear(1, None);
        a.hear(2, said("x"));
        a.hear(3, said("x"));
        a.hear(4, said("y"));
        assert_eq!(a.next().map(|(rev, _)| rev), Some(2));
        assert_eq!(a.cursor_without(2), 2);
        a.take_up(2);
        assert_eq!(a.next().map(|(rev, _)| rev), Some(4), "x is busy");
        assert_eq!(a.cursor_without(4), 2, "message 3 is not answered yet");
        a.take_up(4);
        assert_eq!(a.next(), None);
        a.release("x");
        assert_eq!(a.next().map(|(rev, _)| rev), Some(3));
        assert_eq!(a.cursor_without(3), 4);
    }
}
