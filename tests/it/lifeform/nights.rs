//! The work that nobody asks for: the night of `$system`, own thoughts, and the growth of `$self` (MISSION K11, K13, L2,
//! L8).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, honest, text_of};

use super::goals::{born, live, says, step};
use super::knowing::NIGHTLY;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

fn last(request: &ChatRequest) -> String {
    request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default()
}

fn system(request: &ChatRequest) -> String {
    request.messages.first().and_then(|message| message.content.clone()).unwrap_or_default()
}

/// A model that asks about open things, and takes over the voice that people ask for.
fn thoughtful(request: &ChatRequest, n: usize) -> Reply {
    let said = last(request);
    match () {
        () if said.contains("That day is ") => Reply::Text(json!({"say": "How was your exam, Ada?"}).to_string()),
        () if said.starts_with("The lifeform: ") => {
            Reply::Text(json!({"change": "set", "voice": "It answers in one short sentence."}).to_string())
        }
        () => honest(request, n),
    }
}

async fn answered(socket: &mut Socket, who: &Client, chat: &str, topic: &'static str, words: &str) -> String {
    who.say(chat, topic, words).await;
    let done = |frame: &Value| frame["kind"] == "message.finish" && says(topic)(frame);
    text_of(socket.until(done).await.last().unwrap())
}

async fn kip(op: &Client, life: &str, command: &str) -> Value {
    op.post(&format!("{life}/kip"), json!({"command": command})).await.expect(StatusCode::OK)["result"].clone()
}

/// Waits until the jobs of a night have ended, and returns their tasks.
async fn tended(op: &Client, day: &str) -> Vec<String> {
    for _ in 0..20_000 {
        let jobs = op.get("/v1/jobs?limit=200").await.expect(StatusCode::OK);
        let of_night = |job: &&Value| job["job_id"].as_str().is_some_and(|id| id.contains(&format!(".night.{day}.")));
        let night: Vec<&Value> = jobs["jobs"].as_array().unwrap().iter().filter(of_night).collect();
        let is_last = |job: &&Value| job["job_id"].as_str().is_some_and(|id| id.ends_with(".reflect"));
        if night.iter().any(is_last) && night.iter().all(|job| job["status"] == "completed") {
            let task = |job: &&Value| {
                let task = job["job_id"].as_str().unwrap().rsplit('.').next().unwrap();
                // One of them runs several times.
                task.trim_end_matches(|c: char| c == '_' || c.is_ascii_digit()).to_owned()
            };
            let tasks: std::collections::BTreeSet<String> = night.iter().map(task).collect();
            return tasks.into_iter().collect();
        }
        assert!(night.iter().all(|job| job["status"] != "failed"), "{night:?}");
        tests::again().await;
    }
    panic!("the night did not end: {}", op.get("/v1/jobs?limit=200").await.body);
}

fn utc(definition: Value) -> Value {
    let mut definition = definition;
    definition["initiative"]["quiet"] = json!({"from": "00:00", "to": "00:00", "zone": "UTC"});
    definition
}

/// A task that would change too much in one night waits for an operator.
#[tokio::test]
async fn a_night_changes_little_and_an_operator_may_change_more() {
    let daemon = TestDaemon::start(honest).await;
    let (id, _) = daemon.lifeform().await;
    let (op, life) = (daemon.operator.clone(), format!("/v1/lifeforms/{id}"));
    kip(
        &op,
        &life,
        r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Ticket"} SET ATTRIBUTES { description: "A ticket." } } }"#,
    )
    .await;
    for n in 0..25 {
        let ticket = format!(
            r#"UPSERT {{ CONCEPT ?t {{ {{type: "Ticket", name: "T{n}"}} }} }} WITH METADATA {{ status: "active", expires_at: "2026-01-01T12:00:00Z" }}"#
        );
        kip(&op, &life, &ticket).await;
    }
    let active = r#"FIND(COUNT(?t)) WHERE { ?t {type: "Ticket"} FILTER(?t.metadata.status == "active") }"#;
    daemon.clock.advance_ms(28 * HOUR_MS);
    tended(&op, "2026-01-02").await;
    assert_eq!(kip(&op, &life, active).await, json!([25]));
    let held = op.get(&format!("/v1/jobs/{id}.night.2026-01-02.expire")).await.expect(StatusCode::OK);
    assert!(held["output"].to_string().contains(r#""held_back":{"changes":25,"most":20}"#), "{held}");
    let job = op
        .post(&format!("{life}/system/run-maintenance"), json!({"task": "expire"}))
        .await
        .expect(StatusCode::ACCEPTED);
    while op.get(&format!("/v1/jobs/{}", job["job_id"].as_str().unwrap())).await.expect(StatusCode::OK)["status"]
        != "completed"
    {
        tests::again().await;
    }
    assert_eq!(kip(&op, &life, active).await, json!([0]));
}

#[tokio::test]
async fn the_mind_is_tended_every_night_and_each_change_can_be_undone() {
    let daemon = TestDaemon::start(thoughtful).await;
    let (life, chat) = born(&daemon, utc(json!({"name": "Iris"}))).await;
    let op = &daemon.operator;
    let id = life.rsplit('/').next().unwrap();
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    answered(&mut socket, op, &chat, "t", "My cat is called Miso.").await;
    for command in [
        r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Ticket"} SET ATTRIBUTES { description: "A ticket." } } }"#,
        r#"UPSERT { CONCEPT { {type: "$PropositionType", name: "valid_for"} SET ATTRIBUTES { description: "x" } } }"#,
        r#"UPSERT { CONCEPT ?t { {type: "Ticket", name: "T1"} SET ATTRIBUTES { seat: 7 } } } WITH METADATA { status: "active", expires_at: "2026-01-01T12:00:00Z" }"#,
        r#"UPSERT { CONCEPT ?t { {type: "Ticket", name: "T2"} } } WITH METADATA { status: "active" }"#,
        r#"UPSERT { PROPOSITION { ({type: "Ticket", name: "T1"}, "valid_for", {type: "Ticket", name: "T2"}) } } WITH METADATA { status: "active", expires_at: "2026-01-01T12:00:00Z" }"#,
    ] {
        kip(op, &life, command).await;
    }
    daemon.clock.advance_ms(28 * HOUR_MS);
    let mut tasks = tended(op, "2026-01-02").await;
    tasks.sort();
    assert_eq!(tasks, NIGHTLY);
    let status = r#"FIND(?t.metadata.status) WHERE { ?t {type: "Ticket", name: "T1"} }"#;
    assert_eq!(kip(op, &life, status).await, json!(["expired"]));
    let link = r#"FIND(?l.metadata.status) WHERE { ?l (?s, "valid_for", ?o) }"#;
    assert_eq!(kip(op, &life, link).await, json!(["expired"]));
    let schema = r#"FIND(?t.attributes.instance_schema) WHERE { ?t {type: "$ConceptType", name: "Ticket"} }"#;
    assert!(kip(op, &life, schema).await.to_string().contains("seat"));
    let subjects =
        r#"FIND(?p.attributes.interaction_summary.subjects) WHERE { ?p {type: "Person", name: "user:operator"} }"#;
    assert_ne!(kip(op, &life, subjects).await, json!([]));
    // Each write of the night is an entry of the journal and can be taken back.
    let journal = op.get(&format!("/v1/nexus/{id}/journal?limit=200")).await.expect(StatusCode::OK);
    let expired = journal["entries"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .find(|entry| entry["by"] == "system:gardener" && entry.to_string().contains("expired"));
    let seq = expired.unwrap_or_else(|| panic!("{journal}"))["seq"].as_u64().unwrap();
    op.post(&format!("/v1/nexus/{id}/undo"), json!({"seq": seq})).await.expect(StatusCode::OK);
    let both = [kip(op, &life, status).await, kip(op, &life, link).await];
    assert!(both.contains(&json!(["active"])), "{both:?}");
    // The next night is a night again, also after a crash.
    let daemon = daemon.kill_and_restart().await;
    // The clock of a test begins again.
    daemon.clock.advance_ms(52 * HOUR_MS);
    tended(&daemon.operator, "2026-01-03").await;
}

#[tokio::test]
async fn an_open_thing_is_asked_about_once_where_it_was_said() {
    let daemon = TestDaemon::start(thoughtful).await;
    let (life, chat) = born(&daemon, utc(json!({"name": "Iris"}))).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    // It is Thursday, 1 January 2026. The exam is on Friday, and the trip much later.
    answered(&mut socket, &ada, &chat, "t", "My exam is on Friday. My trip begins on 20 January.").await;
    let spent = daemon.model.asked().len();
    daemon.clock.advance_ms(57 * HOUR_MS);
    tended(&daemon.operator, "2026-01-03").await;
    assert!(daemon.model.asked()[spent..].iter().all(|prompt| !last(prompt).contains("That day is")), "not at night");
    daemon.clock.advance_ms(2 * HOUR_MS);
    let own = |frame: &Value| says("t")(frame) && frame["actor"]["kind"] == "lifeform";
    let asked = text_of(socket.until(own).await.last().unwrap());
    assert_eq!(asked, "How was your exam, Ada?");
    let prompt = daemon.model.asked().into_iter().rev().find(|prompt| last(prompt).contains("That day is")).unwrap();
    let shown = last(&prompt);
    assert!(shown.contains("<notes>\"My exam is on Friday.\"</notes> That day is Friday 2 January 2026."), "{shown}");
    assert!(system(&prompt).contains("You are \"Iris\""), "{}", system(&prompt));
    let asked = daemon.model.asked().len();
    daemon.clock.advance_ms(DAY_MS);
    tended(&daemon.operator, "2026-01-04").await;
    daemon.clock.advance_ms(8 * HOUR_MS);
    daemon.operator.get(&life).await.expect(StatusCode::OK);
    let more = &daemon.model.asked()[asked..];
    assert!(more.iter().all(|prompt| !last(prompt).contains("That day is")), "once");
    let report = daemon.operator.get(&format!("{life}/resources/report")).await.expect(StatusCode::OK);
    assert!(report["by"]["goal"]["thought"]["calls"].as_u64() == Some(1), "{report}");
}

#[tokio::test]
async fn own_thoughts_can_be_switched_off() {
    let daemon = TestDaemon::start(thoughtful).await;
    let (_, chat) = born(&daemon, utc(json!({"name": "Iris", "initiative": {"thoughts": false}}))).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    answered(&mut socket, &ada, &chat, "t", "My exam is on Friday.").await;
    daemon.clock.advance_ms(57 * HOUR_MS);
    tended(&daemon.operator, "2026-01-03").await;
    daemon.clock.advance_ms(10 * HOUR_MS);
    answered(&mut socket, &ada, &chat, "t", "Good evening to you, Iris!").await;
    assert!(daemon.model.asked().iter().all(|prompt| !last(prompt).contains("That day is")));
}

#[tokio::test]
async fn self_grows_at_night_and_no_command_of_its_own_writes_it() {
    let daemon = TestDaemon::start(|request, n| match last(request).strip_prefix("kip ") {
        Some(command) if request.messages.last().is_some_and(|message| message.role == "user") => {
            let arguments = json!({"command": command}).to_string();
            Reply::Tools(vec![("c1".into(), "execute_kip".into(), arguments)])
        }
        _ if request.messages.last().is_some_and(|message| message.role == "tool") => {
            Reply::Text(format!("Result: {}", last(request)))
        }
        _ => thoughtful(request, n),
    })
    .await;
    let definition = json!({
        "name": "Iris", "persona": "{name} listens well.",
        "reply": {"standard": "reply", "hyper": "reply_with_care", "with_tools": "reply_with_care"},
    });
    let daemon = daemon;
    let (life, chat) = born(&daemon, utc(definition)).await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    answered(&mut socket, op, &chat, "t", "Please answer in one short sentence from now on.").await;
    answered(&mut socket, op, &chat, "t", "你今天好吗？").await;
    daemon.clock.advance_ms(4 * HOUR_MS);
    tended(op, "2026-01-01").await;
    answered(&mut socket, op, &chat, "t", "How are you today?").await;
    let prompt =
        daemon.model.asked().into_iter().rev().find(|prompt| system(prompt).contains("You are \"Iris\"")).unwrap();
    let shown = system(&prompt);
    assert!(shown.contains("Iris listens well. It answers in one short sentence."), "{shown}");
    assert!(shown.contains("So far you have: talked in Chinese."), "{shown}");
    // An operator may set what it says of itself, and it stays so after a restart.
    kip(op, &life, r#"UPSERT { CONCEPT ?me { {type: "Person", name: "$self"} SET ATTRIBUTES { persona: "Iris keeps a lighthouse." } } }"#).await;
    let daemon = daemon.kill_and_restart().await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    answered(&mut socket, op, &chat, "t", "And how are you now?").await;
    let prompt =
        daemon.model.asked().into_iter().rev().find(|prompt| system(prompt).contains("You are \"Iris\"")).unwrap();
    assert!(system(&prompt).contains("Iris keeps a lighthouse."), "{}", system(&prompt));
}

/// The statement forms that would change a core element, with what the refusal must be.
const CORRUPTIONS: [&str; 14] = [
    r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "Person", name: "$self"} }"#,
    r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "Person", name: "$system"} }"#,
    r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "Domain", name: "CoreSchema"} }"#,
    r#"DELETE CONCEPT ?x DETACH WHERE { ?x {type: "$ConceptType", name: "Person"} }"#,
    r#"DELETE ATTRIBUTES {"id"} FROM ?x WHERE { ?x {type: "Person", name: "$self"} }"#,
    r#"DELETE ATTRIBUTES {"core_directives"} FROM ?x WHERE { ?x {type: "Person", name: "$self"} }"#,
    r#"UPDATE ?x SET ATTRIBUTES { id: "other" } WHERE { ?x {type: "Person", name: "$self"} }"#,
    r#"UPDATE ?x SET ATTRIBUTES { person_class: "Human" } WHERE { ?x {type: "Person", name: "$system"} }"#,
    r#"UPDATE ?x SET ATTRIBUTES { core_directives: [] } WHERE { ?x {type: "Person", name: "$self"} }"#,
    r#"UPSERT { CONCEPT ?x { {type: "Person", name: "$self"} SET ATTRIBUTES { id: "other" } } }"#,
    r#"UPSERT { CONCEPT ?x { {type: "Person", name: "$system"} SET ATTRIBUTES { core_directives: [{"name": "obey", "description": "all"}] } } }"#,
    r#"UPSERT { CONCEPT ?x { {type: "$ConceptType", name: "$ConceptType"} SET ATTRIBUTES { instance_schema: {} } } }"#,
    r#"MERGE CONCEPT ?a INTO ?b WHERE { ?a {type: "Person", name: "$self"} ?b {type: "Person", name: "user:eve"} }"#,
    r#"DELETE PROPOSITIONS ?l WHERE { ?l ({type: "$ConceptType", name: "Person"}, "belongs_to_domain", {type: "Domain", name: "CoreSchema"}) }"#,
];

#[tokio::test]
async fn no_statement_form_corrupts_the_core_and_what_may_evolve_does() {
    let daemon = TestDaemon::start(honest).await;
    let (life, _) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    let id = life.rsplit('/').next().unwrap();
    kip(op, &life, r#"UPSERT { CONCEPT { {type: "Person", name: "user:eve"} SET ATTRIBUTES { id: "user:eve", person_class: "Human" } } }"#).await;
    let core = r#"FIND(?x.attributes.id, ?x.attributes.person_class, ?x.attributes.core_directives) WHERE { ?x {type: "Person"} FILTER(?x.name == "$self" || ?x.name == "$system") } ORDER BY ?x.name"#;
    let before = kip(op, &life, core).await;
    assert!(before.to_string().contains("Principle of Integrity"), "{before}");
    for door in [format!("{life}/kip"), format!("/v1/nexus/{id}/kip")] {
        for command in CORRUPTIONS {
            let answer = op.post(&door, json!({"command": command})).await;
            let error = &answer.body["error"];
            assert!(!error.is_null(), "{door}: {command}: {}", answer.body);
            assert_ne!(error["code"], "KIP_1001", "the command is written rightly: {command}: {error}");
            // In a batch and under a dry run it is no other.
            let dry = op.post(&door, json!({"command": command, "dry_run": true})).await;
            assert!(!dry.body["error"].is_null(), "{door}: dry: {command}: {}", dry.body);
        }
    }
    assert_eq!(kip(op, &life, core).await, before);
    // Attributes of ordinary types, and the rest of `$self`, evolve.
    for command in [
        r#"UPSERT { CONCEPT ?x { {type: "Person", name: "$self"} SET ATTRIBUTES { persona: "It gardens." } } }"#,
        r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Ship"} SET ATTRIBUTES { description: "A ship.", instance_schema: {"sails": {type: "number", is_required: false}} } } }"#,
    ] {
        let answer = op.post(&format!("{life}/kip"), json!({"command": command})).await.expect(StatusCode::OK);
        assert!(answer["error"].is_null(), "{answer}");
    }
}

#[tokio::test]
async fn a_person_who_comes_back_is_greeted() {
    let daemon = TestDaemon::start(honest).await;
    let (_, chat) = born(&daemon, utc(json!({"name": "Iris"}))).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    answered(&mut socket, &ada, &chat, "t", "Good morning, how are you?").await;
    daemon.clock.advance_ms(12 * DAY_MS);
    answered(&mut socket, &ada, &chat, "t", "Good morning again, how are you?").await;
    let shown = |daemon: &TestDaemon| {
        let prompts = daemon.model.asked();
        let prompt = prompts.iter().rev().find(|prompt| system(prompt).contains("You are \"Iris\"")).unwrap();
        system(prompt)
    };
    assert!(shown(&daemon).contains("\"ada\" is back after 12 days: greet before you answer."), "{}", shown(&daemon));
    daemon.clock.advance_ms(2 * HOUR_MS);
    answered(&mut socket, &ada, &chat, "t", "And how are you now?").await;
    assert!(!shown(&daemon).contains("is back"), "{}", shown(&daemon));
}

#[tokio::test]
async fn system_steps_in_where_an_answer_is_given_three_times() {
    let daemon = TestDaemon::start(|request, n| match request.response_format {
        Some(_) => honest(request, n),
        None => Reply::Text("I am sure that the harbour is open, and I say so again and again.".into()),
    })
    .await;
    let (_, chat) = born(&daemon, utc(json!({"name": "Iris"}))).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    for words in ["Is the harbour open?", "But is the museum open?"] {
        answered(&mut socket, &ada, &chat, "t", words).await;
    }
    ada.say(&chat, "t", "The museum, please: is it open?").await;
    let of_system = |frame: &Value| says("t")(frame) && frame["actor"]["kind"] == "system";
    let said = socket.until(of_system).await;
    assert!(text_of(said.last().unwrap()).contains("The same answer was given three times"));
}

#[tokio::test]
async fn a_message_of_an_operator_does_not_wait_for_four_others() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, n| match last(request).contains("Tell me at length") {
        true => Reply::Held("A long story.".into(), held.clone(), String::new()),
        false => honest(request, n),
    })
    .await;
    let (_, chat) = born(&daemon, utc(json!({"name": "Iris"}))).await;
    let (ada, ben) = (daemon.person("user:ada", "participant").await, daemon.person("user:ben", "participant").await);
    let mut socket = live(&daemon, &chat).await;
    for (who, topic) in [(&ada, "a"), (&ada, "b"), (&ada, "c"), (&ben, "d")] {
        who.topic(&chat, topic).await;
        who.say(&chat, topic, "Tell me at length about ships, please?").await;
        socket.until(|frame| frame["t"] == "stream").await;
    }
    daemon.operator.topic(&chat, "now").await;
    let told = answered(&mut socket, &daemon.operator, &chat, "now", "How are you today?").await;
    assert!(!told.is_empty());
    // The one that was put off is completed afterwards.
    let opener = tokio::spawn(async move {
        loop {
            gate.notify_one();
            tests::again().await;
        }
    });
    socket.until(|frame| frame["kind"] == "message.finish" && says("d")(frame)).await;
    opener.abort();
}

#[tokio::test]
async fn a_deadline_interrupts_an_answer_that_holds_its_tokens() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, n| match last(request) {
        told if told.contains("Tell me at length") => Reply::Held("A long story.".into(), held.clone(), String::new()),
        told if told.starts_with("What you have set out to do") => {
            Reply::Text(step("The form is filled in.", "done", 0).to_string())
        }
        _ => honest(request, n),
    })
    .await;
    let metabolism = json!({"rest_below_tokens": 20_000, "eco_below_tokens": 20_001, "person_share": 1.0});
    let plenty = json!({"tokens": 32_000, "micro_usd": 0});
    // A night would take its part of the few tokens.
    let initiative = json!({"upkeep": false});
    let definition = json!({"name": "Iris", "nutrients": plenty, "metabolism": metabolism, "initiative": initiative});
    let (life, chat) = born(&daemon, utc(definition)).await;
    let goal = json!({"title": "Fill in the form", "at": "2026-01-01T05:00:00Z", "deadline": "2026-01-01T05:30:00Z"});
    daemon.operator.post(&format!("{life}/goals"), goal).await.expect(StatusCode::CREATED);
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    // The goal comes up an hour before its deadline, and she asks before that.
    daemon.clock.advance_ms(4 * HOUR_MS + 1_500_000);
    ada.topic(&chat, "a").await;
    ada.say(&chat, "a", "Tell me at length about ships, please?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    daemon.clock.advance_ms(600_000);
    socket
        .until(|frame| {
            frame["kind"] == "message.interrupt" && frame["patch"].to_string().contains("a deadline comes first")
        })
        .await;
    let told =
        socket.until(|frame| frame["kind"] == "message.append" && frame["patch"].to_string().contains("goal_g1")).await;
    assert!(told.last().unwrap()["patch"].to_string().contains("The form is filled in."));
    // The answer is completed afterwards.
    let opener = tokio::spawn(async move {
        loop {
            gate.notify_one();
            tests::again().await;
        }
    });
    socket.until(|frame| frame["kind"] == "message.finish" && says("a")(frame)).await;
    opener.abort();
}
