//! The conformance cases through every door: the engine as a library, the nexus over its store, HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nexus::kip::{Engine, Request};
use nexus::{Nexus, SpillConfig};
use reqwest::StatusCode;
use serde_json::json;
use store::{ManualClock, Origin, Store};
use tests::{TestDaemon, conformance, honest};

#[tokio::test]
async fn the_library_answers_every_case() {
    let born = Engine::born(|| 0);
    let passed = conformance::run(
        async || Arc::new(Mutex::new(born.clone())),
        |engine, request| async move {
            engine.lock().unwrap().execute(&serde_json::from_value::<Request>(request).unwrap())
        },
    )
    .await;
    assert_eq!(passed, 223);
}

/// Runs the cases on a nexus; `wakes` lets it go from memory before every command.
async fn run_on(nexus: Nexus, wakes: bool) -> usize {
    let cases = AtomicUsize::new(0);
    conformance::run(
        async || Arc::<str>::from(format!("case-{}", cases.fetch_add(1, Ordering::Relaxed))),
        |id, request| {
            let nexus = nexus.clone();
            async move {
                if wakes {
                    nexus.forget(&id);
                }
                nexus.execute(&id, serde_json::from_value(request).unwrap(), &Origin::system("test")).await.unwrap()
            }
        },
    )
    .await
}

async fn nexus() -> Nexus {
    Nexus::new(Store::in_memory(Arc::new(ManualClock::default())).await)
}

#[tokio::test]
async fn the_nexus_over_its_store_answers_every_case() {
    assert_eq!(run_on(nexus().await, false).await, 223);
}

#[tokio::test]
async fn a_nexus_that_wakes_before_every_command_answers_every_case() {
    assert_eq!(run_on(nexus().await, true).await, 223);
}

/// With every write filed at once all is read from disk; with a few unfiled, from disk and from memory.
#[tokio::test]
async fn a_nexus_over_its_memory_budget_answers_every_case() {
    for (unfiled, wakes) in [(1, false), (7, false), (1, true), (1_000, true)] {
        let folder = tempfile::tempdir().unwrap();
        let shelves = SpillConfig { unfiled, ..SpillConfig::new(folder.path(), 0) };
        let passed = run_on(nexus().await.with_shelves(shelves), wakes).await;
        assert_eq!(passed, 223, "{unfiled} unfiled, woken before every command: {wakes}");
        assert!(folder.path().join("case-222.redb").exists());
    }
}

#[tokio::test]
async fn http_answers_every_case() {
    let test = TestDaemon::start(honest).await;
    let passed = conformance::run(
        async || {
            let made =
                test.operator.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
            Arc::<str>::from(made["id"].as_str().unwrap())
        },
        |id, request| {
            let operator = test.operator.clone();
            async move { operator.post(&format!("/v1/lifeforms/{id}/kip"), request).await.expect(StatusCode::OK) }
        },
    )
    .await;
    assert_eq!(passed, 223);
}
