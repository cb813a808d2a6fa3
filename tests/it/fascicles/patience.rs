//! Callers that wait for what is under way instead of asking again and again: `Prefer: wait` (RFC 7240 §4.3).

use std::sync::Arc;
use std::time::Duration;

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon};
use tokio::sync::Notify;

const WAIT: (&str, &str) = ("prefer", "respond-async, wait=60");

async fn daemon() -> (TestDaemon, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let held = go_on.clone();
    let daemon = TestDaemon::start(move |request, _| match request.messages[0].content.as_deref() {
        Some("You are held.") => Reply::Held("at".into(), held.clone(), " last".into()),
        _ => Reply::Text("at once".into()),
    })
    .await;
    let neuron = |memory: &str| json!([{"id": "say", "run": {"neuron": {"spec": {"kind": "base", "memory": memory}}}}]);
    let approve = json!([{"id": "say", "run": {"approve": {"message": "May I?"}}}]);
    for (id, nodes) in [("quick", neuron("")), ("held", neuron("You are held.")), ("asks", approve)] {
        let made = daemon.operator.post("/v1/fascicles", json!({"id": id, "output": "say", "nodes": nodes})).await;
        made.expect(StatusCode::CREATED);
    }
    (daemon, go_on)
}

async fn execute(client: &Client, id: &str, headers: &[(&str, &str)]) -> tests::Answer {
    let path = format!("/v1/fascicles/{id}/execute");
    client.send(Method::POST, &path, headers, Some(json!({"input": "hello"}))).await
}

async fn read(client: &Client, job: &Value, wait: &str) -> Value {
    let path = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
    client.send(Method::GET, &path, &[("prefer", wait)], None).await.expect(StatusCode::OK)
}

/// Until the model was asked so often.
async fn asked(daemon: &TestDaemon, times: usize) {
    for _ in 0..1_000_000 {
        if daemon.model.asked().len() >= times {
            return;
        }
        tests::again().await;
    }
    panic!("the model was not asked {times} times");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_a_job_is_answered_when_it_ends() {
    let (daemon, go_on) = daemon().await;
    let client = &daemon.operator;
    let keyed = [WAIT, ("idempotency-key", "one")];
    let whole = execute(client, "quick", &keyed).await;
    assert_eq!(whole.headers["preference-applied"], "wait");
    let whole = whole.expect(StatusCode::OK);
    assert_eq!((&whole["status"], &whole["output"]), (&json!("completed"), &json!("at once")));
    // The same order again is the same job.
    assert_eq!(execute(client, "quick", &keyed).await.expect(StatusCode::OK), whole);
    assert_eq!(read(client, &whole, "wait=60").await, whole);

    let job = execute(client, "held", &[]).await.expect(StatusCode::ACCEPTED);
    asked(&daemon, 2).await;
    let waiting = read(client, &job, "wait=60");
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(early.is_err(), "it does not answer before the job has ended: {early:?}");
    go_on.notify_one();
    assert_eq!(waiting.await["output"], "at last");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_client_is_answered_when_a_job_needs_approval() {
    let (daemon, _) = daemon().await;
    let client = &daemon.operator;
    let asks = execute(client, "asks", &[WAIT]).await.expect(StatusCode::OK);
    assert_eq!(asks["status"], "waiting_for_approval");
    let path = format!("/v1/jobs/{}/continue", asks["job_id"].as_str().unwrap());
    let yes = json!({"context_token": asks["waits"][0]["context_token"], "approved": true});
    // What is known to wait is not told again.
    let known = read(client, &asks, "wait=1");
    tokio::pin!(known);
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut known).await.is_err());
    let done = client.send(Method::POST, &path, &[WAIT], Some(yes)).await.expect(StatusCode::OK);
    assert_eq!((&done["status"], &done["waits"]), (&json!("completed"), &json!([])));

    // No patience, or a preference that says nothing: the order is accepted, and the job is as it is.
    for preference in ["wait=0", "wait=soon", "wait", "handling=lenient", "wait=-1"] {
        let accepted = execute(client, "held", &[("prefer", preference)]).await;
        assert!(!accepted.headers.contains_key("preference-applied"), "{preference}");
        let job = accepted.expect(StatusCode::ACCEPTED);
        assert!(["pending", "running"].contains(&read(client, &job, preference).await["status"].as_str().unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_is_answered_when_the_daemon_stops() {
    let (daemon, go_on) = daemon().await;
    let client = daemon.operator.clone();
    let waits = tokio::spawn(async move { execute(&client, "held", &[WAIT]).await });
    asked(&daemon, 1).await;
    let stopping = tokio::spawn(daemon.daemon.stop());
    waits.await.unwrap().expect(StatusCode::ACCEPTED);
    go_on.notify_one();
    stopping.await.unwrap().unwrap();
}
