//! The events of lifeforms and jobs, as they happen: `WS /v1/events`, and those that happened shortly before,
//! `GET /v1/lifeforms/{id}/events`.
//!
//! An event stands for one entry of a journal: of a canvas, a job, an invocation, an account, its calls, a mind or a lifeform. It
//! says where to read on, and never what people or models wrote. The rights are those of the routes of these journals; see
//! [`rights`].

mod hub;
mod rights;
mod session;
mod shown;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use lifeform::LifeformId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::error::ApiError;
use super::extract::{ApiPath, ApiQuery, ApiUpgrade, Caller};
use super::paging::Limit;
use super::{App, ws};
pub(super) use hub::Hub;
use rights::Rights;

/// The path of the socket.
pub(super) const PATH: &str = "/v1/events";
/// The name of the WebSocket subprotocol.
const SUBPROTOCOL: &str = "ailf.events.v1";
/// The maximum size of a frame from a client, in bytes.
const FRAME_BYTES_MAX: usize = 4096;

/// The events that a socket asks for.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Watched {
    /// The lifeform; without it, all lifeforms and jobs that the caller may see.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    lifeform: Option<LifeformId>,
}

/// Opens a WebSocket with what happens (subprotocol `ailf.events.v1`).
///
/// Frames are JSON texts. The client begins with `{"t": "hello", "v": 1, "resume"?: {"epoch", "n"}}`; without `resume`, the events
/// begin now. The server answers `{"t": "hello", "v": 1, "epoch", "n"}` with the number of the newest event,
/// then sends `{"t": "events", "from", "to", "events": [{n, ref, at, by, cause, kind, lifeform?, job?, fascicle?, step?, what}]}`:
/// every event that the caller may see, once, in order, and within about 100 ms. Of more than 1,000 that wait,
/// `{"t": "counts", "from", "to", "counts": [{lifeform?, fascicle?, step?, kind, count}]}` says how many there were.
/// `{"t": "reset", "n", "skipped"}` says that events before `n` are not kept any more: the client reads the state of what it shows
/// once more. The token comes in a header or in the subprotocol `bearer.<token>`.
///
/// Close codes: 1000 the client closed the socket, 1002 wrong version or no hello within ten seconds, 1003 binary frame, 1007 invalid frame, 1011 the store failed, 1012 the
/// daemon stops,
/// 4401 the token was revoked, 4408 the subscriber is too slow or silent.
#[utoipa::path(
    get, path = "/v1/events",
    params(Watched),
    responses(
        (status = 101, description = "the socket"),
        (status = 400, description = "not a WebSocket"),
        (status = 404, description = "there is no such lifeform"),
        (status = 426, description = "not a WebSocket"),
        (status = 429, description = "too many sockets are open"),
    ),
)]
pub(super) async fn subscribe(
    State(app): State<App>,
    ApiQuery(watched): ApiQuery<Watched>,
    headers: HeaderMap,
    ApiUpgrade(upgrade): ApiUpgrade,
) -> Result<Response, ApiError> {
    let admitted = ws::caller(&app, &headers)?;
    if let Some(lifeform) = &watched.lifeform {
        app.lifeforms.get(lifeform).await?;
    }
    let place = ws::place_or_refusal(&app, admitted.principal())?;
    let upgrade = upgrade
        .protocols(ws::offered(&headers, SUBPROTOCOL))
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .read_buffer_size(FRAME_BYTES_MAX)
        .write_buffer_size(FRAME_BYTES_MAX);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let _place = place;
        session::serve(app, watched.lifeform, admitted, socket).await;
    }))
}

/// A page of events.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Only events before the event of this number.
    #[serde(default)]
    before: Option<u64>,
    /// The number of events, up to 1,000.
    #[serde(default)]
    #[param(inline)]
    limit: Limit<200, 1000>,
}

/// The events of a lifeform.
#[derive(Serialize, ToSchema)]
pub(super) struct Happened {
    /// The id of the sequence of numbers. It is another one after each start of the daemon.
    epoch: String,
    /// The events, the newest first, in the form of the socket.
    #[schema(value_type = Vec<Object>)]
    events: Vec<Box<RawValue>>,
    /// The `before` of the next page; `null` at the end.
    next: Option<u64>,
    /// `true` if earlier events are not kept any more. Their journals have them.
    is_cut: bool,
}

/// Lists the events of a lifeform, the newest first.
///
/// The daemon keeps the last 20,000 events of all lifeforms and jobs, of at most 16 MiB, since its start.
#[utoipa::path(
    get, path = "/v1/lifeforms/{id}/events",
    params(("id" = String, Path), Page),
    responses(
        (status = 200, description = "a page of events", body = Happened),
        (status = 404, description = "there is no such lifeform"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Caller(origin): Caller,
    ApiPath(id): ApiPath<LifeformId>,
    ApiQuery(asked): ApiQuery<Page>,
) -> Result<Json<Happened>, ApiError> {
    app.lifeforms.get(&id).await?;
    let mut rights = Rights::of(app.clone(), origin.principal);
    let (mut events, mut before, mut next) = (Vec::new(), asked.before.unwrap_or(u64::MAX), None);
    'pages: loop {
        let (page, is_cut) = app.events.before(before);
        let Some(oldest) = page.last() else {
            return Ok(Json(Happened { epoch: app.events.epoch().to_owned(), events, next, is_cut }));
        };
        before = oldest.n;
        for event in &page {
            if event.owner.lifeform() != Some(&*id) || !rights.may_see(&event.owner).await? {
                continue;
            }
            if events.len() == asked.limit.0 {
                next = Some(event.n + 1);
                break 'pages;
            }
            events.push(RawValue::from_string(event.text(&app).await.to_string()).unwrap_or_default());
        }
    }
    Ok(Json(Happened { epoch: app.events.epoch().to_owned(), events, next, is_cut: false }))
}
