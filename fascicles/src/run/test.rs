//! Unit tests of the run.

use serde_json::{Value, json};
use store::{Event, Timestamp};

use super::{Answer, Effect, Fact, Outcome, Run, RunInput, Start, Status, Step, Taint, WaitState};
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

fn accepted() -> RunInput {
    RunInput::Accepted { events: vec![Event::text("user", "hello", store::Cause::default())], deadline_at: None }
}

fn done(step: &str) -> RunInput {
    RunInput::Done { step: step.into(), attempt: 1, output: json!(step), taint: Taint::Clean }
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
fn a_failed_step_is_retried_and_then_follows_its_failure_policy() {
    let failed = |step: &str, attempt: u32, retry: bool| RunInput::Failed {
        step: step.into(),
        attempt,
        error: "no".into(),
        retry,
    };
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
    let again = run.on(RunInput::Retried, now());
    assert_eq!(started(&again), ["b"], "only what failed is run again");
    assert_eq!(starts(&again)[0].attempt, 2);
}

#[test]
fn each_wait_of_a_parallel_branch_is_answered_exactly_once() {
    let wait = |id: &str| json!({"id": id, "run": {"wait": {"event": "e", "timeout_s": 60}}});
    let mut run = run(
        json!([
            wait("x"),
            wait("y"),
            {"id": "ok", "run": {"approve": {"message": "sure?"}}},
            {"id": "all", "after": ["x", "y", "ok"], "requires": "all", "run": {"join": "object"}},
        ]),
        "all",
    );
    run.on(accepted(), now());
    let waits: Vec<(Step, u32)> = run.waits().map(|(step, wait)| (step.clone(), wait.n)).collect();
    assert_eq!(waits.len(), 3);
    assert_eq!(run.status(), Status::WaitingForApproval);
    let number = |of: &str| waits.iter().find(|(step, _)| &**step == of).unwrap().1;
    let answer = |of: &str, body: &str, answer| RunInput::Answered { wait: number(of), body: body.into(), answer };
    run.on(answer("y", "1", Answer::Event(json!("from y"))), now());
    assert_eq!(run.wait_state(number("y"), "1"), WaitState::Given);
    assert_eq!(run.wait_state(number("y"), "2"), WaitState::GivenOther);
    assert!(run.on(answer("y", "2", Answer::Event(json!("else"))), now()).facts.is_empty());
    let approval = Answer::Approval { approved: true, comment: None, by: "user:ada".into() };
    run.on(answer("ok", "1", approval), now());
    assert_eq!(run.due(), Some(now() + jiff::SignedDuration::from_secs(60)));
    run.on(RunInput::Tick, now() + jiff::SignedDuration::from_secs(59));
    assert!(!run.status().is_final());
    run.on(RunInput::Tick, now() + jiff::SignedDuration::from_secs(60));
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(run.wait_state(number("x"), "1"), WaitState::Over);
}

#[test]
fn a_map_works_on_so_many_items_at_once_and_keeps_their_order() {
    let mut run = run(
        json!([
            {"id": "each", "run": {"map": {"over": {"at": "/items"}, "parallel": 2, "run": {"tool": {"name": "t"}}}}},
        ]),
        "each",
    );
    let events = vec![Event::json("user", json!({"items": ["a", "b", "c"]}), store::Cause::default())];
    let out = run.on(RunInput::Accepted { events, deadline_at: None }, now());
    assert_eq!(started(&out), ["each[0]", "each[1]"]);
    assert_eq!(starts(&out)[1].events[0].content, json!("b"));
    assert_eq!(started(&run.on(done("each[1]"), now())), ["each[2]"]);
    run.on(done("each[2]"), now());
    run.on(done("each[0]"), now());
    assert_eq!(run.output(), json!(["each[0]", "each[1]", "each[2]"]));
}

#[test]
fn an_output_over_the_size_limit_fails_its_node() {
    let large = "x".repeat(super::OUTPUT_BYTES_MAX * 3);
    let events = || (0..2).map(|_| Event::json("user", json!(large), store::Cause::default())).collect();
    for (run_of, says) in [
        (json!({"join": "list"}), "its output has"),
        (json!({"branch": {"cases": [{"route": "a", "is": {"type": "string"}}]}}), "its output has"),
        (json!({"approve": {"message": "?"}}), "what is to be approved has"),
        (json!({"map": {"run": {"tool": {"name": "t"}}}}), "is no list"),
    ] {
        for policy in ["fail_job", "fail_branch", "continue"] {
            let nodes = json!([
                {"id": "n", "run": run_of, "on_failure": policy},
                {"id": "o", "after": [{"node": "n", "take": "nothing"}], "run": {"join": "list"}},
            ]);
            let mut run = run(nodes, "o");
            let out = run.on(RunInput::Accepted { events: events(), deadline_at: None }, now());
            assert!(out.facts.len() < 10, "{policy}: {:?}", out.facts.len());
            match policy {
                "fail_job" => assert!(run.error().unwrap().contains(says), "{:?}", run.error()),
                "fail_branch" => assert_eq!(run.status(), Status::Failed),
                _ => assert_eq!(run.output(), json!([])),
            }
            if run.status() == Status::Failed {
                run.on(RunInput::Retried, now());
                assert_eq!(run.status(), Status::Failed, "it fails again, and ends");
            }
        }
    }
    // Sixty-four nodes, each of which reads all nodes before it.
    let nodes: Vec<Value> = (0..64)
        .map(|n| {
            json!({
                "id": format!("n{n}"),
                "run": {"join": "events"},
                "after": (0..n).map(|m| format!("n{m}")).collect::<Vec<_>>(),
            })
        })
        .collect();
    let mut run = run(json!(nodes), "n63");
    run.on(accepted(), now());
    assert!(run.error().unwrap().contains("it would read more than"), "{:?}", run.error());
}

#[test]
fn two_waits_that_expire_together_fail_a_job_once_and_for_all() {
    let wait = |id: &str, policy: Value| {
        json!({
            "id": id,
            "run": {"wait": {"event": "e", "timeout_s": 2}},
            "on_failure": policy,
        })
    };
    let instead = json!({"fall_back": {"tool": {"name": "t"}}});
    let mut run = run(
        json!([
            wait("a", json!("fail_job")),
            wait("b", instead),
            {"id": "z", "after": ["a", "b"], "run": {"join": "list"}},
        ]),
        "z",
    );
    run.on(accepted(), now());
    let later = now() + jiff::SignedDuration::from_secs(2);
    let out = run.on(RunInput::Tick, later);
    assert_eq!(run.status(), Status::Failed);
    assert!(started(&out).is_empty(), "nothing begins after the end");
    assert_eq!(out.facts.iter().filter(|fact| matches!(fact, Fact::Ended { .. })).count(), 1);
    // After a retry, both waits are opened again.
    run.on(RunInput::Retried, later);
    assert_eq!(run.waits().count(), 2);
    assert_eq!(run.due(), Some(later + jiff::SignedDuration::from_secs(2)));
}

#[test]
fn a_wait_that_expired_in_downtime_starts_its_successors_once() {
    let nodes = json!([
        {"id": "w", "run": {"wait": {"event": "e", "timeout_s": 60}}, "on_failure": "continue"},
        {"id": "busy", "run": {"tool": {"name": "t"}}},
        {"id": "n", "after": ["w"], "run": {"tool": {"name": "t"}}},
        {"id": "z", "after": ["n", "busy"], "requires": "all", "run": {"join": "list"}},
    ]);
    let mut before = run(nodes.clone(), "z");
    let journal = before.on(accepted(), now()).facts;
    let mut after = run(nodes, "z");
    journal.iter().for_each(|fact| after.apply(fact));
    let out = after.on(RunInput::Restarted, now() + jiff::SignedDuration::from_secs(61));
    let mut begun = started(&out);
    begun.sort_unstable();
    assert_eq!(begun, ["busy", "n"]);
    assert!(starts(&out).iter().all(|start| start.again == (&*start.step == "busy")));
}

#[test]
fn a_branch_that_was_given_up_is_tried_again_with_its_job() {
    let tool = |id: &str, after: &[&str]| {
        json!({
            "id": id,
            "after": after,
            "run": {"tool": {"name": "t"}},
            "on_failure": "fail_branch",
        })
    };
    let mut run = run(json!([tool("a", &[]), tool("b", &["a"])]), "b");
    run.on(accepted(), now());
    run.on(RunInput::Failed { step: "a".into(), attempt: 1, error: "no".into(), retry: false }, now());
    assert_eq!(run.status(), Status::Failed);
    assert_eq!(started(&run.on(RunInput::Retried, now())), ["a"]);
    run.on(RunInput::Done { step: "a".into(), attempt: 2, output: json!(1), taint: Taint::Clean }, now());
    run.on(done("b"), now());
    assert_eq!(run.output(), json!("b"));
}

#[test]
fn a_daemon_that_dies_of_a_step_does_not_die_of_it_for_ever() {
    let mut run = diamond();
    run.on(accepted(), now());
    for _ in 0..super::RESTARTS_MAX {
        assert_eq!(starts(&run.on(RunInput::Restarted, now()))[0].attempt, 1);
    }
    run.on(RunInput::Restarted, now());
    assert_eq!(run.status(), Status::Failed);
}
