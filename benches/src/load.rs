//! A closed-loop load: so many clients, each asking again as soon as it is answered.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{Process, TOKEN};

/// What a load measured.
pub(crate) struct Measured {
    /// Answers a second.
    pub(crate) rate: f64,
    /// Half of the answers came within this, in milliseconds.
    pub(crate) p50_ms: f64,
    /// All but one in a hundred.
    pub(crate) p99_ms: f64,
    /// Milliseconds of the server's processor time an answer.
    pub(crate) cpu_ms: f64,
}

/// The value below which `share` of the sorted values lie.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted.get(((sorted.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::NAN)
}

/// Posts `body` to `path` from `clients` at once, for a second to warm up and four to measure.
pub(crate) async fn post(process: &Process, path: &str, body: &Value, clients: usize) -> Measured {
    let http = reqwest::Client::builder().tcp_nodelay(true).pool_max_idle_per_host(256).build().unwrap();
    let url = format!("{}{path}", process.base);
    let begin = Instant::now() + Duration::from_secs(1);
    let end = begin + Duration::from_secs(4);
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (http, url, body) = (http.clone(), url.clone(), body.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while Instant::now() < end {
                    let asked = Instant::now();
                    let answer = http.post(&url).bearer_auth(TOKEN).json(&body).send().await.unwrap();
                    assert!(answer.status().is_success(), "{}", answer.status());
                    answer.bytes().await.unwrap();
                    if asked >= begin {
                        times.push(asked.elapsed().as_secs_f64() * 1e3);
                    }
                }
                times
            })
        })
        .collect();
    tokio::time::sleep_until(begin.into()).await;
    let cpu = process.cpu_s();
    tokio::time::sleep_until(end.into()).await;
    let cpu = process.cpu_s() - cpu;
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times.sort_by(f64::total_cmp);
    let count = times.len() as f64;
    Measured {
        rate: count / 4.0,
        p50_ms: percentile(&times, 0.5),
        p99_ms: percentile(&times, 0.99),
        cpu_ms: cpu * 1e3 / count,
    }
}
