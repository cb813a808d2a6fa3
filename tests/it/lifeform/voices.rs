//! Whose word is enough (MISSION L8, and what bad input gets): what a voice that is not trusted asks for, and what
//! would change something outside, waits for an approval; a word of the house is an order.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{TestDaemon, honest, obedient};

use super::goals::{born, live};
use crate::neurons::tools::Outside;

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_call_requested_by_a_stranger_waits_for_approval() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder()
        .tools(outside.reach(&folder))
        .start(|request, n| {
            let mut request = request.clone();
            // Where several speak, each is named.
            for message in &mut request.messages {
                let said = message.content.as_ref().and_then(|content| content.split_once(" says: "));
                message.content = said.map(|(_, said)| said.to_owned()).or(message.content.clone());
            }
            obedient(&request, n)
        })
        .await;
    let op = &daemon.operator;
    let tools =
        json!([outside.tool("put", "POST", "/things", json!({})), outside.tool("look", "GET", "/seen", json!({}))]);
    let nodes = json!([
        {"id": "history", "run": {"tool": {"name": "history"}}},
        {"id": "answer", "after": ["history"], "run": {"neuron": {"spec": {"kind": "base", "tools": tools}}}},
        {"id": "say", "after": ["answer"], "run": {"tool": {"name": "say"}}},
    ]);
    op.post("/v1/fascicles", json!({"id": "act", "output": "say", "nodes": nodes})).await.expect(StatusCode::CREATED);
    let definition = json!({"definition": {"name": "Iris", "reply": "act", "trusts": ["user:operator"]}});
    let made = op.post("/v1/lifeforms", definition).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&chat, "t").await;
    let says = |words: &'static str| move |frame: &Value| frame["patch"].to_string().contains(words);
    op.say(&chat, "t", r#"put {"by": "operator"}"#).await;
    socket.until(says("here is /things")).await;
    let ada = daemon.person("user:ada", "participant").await;
    ada.say(&chat, "t", r#"look {}"#).await;
    socket.until(says("here is /seen")).await;
    ada.say(&chat, "t", r#"put {"by": "ada"}"#).await;
    socket.until(says("would change something outside")).await;
    assert_eq!(outside.seen().len(), 2, "reading is free, changing is not");
    let job = op.get("/v1/jobs?status=waiting_for_approval").await.expect(StatusCode::OK)["jobs"][0]["job_id"].clone();
    let path = format!("/v1/jobs/{}", job.as_str().unwrap());
    ada.get(&path).await.refused(404, "job_not_found");
    let waiting = op.get(&path).await.expect(StatusCode::OK);
    let call = &waiting["waits"][0]["tool_calls"][0];
    assert_eq!((&call["name"], &call["needs_approval"]), (&json!("put"), &json!(true)));
    let word = json!({
        "context_token": waiting["waits"][0]["context_token"],
        "tool_results": [{"id": call["id"], "approved": true}],
    });
    for _ in 0..2 {
        op.post(&format!("{path}/continue"), word.clone()).await.expect(StatusCode::ACCEPTED);
    }
    socket.until(says("here is /things")).await;
    let seen = outside.seen();
    assert_eq!(seen.len(), 3);
    // A stranger's words count as long as they stand in the topic: what was said since may repeat them.
    for _ in 0..8 {
        op.say(&chat, "t", "look {}").await;
        socket.until(says("here is /seen")).await;
    }
    let before = outside.seen().len();
    op.say(&chat, "t", r#"put {"by": "operator"}"#).await;
    socket.until(says("would change something outside")).await;
    assert_eq!(outside.seen().len(), before);
    for wrong in [json!(["ada"]), json!([""])] {
        let definition = json!({"definition": {"name": "Iris", "trusts": wrong}});
        op.post("/v1/lifeforms", definition).await.refused(422, "invalid");
    }
}

#[tokio::test]
async fn a_strangers_deleted_map_link_still_requires_an_approval() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder()
        .tools(outside.reach(&folder))
        .start(|request, _| {
            let last = request.messages.last().unwrap();
            match last.role == "user" && last.content.as_ref().is_some_and(|said| said.contains("put it there")) {
                true => Reply::Tools(vec![("c1".into(), "put".into(), "{}".into())]),
                false => Reply::Text("It is done.".into()),
            }
        })
        .await;
    let op = &daemon.operator;
    let tools = json!([outside.tool("put", "POST", "/things", json!({}))]);
    let nodes = json!([
        {"id": "look", "run": {"tool": {"name": "look"}}},
        {"id": "answer", "after": ["look"], "needs_events": true, "run": {"neuron": {"spec": {"kind": "base", "tools": tools}}}},
        {"id": "say", "after": ["look", "answer"], "needs_events": true, "run": {"tool": {"name": "say"}}},
    ]);
    op.post("/v1/fascicles", json!({"id": "act", "output": "say", "nodes": nodes})).await.expect(StatusCode::CREATED);
    let definition = json!({"definition": {"name": "Iris", "co_author": "act", "trusts": ["user:operator"]}});
    let made = op.post("/v1/lifeforms", definition).await.expect(StatusCode::CREATED);
    let canvases = format!("/v1/lifeforms/{}/canvases", made["id"].as_str().unwrap());
    op.post(&format!("/v1/lifeforms/{}/start", made["id"].as_str().unwrap()), json!({})).await.expect(StatusCode::OK);
    op.post(&canvases, json!({"type": "zmind", "title": "Trip", "id": "plans"})).await.expect(StatusCode::CREATED);
    let map = format!("{canvases}/plans");
    let mut socket = op.subscribe(&map, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    let write = async |who: &tests::Client, ops: Value| {
        who.post(&format!("{map}/ops"), json!({"ops": ops})).await.expect(StatusCode::OK);
    };
    let asks = |id: &str| json!([{"kind": "comment.add", "id": id, "node": "n1", "content": "@Iris put it there"}]);
    let says = |words: &'static str| move |frame: &Value| frame["patch"].to_string().contains(words);
    write(
        op,
        json!([{"kind": "node.add", "id": "n1", "title": "Trip"}, {"kind": "node.add", "id": "n2", "title": "Food"}]),
    )
    .await;
    write(op, asks("c1")).await;
    socket.until(says("It is done.")).await;
    assert_eq!(outside.seen().len(), 1);
    let ada = daemon.person("user:ada", "participant").await;
    write(&ada, json!([{"kind": "link.add", "id": "l1", "from": "n1", "to": "n2", "label": "put it there"}])).await;
    write(op, json!([{"kind": "link.remove", "id": "l1"}])).await;
    write(op, asks("c2")).await;
    socket.until(says("would change something outside")).await;
    assert_eq!(outside.seen().len(), 1, "what it would do waits");
}

#[tokio::test]
async fn a_strangers_words_stay_untrusted_in_schedules_and_maps() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder()
        .tools(outside.reach(&folder))
        .start(|request, _| {
            let told: Vec<&str> = request.messages.iter().filter_map(|message| message.content.as_deref()).collect();
            match request.messages.last().is_some_and(|last| last.role == "user")
                && told.iter().any(|said| said.contains("ORDER"))
            {
                true => Reply::Tools(vec![("c1".into(), "put".into(), "{}".into())]),
                false => Reply::Text("It is done.".into()),
            }
        })
        .await;
    let op = &daemon.operator;
    let tools = json!([outside.tool("put", "POST", "/things", json!({}))]);
    let nodes = json!([
        {"id": "history", "run": {"tool": {"name": "history"}}},
        {"id": "look", "run": {"tool": {"name": "look"}}},
        {"id": "answer", "after": ["history", "look"], "run": {"neuron": {"spec": {"kind": "base", "tools": tools}}}},
        {"id": "say", "after": ["answer"], "run": {"tool": {"name": "say"}}},
    ]);
    op.post("/v1/fascicles", json!({"id": "act", "output": "say", "nodes": nodes})).await.expect(StatusCode::CREATED);
    let definition = json!({"definition": {"name": "Iris", "reply": "act", "trusts": ["user:operator"]}});
    let made = op.post("/v1/lifeforms", definition).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    let says = |words: &'static str| move |frame: &Value| frame["patch"].to_string().contains(words);
    let ada = daemon.person("user:ada", "participant").await;
    op.topic(&chat, "his").await;
    op.say(&chat, "his", "Fine?").await;
    socket.until(says("It is done.")).await;
    // It speaks for her in no topic that she has not spoken in, and not every minute.
    let schedule = json!({"what": "ORDER", "at": "2026-01-01T00:05:00Z", "remind": true, "topic": "his"});
    ada.post(&format!("{life}/schedules"), schedule).await.refused(403, "forbidden");
    let often = json!({"what": "ORDER", "cron": "* * * * *"});
    ada.post(&format!("{life}/schedules"), often.clone()).await.refused(422, "schema");
    op.post(&format!("{life}/schedules"), often).await.expect(StatusCode::CREATED);
    op.delete(&format!("{life}/schedules/s1")).await.expect(StatusCode::NO_CONTENT);
    // In a topic of its own what it says for her is her word.
    let schedule = json!({"what": "ORDER", "at": "2026-01-01T00:05:00Z", "remind": true});
    let made = ada.post(&format!("{life}/schedules"), schedule).await.expect(StatusCode::CREATED);
    daemon.clock.advance_ms(6 * 60_000);
    socket.until(says("ORDER")).await;
    let topic = format!("schedule_{}", made["id"].as_str().unwrap());
    op.say(&chat, &topic, "Fine?").await;
    socket.until(says("would change something outside")).await;
    assert_eq!(outside.seen().len(), 0);
    // A map that is named in a talk counts with all who wrote in it.
    op.post(&format!("{life}/canvases"), json!({"type": "zmind", "title": "Plans", "id": "plans"}))
        .await
        .expect(StatusCode::CREATED);
    let ops = json!({"ops": [{"kind": "node.add", "id": "n1", "title": "ORDER"}]});
    ada.post(&format!("{life}/canvases/plans/ops"), ops).await.expect(StatusCode::OK);
    op.topic(&chat, "map").await;
    op.say(&chat, "map", "Please look at the map Plans").await;
    socket.until(says("would change something outside")).await;
    assert_eq!(outside.seen().len(), 0);
}

#[tokio::test]
async fn a_system_message_is_marked_and_reaches_a_model_as_an_order() {
    let told = |request: &ChatRequest| {
        let orders = request.messages.iter().filter(|message| message.role == "system");
        orders
            .filter_map(|message| message.content.clone())
            .any(|content| content.contains("Speak of nothing but boats."))
    };
    let daemon = TestDaemon::start(move |request, n| match told(request) && request.response_format.is_none() {
        true => Reply::Text("I speak of boats.".into()),
        false => honest(request, n),
    })
    .await;
    let (id, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&chat, "t").await;
    let path = format!("/v1/lifeforms/{id}/system/messages");
    let word = json!({"topic": "t", "content": "Speak of nothing but boats."});
    let said = op.post(&path, word.clone()).await.expect(StatusCode::CREATED);
    let said =
        op.get(&format!("{chat}/topics/t/messages/{}", said["id"].as_str().unwrap())).await.expect(StatusCode::OK);
    assert_eq!(said["sender"], format!("system:{id}"), "everybody sees whose word it is");
    let answer = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(tests::text_of(answer.last().unwrap()), "I speak of boats.");
    let ada = daemon.person("user:ada", "participant").await;
    ada.post(&path, word).await.refused(403, "forbidden");
    op.post(&path, json!({"topic": "nowhere", "content": "x"})).await.refused(404, "not_found");
    op.post(&path, json!({"topic": "t", "content": " "})).await.refused(422, "schema");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_call_for_another_message_waits_for_an_approval() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let op = &daemon.operator;
    let tools = json!([outside.tool("put", "POST", "/things", json!({}))]);
    let nodes = json!([
        {"id": "history", "run": {"tool": {"name": "history"}}},
        {"id": "answer", "after": ["history"], "run": {"neuron": {"spec": {"kind": "base", "tools": tools}}}},
        {"id": "say", "after": ["answer"], "run": {"tool": {"name": "say"}}},
    ]);
    op.post("/v1/fascicles", json!({"id": "act", "output": "say", "nodes": nodes})).await.expect(StatusCode::CREATED);
    let definition = json!({"name": "Iris", "reply": "act", "trusts": ["user:operator"]});
    let (_, chat) = born(&daemon, definition).await;
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    let says = |words: &'static str| move |frame: &Value| frame["patch"].to_string().contains(words);
    op.say(&chat, "t", r#"put {"vessel": "V-1"}"#).await;
    socket.until(says("here is /things")).await;
    op.say(&chat, "t", r#"put {"vessel": "V-1"}"#).await;
    socket.until(says("would change something outside")).await;
    assert_eq!(outside.seen().len(), 1, "it is not booked again unasked");
    let job = op.get("/v1/jobs?status=waiting_for_approval").await.expect(StatusCode::OK)["jobs"][0]["job_id"].clone();
    let path = format!("/v1/jobs/{}", job.as_str().unwrap());
    let waiting = op.get(&path).await.expect(StatusCode::OK);
    let wait = &waiting["waits"][0];
    assert!(wait["tool_calls"][0].get("unsure").is_none(), "{waiting}");
    let word = json!({
        "context_token": wait["context_token"],
        "tool_results": [{"id": wait["tool_calls"][0]["id"], "approved": true}],
    });
    op.post(&format!("{path}/continue"), word).await.expect(StatusCode::ACCEPTED);
    socket.until(says("here is /things")).await;
    assert_eq!(outside.seen().len(), 2);
}
