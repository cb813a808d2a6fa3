//! Neurons over real sockets: definitions, invoke and continue in the seed's shapes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::TestDaemon;

const TOOL: &str = "search_web";

/// Calls a tool first, and then says what it brought.
async fn searching() -> TestDaemon {
    let daemon =
        TestDaemon::start(|request, _| match request.messages.iter().rev().find(|message| message.role == "tool") {
            Some(found) => Reply::Text(format!("found {}", found.content.as_deref().unwrap_or_default())),
            None => Reply::Tools(vec![("call_1".into(), TOOL.into(), "{\"query\":\"x\"}".into())]),
        })
        .await;
    let spec = json!({
        "id": "t1",
        "kind": "tool_augmented",
        "memory": "You search.",
        "tools": [{"name": TOOL, "parameters": {"type": "object"}}],
    });
    daemon.operator.post("/v1/neurons", spec).await.expect(StatusCode::CREATED);
    daemon
}

#[tokio::test]
async fn a_base_neuron_completes_with_a_string() {
    let daemon = TestDaemon::start(|request, _| {
        Reply::Text(format!("you said {}", request.messages.last().unwrap().content.as_deref().unwrap()))
    })
    .await;
    daemon.operator.post("/v1/neurons", json!({"id": "n1", "memory": "Be brief."})).await.expect(StatusCode::CREATED);
    let answer = daemon.operator.post("/v1/neurons/n1/invoke", json!({"input": "hello"})).await;
    assert_eq!(answer.expect(StatusCode::OK), json!({"status": "completed", "output": "you said hello"}));
    let asked = daemon.model.asked();
    assert_eq!(asked[0].messages[0].content.as_deref(), Some("Be brief."));
    let events =
        json!({"input": {"events": [{"role": "user", "content": "a"}, {"role": "note", "content": {"b": 1}}]}});
    assert_eq!(
        daemon.operator.post("/v1/neurons/n1/invoke", events).await.expect(StatusCode::OK)["output"],
        "you said [note] {\"b\":1}"
    );
}

#[tokio::test]
async fn definitions_are_made_read_changed_and_removed() {
    let daemon = TestDaemon::start(|_, _| Reply::Text("x".into())).await;
    let op = &daemon.operator;
    let made = op.post("/v1/neurons", json!({"memory": "one"})).await.expect(StatusCode::CREATED);
    let path = format!("/v1/neurons/{}", made["id"].as_str().unwrap());
    assert_eq!(op.get(&path).await.expect(StatusCode::OK)["version"], 1);
    assert_eq!(op.put(&path, json!({"memory": "two"})).await.expect(StatusCode::OK)["version"], 2);
    op.send(Method::PUT, &path, &[("if-match", "\"1\"")], Some(json!({"memory": "three"})))
        .await
        .refused(409, "conflict");
    assert_eq!(op.get("/v1/neurons").await.expect(StatusCode::OK)["neurons"][0]["memory"], "two");
    assert_eq!(op.delete(&path).await.status, StatusCode::NO_CONTENT);
    op.get(&path).await.refused(404, "neuron_not_found");
    op.post("/v1/neurons", json!({"id": "same"})).await.expect(StatusCode::CREATED);
    op.post("/v1/neurons", json!({"id": "same"})).await.refused(409, "neuron_exists");
    for (wrong, says) in [
        (json!({"id": "a/b"}), "id"),
        (json!({"kind": "base", "structured_output": {}}), "structured_output is of"),
        (json!({"tools": [{"name": "x y"}]}), "tools[0].name"),
        (
            json!({"structured_output": {"$ref": "http://example.com/schema"}, "kind": "structured_output"}),
            "structured_output",
        ),
        (json!({"temperature": 9.0}), "temperature"),
        (json!({"memorry": "x"}), "memorry"),
    ] {
        let body = op.post("/v1/neurons", wrong.clone()).await.refused(422, "invalid");
        assert!(body["detail"].as_str().unwrap().contains(says), "{wrong}: {body}");
    }
}

#[tokio::test]
async fn a_tool_call_pauses_and_continue_goes_on() {
    let daemon = searching().await;
    let op = &daemon.operator;
    let paused = op.post("/v1/neurons/t1/invoke", json!({"input": "look"})).await.expect(StatusCode::ACCEPTED);
    assert_eq!(paused["status"], "tool_call_required");
    assert_eq!(paused["tool_calls"], json!([{"id": "call_1", "name": TOOL, "params": "{\"query\":\"x\"}"}]));
    let token = paused["context_token"].as_str().unwrap();
    let results = |result: Value| json!({"context_token": token, "tool_results": [result]});
    // A wrong answer consumes nothing.
    op.post("/v1/neurons/t1/continue", results(json!({"id": "other", "result": "1"})))
        .await
        .refused(422, "tool_results");
    op.post("/v1/neurons/t1/continue", json!({"context_token": token, "tool_results": []}))
        .await
        .refused(422, "tool_results");
    let done = op
        .post("/v1/neurons/t1/continue", results(json!({"id": "call_1", "result": "{\"a\":1}"})))
        .await
        .expect(StatusCode::OK);
    assert_eq!(done, json!({"status": "completed", "output": "found {\"a\":1}"}));
    // The same body again is the same answer, not another call; another body is refused.
    let calls = daemon.model.asked().len();
    let again = op.post("/v1/neurons/t1/continue", results(json!({"id": "call_1", "result": "{\"a\":1}"}))).await;
    assert_eq!(again.expect(StatusCode::OK), done);
    op.post("/v1/neurons/t1/continue", results(json!({"id": "call_1", "result": "2"})))
        .await
        .refused(422, "tool_results");
    assert_eq!(daemon.model.asked().len(), calls);
}

#[tokio::test]
async fn a_failed_tool_is_told_to_the_model() {
    let daemon = searching().await;
    let paused =
        daemon.operator.post("/v1/neurons/t1/invoke", json!({"input": "look"})).await.expect(StatusCode::ACCEPTED);
    let body =
        json!({"context_token": paused["context_token"], "tool_results": [{"id": "call_1", "error": "no network"}]});
    let done = daemon.operator.post("/v1/neurons/t1/continue", body).await.expect(StatusCode::OK);
    assert_eq!(done["output"], "found {\"error\":\"no network\"}");
}

#[tokio::test]
async fn a_token_is_bound_to_its_neuron_its_principal_and_its_time() {
    let daemon = searching().await;
    let op = &daemon.operator;
    op.post("/v1/neurons", json!({"id": "t2", "kind": "tool_augmented"})).await.expect(StatusCode::CREATED);
    let paused = op.post("/v1/neurons/t1/invoke", json!({"input": "look"})).await.expect(StatusCode::ACCEPTED);
    let token = paused["context_token"].as_str().unwrap().to_owned();
    let body = |token: &str| json!({"context_token": token, "tool_results": [{"id": "call_1", "result": "1"}]});
    let ada = daemon.person("user:ada", "participant").await;
    ada.post("/v1/neurons/t1/continue", body(&token)).await.refused(404, "no_continuation");
    op.post("/v1/neurons/t2/continue", body(&token)).await.refused(404, "no_continuation");
    let mut forged = token.clone();
    forged.replace_range(token.len() - 1.., if token.ends_with('A') { "B" } else { "A" });
    for wrong in [forged.as_str(), &token[..token.len() - 3], "", "v1.k1.AAAA", &"x".repeat(600)] {
        op.post("/v1/neurons/t1/continue", body(wrong)).await.refused(404, "no_continuation");
    }
    daemon.clock.advance_ms(16 * 60 * 1000);
    op.post("/v1/neurons/t1/continue", body(&token)).await.refused(410, "expired");
}

#[tokio::test]
async fn a_pause_survives_a_kill() {
    let daemon = searching().await;
    let paused =
        daemon.operator.post("/v1/neurons/t1/invoke", json!({"input": "look"})).await.expect(StatusCode::ACCEPTED);
    let daemon = daemon.kill_and_restart().await;
    let body = json!({"context_token": paused["context_token"], "tool_results": [{"id": "call_1", "result": "1"}]});
    assert_eq!(daemon.operator.post("/v1/neurons/t1/continue", body).await.expect(StatusCode::OK)["output"], "found 1");
}

#[tokio::test]
async fn sixty_four_racing_continues_make_one_model_call() {
    let daemon = searching().await;
    let paused =
        daemon.operator.post("/v1/neurons/t1/invoke", json!({"input": "look"})).await.expect(StatusCode::ACCEPTED);
    let before = daemon.model.asked().len();
    let completed = Arc::new(AtomicUsize::new(0));
    let racers: Vec<_> = (0..64)
        .map(|_| {
            let (client, completed) = (daemon.operator.clone(), completed.clone());
            let body =
                json!({"context_token": paused["context_token"], "tool_results": [{"id": "call_1", "result": "1"}]});
            tokio::spawn(async move {
                let answer = client.post("/v1/neurons/t1/continue", body).await;
                match answer.status {
                    StatusCode::OK => drop(completed.fetch_add(1, Ordering::SeqCst)),
                    _ => drop(answer.refused(409, "in_flight")),
                }
            })
        })
        .collect();
    for racer in racers {
        racer.await.unwrap();
    }
    assert_eq!(daemon.model.asked().len(), before + 1);
    assert!(completed.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn a_structured_neuron_answers_json_that_fits_or_fails_by_name() {
    let daemon = TestDaemon::start(|request, _| {
        let tries = request.messages.iter().filter(|message| message.role == "assistant").count();
        let hopeless = request.messages[0].content.as_deref() == Some("hopeless");
        Reply::Text(if tries == 0 || hopeless { "no json".into() } else { "{\"n\": 7}".into() })
    })
    .await;
    let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    for (id, memory) in [("s1", "count"), ("s2", "hopeless")] {
        let spec = json!({"id": id, "memory": memory, "kind": "structured_output", "structured_output": schema});
        daemon.operator.post("/v1/neurons", spec).await.expect(StatusCode::CREATED);
    }
    let answer = daemon.operator.post("/v1/neurons/s1/invoke", json!({"input": "go"})).await.expect(StatusCode::OK);
    assert_eq!(answer["output"], json!({"n": 7}));
    daemon.operator.post("/v1/neurons/s2/invoke", json!({"input": "go"})).await.refused(502, "unusable_output");
    assert_eq!(daemon.model.asked().len(), 2 + 3, "a repair, and then a bounded number of tries");
}

#[tokio::test]
async fn the_server_runs_kip_for_a_neuron() {
    let daemon =
        TestDaemon::start(|request, _| match request.messages.iter().rev().find(|message| message.role == "tool") {
            Some(found) => Reply::Text(found.content.clone().unwrap_or_default()),
            None => Reply::Tools(vec![(
                "c".into(),
                "execute_kip".into(),
                json!({"command": "FIND(?p.name) WHERE { ?p {type: \"Person\"} }"}).to_string(),
            )]),
        })
        .await;
    let (id, _) = daemon.lifeform().await;
    let spec =
        json!({"id": "k", "kind": "tool_augmented", "tools": [{"name": "execute_kip", "run": {"kip": {"nexus": id}}}]});
    daemon.operator.post("/v1/neurons", spec).await.expect(StatusCode::CREATED);
    let answer = daemon.operator.post("/v1/neurons/k/invoke", json!({"input": "who"})).await.expect(StatusCode::OK);
    assert_eq!(answer["output"], "{\"result\":[\"$self\",\"$system\"]}");
}

#[tokio::test]
async fn a_neuron_corrects_invalid_kip_from_the_error_hints() {
    // First a type that nobody defined, then what the hint named; a read-only tool lets it write nothing.
    let daemon = TestDaemon::start(|request, _| {
        let told: Vec<&str> =
            request.messages.iter().filter(|m| m.role == "tool").filter_map(|m| m.content.as_deref()).collect();
        let call = |command: &str| {
            Reply::Tools(vec![("c".into(), "execute_kip".into(), json!({"command": command}).to_string())])
        };
        match told.last() {
            None => call("FIND(?p.name WHERE { ?p {type: \"Person\"} }"),
            Some(answer) if answer.contains("KIP_1001") => call("DESCRIBE CONCEPT TYPE \"Persn\""),
            Some(answer) if answer.contains("did you mean \\\"Person\\\"?") => {
                call("UPSERT { CONCEPT { {type: \"Person\", name: \"x\"} } }")
            }
            Some(answer) if answer.contains("read-only") => call("FIND(?p.name) WHERE { ?p {type: \"Person\"} }"),
            Some(answer) => Reply::Text((*answer).to_owned()),
        }
    })
    .await;
    let (id, _) = daemon.lifeform().await;
    let spec = json!({
        "id": "k",
        "kind": "tool_augmented",
        "tools": [{"name": "execute_kip", "run": {"kip": {"nexus": id, "readonly": true}}}],
    });
    daemon.operator.post("/v1/neurons", spec).await.expect(StatusCode::CREATED);
    let answer = daemon.operator.post("/v1/neurons/k/invoke", json!({"input": "who"})).await.expect(StatusCode::OK);
    assert_eq!(answer["output"], "{\"result\":[\"$self\",\"$system\"]}");
    let asked = daemon.model.asked();
    assert_eq!(asked.len(), 5);
    let tool = serde_json::to_string(&asked[0].tools).unwrap();
    assert!(tool.contains("find ::=") && tool.contains("Runs KIP"), "the grammar card is in the prompt: {tool}");
}

#[tokio::test]
async fn a_broken_model_call_is_charged_and_a_refused_one_is_free() {
    let daemon = TestDaemon::start(|request, n| match request.messages.last().unwrap().content.as_deref().unwrap() {
        "busy once" if n == 0 => Reply::Status(429, "slow down".into()),
        "refuse" => Reply::Status(400, "bad request".into()),
        "break" => Reply::CutOff("half an".into()),
        _ => Reply::Text("fine".into()),
    })
    .await;
    let op = &daemon.operator;
    op.post("/v1/neurons", json!({"id": "n"})).await.expect(StatusCode::CREATED);
    let ask = |input: &str| json!({"input": input});
    op.post("/v1/neurons/n/invoke", ask("busy once")).await.expect(StatusCode::OK);
    let spent = async || daemon.daemon.app.store().account("house").await.unwrap().unwrap().spent.tokens;
    let before = spent().await;
    op.post("/v1/neurons/n/invoke", ask("refuse")).await.refused(422, "model_refused");
    assert_eq!(spent().await, before, "a refused call is free");
    op.post("/v1/neurons/n/invoke", ask("break")).await.refused(502, "model_failed");
    assert!(spent().await > before + 100, "an unknown outcome is charged in full");
    op.post("/v1/neurons/n/invoke", json!({"input": 7})).await.refused(422, "invalid");
    op.post("/v1/neurons/none/invoke", ask("x")).await.refused(404, "neuron_not_found");
}

#[tokio::test]
async fn every_version_is_kept_and_a_memory_tells_how_it_changed() {
    let daemon =
        TestDaemon::start(|request, _| Reply::Text(request.messages[0].content.clone().unwrap_or_default())).await;
    let (op, ada) = (&daemon.operator, daemon.person("user:ada", "participant").await);
    ada.post("/v1/neurons", json!({"id": "n", "memory": "one\ntwo\nthree\n"})).await.expect(StatusCode::CREATED);
    let changed = ada.put("/v1/neurons/n/memory", json!({"memory": "one\n2\nthree\n"})).await.expect(StatusCode::OK);
    assert_eq!(changed["version"], 2);
    op.put("/v1/neurons/n", json!({"memory": "one\n2\nthree\n", "tier": "high"})).await.expect(StatusCode::OK);
    op.send(Method::PUT, "/v1/neurons/n/memory", &[("if-match", "\"1\"")], Some(json!({"memory": "x"})))
        .await
        .refused(409, "conflict");

    let versions = op.get("/v1/neurons/n/versions").await.expect(StatusCode::OK)["versions"].clone();
    let told: Vec<(&Value, &Value)> =
        versions.as_array().unwrap().iter().map(|version| (&version["version"], &version["by"])).collect();
    let (operator, of_ada) = (json!("user:operator"), json!("user:ada"));
    assert_eq!(told, [(&json!(1), &of_ada), (&json!(2), &of_ada), (&json!(3), &operator)]);
    assert!(versions[1]["cause"].to_string().contains("/v1/neurons/n/memory"), "{versions}");
    let page = op.get("/v1/neurons/n/versions?limit=2").await.expect(StatusCode::OK);
    let rest = op.get(&format!("/v1/neurons/n/versions?after={}", page["next"])).await.expect(StatusCode::OK);
    assert_eq!((rest["versions"].as_array().unwrap().len(), &rest["versions"][0]["version"]), (1, &json!(3)));

    let diff = op.get("/v1/neurons/n/memory/diff?from=1&to=2").await.expect(StatusCode::OK)["diff"].clone();
    let diff = diff.as_str().unwrap();
    assert!(diff.contains("\n-two\n+2\n three\n"), "{diff}");
    assert_eq!(op.get("/v1/neurons/n/memory/diff?from=2&to=3").await.expect(StatusCode::OK)["diff"], "");
    let first = op.get("/v1/neurons/n/versions/1").await.expect(StatusCode::OK)["spec"].clone();
    assert_eq!(first["memory"], "one\ntwo\nthree\n");
    op.put("/v1/neurons/n", first).await.expect(StatusCode::OK);
    assert_eq!(
        op.get("/v1/neurons/n/memory").await.expect(StatusCode::OK),
        json!({"memory": "one\ntwo\nthree\n", "version": 4})
    );

    op.get("/v1/neurons/n/versions/9").await.refused(404, "no_version");
    op.get("/v1/neurons/n/versions/x").await.refused(400, "path");
    op.get("/v1/neurons/n/memory/diff?from=1").await.refused(400, "query");
    op.get("/v1/neurons/nobody/versions").await.refused(404, "neuron_not_found");
    assert_eq!(op.delete("/v1/neurons/n").await.status, StatusCode::NO_CONTENT);
    let last = op.get("/v1/neurons/n/versions?after=4").await.expect(StatusCode::OK)["versions"][0].clone();
    assert_eq!(last["spec"], Value::Null, "what was removed says so: {last}");
    op.get("/v1/neurons/n/memory").await.refused(404, "neuron_not_found");
}

#[tokio::test]
async fn a_call_under_way_keeps_the_version_it_began_with() {
    let daemon = searching().await;
    let op = &daemon.operator;
    let paused = op.post("/v1/neurons/t1/invoke", json!({"input": "find"})).await.expect(StatusCode::ACCEPTED);
    op.put("/v1/neurons/t1/memory", json!({"memory": "You do something else."})).await.expect(StatusCode::OK);
    let body = json!({"context_token": paused["context_token"], "tool_results": [{"id": "call_1", "result": "it"}]});
    op.post("/v1/neurons/t1/continue", body).await.expect(StatusCode::OK);
    let asked = daemon.model.asked();
    assert_eq!(asked[1].messages[0].content.as_deref(), Some("You search."));
}
