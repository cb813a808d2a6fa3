//! The bounded queue of one socket. Frames that wait together are flushed together.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::SinkExt;
use futures::future::poll_fn;
use tokio::time::Instant;

use super::Closing;

/// The maximum number of waiting frames.
const FRAMES_MAX: usize = 1024;
/// The minimum limit that a client may request, in bytes. Below it, no frame would ever have room.
const BYTES_MIN: usize = 16 << 10;
/// The maximum number of waiting bytes.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// The outgoing queue of one socket.
pub(super) struct Outbox {
    queue: VecDeque<Message>,
    bytes: usize,
    bytes_max: usize,
    /// `true` if the socket buffers messages that are not flushed yet.
    unflushed: bool,
    /// The time at which the socket last took a message, or at which the queue became non-empty.
    progress: Instant,
}

/// The time limit for a socket that takes nothing from its queue.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the size of a message in the queue: the length of its text.
fn bytes_of(message: &Message) -> usize {
    if let Message::Text(text) = message { text.len() } else { 0 }
}

impl Outbox {
    /// Creates a queue with a limit in bytes.
    pub(super) fn new(bytes_max: Option<usize>) -> Self {
        let bytes_max = bytes_max.unwrap_or(BYTES_MAX).clamp(BYTES_MIN, BYTES_MAX);
        Self { queue: VecDeque::new(), bytes: 0, bytes_max, unflushed: false, progress: Instant::now() }
    }

    /// Returns `true` if the session may read more frames for this socket.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < self.bytes_max / 2 && self.queue.len() < FRAMES_MAX / 2
    }

    /// Returns the time at which this socket counts as too slow, if it takes nothing until then.
    pub(super) fn patience_ends(&self) -> Instant {
        self.progress + PATIENCE
    }

    /// Returns `true` if there is anything to send.
    pub(super) fn is_due(&self) -> bool {
        self.unflushed || !self.queue.is_empty()
    }

    /// Queues a frame that must not be dropped. Fails if the subscriber is too slow.
    pub(super) fn push(&mut self, frame: Utf8Bytes) -> Result<(), Closing> {
        // An empty queue accepts a frame of any size.
        if !self.queue.is_empty() && (self.bytes >= self.bytes_max || self.queue.len() >= FRAMES_MAX) {
            return Err(Closing::slow());
        }
        self.put(Message::Text(frame));
        Ok(())
    }

    /// Queues a frame that may be dropped, if there is enough room.
    pub(super) fn hint(&mut self, frame: Utf8Bytes) {
        if self.bytes < self.bytes_max / 4 && self.queue.len() < FRAMES_MAX / 4 {
            self.put(Message::Text(frame));
        }
    }

    /// Queues a ping.
    pub(super) fn ping(&mut self) {
        self.put(Message::Ping(Bytes::new()));
    }

    fn put(&mut self, message: Message) {
        if !self.is_due() {
            self.progress = Instant::now();
        }
        self.bytes += bytes_of(&message);
        self.queue.push_back(message);
    }

    /// Sends all waiting frames. The caller may cancel and repeat this at any point without loss or duplicates.
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>, socket: &mut WebSocket) -> Poll<Result<(), Closing>> {
        let gone = |_| Closing::gone();
        while !self.queue.is_empty() {
            ready!(socket.poll_ready_unpin(context)).map_err(gone)?;
            let Some(message) = self.queue.pop_front() else { break };
            self.bytes -= bytes_of(&message);
            self.unflushed = true;
            self.progress = Instant::now();
            socket.start_send_unpin(message).map_err(gone)?;
        }
        ready!(socket.poll_flush_unpin(context)).map_err(gone)?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Sends all waiting frames; see [`Self::poll_send`].
    pub(super) async fn send(&mut self, socket: &mut WebSocket) -> Result<(), Closing> {
        poll_fn(|context| self.poll_send(context, socket)).await
    }
}
