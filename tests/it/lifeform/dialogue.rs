//! The dialogue contract (MISSION L8): nobody waits for his turn, and what is said may be broken off, added to, changed
//! and taken back, by people and by lifeforms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, again, honest, text_of};
use tokio::sync::Notify;

fn last_of(request: &ChatRequest) -> String {
    request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default()
}

async fn live(client: &Client, base: &str) -> Socket {
    let mut socket = client.subscribe(base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    socket
}

async fn messages(client: &Client, base: &str, topic: &str) -> Vec<Value> {
    let answer = client.get(&format!("{base}/topics/{topic}/messages")).await.expect(StatusCode::OK);
    answer["messages"].as_array().unwrap().clone()
}

fn by<'m>(messages: &'m [Value], sender: &str) -> Vec<&'m Value> {
    messages.iter().filter(|message| message["sender"].as_str().is_some_and(|id| id.starts_with(sender))).collect()
}

/// A call that shows how much it was told, and waits at a gate the first time.
fn gated(gate: &Arc<Notify>) -> impl Fn(&ChatRequest, usize) -> Reply + Send + Sync + 'static {
    let gate = gate.clone();
    move |request, n| match (request.response_format.is_some(), n) {
        (true, _) => Reply::Text(r#"{"facts":[],"contradicted":[],"correction":""}"#.into()),
        (false, 0) => Reply::Held("The long answer begins ".into(), gate.clone(), "and ends.".into()),
        _ => Reply::Text(format!("heard: {}", last_of(request))),
    }
}

#[tokio::test]
async fn messages_sent_without_waiting_are_understood_together() {
    let daemon = TestDaemon::start(|request, _| match request.response_format.is_some() {
        true => Reply::Text(r#"{"facts":[]}"#.into()),
        false => {
            let told = request.messages.iter().filter(|message| message.role == "user");
            Reply::Text(told.filter_map(|message| message.content.clone()).collect::<Vec<_>>().join(" | "))
        }
    })
    .await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    let ops = json!({"ops": [
        {"kind": "topic.create", "id": "t", "title": "t"},
        {"kind": "message.append", "topic": "t", "id": "m1", "content": "Could you tell me"},
        {"kind": "message.append", "topic": "t", "id": "m2", "content": "what the weather is"},
        {"kind": "message.append", "topic": "t", "id": "m3", "content": "in Faro?"}]});
    op.post(&format!("{base}/ops"), ops).await.expect(StatusCode::OK);
    let answer = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(text_of(answer.last().unwrap()), "Could you tell me | what the weather is | in Faro?");
    let said = messages(op, &base, "t").await;
    let answers = by(&said, "lifeform:");
    assert_eq!(answers.len(), 1, "one answer to all three");
    assert_eq!((&answers[0]["reply_to"], &answers[0]["answers"]), (&json!("m3"), &json!(["m1", "m2", "m3"])));
}

#[tokio::test]
async fn an_answer_that_failed_is_seen_when_its_job_is_taken_up_again() {
    let ill = Arc::new(AtomicBool::new(true));
    let daemon = TestDaemon::start({
        let ill = ill.clone();
        move |request, _| match (request.response_format.is_some(), last_of(request)) {
            (true, _) => Reply::Text(r#"{"facts":[]}"#.into()),
            (false, asked) if !ill.load(Ordering::SeqCst) => Reply::Text(format!("heard: {asked}")),
            (false, asked) if asked.contains("at once") => Reply::Status(400, "I am ill".into()),
            (false, _) => Reply::CutOff("I was about to say ".into()),
        }
    })
    .await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    // One that said nothing says why.
    for (topic, question, ends_as, status, before) in [
        (
            "a",
            "Does it fail at once?",
            "message.finish",
            "final",
            "I could not answer: answer: scripted refused (400): I am ill",
        ),
        ("b", "Does it fail half-way?", "message.interrupt", "interrupted", "I was about to say"),
    ] {
        ill.store(true, Ordering::SeqCst);
        op.topic(&base, topic).await;
        op.say(&base, topic, question).await;
        socket.until(|frame| frame["kind"] == ends_as).await;
        let said = messages(op, &base, topic).await;
        let answer = said.last().unwrap();
        assert_eq!(answer["status"], status, "{answer}");
        assert!(answer["content"].as_str().unwrap().starts_with(before), "{answer}");
        ill.store(false, Ordering::SeqCst);
        let (id, content) = (answer["id"].as_str().unwrap(), answer["content"].clone());
        let job = id.strip_prefix("msg_").unwrap();
        op.post(&format!("/v1/jobs/{job}/retry"), json!({})).await.expect(StatusCode::ACCEPTED);
        let frames = socket.until(|frame| frame["kind"] == "message.finish").await;
        assert!(frames.iter().any(|frame| frame["kind"] == "message.reopen"), "{frames:?}");
        let said = messages(op, &base, topic).await;
        let answer = said.last().unwrap();
        assert_eq!((answer["id"].as_str(), &answer["status"]), (Some(id), &json!("final")), "{answer}");
        assert_eq!(answer["content"], format!("heard: {question}"));
        assert_eq!(answer["revisions"][0]["content"], content, "what stood there before is kept");
    }
}

#[tokio::test]
async fn a_retried_answer_is_completed_after_the_daemon_is_killed() {
    let gate = Arc::new(Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, n| match (request.response_format.is_some(), n) {
        (true, _) => Reply::Text(r#"{"facts":[]}"#.into()),
        (false, 0) => Reply::Status(400, "I am ill".into()),
        (false, 1) => Reply::Held("It begins ".into(), held.clone(), "".into()),
        _ => Reply::Text(format!("heard: {}", last_of(request))),
    })
    .await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    op.topic(&base, "t").await;
    op.say(&base, "t", "Shall we?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let answer = messages(op, &base, "t").await.pop().unwrap()["id"].as_str().unwrap().to_owned();
    let job = answer.strip_prefix("msg_").unwrap();
    op.post(&format!("/v1/jobs/{job}/retry"), json!({})).await.expect(StatusCode::ACCEPTED);
    socket.until(|frame| frame["t"] == "stream").await;
    let daemon = daemon.kill_and_restart().await;
    let op = &daemon.operator;
    // The end that its journal tells of first was not the last.
    let job = format!("/v1/jobs/{job}");
    let ended = op.send(Method::GET, &job, &[("prefer", "wait=30")], None).await.expect(StatusCode::OK);
    assert_eq!(ended["status"], "completed", "{ended}");
    let said = messages(op, &base, "t").await;
    assert_eq!((&said[1]["status"], &said[1]["content"]), (&json!("final"), &json!("heard: Shall we?")));
    let mut socket = live(op, &base).await;
    op.say(&base, "t", "And now?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    gate.notify_waiters();
}

#[tokio::test]
async fn a_retry_can_be_interrupted_and_answers_no_purged_message() {
    let (ill, gate) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
    let daemon = TestDaemon::start({
        let (ill, gate) = (ill.clone(), gate.clone());
        move |request, _| match request.response_format.is_some() {
            true => Reply::Text(r#"{"facts":[]}"#.into()),
            false if ill.load(Ordering::SeqCst) => Reply::Status(400, "I am ill".into()),
            false => Reply::Held("Once more: ".into(), gate.clone(), "the end".into()),
        }
    })
    .await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    let mut failed = Vec::new();
    for topic in ["a", "b"] {
        op.topic(&base, topic).await;
        let asked = op.say(&base, topic, "Shall we?").await["id"].as_str().unwrap().to_owned();
        socket.until(|frame| frame["kind"] == "message.finish").await;
        let answer = messages(op, &base, topic).await.pop().unwrap()["id"].as_str().unwrap().to_owned();
        failed.push((topic, asked, answer));
    }
    ill.store(false, Ordering::SeqCst);
    let retry = async |answer: &str| {
        let job = answer.strip_prefix("msg_").unwrap();
        op.post(&format!("/v1/jobs/{job}/retry"), json!({})).await.expect(StatusCode::ACCEPTED);
    };
    // It goes on in sight of all, and whoever wants no more of it says so.
    let (topic, _, answer) = &failed[0];
    retry(answer).await;
    socket.until(|frame| frame["t"] == "stream").await;
    let interrupt = format!("{base}/topics/{topic}/messages/{answer}/interrupt");
    op.post(&interrupt, json!({})).await.expect(StatusCode::OK);
    let job = format!("/v1/jobs/{}", answer.strip_prefix("msg_").unwrap());
    let ended = op.send(Method::GET, &job, &[("prefer", "wait=30")], None).await.expect(StatusCode::OK);
    assert_eq!(ended["status"], "cancelled", "{ended}");
    let said = messages(op, &base, topic).await;
    assert_eq!(said.last().unwrap()["status"], "interrupted");
    // What was taken back is not answered, nor paid for.
    let (topic, asked, answer) = &failed[1];
    op.delete(&format!("{base}/topics/{topic}/messages/{asked}?purge=1")).await.expect(StatusCode::OK);
    let answers = || daemon.model.asked().iter().filter(|request| request.response_format.is_none()).count();
    let before = answers();
    retry(answer).await;
    let job = format!("/v1/jobs/{}", answer.strip_prefix("msg_").unwrap());
    let ended = op.send(Method::GET, &job, &[("prefer", "wait=30")], None).await.expect(StatusCode::OK);
    assert_eq!(ended["status"], "failed", "{ended}");
    assert!(ended["error"].as_str().unwrap().contains("taken back"), "{ended}");
    assert_eq!(answers(), before);
    let said = messages(op, &base, topic).await;
    let why = "I could not answer: answer: scripted refused (400): I am ill";
    assert_eq!((&said[1]["status"], &said[1]["content"]), (&json!("final"), &json!(why)));
}

#[tokio::test]
async fn an_urgent_message_interrupts_an_answer_that_is_resumed_later() {
    let gate = Arc::new(Notify::new());
    let daemon = TestDaemon::start(gated(&gate)).await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    op.topic(&base, "t").await;
    op.say(&base, "t", "Tell me everything about boats?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    let urgent = json!({"content": "Is the harbour closed?", "urgent": true});
    op.post(&format!("{base}/topics/t/messages"), urgent).await.expect(StatusCode::CREATED);
    let broken = socket.until(|frame| frame["kind"] == "message.interrupt").await;
    assert!(broken.last().unwrap()["patch"].to_string().contains("more urgent"), "{:?}", broken.last());
    let first = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(text_of(first.last().unwrap()), "heard: Is the harbour closed?");
    let then = socket.until(|frame| frame["kind"] == "message.finish").await;
    let completed = text_of(then.last().unwrap());
    assert!(completed.contains("Tell me everything about boats?") && completed.contains("interrupted"), "{completed}");
    let said = messages(op, &base, "t").await;
    let answers = by(&said, "lifeform:");
    let statuses: Vec<&Value> = answers.iter().map(|message| &message["status"]).collect();
    assert_eq!(statuses, ["interrupted", "final", "final"]);
    assert_eq!(answers[2]["supplements"], answers[0]["id"], "what completes it says so");
    gate.notify_waiters();
}

#[tokio::test]
async fn a_supplement_joins_its_message_and_a_stop_ends_the_thought() {
    let gate = Arc::new(Notify::new());
    let daemon = TestDaemon::start(gated(&gate)).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    op.topic(&base, "t").await;
    let first = op.say(&base, "t", "Which boat is the fastest?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    let more = json!({"content": "I mean of those in Faro.", "supplements": first["id"]});
    op.post(&format!("{base}/topics/t/messages"), more).await.expect(StatusCode::CREATED);
    socket.until(|frame| frame["kind"] == "message.interrupt").await;
    let both = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(text_of(both.last().unwrap()), "heard: I mean of those in Faro.");
    let asked = daemon.model.asked();
    let last = asked.iter().rev().find(|request| request.response_format.is_none()).unwrap();
    assert!(last.messages.iter().any(|message| message.content.as_deref() == Some("Which boat is the fastest?")));
    gate.notify_waiters();

    let gate = Arc::new(Notify::new());
    let daemon = TestDaemon::start(gated(&gate)).await;
    let (other, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    op.topic(&base, "t").await;
    op.say(&base, "t", "Tell me all?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    op.say(&base, "t", "Never mind.").await;
    socket.until(|frame| frame["kind"] == "message.interrupt").await;
    op.say(&base, "t", "Thanks, and good night?").await;
    let then = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert!(text_of(then.last().unwrap()).ends_with("Thanks, and good night?"));
    let said = messages(op, &base, "t").await;
    assert_eq!(by(&said, "lifeform:").len(), 2, "what was not wanted is not gone on with: {id} {other}");
    gate.notify_waiters();
}

#[tokio::test]
async fn a_thought_that_was_broken_off_is_completed_after_a_kill() {
    let gate = Arc::new(Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, n| match (request.response_format.is_some(), n) {
        (true, _) => Reply::Text(r#"{"facts":[]}"#.into()),
        (false, 0 | 1) => Reply::Held("It begins ".into(), held.clone(), "".into()),
        _ => Reply::Text(format!("heard: {}", last_of(request))),
    })
    .await;
    let (iris, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    op.topic(&base, "t").await;
    op.say(&base, "t", "Tell me everything about boats?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    let urgent = json!({"content": "Is the harbour closed?", "urgent": true});
    op.post(&format!("{base}/topics/t/messages"), urgent).await.expect(StatusCode::CREATED);
    socket.until(|frame| frame["kind"] == "message.stream_open").await;
    let daemon = daemon.kill_and_restart().await;
    let op = &daemon.operator;
    let mut socket = op.subscribe(&base, None).await;
    let is_whole = |frame: &Value| {
        let is_last = |text: &str| text.contains("about boats?") && text.contains("interrupted while");
        frame["kind"] == "message.finish" && is_last(&text_of(frame))
    };
    socket.until(is_whole).await;
    let said = messages(op, &base, "t").await;
    let finals: Vec<&Value> =
        by(&said, "lifeform:").into_iter().filter(|message| message["status"] == "final").collect();
    assert_eq!(finals.len(), 2, "each is answered once: {said:#?}");
    // The call that the kill cut is charged to what it was made for.
    let report = op.get(&format!("/v1/lifeforms/{iris}/resources/report")).await.expect(StatusCode::OK);
    let names = |by: &str| report["by"][by].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names("person"), ["user:operator"], "{report}");
    assert!(!names("model").contains(&"unknown".to_owned()), "{report}");
    gate.notify_waiters();
}

#[tokio::test]
async fn a_message_that_is_edited_is_understood_anew() {
    let daemon = TestDaemon::start(honest).await;
    let (_, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    op.topic(&base, "t").await;
    let said = op.say(&base, "t", "My cat is called Miso.").await;
    let noted = |frame: &Value| frame["kind"] == "message.finish";
    socket.until(noted).await;
    let message = format!("{base}/topics/t/messages/{}", said["id"].as_str().unwrap());
    let amended = op.patch(&message, json!({"content": "My cat is called Tofu.", "reason": "a slip"})).await;
    amended.expect(StatusCode::OK);
    let again = socket.until(noted).await;
    assert!(text_of(again.last().unwrap()).contains("Tofu"), "{:?}", again.last());
    let ask = async |socket: &mut Socket, topic: &str| {
        op.topic(&base, topic).await;
        op.say(&base, topic, "What is my cat called?").await;
        text_of(socket.until(noted).await.last().unwrap())
    };
    let known = ask(&mut socket, "u").await;
    assert!(known.contains("Tofu") && !known.contains("Miso"), "{known}");
    op.delete(&message).await.expect(StatusCode::OK);
    // What was taken back is known no more as soon as it was heeded.
    op.say(&base, "t", "Well?").await;
    socket.until(noted).await;
    assert_eq!(ask(&mut socket, "v").await, "I do not know.");
}

#[tokio::test]
async fn a_lifeform_amends_a_wrong_answer_and_shows_its_evidence() {
    let daemon = TestDaemon::start(|request, n| {
        let user = last_of(request);
        match request.response_format.is_some() {
            true if user.starts_with("New:") => {
                Reply::Text(r#"{"contradicted":[1],"correction":"Your cat is called Tofu."}"#.into())
            }
            false if user == "What is my cat called?" => Reply::Text("Your cat is called Miso.".into()),
            _ => honest(request, n),
        }
    })
    .await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    let finished = |frame: &Value| frame["kind"] == "message.finish";
    for (topic, text) in [("t", "My cat is called Miso."), ("u", "What is my cat called?")] {
        op.topic(&base, topic).await;
        op.say(&base, topic, text).await;
        socket.until(finished).await;
    }
    let asked = messages(op, &base, "u").await;
    let answer = by(&asked, "lifeform:")[0].clone();
    assert!(answer["content"].as_str().unwrap().contains("Miso"));
    let path = format!("{base}/topics/u/messages/{}", answer["id"].as_str().unwrap());
    let evidence = op.get(&format!("{path}/evidence")).await.expect(StatusCode::OK);
    assert_eq!(evidence["rests_on"][0]["concept"]["attributes"]["statement"], "My cat is called Miso.");
    assert!(evidence["kip"].to_string().contains("SEARCH CONCEPT"), "{evidence}");
    op.topic(&base, "v").await;
    op.say(&base, "v", "My cat is called Tofu, and Miso is my neighbour's.").await;
    let amended = socket.until(|frame| frame["kind"] == "message.amend").await;
    assert!(amended.last().unwrap()["patch"].to_string().contains("I learned since: My cat is called Tofu"));
    let now = op.get(&path).await.expect(StatusCode::OK);
    assert_eq!(now["content"], "Your cat is called Tofu.");
    assert!(now["revisions"][0]["content"].as_str().unwrap().contains("Miso"), "{now}");
    // Why? The trace leads from the amendment back to what was said, and from there forward to the amendment.
    let from = format!("canvas:{id}/canvas_chat_main@{}", now["rev"]);
    let trace = op.get(&format!("/v1/lifeforms/{id}/trace?from={from}")).await.expect(StatusCode::OK);
    let back: Vec<&Value> = trace["back"].as_array().unwrap().iter().collect();
    let said = back.iter().find(|step| step["data"]["op"]["kind"] == "message.append").unwrap();
    assert!(said["data"]["op"]["content"].as_str().unwrap().contains("Tofu"), "{trace}");
    let from = said["ref"].as_str().unwrap();
    let effects = op.get(&format!("/v1/lifeforms/{id}/trace?from={from}")).await.expect(StatusCode::OK);
    let kinds: Vec<String> = effects["forward"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            format!("{} {}", step["ref"].as_str().unwrap().split(':').next().unwrap(), step["kind"].as_str().unwrap())
        })
        .collect();
    for kind in ["canvas", "job", "calls", "ledger", "nexus"] {
        assert!(kinds.iter().any(|known| known.starts_with(kind)), "{kind} is not among {kinds:?}");
    }
    let spans = op.get(&format!("/v1/lifeforms/{id}/trace?from={from}&format=otlp")).await.expect(StatusCode::OK);
    let spans = spans["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    let chat = spans.iter().find(|span| span["name"].as_str().unwrap().starts_with("chat ")).unwrap();
    assert!(chat["attributes"].to_string().contains("gen_ai.usage.output_tokens"), "{chat}");
    let ids: Vec<&Value> = spans.iter().map(|span| &span["spanId"]).collect();
    assert!(
        spans.iter().skip(1).all(|span| ids.contains(&&span["parentSpanId"])),
        "every span but the first has a parent"
    );
    op.get(&format!("/v1/lifeforms/{id}/trace?from=nothing@1")).await.refused(404, "not_found");
    op.get(&format!("/v1/lifeforms/{id}/trace?format=otlp")).await.refused(422, "invalid");
}

#[tokio::test]
async fn where_it_has_not_spoken_yet_a_lifeform_is_called_by_its_name() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    let definition = json!({"definition": {"name": "Iris"}});
    let made = op.post("/v1/lifeforms", definition).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let base = format!("{life}/canvases/canvas_chat_main");
    let mut socket = live(op, &base).await;
    let topic = json!({"id": "t", "title": "t", "turns": "mentioned"});
    op.post(&format!("{base}/topics"), topic).await.expect(StatusCode::CREATED);
    op.say(&base, "t", "My cat is called Miso.").await;
    op.say(&base, "t", "@Iris what is my cat called?").await;
    let answer = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert!(text_of(answer.last().unwrap()).contains("Miso"), "{answer:?}");
}

#[tokio::test]
async fn a_lifeform_in_turns_mode_answers_only_when_it_is_mentioned() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(op, &base).await;
    let ops = json!({"ops": [
        {"kind": "topic.create", "id": "t", "title": "t", "turns": "mentioned"},
        {"kind": "message.append", "topic": "t", "id": "m1", "content": "My cat is called Miso."}]});
    op.post(&format!("{base}/ops"), ops).await.expect(StatusCode::OK);
    op.topic(&base, "u").await;
    op.say(&base, "u", "Hello?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    op.say(&base, "t", &format!("@lifeform:{id} what is my cat called?")).await;
    let answer = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert!(text_of(answer.last().unwrap()).contains("Miso"), "it heeded what was not for it");
    assert_eq!(by(&messages(op, &base, "t").await, "lifeform:").len(), 1);
    // Told to listen only, it does.
    op.post(
        &format!("{base}/ops"),
        json!({"ops": [{"kind": "topic.role", "id": "u", "who": format!("lifeform:{id}"), "role": "listener"}]}),
    )
    .await
    .expect(StatusCode::OK);
    op.say(&base, "u", "Are you there?").await;
    op.topic(&base, "v").await;
    op.say(&base, "v", "And here?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(by(&messages(op, &base, "u").await, "lifeform:").len(), 1);
}

#[tokio::test]
async fn two_people_and_two_lifeforms_plan_in_a_topic_without_an_echo() {
    let daemon = TestDaemon::start(|request, _| match request.response_format.is_some() {
        true => Reply::Text(r#"{"facts":[]}"#.into()),
        false if last_of(request).contains("ask Bo") => Reply::Text("@Bo, what do you think?".into()),
        false => Reply::Text(format!("I heard: {}", last_of(request))),
    })
    .await;
    let (iris, base) = daemon.lifeform().await;
    let op = daemon.operator.clone();
    let made = op.post("/v1/lifeforms", json!({"definition": "first", "name": "Bo"})).await.expect(StatusCode::CREATED);
    let bo = made["id"].as_str().unwrap().to_owned();
    op.post(&format!("/v1/lifeforms/{bo}/start"), json!({})).await.expect(StatusCode::OK);
    let mut socket = live(&op, &base).await;
    let members = format!("{base}/members");
    op.put(&format!("{members}/{bo}"), json!({})).await.expect(StatusCode::NO_CONTENT);
    socket.until(|frame| frame["kind"] == "user.name").await;
    op.put(&format!("{members}/{iris}"), json!({})).await.refused(409, "state");
    op.put(&format!("{members}/nobody"), json!({})).await.refused(404, "lifeform_not_found");
    assert_eq!(op.get(&members).await.expect(StatusCode::OK)["members"][0]["id"], bo);
    let ada = daemon.person("user:ada", "participant").await;
    op.topic(&base, "plan").await;
    let finished = |frame: &Value| frame["kind"] == "message.finish";
    // A person speaks to all: the lifeform at home answers, and the other does not answer it.
    ada.say(&base, "plan", "Where shall we sail to?").await;
    socket.until(finished).await;
    op.say(&base, "plan", &format!("@lifeform:{iris} please ask Bo")).await;
    let asked = socket.until(finished).await;
    assert_eq!(text_of(asked.last().unwrap()), "@Bo, what do you think?");
    let answered = socket.until(finished).await;
    assert!(text_of(answered.last().unwrap()).contains("what do you think?"), "{:?}", answered.last());
    let said = messages(&op, &base, "plan").await;
    let senders: Vec<&str> = said.iter().map(|message| message["sender"].as_str().unwrap()).collect();
    let (iris, bo_id) = (format!("lifeform:{iris}"), format!("lifeform:{bo}"));
    assert_eq!(senders.iter().filter(|who| **who == iris).count(), 2);
    assert_eq!(senders.iter().filter(|who| **who == bo_id).count(), 1);
    assert_eq!(senders.len(), 5, "no echo: {said:#?}");
    // Each voice has its name in what the other one is told.
    let told = daemon.model.asked().into_iter().rev().find(|request| request.response_format.is_none()).unwrap();
    let told: Vec<String> = told.messages.iter().filter_map(|message| message.content.clone()).collect();
    assert!(told.iter().any(|text| text.starts_with("ada says: ")), "{told:?}");
    op.delete(&format!("{members}/{bo}")).await.expect(StatusCode::NO_CONTENT);
    op.delete(&format!("{members}/{bo}")).await.refused(404, "not_found");
}

#[tokio::test]
async fn another_lifeform_adds_a_fact_that_an_answer_leaves_out() {
    let daemon = TestDaemon::start(|request, _| match request.response_format.is_some() {
        true => Reply::Text(r#"{"facts":[]}"#.into()),
        false if last_of(request).contains("cat") => Reply::Text("Your cat is Miso.".into()),
        false => Reply::Text("I do not know.".into()),
    })
    .await;
    let (_, base) = daemon.lifeform().await;
    let op = daemon.operator.clone();
    let made = op.post("/v1/lifeforms", json!({"definition": "first", "name": "Bo"})).await.expect(StatusCode::CREATED);
    let bo = made["id"].as_str().unwrap().to_owned();
    op.post(&format!("/v1/lifeforms/{bo}/start"), json!({})).await.expect(StatusCode::OK);
    let mut socket = live(&op, &base).await;
    op.put(&format!("{base}/members/{bo}"), json!({})).await.expect(StatusCode::NO_CONTENT);
    socket.until(|frame| frame["kind"] == "user.name").await;
    op.topic(&base, "t").await;
    let finished = |frame: &Value| frame["kind"] == "message.finish";
    for words in ["My boat is called Petrel.", "My cat is called Miso."] {
        op.say(&base, "t", words).await;
        socket.until(finished).await;
    }
    // Bo has heeded both before the question comes.
    let command = r#"FIND(COUNT(?f)) WHERE { ?f {type: "Fact"} }"#;
    while
        op.post(&format!("/v1/lifeforms/{bo}/kip"), json!({"command": command})).await.expect(StatusCode::OK)["result"]
            .to_string()
            .trim_matches(['[', ']'])
            != "2"
    {
        again().await;
    }
    op.say(&base, "t", "What is my cat called?").await;
    socket.until(finished).await;
    op.say(&base, "t", "What is my boat called?").await;
    socket.until(|frame| frame["kind"] == "message.append" && frame.to_string().contains("Petrel")).await;
    let said = messages(&op, &base, "t").await;
    let added = by(&said, &format!("lifeform:{bo}"));
    assert_eq!(added.len(), 1, "nothing is added to an answer that says it: {added:#?}");
    assert_eq!(added[0]["content"], r#"You told me: "My boat is called Petrel.""#);
    assert_eq!(added[0]["rests_on"].as_array().map(Vec::len), Some(1), "{}", added[0]);
}

#[tokio::test]
async fn a_member_hears_only_messages_sent_during_its_membership() {
    let gate = Arc::new(Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, _| match request.response_format.is_some() {
        true => Reply::Text(r#"{"facts":[]}"#.into()),
        false if last_of(request).contains("forever") => Reply::Held("Once upon ".into(), held.clone(), "".into()),
        false => Reply::Text(format!("heard: {}", last_of(request))),
    })
    .await;
    let (iris, base) = daemon.lifeform().await;
    let op = daemon.operator.clone();
    let made = op.post("/v1/lifeforms", json!({"definition": "first", "name": "Bo"})).await.expect(StatusCode::CREATED);
    let bo = made["id"].as_str().unwrap().to_owned();
    let finished = |frame: &Value| frame["kind"] == "message.finish";
    let mut socket = live(&op, &base).await;
    op.topic(&base, "t").await;
    op.say(&base, "t", "Who is here?").await;
    socket.until(finished).await;
    // It is made a member before it was ever started.
    op.put(&format!("{base}/members/{bo}"), json!({})).await.expect(StatusCode::NO_CONTENT);
    op.post(&format!("/v1/lifeforms/{bo}/start"), json!({})).await.expect(StatusCode::OK);
    socket.until(|frame| frame["kind"] == "user.name").await;
    op.say(&base, "t", &format!("@lifeform:{bo} speak forever")).await;
    socket.until(|frame| frame["t"] == "stream").await;
    let bo_id = format!("lifeform:{bo}");
    assert_eq!(by(&messages(&op, &base, "t").await, &bo_id).len(), 1, "what was said before was not said to it");
    op.delete(&format!("{base}/members/{bo}")).await.expect(StatusCode::NO_CONTENT);
    let broken = socket.until(|frame| frame["kind"] == "message.interrupt").await;
    assert!(broken.last().unwrap()["patch"].to_string().contains("it left"), "{:?}", broken.last());
    op.say(&base, "t", &format!("@lifeform:{bo} and now?")).await;
    op.say(&base, "t", &format!("@lifeform:{iris} and you?")).await;
    socket.until(finished).await;
    assert_eq!(by(&messages(&op, &base, "t").await, &bo_id).len(), 1, "who left hears no more");
    gate.notify_waiters();
}

#[tokio::test]
async fn a_trace_hides_prompts_and_minds_from_participants() {
    let daemon = TestDaemon::start(honest).await;
    let op = daemon.operator.clone();
    let definition = json!({"name": "Iris", "persona": "SECRETPERSONA"});
    let made = op.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let id = made["id"].as_str().unwrap().to_owned();
    op.post(&format!("/v1/lifeforms/{id}/start"), json!({})).await.expect(StatusCode::OK);
    let base = format!("/v1/lifeforms/{id}/canvases/canvas_chat_main");
    let mut socket = live(&op, &base).await;
    op.topic(&base, "t").await;
    let said = op.say(&base, "t", "My cat is called Miso.").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let ada = daemon.person("user:ada", "participant").await;
    for from in [
        format!("canvas:{id}/canvas_chat_main@{}", said["rev"]),
        format!("job:{id}.t.r{}", said["rev"]),
        format!("job:{id}.t.r{}/recall", said["rev"]),
        format!("nexus:{id}@7"),
        format!("calls:{id}@1"),
    ] {
        let path = format!("/v1/lifeforms/{id}/trace?from={from}");
        op.get(&path).await.expect(StatusCode::OK);
        let seen = ada.get(&path).await.expect(StatusCode::OK).to_string();
        assert!(!seen.contains("SECRETPERSONA") && !seen.contains("stated_by"), "{from}: {seen}");
    }
}
