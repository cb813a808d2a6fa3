//! The notes of a recall: the facts that answer a question and that all readers may know, within the room of a prompt.

use std::sync::{Arc, LazyLock};

use knowledge::rank::Passage;
use neurons::spec::tokens_about;
use nexus::NexusError;
use regex::RegexSet;
use serde_json::Value;
use store::{Origin, Principal};

use super::recall::{Question, Readers, Recalled, Recollection};
use super::{FoundBy, Memory, StoredFact};
use crate::asking;

/// The maximum number of facts that one recall by words returns.
const RECALLED_MAX: usize = 4;
/// The maximum number of facts that a recall by words and meaning returns, and of their tokens.
const NOTES_MAX: usize = 12;
const TOKENS_MAX: usize = 300;
/// The same for a question that several facts answer together.
const LISTED_MAX: usize = 30;
const LISTED_TOKENS_MAX: usize = 600;
/// The maximum number of facts that bear out an answer of the graph.
const EVIDENCE_MAX: usize = 24;
/// The tokens of a note besides its statement: its teller and its date.
pub(super) const NOTE_TOKENS: usize = 12;
/// The minimum share of the question's word weight that a recalled fact must cover, and the minimum similarity of meaning of one
/// that covers less.
const RELEVANCE_FLOOR: f64 = 0.18;
const NEARNESS_FLOOR: f64 = 0.12;

/// The questions that ask for more than one.
static ASKS_FOR_MANY: LazyLock<RegexSet> = LazyLock::new(|| {
    let patterns = [
        r"(?i)\b(how many|which of|who all|who else|list|all of|all the|everyone|everybody)\b",
        r"(?i)\b(who|what) are\b",
        r"(?i)\b(names of|are my .* called)\b",
        r"几|多少|哪些|都有|都是|都叫|谁和谁|全部|所有",
        r"何人|何匹|いくつ|誰と誰|全部|みんな|それぞれ|全員",
    ];
    RegexSet::new(patterns).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns `true` if several facts answer a question together: it asks for many, or over a relation between people.
fn needs_several(question: &str) -> bool {
    let goes_over_people = |path: &asking::Path| path.hops.iter().any(|hop| hop.predicate != "owns");
    ASKS_FOR_MANY.is_match(question) || asking::mentioned(question).iter().any(goes_over_people)
}

/// The facts that may answer a question, each once, with what the ranking reads of them.
#[derive(Default)]
pub(super) struct Candidates<'f> {
    pub(super) facts: Vec<StoredFact<'f>>,
    pub(super) passages: Vec<Passage<'f>>,
}

impl<'f> Candidates<'f> {
    /// Adds a fact, if it is new and has a statement, and notes a sign of it.
    pub(super) fn of(&mut self, hit: &'f Value, asks: &str, note: impl FnOnce(&mut Passage<'f>, StoredFact<'f>)) {
        let fact = StoredFact::of(hit);
        // What the lifeform found out is a record, too, which is recalled by its words; what a tool found is not.
        let is_record = matches!(fact.found_by(), Some(FoundBy::Research | FoundBy::Goal));
        let Some(text) = fact.statement().filter(|_| !is_record) else { return };
        let at = self.facts.iter().position(|known| known.id() == fact.id()).unwrap_or_else(|| {
            let is_own = !asks.is_empty() && fact.author() == Some(asks);
            // When a fact was stated says little, but the days that it names do.
            let days = fact.dates().days().into_iter().flatten().collect();
            self.passages.push(Passage { text, days, is_own, ..Passage::default() });
            self.facts.push(fact);
            self.facts.len() - 1
        });
        note(&mut self.passages[at], fact);
    }
}

/// The notes as they are collected.
pub(super) struct Notes<'r> {
    pub(super) found: Recollection,
    memory: &'r Memory,
    besides: &'r [Arc<str>],
    readers: Readers<'r>,
    principals: Vec<Principal>,
    cause: &'r Origin,
    most: usize,
    tokens_max: usize,
    tokens: usize,
    /// The messages of the notes, with their statements.
    said: Vec<(Option<String>, String)>,
}

impl<'r> Notes<'r> {
    pub(super) fn new(
        memory: &'r Memory,
        question: Question<'r>,
        besides: &'r [Arc<str>],
        readers: Readers<'r>,
        cause: &'r Origin,
    ) -> Self {
        let is_of_several = question.by_meaning && (question.read.is_some() || needs_several(question.words));
        let (most, tokens_max) = match question.by_meaning {
            true if is_of_several => (LISTED_MAX, LISTED_TOKENS_MAX),
            true => (NOTES_MAX, TOKENS_MAX),
            false => (RECALLED_MAX, TOKENS_MAX),
        };
        let is_of_people = || is_of_several || asking::asks_for_people(question.words);
        let needs_talk = question.by_meaning && asking::is_question(question.words) && is_of_people();
        let found = Recollection { needs_talk, ..Recollection::default() };
        let (principals, said) = (memory.principals(readers), Vec::new());
        Self { found, memory, besides, readers, principals, cause, most, tokens_max, tokens: 0, said }
    }

    /// Notes the answer of the graph and its evidence.
    pub(super) fn conclude(&mut self, line: String, kip: Vec<Value>, evidence: Vec<Recalled>) {
        self.tokens += tokens_about(&line);
        self.found.concluded = Some(line);
        self.found.kip.extend(kip);
        for fact in evidence.into_iter().take(EVIDENCE_MAX) {
            self.tokens += tokens_about(&fact.statement) + NOTE_TOKENS;
            if self.tokens > self.tokens_max && !self.found.recalled.is_empty() {
                break;
            }
            // It answers the question whole.
            self.found.recalled.push(Recalled { share: 1.0, ..fact });
        }
        self.most = self.most.max(self.found.recalled.len());
    }

    fn is_full(&self) -> bool {
        self.found.recalled.len() >= self.most || self.tokens >= self.tokens_max
    }

    /// Adds a fact, if it answers, there is room for it, and all readers may know it.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn add(&mut self, fact: StoredFact<'_>, passage: &Passage<'_>) -> Result<(), NexusError> {
        if self.is_full() {
            return Ok(());
        }
        let statement = passage.text;
        let is_beside = fact.message().is_some_and(|stated| self.besides.iter().any(|id| **id == *stated));
        let is_near =
            passage.words >= RELEVANCE_FLOOR || passage.meaning.is_some_and(|meaning| meaning >= NEARNESS_FLOOR);
        let is_known = self.found.recalled.iter().any(|known| known.id == fact.id());
        if !fact.holds_at(self.memory.now()) || is_beside || is_known || !(passage.is_linked || is_near) {
            return Ok(());
        }
        let told = self.memory.told(fact, self.readers, &self.principals, &mut self.found.kip, self.cause).await?;
        let Some(recalled) = told else {
            // Only what one of those present said: a hint of what others said would tell whether they did.
            let is_own = fact.author().is_some_and(|who| self.readers.people.contains(who));
            self.found.withheld += usize::from(is_near && is_own);
            return Ok(());
        };
        // A rule and a model keep the same in words of their own.
        let message = fact.message();
        let says_it = |(of, known): &(Option<String>, String)| {
            message.is_some() && of.as_deref() == message && knowledge::words_the_same(known, statement)
        };
        if self.said.iter().any(says_it) {
            return Ok(());
        }
        self.said.push((message.map(str::to_owned), statement.to_owned()));
        let tokens = tokens_about(statement) + NOTE_TOKENS;
        // A shorter one may still fit.
        if self.tokens + tokens <= self.tokens_max || self.found.recalled.is_empty() {
            self.tokens += tokens;
            self.found.recalled.push(Recalled { share: passage.words, ..recalled });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_counts_and_chains_need_several_facts() {
        for question in [
            "How many of my friends live in Lisbon?",
            "Where does my brother's wife work?",
            "What are my pets called?",
            "我的兄弟姐妹都叫什么名字？",
            "山登りをする人は何人いる？",
        ] {
            assert!(needs_several(question), "{question}");
        }
        for question in ["What is my boat called?", "When is the exam?", "小兰住在哪里？"] {
            assert!(!needs_several(question), "{question}");
        }
    }
}
