//! The forming of claims under SIGKILL, before and after the commits of the messages, of their answers, of the claims after these and of
//! a night: what the mind knows at the end is what it knows without a kill, each claim once and with the statements that state it.

use std::sync::Arc;

use neurons::llm::ChatRequest;
use neurons::llm::scripted::{Reply, Scripted};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::honest;

use super::crashes::{Lives, MARK, copied};
use super::killed::Victim;

/// The messages of a person.
const SAID: [&str; 5] = [
    "My sister Henrike lives in Gdańsk. My boat is called Petrel. My boat Petrel has a red sail.",
    "My friend Tom lives in Oslo. My oars lie beside the boat. My anchor lies under the boat.",
    "Henrike sails every summer. My rope lies upon the boat. My flag hangs at the boat.",
    "My lamp hangs in the boat. My map lies in the boat. My stove stands in the boat.",
    "My pump stands in the boat. My chain lies in the boat. My bucket stands in the boat.",
];
/// The tasks of the night.
const TASKS: [&str; 9] = [
    "form_claims",
    "read_statements",
    "merge_concepts",
    "file_domains",
    "describe_domains",
    "consolidate_memory",
    "describe_people",
    "weigh_claims",
    "check_claims",
];

/// Reads and files statements, describes the domain, and answers all else like [`honest`].
fn model(request: &ChatRequest, n: usize) -> Reply {
    let said = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
    if request.response_format.is_none() {
        return honest(request, n);
    }
    if said.starts_with("<domain>") {
        let answer = json!({"description": "The boat and what lies around it.", "same_as": "", "parts": []});
        return Reply::Text(answer.to_string());
    }
    if said.starts_with("<person>") {
        let part = json!({"part": "capability", "text": "keeps a boat", "of": [1]});
        return Reply::Text(json!({"parts": [part]}).to_string());
    }
    if !said.starts_with("<statements>") {
        return honest(request, n);
    }
    let number = |line: &str| line.split_once('.')?.0.parse::<usize>().ok();
    let filed: Vec<Value> =
        said.lines().filter_map(number).map(|number| json!({"n": number, "domain": "Sailing"})).collect();
    let sails = said.lines().filter(|line| line.contains("sails")).filter_map(number);
    let claims: Vec<Value> =
        sails.map(|number| json!({"n": number, "s": "Henrike", "p": "does", "o": "sailing"})).collect();
    Reply::Text(json!({"claims": claims, "filed": filed}).to_string())
}

async fn serve() -> String {
    let router = neurons::llm::wire::router(Arc::new(Scripted::new(model)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/v1")
}

/// Returns what the mind knows, without ids and times.
async fn known(lives: &mut Lives<'_>, life: &str) -> Value {
    let mut all = Vec::new();
    let mut queries: Vec<String> = ["relative_of", "friend_of", "lives_in", "owns", "does"]
        .map(|predicate| {
            format!(
                r#"FIND(?s.name, ?o.attributes.name, ?f.attributes.statement, ?l.metadata.status, ?l.metadata.access_scopes) WHERE {{ ?l (?s, "{predicate}", ?o) (?f, "states", ?l) }}"#
            )
        })
        .into();
    queries.extend(["Person", "Place", "Thing", "Theme", "Fact"].map(|kind| {
        format!(
            r#"FIND(?c.attributes.name, ?c.attributes.statement, ?c.metadata.status) WHERE {{ ?c {{type: "{kind}"}} }}"#
        )
    }));
    queries.push(r#"FIND(?d.name, ?d.attributes.description, ?f.attributes.statement) WHERE { (?f, "belongs_to_domain", ?d) ?d {type: "Domain"} ?f {type: "Fact"} }"#.into());
    queries.push(r#"FIND(?f.attributes.statement) WHERE { (?f, "read_by", ?me) }"#.into());
    queries.push(
        r#"FIND(?p.name, ?p.attributes.interaction_summary.described.capabilities) WHERE { ?p {type: "Person"} }"#
            .into(),
    );
    for query in queries {
        let path = format!("/v1/lifeforms/{life}/kip");
        let (status, answer) = lives.send(Method::POST, &path, &[], Some(json!({"command": query}))).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let mut rows: Vec<String> = answer["result"]
            .as_array()
            .unwrap_or_else(|| panic!("{query}: {answer}"))
            .iter()
            .map(Value::to_string)
            .collect();
        rows.sort();
        all.push(json!(rows));
    }
    Value::from(all)
}

/// Talks, runs the night, and returns what the mind knows then, and `true` if the daemon was killed on the way.
async fn talk(ready: &std::path::Path, life: &str, at: &str) -> (Value, bool) {
    tests::end_loops();
    let (url, folder) = (serve().await, copied(ready));
    let mut lives = Lives::begin(folder.path(), &url, at);
    let messages = format!("/v1/lifeforms/{life}/canvases/canvas_chat_main/topics/t/messages");
    for (n, said) in SAID.into_iter().enumerate() {
        let id = format!("{MARK}-{n}");
        let (status, answer) = lives
            .send(Method::POST, &messages, &[("idempotency-key", &id)], Some(json!({"id": id, "content": said})))
            .await;
        assert!(status == StatusCode::CREATED || status == StatusCode::OK, "{at}: {answer}");
        loop {
            let (_, posted) = lives.send(Method::GET, &messages, &[], None).await;
            let posted = posted["messages"].as_array().cloned().unwrap_or_default();
            let is_answer = |message: &&Value| {
                message["sender"].as_str().is_some_and(|sender| sender.starts_with("lifeform:"))
                    && message["status"] != "streaming"
            };
            if posted.iter().filter(is_answer).count() > n {
                break;
            }
            tests::again().await;
        }
    }
    for task in TASKS {
        let path = format!("/v1/lifeforms/{life}/system/run-maintenance");
        let (status, job) =
            lives.send(Method::POST, &path, &[("idempotency-key", task)], Some(json!({"task": task}))).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{at}: {job}");
        let job = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
        loop {
            let (_, job) = lives.send(Method::GET, &job, &[], None).await;
            assert_ne!(job["status"], "failed", "{at}: {job}");
            if job["status"] == "completed" {
                break;
            }
            tests::again().await;
        }
    }
    let known = known(&mut lives, life).await;
    (known, lives.end())
}

async fn kill_at(points: impl Iterator<Item = usize>, until_alive: bool) -> usize {
    let (url, ready) = (serve().await, tempfile::tempdir().unwrap());
    let victim = Victim::dying(ready.path(), &url, None);
    let made = victim.client.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let life = made["id"].as_str().unwrap().to_owned();
    victim.client.post(&format!("/v1/lifeforms/{life}/start"), json!({})).await.expect(StatusCode::OK);
    victim.client.topic(&format!("/v1/lifeforms/{life}/canvases/canvas_chat_main"), "t").await;
    victim.stop();
    let (expected, _) = talk(ready.path(), &life, "before 100000").await;
    let whole = expected.to_string();
    for part in ["Gdańsk", "Petrel", "sailing", "The boat and what lies around it.", "keeps a boat"] {
        assert!(whole.contains(part), "without a kill: {part} in {whole}");
    }
    let mut kills = 0;
    for point in points {
        let at = format!("{} {}", if point % 2 == 0 { "before" } else { "after" }, point / 2);
        let (known, died) = talk(ready.path(), &life, &at).await;
        assert_eq!(known, expected, "{at}");
        kills += usize::from(died);
        if until_alive && !died {
            break;
        }
    }
    kills
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_the_same_wherever_the_daemon_is_killed() {
    let kills = kill_at((0..6).map(|n| 5 + n * 19), false).await;
    println!("{kills} kills");
    assert!(kills >= 4, "{kills} kills");
}

/// All of them. `cargo test --release -p tests --test it claims_are_the_same_at_each -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "some ten minutes"]
async fn claims_are_the_same_at_each_commit() {
    let stride = std::env::var("STRIDE").ok().and_then(|stride| stride.parse().ok()).unwrap_or(1);
    let kills = kill_at((0..).step_by(stride), true).await;
    println!("{kills} kills before and after commits, and each time the mind knew the same");
}
