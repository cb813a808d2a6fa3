//! Outside tools that a lifeform was given: used in talk, asked about, approved, listed and taken back (MISSION L2, N4).

use neurons::llm::ChatRequest;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, text_of};

use super::goals::{born, live, says};
use super::mind::obedient;
use crate::neurons::tools::Outside;

/// A world with a lifeform and two named tools: one looks places up, one books.
struct World {
    daemon: TestDaemon,
    outside: Outside,
    life: String,
    chat: String,
    socket: Socket,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(definition: Value) -> Self {
        let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
        let daemon = TestDaemon::builder().tools(outside.reach(&folder)).calls_tools().start(obedient).await;
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

    fn operator(&self) -> Client {
        Client::new(self.daemon.operator.base.clone(), self.daemon.operator.token.clone())
    }

    /// Says something and returns the next message in the topic.
    async fn answered(&mut self, who: &Client, words: &str) -> String {
        who.say(&self.chat, "t", words).await;
        self.next().await
    }

    async fn next(&mut self) -> String {
        let lifeforms = |frame: &Value| says("t")(frame) && frame["actor"]["kind"] == "lifeform";
        text_of(self.socket.until(lifeforms).await.last().unwrap())
    }

    async fn give(&self, tools: Value) -> tests::Answer {
        self.daemon.operator.put(&format!("{}/tools", self.life), json!({"tools": tools})).await
    }

    /// The names of the tools of the last request that had any.
    fn offered(&self) -> Vec<String> {
        let asked = self.daemon.model.asked();
        let last: Option<&ChatRequest> = asked.iter().rev().find(|request| !request.tools.is_empty());
        let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
        last.map(|request| request.tools.iter().map(name).collect()).unwrap_or_default()
    }

    async fn approvals(&self, who: &Client) -> Vec<Value> {
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
    ben.say(&world.chat, "t", "Yes.").await;
    // The question is not the last message any more, so only a reply to it decides.
    ada.say(&world.chat, "t", "Yes.").await;
    let messages = ada.get(&format!("{}/topics/t/messages", world.chat)).await.expect(StatusCode::OK);
    let question =
        messages["messages"].as_array().unwrap().iter().find(|it| it["content"].to_string().contains("Yes or no"));
    let reply = json!({"content": "yes", "reply_to": question.unwrap()["id"]});
    ben.post(&format!("{}/topics/t/messages", world.chat), reply.clone()).await.expect(StatusCode::CREATED);
    assert!(world.outside.seen().is_empty());
    ada.post(&format!("{}/topics/t/messages", world.chat), reply).await.expect(StatusCode::CREATED);
    assert!(world.next().await.contains("here is /bookings"));
    assert_eq!(world.outside.seen().len(), 1);
}

#[tokio::test]
async fn what_a_lifeform_is_given_is_checked() {
    let world = World::new(json!({"name": "Iris"})).await;
    let laxer = json!({"use": "book", "effect": "read"});
    for (tools, part) in [
        (json!([{"use": "fly"}]), "there is no named tool"),
        (json!([{"use": "book"}, {"use": "book"}]), "stands there twice"),
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
    assert!(shown["tools"][1]["now"]["error"].to_string().contains("there is no named tool"), "{shown}");
    // An archive grants no tools.
    let archive = op.get_text(&format!("{}/archive", world.life)).await;
    let there = TestDaemon::start(obedient).await;
    let taken = there.operator.text("/v1/lifeforms/import", archive).await.expect(StatusCode::CREATED);
    assert_eq!(taken["dropped"], json!(["tool places", "tool book"]));
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
