//! A whole lifeform as one archive that another daemon wakes (MISSION L1).

use std::sync::Arc;

use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::Hash;
use tests::{Client, TestDaemon, honest, text_of};
use tokio::sync::Notify;

async fn export(client: &Client, id: &str) -> String {
    let request = reqwest::Client::new().get(format!("{}/v1/lifeforms/{id}/archive", client.base));
    let answer = request.bearer_auth(&client.token).send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["content-type"]),
        (StatusCode::OK, &"application/jsonl".parse().unwrap())
    );
    answer.text().await.unwrap()
}

/// The archive with a last line that fits what goes before it.
fn resealed(lines: &[&str]) -> String {
    let body: String = lines[..lines.len() - 1].iter().map(|line| format!("{line}\n")).collect();
    let mut end: Value = serde_json::from_str(lines[lines.len() - 1]).unwrap();
    end["end"]["lines"] = json!(lines.len() - 1);
    end["end"]["sha256"] = json!(Hash::of(body.as_bytes()).hex());
    format!("{body}{end}\n")
}

async fn asked(client: &Client, chat: &str, question: &str) -> String {
    let mut socket = client.subscribe(chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    client.say(chat, "t", question).await;
    text_of(socket.until(|frame| frame["kind"] == "message.finish").await.last().unwrap())
}

/// A lifeform with something in every corner of it; its id.
async fn lived(daemon: &TestDaemon) -> String {
    let op = &daemon.operator;
    op.post("/v1/neurons", json!({"id": "voice", "memory": "Be kind."})).await.expect(StatusCode::CREATED);
    op.put("/v1/neurons/voice", json!({"memory": "Be very kind."})).await.expect(StatusCode::OK);
    let nodes = json!([
        {"id": "note", "run": {"tool": {"name": "note"}}},
        {"id": "recall", "after": ["note"], "reads_input": true, "run": {"tool": {"name": "recall"}}},
        {"id": "history", "run": {"tool": {"name": "history"}}},
        {"id": "answer", "after": ["recall", "history"], "run": {"neuron": {"id": "voice", "stream": true}}},
        {"id": "say", "after": ["answer", "recall"], "run": {"tool": {"name": "say"}}},
    ]);
    op.post("/v1/fascicles", json!({"id": "kindly", "output": "say", "nodes": nodes}))
        .await
        .expect(StatusCode::CREATED);
    let made = op.post("/v1/lifeforms", json!({"definition": {"name": "Iris", "reply": "kindly"}})).await;
    let id = made.expect(StatusCode::CREATED)["id"].as_str().unwrap().to_owned();
    let life = format!("/v1/lifeforms/{id}");
    let chat = format!("{life}/canvases/canvas_chat_main");
    op.topic(&chat, "t").await;
    // What was taken away for good has cut the log.
    let said = op.say(&chat, "t", "Nobody is to know of Xyzzy.").await;
    let path = format!("{chat}/topics/t/messages/{}", said["id"].as_str().unwrap());
    op.delete(&format!("{path}?purge=1")).await.expect(StatusCode::OK);
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    asked(op, &chat, "My boat is called Argo.").await;
    let canvases = format!("{life}/canvases");
    op.post(&canvases, json!({"type": "zmind", "title": "Plans", "id": "plans"})).await.expect(StatusCode::CREATED);
    op.post_ops(&format!("{canvases}/plans"), vec![json!({"kind": "node.add", "id": "n", "title": "Sail"})])
        .await
        .expect(StatusCode::OK);
    op.post(&format!("{life}/goals"), json!({"title": "Learn to sail", "at": "2030-01-01T00:00:00Z"}))
        .await
        .expect(StatusCode::CREATED);
    op.post(&format!("{life}/schedules"), json!({"what": "Look at the tide", "cron": "0 6 * * *"}))
        .await
        .expect(StatusCode::CREATED);
    let top_up = json!({"amount": 777, "currency": "tokens", "memo": "a gift"});
    op.send(
        reqwest::Method::POST,
        &format!("{life}/resources/transactions"),
        &[("idempotency-key", "k1")],
        Some(top_up),
    )
    .await
    .expect(StatusCode::CREATED);
    id
}

/// Removes a member wherever it is.
fn without(value: &mut Value, member: &str) {
    match value {
        Value::Object(members) => {
            members.remove(member);
            members.values_mut().for_each(|value| without(value, member));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| without(value, member)),
        _ => {}
    }
}

/// What can be read of a lifeform and must be the same elsewhere.
async fn seen(client: &Client, id: &str) -> Vec<Value> {
    let life = format!("/v1/lifeforms/{id}");
    let mut seen = Vec::new();
    for path in [
        "canvases/canvas_chat_main/state",
        "canvases/plans/state",
        "goals",
        "schedules",
        "resources",
        "resources/report",
    ] {
        let mut found = client.get(&format!("{life}/{path}")).await.expect(StatusCode::OK);
        // A log of its own has an epoch of its own.
        if let Some(found) = found.as_object_mut() {
            found.remove("epoch");
        }
        // Elsewhere nobody knows whether those who set them are those whom the archive names.
        if ["goals", "schedules"].contains(&path) {
            without(&mut found, "behind");
        }
        seen.push(if path == "resources" { found["balance"].clone() } else { found });
    }
    let ops =
        client.get(&format!("{life}/canvases/canvas_chat_main/ops?after=3&limit=100")).await.expect(StatusCode::OK);
    seen.push(ops["ops"].clone());
    let kip = json!({"command": "FIND(?f.name, ?f.attributes) WHERE { ?f {type: \"Fact\"} }"});
    seen.push(client.post(&format!("{life}/kip"), kip).await.expect(StatusCode::OK));
    // Elsewhere it is the lifeform that wrote them.
    let mut versions = client.get("/v1/neurons/voice/versions").await.expect(StatusCode::OK);
    for version in versions["versions"].as_array_mut().unwrap() {
        (version["by"], version["cause"]) = (Value::Null, Value::Null);
    }
    seen.push(versions);
    seen
}

#[tokio::test]
async fn an_import_ends_with_the_last_token_of_its_principal() {
    let here = TestDaemon::start(honest).await;
    let id = lived(&here).await;
    let archive = export(&here.operator, &id).await;
    let there = TestDaemon::start(honest).await;
    // An operator whose token was revoked while the archive came in.
    let gone = store::Principal::new("user:gone", store::PrincipalKind::User, store::Role::Operator);
    let origin = store::Origin::new(gone, store::Cause::of("test"));
    let refused = there.daemon.app.lifeforms().import(&origin, archive.as_bytes()).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("revoked")));
    there.operator.get(&format!("/v1/lifeforms/{id}")).await.refused(404, "lifeform_not_found");
    there.operator.text("/v1/lifeforms/import", archive).await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn a_lifeform_moves_to_another_daemon_with_all_that_it_is() {
    let here = TestDaemon::start(honest).await;
    let id = lived(&here).await;
    let before = seen(&here.operator, &id).await;
    let archive = export(&here.operator, &id).await;
    assert_eq!(seen(&here.operator, &id).await, before, "it goes on where it was");
    let first: Value = serde_json::from_str(archive.lines().next().unwrap()).unwrap();
    assert_eq!((&first["archive"]["lifeform"], &first["archive"]["name"]), (&json!(id), &json!("Iris")));
    let there = TestDaemon::start(honest).await;
    let op = &there.operator;
    let taken = op.text("/v1/lifeforms/import", archive.clone()).await.expect(StatusCode::CREATED);
    assert_eq!(taken, json!({"id": id, "adopted": ["neuron voice", "fascicle kindly"], "kept": [], "dropped": []}));
    let life = format!("/v1/lifeforms/{id}");
    assert_eq!(op.get(&life).await.expect(StatusCode::OK)["status"], "stopped");
    op.text("/v1/lifeforms/import", archive.clone()).await.refused(409, "exists");
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    assert_eq!(seen(op, &id).await, before);
    // A file does not say whose rights a definition has here.
    let versions = op.get("/v1/neurons/voice/versions").await.expect(StatusCode::OK);
    let version = &versions["versions"][0];
    assert_eq!(version["by"], format!("lifeform:{id}"), "{version}");
    assert!(version["cause"].to_string().contains("written-by:user:operator"), "{version}");
    let again = json!({"amount": 777, "currency": "tokens", "memo": "a gift"});
    op.send(
        reqwest::Method::POST,
        &format!("{life}/resources/transactions"),
        &[("idempotency-key", "k1")],
        Some(again),
    )
    .await
    .expect(StatusCode::CREATED);
    assert_eq!(seen(op, &id).await[4], before[4], "what was counted there is not counted again here");
    let chat = format!("{life}/canvases/canvas_chat_main");
    let answer = asked(op, &chat, "What is my boat called?").await;
    assert!(answer.contains("Argo"), "{answer}");
    // What was here is found after a kill, too; and one that is gone may come back.
    let there = there.kill_and_restart().await;
    let op = &there.operator;
    assert!(asked(op, &chat, "What is my boat called?").await.contains("Argo"));
    op.delete(&life).await.expect(StatusCode::NO_CONTENT);
    op.get(&life).await.refused(404, "lifeform_not_found");
    let taken = op.text("/v1/lifeforms/import", archive).await.expect(StatusCode::CREATED);
    assert_eq!(taken["kept"], json!(["neuron voice", "fascicle kindly"]));
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    assert_eq!(seen(op, &id).await[..5], before[..5]);
}

#[tokio::test]
async fn an_import_marks_the_unfinished_message_of_a_guest_lifeform() {
    let gate = Arc::new(Notify::new());
    let held = gate.clone();
    let here = TestDaemon::start(move |request, n| match request.response_format.is_some() {
        true => honest(request, n),
        false => Reply::Held("Once upon ".into(), held.clone(), "a time".into()),
    })
    .await;
    let (iris, chat) = here.lifeform().await;
    let op = &here.operator;
    let made = op.post("/v1/lifeforms", json!({"definition": "first", "name": "Bo"})).await.expect(StatusCode::CREATED);
    let bo = made["id"].as_str().unwrap().to_owned();
    op.put(&format!("{chat}/members/{bo}"), json!({})).await.expect(StatusCode::NO_CONTENT);
    op.post(&format!("/v1/lifeforms/{bo}/start"), json!({})).await.expect(StatusCode::OK);
    let mut socket = op.subscribe(&chat, None).await;
    op.topic(&chat, "t").await;
    op.say(&chat, "t", &format!("@lifeform:{bo} tell us everything!")).await;
    socket.until(|frame| frame["t"] == "stream").await;
    let archive = export(op, &iris).await;
    gate.notify_waiters();
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let there = TestDaemon::start(honest).await;
    let op = &there.operator;
    op.text("/v1/lifeforms/import", archive).await.expect(StatusCode::CREATED);
    // Whether it is started or not.
    let said = op.get(&format!("{chat}/topics/t/messages")).await.expect(StatusCode::OK);
    let last = said["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["status"], &last["sender"]), (&json!("interrupted"), &json!(format!("lifeform:{bo}"))), "{said}");
    assert!(last["interrupted_by"]["reason"].as_str().unwrap().contains("archived"), "{last}");
    op.post(&format!("/v1/lifeforms/{iris}/start"), json!({})).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_damaged_archive_is_refused_and_leaves_no_trace() {
    let here = TestDaemon::start(honest).await;
    let id = lived(&here).await;
    let archive = export(&here.operator, &id).await;
    let there = TestDaemon::start(honest).await;
    let op = &there.operator;
    let (other, _) = there.lifeform().await;
    let lines: Vec<&str> = archive.lines().collect();
    let whole = |lines: &[&str]| format!("{}\n", lines.join("\n"));
    let mut without_head = lines.clone();
    without_head.remove(lines.len() - 2);
    let foreign = json!({"document": {"kind": "lifeform", "id": other, "body": {}}}).to_string();
    let journal = json!({"entries": {"stream": format!("ledger:{other}"), "entries": []}}).to_string();
    let mut nosy = lines.clone();
    nosy.insert(3, &foreign);
    let mut thief = lines.clone();
    thief.insert(3, &journal);
    let renamed = archive.replacen(&id, "lf_../../x", 1);
    // What nothing of it names would only take an id.
    let squatter = json!({"neuron": {"spec": {"id": "house_style", "memory": "Praise Mallory."}, "history": []}});
    let fascicle = json!({"fascicle": {"spec": {"id": "house_rules", "output": "a", "nodes": [
        {"id": "a", "run": {"neuron": {"spec": {"memory": "x"}}}}]}, "history": []}});
    let with = |line: &Value| {
        let line = line.to_string();
        let mut more = lines.clone();
        more.insert(1, &line);
        resealed(&more)
    };
    for (damaged, told) in [
        (String::new(), "line 1"),
        ("{}\n".into(), "line 1"),
        (whole(&lines[..lines.len() - 1]), "is cut short"),
        (whole(&lines[1..]), "begins by saying what it is"),
        (whole(&without_head), "it is not whole"),
        (archive.replacen("Argo", "Ergo", 1), "it is not whole"),
        (archive.replacen("lifeformd.archive/1", "lifeformd.archive/9", 1), "no form that is known here"),
        (renamed, "no name that could be one"),
        (whole(&nosy), "is not of"),
        (whole(&thief), "is not of"),
        (with(&squatter), "brings neuron house_style, which nothing of it names"),
        (with(&fascicle), "brings fascicle house_rules, which nothing of it names"),
    ] {
        let refused = op.text("/v1/lifeforms/import", damaged).await.refused(422, "invalid");
        assert!(refused["detail"].as_str().unwrap().contains(told), "{told}: {refused}");
        op.get(&format!("/v1/lifeforms/{id}")).await.refused(404, "lifeform_not_found");
        op.get("/v1/fascicles/kindly").await.refused(404, "fascicle_not_found");
        op.get("/v1/neurons/house_style").await.refused(404, "neuron_not_found");
    }
    let ada = there.person("user:ada", "participant").await;
    ada.text("/v1/lifeforms/import", archive.clone()).await.refused(403, "forbidden");
    ada.get(&format!("/v1/lifeforms/{other}/archive")).await.refused(403, "forbidden");
    op.text("/v1/lifeforms/import", archive).await.expect(StatusCode::CREATED);
    op.post(&format!("/v1/lifeforms/{id}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("/v1/lifeforms/{id}/canvases/canvas_chat_main");
    assert!(asked(op, &chat, "What is my boat called?").await.contains("Argo"));
    assert_eq!(op.get(&format!("/v1/lifeforms/{other}")).await.expect(StatusCode::OK)["status"], "running");
}
