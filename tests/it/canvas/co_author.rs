//! A lifeform writes a mind map together with people (MISSION L7): it perceives what they change, answers what is for
//! it, and names nodes, not places in a list.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, honest};

fn draws(request: &ChatRequest) -> bool {
    request.response_format.as_ref().is_some_and(|format| format.to_string().contains("edits"))
}

fn told(request: &ChatRequest) -> String {
    request.messages.iter().filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
}

/// Draws what `wish` makes of what it is told.
fn drawing(
    wish: impl Fn(&str) -> Value + Send + Sync + 'static,
) -> impl Fn(&ChatRequest, usize) -> Reply + Send + Sync {
    move |request, n| match draws(request) {
        true => Reply::Text(wish(&told(request)).to_string()),
        false => honest(request, n),
    }
}

fn edit(act: &str, node: &str, to: &str, text: &str) -> Value {
    json!({"do": act, "node": node, "to": to, "text": text})
}

struct Map {
    base: String,
    chat: String,
    socket: Socket,
}

impl Map {
    async fn new(daemon: &TestDaemon) -> Self {
        let (_, chat) = daemon.lifeform().await;
        let canvases = chat.rsplit_once('/').unwrap().0.to_owned();
        let op = &daemon.operator;
        op.post(&canvases, json!({"type": "zmind", "title": "Summer", "id": "plans"}))
            .await
            .expect(StatusCode::CREATED);
        let base = format!("{canvases}/plans");
        let mut socket = op.subscribe(&base, None).await;
        socket.until(|frame| frame["t"] == "live").await;
        Self { base, chat, socket }
    }

    async fn done(&self, who: &Client, ops: Value) {
        who.post(&format!("{}/ops", self.base), json!({"ops": ops})).await.expect(StatusCode::OK);
    }

    /// What the lifeform did next, by `kind`.
    async fn drew(&mut self, kind: &str) -> Value {
        let is = |frame: &Value| frame["kind"] == kind && frame["actor"]["kind"] == "lifeform";
        self.socket.until(is).await.last().unwrap().clone()
    }

    async fn state(&self, who: &Client) -> Value {
        who.get(&format!("{}/state", self.base)).await.expect(StatusCode::OK)["state"].clone()
    }
}

fn trip() -> Value {
    json!([
        {"kind": "node.add", "id": "n1", "title": "Trip"},
        {"kind": "node.add", "id": "n2", "title": "Food", "parent": "n1"},
        {"kind": "node.edit", "id": "n2", "title": "Meals"},
    ])
}

#[tokio::test]
async fn a_comment_that_mentions_a_lifeform_is_answered_on_the_map() {
    let daemon = TestDaemon::start(drawing(|told| {
        assert!(told.contains("- [n1] Trip\n  - [n2] Meals") && told.contains("commented on \"Trip\" [n1]"), "{told}");
        let edits = [
            edit("add", "Trip", "", "Transport"),
            edit("link", "[n2]", "trip", "part of"),
            edit("rename", "n2", "", "Good food"),
        ];
        json!({"edits": edits, "say": "I added how to get there."})
    }))
    .await;
    let mut map = Map::new(&daemon).await;
    let op = &daemon.operator;
    map.done(op, trip()).await;
    let comment = json!([{"kind": "comment.add", "id": "c1", "node": "n1", "content": "@Iris what is missing?"}]);
    map.done(op, comment).await;
    let said = map.drew("comment.add").await;
    assert!(said["cause"].to_string().contains("/plans@"), "{said}");
    assert_eq!(daemon.model.asked().iter().filter(|request| draws(request)).count(), 1, "changes alone ask no model");
    assert_eq!(daemon.model.asked().len(), 1);
    let state = map.state(op).await;
    let added = state["nodes"].as_array().unwrap().iter().find(|node| node["title"] == "Transport").unwrap();
    assert_eq!(added["parent"], "n1");
    assert_eq!((&state["links"][0]["from"], &state["links"][0]["to"]), (&json!("n2"), &json!("n1")));
    let proposal = &state["proposals"][0];
    assert_eq!((&proposal["ops"][0]["kind"], &proposal["ops"][0]["id"]), (&json!("node.edit"), &json!("n2")));
    let answer = state["comments"].as_array().unwrap().iter().find(|comment| comment["reply_to"] == "c1").unwrap();
    assert_eq!((&answer["content"], &answer["node"]), (&json!("I added how to get there."), &json!("n1")));
}

#[tokio::test]
async fn a_retried_job_replaces_its_failed_answer_on_the_map() {
    let ill = Arc::new(AtomicBool::new(true));
    let daemon = TestDaemon::start({
        let ill = ill.clone();
        move |request, n| match draws(request) {
            true if ill.load(Ordering::SeqCst) => Reply::Status(400, "I am ill".into()),
            true => Reply::Text(json!({"edits": [], "say": "A boat is missing."}).to_string()),
            false => honest(request, n),
        }
    })
    .await;
    let mut map = Map::new(&daemon).await;
    let op = &daemon.operator;
    map.done(op, trip()).await;
    map.done(op, json!([{"kind": "comment.add", "id": "c1", "node": "n1", "content": "@Iris what is missing?"}])).await;
    let added = map.drew("comment.add").await["patch"].clone();
    let is_comment = |op: &&Value| op["path"].as_str().unwrap().starts_with("/comments/");
    let failed = &added.as_array().unwrap().iter().find(is_comment).unwrap()["value"];
    assert!(failed["content"].as_str().unwrap().contains("I could not answer"), "{failed}");
    ill.store(false, Ordering::SeqCst);
    let job = failed["id"].as_str().unwrap().strip_prefix("msg_").unwrap();
    op.post(&format!("/v1/jobs/{job}/retry"), json!({})).await.expect(StatusCode::ACCEPTED);
    map.drew("comment.edit").await;
    let comments = map.state(op).await["comments"].clone();
    let said: Vec<&str> = comments.as_array().unwrap().iter().filter_map(|one| one["content"].as_str()).collect();
    assert_eq!(said, ["@Iris what is missing?", "A boat is missing."]);
}

#[tokio::test]
async fn a_lifeform_changes_a_map_on_request_and_decides_proposals() {
    let daemon = TestDaemon::start(drawing(|told| match told.contains("proposes [p1]") {
        true => json!({"edits": [edit("accept", "p1", "", "")], "say": ""}),
        false => json!({"edits": [edit("add", "", "", "Money")], "say": ""}),
    }))
    .await;
    let mut map = Map::new(&daemon).await;
    let op = &daemon.operator;
    map.done(op, trip()).await;
    op.topic(&map.chat, "t").await;
    op.say(&map.chat, "t", "How are you?").await;
    op.say(&map.chat, "t", "Please put money on the Summer map.").await;
    let added = map.drew("node.add").await;
    let node = map.state(op).await["nodes"].as_array().unwrap().iter().find(|node| node["title"] == "Money").cloned();
    let id = node.unwrap()["id"].clone();
    assert!(added["patch"].to_string().contains("Money"));
    let ada = daemon.person("user:ada", "participant").await;
    let proposal =
        json!([{"kind": "proposal.make", "id": "p1", "ops": [{"kind": "node.edit", "id": id, "title": "Budget"}]}]);
    map.done(&ada, proposal).await;
    map.drew("proposal.accept").await;
    let titles = map.state(op).await["nodes"].to_string();
    assert!(titles.contains("Budget"), "{titles}");
}

#[tokio::test]
async fn a_map_refuses_an_invalid_edit_of_a_model_and_keeps_the_rest() {
    let daemon = TestDaemon::start(drawing(|_| {
        let edits = [
            edit("move", "Trip", "Meals", ""),
            edit("comment", "Twin", "", "Which one?"),
            edit("add", "n2", "", "Fish"),
        ];
        json!({"edits": edits, "say": ""})
    }))
    .await;
    let mut map = Map::new(&daemon).await;
    let op = &daemon.operator;
    map.done(op, trip()).await;
    let twins =
        json!([{"kind": "node.add", "id": "t1", "title": "Twin"}, {"kind": "node.add", "id": "t2", "title": "twin"}]);
    map.done(op, twins).await;
    map.done(op, json!([{"kind": "comment.add", "id": "c1", "node": "n2", "content": "@iris more?"}])).await;
    let added = map.drew("node.add").await;
    assert!(added["patch"].to_string().contains("Fish"));
    let job = added["cause"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .find_map(|cause| cause.strip_prefix("job:"));
    let job = job.unwrap().split('/').next().unwrap().to_owned();
    let output = loop {
        let job = op.get(&format!("/v1/jobs/{job}")).await.expect(StatusCode::OK);
        if job["status"] == "completed" {
            break job["output"].clone();
        }
    };
    assert!(output["refused"].to_string().contains("may be [t1] or [t2]"), "{output}");
    let state = map.state(op).await;
    let trip = state["nodes"].as_array().unwrap().iter().find(|node| node["id"] == "n1").unwrap();
    assert!(trip["parent"].is_null(), "no cycle came of it");
}
