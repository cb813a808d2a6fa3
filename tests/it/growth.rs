//! What is written grows in a line: a conversation of two hundred turns, and hundreds of jobs, cost as much at their end as at
//! their beginning (the peers' loudest failure is that they do not).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use fascicles::{Fascicles, JobOrder, ToolContext, ToolFailure, Toolbox};
use neurons::llm::Delta;
use neurons::llm::scripted::{Reply, Scripted};
use neurons::neuron::ToolResult;
use neurons::{Answer, HOUSE, InvokeOptions, Neurons};
use nexus::ledger::{AccountOp, Amount};
use nexus::store::Memory;
use nexus::{Batch, Event, ManualClock, Nexus, Origin, Store};
use serde_json::{Value, json};
use tests::disk::{Watch, Watched};
use tests::models_of;
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
async fn two_hundred_turns_with_large_results_grow_the_store_in_a_line() {
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
    let node = |id: &str, after: Value| json!({"id": id, "after": after, "run": {"neuron": {"spec": {"memory": "m".repeat(2_000)}}}});
    let spec = json!({"id": "f", "output": "e", "nodes": [node("a", json!([])), node("b", json!(["a"])), node("c", json!(["a"])), node("d", json!(["b", "c"])), node("e", json!(["d"]))]});
    let shipped = vec![serde_json::from_value(spec).unwrap()];
    let fascicles = Fascicles::open(store, neurons, shipped, Default::default()).await.unwrap();
    let mut written = Vec::new();
    for _ in 0..200 {
        let order = JobOrder {
            fascicle: "f".into(),
            owner: HOUSE.into(),
            account: HOUSE.into(),
            events: vec![Event::text("user", "hello", nexus::Cause::default())],
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
