//! SEARCH: finds concepts or links by words, best first, each hit with `metadata._score` (draft7 §5.2, superset 8).
//! Among otherwise equal hits, those with higher confidence rank higher (K12).

use std::collections::BTreeMap;

use serde_json::Value;

use super::describe::rank;
use super::{Answer, Budget, Options, limit_of, text_of};
use crate::datum::Sym;
use crate::graph::text::terms_of_query;
use crate::graph::{ElementId, ElementRef, GraphRead};
use crate::lang::ast::{Lit, Search};
use crate::lang::{ErrorKind, KipError};

/// The number of hits when there is no LIMIT.
const HITS_DEFAULT: usize = 20;
/// The maximum number of words in a search.
const WORDS_MAX: usize = 64;
/// The weight of confidence relative to the words.
const BELIEF: f64 = 0.1;

/// Semantic search, if an embedder is configured.
pub trait Semantic: Send + Sync {
    /// Returns up to `limit` concepts, or links, that are nearest in meaning to `term` and that `fits` accepts, best
    /// first, with a similarity from 0 to 1. Elements below the similarity `least` are left out; `None` means the
    /// similarity below which two texts do not match.
    fn nearest(
        &self,
        term: &str,
        links: bool,
        limit: usize,
        least: Option<f64>,
        fits: &mut dyn FnMut(ElementId) -> bool,
    ) -> Vec<(ElementId, f64)>;

    /// Returns the similarity of an element and `term`, from −1 to 1; `None` for an element without a vector.
    fn likeness(&self, term: &str, el: ElementId) -> Option<f64>;
}

/// Runs a bound SEARCH.
///
/// # Errors
/// `parameter` for a term, type, mode or threshold of the wrong kind.
pub fn search(search: &Search<'_>, graph: &dyn GraphRead, options: &Options<'_>) -> Result<Answer, KipError> {
    let term = text_of(&search.term.0, "the term", search.term.1)?;
    let kind = search.kind.as_ref().map(|(kind, span)| text_of(kind, "the type", *span)).transpose()?;
    let mode = search
        .mode
        .as_ref()
        .map(|(mode, span)| text_of(mode, "the mode", *span).map(|mode| (mode, *span)))
        .transpose()?;
    let (keyword, meaning) = match mode.map(|(mode, span)| (mode.to_lowercase(), span)) {
        None => (true, true),
        Some((mode, _)) if mode == "hybrid" => (true, true),
        Some((mode, _)) if mode == "keyword" => (true, false),
        // Without an embedder, a semantic search falls back to words instead of failing.
        Some((mode, _)) if mode == "semantic" => (options.semantic.is_none(), true),
        Some((_, span)) => {
            return Err(KipError::new(ErrorKind::Parameter, "MODE is \"keyword\", \"semantic\" or \"hybrid\"").at(span));
        }
    };
    let least = match &search.threshold {
        None => None,
        Some((lit, span)) => match lit.to_datum().as_f64() {
            Some(least) if (0.0..=1.0).contains(&least) && !matches!(lit, Lit::Str(_)) => Some(least),
            _ => return Err(KipError::new(ErrorKind::Parameter, "THRESHOLD is a score from 0 to 1").at(*span)),
        },
    };
    let limit = limit_of(search.limit.as_ref())?.unwrap_or(HITS_DEFAULT).min(options.limits.answer);
    // A type that was never interned matches nothing.
    let known = kind.map(Sym::known);
    if known == Some(None) {
        return Ok(Answer::of(Value::Array(Vec::new())));
    }
    // The search fetches some more hits than requested, so that hits with higher confidence can move up.
    let wide = limit.saturating_mul(2).max(limit.saturating_add(16));
    let (mut scores, mut warnings): (BTreeMap<ElementId, f64>, Vec<String>) = (BTreeMap::new(), Vec::new());
    // Without MODE, the available methods are used without a warning.
    if let Some((mode, _)) = mode.filter(|_| meaning && options.semantic.is_none()) {
        warnings.push(format!("there is no embedder: MODE \"{mode}\" found by words alone"));
    }
    if keyword {
        let mut words = terms_of_query(term);
        if words.len() > WORDS_MAX {
            warnings.push(format!("only the first {WORDS_MAX} of {} words are looked for", words.len()));
            words.truncate(WORDS_MAX);
        }
        let mut fits = |el: ElementId| known.flatten().is_none_or(|kind| graph.is_of(el, kind));
        for (el, score) in graph.search(&words, search.propositions, wide, &mut fits) {
            scores.insert(el, f64::from(score));
        }
        if search.propositions {
            by_predicate(graph, &words, known.flatten(), wide, &mut scores);
        }
    }
    if let Some(semantic) = options.semantic.filter(|_| meaning) {
        let mut fits = |el: ElementId| graph.has(el) && known.flatten().is_none_or(|kind| graph.is_of(el, kind));
        for (el, likeness) in semantic.nearest(term, search.propositions, wide, least, &mut fits) {
            let score = scores.entry(el).or_insert(0.0);
            *score = score.max(likeness.clamp(0.0, 1.0));
        }
    }
    let asked = term.trim().to_lowercase();
    let mut ranked: Vec<(f64, i64, ElementId)> = Vec::with_capacity(scores.len());
    for (el, score) in scores {
        graph.look(el, &mut |look| {
            let (confidence, updated) = rank(look);
            // An element with exactly this name ranks above one that only mentions it.
            let named = matches!(look, ElementRef::Concept(concept) if concept.name.to_lowercase() == asked);
            let score = if named { 1.0 } else { score.min(0.99) };
            ranked.push((score * (1.0 - BELIEF + BELIEF * confidence), updated, el));
        });
    }
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(a.2.cmp(&b.2)));
    let hits = ranked.into_iter().filter(|(score, ..)| *score >= least.unwrap_or(0.0) && *score > 0.0).take(limit);
    let budget = Budget::new(options.limits);
    let result = hits
        .map(|(score, _, el)| {
            let mut hit = graph.json(el);
            hit["metadata"]["_score"] = ((score * 1000.0).round() / 1000.0).into();
            budget.answered(&hit).map(|()| hit)
        })
        .collect::<Result<_, _>>()?;
    Ok(Answer { result, warnings, ..Answer::default() })
}

/// Returns links whose predicate the words name completely or partly.
fn by_predicate(
    graph: &dyn GraphRead,
    words: &[std::sync::Arc<str>],
    kind: Option<Sym>,
    limit: usize,
    scores: &mut BTreeMap<ElementId, f64>,
) {
    for (predicate, _) in graph.predicates() {
        if words.is_empty() || kind.is_some_and(|kind| kind != predicate) {
            continue;
        }
        let own = crate::graph::text::terms(predicate.as_str());
        let begins = |word: &std::sync::Arc<str>| {
            own.iter().any(|term| term == word || (word.len() > 2 && term.starts_with(&**word)))
        };
        let hit = words.iter().filter(|word| begins(word)).count();
        if hit == 0 {
            continue;
        }
        let whole = hit == own.len().max(words.len());
        let score = if whole { 1.0 } else { 0.9 * hit as f64 / words.len().max(own.len()) as f64 };
        for el in graph.of_predicate(Some(predicate), ElementId::FIRST_LINK, limit) {
            let known = scores.entry(el).or_insert(0.0);
            *known = known.max(score);
        }
    }
}
