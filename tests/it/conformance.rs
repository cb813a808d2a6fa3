//! The conformance cases through every door: the engine as a library, the nexus over its store, HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nexus::kip::{Engine, Request};
use nexus::{ManualClock, Nexus, Origin, Store};
use reqwest::StatusCode;
use serde_json::json;
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

#[tokio::test]
async fn the_nexus_over_its_store_answers_every_case() {
    let nexus = Nexus::new(Store::in_memory(Arc::new(ManualClock::default())).await);
    let cases = AtomicUsize::new(0);
    let passed = conformance::run(
        async || Arc::<str>::from(format!("case-{}", cases.fetch_add(1, Ordering::Relaxed))),
        |id, request| {
            let nexus = nexus.clone();
            async move {
                nexus.execute(&id, serde_json::from_value(request).unwrap(), &Origin::system("test")).await.unwrap()
            }
        },
    )
    .await;
    assert_eq!(passed, 223);
}

#[tokio::test]
async fn a_nexus_that_wakes_before_every_command_answers_every_case() {
    let nexus = Nexus::new(Store::in_memory(Arc::new(ManualClock::default())).await);
    let cases = AtomicUsize::new(0);
    let passed = conformance::run(
        async || Arc::<str>::from(format!("case-{}", cases.fetch_add(1, Ordering::Relaxed))),
        |id, request| {
            let nexus = nexus.clone();
            async move {
                nexus.forget(&id);
                nexus.execute(&id, serde_json::from_value(request).unwrap(), &Origin::system("test")).await.unwrap()
            }
        },
    )
    .await;
    assert_eq!(passed, 223);
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
