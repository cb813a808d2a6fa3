//! What is known of a call while it runs and afterwards: keys, records, cancelling, deadlines, streams (MISSION N3,
//! N4).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Answer, TestDaemon};
use tokio::sync::Notify;

async fn with_neuron(script: impl Fn(&ChatRequest, usize) -> Reply + Send + Sync + 'static, spec: Value) -> TestDaemon {
    let daemon = TestDaemon::start(script).await;
    let mut spec = spec;
    spec["id"] = json!("n");
    daemon.operator.post("/v1/neurons", spec).await.expect(StatusCode::CREATED);
    daemon
}

async fn invoke(daemon: &TestDaemon, key: &str, body: Value) -> Answer {
    daemon.operator.send(Method::POST, "/v1/neurons/n/invoke", &[("idempotency-key", key)], Some(body)).await
}

fn id_of(answer: &Answer) -> String {
    answer.headers["x-invocation-id"].to_str().unwrap().to_owned()
}

/// Nothing is set aside any more.
async fn nothing_held(daemon: &TestDaemon) -> Value {
    for _ in 0..20_000 {
        let house = daemon.operator.get("/v1/house/resources").await.expect(StatusCode::OK);
        if house["held"]["tokens"] == 0 {
            return house;
        }
        tests::again().await;
    }
    panic!("something stays set aside");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_under_a_key_is_made_once_whoever_asks_again_and_when() {
    let daemon = with_neuron(|_, before| Reply::Text(format!("answer {before}")), json!({})).await;
    let body = json!({"input": "hello"});
    let racers: Vec<Answer> = futures::future::join_all((0..16).map(|_| invoke(&daemon, "k", body.clone()))).await;
    let (answered, refused): (Vec<_>, Vec<_>) = racers.into_iter().partition(|answer| answer.status == StatusCode::OK);
    assert!(!answered.is_empty());
    for answer in refused {
        answer.refused(409, "in_flight");
    }
    let first = invoke(&daemon, "k", body.clone()).await;
    let id = id_of(&first);
    assert_eq!(first.expect(StatusCode::OK), json!({"status": "completed", "output": "answer 0"}));
    invoke(&daemon, "k", json!({"input": "else"})).await.refused(422, "key_reused");
    assert_eq!(daemon.model.asked().len(), 1);
    // Also after the daemon was killed.
    let daemon = daemon.kill_and_restart().await;
    assert_eq!(invoke(&daemon, "k", body).await.expect(StatusCode::OK)["output"], "answer 0");
    assert_eq!(daemon.model.asked().len(), 1);
    let known = daemon.operator.get(&format!("/v1/invocations/{id}")).await.expect(StatusCode::OK);
    assert_eq!(
        (&known["status"], &known["calls"], &known["answer"]["output"]),
        (&json!("completed"), &json!(1), &json!("answer 0"))
    );
    assert!(known["usage"]["total_tokens"].as_u64().unwrap() > 0);
    let ada = daemon.person("user:ada", "participant").await;
    ada.get(&format!("/v1/invocations/{id}")).await.refused(404, "invocation_not_found");
    let hers =
        ada.send(Method::POST, "/v1/neurons/n/invoke", &[("idempotency-key", "k")], Some(json!({"input": "x"}))).await;
    assert_eq!(hers.expect(StatusCode::OK)["output"], "answer 1", "a key is its caller's own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_failed_may_be_made_again_under_its_key() {
    let failures = Arc::new(AtomicUsize::new(1));
    let left = failures.clone();
    let script = move |_: &ChatRequest, _| match left
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
    {
        Ok(_) => Reply::Status(400, "no".into()),
        Err(_) => Reply::Text("yes".into()),
    };
    let daemon = with_neuron(script, json!({})).await;
    invoke(&daemon, "k", json!({"input": "x"})).await.refused(422, "model_refused");
    assert_eq!(invoke(&daemon, "k", json!({"input": "x"})).await.expect(StatusCode::OK)["output"], "yes");
    let asked = daemon.model.asked();
    assert_eq!(asked[0].messages, asked[1].messages, "nothing is said twice in it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_or_expired_call_settles_its_reservation() {
    let daemon = with_neuron(|_, _| Reply::Held("so ".into(), Arc::default(), String::new()), json!({})).await;
    let late = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": "x", "deadline_s": 0.05})).await;
    late.refused(504, "deadline");
    nothing_held(&daemon).await;
    daemon.operator.post("/v1/neurons/n/invoke", json!({"input": "x", "deadline_s": 0})).await.refused(422, "invalid");

    let call = invoke(&daemon, "k", json!({"input": "y"}));
    tokio::pin!(call);
    // Its id is made from its key, so it is found by asking again.
    let id = loop {
        tokio::select! {
            answer = &mut call => panic!("{}", answer.body),
            asked = async { daemon.model.asked().len() } => {
                if asked == 2 {
                    let jobs = daemon.operator.get("/v1/invocations?status=running").await.expect(StatusCode::OK);
                    break jobs["invocations"][0]["id"].as_str().unwrap().to_owned();
                }
                tests::again().await;
            }
        }
    };
    let cancelled = daemon.operator.post(&format!("/v1/invocations/{id}/cancel"), json!({})).await;
    assert_eq!(cancelled.expect(StatusCode::OK)["status"], "cancelled");
    call.await.refused(409, "cancelled");
    nothing_held(&daemon).await;
    invoke(&daemon, "k", json!({"input": "y"})).await.refused(409, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_call_that_was_cancelled_cannot_be_continued() {
    let tools = |_: &ChatRequest, _| Reply::Tools(vec![("call_1".into(), "look".into(), "{}".into())]);
    let daemon = with_neuron(tools, json!({"tools": [{"name": "look"}]})).await;
    let paused = invoke(&daemon, "k", json!({"input": "x"})).await;
    let id = id_of(&paused);
    let paused = paused.expect(StatusCode::ACCEPTED);
    assert_eq!(
        invoke(&daemon, "k", json!({"input": "x"})).await.expect(StatusCode::ACCEPTED),
        paused,
        "the same pause"
    );
    let known = daemon.operator.get(&format!("/v1/invocations/{id}")).await.expect(StatusCode::OK);
    assert_eq!((&known["status"], &known["answer"]), (&json!("tool_call_required"), &paused));
    daemon.operator.post(&format!("/v1/invocations/{id}/cancel"), json!({})).await.expect(StatusCode::OK);
    let results = json!({"context_token": paused["context_token"], "tool_results": [{"id": "call_1", "result": "x"}]});
    daemon.operator.post("/v1/neurons/n/continue", results).await.refused(409, "cancelled");
    assert_eq!(daemon.model.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_comes_as_a_stream_of_deltas_usage_and_the_whole() {
    let script = |request: &ChatRequest, _: usize| match request.messages.iter().any(|message| message.role == "tool") {
        false => Reply::Tools(vec![
            ("c1".into(), "look".into(), "{\"at\":\"sea\"}".into()),
            ("c2".into(), "look".into(), "{}".into()),
        ]),
        true => Reply::Text("the sea is blue".into()),
    };
    let daemon = with_neuron(script, json!({"tools": [{"name": "look"}]})).await;
    let frames = daemon.operator.post_events("/v1/neurons/n/invoke", json!({"input": "x"})).await;
    let kinds: Vec<&str> = frames.iter().map(|(kind, _)| &**kind).collect();
    assert_eq!(kinds, ["tool_call_delta", "tool_call_delta", "usage", "done"]);
    assert_eq!(frames[0].1, json!({"index": 0, "id": "c1", "name": "look", "params": "{\"at\":\"sea\"}"}));
    let done = &frames[3].1;
    assert_eq!(done["status"], "tool_call_required");
    // In any order.
    let results = json!({
        "context_token": done["context_token"],
        "tool_results": [{"id": "c2", "error": "no light"}, {"id": "c1", "result": "water"}],
    });
    let frames = daemon.operator.post_events("/v1/neurons/n/continue", results).await;
    let text: String =
        frames.iter().filter(|(kind, _)| kind == "delta").map(|(_, data)| data["text"].as_str().unwrap()).collect();
    assert_eq!((text.as_str(), &frames.last().unwrap().1["output"]), ("the sea is blue", &json!("the sea is blue")));
    let refused = daemon.operator.post_events("/v1/neurons/n/invoke", json!({"input": {"events": 3}})).await;
    assert_eq!((refused[0].0.as_str(), &refused[0].1["status"]), ("error", &json!(422)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_did_not_fit_is_taken_back_in_the_stream() {
    let script =
        |_: &ChatRequest, before| Reply::Text(if before == 0 { "not json".into() } else { "{\"a\":1}".into() });
    let spec = json!({"kind": "structured_output", "structured_output": {"type": "object", "required": ["a"]}});
    let daemon = with_neuron(script, spec).await;
    let frames = daemon.operator.post_events("/v1/neurons/n/invoke", json!({"input": "x"})).await;
    let kinds: Vec<&str> = frames.iter().map(|(kind, _)| &**kind).collect();
    assert_eq!(kinds, ["delta", "delta", "again", "delta", "usage", "done"]);
    assert_eq!(frames[5].1["output"], json!({"a": 1}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_cancels_its_model_call_and_reservation() {
    let go_on = Arc::new(Notify::new());
    let held = go_on.clone();
    let daemon = with_neuron(move |_, _| Reply::Held("so ".into(), held.clone(), "long".into()), json!({})).await;
    let mut first = daemon.operator.stream("/v1/neurons/n/invoke", json!({"input": "x"})).await;
    assert!(String::from_utf8_lossy(&first.chunk().await.unwrap().unwrap()).contains("event: delta"));
    let held = daemon.operator.get("/v1/house/resources").await.expect(StatusCode::OK);
    assert!(held["held"]["tokens"].as_i64().unwrap() > 0);
    drop(first);
    nothing_held(&daemon).await;
    let known = daemon.operator.get("/v1/invocations?status=cancelled").await.expect(StatusCode::OK);
    assert_eq!(known["invocations"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_cut_short_is_taken_up_where_its_journal_ends() {
    let go_on = Arc::new(Notify::new());
    let held = go_on.clone();
    // The second answer is under way when the daemon is killed.
    let script =
        move |request: &ChatRequest, before: usize| match (request.messages.iter().any(|it| it.role == "tool"), before)
        {
            (false, _) => {
                Reply::Tools(vec![("c1".into(), "kip".into(), json!({"command": "DESCRIBE PRIMER"}).to_string())])
            }
            (true, 1) => Reply::Held("never heard".into(), held.clone(), String::new()),
            (true, _) => Reply::Text("heard".into()),
        };
    let spec = json!({"tools": [{"name": "kip", "run": {"kip": {"nexus": "commons", "readonly": true}}}]});
    let daemon = with_neuron(script, spec).await;
    {
        let call = invoke(&daemon, "k", json!({"input": "x"}));
        tokio::pin!(call);
        while daemon.model.asked().len() < 2 {
            tokio::select! {
                answer = &mut call => panic!("{}", answer.body),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    let daemon = daemon.kill_and_restart().await;
    let answer = invoke(&daemon, "k", json!({"input": "x"})).await;
    assert_eq!(answer.expect(StatusCode::OK)["output"], "heard");
    let asked = daemon.model.asked();
    assert_eq!(asked.len(), 3, "the first answer was known, the second was lost and asked for once more");
    assert_eq!(asked[1].messages, asked[2].messages);
    nothing_held(&daemon).await;
}
