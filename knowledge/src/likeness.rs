//! How alike two texts are, by the words they share.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use nexus::kip::graph::text::{terms, terms_of_query};
use regex::Regex;

/// Code, addresses, and whatever has a figure in it: what a text is not about the same without.
static FACTS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"`[^`\n]+`|https?://\S+|[\p{L}\d._-]*\d[\p{L}\d._-]*").unwrap_or_else(|error| unreachable!("{error}"))
});
/// Words that turn what is said into its opposite.
static NOT: LazyLock<Regex> = LazyLock::new(|| {
    let said = r"(?i)\b(?:not|no|never|none|cannot|without|except)\b|n['’]t\b|[不没沒别別勿]|(?:ない|ません)";
    Regex::new(said).unwrap_or_else(|error| unreachable!("{error}"))
});

/// The facts of a text, in order.
pub(crate) fn facts(text: &str) -> impl Iterator<Item = &str> {
    FACTS.find_iter(text).map(|found| found.as_str().trim_end_matches(['.', ',', '-']))
}

/// What two texts must have in common to say the same, however alike they are: their facts, and how often they say no.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tenor {
    facts: BTreeSet<String>,
    negations: usize,
}

impl Tenor {
    /// Of a text.
    pub(crate) fn of(text: &str) -> Self {
        Self { facts: facts(text).map(str::to_lowercase).collect(), negations: NOT.find_iter(text).count() }
    }
}

impl Tenor {
    /// Whether another text has all its facts, and denies as often.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.facts.is_subset(&other.facts) && self.negations == other.negations
    }
}

/// Whether what two texts share stands in the same order in both: "tea over coffee" is not "coffee over tea".
pub(crate) fn in_order(one: &str, other: &str) -> bool {
    let (in_one, in_other) = (words(one), words(other));
    let shared = |text: &str| {
        let mut seen = BTreeSet::new();
        let mut shared = terms(text);
        shared.retain(|word| in_one.contains(word) && in_other.contains(word) && seen.insert(word.clone()));
        shared
    };
    shared(one) == shared(other)
}

/// Whether each of two texts has a telling word that the other lacks: a harbour "in Kiel" is not one "in Oslo", however much
/// else is said of both.
pub(crate) fn differ(one: &str, other: &str) -> bool {
    let (in_one, in_other) = (terms_of_query(one), terms_of_query(other));
    let lacks = |those: &[Arc<str>], of: &str| {
        let known = words(of);
        those.iter().any(|word| !known.contains(word))
    };
    lacks(&in_one, other) && lacks(&in_other, one)
}

/// The words of a text, each once.
pub(crate) type Words = BTreeSet<Arc<str>>;

/// See [`Words`].
pub(crate) fn words(text: &str) -> Words {
    terms(text).into_iter().collect()
}

/// The share of all their words that two texts have in common, from 0 to 1.
pub(crate) fn likeness(one: &Words, other: &Words) -> f64 {
    let shared = one.intersection(other).count();
    shared as f64 / (one.len() + other.len() - shared).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_addresses_and_figures_are_facts_and_plain_words_are_not() {
        assert_eq!(
            facts("Run `make up` on v1.2 at https://a.b/c?d, 每天100次, then wait.").collect::<Vec<_>>(),
            ["`make up`", "v1.2", "https://a.b/c?d", "每天100次"]
        );
    }

    #[test]
    fn another_figure_another_order_and_a_no_are_another_word() {
        let same = |one: &str, other: &str| Tenor::of(one) == Tenor::of(other) && in_order(one, other);
        assert!(same("I prefer tea in the morning", "Well, I prefer tea in the morning."));
        assert!(!same("I prefer TypeScript over JavaScript", "I prefer JavaScript over TypeScript"));
        assert!(!same("I like spicy food from Korea and Japan", "I don't like spicy food from Korea and Japan"));
        assert!(!same("The boat behind the house has 14 berths", "The boat behind the house has 15 berths"));
        assert!(differ("I live in Kiel, in the small house", "I live in Oslo, in the small house"));
        assert!(!differ("Well, I live in Kiel", "I live in Kiel") && !differ("I live at Kiel", "I live in Kiel"));
        assert!(!same("我喜欢喝茶", "我不喜欢喝茶") && !same("私は肉を食べる", "私は肉を食べない"));
    }
}
