//! Claims as a statement makes them, before it is known which concepts they are about.

use std::borrow::Cow;
use std::fmt;

use super::vocabulary::Relation;

/// A kind of concept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person.
    Person,
    /// A company, a club or a school.
    Organization,
    /// A place.
    Place,
    /// A thing or an animal.
    Thing,
    /// A kind, a field or an activity.
    Theme,
}

impl Kind {
    /// Returns the type of the concepts. An organization is a `Person` of its own class.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Person | Self::Organization => "Person",
            Self::Place => "Place",
            Self::Thing => "Thing",
            Self::Theme => "Theme",
        }
    }
}

/// A concept as a statement mentions it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mention {
    /// The person who speaks.
    Speaker,
    /// The person who was last spoken of: "she".
    Last,
    /// A concept with a name.
    Named(Kind, String),
    /// A person by its relation to another: "my sister Henrike".
    Related {
        /// The other person.
        of: Box<Mention>,
        /// The relation.
        relation: &'static Relation,
        /// The name, if it is said.
        name: Option<String>,
    },
    /// A thing or an animal of a person: "my boat Petrel".
    Owned {
        /// The owner.
        of: Box<Mention>,
        /// The kind: "boat".
        kind: String,
        /// The name, if it is said.
        name: Option<String>,
    },
}

impl Mention {
    /// Returns the mention of a person by its relation to another.
    pub(crate) fn related(of: Self, relation: &'static Relation, name: Option<String>) -> Self {
        Self::Related { of: Box::new(of), relation, name }
    }

    /// Returns the mention of a person with a name.
    pub(crate) fn person(name: impl Into<String>) -> Self {
        Self::Named(Kind::Person, name.into())
    }

    /// Returns the mention of a theme.
    pub(crate) fn theme(name: impl Into<String>) -> Self {
        Self::Named(Kind::Theme, name.into())
    }

    /// Returns the name by which it is mentioned, if it has one.
    pub(crate) fn own_name(&self) -> Option<&str> {
        match self {
            Self::Speaker | Self::Last => None,
            Self::Named(_, name) => Some(name),
            Self::Related { name, .. } | Self::Owned { name, .. } => name.as_deref(),
        }
    }

    /// Returns the same mention with a name.
    pub(crate) fn with_name(self, called: String) -> Self {
        match self {
            Self::Related { of, relation, .. } => Self::Related { of, relation, name: Some(called) },
            Self::Owned { of, kind, .. } => Self::Owned { of, kind, name: Some(called) },
            other => other,
        }
    }

    /// Returns the mention with the one person of whom "she" speaks; itself if the sentence named none before, and `None` if it named
    /// several.
    pub(crate) fn of_last(self, persons: &[Self]) -> Option<Self> {
        match (self, persons) {
            (Self::Last, []) => Some(Self::Last),
            (Self::Last, [one]) => Some(one.clone()),
            (Self::Last, _) => None,
            (Self::Related { of, relation, name }, _) => Some(Self::related(of.of_last(persons)?, relation, name)),
            (Self::Owned { of, kind, name }, _) => Some(Self::Owned { of: Box::new(of.of_last(persons)?), kind, name }),
            (other, _) => Some(other),
        }
    }

    /// Returns `true` if it mentions a person.
    pub(crate) fn is_person(&self) -> bool {
        matches!(self, Self::Speaker | Self::Last | Self::Named(Kind::Person, _) | Self::Related { .. })
    }

    /// Returns the claims that the mention itself makes: "my sister" is a relative of the speaker.
    pub(crate) fn implied(&self) -> Vec<Claim> {
        match self {
            Self::Related { of, relation, .. } => {
                let mut claims = of.implied();
                claims.push(Claim::new((**of).clone(), relation.predicate, self.clone()));
                claims
            }
            // A thing without a name may be any.
            Self::Owned { of, name: Some(_), .. } => {
                let mut claims = of.implied();
                claims.push(Claim::new((**of).clone(), "owns", self.clone()));
                claims
            }
            Self::Owned { of, .. } => of.implied(),
            _ => Vec::new(),
        }
    }
}

/// A claim as a statement makes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    /// The subject.
    pub(crate) subject: Mention,
    /// The predicate.
    pub(crate) predicate: Cow<'static, str>,
    /// The object.
    pub(crate) object: Mention,
}

impl Claim {
    /// Returns a claim.
    pub(crate) fn new(subject: Mention, predicate: impl Into<Cow<'static, str>>, object: Mention) -> Self {
        Self { subject, predicate: predicate.into(), object }
    }
}

impl fmt::Display for Mention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |name: &Option<String>| name.as_ref().map_or_else(String::new, |name| format!("({name})"));
        match self {
            Self::Speaker => f.write_str("I"),
            Self::Last => f.write_str("she"),
            Self::Named(_, name) => f.write_str(name),
            Self::Related { of, relation, name } => write!(f, "{of}.{}{}", relation.name, named(name)),
            Self::Owned { of, kind, name } => write!(f, "{of}.{kind}{}", named(name)),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object.to_string();
        let own = object.strip_prefix(&format!("{}.", self.subject)).unwrap_or(&object);
        write!(f, "{} {} {own}", self.subject, self.predicate)
    }
}
