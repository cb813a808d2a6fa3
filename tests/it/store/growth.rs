//! What is written grows in a line: a conversation of two hundred turns, and hundreds of jobs, cost as much at their
//! end as at their beginning (the peers' loudest failure is that they do not).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use fascicles::{Fascicles, JobOrder, ToolContext, ToolFailure, Toolbox};
use neurons::llm::scripted::{Reply, Scripted};
use neurons::llm::{ChatRequest, Delta};
use neurons::neuron::ToolResult;
use neurons::{Answer, HOUSE, InvokeOptions, Neurons};
use nexus::Nexus;
use reqwest::StatusCode;
use runtime::{Config, Daemon, Parts};
use serde_json::{Value, json};
use store::ledger::{AccountOp, Amount};
use store::{Backend, Batch, Event, Kind, ManualClock, Memory, Origin, Store};
use tests::disk::{Watch, Watched};
use tests::{Client, honest, models_of};
use tokio::sync::mpsc;

/// Counts what is written to a disk's log.
#[derive(Default)]
struct Counting(AtomicUsize);

#[async_trait]
impl Watch for Counting {
    async fn before(&self, row: &Bytes) {
        self.0.fetch_add(row.len(), Ordering::SeqCst);
    }

    async fn after(&self, _: &Bytes) {}
}

type Disk = Arc<Watched<Memory, Counting>>;

async fn opened(model: &Scripted) -> (Disk, Store, Neurons) {
    let disk = Arc::new(Watched::new(Arc::new(Memory::default()), Counting::default()));
    let store = Store::open(disk.clone(), Arc::new(ManualClock::default())).await.unwrap();
    let open = AccountOp::Open(Amount::tokens(i64::MAX / 2));
    store.commit(Batch::new(&Origin::system("test")).account(HOUSE, open, "house")).await.unwrap();
    let models = models_of(&model.provider("scripted").unwrap());
    let neurons = Neurons::open(store.clone(), tests::tools_of(Nexus::new(store.clone())), models).await.unwrap();
    (disk, store, neurons)
}

#[tokio::test]
async fn the_store_grows_linearly_over_turns_with_large_results() {
    let model = Scripted::new(|_, before| Reply::Tools(vec![(format!("c{before}"), "look".into(), "{}".into())]));
    let (disk, _store, neurons) = opened(&model).await;
    let origin = Origin::system("test");
    let spec =
        serde_json::from_value(json!({"id": "n", "memory": "m".repeat(2_000), "tools": [{"name": "look"}]})).unwrap();
    neurons.create(&origin, spec).await.unwrap();
    let id = "n".into();
    let mut answer = neurons.invoke(&origin, &id, &json!("hello"), InvokeOptions::default()).await.unwrap().answer;
    let mut written = vec![disk.watch.0.load(Ordering::SeqCst)];
    for turn in 0..200 {
        let Answer::Paused { token, calls } = answer else { panic!("{answer:?}") };
        let result = ToolResult {
            id: calls[0].id.clone(),
            result: Some(format!("{turn} {}", "r".repeat(5_000))),
            ..ToolResult::default()
        };
        answer = neurons.resume(&origin, &id, &token, vec![result], InvokeOptions::default()).await.unwrap().answer;
        written.push(disk.watch.0.load(Ordering::SeqCst));
    }
    let (first, second) = (written[100] - written[0], written[200] - written[100]);
    println!("200 turns with 5 KB results: {} and {} bytes a turn in the two halves", first / 100, second / 100);
    assert!(second < first + first / 10, "{first} bytes in the first hundred turns, {second} in the second");
}

struct NoTools;

#[async_trait]
impl Toolbox for NoTools {
    async fn call(&self, name: &Arc<str>, _: &Value, _: &ToolContext) -> Result<Value, ToolFailure> {
        Err(ToolFailure::fatal(name))
    }

    async fn listen(&self, _: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        Ok(None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_costs_as_much_as_the_one_before() {
    let model = Scripted::new(|_, _| Reply::Text("a short answer".into()));
    let (disk, store, neurons) = opened(&model).await;
    let node = |id: &str, after: Value| {
        json!({
            "id": id,
            "after": after,
            "run": {"neuron": {"spec": {"memory": "m".repeat(2_000)}}},
        })
    };
    let spec = json!({
        "id": "f",
        "output": "e",
        "nodes": [node("a", json!([])), node("b", json!(["a"])), node("c", json!(["a"])), node("d", json!(["b", "c"])), node("e", json!(["d"]))],
    });
    let shipped = vec![serde_json::from_value(spec).unwrap()];
    let fascicles = Fascicles::open(store, neurons, shipped, Default::default()).await.unwrap();
    let mut written = Vec::new();
    for _ in 0..200 {
        let order = JobOrder {
            fascicle: "f".into(),
            owner: HOUSE.into(),
            account: HOUSE.into(),
            events: vec![Event::text("user", "hello", store::Cause::default())],
            ..JobOrder::default()
        };
        let job = fascicles.start(&Origin::system("test"), order, Arc::new(NoTools), |batch| batch).await.unwrap();
        let mut follow = fascicles.follow(&job);
        while !matches!(follow.next().await.unwrap().decode().unwrap(), fascicles::run::Fact::Ended { .. }) {}
        written.push(disk.watch.0.load(Ordering::SeqCst));
    }
    let (first, second) = (written[99] - written[9], written[199] - written[109]);
    println!("200 jobs of five neurons: {} and {} bytes a job in the two halves", first / 90, second / 90);
    assert!(second < first + first / 10, "{first} bytes in the first hundred jobs, {second} in the second");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_long_ago_is_let_go_with_all_that_was_said_in_it() {
    let script = |request: &ChatRequest, _: usize| match request.messages.last().unwrap().content.as_deref() {
        Some("ask") => Reply::Tools(vec![("c1".into(), "look".into(), "{}".into())]),
        _ => Reply::Text("yes".into()),
    };
    let daemon = tests::TestDaemon::start(script).await;
    let client = daemon.operator.clone();
    client.post("/v1/neurons", json!({"id": "n", "tools": [{"name": "look"}]})).await.expect(StatusCode::CREATED);
    let node = json!({"id": "a", "run": {"neuron": {"spec": {}}}});
    client.post("/v1/fascicles", json!({"id": "f", "output": "a", "nodes": [node]})).await.expect(StatusCode::CREATED);
    let node = json!({"id": "a", "run": {"wait": {"event": "never"}}});
    client.post("/v1/fascicles", json!({"id": "w", "output": "a", "nodes": [node]})).await.expect(StatusCode::CREATED);
    let invoked = client.post("/v1/neurons/n/invoke", json!({"input": "x"})).await;
    let done = invoked.headers["x-invocation-id"].to_str().unwrap().to_owned();
    let paused = client.post("/v1/neurons/n/invoke", json!({"input": "ask"})).await.expect(StatusCode::ACCEPTED);
    let chat = json!({"model": "economy", "messages": [{"role": "user", "content": "hello"}]});
    client.post("/v1/chat/completions", chat).await.expect(StatusCode::OK);
    let job = async |fascicle: &str| -> String {
        let job = client.post(&format!("/v1/fascicles/{fascicle}/execute"), json!({"input": "x"})).await;
        job.expect(StatusCode::ACCEPTED)["job_id"].as_str().unwrap().to_owned()
    };
    let (ended, waiting) = (job("f").await, job("w").await);
    client.events(&format!("/v1/jobs/{ended}/events")).await;
    let store = daemon.daemon.app.store().clone();
    let calls = store.entries(&"calls:house".into(), 0, 200).await.unwrap();
    let said = calls.iter().filter_map(|call| call.to_json()["data"]["conversation"].as_str().map(str::to_owned));
    let mut said: Vec<store::Stream> = said.map(Into::into).collect();
    said.push(format!("job:{ended}").into());
    // Two invocations, a chat, a step of a job, and the job.
    said.sort();
    said.dedup();
    assert_eq!(said.len(), 5, "{said:?}");
    let kept = async || {
        let mut kept = 0;
        for stream in &said {
            kept += usize::from(store.head(stream).await.unwrap() > 0);
        }
        kept
    };
    assert_eq!(kept().await, said.len());
    daemon.clock.advance_ms(91 * 86_400_000);
    while kept().await > 0 {
        tests::again().await;
    }
    client.get(&format!("/v1/jobs/{ended}")).await.refused(404, "job_not_found");
    client.get(&format!("/v1/invocations/{done}")).await.refused(404, "invocation_not_found");
    let results = json!({"context_token": paused["context_token"], "tool_results": [{"id": "c1", "result": "sea"}]});
    client.post("/v1/neurons/n/continue", results).await.refused(404, "no_continuation");
    client.get(&format!("/v1/jobs/{waiting}")).await.expect(StatusCode::OK);
    let house = client.get("/v1/house/calls?limit=200").await.expect(StatusCode::OK);
    assert_eq!(house["calls"].as_array().unwrap().len(), calls.len(), "what was paid for stays on record");
}

/// Counts how often entities of canvases are listed, and lets everything else go first.
#[derive(Default)]
struct Listings(AtomicUsize);

#[async_trait]
impl Watch for Listings {
    async fn before(&self, _: &Bytes) {}

    async fn after(&self, _: &Bytes) {}

    async fn listing(&self, kind: Kind) {
        if kind == Kind::Entity {
            self.0.fetch_add(1, Ordering::SeqCst);
            for _ in 0..1_000 {
                tests::again().await;
            }
        }
    }
}

async fn daemon_on(backend: Arc<dyn Backend>, folder: &Path) -> (Daemon, Client) {
    const TOKEN: &str = "lfd_token_of_the_operator";
    let flags = [("data", folder.display().to_string()), ("listen", "127.0.0.1:0".into()), ("token", TOKEN.into())];
    // Its store is in memory, and none is in its folder.
    let config = Config { accept_loss: true, ..Config::load(None, &flags).unwrap() };
    let models = models_of(&Scripted::new(honest).provider("scripted").unwrap());
    let daemon = Daemon::start(&config, Parts { backend, ..Parts::real(&config, models).unwrap() }).await.unwrap();
    let client = Client::new(format!("http://{}", daemon.address), TOKEN.into());
    (daemon, client)
}

#[tokio::test]
async fn a_canvas_is_read_once_however_many_ask_for_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(Memory::default());
    let (daemon, client) = Box::pin(daemon_on(disk.clone(), folder.path())).await;
    let made = client.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let base = format!("/v1/lifeforms/{}/canvases/canvas_chat_main", made["id"].as_str().unwrap());
    client.topic(&base, "t").await;
    let said = client.say(&base, "t", "hello").await;
    daemon.stop().await.unwrap();
    let watched = Arc::new(Watched::new(disk.kill(), Listings::default()));
    let (daemon, client) = Box::pin(daemon_on(watched.clone(), folder.path())).await;
    let path = format!("{base}/topics/t/messages/{}", said["id"].as_str().unwrap());
    let at_first = watched.watch.0.load(Ordering::SeqCst);
    let asked = (0..16).map(|_| client.get(&path));
    for answer in futures::future::join_all(asked).await {
        assert_eq!(answer.expect(StatusCode::OK)["content"], "hello");
    }
    assert_eq!(watched.watch.0.load(Ordering::SeqCst) - at_first, 1, "a page of it, once");
    daemon.stop().await.unwrap();
}
