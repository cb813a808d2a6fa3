//! Tools that compute, tools that a model only fills in, and the worked example in the example world.

use std::net::SocketAddr;

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use runtime::example;
use serde_json::{Value, json};
use tests::{Client, TestDaemon, obedient};

/// Serves an example world on a free port.
async fn world() -> SocketAddr {
    let listener = example::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(example::serve(listener));
    address
}

/// Calls the tool to which the request is limited with these arguments; says something else where it may choose.
fn filling(tool: &str, arguments: Value) -> impl Fn(&ChatRequest) -> Option<Reply> {
    let tool = tool.to_owned();
    move |request| {
        let forced = request.tool_choice.as_ref()?["function"]["name"].as_str()?.to_owned();
        (forced == tool).then(|| Reply::Tools(vec![(format!("c_{tool}"), tool.clone(), arguments.to_string())]))
    }
}

async fn invoke(client: &Client, neuron: Value, input: &str) -> Value {
    client.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
    client.post("/v1/neurons/n/invoke", json!({"input": input})).await.expect(StatusCode::OK)["output"].clone()
}

fn stay() -> Value {
    json!({
        "name": "stay",
        "run": {"calculate": {"formulas": {"total": "nights * price", "left": "budget - total"}}},
        "parameters": {"type": "object", "additionalProperties": false, "required": ["nights", "price", "budget"], "properties": {
            "nights": {"type": ["integer", "null"]}, "price": {"type": ["number", "null"]}, "budget": {"type": ["number", "null"]}}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_calculates_exactly() {
    let daemon = TestDaemon::start(obedient).await;
    let tools = json!([{"name": "calculate", "run": "builtin"}, {"name": "date", "run": "builtin"}, stay()]);
    daemon.operator.post("/v1/neurons", json!({"id": "n", "tools": tools})).await.expect(StatusCode::CREATED);
    let ask = async |input: &str| {
        let answer = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": input})).await;
        answer.expect(StatusCode::OK)["output"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(r#"calculate {"expression": "0.1 + 0.2"}"#).await, "0.3");
    assert!(ask(r#"calculate {"expression": "12,50 + 3"}"#).await.contains("write 12.50"));
    assert!(ask(r#"calculate {"expression": "(\\x.x x)(\\x.x x)"}"#).await.contains("means nothing here"));
    let date = ask(r#"date {"from": "2026-12-04", "add": "3 weeks"}"#).await;
    assert_eq!(serde_json::from_str::<Value>(&date).unwrap(), json!({"date": "2026-12-25", "weekday": "Friday"}));
    let stay = ask(r#"stay {"nights": 3, "price": 99.9, "budget": 300}"#).await;
    assert_eq!(serde_json::from_str::<Value>(&stay).unwrap(), json!({"total": 299.7, "left": 0.3}));
    assert!(ask(r#"stay {"nights": 3, "price": "cheap", "budget": 300}"#).await.contains("do not fit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_formula_that_cannot_be_evaluated_is_refused() {
    let daemon = TestDaemon::start(obedient).await;
    for (formulas, why) in [
        (json!({"total": "nights *"}), "formulas.total: it ends"),
        (json!({"total": "rooms * 2"}), "\"rooms\" is no parameter"),
        (json!({"a": "b + 1", "b": "a + 1"}), "in a circle"),
        (json!({}), "1 to 16"),
    ] {
        let mut tool = stay();
        tool["run"]["calculate"]["formulas"] = formulas;
        let refused = daemon.operator.post("/v1/neurons", json!({"id": "n", "tools": [tool]})).await;
        let refused = refused.refused(422, "invalid");
        assert!(refused.to_string().contains(&why.replace('"', "\\\"")), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_fills_tools_in_and_chooses_nothing() {
    let fill = filling("stay", json!({"nights": 3, "price": 12000, "budget": 5}));
    let daemon =
        TestDaemon::start(move |request, _| fill(request).unwrap_or(Reply::Text("I would rather talk.".into()))).await;
    let neuron = json!({"id": "n", "kind": "tool_augmented", "tools": [stay(), {"name": "calculate", "run": "builtin"}],
        "fills": ["stay"], "returns_results": true});
    let output = invoke(&daemon.operator, neuron, "三晚，每晚12,000日元").await;
    // Nobody spoke of a budget of five.
    assert_eq!(output, json!({"stay": {"total": 36000, "left": null}}));
    let asked = daemon.model.asked();
    assert_eq!(asked.len(), 1, "no model retells the results");
    assert_eq!(asked[0].tools.len(), 1);
    assert_eq!(asked[0].tool_choice.as_ref().unwrap()["function"]["name"], "stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fills_tools_in_calls_no_others() {
    let call = |tool: &str, id: &str| {
        (id.to_owned(), tool.to_owned(), json!({"nights": 3, "price": 2, "budget": null}).to_string())
    };
    let daemon = TestDaemon::start(move |_, before| match before {
        0 => Reply::Tools(vec![call("calculate", "c1")]),
        1 => Reply::Tools(vec![call("stay", "c2"), call("stay", "c3")]),
        _ => Reply::Tools(vec![call("stay", "c4")]),
    })
    .await;
    let neuron = json!({"id": "n", "kind": "tool_augmented", "tools": [stay(), {"name": "calculate", "run": "builtin"}],
        "fills": ["stay"], "returns_results": true});
    let output = invoke(&daemon.operator, neuron, "3 nights at 2").await;
    assert_eq!(output, json!({"stay": {"total": 6, "left": null}}));
    assert_eq!(daemon.model.asked().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_a_float_would_round_is_a_text() {
    let daemon = TestDaemon::start(|_, before| match before {
        0 => Reply::Tools(vec![("c1".into(), "calculate".into(), r#"{"expression": "10^20 + 1"}"#.into())]),
        _ => Reply::Text("done".into()),
    })
    .await;
    let neuron = json!({"id": "n", "kind": "tool_augmented", "returns_results": true, "tools": [{"name": "calculate", "run": "builtin"}]});
    let output = invoke(&daemon.operator, neuron, "how much").await;
    assert_eq!(output, json!({"calculate": "100000000000000000001"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_returned_as_they_came() {
    let daemon = TestDaemon::start(|request, before| match before {
        0 => Reply::Tools(vec![
            ("c1".into(), "calculate".into(), r#"{"expression": "2 +"}"#.into()),
            ("c2".into(), "date".into(), r#"{"from": "2026-12-04"}"#.into()),
        ]),
        1 => Reply::Tools(vec![("c3".into(), "calculate".into(), r#"{"expression": "2 + 2"}"#.into())]),
        2 => Reply::Tools(vec![("c4".into(), "calculate".into(), r#"{"expression": "1 /"}"#.into())]),
        _ => {
            assert!(request.messages.iter().any(|message| message.role == "tool"));
            Reply::Text("It is five.".into())
        }
    })
    .await;
    let neuron = json!({"id": "n", "kind": "tool_augmented", "returns_results": true,
        "tools": [{"name": "calculate", "run": "builtin"}, {"name": "date", "run": "builtin"}]});
    let output = invoke(&daemon.operator, neuron, "2 and 2").await;
    assert_eq!(output, json!({"calculate": 4, "date": {"date": "2026-12-04", "weekday": "Friday"}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_do_not_go_together_are_refused() {
    let daemon = TestDaemon::start(obedient).await;
    let with = |more: Value| {
        let mut neuron = json!({"id": "n", "kind": "tool_augmented", "tools": [stay(), {"name": "ask"}]});
        neuron.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        neuron
    };
    for (neuron, why) in [
        (with(json!({"fills": ["nothing"]})), "fills names"),
        (with(json!({"fills": ["ask"]})), "fills names"),
        (with(json!({"fills": ["stay", "stay"]})), "fills: duplicate"),
        (with(json!({"small": {"fills": ["nothing"]}})), "small.fills names"),
        (with(json!({"returns_results": true, "structured_output": {"type": "object"}})), "exclude each other"),
        (json!({"id": "n", "kind": "base", "tools": [stay()], "fills": ["stay"]}), "fills is of tool_augmented"),
        (json!({"id": "n", "kind": "base", "returns_results": true}), "returns_results is of tool_augmented"),
        (with(json!({"small": {"transform": {"inhibit": {}}}})), "transform is of transformer"),
    ] {
        let refused = daemon.operator.post("/v1/neurons", neuron).await.refused(422, "invalid");
        assert!(refused.to_string().contains(why), "{why}: {refused}");
    }
}

/// Answers the neurons of the worked example.
fn planner(request: &ChatRequest, _: usize) -> Reply {
    let system = request.messages[0].content.clone().unwrap_or_default();
    let has_result = request.messages.iter().any(|message| message.role == "tool");
    let call = |tool: &str, arguments: Value| Reply::Tools(vec![("c1".into(), tool.into(), arguments.to_string())]);
    match request.response_format.as_ref().map(|format| format["json_schema"]["schema"].clone()) {
        Some(schema) if schema["properties"].get("tasks").is_some() => Reply::Text(
            json!({"intent": "a trip to Kyoto", "entities": ["Kyoto"], "tasks": [{"title": "book"}]}).to_string(),
        ),
        Some(_) if system.contains("Split the request") => Reply::Text(
            json!({"routes": [{"neuron": "retrieval", "events": [{"role": "user", "content": "places in Kyoto"}]}]})
                .to_string(),
        ),
        Some(_) => Reply::Text(json!({"events": [{"role": "draft", "content": "a plan"}]}).to_string()),
        None if has_result => Reply::Text("done".into()),
        None if system.contains("Look up") => call("lookup", json!({"city": "京都"})),
        None => call("stay", json!({"nights": 3, "price_per_night": 9500, "people": 2, "budget": 40000})),
    }
}

async fn plan(daemon: &TestDaemon, request: &str) -> Value {
    let (path, wait) = ("/v1/fascicles/intent_analysis/execute", [("prefer", "wait=60")]);
    let body = Some(json!({"input": request}));
    daemon.operator.send(Method::POST, path, &wait, body).await.expect(StatusCode::OK)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worked_example_calls_an_api_and_calculates() {
    let world = world().await;
    let builder = TestDaemon::builder().config(move |config| example::add_tools(config, world).unwrap());
    let daemon = builder.start(planner).await;
    let body = plan(&daemon, "两个人去京都住三晚，每晚9500日元，预算40000日元").await;
    let output = &body["output"];
    assert_eq!(output["figures"]["stay"], json!({"total": 28500, "per_person": 14250, "left": 11500}), "{body}");
    assert_eq!(output["found"]["lookup"]["city"], "Kyoto", "{body}");
    assert_eq!((&output["intent"], &output["tasks"][0]["title"]), (&json!("a trip to Kyoto"), &json!("book")));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_world_the_worked_example_asks_the_commons() {
    let daemon = TestDaemon::start(planner).await;
    daemon.operator.post("/v1/nexus/commons/kip", json!({
        "command": "UPSERT { CONCEPT { {type: \"Knowledge\", name: \"京都\"} SET ATTRIBUTES { task: \"京都\", content: \"Quiet in January.\" } } } WITH METADATA { access_scopes: [\"public\"] }",
    })).await.expect(StatusCode::OK);
    let body = plan(&daemon, "京都三晚").await;
    assert!(body["output"]["found"]["lookup"]["commons"].to_string().contains("Quiet in January"), "{body}");
    let tools = daemon.operator.get("/v1/tools/lookup").await.expect(StatusCode::OK);
    assert!(tools.to_string().contains("commons"), "{tools}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_world_serves_its_tools_over_mcp() {
    let url = format!("http://{}/mcp", world().await);
    let server: runtime::config::Server = serde_json::from_value(json!({"url": url, "approval": "never"})).unwrap();
    let tools = runtime::config::Tools { servers: [("world".into(), server)].into(), ..Default::default() };
    let daemon = TestDaemon::builder().tools(tools).start(obedient).await;
    let world = json!([{"name": "world", "run": {"mcp": {"server": "world"}}}]);
    daemon.operator.post("/v1/neurons", json!({"id": "n", "tools": world})).await.expect(StatusCode::CREATED);
    let ask = async |input: &str| {
        let answer = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": input})).await;
        answer.expect(StatusCode::OK)["output"].as_str().unwrap().to_owned()
    };
    assert!(ask(r#"world_places {"city": "Lisbon"}"#).await.contains("Alfama Rooms"));
    assert!(ask(r#"world_places {"city": "Atlantis"}"#).await.contains("no such city"));
    let booked = ask(r#"world_book {"place": "li1", "nights": 2, "name": "Ada"}"#).await;
    assert!(booked.contains("\"price\":170") && booked.contains("\"key\":\""), "{booked}");
    assert!(ask("world_bookings {}").await.contains("B1"));
    assert!(ask(r#"world_cancel {"booking": "B1"}"#).await.contains("cancelled"));
}
