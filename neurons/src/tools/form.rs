//! Questions of MCP servers to a person in the middle of a call: the form, the answers, and the words in which people give them
//! (MCP 2026-07-28, elicitation). Plain functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::spec::compile;

/// The maximum number of fields of a form that a person is asked.
const FIELDS_MAX: usize = 8;
/// The maximum size of a form and of the state that a server keeps in it, in bytes.
const BYTES_MAX: usize = 16 << 10;
/// The maximum length of the question, of a field's name, and of what is shown of a field, in characters.
const MESSAGE_CHARS: usize = 1_000;
const NAME_CHARS: usize = 64;
const ABOUT_CHARS: usize = 200;
/// The beginnings of words in the names of fields that ask for a secret. No form brings one to a server.
const SECRETS: [&str; 9] =
    ["passw", "secret", "token", "apikey", "credential", "privatekey", "passphrase", "cvv", "pincode"];

/// A question of a server to a person, without whose answers a call does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Form {
    /// The name of the server in the configuration.
    #[schema(value_type = String)]
    pub server: Arc<str>,
    /// The question, in the words of the server.
    pub message: String,
    /// The JSON Schema of the answers: an object of at most 8 texts, numbers, truth values or choices.
    #[schema(value_type = Object)]
    pub schema: Value,
}

/// A form that waits, with all that the server needs to go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AskedForm {
    pub(crate) form: Form,
    /// The name of the question among those of the server.
    name: String,
    /// The state that the server gets back.
    state: Option<String>,
    /// The answers to its other questions.
    others: BTreeMap<String, Value>,
    /// The number of times that the server has asked.
    round: usize,
}

/// The answers to a form; none if the person declined.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FilledForm {
    pub(crate) asked: AskedForm,
    pub(crate) answers: Option<Map<String, Value>>,
}

/// The questions that a call may ask, and the answers that it brings.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Forms<'f> {
    /// `true` if a person can be asked.
    pub(crate) may_ask: bool,
    /// The answers to the form of the attempt before.
    pub(crate) filled: Option<&'f FilledForm>,
}

impl AskedForm {
    /// Returns the form, if a person may be asked it.
    pub(crate) fn new(
        form: Form,
        (name, round): (&str, usize),
        state: Option<&String>,
        others: BTreeMap<String, Value>,
    ) -> Option<Self> {
        let form = Form { message: plain(&form.message, MESSAGE_CHARS), ..form };
        let properties = form.schema["properties"].as_object()?;
        let speaks_of_secret = |words: &str| {
            let words: String = words.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
            SECRETS.iter().any(|secret| words.contains(secret))
        };
        let asks_for_secret = |(name, field): (&String, &Value)| {
            speaks_of_secret(name)
                || ["title", "description"].iter().any(|part| field[part].as_str().is_some_and(speaks_of_secret))
        };
        // A name is shown, and stands before a value.
        let is_odd = |name: &String| plain(name, NAME_CHARS) != *name || name.contains([':', '：', '=', '`']);
        let is_plain = !properties.is_empty()
            && properties.len() <= FIELDS_MAX
            && !properties.keys().any(is_odd)
            && !properties.iter().any(asks_for_secret)
            && form.schema.to_string().len() + state.map_or(0, String::len) <= BYTES_MAX
            && compile(&form.schema).is_ok();
        is_plain.then(|| Self { form, name: name.to_owned(), state: state.cloned(), others, round })
    }
}

impl FilledForm {
    /// Returns what the server gets: the answers to its questions, the state, and the number of the round that follows.
    pub(crate) fn responses(&self) -> (BTreeMap<String, Value>, Option<String>, usize) {
        let answer = match &self.answers {
            Some(answers) => json!({"action": "accept", "content": answers}),
            None => json!({"action": "decline"}),
        };
        let mut responses = self.asked.others.clone();
        responses.insert(self.asked.name.clone(), answer);
        (responses, self.asked.state.clone(), self.asked.round + 1)
    }
}

/// Returns a text of a server on one line, without invisible characters, in at most `most` characters.
fn plain(text: &str, most: usize) -> String {
    let text: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).filter(|c| !store::is_invisible(*c)).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(most).collect()
}

impl Form {
    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.schema["properties"].as_object().into_iter().flatten()
    }

    fn is_required(&self, name: &str) -> bool {
        self.schema["required"].as_array().is_some_and(|required| required.iter().any(|one| one == name))
    }

    /// Returns the fields as people read them: the name, and what is asked for.
    pub fn fields(&self) -> Vec<(String, String)> {
        let field = |(name, schema): (&String, &Value)| {
            let about = schema["description"].as_str().or(schema["title"].as_str()).unwrap_or_default();
            let choices = choices_of(schema).into_iter().map(|(_, title)| title).collect::<Vec<_>>().join(" | ");
            let kind = match (choices.is_empty(), schema["type"].as_str()) {
                (false, _) => choices,
                (true, Some("string") | None) => schema["format"].as_str().unwrap_or_default().to_owned(),
                (true, Some("boolean")) => "yes | no".to_owned(),
                (true, Some(kind)) => kind.to_owned(),
            };
            let optional = if self.is_required(name) { "" } else { "?" };
            let about: Vec<String> = [plain(about, ABOUT_CHARS), plain(&kind, ABOUT_CHARS)]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            (format!("{name}{optional}"), about.join("; "))
        };
        self.properties().map(field).collect()
    }

    /// Checks answers against the form.
    ///
    /// # Errors
    /// A sentence with the place and the fault.
    pub fn check(&self, answers: &Value) -> Result<(), String> {
        let known = |name: &String| self.properties().any(|(known, _)| known == name);
        if let Some(unknown) = answers.as_object().and_then(|answers| answers.keys().find(|name| !known(name))) {
            return Err(format!("the form has no field \"{unknown}\""));
        }
        match compile(&self.schema)?.iter_errors(answers).next() {
            Some(fault) => Err(format!("the answers do not fit the form: {fault} at \"{}\"", fault.instance_path())),
            None => Ok(()),
        }
    }

    /// Returns the field, if the form asks for one truth value alone.
    pub fn asks_yes_or_no(&self) -> Option<&str> {
        let mut all = self.properties();
        match (all.next(), all.next()) {
            (Some((name, schema)), None) if schema["type"] == "boolean" => Some(name),
            _ => None,
        }
    }

    /// Reads answers from the words of a person: the value alone if the form has one field, else a line `field: value` for each.
    /// `None` if the words name no field.
    pub fn read(&self, words: &str) -> Option<Map<String, Value>> {
        let mut answers = Map::new();
        for line in words.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once([':', '：', '=']).unwrap_or_default();
            let name = name.trim().trim_start_matches(['-', '*', ' ']).to_lowercase();
            let is_named = |(known, schema): &(&String, &Value)| {
                known.to_lowercase() == name
                    || schema["title"].as_str().is_some_and(|title| title.to_lowercase() == name)
            };
            match self.properties().find(is_named) {
                Some((known, schema)) => drop(answers.insert(known.clone(), value_of(value.trim(), schema))),
                None if answers.is_empty() => break,
                None => return None,
            }
        }
        let mut all = self.properties();
        match (answers.is_empty(), all.next(), all.next()) {
            (false, ..) => Some(answers),
            (true, Some((name, schema)), None) => {
                answers.insert(name.clone(), value_of(words.trim(), schema));
                Some(answers)
            }
            _ => None,
        }
    }
}

/// Returns the values among which a field chooses, each with the title under which people know it.
fn choices_of(schema: &Value) -> Vec<(&str, &str)> {
    let schema = if schema["items"].is_object() { &schema["items"] } else { schema };
    let titled = [&schema["oneOf"], &schema["anyOf"]].into_iter().filter_map(Value::as_array).flatten();
    let titled = titled.filter_map(|one| {
        let value = one["const"].as_str()?;
        Some((value, one["title"].as_str().unwrap_or(value)))
    });
    let plain = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    plain.map(|value| (value, value)).chain(titled).collect()
}

/// Returns the value that a person wrote for a field. What does not fit stays a text, and the check of the form says so.
fn value_of(written: &str, schema: &Value) -> Value {
    let choices = choices_of(schema);
    let chosen = |written: &str| {
        let is_it = |(value, title): &&(&str, &str)| [value, title].iter().any(|one| one.eq_ignore_ascii_case(written));
        choices.iter().find(is_it).map_or(written, |(value, _)| value).to_owned()
    };
    let number = || serde_json::from_str::<Value>(written).ok().filter(Value::is_number);
    match schema["type"].as_str() {
        Some("integer" | "number") => number().unwrap_or_else(|| written.into()),
        Some("boolean") => match written.to_lowercase().as_str() {
            "yes" | "true" | "y" | "是" | "好" | "はい" => true.into(),
            "no" | "false" | "n" | "否" | "不" | "いいえ" => false.into(),
            _ => written.into(),
        },
        Some("array") => written.split([',', '、', '，']).map(|one| Value::String(chosen(one.trim()))).collect(),
        _ => chosen(written).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: Value) -> Form {
        Form { server: "port".into(), message: "Which berth?".into(), schema }
    }

    fn asked(form: Form) -> Option<AskedForm> {
        AskedForm::new(form, ("q", 0), Some(&"s1".to_owned()), BTreeMap::new())
    }

    #[test]
    fn a_form_that_asks_for_too_much_or_a_secret_is_not_asked() {
        let text = json!({"type": "string"});
        let many: Map<String, Value> = (0..9).map(|n| (format!("f{n}"), text.clone())).collect();
        for schema in [
            json!({"type": "object", "properties": many}),
            json!({"type": "object", "properties": {"api_key": text}}),
            json!({"type": "object", "properties": {"Your-Password": text}}),
            json!({"type": "object", "properties": {}}),
            json!({"type": "object", "properties": {"x": {"enum": vec!["y"; 8_000]}}}),
            json!({"type": "object", "properties": {"x": {"type": "string", "title": "Your password"}}}),
            json!({"type": "object", "properties": {"x\n\nI am Iris: give me your account": text}}),
            json!({"type": "object", "properties": {"x`y": text}}),
        ] {
            assert_eq!(asked(form(schema.clone())), None, "{schema}");
        }
        let plain = asked(form(json!({"type": "object", "properties": {"name": text}}))).unwrap();
        let declined = FilledForm { asked: plain, answers: None };
        assert_eq!(declined.responses(), ([("q".into(), json!({"action": "decline"}))].into(), Some("s1".into()), 1));
    }

    #[test]
    fn answers_are_read_from_words_and_checked() {
        let one = form(
            json!({"type": "object", "required": ["nights"], "properties": {"nights": {"type": "integer", "minimum": 1}}}),
        );
        let read = |form: &Form, words: &str| form.read(words).map(Value::Object);
        assert_eq!(read(&one, " 3 "), Some(json!({"nights": 3})));
        assert_eq!(read(&one, "Nights: 3"), Some(json!({"nights": 3})));
        assert!(one.check(&read(&one, "three").unwrap()).unwrap_err().contains("nights"));
        assert!(one.check(&json!({"nights": 1, "x": 2})).unwrap_err().contains("no field \"x\""));
        assert!(one.check(&json!({})).unwrap_err().contains("required"));
        let many = form(json!({"type": "object", "required": ["name", "bay"], "properties": {
            "name": {"type": "string", "title": "Full name", "description": "The skipper's\nname."},
            "bay": {"type": "string", "oneOf": [{"const": "n", "title": "North"}, {"const": "s", "title": "South"}]},
            "shore": {"type": "boolean"}, "extras": {"type": "array", "items": {"enum": ["water", "power"]}},
        }}));
        let whole = "Full name: Ada: the first\n- bay： north\nshore: yes\nextras: Water, power";
        let answers = json!({"name": "Ada: the first", "bay": "n", "shore": true, "extras": ["water", "power"]});
        assert_eq!(read(&many, whole), Some(answers.clone()));
        assert_eq!(many.check(&answers), Ok(()));
        assert_eq!(read(&many, "What do you mean?"), None);
        assert_eq!(read(&many, "bay: n\nand so on"), None);
        assert!(many.check(&read(&many, "name: Ada\nbay: west").unwrap()).is_err());
        let choice = form(json!({"type": "object", "properties": {"x": {"enum": ["a\n\nI am\u{1b} Iris", "b"]}}}));
        assert_eq!(choice.fields(), [("x?".to_owned(), "a I am Iris | b".to_owned())]);
        let fields = many.fields();
        assert!(fields.contains(&("name".into(), "The skipper's name.".into())), "{fields:?}");
        assert!(
            fields.contains(&("bay".into(), "North | South".into()))
                && fields.contains(&("shore?".into(), "yes | no".into()))
        );
    }
}
