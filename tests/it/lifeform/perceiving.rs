//! Perception as a slot (MISSION L7): each change of a canvas comes by a fascicle whose rules are data.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{TestDaemon, honest, text_of};

/// Rules of perception in a fascicle of one neuron.
fn rules(id: &str, rules: Value) -> Value {
    let spec = json!({"kind": "transformer", "transform": {"decide": rules}});
    json!({"id": id, "output": "route", "nodes": [{"id": "route", "run": {"neuron": {"spec": spec}}}]})
}

/// Answers with the last user message of its prompt.
fn echo(request: &ChatRequest, n: usize) -> Reply {
    let last = request.messages.iter().rev().find(|message| message.role == "user");
    match request.response_format.is_some() {
        true => honest(request, n),
        false => Reply::Text(format!("heard: {}", last.and_then(|last| last.content.clone()).unwrap_or_default())),
    }
}

async fn born(daemon: &TestDaemon, definition: Value) -> (String, String) {
    let made =
        daemon.operator.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    daemon.operator.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    (life.clone(), format!("{life}/canvases/canvas_chat_main"))
}

/// Returns what a lifeform's perception shows.
async fn perception(client: &tests::Client, life: &str) -> Value {
    let used = client.get(&format!("{life}/fascicles")).await.expect(StatusCode::OK);
    let found = used["fascicles"].as_array().unwrap().iter().find(|used| used["skill"] == "perceive");
    found.unwrap().clone()
}

#[tokio::test]
async fn own_rules_turn_a_renamed_topic_into_a_question() {
    let daemon = TestDaemon::start(echo).await;
    let op = &daemon.operator;
    let own = json!([
        {"name": "a new title is asked about", "when": {"op": "topic.edit"}, "then": {"to": "reply"}},
        {"name": "messages", "when": {"change": "new", "is_own": false}, "then": {"to": "heed"}},
        {"name": "the rest", "then": {"to": "pass"}},
    ]);
    op.post("/v1/fascicles", rules("curious", own)).await.expect(StatusCode::CREATED);
    let (life, chat) = born(&daemon, json!({"name": "Iris", "perceive": "curious"})).await;
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&chat, "t").await;
    op.say(&chat, "t", "I sail on Sundays.").await;
    op.post_ops(&chat, vec![json!({"kind": "topic.edit", "id": "t", "title": "Rowing"})]).await.expect(StatusCode::OK);
    let frames = socket.until(|frame| frame["kind"] == "message.finish").await;
    let answer = text_of(frames.last().unwrap());
    assert_eq!(answer, "heard: (I renamed this topic from \"t\" to \"Rowing\".)");
    // What was done is no message, so the answer replies to none; and it is no fact of a person.
    let said = op.get(&format!("{chat}/topics/t/messages")).await.expect(StatusCode::OK);
    let answers: Vec<&Value> =
        said["messages"].as_array().unwrap().iter().filter(|said| said["kind"] != "user").collect();
    assert!(answers.iter().all(|said| said["reply_to"].is_null()), "{said}");
    let shown = perception(op, &life).await;
    assert_eq!((&shown["id"], &shown["status"]), (&json!("curious"), &json!("active")));
    let state = &shown["neurons"][0]["state"];
    assert_eq!((&state["passed"], &state["last"][0]["rule"]), (&json!(1), &json!("the rest")), "{shown}");
    assert_eq!(state["last"][0]["op"], "topic.create");
}

#[tokio::test]
async fn a_rule_names_a_fascicle_that_answers_in_its_place() {
    let daemon = TestDaemon::start(echo).await;
    let op = &daemon.operator;
    let greet = json!({"id": "greet", "output": "say", "nodes": [
        {"id": "answer", "needs_events": false, "reads_input": true, "run": {"neuron": {"spec": {"kind": "base", "memory": "Greet."}}}},
        {"id": "say", "after": ["answer"], "run": {"tool": {"name": "say"}}}]});
    op.post("/v1/fascicles", greet).await.expect(StatusCode::CREATED);
    let own = json!([
        {"name": "a new topic is greeted", "when": {"op": "topic.create"}, "then": {"to": "reply", "fascicle": "greet"}},
        {"name": "the rest", "then": {"to": "pass"}},
    ]);
    op.post("/v1/fascicles", rules("polite", own)).await.expect(StatusCode::CREATED);
    let (_, chat) = born(&daemon, json!({"name": "Iris", "perceive": "polite"})).await;
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&chat, "t").await;
    let is_answer = |frame: &Value| frame["kind"] == "message.append" && text_of(frame).starts_with("heard:");
    socket.until(is_answer).await;
    let jobs = op.get("/v1/jobs?limit=10").await.expect(StatusCode::OK);
    assert!(jobs["jobs"].as_array().unwrap().iter().any(|job| job["fascicle"] == "greet"), "{jobs}");
}

#[tokio::test]
async fn uninteresting_changes_cost_no_token_and_no_job() {
    let fast = |config: &mut runtime::Config| config.canvas.ops_per_s = 1e6;
    let daemon = TestDaemon::builder().config(fast).start(honest).await;
    let op = &daemon.operator;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    op.topic(&chat, "t").await;
    // 10,000 changes: titles and reactions, a hundred a request.
    for part in 0..100 {
        let ops =
            (0..100).map(|n| json!({"kind": "topic.edit", "id": "t", "title": format!("Title {part}.{n}")})).collect();
        op.post_ops(&chat, ops).await.expect(StatusCode::OK);
    }
    // The lifeform has read up to here once it answers what comes after them.
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    assert_eq!(daemon.model.asked().len(), 0);
    op.say(&chat, "t", "Hello, how are you?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let shown = perception(op, &life).await;
    let state = &shown["neurons"][0]["state"];
    assert!(state["passed"].as_u64().unwrap() >= 10_000, "{state}");
    assert_eq!(state["last"].as_array().unwrap().len(), 100);
    let jobs = op.get("/v1/jobs?limit=10").await.expect(StatusCode::OK);
    let of_replies =
        jobs["jobs"].as_array().unwrap().iter().filter(|job| job["job_id"].as_str().unwrap().contains(".t.r"));
    assert_eq!(of_replies.count(), 1, "{jobs}");
    // Only operators see what was passed over.
    let bob = daemon.person("user:bob", "participant").await;
    let shown = perception(&bob, &life).await;
    assert!(shown["neurons"][0]["state"]["last"].is_null(), "{shown}");
}

#[tokio::test]
async fn bad_rules_of_perception_are_refused_or_replaced() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let rest = json!({"name": "rest", "then": {"to": "pass"}});
    for (id, own, why) in [
        ("open", json!([{"name": "some", "when": {"op": "message.append"}, "then": {"to": "reply"}}]), "every change"),
        ("typo", json!([{"name": "bad", "when": {"is_caled": true}, "then": {"to": "reply"}}, rest]), "is_caled"),
        ("lost", json!([{"name": "bad", "then": {"to": "repyl"}}, rest]), "repyl"),
        ("away", json!([{"name": "bad", "then": {"to": "reply", "fascicle": "nowhere"}}, rest]), "nowhere"),
        ("odd", json!([{"name": "bad", "then": {"to": "reply", "fascicle": 3}}, rest]), "the id of a fascicle"),
    ] {
        op.post("/v1/fascicles", rules(id, own)).await.expect(StatusCode::CREATED);
        let refused = op.post("/v1/lifeforms", json!({"definition": {"name": "Iris", "perceive": id}})).await;
        assert!(refused.body.to_string().contains(why) && refused.status == 422, "{id}: {}", refused.body);
    }
    // A fascicle that asks a model cannot decide.
    let refused = op.post("/v1/lifeforms", json!({"definition": {"name": "Iris", "perceive": "reply"}})).await;
    assert!(refused.body.to_string().contains("decides without a job"), "{}", refused.body);
    // Rules that are spoiled later are replaced by the shipped ones, and the lifeform says so.
    op.post("/v1/fascicles", rules("mute", json!([rest]))).await.expect(StatusCode::CREATED);
    let (life, chat) = born(&daemon, json!({"name": "Iris", "perceive": "mute"})).await;
    let spoiled = rules("mute", json!([{"name": "bad", "then": {"weather": "fine"}}]));
    op.put("/v1/fascicles/mute", spoiled).await.expect(StatusCode::OK);
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&chat, "t").await;
    op.say(&chat, "t", "Hello, how are you?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let shown = perception(op, &life).await;
    let fault = shown["neurons"][0]["state"]["fault"].as_str().unwrap();
    assert!(fault.contains("does not decide on every change"), "{shown}");
    op.put("/v1/fascicles/perceive", rules("perceive", json!([rest]))).await.refused(409, "shipped");
}
