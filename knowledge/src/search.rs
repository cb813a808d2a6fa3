//! Search (MISSION H1, R2) in three steps: select the records that the caller may see, pick twice as many candidates as
//! requested by their relevance to the question, and order these by quality.
//!
//! A router picks the candidates. Word scores are always available. With an embedder, word scores and similarity of
//! meaning are combined by [`crate::rank`]. With a floor, records whose relevance is too far below the best one are no
//! candidates, so high quality does not outrank relevance.

use std::collections::BTreeMap;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use nexus::kip::exec::Semantic;
use nexus::kip::graph::text::terms_of_query;
use nexus::kip::graph::{ElementId, ElementRef, GraphRead};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Origin;

use crate::list::{Which, newest};
use crate::rank::{Passage, Question, Ranked, Ranking, rank};
use crate::record::Record;
use crate::scope;
use crate::{Knowledge, KnowledgeError, commons, read};

/// The maximum number of results of a search.
pub const TOP_K_MAX: usize = 50;
/// The number of records considered when a page is filled from search results.
pub(crate) const TOP_K_WIDE: usize = 200;
/// The maximum length of a question, in characters.
const QUESTION_CHARS_MAX: usize = 4_000;
/// The number of candidates by words, and by meaning, before their scores are combined.
const OF_EACH: usize = 100;
/// The floor for unasked retrieval, as a share of the best relevance: see [`Query::floor`].
pub const FLOOR: f64 = 0.35;
/// The maximum number of records offered to a model, and the maximum length of each description in characters.
const OFFERED_MAX: usize = 200;
const OFFERED_CHARS_MAX: usize = 100;

/// The method that picks the candidates of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SearchRouter)]
pub enum Router {
    /// Word scores only.
    Lexical,
    /// Word scores and similarity of meaning.
    Hybrid,
    /// A model, which reads the purpose of each record. If there are too many, words and meaning preselect the records.
    Llm,
}

/// A search request.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The question in words.
    pub text: String,
    /// The filter of the records to search.
    pub which: Which,
    /// The maximum number of results.
    pub top_k: usize,
    /// The method to use; `None` selects the best available one.
    pub router: Option<Router>,
    /// `true` if nearer scopes rank before higher quality, as for profiles.
    pub scope_first: bool,
    /// The minimum relevance of a result, as a share of the best relevance, from 0 (no minimum, the default) to 1. A
    /// search that a user requests needs no floor, because a question may have several answers. For unasked retrieval,
    /// [`FLOOR`] removes noise.
    pub floor: f64,
    /// `true` if `top_k` may be up to 200 instead of [`TOP_K_MAX`], for lists that the daemon pages itself.
    pub is_wide: bool,
}

/// The explanation of a record's rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Explained {
    /// The word score, from 0 to 1.
    pub lexical: f64,
    /// The similarity of meaning, from −1 to 1; `None` without a vector.
    pub semantic: Option<f64>,
    /// The distance of the record's nearest scope: 0 is the user's own scope, 5 is public.
    pub scope: usize,
}

/// One search result.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The record.
    pub record: Record,
    /// The relevance, at most 1: the word score, or the combined score.
    pub relevance: f64,
    /// The explanation of the rank.
    pub explained: Explained,
}

/// The results of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The results, best first.
    pub hits: Vec<Hit>,
    /// The method that picked the candidates.
    pub router: Router,
    /// The reason why a better method was not used; `None` if the method is the requested or best one.
    pub degraded: Option<String>,
    /// The weight of words in the relevance, from 0 to 1; that of meaning is the rest.
    pub words: f64,
}

impl Found {
    /// Returns the results as JSON. With `explain`, each record has its explanation.
    pub fn to_json(&self, explain: bool) -> Value {
        let shown = |hit: &Hit| {
            let record = &hit.record;
            let mut shown = json!({
                "id": record.id, "task": record.task, "content": record.content, "types": record.types,
                "tags": record.tags, "eval": record.eval, "quality_score": record.eval.quality(),
                "scopes": record.scopes, "owner": record.owner, "resource_ids": record.resource_ids,
                "relevance": (hit.relevance * 1e4).round() / 1e4,
            });
            if explain {
                shown["explain"] = json!(hit.explained);
                shown["explain"]["quality"] =
                    json!({"score": record.eval.score, "helpful": record.eval.helpful, "harmful": record.eval.harmful});
                if self.router == Router::Hybrid {
                    shown["explain"]["weights"] = json!({"lexical": self.words, "semantic": 1.0 - self.words});
                }
            }
            shown
        };
        let results: Vec<Value> = self.hits.iter().map(shown).collect();
        let mut answer = json!({"results": results, "count": self.hits.len(), "router": self.router});
        if let Some(why) = &self.degraded {
            answer["degraded"] = why.as_str().into();
        }
        answer
    }
}

impl Query {
    /// Creates a query for the `top_k` records that answer `text` best.
    pub fn new(text: impl Into<String>, top_k: usize) -> Self {
        let (which, text) = (Which::default(), text.into());
        Self { text, which, top_k, router: None, scope_first: false, floor: 0.0, is_wide: false }
    }

    /// Creates a query for the [`TOP_K_WIDE`] best records, from which the caller makes its pages.
    pub(crate) fn wide(text: impl Into<String>) -> Self {
        Self { is_wide: true, ..Self::new(text, TOP_K_WIDE) }
    }

    fn check(&self) -> Result<(), KnowledgeError> {
        if self.text.trim().is_empty() || self.text.chars().count() > QUESTION_CHARS_MAX {
            return Err(KnowledgeError::invalid("q", format!("is a text of 1 to {QUESTION_CHARS_MAX} characters")));
        }
        let most = if self.is_wide { TOP_K_WIDE } else { TOP_K_MAX };
        if self.top_k == 0 || self.top_k > most {
            return Err(KnowledgeError::invalid("top_k", format!("is a number from 1 to {TOP_K_MAX}")));
        }
        Ok(())
    }
}

impl Knowledge {
    /// Returns the records that the caller may see and that answer the question best.
    ///
    /// # Errors
    /// Returns [`KnowledgeError::Invalid`] for an empty question. A missing embedder is no error; the result reports
    /// it.
    pub async fn search(&self, query: &Query, origin: &Origin) -> Result<Found, KnowledgeError> {
        Box::pin(self.search_among(query, None, origin)).await
    }

    /// Searches the records that `accepts` accepts; see [`Self::search`].
    pub(crate) async fn search_among(
        &self,
        query: &Query,
        accepts: Option<&(dyn Fn(&Record) -> bool + Sync)>,
        origin: &Origin,
    ) -> Result<Found, KnowledgeError> {
        query.check()?;
        let pays = !origin.principal.is_anybody();
        let by_meaning = pays && self.nexus.has_embedder() && query.router != Some(Router::Lexical);
        let sight = self.nexus.sight(&commons(), origin, by_meaning.then_some(query.text.as_str())).await?;
        let router = if sight.near().is_some() { Router::Hybrid } else { Router::Lexical };
        let degraded = match (by_meaning, query.router) {
            (false, Some(Router::Hybrid)) => Some("no embedder is configured".to_owned()),
            _ => sight.warnings.first().cloned(),
        };
        let now = self.store.clock().now();
        let asks_a_model = query.router == Some(Router::Llm);
        let (mut hits, offered, words) = sight.look(|graph| {
            let fits = |el: ElementId| {
                let mut fits = false;
                graph.look(el, &mut |look| {
                    fits = matches!(look, ElementRef::Concept(concept) if query.which.fits(concept, now))
                });
                fits && accepts.is_none_or(|accepts| read(graph, el).is_some_and(|record| accepts(&record)))
            };
            let count = if asks_a_model { OFFERED_MAX } else { 2 * query.top_k };
            let near = sight.near().map(|near| (near, sight.reads_term()));
            let picked = pick(graph, near, query, count, now.to_zoned(TimeZone::UTC).date(), &fits);
            let hit = |(record, relevance, explained): (Record, f64, Explained)| {
                let scope = scope::nearest(&record.scopes, &origin.principal);
                Hit { record, relevance, explained: Explained { scope, ..explained } }
            };
            let hits: Vec<Hit> = picked.candidates.into_iter().map(hit).collect();
            // If there are few records, the model reads all of them.
            let few = asks_a_model.then(|| newest(graph, &query.which, None, OFFERED_MAX + 1, now));
            let offered = match few {
                Some(few) if few.len() <= OFFERED_MAX => few.into_iter().map(|(_, record)| record).collect(),
                Some(_) => hits.iter().map(|hit| hit.record.clone()).collect(),
                None => Vec::new(),
            };
            (hits, offered, picked.words)
        })?;
        let (mut router, mut degraded, mut chosen_by_a_model) = (router, degraded, 0);
        if asks_a_model {
            match self.choose(&query.text, offered, origin).await {
                Ok(chosen) => {
                    chosen_by_a_model = chosen.len().min(2 * query.top_k);
                    (router, hits) = (Router::Llm, chosen_first(chosen, hits, origin));
                }
                Err(why) => degraded = Some(why.to_owned()),
            }
            hits.truncate(2 * query.top_k);
        }
        let order = |one: &Hit, other: &Hit| {
            let by_scope = one.explained.scope.cmp(&other.explained.scope);
            let by_worth = other.record.eval.quality().total_cmp(&one.record.eval.quality());
            let by_relevance = other.relevance.total_cmp(&one.relevance);
            let first = if query.scope_first { by_scope.then(by_worth) } else { by_worth };
            first.then(by_relevance).then(by_scope).then(other.record.updated_at.cmp(&one.record.updated_at))
        };
        let (chosen, others) = hits.split_at_mut(chosen_by_a_model);
        chosen.sort_by(order);
        others.sort_by(order);
        hits.truncate(query.top_k);
        Ok(Found { hits, router, degraded, words })
    }
}

impl Knowledge {
    /// Returns the records that a model chooses for a question, best first.
    async fn choose(&self, question: &str, offered: Vec<Record>, origin: &Origin) -> Result<Vec<Record>, &'static str> {
        let thinker = self.thinker.as_ref().ok_or("no_llm")?;
        if offered.is_empty() {
            return Ok(Vec::new());
        }
        let line = |record: &Record| {
            let types: Vec<&str> = record.types.iter().map(|one| one.as_str()).collect();
            let task: String = record.task.chars().take(OFFERED_CHARS_MAX).collect();
            format!("{} | {} | {}", record.id, types.join(", "), task.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let lines: Vec<String> = offered.iter().map(line).collect();
        let ids = thinker.route(question, &lines.join("\n"), origin).await?;
        // Names that were not offered to the model are ignored.
        let mut offered: BTreeMap<String, Record> =
            offered.into_iter().map(|record| (record.id.clone(), record)).collect();
        Ok(ids.iter().filter_map(|id| offered.remove(id)).collect())
    }
}

/// Returns the records that a model chose, in its order, followed by the other candidates.
fn chosen_first(chosen: Vec<Record>, picked: Vec<Hit>, origin: &Origin) -> Vec<Hit> {
    let of_all = chosen.len() as f64 + 1.0;
    let mut hits: Vec<Hit> = Vec::with_capacity(chosen.len() + picked.len());
    for (at, record) in chosen.into_iter().enumerate() {
        let known = picked.iter().find(|hit| hit.record.id == record.id).map(|hit| hit.explained);
        let scope = scope::nearest(&record.scopes, &origin.principal);
        let explained = Explained { scope, ..known.unwrap_or_default() };
        hits.push(Hit { record, relevance: 1.0 - at as f64 / of_all, explained });
    }
    for hit in picked {
        if !hits.iter().any(|chosen| chosen.record.id == hit.record.id) {
            hits.push(Hit { relevance: hit.relevance / of_all, ..hit });
        }
    }
    hits
}

/// The candidates of a search, best first, each with its relevance.
struct Picked {
    candidates: Vec<(Record, f64, Explained)>,
    /// The weight of words in the relevance, from 0 to 1.
    words: f64,
}

/// Returns up to `count` records that pass `fits` and answer best. `near` are the similarities of meaning, with `true` if
/// the embedder knows the script of the question.
fn pick(
    graph: &dyn GraphRead,
    near: Option<(&dyn Semantic, bool)>,
    query: &Query,
    count: usize,
    today: Date,
    fits: &dyn Fn(ElementId) -> bool,
) -> Picked {
    let text = &query.text;
    let wide = if near.is_some() { OF_EACH.max(count) } else { count };
    let mut found: BTreeMap<ElementId, Explained> = BTreeMap::new();
    for (el, lexical) in graph.search(&terms_of_query(text), false, wide, &mut |el| fits(el)) {
        found.insert(el, Explained { lexical: f64::from(lexical), ..Explained::default() });
    }
    if let Some((near, _)) = near {
        for (el, likeness) in near.nearest(text, false, wide, Some(0.0), &mut |el| graph.has(el) && fits(el)) {
            found.entry(el).or_default().semantic = Some(likeness);
        }
        // Elements that only the word search found also get a similarity of meaning.
        for (el, explained) in found.iter_mut().filter(|(_, explained)| explained.semantic.is_none()) {
            explained.semantic = near.likeness(text, *el);
        }
    }
    let read = found.into_iter().filter_map(|(el, explained)| Some((el, read(graph, el)?, explained)));
    let mut read: Vec<(ElementId, Record, Explained)> = read.collect();
    let ranking = match near {
        None => {
            read.sort_by(|one, other| other.2.lexical.total_cmp(&one.2.lexical).then(one.0.cmp(&other.0)));
            let lexical = |(at, (_, _, one)): (usize, &(ElementId, Record, Explained))| Ranked {
                at,
                score: one.lexical,
                own: one.lexical,
            };
            Ranking { order: read.iter().enumerate().map(lexical).collect(), words: 1.0 }
        }
        Some((_, is_read)) => {
            let passages: Vec<Passage<'_>> =
                read.iter().map(|(_, record, explained)| passage(record, *explained)).collect();
            let ranking = rank(Question { text, today, is_read }, &passages);
            // The relevance is relative to the best candidate.
            let best = ranking.order.first().map_or(1.0, |one| one.score.max(f64::MIN_POSITIVE));
            let relative = |one: Ranked| Ranked { score: one.score / best, own: one.own / best, ..one };
            Ranking { order: ranking.order.into_iter().map(relative).collect(), ..ranking }
        }
    };
    let best = ranking.order.first().map_or(0.0, |one| one.own);
    // A floor counts what a record itself answers, not the place that its meaning gave it.
    let is_relevant = |own: f64| own > 0.0 && own >= query.floor * best;
    let mut read: Vec<Option<(Record, Explained)>> =
        read.into_iter().map(|(_, record, explained)| Some((record, explained))).collect();
    let picked = ranking.order.into_iter().filter(|one| is_relevant(one.own)).take(count);
    let candidates = picked.filter_map(|one| {
        let (record, explained) = read[one.at].take()?;
        Some((record, one.score, explained))
    });
    Picked { candidates: candidates.collect(), words: ranking.words }
}

/// Returns what the ranking reads of a record. A record that was learned from a message was said in a talk, at the time
/// of its source.
fn passage(record: &Record, explained: Explained) -> Passage<'_> {
    let source = |member: &str| record.source.get(member).and_then(Value::as_str);
    let speaker = source("name").or_else(|| record.owner.strip_prefix("user:")).unwrap_or_default();
    let said_at = record.message_id.as_ref().and_then(|_| source("timestamp")?.parse().ok());
    Passage {
        text: &record.content,
        around: record.context.iter().map(String::as_str).collect(),
        words: explained.lexical,
        meaning: explained.semantic,
        said_at,
        speaker,
        ..Passage::default()
    }
}
