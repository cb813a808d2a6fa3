//! Public export formats of other memory systems: mem0 (the response of `get_all`, docs.mem0.ai "Get all memories") and
//! Letta (agent files, github.com/letta-ai/agent-file, and lists of archival passages).

use serde_json::{Map, Value, json};

use super::Records;

/// The maximum length of a task that is derived from a content, in characters.
const TASK_CHARS: usize = 120;

fn text<'v>(value: &'v Value, keys: &[&str]) -> Option<&'v str> {
    keys.iter().find_map(|key| value[*key].as_str()).map(str::trim).filter(|text| !text.is_empty())
}

/// Returns a one-line task for a content.
fn task_of(content: &str) -> String {
    content.lines().next().unwrap_or_default().chars().take(TASK_CHARS).collect()
}

fn record(record: Value) -> Map<String, Value> {
    match record {
        Value::Object(record) => record,
        _ => Map::new(),
    }
}

/// Returns the source of an item, as far as the export contains it.
fn source(of: &str, item: &Value) -> Value {
    let mut source = json!({"name": of, "category": "exp"});
    for (member, keys) in [("trace_id", ["id", "memory_id"]), ("timestamp", ["created_at", "createdAt"])] {
        if let Some(said) = text(item, &keys) {
            source[member] = said.into();
        }
    }
    source
}

/// Reads the memories of mem0: `{"results": [{id, memory, user_id?, agent_id?, categories?, metadata?, created_at?}]}`
/// or only the list.
pub(super) fn mem0(document: &Value) -> Result<Records, String> {
    let list = document["results"]
        .as_array()
        .or(document.as_array())
        .ok_or("is {\"results\": [memory, …]} or a list of them")?;
    let read = |item: &Value| {
        let content = text(item, &["memory", "text", "data"]).ok_or("has no memory")?;
        let mut made = record(json!({
            "task": task_of(content), "content": content, "types": ["definition"], "source": source("mem0", item),
        }));
        for (member, entity, kind) in [("agent_id", "agent", "definition"), ("user_id", "user", "user_profile")] {
            if let Some(id) = text(item, &[member]) {
                made.insert("scopes".to_owned(), json!([format!("{entity}:{id}")]));
                made.insert("types".to_owned(), json!([kind]));
            }
        }
        let mut tags = Map::new();
        if let Some(category) = item["categories"].as_array().and_then(|all| all.first()?.as_str()) {
            tags.insert("category".to_owned(), category.into());
        }
        if !tags.is_empty() {
            made.insert("tags".to_owned(), Value::Object(tags));
        }
        // Unknown metadata is kept unchanged.
        made.extend(item["metadata"].as_object().map(|metadata| ("mem0".to_owned(), json!(metadata))));
        Ok(made)
    };
    Ok(list.iter().map(read).collect())
}

/// Reads the blocks of a Letta agent file, `{"blocks": [{label, value}]}` or `{"core_memory": […]}`; or archival
/// passages, `[{text}]`.
pub(super) fn letta(document: &Value) -> Result<Records, String> {
    let blocks = document["blocks"].as_array().or(document["core_memory"].as_array());
    let passages = document["passages"].as_array().or(document.as_array());
    if blocks.is_none() && passages.is_none() {
        return Err("is an agent file with \"blocks\", or a list of passages".to_owned());
    }
    let block = |block: &Value| {
        let label = text(block, &["label", "name"]).unwrap_or("block");
        if block.get("value").is_some_and(|value| !value.is_string() && !value.is_null()) {
            return Some(Err("has a value that is no text".to_owned()));
        }
        // Empty blocks are skipped.
        let value = text(block, &["value"])?;
        let kind = if label == "human" { "user_profile" } else { "definition" };
        let task = text(block, &["description"]).unwrap_or(label);
        Some(Ok(record(json!({"task": task, "content": value, "types": [kind], "source": source("letta", block)}))))
    };
    let passage = |passage: &Value| {
        let content = text(passage, &["text", "content"]).ok_or("has no text")?;
        Ok(record(json!({
            "task": task_of(content), "content": content, "types": ["definition"], "source": source("letta", passage),
        })))
    };
    let blocks = blocks.into_iter().flatten().filter_map(block);
    Ok(blocks.chain(passages.into_iter().flatten().map(passage)).collect())
}
