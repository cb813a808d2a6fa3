//! A small world for trying tools: places to stay and trains of three cities, and bookings that happen once
//! (`docs/src/guides/give-it-a-tool.md`). It keeps everything in memory, and belongs on the loopback interface.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The maximum number of bookings.
const BOOKINGS_MAX: usize = 10_000;
/// The maximum length of a traveller's name, in characters.
const NAME_CHARS_MAX: usize = 80;

/// A city, by its names in English, Chinese and Japanese.
struct City {
    names: [&'static str; 3],
    /// The places to stay: id, name, and price of a night in the city's currency.
    places: [(&'static str, &'static str, u32); 3],
    currency: &'static str,
}

const CITIES: [City; 3] = [
    City {
        names: ["Hangzhou", "杭州", "杭州"],
        places: [("hz1", "West Lake Inn", 320), ("hz2", "Tea House", 480), ("hz3", "Canal Hostel", 140)],
        currency: "CNY",
    },
    City {
        names: ["Kyoto", "京都", "京都"],
        places: [("ky1", "Kamo Ryokan", 18_000), ("ky2", "Station Hotel", 9_500), ("ky3", "Gion Guesthouse", 4_200)],
        currency: "JPY",
    },
    City {
        names: ["Lisbon", "里斯本", "リスボン"],
        places: [("li1", "Alfama Rooms", 85), ("li2", "Tejo Hotel", 130), ("li3", "Castle Hostel", 28)],
        currency: "EUR",
    },
];

/// The trains: from, to, departure and price.
const TRAINS: [(&str, &str, &str, u32); 3] =
    [("Shanghai", "Hangzhou", "08:00", 73), ("Osaka", "Kyoto", "09:15", 580), ("Porto", "Lisbon", "07:30", 25)];

/// A booking of a place for some nights.
#[derive(Clone, Debug, Serialize)]
struct Booking {
    booking: String,
    place: String,
    nights: u32,
    name: String,
    price: u32,
    currency: &'static str,
    state: &'static str,
    /// The `Idempotency-Key` of the request.
    key: Option<String>,
}

/// The bookings by id.
#[derive(Clone, Default)]
struct World(Arc<Mutex<BTreeMap<String, Booking>>>);

impl World {
    fn bookings(&self) -> MutexGuard<'_, BTreeMap<String, Booking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InCity {
    city: String,
}

async fn places(Query(InCity { city }): Query<InCity>) -> Response {
    let is_it = |known: &&City| known.names.iter().any(|name| name.eq_ignore_ascii_case(city.trim()));
    let Some(found) = CITIES.iter().find(is_it) else {
        let names: Vec<&str> = CITIES.iter().map(|city| city.names[0]).collect();
        return refused(StatusCode::NOT_FOUND, &format!("no such city; there are {}", names.join(", ")));
    };
    let place = |(id, name, price): &(&str, &str, u32)| json!({"place": id, "name": name, "price_per_night": price, "currency": found.currency});
    Json(json!({"city": found.names[0], "places": found.places.iter().map(place).collect::<Vec<_>>()})).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Journey {
    from: Option<String>,
    to: Option<String>,
}

async fn trains(Query(asked): Query<Journey>) -> Json<Value> {
    let fits =
        |asked: &Option<String>, place: &str| asked.as_ref().is_none_or(|asked| asked.eq_ignore_ascii_case(place));
    let found = TRAINS.iter().filter(|(from, to, ..)| fits(&asked.from, from) && fits(&asked.to, to));
    let train =
        |(from, to, at, price): &(&str, &str, &str, u32)| json!({"from": from, "to": to, "at": at, "price": price});
    Json(json!({"trains": found.map(train).collect::<Vec<_>>()}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    place: String,
    nights: u32,
    name: String,
}

/// Books a place. A request with the `Idempotency-Key` of an earlier one returns the earlier booking.
async fn book(State(world): State<World>, headers: HeaderMap, Json(order): Json<Order>) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let mut places = CITIES.iter().flat_map(|city| city.places.iter().map(move |place| (city, place)));
    let Some((city, (_, _, price))) = places.find(|(_, (id, ..))| *id == order.place) else {
        return refused(StatusCode::UNPROCESSABLE_ENTITY, "no such place: GET /places lists them");
    };
    if !(1..=30).contains(&order.nights) || !(1..=NAME_CHARS_MAX).contains(&order.name.trim().chars().count()) {
        return refused(StatusCode::UNPROCESSABLE_ENTITY, "nights is 1 to 30, and name has 1 to 80 characters");
    }
    let mut bookings = world.bookings();
    let earlier = bookings.values().find(|known| key.is_some() && known.key == key);
    if let Some(earlier) = earlier {
        return Json(earlier.clone()).into_response();
    }
    if bookings.len() >= BOOKINGS_MAX {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "there is no room for more bookings");
    }
    let booking = Booking {
        booking: format!("B{}", bookings.len() + 1),
        place: order.place,
        nights: order.nights,
        name: order.name.trim().to_owned(),
        price: price * order.nights,
        currency: city.currency,
        state: "booked",
        key,
    };
    bookings.insert(booking.booking.clone(), booking.clone());
    (StatusCode::CREATED, Json(booking)).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByKey {
    key: Option<String>,
}

/// Lists the bookings, or looks one up by its key.
async fn bookings(State(world): State<World>, Query(ByKey { key }): Query<ByKey>) -> Response {
    let bookings = world.bookings();
    match key {
        None => Json(json!({"bookings": bookings.values().collect::<Vec<_>>()})).into_response(),
        Some(key) => match bookings.values().find(|known| known.key.as_deref() == Some(&*key)) {
            Some(known) => Json(known.clone()).into_response(),
            None => refused(StatusCode::NOT_FOUND, "not_found"),
        },
    }
}

async fn cancel(State(world): State<World>, Path(id): Path<String>) -> Response {
    match world.bookings().get_mut(&id) {
        Some(known) => {
            known.state = "cancelled";
            Json(known.clone()).into_response()
        }
        None => refused(StatusCode::NOT_FOUND, "not_found"),
    }
}

/// Describes the world (OpenAPI 3.1).
fn document(address: &str) -> Value {
    let query = |name: &str, about: &str, required: bool| json!({"name": name, "in": "query", "required": required, "description": about, "schema": {"type": "string"}});
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
                    "requestBody": {"required": true, "content": {"application/json": {"schema": {
                        "type": "object",
                        "additionalProperties": false,
                        "required": ["place", "nights", "name"],
                        "properties": {
                            "place": {"type": "string", "description": "The id of the place, as listed."},
                            "nights": {"type": "integer", "minimum": 1, "maximum": 30},
                            "name": {"type": "string", "description": "The name of the traveller."},
                        },
                    }}}},
                    "responses": ok,
                },
            },
            "/bookings/{booking}": {"delete": {
                "operationId": "cancel",
                "summary": "Cancels a booking.",
                "parameters": [{"name": "booking", "in": "path", "required": true, "schema": {"type": "string"}}],
                "responses": ok,
            }},
        },
    })
}

/// Returns the routes of the world, which is reached at `address`.
fn router(address: &str) -> Router {
    let document = document(address);
    Router::new()
        .route("/openapi.json", get(|| async move { Json(document) }))
        .route("/places", get(places))
        .route("/trains", get(trains))
        .route("/bookings", get(bookings).post(book))
        .route("/bookings/{id}", axum::routing::delete(cancel))
        .with_state(World::default())
}

/// Serves the world until the process ends.
///
/// # Errors
/// Returns the error of the listener.
pub async fn serve(listener: tokio::net::TcpListener, address: &str) -> std::io::Result<()> {
    axum::serve(listener, router(address)).await
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
        let world = router("127.0.0.1:7719");
        let order = json!({"place": "ky2", "nights": 2, "name": "Ada"});
        let (status, made) = ask(&world, "POST", "/bookings", "k1", order.clone()).await;
        assert_eq!((status, &made["booking"], &made["price"]), (StatusCode::CREATED, &json!("B1"), &json!(19_000)));
        let (_, again) = ask(&world, "POST", "/bookings", "k1", order.clone()).await;
        assert_eq!(again, made);
        assert_eq!(ask(&world, "POST", "/bookings", "k2", order).await.1["booking"], "B2");
        assert_eq!(ask(&world, "GET", "/bookings?key=k1", "", Value::Null).await.1["booking"], "B1");
        assert_eq!(ask(&world, "GET", "/bookings?key=k9", "", Value::Null).await.0, StatusCode::NOT_FOUND);
        assert_eq!(ask(&world, "DELETE", "/bookings/B1", "", Value::Null).await.1["state"], "cancelled");
        for (place, nights) in [("zz", 1), ("ky1", 0), ("ky1", 31)] {
            let order = json!({"place": place, "nights": nights, "name": "Ada"});
            assert_eq!(ask(&world, "POST", "/bookings", "k3", order).await.0, StatusCode::UNPROCESSABLE_ENTITY);
        }
    }

    #[tokio::test]
    async fn a_city_is_known_by_its_names() {
        let world = router("127.0.0.1:7719");
        for city in ["kyoto", "Kyoto", "%E4%BA%AC%E9%83%BD"] {
            let (_, found) = ask(&world, "GET", &format!("/places?city={city}"), "", Value::Null).await;
            assert_eq!(found["city"], "Kyoto", "{city}");
        }
        assert_eq!(ask(&world, "GET", "/places?city=Atlantis", "", Value::Null).await.0, StatusCode::NOT_FOUND);
    }
}
