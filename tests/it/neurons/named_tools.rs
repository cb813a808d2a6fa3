//! Named tools: defined once by an operator, referred to by neurons, with effect classes, limits and prices.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use neurons::spec::Approval;
use reqwest::{Method, StatusCode};
use runtime::config::Tools;
use serde_json::{Value, json};
use store::ledger::{AccountOp, Amount};
use store::{Batch, Origin};
use tests::{Client, TestDaemon, obedient};

use super::tools::{Outside, child};

/// Returns the definition of a tool that requests `path` of a server outside.
fn http(outside: &Outside, method: &str, path: &str, more: Value) -> Value {
    let mut tool = json!({"run": {"http": {"method": method, "url": format!("http://{}{path}", outside.address())}}});
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tool
}

/// Defines the neuron `n`, which refers to a named tool.
async fn refer(client: &Client, tool: &str) {
    let tools = json!([{"name": tool, "run": {"named": tool}}]);
    client.post("/v1/neurons", json!({"id": "n", "tools": tools})).await.expect(StatusCode::CREATED);
}

async fn invoke(client: &Client, input: &str) -> Value {
    let answer = client.post("/v1/neurons/n/invoke", json!({"input": input})).await;
    answer.expect(StatusCode::OK)["output"].as_str().unwrap().into()
}

async fn put(client: &Client, id: &str, tool: Value) -> tests::Answer {
    client.put(&format!("/v1/tools/{id}"), tool).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_defined_once_and_referred_to_by_its_id() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let look = http(&outside, "GET", "/places/{city}", json!({"description": "Looks a place up."}));
    let named = [("look".into(), serde_json::from_value(look.clone()).unwrap())].into();
    let daemon = TestDaemon::builder().tools(Tools { named, ..outside.reach(&folder) }).start(obedient).await;
    let client = &daemon.operator;
    let book = http(&outside, "POST", "/bookings", json!({"description": "Books.", "approval": "never"}));
    let made = put(client, "book", book.clone()).await.expect(StatusCode::CREATED);
    assert_eq!((&made["version"], &made["is_configured"]), (&json!(1), &json!(false)));
    assert_eq!((&made["tools"][0]["name"], &made["tools"][0]["effect"]), (&json!("book"), &json!("write")));
    let shown = client.get("/v1/tools").await.expect(StatusCode::OK);
    let ids: Vec<&Value> = shown["named"].as_array().unwrap().iter().map(|tool| &tool["id"]).collect();
    assert_eq!(ids, ["book", "look", "lookup"]);
    assert_eq!((&shown["named"][2]["is_shipped"], &shown["named"][1]["is_shipped"]), (&json!(true), &json!(false)));
    assert_eq!(shown["named"][1]["is_configured"], true);
    // Without `approval`, what may change something waits.
    assert_eq!(shown["named"][1]["definition"]["approval"], "on_write");

    let tools = json!([{"name": "look", "run": {"named": "look"}}, {"name": "reserve", "run": {"named": "book"}}]);
    client.post("/v1/neurons", json!({"id": "n", "tools": tools})).await.expect(StatusCode::CREATED);
    assert_eq!(invoke(client, r#"look {"city": "Bremen"}"#).await, "here is /places/Bremen");
    assert_eq!(invoke(client, r#"reserve {"slot": 4}"#).await, "here is /bookings");
    let seen = &daemon.model.asked()[0].tools;
    assert_eq!(seen[0]["function"]["description"], "Looks a place up.");
    assert_eq!(
        (&seen[1]["function"]["name"], &seen[1]["function"]["description"]),
        (&json!("reserve"), &json!("Books."))
    );

    // A new version is what the next call makes; an unexpected version changes nothing.
    let elsewhere = http(&outside, "POST", "/orders", json!({"approval": "never"}));
    let old = client.send(Method::PUT, "/v1/tools/book", &[("if-match", "\"7\"")], Some(elsewhere.clone())).await;
    old.expect(StatusCode::CONFLICT);
    assert_eq!(put(client, "book", elsewhere).await.expect(StatusCode::OK)["version"], 2);
    assert_eq!(invoke(client, r#"reserve {"slot": 4}"#).await, "here is /orders");

    let faults = [
        ("look", look.clone(), StatusCode::CONFLICT, "the configuration defines the tool look"),
        ("x", json!({"name": "y", "run": "client"}), StatusCode::UNPROCESSABLE_ENTITY, "leave it out"),
        (
            "x",
            json!({"run": "builtin"}),
            StatusCode::UNPROCESSABLE_ENTITY,
            "run is http, openapi, mcp, fascicle or calculate",
        ),
        ("x", json!({"run": {"named": "look"}}), StatusCode::UNPROCESSABLE_ENTITY, "run is http"),
        ("x y", look.clone(), StatusCode::UNPROCESSABLE_ENTITY, "letters, digits"),
        (
            "x",
            json!({"run": {"http": {"url": "https://a.example/"}}, "colour": 1}),
            StatusCode::UNPROCESSABLE_ENTITY,
            "colour",
        ),
        (
            "x",
            http(&outside, "GET", "/", json!({"limits": {"per_day": 0}})),
            StatusCode::UNPROCESSABLE_ENTITY,
            "per_day",
        ),
        ("x", http(&outside, "GET", "/", json!({"pin": "x@1"})), StatusCode::UNPROCESSABLE_ENTITY, "pin"),
        ("x", http(&outside, "GET", "/", json!({"give": "all"})), StatusCode::UNPROCESSABLE_ENTITY, "give"),
    ];
    for (id, tool, status, part) in faults {
        let id = id.replace(' ', "%20");
        let refused = put(client, &id, tool.clone()).await;
        assert!(refused.body.to_string().contains(part), "{tool}: {}", refused.body);
        refused.expect(status);
    }
    client.get("/v1/tools/x").await.expect(StatusCode::NOT_FOUND);
    client.send(Method::DELETE, "/v1/tools/look", &[], None).await.expect(StatusCode::CONFLICT);
    client.send(Method::DELETE, "/v1/tools/book", &[], None).await.expect(StatusCode::NO_CONTENT);
    client.send(Method::DELETE, "/v1/tools/book", &[], None).await.expect(StatusCode::NOT_FOUND);
    let gone = client.post("/v1/neurons/n/invoke", json!({"input": "reserve {}"})).await;
    assert!(gone.body.to_string().contains("there is no named tool"), "{}", gone.body);
    gone.expect(StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_says_who_refers_to_a_tool() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let ada = daemon.person("user:ada", "participant").await;
    let look = |give: &str| http(&outside, "GET", "/places", json!({"give": give}));
    put(&ada, "look", look("participant")).await.expect(StatusCode::FORBIDDEN);
    put(&daemon.operator, "look", look("operator")).await.expect(StatusCode::CREATED);
    let tools = json!([{"name": "look", "run": {"named": "look"}}]);
    let refused = ada.post("/v1/neurons", json!({"id": "n", "tools": tools})).await;
    assert!(refused.body.to_string().contains("given by operators only"), "{}", refused.body);
    let node = json!({"id": "a", "run": {"tool": {"spec": tools[0]}}});
    let refused = ada.post("/v1/fascicles", json!({"id": "f", "output": "a", "nodes": [node]})).await;
    assert!(refused.body.to_string().contains("given by operators only"), "{}", refused.body);
    put(&daemon.operator, "look", look("participant")).await.expect(StatusCode::OK);
    refer(&ada, "look").await;
    assert_eq!(invoke(&ada, "look {}").await, "here is /places");
    // A definition from before runs no longer once the operator has taken the tool back.
    put(&daemon.operator, "look", look("operator")).await.expect(StatusCode::OK);
    let refused = ada.post("/v1/neurons/n/invoke", json!({"input": "look {}"})).await;
    assert!(refused.body.to_string().contains("given by operators only"), "{}", refused.body);
    assert_eq!(outside.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_says_that_a_call_is_more_harmless() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let ada = daemon.person("user:ada", "participant").await;
    let lower = [
        outside.tool("t", "POST", "/x", json!({"repeatable": true})),
        outside.tool("t", "POST", "/x", json!({"effect": "read"})),
        outside.tool("t", "PUT", "/x", json!({"effect": "read"})),
        json!({"name": "t", "run": {"http": {"method": "POST", "url": format!("http://{}/x", outside.address()), "writes": false}}}),
        json!({"name": "t", "effect": "idempotent", "run": {"mcp": {"server": "notes", "tool": "write"}}}),
        json!({"name": "t", "effect": "write", "run": {"mcp": {"server": "notes", "tool": "write"}}}),
        outside.tool(
            "t",
            "POST",
            "/x",
            json!({"settle": {
                "run": {"http": {"url": format!("http://{}/x", outside.address())}},
                "done": {"at": "/none", "is": true}, "absent": {"at": "", "is": true}, "after_s": 0,
            }}),
        ),
        json!({"name": "t", "run": {"fascicle": {"id": "heed", "writes": false}}}),
    ];
    for tool in &lower {
        let refused = ada.post("/v1/neurons", json!({"id": "n", "tools": [tool]})).await;
        assert!(refused.body.to_string().contains("more harmless"), "{tool}: {}", refused.body);
        refused.expect(StatusCode::UNPROCESSABLE_ENTITY);
        let node = json!({"id": "a", "run": {"map": {"over": {"at": ""}, "run": {"tool": {"spec": tool}}}}});
        let refused = ada.post("/v1/fascicles", json!({"id": "f", "output": "a", "nodes": [node]})).await;
        assert!(refused.body.to_string().contains("more harmless"), "{tool}: {}", refused.body);
    }
    for (place, tool) in lower.iter().enumerate() {
        let neuron = json!({"id": format!("n{place}"), "tools": [tool]});
        daemon.operator.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
    }
    // Raising is anybody's, and so is what changes no class.
    for (place, tool) in [
        outside.tool("t", "GET", "/x", json!({"effect": "write"})),
        outside.tool("t", "POST", "/x", json!({"effect": "irreversible"})),
        outside.tool("t", "GET", "/x", json!({"repeatable": true})),
    ]
    .into_iter()
    .enumerate()
    {
        let neuron = json!({"id": format!("a{place}"), "tools": [tool]});
        ada.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
    }
    let builtin = json!({"name": "recall", "run": "builtin", "effect": "read"});
    let refused = daemon.operator.post("/v1/neurons", json!({"id": "b", "tools": [builtin]})).await;
    assert!(refused.body.to_string().contains("effect needs a tool that runs http"), "{}", refused.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_classes_of_mcp_tools_are_hints_or_the_configuration() {
    let stated = |trusts: bool, effects: &[(&str, &str)]| {
        let mut tools = child(Approval::Never, trusts);
        let server = tools.servers.get_mut("notes").unwrap();
        let stated =
            effects.iter().map(|(tool, class)| ((*tool).to_owned(), serde_json::from_value(json!(class)).unwrap()));
        server.effects = stated.collect();
        tools
    };
    for (tools, expected) in [
        (stated(true, &[]), ["read", "irreversible"]),
        (stated(false, &[]), ["write", "write"]),
        (stated(false, &[("read", "read"), ("write", "idempotent")]), ["read", "idempotent"]),
    ] {
        let daemon = TestDaemon::builder().tools(tools).start(obedient).await;
        let shown = daemon.operator.get("/v1/tools").await.expect(StatusCode::OK);
        let listed = shown["servers"][0]["tools"].as_array().unwrap();
        let classes: Vec<&Value> = listed.iter().map(|tool| &tool["effect"]).collect();
        assert_eq!(classes, expected);
        // A whole server under one name.
        put(&daemon.operator, "notes", json!({"run": {"mcp": {"server": "notes"}}})).await.expect(StatusCode::CREATED);
        let shown = daemon.operator.get("/v1/tools/notes").await.expect(StatusCode::OK);
        let names: Vec<&Value> = shown["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, ["notes_read", "notes_write"]);
        daemon.daemon.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_over_a_restart_and_end_with_the_day() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let mut daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let limits = json!({"approval": "never", "limits": {"per_day": 2}});
    put(&daemon.operator, "book", http(&outside, "POST", "/bookings", limits)).await.expect(StatusCode::CREATED);
    refer(&daemon.operator, "book").await;
    for slot in 0..2 {
        assert_eq!(invoke(&daemon.operator, &format!(r#"book {{"slot": {slot}}}"#)).await, "here is /bookings");
    }
    daemon = daemon.kill_and_restart().await;
    let refused = invoke(&daemon.operator, r#"book {"slot": 3}"#).await;
    assert!(refused.as_str().unwrap().contains("2 calls a day"), "{refused}");
    daemon.clock.advance_ms(24 * 3_600_000);
    assert_eq!(invoke(&daemon.operator, r#"book {"slot": 3}"#).await, "here is /bookings");
    let minute = json!({"limits": {"per_minute": 1, "result_bytes": 256}});
    put(&daemon.operator, "look", http(&outside, "GET", "/big", minute)).await.expect(StatusCode::CREATED);
    let tools = json!([{"name": "look", "run": {"named": "look"}}]);
    daemon.operator.post("/v1/neurons", json!({"id": "m", "tools": tools})).await.expect(StatusCode::CREATED);
    let asked = async || {
        let answer = daemon.operator.post("/v1/neurons/m/invoke", json!({"input": "look {}"})).await;
        answer.expect(StatusCode::OK)["output"].as_str().unwrap().to_owned()
    };
    let seen = asked().await;
    assert!(seen.len() <= 256 && seen.contains("result_read"), "{seen}");
    let refused = asked().await;
    assert!(refused.contains("1 calls a minute"), "{refused}");
    assert_eq!(outside.seen().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_reads_on_in_a_result_that_is_too_long() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    // It reads on from where the beginning ends, and then ends with what it read.
    let reads_on = |request: &ChatRequest, _: usize| {
        let results: Vec<&str> =
            request.messages.iter().filter(|it| it.role == "tool").filter_map(|it| it.content.as_deref()).collect();
        match results[..] {
            [] => Reply::Tools(vec![("c1".into(), "look".into(), "{}".into())]),
            [beginning] => {
                let at = beginning.find("result_read ").unwrap() + "result_read ".len();
                let params = beginning[at..].trim_end_matches(']').to_owned();
                Reply::Tools(vec![("c2".into(), "result_read".into(), params)])
            }
            [.., last] => Reply::Text(last.into()),
        }
    };
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(reads_on).await;
    let limits = json!({"limits": {"result_bytes": 1024}});
    put(&daemon.operator, "look", http(&outside, "GET", "/big", limits)).await.expect(StatusCode::CREATED);
    refer(&daemon.operator, "look").await;
    let read = invoke(&daemon.operator, "go").await;
    let read = read.as_str().unwrap();
    assert!(read.starts_with("xxxx") && read.len() > 4_000 && read.ends_with("bytes are left]"), "{}", read.len());
    let names = |n: usize| {
        daemon.model.asked()[n].tools.iter().map(|tool| tool["function"]["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((names(0), names(1)), (vec![json!("look")], vec![json!("look"), json!("result_read")]));
    assert_eq!(outside.seen().len(), 1, "the result was fetched once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_is_charged_once_and_given_back_if_refused() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let (store, client) = (daemon.daemon.app.store().clone(), &daemon.operator);
    let balance = async || store.account("house").await.unwrap().unwrap().available().micro_usd;
    let credit = AccountOp::Credit(Amount { tokens: 0, micro_usd: 250 - balance().await });
    store.commit(Batch::new(&Origin::system("test")).account("house", credit, "test")).await.unwrap();
    let more = json!({"approval": "never", "price_micro_usd": 100});
    for (id, method, path) in [("book", "POST", "/bookings"), ("look", "GET", "/places"), ("gone", "POST", "/gone")] {
        put(client, id, http(&outside, method, path, more.clone())).await.expect(StatusCode::CREATED);
    }
    let tools = json!(["book", "look", "gone"].map(|id| json!({"name": id, "run": {"named": id}})));
    client.post("/v1/neurons", json!({"id": "n", "tools": tools})).await.expect(StatusCode::CREATED);
    assert_eq!(invoke(client, r#"book {"slot": 1}"#).await, "here is /bookings");
    assert_eq!(balance().await, 150);
    assert!(invoke(client, r#"gone {"slot": 1}"#).await.as_str().unwrap().contains("410"));
    assert_eq!(balance().await, 150, "what was certainly not done costs nothing");
    assert_eq!(invoke(client, "look {}").await, "here is /places");
    assert_eq!(balance().await, 50);
    for input in [r#"book {"slot": 2}"#, "look {}"] {
        let refused = invoke(client, input).await;
        assert!(refused.as_str().unwrap().contains("not called"), "{refused}");
    }
    assert_eq!((balance().await, outside.seen().len()), (50, 3), "nothing is announced that cannot be paid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_an_argument_is_hidden_from_models_and_kept() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let client = &daemon.operator;
    let more = |key: &str| {
        json!({"approval": "never", "key_argument": key, "parameters": {"type": "object", "required": ["slot", "request"],
            "properties": {"slot": {"type": "integer"}, "request": {"type": "string", "format": "uuid"}}}})
    };
    let unknown = put(client, "book", http(&outside, "POST", "/bookings", more("token"))).await;
    let why = unknown.expect(StatusCode::UNPROCESSABLE_ENTITY).to_string();
    assert!(why.contains("key_argument: there is no parameter"), "{why}");
    for (id, path) in [("book", "/bookings"), ("busy", "/busy")] {
        let made = put(client, id, http(&outside, "POST", path, more("request"))).await.expect(StatusCode::CREATED);
        assert_eq!(made["tools"][0]["parameters"]["required"], json!(["slot"]));
    }
    let tools = json!(["book", "busy"].map(|id| json!({"name": id, "run": {"named": id}})));
    client.post("/v1/neurons", json!({"id": "n", "tools": tools})).await.expect(StatusCode::CREATED);
    assert_eq!(invoke(client, r#"book {"slot": 4}"#).await, "here is /bookings");
    let seen = daemon.model.asked()[0].tools[0]["function"]["parameters"].clone();
    assert_eq!((&seen["required"], &seen["properties"]["request"]), (&json!(["slot"]), &Value::Null));
    let key = |n: usize| outside.seen()[n].body["request"].as_str().unwrap().to_owned();
    assert_eq!((key(0).len(), &key(0)[14..15]), (36, "8"), "{}", key(0));
    let refused = invoke(client, r#"book {"slot": 5, "request": "mine"}"#).await;
    assert!(refused.as_str().unwrap().contains("the daemon fills in request"), "{refused}");
    // A server that asks for time gets the same key again.
    assert_eq!(invoke(client, r#"busy {"slot": 6}"#).await, "here is /busy");
    assert_eq!((outside.seen().len(), key(1) == key(2), key(0) == key(1)), (3, true, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn look_ups_take_no_longer_than_a_neuron_allows() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let client = &daemon.operator;
    for (id, method, path) in [("wait", "GET", "/never"), ("look", "GET", "/places"), ("book", "POST", "/bookings")] {
        let tool = http(&outside, method, path, json!({"approval": "never"}));
        put(client, id, tool).await.expect(StatusCode::CREATED);
    }
    let tools = json!(["wait", "look", "book"].map(|id| json!({"name": id, "run": {"named": id}})));
    let neuron = |reads_s: u32| json!({"id": "n", "tools": tools, "reads_s": reads_s});
    let refused = client.post("/v1/neurons", neuron(0)).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.to_string().contains("reads_s is 1 to 600"), "{refused}");
    client.post("/v1/neurons", neuron(1)).await.expect(StatusCode::CREATED);
    let late = invoke(client, "wait {}").await;
    assert!(late.as_str().unwrap().contains("what takes longer needs a goal"), "{late}");
    assert_eq!(invoke(client, "look {}").await, "here is /places", "another invocation has time of its own");
    assert_eq!(invoke(client, r#"book {"slot": 1}"#).await, "here is /bookings");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_time_is_given_it() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let tools = json!([
        outside.tool("busy", "POST", "/busy", json!({})),
        outside.tool("closed", "POST", "/closed", json!({})),
        outside.tool("look", "GET", "/places", json!({})),
    ]);
    daemon.operator.post("/v1/neurons", json!({"id": "n", "tools": tools})).await.expect(StatusCode::CREATED);
    assert_eq!(invoke(&daemon.operator, r#"busy {"slot": 1}"#).await, "here is /busy");
    let keys: Vec<String> = outside.seen().iter().map(|seen| seen.header("idempotency-key")).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1], "{keys:?}");
    let refused = invoke(&daemon.operator, r#"closed {"slot": 1}"#).await;
    assert!(refused.as_str().unwrap().contains("try again in 600 s"), "{refused}");
    assert!(!refused.as_str().unwrap().contains("unknown"), "it was certainly not done: {refused}");
    // Until then nothing is sent there.
    let refused = invoke(&daemon.operator, "look {}").await;
    assert!(refused.as_str().unwrap().contains("left alone"), "{refused}");
    assert_eq!(outside.seen().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_goes_only_to_its_hosts() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(obedient).await;
    let client = &daemon.operator;
    let keep = |id: &str, hosts: Value| {
        let secret = json!({"id": id, "secure_body": "hunter2hunter2", "metadata": {"hosts": hosts}});
        client.post("/api/resource", secret)
    };
    keep("here", json!([outside.address()])).await.expect(StatusCode::CREATED);
    keep("there", json!(["mail.example"])).await.expect(StatusCode::CREATED);
    let refused = keep("odd", json!("mail.example")).await;
    assert!(refused.body.to_string().contains("metadata.hosts"), "{}", refused.body);
    let tools = json!([outside.tool("send", "POST", "/send", json!({}))]);
    client.post("/v1/neurons", json!({"id": "n", "tools": tools})).await.expect(StatusCode::CREATED);
    // Nobody is asked about a secret that does not belong there.
    let refused = invoke(client, r#"send {"key": "{{secret:there}}"}"#).await;
    assert!(refused.as_str().unwrap().contains("the secret there is not for"), "{refused}");
    let asked = client.post("/v1/neurons/n/invoke", json!({"input": r#"send {"key": "{{secret:here}}"}"#})).await;
    let token = asked.expect(StatusCode::ACCEPTED)["context_token"].clone();
    let body = json!({"context_token": token, "tool_results": [{"id": "c1", "approved": true}]});
    client.post("/v1/neurons/n/continue", body).await.expect(StatusCode::OK);
    assert_eq!(outside.seen()[0].body["key"], "hunter2hunter2");
}
