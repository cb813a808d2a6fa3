//! Single claims about a run.

use nexus::{Event, Timestamp};
use serde_json::{Value, json};

use super::{Answer, Effect, Fact, News, Outcome, Run, Standing, Start, Status, Step};
use crate::graph::{Graph, Plan};

fn run(nodes: Value, output: &str) -> Run {
    let root = serde_json::from_value(json!({"id": "f", "output": output, "nodes": nodes})).unwrap();
    Run::new(Graph::build(&Plan { root, ..Plan::default() }, None).unwrap())
}

fn diamond() -> Run {
    let tool = |id: &str, after: &[&str]| json!({"id": id, "after": after, "run": {"tool": {"name": "t"}}});
    let mut c = tool("c", &["a"]);
    c["on_failure"] = json!("continue");
    run(json!([tool("a", &[]), tool("b", &["a"]), c, tool("d", &["b", "c"])]), "d")
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn accepted() -> News {
    News::Accepted { events: vec![Event::text("user", "hello", nexus::Cause::default())], deadline_at: None }
}

fn done(step: &str) -> News {
    News::Done { step: step.into(), attempt: 1, output: json!(step) }
}

fn starts(out: &Outcome) -> Vec<&Start> {
    out.effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Start(start) => Some(start),
            Effect::Stop(_) => None,
        })
        .collect()
}

fn started(out: &Outcome) -> Vec<&str> {
    starts(out).into_iter().map(|start| &*start.step).collect()
}

#[test]
fn branches_run_together_and_meet_again() {
    let mut run = diamond();
    assert_eq!(started(&run.on(accepted(), now())), ["a"]);
    assert_eq!(started(&run.on(done("a"), now())), ["b", "c"]);
    assert!(run.on(done("c"), now()).effects.is_empty());
    let out = run.on(done("b"), now());
    let read: Vec<Value> = starts(&out)[0].events.iter().map(|event| event.content.clone()).collect();
    assert_eq!(read, [json!("b"), json!("c")]);
    let out = run.on(done("d"), now());
    assert_eq!(out.facts.last(), Some(&Fact::Ended { status: Status::Completed, error: None }));
    assert_eq!(run.output(), json!("d"));
}

#[test]
fn a_failure_is_tried_again_and_then_fails_the_job_unless_its_node_says_otherwise() {
    let failed =
        |step: &str, attempt: u32, retry: bool| News::Failed { step: step.into(), attempt, error: "no".into(), retry };
    let mut run = diamond();
    run.on(accepted(), now());
    run.on(done("a"), now());
    let second = run.on(failed("c", 1, true), now());
    assert_eq!((starts(&second)[0].attempt, starts(&second)[0].delay_ms), (2, 200));
    let third = run.on(failed("c", 2, true), now());
    assert_eq!((starts(&third)[0].attempt, starts(&third)[0].delay_ms), (3, 400));
    assert!(run.on(failed("c", 2, true), now()).facts.is_empty(), "news of an earlier try change nothing");
    assert!(run.on(failed("c", 3, true), now()).facts.contains(&Fact::Passed { step: "c".into() }));
    run.on(failed("b", 1, false), now());
    assert_eq!((run.status(), run.error().map(String::as_str)), (Status::Failed, Some("b: no")));
    assert!(run.on(done("b"), now()).facts.is_empty(), "news after the end change nothing");
    let again = run.on(News::Retried, now());
    assert_eq!(started(&again), ["b"], "only what failed is run again");
    assert_eq!(starts(&again)[0].attempt, 2);
}

#[test]
fn waits_in_parallel_branches_are_answered_one_by_one_and_each_once() {
    let wait = |id: &str| json!({"id": id, "run": {"wait": {"event": "e", "timeout_s": 60}}});
    let mut run = run(
        json!([wait("x"), wait("y"), {"id": "ok", "run": {"approve": {"message": "sure?"}}}, {"id": "all", "after": ["x", "y", "ok"], "requires": "all", "run": {"join": "object"}}]),
        "all",
    );
    run.on(accepted(), now());
    let waits: Vec<(Step, u32)> = run.waits().map(|(step, wait)| (step.clone(), wait.n)).collect();
    assert_eq!(waits.len(), 3);
    assert_eq!(run.status(), Status::WaitingForApproval);
    let number = |of: &str| waits.iter().find(|(step, _)| &**step == of).unwrap().1;
    let answer = |of: &str, body: &str, answer| News::Answered { wait: number(of), body: body.into(), answer };
    run.on(answer("y", "1", Answer::Event(json!("from y"))), now());
    assert_eq!(run.standing(number("y"), "1"), Standing::Given);
    assert_eq!(run.standing(number("y"), "2"), Standing::GivenOther);
    assert!(run.on(answer("y", "2", Answer::Event(json!("else"))), now()).facts.is_empty());
    let approval = Answer::Approval { approved: true, comment: None, by: "user:ada".into() };
    run.on(answer("ok", "1", approval), now());
    assert_eq!(run.due(), Some(now() + jiff::SignedDuration::from_secs(60)));
    run.on(News::Tick, now() + jiff::SignedDuration::from_secs(59));
    assert!(!run.status().is_final());
    run.on(News::Tick, now() + jiff::SignedDuration::from_secs(60));
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(run.standing(number("x"), "1"), Standing::Over);
}

#[test]
fn a_map_works_on_so_many_items_at_once_and_keeps_their_order() {
    let mut run = run(
        json!([{"id": "each", "run": {"map": {"over": {"at": "/items"}, "parallel": 2, "run": {"tool": {"name": "t"}}}}}]),
        "each",
    );
    let events = vec![Event::json("user", json!({"items": ["a", "b", "c"]}), nexus::Cause::default())];
    let out = run.on(News::Accepted { events, deadline_at: None }, now());
    assert_eq!(started(&out), ["each[0]", "each[1]"]);
    assert_eq!(starts(&out)[1].events[0].content, json!("b"));
    assert_eq!(started(&run.on(done("each[1]"), now())), ["each[2]"]);
    run.on(done("each[2]"), now());
    run.on(done("each[0]"), now());
    assert_eq!(run.output(), json!(["each[0]", "each[1]", "each[2]"]));
}

#[test]
fn a_daemon_that_dies_of_a_step_does_not_die_of_it_for_ever() {
    let mut run = diamond();
    run.on(accepted(), now());
    for _ in 0..super::RESTARTS_MAX {
        assert_eq!(starts(&run.on(News::Restarted, now()))[0].attempt, 1);
    }
    run.on(News::Restarted, now());
    assert_eq!(run.status(), Status::Failed);
}
