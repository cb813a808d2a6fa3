//! `/v1/neurons`: definitions and their versions.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use neurons::{NeuronId, NeuronSpec, Version};
use serde::{Deserialize, Serialize};
use store::Versioned;
use utoipa::ToSchema;

use super::App;
use super::error::ApiError;
use super::extract::{ApiJson, ApiPath, ApiQuery, Caller, if_match};
use super::fascicles::Forced;
use super::pace::Definer;
use super::paging::{Entries, Page};

/// A stored definition.
#[derive(Serialize, ToSchema)]
pub(super) struct Defined {
    #[schema(inline)]
    #[serde(flatten)]
    spec: NeuronSpec,
    /// The version.
    version: u64,
}

/// A page of definitions.
#[derive(Serialize, ToSchema)]
pub(super) struct NeuronPage {
    /// The definitions by id.
    neurons: Vec<Defined>,
    /// The `after` of the next page; `null` at the end.
    #[schema(value_type = Option<String>)]
    next: Option<NeuronId>,
}

/// A page of the versions of a neuron.
#[derive(Serialize, ToSchema)]
pub(super) struct NeuronVersions {
    /// The versions, oldest first.
    versions: Vec<Version>,
    /// The `after` of the next page; `null` at the end.
    next: Option<u64>,
}

/// The memory of a neuron, with the version of its definition.
#[derive(Serialize, ToSchema)]
pub(super) struct MemoryVersion {
    /// The memory.
    memory: String,
    /// The version.
    version: u64,
}

/// The difference between the memories of two versions.
#[derive(Serialize, ToSchema)]
pub(super) struct MemoryDiff {
    /// The earlier version.
    from: u64,
    /// The later version.
    to: u64,
    /// The unified difference; empty if nothing changed.
    diff: String,
}

fn shown(id: &NeuronId, found: Versioned<NeuronSpec>) -> Defined {
    Defined { spec: NeuronSpec { id: Some(id.clone()), ..found.value }, version: found.version }
}

/// Defines a neuron.
#[utoipa::path(
    post, path = "/v1/neurons",
    request_body = NeuronSpec,
    responses(
        (status = 201, body = Defined, description = "defined"),
        (status = 409, description = "the id is taken"),
        (status = 422, description = "not well made"),
    ),
)]
pub(super) async fn create(
    State(app): State<App>,
    Definer(origin): Definer,
    ApiJson(spec): ApiJson<NeuronSpec>,
) -> Result<(StatusCode, Json<Defined>), ApiError> {
    let (id, made) = app.neurons.create(&origin, spec).await?;
    Ok((StatusCode::CREATED, Json(shown(&id, made))))
}

/// Lists neurons by id.
#[utoipa::path(
    get, path = "/v1/neurons",
    params(Page),
    responses((status = 200, description = "a page of definitions", body = NeuronPage)),
)]
pub(super) async fn list(
    State(app): State<App>,
    _caller: Caller,
    ApiQuery(page): ApiQuery<Page>,
) -> Result<Json<NeuronPage>, ApiError> {
    let found = app.neurons.list(&page.after, page.limit.0).await?;
    let next = (found.len() == page.limit.0).then(|| found.last().map(|(id, _)| id.clone())).flatten();
    Ok(Json(NeuronPage { neurons: found.into_iter().map(|(id, found)| shown(&id, found)).collect(), next }))
}

/// Returns the definition of a neuron.
#[utoipa::path(
    get, path = "/v1/neurons/{id}",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = Defined, description = "the definition"),
        (status = 404, description = "there is none"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<NeuronId>,
) -> Result<Json<Defined>, ApiError> {
    let found = app.neurons.get(&id).await?;
    Ok(Json(shown(&id, found)))
}

/// Replaces the definition of a neuron.
///
/// `If-Match` names the expected version.
#[utoipa::path(
    put, path = "/v1/neurons/{id}",
    params(("id" = String, Path)),
    request_body = NeuronSpec,
    responses(
        (status = 200, body = Defined, description = "replaced"),
        (status = 409, description = "it was changed meanwhile"),
    ),
)]
pub(super) async fn update(
    State(app): State<App>,
    Definer(origin): Definer,
    ApiPath(id): ApiPath<NeuronId>,
    headers: HeaderMap,
    ApiJson(spec): ApiJson<NeuronSpec>,
) -> Result<Json<Defined>, ApiError> {
    let made = app.neurons.update(&origin, &id, spec, if_match(&headers)?).await?;
    Ok(Json(shown(&id, made)))
}

/// Lists the versions of a neuron with author and reason.
///
/// This includes removed neurons.
#[utoipa::path(
    get, path = "/v1/neurons/{id}/versions",
    params(("id" = String, Path), Entries),
    responses(
        (status = 200, description = "a page of versions", body = NeuronVersions),
        (status = 404, description = "there never was one"),
    ),
)]
pub(super) async fn versions(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<NeuronId>,
    ApiQuery(asked): ApiQuery<Entries>,
) -> Result<Json<NeuronVersions>, ApiError> {
    let limit = asked.limit.0;
    let (versions, next) = app.neurons.versions(&id, asked.after, limit).await?;
    if versions.is_empty() && app.neurons.versions(&id, 0, 1).await?.0.is_empty() {
        app.neurons.get(&id).await?;
    }
    let next = (versions.len() == limit).then_some(next);
    Ok(Json(NeuronVersions { versions, next }))
}

/// Returns one version of a neuron.
///
/// If a number occurs several times, it is the latest one.
#[utoipa::path(
    get, path = "/v1/neurons/{id}/versions/{version}",
    params(("id" = String, Path), ("version" = u64, Path)),
    responses(
        (status = 200, description = "the version", body = Version),
        (status = 404, description = "there is none of that number"),
    ),
)]
pub(super) async fn version(
    State(app): State<App>,
    _caller: Caller,
    ApiPath((id, version)): ApiPath<(NeuronId, u64)>,
) -> Result<Json<Version>, ApiError> {
    Ok(Json(app.neurons.version(&id, version).await?))
}

/// The memory of a neuron.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MemoryBody {
    /// The static knowledge and instructions of the neuron.
    memory: String,
}

/// Returns the memory of a neuron.
#[utoipa::path(
    get, path = "/v1/neurons/{id}/memory",
    params(("id" = String, Path)),
    responses(
        (status = 200, description = "the memory", body = MemoryVersion),
        (status = 404, description = "there is no such neuron"),
    ),
)]
pub(super) async fn memory(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<NeuronId>,
) -> Result<Json<MemoryVersion>, ApiError> {
    let found = app.neurons.get(&id).await?;
    Ok(Json(MemoryVersion { memory: found.value.memory, version: found.version }))
}

/// Replaces only the memory of a neuron.
///
/// `If-Match` names the expected version.
#[utoipa::path(
    put, path = "/v1/neurons/{id}/memory",
    params(("id" = String, Path)),
    request_body = MemoryBody,
    responses(
        (status = 200, description = "the memory", body = MemoryVersion),
        (status = 409, description = "it was changed meanwhile"),
        (status = 422, description = "too long"),
    ),
)]
pub(super) async fn remember(
    State(app): State<App>,
    Definer(origin): Definer,
    ApiPath(id): ApiPath<NeuronId>,
    headers: HeaderMap,
    ApiJson(body): ApiJson<MemoryBody>,
) -> Result<Json<MemoryVersion>, ApiError> {
    let version = app.neurons.remember(&origin, &id, body.memory.clone(), if_match(&headers)?).await?;
    Ok(Json(MemoryVersion { memory: body.memory, version }))
}

/// The two versions to compare.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Between {
    /// The older version.
    from: u64,
    /// The newer version.
    to: u64,
}

/// Returns the changes of a neuron's memory from one version to another.
#[utoipa::path(
    get, path = "/v1/neurons/{id}/memory/diff",
    params(("id" = String, Path), Between),
    responses(
        (status = 200, description = "the difference", body = MemoryDiff),
        (status = 404, description = "there is no such version"),
    ),
)]
pub(super) async fn memory_diff(
    State(app): State<App>,
    _caller: Caller,
    ApiPath(id): ApiPath<NeuronId>,
    ApiQuery(Between { from, to }): ApiQuery<Between>,
) -> Result<Json<MemoryDiff>, ApiError> {
    let diff = app.neurons.memory_diff(&id, from, to).await?;
    Ok(Json(MemoryDiff { from, to, diff }))
}

/// Removes a neuron definition.
///
/// If fascicles use it, this requires `force`.
#[utoipa::path(
    delete, path = "/v1/neurons/{id}",
    params(("id" = String, Path), Forced),
    responses(
        (status = 204, description = "removed"),
        (status = 404, description = "there is none"),
        (status = 409, description = "it is used"),
    ),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Definer(origin): Definer,
    ApiPath(id): ApiPath<NeuronId>,
    ApiQuery(Forced { force }): ApiQuery<Forced>,
) -> Result<StatusCode, ApiError> {
    let users = if force { Vec::new() } else { app.fascicles.users_of_neuron(&id).await? };
    if !users.is_empty() {
        let detail = format!("neuron {id} is used by {users:?}");
        let in_use = ApiError::new(StatusCode::CONFLICT, "in_use", detail);
        return Err(in_use.hint("DELETE …?force=true removes it nevertheless"));
    }
    app.neurons.delete(&origin, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
