//! Reminders: read from a person's words by rule, confirmed at once, delivered once, and taken off.

use std::sync::Arc;

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{TestDaemon, honest, text_of};
use tokio::sync::Notify;

use super::goals::{born, live, says, step};

#[tokio::test]
async fn a_reminder_from_a_talk_arrives_in_its_topic_in_quiet_hours() {
    let daemon = TestDaemon::start(|request, n| {
        let asked = request.response_format.as_ref().map(ToString::to_string).unwrap_or_default();
        let told = request.messages.iter().filter_map(|message| message.content.clone()).collect::<Vec<_>>().join("\n");
        match asked {
            asked if asked.contains("promises") => {
                assert!(told.contains("It is Thursday 2026-01-01 "), "{told}");
                let reminder = |what: &str, in_minutes: u64, at: &str, cron: &str| {
                    json!({"what": what, "in_minutes": in_minutes, "at": at, "cron": cron})
                };
                let promises = vec![reminder("Say good morning", 0, "", "0 7 * * *"), reminder("x", 0, "2020-01-01T00:00", "")];
                Reply::Text(json!({"promises": promises}).to_string())
            }
            asked if asked.contains("again_in_minutes") => Reply::Text(step("", "done", 0).to_string()),
            _ => honest(request, n),
        }
    })
    .await;
    let quiet = json!({"quiet": {"from": "00:00", "to": "23:59"}});
    let (life, chat) = born(&daemon, json!({"name": "Iris", "initiative": quiet})).await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    op.say(&chat, "t", "How are you today?").await;
    let schedules = async |many: usize| loop {
        let found = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK);
        let found = found["schedules"].as_array().unwrap().clone();
        if found.len() == many {
            return found;
        }
        tests::again().await;
    };
    op.say(&chat, "t", "Please remind me in half an hour to call mum.").await;
    let set = schedules(1).await;
    assert_eq!(
        (&set[0]["what"], &set[0]["by"], &set[0]["topic"], &set[0]["remind"]),
        (&json!("call mum"), &json!("user:operator"), &json!("t"), &json!(true))
    );
    let promised = || {
        let asked = daemon.model.asked();
        let of_promises = |request: &&ChatRequest| {
            request.response_format.as_ref().is_some_and(|format| format.to_string().contains("promises"))
        };
        asked.iter().filter(of_promises).count()
    };
    assert_eq!(promised(), 0, "what is said plainly needs no model");
    daemon.clock.advance_ms(31 * 60_000);
    let reminded = |frame: &Value| says("t")(frame) && text_of(frame) == "call mum";
    socket.until(reminded).await;
    op.say(&chat, "t", "Wish me well every morning at seven.").await;
    let set = schedules(1).await;
    assert_eq!((&set[0]["cron"], &set[0]["next"]), (&json!("0 7 * * *"), &json!("2026-01-01T07:00:00Z")));
    assert_eq!(promised(), 1, "where nothing is asked for later, no model is");
    op.delete(&format!("{life}/schedules/{}", set[0]["id"].as_str().unwrap())).await.expect(StatusCode::NO_CONTENT);
    schedules(0).await;
}

#[tokio::test]
async fn a_reminder_is_confirmed_without_a_model_and_delivered_once() {
    let daemon = TestDaemon::start(honest).await;
    let quiet = json!({"quiet": {"from": "22:00", "to": "06:00", "zone": "UTC"}});
    let (life, chat) = born(&daemon, json!({"name": "Iris", "initiative": quiet})).await;
    let mut socket = live(&daemon, &chat).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let asked_before = daemon.model.asked().len();
    for (words, answer) in [
        ("Remind me in two hours to buy bread.", "I will remind you at 02:00: buy bread"),
        ("10分钟后提醒我喝水", "我会在今天 00:10 提醒你：喝水"),
        ("明日の9時に会議があることを思い出させて", "1月2日 09:00 にお知らせします：会議がある"),
        ("Remind me every day at 7 to stretch.", "I will remind you every day, first at 07:00: stretch"),
        ("Remind me at some time to rest.", "I did not put that down: I cannot read when."),
    ] {
        op.say(&chat, "t", words).await;
        let told = text_of(socket.answer().await.last().unwrap());
        assert!(told.starts_with(answer), "{words}: {told}");
    }
    assert_eq!(daemon.model.asked().len(), asked_before, "no model is asked");
    let all = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK)["schedules"].clone();
    assert_eq!(all.as_array().unwrap().len(), 4, "{all}");
    // What asks for more is answered, too.
    op.say(&chat, "t", "Remind me in three hours to feed the cat. What is its name?").await;
    let told = text_of(socket.answer().await.last().unwrap());
    assert!(told.starts_with("I will remind you at 03:00: feed the cat") && told.ends_with("I do not know."), "{told}");
    daemon.clock.advance_ms(11 * 60_000);
    socket.until(|frame| text_of(frame) == "喝水").await;
    daemon.clock.advance_ms(2 * 3_600_000);
    let frames = socket.until(|frame| text_of(frame) == "buy bread").await;
    assert!(frames.iter().all(|frame| text_of(frame) != "喝水"), "it comes once");
    let left = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK)["schedules"].clone();
    assert_eq!(left.as_array().unwrap().len(), 3, "{left}");
    // What is wanted no more is taken off, by its own words, and only where it was asked for by the same person.
    let ada = daemon.person("user:ada", "participant").await;
    ada.say(&chat, "t", "Stop reminding me to stretch.").await;
    assert_eq!(text_of(socket.answer().await.last().unwrap()), "There is no reminder of yours here.");
    for (words, answer) in [
        ("Stop reminding me.", "I took nothing off. Which one do you mean? There is: "),
        ("Stop reminding me to stretch.", "I will not remind you of this any more: stretch (2026-01-01 07:00)"),
        ("会議のリマインダーを取り消して", "このリマインダーを取り消しました：会議がある (2026-01-02 09:00)"),
        ("Please cancel that reminder.", "I will not remind you of this any more: feed the cat (2026-01-01 03:00)"),
    ] {
        op.say(&chat, "t", words).await;
        let told = text_of(socket.answer().await.last().unwrap());
        assert!(told.starts_with(answer), "{words}: {told}");
    }
    let left = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK)["schedules"].clone();
    assert_eq!(left, json!([]));
    // A request is not kept as a fact.
    let command = r#"FIND(?f.attributes.statement) WHERE { ?f {type: "Fact"} }"#;
    let facts = op.post(&format!("{life}/kip"), json!({"command": command})).await.expect(StatusCode::OK);
    assert!(!facts["result"].to_string().to_lowercase().contains("remind"), "{facts}");
}

#[tokio::test]
async fn only_one_of_two_lifeforms_on_a_canvas_keeps_a_reminder() {
    let daemon = TestDaemon::start(honest).await;
    let quiet = json!({"quiet": {"from": "22:00", "to": "06:00", "zone": "UTC"}});
    let (iris, chat) = born(&daemon, json!({"name": "Iris", "initiative": quiet})).await;
    let (bo, _) = born(&daemon, json!({"name": "Bo", "initiative": quiet})).await;
    let mut socket = live(&daemon, &chat).await;
    let op = &daemon.operator;
    op.put(&format!("{chat}/members/{}", bo.rsplit('/').next().unwrap()), json!({}))
        .await
        .expect(StatusCode::NO_CONTENT);
    socket.until(|frame| frame["kind"] == "user.name").await;
    op.topic(&chat, "t").await;
    let kept = async |life: &str| {
        let all = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK)["schedules"].clone();
        all.as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (words, by_iris, by_bo) in [
        ("Remind me in two hours to buy bread.", vec!["buy bread"], Vec::<&str>::new()),
        ("@Bo remind me in three hours to feed the cat.", vec!["buy bread"], vec!["feed the cat"]),
        // The lifeform at home answers the rest, too.
        (
            "Remind me in four hours to sleep. What is the name of the cat?",
            vec!["buy bread", "sleep"],
            vec!["feed the cat"],
        ),
    ] {
        op.say(&chat, "t", words).await;
        socket.answer().await;
        assert_eq!(kept(&iris).await, by_iris, "{words}");
        assert_eq!(kept(&bo).await, by_bo, "{words}");
    }
    for words in ["Cancel my bread reminder.", "@Bo cancel my cat reminder."] {
        op.say(&chat, "t", words).await;
        socket.answer().await;
    }
    assert_eq!((kept(&iris).await.len(), kept(&bo).await.len()), (1, 0));
    // What each heeded is learned before it answers again.
    for words in ["Where is the boat?", "@Bo where is the boat?"] {
        op.say(&chat, "t", words).await;
        socket.answer().await;
    }
    for life in [&iris, &bo] {
        let command = r#"FIND(?f.attributes.statement) WHERE { ?f {type: "Fact"} }"#;
        let facts = op.post(&format!("{life}/kip"), json!({"command": command})).await.expect(StatusCode::OK);
        assert!(!facts["result"].to_string().to_lowercase().contains("remind"), "{facts}");
    }
}

#[tokio::test]
async fn a_resting_lifeform_sets_and_cancels_reminders_on_each_canvas() {
    let daemon = TestDaemon::start(honest).await;
    let quiet = json!({"quiet": {"from": "22:00", "to": "06:00", "zone": "UTC"}});
    let poor = json!({"name": "Iris", "initiative": quiet, "nutrients": {"tokens": 0, "micro_usd": 0}});
    let (life, chat) = born(&daemon, poor).await;
    let op = &daemon.operator;
    let (canvases, _) = chat.rsplit_once('/').unwrap();
    op.post(canvases, json!({"type": "chat", "title": "Shopping", "id": "shopping"})).await.expect(StatusCode::CREATED);
    let other = format!("{canvases}/shopping");
    for (canvas, what) in [(&chat, "buy bread"), (&other, "buy milk")] {
        let mut socket = live(&daemon, canvas).await;
        op.topic(canvas, "t").await;
        op.say(canvas, "t", &format!("Remind me in two hours to {what}.")).await;
        let told = text_of(socket.answer().await.last().unwrap());
        assert_eq!(told, format!("I will remind you at 02:00: {what}"), "it costs nothing");
    }
    let mut socket = live(&daemon, &other).await;
    op.say(&other, "t", "Cancel my milk reminder.").await;
    let told = text_of(socket.answer().await.last().unwrap());
    assert_eq!(told, "I will not remind you of this any more: buy milk (2026-01-01 02:00)");
    let left = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK)["schedules"].clone();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["what"]), (1, &json!("buy bread")));
    // A time that is over is no time of a schedule.
    let past = json!({"what": "look back", "at": "2025-12-31T00:00:00Z"});
    op.post(&format!("{life}/schedules"), past).await.refused(422, "schema");
}

#[tokio::test]
async fn a_reminder_is_confirmed_before_later_messages_are_answered() {
    let gate = Arc::new(Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, n| match request.response_format.is_some() {
        true => honest(request, n),
        false => Reply::Held("It begins ".into(), held.clone(), "and ends.".into()),
    })
    .await;
    let quiet = json!({"quiet": {"from": "22:00", "to": "06:00", "zone": "UTC"}});
    let (_, chat) = born(&daemon, json!({"name": "Iris", "initiative": quiet})).await;
    let mut socket = live(&daemon, &chat).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    op.say(&chat, "t", "Well?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    for words in ["Remind me in two hours to buy bread.", "取消面包的提醒", "And what is it?"] {
        op.say(&chat, "t", words).await;
    }
    gate.notify_one();
    let mut answer = async || text_of(socket.answer().await.last().unwrap());
    assert_eq!(answer().await, "It begins and ends.");
    let confirmed = answer().await;
    assert!(confirmed.starts_with("I will remind you at 02:00: buy bread\n我没有取消任何提醒"), "{confirmed}");
    gate.notify_one();
    assert_eq!(answer().await, "It begins and ends.");
}

#[tokio::test]
async fn a_request_that_is_purged_takes_its_reminder_along() {
    let daemon = TestDaemon::start(honest).await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let mut socket = live(&daemon, &chat).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    for (what, query) in [("the safe is 9921", "?purge=1"), ("the door is 17", "")] {
        let asked = op.say(&chat, "t", &format!("Remind me in two hours that {what}.")).await;
        socket.answer().await;
        let set = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK);
        assert!(set["schedules"].to_string().contains(what), "{set}");
        let message = format!("{chat}/topics/t/messages/{}", asked["id"].as_str().unwrap());
        assert!(op.send(Method::DELETE, &format!("{message}{query}"), &[], None).await.status.is_success());
        while op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK)["schedules"] != json!([]) {
            tests::again().await;
        }
    }
}

#[tokio::test]
async fn a_retracted_request_is_not_said_although_it_is_due_first() {
    let daemon = TestDaemon::start(honest).await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let mut socket = live(&daemon, &chat).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let mut asked = Vec::new();
    for what in ["call dad", "call mum", "call mum"] {
        asked.push(op.say(&chat, "t", &format!("Remind me in two hours to {what}.")).await);
        socket.answer().await;
    }
    op.post(&format!("{life}/stop"), json!({})).await.expect(StatusCode::OK);
    for said in &asked[..2] {
        let message = format!("{chat}/topics/t/messages/{}?purge=1", said["id"].as_str().unwrap());
        assert!(op.send(Method::DELETE, &message, &[], None).await.status.is_success());
    }
    daemon.clock.advance_ms(3 * 3_600_000);
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let frames = socket.until(|frame| text_of(frame) == "call mum").await;
    assert!(frames.iter().all(|frame| text_of(frame) != "call dad"), "{frames:?}");
    let left = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK);
    assert_eq!(left["schedules"], json!([]));
}
