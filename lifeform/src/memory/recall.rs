//! Recall: the facts that answer a question, and all that a person stated, as far as their readers may know them.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use jiff::tz::TimeZone;
use knowledge::Dates;
use knowledge::rank::{self, rank};
use neurons::spec::tokens_about;
use nexus::kip::graph::text::terms;
use nexus::{NexusError, Provenance};
use regex::RegexSet;
use serde_json::{Value, json};
use store::{Origin, Principal, Role};

use super::notes::{Candidates, NOTE_TOKENS, Notes};
use super::stored::{found_by_words_alone, warns};
use super::{Memory, Place, STATED_IN, STATEMENTS_OF, Stated, StoredFact, are_of_one_subject, rows};
use crate::asking;

/// Finds facts that match the words of a question.
const RECALL: &str = r#"SEARCH CONCEPT $words WITH TYPE "Fact" MODE "keyword" LIMIT 48"#;

/// Finds facts that are near a question in meaning. Without an embedder, it finds none.
pub(super) const RECALL_BY_MEANING: &str =
    r#"SEARCH CONCEPT $words WITH TYPE "Fact" MODE "semantic" THRESHOLD 0.0 LIMIT 24"#;

/// Finds a fact by its id.
pub(super) const BY_ID: &str = r#"FIND(?f) WHERE { ?f {id: $fact} }"#;

/// Finds the facts whose latest statement is in a given message, whatever became of them.
const SAID_IN: &str = r#"
FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.attributes.message == $message && ?f.attributes.topic == $topic) }"#;

/// The maximum number of facts to which a question leads as a model read it, and which come before the others.
const LED_TO_MAX: usize = 6;

/// The number of words below which a question leans on the turn before.
const LEANS_BELOW: usize = 3;

/// Finds the person who stated a fact.
const STATED_BY: &str = r#"FIND(?p.name) WHERE { (?f {id: $fact}, "stated_by", ?p) } LIMIT 1"#;

/// The maximum number of facts that a question for all that is known returns, and of their tokens.
const ALL_MAX: usize = 60;
const ALL_TOKENS_MAX: usize = 1_500;

/// The questions of a person for all that is known about it.
static ASKS_ALL: LazyLock<RegexSet> = LazyLock::new(|| {
    let patterns = [
        r"(?i)\bwhat (all )?(do|did) you (know|remember|have|keep) (of|about|on) me\b",
        r"(?i)\bwhat (else )?have i told you\b",
        r"(?i)\b(tell me|list|show me) (everything|all|what) (that )?you (know|remember|have|keep) (of|about|on) me\b",
        r"你(还|都)?(知道|记得|了解)(关于)?我(的)?(什么|哪些|多少|些什么)",
        r"关于我你(还|都)?(知道|记得|了解)",
        r"私(のこと|について)(を|は|で)?(何|なに|どんなこと|どこまで|全部)?(を|が)?(知って|覚えて)",
    ];
    RegexSet::new(patterns).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns `true` if a message asks for all that is known about its sender.
pub(crate) fn asks_what_is_known(message: &str) -> bool {
    ASKS_ALL.is_match(message)
}

/// A recalled fact.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recalled {
    /// The id of the concept.
    pub(crate) id: String,
    /// The statement.
    pub(crate) statement: String,
    /// The person who stated the fact, if known.
    pub(crate) person: Option<String>,
    /// The time at which the fact was stated last, in UTC.
    pub(crate) stated_at: Option<store::Timestamp>,
    /// The dates that it names.
    pub(crate) dates: Dates,
    /// The place of the message that stated it last, if known.
    pub(crate) place: Option<Place>,
    /// The share of the question's word weight that it covers, from 0 to 1.
    pub(crate) share: f64,
    /// The further sources of the fact's words.
    pub(crate) sources: BTreeSet<String>,
}

/// A question to the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// The words.
    pub(crate) words: &'a str,
    /// The turn before, on which a short question leans.
    pub(crate) before: &'a str,
    /// The principal that asks, whose own facts come first.
    pub(crate) asks: &'a str,
    /// `true` to look for meaning too.
    pub(crate) by_meaning: bool,
    /// The question as a model read it; `None` for the reading of the rules.
    pub(crate) read: Option<&'a asking::Read>,
}

impl<'a> Question<'a> {
    /// Returns a question by words alone.
    pub(crate) fn of_words(words: &'a str) -> Self {
        Self { words, before: "", asks: "", by_meaning: false, read: None }
    }

    /// Returns the text to search for. A question with few words of its own ("And hers?") includes the turn before.
    fn text(&self) -> String {
        match terms(self.words).len() < LEANS_BELOW && !self.before.is_empty() {
            true => format!("{} {}", self.before, self.words),
            false => self.words.to_owned(),
        }
    }
}

/// The readers of a recall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readers<'a> {
    /// Their ids. If the set is empty, they are unknown.
    pub(crate) people: &'a BTreeSet<String>,
    /// `true` if the lifeform trusts each of them.
    pub(crate) are_trusted: bool,
}

/// The recalled facts, and the KIP commands that found them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Recollection {
    /// The facts, best first.
    pub(crate) recalled: Vec<Recalled>,
    /// The number of further facts, for which there was no room.
    pub(crate) left_off: usize,
    /// The number of facts that would answer, and that not all readers may know.
    pub(crate) withheld: usize,
    /// `true` if the question asks for people, or several facts answer it together: it needs the talk around them.
    pub(crate) needs_talk: bool,
    /// The answer of the graph, in a line.
    pub(crate) concluded: Option<String>,
    /// The commands with their parameters, as they were run.
    pub(crate) kip: Vec<Value>,
}

impl Memory {
    /// Returns the valid facts that answer a question where `readers` read, except the facts of the messages `besides`. A
    /// fact is recalled only if all readers belong to its audience, the people who could hear it when it was stated, and
    /// if each of them may see it. A fact that the lifeform wrote itself is recalled only among those whom it trusts.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn recall(
        &self,
        question: Question<'_>,
        besides: &[Arc<str>],
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Recollection, NexusError> {
        let begun = Instant::now();
        let mut notes = Notes::new(self, question, besides, readers, cause);
        let by_rule = || asking::path(question.words).as_ref().map(asking::Query::of);
        let read = question.read.filter(|read| read.is_whole).map(|read| read.query.clone());
        if let Some(query) = read.or_else(by_rule)
            && let Some(answer) = self.answer(&query, question.asks, readers, cause).await?
        {
            notes.conclude(answer.line(question.words), answer.kip, answer.evidence);
        } else if let Some(answer) = self.told_otherwise(question.words, question.asks, readers, cause).await? {
            notes.conclude(answer.otherwise(question.words), answer.kip, answer.evidence);
        }
        let (by_words, by_meaning) = self.search(question, &mut notes.found.kip, cause).await?;
        let near = if found_by_words_alone(&by_meaning) { &[] } else { rows(&by_meaning) };
        let mut candidates = Candidates::default();
        for hit in rows(&by_words) {
            candidates.of(hit, question.asks, |passage, fact| passage.words = fact.score());
        }
        for hit in near {
            candidates.of(hit, question.asks, |passage, fact| passage.meaning = Some(fact.score()));
        }
        let linked = match question.by_meaning && self.has_claims(cause).await? {
            true => {
                let read = question.read.map(|read| &read.query);
                self.about_those_in((question.words, read), question.asks, readers, cause).await?
            }
            false => Vec::new(),
        };
        for concept in &linked {
            candidates.of(concept, question.asks, |passage, _| passage.is_linked = true);
        }
        let words = question.text();
        let today = self.now().to_zoned(TimeZone::UTC).date();
        let asked = rank::Question { text: &words, today, is_read: !warns(&by_meaning, nexus::UNKNOWN_SCRIPT) };
        let order = rank(asked, &candidates.passages).order;
        // Where a model read the question, the graph leads to the right ones more surely than its words do.
        let is_led_to = |at: usize| question.read.is_some() && candidates.passages[at].is_linked;
        let first = order.iter().filter(|ranked| is_led_to(ranked.at)).take(LED_TO_MAX);
        for ranked in first.chain(&order) {
            notes.add(candidates.facts[ranked.at], &candidates.passages[ranked.at]).await?;
        }
        let (found, micros) = (notes.found, begun.elapsed().as_micros() as u64);
        tracing::debug!(micros, facts = found.recalled.len(), "recalled");
        Ok(found)
    }

    /// Searches the facts by words and, if the question wants it, by meaning. Adds the commands to `kip`.
    async fn search(
        &self,
        question: Question<'_>,
        kip: &mut Vec<Value>,
        cause: &Origin,
    ) -> Result<(Value, Value), NexusError> {
        let text = question.text();
        let mut run = async |command: &str| {
            let parameters = json!({"words": text});
            kip.push(json!({"command": command, "parameters": parameters}));
            self.run(command, parameters, cause).await
        };
        let by_words = run(RECALL).await?;
        let by_meaning = match question.by_meaning && !text.trim().is_empty() {
            true => run(RECALL_BY_MEANING).await?,
            false => Value::Null,
        };
        Ok((by_words, by_meaning))
    }

    /// Returns `true` if all readers may know a fact.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn is_known_to(
        &self,
        fact: StoredFact<'_>,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<bool, NexusError> {
        let principals = self.principals(readers);
        Ok(self.told(fact, readers, &principals, &mut Vec::new(), cause).await?.is_some())
    }

    /// Returns `true` for an operator, who reads the whole mind.
    pub(crate) fn reads_everything(&self, who: &str) -> bool {
        self.directory.principal(who).may(Role::Operator)
    }

    /// Returns the principals of the readers.
    pub(crate) fn principals(&self, readers: Readers<'_>) -> Vec<Principal> {
        readers.people.iter().map(|who| self.directory.principal(who)).collect()
    }

    /// Returns a fact as its readers may know it; `None` if they may not. `principals` are the readers.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn told(
        &self,
        fact: StoredFact<'_>,
        readers: Readers<'_>,
        principals: &[Principal],
        kip: &mut Vec<Value>,
        cause: &Origin,
    ) -> Result<Option<Recalled>, NexusError> {
        let Readers { people, are_trusted } = readers;
        let (id, Some(statement)) = (fact.id(), fact.statement()) else { return Ok(None) };
        let mut provenance = fact.provenance();
        let person = match fact.author() {
            None => {
                let parameters = json!({"fact": id});
                kip.push(json!({"command": STATED_BY, "parameters": parameters}));
                let stater = self.run(STATED_BY, parameters, cause).await?;
                let named = rows(&stater).first().and_then(Value::as_str).map(str::to_owned);
                // A command may write such a link, and nothing says which one did.
                if named.is_some() {
                    provenance.get_or_insert_with(Provenance::unknown);
                }
                named
            }
            Some(author) => Some(author.to_owned()),
        };
        // If the readers are unknown, only facts without an audience are recalled.
        let is_told = match &provenance {
            Some(provenance) => !people.is_empty() && people.iter().all(|who| provenance.is_for(who, are_trusted)),
            None => fact
                .audience(person.as_deref())
                .is_none_or(|audience| !people.is_empty() && people.is_subset(&audience)),
        };
        let is_for_all = fact.is_for_all();
        let is_told = is_told || is_for_all;
        // Of what the lifeform wrote down by a command, its provenance alone says who may know it.
        let is_by_command = provenance.is_some() && !fact.is_private() && fact.is_shown_to_lifeforms_alone();
        if !is_told || !(is_for_all || is_by_command || principals.iter().all(|who| fact.is_shown_to(who))) {
            return Ok(None);
        }
        Ok(Some(Recalled {
            id: id.into(),
            statement: statement.into(),
            person,
            stated_at: fact.stated_at(),
            dates: fact.dates(),
            place: fact.places().pop(),
            share: 0.0,
            sources: provenance.unwrap_or_default().sources,
        }))
    }

    /// Returns `true` if a fact is valid and all readers may know it.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn may_be_told(
        &self,
        fact: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<bool, NexusError> {
        let found = self.run(BY_ID, json!({"fact": fact}), cause).await?;
        let fact = rows(&found).first().map(StoredFact::of).filter(|fact| fact.holds_at(self.now()));
        match fact {
            Some(fact) => self.is_known_to(fact, readers, cause).await,
            None => Ok(false),
        }
    }

    /// Returns the valid facts of a message, as far as all readers may know them.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn told_in(
        &self,
        stated: Stated<'_>,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Vec<Recalled>, NexusError> {
        let found = self.run(STATED_IN, json!({"message": stated.message, "topic": stated.topic}), cause).await?;
        let (principals, mut told) = (self.principals(readers), Vec::new());
        let is_here = |fact: &StoredFact<'_>| fact.places().iter().any(|place| place.is_of(stated));
        for fact in rows(&found).iter().map(StoredFact::of).filter(|fact| fact.holds_at(self.now()) && is_here(fact)) {
            told.extend(self.told(fact, readers, &principals, &mut Vec::new(), cause).await?);
        }
        Ok(told)
    }

    /// Returns `true` if all facts that a message stated last hold, and all readers may know them.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn is_all_told(
        &self,
        stated: Stated<'_>,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<bool, NexusError> {
        let found = self.run(SAID_IN, json!({"message": stated.message, "topic": stated.topic}), cause).await?;
        let is_here = |fact: &StoredFact<'_>| fact.places().iter().any(|place| place.is_of(stated));
        for fact in rows(&found).iter().map(StoredFact::of).filter(is_here) {
            if !fact.holds_at(self.now()) || !self.is_known_to(fact, readers, cause).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the valid statements of a person that begin like another one, as far as all readers may know them.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn begins_like(
        &self,
        statement: &str,
        person: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Vec<Recalled>, NexusError> {
        let stated = self.run(STATEMENTS_OF, json!({"person": person}), cause).await?;
        let (principals, mut alike) = (self.principals(readers), Vec::new());
        for fact in rows(&stated).iter().map(StoredFact::of).filter(|fact| fact.holds_at(self.now())) {
            let begins_so = fact.statement().is_some_and(|known| are_of_one_subject(known, statement));
            if begins_so && let Some(known) = self.told(fact, readers, &principals, &mut Vec::new(), cause).await? {
                alike.push(known);
            }
        }
        Ok(alike)
    }

    /// Returns the valid statements of a person that all readers may know, newest first.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn told_by(
        &self,
        person: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Recollection, NexusError> {
        let parameters = json!({"person": person});
        let mut found = Recollection::default();
        found.kip.push(json!({"command": STATEMENTS_OF, "parameters": parameters}));
        let stated = self.run(STATEMENTS_OF, parameters, cause).await?;
        let mut facts: Vec<StoredFact<'_>> = rows(&stated).iter().map(StoredFact::of).collect();
        facts.sort_by_key(|fact| std::cmp::Reverse(fact.stated_at()));
        let (principals, mut tokens) = (self.principals(readers), 0);
        for fact in facts.into_iter().filter(|fact| fact.holds_at(self.now())) {
            let Some(recalled) = self.told(fact, readers, &principals, &mut found.kip, cause).await? else { continue };
            tokens += tokens_about(&recalled.statement) + NOTE_TOKENS;
            if found.recalled.len() == ALL_MAX || tokens > ALL_TOKENS_MAX {
                found.left_off += 1;
            } else {
                found.recalled.push(recalled);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_all_that_is_known_is_recognised() {
        for asks in [
            "What do you know about me?",
            "So, what have I told you?",
            "Tell me everything you remember about me.",
            "你知道我的什么？",
            "关于我你记得什么？",
            "私について何を知っていますか？",
            "私のことを覚えていますか",
        ] {
            assert!(asks_what_is_known(asks), "{asks}");
        }
        for other in ["What do you know about boats?", "Tell me about me and my cat", "你知道几点吗？"] {
            assert!(!asks_what_is_known(other), "{other}");
        }
    }
}
