//! The definitions that a fascicle names.

use std::collections::BTreeSet;

use neurons::NeuronId;
use neurons::spec::ToolSpec;

use crate::spec::{FascicleId, FascicleSpec, NeuronNode, NodeRun, OnFailure, ToolNode};

/// Collects the fascicles that a definition calls as tools, and the neurons that its routers name.
pub(super) fn called_in(definition: &serde_json::Value, named: &mut Named) {
    match definition {
        serde_json::Value::Object(members) => {
            if let Some(id) = members.get("run").and_then(|run| run["fascicle"]["id"].as_str()) {
                named.fascicles.insert(id.into());
            }
            let ways = members.get("neurons").and_then(serde_json::Value::as_array).into_iter().flatten();
            named.neurons.extend(ways.filter_map(|way| way["neuron"].as_str().or(way.as_str()).map(NeuronId::from)));
            members.values().for_each(|value| called_in(value, named));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| called_in(item, named)),
        _ => {}
    }
}

/// Returns the server tools that a definition states, in its nodes and in their neurons.
pub(super) fn tools_in(spec: &FascicleSpec) -> Vec<&ToolSpec> {
    fn take<'s>(run: &'s NodeRun, tools: &mut Vec<&'s ToolSpec>) {
        match run {
            NodeRun::Tool(ToolNode { spec: Some(spec), .. }) => tools.push(spec),
            NodeRun::Neuron(NeuronNode { spec: Some(spec), .. }) => tools.extend(&spec.tools),
            NodeRun::Map(map) => take(&map.run, tools),
            NodeRun::Repeat(repeat) => take(&repeat.run, tools),
            _ => {}
        }
    }
    let mut tools = Vec::new();
    for node in &spec.nodes {
        take(&node.run, &mut tools);
        if let OnFailure::FallBack(run) = &node.on_failure {
            take(run, &mut tools);
        }
    }
    tools
}

/// The fascicles and stored neurons that a definition names.
#[derive(Default)]
pub(crate) struct Named {
    pub(crate) fascicles: BTreeSet<FascicleId>,
    pub(crate) neurons: BTreeSet<NeuronId>,
}

impl Named {
    pub(crate) fn of(spec: &FascicleSpec) -> Self {
        let mut named = Self::default();
        for node in &spec.nodes {
            named.take(&node.run);
            if let OnFailure::FallBack(run) = &node.on_failure {
                named.take(run);
            }
        }
        named
    }

    fn take(&mut self, run: &NodeRun) {
        match run {
            NodeRun::Fascicle(node) => drop(self.fascicles.insert(node.id.clone())),
            NodeRun::Neuron(NeuronNode { id: Some(id), .. }) => drop(self.neurons.insert(id.clone())),
            NodeRun::Map(map) => self.take(&map.run),
            NodeRun::Repeat(repeat) => self.take(&repeat.run),
            _ => {}
        }
    }
}
