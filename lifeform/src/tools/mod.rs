//! The tools of a lifeform's fascicles: read messages, remember, and write. The job's id is the idempotency key of each
//! act, so a repetition after a crash changes nothing.

mod compaction;
mod corrections;
mod goals;
mod keeping;
mod maps;
mod recalling;
mod reminders;
mod situation;
mod speaking;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use fascicles::{ToolContext, ToolFailure, Toolbox};
use knowledge::{KnowledgeError, Record};
use neurons::llm::Delta;
use nexus::OUTSIDE;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Event, Origin, Principal, Role};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::LifeformError;
use crate::agenda_store::AgendaStore;
use crate::canvas::chat::{MessageStatus, MessageView};
use crate::canvas::{Canvas, Refusal, chat, mind_map};
use crate::memory::Memory;
use crate::perception::{Change, PerceivedMessage, Perception, message_name};
use crate::shared_knowledge::KnowledgeAccess;

/// The maximum length of a quoted text in a prompt, in characters: an interrupted answer, an earlier wording, the turn
/// before.
const HISTORY_CHARS: usize = 600;
/// The maximum length of a message for a step beside the answer, and of a summary in a prompt, in characters.
const MESSAGE_CHARS: usize = 4000;
/// The length of text between two durable checkpoints of an answer, in bytes.
const CHECKPOINT_BYTES: usize = 2048;
/// The time between two durable checkpoints of an answer.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// The amount of new text after which subscribers receive a piece immediately, in bytes.
const SHOWN_BYTES: usize = 1024;
/// The time within which pieces of an answer are combined.
const SHOWN_EVERY: Duration = Duration::from_millis(50);
/// The beginning of a message that gives the reason for a missing answer.
pub(crate) const NO_ANSWER: &str = "I could not answer: ";
/// The tools of a lifeform's fascicles.
pub const TOOLS: [&str; 21] = [
    "recall",
    "history",
    "hear",
    "say",
    "note",
    "solidify",
    "alike",
    "correct",
    "later",
    "promise",
    "look",
    "sketch",
    "gather",
    "extract",
    "compact",
    "situation",
    "consider",
    "progress",
    "maintain",
    "distil",
    "found",
];

pub(crate) use compaction::{COMPACTION, overlong};
use keeping::told_of;
use recalling::{called, marked, notes, rests_on, strangers_behind, unmarked};
pub(crate) use recalling::{hears, speakers};
pub(crate) use speaking::{Canvases, Speaking};

/// The role of the event that starts a reply job.
pub(crate) const PERCEPTION: &str = "perception";

/// Cuts the middle out of a long text, because it is usually the least important part.
fn cut(text: &str, chars_max: usize) -> String {
    let count = text.chars().count();
    if count <= chars_max {
        return text.to_owned();
    }
    let half = chars_max / 2;
    let (head, tail): (String, String) = (text.chars().take(half).collect(), text.chars().skip(count - half).collect());
    format!("{head} […] {tail}")
}

/// The text of an answer in progress.
type Text = Arc<Mutex<String>>;

/// The toolbox of one lifeform.
pub(crate) struct LifeformToolbox {
    pub(crate) speaking: Speaking,
    pub(crate) canvases: Canvases,
    pub(crate) memory: Memory,
    pub(crate) knowledge: KnowledgeAccess,
    pub(crate) plans: AgendaStore,
    /// The chat canvas of the lifeform.
    pub(crate) home: Arc<str>,
    pub(crate) me: Principal,
    /// The name and the persona of the definition, for a mind that does not have its own yet.
    pub(crate) name: String,
    pub(crate) persona: String,
    /// The maximum number of unasked messages per day.
    pub(crate) unasked_per_day: u32,
}

/// A perception with its canvas.
struct ToolScope {
    perception: Perception,
    canvas: Canvas,
}

impl ToolScope {
    fn topic(&self) -> &Arc<str> {
        &self.perception.place.topic
    }

    /// Checks that a request was not retracted meanwhile. The lifeform perceives a later retraction separately.
    fn is_wanted_still(&self, message: &str) -> Result<(), Refusal> {
        match self.status(message) {
            Some(MessageStatus::Retracted) => Err(Refusal::State("the request was retracted".into())),
            _ => Ok(()),
        }
    }

    /// Returns the name of a message of the place among all canvases.
    fn name_of(&self, message: &str) -> Arc<str> {
        message_name(&self.perception.place, message)
    }

    fn message(&self, id: &str) -> Option<Value> {
        self.canvas.snapshot().state.get(&chat::message_path(self.topic(), id)).cloned()
    }

    /// Returns `true` if the present text of a message is still the perceived text. If it was amended in the meantime,
    /// the lifeform perceives the new text separately.
    fn says_still(&self, said: &PerceivedMessage) -> bool {
        let now = self.message(&said.message);
        now.as_ref()
            .map(MessageView::of)
            .is_some_and(|now| now.content() == &*said.content && now.status() != MessageStatus::Retracted)
    }

    /// Returns the text of a message without a lifeform's confirmations of reminders.
    fn without_confirmations(&self, said: &PerceivedMessage) -> String {
        let message = self.message(&said.message).filter(|_| said.sender.starts_with("lifeform:")).unwrap_or_default();
        let message = MessageView::of(&message);
        let text = |id: &str| Some(MessageView::of(&self.message(id)?).content().to_owned());
        let asked: Vec<String> = message.answers().chain(message.reply_to()).filter_map(text).collect();
        let left = asked.iter().map(|asked| crate::reminders::without_confirmations(&said.content, asked));
        left.min_by_key(|left| left.len()).unwrap_or(&said.content).to_owned()
    }

    /// Returns `true` if a message had another text before. An interrupted thought may have processed a message that is
    /// new to this thought.
    fn is_changed(&self, said: &PerceivedMessage) -> bool {
        let was_amended = |now: &Value| MessageView::of(now).last_revision().is_some();
        said.change != Change::New || self.message(&said.message).as_ref().is_some_and(was_amended)
    }

    /// Returns the readers of the place besides `me`: the principals that have posted in the topic, or on a canvas of
    /// another kind all that have written on it, and the present speakers.
    fn people(&self, me: &Principal) -> BTreeSet<String> {
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
    fn strangers_behind(&self, context: &ToolContext) -> Vec<Arc<str>> {
        let (mut strangers, there) = (strangers_behind(context), speakers(&self.canvas.snapshot().state, self.topic()));
        strangers.retain(|who| !there.contains(&**who));
        strangers
    }

    fn status(&self, id: &str) -> Option<MessageStatus> {
        self.message(id).as_ref().map(|message| MessageView::of(message).status())
    }

    /// Returns `true` if every message to answer was retracted.
    fn is_taken_back(&self) -> bool {
        let mut asked = self.perception.said.iter().filter(|said| said.to_answer).peekable();
        asked.peek().is_some() && asked.all(|said| self.status(&said.message) == Some(MessageStatus::Retracted))
    }

    /// Returns the ids of the answered messages: the last one for this lifeform, and all of them if there are several.
    fn answers(&self) -> (Option<Arc<str>>, Vec<Arc<str>>) {
        let for_me = self.perception.said.iter().filter(|said| said.to_answer);
        let all: Vec<Arc<str>> = for_me.map(|said| said.message.clone()).collect();
        (all.last().cloned(), if all.len() > 1 { all } else { Vec::new() })
    }
}

impl LifeformToolbox {
    fn here(&self, context: &ToolContext) -> Result<ToolScope, ToolFailure> {
        let event = context
            .input
            .iter()
            .find(|event| &*event.role == PERCEPTION)
            .ok_or_else(|| ToolFailure::fatal("this tool needs a perception to work on"))?;
        let perception: Perception = Perception::deserialize(&event.content).map_err(ToolFailure::fatal)?;
        let name = &perception.place.canvas;
        let canvas = self.canvases.get(name).ok_or_else(|| ToolFailure::fatal(format!("it left canvas {name}")))?;
        Ok(ToolScope { perception, canvas })
    }

    fn origin(&self, context: &ToolContext) -> Origin {
        Origin::new(self.me.clone(), context.origin.cause.clone())
    }

    /// Returns the id of the message that a job writes. A restarted job has the same id.
    fn answer_id(context: &ToolContext) -> Arc<str> {
        format!("msg_{}", context.job).into()
    }

    /// Applies an op to a canvas. An op that an earlier attempt applied counts as success.
    async fn act(canvas: &Canvas, op: chat::Op, origin: &Origin) -> Result<(), ToolFailure> {
        match canvas.apply(op, None, None, origin).await {
            Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => Ok(()),
            // The writer's rate limit recovers with time.
            Err(error @ LifeformError::Refused(Refusal::Rate(_))) => Err(ToolFailure::passing(error)),
            Err(LifeformError::Refused(refusal)) => Err(ToolFailure::fatal(refusal)),
            Err(error) => Err(ToolFailure::passing(error)),
        }
    }

    async fn say(&self, context: &ToolContext, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let (topic, id) = (here.topic().clone(), Self::answer_id(context));
        let answer = context.event("answer").map(Event::as_text).unwrap_or_default();
        let content = if answer.trim().is_empty() {
            "…".to_owned()
        } else {
            answer.chars().take(chat::CONTENT_BYTES_MAX / 4).collect()
        };
        let confirmations = self.put_reminders_down(here, origin).await?;
        let content = match (confirmations.is_empty(), answer.trim().is_empty()) {
            (true, _) => content,
            (false, true) => confirmations.join("\n"),
            (false, false) => format!("{}{}{content}", confirmations.join("\n"), crate::reminders::PARAGRAPH),
        };
        if here.canvas.kind.is(mind_map::NAME) {
            return self.say_on_map(context, here, &content, origin).await;
        }
        let (rests_on, behind) = (rests_on(context), here.strangers_behind(context));
        self.begin_anew(here, &id, origin).await?;
        match here.status(&id) {
            None => {
                let (reply_to, answers) = here.answers();
                let supplements = resumed(here);
                let op = chat::Op::Append {
                    topic,
                    id: id.clone(),
                    content,
                    reply_to,
                    supplements,
                    urgent: false,
                    attachments: Vec::new(),
                    answers,
                    rests_on,
                    behind,
                };
                Self::act(&here.canvas, op, origin).await?;
            }
            Some(MessageStatus::Streaming) => {
                let op = chat::Op::Finish { topic, id: id.clone(), content, rests_on, behind };
                Self::act(&here.canvas, op, origin).await?;
            }
            // A principal interrupted the message, or an earlier attempt completed it.
            Some(_) => {}
        }
        Ok(json!({"message": id}))
    }

    /// Reopens a failed answer; the earlier text is kept as a revision. An answer to a retracted message is not
    /// written.
    async fn begin_anew(&self, here: &ToolScope, id: &Arc<str>, origin: &Origin) -> Result<(), ToolFailure> {
        let found = here.message(id);
        let Some(found) = found.as_ref().map(MessageView::of).filter(|found| self.is_no_answer(*found)) else {
            return Ok(());
        };
        if here.is_taken_back() {
            return Err(ToolFailure::fatal("what it answers was taken back"));
        }
        tracing::debug!(message = %id, status = ?found.status(), "a failed answer is started again");
        let (topic, id, reason) = (here.topic().clone(), id.clone(), "it is answered after all".into());
        Self::act(&here.canvas, chat::Op::Reopen { topic, id, reason }, origin).await
    }

    /// Returns `true` if a message marks a failed answer: its text says so, or the lifeform or the daemon interrupted
    /// it. A person's interruption does not count.
    fn is_no_answer(&self, message: MessageView<'_>) -> bool {
        match message.status() {
            MessageStatus::Interrupted => {
                message.interrupted_by().is_some_and(|by| *by == *self.me.id.0 || by.starts_with("system:"))
            }
            MessageStatus::Final => message.content().starts_with(NO_ANSWER),
            _ => false,
        }
    }
}

/// Converts an error of the commons. A failure may be temporary; a refusal is permanent.
fn failed(error: KnowledgeError) -> ToolFailure {
    match error {
        error @ KnowledgeError::Nexus(_) => ToolFailure::passing(error),
        error => ToolFailure::fatal(error),
    }
}

/// Returns an event with records of the commons for a model. People wrote their content.
fn remembered(known: &[Record]) -> Option<Value> {
    let ids: Vec<&str> = known.iter().map(|record| record.id.as_str()).collect();
    told_of(&knowledge::as_told(known), &json!(ids))
}

/// Returns the message that this answer completes, if it was started.
fn resumed(here: &ToolScope) -> Option<Arc<str>> {
    here.perception.resumes.clone().filter(|resumed| here.message(resumed).is_some())
}

#[async_trait]
impl Toolbox for LifeformToolbox {
    async fn call(&self, name: &Arc<str>, _: &Value, context: &ToolContext) -> Result<Value, ToolFailure> {
        // What a participant defined acts with the participant's rights, wherever it runs. These tools have those of
        // the lifeform.
        let acting = &context.origin.principal;
        let is_whole = !acting.limited && (acting.id == self.me.id || acting.may(Role::Operator));
        if !is_whole {
            let author = &acting.id;
            return Err(ToolFailure::fatal(format!("{name} is a lifeform's own tool: {author} defined what calls it")));
        }
        let origin = self.origin(context);
        match &**name {
            "consider" => return self.consider(context, &origin).await,
            "progress" => return self.progress(context, &origin).await,
            "maintain" => return self.maintain(context, &origin).await,
            "gather" => return self.gather(context),
            "extract" => return Ok(self.extract(context)),
            "compact" => return self.compact(context, &origin).await,
            "distil" => return self.distil(context, &origin).await,
            "found" => return self.found(context, &origin).await,
            "sketch" => return self.sketch(context, &origin).await,
            _ => {}
        }
        let here = self.here(context)?;
        match &**name {
            // No model receives messages that are answered by rule.
            "recall" | "history" | "situation" if self.asks_for_reminders_alone(&here) => {
                Ok(json!({"events": [], "kip": []}))
            }
            "recall" => self.recall(&here, &origin).await,
            "history" => Ok(json!({"events": self.history(&here)})),
            "situation" => Ok(json!({"events": [self.situation_here(&here, &origin).await?]})),
            "hear" => {
                let said = here.perception.said.iter().filter(|said| said.change != Change::Retracted);
                let worth_learning = said.filter(|said| !crate::memory::statements(&said.content).is_empty());
                let events: Vec<Event> = worth_learning
                    .map(|said| Event::text("user", cut(&said.content, MESSAGE_CHARS), store::Cause::default()))
                    .collect();
                Ok(json!({"events": events}))
            }
            "say" => self.say(context, &here, &origin).await,
            "note" => self.keep(context, &here, true, &origin).await,
            "solidify" => self.keep(context, &here, false, &origin).await,
            "alike" => self.alike(&here, &origin).await,
            "correct" => self.correct(context, &origin).await,
            "later" => self.later(&here, &origin).await,
            "promise" => self.promise(context, &here, &origin).await,
            "look" => self.look(&here, &origin).await,
            other => Err(ToolFailure::fatal(format!("there is no tool {other}"))),
        }
    }

    fn only_reads(&self, name: &str) -> bool {
        matches!(
            name,
            "recall"
                | "history"
                | "hear"
                | "alike"
                | "later"
                | "look"
                | "gather"
                | "extract"
                | "situation"
                | "consider"
        )
    }

    /// Opens the answer's message and writes its text: each piece immediately to subscribers, and regularly to the
    /// store.
    async fn listen(&self, context: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        let here = self.here(context)?;
        let (topic, id, origin) = (here.topic().clone(), Self::answer_id(context), self.origin(context));
        self.begin_anew(&here, &id, &origin).await?;
        if here.status(&id).is_none() {
            let (reply_to, answers) = here.answers();
            let supplements = resumed(&here);
            let op = chat::Op::Open { topic: topic.clone(), id: id.clone(), reply_to, supplements, answers };
            Self::act(&here.canvas, op, &origin).await?;
        }
        // Should it be interrupted, the message says whose words it may bear.
        let mut behind = here.strangers_behind(context);
        let begun = here.message(&id);
        let begun = begun.as_ref().map(MessageView::of).filter(|begun| begun.is_streaming());
        if let Some(begun) = begun.filter(|_| !behind.is_empty()) {
            // What was said before a retry stays until there is more.
            let content = begun.content().to_owned();
            let (topic, id, behind) = (topic.clone(), id.clone(), behind.clone());
            let op = chat::Op::Checkpoint { topic, id, content, behind };
            match here.canvas.apply(op, None, None, &origin).await {
                // A person has interrupted it. The answer is still read to its end.
                Ok(_) | Err(LifeformError::Refused(Refusal::State(_))) => {}
                Err(error) => return Err(ToolFailure::passing(error)),
            }
        }
        let (pieces, mut inbox) = mpsc::channel(256);
        let (canvas, said) = (here.canvas, self.speaking.begin(&id));
        tokio::spawn(async move {
            let (mut text, mut kept, mut seq) = (String::new(), 0, 0_u64);
            // An interrupted message accepts no more text. The lifeform still reads the model's output to the end,
            // because it is paid for.
            let (mut kept_at, mut open) = (None, true);
            // Pieces in quick succession are sent together, except the first one.
            let (mut shown, mut show_at) = (0, None);
            // The text after a call of a tool may rest on its result.
            let mut has_called = false;
            loop {
                let piece = match show_at {
                    None => inbox.recv().await,
                    Some(at) => match tokio::time::timeout_at(at, inbox.recv()).await {
                        Ok(piece) => piece,
                        Err(_) => Some(Delta::Text(String::new())),
                    },
                };
                let is_over = piece.is_none();
                let piece = match piece {
                    Some(Delta::Text(piece)) => piece,
                    Some(Delta::ToolCall(_)) => {
                        has_called = true;
                        continue;
                    }
                    Some(Delta::Again) => {
                        // The text so far was rejected. Pieces from offset 0 on replace it, and so does the next
                        // checkpoint.
                        text.clear();
                        said.lock().unwrap_or_else(PoisonError::into_inner).clear();
                        (shown, show_at, kept, kept_at) = (0, None, 0, None);
                        continue;
                    }
                    None => String::new(),
                };
                text.push_str(&piece);
                let waits = text.len() - shown;
                let due =
                    is_over || shown == 0 || waits >= SHOWN_BYTES || show_at.is_some_and(|at| at <= Instant::now());
                if due && waits > 0 {
                    seq += 1;
                    if open {
                        canvas.stream_piece(&topic, &id, seq, shown, &text[shown..]);
                    }
                    (shown, show_at) = (text.len(), None);
                } else if due {
                    show_at = None;
                } else if waits > 0 && show_at.is_none() {
                    show_at = Some(Instant::now() + SHOWN_EVERY);
                }
                if is_over {
                    break;
                }
                said.lock().unwrap_or_else(PoisonError::into_inner).push_str(&piece);
                let since = *kept_at.get_or_insert_with(Instant::now);
                let called = std::mem::take(&mut has_called);
                if called && !behind.iter().any(|who| **who == *OUTSIDE) {
                    behind.push(OUTSIDE.into());
                }
                let due = called || text.len() - kept >= CHECKPOINT_BYTES || since.elapsed() >= CHECKPOINT_EVERY;
                if !open || !due || text.trim().is_empty() || text.len() > chat::CONTENT_BYTES_MAX {
                    continue;
                }
                let checkpoint = chat::Op::Checkpoint {
                    topic: topic.clone(),
                    id: id.clone(),
                    content: text.clone(),
                    behind: behind.clone(),
                };
                open = match canvas.apply(checkpoint, None, None, &origin).await {
                    // The rate limit of the canvas recovers with time.
                    Ok(_) | Err(LifeformError::Refused(Refusal::Rate(_))) => true,
                    Err(error) => !matches!(error, LifeformError::Refused(_)),
                };
                (kept, kept_at) = (text.len(), Some(Instant::now()));
            }
        });
        Ok(Some(pieces))
    }
}
