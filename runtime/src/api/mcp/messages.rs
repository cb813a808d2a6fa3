//! The JSON-RPC messages of the MCP door, checked before the protocol reads them.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use neurons::llm::wire::repeated_member;
use serde_json::{Map, Value, json};

use crate::api::BODY_BYTES_MAX;
use crate::api::error::ApiError;

/// Answers a body that is not JSON, or not a request, as JSON-RPC 2.0 §5.1 requires. Without this, the status is 415.
pub(in crate::api) async fn refuse_malformed(request: Request, next: Next) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if request.method() != Method::POST || !essence.eq_ignore_ascii_case("application/json") {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let bytes = match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.to_string().contains("length limit") => {
            return ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()).into_response();
        }
        Err(error) => return ApiError::new(StatusCode::BAD_REQUEST, "body", error.to_string()).into_response(),
    };
    let refused = |code: i32, message: &str, id: Value| {
        let answer = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
        (StatusCode::BAD_REQUEST, Json(answer)).into_response()
    };
    if let Some(repeated) = repeated_member(&bytes) {
        return refused(-32600, &repeated, Value::Null);
    }
    if let Ok(Value::Object(message)) = serde_json::from_slice(&bytes)
        && let Err((code, why)) = understood(&message)
    {
        return refused(code, &why, message.get("id").cloned().unwrap_or_default());
    }
    let response = next.run(Request::from_parts(parts, Body::from(bytes.clone()))).await;
    if response.status() != StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return response;
    }
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(message) => refused(-32600, "the body is no request of this protocol", message["id"].clone()),
        Err(_) => refused(-32700, "the body is no JSON", Value::Null),
    }
}

/// The members of a JSON-RPC message (JSON-RPC 2.0 §4 and §5).
const MESSAGE: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
/// The parameters of `tools/call` (MCP 2025-11-25, tools).
const TOOL_CALL: [&str; 4] = ["name", "arguments", "task", "_meta"];

/// Checks that the daemon understands all members of a message, and that the arguments of a tool are an object.
///
/// # Errors
/// Returns the code and the reason, as JSON-RPC 2.0 §5.1 defines them.
fn understood(message: &Map<String, Value>) -> Result<(), (i32, String)> {
    let unknown = |members: &Map<String, Value>, known: &[&str]| {
        members.keys().find(|name| !known.contains(&name.as_str())).map(|name| format!("unknown member `{name}`"))
    };
    if let Some(why) = unknown(message, &MESSAGE) {
        return Err((-32600, why));
    }
    let Some(params) = message.get("params").filter(|_| message.get("method") == Some(&json!("tools/call"))) else {
        return Ok(());
    };
    let params = params.as_object().ok_or_else(|| (-32602, "params is an object".to_owned()))?;
    if let Some(why) = unknown(params, &TOOL_CALL) {
        return Err((-32602, format!("params: {why}")));
    }
    match params.get("arguments") {
        None | Some(Value::Object(_) | Value::Null) => Ok(()),
        Some(_) => Err((-32602, "params.arguments is an object".to_owned())),
    }
}
