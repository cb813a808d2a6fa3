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
