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

/// A harbour that books, and counts by idempotency key and by vessel.
#[derive(Clone, Default)]
pub(super) struct Harbour {
    booked: Arc<Mutex<BTreeMap<String, usize>>>,
    vessels: Arc<Mutex<BTreeMap<String, usize>>>,
    /// `true` if a request with a known key books nothing more.
    honours: bool,
    /// The number of the next requests that fail before anything is booked.
    fails: Arc<AtomicUsize>,
    /// The number of the next requests whose answer is lost.
    loses: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Harbour {
    /// Creates a harbour that books nothing more for a key that it knows.
    pub(super) fn honouring(honours: bool) -> Self {
        Self { honours, ..Self::default() }
    }

    pub(super) fn bookings(&self) -> usize {
        self.booked.lock().unwrap().values().sum()
    }

    pub(super) fn by_vessel(&self) -> BTreeMap<String, usize> {
        self.vessels.lock().unwrap().clone()
    }

    pub(super) fn has_booked(&self, vessel: &str) -> bool {
        self.vessels.lock().unwrap().contains_key(vessel)
    }
}

async fn book(
    State(harbour): State<Harbour>,
    headers: HeaderMap,
    Json(asked): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    harbour.requests.fetch_add(1, Ordering::SeqCst);
    let is_down = harbour.fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    if is_down {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"error": "down"})));
    }
    if !(harbour.honours && harbour.booked.lock().unwrap().contains_key(&key)) {
        *harbour.booked.lock().unwrap().entry(key).or_default() += 1;
        let vessel = asked["vessel"].as_str().unwrap_or_default().to_owned();
        *harbour.vessels.lock().unwrap().entry(vessel).or_default() += 1;
    }
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

async fn berths() -> Json<Value> {
    Json(json!({"free": ["Q1", "Q2"]}))
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
    (world_with(&model, &harbour).await, model, harbour)
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

pub(super) fn settle(url: &str) -> Value {
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

/// Runs the job to its end. Tells the truth where the job asks whether the call was done, and approves where the job wants an
/// approval. Returns the number of questions, and the job.
async fn run_to_the_end(lives: &mut Lives<'_>, harbour: &Harbour, at: &str) -> (usize, Value) {
    run_with(json!({"input": MARK}), lives, harbour, at).await
}

async fn run_with(body: Value, lives: &mut Lives<'_>, harbour: &Harbour, at: &str) -> (usize, Value) {
    let path = "/v1/fascicles/booker/execute";
    let (status, accepted) = lives.send(Method::POST, path, &[("idempotency-key", "k")], Some(body)).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{at}: {accepted}");
    let job = accepted["job_id"].as_str().unwrap().to_owned();
    let mut asked = 0;
    loop {
        let (_, body) = lives.send(Method::GET, &format!("/v1/jobs/{job}"), &[], None).await;
        if let Some(wait) = body["waits"].get(0) {
            let call = &wait["tool_calls"][0];
            let is_unsure = call["unsure"] == true;
            let result = match harbour.bookings() {
                1.. if is_unsure => json!({"id": call["id"], "result": "{\"booking\": \"B1\"}"}),
                _ => json!({"id": call["id"], "approved": true}),
            };
            let answer = json!({"context_token": wait["context_token"], "tool_results": [result]});
            let (status, _) = lives.send(Method::POST, &format!("/v1/jobs/{job}/continue"), &[], Some(answer)).await;
            asked += usize::from(is_unsure && status.is_success());
        }
        if body["status"] == "completed" || body["status"] == "failed" {
            return (asked, body);
        }
        tests::again().await;
    }
}

/// Kills a job before and after each of its commits. Returns the numbers of points and of questions.
async fn kill_at_each_commit(by_node: bool, settles: bool, more: &Value) -> (usize, usize) {
    let (mut points, mut asked) = (0, 0);
    for at in 0.. {
        let mut died = false;
        for side in ["before", "after"] {
            let (url, _, harbour) = world().await;
            let folder = tempfile::tempdir().unwrap();
            let mut tool = if settles { settle(&url) } else { json!({}) };
            tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            define(folder.path(), &url, tool, by_node).await;
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
    let (points, asked) = kill_at_each_commit(false, false, &json!({})).await;
    println!("{points} points, a person was asked at {asked}");
    assert!(points > 10 && asked > 0);
    let (points, asked) = kill_at_each_commit(false, true, &json!({})).await;
    println!("{points} points with a look-up, a person was asked at {asked}");
    assert!(points > 10 && asked == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_node_books_once_wherever_it_is_killed() {
    let (points, asked) = kill_at_each_commit(true, false, &json!({})).await;
    println!("{points} points of a tool node, a person was asked at {asked}");
    assert!(points > 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_call_is_not_taken_as_one_that_was_not_done() {
    let (points, asked) = kill_at_each_commit(false, false, &json!({"approval": "on_write"})).await;
    println!("{points} points of an approved call, a person was asked at {asked}");
    assert!(points > 12 && asked > 0);
    // A lost answer is looked up after an approval, too, and the look-up ends it.
    let (url, _, harbour) = world().await;
    let folder = tempfile::tempdir().unwrap();
    let mut tool = settle(&url);
    tool["approval"] = json!("on_write");
    define(folder.path(), &url, tool, false).await;
    harbour.loses.store(64, Ordering::SeqCst);
    let mut lives = Lives::begin(folder.path(), &url, "after 10000");
    let (asked, job) = run_to_the_end(&mut lives, &harbour, "approved").await;
    assert_eq!((job["status"].as_str(), asked), (Some("completed"), 0), "{job}");
    assert_eq!((harbour.bookings(), harbour.requests.load(Ordering::SeqCst)), (1, 1), "{job}");
    lives.end();
}

/// Starts a model and the harbour on one listener.
pub(super) async fn world_with(model: &Scripted, harbour: &Harbour) -> String {
    let port = Router::new()
        .route("/book", post(book))
        .route("/find", get(find))
        .route("/berths", get(berths))
        .with_state(harbour.clone());
    let router = neurons::llm::wire::router(Arc::new(model.clone())).merge(port);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_calls_are_asked_about_once_for_each_attempt() {
    let model = Scripted::new(|request: &ChatRequest, _| match request.messages.iter().any(|one| one.role == "tool") {
        true => Reply::Text("It is booked: B1.".into()),
        false => {
            let call = |id: &str| (id.into(), "book".into(), json!({"vessel": "V-1", "nights": 2}).to_string());
            Reply::Tools(vec![call("a"), call("b")])
        }
    });
    let harbour = Harbour::default();
    let url = world_with(&model, &harbour).await;
    let folder = tempfile::tempdir().unwrap();
    define(folder.path(), &url, json!({}), false).await;
    // The first attempt books nothing, and the answer to the second is lost.
    harbour.fails.store(1, Ordering::SeqCst);
    harbour.loses.store(1, Ordering::SeqCst);
    let mut lives = Lives::begin(folder.path(), &url, "after 10000");
    let (asked, job) = run_to_the_end(&mut lives, &harbour, "equal calls").await;
    assert_eq!((job["status"].as_str(), asked, harbour.bookings()), (Some("completed"), 2, 1), "{job}");
    lives.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_side_by_side_do_not_stop_each_other() {
    let (url, _, harbour) = world().await;
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::dying(folder.path(), &url, None);
    let book = json!({"name": "book", "run": {"http": {"method": "POST", "url": format!("{}/book", url.trim_end_matches("/v1"))}}});
    let each = json!({"tool": {"spec": book, "arguments": {"vessel": "V-1"}}});
    let spec = json!({"id": "booker", "output": "act", "nodes": [
        {"id": "act", "run": {"map": {"over": {"role": "user"}, "parallel": 8, "run": each}}},
    ]});
    victim.client.post("/v1/fascicles", spec).await.expect(StatusCode::CREATED);
    victim.stop();
    let mut lives = Lives::begin(folder.path(), &url, "after 10000");
    let body = json!({"input": {"events": [{"role": "user", "content": ["a", "b", "c", "d", "e", "f", "g", "h"]}]}});
    let (asked, job) = run_with(body, &mut lives, &harbour, "side by side").await;
    assert_eq!((job["status"].as_str(), asked), (Some("completed"), 0), "{job}");
    assert_eq!(harbour.bookings(), 8, "{job}");
    assert_eq!(harbour.booked.lock().unwrap().len(), 8, "each has its own key");
    lives.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_about_one_call_is_not_taken_for_another_of_its_name() {
    // The model names each call "c".
    let model = Scripted::new(|request: &ChatRequest, _| {
        let told: Vec<&str> = request
            .messages
            .iter()
            .filter(|message| message.role == "tool")
            .filter_map(|message| message.content.as_deref())
            .collect();
        match told.len() {
            done @ (0 | 1) => Reply::Tools(vec![(
                "c".into(),
                "book".into(),
                json!({"vessel": format!("V-{done}"), "nights": 2}).to_string(),
            )]),
            _ => Reply::Text(told.join(" and ")),
        }
    });
    let harbour = Harbour::default();
    let url = world_with(&model, &harbour).await;
    let folder = tempfile::tempdir().unwrap();
    define(folder.path(), &url, json!({}), false).await;
    harbour.loses.store(1, Ordering::SeqCst);
    let mut lives = Lives::begin(folder.path(), &url, "after 10000");
    let (asked, job) = run_to_the_end(&mut lives, &harbour, "one name").await;
    assert_eq!((job["status"].as_str(), asked, harbour.bookings()), (Some("completed"), 1, 2), "{job}");
    lives.end();
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
