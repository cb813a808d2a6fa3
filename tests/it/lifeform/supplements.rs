//! Supplements: what a lifeform adds unasked to an answer that it gave (MISSION L8).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, text_of};

use super::goals::{born, live, says};

/// The question about earlier answers, if a request is one.
fn looked(request: &ChatRequest) -> Option<String> {
    let last = request.messages.last()?.content.clone()?;
    (last.starts_with("New:\n<notes>") && last.contains("Earlier:\n1. ")).then_some(last)
}

/// A model that knows nothing, and adds what is new to the first question that it is shown.
fn adding(request: &ChatRequest, _: usize) -> Reply {
    let whole: String = request.messages.iter().filter_map(|message| message.content.clone()).collect();
    match looked(request) {
        Some(text) => {
            let new = text.lines().nth(2).unwrap_or_default();
            Reply::Text(json!({"number": 1, "say": format!("I know more now. {new}")}).to_string())
        }
        None if whole.starts_with("Find out what is asked") => {
            Reply::Text("The slipway at Fedderwardersiel opens at seven.".into())
        }
        None if whole.contains("What you have set out to do") => {
            let research: &[&str] =
                if whole.contains("opens at seven") { &[] } else { &["When does the slipway open?"] };
            let status = if research.is_empty() { "done" } else { "active" };
            let plan = json!({"steps": [], "say": "", "status": status, "again_in_minutes": 0, "subgoals": [], "research": research});
            Reply::Text(plan.to_string())
        }
        None if request.response_format.is_some() => {
            Reply::Text(json!({"facts": [], "promises": [], "contradicted": [], "correction": ""}).to_string())
        }
        None => Reply::Text("That I do not know.".into()),
    }
}

pub(super) async fn answered(socket: &mut Socket, who: &Client, chat: &str, topic: &'static str, words: &str) -> Value {
    who.say(chat, topic, words).await;
    let done = |frame: &Value| frame["kind"] == "message.finish" && says(topic)(frame);
    socket.until(done).await.last().unwrap().clone()
}

/// Returns the supplements of a topic, each with the text that it supplements.
async fn supplements(daemon: &TestDaemon, chat: &str, topic: &str) -> Vec<(String, String)> {
    let said = daemon.operator.get(&format!("{chat}/topics/{topic}/messages")).await.body["messages"].clone();
    let said = said.as_array().unwrap().clone();
    let text = |id: &Value| said.iter().find(|one| one["id"] == *id).map(|one| one["content"].to_string());
    let more = said.iter().filter(|one| one["supplements"].is_string());
    more.map(|one| (one["content"].as_str().unwrap().to_owned(), text(&one["supplements"]).unwrap())).collect()
}

#[tokio::test]
async fn what_is_said_elsewhere_supplements_an_earlier_answer() {
    let daemon = TestDaemon::builder().calls_tools().start(adding).await;
    let (_, chat) = born(&daemon, json!({"name": "Iris", "trusts": ["user:ada", "user:ben"]})).await;
    let (ada, ben) = (daemon.person("user:ada", "participant").await, daemon.person("user:ben", "participant").await);
    let mut socket = live(&daemon, &chat).await;
    for topic in ["own", "shared"] {
        ada.topic(&chat, topic).await;
    }
    ben.topic(&chat, "foreign").await;
    answered(&mut socket, &ada, &chat, "own", "Where is the berth list kept?").await;
    answered(&mut socket, &ada, &chat, "shared", "Good morning!").await;
    // Where she did not hear it, nothing is passed on.
    answered(&mut socket, &ben, &chat, "foreign", "The berth list is kept under the stairs.").await;
    answered(&mut socket, &ben, &chat, "foreign", "Thanks!").await;
    assert_eq!(supplements(&daemon, &chat, "own").await, []);
    assert!(!daemon.model.asked().iter().any(|request| looked(request).is_some()));
    ben.say(&chat, "shared", "The berth list is kept in the harbour office.").await;
    let more = |frame: &Value| says("own")(frame) && text_of(frame).starts_with("I know more now.");
    socket.until(more).await;
    let added = supplements(&daemon, &chat, "own").await;
    assert_eq!(added.len(), 1);
    assert!(added[0].0.contains("said: The berth list is kept in the harbour office."), "{added:?}");
    assert!(added[0].1.contains("do not know"), "{added:?}");
    let prompt = daemon.model.asked().iter().find_map(looked).unwrap();
    assert!(prompt.contains("asked: <messages>Where is the berth list kept?</messages>"), "{prompt}");
    // An answer is supplemented once, and who says the thing itself needs no supplement.
    answered(&mut socket, &ben, &chat, "shared", "The berth list is kept in a blue folder.").await;
    answered(&mut socket, &ada, &chat, "own", "Where are my spare keys?").await;
    answered(&mut socket, &ada, &chat, "shared", "My spare keys hang on the hook.").await;
    // What follows in the same topic is answered after the look back.
    answered(&mut socket, &ada, &chat, "shared", "Thanks!").await;
    let looks = daemon.model.asked().iter().filter(|request| looked(request).is_some()).count();
    assert_eq!(looks, 1);
    assert_eq!(supplements(&daemon, &chat, "own").await.len(), 1);
}

#[tokio::test]
async fn what_research_finds_supplements_an_earlier_answer() {
    let daemon = TestDaemon::builder().calls_tools().start(adding).await;
    let (life, chat) = born(&daemon, json!({"name": "Iris", "trusts": ["user:ada"]})).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "t").await;
    answered(&mut socket, &ada, &chat, "t", "When does the slipway open?").await;
    ada.post(&format!("{life}/goals"), json!({"title": "Plan the launch of the boat"})).await;
    let more = |frame: &Value| says("t")(frame) && text_of(frame).starts_with("I know more now.");
    socket.until(more).await;
    let added = supplements(&daemon, &chat, "t").await;
    assert!(added[0].0.contains("opens at seven"), "{added:?}");
    let prompt = daemon.model.asked().iter().find_map(looked).unwrap();
    assert!(prompt.contains("You found out: When does the slipway open?"), "{prompt}");
}

#[tokio::test]
async fn a_definition_without_own_thoughts_adds_nothing() {
    let daemon = TestDaemon::builder().calls_tools().start(adding).await;
    let definition = json!({"name": "Iris", "trusts": ["user:ada", "user:ben"], "initiative": {"thoughts": false}});
    let (_, chat) = born(&daemon, definition).await;
    let (ada, ben) = (daemon.person("user:ada", "participant").await, daemon.person("user:ben", "participant").await);
    let mut socket = live(&daemon, &chat).await;
    for topic in ["own", "shared"] {
        ada.topic(&chat, topic).await;
        answered(&mut socket, &ada, &chat, topic, "Where is the berth list kept?").await;
    }
    answered(&mut socket, &ben, &chat, "shared", "The berth list is kept in the harbour office.").await;
    // What follows in the same topic is answered after the look back.
    answered(&mut socket, &ben, &chat, "shared", "Thanks!").await;
    assert!(!daemon.model.asked().iter().any(|request| looked(request).is_some()));
    assert_eq!(supplements(&daemon, &chat, "own").await, []);
}
