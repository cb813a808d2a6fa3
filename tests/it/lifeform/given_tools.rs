//! Outside tools that a lifeform was given: used in talk, asked about, approved, listed and taken back (MISSION L2, N4).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, text_of};

use super::goals::{born, live, says};
use super::mind::obedient;
use crate::neurons::tools::Outside;

/// A world with a lifeform and two named tools: one looks places up, one books.
pub(super) struct World {
    pub(super) daemon: TestDaemon,
    pub(super) outside: Outside,
    pub(super) life: String,
    pub(super) chat: String,
    pub(super) socket: Socket,
    pub(super) _folder: tempfile::TempDir,
}

impl World {
    pub(super) async fn new(definition: Value) -> Self {
        Self::with(definition, obedient).await
    }

    pub(super) async fn with(
        definition: Value,
        script: impl Fn(&ChatRequest, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
        let daemon = TestDaemon::builder().tools(outside.reach(&folder)).calls_tools().start(script).await;
        for (id, method, path) in [("places", "GET", "/places"), ("book", "POST", "/bookings")] {
            let url = format!("http://{}{path}", outside.address());
            let tool = json!({"description": format!("Is {id}."), "run": {"http": {"method": method, "url": url}}});
            daemon.operator.put(&format!("/v1/tools/{id}"), tool).await.expect(StatusCode::CREATED);
        }
        let (life, chat) = born(&daemon, definition).await;
        let socket = live(&daemon, &chat).await;
        daemon.operator.topic(&chat, "t").await;
        Self { daemon, outside, life, chat, socket, _folder: folder }
    }

    pub(super) fn operator(&self) -> Client {
        Client::new(self.daemon.operator.base.clone(), self.daemon.operator.token.clone())
    }

    /// Says something and returns the next message in the topic.
    pub(super) async fn answered(&mut self, who: &Client, words: &str) -> String {
        who.say(&self.chat, "t", words).await;
        self.next().await
    }

    pub(super) async fn next(&mut self) -> String {
        let lifeforms = |frame: &Value| says("t")(frame) && frame["actor"]["kind"] == "lifeform";
        text_of(self.socket.until(lifeforms).await.last().unwrap())
    }

    pub(super) async fn give(&self, tools: Value) -> tests::Answer {
        self.daemon.operator.put(&format!("{}/tools", self.life), json!({"tools": tools})).await
    }

    /// The names of the tools of the last request that had any.
    pub(super) fn offered(&self) -> Vec<String> {
        let asked = self.daemon.model.asked();
        let last: Option<&ChatRequest> = asked.iter().rev().find(|request| !request.tools.is_empty());
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        last.map(|request| request.tools.iter().map(name).collect()).unwrap_or_default()
    }

    pub(super) async fn approvals(&self, who: &Client) -> Vec<Value> {
        let page = who.get("/v1/approvals").await.expect(StatusCode::OK);
        page["approvals"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn a_lifeform_reads_and_writes_with_the_tools_it_was_given() {
    let mut world = World::new(json!({"name": "Iris"})).await;
    let op = world.operator();
    assert!(world.answered(&op, "places {}?").await.contains("there is no tool places"));
    let shown = world.give(json!([{"use": "places"}, {"use": "book"}])).await.expect(StatusCode::OK);
    assert_eq!(shown["tools"][1]["now"]["tools"][0]["effect"], "write");
    assert!(world.answered(&op, "places {}?").await.contains("here is /places"));
    assert!(world.offered().ends_with(&["places".into(), "book".into()]), "{:?}", world.offered());

    // A call that writes is asked about, with exactly what is sent; nothing is sent before.
    let question = world.answered(&op, r#"book {"slot": "B4"}?"#).await;
    assert!(question.contains("Yes or no") && question.contains(r#"`book {"slot":"B4"}`"#), "{question}");
    assert!(!question.contains("Not in your words"), "{question}");
    let described = world.daemon.model.asked().into_iter().rev().find(|request| !request.tools.is_empty()).unwrap();
    let book = described.tools.iter().find(|tool| tool["function"]["name"] == "book").unwrap();
    assert_eq!(
        book["function"]["description"],
        "Is book. Call it when it is wanted: the person is asked before it is done."
    );
    let waiting = world.approvals(&op).await;
    assert_eq!(
        (&waiting[0]["calls"][0]["tool"], &waiting[0]["calls"][0]["arguments"]),
        (&json!("book"), &json!({"slot": "B4"}))
    );
    assert_eq!(world.outside.seen().len(), 1);
    assert!(world.answered(&op, "Yes.").await.contains("here is /bookings"));
    let seen = world.outside.seen();
    assert_eq!((seen.len(), &seen[1].body), (2, &json!({"slot": "B4"})));
    assert!(world.approvals(&op).await.is_empty());
    let effects = op.get(&format!("{}/effects", world.life)).await.expect(StatusCode::OK);
    let effect = &effects["effects"][0];
    assert_eq!(
        (&effect["tool"], &effect["state"], &effect["class"]),
        (&json!("book"), &json!("done"), &json!("write"))
    );
    assert_eq!(effect["id"], seen[1].header("idempotency-key"));
    assert_eq!(effect["arguments"], r#"{"slot":"B4"}"#);
    let none = op.get(&format!("{}/effects?state=unknown", world.life)).await.expect(StatusCode::OK);
    assert_eq!(none["effects"], json!([]));

    // Refused in words.
    assert!(world.answered(&op, r#"book {"slot": "B5"}?"#).await.contains("Yes or no"));
    let refused = world.answered(&op, "no").await;
    assert!(refused.contains("The tool answered") && !refused.contains("here is"), "{refused}");
    // Approved over the API, once.
    assert!(world.answered(&op, r#"book {"slot": "B6"}?"#).await.contains("Yes or no"));
    let id = world.approvals(&op).await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/approvals/{id}");
    op.post(&path, json!({"decision": "done"})).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    op.post(&path, json!({"decision": "approve"})).await.expect(StatusCode::OK);
    assert!(world.next().await.contains("here is /bookings"));
    op.post(&path, json!({"decision": "approve"})).await.expect(StatusCode::OK);
    let other = op.post(&path, json!({"decision": "refuse"})).await;
    assert!(other.status.is_client_error(), "{}", other.body);
    assert_eq!(world.outside.seen().len(), 3);

    // Taken back: the next answer does not have it.
    world.give(json!([{"use": "places"}])).await.expect(StatusCode::OK);
    assert!(world.answered(&op, r#"book {"slot": "B7"}?"#).await.contains("there is no tool book"));
    assert_eq!(world.outside.seen().len(), 3);
}

#[tokio::test]
async fn the_asker_approves_if_it_is_trusted_and_nobody_else_does() {
    let trusts = json!({"name": "Iris", "trusts": ["user:operator", "user:ada"], "tools": [{"use": "book"}]});
    let refused = TestDaemon::start(obedient).await.operator.post("/v1/lifeforms", json!({"definition": trusts})).await;
    assert!(refused.body.to_string().contains("there is no named tool"), "{}", refused.body);
    let mut world = World::new(trusts).await;
    let (ada, ben) =
        (world.daemon.person("user:ada", "participant").await, world.daemon.person("user:ben", "participant").await);
    // Only ada has spoken here.
    let question = world.answered(&ada, r#"book {"slot": "A1"}?"#).await;
    assert!(question.contains("Yes or no"), "{question}");
    assert!(world.approvals(&ben).await.is_empty());
    let id = world.approvals(&ada).await[0]["id"].as_str().unwrap().to_owned();
    for client in [&ben, &world.daemon.person("lifeform:lf_robot", "lifeform").await] {
        client.post(&format!("/v1/approvals/{id}"), json!({"decision": "approve"})).await.expect(StatusCode::NOT_FOUND);
    }
    // Ben's word decides nothing: what he says is read before what ada says then.
    ben.say(&world.chat, "t", "Yes.").await;
    let messages = ada.get(&format!("{}/topics/t/messages", world.chat)).await.expect(StatusCode::OK);
    let messages = messages["messages"].as_array().unwrap().clone();
    let question = messages.iter().find(|it| it["content"].to_string().contains("Yes or no")).unwrap();
    let reply = json!({"content": "yes", "reply_to": question["id"]});
    ben.post(&format!("{}/topics/t/messages", world.chat), reply.clone()).await.expect(StatusCode::CREATED);
    world.daemon.person("user:eve", "participant").await.say(&world.chat, "t", "no").await;
    ada.post(&format!("{}/topics/t/messages", world.chat), reply).await.expect(StatusCode::CREATED);
    assert!(world.next().await.contains("here is /bookings"), "neither eve's no nor ben's yes counted");
    assert_eq!(world.outside.seen().len(), 1);
}

#[tokio::test]
async fn what_a_lifeform_is_given_is_checked() {
    let world = World::new(json!({"name": "Iris"})).await;
    let laxer = json!({"use": "book", "effect": "read"});
    for (tools, part) in [
        (json!([{"use": "fly"}]), "there is no named tool"),
        (json!([{"use": "book"}, {"use": "book"}]), "duplicate"),
        (json!([laxer]), "only be raised"),
        (json!([{"use": "book", "approval": "never"}]), "only be stricter"),
        (json!([{"use": "book", "limits": {"per_day": 0}}]), "per_day"),
        (json!([{"use": "book", "colour": 1}]), "colour"),
        (json!([{"tool": "book"}]), "use"),
    ] {
        let refused = world.give(tools.clone()).await;
        assert!(refused.body.to_string().contains(part), "{tools}: {}", refused.body);
        refused.expect(StatusCode::UNPROCESSABLE_ENTITY);
    }
    let stricter = json!([{"use": "places", "approval": "always", "effect": "irreversible"}, {"use": "book"}]);
    let shown = world.give(stricter).await.expect(StatusCode::OK);
    assert_eq!(shown["tools"][0]["now"]["tools"][0]["effect"], "irreversible");
    // A tool in use is removed by force; the lifeform goes on without it.
    let op = &world.daemon.operator;
    op.delete("/v1/tools/book").await.refused(409, "in_use");
    op.delete("/v1/tools/book?force=true").await.expect(StatusCode::NO_CONTENT);
    let shown = op.get(&format!("{}/tools", world.life)).await.expect(StatusCode::OK);
    assert_eq!(shown["tools"].as_array().map(Vec::len), Some(1), "a new tool of that id is not its: {shown}");
    // An archive grants no tools.
    let archive = op.get_text(&format!("{}/archive", world.life)).await;
    let there = TestDaemon::start(obedient).await;
    let taken = there.operator.text("/v1/lifeforms/import", archive).await.expect(StatusCode::CREATED);
    assert_eq!(taken["dropped"], json!(["tool places"]));
}

#[tokio::test]
async fn what_cannot_be_undone_is_asked_about_each_time() {
    let mut world = World::new(json!({"name": "Iris"})).await;
    let op = world.operator();
    let url = format!("http://{}/payments", world.outside.address());
    let pay = json!({"effect": "irreversible", "approval": "never", "run": {"http": {"method": "POST", "url": url}}});
    op.put("/v1/tools/pay", pay.clone()).await.expect(StatusCode::CREATED);
    let mut free = pay.clone();
    free["effect"] = json!("write");
    op.put("/v1/tools/note", free).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "pay"}, {"use": "note"}])).await.expect(StatusCode::OK);
    assert!(world.answered(&op, r#"note {"n": 1}?"#).await.contains("here is /payments"), "its operator lets it");
    assert!(world.answered(&op, r#"pay {"n": 1}?"#).await.contains("Yes or no"));
    assert!(world.answered(&op, "ok").await.contains("here is /payments"));
    // A change between the question and the answer: what was asked about is not what would be sent.
    assert!(world.answered(&op, r#"pay {"n": 2}?"#).await.contains("Yes or no"));
    let mut elsewhere = pay;
    elsewhere["description"] = json!("Pays, too.");
    op.put("/v1/tools/pay", elsewhere).await.expect(StatusCode::OK);
    let refused = world.answered(&op, "ok").await;
    assert!(refused.contains("was changed"), "{refused}");
    assert_eq!(world.outside.seen().len(), 2);
}

#[tokio::test]
async fn other_words_of_the_asker_withdraw_the_question() {
    let mut world = World::new(json!({"name": "Iris", "tools": []})).await;
    let op = world.operator();
    world.give(json!([{"use": "book"}])).await.expect(StatusCode::OK);
    assert!(world.answered(&op, r#"book {"slot": "B4"}?"#).await.contains("Yes or no"));
    // What is wanted now is something else, so the first call is not made.
    let other = world.answered(&op, r#"book {"slot": "B5"}?"#).await;
    assert!(other.contains("Yes or no") && other.contains("B5"), "{other}");
    assert_eq!(world.approvals(&op).await.len(), 1);
    assert!(world.answered(&op, "Yes.").await.contains("here is /bookings"));
    let seen = world.outside.seen();
    assert_eq!((seen.len(), &seen[0].body), (1, &json!({"slot": "B5"})));
    // The question and the word are nothing to later answers.
    world.answered(&op, "Well done, Iris?").await;
    let last = world.daemon.model.asked().last().unwrap().clone();
    let said: Vec<String> = last.messages.iter().filter_map(|message| message.content.clone()).collect();
    assert!(!said.iter().any(|text| text.contains("Yes or no") || text.trim() == "Yes."), "{said:?}");
}

#[tokio::test]
async fn a_refusal_has_a_reason_and_a_waiting_topic_stops_no_other() {
    let mut world = World::new(json!({"name": "Iris"})).await;
    let op = world.operator();
    world.give(json!([{"use": "book"}])).await.expect(StatusCode::OK);
    for (n, topic) in ["a", "b", "c", "d"].into_iter().enumerate() {
        op.topic(&world.chat, topic).await;
        op.say(&world.chat, topic, &format!(r#"book {{"slot": "{n}"}}?"#)).await;
        while world.approvals(&op).await.len() <= n {
            tests::again().await;
        }
    }
    assert!(world.answered(&op, "Hello there, Iris?").await.contains("I see"), "four questions silence no fifth topic");
    let waiting = world.approvals(&op).await;
    assert!(waiting[0]["root"].as_str().unwrap().ends_with("/a"), "{}", waiting[0]);
    let id = waiting[0]["id"].as_str().unwrap();
    let body = json!({"decision": "refuse", "comment": "too dear"});
    op.post(&format!("/v1/approvals/{id}"), body).await.expect(StatusCode::OK);
    let told =
        text_of(world.socket.until(|frame| frame["patch"].to_string().contains("too dear")).await.last().unwrap());
    assert!(told.contains("too dear"), "{told}");
    op.post("/v1/approvals/none.w1", json!({"decision": "approve"})).await.refused(404, "approval_not_found");
    op.post(&format!("/v1/approvals/{}", id.replace(".w", ".w+")), json!({"decision": "approve"}))
        .await
        .refused(404, "approval_not_found");
    assert!(world.outside.seen().is_empty());
}

#[tokio::test]
async fn a_yes_to_one_call_does_not_say_that_another_was_not_done() {
    // One answer calls two tools of one host: the outcome of the first is unknown, the second is asked about.
    let script = |request: &ChatRequest, n: usize| {
        let is_first =
            request.messages.last().is_some_and(|last| last.content.as_deref().is_some_and(|it| it.contains("both")));
        match is_first {
            true => Reply::Tools(vec![
                ("c1".into(), "free".into(), r#"{"n": 1}"#.into()),
                ("c2".into(), "book".into(), r#"{"n": 2}"#.into()),
            ]),
            false => obedient(request, n),
        }
    };
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).calls_tools().start(script).await;
    for (id, path, approval) in [("free", "/broken", "never"), ("book", "/bookings", "on_write")] {
        let url = format!("http://{}{path}", outside.address());
        let tool = json!({"approval": approval, "run": {"http": {"method": "POST", "url": url}}});
        daemon.operator.put(&format!("/v1/tools/{id}"), tool).await.expect(StatusCode::CREATED);
    }
    let (_, chat) = born(&daemon, json!({"name": "Iris", "tools": [{"use": "free"}, {"use": "book"}]})).await;
    let mut socket = live(&daemon, &chat).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let mut said = async |words: &str, part: &'static str| {
        op.say(&chat, "t", words).await;
        let is_it = |frame: &Value| frame["actor"]["kind"] == "lifeform" && frame["patch"].to_string().contains(part);
        text_of(socket.until(is_it).await.last().unwrap())
    };
    let doubt = said("Do both?", "I do not know").await;
    assert!(doubt.contains("free") && !doubt.contains("book"), "{doubt}");
    // A bare yes says nothing about what nobody knows.
    said("Yes.", "I do not know").await;
    assert_eq!(outside.seen().len(), 1);
    // Then the second is asked about; it was never sent with the first.
    let question = said("leave it", "Yes or no").await;
    assert!(question.contains(r#"`book {"n": 2}`"#), "{question}");
    said("yes", "here is /bookings").await;
    let seen: Vec<String> = outside.seen().iter().map(|seen| seen.what.clone()).collect();
    assert_eq!(seen, ["POST /broken", "POST /bookings"]);
}

#[tokio::test]
async fn a_lesser_token_of_an_operator_decides_nothing_in_words() {
    let mut world = World::new(json!({"name": "Iris", "trusts": []})).await;
    let op = world.daemon.person("user:boss", "operator").await;
    world.give(json!([{"use": "book"}])).await.expect(StatusCode::OK);
    assert!(world.answered(&op, r#"book {"slot": "B4"}?"#).await.contains("Yes or no"));
    let bridge = world.daemon.person("user:boss", "participant").await;
    let hint = world.answered(&bridge, "Yes.").await;
    assert!(hint.contains("waits for an operator's approval"), "{hint}");
    let id = world.approvals(&op).await[0]["id"].as_str().unwrap().to_owned();
    bridge.post(&format!("/v1/approvals/{id}"), json!({"decision": "approve"})).await.expect(StatusCode::NOT_FOUND);
    op.post(&format!("/v1/approvals/{id}"), json!({"decision": "approve"})).await.expect(StatusCode::OK);
    assert!(world.next().await.contains("here is /bookings"));
    assert_eq!(world.outside.seen().len(), 1);
}

#[tokio::test]
async fn a_word_after_a_restart_is_taken_once() {
    let mut world = World::new(json!({"name": "Iris"})).await;
    let op = world.operator();
    world.give(json!([{"use": "book"}])).await.expect(StatusCode::OK);
    assert!(world.answered(&op, r#"book {"slot": "B4"}?"#).await.contains("Yes or no"));
    world.daemon = world.daemon.kill_and_restart().await;
    let op = world.operator();
    world.socket = live(&world.daemon, &world.chat).await;
    assert!(world.answered(&op, "Yes.").await.contains("here is /bookings"));
    // The word is read again after the next one, and is no request of its own.
    let asked = world.daemon.model.asked().len();
    world.daemon = world.daemon.kill_and_restart().await;
    let op = world.operator();
    world.socket = live(&world.daemon, &world.chat).await;
    assert!(world.answered(&op, "Are you there, Iris?").await.contains("I see"));
    assert_eq!(world.daemon.model.asked().len(), asked + 1);
    assert_eq!(world.outside.seen().len(), 1);
}

#[tokio::test]
async fn words_after_the_yes_do_not_break_off_the_call() {
    let mut world = World::new(json!({"name": "Iris"})).await;
    let op = world.operator();
    let url = format!("http://{}/never", world.outside.address());
    let slow = json!({"timeout_s": 1, "run": {"http": {"method": "POST", "url": url}}});
    op.put("/v1/tools/slow", slow).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "slow"}])).await.expect(StatusCode::OK);
    assert!(world.answered(&op, r#"slow {"n": 1}?"#).await.contains("Yes or no"));
    let asked = world.daemon.model.asked().len();
    op.say(&world.chat, "t", "Yes.").await;
    while world.outside.seen().is_empty() {
        tests::again().await;
    }
    let doubt = world.answered(&op, "Thanks, Iris!").await;
    assert!(doubt.contains("I do not know"), "{doubt}");
    assert_eq!(
        (world.daemon.model.asked().len(), world.outside.seen().len()),
        (asked, 1),
        "the call was not broken off"
    );
    // Other words do not take away the question that only a person can answer.
    op.say(&world.chat, "t", "What is the weather, Iris?").await;
    let id = world.approvals(&op).await[0]["id"].as_str().unwrap().to_owned();
    op.post(&format!("/v1/approvals/{id}"), json!({"decision": "done", "comment": "It is booked."}))
        .await
        .expect(StatusCode::OK);
    assert!(world.next().await.contains("It is booked."));
    assert_eq!(world.outside.seen().len(), 1);
}

#[tokio::test]
async fn words_approve_only_what_stands_in_the_question() {
    let mut world = World::new(json!({"name": "Iris"})).await;
    let op = world.operator();
    world.give(json!([{"use": "book"}])).await.expect(StatusCode::OK);
    let long = format!(r#"book {{"note": "{}", "pay_to": "eve"}}?"#, "x".repeat(3_000));
    let question = world.answered(&op, &long).await;
    assert!(question.contains("too long to show") && !question.contains("eve"), "{question}");
    let hint = world.answered(&op, "Yes.").await;
    assert!(hint.contains("waits for an operator's approval"), "{hint}");
    assert!(world.outside.seen().is_empty());
    assert!(world.answered(&op, "no").await.contains("The tool answered"), "refused without having been shown");
    // An operator's yes below the question of a stranger, which shows no arguments.
    let ada = world.daemon.person("user:ada", "participant").await;
    let asked = world.answered(&ada, r#"book {"slot": "B4"}?"#).await;
    assert!(asked.contains("waits for an operator's approval") && !asked.contains("B4"), "{asked}");
    assert!(world.answered(&op, "ok").await.contains("waits for an operator's approval"));
    assert!(world.outside.seen().is_empty());
}

#[tokio::test]
async fn a_question_names_the_arguments_that_the_person_did_not_say() {
    let script = |request: &ChatRequest, n: usize| {
        let (results, _) = results_and_note(request);
        let is_asked = request.messages.iter().any(|message| {
            message.role == "user" && message.content.as_deref().is_some_and(|said| said.contains("a place at"))
        });
        let call = |name: &str, arguments: Value| {
            Reply::Tools(vec![(format!("c{}", results.len()), name.into(), arguments.to_string())])
        };
        match (is_asked && request.tools.iter().any(|tool| tool["function"]["name"] == "places"), results.len()) {
            (false, _) => obedient(request, n),
            (true, 0) => call("places", json!({})),
            (true, 1) => call("book", json!({"slot": "/places", "port": "Bremen", "note": "See you"})),
            _ => Reply::Text(format!("Done: {}", results.last().unwrap())),
        }
    };
    let mut world = World::with(json!({"name": "Iris"}), script).await;
    let op = world.operator();
    world.give(json!([{"use": "places"}, {"use": "book"}])).await.expect(StatusCode::OK);
    let question = world.answered(&op, "Could you book me a place at Bremen?").await;
    assert!(question.ends_with("Not in your words: `note` (my own words), `slot` (from `places`)"), "{question}");
    let origins = world.approvals(&op).await[0]["calls"][0]["origins"].clone();
    assert_eq!(origins, json!({"/note": "made", "/port": "asked", "/slot": {"result": "places"}}));
    assert!(world.answered(&op, "Yes.").await.contains("here is /bookings"), "what is named beside it is not sent");
    assert_eq!(world.outside.seen()[1].body, json!({"slot": "/places", "port": "Bremen", "note": "See you"}));
}

/// The results of tools in a request, and the first note that it shows.
fn results_and_note(request: &ChatRequest) -> (Vec<String>, Option<String>) {
    let content = |message: &neurons::llm::ChatMessage| message.content.clone().unwrap_or_default();
    let results = request.messages.iter().filter(|message| message.role == "tool").map(content).collect();
    let system = request.messages.iter().map(content).collect::<String>();
    let note = system.split("<notes>\n- ").nth(1).and_then(|rest| rest.split(['(', '\n']).next()).map(str::to_owned);
    (results, note)
}

#[tokio::test]
async fn memory_does_not_leave_after_words_from_outside_were_read() {
    let script = |request: &ChatRequest, n: usize| {
        let (results, note) = results_and_note(request);
        let is_asked = request.messages.iter().any(|message| {
            message.role == "user"
                && message.content.as_deref().is_some_and(|said| said.contains("places to see a doctor"))
        });
        let call = |arguments: Value| {
            Reply::Tools(vec![(format!("c{}", results.len()), "places".into(), arguments.to_string())])
        };
        match (is_asked && request.tools.iter().any(|tool| tool["function"]["name"] == "places"), results.len()) {
            (false, _) => obedient(request, n),
            (true, 0) => call(json!({})),
            // It obeys a page that asks for what it knows.
            (true, 1) => call(json!({"q": note.expect("the note is shown")})),
            _ => Reply::Text(format!("Done: {}", results.last().unwrap())),
        }
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "places"}]}), script).await;
    let op = world.operator();
    // It is said elsewhere: what stands in the talk itself, its people know.
    op.topic(&world.chat, "elsewhere").await;
    op.say(&world.chat, "elsewhere", "My doctor is called Theodora Freudenberg.").await;
    let elsewhere = |frame: &Value| says("elsewhere")(frame) && frame["actor"]["kind"] == "lifeform";
    world.socket.until(elsewhere).await;
    let said = world.answered(&op, "What is my doctor called, and are there places to see a doctor?").await;
    assert!(said.contains("not called: it holds what people told you"), "{said}");
    assert_eq!(world.outside.seen().len(), 1, "the page was read, and told nothing");
}

#[tokio::test]
async fn an_answer_that_calls_more_and_more_is_told_to_make_a_goal() {
    let script = |request: &ChatRequest, n: usize| {
        let (results, _) = results_and_note(request);
        let asked = request
            .messages
            .iter()
            .any(|message| message.content.as_deref().is_some_and(|said| said.contains("all of them")));
        match (asked && !request.tools.is_empty(), results.last()) {
            (true, Some(last)) if last.contains("make a goal") => Reply::Text(last.clone()),
            (true, _) => Reply::Tools(vec![(
                format!("c{}", results.len()),
                "places".into(),
                json!({"n": results.len()}).to_string(),
            )]),
            _ => obedient(request, n),
        }
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "places"}]}), script).await;
    let op = world.operator();
    let said = world.answered(&op, "Please look at all of them.").await;
    assert!(said.contains("6 calls are enough for one answer"), "{said}");
    assert_eq!(world.outside.seen().len(), 6);
}
