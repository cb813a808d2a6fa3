//! The events of a job, as server-sent events and over a WebSocket.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use fascicles::run::{Fact, Observed, Status};
use fascicles::{Fascicles, JobHead, JobId};
use futures::stream::{self, Stream};
use futures::{SinkExt, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use store::Follow;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::{After, PING_EVERY, SEND_MAX, SUBPROTOCOL};
use crate::api::error::ApiError;
use crate::api::extract::{ApiPath, ApiQuery, ApiUpgrade, Caller, bearer};
use crate::api::{App, ws};
use crate::tokens::Admitted;

/// An item of a job's event stream.
pub(super) enum JobFrame {
    Observed(Observed),
    Ended(Box<JobHead>),
}

/// Streams the events of a job after a given one: first from the journal, then live until the job ends.
pub(super) fn frames_of(fascicles: Fascicles, id: JobId, after: u64) -> impl Stream<Item = JobFrame> + Send {
    let follow = fascicles.follow(&id);
    stream::unfold(Some((fascicles, id, follow)), move |standing| async move {
        let (fascicles, id, mut follow) = standing?;
        loop {
            let entry = follow.next().await.ok()?;
            match entry.decode::<Fact>().ok()? {
                Fact::Observed(observed) if observed.ordinal() > after => {
                    return Some((JobFrame::Observed(observed), Some((fascicles, id, follow))));
                }
                Fact::Ended { .. } if is_last(&mut follow, &fascicles, &id).await => {
                    let head = fascicles.job(&id).await.ok()?;
                    return Some((JobFrame::Ended(Box::new(head)), None));
                }
                _ => {}
            }
        }
    })
}

/// Returns `true` if the end of the job is final. A failed job may have been resumed.
pub(super) async fn is_last(follow: &mut Follow, fascicles: &Fascicles, id: &JobId) -> bool {
    let final_now = fascicles.job(id).await.is_ok_and(|head| head.status.is_final());
    final_now && follow.is_at_end().await
}

pub(super) fn ended(head: &JobHead) -> Value {
    json!({"job_id": head.id, "status": head.status, "output": head.output, "error": head.error})
}

/// The events of a job so far.
#[derive(Serialize, ToSchema)]
pub(crate) struct JobEvents {
    /// The events in order.
    events: Vec<Observed>,
    /// The status of the job.
    status: Status,
}

/// Returns the events of a job as a page or stream.
///
/// With `Accept: text/event-stream`, the stream consists of `new_observable_event`, continues with the job, and ends
/// with `job_ended`. `Last-Event-ID` resumes it.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/events",
    params(("id" = String, Path), After),
    responses(
        (
            status = 200,
            description = "the events, or server-sent events",
            content(
                (JobEvents = "application/json"),
                (String = "text/event-stream"),
            ),
        ),
        (status = 404, description = "there is none of yours"),
    ),
)]
pub(crate) async fn events(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(mut after): ApiQuery<After>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if let Some(last) = headers.get("last-event-id").and_then(|value| value.to_str().ok()) {
        after.after = Some(last.to_owned());
    }
    let after = after.ordinal()?;
    let head = app.fascicles.job_of(&origin.principal, &id).await?;
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepted.contains("text/event-stream") {
        let mut events = app.fascicles.observed(&id).await?;
        events.retain(|event| event.ordinal() > after);
        return Ok(Json(JobEvents { events, status: head.status }).into_response());
    }
    let mut stopping = app.stopping.clone();
    let admitted = bearer(&headers).and_then(|token| app.tokens.admit(token));
    let over = {
        let (fascicles, id) = (app.fascicles.clone(), id.clone());
        async move {
            let Some(mut admitted) = admitted else { return };
            loop {
                tokio::select! {
                    () = async { drop(stopping.wait_for(|stop| *stop).await) } => return,
                    () = admitted.changed() => {
                        if !admitted.renew() || fascicles.job_of(admitted.principal(), &id).await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
    };
    let frames = frames_of(app.fascicles.clone(), id, after).take_until(Box::pin(over)).map(|event| {
        Ok::<_, Infallible>(match event {
            JobFrame::Observed(observed) => {
                Frame::default().id(observed.id.clone()).event("new_observable_event").data(json!(observed).to_string())
            }
            JobFrame::Ended(head) => Frame::default().event("job_ended").data(ended(&head).to_string()),
        })
    });
    Ok(Sse::new(frames).keep_alive(KeepAlive::default()).into_response())
}

/// Opens a WebSocket with the events of a job.
///
/// The path is `/v1/jobs/{id}/subscribe?after=`. Each observable event is sent as `{event_type: "new_observable_event",
/// payload}`, from the start or after an event. The last one is `{event_type: "job_ended", payload}`. The token comes
/// in a header or a subprotocol.
#[utoipa::path(
    get, path = "/v1/jobs/{id}/subscribe",
    params(("id" = String, Path), After),
    responses(
        (status = 101, description = "the socket"),
        (status = 400, description = "not a WebSocket"),
        (status = 404, description = "there is no such job"),
        (status = 426, description = "not a WebSocket"),
        (status = 429, description = "too many sockets are open"),
    ),
)]
pub(crate) async fn subscribe(
    State(app): State<App>,
    ApiPath(id): ApiPath<JobId>,
    ApiQuery(after): ApiQuery<After>,
    headers: HeaderMap,
    ApiUpgrade(upgrade): ApiUpgrade,
) -> Result<Response, ApiError> {
    let admitted = ws::caller(&app, &headers)?;
    let after = after.ordinal()?;
    app.fascicles.job_of(admitted.principal(), &id).await?;
    let place = ws::place_or_refusal(&app, admitted.principal())?;
    let upgrade = upgrade
        .protocols(ws::offered(&headers, SUBPROTOCOL))
        .max_message_size(4096)
        .read_buffer_size(4096)
        .write_buffer_size(4096);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let _place = place;
        serve(app, id, after, admitted, socket).await;
    }))
}

pub(super) async fn serve(app: App, id: JobId, after: u64, mut admitted: Admitted, socket: WebSocket) {
    let (mut out, mut inbox) = socket.split();
    let mut events = Box::pin(frames_of(app.fascicles.clone(), id.clone(), after));
    let mut stopping = app.stopping.clone();
    let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
    tokio::pin!(stopped);
    let mut pings = tokio::time::interval(PING_EVERY);
    pings.reset();
    // Events that a subscriber has not received yet stay in the journal, not in memory.
    let closing = loop {
        let frame = tokio::select! {
            next = events.next() => match next {
                Some(JobFrame::Observed(observed)) => {
                    Message::text(json!({"event_type": "new_observable_event", "payload": observed}).to_string())
                }
                Some(JobFrame::Ended(head)) => {
                    let last = Message::text(json!({"event_type": "job_ended", "payload": ended(&head)}).to_string());
                    let _ = timeout(SEND_MAX, out.send(last)).await;
                    break (1000, "ended");
                }
                None => break (1012, "restart"),
            },
            frame = inbox.next() => match frame {
                None | Some(Err(_) | Ok(Message::Close(_))) => return,
                Some(Ok(_)) => continue,
            },
            _ = pings.tick() => Message::Ping(Default::default()),
            () = admitted.changed() => {
                if !admitted.renew() || app.fascicles.job_of(admitted.principal(), &id).await.is_err() {
                    break (4401, "unauthorized");
                }
                continue;
            }
            () = &mut stopped => break (1012, "restart"),
        };
        match timeout(SEND_MAX, out.send(frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => break (4408, "slow"),
        }
    };
    let (code, reason) = closing;
    let close = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let _ = timeout(Duration::from_secs(2), out.send(close)).await;
}
