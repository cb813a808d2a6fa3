//! The summaries of long topics. The messages stay, and prompts contain the summary instead of them.

use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use knowledge::{Learned, Type, is_borne_out, without_told};
use nexus::Provenance;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Event, Origin};

use super::{LifeformToolbox, MESSAGE_CHARS, called, cut, failed, hears, speakers};
use crate::canvas::chat::{MessageView, SummaryView};
use crate::canvas::{Canvas, State, chat};
use crate::perception::ThreadRef;

/// The role of the event that starts a compaction job.
pub(crate) const COMPACTION: &str = "compaction";
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

/// Returns the compaction that a topic needs, if any: of the messages that are older than the newest `window` and not
/// in a summary, once they exceed `above` characters.
pub(crate) fn overlong(state: &State, place: &ThreadRef, me: &str, window: usize, above: usize) -> Option<Compaction> {
    let done = summary(state, &place.topic, me).map_or("", SummaryView::ord);
    let mut older: Vec<MessageView<'_>> =
        said(state, &place.topic).rev().skip(window).take_while(|message| message.ord() > done).collect();
    if older.iter().map(|message| chars(*message)).sum::<usize>() <= above {
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
        let line = |message: MessageView<'_>| {
            format!("{}: {}", called(&state, message.sender()), cut(message.content(), MESSAGE_CHARS))
        };
        let new = said(&state, &place.topic).skip_while(|message| message.ord() <= done);
        let new: Vec<String> = new.take_while(|message| *message.ord() <= *upto).map(line).collect();
        if new.is_empty() {
            return Ok(json!({"events": []}));
        }
        let before = before.map(|summary| format!("Earlier: {}", summary.content()));
        let events: Vec<Value> =
            before.into_iter().chain(new).map(|content| json!({"role": "user", "content": content})).collect();
        Ok(json!({"events": events}))
    }

    /// Stores the facts that a model extracted from the summarised messages, as far as messages of others support them.
    /// The lifeform's own messages contain nothing new for it.
    pub(super) async fn distil(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let (Compaction { place, upto, ord: last }, canvas) = self.compaction(context)?;
        let state = canvas.snapshot().state;
        let (mut basis, mut total) = (String::new(), 0);
        let others = said(&state, &place.topic).rev().skip_while(|message| *message.ord() > *last);
        for message in others.filter(|message| !message.is_by(&self.me.id.0)) {
            total += chars(message);
            if total > AT_ONCE_CHARS {
                break;
            }
            basis.push_str(&without_told(message.content()));
            basis.push('\n');
        }
        let people = speakers(&state, &place.topic);
        let mut provenance =
            Provenance::of_conversation(people.iter().map(String::as_str).filter(|who| hears(who, &self.me)));
        provenance.sources.extend(said(&state, &place.topic).flat_map(MessageView::behind).map(str::to_owned));
        let read = context.event("worth").map_or(Value::Null, |event| event.content.clone());
        let (mut kept, mut passed) = (Vec::new(), 0);
        for lesson in read["learned"].as_array().into_iter().flatten() {
            let text = |member: &str| lesson[member].as_str().unwrap_or_default().trim().to_owned();
            let (task, content) = (text("task"), text("content"));
            if !is_borne_out(&content, &basis) {
                passed += 1;
                continue;
            }
            let kept_now =
                self.knowledge.learn(Type::Strategy, &task, &content, &upto, &provenance, &origin.cause).await;
            match kept_now.map_err(failed)? {
                Learned::Kept(id) | Learned::Confirmed(id) | Learned::Revised(id) => kept.push(id),
                Learned::Passed(_) => passed += 1,
            }
        }
        Ok(json!({"kept": kept, "passed": passed}))
    }

    /// Stores the summary on the canvas, where others can see it too.
    pub(super) async fn compact(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let (Compaction { place, upto, .. }, canvas) = self.compaction(context)?;
        let short: Vec<String> = context.events.iter().map(Event::as_text).collect();
        let content = short.join("\n").chars().take(chat::SUMMARY_BYTES_MAX / 4).collect();
        Self::act(&canvas, chat::Op::Summarize { id: place.topic, upto: upto.clone(), content }, origin).await?;
        Ok(json!({"upto": upto}))
    }
}
