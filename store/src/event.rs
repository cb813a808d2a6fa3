//! `Event`: the data type that neurons, fascicles and canvases exchange.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::principal::Cause;

/// One unit of information on its way through a mind (seed 003 §1.3 `events`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The id, unique within its job or invocation. Generated if the input has none.
    #[serde(default = "Event::fresh_id")]
    pub id: Arc<str>,
    /// The role: `user`, `assistant`, `memory`, `tool`, `system`, or a name that a fascicle defines.
    pub role: Arc<str>,
    /// The content: text, or JSON where a neuron's kind defines it.
    pub content: Value,
    /// Further data from the producer.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The cause.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub cause: Cause,
}

fn is_empty(cause: &Cause) -> bool {
    cause.0.is_empty()
}

impl Event {
    /// Returns an event with text.
    ///
    /// ```
    /// use store::{Cause, Event};
    /// let event = Event::text("user", "hello", Cause::default());
    /// assert_eq!(event.as_text(), "hello");
    /// ```
    pub fn text(role: &str, content: impl Into<String>, cause: Cause) -> Self {
        Self {
            id: Self::fresh_id(),
            role: role.into(),
            content: Value::String(content.into()),
            metadata: Map::new(),
            cause,
        }
    }

    /// Returns an event with JSON.
    pub fn json(role: &str, content: Value, cause: Cause) -> Self {
        Self { id: Self::fresh_id(), role: role.into(), content, metadata: Map::new(), cause }
    }

    /// Returns the content in the form for a model: text unchanged, anything else as compact JSON.
    pub fn as_text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    fn fresh_id() -> Arc<str> {
        format!("ev_{}", uuid::Uuid::now_v7().simple()).into()
    }
}
