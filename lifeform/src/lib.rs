//! Lifeforms: persistent actors that live on a heartbeat and a nutrient budget, perceive and write on canvases, and remember.
//!
//! [`Lifeforms`] is the handle. Decisions are plain functions (`metabolism`, `attention`, the rules of a canvas). One
//! actor per lifeform commits the decisions and acts on them.

pub mod agenda;
mod agenda_store;
mod alive;
pub mod archive;
mod asking;
mod attention;
pub mod canvas;
mod formation;
pub mod guard;
mod heartbeat;
pub mod homeostasis;
mod life;
pub mod lifeforms;
pub mod maintenance;
mod meeting;
mod memory;
pub mod metabolism;
mod perception;
mod reminders;
mod shared_knowledge;
pub mod spec;
pub mod spending;
mod tools;
pub mod trace;
mod traced_steps;
mod wake_queue;

pub use canvas::{Canvas, CanvasId, Limits, Refusal};
pub use guard::GuardLimits;
pub use life::{Head as LifeformHead, Status};
pub use lifeforms::Lifeforms;
pub use perception::{Passed, PassedOver};
pub use spec::{LifeformId, LifeformSpec};
pub use spending::Spending;
pub use tools::{TOOLS, guide};

/// The reason for which a request to a lifeform was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum LifeformError {
    /// The lifeform does not exist.
    #[error("lifeform {0} not found")]
    NotFound(LifeformId),
    /// The lifeform has no canvas with this id.
    #[error("canvas {0} not found")]
    NoCanvas(CanvasId),
    /// The lifeform does not run.
    #[error("lifeform {0} is not awake")]
    NotAwake(LifeformId),
    /// There is no such fact of the principal.
    #[error("there is no statement {0} that you may have forgotten")]
    NoFact(String),
    /// The definition is malformed.
    #[error("{0}")]
    Spec(String),
    /// The rules of the canvas refused the op.
    #[error(transparent)]
    Refused(Refusal),
    /// Too many requests wait.
    #[error("too much is waiting for this canvas")]
    Overloaded,
    /// The actor ended.
    #[error("the lifeform died: {0}")]
    Died(String),
    /// A fascicle of the lifeform failed.
    #[error(transparent)]
    Fascicle(#[from] fascicles::FascicleError),
    /// A request to the records of the commons failed.
    #[error(transparent)]
    Knowledge(#[from] knowledge::KnowledgeError),
    /// The nexus failed.
    #[error(transparent)]
    Nexus(#[from] nexus::NexusError),
    /// A neuron of the lifeform failed.
    #[error(transparent)]
    Neuron(#[from] neurons::NeuronError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}
