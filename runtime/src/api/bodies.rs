//! Limits for request bodies: the bytes of large ones in transit for one principal and in total, the time for which one
//! may stop, and the refusal of bodies that no handler reads.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use store::{NoPlace, Place, Principal, Shares};
use tower_http::timeout::TimeoutBody;

use super::error::ApiError;
use super::{BODY_BYTES_MAX, exchange, extract};

/// The size up to which a body is small and not counted, in bytes.
const SMALL_BYTES: u64 = 16 << 10;
/// The maximum number of bytes of large bodies in transit in total, and for one principal. Operators have no limit of
/// their own.
const BYTES_MAX: usize = 256 << 20;
const BYTES_EACH_MAX: usize = 72 << 20;
/// The memory that a body takes until its response, in bodies: what was received, its values, what is stored and what
/// is answered. An import is read in pieces, and takes what was received of it.
const COPIES: usize = 4;
/// The number of bytes per permit.
const PLACE_BYTES: usize = 16 << 10;
/// The time limit for a client that stops in the middle of a body.
const PATIENCE: Duration = Duration::from_secs(30);
/// The maximum length of a body without content: `{}`, `null` or white space, in bytes.
const NOTHING_BYTES: usize = 64;

/// Returns the permits for the bytes of large bodies.
pub(super) fn places() -> Shares {
    Shares::new(BYTES_MAX / PLACE_BYTES, BYTES_EACH_MAX / PLACE_BYTES)
}

/// Takes permits for the body of a request, until the response. A body of unknown length counts as the maximum of its
/// route. A longer body than any that is kept in memory counts as one of those, because it is read as a stream.
///
/// # Errors
/// 429 if too many bytes are in transit for this principal, 503 if too many are in total.
pub(super) fn place(places: &Shares, principal: &Principal, request: &Request) -> Result<Option<Place>, ApiError> {
    let is_import = request.uri().path().ends_with("/import");
    let (most, copies) = if is_import { (exchange::IMPORT_BYTES_MAX, 1) } else { (BODY_BYTES_MAX, COPIES) };
    let bytes = request.body().size_hint().upper().unwrap_or(most as u64);
    if request.body().is_end_stream() || bytes <= SMALL_BYTES {
        return Ok(None);
    }
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_mul(copies).min(exchange::IMPORT_BYTES_MAX);
    let place = places.take_many(principal, bytes.div_ceil(PLACE_BYTES)).map_err(|why| match why {
        NoPlace::Share => {
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "bodies", "too many bodies of yours are under way")
        }
        NoPlace::All => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "bodies", "too many bodies are under way"),
    });
    place.map(Some).map_err(|error| error.retry_after(1))
}

/// Returns the request with a body that fails if its client sends nothing for thirty seconds.
pub(super) fn patient(request: Request) -> Request {
    if request.body().is_end_stream() {
        return request;
    }
    request.map(|body| Body::new(TimeoutBody::new(PATIENCE, Box::pin(body))))
}

/// Returns the request with its whole body in memory. An import, which is read as a stream, stays as it is.
///
/// # Errors
/// 408 if the client stops in the middle, 413 if the body is longer than any that is kept in memory, 400 if it breaks
/// off.
pub(super) async fn received(request: Request) -> Result<Request, ApiError> {
    if request.body().is_end_stream() || request.uri().path().ends_with("/import") {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => Ok(Request::from_parts(parts, Body::from(bytes))),
        Err(error) if error.to_string().contains(extract::STOOD_STILL) => Err(ApiError::stood_still()),
        Err(error) if error.to_string().contains("length limit") => Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("the bound is {BODY_BYTES_MAX} bytes"),
        )),
        Err(error) => Err(ApiError::new(StatusCode::BAD_REQUEST, "body", format!("the body broke off: {error}"))),
    }
}

/// The operations that read no body, and those that read no query.
#[derive(Default)]
pub(super) struct Unread {
    body: HashSet<(Method, String)>,
    query: HashSet<(Method, String)>,
}

/// Monitoring tools add their own query members to this route.
const HEALTH: &str = "/health";

/// Returns the operations that read no body or no query, from the OpenAPI document.
pub(super) fn unread(described: &Value) -> Arc<Unread> {
    let paths = described["paths"].as_object().into_iter().flatten();
    let mut unread = Unread::default();
    for (path, item) in paths {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
            let mut parameters = operation["parameters"].as_array().into_iter().flatten();
            if !parameters.any(|one| one["in"] == "query") && path != HEALTH {
                unread.query.insert((method.clone(), path.clone()));
            }
            if operation.get("requestBody").is_none() {
                unread.body.insert((method, path.clone()));
            }
        }
    }
    Arc::new(unread)
}

/// Middleware: refuses a query or a body that the operation does not read, since its members would be ignored. The
/// empty body `{}` passes.
pub(super) async fn refuse_unread(State(unread): State<Arc<Unread>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().replace("{*", "{"));
    let Some(operation) = path.map(|path| (request.method().clone(), path)) else { return next.run(request).await };
    if request.uri().query().is_some_and(|query| !query.is_empty()) && unread.query.contains(&operation) {
        let refused = ApiError::new(StatusCode::BAD_REQUEST, "query", "this route reads no query: leave it out");
        return refused.into_response();
    }
    if request.body().is_end_stream() || !unread.body.contains(&operation) {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let says_nothing = match to_bytes(body, NOTHING_BYTES).await {
        Ok(bytes) => {
            let read = serde_json::from_slice::<Value>(&bytes);
            bytes.trim_ascii().is_empty()
                || read.is_ok_and(|it| it.is_null() || it.as_object().is_some_and(|it| it.is_empty()))
        }
        Err(error) if error.to_string().contains(extract::STOOD_STILL) => {
            return ApiError::stood_still().into_response();
        }
        Err(_) => false,
    };
    match says_nothing {
        true => next.run(Request::from_parts(parts, Body::empty())).await,
        false => ApiError::invalid("this route reads no body: leave it out").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures::StreamExt;
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_fails_when_nothing_of_it_comes_for_thirty_seconds() {
        let begun = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"{"))]).chain(stream::pending());
        let request = patient(Request::new(Body::from_stream(begun)));
        let started = tokio::time::Instant::now();
        assert!(to_bytes(request.into_body(), 1 << 20).await.is_err());
        assert_eq!(started.elapsed(), PATIENCE);
        let slow = stream::iter(0..10).then(|_| async {
            tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"x"))
        });
        let request = patient(Request::new(Body::from_stream(slow)));
        assert_eq!(to_bytes(request.into_body(), 1 << 20).await.unwrap().len(), 10);
    }
}
