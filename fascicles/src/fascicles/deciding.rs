//! Decisions without a job: a fascicle whose neurons all decide by rules runs as a plain function of its input.

use std::borrow::Cow;
use std::sync::Arc;

use neurons::kinds::decide::{self, Facts, Rule};
use neurons::spec::Transform;
use serde_json::{Map, Value};

use super::Fascicles;
use crate::FascicleError;
use crate::fault::{Fault, Faults};
use crate::graph::{Action, Body, Graph, Node, Plan, Work};
use crate::spec::{FascicleId, FascicleSpec, NodeId};

/// The result of a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decided {
    /// The members that the rules set.
    pub members: Map<String, Value>,
    /// The neurons in the order in which they decided, each with the name of the rule that applied, if one did.
    pub rules: Vec<(NodeId, Option<String>)>,
}

/// The rules of a fascicle whose neurons all decide by rules, in the order in which they decide.
#[derive(Clone, Debug)]
pub struct Decider {
    graph: Arc<Graph>,
    order: Vec<NodeId>,
}

/// The members that rules have set, before those of the input.
struct Overlaid<'f, F> {
    set: Map<String, Value>,
    facts: &'f F,
}

impl<F: Facts> Facts for Overlaid<'_, F> {
    fn fact(&self, member: &str) -> Option<Cow<'_, Value>> {
        self.set.get(member).map(Cow::Borrowed).or_else(|| self.facts.fact(member))
    }
}

impl Decider {
    fn of(graph: Arc<Graph>) -> Result<Self, FascicleError> {
        let mut order: Vec<NodeId> = Vec::with_capacity(graph.nodes.len());
        while order.len() < graph.nodes.len() {
            let is_done = |id: &str| order.iter().any(|done| **done == *id);
            // The graph is acyclic, so one of the nodes that are left follows only nodes that have decided.
            let next =
                graph.nodes.iter().find(|(id, node)| !is_done(id) && node.edges.iter().all(|edge| is_done(&edge.from)));
            let Some((id, node)) = next else { break };
            rules_of(node).ok_or_else(|| no_rules(&graph, id))?;
            order.push(id.clone());
        }
        Ok(Self { graph, order })
    }

    /// Returns the rules of a definition that is stored nowhere.
    ///
    /// # Errors
    /// See [`Fascicles::decider`].
    pub fn of_definition(spec: FascicleSpec) -> Result<Self, FascicleError> {
        let plan = Plan { root: spec, ..Plan::default() };
        Self::of(Graph::build(&plan, None).map_err(FascicleError::Invalid)?)
    }

    /// Returns `true` if both are the rules of one version.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.graph, &other.graph)
    }

    /// Returns the rules, neuron by neuron in the order in which they decide.
    pub fn rules(&self) -> impl Iterator<Item = (&NodeId, &[Rule])> {
        self.order.iter().filter_map(|id| Some((id, rules_of(self.graph.nodes.get(id)?)?)))
    }

    /// Returns what the rules make of `facts`. Each neuron sees the results of those before it, as in a job with `facts` as
    /// the content of its event. There is no job, no write and no call of a model.
    pub fn decide(&self, facts: &impl Facts) -> Decided {
        let mut overlaid = Overlaid { set: Map::new(), facts };
        let mut rules = Vec::with_capacity(self.order.len());
        for (id, of_node) in self.rules() {
            let decided = decide::first(of_node, &overlaid);
            rules.push((id.clone(), decided.as_ref().map(|(rule, _)| rule.name.clone())));
            overlaid.set.extend(decided.into_iter().flat_map(|(_, members)| members));
        }
        Decided { members: overlaid.set, rules }
    }
}

impl Fascicles {
    /// Returns the rules of a fascicle, to decide without a job. They are built once per version.
    ///
    /// # Errors
    /// Returns [`FascicleError::NotFound`], or [`FascicleError::Invalid`] if a node is no neuron that decides by rules,
    /// or if an edge has a condition.
    pub async fn decider(&self, id: &FascicleId) -> Result<Decider, FascicleError> {
        Decider::of(self.built(id).await?.graph)
    }
}

fn rules_of(node: &Node) -> Option<&[Rule]> {
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
