//! The model test: random fascicles run under random failures, crashes, and repeated and reordered replies. The result
//! must equal that of a plain sequential evaluation, and no work may be done twice.

mod evaluation;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::{Value, json};
use store::{Cause, Event, Timestamp};

use super::{Answer, Effect, Fact, Pause, Run, RunInput, Start, Status, Step, Taint};
use crate::graph::{Graph, Plan};
use crate::spec::FascicleSpec;
use evaluation::{Evaluation, is_clients, is_fall_back};

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The random reactions of the outside world, which are the same for the run and the evaluation.
struct World(u64);

impl World {
    /// Returns the number of failures of a step before it succeeds, and `true` if the failures are transient.
    fn fails(&self, step: &str) -> (u32, bool) {
        match hash((self.0, step, "fails")) % 10 {
            0 => (1, true),
            1 => (2, true),
            2 => (9, true),
            3 => (1, false),
            _ => (0, true),
        }
    }

    fn output(&self, step: &str, events: &[Event]) -> Value {
        let contents: Vec<String> = events.iter().map(|event| format!("{}={}", event.role, event.content)).collect();
        let seed = hash((self.0, step, contents));
        json!({"n": seed % 5, "items": (0..seed / 5 % 4).collect::<Vec<_>>()})
    }

    fn approves(&self, step: &str) -> bool {
        !hash((self.0, step, "approves")).is_multiple_of(4)
    }
}

// The plain evaluation.

// The run, with random inputs.

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = hash(self.0);
        (self.0 % bound.max(1) as u64) as usize
    }
}

struct Driven {
    run: Run,
    journal: Vec<Fact>,
    pending: Vec<Start>,
    said: Vec<RunInput>,
    now: Timestamp,
}

impl Driven {
    fn tell(&mut self, news: RunInput) {
        let out = self.run.on(news, self.now);
        self.journal.extend(out.facts);
        for effect in out.effects {
            match effect {
                Effect::Start(start) => self.pending.push(start),
                Effect::Stop(_) => {}
            }
        }
    }

    fn next(&mut self, world: &World, chance: &mut Chance, graph: &Arc<Graph>) {
        match chance.below(10) {
            // The daemon is killed: only the committed facts remain.
            0 => {
                let mut again = Run::new(graph.clone());
                self.journal.iter().for_each(|fact| again.apply(fact));
                self.run = again;
                self.pending.clear();
                return self.tell(RunInput::Restarted);
            }
            1 if !self.said.is_empty() => {
                let again = self.said[chance.below(self.said.len())].clone();
                return self.tell(again);
            }
            _ => {}
        }
        let waits: Vec<(Step, u32, Pause)> = self
            .run
            .waits()
            // Waits with a timeout get no answer: time passes instead, for all of them at once.
            .filter(|(_, wait)| wait.expires_at.is_none())
            .map(|(step, wait)| (step.clone(), wait.n, wait.pause.clone()))
            .collect();
        if self.run.due().is_some() && (chance.below(4) == 0 || self.pending.len() + waits.len() == 0) {
            self.now += jiff::SignedDuration::from_secs(60);
            return self.tell(RunInput::Tick);
        }
        if self.pending.is_empty() && waits.is_empty() {
            return;
        }
        let which = chance.below(self.pending.len() + waits.len());
        let news = if which < self.pending.len() {
            let start = self.pending.swap_remove(which);
            came_of(world, &start)
        } else {
            let (step, wait, pause) = waits[which - self.pending.len()].clone();
            let answer = match pause {
                Pause::Approval { .. } => {
                    Answer::Approval { approved: world.approves(&step), comment: None, by: "model".into() }
                }
                Pause::Event { .. } => Answer::Event(world.output(&step, &[])),
                Pause::Tools { tool_calls } => Answer::Results(vec![neurons::neuron::ToolResult {
                    id: tool_calls[0].id.clone(),
                    result: Some(tool_calls[0].params.clone()),
                    ..neurons::neuron::ToolResult::default()
                }]),
            };
            RunInput::Answered { wait, body: "answer".into(), answer }
        };
        self.said.push(news.clone());
        self.tell(news);
    }
}

fn came_of(world: &World, start: &Start) -> RunInput {
    let (step, attempt) = (start.step.clone(), start.attempt);
    if is_fall_back(&start.leaf) {
        let output = world.output(&format!("{step}!"), &start.events);
        return RunInput::Done { step, attempt, output, taint: Taint::Clean };
    }
    if is_clients(&start.leaf) {
        // The parameters of the call contain its future result.
        let params = world.output(&step, &start.events).to_string();
        let calls =
            vec![neurons::neuron::ToolCall { id: "call".into(), name: "client".into(), params, ..Default::default() }];
        return RunInput::Paused { step, attempt, calls };
    }
    let (fails, retry) = world.fails(&step);
    if attempt <= fails {
        return RunInput::Failed { step, attempt, error: "the world".into(), retry };
    }
    let output = world.output(&step, &start.events);
    RunInput::Done { step, attempt, output, taint: Taint::Clean }
}

// Random fascicles.

fn node(place: usize, prefix: &'static str, inner: bool) -> impl Strategy<Value = Value> {
    let edge = (0..place.max(1), 0..4_u8).prop_map(move |(from, how)| {
        let node = format!("{prefix}{from}");
        match how {
            0 => json!({"node": node, "when": {"at": "/n", "is": {"minimum": 2}}}),
            1 => json!({"node": node, "take": "nothing"}),
            2 => json!({"node": node, "take": {"part": {"at": "/n", "role": "n"}}}),
            _ => json!(node),
        }
    });
    let edges = prop::collection::vec(edge, 0..=place.min(3));
    let tool = json!({"tool": {"name": "t"}});
    let mut runs = vec![
        (6, Just(tool.clone()).boxed()),
        (2, Just(json!({"tool": {"name": "client", "by": "client"}})).boxed()),
        (1, prop_oneof![Just("events"), Just("object"), Just("list")].prop_map(|into| json!({"join": into})).boxed()),
        (1, Just(json!({
            "branch": {"cases": [{"route": "low", "at": "/n", "is": {"maximum": 1}}], "otherwise": "high"},
        })).boxed()),
        (1, Just(json!({"wait": {"event": "e"}})).boxed()),
        (1, Just(json!({"wait": {"event": "late", "timeout_s": 60}})).boxed()),
        (1, Just(json!({"approve": {"message": "?"}})).boxed()),
        (2, (1..4_usize).prop_map({
            let tool = tool.clone();
            move |parallel| json!({
                "map": {"over": {"at": "/items"}, "run": tool, "parallel": parallel, "items_max": 2},
            })
        }).boxed()),
        (2, (1..4_u32, any::<bool>()).prop_map({
            let tool = tool.clone();
            move |(times, accept)| json!({
                "repeat": {"run": tool, "times": times, "until": {"at": "/n", "is": {"minimum": 3}}, "exhausted": if accept { "accept" } else { "fail" }},
            })
        }).boxed()),
    ];
    if !inner {
        runs.push((2, Just(json!({"fascicle": {"id": "inner"}})).boxed()));
        runs.push((
            1,
            Just(json!({"map": {"over": {"at": "/items"}, "run": {"fascicle": {"id": "inner"}}, "parallel": 2}}))
                .boxed(),
        ));
        runs.push((1, Just(json!({
            "repeat": {"run": {"fascicle": {"id": "inner"}}, "times": 2, "until": {"at": "/n", "is": {"minimum": 3}}},
        })).boxed()));
    }
    let mut policies = vec![
        (3, Just(json!("fail_job")).boxed()),
        (1, Just(json!("fail_branch")).boxed()),
        (1, Just(json!("continue")).boxed()),
        (1, Just(json!({"fall_back": {"tool": {"name": "instead"}}})).boxed()),
    ];
    if !inner {
        policies.push((1, Just(json!({"fall_back": {"fascicle": {"id": "inner"}}})).boxed()));
    }
    let policy = prop::strategy::Union::new_weighted(policies);
    (edges, prop::strategy::Union::new_weighted(runs), policy, 1..4_u32, any::<bool>(), 0..6_u8).prop_map(
        move |(edges, run, policy, times, all, flags)| {
            let tried =
                run.get("tool").is_some() || ["map", "repeat"].iter().any(|it| run[*it]["run"].get("tool").is_some());
            json!({
                "id": format!("{prefix}{place}"), "after": edges, "run": run, "on_failure": policy,
                "retry": {"times": if tried { times } else { 3 }}, "requires": if all { "all" } else { "any" },
                "needs_events": flags == 0, "reads_input": flags < 3,
                "observe": {"start": "begins", "end": "ends {{ output }}"},
            })
        },
    )
}

fn fascicle(id: &'static str, prefix: &'static str, nodes_max: usize) -> impl Strategy<Value = FascicleSpec> {
    (1..=nodes_max).prop_flat_map(move |count| {
        let nodes: Vec<_> = (0..count).map(|place| node(place, prefix, id == "inner").boxed()).collect();
        nodes.prop_map(move |nodes| {
            let output = format!("{prefix}{}", nodes.len() - 1);
            serde_json::from_value(json!({"id": id, "output": output, "nodes": nodes}))
                .unwrap_or_else(|error| panic!("{error}"))
        })
    })
}

fn check(root: FascicleSpec, inner: FascicleSpec, seed: u64) {
    let plan = Plan { root, fascicles: [("inner".into(), inner)].into(), ..Plan::default() };
    // Definitions that cannot be built are skipped, such as those with pointers or routes that lead nowhere.
    let Ok(graph) = Graph::build(&plan, None) else { return };
    let world = World(seed);
    let input = vec![Event::json("user", json!({"n": 2, "items": [1, 2]}), Cause::default())];
    let mut evaluation = Evaluation { world: &world, leaves: BTreeMap::new() };
    let expected = evaluation.graph(&graph, &input, "");
    let mut driven = Driven {
        run: Run::new(graph.clone()),
        journal: Vec::new(),
        pending: Vec::new(),
        said: Vec::new(),
        now: Timestamp::UNIX_EPOCH,
    };
    driven.tell(RunInput::Accepted { events: input, deadline_at: None });
    let mut chance = Chance(seed);
    for _ in 0..20_000 {
        if driven.run.status().is_final() {
            break;
        }
        driven.next(&world, &mut chance, &graph);
    }
    // A retried job fails again at the same point, because the world has not changed, and repeats no completed work.
    if driven.run.status() == Status::Failed && seed.is_multiple_of(2) {
        let ended = driven.journal.len();
        driven.pending.clear();
        driven.tell(RunInput::Retried);
        for _ in 0..20_000 {
            if driven.run.status().is_final() {
                break;
            }
            driven.next(&world, &mut chance, &graph);
        }
        assert!(driven.run.status().is_final(), "a job that was taken up again ends again");
        let is_done = |fact: &Fact| matches!(fact, Fact::Done { .. });
        let (before, after) = driven.journal.split_at(ended);
        for done in after.iter().filter(|fact| is_done(fact)) {
            assert!(!before.contains(done), "{done:?} was done before");
        }
        return;
    }
    let Driven { run, journal, .. } = driven;
    match &expected {
        Ok(output) => {
            assert_eq!((run.status(), &run.output()), (Status::Completed, output), "{:?}", run.error());
        }
        Err(error) => assert_eq!(run.status(), Status::Failed, "{error}"),
    }
    let mut ended = BTreeSet::new();
    let mut ordinal = 0;
    for fact in &journal {
        match fact {
            Fact::Done { step, output } => {
                assert!(ended.insert(step.clone()), "{step} ended twice");
                if let Some(plainly) = evaluation.leaves.get(&**step) {
                    assert_eq!(plainly, output, "{step}");
                }
            }
            Fact::Observed(observed) => {
                ordinal += 1;
                assert_eq!(observed.id, format!("evt_{ordinal:03}"));
            }
            Fact::Started { step, .. } => assert!(!ended.contains(step), "{step} began again after its end"),
            _ => {}
        }
    }
    if expected.is_ok() {
        let observed = journal
            .iter()
            .filter(|fact| matches!(fact, Fact::Observed(observed) if observed.kind == "stage_completed"));
        let nodes = ended.iter().filter(|step| !step.ends_with(']'));
        assert_eq!(observed.count(), nodes.count(), "each node that ended was observed once");
    }
    // Replaying the journal must restore the same run.
    let mut again = Run::new(graph);
    journal.iter().for_each(|fact| again.apply(fact));
    assert_eq!((again.status(), again.output(), again.under_way()), (run.status(), run.output(), run.under_way()));
}

proptest! {
    #![proptest_config(Config { cases: 10_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_run_comes_to_what_a_plain_evaluation_comes_to(
        root in fascicle("root", "n", 7),
        inner in fascicle("inner", "m", 3),
        seed in any::<u64>(),
    ) {
        check(root, inner, seed);
    }
}
