//! Lifeforms: beings that live on a heartbeat and a budget, hear and speak on canvases, and remember
//! (MISSION rows L1–L10, K8, K13).
//!
//! [`Lifeforms`] is the handle. Decisions are plain functions (`metabolism`, `attention`, the rules of a
//! canvas); one actor a lifeform commits and acts on them.

pub mod agenda;
mod alarm;
mod alive;
pub mod archive;
mod attention;
pub mod canvas;
pub mod guard;
mod hands;
mod heartbeat;
mod knowing;
mod life;
pub mod lifeforms;
pub mod maintenance;
mod memory;
pub mod metabolism;
mod perception;
mod plans;
mod reminders;
pub mod spec;
pub mod spending;
pub mod trace;

pub use canvas::{Canvas, CanvasId, Limits, Refusal};
pub use guard::GuardLimits;
pub use hands::TOOLS;
pub use life::{Head as LifeformHead, Status};
pub use lifeforms::Lifeforms;
pub use spec::{LifeformId, LifeformSpec};

/// The reason why a lifeform was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum LifeformError {
    /// There is none of that name.
    #[error("lifeform {0} not found")]
    NotFound(LifeformId),
    /// The lifeform has no canvas of that name.
    #[error("canvas {0} not found")]
    NoCanvas(CanvasId),
    /// The definition is malformed.
    #[error("{0}")]
    Spec(String),
    /// The rules of the canvas refuse.
    #[error(transparent)]
    Refused(Refusal),
    /// Too much waits.
    #[error("too much is waiting for this canvas")]
    Overloaded,
    /// The actor ended.
    #[error("the lifeform died: {0}")]
    Died(String),
    /// A fascicle of it failed.
    #[error(transparent)]
    Fascicle(#[from] fascicles::FascicleError),
    /// The commons' records failed.
    #[error(transparent)]
    Knowledge(#[from] knowledge::KnowledgeError),
    /// The nexus failed.
    #[error(transparent)]
    Nexus(#[from] nexus::NexusError),
    /// A neuron of it failed.
    #[error(transparent)]
    Neuron(#[from] neurons::NeuronError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}
