//! A topic that is longer than what an answer is given of it is said in short; what was said stays (MISSION L7).

use std::sync::{Arc, Mutex};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{TestDaemon, honest};

fn told(request: &ChatRequest) -> String {
    request.messages.iter().filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
}

fn compresses(request: &ChatRequest) -> bool {
    told(request).contains("You compress events.")
}

#[tokio::test]
async fn a_transformer_compacts_a_long_topic_and_keeps_the_original() {
    let daemon = TestDaemon::start(|request, n| match compresses(request) {
        true => {
            let kept =
                if told(request).contains("Earlier: ") { "and before that boats" } else { "boats were spoken of" };
            Reply::Text(json!({"events": [{"role": "user", "content": kept}]}).to_string())
        }
        false => honest(request, n),
    })
    .await;
    let definition = json!({"definition": {"name": "Iris", "compact_above_chars": 6000}});
    let op = &daemon.operator;
    let made = op.post("/v1/lifeforms", definition).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&chat, "t").await;
    let said =
        |n: usize| format!("Is boat number {n} faster than the one before it? {}", "It has a long keel. ".repeat(40));
    for n in 0..14 {
        op.say(&chat, "t", &said(n)).await;
        socket.until(|frame| frame["kind"] == "message.finish").await;
    }
    let in_short = async |words: &str| loop {
        let topic = op.get(&format!("{chat}/topics/t")).await.expect(StatusCode::OK);
        if topic["summaries"].to_string().contains(words) {
            return topic;
        }
        tests::again().await;
    };
    in_short("boats").await;
    let ops = op.get(&format!("{chat}/ops?after=0&limit=200")).await.expect(StatusCode::OK);
    let short = ops["ops"].as_array().unwrap().iter().find(|op| op["kind"] == "topic.summarize").unwrap();
    assert!(short["patch"].to_string().contains("boats were spoken of"), "{short}");
    assert!(short["cause"].to_string().contains("job:"), "whoever follows the canvas sees why: {short}");
    op.say(&chat, "t", "Which was the first?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let asked = daemon.model.asked();
    let is_answer =
        |request: &&ChatRequest| told(request).contains("Which was the first?") && request.response_format.is_none();
    let answered = told(asked.iter().rev().find(is_answer).unwrap());
    assert!(answered.contains("(Earlier in this talk, in short: "), "{answered}");
    assert!(!answered.contains(&said(0)) && answered.contains(&said(13)), "{answered}");
    let messages = op.get(&format!("{chat}/topics/t/messages")).await.expect(StatusCode::OK);
    assert_eq!(messages["messages"][0]["content"], json!(said(0)), "what was said stays");
    // The next summary goes on from the last.
    for n in 14..24 {
        op.say(&chat, "t", &said(n)).await;
        socket.until(|frame| frame["kind"] == "message.finish").await;
    }
    let topic = in_short("and before that boats").await;
    assert_eq!(topic["summaries"].as_object().map(serde_json::Map::len), Some(1), "{topic}");
}

#[tokio::test]
async fn a_summary_leaves_a_record_only_of_statements_people_made() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let daemon = TestDaemon::start(move |request, n| {
        let told = told(request);
        seen.lock().unwrap().push(told.clone());
        match () {
            () if compresses(request) => {
                let short = "boats need their keels scraped before every winter";
                Reply::Text(json!({"events": [{"role": "user", "content": short}]}).to_string())
            }
            () if told.contains("What of this is worth knowing") => {
                let read = |task: &str, content: &str| json!({"task": task, "content": content});
                let lessons = [
                    read("Before a winter", "Keels of wooden boats are scraped before every winter."),
                    read("Before a summer", "Sails are bleached with 20 grams of lime."),
                ];
                Reply::Text(json!({"learned": lessons}).to_string())
            }
            () => honest(request, n),
        }
    })
    .await;
    let op = &daemon.operator;
    let definition = json!({"definition": {"name": "Iris", "compact_above_chars": 6000}});
    let made = op.post("/v1/lifeforms", definition).await.expect(StatusCode::CREATED);
    let id = made["id"].as_str().unwrap();
    let life = format!("/v1/lifeforms/{id}");
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    let mut socket = op.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    op.topic(&chat, "t").await;
    for n in 0..14 {
        let rest = "Is that so with yours? ".repeat(40);
        op.say(&chat, "t", &format!("Boat {n}: keels of wooden boats are scraped before every winter. {rest}")).await;
        socket.until(|frame| frame["kind"] == "message.finish").await;
    }
    let kept = loop {
        let listed = op.get("/api/knowledge?types=strategy&limit=10").await.expect(StatusCode::OK);
        if listed["results"].as_array().is_some_and(|kept| !kept.is_empty()) {
            break listed["results"].clone();
        }
        tests::again().await;
    };
    // What nobody said, a model may say a hundred times.
    assert_eq!(kept.as_array().map(Vec::len), Some(1), "{kept}");
    assert_eq!(kept[0]["content"], "Keels of wooden boats are scraped before every winter.");
    assert_eq!(
        (&kept[0]["owner"], &kept[0]["scopes"]),
        (&json!(format!("lifeform:{id}")), &json!([format!("lifeform:{id}")]))
    );
    // It is told to those with whom it was learned, and where nobody else hears it.
    assert_eq!(kept[0]["provenance"]["audience"], json!(["user:operator"]));
    let bob = daemon.member("user:bob", &[]).await;
    for (who, topic, is_told) in [(op, "u", true), (&bob, "v", false)] {
        op.topic(&chat, topic).await;
        who.say(&chat, topic, "What of the keels of wooden boats before every winter?").await;
        socket.until(|frame| frame["kind"] == "message.finish").await;
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        let told = asked.iter().any(|told| told.contains("What of the keels") && told.contains("<knowledge id="));
        assert_eq!(told, is_told, "{topic}");
    }
}

#[tokio::test]
async fn people_keep_summaries_too_and_none_goes_back() {
    let daemon = TestDaemon::start(honest).await;
    let (_, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let ids: Vec<Value> =
        vec![op.say(&chat, "t", "One.").await["id"].clone(), op.say(&chat, "t", "Two.").await["id"].clone()];
    let op_of = |upto: &Value, content: &str| {
        vec![json!({"kind": "topic.summarize", "id": "t", "upto": upto, "content": content})]
    };
    op.post_ops(&chat, op_of(&ids[1], "Both.")).await.expect(StatusCode::OK);
    op.post_ops(&chat, op_of(&ids[0], "One alone.")).await.refused(409, "state");
    op.post_ops(&chat, op_of(&json!("nowhere"), "x")).await.refused(404, "not_found");
    op.post_ops(&chat, op_of(&ids[1], " ")).await.refused(422, "schema");
}
