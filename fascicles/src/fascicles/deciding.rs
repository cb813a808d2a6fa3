//! Decisions without a job: a fascicle whose neurons all decide by rules runs as a plain function of its input.

use neurons::kinds::decide::decide;
use neurons::spec::Transform;
use serde_json::{Map, Value};

use super::Fascicles;
use crate::FascicleError;
use crate::fault::{Fault, Faults};
use crate::graph::{Action, Body, Graph, Node, Work};
use crate::spec::{FascicleId, NodeId};

/// The result of a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// The members of the input, with those that the rules added or replaced.
    pub members: Map<String, Value>,
    /// The neurons in the order in which they decided, each with the name of the rule that applied, if one did.
    pub rules: Vec<(NodeId, Option<String>)>,
}

impl Fascicles {
    /// Returns what the rules of a fascicle make of `members`. Each neuron sees the results of those before it, as in a
    /// job with `members` as the content of its event. There is no job, no write and no call of a model.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`], or [`FascicleError::Invalid`] if a node is no neuron that decides by rules,
    /// or if an edge has a condition.
    pub async fn decide(&self, id: &FascicleId, members: Map<String, Value>) -> Result<Decided, FascicleError> {
        let graph = self.built(id).await?.graph;
        let mut decided = Decided { members, rules: Vec::with_capacity(graph.nodes.len()) };
        while decided.rules.len() < graph.nodes.len() {
            let is_done = |id: &str| decided.rules.iter().any(|(done, _)| **done == *id);
            // The graph is acyclic, so one of the nodes that are left follows only nodes that have decided.
            let next =
                graph.nodes.iter().find(|(id, node)| !is_done(id) && node.edges.iter().all(|edge| is_done(&edge.from)));
            let Some((id, node)) = next else { break };
            let rules = rules_of(node).ok_or_else(|| no_rules(&graph, id))?;
            let rule = decide(rules, &mut decided.members).map(|rule| rule.name.clone());
            decided.rules.push((id.clone(), rule));
        }
        Ok(decided)
    }
}

fn rules_of(node: &Node) -> Option<&[neurons::kinds::decide::Rule]> {
    let Work::One(Body::Action(action, _)) = &node.work else { return None };
    match &**action {
        Action::Neuron { spec, .. } if node.edges.iter().all(|edge| edge.is_plain()) => match &spec.transform {
            Transform::Decide(rules) => Some(rules),
            _ => None,
        },
        _ => None,
    }
}

fn no_rules(graph: &Graph, node: &NodeId) -> FascicleError {
    let reason = format!("{} decides without a job, and this node has no rules or a condition at its edge", graph.id);
    let cure = "give it a neuron of kind transformer with transform.decide, and plain edges".into();
    FascicleError::Invalid(Faults(vec![Fault { path: format!("nodes.{node}"), reason, cure }]))
}
