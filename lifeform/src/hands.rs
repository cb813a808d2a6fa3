//! What a lifeform's fascicles can do: hear, remember, speak. Each act is keyed by its job, so that
//! doing it again after a crash is doing it once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fascicles::{ToolContext, ToolFailure, Toolbox};
use neurons::llm::Delta;
use nexus::{Event, Origin, Principal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::LifeformError;
use crate::canvas::{Canvas, Refusal, chat};
use crate::memory::{Memory, facts};

/// Characters of an earlier message that an answer is given.
const HISTORY_CHARS: usize = 600;
/// Characters of the answered message that a model is given.
const MESSAGE_CHARS: usize = 4000;
/// Text between two durable checkpoints of an answer.
const CHECKPOINT_BYTES: usize = 2048;
/// Time between two durable checkpoints of an answer.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// What a reply job is about: the event a message on a canvas becomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Perception {
    /// Where it was said.
    pub(crate) topic: Arc<str>,
    /// Which message.
    pub(crate) message: Arc<str>,
    /// Who said it.
    pub(crate) sender: String,
    /// What was said.
    pub(crate) content: String,
    /// The canvas revision, as a reference.
    pub(crate) source: String,
    /// Earlier messages of the topic that the answer is given.
    #[serde(default = "history")]
    pub(crate) history: usize,
    /// What led to it.
    #[serde(default)]
    pub(crate) cause: nexus::Cause,
}

fn history() -> usize {
    6
}

/// What the tool nodes of its fascicles may call.
pub const TOOLS: [&str; 6] = ["recall", "history", "hear", "say", "note", "solidify"];

/// The role of the event that a reply job begins with.
pub(crate) const PERCEPTION: &str = "perception";

/// The beginning and the end of a long text: what people put in the middle matters least.
fn cut(text: &str, chars_max: usize) -> String {
    let count = text.chars().count();
    if count <= chars_max {
        return text.to_owned();
    }
    let half = chars_max / 2;
    let (head, tail): (String, String) = (text.chars().take(half).collect(), text.chars().skip(count - half).collect());
    format!("{head} […] {tail}")
}

/// The hands of one lifeform on its chat canvas.
pub(crate) struct Hands {
    pub(crate) canvas: Canvas,
    pub(crate) memory: Memory,
    pub(crate) me: Principal,
    /// Who it is, in words for its models.
    pub(crate) identity: String,
}

impl Hands {
    fn perception(context: &ToolContext) -> Result<Perception, ToolFailure> {
        let event = context
            .input
            .iter()
            .find(|event| &*event.role == PERCEPTION)
            .ok_or_else(|| ToolFailure::fatal("this tool needs a perception to work on"))?;
        serde_json::from_value(event.content.clone()).map_err(ToolFailure::fatal)
    }

    fn origin(&self, context: &ToolContext) -> Origin {
        Origin::new(self.me.clone(), context.origin.cause.clone())
    }

    /// The message a job writes; the same after a restart.
    fn answer_id(context: &ToolContext) -> Arc<str> {
        format!("msg_{}", context.job).into()
    }

    /// Does an op; what was done already by an earlier try is done.
    async fn act(&self, op: chat::Op, origin: &Origin) -> Result<(), ToolFailure> {
        match self.canvas.apply(op, None, None, origin).await {
            Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => Ok(()),
            Err(LifeformError::Refused(refusal)) => Err(ToolFailure::fatal(refusal)),
            Err(error) => Err(ToolFailure::passing(error)),
        }
    }

    fn status(&self, topic: &str, message: &str) -> Option<String> {
        let state = self.canvas.snapshot().state;
        state.get(&chat::message_path(topic, message))?["status"].as_str().map(Into::into)
    }

    /// The last messages of the topic up to the one that is answered, oldest first.
    fn history(&self, perception: &Perception) -> Vec<Event> {
        let state = self.canvas.snapshot().state;
        let messages = state.children(&format!("{}/messages", chat::topic_path(&perception.topic)));
        let answered = state.get(&chat::message_path(&perception.topic, &perception.message));
        let answered = answered.and_then(|message| message["ord"].as_str()).unwrap_or("~");
        let said = messages
            .rev()
            .skip_while(|message| message["ord"].as_str().unwrap_or_default() >= answered)
            .filter(|message| message["status"] == "final" || message["status"] == "interrupted");
        let mut events: Vec<Event> = said
            .take(perception.history)
            .map(|message| {
                let role = if message["sender"] == *self.me.id.0 { "assistant" } else { "user" };
                Event::text(
                    role,
                    cut(message["content"].as_str().unwrap_or_default(), HISTORY_CHARS),
                    nexus::Cause::default(),
                )
            })
            .collect();
        events.reverse();
        events.push(Event::text("user", cut(&perception.content, MESSAGE_CHARS), nexus::Cause::default()));
        events
    }

    async fn recall(&self, perception: &Perception, origin: &Origin) -> Result<Value, ToolFailure> {
        let recalled = self.memory.recall(&perception.content, origin).await.map_err(ToolFailure::passing)?;
        let mut events = vec![json!({"role": "system", "content": self.identity})];
        if recalled.is_empty() {
            return Ok(json!({"events": events, "recalled": []}));
        }
        let lines: Vec<String> = recalled
            .iter()
            .map(|memory| match &memory.person {
                Some(person) if *person == perception.sender => {
                    format!("- The user told you: \"{}\"", memory.statement)
                }
                Some(person) => format!(
                    "- {} told you: \"{}\"",
                    person.split_once(':').map_or(person.as_str(), |(_, name)| name),
                    memory.statement
                ),
                None => format!("- {}", memory.statement),
            })
            .collect();
        let text = format!("What you remember:\n{}", lines.join("\n"));
        let recalled: Vec<Value> =
            recalled.iter().map(|memory| json!({"id": memory.id, "score": memory.score})).collect();
        events.push(json!({"role": "system", "content": text}));
        Ok(json!({"events": events, "recalled": recalled}))
    }

    async fn say(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let perception = Self::perception(context)?;
        let (topic, id) = (perception.topic.clone(), Self::answer_id(context));
        let answer = context.event("answer").map(Event::as_text).unwrap_or_default();
        let content = if answer.trim().is_empty() {
            "…".to_owned()
        } else {
            answer.chars().take(chat::CONTENT_BYTES_MAX / 4).collect()
        };
        let reply_to = Some(perception.message);
        match self.status(&topic, &id).as_deref() {
            None => self.act(chat::Op::say(&topic, id.clone(), content, reply_to), origin).await?,
            Some("streaming") => self.act(chat::Op::Finish { topic, id: id.clone(), content }, origin).await?,
            // Somebody interrupted it, or an earlier try finished it.
            Some(_) => {}
        }
        Ok(json!({"message": id}))
    }

    /// Keeps the facts of a message, with what a model read in it if one has.
    async fn keep(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let perception = Self::perception(context)?;
        let read = context.event("learn").map_or(Value::Null, |event| event.content.clone());
        let facts = facts(&perception.content, &read);
        if facts.is_empty() {
            return Ok(json!({"learned": []}));
        }
        let learned = self
            .memory
            .learn(&perception.sender, &perception.topic, &perception.source, &facts, origin)
            .await
            .map_err(ToolFailure::passing)?;
        Ok(json!({"learned": learned}))
    }
}

#[async_trait]
impl Toolbox for Hands {
    async fn call(&self, name: &Arc<str>, _: &Value, context: &ToolContext) -> Result<Value, ToolFailure> {
        let origin = self.origin(context);
        match &**name {
            "recall" => self.recall(&Self::perception(context)?, &origin).await,
            "history" => Ok(json!({"events": self.history(&Self::perception(context)?)})),
            "hear" => {
                let perception = Self::perception(context)?;
                let worth_learning = !crate::memory::statements(&perception.content).is_empty();
                let events: Vec<Event> = worth_learning
                    .then(|| Event::text("user", cut(&perception.content, MESSAGE_CHARS), nexus::Cause::default()))
                    .into_iter()
                    .collect();
                Ok(json!({"events": events}))
            }
            "say" => self.say(context, &origin).await,
            "note" | "solidify" => self.keep(context, &origin).await,
            other => Err(ToolFailure::fatal(format!("there is no tool {other}"))),
        }
    }

    /// Opens the answer's message and writes what comes into it: each piece at once to whoever watches,
    /// and durably now and then.
    async fn listen(&self, context: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        let perception = Self::perception(context)?;
        let (topic, id, origin) = (perception.topic, Self::answer_id(context), self.origin(context));
        if self.status(&topic, &id).is_none() {
            self.act(
                chat::Op::Open {
                    topic: topic.clone(),
                    id: id.clone(),
                    reply_to: Some(perception.message),
                    supplements: None,
                },
                &origin,
            )
            .await?;
        }
        let (pieces, mut inbox) = mpsc::channel(256);
        let canvas = self.canvas.clone();
        tokio::spawn(async move {
            let (mut text, mut kept, mut seq) = (String::new(), 0, 0_u64);
            // A message that was interrupted takes no more; its author still hears the model out, since
            // what it says is paid for.
            let (mut kept_at, mut open) = (None, true);
            while let Some(piece) = inbox.recv().await {
                let Delta::Text(piece) = piece else { continue };
                seq += 1;
                if open {
                    canvas.stream_piece(&topic, &id, seq, text.len(), &piece);
                }
                text.push_str(&piece);
                let since = *kept_at.get_or_insert_with(Instant::now);
                let due = text.len() - kept >= CHECKPOINT_BYTES || since.elapsed() >= CHECKPOINT_EVERY;
                if !open || !due || text.trim().is_empty() || text.len() > chat::CONTENT_BYTES_MAX {
                    continue;
                }
                let checkpoint = chat::Op::Checkpoint { topic: topic.clone(), id: id.clone(), content: text.clone() };
                open = !matches!(canvas.apply(checkpoint, None, None, &origin).await, Err(LifeformError::Refused(_)));
                (kept, kept_at) = (text.len(), Some(Instant::now()));
            }
        });
        Ok(Some(pieces))
    }
}
