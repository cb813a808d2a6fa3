//! The six kinds over real sockets: what each takes and answers (MISSION N2), whatever its model says.

use neurons::llm::scripted::{Reply, Scripted};
use neurons::llm::{Abilities, ChatRequest, CompletionMode, JsonMode, LlmProvider, Model, Models, Price};
use neurons::{CallOptions, HOUSE, NeuronSpec, Neurons, Stop, Tier};
use nexus::Nexus;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use store::ledger::{AccountOp, Amount};
use store::{Batch, ManualClock, Memory, Origin, Store};
use tests::TestDaemon;

async fn invoke(daemon: &TestDaemon, spec: Value, input: Value) -> Value {
    let made = daemon.operator.post("/v1/neurons", spec).await.expect(StatusCode::CREATED);
    let path = format!("/v1/neurons/{}/invoke", made["id"].as_str().unwrap());
    let answer = daemon.operator.post(&path, json!({"input": input})).await.expect(StatusCode::OK);
    assert_eq!(answer["status"], "completed");
    answer["output"].clone()
}

fn said(request: &ChatRequest) -> String {
    request.messages.last().unwrap().content.clone().unwrap_or_default()
}

/// Answers these one after the other, and the last for ever.
async fn saying(replies: &[Value]) -> TestDaemon {
    let replies: Vec<String> =
        replies.iter().map(|reply| reply.as_str().map_or_else(|| reply.to_string(), str::to_owned)).collect();
    TestDaemon::start(move |_, before| Reply::Text(replies[before.min(replies.len() - 1)].clone())).await
}

#[tokio::test]
async fn a_structured_output_neuron_reports_every_fault_to_the_model() {
    let daemon = saying(&[json!({"age": -1}), json!("```json\n{\"name\": \"Ada\", \"age\": 36}\n```")]).await;
    let schema = json!({
        "type": "object",
        "required": ["name", "age"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    });
    let output = invoke(
        &daemon,
        json!({"kind": "structured_output"}),
        json!({"memory": "Read it.", "events": [{"role": "user", "content": "Ada is 36"}], "structuredOutput": schema}),
    )
    .await;
    assert_eq!(output, json!({"name": "Ada", "age": 36}));
    let asked = daemon.model.asked();
    assert_eq!(asked[0].messages[0].content.as_deref(), Some("Read it."));
    let told = said(&asked[1]);
    assert!(told.contains("name") && told.contains("-1"), "both faults are told: {told}");
    let op = &daemon.operator;
    op.post("/v1/neurons", json!({"id": "bare", "kind": "structured_output"})).await.expect(StatusCode::CREATED);
    op.post("/v1/neurons/bare/invoke", json!({"input": "x"})).await.refused(422, "invalid");
    let wrong = json!({"input": {"events": [], "structured_output": {"type": "nothing"}}});
    op.post("/v1/neurons/bare/invoke", wrong).await.refused(422, "invalid");
    op.post("/v1/neurons/bare/invoke", json!({"input": {"events": [], "surprise": 1}})).await.refused(422, "invalid");
}

#[tokio::test]
async fn a_registered_output_fits_its_schema_or_is_told_why_not() {
    let finalize = |n: i64| Reply::Tools(vec![("c".into(), "finalize_output".into(), json!({"n": n}).to_string())]);
    // Two rounds of a tool that is not there, and then one output that does not fit.
    let nothing = || Reply::Tools(vec![("t".into(), "nothing".into(), "{}".into())]);
    let daemon = TestDaemon::start(move |_, before| match before {
        0 | 1 => nothing(),
        2 => finalize(-5),
        _ => finalize(5),
    })
    .await;
    let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 0}}});
    let output = invoke(&daemon, json!({"kind": "tool_augmented", "structured_output": schema}), json!("count")).await;
    assert_eq!(output, json!("{\"n\":5}"));
    assert!(said(&daemon.model.asked()[3]).contains("less than the minimum"));
}

#[tokio::test]
async fn a_callers_tools_stand_beside_the_neurons_own() {
    let daemon = TestDaemon::start(|request, _| {
        Reply::Text(
            request.tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect::<Vec<_>>().join(" "),
        )
    })
    .await;
    let spec = json!({"id": "t", "kind": "tool_augmented", "tools": [{"name": "own"}]});
    let input = json!({"events": [{"role": "user", "content": "x"}], "tools": [{"name": "theirs"}]});
    assert_eq!(invoke(&daemon, spec, input).await, "own theirs");
    for tool in [json!({"name": "own"}), json!({"name": "theirs", "run": {"kip": {"nexus": "commons"}}})] {
        let input = json!({"input": {"events": [], "tools": [tool]}});
        daemon.operator.post("/v1/neurons/t/invoke", input).await.refused(422, "invalid");
    }
}

#[tokio::test]
async fn a_completion_goes_on_and_ends_at_its_stop() {
    let daemon = saying(&[json!("fn main() -> Option { run() }\n// end")]).await;
    let input = json!({"prefixMessage": "fn main() -> Option", "stop": "\n//"});
    assert_eq!(invoke(&daemon, json!({"id": "c", "kind": "completion"}), input).await, " { run() }");
    let asked = &daemon.model.asked()[0];
    assert!(said(asked).ends_with("fn main() -> Option") && asked.messages.last().unwrap().role == "user");
    assert_eq!(asked.stop, Some(json!(["\n//"])));
    let output = daemon
        .operator
        .post("/v1/neurons/c/invoke", json!({"input": "fn main() -> Option"}))
        .await
        .expect(StatusCode::OK);
    assert_eq!(output["output"], " { run() }\n// end", "a string is the prefix");
    for wrong in [json!(""), json!({"prefix_message": "x", "stop": [""]}), json!({"prefix_message": 7})] {
        daemon.operator.post("/v1/neurons/c/invoke", json!({"input": wrong})).await.refused(422, "invalid");
    }
}

/// Neurons over a model that can do so much, without a daemon.
async fn neurons(model: &Scripted, abilities: Abilities, small: bool) -> Neurons {
    let store = Store::open(Arc::new(Memory::default()), Arc::new(ManualClock::default())).await.unwrap();
    let house = Amount { tokens: 1_000_000, micro_usd: 0 };
    store.commit(Batch::new(&Origin::system("test")).account(HOUSE, AccountOp::Open(house), "house")).await.unwrap();
    let provider: Arc<dyn LlmProvider> = model.provider_that("scripted", abilities).unwrap();
    let of = |name: &str| Model {
        provider: provider.clone(),
        name: name.into(),
        price: Price::default(),
        context_tokens: 8192,
        small,
        tools: abilities.tools,
    };
    let models = Models::new([(Tier::Standard, of("model"))].into()).with_embedder(of("embedder"));
    Neurons::open(store.clone(), tests::tools_of(Nexus::new(store)), models).await.unwrap()
}

async fn think(neurons: &Neurons, spec: Value, input: Value) -> Value {
    let spec: NeuronSpec = serde_json::from_value(spec).unwrap();
    spec.check().unwrap();
    let thought = neurons
        .think(
            &Origin::system("test"),
            &HOUSE.into(),
            &uuid::Uuid::now_v7().to_string().into(),
            &spec,
            &input,
            CallOptions::default(),
        )
        .await;
    match thought.unwrap_or_else(|error| panic!("{error}")).stop {
        Stop::Completed(completed) => completed.output,
        Stop::Paused(calls) => panic!("it waits for {calls:?}"),
    }
}

#[tokio::test]
async fn a_provider_is_asked_as_it_can_be_asked() {
    let model = Scripted::new(|request, _| {
        Reply::Text(if request.response_format.is_some() || said(request).contains("Ada") {
            "{\"a\": 1}".into()
        } else {
            "and on".into()
        })
    });
    let completions = Abilities { completion: CompletionMode::Completions, json: JsonMode::Prompt, tools: true };
    let by_prompt = neurons(&model, completions, false).await;
    let schema = json!({"type": "object", "required": ["a"]});
    let spec = json!({"kind": "structured_output", "structured_output": schema});
    assert_eq!(think(&by_prompt, spec.clone(), json!("Ada")).await, json!({"a": 1}));
    let asked = model.asked().pop().unwrap();
    assert!(asked.response_format.is_none() && asked.messages[0].content.as_deref().unwrap().contains("JSON Schema"));
    let prefixes =
        neurons(&model, Abilities { completion: CompletionMode::Prefix, json: JsonMode::Object, tools: true }, false)
            .await;
    assert_eq!(think(&prefixes, spec, json!("Ada")).await, json!({"a": 1}));
    assert_eq!(model.asked().pop().unwrap().response_format, Some(json!({"type": "json_object"})));
    assert_eq!(think(&prefixes, json!({"kind": "completion"}), json!("on")).await, "and on");
    let asked = model.asked().pop().unwrap();
    assert_eq!((asked.messages.last().unwrap().prefix, said(&asked)), (Some(true), "on".into()));
    assert_eq!(think(&by_prompt, json!({"kind": "completion", "stop": ["on"]}), json!("go")).await, "and ");
    let asked = model.asked().pop().unwrap();
    assert_eq!((asked.messages.len(), said(&asked)), (1, "You continue texts.\n\ngo".into()), "by a prompt of its own");
}

const FLEET: &str = r#"[{"neuron": "sailor", "description": "sailing boats and harbours"},
    {"neuron": "cook", "description": "food and recipes", "examples": ["what can I eat tonight"]}, "clerk"]"#;

fn fleet() -> Value {
    serde_json::from_str(FLEET).unwrap()
}

#[tokio::test]
async fn a_router_hands_events_only_to_the_neurons_it_knows() {
    let route =
        |neuron: &str, content: &str| json!({"neuron": neuron, "events": [{"role": "user", "content": content}]});
    let daemon = saying(&[
        json!({"routes": [route("captain", "sail")]}),
        json!({"routes": [route("sailor", "sail"), route("cook", "eat"), route("sailor", "moor")]}),
    ])
    .await;
    daemon
        .operator
        .post("/v1/neurons", json!({"id": "clerk", "description": "writes letters"}))
        .await
        .expect(StatusCode::CREATED);
    let spec = json!({"id": "r", "kind": "router", "memory": "Be quick.", "neurons": fleet()});
    let output = invoke(&daemon, spec, json!("sail, eat and moor")).await;
    let event = |content: &str| json!({"role": "user", "content": content});
    assert_eq!(
        output,
        json!([
            {"neuron": "sailor", "events": [event("sail"), event("moor")]},
            {"neuron": "cook", "events": [event("eat")]},
        ])
    );
    let asked = daemon.model.asked();
    let system = asked[0].messages[0].content.clone().unwrap();
    assert!(
        system.contains("Be quick.") && system.contains("clerk: writes letters") && system.contains("eat tonight"),
        "{system}"
    );
    assert!(said(&asked[1]).contains("captain"), "an unknown name is told to the model");
    let schema = asked[0].response_format.as_ref().unwrap().to_string();
    assert!(schema.contains(r#""enum":["sailor","cook","clerk"]"#), "{schema}");
    assert_eq!(
        daemon
            .operator
            .post(
                "/v1/neurons/r/invoke",
                json!({
                    "input": {"events": []},
                })
            )
            .await
            .expect(StatusCode::OK)["output"],
        json!([])
    );
    assert_eq!(daemon.model.asked().len(), 2, "nothing to hand on asks nobody");
    for misspelt in [json!({"neuron": "a", "descripton": "x"}), json!(7)] {
        let refused = json!({"kind": "router", "neurons": [misspelt]});
        daemon.operator.post("/v1/neurons", refused).await.refused(422, "invalid");
    }
    let none = json!({"input": {"events": [{"role": "user", "content": "x"}], "neurons": []}});
    daemon.operator.post("/v1/neurons/r/invoke", none).await.refused(422, "invalid");
    for (wrong, member) in [
        (json!({"kind": "router", "neurons": ["a", "a"]}), "neurons[1]"),
        (json!({"kind": "router", "neurons": ["a b"]}), "neurons[0]"),
        (json!({"kind": "router", "neurons": ["a"], "otherwise": "b"}), "otherwise"),
        (json!({"kind": "base", "neurons": ["a"]}), "neurons"),
        (json!({"kind": "base", "stop": ["a"]}), "stop"),
        (json!({"kind": "completion", "tools": [{"name": "a"}]}), "tools"),
        (json!({"kind": "transformer", "transform": {"compress": {"tokens": 0}}}), "tokens"),
        (json!({"kind": "transformer", "transform": {"inhibit": {"drop_matching": ["("]}}}), "drop_matching"),
        (
            json!({"kind": "transformer", "transform": {"inhibit": {"drop_matching": ["\\w{999}\\w{999}"]}}}),
            "drop_matching",
        ),
        (json!({"kind": "transformer", "transform": {"convert": {"schema": {"$ref": "#"}}}}), "$ref"),
        (json!({"kind": "base", "tools": [{"name": "finalize_output"}]}), "finalize_output"),
    ] {
        let refused = daemon.operator.post("/v1/neurons", wrong).await.refused(422, "invalid");
        assert!(refused["detail"].as_str().unwrap().contains(member), "{refused}");
    }
}

#[tokio::test]
async fn no_routes_are_a_legal_answer() {
    let daemon = saying(&[json!({"routes": []})]).await;
    assert_eq!(invoke(&daemon, json!({"kind": "router", "neurons": fleet()}), json!("hm")).await, json!([]));
}

#[tokio::test]
async fn where_the_model_is_small_likeness_routes() {
    let model = Scripted::new(|_, _| Reply::Status(500, "nobody asks the model".into()));
    let neurons = neurons(&model, Abilities::default(), true).await;
    let spec = json!({"kind": "router", "neurons": fleet()});
    let event = |content: &str| json!({"role": "user", "content": content});
    let events = json!({
        "events": [event("which harbours take boats"), event("what to eat"), event("quantum chromodynamics"), event("boats")],
    });
    let routed = json!([
        {"neuron": "sailor", "events": [event("which harbours take boats"), event("boats")]},
        {"neuron": "cook", "events": [event("what to eat")]},
    ]);
    assert_eq!(think(&neurons, spec.clone(), events.clone()).await, routed);
    let many: Vec<Value> = (0..2_100).map(|n| event(&format!("boats {n}"))).collect();
    let routed_many = think(&neurons, spec.clone(), json!({"events": many})).await;
    let routes = routed_many.as_array().unwrap().iter();
    assert_eq!(routes.map(|route| route["events"].as_array().unwrap().len()).sum::<usize>(), 2_100);
    let mut otherwise = spec;
    otherwise["otherwise"] = json!("clerk");
    let routed = think(&neurons, otherwise.clone(), events).await;
    assert_eq!(routed[2], json!({"neuron": "clerk", "events": [event("quantum chromodynamics")]}));
    let mut other = otherwise.clone();
    other["otherwise"] = json!("cook");
    let elsewhere = json!({"events": [event("boats")], "neurons": [{"neuron": "harbour", "description": "boats"}]});
    assert_eq!(
        think(&neurons, other, elsewhere).await[0]["neuron"],
        "harbour",
        "its own otherwise goes with its neurons"
    );
    assert!(model.asked().is_empty());
}

#[tokio::test]
async fn where_the_model_is_small_likeness_chooses_the_tool() {
    let model = Scripted::new(|request, _| match &request.tool_choice {
        Some(Value::Object(choice)) => {
            let name = choice["function"]["name"].as_str().unwrap().to_owned();
            Reply::Tools(vec![("c1".into(), name, json!({"command": "DESCRIBE PRIMER"}).to_string())])
        }
        _ => Reply::Text(said(request)),
    });
    let neurons = neurons(&model, Abilities::default(), true).await;
    let tools = json!([{"name": "weather", "description": "weather forecast for a place"},
        {"name": "mind", "description": "what is remembered", "run": {"kip": {"nexus": "commons"}}}]);
    let spec = json!({"kind": "base", "tools": tools});
    let output = think(&neurons, spec.clone(), json!("what is remembered")).await;
    assert!(output.as_str().unwrap().contains("domain_map"), "the tool's answer came back: {output}");
    let choices: Vec<Value> = model.asked().iter().map(|request| request.tool_choice.clone().unwrap()).collect();
    assert_eq!(choices, [json!({"type": "function", "function": {"name": "mind"}}), json!("none")]);
    assert_eq!(think(&neurons, spec, json!("hello")).await, "hello", "nothing is like a tool");
}

#[tokio::test]
async fn a_transformer_gives_events_for_events() {
    let event = |content: &str| json!({"role": "note", "content": content});
    let daemon =
        saying(&[json!({"events": [event(&"far too long ".repeat(30))]}), json!({"events": [event("short")]})]).await;
    let long: Vec<Value> = (0..20).map(|n| event(&format!("something long that was said number {n}"))).collect();
    let compress = json!({"id": "t", "kind": "transformer", "transform": {"compress": {"tokens": 20}}});
    assert_eq!(invoke(&daemon, compress, json!({"events": long})).await, json!({"events": [event("short")]}));
    assert!(said(&daemon.model.asked()[1]).contains("at most 20"), "what is too long is told so");
    let short = json!({"input": {"events": [event("already short")]}});
    let kept = daemon.operator.post("/v1/neurons/t/invoke", short).await.expect(StatusCode::OK);
    assert_eq!((&kept["output"]["events"][0], daemon.model.asked().len()), (&event("already short"), 2));
    let enrich = json!({"kind": "transformer", "memory": "Add the year.", "transform": "enrich"});
    let given = json!({"role": "user", "content": "the war", "id": 7});
    let enriched = invoke(&daemon, enrich, json!({"events": [given]})).await;
    assert_eq!(enriched, json!({"events": [given, event("short")]}), "what was given stays as it was");
}

#[tokio::test]
async fn a_transformer_converts_to_a_schema_and_inhibits_by_rule() {
    let daemon = saying(&[json!({"events": [{"role": "task", "content": {"title": "sail"}}]})]).await;
    let content = json!({"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}});
    let content = json!({"$ref": "#/$defs/task", "$defs": {"task": content}});
    let convert = json!({"kind": "transformer", "transform": {"convert": {"schema": content}}});
    let given = json!({"events": [{"role": "user", "content": "let us sail", "id": 7}]});
    let converted = invoke(&daemon, convert, given).await;
    let kept = json!({"role": "user", "content": {"title": "sail"}, "id": 7});
    assert_eq!(converted, json!({"events": [kept]}), "whose it is stays as it was");
    let before = daemon.model.asked().len();
    let inhibit = json!({"kind": "transformer", "transform": {"inhibit": {"dedup": true, "keep_last": 2}}});
    let event = |content: &str| json!({"role": "a", "content": content, "at": "2026-01-01T00:00:00Z"});
    let kept = invoke(&daemon, inhibit, json!({"events": [event("1"), event("2"), event("1"), event("3")]})).await;
    assert_eq!(kept, json!({"events": [event("2"), event("3")]}));
    assert_eq!(daemon.model.asked().len(), before);
}

#[tokio::test]
async fn the_openapi_document_describes_each_neuron_kind() {
    let daemon = saying(&[json!("x")]).await;
    let document = daemon.operator.get("/openapi.json").await.expect(StatusCode::OK);
    let schemas = &document["components"]["schemas"];
    for (name, member) in [
        ("BaseInput", "events"),
        ("StructuredOutputInput", "structured_output"),
        ("ToolAugmentedInput", "tools"),
        ("CompletionInput", "prefix_message"),
        ("RouterInput", "neurons"),
        ("TransformerInput", "events"),
        ("Route", "neuron"),
        ("TransformerOutput", "events"),
        ("NeuronSpec", "transform"),
    ] {
        assert!(schemas[name]["properties"][member].is_object(), "{name}.{member}: {}", schemas[name]);
    }
    // Each operation has a name of its own.
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "{method} {path}: {name} is named twice");
        }
    }
    // Every reference leads somewhere.
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(schemas[reference].is_object(), "{reference}");
    }
}
