//! The maintenance of a mind by `$system`, within its directives. It tidies the mind and removes no statement of a
//! person. All changes are KIP by `system:gardener`, in the journal of the mind like other writes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use nexus::kip::graph::text::terms;
use nexus::{NexusError, Request};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Cause, Origin, Principal, PrincipalKind, Role};

use crate::formation::{MENTIONS_NO_MORE, MOVED_MAX, STATES_NO_MORE};
use crate::memory::{Interactions, Memory, PUBLIC, Place, StoredFact, also_in};

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
    /// Makes claims of facts that have none yet, and removes the claims that no fact states any more.
    FormClaims,
    /// Has a model read statements for claims and domains, a batch in one call.
    ReadStatements,
    /// Moves the claims under another name of a person to that person.
    MergeConcepts,
    /// Files statements and concepts into domains, and removes domains without statements.
    FileDomains,
    /// Has a model describe domains, one in each call, which may also merge one with another or split a wide one.
    DescribeDomains,
    /// Has a model describe persons by their own statements, one in each call.
    DescribePeople,
    /// Declares attributes that are used without a declaration.
    EvolveSchema,
    /// Recomputes the confidence in claims, and keeps a question where two people state what cannot hold together.
    WeighClaims,
    /// Shows each claim only to those who heard a statement that still states it.
    CheckClaims,
    /// Marks facts as expired after their time of validity.
    Expire,
    /// Marks persons as archived after ninety days without a message.
    ArchivePersons,
    /// Counts the subjects of what each person stated, for the summary of the talks with it.
    SummarisePeople,
    /// Lets `$self` grow: its capabilities, by what was done, and its voice, by what people whom it trusts said.
    Reflect,
    /// Derives patterns from the lifeform's work, and SOPs from proven patterns.
    DistilKnowledge,
}

impl Task {
    /// The tasks of a night, in order.
    pub const NIGHTLY: [Self; 15] = [
        Self::FormClaims,
        Self::ReadStatements,
        Self::MergeConcepts,
        Self::FileDomains,
        Self::DescribeDomains,
        Self::ConsolidateMemory,
        Self::Expire,
        Self::DescribePeople,
        Self::WeighClaims,
        Self::CheckClaims,
        Self::EvolveSchema,
        Self::ArchivePersons,
        Self::SummarisePeople,
        Self::DistilKnowledge,
        Self::Reflect,
    ];

    /// Returns `true` if a model is asked, where there is one that is strong enough.
    pub fn asks_a_model(self) -> bool {
        matches!(self, Self::Reflect | Self::ReadStatements | Self::DescribeDomains | Self::DescribePeople)
    }

    /// Returns the number of times that a night runs it: a model reads one batch, or describes one domain or
    /// one person, each time.
    pub fn runs(self) -> u32 {
        match self {
            Self::ReadStatements => 8,
            Self::DescribeDomains => 4,
            Self::DescribePeople => 3,
            _ => 1,
        }
    }

    /// Returns `true` if the task can be tried out without changes. The forming of claims, and what a model or the knowledge of
    /// the commons has a part in, cannot.
    pub fn has_trial(self) -> bool {
        !matches!(self, Self::FormClaims | Self::DistilKnowledge) && !self.asks_a_model()
    }

    /// Returns `true` if a night may not change much of the mind by it. Merging, filing, weighing and checking have bounds of their own,
    /// and a summary repeats what is there.
    fn is_bounded(self) -> bool {
        !matches!(
            self,
            Self::MergeConcepts | Self::FileDomains | Self::WeighClaims | Self::CheckClaims | Self::SummarisePeople
        )
    }

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConsolidateMemory => "consolidate_memory",
            Self::FormClaims => "form_claims",
            Self::ReadStatements => "read_statements",
            Self::MergeConcepts => "merge_concepts",
            Self::FileDomains => "file_domains",
            Self::DescribeDomains => "describe_domains",
            Self::DescribePeople => "describe_people",
            Self::EvolveSchema => "evolve_schema",
            Self::WeighClaims => "weigh_claims",
            Self::CheckClaims => "check_claims",
            Self::Expire => "expire",
            Self::ArchivePersons => "archive_persons",
            Self::SummarisePeople => "summarise_people",
            Self::Reflect => "reflect",
            Self::DistilKnowledge => "distil_knowledge",
        }
    }
}

/// The beginning of the ids of elements of the commons, as a mind sees them.
const COMMONS: &str = "commons/";
const FACTS: &str = r#"FIND(?f) WHERE { ?f {type: "Fact"} } LIMIT $limit"#;
const STATERS: &str = r#"FIND(?p.name) WHERE { (?f {id: $fact}, "stated_by", ?p) }"#;
const ALSO_STATED: &str = r#"UPDATE ?f SET ATTRIBUTES { also_in: $also_in, among: $among } SET METADATA { access_scopes: $scopes } WHERE { ?f {id: $fact} }"#;
const SAID_BY: &str =
    r#"UPDATE ?f SET METADATA { status: "superseded", superseded_by: $kept } WHERE { ?f {id: $fact} }"#;
/// Finds the elements whose time of validity is over. The type or the predicate is put in.
const OVER: &str = r#"FIND(?x.id) WHERE { ?x {type: $kind} FILTER(?x.metadata.expires_at < $now && ?x.metadata.status == "active") } LIMIT $limit"#;
const LINKS_OVER: &str = r#"FIND(?x.id) WHERE { ?x (?s, $kind, ?o) FILTER(?x.metadata.expires_at < $now && ?x.metadata.status == "active") } LIMIT $limit"#;
const EXPIRE: &str = r#"UPDATE ?x SET METADATA { status: "expired" } WHERE { ?x {id: $element} }"#;
const EXPIRE_LINK: &str = r#"UPDATE ?x SET METADATA { status: "expired" } WHERE { ?x (id: $element) }"#;
const TYPES: &str = r#"FIND(?t) WHERE { ?t {type: "$ConceptType"} } LIMIT 500"#;
const PREDICATES: &str = r#"FIND(?t.name) WHERE { ?t {type: "$PropositionType"} } LIMIT 500"#;
const OF_TYPE: &str = r#"FIND(?x) WHERE { ?x {type: $kind} } LIMIT $limit"#;
const PERSONS: &str = r#"FIND(?p) WHERE { ?p {type: "Person"} } LIMIT $limit"#;
const ARCHIVE: &str = r#"UPDATE ?p SET ATTRIBUTES { status: "archived" } WHERE { ?p {id: $person} }"#;
const DECLARE: &str = r#"
UPSERT { CONCEPT ?t { {type: "$ConceptType", name: $kind} SET ATTRIBUTES { instance_schema: $schema } } }
WITH METADATA { source: "maintenance", confidence: 1.0, status: "active" }"#;
const SUMMARY_OF: &str = r#"FIND(?p.attributes.interaction_summary) WHERE { ?p {id: $person} }"#;
const SUMMARISE: &str = r#"UPDATE ?p SET ATTRIBUTES { interaction_summary: $summary } WHERE { ?p {id: $person} }"#;
/// The types whose schema is the law of the graph: only an operator's capsule extends it (R28).
const LAWS: [&str; 4] = ["$ConceptType", "$PropositionType", "Domain", "Person"];
/// The maximum number of attributes of a type that one run declares, and the maximum length of a name, in bytes.
const DECLARED_MAX: usize = 20;
const ATTRIBUTE_BYTES_MAX: usize = 40;
/// The maximum number of subjects of a person, and the maximum length of one, in characters.
const SUBJECTS_MAX: usize = 8;
const SUBJECT_CHARS: usize = 40;

/// The runner of maintenance for one mind.
struct Gardener<'m> {
    memory: &'m Memory,
    origin: Origin,
    /// `true` if writes are noted and not run.
    is_trial: bool,
    kip: Vec<Value>,
}

/// The way in which a task runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// The task changes what it finds.
    #[default]
    Whole,
    /// The task changes nothing if it would change too much: then it waits for an operator.
    Bounded,
    /// The task changes nothing and returns what it would change.
    Trial,
}

/// The maximum number of changes of a task in a night: so many, or so large a part of the statements of the mind.
const CHANGES_MAX: usize = 20;
const CHANGED_SHARE_MAX: f64 = 0.05;
/// The maximum number in any mind.
const CHANGES_IN_ALL_MAX: usize = 200;
const COUNT: &str = r#"FIND(COUNT(?f)) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active") }"#;

/// Returns the origin of changes by `$system`.
pub(crate) fn gardener(cause: Cause) -> Origin {
    Origin::new(Principal::new("system:gardener", PrincipalKind::System, Role::Operator), cause)
}

/// Runs `task` in a way. Returns the changes and the KIP commands.
///
/// # Errors
/// A store error.
pub(crate) async fn run(task: Task, way: Way, memory: &Memory, cause: Cause) -> Result<Value, NexusError> {
    let new = |is_trial| Gardener { memory, origin: gardener(cause.clone()), is_trial, kip: Vec::new() };
    if way == Way::Whole || !task.has_trial() || (way == Way::Bounded && !task.is_bounded()) {
        let mut gardener = new(false);
        let done = gardener.tend(task).await?;
        return Ok(json!({"task": task, "done": done, "kip": gardener.kip}));
    }
    let mut trial = new(true);
    let done = trial.tend(task).await?;
    if way == Way::Trial {
        return Ok(json!({"task": task, "trial": done, "kip": trial.kip}));
    }
    let most = trial.changes_max().await?;
    if trial.kip.len() > most {
        tracing::warn!(
            task = task.as_str(),
            changes = trial.kip.len(),
            most,
            "a task of the night waits for an operator"
        );
        return Ok(json!({"task": task, "held_back": {"changes": trial.kip.len(), "most": most}, "kip": []}));
    }
    let mut gardener = new(false);
    let done = gardener.tend(task).await?;
    Ok(json!({"task": task, "done": done, "kip": gardener.kip}))
}

impl Gardener<'_> {
    async fn tend(&mut self, task: Task) -> Result<Value, NexusError> {
        Ok(match task {
            Task::ConsolidateMemory => self.consolidate().await?,
            Task::FormClaims => {
                let (formed, removed) = self.memory.form_rest(&self.origin).await?;
                json!({"formed": formed, "removed": removed})
            }
            Task::MergeConcepts => self.merge().await?,
            Task::FileDomains => json!(self.memory.file(self.is_trial, &self.origin).await?),
            Task::EvolveSchema => self.evolve().await?,
            Task::WeighClaims => self.weigh().await?,
            Task::CheckClaims => self.check().await?,
            Task::Expire => self.expire().await?,
            Task::ArchivePersons => self.archive().await?,
            Task::SummarisePeople => self.summarise().await?,
            // These have fascicles of their own, or need more than the mind.
            Task::DistilKnowledge
            | Task::Reflect
            | Task::ReadStatements
            | Task::DescribeDomains
            | Task::DescribePeople => Value::Null,
        })
    }

    /// Returns the number of changes that a night may make.
    async fn changes_max(&mut self) -> Result<usize, NexusError> {
        let count = self.run(COUNT, json!({})).await?.first().and_then(Value::as_u64).unwrap_or_default();
        Ok(((count as f64 * CHANGED_SHARE_MAX) as usize).clamp(CHANGES_MAX, CHANGES_IN_ALL_MAX))
    }

    /// Runs a write and returns `true` if it was not refused.
    async fn is_done(&mut self, command: &str, parameters: Value) -> Result<bool, NexusError> {
        self.kip.push(json!({"command": command.trim(), "parameters": parameters}));
        if self.is_trial {
            return Ok(true);
        }
        let answer = self.memory.execute(Request::with(command, parameters), &self.origin).await?;
        let error = answer.get("error");
        if let Some(error) = error {
            tracing::error!(%error, "a statement of the gardener is refused");
        }
        Ok(error.is_none())
    }

    async fn run(&mut self, command: &str, parameters: Value) -> Result<Vec<Value>, NexusError> {
        let is_write = !command.trim_start().starts_with("FIND");
        if is_write {
            self.kip.push(json!({"command": command.trim(), "parameters": parameters}));
            if self.is_trial {
                return Ok(Vec::new());
            }
        }
        let answer = self.memory.execute(Request::with(command, parameters), &self.origin).await?;
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
            let mut words: Vec<String> = terms(statement).into_iter().map(|term| term.to_string()).collect();
            // The same words of two days mean two days.
            words.push(format!("{:?} {}", stored.dates().days(), stored.is_private()));
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
                let mut facts: Vec<StoredFact<'_>> = facts.iter().map(StoredFact::of).collect();
                facts.sort_by_key(|fact| std::cmp::Reverse(fact.stated_at()));
                let Some((kept, others)) = facts.split_first() else { continue };
                let mut places: Vec<Place> = others.iter().flat_map(|other| other.places()).collect();
                places.extend(kept.earlier_places());
                // Each of them heard these words of that person.
                let heard = |fact: &StoredFact<'_>| fact.audience(fact.author()).unwrap_or_default();
                let scopes: BTreeSet<String> = facts.iter().flat_map(heard).collect();
                let for_all = facts.iter().any(|fact| fact.is_for_all()).then(|| PUBLIC.to_owned());
                let among: BTreeSet<String> = scopes.iter().cloned().chain(for_all).collect();
                let merging = json!({"fact": kept.id(), "also_in": also_in(places), "among": among, "scopes": scopes});
                self.run(ALSO_STATED, merging).await?;
                for other in others {
                    self.run(SAID_BY, json!({"fact": other.id(), "kept": kept.id()})).await?;
                    merged.push(json!({"statement": other.statement(), "into": kept.id()}));
                }
            }
        }
        Ok(json!({"merged": merged}))
    }

    /// Marks what has an end of validity that is past: elements of every type, links, and facts with a last day.
    async fn expire(&mut self) -> Result<Value, NexusError> {
        let now = self.memory.now();
        let mut expired = Vec::new();
        let types = self.run(TYPES, json!({})).await?;
        let kinds = types.iter().filter_map(|kind| kind["name"].as_str()).map(|kind| (OVER, EXPIRE, kind.to_owned()));
        let predicates = self.run(PREDICATES, json!({})).await?;
        let links = predicates.iter().filter_map(Value::as_str).map(|kind| (LINKS_OVER, EXPIRE_LINK, kind.to_owned()));
        let all: Vec<(&str, &str, String)> = kinds.chain(links).collect();
        for (find, expire, kind) in all {
            // A pattern names its predicate in words, not by a parameter.
            let find = find.replace("?s, $kind", &format!("?s, {}", json!(kind)));
            let over = self.run(&find, json!({"kind": kind, "now": now, "limit": LOOKED_AT_MAX})).await?;
            // What is over in the commons is its owner's to mark.
            for id in over.iter().filter_map(Value::as_str).filter(|id| !id.starts_with(COMMONS)) {
                self.run(expire, json!({"element": id})).await?;
                expired.push(id.to_owned());
            }
        }
        for fact in self.run(FACTS, json!({"limit": LOOKED_AT_MAX})).await? {
            let fact = StoredFact::of(&fact);
            let is_marked = expired.iter().any(|id| id == fact.id());
            if fact.holds() && !fact.holds_at(now) && !is_marked {
                self.run(EXPIRE, json!({"element": fact.id()})).await?;
                expired.push(fact.id().to_owned());
            }
        }
        Ok(json!({"expired": expired}))
    }

    /// Moves the claims under other names, and sweeps what they leave behind. A claim leaves its former place when it stands at its new
    /// one.
    async fn merge(&mut self) -> Result<Value, NexusError> {
        let memory = self.memory;
        let turn = memory.take_turn().await;
        let (mut merged, mut kept_apart, mut moved) = (Vec::new(), Vec::new(), 0);
        let names = memory.other_names(&self.origin).await?;
        for other in &names {
            if other.is_apart {
                kept_apart.push(other.name["name"].clone());
                continue;
            }
            let mut count = 0;
            for claim in other.claims.iter().take(MOVED_MAX - moved) {
                let Some((command, parameters)) = memory.moved(claim, other, &self.origin).await? else { continue };
                if !self.is_done(&command, parameters).await? {
                    break;
                }
                self.run(STATES_NO_MORE, claim.former()).await?;
                count += 1;
            }
            for mention in memory.renamed(other, &self.origin).await? {
                self.run(MENTIONS_NO_MORE, mention).await?;
            }
            if count > 0 {
                moved += count;
                merged.push(json!({"name": other.name["name"], "into": other.one["id"], "claims": count}));
            }
        }
        drop(turn);
        // A run that was killed may have left claims that nothing states.
        if !self.is_trial && !names.is_empty() {
            memory.sweep(&self.origin).await?;
        }
        Ok(json!({"merged": merged, "kept_apart": kept_apart}))
    }

    /// Recomputes the confidence in claims.
    async fn weigh(&mut self) -> Result<Value, NexusError> {
        let memory = self.memory;
        let (weighed, commands) = memory.weighed(memory.now(), &self.origin).await?;
        let _turn = memory.take_turn().await;
        for (command, parameters) in commands {
            self.run(command, parameters).await?;
        }
        Ok(json!(weighed))
    }

    /// Narrows the claims that people see who heard none of their statements.
    async fn check(&mut self) -> Result<Value, NexusError> {
        let memory = self.memory;
        let _turn = memory.take_turn().await;
        let (checked, commands) = memory.checked(&self.origin).await?;
        for (command, parameters) in commands {
            self.run(command, parameters).await?;
        }
        Ok(json!(checked))
    }

    /// Counts the subjects of the statements of each person. The summary is of the lifeform and operators: nobody else reads a
    /// mind by commands.
    async fn summarise(&mut self) -> Result<Value, NexusError> {
        let mut told: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for fact in self.run(FACTS, json!({"limit": LOOKED_AT_MAX})).await? {
            let fact = StoredFact::of(&fact);
            let (Some(author), Some(subject)) = (fact.author().filter(|_| fact.holds()), fact.subject()) else {
                continue;
            };
            // A fact without a subject of its own has its statement there.
            if Some(subject) == fact.statement() || subject.chars().count() > SUBJECT_CHARS {
                continue;
            }
            *told.entry(author.to_owned()).or_default().entry(subject.to_lowercase()).or_default() += 1;
        }
        let mut summarised = Vec::new();
        for person in self.run(PERSONS, json!({"limit": LOOKED_AT_MAX})).await? {
            let (Some(id), Some(name)) = (person["id"].as_str(), person["name"].as_str()) else { continue };
            let counted = told.remove(name).unwrap_or_default();
            let mut counted: Vec<(String, usize)> = counted.into_iter().collect();
            counted.sort_by(|(one, many), (other, more)| more.cmp(many).then(one.cmp(other)));
            let subjects: Vec<String> = counted.into_iter().take(SUBJECTS_MAX).map(|(subject, _)| subject).collect();
            // A message in the meantime changes the summary, too.
            let memory = self.memory;
            let _turn = memory.take_turn().await;
            let summary = self.run(SUMMARY_OF, json!({"person": id})).await?;
            let Some(mut summary) = summary.into_iter().next().filter(Value::is_object) else { continue };
            let known: Vec<String> = Vec::deserialize(&summary["subjects"]).unwrap_or_default();
            if known != subjects {
                summary["subjects"] = json!(subjects);
                self.run(SUMMARISE, json!({"person": id, "summary": summary})).await?;
                summarised.push(name.to_owned());
            }
        }
        Ok(json!({"summarised": summarised}))
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

    /// Declares the attributes that elements of a type have and its schema does not name, of every type but those that
    /// are the law of the graph. Confirms the mind's own predicates that have proven themselves, and drops those that have not.
    async fn evolve(&mut self) -> Result<Value, NexusError> {
        let mut all = BTreeMap::new();
        for kind in self.run(TYPES, json!({})).await? {
            let Some(name) = kind["name"].as_str().filter(|name| !LAWS.contains(name)) else { continue };
            let mut used: BTreeSet<String> = BTreeSet::new();
            for element in self.run(OF_TYPE, json!({"kind": name, "limit": LOOKED_AT_MAX})).await? {
                // A schema is read by all, and names nothing that is private.
                if element["metadata"]["access_level"].as_str().is_some_and(|level| level != "public") {
                    continue;
                }
                used.extend(element["attributes"].as_object().into_iter().flat_map(|members| members.keys().cloned()));
            }
            let mut schema = kind["attributes"]["instance_schema"].clone();
            if !schema.is_object() {
                schema = json!({});
            }
            let declared: BTreeSet<String> =
                schema.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
            let is_plain = |name: &&String| name.len() <= ATTRIBUTE_BYTES_MAX;
            let new: Vec<String> = used.difference(&declared).filter(is_plain).take(DECLARED_MAX).cloned().collect();
            for attribute in &new {
                schema[attribute] = json!({
                    "type": "any",
                    "is_required": false,
                    "description": "Seen in use, and declared by maintenance.",
                });
            }
            if !new.is_empty() {
                self.run(DECLARE, json!({"kind": name, "schema": schema})).await?;
                all.insert(name.to_owned(), new);
            }
        }
        let memory = self.memory;
        let _turn = memory.take_turn().await;
        let (drafts, commands) = memory.judged_drafts(self.memory.now(), &self.origin).await?;
        for (command, parameters) in commands {
            self.run(&command, parameters).await?;
        }
        Ok(json!({"declared": all, "confirmed": drafts.confirmed, "dropped": drafts.dropped}))
    }
}
