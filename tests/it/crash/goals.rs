//! Goals under SIGKILL, before and after their commits: twelve tasks, models that ask again on every doubt or give up at once, and
//! three ways to settle what nobody knows. Each step has its effect once, or a person is asked, and the goal comes to its end.

use std::collections::{BTreeMap, BTreeSet};

use neurons::llm::ChatRequest;
use neurons::llm::scripted::{Reply, Scripted};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::crashes::{Lives, MARK, copied};
use super::effects::{Harbour, settle, world_with};
use crate::crash::killed::Victim;

/// The steps of a task, each with the numbers of those that it follows: `V-1` is a vessel for which a berth is booked, `look` looks the
/// free berths up, and `+V-1` is a goal of its own that serves the task.
pub(super) type Task = &'static [(&'static str, &'static [usize])];

pub(super) const TASKS: [Task; 12] = [
    &[("V-1", &[])],
    &[("V-1", &[]), ("V-2", &[0])],
    &[("V-1", &[]), ("V-2", &[])],
    &[("look", &[]), ("V-1", &[0])],
    &[("V-1", &[]), ("look", &[0]), ("V-2", &[1])],
    &[("look", &[]), ("look2", &[]), ("V-1", &[0, 1])],
    &[("V-1", &[]), ("V-2", &[]), ("V-3", &[])],
    &[("V-1", &[]), ("V-2", &[0]), ("V-3", &[1])],
    &[("look", &[]), ("V-1", &[0]), ("V-2", &[0])],
    &[("V-1", &[]), ("look", &[])],
    &[("V-1", &[]), ("+V-2", &[])],
    &[("look", &[]), ("V-1", &[0]), ("look2", &[1]), ("V-2", &[2])],
];

/// The number of times that a step makes a call until it gives up.
const NAIVE: usize = 4;
pub(super) const STRONG: usize = 1;

/// The way in which an unknown outcome is settled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Settles {
    /// A person says it.
    Asked,
    /// A look-up says it.
    LookedUp,
    /// The harbour honours the key of a call.
    ByKey,
}

const SETTLES: [Settles; 3] = [Settles::Asked, Settles::LookedUp, Settles::ByKey];

fn vessels(task: Task) -> BTreeSet<String> {
    let vessel = |(what, _): &(&'static str, &'static [usize])| what.trim_start_matches('+').to_owned();
    task.iter().map(vessel).filter(|what| what.starts_with('V')).collect()
}

/// Plans the steps of a task that are not done. A step that stands already keeps its id.
fn plan(task: Task, shown: &str) -> Reply {
    let line =
        |what: &str| shown.lines().find(|line| line.starts_with("- s") && line.contains(&format!(": Do {what}")));
    let id = |place: usize| match line(task[place].0) {
        Some(line) => line[2..].split(' ').next().unwrap_or_default().to_owned(),
        None => format!("p{place}"),
    };
    let is_done = |what: &str| line(what).is_some_and(|line| line.split([' ', ':']).nth(2) == Some("done"));
    let parts = || task.iter().filter_map(|(what, _)| what.strip_prefix('+'));
    let steps: Vec<Value> = task
        .iter()
        .enumerate()
        .filter(|(_, (what, _))| !what.starts_with('+') && !is_done(what))
        .map(|(place, (what, after))| {
            let tool = if what.starts_with("look") { "look" } else { "book" };
            let after: Vec<String> = after.iter().map(|place| id(*place)).collect();
            json!({"id": id(place), "what": format!("Do {what}"), "tools": [tool], "after": after})
        })
        .collect();
    // What a part serves is said to be done once the part is.
    let opens: Vec<String> =
        parts().filter(|_| !shown.contains("<subgoals>")).map(|part| format!("Do {part}")).collect();
    let waits = parts().any(|part| !shown.contains(&format!("Do {part} (done)")));
    let (say, status) = if steps.is_empty() && !waits { ("All is done.", "done") } else { ("", "active") };
    let plan = json!({"steps": steps, "say": say, "status": status, "again_in_minutes": 600, "subgoals": opens});
    Reply::Text(plan.to_string())
}

/// A model that plans a task, and in each step calls until an answer names a booking, at most so often.
pub(super) fn model(task: Task, tries: usize) -> Scripted {
    Scripted::new(move |request: &ChatRequest, _| {
        let last = request.messages.iter().rposition(|message| message.role == "user").unwrap_or_default();
        let shown = request.messages[last].content.clone().unwrap_or_default();
        let results = request.messages[last..].iter().filter(|message| message.role == "tool");
        let results: Vec<String> = results.filter_map(|message| message.content.clone()).collect();
        let call = |name: &str, arguments: Value| {
            Reply::Tools(vec![(format!("c{}_{name}", results.len()), name.into(), arguments.to_string())])
        };
        let end = |status: &str, result: &str| {
            call("finalize_output", json!({"status": status, "result": result, "values": []}))
        };
        let Some(step) = shown.split("<step>Do ").nth(1).and_then(|rest| rest.split("</step>").next()) else {
            let part = shown.split("<title>Do ").nth(1).and_then(|rest| rest.split("</title>").next());
            return match part {
                Some(part) => {
                    let named = TASKS.iter().copied().flatten().find(|(what, _)| what.trim_start_matches('+') == part);
                    let name: &'static str = named.map_or("V-2", |(what, _)| what.trim_start_matches('+'));
                    plan(Box::leak(Box::new([(name, &[][..])])), &shown)
                }
                None => plan(task, &shown),
            };
        };
        let (name, arguments) = match step.starts_with("look") {
            true => ("look", json!({"for": step})),
            false => ("book", json!({"vessel": step, "nights": 2})),
        };
        match results.last() {
            Some(last) if last.contains("B1") || last.contains("free") => end("done", "B1"),
            Some(last) if results.len() >= tries => end("need", last),
            _ => call(name, arguments),
        }
    })
}

/// Defines the tools and a lifeform that has them. Returns the id of the lifeform.
async fn define(victim: &Victim, url: &str, settles: Settles) -> String {
    let place = url.trim_end_matches("/v1");
    let mut book = match settles {
        Settles::Asked => json!({}),
        Settles::LookedUp => settle(url),
        Settles::ByKey => json!({"repeatable": true}),
    };
    let own = json!({"approval": "never", "run": {"http": {"method": "POST", "url": format!("{place}/book")}}});
    book.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    let look = json!({"run": {"http": {"url": format!("{place}/berths")}}});
    for (name, tool) in [("book", book), ("look", look)] {
        victim.client.put(&format!("/v1/tools/{name}"), tool).await.expect(StatusCode::CREATED);
    }
    let pursue = json!({"standard": "pursue_with_tools", "with_tools": "pursue_with_tools"});
    let definition = json!({"name": "Iris", "tools": [{"use": "book"}, {"use": "look"}], "pursue": pursue});
    let made = victim.client.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = made["id"].as_str().unwrap().to_owned();
    victim.client.post(&format!("/v1/lifeforms/{life}/start"), json!({})).await.expect(StatusCode::OK);
    life
}

/// Sets the goal and waits for its end. Tells the truth where it asks whether a call was done, and else says to go on. Returns the
/// questions about unknown outcomes.
async fn pursue(lives: &mut Lives<'_>, harbour: &Harbour, life: &str, at: &str) -> BTreeSet<String> {
    let path = format!("/v1/lifeforms/{life}/goals");
    let key = [("idempotency-key", "k")];
    let (status, set) = lives.send(Method::POST, &path, &key, Some(json!({"title": MARK}))).await;
    assert_eq!(status, StatusCode::CREATED, "{at}: {set}");
    let mut asked = BTreeSet::new();
    loop {
        let (_, goals) = lives.send(Method::GET, &path, &[], None).await;
        let goals = goals["goals"].as_array().cloned().unwrap_or_default();
        if goals.iter().any(|goal| goal["id"] == "g1" && goal["status"] == "done") {
            return asked;
        }
        for goal in goals.iter().filter(|goal| goal["status"] == "blocked" && goal["job"].is_null()) {
            let say = json!({"note": "go on", "at": "2026-01-01T00:00:00Z", "status": "active"});
            lives.send(Method::PATCH, &format!("{path}/{}", goal["id"].as_str().unwrap()), &[], Some(say)).await;
        }
        let (_, waiting) = lives.send(Method::GET, "/v1/approvals", &[], None).await;
        for approval in waiting["approvals"].as_array().into_iter().flatten() {
            let (id, call) = (approval["id"].as_str().unwrap(), &approval["calls"][0]);
            let is_unsure = call["unsure"] == true;
            let is_done = harbour.has_booked(call["arguments"]["vessel"].as_str().unwrap_or_default());
            let decision = match is_unsure && is_done {
                true => json!({"decision": "done", "comment": "{\"booking\": \"B1\"}"}),
                false => json!({"decision": "approve"}),
            };
            lives.send(Method::POST, &format!("/v1/approvals/{id}"), &[], Some(decision)).await;
            asked.extend(is_unsure.then(|| format!("{id} {}", call["why"])));
        }
        tests::again().await;
    }
}

/// Kills a daemon once while it pursues a task. Returns the number of questions, and `false` if the goal had ended before.
async fn kill_once(task: Task, tries: usize, settles: Settles, at: &str) -> (usize, bool) {
    tests::end_loops();
    let (model, harbour) = (model(task, tries), Harbour::honouring(settles == Settles::ByKey));
    let url = world_with(&model, &harbour).await;
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::dying(folder.path(), &url, None);
    let life = define(&victim, &url, settles).await;
    victim.stop();
    let (folder, place) = (copied(folder.path()), format!("{at} {task:?} {tries} {settles:?}"));
    let mut lives = Lives::begin(folder.path(), &url, at);
    let asked = pursue(&mut lives, &harbour, &life, &place).await;
    let once: BTreeMap<String, usize> = vessels(task).into_iter().map(|vessel| (vessel, 1)).collect();
    assert_eq!(harbour.by_vessel(), once, "{place}");
    assert!(asked.len() <= usize::from(settles == Settles::Asked), "{place}: {asked:?}");
    (asked.len(), lives.end())
}

fn side(at: usize) -> String {
    format!("{} {}", if at.is_multiple_of(2) { "before" } else { "after" }, at / 2)
}

/// Kills are spread over tasks, models, ways to settle and commits, each by a stride of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_goal_books_each_step_once_wherever_it_is_killed() {
    let (mut kills, mut asked) = (0, 0);
    for n in 0..20 {
        let (task, tries) = (TASKS[n * 5 % 12], if n % 2 == 0 { NAIVE } else { STRONG });
        let (questions, died) = kill_once(task, tries, SETTLES[n % 3], &side(n * 11 % 34)).await;
        kills += usize::from(died);
        asked += questions;
    }
    println!("{kills} kills, a person was asked {asked} times");
    assert!(kills > 10, "{kills} kills");
}

/// All of them: about an hour. `cargo test --release -p tests --test it at_each_commit -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "about an hour"]
async fn twelve_tasks_book_once_killed_at_each_commit() {
    let stride = std::env::var("STRIDE").ok().and_then(|stride| stride.parse().ok()).unwrap_or(1);
    let (mut kills, mut asked) = (0, 0);
    for (number, task) in TASKS.into_iter().enumerate() {
        for (tries, settles) in [NAIVE, STRONG].into_iter().flat_map(|tries| SETTLES.map(|settles| (tries, settles))) {
            for at in (0..).step_by(stride) {
                let (questions, died) = kill_once(task, tries, settles, &side(at)).await;
                (kills, asked) = (kills + usize::from(died), asked + questions);
                if !died {
                    break;
                }
            }
        }
        println!("task {number}: {kills} kills so far, 0 doubled, 0 lost, a person was asked {asked} times");
    }
}
