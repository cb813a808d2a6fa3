//! A word to the answer of another lifeform. Of several lifeforms in a topic, the one at home answers what is addressed to
//! none; another one adds a fact that settles the question, if the answer leaves it out. The rule costs no tokens.

use std::sync::Arc;

use store::Hash;

use super::LifeformState;
use super::reflexes::word;
use crate::LifeformError;
use crate::canvas::chat::{self, TopicRole};
use crate::canvas::{Canvas, Op};
use crate::guard::Step;
use crate::perception::{Change, PerceivedMessage};

impl LifeformState {
    /// Adds a fact to an answer of another lifeform, at most once per question.
    pub(super) async fn add_to_answer(
        &self,
        canvas: &Canvas,
        topic: &Arc<str>,
        said: &PerceivedMessage,
    ) -> Result<(), LifeformError> {
        let is_answer = said.change == Change::New && !said.to_answer && said.sender.starts_with("lifeform:");
        let may_add = self.head.definition.initiative.thoughts && self.head.guard.step == Step::Calm;
        if !is_answer || !may_add || !canvas.kind.is(chat::NAME) {
            return Ok(());
        }
        let state = canvas.snapshot().state;
        let listens = chat::topic_in(&state, topic)
            .is_none_or(|topic| topic.is_archived() || topic.role_of(&self.me.id.0) == Some(TopicRole::Listener));
        let answered = chat::message_in(&state, topic, &said.message).and_then(|answer| answer.reply_to());
        let question = answered.and_then(|question| chat::message_in(&state, topic, question));
        let is_called = |question: &chat::MessageView<'_>| question.mentions().any(|who| who.starts_with("lifeform:"));
        let question = question.filter(|question| question.sender().starts_with("user:") && !is_called(question));
        let Some(question) = question.filter(|_| !listens) else {
            return Ok(());
        };
        let origin = self.because(said.source.clone());
        let Some(quote) = self.tools.addition(canvas, topic, question, &said.content, &origin).await? else {
            return Ok(());
        };
        // Another lifeform may have added the same.
        let is_said = |message: chat::MessageView<'_>| {
            message.reply_to() == Some(question.id()) && message.content() == quote.text
        };
        if chat::messages_in(&state, topic).any(is_said) {
            return Ok(());
        }
        let id = Hash::of(format!("{}/{}/{topic}/{}", self.me.id, canvas.name(), question.id()).as_bytes());
        let id = format!("msg_adds_{}", &id.hex()[..16]).into();
        let mut op = word(canvas, topic, id, quote.text, Some(question.id().into()));
        if let Op::Chat(chat::Op::Append { rests_on, .. }) = &mut op {
            *rests_on = quote.rests_on;
        }
        match canvas.apply(op, None, None, &origin).await {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
