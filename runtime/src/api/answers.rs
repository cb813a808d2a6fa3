//! Limits for large responses: the bytes that wait for one principal and in total, and the time for which a client may
//! stop reading.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use futures::future::ready;
use futures::stream::{self, Stream, StreamExt};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use store::{NoPlace, Place, Principal, Shares};
use tokio::time::Instant;

use super::error::ApiError;
use crate::tokens::Admitted;

/// The size up to which a response is small and not counted, in bytes.
pub(super) const SMALL_BYTES: usize = 8 << 10;
/// The maximum number of bytes of large responses that wait in total, and for one principal. Operators have no limit of
/// their own.
const WAITING_BYTES: usize = 160 << 20;
const WAITING_BYTES_EACH: usize = 40 << 20;
/// The number of bytes per permit.
const PLACE_BYTES: usize = 16 << 10;
/// The size of the pieces of a response, in bytes.
const PIECE_BYTES: usize = 64 << 10;
/// The time limit for a client that reads nothing of its response.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the permits for the bytes of large responses.
pub(super) fn places() -> Shares {
    Shares::new(WAITING_BYTES / PLACE_BYTES, WAITING_BYTES_EACH / PLACE_BYTES)
}

/// Takes permits for a response of `bytes`.
///
/// # Errors
/// If too many bytes already wait: `NoPlace::Share` for the principal's own share.
pub(super) fn take(places: &Shares, principal: &Principal, bytes: usize) -> Result<Place, NoPlace> {
    places.take_many(principal, bytes.div_ceil(PLACE_BYTES))
}

/// Middleware: counts a large response, and ends it if its client reads nothing for ten seconds. A response of unknown
/// length is streamed, and ends if the token of the request is revoked. Small responses pass unchanged.
///
/// # Errors
/// 429 if too many bytes already wait for this principal, 503 if too many wait in total.
pub(super) async fn bounded(
    places: &Shares,
    admitted: Option<Admitted>,
    response: Response,
) -> Result<Response, ApiError> {
    let Some(bytes) = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok()) else {
        return Ok(match admitted {
            Some(admitted) => response.map(|body| Body::from_stream(until_revoked(body, admitted))),
            None => response,
        });
    };
    if bytes <= SMALL_BYTES {
        return Ok(response);
    }
    let principal = admitted.map_or_else(Principal::anybody, |admitted| admitted.principal().clone());
    let place = take(places, &principal, bytes).map_err(|why| {
        let (status, detail) = match why {
            NoPlace::Share => (StatusCode::TOO_MANY_REQUESTS, "too many answers wait to be taken by you"),
            NoPlace::All => (StatusCode::SERVICE_UNAVAILABLE, "too many answers wait to be taken"),
        };
        ApiError::new(status, "answers_wait", detail).retry_after(1)
    })?;
    let (parts, body) = response.into_parts();
    let Ok(whole) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "answer", "the answer could not be made"));
    };
    Ok(Response::from_parts(parts, Body::new(Pieces::new(whole, place))))
}

/// Waits until the token is revoked; without a token, forever.
pub(super) async fn revoked(admitted: Option<&mut Admitted>) {
    let Some(admitted) = admitted else { return std::future::pending().await };
    loop {
        admitted.changed().await;
        if !admitted.renew() {
            return;
        }
    }
}

/// Returns the pieces of a response, and an error once the token of its client is revoked.
fn until_revoked(body: Body, mut admitted: Admitted) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let revoked = async move {
        revoked(Some(&mut admitted)).await;
        Err(axum::Error::new("the token of this answer was revoked"))
    };
    let pieces = body.into_data_stream().map(Some).chain(stream::iter([None]));
    let revoked = stream::once(revoked).map(Some);
    // The stream ends with the first error.
    stream::select(pieces, revoked).scan((), |(), piece| ready(piece)).scan(false, |is_over, piece| {
        let was_over = std::mem::replace(is_over, piece.is_err());
        ready((!was_over).then_some(piece))
    })
}

/// The rest of a response. It is dropped if the client does not read it in time.
struct Rest {
    bytes: Bytes,
    taken_at: Instant,
    is_late: bool,
    place: Option<Place>,
}

/// A response that is sent in pieces without copying.
struct Pieces(Arc<Mutex<Rest>>);

fn locked(rest: &Mutex<Rest>) -> std::sync::MutexGuard<'_, Rest> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pieces {
    fn new(bytes: Bytes, place: Place) -> Self {
        let rest = Rest { bytes, taken_at: Instant::now(), is_late: false, place: Some(place) };
        let rest = Arc::new(Mutex::new(rest));
        let watched = Arc::downgrade(&rest);
        // The connection requests the next piece when it has room. Without room, it does not check the time, so this
        // task does.
        tokio::spawn(async move {
            loop {
                let Some(due) = watched.upgrade().map(|rest| locked(&rest).taken_at + PATIENCE) else { return };
                tokio::time::sleep_until(due).await;
                let Some(rest) = watched.upgrade() else { return };
                let mut rest = locked(&rest);
                if rest.taken_at + PATIENCE <= Instant::now() {
                    (rest.bytes, rest.is_late, rest.place) = (Bytes::new(), true, None);
                    return;
                }
            }
        });
        Self(rest)
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut rest = locked(&self.0);
        if rest.is_late {
            return Poll::Ready(Some(Err("the client took nothing of its answer for too long")));
        }
        if rest.bytes.is_empty() {
            rest.place = None;
            return Poll::Ready(None);
        }
        let length = rest.bytes.len().min(PIECE_BYTES);
        rest.taken_at = Instant::now();
        Poll::Ready(Some(Ok(Frame::data(rest.bytes.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        let rest = locked(&self.0);
        rest.bytes.is_empty() && !rest.is_late
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(locked(&self.0).bytes.len() as u64)
    }
}
