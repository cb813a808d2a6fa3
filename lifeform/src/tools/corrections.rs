//! The review of earlier answers after a new fact contradicts them.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use nexus::kip::graph::text::terms;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Hash, Origin};

use super::{LifeformToolbox, ToolScope, called, hears, readers_of_topic, strangers_behind, unmarked};
use crate::canvas::chat::{MessageStatus, TopicView};
use crate::canvas::{Canvas, chat};
use crate::memory::{Fact, PUBLIC, Question, Recalled, are_of_one_subject, facts, told_to_all};
use crate::perception::PerceivedMessage;
use crate::reminders::Language;

/// The maximum number of earlier facts that are compared with new ones at once.
const ALIKE_MAX: usize = 3;
/// The share of a new fact's word weight from which on an earlier fact is near to it.
const NEAR_SHARE: f64 = 0.5;
const NEAR_SHARE_SPACELESS: f64 = 0.3;
/// The number of words below which an answer counts as short.
const SHORT_TERMS: usize = 5;
/// The maximum number of own messages that are corrected at once.
const CORRECTED_MAX: usize = 5;

/// The metadata of the question about earlier facts.
#[derive(Default, Serialize, Deserialize)]
struct Weighing {
    /// The concepts of the earlier facts, in the order of their numbers in the question.
    candidates: Vec<String>,
    /// Their statements.
    #[serde(default)]
    earlier: Vec<String>,
    /// The new statements.
    new: Vec<String>,
    /// The people who hear them.
    people: BTreeSet<String>,
    /// The principals whose words the question contains.
    behind: BTreeSet<Arc<str>>,
}

/// The answer of the neuron `weigh`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Verdict {
    /// The numbers of the contradicted facts, from 1.
    contradicted: Vec<usize>,
    /// The text that replaces an answer which rests on one of them.
    correction: String,
}

/// Returns `true` if a text contains words of the earlier statement that the new statements do not repeat: the part that
/// can be wrong now. A short text ("Yes, you still do.") may say so without them.
fn says_what_changed(text: &str, was: &str, new: &[String]) -> bool {
    let (said, new) = (terms(text), new.iter().flat_map(|one| terms(one)).collect::<BTreeSet<_>>());
    let mut gone = terms(was).into_iter().filter(|word| !new.contains(word)).peekable();
    said.len() < SHORT_TERMS || gone.peek().is_none() || gone.any(|word| said.contains(&word))
}

impl LifeformToolbox {
    /// Returns a question for a model about earlier facts that a new one may contradict. In most cases there are none,
    /// and no model is called.
    pub(super) async fn alike(&self, here: &ToolScope, origin: &Origin) -> Result<Value, ToolFailure> {
        let (mut candidates, mut new): (Vec<Recalled>, Vec<Fact>) = (Vec::new(), Vec::new());
        let people = self.readers_here(here);
        for said in here.perception.said.iter().filter(|said| said.is_said()) {
            let heard_on = said.at.to_zoned(self.zone().0).date();
            for fact in facts(&said.content, &Value::Null, heard_on) {
                let alike = self.alike_to(&fact, said, &people, here.perception.supply.small, origin).await?;
                let before = candidates.len();
                for known in alike {
                    if candidates.iter().all(|other| other.id != known.id) {
                        candidates.push(known);
                    }
                }
                if candidates.len() > before {
                    new.push(fact);
                }
            }
        }
        // A fact from these messages is not an earlier fact.
        let is_of_these = |known: &Recalled| {
            let mut said = here.perception.said.iter();
            said.any(|said| {
                said.content.contains(&known.statement)
                    || known.place.as_ref().is_some_and(|place| place.parts().2 == &*said.message)
            })
        };
        candidates.retain(|known| !is_of_these(known));
        candidates.truncate(ALIKE_MAX);
        if candidates.is_empty() {
            return Ok(json!({"events": []}));
        }
        let news: Vec<String> = new.iter().map(|fact| fact.statement.to_string()).collect();
        let state = here.canvas.snapshot().state;
        let speaker = here.perception.last().sender.clone();
        let line = |(n, known): (usize, &Recalled)| {
            let teller = known.person.as_deref().map(|who| format!("{}: ", called(&state, who))).unwrap_or_default();
            format!("{}. {teller}{}", n + 1, unmarked(&known.statement))
        };
        let earlier: Vec<String> = candidates.iter().enumerate().map(line).collect();
        let (speaker, said) = (called(&state, &speaker), unmarked(&news.join(" ")));
        let text = format!("New: {speaker}: {said}\nEarlier:\n{}", earlier.join("\n"));
        let mut heard_by = self.audience_here(here);
        let is_public = here.perception.said.iter().any(|said| !told_to_all(&said.content).is_empty());
        heard_by.extend(is_public.then(|| PUBLIC.to_owned()));
        let metadata = Weighing {
            earlier: candidates.iter().map(|known| known.statement.clone()).collect(),
            candidates: candidates.into_iter().map(|known| known.id).collect(),
            new: news,
            people: heard_by,
            behind: here.perception.said.iter().map(|said| said.sender.clone()).collect(),
        };
        Ok(json!({"events": [{"role": "user", "content": text, "metadata": metadata}]}))
    }

    /// Returns the valid facts that a new one may contradict: those of its author that begin like it or are near to it,
    /// and, if the word of the author counts, those of others on which own messages rest. A small model finds
    /// contradictions where there are none, so it gets only facts that begin alike and on which a message rests.
    async fn alike_to(
        &self,
        fact: &Fact,
        said: &PerceivedMessage,
        people: &BTreeSet<String>,
        small: bool,
        origin: &Origin,
    ) -> Result<Vec<Recalled>, ToolFailure> {
        let readers = self.readers(people);
        let question = Question { by_meaning: !small, ..Question::of_words(&fact.statement) };
        // A model's own wording of the message is no earlier fact.
        let found = self
            .memory
            .recall(question, std::slice::from_ref(&said.message), readers, origin)
            .await
            .map_err(ToolFailure::passing)?;
        let mut alike = match small {
            true => Vec::new(),
            false => {
                let own = self.memory.begins_like(&fact.statement, &said.sender, readers, origin).await;
                own.map_err(ToolFailure::passing)?
            }
        };
        alike.extend(found.recalled);
        // In a script without spaces, two sentences about the same share fewer of their pairs of letters.
        let near = match Language::of(&fact.statement) {
            Language::English => NEAR_SHARE,
            Language::Chinese | Language::Japanese => NEAR_SHARE_SPACELESS,
        };
        let is_near = |known: &Recalled| !small && known.share >= near;
        let is_own = |known: &Recalled| !small && known.person.as_deref().is_none_or(|person| *person == *said.sender);
        alike.retain(|known| {
            self.may_correct(&said.sender, known)
                && (are_of_one_subject(&known.statement, &fact.statement) || is_near(known))
                && (is_own(known) || !self.resting_on(&known.id).is_empty())
        });
        Ok(alike)
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
        let mut metadata = context.events.iter().map(|event| &event.metadata);
        let asked = metadata.find(|metadata| metadata.contains_key("candidates")).cloned().unwrap_or_default();
        let Weighing { candidates, earlier, new, people, .. } =
            serde_json::from_value(asked.into()).unwrap_or_default();
        let verdict = context.event("weigh").and_then(|event| Verdict::deserialize(&event.content).ok());
        let Verdict { contradicted, correction } = verdict.unwrap_or_default();
        let correction = correction.trim();
        let mut corrected = Vec::new();
        for number in contradicted {
            let Some(at) = number.checked_sub(1) else { continue };
            let Some(fact) = candidates.get(at) else { continue };
            let was = earlier.get(at).map_or("", String::as_str);
            // A correction must not show people a statement that they did not hear.
            let may_hear = |canvas: &Canvas, topic: &str| {
                let there = readers_of_topic(&canvas.snapshot().state, topic, &self.memory);
                there.iter().filter(|who| hears(who, &self.me)).all(|who| people.contains(who))
            };
            let mut resting = self.resting_on(fact);
            resting.retain(|(canvas, topic, _)| may_hear(canvas, topic));
            let superseded = self.memory.supersede_among(fact, &new.join(" "), &people, origin).await;
            superseded.map_err(ToolFailure::passing)?;
            for (canvas, topic, id) in resting.into_iter().filter(|_| !correction.is_empty()) {
                let state = canvas.snapshot().state;
                let Some(said) = chat::message_in(&state, &topic, &id).map(|message| message.content().to_owned())
                else {
                    continue;
                };
                // An earlier attempt may have amended it.
                if said != correction && !says_what_changed(&said, was, &new) {
                    continue;
                }
                let content: String = correction.chars().take(chat::CONTENT_BYTES_MAX / 4).collect();
                let behind = strangers_behind(context);
                if said != correction && knowledge::adds_nothing(&said, was) {
                    let reason: String = format!("I learned since: {}", new.join(" ")).chars().take(240).collect();
                    let id = id.clone();
                    Self::act(&canvas, chat::Op::Amend { topic, id, content, reason, behind }, origin).await?;
                } else if said != correction {
                    // The rest of the answer still holds.
                    let more = Arc::from(format!("{id}_corrected_{}", &Hash::of(correction.as_bytes()).hex()[..8]));
                    let mut op = chat::Op::say(&topic, more, content, None);
                    if let chat::Op::Append { supplements, behind: names, .. } = &mut op {
                        (*supplements, *names) = (Some(id.clone()), behind);
                    }
                    Self::act(&canvas, op, origin).await?;
                }
                corrected.push(id);
            }
        }
        Ok(json!({"corrected": corrected}))
    }
}
