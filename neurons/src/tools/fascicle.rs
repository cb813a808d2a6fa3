//! Fascicles as tools: whoever runs them is told which, for whom, and under which name.

use std::sync::Arc;

use async_trait::async_trait;
use nexus::{Origin, PrincipalId};
use serde_json::Value;

/// Fascicles within fascicles, by way of tools.
pub const DEPTH_MAX: usize = 4;

/// From where a tool is called.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose hands the work uses: a lifeform's, or the house's.
    pub owner: Arc<str>,
    /// How many fascicles that are tools it is within.
    pub depth: usize,
    /// Whether a voice that is not trusted asked for it: what reaches outside and changes something must be approved.
    pub untrusted: bool,
    /// Who wrote what makes the call, outermost first: it acts with the rights that all of them have.
    pub authors: Vec<PrincipalId>,
}

impl Caller {
    /// A call that nothing inside the daemon makes, with the tools of `owner`.
    pub fn outside(owner: &str) -> Self {
        Self { owner: owner.into(), depth: 0, untrusted: false, authors: Vec::new() }
    }
}

/// A fascicle that is called as a tool.
#[derive(Clone, Debug)]
pub struct FascicleCall {
    /// Which.
    pub fascicle: Arc<str>,
    /// Names the call: the same call again is the same job.
    pub key: String,
    /// What it works on.
    pub input: Value,
    /// For whom.
    pub origin: Origin,
    /// Who pays.
    pub account: Arc<str>,
    /// From where.
    pub caller: Caller,
    /// The invocation or job that calls it, which takes it along when it is cancelled.
    pub parent: Arc<str>,
    /// Seconds it may take.
    pub deadline_s: u64,
}

/// What runs fascicles.
#[async_trait]
pub trait FascicleRunner: Send + Sync + 'static {
    /// What a fascicle is for, if there is one of that name.
    async fn description(&self, fascicle: &Arc<str>) -> Option<String>;

    /// Runs a fascicle to its end and answers its output.
    ///
    /// # Errors
    /// Why there is none, in words for a model.
    async fn run(&self, call: FascicleCall) -> Result<Value, String>;

    /// Cancels what was called by `parent` and has not ended.
    async fn cancel(&self, parent: &str);
}
