//! Readers with and without a writer beside them, and many writers on one nexus.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nexus::{Nexus, Request};
use serde_json::Value;
use store::surreal::Surreal;
use store::{Origin, Store, SystemClock};

use super::generator::{all, queries};
use super::{percentile, round, row};

pub(crate) async fn run(n: u64) -> anyhow::Result<Vec<Value>> {
    let folder = tempfile::tempdir()?;
    let origin = Origin::system("bench");
    let store = Store::open(Arc::new(Surreal::embedded(folder.path())?), Arc::new(SystemClock)).await?;
    let nexus = Nexus::new(store.clone());
    let run = |text: String| {
        let (nexus, origin) = (nexus.clone(), origin.clone());
        async move { nexus.execute(&"bench".into(), Request::new(text), &origin).await }
    };
    for text in all(n) {
        run(text).await?;
    }
    let read = |runs: u64| {
        let (run, point) = (&run, queries(n).swap_remove(0).text);
        async move {
            let mut times = Vec::new();
            for k in 0..runs {
                let began = Instant::now();
                run(point(k)).await?;
                times.push(began.elapsed().as_secs_f64() * 1e6);
            }
            anyhow::Ok(times)
        }
    };
    let mut alone = read(5000).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (nexus, origin, stop) = (nexus.clone(), origin.clone(), stop.clone());
        async move {
            let mut written = 0u64;
            while !stop.load(Ordering::Relaxed) {
                let text = format!(
                    "UPDATE ?x SET ATTRIBUTES {{ seen: {written} }} WHERE {{ ?x {{type: \"Item\", name: \"item_{:06}\"}} }}",
                    written % n
                );
                let _ = nexus.execute(&"bench".into(), Request::new(text), &origin).await;
                written += 1;
            }
            written
        }
    });
    let mut beside = read(5000).await?;
    stop.store(true, Ordering::Relaxed);
    let written = writer.await?;
    let mut rows = vec![
        row("point query through the nexus, p50 alone", round(percentile(&mut alone, 0.5)), "µs", ""),
        row("p99 alone", round(percentile(&mut alone, 0.99)), "µs", ""),
        row("p50 beside a writer", round(percentile(&mut beside, 0.5)), "µs", format!("{written} writes meanwhile")),
        row("p99 beside a writer", round(percentile(&mut beside, 0.99)), "µs", ""),
    ];
    let began = Instant::now();
    let writers: Vec<_> = (0..64u64)
        .map(|w| {
            let run = run(format!("UPSERT {{ CONCEPT {{ {{type: \"Group\", name: \"warm_{w}\"}} }} }}"));
            let (nexus, origin) = (nexus.clone(), origin.clone());
            tokio::spawn(async move {
                let _ = run.await;
                for k in 0..50u64 {
                    let text = format!("UPSERT {{ CONCEPT {{ {{type: \"Group\", name: \"crowd_{w}_{k}\"}} SET ATTRIBUTES {{ no: {k} }} }} }}");
                    let _ = nexus.execute(&"bench".into(), Request::new(text), &origin).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await?;
    }
    let took = began.elapsed().as_secs_f64();
    let counted =
        run("FIND(COUNT(?g)) WHERE { ?g {type: \"Group\"} FILTER(STARTS_WITH(?g.name, \"crowd_\")) }".into()).await?;
    rows.push(row(
        "64 writers on one nexus",
        (3264.0 / took).round(),
        "commands/s",
        format!("{} of 3200 there", counted["result"][0]),
    ));
    store.close().await?;
    Ok(rows)
}
