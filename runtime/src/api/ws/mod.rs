//! `…/subscribe`: the canvas protocol over a WebSocket, JSON text frames, `t` first.
//!
//! Two channels share the socket. Deltas are durable: numbered, in order, never dropped; a subscriber that cannot keep
//! up is closed with the request to resume, and no other subscriber is slowed. Streams, presence and pongs are
//! ephemeral. The token comes by header, by subprotocol (`bearer.<token>`) or in `hello`, never in the URL.

mod client;
mod outbox;
mod session;
mod view;

use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use lifeform::{CanvasId, LifeformId};
use serde_json::{Value, json};
use store::{NoPlace, Place, Principal};
use tokio::time::timeout;

use super::App;
use super::error::ApiError;
use super::extract::{ApiPath, ApiUpgrade};
use crate::tokens::Admitted;

/// The read buffer of a socket: so much memory is cleared for each read.
const READ_BYTES: usize = 2 << 10;
/// The subprotocol's name.
pub(super) const SUBPROTOCOL: &str = "ailf.canvas.v1";
/// The largest frame a client may send.
const FRAME_BYTES_MAX: usize = 256 << 10;
/// The code of a subscriber that does not keep up.
const SLOW: u16 = 4408;
/// The longest time for a subscriber to receive the last frames.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// The same for one that is closed because it is slow: it is gone within ten seconds of when it took something last.
const FAREWELL_MAX_SLOW: Duration = Duration::from_secs(4);

/// The reason of closing a socket.
struct Closing {
    code: u16,
    reason: &'static str,
    /// A last frame.
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

/// Whoever opens a socket, by the token in a header or a subprotocol.
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

/// The subprotocols that are agreed to: ours, or else the one that carries the token, since a browser refuses an answer
/// that agrees to none of those it offered.
pub(super) fn offered(headers: &HeaderMap, ours: &'static str) -> Vec<String> {
    let protocols =
        headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let offered: Vec<&str> = protocols.split(',').map(str::trim).collect();
    match offered.contains(&ours) {
        true => vec![ours.to_owned()],
        false => offered.into_iter().filter(|offered| offered.starts_with("bearer.")).map(str::to_owned).collect(),
    }
}

/// A WebSocket on a canvas (subprotocol `ailf.canvas.v1`): JSON text frames, the first of which is the client's `{"t":
/// "hello", "v": 1, "token"?, "resume"?: {"epoch", "rev"}, "want"?: ["stream", "presence"], "paths"?, "max_lag"?}`; who
/// sends none within a moment is served from the start. The token comes by header, by the subprotocol `bearer.<token>`
/// or in the hello.
///
/// It is answered by `hello`, a `snapshot` or the deltas since, and `live`. Close codes: 1000 the client closed it,
/// 1002 another version or a second hello, 1003 a binary frame, 1007 no frame of this protocol, 1011 the store failed,
/// 1012 the daemon stops, 4401 no token or one that is not known any more, 4404 no such canvas, 4408 too slow (resume),
/// 4410 the lifeform was ended, 4413 a frame too large or too many paths, 4429 too many sockets. A `{"t": "error",
/// "code", "fatal": true}` comes before a code of what the client did.
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
    // Left alone, a socket that only listens would hold 128 KiB to read into.
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

/// A place among the sockets of this daemon.
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
    // Who reads slowly still learns why, once he reads again.
    let patience = if closing.code == SLOW { FAREWELL_MAX_SLOW } else { FAREWELL_MAX };
    let _ = timeout(patience, farewell).await;
}
