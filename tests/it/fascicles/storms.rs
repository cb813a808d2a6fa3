//! Supervision (MISSION F5): a storm of panics fails its own steps and nothing else, what is bounded says so, and what
//! is only read is kept no later than anybody could miss it.

use std::sync::Arc;

use async_trait::async_trait;
use fascicles::run::{Fact, Status};
use fascicles::{Fascicles, JobOrder, ToolContext, ToolFailure, Toolbox};
use neurons::llm::Delta;
use neurons::{HOUSE, Models, Neurons};
use nexus::Nexus;
use serde_json::{Value, json};
use store::{ManualClock, Origin, Store};
use tokio::sync::mpsc;

/// One of its tools panics.
struct Hands;

#[async_trait]
impl Toolbox for Hands {
    async fn call(&self, name: &Arc<str>, _: &Value, _: &ToolContext) -> Result<Value, ToolFailure> {
        if &**name == "boom" {
            // Without the hook, which would print a thousand times.
            std::panic::resume_unwind(Box::new("boom"));
        }
        Ok(json!("fine"))
    }

    fn only_reads(&self, name: &str) -> bool {
        name == "fine"
    }

    async fn listen(&self, _: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        Ok(None)
    }
}

#[tokio::test]
async fn what_waits_after_a_tool_that_only_reads_is_kept_at_once() {
    let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    let neurons =
        Neurons::open(store.clone(), tests::tools_of(Nexus::new(store.clone())), Models::none("none")).await.unwrap();
    let asks = json!({"id": "asks", "output": "ok", "nodes": [
        {"id": "look", "run": {"tool": {"name": "fine"}}},
        {"id": "again", "after": ["look"], "run": {"tool": {"name": "fine"}}},
        {"id": "ok", "after": ["again"], "run": {"approve": {"message": "So?"}}},
    ]});
    let shipped = vec![serde_json::from_value(asks).unwrap()];
    let fascicles = Fascicles::open(store, neurons, shipped, ["fine"].map(Arc::from).into()).await.unwrap();
    let order = JobOrder { fascicle: "asks".into(), owner: HOUSE.into(), account: HOUSE.into(), ..JobOrder::default() };
    let id = fascicles.start(&Origin::system("test"), order, Arc::new(Hands), |batch| batch).await.unwrap();
    let mut follow = fascicles.follow(&id);
    while !matches!(follow.next().await.unwrap().decode().unwrap(), Fact::Paused { .. }) {}
    let job = fascicles.job(&id).await.unwrap();
    assert_eq!((job.status, job.waits.len()), (Status::WaitingForApproval, 1));
}

async fn ended(fascicles: &Fascicles, id: &Arc<str>) -> Status {
    let mut follow = fascicles.follow(id);
    while !matches!(follow.next().await.unwrap().decode().unwrap(), Fact::Ended { .. }) {}
    fascicles.job(id).await.unwrap().status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_panics_leaves_everything_else_alive() {
    let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    let neurons =
        Neurons::open(store.clone(), tests::tools_of(Nexus::new(store.clone())), Models::none("none")).await.unwrap();
    let tool = |id: &str| {
        json!({
            "id": id,
            "output": "a",
            "nodes": [{"id": "a", "run": {"tool": {"name": id}}, "retry": {"times": 2, "backoff_ms": 0}}],
        })
    };
    let shipped = ["boom", "fine"].map(|id| serde_json::from_value(tool(id)).unwrap()).to_vec();
    let tools = ["boom", "fine"].map(Arc::from).into();
    let fascicles = Fascicles::open(store, neurons, shipped, tools).await.unwrap();
    let (mut booms, mut fines): (Vec<Arc<str>>, Vec<Arc<str>>) = (Vec::new(), Vec::new());
    for n in 0..1_000 {
        let fascicle = if n % 10 == 9 { "fine" } else { "boom" };
        let order =
            JobOrder { fascicle: fascicle.into(), owner: HOUSE.into(), account: HOUSE.into(), ..JobOrder::default() };
        let id = fascicles.start(&Origin::system("test"), order, Arc::new(Hands), |batch| batch).await.unwrap();
        if fascicle == "fine" { fines.push(id) } else { booms.push(id) }
    }
    for id in &fines {
        assert_eq!(ended(&fascicles, id).await, Status::Completed);
    }
    for id in &booms {
        assert_eq!(ended(&fascicles, id).await, Status::Failed);
        assert_eq!(fascicles.job(id).await.unwrap().error.as_deref(), Some("a: it panicked"));
    }
    assert_eq!(fascicles.busy(), 0);
}

/// A toolbox whose question to it within the actor panics so many times.
struct Fragile(std::sync::atomic::AtomicU32);

#[async_trait]
impl Toolbox for Fragile {
    async fn call(&self, _: &Arc<str>, _: &Value, _: &ToolContext) -> Result<Value, ToolFailure> {
        Ok(json!("fine"))
    }

    fn only_reads(&self, _: &str) -> bool {
        use std::sync::atomic::Ordering;
        if self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            std::panic::resume_unwind(Box::new("the actor of the job dies"));
        }
        false
    }

    async fn listen(&self, _: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        Ok(None)
    }
}

#[tokio::test]
async fn a_job_whose_actor_dies_is_resumed_a_limited_number_of_times() {
    let clock = ManualClock::default();
    let store = Store::in_memory(Arc::new(clock.clone())).await;
    let neurons =
        Neurons::open(store.clone(), tests::tools_of(Nexus::new(store.clone())), Models::none("none")).await.unwrap();
    let two = json!({"id": "two", "output": "b", "nodes": [
        {"id": "a", "run": {"tool": {"name": "fine"}}},
        {"id": "b", "after": ["a"], "run": {"tool": {"name": "fine"}}},
    ]});
    let shipped = vec![serde_json::from_value(two).unwrap()];
    let fascicles = Fascicles::open(store, neurons, shipped, ["fine"].map(Arc::from).into()).await.unwrap();
    for (deaths, status) in [(1, Status::Completed), (3, Status::Completed), (100, Status::Failed)] {
        let toolbox = Arc::new(Fragile(deaths.into()));
        let order = JobOrder {
            fascicle: "two".into(),
            owner: format!("owner of {deaths}").into(),
            account: HOUSE.into(),
            ..JobOrder::default()
        };
        let id = fascicles.start(&Origin::system("test"), order, toolbox, |batch| batch).await.unwrap();
        // The pauses before its restarts pass.
        let passing = async {
            loop {
                clock.advance_ms(20);
                tests::again().await;
            }
        };
        tokio::select! {
            found = ended(&fascicles, &id) => assert_eq!(found, status, "after {deaths} deaths"),
            () = passing => unreachable!("it does not end"),
        }
    }
    assert_eq!(fascicles.running(), 0);
}
