//! What a lifeform's fascicles can do: hear, remember, speak. Each act is keyed by its job, so that
//! doing it again after a crash is doing it once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use fascicles::{ToolContext, ToolFailure, Toolbox};
use neurons::llm::Delta;
use nexus::{Event, Origin, Principal};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::LifeformError;
use crate::agenda::Outcome;
use crate::canvas::{Canvas, Refusal, State, chat};
use crate::maintenance;
use crate::memory::{Fact, Memory, Recalled, Stated, are_of_one_subject, facts};
use crate::perception::{Change, Perception, Said};
use crate::plans::Plans;

/// Characters of an earlier message that an answer is given.
const HISTORY_CHARS: usize = 600;
/// Characters of the answered message that a model is given.
const MESSAGE_CHARS: usize = 4000;
/// Text between two durable checkpoints of an answer.
const CHECKPOINT_BYTES: usize = 2048;
/// Time between two durable checkpoints of an answer.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// Earlier facts that are weighed against new ones at once.
const ALIKE_MAX: usize = 3;
/// Own messages that are corrected at once.
const CORRECTED_MAX: usize = 5;

/// What the tool nodes of its fascicles may call.
pub const TOOLS: [&str; 11] =
    ["recall", "history", "hear", "say", "note", "solidify", "alike", "correct", "consider", "progress", "maintain"];

/// The role of the event that a reply job begins with.
pub(crate) const PERCEPTION: &str = "perception";
/// The role of the event that a job begins with which nobody asked for just now: a goal, or something scheduled.
pub(crate) const ERRAND: &str = "errand";

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

/// The canvases that a lifeform takes part in, by `{lifeform}/{canvas}`.
#[derive(Clone, Default)]
pub(crate) struct Canvases(Arc<RwLock<BTreeMap<Arc<str>, Canvas>>>);

impl Canvases {
    /// The one of that name.
    pub(crate) fn get(&self, name: &str) -> Option<Canvas> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// It takes part in one more.
    pub(crate) fn join(&self, canvas: Canvas) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(canvas.name().into(), canvas);
    }

    /// It takes part in one no more.
    pub(crate) fn leave(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Canvas> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// A text that grows.
type Text = Arc<Mutex<String>>;

/// What is being said, as far as it was said: more than the canvas holds of it.
#[derive(Clone, Default)]
pub(crate) struct Speaking(Arc<Mutex<BTreeMap<Arc<str>, Text>>>);

impl Speaking {
    fn texts(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Text>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message is begun.
    fn begin(&self, message: &Arc<str>) -> Text {
        let text = Text::default();
        self.texts().insert(message.clone(), text.clone());
        text
    }

    /// A message is said no more; answers what was said of it.
    pub(crate) fn end(&self, message: &str) -> Option<String> {
        let text = self.texts().remove(message)?;
        let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (!text.trim().is_empty()).then_some(text)
    }
}

/// The hands of one lifeform.
pub(crate) struct Hands {
    pub(crate) speaking: Speaking,
    pub(crate) canvases: Canvases,
    pub(crate) memory: Memory,
    pub(crate) plans: Plans,
    /// The canvas it has from birth.
    pub(crate) home: Arc<str>,
    pub(crate) me: Principal,
    /// Who it is, in words for its models.
    pub(crate) identity: String,
}

/// A perception and the canvas it was made on.
struct Here {
    perception: Perception,
    canvas: Canvas,
}

impl Here {
    fn topic(&self) -> &Arc<str> {
        &self.perception.place.topic
    }

    fn message(&self, id: &str) -> Option<Value> {
        self.canvas.snapshot().state.get(&chat::message_path(self.topic(), id)).cloned()
    }

    fn status(&self, id: &str) -> Option<String> {
        self.message(id)?["status"].as_str().map(Into::into)
    }

    /// What is told to be answered: the last thing for this lifeform, and all of it if there is more.
    fn answers(&self) -> (Option<Arc<str>>, Vec<Arc<str>>) {
        let for_me = self.perception.said.iter().filter(|said| said.to_answer);
        let all: Vec<Arc<str>> = for_me.map(|said| said.message.clone()).collect();
        (all.last().cloned(), if all.len() > 1 { all } else { Vec::new() })
    }
}

impl Hands {
    fn here(&self, context: &ToolContext) -> Result<Here, ToolFailure> {
        let event = context
            .input
            .iter()
            .find(|event| &*event.role == PERCEPTION)
            .ok_or_else(|| ToolFailure::fatal("this tool needs a perception to work on"))?;
        let perception: Perception = serde_json::from_value(event.content.clone()).map_err(ToolFailure::fatal)?;
        let name = &perception.place.canvas;
        let canvas = self.canvases.get(name).ok_or_else(|| ToolFailure::fatal(format!("it left canvas {name}")))?;
        Ok(Here { perception, canvas })
    }

    fn origin(&self, context: &ToolContext) -> Origin {
        Origin::new(self.me.clone(), context.origin.cause.clone())
    }

    /// The message a job writes; the same after a restart.
    fn answer_id(context: &ToolContext) -> Arc<str> {
        format!("msg_{}", context.job).into()
    }

    /// Does an op; what was done already by an earlier try is done.
    async fn act(canvas: &Canvas, op: chat::Op, origin: &Origin) -> Result<(), ToolFailure> {
        match canvas.apply(op, None, None, origin).await {
            Ok(_) | Err(LifeformError::Refused(Refusal::Exists(_))) => Ok(()),
            // Too much in too short a time passes.
            Err(error @ LifeformError::Refused(Refusal::Rate(_))) => Err(ToolFailure::passing(error)),
            Err(LifeformError::Refused(refusal)) => Err(ToolFailure::fatal(refusal)),
            Err(error) => Err(ToolFailure::passing(error)),
        }
    }

    /// The last messages of the topic up to those that are answered, oldest first. Where several speak, each is named: what
    /// others say is theirs, and no order of the house.
    fn history(&self, here: &Here) -> Vec<Event> {
        let state = here.canvas.snapshot().state;
        let Perception { said, history, resumes, .. } = &here.perception;
        let path_of = |message: &str| chat::message_path(here.topic(), message);
        let ord_of = |message: &str| state.get(&path_of(message)).and_then(|message| message["ord"].as_str());
        let last = said.iter().filter_map(|said| ord_of(&said.message)).max().unwrap_or("~");
        let is_said = |message: &Value| said.iter().any(|said| message["id"] == *said.message);
        let mut room = *history;
        let messages = state.children(&format!("{}/messages", chat::topic_path(here.topic()))).rev();
        let mut shown: Vec<(&Value, Option<&Said>)> = messages
            .skip_while(|message| message["ord"].as_str().unwrap_or_default() > last)
            .filter(|message| message["status"] == "final" || message["status"] == "interrupted" || is_said(message))
            .map(|message| (message, said.iter().find(|said| message["id"] == *said.message)))
            .take_while(|(_, said)| {
                let is_shown = said.is_some() || room > 0;
                room = room.saturating_sub(usize::from(said.is_none()));
                is_shown
            })
            .collect();
        shown.reverse();
        let senders: BTreeSet<&str> = shown.iter().filter_map(|(message, _)| message["sender"].as_str()).collect();
        let several = senders.iter().filter(|sender| **sender != &*self.me.id.0).count() > 1;
        let mut events: Vec<Event> = shown
            .into_iter()
            .filter_map(|(message, said)| {
                let sender = message["sender"].as_str().unwrap_or_default();
                let is_mine = sender == &*self.me.id.0;
                let text = match said {
                    Some(said) => cut(&words_of(said)?, MESSAGE_CHARS),
                    None => cut(message["content"].as_str().unwrap_or_default(), HISTORY_CHARS),
                };
                let text = match several && !is_mine {
                    true => format!("{} says: {text}", called(&state, sender)),
                    false => text,
                };
                Some(Event::text(if is_mine { "assistant" } else { "user" }, text, nexus::Cause::default()))
            })
            .collect();
        let begun = resumes.as_ref().and_then(|resumed| here.message(resumed));
        let begun = begun.filter(|message| message["content"].as_str().is_some_and(|text| !text.trim().is_empty()));
        if let Some(begun) = begun.and_then(|message| message["content"].as_str().map(|text| cut(text, HISTORY_CHARS)))
        {
            let asked = cut(&here.perception.content(), HISTORY_CHARS);
            let go_on = format!(
                "(You were interrupted while you answered \"{asked}\". You had said: \"{begun}\". Complete that answer now.)"
            );
            events.push(Event::text("user", go_on, nexus::Cause::default()));
        }
        events
    }

    async fn recall(&self, here: &Here, origin: &Origin) -> Result<Value, ToolFailure> {
        // What is said just now need not be remembered.
        let new = here.perception.said.iter().filter(|said| said.change == Change::New);
        let besides: Vec<Arc<str>> = new.map(|said| said.message.clone()).collect();
        let words = here.perception.content();
        let found = self.memory.recall(&words, &besides, origin).await.map_err(ToolFailure::passing)?;
        let mut events = vec![json!({"role": "system", "content": self.identity})];
        let ids: Vec<&str> = found.recalled.iter().map(|memory| memory.id.as_str()).collect();
        let rests_on = json!({"rests_on": ids, "kip": found.kip});
        if !found.recalled.is_empty() {
            let asks = here.perception.last().sender.clone();
            let lines: Vec<String> = found.recalled.iter().map(|memory| line_of(memory, &asks)).collect();
            let text = format!("What you remember:\n{}", lines.join("\n"));
            events.push(json!({"role": "system", "content": text, "metadata": rests_on}));
        }
        Ok(json!({"events": events, "kip": found.kip}))
    }

    async fn say(&self, context: &ToolContext, here: &Here, origin: &Origin) -> Result<Value, ToolFailure> {
        let (topic, id) = (here.topic().clone(), Self::answer_id(context));
        let answer = context.event("answer").map(Event::as_text).unwrap_or_default();
        let content = if answer.trim().is_empty() {
            "…".to_owned()
        } else {
            answer.chars().take(chat::CONTENT_BYTES_MAX / 4).collect()
        };
        let rests_on = context.events.iter().filter_map(|event| event.metadata.get("rests_on")?.as_array()).flatten();
        let rests_on: Vec<Arc<str>> = rests_on.filter_map(|id| id.as_str().map(Arc::from)).collect();
        match here.status(&id).as_deref() {
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
                };
                Self::act(&here.canvas, op, origin).await?;
            }
            Some("streaming") => {
                Self::act(&here.canvas, chat::Op::Finish { topic, id: id.clone(), content, rests_on }, origin).await?;
            }
            // Somebody interrupted it, or an earlier try finished it.
            Some(_) => {}
        }
        Ok(json!({"message": id}))
    }

    /// Keeps what was stated, with what a model read in it if one has; with `unsaid`, what was stated before holds no more.
    async fn keep(
        &self,
        context: &ToolContext,
        here: &Here,
        unsaid: bool,
        origin: &Origin,
    ) -> Result<Value, ToolFailure> {
        let read = context.event("learn").map_or(Value::Null, |event| event.content.clone());
        let mut learned = Vec::new();
        for said in &here.perception.said {
            let stated = stated(here, said);
            let status = match &said.change {
                Change::New => None,
                Change::Amended { .. } => Some("superseded"),
                Change::Retracted => Some("retracted"),
            };
            let kept: Result<Vec<String>, nexus::NexusError> = async {
                if let Some(status) = status.filter(|_| unsaid) {
                    self.memory.unsay(&said.message, status, &said.source, origin).await?;
                }
                if said.change == Change::Retracted {
                    return Ok(Vec::new());
                }
                self.memory.meet(stated, origin).await?;
                self.memory.learn(stated, &facts(&said.content, &read), origin).await
            }
            .await;
            learned.extend(kept.map_err(ToolFailure::passing)?);
        }
        Ok(json!({"learned": learned}))
    }

    /// Earlier facts that something new may contradict and that own messages rest on, as a question for a model; nothing
    /// when there are none, so that most of what is learned costs no thought.
    async fn alike(&self, here: &Here, origin: &Origin) -> Result<Value, ToolFailure> {
        let (mut candidates, mut new): (Vec<Recalled>, Vec<Fact>) = (Vec::new(), Vec::new());
        for said in here.perception.said.iter().filter(|said| said.change != Change::Retracted) {
            for fact in facts(&said.content, &Value::Null) {
                let found = self.memory.recall(&fact.statement, &[], origin).await.map_err(ToolFailure::passing)?;
                let alike = found.recalled.into_iter().filter(|known| {
                    are_of_one_subject(&known.statement, &fact.statement)
                        && candidates.iter().all(|other| other.id != known.id)
                });
                let before = candidates.len();
                let relied_on: Vec<Recalled> = alike.filter(|known| !self.resting_on(&known.id).is_empty()).collect();
                candidates.extend(relied_on);
                if candidates.len() > before {
                    new.push(fact);
                }
            }
        }
        // What was learned just now is no earlier fact.
        candidates.retain(|known| here.perception.said.iter().all(|said| !said.content.contains(&known.statement)));
        candidates.truncate(ALIKE_MAX);
        if candidates.is_empty() {
            return Ok(json!({"events": []}));
        }
        let news: Vec<&str> = new.iter().map(|fact| &*fact.statement).collect();
        let earlier: Vec<String> =
            candidates.iter().enumerate().map(|(n, known)| format!("{}. {}", n + 1, known.statement)).collect();
        let text = format!("New: {}\nEarlier:\n{}", news.join(" "), earlier.join("\n"));
        let metadata = json!({"candidates": candidates.iter().map(|known| &known.id).collect::<Vec<_>>(), "new": news});
        Ok(json!({"events": [{"role": "user", "content": text, "metadata": metadata}]}))
    }

    /// Own messages that rest on a concept, with the canvas and the topic they are in; the newest of each topic first.
    fn resting_on(&self, concept: &str) -> Vec<(Canvas, Arc<str>, Arc<str>)> {
        let mut found = Vec::new();
        for canvas in self.canvases.all() {
            let state = canvas.snapshot().state;
            for topic in state.children("/topics").filter_map(|topic| topic["id"].as_str()) {
                let messages = state.children(&format!("{}/messages", chat::topic_path(topic))).rev();
                let resting = messages.filter(|message| {
                    message["sender"] == *self.me.id.0
                        && message["status"] == "final"
                        && message["rests_on"].as_array().is_some_and(|ids| ids.iter().any(|id| id == concept))
                });
                let ids = resting.filter_map(|message| message["id"].as_str());
                found.extend(ids.map(|id| (canvas.clone(), topic.into(), id.into())));
                if found.len() >= CORRECTED_MAX {
                    found.truncate(CORRECTED_MAX);
                    return found;
                }
            }
        }
        found
    }

    /// What a model found contradicted holds no more, and own messages that rest on it are amended.
    async fn correct(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let none = Map::new();
        let asked = context.events.iter().find(|event| event.metadata.contains_key("candidates"));
        let asked = asked.map_or(&none, |event| &event.metadata);
        let verdict = context.event("weigh").map_or(Value::Null, |event| event.content.clone());
        let correction = verdict["correction"].as_str().unwrap_or_default().trim();
        let new: Vec<&str> =
            asked.get("new").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut corrected = Vec::new();
        for number in verdict["contradicted"].as_array().into_iter().flatten().filter_map(Value::as_u64) {
            let candidate = asked.get("candidates").and_then(|ids| ids.get(number.checked_sub(1)? as usize)?.as_str());
            let Some(fact) = candidate else { continue };
            let resting = self.resting_on(fact);
            self.memory.supersede(fact, &new.join(" "), origin).await.map_err(ToolFailure::passing)?;
            for (canvas, topic, id) in resting.into_iter().filter(|_| !correction.is_empty()) {
                let reason: String = format!("I learned since: {}", new.join(" ")).chars().take(240).collect();
                let content = correction.chars().take(chat::CONTENT_BYTES_MAX / 4).collect();
                // An earlier try may have done it.
                let now = canvas.snapshot().state;
                let said = now.get(&chat::message_path(&topic, &id)).map(|message| message["content"] == correction);
                if said == Some(false) {
                    Self::act(&canvas, chat::Op::Amend { topic, id: id.clone(), content, reason }, origin).await?;
                }
                corrected.push(id);
            }
        }
        Ok(json!({"corrected": corrected}))
    }
}

impl Hands {
    fn errand(context: &ToolContext) -> Result<&Value, ToolFailure> {
        let event = context.input.iter().find(|event| &*event.role == ERRAND);
        event.map(|event| &event.content).ok_or_else(|| ToolFailure::fatal("this tool needs an errand to work on"))
    }

    /// Tidies the mind, as `$system`.
    async fn maintain(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let task = Self::errand(context)?["maintenance"].clone();
        let task = serde_json::from_value(task).map_err(ToolFailure::fatal)?;
        maintenance::run(task, &self.memory, origin.cause.clone()).await.map_err(ToolFailure::passing)
    }

    /// What is to be done and what is known about it, for a model.
    async fn consider(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::errand(context)?;
        let text = |member: &str| errand[member].as_str().unwrap_or_default();
        let words = format!("{} {}", text("title"), text("description"));
        let found = self.memory.recall(&words, &[], origin).await.map_err(ToolFailure::passing)?;
        let mut events = vec![json!({"role": "system", "content": self.identity})];
        if !found.recalled.is_empty() {
            let lines: Vec<String> = found.recalled.iter().map(|memory| line_of(memory, "")).collect();
            let ids: Vec<&str> = found.recalled.iter().map(|memory| memory.id.as_str()).collect();
            let metadata = json!({"rests_on": ids});
            events.push(json!({"role": "system", "content": format!("What you remember:\n{}", lines.join("\n")), "metadata": metadata}));
        }
        let lines = |member: &str| {
            let lines = errand[member].as_array().into_iter().flatten().filter_map(Value::as_str);
            lines.map(|line| format!("\n- {line}")).collect::<String>()
        };
        let mut told = format!("What you have set out to do: {}", text("title"));
        for (name, more) in
            [("", text("description").to_owned()), ("Your plan:", lines("plan")), ("Notes:", lines("notes"))]
        {
            if !more.is_empty() {
                told.push_str(&format!("\n{name} {more}"));
            }
        }
        told.push_str(&format!("\nWhy now: {}.", text("occasion")));
        events.push(json!({"role": "user", "content": told}));
        Ok(json!({"events": events, "kip": found.kip}))
    }

    /// Says what is to be said about an errand, in a topic of its own, and keeps what came of it.
    async fn progress(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::errand(context)?;
        let planned = context.event("plan").map_or(Value::Null, |event| event.content.clone());
        let outcome: Outcome = serde_json::from_value(planned).unwrap_or_default();
        // Somebody may have ended or removed the goal meanwhile; then nothing is said of it.
        self.plans.reload().await.map_err(ToolFailure::passing)?;
        let is_wanted = errand["goal"].as_str().is_none_or(|id| self.plans.agenda().is_open(id));
        let said = if is_wanted { outcome.say.trim().to_owned() } else { String::new() };
        if !said.is_empty() {
            let canvas = self.canvases.get(&self.home).ok_or_else(|| ToolFailure::passing("its chat is not open"))?;
            let (kind, id) = match errand["goal"].as_str() {
                Some(id) => ("goal", id),
                None => ("schedule", errand["schedule"].as_str().unwrap_or_default()),
            };
            let topic: Arc<str> = format!("{kind}_{id}").into();
            let title = errand["title"].as_str().unwrap_or(id).to_owned();
            let turns = chat::Turns::default();
            Self::act(&canvas, chat::Op::TopicCreate { id: topic.clone(), title, turns }, origin).await?;
            let rests_on = context.events.iter().filter_map(|event| event.metadata.get("rests_on")?.as_array());
            let rests_on = rests_on.flatten().filter_map(|id| id.as_str().map(Arc::from)).collect();
            let content = said.chars().take(chat::CONTENT_BYTES_MAX / 4).collect();
            let op = match chat::Op::say(&topic, Self::answer_id(context), content, None) {
                chat::Op::Append {
                    topic, id, content, reply_to, supplements, urgent, attachments, answers, ..
                } => chat::Op::Append {
                    topic,
                    id,
                    content,
                    reply_to,
                    supplements,
                    urgent,
                    attachments,
                    answers,
                    rests_on,
                },
                other => other,
            };
            Self::act(&canvas, op, origin).await?;
        }
        let kept = self.plans.change(origin, "progress", |agenda, now| {
            let is_new = agenda.progress(&context.job, &outcome, &self.me.id, now) || errand["goal"].is_null();
            if is_new && !said.is_empty() {
                agenda.spoke(now);
            }
            Ok(())
        });
        kept.await.map_err(ToolFailure::passing)?;
        Ok(json!({"said": !said.is_empty()}))
    }
}

/// What a message says now, for a model; nothing when it was taken back.
fn words_of(said: &Said) -> Option<String> {
    match &said.change {
        Change::New => Some(said.content.clone()),
        Change::Amended { before } => {
            Some(format!("(I changed what I said. Before: \"{}\". Now:) {}", cut(before, HISTORY_CHARS), said.content))
        }
        Change::Retracted => None,
    }
}

/// What somebody is called on a canvas.
fn called(state: &State, who: &str) -> String {
    let user = state.get(&format!("/users/{}", crate::canvas::escape(who)));
    user.and_then(|user| user["name"].as_str()).unwrap_or(who).to_owned()
}

/// A memory as a model reads it.
fn line_of(memory: &Recalled, asks: &str) -> String {
    match &memory.person {
        Some(person) if person == asks => format!("- The user told you: \"{}\"", memory.statement),
        Some(person) => {
            let name = person.split_once(':').map_or(person.as_str(), |(_, name)| name);
            format!("- {name} told you: \"{}\"", memory.statement)
        }
        None => format!("- {}", memory.statement),
    }
}

/// The message that an answer completes, if it was begun.
fn resumed(here: &Here) -> Option<Arc<str>> {
    here.perception.resumes.clone().filter(|resumed| here.message(resumed).is_some())
}

fn stated<'a>(here: &'a Here, said: &'a Said) -> Stated<'a> {
    Stated { person: &said.sender, topic: here.topic(), message: &said.message, source: &said.source }
}

#[async_trait]
impl Toolbox for Hands {
    async fn call(&self, name: &Arc<str>, _: &Value, context: &ToolContext) -> Result<Value, ToolFailure> {
        let origin = self.origin(context);
        match &**name {
            "consider" => return self.consider(context, &origin).await,
            "progress" => return self.progress(context, &origin).await,
            "maintain" => return self.maintain(context, &origin).await,
            _ => {}
        }
        let here = self.here(context)?;
        match &**name {
            "recall" => self.recall(&here, &origin).await,
            "history" => Ok(json!({"events": self.history(&here)})),
            "hear" => {
                let said = here.perception.said.iter().filter(|said| said.change != Change::Retracted);
                let worth_learning = said.filter(|said| !crate::memory::statements(&said.content).is_empty());
                let events: Vec<Event> = worth_learning
                    .map(|said| Event::text("user", cut(&said.content, MESSAGE_CHARS), nexus::Cause::default()))
                    .collect();
                Ok(json!({"events": events}))
            }
            "say" => self.say(context, &here, &origin).await,
            "note" => self.keep(context, &here, true, &origin).await,
            "solidify" => self.keep(context, &here, false, &origin).await,
            "alike" => self.alike(&here, &origin).await,
            "correct" => self.correct(context, &origin).await,
            other => Err(ToolFailure::fatal(format!("there is no tool {other}"))),
        }
    }

    /// Opens the answer's message and writes what comes into it: each piece at once to whoever watches,
    /// and durably now and then.
    async fn listen(&self, context: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        let here = self.here(context)?;
        let (topic, id, origin) = (here.topic().clone(), Self::answer_id(context), self.origin(context));
        if here.status(&id).is_none() {
            let (reply_to, answers) = here.answers();
            let supplements = resumed(&here);
            let op = chat::Op::Open { topic: topic.clone(), id: id.clone(), reply_to, supplements, answers };
            Self::act(&here.canvas, op, &origin).await?;
        }
        let (pieces, mut inbox) = mpsc::channel(256);
        let (canvas, said) = (here.canvas, self.speaking.begin(&id));
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
                said.lock().unwrap_or_else(PoisonError::into_inner).push_str(&piece);
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
