//! The plain sequential evaluation that serves as the reference for runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use store::Event;

use super::World;
use crate::graph::{Action, Body, Graph, Work};
use crate::mapping::{add_events, event, taken};
use crate::run::frame::joined;
use crate::spec::{CalledBy, Exhausted, NodeRun, OnFailure};

#[derive(Clone, PartialEq)]
pub(super) enum Settled {
    Done(Value),
    Skipped,
    Failed,
}

pub(super) struct Evaluation<'w> {
    pub(super) world: &'w World,
    /// The outputs of the leaves.
    pub(super) leaves: BTreeMap<String, Value>,
}

impl Evaluation<'_> {
    pub(super) fn graph(&mut self, graph: &Graph, input: &[Event], prefix: &str) -> Result<Value, String> {
        let mut settled: BTreeMap<&str, Settled> = BTreeMap::new();
        while settled.len() < graph.nodes.len() {
            let ready = |node: &&crate::graph::Node| {
                !settled.contains_key(&*node.spec.id) && node.edges.iter().all(|edge| settled.contains_key(&*edge.from))
            };
            let Some(node) = graph.nodes.values().find(ready) else { return Err("a cycle".into()) };
            let mut events: Result<Vec<Event>, String> =
                Ok(if node.spec.reads_input() { input.to_vec() } else { Vec::new() });
            let is_neuron = matches!(node.spec.run, NodeRun::Neuron(_));
            let own = events.as_ref().ok().filter(|_| is_neuron).map_or(0, Vec::len);
            let mut fired = 0;
            for edge in &node.edges {
                if let Settled::Done(output) = &settled[&*edge.from]
                    && edge.fires(output)
                {
                    fired += 1;
                    let brought = edge.brings(output);
                    events = events.and_then(|mut events| {
                        brought.map(|more| {
                            add_events(&mut events, own, more);
                            events
                        })
                    });
                }
            }
            let came = match node.runs_when(fired) {
                false => Settled::Skipped,
                true => {
                    let step = format!("{prefix}{}", node.spec.id);
                    match events.and_then(|events| self.node(node, &step, events)) {
                        Ok(output) => Settled::Done(output),
                        Err(error) => match &node.spec.on_failure {
                            OnFailure::Continue => Settled::Done(Value::Null),
                            OnFailure::FailBranch => Settled::Failed,
                            _ => return Err(error),
                        },
                    }
                }
            };
            settled.insert(&node.spec.id, came);
        }
        match &settled[&*graph.output] {
            Settled::Done(output) => Ok(output.clone()),
            _ => Err("no output".into()),
        }
    }

    pub(super) fn node(&mut self, node: &crate::graph::Node, step: &str, events: Vec<Event>) -> Result<Value, String> {
        if node.spec.needs_events && events.is_empty() {
            return Ok(Value::Null);
        }
        match &node.work {
            Work::One(body) => self.tried(node, body, step, &events).map(|(output, _)| output),
            Work::Join(into) => Ok(joined(*into, &events)),
            Work::Branch { cases, otherwise } => {
                let route = cases
                    .iter()
                    .find(|(_, which, is)| taken(&events, which).is_some_and(|part| is.holds(part)))
                    .map(|(route, ..)| route)
                    .or(otherwise.as_ref());
                Ok(route.map(|route| json!({"neuron": route, "events": events})).into_iter().collect())
            }
            Work::Map { over, body, items_max, .. } => {
                let items = taken(&events, over).and_then(Value::as_array).ok_or("no list")?.clone();
                if items.len() > *items_max {
                    return Err("too long".into());
                }
                let mut rest = events;
                rest.pop();
                let mut outputs = Vec::new();
                for (index, item) in items.into_iter().enumerate() {
                    let mut events = rest.clone();
                    events.push(event("item", item));
                    match self.tried(node, body, &format!("{step}[{index}]"), &events) {
                        Err(_) if node.spec.on_failure == OnFailure::Continue => outputs.push(Value::Null),
                        output => outputs.push(output?.0),
                    }
                }
                Ok(outputs.into())
            }
            Work::Repeat { body, times, until, exhausted } => {
                let mut before: Option<Value> = None;
                for index in 0..*times {
                    let mut events = events.clone();
                    events.extend(before.map(|output| event(&node.spec.id, output)));
                    let (output, fell_back) = self.tried(node, body, &format!("{step}[{index}]"), &events)?;
                    if fell_back || until.holds(&output) {
                        return Ok(output);
                    }
                    before = Some(output);
                }
                match (exhausted, &node.fall_back) {
                    (Exhausted::Accept, _) => Ok(before.unwrap_or_default()),
                    (Exhausted::Fail, None) => Err("exhausted".into()),
                    (Exhausted::Fail, Some(body)) => {
                        let mut events = events;
                        events.extend(before.map(|output| event(&node.spec.id, output)));
                        self.once(body, &format!("{step}[{times}]"), &events, true)
                    }
                }
            }
            Work::Wait(wait, _) if wait.timeout_s.is_some() => match &node.fall_back {
                Some(body) => self.once(body, step, &events, true),
                None => Err("nobody answered".into()),
            },
            Work::Wait(..) => Ok(self.world.output(step, &[])),
            Work::Approve(_) if self.world.approves(step) => {
                Ok(json!({"approved": true, "comment": null, "by": "model"}))
            }
            Work::Approve(_) => match &node.fall_back {
                Some(body) => self.once(body, step, &events, true),
                None => Err("not approved".into()),
            },
        }
    }

    /// Returns the output of a body, and `true` if the fallback produced it.
    pub(super) fn tried(
        &mut self,
        node: &crate::graph::Node,
        body: &Body,
        step: &str,
        events: &[Event],
    ) -> Result<(Value, bool), String> {
        let instead = |this: &mut Self, body| Ok((this.once(body, step, events, true)?, true));
        if let Body::Action(leaf, _) = body
            && !is_clients(leaf)
        {
            let (fails, retry) = self.world.fails(step);
            let tries = if retry { node.spec.retry.times } else { 1 };
            if fails >= tries {
                return match &node.fall_back {
                    Some(body) => instead(self, body),
                    None => Err("failed".into()),
                };
            }
        }
        match (self.once(body, step, events, false), &node.fall_back) {
            (Err(_), Some(body)) => instead(self, body),
            (came, _) => came.map(|output| (output, false)),
        }
    }

    pub(super) fn once(&mut self, body: &Body, step: &str, events: &[Event], fall_back: bool) -> Result<Value, String> {
        match body {
            Body::Action(..) => {
                let name = if fall_back { format!("{step}!") } else { step.to_owned() };
                let output = self.world.output(&name, events);
                self.leaves.insert(step.to_owned(), output.clone());
                Ok(output)
            }
            Body::Fascicle(graph) => {
                let within = if fall_back { format!("{step}!/") } else { format!("{step}/") };
                self.graph(graph, events, &within)
            }
        }
    }
}

pub(super) fn is_clients(leaf: &Action) -> bool {
    matches!(leaf, Action::Tool { by: CalledBy::Client, .. })
}

pub(super) fn is_fall_back(leaf: &Action) -> bool {
    matches!(leaf, Action::Tool { name, .. } if &**name == "instead")
}
