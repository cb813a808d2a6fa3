//! `/v1/knowledge`: records as KnowledgeUnits, in either vocabulary and in the version that a client requests. Refusals
//! have the form of the protocol: `{error, code, issues?}`.

mod answers;

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use knowledge::unit::versions::{Resolved, VersionError, major_of};
use knowledge::unit::{Form, Vocabulary, id_of, quality_of, visibility_of};
use knowledge::{KnowledgeError, Record, UnitsWanted};
use neurons::llm::wire::repeated_member;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::Hash;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::{ApiError, Said};
use super::extract::{ApiBytes, ApiJson, ApiPath, ApiQuery, Caller, IdempotencyKey, Participant, Reader};
use super::paging::Limit;
pub(super) use answers::{ContributedUnit, UnitAnswer, UnitPage};
use answers::{DeletedUnit, Validation, ValidationNote};

/// The maximum length of a judgement's text, in characters.
const FEEDBACK_CHARS_MAX: usize = 2_000;
const VERSION: HeaderName = HeaderName::from_static("kp-schema-version");
const DEPRECATED: HeaderName = HeaderName::from_static("kp-deprecated");
/// The prefixes of the protocol's routes.
const ROUTES: [&str; 4] = ["/v1/knowledge", "/v1/skills", "/v1/reputation", "/v1/providers"];
/// The request headers on which responses of the protocol depend.
const VARY: HeaderValue = HeaderValue::from_static("Accept, KP-Schema-Version");
const LINKED_DATA: &str = "application/ld+json";
const PLAIN: &str = "application/json";

/// A refusal in the form of the protocol.
pub(super) struct Refusal {
    status: StatusCode,
    body: Value,
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self { status: error.status(), body: json!({"error": error.detail(), "code": error.code()}) }
    }
}

impl From<KnowledgeError> for Refusal {
    fn from(error: KnowledgeError) -> Self {
        match error {
            KnowledgeError::Invalid(faults) => {
                let issues: Vec<Value> =
                    faults.iter().map(|fault| json!({"path": fault.path, "message": fault.what})).collect();
                let body = json!({"error": "Invalid KnowledgeUnit", "code": "invalid", "issues": issues});
                Self { status: StatusCode::BAD_REQUEST, body }
            }
            KnowledgeError::Version(VersionError::NotAcceptable { asked, supported }) => {
                let error = format!("no version of {asked} answers");
                let body = json!({"error": error, "code": "version_not_acceptable", "supported": supported});
                Self { status: StatusCode::NOT_ACCEPTABLE, body }
            }
            KnowledgeError::Version(VersionError::Gone { major, successor }) => {
                let error = format!("v{major} is not served any more");
                let body = json!({"error": error, "code": "version_gone", "successor": format!("v{successor}")});
                Self { status: StatusCode::GONE, body }
            }
            other => ApiError::from(other).into(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // A response does not repeat a secret that the client sent in the wrong place.
        let mut body = self.body;
        store::secrets::clean(&mut body);
        ([(header::VARY, VARY)], (self.status, Json(body))).into_response()
    }
}

pub(super) fn refused(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Refusal {
    ApiError::new(status, code, detail).into()
}

/// Returns `true` for a path of the protocol.
pub(super) fn is_own(path: &str) -> bool {
    ROUTES.iter().any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Middleware: adds a version header to all responses of the protocol's routes, and gives refusals the form of the
/// original registry. That registry does not use status 422.
pub(super) async fn in_own_shape(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_own = is_own(request.uri().path());
    let mut response = next.run(request).await;
    if !is_own {
        return response;
    }
    if !response.headers().contains_key(VERSION)
        && let Ok(newest) = app.knowledge.schemas().resolve(None, 1, app.store.clock().now())
        && let Ok(version) = HeaderValue::from_str(&newest.version.to_string())
    {
        response.headers_mut().insert(VERSION, version);
    }
    let Some(said) = response.extensions().get::<Said>() else { return response };
    let body = json!({"error": said.detail, "code": said.code});
    let is_malformed = said.code == "invalid" && response.status() == StatusCode::UNPROCESSABLE_ENTITY;
    let (mut head, _) = response.into_parts();
    if is_malformed {
        head.status = StatusCode::BAD_REQUEST;
    }
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    Response::from_parts(head, Body::from(body.to_string()))
}

/// Returns the version and the vocabulary that a client requests.
fn asked(headers: &HeaderMap) -> (Option<&str>, Option<Vocabulary>) {
    let version = headers.get(VERSION).and_then(|value| value.to_str().ok());
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // The SDK sends only the major version, and reads only its own vocabulary.
    let sdk = version.is_some_and(|version| version.trim().starts_with('v')) || accept.contains("profile=\"sdk\"");
    (version, sdk.then_some(Vocabulary::Long))
}

/// Returns `true` if a client prefers the bare document; `None` if it accepts neither form.
fn wants_linked_data(headers: &HeaderMap) -> Option<bool> {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) else { return Some(true) };
    let (linked, plain) = (weight(accept, LINKED_DATA), weight(accept, PLAIN));
    (linked > 0.0 || plain > 0.0).then_some(linked >= plain)
}

/// Returns the weight of a media type, from 0 to 1: the most specific range decides (RFC 9110 §12.5.1).
fn weight(accept: &str, wanted: &str) -> f64 {
    let mut nearest = (0, 0.0);
    for kind in accept.split(',') {
        let mut parts = kind.split(';').map(str::trim);
        let near = match parts.next().unwrap_or_default() {
            named if named.eq_ignore_ascii_case(wanted) => 3,
            "application/*" => 2,
            "*/*" | "" => 1,
            _ => continue,
        };
        let said = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = said.map_or(1.0, |said| said.parse().unwrap_or(0.0));
        if near > nearest.0 {
            nearest = (near, weight);
        }
    }
    nearest.1
}

fn with_version(mut response: Response, resolved: &Resolved) -> Response {
    let headers = response.headers_mut();
    if let Ok(version) = HeaderValue::from_str(&resolved.version.to_string()) {
        headers.insert(VERSION, version);
    }
    headers.insert(header::VARY, VARY);
    if let Some(sunset) = resolved.sunset {
        headers.insert(DEPRECATED, HeaderValue::from_static("true"));
        let when = sunset.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Ok(when) = HeaderValue::from_str(&when) {
            headers.insert(HeaderName::from_static("sunset"), when);
        }
        headers.insert(header::LINK, HeaderValue::from_static("</v1/knowledge>; rel=\"successor-version\""));
    }
    response
}

/// Returns a unit with its registry data, as the original registry does. The members of the unit are also at the top
/// level, where its SDK reads them.
fn stored(record: &Record, unit: Value) -> Value {
    let mut stored = unit.as_object().cloned().unwrap_or_default();
    stored.insert("id".into(), unit["id"].clone());
    stored.insert("visibility".into(), visibility_of(record).into());
    stored.insert("created_at".into(), record.created_at.to_string().into());
    stored.insert("updated_at".into(), record.updated_at.to_string().into());
    stored.insert("unit".into(), unit);
    Value::Object(stored)
}

/// Returns a unit.
///
/// The body is the document, or `{data}` if `Accept` names only `application/json`.
#[utoipa::path(
    get, path = "/v1/knowledge/{id}",
    params(("id" = String, Path), ("KP-Schema-Version" = Option<String>, Header)),
    responses(
        (
            status = 200,
            description = "the unit",
            content(
                (UnitAnswer = "application/ld+json"),
                (UnitAnswer = "application/json"),
            ),
        ),
        (status = 406, description = "no version, or no type, that the client takes"),
        (status = 304, description = "it is as If-None-Match knows it"),
        (status = 410, description = "the version is not served any more"),
    ),
)]
pub(super) async fn read(
    State(app): State<App>,
    Reader(origin): Reader,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let linked = wants_linked_data(&headers).ok_or_else(|| {
        refused(StatusCode::NOT_ACCEPTABLE, "type_not_acceptable", "a unit is application/ld+json or application/json")
    })?;
    let (version, words) = asked(&headers);
    let record = app.knowledge.unit(&id, &origin).await?;
    let (unit, resolved) = app.knowledge.as_unit(&record, words, version)?;
    let tag = format!("\"{}\"", &Hash::of(unit.to_string().as_bytes()).hex()[..24]);
    let (kind, body) = if linked { (LINKED_DATA, unit) } else { (PLAIN, json!({"data": stored(&record, unit)})) };
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag || known.trim() == "*") {
        return Ok(with_version((StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response(), &resolved));
    }
    let headers = [(header::CONTENT_TYPE, kind.to_owned()), (header::ETAG, tag)];
    Ok(with_version((headers, body.to_string()).into_response(), &resolved))
}

/// A selection of units.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct UnitsQuery {
    /// The search text; without it, units are ordered by quality.
    q: Option<String>,
    /// The accepted types in either vocabulary, separated by commas.
    types: Option<String>,
    /// The domain.
    domain: Option<String>,
    /// The minimum quality, from 0 to 1.
    #[serde(default)]
    min_quality: f64,
    /// The maximum number of units, from 1 to 100.
    #[serde(default)]
    #[param(inline)]
    limit: UnitsLimit,
    /// The number of units to skip.
    #[serde(default)]
    offset: usize,
}

/// The maximum number of units or skills on a page.
pub(super) type UnitsLimit = Limit<20, 100>;

/// Searches units, or lists them by quality.
#[utoipa::path(
    get, path = "/v1/knowledge",
    params(UnitsQuery, ("KP-Schema-Version" = Option<String>, Header)),
    responses(
        (status = 200, description = "a page of units", body = UnitPage),
        (status = 406, description = "no version that the client takes"),
        (status = 410, description = "the version is not served any more"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Reader(origin): Reader,
    headers: HeaderMap,
    ApiQuery(query): ApiQuery<UnitsQuery>,
) -> Result<Response, Refusal> {
    let (version, mut words) = asked(&headers);
    let mut forms = Vec::new();
    for name in query.types.iter().flat_map(|types| types.split(',')).map(str::trim).filter(|name| !name.is_empty()) {
        let known = Form::parse(name);
        let (form, named) = known.ok_or_else(|| {
            let what = "types are Trace, Pattern, SOP, ReasoningTrace, ToolCallPattern, ExpertSOP";
            refused(StatusCode::BAD_REQUEST, "invalid_types", what)
        })?;
        // A client that uses the SDK's vocabulary receives a response in it.
        words = words.or((named == Vocabulary::Long).then_some(Vocabulary::Long));
        forms.push(form);
    }
    if !(0.0..=1.0).contains(&query.min_quality) {
        return Err(refused(StatusCode::BAD_REQUEST, "invalid", "min_quality is a number from 0 to 1"));
    }
    let wanted = UnitsWanted {
        question: query.q.filter(|question| !question.trim().is_empty()),
        forms,
        domain: query.domain,
        min_quality: query.min_quality,
        offset: query.offset,
        limit: query.limit.0,
    };
    let resolved =
        app.knowledge.schemas().resolve(version, 1, app.store.clock().now()).map_err(KnowledgeError::from)?;
    let found = app.knowledge.units(&wanted, &origin).await?;
    let units = app.knowledge.as_units(&found.records, words, version)?;
    let data: Vec<Value> = units.into_iter().map(|(record, unit)| stored(record, unit)).collect();
    let body = json!({"data": data, "total": found.total, "offset": wanted.offset, "limit": wanted.limit});
    Ok(with_version(Json(body).into_response(), &resolved))
}

/// A KnowledgeUnit: `@context`, `@type`, `id` and the members of its type. In the SDK's vocabulary it must be complete;
/// in the other one, missing members are filled in. Unknown members are stored unchanged.
#[derive(ToSchema)]
#[schema(as = KnowledgeUnit)]
#[expect(dead_code, reason = "it only describes what the units' own reader reads")]
pub(super) struct UnitBody {
    /// The type: `Trace`, `Pattern`, `SOP`, or `ReasoningTrace`, `ToolCallPattern`, `ExpertSOP`.
    #[schema(rename = "@type")]
    kind: String,
    /// The id: `kp:trace:…`, `kp:pattern:…`, `kp:sop:…`; generated if absent.
    id: Option<String>,
}

/// Contributes a unit.
///
/// An identical unit gets 200 and changes nothing. Other content under the same id is a new version, which only its
/// owner may add. Requests of the same caller with the same `Idempotency-Key` store a new unit once.
#[utoipa::path(
    post, path = "/v1/knowledge",
    params(IdempotencyKey),
    request_body = UnitBody,
    responses(
        (status = 201, description = "the unit", body = ContributedUnit),
        (status = 200, description = "the unit, which was there", body = ContributedUnit),
        (status = 409, description = "the id is somebody else's"),
    ),
)]
pub(super) async fn contribute(
    State(app): State<App>,
    Participant(origin): Participant,
    IdempotencyKey(key): IdempotencyKey,
    headers: HeaderMap,
    ApiBytes(body): ApiBytes,
) -> Result<Response, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if ![LINKED_DATA, PLAIN].contains(&kind.split(';').next().unwrap_or_default().trim()) {
        let what = "a unit is sent as application/ld+json or application/json";
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", what));
    }
    let malformed = |what: String| refused(StatusCode::BAD_REQUEST, "malformed_json", what);
    if let Some(repeated) = repeated_member(&body) {
        return Err(malformed(repeated));
    }
    let posted: Value = serde_json::from_slice(&body).map_err(|error| malformed(error.to_string()))?;
    let Value::Object(posted) = posted else { return Err(malformed("a unit is an object".into())) };
    let (version, words) = asked(&headers);
    let done = Box::pin(app.knowledge.contribute(posted, key.as_deref(), &origin)).await?;
    let (unit, resolved) = app.knowledge.as_unit(&done.record, words, version)?;
    let status = if done.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut answer = json!({
        "id": id_of(&done.record),
        "quality_score": quality_of(&done.record),
        "data": stored(&done.record, unit),
    });
    if !done.warnings.is_empty() {
        answer["warnings"] = json!(done.warnings);
    }
    Ok(with_version((status, Json(answer)).into_response(), &resolved))
}

/// A judgement of a unit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidationBody {
    /// `true` if the unit is valid.
    valid: bool,
    /// The findings.
    #[schema(max_length = 2000)]
    feedback: Option<String>,
}

/// Judges whether a unit is valid.
///
/// The last judgement of each caller counts. Owners cannot judge their own units.
#[utoipa::path(
    post, path = "/v1/knowledge/{id}/validate",
    params(("id" = String, Path)),
    request_body = ValidationBody,
    responses((status = 200, description = "the noted judgement", body = Validation)),
)]
pub(super) async fn validate(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
    ApiJson(body): ApiJson<ValidationBody>,
) -> Result<Json<Validation>, Refusal> {
    if body.feedback.as_ref().is_some_and(|feedback| feedback.chars().count() > FEEDBACK_CHARS_MAX) {
        return Err(refused(StatusCode::UNPROCESSABLE_ENTITY, "invalid", "feedback is at most 2000 characters"));
    }
    app.knowledge.validate(&id, body.valid, body.feedback.clone(), &origin).await?;
    let data = ValidationNote { id, validated: true, valid: body.valid, feedback: body.feedback };
    Ok(Json(Validation { data }))
}

/// Deletes a unit of the caller.
///
/// The record can be rolled back.
#[utoipa::path(
    delete, path = "/v1/knowledge/{id}",
    params(("id" = String, Path)),
    responses((status = 200, description = "the deleted unit", body = DeletedUnit)),
)]
pub(super) async fn delete(
    State(app): State<App>,
    Participant(origin): Participant,
    ApiPath(id): ApiPath<String>,
) -> Result<Json<DeletedUnit>, Refusal> {
    let record = app.knowledge.unit(&id, &origin).await?;
    app.knowledge.delete(&record.id, false, &origin).await?;
    let deleted_at = app.store.clock().now();
    Ok(Json(DeletedUnit { deleted: true, unit_id: id, deleted_at, deleted_by: origin.principal.id }))
}

/// A document, and the target version of its migration.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MigrationBody {
    /// The document.
    #[schema(value_type = Object)]
    document: Map<String, Value>,
    /// The target version, such as `3.0.0` or `v3`.
    #[serde(rename = "targetVersion")]
    target_version: String,
}

/// Migrates a document to a later version, step by step.
///
/// Nothing is stored.
#[utoipa::path(
    post, path = "/v1/knowledge/migrate",
    request_body = MigrationBody,
    responses(
        (
            status = 200,
            description = "the document",
            content(
                (Object = "application/ld+json"),
            ),
        ),
        (status = 406, description = "there is no way"),
    ),
)]
pub(super) async fn migrate(
    State(app): State<App>,
    _caller: Caller,
    ApiJson(body): ApiJson<MigrationBody>,
) -> Result<Response, Refusal> {
    let document = Value::Object(body.document);
    let of = major_of(&document)
        .ok_or_else(|| refused(StatusCode::BAD_REQUEST, "no_context", "@context says no version of the protocol"))?;
    let schemas = app.knowledge.schemas();
    let now = app.store.clock().now();
    let resolved = schemas.resolve(Some(&body.target_version), of, now).map_err(KnowledgeError::from)?;
    let done = schemas.migrate(document, resolved.version.0).map_err(KnowledgeError::from)?;
    let kind = [(header::CONTENT_TYPE, LINKED_DATA)];
    Ok(with_version((kind, schemas.project(done, resolved.version).to_string()).into_response(), &resolved))
}
