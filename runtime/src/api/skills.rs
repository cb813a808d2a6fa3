//! `/v1/skills`: import and export of SKILL.md, in the API of KnowledgePulse clients. Refusals have the form of the
//! protocol.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use knowledge::skill::{PREFIX, SkillsWanted, as_markdown, as_skill};
use knowledge::{KnowledgeError, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Origin, PrincipalId, Timestamp};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::extract::{ApiJson, ApiPath, ApiQuery, Participant, Reader};
use super::units::{ContributedUnit, Refusal, UnitAnswer, UnitPage, UnitsLimit, refused};

const MARKDOWN: &str = "text/markdown";

/// A skill to store.
#[derive(Deserialize, ToSchema)]
#[schema(as = SkillContribution)]
#[serde(deny_unknown_fields)]
pub(super) struct SkillBody {
    /// The complete SKILL.md: a YAML head between lines of `---` with `name` and `description`, and the guide.
    skill_md_content: String,
    /// The visibility: `private`, `org` or `network` (default: the value in the head, otherwise `network`).
    #[serde(default)]
    visibility: Option<String>,
}

/// A selection of skills.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SkillsQuery {
    /// The search text; without it, the newest skills come first.
    q: Option<String>,
    /// The domain.
    domain: Option<String>,
    /// The required tags, separated by commas.
    tags: Option<String>,
    /// The minimum quality, from 0 to 1.
    #[serde(default)]
    min_quality: f64,
    /// The maximum number of skills, from 1 to 100.
    #[serde(default)]
    #[param(inline)]
    limit: UnitsLimit,
    /// The number of skills to skip.
    #[serde(default)]
    offset: usize,
}

/// Contributes a skill.
///
/// An identical skill changes nothing. Another guide with the same name and version becomes a new version of the
/// record.
#[utoipa::path(
    post, path = "/v1/skills",
    request_body = SkillBody,
    responses(
        (status = 201, description = "the skill", body = ContributedUnit),
        (status = 200, description = "the skill, which was there", body = ContributedUnit),
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
    let skill = as_skill(&done.record);
    let mut answer = json!({"id": skill["id"], "quality_score": skill["quality_score"], "data": skill});
    if !done.warnings.is_empty() {
        answer["warnings"] = json!(done.warnings);
    }
    Ok((if done.is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(answer)))
}

/// Searches skills, or lists them.
#[utoipa::path(
    get, path = "/v1/skills",
    params(SkillsQuery),
    responses(
        (status = 200, description = "a page of skills", body = UnitPage),
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
    let data: Vec<Value> = found.iter().map(as_skill).collect();
    Ok(Json(json!({"data": data, "total": total, "offset": wanted.offset, "limit": wanted.limit})))
}

/// Returns the record with the id of a skill or a unit.
async fn find(app: &App, id: &str, origin: &Origin) -> Result<Record, KnowledgeError> {
    match id.starts_with(PREFIX) {
        true => app.knowledge.skill(id, origin).await,
        false => app.knowledge.unit(id, origin).await,
    }
}

/// A deleted skill.
#[derive(Serialize, ToSchema)]
pub(super) struct DeletedSkill {
    /// `true`.
    deleted: bool,
    /// The id of the skill.
    skill_id: String,
    /// The time of the deletion.
    deleted_at: Timestamp,
    /// The principal that deleted it.
    deleted_by: PrincipalId,
}

/// Deletes a skill of the caller.
///
/// The record can be rolled back.
#[utoipa::path(
    delete, path = "/v1/skills/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "the deleted skill", body = DeletedSkill),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<DeletedSkill>, Refusal> {
    let record = find(&app, &id, &origin).await?;
    app.knowledge.delete(&record.id, false, &origin).await?;
    let deleted_at = app.store.clock().now();
    Ok(Json(DeletedSkill { deleted: true, skill_id: id, deleted_at, deleted_by: origin.principal.id }))
}

/// Returns a skill as JSON or SKILL.md.
///
/// SKILL.md is for clients that accept `text/markdown`. A unit of the protocol is also returned as a skill.
#[utoipa::path(
    get, path = "/v1/skills/{id}",
    params(("id" = String, Path, description = "`kp:skill:{name}:{version}`, or the id of a unit")),
    responses(
        (
            status = 200,
            description = "the skill as `data`, or the SKILL.md",
            content(
                (UnitAnswer = "application/json"),
                (String = "text/markdown"),
            ),
        ),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    Reader(origin): Reader,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let record = find(&app, &id, &origin).await?;
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let skill = as_skill(&record);
    if accepts.contains(MARKDOWN) {
        let kind = format!("{MARKDOWN}; charset=utf-8");
        return Ok(([(header::CONTENT_TYPE, kind)], as_markdown(&record)).into_response());
    }
    Ok(Json(json!({"data": skill})).into_response())
}
