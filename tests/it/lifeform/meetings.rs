//! A topic that a lifeform coordinates (MISSION L8): agenda, who is silent, views, decision; in the mind as well.

use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, again, honest, text_of};

const MINUTE_MS: i64 = 60_000;

async fn live(client: &Client, base: &str) -> Socket {
    let mut socket = client.subscribe(base, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    socket
}

/// Returns a condition for a frame that posts or amends a message with a text. An amendment also holds the text before.
fn says(text: &str) -> impl Fn(&Value) -> bool {
    move |frame| {
        let ops = frame["patch"].as_array().into_iter().flatten();
        let is_content = |op: &&Value| op["path"].as_str().is_some_and(|path| path.ends_with("/content"));
        let amended = ops.filter(is_content).filter_map(|op| op["value"].as_str()).next_back();
        let now = amended.map_or_else(|| text_of(frame), str::to_owned);
        matches!(frame["kind"].as_str(), Some("message.append" | "message.amend")) && now.contains(text)
    }
}

fn stance(id: &str, agenda: &[&str]) -> Value {
    json!({"kind": "topic.stance", "id": "plan", "who": format!("lifeform:{id}"), "stance": "coordinator", "agenda": agenda})
}

async fn kip(op: &Client, id: &str, command: &str) -> Value {
    let answer = op.post(&format!("/v1/lifeforms/{id}/kip"), json!({"command": command})).await;
    answer.expect(StatusCode::OK)["result"].clone()
}

/// Waits until a query has a result.
async fn until(op: &Client, id: &str, command: &str, wanted: &Value) {
    loop {
        let found = kip(op, id, command).await;
        if found == *wanted {
            return;
        }
        tests::again().await;
    }
}

/// Returns the messages of the topic by the lifeform whose ids contain a text.
async fn posts(op: &Client, base: &str, part: &str) -> Vec<Value> {
    let said = op.get(&format!("{base}/topics/plan/messages?limit=200")).await.expect(StatusCode::OK);
    let said = said["messages"].as_array().unwrap().iter();
    said.filter(|message| message["id"].as_str().unwrap().contains(part)).cloned().collect()
}

#[tokio::test]
async fn three_people_come_to_a_decision_with_a_coordinator() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = daemon.operator.clone();
    let [ada, ben] = ["user:ada", "user:ben"].map(|who| daemon.person(who, "participant"));
    let (ada, ben) = (ada.await, ben.await);
    let mut socket = live(&op, &base).await;
    ada.topic(&base, "plan").await;
    let role = json!({"kind": "topic.role", "id": "plan", "who": "user:mia", "role": "speaker"});
    let agenda = ["Shall we sail on Saturday?", "The boat: Heron, Petrel"];
    let refused = ben.post_ops(&base, vec![stance(&id, &agenda)]).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    ada.post_ops(&base, vec![role]).await.expect(StatusCode::OK);
    let role = json!({"kind": "topic.role", "id": "plan", "who": "user:ben", "role": "speaker"});
    ada.post_ops(&base, vec![role, stance(&id, &agenda)]).await.expect(StatusCode::OK);
    socket.until(says("1. Shall we sail on Saturday?\nada, ben, mia: what do you think?")).await;
    ada.say(&base, "plan", "Yes, gladly.").await;
    ben.say(&base, "plan", "No, I have to work.").await;
    socket.until(says("for: ada; against: ben; not heard yet: mia")).await;
    // The state survives a kill, and the time goes on.
    drop(socket);
    let daemon = daemon.kill_and_restart().await;
    let at = |client: &Client| Client::new(daemon.operator.base.clone(), client.token.clone());
    let (op, ada, ben) = (at(&op), at(&ada), at(&ben));
    let mut socket = live(&op, &base).await;
    daemon.clock.advance_ms(16 * MINUTE_MS);
    socket.until(says("mia: we have not heard you about “Shall we sail on Saturday?”")).await;
    daemon.clock.advance_ms(16 * MINUTE_MS);
    let sum = socket.until(says("So far about")).await;
    let sum = text_of(sum.last().unwrap());
    for part in ["- for: ada\n", "- against: ben\n", "- not heard yet: mia\n", "ada: what is decided?"] {
        assert!(sum.contains(part), "{part}: {sum}");
    }
    // Only a moderator decides.
    ben.say(&base, "plan", "Decided: we stay at home.").await;
    ada.say(&base, "plan", "Decided: we sail on Sunday.").await;
    socket.until(says("Decided about “Shall we sail on Saturday?”: “Decided: we sail on Sunday.” (ada).")).await;
    socket.until(says("2. The boat: Heron, Petrel")).await;
    let mia = daemon.person("user:mia", "participant").await;
    for (who, words) in [
        (&ada, "Petrel, I think"),
        (&ben, "Heron."),
        (&mia, "The Heron rather than the Petrel"),
        (&ada, "Fine, Heron then"),
    ] {
        who.say(&base, "plan", words).await;
    }
    // All have spoken, and a moderator says that they agree. Nothing after the end changes it.
    socket.until(says("So far about “The boat: Heron, Petrel”:\n- Heron: ada, ben, mia\n")).await;
    ada.say(&base, "plan", "Agreed.").await;
    socket.until(says("Decided about “The boat: Heron, Petrel”: “Agreed.” (ada). That was the last item.")).await;
    ben.say(&base, "plan", "No, rather the Petrel.").await;
    socket.until(says("2. The boat: Heron, Petrel – decided: Heron")).await;
    assert_eq!(daemon.model.asked().len(), 0, "no token was spent");
    for (part, count) in [("agenda", 1), ("_item_", 2), ("_ask_", 1), ("_sum_", 2), ("_end_", 2)] {
        assert_eq!(posts(&op, &base, part).await.len(), count, "{part}");
    }
    let topics = op.get(&format!("{base}/topics")).await.expect(StatusCode::OK);
    let topic = topics["topics"].as_array().unwrap().iter().find(|topic| topic["id"] == "plan").unwrap();
    assert!(topic["pinned"].as_str().unwrap().contains("agenda"), "{topic}");
    // The mind has the meeting, its items, who was for what, and the decisions with their evidence.
    let decided = r#"FIND(?i.attributes.state, ?f.attributes.statement, ?f.attributes.modality) WHERE { ?e {type: "Event"} (?i, "on_agenda_of", ?e) (?f, "decides", ?i) FILTER(?f.metadata.status == "active") } ORDER BY ?i.name"#;
    let decided = loop {
        let found = kip(&op, &id, decided).await;
        if found.as_array().is_some_and(|rows| rows.len() == 2) {
            break found;
        }
        again().await;
    };
    assert_eq!(
        decided[0],
        json!(["done", "It was decided about “Shall we sail on Saturday?”: “Decided: we sail on Sunday.”.", "decided"])
    );
    let views = r#"FIND(?p.name, ?l.predicate, ?l.attributes.side) WHERE { ?i {type: "Intention"} ?l (?p, "supports" | "opposes", ?i) FILTER(?l.metadata.status == "active" && ?i.attributes.name == "Shall we sail on Saturday?") } ORDER BY ?p.name"#;
    let views = kip(&op, &id, views).await;
    assert_eq!(views, json!([["user:ada", "supports", "for"], ["user:ben", "opposes", "against"]]));
    let boats = r#"FIND(?p.name, ?l.attributes.side) WHERE { ?i {type: "Intention"} ?l (?p, "supports", ?i) FILTER(?i.attributes.name == "The boat: Heron, Petrel") } ORDER BY ?p.name"#;
    let boats = kip(&op, &id, boats).await;
    assert_eq!(boats, json!([["user:ada", "Heron"], ["user:ben", "Heron"], ["user:mia", "Heron"]]));
    // A person who takes no part sees nothing of it.
    let eve = daemon.person("user:eve", "participant").await;
    let seen = eve
        .post(&format!("/v1/lifeforms/{id}/kip"), json!({"command": r#"FIND(?i) WHERE { ?i {type: "Intention"} }"#}))
        .await;
    assert_eq!(seen.body["result"], json!([]), "{}", seen.body);
}

#[tokio::test]
async fn a_meeting_follows_words_that_are_taken_back() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let (ada, ben) = (daemon.person("user:ada", "participant").await, daemon.person("user:ben", "participant").await);
    let mut socket = live(op, &base).await;
    ada.topic(&base, "plan").await;
    ben.say(&base, "plan", "Here I am.").await;
    ada.post_ops(&base, vec![stance(&id, &["我们周六还是周日出海？"])]).await.expect(StatusCode::OK);
    socket.until(says("大家怎么看？")).await;
    let said = ada.say(&base, "plan", "周六，周日我没空").await;
    socket.until(says("周六：ada")).await;
    ben.say(&base, "plan", "周日吧").await;
    socket.until(says("关于“我们周六还是周日出海？”，目前的意见：\n- 周六：ada\n- 周日：ben\n")).await;
    let path = |said: &Value| format!("{base}/topics/plan/messages/{}", said["id"].as_str().unwrap());
    ada.delete(&path(&said)).await;
    socket.until(says("- 周日：ben\n- 还没发言：ada\n")).await;
    let decided = ada.say(&base, "plan", "那就周日").await;
    socket.until(says("关于“我们周六还是周日出海？”已决定：“那就周日”（ada）。议程到此结束。")).await;
    // A decision that is taken back is open again, in the chat and in the mind.
    let facts = r#"FIND(?f.attributes.statement, ?f.metadata.status) WHERE { (?f, "decides", ?i) } ORDER BY ?f.name"#;
    let first = json!(["关于“我们周六还是周日出海？”的决定：“那就周日”。", "active"]);
    until(op, &id, facts, &json!([first])).await;
    ada.delete(&path(&decided)).await;
    socket.until(says("“我们周六还是周日出海？”重新讨论。")).await;
    until(op, &id, facts, &json!([[first[0], "retracted"]])).await;
    ada.say(&base, "plan", "决定：周六").await;
    socket.until(says("“决定：周六”（ada）")).await;
    let second = json!(["关于“我们周六还是周日出海？”的决定：“决定：周六”。", "active"]);
    until(op, &id, facts, &json!([second, [first[0], "retracted"]])).await;
    // A new agenda starts at its first item. A participant has no agenda, and posts no messages of one.
    ada.post_ops(&base, vec![stance(&id, &["吃什么？"])]).await.expect(StatusCode::OK);
    socket.until(says("1. 吃什么？\nada、ben")).await;
    let own = json!({"kind": "topic.stance", "id": "plan", "who": format!("lifeform:{id}"), "stance": "participant"});
    ada.post_ops(&base, vec![own]).await.expect(StatusCode::OK);
    let asked = daemon.model.asked().len();
    ben.say(&base, "plan", "Hello, are you there?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    assert!(daemon.model.asked().len() > asked, "it answers as a participant");
    // Bad agendas are refused with the member that is wrong.
    for (members, why) in [
        (json!({"agenda": vec!["x"; 13]}), "at most 12 items"),
        (json!({"agenda": ["two\nlines"]}), "one line"),
        (json!({"agenda": [""]}), "1 to 200"),
        (json!({"until": "2020-01-01T00:00:00Z"}), "past"),
        (json!({"who": "user:ben"}), "a stance is of a lifeform"),
        (json!({"stance": "hub", "agenda": ["x"]}), "of a coordinator"),
        (json!({"stance": "chair"}), "chair"),
    ] {
        let mut op = stance(&id, &[]);
        op.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let refused = ada.post_ops(&base, vec![op]).await;
        assert!(refused.body.to_string().contains(why) && refused.status == 422, "{members}: {}", refused.body);
    }
    let pin = json!({"kind": "topic.pin", "id": "plan", "message": said["id"]});
    assert_eq!(ben.post_ops(&base, vec![pin]).await.status, 403);
}

#[tokio::test]
async fn a_hub_passes_on_what_all_readers_may_hear() {
    let daemon = TestDaemon::start(honest).await;
    let (id, base) = daemon.lifeform().await;
    let op = &daemon.operator;
    let [ada, ben, dana] = ["user:ada", "user:ben", "user:dana"].map(|who| daemon.person(who, "participant"));
    let (ada, ben, dana) = (ada.await, ben.await, dana.await);
    let mut socket = live(op, &base).await;
    for (who, topic) in [(&ada, "club"), (&dana, "plan")] {
        who.topic(&base, topic).await;
    }
    let hub = json!({"kind": "topic.stance", "id": "plan", "who": format!("lifeform:{id}"), "stance": "hub"});
    dana.post_ops(&base, vec![hub]).await.expect(StatusCode::OK);
    ben.say(&base, "club", "Hello, here is Ben.").await;
    socket.answer().await;
    dana.say(&base, "plan", "I want to launch my boat from the slipway in Faro next week.").await;
    socket.answer().await;
    // What was said among Ada and Ben stays there.
    ada.say(&base, "club", "The slipway in Faro has a hole, and Ben broke it.").await;
    socket.answer().await;
    // What everybody may hear is passed on, once, with its teller, below what it is about.
    ada.say(&base, "club", "The slipway in Faro is closed until May. You can tell everyone.").await;
    let is_passed_on = |frame: &Value| frame["kind"] == "message.append" && text_of(frame).contains("in another talk");
    let passed = socket.until(is_passed_on).await;
    assert_eq!(text_of(passed.last().unwrap()), "ada said in another talk: “The slipway in Faro is closed until May.”");
    let again = ada.say(&base, "club", "The slipway in Faro is closed until May. You can tell everyone.").await;
    ada.say(&base, "club", "My cat is called Miso. You can tell everyone.").await;
    socket.answer().await;
    // Asked, it knows the one and not the other.
    dana.say(&base, "plan", "What do you know about the slipway in Faro?").await;
    let answer = text_of(socket.answer().await.last().unwrap());
    assert!(answer.contains("closed until May") && !answer.contains("hole"), "{answer}");
    let said = op.get(&format!("{base}/topics/plan/messages?limit=200")).await.expect(StatusCode::OK);
    let said = said["messages"].as_array().unwrap();
    let passed: Vec<&Value> = said.iter().filter(|message| message["id"].as_str().unwrap().contains("_hub_")).collect();
    assert_eq!(passed.len(), 1, "{said:?}");
    assert_eq!(passed[0]["behind"], json!(["user:ada"]));
    assert!(!said.iter().any(|message| message["content"].as_str().unwrap().contains("hole")), "{said:?}");
    // What its teller takes back is taken back here, too.
    let club = op.get(&format!("{base}/topics/club/messages?limit=200")).await.expect(StatusCode::OK);
    let told = club["messages"].as_array().unwrap().iter();
    let told =
        told.filter(|one| one["sender"] == "user:ada" && one["content"].as_str().unwrap().contains("closed until May"));
    for one in told {
        ada.delete(&format!("{base}/topics/club/messages/{}", one["id"].as_str().unwrap())).await;
    }
    socket.until(|frame| frame["kind"] == "message.retract" && frame["actor"]["kind"] == "lifeform").await;
    assert!(again["id"].is_string());
}

#[tokio::test]
async fn a_moderator_asks_for_a_coordinator_in_words() {
    let daemon = TestDaemon::start(honest).await;
    let (_, base) = daemon.lifeform().await;
    let (ada, ben) = (daemon.person("user:ada", "participant").await, daemon.person("user:ben", "participant").await);
    let mut socket = live(&daemon.operator, &base).await;
    ada.topic(&base, "plan").await;
    ben.say(&base, "plan", "Could you chair our meeting: shall we row?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    assert!(posts(&daemon.operator, &base, "_meeting_").await.is_empty(), "Ben does not moderate");
    ada.say(&base, "plan", "Please coordinate this topic:\n1. Shall we sail on Saturday?\n2. The boat: Heron, Petrel")
        .await;
    socket.until(says("1. Shall we sail on Saturday?\nada, ben: what do you think?")).await;
    ada.say(&base, "plan", "Yes!").await;
    ben.say(&base, "plan", "2: the Heron").await;
    ben.say(&base, "plan", "Fine with me.").await;
    socket.until(says("- for: ada, ben\n")).await;
    // A word for the meeting needs no answer, even below the lifeform's own message.
    let sum = posts(&daemon.operator, &base, "_sum_").await;
    let asked = daemon.model.asked().len();
    let decided = json!({"content": "Decided.", "reply_to": sum[0]["id"]});
    ada.post(&format!("{base}/topics/plan/messages"), decided).await.expect(StatusCode::CREATED);
    socket.until(says("2. The boat: Heron, Petrel\nada, ben: what do you think?")).await;
    socket.until(says("2. The boat: Heron, Petrel – open (Heron: ben; not heard yet: ada)")).await;
    assert_eq!(daemon.model.asked().len(), asked);
    // Nobody else can take the ids of its messages.
    let taken = sum[0]["id"].as_str().unwrap().replace("_sum_0", "_sum_1");
    let op = json!({"kind": "message.append", "topic": "plan", "id": taken, "content": "Decided."});
    assert_eq!(ben.post_ops(&base, vec![op]).await.status, 422);
    ada.say(&base, "plan", "Stop coordinating, please.").await;
    socket.until(|frame| frame["kind"] == "topic.stance").await;
    ben.say(&base, "plan", "Are you there?").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    assert_eq!(posts(&daemon.operator, &base, "_sum_").await.len(), 1);
}
