//! The conversion between units and records.

use serde_json::{Map, Value, json};

use super::versions::context_of;
use super::{Form, Vocabulary, id_of};
use crate::draft::{CONTENT_CHARS_MAX, TASK_CHARS_MAX};
use crate::record::{Record, Type};
use crate::scope::Visibility;

/// The maximum length of a name, in characters.
const NAME_CHARS_MAX: usize = 120;

/// Returns the situation to which a unit applies.
pub(crate) fn task_of(form: Form, unit: &Value) -> String {
    let text = |pointer: &str| unit.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let said = match form {
        Form::Trace => text("/task/objective").to_owned(),
        Form::Pattern => {
            let described = if text("/description").is_empty() { text("/name") } else { text("/description") };
            format!("{described} ({})", text("/trigger_conditions/task_types/0"))
        }
        Form::Sop => text("/name").to_owned(),
    };
    if said.trim().is_empty() { "unnamed".to_owned() } else { said }
}

/// Returns the content of a unit as plain lines.
pub(crate) fn content_of(form: Form, unit: &Value) -> String {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let items = |key: &str| unit[key].as_array().cloned().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    match form {
        Form::Trace => {
            for step in items("steps") {
                let said = [text(&step, "content"), text(&step["tool"], "name"), text(&step, "output_summary")];
                let said: Vec<String> = said.into_iter().filter(|part| !part.is_empty()).collect();
                lines.push(format!("[{}] {}", text(&step, "type").to_uppercase(), said.join(" → ")));
            }
            lines.push(text(&unit["outcome"], "result_summary"));
            let learned = &unit["knowledge_graph_delta"];
            let entity = |entity: &Value| format!("{} ({})", text(entity, "name"), text(entity, "type"));
            let entities: Vec<String> = learned["entities"].as_array().into_iter().flatten().map(entity).collect();
            lines.push(entities.join(", "));
            lines.extend(learned["relationships"].as_array().into_iter().flatten().map(|said| text(said, "fact")));
        }
        Form::Pattern => {
            lines.push(text(unit, "name"));
            for step in items("tool_sequence") {
                let tools: Vec<String> =
                    step["tools"].as_array().into_iter().flatten().map(|tool| text(tool, "name")).collect();
                let tools = if tools.is_empty() { String::new() } else { format!(" ({})", tools.join(", ")) };
                lines.push(format!("{}{tools}", text(&step, "step")));
            }
        }
        Form::Sop => {
            for step in items("decision_tree") {
                lines.push(format!("{}: {}", text(&step, "step"), text(&step, "instruction")));
                for (condition, what) in step["conditions"].as_object().into_iter().flatten() {
                    lines.push(format!("  {condition} → {}", text(what, "action")));
                }
            }
        }
    }
    lines.retain(|line| !line.trim().is_empty());
    if lines.is_empty() { task_of(form, unit) } else { lines.join("\n") }
}

/// Returns the task and the content of the record for a unit.
pub(crate) fn said(form: Form, unit: &Value) -> (String, String) {
    let cut = |text: String, chars_max: usize| match text.char_indices().nth(chars_max) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    };
    (cut(task_of(form, unit), TASK_CHARS_MAX), cut(content_of(form, unit), CONTENT_CHARS_MAX))
}

/// Returns a record as a unit of version 1 in the given vocabulary: the contributed document, unless the record was
/// changed since.
pub(crate) fn document(record: &Record, words: Option<Vocabulary>) -> Value {
    let form = Form::of(record);
    let contributed = record.unit.as_ref();
    let words = words.unwrap_or_else(|| {
        let said = contributed.and_then(|unit| Form::parse(unit["@type"].as_str()?));
        said.map_or_else(Vocabulary::default, |(_, words)| words)
    });
    let mut unit = contributed.cloned().unwrap_or_else(|| json!({}));
    let is_as_it_came =
        contributed.is_some_and(|unit| said(form, unit) == (record.task.clone(), record.content.clone()));
    if !is_as_it_came {
        let mut said = Map::new();
        body(form, record, &unit, &mut said);
        for (member, value) in said {
            unit[member] = value;
        }
    }
    if contributed.is_none() || unit.get("@context").is_none() {
        unit["@context"] = context_of(1).into();
    }
    unit["@type"] = form.type_in(words).into();
    unit["id"] = id_of(record).into();
    let mut metadata = unit["metadata"].as_object().cloned().unwrap_or_default();
    let mut default = |key: &str, value: Value| {
        metadata.entry(key).or_insert(value);
    };
    default("created_at", record.created_at.to_string().into());
    let domain = record.tags.get("domain").and_then(Value::as_str).filter(|domain| !domain.is_empty());
    default("task_domain", domain.unwrap_or("general").into());
    default("success", (record.eval.harmful <= record.eval.helpful).into());
    default("privacy_level", "aggregated".into());
    if record.owner.starts_with("agent:") {
        default("agent_id", format!("kp:{}", record.owner).into());
    }
    // Judgements by users count more than the contributor's claim.
    let quality = quality(record);
    if metadata.get("quality_score").and_then(Value::as_f64) != Some(quality) {
        metadata.insert("quality_score".into(), json!(quality));
    }
    metadata.insert("visibility".into(), visibility(record).into());
    match record.validated_by.is_empty() {
        true => drop(metadata.shift_remove("validated_by")),
        false => drop(metadata.insert("validated_by".into(), json!(record.validated_by))),
    }
    metadata.insert("record_id".into(), record.id.as_str().into());
    let counted = json!({"helpful": record.eval.helpful, "harmful": record.eval.harmful});
    metadata.insert("feedback".into(), counted);
    unit["metadata"] = Value::Object(metadata);
    unit
}

/// Adds the members for the content of a record to a complete unit.
fn body(form: Form, record: &Record, before: &Value, said: &mut Map<String, Value>) {
    let name: String = record.task.chars().take(NAME_CHARS_MAX).collect();
    // A KIP client may omit members that the protocol requires.
    let name = if name.trim().is_empty() { record.id.clone() } else { name };
    let kept = |key: &str, otherwise: Value| before.get(key).cloned().unwrap_or(otherwise);
    let mut set = |key: &str, value: Value| drop(said.insert(key.to_owned(), value));
    match form {
        Form::Trace => {
            // A KIP client may write any value.
            let mut task = before.get("task").and_then(Value::as_object).cloned().unwrap_or_default();
            let objective = if record.task.is_empty() { &name } else { &record.task };
            task.insert("objective".to_owned(), objective.as_str().into());
            set("task", task.into());
            set("steps", json!([{"step_id": 0, "type": "thought", "content": record.content}]));
            set("outcome", json!({"result_summary": record.content, "confidence": record.eval.confidence}));
        }
        Form::Pattern => {
            let (helpful, uses) = (record.eval.helpful as f64, record.eval.helpful + record.eval.harmful);
            let rate = if uses > 0 { helpful / uses as f64 } else { record.eval.confidence };
            let kind = record.tags.get("domain").and_then(Value::as_str).unwrap_or(record.types[0].as_str());
            set("name", name.into());
            set("description", record.task.as_str().into());
            set("trigger_conditions", kept("trigger_conditions", json!({"task_types": [kind]})));
            set("tool_sequence", json!([{"step": record.content, "execution": "sequential", "tools": []}]));
            set("performance", kept("performance", json!({"avg_ms": 0, "success_rate": rate, "uses": uses})));
        }
        Form::Sop => {
            let lines: Vec<&str> = record.content.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let lines = if lines.is_empty() { vec![name.as_str()] } else { lines };
            let steps: Vec<Value> = lines
                .iter()
                .enumerate()
                .map(|(at, line)| json!({"step": (at + 1).to_string(), "instruction": line}))
                .collect();
            let expert = json!({"type": "human_expert", "expert_id": record.owner, "credentials": []});
            set("name", name.as_str().into());
            set("domain", kept("domain", record.tags.get("domain").cloned().unwrap_or_else(|| "general".into())));
            set("source", kept("source", expert));
            set("decision_tree", steps.into());
        }
    }
}

/// Returns the quality of a record from 0 to 1. It uses the same evidence as the record's own quality and has the same
/// order. The contributor's claim counts until a principal validates the unit.
pub fn quality(record: &Record) -> f64 {
    let eval = &record.eval;
    let claimed = record.unit.as_ref().and_then(|unit| unit.pointer("/metadata/quality_score")?.as_f64());
    if let Some(claimed) =
        claimed.filter(|claimed| score_of(*claimed) == eval.score && eval.helpful + eval.harmful == 0)
    {
        return claimed;
    }
    let (helpful, harmful) = (eval.helpful as f64, eval.harmful as f64);
    (((eval.score - 1.0) + helpful) / (4.0 + helpful + 2.0 * harmful)).clamp(0.0, 1.0)
}

/// Returns the score of a record with that quality. The quality is from 0 to 1.
pub(crate) fn score_of(quality: f64) -> f64 {
    (1.0 + 4.0 * quality).round()
}

/// Returns the visibility of a record as a word of the unit protocol. Profiles are private.
pub fn visibility(record: &Record) -> &'static str {
    match record.visibility {
        _ if record.types.contains(&Type::UserProfile) => "private",
        Visibility::Public => "network",
        Visibility::Org | Visibility::Shared => "org",
        Visibility::Private => "private",
    }
}
