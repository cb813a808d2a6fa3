//! The argument in which a call carries its idempotency key, for services that take the key there and not in a header. The daemon
//! fills it, and no model sees it. Pure functions.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::spec::ToolSpec;

/// The minimum length of a shortened key, in characters: 64 bits of a SHA-256 in hexadecimal.
const KEY_CHARS_MIN: u64 = 16;
/// The length of a UUID, in characters.
const UUID_CHARS: u64 = 36;

impl ToolSpec {
    /// Returns the schema of the arguments that a model gives: all but the one that carries the idempotency key.
    pub fn asked_parameters(&self) -> Cow<'_, Value> {
        let Some(name) = &self.key_argument else { return Cow::Borrowed(&self.parameters) };
        let mut asked = self.parameters.clone();
        if let Some(properties) = asked["properties"].as_object_mut() {
            properties.remove(name);
        }
        if let Some(required) = asked.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|one| one != name);
        }
        Cow::Owned(asked)
    }

    /// Returns the idempotency key of an effect as a service gets it: the effect's id, as a UUID (version 8, RFC 9562) or shortened
    /// where the schema of the argument says so.
    pub(crate) fn key_of(&self, effect: &str) -> String {
        let schema = self.key_argument.as_ref().map(|name| &self.parameters["properties"][name]);
        let Some(schema) = schema else { return effect.to_owned() };
        match (schema["format"].as_str(), schema["maxLength"].as_u64(), effect.get(..32)) {
            (Some("uuid"), _, Some(hex)) => {
                format!("{}-{}-8{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
            }
            (_, Some(most), _) => effect.chars().take(most as usize).collect(),
            _ => effect.to_owned(),
        }
    }

    /// Adds the idempotency key to the arguments of a call, in the form of [`Self::key_of`].
    pub(crate) fn with_key(&self, mut given: Map<String, Value>, key: &str) -> Map<String, Value> {
        if let Some(name) = &self.key_argument {
            given.insert(name.clone(), Value::String(key.to_owned()));
        }
        given
    }

    /// Drops the argument if this tool of a server or document has none of that name.
    pub(super) fn keep_key_argument(&mut self) {
        let properties = self.parameters["properties"].as_object();
        if let (Some(name), Some(properties)) = (&self.key_argument, properties)
            && !properties.contains_key(name)
        {
            self.key_argument = None;
        }
    }

    /// Checks the name of the argument, and its schema where the parameters are known.
    pub(super) fn check_key_argument(&self) -> Result<(), String> {
        let Some(name) = &self.key_argument else { return Ok(()) };
        if !self.run.is_outside() {
            return Err("is of tools that run http, openapi or mcp".into());
        }
        if self.sinks.contains(name) {
            return Err(format!("\"{name}\" is a sink, too"));
        }
        let Some(properties) = self.parameters["properties"].as_object() else { return Ok(()) };
        let schema = properties.get(name).ok_or_else(|| format!("there is no parameter \"{name}\""))?;
        let is_text = schema["type"].is_null() || schema["type"] == "string";
        let least = if schema["format"] == "uuid" { UUID_CHARS } else { KEY_CHARS_MIN };
        if !is_text || schema["maxLength"].as_u64().is_some_and(|most| most < least) {
            return Err(format!("\"{name}\" has to be a text that may have {least} characters"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(schema: Value) -> ToolSpec {
        let tool = json!({
            "name": "book", "key_argument": "request", "run": {"http": {"url": "http://quay.example/b", "method": "POST"}},
            "parameters": {"type": "object", "required": ["slot", "request"], "properties": {"slot": {"type": "string"}, "request": schema}},
        });
        serde_json::from_value(tool).unwrap()
    }

    #[test]
    fn a_key_is_hidden_from_models_and_has_the_form_of_its_schema() {
        let effect = "0123456789abcdef".repeat(4);
        let plain = tool(json!({"type": "string"}));
        let asked = json!({"type": "object", "required": ["slot"], "properties": {"slot": {"type": "string"}}});
        assert_eq!(*plain.asked_parameters(), asked);
        let given = json!({"slot": "B4"}).as_object().unwrap().clone();
        assert_eq!(Value::Object(plain.with_key(given, &effect)), json!({"slot": "B4", "request": effect}));
        let uuid = tool(json!({"type": "string", "format": "uuid"}));
        assert_eq!(uuid.key_of(&effect), "01234567-89ab-8def-a123-456789abcdef");
        assert_eq!(tool(json!({"type": "string", "maxLength": 20})).key_of(&effect), &effect[..20]);
        assert_eq!(ToolSpec { key_argument: None, ..plain }.key_of(&effect), effect);
    }

    #[test]
    fn an_argument_that_cannot_carry_a_key_is_refused() {
        assert_eq!(tool(json!({"type": "string"})).check_key_argument(), Ok(()));
        for schema in [json!({"type": "integer"}), json!({"type": "string", "maxLength": 8})] {
            assert!(tool(schema).check_key_argument().is_err());
        }
        let other = ToolSpec { key_argument: Some("other".into()), ..tool(json!({})) };
        assert!(other.check_key_argument().unwrap_err().contains("there is no parameter"));
        let sink = ToolSpec { sinks: vec!["request".into()], ..tool(json!({})) };
        assert!(sink.check_key_argument().unwrap_err().contains("sink"));
        let client = ToolSpec { run: super::super::spec::Runner::Client, ..tool(json!({})) };
        assert!(client.check_key_argument().is_err());
    }
}
