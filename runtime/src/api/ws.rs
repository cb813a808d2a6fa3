//! `…/subscribe`: the canvas protocol over a WebSocket, JSON text frames, `t` first.
//!
//! Two channels share the socket. Deltas are durable: numbered, in order, never dropped; a subscriber
//! that cannot keep up is told to resume and closed, and nobody else is slowed. Streams and pongs are
//! ephemeral. The token comes by header, by subprotocol (`bearer.<token>`) or in `hello`, never in the URL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use lifeform::canvas::chat::Op;
use lifeform::canvas::{Applied, Frames};
use lifeform::{Canvas, CanvasId, LifeformId};
use nexus::{Cause, Origin, Principal, Role};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::{Instant, timeout};

use super::App;
use super::error::ApiError;
use super::extract::{ApiPath, ApiUpgrade};

/// The subprotocol's name.
pub(super) const SUBPROTOCOL: &str = "ailf.canvas.v1";
/// The largest frame a client may send.
const FRAME_BYTES_MAX: usize = 256 << 10;
/// Frames that may wait for one socket.
const QUEUE_FRAMES: usize = 1024;
/// Bytes that may wait for one socket.
const QUEUE_BYTES: usize = 1 << 20;
/// How long a socket without credentials may take to bring them.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// How long a socket with credentials is waited for before it is taken as a listener.
const HELLO_GRACE: Duration = Duration::from_millis(500);
/// The code of a subscriber that does not keep up.
const SLOW: u16 = 4408;
/// How long a subscriber may take to receive the last frames.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// The same for one that is closed because it is slow.
const FAREWELL_MAX_SLOW: Duration = Duration::from_secs(30);
/// How often a ping is sent; two without an answer close the socket.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Ops one socket may send a second.
const OPS_PER_S: u32 = 50;

/// What a client sends.
#[derive(Deserialize)]
#[serde(tag = "t", rename_all = "snake_case")]
enum FromClient {
    Hello {
        #[serde(default)]
        token: Option<String>,
        #[serde(default)]
        resume: Option<Resume>,
    },
    Op {
        cid: Arc<str>,
        #[serde(default)]
        base_rev: Option<u64>,
        op: Op,
    },
    Ping {
        #[serde(default)]
        n: u64,
    },
    Ack {},
}

#[derive(Clone, Deserialize)]
struct Resume {
    epoch: Arc<str>,
    rev: u64,
}

/// Why a socket is closed.
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
}

/// Whoever opens a socket, by the token in a header or a subprotocol.
pub(super) fn principal(app: &App, headers: &HeaderMap) -> Option<Principal> {
    let by_header = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once(' '))
        .map(|(_, token)| token.trim().to_owned());
    let protocols =
        headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let by_protocol =
        protocols.split(',').filter_map(|protocol| protocol.trim().strip_prefix("bearer.")).map(str::to_owned).next();
    by_header.or(by_protocol).and_then(|token| app.tokens.principal(&token))
}

/// The subprotocols that are agreed to: ours, or else the one that carries the token, since a browser refuses an answer that
/// agrees to none of those it offered.
pub(super) fn offered(headers: &HeaderMap, ours: &'static str) -> Vec<String> {
    let protocols =
        headers.get(header::SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let offered: Vec<&str> = protocols.split(',').map(str::trim).collect();
    match offered.contains(&ours) {
        true => vec![ours.to_owned()],
        false => offered.into_iter().filter(|offered| offered.starts_with("bearer.")).map(str::to_owned).collect(),
    }
}

/// Opens the socket.
pub(super) async fn subscribe(
    State(app): State<App>,
    ApiPath((id, canvas)): ApiPath<(LifeformId, CanvasId)>,
    headers: HeaderMap,
    ApiUpgrade(upgrade): ApiUpgrade,
) -> Result<Response, ApiError> {
    let principal = principal(&app, &headers);
    let upgrade = upgrade
        .protocols(offered(&headers, SUBPROTOCOL))
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .read_buffer_size(4096)
        .write_buffer_size(4096);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let (sink, stream) = socket.split();
        let Ok(_permit) = app.sockets.clone().try_acquire_owned() else {
            return close(sink, Closing::because(4429, "too_many_sockets")).await;
        };
        serve(app, id, canvas, principal, sink, stream).await;
    }))
}

async fn close(mut sink: SplitSink<WebSocket, Message>, closing: Closing) {
    let farewell = async {
        if let Some(last) = closing.last {
            let _ = sink.send(Message::text(last.to_string())).await;
        }
        let _ = sink.send(Message::Close(Some(CloseFrame { code: closing.code, reason: closing.reason.into() }))).await;
    };
    // Who reads slowly still learns why, once he reads again.
    let patience = if closing.code == SLOW { FAREWELL_MAX_SLOW } else { FAREWELL_MAX };
    let _ = timeout(patience, farewell).await;
}

async fn serve(
    app: App,
    id: LifeformId,
    name: CanvasId,
    mut principal: Option<Principal>,
    sink: SplitSink<WebSocket, Message>,
    mut stream: SplitStream<WebSocket>,
) {
    let mut first = None;
    let wait = if principal.is_some() { HELLO_GRACE } else { HELLO_MAX };
    match timeout(wait, next(&mut stream)).await {
        Ok(Ok(Some(frame))) => first = Some(frame),
        Ok(Ok(None)) => return,
        Ok(Err(closing)) => return close(sink, closing).await,
        Err(_) => {}
    }
    let mut resume = None;
    let mut held = None;
    match first {
        Some(FromClient::Hello { token, resume: from }) => {
            resume = from;
            principal = principal.or_else(|| app.tokens.principal(&token?));
        }
        other => held = other,
    }
    let Some(principal) = principal else { return close(sink, Closing::because(4401, "unauthorized")).await };
    let Ok(canvas) = app.lifeforms.named_canvas(&id, &name).await else {
        return close(sink, Closing::because(4404, "not_found")).await;
    };
    Socket { app, canvas, principal, held }.run(resume, sink, stream).await;
}

/// The next frame that means something; `None` when the client is gone.
async fn next(stream: &mut SplitStream<WebSocket>) -> Result<Option<FromClient>, Closing> {
    loop {
        match stream.next().await {
            None | Some(Ok(Message::Close(_))) => return Ok(None),
            Some(Err(error)) if error.to_string().contains("too large") || error.to_string().contains("too long") => {
                return Err(Closing::because(4413, "too_large"));
            }
            Some(Err(_)) => return Ok(None),
            Some(Ok(Message::Ping(_))) => {}
            Some(Ok(Message::Pong(_))) => return Ok(Some(FromClient::Ack {})),
            Some(Ok(Message::Binary(_))) => return Err(Closing::because(1003, "text_frames_only")),
            Some(Ok(Message::Text(text))) => {
                return serde_json::from_str(&text).map(Some).map_err(|error| Closing {
                    code: 1007,
                    reason: "bad_frame",
                    last: Some(json!({"t": "error", "code": "bad_frame", "message": error.to_string(), "fatal": true})),
                });
            }
        }
    }
}

/// What goes out.
enum Outgoing {
    Text(Arc<str>),
    Ping,
}

/// The way out of a socket: a bounded queue and the task that empties it.
struct Out {
    frames: mpsc::Sender<Outgoing>,
    bytes: Arc<AtomicUsize>,
}

impl Out {
    /// Queues a frame that must not be dropped, waiting for room: used while replaying.
    async fn put(&self, frame: Arc<str>) -> Result<(), Closing> {
        self.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        self.frames.send(Outgoing::Text(frame)).await.map_err(|_| Closing { code: 1000, reason: "gone", last: None })
    }

    /// Queues a frame that must not be dropped, or says that the subscriber is too slow.
    fn push(&self, frame: Arc<str>) -> Result<(), Closing> {
        let waiting = self.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        let room = waiting < QUEUE_BYTES && self.frames.try_send(Outgoing::Text(frame)).is_ok();
        if room { Ok(()) } else { Err(Closing { code: SLOW, reason: "slow", last: None }) }
    }

    /// Queues a frame that may be dropped, if there is plenty of room.
    fn hint(&self, frame: Arc<str>) {
        if self.bytes.load(Ordering::Relaxed) < QUEUE_BYTES / 4
            && self.frames.try_send(Outgoing::Text(frame.clone())).is_ok()
        {
            self.bytes.fetch_add(frame.len(), Ordering::Relaxed);
        }
    }
}

struct Socket {
    app: App,
    canvas: Canvas,
    principal: Principal,
    /// A frame that came before the socket was ready for it.
    held: Option<FromClient>,
}

impl Socket {
    async fn run(
        mut self,
        resume: Option<Resume>,
        sink: SplitSink<WebSocket, Message>,
        mut stream: SplitStream<WebSocket>,
    ) {
        let (frames, queue) = mpsc::channel(QUEUE_FRAMES);
        let bytes = Arc::new(AtomicUsize::new(0));
        let (end, ended) = watch::channel(false);
        let writer = tokio::spawn(write(sink, queue, bytes.clone(), ended));
        let out = Out { frames, bytes };
        let closing = match self.converse(&out, resume, &mut stream).await {
            Ok(()) => Closing { code: 1000, reason: "bye", last: None },
            Err(closing) => closing,
        };
        let slow = closing.code == SLOW;
        let snapshot = self.canvas.snapshot();
        let last = if slow {
            Some(json!({"t": "reset", "reason": "lagged", "epoch": snapshot.epoch, "rev": snapshot.rev}))
        } else {
            closing.last
        };
        // A slow subscriber's queue is dropped; any other's is sent first.
        let _ = end.send(slow);
        drop(out);
        if slow {
            tracing::info!(principal = %self.principal.id, canvas = %self.canvas.id, "closing a slow subscriber");
        }
        if let Ok(Ok(sink)) = timeout(Duration::from_secs(5), writer).await {
            close(sink, Closing { last, ..closing }).await;
        }
    }

    async fn converse(
        &mut self,
        out: &Out,
        resume: Option<Resume>,
        stream: &mut SplitStream<WebSocket>,
    ) -> Result<(), Closing> {
        // Watching begins before reading: no op can fall between the replay and what follows.
        let mut head = self.canvas.watch();
        let mut shown = self.canvas.ephemeral();
        let mut stopping = self.app.stopping.clone();
        let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
        tokio::pin!(stopped);
        let mut sent = self.greet(out, resume).await?;
        let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        let mut unanswered = 0;
        let mut allowance = Allowance::full();
        if let Some(frame) = self.held.take() {
            self.take(frame, out, &mut allowance).await?;
        }
        loop {
            tokio::select! {
                changed = head.changed() => {
                    changed.map_err(|_| Closing::because(4410, "terminated"))?;
                    sent = self.deltas(out, sent, false).await?;
                }
                frame = next(stream) => match frame? {
                    None => return Ok(()),
                    Some(frame) => {
                        unanswered = 0;
                        self.take(frame, out, &mut allowance).await?;
                    }
                },
                frame = shown.recv() => match frame {
                    Ok(frame) => out.hint(frame),
                    // Ephemeral frames may be missed; the next checkpoint brings their text.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return Err(Closing::because(4410, "terminated")),
                },
                _ = pings.tick() => {
                    if !self.app.tokens.knows(&self.principal) {
                        return Err(Closing::because(4401, "unauthorized"));
                    }
                    unanswered += 1;
                    if unanswered > 2 {
                        return Err(Closing::because(SLOW, "no_pong"));
                    }
                    let _ = out.frames.try_send(Outgoing::Ping);
                }
                () = &mut stopped => {
                    return Err(Closing { code: 1012, reason: "restart", last: Some(json!({"t": "bye", "retry_after_ms": 500})) });
                }
            }
        }
    }

    /// `hello`, then the snapshot or the replay, then `live`; answers the revision that was sent.
    async fn greet(&self, out: &Out, resume: Option<Resume>) -> Result<u64, Closing> {
        let snapshot = self.canvas.snapshot();
        let resumable = resume.as_ref().filter(|resume| resume.epoch == snapshot.epoch && resume.rev <= snapshot.rev);
        let mode = if resumable.is_some() { "resume" } else { "snapshot" };
        let replay = resumable.map_or(0, |resume| snapshot.rev - resume.rev);
        let hello = json!({"t": "hello", "v": 1, "session": uuid::Uuid::new_v4(), "canvas": self.canvas.id, "type": "chat", "schema_ver": 1, "epoch": snapshot.epoch, "rev": snapshot.rev, "mode": mode, "replay": replay,
            "you": self.principal.id, "limits": {"frame": FRAME_BYTES_MAX, "queue": QUEUE_BYTES, "ops_per_s": OPS_PER_S}, "ping_s": PING_EVERY.as_secs()});
        out.put(hello.to_string().into()).await?;
        let sent = match (resumable, &resume) {
            (Some(resume), _) => self.deltas(out, resume.rev, true).await?,
            (None, asked) => {
                if let Some(asked) = asked {
                    let reason = if asked.epoch == snapshot.epoch { "ahead_of_log" } else { "epoch_changed" };
                    out.put(
                        json!({"t": "reset", "reason": reason, "epoch": snapshot.epoch, "rev": snapshot.rev})
                            .to_string()
                            .into(),
                    )
                    .await?;
                }
                out.put(json!({"t": "snapshot", "epoch": snapshot.epoch, "rev": snapshot.rev, "part": 1, "parts": 1, "state": snapshot.state}).to_string().into()).await?;
                snapshot.rev
            }
        };
        out.put(json!({"t": "live", "rev": sent}).to_string().into()).await?;
        Ok(sent)
    }

    /// Sends every delta after `sent`; answers the revision that was sent last.
    async fn deltas(&self, out: &Out, mut sent: u64, replaying: bool) -> Result<u64, Closing> {
        loop {
            let frames = match self.canvas.frames(sent).await {
                Ok(Frames::Deltas(frames)) => frames,
                Ok(Frames::Reset) => return Err(Closing::because(4409, "epoch")),
                Err(_) => return Err(Closing::because(1011, "store")),
            };
            let Some((last, _)) = frames.last() else { return Ok(sent) };
            sent = *last;
            for (_, frame) in frames {
                if replaying {
                    out.put(frame).await?;
                } else {
                    out.push(frame)?;
                }
            }
        }
    }

    async fn take(&self, frame: FromClient, out: &Out, allowance: &mut Allowance) -> Result<(), Closing> {
        match frame {
            FromClient::Hello { .. } => Err(Closing::because(1002, "hello_twice")),
            FromClient::Ack {} => Ok(()),
            FromClient::Ping { n } => {
                out.hint(json!({"t": "pong", "n": n, "rev": self.canvas.snapshot().rev}).to_string().into());
                Ok(())
            }
            FromClient::Op { .. } if !self.app.tokens.knows(&self.principal) => {
                Err(Closing::because(4401, "unauthorized"))
            }
            FromClient::Op { cid, base_rev, op } => {
                let answer = if !allowance.take() {
                    json!({"t": "reject", "cid": cid, "code": "rate", "message": format!("more than {OPS_PER_S} ops a second"), "rev": self.canvas.snapshot().rev})
                } else if !(self.principal.may(Role::Participant) || self.principal.may(Role::Lifeform)) {
                    json!({"t": "reject", "cid": cid, "code": "forbidden", "message": "this token may only look", "rev": self.canvas.snapshot().rev})
                } else {
                    let origin = Origin::new(self.principal.clone(), Cause::of(format!("ws:{}", self.canvas.id)));
                    match self.canvas.apply(op, Some(cid.clone()), base_rev, &origin).await {
                        Ok(Applied { rev, dup }) => json!({"t": "acked", "cid": cid, "rev": rev, "dup": dup}),
                        Err(error) => {
                            let error = ApiError::from(error);
                            json!({"t": "reject", "cid": cid, "code": error.code(), "message": error.detail(), "rev": self.canvas.snapshot().rev})
                        }
                    }
                };
                out.push(answer.to_string().into())
            }
        }
    }
}

/// Sends what is queued until the queue ends, or at once no more when told so; gives the socket back.
async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut queue: mpsc::Receiver<Outgoing>,
    waiting: Arc<AtomicUsize>,
    mut drop_queue: watch::Receiver<bool>,
) -> SplitSink<WebSocket, Message> {
    let told = async move {
        let _ = drop_queue.wait_for(|told| *told).await;
        // The sender going away without telling is no order to drop anything.
        if drop_queue.has_changed().is_err() && !*drop_queue.borrow() {
            std::future::pending::<()>().await;
        }
    };
    tokio::pin!(told);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = &mut told => return sink,
            count = queue.recv_many(&mut batch, 64) => {
                if count == 0 {
                    return sink;
                }
            }
        }
        let sending = async {
            for frame in batch.drain(..) {
                match frame {
                    Outgoing::Ping => sink.feed(Message::Ping(bytes::Bytes::new())).await?,
                    Outgoing::Text(text) => {
                        waiting.fetch_sub(text.len(), Ordering::Relaxed);
                        sink.feed(Message::text(&*text)).await?;
                    }
                }
            }
            sink.flush().await
        };
        tokio::select! {
            () = &mut told => return sink,
            sent = sending => if sent.is_err() {
                return sink;
            },
        }
    }
}

/// How many ops may still be sent: refilled by time, never above one second's worth.
struct Allowance {
    left: f64,
    at: Instant,
}

impl Allowance {
    fn full() -> Self {
        Self { left: f64::from(OPS_PER_S), at: Instant::now() }
    }

    fn take(&mut self) -> bool {
        let now = Instant::now();
        self.left =
            (self.left + now.duration_since(self.at).as_secs_f64() * f64::from(OPS_PER_S)).min(f64::from(OPS_PER_S));
        self.at = now;
        let may = self.left >= 1.0;
        self.left -= f64::from(u8::from(may));
        may
    }
}
