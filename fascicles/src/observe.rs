//! The events for observers: messages are templates over the node's output (F4).
//!
//! Definitions are untrusted, so templates are restricted: they can print parts of the output, with a few filters that
//! enlarge nothing, and choose by `if`. There are no loops, no variables and no operators that build text.

use std::sync::LazyLock;

use minijinja::{Environment, ErrorKind, Value as Shown, filters};
use serde_json::{Map, Value, json};

use crate::mapping;
use crate::spec::Observe;

/// The maximum length of a template in characters, which also bounds the recursion of its parser.
const TEMPLATE_CHARS_MAX: usize = 1_000;
/// The maximum number of evaluation steps of a template.
const FUEL: u64 = 20_000;
/// The maximum length of a message, in characters.
const MESSAGE_CHARS_MAX: usize = 2_000;
/// The maximum number of output parts in an event, and the maximum size of one in bytes.
const PARTS_MAX: usize = 32;
const PART_BYTES_MAX: usize = 8 << 10;

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_fuel(Some(FUEL));
    environment.add_filter("length", filters::length);
    environment.add_filter("first", filters::first);
    environment.add_filter("last", filters::last);
    environment.add_filter("upper", filters::upper);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("round", filters::round);
    environment.add_filter("default", |value: Shown, other: Shown| if value.is_undefined() { other } else { value });
    environment
});

/// Returns the fault of a template, if there is one.
pub(crate) fn fault(template: &str) -> Option<String> {
    if template.chars().count() > TEMPLATE_CHARS_MAX {
        return Some(format!("it has more than {TEMPLATE_CHARS_MAX} characters"));
    }
    let mut rest = template;
    while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let is_tag = rest[start..].starts_with("{%");
        let inner = &rest[start + 2..];
        let (inside, after) = inner.split_at(end_of(inner, if is_tag { "%}" } else { "}}" }));
        let word = inside.trim_start_matches(['-', '+']).split_whitespace().next().unwrap_or_default();
        if is_tag && !matches!(word, "if" | "elif" | "else" | "endif") {
            return Some(format!("{{% {word} %}} is not known here; only if, elif, else and endif are"));
        }
        if inside.contains(['~', '*']) || inside.trim_start_matches('+').contains('+') {
            return Some("~, * and + are not known here".into());
        }
        rest = after;
    }
    TEMPLATES.template_from_str(template).err().map(|error| error.to_string())
}

/// Returns the end of an expression. A closing mark within quotes does not count.
fn end_of(inner: &str, closing: &str) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (at, letter) in inner.char_indices() {
        match quote {
            _ if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if letter == '"' || letter == '\'' => quote = Some(letter),
            None if inner[at..].starts_with(closing) => return at,
            None => {}
        }
    }
    inner.len()
}

/// The output buffer of a message, with a bound.
#[derive(Default)]
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        let room = (MESSAGE_CHARS_MAX * 4).saturating_sub(self.0.len());
        self.0.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(piece.len()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the fault in the parts of an event, if there is one.
pub(crate) fn too_many(observe: &Observe) -> Option<String> {
    (observe.metadata.len() > PARTS_MAX).then(|| format!("it names more than {PARTS_MAX} parts"))
}

/// Renders a message. If the template fails, the message reports that; the job does not fail.
pub(crate) fn message(template: &str, output: &Value) -> String {
    let mut text = Bounded::default();
    let template = TEMPLATES.template_from_str(template);
    let rendered =
        template.and_then(|template| template.render_captured_to(json!({"output": output}), &mut text).map(drop));
    match rendered {
        Err(error) if error.kind() != ErrorKind::WriteFailure => {
            format!("(this message could not be written: {error})")
        }
        _ => String::from_utf8_lossy(&text.0).chars().take(MESSAGE_CHARS_MAX).collect(),
    }
}

/// Returns the output parts for an event, without those that are too large.
pub(crate) fn metadata(observe: &Observe, output: &Value) -> Map<String, Value> {
    let small = |part: &&Value| serde_json::to_vec(part).is_ok_and(|text| text.len() <= PART_BYTES_MAX);
    let named = observe.metadata.iter();
    named
        .filter_map(|(name, pointer)| Some((name.clone(), mapping::at(output, pointer).filter(small)?.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_renders_values_and_refuses_unbounded_output() {
        let output = json!({"items": [1, 2, 3], "good": true, "name": "Faro"});
        for (template, says) in [
            ("found {{ output.items | length }} at {{ output.name | upper }}", "found 3 at FARO"),
            ("{% if output.good %}good{% else %}bad{% endif %}", "good"),
            ("{{ output.none | default('nothing') }} + 1 * 2 ~", "nothing + 1 * 2 ~"),
            ("{{ output.items }}", "[1, 2, 3]"),
        ] {
            assert_eq!(fault(template), None, "{template}");
            assert_eq!(message(template, &output), says);
        }
        for template in [
            "{{ output",
            "{% for i in output.items %}{% endfor %}",
            "{% set a = 'x' %}",
            "{%- set a = 'x' %}",
            "{{ 'x' * 1000000 }}",
            "{{ ('}}' * 500000000) | length }}",
            "{{ output ~ output }}",
            "{{ output.name + output.name }}",
            "{{ range(10) }}",
            "{{ output | replace('a', 'b') }}",
            &format!("{{{{ {} 1 }}}}", "not ".repeat(100_000)),
        ] {
            let refused = fault(template).is_some() || message(template, &output).contains("could not be written");
            assert!(refused, "{}", &template[..template.len().min(60)]);
        }
    }
}
