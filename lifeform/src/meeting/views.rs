//! The views that people state about an item of an agenda, read by rules in English, Chinese and Japanese.

use std::sync::LazyLock;

use regex::Regex;

/// The maximum number of alternatives of an item, and the maximum length of one, in characters.
const OPTIONS_MAX: usize = 6;
const OPTION_CHARS: usize = 40;

/// A side in a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// The person agrees.
    For,
    /// The person disagrees.
    Against,
    /// The person wants the alternative with this number, from 0.
    Option(usize),
}

/// Words about a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The item is decided: "Decided: Saturday".
    Decided,
    /// The item may be decided: "Let's go with Saturday". It counts below a summary.
    Chosen,
    /// The item is left open: "Next item".
    Next,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

static UNSURE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:not sure|don'?t know|do not know|no idea|no opinion|undecided|maybe|perhaps|depends|either is fine|i'?ll think)\b|不知道|不确定|不好说|随便|看情况|都可以|还没想|わからな|分からな|わかりませ|分かりませ|まだ決め|どちらでも|どっちでも|考え中",
    )
});
static NOT_AGAINST: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:no objections?|not against|no problem|no worries|why not|don'?t mind|nothing against)\b|不反对|没意见|没有意见|没问题|不介意|反対しない|反対しません|異議なし|問題ない|問題ありません|構いません",
    )
});
static AGAINST: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:no|nope|against|disagree|don'?t|do not|can'?t|cannot|won'?t|rather not|never|not)\b|反对|不同意|不赞成|不行|不要|不可以|不想|不去|不能|没空|反対|だめ|ダメ|駄目|無理|嫌|行けない|行けません|できない|できません|やめ(?:よう|ましょう|たい|て)|賛成しない|賛成しません",
    )
});
static FOR: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:yes|yeah|yep|sure|agree|agreed|for it|i'?m for|i am for|in favou?r|fine|good idea|sounds good|great|ok|okay|let'?s|works for me|i'?d (?:like|love)|gladly|count me in|i'?m in)\b|\+1|👍|同意|赞成|支持|可以|好的|好啊|好主意|当然|我去|^行|賛成|いいです|いいね|いいと思|良いと思|大丈夫|行けます|行きます|はい|ぜひ|了解",
    )
});
static DECIDED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:ok(?:ay)?\W+)?(?:it(?:'s| is) )?(?:decided|settled)\b|^\W*(?:那)?(?:决定|就这么定|就这样定|定了)|^\W*(?:では|じゃあ)?[、 ]?(?:決定|決まり|決めました)",
    )
});
static CHOSEN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:(?:ok(?:ay)?|then|so|good)\W+)*(?:agreed\b|let'?s (?:do|go|take|have|pick|choose)\b|we(?:'ll| will)? (?:do|go|take|pick|choose)\b)|^\W*那就|^\W*(?:では|じゃあ).*(?:しましょう|しよう)|にしましょう",
    )
});
static NEXT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:next(?: item| point| topic)?|skip(?: it| this)?|let'?s move on|move on|leave it open)\W*$|^\W*(?:下一个|下一项|跳过|先放着)\W*$|^\W*(?:次へ|次の議題|次に進|飛ばして|保留)",
    )
});
/// The words between what is wanted and what is not, and those that stand behind what is not.
static THAN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?:rather than|instead of|not)\b|而不是|不是|别|不要"));
static BUT: LazyLock<Regex> = LazyLock::new(|| regex(r"ではなく|じゃなく"));
static CLAUSE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)[,.;!?，。；！？、]|\bbut\b|但是|但|而是|でも|けど"));
static DENIED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:no|never|against|except|can'?t|cannot|don'?t|won'?t|isn'?t|doesn'?t)\b|反对|没空|不|反対|無理|だめ|ダメ|ない|ません",
    )
});
static OR: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i),?\s+or\s+|还是|或者|それとも|または"));
static SMALL: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)^(?:on|in|at|by|to|the|a|an)\s+"));

/// Returns the alternatives of an item, as in "Saturday or Sunday?" or "The day: Saturday, Sunday"; none for a question that
/// is answered by yes or no.
pub(crate) fn options(item: &str) -> Vec<String> {
    let bare = item.trim().trim_end_matches(['?', '？', '。', '.', '吗', '呢']);
    let listed = bare.rsplit_once([':', '：']).map(|(_, list)| list).filter(|list| list.contains([',', '，', '、']));
    let parts: Vec<&str> = match listed.filter(|list| !OR.is_match(list)) {
        Some(list) => list.split([',', '，', '、']).collect(),
        None => {
            let list = bare.rsplit_once([':', '：']).map_or(bare, |(_, list)| list);
            let parts: Vec<&str> = OR.split(list).collect();
            let first = parts.first().copied().unwrap_or_default();
            // "A, B or C" has three.
            match parts.len() {
                2 if bare.contains([':', '：']) => {
                    first.split([',', '，', '、']).chain(parts[1..].iter().copied()).collect()
                }
                _ => parts,
            }
        }
    };
    if !(2..=OPTIONS_MAX).contains(&parts.len()) {
        return Vec::new();
    }
    let parts: Vec<&str> = parts.into_iter().map(str::trim).collect();
    let (first, second) = (parts[0], parts[1]);
    let mut found: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
    if !OR.is_match(bare) {
        // Nothing stands before the first one.
    } else if first.is_ascii() && second.is_ascii() {
        // What stands before the first alternative: "Do we sail on Saturday or on Sunday".
        let (words, wanted): (Vec<&str>, usize) =
            (first.split_whitespace().collect(), second.split_whitespace().count());
        found[0] = words[words.len().saturating_sub(wanted)..].join(" ");
    } else if let Some(at) = begins_like(first, second) {
        // "我们周六还是周日出海": both begin alike, and are equally long.
        let alike = &first[at..];
        found[0] = alike.to_owned();
        let last = found.len() - 1;
        found[last] = parts[last].chars().take(alike.chars().count()).collect();
    }
    let found: Vec<String> = found.iter().map(|part| SMALL.replace(part, "").trim().to_owned()).collect();
    let fits = |part: &String| !part.is_empty() && part.chars().count() <= OPTION_CHARS;
    if found.iter().all(fits) { found } else { Vec::new() }
}

/// Returns the place in `first` from which on it begins like `second`, and has at least two characters.
fn begins_like(first: &str, second: &str) -> Option<usize> {
    let start = second.chars().next()?;
    let (at, _) = first.char_indices().rfind(|(_, c)| *c == start)?;
    Some(at).filter(|at| first[*at..].chars().count() > 1)
}

/// Returns `true` if a text contains an alternative as whole words.
fn names(text: &str, option: &str) -> bool {
    let (text, option) = (text.to_lowercase(), option.to_lowercase());
    text.match_indices(&option).any(|(at, found)| {
        let before = text[..at].chars().next_back();
        let after = text[at + found.len()..].chars().next();
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        !option.is_ascii() || (!is_letter(before) && !is_letter(after))
    })
}

/// Returns the alternatives that a text wants.
fn wanted(text: &str, options: &[String]) -> Vec<usize> {
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    for clause in CLAUSE.split(text) {
        let (denied, rest) = match BUT.find(clause) {
            Some(but) => (&clause[..but.start()], &clause[but.end()..]),
            None => ("", clause),
        };
        let (wanted, than) = match THAN.find(rest) {
            Some(than) => (&rest[..than.start()], &rest[than.end()..]),
            None => (rest, ""),
        };
        for (n, option) in options.iter().enumerate() {
            let is_denied =
                names(denied, option) || names(than, option) || (names(wanted, option) && DENIED.is_match(wanted));
            match is_denied {
                true => no.push(n),
                false if names(wanted, option) => yes.push(n),
                false => {}
            }
        }
    }
    yes.retain(|n| !no.contains(n));
    yes.sort_unstable();
    yes.dedup();
    // Of two, the one that is not denied is wanted.
    if yes.is_empty() && no.len() == 1 && options.len() == 2 {
        yes.push(1 - no[0]);
    }
    yes
}

/// Returns the side that a text takes in an item with these alternatives; `None` if it takes none.
pub(crate) fn side(text: &str, options: &[String]) -> Option<Side> {
    let text = text.replace('’', "'");
    let text = text.trim();
    if !options.is_empty() {
        return match wanted(text, options)[..] {
            [one] if !text.ends_with(['?', '？']) => Some(Side::Option(one)),
            _ => None,
        };
    }
    if UNSURE.is_match(text) || text.ends_with(['?', '？']) {
        return None;
    }
    match () {
        () if NOT_AGAINST.is_match(text) => Some(Side::For),
        () if AGAINST.is_match(text) => Some(Side::Against),
        () if FOR.is_match(text) => Some(Side::For),
        () => None,
    }
}

/// Returns what a text says about the decision itself.
pub(super) fn word(text: &str) -> Option<Word> {
    let text = text.replace('’', "'");
    match () {
        () if text.trim_end().ends_with(['?', '？']) => None,
        () if DECIDED.is_match(&text) => Some(Word::Decided),
        () if NEXT.is_match(&text) => Some(Word::Next),
        () if CHOSEN.is_match(&text) => Some(Word::Chosen),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_names_its_alternatives() {
        for (item, found) in [
            ("Saturday or Sunday?", vec!["Saturday", "Sunday"]),
            ("Do we sail on Saturday or on Sunday?", vec!["Saturday", "Sunday"]),
            ("The day: Saturday, Sunday or Monday", vec!["Saturday", "Sunday", "Monday"]),
            ("The boat: Heron, Petrel", vec!["Heron", "Petrel"]),
            ("我们周六还是周日出海？", vec!["周六", "周日"]),
            ("出航日：土曜日、日曜日", vec!["土曜日", "日曜日"]),
            ("土曜日それとも日曜日？", vec!["土曜日", "日曜日"]),
            ("Shall we sail on Saturday?", vec![]),
            ("周六出海吗？", vec![]),
        ] {
            assert_eq!(options(item), found, "{item}");
        }
    }

    #[test]
    fn a_text_takes_a_side_or_none() {
        for (text, side_of) in [
            ("Yes, gladly.", Some(Side::For)),
            ("I'm for it", Some(Side::For)),
            ("No problem for me", Some(Side::For)),
            ("I don’t mind", Some(Side::For)),
            ("No, I have to work", Some(Side::Against)),
            ("I can't on Saturday", Some(Side::Against)),
            ("I'm not sure yet", None),
            ("What does the weather say?", None),
            ("The boat is in the yard.", None),
            ("同意", Some(Side::For)),
            ("不同意，我要上班", Some(Side::Against)),
            ("我没意见", Some(Side::For)),
            ("还不确定", None),
            ("賛成です", Some(Side::For)),
            ("反対です", Some(Side::Against)),
            ("その日は行けません", Some(Side::Against)),
            ("まだわからない", None),
        ] {
            assert_eq!(side(text, &[]), side_of, "{text}");
        }
        let days = options("Saturday or Sunday?");
        for (text, side_of) in [
            ("Saturday.", Some(Side::Option(0))),
            ("Sunday suits me better", Some(Side::Option(1))),
            ("Not Saturday, I work", Some(Side::Option(1))),
            ("Sunday rather than Saturday", Some(Side::Option(1))),
            ("I can't on Sunday, but Saturday is fine", Some(Side::Option(0))),
            ("Saturday or Sunday, both are fine", None),
            ("Is Saturday windy?", None),
            ("Yes!", None),
        ] {
            assert_eq!(side(text, &days), side_of, "{text}");
        }
        let days = options("我们周六还是周日出海？");
        assert_eq!(side("周六，周日我没空", &days), Some(Side::Option(0)));
        let days = options("出航日：土曜日、日曜日");
        assert_eq!(side("土曜日ではなく日曜日がいい", &days), Some(Side::Option(1)));
    }

    #[test]
    fn a_moderator_decides_in_few_words() {
        for (text, found) in [
            ("Decided: Saturday.", Some(Word::Decided)),
            ("OK, decided.", Some(Word::Decided)),
            ("Let's go with Saturday", Some(Word::Chosen)),
            ("Agreed.", Some(Word::Chosen)),
            ("next item", Some(Word::Next)),
            ("决定：周六", Some(Word::Decided)),
            ("那就周六", Some(Word::Chosen)),
            ("決定：土曜日", Some(Word::Decided)),
            ("土曜日にしましょう", Some(Word::Chosen)),
            ("What was decided?", None),
            ("I have not decided yet", None),
            ("We will see", None),
        ] {
            assert_eq!(word(text), found, "{text}");
        }
    }
}
