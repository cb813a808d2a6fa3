//! Ranking: which elements answer words best, wherever it is kept where the words stand.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::super::El;
use super::fuzzy;
use super::index::LEVELS;

/// The share of a word's weight that any hit has; the rest goes by its level.
const FLOOR: f32 = 0.3;
/// A word in more elements than this is only looked up for elements that a rarer word found.
const COMMON: usize = 20_000;
/// Unknown words of one query that are taken for slips; each costs a walk through the words.
const GUESSES_MAX: usize = 6;
/// What a word that begins so counts, and one with one or two slips.
const BEGINS: f32 = 0.8;
const SLIPPED: [f32; 3] = [1.0, 0.7, 0.5];

/// An element and how well it answers, in (0, 1].
pub type Hit = (El, f32);

/// An inverted index.
pub trait Words {
    /// Where `word` stands, if anywhere.
    fn standing(&self, word: &str) -> Option<Box<dyn Standing + '_>>;
    /// Calls `see` with the words from `first` on, in order, until it answers `false`.
    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool);
    /// The words that begin with `stem`, shortest first.
    fn beginning(&self, stem: &str) -> Vec<String> {
        fuzzy::beginning(&|first, see| self.words_from(first, see), stem)
    }
    /// The words a slip or two away from `word`, with the number of slips, the nearest first.
    fn slips(&self, word: &str) -> Vec<(String, usize)> {
        fuzzy::slips(&|first, see| self.words_from(first, see), word)
    }
    /// How many elements hold any word.
    fn elements(&self) -> usize;
}

/// Where a word stands.
pub trait Standing {
    /// In how many elements.
    fn count(&self) -> usize;
    /// What it is worth in one element, if it stands there: from 1 to [`super::LEVELS_MAX`].
    fn level(&self, el: El) -> Option<u8>;
    /// Calls `see` with every element, the most worth first, until it answers `false`.
    fn each(&self, see: &mut dyn FnMut(El, u8) -> bool);
    /// Calls `see` with every element in which it is worth so much, until it answers `false`.
    fn at(&self, level: u8, see: &mut dyn FnMut(El) -> bool);
}

/// Up to `limit` elements that `fits` lets through, best first.
pub fn search(words: &dyn Words, asked: &[Arc<str>], limit: usize, fits: &mut dyn FnMut(El) -> bool) -> Vec<Hit> {
    let mut guesses = GUESSES_MAX;
    let mut asked: Vec<Asked<'_>> = asked.iter().map(|word| ask(words, word, limit, &mut guesses)).collect();
    let whole: f32 = asked.iter().map(|asked| asked.weight).sum();
    if whole <= 0.0 || limit == 0 {
        return Vec::new();
    }
    asked.retain(|asked| !asked.standings.is_empty());
    // The rarest first: it tells most.
    asked.sort_by_key(|asked| asked.count);
    if let [only] = asked.as_slice()
        && let [(standing, factor)] = only.standings.as_slice()
    {
        // The most worth stand first: nothing past `limit` of them can be better.
        let mut hits = Vec::with_capacity(limit.min(64));
        standing.each(&mut |el, level| {
            if fits(el) {
                hits.push((el, only.weight * worth(level, *factor) / whole));
            }
            hits.len() < limit
        });
        return hits;
    }
    let mut scores: Scores = Scores::default();
    let mut left: f32 = asked.iter().map(|asked| asked.weight).sum();
    let mut closed = false;
    for asked in &asked {
        if !closed && let Some(least) = least_of_the_best(&scores, limit, left, fits) {
            // Nothing that was not found yet can be among the best any more, nor much of what was (MaxScore).
            scores.retain(|_, score| *score + left >= least);
            closed = true;
        }
        left -= asked.weight;
        let common = asked.count > COMMON;
        let enough =
            |fits: &mut dyn FnMut(El) -> bool| scores.keys().filter(|el| fits(**el)).take(limit).count() >= limit;
        if closed || (common && enough(fits)) {
            for (el, score) in &mut scores {
                *score += asked.weight * asked.best(*el);
            }
            continue;
        }
        if let ([(standing, factor)], false) = (asked.standings.as_slice(), common) {
            standing.each(&mut |el, level| {
                *scores.entry(el).or_default() += asked.weight * worth(level, *factor);
                true
            });
            continue;
        }
        let mut best: Scores = Scores::default();
        let mut fresh = 0;
        for (standing, factor) in &asked.standings {
            standing.each(&mut |el, level| {
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

/// Elements and how well they answer so far. Elements are numbers, and a multiplication spreads them well enough.
type Scores = HashMap<El, f32, BuildHasherDefault<Spread>>;

#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The score of the last of the `limit` best that `fits` lets through, if what is not found yet, which the words that are
/// left give no more than `left`, cannot come before it.
fn least_of_the_best(scores: &Scores, limit: usize, left: f32, fits: &mut dyn FnMut(El) -> bool) -> Option<f32> {
    let mut ahead: Vec<Hit> =
        scores.iter().map(|(el, score)| (*el, *score)).filter(|(_, score)| *score > left).collect();
    if ahead.len() < limit {
        return None;
    }
    ahead.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ahead.into_iter().filter(|(el, _)| fits(*el)).nth(limit - 1).map(|(_, score)| score)
}

/// One word of a query.
struct Asked<'w> {
    standings: Vec<(Box<dyn Standing + 'w>, f32)>,
    /// How many elements hold it.
    count: usize,
    /// How much it tells (its inverse document frequency).
    weight: f32,
}

/// What a word of a query stands for: itself, and where that finds too little, words that begin so or
/// are a slip away.
fn ask<'w>(words: &'w dyn Words, word: &str, limit: usize, guesses: &mut usize) -> Asked<'w> {
    let mut standings: Vec<(Box<dyn Standing + 'w>, f32)> =
        words.standing(word).map(|standing| (standing, 1.0)).into_iter().collect();
    let enough = standings.first().map_or(0, |(standing, _)| standing.count()) >= limit;
    if !enough && word.chars().count() > 1 {
        let mut more = words.beginning(word);
        more.dedup();
        standings.extend(more.iter().filter_map(|word| Some((words.standing(word)?, BEGINS))));
    }
    if standings.is_empty() && *guesses > 0 {
        *guesses -= 1;
        let mut more = words.slips(word);
        more.dedup();
        standings.extend(more.iter().filter_map(|(word, slips)| Some((words.standing(word)?, SLIPPED[*slips]))));
    }
    let count: usize = standings.iter().map(|(standing, _)| standing.count()).sum();
    let (all, with) = (words.elements() as f32, count.min(words.elements()) as f32);
    let weight = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
    Asked { standings, count, weight }
}

impl Asked<'_> {
    fn best(&self, el: El) -> f32 {
        let found = self.standings.iter().filter_map(|(standing, factor)| Some(worth(standing.level(el)?, *factor)));
        found.fold(0.0, f32::max)
    }
}

fn worth(level: u8, factor: f32) -> f32 {
    factor * (FLOOR + (1.0 - FLOOR) * f32::from(level) / LEVELS)
}
