//! Forgetting at a person's request: facts, records, summaries, and the sentences in the history of prompts.

use std::borrow::Cow;
use std::sync::Arc;

use fascicles::ToolFailure;
use store::{Hash, Origin};

use super::{LifeformToolbox, ToolScope, compaction};
use crate::agenda::ForgottenText;
use crate::canvas::chat::{self, MessageView, TopicView};
use crate::canvas::{Canvas, State};
use crate::memory::{Forgotten, Gone, forget_requests, is_forget_request, without_confirmation};
use crate::perception::{Change, PerceivedMessage};

impl LifeformToolbox {
    /// Forgets what a message asks to forget. The confirmations stay until the answer is written. A repetition after a
    /// crash completes it and keeps the first confirmation.
    pub(super) async fn forget_as_asked(
        &self,
        here: &ToolScope,
        said: &PerceivedMessage,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        if said.change != Change::New || !said.to_answer {
            return Ok(());
        }
        for (n, request) in forget_requests(&said.content).0.into_iter().enumerate() {
            let key = forget_key(here, said, n);
            let forgotten = self.to_forget(request.what.as_deref(), said, origin).await?;
            let confirmation = request.confirmation(&forgotten, here.is_alone_with(&said.sender, &self.me));
            let noted = self.plans.change(origin, "forgotten", |agenda, _| {
                if agenda.taken_off(&key).is_none() {
                    agenda.note_taken_off(key.clone(), vec![confirmation.clone()]);
                }
                Ok(())
            });
            noted.await.map_err(ToolFailure::passing)?;
            self.forget(&forgotten.gone, said, origin).await?;
        }
        Ok(())
    }

    /// Returns the facts that a person asks to forget in a message. What it stated after that message stays.
    pub(super) async fn to_forget(
        &self,
        what: Option<&str>,
        said: &PerceivedMessage,
        origin: &Origin,
    ) -> Result<Forgotten, ToolFailure> {
        self.memory.to_forget(what, &said.sender, said.at, origin).await.map_err(ToolFailure::passing)
    }

    /// Forgets facts of the sender of a message: it leaves their sentences out of prompts, replaces the summaries that
    /// cover them, deletes the records of the same, and retracts the facts last, so that a repetition finds them.
    pub(super) async fn forget(
        &self,
        gone: &[Gone],
        said: &PerceivedMessage,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        if gone.is_empty() {
            return Ok(());
        }
        let mut texts: Vec<ForgottenText> = Vec::new();
        for one in gone {
            let hash = sentence_hash(&one.statement);
            texts.extend(one.messages.iter().map(|message| ForgottenText {
                message: message.as_str().into(),
                sentence: self.says_more(message, &one.statement).then(|| hash.clone()),
            }));
            let own = self.resting_on(&one.fact).into_iter();
            texts.extend(own.map(|(canvas, topic, message)| ForgottenText {
                message: format!("{}/{topic}/{message}", canvas.name()).into(),
                sentence: None,
            }));
        }
        let left_out = self.plans.change(origin, "texts left out", |agenda, _| {
            agenda.leave_out(texts.clone());
            Ok(())
        });
        left_out.await.map_err(ToolFailure::passing)?;
        self.summarise_without(&texts, origin).await?;
        let records = self.knowledge.forget(&said.sender, gone, &origin.cause);
        records.await.map_err(super::failed)?;
        self.memory.retract(gone, &said.source, origin).await.map_err(ToolFailure::passing)
    }

    /// Returns `true` if one sentence of a message is the statement, so that the others can stay.
    fn says_more(&self, message: &str, statement: &str) -> bool {
        let Some((canvas, topic, id)) = parts_of(message) else { return false };
        let Some(canvas) = self.canvases.get(canvas) else { return false };
        let state = canvas.snapshot().state;
        let Some(message) = chat::message_in(&state, topic, id) else { return false };
        let hash = sentence_hash(statement);
        knowledge::sentences(message.content()).iter().any(|sentence| sentence_hash(sentence) == hash)
    }

    /// Replaces the lifeform's summaries that cover one of these texts by extracts without them.
    async fn summarise_without(&self, texts: &[ForgottenText], origin: &Origin) -> Result<(), ToolFailure> {
        for canvas in self.canvases.all() {
            let state = canvas.snapshot().state;
            for topic in chat::topics_in(&state).map(TopicView::id) {
                let Some(summary) = compaction::summary(&state, topic, &self.me.id.0) else { continue };
                let is_covered = |text: &ForgottenText| {
                    let message =
                        parts_of(&text.message).filter(|(of, in_topic, _)| *of == canvas.name() && *in_topic == topic);
                    let message = message.and_then(|(_, _, id)| chat::message_in(&state, topic, id));
                    message.is_some_and(|message| message.ord() <= summary.ord())
                };
                if !texts.iter().any(is_covered) {
                    continue;
                }
                let lines = chat::messages_in(&state, topic)
                    .filter(|message| message.is_said() && message.ord() <= summary.ord())
                    .filter_map(|message| {
                        let text = self.text_of(&canvas, topic, message)?;
                        Some((self.display_name(&state, message.sender()), text.into_owned()))
                    });
                let lines: Vec<(String, String)> = lines.collect();
                let (mut content, _) = compaction::extract(lines.into_iter(), compaction::EXTRACT_TOKENS);
                if content.is_empty() {
                    content.push('…');
                }
                let op = chat::Op::Summarize { id: topic.into(), upto: summary.upto().into(), content };
                Self::act(&canvas, op, origin).await?;
            }
        }
        Ok(())
    }

    /// Returns the text of a message as prompts may contain it: without the sentences that a person asked to forget.
    /// `None` if nothing is left.
    pub(super) fn text_of<'s>(&self, canvas: &Canvas, topic: &str, message: MessageView<'s>) -> Option<Cow<'s, str>> {
        let agenda = self.plans.agenda();
        let content = message.content();
        if !agenda.has_forgotten() {
            return Some(content.into());
        }
        if message.is_by(&self.me.id.0) {
            let reference = format!("{}/{topic}/{}", canvas.name(), message.id());
            let left = without_confirmation(content);
            return (agenda.forgotten_in(&reference).next().is_none() && !left.is_empty()).then_some(left.into());
        }
        let reference = format!("{}/{topic}/{}", canvas.name(), message.id());
        let texts: Vec<&ForgottenText> = agenda.forgotten_in(&reference).collect();
        if texts.iter().any(|text| text.sentence.is_none()) {
            return None;
        }
        // The request names what is gone, too.
        let is_left_out = |sentence: &String| {
            let hash = sentence_hash(sentence);
            texts.iter().any(|text| text.sentence.as_deref() == Some(&*hash)) || is_forget_request(sentence)
        };
        let left: Vec<String> =
            knowledge::sentences(content).into_iter().filter(|sentence| !is_left_out(sentence)).collect();
        (!left.is_empty()).then(|| left.join(" ").into())
    }

    /// Returns the messages of a topic that have a text for prompts, with this text, oldest first.
    pub(super) fn texts_in<'s>(
        &self,
        canvas: &Canvas,
        state: &'s State,
        topic: &'s str,
    ) -> impl DoubleEndedIterator<Item = (MessageView<'s>, Cow<'s, str>)> {
        let said = chat::messages_in(state, topic).filter(|message| message.is_said());
        said.filter_map(|message| Some((message, self.text_of(canvas, topic, message)?)))
    }

    /// Returns the confirmations of what the answered messages asked to forget.
    pub(super) fn forgotten(&self, here: &ToolScope) -> Vec<String> {
        let agenda = self.plans.agenda();
        let asked = here.perception.said.iter().filter(|said| said.to_answer && said.change == Change::New);
        let of = |said: &PerceivedMessage| {
            let requests = 0..forget_requests(&said.content).0.len();
            requests.filter_map(|n| agenda.taken_off(&forget_key(here, said, n))).flatten().collect::<Vec<_>>()
        };
        asked.flat_map(of).collect()
    }
}

/// Returns canvas, topic and message of a reference `{lifeform}/{canvas}/{topic}/{message}`.
fn parts_of(message: &str) -> Option<(&str, &str, &str)> {
    let (rest, id) = message.rsplit_once('/')?;
    let (canvas, topic) = rest.rsplit_once('/')?;
    Some((canvas, topic, id))
}

/// Returns the hash of a sentence, which does not depend on case, spaces or its final mark.
fn sentence_hash(sentence: &str) -> String {
    let plain = sentence.trim().trim_end_matches(['.', '!', '。', '！']).to_lowercase();
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    Hash::of(plain.as_bytes()).hex()[..16].to_owned()
}

fn forget_key(here: &ToolScope, said: &PerceivedMessage, n: usize) -> Arc<str> {
    format!("forget/{}/{n}", here.name_of(&said.message)).into()
}
