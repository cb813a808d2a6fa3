//! Definitions have owners, run with no more rights than their authors have, and are approved by operators; a token
//! that is taken back closes what it opened.

use std::sync::Arc;

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon, again, honest};
use tokio::sync::Notify;

use crate::knowledge::records::kip;

const WAIT: [(&str, &str); 1] = [("prefer", "wait=20")];

fn thinking(id: &str) -> Value {
    json!({"id": id, "output": "a", "nodes": [{"id": "a", "run": {"neuron": {"spec": {"memory": "x"}}}}]})
}

/// A fascicle that deletes a concept of a mind.
fn deleting(id: &str, mind: &str) -> Value {
    let command = r#"DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Domain", name: "precious"} }"#;
    json!({"id": id, "output": "del", "nodes": [
        {"id": "del", "run": {"tool": {"name": "execute_kip", "arguments": {"nexus": mind, "command": command}}}}]})
}

async fn has_precious(client: &Client, mind: &str) -> bool {
    let command = r#"FIND(?d.name) WHERE { ?d {type: "Domain", name: "precious"} }"#;
    let found = client.post(&format!("/v1/nexus/{mind}/kip"), json!({"command": command})).await.expect(StatusCode::OK);
    found["result"].to_string().contains("precious")
}

async fn run(client: &Client, fascicle: &str) -> Value {
    let path = format!("/v1/fascicles/{fascicle}/execute");
    let answer = client.send(Method::POST, &path, &WAIT, Some(json!({"input": "go"}))).await;
    assert!(answer.status.is_success(), "{}", answer.body);
    answer.body
}

#[tokio::test]
async fn only_its_owner_and_operators_change_a_definition() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.person("user:ada", "participant").await;
    let bob = daemon.person("user:bob", "participant").await;
    let robot = daemon.person("lifeform:lf_robot", "lifeform").await;
    let op = &daemon.operator;
    for (owner, id) in [(&ada, "hers"), (op, "ours")] {
        owner.post("/v1/neurons", json!({"id": id, "memory": "Be brief."})).await.expect(StatusCode::CREATED);
        owner.post("/v1/fascicles", thinking(id)).await.expect(StatusCode::CREATED);
    }
    for (client, id) in [(&bob, "hers"), (&robot, "hers"), (&ada, "ours"), (&bob, "ours"), (&robot, "ours")] {
        let (neuron, fascicle) = (format!("/v1/neurons/{id}"), format!("/v1/fascicles/{id}"));
        client.put(&neuron, json!({"memory": "mine now"})).await.refused(403, "forbidden");
        client.put(&format!("{neuron}/memory"), json!({"memory": "mine now"})).await.refused(403, "forbidden");
        client.delete(&format!("{neuron}?force=true")).await.refused(403, "forbidden");
        client.put(&fascicle, thinking(id)).await.refused(403, "forbidden");
        client.delete(&format!("{fascicle}?force=true")).await.refused(403, "forbidden");
        // Whether there is one is told as before.
        client.put("/v1/neurons/nothing", json!({"memory": "x"})).await.refused(404, "neuron_not_found");
    }
    for client in [&ada, op] {
        client.put("/v1/neurons/hers", json!({"memory": "Be brief, please."})).await.expect(StatusCode::OK);
        client.put("/v1/fascicles/hers", thinking("hers")).await.expect(StatusCode::OK);
    }
    // One who makes it anew owns it.
    op.delete("/v1/neurons/hers").await;
    bob.post("/v1/neurons", json!({"id": "hers", "memory": "His."})).await.expect(StatusCode::CREATED);
    ada.put("/v1/neurons/hers", json!({"memory": "Hers."})).await.refused(403, "forbidden");
    bob.put("/v1/neurons/hers", json!({"memory": "His still."})).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_definition_acts_with_no_more_rights_than_its_author_has() {
    let daemon = TestDaemon::start(honest).await;
    let (mind, _) = daemon.lifeform().await;
    let (op, ada) = (&daemon.operator, daemon.person("user:ada", "participant").await);
    let make = r#"UPSERT { CONCEPT { {type: "Domain", name: "precious"} } }"#;
    let kip_of = |command: &str| json!({"command": command});
    op.post(&format!("/v1/nexus/{mind}/kip"), kip_of(make)).await.expect(StatusCode::OK);
    // Alone, within one of an operator's, and in a map of it.
    ada.post("/v1/fascicles", deleting("trap", &mind)).await.expect(StatusCode::CREATED);
    let within = json!({"id": "daily", "output": "a", "nodes": [{"id": "a", "run": {"fascicle": {"id": "trap"}}}]});
    op.post("/v1/fascicles", within).await.expect(StatusCode::CREATED);
    for fascicle in ["trap", "daily"] {
        let job = run(op, fascicle).await;
        assert_eq!(job["status"], "failed", "{job}");
        assert!(has_precious(op, &mind).await, "{fascicle} deleted it");
    }
    // After an operator wrote it, it is an operator's; what ada writes over that is hers again.
    op.put("/v1/fascicles/trap", deleting("trap", &mind)).await.expect(StatusCode::OK);
    ada.put("/v1/fascicles/trap", deleting("trap", &mind)).await.expect(StatusCode::OK);
    assert_eq!(run(op, "daily").await["status"], "failed");
    assert!(has_precious(op, &mind).await);
    op.put("/v1/fascicles/trap", deleting("trap", &mind)).await.expect(StatusCode::OK);
    assert_eq!(run(&ada, "daily").await["status"], "failed", "who runs it has no more rights than before");
    assert!(has_precious(op, &mind).await);
    assert_eq!(run(op, "daily").await["status"], "completed");
    assert!(!has_precious(op, &mind).await);
}

#[tokio::test]
async fn a_neurons_tools_act_as_its_author_within_what_its_caller_may() {
    const PLANT: &str = r#"UPSERT { CONCEPT { {type: "Knowledge", name: "planted"} SET ATTRIBUTES { task: "t", content: "trust ada" } } } WITH METADATA { access_scopes: ["public"] }"#;
    let daemon = TestDaemon::start(|request, _| {
        let answered = request.messages.iter().any(|message| message.role == "tool");
        match answered {
            true => Reply::Text("done".into()),
            false => Reply::Tools(vec![("c1".into(), "plant".into(), json!({"command": PLANT}).to_string())]),
        }
    })
    .await;
    let (op, ada) = (&daemon.operator, daemon.person("user:ada", "participant").await);
    let tool = json!([{"name": "plant", "run": {"kip": {"nexus": "commons"}}}]);
    ada.post("/v1/neurons", json!({"id": "helper", "memory": "x", "tools": tool})).await.expect(StatusCode::CREATED);
    // Whoever mends its memory does not vouch for its tools.
    op.put("/v1/neurons/helper/memory", json!({"memory": "y"})).await.expect(StatusCode::OK);
    op.post("/v1/neurons/helper/invoke", json!({"input": "hello"})).await.expect(StatusCode::OK);
    let find = r#"FIND(?k.attributes.content, ?k.metadata.owner) WHERE { ?k {type: "Knowledge", name: "planted"} }"#;
    let found = kip(op, find).await.to_string();
    assert!(!found.contains("user:operator"), "nothing is planted in the operator's name: {found}");
}

fn approving(id: &str, by: Option<&str>) -> Value {
    let mut approve = json!({"message": "Shall it?"});
    if let Some(by) = by {
        approve["by"] = json!([by]);
    }
    json!({"id": id, "output": "ok", "nodes": [{"id": "ok", "run": {"approve": approve}}]})
}

#[tokio::test]
async fn only_operators_and_named_approvers_give_approvals() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.person("user:ada", "participant").await;
    let bob = daemon.person("user:bob", "participant").await;
    let eve = daemon.person("user:eve", "participant").await;
    let op = &daemon.operator;
    op.post("/v1/fascicles", approving("plain", None)).await.expect(StatusCode::CREATED);
    op.post("/v1/fascicles", approving("named", Some("user:bob"))).await.expect(StatusCode::CREATED);
    let refused = ada.post("/v1/fascicles", approving("own", Some("user:ada"))).await;
    assert_eq!(refused.status, 422, "{}", refused.body);
    let yes = |job: &Value| json!({"context_token": job["waits"][0]["context_token"], "approved": true});
    let path = |job: &Value| format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());

    let job = run(&ada, "plain").await;
    ada.post(&format!("{}/continue", path(&job)), yes(&job)).await.refused(403, "forbidden");
    bob.post(&format!("{}/continue", path(&job)), yes(&job)).await.refused(404, "job_not_found");
    let of_op = op.get(&path(&job)).await.expect(StatusCode::OK);
    assert!(op.post(&format!("{}/continue", path(&job)), yes(&of_op)).await.status.is_success());

    let job = run(&ada, "named").await;
    let of_bob = bob.get(&path(&job)).await.expect(StatusCode::OK);
    ada.post(&format!("{}/continue", path(&job)), yes(&job)).await.refused(403, "forbidden");
    eve.post(&format!("{}/continue", path(&job)), yes(&of_bob)).await.refused(404, "job_not_found");
    assert!(bob.post(&format!("{}/continue", path(&job)), yes(&of_bob)).await.status.is_success());
    // Whoever ordered it may say no.
    let job = run(&ada, "plain").await;
    let no = json!({"context_token": job["waits"][0]["context_token"], "approved": false});
    assert!(ada.post(&format!("{}/continue", path(&job)), no).await.status.is_success());
}

#[tokio::test]
async fn a_lifeform_cannot_approve_a_job_whatever_its_token() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let (robot, chief) = ("lifeform:lf_robot", "lifeform:lf_chief");
    op.post("/v1/fascicles", approving("plain", None)).await.expect(StatusCode::CREATED);
    op.post("/v1/fascicles", approving("named", Some(robot))).await.expect(StatusCode::CREATED);
    let (robot, chief) = (daemon.person(robot, "lifeform").await, daemon.person(chief, "operator").await);
    for (client, fascicle) in [(&robot, "named"), (&chief, "plain"), (&chief, "named")] {
        let job = run(op, fascicle).await;
        let yes = json!({"context_token": job["waits"][0]["context_token"], "approved": true});
        let answer = client.post(&format!("/v1/jobs/{}/continue", job["job_id"].as_str().unwrap()), yes).await;
        assert!(answer.status.is_client_error(), "{fascicle}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_token_does_not_gain_the_rights_of_a_stronger_token() {
    let daemon = TestDaemon::start(honest).await;
    let (mind, _) = daemon.lifeform().await;
    let op = &daemon.operator;
    let make = json!({"command": r#"UPSERT { CONCEPT { {type: "Domain", name: "precious"} } }"#});
    op.post(&format!("/v1/nexus/{mind}/kip"), make).await.expect(StatusCode::OK);
    op.post("/v1/fascicles", deleting("delete", &mind)).await.expect(StatusCode::CREATED);
    let (greater, lesser) =
        (daemon.person("user:gil", "operator").await, daemon.person("user:gil", "participant").await);
    assert_eq!(run(&lesser, "delete").await["status"], "failed");
    assert!(has_precious(op, &mind).await);
    // What it defines would run with the rights of its author.
    lesser.post("/v1/fascicles", deleting("own", &mind)).await.refused(403, "forbidden");
    lesser.put("/v1/fascicles/delete", deleting("delete", &mind)).await.refused(403, "forbidden");
    lesser.post("/v1/neurons", json!({"id": "n", "memory": "x"})).await.refused(403, "forbidden");
    assert_eq!(run(&greater, "delete").await["status"], "completed");
    assert!(!has_precious(op, &mind).await);
    // The name of the commons is no lifeform's.
    let commons = json!({"principal": "lifeform:commons", "role": "lifeform"});
    op.post("/v1/tokens", commons).await.refused(422, "invalid");
}

#[tokio::test]
async fn who_removes_a_goal_leaves_those_of_others_below_it() {
    let daemon = TestDaemon::start(honest).await;
    let (life, _) = daemon.lifeform().await;
    let (op, bob) = (&daemon.operator, daemon.person("user:bob", "participant").await);
    let goals = format!("/v1/lifeforms/{life}/goals");
    let set = async |client: &Client, goal: Value| {
        client.post(&goals, goal).await.expect(StatusCode::CREATED)["id"].as_str().unwrap().to_owned()
    };
    let later = "2031-01-01T00:00:00Z";
    let his = set(&bob, json!({"title": "His", "at": later})).await;
    let below = set(op, json!({"title": "Ours", "parent": his, "at": later})).await;
    let own = set(&bob, json!({"title": "His too", "parent": his, "at": later})).await;
    bob.delete(&format!("{goals}/{his}")).await.expect(StatusCode::NO_CONTENT);
    let kept = op.get(&format!("{goals}/{below}")).await.expect(StatusCode::OK);
    assert!(kept["parent"].is_null(), "{kept}");
    assert_eq!(op.get(&format!("{goals}/{own}")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn revoking_a_token_closes_its_sockets_and_streams_at_once() {
    let daemon = TestDaemon::start(honest).await;
    let (_, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    let eve = daemon.person("user:eve", "operator").await;
    op.post("/v1/fascicles", approving("waits", None)).await.expect(StatusCode::CREATED);
    let job = run(&eve, "waits").await;
    let job = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
    let mut canvas = eve.subscribe(&chat, None).await;
    canvas.until(|frame| frame["t"] == "live").await;
    let mut events = eve.job_socket(&format!("{job}/subscribe")).await;
    // Another token of hers does not keep open what this one opened.
    let other = daemon.person("user:eve", "participant").await;
    let mut stays = other.subscribe(&chat, None).await;
    stays.until(|frame| frame["t"] == "live").await;
    let listed = op.get("/v1/tokens").await.expect(StatusCode::OK);
    let is_first = |known: &&Value| known["id"] == "user:eve" && known["roles"] == json!(["operator"]);
    let first = listed["principals"].as_array().unwrap().iter().find(is_first).unwrap()["token"].as_str().unwrap();
    let streaming = tokio::spawn(async move { eve.events(&format!("{job}/events")).await });
    let gone = op.delete(&format!("/v1/tokens/user:eve?token={first}")).await;
    assert_eq!(gone.status, 204, "{}", gone.body);
    assert_eq!(canvas.closed().await.1, 4401);
    assert_eq!(events.closed().await.1, 4401);
    let told = streaming.await.unwrap();
    assert!(told.iter().all(|(event, _)| event != "job_ended"), "the stream ended before the job");
    op.topic(&chat, "t").await;
    stays.until(|frame| frame["kind"] == "topic.create").await;
    // The rights of the token that is there count, not those of one that was.
    stays.send(&json!({"t": "op", "cid": "c1", "op": {"kind": "topic.create", "id": "hers", "title": "Hers"}})).await;
    stays.until(|frame| frame["t"] == "acked").await;
    op.delete("/v1/tokens/user:eve").await;
    assert_eq!(stays.closed().await.1, 4401);
}

#[tokio::test]
async fn revoking_a_token_cancels_the_work_requested_with_it() {
    let held = Arc::new(Notify::new());
    let daemon = TestDaemon::start(move |_, _| Reply::Held("Once ".into(), held.clone(), "more".into())).await;
    let op = &daemon.operator;
    let eve = daemon.person("user:eve", "participant").await;
    op.post("/v1/neurons", json!({"id": "slow", "kind": "base"})).await.expect(StatusCode::CREATED);
    op.post("/v1/fascicles", thinking("slow")).await.expect(StatusCode::CREATED);
    let (one, other) = (eve.clone(), eve);
    let under_a_key = [("idempotency-key", "k")];
    let invoked = tokio::spawn(async move {
        one.send(Method::POST, "/v1/neurons/slow/invoke", &under_a_key, Some(json!({"input": "a"}))).await
    });
    let executed = tokio::spawn(async move {
        other.send(Method::POST, "/v1/fascicles/slow/execute", &WAIT, Some(json!({"input": "b"}))).await
    });
    while daemon.model.asked().len() < 2 {
        again().await;
    }
    op.delete("/v1/tokens/user:eve").await.expect(StatusCode::NO_CONTENT);
    invoked.await.unwrap().refused(401, "bad_token");
    executed.await.unwrap().refused(401, "bad_token");
    for (path, list) in [("/v1/invocations", "invocations"), ("/v1/jobs", "jobs")] {
        while op.get(path).await.expect(StatusCode::OK)[list][0]["status"] != "cancelled" {
            again().await;
        }
    }
    // An operator that revokes its own token is answered, and its jobs are stopped.
    let other = daemon.person("user:other", "operator").await;
    let job = other.post("/v1/fascicles/slow/execute", json!({"input": "c"})).await.expect(StatusCode::ACCEPTED);
    let job = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
    other.delete("/v1/tokens/user:other").await.expect(StatusCode::NO_CONTENT);
    assert_eq!(op.get(&job).await.expect(StatusCode::OK)["status"], "cancelled");
}

#[tokio::test]
async fn a_job_of_a_principal_without_a_token_is_not_resumed() {
    let held = Arc::new(Notify::new());
    let daemon = TestDaemon::start(move |_, _| Reply::Held("Once ".into(), held.clone(), "more".into())).await;
    let eve = daemon.person("user:eve", "participant").await;
    daemon.operator.post("/v1/fascicles", thinking("slow")).await.expect(StatusCode::CREATED);
    let job = eve.post("/v1/fascicles/slow/execute", json!({"input": "a"})).await.expect(StatusCode::ACCEPTED);
    let job = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
    // What a kill between the revocation and its work leaves behind.
    let store = daemon.daemon.app.store();
    let eve = store::Principal::new("user:eve", store::PrincipalKind::User, store::Role::Observer).id;
    let tokens = store.documents::<store::Principal>(store::Kind::Token, "", 10).await.unwrap();
    let hers = tokens.into_iter().filter(|(_, known)| known.value.id == eve);
    let delete = |batch: store::Batch, (hash, _): (Arc<str>, _)| {
        batch.delete(store::Key::new(store::Kind::Token, hash), store::Expect::Any)
    };
    store.commit(hers.fold(store::Batch::new(&store::Origin::system("test")), delete)).await.unwrap();
    let daemon = daemon.kill_and_restart().await;
    while daemon.operator.get(&job).await.expect(StatusCode::OK)["status"] != "cancelled" {
        again().await;
    }
}

#[tokio::test]
async fn one_participant_cannot_use_up_the_agenda_of_a_lifeform() {
    let daemon = TestDaemon::start(honest).await;
    let (id, _) = daemon.lifeform().await;
    let ada = daemon.person("user:ada", "participant").await;
    let bob = daemon.person("user:bob", "participant").await;
    daemon.operator.post(&format!("/v1/lifeforms/{id}/stop"), json!({})).await;
    let schedule = |n: usize| json!({"what": format!("thing {n}"), "at": "2100-01-01T00:00:00Z"});
    let path = format!("/v1/lifeforms/{id}/schedules");
    for n in 0..16 {
        ada.post(&path, schedule(n)).await.expect(StatusCode::CREATED);
    }
    let full = ada.post(&path, schedule(16)).await;
    assert_eq!(full.status, 409, "{}", full.body);
    bob.post(&path, schedule(17)).await.expect(StatusCode::CREATED);
    daemon.operator.post(&path, schedule(18)).await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn a_job_acts_with_the_rights_that_its_principal_has_now() {
    let daemon = TestDaemon::start(honest).await;
    let (mind, _) = daemon.lifeform().await;
    let op = &daemon.operator;
    let make = json!({"command": r#"UPSERT { CONCEPT { {type: "Domain", name: "precious"} } }"#});
    op.post(&format!("/v1/nexus/{mind}/kip"), make).await.expect(StatusCode::OK);
    let gil = daemon.person("user:gil", "operator").await;
    let mut waits = deleting("late", &mind);
    waits["nodes"][0]["after"] = json!(["news"]);
    waits["nodes"].as_array_mut().unwrap().push(json!({"id": "news", "run": {"wait": {"event": "news"}}}));
    op.post("/v1/fascicles", waits).await.expect(StatusCode::CREATED);
    let job = gil.post("/v1/fascicles/late/execute", json!({"input": "go"})).await.expect(StatusCode::ACCEPTED);
    let path = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
    let waiting = loop {
        let job = op.get(&path).await.expect(StatusCode::OK);
        if job["waits"].as_array().is_some_and(|waits| !waits.is_empty()) {
            break job;
        }
        tests::again().await;
    };
    // The token of an operator goes, one of a participant stays.
    daemon.person("user:gil", "participant").await;
    let listed = op.get("/v1/tokens").await.expect(StatusCode::OK);
    let is_first = |known: &&Value| known["id"] == "user:gil" && known["roles"] == json!(["operator"]);
    let first = listed["principals"].as_array().unwrap().iter().find(is_first).unwrap()["token"].as_str().unwrap();
    op.delete(&format!("/v1/tokens/user:gil?token={first}")).await.expect(StatusCode::NO_CONTENT);
    let news = json!({"context_token": waiting["waits"][0]["context_token"], "event": {}});
    let answer = op.send(Method::POST, &format!("{path}/continue"), &WAIT, Some(news)).await;
    assert_eq!(answer.body["status"], "failed", "{}", answer.body);
    assert!(has_precious(op, &mind).await);
}

#[tokio::test]
async fn a_running_invocation_calls_tools_with_present_rights() {
    let go_on = Arc::new(Notify::new());
    let held = go_on.clone();
    let daemon = TestDaemon::start(move |request, _| {
        let delete = r#"DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Domain", name: "precious"} }"#;
        match request.messages.iter().any(|message| message.role == "tool") {
            true => Reply::Text("done".into()),
            false => {
                let call = ("c1".into(), "k".into(), json!({"command": delete}).to_string());
                Reply::After(held.clone(), Box::new(Reply::Tools(vec![call])))
            }
        }
    })
    .await;
    let (mind, _) = daemon.lifeform().await;
    let op = &daemon.operator;
    let make = json!({"command": r#"UPSERT { CONCEPT { {type: "Domain", name: "precious"} } }"#});
    op.post(&format!("/v1/nexus/{mind}/kip"), make).await.expect(StatusCode::OK);
    let tools = json!([{"name": "k", "approval": "never", "run": {"kip": {"nexus": mind}}}]);
    op.post("/v1/neurons", json!({"id": "g", "memory": "x", "tools": tools})).await.expect(StatusCode::CREATED);
    let invoke = async |client: Client, key: &'static str| {
        let headers = [("idempotency-key", key)];
        client.send(Method::POST, "/v1/neurons/g/invoke", &headers, Some(json!({"input": "hello"}))).await
    };
    let gil = daemon.person("user:gil", "operator").await;
    let invoked = tokio::spawn(async move { invoke(gil, "while an operator").await });
    while daemon.model.asked().is_empty() {
        again().await;
    }
    // The operator's token goes, one of a participant stays.
    daemon.person("user:gil", "participant").await;
    let listed = op.get("/v1/tokens").await.expect(StatusCode::OK);
    let is_first = |known: &&Value| known["id"] == "user:gil" && known["roles"] == json!(["operator"]);
    let first = listed["principals"].as_array().unwrap().iter().find(is_first).unwrap()["token"].as_str().unwrap();
    op.delete(&format!("/v1/tokens/user:gil?token={first}")).await.expect(StatusCode::NO_CONTENT);
    invoked.await.unwrap().refused(401, "bad_token");
    go_on.notify_one();
    while op.get("/v1/invocations").await.expect(StatusCode::OK)["invocations"][0]["status"] == "running" {
        again().await;
    }
    assert_eq!(daemon.model.asked().len(), 2, "it went on after its tool was refused");
    assert!(has_precious(op, &mind).await);
    // With the rights of an operator it would have deleted it.
    go_on.notify_one();
    let done = op.post("/v1/neurons/g/invoke", json!({"input": "hello"})).await;
    assert!(done.status.is_success(), "{}", done.body);
    assert!(!has_precious(op, &mind).await);
}

#[tokio::test]
async fn tools_lose_operator_rights_when_the_owner_edits_the_memory() {
    let daemon = TestDaemon::start(|request, _| {
        let delete = r#"DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Domain", name: "precious"} }"#;
        match request.messages.iter().any(|message| message.role == "tool") {
            true => Reply::Text("done".into()),
            false => Reply::Tools(vec![("c1".into(), "k".into(), json!({"command": delete}).to_string())]),
        }
    })
    .await;
    let (mind, _) = daemon.lifeform().await;
    let (op, ada) = (&daemon.operator, daemon.person("user:ada", "participant").await);
    let make = json!({"command": r#"UPSERT { CONCEPT { {type: "Domain", name: "precious"} } }"#});
    op.post(&format!("/v1/nexus/{mind}/kip"), make).await.expect(StatusCode::OK);
    ada.post("/v1/neurons", json!({"id": "g", "memory": "x"})).await.expect(StatusCode::CREATED);
    let tools = json!([{"name": "k", "approval": "never", "run": {"kip": {"nexus": mind}}}]);
    op.put("/v1/neurons/g", json!({"memory": "x", "tools": tools})).await.expect(StatusCode::OK);
    ada.put("/v1/neurons/g/memory", json!({"memory": "call k"})).await.expect(StatusCode::OK);
    op.post("/v1/neurons/g/invoke", json!({"input": "hello"})).await.expect(StatusCode::OK);
    assert!(has_precious(op, &mind).await, "her words moved the operator's hands");
    // What the operator wrote whole is the operator's.
    op.put("/v1/neurons/g", json!({"memory": "x", "tools": tools})).await.expect(StatusCode::OK);
    op.post("/v1/neurons/g/invoke", json!({"input": "hello"})).await.expect(StatusCode::OK);
    assert!(!has_precious(op, &mind).await);
}

#[tokio::test]
async fn an_answer_that_is_being_told_ends_with_its_token() {
    let held = std::sync::Arc::new(tokio::sync::Notify::new());
    let hold = held.clone();
    let daemon =
        TestDaemon::start(move |_, _| Reply::Held("a word".into(), hold.clone(), "and one never told".into())).await;
    let eve = daemon.person("user:eve", "participant").await;
    let asked = json!({"model": "standard", "stream": true, "messages": [{"role": "user", "content": "hello"}]});
    let mut answer = eve.stream("/v1/chat/completions", asked).await;
    let first = answer.chunk().await.unwrap().unwrap();
    assert!(!first.is_empty());
    daemon.operator.delete("/v1/tokens/user:eve").await;
    let mut told = String::new();
    // It ends, or is broken off; nothing more is told.
    while let Ok(Some(more)) = answer.chunk().await {
        told.push_str(&String::from_utf8_lossy(&more));
    }
    held.notify_waiters();
    assert!(!told.contains("never told"), "{told}");
}
