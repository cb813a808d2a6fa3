//! What a lifeform does without being asked: goals, schedules, quiet hours; and how it sleeps when there is nothing to
//! do (MISSION L1, L2).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Socket, TestDaemon, honest, text_of};

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

pub(super) fn step(say: &str, status: &str, again_in_minutes: u32) -> Value {
    json!({
        "plan": ["look", "tell"],
        "say": say,
        "status": status,
        "again_in_minutes": again_in_minutes,
        "subgoals": [],
        "schedules": [],
    })
}

pub(super) async fn born(daemon: &TestDaemon, definition: Value) -> (String, String) {
    let made =
        daemon.operator.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    daemon.operator.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    (life, chat)
}

pub(super) async fn live(daemon: &TestDaemon, chat: &str) -> Socket {
    let mut socket = daemon.operator.subscribe(chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    socket
}

pub(super) fn says(topic: &'static str) -> impl Fn(&Value) -> bool {
    move |frame| {
        let is_there = frame["patch"].to_string().contains(&format!("/topics/{topic}/messages"));
        is_there && matches!(frame["kind"].as_str(), Some("message.append" | "message.finish"))
    }
}

#[tokio::test]
async fn a_due_goal_opens_a_topic_and_resumes_after_an_answer() {
    let daemon = TestDaemon::start(planning(|told| match told {
        told if told.contains("operator said: The red one") => step("Thank you, it is booked.", "done", 0),
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
    assert_eq!((&goal["plan"][0]["what"], &goal["plan"][1]["status"]), (&json!("look"), &json!("todo")));
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
    // It kept what it had done once it came to an end, and not while it waited for the answer.
    let kept = loop {
        let kept = op.get("/v1/knowledge?types=Trace").await.expect(StatusCode::OK);
        if kept["data"].as_array().unwrap().len() == 1 {
            break kept;
        }
        tests::again().await;
    };
    let succeeded = |trace: &Value| trace["metadata"]["success"].as_bool();
    let outcomes: Vec<_> = kept["data"].as_array().unwrap().iter().map(succeeded).collect();
    assert_eq!(outcomes, [Some(true)], "{kept}");
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
    let daemon = TestDaemon::start(planning(|told| {
        let title = told.lines().find(|line| line.starts_with("<title>")).unwrap();
        step(&format!("now: {title}"), "active", 0)
    }))
    .await;
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
    let daemon = TestDaemon::start(planning(|told| match told.contains("<title>Learn to sail</title>") {
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
    let (life, chat) = born(&daemon, json!({"name": "Iris", "initiative": {"upkeep": false}})).await;
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
