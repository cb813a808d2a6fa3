//! What the world is told: messages are templates over the node's public output (F4).

use std::sync::LazyLock;

use minijinja::Environment;
use serde_json::{Map, Value, json};

use crate::part;
use crate::spec::Observe;

/// Steps a template may take; a loop in one ends there.
const FUEL: u64 = 20_000;
/// Characters of a message.
const MESSAGE_CHARS_MAX: usize = 2_000;

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment
});

/// What is wrong with a template, if anything is.
pub(crate) fn fault(template: &str) -> Option<String> {
    TEMPLATES.template_from_str(template).err().map(|error| error.to_string())
}

/// The message; a template that fails says so instead of failing the job.
pub(crate) fn message(template: &str, output: &Value) -> String {
    let rendered = TEMPLATES.render_str(template, json!({"output": output}));
    let rendered = rendered.unwrap_or_else(|error| format!("(this message could not be written: {error})"));
    rendered.chars().take(MESSAGE_CHARS_MAX).collect()
}

/// The parts of the output that are told.
pub(crate) fn metadata(observe: &Observe, output: &Value) -> Map<String, Value> {
    let told = observe.metadata.iter();
    told.filter_map(|(name, pointer)| Some((name.clone(), part::at(output, pointer)?.clone()))).collect()
}
