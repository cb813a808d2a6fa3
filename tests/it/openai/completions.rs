//! The OpenAI-compatible door with a scripted model; the official clients are run by `tests/clients/run`.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::TestDaemon;

fn model(request: &ChatRequest, _: usize) -> Reply {
    let last = request.messages.last().unwrap();
    match (&*last.role, request.tools.is_empty(), last.content.as_deref()) {
        ("user", false, _) => Reply::Tools(vec![("c1".into(), "look".into(), "{}".into())]),
        (_, _, Some("fail")) => Reply::Status(429, "later".into()),
        (_, _, content) => Reply::Text(format!("{}: {}", request.messages[0].role, content.unwrap_or_default())),
    }
}

fn ask(model: &str, content: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": content}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn models_neurons_and_fascicles_answer_in_the_openai_format() {
    let daemon = TestDaemon::start(model).await;
    let op = &daemon.operator;
    op.post("/v1/neurons", json!({"id": "n", "memory": "You are n."})).await.expect(StatusCode::CREATED);
    let node = json!({"id": "a", "run": {"neuron": {"id": "n"}}});
    op.post("/v1/fascicles", json!({"id": "f", "output": "a", "nodes": [node]})).await.expect(StatusCode::CREATED);
    let listed = op.get("/v1/models").await.expect(StatusCode::OK);
    let names: Vec<&str> = listed["data"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    for name in ["standard", "scripted/standard", "neuron:n", "fascicle:f", "fascicle:intent_analysis"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    for (model, says) in [
        ("high", "user: hi"),
        ("scripted/standard", "user: hi"),
        ("neuron:n", "system: hi"),
        ("fascicle:f", "system: hi"),
    ] {
        let answer = op.post("/v1/chat/completions", ask(model, "hi")).await.expect(StatusCode::OK);
        assert_eq!(
            (&answer["choices"][0]["message"]["content"], &answer["choices"][0]["finish_reason"]),
            (&json!(says), &json!("stop")),
            "{model}"
        );
    }
    let house = op.get("/v1/house/resources").await.expect(StatusCode::OK);
    assert!(house["spent"]["tokens"].as_i64().unwrap() > 0 && house["held"]["tokens"] == 0);
    // A conversation with the caller's tools, which the caller keeps.
    let tools = json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]);
    let mut body = ask("neuron:n", "hi");
    body["tools"] = tools;
    let called = op.post("/v1/chat/completions", body.clone()).await.expect(StatusCode::OK);
    let message = &called["choices"][0]["message"];
    assert_eq!(
        (&called["choices"][0]["finish_reason"], &message["tool_calls"][0]["function"]["name"]),
        (&json!("tool_calls"), &json!("look"))
    );
    let said = body["messages"].as_array_mut().unwrap();
    said.extend([
        message.clone(),
        json!({"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sea"}]}),
    ]);
    let told = op.post("/v1/chat/completions", body).await.expect(StatusCode::OK);
    assert_eq!(told["choices"][0]["message"]["content"], "system: sea");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_their_status_and_openais_form() {
    let daemon = TestDaemon::start(model).await;
    let op = &daemon.operator;
    for (body, status) in [
        (ask("nobody", "x"), 404),
        (ask("neuron:nobody", "x"), 404),
        (ask("fascicle:nobody", "x"), 404),
        (ask("high", "fail"), 429),
        (ask("fascicle:research", "x"), 502),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let refused = op.post("/v1/chat/completions", body.clone()).await;
            assert_eq!(refused.status.as_u16(), status, "{body}: {}", refused.body);
            assert!(refused.body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
        }
    }
    let observer = daemon.person("user:eve", "observer").await;
    assert_eq!(observer.post("/v1/chat/completions", ask("high", "x")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        op.post("/v1/embeddings", json!({"model": "x", "input": "y"})).await.status,
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test]
async fn the_openai_route_honours_or_refuses_every_request_option() {
    let asked: std::sync::Arc<std::sync::Mutex<Vec<ChatRequest>>> = std::sync::Arc::default();
    let seen = asked.clone();
    let daemon = TestDaemon::start(move |request, _| {
        seen.lock().unwrap().push(request.clone());
        Reply::Text("well".into())
    })
    .await;
    let ask = async |more: Value| {
        let mut body = json!({"model": "standard", "messages": [{"role": "user", "content": "hello"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        daemon.operator.post("/v1/chat/completions", body).await
    };
    let first =
        ask(json!({"max_completion_tokens": 33, "user": "u1", "n": 1, "store": false})).await.expect(StatusCode::OK);
    let second = ask(json!({})).await.expect(StatusCode::OK);
    assert_eq!(asked.lock().unwrap()[0].max_tokens, Some(33), "it is no more than was asked for");
    assert_ne!(first["id"], second["id"]);
    assert!(first["created"].as_i64().unwrap() > 1_700_000_000, "{first}");
    let image = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]});
    for (more, named) in [
        (json!({"n": 3}), "n:"),
        (image, "image_url"),
        (json!({"max_completion_tokens": "many"}), "max_completion_tokens"),
        (json!({"messages": [{"role": "user", "content": "hello", "zzz": 1}]}), "messages[0].zzz"),
        (json!({"messages": [{"role": "boss", "content": "hello"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}), "has a text under text"),
        (
            json!({"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}]}),
            "calls of functions",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "zzz": 1}]}]}),
            "zzz of a part",
        ),
    ] {
        let refused = ask(more).await;
        assert_eq!((refused.status.as_u16(), &refused.body["error"]["type"]), (400, &json!("invalid_request_error")));
        assert!(refused.body["error"]["message"].as_str().unwrap().contains(named), "{}", refused.body);
    }
    let twice = r#"{"model": "standard", "messages": [{"role": "user", "content": "a", "content": "b"}]}"#;
    let refused = daemon.operator.raw("/v1/chat/completions", twice).await;
    assert!(refused.status == 400 && refused.body.to_string().contains("content is a duplicate"), "{}", refused.body);
    assert_eq!(asked.lock().unwrap().len(), 2, "what is refused is not asked");
    // Who says it is said on, and what clients send back of an answer passes.
    let told = json!({"messages": [{"role": "user", "name": "ada", "content": ["hel",
        {"type": "text", "text": "lo", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": "well", "refusal": null, "annotations": []}, {"role": "user", "content": "and?"}]});
    ask(told).await.expect(StatusCode::OK);
    assert_eq!(asked.lock().unwrap()[2].messages[0].name.as_deref(), Some("ada"));
    assert_eq!(asked.lock().unwrap()[2].messages[0].content.as_deref(), Some("hello"));
    let embed = json!({"model": "embedder", "input": "hello", "zzz": 1});
    let refused = daemon.operator.post("/v1/embeddings", embed).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    // What nothing here can do is refused where it would be lost.
    daemon.operator.post("/v1/neurons", json!({"id": "n", "memory": "x"})).await.expect(StatusCode::CREATED);
    let refused = ask(json!({"model": "neuron:n", "logit_bias": {"50256": -100}})).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    assert!(refused.body["error"]["message"].as_str().unwrap().contains("logit_bias"));
    for own in [
        json!({"temperature": 1.7}),
        json!({"seed": 7}),
        json!({"max_completion_tokens": 5}),
        json!({"stop": ["a"]}),
        json!({"tool_choice": "required"}),
        json!({"response_format": {"type": "json_object"}}),
        json!({"messages": []}),
    ] {
        let mut asked = own.clone();
        asked["model"] = json!("neuron:n");
        assert_eq!(ask(asked).await.status, 400, "{own}");
    }
    let known = daemon.operator.get("/v1/models/neuron:n").await.expect(StatusCode::OK);
    assert_eq!((&known["id"], &known["object"]), (&json!("neuron:n"), &json!("model")));
    let missing = daemon.operator.get("/v1/models/nothing").await;
    assert_eq!((missing.status.as_u16(), &missing.body["error"]["type"]), (404, &json!("invalid_request_error")));
}
