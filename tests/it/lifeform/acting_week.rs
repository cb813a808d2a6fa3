//! A week in which a lifeform acts for two people, on a clock that is moved: the transcript stands in `benches/act/week.md`.

use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, text_of};

use super::acting::{acting, planned};
use super::given_tools::World;
use super::goals::says;

const HOUR_MS: i64 = 3_600_000;

/// The steps of a goal, by its title.
fn steps_of(title: &str) -> Value {
    let step = |id: &str, after: Value, tool: &str, given: Value| {
        let what = format!("Do {}", json!({tool: given}));
        let with = (tool != "places").then(|| given.to_string());
        json!({"id": id, "what": what, "tools": [tool], "after": after, "with": with})
    };
    match title {
        "Book V-212 a berth and keep a note" => json!([
            step("a", json!([]), "places", json!({})),
            step("b", json!(["a"]), "book", json!({"slot": "B4", "vessel": "V-212"})),
            step("c", json!(["b"]), "note", json!({"text": "V-212 is at B4"})),
        ]),
        "给两条船订泊位" => json!([
            step("a", json!([]), "book", json!({"slot": "C1", "vessel": "V-7"})),
            step("b", json!([]), "book", json!({"slot": "C2", "vessel": "V-8"})),
        ]),
        "Pay the harbour fee" => json!([step("a", json!([]), "fee", json!({"sum": 40}))]),
        "看看还有哪些泊位" => json!([step("a", json!([]), "places", json!({}))]),
        _ => json!([
            step("a", json!([]), "note", json!({"text": "V-212 leaves"})),
            step("b", json!(["a"]), "book", json!({"slot": "D9", "vessel": "V-212"})),
        ]),
    }
}

/// A model that plans by the title of a goal.
fn plan(task: &str) -> Reply {
    let title = task.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or_default();
    match task.contains("all steps of the plan are done") {
        true => planned(json!([]), if title.is_ascii() { "All of it is done." } else { "都办好了。" }, "done"),
        false => planned(without_nulls(steps_of(title)), "", "active"),
    }
}

fn without_nulls(mut steps: Value) -> Value {
    let each = steps.as_array_mut().unwrap().iter_mut();
    each.for_each(|step| step.as_object_mut().unwrap().retain(|_, member| !member.is_null()));
    steps
}

struct Week {
    world: World,
    hour: i64,
    lines: Vec<String>,
}

impl Week {
    fn write(&mut self, who: &str, words: &str) {
        let (day, hour) = (self.hour / 24, self.hour % 24);
        let name = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][day as usize % 7];
        self.lines
            .push(format!("| {name} {hour:02}:00 | {who} | {} |", words.replace('\n', " / ").replace('|', "\\|")));
    }

    /// Moves the clock to an hour of the week.
    fn until(&mut self, hour: i64) {
        self.world.daemon.clock.advance_ms((hour - self.hour) * HOUR_MS);
        self.hour = hour;
    }

    async fn next(&mut self, topic: &'static str) -> String {
        let lifeforms = move |frame: &Value| says(topic)(frame) && frame["actor"]["kind"] == "lifeform";
        let said = text_of(self.world.socket.until(lifeforms).await.last().unwrap());
        self.write("Iris", &said);
        said
    }

    async fn say(&mut self, who: &Client, name: &str, topic: &'static str, words: &str) -> String {
        self.write(name, words);
        who.say(&self.world.chat, topic, words).await;
        self.next(topic).await
    }

    /// Sets a goal in a talk.
    async fn set(&mut self, who: &Client, name: &str, topic: &'static str, title: &str) {
        let words = format!("goal {}?", json!({"action": "create", "title": title}));
        let said = self.say(who, name, topic, &words).await;
        assert!(said.contains("The tool answered"), "{said}");
    }
}

#[tokio::test]
async fn a_week_in_which_a_lifeform_acts_for_two_people() {
    let trusts = json!(["user:operator", "user:ada", "user:lin"]);
    let world = World::with(json!({"name": "Iris", "trusts": trusts}), acting(plan)).await;
    world.define_note("/notes").await;
    let fee = json!({"run": {"http": {"method": "POST", "url": format!("http://{}/broken", world.outside.address())}}});
    world.operator().put("/v1/tools/fee", fee).await.expect(StatusCode::CREATED);
    world
        .give(json!([{"use": "places"}, {"use": "book"}, {"use": "note"}, {"use": "fee"}]))
        .await
        .expect(StatusCode::OK);
    let (ada, lin) =
        (world.daemon.person("user:ada", "participant").await, world.daemon.person("user:lin", "participant").await);
    ada.topic(&world.chat, "adas").await;
    lin.topic(&world.chat, "lins").await;
    let mut week = Week { world, hour: 0, lines: Vec::new() };

    // Thursday: a look-up, a call that is asked about, and one that is not.
    week.until(9);
    week.set(&ada, "Ada", "adas", "Book V-212 a berth and keep a note").await;
    let asked = week.next("adas").await;
    assert!(asked.contains("Yes or no") && asked.contains("V-212"), "{asked}");
    let done = week.say(&ada, "Ada", "adas", "Yes.").await;
    assert!(done.contains("All of it is done.") && done.contains("`note"), "{done}");
    // Friday: two calls in one question.
    week.until(34);
    week.set(&lin, "Lin", "lins", "给两条船订泊位").await;
    let asked = week.next("lins").await;
    assert!(asked.contains("C1") && asked.contains("C2"), "{asked}");
    let done = week.say(&lin, "Lin", "lins", "好的").await;
    assert!(done.contains("都办好了"), "{done}");
    // Saturday: the answer is lost, so nobody knows whether it was paid; an operator has looked.
    week.until(58);
    week.set(&ada, "Ada", "adas", "Pay the harbour fee").await;
    week.next("adas").await;
    let unsure = week.say(&ada, "Ada", "adas", "Yes.").await;
    assert!(unsure.contains("I do not know whether"), "{unsure}");
    let op = week.world.operator();
    let waiting = week.world.approvals(&op).await;
    assert_eq!(waiting[0]["calls"][0]["unsure"], true, "{waiting:?}");
    week.write("operator", "(it was done: receipt 7)");
    let path = format!("/v1/approvals/{}", waiting[0]["id"].as_str().unwrap());
    op.post(&path, json!({"decision": "done", "comment": "{\"receipt\": 7}"})).await.expect(StatusCode::OK);
    let done = week.next("adas").await;
    assert!(done.contains("All of it is done."), "{done}");
    // Sunday: only a look.
    week.until(84);
    week.set(&lin, "Lin", "lins", "看看还有哪些泊位").await;
    let done = week.next("lins").await;
    assert!(done.contains("都办好了"), "{done}");
    // Monday: stopped in the middle.
    week.until(108);
    week.set(&ada, "Ada", "adas", "Take V-212 away and book D9").await;
    let asked = week.next("adas").await;
    assert!(asked.contains("D9"), "{asked}");
    week.write("Ada", "(drops the goal)");
    let goals = op.get(&format!("{}/goals", week.world.life)).await.expect(StatusCode::OK);
    let open = goals["goals"].as_array().unwrap().iter().find(|goal| goal["title"] == "Take V-212 away and book D9");
    let path = format!("{}/goals/{}", week.world.life, open.unwrap()["id"].as_str().unwrap());
    op.send(reqwest::Method::PATCH, &path, &[], Some(json!({"status": "dropped"}))).await.expect(StatusCode::OK);
    let stopped = week.next("adas").await;
    assert!(stopped.contains("V-212 leaves"), "{stopped}");

    let effects = op.get(&format!("{}/effects", week.world.life)).await.expect(StatusCode::OK);
    let effects = effects["effects"].as_array().unwrap();
    println!("| time | who | words |\n|---|---|---|\n{}\n", week.lines.join("\n"));
    println!("| effect | state | the words that led to it | by |\n|---|---|---|---|");
    for effect in effects {
        let job = effect["by"].as_str().unwrap().split('/').next().unwrap().to_owned();
        let id = week.world.life.rsplit('/').next().unwrap();
        let walk = op.get(&format!("/v1/lifeforms/{id}/trace?from=job:{job}")).await.expect(StatusCode::OK);
        let back = walk["back"].as_array().unwrap();
        let by_person = |step: &&Value| {
            step["data"]["op"]["kind"] == "message.append"
                && step["by"].as_str().is_some_and(|by| by.starts_with("user:"))
        };
        let said = back.iter().rfind(by_person).unwrap_or_else(|| panic!("{walk}"));
        let words = said["data"]["op"]["content"].as_str().unwrap();
        assert!(words.starts_with("goal "), "{words}");
        println!(
            "| {} {} | {} | {words} | {} |",
            effect["tool"].as_str().unwrap(),
            effect["arguments"].as_str().unwrap(),
            effect["state"].as_str().unwrap(),
            said["by"].as_str().unwrap()
        );
    }
    let sent = week.world.outside.seen();
    let posts: Vec<&Value> = sent.iter().filter(|seen| seen.what.starts_with("POST")).map(|seen| &seen.body).collect();
    let mut bodies: Vec<String> = posts.iter().map(ToString::to_string).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!((bodies.len(), posts.len(), effects.len()), (6, 6, 6), "each once: {posts:?}");
    let report = op.get(&format!("{}/resources/report", week.world.life)).await.expect(StatusCode::OK);
    println!("\n| goal | calls of the model | tokens |\n|---|---|---|");
    for (goal, tally) in report["by"]["goal"].as_object().into_iter().flatten() {
        println!("| {goal} | {} | {} |", tally["calls"], tally["charged"]["tokens"]);
    }
}
