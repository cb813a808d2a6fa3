//! Large answers: how many bytes of them wait for one principal and in all, and for how long a client may take nothing.

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

/// Bytes up to which an answer is small: it is not counted.
pub(super) const SMALL_BYTES: usize = 8 << 10;
/// Bytes of large answers that may wait in all, and for one principal that is no operator.
const WAITING_BYTES: usize = 160 << 20;
const WAITING_BYTES_EACH: usize = 40 << 20;
/// The unit in which places are counted.
const PLACE_BYTES: usize = 16 << 10;
/// The pieces that an answer is handed over in.
const PIECE_BYTES: usize = 64 << 10;
/// The longest time for which a client may take nothing of its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Places for the bytes of large answers.
pub(super) fn places() -> Shares {
    Shares::new(WAITING_BYTES / PLACE_BYTES, WAITING_BYTES_EACH / PLACE_BYTES)
}

/// Takes places for an answer of so many bytes.
///
/// # Errors
/// When too many wait already: `NoPlace::Share` of the principal's own.
pub(super) fn take(places: &Shares, principal: &Principal, bytes: usize) -> Result<Place, NoPlace> {
    places.take_many(principal, bytes.div_ceil(PLACE_BYTES))
}

/// Counts a large answer, and ends it when its client takes nothing of it for ten seconds. One of unknown length is
/// made as it is taken; it ends when the token that it was asked with is taken back. Small ones pass as they are.
///
/// # Errors
/// 429 when too much waits already for this principal, 503 when for all.
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

/// Waits until the token is taken back; without one, for ever.
pub(super) async fn revoked(admitted: Option<&mut Admitted>) {
    let Some(admitted) = admitted else { return std::future::pending().await };
    loop {
        admitted.changed().await;
        if !admitted.renew() {
            return;
        }
    }
}

/// The pieces of an answer, and an error once the token of its client was taken back.
fn until_revoked(body: Body, mut admitted: Admitted) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    let revoked = async move {
        revoked(Some(&mut admitted)).await;
        Err(axum::Error::new("the token of this answer was taken back"))
    };
    let pieces = body.into_data_stream().map(Some).chain(stream::iter([None]));
    let revoked = stream::once(revoked).map(Some);
    // Whichever ends first ends the answer.
    stream::select(pieces, revoked).scan((), |(), piece| ready(piece)).scan(false, |is_over, piece| {
        let was_over = std::mem::replace(is_over, piece.is_err());
        ready((!was_over).then_some(piece))
    })
}

/// The rest of an answer; dropped when it is not taken in time.
struct Rest {
    bytes: Bytes,
    taken_at: Instant,
    is_late: bool,
    place: Option<Place>,
}

/// An answer that is handed over piece by piece, without being copied.
struct Pieces(Arc<Mutex<Rest>>);

fn locked(rest: &Mutex<Rest>) -> std::sync::MutexGuard<'_, Rest> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pieces {
    fn new(bytes: Bytes, place: Place) -> Self {
        let rest = Rest { bytes, taken_at: Instant::now(), is_late: false, place: Some(place) };
        let rest = Arc::new(Mutex::new(rest));
        let watched = Arc::downgrade(&rest);
        // The connection asks for the next piece when it has room. One that never has does not look at the clock.
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
