//! Reminders by rule: "remind me in two hours to ring Ada", 明天早上九点提醒我交房租, 3時間後に薬を飲むようにリマインドして. The time and the text
//! are taken from the person's own words, so no model has to be trusted. Plain functions of the words and the time.

mod answers;
mod cancel;
mod period;
mod when;

use std::ops::Range;
use std::sync::LazyLock;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use regex::Regex;

pub(crate) use cancel::{Cancel, is_within};
pub(crate) use when::When;

/// The language of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    English,
    Chinese,
    Japanese,
}

impl Language {
    /// Returns the language of a text, by its script.
    pub(crate) fn of(text: &str) -> Self {
        match () {
            () if text.contains(|c: char| ('\u{3040}'..='\u{30ff}').contains(&c)) => Self::Japanese,
            () if text.contains(|c: char| ('\u{4e00}'..='\u{9fff}').contains(&c)) => Self::Chinese,
            () => Self::English,
        }
    }
}

/// A reminder that a person asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reminder {
    /// The text of the reminder, in the person's own words; empty if there is none.
    pub(crate) what: String,
    /// The time.
    pub(crate) when: When,
    /// The language of the request.
    pub(crate) language: Language,
}

/// The reminder that a sentence requests, or the reason for which there is none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reading {
    /// A reminder.
    Asked(Reminder),
    /// A reminder whose time cannot be parsed.
    Unclear(Language),
    /// A reminder whose time is in the past.
    Over(Language),
    /// A request to cancel reminders.
    Cancel(Cancel),
}

/// The reminders that a message asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Request {
    /// The readings, in order.
    pub(crate) readings: Vec<Reading>,
    /// `true` if the message contains nothing else.
    pub(crate) is_all: bool,
}

/// The separator of the paragraph about reminders from the rest of an answer.
pub(crate) const PARAGRAPH: &str = "\n\n";
/// The maximum number of reminders per message.
const REMINDERS_MAX: usize = 3;
/// The most characters of a reminder's text.
const WHAT_CHARS_MAX: usize = 200;

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

static ENGLISH: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^(?:(?:ok(?:ay)?|hi|hello|hey)?[ ,]*(?:please|pls|and|then|also)?[ ,]*(?:can|could|would|will) you (?:please )?|i (?:want|need|would like|'d like) you to |please,? |and |also )?\b(?:remind me|set (?:me )?a reminder|give me a reminder)\b(?: please)?",
    )
});
static ENGLISH_WITHIN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)(?:,? ?(?:please|can you|could you))? ?\bremind me\b(?: please)?"));
static NO_REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:don't|do not|never|did|didn't|you|they|he|she|it|that) (?:\w+ )?(?:remind|reminds|reminded) me\b|\bno (?:longer )?need\b|\b(?:need not|needn't|cancel|stop|delete)\b",
    )
});
static ASKED_OF_YOU: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\b(?:(?:can|could|would|will) you (?:please )?|(?:want|need|like) you to )remind me\b")
});
static RECALL: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\bremind me (?:again )?(?:about |of )?(?:what|who|where|when|how|why|which|whose|if|whether)\b")
});
static BEGINS_WITH_A_TIME: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^(?:and |also |then )?(?:in|at|on|every|each|today|tonight|tomorrow|this|next|the day after|daily)\b")
});
static OF_DEEDS: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?:remind me|a reminder) to\b"));
static CHINESE_BEGINS: LazyLock<Regex> = LazyLock::new(|| regex("^(?:请|麻烦|你|帮我|记得|给我)*提醒"));
static CHINESE: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?:请|麻烦|帮我|你)*(?:记得|能|可以)?(?:给我(?:设(?:置|定)?)?(?:一?个)?提醒|提醒(?:一下)?我(?:一下|一声)?)")
});
/// A Chinese phrase such as "call me in half an hour". It requests a reminder only after a time; otherwise it gives a
/// name.
static CHINESE_CALL: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:分钟后|小时后|天后|之后|点钟?|点半|分|早上|上午|中午|下午|晚上|明天|后天)叫我"));
static CHINESE_NOT: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?:别|不要|不用|不需要|没有?|怎么不|取消)(?:再|再次)?提醒|取消|提醒(?:一下)?我(?:一下)?(?:什么|谁|哪)",
        // A change of a reminder, a question about one, and what others do.
        r"|把[^，、。]{0,16}提醒我[^，、。]{0,16}(?:改成|改到|改为|推迟|延后|往后|提前到)|的提醒.{0,8}(?:推迟|延后|往后|提前)|为什么[^，、。]*提醒|你会提醒我|^(?:我(?:的)?)?(?:他|她|妈妈|爸爸|老师|同事|老板|朋友)(?:们)?[^，、。]{0,8}提醒我",
    ))
});
static JAPANESE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?:リマインド(?:を)?(?:して|し|お願い)?|リマインダー(?:を)?(?:設定して)?|思い出させて)(?:ください|下さい|もらえますか|くれますか|くれ|ね|ほしい|欲しい)?(?:です|します)?",
    )
});
static JAPANESE_NOT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        // A change of a reminder, and a question about one.
        r"(?:リマインドし|思い出させ)(?:ない|なくて)|(?:リマインダー|リマインド).*(?:消し|削除|取り消|やめ|キャンセル)|の(?:リマインド|リマインダー)(?:を|は|も).{2,24}(?:変え|にして|でお願い)|じゃなくて|(?:リマインド|リマインダー)(?:は何|してって)|何でしたか|っけ[?？。]*$",
    )
});

/// Returns the reminders that a message requests, relative to `now`, the time of the message.
pub(crate) fn read(message: &str, now: &Zoned) -> Request {
    // Dots within a time do not end a sentence. Full-width digits count as digits.
    let narrow = |c: char| match c {
        '０'..='９' => char::from_u32(c as u32 - '０' as u32 + '0' as u32).unwrap_or(c),
        '：' => ':',
        other => other,
    };
    let message: String = CALL.replace(message, "").chars().map(narrow).collect();
    let message = message.replace("a.m.", "am").replace("p.m.", "pm").replace("A.M.", "am").replace("P.M.", "pm");
    let sentences = knowledge::sentences(&message);
    let (mut readings, mut others) = (Vec::new(), 0);
    for sentence in &sentences {
        match of_sentence(sentence, now) {
            Some(reading) if readings.len() < REMINDERS_MAX => readings.push(reading),
            _ => others += usize::from(!is_filler(sentence)),
        }
    }
    let is_all = !readings.is_empty() && others == 0 && readings.iter().all(Reading::is_plain);
    Request { readings, is_all }
}

/// Returns `true` if a message only requests or cancels reminders; with a model that calls tools, if it requests some whose time
/// the rule reads.
pub(crate) fn asks_for_nothing_else(message: &str, has_tools: bool) -> bool {
    // The present time only decides which times are past, which does not matter here.
    let request = read(message, &Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC));
    let is_sure = || request.readings.iter().all(|reading| matches!(reading, Reading::Asked(_)));
    request.is_all && (!has_tools || is_sure())
}

/// Returns a lifeform's answer to `asked` without the paragraph about reminders. Confirmations are not facts.
pub(crate) fn without_confirmations<'a>(answer: &'a str, asked: &str) -> &'a str {
    let request = read(asked, &Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC));
    match (request.is_all, request.readings.is_empty()) {
        (true, _) => "",
        (false, true) => answer,
        (false, false) => answer.split_once(PARAGRAPH).map_or(answer, |(_, rest)| rest),
    }
}

impl Reading {
    /// Returns `true` if the text of the reminder holds nothing but the thing to be reminded of: "能不能叫我一声",
    /// "それと「オーブンを止める" and "我的猫生了小猫，打疫苗" hold more.
    fn is_plain(&self) -> bool {
        let Self::Asked(Reminder { what, language, .. }) = self else { return true };
        match language {
            Language::English => !what.contains(['?', '!', ';']) && !what.contains(". "),
            Language::Chinese | Language::Japanese => {
                !what.contains(['，', '、', '；', '「', '」', '“', '”', '？', '?', ','])
                    && !what.ends_with(['吗', '呢', 'か'])
                    && !["あと", "それと", "能不能", "顺便"].iter().any(|words| what.contains(words))
            }
        }
    }
}

fn is_filler(sentence: &str) -> bool {
    let words = sentence.trim().trim_end_matches(['.', '!', '。', '！', ',', '，']).to_lowercase();
    let fillers = [
        "hi",
        "hello",
        "hey",
        "please",
        "thanks",
        "thank you",
        "ok",
        "okay",
        "谢谢",
        "你好",
        "好的",
        "ありがとう",
        "お願いします",
        "こんにちは",
    ];
    words.is_empty() || fillers.contains(&&*words)
}

/// The mentions at the beginning of a message.
static CALL: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*(?:@\S+?(?:[,，]\s*|:\s+|：\s*|\s+))+"));
/// A name without a mark before a request: "Ben, remind me ...".
static VOCATIVE: LazyLock<Regex> = LazyLock::new(|| regex(r"^(\p{Lu}[\p{L}'’-]*),\s+"));
/// The unparsed rest of a time at the edges of a reminder's text: "2027 to renew", "Thursday to run", "除了周末".
static TIME_LEFT: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)^(?:(?:19|20)\d\d|every|each|and|or|except|until|till|but|weekends?|next year|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)\b",
        r"|\b(?:next year|from (?:now|today|tomorrow)|(?:except|until) (?:on )?(?:weekends?|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|tomorrow|noon))$",
        r"|^(?:年|明年|后年|来年|再来|隔|和|与|除了|直到|前|负)|(?:除了周末|前)$|^(?:と|再)",
    ))
});
/// Time expressions that no rule can parse.
static TIME_UNREAD: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)\b(?:\d+|an?|one|two|three|half an?) (?:minutes?|hours?|days?|weeks?) before\b|\b(?:hours?|days?|weeks?|months?) (?:from|after) (?:today|tomorrow|next|\w+day)\b|\bnot (?:today|tomorrow|on)\b|\bnext year\b.*\bremind|\bremind me\b.*\b(?:next year|the 13th)$",
        r"|\b(?:2[5-9]|[3-9]\d):\d\d\b|\b\d{1,2}:[6-9]\d\b",
        r"|(?:明年|后年|来年|每两周|隔周|隔週|再来週|再来月|除了|直到|以外|来月|翌月|毎月|下个?月|每个?月|月末|月底|月初|年末|年底|大晦日|元旦|元日|除夕|中秋|国庆|春节|圣诞|クリスマス|バレンタイン|連休|前日|前夜|前一天|当日|第[0-9一二三四]+[月火水木金土日]曜)",
        r"|(?:リマインド|リマインダー|通知).{0,16}(?:変更|ずら|延期|遅らせ|早め)|提醒.{0,16}(?:改到|改成|改为|推迟到|提前到|换到)|把.{0,16}提醒",
        r"|点(?:半)?前|時の?\d+分前|周[一二三四五六日天][一二三四五六日天和]|周[一二三四五六日天]和|曜日と|点和|時と\d|负",
    ))
});
/// A past time of the reminder itself. "Remind me tomorrow what we said yesterday" does not match.
static PAST: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)\bremind me (?:yesterday|last (?:night|week|month|year|\w+day))\b",
        r"|^(?:请)?(?:昨天|前天|上周\S?|上个月|去年)(?:早上|上午|中午|下午|晚上)?[0-9一二三四五六七八九十两点半分:：]*提醒我",
        r"|^(?:昨日|おととい|一昨日|先週)の?(?:朝|昼|夜|午前|午後)?[0-9時半分:：]*に.*(?:リマインド|思い出させ)",
    ))
});
/// A Chinese request with a repeating time or a date before it, valid or not.
static CHINESE_TIMED: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"^(?:请)?(?:每(?:隔)?[^，。]{0,6}(?:秒|分钟|小时|天|周|星期|月|年)[^，。]{0,2}",
        r"|[0-9〇一二三四五六七八九十]{1,3}月[0-9〇一二三四五六七八九十]{1,3}(?:日|号)[^，。]{0,8})提醒我"
    ))
});

fn of_sentence(sentence: &str, now: &Zoned) -> Option<Reading> {
    if let Some(cancel) = cancel::of_sentence(sentence, now) {
        return Some(Reading::Cancel(cancel));
    }
    let sentence = without_vocative(sentence);
    let (language, cue) = cue_of(sentence)?;
    if PAST.is_match(sentence.trim()) {
        return Some(Reading::Over(language));
    }
    let found = when::find(sentence, language, now);
    let Some((when, mut spans)) = found else {
        // A mention of a reminder in passing is not a request. A question needs an answer.
        let asks = sentence.trim().ends_with(['?', '？', '吗', '呢', 'か']);
        let is_request = match language {
            Language::English => ENGLISH.is_match(sentence.trim()) && (!asks || OF_DEEDS.is_match(sentence)),
            Language::Chinese => {
                let sentence = sentence.trim();
                !asks && (CHINESE_BEGINS.is_match(sentence) || CHINESE_TIMED.is_match(sentence))
            }
            Language::Japanese => {
                !asks && !["見せて", "一覧", "教えて", "リスト"].iter().any(|words| sentence.contains(words))
            }
        };
        return is_request.then_some(Reading::Unclear(language));
    };
    let Some(when) = when else { return Some(Reading::Over(language)) };
    spans.push(cue);
    let what = what_of(sentence, spans, language);
    // If a part of the time was not parsed, the reminder would be set for a wrong time.
    if TIME_LEFT.is_match(&what) || TIME_UNREAD.is_match(timed_part(sentence)) {
        return Some(Reading::Unclear(language));
    }
    Some(Reading::Asked(Reminder { what, when, language }))
}

/// Returns the part of a request in which its time stands: what is before a Chinese "remind me", if a time stands there.
/// "明天九点提醒我买圣诞礼物" asks for tomorrow, not for Christmas.
fn timed_part(sentence: &str) -> &str {
    let has_time = |part: &&str| part.contains(|c: char| c.is_numeric() || "一二三四五六七八九十".contains(c));
    sentence.split_once("提醒我").map(|(before, _)| before).filter(has_time).unwrap_or(sentence)
}

/// Returns a request without the name before it, unless that is a time: "Tomorrow, remind me ...".
fn without_vocative(sentence: &str) -> &str {
    let Some(found) = VOCATIVE.captures(sentence) else { return sentence };
    let rest = &sentence[found[0].len()..];
    let is_time = BEGINS_WITH_A_TIME.is_match(&found[1].to_lowercase());
    if !is_time && ENGLISH.is_match(rest) { rest } else { sentence }
}

/// Returns `true` if a sentence requests or cancels a reminder. Such a sentence states no fact.
pub(crate) fn is_request(sentence: &str) -> bool {
    let sentence = CALL.replace(sentence, "");
    cue_of(&sentence).is_some() || cancel::cue_of(sentence.trim()).is_some()
}

/// Returns the language of a reminder request, and its range in a sentence.
fn cue_of(sentence: &str) -> Option<(Language, Range<usize>)> {
    if CHINESE_NOT.is_match(sentence) || JAPANESE_NOT.is_match(sentence) {
        return None;
    }
    if let Some(found) = JAPANESE.find(sentence) {
        return Some((Language::Japanese, found.range()));
    }
    if let Some(found) = CHINESE.find(sentence) {
        return Some((Language::Chinese, found.range()));
    }
    if let Some(found) = CHINESE_CALL.find(sentence) {
        return Some((Language::Chinese, found.end() - "叫我".len()..found.end()));
    }
    let within = || {
        // "My kids remind me every day" is not a request. A time, a comma or "please" before the phrase makes it one.
        let found = ENGLISH_WITHIN.find(sentence)?;
        let before = sentence[..found.start()].trim().to_lowercase();
        (before.ends_with(',') || before.ends_with("please") || BEGINS_WITH_A_TIME.is_match(&before)).then_some(found)
    };
    let found = ENGLISH.find(sentence).or_else(within)?;
    let is_none = NO_REQUEST.is_match(sentence) && !ASKED_OF_YOU.is_match(sentence);
    // "Remind me what my cat is called" asks for an answer now.
    (!is_none && !RECALL.is_match(sentence)).then(|| (Language::English, found.range()))
}

/// Returns a sentence without its time and without the request phrase: the person's own words.
fn what_of(sentence: &str, mut spans: Vec<Range<usize>>, language: Language) -> String {
    spans.sort_by_key(|span| span.start);
    let (mut left, mut at) = (String::new(), 0);
    for span in spans {
        if span.start > at {
            left.push_str(&sentence[at..span.start]);
        }
        if language == Language::English {
            left.push(' ');
        }
        at = at.max(span.end);
    }
    left.push_str(&sentence[at..]);
    let mut left = left.split_whitespace().collect::<Vec<_>>().join(" ");
    let edges = |c: char| c.is_whitespace() || ",.;:!?，。；：！？、「」".contains(c);
    loop {
        let before = left.len();
        left = left.trim_matches(edges).to_owned();
        let (heads, tails): (&[&str], &[&str]) = match language {
            Language::English => (
                &["to ", "that ", "about ", "of ", "and ", "for ", "please ", "then ", "it's time to "],
                &[" please", " and", " to", " at", " on", " by"],
            ),
            Language::Chinese => (&["请", "要", "去", "记得", "的时候", "时", "，"], &["请", "吧", "哦", "的事", "，"]),
            Language::Japanese => {
                (&["に", "の", "は", "、", "ね"], &["ように", "ことを", "のを", "って", "と", "を", "こと", "よう"])
            }
        };
        for head in heads {
            let is_head = left.to_lowercase().starts_with(head) && left.len() > head.len();
            if is_head {
                left = left[head.len()..].to_owned();
            }
        }
        for tail in tails {
            if let Some(rest) = left.strip_suffix(tail).filter(|rest| !rest.trim().is_empty()) {
                left = rest.to_owned();
            }
        }
        if left.len() == before {
            break;
        }
    }
    left.chars().filter(|c| !c.is_control()).take(WHAT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reference time of the tests, a Thursday.
    fn now() -> Zoned {
        "2026-01-01T14:30[Europe/Lisbon]".parse().unwrap()
    }

    fn shown(message: &str) -> Vec<String> {
        let shown = |reading: &Reading| match reading {
            Reading::Asked(Reminder { what, when: When::Once(at), .. }) => {
                format!("{} {what}", at.to_zoned(now().time_zone().clone()).strftime("%m-%d %H:%M"))
            }
            Reading::Asked(Reminder { what, when: When::Again(cron), .. }) => format!("{cron} | {what}"),
            Reading::Unclear(_) => "unclear".to_owned(),
            Reading::Over(_) => "over".to_owned(),
            Reading::Cancel(cancel) => format!("cancel {}", cancel.about),
        };
        read(message, &now()).readings.iter().map(shown).collect()
    }

    #[test]
    fn what_is_said_of_reminders_is_left_out_of_an_answer() {
        for (asked, answer, rest) in [
            ("Remind me in two hours to rest.", "I will remind you at 16:30: rest", ""),
            ("Cancel my rest reminder.", "I will not remind you of this any more: rest (2026-01-01 16:30)", ""),
            (
                "Remind me in two hours to rest. How is the sea?",
                "I will remind you at 16:30: rest\n\nIt is calm.",
                "It is calm.",
            ),
            ("How is the sea?", "It is calm.\n\nIt was rough.", "It is calm.\n\nIt was rough."),
        ] {
            assert_eq!(without_confirmations(answer, asked), rest, "{asked}");
        }
    }

    #[test]
    fn time_and_text_come_from_the_words_in_english() {
        for (message, wanted) in [
            ("Remind me in an hour to ring Ada.", "01-01 15:30 ring Ada"),
            ("@Bo remind me in an hour to ring Ada.", "01-01 15:30 ring Ada"),
            ("@Bo, remind me in an hour to ring Ada.", "01-01 15:30 ring Ada"),
            ("Ben, remind me in an hour to ring Ada.", "01-01 15:30 ring Ada"),
            ("Tomorrow, remind me to ring Ada.", "01-02 09:00 ring Ada"),
            ("Remind me every weekend at 9 to rest.", "unclear"),
            ("Remind me on 1 December 2027 to renew.", "unclear"),
            ("Remind me on December 1 next year to renew.", "unclear"),
            ("Remind me every Monday and Thursday to run.", "unclear"),
            ("Remind me every day at 7 except weekends to run.", "unclear"),
            ("Remind me an hour before 5 pm to leave.", "unclear"),
            ("Remind me a week from tomorrow to call.", "unclear"),
            ("Remind me on Friday at 25:00 to sleep.", "unclear"),
            ("Remind me tomorrow at 13:75 to eat.", "unclear"),
            ("Remind me not tomorrow but on Sunday at 9 to rest.", "unclear"),
            ("Remind me tomorrow at 9 to plan next year's trip.", "01-02 09:00 plan next year's trip"),
            ("@lifeform:01a @Bo: please remind me in an hour to ring Ada.", "01-01 15:30 ring Ada"),
            ("remind me in 1 minute to drink some water", "01-01 14:31 drink some water"),
            ("Please remind me in two hours to water the plants", "01-01 16:30 water the plants"),
            ("Remind me tomorrow at 9:00 to pay the rent.", "01-02 09:00 pay the rent"),
            ("Remind me every day at 7 to take my pills", "0 7 * * * | take my pills"),
            ("Remind me in 2 minutes to ring Ada", "01-01 14:32 ring Ada"),
            ("Can you remind me to call mum at 5?", "01-01 17:00 call mum"),
            ("Could you please remind me about the dentist on Monday at 8:30 a.m.?", "01-05 08:30 the dentist"),
            ("In half an hour remind me to stretch", "01-01 15:00 stretch"),
            ("remind me to call at 3 pm", "01-01 15:00 call"),
            ("Remind me tonight to lock the door", "01-01 20:00 lock the door"),
            ("Remind me tomorrow morning that the bins go out", "01-02 09:00 the bins go out"),
            ("Remind me on 24 December at noon to buy a tree", "12-24 12:00 buy a tree"),
            ("remind me on 2026-02-03 at 16:45 to file the report", "02-03 16:45 file the report"),
            ("Remind me every Monday at 9:15 to water the ferns", "15 9 * * 1 | water the ferns"),
            ("Remind me every weekday morning to stand up", "0 9 * * 1-5 | stand up"),
            ("Remind me every 30 minutes to look up", "*/30 * * * * | look up"),
            ("Remind me in three days", "01-04 14:30 "),
            ("Remind me in three days at 3 to call Ada", "01-04 15:00 call Ada"),
            ("Remind me every night at 12 to sleep", "0 0 * * * | sleep"),
            ("Remind me every Friday at midnight to back up", "0 0 * * 6 | back up"),
            ("Remind me every Friday at 3 to back up", "0 15 * * 5 | back up"),
            ("Remind me tomorrow to look at a flat", "01-02 09:00 look at a flat"),
            ("Remind me tonight at 12 to sleep", "01-02 00:00 sleep"),
            ("remind me to call Ada next Friday at 3", "01-02 15:00 call Ada"),
            ("remind me in an hour and a half to turn the bread", "01-01 16:00 turn the bread"),
            ("Remind me to breathe", "unclear"),
            ("Remind me some time next year", "unclear"),
            ("Remind me today at 9:00 to pay", "over"),
            ("Remind me yesterday at 9 to sleep", "over"),
            ("Remind me every 2 minutes to blink", "unclear"),
        ] {
            assert_eq!(shown(message), [wanted.to_owned()], "{message}");
        }
    }

    #[test]
    fn time_and_text_come_from_the_words_in_chinese_and_japanese() {
        for (message, wanted) in [
            ("10分钟后提醒我喝水", "01-01 14:40 喝水"),
            ("@Iris，10分钟后提醒我喝水", "01-01 14:40 喝水"),
            ("明年12月1日提醒我买票", "unclear"),
            ("后年3月1日提醒我换护照", "unclear"),
            ("每周一和周四提醒我跑步", "unclear"),
            ("明天9点前十分钟提醒我出门", "unclear"),
            ("再来週の月曜日9時に歯医者をリマインドして", "unclear"),
            ("毎週月曜日と木曜日に走ることをリマインドして", "unclear"),
            ("10時の15分前に出かけることをリマインドして", "unclear"),
            ("请两小时后提醒我给妈妈打电话。", "01-01 16:30 给妈妈打电话"),
            ("半小时后提醒我关火", "01-01 15:00 关火"),
            ("半小时后叫我关火", "01-01 15:00 关火"),
            ("明天早上九点提醒我交房租", "01-02 09:00 交房租"),
            ("提醒我今天晚上八点半看比赛", "01-01 20:30 看比赛"),
            ("每天早上七点提醒我吃药", "0 7 * * * | 吃药"),
            ("每周一上午10点提醒我写周报", "0 10 * * 1 | 写周报"),
            ("后天下午三点提醒我开会", "01-03 15:00 开会"),
            ("二月三十号提醒我交税", "unclear"),
            ("2月30日早上九点提醒我交税", "unclear"),
            ("12月24日提醒我买树", "12-24 09:00 买树"),
            ("三天后下午两点提醒我开会", "01-04 14:00 开会"),
            ("晚上12点提醒我睡觉", "01-02 00:00 睡觉"),
            ("凌晨12点提醒我睡觉", "01-02 00:00 睡觉"),
            ("明天凌晨三点提醒我赶飞机", "01-02 03:00 赶飞机"),
            ("每天凌晨12点提醒我备份", "0 0 * * * | 备份"),
            ("明天９点提醒我开会", "01-02 09:00 开会"),
            ("明天九点提醒我买圣诞礼物", "01-02 09:00 买圣诞礼物"),
            ("下下周一提醒我开会", "01-12 09:00 开会"),
            ("下周五上午提醒我开会", "01-09 09:00 开会"),
            ("提醒我喝水", "unclear"),
            ("每两分钟提醒我眨眼", "unclear"),
            ("昨天九点提醒我睡觉", "over"),
            ("3時間後に薬を飲むようにリマインドして", "01-01 17:30 薬を飲む"),
            ("明日の9時に会議があることを思い出させてください。", "01-02 09:00 会議がある"),
            ("毎朝7時に薬を飲むようにリマインドして", "0 7 * * * | 薬を飲む"),
            ("毎週金曜日の18時にゴミを出すようリマインドして", "0 18 * * 5 | ゴミを出す"),
            ("30分後にリマインドして", "01-01 15:00 "),
            ("午後5時半に電話するようにリマインドして", "01-01 17:30 電話する"),
            ("薬を飲むようにリマインドして", "unclear"),
        ] {
            assert_eq!(shown(message), [wanted.to_owned()], "{message}");
        }
    }

    #[test]
    fn a_sentence_without_a_reminder_request_sets_no_reminder() {
        for none in [
            "Remind me what my cat is called.",
            "You remind me of my sister.",
            "Did you remind me at 9?",
            "What time is it?",
            "My kids remind me every day to be patient.",
            "Can you remind me of the capital of France?",
            "Please remind me about what we said yesterday",
            "思い出させてくれる曲は何ですか？",
            "提醒我的是那首歌，叫什么名字？",
            "以后叫我小明",
            "把明天九点提醒我开会改成十点",
            "你为什么明天九点要提醒我开会",
            "明天九点你会提醒我开会吗？",
            "我妈妈每天八点提醒我吃早饭",
            "歯医者のリマインドを11月30日の夜8時に変えてください。",
            "会議のリマインドは明日7時でお願いします",
            "明日9時にリマインドしてって言ったっけ？",
            "99999999999999999999分钟后提醒我",
            "The song in an hour-long film reminds me of home.",
        ] {
            assert_eq!(shown(none), [""; 0], "{none}");
        }
        for request in [
            "明天提醒我提前到机场",
            "明天九点提醒我把会议改到周五",
            "今晚八点提醒我和朋友吃饭",
            "明天三点提醒我练吉他",
            "明日9時にほっけを買うのをリマインドして",
        ] {
            assert_eq!(shown(request).len(), 1, "{request}");
        }
        assert!(read("Hi! Remind me in an hour to ring Ada. Thanks!", &now()).is_all);
        let both = read("Remind me in an hour to ring Ada. What is her number?", &now());
        assert!(both.readings.len() == 1 && !both.is_all);
        let two = shown("Remind me in an hour to ring Ada. Remind me in two hours to ring Bob.");
        assert_eq!(two, ["01-01 15:30 ring Ada", "01-01 16:30 ring Bob"]);
    }

    #[test]
    fn a_request_to_take_a_reminder_off_is_one_and_no_reminder() {
        for (message, wanted) in [
            ("Don't remind me in an hour.", "cancel "),
            ("Stop reminding me to ring Ada. Thanks!", "cancel ring Ada"),
            ("不要再提醒我明天九点开会", "cancel 开会"),
            ("明日9時のリマインダーを消してください", "cancel "),
        ] {
            assert_eq!(shown(message), [wanted], "{message}");
            assert!(read(message, &now()).is_all && is_request(message.trim_end_matches(" Thanks!")), "{message}");
        }
    }

    #[test]
    fn a_confirmation_names_the_time_and_the_day_if_it_is_another() {
        let said = |message: &str| {
            let readings = read(message, &now()).readings;
            let Some(Reading::Asked(reminder)) = readings.first() else { panic!("{message}") };
            let When::Once(at) = reminder.when else { panic!("{message}") };
            reminder.confirmation(at, &now())
        };
        assert_eq!(said("Remind me in an hour to ring Ada"), "I will remind you at 15:30: ring Ada");
        assert_eq!(said("Remind me tomorrow at 9 to pay"), "I will remind you on Friday, 2 January, at 09:00: pay");
        assert_eq!(said("10分钟后提醒我喝水"), "我会在今天 14:40 提醒你：喝水");
        assert_eq!(said("30分後に水を飲むようにリマインドして"), "今日 15:00 にお知らせします：水を飲む");
    }
}
