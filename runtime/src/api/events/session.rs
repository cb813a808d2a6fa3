//! One socket of events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures::StreamExt;
use lifeform::LifeformId;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};

use super::hub::{Event, Read};
use super::rights::Rights;
use crate::api::App;
use crate::tokens::Admitted;

/// The longest wait for the `hello` of the client.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// The minimum time between two frames: what happens meanwhile goes into the next one.
const BETWEEN_FRAMES: Duration = Duration::from_millis(80);
/// The number of events that may wait for a frame before they are counted instead.
const WAITING_MAX: usize = 1_000;
/// The maximum number of events that one frame counts.
const COUNTED_MAX: usize = 20_000;
/// The longest time for a subscriber to receive a frame.
const SEND_MAX: Duration = Duration::from_secs(20);
/// The interval of pings on a quiet socket.
const PING_EVERY: Duration = Duration::from_secs(20);

/// The first frame of a client.
#[derive(Deserialize)]
#[serde(tag = "t", rename_all = "snake_case", deny_unknown_fields)]
enum FromClient {
    Hello {
        /// The version of the protocol.
        v: u32,
        /// The last event that the client has seen.
        #[serde(default)]
        resume: Option<Resume>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resume {
    epoch: String,
    n: u64,
}

/// A reason to close the socket.
type Closing = (u16, &'static str);

/// Serves a socket until either side closes it.
pub(super) async fn serve(app: App, lifeform: Option<LifeformId>, admitted: Admitted, mut socket: WebSocket) {
    let closing = match timeout(HELLO_MAX, hello(&mut socket)).await {
        Ok(Ok(Some(resume))) => Session::new(app, lifeform, admitted, resume, &mut socket).run().await,
        Ok(Ok(None)) => return,
        Ok(Err(closing)) => Some(closing),
        Err(_) => Some((1002, "no_hello")),
    };
    if let Some((code, reason)) = closing {
        let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        let _ = timeout(Duration::from_secs(2), socket.send(close)).await;
    }
}

/// Returns what the client asks for in its `hello`; `None` if it is gone.
async fn hello(socket: &mut WebSocket) -> Result<Option<Option<Resume>>, Closing> {
    loop {
        match socket.recv().await {
            Some(Err(error)) if is_too_large(&error) => return Err(TOO_LARGE),
            None | Some(Err(_) | Ok(Message::Close(_))) => return Ok(None),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(frame)) => return read(&frame).map(Some),
        }
    }
}

/// The close of a socket whose client sent a frame beyond the bound.
const TOO_LARGE: Closing = (4413, "too_large");

/// Returns `true` for the error of a frame beyond the bound. The library has no other sign of it.
fn is_too_large(error: &axum::Error) -> bool {
    let text = error.to_string();
    text.contains("too large") || text.contains("too long")
}

fn read(frame: &Message) -> Result<Option<Resume>, Closing> {
    match frame {
        Message::Text(text) => match serde_json::from_str(text) {
            Ok(FromClient::Hello { v: 1, resume }) => Ok(resume),
            Ok(FromClient::Hello { .. }) => Err((1002, "version")),
            Err(_) => Err((1007, "invalid")),
        },
        Message::Binary(_) => Err((1003, "text_frames_only")),
        _ => Ok(None),
    }
}

struct Session<'s> {
    app: App,
    lifeform: Option<LifeformId>,
    admitted: Admitted,
    rights: Rights,
    /// The number of the last event that was sent or passed over.
    seen: u64,
    /// The number of the last event of which the client learned: events that it may not see are passed over in silence.
    told: u64,
    /// `true` if the client resumes a sequence of numbers that ended.
    is_other_epoch: bool,
    socket: &'s mut WebSocket,
}

impl<'s> Session<'s> {
    fn new(
        app: App,
        lifeform: Option<LifeformId>,
        admitted: Admitted,
        resume: Option<Resume>,
        socket: &'s mut WebSocket,
    ) -> Self {
        let newest = *app.events.newest().borrow();
        let is_other_epoch =
            resume.as_ref().is_some_and(|resume| resume.epoch != app.events.epoch() || resume.n > newest);
        let seen = resume.filter(|_| !is_other_epoch).map_or(newest, |resume| resume.n);
        let rights = Rights::of(app.clone(), admitted.principal().clone());
        Self { app, lifeform, admitted, rights, seen, told: seen, is_other_epoch, socket }
    }

    /// Sends events until either side closes the socket. Returns the reason if this side does.
    async fn run(mut self) -> Option<Closing> {
        let mut newest = self.app.events.newest();
        newest.mark_changed();
        let hello = json!({"t": "hello", "v": 1, "epoch": self.app.events.epoch(), "n": *newest.borrow()});
        if let Err(closing) = self.send(hello.to_string()).await {
            return closing;
        }
        if self.is_other_epoch
            && let Err(closing) =
                self.send(json!({"t": "reset", "n": self.seen, "skipped": Value::Null}).to_string()).await
        {
            return closing;
        }
        let mut stopping = self.app.stopping.clone();
        let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
        tokio::pin!(stopped);
        let mut pings = tokio::time::interval(PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        let (mut not_before, mut has_answered) = (Instant::now(), true);
        loop {
            let sent = tokio::select! {
                // A revocation does not wait behind what happens.
                biased;
                () = &mut stopped => return Some((1012, "restart")),
                () = self.admitted.changed() => {
                    if !self.admitted.renew() {
                        return Some((4401, "unauthorized"));
                    }
                    self.rights.renew(self.admitted.principal().clone());
                    continue;
                }
                frame = self.socket.next() => match frame {
                    Some(Err(error)) if is_too_large(&error) => return Some(TOO_LARGE),
                    None | Some(Err(_) | Ok(Message::Close(_))) => return None,
                    Some(Ok(Message::Pong(_))) => {
                        has_answered = true;
                        continue;
                    }
                    Some(Ok(Message::Ping(_))) => continue,
                    Some(Ok(_)) => return Some((1007, "one_hello_only")),
                },
                _ = pings.tick() => {
                    if !std::mem::replace(&mut has_answered, false) {
                        return Some((4408, "silent"));
                    }
                    self.sent(Message::Ping(Default::default())).await
                }
                changed = async { sleep_until(not_before).await; newest.changed().await } => {
                    if changed.is_err() {
                        return Some((1012, "restart"));
                    }
                    not_before = Instant::now() + BETWEEN_FRAMES;
                    match self.send_events().await {
                        Ok(is_all) => {
                            if !is_all {
                                newest.mark_changed();
                            }
                            Ok(())
                        }
                        Err(closing) => Err(closing),
                    }
                }
            };
            if let Err(closing) = sent {
                return closing;
            }
        }
    }

    /// Sends the next events in one frame. Returns `true` if no more wait.
    async fn send_events(&mut self) -> Result<bool, Option<Closing>> {
        let Read { events, skipped } = self.app.events.after(self.seen, COUNTED_MAX);
        if skipped > 0 {
            (self.seen, self.told) = (self.seen + skipped, self.seen + skipped);
            self.send(json!({"t": "reset", "n": self.seen, "skipped": skipped}).to_string()).await?;
        }
        let Some(last) = events.last().map(|event| event.n) else { return Ok(true) };
        if events.len() > WAITING_MAX {
            let counts = self.counted(&events).await?;
            self.seen = last;
            if !counts.is_empty() {
                let from = std::mem::replace(&mut self.told, last) + 1;
                self.send(json!({"t": "counts", "from": from, "to": last, "counts": counts}).to_string()).await?;
            }
            return Ok(events.len() < COUNTED_MAX);
        }
        let mut texts: Vec<Arc<str>> = Vec::new();
        for event in &events {
            if self.is_watched(event).await? {
                texts.push(event.text(&self.app).await.clone());
            }
        }
        self.seen = last;
        if !texts.is_empty() {
            let from = std::mem::replace(&mut self.told, last) + 1;
            let events = texts.join(",");
            self.send(format!(r#"{{"t":"events","from":{from},"to":{last},"events":[{events}]}}"#)).await?;
        }
        Ok(true)
    }

    async fn is_watched(&mut self, event: &Event) -> Result<bool, Option<Closing>> {
        let is_of = self.lifeform.as_deref().is_none_or(|lifeform| event.owner.lifeform() == Some(lifeform));
        // An event whose rights are not known is not passed over: the client resumes.
        Ok(is_of && self.rights.may_see(&event.owner).await.map_err(|_| Some((1011, "store")))?)
    }

    /// Returns how many events of each kind there were.
    async fn counted(&mut self, events: &[Arc<Event>]) -> Result<Vec<Value>, Option<Closing>> {
        let mut counts: BTreeMap<[String; 4], usize> = BTreeMap::new();
        for event in events {
            if !self.is_watched(event).await? {
                continue;
            }
            let shown: Value = serde_json::from_str(event.text(&self.app).await).unwrap_or_default();
            let of = ["lifeform", "fascicle", "step", "kind"].map(|member| match &shown[member] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            });
            *counts.entry(of).or_default() += 1;
        }
        let line = |([lifeform, fascicle, step, kind], count): ([String; 4], usize)| {
            let mut line = json!({"kind": kind, "count": count});
            for (member, value) in [("lifeform", lifeform), ("fascicle", fascicle), ("step", step)] {
                if !value.is_empty() {
                    line[member] = value.into();
                }
            }
            line
        };
        Ok(counts.into_iter().map(line).collect())
    }

    async fn send(&mut self, text: String) -> Result<(), Option<Closing>> {
        self.sent(Message::text(text)).await
    }

    /// Sends a frame. The error is the reason to close, if the client is still there.
    async fn sent(&mut self, frame: Message) -> Result<(), Option<Closing>> {
        match timeout(SEND_MAX, self.socket.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(None),
            Err(_) => Err(Some((4408, "slow"))),
        }
    }
}
