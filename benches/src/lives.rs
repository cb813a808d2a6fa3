//! Many lifeforms in one daemon: beating with nothing due, asleep, and all talking at once.
//! `cargo run --release -p benches -- LIFEFORMD lives [BEATING] [ASLEEP] [TALKING]`; a row of none is left out.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::daemon::{Process, TOKEN, port};
use crate::load::percentile;

/// Traces that are asked for.
const WALKS: usize = 100;
/// Before all are asked, so that their births are over, and what they thought about afterwards.
const REST: Duration = Duration::from_secs(10);
/// Requests on their way at once.
const AT_ONCE: usize = 64;

/// Measures and prints everything.
pub(crate) async fn all(binary: &str, beating: usize, asleep: usize, talking: usize) {
    println!("| row | measured |\n|---|---|");
    if beating > 0 {
        beat(binary, beating).await;
    }
    if asleep > 0 {
        sleep(binary, asleep).await;
    }
    if talking > 0 {
        talk(binary, talking).await;
    }
}

async fn quiet_daemon(binary: &str, data: &Path) -> Process {
    let settings = [("LIFEFORMD_MODELS__EMBEDDED", "none"), ("LIFEFORMD_MODELS__EMBEDDER", "none")];
    Process::daemon(binary, data, port(), &settings).await
}

/// Makes and starts so many lifeforms; answers their ids.
async fn bear(daemon: &Process, count: usize, definition: &Value) -> Vec<String> {
    let http = reqwest::Client::builder().tcp_nodelay(true).pool_max_idle_per_host(AT_ONCE).build().unwrap();
    let born = (0..count).map(|_| {
        let (http, base, body) = (http.clone(), daemon.base.clone(), json!({"definition": definition}));
        async move {
            let made = http.post(format!("{base}/v1/lifeforms")).bearer_auth(TOKEN).json(&body).send().await.unwrap();
            let made: Value = made.error_for_status().unwrap().json().await.unwrap();
            let id = made["id"].as_str().unwrap().to_owned();
            let started = http.post(format!("{base}/v1/lifeforms/{id}/start")).bearer_auth(TOKEN).json(&json!({}));
            started.send().await.unwrap().error_for_status().unwrap();
            id
        }
    });
    futures::stream::iter(born).buffer_unordered(AT_ONCE).collect().await
}

fn definition(beat_ms: u64, sleep_after_s: u64) -> Value {
    json!({"name": "One", "metabolism": {"beat_ms": beat_ms}, "initiative": {"sleep_after_s": sleep_after_s}})
}

/// A beat of thirty seconds, nothing due, nobody asleep.
async fn beat(binary: &str, count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = quiet_daemon(binary, folder.path()).await;
    let (empty, begun) = (daemon.rss_mib(), Instant::now());
    bear(&daemon, count, &definition(30_000, 0)).await;
    let born = begun.elapsed();
    // What was written is projected, and every heart has beaten once.
    tokio::time::sleep(Duration::from_secs(40)).await;
    let (cpu, begun) = (daemon.cpu_s(), Instant::now());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let share = (daemon.cpu_s() - cpu) / begun.elapsed().as_secs_f64() * 100.0;
    let each = (daemon.rss_mib() - empty) * 1024.0 / count as f64;
    println!(
        "| {count} lifeforms with a beat of 30 s and nothing due | {share:.2} % of a core, {each:.1} KiB each resident; born in {:.0} s |",
        born.as_secs_f64()
    );
}

/// Asleep, and a daemon that starts with them.
async fn sleep(binary: &str, count: usize) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = quiet_daemon(binary, folder.path()).await;
    let begun = Instant::now();
    bear(&daemon, count, &definition(1_000, 1)).await;
    let born = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let after_birth = daemon.rss_mib();
    drop(daemon);
    let few = tempfile::tempdir().unwrap();
    let empty = quiet_daemon(binary, few.path()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (bare, bare_start) = (empty.rss_mib(), empty.started.elapsed() - Duration::from_secs(5));
    drop(empty);
    // The first start after a kill reads back what was not projected; the second is that of a daemon that was stopped
    // well.
    for which in ["after a kill", "again"] {
        let daemon = quiet_daemon(binary, folder.path()).await;
        let started = daemon.started.elapsed();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let each = (daemon.rss_mib() - bare) * 1024.0 / count as f64;
        println!(
            "| {count} lifeforms asleep, started {which} | {:.2} s to start (an empty one {:.2} s), {each:.2} KiB each resident |",
            started.as_secs_f64(),
            bare_start.as_secs_f64()
        );
        daemon.stop();
    }
    println!(
        "| the same when they were born (in {:.0} s) | {:.0} MiB resident in all |",
        born.as_secs_f64(),
        after_birth
    );
}

/// All asked, at once and one after the other; until the first text of an answer is seen by a subscriber of the canvas.
async fn talk(binary: &str, count: usize) {
    let mock = Process::floor(&["mock"]);
    let model = format!("{}/v1", mock.base);
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        ("LIFEFORMD_MODELS__EMBEDDED", "none"),
        ("LIFEFORMD_MODELS__EMBEDDER", "none"),
        ("LIFEFORMD_PROVIDERS__MOCK__BASE_URL", model.as_str()),
        ("LIFEFORMD_PROVIDERS__MOCK__CONCURRENCY", "256"),
        ("LIFEFORMD_TIERS__STANDARD__PROVIDER", "mock"),
        ("LIFEFORMD_TIERS__STANDARD__MODEL", "mock"),
    ];
    let daemon = Process::daemon(binary, folder.path(), port(), &settings).await;
    let lives = bear(&daemon, count, &definition(30_000, 0)).await;
    let (mut listeners, ids) = (Vec::new(), lives.clone());
    for id in lives {
        let chat = format!("/v1/lifeforms/{id}/canvases/canvas_chat_main");
        daemon.post(&format!("{chat}/topics"), json!({"id": "t", "title": "t"})).await;
        let url = format!("{}{chat}/subscribe", daemon.base.replace("http", "ws"));
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        socket.send(Message::text(json!({"t": "hello", "v": 1, "want": ["stream"]}).to_string())).await.unwrap();
        while let Some(Ok(frame)) = socket.next().await {
            if frame.to_text().unwrap_or_default().contains("\"t\":\"live\"") {
                break;
            }
        }
        listeners.push((chat, socket));
    }
    tokio::time::sleep(REST).await;
    let told = "each by a POST on a connection of its own";
    let listeners = ask(&daemon, listeners, Ask { told, by_rest: true, within: Duration::ZERO }).await;
    tokio::time::sleep(REST).await;
    let listeners =
        ask(&daemon, listeners, Ask { told: "each on its socket", by_rest: false, within: Duration::ZERO }).await;
    tokio::time::sleep(REST).await;
    ask(&daemon, listeners, Ask { told: "each on its socket", by_rest: false, within: Duration::from_secs(10) }).await;
    trace(&daemon, &ids, folder.path()).await;
}

/// A canvas, and a socket on it.
type Listener = (String, WebSocketStream<MaybeTlsStream<TcpStream>>);

/// How all of them are asked.
struct Ask {
    told: &'static str,
    by_rest: bool,
    within: Duration,
}

/// Asks everybody, evenly spread over a time, and prints how long their answers took; gives the sockets back.
async fn ask(daemon: &Process, listeners: Vec<Listener>, how: Ask) -> Vec<Listener> {
    let Ask { told, by_rest, within } = how;
    let count = listeners.len();
    let http = reqwest::Client::builder().tcp_nodelay(true).pool_max_idle_per_host(count).build().unwrap();
    let (begun, cpu) = (Instant::now(), daemon.cpu_s());
    let asked = listeners.into_iter().enumerate().map(|(n, (chat, mut socket))| {
        let said = http.post(format!("{}{chat}/topics/t/messages", daemon.base)).bearer_auth(TOKEN);
        let said = said.json(&json!({"content": "Hello there?"}));
        let id = format!("m{}", within.as_secs());
        let op = json!({"kind": "message.append", "topic": "t", "id": id, "content": "Hello there?"});
        let op = json!({"t": "op", "cid": id, "op": op}).to_string();
        tokio::spawn(async move {
            tokio::time::sleep(within.mul_f64(n as f64 / count as f64)).await;
            let at = Instant::now();
            let said = if by_rest {
                Some(tokio::spawn(said.send()))
            } else {
                socket.send(Message::text(op)).await.unwrap();
                None
            };
            let (mut first, mut last) = (None, None);
            while last.is_none() {
                let Some(Ok(frame)) = socket.next().await else { break };
                let text = frame.to_text().unwrap_or_default();
                assert!(!text.contains("\"t\":\"reject\""), "{text}");
                if text.contains("\"t\":\"stream\"") || text.contains("message.finish") {
                    first = first.or(Some(at.elapsed()));
                }
                if text.contains("message.finish") {
                    last = Some(at.elapsed());
                }
            }
            if let Some(said) = said {
                said.await.unwrap().unwrap().error_for_status().unwrap();
            }
            (first.unwrap().as_secs_f64() * 1e3, last.unwrap().as_secs_f64() * 1e3, (chat, socket))
        })
    });
    let answered: Vec<_> = futures::future::join_all(asked).await.into_iter().filter_map(Result::ok).collect();
    let (all, cpu) = (begun.elapsed().as_secs_f64(), daemon.cpu_s() - cpu);
    let mut firsts: Vec<f64> = answered.iter().map(|(first, ..)| *first).collect();
    let mut lasts: Vec<f64> = answered.iter().map(|(_, last, _)| *last).collect();
    firsts.sort_by(f64::total_cmp);
    lasts.sort_by(f64::total_cmp);
    println!(
        "| {count} asked within {} s, {told} | {} answered in {all:.2} s; first text p50 {:.0} ms, p99 {:.0} ms; whole p99 {:.0} ms; {:.1} ms of a core each |",
        within.as_secs(),
        answered.len(),
        percentile(&firsts, 0.5),
        percentile(&firsts, 0.99),
        percentile(&lasts, 0.99),
        cpu * 1e3 / count as f64,
    );
    answered.into_iter().map(|(.., listener)| listener).collect()
}

/// What a turn leaves behind for the trace, and how long it takes to ask for one.
async fn trace(daemon: &Process, ids: &[String], data: &Path) {
    let (mut walks, mut entries) = (Vec::new(), 0);
    for id in ids.iter().take(WALKS) {
        let begun = Instant::now();
        // The message: the first op opened the topic.
        let walk = daemon.get(&format!("/v1/lifeforms/{id}/trace?from=canvas:{id}/canvas_chat_main@2")).await;
        walks.push(begun.elapsed().as_secs_f64() * 1e3);
        entries += walk["forward"].as_array().map_or(0, Vec::len);
    }
    walks.sort_by(f64::total_cmp);
    let kib = folder_bytes(data) as f64 / 1024.0 / ids.len() as f64;
    println!(
        "| the trace of a turn | {:.0} entries forward from the message, walked in p50 {:.1} ms, p99 {:.1} ms; {kib:.0} KiB on disk a lifeform with one turn |",
        entries as f64 / walks.len() as f64,
        percentile(&walks, 0.5),
        percentile(&walks, 0.99)
    );
}

/// Bytes of all files below a folder.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
