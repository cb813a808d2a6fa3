//! The session of one subscriber: the greeting, the replay, then live frames, and the subscriber's own ops.

mod catching_up;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::ws::{Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::future::{poll_fn, ready};
use futures::stream::{BoxStream, FuturesOrdered, SelectAll, once, select_all};
use futures::{FutureExt, StreamExt};
use lifeform::canvas::{Applied, EphemeralFrame, Snapshot, WriteRequest};
use lifeform::{Canvas, CanvasId, LifeformError, LifeformId, Refusal};
use serde_json::{Value, json};
use store::{Cause, Origin, Place, Principal, Role};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tokio_stream::wrappers::{BroadcastStream, IntervalStream};

use super::client::{Ephemeral, FromClient, Hello, Resume, next, poll_next};
use super::outbox::Outbox;
use super::view::{PATHS_MAX, View};
use super::{Closing, SLOW, close};
use crate::api::App;
use crate::api::error::ApiError;
use crate::tokens::Admitted;

/// The time limit for credentials on a socket that was opened without them.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// The wait for the `hello` of an authenticated socket. Without it, the socket is served from the start.
const HELLO_GRACE: Duration = Duration::from_millis(500);
/// The interval of pings; two without an answer close the socket.
const PING_EVERY: Duration = Duration::from_secs(20);
/// The time limit for one page of a replay.
const REPLAY_MAX: Duration = Duration::from_secs(30);
/// The size up to which a frame needs no permit, in bytes.
const LARGE_BYTES: usize = 256 << 10;
/// The maximum number of pending ops of one socket. At this limit, the session stops reading.
const OPS_UNDER_WAY: usize = 64;

/// Serves a socket until either side closes it.
pub(super) async fn serve(
    app: App,
    id: LifeformId,
    name: CanvasId,
    mut admitted: Option<Admitted>,
    mut socket: WebSocket,
) {
    let mut first = None;
    // Sockets without a token have their own permits, so that they do not displace authenticated ones.
    let greeting = if admitted.is_none() { app.greetings.clone().try_acquire_owned().ok() } else { None };
    if admitted.is_none() && greeting.is_none() {
        return close(socket, Closing::because(4429, "too_many_sockets")).await;
    }
    let wait = if admitted.is_some() { HELLO_GRACE } else { HELLO_MAX };
    match timeout(wait, next(&mut socket)).await {
        Ok(Ok(Some(frame))) => first = Some(frame),
        Ok(Ok(None)) => return,
        Ok(Err(closing)) => return close(socket, closing).await,
        Err(_) => {}
    }
    let (hello, held) = match first {
        Some(FromClient::Hello(hello)) => (Some(*hello), None),
        other => (None, other),
    };
    let token = hello.as_ref().and_then(|hello| hello.token.clone());
    // The token in the hello counts before the one in a header.
    admitted = if let Some(token) = token { app.tokens.admit(&token) } else { admitted };
    drop(greeting);
    let Some(admitted) = admitted else { return close(socket, Closing::because(4401, "unauthorized")).await };
    let _place = match super::place(&app, admitted.principal()) {
        Ok(place) => place,
        Err(full) => return close(socket, Closing::because(4429, full)).await,
    };
    if let Some(refused) = hello.as_ref().and_then(refuse) {
        return close(socket, refused).await;
    }
    let Ok(canvas) = app.lifeforms.named_canvas(&id, &name).await else {
        return close(socket, Closing::because(4404, "not_found")).await;
    };
    // A visit wakes the lifeform.
    app.lifeforms.visit(&id);
    Session::new(app, canvas, admitted, hello, socket).run(held).await;
}

/// The refusal of an act by an observer.
const ONLY_LOOKS: &str = "this token may only look";

/// Returns `true` if a principal may write ops and be present.
fn may_act(who: &Principal) -> bool {
    who.may(Role::Participant) || who.may(Role::Lifeform)
}

/// Returns the refusal of a malformed `hello`.
fn refuse(hello: &Hello) -> Option<Closing> {
    if hello.v != 1 {
        return Some(Closing::because(1002, "version"));
    }
    // RFC 6901 §3.
    if hello.paths.iter().any(|path| !path.is_empty() && !path.starts_with('/')) {
        return Some(Closing::because(1007, "a_path_is_no_json_pointer"));
    }
    (hello.paths.len() > PATHS_MAX).then(|| Closing::because(4413, "too_many_paths"))
}

/// The outcome of one send and receive step of a socket.
enum Turn {
    /// All queued frames are sent.
    Sent,
    /// A frame arrived from the client.
    Came(FromClient),
    /// The client is gone.
    Gone,
}

/// Sends the queued frames, and reads at the same time if `reads` is `true`.
async fn turn(socket: &mut WebSocket, outbox: &mut Outbox, reads: bool) -> Result<Turn, Closing> {
    poll_fn(|context| {
        if outbox.is_due()
            && let Poll::Ready(sent) = outbox.poll_send(context, socket)
        {
            return Poll::Ready(sent.map(|()| Turn::Sent));
        }
        if !reads {
            return Poll::Pending;
        }
        poll_next(context, socket).map_ok(|came| came.map_or(Turn::Gone, Turn::Came))
    })
    .await
}

/// The events of a socket besides the ops of its canvas.
enum Besides {
    /// An ephemeral frame.
    Ephemeral(EphemeralFrame),
    /// The canvas is closed, so there are no more ephemeral frames.
    Ended,
    /// The next ping is due.
    Ping,
    /// The daemon stops.
    Stopping,
}

/// The outcome of a pending op, with its `cid`.
type Answer = (Arc<str>, Result<Applied, LifeformError>);
type Pending = FuturesOrdered<futures::future::BoxFuture<'static, Answer>>;

/// Converts a frame that several subscribers share to text.
fn text(frame: &Bytes) -> Utf8Bytes {
    // The frame is valid text, so the default is never used.
    Utf8Bytes::try_from(frame.clone()).unwrap_or_default()
}

struct Session {
    id: uuid::Uuid,
    app: App,
    canvas: Canvas,
    admitted: Admitted,
    socket: WebSocket,
    outbox: Outbox,
    view: View,
    resume: Option<Resume>,
    wants: [bool; 2],
    pending: Pending,
    /// `true` if the subscriber has shown its presence.
    present: bool,
    /// The permit of the largest frame sent, and its size in bytes.
    place: Option<Place>,
    held: usize,
}

impl Session {
    fn new(app: App, canvas: Canvas, admitted: Admitted, hello: Option<Hello>, socket: WebSocket) -> Self {
        let (mut resume, mut wants, mut paths, mut max_lag) = (None, [true; 2], Vec::new(), None);
        if let Some(hello) = hello {
            if let Some(want) = hello.want {
                wants = [Ephemeral::Stream, Ephemeral::Presence].map(|kind| want.contains(&kind));
            }
            (resume, paths, max_lag) = (hello.resume, hello.paths, hello.max_lag);
        }
        let (outbox, view) = (Outbox::new(max_lag), View::new(paths));
        let id = uuid::Uuid::new_v4();
        Self {
            id,
            app,
            canvas,
            admitted,
            socket,
            outbox,
            view,
            resume,
            wants,
            pending: Pending::new(),
            present: false,
            place: None,
            held: 0,
        }
    }

    async fn run(mut self, held: Option<FromClient>) {
        let closing = match self.converse(held).await {
            Ok(()) => Closing { code: 1000, reason: "bye", last: None },
            Err(closing) => closing,
        };
        if self.present {
            self.canvas.leave(&self.admitted.principal().id, self.id.as_u128());
        }
        let slow = closing.code == SLOW;
        if slow {
            tracing::info!(principal = %self.admitted.principal().id, canvas = %self.canvas.id, "closing a slow subscriber");
        } else {
            // The frames that are already queued are sent first.
            let _ = timeout(super::FAREWELL_MAX, self.outbox.send(&mut self.socket)).await;
        }
        let Snapshot { epoch, rev, .. } = self.canvas.snapshot();
        let lagged = json!({"t": "reset", "reason": "lagged", "epoch": epoch, "rev": rev});
        let last = if slow { Some(lagged) } else { closing.last };
        drop((self.canvas, self.outbox));
        close(self.socket, Closing { last, ..closing }).await;
    }

    async fn converse(&mut self, held: Option<FromClient>) -> Result<(), Closing> {
        // The watch starts before the first read, so no op can fall between the replay and the live frames.
        let mut head = self.canvas.watch();
        let mut besides = self.besides();
        // Notifications do not wait for a subscriber during its greeting.
        let mut held_up = Some(self.canvas.hold_up());
        let mut sent = self.greet().await?;
        // The timer is reused and set only when needed. Usually the socket takes all queued frames immediately.
        let patience = sleep_until(self.outbox.patience_ends());
        tokio::pin!(patience);
        let mut unanswered = 0;
        if let Some(frame) = held {
            self.take(frame)?;
        }
        let mut behind = true;
        loop {
            // Frames are read at the speed of the socket. A slow subscriber falls behind and delays no other.
            let was_behind = behind;
            while behind && self.outbox.has_room() {
                let newest = *head.borrow_and_update();
                while sent < newest && self.outbox.has_room() {
                    sent = self.page_of(sent, newest).await?;
                }
                // Frames that the socket takes without waiting are sent now, several pages at once.
                self.outbox.send(&mut self.socket).now_or_never().transpose()?;
                behind = sent < newest;
            }
            if was_behind && !behind {
                held_up = None;
                self.canvas.took();
            } else if behind && held_up.is_none() {
                held_up = Some(self.canvas.hold_up());
            }
            if self.outbox.is_due() && patience.deadline() != self.outbox.patience_ends() {
                patience.as_mut().reset(self.outbox.patience_ends());
            }
            tokio::select! {
                () = &mut patience, if self.outbox.is_due() => {
                    // The socket may have taken some frames in the meantime.
                    if self.outbox.patience_ends() <= Instant::now() {
                        return Err(Closing::slow());
                    }
                }
                changed = head.changed(), if !behind => {
                    changed.map_err(|_| Closing::because(4410, "terminated"))?;
                    behind = true;
                }
                turn = turn(&mut self.socket, &mut self.outbox, self.pending.len() < OPS_UNDER_WAY) => match turn? {
                    Turn::Sent => {}
                    Turn::Gone => return Ok(()),
                    Turn::Came(frame) => {
                        unanswered = 0;
                        self.take(frame)?;
                    }
                },
                () = self.admitted.changed() => {
                    if !self.admitted.renew() {
                        return Err(Closing::because(4401, "unauthorized"));
                    }
                }
                Some((cid, answer)) = self.pending.next(), if !self.pending.is_empty() => {
                    let answer = self.answer_frame(&cid, answer);
                    self.outbox.push(answer.to_string().into())?;
                }
                Some(besides) = besides.next() => match besides {
                    Besides::Ephemeral(frame) => self.show(&frame),
                    Besides::Ended => return Err(Closing::because(4410, "terminated")),
                    Besides::Ping => {
                        unanswered += 1;
                        if unanswered > 2 {
                            return Err(Closing::because(SLOW, "no_pong"));
                        }
                        self.outbox.ping();
                    }
                    Besides::Stopping => {
                        let bye = json!({"t": "bye", "retry_after_ms": 500});
                        return Err(Closing { code: 1012, reason: "restart", last: Some(bye) });
                    }
                },
            }
        }
    }

    /// Returns the events besides ops as one stream, so that an op does not poll their sources.
    fn besides(&self) -> SelectAll<BoxStream<'static, Besides>> {
        // Subscribers may miss ephemeral frames. The next checkpoint contains their text.
        let shown = BroadcastStream::new(self.canvas.ephemeral()).filter_map(|shown| ready(shown.ok()));
        let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        // Of the pings that became due during the greeting, only one is sent.
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = self.app.stopping.clone();
        let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
        select_all([
            shown.map(Besides::Ephemeral).chain(once(ready(Besides::Ended))).boxed(),
            IntervalStream::new(pings).map(|_| Besides::Ping).boxed(),
            once(stopped).map(|()| Besides::Stopping).boxed(),
        ])
    }

    /// Sends a frame and waits until the subscriber takes it: during a replay, the subscriber sets the pace.
    async fn put(&mut self, frame: Utf8Bytes) -> Result<(), Closing> {
        self.outbox.push(frame)?;
        timeout(REPLAY_MAX, self.outbox.send(&mut self.socket)).await.map_err(|_| Closing::slow())?
    }

    async fn put_json(&mut self, frame: Value) -> Result<(), Closing> {
        self.put(frame.to_string().into()).await
    }

    /// Queues an ephemeral frame.
    fn show(&mut self, shown: &EphemeralFrame) {
        let (wanted, seen) = match shown {
            EphemeralFrame::Stream { path, .. } => (self.wants[0], self.view.sees(path)),
            EphemeralFrame::Presence { .. } => (self.wants[1], true),
        };
        if wanted && seen {
            self.outbox.hint(shown.text().as_ref().into());
        }
    }

    fn take(&mut self, frame: FromClient) -> Result<(), Closing> {
        match frame {
            FromClient::Hello(_) => Err(Closing::because(1002, "hello_twice")),
            FromClient::Ack {} => Ok(()),
            FromClient::Ping { n } => {
                let pong = json!({"t": "pong", "n": n, "rev": self.canvas.rev()});
                self.outbox.hint(pong.to_string().into());
                Ok(())
            }
            FromClient::Op { .. } | FromClient::Presence { .. } if !self.admitted.renew() => {
                Err(Closing::because(4401, "unauthorized"))
            }
            FromClient::Presence { state, ttl } => {
                let who = self.admitted.principal();
                let noted = match may_act(who) {
                    true => self.canvas.be_present(&who.id, self.id.as_u128(), &state, Duration::from_secs(ttl)),
                    false => Err(Refusal::Forbidden(ONLY_LOOKS.into())),
                };
                self.present |= noted.is_ok();
                if let Err(refusal) = noted {
                    let refused = self.answer_frame(&"presence".into(), Err(LifeformError::Refused(refusal)));
                    self.outbox.push(refused.to_string().into())?;
                }
                Ok(())
            }
            FromClient::Op { cid, base_rev, op } => {
                let answer = self.submit(&cid, base_rev, op);
                let cid_of_answer = cid.clone();
                self.pending.push_back(Box::pin(async move {
                    let answer = match answer {
                        Ok(answer) => answer.await.unwrap_or(Err(LifeformError::Store(store::StoreError::Closed))),
                        Err(refused) => Err(refused),
                    };
                    (cid_of_answer, answer)
                }));
                Ok(())
            }
        }
    }

    /// Submits an op to the canvas. The ops of one socket are applied in order.
    fn submit(
        &self,
        cid: &Arc<str>,
        base: Option<u64>,
        op: Value,
    ) -> Result<oneshot::Receiver<Result<Applied, LifeformError>>, LifeformError> {
        let principal = self.admitted.principal();
        if !may_act(principal) {
            return Err(LifeformError::Refused(Refusal::Forbidden(ONLY_LOOKS.into())));
        }
        if cid.is_empty() || cid.len() > 255 {
            return Err(LifeformError::Refused(Refusal::schema("cid", "1 to 255 characters")));
        }
        let op = self.canvas.kind.read(op).map_err(LifeformError::Refused)?;
        let origin = Origin::new(principal.clone(), Cause::of(format!("ws:{}", self.canvas.id)));
        self.canvas.submit(WriteRequest::Ops(vec![op]), Some(cid.clone()), base, &origin)
    }

    fn answer_frame(&self, cid: &Arc<str>, answer: Result<Applied, LifeformError>) -> Value {
        match answer {
            Ok(Applied { rev, dup, .. }) => json!({"t": "acked", "cid": cid, "rev": rev, "dup": dup}),
            Err(error) => {
                let error = ApiError::from(error);
                let mut frame = json!({
                    "t": "reject",
                    "cid": cid,
                    "code": error.code(),
                    "message": error.detail(),
                    "rev": self.canvas.rev(),
                });
                if let Some(path) = error.path() {
                    frame["path"] = json!(path);
                }
                frame
            }
        }
    }
}
