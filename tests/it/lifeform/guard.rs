//! How a lifeform is kept from hurting itself (MISSION L5): storms, loops through canvases, stuck answers, poisoned
//! memories.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Socket, TestDaemon, honest, text_of};

fn last_of(request: &ChatRequest) -> String {
    request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default()
}

async fn live(daemon: &TestDaemon, chat: &str) -> Socket {
    let mut socket = daemon.operator.subscribe(chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    socket
}

fn finished(frame: &Value) -> bool {
    frame["kind"] == "message.finish"
}

#[tokio::test]
async fn the_guard_meets_a_storm_in_steps_and_returns_to_calm() {
    let configure = |config: &mut runtime::Config| {
        config.guard.acts_per_min = 3;
        (config.guard.step_s, config.guard.calm_s, config.guard.quarantine_s) = (10, 60, 300);
    };
    let daemon = TestDaemon::builder().config(configure).start(honest).await;
    let op = &daemon.operator;
    let definition = json!({"name": "Iris", "metabolism": {"beat_ms": 1000}});
    let made = op.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    op.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    let step = async || op.get(&life).await.expect(StatusCode::OK)["guard"].clone();
    let comes_to = async |name: &str, by_ms: i64| {
        daemon.clock.advance_ms(by_ms);
        loop {
            let guard = step().await;
            if guard["step"] == name {
                return guard;
            }
            tests::again().await;
        }
    };
    for n in 0..4 {
        op.say(&chat, "t", &format!("Number {n}?")).await;
        socket.until(finished).await;
    }
    let guard = comes_to("coalesce", 1_000).await;
    assert_eq!(
        (&guard["evidence"]["sign"], guard["evidence"]["counted"]["acts_per_min"].as_u64()),
        (&json!("seizure"), Some(4))
    );
    comes_to("inhibit", 11_000).await;
    // Said at once, answered at the next beat, by the inhibitory fascicle.
    let said = op.say(&chat, "t", "Number 4?").await;
    let answers = async || {
        let messages = op.get(&format!("{chat}/topics/t/messages")).await.expect(StatusCode::OK);
        messages["messages"].as_array().unwrap().iter().filter(|message| message["content"] == "I do not know.").count()
    };
    // A beat after it was heard; a few seconds at most, or the next step would be taken.
    'answered: for _ in 0..5 {
        daemon.clock.advance_ms(1_000);
        for _ in 0..300 {
            if answers().await == 5 {
                break 'answered;
            }
        }
    }
    let job = format!("/v1/jobs/{}.t.r{}", made["id"].as_str().unwrap(), said["rev"]);
    assert_eq!(op.get(&job).await.expect(StatusCode::OK)["fascicle"], "inhibit");
    comes_to("quarantine", 10_000).await;
    op.say(&chat, "t", "Number 5?").await;
    let reflex = socket.until(|frame| frame["kind"] == "message.append" && frame["actor"]["kind"] == "lifeform").await;
    assert!(text_of(reflex.last().unwrap()).contains("Too much came at once"), "{:?}", reflex.last());
    // An operator ends it, and what waited is answered.
    op.delete(&format!("{life}/guard")).await.expect(StatusCode::OK);
    socket.until(finished).await;
    assert_eq!(step().await["step"], "calm");
    let trace = op.get(&format!("{life}/trace?limit=200")).await.expect(StatusCode::OK);
    let told: Vec<&Value> = trace["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["data"]["what"] == "guard")
        .map(|entry| &entry["data"]["guard"]["step"])
        .collect();
    assert_eq!(told, ["coalesce", "inhibit", "quarantine"]);
    // Left in peace, a storm is over by itself.
    for n in 6..9 {
        op.say(&chat, "t", &format!("Number {n}?")).await;
        socket.until(finished).await;
    }
    comes_to("coalesce", 1_000).await;
    loop {
        daemon.clock.advance_ms(30_000);
        if step().await["step"] == "calm" {
            break;
        }
    }
}

/// Two lifeforms that call each other with all they say: the loop that every agent platform fears.
#[tokio::test]
async fn two_lifeforms_that_call_each_other_are_contained() {
    let daemon = TestDaemon::start(|request, _| match request.response_format.is_some() {
        true => Reply::Text(r#"{"facts":[]}"#.into()),
        // Each calls the other, whoever it is.
        false => Reply::Text(format!("@Bo @Iris and {}", last_of(request).len())),
    })
    .await;
    let (iris, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    let made = op.post("/v1/lifeforms", json!({"definition": "first", "name": "Bo"})).await.expect(StatusCode::CREATED);
    let bo = made["id"].as_str().unwrap().to_owned();
    op.post(&format!("/v1/lifeforms/{bo}/start"), json!({})).await.expect(StatusCode::OK);
    let mut socket = live(&daemon, &chat).await;
    op.put(&format!("{chat}/members/{bo}"), json!({})).await.expect(StatusCode::NO_CONTENT);
    socket.until(|frame| frame["kind"] == "user.name").await;
    op.post_ops(&chat, vec![json!({"kind": "topic.create", "id": "t", "title": "t"})]).await.expect(StatusCode::OK);
    let begun = std::time::Instant::now();
    op.say(&chat, "t", "@Bo please say hello").await;
    // It ends by itself. That nothing comes any more is told by something that comes after it.
    let idle = async || {
        let mut calm = 0;
        while calm < 200 {
            let before = daemon.model.asked().len();
            tests::again().await;
            op.get(&chat).await.expect(StatusCode::OK);
            calm = if daemon.model.asked().len() == before { calm + 1 } else { 0 };
        }
    };
    idle().await;
    let messages = op.get(&format!("{chat}/topics/t/messages")).await.expect(StatusCode::OK);
    let messages = messages["messages"].as_array().unwrap();
    let spent = async |id: &str| {
        let resources = op.get(&format!("/v1/lifeforms/{id}/resources")).await.expect(StatusCode::OK);
        resources["spent"]["tokens"].as_i64().unwrap()
    };
    let lost = spent(&iris).await + spent(&bo).await;
    println!("a loop of two lifeforms: {} messages, {lost} tokens, {:?}", messages.len(), begun.elapsed());
    assert!(messages.len() <= 9, "{} messages: {messages:#?}", messages.len());
    // A person's word makes them speak again.
    op.say(&chat, "t", "@Bo once more").await;
    socket.until(finished).await;
}

#[tokio::test]
async fn an_answer_that_is_stuck_is_given_up_and_told() {
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let held = gate.clone();
    let daemon = TestDaemon::start(move |request, n| match n {
        0 => Reply::Held("It begins ".into(), held.clone(), "and never ends".into()),
        _ => honest(request, n),
    })
    .await;
    let (_, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    op.say(&chat, "t", "Well?").await;
    socket.until(|frame| frame["t"] == "stream").await;
    daemon.clock.advance_ms(16 * 60_000);
    let broken = socket.until(|frame| frame["kind"] == "message.interrupt").await;
    assert!(broken.last().unwrap()["patch"].to_string().contains("did not come to its end"), "{:?}", broken.last());
    op.say(&chat, "t", "And now?").await;
    socket.until(finished).await;
    gate.notify_waiters();
}

/// The evidence by which the guard of a lifeform, configured so, intervenes while `bring` is done to it.
async fn evidence(configure: fn(&mut runtime::Config), bring: impl AsyncFn(&TestDaemon, &str)) -> Value {
    let daemon = TestDaemon::builder().config(configure).start(|request, n| {
        let told = last_of(request);
        let step =
            json!({"plan": [], "say": "", "status": "active", "again_in_minutes": 0, "subgoals": [], "schedules": []});
        if told.starts_with("What you have set out to do") { Reply::Text(step.to_string()) } else { honest(request, n) }
    })
    .await;
    let (id, _) = daemon.lifeform().await;
    let life = format!("/v1/lifeforms/{id}");
    bring(&daemon, &life).await;
    loop {
        let guard = daemon.operator.get(&life).await.expect(StatusCode::OK)["guard"].take();
        if guard["step"] != "calm" {
            return guard["evidence"].clone();
        }
        daemon.clock.advance_ms(500);
        tests::again().await;
    }
}

#[tokio::test]
async fn each_bound_of_the_guard_is_the_configured_one() {
    let talk = async |daemon: &TestDaemon, life: &str| {
        let chat = format!("{life}/canvases/canvas_chat_main");
        daemon.operator.topic(&chat, "t").await;
        for n in 0..4 {
            daemon.operator.say(&chat, "t", &format!("Number {n}.")).await;
        }
    };
    let heard = evidence(|config| config.guard.heard_per_min = 3, talk).await;
    assert_eq!((&heard["sign"], &heard["counted"]["heard_per_min"]), (&json!("seizure"), &json!(4)), "{heard}");
    assert_eq!(heard["limits"]["heard_per_min"], 3);

    let plan = async |daemon: &TestDaemon, life: &str| {
        for n in 0..30 {
            let goal = json!({"title": format!("Goal {n}"), "at": "2026-01-01T00:00:10Z"});
            daemon.operator.post(&format!("{life}/goals"), goal).await.expect(StatusCode::CREATED);
        }
        daemon.clock.advance_ms(15_000);
    };
    let branching = evidence(|config| config.guard.branching = 2, plan).await;
    assert_eq!((&branching["sign"], &branching["limits"]["branching"]), (&json!("seizure"), &json!(2)), "{branching}");
    assert!(branching["counted"]["branching"].as_f64() > Some(2.0), "{branching}");

    // What a participant set is bounded by its share, and brings no quarantine upon the others.
    let of_ada = async |daemon: &TestDaemon, life: &str| {
        let ada = daemon.person("user:ada", "participant").await;
        let goal = json!({"title": "Hers", "at": "2026-01-01T00:00:10Z"});
        let set = ada.post(&format!("{life}/goals"), goal).await.expect(StatusCode::CREATED);
        let path = format!("{life}/goals/{}", set["id"].as_str().unwrap());
        daemon.clock.advance_ms(15_000);
        loop {
            let goal = daemon.operator.get(&path).await.expect(StatusCode::OK);
            if goal["pursued"] == 1 && goal["job"].is_null() {
                break;
            }
            tests::again().await;
        }
        // What it looks at comes a beat later, and the house's own goal, which does bleed, after that.
        daemon.clock.advance_ms(60_000);
        assert_eq!(daemon.operator.get(life).await.expect(StatusCode::OK)["guard"]["step"], "calm");
        plan(daemon, life).await;
    };
    let later = evidence(|config| config.guard.unasked_tokens_per_hour = 20, of_ada).await;
    assert_eq!(later["sign"], "bleeding", "{later}");

    let bleeding = evidence(|config| config.guard.unasked_tokens_per_hour = 20, plan).await;
    assert_eq!(bleeding["sign"], "bleeding", "{bleeding}");
    assert!(bleeding["counted"]["unasked_tokens_per_hour"].as_u64() > Some(20), "{bleeding}");
}

#[tokio::test]
async fn a_memory_on_which_answers_fail_is_set_apart_and_told() {
    for (configured, failures) in [(None, 3), (Some(5), 5)] {
        is_set_apart_after(configured, failures).await;
    }
}

async fn is_set_apart_after(poison_after: Option<u32>, expected: usize) {
    let configure = move |config: &mut runtime::Config| {
        config.guard.poison_after = poison_after.unwrap_or(config.guard.poison_after);
    };
    let daemon = TestDaemon::builder()
        .config(configure)
        .start(|request, n| {
            let poisoned = request.messages.iter().any(|message| {
                message.role == "system" && message.content.as_deref().is_some_and(|text| text.contains("xyzzy"))
            });
            match poisoned && request.response_format.is_none() {
                true => Reply::Status(400, "this cannot be said".into()),
                false => honest(request, n),
            }
        })
        .await;
    let (id, chat) = daemon.lifeform().await;
    let op = &daemon.operator;
    let mut socket = live(&daemon, &chat).await;
    op.topic(&chat, "t").await;
    op.say(&chat, "t", "My parrot is called xyzzy.").await;
    socket.until(finished).await;
    let settled =
        |frame: &Value| finished(frame) || frame["kind"] == "message.interrupt" || frame["kind"] == "message.append";
    let mut failures = 0;
    for n in 0..12 {
        op.topic(&chat, &format!("q{n}")).await;
        op.say(&chat, &format!("q{n}"), "What is my parrot called?").await;
        let mine = |frame: &Value| settled(frame) && frame["actor"]["kind"] == "lifeform";
        let ended = socket.until(mine).await;
        // An answer that fails says why.
        let told = text_of(ended.last().unwrap());
        if !told.starts_with("I could not answer") {
            assert_eq!(told, "I do not know.");
            break;
        }
        failures += 1;
        // Others succeed meanwhile.
        op.topic(&chat, &format!("o{n}")).await;
        op.say(&chat, &format!("o{n}"), "Hello?").await;
        socket.until(finished).await;
    }
    assert_eq!(failures, expected, "after so many failures it comes to mind no more");
    let trace = op.get(&format!("/v1/lifeforms/{id}/trace?limit=200")).await.expect(StatusCode::OK);
    assert!(trace.to_string().contains("memory set apart"), "{trace}");
}
