//! The floors: a model that answers at once, and the least a server between it and a client can do.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

async fn serve(router: Router) -> anyhow::Result<()> {
    use axum::serve::ListenerExt;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("serving {}", listener.local_addr()?);
    Ok(axum::serve(listener.tap_io(|stream| drop(stream.set_nodelay(true))), router).await?)
}

/// An OpenAI-compatible model with no latency and a fixed answer.
pub(crate) async fn mock() -> anyhow::Result<()> {
    let answer = |Json(asked): Json<Value>| async move {
        if asked["stream"] == true {
            let piece = |delta: Value, finish: Value| {
                let usage = json!({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18});
                let choice = json!({"index": 0, "finish_reason": finish, "delta": delta});
                let usage = if finish.is_null() { Value::Null } else { usage };
                json!({
                    "id": "c",
                    "object": "chat.completion.chunk",
                    "created": 1,
                    "model": "mock",
                    "choices": [choice],
                    "usage": usage,
                })
            };
            let begin = piece(json!({"role": "assistant", "content": "Hello from "}), Value::Null);
            let end = piece(json!({"content": "the mock."}), json!("stop"));
            let text = format!("data: {begin}\n\ndata: {end}\n\ndata: [DONE]\n\n");
            return ([(header::CONTENT_TYPE, "text/event-stream")], text).into_response();
        }
        Json(
            json!({"id": "c", "object": "chat.completion", "created": 1, "model": "mock", "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello from the mock."}}]}),
        )
        .into_response()
    };
    serve(Router::new().route("/v1/chat/completions", post(answer)).route("/health", get(|| async { "ok" }))).await
}

/// A bare axum server over async-openai: no store, no auth, no ledger.
pub(crate) async fn passthrough(model: &str) -> anyhow::Result<()> {
    let client = Client::with_config(OpenAIConfig::new().with_api_base(model).with_api_key("x"));
    let invoke = |State(client): State<Client<OpenAIConfig>>, Json(body): Json<Value>| async move {
        let request = json!({
            "model": "mock",
            "messages": [{"role": "system", "content": "You are a neuron."}, {"role": "user", "content": body["input"]}],
        });
        let reply: Value = client.chat().create_byot(request).await.unwrap();
        Json(json!({"status": "completed", "output": reply["choices"][0]["message"]["content"]}))
    };
    let router = Router::new().route("/v1/neurons/{id}/invoke", post(invoke)).route("/health", get(|| async { "ok" }));
    serve(router.with_state(client)).await
}
