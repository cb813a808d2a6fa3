//! The search of a model among the tools that it is not shown, because there are too many. Plain functions: the journal of the
//! conversation says what was found.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::ToolCard;
use crate::llm::ChatMessage;

/// The tool by which a model finds further tools. Neurons that see all of their tools do not have it.
pub(crate) const TOOL_FIND: &str = "tool_find";
/// The maximum number of tools that one search returns.
const FOUND_MAX: usize = 10;
/// The maximum number of searches of one invocation.
pub(crate) const SEARCHES_MAX: usize = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    query: String,
}

/// The result of a search.
#[derive(Deserialize)]
struct Found {
    tools: Vec<String>,
}

/// Returns the definition of `tool_find` for a model that does not see `left` of its tools.
pub(crate) fn definition(left: usize) -> Value {
    let parameters = json!({
        "type": "object",
        "required": ["query"],
        "additionalProperties": false,
        "properties": {"query": {"type": "string", "maxLength": 200}},
    });
    let description = format!("Finds more tools by what they do, if none here fits. {left} are not shown.");
    json!({"type": "function", "function": {"name": TOOL_FIND, "description": description, "parameters": parameters}})
}

/// Returns the words to search for.
///
/// # Errors
/// A sentence for the model.
pub(crate) fn query_of(params: &str) -> Result<String, String> {
    let asked: Asked = serde_json::from_str(params).map_err(|error| format!("the parameters do not fit: {error}"))?;
    match asked.query.trim() {
        "" => Err("query is empty: say what the tool should do".into()),
        query => Ok(query.chars().take(200).collect()),
    }
}

/// Returns the result of a search: the first cards of an order.
pub(crate) fn result_of<'c>(cards: impl Iterator<Item = &'c ToolCard>) -> String {
    json!({"tools": cards.take(FOUND_MAX).map(|card| &*card.line).collect::<Vec<_>>()}).to_string()
}

/// Returns the names of the tools that the searches of a conversation found. They are shown from then on.
pub(crate) fn found(messages: &[ChatMessage]) -> BTreeSet<String> {
    let results = searches(messages).filter_map(|id| {
        let result = messages.iter().find(|message| message.tool_call_id.as_deref() == Some(id))?;
        serde_json::from_str::<Found>(result.content.as_deref()?).ok()
    });
    let name = |line: String| line.split('(').next().unwrap_or_default().to_owned();
    results.flat_map(|found| found.tools).map(name).collect()
}

/// Returns the ids of the calls that searched.
pub(crate) fn searches(messages: &[ChatMessage]) -> impl Iterator<Item = &str> {
    let calls = messages.iter().filter_map(|message| message.tool_calls.as_ref()).flatten();
    calls.filter(|call| call.function.name == TOOL_FIND).map(|call| &*call.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_words() {
        assert_eq!(query_of(r#"{"query": " book a train "}"#).unwrap(), "book a train");
        assert!(query_of(r#"{"query": " "}"#).unwrap_err().contains("empty"));
        assert!(query_of(r#"{"query": "x", "most": 3}"#).unwrap_err().contains("most"));
    }

    #[test]
    fn what_was_found_is_read_from_the_results() {
        let call = json!([{"id": "c1", "type": "function", "function": {"name": TOOL_FIND, "arguments": "{}"}}]);
        let message = |value: Value| serde_json::from_value::<ChatMessage>(value).unwrap();
        let asked = message(json!({"role": "assistant", "tool_calls": call}));
        let result = json!({"tools": ["rail_book(train, seat?)! Books a seat.", "rail_list() Lists trains (all)."]});
        let said = message(json!({"role": "tool", "tool_call_id": "c1", "content": result.to_string()}));
        let other = message(json!({"role": "tool", "tool_call_id": "c2", "content": result.to_string()}));
        assert_eq!(found(&[asked.clone(), said]), ["rail_book".to_owned(), "rail_list".to_owned()].into());
        assert!(found(&[asked.clone(), other]).is_empty(), "a result of another tool finds nothing");
        assert_eq!(searches(&[asked]).count(), 1);
    }
}
