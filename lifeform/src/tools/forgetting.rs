//! Forgetting at a person's request: facts, records, summaries, and the sentences in the history of prompts.

use std::borrow::Cow;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use knowledge::telling_words;
use nexus::kip::graph::text::terms;
use serde_json::json;
use store::{Hash, Origin, Timestamp};

use super::{LifeformToolbox, ToolScope, compaction, speakers};
use crate::LifeformError;
use crate::agenda::ForgottenText;
use crate::asking::is_question;
use crate::canvas::chat::{self, MessageView, TopicView};
use crate::canvas::{Canvas, State};
use crate::memory::{
    ForgetRequest, Forgettable, Forgotten, Gone, Place, chosen, forget_requests, forget_requests_by_rule,
    is_forget_request, without_confirmation,
};
use crate::perception::{Change, PerceivedMessage};
use crate::reminders::Language;

/// The part of the telling words of what is forgotten that a question about it names: one in so many.
const ABOUT_SHARE: usize = 3;
/// The time within which a summary that is being written may hold what was forgotten since it was begun.
const MEANWHILE: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

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
        if let Some(facts) = self.chosen_to_forget(here, said) {
            let mut forgotten = self.to_forget((None, false), said, origin).await?;
            forgotten.gone.retain(|one| facts.contains(&one.fact));
            let language = Language::of(&said.content);
            let request = ForgetRequest { what: Some(said.content.clone()), is_all_of_it: false, language };
            return self.forget_request(here, said, (0, &request), forgotten, origin).await;
        }
        let requests = forget_requests_by_rule(&said.content, here.perception.supply.tools).0;
        self.forget_by_rule(here, said, requests, true, origin).await
    }

    /// Returns the facts that a message chooses if the lifeform has just asked its sender which of several are to be forgotten.
    pub(super) fn chosen_to_forget(&self, here: &ToolScope, said: &PerceivedMessage) -> Option<Vec<String>> {
        // "Forget everything." means more than what was asked about.
        if forget_requests(&said.content).0.iter().any(|request| request.what.is_none()) {
            return None;
        }
        let (question, known) = self.asked_which(here, said)?;
        let statements: Vec<String> = known.iter().map(|(_, statement)| statement.clone()).collect();
        // The question named them all, in this order: another wording of a model could mean others.
        let places: Option<Vec<usize>> = statements.iter().map(|statement| question.find(statement.as_str())).collect();
        places.filter(|places| places.is_sorted())?;
        let facts: Vec<String> =
            chosen(&said.content, &statements).into_iter().map(|place| known[place].0.clone()).collect();
        (!facts.is_empty()).then_some(facts)
    }

    /// Returns the question right above a message which of several facts of its sender are to be forgotten, with their ids and
    /// statements.
    pub(super) fn asked_which(
        &self,
        here: &ToolScope,
        said: &PerceivedMessage,
    ) -> Option<(String, Vec<(String, String)>)> {
        let is_new = said.change == Change::New && said.to_answer && here.canvas.kind.is(chat::NAME);
        if !is_new {
            return None;
        }
        let (state, agenda) = (here.canvas.snapshot().state, self.plans.agenda());
        let ord = chat::message_in(&state, here.topic(), &said.message)?.ord();
        let mut before = chat::messages_in(&state, here.topic()).rev().filter(|message| message.ord() < ord);
        let question = before.find(|message| message.is_by(&self.me.id.0))?;
        let is_of_sender =
            |id: &&str| chat::message_in(&state, here.topic(), id).is_some_and(|one| one.is_by(&said.sender));
        let answered = question.answers().chain(question.reply_to()).filter(is_of_sender);
        let near = |id: &str| agenda.taken_off(&near_key(&here.name_of(id)));
        let known: Vec<(String, String)> = answered.filter_map(near).flatten().filter_map(|one| named(&one)).collect();
        (!known.is_empty()).then(|| (question.content().to_owned(), known))
    }

    /// Records the facts between which a person has to choose, for its next message; none once something is forgotten.
    pub(super) async fn ask_which(
        &self,
        here: &ToolScope,
        said: &PerceivedMessage,
        forgotten: &Forgotten,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let key = near_key(&here.name_of(&said.message));
        let is_asked = forgotten.gone.is_empty() && self.is_alone_here(here, &said.sender);
        let near = forgotten.near.iter().filter(|_| is_asked);
        let near: Vec<String> = near.map(|one| json!([one.fact, one.statement]).to_string()).collect();
        if self.plans.agenda().taken_off(&key).unwrap_or_default() == near {
            return Ok(());
        }
        let noted = self.plans.change(origin, "asked what to forget", |agenda, _| {
            agenda.replace_taken_off(&key, near.clone());
            Ok(())
        });
        noted.await.map_err(ToolFailure::passing)
    }

    /// Forgets what messages ask to forget and a model with tools left undone: it did not call `forget`.
    pub(super) async fn forget_what_is_left(
        &self,
        context: &ToolContext,
        here: &ToolScope,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        if !here.perception.supply.tools {
            return Ok(());
        }
        for said in here.perception.said.iter().filter(|said| said.to_answer && said.change == Change::New) {
            let (requests, _) = forget_requests(&said.content);
            let is_by_rule = !forget_requests_by_rule(&said.content, true).0.is_empty();
            if !requests.is_empty() && !is_by_rule && !self.has_called("forget", context).await? {
                self.forget_by_rule(here, said, requests, false, origin).await?;
            }
        }
        Ok(())
    }

    /// Forgets what requests of a message name. Where they name nothing that is known, the confirmation says so if `in_any_case`.
    async fn forget_by_rule(
        &self,
        here: &ToolScope,
        said: &PerceivedMessage,
        requests: Vec<ForgetRequest>,
        in_any_case: bool,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        for (n, request) in requests.into_iter().enumerate() {
            let mut forgotten = self.to_forget((request.what.as_deref(), request.is_all_of_it), said, origin).await?;
            if let Some(known) = self.plans.agenda().taken_off(&facts_key(&forget_key(here, said, n))) {
                // A repetition takes no other facts than the first time.
                forgotten.gone.retain(|one| known.contains(&one.fact));
            }
            if !forgotten.gone.is_empty() || in_any_case {
                self.ask_which(here, said, &forgotten, origin).await?;
                self.forget_request(here, said, (n, &request), forgotten, origin).await?;
            }
        }
        Ok(())
    }

    /// Forgets what a request of a message means, after its confirmation is recorded.
    async fn forget_request(
        &self,
        here: &ToolScope,
        said: &PerceivedMessage,
        (n, request): (usize, &ForgetRequest),
        forgotten: Forgotten,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let key = forget_key(here, said, n);
        let facts: Vec<String> = forgotten.gone.iter().map(|one| one.fact.clone()).collect();
        let confirmation = request.confirmation(&forgotten, self.is_alone_here(here, &said.sender));
        let noted = self.plans.change(origin, "forgotten", |agenda, _| {
            if agenda.taken_off(&key).is_none() {
                agenda.note_taken_off(facts_key(&key), facts.clone());
                agenda.note_taken_off(key.clone(), vec![confirmation.clone()]);
            }
            Ok(())
        });
        noted.await.map_err(ToolFailure::passing)?;
        self.forget(&forgotten.gone, &Wish::in_message(here, said), origin).await
    }

    /// Returns the facts that a person asks to forget in a message. What it stated after that message stays.
    pub(super) async fn to_forget(
        &self,
        what: (Option<&str>, bool),
        said: &PerceivedMessage,
        origin: &Origin,
    ) -> Result<Forgotten, ToolFailure> {
        let is_before = |place: &Place| {
            let message = place.message();
            let Some((canvas, topic, id)) = parts_of(&message) else { return true };
            let Some(canvas) = self.canvases.get(canvas) else { return true };
            let state = canvas.snapshot().state;
            chat::message_in(&state, topic, id).and_then(|message| message.at()).is_none_or(|at| at <= said.at)
        };
        self.memory.to_forget(what, &said.sender, is_before, origin).await.map_err(ToolFailure::passing)
    }

    /// Forgets facts of a person: it leaves their sentences out of prompts, replaces the summaries that
    /// cover them, deletes the records of the same, and retracts the facts last, so that a repetition finds them.
    pub(crate) async fn forget(&self, gone: &[Gone], wish: &Wish<'_>, origin: &Origin) -> Result<(), ToolFailure> {
        if gone.is_empty() {
            return Ok(());
        }
        let request = wish.message.as_ref().map(|(name, content)| Self::requests_in(name, content, wish));
        let mut texts: Vec<ForgottenText> = request.unwrap_or_default();
        for one in gone {
            for message in &one.messages {
                let text = |sentence| ForgottenText {
                    message: message.as_str().into(),
                    at: wish.at,
                    by: wish.person.into(),
                    sentence,
                };
                let sentences = self.sentences_that_say(message, &one.statement);
                // If no sentence says it, the whole message is left out.
                let whole = sentences.is_empty().then(|| text(None));
                texts.extend(sentences.into_iter().map(|sentence| text(Some(sentence))).chain(whole));
            }
            texts.extend(self.own_messages_that_say(one, wish.person, wish.at));
            texts.extend(self.questions_about(one, wish.person, wish.at));
        }
        texts.sort_by(|one, other| (&one.message, &one.sentence).cmp(&(&other.message, &other.sentence)));
        texts.dedup();
        let left_out = self.plans.change(origin, "texts left out", |agenda, _| {
            agenda.leave_out(texts.clone());
            Ok(())
        });
        left_out.await.map_err(ToolFailure::passing)?;
        self.summarise_without(&texts, origin).await?;
        let records = self.knowledge.forget(wish.person, gone, &origin.cause);
        records.await.map_err(super::failed)?;
        // Before, so that a repetition finds the facts; and after, since they may have been read in between.
        let facts: Vec<&str> = gone.iter().map(|one| &*one.fact).collect();
        self.memory.withdraw(&facts, origin).await.map_err(ToolFailure::passing)?;
        self.memory.retract(gone, wish.source, origin).await.map_err(ToolFailure::passing)?;
        self.memory.withdraw(&facts, origin).await.map_err(ToolFailure::passing)
    }

    /// Returns facts as they are to be forgotten, and the present time.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn facts_to_forget(
        &self,
        ids: &[String],
        origin: &Origin,
    ) -> Result<(Vec<Forgettable>, Timestamp), LifeformError> {
        let own = Origin::new(self.me.clone(), origin.cause.clone());
        Ok((self.memory.facts_to_forget(ids, &own).await?, self.memory.now()))
    }

    /// Forgets facts that a person wishes to be forgotten outside a talk; see [`Self::forget`].
    ///
    /// # Errors
    /// The reason, if the store or the nexus refuses.
    pub(crate) async fn forget_by_wish(
        &self,
        gone: &[Gone],
        wish: &Wish<'_>,
        origin: &Origin,
    ) -> Result<(), LifeformError> {
        let own = Origin::new(self.me.clone(), origin.cause.clone());
        self.forget(gone, wish, &own).await.map_err(|failure| LifeformError::Died(failure.message))
    }

    /// Returns the lifeform's own messages that rest on a fact, or say all of it where its person speaks.
    fn own_messages_that_say(&self, gone: &Gone, person: &str, at: Timestamp) -> Vec<ForgottenText> {
        let mut own = Vec::new();
        for canvas in self.canvases.all() {
            let state = canvas.snapshot().state;
            for topic in chat::topics_in(&state).map(TopicView::id) {
                let speaks = speakers(&state, topic).contains(person);
                // The answer to a message retells it, often in words of its own.
                let stated = |message: &str| {
                    let parts = |one: &String| {
                        parts_of(one)
                            .is_some_and(|(of, in_topic, id)| of == canvas.name() && in_topic == topic && id == message)
                    };
                    gone.messages.iter().any(parts)
                };
                let is_to =
                    |message: &MessageView<'_>| message.reply_to().into_iter().chain(message.answers()).any(stated);
                let says = |message: &MessageView<'_>| {
                    message.rests_on().any(|id| *id == *gone.fact)
                        || is_to(message)
                        || (speaks && knowledge::adds_nothing(&gone.statement, message.content()))
                };
                let name = |message: MessageView<'_>| format!("{}/{topic}/{}", canvas.name(), message.id()).into();
                for message in chat::messages_in(&state, topic).filter(|message| message.is_by(&self.me.id.0)) {
                    if says(&message) {
                        own.push(ForgottenText { message: name(message), at, by: person.into(), sentence: None });
                    } else if speaks {
                        // A sentence of a longer answer may say most of it.
                        let sentences = knowledge::sentences(message.content()).into_iter();
                        let told = sentences.filter(|sentence| knowledge::words_the_same(&gone.statement, sentence));
                        own.extend(told.map(|sentence| ForgottenText {
                            message: name(message),
                            at,
                            by: person.into(),
                            sentence: Some(sentence_hash(&sentence)),
                        }));
                    }
                }
            }
        }
        own
    }

    /// Returns the questions of people about a fact, in the topics in which its person speaks: they name what it says.
    fn questions_about(&self, gone: &Gone, person: &str, at: Timestamp) -> Vec<ForgottenText> {
        let words = telling_words(&gone.statement);
        let mut questions = Vec::new();
        if words.is_empty() {
            return questions;
        }
        let is_about = |sentence: &String| {
            let shared = telling_words(sentence).intersection(&words).count();
            is_question(sentence) && shared > 0 && ABOUT_SHARE * shared >= words.len()
        };
        for canvas in self.canvases.all() {
            let state = canvas.snapshot().state;
            for topic in chat::topics_in(&state).map(TopicView::id) {
                if !speakers(&state, topic).contains(person) {
                    continue;
                }
                for message in chat::messages_in(&state, topic).filter(|message| !message.is_by(&self.me.id.0)) {
                    let name: Arc<str> = format!("{}/{topic}/{}", canvas.name(), message.id()).into();
                    let about = knowledge::sentences(message.content()).into_iter().filter(is_about);
                    questions.extend(about.map(|sentence| ForgottenText {
                        message: name.clone(),
                        at,
                        by: person.into(),
                        sentence: Some(sentence_hash(&sentence)),
                    }));
                }
            }
        }
        questions
    }

    /// Returns the sentences of a message that ask to forget something, which name it, too; the whole message if only a model
    /// understood it.
    fn requests_in(message: &str, content: &str, wish: &Wish<'_>) -> Vec<ForgottenText> {
        let sentences = knowledge::sentences(content).into_iter().filter(|sentence| is_forget_request(sentence));
        let text = |sentence| ForgottenText { message: message.into(), at: wish.at, by: wish.person.into(), sentence };
        let requests: Vec<ForgottenText> = sentences.map(|sentence| text(Some(sentence_hash(&sentence)))).collect();
        if requests.is_empty() { vec![text(None)] } else { requests }
    }

    /// Returns the hashes of the sentences of a message that state a fact: the sentence itself, or those that share a
    /// telling word with a fact in other words. The other sentences can stay.
    fn sentences_that_say(&self, message: &str, statement: &str) -> Vec<String> {
        let Some((canvas, topic, id)) = parts_of(message) else { return Vec::new() };
        let Some(canvas) = self.canvases.get(canvas) else { return Vec::new() };
        let state = canvas.snapshot().state;
        let Some(message) = chat::message_in(&state, topic, id) else { return Vec::new() };
        let sentences = knowledge::sentences(message.content());
        let hash = sentence_hash(statement);
        if sentences.iter().any(|sentence| sentence_hash(sentence) == hash) {
            return vec![hash];
        }
        let words = telling_words(statement);
        let says = |sentence: &&String| !telling_words(sentence).is_disjoint(&words);
        sentences.iter().filter(says).map(|sentence| sentence_hash(sentence)).collect()
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
                let content = self.extract_upto(&canvas, &state, topic, summary.ord());
                let op = chat::Op::Summarize { id: topic.into(), upto: summary.upto().into(), content };
                Self::act(&canvas, op, origin).await?;
            }
        }
        Ok(())
    }

    /// Returns the summary that a model wrote of the messages of a topic up to `ord`; an extract instead if a person asked
    /// to forget one of them meanwhile.
    pub(super) fn without_forgotten(&self, canvas: &Canvas, topic: &str, ord: &str, written: String) -> String {
        let (state, agenda) = (canvas.snapshot().state, self.plans.agenda());
        if !agenda.has_forgotten() {
            return written;
        }
        let since = self.memory.now() - MEANWHILE;
        let mut covered = chat::messages_in(&state, topic).filter(|message| message.is_said() && message.ord() <= ord);
        let is_new = |message: MessageView<'_>| {
            let reference = format!("{}/{topic}/{}", canvas.name(), message.id());
            agenda.forgotten_in(&reference).any(|text| text.at >= since)
        };
        if !covered.any(is_new) {
            return written;
        }
        self.extract_upto(canvas, &state, topic, ord)
    }

    /// Returns an extract of the messages of a topic up to `ord`, as far as prompts may contain them; "…" if nothing is
    /// left.
    fn extract_upto(&self, canvas: &Canvas, state: &State, topic: &str, ord: &str) -> String {
        let texts = self.texts_in(canvas, state, topic).filter(|(message, _)| message.ord() <= ord);
        let lines: Vec<(String, String)> =
            texts.map(|(message, text)| (self.display_name(state, message.sender()), text.into_owned())).collect();
        let (extract, _) = compaction::extract(lines.into_iter(), compaction::EXTRACT_TOKENS);
        if extract.is_empty() { "…".to_owned() } else { extract }
    }

    /// Returns the text of a message as prompts may contain it: without the sentences that a person asked to forget, and with
    /// placeholders for secrets. `None` if nothing is left.
    pub(super) fn text_of<'s>(&self, canvas: &Canvas, topic: &str, message: MessageView<'s>) -> Option<Cow<'s, str>> {
        let (agenda, content) = (self.plans.agenda(), message.content());
        let reference = format!("{}/{topic}/{}", canvas.name(), message.id());
        // What the lifeform wrote itself is kept nowhere else.
        let shown: Cow<'s, str> = match message.is_by(&self.me.id.0) {
            true => content.into(),
            false => knowledge::without_secrets(content, &reference).into(),
        };
        if !agenda.has_forgotten() {
            return Some(shown);
        }
        if message.is_by(&self.me.id.0) {
            let is_hit = |id: &str| {
                let reference = format!("{}/{topic}/{id}", canvas.name());
                agenda.forgotten_in(&reference).next().is_some()
            };
            let left = without_confirmation(content);
            // A model's answer to the request names what is gone in words of its own.
            let is_hidden = is_hit(message.id()) || message.reply_to().is_some_and(is_hit);
            return (!is_hidden && !left.is_empty()).then_some(left.into());
        }
        let texts: Vec<&ForgottenText> = agenda.forgotten_in(&reference).collect();
        if texts.is_empty() {
            return Some(shown);
        }
        if texts.iter().any(|text| text.sentence.is_none()) {
            return None;
        }
        let is_left_out = |sentence: &String| {
            let hash = sentence_hash(sentence);
            texts.iter().any(|text| text.sentence.as_deref() == Some(&*hash))
        };
        // The rest stays as it was written.
        let gone = knowledge::sentences(&shown).into_iter().filter(is_left_out);
        let left = gone.fold(shown.into_owned(), |left, sentence| left.replacen(&sentence, "", 1));
        let tells = !terms(&left).is_empty();
        tells.then(|| left.trim().to_owned().into())
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
            let requests = 0..forget_requests(&said.content).0.len().max(1);
            requests.filter_map(|n| agenda.taken_off(&forget_key(here, said, n))).flatten().collect::<Vec<_>>()
        };
        asked.flat_map(of).collect()
    }
}

/// A wish to forget facts.
#[derive(Clone, Debug)]
pub(crate) struct Wish<'a> {
    /// The person whose facts they are.
    pub(crate) person: &'a str,
    /// The time.
    pub(crate) at: Timestamp,
    /// The reference of the entry with the wish.
    pub(crate) source: &'a str,
    /// The name and the text of the message with the wish, if it stands in one.
    pub(crate) message: Option<(Arc<str>, &'a str)>,
}

impl<'a> Wish<'a> {
    /// Returns the wish of a message.
    pub(super) fn in_message(here: &ToolScope, said: &'a PerceivedMessage) -> Self {
        let message = Some((here.name_of(&said.message), said.content.as_str()));
        Self { person: &said.sender, at: said.at, source: &said.source, message }
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

/// Returns the key of the facts that a request means, beside that of its confirmation.
fn facts_key(key: &str) -> Arc<str> {
    format!("{key}/facts").into()
}

/// Returns the key of the facts between which a person has to choose after a message.
fn near_key(message: &str) -> Arc<str> {
    format!("which/{message}").into()
}

/// Returns the id and the statement of a fact as [`near_key`] keeps them.
fn named(known: &str) -> Option<(String, String)> {
    serde_json::from_str(known).ok()
}

fn forget_key(here: &ToolScope, said: &PerceivedMessage, n: usize) -> Arc<str> {
    format!("forget/{}/{n}", here.name_of(&said.message)).into()
}
