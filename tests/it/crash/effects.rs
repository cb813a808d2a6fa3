//! Effects outside under SIGKILL, lost answers and a model that asks again on every doubt: each is had once, or a person is
//! asked (research/acting of the design: a call that was repeated got another key, and was booked twice in nine of nine kills).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::routing::{get, post};
use axum::{Json, Router};
use neurons::llm::ChatRequest;
use neurons::llm::scripted::{Reply, Scripted};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::crashes::{Lives, MARK, copied};
use crate::crash::killed::Victim;

/// A harbour that books: how often by idempotency key, as a server that does not honour keys.
#[derive(Clone, Default)]
struct Harbour {
    booked: Arc<Mutex<BTreeMap<String, usize>>>,
    /// The number of the next requests whose answer is lost.
    loses: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Harbour {
    fn bookings(&self) -> usize {
        self.booked.lock().unwrap().values().sum()
    }
}

async fn book(State(harbour): State<Harbour>, headers: HeaderMap) -> (StatusCode, Json<Value>) {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    harbour.requests.fetch_add(1, Ordering::SeqCst);
    *harbour.booked.lock().unwrap().entry(key).or_default() += 1;
    let is_lost = harbour.loses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    match is_lost {
        true => (StatusCode::BAD_GATEWAY, Json(json!({"error": "lost"}))),
        false => (StatusCode::OK, Json(json!({"booking": "B1"}))),
    }
}

async fn find(
    State(harbour): State<Harbour>,
    Query(asked): Query<BTreeMap<String, String>>,
) -> (StatusCode, Json<Value>) {
    match harbour.booked.lock().unwrap().get(&asked["key"]) {
        Some(_) => (StatusCode::OK, Json(json!({"state": "booked", "booking": "B1"}))),
        None => (StatusCode::NOT_FOUND, Json(json!({"error": "not_found"}))),
    }
}

/// A model that books, and books again on every doubt.
fn naive(request: &ChatRequest, _: usize) -> Reply {
    let told: Vec<&str> = request
        .messages
        .iter()
        .filter(|message| message.role == "tool")
        .filter_map(|message| message.content.as_deref())
        .collect();
    match told.last() {
        Some(last) if last.contains("B1") => Reply::Text("It is booked: B1.".into()),
        Some(_) if told.len() >= 4 => Reply::Text("I gave up.".into()),
        _ => Reply::Tools(vec![(
            format!("c{}", told.len()),
            "book".into(),
            json!({"vessel": "V-1", "nights": 2}).to_string(),
        )]),
    }
}

async fn world() -> (String, Scripted, Harbour) {
    let (model, harbour) = (Scripted::new(naive), Harbour::default());
    let port = Router::new().route("/book", post(book)).route("/find", get(find)).with_state(harbour.clone());
    let router = neurons::llm::wire::router(Arc::new(model.clone())).merge(port);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}/v1"), model, harbour)
}

/// Defines the fascicle `booker`, whose neuron or tool node books, with these further members of the tool.
async fn define(folder: &Path, url: &str, more: Value, by_node: bool) {
    let victim = Victim::dying(folder, url, None);
    let place = url.trim_end_matches("/v1");
    let parameters =
        json!({"type": "object", "properties": {"vessel": {"type": "string"}, "nights": {"type": "integer"}}});
    let run = json!({"http": {"method": "POST", "url": format!("{place}/book")}});
    let mut tool = json!({"name": "book", "parameters": parameters, "run": run});
    tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let run = match by_node {
        true => json!({"tool": {"spec": tool, "arguments": {"vessel": "V-1", "nights": 2}}}),
        false => json!({"neuron": {"spec": {"kind": "base", "memory": "naive", "tools": [tool]}}}),
    };
    let spec = json!({"id": "booker", "output": "act", "nodes": [{"id": "act", "run": run}]});
    victim.client.post("/v1/fascicles", spec).await.expect(StatusCode::CREATED);
    victim.stop();
}

fn settle(url: &str) -> Value {
    let find = format!("{}/find", url.trim_end_matches("/v1"));
    let of = |at: &str, is: Value| json!({"at": at, "is": is});
    json!({"settle": {
        "run": {"http": {"url": find, "query": ["key"]}},
        "arguments": {"key": "{{effect}}"},
        "done": of("/state", json!({"const": "booked"})),
        "absent": of("/error", json!({"type": "string", "pattern": "404"})),
        "after_s": 0,
    }})
}

/// Runs the job to its end. Where a person is asked whether it was done, the answer is the truth. Returns the number of
/// questions, and the job.
async fn run_to_the_end(lives: &mut Lives<'_>, harbour: &Harbour, at: &str) -> (usize, Value) {
    let body = json!({"input": MARK});
    let path = "/v1/fascicles/booker/execute";
    let (status, accepted) = lives.send(Method::POST, path, &[("idempotency-key", "k")], Some(body)).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{at}: {accepted}");
    let job = accepted["job_id"].as_str().unwrap().to_owned();
    let mut asked = 0;
    loop {
        let (_, body) = lives.send(Method::GET, &format!("/v1/jobs/{job}"), &[], None).await;
        if let Some(wait) = body["waits"].get(0) {
            let call = &wait["tool_calls"][0];
            assert_eq!(call["unsure"], true, "{at}: {body}");
            let result = match harbour.bookings() {
                0 => json!({"id": call["id"], "approved": true}),
                _ => json!({"id": call["id"], "result": "{\"booking\": \"B1\"}"}),
            };
            let answer = json!({"context_token": wait["context_token"], "tool_results": [result]});
            let (status, _) = lives.send(Method::POST, &format!("/v1/jobs/{job}/continue"), &[], Some(answer)).await;
            asked += usize::from(status.is_success());
        }
        if body["status"] == "completed" || body["status"] == "failed" {
            return (asked, body);
        }
        tests::again().await;
    }
}

/// Kills a job before and after each of its commits. Returns the numbers of points and of questions.
async fn kill_at_each_commit(by_node: bool, settles: bool) -> (usize, usize) {
    let (mut points, mut asked) = (0, 0);
    for at in 0.. {
        let mut died = false;
        for side in ["before", "after"] {
            let (url, _, harbour) = world().await;
            let folder = tempfile::tempdir().unwrap();
            define(folder.path(), &url, if settles { settle(&url) } else { json!({}) }, by_node).await;
            let (folder, at) = (copied(folder.path()), format!("{side} {at}"));
            let mut lives = Lives::begin(folder.path(), &url, &at);
            let (questions, job) = run_to_the_end(&mut lives, &harbour, &at).await;
            assert_eq!(job["status"], "completed", "{at}: {job}");
            assert_eq!(harbour.bookings(), 1, "{at}: {job}");
            assert!(job["output"].to_string().contains("B1"), "{at}: {job}");
            assert!(questions <= usize::from(!settles), "{at}: {questions} questions");
            asked += questions;
            died |= lives.end();
            points += 1;
        }
        if !died {
            return (points, asked);
        }
    }
    unreachable!("a job has an end")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_asks_again_books_once_wherever_it_is_killed() {
    let (points, asked) = kill_at_each_commit(false, false).await;
    println!("{points} points, a person was asked at {asked}");
    assert!(points > 10 && asked > 0);
    let (points, asked) = kill_at_each_commit(false, true).await;
    println!("{points} points with a look-up, a person was asked at {asked}");
    assert!(points > 10 && asked == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_node_books_once_wherever_it_is_killed() {
    let (points, asked) = kill_at_each_commit(true, false).await;
    println!("{points} points of a tool node, a person was asked at {asked}");
    assert!(points > 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_looked_up_or_asked_about_and_not_repeated() {
    for (settles, questions) in [(true, 0), (false, 1)] {
        let (url, model, harbour) = world().await;
        let folder = tempfile::tempdir().unwrap();
        define(folder.path(), &url, if settles { settle(&url) } else { json!({}) }, false).await;
        harbour.loses.store(64, Ordering::SeqCst);
        let mut lives = Lives::begin(folder.path(), &url, "after 10000");
        let (asked, job) = run_to_the_end(&mut lives, &harbour, "lost").await;
        assert_eq!((job["status"].as_str(), asked), (Some("completed"), questions), "{job}");
        assert_eq!((harbour.bookings(), harbour.requests.load(Ordering::SeqCst)), (1, 1), "{job}");
        assert!(model.asked().len() <= 2, "no model was asked to decide");
        lives.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeatable_call_is_made_again_under_its_key_and_no_more() {
    let (url, _, harbour) = world().await;
    let folder = tempfile::tempdir().unwrap();
    define(folder.path(), &url, json!({"repeatable": true}), false).await;
    harbour.loses.store(2, Ordering::SeqCst);
    let mut lives = Lives::begin(folder.path(), &url, "after 10000");
    let (asked, job) = run_to_the_end(&mut lives, &harbour, "repeatable").await;
    assert_eq!((job["status"].as_str(), asked), (Some("completed"), 0), "{job}");
    let booked = harbour.booked.lock().unwrap().clone();
    assert_eq!(booked.into_values().collect::<Vec<_>>(), [3], "one key, three requests");
    lives.end();
}
