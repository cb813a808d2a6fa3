//! The canvases of a lifeform, and the answers that it is writing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::Text;
use crate::canvas::Canvas;

/// The canvases that a lifeform takes part in, by `{lifeform}/{canvas}`.
#[derive(Clone, Default)]
pub(crate) struct Canvases(Arc<RwLock<BTreeMap<Arc<str>, Canvas>>>);

impl Canvases {
    /// Returns the canvas with a given name.
    pub(crate) fn get(&self, name: &str) -> Option<Canvas> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Adds a canvas that the lifeform takes part in.
    pub(crate) fn join(&self, canvas: Canvas) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(canvas.name().into(), canvas);
    }

    /// Removes a canvas that the lifeform takes part in.
    pub(crate) fn leave(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns all canvases.
    pub(crate) fn all(&self) -> Vec<Canvas> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// The texts of answers in progress. The canvas may contain less of them.
#[derive(Clone, Default)]
pub(crate) struct Speaking(Arc<Mutex<BTreeMap<Arc<str>, Text>>>);

impl Speaking {
    pub(super) fn texts(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Text>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the text of a message.
    pub(super) fn begin(&self, message: &Arc<str>) -> Text {
        let text = Text::default();
        self.texts().insert(message.clone(), text.clone());
        text
    }

    /// Returns `true` if a message has some text.
    pub(crate) fn has_said(&self, message: &str) -> bool {
        let text = self.texts().get(message).cloned();
        text.is_some_and(|text| !text.lock().unwrap_or_else(PoisonError::into_inner).trim().is_empty())
    }

    /// Ends the text of a message and returns it.
    pub(crate) fn end(&self, message: &str) -> Option<String> {
        let text = self.texts().remove(message)?;
        let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (!text.trim().is_empty()).then_some(text)
    }
}
