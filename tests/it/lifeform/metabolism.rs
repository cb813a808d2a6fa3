//! What a lifeform lives on: nutrients by rule, modes that choose models, variants and lengths, reports of where it
//! went.

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{TestDaemon, honest};

const HOUR_MS: i64 = 3_600_000;

async fn born(daemon: &TestDaemon, nutrients: i64, metabolism: Value) -> (String, String) {
    let definition =
        json!({"name": "Iris", "nutrients": {"tokens": nutrients, "micro_usd": 0}, "metabolism": metabolism});
    let made =
        daemon.operator.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let id = made["id"].as_str().unwrap().to_owned();
    daemon.operator.post(&format!("/v1/lifeforms/{id}/start"), json!({})).await.expect(StatusCode::OK);
    (format!("/v1/lifeforms/{id}"), format!("/v1/lifeforms/{id}/canvases/canvas_chat_main"))
}

#[tokio::test]
async fn released_nutrients_wake_a_hungry_lifeform_and_are_booked() {
    let daemon = TestDaemon::start(honest).await;
    let release = json!({"per_hour": {"tokens": 6_000, "micro_usd": 0}, "ceiling": {"tokens": 50_000, "micro_usd": 0}});
    let (life, chat) = born(&daemon, 100, json!({"release": release, "beat_ms": 100})).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.say(&chat, "t", "My cat is called Miso.").await;
    let resting = socket.answer().await;
    assert!(tests::text_of(resting.last().unwrap()).contains("I am resting"), "a reflex needs no model");
    assert_eq!(op.get(&life).await.body["hunger"], 1.0);
    // Nobody does anything but the clock.
    daemon.clock.advance_ms(2 * HOUR_MS);
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let resources = op.get(&format!("{life}/resources?limit=200")).await.expect(StatusCode::OK);
    assert_eq!(resources["released"]["tokens"], 12_000);
    let lines = resources["transactions"].as_array().unwrap();
    let sum: i64 = lines
        .iter()
        .map(|line| {
            let data = &line["data"];
            let settled = data["op"]["settle"]["used"]["tokens"].as_i64().unwrap_or(0);
            let opened = data["op"]["open"]["tokens"].as_i64().unwrap_or(0);
            opened + data["released"]["tokens"].as_i64().unwrap_or(0) - settled
        })
        .sum();
    assert_eq!(resources["balance"]["tokens"], sum, "the ledger is the balance");
    let daemon = daemon.kill_and_restart().await;
    daemon.clock.advance_ms(100 * HOUR_MS);
    let full = daemon.operator.get(&format!("{life}/resources")).await.expect(StatusCode::OK);
    assert_eq!(full["balance"]["tokens"], 50_000, "up to the ceiling");
    for (rule, status) in [
        (json!({"per_hour": {"tokens": -1}, "ceiling": {"tokens": 1}}), 422),
        (json!({"per_hour": {"token": 1}, "ceiling": {}}), 422),
        (json!({"per_hour": {"tokens": 0}, "ceiling": {}}), 200),
    ] {
        let answer = daemon.operator.put(&format!("{life}/resources/release"), rule).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.body);
    }
    assert_eq!(daemon.operator.get(&format!("{life}/resources")).await.body["release"], Value::Null);
}

#[tokio::test]
async fn one_that_would_be_empty_within_hours_lives_in_eco() {
    let daemon = TestDaemon::start(|request, _| match request.response_format {
        Some(_) => Reply::Text("{\"facts\":[]}".into()),
        None => Reply::Text(request.model.clone()),
    })
    .await;
    for (hours, modes) in [(0, ["standard", "standard"]), (8_000, ["standard", "economy"])] {
        let (_, chat) = born(&daemon, 200_000, json!({"eco_below_hours": hours})).await;
        let op = &daemon.operator;
        op.topic(&chat, "t").await;
        let mut socket = op.subscribe(&chat, None).await;
        socket.until(|frame| frame["t"] == "live").await;
        for mode in modes {
            op.say(&chat, "t", "How are you?").await;
            let frames = socket.until(|frame| frame["kind"] == "message.finish").await;
            assert_eq!(tests::text_of(frames.last().unwrap()), mode, "within {hours} hours");
            daemon.clock.advance_ms(60_000);
        }
    }
}

#[tokio::test]
async fn a_lifeform_low_on_nutrients_warns_once_and_answers_cheaply() {
    let daemon = TestDaemon::start(|request, _| match request.response_format {
        Some(_) => Reply::Text("{\"facts\":[]}".into()),
        None => Reply::Text(format!("{} {}", request.model, request.max_tokens.unwrap_or(0))),
    })
    .await;
    let (life, chat) = born(&daemon, 200_000, json!({})).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    let ask = async |socket: &mut tests::Socket, text: &str| {
        op.say(&chat, "t", text).await;
        let frames = socket.until(|frame| frame["kind"] == "message.finish").await;
        let told = frames
            .iter()
            .filter(|frame| frame["kind"] == "message.append" && tests::text_of(frame).contains("running low"))
            .count();
        (tests::text_of(frames.last().unwrap()), told)
    };
    assert_eq!(ask(&mut socket, "How are you?").await, ("standard 2000".into(), 0));
    let pay = async |tokens: i64| {
        let body = json!({"amount": tokens, "currency": "tokens", "memo": "test"});
        op.post(&format!("{life}/resources/transactions"), body).await
    };
    // What the afterthoughts of the answer have reserved comes back.
    let left = loop {
        let resources = op.get(&format!("{life}/resources")).await.body;
        if resources["held"]["tokens"] == 0 {
            break resources["available"]["tokens"].as_i64().unwrap();
        }
        tests::again().await;
    };
    pay(15_000 - left).await.expect(StatusCode::CREATED);
    assert_eq!(ask(&mut socket, "And now?").await, ("economy 400".into(), 1));
    assert_eq!(ask(&mut socket, "And then?").await, ("economy 400".into(), 0), "told once");
    // Only what is free can be taken away, and nothing is counted twice.
    pay(-1_000_000).await.refused(402, "insufficient_nutrients");
    pay(0).await.refused(422, "invalid");
    let wrong = json!({"amount": 5, "currency": "euros"});
    op.post(&format!("{life}/resources/transactions"), wrong).await.refused(422, "invalid");
    let keyed = |amount: i64| {
        let body = json!({"amount": amount, "currency": "tokens"});
        let path = format!("{life}/resources/transactions");
        async move { op.send(Method::POST, &path, &[("idempotency-key", "top-up-1")], Some(body)).await }
    };
    let first = keyed(100_000).await.expect(StatusCode::CREATED);
    assert_eq!(keyed(100_000).await.expect(StatusCode::CREATED)["balance"], first["balance"]);
    keyed(100_001).await.refused(422, "invalid");
    assert_eq!(ask(&mut socket, "Better?").await, ("standard 2000".into(), 0));
    let force = json!({"strategy": "force_hyper", "reason": "a visitor", "expires_at": "2026-01-01T01:00:00Z"});
    op.put(&format!("{life}/metabolism/policy"), force).await.expect(StatusCode::OK);
    assert_eq!(ask(&mut socket, "Best?").await, ("high 2048".into(), 0));
    daemon.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(ask(&mut socket, "Over?").await, ("standard 2000".into(), 0), "an order ends by itself");
    let report = op.get(&format!("{life}/resources/report")).await.expect(StatusCode::OK);
    let spent = op.get(&format!("{life}/resources")).await.body["spent"].clone();
    assert_eq!(report["total"]["charged"], spent, "all of it is accounted for");
    let of = |dimension: &str, name: &str| report["by"][dimension][name]["calls"].as_u64().unwrap_or(0);
    assert_eq!((of("model", "economy"), of("model", "high"), of("neuron", "answer")), (2, 1, 6));
    assert_eq!((of("person", "user:operator"), of("fascicle", "reply")), (6, 4));
    assert_eq!(of("fascicle", "reply_in_short"), 2);
    op.post(&chat.replace("canvases/canvas_chat_main", "stop"), json!({})).await.expect(StatusCode::OK);
    assert_eq!(op.get(&format!("{life}/resources/report")).await.expect(StatusCode::OK), report);
}

#[tokio::test]
async fn the_daemon_lists_skill_variants_and_refuses_bad_definitions() {
    let daemon = TestDaemon::start(honest).await;
    let make = |definition: Value| daemon.operator.post("/v1/lifeforms", json!({"definition": definition}));
    let made = make(json!({"name": "Iris", "reply": {"standard": "reply", "eco": "answer_with_memory"}}))
        .await
        .expect(StatusCode::CREATED);
    let listed = daemon.operator.get(&format!("/v1/lifeforms/{}/fascicles", made["id"].as_str().unwrap())).await;
    let mut fascicles = listed.body["fascicles"].as_array().unwrap().clone();
    let homeostasis = fascicles.pop().unwrap();
    assert_eq!(
        (&homeostasis["id"], &homeostasis["status"]),
        (&json!("homeostasis"), &json!("idle")),
        "it is only made"
    );
    let perception = fascicles.pop().unwrap();
    assert_eq!((&perception["id"], &perception["status"]), (&json!("perceive"), &json!("idle")));
    assert_eq!(
        Value::from(fascicles),
        json!([
            {"id": "reply", "skill": "reply", "status": "active"},
            {"id": "answer_with_memory", "skill": "reply", "status": "idle"},
            {"id": "heed", "skill": "heed", "status": "active"},
            {"id": "inhibit", "skill": "inhibit", "status": "active"},
            {"id": "pursue", "skill": "pursue", "status": "active"},
            {"id": "pursue_with_tools", "skill": "pursue", "status": "idle"},
            {"id": "co_author", "skill": "co_author", "status": "active"},
            {"id": "muse", "skill": "muse", "status": "active"},
            {"id": "reflect", "skill": "reflect", "status": "active"},
            {"id": "form", "skill": "form", "status": "active"},
            {"id": "describe", "skill": "describe", "status": "active"},
            {"id": "describe_person", "skill": "describe_person", "status": "active"},
            {"id": "compact", "skill": "compact", "status": "active"},
        ])
    );
    for definition in [
        json!({"name": "Iris", "homeostasis": "none"}),
        json!({"name": "Iris", "homeostasis": "reply"}),
        json!({"name": "Iris", "reply": {"standard": "reply", "eco": "none"}}),
        json!({"name": "Iris", "reply": {"standard": "reply", "poor": "reply"}}),
        json!({"name": "Iris", "metabolism": {"eco_below_tokens": 9, "eco_until_tokens": 8, "rest_below_tokens": 1}}),
        json!({"name": "Iris", "metabolism": {"hyper_above_tokens": 8}}),
        json!({
            "name": "Iris",
            "metabolism": {"release": {"per_hour": {"tokens": -1, "micro_usd": 0}, "ceiling": {"tokens": 0, "micro_usd": 0}}},
        }),
    ] {
        make(definition).await.refused(422, "invalid");
    }
}
