//! Large bodies of requests: how many bytes of them may be under way for one principal and in all.

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::StatusCode;
use nexus::{NoPlace, Place, Principal, Shares};

use super::error::ApiError;
use super::{BODY_BYTES_MAX, exchange};

/// Bytes up to which a body is small: it is not counted.
const SMALL_BYTES: u64 = 16 << 10;
/// Bytes of large bodies that may be under way in all, and for one principal that is no operator.
const BYTES_MAX: usize = 256 << 20;
const BYTES_EACH_MAX: usize = 72 << 20;
/// The unit in which places are counted.
const PLACE_BYTES: usize = 16 << 10;

/// Places for the bytes of large bodies.
pub(super) fn places() -> Shares {
    Shares::new(BYTES_MAX / PLACE_BYTES, BYTES_EACH_MAX / PLACE_BYTES)
}

/// Takes places for the body of a request, until it is answered. A body of unknown length counts as the largest that its
/// route takes. A body longer than any that is kept in memory counts as one of those: it is read as a stream.
///
/// # Errors
/// 429 when too much is under way for this principal, 503 when for all.
pub(super) fn place(places: &Shares, principal: &Principal, request: &Request) -> Result<Option<Place>, ApiError> {
    let most = if request.uri().path().ends_with("/import") { exchange::IMPORT_BYTES_MAX } else { BODY_BYTES_MAX };
    let bytes = request.body().size_hint().upper().unwrap_or(most as u64);
    if request.body().is_end_stream() || bytes <= SMALL_BYTES {
        return Ok(None);
    }
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(exchange::IMPORT_BYTES_MAX);
    let place = places.take_many(principal, bytes.div_ceil(PLACE_BYTES)).map_err(|why| match why {
        NoPlace::Share => {
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "bodies", "too many bodies of yours are under way")
        }
        NoPlace::All => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "bodies", "too many bodies are under way"),
    });
    place.map(Some).map_err(|error| error.retry_after(1))
}
