//! Requests to cancel reminders: "stop reminding me to ring Ada", 取消吃药的提醒, 9時のリマインダーを取り消して.

use std::ops::Range;
use std::sync::LazyLock;

use jiff::Zoned;
use regex::{Captures, Regex};

use super::{Language, When, regex, what_of, when};

/// A request to cancel reminders.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cancel {
    /// The words that identify the reminders; empty if there are none.
    pub(crate) about: String,
    /// The time that identifies the reminders.
    pub(crate) when: Option<When>,
    /// `true` if the request names a time in the past. It then matches no reminder.
    pub(crate) is_over: bool,
    /// `true` if the request means all reminders.
    pub(crate) all: bool,
    /// The language of the request.
    pub(crate) language: Language,
}

static ENGLISH: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?i)^(?:(?:ok(?:ay)?|please|pls|and|then|(?:can|could|would|will) you(?: please)?|you can)[ ,]+)*",
        r"(?:stop reminding me\b(?: any ?more)?|(?:don't|do not|never) remind me\b(?: again| any ?more)?",
        r"|(?:you )?(?:no longer need|don't need|do not need|needn't|need not)(?: to)? remind me\b(?: any ?more)?",
        r"|(?:cancel|delete|remove|drop|forget|stop|never ?mind|clear|(?:take|turn|switch) off|get rid of|i (?:do not|don't|no longer) need)(?: about)?(?P<all> all)?(?: of)?",
        r"(?: (?:my|the|that|this|these|those|your))?(?P<about>(?: [^ ,.;:!?]+){0,5}?) (?P<noun>reminders?)\b)",
    ))
});
/// The words after "reminder" in a request to cancel it, unlike in "the reminder service".
static ENGLISH_AFTER: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^[\s,.;:!?]*(?:$|(?:to|about|for|of|at|on|in|from|that|please|pls|now|then|thanks|thank you|again|any ?more|tomorrow|today|tonight|every|this|next)\b)",
    )
});
/// The words before "reminder" in a request for a new one, as in "drop me a reminder".
static ENGLISH_WANTED: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?:me|us|him|her|them|an?|for|our|of)\b"));
static CHINESE: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?:请|麻烦|帮我|可以|以后|你|就)*(?:(?P<not>(?:别|不要|不用|不需要|停止)(?:再|再次)?提醒(?:一下)?我?(?:了)?)",
        r"|(?:取消|删除|删掉|去掉|撤销)(?P<all>所有|全部)?(?:的)?(?P<about>[^，,；;]*?)(?:的)?(?P<noun>提醒)",
        r"|(?:把)?(?P<before>[^，,；;]*?)(?:的)?提醒(?:都)?(?P<gone>取消|删除|删掉|去掉|撤销)(?:了|掉)?)",
    ))
});
/// The words after a Chinese request to cancel reminders.
static CHINESE_AFTER: LazyLock<Regex> = LazyLock::new(|| regex(r"^(?:了|掉|吧|都|啊|哦|谢谢|多谢|[\s，,。.！!？?])*$"));
/// A request to keep a reminder.
static LEFT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?:别|不要|不用|不必)(?:帮我|给我)?(?:取消|删除|删掉|去掉|撤销)|(?:消さ|削除し|取り消さ|やめ|キャンセルし|止め|停止し)ないで",
    )
});
static JAPANESE: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"(?P<all>全部の|すべての|全ての)?の?(?:リマインダー|リマインド)(?:を|は)?(?:全部|すべて)?(?:消し|削除|取り消し|やめ|キャンセル|止め|停止)(?:し)?(?:て)?(?:ください|下さい|ね|ほしい)?",
        r"|(?:リマインドし|思い出させ)(?:ないで|なくて(?:も)?いい|なくてよい)(?:ください|下さい|です|よ)?",
    ))
});
/// Other questions about a reminder, which do not request a cancellation.
static ASKED_OF_YOU: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)^(?:please )?(?:can|could|would|will) you\b|^(?:请|可以|能|麻烦)|(?:もらえますか|くれますか)[？?]?$")
});
/// Words that name no reminder.
const UNSPECIFIC: [&str; 8] = ["it", "that", "this", "了", "的", "は", "を", "もう"];
/// The polite words around the name of a reminder.
const POLITE: [&str; 14] =
    ["please", "pls", "now", "then", "thanks", "thank", "you", "again", "anymore", "for", "about", "at", "on", "谢谢"];
/// The words for all reminders.
const ALL: [&str; 6] = ["all", "every", "any", "都", "所有", "全部"];

/// Returns the cancellation that a sentence requests, relative to `now`.
pub(super) fn of_sentence(sentence: &str, now: &Zoned) -> Option<Cancel> {
    let (language, found) = cue_of(sentence.trim())?;
    let sentence = sentence.trim();
    let cue = found.get(0)?.range();
    let within = [found.name("about"), found.name("before")].into_iter().flatten().map(|part| part.as_str());
    // The words that identify the reminders are inside the request phrase or next to it.
    let named = format!("{} {}", within.collect::<String>(), rest(sentence, &cue));
    let (when, spans) = match when::find(&named, language, now) {
        Some((when, spans)) => (Some(when), spans),
        None => (None, Vec::new()),
    };
    let is_over = matches!(when, Some(None));
    let about = what_of(&named, spans, language);
    let about = about.trim_matches(|c: char| c.is_whitespace() || ",.;:!?".contains(c));
    let about = about.strip_suffix("any more").unwrap_or(about).trim_end_matches(['了', '吧', '啊', '哦']);
    let mut words: Vec<&str> = about.split(' ').filter(|word| !word.is_empty()).collect();
    let is_polite = |word: &&str| POLITE.contains(&&*word.trim_matches(',').to_lowercase());
    while words.last().is_some_and(is_polite) {
        words.pop();
    }
    let first = words.iter().position(|word| !is_polite(word)).unwrap_or(words.len());
    let about = words[first..].join(" ").trim_matches(',').to_owned();
    let names_all = ALL.contains(&&*about);
    let is_named = !names_all && !UNSPECIFIC.contains(&&*about);
    let about = if is_named { about } else { String::new() };
    let all = about.is_empty() && when.is_none() && (found.name("all").is_some() || names_all);
    Some(Cancel { about, when: when.flatten(), is_over, all, language })
}

/// Returns the request phrase of a cancellation in a sentence, and its language.
pub(super) fn cue_of(sentence: &str) -> Option<(Language, Captures<'_>)> {
    let asks = sentence.ends_with(['?', '？', '吗', '呢', 'か']);
    if (asks && !ASKED_OF_YOU.is_match(sentence)) || LEFT.is_match(sentence) {
        return None;
    }
    let ways = [(Language::Japanese, &JAPANESE), (Language::Chinese, &CHINESE), (Language::English, &ENGLISH)];
    let found = ways.into_iter().find_map(|(language, way)| Some((language, way.captures(sentence)?)));
    found.filter(|(language, found)| is_request(*language, found, sentence))
}

/// Returns `true` if the words around a request phrase confirm that it is a request.
fn is_request(language: Language, found: &Captures<'_>, sentence: &str) -> bool {
    let Some(cue) = found.get(0) else { return false };
    let (before, after) = (&sentence[..cue.start()], &sentence[cue.end()..]);
    match language {
        Language::Japanese => true,
        // "Do not remind me" is a request only at the beginning or after a time.
        Language::Chinese if found.name("not").is_some() => before.chars().all(|c| {
            c.is_ascii_punctuation()
                || c.is_whitespace()
                || "，。那好的行嗯明今后天早晚上下午中点分时半每周星期一二三四五六七八九十两日".contains(c)
                || c.is_ascii_digit()
        }),
        Language::Chinese => CHINESE_AFTER.is_match(after),
        Language::English => {
            let about = found.name("about").map_or("", |about| about.as_str());
            found.name("noun").is_none() || (ENGLISH_AFTER.is_match(after) && !ENGLISH_WANTED.is_match(about))
        }
    }
}

fn rest(sentence: &str, cue: &Range<usize>) -> String {
    format!("{} {}", &sentence[..cue.start], &sentence[cue.end..])
}

impl Cancel {
    /// Returns `true` if the request means a reminder with these words and this time, `next` or by `cron`.
    pub(crate) fn means(&self, what: &str, next: jiff::Timestamp, cron: Option<&str>) -> bool {
        let in_time = match &self.when {
            None => true,
            Some(When::Once(at)) => *at == next,
            Some(When::Again(pattern)) => cron == Some(&**pattern),
        };
        let is_named =
            self.about.is_empty() || is_within(&self.about, what) || knowledge::adds_nothing(&self.about, what);
        in_time && !self.is_over && is_named
    }

    /// Returns `true` if the request neither identifies reminders nor means all of them.
    pub(crate) fn is_unspecific(&self) -> bool {
        self.about.is_empty() && self.when.is_none() && !self.all
    }

    /// Returns the message about the reminders that were cancelled.
    pub(crate) fn confirmation(&self, taken: &[String]) -> String {
        let list = taken.join("; ");
        match self.language {
            Language::English => format!("I will not remind you of this any more: {list}"),
            Language::Chinese => format!("我不再提醒你：{list}"),
            Language::Japanese => format!("このリマインダーを取り消しました：{list}"),
        }
    }

    /// Returns the question to the person if the request matches no reminder, or possibly several. `there` lists the
    /// person's reminders.
    pub(crate) fn question(&self, there: &[String]) -> String {
        let list = there.join("; ");
        match (self.language, there.is_empty()) {
            (Language::English, true) => "There is no reminder of yours here.".to_owned(),
            (Language::Chinese, true) => "这里没有你的提醒。".to_owned(),
            (Language::Japanese, true) => "ここにはあなたのリマインダーがありません。".to_owned(),
            (Language::English, false) => format!("I took nothing off. Which one do you mean? There is: {list}"),
            (Language::Chinese, false) => format!("我没有取消任何提醒。你指的是哪一个？现有：{list}"),
            (Language::Japanese, false) => format!("何も取り消していません。どれのことですか？登録済み：{list}"),
        }
    }
}

/// Returns `true` if the words of `about` are consecutive in `what`. In scripts without spaces, characters are
/// compared.
pub(crate) fn is_within(about: &str, what: &str) -> bool {
    let (about, what) = (about.to_lowercase(), what.to_lowercase());
    if !about.is_ascii() {
        return what.contains(&about);
    }
    let spaced = |text: &str| {
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        format!(" {} ", words.join(" "))
    };
    spaced(&what).contains(&spaced(&about))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-01-01T14:30[Europe/Lisbon]".parse().unwrap()
    }

    #[test]
    fn what_is_meant_is_read_from_the_words() {
        for (sentence, about, all, timed) in [
            ("Stop reminding me.", "", false, false),
            ("Stop reminding me to ring Ada.", "ring Ada", false, false),
            ("Please don't remind me any more", "", false, false),
            ("Don't remind me to buy bread.", "buy bread", false, false),
            ("You no longer need to remind me at 9 tomorrow.", "", false, true),
            ("Cancel my reminder to pay the rent", "pay the rent", false, false),
            ("Could you cancel the rent reminder?", "rent", false, false),
            ("Cancel all my reminders.", "", true, false),
            ("Delete that reminder", "", false, false),
            ("不要再提醒我吃药", "吃药", false, false),
            ("别提醒我", "", false, false),
            ("取消吃药的提醒", "吃药", false, false),
            ("把吃药的提醒取消", "吃药", false, false),
            ("取消所有提醒", "", true, false),
            ("不要再提醒我明天九点开会", "开会", false, true),
            ("明日9時のリマインダーを消してください", "", false, true),
            ("薬のリマインダーを取り消して", "薬", false, false),
            ("もうリマインドしないで", "", false, false),
            ("Cancel all my rent reminders.", "rent", false, false),
            ("Delete all the dentist reminders", "dentist", false, false),
            ("Cancel all reminders about Ada", "Ada", false, false),
            ("取消所有吃药的提醒", "吃药", false, false),
            ("取消全部会议提醒", "会议", false, false),
            ("Cancel my reminder, please.", "", false, false),
            ("Take off the sleep reminder", "sleep", false, false),
            ("I don't need the reminder about the door any more", "the door", false, false),
            ("Don't remind me to pay the rent any more", "pay the rent", false, false),
            ("别再提醒我开会了", "开会", false, false),
            ("不用提醒我开会了", "开会", false, false),
            ("Stop that reminder now", "", false, false),
            ("Cancel my reminder for tomorrow at 9", "", false, true),
        ] {
            let found = of_sentence(sentence, &now()).unwrap_or_else(|| panic!("{sentence}"));
            assert_eq!((&*found.about, found.all, found.when.is_some()), (about, all, timed), "{sentence}");
        }
        for none in [
            "Remind me in an hour to cancel the reminder service.",
            "Did you cancel my reminder?",
            "Should I stop reminding him?",
            "He told me to cancel my plans.",
            "I forgot the reminder you gave me.",
            "明天九点提醒我取消订阅",
            "吃药的提醒取消了吗",
            "3時間後に予約を取り消すようにリマインドして",
            "帮我取消明天的会议，九点提醒我吃药",
            "取消订单后提醒我",
            "删除文件之前提醒我备份",
            "明天九点提醒取消订阅",
            "我妈妈不用提醒也会吃药",
            "别取消吃药的提醒",
            "リマインダーをキャンセルしないで",
            "Remove the tests for our reminder service",
            "Delete the draft of the reminder email and write a friendlier one",
            "Drop me a reminder tomorrow at 9 to call Bob",
        ] {
            assert_eq!(of_sentence(none, &now()), None, "{none}");
        }
    }

    #[test]
    fn a_reminder_is_meant_by_its_words_or_its_time() {
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        let read = |sentence: &str| of_sentence(sentence, &now()).unwrap();
        let tomorrow = at("2026-01-02T09:00:00Z");
        assert!(read("Stop reminding me to ring Ada").means("ring Ada about the boat", tomorrow, None));
        assert!(!read("Stop reminding me to ring Ada").means("ring Bob", tomorrow, None));
        assert!(read("Don't remind me tomorrow at 9").means("pay", tomorrow, None));
        assert!(!read("Don't remind me tomorrow at 9").means("pay", at("2026-01-02T10:00:00Z"), None));
        assert!(read("Stop reminding me every day at 7").means("stretch", tomorrow, Some("0 7 * * *")));
        assert!(read("取消吃药的提醒").means("吃药", tomorrow, None));
        assert!(!read("Cancel the rent reminder").means("ring my parents", tomorrow, None));
        assert!(!read("Cancel the car reminder").means("buy carrots", tomorrow, None));
        assert!(!read("Don't remind me today at 9:00").means("pay", tomorrow, None), "that time is over");
        assert!(!read("Cancel all my rent reminders").means("ring Ada", tomorrow, None));
        assert!(read("Stop reminding me").is_unspecific() && !read("Cancel all my reminders").is_unspecific());
    }
}
