//! The deserialization of a request body.

use std::collections::HashSet;
use std::fmt::Formatter;
use std::marker::PhantomData;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Refusal;

/// A body that must be a JSON object. A list would be read by the order of the members.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(members)).map(Object)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// A JSON value without repeated members, since one of two would be dropped silently.
pub(super) struct Unique(pub(super) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Value;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a JSON value")
            }

            fn visit_unit<E: Error>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
                Ok(value.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut found = Vec::new();
                while let Some(Unique(item)) = items.next_element()? {
                    found.push(item);
                }
                Ok(found.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
                let mut found = Map::new();
                while let Some((name, Unique(value))) = members.next_entry::<String, _>()? {
                    if found.contains_key(&name) {
                        return Err(Error::custom(format!("the member {name} is a duplicate")));
                    }
                    found.insert(name, value);
                }
                Ok(found.into())
            }
        }
        deserializer.deserialize_any(Members).map(Unique)
    }
}

/// Returns the refusal of a JSON text in which an object names a member twice; `None` for any other text.
pub fn repeated_member(text: &[u8]) -> Option<String> {
    let error = serde_json::from_slice::<Checked>(text).err()?;
    error.is_data().then(|| error.to_string())
}

/// A JSON value without repeated members, of which nothing is kept.
struct Checked;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Checked;

            fn expecting(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a JSON value")
            }

            fn visit_unit<E: Error>(self) -> Result<Checked, E> {
                Ok(Checked)
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Checked, E> {
                Ok(Checked)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Checked, E> {
                Ok(Checked)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Checked, E> {
                Ok(Checked)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Checked, E> {
                Ok(Checked)
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<Checked, E> {
                Ok(Checked)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
                while items.next_element::<Checked>()?.is_some() {}
                Ok(Checked)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Checked, A::Error> {
                let mut known: HashSet<String> = HashSet::new();
                while let Some(name) = members.next_key::<String>()? {
                    if known.contains(&name) {
                        return Err(A::Error::custom(format_args!("the member {name} is a duplicate")));
                    }
                    known.insert(name);
                    members.next_value::<Checked>()?;
                }
                Ok(Checked)
            }
        }
        deserializer.deserialize_any(Members)
    }
}

/// A request body whose rejection has the error format of this API.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        match Json::<Object<T>>::from_request(request, state).await {
            Ok(Json(Object(body))) => Ok(Self(body)),
            Err(rejection) => {
                // A body that does not fit is answered with status 400, as in the OpenAI API.
                let status = match &rejection {
                    JsonRejection::JsonDataError(_) => 400,
                    other => other.status().as_u16(),
                };
                Err(Refusal { status, ..Refusal::wrong(rejection.body_text()) })
            }
        }
    }
}
