//! `/v1/skills`: SKILL.md in and out (MISSION P1), as KnowledgePulse's clients know it. Refusals have the protocol's
//! own shape.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use knowledge::skill::{PREFIX, SkillsWanted, as_markdown, told};
use knowledge::{KnowledgeError, Record};
use serde::Deserialize;
use serde_json::{Value, json};
use store::Origin;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{ApiJson, ApiPath, ApiQuery, Participant, Reader};
use super::units::{Refusal, UnitsLimit, refused};

const MARKDOWN: &str = "text/markdown";

/// A skill to be kept.
#[derive(Deserialize, ToSchema)]
#[schema(as = SkillContribution)]
#[serde(deny_unknown_fields)]
pub(super) struct SkillBody {
    /// The whole SKILL.md: a head in YAML between lines of `---` with `name` and `description`, and the guide.
    skill_md_content: String,
    /// `private`, `org` or `network`; what the head says by default, else `private`.
    #[serde(default)]
    visibility: Option<String>,
}

/// A selection of skills.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SkillsQuery {
    /// A question; the newest first, where there is none.
    q: Option<String>,
    /// Of this domain.
    domain: Option<String>,
    /// With all of these labels, with commas between.
    tags: Option<String>,
    /// Worth so much at least, from 0 to 1.
    #[serde(default)]
    min_quality: f64,
    /// The number of skills, from 1 to 100.
    #[serde(default)]
    #[param(inline)]
    limit: UnitsLimit,
    /// Without so many of the first.
    #[serde(default)]
    offset: usize,
}

/// Keeps a skill. The same again changes nothing; another guide under its name and version is a version of it.
#[utoipa::path(
    post, path = "/v1/skills",
    request_body = SkillBody,
    responses(
        (status = 201, description = "{id, data, warnings?}"),
        (status = 200, description = "it was there"),
        (status = 400, description = "no skill"),
        (status = 409, description = "its name and version are somebody else's"),
    ),
)]
pub(super) async fn contribute(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiJson(body): ApiJson<SkillBody>,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let contributed = app.knowledge.contribute_skill(&body.skill_md_content, body.visibility.as_deref(), &origin);
    let done = Box::pin(contributed).await?;
    let skill = told(&done.record);
    let mut answer = json!({"id": skill["id"], "quality_score": skill["quality_score"], "data": skill});
    if !done.warnings.is_empty() {
        answer["warnings"] = json!(done.warnings);
    }
    Ok((if done.is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(answer)))
}

/// Finds skills, or lists them.
#[utoipa::path(
    get, path = "/v1/skills",
    params(SkillsQuery),
    responses(
        (status = 200, description = "{data, total, offset, limit}"),
        (status = 400, description = "a question that cannot be asked"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Reader(origin): Reader,
    ApiQuery(query): ApiQuery<SkillsQuery>,
) -> Result<Json<Value>, Refusal> {
    if !(0.0..=1.0).contains(&query.min_quality) {
        return Err(refused(StatusCode::BAD_REQUEST, "invalid", "min_quality is a number from 0 to 1"));
    }
    let tags = query.tags.iter().flat_map(|tags| tags.split(',')).map(str::trim).filter(|tag| !tag.is_empty());
    let wanted = SkillsWanted {
        question: query.q.filter(|question| !question.trim().is_empty()),
        domain: query.domain,
        tags: tags.map(str::to_owned).collect(),
        min_quality: query.min_quality,
        offset: query.offset,
        limit: query.limit.0,
    };
    let (found, total) = app.knowledge.skills(&wanted, &origin).await?;
    let data: Vec<Value> = found.iter().map(told).collect();
    Ok(Json(json!({"data": data, "total": total, "offset": wanted.offset, "limit": wanted.limit})))
}

/// The record that goes by the id of a skill, or of a unit.
async fn find(app: &App, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
    match id.starts_with(PREFIX) {
        true => app.knowledge.skill(id, origin).await,
        false => app.knowledge.unit(id, origin).await,
    }
}

/// Deletes a skill of the caller's; its record can be rolled back.
#[utoipa::path(
    delete, path = "/v1/skills/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "{deleted, skill_id, deleted_at, deleted_by}"),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<Value>, Refusal> {
    let record = find(&app, &id, &origin).await?;
    app.knowledge.delete(&record.id, false, &origin).await?;
    let at = app.store.clock().now().to_string();
    Ok(Json(json!({"deleted": true, "skill_id": id, "deleted_at": at, "deleted_by": origin.principal.id})))
}

/// Returns a skill: as JSON, or as SKILL.md for a client that accepts `text/markdown`. A unit of the protocol is shown
/// as a skill, too.
#[utoipa::path(
    get, path = "/v1/skills/{id}",
    params(("id" = String, Path, description = "`kp:skill:{name}:{version}`, or the id of a unit")),
    responses((status = 200, description = "{data}, or the SKILL.md"), (status = 404, description = "there is none")),
)]
pub(super) async fn read(
    State(app): State<App>,
    Reader(origin): Reader,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let record = find(&app, &id, &origin).await?;
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let skill = told(&record);
    if accepts.contains(MARKDOWN) {
        let kind = format!("{MARKDOWN}; charset=utf-8");
        return Ok(([(header::CONTENT_TYPE, kind)], as_markdown(&record)).into_response());
    }
    Ok(Json(json!({"data": skill})).into_response())
}
