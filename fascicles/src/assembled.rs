//! Fascicles that a model assembles for the task at hand (MISSION F1, L4): checked against the rights of their caller, run once as a
//! job, and kept nowhere else. They think and read; what changes something outside stays a step of its caller.

use std::sync::Arc;

use neurons::spec::ToolSpec;
use neurons::{NeuronSpec, Tier};
use serde_json::Value;

use crate::graph::{Graph, Plan};
use crate::spec::{FascicleSpec, MapNode, NodeRun, OnFailure, RepeatNode};

/// The id of the fascicle of such a job.
pub(crate) const ID: &str = "assembled";
/// The maximum number of nodes.
const NODES_MAX: usize = 16;
/// The maximum number of items of a map, of items at once, and of rounds of a repeat.
const ITEMS_MAX: usize = 32;
const PARALLEL_MAX: usize = 4;
const ROUNDS_MAX: u32 = 4;
/// The maximum number of runs of neurons, without further tries after errors, and of output tokens of one answer.
const RUNS_MAX: usize = 64;
const OUTPUT_TOKENS_MAX: u32 = 2_000;

/// Returns the plan and the graph of a fascicle that a model wrote. `tools` are the tools that it may use, by their names.
///
/// # Errors
/// A text for the model that begins with a code: `invalid`, `too_many`, or `more_rights`.
pub(crate) fn assembled(written: Value, tools: &[ToolSpec], why: String) -> Result<(Plan, Arc<Graph>), String> {
    let written: FascicleSpec = serde_json::from_value(written).map_err(|error| format!("invalid: spec: {error}"))?;
    if written.nodes.len() > NODES_MAX {
        return Err(format!("too_many: it has {} nodes, and {NODES_MAX} are the most", written.nodes.len()));
    }
    let mut root = FascicleSpec { id: ID.into(), description: why, deadline_s: None, ..written };
    let mut runs = 0;
    for (place, node) in root.nodes.iter_mut().enumerate() {
        let at = |why: String| {
            let (code, why) = why.split_once(": ").unwrap_or(("invalid", &why));
            format!("{code}: nodes[{place}].{why}")
        };
        runs = limited(&mut node.run, tools).map_err(at)?.saturating_add(runs);
        if let OnFailure::FallBack(run) = &mut node.on_failure {
            runs = limited(run, tools).map_err(at)?.saturating_add(runs);
        }
    }
    if runs > RUNS_MAX {
        return Err(format!("too_many: its neurons may run {runs} times, and {RUNS_MAX} are the most"));
    }
    let plan = Plan { root, ..Plan::default() };
    let graph = Graph::build(&plan, None).map_err(|faults| format!("invalid: {faults}"))?;
    Ok((plan, graph))
}

/// Limits the work of a node to what its caller may do, and returns the number of times that a neuron may run in it.
fn limited(run: &mut NodeRun, tools: &[ToolSpec]) -> Result<usize, String> {
    match run {
        NodeRun::Neuron(node) => {
            if node.id.is_some() {
                return Err("more_rights: run.neuron.id: write the neuron here, as spec".into());
            }
            let Some(spec) = &mut node.spec else { return Err("invalid: run.neuron: it has no spec".into()) };
            node.stream = false;
            neuron(spec, tools)?;
            Ok(1)
        }
        NodeRun::Map(MapNode { run, parallel, items_max, .. }) => {
            *items_max = (*items_max).min(ITEMS_MAX);
            *parallel = (*parallel).min(PARALLEL_MAX);
            Ok(limited(run, tools)?.saturating_mul(*items_max))
        }
        NodeRun::Repeat(RepeatNode { run, times, .. }) => {
            if *times > ROUNDS_MAX {
                return Err(format!("too_many: run.repeat.times: {ROUNDS_MAX} rounds are the most"));
            }
            Ok(limited(run, tools)?.saturating_mul(*times as usize))
        }
        NodeRun::Join(_) | NodeRun::Branch(_) => Ok(0),
        NodeRun::Fascicle(_) | NodeRun::Tool(_) | NodeRun::Wait(_) | NodeRun::Approve(_) => {
            Err("more_rights: run: only neuron, map, repeat, join and branch".into())
        }
    }
}

/// Replaces the names of a neuron's tools by those tools.
fn neuron(spec: &mut NeuronSpec, tools: &[ToolSpec]) -> Result<(), String> {
    if spec.tier != Tier::default() {
        return Err("more_rights: run.neuron.spec.tier: leave it out".into());
    }
    spec.small = None;
    spec.output_tokens_max = Some(spec.output_tokens_max.unwrap_or(OUTPUT_TOKENS_MAX).min(OUTPUT_TOKENS_MAX));
    for (place, tool) in spec.tools.iter_mut().enumerate() {
        let path = format!("run.neuron.spec.tools[{place}]");
        let name = ToolSpec { name: tool.name.clone(), parameters: tool.parameters.clone(), ..ToolSpec::default() };
        if *tool != name {
            return Err(format!("more_rights: {path}: only the name of a tool of yours"));
        }
        let Some(own) = tools.iter().find(|own| own.name == tool.name) else {
            let names: Vec<&str> = tools.iter().map(|own| &*own.name).collect();
            return Err(format!("more_rights: {path}: it may use {}, not \"{}\"", names.join(", "), tool.name));
        };
        *tool = own.clone();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tools() -> Vec<ToolSpec> {
        vec![
            serde_json::from_value(
                json!({"name": "places", "pin": "places@1", "run": {"http": {"url": "https://a.example/"}}}),
            )
            .unwrap(),
        ]
    }

    fn node(run: Value) -> Value {
        json!({"output": "a", "nodes": [{"id": "a", "run": run}]})
    }

    fn refused(spec: Value) -> String {
        assembled(spec, &tools(), String::new()).unwrap_err()
    }

    #[test]
    fn a_name_stands_for_the_tool_of_the_caller() {
        let spec = node(
            json!({"neuron": {"spec": {"memory": "Look.", "tools": [{"name": "places"}], "output_tokens_max": 9000}}}),
        );
        let (plan, graph) = assembled(spec, &tools(), "to see".into()).unwrap();
        let NodeRun::Neuron(made) = &plan.root.nodes[0].run else { panic!() };
        let made = made.spec.as_ref().unwrap();
        assert_eq!((&made.tools, made.output_tokens_max), (&tools(), Some(2_000)));
        assert_eq!((&*plan.root.id, &*plan.root.description, &*graph.id), ("assembled", "to see", "assembled"));
    }

    #[test]
    fn what_goes_beyond_its_caller_is_refused_with_a_code() {
        let neuron = |more: Value| {
            let mut spec = json!({"memory": "Think."});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"neuron": {"spec": spec}})
        };
        let plain = || neuron(json!({}));
        for (spec, code) in [
            (json!([]), "invalid: spec"),
            (json!({"output": "a", "nodes": [], "rights": 1}), "invalid: spec"),
            (json!({"output": "b", "nodes": [{"id": "a", "run": plain()}]}), "invalid: "),
            (
                json!({"output": "a", "nodes": [{"id": "a", "after": ["b"], "run": plain()}, {"id": "b", "after": ["a"], "run": plain()}]}),
                "invalid: ",
            ),
            (
                json!({"output": "a", "nodes": (0..17).map(|n| json!({"id": format!("n{n}"), "run": plain()})).collect::<Vec<_>>()}),
                "too_many: it has 17",
            ),
            (
                node(json!({"repeat": {"run": plain(), "times": 5, "until": {"is": true}}})),
                "too_many: nodes[0].run.repeat",
            ),
            (
                json!({"output": "a", "nodes": [
                {"id": "a", "run": {"map": {"run": plain()}}}, {"id": "b", "run": {"map": {"run": plain()}}}, {"id": "c", "run": plain()}]}),
                "too_many: its neurons may run 65",
            ),
            (node(json!({"tool": {"name": "execute_kip"}})), "more_rights: nodes[0].run"),
            (node(json!({"fascicle": {"id": "reply"}})), "more_rights: nodes[0].run"),
            (node(json!({"wait": {"event": "x"}})), "more_rights: nodes[0].run"),
            (node(json!({"approve": {"message": "x"}})), "more_rights: nodes[0].run"),
            (node(json!({"neuron": {"id": "n"}})), "more_rights: nodes[0].run.neuron.id"),
            (node(neuron(json!({"tier": "high"}))), "more_rights: nodes[0].run.neuron.spec.tier"),
            (
                node(neuron(json!({"tools": [{"name": "book"}]}))),
                "more_rights: nodes[0].run.neuron.spec.tools[0]: it may use places",
            ),
            (
                node(neuron(json!({"tools": [{"name": "places", "run": {"named": "book"}}]}))),
                "more_rights: nodes[0].run.neuron.spec.tools[0]: only the name",
            ),
            (
                json!({"output": "a", "nodes": [{"id": "a", "run": plain(), "on_failure": {"fall_back": {"tool": {"name": "x"}}}}]}),
                "more_rights: nodes[0].run",
            ),
        ] {
            let error = refused(spec);
            assert!(error.starts_with(code), "{error}, not {code}");
        }
    }
}
