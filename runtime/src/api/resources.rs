//! `/api/resource`: the resources that records need. The secret part of a resource is sealed, and is shown only on a
//! request with a reason.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use knowledge::{KnowledgeError, Resource, ResourceDraft};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, Operator, Participant};

/// The maximum number of resources on a page.
const LIMIT_MAX: usize = 1_000;
/// The maximum length of a reveal's reason, in characters.
const WHY_CHARS_MAX: usize = 500;

/// A resource to store.
#[derive(ToSchema)]
#[schema(as = KnowledgeResource)]
#[expect(dead_code, reason = "it only describes what the resources' own reader reads")]
pub(super) struct ResourceBody {
    /// The id, a path of names: `credentials/website_a`. For a change, it is in the path of the request.
    id: Option<String>,
    /// The title.
    title: Option<String>,
    /// The public text.
    body: Option<String>,
    /// The secret part. It is sealed immediately, and shown only by a reveal. Null removes it.
    secure_body: Option<String>,
    /// The content type: `text` (the default), `code`, `credential`, `cookie`, `config`, `file`, or another.
    content_type: Option<String>,
    /// The metadata: `language`, `acquired_at`, `expires_at` …
    #[schema(value_type = Option<Object>)]
    metadata: Option<Value>,
    /// The owner (default: the caller).
    owner: Option<String>,
    /// The scopes that see the resource (default: the owner's).
    scopes: Option<Vec<String>>,
    /// The scopes to which the secret part may be revealed, besides the owner.
    reveal_scopes: Option<Vec<String>>,
}

/// A selection of resources.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The prefix of ids.
    #[serde(default)]
    prefix: String,
    /// The content type.
    content_type: Option<String>,
    /// The id after which the page starts.
    #[serde(default)]
    after: String,
    /// The maximum number of resources, up to 1000.
    #[serde(default = "hundred")]
    #[param(minimum = 1, maximum = 1000)]
    limit: usize,
}

fn hundred() -> usize {
    100
}

/// A page of resources.
#[derive(Serialize, ToSchema)]
pub(super) struct ResourcePage {
    /// The number of resources on the page.
    count: usize,
    /// The resources by id.
    results: Vec<Resource>,
    /// The `after` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_after: Option<String>,
}

/// The response to the writer of a resource.
#[derive(Serialize, ToSchema)]
pub(super) struct SavedResource {
    /// The id.
    id: String,
    /// `success`.
    status: &'static str,
    /// The resource.
    resource: Resource,
    /// The parts of the request that were not accepted, with reasons.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

/// The key that seals now, and the number of secrets that it sealed.
#[derive(Serialize, ToSchema)]
pub(super) struct RotatedKey {
    /// The name of the key.
    key: String,
    /// The number of secrets.
    sealed: usize,
}

/// A resource, or the list of its reveals.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes what `read` answers")]
pub(super) enum ResourceAnswer {
    /// The resource; with `reveal=1`, `secure_body` is the secret part.
    Resource(Box<Resource>),
    /// The reveals of its secret part.
    Reveals {
        /// Each with its time, its principal and the reason.
        #[schema(value_type = Vec<Object>)]
        reveals: Vec<Value>,
    },
}

/// Lists the resources that the caller can see, by id.
#[utoipa::path(
    get, path = "/api/resource",
    params(ListQuery),
    responses(
        (status = 200, description = "a page of resources", body = ResourcePage),
        (status = 422, description = "a part of the query cannot be"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiQuery(asked): ApiQuery<ListQuery>,
) -> Result<Json<ResourcePage>, ApiError> {
    if !(1..=LIMIT_MAX).contains(&asked.limit) {
        return Err(ApiError::invalid(format!("limit is a number from 1 to {LIMIT_MAX}")));
    }
    let of_type = asked.content_type.as_deref();
    let mut found = app.knowledge.resources(&asked.prefix, of_type, &asked.after, asked.limit + 1, &origin).await?;
    let more = found.len() > asked.limit;
    found.truncate(asked.limit);
    let next_after = found.last().filter(|_| more).map(|last| last.id.clone());
    Ok(Json(ResourcePage { count: found.len(), results: found, next_after }))
}

/// Stores a resource.
///
/// An existing resource of the caller with the same id is changed.
#[utoipa::path(
    post, path = "/api/resource",
    request_body = ResourceBody,
    responses(
        (status = 201, description = "the resource", body = SavedResource),
        (status = 200, description = "the changed resource", body = SavedResource),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiJson(body): ApiJson<Map<String, Value>>,
) -> Result<(StatusCode, Json<SavedResource>), ApiError> {
    let draft = ResourceDraft::read(body, None, &origin.principal).map_err(KnowledgeError::from)?;
    let (resource, is_new, warnings) = app.knowledge.save_resource(draft, false, &origin).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let warnings = Some(warnings).filter(|warnings| !warnings.is_empty());
    Ok((status, Json(SavedResource { id: resource.id.clone(), status: "success", resource, warnings })))
}

/// The requested part of a resource.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadQuery {
    /// 1 to reveal the secret part. Only the owner, principals in `reveal_scopes` and operators may do this. Each
    /// reveal is recorded.
    #[serde(default)]
    #[param(maximum = 255)]
    reveal: u8,
    /// The reason for the reveal.
    #[serde(default)]
    why: String,
    /// 1 to list the reveals instead.
    #[serde(default)]
    #[param(maximum = 255)]
    reveals: u8,
    /// The number of the reveal after which the list starts.
    #[serde(default)]
    after: u64,
}

/// Returns a resource.
///
/// Its id may contain slashes, plain or as %2F.
#[utoipa::path(
    get, path = "/api/resource/{id}",
    params(("id" = String, Path), ReadQuery),
    responses(
        (
            status = 200,
            description = "the resource; with `reveal=1` and `why`, its secret part too",
            body = ResourceAnswer,
        ),
        (status = 410, description = "it was to be used until a time that is over"),
        (status = 422, description = "why is not said"),
        (status = 423, description = "the key is missing"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<String>,
    ApiQuery(asked): ApiQuery<ReadQuery>,
) -> Result<Response, ApiError> {
    if asked.reveals > 0 {
        let reveals = app.knowledge.reveals(&id, asked.after, &origin).await?;
        return Ok(Json(json!({"reveals": reveals})).into_response());
    }
    if asked.reveal == 0 {
        return Ok(Json(json!(app.knowledge.resource(&id, &origin).await?)).into_response());
    }
    let why = asked.why.trim();
    if why.is_empty() || why.chars().count() > WHY_CHARS_MAX {
        return Err(ApiError::invalid(format!("why says in 1 to {WHY_CHARS_MAX} characters what it is shown for")));
    }
    let (resource, secret) = app.knowledge.reveal(&id, why, &origin).await?;
    let mut shown = json!(resource);
    shown["secure_body"] = secret.expose_secret().into();
    let mut response = Json(shown).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Changes a resource of the caller.
#[utoipa::path(
    patch, path = "/api/resource/{id}",
    params(("id" = String, Path)),
    request_body = ResourceBody,
    responses((status = 200, description = "the resource", body = SavedResource)),
)]
pub(super) async fn change(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
    ApiJson(body): ApiJson<Map<String, Value>>,
) -> Result<Json<SavedResource>, ApiError> {
    let draft = ResourceDraft::read(body, Some(&id), &origin.principal).map_err(KnowledgeError::from)?;
    let (resource, _, warnings) = app.knowledge.save_resource(draft, true, &origin).await?;
    let warnings = Some(warnings);
    Ok(Json(SavedResource { id: resource.id.clone(), status: "success", resource, warnings }))
}

/// The kind of removal.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteQuery {
    /// 1 to remove the resource although records need it.
    #[serde(default)]
    #[param(maximum = 255)]
    force: u8,
}

/// Removes a resource of the caller with its secret part.
#[utoipa::path(
    delete, path = "/api/resource/{id}",
    params(("id" = String, Path), DeleteQuery),
    responses((status = 204, description = "removed"), (status = 409, description = "records need it")),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
    ApiQuery(asked): ApiQuery<DeleteQuery>,
) -> Result<StatusCode, ApiError> {
    app.knowledge.delete_resource(&id, asked.force > 0, &origin).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Adds a key to the ring and reseals all secrets with it.
#[utoipa::path(
    post, path = "/v1/keys/rotate",
    responses(
        (status = 200, description = "the new key", body = RotatedKey),
        (status = 423, description = "the ring cannot be written"),
    ),
)]
pub(super) async fn rotate(State(app): State<App>, Operator(origin): Operator) -> Result<Json<RotatedKey>, ApiError> {
    let (key, sealed) = app.knowledge.rotate_keys(&origin).await?;
    Ok(Json(RotatedKey { key, sealed }))
}
