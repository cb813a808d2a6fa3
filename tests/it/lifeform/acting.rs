//! Goals that a lifeform carries out with outside tools: the plan as data, its waves, the questions on the way, and what a
//! person sees of it (MISSION L2, N4).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::text_of;

use super::given_tools::World;
use super::goals::says;

/// Returns the task that a model is shown, and the results of the tools since.
pub(super) fn shown(request: &ChatRequest) -> (String, Vec<String>) {
    let last = request.messages.iter().rposition(|message| message.role == "user").unwrap_or_default();
    let task = request.messages[last].content.clone().unwrap_or_default();
    let results = request.messages[last..].iter().filter(|message| message.role == "tool");
    (task, results.filter_map(|message| message.content.clone()).collect())
}

pub(super) fn call(n: usize, name: &str, arguments: &Value) -> Reply {
    Reply::Tools(vec![(format!("c{n}_{name}"), name.to_owned(), arguments.to_string())])
}

pub(super) fn finalize(status: &str, result: &str, values: Value) -> Reply {
    call(9, "finalize_output", &json!({"status": status, "result": result, "values": values}))
}

pub(super) fn planned(steps: Value, say: &str, status: &str) -> Reply {
    let plan = json!({"steps": steps, "say": say, "status": status, "again_in_minutes": 0, "subgoals": []});
    Reply::Text(plan.to_string())
}

/// A model that plans with `plan`, and in a step calls what its line names in braces, as in `Book {"book": {…}}`, once.
pub(super) fn acting(
    plan: impl Fn(&str) -> Reply + Send + Sync + 'static,
) -> impl Fn(&ChatRequest, usize) -> Reply + Send + Sync {
    move |request, n| {
        let (task, results) = shown(request);
        if task.starts_with("What you have set out to do") {
            return plan(&task);
        }
        if !task.starts_with("A step of") {
            return super::mind::obedient(request, n);
        }
        let step = task.split("<step>").nth(1).and_then(|rest| rest.split("</step>").next()).unwrap_or_default();
        let named = step.find('{').and_then(|at| serde_json::from_str::<Value>(&step[at..]).ok());
        let call_of = named.as_ref().and_then(Value::as_object).and_then(|named| named.iter().next());
        match (call_of, results.last()) {
            (Some((name, arguments)), None) => call(results.len(), name, arguments),
            (_, Some(result)) if result.contains("error") => finalize("need", result, json!([])),
            (_, Some(result)) => finalize("done", result, json!([{"name": "slot", "value": "B4"}])),
            (None, None) => finalize("done", "thought about", json!([])),
        }
    }
}

impl World {
    pub(super) async fn set_goal(&self, goal: Value) -> String {
        let set = self.daemon.operator.post(&format!("{}/goals", self.life), goal).await.expect(StatusCode::CREATED);
        set["id"].as_str().unwrap().to_owned()
    }

    pub(super) async fn goal(&self, id: &str) -> Value {
        self.daemon.operator.get(&format!("{}/goals/{id}", self.life)).await.expect(StatusCode::OK)
    }

    /// Waits until the goal has a status and no job.
    pub(super) async fn settled(&self, id: &str, status: &str) -> Value {
        loop {
            let goal = self.goal(id).await;
            if goal["status"] == status && goal["job"].is_null() {
                return goal;
            }
            tests::again().await;
        }
    }

    pub(super) async fn said_in(&mut self, topic: &'static str) -> String {
        let lifeforms = move |frame: &Value| says(topic)(frame) && frame["actor"]["kind"] == "lifeform";
        text_of(self.socket.until(lifeforms).await.last().unwrap())
    }

    /// Defines the tool `note`, which posts to a path of the outside without a question.
    pub(super) async fn define_note(&self, path: &str) {
        let url = format!("http://{}{path}", self.outside.address());
        let note = json!({"approval": "never", "run": {"http": {"method": "POST", "url": url}}});
        let defined = self.operator().put("/v1/tools/note", note).await;
        assert!(defined.status.is_success(), "{}", defined.body);
    }

    pub(super) fn plans_made(&self) -> usize {
        let asked = self.daemon.model.asked();
        asked.iter().filter(|request| shown(request).0.starts_with("What you have set out to do")).count()
    }
}

pub(super) fn steps_of(goal: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    goal["plan"].as_array().unwrap().iter().map(|step| (text(&step["id"]), text(&step["status"]))).collect()
}

#[tokio::test]
async fn a_goal_is_carried_out_step_by_step_with_outside_tools() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "It is booked.", "done"),
        false => planned(
            json!([
                {"id": "look", "what": "Look {\"places\": {}}", "tools": ["places"]},
                {"what": "Book {\"book\": {\"slot\": \"B4\"}}", "after": ["look"], "tools": ["book"]},
            ]),
            "",
            "active",
        ),
    };
    let tools = json!([{"use": "places"}, {"use": "book"}]);
    let mut world = World::with(json!({"name": "Iris", "tools": tools}), acting(plan)).await;
    let op = world.operator();
    let goal = world.set_goal(json!({"title": "Book a place"})).await;
    // The write is asked about, with exactly what is sent; nothing is sent before, and the goal shows what it does.
    let question = world.said_in("goal_g1").await;
    assert!(question.contains("Yes or no") && question.contains(r#"`book {"slot":"B4"}`"#), "{question}");
    assert_eq!(world.outside.seen().len(), 1);
    let waiting = world.goal(&goal).await;
    assert_eq!(steps_of(&waiting), [("s1".into(), "done".into()), ("s2".into(), "doing".into())]);
    assert_eq!(waiting["plan"][0]["values"], json!({"slot": "B4"}));
    assert_eq!(world.approvals(&op).await[0]["calls"][0]["tool"], "book");
    op.say(&world.chat, "goal_g1", "Yes.").await;
    let report = world.said_in("goal_g1").await;
    assert!(report.starts_with("It is booked.") && report.contains(r#"`book {"slot":"B4"}`: done"#), "{report}");
    let done = world.settled(&goal, "done").await;
    assert_eq!(steps_of(&done), [("s1".into(), "done".into()), ("s2".into(), "done".into())]);
    let seen = world.outside.seen();
    assert_eq!((seen.len(), &seen[1].body), (2, &json!({"slot": "B4"})));
    // A wave of a plan that stands asks no model to plan: it was planned once, and reported once.
    assert_eq!(world.plans_made(), 2);
    let effects = op.get(&format!("{}/effects", world.life)).await.expect(StatusCode::OK);
    assert_eq!(done["plan"][1]["effects"], json!([effects["effects"][0]["id"]]));
    assert!(effects["effects"][0]["work"].as_str().unwrap().ends_with("/goal/g1/s2"), "{effects}");
    // What is kept of it are the calls as they ran, and no words of the plan's model.
    let trace = loop {
        let units = op.get("/v1/knowledge?limit=100").await.expect(StatusCode::OK);
        match units["data"].as_array().unwrap().iter().find(|unit| unit["@type"] == "Trace") {
            Some(trace) => break trace.clone(),
            None => tests::again().await,
        }
    };
    let made = trace["steps"].as_array().unwrap().iter().map(|step| {
        (step["type"].clone(), step["tool"]["name"].clone(), step["input"].clone(), step["output_summary"].clone())
    });
    let call = |tool: &str, input: Value| (json!("tool_call"), json!(tool), input, json!("done"));
    assert_eq!(made.collect::<Vec<_>>(), [call("places", json!({})), call("book", json!({"slot": "B4"}))], "{trace}");
    assert!(trace["steps"][0]["latency_ms"].is_number() && trace["metadata"]["success"] == true, "{trace}");
    // A step sees its own tools, and none of the others.
    let step = world.daemon.model.asked().into_iter().find(|request| shown(request).0.contains("<step>Look")).unwrap();
    let names: Vec<&str> = step.tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    assert_eq!(names, ["calculate", "date", "knowledge_search", "fascicle_run", "places", "finalize_output"]);
    let cards = world.daemon.model.asked().into_iter().find(|request| shown(request).0.contains("<tools>")).unwrap();
    assert!(shown(&cards).0.contains("- book()! Is book.") && shown(&cards).0.contains("- places() Is places."));
}

#[tokio::test]
async fn a_step_assembles_a_network_for_itself() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "Compared.", "done"),
        false => planned(json!([{"what": "Compare the harbours", "tools": ["places"]}]), "", "active"),
    };
    let reader = |id: &str| json!({"id": id, "run": {"neuron": {"spec": {"kind": "tool_augmented", "memory": "You are a reader.", "tools": [{"name": "places"}]}}}});
    let both = json!({"id": "both", "after": ["one", "two"], "run": {"join": "list"}});
    let spec = json!({"output": "both", "nodes": [reader("one"), reader("two"), both]});
    let (acts, run) = (acting(plan), json!({"spec": spec, "input": "Look twice.", "why": "two looks"}));
    let model = move |request: &ChatRequest, n: usize| match (shown(request), request.messages[0].content.as_deref()) {
        ((task, results), _) if task.contains("<step>Compare") && results.is_empty() => call(0, "fascicle_run", &run),
        ((_, results), Some("You are a reader.")) if results.is_empty() => call(0, "places", &json!({})),
        ((_, results), Some("You are a reader.")) => Reply::Text(results.concat()),
        _ => acts(request, n),
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "places"}]}), model).await;
    let goal = world.set_goal(json!({"title": "Compare two places"})).await;
    let said = world.said_in("goal_g1").await;
    assert!(said.starts_with("Compared."), "{said}");
    let done = world.settled(&goal, "done").await;
    assert_eq!(world.outside.seen().len(), 2, "each reader looked once");
    assert!(done["plan"][0]["result"].as_str().unwrap().contains("here is /places"), "{done}");
    let jobs = world.operator().get("/v1/jobs").await.expect(StatusCode::OK);
    let jobs = jobs["jobs"].as_array().unwrap().iter().filter(|job| job["fascicle"] == "assembled");
    assert_eq!(jobs.count(), 1);
}

#[tokio::test]
async fn a_faulty_plan_is_not_taken_and_the_model_reads_why() {
    let plan = |_: &str| planned(json!([{"what": "Fly", "tools": ["fly"]}]), "", "active");
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "places"}]}), acting(plan)).await;
    let goal = world.set_goal(json!({"title": "Fly"})).await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains("I do not get on") && question.contains("there is no tool fly"), "{question}");
    assert_eq!(world.settled(&goal, "blocked").await["plan"], json!([]));
    assert_eq!(world.plans_made(), 2);
    let last = world.daemon.model.asked().last().unwrap().clone();
    assert!(shown(&last).0.contains("<fault>steps[0]: there is no tool fly"), "{}", shown(&last).0);
}

#[tokio::test]
async fn a_step_that_fails_is_planned_again_and_no_loop_goes_on() {
    let plan = |_: &str| {
        planned(json!([{"id": "s1", "what": "Book {\"gone\": {\"slot\": \"B4\"}}", "tools": ["gone"]}]), "", "active")
    };
    let mut world = World::with(json!({"name": "Iris"}), acting(plan)).await;
    let url = format!("http://{}/gone", world.outside.address());
    let gone = json!({"approval": "never", "run": {"http": {"method": "POST", "url": url}}});
    world.operator().put("/v1/tools/gone", gone).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "gone"}])).await.expect(StatusCode::OK);
    let goal = world.set_goal(json!({"title": "Book"})).await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains("I do not get on") && question.contains("something is missing"), "{question}");
    let blocked = world.settled(&goal, "blocked").await;
    assert_eq!(blocked["plan"][0]["status"], "todo");
    assert!(world.outside.seen().len() <= 2, "{}", world.outside.seen().len());
}

#[tokio::test]
async fn words_of_a_model_are_no_effect() {
    let plan = |task: &str| match task.contains("a step of the plan failed") {
        true => planned(json!([]), "I could not book.", "blocked"),
        false => planned(json!([{"what": "Book a place", "tools": ["book"]}]), "", "active"),
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    let goal = world.set_goal(json!({"title": "Book"})).await;
    assert_eq!(world.said_in("goal_g1").await, "I could not book.");
    let blocked = world.settled(&goal, "blocked").await;
    let failed = world.daemon.model.asked().last().unwrap().clone();
    assert!(shown(&failed).0.contains("nothing was done outside: thought about"), "{}", shown(&failed).0);
    assert_eq!(blocked["plan"][0]["status"], "skipped");
}

#[tokio::test]
async fn a_goal_asks_before_it_uses_more_tokens() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "I thought.", "done"),
        false => planned(json!([{"id": "a", "what": "One"}, {"what": "Two", "after": ["a"]}]), "", "active"),
    };
    let definition = json!({"name": "Iris", "acting": {"budget_tokens": 1_000}});
    let mut world = World::with(definition, acting(plan)).await;
    let long = "x".repeat(3_900);
    let goal = world.set_goal(json!({"title": "Think", "description": long})).await;
    let told = world.said_in("goal_g1").await;
    assert!(told.contains("tokens") && told.contains("Yes or no"), "{told}");
    world.settled(&goal, "blocked").await;
    let calls = world.daemon.model.asked().len();
    world.operator().say(&world.chat, "goal_g1", "yes").await;
    assert_eq!(world.said_in("goal_g1").await, "I thought.");
    assert!(world.daemon.model.asked().len() > calls);
}

#[tokio::test]
async fn a_stopped_goal_says_what_was_done_and_what_was_not() {
    let plan = |_: &str| {
        planned(
            json!([
                {"id": "a", "what": "Write {\"note\": {\"n\": 1}}", "tools": ["note"]},
                {"id": "b", "what": "Book {\"book\": {\"slot\": \"B4\"}}", "after": ["a"], "tools": ["book"]},
                {"what": "Tell about it", "after": ["b"]},
            ]),
            "",
            "active",
        )
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    world.define_note("/notes").await;
    world.give(json!([{"use": "note"}, {"use": "book"}])).await.expect(StatusCode::OK);
    let goal = world.set_goal(json!({"title": "Book a place"})).await;
    assert!(world.said_in("goal_g1").await.contains("Yes or no"));
    let path = format!("{}/goals/{goal}", world.life);
    world.operator().patch(&path, json!({"status": "dropped"})).await.expect(StatusCode::OK);
    let report = world.said_in("goal_g1").await;
    assert!(report.starts_with("I stopped: Book a place"), "{report}");
    assert!(report.contains(r#"`note {"n":1}`: done"#) && report.contains("Tell about it: not done"), "{report}");
    assert_eq!(world.outside.seen().len(), 1);
    assert!(world.approvals(&world.operator()).await.is_empty());
}

#[tokio::test]
async fn calls_for_a_stranger_wait_for_an_operator() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "It is noted.", "done"),
        false => planned(json!([{"what": "Write {\"note\": {\"n\": 1}}", "tools": ["note"]}]), "", "active"),
    };
    let mut world = World::with(json!({"name": "Iris"}), acting(plan)).await;
    world.define_note("/notes").await;
    world.give(json!([{"use": "note"}])).await.expect(StatusCode::OK);
    let eve = world.daemon.person("user:eve", "participant").await;
    let set = eve.post(&format!("{}/goals", world.life), json!({"title": "Note it"})).await;
    set.expect(StatusCode::CREATED);
    let told = world.said_in("goal_g1").await;
    assert!(told.contains("an operator's approval") && !told.contains("\"n\""), "{told}");
    eve.say(&world.chat, "goal_g1", "Yes.").await;
    let told = world.said_in("goal_g1").await;
    assert!(told.contains("an operator's approval"), "{told}");
    assert!(world.outside.seen().is_empty());
    let id = world.approvals(&world.operator()).await[0]["id"].as_str().unwrap().to_owned();
    let approve = json!({"decision": "approve"});
    world.operator().post(&format!("/v1/approvals/{id}"), approve).await.expect(StatusCode::OK);
    assert!(world.said_in("goal_g1").await.starts_with("It is noted."));
    assert_eq!(world.outside.seen().len(), 1);
    // What was done for one person is no reason to ask another.
    let own = world.set_goal(json!({"title": "Note it"})).await;
    world.settled(&own, "done").await;
    assert_eq!(world.outside.seen().len(), 2);
}

#[tokio::test]
async fn a_schedule_that_takes_steps_becomes_a_goal() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "Here are the places.", "done"),
        false => planned(json!([{"what": "Look {\"places\": {}}", "tools": ["places"]}]), "", "active"),
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "places"}]}), acting(plan)).await;
    let schedule = json!({"what": "Look for places", "at": "2026-01-01T00:30:00Z"});
    let path = format!("{}/schedules", world.life);
    world.operator().post(&path, schedule).await.expect(StatusCode::CREATED);
    world.daemon.clock.advance_ms(3_600_000);
    assert_eq!(world.said_in("goal_g2").await, "Here are the places.");
    assert_eq!(world.settled("g2", "done").await["by"], "user:operator");
}

#[tokio::test]
async fn other_words_withdraw_a_call_of_a_goal() {
    let plan = |task: &str| match (task.contains("all steps of the plan are done"), task.contains("three nights")) {
        (true, _) => planned(json!([]), "It is booked.", "done"),
        (_, changed) => {
            let nights = if changed { 3 } else { 2 };
            let what = format!("Book {}", json!({"book": {"nights": nights}}));
            planned(json!([{"what": what, "tools": ["book"]}]), "", "active")
        }
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    let op = world.operator();
    let goal = world.set_goal(json!({"title": "Book a place"})).await;
    assert!(world.said_in("goal_g1").await.contains(r#"{"nights":2}"#));
    op.say(&world.chat, "goal_g1", "No, make it three nights please.").await;
    let question = loop {
        let said = world.said_in("goal_g1").await;
        if said.contains("Yes or no") {
            break said;
        }
    };
    assert!(question.contains(r#"{"nights":3}"#), "{question}");
    let waiting = world.approvals(&op).await;
    assert_eq!((waiting.len(), &waiting[0]["calls"][0]["arguments"]), (1, &json!({"nights": 3})));
    op.post(&format!("/v1/approvals/{}", waiting[0]["id"].as_str().unwrap()), json!({"decision": "approve"}))
        .await
        .expect(StatusCode::OK);
    world.settled(&goal, "done").await;
    let seen = world.outside.seen();
    assert_eq!((seen.len(), &seen[0].body), (1, &json!({"nights": 3})));
}

#[tokio::test]
async fn a_plan_that_is_changed_during_a_wave_keeps_what_was_begun() {
    let plan = |task: &str| match task.contains("s1 done") {
        true => planned(json!([]), "All is done.", "done"),
        false => planned(json!([{"what": "Book {\"book\": {\"slot\": \"B4\"}}", "tools": ["book"]}]), "", "active"),
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    let op = world.operator();
    let goal = world.set_goal(json!({"title": "Book a place"})).await;
    assert!(world.said_in("goal_g1").await.contains("Yes or no"));
    let path = format!("{}/goals/{goal}", world.life);
    op.patch(&path, json!({"plan": ["Write a letter"]})).await.expect(StatusCode::OK);
    let changed = world.goal(&goal).await;
    assert_eq!(steps_of(&changed), [("s1".into(), "doing".into()), ("s2".into(), "todo".into())]);
    op.say(&world.chat, "goal_g1", "Yes.").await;
    let report = world.said_in("goal_g1").await;
    assert!(report.contains("`book {\"slot\":\"B4\"}`: done"), "{report}");
    // A reader of the goal who did not set it sees no arguments and no results.
    let eve = world.daemon.person("user:eve", "participant").await;
    let seen = eve.get(&path).await.expect(StatusCode::OK);
    assert!(seen["plan"][0]["result"].is_null() && seen["plan"][0]["effects"].is_array(), "{seen}");
}

#[tokio::test]
async fn a_step_that_loops_ends_after_few_calls() {
    let plan = |task: &str| match task.contains("a step of the plan failed") {
        true => planned(json!([]), "I could not find it.", "blocked"),
        false => planned(json!([{"what": "Look for it", "tools": ["places"]}]), "", "active"),
    };
    let looping = move |request: &ChatRequest, n: usize| match shown(request) {
        (task, results) if task.starts_with("A step of") => call(n, "places", &json!({"city": results.len()})),
        _ => acting(plan)(request, n),
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "places"}]}), looping).await;
    let goal = world.set_goal(json!({"title": "Find it"})).await;
    assert_eq!(world.said_in("goal_g1").await, "I could not find it.");
    world.settled(&goal, "blocked").await;
    assert_eq!(world.outside.seen().len(), 8);
    let asked = world.daemon.model.asked();
    let steps = asked.iter().filter(|request| shown(request).0.starts_with("A step of")).count();
    assert!(steps <= 13, "{steps} calls of the model");
}

#[tokio::test]
async fn a_call_that_nobody_answers_is_not_made_after_a_day() {
    let plan = |task: &str| match task.contains("a step of the plan failed") {
        true => planned(json!([]), "Nobody told me whether I may.", "blocked"),
        false => planned(json!([{"what": "Book {\"book\": {\"slot\": \"B4\"}}", "tools": ["book"]}]), "", "active"),
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    let goal = world.set_goal(json!({"title": "Book a place"})).await;
    assert!(world.said_in("goal_g1").await.contains("Yes or no"));
    world.daemon.clock.advance_ms(25 * 3_600_000);
    assert_eq!(world.said_in("goal_g1").await, "Nobody told me whether I may.");
    world.settled(&goal, "blocked").await;
    assert!(world.approvals(&world.operator()).await.is_empty() && world.outside.seen().is_empty());
    let last = world.daemon.model.asked().last().unwrap().clone();
    assert!(shown(&last).0.contains("nobody answered within a day"), "{}", shown(&last).0);
}

#[tokio::test]
async fn a_goal_that_is_set_again_asks_before_the_same_call() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "It is noted.", "done"),
        false => planned(json!([{"what": "Write {\"note\": {\"n\": 1}}", "tools": ["note"]}]), "", "active"),
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    world.define_note("/notes").await;
    world.give(json!([{"use": "note"}])).await.expect(StatusCode::OK);
    let first = world.set_goal(json!({"title": "Note it"})).await;
    world.settled(&first, "done").await;
    assert_eq!(world.outside.seen().len(), 1, "the first is not asked about");
    let again = world.set_goal(json!({"title": "Note it"})).await;
    let asked = world.said_in("goal_g2").await;
    assert!(asked.contains("the same was done on 2026-01-01") && asked.contains("Yes or no"), "{asked}");
    world.operator().say(&world.chat, "goal_g2", "yes").await;
    world.settled(&again, "done").await;
    assert_eq!(world.outside.seen().len(), 2);
    // A call that is under way when its goal is dropped has an unknown outcome, and is not made again unasked.
    world.define_note("/never").await;
    let cut = world.set_goal(json!({"title": "Note it elsewhere"})).await;
    assert!(world.said_in("goal_g3").await.contains("Yes or no"));
    world.operator().say(&world.chat, "goal_g3", "yes").await;
    while world.outside.seen().len() < 3 {
        tests::again().await;
    }
    let path = format!("{}/goals/{cut}", world.life);
    world.operator().patch(&path, json!({"status": "dropped"})).await.expect(StatusCode::OK);
    world.settled(&cut, "dropped").await;
    let effects = world.operator().get(&format!("{}/effects?state=unknown", world.life)).await.expect(StatusCode::OK);
    assert_eq!(effects["effects"].as_array().map(Vec::len), Some(1), "{effects}");
    assert!(effects["effects"][0]["why"].as_str().unwrap().contains("cut off"), "{effects}");
    world.set_goal(json!({"title": "Note it elsewhere"})).await;
    let asked = world.said_in("goal_g4").await;
    assert!(asked.contains("the same may have been done"), "{asked}");
    assert_eq!(world.outside.seen().len(), 3);
}

#[tokio::test]
async fn a_word_in_a_talk_reaches_the_goal_that_is_being_pursued() {
    let plan = |_: &str| planned(json!([{"what": "Write {\"note\": {\"n\": 1}}", "tools": ["note"]}]), "", "active");
    let world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    let op = world.operator();
    world.define_note("/never").await;
    world.give(json!([{"use": "note"}])).await.expect(StatusCode::OK);
    op.say(&world.chat, "t", r#"goal {"action": "create", "title": "Book a berth"}?"#).await;
    while world.outside.seen().is_empty() {
        tests::again().await;
    }
    op.say(&world.chat, "t", "What is the weather like?").await;
    op.say(&world.chat, "t", "The berth is for three nights.").await;
    let goal = loop {
        let goal = world.goal("g1").await;
        if goal["notes"].to_string().contains("three nights") {
            break goal;
        }
        tests::again().await;
    };
    assert!(goal["status"] == "active" && !goal["notes"].to_string().contains("weather"), "{goal}");
}
