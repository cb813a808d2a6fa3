//! What an element says, as one text: what its meaning is taken from.

use serde_json::Value;

use super::super::Look;
use crate::datum::Datum;

/// Characters of an element that are looked at; an embedder reads no more.
const CHARS_MAX: usize = 1_000;

/// The text of an element: a concept's name and texts, a link's texts. `None` where it says nothing.
pub fn gist_of(look: Look<'_>) -> Option<String> {
    let mut gist = match look {
        Look::Concept(concept) => concept.name.to_string(),
        Look::Link(_) => String::new(),
    };
    let mut add = |text: &str| {
        if !text.trim().is_empty() && gist.len() < CHARS_MAX {
            let room = CHARS_MAX - gist.len();
            if !gist.is_empty() {
                gist.push('\n');
            }
            gist.extend(text.trim().chars().take(room));
        }
    };
    for (_, value) in look.attributes().pairs() {
        match value {
            Datum::Str(text) => add(text),
            Datum::Json(json) => {
                if let Value::Array(items) = &**json {
                    items.iter().filter_map(Value::as_str).for_each(&mut add);
                }
            }
            _ => {}
        }
    }
    (!gist.is_empty()).then_some(gist)
}
