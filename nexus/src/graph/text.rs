//! One analyzer for index and query, and BM25F over name, aliases and text attributes.
//!
//! NFKC, lower case, identifiers split at case changes and underscores, English stems, and bigrams
//! for Chinese, Japanese and Korean, which have no spaces to split at.

use std::sync::{Arc, LazyLock};

use imbl::{HashMap, OrdMap};
use rust_stemmers::{Algorithm, Stemmer};
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use super::element::{Concept, No};

/// How much a word in the name, an alias, or another text counts.
const WEIGHTS: [f32; 3] = [3.0, 2.5, 1.0];
/// BM25's saturation of repeated words.
const K1: f32 = 1.2;
/// BM25's penalty for length.
const B: f32 = 0.5;
/// A concept's text beyond this many terms is not indexed.
const TERMS_MAX: usize = 512;

static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// The terms of a text, in order, repeats included.
pub fn terms(text: &str) -> Vec<Arc<str>> {
    let normal: String = text.nfkc().collect();
    let mut terms = Vec::new();
    let (mut word, mut run): (String, Vec<char>) = (String::new(), Vec::new());
    let mut last_lower = false;
    for c in normal.chars().chain([' ']) {
        let cjk = is_cjk(c);
        if cjk || !c.is_alphanumeric() || (c.is_uppercase() && last_lower) {
            flush_word(&mut word, &mut terms);
        }
        if !cjk {
            flush_run(&mut run, &mut terms);
        }
        if cjk {
            run.push(c);
        } else if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        last_lower = c.is_lowercase() || c.is_numeric();
    }
    terms
}

fn is_cjk(c: char) -> bool {
    matches!(u32::from(c), 0x3040..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0x20000..=0x2fa1f)
}

fn flush_word(word: &mut String, terms: &mut Vec<Arc<str>>) {
    if !word.is_empty() {
        terms.push(STEMMER.stem(word).into_owned().into());
        word.clear();
    }
}

/// A run of ideographs becomes its bigrams; a lone one stands for itself.
fn flush_run(run: &mut Vec<char>, terms: &mut Vec<Arc<str>>) {
    match run.as_slice() {
        [] => {}
        [one] => terms.push(one.to_string().into()),
        many => terms.extend(many.windows(2).map(|pair| Arc::from(pair.iter().collect::<String>()))),
    }
    run.clear();
}

/// Words so common that they say nothing about what a query means.
const STOP: [&str; 44] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "did", "do", "doe", "for", "from", "has", "have", "how",
    "i", "in", "is", "it", "me", "my", "of", "on", "or", "that", "the", "they", "this", "to", "was", "we", "what",
    "when", "where", "which", "who", "whose", "why", "will", "with", "you", "your",
];

/// An inverted index that is cheap to snapshot.
#[derive(Clone, Default)]
pub struct Index {
    postings: HashMap<Arc<str>, OrdMap<No, f32>>,
    lengths: HashMap<No, f32>,
    total: f64,
}

impl Index {
    /// Indexes a concept.
    pub fn insert(&mut self, no: No, concept: &Concept) {
        let weighted = weigh(concept);
        let length: f32 = weighted.values().sum();
        for (term, weight) in weighted {
            self.postings.entry(term).or_default().insert(no, weight);
        }
        self.lengths.insert(no, length);
        self.total += f64::from(length);
    }

    /// Forgets a concept as it was indexed.
    pub fn remove(&mut self, no: No, concept: &Concept) {
        for term in weigh(concept).into_keys() {
            if let Some(posting) = self.postings.get_mut(&term) {
                posting.remove(&no);
                if posting.is_empty() {
                    self.postings.remove(&term);
                }
            }
        }
        if let Some(length) = self.lengths.remove(&no) {
            self.total -= f64::from(length);
        }
    }

    /// Concepts with any of `words`, best first. A score is the share of the query's weight that was
    /// found, so that 1 means all of it and a floor means the same thing for every query.
    pub fn search(&self, words: &[Arc<str>], keep: impl Fn(No) -> bool, limit: usize) -> Vec<(No, f32)> {
        let telling: Vec<&Arc<str>> = words.iter().filter(|word| !STOP.contains(&&***word)).collect();
        let asked = if telling.is_empty() { words.iter().collect() } else { telling };
        let count = self.lengths.len().max(1) as f32;
        let average = (self.total / f64::from(count)).max(1.0) as f32;
        let mut scores: std::collections::BTreeMap<No, f32> = std::collections::BTreeMap::new();
        let mut best_possible = 0.0;
        let mut seen = std::collections::BTreeSet::new();
        for word in asked {
            if !seen.insert(word.clone()) {
                continue;
            }
            let found = self.postings.get(word);
            let matching = found.map_or(0.0, |posting| posting.len() as f32);
            let rarity = (1.0 + (count - matching + 0.5) / (matching + 0.5)).ln();
            best_possible += rarity * (K1 + 1.0);
            for (no, weight) in found.into_iter().flatten() {
                let length = self.lengths.get(no).copied().unwrap_or(average);
                *scores.entry(*no).or_default() +=
                    rarity * weight * (K1 + 1.0) / (weight + K1 * (1.0 - B + B * length / average));
            }
        }
        let mut hits: Vec<(No, f32)> = scores
            .into_iter()
            .filter(|(no, _)| keep(*no))
            .map(|(no, score)| (no, (score / best_possible).min(1.0)))
            .collect();
        hits.sort_by(|(a_no, a), (b_no, b)| b.total_cmp(a).then(a_no.cmp(b_no)));
        hits.truncate(limit);
        hits
    }
}

fn weigh(concept: &Concept) -> std::collections::BTreeMap<Arc<str>, f32> {
    let mut weighted = std::collections::BTreeMap::new();
    let mut add = |text: &str, weight: f32| {
        for term in terms(text).into_iter().take(TERMS_MAX) {
            *weighted.entry(term).or_insert(0.0) += weight;
        }
    };
    add(&concept.name, WEIGHTS[0]);
    for (key, value) in &concept.properties.attributes {
        let weight = if key == "aliases" { WEIGHTS[1] } else { WEIGHTS[2] };
        match value {
            Value::String(text) => add(text, weight),
            Value::Array(items) => items.iter().filter_map(Value::as_str).for_each(|text| add(text, weight)),
            _ => {}
        }
    }
    weighted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> String {
        terms(text).join(" ")
    }

    #[test]
    fn words_are_folded_split_and_stemmed() {
        assert_eq!(cut("The Cats were running"), "the cat were run");
        assert_eq!(cut("belongs_to_domain ConceptType"), "belong to domain concept type");
        assert_eq!(cut("Ｆｕｌｌ　ｗｉｄｔｈ"), "full width");
    }

    #[test]
    fn chinese_japanese_and_korean_are_cut_into_bigrams() {
        assert_eq!(cut("知识图谱"), "知识 识图 图谱");
        assert_eq!(cut("猫 likes 東京タワー"), "猫 like 東京 京タ タワ ワー");
    }
}
