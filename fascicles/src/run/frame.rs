//! The state of one graph within a job: the state of each node, and the events that it reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use store::Event;

use super::step::FALL_BACK;
use crate::graph::{Action, Body, Graph, Node, Work};
use crate::mapping::{add_events, event, taken};
use crate::spec::{Join, NodeId, NodeRun, Taken};

/// The maximum number of events that one node reads.
const EVENTS_MAX: usize = 4_096;
/// The role of the event that holds an item of a map.
const ITEM: &str = "item";

/// The state of a running graph.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) graph: Arc<Graph>,
    pub(super) input: Arc<[Event]>,
    pub(super) nodes: BTreeMap<NodeId, State>,
}

/// The state of a node.
#[derive(Debug)]
pub(super) enum State {
    /// The node waits until enough of its edges are settled.
    Waiting,
    /// The node was skipped, because too few of its edges fired.
    Skipped,
    /// The node is running, in one slot or, for a map or a repeat, in several.
    Open(Vec<Slot>),
    /// The node has ended.
    Done(Value),
    /// The node has failed. If it is given up, its edges never fire; otherwise its fascicle fails with it.
    Failed { slots: Vec<Slot>, given_up: bool },
}

/// One unit of a node's work: the node itself, an item of a map, or a round of a repeat.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) attempt: u32,
    /// The try whose conversation continues. A try after a transient failure continues the conversation of the failed
    /// try.
    pub(super) since: u32,
    /// `true` if another try would fail the same way.
    pub(super) is_fatal: bool,
    /// The number of daemon stops during this try.
    pub(super) restarts: u32,
    pub(super) fall_back: bool,
    pub(super) doing: SlotState,
    /// The reason of a failure without a consequence so far.
    pub(super) broken: Option<String>,
    /// The size of the output, in bytes.
    pub(super) bytes: usize,
}

impl Slot {
    /// Returns the number of the conversation that the work continues. A tool call starts again with each try.
    pub(super) fn conversation(&self, leaf: &Action) -> u32 {
        if matches!(leaf, Action::Neuron { .. }) { self.since } else { self.attempt }
    }
}

/// The state of a slot.
#[derive(Debug, Default)]
pub(super) enum SlotState {
    #[default]
    Idle,
    Working,
    /// The slot waits; the number identifies the wait.
    Paused(u32),
    Inside(Box<Frame>),
    Done(Value),
}

impl Slot {
    /// Returns the prefix of the names of nested steps.
    pub(super) fn within(&self, step: &str) -> String {
        if self.fall_back { format!("{step}{FALL_BACK}/") } else { format!("{step}/") }
    }

    pub(super) fn is_under_way(&self) -> bool {
        matches!(self.doing, SlotState::Working | SlotState::Paused(_) | SlotState::Inside(_))
    }

    /// Returns the body that the slot runs: that of the node, or its fallback.
    pub(super) fn body<'n>(&self, node: &'n Node) -> Option<&'n Body> {
        node.body(self.fall_back)
    }
}

impl Frame {
    pub(super) fn new(graph: Arc<Graph>, input: Arc<[Event]>) -> Self {
        let nodes = graph.nodes.keys().map(|id| (id.clone(), State::Waiting)).collect();
        Self { graph, input, nodes }
    }

    /// Returns `Some(true)` if enough edges of `node` fire, and `None` while they are not settled.
    pub(super) fn runs(&self, node: &Node) -> Option<bool> {
        let mut fired = 0;
        for edge in &node.edges {
            match self.nodes.get(&edge.from)? {
                State::Waiting | State::Open(_) | State::Failed { given_up: false, .. } => return None,
                State::Done(output) => fired += usize::from(edge.fires(output)),
                State::Skipped | State::Failed { .. } => {}
            }
        }
        Some(node.runs_when(fired))
    }

    /// Returns the events that a node reads: the job's input if it reads that, then the events of each edge that fires.
    ///
    /// # Errors
    /// Returns an error if an edge cannot deliver its events.
    pub(super) fn reads(&self, node: &Node) -> Result<Vec<Event>, String> {
        let mut events = if node.spec.reads_input() { self.input.to_vec() } else { Vec::new() };
        let own = if matches!(node.spec.run, NodeRun::Neuron(_)) { events.len() } else { 0 };
        for edge in &node.edges {
            if let Some(State::Done(output)) = self.nodes.get(&edge.from)
                && edge.fires(output)
            {
                add_events(&mut events, own, edge.brings(output)?);
                if events.len() > EVENTS_MAX {
                    return Err(format!("it would read more than {EVENTS_MAX} events"));
                }
            }
        }
        Ok(events)
    }

    /// Returns the events that one slot of a node reads.
    ///
    /// # Errors
    /// Returns the errors of [`Self::reads`].
    pub(super) fn reads_at(&self, node: &Node, index: usize) -> Result<Vec<Event>, String> {
        let mut events = self.reads(node)?;
        match &node.work {
            Work::Map { over, .. } => {
                let item = list(&events, over)?.get(index).cloned().unwrap_or_default();
                let of_list = |event: &Event| over.role.as_ref().is_none_or(|role| event.role == *role);
                if let Some(place) = events.iter().rposition(of_list) {
                    events.remove(place);
                }
                events.push(event(ITEM, item));
            }
            Work::Repeat { .. } if index > 0 => {
                if let Some(State::Open(slots)) = self.nodes.get(&node.spec.id)
                    && let Some(SlotState::Done(before)) = slots.get(index - 1).map(|slot| &slot.doing)
                {
                    events.push(event(&node.spec.id, before.clone()));
                }
            }
            _ => {}
        }
        Ok(events)
    }

    /// Returns the number of slots of a node at its start.
    ///
    /// # Errors
    /// Returns an error if the input of a map is not a list, or is too long.
    pub(super) fn slots(&self, node: &Node) -> Result<usize, String> {
        let Work::Map { over, items_max, .. } = &node.work else { return Ok(1) };
        let events = self.reads(node)?;
        let items = list(&events, over)?.len();
        if items > *items_max {
            return Err(format!("the list has {items} items, items_max is {items_max}"));
        }
        Ok(items)
    }

    /// Returns the result of the graph, once no node is waiting or running.
    pub(super) fn came_to(&self) -> Option<Result<Value, String>> {
        let settled =
            |state: &State| matches!(state, State::Skipped | State::Done(_) | State::Failed { given_up: true, .. });
        if !self.nodes.values().all(settled) {
            return None;
        }
        Some(match self.nodes.get(&self.graph.output) {
            Some(State::Done(output)) => Ok(output.clone()),
            Some(State::Failed { .. }) => Err(format!("its output node {} failed", self.graph.output)),
            _ => Err(format!("no way led to its output node {}", self.graph.output)),
        })
    }
}

fn list<'e>(events: &'e [Event], over: &Taken) -> Result<&'e Vec<Value>, String> {
    let found = taken(events, over).ok_or("there is no list to go through")?;
    found.as_array().ok_or_else(|| "what it should go through is no list".to_owned())
}

/// Joins events to one value.
pub(super) fn joined(into: Join, events: &[Event]) -> Value {
    match into {
        Join::Events => json!({"events": events}),
        Join::List => events.iter().map(|event| event.content.clone()).collect(),
        Join::Object => {
            let mut members: Map<String, Value> = Map::new();
            for role in events.iter().map(|event| &event.role) {
                let of_role = || events.iter().filter(|event| event.role == *role).map(|event| event.content.clone());
                let content = if of_role().count() == 1 { of_role().next() } else { Some(of_role().collect()) };
                members.insert(role.to_string(), content.unwrap_or_default());
            }
            Value::Object(members)
        }
    }
}
