//! A fascicle as data: nodes, what each does, and the edges by which it is reached (MISSION F1). Shipped in
//! `config/fascicles`, made and changed over the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use neurons::spec::ToolSpec;
use neurons::{NeuronId, NeuronSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Names a fascicle.
pub type FascicleId = Arc<str>;
/// Names a node within its fascicle.
pub type NodeId = Arc<str>;

/// A fascicle: a graph of nodes without cycles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FascicleSpec {
    /// The id; generated if absent.
    #[serde(default)]
    #[schema(value_type = String)]
    pub id: FascicleId,
    /// The description of its purpose.
    #[serde(default)]
    pub description: String,
    /// The node whose output is the job's.
    #[schema(value_type = String)]
    pub output: NodeId,
    /// Seconds after which a job of it fails, unless the job says otherwise; within another fascicle it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
    /// The nodes, in any order.
    pub nodes: Vec<NodeSpec>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The name; also the role of its output's event.
    #[schema(value_type = String)]
    pub id: NodeId,
    /// The edges that lead here, in the order in which their outputs are read. A mere name is an edge that always
    /// fires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<WrittenEdge>)]
    pub after: Vec<Edge>,
    /// The number of edges that must fire for the node to run; otherwise it is skipped.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requires: Requires,
    /// The work of the node.
    pub run: NodeRun,
    /// The events for observers; none if absent (F4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<Observe>,
    /// `true` if it reads the job's input besides its edges' events; by default only a node without edges does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_input: Option<bool>,
    /// `true` if it is skipped, with the output null, when it has no events to read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub needs_events: bool,
    /// The tries of its neuron or tool.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: Retry,
    /// Seconds that one try may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// The consequence of a failure of all tries.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl NodeSpec {
    /// Returns `true` if it reads the job's input.
    pub fn reads_input(&self) -> bool {
        self.reads_input.unwrap_or(self.after.is_empty())
    }
}

/// The number of edges that must fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Requires {
    /// One of them; the others must be settled.
    #[default]
    Any,
    /// Each of them.
    All,
}

/// An edge that leads to the node in which it is defined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(from = "WrittenEdge")]
pub struct Edge {
    /// The node it comes from.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// Of a router or a branch: it fires when something was sent this way, and brings that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub route: Option<Arc<str>>,
    /// The condition on the output of that node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// The part of the output that it takes.
    #[serde(skip_serializing_if = "is_default")]
    pub take: Take,
}

/// An [`Edge`] as it may be written.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub enum WrittenEdge {
    /// A node's name: its whole output, always.
    Name(String),
    /// The whole edge.
    Whole(Box<WholeEdge>),
}

/// An edge with all its members.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WholeEdge {
    /// The node it comes from.
    #[schema(value_type = String)]
    node: NodeId,
    /// Of a router or a branch: the way it follows.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    route: Option<Arc<str>>,
    /// The condition on the output of that node.
    #[serde(default)]
    when: Option<Condition>,
    /// The part of the output that it takes.
    #[serde(default)]
    take: Take,
}

impl From<WrittenEdge> for Edge {
    fn from(written: WrittenEdge) -> Self {
        match written {
            WrittenEdge::Name(node) => Self { node: node.into(), route: None, when: None, take: Take::default() },
            WrittenEdge::Whole(whole) => {
                let WholeEdge { node, route, when, take } = *whole;
                Self { node, route, when, take }
            }
        }
    }
}

/// A test of JSON: the part at a pointer fits a schema. A part that is not there fits none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// A JSON Pointer (RFC 6901); the whole when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// A JSON Schema, as in `{"const": "yes"}` or `{"minimum": 7}`.
    #[schema(value_type = Object)]
    pub is: Value,
}

/// The part of an output that an edge takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// All of it: events as they are, anything else as one event in the role of its node.
    #[default]
    Output,
    /// Nothing; the edge is only an order.
    Nothing,
    /// One part.
    Part(Part),
}

/// A part of an output as an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// A JSON Pointer; the whole when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The role of the event; the node's name by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Arc<str>>,
    /// The JSON Schema it must fit; the node that wanted it fails otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub is: Option<Value>,
}

/// A part of a node's events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// The last event of this role; the last event when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Arc<str>>,
    /// A JSON Pointer into its content; the whole when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
}

/// The work of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeRun {
    /// Thinks with a neuron. Its output is the neuron's.
    Neuron(NeuronNode),
    /// Runs another fascicle on the events. Its output is that one's.
    Fascicle(FascicleNode),
    /// Calls a tool. Its output is what the tool brought.
    Tool(ToolNode),
    /// Runs something once for each item of a list. Its output is the list of outputs, in order.
    Map(MapNode),
    /// Brings together what its edges brought.
    Join(Join),
    /// Sends its events one of several ways, without a model. Edges follow it by `route`, like a router's.
    Branch(BranchNode),
    /// Runs something again and again until it is good. Its output is the last output.
    Repeat(RepeatNode),
    /// Waits for an event from outside. Its output is the event's content.
    Wait(WaitNode),
    /// Waits for an approval of its input. The output is `{approved, comment, by}`; a refusal is a failure.
    Approve(ApproveNode),
}

/// A neuron as a node: defined here, or one that is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NeuronNode {
    /// A neuron that is defined here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<NeuronSpec>>,
    /// A neuron that is stored; jobs keep the version they began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<NeuronId>,
    /// `true` if its text is shown to the job's owner while it comes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stream: bool,
}

/// A fascicle as a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FascicleNode {
    /// The fascicle; jobs keep the version they began with.
    #[schema(value_type = String)]
    pub id: FascicleId,
}

/// A tool as a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolNode {
    /// The tool of the job's owner, or of the client.
    #[serde(default, skip_serializing_if = "is_empty")]
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Instead of a name, a tool of the server that is defined here. It is called again after a crash only when that is
    /// harmless; one that must be approved makes the job wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<ToolSpec>>,
    /// The arguments. A member `{"$take": {"role", "at"}}` is replaced by that part of the node's events.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The caller of the tool.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: CalledBy,
}

fn is_empty(name: &Arc<str>) -> bool {
    name.is_empty()
}

/// The caller of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalledBy {
    /// Whoever owns the job: a lifeform, or the daemon.
    #[default]
    Owner,
    /// The client: the job waits for its result.
    Client,
}

/// Something for each item of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapNode {
    /// The list. Each item is added to the node's other events as one of the role `item`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub over: Taken,
    /// The work: a neuron, a fascicle or a tool.
    #[schema(no_recursion)]
    pub run: Box<NodeRun>,
    /// Items worked on at once, 1 to 64.
    #[serde(default = "four")]
    pub parallel: usize,
    /// Items at most, up to 1024; a longer list is a failure.
    #[serde(default = "hundred")]
    pub items_max: usize,
}

fn four() -> usize {
    4
}

fn hundred() -> usize {
    100
}

/// The way in which outputs are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// `{events: […]}`: the events in the order of the edges.
    #[default]
    Events,
    /// An object with the contents by role.
    Object,
    /// The contents in the order of the edges.
    List,
}

/// Ways for events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchNode {
    /// The first that fits is taken.
    pub cases: Vec<Case>,
    /// The way when none fits; without it, nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub otherwise: Option<Arc<str>>,
}

/// One way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name by which edges refer to it.
    #[schema(value_type = String)]
    pub route: Arc<str>,
    /// The event it looks at; the last when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Arc<str>>,
    /// A JSON Pointer into its content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The JSON Schema that must fit.
    #[schema(value_type = Object)]
    pub is: Value,
}

/// Something again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatNode {
    /// The work: a neuron, a fascicle or a tool. From the second round on it also reads the output of the round before,
    /// in the role of the node.
    #[schema(no_recursion)]
    pub run: Box<NodeRun>,
    /// Rounds at most, 1 to 32.
    pub times: u32,
    /// The condition on an output that ends the repetition.
    pub until: Condition,
    /// The consequence if no round meets the condition.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exhausted: Exhausted,
}

/// The consequence of a repeat that ends without meeting its condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// The last output is taken.
    #[default]
    Accept,
    /// The node fails.
    Fail,
}

/// A wait for an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitNode {
    /// The name of the event.
    #[schema(value_type = String)]
    pub event: Arc<str>,
    /// The JSON Schema its content must fit; another is refused and the wait goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub is: Option<Value>,
    /// Seconds until it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
}

/// A wait for an approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveNode {
    /// The question.
    pub message: String,
    /// The principals besides operators who may approve, such as `user:ada`; only operators write definitions that name
    /// some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub by: Vec<Arc<str>>,
    /// Seconds until it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
}

/// The tries of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Tries in all, 1 to 10; only of failures that may pass.
    #[serde(default = "three")]
    pub times: u32,
    /// Milliseconds before the second try; each further wait is twice as long, up to a minute.
    #[serde(default = "two_hundred")]
    pub backoff_ms: u64,
}

fn three() -> u32 {
    3
}

fn two_hundred() -> u64 {
    200
}

impl Default for Retry {
    fn default() -> Self {
        Self { times: three(), backoff_ms: two_hundred() }
    }
}

/// The consequence of a failure of all tries of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The fascicle fails: the job, or the node of the fascicle around it.
    #[default]
    FailJob,
    /// Nothing that needs this node is run.
    FailBranch,
    /// The output is null, and the fascicle continues.
    Continue,
    /// The work that is tried instead: a neuron, a fascicle or a tool. In a map it replaces the failed item; in a
    /// repeat all rounds, when one failed or none met the condition. A map over something that is no list fails the
    /// fascicle.
    #[schema(no_recursion)]
    FallBack(Box<NodeRun>),
}

/// The events of a node for observers. Messages are templates over `output`, the node's output: `{{ output.title }}`,
/// the filters `length first last upper lower trim round default`, and `{% if %}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Observe {
    /// The name of the stage; the node's by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The message at the start of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The message at the end of the node, before `end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// The message at the end of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The message at a failure of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<String>,
    /// The parts of the output in the last event, by name: JSON Pointers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}
