//! Fascicles over HTTP and WebSocket: definitions, jobs, waits, events (MISSION F1–F5).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::{Client, TestDaemon};
use tokio::sync::Notify;

/// Says what it was told last, in capitals.
fn loud(request: &ChatRequest, _: usize) -> Reply {
    let said = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
    Reply::Text(said.to_uppercase())
}

fn neuron(id: &str, after: Value) -> Value {
    json!({"id": id, "after": after, "run": {"neuron": {"spec": {"kind": "base", "memory": format!("You are {id}.")}}}})
}

fn hello() -> Value {
    json!({"input": {"events": [{"role": "user", "content": "hello"}]}})
}

async fn define(client: &Client, spec: Value) {
    client.post("/v1/fascicles", spec).await.expect(StatusCode::CREATED);
}

async fn execute(client: &Client, id: &str, body: Value) -> String {
    let accepted = client.post(&format!("/v1/fascicles/{id}/execute"), body).await.expect(StatusCode::ACCEPTED);
    assert_eq!(accepted["status"], "pending");
    let job = accepted["job_id"].as_str().unwrap().to_owned();
    assert_eq!(
        accepted["links"],
        json!({"status": format!("/v1/jobs/{job}"), "subscribe": format!("/v1/jobs/{job}/subscribe")})
    );
    job
}

/// The job once it stands as wanted; it is polled, as a client without sockets would.
async fn standing(client: &Client, job: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..20_000 {
        let body = client.get(&format!("/v1/jobs/{job}")).await.expect(StatusCode::OK);
        if wanted(&body) {
            return body;
        }
        tests::again().await;
    }
    panic!("the job never stood so");
}

async fn ended(client: &Client, job: &str) -> Value {
    standing(client, job, |body| ["completed", "failed", "cancelled"].contains(&body["status"].as_str().unwrap())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_creates_reads_lists_changes_and_removes_definitions() {
    let daemon = TestDaemon::start(loud).await;
    let operator = &daemon.operator;
    let spec = json!({"id": "echo", "output": "say", "nodes": [neuron("say", json!([]))]});
    let made = operator.post("/v1/fascicles", spec.clone()).await;
    assert_eq!(made.headers["etag"], "\"1\"");
    assert_eq!(made.expect(StatusCode::CREATED)["version"], 1);
    operator.post("/v1/fascicles", spec.clone()).await.refused(409, "fascicle_exists");
    let mut second = spec.clone();
    second["description"] = json!("says it loudly");
    let put = async |tag: &str| {
        operator.send(Method::PUT, "/v1/fascicles/echo", &[("if-match", tag)], Some(second.clone())).await
    };
    put("\"7\"").await.refused(409, "conflict");
    assert_eq!(put("\"1\"").await.expect(StatusCode::OK)["version"], 2);
    let versions = operator.get("/v1/fascicles/echo/versions").await.expect(StatusCode::OK);
    assert_eq!(versions["versions"][0]["spec"]["description"], "");
    assert_eq!(versions["versions"][1]["spec"]["description"], "says it loudly");
    let page = operator.get("/v1/fascicles?limit=2&after=dr").await.expect(StatusCode::OK);
    let ids: Vec<&str> = page["fascicles"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &page["next"]), (vec!["draft_and_review", "echo"], &json!("echo")));
    // What others are made of stays, unless it is forced.
    let outer = json!({"id": "outer", "output": "in", "nodes": [{"id": "in", "run": {"fascicle": {"id": "echo"}}}]});
    define(operator, outer).await;
    let refused = operator.delete("/v1/fascicles/echo").await.refused(409, "in_use");
    assert!(refused["detail"].as_str().unwrap().contains("outer"), "{refused}");
    assert_eq!(operator.delete("/v1/fascicles/echo?force=true").await.status, StatusCode::NO_CONTENT);
    operator.get("/v1/fascicles/echo").await.refused(404, "fascicle_not_found");
    let refused = operator.post("/v1/fascicles/outer/execute", hello()).await.refused(422, "invalid_fascicle");
    assert_eq!(refused["faults"][0]["path"], "nodes[0].run.fascicle.id");
    operator.delete("/v1/fascicles/reply").await.refused(409, "shipped");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_refuses_an_invalid_definition_with_all_its_faults() {
    let daemon = TestDaemon::start(loud).await;
    let router = json!({"kind": "router", "neurons": ["here", "there"]});
    let spec = json!({"id": "bad", "output": "nowhere", "nodes": [
        {"id": "text", "run": {"neuron": {"spec": {"kind": "base"}}}},
        {"id": "tool", "run": {"tool": {"name": "no_such_tool"}}},
        {"id": "way", "run": {"neuron": {"spec": router}}},
        {"id": "on", "after": [{"node": "way", "route": "here"}, {"node": "way", "route": "elsewhere"}, "gone"], "run": {"join": "events"}},
        {"id": "part", "after": [{"node": "text", "take": {"part": {"at": "/x"}}}, {"node": "text", "when": {"at": "x", "is": {"type": 7}}}], "run": {"neuron": {"id": "no_such_neuron"}}},
        {"id": "one", "after": ["two"], "run": {"join": "list"}},
        {"id": "two", "after": ["one"], "run": {"join": "list"}, "retry": {"times": 0}, "timeout_s": 0, "observe": {"end": "{{ output"}},
        {"id": "each", "after": ["text"], "run": {"map": {"parallel": 0, "run": {"join": "list"}}}},
        {"id": "tool", "run": {"join": "list"}},
    ]});
    let refused = daemon.operator.post("/v1/fascicles", spec).await.refused(422, "invalid_fascicle");
    let faults: Vec<(&str, &str)> = refused["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| {
            assert!(!fault["cure"].as_str().unwrap().is_empty(), "{fault}");
            (fault["path"].as_str().unwrap(), fault["reason"].as_str().unwrap())
        })
        .collect();
    for (path, reason) in [
        ("output", "there is no node \"nowhere\""),
        ("nodes[8].id", "\"tool\" is a duplicate"),
        ("nodes[1].run.tool.name", "there is no tool \"no_such_tool\""),
        ("nodes[3].after[1].route", "\"way\" never sends anything to \"elsewhere\""),
        ("nodes[3].after[2].node", "there is no node \"gone\""),
        ("nodes[4].run.neuron.id", "there is no neuron \"no_such_neuron\""),
        ("nodes[6].retry.times", "0 is not 1 to 10"),
        ("nodes[7].run.map.parallel", "0 is not 1 to 64"),
        ("nodes[7].run.map.run", "only a neuron, a fascicle or a tool can be run here"),
        ("nodes[2].run", "nothing takes what \"way\" sends to \"there\""),
    ] {
        assert!(faults.contains(&(path, reason)), "{path}: {reason} is not among {faults:#?}");
    }
    for path in [
        "nodes[4].after[0].take.part.at",
        "nodes[4].after[1].when.at",
        "nodes[4].after[1].when.is",
        "nodes[6].timeout_s",
        "nodes[6].observe.end",
        "nodes[7].run.map.over",
    ] {
        assert!(faults.iter().any(|(known, _)| *known == path), "{path} is not among {faults:#?}");
    }
    assert!(
        faults.iter().any(|(_, reason)| reason.contains("one -> two -> one") || reason.contains("two -> one -> two"))
    );
    // Something that stands within itself.
    let within = json!({"id": "me", "output": "me", "nodes": [{"id": "me", "run": {"fascicle": {"id": "me"}}}]});
    let refused = daemon.operator.post("/v1/fascicles", within).await.refused(422, "invalid_fascicle");
    assert_eq!(refused["faults"][0]["reason"], "\"me\" stands within itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reports_its_observed_events_by_poll_sse_and_socket() {
    let daemon = TestDaemon::start(loud).await;
    let operator = &daemon.operator;
    let mut first = neuron("IntentAnalysis", json!([]));
    first["observe"] = json!({
        "start": "analysing",
        "info": "{{ output | length }} letters",
        "end": "analysed",
        "metadata": {"all": ""},
    });
    let hidden = neuron("hidden", json!(["IntentAnalysis"]));
    let mut last = neuron("Say", json!(["hidden"]));
    last["observe"] = json!({"stage": "Saying", "end": "said {{ output }}"});
    define(operator, json!({"id": "loud", "output": "Say", "nodes": [first, hidden, last]})).await;
    let job = execute(operator, "loud", hello()).await;
    let body = ended(operator, &job).await;
    assert_eq!(
        (&body["status"], &body["output"], &body["error"]),
        (&json!("completed"), &json!("[HIDDEN] [INTENTANALYSIS] HELLO"), &Value::Null),
        "{body}"
    );
    assert_eq!(
        body["events"],
        json!([
            {"id": "evt_001", "stage": "IntentAnalysis", "type": "stage_started", "message": "analysing"},
            {"id": "evt_002", "stage": "IntentAnalysis", "type": "info", "message": "5 letters"},
            {"id": "evt_003", "stage": "IntentAnalysis", "type": "stage_completed", "message": "analysed", "metadata": {"all": "HELLO"}},
            {"id": "evt_004", "stage": "Saying", "type": "stage_completed", "message": "said [HIDDEN] [INTENTANALYSIS] HELLO"},
        ])
    );
    let later = operator.get(&format!("/v1/jobs/{job}?after=evt_003")).await.expect(StatusCode::OK);
    assert_eq!(later["events"].as_array().unwrap().len(), 1);
    operator.get(&format!("/v1/jobs/{job}?after=soon")).await.refused(400, "after");
    let mut socket = operator.job_socket(&format!("/v1/jobs/{job}/subscribe?after=evt_002")).await;
    let (frames, code) = socket.closed().await;
    assert_eq!(code, 1000);
    assert_eq!(frames[0], json!({"event_type": "new_observable_event", "payload": body["events"][2]}));
    assert_eq!(frames[1], json!({"event_type": "new_observable_event", "payload": body["events"][3]}));
    assert_eq!(frames[2]["event_type"], "job_ended");
    assert_eq!(frames[2]["payload"]["output"], body["output"]);
    assert_eq!(frames.len(), 3);
    let stream = operator.events(&format!("/v1/jobs/{job}/events")).await;
    let kinds: Vec<&str> = stream.iter().map(|(event, _)| &**event).collect();
    assert_eq!(
        kinds,
        ["new_observable_event", "new_observable_event", "new_observable_event", "new_observable_event", "job_ended"]
    );
    assert_eq!(stream[3].1, body["events"][3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reconnecting_subscriber_misses_and_repeats_no_event() {
    let go_on = Arc::new(Notify::new());
    let held = go_on.clone();
    let daemon = TestDaemon::start(move |request, before| match request.messages[0].content.as_deref() {
        Some("You are slow.") => Reply::Held("slow".into(), held.clone(), "ly".into()),
        _ => loud(request, before),
    })
    .await;
    let operator = &daemon.operator;
    let mut quick = neuron("quick", json!([]));
    quick["observe"] = json!({"end": "quick"});
    let mut slow = neuron("slow", json!(["quick"]));
    slow["observe"] = json!({"start": "slow begins", "end": "slow ends"});
    define(operator, json!({"id": "f", "output": "slow", "nodes": [quick, slow]})).await;
    let job = execute(operator, "f", hello()).await;
    let mut socket = operator.job_socket(&format!("/v1/jobs/{job}/subscribe")).await;
    let frames = socket.until(|frame| frame["payload"]["message"] == "slow begins").await;
    assert_eq!(frames.len(), 2);
    let body = operator.get(&format!("/v1/jobs/{job}")).await.expect(StatusCode::OK);
    assert_eq!((&body["status"], &body["current_stage"]), (&json!("running"), &json!("slow")));
    drop(socket);
    let mut again = operator.job_socket(&format!("/v1/jobs/{job}/subscribe?after=evt_001")).await;
    assert_eq!(again.next().await.unwrap()["payload"]["id"], "evt_002");
    go_on.notify_one();
    let (frames, code) = again.closed().await;
    assert_eq!(
        (frames[0]["payload"]["id"].as_str(), frames[1]["payload"]["status"].as_str(), code),
        (Some("evt_003"), Some("completed"), 1000)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_answers_each_wait_of_a_parallel_branch_once() {
    let daemon = TestDaemon::start(|request, _| {
        let name = request.messages[0].content.clone().unwrap_or_default();
        match request.messages.iter().rfind(|message| message.role == "tool") {
            None => Reply::Tools(vec![("call_1".into(), "look".into(), json!({"for": name}).to_string())]),
            Some(found) => Reply::Text(format!("{name} found {}", found.content.clone().unwrap_or_default())),
        }
    })
    .await;
    let operator = &daemon.operator;
    let branch = |id: &str| {
        let mut node = neuron(id, json!([]));
        node["run"]["neuron"]["spec"]["tools"] = json!([{"name": "look"}]);
        node
    };
    define(operator, json!({"id": "f", "output": "all", "nodes": [
        branch("left"), branch("right"),
        {"id": "tool", "run": {"tool": {"name": "measure", "by": "client", "arguments": {"what": {"$take": {"role": "user"}}}}}},
        {"id": "ok", "run": {"approve": {"message": "Send it?"}}},
        {"id": "news", "run": {"wait": {"event": "weather", "is": {"type": "object", "required": ["sky"]}}}},
        {"id": "all", "after": ["left", "right", "tool", "ok", "news"], "requires": "all", "run": {"join": "object"}},
    ]})).await;
    let job = execute(operator, "f", hello()).await;
    let body = standing(operator, &job, |body| body["waits"].as_array().unwrap().len() == 5).await;
    assert_eq!(body["status"], "waiting_for_tools");
    let path = format!("/v1/jobs/{job}/continue");
    let wait = |body: &Value, is: &dyn Fn(&Value) -> bool| {
        body["waits"].as_array().unwrap().iter().find(|wait| is(wait)).unwrap().clone()
    };
    let of = |name: &'static str| {
        wait(&body, &move |wait: &Value| wait["tool_calls"][0]["params"].as_str().is_some_and(|it| it.contains(name)))
    };
    let token = |wait: &Value| wait["context_token"].as_str().unwrap().to_owned();
    let (left, right, tool) = (of("left"), of("right"), of("hello"));
    assert_eq!(tool["tool_calls"][0]["name"], "measure");
    let answer = |wait: &Value, result: &str| {
        json!({
            "context_token": token(wait),
            "tool_results": [{"id": wait["tool_calls"][0]["id"], "result": result}],
        })
    };
    // What is no answer consumes nothing.
    operator.post(&path, json!({"context_token": token(&left), "approved": true})).await.refused(422, "answer");
    operator.post(&path, json!({"context_token": token(&left)})).await.refused(422, "invalid");
    operator.post(&path, json!({"context_token": token(&left), "tool_results": []})).await.refused(422, "answer");
    operator
        .post(&path, json!({"context_token": "v1.k1.nonsense", "approved": true}))
        .await
        .refused(404, "no_continuation");
    let other = execute(operator, "f", hello()).await;
    operator.post(&format!("/v1/jobs/{other}/continue"), answer(&left, "x")).await.refused(404, "no_continuation");
    let ada = daemon.person("user:ada", "participant").await;
    ada.post(&path, answer(&left, "x")).await.refused(404, "job_not_found");
    ada.get(&format!("/v1/jobs/{job}")).await.refused(404, "job_not_found");

    operator.post(&path, answer(&right, "shells")).await.expect(StatusCode::ACCEPTED);
    operator.post(&path, answer(&right, "shells")).await.expect(StatusCode::ACCEPTED);
    operator.post(&path, answer(&right, "stones")).await.refused(422, "answer");
    operator.post(&path, answer(&tool, "{\"metres\": 3}")).await.expect(StatusCode::ACCEPTED);
    operator.post(&path, answer(&left, "sand")).await.expect(StatusCode::ACCEPTED);
    let body = standing(operator, &job, |body| body["waits"].as_array().unwrap().len() == 2).await;
    assert_eq!(body["status"], "waiting_for_approval");
    let approval = wait(&body, &|wait| wait["for"] == "approval");
    assert_eq!((&approval["message"], &approval["events"][0]["content"]), (&json!("Send it?"), &json!("hello")));
    let weather = wait(&body, &|wait| wait["for"] == "event");
    operator.post(&path, json!({"context_token": token(&weather), "event": {"wind": 3}})).await.refused(422, "answer");
    operator
        .post(&path, json!({"context_token": token(&weather), "event": {"sky": "blue"}}))
        .await
        .expect(StatusCode::ACCEPTED);
    operator
        .post(&path, json!({"context_token": token(&approval), "approved": true, "comment": "fine"}))
        .await
        .expect(StatusCode::ACCEPTED);
    let body = ended(operator, &job).await;
    assert_eq!(
        body["output"],
        json!({"left": "You are left. found sand", "right": "You are right. found shells", "tool": {"metres": 3},
            "ok": {"approved": true, "comment": "fine", "by": "user:operator"}, "news": {"sky": "blue"}}),
        "{body}"
    );
    operator.post(&path, answer(&right, "shells")).await.expect(StatusCode::ACCEPTED);
    operator.post(&path, answer(&right, "stones")).await.refused(422, "answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_answers_at_once_are_one() {
    let daemon = TestDaemon::start(|request, _| match request.messages.iter().any(|message| message.role == "tool") {
        false => Reply::Tools(vec![("call_1".into(), "look".into(), "{}".into())]),
        true => Reply::Text("done".into()),
    })
    .await;
    let mut node = neuron("one", json!([]));
    node["run"]["neuron"]["spec"]["tools"] = json!([{"name": "look"}]);
    define(&daemon.operator, json!({"id": "f", "output": "one", "nodes": [node]})).await;
    let job = execute(&daemon.operator, "f", hello()).await;
    let body = standing(&daemon.operator, &job, |body| body["status"] == "waiting_for_tools").await;
    let answer =
        json!({"context_token": body["waits"][0]["context_token"], "tool_results": [{"id": "call_1", "result": "x"}]});
    let path = format!("/v1/jobs/{job}/continue");
    let racers = (0..64).map(|_| daemon.operator.post(&path, answer.clone()));
    for answered in futures::future::join_all(racers).await {
        answered.expect(StatusCode::ACCEPTED);
    }
    assert_eq!(ended(&daemon.operator, &job).await["output"], "done");
    assert_eq!(daemon.model.asked().len(), 2, "one call before the tool and one after it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_started_once_under_a_key() {
    let daemon = TestDaemon::start(loud).await;
    define(&daemon.operator, json!({"id": "f", "output": "a", "nodes": [neuron("a", json!([]))]})).await;
    let start = async |body: Value| {
        let key = [("idempotency-key", "k")];
        daemon.operator.send(Method::POST, "/v1/fascicles/f/execute", &key, Some(body)).await
    };
    let first = start(hello()).await.expect(StatusCode::ACCEPTED);
    let racers = (0..8).map(|_| start(hello()));
    for again in futures::future::join_all(racers).await {
        assert_eq!(again.expect(StatusCode::ACCEPTED)["job_id"], first["job_id"]);
    }
    start(json!({"input": "something else"})).await.refused(422, "key_reused");
    ended(&daemon.operator, first["job_id"].as_str().unwrap()).await;
    assert_eq!(daemon.model.asked().len(), 1);
    let listed = daemon.operator.get("/v1/jobs?fascicle=f&status=completed").await.expect(StatusCode::OK);
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1);
    let ada = daemon.person("user:ada", "participant").await;
    let listed = ada.get("/v1/jobs").await.expect(StatusCode::OK);
    assert_eq!(listed["jobs"], json!([]), "one sees one's own jobs alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_can_be_cancelled_expire_or_be_retried_where_it_failed() {
    let fail = Arc::new(AtomicUsize::new(1));
    let failing = fail.clone();
    let daemon = TestDaemon::start(move |request, before| match request.messages[0].content.as_deref() {
        Some("You are stuck.") => Reply::Held(String::new(), Arc::default(), String::new()),
        Some("You are weak.") if failing.load(Ordering::SeqCst) > 0 => Reply::Status(400, "not today".into()),
        _ => loud(request, before),
    })
    .await;
    let operator = &daemon.operator;
    define(operator, json!({"id": "stuck", "output": "stuck", "nodes": [neuron("stuck", json!([]))]})).await;
    let job = execute(operator, "stuck", hello()).await;
    let cancelled = operator.post(&format!("/v1/jobs/{job}/cancel"), json!({})).await.expect(StatusCode::OK);
    assert_eq!(cancelled["status"], "cancelled");
    operator.post(&format!("/v1/jobs/{job}/retry"), json!({})).await.refused(409, "not_failed");

    let mut body = hello();
    body["deadline_s"] = json!(30);
    let late = execute(operator, "stuck", body).await;
    standing(operator, &late, |body| body["status"] == "running").await;
    daemon.clock.advance_ms(30_000);
    assert_eq!(ended(operator, &late).await["error"], "it did not end within its deadline");

    define(
        operator,
        json!({
            "id": "weak",
            "output": "last",
            "nodes": [neuron("first", json!([])), neuron("weak", json!(["first"])), neuron("last", json!(["weak"]))],
        }),
    )
    .await;
    let job = execute(operator, "weak", hello()).await;
    let failed = ended(operator, &job).await;
    assert!(failed["error"].as_str().unwrap().starts_with("weak: "), "{failed}");
    fail.store(0, Ordering::SeqCst);
    operator.post(&format!("/v1/jobs/{job}/retry"), json!({})).await.expect(StatusCode::ACCEPTED);
    assert_eq!(ended(operator, &job).await["output"], "[WEAK] [FIRST] HELLO");
    let of_first = |request: &ChatRequest| request.messages[0].content.as_deref() == Some("You are first.");
    assert_eq!(
        daemon.model.asked().iter().filter(|request| of_first(request)).count(),
        1,
        "what had ended is not paid again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_keeps_the_definitions_it_began_with() {
    let go_on = Arc::new(Notify::new());
    let held = go_on.clone();
    let daemon = TestDaemon::start(move |request, before| match request.messages[0].content.as_deref() {
        Some("You are first.") => Reply::Held("one".into(), held.clone(), String::new()),
        _ => loud(request, before),
    })
    .await;
    let operator = &daemon.operator;
    operator.post("/v1/neurons", json!({"id": "second", "memory": "You are old."})).await.expect(StatusCode::CREATED);
    let nodes =
        json!([neuron("first", json!([])), {"id": "second", "after": ["first"], "run": {"neuron": {"id": "second"}}}]);
    define(operator, json!({"id": "f", "output": "second", "nodes": nodes})).await;
    operator.delete("/v1/neurons/second").await.refused(409, "in_use");
    let job = execute(operator, "f", hello()).await;
    standing(operator, &job, |body| body["status"] == "running").await;
    operator.put("/v1/neurons/second", json!({"memory": "You are new."})).await.expect(StatusCode::OK);
    operator
        .put("/v1/fascicles/f", json!({"output": "first", "nodes": [neuron("first", json!([]))]}))
        .await
        .expect(StatusCode::OK);
    // Even a daemon that is killed goes on with what the job began with.
    let daemon = daemon.kill_and_restart().await;
    go_on.notify_waiters();
    go_on.notify_one();
    assert_eq!(ended(&daemon.operator, &job).await["output"], "[FIRST] ONE");
    let old = |request: &ChatRequest| request.messages[0].content.as_deref() == Some("You are old.");
    assert!(daemon.model.asked().iter().any(old));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trial_runs_by_script_and_leaves_no_trace() {
    let daemon = TestDaemon::start(loud).await;
    let trial = json!({"input": "Plan three days in Beijing", "script": {
        "IntentAnalysis": [{"neuron": "retrieval", "events": [{"role": "user", "content": "sights"}]}],
        "DataRetrieval": {"lookup": {"places": []}}, "Calculation": {},
        "Formatting": {"intent": "a trip", "entities": ["Beijing"], "tasks": [{"title": "go"}]}}});
    let tried = daemon.operator.post("/v1/fascicles/intent_analysis/dry-run", trial).await.expect(StatusCode::OK);
    assert_eq!((&tried["status"], &tried["output"]["intent"]), (&json!("completed"), &json!("a trip")), "{tried}");
    let what = |step: &str| -> Vec<&str> {
        let steps = tried["steps"].as_array().unwrap().iter().filter(|taken| taken["step"] == step);
        steps.map(|taken| taken["what"].as_str().unwrap()).collect()
    };
    assert_eq!((what("DataRetrieval"), what("Calculation")), (vec!["started", "done"], vec!["started", "done"]));
    assert_eq!(tried["output"]["found"], json!({"lookup": {"places": []}}));
    assert!(daemon.model.asked().is_empty());
    assert_eq!(daemon.operator.get("/v1/jobs").await.expect(StatusCode::OK)["jobs"], json!([]));
    let lacking = json!({"input": "x", "script": {"IntentAnalysis": [{"neuron": "retrieval", "events": []}],
        "DataRetrieval": {}, "Calculation": {}}});
    let refused =
        daemon.operator.post("/v1/fascicles/intent_analysis/dry-run", lacking).await.refused(422, "invalid_fascicle");
    assert_eq!(refused["faults"][0]["path"], "script.Formatting");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_node_follows_the_failure_policy_of_its_definition() {
    let daemon = TestDaemon::start(|request, before| match request.messages[0].content.as_deref() {
        Some("You are broken.") => Reply::Status(400, "no".into()),
        Some("You are slow.") => Reply::Held(String::new(), Arc::default(), String::new()),
        _ => loud(request, before),
    })
    .await;
    let operator = &daemon.operator;
    let with = |mut node: Value, more: Value| {
        node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        node
    };
    let instead = json!({"fall_back": {"neuron": {"spec": {"kind": "base", "memory": "You are instead."}}}});
    define(operator, json!({"id": "f", "output": "all", "nodes": [
        with(neuron("broken", json!([])), json!({"on_failure": instead})),
        {"id": "other", "run": {"neuron": {"spec": {"kind": "base", "memory": "You are broken."}}}, "on_failure": "continue", "observe": {"fail": "no: {{ output.error }}"}},
        {"id": "cut", "run": {"neuron": {"spec": {"kind": "base", "memory": "You are broken."}}}, "on_failure": "fail_branch"},
        with(neuron("below", json!(["cut"])), json!({})),
        {"id": "all", "after": ["broken", "other", "below"], "run": {"join": "object"}},
    ]})).await;
    let job = execute(operator, "f", hello()).await;
    let body = ended(operator, &job).await;
    assert_eq!((&body["status"], &body["output"]), (&json!("completed"), &json!({"broken": "HELLO"})), "{body}");
    assert!(body["events"][0]["message"].as_str().unwrap().contains("refused (400)"), "{body}");
    assert_eq!(body["events"][0]["type"], "stage_failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_fascicles_run() {
    let daemon = TestDaemon::start(|request, before| {
        let schema = request.response_format.as_ref().map(|format| format["json_schema"]["schema"].clone());
        let system = request.messages[0].content.clone().unwrap_or_default();
        match schema {
            Some(schema) if schema["properties"].get("tasks").is_some() => {
                Reply::Text(json!({
                    "intent": "a trip",
                    "entities": ["Beijing"],
                    "tasks": [{"title": "go"}],
                }).to_string())
            }
            Some(schema) if schema["properties"].get("questions").is_some() => Reply::Text(json!({
                "questions": ["q1", "q2"],
            }).to_string()),
            Some(schema) if schema["properties"].get("good").is_some() => {
                let mended = request.messages.iter().any(|message| message.content.as_deref().is_some_and(|it| it.contains("MENDED")));
                Reply::Text(json!({"good": mended, "remarks": ["mend it"]}).to_string())
            }
            Some(_) if system.contains("Split the request") => Reply::Text(json!({
                "routes": [{"neuron": "retrieval", "events": [{"role": "user", "content": "sights"}]}, {"neuron": "calculation", "events": [{"role": "user", "content": "days"}]}],
            }).to_string()),
            Some(_) => Reply::Text(json!({"events": [{"role": "draft", "content": "a plan"}]}).to_string()),
            None if system.contains("search tool") && !request.messages.iter().any(|message| message.role == "tool") => {
                Reply::Tools(vec![("c1".into(), "search_web".into(), "{\"query\":\"q\"}".into())])
            }
            None if system.starts_with("Do the task") && request.messages.iter().any(|message| message.content.as_deref().is_some_and(|it| it.contains("mend it"))) => Reply::Text("MENDED".into()),
            None => loud(request, before),
        }
    })
    .await;
    let operator = &daemon.operator;
    let job = execute(operator, "intent_analysis", json!({"input": "帮我规划北京三日游"})).await;
    let body = ended(operator, &job).await;
    assert_eq!(body["output"]["intent"], "a trip", "{body}");
    assert!(body["events"].as_array().unwrap().iter().any(|event| event["metadata"]["entities"] == json!(["Beijing"])));

    let texts = json!({"input": {"events": [{"role": "documents", "content": ["one", "two", "three"]}]}});
    let body = ended(operator, &execute(operator, "summarise_many", texts).await).await;
    assert_eq!(body["output"]["summaries"], json!(["[ITEM] ONE", "[ITEM] TWO", "[ITEM] THREE"]), "{body}");

    let body = ended(operator, &execute(operator, "review_and_repair", json!({"input": "Write a poem"})).await).await;
    assert_eq!(
        (&body["output"]["review"]["good"], &body["output"]["draft"]),
        (&json!(true), &json!("MENDED")),
        "{body}"
    );

    operator.post("/v1/nexus/commons/kip", json!({
        "command": "UPSERT { CONCEPT { {type: \"Knowledge\", name: \"tides\"} SET ATTRIBUTES { task: \"entering Faro\", content: \"Wait for the flood.\" } } } WITH METADATA { access_scopes: [\"public\"] }",
    })).await.expect(StatusCode::OK);
    let body = ended(operator, &execute(operator, "answer_with_memory", json!({"input": "tides at Faro"})).await).await;
    assert!(body["output"]["remembered"].to_string().contains("Wait for the flood"), "{body}");

    let job = execute(operator, "research", json!({"input": "Tell me about tides"})).await;
    let body = standing(operator, &job, |body| body["waits"].as_array().unwrap().len() == 2).await;
    for wait in body["waits"].as_array().unwrap() {
        let results = json!([{"id": wait["tool_calls"][0]["id"], "result": "water"}]);
        operator
            .post(
                &format!("/v1/jobs/{job}/continue"),
                json!({"context_token": wait["context_token"], "tool_results": results}),
            )
            .await
            .expect(StatusCode::ACCEPTED);
    }
    assert_eq!(ended(operator, &job).await["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_fails_when_its_waits_are_too_large_for_a_commit() {
    let daemon = TestDaemon::start(loud).await;
    let operator = &daemon.operator;
    // Each approval shows 250 KB; a dozen of them are more than one commit holds.
    let approvals: Vec<Value> = (0..20)
        .map(|n| {
            json!({
                "id": format!("ok{n}"),
                "after": ["wait"],
                "reads_input": true,
                "run": {"approve": {"message": "?"}},
            })
        })
        .collect();
    let mut nodes = vec![json!({"id": "wait", "run": {"wait": {"event": "go"}}})];
    nodes.extend(approvals);
    define(operator, json!({"id": "f", "output": "wait", "nodes": nodes})).await;
    let job = execute(operator, "f", json!({"input": "x".repeat(250_000)})).await;
    let body = standing(operator, &job, |body| body["waits"].as_array().unwrap().len() == 1).await;
    let path = format!("/v1/jobs/{job}/continue");
    let token = &body["waits"][0]["context_token"];
    operator.post(&path, json!({"context_token": token, "event": "x".repeat(300_000)})).await.refused(422, "answer");
    operator.post(&path, json!({"context_token": token, "event": "go"})).await.refused(413, "too_large");
    let body = ended(operator, &job).await;
    assert!(body["error"].as_str().unwrap().contains("cannot be kept"), "{body}");
    operator.post(&path, json!({"context_token": token, "event": "go"})).await.refused(410, "expired");
    // The daemon is well, also after it was killed.
    let daemon = daemon.kill_and_restart().await;
    assert_eq!(ended(&daemon.operator, &job).await["status"], "failed");
    let hostile = json!({
        "id": "g",
        "output": "a",
        "nodes": [{"id": "a", "run": {"join": "list"}, "observe": {"end": format!("{{{{ {}1 }}}}", "not ".repeat(100_000))}}],
    });
    let refused = daemon.operator.post("/v1/fascicles", hostile).await.refused(422, "invalid_fascicle");
    assert_eq!(refused["faults"][0]["path"], "nodes[0].observe.end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_leaves_no_half_started_call() {
    let daemon =
        TestDaemon::start(|request, before| match request.messages.iter().any(|message| message.role == "tool") {
            false if request.messages[0].content.as_deref() == Some("You are asking.") => {
                Reply::Tools(vec![("call_1".into(), "look".into(), "{}".into())])
            }
            _ => loud(request, before),
        })
        .await;
    let operator = &daemon.operator;
    define(operator, json!({"id": "f", "output": "a", "nodes": [neuron("a", json!([]))]})).await;
    operator
        .post("/v1/neurons", json!({"id": "n", "memory": "You are asking.", "tools": [{"name": "look"}]}))
        .await
        .expect(StatusCode::CREATED);
    let key = [("idempotency-key", "k")];
    for polls in 0..60 {
        // The request is dropped after so many looks at it.
        let call = operator.send(Method::POST, "/v1/fascicles/f/execute", &key, Some(hello()));
        let mut call = Box::pin(call);
        for _ in 0..polls {
            if futures::poll!(call.as_mut()).is_ready() {
                break;
            }
            tests::again().await;
        }
    }
    let accepted =
        operator.send(Method::POST, "/v1/fascicles/f/execute", &key, Some(hello())).await.expect(StatusCode::ACCEPTED);
    assert_eq!(ended(operator, accepted["job_id"].as_str().unwrap()).await["status"], "completed");

    let paused = operator.post("/v1/neurons/n/invoke", json!({"input": "x"})).await.expect(StatusCode::ACCEPTED);
    let results =
        json!({"context_token": paused["context_token"], "tool_results": [{"id": "call_1", "result": "sea"}]});
    for polls in 0..60 {
        let mut call = Box::pin(operator.post("/v1/neurons/n/continue", results.clone()));
        for _ in 0..polls {
            if futures::poll!(call.as_mut()).is_ready() {
                break;
            }
            tests::again().await;
        }
    }
    for _ in 0..20_000 {
        let answer = operator.post("/v1/neurons/n/continue", results.clone()).await;
        if answer.status == StatusCode::OK {
            assert_eq!(answer.body["output"], "SEA");
            return;
        }
        answer.refused(409, "in_flight");
    }
    panic!("it is in flight for ever");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_for_a_provider_slot_is_not_recorded_as_sent() {
    let daemon = TestDaemon::start(|_, _| Reply::Held(String::new(), Arc::default(), String::new())).await;
    define(&daemon.operator, json!({"id": "f", "output": "a", "nodes": [neuron("a", json!([]))]})).await;
    // The scripted provider takes 64 calls at once.
    for _ in 0..80 {
        execute(&daemon.operator, "f", hello()).await;
    }
    while daemon.model.asked().len() < 64 {
        tests::again().await;
    }
    let sent = |calls: Value| calls["calls"].as_array().unwrap().iter().filter(|call| call["kind"] == "sent").count();
    let calls = daemon.operator.get("/v1/house/calls?limit=200").await.expect(StatusCode::OK);
    assert_eq!(sent(calls), 64, "a call is only called sent when it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_with_one_idempotency_key_share_one_job() {
    let daemon = TestDaemon::start(|_, _| Reply::Text("yes".into())).await;
    let node = json!({"id": "a", "run": {"neuron": {"spec": {}}}});
    daemon
        .operator
        .post("/v1/fascicles", json!({"id": "k", "output": "a", "nodes": [node]}))
        .await
        .expect(StatusCode::CREATED);
    for round in 0..20 {
        let key = format!("key-{round}");
        let order = || async {
            let headers = [("idempotency-key", key.as_str())];
            let body = Some(json!({"input": "x"}));
            let answer = daemon.operator.send(Method::POST, "/v1/fascicles/k/execute", &headers, body).await;
            answer.expect(StatusCode::ACCEPTED)["job_id"].as_str().unwrap().to_owned()
        };
        let jobs = futures::future::join_all((0..20).map(|_| order())).await;
        assert!(jobs.iter().all(|job| *job == jobs[0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_input_holds_already_is_read_once() {
    let daemon = TestDaemon::start(loud).await;
    let operator = &daemon.operator;
    // The join sends the input on as it is; the same words in another role are another event.
    define(operator, json!({"id": "f", "output": "all", "nodes": [
        {"id": "same", "run": {"join": "events"}},
        {"id": "quote", "run": {"join": "list"}},
        {"id": "all", "after": ["same", "quote"], "reads_input": true, "run": {"neuron": {"spec": {"memory": "Read."}}}},
    ]})).await;
    ended(operator, &execute(operator, "f", hello()).await).await;
    let asked = daemon.model.asked();
    let read: String = asked[0].messages.iter().filter_map(|message| message.content.clone()).collect();
    assert_eq!(read.matches("hello").count(), 2, "the input once, and the quotation: {read}");
}
