//! Ranking: selects the elements that match the words of a query best, independently of the medium of the index.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::ElementId;
use super::fuzzy;
use super::index::LEVELS;
use super::scores::Scores;

/// The part of a word's weight that every hit receives; the rest depends on the level.
const FLOOR: f32 = 0.3;
/// A word in more elements than this is looked up only in elements that a rarer word found.
const COMMON: usize = 20_000;
/// The number of postings that can be scanned in the time of one lookup.
const LOOKUP: usize = 64;
/// The number of postings to scan before the search tests whether further elements can still reach the result. The
/// test scans all candidates, so the number doubles after each test.
const STRETCH: usize = 2_048;
/// The maximum number of unknown words in one query that are matched with typing errors; each scans the vocabulary.
const GUESSES_MAX: usize = 6;
/// The weights of a word with the same beginning, and of a word with one or two typing errors.
const BEGINS: f32 = 0.8;
const SLIPPED: [f32; 3] = [1.0, 0.7, 0.5];

/// An element with its score, in (0, 1].
pub type Hit = (ElementId, f32);

/// An inverted index.
pub trait Words {
    /// Returns the postings of `word`, or `None` if no element contains it.
    fn postings(&self, word: &str) -> Option<Box<dyn Postings + '_>>;
    /// Calls `see` with the words from `first` on, in order, until `see` returns `false`.
    fn words_from(&self, first: &str, see: &mut dyn FnMut(&str) -> bool);
    /// Returns the words that begin with `stem`, shortest first.
    fn beginning(&self, stem: &str) -> Vec<String> {
        let is_there = |word: &str| self.postings(word).is_some();
        fuzzy::beginning(&|first, see| self.words_from(first, see), &is_there, stem)
    }
    /// Returns the words one or two typing errors away from `word`, with the number of errors, the nearest first.
    fn slips(&self, word: &str) -> Vec<(String, usize)> {
        let is_there = |word: &str| self.postings(word).is_some();
        fuzzy::slips(&|first, see| self.words_from(first, see), &is_there, word)
    }
    /// Returns the number of elements with at least one word.
    fn elements(&self) -> usize;
}

/// The postings of a word.
pub trait Postings {
    /// Returns the number of elements that contain the word.
    fn count(&self) -> usize;
    /// Returns the level of the word in an element that contains it, from 1 to [`super::LEVELS_MAX`].
    fn level(&self, el: ElementId) -> Option<u8>;
    /// Calls `see` with runs of elements, highest level first, until `see` returns `false`. All elements of a run
    /// have the same level and are sorted.
    fn each(&self, see: &mut dyn FnMut(&[ElementId], u8) -> bool);
    /// Calls `see` with the elements of one level, in sorted runs, until `see` returns `false`.
    fn at(&self, level: u8, see: &mut dyn FnMut(&[ElementId]) -> bool);
}

/// Returns up to `limit` elements that `fits` accepts, best first.
pub fn search(
    words: &dyn Words,
    asked: &[Arc<str>],
    limit: usize,
    fits: &mut dyn FnMut(ElementId) -> bool,
) -> Vec<Hit> {
    let mut guesses = GUESSES_MAX;
    let mut asked: Vec<Asked<'_>> = asked.iter().map(|word| ask(words, word, limit, &mut guesses)).collect();
    let whole: f32 = asked.iter().map(|asked| asked.weight).sum();
    if whole <= 0.0 || limit == 0 {
        return Vec::new();
    }
    asked.retain(|asked| !asked.matches.is_empty());
    // The rarest word comes first, because it is the most selective.
    asked.sort_by_key(|asked| asked.count);
    if let [only] = asked.as_slice()
        && let [(postings, factor)] = only.matches.as_slice()
    {
        // The postings are in order of level, so nothing after the first `limit` hits can be better.
        let mut hits = Vec::with_capacity(limit.min(64));
        postings.each(&mut |els, level| {
            let score = only.weight * worth(level, *factor) / whole;
            let fitting = els.iter().filter(|el| fits(**el)).take(limit - hits.len());
            hits.extend(fitting.map(|el| (*el, score)));
            hits.len() < limit
        });
        return hits;
    }
    // The same few candidates are tested repeatedly.
    let mut known: HashMap<ElementId, bool> = HashMap::new();
    let fits: &mut dyn FnMut(ElementId) -> bool = &mut |el| *known.entry(el).or_insert_with(|| fits(el));
    let mut left: f32 = asked.iter().map(Asked::most).sum();
    let mut ranking = Ranking { scores: Scores::default(), limit, closed: false, least: 0.0, reached: 0.0 };
    for asked in &asked {
        left -= asked.most();
        let common = asked.count > COMMON;
        let enough = |ranking: &Ranking, fits: &mut dyn FnMut(ElementId) -> bool| {
            ranking.scores.above(0.0).filter(|(el, _)| fits(*el)).take(limit).count() >= limit
        };
        ranking.closed |= common && enough(&ranking, fits);
        match asked.matches.as_slice() {
            [(postings, factor)] if !common || ranking.closed => {
                ranking.walk(&**postings, asked, *factor, left, fits);
            }
            _ => ranking.walk_all(asked, common, left, fits),
        }
    }
    let best = ranking.scores.best(limit, ranking.least.next_down().max(0.0), fits);
    best.into_iter().map(|(el, score)| (el, score / whole)).collect()
}

/// The candidates found so far.
struct Ranking {
    scores: Scores,
    limit: usize,
    /// `true` once no further element can reach the result.
    closed: bool,
    /// The lowest score in the result.
    least: f32,
    /// The highest score of any candidate.
    reached: f32,
}

impl Ranking {
    /// Closes the candidates if `left` cannot raise a new element into the result, and drops those that it cannot
    /// (MaxScore).
    fn close(&mut self, left: f32, fits: &mut dyn FnMut(ElementId) -> bool) {
        if !self.closed
            && self.reached > left
            && let Some(least) = self.scores.least_of_the_best(self.limit, left, fits)
        {
            self.scores.drop_below(least - left);
            (self.closed, self.least) = (true, least);
        }
    }

    /// Returns `true` if scanning `count` postings costs more than looking up the candidates.
    fn looks_up(&self, count: usize) -> bool {
        self.closed && self.scores.len() * LOOKUP < count
    }

    /// Adds the scores of a word with a single match; the remaining words add at most `left`.
    fn walk(
        &mut self,
        postings: &dyn Postings,
        asked: &Asked<'_>,
        factor: f32,
        left: f32,
        fits: &mut dyn FnMut(ElementId) -> bool,
    ) {
        let worth = |level: u8| asked.weight * worth(level, factor);
        let (mut walked, mut look_at, mut at) = (0, 0, u8::MAX);
        let mut stopped = None;
        postings.each(&mut |els, level| {
            // The following postings have at most this level.
            if level < at && walked >= look_at {
                look_at = (2 * walked).max(STRETCH);
                self.close(worth(level) + left, fits);
                if self.looks_up(asked.count.saturating_sub(walked)) {
                    stopped = Some(level);
                    return false;
                }
                self.reached += if walked == 0 { asked.most() } else { 0.0 };
            }
            at = level;
            walked += els.len();
            self.scores.add(els, worth(level), !self.closed);
            true
        });
        if let Some(stopped) = stopped {
            let rest = |el: ElementId| postings.level(el).filter(|level| *level <= stopped).map_or(0.0, worth);
            self.scores.change(|el, score| score + rest(el));
        }
    }

    /// Adds the scores of a word with several matches, or of a common word, which admits only as many elements as the
    /// query wants.
    fn walk_all(&mut self, asked: &Asked<'_>, common: bool, left: f32, fits: &mut dyn FnMut(ElementId) -> bool) {
        self.close(asked.most() + left, fits);
        if self.looks_up(asked.count) {
            return self.scores.change(|el, score| score + asked.weight * asked.best(el));
        }
        self.reached += asked.most();
        let (mut best, mut fresh) = (Scores::default(), 0);
        for (postings, factor) in &asked.matches {
            postings.each(&mut |els, level| {
                els.iter().all(|el| {
                    if common && !self.closed && self.scores.get(*el) == 0.0 {
                        fresh += usize::from(fits(*el));
                    }
                    best.raise(*el, worth(level, *factor));
                    fresh < self.limit
                })
            });
        }
        if common {
            // The scan did not reach all postings, so the candidates are looked up.
            self.scores.above(0.0).for_each(|(el, _)| best.raise(el, asked.best(el)));
        }
        best.above(0.0).for_each(|(el, score)| self.scores.add(&[el], asked.weight * score, !self.closed));
    }
}

/// One word of a query.
struct Asked<'w> {
    matches: Vec<(Box<dyn Postings + 'w>, f32)>,
    /// The number of elements that hold the word.
    count: usize,
    /// The weight of the word: its inverse document frequency.
    weight: f32,
    /// The highest value of the word in any element.
    worth: f32,
}

/// Returns the matches of a query word: the word itself, and if it finds too few elements, words with the same
/// beginning or with typing errors.
fn ask<'w>(words: &'w dyn Words, word: &str, limit: usize, guesses: &mut usize) -> Asked<'w> {
    let mut matches: Vec<(Box<dyn Postings + 'w>, f32)> =
        words.postings(word).map(|postings| (postings, 1.0)).into_iter().collect();
    let enough = matches.first().map_or(0, |(postings, _)| postings.count()) >= limit;
    if !enough && word.chars().count() > 1 {
        let mut more = words.beginning(word);
        more.dedup();
        matches.extend(more.iter().filter_map(|word| Some((words.postings(word)?, BEGINS))));
    }
    if matches.is_empty() && *guesses > 0 {
        *guesses -= 1;
        let mut more = words.slips(word);
        more.dedup();
        matches.extend(more.iter().filter_map(|(word, slips)| Some((words.postings(word)?, SLIPPED[*slips]))));
    }
    let count: usize = matches.iter().map(|(postings, _)| postings.count()).sum();
    let (all, with) = (words.elements() as f32, count.min(words.elements()) as f32);
    let weight = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
    let mut most: f32 = 0.0;
    for (postings, factor) in &matches {
        postings.each(&mut |_, level| {
            most = most.max(worth(level, *factor));
            false
        });
    }
    Asked { matches, count, weight, worth: most }
}

impl Asked<'_> {
    /// Returns the highest score that the word can add to an element.
    fn most(&self) -> f32 {
        self.weight * self.worth
    }

    fn best(&self, el: ElementId) -> f32 {
        let found = self.matches.iter().filter_map(|(postings, factor)| Some(worth(postings.level(el)?, *factor)));
        found.fold(0.0, f32::max)
    }
}

fn worth(level: u8, factor: f32) -> f32 {
    factor * (FLOOR + (1.0 - FLOOR) * f32::from(level) / LEVELS)
}
