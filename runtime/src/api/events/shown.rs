//! An event as JSON: what happened, where, by whom and because of what, without what people and models write. The trace shows the
//! same of the entries, and more.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::hub::Event;
use super::rights::Owner;
use crate::api::App;

/// The maximum size of `what`, in bytes.
const WHAT_BYTES_MAX: usize = 300;
/// The maximum length of a text, in characters.
const TEXT_CHARS_MAX: usize = 100;
/// The maximum number of paths of a change of a canvas.
const PATHS_MAX: usize = 2;
/// The maximum number of changes of a canvas that are counted in a large entry.
const CHANGES_MAX: usize = 100;
/// The maximum number of causes.
const CAUSES_MAX: usize = 8;

/// The members of facts, calls and traces that are shown. An error is not: it may quote a model or a person.
const OF_JOB: [&str; 5] = ["attempt", "status", "type", "stage", "id"];
const OF_CALL: [&str; 4] = ["call", "model", "charged", "usage"];
const OF_TRACE: [&str; 4] = ["what", "status", "mode", "policy"];

/// Returns the JSON text of an event.
pub(super) async fn text(event: &Event, app: &App) -> String {
    let data: Value = serde_json::from_slice(&event.entry.data).unwrap_or_default();
    let fascicle = match &event.owner {
        Owner::Job(id, _) => app.fascicles.job(&id.as_ref().into()).await.ok().map(|head| head.fascicle),
        _ => None,
    };
    shown(event, &data, fascicle.as_deref()).to_string()
}

/// Returns the kind of an event, for example `job.started`.
pub(super) fn kind(stream: &str, kind: &str, data: &Value) -> String {
    let of = stream.split_once(':').map_or(stream, |(of, _)| of);
    match data["fact"].as_str().filter(|_| of == "job") {
        Some(fact) => format!("job.{fact}"),
        None => format!("{of}.{kind}"),
    }
}

fn shown(event: &Event, data: &Value, fascicle: Option<&str>) -> Value {
    let entry = &event.entry;
    let causes: Vec<_> = entry.cause.0.iter().rev().take(CAUSES_MAX).rev().collect();
    let mut shown = json!({
        "n": event.n,
        "ref": format!("{}@{}", event.stream, entry.seq),
        "at": entry.at,
        "by": entry.by,
        "cause": causes,
        "kind": kind(&event.stream, &entry.kind, data),
        "what": what(&event.stream, data),
    });
    let job = match &event.owner {
        Owner::Job(id, _) => Some(&**id),
        _ => None,
    };
    for (member, value) in [("lifeform", event.owner.lifeform()), ("job", job), ("fascicle", fascicle)] {
        if let Some(value) = value {
            shown[member] = value.into();
        }
    }
    if job.is_some() && !data["step"].is_null() {
        shown["step"] = cut(&data["step"]);
    }
    shown
}

/// Returns the part of the data of an entry from which an event is made, as JSON.
pub(super) fn reduced(stream: &str, data: &[u8]) -> Bytes {
    let data: Value = serde_json::from_slice(data).unwrap_or_default();
    let mut kept = Map::new();
    for member in ["fact", "step", "op", "balance", "held"].iter().chain(&OF_JOB).chain(&OF_CALL).chain(&OF_TRACE) {
        match (&data[*member], *member) {
            (Value::Null, _) => {}
            // Of a change of an account, its name.
            (Value::Object(op), "op") => {
                let names = op.keys().map(|name| (name.clone(), Value::Null));
                kept.insert((*member).to_owned(), Value::Object(names.collect()));
            }
            (value, _) => {
                kept.insert((*member).to_owned(), cut(value));
            }
        }
    }
    if stream.starts_with("canvas:") {
        let changes = data["patch"].as_array().map_or(&[][..], Vec::as_slice);
        let paths = changes.iter().map(|change| json!({"path": cut(&change["path"])}));
        kept = Map::from_iter([("patch".to_owned(), Value::Array(paths.take(CHANGES_MAX).collect()))]);
    }
    store::json(&kept)
}

/// Returns what is shown of the data of an entry.
fn what(stream: &str, data: &Value) -> Value {
    let picked = |members: &[&str]| -> Value {
        let known = members.iter().filter(|member| !data[**member].is_null());
        known.map(|member| ((*member).to_owned(), cut(&data[*member]))).collect::<Map<_, _>>().into()
    };
    let what = match stream.split_once(':').map_or(stream, |(of, _)| of) {
        "job" => picked(&OF_JOB),
        "calls" | "invocation" => picked(&OF_CALL),
        "trace" => picked(&OF_TRACE),
        "ledger" => {
            let op = data["op"].as_object().and_then(|op| op.keys().next().cloned());
            json!({"op": op, "balance": data["balance"], "held": data["held"]})
        }
        "canvas" => {
            let changes = data["patch"].as_array().map_or(&[][..], Vec::as_slice);
            let paths: Vec<Value> = changes.iter().map(|change| cut(&change["path"])).take(PATHS_MAX).collect();
            json!({"changes": changes.len(), "paths": paths})
        }
        // A mind is its owner's.
        _ => json!({}),
    };
    if what.to_string().len() > WHAT_BYTES_MAX { json!({"is_cut": true}) } else { what }
}

/// Returns a value with a long text cut.
fn cut(value: &Value) -> Value {
    match value {
        Value::String(text) if text.chars().count() > TEXT_CHARS_MAX => {
            text.chars().take(TEXT_CHARS_MAX).chain(['…']).collect::<String>().into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_and_models_write_is_not_shown() {
        let secret = "the code of the door is 4111";
        for (stream, data, is) in [
            ("job:lf.1", json!({"fact": "done", "step": "answer", "output": secret}), json!({})),
            (
                "job:lf.1",
                json!({"fact": "observed", "id": "evt_001", "type": "info", "stage": "answer", "message": secret, "metadata": {"x": secret}}),
                json!({"id": "evt_001", "type": "info", "stage": "answer"}),
            ),
            (
                "canvas:lf/chat",
                json!({"op": {"op": "say", "content": secret}, "patch": [{"op": "add", "path": "/topics/t/messages/m", "value": {"content": secret}}]}),
                json!({"changes": 1, "paths": ["/topics/t/messages/m"]}),
            ),
            (
                "calls:lf",
                json!({"call": "c", "model": "m", "provider": "p", "messages": [secret]}),
                json!({"call": "c", "model": "m"}),
            ),
            ("nexus:lf", json!({"commands": [secret]}), json!({})),
            ("trace:lf", json!({"what": "started", "goals": [{"title": secret}]}), json!({"what": "started"})),
            (
                "ledger:lf",
                json!({"op": {"credit": 1}, "memo": secret, "balance": {"tokens": 1}, "held": {}}),
                json!({"op": "credit", "balance": {"tokens": 1}, "held": {}}),
            ),
        ] {
            assert_eq!(what(stream, &data), is, "{stream} {data}");
        }
    }

    #[test]
    fn what_is_shown_is_short() {
        let long = json!({"fact": "failed", "step": "answer", "error": "é".repeat(5_000), "status": "é".repeat(5_000)});
        let shown = what("job:lf.1", &long);
        assert_eq!(shown["status"].as_str().unwrap().chars().count(), TEXT_CHARS_MAX + 1);
        assert!(shown["error"].is_null());
        let many = json!({"call": "c".repeat(99), "model": "m".repeat(99), "usage": "p".repeat(99)});
        assert_eq!(what("calls:lf", &many), json!({"is_cut": true}));
        for (stream, data) in [
            ("job:lf.1", &long),
            ("ledger:lf", &json!({"op": {"credit": 1}, "memo": "m".repeat(5_000), "balance": {}, "held": {}})),
        ] {
            let kept: Value = serde_json::from_slice(&reduced(stream, data.to_string().as_bytes())).unwrap();
            assert_eq!(what(stream, &kept), what(stream, data), "{stream}");
            assert!(kept.to_string().len() < 400);
        }
        assert_eq!(kind("job:lf.1", "fact", &long), "job.failed");
        assert_eq!(kind("calls:lf", "sent", &many), "calls.sent");
    }
}
