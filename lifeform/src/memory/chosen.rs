//! The answer to the question which of several facts is to be forgotten: "the second", "both", "the one about the boat". Rules
//! parse it, without a model.

use std::collections::BTreeSet;
use std::sync::Arc;

use knowledge::telling_words;

use crate::reminders::is_within;

/// The words that choose all.
const ALL: [&str; 15] = [
    "all",
    "both",
    "everything",
    "each",
    "every one",
    "都",
    "全部",
    "所有",
    "两个",
    "一切",
    "全て",
    "すべて",
    "両方",
    "どちらも",
    "どれも",
];
/// The words that choose none.
const NONE: [&str; 11] =
    ["none", "neither", "nothing", "keep", "don't", "do not", "都不", "不用", "算了", "やめ", "忘れないで"];
/// The words that choose by place: the first, the second, the third.
const PLACES: [&[&str]; 3] = [
    &["first", "1", "1st", "第一", "一番目", "最初", "1つ目", "一つ目"],
    &["second", "2", "2nd", "第二", "二番目", "2つ目", "二つ目"],
    &["third", "3", "3rd", "第三", "三番目", "3つ目", "三つ目"],
];
/// The words that choose the last one.
const LAST: [&str; 4] = ["last", "latter", "最后", "最後"];
/// The words beside a choice that say nothing themselves. What has other words is about something else.
const BESIDE: [&str; 26] = [
    "no", "sorry", "one", "ones", "please", "mean", "meant", "forget", "yes", "ok", "okay", "thanks", "thank", "just",
    "only", "fact", "number", "two", "three", "four", "them", "those", "these", "about", "that", "with",
];
/// The same in scripts without spaces, the longest first.
const BESIDE_UNSPACED: [&str; 24] = [
    "忘れてください",
    "忘れて",
    "ください",
    "についての",
    "のこと",
    "のほう",
    "の方",
    "それ",
    "忘记",
    "忘掉",
    "那个",
    "那条",
    "一个",
    "一条",
    "关于",
    "都",
    "把",
    "请",
    "吧",
    "的",
    "那",
    "を",
    "は",
    "の",
];

/// Returns the places of the facts that an answer chooses among those that the question named; empty if it chooses none, or if it
/// is a message about something else.
pub(crate) fn chosen(answer: &str, asked: &[String]) -> BTreeSet<usize> {
    let text = answer.trim().to_lowercase().replace('’', "'");
    let has = |words: &[&str]| words.iter().any(|word| is_within(word, &text));
    if text.ends_with(['?', '？']) || has(&NONE) {
        return BTreeSet::new();
    }
    let facts: Vec<BTreeSet<Arc<str>>> = asked.iter().map(|fact| telling_words(fact)).collect();
    let said = telling_words(&without_words_beside(&text));
    let unknown = |facts: &[&BTreeSet<Arc<str>>]| said.iter().any(|word| facts.iter().all(|fact| !fact.contains(word)));
    // A word that one fact alone has chooses it, wherever the question named it.
    let is_own = |word: &&Arc<str>| facts.iter().filter(|words| words.contains(*word)).count() == 1;
    let has_own = |words: &BTreeSet<Arc<str>>| words.intersection(&said).any(|word| is_own(&word));
    let by_words: BTreeSet<usize> = (0..facts.len()).filter(|place| has_own(&facts[*place])).collect();
    let named: Vec<&BTreeSet<Arc<str>>> = by_words.iter().map(|place| &facts[*place]).collect();
    if !by_words.is_empty() && !unknown(&named) {
        return by_words;
    }
    let mut places: BTreeSet<usize> =
        PLACES.iter().enumerate().filter(|(_, words)| has(words)).map(|(place, _)| place).collect();
    places.extend(has(&LAST).then(|| facts.len().saturating_sub(1)));
    places.retain(|place| *place < facts.len());
    let choosing: BTreeSet<Arc<str>> =
        PLACES.iter().copied().flatten().chain(&LAST).chain(&ALL).flat_map(|words| telling_words(words)).collect();
    let all: Vec<&BTreeSet<Arc<str>>> = facts.iter().chain([&choosing]).collect();
    match () {
        () if unknown(&all) || !by_words.is_empty() => BTreeSet::new(),
        () if has(&ALL) => (0..facts.len()).collect(),
        () => places,
    }
}

fn without_words_beside(text: &str) -> String {
    let text = BESIDE_UNSPACED.iter().fold(text.to_owned(), |text, words| text.replace(words, " "));
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !BESIDE.contains(word));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_chooses_by_words_place_or_number() {
        let asked = ["Tom sails on Sundays.".to_owned(), "Tom is allergic to nuts.".to_owned()];
        for (answer, places) in [
            ("The one about the nuts.", vec![1]),
            ("That Tom sails", vec![0]),
            ("the second one", vec![1]),
            ("The first, please.", vec![0]),
            ("Both.", vec![0, 1]),
            ("All of them", vec![0, 1]),
            ("两个都忘掉", vec![0, 1]),
            ("最後の", vec![1]),
            ("Neither, keep them.", vec![]),
            ("Never mind", vec![]),
            ("No, the nuts", vec![1]),
            ("No, don't forget the first", vec![]),
            ("the third", vec![]),
            ("Tom", vec![]),
            ("What is the weather?", vec![]),
            ("Is the first one old?", vec![]),
            ("First tell me a joke.", vec![]),
            ("Tom sails again today!", vec![]),
            ("I bought everything for dinner.", vec![]),
        ] {
            assert_eq!(chosen(answer, &asked), places.into_iter().collect(), "{answer}");
        }
    }
}
