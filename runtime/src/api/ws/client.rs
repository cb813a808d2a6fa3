//! The frames that clients send.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::ws::{Message, WebSocket};
use futures::StreamExt;
use futures::future::poll_fn;
use neurons::llm::wire::repeated_member;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Closing;

/// A frame from a client.
#[derive(Deserialize)]
#[serde(tag = "t", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromClient {
    /// The first frame.
    Hello(Box<Hello>),
    /// Applies an op to the canvas.
    Op {
        /// The idempotency key of the op, chosen by the client.
        cid: Arc<str>,
        /// The revision that the client saw.
        #[serde(default)]
        base_rev: Option<u64>,
        /// The op.
        op: Value,
    },
    /// Sets the presence state of the client.
    Presence {
        /// The state.
        state: Value,
        /// The validity in seconds.
        #[serde(default = "eight")]
        ttl: u64,
    },
    /// Requests a pong.
    Ping {
        /// The number that the pong repeats.
        #[serde(default)]
        n: u64,
    },
    /// Confirms that the client is still present.
    Ack {},
}

/// The options of a subscription.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hello {
    /// The version of the protocol.
    #[serde(default = "one")]
    pub(super) v: u32,
    /// The token; if absent, the one in the header or the subprotocol.
    #[serde(default)]
    pub(super) token: Option<String>,
    /// The position to resume from.
    #[serde(default)]
    pub(super) resume: Option<Resume>,
    /// The requested ephemeral frames, `stream` and `presence`; all if absent.
    #[serde(default)]
    pub(super) want: Option<Vec<Ephemeral>>,
    /// The JSON Pointers of the requested parts of the canvas; everything if empty.
    #[serde(default)]
    pub(super) paths: Vec<String>,
    /// The maximum number of bytes that may wait for this socket. The server's limit still applies.
    #[serde(default)]
    pub(super) max_lag: Option<usize>,
}

/// The kinds of ephemeral frames.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ephemeral {
    /// The text that a model is writing.
    Stream,
    /// The presence of other people and lifeforms.
    Presence,
}

/// A revision of a log, to resume from.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resume {
    pub(super) epoch: Arc<str>,
    pub(super) rev: u64,
}

fn one() -> u32 {
    1
}

fn eight() -> u64 {
    8
}

/// Returns the next frame of the protocol; `None` after the client has disconnected.
pub(super) fn poll_next(
    context: &mut Context<'_>,
    socket: &mut WebSocket,
) -> Poll<Result<Option<FromClient>, Closing>> {
    loop {
        return Poll::Ready(match ready!(socket.poll_next_unpin(context)) {
            None | Some(Ok(Message::Close(_))) => Ok(None),
            Some(Err(error)) if error.to_string().contains("too large") || error.to_string().contains("too long") => {
                Err(Closing::because(4413, "too_large"))
            }
            Some(Err(_)) => Ok(None),
            Some(Ok(Message::Ping(_))) => continue,
            Some(Ok(Message::Pong(_))) => Ok(Some(FromClient::Ack {})),
            Some(Ok(Message::Binary(_))) => Err(Closing::because(1003, "text_frames_only")),
            Some(Ok(Message::Text(text))) => {
                let read = match repeated_member(text.as_bytes()) {
                    Some(repeated) => Err(repeated),
                    None => serde_json::from_str(&text).map(Some).map_err(|error| error.to_string()),
                };
                read.map_err(|message| Closing {
                    code: 1007,
                    reason: "bad_frame",
                    last: Some(json!({"t": "error", "code": "bad_frame", "message": message, "fatal": true})),
                })
            }
        });
    }
}

/// Waits for the next frame; see [`poll_next`].
pub(super) async fn next(socket: &mut WebSocket) -> Result<Option<FromClient>, Closing> {
    poll_fn(|context| poll_next(context, socket)).await
}
