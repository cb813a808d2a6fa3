//! A reader of request members that collects all faults, each with the path of its member.

use secrecy::SecretString;
use serde_json::{Map, Value};

pub(crate) use store::is_invisible;

/// Returns `true` for a text without visible characters.
fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || is_invisible(c))
}

/// A fault of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The path of the member, such as `source.urls/2`.
    pub path: String,
    /// The requirement that the member does not meet.
    pub what: String,
}

/// The members of an object that are not read yet, and the faults of those that are.
pub(crate) struct Fields {
    left: Map<String, Value>,
    faults: Vec<Fault>,
    within: String,
}

impl Fields {
    pub(crate) fn of(object: Map<String, Value>) -> Self {
        Self { left: object, faults: Vec::new(), within: String::new() }
    }

    /// Removes and returns a member. A null member counts as absent.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.left.shift_remove(key).filter(|value| !value.is_null())
    }

    pub(crate) fn fault(&mut self, path: &str, what: impl Into<String>) {
        self.faults.push(Fault { path: format!("{}{path}", self.within), what: what.into() });
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.left.get(key).is_some_and(|value| !value.is_null())
    }

    /// Reports a missing member, unless it is present with a fault.
    pub(crate) fn missing(&mut self, key: &str) {
        if !self.faults.iter().any(|fault| fault.path.starts_with(key)) {
            self.fault(key, "is missing");
        }
    }

    /// Removes and returns all remaining members.
    pub(crate) fn rest(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.left)
    }

    /// Reads a text of at most `most` characters that is not blank.
    pub(crate) fn text(&mut self, key: &str, most: usize) -> Option<String> {
        match self.take(key)? {
            Value::String(text) if !is_blank(&text) && text.chars().count() <= most => Some(text),
            _ => {
                self.fault(key, format!("is a text of 1 to {most} characters"));
                None
            }
        }
    }

    /// Reads a text. An empty text counts as absent.
    pub(crate) fn text_or_nothing(&mut self, key: &str, most: usize) -> Option<String> {
        if self.left.get(key).and_then(Value::as_str).is_some_and(is_blank) {
            self.left.shift_remove(key);
        }
        self.text(key, most)
    }

    /// Reads a secret of at most `most` characters; null removes the current secret. Fault messages do not contain it.
    pub(crate) fn secret(&mut self, key: &str, most: usize) -> Option<Option<SecretString>> {
        match self.left.shift_remove(key)? {
            Value::Null => Some(None),
            Value::String(text) if !text.is_empty() && text.chars().count() <= most => {
                Some(Some(SecretString::from(text)))
            }
            _ => {
                self.fault(key, format!("is a text of 1 to {most} characters, or null"));
                None
            }
        }
    }

    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        let value = self.take(key)?;
        if value.as_bool().is_none() {
            self.fault(key, "is true or false");
        }
        value.as_bool()
    }

    /// Reads a number within a range.
    pub(crate) fn number(&mut self, key: &str, least: f64, most: f64) -> Option<f64> {
        match self.take(key)?.as_f64().filter(|number| (least..=most).contains(number)) {
            Some(number) => Some(number),
            None => {
                self.fault(key, format!("is a number from {least} to {most}"));
                None
            }
        }
    }

    pub(crate) fn object(&mut self, key: &str) -> Option<Map<String, Value>> {
        match self.take(key)? {
            Value::Object(object) => Some(object),
            _ => {
                self.fault(key, "is an object");
                None
            }
        }
    }

    /// Reads a list of at most `most` distinct texts that pass `fits`. A single text counts as a list of one.
    pub(crate) fn texts(
        &mut self,
        key: &str,
        most: usize,
        fits: &dyn Fn(&str) -> Result<(), String>,
    ) -> Option<Vec<String>> {
        let items = match self.take(key)? {
            Value::Array(items) => items,
            text @ Value::String(_) => vec![text],
            _ => {
                self.fault(key, "is a list of texts");
                return None;
            }
        };
        if items.len() > most {
            self.fault(key, format!("has {} items, at most {most} are taken", items.len()));
            return None;
        }
        let mut texts: Vec<String> = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            let checked =
                item.as_str().ok_or_else(|| "is a text".to_owned()).and_then(|text| fits(text).map(|()| text));
            match checked {
                Ok(text) if texts.iter().any(|known| known == text) => {}
                Ok(text) => texts.push(text.to_owned()),
                Err(what) => self.fault(&format!("{key}/{at}"), what),
            }
        }
        Some(texts)
    }

    /// Reads an object in a member with a reader of its own. Its unread members are also returned.
    pub(crate) fn inner<R>(&mut self, key: &str, read: impl FnOnce(&mut Self) -> R) -> Option<(R, Map<String, Value>)> {
        let object = self.object(key)?;
        let mut inner = Self { left: object, faults: Vec::new(), within: format!("{}{key}.", self.within) };
        let done = read(&mut inner);
        self.faults.append(&mut inner.faults);
        Some((done, inner.left))
    }

    /// Returns the faults as an error, if there are any.
    pub(crate) fn end(self) -> Result<(), Vec<Fault>> {
        if self.faults.is_empty() { Ok(()) } else { Err(self.faults) }
    }
}
