//! MCP servers of several versions of the protocol, and calls that they carry out as tasks.

use neurons::spec::Approval;
use reqwest::{Method, StatusCode};
use rmcp::model::TaskStatus;
use runtime::config::{Server, Tools};
use serde_json::{Value, json};
use tests::notes::{Notes, Speaks};
use tests::{TestDaemon, obedient};

use super::tools::{child, serve, server};

/// Starts a daemon whose neuron `n` and fascicle `noting` have the tools of these notes.
async fn daemon(notes: &Notes) -> (TestDaemon, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let key_file = folder.path().join("key");
    std::fs::write(&key_file, "s3cret").unwrap();
    let there = Server { url: Some(serve(notes).await), key_file: Some(key_file), ..server(Approval::Never, true) };
    let tools = Tools { servers: [("notes".into(), there)].into(), ..Tools::default() };
    let daemon = TestDaemon::builder().tools(tools).start(obedient).await;
    let own = json!([{"name": "notes", "run": {"mcp": {"server": "notes"}}}]);
    daemon.operator.post("/v1/neurons", json!({"id": "n", "tools": own})).await.expect(StatusCode::CREATED);
    let node = json!({"id": "a", "run": {"neuron": {"spec": {"kind": "tool_augmented", "tools": own}}}});
    let noting = json!({"id": "noting", "output": "a", "nodes": [node]});
    daemon.operator.post("/v1/fascicles", noting).await.expect(StatusCode::CREATED);
    (daemon, folder)
}

async fn ask(daemon: &TestDaemon, input: &str) -> String {
    let answer = daemon.operator.post("/v1/neurons/n/invoke", json!({"input": input})).await;
    answer.expect(StatusCode::OK)["output"].as_str().unwrap().to_owned()
}

/// Starts a job that writes a note as a task, and waits until the server was asked about the task.
async fn begun(daemon: &TestDaemon, notes: &Notes, text: &str) -> String {
    let body = json!({"input": format!(r#"notes_write {{"text": "{text}"}}"#)});
    let job = daemon.operator.post("/v1/fascicles/noting/execute", body).await.expect(StatusCode::ACCEPTED);
    let before = notes.looked();
    while notes.looked() == before {
        tests::again().await;
    }
    job["job_id"].as_str().unwrap().to_owned()
}

async fn ended(daemon: &TestDaemon, job: &str) -> Value {
    loop {
        let path = format!("/v1/jobs/{job}");
        let head =
            daemon.operator.send(Method::GET, &path, &[("prefer", "wait=20")], None).await.expect(StatusCode::OK);
        if matches!(head["status"].as_str(), Some("completed" | "failed" | "cancelled")) {
            return head;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_server_is_spoken_to_in_its_newest_version() {
    for (speaks, handshakes) in [(Speaks::Newest, 0), (Speaks::Handshake, 1)] {
        let notes = Notes::speaking(speaks);
        let (daemon, _folder) = daemon(&notes).await;
        assert_eq!(ask(&daemon, r#"notes_write {"text": "one"}"#).await, "noted one");
        assert_eq!((notes.handshakes(), notes.listed()), (handshakes, 2), "{speaks:?}");
        notes.more().await;
        // The word of it is on its way.
        while ask(&daemon, "notes_more_of_it {}").await != "more.of it is done" {
            tests::again().await;
        }
        assert_eq!(notes.listed(), 5, "{speaks:?}: three pages, read once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_when_it_is_asked_is_started_again() {
    let mut tools = child(Approval::Never, true);
    tools
        .servers
        .values_mut()
        .for_each(|server| drop(server.environment.insert("NOTES_SPEAK".into(), "brittle".into())));
    let daemon = TestDaemon::builder().tools(tools).start(obedient).await;
    let own = json!([{"name": "notes", "run": {"mcp": {"server": "notes"}}}]);
    daemon.operator.post("/v1/neurons", json!({"id": "n", "tools": own})).await.expect(StatusCode::CREATED);
    assert_eq!(ask(&daemon, r#"notes_write {"text": "one"}"#).await, "noted one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_a_task_is_waited_for() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    let job = begun(&daemon, &notes, "slowly one").await;
    assert_eq!((notes.tasks(), notes.notes().len()), (vec![TaskStatus::Working], 0));
    notes.finish();
    let job = ended(&daemon, &job).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("completed"), &json!("noted slowly one")), "{job}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_waited_for_again_after_a_kill() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    let job = begun(&daemon, &notes, "slowly one").await;
    let daemon = daemon.kill_and_restart().await;
    let before = notes.looked();
    while notes.looked() == before {
        tests::again().await;
    }
    notes.finish();
    let job = ended(&daemon, &job).await;
    assert_eq!((&job["status"], &job["output"]), (&json!("completed"), &json!("noted slowly one")), "{job}");
    assert_eq!((notes.tasks().len(), notes.notes()), (1, vec!["slowly one".to_owned()]), "it was called once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_job_cancels_its_task() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    let job = begun(&daemon, &notes, "slowly one").await;
    daemon.operator.post(&format!("/v1/jobs/{job}/cancel"), json!({})).await.expect(StatusCode::OK);
    while notes.tasks() != [TaskStatus::Cancelled] {
        tests::again().await;
    }
    notes.finish();
    assert_eq!(notes.notes().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_invocation_cancels_its_task() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    let body = json!({"input": r#"notes_write {"text": "slowly one"}"#});
    let asked = daemon.operator.post_once("/v1/neurons/n/invoke", "k1", body);
    let cancelled = async {
        while notes.looked() == 0 {
            tests::again().await;
        }
        let listed = daemon.operator.get("/v1/invocations").await.expect(StatusCode::OK);
        let id = listed["invocations"][0]["id"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
        daemon.operator.post(&format!("/v1/invocations/{id}/cancel"), json!({})).await.expect(StatusCode::OK);
    };
    let (answered, ()) = tokio::join!(asked, cancelled);
    assert_ne!(answered, Some(StatusCode::OK));
    while notes.tasks() != [TaskStatus::Cancelled] {
        tests::again().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_its_server_forgets_has_an_unknown_outcome() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    let forgets = async {
        while notes.looked() == 0 {
            tests::again().await;
        }
        notes.forget();
    };
    let (said, ()) = tokio::join!(ask(&daemon, r#"notes_write {"text": "slowly one"}"#), forgets);
    assert!(
        said.contains("does not know its task any more; the server says: no such task; its outcome is unknown"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_takes_too_long_has_an_unknown_outcome() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    let own = json!([{"name": "notes", "limits": {"task_s": 1}, "run": {"mcp": {"server": "notes"}}}]);
    daemon.operator.put("/v1/neurons/n", json!({"id": "n", "tools": own})).await.expect(StatusCode::OK);
    let said = ask(&daemon, r#"notes_write {"text": "slowly one"}"#).await;
    assert!(said.contains("its server has not ended it after 1 s; its outcome is unknown"), "{said}");
    let too_long = json!([{"name": "notes", "limits": {"task_s": 604_801}, "run": {"mcp": {"server": "notes"}}}]);
    let refused = daemon.operator.put("/v1/neurons/n", json!({"id": "n", "tools": too_long})).await;
    assert!(refused.refused(422, "invalid").to_string().contains("task_s is 1 to 604800"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_question_is_declined_and_its_state_handed_back() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    let said = ask(&daemon, r#"notes_write {"text": "ask"}"#).await;
    assert_eq!(said, json!({"answers": {"name": {"action": "decline"}}, "state": "s1"}).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_another_form_than_declared_is_an_error() {
    let notes = Notes::default();
    let (daemon, _folder) = daemon(&notes).await;
    for number in 0..10 {
        ask(&daemon, &format!(r#"notes_write {{"text": "{number}"}}"#)).await;
    }
    let said = ask(&daemon, "notes_read {}").await;
    assert!(said.contains("its result is not of the form that it declares") && said.contains("/notes"), "{said}");
}
