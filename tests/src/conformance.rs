//! Runs conformance cases against anything that answers a KIP request. The format is explained beside the
//! cases; how results are compared is that of the project the cases come from.

use std::collections::BTreeMap;
use std::future::Future;

use serde_json::{Map, Value, json};

/// The 223 cases: 150 follow from the text of draft7 alone, 73 from a reading of it.
pub const CASES: &str = include_str!("../data/kip-conformance.jsonl");

/// The kinds an error may be told by.
const KINDS: [(&str, &[&str]); 7] = [
    ("syntax", &["KIP_1", "syntax"]),
    ("reference", &["KIP_3001", "reference"]),
    ("schema", &["KIP_200", "schema"]),
    ("not_found", &["KIP_3002", "not_found"]),
    ("immutable", &["KIP_3004", "immutable"]),
    ("parameter", &["parameter", "KIP_1"]),
    ("execution", &["KIP_4", "execution"]),
];

/// Runs every case, each on a nexus that `fresh` answers; panics with what differed.
pub async fn run<N, A>(fresh: impl AsyncFn() -> N, ask: impl Fn(N, Value) -> A) -> usize
where
    N: Clone,
    A: Future<Output = Value>,
{
    let (mut passed, mut failed) = (0, Vec::new());
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let nexus = fresh().await;
        let why = one(&case, &async |request| ask(nexus.clone(), request).await).await;
        if why.is_empty() {
            passed += 1;
        } else {
            failed.push(format!("{}: {}", case["id"], why.join("; ")));
        }
    }
    assert!(failed.is_empty(), "{passed} pass, {} fail\n{}", failed.len(), failed.join("\n"));
    passed
}

async fn one(case: &Value, ask: &impl AsyncFn(Value) -> Value) -> Vec<String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for step in case["setup"].as_array().into_iter().flatten() {
        let request = if step.is_string() { json!({"command": step}) } else { filled(&request_of(step), &known) };
        let answer = ask(filled(&request, &known)).await;
        if answer.get("error").is_some() {
            return vec![format!("setup: {}", answer["error"])];
        }
        for (name, pointer) in step["save"].as_object().into_iter().flatten() {
            let found = answer.pointer(pointer.as_str().unwrap_or_default()).cloned().unwrap_or_default();
            known.insert(name.clone(), found.as_str().map_or_else(|| found.to_string(), str::to_owned));
        }
    }
    let pages = case["expect"]["pages"].clone();
    let expect = filled(&case["expect"], &known);
    let answer = ask(filled(&request_of(case), &known)).await;
    let mut why = check(&expect, &answer);
    if why.is_empty() && !pages.is_null() {
        why = check_pages(&pages, answer, ask).await;
    }
    for step in case["then"].as_array().into_iter().flatten() {
        let answer = ask(filled(&json!({"command": step["command"]}), &known)).await;
        why.extend(check(&filled(&step["expect"], &known), &answer).into_iter().map(|why| format!("then {why}")));
    }
    why
}

fn request_of(step: &Value) -> Value {
    let wanted = ["command", "parameters", "dry_run"];
    let members = step.as_object().into_iter().flatten().filter(|(key, _)| wanted.contains(&key.as_str()));
    Value::Object(members.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// `${name}` replaced by what was saved.
fn filled(value: &Value, known: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => {
            known.iter().fold(text.clone(), |text, (name, found)| text.replace(&format!("${{{name}}}"), found)).into()
        }
        Value::Array(items) => items.iter().map(|item| filled(item, known)).collect(),
        Value::Object(members) => members.iter().map(|(key, item)| (key.clone(), filled(item, known))).collect(),
        other => other.clone(),
    }
}

fn is_kind(kinds: &Value, error: &Value) -> bool {
    let told = format!("{} {}", error["code"], error["kind"]);
    let signs = |kind: &str| KINDS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, signs)| signs);
    kinds.as_str().unwrap_or_default().split('|').any(|kind| signs(kind).iter().any(|sign| told.contains(sign)))
}

fn same(want: &Value, got: &Value) -> bool {
    match (want, got) {
        (Value::String(text), _) if text.starts_with('<') && text.ends_with('>') => match text.as_str() {
            "<any>" => true,
            "<string>" => got.is_string(),
            "<number>" => got.is_number(),
            "<object>" => got.is_object(),
            "<array>" => got.is_array(),
            _ => want == got,
        },
        (Value::Number(a), Value::Number(b)) => {
            matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if (a - b).abs() < 1e-9)
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().all(|(key, value)| {
            let bag = (["attributes", "metadata"].contains(&key.as_str())
                && value.is_object()
                && wanted.contains_key("type"))
                || (key == "metadata" && wanted.contains_key("predicate"));
            if !bag {
                return found.get(key).is_some_and(|got| same(value, got));
            }
            let empty = Map::new();
            let have = found.get(key).and_then(Value::as_object).unwrap_or(&empty);
            let schema =
                key == "attributes" && matches!(wanted["type"].as_str(), Some("$ConceptType" | "$PropositionType"));
            let keys = have.keys().filter(|key| !key.starts_with('_')).count();
            let value = value.as_object().unwrap_or(&empty);
            (schema || keys == value.len())
                && value.iter().all(|(key, want)| have.get(key).is_some_and(|got| same(want, got)))
        }),
        _ => want == got,
    }
}

fn same_unordered(want: &Value, got: &Value) -> bool {
    let (Some(want), Some(got)) = (want.as_array(), got.as_array()) else { return false };
    let mut rest: Vec<&Value> = got.iter().collect();
    want.len() == got.len()
        && want.iter().all(|want| match rest.iter().position(|got| same(want, got)) {
            Some(at) => {
                rest.remove(at);
                true
            }
            None => false,
        })
}

fn names(result: &Value) -> Vec<Value> {
    let name = |one: &Value| match one {
        Value::Object(members) => members.get("name").cloned().unwrap_or_default(),
        Value::Array(cells) => cells.first().cloned().unwrap_or_default(),
        other => other.clone(),
    };
    result.as_array().into_iter().flatten().map(name).collect()
}

fn check(expect: &Value, answer: &Value) -> Vec<String> {
    let mut why = Vec::new();
    let error = answer.get("error");
    let list = |key: &str| expect[key].as_array().cloned().unwrap_or_default();
    if expect["ok"] == false {
        let Some(error) = error else {
            let also = expect.get("also_ok_result").is_some_and(|also| same(also, &answer["result"]));
            return if also { why } else { vec![format!("an error was expected, not {}", answer["result"])] };
        };
        if !is_kind(&expect["error_contains_kind"], error) {
            why.push(format!("{error} is not of kind {}", expect["error_contains_kind"]));
        }
        let exact = expect.get("response_keys_exact").is_some_and(|keys| {
            json!(answer.as_object().into_iter().flatten().map(|(key, _)| key).collect::<Vec<_>>()) != *keys
        });
        if exact {
            why.push(format!("members {answer}"));
        }
        return why;
    }
    if let Some(error) = error {
        let also = expect.get("also_ok_error").is_some_and(|kinds| is_kind(kinds, error));
        return if also { why } else { vec![format!("unexpected {error}")] };
    }
    let mut result = &answer["result"];
    if expect["unwrap_single"] == true && result.as_array().is_some_and(|list| list.len() == 1) {
        result = &result[0];
    }
    if let Some(want) = expect.get("result") {
        let equal = if expect["unordered"] == true { same_unordered(want, result) } else { same(want, result) };
        if !equal {
            why.push(format!("got {result}, want {want}"));
        }
    }
    if expect["count"].as_u64().is_some_and(|count| result.as_array().map_or(0, Vec::len) as u64 != count) {
        why.push(format!("{} rows", result.as_array().map_or(0, Vec::len)));
    }
    match expect["next_cursor"].as_str() {
        Some("present") if !answer["next_cursor"].is_string() => why.push("no cursor".into()),
        Some("absent") if answer["next_cursor"].is_string() => why.push("a cursor".into()),
        _ => {}
    }
    if list("response_has").iter().any(|key| answer.get(key.as_str().unwrap_or_default()).is_none()) {
        why.push("a member is missing".into());
    }
    if list("response_lacks").iter().any(|key| answer.get(key.as_str().unwrap_or_default()).is_some()) {
        why.push("a member too many".into());
    }
    let named = names(result);
    if list("names_include").iter().any(|name| !named.contains(name))
        || list("names_exclude").iter().any(|name| named.contains(name))
    {
        why.push(format!("names {named:?}"));
    }
    for (key, value) in expect["all_have"].as_object().into_iter().flatten() {
        if !result.as_array().is_some_and(|hits| hits.iter().all(|hit| same(value, &hit[key]))) {
            why.push(format!("not all have {key}"));
        }
    }
    for text in list("result_text_contains") {
        if !result.to_string().contains(text.as_str().unwrap_or_default()) {
            why.push(format!("lacks {text}"));
        }
    }
    why
}

async fn check_pages(pages: &Value, first: Value, ask: &impl AsyncFn(Value) -> Value) -> Vec<String> {
    let mut all = first["result"].as_array().cloned().unwrap_or_default();
    let (mut cursor, mut turns) = (first["next_cursor"].clone(), 0);
    while let Some(token) = cursor.as_str().map(str::to_owned) {
        let command = pages["command_with_cursor"].as_str().unwrap_or_default().replace("${next_cursor}", &token);
        let answer = ask(json!({"command": command})).await;
        if answer.get("error").is_some() {
            return vec![format!("page: {}", answer["error"])];
        }
        all.extend(answer["result"].as_array().cloned().unwrap_or_default());
        cursor = answer["next_cursor"].clone();
        turns += 1;
        if turns == 50 {
            break;
        }
    }
    let all = Value::Array(all);
    let right = pages.get("all").is_none_or(|want| same(want, &all))
        && pages.get("all_unordered").is_none_or(|want| same_unordered(want, &all))
        && pages.get("names_include_unique").and_then(Value::as_array).is_none_or(|want| {
            let named = names(&all);
            want.iter().all(|name| named.contains(name))
                && named.iter().enumerate().all(|(at, name)| !named[..at].contains(name))
        });
    if right { Vec::new() } else { vec![format!("pages {all}")] }
}
