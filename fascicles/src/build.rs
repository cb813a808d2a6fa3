//! The build of a plan into a graph. All faults are reported at once.

mod checks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use neurons::spec::{Runner, ToolSpec, check_id};
use store::PrincipalId;

use crate::fault::{Fault, Faults};
use crate::graph::{Action, Body, DEPTH_MAX, Graph, NODES_MAX, Node, Plan, Shape, Way, Work};
use crate::mapping::Mapping;
use crate::spec::{
    BranchNode, CalledBy, Condition, Edge, FascicleId, FascicleSpec, Join, MapNode, NeuronNode, NodeId, NodeRun,
    NodeSpec, OnFailure, Part, RepeatNode, Retry, Take, Taken, ToolNode,
};
use checks::{listed, part_of, wanted};

/// The maximum number of list items that run at once, and of items in a list.
const PARALLEL_MAX: usize = 64;
const ITEMS_MAX: usize = 1024;
/// The maximum number of rounds of a repeat, and of tries of a node.
const ROUNDS_MAX: u32 = 32;
const TRIES_MAX: u32 = 10;
/// The maximum of any timeout in seconds: thirty days.
const SECONDS_MAX: u64 = 30 * 24 * 3600;

/// The maximum number of steps of a fascicle with its nested fascicles, since the start of a job writes each of them.
const STEPS_MAX: usize = 1_000;

impl Graph {
    /// Builds the graph of `plan`. `tools` are the names that tool nodes may call; `None` allows any name.
    ///
    /// # Errors
    /// Returns all faults of the fascicle.
    pub fn build(plan: &Plan, tools: Option<&BTreeSet<Arc<str>>>) -> Result<Arc<Self>, Faults> {
        let mut build = Build {
            plan,
            tools,
            faults: Vec::new(),
            built: BTreeMap::new(),
            steps: 0,
            within: Vec::new(),
            authors: Vec::new(),
        };
        let graph = build.fascicle(&plan.root, "");
        if build.faults.is_empty() { Ok(Arc::new(graph)) } else { Err(Faults(build.faults)) }
    }
}

struct Build<'p> {
    plan: &'p Plan,
    tools: Option<&'p BTreeSet<Arc<str>>>,
    faults: Vec<Fault>,
    /// The graphs that were already built, by fascicle id and enclosing authors.
    built: BTreeMap<(FascicleId, Vec<PrincipalId>), (Arc<Graph>, usize)>,
    /// The number of steps of the current fascicle so far.
    steps: usize,
    /// The enclosing fascicles.
    within: Vec<FascicleId>,
    /// The authors of the enclosing fascicles, outermost first.
    authors: Vec<PrincipalId>,
}

impl Build<'_> {
    fn fault(&mut self, path: &str, reason: impl Into<String>, cure: impl Into<String>) {
        self.faults.push(Fault { path: path.to_owned(), reason: reason.into(), cure: cure.into() });
    }

    /// Returns the authors of the current fascicle and of one of its parts.
    fn with_author(&self, part: &str) -> Vec<PrincipalId> {
        let mut authors = self.authors.clone();
        if let Some(author) = self.plan.authors.get(part).filter(|author| authors.last() != Some(author)) {
            authors.push(author.clone());
        }
        authors
    }

    fn leaf(&self, leaf: Action) -> Option<Body> {
        Some(Body::Action(Arc::new(leaf), self.authors.as_slice().into()))
    }

    fn fascicle(&mut self, spec: &FascicleSpec, at: &str) -> Graph {
        if spec.nodes.len() > NODES_MAX {
            // The rest of an oversized definition is not checked, since that would take time in proportion to its size.
            let reason = format!("a fascicle has 1 to {NODES_MAX} nodes, not {}", spec.nodes.len());
            self.fault(&format!("{at}nodes"), reason, "move some of them into a fascicle of their own");
            let (id, output, deadline_s) = (spec.id.clone(), spec.output.clone(), spec.deadline_s);
            return Graph { id, nodes: BTreeMap::new(), output, wanted: BTreeSet::new(), deadline_s };
        }
        let steps_around = std::mem::take(&mut self.steps);
        self.within.push(spec.id.clone());
        let around = self.authors.clone();
        self.authors = self.with_author(&format!("fascicle:{}", spec.id));
        if let Err(reason) = check_id(&spec.id) {
            self.fault(&format!("{at}id"), reason, "choose another name");
        }
        if spec.nodes.is_empty() {
            self.fault(
                &format!("{at}nodes"),
                "a fascicle has a node at least",
                "add the node that its output comes from",
            );
        }
        self.seconds(spec.deadline_s, &format!("{at}deadline_s"));
        let names: Vec<&NodeId> = spec.nodes.iter().map(|node| &node.id).collect();
        if !names.contains(&&spec.output) {
            let cure = format!("name one of {}", listed(&names));
            self.fault(&format!("{at}output"), format!("there is no node \"{}\"", spec.output), cure);
        }
        let shapes: BTreeMap<NodeId, Shape> =
            spec.nodes.iter().map(|node| (node.id.clone(), self.shape(&node.run))).collect();
        let mut nodes = BTreeMap::new();
        for (place, node) in spec.nodes.iter().enumerate() {
            let path = format!("{at}nodes[{place}]");
            if let Err(reason) = check_id(&node.id) {
                self.fault(&format!("{path}.id"), reason, "choose another name");
            }
            if spec.nodes[..place].iter().any(|other| other.id == node.id) {
                self.fault(&format!("{path}.id"), format!("\"{}\" is a duplicate", node.id), "rename one of them");
            }
            let built = self.node(node, &path, &names, &shapes);
            nodes.insert(node.id.clone(), built);
        }
        self.steps = self.steps.saturating_add(spec.nodes.len());
        if self.steps > STEPS_MAX {
            let reason = format!("it unfolds into {} steps, and {STEPS_MAX} are the most", self.steps);
            self.fault(&format!("{at}nodes"), reason, "run some of it as jobs of their own, by a tool");
        }
        self.steps = self.steps.saturating_add(steps_around);
        self.acyclic(spec, at);
        self.routes_lead_somewhere(spec, &shapes, at);
        self.within.pop();
        self.authors = around;
        let wanted = wanted(spec);
        Graph { id: spec.id.clone(), nodes, output: spec.output.clone(), wanted, deadline_s: spec.deadline_s }
    }

    fn node(&mut self, spec: &NodeSpec, path: &str, names: &[&NodeId], shapes: &BTreeMap<NodeId, Shape>) -> Node {
        let mut edges = Vec::new();
        for (place, edge) in spec.after.iter().enumerate() {
            let path = format!("{path}.after[{place}]");
            edges.extend(self.edge(edge, &path, names, shapes));
        }
        if spec.retry.times == 0 || spec.retry.times > TRIES_MAX {
            self.fault(
                &format!("{path}.retry.times"),
                format!("{} is not 1 to {TRIES_MAX}", spec.retry.times),
                "1 tries once",
            );
        }
        self.seconds(spec.timeout_s, &format!("{path}.timeout_s"));
        let tried = match &spec.run {
            NodeRun::Neuron(_) | NodeRun::Tool(_) => true,
            NodeRun::Map(map) => !matches!(*map.run, NodeRun::Fascicle(_)),
            NodeRun::Repeat(repeat) => !matches!(*repeat.run, NodeRun::Fascicle(_)),
            _ => false,
        };
        if spec.timeout_s.is_some() && !tried {
            let cure = "bound the nodes within it, or the whole by deadline_s; a wait has a timeout_s of its own";
            self.fault(&format!("{path}.timeout_s"), "it bounds one try of a neuron or a tool", cure);
        }
        if spec.retry != Retry::default() && !tried {
            let reason = "only a neuron or a tool is tried again";
            self.fault(&format!("{path}.retry"), reason, "say it of the nodes within");
        }
        self.observed(spec, path);
        let work = self.work(spec, &format!("{path}.run"), shapes);
        let fall_back = match &spec.on_failure {
            OnFailure::FallBack(run) => self.body(run, &format!("{path}.on_failure.fall_back")),
            _ => None,
        };
        Node { spec: spec.clone(), edges, work, fall_back }
    }

    fn edge(&mut self, edge: &Edge, path: &str, names: &[&NodeId], shapes: &BTreeMap<NodeId, Shape>) -> Option<Way> {
        let Some(shape) = shapes.get(&edge.node) else {
            let cure = format!("name one of {}", listed(names));
            self.fault(&format!("{path}.node"), format!("there is no node \"{}\"", edge.node), cure);
            return None;
        };
        if let Some(route) = &edge.route {
            let reason = match shape {
                Shape::Routes(known) if known.is_empty() || known.contains(route) => None,
                Shape::Routes(known) => Some((
                    format!("\"{}\" never sends anything to \"{route}\"", edge.node),
                    format!("it sends to {}", listed(&known.iter().collect::<Vec<_>>())),
                )),
                Shape::Any => None,
                _ => Some((
                    format!("\"{}\" is no router and no branch", edge.node),
                    "leave route out, or test the output by when".to_owned(),
                )),
            };
            if let Some((reason, cure)) = reason {
                self.fault(&format!("{path}.route"), reason, cure);
            }
            if edge.take != Take::Output {
                self.fault(&format!("{path}.take"), "a route brings what was sent that way", "leave take out");
            }
        }
        let when = edge.when.as_ref().and_then(|when| {
            self.pointer(shape, &when.at, &format!("{path}.when.at"), &edge.node);
            self.test(when, &format!("{path}.when"))
        });
        if let Take::Part(Part { at, .. }) = &edge.take {
            self.pointer(shape, at, &format!("{path}.take.part.at"), &edge.node);
        }
        match Mapping::build(&edge.take) {
            Ok(mapping) => Some(Way::new(edge.node.clone(), edge.route.clone(), when, mapping)),
            Err(reason) => {
                self.fault(&format!("{path}.take.part.is"), reason, "write a JSON Schema (2020-12)");
                None
            }
        }
    }

    fn work(&mut self, spec: &NodeSpec, path: &str, shapes: &BTreeMap<NodeId, Shape>) -> Work {
        let nothing = || Work::Join(Join::Events);
        match &spec.run {
            NodeRun::Neuron(_) | NodeRun::Fascicle(_) | NodeRun::Tool(_) => {
                self.body(&spec.run, path).map_or_else(nothing, Work::One)
            }
            NodeRun::Map(map) => self.map(map, spec, &format!("{path}.map"), shapes).unwrap_or_else(nothing),
            NodeRun::Repeat(repeat) => self.repeat(repeat, &format!("{path}.repeat")).unwrap_or_else(nothing),
            NodeRun::Join(into) => Work::Join(*into),
            NodeRun::Branch(branch) => self.branch(branch, &format!("{path}.branch")),
            NodeRun::Wait(wait) => {
                self.seconds(wait.timeout_s, &format!("{path}.wait.timeout_s"));
                let is = wait.is.as_ref().and_then(|is| self.schema(is, &format!("{path}.wait.is")));
                Work::Wait(wait.clone(), is)
            }
            NodeRun::Approve(approve) => {
                self.seconds(approve.timeout_s, &format!("{path}.approve.timeout_s"));
                Work::Approve(approve.clone())
            }
        }
    }

    fn map(&mut self, map: &MapNode, spec: &NodeSpec, path: &str, shapes: &BTreeMap<NodeId, Shape>) -> Option<Work> {
        if map.parallel == 0 || map.parallel > PARALLEL_MAX {
            self.fault(
                &format!("{path}.parallel"),
                format!("{} is not 1 to {PARALLEL_MAX}", map.parallel),
                "4 is the default",
            );
        }
        if map.items_max == 0 || map.items_max > ITEMS_MAX {
            self.fault(
                &format!("{path}.items_max"),
                format!("{} is not 1 to {ITEMS_MAX}", map.items_max),
                "100 is the default",
            );
        }
        self.syntax(&map.over.at, &format!("{path}.over.at"));
        // The type of the list is known only if an edge delivers the whole output.
        let whole = spec.after.iter().filter(|edge| edge.take == Take::Output && edge.route.is_none());
        let from = match &map.over.role {
            Some(role) => whole.clone().find(|edge| edge.node == *role),
            None if spec.after.len() == 1 && !spec.reads_input() => whole.clone().next(),
            None => None,
        };
        if let Some((edge, shape)) = from.and_then(|edge| Some((edge, shapes.get(&edge.node)?))) {
            let path = format!("{path}.over");
            self.pointer(shape, &map.over.at, &format!("{path}.at"), &edge.node);
            let no_list = match shape {
                Shape::Text => true,
                Shape::Json(schema) => part_of(schema, &map.over.at)
                    .is_ok_and(|part| part.is_some_and(|part| part["type"].as_str().is_some_and(|of| of != "array"))),
                _ => false,
            };
            if no_list {
                let reason = format!("what \"{}\" brings there is no list", edge.node);
                self.fault(&path, reason, "point at an array, or let a structured_output neuron make one");
            }
        }
        let body = self.body(&map.run, &format!("{path}.run"))?;
        Some(Work::Map { over: map.over.clone(), body, parallel: map.parallel, items_max: map.items_max })
    }

    fn repeat(&mut self, repeat: &RepeatNode, path: &str) -> Option<Work> {
        if repeat.times == 0 || repeat.times > ROUNDS_MAX {
            self.fault(&format!("{path}.times"), format!("{} is not 1 to {ROUNDS_MAX}", repeat.times), "bound it");
        }
        let shape = self.shape(&repeat.run);
        self.pointer(&shape, &repeat.until.at, &format!("{path}.until.at"), "run");
        let until = self.test(&repeat.until, &format!("{path}.until"));
        let body = self.body(&repeat.run, &format!("{path}.run"))?;
        Some(Work::Repeat { body, times: repeat.times, until: until?, exhausted: repeat.exhausted })
    }

    fn branch(&mut self, branch: &BranchNode, path: &str) -> Work {
        if branch.cases.is_empty() {
            self.fault(&format!("{path}.cases"), "there is no case", "add one, or use edges with when");
        }
        let mut cases = Vec::new();
        for (place, case) in branch.cases.iter().enumerate() {
            let path = format!("{path}.cases[{place}]");
            self.syntax(&case.at, &format!("{path}.at"));
            let taken = Taken { role: case.role.clone(), at: case.at.clone() };
            let is = Condition { at: String::new(), is: case.is.clone() };
            cases.extend(self.test(&is, &path).map(|test| (case.route.clone(), taken, test)));
        }
        Work::Branch { cases, otherwise: branch.otherwise.clone() }
    }

    /// Checks a server tool that is defined in its node.
    fn server_tool(&mut self, spec: &ToolSpec, name: &str, by: CalledBy, path: &str) {
        if let Err(reason) = spec.check() {
            self.fault(&format!("{path}.spec"), reason, "mend the tool");
        }
        if spec.run == Runner::Client {
            self.fault(
                &format!("{path}.spec.run"),
                "a tool of the client needs no spec",
                "name it, and say by = \"client\"",
            );
        }
        if spec.is_many() {
            self.fault(
                &format!("{path}.spec.run"),
                "it stands for many tools, and a node calls one",
                "name one of them",
            );
        }
        if !name.is_empty() && name != spec.name {
            self.fault(
                &format!("{path}.name"),
                format!("it is \"{name}\" here and \"{}\" in the spec", spec.name),
                "leave it out",
            );
        }
        if by != CalledBy::Owner {
            self.fault(&format!("{path}.by"), "a tool with a spec is called by the server", "leave it out");
        }
    }

    /// Builds the body of a node, a map, a repeat or a fallback.
    fn body(&mut self, run: &NodeRun, path: &str) -> Option<Body> {
        match run {
            NodeRun::Neuron(node) => self.neuron(node, &format!("{path}.neuron")),
            NodeRun::Tool(ToolNode { spec: Some(spec), name, arguments, by }) => {
                self.server_tool(spec, name, *by, &format!("{path}.tool"));
                self.leaf(Action::Call { tool: spec.clone(), arguments: arguments.clone() })
            }
            NodeRun::Tool(tool) => {
                let unknown = tool.by == CalledBy::Owner && self.tools.is_some_and(|tools| !tools.contains(&tool.name));
                if unknown {
                    let known: Vec<&Arc<str>> = self.tools.into_iter().flatten().collect();
                    let cure = format!("use one of {}, or let the client call it (by = \"client\")", listed(&known));
                    self.fault(&format!("{path}.tool.name"), format!("there is no tool \"{}\"", tool.name), cure);
                }
                let (name, arguments, by) = (tool.name.clone(), tool.arguments.clone(), tool.by);
                self.leaf(Action::Tool { name, arguments, by })
            }
            NodeRun::Fascicle(node) => {
                let path = format!("{path}.fascicle.id");
                if self.within.contains(&node.id) {
                    self.fault(
                        &path,
                        format!("\"{}\" stands within itself", node.id),
                        "use repeat for what comes again",
                    );
                    return None;
                }
                if self.within.len() >= DEPTH_MAX {
                    self.fault(
                        &path,
                        format!("fascicles stand {DEPTH_MAX} deep at most"),
                        "put some of them side by side",
                    );
                    return None;
                }
                let known_as = (node.id.clone(), self.authors.clone());
                if let Some((known, steps)) = self.built.get(&known_as) {
                    self.steps = self.steps.saturating_add(*steps);
                    return Some(Body::Fascicle(known.clone()));
                }
                let Some(spec) = self.plan.fascicles.get(&node.id) else {
                    self.fault(
                        &path,
                        format!("there is no fascicle \"{}\"", node.id),
                        "define it first: GET /v1/fascicles lists them",
                    );
                    return None;
                };
                let before = self.steps;
                let graph = Arc::new(self.fascicle(spec, &format!("{path}({}).", node.id)));
                self.built.insert(known_as, (graph.clone(), self.steps.saturating_sub(before)));
                Some(Body::Fascicle(graph))
            }
            _ => {
                self.fault(
                    path,
                    "only a neuron, a fascicle or a tool can be run here",
                    "put it into a fascicle of its own",
                );
                None
            }
        }
    }

    fn neuron(&mut self, node: &NeuronNode, path: &str) -> Option<Body> {
        let spec = match (&node.spec, &node.id) {
            (Some(spec), None) => {
                // The plan of a job may hold tools that were resolved before.
                let checked = if self.tools.is_none() { spec.check_resolved() } else { spec.check() };
                if let Err(reason) = checked {
                    self.fault(&format!("{path}.spec"), reason, "see docs/src/concepts/neurons.md");
                }
                spec.clone()
            }
            (None, Some(id)) => match self.plan.neurons.get(id) {
                Some(spec) => Box::new(spec.clone()),
                None => {
                    self.fault(
                        &format!("{path}.id"),
                        format!("there is no neuron \"{id}\""),
                        "define it first: GET /v1/neurons lists them",
                    );
                    return None;
                }
            },
            _ => {
                self.fault(path, "a neuron is either defined here or one that is stored", "give spec or id");
                return None;
            }
        };
        let authors =
            node.id.as_ref().map_or_else(|| self.authors.clone(), |id| self.with_author(&format!("neuron:{id}")));
        Some(Body::Action(Arc::new(Action::Neuron { spec, stream: node.stream }), authors.into()))
    }

    fn seconds(&mut self, seconds: Option<u64>, path: &str) {
        if seconds.is_some_and(|seconds| seconds == 0 || seconds > SECONDS_MAX) {
            self.fault(path, format!("it is not 1 to {SECONDS_MAX} seconds"), "leave it out to wait without end");
        }
    }
}
