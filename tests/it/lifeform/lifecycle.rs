//! Lifeforms over real sockets: birth, standing, nutrients, policy, and a mind that lasts.

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest, text_of};

async fn ask(client: &Client, base: &str, topic: &str, question: &str) -> String {
    let mut socket = client.subscribe(base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    client.topic(base, topic).await;
    client.say(base, topic, question).await;
    let frames = socket.answer().await;
    text_of(frames.last().unwrap())
}

/// Waits until every job of the lifeform has ended: what was said is then also learned.
pub(crate) async fn settled(store: &store::Store, id: &str, topic: &str, rev: u64) {
    let mut follow = store.follow(format!("job:{id}.{topic}.r{rev}").into(), 0);
    while let Ok(entry) = follow.next().await {
        if entry.to_json()["data"]["fact"] == "ended" {
            assert_eq!(entry.to_json()["data"]["status"], "completed");
            return;
        }
    }
}

#[tokio::test]
async fn a_lifeform_is_made_started_stopped_rebooted_and_terminated() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let made =
        op.post("/v1/lifeforms", json!({"definition": "first", "name": "Ada's"})).await.expect(StatusCode::CREATED);
    assert_eq!((&made["status"], &made["name"]), (&json!("created"), &json!("Ada's")));
    let path = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    for (action, status) in
        [("start", "running"), ("start", "running"), ("stop", "stopped"), ("stop", "stopped"), ("reboot", "running")]
    {
        let answer = op.post(&format!("{path}/{action}"), json!({})).await.expect(StatusCode::OK);
        assert_eq!(answer["status"], status, "{action}");
        assert_eq!(op.get(&path).await.expect(StatusCode::OK)["status"], status);
    }
    op.post(&format!("{path}/dance"), json!({})).await.refused(404, "no_action");
    assert_eq!(op.get("/v1/lifeforms").await.expect(StatusCode::OK)["lifeforms"][0]["id"], made["id"]);
    assert_eq!(
        op.get(&format!("{path}/fascicles")).await.expect(StatusCode::OK)["fascicles"][0],
        json!({"id": "reply", "skill": "reply", "status": "active"})
    );
    assert_eq!(op.delete(&path).await.status, StatusCode::NO_CONTENT);
    op.get(&path).await.refused(404, "lifeform_not_found");
    op.post(&format!("{path}/start"), json!({})).await.refused(404, "lifeform_not_found");
    op.post("/v1/lifeforms", json!({"definition": "nobody"})).await.refused(404, "no_definition");
    op.post("/v1/lifeforms", json!({"definition": {"name": "x", "soul": 1}})).await.refused(422, "invalid");
    op.post("/v1/lifeforms", json!({"definition": {"name": " "}})).await.refused(422, "invalid");
}

#[tokio::test]
async fn the_same_key_makes_one_lifeform_and_one_transaction() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let make =
        || op.send(Method::POST, "/v1/lifeforms", &[("idempotency-key", "k1")], Some(json!({"definition": "first"})));
    let (a, b) = (make().await.expect(StatusCode::CREATED), make().await.expect(StatusCode::CREATED));
    assert_eq!(a["id"], b["id"]);
    let path = format!("/v1/lifeforms/{}/resources/transactions", a["id"].as_str().unwrap());
    let pay = |amount: i64| {
        op.send(
            Method::POST,
            &path,
            &[("idempotency-key", "k2")],
            Some(json!({"amount": amount, "currency": "tokens", "memo": "m"})),
        )
    };
    assert_eq!(pay(50).await.expect(StatusCode::CREATED)["balance"]["tokens"], 200_050);
    assert_eq!(pay(50).await.expect(StatusCode::CREATED)["balance"]["tokens"], 200_050);
    pay(51).await.refused(422, "invalid");
}

#[tokio::test]
async fn a_lifeform_recalls_a_fact_after_a_kill_until_its_deletion() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = daemon.operator.clone();
    let before = op.get(&format!("/v1/lifeforms/{id}/resources")).await.expect(StatusCode::OK);
    op.topic(&base, "t1").await;
    let said = op.say(&base, "t1", "My boat is called Petrel.").await;
    settled(daemon.daemon.app.store(), &id, "t1", said["rev"].as_u64().unwrap()).await;
    let job = op.get(&format!("/v1/jobs/{id}.t1.r{}", said["rev"])).await.expect(StatusCode::OK);
    assert_eq!((&job["status"], &job["error"]), (&json!("completed"), &Value::Null));
    let told: Vec<&str> =
        job["events"].as_array().unwrap().iter().map(|event| event["message"].as_str().unwrap()).collect();
    assert_eq!((job["events"][0]["id"].as_str(), told.last()), (Some("evt_001"), Some(&"remembered")), "{told:?}");
    let after = op.get(&format!("/v1/lifeforms/{id}/resources")).await.expect(StatusCode::OK);
    assert!(after["spent"]["tokens"].as_i64() > before["spent"]["tokens"].as_i64());
    assert_eq!(after["held"]["tokens"], 0);

    let daemon = daemon.kill_and_restart().await;
    let op = daemon.operator.clone();
    assert_eq!(op.get(&format!("/v1/lifeforms/{id}")).await.expect(StatusCode::OK)["status"], "running");
    let answer = ask(&op, &base, "t2", "What is my boat called?").await;
    assert!(answer.contains("Petrel"), "{answer}");
    // The recorded call shows that no earlier message stood in the prompt: it knows by recall alone.
    let prompt = daemon.model.asked().into_iter().rev().find(|asked| asked.response_format.is_none()).unwrap();
    assert_eq!(prompt.messages.len(), 2);
    assert_eq!(prompt.messages[1].content.as_deref(), Some("What is my boat called?"));
    let calls = op.get(&format!("/v1/lifeforms/{id}/calls?limit=200")).await.expect(StatusCode::OK);
    let recorded: Vec<&Value> =
        calls["calls"].as_array().unwrap().iter().filter(|call| call["kind"] == "sent").collect();
    assert_eq!(recorded.last().unwrap()["data"]["messages"], json!(prompt.messages));

    let kip = format!("/v1/lifeforms/{id}/kip");
    let gone = op
        .post(&kip, json!({"command": "DELETE CONCEPT ?f DETACH WHERE { ?f {type: \"Fact\"} }"}))
        .await
        .expect(StatusCode::OK);
    assert_eq!(gone["result"]["deleted_concepts"], 1);
    assert_eq!(ask(&op, &base, "t3", "What is my boat called?").await, "I do not know.");
}

/// Twenty facts of different kinds, each with a question that names its subject in other words.
pub(crate) fn twenty() -> Vec<(String, String, String)> {
    let subjects = [
        "boat",
        "sister",
        "bakery",
        "dentist",
        "garden gate",
        "bicycle",
        "landlord",
        "violin",
        "parrot",
        "cousin",
        "office plant",
        "chess club",
        "van",
        "recipe",
        "tent",
        "kettle",
        "teacher",
        "guitar",
        "cabin",
        "project",
    ];
    let values = [
        "Petrel",
        "Mirela",
        "Kornblum",
        "Okafor",
        "emerald",
        "Zephyr",
        "Lindqvist",
        "Amati",
        "Pascal",
        "Tamsin",
        "Ficus",
        "Rookery",
        "Bertha",
        "Solyanka",
        "Basecamp",
        "Whistler",
        "Yamamoto",
        "Telecaster",
        "Hollow",
        "Nightjar",
    ];
    subjects
        .iter()
        .zip(values)
        .map(|(subject, value)| {
            (
                format!("The name of my {subject} is {value}."),
                format!("What is the name of my {subject}?"),
                value.to_owned(),
            )
        })
        .collect()
}

#[tokio::test]
async fn twenty_facts_of_twenty_are_remembered() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = daemon.operator.clone();
    op.topic(&base, "telling").await;
    for (fact, _, _) in twenty() {
        let said = op.say(&base, "telling", &fact).await;
        settled(daemon.daemon.app.store(), &id, "telling", said["rev"].as_u64().unwrap()).await;
    }
    let daemon = daemon.kill_and_restart().await;
    let op = daemon.operator.clone();
    let mut right = 0;
    for (number, (_, question, value)) in twenty().into_iter().enumerate() {
        let answer = ask(&op, &base, &format!("asking{number}"), &question).await;
        // The best memory stands first, and it must be the right one.
        right += usize::from(answer.lines().next().unwrap_or_default().contains(&value));
    }
    assert_eq!(right, 20);
}

#[tokio::test]
async fn a_lifeform_without_nutrients_rests_until_it_is_topped_up() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let poor = json!({
        "name": "Poor",
        "nutrients": {"tokens": 100, "micro_usd": 0},
        "metabolism": {"rest_below_tokens": 50, "eco_below_tokens": 100, "eco_until_tokens": 200, "beat_ms": 86_400_000},
    });
    let made = op.post("/v1/lifeforms", json!({"definition": poor})).await.expect(StatusCode::CREATED);
    let path = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    op.post(&format!("{path}/start"), json!({})).await.expect(StatusCode::OK);
    let base = format!("{path}/canvases/canvas_chat_main");
    let answer = ask(op, &base, "t1", "Are you there?").await;
    assert!(answer.contains("resting"), "{answer}");
    assert_eq!(op.get(&path).await.expect(StatusCode::OK)["status"], "dormant");
    assert!(daemon.model.asked().is_empty(), "no call was made that could not be paid");
    let mut socket = op.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.post(
        &format!("{path}/resources/transactions"),
        json!({"amount": 100_000, "currency": "tokens", "memo": "Operator top-up"}),
    )
    .await
    .expect(StatusCode::CREATED);
    let frames = socket.answer().await;
    assert_eq!(text_of(frames.last().unwrap()), "I do not know.");
    assert_eq!(op.get(&path).await.expect(StatusCode::OK)["status"], "running");
    let trace = op.get(&format!("{path}/trace")).await.expect(StatusCode::OK);
    assert!(trace["entries"].as_array().unwrap().iter().any(|entry| entry["data"]["status"] == "dormant"));
}

#[tokio::test]
async fn a_policy_chooses_the_model_and_the_length_of_the_answer() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let path = format!("/v1/lifeforms/{id}/metabolism/policy");
    for (strategy, tier, cap, topic) in
        [("force_hyper", "high", 2048, "a"), ("force_eco", "economy", 400, "b"), ("default", "standard", 2000, "c")]
    {
        op.put(&path, json!({"strategy": strategy, "reason": "High-priority task"})).await.expect(StatusCode::OK);
        ask(op, &base, topic, "Are you there?").await;
        let asked = daemon.model.asked().into_iter().rev().find(|asked| asked.response_format.is_none()).unwrap();
        assert_eq!((asked.model.as_str(), asked.max_tokens), (tier, Some(cap)), "{strategy}");
    }
    assert_eq!(op.get(&path).await.expect(StatusCode::OK)["policy"]["set_by"], "user:operator");
    op.put(&path, json!({"strategy": "force_everything"})).await.refused(422, "invalid");
}

#[tokio::test]
async fn an_answer_cut_off_by_a_kill_is_finished_once_and_charged() {
    let go_on = std::sync::Arc::new(tokio::sync::Notify::new());
    let gate = go_on.clone();
    let daemon = TestDaemon::start(move |request, n| match (request.response_format.is_some(), n) {
        (true, _) => Reply::Text("{\"facts\":[]}".into()),
        (false, 0) => Reply::Held("The beginning ".into(), gate.clone(), "never comes".into()),
        _ => Reply::Text("The whole answer.".into()),
    })
    .await;
    let (id, base) = daemon.lifeform().await;
    let op = daemon.operator.clone();
    let mut socket = op.subscribe(&base, None).await;
    op.topic(&base, "t1").await;
    let said = op.say(&base, "t1", "Tell me?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    let statement = op.get(&format!("/v1/lifeforms/{id}/resources?limit=100")).await.expect(StatusCode::OK);
    let lines = statement["transactions"].as_array().unwrap();
    let call = lines.iter().rfind(|line| line["data"]["memo"] == "reserve").unwrap();
    let (hold, held) = (&call["data"]["op"]["hold"], call["data"]["op"]["hold"]["amount"]["tokens"].as_i64().unwrap());
    assert!(held > 0 && hold["parent"].as_str().unwrap().starts_with("job:"), "a call draws on what its job set aside");
    let daemon = daemon.kill_and_restart().await;
    let op = daemon.operator.clone();
    let mut socket = op.subscribe(&base, None).await;
    let finished = |frame: &Value| {
        frame["t"] == "snapshot"
            && frame["state"]["topics"]["t1"]["messages"]
                .as_object()
                .unwrap()
                .values()
                .any(|m| m["content"] == "The whole answer.")
            || frame["kind"] == "message.finish"
    };
    socket.until(finished).await;
    let messages = op.get(&format!("{base}/topics/t1/messages")).await.expect(StatusCode::OK);
    let answers: Vec<&Value> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["sender"] == format!("lifeform:{id}"))
        .collect();
    assert_eq!(answers.len(), 1, "one answer, not two");
    assert_eq!(
        (answers[0]["content"].as_str(), answers[0]["status"].as_str()),
        (Some("The whole answer."), Some("final"))
    );
    let spent = op.get(&format!("/v1/lifeforms/{id}/resources")).await.expect(StatusCode::OK)["spent"]["tokens"]
        .as_i64()
        .unwrap();
    assert!(spent >= held, "the call whose outcome nobody knows is charged in full");
    settled(daemon.daemon.app.store(), &id, "t1", said["rev"].as_u64().unwrap()).await;
    let account = op.get(&format!("/v1/lifeforms/{id}/resources")).await.expect(StatusCode::OK);
    assert_eq!(account["held"]["tokens"], 0, "what the job had set aside comes back through a kill, too");
    go_on.notify_waiters();
}

#[tokio::test]
async fn a_lifeform_answers_once_despite_stop_start_and_reboot() {
    let go_on = std::sync::Arc::new(tokio::sync::Notify::new());
    let gate = go_on.clone();
    let daemon = TestDaemon::start(move |request, n| match (request.response_format.is_some(), n) {
        (true, _) => Reply::Text("{\"facts\":[]}".into()),
        (false, 0 | 1) => Reply::Held("Half ".into(), gate.clone(), "never".into()),
        _ => Reply::Text("All of it.".into()),
    })
    .await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = op.subscribe(&base, None).await;
    op.topic(&base, "t1").await;
    op.say(&base, "t1", "Tell me?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    op.post(&format!("/v1/lifeforms/{id}/stop"), json!({})).await.expect(StatusCode::OK);
    op.post(&format!("/v1/lifeforms/{id}/start"), json!({})).await.expect(StatusCode::OK);
    socket.until(|frame| frame["t"] == "stream").await;
    op.post(&format!("/v1/lifeforms/{id}/reboot"), json!({})).await.expect(StatusCode::OK);
    let frames = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(text_of(frames.last().unwrap()), "All of it.");
    op.say(&base, "t1", "And more?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let messages = op.get(&format!("{base}/topics/t1/messages")).await.expect(StatusCode::OK);
    assert_eq!(messages["messages"].as_array().unwrap().len(), 4, "two questions, two answers");
    assert_eq!(op.delete(&format!("/v1/lifeforms/{id}")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(socket.closed().await.1, 4410, "its subscribers are told that it is gone");
}

#[tokio::test]
async fn a_started_lifeform_answers_earlier_messages_despite_a_purge() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let life = format!("/v1/lifeforms/{id}");
    op.topic(&base, "t").await;
    op.post(&format!("{life}/stop"), json!({})).await.expect(StatusCode::OK);
    let secret = op.say(&base, "t", "My secret is blue.").await["id"].as_str().unwrap().to_owned();
    op.say(&base, "t", "Is anybody there?").await;
    op.delete(&format!("{base}/topics/t/messages/{secret}?purge=1")).await.expect(StatusCode::OK);
    let mut socket = op.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    socket.answer().await;
    let told: Vec<String> = daemon.model.asked().iter().map(|request| json!(request).to_string()).collect();
    assert!(told.iter().any(|told| told.contains("Is anybody there?")), "{told:?}");
    assert!(!told.iter().any(|told| told.contains("secret")), "{told:?}");
}

#[tokio::test]
async fn a_started_lifeform_forgets_purged_facts_and_repeats_nothing() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = op.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&base, "t").await;
    let mut said = Vec::new();
    for content in ["My boat is called Argo.", "How are you?", "It rains."] {
        said.push(op.say(&base, "t", content).await["id"].as_str().unwrap().to_owned());
        socket.until(|frame| frame["kind"] == "message.finish").await;
    }
    let life = format!("/v1/lifeforms/{id}");
    op.post(&format!("{life}/stop"), json!({})).await.expect(StatusCode::OK);
    let purge = async |message: &str| {
        op.delete(&format!("{base}/topics/t/messages/{message}?purge=1")).await.expect(StatusCode::OK);
    };
    purge(&said[0]).await;
    let suggest = json!({"kind": "message.suggest", "topic": "t", "id": said[1], "content": "How is it?"});
    op.post_ops(&base, vec![suggest]).await.expect(StatusCode::OK);
    // The log is cut behind both.
    purge(&said[2]).await;
    let asked = daemon.model.asked().len();
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    op.say(&base, "t", "What is my boat called?").await;
    let answer = text_of(socket.until(|frame| frame["kind"] == "message.finish").await.last().unwrap());
    assert!(!answer.contains("Argo"), "{answer}");
    let since: Vec<String> = daemon.model.asked()[asked..].iter().map(|request| json!(request).to_string()).collect();
    let answered = op.get(&format!("{base}/topics/t/messages")).await.expect(StatusCode::OK);
    let by_it = |message: &&Value| message["sender"].as_str().unwrap().starts_with("lifeform:");
    assert_eq!(answered["messages"].as_array().unwrap().iter().filter(by_it).count(), 4, "{answered}\n{since:?}");
}

#[tokio::test]
async fn an_answer_that_fails_says_so_and_the_next_one_is_given() {
    let daemon = TestDaemon::start(|request, _| {
        let asked = request.messages.last().unwrap().content.clone().unwrap_or_default();
        match request.response_format.is_some() {
            true => Reply::Text("{\"facts\":[]}".into()),
            false if asked.contains("refuse") => Reply::Status(400, "no such thing".into()),
            false => Reply::Text(format!("{} characters", asked.chars().count())),
        }
    })
    .await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = op.subscribe(&base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&base, "t1").await;
    op.say(&base, "t1", "Will you refuse?").await;
    let ended = |frame: &Value| frame["kind"] == "message.interrupt" || frame["kind"] == "message.finish";
    let frames = socket.until(ended).await;
    assert!(frames.last().unwrap()["patch"].to_string().contains("no such thing"), "{:?}", frames.last());
    // A text longer than a model is given is cut in the middle, not refused.
    op.say(&base, "t1", &"long ".repeat(6000)).await;
    let frames = socket.until(ended).await;
    assert_eq!(text_of(frames.last().unwrap()), "8197 characters");
}
