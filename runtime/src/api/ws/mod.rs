//! `…/subscribe`: the canvas protocol over a WebSocket. Frames are JSON texts with `t` first.
//!
//! Two channels share the socket. Deltas are durable: numbered, ordered and never dropped. A subscriber that falls too
//! far behind is closed with a request to resume, and does not slow other subscribers. Streams, presence and pongs are
//! ephemeral. The token comes in a header, in a subprotocol (`bearer.<token>`) or in `hello`, never in the URL.

mod client;
mod outbox;
mod session;
mod view;

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use lifeform::{CanvasId, LifeformId};
use serde_json::{Value, json};
use store::{NoPlace, Place, Principal};
use tokio::time::timeout;

use super::App;
use super::error::ApiError;
use super::extract::{ApiPath, ApiUpgrade};
use crate::tokens::Admitted;

/// The size of a socket's read buffer, in bytes. Each read clears this much memory.
const READ_BYTES: usize = 2 << 10;
/// The name of the subprotocol.
pub(super) const SUBPROTOCOL: &str = "ailf.canvas.v1";
/// The maximum size of a frame from a client, in bytes.
const FRAME_BYTES_MAX: usize = 256 << 10;
/// The close code for a subscriber that is too slow.
const SLOW: u16 = 4408;
/// The time limit for a subscriber to take the last frames.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// The time limit for a slow subscriber to take the last frames. It is closed within ten seconds of its last progress.
const FAREWELL_MAX_SLOW: Duration = Duration::from_secs(4);

/// The reason for closing a socket.
struct Closing {
    code: u16,
    reason: &'static str,
    /// The last frame before the close; `None` if there is none.
    last: Option<Value>,
}

impl Closing {
    fn because(code: u16, reason: &'static str) -> Self {
        let last = json!({"t": "error", "code": reason, "fatal": true});
        Self { code, reason, last: Some(last) }
    }

    /// The client went away.
    fn gone() -> Self {
        Self { code: 1000, reason: "gone", last: None }
    }

    fn slow() -> Self {
        Self { code: SLOW, reason: "slow", last: None }
    }
}

/// Admits the client of a WebSocket by the token in a header or a subprotocol.
pub(super) fn admitted(app: &App, headers: &HeaderMap) -> Option<Admitted> {
    let by_header = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .map(|(_, token)| token.trim().to_owned());
    let protocols =
        headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let by_protocol =
        protocols.split(',').filter_map(|protocol| protocol.trim().strip_prefix("bearer.")).map(str::to_owned).next();
    by_header.or(by_protocol).and_then(|token| app.tokens.admit(&token))
}

/// Returns the subprotocols to confirm: the daemon's own one, or otherwise the one with the token. A browser rejects a
/// response that confirms none of its subprotocols.
pub(super) fn offered(headers: &HeaderMap, ours: &'static str) -> Vec<String> {
    let protocols =
        headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let offered: Vec<&str> = protocols.split(',').map(str::trim).collect();
    match offered.contains(&ours) {
        true => vec![ours.to_owned()],
        false => offered.into_iter().filter(|offered| offered.starts_with("bearer.")).map(str::to_owned).collect(),
    }
}

/// Opens a WebSocket on a canvas (subprotocol `ailf.canvas.v1`).
///
/// Frames are JSON texts. The client sends first: `{"t": "hello", "v": 1, "token"?, "resume"?: {"epoch", "rev"},
/// "want"?: ["stream", "presence"], "paths"?, "max_lag"?}`. An authenticated client that sends no hello within half a
/// second is served from the start. The token comes in a header, in the subprotocol `bearer.<token>` or in the hello.
///
/// The server replies with `hello`, a `snapshot` or the later deltas, and `live`. Close codes: 1000 the client closed
/// the socket, 1002 wrong version or second hello, 1003 binary frame, 1007 invalid frame, 1011 the store failed, 1012
/// the daemon stops, 4401 token missing or invalid, 4404 canvas not found, 4408 subscriber too slow (resume), 4410
/// lifeform terminated, 4413 frame too large or too many paths, 4429 too many sockets. If the client caused the close,
/// the server first sends `{"t": "error", "code", "fatal": true}`.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/canvases/{canvas}/subscribe",
    params(("id" = String, Path), ("canvas" = String, Path)),
    responses(
        (status = 101, description = "the socket; what is wrong is said by its close code"),
        (status = 400, description = "not a WebSocket"),
        (status = 426, description = "not a WebSocket"),
    ),
)]
pub(super) async fn subscribe(
    State(app): State<App>,
    ApiPath((id, canvas)): ApiPath<(LifeformId, CanvasId)>,
    headers: HeaderMap,
    ApiUpgrade(upgrade): ApiUpgrade,
) -> Result<Response, ApiError> {
    let admitted = admitted(&app, &headers);
    // By default, each idle socket would hold a read buffer of 128 KiB.
    let upgrade = upgrade
        .protocols(offered(&headers, SUBPROTOCOL))
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(4096);
    Ok(upgrade.on_upgrade(move |socket| async move {
        session::serve(app, id, canvas, admitted, socket).await;
    }))
}

/// Admits the client of a WebSocket that wants its token before it opens.
pub(super) fn caller(app: &App, headers: &HeaderMap) -> Result<Admitted, ApiError> {
    let unauthorized = || {
        ApiError::new(StatusCode::UNAUTHORIZED, "no_token", "this socket wants a token")
            .hint("send Authorization: Bearer <token>, or the subprotocol bearer.<token>")
    };
    admitted(app, headers).ok_or_else(unauthorized)
}

/// Takes a permit for a socket, or refuses the request.
pub(super) fn place_or_refusal(app: &App, principal: &Principal) -> Result<Place, ApiError> {
    let too_many = |_| ApiError::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", "too many sockets are open");
    place(app, principal).map_err(too_many)
}

/// Takes a permit for a socket.
pub(super) fn place(app: &App, principal: &Principal) -> Result<Place, &'static str> {
    app.sockets.take(principal).map_err(|why| match why {
        NoPlace::Share => "too_many_sockets_of_yours",
        NoPlace::All => "too_many_sockets",
    })
}

async fn close(mut socket: WebSocket, closing: Closing) {
    let farewell = async {
        if let Some(last) = closing.last {
            let _ = socket.send(Message::text(last.to_string())).await;
        }
        let _ =
            socket.send(Message::Close(Some(CloseFrame { code: closing.code, reason: closing.reason.into() }))).await;
    };
    // A slow client can still learn the reason once it reads again.
    let patience = if closing.code == SLOW { FAREWELL_MAX_SLOW } else { FAREWELL_MAX };
    let _ = timeout(patience, farewell).await;
}
