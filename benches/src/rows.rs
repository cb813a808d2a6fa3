//! The rows.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use store::surreal::Surreal;
use store::{Batch, Origin, Store, SystemClock};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use crate::daemon::{Process, TOKEN, port};
use crate::load::{Measured, percentile, post};

/// Measures and prints everything.
pub(crate) async fn all(binary: &str) -> anyhow::Result<()> {
    println!("| row | rate/s | p50 ms | p99 ms | cpu ms each | ratio |\n|---|---|---|---|---|---|");
    invoke(binary).await;
    commits().await;
    canvas(binary, &[0]).await;
    println!("\n| row | measured |\n|---|---|");
    idle(binary).await;
    cold(binary).await;
    Ok(())
}

/// Measures and prints invocations and canvas writes while sockets watch the events of the daemon.
pub(crate) async fn watchers(binary: &str) {
    println!("| row | rate/s | p50 ms | p99 ms | cpu ms each | ratio |\n|---|---|---|---|---|---|");
    let (_model, daemon, _folder) = invoked(binary).await;
    let body = json!({"input": "hello"});
    post(&daemon, "/v1/neurons/n1/invoke", &body, 64).await;
    let mut without = 0.0;
    for watchers in WATCHERS {
        let sockets = watch(&daemon, watchers).await;
        let ours = post(&daemon, "/v1/neurons/n1/invoke", &body, 64).await;
        without = if watchers == 0 { ours.rate } else { without };
        let ratio = format!("{:.2} × without", ours.rate / without);
        row(&format!("invoke, 64 clients, {watchers} watchers"), &ours, &ratio);
        sockets.into_iter().for_each(|socket| socket.abort());
    }
    canvas(binary, &WATCHERS).await;
}

/// The numbers of watchers, the first twice, so that the drift of the machine is seen.
const WATCHERS: [usize; 4] = [0, 1, 50, 0];

/// Opens sockets that read the events of a daemon.
async fn watch(daemon: &Process, count: usize) -> Vec<tokio::task::JoinHandle<()>> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        let url = format!("{}/v1/events", daemon.base.replacen("http", "ws", 1));
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        socket.send(Message::text(json!({"t": "hello", "v": 1}).to_string())).await.unwrap();
        socket.next().await.unwrap().unwrap();
        sockets.push(tokio::spawn(async move { while socket.next().await.is_some_and(|frame| frame.is_ok()) {} }));
    }
    sockets
}

fn row(name: &str, measured: &Measured, ratio: &str) {
    let Measured { rate, p50_ms, p99_ms, cpu_ms } = measured;
    println!("| {name} | {rate:.0} | {p50_ms:.2} | {p99_ms:.2} | {cpu_ms:.3} | {ratio} |");
}

/// Starts a mock model, and a daemon with a neuron that asks it.
async fn invoked(binary: &str) -> (Process, Process, tempfile::TempDir) {
    let mock = Process::floor(&["mock"]);
    let model = format!("{}/v1", mock.base);
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("LIFEFORMD_MODELS__EMBEDDED", "none"),
        ("LIFEFORMD_PROVIDERS__MOCK__BASE_URL", model.as_str()),
        ("LIFEFORMD_PROVIDERS__MOCK__CONCURRENCY", "256"),
        ("LIFEFORMD_TIERS__STANDARD__PROVIDER", "mock"),
        ("LIFEFORMD_TIERS__STANDARD__MODEL", "mock"),
    ];
    let daemon = Process::daemon(binary, folder.path(), port(), &settings).await;
    daemon.post("/v1/neurons", json!({"id": "n1", "memory": "You are a neuron."})).await;
    (mock, daemon, folder)
}

/// Invoke, durable and paid, against a pass-through that is neither.
async fn invoke(binary: &str) {
    let (mock, daemon, _folder) = invoked(binary).await;
    let floor = Process::floor(&["passthrough", &format!("{}/v1", mock.base)]);
    let body = json!({"input": "hello"});
    for clients in [1, 64] {
        let bare = post(&floor, "/v1/neurons/n1/invoke", &body, clients).await;
        row(&format!("pass-through, {clients} clients"), &bare, "1");
        let ours = post(&daemon, "/v1/neurons/n1/invoke", &body, clients).await;
        row(&format!("invoke, {clients} clients"), &ours, &format!("{:.2} × pass-through", ours.rate / bare.rate));
    }
}

/// Commits to the embedded database against a file that is appended to and synced.
async fn commits() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::fs::File::create(folder.path().join("raw")).unwrap();
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_secs(3) {
        let at = Instant::now();
        file.write_all(&[7; 1024]).unwrap();
        file.sync_data().unwrap();
        times.push(at.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let raw = times.len() as f64 / 3.0;
    row(
        "raw 1 KiB append + fdatasync",
        &Measured { rate: raw, p50_ms: percentile(&times, 0.5), p99_ms: percentile(&times, 0.99), cpu_ms: 0.0 },
        "1",
    );
    let store = Store::open(Arc::new(Surreal::embedded(folder.path().join("store")).unwrap()), Arc::new(SystemClock))
        .await
        .unwrap();
    let mut one = 0.0;
    for writers in [1_usize, 64] {
        let end = Instant::now() + Duration::from_secs(4);
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    let (origin, filler, mut times) = (Origin::system("bench"), "x".repeat(1000), Vec::new());
                    while Instant::now() < end {
                        let at = Instant::now();
                        store
                            .commit(Batch::new(&origin).append(format!("bench:{writer}"), "row", &filler))
                            .await
                            .unwrap();
                        times.push(at.elapsed().as_secs_f64() * 1e3);
                    }
                    times
                })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await.unwrap());
        }
        times.sort_by(f64::total_cmp);
        let rate = times.len() as f64 / 4.0;
        let ratio = if writers == 1 {
            format!("{:.2} × raw", rate / raw)
        } else {
            format!("{:.1} × one writer, {:.1} × raw", rate / one, rate / raw)
        };
        one = if writers == 1 { rate } else { one };
        row(
            &format!("commit of 1 KB, {writers} writers"),
            &Measured { rate, p50_ms: percentile(&times, 0.5), p99_ms: percentile(&times, 0.99), cpu_ms: 0.0 },
            &ratio,
        );
    }
    store.close().await.unwrap();
}

/// From the request that writes a message to the frame that shows it to a subscriber.
async fn canvas(binary: &str, watchers: &[usize]) {
    let folder = tempfile::tempdir().unwrap();
    // The pace of one actor is not what is measured.
    let settings = [
        ("LIFEFORMD_MODELS__EMBEDDED", "none"),
        ("LIFEFORMD_CANVAS__OPS_PER_S", "100000"),
        ("LIFEFORMD_CANVAS__BYTES_PER_S", "100000000"),
    ];
    let daemon = Process::daemon(binary, folder.path(), port(), &settings).await;
    let id = daemon.get("/v1/lifeforms").await["lifeforms"][0]["id"].as_str().unwrap().to_owned();
    daemon.post(&format!("/v1/lifeforms/{id}/stop"), json!({})).await;
    let base = format!("/v1/lifeforms/{id}/canvases/canvas_chat_main");
    daemon.post(&format!("{base}/topics"), json!({"id": "t", "title": "t"})).await;
    let (mut socket, _) =
        tokio_tungstenite::connect_async(format!("{}{base}/subscribe", daemon.base.replacen("http", "ws", 1)))
            .await
            .unwrap();
    socket.send(Message::text(json!({"t": "hello", "token": TOKEN}).to_string())).await.unwrap();
    let http = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
    let mut next = async |kind: &str| loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap() {
            let frame: Value = serde_json::from_str(&text).unwrap();
            if frame["t"] == kind {
                return;
            }
        }
    };
    next("live").await;
    let mut without = 0.0;
    for &count in watchers {
        let sockets = watch(&daemon, count).await;
        let (begin, cpu, mut times) = (Instant::now(), daemon.cpu_s(), Vec::new());
        for n in 0..1000 {
            let at = Instant::now();
            let say = http
                .post(format!("{}{base}/topics/t/messages", daemon.base))
                .bearer_auth(TOKEN)
                .json(&json!({"content": format!("message {n}")}))
                .send();
            let (answer, ()) = tokio::join!(say, next("delta"));
            times.push(at.elapsed().as_secs_f64() * 1e3);
            assert!(answer.unwrap().status().is_success());
        }
        let rate = 1000.0 / begin.elapsed().as_secs_f64();
        times.sort_by(f64::total_cmp);
        let measured = Measured {
            rate,
            p50_ms: percentile(&times, 0.5),
            p99_ms: percentile(&times, 0.99),
            cpu_ms: daemon.cpu_s() - cpu,
        };
        let ratio = if without == 0.0 { "–".to_owned() } else { format!("{:.2} × without", rate / without) };
        without = if count == 0 { rate } else { without };
        let beside = if watchers.len() > 1 { format!(", {count} watchers") } else { String::new() };
        row(&format!("canvas write → received and acknowledged, one at a time{beside}"), &measured, &ratio);
        sockets.into_iter().for_each(|socket| socket.abort());
    }
}

/// A daemon with one living lifeform and nothing to do.
async fn idle(binary: &str) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Process::daemon(binary, folder.path(), port(), &[("LIFEFORMD_MODELS__EMBEDDED", "none")]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let cpu = daemon.cpu_s();
    tokio::time::sleep(Duration::from_secs(40)).await;
    println!(
        "| idle for 40 s with one lifeform, no model | {:.2} % of a core, {:.0} MiB resident |",
        (daemon.cpu_s() - cpu) / 40.0 * 100.0,
        daemon.rss_mib()
    );
}

/// From the start of the process on an empty folder, weights at hand, to the first answer of the real model.
async fn cold(binary: &str) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Process::daemon(binary, folder.path(), port(), &[]).await;
    let up = daemon.started.elapsed();
    let id = daemon.get("/v1/lifeforms").await["lifeforms"][0]["id"].as_str().unwrap().to_owned();
    let base = format!("/v1/lifeforms/{id}/canvases/canvas_chat_main");
    daemon.post(&format!("{base}/topics"), json!({"id": "t", "title": "t"})).await;
    daemon.post(&format!("{base}/topics/t/messages"), json!({"content": "Hello, who are you?"})).await;
    loop {
        let messages = daemon.get(&format!("{base}/topics/t/messages")).await;
        let answered = messages["messages"]
            .as_array()
            .unwrap()
            .iter()
            .any(|message| message["sender"] != "user:operator" && message["status"] == "final");
        if answered {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!(
        "| cold start: serving, then first whole answer of the embedded model | {:.2} s, {:.2} s |",
        up.as_secs_f64(),
        daemon.started.elapsed().as_secs_f64()
    );
    println!("| resident with the embedded model | {:.0} MiB |", daemon.rss_mib());
}
