//! The ranking of recalled facts: by words and by meaning, each in one number (LoCoMo and paraphrases, measured: words
//! count the more, the more of the question they cover).

use std::collections::BTreeMap;

/// The weight of words if they cover nothing, its growth with the covered share, and the share from which on it is whole.
const WORDS_LEAST: f64 = 0.15;
const WORDS_MORE: f64 = 0.5;
const SHARE_WHOLE: f64 = 0.4;
/// The advantage of what the asking person said itself.
const OWN: f64 = 0.1;
/// The places, from 0, that the nearest meaning takes if words alone would not bring it there.
const BY_MEANING: [usize; 3] = [3, 10, 11];

/// The evidence that a fact answers a question.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Match {
    /// The share of the question's word weight that the fact covers, from 0 to 1.
    pub(crate) words: f64,
    /// The similarity of meaning, from 0 to 1; 0 if it is unknown.
    pub(crate) meaning: f64,
    /// `true` if the asking person stated the fact.
    pub(crate) is_own: bool,
    /// The place of the fact among the hits of the searches, which decides between equal ones.
    pub(crate) place: usize,
}

/// Returns the facts in the order of their relevance, best first.
pub(crate) fn ranked<K: Clone + Ord>(matches: &BTreeMap<K, Match>) -> Vec<K> {
    let share = matches.values().map(|one| one.words).fold(0.0, f64::max);
    let weight = WORDS_LEAST + WORDS_MORE * (share / SHARE_WHOLE).min(1.0);
    let score = |one: &Match| {
        let own = if one.is_own { OWN } else { 0.0 };
        weight * one.words + (1.0 - weight) * one.meaning + own
    };
    let by = |value: &dyn Fn(&Match) -> f64| {
        let mut order: Vec<&K> = matches.keys().collect();
        let of = |key: &K| &matches[key];
        order.sort_by(|a, b| value(of(b)).total_cmp(&value(of(a))).then(of(a).place.cmp(&of(b).place)));
        order
    };
    let (mixed, nearest) = (by(&score), by(&|one| one.meaning));
    // Without an embedder no meaning is known, and words alone decide.
    let (mut mixed, mut nearest) = (mixed.into_iter(), nearest.into_iter().filter(|key| matches[*key].meaning > 0.0));
    let mut ranked: Vec<K> = Vec::with_capacity(matches.len());
    while ranked.len() < matches.len() {
        let by_meaning =
            BY_MEANING.contains(&ranked.len()).then(|| nearest.find(|key| !ranked.contains(key))).flatten();
        let next = by_meaning.or_else(|| mixed.find(|key| !ranked.contains(key)));
        match next {
            Some(key) => ranked.push(key.clone()),
            None => break,
        }
    }
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: f64, meaning: f64) -> Match {
        Match { words, meaning, ..Match::default() }
    }

    #[test]
    fn words_count_as_far_as_they_cover_the_question() {
        let literal = BTreeMap::from([("words", of(0.9, 0.3)), ("meaning", of(0.0, 0.6))]);
        assert_eq!(ranked(&literal), ["words", "meaning"]);
        let paraphrase = BTreeMap::from([("words", of(0.1, 0.1)), ("meaning", of(0.0, 0.5))]);
        assert_eq!(ranked(&paraphrase), ["meaning", "words"]);
    }

    #[test]
    fn the_fourth_place_goes_to_the_nearest_meaning() {
        let mut matches: BTreeMap<String, Match> = (0..6).map(|n| (format!("w{n}"), of(0.9, 0.2))).collect();
        matches.insert("near".into(), of(0.0, 0.7));
        let ranked = ranked(&matches);
        assert_eq!((ranked.len(), ranked[3].as_str()), (7, "near"), "{ranked:?}");
    }

    #[test]
    fn own_facts_come_before_equal_ones_of_others() {
        let own = Match { is_own: true, ..of(0.4, 0.4) };
        assert_eq!(ranked(&BTreeMap::from([("a", of(0.4, 0.4)), ("b", own)])), ["b", "a"]);
    }
}
