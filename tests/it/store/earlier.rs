//! A data folder that an earlier build wrote, before segments of the log had numbers, opens with everything in it.

use std::process::Command;
use std::sync::Arc;

use neurons::llm::scripted::Scripted;
use reqwest::StatusCode;

use runtime::{Config, Daemon, Parts};
use store::SystemClock;
use store::surreal::Surreal;
use tests::{Client, honest, models_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_of_an_earlier_build_opens_with_everything() {
    let folder = tempfile::tempdir().unwrap();
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/data/folder-0.1.0.tar.gz");
    let unpacked = Command::new("tar").args(["-xzf", archive, "-C"]).arg(folder.path()).status().unwrap();
    assert!(unpacked.success());
    let data = folder.path().join("folder").display().to_string();
    let config = Config::load(None, &[("data", data), ("listen", "127.0.0.1:0".into())]).unwrap();
    let provider = Scripted::new(honest).provider("scripted").unwrap();
    let parts = Parts {
        backend: Arc::new(Surreal::embedded(config.store()).unwrap()),
        clock: Arc::new(SystemClock),
        models: models_of(&provider),
        first: None,
        schemas: Default::default(),
    };
    let daemon = Daemon::start(&config, parts).await.unwrap();
    let op = Client::new(format!("http://{}", daemon.address), daemon.token.clone());
    let lifeforms = op.get("/v1/lifeforms").await.expect(StatusCode::OK);
    let iris = &lifeforms["lifeforms"][0];
    assert_eq!((&iris["name"], &iris["nutrients"]["balance"]["tokens"]), (&"Iris".into(), &50_200_280.into()));
    let chat = format!("/v1/lifeforms/{}/canvases/canvas_chat_main", iris["id"].as_str().unwrap());
    for topic in 0..3 {
        let found = op.get(&format!("{chat}/topics/a{topic}/messages")).await.expect(StatusCode::OK);
        let messages = found["messages"].as_array().unwrap();
        for n in 0..40 {
            let text = format!("m a {topic} {n} ");
            let is_there = |message: &serde_json::Value| message["content"].as_str().unwrap().starts_with(&text);
            assert_eq!(messages.iter().filter(|message| is_there(message)).count(), 1, "{text}");
        }
    }
    for n in 0..40 {
        let record = op.get(&format!("/api/knowledge/k-a-{n}")).await.expect(StatusCode::OK);
        assert_eq!(record["content"], format!("content of {n} a"));
        let secret = op.get(&format!("/api/resource/res-a-{n}?reveal=1&why=test")).await.expect(StatusCode::OK);
        assert_eq!(secret["secure_body"], format!("sec-a-{n}-ret"));
        let neuron = op.get(&format!("/v1/neurons/n-a-{n}")).await.expect(StatusCode::OK);
        assert_eq!(neuron["memory"], format!("mem {n}"));
    }
}
