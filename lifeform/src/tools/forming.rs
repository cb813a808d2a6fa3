//! The tools that form claims and ask for them: rules read each message after its answer, a model a batch of statements, or a
//! question.

use std::collections::BTreeSet;

use fascicles::{ToolContext, ToolFailure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Origin;

use super::keeping::stated;
use super::{LifeformToolbox, ToolScope, unmarked};
use crate::agenda::Errand;
use crate::asking;
use crate::canvas::chat::{self, MessageView};
use crate::formation::{Batch, Decision, Unread};
use crate::metabolism::Mode;

/// The minimum number of statements that a model reads: a single one waits for another, because its instructions cost more than it brings.
const STATEMENTS_MIN: usize = 2;

/// The maximum number of messages before a batch that a model sees, of its sentences besides the statements, and the maximum length of one,
/// in characters.
const MESSAGES_BEFORE: usize = 4;
const SENTENCES_MAX: usize = 40;
const SENTENCE_CHARS: usize = 300;

impl LifeformToolbox {
    /// Makes claims of what the messages state, by rules, and settles the questions about conflicts that they answer.
    pub(super) async fn form(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let (mut formed, mut settled) = (0, 0);
        let audience = self.audience_here(here);
        for said in here.perception.said.iter().filter(|said| said.is_said()) {
            formed += self.memory.form_message(stated(here, said), origin).await.map_err(ToolFailure::passing)?;
            let (person, topic, words) = (&*said.sender, &**here.topic(), &*said.content);
            let decision = Decision { person, topic, words, audience: &audience };
            settled += self.memory.settle(decision, origin).await.map_err(ToolFailure::passing)?;
        }
        Ok(json!({"formed": formed, "settled": settled}))
    }

    /// Returns a batch of statements for a model; none for a small model, or where tokens are short.
    pub(super) async fn unread(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let Errand::Maintenance { supply, .. } = Self::errand(context)? else {
            return Err(ToolFailure::fatal("this tool needs a maintenance task"));
        };
        if supply.small || supply.mode == Mode::Eco {
            return Ok(json!({"events": []}));
        }
        let batch = self.memory.unread(STATEMENTS_MIN, origin).await.map_err(ToolFailure::passing)?;
        if batch.statements.is_empty() {
            return Ok(json!({"events": []}));
        }
        let audience = batch.audience.clone();
        let themes = self.memory.known_themes(&audience, origin).await.map_err(ToolFailure::passing)?;
        let themes =
            if themes.is_empty() { String::new() } else { format!("\n<domains>{}</domains>", themes.join(", ")) };
        let predicates = self.memory.predicates_for(&audience, origin).await.map_err(ToolFailure::passing)?.line();
        let predicates =
            if predicates.is_empty() { String::new() } else { format!("\n<predicates>{predicates}</predicates>") };
        let around = self.around(&batch);
        let ids: Vec<&str> = batch.statements.iter().map(|one| one.id.as_str()).collect();
        let content = format!("{}{themes}{predicates}", shown(&batch, &around));
        let metadata = json!({"batch": ids, "place": batch.place, "around": around});
        Ok(json!({"events": [{"role": "user", "content": content, "metadata": metadata}]}))
    }

    /// Returns the question of the messages as an event for a model, if the graph answers nothing to the rules' reading of it. Returns no
    /// event for a small model, in the mode `eco`, and for a mind without claims.
    pub(super) async fn question(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let nothing = json!({"events": []});
        let supply = &here.perception.supply;
        let said = asked_by_one(here);
        let is_open = !supply.small && supply.mode != Mode::Eco && asking::is_question(&said);
        if !is_open || !self.memory.has_claims(origin).await.map_err(ToolFailure::passing)? {
            return Ok(nothing);
        }
        let people = self.readers_here(here);
        let (asks, readers) = (&here.perception.last().sender, self.readers(&people));
        let has_answer = async |path: &asking::Path| {
            let answer = self.memory.answer(&asking::Query::of(path), asks, readers, origin).await;
            answer.map(|answer| answer.is_some()).map_err(ToolFailure::passing)
        };
        if let Some(path) = asking::path(&said)
            && has_answer(&path).await?
        {
            return Ok(nothing);
        }
        let mut is_for_a_model = asking::asks_for_people(&said);
        // A question about a person whom the readers know.
        for path in asking::mentioned(&said) {
            is_for_a_model = is_for_a_model || has_answer(&path).await?;
        }
        if !is_for_a_model {
            return Ok(nothing);
        }
        let predicates = self.memory.predicates_for(&people, origin).await.map_err(ToolFailure::passing)?.line();
        let predicates =
            if predicates.is_empty() { String::new() } else { format!("\n<predicates>{predicates}</predicates>") };
        let content = format!("<question>{}</question>{predicates}", unmarked(&said));
        Ok(json!({"events": [{"role": "user", "content": content}]}))
    }

    /// Returns what a model read in the question of the messages, as far as the words bear it out.
    pub(super) async fn query_read(
        &self,
        here: &ToolScope,
        context: &ToolContext,
        origin: &Origin,
    ) -> Result<Option<asking::Read>, ToolFailure> {
        let Some(answer) = context.event("read_question").filter(|event| event.content.is_object()) else {
            return Ok(None);
        };
        let people = self.readers_here(here);
        let predicates = self.memory.predicates_for(&people, origin).await.map_err(ToolFailure::passing)?;
        Ok(asking::reading::read(&answer.content, &asked_by_one(here), &predicates))
    }

    /// Writes the claims that a model read.
    pub(super) async fn formed(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let part = |member: &str| context.events.iter().find_map(|event| event.metadata.get(member)).cloned();
        let ids: Vec<String> = part("batch").and_then(|ids| Vec::deserialize(ids).ok()).unwrap_or_default();
        let around: Vec<Sentence> = part("around").and_then(|all| Vec::deserialize(all).ok()).unwrap_or_default();
        let place: Option<(String, String)> = part("place").and_then(|place| Option::deserialize(place).ok()).flatten();
        // What was taken back while the model read names nobody.
        let stands = |sentence: &Sentence| {
            let (canvas, topic) = place.as_ref()?;
            let canvas = self.canvases.get(canvas)?;
            let state = canvas.snapshot().state;
            let text = self.text_of(&canvas, topic, chat::message_in(&state, topic, &sentence.message)?)?;
            text.contains(&sentence.text).then(|| sentence.text.clone())
        };
        let around: Vec<String> = around.iter().filter_map(stands).collect();
        // Where the model failed, rules have read what they could.
        let answer = context.event("read").map_or(Value::Null, |event| event.content.clone());
        let (formed, rejected) =
            self.memory.form_read((&around, &ids), &answer, origin).await.map_err(ToolFailure::passing)?;
        Ok(json!({"formed": formed, "rejected": rejected, "statements": ids.len()}))
    }
}

/// Returns what the last sender of the messages says in them: "my sister" is the sister of one person.
fn asked_by_one(here: &ToolScope) -> String {
    let said = here.perception.said.iter().filter(|said| said.sender == here.perception.last().sender);
    said.map(|said| said.content.as_str()).collect::<Vec<_>>().join("\n")
}

/// A sentence of a talk that is no statement of a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sentence {
    message: String,
    person: String,
    text: String,
    /// The number of statements of the batch that were said before it.
    after: usize,
}

impl LifeformToolbox {
    /// Returns what else was said in the talk of a batch, from a few messages before it to its end, as far as all who heard the batch
    /// heard it: from the message on with which the last of them spoke first.
    fn around(&self, batch: &Batch) -> Vec<Sentence> {
        let mut around = Vec::new();
        let Some((canvas, topic)) = &batch.place else { return around };
        let Some(canvas) = self.canvases.get(canvas) else { return around };
        let state = canvas.snapshot().state;
        let is_mine = |message: &MessageView<'_>| message.is_by(&self.me.id.0);
        let talk: Vec<_> = self.texts_in(&canvas, &state, topic).filter(|(message, _)| !is_mine(message)).collect();
        let is_of = |id: &str, one: &Unread| one.message.as_deref() == Some(id);
        let is_told = |id: &str| batch.statements.iter().any(|one| is_of(id, one));
        let (Some(first), Some(last)) = (
            talk.iter().position(|(message, _)| is_told(message.id())),
            talk.iter().rposition(|(message, _)| is_told(message.id())),
        ) else {
            return around;
        };
        let mut unheard: BTreeSet<&str> = batch.audience.iter().map(String::as_str).collect();
        let all_heard = talk.iter().position(|(message, _)| {
            unheard.remove(message.sender());
            unheard.is_empty()
        });
        let Some(from) = all_heard.map(|heard| heard.max(first.saturating_sub(MESSAGES_BEFORE))) else { return around };
        let mut told = 0;
        for (message, text) in talk.get(from..=last).into_iter().flatten() {
            for text in knowledge::sentences(text) {
                if batch.statements.iter().any(|one| is_of(message.id(), one) && one.statement == text) {
                    told += 1;
                } else if around.len() < SENTENCES_MAX {
                    let (message, person) = (message.id().to_owned(), message.sender().to_owned());
                    let text = text.chars().take(SENTENCE_CHARS).collect();
                    around.push(Sentence { message, person, text, after: told });
                }
            }
        }
        around
    }
}

/// Returns the talk: the statements with their numbers, and what else was said, each with its speaker.
fn shown(batch: &Batch, around: &[Sentence]) -> String {
    let line = |person: &str, text: &str| {
        let name = person.split_once(':').map_or(person, |(_, name)| name);
        format!("{}: {}", unmarked(name), unmarked(&text.replace('\n', " ")))
    };
    let others = |after: usize| {
        let of = around.iter().filter(move |sentence| sentence.after == after);
        of.map(|sentence| format!("- {}", line(&sentence.person, &sentence.text)))
    };
    let mut lines: Vec<String> = Vec::new();
    for (at, one) in batch.statements.iter().enumerate() {
        lines.extend(others(at));
        lines.push(format!("{}. {}", at + 1, line(&one.person, &one.statement)));
    }
    lines.extend(others(batch.statements.len()));
    format!("<statements>\n{}\n</statements>", lines.join("\n"))
}
