//! The tools of a goal's wave: `ready` takes the changes of the plan and chooses the steps, `bind` puts one step before a
//! model, and the outcomes become those of the plan.

mod outcome;
mod wave;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::run::Fact;
use fascicles::{ToolContext, ToolFailure};
use knowledge::telling_words;
use neurons::conversation::{CallMade, calls_made};
use neurons::spec::tokens_about;
use neurons::tools::{Effect, EffectClass, Effects, ToolCard, work_of_step};
use nexus::OUTSIDE;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{Entry, Origin, Store, StoreError};

use outcome::{outcome_of, with_done};
use wave::Wave;
pub(super) use words::intended;
use words::{not_done, report_of, result_in_words, with_takes};
pub(crate) use words::{report_of_stop, steps_in_words};

use super::goals::{Planned, STEP_CHARS};
use super::{LifeformToolbox, cut, strangers_behind, unmarked};
use crate::agenda::plan::{StepId, StepOutcome};
use crate::agenda::{Act, ActErrand, Agenda, Goal, GoalStatus, Note, Outcome, PlanStep, Question, StepStatus};
use crate::canvas::chat;
use crate::reminders::Language;

/// The maximum number of tools on cards, and of further ones that one search of a plan finds.
const CARDS_MAX: usize = 20;
const FOUND_MAX: usize = 10;
/// The number of tokens of cards, beyond which each is cut, and of cards and names together, besides what was looked for.
const CARDS_TOKENS: usize = 320;
const TOKENS_MAX: usize = 450;
/// The number of messages of people about a goal that its steps are shown, and the maximum length of one, in characters.
const SAID_SHOWN: usize = 6;
const SAID_CHARS: usize = 400;
/// The number of messages in which people asked for a goal that its steps are shown.
const REQUESTS_SHOWN: usize = 2;

/// The tools of every step that read nothing.
const PLAIN: [&str; 2] = ["calculate", "date"];
/// The tool of every step that reads the memory.
const SEARCH: &str = "knowledge_search";
/// The words for a step that may change something.
const PASSES_ON: &str = "\n<rule>This step changes something, so it is shown no text of others, only its place: «r1#/note, 90 characters». \
    Pass such a text on whole as {{text:r1#/note}} in an argument, or end with need if it must be read first.</rule>";

/// The tools that the lifeform was given, as a model that plans is shown them.
#[derive(Debug, Default)]
pub(super) struct ShownCards {
    /// The cards of the tools that are nearest to the goal.
    pub(super) lines: Vec<String>,
    /// The cards that the plan looked for.
    pub(super) found: Vec<String>,
    /// The names of further tools, the nearest first.
    pub(super) names: Vec<String>,
}

/// The output of `ready`: the steps of the wave, or the reason why there are none.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The steps.
    pub(super) steps: Vec<ReadyStep>,
    /// The text of a question to a person, without whose answer the goal does not go on.
    #[serde(default)]
    pub(super) ask: Option<String>,
    /// The question, if a word answers it.
    #[serde(default)]
    pub(super) about: Option<Question>,
    /// `true` if the plan was not taken and is to be made again.
    #[serde(default)]
    pub(super) again: bool,
    /// `true` if the plan was not taken, or looked for tools: nothing else of it counts.
    #[serde(default)]
    pub(super) void: bool,
    /// `true` if the subgoals and schedules of the plan are not taken, because they carry memory.
    #[serde(default)]
    pub(super) no_parts: bool,
    /// `true` if the job had read words of others when the wave was chosen, so that the plan may follow them.
    #[serde(default)]
    pub(super) tainted: bool,
}

/// A step of a wave.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReadyStep {
    /// The id.
    pub(super) id: StepId,
    /// The work of the step.
    pub(super) what: String,
}

impl Ready {
    /// Returns the output of `ready` in a job; an empty one if the job has none.
    pub(super) fn of(context: &ToolContext) -> Self {
        context.event("ready").and_then(|event| Self::deserialize(&event.content).ok()).unwrap_or_default()
    }
}

/// Returns the tools of the steps by which similar goals were reached: those whose titles share half of the telling words.
fn tools_that_helped(agenda: &Agenda, title: &str) -> BTreeSet<Arc<str>> {
    let words = telling_words(title);
    let is_similar = |goal: &&Goal| {
        let shared = telling_words(&goal.title).intersection(&words).count();
        goal.status == GoalStatus::Done && shared > 0 && shared * 2 >= words.len()
    };
    let steps = agenda.goals.values().filter(is_similar).flat_map(|goal| &goal.plan);
    steps.filter(|step| step.status == StepStatus::Done).flat_map(|step| step.tools.iter().cloned()).collect()
}

/// Returns the beginning of a text in about as many tokens.
fn cut_to_tokens(text: &str, most: usize) -> String {
    let mut left = most * 4;
    let fits = |c: &char| {
        let wants = if c.is_ascii() { 1 } else { 4 };
        let is_room = wants <= left;
        left = left.saturating_sub(wants);
        is_room
    };
    let cut: String = text.chars().take_while(fits).collect();
    if cut.len() < text.len() { format!("{cut}…") } else { cut }
}

impl LifeformToolbox {
    /// Returns the cards of the tools that the lifeform was given.
    pub(super) async fn cards(&self) -> Vec<ToolCard> {
        self.neurons.tools().cards(&self.me.id.0).await
    }

    /// Returns what a model that plans is shown of the tools: the cards of all, or of many those that are nearest to the goal, with
    /// the cards that the plan looked for and the names of others.
    pub(super) async fn likely_cards(&self, errand: &ActErrand, origin: &Origin) -> ShownCards {
        let cards = self.cards().await;
        let lines: Vec<String> = cards.iter().map(|card| card.line.clone()).collect();
        if lines.len() <= CARDS_MAX {
            return ShownCards { lines, ..ShownCards::default() };
        }
        // What came last tells what is needed next.
        let came = errand.plan.iter().rev().find_map(|step| step.why.clone()).unwrap_or_default();
        let noted = errand.notes.last().cloned().unwrap_or_default();
        let goal = [errand.title.clone(), errand.description.clone(), noted, came].join(" ");
        let account: Arc<str> = self.me.id.0.strip_prefix("lifeform:").unwrap_or(&self.me.id.0).into();
        let about: Vec<String> = cards.iter().map(|card| card.about.clone()).collect();
        let order = self.neurons.nearest(origin, &account, &goal, &about).await;
        let is_bound = |place: &usize| errand.plan.iter().any(|step| step.tools.contains(&cards[*place].name));
        // A tool of the plan that stands is always among them, and those by which similar goals were reached come next.
        let (bound, others): (Vec<usize>, Vec<usize>) = order.into_iter().partition(is_bound);
        let helped = tools_that_helped(&self.plans.agenda(), &errand.title);
        let (helpful, others): (Vec<usize>, Vec<usize>) =
            others.into_iter().partition(|place| helped.contains(&cards[*place].name));
        let order: Vec<usize> = bound.into_iter().chain(helpful).chain(others).collect();
        let mut shown: Vec<usize> = order.iter().copied().take(CARDS_MAX).collect();
        let mut found = Vec::new();
        for query in &errand.sought {
            let near = self.neurons.nearest(origin, &account, query, &about).await;
            let new: Vec<usize> = near.into_iter().filter(|place| !shown.contains(place)).take(FOUND_MAX).collect();
            found.extend(new.iter().map(|place| lines[*place].clone()));
            shown.extend(new);
        }
        let nearest: Vec<&String> = order.iter().take(CARDS_MAX).map(|place| &lines[*place]).collect();
        let is_long = nearest.iter().map(|line| tokens_about(line)).sum::<usize>() > CARDS_TOKENS;
        let lines: Vec<String> = nearest
            .into_iter()
            .map(|line| if is_long { cut_to_tokens(line, CARDS_TOKENS / CARDS_MAX) } else { line.clone() })
            .collect();
        let mut left = TOKENS_MAX.saturating_sub(lines.iter().map(|line| tokens_about(line) + 2).sum());
        let fits = |name: &String| {
            let tokens = tokens_about(name) + 1;
            let is_room = tokens <= left;
            left = if is_room { left - tokens } else { left };
            is_room
        };
        let hidden: Vec<usize> = order.iter().copied().filter(|place| !shown.contains(place)).collect();
        let names: Vec<String> = hidden.iter().map(|place| cards[*place].name.to_string()).filter(fits).collect();
        let others = hidden.len() - names.len();
        let others = (others > 0).then(|| format!("{others} others"));
        ShownCards { names: names.into_iter().chain(others).collect(), lines, found }
    }

    /// Takes the changes of the plan that a model wants, and chooses and begins the steps of this wave. A repetition after a
    /// crash finds them begun.
    pub(super) async fn ready(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::act_errand(context)?;
        let Some(id) = errand.goal.clone().filter(|_| errand.acts) else { return Ok(json!(Ready::default())) };
        let planned = context.event("plan").map(|_| Planned::of(context));
        let asks = context.event("questions").and_then(|event| event.content["research"].as_array());
        let researches = asks.is_some_and(|questions| !questions.is_empty());
        let ends = planned.as_ref().is_some_and(|planned| {
            researches || matches!(planned.outcome.status, Some(GoalStatus::Done | GoalStatus::Blocked))
        });
        let cards = self.cards().await;
        let shown = context.events.iter().filter(|event| matches!(&*event.role, "system" | "user"));
        let mut shown: Vec<String> = shown.filter_map(|event| event.content.as_str().map(str::to_owned)).collect();
        // What a step has found in memory stands among the results that the plan was shown.
        for step in errand.plan.iter().filter(|step| step.carries_memory) {
            shown.push(format!("<recalled>{}</recalled>", json!([step.what, step.with])));
        }
        for step in errand.plan.iter().filter(|step| step.status == StepStatus::Done) {
            if reads_memory(self.plans.store(), &errand.plan, &step.id).await {
                shown.push(format!("<recalled>{}</recalled>", step.result.as_deref().unwrap_or_default()));
            }
        }
        self.plans.reload().await.map_err(ToolFailure::passing)?;
        let change = self.plans.change(origin, "wave", |agenda, now| {
            let Some(goal) = agenda.goals.get_mut(&id).filter(|goal| !goal.status.is_over()) else {
                return Ok(Ready::default());
            };
            if goal.job.as_deref() != Some(&*context.job) {
                return Ok(Ready::default());
            }
            if let Some((_, ready)) = goal.course.ready.as_ref().filter(|(job, _)| *job == context.job) {
                return Ok(Ready::deserialize(ready).unwrap_or_default());
            }
            let tainted = context.taint.is_tainted();
            let wave = Wave { errand: &errand, cards: &cards, job: &context.job, tainted, shown: &shown, now };
            let no_parts = planned.as_ref().is_some_and(|planned| wave.check_parts(planned).is_err());
            let ready = Ready { tainted, no_parts, ..wave.of(goal, planned.as_ref(), ends) };
            goal.course.ready = Some((context.job.clone(), json!(ready)));
            Ok(ready)
        });
        let ready = change.await.map_err(ToolFailure::passing)?;
        Ok(json!(ready))
    }

    /// Returns one step as events for a model.
    pub(super) async fn bind(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::act_errand(context)?;
        let item = context.event("item").ok_or_else(|| ToolFailure::fatal("this tool needs a step to work on"))?;
        let wanted: ReadyStep = ReadyStep::deserialize(&item.content).map_err(ToolFailure::fatal)?;
        let agenda = self.plans.agenda();
        let goal = errand.goal.as_ref().and_then(|id| agenda.goals.get(id));
        let step = goal.and_then(|goal| goal.plan.iter().find(|step| step.id == wanted.id));
        let (Some(goal), Some(step)) = (goal, step) else {
            return Err(ToolFailure::fatal("the goal or its step is no longer there"));
        };
        let cards = self.cards().await;
        let writes = step.writes || writes(step, &cards);
        let people = self.readers_of_act(&errand);
        let mut events = vec![self.situation_alone(&people, errand.supply, origin).await?];
        let known = goal.plan.iter().filter(|known| step.after.contains(&known.id));
        let (mut foreign, mut results, mut recalled) = (false, String::new(), String::new());
        for known in known {
            let result = known.result.as_deref().unwrap_or_default();
            // A step that changes something reads no words of strangers, only the values in them.
            let is_hidden = writes && known.foreign;
            // A figure leads to nothing else; a name or an address may.
            let has_texts = known.values.iter().any(|(_, value)| value.is_string());
            foreign |= known.foreign && (!is_hidden || has_texts);
            let shown = match is_hidden {
                true => {
                    let inert: Map<String, Value> =
                        known.inert_values().map(|(name, value)| (name.clone(), value.clone())).collect();
                    let text = format!("«{}, {} characters»", known.id, result.chars().count());
                    if inert.is_empty() { text } else { format!("{} {text}", json!(inert)) }
                }
                false => result_in_words(result, &known.values),
            };
            let line = format!("\n- {} ({}): {}", known.id, known.what, unmarked(&shown));
            let is_memory = reads_memory(self.plans.store(), &goal.plan, &known.id).await;
            if is_memory { recalled.push_str(&line) } else { results.push_str(&line) }
        }
        // The values that later calls take from this step.
        let later = goal.plan.iter().filter(|later| !later.is_over()).flat_map(|later| &later.takes);
        let later: BTreeSet<&str> =
            later.filter(|(_, from)| **from == step.id).map(|(argument, _)| &**argument).collect();
        let later = later.into_iter().collect::<Vec<_>>().join(", ");
        // The title of a goal that a model wrote is no word of a person.
        let mark = if goal.is_in_words_of_a_person() { "goal" } else { "intent" };
        let mut task = format!(
            "A step of what you have set out to do:\n<task>\n<{mark}>{}</{mark}>\n<step>{}</step>",
            unmarked(&goal.title),
            unmarked(&step.what)
        );
        // What the steps before have found stands in the call already.
        let found = step.takes.iter().filter_map(|(argument, from)| {
            let value = goal.plan.iter().find(|step| step.id == *from)?.found_for(argument)?;
            Some((argument.clone(), value.clone()))
        });
        let with = step.with.clone().map(|with| with_takes(&with.into_iter().chain(found).collect(), step));
        let with = with.unwrap_or_default();
        for (mark, text) in [
            (if mark == "goal" { "details" } else { mark }, unmarked(&goal.description)),
            ("said", unmarked(&self.said_of(goal))),
            ("arguments", unmarked(&with)),
            ("results", results),
            ("recalled", recalled),
            ("needed_later", unmarked(&later)),
        ] {
            if !text.is_empty() {
                task.push_str(&format!("\n<{mark}>{text}</{mark}>"));
            }
        }
        task.push_str("\n</task>");
        if writes {
            task.push_str(PASSES_ON);
        }
        events.push(json!({"role": "user", "content": task, "metadata": {"untrusted": foreign}}));
        Ok(json!({"events": events}))
    }

    /// Returns what trusted people said of a goal last, for its steps.
    fn said_of(&self, goal: &Goal) -> String {
        let is_plain = |note: &&Note| note.message.is_some() && self.knowledge.trusts_word_of(&note.by.0);
        let said = goal.notes.iter().rev().filter(is_plain).take(SAID_SHOWN);
        let mut said: Vec<String> = said.map(|note| note.text.clone()).collect();
        said.extend(self.requests_for(goal));
        said.reverse();
        said.iter().map(|text| format!("\n- {}", cut(text, SAID_CHARS))).collect()
    }

    /// Returns the messages in which trusted people asked for a goal, the last first.
    fn requests_for(&self, goal: &Goal) -> Vec<String> {
        let asked = goal.asked_in.iter().rev().flat_map(|all| all.split(' '));
        let text_of = |message: &str| {
            let mut parts = message.rsplitn(3, '/');
            let (message, topic, name) = (parts.next()?, parts.next()?, parts.next()?);
            let canvas = self.canvases.get(name)?;
            let state = canvas.snapshot().state;
            let message = chat::message_in(&state, topic, message)?;
            // What was asked elsewhere is not for the readers of the goal's topic.
            let is_shown = self.knowledge.trusts_word_of(message.sender()) && *topic == *goal.speaks_in();
            self.text_of(&canvas, topic, message).filter(|_| is_shown).map(|text| text.into_owned())
        };
        asked.filter_map(text_of).take(REQUESTS_SHOWN).collect()
    }

    /// Adds the outcomes of a wave to that of the job: what was done, what comes next, and what a person is asked.
    pub(super) async fn take_outcomes(
        &self,
        context: &ToolContext,
        errand: &ActErrand,
        outcome: &mut Outcome,
    ) -> Result<(), ToolFailure> {
        let agenda = self.plans.agenda();
        outcome.strangers = strangers_behind(context);
        let Some(goal) = errand.goal.as_ref().filter(|_| errand.acts).and_then(|id| agenda.goals.get(id)) else {
            return Ok(());
        };
        let (ready, mut question, mut has_failed) = (Ready::of(context), None, false);
        if ready.void {
            outcome.say.clear();
        }
        if ready.void || ready.no_parts {
            outcome.subgoals.clear();
            outcome.schedules.clear();
        }
        for (id, concluded, effects) in self.outcomes(context, errand).await? {
            let what = ready.steps.iter().find(|step| step.id == id).map(|step| &*step.what).unwrap_or_default();
            let came = match &concluded {
                StepOutcome::Done { result, .. } => format!("done: {result}"),
                StepOutcome::Failed(why) => format!("failed: {why}"),
                StepOutcome::Asks(asked) => format!("asks: {asked}"),
            };
            outcome.steps.push(cut(&format!("{what}: {came}"), STEP_CHARS));
            has_failed |= matches!(concluded, StepOutcome::Failed(_));
            if let StepOutcome::Asks(asked) = &concluded {
                question = Some(asked.clone());
            }
            outcome.wave.push((id, concluded, effects.into_iter().map(|effect| effect.id).collect()));
        }
        outcome.foreign = context.taint.is_tainted();
        // Words that only the steps have read stand in their results, which are marked, and led to nothing else.
        if !ready.tainted && question.is_none() {
            outcome.strangers.retain(|who| **who != *OUTSIDE);
        }
        if let Some(ask) = ready.ask.or(question) {
            let said = outcome.say.trim();
            outcome.say = if said.is_empty() { ask } else { format!("{said}\n\n{ask}") };
            (outcome.status, outcome.asks, outcome.again_in_minutes) = (Some(GoalStatus::Blocked), ready.about, 0);
            outcome.is_needed = true;
        } else if ready.again || !outcome.wave.is_empty() {
            // The next wave follows at once.
            outcome.status = Some(GoalStatus::Active);
            outcome.at_once = true;
            outcome.goes_on = !ready.again && !has_failed;
        } else if outcome.status == Some(GoalStatus::Done) && !outcome.say.trim().is_empty() {
            let (language, effects) = (Language::of(&goal.title), self.effects_of(goal).await?);
            let cards = self.cards().await;
            // The report names each step that should have changed something and did not, whatever the model writes.
            let is_undone = |step: &&PlanStep| {
                step.tries > 0 && is_recorded(step, &cards) && effects.iter().all(|(id, _)| *id != step.id)
            };
            let undone = goal.plan.iter().filter(|step| step.status != StepStatus::Done).filter(is_undone);
            let undone = undone.map(|step| format!("- {}: {}", step.what, not_done(language)));
            let calls = Some(report_of(language, &effects, errand.decides)).filter(|calls| !calls.is_empty());
            let done = calls.into_iter().chain(undone).collect::<Vec<_>>().join("\n");
            if !done.is_empty() {
                outcome.say = format!("{}\n\n{done}", outcome.say.trim());
            }
        }
        Ok(())
    }

    /// Returns the outcomes of the steps that a job has carried out, each with its effects.
    async fn outcomes(
        &self,
        context: &ToolContext,
        errand: &ActErrand,
    ) -> Result<Vec<(StepId, StepOutcome, Vec<Effect>)>, ToolFailure> {
        let (ready, agenda) = (Ready::of(context), self.plans.agenda());
        let Some(goal) = errand.goal.as_ref().and_then(|id| agenda.goals.get(id)) else { return Ok(Vec::new()) };
        if ready.steps.is_empty() {
            return Ok(Vec::new());
        }
        let outputs = context.event("work").and_then(|event| event.content.as_array().cloned()).unwrap_or_default();
        let (cards, effects) = (self.cards().await, self.effects_of(goal).await?);
        let mut outcomes = Vec::new();
        for (place, ready) in ready.steps.iter().enumerate() {
            let Some(step) = goal.plan.iter().find(|step| step.id == ready.id) else { continue };
            let own: Vec<Effect> =
                effects.iter().filter(|(id, _)| *id == step.id).map(|(_, effect)| effect.clone()).collect();
            let outcome = match outputs.get(place) {
                Some(output) if !output.is_null() => outcome_of(output, is_recorded(step, &cards), &own),
                _ => StepOutcome::Failed(self.failure_of(context, place).await),
            };
            let outcome = match outcome {
                StepOutcome::Failed(why) => StepOutcome::Failed(with_done(why, &own)),
                outcome => outcome,
            };
            outcomes.push((step.id.clone(), outcome, own));
        }
        Ok(outcomes)
    }

    async fn effects_of(&self, goal: &Goal) -> Result<Vec<(StepId, Effect)>, ToolFailure> {
        let lifeform = self.me.id.0.strip_prefix("lifeform:").unwrap_or_default();
        let (store, agenda) = (self.plans.store(), self.plans.agenda());
        effects_of(store, &agenda, goal, lifeform).await.map_err(ToolFailure::passing)
    }

    /// Returns the reason why a step of the wave failed, from the journal of the job.
    async fn failure_of(&self, context: &ToolContext, place: usize) -> String {
        let stream = format!("job:{}", context.job).into();
        let (mut after, mut why) = (0, None);
        let prefix = format!("work[{place}]");
        while let Ok(page) = self.plans.store().entries(&stream, after, usize::MAX).await {
            let Some(last) = page.last() else { break };
            after = last.seq;
            let failure = |entry: &Entry| match entry.decode::<Fact>() {
                Ok(Fact::Failed { step, error, .. }) if step.starts_with(&prefix) => Some(error),
                _ => None,
            };
            why = page.iter().filter_map(failure).next_back().or(why);
        }
        why.unwrap_or_else(|| "it came to no end".to_owned())
    }
}

/// Returns the effects of a goal's steps, each with its step.
///
/// # Errors
/// A store error.
pub(crate) async fn effects_of(
    store: &Store,
    agenda: &Agenda,
    goal: &Goal,
    lifeform: &str,
) -> Result<Vec<(StepId, Effect)>, StoreError> {
    let Some(scope) = agenda.effect_scope(&Act::Goal(goal.id.clone()), lifeform) else { return Ok(Vec::new()) };
    let known = store.document::<Effects>(&neurons::effects_key(&scope.root)).await?;
    let of_step = |effect: Effect| {
        let is_its = |step: &&PlanStep| {
            let work = work_of_step(&scope.work, &step.id);
            // A fascicle that the step calls as a tool has work within that of the step.
            effect.work.strip_prefix(&*work).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let step = goal.plan.iter().find(is_its)?;
        Some((step.id.clone(), effect))
    };
    Ok(known.map(|known| known.value.effects).unwrap_or_default().into_iter().filter_map(of_step).collect())
}

/// Returns `true` if a step of a plan, or one that it follows, has read the memory, or the journal that would say so is gone: what it
/// found may be what people told the lifeform.
pub(crate) async fn reads_memory(store: &Store, plan: &[PlanStep], id: &StepId) -> bool {
    let (mut open, mut seen) = (vec![id.clone()], BTreeSet::new());
    while let Some(id) = open.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let Some(step) = plan.iter().find(|step| step.id == id).filter(|step| !step.carries_memory) else {
            return true;
        };
        let made = match step.act() {
            Some(act) => calls_made(store, &act).await,
            None => return true,
        };
        let Ok(made) = made else { return true };
        let reads = |made: &CallMade| match &*made.tool {
            // A network of the model's own has what it names.
            "fascicle_run" => json!(made.arguments).to_string().contains(SEARCH),
            tool => step.tools.iter().all(|bound| **bound != *tool) && !PLAIN.contains(&tool),
        };
        if made.iter().any(reads) || (made.is_empty() && !step.tools.is_empty()) {
            return true;
        }
        open.extend(step.after.iter().cloned());
    }
    false
}

/// Returns `true` if each call by which a step changes something leaves a record: its tools that write reach outside.
fn is_recorded(step: &PlanStep, cards: &[ToolCard]) -> bool {
    let mut tools = step.tools.iter().filter_map(|name| cards.iter().find(|card| card.name == *name));
    writes(step, cards) && tools.all(|card| card.effect == EffectClass::Read || card.is_outside)
}

/// Returns `true` if a step may change something outside.
fn writes(step: &PlanStep, cards: &[ToolCard]) -> bool {
    step.tools.iter().any(|name| cards.iter().any(|card| card.name == *name && card.effect > EffectClass::Read))
}

fn ready_step(step: &PlanStep) -> ReadyStep {
    ReadyStep { id: step.id.clone(), what: step.what.clone() }
}
