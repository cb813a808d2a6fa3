//! The approval of calls together with the plan whose steps make them (MISSION L2, F6).

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::acting::{acting, planned, shown};
use super::given_tools::World;

#[tokio::test]
async fn calls_that_are_known_are_approved_with_the_plan_at_once() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "Both are booked.", "done"),
        false => {
            let step = |slot: &str| {
                let arguments = json!({"slot": slot});
                json!({"what": format!("Book {}", json!({"book": arguments})), "tools": ["book"], "with": arguments.to_string()})
            };
            planned(json!([step("B1"), step("B2")]), "", "active")
        }
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    let (op, eve) = (world.operator(), world.daemon.person("user:eve", "participant").await);
    let goal = world.set_goal(json!({"title": "Book two places"})).await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains(r#"`book {"slot":"B1"}`"#) && question.contains(r#"`book {"slot":"B2"}`"#), "{question}");
    assert_eq!(world.settled(&goal, "blocked").await["job"], Value::Null, "no job waits");
    // The word of another person approves nothing.
    eve.say(&world.chat, "goal_g1", "Yes.").await;
    loop {
        if world.goal(&goal).await["notes"].to_string().contains("user:eve said") {
            break;
        }
        tests::again().await;
    }
    assert_eq!(world.said_in("goal_g1").await, "I see.", "it is a word in a talk");
    assert!(world.outside.seen().is_empty() && world.goal(&goal).await["status"] == "blocked");
    // The question is in the list of approvals, for those who may answer it.
    assert!(world.approvals(&eve).await.is_empty());
    let waiting = world.approvals(&op).await;
    assert_eq!((waiting.len(), &waiting[0]["calls"][1]["arguments"]), (1, &json!({"slot": "B2"})));
    let id = waiting[0]["id"].as_str().unwrap().to_owned();
    let approve = json!({"decision": "approve"});
    eve.post(&format!("/v1/approvals/{id}"), approve).await.expect(StatusCode::NOT_FOUND);
    op.post(&format!("/v1/approvals/{id}"), json!({"decision": "done"})).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    let messages = op.get(&format!("{}/topics/goal_g1/messages", world.chat)).await.expect(StatusCode::OK);
    let asked = messages["messages"][0]["id"].clone();
    let mut world = World { daemon: world.daemon.kill_and_restart().await, ..world };
    world.socket = super::goals::live(&world.daemon, &world.chat).await;
    let yes = json!({"content": "Yes.", "reply_to": asked});
    world.operator().post(&format!("{}/topics/goal_g1/messages", world.chat), yes).await.expect(StatusCode::CREATED);
    let report = world.said_in("goal_g1").await;
    assert!(report.starts_with("Both are booked."), "one question, and no other: {report}");
    let slots: Vec<Value> = world.outside.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(slots, [json!({"slot": "B1"}), json!({"slot": "B2"})]);
    let done = world.settled(&goal, "done").await;
    assert_eq!(done["plan"][0]["grant"]["by"], "user:operator");
}

#[tokio::test]
async fn a_plan_is_refused_and_approved_over_the_api() {
    let plan = |task: &str| match (task.contains("all steps of the plan are done"), task.contains("said: No.")) {
        (true, _) => planned(json!([]), "Both are booked.", "done"),
        (_, refused) => {
            let step = |slot: &str| {
                let arguments = json!({"slot": slot});
                json!({"what": format!("Book {}", json!({"book": arguments})), "tools": ["book"], "with": arguments.to_string()})
            };
            let slots = if refused { ["C1", "C2"] } else { ["B1", "B2"] };
            planned(slots.map(step).into_iter().collect(), "", "active")
        }
    };
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}]}), acting(plan)).await;
    let op = world.operator();
    let goal = world.set_goal(json!({"title": "Book two places"})).await;
    assert!(world.said_in("goal_g1").await.contains("B1"));
    world.settled(&goal, "blocked").await;
    let first = format!("/v1/approvals/{}", world.approvals(&op).await[0]["id"].as_str().unwrap());
    let refuse = json!({"decision": "refuse", "comment": "take C"});
    op.post(&first, refuse.clone()).await.expect(StatusCode::OK);
    assert!(world.said_in("goal_g1").await.contains("C1"), "it is planned again");
    world.settled(&goal, "blocked").await;
    op.post(&first, refuse).await.expect(StatusCode::OK);
    let other = op.post(&first, json!({"decision": "approve"})).await;
    assert!(other.status.is_client_error(), "{}", other.body);
    assert!(world.outside.seen().is_empty());
    let second = format!("/v1/approvals/{}", world.approvals(&op).await[0]["id"].as_str().unwrap());
    assert_eq!(op.get(&second).await.expect(StatusCode::OK)["calls"][0]["arguments"], json!({"slot": "C1"}));
    op.post(&second, json!({"decision": "approve"})).await.expect(StatusCode::OK);
    assert!(world.said_in("goal_g1").await.starts_with("Both are booked."));
    assert_eq!(world.outside.seen().len(), 2);
}

/// A plan with a look-up, a booking that is known, and one whose slot the look-up finds. Its line says what the model will call.
fn plan_of(slot: &'static str) -> impl Fn(&str) -> neurons::llm::scripted::Reply + Send + Sync {
    move |task| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "Both are booked.", "done"),
        false => {
            let book = |slot: &str| format!("Book {}", json!({"book": {"slot": slot}}));
            planned(
                json!([
                    {"id": "look", "what": "Look {\"places\": {}}", "tools": ["places"]},
                    {"what": book("B1"), "tools": ["book"], "with": "{\"slot\":\"B1\"}"},
                    {"what": book(slot), "tools": ["book"], "takes": [{"argument": "slot", "from": "look"}]},
                ]),
                "",
                "active",
            )
        }
    }
}

/// Returns a world with a goal that books two places, whose plan a person has approved.
async fn approved(
    model: impl Fn(&neurons::llm::ChatRequest, usize) -> neurons::llm::scripted::Reply + Send + Sync + 'static,
) -> World {
    let mut world = World::with(json!({"name": "Iris", "tools": [{"use": "book"}, {"use": "places"}]}), model).await;
    world.set_goal(json!({"title": "Book two places"})).await;
    world.said_in("goal_g1").await;
    world.operator().say(&world.chat, "goal_g1", "Yes.").await;
    world
}

#[tokio::test]
async fn a_call_that_a_look_up_completes_is_approved_before() {
    let mut world =
        World::with(json!({"name": "Iris", "tools": [{"use": "book"}, {"use": "places"}]}), acting(plan_of("B4")))
            .await;
    let op = world.operator();
    let goal = world.set_goal(json!({"title": "Book two places"})).await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains(r#"`book {"slot":"B1"}`"#) && question.contains("`book {}`"), "{question}");
    assert!(question.contains("`slot`: what this step finds: Look {"), "{question}");
    let waiting = world.approvals(&op).await;
    assert_eq!(waiting[0]["calls"][1]["takes"]["slot"], "Look {\"places\": {}}", "{}", waiting[0]);
    assert!(world.outside.seen().is_empty(), "nothing begins before the answer");
    op.say(&world.chat, "goal_g1", "Yes.").await;
    let report = world.said_in("goal_g1").await;
    assert!(report.starts_with("Both are booked."), "one question, and no other: {report}");
    let mut bodies: Vec<String> = world.outside.seen().into_iter().map(|seen| seen.body.to_string()).collect();
    bodies.retain(|body| body.contains("slot"));
    assert_eq!(bodies, [r#"{"slot":"B1"}"#, r#"{"slot":"B4"}"#]);
    assert_eq!(world.settled(&goal, "done").await["plan"][2]["takes"], json!({"slot": "s1"}));
}

#[tokio::test]
async fn a_value_that_no_step_found_is_asked_about() {
    let mut world = approved(acting(plan_of("B9"))).await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains(r#"`book {"slot":"B9"}`"#) && question.contains("Yes or no"), "{question}");
    assert!(world.outside.seen().iter().all(|seen| seen.body != json!({"slot": "B9"})));
}

#[tokio::test]
async fn a_yes_to_a_call_that_is_completed_later_is_for_one_call() {
    let plan = plan_of("B4");
    let acts = acting(plan);
    let model = move |request: &neurons::llm::ChatRequest, n: usize| {
        let (task, results) = shown(request);
        let is_open = task.contains("<step>Book") && task.contains(r#"<arguments>{"slot":"B4"}</arguments>"#);
        match results.len() {
            count @ 0..3 if is_open => {
                let slot = ["B4", "B1", "B5"][count];
                neurons::llm::scripted::Reply::Tools(vec![(
                    format!("c{count}"),
                    "book".into(),
                    json!({"slot": slot}).to_string(),
                )])
            }
            _ if task.contains("<step>Look") && !results.is_empty() => {
                let values: Vec<Value> = [("slot", "B4"), ("next", "B5")]
                    .map(|(name, value)| json!({"name": name, "value": value}))
                    .to_vec();
                let end = json!({"status": "done", "result": "two are free", "values": values});
                neurons::llm::scripted::Reply::Tools(vec![("c9".into(), "finalize_output".into(), end.to_string())])
            }
            _ => acts(request, n),
        }
    };
    let mut world = approved(model).await;
    let question = world.said_in("goal_g1").await;
    assert!(
        question.contains("Yes or no") && !question.contains("B4"),
        "another value is another question: {question}"
    );
    let slots: Vec<Value> = world.outside.seen().into_iter().map(|seen| seen.body["slot"].clone()).collect();
    assert!(!slots.contains(&json!("B5")) && slots.iter().filter(|slot| **slot == "B4").count() == 1, "{slots:?}");
    // The prompt of the step that looks names the values that later calls need.
    let asked = world.daemon.model.asked();
    let look = asked.iter().map(|request| shown(request).0).find(|task| task.contains("<step>Look")).unwrap();
    assert!(look.contains("<needed_later>slot</needed_later>"), "{look}");
}

#[tokio::test]
async fn a_value_out_of_the_memory_is_shown_before_it_leaves() {
    let acts = acting(plan_of("B4"));
    let model = move |request: &neurons::llm::ChatRequest, n: usize| {
        let (task, results) = shown(request);
        let call = |name: &str, arguments: Value| {
            neurons::llm::scripted::Reply::Tools(vec![(format!("c{n}"), name.to_owned(), arguments.to_string())])
        };
        let slot = json!([{"name": "slot", "value": "B4"}]);
        match results.len() {
            0 if task.contains("<step>Look") => call("knowledge_search", json!({"query": "the slot"})),
            1 if task.contains("<step>Look") => call("places", json!({})),
            2 if task.contains("<step>Look") => {
                call("finalize_output", json!({"status": "done", "result": "B4", "values": slot}))
            }
            _ => acts(request, n),
        }
    };
    let mut world = approved(model).await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains(r#"`book {"slot":"B4"}`"#) && question.contains("Yes or no"), "{question}");
}

#[tokio::test]
async fn a_plan_leaves_no_sink_to_a_later_step() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "Paid.", "done"),
        false => {
            let pay = |to: &str| format!("Pay {}", json!({"pay": {"to": to}}));
            let look = json!({"id": "look", "what": "Look {\"places\": {}}", "tools": ["places"]});
            let known = |to: &str| json!({"what": pay(to), "tools": ["pay"], "with": json!({"to": to}).to_string()});
            let open = json!({"what": pay("B4"), "tools": ["pay"], "takes": [{"argument": "to", "from": "look"}]});
            planned(json!([look, known("A1"), known("A2"), open]), "", "active")
        }
    };
    let mut world = World::with(json!({"name": "Iris"}), acting(plan)).await;
    let (op, url) = (world.operator(), format!("http://{}/pay", world.outside.address()));
    let parameters = json!({"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}});
    let pay = |sinks: Value| json!({"parameters": parameters, "sinks": sinks, "run": {"http": {"method": "POST", "url": url}}});
    let refused = op.put("/v1/tools/pay", pay(json!(["account"]))).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.to_string().contains("sinks: there is no parameter \\\"account\\\""), "{refused}");
    op.put("/v1/tools/pay", pay(json!(["to"]))).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "pay"}, {"use": "places"}])).await.expect(StatusCode::OK);
    world.set_goal(json!({"title": "Pay three"})).await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains("A2") && !question.contains("finds"), "{question}");
    op.say(&world.chat, "goal_g1", "Yes.").await;
    let question = world.said_in("goal_g1").await;
    assert!(question.contains(r#"`pay {"to":"B4"}`"#), "{question}");
    op.say(&world.chat, "goal_g1", "Yes.").await;
    assert!(world.said_in("goal_g1").await.starts_with("Paid."));
}

#[tokio::test]
async fn what_was_planned_before_a_look_outside_needs_no_new_yes() {
    for (noted, is_asked) in [("as planned", false), ("something else", true)] {
        let plan = move |task: &str| match task.contains("all steps of the plan are done") {
            true => planned(json!([]), "Noted.", "done"),
            false => planned(
                json!([
                    {"id": "look", "what": "Look {\"places\": {}}", "tools": ["places"]},
                    {"what": format!("Note {}", json!({"note": {"text": noted}})), "after": ["look"], "tools": ["note"],
                        "with": json!({"text": "as planned"}).to_string()},
                ]),
                "",
                "active",
            ),
        };
        let mut world = World::with(json!({"name": "Iris"}), acting(plan)).await;
        world.define_note("/notes").await;
        world.give(json!([{"use": "note"}, {"use": "places"}])).await.expect(StatusCode::OK);
        world.set_goal(json!({"title": "Look and note"})).await;
        let said = world.said_in("goal_g1").await;
        assert_eq!(said.contains("Yes or no"), is_asked, "{said}");
        let is_noted = world.outside.seen().iter().any(|seen| seen.body == json!({"text": "as planned"}));
        assert_eq!(is_noted, !is_asked);
    }
}
