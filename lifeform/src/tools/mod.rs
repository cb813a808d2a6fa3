//! The tools of a lifeform's fascicles: read messages, remember, and write. The job's id is the idempotency key of each
//! act, so a repetition after a crash changes nothing.

mod acts;
mod answer;
mod by_rule;
mod compaction;
mod corrections;
mod excerpts;
mod filing;
mod findings;
mod forgetting;
mod forming;
mod goals;
mod keeping;
mod maps;
pub(crate) mod mind;
mod passing_on;
mod recalling;
mod reminders;
mod scope;
mod self_growth;
mod situation;
mod speaking;
mod steps;
mod supplements;
mod thoughts;
mod verdicts;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fascicles::{ToolContext, ToolFailure, Toolbox};
use knowledge::{Knowledge, KnowledgeError, Record};
use neurons::llm::Delta;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Event, Origin, Principal, Role};
use tokio::sync::mpsc;

pub(crate) use forgetting::Wish;

use crate::LifeformError;
use crate::agenda_store::AgendaStore;
use crate::canvas::{Canvas, Refusal, chat};
use crate::memory::Memory;
use crate::perception::{PerceivedMessage, Perception};
use crate::shared_knowledge::KnowledgeAccess;

/// The maximum length of a quoted text in a prompt, in characters: an interrupted answer, an earlier wording, the turn
/// before.
const HISTORY_CHARS: usize = 600;
/// The maximum length of a message for a step beside the answer, and of a summary in a prompt, in characters.
const MESSAGE_CHARS: usize = 4000;
/// The beginning of a message that gives the reason for a missing answer.
pub(crate) const NO_ANSWER: &str = "I could not answer: ";
/// The tools of a lifeform's fascicles.
pub const TOOLS: [&str; 40] = [
    "question",
    "recall",
    "history",
    "hear",
    "say",
    "note",
    "solidify",
    "form",
    "unread",
    "formed",
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
    "ready",
    "bind",
    "progress",
    "maintain",
    "distil",
    "questions",
    "found",
    "ponder",
    "volunteer",
    "look_at_self",
    "look_at_domain",
    "describe_domain",
    "look_at_person",
    "describe_person",
    "open_answers",
    "supplement",
    "guide",
    "acts",
    "grow",
];

pub(crate) use compaction::{COMPACTION, overlong};
use keeping::told_of;
pub(crate) use recalling::{called, hears, readers_of_topic, speakers};
use recalling::{marked, notes, offered, rests_on, strangers_behind, unmarked};
use scope::ToolScope;
pub(crate) use speaking::{Canvases, Speaking};
pub(crate) use steps::{effects_of, reads_memory, report_of_stop, steps_in_words};

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
    /// The neurons, with the tools of the daemon, among them those that the lifeform was given.
    pub(crate) neurons: neurons::Neurons,
    /// The chat canvas of the lifeform.
    pub(crate) home: Arc<str>,
    pub(crate) me: Principal,
    /// The name and the persona of the definition, for a mind that does not have its own yet.
    pub(crate) name: String,
    pub(crate) persona: String,
    /// The maximum number of unasked messages per day.
    pub(crate) unasked_per_day: u32,
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
}

/// Converts an error of the commons. A failure may be temporary; a refusal is permanent.
fn failed(error: KnowledgeError) -> ToolFailure {
    match error {
        error @ KnowledgeError::Nexus(_) => ToolFailure::passing(error),
        error => ToolFailure::fatal(error),
    }
}

/// The maximum length of a guide in a prompt, in characters.
const GUIDE_CHARS: usize = 4_000;

/// The tool `guide`: `{skill}`, the name of a skill. Returns its guide as an event for a model, or no event if there is none.
///
/// # Errors
/// A failure if no skill is named, or if the commons cannot be read.
pub async fn guide(knowledge: &Knowledge, arguments: &Value) -> Result<Value, ToolFailure> {
    let skill =
        arguments["skill"].as_str().ok_or_else(|| ToolFailure::fatal("guide wants skill: the name of a skill"))?;
    let guide = knowledge.guide(skill).await.map_err(failed)?;
    let events: Vec<Value> =
        guide.into_iter().map(|guide| json!({"role": "system", "content": cut(&guide, GUIDE_CHARS)})).collect();
    Ok(json!({"events": events}))
}

/// Returns an event with records of the commons for a model. People wrote their content.
fn remembered(known: &[Record]) -> Option<Value> {
    let ids: Vec<&str> = known.iter().map(|record| record.id.as_str()).collect();
    told_of(&knowledge::as_told(known), &json!(ids))
}

#[async_trait]
impl Toolbox for LifeformToolbox {
    async fn call(&self, name: &Arc<str>, arguments: &Value, context: &ToolContext) -> Result<Value, ToolFailure> {
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
            "ready" => return self.ready(context, &origin).await,
            "bind" => return self.bind(context, &origin).await,
            "progress" => return Box::pin(self.progress(context, &origin)).await,
            "unread" => return self.unread(context, &origin).await,
            "formed" => return self.formed(context, &origin).await,
            "maintain" => return self.maintain(context, &origin).await,
            "gather" => return self.gather(context),
            "extract" => return Ok(self.extract(context)),
            "compact" => return self.compact(context, &origin).await,
            "distil" => return self.distil(context, &origin).await,
            "questions" => return self.questions(context),
            "found" => return self.found(context, &origin).await,
            "ponder" => return self.ponder(context, &origin).await,
            "volunteer" => return self.volunteer(context, &origin).await,
            "look_at_domain" => return self.look_at_domain(context, &origin).await,
            "describe_domain" => return self.describe_domain(context, &origin).await,
            "look_at_person" => return self.look_at_person(context, &origin).await,
            "describe_person" => return self.describe_person(context, &origin).await,
            "look_at_self" => return self.look_at_self(context, &origin).await,
            "grow" => return self.grow(context, &origin).await,
            "sketch" => return self.sketch(context, &origin).await,
            "acts" => return self.acts(arguments, context).await,
            "open_answers" => return self.open_answers(context),
            "supplement" => return self.supplement(context, &origin).await,
            "guide" => return guide(self.knowledge.records(), arguments).await,
            _ => {}
        }
        let here = self.here(context)?;
        match &**name {
            // No model receives messages that are answered by rule.
            "question" | "recall" | "history" | "situation" if self.needs_no_model(&here, &origin).await? => {
                Ok(json!({"events": [], "kip": []}))
            }
            "question" => self.question(&here, &origin).await,
            "recall" => {
                let query = self.query_read(&here, context, &origin).await?;
                self.recall(&here, query.as_ref(), &origin).await
            }
            "history" => Ok(json!({"events": self.history(&here)})),
            "situation" => Ok(json!({"events": [self.situation_of_answer(&here, &origin).await?]})),
            "hear" => {
                let said = here.perception.said.iter().filter(|said| said.is_said());
                let worth_learning = said.filter(|said| !crate::memory::statements(&said.content).is_empty());
                let worth_learning: Vec<&PerceivedMessage> = worth_learning.collect();
                // Where several speak, each is named.
                let several = worth_learning.iter().any(|said| said.sender != worth_learning[0].sender);
                let state = here.canvas.snapshot().state;
                let text = |said: &&PerceivedMessage| {
                    let content = cut(&said.content, MESSAGE_CHARS);
                    let content =
                        if several { recalling::said_by(&called(&state, &said.sender), &content) } else { content };
                    Event::text("user", content, store::Cause::default())
                };
                let events: Vec<Event> = worth_learning.iter().map(text).collect();
                Ok(json!({"events": events}))
            }
            "say" => self.say(context, &here, &origin).await,
            "note" => self.keep(context, &here, true, &origin).await,
            "solidify" => self.keep(context, &here, false, &origin).await,
            "form" => {
                let formed = self.form(&here, &origin).await?;
                self.learn_from_answer(context, &here, &origin).await?;
                self.take_back(&here, &origin).await?;
                self.pass_on(&here, &origin).await?;
                Ok(formed)
            }
            "alike" => self.alike(&here, &origin).await,
            "correct" => self.correct(context, &origin).await,
            "later" => self.later(context, &here, &origin).await,
            "promise" => self.promise(context, &here, &origin).await,
            "look" => self.look(&here, &origin).await,
            other => Err(ToolFailure::fatal(format!("there is no tool {other}"))),
        }
    }

    fn only_reads(&self, name: &str) -> bool {
        matches!(
            name,
            "question"
                | "recall"
                | "history"
                | "hear"
                | "alike"
                | "later"
                | "look"
                | "gather"
                | "extract"
                | "situation"
                | "consider"
                | "bind"
                | "questions"
                | "ponder"
                | "look_at_self"
                | "look_at_domain"
                | "look_at_person"
                | "unread"
                | "guide"
                | "acts"
                | "open_answers"
        )
    }

    async fn listen(&self, context: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        self.stream_answer(context).await.map(Some)
    }
}
