//! The validated graph of a fascicle: acyclic, with edges and routes to existing nodes, mappings that fit, and schemas
//! and templates that compile. Only `build.rs` builds it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use neurons::spec::ToolSpec;
use neurons::{NeuronId, NeuronSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Event, PrincipalId};

use crate::mapping::{Mapping, Test, events_of, routed};
use crate::spec::{
    ApproveNode, CalledBy, Exhausted, FascicleId, FascicleSpec, Join, NodeId, NodeSpec, Requires, Taken, WaitNode,
};

/// The maximum number of nodes of one fascicle.
pub(crate) const NODES_MAX: usize = 64;
/// The maximum nesting depth of fascicles.
pub(crate) const DEPTH_MAX: usize = 8;

/// A fascicle with all definitions that it uses. A job that runs it is independent of later changes of the definitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The fascicle.
    pub root: FascicleSpec,
    /// The nested fascicles.
    #[serde(default)]
    pub fascicles: BTreeMap<FascicleId, FascicleSpec>,
    /// The stored neurons that the fascicles use.
    #[serde(default)]
    pub neurons: BTreeMap<NeuronId, NeuronSpec>,
    /// The authors by `fascicle:{id}` and `neuron:{id}`; parts without an author are not limited. Each part runs with
    /// the rights that its authors and its caller have in common.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub authors: BTreeMap<String, PrincipalId>,
}

/// The authors of a part of a plan: of the enclosing fascicles, outermost first, of the fascicle itself, and of the
/// neuron.
pub(crate) type Authors = Arc<[PrincipalId]>;

/// The validated graph of a fascicle.
#[derive(Debug)]
pub struct Graph {
    pub(crate) id: FascicleId,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) output: NodeId,
    /// The nodes that contribute to the output, including the output node. All other nodes are background steps.
    pub(crate) wanted: BTreeSet<NodeId>,
    /// The default deadline of a job, in seconds; `None` means none.
    pub(crate) deadline_s: Option<u64>,
}

/// A validated node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) spec: NodeSpec,
    pub(crate) edges: Vec<Way>,
    pub(crate) work: Work,
    pub(crate) fall_back: Option<Body>,
}

/// A validated edge.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) from: NodeId,
    route: Option<Arc<str>>,
    when: Option<Test>,
    mapping: Mapping,
}

impl Way {
    pub(crate) fn new(from: NodeId, route: Option<Arc<str>>, when: Option<Test>, mapping: Mapping) -> Self {
        Self { from, route, when, mapping }
    }

    /// Returns `true` if the edge always fires and passes the whole output.
    pub(crate) fn is_plain(&self) -> bool {
        self.route.is_none() && self.when.is_none() && self.mapping.is_whole()
    }

    /// Returns `true` if the edge fires for the `output` of its node.
    pub(crate) fn fires(&self, output: &Value) -> bool {
        self.route.as_ref().is_none_or(|route| routed(output, route).is_some())
            && self.when.as_ref().is_none_or(|when| when.holds(output))
    }

    /// Returns the events that the edge delivers from `output`.
    ///
    /// # Errors
    /// Returns an error if the selected part does not exist or does not fit.
    pub(crate) fn brings(&self, output: &Value) -> Result<Vec<Event>, String> {
        match &self.route {
            Some(route) => Ok(routed(output, route).map(|sent| events_of(&self.from, &sent)).unwrap_or_default()),
            None => self.mapping.events(&self.from, output),
        }
    }
}

/// The validated work of a node.
#[derive(Debug)]
pub(crate) enum Work {
    One(Body),
    Map { over: Taken, body: Body, parallel: usize, items_max: usize },
    Repeat { body: Body, times: u32, until: Test, exhausted: Exhausted },
    Join(Join),
    Branch { cases: Vec<(Arc<str>, Taken, Test)>, otherwise: Option<Arc<str>> },
    Wait(WaitNode, Option<Arc<jsonschema::Validator>>),
    Approve(ApproveNode),
}

/// The work of one slot: a leaf or a nested fascicle.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Action(Arc<Action>, Authors),
    Fascicle(Arc<Graph>),
}

/// Work outside of the run: a call of a neuron or a tool.
#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Neuron {
        spec: Box<NeuronSpec>,
        stream: bool,
    },
    /// A tool of the job's owner or of the client.
    Tool {
        name: Arc<str>,
        arguments: Value,
        by: CalledBy,
    },
    /// A server tool.
    Call {
        tool: Box<ToolSpec>,
        arguments: Value,
    },
}

/// The known shape of an output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    Any,
    Text,
    /// JSON that fits a schema.
    Json(Value),
    /// `{events: […]}`.
    Events,
    /// `[{neuron, events}]`, with the known neurons, or none if they are unknown.
    Routes(Vec<Arc<str>>),
    List,
}

impl Graph {
    /// Returns the id of the fascicle.
    pub fn id(&self) -> &FascicleId {
        &self.id
    }

    /// Adds the names of the owner's tools that the graph calls.
    pub(crate) fn tools(&self, tools: &mut BTreeSet<Arc<str>>) {
        for node in self.nodes.values() {
            let body = match &node.work {
                Work::One(body) | Work::Map { body, .. } | Work::Repeat { body, .. } => Some(body),
                _ => None,
            };
            for body in body.into_iter().chain(&node.fall_back) {
                match body {
                    Body::Fascicle(graph) => graph.tools(tools),
                    Body::Action(leaf, _) => {
                        if let Action::Tool { name, by: CalledBy::Owner, .. } = &**leaf {
                            tools.insert(name.clone());
                        }
                    }
                }
            }
        }
    }

    pub(crate) fn node(&self, id: &str) -> Option<&Node> {
        self.nodes.get(id)
    }
}

impl Node {
    /// Returns `true` if the node may have several slots, which have names of their own.
    pub(crate) fn has_several_slots(&self) -> bool {
        matches!(self.work, Work::Map { .. } | Work::Repeat { .. })
    }

    /// Returns the body of the node, or that of its fallback.
    pub(crate) fn body(&self, fall_back: bool) -> Option<&Body> {
        if fall_back {
            return self.fall_back.as_ref();
        }
        match &self.work {
            Work::One(body) | Work::Map { body, .. } | Work::Repeat { body, .. } => Some(body),
            Work::Join(_) | Work::Branch { .. } | Work::Wait(..) | Work::Approve(_) => None,
        }
    }

    /// Returns `true` if `fired` edges are enough to run the node.
    pub(crate) fn runs_when(&self, fired: usize) -> bool {
        match self.spec.requires {
            Requires::Any => fired > 0 || self.edges.is_empty(),
            Requires::All => fired == self.edges.len(),
        }
    }
}
