//! Answers without a model: confirmations of reminders and of forgetting, and facts that memory alone settles.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use fascicles::ToolFailure;
use nexus::NexusError;
use regex::RegexSet;
use store::Origin;

use super::{LifeformToolbox, ToolScope, hears, readers_of_topic};
use crate::canvas::{Canvas, chat};
use crate::memory::{Question, Readers, Recalled, asks_what_is_known, forget_requests_by_rule};
use crate::metabolism::Mode;
use crate::perception::{Change, PerceivedMessage, Perception};

/// The share of a question's word weight that a fact must cover to be quoted as its answer, and the share of it that
/// another fact may cover at most.
const SURE_SHARE: f64 = 0.6;
const OTHER_SHARE: f64 = 0.75;

/// The words with which a person speaks of itself.
static OF_ONESELF: LazyLock<RegexSet> =
    LazyLock::new(|| patterns(&[r"(?i)\b(my|mine|me|i)\b", r"我|咱", r"私|僕|俺|わたし|うち"]));
/// The questions that a fact answers, and the ones that need more than a fact.
static ASKS_A_FACT: LazyLock<RegexSet> = LazyLock::new(|| {
    patterns(&[
        r"(?i)^\W*(?:and |so |but |hey,? |do you (?:know|remember) )*(?:what|who|whose|where|when|which|how (?:old|many|much|long|tall))\b",
        r"什么|谁|哪|几|多少|何时",
        r"何|誰|どこ|いつ|どの|いくつ|なに",
    ])
});
static ASKS_MORE: LazyLock<RegexSet> = LazyLock::new(|| {
    patterns(&[
        r"(?i)\b(why|should|could|would|best|better|recommend|suggest|advice|explain|how (?:do|can|to)|if|plan)\b",
        r"为什么|怎么|应该|建议|推荐|如果",
        r"なぜ|どうして|べき|おすすめ|方法|もし",
    ])
});

fn patterns(patterns: &[&str]) -> RegexSet {
    RegexSet::new(patterns).unwrap_or_else(|error| unreachable!("{error}"))
}

/// Returns `true` if a message asks for a fact about its sender, and for nothing else.
fn asks_own_fact(message: &str) -> bool {
    let message = message.trim();
    let is_question = message.ends_with(['?', '？', '吗', '呢']) || message.trim_end_matches('。').ends_with('か');
    let is_one = knowledge::sentences(message).len() == 1;
    is_one
        && is_question
        && OF_ONESELF.is_match(message)
        && ASKS_A_FACT.is_match(message)
        && !ASKS_MORE.is_match(message)
}

/// Returns facts as quotations of the person, in the language of the question.
fn quoted(facts: &[Recalled], question: &str) -> String {
    let is_kana = |c: char| ('\u{3040}'..='\u{30ff}').contains(&c);
    let is_han = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    let lines = |open: &str, close: &str| {
        facts.iter().map(|fact| format!("{open}{}{close}", fact.statement)).collect::<Vec<_>>()
    };
    match () {
        () if question.contains(is_kana) => format!("{}とおっしゃっていました。", lines("「", "」").join("")),
        () if question.contains(is_han) => format!("你告诉过我：{}", lines("“", "”").join("")),
        () if facts.len() > 1 => format!("You told me:\n{}", lines("- ", "").join("\n")),
        () => format!("You told me: {}", lines("\"", "\"").join("")),
    }
}

/// An answer out of memory.
pub(crate) struct Quote {
    pub(crate) text: String,
    /// The ids of the facts.
    pub(crate) rests_on: Vec<Arc<str>>,
}

impl LifeformToolbox {
    /// Returns `true` if all messages to answer are settled by rule: they request only reminders, or only to forget
    /// something. The answer then needs no model.
    pub(super) fn is_settled_by_rule(&self, here: &ToolScope) -> bool {
        let mut asked = here.perception.said.iter().filter(|said| said.to_answer).peekable();
        let is_settled = |said: &PerceivedMessage| {
            self.asks_for_reminders_alone(here, said)
                || self.chosen_to_forget(here, said).is_some()
                || (said.change == Change::New
                    && forget_requests_by_rule(&said.content, here.perception.supply.tools).1)
        };
        asked.peek().is_some() && asked.all(is_settled)
    }

    /// Returns `true` if no model receives the messages: they are settled by rule or by memory.
    pub(super) async fn needs_no_model(&self, here: &ToolScope, origin: &Origin) -> Result<bool, ToolFailure> {
        Ok(self.is_settled_by_rule(here) || self.quote(here, origin).await?.is_some())
    }

    /// Returns `true` if memory alone settles the answer to a perception.
    pub(crate) async fn can_quote(&self, perception: &Perception, origin: &Origin) -> bool {
        let Some(canvas) = self.canvases.get(&perception.place.canvas) else { return false };
        let here = ToolScope { perception: perception.clone(), canvas };
        matches!(self.quote(&here, origin).await, Ok(Some(_)))
    }

    /// Returns the answer out of memory to a question of a person about its own facts, if memory is sure of it, and if
    /// tokens are scarce or the model retells facts badly.
    pub(super) async fn quote(&self, here: &ToolScope, origin: &Origin) -> Result<Option<Quote>, ToolFailure> {
        let Perception { supply, said, resumes, .. } = &here.perception;
        let mut asked = said.iter().filter(|said| said.to_answer);
        let (Some(said), None) = (asked.next(), asked.next()) else { return Ok(None) };
        let is_fit = (supply.small || supply.mode == Mode::Eco) && said.change == Change::New && resumes.is_none();
        if !is_fit || !here.canvas.kind.is(chat::NAME) {
            return Ok(None);
        }
        let people = self.readers_here(here);
        let readers = self.readers(&people);
        let facts = if asks_what_is_known(&said.content) {
            let told = self.memory.told_by(&said.sender, readers, origin).await.map_err(ToolFailure::passing)?;
            told.recalled
        } else {
            let besides = [said.message.clone()];
            let sure = self.sure_fact(&said.content, &said.sender, &besides, readers, origin).await;
            sure.map_err(ToolFailure::passing)?.into_iter().collect()
        };
        if facts.is_empty() {
            return Ok(None);
        }
        let rests_on = facts.iter().map(|fact| fact.id.as_str().into()).collect();
        Ok(Some(Quote { text: quoted(&facts, &said.content), rests_on }))
    }

    /// Returns the fact of which memory is sure that it answers a person's question about itself.
    async fn sure_fact(
        &self,
        question: &str,
        asks: &str,
        besides: &[Arc<str>],
        readers: Readers<'_>,
        origin: &Origin,
    ) -> Result<Option<Recalled>, NexusError> {
        if !asks_own_fact(question) {
            return Ok(None);
        }
        let asked = Question { asks, ..Question::of_words(question) };
        let mut found = self.memory.recall(asked, besides, readers, origin).await?.recalled.into_iter();
        let own = |fact: &Recalled| fact.person.as_deref() == Some(asks) && fact.share >= SURE_SHARE;
        let best = found.next().filter(own);
        let is_clear = |best: &Recalled| found.all(|other| other.share <= best.share * OTHER_SHARE);
        Ok(best.filter(is_clear))
    }

    /// Returns what the lifeform can add to another one's answer: the fact that settles the question, if all readers of
    /// the topic may know it and the answer says nothing of it.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn addition(
        &self,
        canvas: &Canvas,
        topic: &str,
        question: chat::MessageView<'_>,
        answer: &str,
        origin: &Origin,
    ) -> Result<Option<Quote>, NexusError> {
        let people: BTreeSet<String> = readers_of_topic(&canvas.snapshot().state, topic, &self.memory)
            .into_iter()
            .filter(|who| hears(who, &self.me))
            .collect();
        let besides = [question.id().into()];
        let (asked, asks) = (question.content(), question.sender());
        let Some(fact) = self.sure_fact(asked, asks, &besides, self.readers(&people), origin).await? else {
            return Ok(None);
        };
        let [asked_words, said, known] = [asked, answer, &fact.statement].map(knowledge::telling_words);
        let is_said = known.difference(&asked_words).any(|word| said.contains(word));
        let quote = Quote { text: quoted(std::slice::from_ref(&fact), asked), rests_on: vec![fact.id.as_str().into()] };
        Ok(Some(quote).filter(|_| !is_said))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_questions_for_own_facts_are_settled_by_memory() {
        for asks in [
            "What is my boat called?",
            "Where do I live?",
            "How old is my cat?",
            "我的猫叫什么？",
            "私の猫の名前は何ですか？",
        ] {
            assert!(asks_own_fact(asks), "{asks}");
        }
        for other in [
            "Which lock is best for my bike?",
            "Why is my boat slow?",
            "What is a boat?",
            "My boat is green.",
            "How do I fix my bike?",
            "What is my name? And what is the capital of France?",
            "我应该买什么？",
        ] {
            assert!(!asks_own_fact(other), "{other}");
        }
    }
}
