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
    /// An alternative is chosen: "Let's go with Saturday". It counts after the summary, if it names the alternative.
    Chosen,
    /// All agree: "Agreed." It counts after the summary.
    Agreed,
    /// The item is left open: "Next item". It counts after the summary.
    Next,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

/// The words with which a text says neither yes nor no, or both.
static UNSURE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:not sure|know|no idea|no opinion|undecided|maybe|perhaps|depends|either|but|if|unless|though|although|however|first|later|check|need to|have to|think about)\b|不知道|不确定|不好说|随便|看情况|都可以|还没想|先|但|不过|如果|不能不|不是不|没说不|わからな|分からな|わかりませ|分かりませ|まだ|どちらでも|どっちでも|考え|確認|ではありません|ではない|じゃない|わけ|くていい|けど|けれど|でも|なら|たら",
    )
});
/// The first words of a clear answer. What follows them must not deny it.
static YES: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:yes|yeah|yep|yup|yea|sure|of course|gladly|absolutely|agreed?|definitely|ok|okay|fine|great|\+1)(?:\W|$)|^\W*(?:👍|好|好的|好啊|好呀|行|可以|同意|赞成|当然|没问题|支持|はい|賛成|ぜひ|もちろん|了解|OKです)(?:です|ます|します)?(?:[。！!，,、 ]|$)",
    )
});
static NO: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:no|nope|nah|never|no way|-1)(?:\W*$|\s*[,.!;–—-])|^\W*(?:absolutely|of course|certainly|definitely|rather) not\b|^\W*(?:👎|不行|反对|不同意|不赞成|不要|当然不|いいえ|いや|反対|だめ|無理)(?:です|します)?(?:[。！!，,、 ]|$)|^\W*当然不",
    )
});
static FOR: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:i agree|i'?m for|i am for|in favou?r|good idea|sounds (?:good|great|fun|fine)|works for me|fine (?:with|by|for) me|count me in|i'?m in[.!]*$|no objections?|not against|no problem|don'?t mind|can'?t wait|not (?:a )?bad(?: idea)?|i vote (?:yes|for)|let'?s do it)\b|我同意|我赞成|我支持|好主意|我去|我也去|没意见|没有意见|不反对|不介意|賛成です|賛成します|いいですね|いいね|いいと思います|大丈夫です|行きます|行けます|参加します|異議なし|反対しません|構いません",
    )
});
static AGAINST: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:i'?m against|i am against|i disagree|i can'?t|i cannot|i won'?t|i'?d rather not|rather not|not for me|count me out|i'?ll pass|no way|let'?s not|i (?:say|vote) no|a no from me)\b|我反对|我不同意|我不赞成|我不想去|不想去|我不去|去不了|没空|反対です|反対します|行けません|行けない|行かない|行きません|参加できません|できません|無理です|遠慮して|賛成できません|賛成しません",
    )
});
/// The words that deny what stands before or after them.
static DENIES: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?:not|no|never|nobody)\b|n't\b|不|没|ない|ません"));
static DECIDED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:ok(?:ay)?\W+)?(?:it(?:'s| is) )?(?:decided|settled)(?:\s*[:：–—]|\W*$)|^\W*(?:那)?(?:决定|定)(?:了)?(?:\s*[:：]|[。！!]*$)|^\W*就这(?:么|样)定(?:了)?(?:\s*[:：，,]|[。！!]*$)|^\W*(?:では|じゃあ)?[、 ]?(?:決定|決まり|決めました)(?:です)?(?:\s*[:：]|[。！!]*$)",
    )
});
/// The marks between "Decided" and the words of the decision.
const AFTER: [char; 7] = [':', '：', '–', '—', '，', ',', '\n'];
static CHOSEN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:(?:ok(?:ay)?|then|so|good)\W+)*(?:let'?s (?:do|go|take|have|pick|choose)\b|we(?:'ll| will)? (?:do|go|take|pick|choose)\b)|^\W*(?:so\W+)?(?:(?:i|we) decided?\b|final decision\b)|\bit is\W*$|^\W*那就|^\W*(?:では|じゃあ).*(?:しましょう|しよう)|にしましょう",
    )
});
static AGREED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:ok(?:ay)?\W+)?(?:agreed|let'?s do (?:it|that|so)|so be it)\W*$|^\W*(?:就这么办|就这样吧?|同意)(?:吧)?[。！!]*$|^\W*(?:そうしましょう|それで(?:行き|いき)ましょう)[。！!]*$",
    )
});
static NEXT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\W*(?:next(?: item| point| topic)?|skip(?: it| this)?|let'?s move on|move on|leave it open)\W*$|^\W*(?:下一个|下一项|跳过|先放着)\W*$|^\W*(?:次へ|次の議題へ?|次に進みましょう|飛ばしましょう|保留)[。！!]*$",
    )
});
/// The words between what is wanted and what is not, and those that stand behind what is not.
static THAN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?:rather than|instead of|over|not)\b|而不是|不是|比"));
static BUT: LazyLock<Regex> = LazyLock::new(|| regex(r"ではなく|じゃなく|より"));
static ALL_BUT: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)\b(?:anything|everything|all|any|nothing|anywhere) but\b|以外|除了"));
static CLAUSE: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)[,.;!?，。；！？、\n]|\bbut\b|但是|但|而是|でも|けど"));
static DENIED: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:no|not|never|against|except|can'?t|cannot|don'?t|won'?t)\b|反对|没空|不|反対|無理|だめ|ダメ|ない|ません",
    )
});
/// The words that may stand beside an alternative in a clause that wants it.
static BESIDE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^(?:\s|\W|\b(?:i|i'd|i'm|we|we'd|the|a|an|on|in|at|for|to|like|love|prefer|favou?r|want|would|rather|please|vote|my|our|choice|pick|is|it|it's|be|better|best|suits?|works?|me|us|fine|good|great|think|say|take|takes|go|goes|with|then|so|ok|okay|yes|yeah|definitely|let's|was|now|decide|decided|final|decision|have)\b|[我想要选投票给觉得最好吧就那了的是更喜欢支持坐去用行可以]|私は|[がをにではとねよ]|いい|良い|です|ます|思い|したい|希望|お願いし|お願い|方|ほう|の|しましょう|しよう)*$",
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

/// Returns the alternative that a text wants; `None` if it names none, several, or says more of it than the rules read.
fn wanted(text: &str, options: &[String]) -> Option<usize> {
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    if ALL_BUT.is_match(text) {
        return None;
    }
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
            let is_wanted = names(wanted, option);
            match () {
                () if names(denied, option) || names(than, option) => no.push(n),
                () if is_wanted && DENIED.is_match(wanted) => no.push(n),
                () if is_wanted && BESIDE.is_match(&without(wanted, option)) => yes.push(n),
                () if is_wanted => return None,
                () => {}
            }
        }
    }
    yes.retain(|n| !no.contains(n));
    yes.dedup();
    if let [one] = yes[..] { Some(one) } else { None }
}

/// Returns a text in lower case without an alternative.
fn without(text: &str, option: &str) -> String {
    text.to_lowercase().replacen(&option.to_lowercase(), " ", 1)
}

/// The maximum length of a text that takes a side: its words, or its characters in a script without spaces.
const WORDS_MAX: usize = 14;
const LETTERS_MAX: usize = 30;

/// Returns the side that a text takes in an item with these alternatives; `None` if it takes none, or the rules are not sure.
pub(crate) fn side(text: &str, options: &[String]) -> Option<Side> {
    let text = text.replace('’', "'");
    let text = text.trim();
    let is_long =
        text.split_whitespace().count() > WORDS_MAX || (!text.is_ascii() && text.chars().count() > LETTERS_MAX * 2);
    if is_long || text.ends_with(['?', '？']) {
        return None;
    }
    if !options.is_empty() {
        return wanted(text, options).map(Side::Option);
    }
    let rest = FOR.replace_all(text, " ");
    let (is_for, is_against) = (rest != text, AGAINST.is_match(&rest));
    let after = |first: &Regex| first.find(text).map(|found| &text[found.end()..]);
    if let Some(after) = after(&NO) {
        return (!after.to_lowercase().contains("yes") && !is_for).then_some(Side::Against);
    }
    if UNSURE.is_match(&rest) {
        return None;
    }
    if let Some(after) = after(&YES) {
        // "Yes, I can't wait!" denies nothing, "Sure, not" does.
        let denies = DENIES.is_match(&FOR.replace_all(after, " "));
        return (!denies && !is_against).then_some(Side::For);
    }
    match (is_for, is_against) {
        (true, false) => Some(Side::For),
        (false, true) => Some(Side::Against),
        // What speaks for it and against it is read by people.
        _ => None,
    }
}

/// Returns the words after "Decided:", on the same line; an empty text for "Decided." alone.
pub(super) fn decided_words(text: &str) -> &str {
    let after = DECIDED.find(text).map_or("", |found| &text[found.end()..]);
    after.trim_start_matches(AFTER).trim().lines().next().unwrap_or_default().trim()
}

/// Returns what a text says about the decision itself.
pub(super) fn word(text: &str) -> Option<Word> {
    let text = text.replace('’', "'");
    match () {
        () if text.trim_end().ends_with(['?', '？']) => None,
        () if DECIDED.is_match(&text) => Some(Word::Decided),
        () if NEXT.is_match(&text) => Some(Word::Next),
        () if AGREED.is_match(&text) => Some(Word::Agreed),
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
        let (yes, no) = (Some(Side::For), Some(Side::Against));
        for (text, side_of) in [
            ("Yes, gladly.", yes),
            ("I'm for it", yes),
            ("No problem for me", yes),
            ("I don’t mind", yes),
            ("Yes, I can't wait!", yes),
            ("sounds great", yes),
            ("Sounds good to me", yes),
            ("Not a bad idea.", yes),
            ("Ok", yes),
            ("No, I have to work that day", no),
            ("I can't on Saturday", no),
            ("Absolutely not", no),
            ("nah", no),
            ("It's a no from me", no),
            ("Not a bad idea, but I can't.", None),
            ("Yes but not on Saturday", None),
            ("Sure, if you want to drown", None),
            ("I'd love to, but I have to work", None),
            ("let's talk about the football instead", None),
            ("I do not want to miss this!", None),
            ("My cat can't stop meowing", None),
            ("don't forget the sunscreen!", None),
            ("Ok, let me check my calendar first.", None),
            ("I'm in Berlin that day.", None),
            ("I'm not sure yet", None),
            ("What does the weather say?", None),
            ("The boat is in the yard.", None),
            ("同意", yes),
            ("好的", yes),
            ("我没意见", yes),
            ("不同意，我要上班", no),
            ("当然不行", no),
            ("我不同意", no),
            ("不能不去", None),
            ("好是好，但我没空", None),
            ("还不确定", None),
            ("賛成です", yes),
            ("行きます！", yes),
            ("反対です", no),
            ("その日は行けません", no),
            ("行かない", no),
            ("賛成できません", no),
            ("反対ではありません", None),
            ("まだわからない", None),
        ] {
            assert_eq!(side(text, &[]), side_of, "{text}");
        }
        let days = options("Saturday or Sunday?");
        for (text, side_of) in [
            ("Saturday.", Some(Side::Option(0))),
            ("Sunday suits me better", Some(Side::Option(1))),
            ("Sunday rather than Saturday", Some(Side::Option(1))),
            ("I can't on Sunday, but Saturday is fine", Some(Side::Option(0))),
            ("Not Saturday, I work", None),
            ("Saturday or Sunday, both are fine", None),
            ("I saw him on Saturday", None),
            ("Anything but Saturday", None),
            ("I hate Saturday", None),
            ("Is Saturday windy?", None),
            ("Yes!", None),
        ] {
            assert_eq!(side(text, &days), side_of, "{text}");
        }
        let days = options("我们周六还是周日出海？");
        assert_eq!(side("周六，周日我没空", &days), Some(Side::Option(0)));
        assert_eq!(side("周六太早了", &days), None);
        let days = options("出航日：土曜日、日曜日");
        assert_eq!(side("土曜日ではなく日曜日がいい", &days), Some(Side::Option(1)));
        assert_eq!(side("土曜日以外", &days), None);
    }

    #[test]
    fn the_words_of_a_decision_stand_after_its_mark() {
        for (text, words) in [
            ("Decided: Saturday.\nSee you there!", "Saturday."),
            ("OK, it's settled: we postpone", "we postpone"),
            ("Decided.", ""),
            ("决定：周六", "周六"),
            ("就这么定了，周六", "周六"),
            ("決定：土曜日", "土曜日"),
        ] {
            assert_eq!((word(text), decided_words(text)), (Some(Word::Decided), words), "{text}");
        }
        // Letters that change their length in lower case are cut nowhere inside.
        for text in ["İ周六ẞ", "ẞHeron İ"] {
            assert_eq!(side(text, &["周六".to_owned(), "Heron".to_owned()]), None, "{text}");
        }
    }

    #[test]
    fn a_moderator_decides_in_few_words() {
        for (text, found) in [
            ("Decided: Saturday.", Some(Word::Decided)),
            ("OK, decided.", Some(Word::Decided)),
            ("Let's go with Saturday", Some(Word::Chosen)),
            ("Sunday it is", Some(Word::Chosen)),
            ("We decided on Sunday.", Some(Word::Chosen)),
            ("Agreed.", Some(Word::Agreed)),
            ("It's decided tomorrow", None),
            ("Settled in at the new place, hello!", None),
            ("决定之前我想先听听大家的意见", None),
            ("决定权在大家手里", None),
            ("決定する前に意見を聞きたい", None),
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
