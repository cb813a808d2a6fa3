//! Fascicles that a model assembles for one task (MISSION F1, L4): they run within the rights of their caller, and nothing of them
//! is kept but the job.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::TestDaemon;

use crate::neurons::tools::Outside;

fn called(request: &ChatRequest, tool: &str) -> bool {
    let calls = request.messages.iter().filter_map(|message| message.tool_calls.as_ref()).flatten();
    calls.into_iter().any(|call| call.function.name == tool)
}

/// A model that runs `spec` when a person asks it, whose neurons look once and say in capitals what they read.
fn assembling(spec: Value) -> impl Fn(&ChatRequest, usize) -> Reply + Send + Sync {
    move |request, _| {
        let system = request.messages[0].content.clone().unwrap_or_default();
        let last = request.messages.last().unwrap().content.clone().unwrap_or_default();
        let call = |tool: &str, given: Value| Reply::Tools(vec![(format!("c_{tool}"), tool.into(), given.to_string())]);
        match system.as_str() {
            "You are the caller." if !called(request, "fascicle_run") => {
                call("fascicle_run", json!({"spec": spec, "input": "two harbours", "why": "to compare"}))
            }
            "You are a reader." if !called(request, "look") => call("look", json!({})),
            _ => Reply::Text(last.to_uppercase()),
        }
    }
}

fn caller(outside: &Outside) -> Value {
    json!({"id": "n", "memory": "You are the caller.", "tools": [
        {"name": "fascicle_run", "run": "assembled"},
        outside.tool("look", "GET", "/harbour", json!({})),
        outside.tool("put", "POST", "/things", json!({})),
        outside.tool("asked", "GET", "/secret", json!({"approval": "always"})),
    ]})
}

fn reader(id: &str, tool: &str) -> Value {
    json!({"id": id, "run": {"neuron": {"spec": {"kind": "tool_augmented", "memory": "You are a reader.", "tools": [{"name": tool}]}}}})
}

async fn asked(spec: Value) -> (TestDaemon, Outside, String) {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(assembling(spec)).await;
    daemon.operator.post("/v1/neurons", caller(&outside)).await.expect(StatusCode::CREATED);
    let answer = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": "compare them"})).await;
    let output = answer.expect(StatusCode::OK)["output"].as_str().unwrap().to_owned();
    (daemon, outside, output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_runs_a_network_for_the_task_at_hand() {
    let both = json!({"id": "both", "after": ["one", "two"], "run": {"join": "object"}});
    let spec = json!({"output": "both", "nodes": [reader("one", "look"), reader("two", "look"), both]});
    let (daemon, outside, output) = asked(spec).await;
    assert_eq!(output.matches("HERE IS /HARBOUR").count(), 2, "{output}");
    assert_eq!(outside.seen().len(), 2);
    // The job is there, like any other, and no definition.
    let jobs = daemon.operator.get("/v1/jobs").await.expect(StatusCode::OK);
    assert_eq!((jobs["jobs"].as_array().unwrap().len(), &jobs["jobs"][0]["fascicle"]), (1, &json!("assembled")));
    assert_eq!(jobs["jobs"][0]["status"], "completed");
    let listed = daemon.operator.get("/v1/fascicles").await.expect(StatusCode::OK);
    assert!(listed["fascicles"].as_array().unwrap().iter().all(|known| known["id"] != "assembled"));
    daemon.operator.get("/v1/fascicles/assembled").await.refused(404, "fascicle_not_found");
    let neurons = daemon.operator.get("/v1/neurons").await.expect(StatusCode::OK);
    assert!(!neurons.to_string().contains("You are a reader."));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_has_no_rights_that_its_caller_uses_with_care() {
    for tool in ["put", "asked", "fascicle_run", "execute_kip"] {
        let (daemon, outside, output) = asked(json!({"output": "one", "nodes": [reader("one", tool)]})).await;
        assert!(output.contains("NOT RUN: MORE_RIGHTS") && output.contains("IT MAY USE LOOK, NOT"), "{output}");
        assert!(outside.seen().is_empty());
        assert_eq!(daemon.operator.get("/v1/jobs").await.expect(StatusCode::OK)["jobs"], json!([]));
    }
    let own = json!({"name": "look", "run": {"http": {"url": "https://elsewhere.example/"}}});
    let mut bold = reader("one", "look");
    bold["run"]["neuron"]["spec"]["tools"] = json!([own]);
    let (_, _, output) = asked(json!({"output": "one", "nodes": [bold]})).await;
    assert!(output.contains("MORE_RIGHTS") && output.contains("ONLY THE NAME"), "{output}");
}

fn says(id: &str, after: Value) -> Value {
    json!({"id": id, "after": after, "run": {"neuron": {"spec": {"memory": "You repeat."}}}})
}

/// Networks that run.
fn good() -> Vec<Value> {
    let of = |output: &str, nodes: Value| json!({"output": output, "nodes": nodes});
    let repeats = || json!({"neuron": {"spec": {"memory": "You repeat."}}});
    let looks = || reader("x", "look")["run"].clone();
    let forms = json!({"kind": "structured_output", "structured_output": {"type": "string"}, "memory": "You repeat."});
    let is = |is: Value| json!({"at": "", "is": is});
    let listed = |run: Value| {
        let both = json!({"id": "both", "after": ["x", "y"], "run": {"join": "list"}});
        json!([says("x", json!([])), says("y", json!([])), both, {"id": "a", "after": ["both"], "run": run}])
    };
    vec![
        of("a", json!([says("a", json!([]))])),
        of("b", json!([says("a", json!([])), says("b", json!(["a"]))])),
        of("a", json!([reader("a", "look")])),
        of("b", json!([reader("a", "look"), says("b", json!(["a"]))])),
        of(
            "c",
            json!([says("a", json!([])), says("b", json!([])), {"id": "c", "after": ["a", "b"], "run": {"join": "list"}}]),
        ),
        of(
            "c",
            json!([says("a", json!([])), reader("b", "look"), {"id": "c", "after": ["a", "b"], "run": {"join": "object"}}]),
        ),
        of("c", json!([says("a", json!([])), says("b", json!([])), says("c", json!(["a", "b"]))])),
        of("a", listed(json!({"map": {"run": repeats()}}))),
        of("a", listed(json!({"map": {"run": looks(), "parallel": 2, "items_max": 8}}))),
        of(
            "a",
            json!([{"id": "a", "run": {"repeat": {"run": repeats(), "times": 2, "until": is(json!({"type": "string"}))}}}]),
        ),
        of(
            "a",
            json!([{"id": "a", "run": {"repeat": {"run": repeats(), "times": 3, "until": is(json!({"type": "integer"}))}}}]),
        ),
        of(
            "b",
            json!([{"id": "a", "run": {"branch": {"cases": [{"route": "off", "is": {"type": "integer"}}], "otherwise": "on"}}}, says("b", json!([{"node": "a", "route": "on"}])), says("c", json!([{"node": "a", "route": "off"}]))]),
        ),
        of(
            "b",
            json!([says("a", json!([])), says("b", json!([{"node": "a", "when": is(json!({"type": "string"}))}]))]),
        ),
        of("a", json!([{"id": "a", "on_failure": {"fall_back": repeats()}, "run": {"neuron": {"spec": forms}}}])),
        of(
            "a",
            json!([{"id": "a", "retry": {"times": 1, "backoff_ms": 0}, "observe": {"start": "Now"}, "run": repeats()}]),
        ),
    ]
}

/// Networks that are refused, each with the code.
fn bad() -> Vec<(Value, &'static str)> {
    let of = |run: Value| json!({"output": "a", "nodes": [{"id": "a", "run": run}]});
    let neuron = |spec: Value| of(json!({"neuron": {"spec": spec}}));
    let repeats = || json!({"neuron": {"spec": {"memory": "You repeat."}}});
    let many: Vec<Value> = (0..17).map(|n| says(&format!("n{n}"), json!([]))).collect();
    vec![
        (json!({"output": 7, "nodes": []}), "INVALID"),
        (json!({"nodes": []}), "INVALID"),
        (json!({"output": "a", "nodes": [], "rights": ["all"]}), "INVALID"),
        (json!({"output": "z", "nodes": [says("a", json!([]))]}), "INVALID"),
        (json!({"output": "a", "nodes": [says("a", json!(["b"])), says("b", json!(["a"]))]}), "INVALID"),
        (json!({"output": "n0", "nodes": many}), "TOO_MANY"),
        (of(json!({"repeat": {"run": repeats(), "times": 5, "until": {"is": true}}})), "TOO_MANY"),
        (of(json!({"tool": {"name": "execute_kip"}})), "MORE_RIGHTS"),
        (of(json!({"tool": {"spec": {"name": "x", "run": {"http": {"url": "http://x/"}}}}})), "MORE_RIGHTS"),
        (of(json!({"fascicle": {"id": "reply"}})), "MORE_RIGHTS"),
        (of(json!({"map": {"run": {"approve": {"message": "Sure?"}}}})), "MORE_RIGHTS"),
        (of(json!({"wait": {"event": "x"}})), "MORE_RIGHTS"),
        (of(json!({"neuron": {"id": "n"}})), "MORE_RIGHTS"),
        (neuron(json!({"tier": "high"})), "MORE_RIGHTS"),
        (neuron(json!({"kind": "tool_augmented", "tools": [{"name": "put"}]})), "MORE_RIGHTS"),
    ]
}

/// A model that runs the network which a person writes, and whose neurons look once and repeat what they read.
fn runs_what_is_written(request: &ChatRequest, n: usize) -> Reply {
    let asked = request.messages.iter().find(|message| message.role == "user").unwrap();
    let spec = asked.content.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let last = request.messages.last().unwrap().content.clone().unwrap_or_default();
    match request.response_format.is_some() {
        true => Reply::Text(json!(last).to_string()),
        false => assembling(spec)(request, n),
    }
}

/// Gate A10: of thirty networks the good ones run, the others are refused with a code, and nothing of either is kept.
#[tokio::test(flavor = "multi_thread")]
async fn thirty_networks_run_or_are_refused_and_leave_nothing() {
    let (outside, folder) = (Outside::start().await, tempfile::tempdir().unwrap());
    let daemon = TestDaemon::builder().tools(outside.reach(&folder)).start(runs_what_is_written).await;
    daemon.operator.post("/v1/neurons", caller(&outside)).await.expect(StatusCode::CREATED);
    let defined = async || {
        let fascicles = daemon.operator.get("/v1/fascicles").await.expect(StatusCode::OK);
        (fascicles, daemon.operator.get("/v1/neurons").await.expect(StatusCode::OK))
    };
    let before = defined().await;
    let ask = async |spec: &Value| {
        let answer = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": spec.to_string()})).await;
        answer.expect(StatusCode::OK)["output"].as_str().unwrap().to_owned()
    };
    let (good, bad) = (good(), bad());
    assert_eq!((good.len(), bad.len()), (15, 15));
    for (place, spec) in good.iter().enumerate() {
        let output = ask(spec).await;
        assert!(output.contains("TWO HARBOURS") || output.contains("HERE IS /HARBOUR"), "{place}: {output}");
    }
    for (spec, code) in &bad {
        let output = ask(spec).await;
        assert!(output.contains(&format!("NOT RUN: {code}")), "{spec}: {output}");
    }
    let jobs = daemon.operator.get("/v1/jobs?limit=100").await.expect(StatusCode::OK);
    let jobs = jobs["jobs"].as_array().unwrap();
    assert!(jobs.len() == 15 && jobs.iter().all(|job| job["status"] == "completed"), "{jobs:#?}");
    assert_eq!(defined().await, before, "no definition is left");
    assert!(outside.seen().iter().all(|seen| seen.what == "GET /harbour"));
}
