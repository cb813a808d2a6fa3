//! `/v1/approvals`: the waits for a person's decision, in jobs, goals and talks.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fascicles::{Approval, FascicleError, FascicleId, JobId, PersonsDecision, Question};
use lifeform::lifeforms::PlanQuestion;
use neurons::tools::{ArgumentOrigin, Form, Grant};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::Timestamp;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Participant};

/// A tool call that waits.
#[derive(Serialize, ToSchema)]
struct WaitingCall {
    /// The name of the tool.
    tool: String,
    /// The parameters, exactly as they are sent; a text if the model wrote no JSON.
    #[schema(value_type = Object)]
    arguments: Value,
    /// The further parameters, each with the work of the plan's step that finds its value. The call is made with no other value.
    takes: BTreeMap<String, String>,
    /// The origin of each parameter, by its place (JSON Pointer, RFC 6901): the words of a person, a result, memory, the plan, or the
    /// model's own words. Empty for a plan.
    #[schema(value_type = Object)]
    origins: BTreeMap<String, ArgumentOrigin>,
    /// `true` if the call was made and nobody knows whether it was done.
    unsure: bool,
    /// The reason why it waits, if it is not the rule of the tool.
    why: Option<String>,
    /// The form that the tool's server asks a person to fill in; the decision is `answer`, with `answers`.
    form: Option<Form>,
}

/// Something that waits for a decision.
#[derive(Serialize, ToSchema)]
#[schema(as = WaitingApproval)]
pub(super) struct ApprovalBody {
    /// The id.
    #[schema(value_type = String)]
    id: Arc<str>,
    /// The job.
    #[schema(value_type = String)]
    job: JobId,
    /// The owner of the job: a lifeform, or the daemon.
    #[schema(value_type = String)]
    owner: Arc<str>,
    /// The work around it: a topic (`lifeform/canvas/topic`), a goal or a job.
    #[schema(value_type = String)]
    root: Arc<str>,
    /// The participant for whom the job runs; `null` for an operator, the daemon or the lifeform itself.
    #[schema(value_type = Option<String>)]
    participant: Option<Arc<str>>,
    /// The fascicle of the job; `null` for a plan, for which no job waits.
    #[schema(value_type = Option<String>)]
    fascicle: Option<FascicleId>,
    /// The step that waits; `null` for a plan.
    #[schema(value_type = Option<String>)]
    step: Option<Arc<str>>,
    /// The tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    calls: Vec<WaitingCall>,
    /// The question of an `approve` node or of a plan.
    message: Option<String>,
    /// The content that an `approve` node asks about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    events: Vec<Value>,
    /// The time since which it waits, or later.
    since: Timestamp,
    /// The end of the wait, if the step itself sets one.
    expires_at: Option<Timestamp>,
}

impl From<Approval> for ApprovalBody {
    fn from(approval: Approval) -> Self {
        let Approval { id, job, owner, root, participant, fascicle, step, question, since, expires_at } = approval;
        let mut body = Self {
            id,
            job,
            owner,
            root,
            participant,
            fascicle: Some(fascicle),
            step: Some(step),
            calls: Vec::new(),
            message: None,
            events: Vec::new(),
            since,
            expires_at,
        };
        match question {
            Question::Calls(calls) => {
                let calls = calls.into_iter().map(|call| WaitingCall {
                    arguments: serde_json::from_str(&call.params).unwrap_or(Value::String(call.params)),
                    tool: call.name,
                    takes: BTreeMap::new(),
                    origins: call.origins,
                    unsure: call.unsure,
                    why: call.why,
                    form: call.form.map(|form| *form),
                });
                body.calls = calls.collect();
            }
            Question::Input { message, events } => {
                body.message = Some(message);
                body.events = events.iter().map(|event| serde_json::to_value(event).unwrap_or_default()).collect();
            }
        }
        body
    }
}

impl From<PlanQuestion> for ApprovalBody {
    fn from(question: PlanQuestion) -> Self {
        let PlanQuestion { id, lifeform, goal, message, calls, finders, since } = question;
        let found_by =
            |(argument, step): (String, Arc<str>)| (argument, finders.get(&step).cloned().unwrap_or_default());
        let call = |grant: Grant| WaitingCall {
            tool: grant.tool.to_string(),
            arguments: Value::Object(grant.arguments),
            takes: grant.takes.into_iter().map(found_by).collect(),
            origins: BTreeMap::new(),
            unsure: false,
            why: None,
            form: None,
        };
        Self {
            job: id.strip_suffix(".plan").unwrap_or(&id).into(),
            id,
            owner: format!("lifeform:{lifeform}").into(),
            root: format!("{lifeform}/goal/{goal}").into(),
            participant: None,
            fascicle: None,
            step: None,
            calls: calls.into_iter().map(call).collect(),
            message: Some(message),
            events: Vec::new(),
            since,
            expires_at: None,
        }
    }
}

/// A page of what waits for a decision.
#[derive(Serialize, ToSchema)]
pub(super) struct ApprovalPage {
    /// The open waits, by owner and job.
    approvals: Vec<ApprovalBody>,
    /// The `after` of the next page; `null` at the end. A page may be empty before the end.
    #[schema(value_type = Option<String>)]
    next: Option<Arc<str>>,
}

/// A page of what waits for a decision.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalQuery {
    /// The `next` of the page before.
    #[serde(default)]
    after: String,
}

/// Lists what waits for a decision and that the caller may see.
#[utoipa::path(
    get, path = "/v1/approvals",
    params(ApprovalQuery),
    responses((status = 200, description = "a page of what waits", body = ApprovalPage)),
)]
pub(super) async fn list(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiQuery(asked): ApiQuery<ApprovalQuery>,
) -> Result<Json<ApprovalPage>, ApiError> {
    // The jobs come first, and then the plans, for which no job waits.
    let (mut approvals, plans_after) = match asked.after.strip_prefix(PLANS) {
        Some(after) => (Vec::new(), after),
        None => {
            let (found, next) = app.fascicles.approvals(&origin.principal, &asked.after).await?;
            let found: Vec<ApprovalBody> = found.into_iter().map(ApprovalBody::from).collect();
            match next {
                Some(next) => return Ok(Json(ApprovalPage { approvals: found, next: Some(next) })),
                None => (found, ""),
            }
        }
    };
    let (questions, next) = app.lifeforms.plan_questions(&origin.principal, plans_after).await?;
    approvals.extend(questions.into_iter().map(ApprovalBody::from));
    Ok(Json(ApprovalPage { approvals, next: next.map(|next| format!("{PLANS}{next}").into()) }))
}

/// The beginning of `after` for the pages of plans.
const PLANS: &str = "plans:";

/// Returns what waits under an id.
#[utoipa::path(
    get, path = "/v1/approvals/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "what waits", body = ApprovalBody),
        (status = 404, description = "nothing waits under it"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<ApprovalBody>, ApiError> {
    if let Some(question) = app.lifeforms.plan_question(&origin.principal, &id).await? {
        return Ok(Json(question.into()));
    }
    Ok(Json(app.fascicles.approval(&origin.principal, &id).await.map_err(none)?.into()))
}

/// Returns the error for an id under which nothing waits.
fn none(error: FascicleError) -> ApiError {
    match error {
        FascicleError::NoWait => {
            let none = ApiError::new(StatusCode::NOT_FOUND, "approval_not_found", "no approval has this id");
            none.hint("GET /v1/approvals lists them")
        }
        error => error.into(),
    }
}

/// A decision.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionBody {
    /// The decision.
    decision: PersonsDecision,
    /// The reason of a refusal, or the result of calls that were done, for the model.
    #[serde(default)]
    comment: Option<String>,
    /// The answers to a form, by field, for the decision `answer`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    answers: Option<Map<String, Value>>,
}

/// A decision that was taken.
#[derive(Serialize, ToSchema)]
pub(super) struct Decided {
    /// The id of what waited.
    id: String,
    /// The decision.
    decision: PersonsDecision,
    /// The job, which goes on.
    #[schema(value_type = String)]
    job: JobId,
}

/// Decides what waits under an id.
///
/// A repetition of the same decision changes nothing.
#[utoipa::path(
    post, path = "/v1/approvals/{id}",
    params(("id" = String, Path)),
    request_body = DecisionBody,
    responses(
        (status = 200, description = "taken", body = Decided),
        (status = 403, description = "only an operator, or an approver, decides this"),
        (status = 404, description = "nothing waits under it"),
        (status = 409, description = "its owner is not alive"),
        (status = 410, description = "it is no longer waited for"),
        (status = 422, description = "no decision about this question, or another than was taken before"),
    ),
)]
pub(super) async fn decide(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
    ApiJson(DecisionBody { decision, comment, answers }): ApiJson<DecisionBody>,
) -> Result<Json<Decided>, ApiError> {
    if answers.is_some() != (decision == PersonsDecision::Answer) {
        return Err(ApiError::invalid("answers stand beside the decision answer, and nowhere else"));
    }
    if answers.is_some() && comment.is_some() {
        return Err(ApiError::invalid("a comment is for another decision than answer"));
    }
    let comment = answers.map(|answers| Value::Object(answers).to_string()).or(comment);
    if comment.as_ref().is_some_and(|comment| comment.len() > 4_096) {
        return Err(ApiError::invalid("comment is at most 4096 bytes"));
    }
    if id.ends_with(".plan") {
        if matches!(decision, PersonsDecision::Done | PersonsDecision::Answer) {
            return Err(ApiError::invalid("the calls of a plan are approved or refused"));
        }
        if decision == PersonsDecision::Approve && comment.is_some() {
            return Err(ApiError::invalid("the calls of a plan are approved as they are: a comment is for a refusal"));
        }
        let decided = (decision == PersonsDecision::Approve, comment);
        return match app.lifeforms.decide_plan(&origin, &id, decided).await? {
            true => Ok(Json(Decided { job: id.trim_end_matches(".plan").into(), id, decision })),
            false => Err(none(FascicleError::NoWait)),
        };
    }
    let decided = app.fascicles.decide_approval(&origin.principal, &id, decision, comment).await;
    let head = decided.map_err(none)?;
    Ok(Json(Decided { id, decision, job: head.id }))
}
