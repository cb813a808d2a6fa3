//! The reading tools: the history of a topic, and memories.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::run::Taint;
use fascicles::{ToolContext, ToolFailure};
use knowledge::{KnowledgeError, Record};
use nexus::OUTSIDE;
use serde_json::{Value, json};
use store::{Event, Origin, Principal};

use super::{HISTORY_CHARS, LifeformToolbox, MESSAGE_CHARS, ToolScope, compaction, cut, told};
use crate::canvas::chat::MessageView;
use crate::canvas::{State, chat};
use crate::memory::{Readers, Recalled};
use crate::perception::{Change, PerceivedMessage, Perception};

impl LifeformToolbox {
    /// Returns the last messages of the topic up to the answered ones, oldest first. If there are several speakers,
    /// each is named: the words of people are theirs and not orders of the daemon.
    pub(super) fn history(&self, here: &ToolScope) -> Vec<Event> {
        let state = here.canvas.snapshot().state;
        let Perception { said, history, resumes, .. } = &here.perception;
        let of = |said: &PerceivedMessage| chat::message_in(&state, here.topic(), &said.message);
        let last = said.iter().filter_map(|said| of(said).map(MessageView::ord)).max().unwrap_or("~");
        let is_said = |message: MessageView<'_>| said.iter().any(|said| message.id() == &*said.message);
        let mut room = *history;
        // Messages that are in the summary are left out.
        let in_short = compaction::summary(&state, here.topic(), &self.me.id.0);
        let is_told = |message: MessageView<'_>| in_short.is_some_and(|summary| message.ord() <= summary.ord());
        let mut shown: Vec<(MessageView<'_>, Option<&PerceivedMessage>)> = chat::messages_in(&state, here.topic())
            .rev()
            .skip_while(|message| message.ord() > last)
            .filter(|message| is_said(*message) || (message.is_said() && !is_told(*message)))
            .map(|message| (message, said.iter().find(|said| message.id() == &*said.message)))
            .take_while(|(_, said)| {
                let is_shown = said.is_some() || room > 0;
                room = room.saturating_sub(usize::from(said.is_none()));
                is_shown
            })
            .collect();
        shown.reverse();
        let senders: BTreeSet<&str> = shown.iter().map(|(message, _)| message.sender()).collect();
        let several = senders.iter().filter(|sender| **sender != &*self.me.id.0).count() > 1;
        let mut events: Vec<Event> = shown
            .into_iter()
            .filter_map(|(message, said)| {
                let sender = message.sender();
                let is_mine = sender == &*self.me.id.0;
                let text = match said {
                    Some(said) => cut(&present_text(said)?, MESSAGE_CHARS),
                    None => cut(message.content(), HISTORY_CHARS),
                };
                let text = match several && !is_mine && !sender.starts_with("system:") {
                    true => format!("{} says: {text}", called(&state, sender)),
                    false => text,
                };
                let role = match sender {
                    _ if is_mine => "assistant",
                    // A message of a system principal is an order; messages of others are quotes.
                    sender if sender.starts_with("system:") => "system",
                    _ => "user",
                };
                Some(Event::text(role, text, store::Cause::default()))
            })
            .collect();
        if let Some(summary) = in_short {
            // The summary contains words of others, so it is not an order either.
            let told = format!("(Earlier in this talk, in short: {})", cut(summary.content(), MESSAGE_CHARS));
            events.insert(0, Event::text("user", told, store::Cause::default()));
        }
        let begun = resumes.as_ref().and_then(|resumed| chat::message_in(&state, here.topic(), resumed));
        if let Some(begun) = begun.map(MessageView::content).filter(|text| !text.trim().is_empty()) {
            let begun = cut(begun, HISTORY_CHARS);
            let asked = cut(&here.perception.content(), HISTORY_CHARS);
            let go_on = format!(
                "(You were interrupted while you answered \"{asked}\". You had said: \"{begun}\". Complete that answer now.)"
            );
            events.push(Event::text("user", go_on, store::Cause::default()));
        }
        events
    }

    pub(super) async fn recall(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        // The present messages need not be recalled.
        let new = here.perception.said.iter().filter(|said| said.change == Change::New);
        let besides: Vec<Arc<str>> = new.map(|said| said.message.clone()).collect();
        let words = here.perception.content();
        let people = here.people(&self.me);
        let found =
            self.memory.recall(&words, &besides, self.readers(&people), origin).await.map_err(ToolFailure::passing)?;
        let mut events = vec![json!({"role": "system", "content": self.identity})];
        let asks = &here.perception.last().sender;
        match self.knowledge.comes_to_mind(&words, asks, &people, &origin.cause).await {
            Ok(mut known) => {
                // A record that only repeats its owner's statement appears once in the prompt, as the memory.
                let repeats = |record: &Record, memory: &Recalled| {
                    memory.person.as_deref() == Some(&*record.owner)
                        && knowledge::adds_nothing(&record.content, &memory.statement)
                };
                known.retain(|record| !found.recalled.iter().any(|memory| repeats(record, memory)));
                let strangers: BTreeSet<String> =
                    known.iter().flat_map(|record| self.knowledge.strangers_behind(record)).collect();
                events.extend(told(&known).map(|event| marked(event, &strangers)));
            }
            Err(error @ KnowledgeError::Nexus(_)) => return Err(ToolFailure::passing(error)),
            // An answer does not wait for records that cannot be read.
            Err(error) => tracing::warn!(%error, "what it knows does not come to mind"),
        }
        let ids: Vec<&str> = found.recalled.iter().map(|memory| memory.id.as_str()).collect();
        let rests_on = json!({"rests_on": ids, "kip": found.kip});
        if !found.recalled.is_empty() {
            let asks = here.perception.last().sender.clone();
            let lines: Vec<String> = found.recalled.iter().map(|memory| line_of(memory, &asks)).collect();
            let text = format!("What you remember:\n{}", lines.join("\n"));
            let strangers = self.strangers_in(&found.recalled);
            events.push(marked(json!({"role": "system", "content": text, "metadata": rests_on}), &strangers));
        }
        Ok(json!({"events": events, "kip": found.kip}))
    }

    /// Returns the people whose memories these are and whose word does not count like the lifeform's own.
    pub(super) fn strangers_in(&self, recalled: &[Recalled]) -> BTreeSet<String> {
        let people = recalled.iter().flat_map(|memory| memory.person.iter().chain(&memory.sources));
        people.filter(|who| !self.knowledge.trusts_word_of(who)).cloned().collect()
    }

    /// Returns those who read what a recall brings up.
    pub(super) fn readers<'a>(&self, people: &'a BTreeSet<String>) -> Readers<'a> {
        Readers { people, are_trusted: people.iter().all(|who| self.knowledge.trusts_word_of(who)) }
    }
}

/// Marks an event that bears the words of strangers as untrusted. If a job reads such an event, its changes outside
/// wait for an approval, and what it writes names the strangers.
pub(super) fn marked(mut event: Value, strangers: &BTreeSet<String>) -> Value {
    if !strangers.is_empty() {
        event["metadata"]["untrusted"] = true.into();
        event["metadata"]["behind"] = strangers.iter().map(String::as_str).collect();
    }
    event
}

/// Returns the principals whose words a job has read besides those of the people that caused it. [`OUTSIDE`] stands for
/// the results of tools, and for those that a list has no room for.
pub(super) fn strangers_behind(context: &ToolContext) -> Vec<Arc<str>> {
    let lists = context.events.iter().filter_map(|event| event.metadata.get("behind")?.as_array());
    let named: BTreeSet<&str> = lists.flatten().filter_map(Value::as_str).collect();
    let is_unnamed = match context.taint {
        Taint::Clean => false,
        Taint::Quoted => named.is_empty(),
        Taint::Outside => true,
    };
    let outside = (is_unnamed || named.len() >= chat::BEHIND_MAX).then_some(OUTSIDE);
    named.into_iter().take(chat::BEHIND_MAX - 1).chain(outside).map(Arc::from).collect()
}

/// Returns the ids of the memories and records in the prompt of an answer.
pub(super) fn rests_on(context: &ToolContext) -> Vec<Arc<str>> {
    let given = |member: &'static str| {
        let lists = context.events.iter().filter_map(move |event| event.metadata.get(member)?.as_array());
        lists.flatten().filter_map(|id| id.as_str().map(Arc::from))
    };
    // The answer also references records.
    given("rests_on").chain(given("knows")).filter(|id: &Arc<str>| id.len() <= chat::RESTS_ON_BYTES_MAX).collect()
}

/// Returns `true` if a speaker is a reader: neither the daemon nor the lifeform itself.
pub(crate) fn hears(who: &str, me: &Principal) -> bool {
    !who.starts_with("system:") && *who != *me.id.0
}

/// Returns the speakers of a topic.
pub(crate) fn speakers(state: &State, topic: &str) -> BTreeSet<String> {
    chat::messages_in(state, topic).map(|message| message.sender().to_owned()).collect()
}

/// Returns the present text of a message for a model; `None` if it was retracted.
pub(super) fn present_text(said: &PerceivedMessage) -> Option<String> {
    match &said.change {
        Change::New => Some(said.content.clone()),
        Change::Amended { before, reason } => {
            let why = if reason.is_empty() { String::new() } else { format!(" Why: {reason}.") };
            let before = cut(before, HISTORY_CHARS);
            Some(format!("(I changed what I said. Before: \"{before}\".{why} Now:) {}", said.content))
        }
        Change::Retracted => None,
    }
}

/// Returns the display name of a principal on a canvas.
pub(super) fn called(state: &State, who: &str) -> String {
    chat::name_in(state, who).unwrap_or(who).to_owned()
}

/// Returns a memory as a line of a prompt.
pub(super) fn line_of(memory: &Recalled, asks: &str) -> String {
    match &memory.person {
        Some(person) if person == asks => format!("- The user told you: \"{}\"", memory.statement),
        Some(person) => {
            let name = person.split_once(':').map_or(person.as_str(), |(_, name)| name);
            format!("- {name} told you: \"{}\"", memory.statement)
        }
        None => format!("- {}", memory.statement),
    }
}
