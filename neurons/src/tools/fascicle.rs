//! Fascicles as tools: the request to their runner, with the paying account and the name of the job.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Origin, PrincipalId};

use super::bound::Binding;
use super::effect::EffectScope;
use super::spec::ToolSpec;

/// The maximum nesting depth of fascicles that are called as tools.
pub const DEPTH_MAX: usize = 4;

/// The context from which a tool is called.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The owner of the tools that the job uses: a lifeform, or the daemon.
    pub owner: Arc<str>,
    /// The job that makes the call; `None` outside of jobs.
    pub job: Option<Arc<str>>,
    /// The outermost job for which the call is made: the job that called, as a tool, the fascicle of this one.
    pub root: Option<Arc<str>>,
    /// The step of the job; `None` outside of jobs.
    pub step: Option<Arc<str>>,
    /// The step of a goal's plan for which the call is made.
    pub binding: Option<Arc<Binding>>,
    /// The work in which the call has its effects; `None` for the invocation itself.
    pub scope: Option<EffectScope>,
    /// The nesting depth of fascicle tools.
    pub depth: usize,
    /// `true` if an untrusted speaker caused the call: external changes then need an approval.
    pub by_stranger: bool,
    /// `true` if what led to the call has read words of others than those who caused it: external changes then need an
    /// approval, too.
    pub tainted: bool,
    /// The authors of the definitions that make the call, outermost first. The call acts with the rights that all of
    /// them have.
    pub authors: Vec<PrincipalId>,
}

impl Caller {
    /// Creates the context of a call from outside of the daemon, with the tools of `owner`.
    pub fn outside(owner: &str) -> Self {
        let owner = owner.into();
        Self {
            owner,
            job: None,
            root: None,
            step: None,
            binding: None,
            scope: None,
            depth: 0,
            by_stranger: false,
            tainted: false,
            authors: Vec::new(),
        }
    }

    /// Returns `true` if external changes of the call need an approval.
    pub fn is_untrusted(&self) -> bool {
        self.by_stranger || self.tainted
    }
}

/// A call of a fascicle as a tool.
#[derive(Clone, Debug)]
pub struct FascicleCall {
    /// The id of the fascicle.
    pub fascicle: Arc<str>,
    /// The idempotency key of the call: a repetition of the call is the same job.
    pub key: String,
    /// The input.
    pub input: Value,
    /// The origin on whose behalf the call is made.
    pub origin: Origin,
    /// The account that pays.
    pub account: Arc<str>,
    /// The context of the call.
    pub caller: Caller,
    /// The invocation or job that makes the call. If it is cancelled, the called job is cancelled too.
    pub parent: Arc<str>,
    /// The deadline in seconds.
    pub deadline_s: u64,
}

/// A fascicle that a model wrote for one task.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// The definition.
    pub spec: Value,
    /// The tools that its neurons may use, by their names: those of the neuron that calls it, as far as they only read.
    pub tools: Vec<ToolSpec>,
    /// The names of those tools that read the memory: a network that has one reads nothing outside.
    pub memory: Vec<String>,
    /// The names of those that reach outside.
    pub outside: Vec<String>,
    /// The maximum number of tokens that it may be expected to use; `None` for no bound.
    pub tokens_max: Option<u64>,
    /// The purpose, in the words of the model.
    pub why: String,
}

/// The arguments of a call that runs a fascicle of the model's own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) spec: Value,
    pub(super) input: Value,
    #[serde(default)]
    pub(super) why: String,
}

/// The description of such a tool for a model.
pub(super) const ASSEMBLED: &str = "Runs a small network of neurons for this work alone, and returns its output: texts read side by side, a \
    list worked through, a draft that is checked. spec: {\"output\": id, \"nodes\": [{\"id\", \"after\": [ids], \"run\": {\"neuron\": {\"spec\": \
    {\"memory\": what it does, \"kind\"?: \"structured_output\" or \"tool_augmented\", \"structured_output\"?: JSON Schema, \"tools\"?: [{\"name\"}]}}}}]}. \
    A node without after reads the input, a text or a list, in the role \"user\"; \"run\" may also be {\"map\": {\"over\": {\"role\": node id, \"at\": pointer}, \"run\"}} or {\"join\": \"object\"}. \
    At most 16 nodes, with those of your tools that only read.";

/// Returns the parameters of such a tool.
pub(super) fn parameters_of_assembled() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["spec", "input", "why"],
        "properties": {"spec": {"type": "object"}, "input": {}, "why": {"type": "string", "maxLength": 200}},
    })
}

/// A runner of fascicles.
#[async_trait]
pub trait FascicleRunner: Send + Sync + 'static {
    /// Returns the description of a fascicle, if it exists.
    async fn description(&self, fascicle: &Arc<str>) -> Option<String>;

    /// Runs a fascicle to its end and returns its output.
    ///
    /// # Errors
    /// Returns the reason of the failure, as a text for a model.
    async fn run(&self, call: FascicleCall) -> Result<Value, String>;

    /// Runs a fascicle that a model wrote for one task, and returns its output.
    ///
    /// # Errors
    /// Returns the reason of the refusal or the failure, as a text for a model.
    async fn run_assembled(&self, written: Assembled, call: FascicleCall) -> Result<Value, String>;

    /// Cancels the jobs that `parent` called and that have not ended.
    async fn cancel(&self, parent: &str);
}
