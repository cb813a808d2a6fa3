//! Homeostasis as a fascicle of rules: read, run, replaced, and broken (MISSION L3).

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

use super::goals::{born, live, says};

/// Runs the rules of a fascicle on `facts` as a job, and returns the result.
async fn decided(client: &Client, fascicle: &str, facts: Value) -> Value {
    let body = json!({"input": {"events": [{"role": "state", "content": facts}]}});
    let job = client.post(&format!("/v1/fascicles/{fascicle}/execute"), body).await.expect(StatusCode::ACCEPTED);
    let job = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
    for _ in 0..20_000 {
        let found = client.get(&job).await.expect(StatusCode::OK);
        if found["status"] == "completed" {
            return found["output"]["events"][0]["content"].clone();
        }
        assert_ne!(found["status"], "failed", "{found}");
        tests::again().await;
    }
    panic!("the job never ended");
}

fn state(free: i64, hours: Option<f64>, mode: &str, task: &str) -> Value {
    json!({
        "free_tokens": free, "hours_left": hours, "mode": mode, "task": task, "strategy": "default", "is_urgent": false,
        "eco_below_tokens": 100, "eco_until_tokens": 200, "eco_below_hours": 8, "eco_until_hours": 10.0,
        "hyper_above_tokens": 1_000, "hyper_until_tokens": 800, "hunger": if free < 200 { 0.5 } else { 0.0 },
    })
}

#[tokio::test]
async fn the_shipped_rules_can_be_read_and_run_like_any_fascicle() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let defined = op.get("/v1/fascicles/homeostasis").await.expect(StatusCode::OK);
    let neurons: Vec<&str> =
        defined["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    assert_eq!((neurons, &defined["shipped"]), (vec!["resource_monitor", "heartbeat"], &json!(true)));
    for (free, hours, was, mode) in [
        (150, None, "standard", "standard"),
        (99, None, "standard", "eco"),
        (150, None, "eco", "eco"),
        (200, None, "eco", "standard"),
        (500, Some(7.0), "standard", "eco"),
        (500, Some(9.0), "standard", "standard"),
        (500, Some(9.0), "eco", "eco"),
        (500, Some(10.0), "eco", "standard"),
        (1_000, None, "standard", "standard"),
        (1_001, None, "standard", "hyper"),
        (801, None, "hyper", "hyper"),
        (800, None, "hyper", "standard"),
    ] {
        let found = decided(op, "homeostasis", state(free, hours, was, "beat")).await;
        assert_eq!(found["mode"], mode, "{free} {hours:?} {was}: {found}");
    }
    for (free, task, released, share) in [
        (50, "answer", true, 1.0),
        (50, "goal", false, 0.0),
        (150, "thought", false, 0.0),
        (500, "thought", true, 0.1),
        (500, "goal", true, 0.5),
        (500, "compaction", true, 1.0),
    ] {
        let found = decided(op, "homeostasis", state(free, None, "standard", task)).await;
        assert_eq!((&found["release"], &found["share"]), (&json!(released), &json!(share)), "{free} {task}: {found}");
    }
    let mut ordered = state(50, None, "standard", "beat");
    ordered["strategy"] = json!("force_hyper");
    assert_eq!(decided(op, "homeostasis", ordered).await["mode"], "hyper");
    op.delete("/v1/fascicles/homeostasis").await.refused(409, "shipped");
}

/// Rules of one neuron.
fn rules(rules: Value) -> Value {
    let spec = json!({"kind": "transformer", "transform": {"decide": rules}});
    json!({"id": "own_rules", "output": "all", "nodes": [{"id": "all", "run": {"neuron": {"spec": spec}}}]})
}

#[tokio::test]
async fn own_rules_release_by_person_and_broken_ones_are_passed_over() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let yes = json!({"mode": "standard", "release": true, "share": 1.0});
    let own = rules(json!([
        {"name": "never for Bob", "when": {"person": "user:bob", "task": "answer"}, "then": {"mode": "standard", "release": false, "share": 0.0}},
        {"name": "no goals", "when": {"task": "goal"}, "then": {"mode": "standard", "release": false, "share": 0.0}},
        {"name": "the rest", "then": yes},
    ]));
    op.post("/v1/fascicles", own).await.expect(StatusCode::CREATED);
    let definition = json!({"name": "Iris", "homeostasis": "own_rules", "metabolism": {"beat_ms": 1_000}});
    let (life, chat) = born(&daemon, definition).await;
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    let bob = daemon.person("user:bob", "participant").await;
    bob.say(&chat, "t", "Hello from Bob, how are you?").await;
    op.topic(&chat, "u").await;
    op.say(&chat, "u", "How are you today?").await;
    socket.until(says("u")).await;
    let listed = op.get(&format!("{life}/fascicles")).await.expect(StatusCode::OK);
    let rule = listed["fascicles"].as_array().unwrap().last().unwrap()["neurons"][0]["rule"].clone();
    assert_eq!(rule, "the rest", "{listed}");
    // The rules that are changed afterwards are checked when they are asked: those that decide nothing are passed over.
    let changed = rules(json!([{"name": "nothing", "then": {"weather": "fine"}}]));
    op.put("/v1/fascicles/own_rules", changed).await.expect(StatusCode::OK);
    daemon.clock.advance_ms(2_000);
    // The shipped rules answer Bob, too.
    socket.until(says("t")).await;
    let listed = op.get(&format!("{life}/fascicles")).await.expect(StatusCode::OK);
    let homeostasis = listed["fascicles"].as_array().unwrap().last().unwrap();
    let fault = homeostasis["neurons"][1]["state"]["fault"].as_str().unwrap();
    assert!(fault.contains("does not decide on mode"), "{homeostasis}");
}
