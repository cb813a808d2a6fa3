//! The rules under which the server calls a tool: how many at once, who must approve, how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use runtime::config::{Host, Tools};
use serde_json::{Value, json};
use tests::{TestDaemon, obedient};
use tokio::sync::watch;

/// A server outside that knows how many requests it had at once. Each waits until so many are there, or `patience`
/// ends.
async fn outside(until: usize, patience: Duration) -> (String, Arc<AtomicUsize>) {
    let (there, most) = (watch::Sender::new(0_usize), Arc::new(AtomicUsize::new(0)));
    let highest = most.clone();
    let answer = move || async move {
        there.send_modify(|there| *there += 1);
        highest.fetch_max(*there.borrow(), Ordering::SeqCst);
        let mut seen = there.subscribe();
        let _ = tokio::time::timeout(patience, seen.wait_for(|there| *there >= until)).await;
        there.send_modify(|there| *there -= 1);
        "done"
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    (address, most)
}

/// Calls each tool it has three times in one answer, and then ends.
fn thrice(request: &ChatRequest, _: usize) -> Reply {
    if request.messages.iter().any(|message| message.role == "tool") {
        return Reply::Text("ended".into());
    }
    let names = request.tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned());
    let calls = names.flat_map(|name| (0..3).map(move |call| (format!("{name}{call}"), name.clone(), "{}".into())));
    Reply::Tools(calls.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_stay_within_the_limits_of_tool_and_host() {
    for (of_the_host, of_the_tool, most_allowed) in [(16, 1, 2), (1, 8, 1), (16, 8, 6)] {
        // Where more would be too many, a request stays long enough for them to come; where they may come, it waits for
        // them.
        let few = most_allowed < 6;
        let patience = if few { Duration::from_millis(60) } else { Duration::from_secs(10) };
        let (address, most) = outside(if few { usize::MAX } else { 3 }, patience).await;
        let host =
            Host { key_env: None, key_file: None, header: None, plain: true, private: true, concurrency: of_the_host };
        let tools = Tools { hosts: [(address.clone(), host)].into(), ..Tools::default() };
        let daemon = TestDaemon::builder().tools(tools).start(thrice).await;
        let tool = |name: &str| {
            json!({
                "name": name,
                "concurrency": of_the_tool,
                "run": {"http": {"url": format!("http://{address}/{name}")}},
            })
        };
        let neuron = json!({"id": "n", "tools": [tool("one"), tool("two")]});
        daemon.operator.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
        let answer = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": "go"})).await.expect(StatusCode::OK);
        assert_eq!(answer["output"], "ended");
        let most = most.load(Ordering::SeqCst);
        assert!(
            (1..=most_allowed).contains(&most),
            "{most} at once: a host that takes {of_the_host}, tools that take {of_the_tool}"
        );
        assert!(most_allowed < 6 || most > 2, "where they may, they go side by side: {most} at once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kip_and_fascicles_wait_for_an_approval_like_any_other_tool() {
    let daemon = TestDaemon::start(obedient).await;
    let client = &daemon.operator;
    let within =
        json!({"id": "f", "output": "a", "nodes": [{"id": "a", "run": {"neuron": {"spec": {"memory": "inner"}}}}]});
    client.post("/v1/fascicles", within).await.expect(StatusCode::CREATED);
    let kip =
        |name: &str, approval: &str| json!({"name": name, "approval": approval, "run": {"kip": {"nexus": "commons"}}});
    let work = json!({"name": "work", "approval": "on_write", "run": {"fascicle": {"id": "f"}}});
    let neuron = json!({"id": "n", "tools": [kip("careful", "on_write"), kip("timid", "always"), work]});
    client.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
    let invoke = async |input: &str| client.post("/v1/neurons/n/invoke", json!({"input": input})).await;
    let find = r#"{"command": "FIND(?x.name) WHERE { ?x {type: \"Drink\"} }"}"#;
    let write = r#"{"command": "UPSERT { CONCEPT ?d { {type: \"$ConceptType\", name: \"Drink\"} } }"}"#;

    let read = invoke(&format!("careful {find}")).await.expect(StatusCode::OK);
    let told: Value = serde_json::from_str(read["output"].as_str().unwrap()).unwrap();
    assert!(told.get("error").is_none() || told["error"]["code"].as_str().is_some(), "it ran: {told}");
    for (name, params) in [("careful", write), ("timid", find), ("work", r#"{"input": "hello"}"#)] {
        let paused = invoke(&format!("{name} {params}")).await.expect(StatusCode::ACCEPTED);
        // What stands in the message word for word was asked for; KIP stands there with other quotation marks.
        let origins = if name == "work" { json!({"/input": "asked"}) } else { json!({"/command": "made"}) };
        let call = json!({"id": "c1", "name": name, "params": params, "needs_approval": true, "origins": origins});
        assert_eq!(paused["tool_calls"], json!([call]));
        let go_on = async |approved: bool| {
            let result = json!({"id": "c1", "approved": approved});
            let body = json!({"context_token": paused["context_token"], "tool_results": [result]});
            client.post("/v1/neurons/n/continue", body).await
        };
        assert!(
            client.get("/v1/jobs").await.expect(StatusCode::OK)["jobs"].as_array().unwrap().is_empty(),
            "nothing ran yet"
        );
        let ended = go_on(true).await.expect(StatusCode::OK);
        assert!(!ended["output"].as_str().unwrap().contains("not approved"), "{ended}");
    }
    assert_eq!(client.get("/v1/jobs").await.expect(StatusCode::OK)["jobs"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fascicle_tool_that_exceeds_its_timeout_is_cancelled() {
    let script = |request: &ChatRequest, before: usize| match request.messages[0].content.as_deref() {
        Some("You never end.") => Reply::Held(String::new(), Arc::default(), String::new()),
        _ => obedient(request, before),
    };
    let daemon = TestDaemon::start(script).await;
    let client = &daemon.operator;
    let node = json!({"id": "a", "run": {"neuron": {"spec": {"memory": "You never end."}}}});
    client.post("/v1/fascicles", json!({"id": "f", "output": "a", "nodes": [node]})).await.expect(StatusCode::CREATED);
    let work = json!({"name": "work", "timeout_s": 1, "run": {"fascicle": {"id": "f"}}});
    client.post("/v1/neurons", json!({"id": "n", "tools": [work]})).await.expect(StatusCode::CREATED);
    let answer = client.post("/v1/neurons/n/invoke", json!({"input": r#"work {"input": "go"}"#})).await;
    let answer = answer.expect(StatusCode::OK);
    assert!(answer["output"].as_str().unwrap().contains("longer than 1 s"), "{answer}");
    let job = client.get("/v1/jobs").await.expect(StatusCode::OK)["jobs"][0]["job_id"].as_str().unwrap().to_owned();
    let stopped = client.send(Method::GET, &format!("/v1/jobs/{job}"), &[("prefer", "wait=60")], None).await;
    assert_eq!(stopped.expect(StatusCode::OK)["status"], "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_keeps_calling_an_unknown_tool_is_stopped() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let daemon = TestDaemon::start(move |_: &ChatRequest, n| {
        count.fetch_add(1, Ordering::SeqCst);
        Reply::Tools(vec![(format!("c{n}"), "nothing".into(), "{}".into())])
    })
    .await;
    let tool = json!({"name": "look", "description": "looks", "run": "client"});
    daemon.operator.post("/v1/neurons", json!({"id": "n", "tools": [tool]})).await.expect(StatusCode::CREATED);
    let refused = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": "look"})).await;
    refused.refused(502, "unusable_output");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}
