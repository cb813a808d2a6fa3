//! The origin of the arguments of a call, for the person who approves it: each value stands in what was asked for, in the plan, in a
//! result, in memory, or nowhere. Pure functions.
//!
//! A value is looked for word for word, without case. A model that rewords what it read makes it its own here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::egress::{FOUND, PLANNED, PRIVATE, parted_by};

/// The maximum number of arguments whose origin is named.
const LEAVES_MAX: usize = 64;
/// The maximum length of a speaker's name, in characters.
const SPEAKER_CHARS: usize = 64;

/// The origin of the value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentOrigin {
    /// The words of the person, or the title of the goal.
    Asked,
    /// The words of a person by that name, where several speak.
    Said(String),
    /// The result of a tool, by its name.
    Result(String),
    /// The result of an earlier step of the plan.
    Step,
    /// The memory of the lifeform.
    Memory,
    /// The plan of the goal.
    Plan,
    /// None of these: the words of the model.
    Made,
}

/// The texts of a conversation, by origin.
#[derive(Default)]
pub(crate) struct Sources {
    /// The texts that people asked with, each with the speaker where several speak.
    asked: Vec<(Option<String>, String)>,
    planned: String,
    found: String,
    memory: String,
    results: Vec<(String, String)>,
}

impl Sources {
    /// Adds a message that the model was given: of `is_asked`, what stands outside of all marks is what was asked for.
    pub(crate) fn read(&mut self, text: &str, is_asked: bool) {
        let (private, rest) = parted_by(text, &PRIVATE);
        let (found, rest) = parted_by(&rest, &FOUND);
        let (planned, rest) = parted_by(&rest, &PLANNED);
        for (part, into) in [(private, &mut self.memory), (found, &mut self.found), (planned, &mut self.planned)] {
            into.push('\n');
            into.push_str(&folded(&part));
        }
        if is_asked {
            self.asked.push((speaker(&rest).map(str::to_owned), folded(&rest)));
        }
    }

    /// Adds the result of a tool; with `is_memory`, of one that reads the memory.
    pub(crate) fn add_result(&mut self, tool: &str, text: &str, is_memory: bool) {
        let text = folded(text);
        match is_memory {
            true => {
                self.memory.push('\n');
                self.memory.push_str(&text);
            }
            false => self.results.push((tool.to_owned(), text)),
        }
    }

    fn origin_of(&self, value: &str) -> ArgumentOrigin {
        let value = folded(value);
        let said = || self.asked.iter().rev().find(|(_, text)| holds(text, &value)).map(|(speaker, _)| speaker.clone());
        let result = || self.results.iter().rev().find(|(_, text)| holds(text, &value));
        match () {
            () if said().is_some() => said().flatten().map_or(ArgumentOrigin::Asked, ArgumentOrigin::Said),
            () if result().is_some() => {
                ArgumentOrigin::Result(result().map(|(tool, _)| tool.clone()).unwrap_or_default())
            }
            () if holds(&self.found, &value) => ArgumentOrigin::Step,
            () if holds(&self.memory, &value) => ArgumentOrigin::Memory,
            () if holds(&self.planned, &value) => ArgumentOrigin::Plan,
            () => ArgumentOrigin::Made,
        }
    }

    /// Returns `true` if people said all of a value: each text and number as a word of its own, and the names of members.
    pub(crate) fn says(&self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Bool(_) => false,
            Value::String(text) => text.trim().is_empty() || self.is_said_whole(text),
            Value::Number(number) => self.is_said_whole(&number.to_string()),
            Value::Array(items) => items.iter().all(|item| self.says(item)),
            Value::Object(members) => {
                members.iter().all(|(name, member)| self.is_said_whole(name) && self.says(member))
            }
        }
    }

    /// Returns `true` if a text stands in what was asked, and is not a part of a longer account or address there.
    fn is_said_whole(&self, text: &str) -> bool {
        let text = folded(text);
        let joins = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || "_-@/+:".contains(c));
        let is_whole = |asked: &str| {
            asked.match_indices(&*text).any(|(at, found)| {
                let mut after = asked[at + found.len()..].chars();
                let next = after.next();
                // A dot ends a sentence, or goes on in an address.
                let goes_on = joins(next) || (next == Some('.') && joins(after.next()));
                !joins(asked[..at].chars().next_back()) && !asked[..at].ends_with('.') && !goes_on
            })
        };
        self.asked.iter().any(|(_, asked)| is_whole(asked))
    }

    /// Returns the origin of each text and number of a call's arguments, by its place (JSON Pointer, RFC 6901).
    pub(crate) fn origins(&self, arguments: &Value) -> BTreeMap<String, ArgumentOrigin> {
        let mut leaves = Vec::new();
        leaves_of(arguments, String::new(), &mut leaves);
        leaves.truncate(LEAVES_MAX);
        leaves.into_iter().map(|(place, value)| (place, self.origin_of(&value))).collect()
    }
}

fn leaves_of(value: &Value, place: String, leaves: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) if !text.trim().is_empty() => leaves.push((place, text.clone())),
        Value::Number(number) => leaves.push((place, number.to_string())),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| leaves_of(item, format!("{place}/{n}"), leaves));
        }
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            leaves_of(member, format!("{place}/{}", name.replace('~', "~0").replace('/', "~1")), leaves);
        }),
        Value::String(_) | Value::Null | Value::Bool(_) => {}
    }
}

/// Returns the name before "says:" in a message of a talk of several people, which may begin with a day.
fn speaker(text: &str) -> Option<&str> {
    let text = match text.strip_prefix('[').and_then(|dated| dated.split_once("] ")) {
        Some((_, rest)) => rest,
        None => text,
    };
    text.split_once(" says: ")
        .map(|(name, _)| name)
        .filter(|name| !name.contains('\n') && name.chars().count() <= SPEAKER_CHARS)
}

fn folded(text: &str) -> String {
    text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns `true` if a text holds a value between the ends of words. In a script without spaces, anywhere.
fn holds(text: &str, value: &str) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| !(c.is_ascii_alphanumeric() || c == '_'));
    text.match_indices(value).any(|(at, found)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + found.len()..].chars().next());
        let begins = !found.starts_with(|c: char| c.is_ascii_alphanumeric()) || is_end(before);
        let ends = !found.ends_with(|c: char| c.is_ascii_alphanumeric()) || is_end(after);
        begins && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_argument_has_the_nearest_origin() {
        let mut sources = Sources::default();
        let step = "A step:\n<task>\n<goal>book a berth for V-212 on Friday</goal>\n<step>book B4 at noon</step>\n\
                    <arguments>{\"berth\":\"B4\",\"hour\":12}</arguments>\n<results>the harbour master is Kai Brandt</results>\n</task>";
        sources.read("You are \"Iris\".\n<notes>\nada: \"My account is DE-77\"\n</notes>", false);
        sources.read(step, true);
        sources.read("[Friday 4 December 2026] Ben says: take berth D1", true);
        sources.add_result("berths", r#"{"free": ["B4", "C9"], "price": 80}"#, false);
        sources.add_result("recall", "ada: \"I like quiet places\"", true);
        let call = json!({"vessel": "v-212", "berth": "B4", "hour": 12, "other": "C9", "pay_to": "DE-77", "who": ["Kai  Brandt"],
            "wish": "I like quiet places", "price": 8, "note": "See you", "empty": "", "sure": true});
        let origins = sources.origins(&call);
        let of = |place: &str| origins[place].clone();
        let by = |tool: &str| ArgumentOrigin::Result(tool.to_owned());
        assert_eq!((of("/vessel"), of("/berth"), of("/other")), (ArgumentOrigin::Asked, by("berths"), by("berths")));
        assert_eq!(sources.origins(&json!(["D1"]))["/0"], ArgumentOrigin::Said("Ben".into()));
        assert_eq!((of("/hour"), of("/who/0")), (ArgumentOrigin::Plan, ArgumentOrigin::Step));
        assert_eq!((of("/pay_to"), of("/wish")), (ArgumentOrigin::Memory, ArgumentOrigin::Memory));
        assert_eq!((of("/price"), of("/note")), (ArgumentOrigin::Made, ArgumentOrigin::Made), "8 is not 80");
        assert_eq!(origins.len(), 9);
    }

    #[test]
    fn a_sink_is_said_whole_or_not_at_all() {
        let mut sources = Sources::default();
        sources.read("Pay 90 to DE-77, please, and write to ada@example.org. <needed_later>DE-99</needed_later>", true);
        for said in
            [json!("DE-77"), json!("ada@example.org"), json!(["DE-77", null]), json!(90), json!(""), json!(null)]
        {
            assert!(sources.says(&said), "{said}");
        }
        let many = json!([vec!["DE-77"; 64], vec!["DE-EVIL"; 1]]);
        for not in [
            json!("77"),
            json!("DE-99"),
            json!("example.org"),
            json!({"DE-EVIL": "DE-77"}),
            json!(true),
            json!(9),
            many,
        ] {
            assert!(!sources.says(&not), "{not}");
        }
    }

    #[test]
    fn words_of_scripts_without_spaces_are_found_within_a_sentence() {
        let mut sources = Sources::default();
        sources.read("请帮我预订不来梅港的泊位", true);
        assert_eq!(sources.origins(&json!({"port": "不来梅港"}))["/port"], ArgumentOrigin::Asked);
    }
}
