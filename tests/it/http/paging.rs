//! Journals are read from either end and by time, page by page.

use reqwest::StatusCode;
use serde_json::{Value, json};
use store::Clock;
use tests::{TestDaemon, honest};

async fn numbers(daemon: &TestDaemon, path: &str) -> (Vec<u64>, Value) {
    let page = daemon.operator.get(path).await.expect(StatusCode::OK);
    let lines = page["transactions"].as_array().unwrap().iter();
    (lines.map(|line| line["seq"].as_u64().unwrap()).collect(), page["next"].clone())
}

#[tokio::test]
async fn a_journal_is_read_from_either_end_and_by_time() {
    let daemon = TestDaemon::start(honest).await;
    let made = daemon.operator.post("/v1/lifeforms", json!({"definition": "first"})).await.expect(StatusCode::CREATED);
    let path = format!("/v1/lifeforms/{}/resources", made["id"].as_str().unwrap());
    let mut times = Vec::new();
    for amount in 1..=10 {
        daemon.clock.advance_ms(60_000);
        times.push(daemon.clock.now());
        let body = json!({"amount": amount, "currency": "tokens", "memo": format!("number {amount}")});
        daemon.operator.post(&format!("{path}/transactions"), body).await.expect(StatusCode::CREATED);
    }
    let (all, next) = numbers(&daemon, &format!("{path}?limit=256")).await;
    assert!(all.len() >= 10 && all.is_sorted() && next.is_null(), "{all:?}");
    for (order, cursor) in [("asc", "after"), ("desc", "before")] {
        let (mut walked, mut at) = (Vec::new(), String::new());
        loop {
            let (page, next) = numbers(&daemon, &format!("{path}?limit=3&order={order}{at}")).await;
            assert!((1..=3).contains(&page.len()), "{page:?}");
            walked.extend(page);
            if next.is_null() {
                break;
            }
            at = format!("&{cursor}={next}");
        }
        if order == "desc" {
            walked.reverse();
        }
        assert_eq!(walked, all, "{order}");
    }
    let last_six = &all[all.len() - 6..];
    let (since, _) = numbers(&daemon, &format!("{path}?since={}", times[4])).await;
    assert_eq!(since, last_six);
    let (between, _) = numbers(&daemon, &format!("{path}?since={}&until={}&order=desc", times[4], times[6])).await;
    assert_eq!(between, [last_six[1], last_six[0]]);
    let (none, next) = numbers(&daemon, &format!("{path}?until={}&after={}", times[0], all[all.len() - 1])).await;
    assert!(none.is_empty() && next.is_null());
    daemon.operator.get(&format!("{path}?order=up")).await.refused(400, "query");
    daemon.operator.get(&format!("{path}?since=yesterday")).await.refused(400, "query");
}
