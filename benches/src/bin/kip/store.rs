//! The nexus over its database: loading capsule after capsule, each durable before the next; memory; waking;
//! reopening after a kill.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nexus::{Nexus, Request, SpillConfig};
use serde_json::Value;
use store::surreal::Surreal;
use store::{Batch, Origin, Store, SystemClock};

use super::generator::{all, queries};
use super::{percentile, resident, round, row};

async fn open(folder: &std::path::Path) -> anyhow::Result<Store> {
    Ok(Store::open(Arc::new(Surreal::embedded(folder)?), Arc::new(SystemClock)).await?)
}

async fn must(nexus: &Nexus, text: String, origin: &Origin) -> anyhow::Result<Value> {
    let answer = nexus.execute(&"bench".into(), Request::new(text), origin).await?;
    if answer.get("error").is_some() {
        bail!("{answer}");
    }
    Ok(answer)
}

/// Median time in ms of one flush of 8 KiB, through the same committer.
async fn flush(store: &Store, origin: &Origin) -> anyhow::Result<f64> {
    let body = "x".repeat(8 << 10);
    let mut times = Vec::new();
    for _ in 0..200 {
        let began = Instant::now();
        store.commit(Batch::new(origin).append("flush", "bench", &body)).await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(percentile(&mut times, 0.5))
}

pub(crate) async fn run(n: u64) -> anyhow::Result<Vec<Value>> {
    let (folder, origin) = (tempfile::tempdir()?, Origin::system("bench"));
    let mut rows = Vec::new();
    let store = open(folder.path()).await?;
    let flush_ms = flush(&store, &origin).await?;
    rows.push(row("flush of 8 KiB, fenced and synced, median", round(flush_ms), "ms", ""));
    let nexus = Nexus::new(store.clone());
    let capsules: Vec<String> = all(n).collect();
    let (before, began) = (resident(), Instant::now());
    let tenth = capsules.len() / 10;
    let mut marks = vec![Instant::now()];
    for (at, text) in capsules.into_iter().enumerate() {
        must(&nexus, text, &origin).await?;
        if (at + 1) % tenth.max(1) == 0 {
            marks.push(Instant::now());
        }
    }
    let rate = n as f64 / began.elapsed().as_secs_f64();
    let share = rate / (20.0 * 1000.0 / flush_ms);
    rows.push(row(
        format!("durable load of {n} items, one capsule of 20 after another"),
        rate.round(),
        "concepts/s",
        format!("{} of 20 × the flush rate (goal 0.6)", round(share)),
    ));
    let tenths: Vec<f64> =
        marks.windows(2).map(|pair| (tenth * 20) as f64 / (pair[1] - pair[0]).as_secs_f64()).collect();
    if let (Some(second), Some(last)) = (tenths.get(1), tenths.last()) {
        rows.push(row("rate of the last tenth against the second", round(last / second), "×", "goal 1"));
    }
    rows.push(row(
        "resident after the load, database included",
        round((resident() - before) as f64 / (1 << 20) as f64),
        "MiB",
        "",
    ));
    store.close().await?;
    drop((nexus, store));

    let began = Instant::now();
    let store = open(folder.path()).await?;
    rows.push(row("reopening after a clean close", round(began.elapsed().as_secs_f64()), "s", ""));
    let began = Instant::now();
    let (mut from, mut read) = (Some(0), 0);
    while let Some(page) = from {
        let (some, next) = store.elements("bench", page, 256).await?;
        (from, read) = (next, read + some.len());
    }
    rows.push(row(format!("reading its {read} elements, packed"), round(began.elapsed().as_secs_f64()), "s", ""));
    let nexus = Nexus::new(store.clone());
    let began = Instant::now();
    must(&nexus, (queries(n)[0].text)(1), &origin).await?;
    rows.push(row(
        format!("waking {n} items with their links, first point query"),
        round(began.elapsed().as_secs_f64()),
        "s",
        "goal 5 at 1,000,000",
    ));
    let began_search = Instant::now();
    must(&nexus, "SEARCH CONCEPT \"common\" LIMIT 10".into(), &origin).await?;
    rows.push(row(
        "and SEARCH ready",
        round((began_search.elapsed() + (began_search - began)).as_secs_f64()),
        "s",
        "goal 15 at 1,000,000",
    ));
    store.close().await?;
    drop((nexus, store));

    rows.extend(shelved(folder.path(), n).await?);
    rows.push(killed(n).await?);
    Ok(rows)
}

/// The same mind over its memory budget: put on a shelf, woken from it, and asked, through the nexus.
async fn shelved(folder: &std::path::Path, n: u64) -> anyhow::Result<Vec<Value>> {
    let (origin, lies) = (Origin::system("bench"), tempfile::tempdir()?);
    let mut rows = Vec::new();
    for what in ["putting it on a shelf, once", "waking from the shelf"] {
        let store = open(folder).await?;
        let nexus = Nexus::new(store.clone()).with_shelves(SpillConfig::new(lies.path(), 0));
        let began = Instant::now();
        must(&nexus, (queries(n)[0].text)(1), &origin).await?;
        rows.push(row(format!("{what}, first point query"), round(began.elapsed().as_secs_f64()), "s", ""));
        if what.starts_with("waking") {
            for query in queries(n) {
                let mut times = Vec::new();
                for k in 0..query.runs.min(100) {
                    let began = Instant::now();
                    must(&nexus, (query.text)(k), &origin).await?;
                    times.push(began.elapsed().as_secs_f64() * 1e6);
                }
                rows.push(row(
                    format!("on the shelf: {}", query.name),
                    round(percentile(&mut times, 0.5)),
                    "µs p50",
                    "",
                ));
            }
        }
        store.close().await?;
    }
    let file = lies.path().join("bench.redb").metadata()?.len() as f64 / (1 << 20) as f64;
    rows.push(row("the shelf's file", round(file), "MiB", ""));
    Ok(rows)
}

/// Kills a loading process and opens what it left.
async fn killed(n: u64) -> anyhow::Result<Value> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_str().context("a folder with a name")?;
    let mut child = std::process::Command::new(std::env::current_exe()?)
        .args(["load", path, &n.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().context("its output")?));
    // It says "loaded" once everything is in, and goes on writing until it is killed.
    let loaded = lines.by_ref().any(|line| line.is_ok_and(|line| line == "loaded"));
    anyhow::ensure!(loaded, "the loader died");
    tokio::time::sleep(Duration::from_millis(300)).await;
    child.kill()?;
    child.wait()?;
    let (before, began) = (resident(), Instant::now());
    let store = open(folder.path()).await?;
    let took = began.elapsed().as_secs_f64();
    let grown = (resident().saturating_sub(before)) as f64 / (1 << 20) as f64;
    store.close().await?;
    Ok(row(
        format!("reopening after a kill at {n} items (memory grew by {} MiB)", round(grown)),
        round(took),
        "s",
        "goal 2 at 100,000",
    ))
}

/// Loads a nexus, says so, and goes on changing it until it is killed.
pub(crate) async fn load_forever(folder: &str, n: u64) -> anyhow::Result<()> {
    let origin = Origin::system("bench");
    let nexus = Nexus::new(open(std::path::Path::new(folder)).await?);
    for text in all(n) {
        must(&nexus, text, &origin).await?;
    }
    println!("loaded");
    for no in 0u64.. {
        let text = format!(
            "UPDATE ?x SET ATTRIBUTES {{ seen: {no} }} WHERE {{ ?x {{type: \"Item\", name: \"item_{:06}\"}} }}",
            no % n
        );
        must(&nexus, text, &origin).await?;
    }
    Ok(())
}
