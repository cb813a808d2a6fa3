//! The choice of the next wave of a goal, and the questions to a person without whose answer there is none.

use std::collections::BTreeSet;
use std::sync::Arc;

use neurons::neuron::ToolCall;
use neurons::tools::{EffectClass, Grant, ToolCard, carries_memory, names_a_secret, passes_texts};
use serde_json::{Map, Value, json};
use store::Timestamp;

use super::{CARDS_MAX, Ready, ready_step, writes};
use crate::agenda::plan::{self, StepId, StepOutcome};
use crate::agenda::{ActErrand, Course, Goal, PlanStep, Question, StepStatus};
use crate::alive::in_code;
use crate::reminders::Language;
use crate::tools::cut;
use crate::tools::goals::Planned;

/// The maximum number of waves of one goal.
const WAVES_MAX: u32 = 32;
/// The maximum number of plans since a step was done or a person spoke.
const REPLANS_MAX: u32 = 5;
/// The maximum number of searches for tools since a step was done or a person spoke, and of characters of each.
const SEARCHES_MAX: usize = 2;
const QUERY_CHARS: usize = 200;
/// The fault of a plan that searches in vain.
const NOTHING_MORE: &str =
    "find: no more tools are looked for; plan with those that are shown, or ask for what is missing";
/// The maximum length of a question about calls, in bytes. What is approved is shown whole.
const QUESTION_BYTES_MAX: usize = 3_000;

/// The choice of the next wave of a goal.
pub(super) struct Wave<'w> {
    pub(super) errand: &'w ActErrand,
    pub(super) cards: &'w [ToolCard],
    pub(super) job: &'w Arc<str>,
    /// `true` if the job has read words of others, which the plan may follow.
    pub(super) tainted: bool,
    /// The texts that the model which plans was shown.
    pub(super) shown: &'w [String],
    pub(super) now: Timestamp,
}

impl Wave<'_> {
    /// Takes the plan and begins the steps of the wave. `ends` says that the plan waits for something else first.
    pub(super) fn of(&self, goal: &mut Goal, planned: Option<&Planned>, ends: bool) -> Ready {
        let (language, title) = (Language::of(&goal.title), goal.title.clone());
        let ask = |why: String| Ready { ask: Some(stuck(language, &title, &why)), ..Ready::default() };
        if let Some(query) = planned.map(|planned| planned.find.trim()).filter(|find| !find.is_empty() && !ends) {
            let query: String = query.chars().take(QUERY_CHARS).collect();
            let is_new = !goal.course.sought.contains(&query) && self.cards.len() > CARDS_MAX;
            if is_new && goal.course.sought.len() < SEARCHES_MAX {
                goal.course.sought.push(query);
                return Ready { again: true, void: true, ..Ready::default() };
            }
        }
        if let Some(planned) = planned {
            let names: BTreeSet<Arc<str>> = self.cards.iter().map(|card| card.name.clone()).collect();
            let before = goal.plan.clone();
            let is_empty_search = !planned.find.trim().is_empty() && planned.steps.is_empty() && !ends;
            let means = (&names, !self.tainted);
            let taken = match is_empty_search {
                true => Err(NOTHING_MORE.to_owned()),
                false => plan::revised(&before, &planned.steps, means, &mut goal.course.made, self.now),
            };
            let taken = taken.and_then(|plan| self.check_arguments(&plan).map(|()| plan));
            let taken = taken.and_then(|plan| self.check_parts(planned).map(|()| plan));
            match taken {
                Err(fault) if goal.course.fault.is_some() => {
                    goal.course.fault = None;
                    return ask(fault);
                }
                Err(fault) => {
                    goal.course.fault = Some(fault);
                    return Ready { again: !ends, void: !ends, ..Ready::default() };
                }
                Ok(mut plan) => {
                    self.pin(&mut plan);
                    self.mark_memory(&before, &mut plan);
                    let has_failed = before.iter().any(|step| step.status == StepStatus::Failed);
                    let (is_same, is_open) = (plan::is_same_plan(&before, &plan), plan::counts(&plan).1 > 0);
                    (goal.plan, goal.course.fault) = (plan, None);
                    if std::mem::take(&mut goal.course.refused) && is_same && is_open && !ends {
                        return ask(refused(language).to_owned());
                    }
                    goal.course.replans += u32::from(is_open);
                    if !ends && is_open && goal.course.replans > 1 && has_failed && is_same {
                        return ask(last_failure(&before));
                    }
                }
            }
            if ends {
                return Ready::default();
            }
        }
        // A word or a change that came since the job began is read first.
        if !goal.course.goes_on {
            return Ready { again: true, ..Ready::default() };
        }
        for gone in goal.plan.iter_mut().filter(|step| step.status == StepStatus::Todo) {
            if let Some(name) = gone.tools.iter().find(|name| self.cards.iter().all(|card| card.name != **name)) {
                let why = format!("the tool {name} is gone");
                gone.conclude(StepOutcome::Failed(why), gone.effects.clone(), gone.foreign, self.now);
            }
        }
        let Course { replans, waves, .. } = goal.course;
        if plan::counts(&goal.plan).1 > 0 && (replans > REPLANS_MAX || waves >= WAVES_MAX) {
            let why = last_failure(&goal.plan);
            (goal.course.replans, goal.course.waves) = (0, 0);
            return ask(why);
        }
        if let Some(ready) = self.over_budget(goal, language) {
            return ready;
        }
        if let Some(ready) = self.calls_to_approve(goal, language) {
            return ready;
        }
        let wave = plan::wave(&goal.plan, |step| writes(step, self.cards));
        if wave.is_empty() {
            // A plan that does not go on by itself is looked at again.
            return Ready { again: planned.is_none(), ..Ready::default() };
        }
        for step in goal.plan.iter_mut().filter(|step| wave.contains(&step.id)) {
            step.writes = writes(step, self.cards);
        }
        plan::begin(&mut goal.plan, &wave, self.job, self.now);
        goal.course.waves += 1;
        let begun = plan::under_way(&goal.plan, self.job).into_iter().map(ready_step);
        Ready { steps: begun.collect(), ..Ready::default() }
    }

    /// Records for which definition of its tool each call is planned.
    fn pin(&self, plan: &mut [PlanStep]) {
        for step in plan.iter_mut().filter(|step| step.with.is_some() && step.pin.is_none()) {
            let card =
                self.cards.iter().find(|card| step.tools.contains(&card.name) && card.effect > EffectClass::Read);
            step.pin = card.map(|card| card.pin.clone());
        }
    }

    /// Refuses parts and schedules into which the plan took memory after the job had read words of others: nobody would see later that it
    /// stands there.
    pub(super) fn check_parts(&self, planned: &Planned) -> Result<(), String> {
        let outcome = &planned.outcome;
        let schedules: Vec<&str> = outcome.schedules.iter().map(|schedule| &*schedule.what).collect();
        let parts = json!([outcome.subgoals, schedules]);
        match self.tainted && carries_memory(&parts, self.shown.iter().map(String::as_str)) {
            true => Err(
                "subgoals and schedules carry nothing that people told you once words of others were read: plan a step"
                    .into(),
            ),
            false => Ok(()),
        }
    }

    /// Marks the steps into which the plan took memory.
    fn mark_memory(&self, before: &[PlanStep], plan: &mut [PlanStep]) {
        for step in plan.iter_mut().filter(|step| step.status == StepStatus::Todo) {
            let was = before.iter().any(|known| known.id == step.id && known.carries_memory);
            let shown = self.shown.iter().map(String::as_str);
            step.carries_memory = was || carries_memory(&json!([step.what, step.with]), shown);
        }
    }

    /// Checks the arguments that a plan names against the schema of the tool.
    fn check_arguments(&self, plan: &[PlanStep]) -> Result<(), String> {
        for step in plan.iter().filter(|step| step.status == StepStatus::Todo) {
            let Some(with) = &step.with else { continue };
            let Some(card) =
                self.cards.iter().find(|card| step.tools.contains(&card.name) && card.effect > EffectClass::Read)
            else {
                return Err(format!("{}: with is for the call of a tool that changes something", step.what));
            };
            // What is passed on is known when the call is made.
            let (passed, named): (Vec<_>, Vec<_>) = with.iter().partition(|(_, value)| passes_texts(value));
            let later = step.takes.keys().chain(passed.iter().map(|(name, _)| *name));
            let schema = neurons::spec::compile(&without(&card.parameters, later))?;
            let with: Map<String, Value> =
                named.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            let properties = card.parameters["properties"].as_object();
            let unknown = |name: &&String| properties.is_some_and(|properties| !properties.contains_key(*name));
            if let Some(argument) = step.takes.keys().find(unknown) {
                return Err(format!("{}: {} has no argument {argument}", step.what, card.name));
            }
            if let Some((sink, _)) = passed.iter().find(|(name, _)| card.sinks.contains(*name)) {
                return Err(format!("{}: {sink} takes no text that was not read: name its value", step.what));
            }
            if let Some(fault) = schema.iter_errors(&json!(with)).next() {
                return Err(format!("{}: with does not fit {}: {fault}", step.what, card.name));
            }
        }
        Ok(())
    }

    /// Returns the question whether the goal may use more tokens, if the steps that are left may need more than it has.
    fn over_budget(&self, goal: &Goal, language: Language) -> Option<Ready> {
        let (done, open) = plan::counts(&goal.plan);
        let spent = self.errand.spent_tokens;
        let mean = if done > 0 { self.errand.own_tokens / done as u64 } else { 0 };
        let expected = spent + mean * open as u64;
        if expected <= self.errand.budget_tokens {
            return None;
        }
        // The next question comes at twice as much.
        let tokens = expected.max(self.errand.budget_tokens).saturating_mul(2);
        let ask = more_tokens(language, &goal.title, (spent, expected - spent), (done, open));
        Some(Ready { ask: Some(ask), about: Some(Question::Budget { tokens }), ..Ready::default() })
    }

    /// Returns the question about the calls of the plan that a person must approve and whose arguments are known.
    fn calls_to_approve(&self, goal: &Goal, language: Language) -> Option<Ready> {
        let (mut calls, mut has_rule): (Vec<(StepId, Grant, String)>, bool) = (Vec::new(), false);
        for step in goal.plan.iter().filter(|step| step.status == StepStatus::Todo && step.grant.is_none()) {
            let Some(with) = &step.with else { continue };
            let card =
                self.cards.iter().find(|card| step.tools.contains(&card.name) && card.effect > EffectClass::Read)?;
            // What cannot be undone, or sends a secret, is asked about when it is made. So is what the person of the goal may not
            // approve, since the calls would be shown.
            let is_by_rule = card.asks || self.errand.by_stranger;
            // A call that was planned after words of others were read is asked about in any case, so it stands in the question, too.
            let is_asked = (is_by_rule || !step.trusted) && card.effect < EffectClass::Irreversible;
            let is_asked = is_asked && card.is_outside && self.errand.decides;
            let call = ToolCall { params: json!(with).to_string(), ..ToolCall::default() };
            // A person sees the account or the address to which something goes.
            let is_left_open = step.takes.keys().any(|argument| card.sinks.contains(argument));
            // A plan that follows words of others names its values.
            let is_left_open = is_left_open || passes_texts(&json!(with)) || (!step.takes.is_empty() && !step.trusted);
            if !is_asked || is_left_open || names_a_secret(&call) {
                continue;
            }
            let (tool, pin, arguments) = (card.name.clone(), card.pin.clone(), with.clone());
            let grant = Grant { tool, pin, arguments, takes: step.takes.clone(), until: self.now, by: "".into() };
            calls.push((step.id.clone(), grant, step.what.clone()));
            has_rule |= is_by_rule;
        }
        // A single call is asked about when it is made, and so are calls that are too long to be shown together.
        if calls.len() < 2 || !has_rule {
            return None;
        }
        let shown: Vec<String> = calls
            .iter()
            .map(|(_, grant, what)| {
                // The call comes first, whole, and the words of a model cannot change how it is shown.
                let call = in_code(&format!("{} {}", grant.tool, json!(grant.arguments)));
                let takes = grant.takes.iter().map(|(argument, from)| {
                    let found = goal.plan.iter().find(|step| step.id == *from).map_or("", |step| &step.what);
                    found_later(language, argument, &plain(found))
                });
                format!("- {call}\n  {}{}", plain(what), takes.collect::<String>())
            })
            .collect();
        let ask = format!("{}\n\n{}", may_i(language, &goal.title), shown.join("\n"));
        if ask.len() > QUESTION_BYTES_MAX {
            return None;
        }
        let steps = calls.into_iter().map(|(id, grant, _)| (id, grant)).collect();
        Some(Ready { ask: Some(ask), about: Some(Question::Calls { steps }), ..Ready::default() })
    }
}

/// Returns words of a model that change nothing of how what stands beside them is shown.
fn plain(words: &str) -> String {
    words.replace(['`', '<', '*', '['], " ")
}

/// Returns a schema of parameters that does not ask for some of them.
fn without<'a>(parameters: &Value, arguments: impl Iterator<Item = &'a String>) -> Value {
    let (mut schema, arguments) = (parameters.clone(), arguments.collect::<BTreeSet<_>>());
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !name.as_str().is_some_and(|name| arguments.iter().any(|argument| *argument == name)));
    }
    schema
}

/// Returns the line that says that a step before finds an argument.
fn found_later(language: Language, argument: &str, step: &str) -> String {
    let argument = in_code(argument);
    match language {
        Language::English => format!("\n  {argument}: what this step finds: {step}"),
        Language::Chinese => format!("\n  {argument}：由这一步得出：{step}"),
        Language::Japanese => format!("\n  {argument}：次の手順で決まる値：{step}"),
    }
}

/// Returns the reason why a step failed last.
fn last_failure(plan: &[PlanStep]) -> String {
    let failed = plan.iter().filter(|step| step.why.is_some()).max_by_key(|step| step.at);
    let why = |step: &PlanStep| format!("{}: {}", step.what, step.why.as_deref().unwrap_or_default());
    failed.map_or_else(|| "it comes to no end".to_owned(), why)
}

fn stuck(language: Language, title: &str, why: &str) -> String {
    let why = cut(why, 300);
    match language {
        Language::English => format!("I do not get on with \"{title}\". {why}\nWhat shall I do?"),
        Language::Chinese => format!("“{title}”我做不下去了。{why}\n您看怎么办？"),
        Language::Japanese => format!("「{title}」が進みません。{why}\nどうしましょうか。"),
    }
}

fn refused(language: Language) -> &'static str {
    match language {
        Language::English => "You said no, and I know no other way.",
        Language::Chinese => "您说不要，而我想不出别的办法。",
        Language::Japanese => "「いいえ」とのことですが、ほかの方法が思いつきません。",
    }
}

fn more_tokens(language: Language, title: &str, (spent, more): (u64, u64), (done, open): (usize, usize)) -> String {
    match language {
        Language::English => format!(
            "\"{title}\" has used {spent} tokens, and what is left may need about {more} more (steps done: {done}, left: {open}). \
             Shall I go on? Yes or no."
        ),
        Language::Chinese => {
            format!(
                "“{title}”已经用了{spent}个词元，剩下的大约还要{more}个（完成{done}步，还剩{open}步）。要继续吗？请回答“好的”或“不要”。"
            )
        }
        Language::Japanese => format!(
            "「{title}」で{spent}トークンを使いました。残りにはあと約{more}トークンかかりそうです（{done}件済み、残り{open}件）。続けますか。\
             「はい」か「いいえ」で答えてください。"
        ),
    }
}

fn may_i(language: Language, title: &str) -> String {
    match language {
        Language::English => {
            format!("For \"{title}\" I would make these calls outside, each once. Shall I make all of them? Yes or no:")
        }
        Language::Chinese => format!("为了“{title}”，我要在外面做下面这些事，每件一次。都做吗？请回答“好的”或“不要”："),
        Language::Japanese => {
            format!(
                "「{title}」のため、外部で次のことを一度ずつ行います。すべて実行しますか。「はい」か「いいえ」で答えてください："
            )
        }
    }
}
