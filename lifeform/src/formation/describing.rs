//! The description of domains by a model, which may also find that one is another's under another word, or that a wide one holds
//! several parts. It is shown, and may use, only what all heard who see the domain.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use nexus::NexusError;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Origin;

use super::filing::{Stored, Tagged, key, theme};
use super::plain;
use super::writing::FACT;
use crate::memory::{Memory, StoredFact, rows};

/// The minimum number of statements by which a domain is described, and the maximum number that a model is shown of an ordinary and of
/// a wide domain.
const STATEMENTS_MIN: usize = 3;
const STATEMENTS_MAX: usize = 16;
const STATEMENTS_OF_WIDE_MAX: usize = 40;
/// The number of statements from which on a domain is wide.
const WIDE_MIN: usize = 60;
/// The minimum number of the shown statements of a part, and the numbers of parts.
const PART_MIN: usize = 8;
const PARTS: RangeInclusive<usize> = 2..=5;
/// The maximum number of other domains that are named.
const OTHERS_MAX: usize = 24;
/// The maximum length of a statement that is shown, and the lengths of a description, in characters.
const STATEMENT_CHARS: usize = 200;
const DESCRIPTION_CHARS: RangeInclusive<usize> = 8..=200;

const DESCRIBE: &str = r#"UPDATE ?d SET ATTRIBUTES { description: $description } SET METADATA { described_from: $facts } WHERE { ?d {type: "Domain", name: $name} }"#;

/// A domain as a model is shown it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shown {
    /// The name.
    pub(crate) name: String,
    /// The ids of the statements with their words, the newest first.
    pub(crate) statements: Vec<(String, String)>,
    /// The names of the other domains that all who see this one see.
    pub(crate) others: Vec<String>,
    /// `true` if it may be split.
    pub(crate) is_wide: bool,
}

/// The answer of a model.
#[derive(Clone, Debug, Default, Deserialize)]
struct Written {
    description: String,
    #[serde(default)]
    same_as: String,
    #[serde(default)]
    parts: Vec<Part>,
}

/// A part of a wide domain: its name, and the numbers of its statements.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    name: String,
    statements: Vec<usize>,
}

/// The outcome of a description.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct Described {
    /// The name of the domain; `None` if none waits.
    pub(crate) domain: Option<String>,
    /// The description, if it was taken.
    description: Option<String>,
    /// The domain into which it was merged.
    merged_into: Option<String>,
    /// The names of the parts into which it was split.
    parts: Vec<String>,
    /// The number of statements that the model was shown.
    #[serde(rename = "statements")]
    shown: usize,
}

/// Returns the statements of a domain that all heard who see it, the newest first.
fn heard_by_all<'t>(domain: &Stored, tagged: &'t BTreeMap<String, Tagged>) -> Vec<&'t String> {
    let is_of = |fact: &Tagged| fact.tags.iter().any(|tag| key(tag) == key(&domain.name));
    let heard = tagged.iter().filter(|(_, fact)| is_of(fact) && domain.seen_by.is_subset(&fact.scopes));
    let mut heard: Vec<(&String, &Tagged)> = heard.collect();
    heard.sort_by(|(_, one), (_, other)| other.stated_at.cmp(&one.stated_at));
    heard.into_iter().map(|(id, _)| id).collect()
}

/// Returns `true` if a domain waits for a model: it has no description, twice the statements of which that tells, or has become wide.
fn waits(domain: &Stored, heard: usize) -> bool {
    let described = domain.described_from.len();
    let has_grown = described < STATEMENTS_MAX && heard >= 2 * described.max(PART_MIN);
    let is_wide = described <= STATEMENTS_MAX && heard >= WIDE_MIN;
    heard >= STATEMENTS_MIN && (described == 0 || has_grown || is_wide)
}

impl Memory {
    /// Returns a domain that a model may describe: one without a description, or of which there are twice as many statements by now.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn domain_to_describe(&self, cause: &Origin) -> Result<Option<Shown>, NexusError> {
        let (tagged, _) = self.tagged(cause).await?;
        let domains: Vec<Stored> = self.domains(cause).await?.into_iter().filter(|domain| domain.is_own).collect();
        let mut waiting = domains.iter().map(|domain| (domain, heard_by_all(domain, &tagged)));
        let Some((domain, heard)) = waiting.find(|(domain, heard)| waits(domain, heard.len())) else { return Ok(None) };
        let is_wide = heard.len() >= WIDE_MIN;
        let most = if is_wide { STATEMENTS_OF_WIDE_MAX } else { STATEMENTS_MAX };
        let mut facts = Vec::new();
        for fact in heard.into_iter().take(most) {
            let found = self.ask(FACT, json!({"fact": fact}), cause).await?;
            facts.extend(rows(&found).first().cloned());
        }
        let of = |fact: &Value| {
            let fact = StoredFact::of(fact);
            Some((fact.id().to_owned(), fact.statement()?.chars().take(STATEMENT_CHARS).collect()))
        };
        let statements = facts.iter().filter_map(of).collect();
        let is_other = |other: &&Stored| other.name != domain.name && domain.seen_by.is_subset(&other.seen_by);
        let others = domains.iter().filter(is_other).take(OTHERS_MAX).map(|other| other.name.clone()).collect();
        Ok(Some(Shown { name: domain.name.clone(), statements, others, is_wide }))
    }

    /// Writes what a model wrote of a domain that it was shown: the description, or the themes of its statements after a merge or a
    /// split, and files the statements again. What changed meanwhile, or is not borne out, is passed over.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn describe_domain(
        &self,
        name: &str,
        facts: &[String],
        answer: &Value,
        cause: &Origin,
    ) -> Result<Described, NexusError> {
        let mut described = Described { domain: Some(name.to_owned()), shown: facts.len(), ..Described::default() };
        // A call that failed is made again in another night.
        let Ok(written) = Written::deserialize(answer) else { return Ok(Described { shown: 0, ..described }) };
        let turn = self.take_turn().await;
        let (tagged, _) = self.tagged(cause).await?;
        let domains = self.domains(cause).await?;
        let Some(domain) = domains.iter().find(|domain| domain.is_own && domain.name == name) else {
            return Ok(described);
        };
        let heard: BTreeSet<&String> = heard_by_all(domain, &tagged).into_iter().collect();
        // Of a statement that was forgotten meanwhile, the answer may tell.
        if facts.is_empty() || !facts.iter().all(|fact| heard.contains(fact)) {
            return Ok(described);
        }
        let is_same = |other: &&Stored| {
            other.is_own
                && other.name != name
                && key(&other.name) == key(&written.same_as)
                && domain.seen_by.is_subset(&other.seen_by)
        };
        let parts = parts(&written.parts, name, facts);
        if let Some(other) = domains.iter().find(is_same) {
            for (fact, of) in tagged.iter().filter(|(_, fact)| fact.tags.iter().any(|tag| key(tag) == key(name))) {
                self.tag(fact, &renamed(&of.tags, name, &other.name), cause).await?;
            }
            described.merged_into = Some(other.name.clone());
        } else if !parts.is_empty() && heard.len() >= WIDE_MIN {
            for (part, of_part) in &parts {
                for fact in of_part {
                    self.tag(fact, &renamed(&tagged[*fact].tags, name, part), cause).await?;
                }
                described.parts.push(part.clone());
            }
        }
        let moved = described.merged_into.is_some() || !described.parts.is_empty();
        if !moved {
            let mut words = String::new();
            for fact in facts {
                let found = self.ask(FACT, json!({"fact": fact}), cause).await?;
                words.extend(rows(&found).first().and_then(|fact| StoredFact::of(fact).statement()));
                words.push('\n');
            }
            described.description = borne_out(&written.description, DESCRIPTION_CHARS, name, &words);
            // Even if none was taken: the model would write the same again, and each call is paid.
            let text = described.description.clone().unwrap_or_else(|| super::filing::description(name));
            self.run_checked(DESCRIBE, json!({"name": name, "description": text, "facts": facts}), cause).await?;
        }
        drop(turn);
        if moved {
            self.file(false, cause).await?;
        }
        Ok(described)
    }
}

/// Returns themes with one of them renamed, each once.
fn renamed<'t>(tags: &'t [String], name: &str, to: &'t str) -> Vec<&'t str> {
    let mut renamed: Vec<&str> = Vec::new();
    for tag in tags {
        let tag = if key(tag) == key(name) { to } else { tag };
        if renamed.iter().all(|known| key(known) != key(tag)) {
            renamed.push(tag);
        }
    }
    renamed
}

/// Returns the parts of a wide domain that have enough of the shown statements, each of which is of one part; none if they are too few
/// or too many.
fn parts<'f>(written: &[Part], name: &str, facts: &'f [String]) -> Vec<(String, Vec<&'f String>)> {
    let mut taken = BTreeSet::new();
    let mut parts: Vec<(String, Vec<&String>)> = Vec::new();
    for part in written {
        let Some(own) = theme(&part.name).filter(|own| key(own) != key(name)) else { continue };
        if parts.iter().any(|(known, _)| key(known) == key(&own)) {
            continue;
        }
        let numbers = part.statements.iter().filter(|number| taken.insert(**number));
        let of: Vec<&String> = numbers.filter_map(|number| facts.get(number.checked_sub(1)?)).collect();
        if of.len() >= PART_MIN {
            parts.push((own, of));
        }
    }
    if PARTS.contains(&parts.len()) { parts } else { Vec::new() }
}

/// Returns a description of a length in characters that the statements bear out: each name and number in it stands in the statements, or
/// in the name of the described domain or person.
pub(super) fn borne_out(
    description: &str,
    lengths: RangeInclusive<usize>,
    name: &str,
    statements: &str,
) -> Option<String> {
    let text = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_plain = |c: char| !c.is_control() && !store::is_invisible(c) && !"<>{}[]`|".contains(c);
    if text.contains("://") || !lengths.contains(&text.chars().count()) || !text.chars().all(is_plain) {
        return None;
    }
    let words_in = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let known: BTreeSet<String> = words_in(&format!("{} {}", plain(statements), plain(name))).into_iter().collect();
    // The first word has a capital letter in any case.
    let is_owner = text.split(' ').next().is_some_and(|first| first.ends_with("'s") || first.ends_with("’s"));
    let is_telling = |(at, word): &(usize, String)| {
        let is_name = (*at > 0 || is_owner) && word.chars().next().is_some_and(char::is_uppercase);
        is_name || word.chars().any(char::is_numeric)
    };
    let words = words_in(&text).into_iter().enumerate();
    let are_known = words.filter(is_telling).all(|(_, word)| known.contains(&plain(&word)));
    are_known.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_tells_no_name_that_the_statements_do_not() {
        let statements = "My dog Rex had pill 3 from the vet.\nWe walk in the Harz.";
        let of = |written: &str| borne_out(written, DESCRIPTION_CHARS, "Dog", statements);
        for (written, is) in [
            ("The dog Rex, his pills and walks.", true),
            ("Walks   with the dog\nand its health.", true),
            ("The dog and Ben's visits.", false),
            ("The dog, 7 years old.", false),
            ("Ben's dog and its walks.", false),
            ("The dog of Ha.", false),
            ("Dog <b>", false),
            ("Dog", false),
            ("", false),
        ] {
            assert_eq!(of(written).is_some(), is, "{written}");
        }
        assert_eq!(of("狗的健康和散步的事。").as_deref(), Some("狗的健康和散步的事。"));
        assert_eq!(of(&"x ".repeat(120)), None);
    }

    #[test]
    fn a_wide_domain_is_split_into_parts_of_enough_statements() {
        let ids: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let part = |name: &str, statements: std::ops::RangeInclusive<usize>| Part {
            name: name.to_owned(),
            statements: statements.collect(),
        };
        let names = |written: &[Part]| -> Vec<(String, usize)> {
            parts(written, "Sport", &ids).into_iter().map(|(name, of)| (name, of.len())).collect()
        };
        let both = [part("Tennis", 1..=8), part("Sailing", 9..=20)];
        assert_eq!(names(&both), [("Tennis".to_owned(), 8), ("Sailing".to_owned(), 12)]);
        // A statement is of one part, and a part of a few statements, or with the name of the whole, is none.
        assert_eq!(names(&[part("Tennis", 1..=8), part("Sailing", 5..=12)]), []);
        assert_eq!(names(&[part("Tennis", 1..=8), part("sports", 9..=20)]), []);
        assert_eq!(names(&[part("Tennis", 1..=8), part("tennis", 9..=20)]), []);
        assert_eq!(names(&[part("Tennis", 0..=7), part("Sailing", 14..=99)]), []);
    }

    #[test]
    fn a_theme_is_renamed_once() {
        let tags = ["Boats".to_owned(), "Sailing".to_owned()];
        assert_eq!(renamed(&tags, "boat", "Sailing"), ["Sailing"]);
        assert_eq!(renamed(&tags[..1], "boats", "Trips"), ["Trips"]);
    }

    #[test]
    fn a_domain_waits_for_its_description_and_for_the_next_one() {
        let described = |count: usize| Stored {
            name: "Dog".to_owned(),
            is_own: true,
            seen_by: BTreeSet::new(),
            described_from: (0..count).map(|n| n.to_string()).collect(),
        };
        let cases = [
            (0, 2, false),
            (0, 3, true),
            (8, 15, false),
            (8, 16, true),
            (16, 59, false),
            (16, 60, true),
            (40, 200, false),
        ];
        for (from, heard, is) in cases {
            assert_eq!(waits(&described(from), heard), is, "{from} {heard}");
        }
    }
}
