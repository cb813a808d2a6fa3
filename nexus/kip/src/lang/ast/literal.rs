//! Literals of KIP.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::Text;
use crate::datum::{Datum, Properties, Sym};
use crate::lang::error::Span;

/// A literal value: JSON, or a placeholder that `bind` replaces.
#[derive(Clone, Debug, PartialEq)]
pub enum Lit<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Num(serde_json::Number),
    /// A string.
    Str(Text<'a>),
    /// An array.
    Array(Vec<Lit<'a>>),
    /// An object; keys may be bare (U3).
    Object(Object<'a>),
    /// `$name` or `:name`.
    Param(&'a str, Span),
}

/// The members of an object. Each key occurs once.
pub type Object<'a> = Vec<(Text<'a>, Lit<'a>)>;

/// A value of a clause with its place in the text.
pub type Placed<'a> = (Lit<'a>, Span);

impl<'a> Lit<'a> {
    /// Returns the literal of a parameter's value.
    pub fn from_json(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => number.as_i64().map_or_else(|| Self::Num(number.clone()), Self::Int),
            Value::String(text) => Self::Str(Cow::Borrowed(text)),
            Value::Array(items) => Self::Array(items.iter().map(Self::from_json).collect()),
            Value::Object(members) => Self::Object(
                members.iter().map(|(key, value)| (Cow::Borrowed(key.as_str()), Self::from_json(value))).collect(),
            ),
        }
    }

    /// Returns the text, or `None` for another value.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Str(text) = self { Some(text) } else { None }
    }

    /// Returns the literal as JSON; an unbound placeholder is null.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Null | Self::Param(..) => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Int(int) => (*int).into(),
            Self::Num(number) => Value::Number(number.clone()),
            Self::Str(text) => Value::String(text.to_string()),
            Self::Array(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Self::Object(members) => {
                Value::Object(members.iter().map(|(key, value)| (key.to_string(), value.to_json())).collect())
            }
        }
    }

    /// Returns the literal as a value of the graph.
    pub fn to_datum(&self) -> Datum {
        match self {
            Self::Null | Self::Param(..) => Datum::Null,
            Self::Bool(truth) => Datum::Bool(*truth),
            Self::Int(int) => Datum::Int(*int),
            Self::Str(text) => Datum::Str((&**text).into()),
            Self::Num(_) => Datum::from_json(&self.to_json()),
            Self::Array(_) | Self::Object(_) => Datum::Json(Arc::new(self.to_json())),
        }
    }
}

/// Returns an object as a bag.
pub fn bag(object: &Object<'_>) -> Properties {
    Properties::new(object.iter().map(|(key, value)| (Sym::new(key), value.to_datum())).collect())
}
