//! The frames of a client.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::extract::ws::{Message, WebSocket};
use futures::StreamExt;
use futures::future::poll_fn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Closing;

/// A frame of a client.
#[derive(Deserialize)]
#[serde(tag = "t", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum FromClient {
    /// The first one.
    Hello(Box<Hello>),
    /// Does something to the canvas.
    Op {
        /// The client's own name for it; the same one again is done once.
        cid: Arc<str>,
        /// The revision that was seen.
        #[serde(default)]
        base_rev: Option<u64>,
        /// The op.
        op: Value,
    },
    /// Says what one is at.
    Presence {
        /// The state.
        state: Value,
        /// Seconds for which it holds.
        #[serde(default = "eight")]
        ttl: u64,
    },
    /// Asks for a pong.
    Ping {
        /// The number for the answer.
        #[serde(default)]
        n: u64,
    },
    /// Says that one is there still.
    Ack {},
}

/// The options of a subscription.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hello {
    /// The version of the protocol.
    #[serde(default = "one")]
    pub(super) v: u32,
    /// The token, if no header brought it.
    #[serde(default)]
    pub(super) token: Option<String>,
    /// The position to resume from.
    #[serde(default)]
    pub(super) resume: Option<Resume>,
    /// The wanted ephemeral frames, `stream` and `presence`; all if absent.
    #[serde(default)]
    pub(super) want: Option<Vec<Ephemeral>>,
    /// Only what is at or under these pointers; everything when absent.
    #[serde(default)]
    pub(super) paths: Vec<String>,
    /// The most bytes that may wait for this socket, if less than the bound.
    #[serde(default)]
    pub(super) max_lag: Option<usize>,
}

/// Frames that are not kept.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ephemeral {
    /// Text while a model writes it.
    Stream,
    /// The presence of other people and lifeforms.
    Presence,
}

/// A revision of a log.
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

/// The next frame that means something; `None` when the client is gone.
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
            Some(Ok(Message::Text(text))) => serde_json::from_str(&text).map(Some).map_err(|error| Closing {
                code: 1007,
                reason: "bad_frame",
                last: Some(json!({"t": "error", "code": "bad_frame", "message": error.to_string(), "fatal": true})),
            }),
        });
    }
}

/// See [`poll_next`].
pub(super) async fn next(socket: &mut WebSocket) -> Result<Option<FromClient>, Closing> {
    poll_fn(|context| poll_next(context, socket)).await
}
