//! The answer to the question which of several facts is to be forgotten: "the second", "both", "the one about the boat". Rules
//! parse it, without a model. What is more than a choice is a message about something else, and chooses nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use knowledge::telling_words;
use regex::Regex;

use crate::reminders::is_within;

/// A choice by number or of all, and nothing else.
static BY_PLACE: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    let number = "first|second|third|last|latter|one|two|three|1|2|3|1st|2nd|3rd";
    let all = r"(?P<all>both|all|each|everything)(?: (?:of )?(?:them|these|those|it))?(?: (?:two|three|facts?))?";
    let begin = r"(?:(?:no|sorry|yes|ok|okay|well|please|oh|i mean|i meant|just|only|forget)[,.]? )*";
    let end = r"(?:,? (?:please|thanks|thank you))?[\s.!]*";
    let english = format!(
        r"^{begin}(?:(?:the|number|fact) (?P<n>{number})(?: (?:one|fact))?|(?P<one>{number}) one|(?P<alone>first|second|third|last|latter|1|2|3|1st|2nd|3rd)|{all}){end}$"
    );
    let chinese = r"^(?:对|是的?|好的?|请|就|把|忘[掉记了]|那个?|[，, ])*(?:(?P<n>第[一二三123]|最后)(?:个|条|一个|一条)?|(?P<all>两个|三个|都|全部|所有))(?:都|的|那个|忘[掉记了]|吧|谢谢|[，, ])*[。！!]*$";
    let japanese = r"^(?:はい|いいえ|その|[、 ])*(?:(?P<n>最初|一番目|1番目|2番目|3番目|1つ目|一つ目|二番目|2つ目|二つ目|三番目|3つ目|三つ目|最後)|(?P<all>両方|二つとも|三つとも|全部|すべて|全て|どちらも|どれも))(?:とも|の(?:方|ほう|もの|やつ|こと)?)?[をはも]?(?:忘れて(?:ください|下さい|ね)?|お願いします|です)?[。！!]*$";
    [&english, chinese, japanese].map(|shape| Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}")))
});
/// The places that words choose.
const PLACES: [&[&str]; 3] = [
    &["first", "one", "1", "1st", "第一", "第1", "1番目", "一番目", "最初", "1つ目", "一つ目"],
    &["second", "two", "2", "2nd", "第二", "第2", "2番目", "二番目", "2つ目", "二つ目"],
    &["third", "three", "3", "3rd", "第三", "第3", "3番目", "三番目", "3つ目", "三つ目"],
];
/// The words that keep a fact.
const KEEPS: [&str; 23] = [
    "nope",
    "cancel",
    "stop",
    "算了",
    "やめ",
    "いいえ",
    "違う",
    "没",
    "不",
    "not",
    "don't",
    "keep",
    "except",
    "none",
    "neither",
    "nothing",
    "never",
    "without",
    "不用",
    "别",
    "留",
    "以外",
    "忘れないで",
];
/// The words before and after the words of a fact: "No, I mean the one about the nuts, please."
static FRAME: LazyLock<Regex> = LazyLock::new(|| {
    let begin = r"(?:(?:no|sorry|yes|ok|okay|well|please|oh|i mean|i meant|just|only|forget)[,.]? +)*";
    let frame = r"(?:(?:the|that) (?:one|fact) )?(?:(?:about|with|of|where|on) )?(?:that )?(?:the |my )?";
    let shape = format!(r"^{begin}{frame}(?P<words>.+?)(?: one| fact)?(?:,? please)?[\s.!]*$");
    Regex::new(&shape).unwrap_or_else(|error| unreachable!("{error}"))
});
/// The words that agree to the only fact that a question names.
static AGREES: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"^(?:yes|yeah|yep|exactly|that one|对|是的?|没错|はい|そうです|ええ)(?:[,，、]? ?(?:please|that one|forget it|忘掉吧|忘れて(?:ください)?|お願いします))?[\s.!。！]*$";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});
/// The words of statements.
const STATING: [&str; 12] = ["is", "are", "was", "were", "be", "been", "has", "have", "had", "does", "did", "will"];
/// The maximum number of words that name a fact, and of characters in scripts without spaces.
const WORDS_MAX: usize = 3;
const UNSPACED_MAX: usize = 8;
/// The words beside a choice in scripts without spaces, the longest first.
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

/// Further words that choose.
const CHOOSING: [&str; 10] = ["both", "all", "each", "last", "两个", "都", "全部", "最后", "両方", "最後"];
/// The maximum length of an answer that a model reads as a choice, in characters.
const CHOICE_CHARS: usize = 40;

/// Returns `true` if a message may choose among facts that a question named, in words that only a model understands.
pub(crate) fn may_choose(answer: &str, asked: &[String]) -> bool {
    let text = answer.trim().to_lowercase().replace('’', "'");
    let names = |words: &[&str]| words.iter().any(|word| is_within(word, &text));
    let is_short = !text.contains(['?', '？', '\n']) && text.chars().count() <= CHOICE_CHARS;
    let words = telling_words(&text);
    let names_fact = asked.iter().any(|fact| !telling_words(fact).is_disjoint(&words));
    let chooses = names_fact || names(&CHOOSING) || PLACES.iter().any(|words| names(words));
    is_short && chooses && !names(&KEEPS) && !is_within("no", &text)
}

/// Returns the places of the facts that an answer chooses among those that the question named, in its order; empty if it chooses
/// none, or if it is a message about something else.
pub(crate) fn chosen(answer: &str, asked: &[String]) -> BTreeSet<usize> {
    let text = answer.trim().to_lowercase().replace('’', "'");
    if text.contains(['?', '？', '\n']) || KEEPS.iter().any(|word| is_within(word, &text)) {
        return BTreeSet::new();
    }
    // "No, the first." does not agree to the only one.
    if asked.len() == 1 && text.split(|c: char| !c.is_alphanumeric()).next() == Some("no") {
        return BTreeSet::new();
    }
    if let Some(found) = BY_PLACE.iter().find_map(|shape| shape.captures(&text)) {
        let Some(named) = ["n", "one", "alone"].iter().find_map(|name| found.name(name)).map(|named| named.as_str())
        else {
            return (0..asked.len()).collect();
        };
        let is_last = matches!(named, "last" | "latter" | "最后" | "最後");
        let place = PLACES.iter().position(|words| words.contains(&named));
        let place = if is_last { asked.len().checked_sub(1) } else { place };
        return place.filter(|place| *place < asked.len()).into_iter().collect();
    }
    if asked.len() == 1 && AGREES.is_match(&text) {
        return [0].into();
    }
    // A few words that one fact alone has choose it. A whole sentence states something.
    let facts: Vec<BTreeSet<Arc<str>>> = asked.iter().map(|fact| telling_words(fact)).collect();
    let Some(words) = FRAME.captures(&text).and_then(|found| found.name("words")) else { return BTreeSet::new() };
    let left = match words.as_str().is_ascii() {
        true => words.as_str().to_owned(),
        false => BESIDE_UNSPACED.iter().fold(words.as_str().to_owned(), |text, words| text.replace(words, " ")),
    };
    let said = telling_words(&left);
    let is_short = match left.is_ascii() {
        true => left.split_whitespace().count() <= WORDS_MAX,
        false => left.chars().filter(|c| c.is_alphanumeric()).count() <= UNSPACED_MAX,
    };
    let is_own = |word: &&Arc<str>| facts.iter().filter(|words| words.contains(*word)).count() == 1;
    let has_own = |words: &BTreeSet<Arc<str>>| words.intersection(&said).any(|word| is_own(&word));
    let places: BTreeSet<usize> = (0..facts.len()).filter(|place| has_own(&facts[*place])).collect();
    let is_of_one = |word: &Arc<str>| places.iter().any(|place| facts[*place].contains(word));
    // "Tom is allergic" is a statement.
    let tells = |word: &str| !STATING.contains(&word) && !telling_words(word).is_empty();
    let mut words = left.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty() && word.is_ascii());
    match is_short && words.all(tells) && said.iter().all(is_of_one) {
        true => places,
        false => BTreeSet::new(),
    }
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
            ("Second.", vec![1]),
            ("2", vec![1]),
            ("number one please", vec![0]),
            ("The first, please.", vec![0]),
            ("No, the nuts", vec![1]),
            ("Both.", vec![0, 1]),
            ("Both of them, please!", vec![0, 1]),
            ("All of them", vec![0, 1]),
            ("Yes, forget both", vec![0, 1]),
            ("两个都忘掉", vec![0, 1]),
            ("第二个", vec![1]),
            ("最後の", vec![1]),
            ("第2个", vec![1]),
            ("2番目", vec![1]),
            ("是的，都忘掉", vec![0, 1]),
            ("二つとも忘れて", vec![0, 1]),
            ("両方忘れてください。", vec![0, 1]),
        ] {
            assert_eq!(chosen(answer, &asked), places.into_iter().collect(), "{answer}");
        }
        let facts = ["汤姆对花生过敏。".to_owned(), "汤姆周日去航海。".to_owned()];
        assert_eq!(chosen("花生那个", &facts), [0].into());
        assert_eq!(chosen("Yes, please.", &asked[..1]), [0].into(), "the only one");
    }

    #[test]
    fn what_is_more_than_a_choice_chooses_nothing() {
        let asked = ["Tom sails on Sundays.".to_owned(), "Tom is allergic to nuts.".to_owned()];
        for answer in [
            "That's all, thanks.",
            "All right.",
            "All good!",
            "Just a second.",
            "Just one.",
            "Only two",
            "One moment.",
            "Thank you both.",
            "First of all, hello.",
            "First tell me a joke.",
            "Neither, keep them.",
            "Not the second one.",
            "All except the nuts",
            "Never mind",
            "No, don't forget the first",
            "the third",
            "Tom",
            "Thanks!",
            "Tom sails again today!",
            "I love nuts.",
            "I sail on Sundays.",
            "Tom is allergic",
            "He is allergic to nuts",
            "My brother is allergic to nuts!",
            "Is Tom allergic to nuts",
            "On Sundays with my brother.",
            "It is 2.",
            "At 1.",
            "You did it first",
            "that's the last of it",
            "That was the last one.",
            "I have both.",
            "How do you forget all that",
            "What do you mean by both",
            "Yes.",
            "I bought everything for dinner.",
            "What is the weather?",
            "Is the first one old?",
            "两个人来了",
            "不是第二个",
            "不忘掉第二个",
            "都可以",
            "全部でいくらですか",
            "最初に聞きたいことがあります",
        ] {
            assert_eq!(chosen(answer, &asked), BTreeSet::new(), "{answer}");
        }
    }
}
