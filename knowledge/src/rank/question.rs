//! The signs of a question and of a passage that count besides words and meaning: the time that a question names, the
//! kind of answer that it wants, and whether a passage itself only asks. Rules in English, Chinese and Japanese.

use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Regex;

use crate::dates::{period, regex};

/// The number of days after which a passage is a third as near to the time of a question.
const NEAR_DAYS: f64 = 7.0;

/// The kind of answer that a question wants.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Time,
    Place,
    Number,
}

/// The signs of a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Signs {
    kind: Option<Kind>,
    period: Option<(Date, Date)>,
}

/// The questions for each kind of answer, and the passages that hold such an answer.
static KINDS: LazyLock<[(Kind, Regex, Regex); 3]> = LazyLock::new(|| {
    let month = "january|february|march|april|may|june|july|august|september|october|november|december";
    [
        (
            Kind::Time,
            regex(
                r"(?i)^\W*when\b|\bwhat (?:date|day|month|year|time)\b|\bhow long\b|什么时候|几号|哪天|哪年|多久|いつ|何日|何月|何年|何時",
            ),
            regex(&format!(
                r"(?i)\b(?:yesterday|today|tomorrow|tonight|ago|last|next|weeks?|weekend|months?|years?|days?|monday|tuesday|wednesday|thursday|friday|saturday|sunday|morning|evening|night|recently|since|soon|{month}|\d{{4}})\b|[年月日号周]|昨天|明天|昨日|明日|今日"
            )),
        ),
        (
            Kind::Place,
            regex(r"(?i)^\W*where\b|\b(?:what|which) (?:city|country|place|town|state)\b|哪里|哪儿|在哪|什么地方|どこ"),
            regex(r"\b(?:in|at|to|from|near|around) (?:the |a |my )?\p{Lu}|[在去到住]|[でにへ]"),
        ),
        (
            Kind::Number,
            regex(r"(?i)\bhow (?:many|much|often|old)\b|多少|几[个只次岁]|いくつ|何[人個回匹歳]|いくら"),
            regex(
                r"(?i)\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|twice|once|couple|several|many)\b|[一二两三四五六七八九十]",
            ),
        ),
    ]
});

impl Signs {
    /// Reads the signs of a question that is asked on `today` about a talk that ended on `ended`, if it is over.
    pub(super) fn of(question: &str, today: Date, ended: Option<Date>) -> Self {
        let kind = KINDS.iter().find(|(_, asks, _)| asks.is_match(question)).map(|(kind, ..)| *kind);
        Self { kind, period: period(question, today, ended) }
    }

    /// Returns `true` if a text holds the kind of answer that the question wants.
    pub(super) fn is_answered_in(&self, text: &str) -> bool {
        let answers = |(kind, _, answers): &(Kind, Regex, Regex)| self.kind == Some(*kind) && answers.is_match(text);
        KINDS.iter().any(answers)
    }

    /// Returns the nearness of days to the time of the question, from 0 to 1; 0 if the question names none.
    pub(super) fn nearness(&self, days: impl Iterator<Item = Date>) -> f64 {
        let Some((first, last)) = self.period else { return 0.0 };
        let gap = |day: Date| match (first..=last).contains(&day) {
            true => 0,
            false => (day - first).get_days().abs().min((day - last).get_days().abs()),
        };
        days.map(|day| (-f64::from(gap(day)) / NEAR_DAYS).exp()).fold(0.0, f64::max)
    }
}

/// Returns `true` if the text asks.
pub fn asks(text: &str) -> bool {
    text.contains(['?', '？']) || text.trim_end_matches(['。', '.']).ends_with(['吗', '呢', 'か'])
}

/// Returns `true` if each sentence of the text is a question.
pub(super) fn only_asks(text: &str) -> bool {
    asks(text)
        && text.split_inclusive(['.', '!', '?', '。', '！', '？']).all(|part| part.trim().is_empty() || asks(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: Date = jiff::civil::date(2026, 11, 24);

    #[test]
    fn a_passage_is_seen_to_hold_the_kind_of_answer() {
        for (question, answer, other) in [
            ("When did we paint?", "We painted last week.", "We painted a boat."),
            ("Where do I live?", "I live in Kiel.", "I live alone."),
            ("How many cats do I have?", "I have two cats.", "I have cats."),
            ("我住在哪里？", "我住在北京。", "我喜欢茶。"),
            ("いつ引っ越しましたか？", "5月に引っ越しました。", "引っ越しました。"),
        ] {
            let signs = Signs::of(question, TODAY, None);
            assert!(signs.is_answered_in(answer) && !signs.is_answered_in(other), "{question}");
        }
        assert!(!Signs::of("What is my name?", TODAY, None).is_answered_in("In May I was in Kiel 3 times."));
    }

    #[test]
    fn days_are_the_nearer_the_less_they_are_off() {
        let signs = Signs::of("What did I do in May 2026?", TODAY, None);
        let near = |day: Date| signs.nearness(std::iter::once(day));
        let date = jiff::civil::date;
        assert_eq!((near(date(2026, 5, 31)), near(date(2026, 5, 1))), (1.0, 1.0));
        assert!(near(date(2026, 6, 1)) > near(date(2026, 6, 20)) && near(date(2025, 5, 15)) < 0.01);
        assert_eq!(Signs::of("What did I do?", TODAY, None).nearness(std::iter::once(TODAY)), 0.0);
    }

    #[test]
    fn a_text_of_questions_alone_only_asks() {
        assert!(only_asks("How are you? What is new?") && only_asks("你好吗？"));
        assert!(!only_asks("I sail. And you?") && !only_asks("I sail."));
    }
}
