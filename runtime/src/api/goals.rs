//! `/v1/lifeforms/{id}/goals` and `/schedules`: the goals and schedules of a lifeform.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use knowledge::KnowledgeError;
use lifeform::LifeformId;
use lifeform::agenda::{Agenda, AgendaItemId, Goal, GoalChange, GoalSpec, ScheduleSpec};
use serde_json::{Value, json};
use store::Origin;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, Caller, IdempotencyKey, Participant};

type GoalPath = ApiPath<(LifeformId, AgendaItemId)>;

/// Returns a goal with its subgoals.
fn tree(agenda: &Agenda, goal: &Goal) -> Value {
    let serving = agenda.goals.values().filter(|other| other.parent.as_ref() == Some(&goal.id));
    let subgoals: Vec<Value> = serving.map(|other| tree(agenda, other)).collect();
    let mut shown = json!(goal);
    shown["subgoals"] = json!(subgoals);
    shown
}

/// Adds the related records to a goal and its subgoals, as far as the caller can see them.
async fn tell_related(app: &App, origin: &Origin, goal: &mut Value) -> Result<(), ApiError> {
    let mut related = Vec::new();
    for known in goal["knowledge"].as_array().into_iter().flatten() {
        match app.knowledge.get(known["id"].as_str().unwrap_or_default(), origin).await {
            Ok(record) => {
                let (task, content, quality) = (record.task, record.content, record.eval.quality());
                related.push(json!({
                    "id": record.id,
                    "task": task,
                    "content": content,
                    "types": record.types,
                    "quality_score": quality,
                    "at": known["at"],
                }));
            }
            Err(KnowledgeError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    goal["knowledge"] = related.into();
    for goal in goal["subgoals"].as_array_mut().into_iter().flatten() {
        Box::pin(tell_related(app, origin, goal)).await?;
    }
    Ok(())
}

/// Lists the goals of a lifeform as a tree.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/goals",
    params(("id" = String, Path)),
    responses(
        (
            status = 200,
            description = "{goals: [{id, title, status, plan, notes, evidence, deadline, next, subgoals, knowledge: [{id, task, content, quality_score}] that came to mind, …}], unasked: how often it spoke unasked within a day}",
        ),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Value>, ApiError> {
    let agenda = app.lifeforms.agenda(&id).await?;
    let roots = agenda.goals.values().filter(|goal| goal.parent.is_none());
    let mut shown: Vec<Value> = roots.map(|goal| tree(&agenda, goal)).collect();
    for goal in &mut shown {
        tell_related(&app, &caller.0, goal).await?;
    }
    Ok(Json(json!({"goals": shown, "unasked": agenda.unasked.len()})))
}

/// Adds a goal.
///
/// The body is `{title, description?, parent?, at?, deadline?}`. Without `at`, the lifeform pursues it at the next
/// heartbeat. Requests with the same `Idempotency-Key` add one goal.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/goals",
    params(("id" = String, Path), IdempotencyKey),
    request_body = Object,
    responses(
        (
            status = 201,
            description = "the goal, or `{id, over: true}` when it was set under this key before and is no more",
        ),
        (status = 422, description = "not a goal"),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<LifeformId>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(goal): ApiJson<GoalSpec>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let made = app.lifeforms.set_goal(&origin, &id, goal, key).await?;
    let agenda = app.lifeforms.agenda(&id).await?;
    if !agenda.goals.contains_key(&made) {
        return Ok((StatusCode::CREATED, Json(over(&made))));
    }
    Ok((StatusCode::CREATED, Json(shown(&app, &id, &made, &origin).await?)))
}

/// Returns the response for a goal or a schedule that was added earlier and is no longer on the agenda.
fn over(made: &AgendaItemId) -> Value {
    json!({"id": made, "over": true})
}

async fn shown(app: &App, id: &LifeformId, goal: &AgendaItemId, origin: &Origin) -> Result<Value, ApiError> {
    let agenda = app.lifeforms.agenda(id).await?;
    let goal = agenda.goal(goal).map_err(lifeform::LifeformError::Refused)?;
    let mut shown = tree(&agenda, goal);
    tell_related(app, origin, &mut shown).await?;
    Ok(shown)
}

/// Returns a goal with its subgoals.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/goals/{goal}",
    params(("id" = String, Path), ("goal" = String, Path)),
    responses((status = 200, description = "the goal"), (status = 404, description = "there is none")),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    ApiPath((id, goal)): GoalPath,
) -> Result<Json<Value>, ApiError> {
    Ok(Json(shown(&app, &id, &goal, &caller.0).await?))
}

/// Changes a goal.
///
/// The body has any of `{title, description, status, at, deadline, plan, note}`.
#[utoipa::path(
    patch, path = "/v1/lifeforms/{id}/goals/{goal}",
    params(("id" = String, Path), ("goal" = String, Path)),
    request_body = Object,
    responses(
        (status = 200, description = "the goal"),
        (status = 404, description = "there is none"),
        (status = 422, description = "not a change"),
    ),
)]
pub(super) async fn change(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, goal)): GoalPath,
    ApiJson(change): ApiJson<GoalChange>,
) -> Result<Json<Value>, ApiError> {
    app.lifeforms.change_goal(&origin, &id, &goal, change).await?;
    Ok(Json(shown(&app, &id, &goal, &origin).await?))
}

/// Removes a goal with its subgoals.
#[utoipa::path(
    delete, path = "/v1/lifeforms/{id}/goals/{goal}",
    params(("id" = String, Path), ("goal" = String, Path)),
    responses((status = 204, description = "removed"), (status = 404, description = "there is none")),
)]
pub(super) async fn remove(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, goal)): GoalPath,
) -> Result<StatusCode, ApiError> {
    app.lifeforms.remove_goal(&origin, &id, &goal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the schedules of a lifeform.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/schedules",
    params(("id" = String, Path)),
    responses((status = 200, description = "{schedules: [{id, what, cron, zone, next, by, runs}]}")),
)]
pub(super) async fn schedules(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Value>, ApiError> {
    let agenda = app.lifeforms.agenda(&id).await?;
    Ok(Json(json!({"schedules": agenda.schedules.values().collect::<Vec<_>>()})))
}

/// Adds a schedule.
///
/// The body is `{what, cron, zone?}` or `{what, at}`. Requests with the same `Idempotency-Key` add one schedule.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/schedules",
    params(("id" = String, Path), IdempotencyKey),
    request_body = Object,
    responses(
        (
            status = 201,
            description = "the schedule, or `{id, over: true}` when it was set under this key before and is over",
        ),
        (status = 422, description = "not a schedule"),
    ),
)]
pub(super) async fn schedule(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<LifeformId>,
    IdempotencyKey(key): IdempotencyKey,
    ApiJson(schedule): ApiJson<ScheduleSpec>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let made = app.lifeforms.set_schedule(&origin, &id, schedule, key).await?;
    let agenda = app.lifeforms.agenda(&id).await?;
    let shown = agenda.schedules.get(&made).map(|schedule| json!(schedule));
    Ok((StatusCode::CREATED, Json(shown.unwrap_or_else(|| over(&made)))))
}

/// Removes a schedule from the agenda of a lifeform.
#[utoipa::path(
    delete, path = "/v1/lifeforms/{id}/schedules/{schedule}",
    params(("id" = String, Path), ("schedule" = String, Path)),
    responses((status = 204, description = "removed"), (status = 404, description = "there is none")),
)]
pub(super) async fn unschedule(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, schedule)): GoalPath,
) -> Result<StatusCode, ApiError> {
    app.lifeforms.remove_schedule(&origin, &id, &schedule).await?;
    Ok(StatusCode::NO_CONTENT)
}
