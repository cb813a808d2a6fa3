//! The definitions of given tools in as many tokens as a prompt has room for. Calls are checked against the whole schema. Plain
//! functions.

use serde_json::{Map, Value, json};

use crate::spec::tokens_about;

/// The maximum length of a member's description that is cut, in characters.
const MEMBER_CHARS: usize = 60;
/// The number of values of a long enumeration that are shown.
const VALUES_SHOWN: usize = 6;
/// The maximum length of a tool's description that is cut, in characters: at first, and in the end.
const TEXT_CHARS: usize = 1_000;
const TOOL_CHARS: usize = 240;

/// One way to shorten a definition.
#[derive(Clone, Copy, PartialEq)]
enum Cut {
    /// The description of the tool is cut to its beginning.
    Text,
    /// Descriptions of members are cut, and examples removed.
    Long,
    /// Descriptions of members are removed.
    Members,
    /// Of a long enumeration the first values are shown.
    Values,
    /// The description of the tool is cut to a few words.
    Tool,
}

/// Returns an estimate of the tokens of definitions.
pub(crate) fn tokens_of<'t>(tools: impl IntoIterator<Item = &'t Value>) -> usize {
    tools.into_iter().map(|tool| tokens_about(&tool["function"].to_string())).sum()
}

/// The ways to shorten one definition, in the order in which they are used.
const CUTS: [Cut; 5] = [Cut::Text, Cut::Long, Cut::Members, Cut::Values, Cut::Tool];

/// Shortens the definitions of tools for a model, in the form of the OpenAI API, until they have at most `most` tokens or there is
/// nothing left that a model could do without. The longest is cut first.
pub(crate) fn shorten(tools: &mut [&mut Value], most: usize) {
    let mut sizes: Vec<(usize, usize)> = tools.iter().map(|tool| (tokens_of([&**tool]), 0)).collect();
    while sizes.iter().map(|(tokens, _)| tokens).sum::<usize>() > most {
        let open = sizes.iter().enumerate().filter(|(_, (_, cuts))| *cuts < CUTS.len());
        let Some((place, (_, cuts))) = open.max_by_key(|(_, (tokens, _))| *tokens).map(|(place, size)| (place, *size))
        else {
            return;
        };
        let function = &mut tools[place]["function"];
        match CUTS[cuts] {
            Cut::Text => shorten_text(&mut function["description"], TEXT_CHARS),
            Cut::Tool => shorten_text(&mut function["description"], TOOL_CHARS),
            cut => of_members(&mut function["parameters"], cut),
        }
        sizes[place] = (tokens_of([&*tools[place]]), cuts + 1);
    }
}

fn shorten_text(text: &mut Value, most: usize) {
    if let Some(long) = text.as_str().filter(|text| text.chars().count() > most) {
        *text = Value::String(long.chars().take(most).chain(['…']).collect());
    }
}

/// Shortens the schemas within a schema. Its own description says nothing that the tool's does not.
fn of_members(schema: &mut Value, cut: Cut) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(|schema| of_members(schema, cut)),
        Value::Object(members) => {
            of_one(members, cut);
            for (keyword, inner) in members.iter_mut() {
                match (keyword.as_str(), inner) {
                    // Here the names are those of members or definitions, which may be called "description".
                    ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(named)) => {
                        named.values_mut().for_each(|schema| of_members(schema, cut));
                    }
                    ("items" | "additionalProperties" | "anyOf" | "oneOf" | "allOf" | "prefixItems" | "not", inner) => {
                        of_members(inner, cut);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn of_one(schema: &mut Map<String, Value>, cut: Cut) {
    match cut {
        Cut::Long => {
            for idle in ["examples", "example", "title", "$comment", "default"] {
                schema.remove(idle);
            }
            if let Some(description) = schema.get_mut("description") {
                shorten_text(description, MEMBER_CHARS);
            }
        }
        Cut::Members => drop(schema.remove("description")),
        Cut::Values => {
            let long = schema.get("enum").and_then(Value::as_array).filter(|values| values.len() > VALUES_SHOWN * 2);
            let Some(values) = long else { return };
            let shown: Vec<String> = values.iter().take(VALUES_SHOWN).map(Value::to_string).collect();
            let note = format!("one of {} values: {}, …", values.len(), shown.join(", "));
            schema.remove("enum");
            schema.insert("description".into(), json!(note));
        }
        Cut::Text | Cut::Tool => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(parameters: Value) -> Value {
        let description = "Books a berth. ".repeat(40);
        json!({"type": "function", "function": {"name": "book", "description": description, "parameters": parameters}})
    }

    fn shortened(tool: &Value, most: usize) -> Value {
        let mut tool = tool.clone();
        shorten(&mut [&mut tool], most);
        tool
    }

    #[test]
    fn what_a_model_can_do_without_goes_first() {
        let long = "The day of arrival, in the time of the harbour. ".repeat(12);
        let quays: Vec<String> = (0..200).map(|n| format!("quay-{n}")).collect();
        let whole = tool(json!({
            "type": "object", "required": ["day", "description"], "additionalProperties": false,
            "properties": {
                "day": {"type": "string", "description": long, "examples": ["2026-11-03"]},
                "description": {"type": "string", "description": long},
                "quay": {"enum": quays},
                "size": {"enum": ["s", "m", "l"], "description": "The size."},
                "crew": {"type": "array", "items": {"type": "object", "properties": {"name": {"description": long}}}},
            },
        }));
        assert_eq!(shortened(&whole, 10_000), whole, "what fits stays as it is");
        let cut = shortened(&whole, tokens_of([&whole]) - 50);
        let members = &cut["function"]["parameters"]["properties"];
        assert_eq!(members["day"]["description"].as_str().unwrap().chars().count(), MEMBER_CHARS + 1);
        assert_eq!(
            (&members["day"]["examples"], &members["quay"]),
            (&Value::Null, &whole["function"]["parameters"]["properties"]["quay"])
        );
        let least = shortened(&whole, 0);
        let members = &least["function"]["parameters"]["properties"];
        assert!(members.get("description").is_some(), "a member of this name stays");
        assert_eq!(members["crew"]["items"]["properties"]["name"], json!({}));
        assert_eq!(members["size"], json!({"enum": ["s", "m", "l"]}), "a short enumeration stays");
        let note = members["quay"]["description"].as_str().unwrap();
        assert!(note.starts_with("one of 200 values: \"quay-0\"") && members["quay"].get("enum").is_none(), "{note}");
        assert!(tokens_of([&least]) < 200, "{}", tokens_of([&least]));
        assert_eq!(least["function"]["parameters"]["required"], json!(["day", "description"]));
        // A tool that takes the room of the others is cut, and the others are not.
        let mut large = tool(json!({"type": "object"}));
        large["function"]["description"] = "Reads. ".repeat(2_000).into();
        let mut small = tool(json!({"type": "object", "properties": {"day": {"description": "The day of arrival."}}}));
        let before = small.clone();
        shorten(&mut [&mut large, &mut small], 700);
        assert!(small == before && tokens_of([&large]) < 300);
    }
}
