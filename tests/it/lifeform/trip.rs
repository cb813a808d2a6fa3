//! Goals that are made in a talk: they ask and report there, and their parts know what they serve (MISSION L2).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use serde_json::{Value, json};
use tests::{TestDaemon, text_of};

use super::goals::{born, live, says};
use super::mind::obedient;

/// Returns a plan without steps, as a model that calls tools writes it.
fn step(say: &str, status: &str, again_in_minutes: u32) -> Value {
    json!({"steps": [], "say": say, "status": status, "again_in_minutes": again_in_minutes, "subgoals": []})
}

const TASK: &str = "What you have set out to do";

fn whole(request: &ChatRequest) -> String {
    request.messages.iter().filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
}

fn with(mut plan: Value, member: &str, value: Value) -> Reply {
    plan[member] = value;
    Reply::Text(plan.to_string())
}

const WEEK: [&str; 7] = ["Saturday", "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday"];

/// A strong model, played by rules that read only the prompt.
fn strong(request: &ChatRequest, n: usize) -> Reply {
    let (prompt, last) = (whole(request), request.messages.last().and_then(|last| last.content.clone()));
    let last = last.unwrap_or_default();
    let has = |text: &str| last.contains(text);
    match () {
        () if prompt.starts_with("Find out what is asked") => Reply::Text(match prompt.contains("hikes") {
            true => "The Levada do Caldeirão is open in December.".into(),
            false => "I'm sorry, but I can't assist with that.".into(),
        }),
        () if !has(TASK) && last.contains("plan my week") && request.response_format.is_none() => {
            let goal = json!({"action": "create", "title": "Plan Ada's week in Madeira", "details": last});
            Reply::Tools(vec![("c1".into(), "goal".into(), goal.to_string())])
        }
        () if !has(TASK) => match request.messages.last().is_some_and(|last| last.role == "tool") {
            true => Reply::Text("I have begun, and ask you here what I need.".into()),
            false => obedient(request, n),
        },
        () if has("<title>Choose hikes") => {
            assert!(has("<serves>Plan Ada's week in Madeira</serves>") && has("December 5"), "{last}");
            match prompt.contains("Caldeirão") {
                true => Reply::Text(step("Levada do Caldeirão on Monday.", "done", 0).to_string()),
                false => with(step("", "active", 0), "research", json!(["Which hikes are open in December?"])),
            }
        }
        () if has("<title>Find a bed") => match has("<nothing_found_about>") {
            true => Reply::Text(step("The Casa do Mar, 80 euros a night.", "done", 0).to_string()),
            false => with(step("", "active", 1), "research", json!(["Which beds cost at most 80 euros?"])),
        },
        () if !has("December 5") => Reply::Text(step("When do you start, and for how much?", "blocked", 0).to_string()),
        () if !has("<subgoals>") => {
            let parts = json!(["Choose hikes in Madeira", "Find a bed in Funchal"]);
            with(step("", "active", 0), "subgoals", parts)
        }
        () if has("Caldeirão on Monday") && has("Casa do Mar") => {
            let days: Vec<String> = WEEK.iter().map(|day| format!("{day}: walk, eat, and rest in Madeira.")).collect();
            Reply::Text(step(&format!("Your week:\n{}", days.join("\n")), "done", 0).to_string())
        }
        () => Reply::Text(step("", "active", 0).to_string()),
    }
}

async fn goal(daemon: &TestDaemon, life: &str, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    loop {
        let goal = daemon.operator.get(&format!("{life}/goals/{id}")).await.body;
        if is(&goal) {
            return goal;
        }
        tests::again().await;
    }
}

#[tokio::test]
async fn a_trip_is_planned_where_it_was_asked_for() {
    let daemon = TestDaemon::builder().calls_tools().start(strong).await;
    let (life, chat) = born(&daemon, json!({"name": "Iris", "trusts": ["user:ada"]})).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "trip").await;
    ada.say(&chat, "trip", "Could you plan my week trip to Madeira? Break it into parts and ask me.").await;
    let asked = |frame: &Value| says("trip")(frame) && text_of(frame).contains("When do you start");
    socket.until(asked).await;
    let blocked = goal(&daemon, &life, "g1", |goal| goal["status"] == "blocked").await;
    assert_eq!((&blocked["topic"], &blocked["by"]), (&json!("trip"), &json!("user:ada")), "{blocked}");
    ada.say(&chat, "trip", "On December 5, for 1200 euros.").await;
    for part in ["g2", "g3"] {
        let done = |goal: &Value| {
            // It waits for a time of its own after research.
            if goal["next"].is_string() && goal["job"].is_null() {
                daemon.clock.advance_ms(61_000);
            }
            goal["status"] == "done"
        };
        goal(&daemon, &life, part, done).await;
    }
    let week = |frame: &Value| says("trip")(frame) && WEEK.iter().all(|day| text_of(frame).contains(day));
    socket.until(week).await;
    let reported = goal(&daemon, &life, "g1", |goal| goal["status"] == "reported").await;
    // The result supplements the answer that promised it.
    let said = daemon.operator.get(&format!("{chat}/topics/trip/messages")).await.body["messages"].clone();
    let promised = said.as_array().unwrap().iter().find(|one| one["content"].to_string().contains("I have begun"));
    let week = said.as_array().unwrap().iter().find(|one| one["content"].to_string().contains("Your week:"));
    assert_eq!(week.unwrap()["supplements"], promised.unwrap()["id"], "{said}");
    assert!(reported["notes"].to_string().contains("December 5"), "{reported}");
    // Who asked for it says that it is reached.
    ada.say(&chat, "trip", "Perfect, that helped!").await;
    goal(&daemon, &life, "g1", |goal| goal["status"] == "done").await;
    // The parts reported to the goal, and not to people; what was refused became no knowledge.
    let topics = daemon.operator.get(&format!("{chat}/topics")).await.body.to_string();
    assert!(!topics.contains("goal_g2") && !topics.contains("goal_g3"), "{topics}");
    let records = daemon.operator.get("/v1/knowledge?limit=100").await.body.to_string();
    assert!(records.contains("Caldeirão") && !records.contains("can't assist"), "{records}");
    // What was looked for in vain was looked for once.
    let looked = daemon.model.asked();
    let in_vain = looked.iter().filter(|request| {
        let prompt = whole(request);
        prompt.starts_with("Find out what is asked") && prompt.contains("beds")
    });
    assert_eq!(in_vain.count(), 1);
}

#[tokio::test]
async fn a_goal_that_fails_says_so_where_it_was_asked_for() {
    let daemon = TestDaemon::builder()
        .calls_tools()
        .start(|request, n| match whole(request).contains(TASK) {
            true => Reply::Text("this is no plan".into()),
            false => strong(request, n),
        })
        .await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "trip").await;
    ada.say(&chat, "trip", "Could you plan my week?").await;
    let failed = |frame: &Value| says("trip")(frame) && text_of(frame).contains("I could not go on with");
    let frames = socket.until(failed).await;
    assert!(text_of(frames.last().unwrap()).contains("Plan Ada's week in Madeira"));
    goal(&daemon, &life, "g1", |goal| goal["status"] == "blocked").await;
    let trace = loop {
        let traces = daemon.operator.get("/v1/knowledge?types=Trace").await.body;
        if let Some(trace) = traces["data"].get(0) {
            break trace.clone();
        }
        tests::again().await;
    };
    assert_eq!(trace["metadata"]["success"], false, "{trace}");
}

#[tokio::test]
async fn a_goal_is_dropped_by_whoever_asked_and_leaves_a_trace() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let daemon = TestDaemon::builder()
        .calls_tools()
        .start(move |request, n| {
            if whole(request).contains(TASK) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            strong(request, n)
        })
        .await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    ada.topic(&chat, "trip").await;
    ada.say(&chat, "trip", "Could you plan my week?").await;
    socket.until(|frame| says("trip")(frame) && text_of(frame).contains("When do you start")).await;
    goal(&daemon, &life, "g1", |goal| goal["status"] == "blocked").await;
    ada.say(&chat, "trip", r#"goal {"action": "drop", "goal_id": "g1", "note": "Ada travels later."}?"#).await;
    goal(&daemon, &life, "g1", |goal| goal["status"] == "dropped").await;
    assert!(tries.load(Ordering::SeqCst) >= 1);
}
