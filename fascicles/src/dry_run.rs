//! Dry runs of a fascicle, without models and without stored state: the same run as in a job, with scripted outputs
//! (F2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use neurons::kinds::OutputShape;
use serde::Serialize;
use serde_json::{Value, json};
use store::{Event, Timestamp};
use utoipa::ToSchema;

use crate::FascicleError;
use crate::fascicles::Fascicles;
use crate::fault::{Fault, Faults};
use crate::graph::{Action, Graph};
use crate::run::{Answer, Effect, Fact, Observed, Pause, Run, RunInput, Start, Status, Step, Taint};
use crate::spec::FascicleSpec;

/// The scripted outputs by node id, or by step path for single steps. `{"$fail": "why"}` is a failure; `{"$each": […]}`
/// is a list of outputs for successive times.
pub type Script = BTreeMap<String, Value>;

/// The maximum number of changes of steps in a dry run, and its longest time.
const FACTS_MAX: usize = 10_000;
const TIME_MAX: Duration = Duration::from_secs(5);

/// The outcome of a dry run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DryRun {
    /// The final status. A wait without a scripted answer ends the run.
    pub status: Status,
    /// The output.
    pub output: Value,
    /// The reason of a failure.
    pub error: Option<String>,
    /// The events for observers.
    pub events: Vec<Observed>,
    /// The steps, in the order of their execution.
    pub steps: Vec<StepTaken>,
}

/// A step of a dry run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StepTaken {
    /// The path of the step.
    #[schema(value_type = String)]
    pub step: Step,
    /// The change of the step: `started`, `waiting`, `done`, `passed`, `skipped` or `failed`.
    pub what: &'static str,
    /// The output, or the reason of a failure.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

impl Fascicles {
    /// Runs a definition, stored or not, with `events` as the input.
    ///
    /// # Errors
    /// Returns [`FascicleError::Invalid`] if the definition is invalid or the script lacks a necessary output.
    pub async fn dry_run(
        &self,
        spec: &FascicleSpec,
        events: Vec<Event>,
        script: &Script,
    ) -> Result<DryRun, FascicleError> {
        let plan = self.plan(spec.clone(), None).await?;
        let graph = Graph::build(&plan, Some(&self.inner.catalogue.tools)).map_err(FascicleError::Invalid)?;
        let (now, script) = (self.inner.store.clock().now(), script.clone());
        // A map over many items takes the processor for seconds.
        let run = tokio::task::spawn_blocking(move || simulate(graph, events, script, now));
        run.await.map_err(|panic| FascicleError::Died(panic.to_string()))?
    }
}

/// Runs a graph to its end with scripted outputs.
fn simulate(graph: Arc<Graph>, events: Vec<Event>, script: Script, now: Timestamp) -> Result<DryRun, FascicleError> {
    let mut run = Run::new(graph);
    let mut facts = Vec::new();
    let mut todo: VecDeque<Effect> = VecDeque::new();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut missing = Vec::new();
    let mut news = Some(RunInput::Accepted { events, deadline_at: None });
    let begun = Instant::now();
    loop {
        if facts.len() > FACTS_MAX || begun.elapsed() > TIME_MAX {
            let reason = format!("it takes over {FACTS_MAX} changes of steps, or {} s", TIME_MAX.as_secs());
            let cure = "give it a smaller input".to_owned();
            return Err(FascicleError::Invalid(Faults(vec![Fault { path: "input".into(), reason, cure }])));
        }
        if let Some(news) = news.take() {
            let out = run.on(news, now);
            facts.extend(out.facts);
            todo.extend(out.effects);
        }
        news = match todo.pop_front() {
            Some(Effect::Start(start)) => match scripted(&script, &start.step, &mut times) {
                Some(output) => Some(ended(&start, output)),
                None => match by_kind(&start) {
                    Some(output) => Some(ended(&start, output)),
                    None => {
                        missing.push(start.step);
                        None
                    }
                },
            },
            Some(Effect::Stop(_)) => None,
            None => match answered(&run, &script, &mut times) {
                Some(news) => Some(news),
                None => break,
            },
        };
    }
    if !missing.is_empty() {
        let fault = |step: Step| Fault {
            path: format!("script.{step}"),
            reason: "this step was reached, and what it would bring cannot be guessed".into(),
            cure: "give its output in the script".into(),
        };
        return Err(FascicleError::Invalid(Faults(missing.into_iter().map(fault).collect())));
    }
    let events = facts.iter().filter_map(|fact| match fact {
        Fact::Observed(observed) => Some(observed.clone()),
        _ => None,
    });
    Ok(DryRun {
        status: run.status(),
        output: run.output(),
        error: run.error().cloned(),
        events: events.collect(),
        steps: facts.iter().filter_map(taken).collect(),
    })
}

/// Returns the scripted output for a step: by the step's path, else by the id of its node.
fn scripted(script: &Script, step: &Step, times: &mut BTreeMap<String, usize>) -> Option<Value> {
    let node = step.rsplit('/').next().unwrap_or(step).split('[').next().unwrap_or(step);
    let (name, value) = script.get_key_value(&**step).or_else(|| script.get_key_value(node))?;
    match value.get("$each").and_then(Value::as_array) {
        None => Some(value.clone()),
        Some(each) => {
            let time = times.entry(name.clone()).or_default();
            *time += 1;
            each.get(*time - 1).or(each.last()).cloned()
        }
    }
}

/// Returns a default output of the neuron's kind, if any output will do.
fn by_kind(start: &Start) -> Option<Value> {
    let Action::Neuron { spec, .. } = &*start.leaf else { return None };
    match spec.kind.rules().output(spec) {
        OutputShape::Text => Some(json!(format!("({})", start.step))),
        OutputShape::Events => Some(json!({"events": start.events})),
        OutputShape::Routes(to) => to.first().map(|to| json!([{"neuron": to, "events": start.events}])),
        OutputShape::Json(_) => None,
    }
}

fn ended(start: &Start, output: Value) -> RunInput {
    let (step, attempt) = (start.step.clone(), start.attempt);
    match output.get("$fail") {
        Some(why) => {
            let error = why.as_str().map_or_else(|| why.to_string(), str::to_owned);
            RunInput::Failed { step, attempt, error, retry: false }
        }
        None => RunInput::Done { step, attempt, output, taint: Taint::Clean },
    }
}

/// Returns the scripted answer to the first wait for which the script has one.
fn answered(run: &Run, script: &Script, times: &mut BTreeMap<String, usize>) -> Option<RunInput> {
    let waits: Vec<(Step, u32, Pause)> =
        run.waits().map(|(step, wait)| (step.clone(), wait.n, wait.pause.clone())).collect();
    waits.into_iter().find_map(|(step, wait, pause)| {
        let said = scripted(script, &step, times)?;
        let answer = match pause {
            Pause::Approval { .. } => {
                let approved = said.as_bool().unwrap_or_else(|| said["approved"] == true);
                Answer::Approval { approved, comment: None, by: "script".into() }
            }
            Pause::Event { .. } => Answer::Event(said),
            Pause::Tools { .. } => return None,
        };
        Some(RunInput::Answered { wait, body: "script".into(), answer })
    })
}

fn taken(fact: &Fact) -> Option<StepTaken> {
    let of = |step: &Arc<str>, what, detail| Some(StepTaken { step: step.clone(), what, detail });
    match fact {
        Fact::Started { step, .. } => of(step, "started", Value::Null),
        Fact::Paused { step, .. } => of(step, "waiting", Value::Null),
        Fact::Done { step, output } => of(step, "done", output.clone()),
        Fact::Passed { step } => of(step, "passed", Value::Null),
        Fact::Skipped { step } => of(step, "skipped", Value::Null),
        Fact::Failed { step, error, .. } => of(step, "failed", json!(error)),
        _ => None,
    }
}
