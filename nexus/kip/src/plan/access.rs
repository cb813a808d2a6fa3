//! Access to a value by a path of the query: a slot, and a field of the element in it.

use crate::datum::{Datum, Sym};
use crate::graph::{ElementId, ElementRef, GraphRead, Ids};
use crate::lang::ast::{Path, Text};

/// A value of a row.
#[derive(Clone, Debug)]
pub struct Access {
    /// The slot.
    pub slot: usize,
    /// The field of the element.
    pub field: Field,
    /// `true` if the slot holds a predicate's name.
    pub holds_name: bool,
}

/// A field of an element.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// The whole of it.
    Whole,
    /// The id.
    Id,
    /// A concept's type.
    Type,
    /// A concept's name.
    Name,
    /// The id of a link's subject.
    Subject,
    /// A link's predicate.
    Predicate,
    /// The id of a link's object.
    Object,
    /// All attributes (R32).
    Attributes,
    /// One attribute, and the path inside it. `None` is a key that was never interned.
    Attribute(Option<Sym>, Vec<String>),
    /// All metadata.
    Metadata,
    /// One key of the metadata, and the path inside it.
    MetadataKey(String, Vec<String>),
}

impl Field {
    /// Returns the field that a path names; `None` for a field that no element has.
    pub fn of(path: &Path<'_>) -> Option<Self> {
        let texts = |fields: &[Text<'_>]| fields.iter().map(|field| field.to_string()).collect();
        let fields = path.fields.as_slice();
        let Some(first) = fields.first() else { return Some(Self::Whole) };
        let rest = &fields[1..];
        Some(match (&**first, rest) {
            ("attributes", []) => Self::Attributes,
            ("attributes", [key, deeper @ ..]) => Self::Attribute(Sym::known(key), texts(deeper)),
            ("metadata", []) => Self::Metadata,
            ("metadata", [key, deeper @ ..]) => Self::MetadataKey(key.to_string(), texts(deeper)),
            ("id", []) => Self::Id,
            ("type", []) => Self::Type,
            ("name", []) => Self::Name,
            ("subject", []) => Self::Subject,
            ("predicate", []) => Self::Predicate,
            ("object", []) => Self::Object,
            _ => return None,
        })
    }

    /// Returns the field's value in an element.
    pub fn of_element(&self, el: ElementId, look: ElementRef<'_>, ids: &Ids) -> Datum {
        let text = |text: &str| Datum::Str(text.into());
        match (self, look) {
            (Self::Id, _) => text(&ids.show(el)),
            (Self::Name, ElementRef::Concept(concept)) => Datum::Str(concept.name.clone()),
            (Self::Type, ElementRef::Concept(concept)) => text(concept.kind.as_str()),
            (Self::Subject, ElementRef::Link(link)) => text(&ids.show(link.subject)),
            (Self::Object, ElementRef::Link(link)) => text(&ids.show(link.object)),
            (Self::Predicate, ElementRef::Link(link)) => text(link.predicate.as_str()),
            (Self::Attribute(Some(key), deeper), _) => inside(look.attributes().get(*key), deeper),
            (Self::MetadataKey(key, deeper), _) => inside(Some(&look.metadata_key(key)), deeper),
            (Self::Whole, _) => Datum::from_json(&look.to_json(el, ids)),
            (Self::Attributes, _) => Datum::from_json(&look.attributes().to_json().into()),
            (Self::Metadata, _) => Datum::from_json(&look.metadata_json().into()),
            _ => Datum::Null,
        }
    }
}

fn inside(value: Option<&Datum>, deeper: &[String]) -> Datum {
    let Some(value) = value else { return Datum::Null };
    if deeper.is_empty() {
        return value.clone();
    }
    let Datum::Json(json) = value else { return Datum::Null };
    deeper.iter().try_fold(&**json, |value, key| value.get(key)).map_or(Datum::Null, Datum::from_json)
}

impl Access {
    /// Calls `see` with the value in a row; attributes are not copied.
    pub fn look<R>(&self, row: &[u32], names: &[Sym], graph: &dyn GraphRead, see: impl FnOnce(&Datum) -> R) -> R {
        let Field::Attribute(Some(key), deeper) = &self.field else { return see(&self.get(row, names, graph)) };
        let (at, mut see) = (row[self.slot], Some(see));
        let mut seen = None;
        if at != 0 && !self.holds_name && deeper.is_empty() {
            graph.look(ElementId(at), &mut |look| {
                if let Some(see) = see.take() {
                    seen = Some(see(look.attributes().get(*key).unwrap_or(&Datum::Null)));
                }
            });
        }
        match (seen, see) {
            (Some(seen), _) => seen,
            (None, Some(see)) => see(&self.get(row, names, graph)),
            (None, None) => unreachable!("whoever saw has an answer"),
        }
    }

    /// Returns the value in a row; a missing value is null (RESOLUTIONS §1.2).
    pub fn get(&self, row: &[u32], names: &[Sym], graph: &dyn GraphRead) -> Datum {
        let at = row[self.slot];
        if at == 0 {
            return Datum::Null;
        }
        if self.holds_name {
            let name = names.get(at as usize - 1).filter(|_| self.field == Field::Whole);
            return name.map_or(Datum::Null, |name| Datum::Str(name.as_str().into()));
        }
        let el = ElementId(at);
        let mut value = Datum::Null;
        let ids = graph.ids();
        graph.look(el, &mut |look| value = self.field.of_element(el, look, &ids));
        value
    }
}
