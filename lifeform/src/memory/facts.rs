//! Facts that a message states.

use std::collections::BTreeSet;
use std::sync::Arc;

use nexus::kip::graph::text::terms;
use serde_json::Value;

use super::{FACTS_MAX, STATEMENT_CHARS_MAX};

/// Something worth keeping.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    /// The words it was said in.
    pub(crate) statement: Arc<str>,
    /// The subject.
    pub(crate) subject: Arc<str>,
}

/// The facts in a message: its declarative sentences as they stand, with the subjects that a model read
/// in them, and what else a model read as far as the message bears it out. A model's word alone is never
/// kept: a reading that uses other words than the message is passed over.
pub(crate) fn facts(message: &str, read: &Value) -> Vec<Fact> {
    let words_of = |text: &str| terms(text).into_iter().collect::<BTreeSet<Arc<str>>>();
    let said = words_of(message);
    let mut kept: Vec<Fact> = statements(message)
        .into_iter()
        .map(|sentence| Fact { subject: sentence.as_str().into(), statement: sentence.into() })
        .collect();
    for fact in read["facts"].as_array().into_iter().flatten() {
        let statement = fact["statement"].as_str().unwrap_or_default().trim();
        let subject = fact["subject"].as_str().unwrap_or_default().trim();
        let (words, about) = (words_of(statement), words_of(subject));
        let borne_out = words.len() >= 2 && words.is_subset(&said) && !about.is_empty() && about.is_subset(&said);
        if !borne_out || statement.chars().count() > STATEMENT_CHARS_MAX {
            continue;
        }
        match kept.iter_mut().find(|known| words.is_subset(&words_of(&known.statement))) {
            Some(known) => known.subject = subject.into(),
            None => kept.push(Fact { statement: statement.into(), subject: subject.into() }),
        }
    }
    // A confided statement is kept nowhere.
    kept.retain(|fact| !knowledge::is_confided(&fact.statement));
    kept.truncate(FACTS_MAX);
    kept
}

/// The declarative sentences of a message: neither questions, nor greetings, nor commands to answer.
pub(crate) fn statements(message: &str) -> Vec<String> {
    knowledge::sentences(message).into_iter().filter(|sentence| is_statement(sentence)).collect()
}

/// Returns `true` if two statements have the same beginning and different ends, so that one may have replaced the
/// other: "My cat is called Miso" and "My cat is called Tofu". A small model would find contradictions anywhere.
pub(crate) fn are_of_one_subject(one: &str, other: &str) -> bool {
    let (one, other) = (words_in_order(one), words_in_order(other));
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let shorter = one.len().min(other.len());
    one != other && shorter > 0 && 3 * same >= 2 * shorter
}

/// Words as they stand, in lower case; a character of a script without spaces is one.
pub(super) fn words_in_order(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for c in text.chars() {
        let is_alone = !c.is_ascii() && c.is_alphabetic() && !c.is_lowercase() && !c.is_uppercase();
        match (c.is_alphanumeric(), is_alone, is_open, words.last_mut()) {
            (true, false, true, Some(last)) => last.extend(c.to_lowercase()),
            (true, ..) => words.push(c.to_lowercase().collect()),
            _ => {}
        }
        is_open = c.is_alphanumeric() && !is_alone;
    }
    words
}

/// Words at the beginning of questions and orders.
pub(super) const ASKING: [&str; 30] = [
    "what", "who", "whose", "whom", "where", "when", "why", "how", "which", "do", "does", "did", "is", "are", "was",
    "were", "can", "could", "will", "would", "should", "please", "tell", "hello", "hi", "hey", "thanks", "thank", "ok",
    "okay",
];

pub(super) fn is_statement(sentence: &str) -> bool {
    let count = sentence.chars().count();
    let asks = sentence.ends_with(['?', '？']) || sentence.trim_end_matches(['。', '.']).ends_with(['吗', '呢', 'か']);
    let first =
        sentence.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default().to_lowercase();
    (6..=STATEMENT_CHARS_MAX).contains(&count)
        && !asks
        && !crate::reminders::is_request(sentence)
        && !ASKING.contains(&first.as_str())
        && terms(sentence).len() >= 3
}
