//! What a lifeform does without being asked: goals, schedules, quiet hours; and how it sleeps when there is nothing to
//! do (MISSION L1, L2).

use std::sync::Arc;

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Socket, TestDaemon, honest, text_of};
use tokio::sync::Notify;

const HOUR_MS: i64 = 3_600_000;

/// A model that goes on with goals as `plan` has it, and else is honest.
fn planning(
    plan: impl Fn(&str) -> Value + Send + Sync + 'static,
) -> impl Fn(&ChatRequest, usize) -> Reply + Send + Sync {
    move |request, n| {
        let told = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
        match told.starts_with("What you have set out to do") {
            true => Reply::Text(plan(&told).to_string()),
            false => honest(request, n),
        }
    }
}

fn step(say: &str, status: &str, again_in_minutes: u32) -> Value {
    json!({
        "plan": ["look", "tell"],
        "say": say,
        "status": status,
        "again_in_minutes": again_in_minutes,
        "subgoals": [],
        "schedules": [],
    })
}

async fn born(daemon: &TestDaemon, definition: Value) -> (String, String) {
    let made =
        daemon.operator.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    daemon.operator.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    (life, chat)
}

async fn live(daemon: &TestDaemon, chat: &str) -> Socket {
    let mut socket = daemon.operator.subscribe(chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    socket
}

fn says(topic: &'static str) -> impl Fn(&Value) -> bool {
    move |frame| {
        let is_there = frame["patch"].to_string().contains(&format!("/topics/{topic}/messages"));
        is_there && matches!(frame["kind"].as_str(), Some("message.append" | "message.finish"))
    }
}

#[tokio::test]
async fn a_due_goal_opens_a_topic_and_resumes_after_an_answer() {
    let daemon = TestDaemon::start(planning(|told| match told {
        told if told.contains("user:operator said: The red one") => step("Thank you, it is booked.", "done", 0),
        _ => step("Which boat shall I book?", "blocked", 0),
    }))
    .await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    let goal = json!({"title": "Book a boat", "description": "For Saturday", "at": "2026-01-01T05:00:00Z"});
    let set = op.post(&format!("{life}/goals"), goal).await.expect(StatusCode::CREATED);
    assert_eq!((&set["id"], &set["status"], &set["by"]), (&json!("g1"), &json!("open"), &json!("user:operator")));
    daemon.clock.advance_ms(HOUR_MS);
    assert!(daemon.model.asked().is_empty(), "nothing is due yet, so nothing was asked");
    // It is killed in between, and still remembers.
    let daemon = daemon.kill_and_restart().await;
    let op = &daemon.operator;
    drop(socket);
    socket = live(&daemon, &chat).await;
    daemon.clock.advance_ms(5 * HOUR_MS);
    let asked = socket.until(says("goal_g1")).await;
    assert_eq!(text_of(asked.last().unwrap()), "Which boat shall I book?");
    let topic = op.get(&format!("{chat}/topics/goal_g1")).await.expect(StatusCode::OK);
    assert_eq!(topic["title"], "Book a boat");
    let is_noted = async |status: &str| {
        // Its outcome is noted right after it is said.
        loop {
            let goal = op.get(&format!("{life}/goals/g1")).await.expect(StatusCode::OK);
            if goal["status"] == status && goal["job"].is_null() {
                return goal;
            }
            tests::again().await;
        }
    };
    let goal = is_noted("blocked").await;
    assert_eq!(goal["plan"], json!(["look", "tell"]));
    let calls = daemon.model.asked().len();
    daemon.clock.advance_ms(10 * HOUR_MS);
    op.say(&chat, "goal_g1", "The red one").await;
    // The message is answered, and the goal goes on.
    let then = |frame: &Value| says("goal_g1")(frame) && text_of(frame).contains("booked");
    daemon.clock.advance_ms(60_000);
    socket.until(then).await;
    let goal = is_noted("done").await;
    assert_eq!((goal["pursued"].as_u64(), &goal["next"]), (Some(2), &Value::Null));
    assert!(goal["notes"].to_string().contains("The red one"), "{goal}");
    assert!(goal["evidence"].to_string().contains(".goal.g1.n2"), "{goal}");
    assert!(daemon.model.asked().len() > calls);
    let report = op.get(&format!("{life}/resources/report")).await.expect(StatusCode::OK);
    assert_eq!(report["by"]["goal"]["g1"]["calls"], 2, "{report}");
    // Of both times it kept what it had done, and whether that reached the goal.
    let kept = loop {
        let kept = op.get("/v1/knowledge?types=Trace").await.expect(StatusCode::OK);
        if kept["data"].as_array().unwrap().len() == 2 {
            break kept;
        }
        tests::again().await;
    };
    let succeeded = |trace: &Value| trace["metadata"]["success"].as_bool();
    let mut outcomes: Vec<_> = kept["data"].as_array().unwrap().iter().map(succeeded).collect();
    outcomes.sort();
    assert_eq!(outcomes, [Some(false), Some(true)], "{kept}");
    // The answer to the message may still be under way.
    let is_over = |job: &Value| ["completed", "failed", "cancelled"].iter().any(|status| job["status"] == **status);
    loop {
        let jobs = op.get("/v1/jobs?limit=200").await.expect(StatusCode::OK);
        if jobs["jobs"].as_array().unwrap().iter().all(is_over) {
            break;
        }
        tests::again().await;
    }
    let done = daemon.model.asked().len();
    daemon.clock.advance_ms(100 * HOUR_MS);
    op.get(&life).await.expect(StatusCode::OK);
    assert_eq!(daemon.model.asked().len(), done, "what is done costs nothing more");
}

#[tokio::test]
async fn a_goal_or_a_schedule_is_set_once_under_a_key() {
    let daemon = TestDaemon::start(honest).await;
    let (life, _) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    let later = "2031-01-01T00:00:00Z";
    for (what, first, other) in [
        ("goals", json!({"title": "Sail", "at": later}), json!({"title": "Row", "at": later})),
        ("schedules", json!({"what": "Bail", "at": later}), json!({"what": "Row", "at": later})),
    ] {
        let path = format!("{life}/{what}");
        let keyed = |body: &Value| op.send(Method::POST, &path, &[("Idempotency-Key", "k")], Some(body.clone()));
        let answers = futures::future::join_all((0..8).map(|_| keyed(&first))).await;
        let ids: Vec<Value> = answers.into_iter().map(|one| one.expect(StatusCode::CREATED)["id"].clone()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        keyed(&other).await.refused(422, "invalid");
        let set = op.get(&path).await.expect(StatusCode::OK);
        assert_eq!(set[what].as_array().unwrap().len(), 1, "{set}");
        // Without a key, each call is another.
        op.post(&path, first.clone()).await.expect(StatusCode::CREATED);
        let set = op.get(&path).await.expect(StatusCode::OK);
        assert_eq!(set[what].as_array().unwrap().len(), 2, "{set}");
        op.delete(&format!("{path}/{}", ids[0].as_str().unwrap())).await.expect(StatusCode::NO_CONTENT);
        // It was set once, and is no more.
        let again = keyed(&first).await.expect(StatusCode::CREATED);
        assert_eq!(again, json!({"id": ids[0], "over": true}));
    }
}

#[tokio::test]
async fn schedules_quiet_hours_and_the_limit_on_unasked_messages_hold() {
    let daemon =
        TestDaemon::start(planning(|told| step(&format!("now: {}", told.lines().next().unwrap()), "active", 0))).await;
    let initiative = json!({
        "quiet": {"from": "22:00", "to": "07:00"}, "unasked_per_day": 2,
        "goals": [{"title": "Know the tides", "at": "2026-01-01T23:00:00Z"}],
        "schedules": [{"what": "Say good morning", "cron": "0 8 * * *"}],
    });
    let (life, chat) = born(&daemon, json!({"name": "Iris", "initiative": initiative})).await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    let goals = op.get(&format!("{life}/goals")).await.expect(StatusCode::OK);
    assert_eq!(goals["goals"][0]["by"], "system:definition");
    daemon.clock.advance_ms(9 * HOUR_MS);
    let morning = socket.until(says("schedule_s2")).await;
    assert!(text_of(morning.last().unwrap()).contains("Say good morning"));
    let settled = async |runs: u64| loop {
        let agenda = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK);
        let goals = op.get(&format!("{life}/goals")).await.expect(StatusCode::OK);
        if goals["unasked"].as_u64() == Some(runs) {
            return agenda;
        }
        tests::again().await;
    };
    let agenda = settled(1).await;
    assert_eq!(
        (&agenda["schedules"][0]["next"], agenda["schedules"][0]["runs"].as_u64()),
        (&json!("2026-01-02T08:00:00Z"), Some(1))
    );
    let spoken = daemon.model.asked().len();
    daemon.clock.advance_ms(15 * HOUR_MS);
    op.get(&life).await.expect(StatusCode::OK);
    assert_eq!(daemon.model.asked().len(), spoken, "it is midnight");
    daemon.clock.advance_ms(7 * HOUR_MS + 60_000);
    socket.until(says("goal_g1")).await;
    settled(2).await;
    let spoken = daemon.model.asked().len();
    // Twice within a day is as often as it may; at nine the first is a day old.
    daemon.clock.advance_ms(HOUR_MS);
    op.get(&life).await.expect(StatusCode::OK);
    assert_eq!(daemon.model.asked().len(), spoken);
    daemon.clock.advance_ms(HOUR_MS);
    socket.until(says("schedule_s2")).await;
    for (path, bad, status) in [
        ("goals", json!({"title": ""}), 422),
        ("goals", json!({"title": "x", "colour": "red"}), 422),
        ("goals", json!({"title": "x", "parent": "g99"}), 404),
        ("schedules", json!({"what": "x", "cron": "whenever"}), 422),
        ("schedules", json!({"what": "x", "cron": "0 8 * * *", "at": "2026-01-01T00:00:00Z"}), 422),
    ] {
        let answer = op.post(&format!("{life}/{path}"), bad.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {bad}: {}", answer.body);
    }
    op.patch(&format!("{life}/goals/g1"), json!({"status": "dropped", "note": "no more"})).await.expect(StatusCode::OK);
    assert_eq!(op.delete(&format!("{life}/goals/g1")).await.status, StatusCode::NO_CONTENT);
    op.get(&format!("{life}/goals/g1")).await.refused(404, "not_found");
    assert_eq!(op.delete(&format!("{life}/schedules/s2")).await.status, StatusCode::NO_CONTENT);
    for initiative in [
        json!({"quiet": {"from": "late", "to": "07:00"}}),
        json!({"unasked_per_day": 0}),
        json!({"goals": [{"title": ""}]}),
        json!({"schedules": [{"what": "x"}]}),
    ] {
        op.post("/v1/lifeforms", json!({"definition": {"name": "Iris", "initiative": initiative}}))
            .await
            .refused(422, "invalid");
    }
}

#[tokio::test]
async fn a_goal_that_fails_is_blocked_and_told_and_one_can_have_parts() {
    let daemon = TestDaemon::start(planning(|told| match told.contains("Learn to sail") {
        true => {
            json!({
                "plan": [],
                "say": "",
                "status": "active",
                "again_in_minutes": 0,
                "subgoals": ["Find a teacher"],
                "schedules": [],
            })
        }
        false => json!("no plan at all"),
    }))
    .await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    let _socket = live(&daemon, &chat).await;
    op.post(&format!("{life}/goals"), json!({"title": "Learn to sail"})).await.expect(StatusCode::CREATED);
    let goals = loop {
        let goals = op.get(&format!("{life}/goals")).await.expect(StatusCode::OK);
        let part = &goals["goals"][0]["subgoals"][0];
        if part["status"] == "blocked" {
            break goals;
        }
        daemon.clock.advance_ms(30_000);
        tests::again().await;
    };
    let part = &goals["goals"][0]["subgoals"][0];
    assert_eq!((&part["title"], &part["parent"]), (&json!("Find a teacher"), &json!("g1")));
    assert!(part["by"].as_str().unwrap().starts_with("lifeform:"), "its own goal");
    assert!(part["notes"].to_string().contains("it failed"), "{part}");
}

#[tokio::test]
async fn an_idle_lifeform_sleeps_and_wakes_on_a_message_visit_or_time() {
    let daemon = TestDaemon::start(planning(|_| step("The tide is low.", "done", 0))).await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    op.topic(&chat, "t").await;
    let mut socket = live(&daemon, &chat).await;
    op.say(&chat, "t", "My cat is called Miso.").await;
    socket.until(|frame| frame["kind"] == "message.finish").await;
    let asleep = async |daemon: &TestDaemon| {
        while daemon.daemon.app.lifeforms().awake() > 0 {
            daemon.clock.advance_ms(60_000);
            tests::again().await;
        }
    };
    asleep(&daemon).await;
    assert_eq!(daemon.operator.get(&life).await.expect(StatusCode::OK)["status"], "running", "it lives all the same");
    op.say(&chat, "t", "What is my cat called?").await;
    let answer = socket.until(|frame| frame["kind"] == "message.finish").await;
    assert!(text_of(answer.last().unwrap()).contains("Miso"));
    // A goal in a week: it sleeps until then, through a restart of the daemon that wakes nobody.
    op.post(&format!("{life}/goals"), json!({"title": "Look at the tide", "at": "2026-01-15T12:00:00Z"}))
        .await
        .expect(StatusCode::CREATED);
    asleep(&daemon).await;
    let daemon = daemon.kill_and_restart().await;
    let op = &daemon.operator;
    assert_eq!(daemon.daemon.app.lifeforms().awake(), 0, "who sleeps is left asleep");
    let mut socket = live(&daemon, &chat).await;
    // Whoever comes to look at it wakes it.
    while daemon.daemon.app.lifeforms().awake() == 0 {
        tests::again().await;
    }
    asleep(&daemon).await;
    daemon.clock.advance_ms(24 * 20 * HOUR_MS);
    let said = socket.until(says("goal_g1")).await;
    assert_eq!(text_of(said.last().unwrap()), "The tide is low.");
    // What is said to one that sleeps is durable with the mark that rouses it: the daemon may die before it wakes.
    asleep(&daemon).await;
    op.say(&chat, "t", "And what is my cat called?").await;
    let daemon = daemon.kill_and_restart().await;
    let mut socket = daemon.operator.subscribe(&chat, None).await;
    let is_answered = |frame: &Value| {
        let message = |message: &Value| {
            message["content"].as_str().is_some_and(|text| text.contains("remember") && message["status"] == "final")
        };
        let shown = frame["state"]["topics"]["t"]["messages"].as_object();
        let count = shown.map_or(0, |messages| messages.values().filter(|one| message(one)).count());
        count >= 2 || (frame["kind"] == "message.finish" && text_of(frame).contains("Miso"))
    };
    socket.until(is_answered).await;
    // One that was stopped is not woken by what is said to it.
    daemon.operator.post(&format!("{life}/stop"), json!({})).await.expect(StatusCode::OK);
    daemon.operator.say(&chat, "t", "Hello?").await;
    daemon.operator.get(&chat).await.expect(StatusCode::OK);
    assert_eq!(daemon.daemon.app.lifeforms().awake(), 0);
    let daemon = daemon.kill_and_restart().await;
    assert_eq!(daemon.daemon.app.lifeforms().awake(), 0);
    daemon.operator.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let mut socket = daemon.operator.subscribe(&chat, None).await;
    let answered = |frame: &Value| frame["kind"] == "message.finish" || frame.to_string().contains("I do not know.");
    socket.until(answered).await;
}

#[tokio::test]
async fn lifeforms_are_listed_page_by_page() {
    let daemon = TestDaemon::start(honest).await;
    let op = &daemon.operator;
    // Born in the same moment, they are as many.
    let born = (0..32).map(|_| op.post("/v1/lifeforms", json!({"definition": "first"})));
    futures::future::join_all(born).await.into_iter().for_each(|made| drop(made.expect(StatusCode::CREATED)));
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = op.get(&format!("/v1/lifeforms?limit=5&after={after}")).await.expect(StatusCode::OK);
        seen.extend(page["lifeforms"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen.len(), 32);
    assert!(seen.is_sorted());
}

#[tokio::test]
async fn the_system_tidies_a_mind_by_a_job_that_is_traced() {
    let daemon = TestDaemon::start(honest).await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    let id = life.rsplit('/').next().unwrap();
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    for text in ["My cat is called Miso.", "my CAT is called miso."] {
        op.say(&chat, "t", text).await;
        socket.until(|frame| frame["kind"] == "message.finish").await;
    }
    let kip = async |command: &str| {
        op.post(&format!("{life}/kip"), json!({"command": command})).await.expect(StatusCode::OK)["result"].clone()
    };
    kip(r#"UPSERT { CONCEPT { {type: "Fact", name: "Tickets are half price."} SET ATTRIBUTES { statement: "Tickets are half price.", mood: "hurried" } } } WITH METADATA { status: "active", expires_at: "2026-02-01T00:00:00Z" }"#).await;
    daemon.clock.advance_ms(200 * 24 * HOUR_MS);
    let run = async |task: &str| {
        let path = format!("{life}/system/run-maintenance");
        let job = op.post(&path, json!({"task": task})).await.expect(StatusCode::ACCEPTED)["job_id"].clone();
        loop {
            let job = op.get(&format!("/v1/jobs/{}", job.as_str().unwrap())).await.expect(StatusCode::OK);
            match job["status"].as_str().unwrap() {
                "completed" => return job["output"].clone(),
                "failed" => panic!("{job}"),
                _ => tests::again().await,
            }
        }
    };
    let merged = run("consolidate_memory").await;
    assert_eq!(merged["done"]["merged"].as_array().unwrap().len(), 1, "{merged}");
    assert_eq!(kip(r#"FIND(COUNT(?f)) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active" && (CONTAINS(?f.attributes.subject, "Miso") || CONTAINS(?f.attributes.subject, "miso"))) }"#).await, json!([1]));
    run("expire").await;
    let expired = kip(r#"FIND(?f.metadata.status) WHERE { ?f {type: "Fact", name: "Tickets are half price."} }"#).await;
    assert_eq!(expired, json!(["expired"]));
    let archived = run("archive_persons").await;
    assert_eq!(archived["done"]["archived"], json!(["user:operator"]));
    let declared = run("evolve_schema").await;
    assert!(declared["done"]["declared"].to_string().contains("mood"), "{declared}");
    let journal = op.get(&format!("/v1/nexus/{id}/journal?limit=200")).await.expect(StatusCode::OK);
    assert!(journal.to_string().contains("system:gardener"));
    op.post(&format!("{life}/system/run-maintenance"), json!({"task": "burn"})).await.refused(422, "invalid");
    // Under a key it is done once, and whoever asks again is answered as before, however it stands by now.
    let keyed = async |task: &str| {
        let (path, key) = (format!("{life}/system/run-maintenance"), [("Idempotency-Key", "k")]);
        op.send(Method::POST, &path, &key, Some(json!({"task": task}))).await
    };
    let first = keyed("expire").await.expect(StatusCode::ACCEPTED);
    assert_eq!(keyed("expire").await.expect(StatusCode::ACCEPTED), first);
    keyed("evolve_schema").await.refused(422, "invalid");
    op.post(&format!("{life}/stop"), json!({})).await.expect(StatusCode::OK);
    assert_eq!(keyed("expire").await.expect(StatusCode::ACCEPTED), first);
    op.post(&format!("{life}/system/run-maintenance"), json!({"task": "expire"})).await.refused(409, "state");
}

#[tokio::test]
async fn what_somebody_decides_of_a_goal_under_way_holds() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, n| {
        let told = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
        match told.starts_with("What you have set out to do") {
            true => Reply::Held(step("I go on!", "active", 1).to_string(), held.clone(), String::new()),
            false => honest(request, n),
        }
    })
    .await;
    let (life, chat) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    op.post(&format!("{life}/goals"), json!({"title": "Go on"})).await.expect(StatusCode::CREATED);
    while daemon.model.asked().is_empty() {
        tests::again().await;
    }
    let ada = daemon.person("user:ada", "participant").await;
    let dropped = json!({"status": "dropped"});
    ada.patch(&format!("{life}/goals/g1"), dropped.clone()).await.refused(403, "forbidden");
    let pursued = op.get(&format!("{life}/goals/g1")).await.expect(StatusCode::OK)["job"].clone();
    op.patch(&format!("{life}/goals/g1"), dropped).await.expect(StatusCode::OK);
    let job = op.get(&format!("/v1/jobs/{}", pursued.as_str().unwrap())).await.expect(StatusCode::OK);
    assert_eq!(job["status"], "cancelled", "what is dropped is paid for no longer");
    gate.notify_one();
    let goal = loop {
        let goal = op.get(&format!("{life}/goals/g1")).await.expect(StatusCode::OK);
        if goal["job"].is_null() {
            break goal;
        }
        tests::again().await;
    };
    assert_eq!((&goal["status"], &goal["next"]), (&json!("dropped"), &Value::Null));
    let topics = op.get(&format!("{chat}/topics")).await.expect(StatusCode::OK);
    assert_eq!(topics["topics"], json!([]), "nothing is said of what was dropped");
    for at in ["-009999-01-02T01:59:59Z", "9999-12-30T22:00:00Z"] {
        op.post(&format!("{life}/goals"), json!({"title": "far", "at": at, "deadline": at}))
            .await
            .expect(StatusCode::CREATED);
        op.get(&format!("{life}/goals")).await.expect(StatusCode::OK);
    }
}

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
async fn it_sets_schedules_for_itself_when_it_plans() {
    let daemon = TestDaemon::start(planning(|_| {
        let mut step = step("", "active", 0);
        step["schedules"] = json!([{"what": "Look at the tide", "in_minutes": 0, "cron": "0 6 * * *"}]);
        step
    }))
    .await;
    let (life, _) = born(&daemon, json!({"name": "Iris"})).await;
    let op = &daemon.operator;
    op.post(&format!("{life}/goals"), json!({"title": "Know the tide"})).await.expect(StatusCode::CREATED);
    daemon.clock.advance_ms(60_000);
    let found = loop {
        let found = op.get(&format!("{life}/schedules")).await.expect(StatusCode::OK);
        if found["schedules"].as_array().is_some_and(|found| !found.is_empty()) {
            break found;
        }
        tests::again().await;
    };
    let own = &found["schedules"][0];
    assert_eq!((&own["what"], &own["cron"]), (&json!("Look at the tide"), &json!("0 6 * * *")));
    assert!(own["by"].as_str().unwrap().starts_with("lifeform:"), "{own}");
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
    // It is no fact that somebody stated.
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
        // Both answer the rest; the reminder is one lifeform's.
        (
            "Remind me in four hours to sleep. What is the name of the cat?",
            vec!["buy bread", "sleep"],
            vec!["feed the cat"],
        ),
    ] {
        op.say(&chat, "t", words).await;
        let answers = if words.ends_with('?') { 2 } else { 1 };
        for _ in 0..answers {
            socket.answer().await;
        }
        assert_eq!(kept(&iris).await, by_iris, "{words}");
        assert_eq!(kept(&bo).await, by_bo, "{words}");
    }
    for words in ["Cancel my bread reminder.", "@Bo cancel my cat reminder."] {
        op.say(&chat, "t", words).await;
        socket.answer().await;
    }
    assert_eq!((kept(&iris).await.len(), kept(&bo).await.len()), (1, 0));
    // What each heeded is learned before it answers again.
    op.say(&chat, "t", "Where is the boat?").await;
    socket.answer().await;
    socket.answer().await;
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
