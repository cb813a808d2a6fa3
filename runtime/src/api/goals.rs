//! `/v1/lifeforms/{id}/goals` and `/schedules`: the goals and schedules of a lifeform.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use knowledge::KnowledgeError;
use lifeform::LifeformId;
use lifeform::agenda::{Agenda, AgendaItemId, Goal, GoalChange, GoalSpec, Related, Schedule, ScheduleSpec};
use serde::Serialize;
use store::{Origin, Role, Timestamp};
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, Caller, IdempotencyKey, Participant};

type GoalPath = ApiPath<(LifeformId, AgendaItemId)>;

/// A goal with its subgoals.
#[derive(Serialize, ToSchema)]
#[schema(as = Goal)]
pub(super) struct GoalTree {
    #[serde(flatten)]
    goal: Goal,
    /// The records that came to mind when the lifeform last pursued the goal, as far as the caller can see them.
    knowledge: Vec<RelatedRecord>,
    /// The goals that serve this goal.
    #[schema(no_recursion)]
    subgoals: Vec<GoalTree>,
}

/// A record that is related to a goal.
#[derive(Serialize, ToSchema)]
struct RelatedRecord {
    /// The id.
    id: String,
    /// The task.
    task: String,
    /// The content.
    content: String,
    /// The types.
    #[schema(value_type = Vec<String>)]
    types: Vec<knowledge::Type>,
    /// The quality from 0 to 1.
    quality_score: f64,
    /// The time of the search.
    at: Timestamp,
}

/// The goals of a lifeform.
#[derive(Serialize, ToSchema)]
pub(super) struct Goals {
    /// The goals that serve no other goal.
    goals: Vec<GoalTree>,
    /// The number of times that the lifeform spoke unasked within a day.
    unasked: usize,
}

/// The schedules of a lifeform.
#[derive(Serialize, ToSchema)]
pub(super) struct Schedules {
    /// The schedules by id.
    schedules: Vec<Schedule>,
}

/// A goal or a schedule that was added, or the fact that it was added earlier and is no longer on the agenda.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Added<T> {
    /// The goal or the schedule.
    Present(T),
    /// The id of one that was added earlier, under the same idempotency key, and is over.
    Over {
        /// The id.
        #[schema(value_type = String)]
        id: AgendaItemId,
        /// `true`.
        over: bool,
    },
}

/// Returns a goal with its subgoals, and with the related records that the caller can see.
async fn tree(app: &App, agenda: &Agenda, goal: &Goal, origin: &Origin) -> Result<GoalTree, ApiError> {
    let mut goal = goal.clone();
    let mut knowledge = Vec::new();
    let caller = &origin.principal;
    goal.show_to(caller.may(Role::Operator) || caller.answers_for(&goal.by.0));
    for Related { id, at, .. } in std::mem::take(&mut goal.knowledge) {
        match app.knowledge.get(&id, origin).await {
            Ok(record) => {
                let quality_score = record.eval.quality();
                let (id, task, content, types) = (record.id, record.task, record.content, record.types);
                knowledge.push(RelatedRecord { id, task, content, types, quality_score, at });
            }
            Err(KnowledgeError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut subgoals = Vec::new();
    for other in agenda.goals.values().filter(|other| other.parent.as_ref() == Some(&goal.id)) {
        subgoals.push(Box::pin(tree(app, agenda, other, origin)).await?);
    }
    Ok(GoalTree { goal, knowledge, subgoals })
}

/// Lists the goals of a lifeform as a tree.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/goals",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "the goals", body = Goals),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Goals>, ApiError> {
    let agenda = app.lifeforms.agenda(&id).await?;
    let mut goals = Vec::new();
    for goal in agenda.goals.values().filter(|goal| goal.parent.is_none()) {
        goals.push(tree(&app, &agenda, goal, &caller.0).await?);
    }
    Ok(Json(Goals { goals, unasked: agenda.unasked.len() }))
}

/// Adds a goal.
///
/// The body is `{title, description?, parent?, at?, deadline?}`. Without `at`, the lifeform pursues it at the next
/// heartbeat. Requests with the same `Idempotency-Key` add one goal.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/goals",
    params(("id" = String, Path), IdempotencyKey),
    request_body = GoalSpec,
    responses(
        (
            status = 201,
            description = "the goal, or `{id, over: true}` when it was set under this key before and is no more",
            body = Added<GoalTree>,
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
) -> Result<(StatusCode, Json<Added<GoalTree>>), ApiError> {
    let made = app.lifeforms.set_goal(&origin, &id, goal, key).await?;
    let agenda = app.lifeforms.agenda(&id).await?;
    let added = match agenda.goals.get(&made) {
        Some(goal) => Added::Present(tree(&app, &agenda, goal, &origin).await?),
        None => Added::Over { id: made, over: true },
    };
    Ok((StatusCode::CREATED, Json(added)))
}

async fn shown(app: &App, id: &LifeformId, goal: &AgendaItemId, origin: &Origin) -> Result<GoalTree, ApiError> {
    let agenda = app.lifeforms.agenda(id).await?;
    let goal = agenda.goal(goal).map_err(lifeform::LifeformError::Refused)?;
    tree(app, &agenda, goal, origin).await
}

/// Returns a goal with its subgoals.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/goals/{goal}",
    params(("id" = String, Path), ("goal" = String, Path)),
    responses((status = 200, description = "the goal", body = GoalTree), (status = 404, description = "there is none")),
)]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    ApiPath((id, goal)): GoalPath,
) -> Result<Json<GoalTree>, ApiError> {
    Ok(Json(shown(&app, &id, &goal, &caller.0).await?))
}

/// Changes a goal.
///
/// The body has any of `{title, description, status, at, deadline, plan, note}`.
#[utoipa::path(
    patch, path = "/v1/lifeforms/{id}/goals/{goal}",
    params(("id" = String, Path), ("goal" = String, Path)),
    request_body = GoalChange,
    responses(
        (status = 200, description = "the goal", body = GoalTree),
        (status = 404, description = "there is none"),
        (status = 422, description = "not a change"),
    ),
)]
pub(super) async fn change(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath((id, goal)): GoalPath,
    ApiJson(change): ApiJson<GoalChange>,
) -> Result<Json<GoalTree>, ApiError> {
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
    responses((status = 200, description = "the schedules", body = Schedules)),
)]
pub(super) async fn schedules(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<LifeformId>,
) -> Result<Json<Schedules>, ApiError> {
    let agenda = app.lifeforms.agenda(&id).await?;
    Ok(Json(Schedules { schedules: agenda.schedules.values().cloned().collect() }))
}

/// Adds a schedule.
///
/// The body is `{what, cron, zone?}` or `{what, at}`. Requests with the same `Idempotency-Key` add one schedule.
#[utoipa::path(
    post, path = "/v1/lifeforms/{id}/schedules",
    params(("id" = String, Path), IdempotencyKey),
    request_body = ScheduleSpec,
    responses(
        (
            status = 201,
            description = "the schedule, or `{id, over: true}` when it was set under this key before and is over",
            body = Added<Schedule>,
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
) -> Result<(StatusCode, Json<Added<Schedule>>), ApiError> {
    let made = app.lifeforms.set_schedule(&origin, &id, schedule, key).await?;
    let agenda = app.lifeforms.agenda(&id).await?;
    let added = match agenda.schedules.get(&made) {
        Some(schedule) => Added::Present(schedule.clone()),
        None => Added::Over { id: made, over: true },
    };
    Ok((StatusCode::CREATED, Json(added)))
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
