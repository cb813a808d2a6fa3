//! The review of earlier answers after a new fact contradicts them.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use serde_json::{Map, Value, json};
use store::Origin;

use super::{LifeformToolbox, ToolScope, hears, speakers, strangers_behind};
use crate::canvas::chat::{MessageStatus, TopicView};
use crate::canvas::{Canvas, chat};
use crate::memory::{Fact, Recalled, are_of_one_subject, facts};
use crate::perception::Change;

/// The maximum number of earlier facts that are compared with new ones at once.
const ALIKE_MAX: usize = 3;
/// The maximum number of own messages that are corrected at once.
const CORRECTED_MAX: usize = 5;

impl LifeformToolbox {
    /// Returns a question for a model about earlier facts that a new one may contradict, if own messages rest on them.
    /// In most cases there are none, and no model is called.
    pub(super) async fn alike(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let (mut candidates, mut new): (Vec<Recalled>, Vec<Fact>) = (Vec::new(), Vec::new());
        let people = here.people(&self.me);
        for said in here.perception.said.iter().filter(|said| said.change != Change::Retracted) {
            for fact in facts(&said.content, &Value::Null) {
                let found = self.memory.recall(&fact.statement, &[], self.readers(&people), origin).await;
                let found = found.map_err(ToolFailure::passing)?;
                let alike = found.recalled.into_iter().filter(|known| {
                    self.may_correct(&said.sender, known)
                        && are_of_one_subject(&known.statement, &fact.statement)
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
        // A fact from these messages is not an earlier fact.
        candidates.retain(|known| here.perception.said.iter().all(|said| !said.content.contains(&known.statement)));
        candidates.truncate(ALIKE_MAX);
        if candidates.is_empty() {
            return Ok(json!({"events": []}));
        }
        let news: Vec<&str> = new.iter().map(|fact| &*fact.statement).collect();
        let earlier: Vec<String> =
            candidates.iter().enumerate().map(|(n, known)| format!("{}. {}", n + 1, known.statement)).collect();
        let text = format!("New: {}\nEarlier:\n{}", news.join(" "), earlier.join("\n"));
        let metadata = json!({
            "candidates": candidates.iter().map(|known| &known.id).collect::<Vec<_>>(),
            "new": news,
            "people": people,
            "behind": here.perception.said.iter().map(|said| &said.sender).collect::<BTreeSet<_>>(),
        });
        Ok(json!({"events": [{"role": "user", "content": text, "metadata": metadata}]}))
    }

    /// Returns `true` if the word of `who` may replace a fact: its own, one that nobody stated, or, for a trusted
    /// principal, anyone's. Contradictory facts of others stand side by side.
    fn may_correct(&self, who: &str, known: &Recalled) -> bool {
        known.person.as_deref().is_none_or(|person| person == who) || self.knowledge.trusts_word_of(who)
    }

    /// Returns the own messages that rest on a concept, with canvas and topic, the newest of each topic first.
    pub(super) fn resting_on(&self, concept: &str) -> Vec<(Canvas, Arc<str>, Arc<str>)> {
        let mut found = Vec::new();
        for canvas in self.canvases.all() {
            let state = canvas.snapshot().state;
            for topic in chat::topics_in(&state).map(TopicView::id) {
                let resting = chat::messages_in(&state, topic).rev().filter(|message| {
                    message.is_by(&self.me.id.0)
                        && message.status() == MessageStatus::Final
                        && message.rests_on().any(|id| id == concept)
                });
                found.extend(resting.map(|message| (canvas.clone(), topic.into(), message.id().into())));
                if found.len() >= CORRECTED_MAX {
                    found.truncate(CORRECTED_MAX);
                    return found;
                }
            }
        }
        found
    }

    /// Supersedes the facts that a model found contradicted, and amends the own messages that rest on them.
    pub(super) async fn correct(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let none = Map::new();
        let asked = context.events.iter().find(|event| event.metadata.contains_key("candidates"));
        let asked = asked.map_or(&none, |event| &event.metadata);
        let verdict = context.event("weigh").map_or(Value::Null, |event| event.content.clone());
        let correction = verdict["correction"].as_str().unwrap_or_default().trim();
        let new: Vec<&str> =
            asked.get("new").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let people: BTreeSet<&str> =
            asked.get("people").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut corrected = Vec::new();
        for number in verdict["contradicted"].as_array().into_iter().flatten().filter_map(Value::as_u64) {
            let candidate = asked.get("candidates").and_then(|ids| ids.get(number.checked_sub(1)? as usize)?.as_str());
            let Some(fact) = candidate else { continue };
            // A correction must not show people a statement that they did not hear.
            let may_hear = |canvas: &Canvas, topic: &str| {
                let there = speakers(&canvas.snapshot().state, topic);
                there.iter().filter(|who| hears(who, &self.me)).all(|who| people.contains(who.as_str()))
            };
            let mut resting = self.resting_on(fact);
            resting.retain(|(canvas, topic, _)| may_hear(canvas, topic));
            self.memory.supersede(fact, &new.join(" "), origin).await.map_err(ToolFailure::passing)?;
            for (canvas, topic, id) in resting.into_iter().filter(|_| !correction.is_empty()) {
                let reason: String = format!("I learned since: {}", new.join(" ")).chars().take(240).collect();
                let content = correction.chars().take(chat::CONTENT_BYTES_MAX / 4).collect();
                // An earlier attempt may have amended it.
                let now = canvas.snapshot().state;
                let said = chat::message_in(&now, &topic, &id).map(|message| message.content() == correction);
                if said == Some(false) {
                    let (id, behind) = (id.clone(), strangers_behind(context));
                    Self::act(&canvas, chat::Op::Amend { topic, id, content, reason, behind }, origin).await?;
                }
                corrected.push(id);
            }
        }
        Ok(json!({"corrected": corrected}))
    }
}
