//! The maintenance of a mind by `$system`, within its directives. It tidies the mind and removes no statement of a
//! person. All changes are KIP by `system:gardener`, in the journal of the mind like other writes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use nexus::kip::graph::text::terms;
use nexus::{NexusError, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Cause, Origin, Principal, PrincipalKind, Role};

use crate::memory::{Interactions, Memory, Place, StoredFact, also_in};

/// The maximum number of facts and persons that one run reads.
const LOOKED_AT_MAX: usize = 2_000;
/// The absence after which a person is archived.
const AWAY: SignedDuration = SignedDuration::from_hours(90 * 24);

/// A task of maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Merges facts that a person stated several times in the same words. One fact remains with all places and
    /// supersedes the others.
    ConsolidateMemory,
    /// Declares attributes that are used without a declaration.
    EvolveSchema,
    /// Marks facts as expired after their time of validity.
    Expire,
    /// Marks persons as archived after ninety days without a message.
    ArchivePersons,
    /// Derives patterns from the lifeform's work, and SOPs from proven patterns.
    DistilKnowledge,
}

impl Task {
    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConsolidateMemory => "consolidate_memory",
            Self::EvolveSchema => "evolve_schema",
            Self::Expire => "expire",
            Self::ArchivePersons => "archive_persons",
            Self::DistilKnowledge => "distil_knowledge",
        }
    }
}

const FACTS: &str = r#"FIND(?f) WHERE { ?f {type: "Fact"} } LIMIT $limit"#;
const STATERS: &str = r#"FIND(?p.name) WHERE { (?f {id: $fact}, "stated_by", ?p) }"#;
const ALSO_STATED: &str = r#"UPDATE ?f SET ATTRIBUTES { also_in: $also_in } WHERE { ?f {id: $fact} }"#;
const SAID_BY: &str =
    r#"UPDATE ?f SET METADATA { status: "superseded", superseded_by: $kept } WHERE { ?f {id: $fact} }"#;
const EXPIRE: &str = r#"
UPDATE ?f SET METADATA { status: "expired" }
WHERE { ?f {type: "Fact"} FILTER(?f.metadata.expires_at < $now && ?f.metadata.status == "active") }"#;
const PERSONS: &str = r#"FIND(?p) WHERE { ?p {type: "Person"} } LIMIT $limit"#;
const ARCHIVE: &str = r#"UPDATE ?p SET ATTRIBUTES { status: "archived" } WHERE { ?p {id: $person} }"#;
const FACT_TYPE: &str = r#"FIND(?t.attributes.instance_schema) WHERE { ?t {type: "$ConceptType", name: "Fact"} }"#;
const DECLARE: &str = r#"
UPSERT { CONCEPT ?t { {type: "$ConceptType", name: "Fact"} SET ATTRIBUTES { instance_schema: $schema } } }
WITH METADATA { source: "maintenance", confidence: 1.0, status: "active" }"#;

/// The runner of maintenance for one mind.
struct Gardener<'m> {
    memory: &'m Memory,
    origin: Origin,
    kip: Vec<Value>,
}

/// Runs `task`. Returns the changes and the KIP commands.
///
/// # Errors
/// A store error.
pub(crate) async fn run(task: Task, memory: &Memory, cause: Cause) -> Result<Value, NexusError> {
    let principal = Principal::new("system:gardener", PrincipalKind::System, Role::Operator);
    let mut gardener = Gardener { memory, origin: Origin::new(principal, cause), kip: Vec::new() };
    let done = match task {
        Task::ConsolidateMemory => gardener.consolidate().await?,
        Task::EvolveSchema => gardener.evolve().await?,
        Task::Expire => gardener.expire().await?,
        Task::ArchivePersons => gardener.archive().await?,
        // The lifeform's records are not part of its mind. The lifeform itself tidies them.
        Task::DistilKnowledge => Value::Null,
    };
    Ok(json!({"task": task, "done": done, "kip": gardener.kip}))
}

impl Gardener<'_> {
    async fn run(&mut self, command: &str, parameters: Value) -> Result<Vec<Value>, NexusError> {
        let answer = self.memory.execute(Request::with(command, parameters.clone()), &self.origin).await?;
        let is_write = !command.trim_start().starts_with("FIND");
        if is_write {
            self.kip.push(json!({"command": command.trim(), "parameters": parameters}));
        }
        if let Some(error) = answer.get("error") {
            tracing::error!(%error, "a statement of the gardener is refused");
        }
        // A write returns one value.
        Ok(match &answer["result"] {
            Value::Array(rows) => rows.clone(),
            Value::Null => Vec::new(),
            written => vec![written.clone()],
        })
    }

    async fn consolidate(&mut self) -> Result<Value, NexusError> {
        let mut same: BTreeMap<Vec<String>, Vec<Value>> = BTreeMap::new();
        for fact in self.run(FACTS, json!({"limit": LOOKED_AT_MAX})).await? {
            let stored = StoredFact::of(&fact);
            let Some(statement) = stored.statement().filter(|_| stored.holds()) else { continue };
            let words = terms(statement).into_iter().map(|term| term.to_string()).collect();
            same.entry(words).or_default().push(fact);
        }
        let mut merged = Vec::new();
        for facts in same.into_values().filter(|facts| facts.len() > 1) {
            // Two persons may mean different things by the same words.
            let mut by_whom: BTreeMap<String, Vec<Value>> = BTreeMap::new();
            for fact in facts {
                let mut people = self.run(STATERS, json!({"fact": StoredFact::of(&fact).id()})).await?;
                people.sort_by_key(Value::to_string);
                by_whom.entry(json!(people).to_string()).or_default().push(fact);
            }
            for facts in by_whom.into_values().filter(|facts| facts.len() > 1) {
                let facts: Vec<StoredFact<'_>> = facts.iter().map(StoredFact::of).collect();
                let Some((kept, others)) = facts.split_first() else { continue };
                let mut places: Vec<Place> = others.iter().flat_map(|other| other.places()).collect();
                places.extend(kept.earlier_places());
                self.run(ALSO_STATED, json!({"fact": kept.id(), "also_in": also_in(places)})).await?;
                for other in others {
                    self.run(SAID_BY, json!({"fact": other.id(), "kept": kept.id()})).await?;
                    merged.push(json!({"statement": other.statement(), "into": kept.id()}));
                }
            }
        }
        Ok(json!({"merged": merged}))
    }

    async fn expire(&mut self) -> Result<Value, NexusError> {
        let now = self.memory.now();
        let done = self.run(EXPIRE, json!({"now": now})).await?;
        Ok(json!({"expired": done}))
    }

    async fn archive(&mut self) -> Result<Value, NexusError> {
        let before = self.memory.now() - AWAY;
        let mut archived = Vec::new();
        for person in self.run(PERSONS, json!({"limit": LOOKED_AT_MAX})).await? {
            let seen = Interactions::deserialize(&person["attributes"]["interaction_summary"]).unwrap_or_default();
            let seen = seen.last_seen_at;
            let is_archived = person["attributes"]["status"] == "archived";
            if let (Some(id), Some(name), false, true) =
                (person["id"].as_str(), person["name"].as_str(), is_archived, seen.is_some_and(|seen| seen < before))
            {
                self.run(ARCHIVE, json!({"person": id})).await?;
                archived.push(name.to_owned());
            }
        }
        Ok(json!({"archived": archived}))
    }

    async fn evolve(&mut self) -> Result<Value, NexusError> {
        let mut used: BTreeSet<String> = BTreeSet::new();
        for fact in self.run(FACTS, json!({"limit": LOOKED_AT_MAX})).await? {
            used.extend(StoredFact::of(&fact).attribute_names().cloned());
        }
        let mut schema = self.run(FACT_TYPE, json!({})).await?.into_iter().next().unwrap_or_else(|| json!({}));
        let declared: BTreeSet<String> = schema.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
        let new: Vec<String> = used.difference(&declared).cloned().collect();
        for name in &new {
            schema[name] = json!({
                "type": "any",
                "is_required": false,
                "description": "Seen in facts, and declared by maintenance.",
            });
        }
        if !new.is_empty() {
            self.run(DECLARE, json!({"schema": schema})).await?;
        }
        Ok(json!({"declared": new}))
    }
}
