//! The KIP command that writes a record.

use std::fmt::Write;

use nexus::kip::Call;
use nexus::kip::graph::SCOPES_KEY;
use nexus::{OWNER_KEY, PROVENANCE_KEY};
use serde_json::{Map, Value, json};
use store::Origin;

use crate::draft::{Body, Draft};
use crate::links::write_links;
use crate::record::{CONFIDENCE, EXTRA_KEY, KIND, KP_ID_KEY, SOURCE_KEY, Type, UNIT_KEY};
use crate::unit::Form;

/// Returns the metadata of a new record.
pub(super) fn metadata(draft: &Draft, origin: &Origin) -> Value {
    let Draft { owner, scopes, score, confidence, first_case, message_id, source, provenance, .. } = draft;
    let mut metadata = json!({
        "source": said_source(source, owner), "author": origin.principal.id, OWNER_KEY: owner, SCOPES_KEY: scopes,
        "score": score, "helpful": u64::from(first_case.is_some()), "harmful": 0,
        "confidence": confidence.unwrap_or(CONFIDENCE), "status": "active",
    });
    let evidence = evidence(source);
    for (key, value) in [("message_id", json!(message_id)), (SOURCE_KEY, json!(source)), ("evidence", json!(evidence))]
    {
        if !is_empty(&value) {
            metadata[key] = value;
        }
    }
    if let Some(provenance) = provenance {
        metadata[PROVENANCE_KEY] = provenance.to_json();
    }
    metadata
}

pub(crate) fn call(command: String, parameters: Value) -> Call {
    let parameters = match parameters {
        Value::Object(parameters) => parameters,
        _ => Map::new(),
    };
    Call { command, parameters }
}

/// Returns the command that writes the content of `body` and the metadata to a record.
pub(crate) fn upsert(id: &str, expect: &str, body: &Body, metadata: &Value, whose: (&str, &[String])) -> Call {
    let mut parameters = Map::new();
    parameters.insert("id".into(), id.into());
    let mut text = format!("UPSERT {{\n  CONCEPT ?k {{\n    {{type: \"{KIND}\", name: $id}} {expect}\n");
    let attributes = attributes(body);
    write_object(&mut text, "    SET ATTRIBUTES", "a_", &attributes, &mut parameters);
    text.push_str("  }");
    let metadata = metadata.as_object().cloned().unwrap_or_default();
    write_object(&mut text, " WITH METADATA", "m_", &metadata, &mut parameters);
    text.push('\n');
    if let Some(resources) = body.resource_ids.as_ref().filter(|resources| !resources.is_empty()) {
        write_links(&mut text, resources, whose, &mut parameters);
    }
    text.push('}');
    Call { command: text, parameters }
}

/// Adds an object with parameters as its values to a command.
pub(crate) fn write_object(
    text: &mut String,
    before: &str,
    prefix: &str,
    values: &Map<String, Value>,
    parameters: &mut Map<String, Value>,
) {
    if values.is_empty() {
        return;
    }
    let _ = write!(text, "{before} {{ ");
    for (at, (key, value)) in values.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{key}: ${prefix}{key}");
        parameters.insert(format!("{prefix}{key}"), value.clone());
    }
    text.push_str(" }\n");
}

/// Returns the attributes that a body sets. Parts that are `None` keep their attributes.
pub(super) fn attributes(body: &Body) -> Map<String, Value> {
    let mut attributes = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            attributes.insert(key.to_owned(), value);
        }
    };
    set("task", body.task.clone().map(Value::from));
    set("content", body.content.clone().map(Value::from));
    set("types", body.types.as_ref().map(|types| types.iter().map(|one: &Type| one.as_str()).collect()));
    set("tags", body.tags.clone().map(Value::Object));
    set("resource_ids", body.resource_ids.clone().map(Value::from));
    set(EXTRA_KEY, Some(Value::Object(body.extra.clone())).filter(|extra| !is_empty(extra)));
    if let Some(unit) = &body.unit {
        set("form", unit["@type"].as_str().and_then(Form::parse).map(|(form, _)| form.as_str().into()));
        set(KP_ID_KEY, Some(unit["id"].clone()));
        set(UNIT_KEY, Some(unit.clone()));
    }
    set("context", body.context.clone().map(Value::from));
    attributes
}

/// Returns KIP's `source` of a record, one word for its source.
pub(super) fn said_source(source: &Map<String, Value>, owner: &str) -> String {
    let members = ["name", "message_id", "trace_id", "submitted_by", "agent_id"];
    members.iter().find_map(|key| source.get(*key)?.as_str()).unwrap_or(owner).to_owned()
}

/// Returns KIP's `evidence` of a record.
pub(super) fn evidence(source: &Map<String, Value>) -> Vec<String> {
    let mut evidence: Vec<String> = Vec::new();
    for (key, mark) in [("message_id", "msg:"), ("trace_id", "trace:")] {
        evidence.extend(source.get(key).and_then(Value::as_str).map(|id| format!("{mark}{id}")));
    }
    evidence.extend(
        source
            .get("urls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|url| url.as_str().map(str::to_owned)),
    );
    evidence
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}
