//! A fascicle as data: nodes and what each waits for (MISSION F1). Shipped in `config/fascicles`.

use std::sync::Arc;

use neurons::NeuronSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Names a fascicle.
pub type FascicleId = Arc<str>;
/// Names a node within its fascicle.
pub type NodeId = Arc<str>;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FascicleSpec {
    /// Its name.
    pub id: FascicleId,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// The node whose output is the job's.
    pub output: NodeId,
    /// The nodes, in any order.
    pub nodes: Vec<NodeSpec>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Its name; also the role of its output's event.
    pub id: NodeId,
    /// The nodes whose outputs it reads, in this order.
    #[serde(default)]
    pub after: Vec<NodeId>,
    /// What it does.
    pub run: NodeRun,
    /// What the world is told when it starts and ends; silent when absent (F4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<Observe>,
    /// Whether it reads the job's input besides the outputs it waits for.
    #[serde(default = "yes")]
    pub reads_input: bool,
    /// Whether it is passed over when there is nothing for it to read.
    #[serde(default)]
    pub needs_events: bool,
    /// Whether a failure of it fails the job, or only leaves its output null.
    #[serde(default)]
    pub optional: bool,
}

fn yes() -> bool {
    true
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeRun {
    /// Thinks with a neuron that is defined here.
    Neuron {
        /// The neuron.
        spec: Box<NeuronSpec>,
        /// Whether its text is shown while it comes.
        #[serde(default)]
        stream: bool,
    },
    /// Calls a tool of whoever owns the job.
    Tool {
        /// Which tool.
        name: Arc<str>,
        /// Fixed arguments.
        #[serde(default)]
        arguments: Value,
    },
}

/// What an observer is told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observe {
    /// When the node starts.
    #[serde(default)]
    pub start: Option<String>,
    /// When it ends.
    #[serde(default)]
    pub end: Option<String>,
}
