//! Concepts and links, as they are held and as they are stored.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// An element's number within its nexus.
pub type No = u64;

/// Attributes and metadata.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Properties {
    /// What the element says.
    #[serde(default)]
    pub attributes: Map<String, Value>,
    /// What is known about it: source, confidence, and the engine's own `_` keys.
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

/// A concept node (K1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concept {
    /// Its type, the name of a `$ConceptType` node.
    #[serde(rename = "type")]
    pub kind: Arc<str>,
    /// Its name, unique within the type.
    pub name: Arc<str>,
    /// Its content.
    #[serde(flatten)]
    pub properties: Properties,
}

/// A proposition link (K1). Either end may be a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Where it starts.
    pub subject: No,
    /// What it says, the name of a `$PropositionType` node.
    pub predicate: Arc<str>,
    /// Where it points.
    pub object: No,
    /// Its content.
    #[serde(flatten)]
    pub properties: Properties,
}

/// A concept or a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Element {
    /// A node.
    Concept(Concept),
    /// A link.
    Link(Link),
}

impl Element {
    /// Attributes and metadata.
    pub fn properties(&self) -> &Properties {
        match self {
            Self::Concept(concept) => &concept.properties,
            Self::Link(link) => &link.properties,
        }
    }

    /// Attributes and metadata, to be changed.
    pub fn properties_mut(&mut self) -> &mut Properties {
        match self {
            Self::Concept(concept) => &mut concept.properties,
            Self::Link(link) => &mut link.properties,
        }
    }

    /// The id as KIP shows it.
    pub fn id(&self, no: No) -> String {
        match self {
            Self::Concept(_) => format!("C:{no}"),
            Self::Link(_) => format!("P:{no}"),
        }
    }
}

/// The number in an id; `None` when the text is no id.
pub fn number(id: &str) -> Option<No> {
    id.strip_prefix("C:").or_else(|| id.strip_prefix("P:"))?.parse().ok()
}

/// The whole element as KIP answers it (RESOLUTIONS §1.3). `id_of` names the ends of a link.
pub(super) fn to_json(no: No, element: &Element, id_of: impl Fn(No) -> String) -> Value {
    let properties = element.properties();
    match element {
        Element::Concept(concept) => {
            json!({"id": element.id(no), "type": concept.kind, "name": concept.name, "attributes": properties.attributes, "metadata": properties.metadata})
        }
        Element::Link(link) => {
            json!({"id": element.id(no), "subject": id_of(link.subject), "predicate": link.predicate, "object": id_of(link.object), "attributes": properties.attributes, "metadata": properties.metadata})
        }
    }
}
