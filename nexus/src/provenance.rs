//! The provenance of facts and knowledge records: the principals that are the sources of their words, and the audience
//! among which a lifeform may use them. Only a component of the daemon that knows the conversation writes a provenance,
//! never a command of a client, a tool or a model. The sources of a lifeform's own command are unknown.

use std::collections::BTreeSet;
use std::sync::Arc;

use kip::datum::{Datum, Properties, Sym};
use kip::exec::Change;
use kip::graph::{ElementRef, OWNER_KEY, Record, SCOPES_KEY};
use kip::{ErrorKind, KipError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::principal::{Principal, PrincipalKind, Role};

use crate::command::WriteAuthority;
use crate::mind::Mind;

/// The metadata key of the provenance.
pub const PROVENANCE_KEY: &str = "provenance";
/// The name of all sources outside this daemon, and of those that a list has no room for. No principal has it.
pub const OUTSIDE: &str = "outside";
/// The name of all principals that a lifeform trusts, in an audience. No principal has it.
const TRUSTED: &str = "trusted";
/// The maximum number of names in a list.
const NAMES_MAX: usize = 32;
/// The types whose elements come to a lifeform's mind without a request.
const KINDS: [&str; 2] = [FACT, "Knowledge"];
/// The type of the facts of a mind.
const FACT: &str = "Fact";
/// The concept of the lifeform itself, and its attributes that speak in prompts.
const SELF: &str = "$self";
const SPEAKS: [&str; 5] = ["name", "handle", "persona", "voice", "capabilities"];
/// The metadata that names the person who said something.
const AUTHOR_KEY: &str = "author";

/// The sources and the audience of a fact or record: see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Provenance {
    /// The principals whose words it contains; empty for the lifeform's own words.
    pub sources: BTreeSet<String>,
    /// The principals among which a lifeform may use it; `None` for every principal that may see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<BTreeSet<String>>,
}

impl Provenance {
    /// Returns the provenance of words of unknown origin. Their audience is the principals that the lifeform trusts.
    pub fn unknown() -> Self {
        Self { sources: [OUTSIDE.to_owned()].into(), audience: Some([TRUSTED.to_owned()].into()) }
    }

    /// Returns the provenance of an element made of a conversation of `people`: they are its sources and its audience.
    /// Without people, it is the lifeform's own.
    pub fn of_conversation<'a>(people: impl IntoIterator<Item = &'a str>) -> Self {
        let sources: BTreeSet<String> = people.into_iter().map(str::to_owned).collect();
        Self { audience: (!sources.is_empty()).then(|| sources.clone()), sources }
    }

    /// Reads the provenance from an element's metadata; `None` if there is none.
    pub fn of(metadata: &Properties) -> Option<Self> {
        Self::read(&metadata.named(PROVENANCE_KEY)?.to_json())
    }

    /// Reads the provenance from its stored form. A form that is not understood is of unknown origin; null is none.
    pub fn read(stored: &Value) -> Option<Self> {
        (!stored.is_null()).then(|| Self::deserialize(stored).unwrap_or_else(|_| Self::unknown()))
    }

    /// Returns the stored form. Its length is bounded: an audience beyond the bound loses members, and [`OUTSIDE`]
    /// replaces the sources beyond it.
    pub fn to_json(&self) -> Value {
        let room = if self.sources.len() > NAMES_MAX { NAMES_MAX - 1 } else { NAMES_MAX };
        let others = (self.sources.len() > room).then_some(OUTSIDE);
        let sources: Vec<&str> = self.sources.iter().map(String::as_str).take(room).chain(others).collect();
        let mut stored = json!({"sources": sources});
        if let Some(audience) = &self.audience {
            stored["audience"] = audience.iter().take(NAMES_MAX).map(String::as_str).collect();
        }
        stored
    }

    /// Returns the provenance of an element made of several: all their sources, and the common audience. An element
    /// without a provenance is of unknown origin.
    pub fn joined<'a>(elements: impl IntoIterator<Item = Option<&'a Self>>) -> Self {
        let known = |element: Option<&Self>| element.cloned().unwrap_or_else(Self::unknown);
        elements.into_iter().map(known).fold(Self::default(), |joined, one| Self {
            sources: joined.sources.into_iter().chain(one.sources).collect(),
            audience: match (joined.audience, one.audience) {
                (Some(some), Some(others)) => Some(some.intersection(&others).cloned().collect()),
                (some, others) => some.or(others),
            },
        })
    }

    /// Returns `true` if `reader` belongs to the audience. `is_trusted` is `true` for a reader that the lifeform trusts.
    pub fn is_for(&self, reader: &str, is_trusted: bool) -> bool {
        match &self.audience {
            Some(audience) => audience.contains(reader) || (is_trusted && audience.contains(TRUSTED)),
            None => true,
        }
    }
}

/// Checks that a command does not set the provenance of facts and records. Those that a lifeform's own command writes or
/// changes get the source [`OUTSIDE`], and the audience of words of unknown origin. Operators may import elements with
/// their provenance.
///
/// # Errors
/// `KIP_4003` if the command sets a provenance.
pub(crate) fn check_provenance(
    mind: &mut Mind,
    changes: &mut [Change],
    by: &Principal,
    right: WriteAuthority,
) -> Result<(), KipError> {
    let is_lifeform = by.kind == PrincipalKind::Lifeform;
    if matches!(right, WriteAuthority::Memory | WriteAuthority::Attest) || (!is_lifeform && by.may(Role::Operator)) {
        return Ok(());
    }
    for change in changes {
        let Some(Record::Concept(concept)) = &mut change.after else { continue };
        if is_lifeform && concept.kind.as_str() == "Person" && &*concept.name == SELF {
            check_self(change.before.as_ref().map(Record::look), ElementRef::Concept(concept))?;
        }
        if !KINDS.contains(&concept.kind.as_str()) {
            continue;
        }
        let before = change.before.as_ref();
        let known = before.and_then(|before| stored(before.look()));
        if stored(ElementRef::Concept(concept)) != known {
            if right == WriteAuthority::Judge {
                // A component that counts judgements and also knows the conversation.
                continue;
            }
            let what = format!("the daemon writes \"{PROVENANCE_KEY}\": no command sets it");
            return Err(KipError::new(ErrorKind::Execution, what).code("KIP_4003"));
        }
        // Only components write a person's record, and its words are the person's. Nothing guards the owner of a fact.
        let of_a_person = |owner: &str| !owner.starts_with("lifeform:");
        let is_a_persons = concept.kind.as_str() != FACT
            && concept.metadata.named(OWNER_KEY).and_then(Datum::as_str).is_some_and(of_a_person);
        let is_unchanged = before.is_some_and(|before| have_same_words(before.look(), ElementRef::Concept(concept)));
        if !is_lifeform || is_a_persons || is_unchanged {
            continue;
        }
        let mut now = Provenance::unknown();
        now.sources
            .extend(known.and_then(|known| Provenance::read(&known)).into_iter().flat_map(|known| known.sources));
        let mut marked = vec![(Sym::new(PROVENANCE_KEY), Datum::Json(Arc::new(now.to_json())))];
        if concept.kind.as_str() == FACT && concept.metadata.named(SCOPES_KEY).is_none() {
            // What a lifeform writes down may be what few people told it: no command of others reads it.
            marked.push((Sym::new(SCOPES_KEY), Datum::Json(Arc::new(json!([by.id.0])))));
        }
        concept.metadata = concept.metadata.merged(&Properties::new(marked));
        mind.write().put(change.el, Record::Concept(concept.clone()));
    }
    Ok(())
}

/// Refuses a change of what `$self` says of itself by a command of the lifeform, which a model may have written at
/// anybody's request: these words are in each of its prompts.
fn check_self(before: Option<ElementRef<'_>>, after: ElementRef<'_>) -> Result<(), KipError> {
    let of = |look: ElementRef<'_>, key: &str| look.attributes().named(key).cloned();
    let changed = SPEAKS.iter().find(|key| before.and_then(|before| of(before, key)) != of(after, key));
    match changed {
        None => Ok(()),
        Some(key) => {
            let what =
                format!("{key} of \"{SELF}\" is in every prompt of the lifeform, so no command of its own changes it");
            let hint = "it grows by reflection at night; an operator may set it";
            Err(KipError::new(ErrorKind::Immutable, what).hint(hint))
        }
    }
}

/// Returns `true` if two states of an element have the same words, by the same author.
fn have_same_words(one: ElementRef<'_>, other: ElementRef<'_>) -> bool {
    let author = |look: ElementRef<'_>| look.metadata().named(AUTHOR_KEY).cloned();
    one.attributes() == other.attributes() && author(one) == author(other)
}

/// Returns the stored provenance of an element; `None` if there is none.
fn stored(look: ElementRef<'_>) -> Option<Value> {
    look.metadata().named(PROVENANCE_KEY).map(Datum::to_json).filter(|stored| !stored.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_count_as_outside() {
        let people: Vec<String> = (0..40).map(|n| format!("user:{n:02}")).collect();
        let stored = Provenance::of_conversation(people.iter().map(String::as_str)).to_json();
        assert_eq!(stored["audience"].as_array().unwrap().len(), NAMES_MAX);
        assert_eq!(stored["sources"].as_array().unwrap().len(), NAMES_MAX);
        assert_eq!(stored["sources"][NAMES_MAX - 1], OUTSIDE);
        assert_eq!(Provenance::of_conversation([]).to_json(), json!({"sources": []}));
    }

    #[test]
    fn several_sources_are_told_to_those_of_each() {
        let ada_and_bob = Provenance::of_conversation(["user:ada", "user:bob"]);
        let ada = Provenance::of_conversation(["user:ada"]);
        let joined = Provenance::joined([Some(&ada_and_bob), Some(&ada)]);
        assert_eq!(joined.audience, Some(["user:ada".to_owned()].into()));
        assert_eq!(joined.sources.len(), 2);
        let own = Provenance::default();
        assert_eq!(Provenance::joined([Some(&own), Some(&ada)]), ada);
        let unknown = Provenance::joined([Some(&ada), None]);
        assert_eq!(unknown.audience, Some(BTreeSet::new()));
        assert!(unknown.sources.contains(OUTSIDE));
        assert!(!unknown.is_for("user:ada", true));
        assert!(Provenance::unknown().is_for("user:operator", true));
        assert!(!Provenance::unknown().is_for("user:ada", false));
    }
}
