//! A goal under SIGKILL, before and after its commits, with a naive model that books again on every doubt: each step has its
//! effect once, or a person is asked, and the goal comes to its end.

use std::collections::BTreeSet;

use neurons::llm::ChatRequest;
use neurons::llm::scripted::{Reply, Scripted};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::crashes::{Lives, MARK, copied};
use super::effects::{Harbour, settle, world_with};
use crate::crash::killed::Victim;

/// A model that plans two bookings, one after the other, and in each step books until an answer names a booking.
fn naive(request: &ChatRequest, _: usize) -> Reply {
    let last = request.messages.iter().rposition(|message| message.role == "user").unwrap_or_default();
    let task = request.messages[last].content.clone().unwrap_or_default();
    let results = request.messages[last..].iter().filter(|message| message.role == "tool");
    let results: Vec<String> = results.filter_map(|message| message.content.clone()).collect();
    let call = |name: &str, arguments: Value| {
        Reply::Tools(vec![(format!("c{}_{name}", results.len()), name.into(), arguments.to_string())])
    };
    if task.starts_with("A step of") {
        let vessel = if task.contains("<step>Book V-1") { "V-1" } else { "V-2" };
        return match results.last() {
            Some(last) if last.contains("B1") => {
                call("finalize_output", json!({"status": "done", "result": "B1", "values": []}))
            }
            Some(last) if results.len() >= 4 => {
                call("finalize_output", json!({"status": "need", "result": last, "values": []}))
            }
            _ => call("book", json!({"vessel": vessel, "nights": 2})),
        };
    }
    let step = |id: &str, vessel: &str, after: Value| json!({"id": id, "what": format!("Book {vessel}"), "tools": ["book"], "after": after});
    let steps = match task.contains("all steps of the plan are done") {
        true => json!([]),
        // Whatever failed is planned again.
        false if task.contains("s1 done") => json!([step("s2", "V-2", json!(["s1"]))]),
        false => json!([step("s1", "V-1", json!([])), step("s2", "V-2", json!(["s1"]))]),
    };
    let is_over = steps == json!([]);
    let (say, status) = if is_over { ("Both are booked.", "done") } else { ("", "active") };
    let plan = json!({"steps": steps, "say": say, "status": status, "again_in_minutes": 0, "subgoals": []});
    Reply::Text(plan.to_string())
}

/// Defines the tool and a lifeform that has it. Returns the id of the lifeform.
async fn define(victim: &Victim, url: &str, settles: bool) -> String {
    let book = format!("{}/book", url.trim_end_matches("/v1"));
    let mut tool = if settles { settle(url) } else { json!({}) };
    let own = json!({"approval": "never", "run": {"http": {"method": "POST", "url": book}}});
    tool.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    victim.client.put("/v1/tools/book", tool).await.expect(StatusCode::CREATED);
    let pursue = json!({"standard": "pursue_with_tools", "with_tools": "pursue_with_tools"});
    let definition = json!({"name": "Iris", "tools": [{"use": "book"}], "pursue": pursue});
    let made = victim.client.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = made["id"].as_str().unwrap().to_owned();
    victim.client.post(&format!("/v1/lifeforms/{life}/start"), json!({})).await.expect(StatusCode::OK);
    life
}

/// Sets the goal and waits for its end. Tells the truth where it asks whether a call was done, and else says to go on. Returns the
/// questions.
async fn pursue(lives: &mut Lives<'_>, harbour: &Harbour, life: &str, at: &str) -> BTreeSet<String> {
    let path = format!("/v1/lifeforms/{life}/goals");
    let key = [("idempotency-key", "k")];
    let (status, set) = lives.send(Method::POST, &path, &key, Some(json!({"title": MARK}))).await;
    assert_eq!(status, StatusCode::CREATED, "{at}: {set}");
    let mut asked = BTreeSet::new();
    loop {
        let (_, goal) = lives.send(Method::GET, &format!("{path}/g1"), &[], None).await;
        match goal["status"].as_str() {
            Some("done") => return asked,
            Some("blocked") if goal["job"].is_null() => {
                let say = json!({"note": "go on", "at": "2026-01-01T00:00:00Z", "status": "active"});
                lives.send(Method::PATCH, &format!("{path}/g1"), &[], Some(say)).await;
            }
            _ => {}
        }
        let (_, waiting) = lives.send(Method::GET, "/v1/approvals", &[], None).await;
        for approval in waiting["approvals"].as_array().into_iter().flatten() {
            let (id, call) = (approval["id"].as_str().unwrap(), &approval["calls"][0]);
            let of_vessel = if call["arguments"]["vessel"] == "V-1" { 1 } else { 2 };
            let is_done = harbour.bookings() >= of_vessel;
            let decision = match call["unsure"] == true && is_done {
                true => json!({"decision": "done", "comment": "{\"booking\": \"B1\"}"}),
                false => json!({"decision": "approve"}),
            };
            let path = format!("/v1/approvals/{id}");
            lives.send(Method::POST, &path, &[], Some(decision)).await;
            asked.insert(format!("{id} {} {}", call["unsure"], call["why"]));
        }
        tests::again().await;
    }
}

/// Kills a daemon at every `stride`-th commit of a goal. Returns the numbers of points and of questions.
async fn kill_at_commits(settles: bool, stride: usize) -> (usize, usize) {
    let (mut points, mut asked) = (0, 0);
    for at in (0..).step_by(stride) {
        let side = if at % 2 == 0 { "before" } else { "after" };
        let (model, harbour) = (Scripted::new(naive), Harbour::default());
        let url = world_with(&model, &harbour).await;
        let folder = tempfile::tempdir().unwrap();
        let victim = Victim::dying(folder.path(), &url, None);
        let life = define(&victim, &url, settles).await;
        victim.stop();
        let (folder, at) = (copied(folder.path()), format!("{side} {at}"));
        let mut lives = Lives::begin(folder.path(), &url, &at);
        let waited = pursue(&mut lives, &harbour, &life, &at).await;
        let questions = waited.len();
        assert_eq!(harbour.bookings(), 2, "{at}");
        assert!(questions <= usize::from(!settles), "{at}: {questions} questions: {waited:?}");
        asked += questions;
        points += 1;
        if !lives.end() {
            return (points, asked);
        }
    }
    unreachable!("a goal has an end")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goal_books_each_step_once_wherever_it_is_killed() {
    let (points, asked) = kill_at_commits(false, 3).await;
    assert!(points > 4, "{points} points, {asked} questions");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goal_whose_calls_are_looked_up_asks_nobody() {
    let (points, _) = kill_at_commits(true, 5).await;
    assert!(points > 3, "{points} points");
}
