//! The answer of a lifeform as a message: its stream, its checkpoints and its end.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fascicles::{ToolContext, ToolFailure};
use neurons::llm::Delta;
use nexus::OUTSIDE;
use serde_json::{Value, json};
use store::{Event, Origin};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{LifeformToolbox, NO_ANSWER, ToolScope, offered, rests_on};
use crate::LifeformError;
use crate::canvas::chat::{MessageStatus, MessageView};
use crate::canvas::{Refusal, chat, mind_map};

/// The length of text between two durable checkpoints of an answer, in bytes.
const CHECKPOINT_BYTES: usize = 2048;
/// The time between two durable checkpoints of an answer.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// The amount of new text after which subscribers receive a piece immediately, in bytes.
const SHOWN_BYTES: usize = 1024;
/// The time within which pieces of an answer are combined.
const SHOWN_EVERY: Duration = Duration::from_millis(50);

/// Returns `true` if a text begins like a call that a model prints instead of making it.
fn begins_like_a_call(text: &str) -> bool {
    let text = text.trim_start();
    text.is_empty() || text.starts_with(['{', '[', '<', '`'])
}

/// Returns the message that this answer completes, if it was started.
fn resumed(here: &ToolScope) -> Option<Arc<str>> {
    here.perception.resumes.clone().filter(|resumed| here.message(resumed).is_some())
}

impl LifeformToolbox {
    pub(super) async fn say(
        &self,
        context: &ToolContext,
        here: &ToolScope,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        let (topic, id) = (here.topic().clone(), Self::answer_id(context));
        let answer = context.event("answer").map(Event::as_text).unwrap_or_default();
        let quote = if answer.trim().is_empty() { self.quote(here, origin).await? } else { None };
        let content = match &quote {
            Some(quote) => quote.text.clone(),
            None if answer.trim().is_empty() => "…".to_owned(),
            None => answer.chars().take(chat::CONTENT_BYTES_MAX / 4).collect(),
        };
        let mut confirmations = self.put_reminders_down(here, origin).await?;
        self.forget_what_is_left(context, here, origin).await?;
        confirmations.extend(self.forgotten(here));
        let has_answer = !answer.trim().is_empty() || quote.is_some();
        let content = match (confirmations.is_empty(), has_answer) {
            (true, _) => content,
            (false, false) => confirmations.join("\n"),
            (false, true) => format!("{}{}{content}", confirmations.join("\n"), crate::reminders::PARAGRAPH),
        };
        if here.canvas.kind.is(mind_map::NAME) {
            return self.say_on_map(context, here, &content, origin).await;
        }
        let offered = offered(context);
        let used = rests_on(context, &here.perception.content(), &content);
        let (mut rests_on, behind) = (used, here.strangers_behind(context));
        rests_on.extend(quote.into_iter().flat_map(|quote| quote.rests_on));
        let used = rests_on.clone();
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
        Ok(json!({"message": id, "rests_on": used, "offered": offered}))
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

    /// Opens the answer's message and writes its text: each piece immediately to subscribers, and regularly to the
    /// store.
    pub(super) async fn stream_answer(&self, context: &ToolContext) -> Result<mpsc::Sender<Delta>, ToolFailure> {
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
                // A call that a model prints as text is no answer. What begins like one is shown when it is complete.
                if begins_like_a_call(&text) && !is_over {
                    continue;
                }
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
        Ok(pieces)
    }
}
