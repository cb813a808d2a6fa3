//! The actor tree of the daemon.

use axum::Json;
use axum::extract::State;
use neurons::actors::{ActorView, view};
use serde::Serialize;
use utoipa::ToSchema;

use super::App;
use super::extract::Operator;

/// The actors that run now.
#[derive(Serialize, ToSchema)]
pub(super) struct Actors {
    /// The supervisors of lifeforms, of jobs and of the invocations that clients make, each with the actors below it.
    actors: Vec<ActorView>,
}

/// Reads the actor tree.
///
/// An actor's end ends the actors below it and no others. A step of a job is below its job, and the invocation of a
/// step is below the step. A job or a lifeform whose actor died is started again from its journal: at once, then after
/// pauses of 1, 4, 16 and 64 s; after the sixth death in a row a job fails, and a lifeform stops.
#[utoipa::path(
    get, path = "/v1/system/actors",
    responses((status = 200, description = "the tree", body = Actors)),
)]
pub(super) async fn tree(State(app): State<App>, Operator(_operator): Operator) -> Json<Actors> {
    let supervisors = [app.lifeforms.supervisor(), app.fascicles.supervisor(), app.neurons.supervisor()];
    Json(Actors { actors: supervisors.map(view).into() })
}
