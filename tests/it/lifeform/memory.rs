//! What a lifeform keeps of what it is told: whose word a fact is, and where it is stated (MISSION K8, L8).

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, TestDaemon, honest};

const BOAT: &str = "My boat is called Petrel.";

/// Facts by name, with who stated them and how they stand.
async fn facts(operator: &Client, id: &str) -> Vec<Value> {
    let find =
        r#"FIND(?f.name, ?p.name, ?f.metadata.status) WHERE { (?f {type: "Fact"}, "stated_by", ?p) } ORDER BY ?f.name"#;
    let found = operator.post(&format!("/v1/lifeforms/{id}/kip"), json!({"command": find})).await;
    found.expect(StatusCode::OK)["result"].as_array().unwrap().clone()
}

/// Says something under an id in a topic and waits until it is answered.
async fn told(who: &Client, base: &str, topic: &str, id: &str, content: &str) {
    let mut socket = who.subscribe(base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    let said = json!({"id": id, "content": content});
    who.post(&format!("{base}/topics/{topic}/messages"), said).await.expect(StatusCode::CREATED);
    socket.answer().await;
}

/// Takes a message back and waits until its lifeform has heard it.
async fn taken_back(
    operator: &Client,
    who: &Client,
    base: &str,
    id: &str,
    (topic, message): (&str, &str),
    upto: usize,
) {
    who.delete(&format!("{base}/topics/{topic}/messages/{message}")).await.expect(StatusCode::OK);
    loop {
        let all = facts(operator, id).await;
        if all.iter().filter(|fact| fact[2] == "retracted").count() == upto {
            return;
        }
        tests::again().await;
    }
}

#[tokio::test]
async fn two_people_with_the_same_statement_have_separate_facts() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let (ada, bob) = (daemon.person("user:ada", "participant").await, daemon.person("user:bob", "participant").await);
    for (who, topic) in [(&ada, "a"), (&bob, "b")] {
        who.topic(&base, topic).await;
        told(who, &base, topic, "m1", BOAT).await;
    }
    let op = &daemon.operator;
    let his = format!("{BOAT} (user:bob)");
    assert_eq!(facts(op, &id).await, [json!([BOAT, "user:ada", "active"]), json!([his, "user:bob", "active"])]);
    taken_back(op, &bob, &base, &id, ("b", "m1"), 1).await;
    assert_eq!(facts(op, &id).await, [json!([BOAT, "user:ada", "active"]), json!([his, "user:bob", "retracted"])]);
}

#[tokio::test]
async fn what_is_changed_before_it_was_heard_leaves_nothing_behind() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    op.topic(&base, "t").await;
    for n in 0..20 {
        let (said, changed) = (format!("The bridge {n} opens at noon."), format!("The kettle {n} is blue."));
        op.post(&format!("{base}/topics/t/messages"), json!({"id": format!("m{n}"), "content": said})).await;
        let path = format!("{base}/topics/t/messages/m{n}");
        op.patch(&path, json!({"content": changed, "reason": "a slip"})).await.expect(StatusCode::OK);
    }
    let active = async || {
        let all = facts(op, &id).await;
        let names = all.iter().filter(|fact| fact[2] == "active").map(|fact| fact[0].as_str().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let wanted = (0..20).map(|n| format!("The kettle {n} is blue.")).collect();
    while active().await != wanted {
        tests::again().await;
    }
}

#[tokio::test]
async fn what_somebody_says_twice_holds_until_both_are_taken_back() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    // Two canvases, a topic and a message of the same names on both.
    let other = format!("/v1/lifeforms/{id}/canvases/other");
    op.post(&format!("/v1/lifeforms/{id}/canvases"), json!({"type": "chat", "title": "other", "id": "other"}))
        .await
        .expect(StatusCode::CREATED);
    for canvas in [&base, &other] {
        op.topic(canvas, "t").await;
        told(op, canvas, "t", "m1", BOAT).await;
    }
    told(op, &base, "t", "m2", "My cat is called Miso.").await;
    assert_eq!(facts(op, &id).await.len(), 2);
    // The later place is taken back, and one that states something else: the earlier place still says it.
    op.delete(&format!("{other}/topics/t/messages/m1")).await.expect(StatusCode::OK);
    taken_back(op, op, &base, &id, ("t", "m2"), 1).await;
    let boat = r#"FIND(?f.metadata.status, ?f.attributes.message, ?f.attributes.also_in) WHERE { ?f {type: "Fact", name: "My boat is called Petrel."} }"#;
    let stands = async || {
        let found = op.post(&format!("/v1/lifeforms/{id}/kip"), json!({"command": boat})).await;
        found.expect(StatusCode::OK)["result"][0].clone()
    };
    while stands().await != json!(["active", "m1", null]) {
        tests::again().await;
    }
    taken_back(op, op, &base, &id, ("t", "m1"), 2).await;
    assert_eq!(stands().await[0], "retracted");
}
