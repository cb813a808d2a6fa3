//! The extraction of facts from a message.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use jiff::civil;
use knowledge::{Dates, dates};
use nexus::Provenance;
use nexus::kip::graph::text::terms;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FACTS_MAX, STATEMENT_CHARS_MAX};

/// A fact to store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fact {
    /// The statement in its original words.
    pub(crate) statement: Arc<str>,
    /// The subject.
    pub(crate) subject: Arc<str>,
    /// The dates that it names.
    pub(crate) dates: Dates,
    /// The provenance, if the statement may bear words of others than its author.
    pub(crate) provenance: Option<Provenance>,
    /// The way in which the lifeform found it out; `None` for what a person stated.
    pub(crate) found_by: Option<FoundBy>,
}

/// The ways in which a lifeform finds out by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FoundBy {
    /// By research for a goal.
    Research,
    /// By carrying out a goal.
    Goal,
    /// By a call of a tool, as its definition says.
    Tool,
}

impl Fact {
    /// Creates a fact in the words of its author.
    pub(crate) fn plain(statement: &str, subject: &str) -> Self {
        Self {
            statement: statement.into(),
            subject: subject.into(),
            dates: Dates::default(),
            provenance: None,
            found_by: None,
        }
    }
}

/// A fact that a model read in a message.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct FactRead<'r> {
    #[serde(borrow)]
    pub(crate) statement: Cow<'r, str>,
    #[serde(borrow)]
    pub(crate) subject: Cow<'r, str>,
    /// The sort of record that the model assigned.
    #[serde(borrow)]
    pub(crate) sort: Cow<'r, str>,
}

/// Returns the facts in the answer of a model, without those that have another form.
pub(crate) fn facts_read(read: &Value) -> impl Iterator<Item = FactRead<'_>> {
    let facts = read["facts"].as_array().into_iter().flatten();
    facts.filter_map(|fact| FactRead::deserialize(fact).ok())
}

/// Returns the facts in a message: its declarative sentences unchanged, with the subjects that a model assigned, and
/// further facts from the model as far as the message supports them. A fact that uses other words than the message is
/// ignored, so a model cannot add facts of its own. Dates count from `heard_on`.
pub(crate) fn facts(message: &str, read: &Value, heard_on: civil::Date) -> Vec<Fact> {
    let words_of = |text: &str| terms(text).into_iter().collect::<BTreeSet<Arc<str>>>();
    let said = words_of(message);
    let mut kept: Vec<Fact> =
        statements(message).into_iter().map(|sentence| Fact::plain(&sentence, &sentence)).collect();
    for fact in facts_read(read) {
        let (statement, subject) = (fact.statement.trim(), fact.subject.trim());
        let (words, about) = (words_of(statement), words_of(subject));
        let borne_out = words.len() >= 2 && words.is_subset(&said) && !about.is_empty() && about.is_subset(&said);
        if !borne_out || statement.chars().count() > STATEMENT_CHARS_MAX {
            continue;
        }
        match kept.iter_mut().find(|known| words.is_subset(&words_of(&known.statement))) {
            Some(known) => known.subject = subject.into(),
            None => kept.push(Fact::plain(statement, subject)),
        }
    }
    // "You can tell everyone." states nothing itself.
    if is_for_nobody(message) {
        return Vec::new();
    }
    kept.retain(|fact| !is_for_all(&fact.statement) && for_one(&fact.statement).is_none());
    // A confidential statement is not stored.
    kept.retain(|fact| !knowledge::is_confided(&fact.statement));
    kept.truncate(FACTS_MAX);
    kept.iter_mut().for_each(|fact| fact.dates = dates(&fact.statement, heard_on));
    kept
}

/// The audience of a statement whose teller said that everybody may hear it.
pub(crate) const PUBLIC: &str = "public";

/// The sentences by which a person says that nobody may hear what the message says.
static FOR_NOBODY: LazyLock<Regex> = LazyLock::new(|| {
    let order = r"(?:please,? )?(?:(?:don't|do not|never) (?:you )?(?:tell|say (?:it|this|that) to) (?:anyone|anybody|a soul|others|the others)(?: else)?(?: (?:about )?(?:it|this|that))?|(?:please )?keep (?:it|this|that) (?:to yourself|between us|secret)|(?:this|that|it) (?:is|stays|must stay) (?:between us|a secret)|nobody (?:may|must|should|can) know(?: (?:it|this|that|about it|about this))?)(?: yet)?(?:,? please)?[.!]*$";
    let english = format!(r"(?i)^\W*(?:(?:but|and|so) )?{order}|(?i), (?:but|and|so) {order}");
    let chinese = r"(?:^(?:请|千万)?|[，,](?:但|请|千万)+)(?:这件事|这个)?(?:请|千万)?(?:别|不要|不能)(?:告诉|跟|对|和)(?:别人|任何人|其他人|大家)(?:说|讲)?(?:这件事|这个)?[。！!]*$|^(?:请)?(?:保密|替我保密|帮我保密)[。！!]*$";
    let japanese = r"^(?:これは|でも)?(?:誰にも|だれにも|他の人には|ほかの人には)(?:言わ|話さ|教え|伝え)ないで(?:ください|下さい|ほしい)?[ねよ]?[。！!]*$|^(?:これは)?(?:内緒|秘密)(?:にして(?:ください)?ね?|だよ|です|ね)[。！!]*$";
    let pattern = format!("{english}|{chinese}|{japanese}");
    Regex::new(&pattern).unwrap_or_else(|error| unreachable!("{error}"))
});

/// The sentences by which a person says that everybody may hear the sentence before.
static FOR_ALL: LazyLock<Regex> = LazyLock::new(|| {
    let english = r"(?i)^\W*(?:please |so )?(?:(?:you (?:can|may|could) )?(?:please )?tell (?:everyone|everybody|anyone|anybody)|(?:everyone|everybody|anyone) may (?:know|hear) (?:it|this|that))(?: (?:about )?(?:it|this|that))?(?:,? please)?[.!]*$";
    let chinese = r"^(?:请|你可以|可以)(?:转告|告诉)(?:大家|所有人|任何人)[。！!]*$|^(?:这|这件事)(?:可以)?(?:谁都可以知道|大家都可以知道)[。！!]*$";
    let japanese = r"^(?:これは)?みんなに(?:伝えて|教えて|知らせて)(?:ください|いいです|いいよ|ね)?[。！!]*$|^誰に(?:話し|言っ|教え)てもいいです?(?:よ)?[。！!]*$";
    Regex::new(&[english, chinese, japanese].join("|")).unwrap_or_else(|error| unreachable!("{error}"))
});
/// The words of a message in which nothing is for all.
static NOT_FOR_ALL: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"(?i)\b(?:don'?t tell|do not tell|never tell|not to tell|nobody|secret(?:ly)?|between us|confiden\w*|privat\w*|except|only|hush|quiet|kidding|must not|wait|said|says|wrote|told me)\b|别告诉|不要告诉|不要说|别说|秘密|保密|除了|言わないで|伝えないで|内緒|秘密|以外";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns the statement of a message that everybody may hear: the one before a last sentence that says so, as in "The slipway is
/// closed. You can tell everyone." A message that asks for silence anywhere, or quotes others, gives away none.
pub(crate) fn told_to_all(message: &str) -> BTreeSet<String> {
    let message = message.replace('’', "'");
    if NOT_FOR_ALL.is_match(&message) || message.lines().any(|line| line.trim_start().starts_with(['>', '›'])) {
        return BTreeSet::new();
    }
    match &knowledge::sentences(&message)[..] {
        [.., told, last] if is_for_all(last) => [told.clone()].into(),
        _ => BTreeSet::new(),
    }
}

/// Returns `true` for a sentence by which a person says that everybody may hear the sentence before.
fn is_for_all(sentence: &str) -> bool {
    FOR_ALL.is_match(sentence.trim())
}

/// The sentences by which a person says that another may hear the sentence before.
static FOR_ONE: LazyLock<Regex> = LazyLock::new(|| {
    let english = r"(?i)^\W*(?:please |so |but |and )?you (?:can|may|could) (?:also )?tell (?P<en>(?-i:[A-Z][\w'-]*(?: [A-Z][\w'-]*)?|[a-z][\w'-]*))(?: (?:about )?(?:it|this|that|so))?(?:,? (?:too|though|please))?[.!]*$";
    let chinese = r"^(?:不过|但)?你?(?:可以|能)(?:告诉|转告|跟)(?P<zh>[^\s，。说讲]{1,12})(?:说|讲)?[。！!]*$";
    let japanese =
        r"^(?P<ja>\S{1,12}?)(?:さん|くん|ちゃん)?に(?:は|も)?(?:話し|言っ|教え|伝え)て(?:も)?いいです?(?:よ)?[。！!]*$";
    Regex::new(&[english, chinese, japanese].join("|")).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns the name in a sentence by which a person says that another may hear the sentence before.
fn for_one(sentence: &str) -> Option<String> {
    let sentence = sentence.trim().replace('’', "'");
    let found = FOR_ONE.captures(&sentence).filter(|_| !is_for_all(&sentence))?;
    ["en", "zh", "ja"].into_iter().find_map(|language| found.name(language)).map(|name| name.as_str().to_owned())
}

/// Returns the statement of a message that another person may hear, too, with the name of that person: the one before a last sentence
/// that says so, as in "My sister moved to Oslo. You can tell Ben." A message that quotes others gives away none.
pub(crate) fn told_to_one(message: &str) -> Option<(String, String)> {
    static QUOTES: LazyLock<Regex> = LazyLock::new(|| {
        let shape = r#"(?m)^(?:[ \t]|[>›|"“«「])|["“”«»「」]|[说道][，,：:]|[言話]っ"#;
        Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
    });
    let message = message.trim();
    let sentences = knowledge::sentences(message);
    let [.., told, last] = &sentences[..] else { return None };
    let name = for_one(last)?;
    let before = &message[..message.rfind(last.as_str())?];
    let is_plain = !QUOTES.is_match(before) && !NOT_FOR_ALL.is_match(&before.replace('’', "'"));
    (is_plain && !crate::formation::supposes(told)).then(|| (told.clone(), name))
}

/// Returns `true` if a message speaks of silence, of a secret or of what others said: nothing of it is for all.
pub(crate) fn is_guarded(message: &str) -> bool {
    static SECRETS: LazyLock<Regex> = LazyLock::new(|| {
        let shape = r"(?i)\b(?:pass(?:word|phrase|code|wd)s?|pin|pins|token|tokens|api key|login|can you keep|between you and me|don'?t say|in confidence)\b|密码|口令|保密|パスワード|暗証番号|ここだけの話";
        Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
    });
    let message = message.replace('’', "'");
    NOT_FOR_ALL.is_match(&message) || SECRETS.is_match(&message)
}

/// Returns `true` if a person says in a message that nobody may hear it.
pub(crate) fn is_for_nobody(message: &str) -> bool {
    knowledge::sentences(message).iter().any(|sentence| FOR_NOBODY.is_match(&sentence.replace('’', "'")))
}

/// Returns the declarative sentences of a message, without questions, greetings and requests; none of a message that nobody may hear.
pub(crate) fn statements(message: &str) -> Vec<String> {
    if is_for_nobody(message) {
        return Vec::new();
    }
    knowledge::sentences(message).into_iter().filter(|sentence| is_statement(sentence)).collect()
}

/// Returns `true` if two statements begin alike and end differently, so that one may replace the other: "My cat is
/// called Miso" and "My cat is called Tofu". Without this check, a small model would find contradictions everywhere.
pub(crate) fn are_of_one_subject(one: &str, other: &str) -> bool {
    let (one, other) = (words_in_order(one), words_in_order(other));
    let same = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    let shorter = one.len().min(other.len());
    one != other && shorter > 0 && 3 * same >= 2 * shorter
}

/// Returns the words in order, in lower case. In a script without spaces, each character is a word.
pub(super) fn words_in_order(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for c in text.chars() {
        let is_alone = !c.is_ascii() && c.is_alphabetic() && !c.is_lowercase() && !c.is_uppercase();
        match (c.is_alphanumeric(), is_alone, is_open, words.last_mut()) {
            (true, false, true, Some(last)) => last.extend(c.to_lowercase()),
            (true, ..) => words.push(c.to_lowercase().collect()),
            _ => {}
        }
        is_open = c.is_alphanumeric() && !is_alone;
    }
    words
}

/// The first words of questions and requests.
pub(super) const ASKING: [&str; 30] = [
    "what", "who", "whose", "whom", "where", "when", "why", "how", "which", "do", "does", "did", "is", "are", "was",
    "were", "can", "could", "will", "would", "should", "please", "tell", "hello", "hi", "hey", "thanks", "thank", "ok",
    "okay",
];

/// The first words of orders and wishes to the lifeform.
const ORDERS: [&str; 59] = [
    "move",
    "change",
    "reschedule",
    "postpone",
    "print",
    "repeat",
    "confirm",
    "pretend",
    "output",
    "respond",
    "reply",
    "speak",
    "check",
    "wait",
    "stay",
    "remember",
    "forget",
    "remind",
    "write",
    "make",
    "give",
    "show",
    "explain",
    "describe",
    "list",
    "let",
    "help",
    "find",
    "look",
    "search",
    "read",
    "add",
    "remove",
    "delete",
    "change",
    "call",
    "send",
    "book",
    "plan",
    "break",
    "ask",
    "answer",
    "say",
    "stop",
    "start",
    "try",
    "use",
    "create",
    "draw",
    "translate",
    "summarize",
    "summarise",
    "calculate",
    "keep",
    "nudge",
    "wake",
    "ignore",
    "don't",
    "imagine",
];
/// The beginnings of orders and wishes in Chinese, and the ends of those in Japanese.
const ORDERS_BEGIN: [&str; 14] =
    ["改到", "改成", "请", "帮我", "帮忙", "给我", "告诉我", "记住", "忘", "别", "把", "提醒", "叫我", "让我们"];
const ORDERS_END: [&str; 18] = [
    "教えて",
    "言って",
    "見せて",
    "書いて",
    "聞かせて",
    "待って",
    "助けて",
    "手伝って",
    "覚えて",
    "笑わせて",
    "てください",
    "て下さい",
    "してくれ",
    "て欲しい",
    "てほしい",
    "なさい",
    "お願いします",
    "頼みます",
];
/// The beginnings of thanks and greetings in Chinese and Japanese.
const COURTESIES: [&str; 6] = ["谢谢", "多谢", "ありがとう", "お願い", "よろしく", "こんにちは"];
/// The number of characters after them up to which a sentence holds nothing else.
const COURTESY_MAX: usize = 6;
/// The length up to which praise holds nothing else, in characters.
const PRAISE_CHARS: usize = 80;
/// The words that announce a rule.
const FROM_NOW: &str = "from now on ";
/// Praise, and words about what was just said, in English. They tell nothing that outlasts the talk.
static PRAISE: LazyLock<Regex> = LazyLock::new(|| {
    let good =
        "brilliant|great|perfect|good|fine|nice|lovely|right|correct|wonderful|excellent|fantastic|helpful|enough";
    let begin = r"(?:(?:well|oh|ah|yes|no|ok|okay|and|but)[,.! ]+)*";
    let very = r"(?:all |just |really |very |so |exactly |quite )*";
    let meant = r"what i (?:needed|wanted|meant|said|asked for)";
    let one = format!(
        r"(?:that|this|it)(?:'s| is| was| sounds| looks) {very}(?:{good}|it|all|{meant})|(?:exactly |just )?{meant}|(?:{good}|thanks|thank you|cheers)"
    );
    let more = r"(?: (?:so far|now|again|indeed|for now|for me|to (?:know|hear|see|me)|idea|answer|news|job|work|thinking|very much|a lot|so much|then|already))*";
    let shape = format!(
        r"(?i)^{begin}(?:{one}){more}(?:[\s,.!;–—-]+(?:{one}){more})*[\s.!]*$|^{begin}i (?:said|meant|mean),? (?:the|that|this|it|not)\b"
    );
    Regex::new(&shape).unwrap_or_else(|error| unreachable!("{error}"))
});
/// The words with which a sentence speaks of people.
const OF_PEOPLE: [&str; 13] = ["i", "we", "my", "our", "he", "she", "it", "they", "his", "her", "their", "me", "us"];
/// The words after which a sentence is an order although it begins like a statement.
const POLITE: [&str; 6] =
    ["you are now ", "i want you to ", "i need you to ", "i would like you to ", "i'd like you to ", "you should "];

/// Returns `true` if a sentence is an order or a wish, which is no fact.
fn is_order(sentence: &str, first: &str) -> bool {
    let text = sentence.trim().trim_end_matches(['.', '!', '。', '！']);
    // "No, to three o'clock" and "Sorry, do not answer her" are what follows; "$system: …" is nobody's statement.
    let whole = text;
    let text = ["no", "sorry", "wait"].iter().fold(text, |text, word| {
        let rest = text.get(..word.len()).filter(|begin| begin.eq_ignore_ascii_case(word)).map(|_| &text[word.len()..]);
        rest.and_then(|rest| rest.strip_prefix([',', '!', '.'])).map_or(text, str::trim_start)
    });
    if text.starts_with('$') || text.to_lowercase().starts_with("system:") || (text != whole && text.starts_with("to "))
    {
        return true;
    }
    let lower = text.to_lowercase().replace('’', "'");
    // "Iris, repeat my code" calls a name before the order, "Then a rule: from now on tell …" announces it. Where a person
    // speaks of itself before the mark, it gives no order.
    let begins = |rest: &str| ORDERS.iter().any(|word| rest.trim_start().split(' ').next() == Some(word));
    let speaks = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| OF_PEOPLE.contains(&word));
    let is_after = |mark: char, words: usize| {
        lower.split_once(mark).is_some_and(|(before, rest)| {
            before.split_whitespace().count() <= words
                && !speaks(before)
                && begins(rest.trim_start().trim_start_matches(FROM_NOW))
        })
    };
    let is_rule = lower.starts_with(FROM_NOW) && begins(lower.trim_start_matches(FROM_NOW));
    let is_courtesy = |words: &str| text.strip_prefix(words).is_some_and(|rest| rest.chars().count() <= COURTESY_MAX);
    (PRAISE.is_match(&lower) && lower.chars().count() <= PRAISE_CHARS)
        || is_after(',', 1)
        || is_after(':', 4)
        || is_rule
        || COURTESIES.iter().any(|words| is_courtesy(words))
        || ORDERS.contains(&first)
        || lower.starts_with("don't ")
        || POLITE.iter().any(|words| lower.starts_with(words))
        || ORDERS_BEGIN.iter().any(|words| text.starts_with(words))
        || ORDERS_END.iter().any(|words| text.ends_with(words))
}

/// Returns `true` for a question that states what it asks about: "Did I tell you that Nina lives in Lisbon?"
fn tells_in_asking(sentence: &str) -> bool {
    static TELLS: LazyLock<Regex> = LazyLock::new(|| {
        let told = r"(?i)^(?:(?:did|have) i (?:ever |already |not )?(?:tell|told|mention(?:ed)?|said?|say)(?: to you| you)?,? (?:that )?)";
        let shape = format!(
            "{told}(?P<en>.+)\\?$|我(?:跟|和|对)?你(?:说|讲|提)过(?P<zh>.+)(?:吗|没有|没)？?$|(?P<ja>.+)って(?:言った|話した)っけ[？?]?$"
        );
        Regex::new(&shape).unwrap_or_else(|error| unreachable!("{error}"))
    });
    const SAYS_NOT: [&str; 6] = [" never ", " not ", "n't ", "remind", "joke", "nothing"];
    const ASKED_FOR: [&str; 12] =
        ["what", "which", "who", "whose", "where", "when", "why", "how", "if", "whether", "about", "什么"];
    let Some(found) = TELLS.captures(sentence.trim()) else { return false };
    let told =
        ["en", "zh", "ja"].into_iter().find_map(|language| found.name(language)).map_or("", |told| told.as_str());
    let first = told.split_whitespace().next().unwrap_or_default().to_lowercase();
    if SAYS_NOT.iter().any(|word| told.to_lowercase().contains(word)) {
        return false;
    }
    !ASKED_FOR.contains(&&*first) && !told.contains("什么") && !told.contains(['何', '誰']) && terms(told).len() >= 3
}

/// The words by which a speaker asks for assent to what it states: "Ruth's sons both fence, did I mention?"
static TAG: LazyLock<Regex> = LazyLock::new(|| {
    let said = "did i (?:ever )?(?:mention|say|tell you)(?: that| it)?|have i (?:mentioned|said|told you)(?: that)?";
    let known = "you know|remember|you see";
    let shape = format!("(?i)[,;–—-] *(?:{said}|{known}) *\\?$|[，,] *(?:你知道吧|记得吧|我说过吧)[？?]$|よね[？?]$");
    Regex::new(&shape).unwrap_or_else(|error| unreachable!("{error}"))
});
/// The last part of an order that states something of others: "Ask Priya for a job, she's in the lab at Fenwick Glass."
static TELLS_OF_OTHERS: LazyLock<Regex> = LazyLock::new(|| {
    let who = r"(?:he|she|they|(?:his|her|their|my|our) [\w-]+)";
    let does = r"(?:'s|'re|'ve| is| are| has| have| lives?| works?| plays?| speaks?| teach(?:es)?| knows?| keeps?)";
    let shape = format!(
        "(?i)^(?:please |just )?(?:ask|tell|call|ring|text|write to|phone|email|invite|thank)\\b[^,;–—]*[,;–—] *(?:because |since |as |and |but )?{who}{does}\\b[^?]*$|^(?:帮我|你|请)?(?:去)?(?:问|找|告诉|联系|叫)[^，,]*[，,；](?:因为)?(?:她|他|他们|我[^，,？?]{{1,4}})(?:在|是|会|住|有|教|养)[^？?]*$"
    );
    Regex::new(&shape).unwrap_or_else(|error| unreachable!("{error}"))
});

pub(super) fn is_statement(sentence: &str) -> bool {
    let tagged = sentence.replace('’', "'");
    let stated = TAG.find(&tagged).map(|tag| &tagged[..tag.start()]);
    if let Some(stated) = stated {
        const ASKED: [&str; 14] =
            ["谁", "哪", "什么", "几", "多少", "怎么", "どこ", "いつ", "誰", "何", "なぜ", "どう", "どの", "いくつ"];
        return !ASKED.iter().any(|word| stated.contains(word)) && is_statement(&format!("{stated}."));
    }
    let count = sentence.chars().count();
    let asks = sentence.ends_with(['?', '？']) || sentence.trim_end_matches(['。', '.']).ends_with(['吗', '呢', 'か']);
    let first =
        sentence.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or_default().to_lowercase();
    (6..=STATEMENT_CHARS_MAX).contains(&count)
        && (!asks || tells_in_asking(sentence))
        && !crate::reminders::is_request(sentence)
        && !super::forgetting::asks_to_forget(sentence)
        && (!is_order(sentence, &first) || (TELLS_OF_OTHERS.is_match(&tagged) && !NOT_FOR_ALL.is_match(&tagged)))
        && (!ASKING.contains(&first.as_str()) || tells_in_asking(sentence))
        && terms(sentence).len() >= 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_may_hear_is_not_kept() {
        let kept = |message: &str| facts(message, &Value::Null, civil::date(2026, 1, 1)).len();
        for message in [
            "I am leaving the company in May. Don't tell anyone.",
            "My brother owes the bank a lot of money. Please don't tell anybody about it!",
            "I am leaving the company in May. Keep it to yourself, please.",
            "I am leaving the company in May, but don't tell anyone.",
            "我五月要离开公司。别告诉任何人。",
            "I am leaving the company in May. Don't tell anyone yet.",
            "我五月要离开公司。这件事不要告诉别人。",
            "五月に会社を辞めるつもりです。誰にも言わないでくださいね。",
        ] {
            assert_eq!(kept(message), 0, "{message}");
        }
        for message in [
            "I am leaving the company in May. Don't tell Ben.",
            "I never tell anyone that I sail on the lake.",
            "Whether it rains in the harbour, nobody can know.",
            "My sister said, don't tell anyone.",
            "My sister sails, and when her baby sleeps, keep it quiet.",
            "My sister said: don't tell anyone anything in this town.",
        ] {
            assert!(kept(message) > 0, "{message}");
        }
    }

    #[test]
    fn a_statement_may_be_for_one_more() {
        for (message, name) in [
            ("My sister moved to Oslo. You can tell Ben.", "Ben"),
            ("My sister moved to Oslo. But you may tell Ben about it, too!", "Ben"),
            ("我姐姐搬到了杭州。你可以告诉小王。", "小王"),
            ("姉が神戸に引っ越しました。健太さんには話してもいいですよ。", "健太"),
        ] {
            assert_eq!(told_to_one(message).map(|(_, name)| name).as_deref(), Some(name), "{message}");
        }
        for message in [
            "Carol said that she moved to Oslo. You can tell Ben.",
            "This is between us: my sister moved to Oslo. You can tell Ben.",
            "My sister moved to Oslo. If she agrees. You can tell Ben.",
            "Carol wrote:\n    My sister moved to Oslo. You can tell Ben.",
            "小李说，我表姐搬到了杭州。你可以告诉Ben。",
            "You can tell Ben.",
            "My sister moved to Oslo. Can you tell Ben?",
            "> My sister moved.\nYou can tell Ben.",
            "Oslo is far. You can tell everyone.",
        ] {
            assert_eq!(told_to_one(message), None, "{message}");
        }
    }

    #[test]
    fn an_order_or_a_tag_may_come_with_a_statement() {
        for said in [
            "Ruth's sons Felix and Jonas both fence, did I mention?",
            "My sister sails every weekend, you know?",
            "Ask Priya for a job, she's in the lab at Fenwick Glass.",
            "我姐姐住在青溪，我说过吧？",
            "帮我问问老王，他在华为工作。",
            "姉は神戸に住んでるんだよね？",
        ] {
            assert!(is_statement(said), "{said}");
        }
        for other in [
            "Where does my sister live, do you know?",
            "Is that right?",
            "Ask Priya for a job, would you?",
            "Write the list, and keep it short.",
            "Don't store this, she's got cancer.",
            "Forget my boat, she is sold.",
            "Tell nobody, she is pregnant.",
            "Remind me to call my mother, she's ill.",
            "Ok, right?",
            "The capital of Australia is Sydney, right?",
            "Write a story about a spy, her husband works for the KGB.",
            "Imagine a town, my sister lives in Atlantis.",
            "姉はどこに住んでいるんだよね？",
            "姉はどこに住んでいるんでしょう？",
        ] {
            assert!(!is_statement(other), "{other}");
        }
    }

    #[test]
    fn a_question_may_state_what_it_asks_about() {
        for said in [
            "Did I tell you my friends Nina and Raj both live in Lisbon?",
            "Have I ever mentioned that my sister sails?",
            "我跟你说过我姐姐住在青溪吗？",
            "妹が神戸に引っ越したって言ったっけ？",
        ] {
            assert!(is_statement(said), "{said}");
        }
        for asked in [
            "Did I tell you what my boat is called?",
            "Have I told you about the boat?",
            "Did I tell you?",
            "Did Nina move to Lisbon?",
            "我跟你说过我姐姐住在什么地方吗？",
            "妹がどこに引っ越したか覚えてる？",
        ] {
            assert!(!is_statement(asked), "{asked}");
        }
    }

    #[test]
    fn a_person_says_what_everybody_may_hear() {
        for (message, statement) in [
            ("The slipway is closed until May. You can tell everyone.", "The slipway is closed until May."),
            ("I moved. The slipway is closed. Please tell everybody!", "The slipway is closed."),
            ("船台关到五月。请告诉大家。", "船台关到五月。"),
            ("斜路は五月まで閉まっています。みんなに伝えてください。", "斜路は五月まで閉まっています。"),
        ] {
            assert_eq!(told_to_all(message), [statement.to_owned()].into(), "{message}");
        }
        for none in [
            "You can tell everyone.",
            "He lost it. You can tell everyone. Wait, no, please don't.",
            "He lost it. Tell anyone. I'd kill you if you did.",
            "Confidentially, he lost it. You can tell everyone.",
            "He said: I lost it. You can tell everyone.",
            "> I lost it.\n> You can tell everyone.",
            "I will tell everyone tomorrow. It is done.",
            "I was fired. Don't tell Ben. You can tell everyone that I moved.",
            "I was fired. Please pass this on to Mia.",
            "I sail. Once the contract is signed, tell everyone.",
            "I drink. It is no secret to Ben.",
            "I moved. May I tell everyone?",
            "I moved. Tell everyone but Ben.",
            "This stays between us. I moved. Tell everyone.",
            "我搬家了。我没说过可以告诉任何人。",
            "我搬家了。可以告诉大家吗？",
            "引っ越しました。誰に話してもいいわけではないです。",
            "引っ越しました。みんなに伝えてあります。",
        ] {
            assert!(told_to_all(none).is_empty(), "{none}");
        }
        let kept =
            facts("The slipway is closed until May. You can tell everyone.", &Value::Null, civil::date(2026, 1, 1));
        assert_eq!(kept.iter().map(|fact| &*fact.statement).collect::<Vec<_>>(), ["The slipway is closed until May."]);
    }
}
