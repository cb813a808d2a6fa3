//! Values as the graph stores them: sixteen bytes each, with shared text and interned keys.
//!
//! Draft7 §2.7 adopts JSON's data model. Numbers, strings, booleans and null are typed, so that a filter compares
//! them without parsing. Arrays and objects, which KQL only stores and returns, stay JSON.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arcstr::ArcStr;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Number, Value};
use triomphe::ThinArc;

/// An interned name: a type, a predicate, or a key. Equal names share one pointer in the whole process.
///
/// Interned names are never freed. They are schema names and keys, of which even a long life knows few.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sym(ustr::Ustr);

impl Sym {
    /// Interns `name`. Only writes intern names; queries look them up with [`Sym::known`].
    pub fn new(name: &str) -> Self {
        Self(ustr::ustr(name))
    }

    /// Returns the symbol of a name that was interned before. A name that was never interned matches nothing.
    pub fn known(name: &str) -> Option<Self> {
        ustr::existing_ustr(name).map(Self)
    }

    /// Returns the text.
    pub fn as_str(self) -> &'static str {
        self.0.as_str()
    }

    fn address(self) -> usize {
        self.0.as_char_ptr() as usize
    }
}

/// Any fixed order is sufficient: names are ordered by address, which needs no access to the text.
impl Ord for Sym {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl PartialOrd for Sym {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Sym {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Sym {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Sym {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Sym;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Sym, E> {
                Ok(Sym::new(text))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// One value.
#[derive(Clone, Debug, Default)]
pub enum Datum {
    /// `null`, and the value of a missing key.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number within the range of `i64`.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(ArcStr),
    /// An array, an object, or a whole number outside the range of `i64`.
    Json(Arc<Value>),
}

impl Datum {
    /// Returns the value of some JSON.
    ///
    /// ```
    /// use kip::datum::Datum;
    /// use serde_json::json;
    /// assert_eq!(Datum::from_json(&json!("Petrel")).as_str(), Some("Petrel"));
    /// assert_eq!(Datum::from_json(&json!([1, 2])).to_json(), json!([1, 2]));
    /// ```
    pub fn from_json(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(float)) if !number.is_u64() => Self::Float(float),
                _ => Self::Json(Arc::new(value.clone())),
            },
            Value::String(text) => Self::Str(text.as_str().into()),
            Value::Array(_) | Value::Object(_) => Self::Json(Arc::new(value.clone())),
        }
    }

    /// Returns the value as JSON.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Int(int) => Value::Number((*int).into()),
            Self::Float(float) => Number::from_f64(*float).map_or(Value::Null, Value::Number),
            Self::Str(text) => Value::String(text.to_string()),
            Self::Json(value) => (**value).clone(),
        }
    }

    /// Returns the text, or `None` for another value.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(text) = self { Some(text) } else { None }
    }

    /// Returns the number, or `None` for another value.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(int) => Some(*int as f64),
            Self::Float(float) => Some(*float),
            Self::Json(value) => value.as_f64(),
            _ => None,
        }
    }

    /// Returns the estimated memory beyond its own sixteen bytes: the value's data and its words in an index.
    fn weight(&self) -> usize {
        fn of(value: &Value) -> usize {
            32 + match value {
                Value::String(text) => 4 * text.len(),
                Value::Array(items) => items.iter().map(of).sum(),
                Value::Object(map) => map.iter().map(|(key, value)| 48 + key.len() + of(value)).sum(),
                _ => 0,
            }
        }
        match self {
            Self::Str(text) => 16 + 4 * text.len(),
            Self::Json(value) => of(value),
            _ => 0,
        }
    }

    /// Returns `true` for null.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Compares for equality as JSON; 7 equals 7.0 (R21, R22).
    ///
    /// ```
    /// use kip::datum::Datum;
    /// use serde_json::json;
    /// let of = |value| Datum::from_json(&value);
    /// assert!(of(json!(7)).same(&of(json!(7.0))));
    /// assert!(!of(json!(7)).same(&of(json!("7"))));
    /// ```
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Json(a), Self::Json(b)) => same_json(a, b),
            (Self::Int(_) | Self::Float(_) | Self::Json(_), Self::Int(_) | Self::Float(_) | Self::Json(_)) => {
                matches!((self.as_f64(), other.as_f64()), (Some(a), Some(b)) if a == b)
            }
            _ => false,
        }
    }

    /// Returns the order of two numbers or two strings; other values have none (R21).
    ///
    /// ```
    /// use kip::datum::Datum;
    /// use serde_json::json;
    /// use std::cmp::Ordering;
    /// let of = |value| Datum::from_json(&value);
    /// assert_eq!(of(json!("a")).order(&of(json!("b"))), Some(Ordering::Less));
    /// assert_eq!(of(json!("a")).order(&of(json!(1))), None);
    /// ```
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Str(a), Self::Str(b)) => Some(a.as_str().cmp(b.as_str())),
            _ => self.as_f64()?.partial_cmp(&other.as_f64()?),
        }
    }

    /// Compares in a total order for sorting: booleans, numbers, strings, arrays, objects, and null last (R31).
    ///
    /// ```
    /// use kip::datum::Datum;
    /// use serde_json::json;
    /// let mut values: Vec<Datum> = [json!("b"), json!(null), json!(2), json!(true)].iter().map(Datum::from_json).collect();
    /// values.sort_by(Datum::sort);
    /// let sorted: Vec<_> = values.iter().map(Datum::to_json).collect();
    /// assert_eq!(sorted, [json!(true), json!(2), json!("b"), json!(null)]);
    /// ```
    pub fn sort(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank()).then_with(|| match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            _ => self.order(other).unwrap_or(Ordering::Equal),
        })
    }

    /// Returns the rank of the value's kind in the sort order.
    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) | Self::Float(_) => 1,
            Self::Str(_) => 2,
            Self::Json(value) => match **value {
                Value::Array(_) => 3,
                Value::Object(_) => 4,
                _ => 1,
            },
            Self::Null => 5,
        }
    }
}

/// Compares for equality as JSON, numbers by value.
fn same_json(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same_json(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same_json(x, y)))
        }
        _ => a == b,
    }
}

/// Exact equality. 7 and 7.0 differ here, because replacing one by the other is a change.
impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Json(a), Self::Json(b)) => a == b,
            _ => false,
        }
    }
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(truth) => serializer.serialize_bool(*truth),
            Self::Int(int) => serializer.serialize_i64(*int),
            Self::Float(float) => serializer.serialize_f64(*float),
            Self::Str(text) => serializer.serialize_str(text),
            Self::Json(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Datum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Datum;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_unit<E>(self) -> Result<Datum, E> {
                Ok(Datum::Null)
            }
            fn visit_none<E>(self) -> Result<Datum, E> {
                Ok(Datum::Null)
            }
            fn visit_bool<E>(self, truth: bool) -> Result<Datum, E> {
                Ok(Datum::Bool(truth))
            }
            fn visit_i64<E>(self, int: i64) -> Result<Datum, E> {
                Ok(Datum::Int(int))
            }
            fn visit_u64<E>(self, int: u64) -> Result<Datum, E> {
                Ok(i64::try_from(int).map_or_else(|_| Datum::Json(Arc::new(int.into())), Datum::Int))
            }
            fn visit_f64<E>(self, float: f64) -> Result<Datum, E> {
                Ok(Datum::Float(float))
            }
            fn visit_str<E>(self, text: &str) -> Result<Datum, E> {
                Ok(Datum::Str(text.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Datum, A::Error> {
                let value = Value::deserialize(serde::de::value::SeqAccessDeserializer::new(seq))?;
                Ok(Datum::Json(Arc::new(value)))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Datum, A::Error> {
                let value = Value::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                Ok(Datum::Json(Arc::new(value)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Attributes or metadata: keys with values in the order in which they were first set. Clones share the memory.
#[derive(Clone, Default)]
pub struct Properties(Option<ThinArc<(), (Sym, Datum)>>);

impl Properties {
    /// Returns a bag of these pairs. Each key may occur only once.
    pub fn new(pairs: Vec<(Sym, Datum)>) -> Self {
        if pairs.is_empty() { Self(None) } else { Self(Some(ThinArc::from_header_and_iter((), pairs.into_iter()))) }
    }

    /// Returns the pairs in order.
    pub fn pairs(&self) -> &[(Sym, Datum)] {
        self.0.as_ref().map_or(&[], |shared| &shared.slice)
    }

    /// Returns the value under `key`.
    pub fn get(&self, key: Sym) -> Option<&Datum> {
        self.pairs().iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Returns the value under a key that may not be interned.
    pub fn named(&self, key: &str) -> Option<&Datum> {
        self.pairs().iter().find(|(found, _)| found.as_str() == key).map(|(_, value)| value)
    }

    /// Returns `true` if the bag has no pairs.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the estimated memory in bytes, with the index words of its texts.
    pub fn weight(&self) -> usize {
        self.pairs().iter().map(|(_, value)| 24 + value.weight()).sum()
    }

    /// Returns `true` if both bags share the same memory.
    pub fn shares(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => std::ptr::eq(a.slice.as_ptr(), b.slice.as_ptr()),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns this bag with the values of `newer` set over it, key by key (R15, R16).
    ///
    /// ```
    /// use kip::datum::Properties;
    /// use serde_json::{Map, json};
    /// let bag = |value: serde_json::Value| Properties::from_json(value.as_object().unwrap());
    /// let merged = bag(json!({"tons": 4, "flag": "PT"})).merged(&bag(json!({"tons": 5})));
    /// assert_eq!(merged.to_json(), bag(json!({"tons": 5, "flag": "PT"})).to_json());
    /// # let _: Map<String, serde_json::Value> = merged.to_json();
    /// ```
    #[must_use]
    pub fn merged(&self, newer: &Self) -> Self {
        if self.is_empty() || newer.is_empty() || self.shares(newer) {
            return if newer.is_empty() { self.clone() } else { newer.clone() };
        }
        if newer.pairs().iter().all(|(key, value)| self.get(*key) == Some(value)) {
            return self.clone();
        }
        let mut pairs = self.pairs().to_vec();
        for (key, value) in newer.pairs() {
            match pairs.iter_mut().find(|(found, _)| found == key) {
                Some((_, old)) => *old = value.clone(),
                None => pairs.push((*key, value.clone())),
            }
        }
        Self::new(pairs)
    }

    /// Returns this bag without the named keys.
    ///
    /// ```
    /// use kip::datum::Properties;
    /// use serde_json::json;
    /// let bag = Properties::from_json(json!({"tons": 4, "flag": "PT"}).as_object().unwrap());
    /// assert_eq!(bag.without(&["flag"]).to_json(), *json!({"tons": 4}).as_object().unwrap());
    /// ```
    #[must_use]
    pub fn without<S: AsRef<str>>(&self, keys: &[S]) -> Self {
        let goes = |key: &Sym| keys.iter().any(|gone| gone.as_ref() == key.as_str());
        if !self.pairs().iter().any(|(key, _)| goes(key)) {
            return self.clone();
        }
        Self::new(self.pairs().iter().filter(|(key, _)| !goes(key)).cloned().collect())
    }

    /// Returns the bag as a JSON object.
    pub fn to_json(&self) -> Map<String, Value> {
        self.pairs().iter().map(|(key, value)| (key.as_str().to_owned(), value.to_json())).collect()
    }

    /// Returns the bag of a JSON object.
    pub fn from_json(object: &Map<String, Value>) -> Self {
        Self::new(object.iter().map(|(key, value)| (Sym::new(key), Datum::from_json(value))).collect())
    }
}

impl PartialEq for Properties {
    fn eq(&self, other: &Self) -> bool {
        self.shares(other)
            || (self.pairs().len() == other.pairs().len()
                && self.pairs().iter().all(|(key, value)| other.get(*key) == Some(value)))
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.pairs().iter().map(|(key, value)| (key, value))).finish()
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.pairs().len()))?;
        for (key, value) in self.pairs() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Properties;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(0));
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Properties::new(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_takes_sixteen_bytes() {
        assert_eq!(std::mem::size_of::<Datum>(), 16);
        assert_eq!(std::mem::size_of::<Properties>(), 8);
    }

    #[test]
    fn json_comes_back_as_it_went_in() {
        for value in [
            json!(null),
            json!(true),
            json!(-3),
            json!(u64::MAX),
            json!(1.5e300),
            json!("é\u{0}"),
            json!([1, {"a": null}]),
        ] {
            assert_eq!(Datum::from_json(&value).to_json(), value);
        }
    }

    #[test]
    fn seven_is_seven_point_zero_and_never_text() {
        assert!(Datum::Int(7).same(&Datum::Float(7.0)));
        assert!(!Datum::Int(20).same(&Datum::Str("20".into())));
        assert_eq!(Datum::Int(1).order(&Datum::Str("2".into())), None);
    }
}
