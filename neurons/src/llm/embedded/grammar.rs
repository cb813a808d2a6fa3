//! What the output must look like, as a grammar: a JSON Schema, any JSON object, or one of the tools.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use crate::llm::wire::types::ChatRequest;

/// The grammar a request asks for.
pub(super) enum Shape {
    /// Free text.
    Text,
    /// JSON of a schema.
    Json(Value),
    /// One tool call.
    Tool(Value),
}

/// Schemas larger than this are refused.
const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// Reads the shape out of `tools`, `tool_choice` and `response_format`.
pub(super) fn shape(request: &ChatRequest) -> Result<Shape, String> {
    if !request.tools.is_empty() && request.tool_choice.as_ref().is_none_or(|choice| choice != "none") {
        // A model this small calls whatever it is shown, so a tool is only called when one is required.
        let required = request.tool_choice.as_ref().is_some_and(|choice| choice != "auto");
        if required {
            return tool_schema(request).map(Shape::Tool);
        }
    }
    let Some(format) = &request.response_format else { return Ok(Shape::Text) };
    match format["type"].as_str() {
        None | Some("text") => Ok(Shape::Text),
        Some("json_object") => Ok(Shape::Json(json!({"type": "object"}))),
        Some("json_schema") => Ok(Shape::Json(format["json_schema"]["schema"].clone())),
        Some(other) => Err(format!("response_format {other} is unknown; there are text, json_object and json_schema")),
    }
}

fn tool_schema(request: &ChatRequest) -> Result<Value, String> {
    let only = request.tool_choice.as_ref().and_then(|choice| choice["function"]["name"].as_str());
    let branches: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| &tool["function"])
        .filter(|function| only.is_none_or(|only| function["name"] == only))
        .map(|function| {
            let arguments = if function["parameters"].is_object() { function["parameters"].clone() } else { json!({"type": "object"}) };
            json!({"type": "object", "additionalProperties": false, "required": ["name", "arguments"], "properties": {"name": {"const": function["name"]}, "arguments": arguments}})
        })
        .collect();
    if branches.is_empty() {
        Err("tool_choice names no tool of this request".into())
    } else {
        Ok(json!({"anyOf": branches}))
    }
}

/// Refuses what the engine could only fail on later.
pub(super) fn check(request: &ChatRequest) -> Result<(), String> {
    if request.messages.is_empty() {
        return Err("a request needs at least one message".into());
    }
    match shape(request)? {
        Shape::Text => Ok(()),
        Shape::Json(schema) | Shape::Tool(schema) if schema.to_string().len() > SCHEMA_BYTES_MAX => {
            Err(format!("a schema over {SCHEMA_BYTES_MAX} bytes"))
        }
        Shape::Json(schema) | Shape::Tool(schema) if !schema.is_object() && !schema.is_boolean() => {
            Err("json_schema.schema is missing".into())
        }
        Shape::Json(_) | Shape::Tool(_) => Ok(()),
    }
}

/// The grammar of a schema, without free white space: small models lose themselves in it.
pub(super) fn of_schema(mut schema: Value) -> TopLevelGrammar {
    if let Some(object) = schema.as_object_mut() {
        object.insert("x-guidance".into(), json!({"whitespace_flexible": false}));
    }
    TopLevelGrammar::from_json_schema(schema)
}
