//! The cities, trains and bookings of the example world, and what can be done with them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The maximum number of bookings.
const BOOKINGS_MAX: usize = 10_000;
/// The maximum length of a traveller's name, in characters.
const NAME_CHARS_MAX: usize = 80;

/// A city, by its names in English, Chinese, Japanese, and its own country.
struct City {
    names: [&'static str; 4],
    /// The places to stay: id, name, and price of a night in the city's currency.
    places: [(&'static str, &'static str, u32); 3],
    currency: &'static str,
}

const CITIES: [City; 3] = [
    City {
        names: ["Hangzhou", "杭州", "杭州", "Hángzhōu"],
        places: [("hz1", "West Lake Inn", 320), ("hz2", "Tea House", 480), ("hz3", "Canal Hostel", 140)],
        currency: "CNY",
    },
    City {
        names: ["Kyoto", "京都", "京都", "Kyōto"],
        places: [("ky1", "Kamo Ryokan", 18_000), ("ky2", "Station Hotel", 9_500), ("ky3", "Gion Guesthouse", 4_200)],
        currency: "JPY",
    },
    City {
        names: ["Lisbon", "里斯本", "リスボン", "Lisboa"],
        places: [("li1", "Alfama Rooms", 85), ("li2", "Tejo Hotel", 130), ("li3", "Castle Hostel", 28)],
        currency: "EUR",
    },
];

/// The trains: from, to, departure and price.
const TRAINS: [(&str, &str, &str, u32); 3] =
    [("Shanghai", "Hangzhou", "08:00", 73), ("Osaka", "Kyoto", "09:15", 580), ("Porto", "Lisbon", "07:30", 25)];

/// A booking of a place for some nights.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Booking {
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
pub(super) struct World(Arc<Mutex<BTreeMap<String, Booking>>>);

impl World {
    fn bookings(&self) -> MutexGuard<'_, BTreeMap<String, Booking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why the world does not do what it is asked for.
pub(super) struct Refused(pub(super) StatusCode, pub(super) String);

fn refused<T>(status: StatusCode, why: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(status, why.into()))
}

/// A question for the places of a city.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InCity {
    city: String,
}

/// A question for trains.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Journey {
    from: Option<String>,
    to: Option<String>,
}

/// A booking that is asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    place: String,
    nights: u32,
    name: String,
}

/// A booking by its id.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ById {
    booking: String,
}

/// Returns the places to stay in a city, which is known by its names in several languages. Words around the name are passed over.
pub(super) fn places(InCity { city }: &InCity) -> Result<Value, Refused> {
    let asked = city.to_lowercase();
    let is_it = |known: &&City| known.names.iter().any(|name| asked.contains(&name.to_lowercase()));
    let Some(found) = CITIES.iter().find(is_it) else {
        let names: Vec<&str> = CITIES.iter().map(|city| city.names[0]).collect();
        return refused(StatusCode::NOT_FOUND, format!("no such city; there are {}", names.join(", ")));
    };
    let place = |(id, name, price): &(&str, &str, u32)| json!({"place": id, "name": name, "price_per_night": price, "currency": found.currency});
    Ok(json!({"city": found.names[0], "places": found.places.iter().map(place).collect::<Vec<_>>()}))
}

/// Returns the trains between two cities, or of one, or all.
pub(super) fn trains(asked: &Journey) -> Value {
    let fits =
        |asked: &Option<String>, place: &str| asked.as_ref().is_none_or(|asked| asked.eq_ignore_ascii_case(place));
    let found = TRAINS.iter().filter(|(from, to, ..)| fits(&asked.from, from) && fits(&asked.to, to));
    let train =
        |(from, to, at, price): &(&str, &str, &str, u32)| json!({"from": from, "to": to, "at": at, "price": price});
    json!({"trains": found.map(train).collect::<Vec<_>>()})
}

impl World {
    /// Books a place. An order with the key of an earlier one returns the earlier booking, and `false`.
    pub(super) fn book(&self, order: Order, key: Option<String>) -> Result<(Booking, bool), Refused> {
        let mut places = CITIES.iter().flat_map(|city| city.places.iter().map(move |place| (city, place)));
        let Some((city, (_, _, price))) = places.find(|(_, (id, ..))| *id == order.place) else {
            return refused(StatusCode::UNPROCESSABLE_ENTITY, "no such place: places lists them");
        };
        if !(1..=30).contains(&order.nights) || !(1..=NAME_CHARS_MAX).contains(&order.name.trim().chars().count()) {
            return refused(StatusCode::UNPROCESSABLE_ENTITY, "nights is 1 to 30, and name has 1 to 80 characters");
        }
        let mut bookings = self.bookings();
        let earlier = bookings.values().find(|known| key.is_some() && known.key == key);
        if let Some(earlier) = earlier {
            return Ok((earlier.clone(), false));
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
        Ok((booking, true))
    }

    /// Returns all bookings.
    pub(super) fn all(&self) -> Value {
        json!({"bookings": self.bookings().values().collect::<Vec<_>>()})
    }

    /// Returns the booking that was made under a key.
    pub(super) fn by_key(&self, key: &str) -> Result<Booking, Refused> {
        let found = self.bookings().values().find(|known| known.key.as_deref() == Some(key)).cloned();
        found.map_or_else(|| refused(StatusCode::NOT_FOUND, "not_found"), Ok)
    }

    /// Returns a booking.
    pub(super) fn booking(&self, ById { booking }: &ById) -> Result<Booking, Refused> {
        self.bookings().get(booking).cloned().map_or_else(|| refused(StatusCode::NOT_FOUND, "not_found"), Ok)
    }

    /// Cancels a booking. A booking that is cancelled stays so.
    pub(super) fn cancel(&self, ById { booking }: &ById) -> Result<Booking, Refused> {
        match self.bookings().get_mut(booking) {
            Some(known) => {
                known.state = "cancelled";
                Ok(known.clone())
            }
            None => refused(StatusCode::NOT_FOUND, "not_found"),
        }
    }
}
