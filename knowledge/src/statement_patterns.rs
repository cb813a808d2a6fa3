//! Recognition of people's statements about themselves, and of requests to remember something, by patterns (MISSION R3,
//! R4). No model reads them, so only unambiguous statements are taken. All others remain with the lifeform that heard
//! them.

use std::sync::LazyLock;

use regex::Regex;

use crate::record::Type;
use crate::record_type::type_of;

/// A statement that is worth a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cue {
    /// The category: `preference`, `habit`, `background` or `constraint`; `remembered` for requests about other topics.
    pub category: &'static str,
    /// The slot of a thing that a person has only one of: name, home, work. A later statement replaces the earlier one.
    pub slot: Option<&'static str>,
    /// The sentence, in the speaker's words.
    pub sentence: String,
}

impl Cue {
    /// Returns the type of record for the statement.
    pub fn kind(&self) -> Type {
        if self.category == REMEMBERED { type_of(&self.sentence) } else { Type::UserProfile }
    }
}

const REMEMBERED: &str = "remembered";

/// The categories of people's statements about themselves, for a model that reads a text.
pub const CATEGORIES: [&str; 4] = ["preference", "habit", "background", "constraint"];

/// Patterns of statements in English, Chinese and Japanese, the more certain first. The statement follows the cue or
/// precedes it.
const SHAPES: [(&str, Option<&str>, &str); 22] = [
    (
        "background",
        Some("name"),
        r"^(?i:hi,? |hello,? )?(?i:my name is|please call me|call me)\s+(?<said>\p{Lu}[\p{L}'’-]*(?:\s+\p{Lu}[\p{L}'’.-]*){0,3})$",
    ),
    ("background", Some("name"), r"^(?:请)?(?:我的名字(?:是|叫)|我叫|叫我)(?<said>[^他她它你了什的\s，。]{1,6})$"),
    ("background", Some("name"), r"^(?:私|僕|俺)の名前は(?<said>.+)"),
    ("background", Some("home"), r"^(?i:now |and )?(?i:i (?:now )?live in)\s+(?<said>\p{Lu}.+)"),
    ("background", Some("home"), r"^我(?:现在)?住在(?<said>.+)"),
    (
        "background",
        Some("home"),
        r"^(?:私|僕|俺)は(?:今は?|現在は?)?、?(?<said>[^昔前以]+?)に(?:住んで|暮らして)(?:い)?(?:る|ます)(?:よ|ね)?$",
    ),
    (
        "background",
        Some("work"),
        r"^(?:私|僕|俺)は(?:今は?|現在は?)?、?(?<said>[^昔前以い一]+?)で働いて(?:い)?(?:る|ます)(?:よ|ね)?$",
    ),
    ("background", Some("work"), r"^我(?:现在)?在(?<said>[^努认正家他她它这那找学想周晚夜早].*?)(?:工作|上班)$"),
    ("background", Some("work"), r"(?i)^(?:now |and )?i (?:now )?work (?:as|at|for)\s+(?<said>.+)"),
    (
        "background",
        None,
        r"(?i)^(?:i am|i'm) (?:from \p{L}+|an? (?:\p{L}+ ){0,2}(?:engineer|developer|teacher|doctor|nurse|student|designer|manager|lawyer|artist|writer|sailor|scientist|researcher|programmer|vegetarian|vegan))(?<said>.*)",
    ),
    ("background", None, r"^我(?:来自|是一[名个位]|是个)(?<said>.+)"),
    ("background", None, r"^(?:私|僕|俺)は(?<said>.+?)(?:の)?出身"),
    (
        "constraint",
        None,
        r"(?i)^(?:remember[:,]? (?:that )?)?i(?:'m| am) allergic to\s+(?<said>.+)|^i (?:can't|cannot) (?:eat|drink)\s+(?<also>.+)",
    ),
    ("constraint", None, r"^我(?:对(?<said>.+)过敏|不能(?:吃|喝)(?<also>.+))|^(?:私|僕|俺)は(?<end>.+)アレルギー"),
    (
        "constraint",
        None,
        r"(?i)^(?:from now on,?|in (?:the )?future,?|please,? (?:always|never))\s+(?<said>.+)|^(?:以后|今后|从现在起|每次)(?<also>.*(?:不要|别|请|都|要|用).+)|^(?:これから|今後|次から|いつも|必ず)は?、?(?<end>.+(?:ください|ないで|て))$",
    ),
    // An order: a verb for what the lifeform must always or never do.
    (
        "constraint",
        None,
        r"(?i)^(?:always|never)\s+(?<said>(?:address|answer|ask|call|check|commit|contact|delete|e-?mail|explain|give|include|keep|mention|message|push|put|reply|respond|send|share|show|speak|talk|tell|use|wake|write)\s.+)",
    ),
    (
        "constraint",
        None,
        r"^请?(?:不要|别)再?(?<said>(?:给|对|跟|向|叫|在).+)|^(?:私|僕|俺)(?:に|を|の)(?<end>.+ないで(?:ください)?)$",
    ),
    (
        "preference",
        None,
        r"(?i)^(?:well,? |and |but )?(?:i (?:would |'d )?(?:strongly |really |much )?prefer|i'd rather)\s+(?<said>.+)",
    ),
    (
        "preference",
        None,
        r"(?i)^(?:and |but )?i (?:really |absolutely )?(?:like|love|hate|dislike|can't stand|(?:do not|don't) like)\s+(?<said>.+)",
    ),
    (
        "preference",
        None,
        r"^我(?:更|最|很|特别|比较|不|不太)?(?:喜欢|偏好|讨厌)(?<said>.+)|(?:私|僕|俺)は(?<also>.+?)(?:が|のほうが|の方が)(?:大?好き|嫌い|苦手|いい)(?:です|だ)?",
    ),
    (
        "habit",
        None,
        r"(?i)^i (?:always|usually)\s+(?<said>.+)|^我(?:总是|从不|每天|习惯|一般)(?<also>.+)|^(?:私|僕|俺)は(?:いつも|毎日|普段)(?<end>.+)",
    ),
    (
        REMEMBERED,
        None,
        r"(?i)^(?:please |also |and )*(?:(?:remember|keep in mind|don't forget)(?: that|:|,)?|note(?: that|:))\s+(?<said>.+)|^(?:请)?(?:你)?(?:记住|记得|记一下|记下)[:：,，]?(?<also>.+)|(?<end>.+)(?:を|と|ことを)覚えて",
    ),
];

/// Words whose meaning depends on the situation in which they are said.
const DEICTIC: [&str; 34] = [
    "this", "that", "it", "them", "these", "those", "here", "there", "so", "to", "the", "a", "an", "idea", "one",
    "how", "what", "when", "your", "you", "hear", "see", "know", "too", "very", "much", "both", "all", "him", "her",
    "他", "它", "这个", "那个",
];

static FINDERS: LazyLock<Vec<(&str, Option<&str>, Regex)>> = LazyLock::new(|| {
    let finder = |(category, slot, shape): (&'static str, Option<&'static str>, &str)| {
        (category, slot, Regex::new(shape).unwrap_or_else(|error| unreachable!("the shape of a {category}: {error}")))
    };
    SHAPES.into_iter().map(finder).collect()
});

/// Quoted code, which is no statement of the speaker.
static CODE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)```.*?(?:```|\z)").unwrap_or_else(|error| unreachable!("{error}")));

/// Returns the statements of a message, at most one per sentence.
pub fn cues(message: &str) -> Vec<Cue> {
    sentences(&CODE.replace_all(message, "\n")).iter().filter_map(|sentence| cue(sentence)).collect()
}

fn cue(sentence: &str) -> Option<Cue> {
    let asks = sentence.ends_with(['?', '？']) || sentence.trim_end_matches('。').ends_with(['吗', '呢', 'か']);
    if asks {
        return None;
    }
    let plain = sentence.replace('’', "'");
    let plain = plain.trim_end_matches(['.', '!', '。', '！', ' ']);
    FINDERS.iter().find_map(|(category, slot, finder)| {
        let found = finder.captures(plain)?;
        let said = ["said", "also", "end"].iter().find_map(|part| found.name(part))?.as_str();
        let by_itself = says_something(said) && !(*category == "preference" && leans_on(said));
        by_itself.then(|| {
            // If the text to remember is itself a statement about the speaker, its own category is used.
            let inner = if *category == REMEMBERED { cue(said) } else { None };
            let sentence = sentence.to_owned();
            match inner {
                Some(Cue { category, slot, .. }) => Cue { category, slot, sentence },
                None => Cue { category, slot: *slot, sentence },
            }
        })
    })
}

/// Pronouns that refer to something said elsewhere.
const PRONOUNS: [&str; 8] = ["it", "this", "that", "they", "them", "those", "he", "she"];
/// The number of first words of an object in which a pronoun makes it depend on earlier text.
const LEANS_WITHIN: usize = 5;

/// Returns `true` if the object of a preference depends on earlier text.
fn leans_on(said: &str) -> bool {
    let lower = said.to_lowercase();
    let mut words = lower.split(|c: char| !(c.is_alphanumeric() || c == '\'')).filter(|word| !word.is_empty());
    words.by_ref().take(LEANS_WITHIN).any(|word| PRONOUNS.contains(&word))
}

/// Returns `true` if a text has a meaning outside of its conversation.
fn says_something(said: &str) -> bool {
    let lower = said.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.any(|word| !DEICTIC.contains(&word))
}

/// Patterns of judgements on an answer, at the start of a message.
const VERDICTS: [(bool, &str); 2] = [
    (
        false,
        r"(?i)^(?:no[,.]? )?(?:that|this|it)(?:(?:'s| is| was) (?:wrong|incorrect|not (?:right|true|correct|helpful))|(?: is|was)n't (?:right|true|correct|helpful)|(?: did| does)(?:n't| not) (?:help|work))(?:[.!, ]*$|[:;.!] .*$|, [^?？]*$|(?: –| —| -) .*$)|^(?:wrong|incorrect|not helpful)[.!]*$|^(?:谢谢[,，。!！ ]*)?(?:不对|错了|没用|没有用|不是这样)|^(?:違います|違う|役に立たな|役に立ちません|間違)",
    ),
    (
        true,
        r"(?i)^(?:(?:thanks|thank you|great|perfect|brilliant|excellent|wonderful|yes)[,.! ]+)*(?:(?:exactly|just) what i (?:needed|wanted|meant|asked for)|(?:that|this|it) (?:really )?(?:help(?:ed|s)|work(?:ed|s))|(?:that|this)(?:'s| is) (?:right|correct|helpful|perfect|exactly right)|very helpful)(?:[,!. ]*(?:a lot|well|so much|very much|thanks|thank you)(?:,? [\p{L}]+[.! ]*$)?)*[.! ]*$|^(?:谢谢[,，。!！ ]*)?(?:(?:很|真|非常)有用|帮上忙了|正确)[。!！]*$|^(?:とても)?(?:役に立ちました|助かりました)[。！]*$",
    ),
];

static VERDICT_FINDERS: LazyLock<Vec<(bool, Regex)>> = LazyLock::new(|| {
    let finder = |(helpful, shape): (bool, &str)| {
        (helpful, Regex::new(shape).unwrap_or_else(|error| unreachable!("the shape of a verdict: {error}")))
    };
    VERDICTS.into_iter().map(finder).collect()
});

/// Returns `true` if a message says that the previous answer helped, `false` if it says that it did not help, and
/// `None` otherwise.
pub fn verdict(message: &str) -> Option<bool> {
    let first = sentences(message).into_iter().next()?.replace('’', "'");
    let asks = first.ends_with(['?', '？']);
    VERDICT_FINDERS.iter().filter(|_| !asks).find_map(|(helpful, finder)| finder.is_match(&first).then_some(*helpful))
}

/// The abbreviations whose point ends no sentence.
const ABBREVIATIONS: [&str; 9] = ["dr", "mr", "mrs", "ms", "prof", "st", "vs", "e.g", "i.e"];

/// Returns `true` if the last word of a text is `word`, in lower case.
fn ends_with_word(text: &str, word: &str) -> bool {
    let last = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    last.trim_start_matches(|c: char| !c.is_alphanumeric()).eq_ignore_ascii_case(word)
}

/// Returns the sentences of a text, unchanged.
pub fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut current = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_short = || ABBREVIATIONS.iter().any(|short| ends_with_word(&current, short));
        let is_stop = c == '.' && chars.peek().is_none_or(|next| next.is_whitespace()) && !is_short();
        let ends = "。！？!?\n".contains(c) || is_stop;
        if c != '\n' {
            current.push(c);
        }
        if ends || chars.peek().is_none() {
            let sentence = std::mem::take(&mut current).trim().to_owned();
            if !sentence.is_empty() {
                sentences.push(sentence);
            }
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(message: &str) -> Vec<String> {
        let written = |cue: Cue| {
            format!("{}{}: {}", cue.category, cue.slot.map_or(String::new(), |slot| format!("/{slot}")), cue.sentence)
        };
        cues(message).into_iter().map(written).collect()
    }

    #[test]
    fn what_people_say_of_themselves_is_taken_in_three_languages() {
        assert_eq!(
            found_in("Hi! My name is Ada. I prefer TypeScript over JavaScript. What is the time? It rains."),
            ["background/name: My name is Ada.", "preference: I prefer TypeScript over JavaScript."]
        );
        assert_eq!(found_in("Please always answer in English."), ["constraint: Please always answer in English."]);
        assert_eq!(
            found_in("Remember that the build key turns on Fridays"),
            ["remembered: Remember that the build key turns on Fridays"]
        );
        assert_eq!(found_in("Remember: I’m allergic to peanuts."), ["constraint: Remember: I’m allergic to peanuts."]);
        assert_eq!(
            found_in("我叫小明。我喜欢用深色主题。以后请不要发邮件。"),
            ["background/name: 我叫小明。", "preference: 我喜欢用深色主题。", "constraint: 以后请不要发邮件。"]
        );
        assert_eq!(
            found_in("私はコーヒーが好きです。今後は短く答えてください。"),
            ["preference: 私はコーヒーが好きです。", "constraint: 今後は短く答えてください。"]
        );
    }

    #[test]
    fn the_patterns_find_homes_jobs_and_orders_in_three_languages() {
        assert_eq!(
            found_in(
                "私は東京に住んでいます。私は今、大阪で働いています。我在腾讯工作。我在努力工作。我在找工作。私は昔、京都に住んでいました。私は京都に住んでいません。",
            ),
            [
                "background/home: 私は東京に住んでいます。",
                "background/work: 私は今、大阪で働いています。",
                "background/work: 我在腾讯工作。"
            ]
        );
        assert_eq!(
            found_in("Never call me before nine. Always answer in English. Never mind that. Always a pleasure."),
            ["constraint: Never call me before nine.", "constraint: Always answer in English."]
        );
        assert_eq!(
            found_in("不要给我发邮件。今後は短く答えて。私に電話しないでください。"),
            [
                "constraint: 不要给我发邮件。",
                "constraint: 今後は短く答えて。",
                "constraint: 私に電話しないでください。"
            ]
        );
        assert_eq!(found_in("See:\n```\nI prefer tabs.\n```\nI like tea."), ["preference: I like tea."]);
    }

    #[test]
    fn a_verdict_is_what_is_said_at_once() {
        for (message, helpful) in [
            ("That helped, thank you!", Some(true)),
            ("That's right.", Some(true)),
            ("谢谢，很有用！", Some(true)),
            ("助かりました", Some(true)),
            ("That didn't help.", Some(false)),
            ("That is wrong. It is blue.", Some(false)),
            ("That isn't helpful", Some(false)),
            ("That's not right", Some(false)),
            ("That's not right: 30 boats need four. Could you hire two more?", Some(false)),
            ("That's not right, is it?", None),
            ("Great, that's perfect. Thank you, Iris!", Some(true)),
            ("不对，是蓝色", Some(false)),
            ("Thanks", None),
            ("Did that help?", None),
            ("It works as a lamp", None),
            ("None of it helped", None),
            ("That is right next to the door", None),
            ("That helped nobody", None),
            ("Wrong number, sorry", None),
            ("谢谢，没有用", Some(false)),
        ] {
            assert_eq!(verdict(message), helpful, "{message}");
        }
    }

    #[test]
    fn what_may_mean_anything_else_is_left() {
        for message in [
            "I like that!",
            "Do you remember my name?",
            "I remember when it rained.",
            "I love it.",
            "Never mind the rain?",
            "He always comes late.",
            "I think so.",
            "I love how uncomplicated it is.",
            "Call me back tomorrow.",
            "我叫他明天来。",
            "我叫了外卖",
            "I live in hope.",
            "Never mind.",
            "Always nice to talk.",
            "If I am allergic to peanuts I would know.",
            "彼は寿司が好きです。",
            "弟は卵アレルギーです。",
            "他说我喜欢茶。",
            "天気がいいですね",
            "I never said that.",
            "I'm a bit tired today.",
            "Note the time.",
            "I love the freedom it brings.",
            "记得吗？",
            "どれが好きですか？",
            "I love how you see it.",
        ] {
            assert_eq!(found_in(message), Vec::<String>::new(), "{message}");
        }
    }
}
