//! Ranking: which elements answer words best, wherever it is kept where the words stand.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::super::El;
use super::fuzzy;
use super::index::LEVELS;

/// The share of a word's weight that any hit has; the rest goes by its level.
const FLOOR: f32 = 0.3;
/// A word in more elements than this is only looked up for elements that a rarer word found.
const COMMON: usize = 20_000;
/// Elements of a word that are walked by in the time in which one is looked up.
const LOOKUP: usize = 64;
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
    // What each word and those after it can give at most.
    let mut left: Vec<f32> = asked
        .iter()
        .rev()
        .scan(0.0, |sum, asked| {
            Some({
                *sum += asked.most();
                *sum
            })
        })
        .collect();
    left.reverse();
    let mut scores = Scores::default();
    let mut closed = false;
    for (asked, left) in asked.iter().zip(left) {
        if !closed && let Some(least) = least_of_the_best(&scores, limit, left, fits) {
            // Nothing that was not found yet can be among the best any more, nor much of what was (MaxScore).
            scores.retain(|score| score + left >= least);
            closed = true;
        }
        let common = asked.count > COMMON;
        closed |= common && scores.iter().filter(|(el, _)| fits(*el)).take(limit).count() >= limit;
        // To look elements up one by one is dearer than to walk by them.
        if closed && scores.len() * LOOKUP < asked.count {
            scores.change(|el, score| score + asked.weight * asked.best(el));
            continue;
        }
        let one = match asked.standings.as_slice() {
            [(standing, factor)] if !common || closed => Some((standing, *factor)),
            _ => None,
        };
        if let Some((standing, factor)) = one {
            standing.each(&mut |el, level| {
                scores.add(el, asked.weight * worth(level, factor), closed);
                true
            });
            continue;
        }
        let mut best = Scores::default();
        let mut fresh = 0;
        for (standing, factor) in &asked.standings {
            standing.each(&mut |el, level| {
                if common && !closed && scores.get(el) == 0.0 {
                    fresh += usize::from(fits(el));
                }
                best.raise(el, worth(level, *factor));
                fresh < limit
            });
        }
        if common {
            // Not all of them were walked by.
            scores.iter().for_each(|(el, _)| best.raise(el, asked.best(el)));
        }
        best.iter().for_each(|(el, score)| scores.add(el, asked.weight * score, closed));
    }
    best_first(scores.iter()).filter(|(el, _)| fits(*el)).take(limit).map(|(el, score)| (el, score / whole)).collect()
}

/// Elements and how well they answer so far, in pages: those that hold a word stand close to each other.
#[derive(Default)]
struct Scores {
    pages: Vec<(u32, Box<[f32; PAGE]>)>,
    places: HashMap<u32, usize>,
    /// The page that was asked for last.
    last: usize,
    len: usize,
}

const PAGE: usize = 1 << 10;

impl Scores {
    fn len(&self) -> usize {
        self.len
    }

    /// The page of an element, and its place there.
    fn page(&self, el: El) -> (u32, usize) {
        (el.0 / PAGE as u32, el.0 as usize % PAGE)
    }

    fn get(&self, el: El) -> f32 {
        let (page, at) = self.page(el);
        self.places.get(&page).map_or(0.0, |place| self.pages[*place].1[at])
    }

    /// The score of an element, to be changed; `None` where its page has none and none is to be made.
    fn slot(&mut self, el: El, make: bool) -> Option<&mut f32> {
        let (page, at) = self.page(el);
        if self.pages.get(self.last).is_none_or(|(last, _)| *last != page) {
            self.last = match self.places.get(&page) {
                Some(place) => *place,
                None if !make => return None,
                None => {
                    self.pages.push((page, Box::new([0.0; PAGE])));
                    self.places.insert(page, self.pages.len() - 1);
                    self.pages.len() - 1
                }
            };
        }
        Some(&mut self.pages[self.last].1[at])
    }

    /// Adds to the score of an element; where it is closed, only to one that has a score.
    fn add(&mut self, el: El, more: f32, closed: bool) {
        let Some(score) = self.slot(el, !closed) else { return };
        let fresh = *score == 0.0;
        if !fresh || !closed {
            *score += more;
            self.len += usize::from(fresh);
        }
    }

    /// Makes the score of an element at least so high.
    fn raise(&mut self, el: El, least: f32) {
        if let Some(score) = self.slot(el, true) {
            let fresh = *score == 0.0 && least > 0.0;
            *score = score.max(least);
            self.len += usize::from(fresh);
        }
    }

    /// Gives every score anew.
    fn change(&mut self, give: impl Fn(El, f32) -> f32) {
        for (page, scores) in &mut self.pages {
            for (at, score) in scores.iter_mut().enumerate().filter(|(_, score)| **score != 0.0) {
                *score = give(El(*page * PAGE as u32 + at as u32), *score);
            }
        }
    }

    fn retain(&mut self, keep: impl Fn(f32) -> bool) {
        for score in self.pages.iter_mut().flat_map(|(_, scores)| scores.iter_mut()) {
            if *score != 0.0 && !keep(*score) {
                (*score, self.len) = (0.0, self.len - 1);
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = Hit> {
        self.pages.iter().flat_map(|(page, scores)| {
            let found = scores.iter().enumerate().filter(|(_, score)| **score != 0.0);
            found.map(move |(at, score)| (El(*page * PAGE as u32 + at as u32), *score))
        })
    }
}

/// Hits in order, of which mostly few are asked for.
fn best_first(hits: impl Iterator<Item = Hit>) -> impl Iterator<Item = Hit> {
    let mut heap: BinaryHeap<Ranked> = hits.map(|(el, score)| Ranked(score, Reverse(el))).collect();
    std::iter::from_fn(move || heap.pop()).map(|Ranked(score, Reverse(el))| (el, score))
}

/// A score; of two that are one, the older element comes first.
#[derive(PartialEq)]
struct Ranked(f32, Reverse<El>);

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// The score of the last of the `limit` best that `fits` lets through, if what is not found yet, which the words that are
/// left give no more than `left`, cannot come before it.
fn least_of_the_best(scores: &Scores, limit: usize, left: f32, fits: &mut dyn FnMut(El) -> bool) -> Option<f32> {
    if scores.len() < limit {
        return None;
    }
    let ahead: Vec<Hit> = scores.iter().filter(|(_, score)| *score > left).collect();
    if ahead.len() < limit {
        return None;
    }
    best_first(ahead.into_iter()).filter(|(el, _)| fits(*el)).nth(limit - 1).map(|(_, score)| score)
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
    /// What it gives an element at most.
    fn most(&self) -> f32 {
        let mut most: f32 = 0.0;
        for (standing, factor) in &self.standings {
            standing.each(&mut |_, level| {
                most = most.max(worth(level, *factor));
                false
            });
        }
        self.weight * most
    }

    fn best(&self, el: El) -> f32 {
        let found = self.standings.iter().filter_map(|(standing, factor)| Some(worth(standing.level(el)?, *factor)));
        found.fold(0.0, f32::max)
    }
}

fn worth(level: u8, factor: f32) -> f32 {
    factor * (FLOOR + (1.0 - FLOOR) * f32::from(level) / LEVELS)
}
