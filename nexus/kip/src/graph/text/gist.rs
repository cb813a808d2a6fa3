//! What an element says, as one text: what its meaning is taken from.

use serde_json::Value;

use super::super::Look;
use crate::datum::Datum;

/// Characters of an element that are looked at; an embedder reads no more.
pub const GIST_CHARS_MAX: usize = 1_000;

/// The text of an element: a concept's name and texts, a link's texts. `None` where it says nothing.
pub fn gist_of(look: Look<'_>) -> Option<String> {
    let (mut gist, mut room) = (String::new(), GIST_CHARS_MAX);
    let mut add = |text: &str| {
        let text = text.trim();
        if text.is_empty() || room == 0 {
            return;
        }
        if !gist.is_empty() {
            gist.push('\n');
        }
        let before = room;
        gist.extend(text.chars().take(before).inspect(|_| room -= 1));
    };
    if let Look::Concept(concept) = look {
        add(&concept.name);
    }
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
