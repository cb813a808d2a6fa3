//! A graph that can only be built valid: acyclic, connected to its output, within its bounds.

use std::collections::{BTreeMap, BTreeSet};

use crate::FascicleError;
use crate::spec::{FascicleSpec, NodeId, NodeSpec};

/// Nodes one fascicle may have.
pub const NODES_MAX: usize = 64;

/// A fascicle that was checked.
#[derive(Clone, Debug)]
pub struct Graph {
    nodes: BTreeMap<NodeId, NodeSpec>,
    output: NodeId,
}

impl Graph {
    /// Checks `spec`.
    ///
    /// # Errors
    /// [`FascicleError`] naming the node or edge that is wrong.
    pub fn build(spec: &FascicleSpec) -> Result<Self, FascicleError> {
        neurons::spec::check_id(&spec.id).map_err(FascicleError::Spec)?;
        if spec.nodes.is_empty() || spec.nodes.len() > NODES_MAX {
            return Err(FascicleError::Spec(format!(
                "a fascicle has 1 to {NODES_MAX} nodes, not {}",
                spec.nodes.len()
            )));
        }
        let mut nodes = BTreeMap::new();
        for node in &spec.nodes {
            neurons::spec::check_id(&node.id).map_err(FascicleError::Spec)?;
            if let crate::spec::NodeRun::Neuron { spec, .. } = &node.run {
                spec.check().map_err(|error| FascicleError::Spec(format!("node {}: {error}", node.id)))?;
            }
            if nodes.insert(node.id.clone(), node.clone()).is_some() {
                return Err(FascicleError::Spec(format!("node {} stands twice", node.id)));
            }
        }
        for node in nodes.values() {
            if let Some(missing) = node.after.iter().find(|id| !nodes.contains_key(*id)) {
                return Err(FascicleError::UnknownNode { node: node.id.clone(), after: missing.clone() });
            }
        }
        if !nodes.contains_key(&spec.output) {
            return Err(FascicleError::UnknownNode { node: "output".into(), after: spec.output.clone() });
        }
        let graph = Self { nodes, output: spec.output.clone() };
        graph.check_acyclic()?;
        Ok(graph)
    }

    /// Removes nodes that wait for nothing until none is left; what cannot be removed is a cycle.
    fn check_acyclic(&self) -> Result<(), FascicleError> {
        let mut left: BTreeSet<&NodeId> = self.nodes.keys().collect();
        loop {
            let ready: Vec<&NodeId> = left
                .iter()
                .filter(|id| self.nodes[**id].after.iter().all(|before| !left.contains(before)))
                .copied()
                .collect();
            if ready.is_empty() {
                break;
            }
            left.retain(|id| !ready.contains(id));
        }
        match left.first() {
            None => Ok(()),
            Some(id) => {
                let from = self.nodes[*id].after.iter().find(|before| left.contains(before)).unwrap_or(id);
                Err(FascicleError::Cycle { from: from.clone(), to: (*id).clone() })
            }
        }
    }

    /// A node.
    pub fn node(&self, id: &NodeId) -> Option<&NodeSpec> {
        self.nodes.get(id)
    }

    /// All nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeSpec> {
        self.nodes.values()
    }

    /// The node whose output is the job's.
    pub fn output(&self) -> &NodeId {
        &self.output
    }
}
