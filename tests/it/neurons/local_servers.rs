//! Model servers on this machine: the search for them, and the trials of a model.

use axum::routing::{get, post};
use axum::{Json, Router};
use neurons::llm::JsonMode;
use runtime::local_servers::{Tried, find_on, try_model};
use serde_json::{Value, json};

#[tokio::test]
async fn a_server_is_found_and_its_model_is_tried() {
    let models = json!({"data": [{"id": "big:8b", "context_length": 131_072}, {"id": "tiny:0.5b"}]});
    let answers = async |Json(request): Json<Value>| {
        let text = if request["response_format"]["type"] == "json_object" { "{\"ok\": true}" } else { "It is noon." };
        let message = match request["tools"].is_array() && request["model"] == "big:8b" {
            true => json!({"tool_calls": [{"id": "c", "function": {"name": "now", "arguments": "{}"}}]}),
            false => json!({"content": text}),
        };
        Json(json!({"choices": [{"message": message}]}))
    };
    let app = Router::new()
        .route("/v1/models", get(async move || Json(models.clone())))
        .route("/v1/chat/completions", post(answers));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let found = find_on(&[1, port]).await;
    let [server] = &found[..] else { panic!("{found:?}") };
    assert_eq!(server.models, ["big:8b", "tiny:0.5b"]);
    let big = try_model(&server.base_url, "big:8b", "").await.unwrap();
    let expected = Tried { context_tokens: 32_768, small: false, tools: true, json: JsonMode::Object };
    assert_eq!(big, expected);
    let tiny = try_model(&server.base_url, "tiny:0.5b", "").await.unwrap();
    assert_eq!((tiny.small, tiny.tools, tiny.context_tokens), (true, false, 8_192));
    let error = try_model(&server.base_url, "none", "").await.unwrap_err().to_string();
    assert!(error.contains("big:8b, tiny:0.5b"), "{error}");
}
