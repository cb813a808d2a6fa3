//! Checks of a fascicle: pointers, output types, cycles and routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use neurons::NeuronSpec;
use neurons::kinds::OutputShape;
use neurons::spec::compile;
use serde_json::Value;

use super::Build;
use crate::graph::{DEPTH_MAX, Shape};
use crate::mapping::{Test, is_pointer};
use crate::observe;
use crate::spec::{Condition, Edge, FascicleSpec, Join, NeuronNode, NodeId, NodeRun, NodeSpec};

impl Build<'_> {
    /// Returns the known type of a node's output.
    pub(super) fn shape(&self, run: &NodeRun) -> Shape {
        match run {
            NodeRun::Neuron(NeuronNode { spec: Some(spec), .. }) => shape_of(spec),
            NodeRun::Neuron(NeuronNode { id: Some(id), .. }) => self.plan.neurons.get(id).map_or(Shape::Any, shape_of),
            NodeRun::Neuron(_) | NodeRun::Tool(_) => Shape::Any,
            NodeRun::Fascicle(node) => match self.plan.fascicles.get(&node.id) {
                Some(inner) if !self.within.contains(&node.id) && self.within.len() < DEPTH_MAX => {
                    let output = inner.nodes.iter().find(|node| node.id == inner.output);
                    match output.map(|node| &node.run) {
                        // A nested fascicle is checked in its own build.
                        None | Some(NodeRun::Fascicle(_)) => Shape::Any,
                        Some(run) => self.shape(run),
                    }
                }
                _ => Shape::Any,
            },
            NodeRun::Map(_) | NodeRun::Join(Join::List) => Shape::List,
            NodeRun::Join(Join::Events) => Shape::Events,
            NodeRun::Join(Join::Object) => Shape::Any,
            NodeRun::Branch(branch) => {
                let ways = branch.cases.iter().map(|case| &case.route).chain(&branch.otherwise);
                Shape::Routes(ways.cloned().collect::<BTreeSet<_>>().into_iter().collect())
            }
            NodeRun::Repeat(repeat) => match &*repeat.run {
                NodeRun::Repeat(_) | NodeRun::Map(_) => Shape::Any,
                run => self.shape(run),
            },
            NodeRun::Wait(wait) => wait.is.clone().map_or(Shape::Any, Shape::Json),
            NodeRun::Approve(_) => Shape::Any,
        }
    }

    /// Checks that a pointer is valid and does not select a part that cannot exist.
    pub(super) fn pointer(&mut self, shape: &Shape, pointer: &str, path: &str, node: &str) {
        if !self.syntax(pointer, path) || pointer.is_empty() {
            return;
        }
        let first = pointer[1..].split('/').next().unwrap_or_default();
        let reason = match shape {
            Shape::Text => Some(format!("the output of \"{node}\" is text and has no parts")),
            Shape::Json(schema) => part_of(schema, pointer).err(),
            Shape::Events if first != "events" => Some(format!("the output of \"{node}\" is {{\"events\": […]}}")),
            Shape::List | Shape::Routes(_) if first.parse::<usize>().is_err() => {
                Some(format!("the output of \"{node}\" is a list"))
            }
            _ => None,
        };
        if let Some(reason) = reason {
            self.fault(path, reason, "point at a part that is there");
        }
    }

    pub(super) fn syntax(&mut self, pointer: &str, path: &str) -> bool {
        let fine = is_pointer(pointer);
        if !fine {
            self.fault(path, format!("\"{pointer}\" is no JSON Pointer"), format!("write \"/{pointer}\""));
        }
        fine
    }

    pub(super) fn test(&mut self, condition: &Condition, path: &str) -> Option<Test> {
        match Test::build(condition) {
            Ok(test) => Some(test),
            Err(reason) => {
                self.fault(&format!("{path}.is"), reason, "write a JSON Schema (2020-12)");
                None
            }
        }
    }

    pub(super) fn schema(&mut self, schema: &Value, path: &str) -> Option<Arc<jsonschema::Validator>> {
        match compile(schema) {
            Ok(compiled) => Some(Arc::new(compiled)),
            Err(reason) => {
                self.fault(path, reason, "write a JSON Schema (2020-12)");
                None
            }
        }
    }

    pub(super) fn observed(&mut self, spec: &NodeSpec, path: &str) {
        let Some(observe) = &spec.observe else { return };
        let templates =
            [("start", &observe.start), ("info", &observe.info), ("end", &observe.end), ("fail", &observe.fail)];
        for (member, template) in templates {
            if let Some(reason) = template.as_deref().and_then(observe::fault) {
                let cure =
                    "write a short template over output, as in {{ output.title }} or {% if output.good %}…{% endif %}";
                self.fault(&format!("{path}.observe.{member}"), reason, cure);
            }
        }
        if let Some(reason) = observe::too_many(observe) {
            self.fault(&format!("{path}.observe.metadata"), reason, "tell less");
        }
        for (name, pointer) in &observe.metadata {
            self.syntax(pointer, &format!("{path}.observe.metadata.{name}"));
        }
    }

    /// Removes nodes without remaining dependencies until none is left. If nodes remain, they contain a cycle.
    pub(super) fn acyclic(&mut self, spec: &FascicleSpec, at: &str) {
        let known: BTreeMap<&NodeId, (usize, &NodeSpec)> =
            spec.nodes.iter().enumerate().map(|(place, node)| (&node.id, (place, node))).collect();
        let mut left: BTreeSet<&NodeId> = known.keys().copied().collect();
        loop {
            let free = |id: &&NodeId| known[id].1.after.iter().all(|edge| !left.contains(&edge.node));
            let ready: Vec<&NodeId> = left.iter().copied().filter(free).collect();
            if ready.is_empty() {
                break;
            }
            left.retain(|id| !ready.contains(id));
        }
        let Some(first) = left.first().copied() else { return };
        // Following the remaining edges backwards must return to a visited node.
        let (mut way, mut at_node) = (Vec::new(), first);
        while !way.contains(&at_node) {
            way.push(at_node);
            let before = known[at_node].1.after.iter().find(|edge| left.contains(&edge.node));
            let Some(before) = before else { break };
            at_node = &before.node;
        }
        let round = way.iter().position(|id| *id == at_node).unwrap_or(0);
        let mut cycle: Vec<&str> = way[round..].iter().rev().map(|id| &***id).collect();
        cycle.extend(cycle.first().copied());
        let place = known[way[round]].0;
        let reason = format!("{} is a cycle", cycle.join(" -> "));
        self.fault(&format!("{at}nodes[{place}].after"), reason, "take one of these edges out, or use repeat");
    }

    /// Checks that every route of a router or branch has an edge.
    pub(super) fn routes_lead_somewhere(&mut self, spec: &FascicleSpec, shapes: &BTreeMap<NodeId, Shape>, at: &str) {
        for (place, node) in spec.nodes.iter().enumerate() {
            let Some(Shape::Routes(routes)) = shapes.get(&node.id) else { continue };
            let edges: Vec<&Edge> =
                spec.nodes.iter().flat_map(|node| &node.after).filter(|edge| edge.node == node.id).collect();
            if node.id == spec.output || edges.iter().any(|edge| edge.route.is_none()) {
                continue;
            }
            for route in routes {
                if edges.iter().all(|edge| edge.route.as_ref() != Some(route)) {
                    let reason = format!("nothing takes what \"{}\" sends to \"{route}\"", node.id);
                    let cure = format!("add an edge {{node = \"{}\", route = \"{route}\"}}", node.id);
                    self.fault(&format!("{at}nodes[{place}].run"), reason, cure);
                }
            }
        }
    }
}

pub(super) fn shape_of(spec: &NeuronSpec) -> Shape {
    match spec.kind.rules().output(spec) {
        OutputShape::Text => Shape::Text,
        OutputShape::Json(schema) => Shape::Json(schema),
        OutputShape::Routes(to) => Shape::Routes(to),
        OutputShape::Events => Shape::Events,
    }
}

/// Returns the schema of a part, as far as it is known. Returns `Err` if the part cannot exist.
pub(super) fn part_of<'s>(schema: &'s Value, pointer: &str) -> Result<Option<&'s Value>, String> {
    let mut schema = schema;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let of = schema["type"].as_str();
        if let Some(inner) = schema["properties"].get(&token) {
            schema = inner;
        } else if schema["properties"].is_object() && schema["additionalProperties"] == false {
            return Err(format!("its schema has no \"{token}\""));
        } else if of == Some("array") && token.parse::<usize>().is_ok() && schema["items"].is_object() {
            schema = &schema["items"];
        } else if of.is_some_and(|of| !matches!(of, "object" | "array"))
            || (of == Some("array") && token.parse::<usize>().is_err())
        {
            return Err(format!("by its schema there is no \"{token}\" in a value of type {}", of.unwrap_or_default()));
        } else {
            return Ok(None);
        }
    }
    Ok(Some(schema))
}

pub(super) fn listed(names: &[&Arc<str>]) -> String {
    let names: BTreeSet<&Arc<str>> = names.iter().copied().collect();
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// Returns the output node and all nodes that contribute to the output.
pub(super) fn wanted(spec: &FascicleSpec) -> BTreeSet<NodeId> {
    let mut wanted = BTreeSet::from([spec.output.clone()]);
    loop {
        let of_wanted = spec.nodes.iter().filter(|node| wanted.contains(&node.id));
        let before: BTreeSet<NodeId> =
            of_wanted.flat_map(|node| node.after.iter().map(|edge| edge.node.clone())).collect();
        if before.is_subset(&wanted) {
            return wanted;
        }
        wanted.extend(before);
    }
}
