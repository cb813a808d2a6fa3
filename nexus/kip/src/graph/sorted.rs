//! A secondary index: the concepts of one type in the order of one attribute. The writer builds it when a query
//! filters or sorts many concepts by that attribute, and keeps it.

use std::cmp::Ordering;
use std::ops::Bound;

use arcstr::ArcStr;
use imbl::OrdSet;
use serde_json::Value;

use super::ElementId;
use crate::datum::{Datum, Sym};

/// A value as a key of the index, in the order of [`Datum::sort`]; null is not indexed.
#[derive(Clone, Debug)]
pub enum Place {
    /// A boolean.
    Bool(bool),
    /// A number. Two whole numbers beyond 2⁵³ may have the same key; the query compares the values again.
    Number(f64),
    /// A text.
    Text(ArcStr),
    /// An array or object, which have no order among themselves.
    Other(u8),
}

impl Place {
    /// Returns the key of a value; `None` for null.
    pub fn of(value: &Datum) -> Option<Self> {
        match value {
            Datum::Null => None,
            Datum::Bool(truth) => Some(Self::Bool(*truth)),
            Datum::Int(int) => Some(Self::Number(*int as f64)),
            Datum::Float(float) => Some(Self::Number(*float)),
            Datum::Str(text) => Some(Self::Text(text.clone())),
            Datum::Json(json) => match &**json {
                Value::Array(_) => Some(Self::Other(3)),
                Value::Object(_) => Some(Self::Other(4)),
                number => number.as_f64().map(Self::Number),
            },
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::Text(_) => 3,
            Self::Other(rank) => 4 + rank,
        }
    }
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            // -0.0 equals 0.0, as in a query.
            (Self::Number(a), Self::Number(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Self::Text(a), Self::Text(b)) => a.as_str().cmp(b.as_str()),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Place {}

/// A concept with its key.
pub type Entry = (Place, ElementId);

/// A range of keys.
pub type Range = (Bound<Place>, Bound<Place>);

/// A request for a batch of the index.
pub struct Batch<'q> {
    /// The type of the concepts.
    pub kind: Sym,
    /// The attribute.
    pub key: Sym,
    /// The range of keys.
    pub range: &'q Range,
    /// `true` if the greatest values come first.
    pub descending: bool,
    /// The last entry of the previous batch.
    pub after: Option<&'q (Place, ElementId)>,
    /// The maximum number of entries in the batch.
    pub max: usize,
}

/// A secondary index; see the module documentation.
#[derive(Clone, Default)]
pub struct Sorted {
    entries: OrdSet<(Place, ElementId)>,
}

impl Sorted {
    /// Adds the value of a concept.
    pub fn insert(&mut self, value: &Datum, el: ElementId) {
        if let Some(place) = Place::of(value) {
            self.entries.insert((place, el));
        }
    }

    /// Removes the value of a concept.
    pub fn remove(&mut self, value: &Datum, el: ElementId) {
        if let Some(place) = Place::of(value) {
            self.entries.remove(&(place, el));
        }
    }

    /// Returns the number of concepts with a value.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if no concept has a value.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries of a batch in the requested order.
    pub fn batch(&self, batch: &Batch<'_>) -> Vec<(Place, ElementId)> {
        let Some((low, high)) = batch.bounds() else { return Vec::new() };
        let found = self.entries.range((low, high));
        if batch.descending {
            found.rev().take(batch.max).cloned().collect()
        } else {
            found.take(batch.max).cloned().collect()
        }
    }
}

impl Batch<'_> {
    /// Returns the bounds of the entries in the batch; `None` if there can be none.
    pub fn bounds(&self) -> Option<(Bound<Entry>, Bound<Entry>)> {
        let mut low = match &self.range.0 {
            Bound::Unbounded => Bound::Included((Place::Bool(false), ElementId(0))),
            Bound::Included(place) => Bound::Included((place.clone(), ElementId(0))),
            Bound::Excluded(place) => Bound::Excluded((place.clone(), ElementId(u32::MAX))),
        };
        let mut high = match &self.range.1 {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(place) => Bound::Included((place.clone(), ElementId(u32::MAX))),
            Bound::Excluded(place) => Bound::Excluded((place.clone(), ElementId(0))),
        };
        match self.after {
            Some(last) if self.descending => high = Bound::Excluded(last.clone()),
            Some(last) => low = Bound::Excluded(last.clone()),
            None => {}
        }
        (!empty(&low, &high)).then_some((low, high))
    }
}

/// Returns `true` if no entry can lie between the bounds. A tree may reject such a range.
fn empty(low: &Bound<(Place, ElementId)>, high: &Bound<(Place, ElementId)>) -> bool {
    match (low, high) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b)) | (Bound::Excluded(a), Bound::Included(b)) => {
            a >= b
        }
        _ => false,
    }
}
