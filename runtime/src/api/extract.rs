//! The extractors of handlers: a principal, a validated body, an idempotency key.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::WebSocketUpgrade;
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::{Json, RequestPartsExt};
use neurons::llm::wire::{Object, repeated_member};
use serde::de::{DeserializeOwned, IgnoredAny};
use store::{Cause, Origin, Role};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};

use super::App;
use super::error::ApiError;

/// The message of tower-http's error for a request body that stops for too long.
pub(super) const STOOD_STILL: &str = "was not received within";

/// A JSON body. Its refusal names the fault and the place.
pub(crate) struct ApiJson<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let ApiBytes(bytes) = ApiBytes::from_request(Request::from_parts(parts.clone(), body), state).await?;
        if let Some(repeated) = repeated_member(&bytes) {
            return Err(ApiError::invalid(repeated));
        }
        let request = Request::from_parts(parts, Body::from(bytes.clone()));
        match Json::<Object<T>>::from_request(request, state).await {
            Ok(Json(Object(body))) => Ok(Self(body)),
            Err(rejection) => {
                let detail = rejection.body_text();
                Err(match rejection {
                    // A part that was read apart from the rest does not fit.
                    JsonRejection::JsonSyntaxError(_) if serde_json::from_slice::<IgnoredAny>(&bytes).is_ok() => {
                        ApiError::invalid(without_texts(detail))
                    }
                    JsonRejection::JsonSyntaxError(_) => {
                        ApiError::new(StatusCode::BAD_REQUEST, "malformed_json", detail)
                    }
                    JsonRejection::JsonDataError(_) => ApiError::invalid(without_texts(detail)),
                    JsonRejection::MissingJsonContentType(_) => {
                        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail)
                            .hint("send Content-Type: application/json")
                    }
                    other if other.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail)
                    }
                    _ if detail.contains(STOOD_STILL) => ApiError::stood_still(),
                    other => ApiError::new(other.status(), "body", detail),
                })
            }
        }
    }
}

/// An optional JSON body. Without a body, all members have their defaults.
pub(crate) struct ApiJsonOr<T>(pub(crate) T);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for ApiJsonOr<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        ApiJson::from_request(request, state).await.map(|ApiJson(body)| Self(body))
    }
}

/// Returns serde's message without the invalid text that it quotes, which may be a secret.
fn without_texts(mut detail: String) -> String {
    if let Some(from) = detail.find("string \"")
        && let Some(to) = detail.rfind("\", expected")
    {
        detail.replace_range(from..=to, "a text");
    }
    detail
}

/// A binary body. Its refusal is a problem document.
pub(crate) struct ApiBytes(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for ApiBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let large = |rejection: BytesRejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", rejection.body_text())
            }
            _ if rejection.body_text().contains(STOOD_STILL) => ApiError::stood_still(),
            other => ApiError::new(other, "body", rejection.body_text()),
        };
        Bytes::from_request(request, state).await.map(Self).map_err(large)
    }
}

/// A text body. Its refusal is a problem document.
pub(crate) struct ApiText(pub(crate) String);

impl<S: Send + Sync> FromRequest<S> for ApiText {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let ApiBytes(bytes) = ApiBytes::from_request(request, state).await?;
        let text = String::from_utf8(bytes.into()).map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, "not_text", format!("the body is not UTF-8: {error}"))
        })?;
        Ok(Self(text))
    }
}

/// A query string. Its refusal is a problem document.
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let wrong = |rejection: QueryRejection| ApiError::new(StatusCode::BAD_REQUEST, "query", rejection.body_text());
        if let Some(joined) = parts.uri.query().and_then(joined) {
            let uri = format!("{}?{joined}", parts.uri.path());
            let uri = uri.parse().map_err(|_| ApiError::new(StatusCode::BAD_REQUEST, "query", "it cannot be read"))?;
            return Query::try_from_uri(&uri).map(|Query(query)| Self(query)).map_err(wrong);
        }
        let read = Query::<T>::from_request_parts(parts, state).await;
        read.map(|Query(query)| Self(query)).map_err(wrong)
    }
}

/// The query members that are lists. They may be repeated, or contain commas.
const LISTS: [&str; 3] = ["types", "scopes", "tags"];

/// Returns a query in which each list occurs once; `None` if no list is repeated.
fn joined(query: &str) -> Option<String> {
    let (mut members, mut is_joined): (Vec<(String, String)>, bool) = (Vec::new(), false);
    for member in query.split('&').filter(|member| !member.is_empty()) {
        let (name, value) = member.split_once('=').unwrap_or((member, ""));
        match members.iter_mut().find(|(known, _)| known == name && LISTS.contains(&name)) {
            Some((_, list)) => {
                list.push_str("%2C");
                list.push_str(value);
                is_joined = true;
            }
            None => members.push((name.to_owned(), value.to_owned())),
        }
    }
    let members: Vec<String> = members.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    is_joined.then(|| members.join("&"))
}

/// The parameters of a path. Their refusal is a problem document.
pub(crate) struct ApiPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for ApiPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = Path::<T>::from_request_parts(parts, state).await;
        let wrong = |rejection: PathRejection| ApiError::new(StatusCode::BAD_REQUEST, "path", rejection.body_text());
        read.map(|Path(path)| Self(path)).map_err(wrong)
    }
}

/// A WebSocket upgrade. Its refusal is a problem document.
pub(crate) struct ApiUpgrade(pub(crate) WebSocketUpgrade);

impl<S: Send + Sync> FromRequestParts<S> for ApiUpgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read = WebSocketUpgrade::from_request_parts(parts, state).await;
        let wrong = |rejection: WebSocketUpgradeRejection| {
            ApiError::new(rejection.status(), "not_a_websocket", rejection.body_text())
                .hint("this route is a WebSocket: send Connection: Upgrade, Upgrade: websocket")
        };
        read.map(Self).map_err(wrong)
    }
}

/// The bearer token of a request (RFC 6750 §2.1).
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// The caller of a request. The request is the cause of all its effects.
pub(crate) struct Caller(pub(crate) Origin);

impl FromRequestParts<App> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Some(token) = bearer(&parts.headers) else {
            return Err(ApiError::new(StatusCode::UNAUTHORIZED, "no_token", "this route wants a token")
                .hint("send Authorization: Bearer <token>; the operator's is in <data>/operator.token"));
        };
        let principal = app.tokens.principal(token).ok_or_else(|| {
            ApiError::new(StatusCode::UNAUTHORIZED, "bad_token", "this token is unknown, or it was revoked")
        })?;
        // Reads, and requests that free space, need no room for new data. KIP commands are judged one by one.
        let route = parts.extensions.get::<MatchedPath>();
        let path = route.map_or("", MatchedPath::as_str);
        let reads = parts.method.is_safe() || [Method::CONNECT, Method::DELETE].contains(&parts.method);
        let reads = reads
            || ["/cancel", "/interrupt", "/export", "/kip", "/memory/forget", "/check", "/dry-run"]
                .iter()
                .any(|end| path.ends_with(end));
        if !reads {
            app.check_disk_share(&principal)?;
        }
        let cause = Cause::of(format!("http:{} {}", parts.method, parts.uri.path()));
        Ok(Self(Origin::new(principal, cause)))
    }
}

/// The caller of a request that may be public: with a token as [`Caller`], without one as the anonymous principal, if
/// the configuration allows it.
pub(crate) struct Reader(pub(crate) Origin);

impl FromRequestParts<App> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        match app.tokens.anybody() {
            Some(anybody) if !parts.headers.contains_key("authorization") => {
                let cause = Cause::of(format!("http:{} {}", parts.method, parts.uri.path()));
                Ok(Self(Origin::new(anybody, cause)))
            }
            _ => parts.extract_with_state::<Caller, App>(app).await.map(|Caller(origin)| Self(origin)),
        }
    }
}

/// A caller with the right to change something.
pub(crate) struct Participant(pub(crate) Origin);

impl FromRequestParts<App> for Participant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Caller(origin) = parts.extract_with_state::<Caller, App>(app).await?;
        let acts = origin.principal.may(Role::Participant) || origin.principal.may(Role::Lifeform);
        if acts { Ok(Self(origin)) } else { Err(ApiError::forbidden("this token may only look")) }
    }
}

/// A caller with the operator role.
pub(crate) struct Operator(pub(crate) Origin);

impl FromRequestParts<App> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Caller(origin) = parts.extract_with_state::<Caller, App>(app).await?;
        if origin.principal.may(Role::Operator) {
            Ok(Self(origin))
        } else {
            Err(ApiError::forbidden("this is for operators"))
        }
    }
}

/// The `Idempotency-Key` header, if it was sent.
pub(crate) struct IdempotencyKey(pub(crate) Option<Arc<str>>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut keys = parts.headers.get_all("idempotency-key").iter();
        let Some(value) = keys.next() else { return Ok(Self(None)) };
        match value.to_str() {
            Ok(_) if keys.next().is_some() => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "idempotency_key",
                "a request has one Idempotency-Key header",
            )),
            Ok(key) if store::secrets::redacted(key).is_some() => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "idempotency_key",
                "a secret is no Idempotency-Key: it is kept",
            )),
            Ok(key) if (1..=255).contains(&key.len()) && !key.contains('\t') => Ok(Self(Some(key.into()))),
            _ => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "idempotency_key",
                "Idempotency-Key is 1 to 255 visible characters",
            )),
        }
    }
}

impl IntoParams for IdempotencyKey {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(255));
        let key = Parameter::builder()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .description(Some("Under the same key of the same caller it is done once."))
            .schema(Some(text.pattern(Some("^[ -~]+$"))));
        vec![key.build()]
    }
}

/// The time for which the caller prefers to wait for an outcome: `Prefer: wait=30`, in seconds (RFC 7240 §4.3). The
/// maximum is 60. An unreadable preference is ignored.
pub(crate) struct Patience(pub(crate) Option<Duration>);

/// The maximum wait of a request for an outcome.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

impl<S: Send + Sync> FromRequestParts<S> for Patience {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let sent = parts.headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        let wait = |preference: &str| {
            let (name, seconds) = preference.split(';').next()?.split_once('=')?;
            let seconds = seconds.trim().trim_matches('"').parse().ok()?;
            name.trim().eq_ignore_ascii_case("wait").then(|| Duration::from_secs(seconds).min(PATIENCE_MAX))
        };
        Ok(Self(sent.flat_map(|value| value.split(',')).find_map(wait)))
    }
}

/// Returns the expected version from `If-Match`.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let version = value.to_str().ok().and_then(|value| value.trim_matches('"').parse().ok());
    let wrong = || ApiError::new(StatusCode::BAD_REQUEST, "if_match", "If-Match is a version in quotes, as in \"3\"");
    version.map(Some).ok_or_else(wrong)
}
