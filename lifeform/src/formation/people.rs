//! The description of a person by a model, made of the person's own statements. The lifeform tells it to that person alone. A description
//! ends as soon as one of its statements ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use nexus::NexusError;
use nexus::kip::graph::text::terms;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Origin, Timestamp};

use super::describing::borne_out;
use super::writing::{ACTIVE, FACT, author_of};
use crate::memory::{Interactions, Memory, StoredFact, rows};

/// The maximum number of statements of a mind that are read for a person to describe.
const READ_MAX: usize = 5_000;
/// The minimum number of statements by which a person is described, of later ones by which it is described again, and the maximum number
/// that a model is shown.
const STATEMENTS_MIN: usize = 15;
const LATER_MIN: usize = 8;
const STATEMENTS_MAX: usize = 24;
/// The maximum length of a statement that is shown, in characters.
const STATEMENT_CHARS: usize = 200;
/// The lengths of the parts of a description, in characters, and the maximum number of capabilities.
const SUMMARY_CHARS: RangeInclusive<usize> = 8..=200;
const CHARACTER_CHARS: RangeInclusive<usize> = 8..=100;
const CAPABILITY_CHARS: RangeInclusive<usize> = 2..=30;
const CAPABILITIES_MAX: usize = 4;
/// The minimum number of statements that show the character of a person.
const SHOW_CHARACTER_MIN: usize = 2;

/// Finds the persons with the summaries of their talks.
const PERSONS: &str = r#"FIND(?p.id, ?p.attributes.interaction_summary) WHERE { ?p {type: "Person"} FILTER(IS_NOT_NULL(?p.attributes.interaction_summary)) } LIMIT 5000"#;
const PERSON: &str = r#"FIND(?p.id, ?p.attributes.interaction_summary) WHERE { ?p {type: "Person", name: $person} }"#;
const WRITE: &str = r#"UPDATE ?p SET ATTRIBUTES { interaction_summary: $summary } WHERE { ?p {id: $person} }"#;

/// The description of a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PersonDescription {
    /// A sentence on what matters to the person.
    pub(crate) summary: String,
    /// The character, in a few words.
    pub(crate) character: String,
    /// The capabilities.
    pub(crate) capabilities: Vec<String>,
    /// The relationship to the lifeform, in a few words.
    pub(crate) relationship: String,
    /// The ids of the statements that the model was shown, and the time of the newest.
    from: Vec<String>,
    until: Option<Timestamp>,
}

/// A description that may be told, with the ids and the words of the statements on which it rests.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Described {
    /// The text.
    pub(crate) text: String,
    /// The statements.
    pub(crate) statements: Vec<(String, String)>,
}

/// A person as a model is shown it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Person {
    /// The id of the principal.
    pub(crate) id: String,
    /// The ids, the times and the words of its statements, the newest first.
    pub(crate) statements: Vec<(String, Option<Timestamp>, String)>,
}

/// The answer of a model; a part of another form spoils no other.
#[derive(Clone, Debug, Default, Deserialize)]
struct WrittenPerson {
    parts: Vec<Value>,
}

/// A part of a description, with the numbers of the statements that bear it out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DescribedPart {
    part: String,
    text: String,
    of: Vec<i64>,
}

impl PersonDescription {
    /// Returns the description in one text; empty if it has no part.
    pub(crate) fn text(&self) -> String {
        let abilities = self.capabilities.join(", ");
        let parts = [&self.summary, &self.character, &abilities, &self.relationship];
        let parts = parts.into_iter().filter(|part| !part.is_empty()).map(|part| part.trim_end_matches(['.', '。']));
        parts.collect::<Vec<_>>().join("; ")
    }

    /// Returns the names of its parts.
    pub(crate) fn parts(&self) -> Vec<&'static str> {
        let is_there = [
            ("summary", !self.summary.is_empty()),
            ("character", !self.character.is_empty()),
            ("capabilities", !self.capabilities.is_empty()),
            ("relationship", !self.relationship.is_empty()),
        ];
        is_there.into_iter().filter(|(_, is_there)| *is_there).map(|(part, _)| part).collect()
    }

    /// Returns the parts of a model's answer that the statements bear out, which are numbered from 1.
    fn of(written: &WrittenPerson, person: &str, statements: &[String]) -> Self {
        let mut described = Self::default();
        let parts = written.parts.iter().filter_map(|part| DescribedPart::deserialize(part).ok());
        for DescribedPart { part, text, of } in parts {
            let of: BTreeSet<usize> = of.iter().filter_map(|n| usize::try_from(n.saturating_sub(1)).ok()).collect();
            let shown: Vec<&str> = of.into_iter().filter_map(|at| statements.get(at).map(String::as_str)).collect();
            let (lengths, least) = match &*part {
                "summary" => (SUMMARY_CHARS, 1),
                "character" => (CHARACTER_CHARS, SHOW_CHARACTER_MIN),
                "capability" => (CAPABILITY_CHARS, 1),
                "relationship" => (CHARACTER_CHARS, 1),
                _ => continue,
            };
            if shown.len() < least {
                continue;
            }
            let shown = shown.join("\n");
            let Some(text) =
                borne_out(&text, lengths, person, &shown).filter(|text| !names_another(text, person, &shown))
            else {
                continue;
            };
            match &*part {
                "summary" => described.summary = text,
                "character" => described.character = text,
                "relationship" => described.relationship = text,
                _ if described.capabilities.len() < CAPABILITIES_MAX => described.capabilities.push(text),
                _ => {}
            }
        }
        described
    }
}

/// Returns `true` if a text begins with a name that is neither the person's nor in the statements. The first word of a text has a capital
/// letter in any case. So it counts as a name only if the statements have no form of it and it is no common first word.
fn names_another(text: &str, person: &str, statements: &str) -> bool {
    const BEGIN: [&str; 22] = [
        "a",
        "an",
        "the",
        "she",
        "he",
        "they",
        "is",
        "has",
        "wants",
        "likes",
        "prefers",
        "asks",
        "decides",
        "lives",
        "works",
        "brief",
        "short",
        "plain",
        "busy",
        "currently",
        "now",
        "keeps",
    ];
    let first = text.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default();
    let is_known = |words: &str| {
        let known = terms(words);
        terms(first).iter().any(|term| known.contains(term))
    };
    let is_capital = first.chars().next().is_some_and(char::is_uppercase);
    is_capital && !BEGIN.contains(&&*first.to_lowercase()) && !is_known(person) && !is_known(statements)
}

/// Returns `true` if a person waits for a description: it has none, or said more since.
fn waits(described: Option<&PersonDescription>, stated: &[Option<Timestamp>]) -> bool {
    match described {
        None => stated.len() >= STATEMENTS_MIN,
        Some(described) => stated.iter().filter(|at| **at > described.until).count() >= LATER_MIN,
    }
}

impl Memory {
    /// Returns a person whom a model may describe: one of fifteen statements or more that has no description, or that made eight
    /// since.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn person_to_describe(&self, cause: &Origin) -> Result<Option<Person>, NexusError> {
        let found = self.ask(ACTIVE, json!({"limit": READ_MAX}), cause).await?;
        let mut by_person: BTreeMap<&str, Vec<StoredFact<'_>>> = BTreeMap::new();
        for fact in rows(&found).iter().map(StoredFact::of).filter(|fact| fact.holds_at(self.now())) {
            if let Some(author) =
                author_of(fact).filter(|author| !author.starts_with("lifeform:") && fact.found_by().is_none())
            {
                by_person.entry(author).or_default().push(fact);
            }
        }
        let mut persons: Vec<(&str, Vec<StoredFact<'_>>)> =
            by_person.into_iter().filter(|(_, facts)| facts.len() >= STATEMENTS_MIN).collect();
        // Another person is the first each day, so that one whose call always fails keeps nobody back.
        let day = self.now().as_second() / 86_400;
        let count = persons.len().max(1);
        persons.rotate_left(usize::try_from(day).unwrap_or_default() % count);
        for (person, mut facts) in persons {
            facts.sort_by_key(|fact| std::cmp::Reverse(fact.stated_at()));
            let found = self.ask(PERSON, json!({"person": person}), cause).await?;
            let Some(row) = rows(&found).first() else { continue };
            let known = Interactions::deserialize(&row[1]).unwrap_or_default();
            let stated: Vec<Option<Timestamp>> = facts.iter().map(|fact| fact.stated_at()).collect();
            if !waits(known.described.as_ref(), &stated) {
                continue;
            }
            let of = |fact: StoredFact<'_>| {
                let words = fact.statement()?.chars().take(STATEMENT_CHARS).collect();
                Some((fact.id().to_owned(), fact.stated_at(), words))
            };
            let statements = facts.into_iter().take(STATEMENTS_MAX).filter_map(of).collect();
            return Ok(Some(Person { id: person.to_owned(), statements }));
        }
        Ok(None)
    }

    /// Writes what a model wrote of a person that it was shown under a name, as far as the statements bear it out. If one of them ended meanwhile,
    /// nothing is written. Returns the description; `None` without one.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn describe_person(
        &self,
        (person, name): (&str, &str),
        facts: &[String],
        answer: &Value,
        cause: &Origin,
    ) -> Result<Option<PersonDescription>, NexusError> {
        // A call that failed, or whose answer has no parts, is made again in another night.
        let Ok(written) = WrittenPerson::deserialize(answer) else { return Ok(None) };
        let _turn = self.take_turn().await;
        let (mut statements, mut until) = (Vec::new(), None);
        for fact in facts {
            let Some((words, at)) = self.stands(fact, cause).await? else { return Ok(None) };
            until = until.max(at);
            statements.push(words);
        }
        let found = self.ask(PERSON, json!({"person": person}), cause).await?;
        let Some(row) = rows(&found).first().filter(|_| !facts.is_empty()) else { return Ok(None) };
        let mut described =
            PersonDescription { from: facts.to_vec(), until, ..PersonDescription::of(&written, name, &statements) };
        // One without a part takes none away, and is kept, too: the model would write the same again, and each call is paid.
        let before = Interactions::deserialize(&row[1]).unwrap_or_default().described.unwrap_or_default();
        if described.parts().is_empty() && !before.parts().is_empty() {
            described = PersonDescription { until, ..before };
        }
        self.write_description((&row[0], &row[1]), &described, cause).await?;
        Ok(Some(described))
    }

    /// Returns the description of a person with the ids and the words of its statements, if all of them hold.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn description_of(&self, person: &str, cause: &Origin) -> Result<Option<Described>, NexusError> {
        let found = self.ask(PERSON, json!({"person": person}), cause).await?;
        let known = rows(&found).first().and_then(|row| Interactions::deserialize(&row[1]).ok());
        let Some(description) = known.and_then(|known| known.described) else { return Ok(None) };
        let mut statements = Vec::new();
        for fact in &description.from {
            let Some((words, _)) = self.stands(fact, cause).await? else { return Ok(None) };
            statements.push((fact.clone(), words));
        }
        let text = description.text();
        Ok((!text.is_empty()).then_some(Described { text, statements }))
    }

    /// Ends the descriptions that tell of one of the facts, or without facts those of which a statement has ended. The person is described
    /// again after further statements. The caller has the turn.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn end_descriptions(&self, facts: Option<&[&str]>, cause: &Origin) -> Result<(), NexusError> {
        let found = self.ask(PERSONS, json!({}), cause).await?;
        for row in rows(&found) {
            let known = Interactions::deserialize(&row[1]).unwrap_or_default();
            let Some(described) = known.described else { continue };
            let mut is_over = false;
            for fact in &described.from {
                is_over |= match facts {
                    Some(facts) => facts.contains(&fact.as_str()),
                    None => self.stands(fact, cause).await?.is_none(),
                };
            }
            if is_over {
                let ended = PersonDescription { until: described.until, ..PersonDescription::default() };
                self.write_description((&row[0], &row[1]), &ended, cause).await?;
            }
        }
        Ok(())
    }

    /// Returns the words and the time of a statement that holds.
    async fn stands(&self, fact: &str, cause: &Origin) -> Result<Option<(String, Option<Timestamp>)>, NexusError> {
        let found = self.ask(FACT, json!({"fact": fact}), cause).await?;
        let fact = rows(&found).first().map(StoredFact::of).filter(|fact| fact.holds_at(self.now()));
        Ok(fact.and_then(|fact| Some((fact.statement()?.to_owned(), fact.stated_at()))))
    }

    async fn write_description(
        &self,
        (person, summary): (&Value, &Value),
        described: &PersonDescription,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let mut summary = summary.clone();
        summary["described"] = json!(described);
        self.run_checked(WRITE, json!({"person": person, "summary": summary}), cause).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_described_as_far_as_statements_show_it() {
        let statements = ["I am restoring a boat in Husum.", "Keep it short, please.", "I decide slowly and on paper."];
        let statements: Vec<String> = statements.into_iter().map(str::to_owned).collect();
        let of = |part: &str, text: &str, of: &[i64]| {
            let part = json!({"part": part, "text": text, "of": of});
            PersonDescription::of(&WrittenPerson { parts: vec![json!(7), part] }, "Ada Berg", &statements)
        };
        assert_eq!(of("summary", "Ada restores a boat in Husum.", &[1]).summary, "Ada restores a boat in Husum.");
        assert_eq!(
            of("summary", "Ada restores a boat in Husum.", &[2]),
            PersonDescription::default(),
            "of another statement"
        );
        assert_eq!(
            of("summary", "Ada restores a boat in Kiel.", &[1]),
            PersonDescription::default(),
            "a name of its own"
        );
        assert_eq!(of("summary", "Ada restores a boat.", &[]), PersonDescription::default(), "borne out by none");
        assert_eq!(
            of("character", "likes short answers", &[2]),
            PersonDescription::default(),
            "one statement shows no character"
        );
        assert_eq!(of("character", "likes short answers", &[2, 3]).character, "likes short answers");
        assert_eq!(of("character", "likes short answers", &[2, 2]), PersonDescription::default());
        assert_eq!(of("capability", "restores boats", &[1, 9, 0, -4, i64::MIN]).capabilities, ["restores boats"]);
        assert_eq!(of("mood", "restores boats", &[1]), PersonDescription::default());
        assert_eq!(of("summary", "Mallory restores a boat.", &[1]), PersonDescription::default(), "another name first");
        assert_eq!(of("summary", "Restores a boat in Husum.", &[1]).summary, "Restores a boat in Husum.");
        assert_eq!(of("summary", "Berg restores a boat \u{202e}now", &[1]), PersonDescription::default());
        assert_eq!(of("summary", "See https://evil.example/x", &[1]), PersonDescription::default());
        let both = PersonDescription {
            summary: "Restores a boat.".into(),
            relationship: "asks for plans".into(),
            ..of("", "", &[])
        };
        assert_eq!(both.text(), "Restores a boat; asks for plans");
        assert_eq!(both.parts(), ["summary", "relationship"]);
    }

    #[test]
    fn a_person_waits_until_it_has_said_enough() {
        let at = |day: i64| Some(Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * day));
        let days = |count: i64| (0..count).map(at).collect::<Vec<_>>();
        assert!(!waits(None, &days(14)) && waits(None, &days(15)));
        let described = PersonDescription { until: at(14), ..PersonDescription::default() };
        assert!(!waits(Some(&described), &days(22)) && waits(Some(&described), &days(23)));
    }
}
