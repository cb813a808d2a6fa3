//! Handles of results that are too large for a prompt: the model sees the beginning, and reads on by `result_read`. Plain
//! functions; the journal of the conversation keeps the whole results.

use serde::Deserialize;
use serde_json::{Value, json};

use super::spec::any_object;

/// The tool by which a model reads on in a result. Neurons whose results are whole do not have it.
pub(crate) const RESULT_READ: &str = "result_read";
/// The maximum size of one part that is read, in bytes.
const PART_BYTES: usize = 4 << 10;
/// The number of places that a search returns, and the text around each, in bytes.
const PLACES_MAX: usize = 5;
const AROUND_BYTES: usize = 300;
/// The room for the note below the beginning of a result, in bytes.
const NOTE_BYTES: usize = 120;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    handle: String,
    #[serde(default)]
    at: Option<String>,
    #[serde(default)]
    from: Option<usize>,
    #[serde(default)]
    find: Option<String>,
}

/// Returns the definition of `result_read` for a model.
pub(crate) fn definition() -> Value {
    let mut parameters = any_object();
    parameters["required"] = json!(["handle"]);
    parameters["additionalProperties"] = json!(false);
    parameters["properties"] = json!({
        "handle": {"type": "string"},
        "from": {"type": "integer", "description": "The byte to read from."},
        "find": {"type": "string", "description": "A text to find."},
        "at": {"type": "string", "description": "A JSON Pointer to a part of a JSON result."},
    });
    let description = "Reads on in a result that was too long, by its handle.";
    json!({"type": "function", "function": {"name": RESULT_READ, "description": description, "parameters": parameters}})
}

/// Returns the beginning of a result with its handle, in at most `most` bytes.
pub(crate) fn beginning(result: &str, handle: &str, most: usize) -> String {
    let end = result.floor_char_boundary(most.saturating_sub(NOTE_BYTES));
    let (shown, all) = (&result[..end], result.len());
    format!(
        "{shown}\n[… {} of {all} bytes are left out: {RESULT_READ} {{\"handle\": \"{handle}\", \"from\": {end}}}]",
        all - end
    )
}

/// Returns the handle in the note below the beginning of a result; `None` for a whole result.
pub(crate) fn handle_in(shown: &str) -> Option<&str> {
    let note = shown.rsplit_once("\n[… ")?.1.strip_suffix(']')?;
    note.split_once(&format!("{RESULT_READ} {{\"handle\": \""))?.1.split('"').next()
}

/// Answers a call of `result_read`. `whole` returns the result of a handle.
///
/// # Errors
/// A sentence for the model.
pub(crate) fn read<'w>(params: &str, whole: impl Fn(&str) -> Option<&'w str>) -> Result<String, String> {
    let asked: Asked = serde_json::from_str(params).map_err(|error| format!("the parameters do not fit: {error}"))?;
    let text = whole(&asked.handle).ok_or_else(|| format!("there is no result {}", asked.handle))?;
    let part = match &asked.at {
        None => text.to_owned(),
        Some(at) => {
            let document: Value = serde_json::from_str(text).map_err(|_| "this result is no JSON: leave `at` out")?;
            let part = document.pointer(at).ok_or_else(|| format!("the result has no \"{at}\""))?;
            part.as_str().map_or_else(|| part.to_string(), str::to_owned)
        }
    };
    match asked.find.filter(|find| !find.is_empty()) {
        Some(find) => Ok(found(&part, &find)),
        None => {
            let from = asked.from.unwrap_or(0);
            if from >= part.len() && from > 0 {
                return Err(format!("it has {} bytes", part.len()));
            }
            let (from, end) = (part.floor_char_boundary(from), part.floor_char_boundary(from + PART_BYTES));
            let more = if end < part.len() {
                format!("\n[… from {end}, {} bytes are left]", part.len() - end)
            } else {
                String::new()
            };
            Ok(format!("{}{more}", &part[from..end]))
        }
    }
}

/// Returns the places of a text, each with its surroundings and its position.
fn found(part: &str, find: &str) -> String {
    // Lower case of ASCII letters alone keeps the positions.
    let (low, find) = (part.to_ascii_lowercase(), find.to_ascii_lowercase());
    let places: Vec<usize> = low.match_indices(&find).map(|(at, _)| at).collect();
    if places.is_empty() {
        return "It is not in the result.".into();
    }
    let shown = places.iter().take(PLACES_MAX).map(|at| {
        let (from, end) = (at.saturating_sub(AROUND_BYTES), (at + find.len() + AROUND_BYTES).min(part.len()));
        format!("[from {at}] …{}…", &part[part.floor_char_boundary(from)..part.ceil_char_boundary(end)])
    });
    let mut text = shown.collect::<Vec<_>>().join("\n");
    if places.len() > PLACES_MAX {
        text.push_str(&format!("\n[{} places more]", places.len() - PLACES_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_reads_on_from_where_it_stopped() {
        let whole: String = (0..2_000).map(|n| format!("{n:04} ")).collect();
        let shown = beginning(&whole, "r1", 1_024);
        assert!(shown.len() <= 1_024 && shown.starts_with("0000 0001"), "{}", shown.len());
        assert_eq!((handle_in(&shown), handle_in("whole [… 7]")), (Some("r1"), None));
        let from = &shown[shown.find("\"from\": ").unwrap() + 8..shown.len() - 2];
        let of = |handle: &str| (handle == "r1").then_some(&*whole);
        let next = read(&format!(r#"{{"handle": "r1", "from": {from}}}"#), of).unwrap();
        let start: usize = from.parse().unwrap();
        assert!(next.starts_with(&whole[start..start + 40]) && next.contains("bytes are left]"), "{next}");
        let last = read(r#"{"handle": "r1", "from": 9990}"#, of).unwrap();
        assert_eq!(last, "1998 1999 ");
        assert_eq!(read(r#"{"handle": "r1", "from": 10000}"#, of).unwrap_err(), "it has 10000 bytes");
        assert!(read(r#"{"handle": "r2"}"#, of).unwrap_err().contains("no result r2"));
        assert!(read(r#"{"handle": "r1", "line": 1}"#, of).unwrap_err().contains("line"));
    }

    #[test]
    fn a_part_is_found_by_its_text_or_its_pointer() {
        let whole = json!({"items": [{"id": 7, "note": "鍵は KEY です"}, {"id": 8}]}).to_string();
        let of = |_: &str| Some(&*whole);
        assert_eq!(read(r#"{"handle": "r1", "at": "/items/1/id"}"#, of).unwrap(), "8");
        assert_eq!(read(r#"{"handle": "r1", "at": "/items/0/note"}"#, of).unwrap(), "鍵は KEY です");
        assert!(read(r#"{"handle": "r1", "at": "/items/9"}"#, of).unwrap_err().contains("/items/9"));
        assert!(read(r#"{"handle": "r1", "find": "key"}"#, of).unwrap().contains("鍵は KEY です"));
        assert_eq!(read(r#"{"handle": "r1", "find": "lock"}"#, of).unwrap(), "It is not in the result.");
    }
}
