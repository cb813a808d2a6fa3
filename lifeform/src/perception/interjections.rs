//! The first words of a message that bear on an answer which is being written: requests to stop, and corrections.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};

/// The messages that cancel a thought.
const STOP_WORDS: [&str; 14] = [
    "stop",
    "stop it",
    "cancel",
    "never mind",
    "nevermind",
    "forget it",
    "停",
    "停下",
    "算了",
    "别说了",
    "やめて",
    "止めて",
    "ストップ",
    "もういい",
];

/// The beginnings of a message that corrects what was said just before.
static CORRECTIONS: LazyLock<RegexSet> = LazyLock::new(|| {
    let english = r"(?i)^\W*(?:(?:no|nope|wait|careful|wrong|correction|sorry)[,.!:;—–-]|(?:that|this)(?:'s|’s| is| was) (?:wrong|not right|not true|dangerous|a mistake)\b|i meant\b|i made a mistake\b)";
    let chinese = r"^\W*(?:不对|不是[，,。！]|错了|等等|等一下|小心|更正|我是说|我说错)";
    let japanese = r"^\W*(?:違う|違います|違った|いや[、,。！]|いいえ[、,。！]|待って|ちょっと待|間違|訂正|危ない)";
    RegexSet::new([english, chinese, japanese]).unwrap_or_else(|error| unreachable!("{error}"))
});

/// The beginnings that look like one and decline, apologize or go on.
static NO_CORRECTIONS: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"(?i)^\W*(?:no(?:[-‐]one\b|\. ?\d|[,.!:;—–-]+ ?(?:thanks|thank you|problem|worries|rush|hurry|need\b))|sorry[,.!:;—–-]+ ?(?:one more|another|for\b|to\b|i am|i'm))";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns `true` if a message begins as a correction: "No, at most two!".
pub(super) fn corrects(content: &str) -> bool {
    CORRECTIONS.is_match(content) && !NO_CORRECTIONS.is_match(content)
}

/// Returns `true` if a message consists only of a request to stop.
pub(crate) fn is_stop(content: &str) -> bool {
    let words = content.trim().trim_end_matches(['.', '!', '。', '！', '…']).to_lowercase();
    STOP_WORDS.contains(&words.trim())
}

/// Returns `true` if a message begins with a request to stop, and says more: "Stop! What was the number again?".
pub(super) fn begins_with_stop(content: &str) -> bool {
    let first = content.split_inclusive(['.', '!', '。', '！', '…']).next().unwrap_or_default();
    first.len() < content.trim_end().len() && first.ends_with(['.', '!', '。', '！', '…']) && is_stop(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_known_by_its_first_words() {
        for yes in [
            "No, at most two!",
            "Wait! It is Friday.",
            "That's wrong, it is in May.",
            "I meant Lisbon.",
            "不对，是两片！",
            "小心，那条路封了",
            "違います、二錠までです",
            "待って！",
        ] {
            assert!(corrects(yes), "{yes}");
        }
        for no in [
            "No problem at all",
            "No, thanks!",
            "No. 5 is fine",
            "No-one came",
            "Sorry, one more thing: are you there?",
            "Wait for me at the pier",
            "Not yet",
            "不是很好吗",
            "いやな天気だね",
            "And on Friday?",
        ] {
            assert!(!corrects(no), "{no}");
        }
    }
}
