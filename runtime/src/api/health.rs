//! The one open door.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::App;

/// Whether the daemon serves, and what it can think with.
#[utoipa::path(get, path = "/health", responses((status = 200, description = "it serves"), (status = 503, description = "it is stopping")))]
pub(super) async fn health(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let stopping = *app.stopping.borrow();
    let models = app.neurons.models();
    let thinks = models.pick(neurons::Tier::Standard).is_ok();
    let status = if stopping { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (
        status,
        Json(
            json!({"status": if stopping { "stopping" } else { "ok" }, "version": env!("CARGO_PKG_VERSION"), "models": models.describe(), "thinks": thinks}),
        ),
    )
}
