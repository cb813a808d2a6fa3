//! Fascicles as tools: the order for their runner, with the payer and the name of the job.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use store::{Origin, PrincipalId};

/// Fascicles within fascicles, by way of tools.
pub const DEPTH_MAX: usize = 4;

/// From where a tool is called.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The owner of the tools that the job uses: a lifeform, or the house.
    pub owner: Arc<str>,
    /// The nesting depth of fascicle tools.
    pub depth: usize,
    /// `true` if an untrusted speaker asked for it: changes outside then need an approval.
    pub untrusted: bool,
    /// The authors of the definitions that make the call, outermost first: it acts with the rights that all of them
    /// have.
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
    /// The fascicle.
    pub fascicle: Arc<str>,
    /// Names the call: the same call again is the same job.
    pub key: String,
    /// The input.
    pub input: Value,
    /// For whom.
    pub origin: Origin,
    /// The account that pays.
    pub account: Arc<str>,
    /// From where.
    pub caller: Caller,
    /// The invocation or job that calls it, which takes it along when it is cancelled.
    pub parent: Arc<str>,
    /// Seconds it may take.
    pub deadline_s: u64,
}

/// A runner of fascicles.
#[async_trait]
pub trait FascicleRunner: Send + Sync + 'static {
    /// Returns the description of a fascicle, if it exists.
    async fn description(&self, fascicle: &Arc<str>) -> Option<String>;

    /// Runs a fascicle to its end and answers its output.
    ///
    /// # Errors
    /// Why there is none, in words for a model.
    async fn run(&self, call: FascicleCall) -> Result<Value, String>;

    /// Cancels what was called by `parent` and has not ended.
    async fn cancel(&self, parent: &str);
}
