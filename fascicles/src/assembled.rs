//! Fascicles that a model assembles for the task at hand (MISSION F1, L4): checked against the rights of their caller, run once as a
//! job, and kept nowhere else. They think and read; what changes something outside stays a step of its caller.

use std::collections::BTreeSet;
use std::sync::Arc;

use neurons::spec::{ToolSpec, tokens_about};
use neurons::tools::Assembled;
use neurons::{NeuronSpec, Tier};
use serde_json::{Value, json};

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
/// The number of output tokens that a neuron is expected to use at most, and of model calls of one with tools.
const OUTPUT_TOKENS: u32 = 500;
const CALLS_WITH_TOOLS: u64 = 2;

/// The work that a fascicle may come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    /// The number of runs of neurons.
    runs: usize,
    /// The number of tokens that they are expected to use.
    tokens: u64,
}

impl Work {
    fn and(self, other: Self) -> Self {
        Self { runs: self.runs.saturating_add(other.runs), tokens: self.tokens.saturating_add(other.tokens) }
    }

    fn times(self, times: usize) -> Self {
        Self { runs: self.runs.saturating_mul(times), tokens: self.tokens.saturating_mul(times as u64) }
    }
}

/// Returns the plan and the graph of a fascicle that a model wrote, for this input.
///
/// # Errors
/// A text for the model that begins with a code: `invalid`, `too_many`, `too_dear` or `more_rights`.
pub(crate) fn assembled(written: Assembled, input: &Value) -> Result<(Plan, Arc<Graph>), String> {
    let Assembled { spec, tools, memory, outside, tokens_max, why } = written;
    let spec: FascicleSpec = serde_json::from_value(spec).map_err(|error| format!("invalid: spec: {error}"))?;
    if spec.nodes.len() > NODES_MAX {
        return Err(format!("too_many: it has {} nodes, and {NODES_MAX} are the most", spec.nodes.len()));
    }
    let mut root = FascicleSpec { id: ID.into(), description: why, deadline_s: None, ..spec };
    let mut limits =
        Limits { tools: &tools, input_tokens: tokens_about(&input.to_string()) as u64, used: BTreeSet::new() };
    let mut work = Work::default();
    for (place, node) in root.nodes.iter_mut().enumerate() {
        let at = |why: String| {
            let (code, why) = why.split_once(": ").unwrap_or(("invalid", &why));
            format!("{code}: nodes[{place}].{why}")
        };
        work = work.and(limits.take(&mut node.run).map_err(at)?);
        if let OnFailure::FallBack(run) = &mut node.on_failure {
            work = work.and(limits.take(run).map_err(at)?);
        }
    }
    let Work { runs, tokens } = work;
    if runs > RUNS_MAX {
        return Err(format!("too_many: its neurons may run {runs} times, and {RUNS_MAX} are the most"));
    }
    if let Some(left) = tokens_max.filter(|left| tokens > *left) {
        return Err(format!(
            "too_dear: it may use about {tokens} tokens, and {left} are left: take fewer nodes or items, or a smaller output_tokens_max"
        ));
    }
    // What one neuron remembers, another could carry out of the daemon.
    let used = |names: &[String]| names.iter().find(|name| limits.used.contains(*name)).cloned();
    if let (Some(of_memory), Some(outside)) = (used(&memory), used(&outside)) {
        return Err(format!(
            "more_rights: with {of_memory}, which reads memory, it may not use {outside}: make two networks"
        ));
    }
    let plan = Plan { root, ..Plan::default() };
    let graph = Graph::build(&plan, None).map_err(|faults| format!("invalid: {faults}"))?;
    Ok((plan, graph))
}

/// The limits of a fascicle.
struct Limits<'t> {
    /// The tools of its caller.
    tools: &'t [ToolSpec],
    /// The length of the input.
    input_tokens: u64,
    /// The names of the tools that it uses.
    used: BTreeSet<String>,
}

impl Limits<'_> {
    /// Limits a node to what its caller may do, and returns the work that it may come to.
    fn take(&mut self, run: &mut NodeRun) -> Result<Work, String> {
        match run {
            NodeRun::Neuron(node) => {
                if node.id.is_some() {
                    return Err("more_rights: run.neuron.id: write the neuron here, as spec".into());
                }
                let Some(spec) = &mut node.spec else { return Err("invalid: run.neuron: it has no spec".into()) };
                node.stream = false;
                self.neuron(spec)
            }
            NodeRun::Map(MapNode { run, parallel, items_max, .. }) => {
                *items_max = (*items_max).min(ITEMS_MAX);
                *parallel = (*parallel).min(PARALLEL_MAX);
                Ok(self.take(run)?.times(*items_max))
            }
            NodeRun::Repeat(RepeatNode { run, times, .. }) => {
                if *times > ROUNDS_MAX {
                    return Err(format!("too_many: run.repeat.times: {ROUNDS_MAX} rounds are the most"));
                }
                Ok(self.take(run)?.times(*times as usize))
            }
            NodeRun::Join(_) | NodeRun::Branch(_) => Ok(Work::default()),
            NodeRun::Fascicle(_) | NodeRun::Tool(_) | NodeRun::Wait(_) | NodeRun::Approve(_) => {
                Err("more_rights: run: only neuron, map, repeat, join and branch".into())
            }
        }
    }

    /// Replaces the names of a neuron's tools by those tools, and returns the work of one run.
    fn neuron(&mut self, spec: &mut NeuronSpec) -> Result<Work, String> {
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
            let Some(own) = self.tools.iter().find(|own| own.name == tool.name) else {
                let names: Vec<&str> = self.tools.iter().map(|own| &*own.name).collect();
                return Err(format!("more_rights: {path}: it may use {}, not \"{}\"", names.join(", "), tool.name));
            };
            *tool = own.clone();
            self.used.insert(own.name.clone());
        }
        let shown = tokens_about(&json!([spec.memory, spec.structured_output, spec.tools]).to_string()) as u64;
        let output = u64::from(spec.output_tokens_max.unwrap_or(OUTPUT_TOKENS_MAX).min(OUTPUT_TOKENS));
        // The input of a node is that of the fascicle, or the output of another one.
        let tokens = shown + self.input_tokens.max(output) + output;
        let calls = if spec.tools.is_empty() { 1 } else { CALLS_WITH_TOOLS };
        Ok(Work { runs: 1, tokens: tokens * calls })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<ToolSpec> {
        let places = json!({"name": "places", "pin": "places@1", "run": {"http": {"url": "https://a.example/"}}});
        let search = json!({"name": "knowledge_search", "run": "builtin"});
        [places, search].map(|tool| serde_json::from_value(tool).unwrap()).into()
    }

    fn node(run: Value) -> Value {
        json!({"output": "a", "nodes": [{"id": "a", "run": run}]})
    }

    fn written(spec: Value) -> Assembled {
        Assembled {
            spec,
            tools: tools(),
            memory: vec!["knowledge_search".into()],
            outside: vec!["places".into()],
            tokens_max: Some(40_000),
            why: "to see".into(),
        }
    }

    fn refused(spec: Value) -> String {
        assembled(written(spec), &json!("x")).unwrap_err()
    }

    #[test]
    fn a_name_stands_for_the_tool_of_the_caller() {
        let spec = node(
            json!({"neuron": {"spec": {"memory": "Look.", "tools": [{"name": "places"}], "output_tokens_max": 9000}}}),
        );
        let (plan, graph) = assembled(written(spec), &json!("x")).unwrap();
        let NodeRun::Neuron(made) = &plan.root.nodes[0].run else { panic!() };
        let made = made.spec.as_ref().unwrap();
        assert_eq!((&made.tools[..], made.output_tokens_max), (&tools()[..1], Some(2_000)));
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
                json!({"output": "a", "nodes": [{"id": "a", "run": neuron(json!({"tools": [{"name": "knowledge_search"}]}))},
                {"id": "b", "run": neuron(json!({"tools": [{"name": "places"}]}))}]}),
                "more_rights: with knowledge_search, which reads memory, it may not use places",
            ),
            (
                node(json!({"map": {"run": neuron(json!({"memory": "word ".repeat(2_000)}))}})),
                "too_dear: it may use about",
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
