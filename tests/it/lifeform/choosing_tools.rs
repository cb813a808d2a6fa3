//! The choice of tools for a model where a lifeform has more than a prompt has room for (MISSION L2).

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::acting::{acting, planned, shown};
use super::given_tools::World;
use crate::neurons::tools::Outside;

/// A named tool with forty operations, of which each reads another thing.
fn many(outside: &Outside) -> Value {
    let operation = |n: usize| {
        let (name, about) = match n {
            33 => ("ferries".to_owned(), "Lists the ferries to the islands with their departures.".to_owned()),
            n => (format!("op{n}"), format!("Returns register number {n} of the archive.")),
        };
        let get = json!({"operationId": name, "summary": about, "responses": {"200": {"description": "ok"}}});
        (format!("/{name}"), json!({"get": get}))
    };
    let paths: serde_json::Map<String, Value> = (0..40).map(operation).collect();
    let server = format!("http://{}", outside.address());
    let document = json!({"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": server}], "paths": paths});
    json!({"run": {"openapi": {"document": document}}})
}

/// Returns a world whose lifeform has the forty tools.
async fn isles(
    model: impl Fn(&neurons::llm::ChatRequest, usize) -> neurons::llm::scripted::Reply + Send + Sync + 'static,
) -> World {
    let world = World::with(json!({"name": "Iris"}), model).await;
    world.operator().put("/v1/tools/isles", many(&world.outside)).await.expect(StatusCode::CREATED);
    world.give(json!([{"use": "isles"}])).await.expect(StatusCode::OK);
    world
}

#[tokio::test]
async fn of_many_tools_a_model_sees_those_that_are_likely() {
    let mut world = World::new(json!({"name": "Iris"})).await;
    let op = world.operator();
    op.put("/v1/tools/isles", many(&world.outside)).await.expect(StatusCode::CREATED);
    let shown = world.give(json!([{"use": "isles"}])).await.expect(StatusCode::OK);
    assert_eq!(shown["tools"][0]["now"]["tools"].as_array().unwrap().len(), 40);
    world.answered(&op, "Which ferries go to the islands?").await;
    let given: Vec<String> = world.offered().into_iter().filter(|name| name.starts_with("isles_")).collect();
    assert_eq!((given.len(), given[0].as_str()), (16, "isles_op0"), "{given:?}");
    assert!(given.contains(&"isles_ferries".to_owned()), "{given:?}");
    // What is not shown is found by what it does, and is shown from then on. The message itself does not name it.
    let found = world.answered(&op, r#"tool_find {"query": "\u0066erries"}?"#).await;
    assert!(found.contains("isles_ferries() Lists the ferries") && found.matches("isles_").count() == 10, "{found}");
    let given = world.offered();
    assert!(given.contains(&"isles_ferries".to_owned()) && given.contains(&"tool_find".to_owned()), "{given:?}");
    assert_eq!(given.iter().filter(|name| name.starts_with("isles_")).count(), 26);
    assert!(world.answered(&op, r#"tool_find {"words": "x"}?"#).await.contains("unknown field `words`"));
    // One that it is not shown can still be called: a call that was made before a restart goes on.
    assert!(world.answered(&op, "isles_op39 {}?").await.contains("here is /op39"));
}

#[tokio::test]
async fn a_plan_is_made_with_the_tools_that_are_near_to_the_goal() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "They are listed.", "done"),
        // The step names a tool beyond those that are shown.
        false => planned(json!([{"what": "Look {\"isles_op39\": {}}", "tools": ["isles_op39"]}]), "", "active"),
    };
    let mut world = isles(acting(plan)).await;
    let goal = world.set_goal(json!({"title": "List the ferries to the islands"})).await;
    assert!(world.said_in("goal_g1").await.starts_with("They are listed."));
    world.settled(&goal, "done").await;
    let task = world
        .daemon
        .model
        .asked()
        .iter()
        .map(|request| shown(request).0)
        .find(|task| task.contains("<tools>"))
        .unwrap();
    let tools = task.split("<tools>").nth(1).unwrap().split("</tools>").next().unwrap();
    assert_eq!(tools.matches("\n- ").count(), 20, "{tools}");
    assert!(tools.starts_with("\n- isles_ferries() Lists the ferries"), "{tools}");
    assert_eq!(world.outside.seen().last().unwrap().what, "GET /op39");
}

/// Returns a part of the task that a plan was made from.
fn part<'t>(task: &'t str, mark: &str) -> &'t str {
    let rest = task.split(&format!("<{mark}>")).nth(1).unwrap_or_default();
    rest.split(&format!("</{mark}>")).next().unwrap_or_default()
}

#[tokio::test]
async fn a_plan_looks_for_a_tool_twice_at_most() {
    let plan = |task: &str| {
        if task.contains("all steps of the plan are done") {
            return planned(json!([]), "They are listed.", "done");
        }
        let find =
            ["a list of ferries to islands", "the archive's register"][usize::from(task.contains("isles_ferries()"))];
        let steps = json!([{"what": "Look {\"isles_ferries\": {}}", "tools": ["isles_ferries"]}]);
        let plan =
            json!({"steps": steps, "say": "", "status": "active", "again_in_minutes": 0, "subgoals": [], "find": find});
        neurons::llm::scripted::Reply::Text(plan.to_string())
    };
    let mut world = isles(acting(plan)).await;
    let goal = world.set_goal(json!({"title": "Number of the archive"})).await;
    assert!(world.said_in("goal_g1").await.starts_with("They are listed."));
    world.settled(&goal, "done").await;
    let asked = world.daemon.model.asked();
    let tasks: Vec<String> =
        asked.iter().map(|request| shown(request).0).filter(|task| task.contains("<tools>")).collect();
    assert_eq!(tasks.len(), 4, "two searches, a plan and a report");
    let names = part(&tasks[0], "more_tools_by_name");
    assert!(names.contains("isles_ferries") && names.matches("isles_").count() == 20, "{names}");
    assert!(part(&tasks[0], "tools_that_you_looked_for").is_empty());
    let found = part(&tasks[1], "tools_that_you_looked_for");
    assert!(
        found.starts_with("\n- isles_ferries() Lists the ferries") && found.matches("\n- ").count() == 10,
        "{found}"
    );
    assert_eq!(part(&tasks[2], "tools_that_you_looked_for").matches("\n- ").count(), 20);
    assert!(part(&tasks[2], "more_tools_by_name").is_empty(), "all are shown");
    assert!(part(&tasks[3], "tools_that_you_looked_for").is_empty(), "a step was done since");
}

#[tokio::test]
async fn a_search_in_vain_keeps_the_plan_and_says_so() {
    let plan = |task: &str| {
        let found = part(task, "tools_that_you_looked_for").matches("\n- ").count();
        let step = json!([{"what": "Look {\"isles_ferries\": {}}", "tools": ["isles_ferries"]}]);
        match () {
            () if task.contains("all steps of the plan are done") => planned(json!([]), "They are listed.", "done"),
            () if part(task, "fault").contains("no more tools are looked for") => planned(step, "", "active"),
            () => {
                let plan = json!({"steps": [], "say": "I am looking.", "status": "active", "again_in_minutes": 0,
                    "subgoals": ["Look for it"], "find": format!("something else, {found}")});
                neurons::llm::scripted::Reply::Text(plan.to_string())
            }
        }
    };
    let mut world = isles(acting(plan)).await;
    let goal = world.set_goal(json!({"title": "Number of the archive"})).await;
    let said = world.said_in("goal_g1").await;
    assert!(said.starts_with("They are listed."), "a plan that searches says nothing: {said}");
    world.settled(&goal, "done").await;
    let goals = world.operator().get(&format!("{}/goals", world.life)).await.expect(StatusCode::OK);
    assert_eq!(goals["goals"].as_array().unwrap().len(), 1, "and makes no goals");
}

#[tokio::test]
async fn what_reached_a_similar_goal_is_shown_first() {
    let plan = |task: &str| match task.contains("all steps of the plan are done") {
        true => planned(json!([]), "Counted.", "done"),
        false => planned(json!([{"what": "Look {\"isles_op39\": {}}", "tools": ["isles_op39"]}]), "", "active"),
    };
    let world = isles(acting(plan)).await;
    for title in ["Count the herons at the weir", "Count the herons of the weir again", "Paint the lighthouse"] {
        let goal = world.set_goal(json!({"title": title})).await;
        world.settled(&goal, "done").await;
    }
    let plans = world.daemon.model.asked().into_iter().map(|request| shown(&request).0);
    let first_card = |task: String| {
        let first = task.split("<tools>\n- ").nth(1)?.split('(').next()?.to_owned();
        (!task.contains("all steps of the plan are done")).then_some(first)
    };
    let firsts: Vec<String> = plans.filter_map(first_card).collect();
    assert_eq!((firsts[1].as_str(), firsts.len()), ("isles_op39", 3), "{firsts:?}");
    assert!(firsts[0] != "isles_op39" && firsts[2] != "isles_op39", "{firsts:?}");
}
