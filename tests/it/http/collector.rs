//! Spans of what lifeforms do, as a collector of OpenTelemetry is told them over a real socket (MISSION L6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::http::{HeaderMap, StatusCode as Status};
use axum::routing::post;
use axum::{Json, Router};
use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{TestDaemon, honest};
use tokio::sync::mpsc;

/// What a collector was sent, and what it answered.
type Sent = (Status, HeaderMap, Value);

/// A collector that answers each request as `answers` says, and passes it on.
async fn collector(
    answers: impl Fn(&Value) -> Status + Clone + Send + Sync + 'static,
) -> (String, mpsc::UnboundedReceiver<Sent>) {
    let (told, sent) = mpsc::unbounded_channel();
    let take = async move |headers: HeaderMap, Json(body): Json<Value>| {
        let status = answers(&body);
        let _ = told.send((status, headers, body));
        (status, [("retry-after", "0")], "{}")
    };
    let router = Router::new().route("/v1/traces", post(take));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (format!("http://{address}/"), sent)
}

/// A daemon that tells such a collector, and answers by a script.
async fn telling(address: &str, script: fn(&ChatRequest, usize) -> Reply) -> TestDaemon {
    let address = address.to_owned();
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    std::fs::write(&key, "the-collectors-key\n").unwrap();
    let daemon = TestDaemon::builder()
        .config(move |config| {
            config.telemetry.collector.clone_from(&address);
            config.telemetry.key_file = Some(key.clone());
            config.telemetry.header = Some("x-api-key".into());
        })
        .start(script)
        .await;
    drop(folder);
    daemon
}

/// Whether a model was asked in what is told.
fn is_of_a_call(told: &Value) -> bool {
    told.to_string().contains("gen_ai.usage.output_tokens")
}

/// The spans of the next job in which a model was asked, in a request that was answered so.
async fn of_an_answer(sent: &mut mpsc::UnboundedReceiver<Sent>, answered: Status) -> (HeaderMap, Value) {
    loop {
        let (status, headers, body) = sent.recv().await.unwrap();
        if status != answered {
            continue;
        }
        for told in body["resourceSpans"].as_array().unwrap() {
            if is_of_a_call(told) {
                return (headers, told.clone());
            }
        }
    }
}

#[tokio::test]
async fn the_daemon_exports_each_ended_job_to_a_busy_collector() {
    let tries = Arc::new(AtomicUsize::new(0));
    let busy = move |_: &Value| match tries.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Status::SERVICE_UNAVAILABLE,
        _ => Status::OK,
    };
    let (address, mut sent) = collector(busy).await;
    let daemon = telling(&address, honest).await;
    let (id, base) = daemon.lifeform().await;
    daemon.operator.topic(&base, "t").await;
    daemon.operator.say(&base, "t", "The narrows of Faro run four knots.").await;
    let (headers, told) = of_an_answer(&mut sent, Status::OK).await;
    assert!(headers["content-type"] == "application/json" && headers["x-api-key"] == "the-collectors-key");
    let agent = json!({"key": "gen_ai.agent.id", "value": {"stringValue": id}});
    assert!(told["resource"]["attributes"].as_array().unwrap().contains(&agent), "{told}");
    let spans = told["scopeSpans"][0]["spans"].as_array().unwrap();
    assert!(spans[0]["name"].as_str().unwrap().starts_with("invoke_agent "), "{told}");
    assert!(spans[0]["attributes"].to_string().contains(&format!("canvas:{id}/canvas_chat_main@")), "{told}");
    let ids: Vec<&Value> = spans.iter().map(|span| &span["spanId"]).collect();
    assert!(spans.iter().skip(1).all(|span| ids.contains(&&span["parentSpanId"])), "{told}");
    assert!(spans.iter().all(|span| span["traceId"] == spans[0]["traceId"]), "{told}");
    assert!(!told.to_string().contains("knots"), "no words of anybody go to a collector");
}

#[tokio::test]
async fn the_collector_receives_a_failure_without_its_content() {
    let (address, mut sent) = collector(|_| Status::OK).await;
    // Why a provider refuses may repeat what it was asked.
    let daemon = telling(&address, |request, n| match request.response_format.is_some() {
        true => honest(request, n),
        false => Reply::Status(400, "nothing is said here of knots".into()),
    })
    .await;
    let (id, base) = daemon.lifeform().await;
    daemon.operator.topic(&base, "t").await;
    let said = daemon.operator.say(&base, "t", "The narrows of Faro run four knots.").await;
    let told = loop {
        let (_, _, body) = sent.recv().await.unwrap();
        if body.to_string().contains(r#""status":{"code":2}"#) {
            break body.to_string();
        }
    };
    assert!(!told.contains("knots"), "{told}");
    // Whoever asks the daemon is told why.
    let from = format!("canvas:{id}/canvas_chat_main@{}", said["rev"]);
    let spans = daemon.operator.get(&format!("/v1/lifeforms/{id}/trace?from={from}&format=otlp")).await;
    assert!(spans.expect(StatusCode::OK).to_string().contains("of knots"));
}

#[tokio::test]
async fn what_a_collector_refuses_keeps_nothing_up() {
    let refused = Arc::new(AtomicBool::new(false));
    let fussy = move |told: &Value| match is_of_a_call(told) && !refused.swap(true, Ordering::SeqCst) {
        true => Status::BAD_REQUEST,
        false => Status::OK,
    };
    let (address, mut sent) = collector(fussy).await;
    let daemon = telling(&address, honest).await;
    let (_, base) = daemon.lifeform().await;
    daemon.operator.topic(&base, "t").await;
    for (text, answered) in [("The narrows run four knots.", Status::BAD_REQUEST), ("The bar breaks.", Status::OK)] {
        daemon.operator.say(&base, "t", text).await;
        of_an_answer(&mut sent, answered).await;
    }
    // A daemon that cannot reach it answers all the same.
    drop(sent);
    let lonely = telling("http://127.0.0.1:1", honest).await;
    let (_, base) = lonely.lifeform().await;
    let mut socket = lonely.operator.subscribe(&base, None).await;
    lonely.operator.topic(&base, "t").await;
    lonely.operator.say(&base, "t", "The narrows of Faro run four knots.").await;
    socket.answer().await;
    let health = lonely.operator.get("/health").await;
    health.expect(StatusCode::OK);
}
