//! The reading tools: the history of a topic, and memories.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fascicles::run::Taint;
use fascicles::{ToolContext, ToolFailure};
use jiff::civil;
use jiff::tz::TimeZone;
use knowledge::{Dates, KnowledgeError, Record};
use nexus::OUTSIDE;
use nexus::kip::graph::text::terms;
use serde_json::{Value, json};
use store::{Event, Origin, Principal};

use super::excerpts::Excerpt;
use super::{HISTORY_CHARS, LifeformToolbox, MESSAGE_CHARS, ToolScope, compaction, cut, remembered};
use crate::asking;
use crate::canvas::chat::{MessageView, SummaryView};
use crate::canvas::user::{name_in, users_in};
use crate::canvas::{State, chat};
use crate::memory::{Memory, Question, Readers, Recalled, asks_what_is_known};
use crate::perception::{Change, PerceivedMessage, Perception, is_about_an_approval};

/// The messages of a topic as a prompt has room for them, oldest first.
pub(super) struct Window<'s> {
    /// The messages that it shows, each with its maximum length in characters.
    pub(super) shown: Vec<(MessageView<'s>, usize)>,
    /// The older ones.
    older: Vec<MessageView<'s>>,
}

impl LifeformToolbox {
    /// Returns the last messages of the topic up to the answered ones, oldest first, within the tokens of the thought's
    /// supply. What is older is in the summary, or, until there is one, in an extract. If there are several
    /// speakers, each is named: the words of people are theirs and not orders of the daemon.
    pub(super) fn history(&self, here: &ToolScope) -> Vec<Event> {
        let state = here.canvas.snapshot().state;
        let Perception { said, supply, resumes, .. } = &here.perception;
        let perceived = |message: MessageView<'_>| said.iter().find(|said| message.id() == &*said.message);
        let summary = compaction::summary(&state, here.topic(), &self.me.id.0);
        let text_of = |message: MessageView<'_>| self.text_of(&here.canvas, here.topic(), message).map(Cow::into_owned);
        let Window { shown, older } = self.window(here, &state);
        let senders: BTreeSet<&str> = shown.iter().map(|(message, _)| message.sender()).collect();
        let acting = said.iter().filter(|said| said.change == Change::Act).map(|said| &*said.sender);
        let senders: BTreeSet<&str> = senders.into_iter().chain(acting).collect();
        let several = senders.iter().filter(|sender| **sender != &*self.me.id.0).count() > 1;
        let mut events: Vec<Event> = self.before_the_window(here, &state, summary, &older).into_iter().collect();
        let zone = self.zone().0;
        let mut day = here.perception.last().at.to_zoned(zone.clone()).date();
        for (message, chars_max) in shown {
            let sender = message.sender();
            let is_mine = sender == &*self.me.id.0;
            let text = match perceived(message) {
                Some(said) => present_text(said).map(|text| cut(&text, chars_max)),
                None => text_of(message).map(|text| cut(&text, chars_max)),
            };
            let Some(text) = text else { continue };
            let text = match several && !is_mine && !sender.starts_with("system:") {
                true => said_by(&called(&state, sender), &text),
                false => text,
            };
            // A talk of several days says when each day begins.
            let said_on = message.at().map(|at| at.to_zoned(zone.clone()).date()).filter(|on| *on != day);
            let text = match said_on.filter(|_| !is_mine && !supply.small && perceived(message).is_none()) {
                Some(on) => {
                    day = on;
                    format!("[{}] {text}", on.strftime("%A %-d %B %Y"))
                }
                None => text,
            };
            let role = match sender {
                _ if is_mine => "assistant",
                // A message of a system principal is an order; messages of others are quotes.
                sender if sender.starts_with("system:") => "system",
                _ => "user",
            };
            events.push(Event::text(role, text, store::Cause::default()));
        }
        // What a principal did stands in no message.
        for act in said.iter().filter(|said| said.change == Change::Act) {
            let text = format!("({})", act.content);
            let text = if several { said_by(&called(&state, &act.sender), &text) } else { text };
            events.push(Event::text("user", text, store::Cause::default()));
        }
        let begun = resumes.as_ref().and_then(|resumed| chat::message_in(&state, here.topic(), resumed));
        if let Some(begun) = begun.map(MessageView::content).filter(|text| !text.trim().is_empty()) {
            let begun = cut(begun, HISTORY_CHARS);
            let asked = cut(&here.perception.content(), HISTORY_CHARS);
            let (asked, begun) = (unmarked(&asked), unmarked(&begun));
            let go_on = format!(
                "(You were interrupted while you answered <asked>{asked}</asked>. You had said: <begun>{begun}</begun>. Complete \
                 that answer now, in its language.)"
            );
            events.push(Event::text("user", go_on, store::Cause::default()));
        }
        events
    }

    /// Returns the messages of the topic that the prompt shows, up to the answered ones, and those for which it has no room. Messages
    /// that are in the summary are in neither.
    pub(super) fn window<'s>(&self, here: &ToolScope, state: &'s State) -> Window<'s> {
        let Perception { said, supply, .. } = &here.perception;
        let of = |said: &PerceivedMessage| chat::message_in(state, here.topic(), &said.message);
        let last = said.iter().filter_map(|said| of(said).map(MessageView::ord)).max().unwrap_or("~");
        let is_perceived = |message: MessageView<'_>| said.iter().any(|said| message.id() == &*said.message);
        let summary = compaction::summary(state, here.topic(), &self.me.id.0);
        let is_summarised = |message: MessageView<'_>| summary.is_some_and(|summary| message.ord() <= summary.ord());
        let me = self.me.id.0.strip_prefix("lifeform:").unwrap_or_default();
        let text_of = |message: MessageView<'_>| self.text_of(&here.canvas, here.topic(), message).map(Cow::into_owned);
        let relevant =
            chat::messages_in(state, here.topic()).rev().skip_while(|message| message.ord() > last).filter(|message| {
                let has_text = || message.is_said() && text_of(*message).is_some_and(|text| !text.trim().is_empty());
                let is_settled = || is_about_an_approval(state, here.topic(), *message, me);
                is_perceived(*message) || (!is_summarised(*message) && has_text() && !is_settled())
            });
        let mut room = supply.history_tokens as usize;
        let (mut shown, mut older, mut is_first) = (Vec::new(), Vec::new(), true);
        for message in relevant {
            let tokens = compaction::tokens(message, supply.past_chars());
            if is_perceived(message) {
                shown.push((message, supply.said_chars()));
            } else if older.is_empty() && (tokens <= room || is_first) {
                // The newest message is shown in any case, as far as there is room.
                let chars = message.content().chars().count().min(supply.past_chars());
                shown.push((message, if tokens <= room { supply.past_chars() } else { chars * room / tokens }));
                room = room.saturating_sub(tokens);
                is_first = false;
            } else {
                older.push(message);
            }
        }
        shown.reverse();
        older.reverse();
        Window { shown, older }
    }

    /// Returns the name of a principal for a text; the lifeform's own is that of its definition.
    pub(super) fn display_name(&self, state: &State, who: &str) -> String {
        if *who == *self.me.id.0 { self.name.clone() } else { called(state, who) }
    }

    /// Returns what was said before the window: the summary, and an extract of the messages that are in neither. They
    /// contain words of others, so they are no orders.
    fn before_the_window(
        &self,
        here: &ToolScope,
        state: &State,
        summary: Option<SummaryView<'_>>,
        older: &[MessageView<'_>],
    ) -> Option<Event> {
        let supply = here.perception.supply;
        let lines = older.iter().map(|message| {
            let text = self.text_of(&here.canvas, here.topic(), *message).map(Cow::into_owned);
            (self.display_name(state, message.sender()), text.unwrap_or_default())
        });
        let (extract, left) = compaction::extract(lines, supply.history_tokens as usize / 2);
        let left = (left > 0).then(|| format!("({left} older messages are left out here.)"));
        let summary = summary.map(|summary| cut(summary.content(), MESSAGE_CHARS));
        let extract = Some(extract).filter(|text| !text.is_empty());
        let parts: Vec<String> = summary.into_iter().chain(left).chain(extract).collect();
        let text = format!("(Earlier in this talk, in short: <summary>{}</summary>)", unmarked(&parts.join("\n")));
        (!parts.is_empty()).then(|| Event::text("user", text, store::Cause::default()))
    }

    /// Recalls what answers the messages. A question that a model read is asked of the graph as it read it.
    pub(super) async fn recall(
        &self,
        here: &ToolScope,
        read: Option<&asking::Read>,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        // The present messages need not be recalled.
        let new = here.perception.said.iter().filter(|said| said.change == Change::New);
        let besides: Vec<Arc<str>> = new.map(|said| said.message.clone()).collect();
        let words = here.perception.content();
        let people = self.readers_here(here);
        let (before, by_meaning) = (self.turn_before(here), !here.perception.supply.small);
        let asked_by = here.perception.last().sender.clone();
        let question = Question { words: &words, before: &before, asks: &asked_by, by_meaning, read };
        let readers = self.readers(&people);
        let found = match asks_what_is_known(&here.perception.last().content) {
            true => self.memory.told_by(&asked_by, readers, origin).await,
            false => self.memory.recall(question, &besides, readers, origin).await,
        };
        let found = found.map_err(ToolFailure::passing)?;
        let mut events = vec![self.situation_of_answer(here, origin).await?];
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
                events.extend(remembered(&known).map(|event| marked(event, &strangers)));
            }
            Err(error @ KnowledgeError::Nexus(_)) => return Err(ToolFailure::passing(error)),
            // An answer does not wait for records that cannot be read.
            Err(error) => tracing::warn!(%error, "what it knows does not come to mind"),
        }
        let excerpts = match found.needs_talk {
            true => self.excerpts(here, &found.recalled, readers, origin).await.map_err(ToolFailure::passing)?,
            false => Vec::new(),
        };
        let lines = excerpts.iter().flat_map(|excerpt| &excerpt.lines);
        let mut memories: Vec<&Recalled> = found.recalled.iter().collect();
        for fact in lines.clone().filter_map(|line| line.fact.as_ref()) {
            if memories.iter().all(|known| known.id != fact.id) {
                memories.push(fact);
            }
        }
        let ids: Vec<&str> = memories.iter().map(|memory| memory.id.as_str()).collect();
        let statements: Vec<&str> = memories.iter().map(|memory| memory.statement.as_str()).collect();
        let rests_on = json!({"rests_on": ids, "statements": statements, "kip": found.kip});
        if !found.recalled.is_empty() {
            let is_alone = self.is_alone_here(here, &here.perception.last().sender);
            let asks = if is_alone { here.perception.last().sender.clone() } else { Arc::default() };
            let state = here.canvas.snapshot().state;
            let small = here.perception.supply.small;
            let text = notes((&found.recalled, &excerpts), &asks, small, &self.zone().0, |who| called(&state, who));
            let text = concluded(text, found.concluded.as_deref());
            let mut strangers = self.strangers_in(&memories);
            strangers.extend(lines.map(|line| line.person.clone()).filter(|who| !self.knowledge.trusts_word_of(who)));
            events.push(marked(json!({"role": "system", "content": text, "metadata": rests_on}), &strangers));
        }
        Ok(json!({"events": events, "kip": found.kip}))
    }

    /// Returns the text of the message before the perceived ones in their topic.
    fn turn_before(&self, here: &ToolScope) -> String {
        let state = here.canvas.snapshot().state;
        let is_perceived =
            |message: &MessageView<'_>| here.perception.said.iter().any(|said| message.id() == &*said.message);
        let first = chat::messages_in(&state, here.topic()).find(is_perceived).map(|message| message.ord().to_owned());
        let mut before = self.texts_in(&here.canvas, &state, here.topic()).rev();
        let before = before.find(|(message, _)| first.as_deref().is_some_and(|ord| message.ord() < ord));
        before.map(|(_, text)| cut(&text, HISTORY_CHARS)).unwrap_or_default()
    }

    /// Returns the people whose memories these are and whose word does not count like the lifeform's own.
    pub(super) fn strangers_in(&self, recalled: &[&Recalled]) -> BTreeSet<String> {
        let people = recalled.iter().flat_map(|memory| memory.person.iter().chain(&memory.sources));
        people.filter(|who| !self.knowledge.trusts_word_of(who)).cloned().collect()
    }

    /// Returns those who read what is said here: the people of the place, and of a topic those who read along.
    pub(super) fn readers_here(&self, here: &ToolScope) -> BTreeSet<String> {
        let mut people = here.people(&self.me);
        if here.canvas.kind.is(chat::NAME) {
            people.extend(readers_of_topic(&here.canvas.snapshot().state, here.topic(), &self.memory));
            people.retain(|who| hears(who, &self.me));
        }
        people
    }

    /// Returns those who hear a statement that is made here: the readers, and the lifeform whose canvas it is, which hears all of it.
    pub(super) fn audience_here(&self, here: &ToolScope) -> BTreeSet<String> {
        let host = format!("lifeform:{}", here.canvas.lifeform());
        let mut people = self.readers_here(here);
        people.extend(Some(host).filter(|host| **host != *self.me.id.0));
        people
    }

    /// Returns `true` if a person is the only reader of the place besides the lifeform. Another lifeform that takes part in the canvas
    /// reads along.
    pub(super) fn is_alone_here(&self, here: &ToolScope, person: &str) -> bool {
        let state = here.canvas.snapshot().state;
        let mut users = users_in(&state).filter_map(|user| user.id());
        let reads_along = users.any(|who| who.starts_with("lifeform:") && *who != *self.me.id.0);
        !reads_along && self.readers_here(here).iter().all(|who| who == person)
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
pub(super) fn offered(context: &ToolContext) -> Vec<Arc<str>> {
    let given = |member: &'static str| {
        let lists = context.events.iter().filter_map(move |event| event.metadata.get(member)?.as_array());
        lists.flatten().filter_map(|id| id.as_str().map(Arc::from))
    };
    // The answer also references records.
    given("rests_on").chain(given("knows")).filter(|id: &Arc<str>| id.len() <= chat::RESTS_ON_BYTES_MAX).collect()
}

/// Returns those of the offered memories that an answer used: those of which it repeats words that the question did not
/// give, and those in another script, of which words tell nothing. A record counts as used, since its text is not at
/// hand.
pub(super) fn rests_on(context: &ToolContext, question: &str, answer: &str) -> Vec<Arc<str>> {
    let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
    for event in &context.events {
        let pair = event.metadata.get("rests_on").and_then(Value::as_array).zip(event.metadata.get("statements"));
        let Some((ids, statements)) = pair else { continue };
        let statements = statements.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.extend(ids.iter().filter_map(Value::as_str).zip(statements));
    }
    let (asked, said) = (terms_of(question), terms_of(answer));
    // A name or a number says more than other words.
    let names: BTreeSet<Arc<str>> = names_in(answer).difference(&names_in(question)).cloned().collect();
    let is_used = |statement: &str| {
        let telling: BTreeSet<Arc<str>> = knowledge::telling_words(statement).difference(&asked).cloned().collect();
        let repeated = telling.iter().filter(|word| said.contains(*word)).count();
        is_ascii_script(statement) != is_ascii_script(answer)
            || telling.is_empty()
            || 2 * repeated >= telling.len()
            || !names_in(statement).is_disjoint(&names)
    };
    let offered = offered(context).into_iter();
    offered.filter(|id| texts.get(&**id).is_none_or(|statement| is_used(statement))).collect()
}

/// Returns the words of a text with a capital letter after its beginning, or with a digit.
fn names_in(text: &str) -> BTreeSet<Arc<str>> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 1).enumerate();
    let is_name = |(n, word): &(usize, &str)| {
        (*n > 0 && word.starts_with(char::is_uppercase)) || word.contains(|c: char| c.is_ascii_digit())
    };
    words.filter(is_name).map(|(_, word)| word.to_lowercase().into()).collect()
}

fn terms_of(text: &str) -> BTreeSet<Arc<str>> {
    terms(text).into_iter().collect()
}

/// Returns `true` if most letters of a text are of the Latin alphabet.
fn is_ascii_script(text: &str) -> bool {
    let (mut ascii, mut all) = (0, 0);
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        all += 1;
        ascii += usize::from(c.is_ascii());
    }
    2 * ascii >= all
}

/// Returns `true` if a speaker is a reader: neither the daemon nor the lifeform itself.
pub(crate) fn hears(who: &str, me: &Principal) -> bool {
    !who.starts_with("system:") && *who != *me.id.0
}

/// Returns those who read what is said in a topic now: its speakers, the person who opened it, those who have a role in it or have reacted
/// there. Of those who have not spoken, operators are left out: they read everything.
pub(crate) fn readers_of_topic(state: &State, topic: &str, memory: &Memory) -> BTreeSet<String> {
    let mut readers = speakers(state, topic);
    let mut others: BTreeSet<&str> =
        chat::topic_in(state, topic).into_iter().flat_map(|topic| topic.principals()).map(|(who, _)| who).collect();
    for message in chat::messages_in(state, topic) {
        let reactions = message.reactions().into_iter().flat_map(|reactions| reactions.values());
        others.extend(reactions.filter_map(Value::as_array).flatten().filter_map(Value::as_str));
    }
    let is_reader = |who: &&str| !who.is_empty() && !who.starts_with("system:") && !memory.reads_everything(who);
    readers.extend(others.into_iter().filter(is_reader).map(str::to_owned));
    readers
}

/// Returns the speakers of a topic.
pub(crate) fn speakers(state: &State, topic: &str) -> BTreeSet<String> {
    chat::messages_in(state, topic).map(|message| message.sender().to_owned()).collect()
}

/// Returns a message with its sender. Its further lines are indented, so that none passes for a message of another person.
pub(super) fn said_by(name: &str, text: &str) -> String {
    let lines: Vec<&str> = text.split(is_break).collect();
    format!("{name} says: {}", lines.join("\n    "))
}

/// Returns `true` for a character that can look like the end of a line.
fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
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
        Change::Act => Some(format!("({})", said.content)),
        Change::Retracted => None,
    }
}

/// Returns the display name of a principal on a canvas. Without one it is the last part of the id, or the whole id if another
/// principal has that name.
pub(crate) fn called(state: &State, who: &str) -> String {
    if let Some(name) = name_in(state, who) {
        return name.to_owned();
    }
    let own = who.split_once(':').map_or(who, |(_, name)| name);
    let is_taken =
        users_in(state).any(|user| user.name().is_some_and(|name| name.to_lowercase() == own.to_lowercase()));
    if is_taken { who } else { own }.to_owned()
}

fn day(date: civil::Date) -> String {
    date.strftime("%-d %B %Y").to_string()
}

/// Returns memories, and excerpts of the talks around them, as text for a prompt, in marks, each with its teller and its date; for a
/// small model without the date. Of the memories that stand in an excerpt, only the best one has a note of its own, which stands first.
/// `asks` is the user of the talk.
pub(super) fn notes(
    (memories, excerpts): (&[Recalled], &[Excerpt]),
    asks: &str,
    small: bool,
    zone: &TimeZone,
    name_of: impl Fn(&str) -> String,
) -> String {
    let named_in = |memory: &Recalled| {
        let Dates { on, from, until, .. } = memory.dates;
        let named = [("about", on), ("from", from), ("until", until)];
        named.into_iter().filter_map(|(word, date)| Some(format!("{word} {}", day(date?)))).collect::<Vec<_>>()
    };
    let date_of = |memory: &Recalled| memory.stated_at.map(|at| at.to_zoned(zone.clone()).date());
    let line = |memory: &Recalled| {
        let statement = quoted(&memory.statement);
        // Of one day, the hour says which is the later.
        let is_one_of_many = memories.iter().filter(|other| date_of(other) == date_of(memory)).count() > 1;
        let stated = memory.stated_at.map(|at| at.to_zoned(zone.clone())).map(|at| match is_one_of_many {
            true => format!("{} {}", day(at.date()), at.strftime("%H:%M")),
            false => day(at.date()),
        });
        let dates: Vec<String> = stated.into_iter().chain(named_in(memory)).collect();
        let on = if small || dates.is_empty() { String::new() } else { format!(" ({})", dates.join("; ")) };
        match memory.person.as_deref() {
            Some(person) if person == asks => format!("- The user told you: \"{statement}\"{on}"),
            Some(person) => format!("- {} told you: \"{statement}\"{on}", quoted(&name_of(person))),
            None => format!("- {statement}"),
        }
    };
    let all = || excerpts.iter().flat_map(|excerpt| &excerpt.lines);
    let is_in_talk = |memory: &Recalled| all().filter_map(|line| line.fact.as_ref()).any(|fact| fact.id == memory.id);
    let shown = memories.iter().enumerate().filter(|(at, memory)| *at == 0 || !is_in_talk(memory));
    let mut lines: Vec<String> = shown.map(|(_, memory)| line(memory)).collect();
    for Excerpt { at, lines: said } in excerpts {
        let on = at.map(|at| format!(" on {}", day(at.to_zoned(zone.clone()).date()))).unwrap_or_default();
        lines.push(format!("- From a talk{on}, in order:"));
        lines.extend(said.iter().map(|line| {
            let speaker = if line.person == asks { "The user".to_owned() } else { quoted(&name_of(&line.person)) };
            let dates = line.fact.as_ref().map(named_in).filter(|dates| !dates.is_empty());
            let on = dates.map(|dates| format!(" ({})", dates.join("; "))).unwrap_or_default();
            format!("  {speaker}: \"{}\"{on}", quoted(&line.text))
        }));
    }
    match small {
        // The quotation marks are marks enough for a model that repeats what is around them.
        true => format!("What you remember:\n{}", lines.join("\n")),
        false => {
            let later = match lines.len() {
                0 | 1 => "",
                _ => {
                    "\nOf two notes of one person that disagree, the later one counts; what a person says of itself counts more than \
                     what others say of it."
                }
            };
            format!("What you remember:\n<notes>\n{}\n</notes>{later}", lines.join("\n"))
        }
    }
}

/// Returns notes with the line that the graph concludes from them. It holds names that people gave, so it stands within the marks.
pub(super) fn concluded(notes: String, line: Option<&str>) -> String {
    let Some(line) = line.map(quoted) else { return notes };
    match notes.rsplit_once("\n</notes>") {
        Some((before, after)) => format!("{before}\n({line})\n</notes>{after}"),
        None => format!("{notes}\n({line})"),
    }
}

/// Returns a text of others in which no mark can end the marks around it.
pub(super) fn unmarked(text: &str) -> String {
    text.replace('<', "‹").replace('>', "›")
}

/// As [`unmarked`], on one line and without quotation marks, for a text between them.
fn quoted(text: &str) -> String {
    unmarked(text).replace('"', "'").replace(|c: char| c.is_control() || is_break(c) || store::is_invisible(c), " ")
}
