//! The text of an element from which its embedding is computed.

use serde_json::Value;

use super::super::ElementRef;
use super::super::privacy::Privacy;
use crate::datum::{Datum, Sym};

/// The maximum number of characters of an element that are embedded; an embedder reads no more.
pub const GIST_CHARS_MAX: usize = 1_000;

/// The types whose meaning is in a few attributes, with these. Their names are generated or repeat the attributes, and
/// their other attributes are labels and places.
const TELLING: [(&str, &[&str]); 2] = [("Knowledge", &["task", "content"]), ("Fact", &["statement"])];

/// The attribute that holds the meaning of a passage of a source.
const PASSAGE: &[&str] = &["content"];

/// Returns the text of an element: a concept's name and texts, or a link's texts. `None` if it has no text.
pub fn gist_of(look: ElementRef<'_>) -> Option<String> {
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
    let telling = TELLING.iter().find(|(kind, _)| look.kind().as_str() == *kind).map(|(_, telling)| *telling);
    let telling = telling.filter(|telling| telling.iter().any(|key| look.attributes().named(key).is_some()));
    // A passage that names its neighbours speaks for itself; its task says only where it is from.
    let is_passage = look.attributes().named("context").is_some();
    let telling = telling.map(|telling| if is_passage { PASSAGE } else { telling });
    if let ElementRef::Concept(concept) = look
        && telling.is_none()
    {
        add(&concept.name);
    }
    let privacy = Privacy::of(look);
    let tells = |key: &Sym| {
        telling.is_none_or(|telling| telling.contains(&key.as_str()))
            && privacy.is_none_or(|privacy| !privacy.hides(key.as_str()))
    };
    for (_, value) in look.attributes().pairs().iter().filter(|(key, _)| tells(key)) {
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
