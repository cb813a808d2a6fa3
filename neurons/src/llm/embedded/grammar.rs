//! The grammars of the output: a JSON Schema, any JSON object, one of the tools, or KIP.

use llguidance::api::TopLevelGrammar;
use nexus::kip::lang::lark::{Setting, lark};
use serde_json::{Map, Value, json};

use crate::llm::wire::types::ChatRequest;
use crate::tools::kip::{COMMAND_TITLE, QUERY_TITLE};

/// The grammar that a request needs.
pub(super) enum Shape {
    /// Free text.
    Text,
    /// JSON that fits a schema.
    Json(Value),
    /// One KIP command.
    Kip,
    /// One tool call.
    Tool(Value),
    /// One call of the named tool, which takes a KIP command.
    KipTool(String),
    /// One call of the named tool, which takes only KIP commands that read.
    KipQueryTool(String),
}

/// The maximum size of a schema, in bytes; larger ones are refused.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// Derives the grammar from `tools`, `tool_choice` and `response_format`.
pub(super) fn shape(request: &ChatRequest) -> Result<Shape, String> {
    if !request.tools.is_empty() && request.tool_choice.as_ref().is_none_or(|choice| choice != "none") {
        // A small model calls any tool that it sees, so tools are offered only if a call is required.
        let required = request.tool_choice.as_ref().is_some_and(|choice| choice != "auto");
        if required {
            return tool_shape(request);
        }
    }
    let Some(format) = &request.response_format else { return Ok(Shape::Text) };
    match format["type"].as_str() {
        None | Some("text") => Ok(Shape::Text),
        Some("json_object") => Ok(Shape::Json(json!({"type": "object"}))),
        Some("kip") => Ok(Shape::Kip),
        Some("json_schema") => Ok(Shape::Json(format["json_schema"]["schema"].clone())),
        Some(other) => {
            Err(format!("response_format {other} is unknown; there are text, json_object, json_schema and kip"))
        }
    }
}

fn tool_shape(request: &ChatRequest) -> Result<Shape, String> {
    let only = request.tool_choice.as_ref().and_then(|choice| choice["function"]["name"].as_str());
    let wanted = |function: &&Value| only.is_none_or(|only| function["name"] == only);
    let functions: Vec<&Value> = request.tools.iter().map(|tool| &tool["function"]).filter(wanted).collect();
    let titled = |one: &Value, title: &str| one["parameters"]["properties"]["command"]["title"] == title;
    let name = |one: &Value| one["name"].as_str().unwrap_or_default().to_owned();
    match functions.as_slice() {
        [] => Err("tool_choice names no tool of this request".into()),
        [one] if titled(one, COMMAND_TITLE) => Ok(Shape::KipTool(name(one))),
        [one] if titled(one, QUERY_TITLE) => Ok(Shape::KipQueryTool(name(one))),
        several => {
            let branches: Vec<Value> = several.iter().map(|function| branch(function)).collect();
            Ok(Shape::Tool(json!({"anyOf": branches})))
        }
    }
}

fn branch(function: &Value) -> Value {
    let mut arguments =
        if function["parameters"].is_object() { function["parameters"].clone() } else { json!({"type": "object"}) };
    // Definitions leave out that they are closed.
    let is_plain = |members: &Map<String, Value>| {
        let composed = ["anyOf", "allOf", "oneOf", "$ref", "if", "patternProperties"];
        members.contains_key("properties") && !composed.iter().any(|keyword| members.contains_key(*keyword))
    };
    if let Some(members) = arguments.as_object_mut().filter(|members| is_plain(members)) {
        members.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "arguments"],
        "properties": {"name": {"const": function["name"]}, "arguments": arguments},
    })
}

/// Refuses a request that the engine could only fail on later.
pub(super) fn check(request: &ChatRequest) -> Result<(), String> {
    if request.messages.is_empty() {
        return Err("a request needs at least one message".into());
    }
    match shape(request)? {
        Shape::Text | Shape::Kip | Shape::KipTool(_) | Shape::KipQueryTool(_) => Ok(()),
        Shape::Json(schema) | Shape::Tool(schema) if schema.to_string().len() > SCHEMA_BYTES_MAX => {
            Err(format!("a schema over {SCHEMA_BYTES_MAX} bytes"))
        }
        Shape::Json(schema) | Shape::Tool(schema) if !schema.is_object() && !schema.is_boolean() => {
            Err("json_schema.schema is missing".into())
        }
        Shape::Json(_) | Shape::Tool(_) => Ok(()),
    }
}

impl Shape {
    /// Returns `true` for a tool call.
    pub(super) fn is_tool(&self) -> bool {
        matches!(self, Self::Tool(_) | Self::KipTool(_) | Self::KipQueryTool(_))
    }

    /// Returns the grammar; `None` for free text.
    pub(super) fn grammar(self) -> Option<TopLevelGrammar> {
        match self {
            Self::Text => None,
            Self::Json(schema) | Self::Tool(schema) => Some(of_schema(schema)),
            Self::Kip => Some(TopLevelGrammar::from_lark(format!("start: command\n{}", lark(Setting::Text)))),
            Self::KipTool(name) => Some(kip_call(&name, "command")),
            Self::KipQueryTool(name) => Some(kip_call(&name, "(find | \"EXPLAIN \" find | describe | search)")),
        }
    }
}

/// Returns the grammar of a call of a tool that takes the KIP rule `what`.
fn kip_call(name: &str, what: &str) -> TopLevelGrammar {
    // Both texts are quoted twice: as JSON, and as a literal of the grammar.
    let open = json!(format!(r#"{{"name":{},"arguments":{{"command":""#, json!(name))).to_string();
    let start = format!("start: {open} {what} \"\\\"}}}}\"\n");
    TopLevelGrammar::from_lark(start + &lark(Setting::Json))
}

/// Returns the grammar of a schema without optional white space, which confuses small models.
fn of_schema(mut schema: Value) -> TopLevelGrammar {
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".into(), json!({"whitespace_flexible": false}));
    }
    TopLevelGrammar::from_json_schema(schema)
}

#[cfg(test)]
mod tests {
    use llguidance::{Matcher, ParserFactory};
    use nexus::kip::lang::parser::seems_to_write;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use toktrie::ApproximateTokEnv;

    use super::*;

    /// Generates random text that the grammar allows, with a slight preference for closing tokens.
    fn babble(shape: Shape, seed: u64) -> Option<String> {
        let factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
        let mut matcher = Matcher::new(factory.create_parser(shape.grammar().unwrap()));
        let mut rng = StdRng::seed_from_u64(seed);
        let mut text = Vec::new();
        while !matcher.is_stopped() && text.len() < 4_000 {
            let mask = matcher.compute_mask_or_eos().unwrap_or_else(|error| panic!("{error}"));
            if matcher.is_accepting().unwrap() {
                break;
            }
            let allowed: Vec<u32> = (0..256).filter(|byte| mask.is_allowed(*byte)).collect();
            let ends: Vec<u32> = allowed.iter().copied().filter(|byte| b"\"})]\\ ".contains(&(*byte as u8))).collect();
            let from = if ends.is_empty() || rng.random_bool(0.5) { &allowed } else { &ends };
            let byte = from[rng.random_range(0..from.len())];
            matcher.consume_token(byte).unwrap();
            text.push(byte as u8);
        }
        // A text that was cut off proves nothing.
        matcher.is_accepting().unwrap().then(|| String::from_utf8(text).unwrap())
    }

    fn parses(command: &str) {
        match nexus::kip::lang::parse(command) {
            // A context-free grammar cannot exclude repeated members.
            Err(error) if !error.message.contains("is set twice") => {
                panic!("{command}\n{}", error.to_json(command));
            }
            _ => {}
        }
    }

    #[test]
    fn whatever_the_grammar_lets_through_parses() {
        let (mut whole, mut kinds) = (0, std::collections::BTreeSet::new());
        for seed in 0..400 {
            let Some(text) = babble(Shape::Kip, seed) else { continue };
            parses(&text);
            kinds.insert(text.split(' ').next().unwrap_or_default().to_owned());
            whole += 1;
        }
        assert!(whole > 200 && kinds.len() >= 8, "{whole} whole commands of {kinds:?}");
    }

    #[test]
    fn a_call_of_a_kip_tool_is_json_around_a_command() {
        for shape in [Shape::KipTool, Shape::KipQueryTool] {
            let (mut whole, mut writes) = (0, 0);
            for seed in 0..100 {
                let Some(text) = babble(shape("execute_kip".into()), seed) else { continue };
                let call: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
                let command = call["arguments"]["command"].as_str().unwrap();
                parses(command);
                assert_eq!(call["name"], "execute_kip");
                whole += 1;
                writes += u32::from(seems_to_write(command));
            }
            assert!(whole > 40, "{whole} whole calls");
            let reads_alone = matches!(shape(String::new()), Shape::KipQueryTool(_));
            assert_eq!(writes == 0, reads_alone, "{writes} of {whole} write");
        }
    }
}
