//! The session of one subscriber: the greeting, the replay, then frames as they come, and the subscriber's own ops.

mod catching_up;

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::extract::ws::{Utf8Bytes, WebSocket};
use bytes::Bytes;
use futures::future::{poll_fn, ready};
use futures::stream::{BoxStream, FuturesOrdered, SelectAll, once, select_all};
use futures::{FutureExt, StreamExt};
use lifeform::canvas::{Applied, Shown, Snapshot, What};
use lifeform::{Canvas, CanvasId, LifeformError, LifeformId};
use serde_json::{Value, json};
use store::{Cause, Origin, Place, Role};
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

/// The longest time for a socket without credentials to send them.
const HELLO_MAX: Duration = Duration::from_secs(5);
/// The wait for the `hello` of a socket with credentials, before it counts as a listener.
const HELLO_GRACE: Duration = Duration::from_millis(500);
/// The interval of pings; two without an answer close the socket.
const PING_EVERY: Duration = Duration::from_secs(20);
/// The longest time to receive one page of a replay.
const REPLAY_MAX: Duration = Duration::from_secs(30);
/// Bytes up to which a frame needs no place.
const LARGE_BYTES: usize = 256 << 10;
/// Ops of one socket that may be on their way; past it no more are read.
const OPS_UNDER_WAY: usize = 64;

/// Serves a socket until either side ends it.
pub(super) async fn serve(
    app: App,
    id: LifeformId,
    name: CanvasId,
    mut admitted: Option<Admitted>,
    mut socket: WebSocket,
) {
    let mut first = None;
    // Who has shown no token yet waits in a place of its own, so that it keeps nobody out who has one.
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
    admitted = admitted.or_else(|| app.tokens.admit(&token?));
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
    // Whoever looks at it wakes it.
    app.lifeforms.visit(&id);
    Session::new(app, canvas, admitted, hello, socket).run(held).await;
}

/// Returns the refusal of a malformed `hello`.
fn refuse(hello: &Hello) -> Option<Closing> {
    if hello.v != 1 {
        return Some(Closing::because(1002, "version"));
    }
    (hello.paths.len() > PATHS_MAX).then(|| Closing::because(4413, "too_many_paths"))
}

/// The outcome of a turn of a socket and its outbox.
enum Turn {
    /// All that waited is sent.
    Sent,
    /// A frame came.
    Came(FromClient),
    /// The client is gone.
    Gone,
}

/// Sends what waits, and reads meanwhile if it is to.
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
    /// Something is shown that need not last.
    Shown(Shown),
    /// Nothing is shown here any more: the canvas ended.
    Ended,
    /// A ping is due.
    Ping,
    /// The daemon stops.
    Stopping,
}

/// The answer to an op that is on its way.
type Answer = (Arc<str>, Result<Applied, LifeformError>);
type Pending = FuturesOrdered<futures::future::BoxFuture<'static, Answer>>;

/// A frame that all who are sent it share.
fn text(frame: &Bytes) -> Utf8Bytes {
    // It is text, so this is never the empty one.
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
    /// `true` if it has shown its presence.
    present: bool,
    /// The place of the largest frame that it was sent, and the bytes of that.
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
            // What waits for anybody else is sent first.
            let _ = timeout(super::FAREWELL_MAX, self.outbox.send(&mut self.socket)).await;
        }
        let Snapshot { epoch, rev, .. } = self.canvas.snapshot();
        let lagged = json!({"t": "reset", "reason": "lagged", "epoch": epoch, "rev": rev});
        let last = if slow { Some(lagged) } else { closing.last };
        drop((self.canvas, self.outbox));
        close(self.socket, Closing { last, ..closing }).await;
    }

    async fn converse(&mut self, held: Option<FromClient>) -> Result<(), Closing> {
        // Watching begins before reading: no op can fall between the replay and what follows.
        let mut head = self.canvas.watch();
        let mut besides = self.besides();
        // Nobody waits for one that is being greeted.
        let mut held_up = Some(self.canvas.hold_up());
        let mut sent = self.greet().await?;
        // Kept, and set when it is needed: most often all that waits is taken at once.
        let patience = sleep_until(self.outbox.patience_ends());
        tokio::pin!(patience);
        let mut unanswered = 0;
        if let Some(frame) = held {
            self.take(frame)?;
        }
        let mut behind = true;
        loop {
            // What happened is read as the socket takes it: who is slow is behind, and holds nothing up.
            let was_behind = behind;
            while behind && self.outbox.has_room() {
                let told = *head.borrow_and_update();
                while sent < told && self.outbox.has_room() {
                    sent = self.page_of(sent, told).await?;
                }
                // What goes out without waiting goes out now, several pages at once.
                self.outbox.send(&mut self.socket).now_or_never().transpose()?;
                behind = sent < told;
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
                    // It may have taken some of it meanwhile.
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
                    let answer = self.told(&cid, answer);
                    self.outbox.push(answer.to_string().into())?;
                }
                Some(besides) = besides.next() => match besides {
                    Besides::Shown(frame) => self.show(&frame),
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

    /// Returns the events besides ops, as one stream, so that an op wakes none of their sources.
    fn besides(&self) -> SelectAll<BoxStream<'static, Besides>> {
        // Ephemeral frames may be missed; the next checkpoint brings their text.
        let shown = BroadcastStream::new(self.canvas.ephemeral()).filter_map(|shown| ready(shown.ok()));
        let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        // Of those that were due while it was greeted one is sent.
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = self.app.stopping.clone();
        let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
        select_all([
            shown.map(Besides::Shown).chain(once(ready(Besides::Ended))).boxed(),
            IntervalStream::new(pings).map(|_| Besides::Ping).boxed(),
            once(stopped).map(|()| Besides::Stopping).boxed(),
        ])
    }

    /// Sends a frame and waits until it is received: while replaying, the subscriber sets the pace.
    async fn put(&mut self, frame: Utf8Bytes) -> Result<(), Closing> {
        self.outbox.push(frame)?;
        timeout(REPLAY_MAX, self.outbox.send(&mut self.socket)).await.map_err(|_| Closing::slow())?
    }

    async fn put_json(&mut self, frame: Value) -> Result<(), Closing> {
        self.put(frame.to_string().into()).await
    }

    /// Passes on what need not last.
    fn show(&mut self, shown: &Shown) {
        let (wanted, seen) = match shown {
            Shown::Stream { path, .. } => (self.wants[0], self.view.sees(path)),
            Shown::Presence { .. } => (self.wants[1], true),
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
                let noted = self.canvas.be_present(
                    &self.admitted.principal().id,
                    self.id.as_u128(),
                    &state,
                    Duration::from_secs(ttl),
                );
                self.present |= noted.is_ok();
                if let Err(refusal) = noted {
                    let refused = self.told(&"presence".into(), Err(LifeformError::Refused(refusal)));
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

    /// Hands an op to the canvas: what one socket sends is done in that order.
    fn submit(
        &self,
        cid: &Arc<str>,
        base: Option<u64>,
        op: Value,
    ) -> Result<oneshot::Receiver<Result<Applied, LifeformError>>, LifeformError> {
        use lifeform::Refusal;
        let principal = self.admitted.principal();
        if !(principal.may(Role::Participant) || principal.may(Role::Lifeform)) {
            return Err(LifeformError::Refused(Refusal::Forbidden("this token may only look".into())));
        }
        if cid.is_empty() || cid.len() > 255 {
            return Err(LifeformError::Refused(Refusal::schema("cid", "1 to 255 characters")));
        }
        let op = self.canvas.kind.read(op).map_err(LifeformError::Refused)?;
        let origin = Origin::new(principal.clone(), Cause::of(format!("ws:{}", self.canvas.id)));
        self.canvas.submit(What::Ops(vec![op]), Some(cid.clone()), base, &origin)
    }

    fn told(&self, cid: &Arc<str>, answer: Result<Applied, LifeformError>) -> Value {
        match answer {
            Ok(Applied { rev, dup, .. }) => json!({"t": "acked", "cid": cid, "rev": rev, "dup": dup}),
            Err(error) => {
                let error = ApiError::from(error);
                let mut told = json!({
                    "t": "reject",
                    "cid": cid,
                    "code": error.code(),
                    "message": error.detail(),
                    "rev": self.canvas.rev(),
                });
                if let Some(path) = error.path() {
                    told["path"] = json!(path);
                }
                told
            }
        }
    }
}
