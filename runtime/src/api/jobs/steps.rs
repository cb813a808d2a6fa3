//! The steps of a job: what each one did, when, and with what result.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fascicles::JobId;
use fascicles::run::{Fact, Step};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Entry, PAGE_MAX, Stream, Timestamp};
use utoipa::{IntoParams, ToSchema};

use crate::api::App;
use crate::api::error::ApiError;
use crate::api::extract::{ApiPath, ApiQuery, Caller};

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StepState {
    /// The step was started.
    Started,
    /// The step waits for the client, an approval or an event.
    Paused,
    /// The step is complete.
    Done,
    /// The step had no work, or failed and its node allows that.
    Passed,
    /// Too few of its edges fired.
    Skipped,
    /// The last try failed.
    Failed,
    /// The step failed, and what needs its output does not run.
    GivenUp,
    /// The step failed, and so did its fascicle.
    Broken,
    /// The daemon stopped, or the job ended, while the step was running.
    Interrupted,
}

/// A step of a job.
#[derive(Debug, Serialize, ToSchema)]
struct StepRecord {
    /// The path: the node, and within a nested fascicle `node/node`; `node[2]` is the third item of a node that runs for each one.
    #[schema(value_type = String)]
    step: Step,
    /// The state.
    state: StepState,
    /// The number of tries so far.
    attempts: u32,
    /// The time of the first start; `null` if it was never started.
    started_at: Option<Timestamp>,
    /// The time of the last change.
    updated_at: Timestamp,
    /// The error of the last try that failed.
    error: Option<String>,
    /// `true` if its fallback ran.
    fell_back: bool,
    /// The output; only if the request names the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
    /// The reference of the entry of the last change, for the trace.
    #[serde(rename = "ref")]
    reference: String,
}

/// The steps of a job.
#[derive(Serialize, ToSchema)]
pub(crate) struct JobSteps {
    /// The id of the fascicle. Its definition may have been changed since the job began.
    fascicle: String,
    /// The steps in the order of their starts.
    steps: Vec<StepRecord>,
}

/// The selection of steps.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// The path of one step, which is then returned with its output.
    #[serde(default)]
    step: Option<String>,
}

/// Returns the steps of a job with their states and times.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/steps",
    params(("id" = String, Path), Asked),
    responses(
        (status = 200, description = "the steps", body = JobSteps),
        (status = 404, description = "there is no such job of yours, or no such step"),
    ),
)]
pub(crate) async fn steps(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(asked): ApiQuery<Asked>,
) -> Result<Json<JobSteps>, ApiError> {
    // Who may approve a step sees the job; the outputs are for its owner.
    let head = match asked.step {
        Some(_) => app.fascicles.job_of(&origin.principal, &id).await?,
        None => app.fascicles.seen_by(&origin.principal, &id).await?,
    };
    let stream: Stream = format!("job:{id}").into();
    let mut folded = Folded { wanted: asked.step.clone(), ..Folded::default() };
    let mut after = 0;
    loop {
        let page = app.store.entries(&stream, after, PAGE_MAX).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        page.iter().for_each(|entry| folded.add(&stream, entry));
    }
    let mut steps = folded.steps();
    if let Some(step) = asked.step {
        steps.retain(|known| *known.step == *step);
        if steps.is_empty() {
            let detail = format!("the job {id} has no step {step}");
            return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", detail));
        }
    }
    Ok(Json(JobSteps { fascicle: head.fascicle.to_string(), steps }))
}

/// The facts of a job, folded into its steps.
#[derive(Default)]
struct Folded {
    order: Vec<Step>,
    steps: BTreeMap<Step, StepRecord>,
    /// The step whose output is kept.
    wanted: Option<String>,
}

impl Folded {
    fn add(&mut self, stream: &Stream, entry: &Entry) {
        let Ok(fact) = entry.decode::<Fact>() else { return };
        let (step, state) = match &fact {
            Fact::Started { step, .. } => (step, StepState::Started),
            Fact::Paused { step, .. } => (step, StepState::Paused),
            Fact::Done { step, .. } => (step, StepState::Done),
            Fact::Passed { step } => (step, StepState::Passed),
            Fact::Skipped { step } => (step, StepState::Skipped),
            Fact::Failed { step, .. } => (step, StepState::Failed),
            Fact::GivenUp { step } => (step, StepState::GivenUp),
            Fact::Broken { step } => (step, StepState::Broken),
            Fact::Interrupted { step } => (step, StepState::Interrupted),
            Fact::Ended { .. } => {
                // A cancelled job ends in the middle of its steps.
                let running = |known: &&mut StepRecord| matches!(known.state, StepState::Started | StepState::Paused);
                self.steps.values_mut().filter(running).for_each(|known| known.state = StepState::Interrupted);
                return;
            }
            _ => return,
        };
        let order = &mut self.order;
        let known = self.steps.entry(step.clone()).or_insert_with(|| {
            order.push(step.clone());
            StepRecord {
                step: step.clone(),
                state,
                attempts: 0,
                started_at: None,
                updated_at: entry.at,
                error: None,
                fell_back: false,
                output: None,
                reference: String::new(),
            }
        });
        known.state = state;
        known.updated_at = entry.at;
        known.reference = format!("{stream}@{}", entry.seq);
        match fact {
            Fact::Started { attempt, fall_back, .. } => {
                known.attempts = known.attempts.max(attempt);
                known.fell_back |= fall_back;
                known.started_at.get_or_insert(entry.at);
            }
            Fact::Failed { error, .. } => known.error = Some(error),
            Fact::Done { step, output } if self.wanted.as_deref() == Some(&*step) => known.output = Some(output),
            _ => {}
        }
    }

    /// Returns the steps in the order of their starts.
    fn steps(mut self) -> Vec<StepRecord> {
        self.order.iter().filter_map(|step| self.steps.remove(step)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::{Cause, PrincipalId};

    use super::*;

    #[test]
    fn facts_become_the_steps_of_a_job() {
        let facts = [
            json!({"fact": "accepted", "events": []}),
            json!({"fact": "started", "step": "look", "attempt": 1}),
            json!({"fact": "failed", "step": "look", "error": "no answer", "retry": true}),
            json!({"fact": "started", "step": "look", "attempt": 2}),
            json!({"fact": "done", "step": "look", "output": {"found": 3}}),
            json!({"fact": "skipped", "step": "mend"}),
            json!({"fact": "started", "step": "say", "attempt": 1}),
            json!({"fact": "ended", "status": "completed", "error": null}),
        ];
        let entry = |(at, fact): (usize, &Value)| Entry {
            seq: at as u64 + 1,
            at: Timestamp::from_second(at as i64).unwrap(),
            by: PrincipalId::new("user:ada"),
            cause: Cause::default(),
            kind: "fact".into(),
            data: serde_json::to_vec(fact).unwrap().into(),
        };
        let entries: Vec<Entry> = facts.iter().enumerate().map(entry).collect();
        let fold = |wanted: Option<&str>| {
            let mut folded = Folded { wanted: wanted.map(str::to_owned), ..Folded::default() };
            entries.iter().for_each(|entry| folded.add(&"job:j".into(), entry));
            folded.steps()
        };
        let steps = fold(Some("look"));
        let shown = json!(steps);
        assert_eq!(
            shown[0],
            json!({
                "step": "look", "state": "done", "attempts": 2, "started_at": "1970-01-01T00:00:01Z",
                "updated_at": "1970-01-01T00:00:04Z", "error": "no answer", "fell_back": false,
                "output": {"found": 3}, "ref": "job:j@5",
            })
        );
        assert_eq!(
            (&shown[1]["step"], &shown[1]["state"], &shown[1]["started_at"]),
            (&json!("mend"), &json!("skipped"), &Value::Null)
        );
        assert_eq!(shown[2]["state"], "interrupted", "the job ended before it did");
        assert!(fold(None)[0].output.is_none());
    }
}
