//! The beginning of a lifeform's prompts, and the part of a talk that they contain (MISSION L2, L7).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{TestDaemon, honest, text_of};

use super::goals::{born, live, says, step};

fn text(request: &ChatRequest) -> String {
    request.messages.iter().filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
}

fn system(request: &ChatRequest) -> String {
    let system = request.messages.iter().filter(|message| message.role == "system");
    system.filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n")
}

/// Returns the prompts of answers in a daemon.
fn answers(daemon: &TestDaemon) -> Vec<ChatRequest> {
    daemon.model.asked().into_iter().filter(|request| request.response_format.is_none()).collect()
}

#[tokio::test]
async fn a_prompt_says_who_speaks_when_and_what_is_to_be_done() {
    let daemon = TestDaemon::start(|request, n| match text(request).contains("What you have set out to do") {
        true => Reply::Text(step("When do you start?", "blocked", 0).to_string()),
        false => honest(request, n),
    })
    .await;
    let persona = "Iris keeps a lighthouse.";
    let (life, chat) = born(&daemon, json!({"name": "Iris", "persona": persona})).await;
    let op = &daemon.operator;
    let ada = daemon.person("user:ada", "participant").await;
    let mut socket = live(&daemon, &chat).await;
    let goal = json!({"title": "Plan the week", "deadline": "2026-02-01T18:00:00Z", "at": "2026-01-01T00:00:00Z"});
    op.post(&format!("{life}/goals"), goal).await.expect(StatusCode::CREATED);
    daemon.clock.advance_ms(60_000);
    socket.until(says("goal_g1")).await;
    let asked = daemon.model.asked();
    let plan = asked.iter().find(|request| text(request).contains("What you have set out to do")).unwrap();
    let (situation, task) = (system(plan), text(plan));
    assert!(situation.contains("You are \"Iris\", an AI lifeform. Iris keeps a lighthouse."), "{situation}");
    assert!(situation.contains("Your principles: Integrity, Security, Privacy, Growth."), "{situation}");
    assert!(situation.contains("Now: Thursday 1 January 2026, 00:0"), "{situation}");
    assert!(situation.contains("You work on your own. What you say is read by \"operator\"."), "{situation}");
    for part in ["<title>Plan the week</title>", "<asked_by>operator<", "<deadline>Sunday 1 February 2026, 18:00<"] {
        assert!(task.contains(part), "{part} is not in {task}");
    }
    // A person whose words a goal has heard does not learn of the goal thereby.
    ada.say(&chat, "goal_g1", "What about Monday?").await;
    socket.until(|frame| frame["kind"] == "message.finish" && says("goal_g1")(frame)).await;
    for (who, topic) in [(op, "his"), (&ada, "hers")] {
        op.topic(&chat, topic).await;
        who.say(&chat, topic, "What are you working on?").await;
        let finished = |frame: &Value| frame["kind"] == "message.finish" && says(topic)(frame);
        socket.until(finished).await;
    }
    let asks = |request: &&ChatRequest| {
        request.messages.last().is_some_and(|last| last.content.as_deref() == Some("What are you working on?"))
    };
    let prompts: Vec<String> = answers(&daemon).iter().filter(asks).map(system).collect();
    let [to_operator, to_ada] = &prompts[..] else { panic!("{prompts:?}") };
    assert!(to_operator.contains("You talk with \"operator\"."), "{to_operator}");
    assert!(
        to_operator.contains(
            "Your goal: \"Plan the week\", which waits for an answer to \"When do you start?\", due Sun 1 Feb"
        ),
        "{to_operator}"
    );
    assert!(to_ada.contains("You talk with \"ada\".") && to_ada.contains("You are well."), "{to_ada}");
    assert!(!to_ada.contains("Plan the week"), "what one person asked for is not another's to know: {to_ada}");
    assert!(!prompts.iter().any(|prompt| prompt.contains("lifeform:") || prompt.contains("user:")), "{prompts:?}");
}

#[tokio::test]
async fn each_message_is_in_the_prompt_or_in_a_summary_at_any_length() {
    let daemon = TestDaemon::start(|request, n| match text(request).contains("You compress events.") {
        true => Reply::Text(json!({"events": [{"role": "user", "content": "They count."}]}).to_string()),
        false => honest(request, n),
    })
    .await;
    let (_, chat) = born(&daemon, json!({"name": "Iris", "nutrients": {"tokens": 2_000_000, "micro_usd": 0}})).await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    // The order keys of the messages, and, at each answer, the key up to which the summary goes.
    let (mut ords, mut summarised) = (BTreeMap::new(), 0);
    for n in 0..110 {
        let content = format!("Is this the message with the number {n:03}? {}", "It is not long. ".repeat(n % 7));
        let said = op.say(&chat, "t", &content).await;
        ords.insert(format!("number {n:03}"), format!("{:012}", said["rev"].as_u64().unwrap()));
        socket.until(|frame| frame["kind"] == "message.finish").await;
        let topic = op.get(&format!("{chat}/topics/t")).await.expect(StatusCode::OK);
        let upto =
            topic["summaries"].as_object().and_then(|all| all.values().next()?["ord"].as_str().map(str::to_owned));
        let prompt = text(answers(&daemon).last().unwrap());
        let is_there = |(words, ord): (&String, &String)| {
            prompt.contains(words.as_str()) || upto.as_ref().is_some_and(|upto| ord <= upto)
        };
        let missing: Vec<_> = ords.iter().filter(|pair| !is_there(*pair)).collect();
        assert!(missing.is_empty(), "at {n} these are in neither: {missing:?}");
        summarised += usize::from(upto.is_some());
    }
    assert!(summarised > 0, "the talk was long enough to be summarised");
}

#[tokio::test]
async fn a_correction_leaves_the_rest_of_an_answer_as_it_was() {
    let advice = "For a red bike, take a U-lock of hardened steel; put it through the frame and the rear wheel.";
    let daemon = TestDaemon::start(move |request, n| {
        let user = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
        match request.response_format.is_some() {
            true if user.starts_with("New:") => {
                Reply::Text(r#"{"contradicted":[1],"correction":"Your bike is blue."}"#.into())
            }
            false if user.contains("colour suits") => Reply::Text(advice.into()),
            false if user.contains("Which lock") => Reply::Text("A U-lock of hardened steel is best.".into()),
            _ => honest(request, n),
        }
    })
    .await;
    let (_, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    for (topic, content) in [
        ("a", "My bike is red."),
        ("b", "Which lock is best for my bike?"),
        ("c", "What colour suits my bike?"),
        ("d", "My bike is blue."),
    ] {
        op.topic(&chat, topic).await;
        op.say(&chat, topic, content).await;
        socket.until(|frame| frame["kind"] == "message.finish").await;
    }
    socket.until(|frame| frame["patch"].to_string().contains("_corrected_")).await;
    let said = async |topic: &str| {
        let all = op.get(&format!("{chat}/topics/{topic}/messages")).await.expect(StatusCode::OK);
        let own = all["messages"].as_array().unwrap().iter().filter(|message| message["sender"] != "user:operator");
        own.map(|message| (message["content"].clone(), message["supplements"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(said("b").await.len(), 1, "an answer that did not say the colour needs no correction");
    let with_colour = said("c").await;
    assert_eq!(with_colour[0].0, advice);
    assert_eq!(with_colour[1].0, "Your bike is blue.");
    assert!(with_colour[1].1.is_string(), "{with_colour:?}");
}

#[tokio::test]
async fn a_long_plan_is_said_whole_and_what_is_longer_is_cut() {
    let days: String = (1..=7).map(|day| format!("Day {day}: {}\n", "walk along the levada. ".repeat(8))).collect();
    assert!((1_000..2_000).contains(&days.chars().count()));
    let (long, told) = (days.clone(), Arc::new(Mutex::new(0)));
    let daemon = TestDaemon::start(move |request, n| match text(request).contains("What you have set out to do") {
        true => {
            let mut count = told.lock().unwrap();
            *count += 1;
            let say = if *count == 1 { long.clone() } else { long.repeat(3) };
            Reply::Text(step(&say, if *count == 1 { "active" } else { "done" }, 1).to_string())
        }
        false => honest(request, n),
    })
    .await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    let goal = json!({"title": "Plan my week trip", "at": "2026-01-01T00:00:00Z"});
    op.post(&format!("{life}/goals"), goal).await.expect(StatusCode::CREATED);
    daemon.clock.advance_ms(60_000);
    let said = socket.until(says("goal_g1")).await;
    assert_eq!(text_of(said.last().unwrap()), days.trim());
    daemon.clock.advance_ms(600_000);
    let said = socket.until(says("goal_g1")).await;
    let cut = text_of(said.last().unwrap());
    assert!(cut.chars().count() <= 2_000 && cut.ends_with('…') && cut.starts_with("Day 1"), "{cut}");
    let goal: Value = op.get(&format!("{life}/goals/g1")).await.expect(StatusCode::OK);
    assert_eq!(goal["status"], "done", "{goal}");
}
