//! Concepts and links as the graph stores them (K1), with the engine's data about them.

use std::sync::Arc;

use arcstr::ArcStr;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Ids;
use crate::datum::{Datum, Properties, Sym};

/// The number of an element within its graph; [`Ids`] convert it to an opaque id. Numbers are below 2^30, assigned in
/// order of creation, and never reused; 0 means no element. A graph may point into the shared graph, the commons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ElementId(pub u32);

/// The estimated number of elements that share one bag of metadata. A command usually sets the metadata once for all
/// its elements.
const METADATA_SHARED_BY: usize = 16;

/// The bit that marks the number of a link.
const LINK: u32 = 1 << 31;
/// The bit that marks the number of a commons element in another graph.
const ABROAD: u32 = 1 << 30;
/// The number space of concepts, and of links.
pub(super) const NUMBERS: u32 = ABROAD;

impl ElementId {
    /// The null element.
    pub const NONE: Self = Self(0);
    /// The lower bound of all links; greater than every concept.
    pub const FIRST_LINK: Self = Self(LINK);

    /// Returns concept number `no`.
    #[inline]
    pub fn concept(no: u32) -> Self {
        Self(no)
    }

    /// Returns link number `no`.
    #[inline]
    pub fn link(no: u32) -> Self {
        Self(no | LINK)
    }

    /// Returns `true` for a link.
    #[inline]
    pub fn is_link(self) -> bool {
        self.0 & LINK != 0
    }

    /// Returns the number of the element among its own kind.
    #[inline]
    pub fn no(self) -> u32 {
        self.0 & !LINK
    }

    /// Returns `true` for an element of the commons in the numbering of another graph.
    #[inline]
    pub fn is_abroad(self) -> bool {
        self.0 & ABROAD != 0
    }

    /// Converts a number of the commons to the numbering of other graphs.
    #[inline]
    pub fn abroad(self) -> Self {
        Self(self.0 | ABROAD)
    }

    /// Converts a number of a commons element to the numbering of the commons itself.
    #[inline]
    pub fn home(self) -> Self {
        Self(self.0 & !ABROAD)
    }
}

/// The stamp that the engine keeps for an element: its creation time and its later changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Stamp {
    /// The creation time, in microseconds since 1970.
    pub created: i64,
    /// Later changes; `None` if the element was not changed since its creation.
    pub later: Option<Arc<Later>>,
}

/// The changes of an element since its creation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Later {
    /// The version, from 2 on.
    pub version: u64,
    /// The time of the last change, in microseconds since 1970.
    pub updated: i64,
    /// The metadata of a link by source, once there is more than one source.
    #[serde(default)]
    pub claims: Vec<(ArcStr, Properties)>,
    /// The names of elements that were merged into this one (superset 10).
    #[serde(default)]
    pub merged_from: Vec<ArcStr>,
}

impl Stamp {
    /// Returns the stamp of an element that is created at `now`, in microseconds since 1970.
    pub fn new(now: i64) -> Self {
        Self { created: now, later: None }
    }

    /// Returns the version: 1 at creation, incremented by every change.
    pub fn version(&self) -> u64 {
        self.later.as_ref().map_or(1, |later| later.version)
    }

    /// Returns the time of the last change, in microseconds since the epoch.
    pub fn updated(&self) -> i64 {
        self.later.as_ref().map_or(self.created, |later| later.updated)
    }

    /// Increments the version and sets the time of the change.
    pub fn touch(&mut self, now: i64) -> &mut Later {
        let version = self.version() + 1;
        let later = Arc::make_mut(self.later.get_or_insert_default());
        later.version = version;
        later.updated = now;
        later
    }
}

/// Formats a time, in microseconds since 1970, as KIP output.
pub fn shown(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| micros.to_string(), |time| time.to_string())
}

/// A concept node (K1).
#[derive(Clone, Debug, PartialEq)]
pub struct Concept {
    /// The type: the name of a `$ConceptType` node.
    pub kind: Sym,
    /// The name, unique within the type.
    pub name: ArcStr,
    /// The attributes.
    pub attributes: Properties,
    /// The metadata.
    pub metadata: Properties,
    /// The stamp of the engine.
    pub stamp: Stamp,
}

/// A proposition link (K1). Either end may be a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The subject.
    pub subject: ElementId,
    /// The object.
    pub object: ElementId,
    /// The predicate: the name of a `$PropositionType` node.
    pub predicate: Sym,
    /// The attributes.
    pub attributes: Properties,
    /// The metadata.
    pub metadata: Properties,
    /// The stamp of the engine.
    pub stamp: Stamp,
}

/// A concept or a link, owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A node.
    Concept(Concept),
    /// A link.
    Link(Link),
}

/// A borrowed concept or link.
#[derive(Clone, Copy, Debug)]
pub enum ElementRef<'g> {
    /// A node.
    Concept(&'g Concept),
    /// A link.
    Link(&'g Link),
}

impl Record {
    /// Returns a borrowed view.
    pub fn look(&self) -> ElementRef<'_> {
        match self {
            Self::Concept(concept) => ElementRef::Concept(concept),
            Self::Link(link) => ElementRef::Link(link),
        }
    }

    /// Returns attributes, metadata and stamp for modification.
    pub fn parts(&mut self) -> (&mut Properties, &mut Properties, &mut Stamp) {
        match self {
            Self::Concept(concept) => (&mut concept.attributes, &mut concept.metadata, &mut concept.stamp),
            Self::Link(link) => (&mut link.attributes, &mut link.metadata, &mut link.stamp),
        }
    }
}

impl<'g> ElementRef<'g> {
    /// Returns the type of a concept or the predicate of a link.
    pub fn kind(self) -> Sym {
        match self {
            Self::Concept(concept) => concept.kind,
            Self::Link(link) => link.predicate,
        }
    }

    /// Returns the estimated memory of the element in a resident graph, in bytes: edges at both ends and index words
    /// included.
    pub fn weight(self) -> usize {
        let own = match self {
            Self::Concept(concept) => 220 + 4 * concept.name.len(),
            Self::Link(_) => 130,
        };
        own + self.attributes().weight() + self.metadata().weight() / METADATA_SHARED_BY
    }

    /// Returns the attributes.
    pub fn attributes(self) -> &'g Properties {
        match self {
            Self::Concept(concept) => &concept.attributes,
            Self::Link(link) => &link.attributes,
        }
    }

    /// Returns the metadata, without the engine's own keys.
    pub fn metadata(self) -> &'g Properties {
        match self {
            Self::Concept(concept) => &concept.metadata,
            Self::Link(link) => &link.metadata,
        }
    }

    /// Returns the stamp of the engine.
    pub fn stamp(self) -> &'g Stamp {
        match self {
            Self::Concept(concept) => &concept.stamp,
            Self::Link(link) => &link.stamp,
        }
    }

    /// Returns an owned copy.
    pub fn record(self) -> Record {
        match self {
            Self::Concept(concept) => Record::Concept(concept.clone()),
            Self::Link(link) => Record::Link(link.clone()),
        }
    }

    /// Returns the value of a metadata key; the engine's own keys are included.
    pub fn metadata_key(self, key: &str) -> Datum {
        if !key.starts_with('_') {
            return self.metadata().named(key).cloned().unwrap_or_default();
        }
        let stamp = self.stamp();
        match key {
            "_version" => Datum::Int(stamp.version() as i64),
            "_created_at" => Datum::Str(shown(stamp.created).into()),
            "_updated_at" => Datum::Str(shown(stamp.updated()).into()),
            "_claims" => self.claims().map_or(Datum::Null, |claims| Datum::Json(Arc::new(claims.into()))),
            "_merged_from" => match &stamp.later {
                Some(later) if !later.merged_from.is_empty() => {
                    Datum::Json(Arc::new(later.merged_from.iter().map(ArcStr::as_str).collect()))
                }
                _ => Datum::Null,
            },
            _ => Datum::Null,
        }
    }

    /// Returns the metadata of a link by source. With a single source, returns the metadata of the link itself.
    pub fn claims(self) -> Option<Map<String, Value>> {
        let Self::Link(link) = self else { return None };
        match &link.stamp.later {
            Some(later) if !later.claims.is_empty() => {
                Some(later.claims.iter().map(|(source, bag)| (source.to_string(), bag.to_json().into())).collect())
            }
            _ => {
                let source = source_of(&link.metadata)?;
                Some(Map::from_iter([(source.to_string(), link.metadata.to_json().into())]))
            }
        }
    }

    /// Returns all metadata in the form of KIP output.
    pub fn metadata_json(self) -> Map<String, Value> {
        let mut shown_bag = self.metadata().to_json();
        for key in ["_version", "_created_at", "_updated_at", "_claims", "_merged_from"] {
            let value = self.metadata_key(key);
            if !value.is_null() {
                shown_bag.insert(key.into(), value.to_json());
            }
        }
        shown_bag
    }

    /// Returns the whole element in the form of KIP output (RESOLUTIONS §1.3).
    pub fn to_json(self, el: ElementId, ids: &Ids) -> Value {
        let (attributes, metadata) = (self.attributes().to_json(), self.metadata_json());
        match self {
            Self::Concept(concept) => {
                json!({
                    "id": ids.show(el),
                    "type": concept.kind,
                    "name": concept.name.as_str(),
                    "attributes": attributes,
                    "metadata": metadata,
                })
            }
            Self::Link(link) => {
                json!({
                    "id": ids.show(el),
                    "subject": ids.show(link.subject),
                    "predicate": link.predicate,
                    "object": ids.show(link.object),
                    "attributes": attributes,
                    "metadata": metadata,
                })
            }
        }
    }
}

/// Returns the source in some metadata: the value of `source`, if it is a single text.
pub fn source_of(metadata: &Properties) -> Option<ArcStr> {
    match metadata.named("source") {
        Some(Datum::Str(source)) => Some(source.clone()),
        _ => None,
    }
}

/// The stored form of a record: one packed row with keys by name, so that it can be read without the graph.
#[derive(Serialize, Deserialize)]
enum Row<'r> {
    #[serde(rename = "c")]
    Concept(Sym, std::borrow::Cow<'r, str>, Properties, Properties, i64, Option<Arc<Later>>),
    #[serde(rename = "l")]
    Link(ElementId, Sym, ElementId, Properties, Properties, i64, Option<Arc<Later>>),
}

impl Serialize for Record {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = match self.clone() {
            Self::Concept(c) => {
                return Row::Concept(
                    c.kind,
                    c.name.as_str().into(),
                    c.attributes,
                    c.metadata,
                    c.stamp.created,
                    c.stamp.later,
                )
                .serialize(serializer);
            }
            Self::Link(l) => {
                Row::Link(l.subject, l.predicate, l.object, l.attributes, l.metadata, l.stamp.created, l.stamp.later)
            }
        };
        row.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Row::deserialize(deserializer)? {
            Row::Concept(kind, name, attributes, metadata, created, later) => Self::Concept(Concept {
                kind,
                name: (&*name).into(),
                attributes,
                metadata,
                stamp: Stamp { created, later },
            }),
            Row::Link(subject, predicate, object, attributes, metadata, created, later) => {
                Self::Link(Link { subject, predicate, object, attributes, metadata, stamp: Stamp { created, later } })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_small() {
        assert_eq!(std::mem::size_of::<Option<Concept>>(), 48);
        assert_eq!(std::mem::size_of::<Option<Link>>(), 48);
    }
}
