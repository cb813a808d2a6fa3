//! The words about a plan: its lines for a model, and the reports of what was done for people.

use neurons::tools::{Effect, EffectState};
use serde_json::{Map, Value, json};

use crate::agenda::plan::StepId;
use crate::agenda::{Goal, PlanStep, StepStatus};
use crate::alive::in_code;
use crate::reminders::Language;

/// The maximum number of effects in a report.
const REPORTED_MAX: usize = 8;

/// Returns the open steps of a plan as lines, for a model that only says what it intends.
pub(in crate::tools) fn intended(plan: &[PlanStep]) -> Vec<String> {
    plan.iter().filter(|step| !step.is_over()).map(|step| step.what.clone()).collect()
}

/// Returns the steps of a plan as lines for a model that plans.
pub(crate) fn steps_in_words(plan: &[PlanStep]) -> Vec<String> {
    plan.iter().filter(|step| step.status != StepStatus::Skipped).map(step_in_words).collect()
}

fn step_in_words(step: &PlanStep) -> String {
    let status = json!(step.status);
    let after = if step.after.is_empty() { String::new() } else { format!(" after {}", step.after.join(", ")) };
    let tools = if step.tools.is_empty() { String::new() } else { format!(" [{}]", step.tools.join(", ")) };
    let came = match (&step.result, &step.why) {
        (Some(result), _) => format!(" → {}", result_in_words(result, &step.values)),
        (None, Some(why)) => format!(" ({why})"),
        (None, None) => String::new(),
    };
    let with = step.with.as_ref().filter(|_| !step.is_over()).map(|with| format!(" with {}", with_takes(with, step)));
    let (status, with) = (status.as_str().unwrap_or_default(), with.unwrap_or_default());
    format!("{} {status}{after}{tools}: {}{with}{came}", step.id, step.what)
}

/// Returns the arguments that a plan names for the call of a step, with those that come from steps before.
pub(super) fn with_takes(with: &Map<String, Value>, step: &PlanStep) -> String {
    let open = step.takes.iter().filter(|(argument, _)| !with.contains_key(*argument));
    let takes = open.map(|(argument, from)| format!("; {argument}: a value of {from}"));
    format!("{}{}", json!(with), takes.collect::<String>())
}

pub(super) fn result_in_words(result: &str, values: &Map<String, Value>) -> String {
    match values.is_empty() {
        true => result.to_owned(),
        false => format!("{result} {}", json!(values)),
    }
}

/// Returns the report about a goal that a person stopped, and the goals that served it: what was done, what was not, and of what
/// nobody knows. `None` if no step was begun. Arguments are shown if the person of the goal may approve calls.
pub(crate) fn report_of_stop(goals: &[(&Goal, Vec<(StepId, Effect)>)], decides: bool) -> Option<String> {
    let (top, _) = goals.first()?;
    let language = Language::of(&top.title);
    let (stopped, done) = match language {
        Language::English => ("I stopped", "done"),
        Language::Chinese => ("我停下了", "已完成"),
        Language::Japanese => ("中止しました", "完了"),
    };
    let open = not_done(language);
    let was_begun =
        |(goal, effects): &&(&Goal, Vec<_>)| !effects.is_empty() || goal.plan.iter().any(|step| step.tries > 0);
    let lines = |(goal, effects): &(&Goal, Vec<(StepId, Effect)>)| {
        let without_calls = |step: &&PlanStep| effects.iter().all(|(id, _)| *id != step.id);
        let steps = goal.plan.iter().filter(|step| step.status != StepStatus::Skipped).filter(without_calls);
        let steps =
            steps.map(|step| format!("- {}: {}", step.what, if step.status == StepStatus::Done { done } else { open }));
        let calls = Some(report_of(language, effects, decides)).filter(|calls| !calls.is_empty());
        steps.chain(calls).collect::<Vec<_>>().join("\n")
    };
    let lines: Vec<String> = goals.iter().filter(was_begun).map(lines).collect();
    (!lines.is_empty()).then(|| format!("{stopped}: {}\n\n{}", top.title, lines.join("\n")))
}

/// Returns what the steps of a goal did outside, as lines of a report: each call with its state, and with its arguments if the
/// person of the goal may approve calls.
pub(super) fn report_of(language: Language, effects: &[(StepId, Effect)], decides: bool) -> String {
    let known: Vec<&Effect> =
        effects.iter().map(|(_, effect)| effect).filter(|effect| effect.state != EffectState::Refused).collect();
    let line = |effect: &&Effect| {
        let call = if decides { format!("{} {}", effect.tool, effect.arguments) } else { effect.tool.clone() };
        format!("- {}: {}", in_code(&call), state_in_words(language, effect.state))
    };
    let mut lines: Vec<String> = known.iter().take(REPORTED_MAX).map(line).collect();
    if let Some(more) = known.len().checked_sub(REPORTED_MAX).filter(|more| *more > 0) {
        lines.push(match language {
            Language::English => format!("- and {more} more calls"),
            Language::Chinese => format!("- 另有{more}次调用"),
            Language::Japanese => format!("- ほか{more}件の呼び出し"),
        });
    }
    lines.join("\n")
}

pub(super) fn not_done(language: Language) -> &'static str {
    match language {
        Language::English => "not done",
        Language::Chinese => "未完成",
        Language::Japanese => "未実行",
    }
}

fn state_in_words(language: Language, state: EffectState) -> &'static str {
    let is_done = state == EffectState::Done;
    match (language, is_done) {
        (Language::English, true) => "done",
        (Language::English, false) => "not known whether it was done",
        (Language::Chinese, true) => "已完成",
        (Language::Chinese, false) => "不知道是否完成",
        (Language::Japanese, true) => "完了",
        (Language::Japanese, false) => "行われたか不明",
    }
}
