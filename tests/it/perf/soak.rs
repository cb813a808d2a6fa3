//! Months of life by stepping the clock: what was told on the first day is still known, and nothing grows that should
//! not. `SOAK_DAYS=30 cargo test --release --test it soak -- --nocapture --test-threads=1` is the long form.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use neurons::llm::scripted::{Reply, Scripted};
use neurons::llm::{ChatMessage, ChatRequest};
use reqwest::StatusCode;
use runtime::{Config, Daemon, Parts};
use serde_json::json;
use store::surreal::Surreal;
use store::{Backend, Clock, ManualClock, Memory};
use tests::{Client, honest, models_of, text_of};

const HOUR_MS: i64 = 3_600_000;
/// Messages of one day.
const A_DAY: usize = 12;
/// The maximum number of batches of statements that a model reads in a night.
const READINGS: usize = 8;

fn days() -> usize {
    std::env::var("SOAK_DAYS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Bytes of all files under a folder.
fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            if entry.path().is_dir() { bytes_of(&entry.path()) } else { entry.metadata().map_or(0, |file| file.len()) }
        })
        .sum()
}

/// MiB resident, and open files.
fn held() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let resident: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (resident / 1024, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// The work of one day: calls of the model, bytes of the largest request, and lines of the account.
#[derive(Debug)]
struct Day {
    calls: usize,
    largest: usize,
    lines: u64,
}

impl Day {
    async fn of(model: &Scripted, client: &Client, life: &str, lines_before: u64) -> (Self, u64) {
        let asked = model.asked();
        let bytes = |request| serde_json::to_string(request).unwrap().len();
        let page = client.get(&format!("{life}/resources?order=desc&limit=1")).await.expect(StatusCode::OK);
        let lines = page["transactions"][0]["seq"].as_u64().unwrap();
        let largest = asked.iter().map(bytes).max().unwrap_or_default();
        (Self { calls: asked.len(), largest, lines: lines - lines_before }, lines)
    }

    /// Checks that a day takes no more than its messages explain, however much was said before it.
    fn is_bounded(&self) {
        let all = self.calls <= 3 * A_DAY + READINGS
            && self.largest <= 16 << 10
            && self.lines <= (10 * A_DAY + 4 * READINGS) as u64;
        assert!(all, "{self:?}");
    }
}

/// What an account holds still, by its statement.
async fn holds(client: &Client, life: &str) -> BTreeSet<String> {
    let (mut held, mut after) = (BTreeSet::new(), 0);
    loop {
        let page = client.get(&format!("{life}/resources?after={after}&limit=200")).await.expect(StatusCode::OK);
        let lines = page["transactions"].as_array().unwrap();
        let Some(last) = lines.last() else { return held };
        after = last["seq"].as_u64().unwrap();
        for (done, of) in lines.iter().flat_map(|line| line["data"]["op"].as_object().unwrap()) {
            let id = of["id"].as_str().unwrap_or_default();
            match done.as_str() {
                "hold" => drop(held.insert(id.to_owned())),
                "settle" | "return" => drop(held.remove(id)),
                _ => {}
            }
        }
    }
}

async fn live_for(days: usize, name: &str, backend: impl Fn(&Path) -> Arc<dyn Backend>, kept_on_disk: bool) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let flags = [("data", folder.path().display().to_string()), ("listen", "127.0.0.1:0".into())];
    let mut config = Config::load(None, &flags).unwrap();
    // The log of a canvas is cut within the time of this test.
    (config.canvas.keep_ops, config.canvas.keep_days) = (200, 2);
    // So is what was thought.
    (config.keep.jobs_days, config.keep.invocations_days) = (7, 7);
    // Hours pass here while a job does what takes it milliseconds.
    config.guard.stuck_s = 100 * 24 * 3_600;
    (config.canvas.ops_per_s, config.canvas.bytes_per_s) = (1e9, 1e12);
    let clock = ManualClock::default();
    let model = Scripted::new(|request: &ChatRequest, n| {
        let told =
            |message: &ChatMessage| message.content.as_ref().is_some_and(|text| text.contains("You compress events"));
        match request.messages.iter().any(told) {
            true => Reply::Text(json!({"events": [{"role": "user", "content": "doors were spoken of"}]}).to_string()),
            false => honest(request, n),
        }
    });
    let parts = Parts {
        backend: backend(&store),
        clock: Arc::new(clock.clone()) as Arc<dyn Clock>,
        models: models_of(&model.provider("scripted").unwrap()),
        first: None,
        schemas: knowledge::unit::versions::Schemas::default(),
    };
    let daemon = Daemon::start(&config, parts).await.unwrap();
    let client = Client::new(format!("http://{}", daemon.address), daemon.token.clone());
    let release =
        json!({"per_hour": {"tokens": 20_000, "micro_usd": 0}, "ceiling": {"tokens": 400_000, "micro_usd": 0}});
    let definition = json!({
        "name": "Iris",
        "metabolism": {"release": release},
        "initiative": {"schedules": [{"what": "Look around", "cron": "0 8 * * *"}]},
    });
    let made = client.post("/v1/lifeforms", json!({"definition": definition})).await.expect(StatusCode::CREATED);
    let life = format!("/v1/lifeforms/{}", made["id"].as_str().unwrap());
    client.post(&format!("{life}/start"), json!({})).await.expect(StatusCode::OK);
    let chat = format!("{life}/canvases/canvas_chat_main");
    client.topic(&chat, "talk").await;
    let mut socket = client.subscribe(&chat, None).await;
    socket.until(|frame| frame["t"] == "live").await;
    let mut events = 0;
    let mut first = None;
    let mut lines = 0;
    for day in 0..days {
        for n in 0..A_DAY {
            clock.advance_ms(HOUR_MS);
            // The facts of the first day are told once; what is said later repeats itself as people do.
            let said = match day {
                0 => format!("The code of door {n} is {}.", 4_000 + n * 37),
                _ => format!("What is the code of door {n}?"),
            };
            client.say(&chat, "talk", &said).await;
            let answer = socket.until(|frame| frame["kind"] == "message.finish").await;
            if day > 0 {
                let answer = text_of(answer.last().unwrap());
                assert!(answer.contains(&format!("{}", 4_000 + n * 37)), "day {day}: {said} {answer}");
            }
            events += 1;
        }
        // The night: it sleeps, and wakes for what is on its agenda.
        while daemon.app.lifeforms().awake() > 0 {
            clock.advance_ms(60_000);
            // Its actor has heard of the minute before.
            client.get(&life).await.expect(StatusCode::OK);
        }
        clock.advance_ms((24 - A_DAY as i64) * HOUR_MS);
        let (today, now) = Day::of(&model, &client, &life, lines).await;
        lines = now;
        println!("{name}, day {}: {today:?}", day + 1);
        today.is_bounded();
        // What the model is asked grows with the test, not with the daemon.
        model.forget();
        if kept_on_disk {
            daemon.app.store().checkpoint().await.unwrap();
        }
        let (resident, files) = held();
        let bytes = bytes_of(&store);
        first.get_or_insert((resident, files, bytes, events));
        if day + 1 == days || day % 5 == 0 {
            println!(
                "{name}, day {}: {resident} MiB resident, {files} open files, {bytes} bytes, {events} messages",
                day + 1
            );
        }
    }
    // What came due in the last night comes to its end.
    while daemon.app.lifeforms().awake() > 0 {
        clock.advance_ms(60_000);
        client.get(&life).await.expect(StatusCode::OK);
    }
    let canvas = client.get(&chat).await.expect(StatusCode::OK);
    let (rev, floor) = (canvas["rev"].as_u64().unwrap(), canvas["log"]["from_rev"].as_u64().unwrap());
    println!("{name}: revision {rev}, its log begins at {floor}");
    // The last thing it learned gives back what was set aside for it.
    while !holds(&client, &life).await.is_empty() {
        tests::again().await;
    }
    let account = client.get(&format!("{life}/resources")).await.expect(StatusCode::OK);
    assert!(account["balance"]["tokens"].as_i64() > Some(0) && account["held"]["tokens"] == 0, "{account}");
    if days >= 20 {
        let (resident, files, ..) = first.unwrap();
        let (now, open) = held();
        assert!(open <= files + 16, "{files} files were open on the first day, {open} are now");
        assert!(now <= resident + 256, "{resident} MiB on the first day, {now} now");
        // It is cut a thousand at a time, when rows are written, which is every thousand.
        assert!(rev - floor < 3_000, "the log is cut: {rev} {floor}");
    }
    daemon.stop().await.unwrap();
}

#[tokio::test]
async fn it_lives_for_days_in_memory_and_forgets_nothing() {
    let disk = Arc::new(Memory::default());
    Box::pin(live_for(days(), "memory", |_| disk.clone(), false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_lives_for_days_on_disk_and_forgets_nothing() {
    let on_disk = |folder: &Path| Arc::new(Surreal::embedded(folder).unwrap()) as Arc<dyn Backend>;
    Box::pin(live_for(days(), "surrealkv", on_disk, true)).await;
}
