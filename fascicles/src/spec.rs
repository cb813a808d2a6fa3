//! The written form of a fascicle: its nodes, their work, and the edges between them (MISSION F1). Definitions are
//! shipped in `config/fascicles`, or created and changed over the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use neurons::spec::ToolSpec;
use neurons::{NeuronId, NeuronSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// The id of a fascicle.
pub type FascicleId = Arc<str>;
/// The id of a node, unique within its fascicle.
pub type NodeId = Arc<str>;

/// A fascicle: a graph of nodes without cycles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FascicleSpec {
    /// The id of the fascicle; generated if absent.
    #[serde(default)]
    #[schema(value_type = String)]
    pub id: FascicleId,
    /// The description of its purpose.
    #[serde(default)]
    pub description: String,
    /// The node whose output is the output of the job.
    #[schema(value_type = String)]
    pub output: NodeId,
    /// The default deadline of a job of this fascicle, in seconds; a job may set its own. Ignored if the fascicle runs
    /// inside another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_s: Option<u64>,
    /// The nodes, in any order.
    pub nodes: Vec<NodeSpec>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// The id of the node; also the role of its output event.
    #[schema(value_type = String)]
    pub id: NodeId,
    /// The incoming edges, in the order in which the node reads their outputs. A plain node id is an edge that always
    /// fires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<WrittenEdge>)]
    pub after: Vec<Edge>,
    /// The number of incoming edges that must fire. If fewer fire, the node is skipped.
    #[serde(default, skip_serializing_if = "is_default")]
    pub requires: Requires,
    /// The work of the node.
    pub run: NodeRun,
    /// The events for observers (F4); if absent, the node emits none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<Observe>,
    /// `true` if the node reads the job's input in addition to the events of its edges; a neuron reads an event of an edge that the
    /// input holds, too, once. Default: `true` only for a node without incoming edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_input: Option<bool>,
    /// `true` if the node completes with output null, without running, when it reads no events. Its outgoing edges then
    /// fire. Default: `false`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub needs_events: bool,
    /// The retry policy of the node's neuron or tool.
    #[serde(default, skip_serializing_if = "is_default")]
    pub retry: Retry,
    /// The timeout of one try, in seconds; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// The consequence if all tries fail.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_failure: OnFailure,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl NodeSpec {
    /// Returns `true` if the node reads the job's input.
    pub fn reads_input(&self) -> bool {
        self.reads_input.unwrap_or(self.after.is_empty())
    }
}

/// The number of incoming edges that must fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Requires {
    /// At least one edge must fire. The node still waits until every other edge has fired or cannot fire.
    #[default]
    Any,
    /// All edges must fire.
    All,
}

/// An edge that leads to the node that contains its definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(from = "WrittenEdge")]
pub struct Edge {
    /// The node at which the edge starts.
    #[schema(value_type = String)]
    pub node: NodeId,
    /// The route of a router or branch that this edge follows. The edge fires if events were sent along the route, and
    /// delivers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub route: Option<Arc<str>>,
    /// The condition on the output of the source node; without one the edge fires on every output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<Condition>,
    /// The part of the output that the edge delivers.
    #[serde(skip_serializing_if = "is_default")]
    pub take: Take,
}

/// An edge as written in a definition: a node id, or an object.
#[derive(Deserialize, ToSchema)]
#[serde(untagged, expecting = "an edge is the id of a node, or {node, route?, when?, take?}")]
pub enum WrittenEdge {
    /// The id of a node: the edge always fires and delivers the whole output.
    Name(String),
    /// An edge with explicit members.
    Whole(Box<WholeEdge>),
}

/// An edge with all its members.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WholeEdge {
    /// The node at which the edge starts.
    #[schema(value_type = String)]
    node: NodeId,
    /// The route of a router or branch that this edge follows.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    route: Option<Arc<str>>,
    /// The condition on the output of the source node; without one the edge fires on every output.
    #[serde(default)]
    when: Option<Condition>,
    /// The part of the output that the edge delivers.
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

/// A condition on JSON: the part at a pointer must fit a schema. A part that does not exist fits no schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// The JSON Pointer (RFC 6901) of the part; empty selects the whole value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The JSON Schema that the part must fit, such as `{"const": "yes"}` or `{"minimum": 7}`.
    #[schema(value_type = Object)]
    pub is: Value,
}

/// The part of an output that an edge delivers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// The whole output. Events are delivered unchanged; other output becomes one event in the role of its node.
    #[default]
    Output,
    /// No data; the edge only orders the nodes.
    Nothing,
    /// One part of the output.
    Part(Part),
}

/// A part of an output, delivered as an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The JSON Pointer of the part; empty selects the whole output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The role of the event; the id of the source node if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Arc<str>>,
    /// The JSON Schema that the part must fit. If the part does not fit, the node that reads it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub is: Option<Value>,
}

/// A part of the events that a node reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// The role of the event; the last event of this role is used, or the last event of any role if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Arc<str>>,
    /// The JSON Pointer into the event's content; empty selects the whole content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
}

/// The work of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeRun {
    /// Runs a neuron. The output is the neuron's output.
    Neuron(NeuronNode),
    /// Runs another fascicle on the node's events. The output is that fascicle's output.
    Fascicle(FascicleNode),
    /// Calls a tool. The output is the tool's result.
    Tool(ToolNode),
    /// Runs work once for each item of a list. The output is the list of outputs, in the order of the items.
    Map(MapNode),
    /// Joins the events of the incoming edges.
    Join(Join),
    /// Sends its events along one of several routes, without a model. Edges select a route by `route`, like those of a
    /// router.
    Branch(BranchNode),
    /// Repeats work until its output meets a condition. The output is the last output.
    Repeat(RepeatNode),
    /// Waits for an external event. The output is the content of the event.
    Wait(WaitNode),
    /// Waits for the approval of its input. The output is `{approved, comment, by}`; a refusal makes the node fail.
    Approve(ApproveNode),
}

/// A neuron as a node: an inline definition or a stored neuron.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NeuronNode {
    /// The inline definition of a neuron.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<NeuronSpec>>,
    /// The id of a stored neuron. A job keeps the version that it started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<NeuronId>,
    /// `true` if the text is streamed to the job's owner while the model writes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stream: bool,
}

/// A fascicle as a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FascicleNode {
    /// The id of the fascicle. A job keeps the version that it started with.
    #[schema(value_type = String)]
    pub id: FascicleId,
}

/// A tool as a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolNode {
    /// The name of a tool of the job's owner or of the client.
    #[serde(default, skip_serializing_if = "is_empty")]
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// The definition of a server tool, instead of a name. After a crash it is called again only if a repetition is
    /// harmless. A tool that needs an approval makes the job wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<ToolSpec>>,
    /// The arguments. A member `{"$take": {"role", "at"}}` is replaced by that part of the node's events.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// The caller of the tool. Default: the job's owner.
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
    /// The owner of the job: a lifeform or the daemon.
    #[default]
    Owner,
    /// The client. The job waits for the result.
    Client,
}

/// Work that runs for each item of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MapNode {
    /// The list. For each item, the node's other events and an event of the role `item` are the input.
    #[serde(default, skip_serializing_if = "is_default")]
    pub over: Taken,
    /// The work for one item: a neuron, a fascicle or a tool.
    #[schema(no_recursion)]
    pub run: Box<NodeRun>,
    /// The number of items that run at once, 1 to 64. Default: 4.
    #[serde(default = "four")]
    pub parallel: usize,
    /// The maximum number of items, 1 to 1024. A longer list makes the node fail. Default: 100.
    #[serde(default = "hundred")]
    pub items_max: usize,
}

fn four() -> usize {
    4
}

fn hundred() -> usize {
    100
}

/// The form of a join's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// `{events: […]}`: the events, in the order of the edges.
    #[default]
    Events,
    /// An object with one member a role: the content, or a list of contents if several events have that role.
    Object,
    /// A list of the contents, in the order of the edges.
    List,
}

/// The routes of a branch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchNode {
    /// The cases; the first case that fits determines the route.
    pub cases: Vec<Case>,
    /// The route if no case fits. If absent, the events are then sent nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub otherwise: Option<Arc<str>>,
}

/// A case of a branch, which is also a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name of the route, by which edges refer to it.
    #[schema(value_type = String)]
    pub route: Arc<str>,
    /// The role of the event to test; the last event if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub role: Option<Arc<str>>,
    /// The JSON Pointer into the event's content; empty selects the whole content.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// The JSON Schema that the selected part must fit.
    #[schema(value_type = Object)]
    pub is: Value,
}

/// Work that is repeated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepeatNode {
    /// The work: a neuron, a fascicle or a tool. From the second round on, it also reads the output of the previous
    /// round, in the role of the node.
    #[schema(no_recursion)]
    pub run: Box<NodeRun>,
    /// The maximum number of rounds, 1 to 32.
    pub times: u32,
    /// The condition that ends the repetition, tested on each output.
    pub until: Condition,
    /// The consequence if no round meets the condition.
    #[serde(default, skip_serializing_if = "is_default")]
    pub exhausted: Exhausted,
}

/// The consequence of a repeat that ends without meeting its condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// The last output becomes the output of the node.
    #[default]
    Accept,
    /// The node fails.
    Fail,
}

/// A wait for an external event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitNode {
    /// The name of the event.
    #[schema(value_type = String)]
    pub event: Arc<str>,
    /// The JSON Schema that the event's content must fit. Other events are refused, and the wait continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub is: Option<Value>,
    /// The time in seconds after which the wait fails; if absent, it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
}

/// A wait for an approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveNode {
    /// The question to the approver.
    pub message: String,
    /// The principals besides operators who may approve, such as `user:ada`. Only operators may write a definition that
    /// names approvers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub by: Vec<Arc<str>>,
    /// The time in seconds after which the wait fails; if absent, it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
}

/// The retry policy of a node. Only transient failures are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The maximum number of tries, 1 to 10. Default: 3.
    #[serde(default = "three")]
    pub times: u32,
    /// The delay before the second try, in milliseconds. Each further delay doubles, up to one minute. Default: 200.
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

/// The consequence if all tries of a node fail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The fascicle fails: the job, or the node that runs the fascicle.
    #[default]
    FailJob,
    /// Nodes that need the output of this node do not run.
    FailBranch,
    /// The output is null, and the fascicle continues.
    Continue,
    /// The fallback work: a neuron, a fascicle or a tool. In a map, it replaces the failed item. In a repeat, it
    /// replaces all rounds if one failed or none met the condition. If a map's input is not a list, the fascicle fails.
    #[schema(no_recursion)]
    FallBack(Box<NodeRun>),
}

/// The events that a node emits for observers. Messages are templates over `output`, the node's output: `{{
/// output.title }}`, the filters `length first last upper lower trim round default`, and `{% if %}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Observe {
    /// The name of the stage; the node's id if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The message when the node starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The message when the node ends, emitted before `end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<String>,
    /// The message when the node ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The message when the node fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<String>,
    /// The parts of the output that the event of the end contains: a JSON Pointer by name, at most 32. Without `end`
    /// there is none. A part over 8 KiB is left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}
