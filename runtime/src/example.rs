//! A small world for trying tools: places to stay and trains of three cities, and bookings that happen once
//! (`docs/src/guides/give-it-a-tool.md`), over HTTP and MCP. It keeps everything in memory, and belongs on the loopback interface.

mod mcp;
mod world;

use std::net::SocketAddr;

use anyhow::Context;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{Config, Host};
use world::{ById, InCity, Journey, Order, Refused, World};

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}

fn answer(found: Result<impl Serialize, Refused>) -> Response {
    found.map_or_else(Refused::into_response, |found| Json(found).into_response())
}

async fn book(State(world): State<World>, headers: HeaderMap, Json(order): Json<Order>) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    match world.book(order, key) {
        Ok((booking, true)) => (StatusCode::CREATED, Json(booking)).into_response(),
        Ok((booking, false)) => Json(booking).into_response(),
        Err(refused) => refused.into_response(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByKey {
    key: Option<String>,
}

async fn bookings(State(world): State<World>, Query(ByKey { key }): Query<ByKey>) -> Response {
    match key {
        None => Json(world.all()).into_response(),
        Some(key) => answer(world.by_key(&key)),
    }
}

/// Returns the JSON Schema of an order.
fn order() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["place", "nights", "name"],
        "properties": {
            "place": {"type": "string", "description": "The id of the place, as listed."},
            "nights": {"type": "integer", "minimum": 1, "maximum": 30},
            "name": {"type": "string", "description": "The name of the traveller."},
        },
    })
}

/// Describes the world (OpenAPI 3.1).
fn document(address: SocketAddr) -> Value {
    let query = |name: &str, about: &str, required: bool| json!({"name": name, "in": "query", "required": required, "description": about, "schema": {"type": "string"}});
    let id = json!({"name": "booking", "in": "path", "required": true, "schema": {"type": "string"}});
    let ok = json!({"200": {"description": "the answer"}});
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Example world", "version": "1"},
        "servers": [{"url": format!("http://{address}")}],
        "paths": {
            "/places": {"get": {
                "operationId": "places",
                "summary": "Lists the places to stay in a city, with prices per night.",
                "parameters": [query("city", "The city: Hangzhou, Kyoto or Lisbon.", true)],
                "responses": ok,
            }},
            "/trains": {"get": {
                "operationId": "trains",
                "summary": "Lists trains with departure and price.",
                "parameters": [query("from", "The city of departure.", false), query("to", "The city of arrival.", false)],
                "responses": ok,
            }},
            "/bookings": {
                "get": {
                    "operationId": "bookings",
                    "summary": "Lists the bookings.",
                    "responses": ok,
                },
                "post": {
                    "operationId": "book",
                    "summary": "Books a place to stay.",
                    "requestBody": {"required": true, "content": {"application/json": {"schema": order()}}},
                    "responses": ok,
                },
            },
            "/bookings/{booking}": {
                "get": {
                    "operationId": "booking",
                    "summary": "Returns a booking.",
                    "parameters": [id],
                    "responses": ok,
                },
                "delete": {
                    "operationId": "cancel",
                    "summary": "Cancels a booking.",
                    "parameters": [id],
                    "responses": ok,
                },
            },
        },
    })
}

/// Returns the routes of the world, which is reached at `address`.
fn router(address: SocketAddr) -> Router {
    let (document, world) = (document(address), World::default());
    Router::new()
        .route("/openapi.json", get(|| async move { Json(document) }))
        .route("/places", get(|Query(asked): Query<InCity>| async move { answer(world::places(&asked)) }))
        .route("/trains", get(|Query(asked): Query<Journey>| async move { Json(world::trains(&asked)) }))
        .route("/bookings", get(bookings).post(book))
        .route(
            "/bookings/{booking}",
            get(|State(world): State<World>, Path(id): Path<ById>| async move { answer(world.booking(&id)) })
                .delete(|State(world): State<World>, Path(id): Path<ById>| async move { answer(world.cancel(&id)) }),
        )
        .with_state(world.clone())
        .nest_service("/mcp", mcp::service(world))
}

/// Serves the world until the process ends.
///
/// # Errors
/// Returns the error of the listener.
pub async fn serve(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    axum::serve(listener, router(address)).await
}

/// Opens the address of a world.
///
/// # Errors
/// If the address is not on the loopback interface, or in use.
pub async fn listen(address: SocketAddr) -> anyhow::Result<tokio::net::TcpListener> {
    if !address.ip().is_loopback() {
        anyhow::bail!("{address} is not on the loopback interface, and the example world has no access control");
    }
    tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("the example world cannot listen on {address}"))
}

/// Lets a daemon reach a world at `address`, and defines its tools: `lookup`, `trains`, `book`, `booking` and `cancel`. What the
/// configuration says itself takes precedence.
///
/// # Errors
/// If a definition does not fit, which its test excludes.
pub fn add_tools(config: &mut Config, address: SocketAddr) -> anyhow::Result<()> {
    let host: Host = serde_json::from_value(json!({"plain": true, "private": true}))?;
    config.tools.hosts.entry(address.to_string()).or_insert(host);
    let at = |path: &str| format!("http://{address}{path}");
    let text = json!({"type": "string"});
    let tools = json!({
        "lookup": {
            "description": "Lists the places to stay in a city, with prices per night.",
            "parameters": {"type": "object", "additionalProperties": false, "required": ["city"],
                "properties": {"city": {"type": "string", "description": "The city, as it was named."}}},
            "run": {"http": {"url": at("/places"), "query": ["city"]}},
        },
        "trains": {
            "description": "Lists trains with departure and price.",
            "parameters": {"type": "object", "additionalProperties": false, "properties": {"from": text, "to": text}},
            "run": {"http": {"url": at("/trains"), "query": ["from", "to"]}},
        },
        "book": {
            "description": "Books a place to stay.",
            "parameters": order(),
            "run": {"http": {"method": "POST", "url": at("/bookings")}},
            "settle": {
                "run": {"http": {"url": at("/bookings"), "query": ["key"]}},
                "arguments": {"key": "{{effect}}"},
                "done": {"at": "/state", "is": {"const": "booked"}},
                "absent": {"at": "/error", "is": {"pattern": "404"}},
            },
        },
        "booking": {
            "description": "Returns a booking.",
            "parameters": {"type": "object", "additionalProperties": false, "required": ["booking"], "properties": {"booking": text}},
            "run": {"http": {"url": at("/bookings/{booking}")}},
        },
        "cancel": {
            "description": "Cancels a booking.",
            "parameters": {"type": "object", "additionalProperties": false, "required": ["booking"], "properties": {"booking": text}},
            "run": {"http": {"method": "DELETE", "url": at("/bookings/{booking}")}},
        },
    });
    for (id, tool) in tools.as_object().into_iter().flatten() {
        let tool = serde_json::from_value(tool.clone()).with_context(|| format!("the tool {id}"))?;
        config.tools.named.entry(id.as_str().into()).or_insert(tool);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    async fn ask(world: &Router, method: &str, path: &str, key: &str, body: Value) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = request.header("idempotency-key", key).body(Body::from(body.to_string())).unwrap();
        let answer = world.clone().oneshot(request).await.unwrap();
        let status = answer.status();
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    #[tokio::test]
    async fn a_booking_with_the_same_key_is_one_booking() {
        let world = router("127.0.0.1:7719".parse().unwrap());
        let order = json!({"place": "ky2", "nights": 2, "name": "Ada"});
        let (status, made) = ask(&world, "POST", "/bookings", "k1", order.clone()).await;
        assert_eq!((status, &made["booking"], &made["price"]), (StatusCode::CREATED, &json!("B1"), &json!(19_000)));
        let (_, again) = ask(&world, "POST", "/bookings", "k1", order.clone()).await;
        assert_eq!(again, made);
        assert_eq!(ask(&world, "POST", "/bookings", "k2", order).await.1["booking"], "B2");
        assert_eq!(ask(&world, "GET", "/bookings?key=k1", "", Value::Null).await.1["booking"], "B1");
        assert_eq!(ask(&world, "GET", "/bookings?key=k9", "", Value::Null).await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask(&world, "GET", "/bookings/B2", "", Value::Null).await.1["state"], "booked");
        assert_eq!(ask(&world, "DELETE", "/bookings/B1", "", Value::Null).await.1["state"], "cancelled");
        for (place, nights) in [("zz", 1), ("ky1", 0), ("ky1", 31)] {
            let order = json!({"place": place, "nights": nights, "name": "Ada"});
            assert_eq!(ask(&world, "POST", "/bookings", "k3", order).await.0, StatusCode::UNPROCESSABLE_ENTITY);
        }
    }

    #[tokio::test]
    async fn a_city_is_known_by_its_names() {
        let world = router("127.0.0.1:7719".parse().unwrap());
        for city in ["kyoto", "Kyoto", "%E4%BA%AC%E9%83%BD"] {
            let (_, found) = ask(&world, "GET", &format!("/places?city={city}"), "", Value::Null).await;
            assert_eq!(found["city"], "Kyoto", "{city}");
        }
        assert_eq!(ask(&world, "GET", "/places?city=Atlantis", "", Value::Null).await.0, StatusCode::NOT_FOUND);
    }
}
