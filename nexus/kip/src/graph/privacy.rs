//! The private attributes of a person, by its `privacy_settings`: `{"email_visibility": "private"}` hides `email`, and
//! `profile_visibility` decides on all attributes without a setting of their own. `interaction_summary` is private without
//! one. Only the person itself, the owner of the mind and operators read a private attribute; no search finds an element by
//! it.
//!
//! Source: KIP v1.0, appendix 3.1, type `Person`.

use serde_json::Value;

use super::{Concept, ElementRef};
use crate::datum::Datum;

/// The attribute with the settings.
const SETTINGS: &str = "privacy_settings";
/// The end of the key of a setting, after the name of the attribute that it decides on.
const VISIBILITY: &str = "_visibility";
/// The setting of all attributes without one of their own.
const PROFILE: &str = "profile_visibility";
/// The value of a setting that hides.
const PRIVATE: &str = "private";
/// The attribute that is private unless a setting says otherwise: when, how often and about what a person speaks.
const SUMMARY: &str = "interaction_summary";
/// The attributes that no setting hides, because commands need them to tell persons apart.
const SHOWN: [&str; 3] = ["id", "person_class", SETTINGS];

/// The settings of a person of whom something is private.
#[derive(Clone, Copy)]
pub(super) struct Privacy<'p> {
    settings: Option<&'p Value>,
    person: &'p Concept,
}

impl<'p> Privacy<'p> {
    /// Returns the settings of an element; `None` unless it is a person with a private attribute.
    pub(super) fn of(look: ElementRef<'p>) -> Option<Self> {
        let ElementRef::Concept(person) = look else { return None };
        if person.kind.as_str() != "Person" {
            return None;
        }
        let object = |key: &str| match person.attributes.named(key) {
            Some(Datum::Json(value)) => value.as_object().map(|object| (&**value, object)),
            _ => None,
        };
        let settings = object(SETTINGS);
        let hides = settings.is_some_and(|(_, all)| all.values().any(|visibility| visibility == PRIVATE));
        let has_summary = object(SUMMARY).is_some_and(|(_, summary)| !summary.is_empty());
        (hides || has_summary).then_some(Self { settings: settings.map(|(value, _)| value), person })
    }

    /// Returns `true` if an attribute is private.
    pub(super) fn hides(self, key: &str) -> bool {
        let setting = |key: &str| self.settings.and_then(|settings| settings.get(key)?.as_str());
        let is_private = match setting(&format!("{key}{VISIBILITY}")) {
            Some(own) => own == PRIVATE,
            None => key == SUMMARY || setting(PROFILE) == Some(PRIVATE),
        };
        is_private && !SHOWN.contains(&key)
    }

    /// Returns the principal whose attributes these are.
    pub(super) fn principal(self) -> &'p str {
        self.person.attributes.named("id").and_then(Datum::as_str).unwrap_or(&self.person.name)
    }
}
