//! The scope of a tool call: the messages that the job answers, and the canvas on which they were posted.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::ToolContext;
use nexus::OUTSIDE;
use serde_json::Value;
use store::Principal;

use super::recalling::{hears, speakers, strangers_behind};
use crate::canvas::chat::{MessageStatus, MessageView};
use crate::canvas::{Canvas, Refusal, chat};
use crate::perception::{Change, PerceivedMessage, Perception, message_name};

/// A perception with its canvas. A placeholder stands for each secret in its messages.
pub(super) struct ToolScope {
    pub(super) perception: Perception,
    pub(super) canvas: Canvas,
}

impl ToolScope {
    pub(super) fn topic(&self) -> &Arc<str> {
        &self.perception.place.topic
    }

    /// Checks that a request was not retracted meanwhile. The lifeform perceives a later retraction separately.
    pub(super) fn is_wanted_still(&self, message: &str) -> Result<(), Refusal> {
        match self.status(message) {
            Some(MessageStatus::Retracted) => Err(Refusal::State("the request was retracted".into())),
            _ => Ok(()),
        }
    }

    /// Returns the name of a message of the place among all canvases.
    pub(super) fn name_of(&self, message: &str) -> Arc<str> {
        message_name(&self.perception.place, message)
    }

    pub(super) fn message(&self, id: &str) -> Option<Value> {
        self.canvas.snapshot().state.get(&chat::message_path(self.topic(), id)).cloned()
    }

    /// Returns `true` if the present text of a message is still the perceived text. If it was amended in the meantime,
    /// the lifeform perceives the new text separately.
    pub(super) fn says_still(&self, said: &PerceivedMessage) -> bool {
        let now = self.message(&said.message);
        now.as_ref()
            .map(MessageView::of)
            .is_some_and(|now| self.shown(said, now) == said.content && now.status() != MessageStatus::Retracted)
    }

    /// Returns the present text of a message, as it is perceived: without secrets.
    fn shown(&self, said: &PerceivedMessage, now: MessageView<'_>) -> String {
        knowledge::without_secrets(now.content(), &self.name_of(&said.message))
    }

    /// Returns `true` for a message in which a lifeform answers another one.
    pub(super) fn is_answer_of_lifeform(&self, said: &PerceivedMessage) -> bool {
        let message = self.message(&said.message).filter(|_| said.sender.starts_with("lifeform:"));
        message.as_ref().map(MessageView::of).is_some_and(|message| {
            message.reply_to().is_some() || message.answers().next().is_some() || message.supplements().is_some()
        })
    }

    /// Returns the text of a message without a lifeform's confirmations of reminders.
    pub(super) fn without_confirmations(&self, said: &PerceivedMessage) -> String {
        let message = self.message(&said.message).filter(|_| said.sender.starts_with("lifeform:")).unwrap_or_default();
        let message = MessageView::of(&message);
        let text = |id: &str| Some(MessageView::of(&self.message(id)?).content().to_owned());
        let asked: Vec<String> = message.answers().chain(message.reply_to()).filter_map(text).collect();
        if asked.iter().any(|asked| crate::memory::forget_requests(asked).1) {
            return String::new();
        }
        let left = asked.iter().map(|asked| crate::reminders::without_confirmations(&said.content, asked));
        left.min_by_key(|left| left.len()).unwrap_or(&said.content).to_owned()
    }

    /// Returns `true` if a message had another text before. An interrupted thought may have processed a message that is
    /// new to this thought.
    pub(super) fn is_changed(&self, said: &PerceivedMessage) -> bool {
        let was_amended = |now: &Value| MessageView::of(now).last_revision().is_some();
        !matches!(said.change, Change::New | Change::Act)
            || self.message(&said.message).as_ref().is_some_and(was_amended)
    }

    /// Returns the readers of the place besides `me`: the principals that have posted in the topic, or on a canvas of
    /// another kind all that have written on it, and the present speakers.
    pub(super) fn people(&self, me: &Principal) -> BTreeSet<String> {
        let state = self.canvas.snapshot().state;
        let mut people = match self.canvas.kind.is(chat::NAME) {
            true => speakers(&state, self.topic()),
            false => {
                let writers = self.canvas.kind.rules().writers(&state, self.topic(), None);
                writers.into_iter().filter(|who| !who.is_empty() && *who != OUTSIDE).map(str::to_owned).collect()
            }
        };
        people.extend(self.perception.said.iter().map(|said| said.sender.to_string()));
        people.retain(|who| hears(who, me));
        people
    }

    /// Returns the principals whose words an answer bears, without the speakers of its topic, who are behind each answer
    /// there.
    pub(super) fn strangers_behind(&self, context: &ToolContext) -> Vec<Arc<str>> {
        let (mut strangers, there) = (strangers_behind(context), speakers(&self.canvas.snapshot().state, self.topic()));
        strangers.retain(|who| !there.contains(&**who));
        strangers
    }

    pub(super) fn status(&self, id: &str) -> Option<MessageStatus> {
        self.message(id).as_ref().map(|message| MessageView::of(message).status())
    }

    /// Returns `true` if every message to answer was retracted.
    pub(super) fn is_taken_back(&self) -> bool {
        let mut asked = self.perception.said.iter().filter(|said| said.to_answer).peekable();
        asked.peek().is_some() && asked.all(|said| self.status(&said.message) == Some(MessageStatus::Retracted))
    }

    /// Returns the ids of the answered messages: the last one for this lifeform, and all of them if there are several.
    pub(super) fn answers(&self) -> (Option<Arc<str>>, Vec<Arc<str>>) {
        let for_me = self.perception.said.iter().filter(|said| said.to_answer);
        let all: Vec<Arc<str>> = for_me.filter_map(PerceivedMessage::reply_to).collect();
        (all.last().cloned(), if all.len() > 1 { all } else { Vec::new() })
    }
}
