//! The summaries of long topics. The messages stay, and prompts contain the summary instead of them.

use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use knowledge::{Learned, Type, is_borne_out, without_told};
use neurons::spec::tokens_about;
use nexus::Provenance;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Event, Origin};

use super::{LifeformToolbox, MESSAGE_CHARS, cut, failed, hears, speakers};
use crate::canvas::chat::{MessageView, SummaryView};
use crate::canvas::{Canvas, State, chat};
use crate::memory::statements;
use crate::perception::{Supply, ThreadRef};

/// The beginning of the previous summary among the messages to summarise, and the metadata key that marks it.
const EARLIER: &str = "Earlier: ";
const SUMMARY: &str = "summary";
/// The maximum length of the previous summary in an extract, in characters.
const EARLIER_CHARS: usize = 2_400;
/// The role of the event that starts a compaction job.
pub(crate) const COMPACTION: &str = "compaction";
/// The tokens of a message besides its text: its role and its sender.
const MESSAGE_TOKENS: usize = 6;
/// The maximum length of one message in an extract, in characters, and of a whole extract, in tokens.
const EXTRACT_CHARS: usize = 120;
pub(super) const EXTRACT_TOKENS: usize = 400;
/// The number of characters that count as one token where a bound is in characters.
const CHARS_PER_TOKEN: usize = 4;
/// The maximum number of characters in one compaction.
const AT_ONCE_CHARS: usize = 24_000;

/// A compaction of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compaction {
    /// The topic.
    pub(crate) place: ThreadRef,
    /// The id of the last message in the new summary.
    pub(crate) upto: Arc<str>,
    /// The order key of this message in the topic.
    pub(crate) ord: String,
}

/// The answer of the neuron `worth`: what the summarised messages teach.
#[derive(Default, Deserialize)]
struct Worth {
    learned: Vec<Lesson>,
}

/// A lesson that a model extracted.
#[derive(Deserialize)]
struct Lesson {
    task: String,
    content: String,
}

/// Returns a lifeform's own summary of a topic.
pub(super) fn summary<'s>(state: &'s State, topic: &str, me: &str) -> Option<SummaryView<'s>> {
    chat::topic_in(state, topic)?.summary_of(me)
}

/// Returns the messages of a topic with a text that stays, oldest first.
fn said<'s>(state: &'s State, topic: &str) -> impl DoubleEndedIterator<Item = MessageView<'s>> + use<'s> {
    chat::messages_in(state, topic).filter(|message| message.is_said())
}

fn chars(message: MessageView<'_>) -> usize {
    message.content().chars().count().min(MESSAGE_CHARS)
}

/// Returns the number of tokens that a message takes in a prompt, where it is cut to `chars_max`.
pub(super) fn tokens(message: MessageView<'_>, chars_max: usize) -> usize {
    tokens_about(&cut(message.content(), chars_max)) + MESSAGE_TOKENS
}

/// Returns an extract of messages without a model: a line for each of the newest ones within `tokens_max`, oldest first,
/// and the number of messages that have none.
pub(super) fn extract(
    messages: impl DoubleEndedIterator<Item = (String, String)>,
    tokens_max: usize,
) -> (String, usize) {
    let line_of = |text: &str| text.replace(char::is_control, " ");
    let (mut lines, mut tokens, mut left) = (Vec::new(), 0, 0);
    for (name, content) in messages.rev() {
        if tokens > tokens_max {
            left += 1;
            continue;
        }
        // A statement says more than a question or a greeting.
        let said = statements(&content).into_iter().next().unwrap_or(content);
        let line = format!("{}: {}", line_of(&name), cut(line_of(&said).trim(), EXTRACT_CHARS));
        tokens += tokens_about(&line);
        if tokens > tokens_max {
            left += 1;
        } else {
            lines.push(line);
        }
    }
    lines.reverse();
    (lines.join("\n"), left)
}

/// Returns the compaction that a topic needs, if any. A window of messages fits into a prompt. Once the messages without
/// a summary exceed it, those beyond its newer half are summarised, so that each message is in the window or in a
/// summary. `above` is the number of characters beyond that half from which on it is done earlier.
pub(crate) fn overlong(state: &State, place: &ThreadRef, me: &str, supply: Supply, above: usize) -> Option<Compaction> {
    let done = summary(state, &place.topic, me).map_or("", SummaryView::ord);
    let half = supply.history_tokens as usize / 2;
    let (mut newer, mut is_full) = (0, false);
    let mut older: Vec<MessageView<'_>> = said(state, &place.topic)
        .rev()
        .take_while(|message| message.ord() > done)
        // The newest message is never summarised, however long it is.
        .skip(1)
        .skip_while(|message| {
            newer += tokens(*message, supply.past_chars());
            is_full |= newer > half;
            !is_full
        })
        .collect();
    let beyond: usize = older.iter().map(|message| tokens(*message, supply.past_chars())).sum();
    if older.is_empty() || beyond <= half.min(above / CHARS_PER_TOKEN) {
        return None;
    }
    older.reverse();
    let mut total = 0;
    let within = |message: &&MessageView<'_>| {
        total += chars(**message);
        total <= AT_ONCE_CHARS
    };
    let last = older.iter().take_while(within).last().or(older.first())?;
    Some(Compaction { place: place.clone(), upto: last.id().into(), ord: last.ord().to_owned() })
}

impl LifeformToolbox {
    fn compaction(&self, context: &ToolContext) -> Result<(Compaction, Canvas), ToolFailure> {
        let event = context.input.iter().find(|event| &*event.role == COMPACTION);
        let event = event.ok_or_else(|| ToolFailure::fatal("this tool needs a topic to compact"))?;
        let found: Compaction = serde_json::from_value(event.content.clone()).map_err(ToolFailure::fatal)?;
        let canvas = self.canvases.get(&found.place.canvas);
        let canvas = canvas.ok_or_else(|| ToolFailure::fatal("it left that canvas"))?;
        Ok((found, canvas))
    }

    /// Returns the messages to summarise, oldest first, with the previous summary; none if the compaction is complete.
    pub(super) fn gather(&self, context: &ToolContext) -> Result<Value, ToolFailure> {
        let (Compaction { place, ord: upto, .. }, canvas) = self.compaction(context)?;
        let state = canvas.snapshot().state;
        let before = summary(&state, &place.topic, &self.me.id.0);
        let done = before.map_or("", SummaryView::ord);
        let texts = self.texts_in(&canvas, &state, &place.topic);
        let new = texts.skip_while(|(message, _)| message.ord() <= done);
        let new = new.take_while(|(message, _)| *message.ord() <= *upto);
        let (zone, mut day) = (self.zone().0, None);
        let new = new.map(|(message, text)| {
            let on = message.at().map(|at| at.to_zoned(zone.clone()).date());
            let begins = on.filter(|_| on != day).map(|on| format!("[{}] ", on.strftime("%A %-d %B %Y")));
            day = on;
            let name = self.display_name(&state, message.sender());
            format!("{}{name}: {}", begins.unwrap_or_default(), cut(&text, MESSAGE_CHARS))
        });
        let new: Vec<String> = new.collect();
        if new.is_empty() {
            return Ok(json!({"events": []}));
        }
        let before = before.map(|summary| {
            let content = format!("{EARLIER}{}", summary.content());
            json!({"role": "user", "content": content, "metadata": {SUMMARY: true}})
        });
        let new = new.into_iter().map(|content| json!({"role": "user", "content": content}));
        let events: Vec<Value> = before.into_iter().chain(new).collect();
        Ok(json!({"events": events}))
    }

    /// Returns an extract of the messages to summarise, as the text of a summary that no model writes. The previous
    /// summary stays, up to a bound.
    pub(super) fn extract(&self, context: &ToolContext) -> Value {
        let (earlier, new): (Vec<&Event>, Vec<&Event>) =
            context.events.iter().partition(|event| event.metadata.contains_key(SUMMARY));
        let earlier = earlier.iter().map(|event| cut(event.as_text().trim_start_matches(EARLIER), EARLIER_CHARS));
        let named = new.iter().map(|event| {
            let text = event.as_text();
            let (name, content) = text.split_once(": ").unwrap_or(("", &text));
            (name.to_owned(), content.to_owned())
        });
        let (lines, _) = extract(named, EXTRACT_TOKENS);
        let text: Vec<String> = earlier.chain([lines]).filter(|part| !part.is_empty()).collect();
        match text.is_empty() {
            true => json!({"events": []}),
            false => json!({"events": [{"role": "assistant", "content": text.join("\n")}]}),
        }
    }

    /// Stores the facts that a model extracted from the summarised messages, as far as messages of others support them.
    /// The lifeform's own messages contain nothing new for it.
    pub(super) async fn distil(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let (Compaction { place, upto, ord: last }, canvas) = self.compaction(context)?;
        let state = canvas.snapshot().state;
        let (mut basis, mut total) = (String::new(), 0);
        let texts = self.texts_in(&canvas, &state, &place.topic);
        let others = texts.rev().skip_while(|(message, _)| *message.ord() > *last);
        for (message, text) in others.filter(|(message, _)| !message.is_by(&self.me.id.0)) {
            total += chars(message);
            if total > AT_ONCE_CHARS {
                break;
            }
            basis.push_str(&without_told(&text));
            basis.push('\n');
        }
        let people = speakers(&state, &place.topic);
        let mut provenance =
            Provenance::of_conversation(people.iter().map(String::as_str).filter(|who| hears(who, &self.me)));
        provenance.sources.extend(said(&state, &place.topic).flat_map(MessageView::behind).map(str::to_owned));
        let read = context.event("worth").and_then(|event| Worth::deserialize(&event.content).ok());
        let (mut kept, mut passed) = (Vec::new(), 0);
        for lesson in read.unwrap_or_default().learned {
            let (task, content) = (lesson.task.trim(), lesson.content.trim());
            if !is_borne_out(content, &basis) {
                passed += 1;
                continue;
            }
            let kept_now = self.knowledge.learn(Type::Strategy, task, content, &upto, &provenance, &origin.cause).await;
            match kept_now.map_err(failed)? {
                Learned::Kept(id) | Learned::Confirmed(id) | Learned::Revised(id) => kept.push(id),
                Learned::Passed(_) => passed += 1,
            }
        }
        Ok(json!({"kept": kept, "passed": passed}))
    }

    /// Stores the summary on the canvas, where others can see it too.
    pub(super) async fn compact(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let (Compaction { place, upto, ord }, canvas) = self.compaction(context)?;
        let short: Vec<String> = context.events.iter().map(Event::as_text).collect();
        let content = self.without_forgotten(&canvas, &place.topic, &ord, short.join("\n"));
        let content = content.chars().take(chat::SUMMARY_BYTES_MAX / 4).collect();
        Self::act(&canvas, chat::Op::Summarize { id: place.topic, upto: upto.clone(), content }, origin).await?;
        Ok(json!({"upto": upto}))
    }
}
