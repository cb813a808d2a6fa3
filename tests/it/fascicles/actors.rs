//! The actor tree: the death of an actor reaches the actors below it and no others, and a job or a lifeform whose actor
//! died is started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use fascicles::run::{Fact, Status};
use fascicles::{Fascicles, JobOrder, ToolContext, ToolFailure, Toolbox};
use neurons::actors::{ActorView, view};
use neurons::llm::Delta;
use neurons::llm::scripted::Reply;
use neurons::{HOUSE, Models, Neurons};
use nexus::Nexus;
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::{ManualClock, Origin, Store};
use tests::{TestDaemon, honest};
use tokio::sync::{Notify, Semaphore, mpsc};

/// A toolbox whose calls wait until they are let through.
struct Gate {
    calls: AtomicUsize,
    through: Semaphore,
}

impl Gate {
    fn closed() -> Arc<Self> {
        Arc::new(Self { calls: AtomicUsize::new(0), through: Semaphore::new(0) })
    }
}

#[async_trait]
impl Toolbox for Gate {
    async fn call(&self, _: &Arc<str>, _: &Value, _: &ToolContext) -> Result<Value, ToolFailure> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.through.acquire().await.unwrap().forget();
        Ok(json!("fine"))
    }

    async fn listen(&self, _: &ToolContext) -> Result<Option<mpsc::Sender<Delta>>, ToolFailure> {
        Ok(None)
    }
}

async fn fascicles() -> Fascicles {
    let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    let neurons =
        Neurons::open(store.clone(), tests::tools_of(Nexus::new(store.clone())), Models::none("none")).await.unwrap();
    let two = json!({"id": "two", "output": "both", "nodes": [
        {"id": "a", "run": {"tool": {"name": "hold"}}, "retry": {"times": 2, "backoff_ms": 0}},
        {"id": "b", "run": {"tool": {"name": "hold"}}, "retry": {"times": 1}},
        {"id": "both", "after": ["a", "b"], "run": {"join": "list"}},
    ]});
    let shipped = vec![serde_json::from_value(two).unwrap()];
    Fascicles::open(store, neurons, shipped, ["hold"].map(Arc::from).into()).await.unwrap()
}

async fn start(fascicles: &Fascicles, owner: &str, toolbox: &Arc<Gate>) -> Arc<str> {
    let order = JobOrder { fascicle: "two".into(), owner: owner.into(), account: HOUSE.into(), ..JobOrder::default() };
    fascicles.start(&Origin::system("test"), order, toolbox.clone(), |batch| batch).await.unwrap()
}

/// Returns the actor of a level and an id once it runs.
async fn actor(tree: impl AsyncFn() -> Vec<ActorView>, level: &str, id: &str) -> ActorView {
    fn find(actors: &[ActorView], level: &str, id: &str) -> Option<ActorView> {
        let is_it = |actor: &&ActorView| actor.level == level && (actor.id == id || id == "*");
        actors.iter().find(is_it).cloned().or_else(|| actors.iter().find_map(|actor| find(&actor.children, level, id)))
    }
    loop {
        if let Some(found) = find(&tree().await, level, id) {
            return found;
        }
        tests::again().await;
    }
}

fn kill(actor: &ActorView) {
    ractor::registry::where_is(actor.name.clone()).expect("it runs").kill();
}

fn is_running(actor: &ActorView) -> bool {
    ractor::registry::where_is(actor.name.clone()).is_some()
}

async fn ended(fascicles: &Fascicles, id: &Arc<str>) -> Status {
    let mut follow = fascicles.follow(id);
    while !matches!(follow.next().await.unwrap().decode().unwrap(), Fact::Ended { .. }) {}
    fascicles.job(id).await.unwrap().status
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tests::again().await;
    }
}

#[tokio::test]
async fn the_death_of_a_step_is_a_failed_try_of_this_step_alone() {
    let fascicles = fascicles().await;
    let gate = Gate::closed();
    let id = start(&fascicles, HOUSE, &gate).await;
    until(|| gate.calls.load(Ordering::SeqCst) == 2).await;
    assert_eq!(fascicles.running_steps(&id).iter().map(|step| &**step).collect::<Vec<_>>(), ["a", "b"]);
    let job = actor(async || vec![view(fascicles.supervisor())], "job", &id).await;
    let step = |id: &str| job.children.iter().find(|step| step.id == id).unwrap();
    // The death is a failed try, and there is a second one.
    kill(step("a"));
    until(|| gate.calls.load(Ordering::SeqCst) == 3).await;
    assert!(is_running(step("b")), "the other step goes on");
    gate.through.add_permits(2);
    assert_eq!(ended(&fascicles, &id).await, Status::Completed);
    assert_eq!(gate.calls.load(Ordering::SeqCst), 3, "the step that was not killed ran once");

    let id = start(&fascicles, HOUSE, &gate).await;
    let job = actor(async || vec![view(fascicles.supervisor())], "job", &id).await;
    until(|| gate.calls.load(Ordering::SeqCst) == 5).await;
    kill(job.children.iter().find(|step| step.id == "b").unwrap());
    assert_eq!(ended(&fascicles, &id).await, Status::Failed);
    assert_eq!(fascicles.job(&id).await.unwrap().error.as_deref(), Some("b: it was killed"));
}

#[tokio::test]
async fn the_death_of_a_job_ends_its_steps_and_it_is_resumed() {
    let fascicles = fascicles().await;
    let gate = Gate::closed();
    let (id, other) = (start(&fascicles, HOUSE, &gate).await, start(&fascicles, HOUSE, &gate).await);
    until(|| gate.calls.load(Ordering::SeqCst) == 4).await;
    let tree = async || vec![view(fascicles.supervisor())];
    let (job, untouched) = (actor(tree, "job", &id).await, actor(tree, "job", &other).await);
    assert_eq!((job.children.len(), untouched.children.len()), (2, 2));
    kill(&job);
    until(|| job.children.iter().all(|step| !is_running(step))).await;
    until(|| gate.calls.load(Ordering::SeqCst) == 6).await;
    assert!(untouched.children.iter().chain([&untouched]).all(is_running), "the other job goes on");
    assert_eq!(fascicles.running_steps(&id).len(), 2, "it runs again, from its journal");
    gate.through.add_permits(4);
    assert_eq!((ended(&fascicles, &id).await, ended(&fascicles, &other).await), (Status::Completed, Status::Completed));
    assert_eq!(gate.calls.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_cancelled_job_ends_its_steps_and_no_others() {
    let fascicles = fascicles().await;
    let gate = Gate::closed();
    let (id, other) = (start(&fascicles, HOUSE, &gate).await, start(&fascicles, HOUSE, &gate).await);
    until(|| gate.calls.load(Ordering::SeqCst) == 4).await;
    let tree = async || vec![view(fascicles.supervisor())];
    let (job, untouched) = (actor(tree, "job", &id).await, actor(tree, "job", &other).await);
    let head = fascicles.cancel(&Origin::system("test").principal, &id).await.unwrap();
    assert_eq!(head.status, Status::Cancelled);
    until(|| job.children.iter().chain([&job]).all(|actor| !is_running(actor))).await;
    assert!(untouched.children.iter().chain([&untouched]).all(is_running));
}

async fn tree_of(daemon: &TestDaemon) -> Vec<ActorView> {
    let tree = daemon.operator.get("/v1/system/actors").await.expect(StatusCode::OK);
    serde_json::from_value(tree["actors"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_an_invocation_fails_its_call_alone() {
    // The first two answers come when the test lets them.
    let go_on = Arc::new(Notify::new());
    let script = {
        let go_on = go_on.clone();
        move |request: &neurons::llm::ChatRequest, n: usize| match n {
            0 | 1 => Reply::After(go_on.clone(), Box::new(honest(request, n))),
            _ => honest(request, n),
        }
    };
    let daemon = TestDaemon::start(script).await;
    let neuron = json!({"id": "echo", "kind": "base", "memory": "Answer."});
    daemon.operator.post("/v1/neurons", neuron).await.expect(StatusCode::CREATED);
    let invoke = || {
        let client = daemon.operator.clone();
        tokio::spawn(async move { client.post("/v1/neurons/echo/invoke", json!({"input": "Hello"})).await })
    };
    let (first, second) = (invoke(), invoke());
    let supervisor = async || actor(async || tree_of(&daemon).await, "invocations", "").await;
    while supervisor().await.children.len() < 2 {
        tests::again().await;
    }
    until(|| daemon.model.asked().len() == 2).await;
    let running = supervisor().await.children;
    kill(&running[0]);
    let (ended, goes_on) = match futures::future::select(first, second).await {
        futures::future::Either::Left((ended, other)) => (ended.unwrap(), other),
        futures::future::Either::Right((ended, other)) => (ended.unwrap(), other),
    };
    assert!(ended.status.is_server_error(), "{}", ended.body);
    assert_eq!(supervisor().await.children, [running[1].clone()]);
    invoke().await.unwrap().expect(StatusCode::OK);
    go_on.notify_waiters();
    goes_on.await.unwrap().expect(StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lifeform_that_dies_is_started_again_with_a_bound() {
    let daemon = TestDaemon::start(honest).await;
    let (id, chat) = daemon.lifeform().await;
    let life = format!("/v1/lifeforms/{id}");
    daemon.operator.topic(&chat, "t").await;
    for death in 0..6 {
        let living = actor(async || tree_of(&daemon).await, "lifeform", &id).await;
        kill(&living);
        until(|| !is_running(&living)).await;
        // The first restart comes at once, the next ones after 1, 4, 16 and 64 s.
        loop {
            let again = tree_of(&daemon).await;
            let mut actors = again.iter().flat_map(|level| &level.children);
            if death == 5 || actors.any(|actor| actor.id == id && actor.name != living.name) {
                break;
            }
            daemon.clock.advance_ms(if death > 0 { 1_000 } else { 0 });
            tests::again().await;
        }
        if death == 2 {
            let mut socket = daemon.operator.subscribe(&chat, None).await;
            socket.until(|frame| frame["t"] == "live").await;
            daemon.operator.say(&chat, "t", "Are you there?").await;
            socket.answer().await;
        }
    }
    loop {
        let head = daemon.operator.get(&life).await.expect(StatusCode::OK);
        if head["status"] == "stopped" {
            assert_eq!(
                (&head["guard"]["step"], &head["guard"]["evidence"]),
                (&json!("stop"), &json!({"actor_deaths": 6}))
            );
            break;
        }
        tests::again().await;
    }
    // A person starts it, and it answers.
    daemon.operator.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let mut socket = daemon.operator.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    daemon.operator.say(&chat, "t", "And now?").await;
    socket.answer().await;
}
