//! The things that an agenda remembers besides goals and schedules: own thoughts, removed reminders, and the texts that people
//! asked to forget.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Agenda;

/// A text of a message that prompts leave out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForgottenText {
    /// The reference of the message: `{lifeform}/{canvas}/{topic}/{message}`.
    pub(crate) message: Arc<str>,
    /// The time of the request.
    #[serde(default)]
    pub(crate) at: Timestamp,
    /// The person who asked.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub(crate) by: Arc<str>,
    /// The hash of the sentence; `None` for the whole message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sentence: Option<String>,
}

/// The maximum number of own thoughts that the agenda remembers, and the time between two of them about one person.
const THOUGHTS_MAX: usize = 256;
const THOUGHTS_EVERY: SignedDuration = SignedDuration::from_hours(20);

/// The maximum number of looks at earlier answers a day.
const LOOKS_A_DAY: usize = 24;

/// The maximum number of texts that prompts leave out, in all and for one person.
const FORGOTTEN_MAX: usize = 20_000;
const FORGOTTEN_OF_ONE_MAX: usize = 2_000;

/// The maximum number of removal requests that the agenda remembers.
const TAKEN_OFF_MAX: usize = 32;

impl Agenda {
    /// Returns the reminders that a request has already removed, in words.
    pub(crate) fn taken_off(&self, asked: &str) -> Option<Vec<String>> {
        self.taken_off.iter().find(|(known, _)| **known == *asked).map(|(_, taken)| taken.clone())
    }

    /// Records the reminders that a request has removed.
    pub(crate) fn note_taken_off(&mut self, asked: Arc<str>, taken: Vec<String>) {
        self.taken_off.push((asked, taken));
        self.taken_off.drain(..self.taken_off.len().saturating_sub(TAKEN_OFF_MAX));
    }

    /// Returns `true` if a model may be asked whether something new adds to an earlier answer: it was not asked the same within
    /// the last looks, and not too often today.
    pub(crate) fn may_look(&self, look: &str, now: Timestamp) -> bool {
        let today = self.looks.iter().filter(|(at, _)| now.duration_since(*at) < SignedDuration::from_hours(24));
        today.count() < LOOKS_A_DAY && self.looks.iter().all(|(_, known)| **known != *look)
    }

    /// Records looks at earlier answers.
    pub(crate) fn looked(&mut self, looks: &[Arc<str>], now: Timestamp) {
        self.looks.extend(looks.iter().map(|look| (now, look.clone())));
        self.looks.drain(..self.looks.len().saturating_sub(2 * LOOKS_A_DAY));
    }

    /// Records something in the place of what was recorded under the same name; an empty list removes it.
    pub(crate) fn replace_taken_off(&mut self, asked: &Arc<str>, taken: Vec<String>) {
        self.taken_off.retain(|(known, _)| known != asked);
        if !taken.is_empty() {
            self.note_taken_off(asked.clone(), taken);
        }
    }

    /// Returns `true` if the lifeform may think of a fact of a person by itself: it has not before, and of nothing else
    /// of this person today.
    pub(crate) fn may_think_of(&self, person: &str, fact: &str, now: Timestamp) -> bool {
        !self
            .thoughts
            .iter()
            .any(|(at, who, known)| **known == *fact || (**who == *person && now.duration_since(*at) < THOUGHTS_EVERY))
    }

    /// Records an own thought.
    pub(crate) fn thought_of(&mut self, person: &Arc<str>, fact: &str, now: Timestamp) {
        self.thoughts.push((now, person.clone(), fact.into()));
        self.thoughts.drain(..self.thoughts.len().saturating_sub(THOUGHTS_MAX));
    }

    /// Returns the texts of a message that prompts leave out.
    pub(crate) fn forgotten_in<'a>(&'a self, message: &'a str) -> impl Iterator<Item = &'a ForgottenText> {
        self.forgotten.iter().filter(move |text| *text.message == *message)
    }

    /// Returns `true` if prompts leave out any text.
    pub(crate) fn has_forgotten(&self) -> bool {
        !self.forgotten.is_empty()
    }

    /// Records texts that prompts leave out from now on. The oldest ones of a person with too many make room, and no others.
    pub(crate) fn leave_out(&mut self, texts: Vec<ForgottenText>) {
        let is_known = |text: &ForgottenText| {
            self.forgotten.iter().any(|known| known.message == text.message && known.sentence == text.sentence)
        };
        let new: Vec<ForgottenText> = texts.into_iter().filter(|text| !is_known(text)).collect();
        let people: BTreeSet<Arc<str>> = new.iter().map(|text| text.by.clone()).collect();
        self.forgotten.extend(new);
        for who in people {
            let count = self.forgotten.iter().filter(|text| text.by == who).count();
            let mut over = count.saturating_sub(FORGOTTEN_OF_ONE_MAX);
            self.forgotten.retain(|text| {
                let goes = over > 0 && text.by == who;
                over -= usize::from(goes);
                !goes
            });
        }
        self.forgotten.drain(..self.forgotten.len().saturating_sub(FORGOTTEN_MAX));
    }
}
