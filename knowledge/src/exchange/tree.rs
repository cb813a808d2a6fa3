//! The file tree of seed 001: `global/` by type, `agents/` by agent, `users/` by person and category.

use serde_json::{Map, Value, json};

use super::{Records, object, written};
use crate::record::{Record, Type};

/// The files of profiles by category.
const CATEGORIES: [(&str, &str); 3] =
    [("preference", "preferences"), ("habit", "habits"), ("constraint", "constraints")];

/// Returns the file path of a record.
fn path(record: &Record) -> String {
    let first = record.types.first().copied().unwrap_or(Type::Definition);
    // A path may consist of names only.
    let folder = |name: &str| -> String {
        let plain: String =
            name.chars().map(|c| if c.is_alphanumeric() || "-_.@".contains(c) { c } else { '_' }).collect();
        if plain.chars().all(|c| c == '.') { plain.replace('.', "_") } else { plain }
    };
    if let Some((_, person)) = record.owner.split_once(':').filter(|_| record.types.contains(&Type::UserProfile)) {
        let category = record.tags.get("category").and_then(Value::as_str);
        let file = CATEGORIES.iter().find(|(known, _)| category == Some(known)).map_or("profile", |(_, file)| file);
        return format!("users/user_{}/{file}.json", folder(person));
    }
    match record.owner.split_once(':') {
        Some(("agent" | "lifeform", agent)) => format!("agents/{}/{}.json", folder(agent), plural(first)),
        _ => format!("global/{}.json", plural(first)),
    }
}

fn plural(kind: Type) -> &'static str {
    match kind {
        Type::UserProfile => "profiles",
        Type::Strategy => "strategies",
        Type::Tool => "tools",
        Type::Usecase => "usecases",
        Type::Definition => "definitions",
        Type::Plan => "plans",
    }
}

/// Returns records as files by path.
pub(super) fn write(records: &[Record]) -> Value {
    let mut files: Map<String, Value> = Map::new();
    for record in records {
        let file = files.entry(path(record)).or_insert_with(|| json!([]));
        if let Value::Array(records) = file {
            records.push(Value::Object(written(record)));
        }
    }
    Value::Object(files)
}

/// Reads records from files by path. Each file holds one record or a list of records. The path provides members that a
/// record omits.
pub(super) fn read(tree: &Value) -> Result<Vec<(String, Records)>, String> {
    let files = tree.as_object().ok_or("is an object of files by their paths")?;
    let mut found = Vec::new();
    for (path, content) in files {
        let records = match content {
            Value::Array(records) => records.clone(),
            one => vec![one.clone()],
        };
        let read = |record| {
            let mut record = object(record)?;
            if !record.contains_key("types") && !record.contains_key("type") {
                record.insert("types".to_owned(), json!([kind_of(path)]));
            }
            Ok(record)
        };
        found.push((path.clone(), records.into_iter().map(read).collect()));
    }
    Ok(found)
}

fn kind_of(path: &str) -> &'static str {
    let file = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
    match path.starts_with("users/") {
        true => Type::UserProfile.as_str(),
        false => Type::ALL.into_iter().find(|kind| plural(*kind) == file).unwrap_or(Type::Strategy).as_str(),
    }
}
