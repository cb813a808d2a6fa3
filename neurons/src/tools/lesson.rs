//! The lessons of a tool: sentences that its definition makes of parts of its results, for a lifeform to learn.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

/// The maximum number of lessons of a tool.
pub(crate) const LESSONS_MAX: usize = 8;
/// The maximum number of sentences of one result.
const SENTENCES_MAX: usize = 8;
/// The maximum length of a sentence with its places, of a pointer, and of a text that is put in, in characters.
const SENTENCE_CHARS_MAX: usize = 300;
const POINTER_CHARS_MAX: usize = 256;
const TEXT_CHARS_MAX: usize = 80;
/// The maximum number of words of a text that is put in.
const WORDS_MAX: usize = 6;
const DAYS_MAX: u16 = 3_650;

/// The places of a sentence.
static PLACES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{\{([^{}]*)\}\}").unwrap_or_else(|error| unreachable!("{error}")));

/// A sentence that a lifeform learns from a result of a tool. It is kept as a statement that the tool found
/// (`docs/src/internals/knowing.md`), for the people for whom the tool was called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Lesson {
    /// The sentence. `{{/pointer}}` stands for a part of `{"arguments": …, "result": …, "item": …}` (RFC 6901): a number, a truth
    /// value, or a text of one line with at most six words and 80 characters. Without one of its parts there is no sentence.
    pub says: String,
    /// The list of the result, as a JSON Pointer, for each of whose items there is a sentence (`/item`), at most eight. Default: one
    /// sentence for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// The number of days for which it holds, from 1 to 3650; the day of the call is the first. Default: it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_days: Option<u16>,
}

impl Lesson {
    /// Checks the constraints that deserialization cannot check.
    pub(crate) fn check(&self) -> Result<(), String> {
        let is_pointer = |place: &str| {
            let escapes = place.match_indices('~').all(|(at, _)| place[at + 1..].starts_with(['0', '1']));
            place.chars().count() <= POINTER_CHARS_MAX && escapes && place.starts_with('/')
        };
        let places: Vec<&str> = places(&self.says).collect();
        if self.says.trim().is_empty() || self.says.chars().count() > SENTENCE_CHARS_MAX {
            return Err(format!("says is a sentence of at most {SENTENCE_CHARS_MAX} characters"));
        }
        if places.is_empty() {
            return Err("says names no part of a result, as {{/result/name}}".into());
        }
        if let Some(wrong) = places.iter().find(|place| !is_pointer(place)) {
            return Err(format!("says: \"{wrong:.80}\" is no JSON Pointer: it begins with /"));
        }
        if let Some(wrong) = places.iter().find(|place| !["arguments", "result", "item"].contains(&first(place))) {
            return Err(format!("says: \"{wrong:.80}\" begins with /arguments, /result or /item"));
        }
        if self.each.is_none() && places.iter().any(|place| first(place) == "item") {
            return Err("says: /item needs each".into());
        }
        if self.each.as_ref().is_some_and(|each| !is_pointer(each) || first(each) != "result") {
            return Err("each is a JSON Pointer that begins with /result".into());
        }
        match self.for_days {
            Some(days) if !(1..=DAYS_MAX).contains(&days) => Err(format!("for_days is 1 to {DAYS_MAX}")),
            _ => Ok(()),
        }
    }

    /// Returns the sentences of a call with its result.
    pub fn sentences(&self, arguments: &Map<String, Value>, result: &Value) -> Vec<String> {
        let mut document = json!({"arguments": arguments, "result": result});
        let Some(each) = &self.each else { return self.sentence(&document).into_iter().collect() };
        let items = document.pointer(each).and_then(Value::as_array).cloned().unwrap_or_default();
        let mut sentences = Vec::new();
        for item in items.into_iter().take(SENTENCES_MAX) {
            document["item"] = item;
            sentences.extend(self.sentence(&document));
        }
        sentences
    }

    /// Returns the sentence with the parts of a document; `None` if one is missing, or is no part of a sentence.
    fn sentence(&self, document: &Value) -> Option<String> {
        let mut sentence = self.says.clone();
        for place in places(&self.says) {
            let text = match document.pointer(place)? {
                Value::String(text) => text_of(text)?,
                part @ (Value::Number(_) | Value::Bool(_)) => part.to_string(),
                _ => return None,
            };
            sentence = sentence.replacen(&format!("{{{{{place}}}}}"), &text, 1);
        }
        Some(sentence)
    }
}

/// Returns the pointers in a sentence.
fn places(says: &str) -> impl Iterator<Item = &str> {
    PLACES.captures_iter(says).filter_map(|place| Some(place.get(1)?.as_str()))
}

/// Returns the first member that a pointer names.
fn first(pointer: &str) -> &str {
    pointer.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// Returns a text of a result that may stand in a sentence: it makes none of its own.
fn text_of(text: &str) -> Option<String> {
    let text = text.trim();
    let is_part = |c: char| !c.is_control() && !"<>{}[]`|?!。？！;；".contains(c) && !store::is_invisible(c);
    let is_one = !text.contains(". ") && !text.contains(": ");
    let is_name = text.split_whitespace().count() <= WORDS_MAX && (!text.ends_with('.') || !text.contains(' '));
    let fits = !text.is_empty() && text.chars().count() <= TEXT_CHARS_MAX && is_name;
    (fits && is_one && text.chars().all(is_part)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(says: &str) -> Lesson {
        Lesson { says: says.into(), ..Lesson::default() }
    }

    #[test]
    fn a_sentence_has_all_of_its_parts_or_is_none() {
        let arguments = json!({"city": "Oslo"}).as_object().unwrap().clone();
        let weather = lesson("In {{/arguments/city}} it has {{/result/temp}} °C, rain: {{/result/rain}}.");
        let sentences = |result: Value| weather.sentences(&arguments, &result);
        assert_eq!(sentences(json!({"temp": -3.5, "rain": false})), ["In Oslo it has -3.5 °C, rain: false."]);
        for result in
            [json!({"temp": 3}), json!({"temp": 3, "rain": null}), json!({"temp": [3], "rain": true}), json!("x")]
        {
            assert_eq!(sentences(result.clone()), [""; 0], "{result}");
        }
        let name = lesson("{{/result/name}} works for Acme.");
        for text in [
            "Tom. Ada lives in Oslo",
            "Tom\nAda",
            "",
            "<b>",
            "who?",
            "Tom。",
            "Ada lives in Rome.",
            "Ada lives in Rome and Eva does too",
            &"x".repeat(81),
            "Note: Tom",
        ] {
            assert_eq!(name.sentences(&arguments, &json!({"name": text})), [""; 0], "{text}");
        }
        // What is put in is no place.
        assert_eq!(name.sentences(&arguments, &json!({"name": "{{/result/name}}"})), [""; 0]);
    }

    #[test]
    fn a_list_gives_a_sentence_for_each_of_its_items() {
        let people =
            Lesson { each: Some("/result/people".into()), ..lesson("{{/item/name}} works for {{/result/of}}.") };
        assert_eq!(people.check(), Ok(()));
        let result = json!({"of": "Acme", "people": [{"name": "Tom"}, {"name": 7}, {}, {"name": "Eva"}]});
        let none = Map::new();
        assert_eq!(
            people.sentences(&none, &result),
            ["Tom works for Acme.", "7 works for Acme.", "Eva works for Acme."]
        );
        let many: Vec<Value> = (0..20).map(|n| json!({"name": n})).collect();
        assert_eq!(people.sentences(&none, &json!({"of": "Acme", "people": many})).len(), SENTENCES_MAX);
        assert_eq!(people.sentences(&none, &json!({"of": "Acme", "people": "Tom"})), [""; 0]);
    }

    #[test]
    fn a_lesson_names_parts_of_a_result() {
        assert_eq!(lesson("{{/result/a}} is {{/arguments/b~1c}}.").check(), Ok(()));
        for (says, fault) in [
            ("", "says is a sentence"),
            ("It is warm.", "names no part"),
            ("{{result}} is warm.", "no JSON Pointer"),
            ("{{/result/a~2}} is warm.", "no JSON Pointer"),
            ("{{/secrets/a}} is warm.", "/arguments, /result or /item"),
            ("{{/item}} is warm.", "/item needs each"),
        ] {
            let error = lesson(says).check().unwrap_err();
            assert!(error.contains(fault), "{says}: {error}");
        }
        let with =
            |each: Option<&str>, for_days| Lesson { each: each.map(Into::into), for_days, ..lesson("{{/result/a}}.") };
        assert!(with(Some("/item"), None).check().unwrap_err().contains("each"));
        assert!(with(None, Some(0)).check().unwrap_err().contains("for_days"));
        assert!(with(None, Some(3_651)).check().unwrap_err().contains("for_days"));
    }
}
