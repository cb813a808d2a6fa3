//! Merging of records with the same content (MISSION H2). Without a model, their texts share most of their words in the
//! same order; a model that the caller names also judges pairs that share fewer. Merged records are marked and kept, and can be restored. Records of different owners or scopes are never
//! merged.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use nexus::kip::graph::text::terms;
use nexus::{PROVENANCE_KEY, Provenance, WriteAuthority};
use serde::Serialize;
use serde_json::{Map, Value, json};
use store::{Origin, Role};

use crate::draft::Body;
use crate::likeness::Tenor;
use crate::list::Which;
use crate::record::{KIND, Record, SOURCE_KEY, Type};
use crate::{Knowledge, KnowledgeError};

/// The default share of common wording from which two records count as the same.
pub const THRESHOLD: f64 = 0.85;
/// The number of consecutive words in a row (a shingle).
const ROW: usize = 3;
/// The maximum number of records that the index lists per row of words. Further records are found only by rarer rows,
/// and are then compared by all their rows.
const COMMON: usize = 500;

/// A record into which others were merged.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Merged {
    /// The id of the record that is kept.
    pub kept: String,
    /// The ids of the records that were merged into it.
    pub absorbed: Vec<String>,
}

/// The outcome of a merge.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Slimmed {
    /// The number of records before.
    pub before: usize,
    /// The number of records after.
    pub after: usize,
    /// The merged groups; in a dry run, the groups that would be merged.
    pub merged: Vec<Merged>,
    /// The model that judged; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The reason why the named model did not judge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
}

/// The rules of a merge.
#[derive(Clone, Debug, PartialEq)]
pub struct SlimRules {
    /// The share of common wording from which two records count as the same without a model.
    pub threshold: f64,
    /// `true` to write nothing.
    pub dry_run: bool,
    /// The model that judges pairs below the threshold: its name, or a tier.
    pub model: Option<String>,
}

impl Default for SlimRules {
    fn default() -> Self {
        Self { threshold: THRESHOLD, dry_run: false, model: None }
    }
}

/// The maximum number of pairs that a model judges, the least share of common words of such a pair, and the maximum
/// length of a record in its prompt, in characters.
const PAIRS_MAX: usize = 20;
const PAIR_SHARE: f64 = 0.35;
const PAIR_CHARS: usize = 400;
/// The maximum number of records among which pairs are sought.
const PAIRED_MAX: usize = 2_000;

/// The outcome of a merge for a client.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = SlimAnswer)]
pub struct SlimReport {
    /// The numbers of records, and the merged groups.
    #[serde(flatten)]
    pub slimmed: Slimmed,
    /// `success`.
    pub status: &'static str,
    /// The outcome in words.
    pub report: String,
}

impl Slimmed {
    /// Returns the outcome for a client, phrased as a prediction for a dry run.
    pub fn report(self, dry_run: bool) -> SlimReport {
        let would = if dry_run { "would be" } else { "were" };
        let report = format!("{} of {} records {would} taken into others", self.before - self.after, self.before);
        SlimReport { slimmed: self, status: "success", report }
    }
}

impl Knowledge {
    /// Merges equal records of the caller; for an operator, those of all owners. With `dry_run` nothing is written.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read or written, [`KnowledgeError::Invalid`] for an unknown model, and
    /// [`KnowledgeError::TooMany`] while the caller's previous merge is running.
    pub async fn slim(&self, rules: SlimRules, origin: &Origin) -> Result<Slimmed, KnowledgeError> {
        let SlimRules { threshold, dry_run, model } = rules;
        let knows = |name: &String| self.thinker.as_ref().is_some_and(|thinker| thinker.tier_of(name).is_some());
        if let Some(unknown) = model.as_ref().filter(|name| !knows(name)) {
            return Err(KnowledgeError::invalid("model", format!("\"{unknown}\" is no model or tier of this daemon")));
        }
        let place = self.slims.take(&origin.principal);
        let _place =
            place.map_err(|_| KnowledgeError::TooMany("records are being merged already; wait for it".into()))?;
        let _turn = self.slimming.lock().await;
        let operator = origin.principal.may(Role::Operator);
        let mut records = self.all(&Which::default(), origin).await?;
        records.retain(|record| operator || origin.principal.answers_for(&record.owner));
        let before = records.len();
        let mut merged = Vec::new();
        // The comparison may take seconds, so it runs on a blocking thread.
        let is_dear = |name: &String| {
            let tier = self.thinker.as_ref().and_then(|thinker| thinker.tier_of(name));
            tier.is_some_and(|tier| tier != neurons::Tier::Economy)
        };
        if !operator && model.as_ref().is_some_and(is_dear) {
            return Err(KnowledgeError::invalid("model", "is economy, unless an operator asks"));
        }
        let seeks_pairs = model.is_some();
        let found = tokio::task::spawn_blocking(move || {
            let near = if seeks_pairs { pairs(&records, threshold) } else { Vec::new() };
            (alike(records, threshold), near)
        });
        let (mut groups, near) =
            found.await.map_err(|died| KnowledgeError::Refused(format!("records cannot be compared: {died}")))?;
        let (mut degraded, has_judged) = (None, !near.is_empty());
        if let (Some(model), Some(thinker), false) = (&model, &self.thinker, near.is_empty()) {
            let texts: Vec<(String, String)> = near.iter().map(|(one, other)| (shown(one), shown(other))).collect();
            match thinker.same(&texts, model, origin).await {
                Ok(same) => {
                    let of = |n: usize| near.get(n.checked_sub(1)?).cloned();
                    for (one, other) in same.into_iter().filter_map(of) {
                        let is_in = |record: &Record| groups.iter().flatten().any(|known| known.id == record.id);
                        if !is_in(&one) && !is_in(&other) {
                            groups.push(vec![one, other]);
                        }
                    }
                }
                Err(why) => degraded = Some(why.to_owned()),
            }
        }
        let model = model.filter(|_| degraded.is_none() && has_judged);
        for mut group in groups {
            // The record of the highest quality is kept, and of equal ones the oldest.
            group.sort_by(|one, other| {
                other.eval.quality().total_cmp(&one.eval.quality()).then(one.created_at.cmp(&other.created_at))
            });
            let Some((kept, absorbed)) = group.split_first() else { continue };
            // A record that was changed meanwhile may no longer be similar.
            if !dry_run && !self.absorb(kept, absorbed, origin).await? {
                continue;
            }
            let absorbed = absorbed.iter().map(|record| record.id.clone()).collect();
            merged.push(Merged { kept: kept.id.clone(), absorbed });
        }
        let gone: usize = merged.iter().map(|one: &Merged| one.absorbed.len()).sum();
        Ok(Slimmed { before, after: before - gone, merged, model, degraded })
    }

    /// Merges records into the one that is kept, in one commit. It gets the tags, resources and addresses of all, and
    /// the counts of all judgements. Returns `false` if a record has changed and nothing was merged.
    async fn absorb(&self, kept: &Record, absorbed: &[Record], origin: &Origin) -> Result<bool, KnowledgeError> {
        let (mut tags, mut resources) = (Map::new(), BTreeSet::new());
        let (mut types, mut urls): (BTreeSet<Type>, Vec<Value>) = Default::default();
        for record in absorbed.iter().rev().chain([kept]) {
            tags.extend(record.tags.clone());
            resources.extend(record.resource_ids.iter().cloned());
            types.extend(record.types.iter().copied());
            for url in record.source.get("urls").and_then(Value::as_array).into_iter().flatten() {
                if !urls.contains(url) {
                    urls.push(url.clone());
                }
            }
        }
        let count = |of: fn(&Record) -> u64| absorbed.iter().chain([kept]).map(of).fold(0, u64::saturating_add);
        let mut source = kept.source.clone();
        if !urls.is_empty() {
            source.insert("urls".into(), urls.into());
        }
        let body = Body {
            tags: Some(tags),
            types: Some(types.into_iter().collect()),
            resource_ids: Some(resources.into_iter().collect()),
            ..Body::default()
        };
        let mut metadata = json!({
            "helpful": count(|record| record.eval.helpful), "harmful": count(|record| record.eval.harmful),
            SOURCE_KEY: source,
        });
        if kept.owner.starts_with("lifeform:") {
            let sources = absorbed.iter().chain([kept]).map(|record| record.provenance.as_ref());
            metadata[PROVENANCE_KEY] = Provenance::joined(sources).to_json();
        }
        let expect = format!("EXPECT VERSION {}", kept.version);
        let mut call = crate::write::upsert(&kept.id, &expect, &body, &metadata, (&kept.owner, &kept.scopes));
        // The same commit marks the merged records. Their counts move to the kept record and are not counted twice.
        call.command.pop();
        for (at, record) in absorbed.iter().enumerate() {
            call.command.push_str(&format!(
                "  CONCEPT ?m{at} {{\n    {{type: \"{KIND}\", name: $m{at}}} EXPECT VERSION {}\n    SET PROPOSITIONS {{ (\"merged_into\", ?k) }}\n  }} WITH METADATA {{ status: \"merged\", helpful: 0, harmful: 0 }}\n",
                record.version
            ));
            call.parameters.insert(format!("m{at}"), record.id.as_str().into());
        }
        call.command.push('}');
        let answer = self.nexus.write_with(&crate::commons(), call, origin, WriteAuthority::Judge, Vec::new()).await?;
        match crate::outcome(&answer, &kept.id) {
            Err(KnowledgeError::Stale(_)) => Ok(false),
            done => done.map(|_| true),
        }
    }
}

/// Returns a record as a line for a model.
fn shown(record: &Record) -> String {
    let text = format!("{}: {}", record.task, record.content);
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(PAIR_CHARS).collect()
}

/// Returns the pairs of records that share some of their words, most first, but fewer than equal ones: of one owner, with
/// the same scopes, a common type, and the same numbers and negations.
fn pairs(records: &[Record], threshold: f64) -> Vec<(Record, Record)> {
    type Read<'r> = (&'r Record, BTreeSet<std::sync::Arc<str>>, Tenor);
    let read = |record: &'_ Record| {
        let text = format!("{}\n{}", record.task, record.content);
        (terms(&text).into_iter().collect(), Tenor::of(&text))
    };
    let is_plain = |record: &&Record| record.unit.is_none() && !record.extra.contains_key(crate::skill::MEMBER);
    let known: Vec<Read<'_>> = records
        .iter()
        .filter(is_plain)
        .take(PAIRED_MAX)
        .map(|record| {
            let (words, tenor) = read(record);
            (record, words, tenor)
        })
        .collect();
    let mut near: Vec<(f64, usize, usize)> = Vec::new();
    for (at, (one, words, tenor)) in known.iter().enumerate() {
        for (beside, (other, others, its)) in known.iter().enumerate().skip(at + 1) {
            let fits = one.owner == other.owner
                && one.scopes == other.scopes
                && tenor == its
                && one.types.iter().any(|kind| other.types.contains(kind));
            let shared = if fits { words.intersection(others).count() } else { 0 };
            let share = shared as f64 / (words.len() + others.len() - shared).max(1) as f64;
            if (PAIR_SHARE..threshold).contains(&share) {
                near.push((share, at, beside));
            }
        }
    }
    near.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    near.truncate(PAIRS_MAX);
    near.into_iter().map(|(_, one, other)| (known[one].0.clone(), known[other].0.clone())).collect()
}

/// Returns groups of records with the same content, each with one owner, the same scopes and a common type.
fn alike(records: Vec<Record>, threshold: f64) -> Vec<Vec<Record>> {
    let mut kinds: BTreeMap<(String, BTreeSet<String>), Vec<Record>> = BTreeMap::new();
    // Units and skills are excluded, because they have names and versions of their own.
    for record in
        records.into_iter().filter(|record| record.unit.is_none() && !record.extra.contains_key(crate::skill::MEMBER))
    {
        kinds.entry((record.owner.clone(), record.scopes.iter().cloned().collect())).or_default().push(record);
    }
    kinds.into_values().flat_map(|records| groups(records, threshold)).collect()
}

fn groups(records: Vec<Record>, threshold: f64) -> Vec<Vec<Record>> {
    let rows: Vec<BTreeSet<u64>> = records.iter().map(rows_of).collect();
    let tenors: Vec<Tenor> =
        records.iter().map(|record| Tenor::of(&format!("{}\n{}", record.task, record.content))).collect();
    // The first record represents its group; each further record joins the most similar group.
    let mut standing: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut group_of: Vec<usize> = Vec::with_capacity(records.len());
    for (at, own) in rows.iter().enumerate() {
        let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
        for row in own {
            for other in standing.get(row).into_iter().flatten() {
                *shared.entry(*other).or_default() += 1;
            }
        }
        let unfound = own.iter().filter(|row| standing.get(row).is_some_and(|found| found.len() >= COMMON)).count();
        let likeness = |(other, found): (&usize, &usize)| {
            let with = |shared: usize| shared as f64 / (own.len() + rows[*other].len() - shared).max(1) as f64;
            let most = with((found + unfound).min(own.len()).min(rows[*other].len()));
            // The complete comparison runs only if the upper bound of the similarity reaches the threshold.
            (if most < threshold { most } else { with(own.intersection(&rows[*other]).count()) }, *other)
        };
        let in_common = |other: &usize| {
            let of_a_type = records[at].types.iter().any(|one| records[*other].types.contains(one));
            of_a_type && tenors[at] == tenors[*other]
        };
        let best = shared
            .iter()
            .map(likeness)
            .filter(|(likeness, other)| *likeness >= threshold && in_common(other))
            .max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
        match best {
            Some((_, other)) => group_of.push(other),
            None => {
                group_of.push(at);
                for row in own {
                    let records = standing.entry(*row).or_default();
                    if records.len() < COMMON {
                        records.push(at);
                    }
                }
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
    for (record, group) in records.into_iter().zip(group_of) {
        groups.entry(group).or_default().push(record);
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

/// Returns the hashes of the rows of words in a record.
fn rows_of(record: &Record) -> BTreeSet<u64> {
    let words = terms(&format!("{}\n{}", record.task, record.content));
    let hash = |row: &[std::sync::Arc<str>]| {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        hasher.finish()
    };
    if words.len() < ROW { BTreeSet::from([hash(&words)]) } else { words.windows(ROW).map(hash).collect() }
}
