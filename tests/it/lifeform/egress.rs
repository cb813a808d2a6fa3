//! The egress by calls of tools: memory after words of others were read, and the values of sinks (MISSION L2).

use neurons::llm::ChatRequest;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::acting::{acting, call, finalize, planned, shown};
use super::given_tools::World;

const REMEMBERED: &str = "The visit of my therapist is a visit of Doctor Freudenberg.";

/// Waits for the first question and refuses it. Returns its call.
async fn refused(world: &World) -> Value {
    let op = world.operator();
    loop {
        if let Some(asked) = world.approvals(&op).await.pop() {
            let path = format!("/v1/approvals/{}", asked["id"].as_str().unwrap());
            op.post(&path, json!({"decision": "refuse"})).await.expect(StatusCode::OK);
            return asked["calls"][0].clone();
        }
        tests::again().await;
    }
}

#[tokio::test]
async fn a_plan_that_read_a_page_carries_no_memory_out_unasked() {
    let look = json!([{"what": "Read {\"page\": {}}", "tools": ["page"]}]);
    let leak = json!([{"what": "Look up {\"places\": {\"name\": \"Doctor Freudenberg\"}}", "tools": ["places"]}]);
    let plan = move |task: &str| match (task.contains("Look up {"), task.contains("all steps of the plan are done")) {
        (true, _) => planned(json!([]), "Done.", "done"),
        (false, true) => planned(leak.clone(), "", "active"),
        (false, false) => planned(look.clone(), "", "active"),
    };
    let mut world = World::with(json!({"name": "Iris"}), acting(plan)).await;
    let (op, url) = (world.operator(), format!("http://{}/page", world.outside.address()));
    op.put("/v1/tools/page", json!({"run": {"http": {"url": url}}})).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "page"}, {"use": "places"}])).await.expect(StatusCode::OK);
    world.answered(&op, REMEMBERED).await;
    let goal =
        world.set_goal(json!({"title": "Read the page", "description": "About the visit of my therapist"})).await;
    let asked = refused(&world).await;
    assert_eq!(asked["arguments"], json!({"name": "Doctor Freudenberg"}));
    assert!(asked["why"].as_str().unwrap().contains("what people told me"), "{asked}");
    let done = world.settled(&goal, "done").await;
    assert_eq!(done["plan"][1]["carries_memory"], true, "{done}");
    assert_eq!(world.outside.seen().len(), 1, "only the page was read");
    let plans = world.daemon.model.asked();
    let texts = |request: &ChatRequest| {
        request.messages.iter().filter_map(|message| message.content.clone()).collect::<String>()
    };
    let of_plan = |request: &&ChatRequest| shown(request).0.starts_with("What you have set out to do");
    assert!(plans.iter().filter(of_plan).any(|request| texts(request).contains(REMEMBERED)), "the plan saw the memory");
}

#[tokio::test]
async fn a_text_with_memory_is_passed_on_only_with_a_yes() {
    let steps = json!([
        {"id": "find", "what": "Find the therapist", "tools": ["page"]},
        {"what": "Look up and keep", "tools": ["places", "note"], "after": ["find"]},
    ]);
    let model = move |request: &ChatRequest, n: usize| {
        let (task, results) = shown(request);
        match () {
            () if task.starts_with("What you have set out to do") => {
                match task.contains("all steps of the plan are done") {
                    true => planned(json!([]), "Done.", "done"),
                    false => planned(steps.clone(), "", "active"),
                }
            }
            () if task.contains("<step>Find") => match results.len() {
                0 => call(0, "knowledge_search", &json!({"query": "therapist"})),
                1 => call(1, "page", &json!({})),
                // What a model read in its memory.
                _ => finalize("done", "The therapist is Doctor Freudenberg.", json!([])),
            },
            () if task.contains("<step>Look up") => match results.len() {
                0 => call(0, "places", &json!({"name": "{{text:s1}}"})),
                1 => call(1, "note", &json!({"text": "looked up"})),
                _ => finalize("done", "looked up", json!([])),
            },
            () => super::mind::obedient(request, n),
        }
    };
    let world = World::with(json!({"name": "Iris"}), model).await;
    world.define_note("/notes").await;
    let (op, url) = (world.operator(), format!("http://{}/page", world.outside.address()));
    op.put("/v1/tools/page", json!({"run": {"http": {"url": url}}})).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "page"}, {"use": "places"}, {"use": "note"}])).await.expect(StatusCode::OK);
    world.set_goal(json!({"title": "Look the therapist up"})).await;
    let asked = refused(&world).await;
    assert_eq!(asked["arguments"], json!({"name": "The therapist is Doctor Freudenberg."}));
    assert!(asked["why"].as_str().unwrap().contains("what people told me"), "{asked}");
    assert_eq!(world.outside.seen().len(), 1, "only the page was read");
}

/// A world with a tool that pays, and asks nobody by itself.
async fn paying() -> World {
    let world = World::new(json!({"name": "Iris"})).await;
    let (op, url) = (world.operator(), format!("http://{}/payments", world.outside.address()));
    let parameters =
        json!({"type": "object", "properties": {"account": {"type": "string"}, "sum": {"type": "integer"}}});
    let pay = json!({"parameters": parameters, "sinks": ["account"], "approval": "never", "run": {"http": {"method": "POST", "url": url}}});
    op.put("/v1/tools/pay", pay).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "pay"}])).await.expect(StatusCode::OK);
    world
}

#[tokio::test]
async fn money_goes_only_where_a_person_said() {
    let mut world = paying().await;
    let op = world.operator();
    // The model takes another account than the person said: what is obeyed below is what is said, in other letters.
    let question = world.answered(&op, r#"pay {"account": "\u0044\u0045-88", "sum": 3}?"#).await;
    assert!(question.contains("Yes or no") && question.contains("DE-88"), "{question}");
    assert!(question.contains("nobody here named account"), "{question}");
    assert_eq!(world.outside.seen().len(), 0);
    assert!(world.answered(&op, "Yes.").await.contains("here is /payments"));
    assert_eq!(world.outside.seen()[0].body, json!({"account": "DE-88", "sum": 3}));
}

#[tokio::test]
async fn an_account_that_a_person_named_is_paid_at_once() {
    let mut world = paying().await;
    let op = world.operator();
    let paid = world.answered(&op, r#"pay {"account": "DE-77", "sum": 3}?"#).await;
    assert!(paid.contains("here is /payments"), "{paid}");
    assert_eq!(world.outside.seen()[0].body, json!({"account": "DE-77", "sum": 3}));
}
