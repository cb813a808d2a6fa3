//! Nobody starves the rest: what one participant may take of nutrients, of a lifeform's attention, of jobs and of the
//! disk, and that another is served meanwhile.

use std::sync::Arc;

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest, text_of};

use crate::mcp::server::tool;

const INVOKE: &str = "/v1/neurons/helper/invoke";

async fn helper(daemon: &TestDaemon) {
    let neuron = json!({"id": "helper", "memory": "Be brief.", "output_tokens_max": 64});
    daemon.operator.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
}

fn asks(n: usize) -> Value {
    json!({"input": format!("question {n}")})
}

/// How often a client is answered until it is refused, and the refusal.
async fn until_refused(client: &Client) -> (usize, StatusCode, Value) {
    for n in 0..10_000 {
        let answer = client.post(INVOKE, asks(n)).await;
        if !answer.status.is_success() {
            return (n, answer.status, answer.body);
        }
    }
    panic!("it is never refused");
}

#[tokio::test]
async fn a_participant_spends_at_most_a_quarter_of_the_house_per_hour() {
    let daemon = TestDaemon::builder().config(|config| config.house_tokens = 40_000).start(honest).await;
    helper(&daemon).await;
    let ada = daemon.person("user:ada", "participant").await;
    let bob = daemon.person("user:bob", "participant").await;
    let (served, status, body) = until_refused(&ada).await;
    assert!(served > 3, "{served}");
    assert_eq!((status, &body["code"]), (StatusCode::TOO_MANY_REQUESTS, &json!("share_spent")), "{body}");
    bob.post(INVOKE, asks(0)).await.expect(StatusCode::OK);
    for n in 0..served + 10 {
        daemon.operator.post(INVOKE, asks(n)).await.expect(StatusCode::OK);
    }
    // So is an agent that somebody runs.
    let bot = daemon.person("agent:bot", "participant").await;
    let (_, status, _) = until_refused(&bot).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    // The next hour begins with what is free then.
    daemon.clock.advance_ms(3_600_000);
    ada.post(INVOKE, asks(0)).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn the_share_is_the_operators_to_set() {
    let whole = TestDaemon::builder()
        .config(|config| (config.house_tokens, config.person_share) = (6_000, 1.0))
        .start(honest)
        .await;
    helper(&whole).await;
    let ada = whole.person("user:ada", "participant").await;
    let (_, status, _) = until_refused(&ada).await;
    assert_eq!(status, StatusCode::PAYMENT_REQUIRED, "nothing binds her but the balance");
    let (life, _) = whole.lifeform().await;
    let path = format!("/v1/lifeforms/{life}/resources/share");
    let set = whole.operator.put(&path, json!({"person_share": 0.5})).await.expect(StatusCode::OK);
    assert_eq!(set["person_share"], 0.5);
    ada.put(&path, json!({"person_share": 1.0})).await.refused(403, "forbidden");
    for wrong in [json!({"person_share": 1.5}), json!({"person_share": -0.1}), json!({"share": 0.5})] {
        whole.operator.put(&path, wrong).await.refused(422, "invalid");
    }
}

#[tokio::test]
async fn a_heavy_writer_spends_only_its_own_share_of_a_lifeform() {
    // Its answers are long, and so is what it reads in what is said.
    let daemon = TestDaemon::start(|request, n| match request.response_format {
        None => Reply::Text("I do not know. ".repeat(200)),
        Some(_) => honest(request, n),
    })
    .await;
    let op = &daemon.operator;
    let definition = json!({
        "definition": {"name": "Iris", "nutrients": {"tokens": 40_000, "micro_usd": 0}, "initiative": {"sleep_after_s": 0}},
    });
    let made = op.post("/v1/lifeforms", definition).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    let ada = daemon.person("user:ada", "participant").await;
    let bob = daemon.person("user:bob", "participant").await;
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    for topic in ["hers", "his"] {
        op.topic(&chat, topic).await;
    }
    let mut said = 0;
    loop {
        said += 1;
        ada.say(&chat, "hers", &format!("What is the number {said}?")).await;
        if text_of(socket.answer().await.last().unwrap()).starts_with("I keep some of what I have for others") {
            break;
        }
    }
    assert!(said > 1, "she was answered before");
    // She is told so once in the hour, and waits.
    ada.say(&chat, "hers", "And now?").await;
    bob.say(&chat, "his", "Is anybody there?").await;
    let told = socket.until(|frame| text_of(frame).starts_with("I do not know.")).await;
    assert!(told.iter().all(|frame| !text_of(frame).starts_with("I keep some")), "{told:?}");
    let spent = op.get(&format!("{life}/resources")).await.expect(StatusCode::OK)["spent"]["tokens"].as_i64().unwrap();
    assert!(spent < 40_000 / 2, "{spent}");
}

#[tokio::test]
async fn a_participant_that_floods_a_lifeform_delays_no_other() {
    // Her answers take for ever; his come at once.
    let never = Arc::new(tokio::sync::Notify::new());
    let daemon = TestDaemon::start(move |request, n| {
        let hers =
            request.messages.iter().filter_map(|message| message.content.as_deref()).any(|said| said.contains("flood"));
        match hers && request.response_format.is_none() {
            true => Reply::Held("Hm".into(), never.clone(), String::new()),
            false => honest(request, n),
        }
    })
    .await;
    let (_, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    let ada = daemon.person("user:ada", "participant").await;
    let bob = daemon.person("user:bob", "participant").await;
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    for topic in ["a", "b", "c", "d", "his"] {
        op.topic(&chat, topic).await;
    }
    for n in 0..400 {
        let topic = ["a", "b", "c", "d"][n % 4];
        ada.say(&chat, topic, &format!("flood {n}")).await;
    }
    socket.until(|frame| text_of(frame).starts_with("You write faster than I can read")).await;
    bob.say(&chat, "his", "Is anybody there?").await;
    socket.until(|frame| text_of(frame) == "I do not know.").await;
}

#[tokio::test]
async fn many_jobs_are_stopped_at_once_and_only_ones_own() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    let waits = |id: &str| json!({"id": id, "output": "w", "nodes": [{"id": "w", "run": {"wait": {"event": "go"}}}]});
    for id in ["one", "two"] {
        daemon.operator.post("/v1/fascicles", waits(id)).await.expect(StatusCode::CREATED);
    }
    for (client, fascicle, count) in [(&ada, "one", 3), (&ada, "two", 2), (&bob, "one", 2)] {
        for _ in 0..count {
            let path = format!("/v1/fascicles/{fascicle}/execute");
            client.post(&path, json!({"input": "x"})).await.expect(StatusCode::ACCEPTED);
        }
    }
    let running = async |client: &Client| {
        let listed = client.get("/v1/jobs?limit=200").await.expect(StatusCode::OK);
        let is_open = |job: &&Value| !["completed", "failed", "cancelled"].contains(&job["status"].as_str().unwrap());
        listed["jobs"].as_array().unwrap().iter().filter(is_open).count()
    };
    let cancel = "/v1/jobs/cancel";
    bob.post(cancel, json!({"ordered_by": "user:ada"})).await.refused(403, "forbidden");
    bob.post(cancel, json!({"everything": true})).await.refused(422, "invalid");
    let done = ada.post(cancel, json!({"fascicle": "one"})).await.expect(StatusCode::OK);
    assert_eq!(done, json!({"cancelled": 3, "more": false}));
    assert_eq!((running(&ada).await, running(&bob).await), (2, 2));
    let done = ada.send(Method::POST, cancel, &[], None).await.expect(StatusCode::OK);
    assert_eq!(done["cancelled"], 2);
    let done = daemon.operator.post(cancel, json!({"ordered_by": "user:bob"})).await.expect(StatusCode::OK);
    assert_eq!((&done["cancelled"], running(&bob).await), (&json!(2), 0));
}

#[tokio::test]
async fn a_participant_has_so_much_written_in_a_day() {
    let daemon = TestDaemon::builder().config(|config| config.person_disk_mb = 1).start(honest).await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    let neuron = |n: usize| json!({"id": format!("n{n}"), "memory": "x".repeat(100_000)});
    let mut kept = 0;
    let refused = loop {
        let answer = ada.post("/v1/neurons", neuron(kept)).await;
        if answer.status != StatusCode::CREATED {
            break answer;
        }
        kept += 1;
        assert!(kept < 20, "it is never refused");
    };
    let wait: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(kept > 2 && wait > 0, "{kept} {wait}");
    refused.refused(429, "disk_share");
    // A name is no route of its own.
    ada.put("/api/knowledge/cancel", json!({"task": "t", "content": "c"})).await.refused(429, "disk_share");
    ada.put("/v1/neurons/export", json!({"memory": "x"})).await.refused(429, "disk_share");
    // Each other door refuses her, too.
    let kept_note = tool(&ada, "knowledge_save", json!({"task": "t", "content": "c"})).await.unwrap_err();
    let by_kip = json!({"command": r#"UPSERT { CONCEPT { {type: "Knowledge", name: "k"} SET ATTRIBUTES { task: "t", content: "c" } } }"#});
    let kept_kip = tool(&ada, "execute_kip", by_kip).await.unwrap_err();
    assert!([kept_note, kept_kip].iter().all(|why| why.starts_with("disk_share: ")));
    // She reads on; others write; with time she writes again.
    ada.get("/v1/neurons").await.expect(StatusCode::OK);
    assert_eq!(tool(&ada, "knowledge_search", json!({"query": "t"})).await.unwrap()["count"], 0);
    let found = json!({"command": "DESCRIBE PRIMER", "readonly": true});
    assert!(tool(&ada, "execute_kip", found).await.unwrap()["result"].is_object());
    for client in [&bob, &daemon.operator] {
        client
            .post("/v1/neurons", neuron(100 + usize::from(client.token == bob.token)))
            .await
            .expect(StatusCode::CREATED);
    }
    daemon.clock.advance_ms(86_400_000);
    ada.post("/v1/neurons", neuron(kept)).await.expect(StatusCode::CREATED);
}

#[tokio::test]
async fn a_participant_has_so_many_definitions() {
    let daemon = TestDaemon::builder().config(|config| config.person_definitions = 3).start(honest).await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    let neuron = |id: &str| json!({"id": id, "memory": "Be brief."});
    let node = json!([{"id": "a", "run": {"neuron": {"spec": {}}}}]);
    let fascicle = |id: &str| json!({"id": id, "output": "a", "nodes": node});
    ada.post("/v1/neurons", neuron("n1")).await.expect(StatusCode::CREATED);
    ada.post("/v1/neurons", neuron("n2")).await.expect(StatusCode::CREATED);
    ada.post("/v1/fascicles", fascicle("f1")).await.expect(StatusCode::CREATED);
    ada.post("/v1/neurons", neuron("n3")).await.refused(409, "too_many_definitions");
    ada.post("/v1/fascicles", fascicle("f2")).await.refused(409, "too_many_definitions");
    ada.put("/v1/neurons/n1", json!({"memory": "Be long."})).await.expect(StatusCode::OK);
    bob.post("/v1/neurons", neuron("n3")).await.expect(StatusCode::CREATED);
    daemon.operator.delete("/v1/fascicles/f1").await.expect(StatusCode::NO_CONTENT);
    let both = [neuron("n4"), neuron("n5")].map(|neuron| ada.post("/v1/neurons", neuron));
    let both = futures::future::join_all(both).await;
    let made = both.iter().filter(|answer| answer.status == StatusCode::CREATED).count();
    assert_eq!(made, 1, "two at once take one place");
}

#[tokio::test]
async fn a_participant_defines_at_a_limited_rate_and_delays_no_other() {
    let daemon = TestDaemon::start(honest).await;
    let (ada, bob) = (daemon.member("user:ada", &[]).await, daemon.member("user:bob", &[]).await);
    let define = async |client: &Client| client.post("/v1/neurons", json!({"memory": "Be brief."})).await;
    let mut made = 0;
    let refused = loop {
        let answer = define(&ada).await;
        if answer.status != StatusCode::CREATED {
            break answer;
        }
        made += 1;
        assert!(made < 1_000, "it has no bound");
    };
    assert!(made >= 120, "{made}");
    assert!(refused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 0);
    refused.refused(429, "definitions");
    let fascicle = json!({"id": "f", "output": "a", "nodes": [{"id": "a", "run": {"neuron": {"spec": {}}}}]});
    ada.post("/v1/fascicles", fascicle).await.refused(429, "definitions");
    define(&bob).await.expect(StatusCode::CREATED);
    define(&daemon.operator).await.expect(StatusCode::CREATED);
}

/// A slow sender of bodies over a plain connection: the head, and then nothing.
async fn slow_body(daemon: &TestDaemon, token: &str, path: &str) -> tokio::net::TcpStream {
    use tokio::io::AsyncWriteExt;
    let address = daemon.operator.base.strip_prefix("http://").unwrap().to_owned();
    let mut stream = tokio::net::TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 200\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_body_that_comes_slowly_holds_no_turn_of_a_query() {
    let daemon = TestDaemon::start(honest).await;
    let token = async |who: &str| {
        let made = daemon.operator.post("/v1/tokens", json!({"principal": who})).await.expect(StatusCode::CREATED);
        made["token"].as_str().unwrap().to_owned()
    };
    let (ada, eve) = (token("user:ada").await, token("user:eve").await);
    let mut held = Vec::new();
    for who in [&ada, &ada, &ada, &eve, &eve, &eve] {
        held.push(slow_body(&daemon, who, "/v1/nexus/commons/kip").await);
    }
    let bob = daemon.person("user:bob", "participant").await;
    bob.post("/v1/nexus/commons/kip", json!({"command": "DESCRIBE DOMAINS"})).await.expect(StatusCode::OK);
    drop(held);
}

#[tokio::test]
async fn a_dry_run_that_takes_too_much_is_refused() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.person("user:ada", "participant").await;
    let nodes: Vec<Value> = (0..20)
        .map(|n| json!({"id": format!("n{n}"), "run": {"neuron": {"spec": {"kind": "base", "memory": "x"}}}}))
        .collect();
    let inner = json!({"id": "inner", "output": "n0", "nodes": nodes});
    ada.post("/v1/fascicles", inner).await.expect(StatusCode::CREATED);
    let outer = json!({"id": "outer", "output": "each", "nodes": [{"id": "each", "run": {"map": {
        "over": {"role": "user"}, "items_max": 1000, "run": {"fascicle": {"id": "inner"}}}}}]});
    ada.post("/v1/fascicles", outer).await.expect(StatusCode::CREATED);
    let items: Vec<usize> = (0..1_000).collect();
    let body = json!({"input": {"events": [{"role": "user", "content": items}]}});
    let refused = ada.post("/v1/fascicles/outer/dry-run", body).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.body);
    assert!(refused.body.to_string().contains("10000 changes of steps"), "{}", refused.body);
    let body = json!({"input": {"events": [{"role": "user", "content": [1, 2]}]}});
    ada.post("/v1/fascicles/outer/dry-run", body).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn waiting_jobs_with_large_inputs_take_several_places() {
    let daemon = TestDaemon::start(honest).await;
    let ada = daemon.person("user:ada", "participant").await;
    let waits = json!({"id": "waits", "output": "w", "nodes": [{"id": "w", "run": {"wait": {"event": "never"}}}]});
    ada.post("/v1/fascicles", waits).await.expect(StatusCode::CREATED);
    let input = json!({"input": "z".repeat(240 << 10)});
    let mut started = 0;
    let refused = loop {
        let answer = ada.post("/v1/fascicles/waits/execute", input.clone()).await;
        match answer.status.is_success() {
            true => started += 1,
            false => break answer,
        }
        // 4,096 places for waiting jobs and 1,024 for working ones, of which each job takes 16 or 4.
        assert!(started <= 520, "large jobs take one place each");
    };
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{}", refused.body);
    assert!(started > 200, "{started}");
    // A small one of another participant finds its place.
    let bob = daemon.person("user:bob", "participant").await;
    bob.post("/v1/fascicles/waits/execute", json!({"input": "z"})).await.expect(StatusCode::ACCEPTED);
}
