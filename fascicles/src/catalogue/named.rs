//! The definitions that a fascicle names.

use std::collections::BTreeSet;

use neurons::NeuronId;

use crate::spec::{FascicleId, FascicleSpec, NeuronNode, NodeRun, OnFailure};

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
