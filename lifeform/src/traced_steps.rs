//! The steps of a trace (MISSION P1): those of a goal or an answer, with their tool calls as they ran, from the journals of the jobs and
//! never from the words of a plan or a report.

use fascicles::work::invocation;
use knowledge::{TracedCall, TracedStep};
use neurons::conversation::{CallMade, calls_made};
use serde_json::{Map, Value};
use store::{Hash, Store, StoreError};

use crate::agenda::{Goal, PlanStep};

/// The maximum number of steps of a trace.
const STEPS_MAX: usize = 32;
/// The steps of the reply fascicles in which a model calls tools.
pub(crate) const ANSWERING: [&str; 2] = ["draft", "answer"];

/// Returns the steps of a goal: those of its plan that were begun, with the calls of the last attempt of each, else what its notes say.
///
/// # Errors
/// A store error.
pub(crate) async fn traced_steps(store: &Store, goal: &Goal) -> Result<Vec<TracedStep>, StoreError> {
    let begun: Vec<&PlanStep> = goal.plan.iter().filter(|step| step.tries > 0).collect();
    if begun.is_empty() {
        let thought = |what: &String| TracedStep { what: what.clone(), call: None };
        return Ok(goal.steps.iter().map(thought).collect());
    }
    let mut steps = Vec::new();
    for step in begun {
        let Some(act) = step.act() else { continue };
        let made = calls_made(store, &act).await?;
        let what = &step.what;
        steps.extend(made.is_empty().then(|| TracedStep { what: what.clone(), call: None }));
        steps.extend(made.into_iter().map(|made| traced(what, made)));
    }
    steps.truncate(STEPS_MAX);
    Ok(steps)
}

/// Returns the tool calls of an answer, as steps; none if it made none.
///
/// # Errors
/// A store error.
pub(crate) async fn traced_answer(store: &Store, job: &str) -> Result<Vec<TracedStep>, StoreError> {
    let mut steps = Vec::new();
    for step in ANSWERING {
        let made = calls_made(store, &invocation(job, step, 1)).await?;
        steps.extend(made.into_iter().map(|made| traced("Answer a message", made)));
    }
    steps.truncate(STEPS_MAX);
    Ok(steps)
}

fn traced(what: &str, made: CallMade) -> TracedStep {
    let (input, ms) = (without_prose(made.arguments), made.took.as_millis().max(0) as u64);
    let call = TracedCall { tool: made.tool, input, succeeded: made.succeeded, ms };
    TracedStep { what: what.to_owned(), call: Some(call) }
}

/// The parts of names of members that hold secrets or lead to a person.
const SECRET: [&str; 12] =
    ["pass", "pin", "secret", "token", "key", "auth", "card", "iban", "account", "mail", "phone", "code"];

/// Returns arguments in which each value but truth values, numbers, days and short ids is replaced by its hash, and so is each value of
/// a member whose name speaks of a secret or a person.
fn without_prose(arguments: Map<String, Value>) -> Map<String, Value> {
    let is_kept = |name: &str, value: &Value| {
        let name = name.to_lowercase();
        !SECRET.iter().any(|part| name.contains(part))
            && match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => true,
                Value::String(text) => is_day(text) || is_short_id(text),
                Value::Array(_) | Value::Object(_) => false,
            }
    };
    let hashed = |value: &Value| format!("sha256:{}", &Hash::of(value.to_string().as_bytes()).hex()[..16]).into();
    let kept = |(name, value): (String, Value)| match is_kept(&name, &value) {
        true => (name, value),
        false => {
            let value = hashed(&value);
            (name, value)
        }
    };
    arguments.into_iter().map(kept).collect()
}

fn is_day(text: &str) -> bool {
    text.parse::<jiff::civil::DateTime>().is_ok() || text.parse::<jiff::civil::Date>().is_ok()
}

/// Returns `true` for at most four letters before at most six digits, such as `B4`.
fn is_short_id(text: &str) -> bool {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let letters = text.len() - digits.len();
    let is_number = !digits.is_empty() && digits.len() <= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    letters <= 4 && is_number
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_trace_holds_no_prose_and_no_secrets() {
        let given = json!({"slot": "B4", "nights": 3, "day": "2026-12-04", "at": null, "note": "call my mother", "key": "{{secret:mail}}",
            "pin": 4711, "to": "ada@example.org", "word": "hunter2x"});
        let Value::Object(kept) = given else { unreachable!() };
        let kept = without_prose(kept);
        assert_eq!((&kept["slot"], &kept["nights"], &kept["at"]), (&json!("B4"), &json!(3), &json!(null)));
        assert_eq!(kept["day"], "2026-12-04");
        for hidden in ["note", "key", "pin", "to", "word"] {
            assert!(kept[hidden].as_str().unwrap().starts_with("sha256:"), "{kept:?}");
        }
    }
}
