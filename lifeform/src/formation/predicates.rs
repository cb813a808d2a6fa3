//! The predicates of a mind's own, which a model proposes where the vocabulary has none that fits. Such a predicate is a draft
//! until enough claims and statements use it. Their number is bounded, and only people who heard a statement that uses one see it.

use std::collections::BTreeSet;

use nexus::NexusError;
use nexus::kip::graph::text::terms;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Origin, Timestamp};

use super::FORMATION;
use super::mention::Kind;
use super::vocabulary::{RELATIONS, SAME_AS, claimed_predicates};
use crate::maintenance::gardener;
use crate::memory::{Memory, rows};

/// The predicates of the vocabulary whose objects are no people, with the kinds of these.
const KINDS: [(&str, Kind); 15] = [
    (SAME_AS, Kind::Person),
    ("member_of", Kind::Organization),
    ("lives_in", Kind::Place),
    ("comes_from", Kind::Place),
    ("located_in", Kind::Place),
    ("works_for", Kind::Organization),
    ("works_as", Kind::Theme),
    ("studies", Kind::Theme),
    ("does", Kind::Theme),
    ("speaks", Kind::Theme),
    ("owns", Kind::Thing),
    ("likes", Kind::Theme),
    ("dislikes", Kind::Theme),
    ("must_avoid", Kind::Theme),
    ("is_a", Kind::Theme),
];
/// The names of the kinds in the answer of a model.
const KIND_NAMES: [(&str, Kind); 5] = [
    ("person", Kind::Person),
    ("organization", Kind::Organization),
    ("place", Kind::Place),
    ("thing", Kind::Thing),
    ("theme", Kind::Theme),
];

/// The maximum length of a name, in characters and in words, and of its meaning, in characters.
const NAME_CHARS_MAX: usize = 24;
const NAME_WORDS_MAX: usize = 3;
const MEANING_CHARS_MAX: usize = 80;
/// The maximum number of predicates that one batch proposes, of drafts, and of all predicates of a mind.
const PROPOSED_MAX: usize = 3;
const DRAFTS_MAX: usize = 16;
const ALL_MAX: usize = 128;
/// The days that a draft has to prove itself.
const DRAFT_DAYS: i64 = 30;
/// The minimum number of claims with a draft, and of statements that make them, by which it is confirmed.
const CLAIMS_MIN: usize = 2;
const STATEMENTS_MIN: usize = 3;

/// Finds all predicates.
const ALL: &str = r#"FIND(?p) WHERE { ?p {type: "$PropositionType"} } LIMIT 1000"#;
const DEFINE: &str = r#"
UPSERT { CONCEPT ?p { {type: "$PropositionType", name: $name}
  SET ATTRIBUTES { description: $meaning, subject_types: ["Person"], object_types: [$object], is_functional: false, is_symmetric: false, class: "state", object_kind: $kind } } }
WITH METADATA { source: "formation", status: "draft", access_scopes: $scopes, observed_at: $at }"#;
/// Shows a predicate to further people. Its meaning and its time are replaced, because they come from statements that these people
/// did not hear.
const WIDEN: &str = r#"
UPSERT { CONCEPT ?p { {type: "$PropositionType", name: $name} SET ATTRIBUTES { description: $meaning } } }
WITH METADATA { access_scopes: $scopes, observed_at: $at }"#;
const CONFIRM: &str =
    r#"UPDATE ?p SET METADATA { status: "active" } WHERE { ?p {type: "$PropositionType", name: $name} }"#;
/// Finds a link with a predicate, whether or not a fact states it.
const USED: &str = r#"FIND(?l) WHERE { ?l (?s, $predicate, ?o) } LIMIT 1"#;
/// Finds the claims with a predicate and the facts that state them.
const USES: &str = r#"FIND(?l, ?f) WHERE { ?l (?s, $predicate, ?o) (?f, "states", ?l) } LIMIT 1000"#;
const DROP: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l (?s, $predicate, ?o) }"#;
const UNDEFINE: &str = r#"DELETE CONCEPT ?p DETACH WHERE { ?p {type: "$PropositionType", name: $name} }"#;

/// A predicate of a mind's own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnPredicate {
    /// The name.
    pub(crate) name: String,
    /// The kind of its objects.
    pub(crate) object: Kind,
    /// The meaning, in the words of the model that proposed it.
    pub(crate) meaning: String,
}

/// The predicates that a model may use: those of the vocabulary, and those of the mind's own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Predicates {
    own: Vec<OwnPredicate>,
}

/// The changes of the predicates of a mind in one night.
#[derive(Debug, Default)]
pub(crate) struct Drafts {
    /// The names of those that were confirmed.
    pub(crate) confirmed: Vec<String>,
    /// The names of those that were dropped.
    pub(crate) dropped: Vec<String>,
}

/// A predicate as a model proposes it.
#[derive(Deserialize)]
struct Proposed {
    p: String,
    o: String,
    #[serde(default)]
    means: String,
}

impl Predicates {
    /// Returns the kinds of the subject and the object of a predicate; `None` if it is unknown.
    pub(crate) fn kinds(&self, name: &str) -> Option<(Kind, Kind)> {
        let own = || self.own.iter().find(|own| own.name == name).map(|own| own.object);
        let links_people = || RELATIONS.iter().any(|relation| relation.predicate == name).then_some(Kind::Person);
        let known = KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        // What is in a place may be a town, or a company.
        let subject = if name == "located_in" { Kind::Place } else { Kind::Person };
        known.or_else(links_people).or_else(own).map(|object| (subject, object))
    }

    /// Returns `true` if a predicate is one of the mind's own.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.own.iter().any(|own| own.name == name)
    }

    /// Returns the mind's own predicates as a line for a model: `coaches (theme): trains others`; empty if there are none.
    pub(crate) fn line(&self) -> String {
        let kind = |of: Kind| KIND_NAMES.iter().find(|(_, kind)| *kind == of).map_or("theme", |(name, _)| name);
        let line = |own: &OwnPredicate| format!("{} ({}): {}", own.name, kind(own.object), own.meaning);
        self.own.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    /// Adds those that a model proposes in its answer. Refused are those with names of no such form, with a name that the mind knows
    /// (`taken`), also in another form of the word, and those beyond the bounds.
    fn propose(&mut self, answer: &Value, taken: &BTreeSet<String>, drafts: usize) -> Vec<OwnPredicate> {
        let proposed = answer["new"].as_array().into_iter().flatten();
        let stem = |name: &str| terms(&name.replace('_', " ")).iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut known: BTreeSet<Vec<String>> = taken.iter().map(|name| stem(name)).collect();
        let room = PROPOSED_MAX.min(DRAFTS_MAX.saturating_sub(drafts)).min(ALL_MAX.saturating_sub(taken.len()));
        let mut new = Vec::new();
        for proposed in proposed.filter_map(|one| Proposed::deserialize(one).ok()) {
            let Proposed { p: name, o, means } = proposed;
            let object = KIND_NAMES.iter().find(|(known, _)| *known == o.to_lowercase()).map(|(_, kind)| *kind);
            let (Some(object), true, true) = (object, is_name(&name), new.len() < room) else { continue };
            if !taken.contains(&name) && known.insert(stem(&name)) {
                let is_plain =
                    |c: &char| !c.is_control() && !store::is_invisible(*c) && !matches!(c, '<' | '>' | '"' | ';');
                let meaning = means.chars().filter(is_plain).take(MEANING_CHARS_MAX).collect();
                new.push(OwnPredicate { name, object, meaning });
            }
        }
        self.own.extend(new.iter().cloned());
        new
    }
}

/// Returns `true` if a text has the form of a predicate's name: a few words in small letters with underscores.
fn is_name(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    name.len() <= NAME_CHARS_MAX
        && words.len() <= NAME_WORDS_MAX
        && words.iter().all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Returns the words of a predicate's name.
fn plain_of(name: &str) -> String {
    name.replace('_', " ")
}

fn is_own(definition: &Value) -> bool {
    definition["metadata"]["source"] == FORMATION
}

fn scopes_of(definition: &Value) -> BTreeSet<String> {
    let scopes = definition["metadata"]["access_scopes"].as_array().into_iter().flatten();
    scopes.filter_map(|scope| scope.as_str().map(str::to_owned)).collect()
}

fn kind_of(definition: &Value) -> Option<Kind> {
    let kind = definition["attributes"]["object_kind"].as_str()?;
    KIND_NAMES.iter().find(|(name, _)| *name == kind).map(|(_, kind)| *kind)
}

fn name_of(definition: &Value) -> Option<&str> {
    definition["name"].as_str()
}

impl Memory {
    async fn predicates(&self, cause: &Origin) -> Result<Vec<Value>, NexusError> {
        Ok(rows(&self.ask(ALL, json!({}), cause).await?).to_vec())
    }

    /// Returns the predicates that may be named to people: each of them heard a statement with those of the mind's own.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn predicates_for(
        &self,
        people: &BTreeSet<String>,
        cause: &Origin,
    ) -> Result<Predicates, NexusError> {
        let own = |definition: &Value| {
            let object = kind_of(definition)?;
            let meaning = definition["attributes"]["description"].as_str().unwrap_or_default().to_owned();
            Some(OwnPredicate { name: name_of(definition)?.to_owned(), object, meaning })
        };
        let all = self.predicates(cause).await?;
        let known = all.iter().filter(|definition| is_own(definition) && people.is_subset(&scopes_of(definition)));
        Ok(Predicates { own: known.filter_map(own).collect() })
    }

    /// Returns the names of the predicates of claims: those of the vocabulary, and those of the mind's own.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn predicates_of_claims(&self, cause: &Origin) -> Result<Vec<String>, NexusError> {
        let defined = self.predicates(cause).await?;
        let own = defined.iter().filter(|definition| is_own(definition)).filter_map(name_of).map(str::to_owned);
        let mut all: Vec<String> = claimed_predicates().map(str::to_owned).collect();
        all.extend(own);
        Ok(all)
    }

    /// Returns the predicates for the claims of a batch, with those that the model proposes in its answer. These are not yet defined.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn predicates_with(
        &self,
        answer: &Value,
        audience: &BTreeSet<String>,
        cause: &Origin,
    ) -> Result<(Predicates, Vec<OwnPredicate>), NexusError> {
        let mut predicates = self.predicates_for(audience, cause).await?;
        let all = self.predicates(cause).await?;
        let drafts = all.iter().filter(|definition| is_own(definition) && definition["metadata"]["status"] == "draft");
        // One that others made is not shown to these people: as a proposal it becomes theirs, too.
        let is_theirs = |definition: &&Value| {
            !is_own(definition) || name_of(definition).is_some_and(|name| predicates.is_own(name))
        };
        let taken: BTreeSet<String> = all.iter().filter(is_theirs).filter_map(name_of).map(str::to_owned).collect();
        let drafts = drafts.count();
        let mut new = predicates.propose(answer, &taken, drafts);
        // Of one that others made, the kind stands.
        for own in new.iter_mut().chain(&mut predicates.own) {
            let known = all.iter().find(|definition| name_of(definition) == Some(&own.name));
            own.object = known.and_then(kind_of).unwrap_or(own.object);
        }
        Ok((predicates, new))
    }

    /// Defines predicates, as drafts, for those who heard the statements that use them.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn define(
        &self,
        new: &[&OwnPredicate],
        audience: &BTreeSet<String>,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let all = if new.is_empty() { Vec::new() } else { self.predicates(cause).await? };
        for own in new {
            let known = all.iter().find(|definition| name_of(definition) == Some(&own.name));
            if let Some(known) = known {
                let scopes: BTreeSet<String> = scopes_of(known).union(audience).cloned().collect();
                self.execute_as_gardener(
                    WIDEN,
                    json!({"name": own.name, "scopes": scopes, "meaning": plain_of(&own.name), "at": self.now()}),
                    cause,
                )
                .await?;
                continue;
            }
            let kind = KIND_NAMES.iter().find(|(_, kind)| *kind == own.object).map_or("theme", |(name, _)| name);
            let definition = json!({
                "name": own.name, "meaning": own.meaning, "object": own.object.type_name(), "kind": kind, "scopes": audience,
                "at": self.now(),
            });
            self.execute_as_gardener(DEFINE, definition, cause).await?;
        }
        Ok(())
    }

    async fn execute_as_gardener(&self, command: &str, parameters: Value, cause: &Origin) -> Result<(), NexusError> {
        let answer = self.execute(nexus::Request::with(command, parameters), &gardener(cause.cause.clone())).await?;
        match answer.get("error") {
            Some(error) => Err(NexusError::Refused(format!("a predicate is refused: {error}"))),
            None => Ok(()),
        }
    }

    /// Removes the predicates of the mind's own that no claim uses any more.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn tidy_predicates(&self, cause: &Origin) -> Result<usize, NexusError> {
        let mut removed = 0;
        for definition in self.predicates(cause).await?.iter().filter(|definition| is_own(definition)) {
            let Some(name) = name_of(definition) else { continue };
            let used = self.ask(USED, json!({"predicate": name}), cause).await?;
            if used.get("error").is_none() && rows(&used).is_empty() {
                match self.execute_as_gardener(UNDEFINE, json!({"name": name}), cause).await {
                    // A link was written in the meantime.
                    Err(NexusError::Refused(why)) => tracing::warn!(name, why, "a predicate stays"),
                    done => done.map(|()| removed += 1)?,
                }
            }
        }
        Ok(removed)
    }

    /// Returns the drafts that have proven themselves, and those that have not in their time, with the commands for both.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn judged_drafts(
        &self,
        now: Timestamp,
        cause: &Origin,
    ) -> Result<(Drafts, Vec<(String, Value)>), NexusError> {
        let (mut drafts, mut commands) = (Drafts::default(), Vec::new());
        let is_draft = |definition: &&Value| is_own(definition) && definition["metadata"]["status"] == "draft";
        for definition in self.predicates(cause).await?.iter().filter(is_draft) {
            let Some(name) = name_of(definition) else { continue };
            let uses = self.ask(USES, json!({"predicate": name}), cause).await?;
            let distinct = |at: usize| {
                rows(&uses).iter().filter_map(|row| row[at]["id"].as_str()).collect::<BTreeSet<&str>>().len()
            };
            let proposed_at = definition["metadata"]["observed_at"].as_str().and_then(|at| at.parse().ok());
            let is_old = proposed_at.is_none_or(|at: Timestamp| now.duration_since(at).as_hours() > 24 * DRAFT_DAYS);
            if distinct(0) >= CLAIMS_MIN && distinct(1) >= STATEMENTS_MIN {
                drafts.confirmed.push(name.to_owned());
                commands.push((CONFIRM.to_owned(), json!({"name": name})));
            } else if is_old {
                drafts.dropped.push(name.to_owned());
                commands.push((DROP.to_owned(), json!({"predicate": name})));
                commands.push((UNDEFINE.to_owned(), json!({"name": name})));
            }
        }
        Ok((drafts, commands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_may_propose_a_few_predicates() {
        let answer = json!({"new": [
            {"p": "coaches", "o": "theme", "means": "trains others; \"hard\""},
            {"p": "coach", "o": "theme"},
            {"p": "lives_in", "o": "place"},
            {"p": "Breeds!", "o": "thing"},
            {"p": "has_once_been_seen_at", "o": "place"},
            {"p": "breeds", "o": "animal"},
            {"p": "breeds", "o": "thing"},
            {"p": "runs", "o": "organization"},
            {"p": "founded", "o": "organization"},
            "x",
        ]});
        let taken: BTreeSet<String> = claimed_predicates().map(str::to_owned).collect();
        let mut predicates = Predicates::default();
        let new = predicates.propose(&answer, &taken, 0);
        assert_eq!(new.iter().map(|own| own.name.as_str()).collect::<Vec<_>>(), ["coaches", "breeds", "runs"]);
        assert_eq!(new[0].meaning, "trains others hard");
        assert_eq!(predicates.kinds("breeds"), Some((Kind::Person, Kind::Thing)));
        assert!(predicates.line().starts_with("coaches (theme): trains others hard; breeds (thing)"));
        assert!(Predicates::default().propose(&answer, &taken, DRAFTS_MAX).is_empty());
    }

    #[test]
    fn the_predicates_of_the_vocabulary_have_kinds() {
        let predicates = Predicates::default();
        assert_eq!(predicates.kinds("friend_of"), Some((Kind::Person, Kind::Person)));
        assert_eq!(predicates.kinds("lives_in"), Some((Kind::Person, Kind::Place)));
        assert_eq!(predicates.kinds("states"), None);
    }
}
