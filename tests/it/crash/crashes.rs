//! The crash matrix (MISSION F5): a job and an invocation are killed by SIGKILL before and after every commit they
//! make, on the real database, while an outside provider counts what it is asked. Nothing that ended is asked for
//! again, what was under way is asked for once more at most and settled, and the result is the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use neurons::llm::ChatRequest;
use neurons::llm::scripted::{Reply, Scripted};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tests::disk::Watch;

use crate::crash::killed::Victim;

/// Tells the daemon at which commit it dies, as in `before 7`: the first is the one that holds [`MARK`].
pub(crate) const KILL: &str = "KILLED_DAEMON_AT";
/// Stands in the first thing that is written of the work under test.
pub(super) const MARK: &str = "the-marked-work";

/// Kills its process at a certain row.
pub(crate) struct Deadly {
    before: bool,
    at: usize,
    marked: AtomicUsize,
}

impl Deadly {
    pub(crate) fn new(when: &str) -> Self {
        let (side, at) = when.split_once(' ').unwrap();
        Self { before: side == "before", at: at.parse().unwrap(), marked: AtomicUsize::new(0) }
    }

    async fn die(&self) {
        std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status().unwrap();
        std::future::pending().await
    }
}

#[async_trait]
impl Watch for Deadly {
    async fn before(&self, row: &Bytes) {
        let begun =
            self.marked.load(Ordering::SeqCst) > 0 || row.windows(MARK.len()).any(|window| window == MARK.as_bytes());
        // Rows are written one after the other, so the count is that of the row until it is durable.
        let count = if begun { self.marked.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
        if self.before && count == self.at + 1 {
            self.die().await;
        }
    }

    async fn after(&self, _: &Bytes) {
        if !self.before && self.marked.load(Ordering::SeqCst) == self.at + 1 {
            self.die().await;
        }
    }
}

/// The model, which lives outside of the process that dies: who it is asked as, and after how many tools.
fn model(request: &ChatRequest, _: usize) -> Reply {
    let name = request.messages[0].content.clone().unwrap_or_default();
    let tools = request.messages.iter().filter(|message| message.role == "tool").count();
    match (name.as_str(), tools) {
        ("client", 0) => Reply::Tools(vec![("c1".into(), "look".into(), "{}".into())]),
        ("server", 0) => {
            Reply::Tools(vec![("k1".into(), "kip".into(), json!({"command": "DESCRIBE PRIMER"}).to_string())])
        }
        ("writer" | "knower", 0) => Reply::Tools(vec![("w1".into(), "write".into(), "{}".into())]),
        ("json", 0)
            if !request
                .messages
                .iter()
                .any(|it| it.content.as_deref().is_some_and(|it| it.contains("does not fit"))) =>
        {
            Reply::Text("not json".into())
        }
        ("json", _) => Reply::Text("{\"n\": 1}".into()),
        (name, _) => Reply::Text(format!("{name} is done")),
    }
}

/// What was written outside: how often, by idempotency key.
type Written = Arc<Mutex<BTreeMap<String, usize>>>;

/// Serves the model where the daemon can call it, and beside it what its tools write to.
async fn provider() -> (String, Scripted) {
    let (url, model, _) = outside().await;
    (url, model)
}

async fn outside() -> (String, Scripted, Written) {
    let (model, written) = (Scripted::new(model), Written::default());
    let writes = written.clone();
    let write = move |headers: axum::http::HeaderMap| async move {
        *writes.lock().unwrap().entry(headers["idempotency-key"].to_str().unwrap().into()).or_default() += 1;
        "written"
    };
    let router = neurons::llm::wire::router(Arc::new(model.clone())).route("/write", axum::routing::post(write));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}/v1"), model, written)
}

/// How often each distinct prompt was asked.
fn counted(model: &Scripted) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for request in model.asked() {
        *counted.entry(json!(request.messages).to_string()).or_default() += 1;
    }
    counted
}

/// Asks until it is answered, by whichever life of the daemon; each that dies is followed by one that lives.
pub(super) struct Lives<'f> {
    folder: &'f Path,
    provider: String,
    victim: Option<Victim>,
    died: bool,
}

impl<'f> Lives<'f> {
    pub(super) fn begin(folder: &'f Path, provider: &str, kill: &str) -> Self {
        let victim = Victim::dying(folder, provider, Some(kill));
        Self { folder, provider: provider.to_owned(), victim: Some(victim), died: false }
    }

    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        loop {
            let client = self.victim.as_ref().unwrap().client.clone();
            if let Some(answer) = client.try_send(method.clone(), path, headers, body.clone()).await {
                return (answer.status, answer.body);
            }
            assert!(!self.died, "it died twice");
            self.died = true;
            self.victim.take().unwrap().kill();
            self.victim = Some(Victim::dying(self.folder, &self.provider, None));
        }
    }

    /// What every life must have come to: all is settled, and what was asked twice was of unknown outcome.
    async fn settled(&mut self, model: &Scripted, at: &str) {
        let (_, house) = self.send(Method::GET, "/v1/house/resources", &[], None).await;
        assert_eq!(house["held"], json!({"tokens": 0, "micro_usd": 0}), "{at}");
        let (_, calls) = self.send(Method::GET, "/v1/house/calls?limit=200", &[], None).await;
        let of = |kind: &str| calls["calls"].as_array().unwrap().iter().filter(|call| call["kind"] == kind).count();
        let unknown =
            calls["calls"].as_array().unwrap().iter().filter(|call| call["data"]["outcome"] == "unknown").count();
        assert_eq!(of("sent"), of("answered") + unknown, "{at}: {calls}");
        // Parallel branches may both be under way when it dies.
        assert!(unknown <= 2, "{at}");
        let again: usize = counted(model)
            .values()
            .map(|times| {
                assert!(*times <= 2, "{at}: asked {times} times");
                times - 1
            })
            .sum();
        assert!(again <= unknown, "{at}: {again} prompts were asked again, {unknown} outcomes were unknown");
    }

    pub(super) fn end(self) -> bool {
        if let Some(victim) = self.victim {
            victim.kill();
        }
        self.died
    }
}

fn node(id: &str, after: Value, more: Value) -> Value {
    let mut spec = json!({"kind": "base", "memory": id});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"id": id, "after": after, "run": {"neuron": {"spec": spec}}, "observe": {"end": format!("{id} ended")}})
}

async fn define(client: &tests::Client) {
    let kip = json!([{"name": "kip", "run": {"kip": {"nexus": "commons", "readonly": true}}}]);
    let spec = json!({"id": "f", "output": "all", "nodes": [
        node("first", json!([]), json!({})),
        node("client", json!(["first"]), json!({"tools": [{"name": "look"}]})),
        node("server", json!(["first"]), json!({"tools": kip})),
        node("json", json!([
            "client",
            "server",
        ]), json!({"kind": "structured_output", "structured_output": {"type": "object", "required": ["n"]}})),
        {"id": "ok", "after": ["json"], "run": {"approve": {"message": "?"}}},
        {"id": "all", "after": ["first", "client", "server", "json", "ok"], "requires": "all", "run": {"join": "object"}},
    ]});
    client.post("/v1/fascicles", spec).await.expect(StatusCode::CREATED);
    let neuron = json!({"id": "n", "memory": "server", "tools": kip});
    client.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
    let neuron = json!({"id": "c", "memory": "client", "tools": [{"name": "look"}]});
    client.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
}

/// The folder that every case begins with: everything is defined, nothing was done.
async fn prepared(provider: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let victim = Victim::dying(folder.path(), provider, None);
    define(&victim.client).await;
    victim.stop();
    folder
}

pub(super) fn copied(from: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let status =
        std::process::Command::new("cp").args(["-r", &format!("{}/.", from.display())]).arg(folder.path()).status();
    assert!(status.unwrap().success());
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_killed_at_any_commit_ends_the_same_and_pays_once() {
    let (url, _) = provider().await;
    let ready = prepared(&url).await;
    let mut points = 0;
    for at in 0.. {
        let mut died = false;
        for side in ["before", "after"] {
            let (url, model) = provider().await;
            let folder = copied(ready.path());
            let at = format!("{side} {at}");
            let mut lives = Lives::begin(folder.path(), &url, &at);
            let body = json!({"input": MARK});
            let (status, accepted) =
                lives.send(Method::POST, "/v1/fascicles/f/execute", &[("idempotency-key", "k")], Some(body)).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{at}: {accepted}");
            let job = accepted["job_id"].as_str().unwrap().to_owned();
            let ended = loop {
                let (_, body) = lives.send(Method::GET, &format!("/v1/jobs/{job}"), &[], None).await;
                if let Some(wait) = body["waits"].get(0) {
                    let token = &wait["context_token"];
                    let answer = match wait["for"].as_str() {
                        Some("approval") => json!({"context_token": token, "approved": true}),
                        _ => json!({"context_token": token, "tool_results": [{"id": "c1", "result": "sea"}]}),
                    };
                    lives.send(Method::POST, &format!("/v1/jobs/{job}/continue"), &[], Some(answer)).await;
                }
                if body["status"] == "completed" || body["status"] == "failed" {
                    break body;
                }
                tests::again().await;
            };
            let by = "user:operator";
            assert_eq!(
                ended["output"],
                json!({
                    "first": "first is done",
                    "client": "client is done",
                    "server": "server is done",
                    "json": {"n": 1},
                    "ok": {"approved": true, "comment": null, "by": by},
                }),
                "{at}: {ended}"
            );
            let told: Vec<&str> =
                ended["events"].as_array().unwrap().iter().map(|event| event["message"].as_str().unwrap()).collect();
            assert_eq!(told.len(), 4, "{at}: {told:?}");
            lives.settled(&model, &at).await;
            died |= lives.end();
            points += 1;
        }
        if !died {
            break;
        }
    }
    println!("{points} points of a job, each side of each commit");
    assert!(points > 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_killed_at_any_commit_completes_and_pays_once() {
    let (url, _) = provider().await;
    let ready = prepared(&url).await;
    let mut points = 0;
    for neuron in ["n", "c"] {
        for at in 0.. {
            let mut died = false;
            for side in ["before", "after"] {
                let (url, model) = provider().await;
                let folder = copied(ready.path());
                let at = format!("{side} {at}");
                let mut lives = Lives::begin(folder.path(), &url, &at);
                let (path, key) = (format!("/v1/neurons/{neuron}/invoke"), [("idempotency-key", "k")]);
                let (mut status, mut answer) =
                    lives.send(Method::POST, &path, &key, Some(json!({"input": MARK}))).await;
                if status == StatusCode::ACCEPTED {
                    let results = json!({
                        "context_token": answer["context_token"],
                        "tool_results": [{"id": "c1", "result": "sea"}],
                    });
                    (status, answer) =
                        lives.send(Method::POST, &format!("/v1/neurons/{neuron}/continue"), &[], Some(results)).await;
                }
                assert_eq!(status, StatusCode::OK, "{at}: {answer}");
                lives.settled(&model, &at).await;
                died |= lives.end();
                points += 1;
            }
            if !died {
                break;
            }
        }
    }
    println!("{points} points of invocations, each side of each commit");
    assert!(points > 16);
}

/// Neurons whose tool writes outside: one whose tool may be called again under the same key, and one whose may not.
fn writers(url: &str) -> [Value; 2] {
    let tool = |repeatable: bool| {
        let url = format!("{}/write", url.trim_end_matches("/v1"));
        json!([{"name": "write", "repeatable": repeatable, "run": {"http": {"method": "POST", "url": url}}}])
    };
    [
        json!({"id": "knower", "memory": "knower", "tools": tool(true)}),
        json!({"id": "writer", "memory": "writer", "tools": tool(false)}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_write_is_not_repeated_wherever_the_daemon_is_killed() {
    let (url, _) = provider().await;
    let ready = prepared(&url).await;
    let mut points = 0;
    for (place, name) in ["knower", "writer"].into_iter().enumerate() {
        for at in 0.. {
            let mut died = false;
            for side in ["before", "after"] {
                let (url, model, written) = outside().await;
                let folder = copied(ready.path());
                let maker = Victim::dying(folder.path(), &url, None);
                maker.client.post("/v1/neurons", writers(&url)[place].clone()).await.expect(StatusCode::CREATED);
                maker.stop();
                let at = format!("{name}, {side} {at}");
                let mut lives = Lives::begin(folder.path(), &url, at.split_once(", ").unwrap().1);
                let (path, key) = (format!("/v1/neurons/{name}/invoke"), [("idempotency-key", "k")]);
                let (status, answer) = lives.send(Method::POST, &path, &key, Some(json!({"input": MARK}))).await;
                assert_eq!(status, StatusCode::OK, "{at}: {answer}");
                lives.settled(&model, &at).await;
                died |= lives.end();
                points += 1;
                let written = written.lock().unwrap().clone();
                let told = model.asked().last().unwrap().messages.last().unwrap().content.clone().unwrap_or_default();
                let times: usize = written.values().sum();
                assert!(written.len() <= 1, "{at}: one call has one key");
                match name {
                    "knower" => assert!(told == "written" && (1..=2).contains(&times), "{at}: {told}, {times} times"),
                    // It is written once, or its outcome is unknown and the result says so.
                    _ => assert!(
                        times <= 1 && (told == "written") == (times == 1 && !told.contains("outcome is unknown")),
                        "{at}: {told}, {times} times"
                    ),
                }
            }
            if !died {
                break;
            }
        }
    }
    println!("{points} points of invocations with tools that write");
    assert!(points > 16);
}

/// What is done with records and resources, each as a request that is made again where nobody knows whether it was
/// done, and what must hold after it, whatever it was cut in.
async fn records_done(what: &str, lives: &mut Lives<'_>, at: &str) {
    const RECORDS: &str = "/api/knowledge";
    let own = format!("{RECORDS}/{MARK}");
    let line = |id: &str| json!({"id": id, "task": "t", "content": format!("What {id} says."), "types": ["tool"]});
    let get = async |lives: &mut Lives<'_>, path: &str| lives.send(Method::GET, path, &[], None).await;
    match what {
        "purge" => {
            let (status, _) = lives.send(Method::DELETE, &format!("{own}?purge=1"), &[], None).await;
            assert!([StatusCode::NO_CONTENT, StatusCode::NOT_FOUND].contains(&status), "{at}: {status}");
            for gone in [own.clone(), format!("{own}/history")] {
                assert_eq!(get(lives, &gone).await.0, StatusCode::NOT_FOUND, "{at}");
            }
            // The name is free, and what was said of the one before is not said of this one.
            let (status, made) = lives.send(Method::POST, RECORDS, &[("idempotency-key", "k")], Some(line(MARK))).await;
            assert_eq!(
                (status, &made["knowledge"]["eval"]["helpful"]),
                (StatusCode::CREATED, &json!(0)),
                "{at}: {made}"
            );
        }
        "slim" => {
            let (status, done) = lives.send(Method::POST, &format!("{RECORDS}/slim"), &[], Some(json!({}))).await;
            assert_eq!(status, StatusCode::OK, "{at}: {done}");
            // One says it, the other was taken into that one, is counted once and comes back.
            let (_, listed) = get(lives, &format!("{RECORDS}?limit=10")).await;
            assert_eq!((&listed["count"], &listed["results"][0]["id"]), (&json!(1), &json!(MARK)), "{at}: {listed}");
            assert_eq!(listed["results"][0]["eval"]["helpful"], 2, "{at}: {listed}");
            let back = lives
                .send(Method::POST, &format!("{RECORDS}/knowledge-same/rollback"), &[], Some(json!({"version": 1})))
                .await;
            assert_eq!(back.0, StatusCode::OK, "{at}: {}", back.1);
        }
        "seal" => {
            let sealed = json!({"id": MARK, "secure_body": "fish-and-chips"});
            let (status, done) = lives.send(Method::POST, "/api/resource", &[], Some(sealed)).await;
            assert!(status.is_success(), "{at}: {done}");
            let (_, shown) = get(lives, &format!("/api/resource/{MARK}?reveal=1&why=test")).await;
            assert_eq!(shown["secure_body"], "fish-and-chips", "{at}: {shown}");
        }
        "import" => {
            let lines = [MARK, "knowledge-two", "knowledge-three"].map(line);
            let body = json!({"tools.json": lines});
            let (status, done) =
                lives.send(Method::POST, &format!("{RECORDS}/import?format=tree"), &[], Some(body)).await;
            let taken = |count: &str| done[count].as_u64().unwrap();
            assert_eq!((status, taken("imported") + taken("unchanged")), (StatusCode::OK, 3), "{at}: {done}");
            let (_, listed) = get(lives, &format!("{RECORDS}?limit=10")).await;
            assert_eq!(listed["count"], 3, "{at}: {listed}");
        }
        what => unreachable!("{what}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_whole_wherever_the_daemon_is_killed() {
    let (url, _) = provider().await;
    let ready = prepared(&url).await;
    let mut points = 0;
    for what in ["purge", "slim", "seal", "import"] {
        let known = copied(ready.path());
        let maker = Victim::dying(known.path(), &url, None);
        if ["purge", "slim"].contains(&what) {
            for id in [MARK, "knowledge-same"].into_iter().take(if what == "slim" { 2 } else { 1 }) {
                let body =
                    json!({"id": id, "task": "t", "content": "Wait for slack water at the bar.", "types": ["tool"]});
                maker.client.post("/api/knowledge", body).await.expect(StatusCode::CREATED);
                let case = json!({"add_helpful_case": {"message_id": id}});
                maker.client.put(&format!("/api/knowledge/{id}"), case).await.expect(StatusCode::OK);
            }
        }
        maker.stop();
        for at in 0.. {
            let mut died = false;
            for side in ["before", "after"] {
                let folder = copied(known.path());
                let at = format!("{side} {at}");
                let mut lives = Lives::begin(folder.path(), &url, &at);
                records_done(what, &mut lives, &format!("{what}, {at}")).await;
                died |= lives.end();
                points += 1;
            }
            if !died {
                break;
            }
        }
    }
    println!("{points} points of records purged, merged, sealed and taken in");
    assert!(points > 14);
}
