//! A job's decisions, without any I/O: facts in, effects out. Replaying the facts of the journal gives
//! the state a job had when the daemon stopped.

use std::collections::BTreeMap;

use nexus::Event;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::graph::Graph;
use crate::spec::{NodeId, NodeSpec};

/// What has happened to a job. Each is a journal entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "fact")]
pub enum Fact {
    /// The job was accepted with this input.
    Accepted {
        /// What it works on.
        events: Vec<Event>,
    },
    /// A node was announced; its work may be under way.
    Started {
        /// Which node.
        node: NodeId,
        /// 1 for the first try.
        attempt: u32,
    },
    /// A node ended; it is never run again.
    Done {
        /// Which node.
        node: NodeId,
        /// Its output.
        output: Value,
    },
    /// A try of a node failed.
    Failed {
        /// Which node.
        node: NodeId,
        /// Why.
        error: String,
        /// Whether another try may help.
        retry: bool,
    },
    /// The daemon stopped while a node was under way.
    Interrupted {
        /// Which node.
        node: NodeId,
    },
    /// The world was told something.
    Observed(Observed),
    /// The job ended.
    Ended {
        /// How.
        status: Status,
        /// What it brought.
        output: Value,
        /// Why, if it failed.
        error: Option<String>,
    },
}

/// What the designer of a fascicle lets the world see (F4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// `evt_` and the ordinal.
    pub id: String,
    /// The node.
    pub stage: NodeId,
    /// `stage_started`, `stage_completed` or `info`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is said.
    pub message: String,
}

/// How a job stands (F3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Accepted, nothing started.
    #[default]
    Pending,
    /// Something is under way.
    Running,
    /// It brought its output.
    Completed,
    /// It failed.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl Status {
    /// Whether nothing more will happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// What must be done once the facts are committed.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Which node.
    pub node: NodeId,
    /// 1 for the first try.
    pub attempt: u32,
    /// What the job works on.
    pub input: Vec<Event>,
    /// What it reads: the job's input if it wants it, then the outputs it waits for.
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    Waiting,
    Started(u32),
    Done(Value),
}

/// Tries of one node.
const ATTEMPTS_MAX: u32 = 3;
/// Tries of one node when it was the daemon that stopped: a node that stops it every time must not be
/// paid for at every start.
const RESTARTS_MAX: u32 = 10;

/// See the module.
#[derive(Debug)]
pub struct Run {
    graph: Graph,
    input: Vec<Event>,
    nodes: BTreeMap<NodeId, State>,
    status: Status,
    observed: usize,
}

impl Run {
    /// A job of `graph` about which nothing is known yet.
    pub fn new(graph: Graph) -> Self {
        let nodes = graph.nodes().map(|node| (node.id.clone(), State::Waiting)).collect();
        Self { graph, input: Vec::new(), nodes, status: Status::Pending, observed: 0 }
    }

    /// How it stands.
    pub fn status(&self) -> Status {
        self.status
    }

    /// A node that is under way, the first by name.
    pub fn current(&self) -> Option<&NodeId> {
        self.nodes.iter().find(|(_, state)| matches!(state, State::Started(_))).map(|(id, _)| id)
    }

    /// Takes note of a fact.
    pub fn apply(&mut self, fact: &Fact) {
        match fact {
            Fact::Accepted { events } => self.input.clone_from(events),
            Fact::Started { node, attempt } => {
                self.status = Status::Running;
                self.nodes.insert(node.clone(), State::Started(*attempt));
            }
            Fact::Done { node, output } => drop(self.nodes.insert(node.clone(), State::Done(output.clone()))),
            Fact::Failed { .. } | Fact::Interrupted { .. } => {}
            Fact::Observed(_) => self.observed += 1,
            Fact::Ended { status, .. } => self.status = *status,
        }
    }

    /// What follows from `news`: facts to commit, `news` first, and what to start afterwards. News
    /// about a job that ended, or about a try that is not the present one, changes nothing.
    pub fn on(&mut self, news: Fact) -> (Vec<Fact>, Vec<Start>) {
        let stale = match &news {
            Fact::Done { node, .. } | Fact::Failed { node, .. } | Fact::Interrupted { node } => {
                !matches!(self.nodes.get(node), Some(State::Started(_)))
            }
            _ => false,
        };
        if self.status.is_final() || stale {
            return (Vec::new(), Vec::new());
        }
        let (mut facts, mut starts) = (Vec::new(), Vec::new());
        self.note(news.clone(), &mut facts);
        let ended = match &news {
            Fact::Done { node, .. } => {
                self.observe(node, false, &mut facts);
                false
            }
            Fact::Failed { node, error, retry } => {
                let tries = if *retry { ATTEMPTS_MAX } else { 0 };
                self.again(node, tries, error, &mut facts, &mut starts)
            }
            Fact::Interrupted { node } => {
                let error = "the daemon stopped each time this was tried";
                self.again(node, RESTARTS_MAX, error, &mut facts, &mut starts)
            }
            _ => false,
        };
        if ended {
            return (facts, starts);
        }
        self.advance(&mut facts, &mut starts);
        (facts, starts)
    }

    /// Tries a node again if it was tried less than `max` times; else passes it over or ends the job.
    /// Answers whether the job has ended.
    fn again(&mut self, node: &NodeId, max: u32, error: &str, facts: &mut Vec<Fact>, starts: &mut Vec<Start>) -> bool {
        let attempt = match self.nodes.get(node) {
            Some(State::Started(attempt)) => *attempt,
            _ => 1,
        };
        if attempt < max {
            self.start(node, attempt + 1, facts, starts);
        } else if self.graph.node(node).is_some_and(|node| node.optional) {
            self.note(Fact::Done { node: node.clone(), output: Value::Null }, facts);
        } else {
            let error = Some(format!("{node}: {error}"));
            self.note(Fact::Ended { status: Status::Failed, output: Value::Null, error }, facts);
            return true;
        }
        false
    }

    /// What was announced and has not ended.
    pub fn under_way(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, state)| matches!(state, State::Started(_))).map(|(id, _)| id.clone()).collect()
    }

    fn note(&mut self, fact: Fact, facts: &mut Vec<Fact>) {
        self.apply(&fact);
        facts.push(fact);
    }

    /// Starts whatever waits for nothing more; ends the job when nothing is left.
    fn advance(&mut self, facts: &mut Vec<Fact>, starts: &mut Vec<Start>) {
        let done = |id: &NodeId| matches!(self.nodes.get(id), Some(State::Done(_)));
        let ready: Vec<NodeId> = self
            .graph
            .nodes()
            .filter(|node| self.nodes[&node.id] == State::Waiting && node.after.iter().all(done))
            .map(|node| node.id.clone())
            .collect();
        let mut passed_over = false;
        for id in ready {
            let empty = self.graph.node(&id).is_some_and(|node| node.needs_events && self.reads(node).is_empty());
            if empty {
                self.note(Fact::Done { node: id, output: Value::Null }, facts);
                passed_over = true;
            } else {
                self.start(&id, 1, facts, starts);
            }
        }
        if passed_over {
            return self.advance(facts, starts);
        }
        if self.nodes.values().all(|state| matches!(state, State::Done(_))) {
            let output = match &self.nodes[self.graph.output()] {
                State::Done(output) => output.clone(),
                _ => Value::Null,
            };
            self.note(Fact::Ended { status: Status::Completed, output, error: None }, facts);
        }
    }

    fn start(&mut self, id: &NodeId, attempt: u32, facts: &mut Vec<Fact>, starts: &mut Vec<Start>) {
        self.note(Fact::Started { node: id.clone(), attempt }, facts);
        if attempt == 1 {
            self.observe(id, true, facts);
        }
        if let Some(node) = self.graph.node(id) {
            starts.push(Start { node: id.clone(), attempt, input: self.input.clone(), events: self.reads(node) });
        }
    }

    /// The events a node reads. An output of the shape `{events: […]}` is those events; any other is
    /// one event in the role of its node.
    fn reads(&self, node: &NodeSpec) -> Vec<Event> {
        let mut events = if node.reads_input { self.input.clone() } else { Vec::new() };
        for id in &node.after {
            let Some(State::Done(output)) = self.nodes.get(id) else { continue };
            match output.get("events").and_then(Value::as_array) {
                Some(given) => {
                    events.extend(given.iter().filter_map(|event| serde_json::from_value(event.clone()).ok()))
                }
                None if output.is_null() => {}
                None => events.push(Event::json(id, output.clone(), nexus::Cause::default())),
            }
        }
        events
    }

    fn observe(&mut self, id: &NodeId, starting: bool, facts: &mut Vec<Fact>) {
        let Some(observe) = self.graph.node(id).and_then(|node| node.observe.clone()) else { return };
        let (kind, message) =
            if starting { ("stage_started", observe.start) } else { ("stage_completed", observe.end) };
        if let Some(message) = message {
            let observed =
                Observed { id: format!("evt_{:03}", self.observed + 1), stage: id.clone(), kind: kind.into(), message };
            self.note(Fact::Observed(observed), facts);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::spec::{FascicleSpec, NodeRun};

    fn diamond() -> Run {
        let tool = |id: &str, after: &[&str], optional: bool| NodeSpec {
            id: id.into(),
            after: after.iter().map(|id| NodeId::from(*id)).collect(),
            run: NodeRun::Tool { name: "t".into(), arguments: Value::Null },
            observe: None,
            reads_input: true,
            needs_events: false,
            optional,
        };
        let nodes = vec![
            tool("a", &[], false),
            tool("b", &["a"], false),
            tool("c", &["a"], true),
            tool("d", &["b", "c"], false),
        ];
        Run::new(
            Graph::build(&FascicleSpec { id: "diamond".into(), description: String::new(), output: "d".into(), nodes })
                .unwrap(),
        )
    }

    fn done(node: &str) -> Fact {
        Fact::Done { node: node.into(), output: json!(node) }
    }

    fn started(starts: &[Start]) -> Vec<&str> {
        starts.iter().map(|start| &*start.node).collect()
    }

    #[test]
    fn branches_run_together_and_meet_again() {
        let mut run = diamond();
        assert_eq!(started(&run.on(Fact::Accepted { events: vec![] }).1), ["a"]);
        assert_eq!(started(&run.on(done("a")).1), ["b", "c"]);
        assert!(run.on(done("c")).1.is_empty());
        let (_, starts) = run.on(done("b"));
        assert_eq!(
            starts[0].events.iter().map(|event| event.content.clone()).collect::<Vec<_>>(),
            [json!("b"), json!("c")]
        );
        let (facts, _) = run.on(done("d"));
        assert_eq!(facts.last(), Some(&Fact::Ended { status: Status::Completed, output: json!("d"), error: None }));
    }

    #[test]
    fn a_finished_node_is_never_run_again_wherever_the_daemon_stopped() {
        let news = [Fact::Accepted { events: vec![] }, done("a"), done("b"), done("c"), done("d")];
        let mut run = diamond();
        let journal: Vec<Fact> = news.iter().flat_map(|news| run.on(news.clone()).0).collect();
        for cut in 0..=journal.len() {
            let mut again = diamond();
            journal[..cut].iter().for_each(|fact| again.apply(fact));
            let finished: Vec<&NodeId> = journal[..cut]
                .iter()
                .filter_map(|fact| if let Fact::Done { node, .. } = fact { Some(node) } else { None })
                .collect();
            assert!(again.under_way().iter().all(|node| !finished.contains(&node)), "cut at {cut}");
        }
    }

    #[test]
    fn a_failure_is_tried_again_and_then_fails_the_job_unless_the_node_is_optional() {
        let failed = |node: &str| Fact::Failed { node: node.into(), error: "no".into(), retry: true };
        let mut run = diamond();
        run.on(Fact::Accepted { events: vec![] });
        run.on(done("a"));
        assert_eq!(run.on(failed("c")).1[0].attempt, 2);
        assert_eq!(run.on(failed("c")).1[0].attempt, 3);
        assert!(run.on(failed("c")).0.contains(&Fact::Done { node: "c".into(), output: Value::Null }));
        let (facts, _) = run.on(Fact::Failed { node: "b".into(), error: "no".into(), retry: false });
        assert!(matches!(facts.last(), Some(Fact::Ended { status: Status::Failed, .. })));
        assert!(run.on(done("b")).0.is_empty(), "news after the end changes nothing");
    }
}
