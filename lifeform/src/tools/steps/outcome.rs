//! The outcome of a step, as a model registers it.

use neurons::tools::{Effect, EffectState, NAME_CHARS, VALUE_CHARS};
use serde::Deserialize;
use serde_json::Value;

use crate::agenda::plan::StepOutcome;
use crate::tools::cut;

/// The maximum number of values of a result.
const VALUES_MAX: usize = 8;

/// The outcome that a model registers at the end of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Registered {
    status: String,
    result: String,
    values: Vec<NamedValue>,
}

#[derive(Debug, Deserialize)]
struct NamedValue {
    name: String,
    value: Value,
}

/// Returns the reason why a step failed, with what it has done outside all the same: it is not to be planned again.
pub(super) fn with_done(why: String, effects: &[Effect]) -> String {
    let done = effects.iter().filter(|effect| effect.state == EffectState::Done);
    let done: Vec<String> = done.map(|effect| format!("{} {}", effect.tool, effect.arguments)).collect();
    if done.is_empty() { why } else { format!("done already: {}; but {why}", cut(&done.join(", "), 160)) }
}

/// Returns the outcome that a model registered for a step, or said in plain words.
pub(super) fn outcome_of(output: &Value, is_recorded: bool, effects: &[Effect]) -> StepOutcome {
    let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
    let registered = serde_json::from_str::<Registered>(&text).ok().filter(|registered| !registered.status.is_empty());
    let registered =
        registered.unwrap_or_else(|| Registered { status: "done".into(), result: text, ..Registered::default() });
    let result = registered.result.trim().to_owned();
    match registered.status.as_str() {
        "need" => StepOutcome::Failed(format!("something is missing: {result}")),
        "ask" if !result.is_empty() => StepOutcome::Asks(result),
        // What a tool did, a record says; the words of a model do not.
        _ if is_recorded && effects.iter().all(|effect| effect.state != EffectState::Done) => {
            let unknown =
                effects.iter().find(|effect| matches!(effect.state, EffectState::Announced | EffectState::Unknown));
            match unknown {
                Some(effect) => StepOutcome::Failed(format!("it is not known whether {} was done", effect.tool)),
                None => StepOutcome::Failed(format!("nothing was done outside: {result}")),
            }
        }
        _ => {
            let is_short = |named: &NamedValue| {
                let length = named.value.as_str().map_or(0, |text| text.chars().count());
                named.name.chars().count() <= NAME_CHARS
                    && length <= VALUE_CHARS
                    && !named.value.is_array()
                    && !named.value.is_object()
            };
            let values = registered.values.into_iter().filter(is_short).take(VALUES_MAX);
            StepOutcome::Done { result, values: values.map(|named| (named.name, named.value)).collect() }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_outcome_is_what_was_registered_or_said() {
        let done = |output: &str, recorded| outcome_of(&json!(output), recorded, &[]);
        let registered = json!({"status": "done", "result": "B1", "values": [{"name": "n", "value": 2}, {"name": "long", "value": "x".repeat(65)}]});
        let StepOutcome::Done { result, values } = done(&registered.to_string(), false) else { panic!("it is done") };
        assert_eq!((result.as_str(), json!(values)), ("B1", json!({"n": 2})));
        assert!(matches!(done("Booked!", false), StepOutcome::Done { .. }));
        assert!(matches!(done("Booked!", true), StepOutcome::Failed(why) if why.contains("nothing was done outside")));
        assert!(
            matches!(done(r#"{"status": "need", "result": "a day"}"#, false), StepOutcome::Failed(why) if why.contains("a day"))
        );
        assert!(matches!(done(r#"{"status": "ask", "result": "Which day?"}"#, true), StepOutcome::Asks(_)));
    }
}
