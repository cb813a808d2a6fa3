//! The inverted index. What a posting is worth (BM25's saturation of repeated words and its penalty for
//! length, against a fixed length instead of a moving average) never changes while the concept does not,
//! so postings are kept by worth, and a snapshot of the index is a few pointers.

use std::collections::HashMap;
use std::sync::Arc;

use arcstr::ArcStr;
use imbl::{OrdMap, OrdSet};
use serde_json::Value;

use super::super::{El, Look};
use super::analyzer::each_term;
use super::fuzzy;
use crate::datum::Datum;

/// How much a word in the name, an alias, or another text counts.
const NAME: f32 = 3.0;
const ALIAS: f32 = 2.5;
const OTHER: f32 = 1.0;
/// BM25's saturation of repeated words.
const K1: f32 = 1.2;
/// BM25's penalty for length.
const B: f32 = 0.5;
/// The length that is neither rewarded nor punished.
const LENGTH: f32 = 24.0;
/// Levels of worth that are told apart.
const LEVELS: f32 = 32.0;
/// Text beyond this many terms of one element is not indexed.
const TERMS_MAX: usize = 512;
/// The share of a word's weight that any hit has; the rest goes by its level.
const FLOOR: f32 = 0.6;
/// A word in more elements than this is only looked up for elements that a rarer word found.
const COMMON: usize = 20_000;
/// Unknown words of one query that are taken for slips; each costs a walk through the words.
const GUESSES_MAX: usize = 6;
/// What a word that begins so counts, and one with one or two slips.
const BEGINS: f32 = 0.8;
const SLIPPED: [f32; 3] = [1.0, 0.7, 0.5];

/// An element and how well it answers, in (0, 1].
pub type Hit = (El, f32);

/// See the module.
#[derive(Clone, Default)]
pub struct Index {
    postings: OrdMap<ArcStr, Posting>,
    elements: usize,
}

/// Where a word stands.
#[derive(Clone)]
enum Posting {
    /// In one element.
    One(u8, El),
    /// In several, the most worth first.
    Several(Arc<Several>),
}

#[derive(Clone)]
struct Several {
    count: usize,
    levels: Vec<(u8, Nos)>,
}

/// Elements in order.
#[derive(Clone)]
enum Nos {
    Few(Vec<El>),
    Many(OrdSet<El>),
}

const FEW: usize = 64;

impl Nos {
    fn insert(&mut self, el: El) -> bool {
        match self {
            Self::Few(few) => match few.binary_search(&el) {
                Ok(_) => false,
                Err(at) => {
                    few.insert(at, el);
                    if few.len() > FEW {
                        *self = Self::Many(few.iter().copied().collect());
                    }
                    true
                }
            },
            Self::Many(many) => many.insert(el).is_none(),
        }
    }

    fn remove(&mut self, el: El) -> bool {
        match self {
            Self::Few(few) => few.binary_search(&el).map(|at| few.remove(at)).is_ok(),
            Self::Many(many) => many.remove(&el).is_some(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Few(few) => few.is_empty(),
            Self::Many(many) => many.is_empty(),
        }
    }

    fn contains(&self, el: El) -> bool {
        match self {
            Self::Few(few) => few.binary_search(&el).is_ok(),
            Self::Many(many) => many.contains(&el),
        }
    }

    fn each(&self, see: &mut dyn FnMut(El) -> bool) -> bool {
        match self {
            Self::Few(few) => few.iter().all(|el| see(*el)),
            Self::Many(many) => many.iter().all(|el| see(*el)),
        }
    }
}

impl Posting {
    fn count(&self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Several(several) => several.count,
        }
    }

    fn insert(&mut self, level: u8, el: El) {
        if let Self::One(old_level, old) = *self {
            let mut several = Several { count: 0, levels: Vec::new() };
            several.insert(old_level, old);
            *self = Self::Several(Arc::new(several));
        }
        if let Self::Several(several) = self {
            Arc::make_mut(several).insert(level, el);
        }
    }

    /// Takes an element out; answers whether nothing is left.
    fn remove(&mut self, level: u8, el: El) -> bool {
        match self {
            Self::One(_, only) => *only == el,
            Self::Several(several) => {
                let several = Arc::make_mut(several);
                if let Some(at) = several.levels.iter().position(|(known, _)| *known == level) {
                    several.count -= usize::from(several.levels[at].1.remove(el));
                    if several.levels[at].1.is_empty() {
                        several.levels.remove(at);
                    }
                }
                several.count == 0
            }
        }
    }

    /// The level of one element.
    fn level(&self, el: El) -> Option<u8> {
        match self {
            Self::One(level, only) => (*only == el).then_some(*level),
            Self::Several(several) => several.levels.iter().find(|(_, nos)| nos.contains(el)).map(|(level, _)| *level),
        }
    }

    /// Calls `see` with every element, the most worth first, until it answers `false`.
    fn each(&self, see: &mut dyn FnMut(El, u8) -> bool) {
        match self {
            Self::One(level, el) => drop(see(*el, *level)),
            Self::Several(several) => {
                several.levels.iter().all(|(level, nos)| nos.each(&mut |el| see(el, *level)));
            }
        }
    }
}

impl Several {
    fn insert(&mut self, level: u8, el: El) {
        let at = match self.levels.iter().position(|(known, _)| *known <= level) {
            Some(at) if self.levels[at].0 == level => at,
            place => {
                let at = place.unwrap_or(self.levels.len());
                self.levels.insert(at, (level, Nos::Few(Vec::new())));
                at
            }
        };
        self.count += usize::from(self.levels[at].1.insert(el));
    }
}

impl Index {
    /// Takes an element up, lets it go, or changes what is known of it. An element without words is not held.
    pub fn change(&mut self, el: El, before: Option<Look<'_>>, after: Option<Look<'_>>) {
        let (old, new) = (before.map(weigh).unwrap_or_default(), after.map(weigh).unwrap_or_default());
        if old == new {
            return;
        }
        for (term, level) in &old {
            if new.contains(&(term.clone(), *level)) {
                continue;
            }
            if self.postings.get_mut(term).is_some_and(|posting| posting.remove(*level, el)) {
                self.postings.remove(term);
            }
        }
        for (term, level) in &new {
            if old.contains(&(term.clone(), *level)) {
                continue;
            }
            match self.postings.get_mut(term) {
                Some(posting) => posting.insert(*level, el),
                None => drop(self.postings.insert(term.clone(), Posting::One(*level, el))),
            }
        }
        self.elements = self.elements + usize::from(!new.is_empty()) - usize::from(!old.is_empty());
    }

    /// How many words are known.
    pub fn words(&self) -> usize {
        self.postings.len()
    }

    /// Up to `limit` elements that `fits` lets through, best first.
    pub fn search(&self, words: &[Arc<str>], limit: usize, fits: &mut dyn FnMut(El) -> bool) -> Vec<Hit> {
        let mut guesses = GUESSES_MAX;
        let mut asked: Vec<Asked<'_>> = words.iter().map(|word| self.ask(word, limit, &mut guesses)).collect();
        let whole: f32 = asked.iter().map(|asked| asked.weight).sum();
        if whole <= 0.0 || limit == 0 {
            return Vec::new();
        }
        asked.retain(|asked| !asked.postings.is_empty());
        asked.sort_by_key(|asked| asked.count);
        if let [only] = asked.as_slice()
            && let [(posting, factor)] = only.postings.as_slice()
        {
            // The most worth stand first: nothing past `limit` of them can be better.
            let mut hits = Vec::with_capacity(limit.min(64));
            posting.each(&mut |el, level| {
                if fits(el) {
                    hits.push((el, only.weight * worth(level, *factor) / whole));
                }
                hits.len() < limit
            });
            return hits;
        }
        let mut scores: HashMap<El, f32> = HashMap::new();
        for asked in &asked {
            let common = asked.count > COMMON;
            if common && scores.len() >= limit {
                for (el, score) in &mut scores {
                    *score += asked.weight * asked.best(*el);
                }
                continue;
            }
            let mut best: HashMap<El, f32> = HashMap::new();
            let mut fresh = 0;
            for (posting, factor) in &asked.postings {
                posting.each(&mut |el, level| {
                    if common && !scores.contains_key(&el) {
                        fresh += usize::from(fits(el));
                    }
                    let score = best.entry(el).or_default();
                    *score = score.max(worth(level, *factor));
                    fresh < limit
                });
            }
            if common {
                for el in scores.keys() {
                    best.entry(*el).or_insert_with(|| asked.best(*el));
                }
            }
            for (el, score) in best {
                *scores.entry(el).or_default() += asked.weight * score;
            }
        }
        let mut ranked: Vec<Hit> = scores.into_iter().map(|(el, score)| (el, score / whole)).collect();
        ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        ranked.into_iter().filter(|(el, _)| fits(*el)).take(limit).collect()
    }

    /// What a word of a query stands for: itself, and where that finds too little, words that begin so or
    /// are a slip away.
    fn ask(&self, word: &str, limit: usize, guesses: &mut usize) -> Asked<'_> {
        let mut postings: Vec<(&Posting, f32)> =
            self.postings.get(word).map(|posting| (posting, 1.0)).into_iter().collect();
        let enough = postings.first().map_or(0, |(posting, _)| posting.count()) >= limit;
        if !enough && word.chars().count() > 1 {
            let more = fuzzy::beginning(&self.postings, word);
            postings.extend(more.iter().filter_map(|word| Some((self.postings.get(word)?, BEGINS))));
        }
        if postings.is_empty() && *guesses > 0 {
            *guesses -= 1;
            let more = fuzzy::slips(&self.postings, word);
            postings.extend(more.iter().filter_map(|(word, slips)| Some((self.postings.get(word)?, SLIPPED[*slips]))));
        }
        let count: usize = postings.iter().map(|(posting, _)| posting.count()).sum();
        let (all, with) = (self.elements as f32, count.min(self.elements) as f32);
        let weight = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        Asked { postings, count, weight }
    }
}

/// One word of a query.
struct Asked<'i> {
    postings: Vec<(&'i Posting, f32)>,
    /// How many elements hold it.
    count: usize,
    /// How much it tells (its inverse document frequency).
    weight: f32,
}

impl Asked<'_> {
    fn best(&self, el: El) -> f32 {
        let found = self.postings.iter().filter_map(|(posting, factor)| Some(worth(posting.level(el)?, *factor)));
        found.fold(0.0, f32::max)
    }
}

fn worth(level: u8, factor: f32) -> f32 {
    factor * (FLOOR + (1.0 - FLOOR) * f32::from(level) / LEVELS)
}

/// The words of an element, each with its level of worth.
fn weigh(look: Look<'_>) -> Vec<(ArcStr, u8)> {
    let mut weights: Vec<(ArcStr, f32)> = Vec::new();
    let (mut length, mut count) = (0.0, 0);
    let mut add = |text: &str, field: f32| {
        each_term(text, true, &mut |term, share| {
            if count == TERMS_MAX {
                return;
            }
            count += 1;
            length += field * share;
            match weights.iter_mut().find(|(known, _)| known.as_str() == term) {
                Some((_, weight)) => *weight += field * share,
                None => weights.push((term.into(), field * share)),
            }
        });
    };
    if let Look::Concept(concept) = look {
        add(&concept.name, NAME);
    }
    for (key, value) in look.attributes().pairs() {
        let field = if key.as_str() == "aliases" { ALIAS } else { OTHER };
        match value {
            Datum::Str(text) => add(text, field),
            Datum::Json(json) => {
                if let Value::Array(items) = &**json {
                    items.iter().filter_map(Value::as_str).for_each(|text| add(text, field));
                }
            }
            _ => {}
        }
    }
    let best = K1 + 1.0;
    weights
        .into_iter()
        .map(|(term, weight)| {
            let worth = weight * best / (weight + K1 * (1.0 - B + B * length / LENGTH));
            (term, (worth / best * LEVELS).ceil().clamp(1.0, LEVELS) as u8)
        })
        .collect()
}
