//! The health route. It is the only route without a token.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use store::{Batch, Key, Kind, Origin};
use utoipa::ToSchema;

use super::App;

/// The free disk space, in bytes, below which commits may soon fail: two segments of the log and a checkpoint.
const DISK_LOW_BYTES: u64 = 64 << 20;

/// The time limit for a commit that tests whether the store writes again.
const TRY_MAX: Duration = Duration::from_secs(1);

/// The health of the daemon.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`, `degraded` (checkpoints fail, or a file is damaged), `failing` (nothing can be written) or `stopping`.
    status: &'static str,
    /// The health of each part.
    parts: Parts,
    /// The version of the daemon.
    version: &'static str,
    /// The models by tier.
    #[schema(value_type = Object)]
    models: Value,
    /// `true` if there is a model.
    thinks: bool,
}

/// The health of the parts of the daemon.
#[derive(Serialize, ToSchema)]
#[schema(as = HealthOfParts)]
struct Parts {
    /// `ok` or `failing`.
    log: &'static str,
    /// `ok`, `damaged` (the daily check found a damaged file, which the daemon's log names) or `failing`.
    store: &'static str,
    /// `ok`, `low` or `failing`.
    disk: &'static str,
    /// `ok`, `failing` or `none`.
    models: &'static str,
}

/// Returns the health of the daemon and its parts.
///
/// `models` is `failing` while the last call of each model got no answer, and `none` without a model. If the log has
/// failed, the request retries it.
#[utoipa::path(
    get, path = "/health",
    responses(
        (status = 200, description = "it serves", body = Health),
        (status = 503, description = "it is stopping, or nothing can be written"),
    ),
)]
pub(super) async fn health(State(app): State<App>) -> (StatusCode, Json<Health>) {
    let stopping = *app.stopping.borrow();
    let models = app.neurons.models();
    let thinks = models.pick(neurons::Tier::Standard).is_ok();
    let mut answering = models.chain(neurons::Tier::Standard).iter();
    let answers = answering.any(|model| !model.provider.is_failing(&model.name));
    let mut store = app.store.health();
    // Only one caller at a time retries, with a short time limit.
    if let (Some(_), false, Ok(_turn)) = (&store.commits, stopping, app.health.try_lock()) {
        let tried = Batch::new(&Origin::system("health")).put(Key::new(Kind::Meta, "health"), &1);
        let _ = tokio::time::timeout(TRY_MAX, app.store.commit(tried)).await;
        store = app.store.health();
    }
    let state = |fails: bool| if fails { "failing" } else { "ok" };
    let disk = match rustix::fs::statvfs(&app.data) {
        Ok(found) if found.f_bavail.saturating_mul(found.f_frsize) < DISK_LOW_BYTES => "low",
        Ok(_) => "ok",
        Err(_) => "failing",
    };
    let parts = Parts {
        log: state(store.commits.is_some()),
        store: match (&store.checkpoints, store.damaged.is_empty()) {
            (Some(_), _) => "failing",
            (None, false) => "damaged",
            (None, true) => "ok",
        },
        disk,
        models: if !thinks {
            "none"
        } else if answers {
            "ok"
        } else {
            "failing"
        },
    };
    let is_degraded = store.checkpoints.is_some() || !store.damaged.is_empty();
    let word = match (stopping, store.commits.is_some(), is_degraded) {
        (true, ..) => "stopping",
        (_, true, _) => "failing",
        (.., true) => "degraded",
        _ => "ok",
    };
    let status = if matches!(word, "ok" | "degraded") { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let version = env!("CARGO_PKG_VERSION");
    (status, Json(Health { status: word, parts, version, models: json!(models.describe()), thinks }))
}
