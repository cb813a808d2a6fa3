//! The similarity of two texts by their common words.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use nexus::kip::graph::text::{terms, terms_of_query};
use regex::Regex;

/// Code, URLs, and words with digits. Texts that differ in one of these have different meanings.
static FACTS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"`[^`\n]+`|https?://\S+|[\p{L}\d._-]*\d[\p{L}\d._-]*").unwrap_or_else(|error| unreachable!("{error}"))
});
/// Negations.
static NOT: LazyLock<Regex> = LazyLock::new(|| {
    let said = r"(?i)\b(?:not|no|never|none|cannot|without|except)\b|n['’]t\b|[不没沒别別勿]|(?:ない|ません)";
    Regex::new(said).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns the facts of a text, in order.
pub(crate) fn facts(text: &str) -> impl Iterator<Item = &str> {
    FACTS.find_iter(text).map(|found| found.as_str().trim_end_matches(['.', ',', '-']))
}

/// The facts of a text and the number of its negations. Texts with the same meaning agree in both, however similar
/// their other words are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tenor {
    facts: BTreeSet<String>,
    negations: usize,
}

impl Tenor {
    /// Reads the facts and negations of a text.
    pub(crate) fn of(text: &str) -> Self {
        Self { facts: facts(text).map(str::to_lowercase).collect(), negations: NOT.find_iter(text).count() }
    }
}

impl Tenor {
    /// Returns `true` if another text has all these facts, and the same number of negations.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.facts.is_subset(&other.facts) && self.negations == other.negations
    }
}

/// Returns `true` if the common words of two texts have the same order in both: "tea over coffee" is not "coffee over
/// tea".
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

/// Returns `true` if each of two texts has a significant word that the other lacks: a harbour "in Kiel" is not one "in
/// Oslo", however many other words they share.
pub(crate) fn differ(one: &str, other: &str) -> bool {
    let (in_one, in_other) = (telling(one), telling(other));
    let lacks = |those: &[Arc<str>], of: &str| {
        let known = words(of);
        those.iter().any(|word| !known.contains(word))
    };
    lacks(&in_one, other) && lacks(&in_other, one)
}

/// Returns the significant words of a text. In scripts without spaces these are the pairs of letters, because single
/// letters occur in too many texts.
pub(crate) fn telling(text: &str) -> Vec<Arc<str>> {
    let all = words(text);
    let mut telling = terms_of_query(text);
    telling.retain(|word| all.contains(word));
    telling
}

/// Patterns of likes and dislikes. The object follows the pattern or precedes it.
const LIKINGS: [(bool, &str); 6] = [
    (
        false,
        r"(?i)^(?:(?:and|but|well),? )?i (?:really |absolutely |now )*(?:(?:do not|don't) (?:really )?(?:like|love)|no longer (?:like|love)|hate|dislike|can't stand|cannot stand) (?<what>.+?)(?: any ?more| at all)?$",
    ),
    (
        true,
        r"(?i)^(?:(?:and|but|well),? )?i (?:really |absolutely |now |do )*(?:like|love) (?<what>.+?)(?: now| again)?$",
    ),
    (false, r"^我(?:现在|真的|再也|也)*(?:不太?喜欢|不再喜欢|讨厌)(?<what>.+?)了?$"),
    (true, r"^我(?:现在|真的|更|最|很|特别|比较|也)*喜欢(?<what>.+?)了?$"),
    (
        false,
        r"^(?:私|僕|俺)は(?:もう)?(?<what>.+?)(?:が|は)(?:大?嫌い|苦手|好き(?:では|じゃ)(?:ない|ありません))(?:です|だ)?$",
    ),
    (true, r"^(?:私|僕|俺)は(?<what>.+?)が(?:大?好き)(?:です|だ)?$"),
];

static LIKING_FINDERS: LazyLock<Vec<(bool, Regex)>> = LazyLock::new(|| {
    let finder = |(likes, shape): (bool, &str)| {
        (likes, Regex::new(shape).unwrap_or_else(|error| unreachable!("the shape of a liking: {error}")))
    };
    LIKINGS.into_iter().map(finder).collect()
});

/// Returns `true` for a like or `false` for a dislike, with the words of its object; `None` if the text states neither.
fn liking(text: &str) -> Option<(bool, Words)> {
    let plain = text.replace('’', "'");
    let plain = plain.trim().trim_end_matches(['.', '!', '。', '！', ' ']);
    LIKING_FINDERS
        .iter()
        .find_map(|(likes, finder)| Some((*likes, words(finder.captures(plain)?.name("what")?.as_str()))))
}

/// Returns `true` if one text states a like and the other a dislike of the same thing.
pub(crate) fn are_opposite(one: &str, other: &str) -> bool {
    let (Some((likes, what)), Some((likes_too, other))) = (liking(one), liking(other)) else { return false };
    likes != likes_too && !what.is_empty() && what == other
}

/// The set of words of a text.
pub(crate) type Words = BTreeSet<Arc<str>>;

/// Returns the words of a text without those of every text; in a script without spaces, its pairs of letters.
pub fn telling_words(text: &str) -> BTreeSet<Arc<str>> {
    let all: BTreeSet<Arc<str>> = terms(text).into_iter().collect();
    terms_of_query(text).into_iter().filter(|word| all.contains(word)).collect()
}

/// Returns `true` if two texts share three fifths of the telling words of the shorter one.
fn shares_most(one: &str, other: &str) -> bool {
    let (one, other) = (telling_words(one), telling_words(other));
    let shorter = one.len().min(other.len());
    shorter > 0 && 5 * one.intersection(&other).count() >= 3 * shorter
}

/// Returns `true` if two texts are wordings of the same: they share three fifths of the telling words of the shorter one, and
/// do not each have a name or a number that the other lacks.
pub fn words_the_same(one: &str, other: &str) -> bool {
    shares_most(one, other) && !names_others(one, other)
}

/// Returns `true` if two texts say the same with another name or number: "…on 12 December" and "…on 14 December".
pub fn is_other_version(one: &str, other: &str) -> bool {
    shares_most(one, other) && names_others(one, other)
}

/// Returns `true` if each of two texts has a name or a number that the other lacks.
pub fn names_others(one: &str, other: &str) -> bool {
    let names = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() > 1);
        words
            .filter(|word| word.starts_with(|c: char| c.is_uppercase() || c.is_numeric()))
            .map(str::to_lowercase)
            .collect()
    };
    let lacks = |of: &str, other: &str| {
        let (telling, known) = (telling_words(of), words(other));
        names(of).iter().any(|name| telling.contains(&**name) && !known.contains(&**name))
    };
    lacks(one, other) && lacks(other, one)
}

/// Returns the set of words of a text.
pub(crate) fn words(text: &str) -> Words {
    terms(text).into_iter().collect()
}

/// Returns the share of common words among all words of two texts, from 0 to 1.
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
        for said in ["我喜欢在早上喝一杯热的绿茶。", "私は毎朝、温かい緑茶を飲みます。", "나는 녹차를 좋아해요"]
        {
            assert!(same(said, said) && !differ(said, said), "{said}");
        }
        assert!(differ("我住在北京的小房子里", "我住在上海的小房子里") && differ("私は京都に住む", "私は大阪に住む"));
    }

    #[test]
    fn a_liking_and_a_dislike_of_the_same_are_opposite() {
        for (one, other) in [
            ("I like tea.", "I don't like tea anymore."),
            ("I hate spicy food from Korea", "But I love spicy food from Korea!"),
            ("我喜欢喝茶。", "我不喜欢喝茶了。"),
            ("私はコーヒーが好きです。", "私はコーヒーが嫌いです。"),
            ("私は猫が大好きだ", "私はもう猫は好きじゃない"),
        ] {
            assert!(are_opposite(one, other) && are_opposite(other, one) && !are_opposite(one, one), "{one} {other}");
        }
        for (one, other) in
            [("I like tea", "I don't like green tea"), ("I like tea", "I drink no tea"), ("我喜欢茶", "我讨厌咖啡")]
        {
            assert!(!are_opposite(one, other), "{one} {other}");
        }
    }
}
