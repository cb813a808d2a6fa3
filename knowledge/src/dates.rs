//! The dates that statements name, resolved when they are heard: "My exam is on Friday", 我明天出发, 来週の月曜日に引っ越します. Rules
//! read them, without a model.

use std::sync::LazyLock;

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use regex::{Captures, Regex};

/// The dates of a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dates {
    /// The day of which it speaks.
    pub on: Option<Date>,
    /// The day on which it was heard.
    pub heard_on: Option<Date>,
    /// The first day on which it holds.
    pub from: Option<Date>,
    /// The last day on which it holds.
    pub until: Option<Date>,
}

impl Dates {
    /// Returns the days of which the statement speaks.
    pub fn days(self) -> [Option<Date>; 3] {
        [self.on, self.from, self.until]
    }
}

/// The greatest number of days or weeks in "in 3 weeks".
const MANY_MAX: i64 = 500;

/// Returns the month, 1 to 12, that an English word or its beginning of three letters names, in lower case.
pub fn month_named(word: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    MONTHS.iter().zip(1..).find(|(begin, _)| word.starts_with(**begin)).map(|(_, month)| month)
}

/// Returns the weekday that an English word or its beginning of three letters names, in lower case.
pub fn weekday_named(word: &str) -> Option<Weekday> {
    const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let place = WEEKDAYS.iter().zip(0..).find(|(begin, _)| word.starts_with(**begin)).map(|(_, place)| place)?;
    Weekday::from_monday_zero_offset(place).ok()
}

pub(crate) fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

static ENGLISH: LazyLock<Regex> = LazyLock::new(|| {
    let weekday = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day";
    let month = r"(?:january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\.?";
    let number = r"\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten";
    regex(&format!(
        r"(?i)\b(?:(?P<from>since|from|starting(?: on)?|as of) |(?P<until>until|till|through|up to) )?(?:on |the |this )*(?:(?P<name>day after tomorrow|day before yesterday|today|tonight|tomorrow|yesterday)|(?P<which>next |last |coming )?(?P<weekday>{weekday})|in (?P<in>{number}) (?P<inunit>days?|weeks?)|(?P<ago>{number}) (?P<agounit>days?|weeks?) ago|(?P<iso>\d{{4}}-\d{{2}}-\d{{2}})|(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m1>{month})(?:,? (?P<y1>\d{{4,9}}))?|(?P<m2>{month}) (?:the )?(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?:,? (?P<y2>\d{{4,9}}))?)\b"
    ))
});
/// The words of English sentences that speak of the past, and those of sentences that do not although they hold such a
/// word: "I am scheduled", "it was moved to".
static PAST: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(was|were|went|had|did|got|met|saw|bought|lost|found|broke|left|came|took|gave|told|said|(?:i|we|he|she|they|it) \w{2,}ed)\b",
    )
});
static PRESENT: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\b(am|is|are|will|shall|going to|getting|have to|has to|must)\b|'(?:m|re|s|ll)\b|\b(?:to|for) $")
});
/// The day of the month after a weekday.
static OF_MONTH: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^,? (?:the )?(?:(?P<th>\d{1,2})(?:st|nd|rd|th)\b|(?P<of>\d{1,2}) (?:and|or|to|until) (?:mon|tues|wednes|thurs|fri|satur|sun)day \d)",
    )
});
/// The end of a clause.
const CLAUSES: [char; 9] = [',', ';', ':', '…', '—', '–', '.', '(', ')'];
/// The word before a day that is still to come.
static STILL: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?:by|before) (?:the )?$"));
/// The word before a day that is not meant: "not this Saturday but the next".
static NEGATED: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\bnot $"));
/// A year in a statement.
static YEAR: LazyLock<Regex> = LazyLock::new(|| regex(r"\d{4}"));
/// The words before a day that comes again and again.
static AGAIN: LazyLock<Regex> = LazyLock::new(|| regex(r"(?i)\b(?:every|each|most) (?:other )?$|每个?$|毎週の?$"));
static CHINESE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?P<from>从|自)?(?P<until>到|直到|截至|截止到?)?(?:(?P<name>大后天|后天|明天|明早|明晚|今天|今晚|今早|大前天|前天|昨天|昨晚)|(?P<which>下下个?|下个?|上上个?|上个?|这个?|本)?(?:周|星期|礼拜)(?P<weekday>[一二三四五六日天])|(?P<n>\d{1,3}|[一二两三四五六七八九十])(?P<unit>天|周|个星期)(?P<side>后|之后|以后|前|之前|以前)|(?:(?P<y>\d{4})年)?(?P<m>\d{1,2}|十?[一二三四五六七八九十])月(?P<d>\d{1,2}|[二三]?十?[一二三四五六七八九十])[日号])",
    )
});
static JAPANESE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?:(?P<name>明後日|あさって|明日|あした|今日|きょう|今夜|今晩|一昨日|おととい|昨日|昨夜|昨晩|ゆうべ|きのう)|(?P<which>再来週の?|来週の?|先々週の?|先週の?|今週の?|次の)?(?P<weekday>[月火水木金土日])曜日?|(?P<n>\d{1,3}|[一二三四五六七八九十])(?P<unit>日|週間)(?P<side>後|前)|(?:(?P<y>\d{4})年)?(?P<m>\d{1,2})月(?P<d>\d{1,2})日)(?P<end>から|まで)?",
    )
});

/// Returns the dates that a statement names, heard on `today`. Only the first date counts.
pub fn dates(statement: &str, today: Date) -> Dates {
    let is_kana = statement.contains(|c: char| ('\u{3040}'..='\u{30ff}').contains(&c));
    // The day of the telling is the least telling: "told Ada on 27 November that the keys come on 8 January".
    let told_today = |found: &Dates| found.on == Some(today);
    let later = || {
        let first = ENGLISH.find(statement)?;
        english(statement.get(first.end()..)?, today).filter(|other| other.on.is_some_and(|on| on > today))
    };
    let in_english =
        english(statement, today).map(|found| if told_today(&found) { later().unwrap_or(found) } else { found });
    let read = |text: &str, today: Date| {
        english(text, today).or_else(|| if is_kana { japanese(text, today) } else { chinese(text, today) })
    };
    let found = in_english.or_else(|| read(statement, today)).unwrap_or_default();
    let found = match (found.from, found.until) {
        (Some(from), None) => with_end(found, from, statement, today, is_kana, read),
        _ => found,
    };
    // An end in the past is part of a statement that stays true: "I worked there until 2020".
    Dates { until: found.until.filter(|until| *until >= today), heard_on: Some(today), ..found }
}

/// Returns the dates of a statement that names its first day, with the last one, if it names that, too: "from 1 February until 30 June". The
/// end counts from the beginning. A time of which both are past, in a sentence about what is to come, is that of the next year.
fn with_end(
    found: Dates,
    from: Date,
    statement: &str,
    today: Date,
    is_kana: bool,
    read: impl Fn(&str, Date) -> Option<Dates>,
) -> Dates {
    let days = [&ENGLISH, if is_kana { &JAPANESE } else { &CHINESE }];
    let Some(second) = days.into_iter().find_map(|days| days.find_iter(statement).nth(1)) else { return found };
    if NEGATED.is_match(&statement[..second.start()]) || AGAIN.is_match(&statement[..second.start()]) {
        return found;
    }
    let Some(until) = read(&statement[second.start()..], from).and_then(|end| end.until).filter(|until| *until >= from)
    else {
        return found;
    };
    let is_past = PAST.is_match(statement) || statement.contains(['了', '过']) || statement.contains("した");
    let names_year = YEAR.is_match(statement);
    let next = |date: Date| date.checked_add(1.year()).ok();
    match (next(from), next(until)) {
        (Some(from), Some(until_next)) if until < today && !is_past && !names_year => {
            Dates { from: Some(from), until: Some(until_next), ..found }
        }
        _ => Dates { until: Some(until), ..found },
    }
}

/// The months and the years of English, Chinese and Japanese questions.
static MONTH: LazyLock<Regex> = LazyLock::new(|| {
    let month = r"january|february|march|april|may|june|july|august|september|october|november|december";
    regex(&format!(
        r"(?i)\b(?:(?P<month>{month}),?(?: of)? (?P<year>\d{{4}})|(?:in|during|since|this|last|of) (?P<bare>{month})(?:,?(?: of)? (?P<its>\d{{4}}))?|(?:in|of|during|since|summer|winter|spring|autumn|fall) (?P<only>\d{{4}}))\b|(?P<y>\d{{4}})年(?:(?P<m>\d{{1,2}})月)?|(?P<own>\d{{1,2}})月"
    ))
});

/// Returns the first and the last day of the time that a question names: a day, a month or a year. A month without a
/// year is the last one of a talk that ended on `ended`, the last one up to `today` in a question about the past, and
/// otherwise the nearer one.
pub(crate) fn period(question: &str, today: Date, ended: Option<Date>) -> Option<(Date, Date)> {
    let named = dates(question, today).days().into_iter().flatten().next();
    named.map(|day| (day, day)).or_else(|| month_or_year(question, today, ended))
}

fn month_or_year(question: &str, today: Date, ended: Option<Date>) -> Option<(Date, Date)> {
    let found = MONTH.captures(question)?;
    let part = |name: &str| found.name(name).map(|part| part.as_str().to_lowercase());
    let month = match part("month").or_else(|| part("bare")) {
        Some(name) => Some(month_named(&name)?),
        None => part("m").or_else(|| part("own")).map(|digits| digits.parse()).transpose().ok()?,
    };
    let year = part("year").or_else(|| part("its")).or_else(|| part("only")).or_else(|| part("y"));
    let year: Option<i16> = year.map(|digits| digits.parse()).transpose().ok()?;
    let first = match (year, month) {
        (Some(year), month) => Date::new(year, month.unwrap_or(1), 1),
        (None, Some(month)) => {
            let is_past = ended.is_some()
                || PAST.is_match(question)
                || question.contains("happened")
                || question.contains(['了', '过'])
                || question.contains("した");
            let today = ended.unwrap_or(today);
            let coming = i32::from(month) - i32::from(today.month());
            let year = match () {
                () if is_past => today.year() - i16::from(month > today.month()),
                () => today.year() + i16::from(coming < -6) - i16::from(coming > 6),
            };
            Date::new(year, month, 1)
        }
        (None, None) => return None,
    };
    let first = first.ok().filter(is_near)?;
    let last = if month.is_some() { first.last_of_month() } else { first.last_of_year() };
    Some((first, last))
}

fn dated(day: Date, is_from: bool, is_until: bool) -> Dates {
    match (is_from, is_until) {
        (_, true) => Dates { until: Some(day), ..Dates::default() },
        (true, _) => Dates { from: Some(day), ..Dates::default() },
        _ => Dates { on: Some(day), ..Dates::default() },
    }
}

fn shifted(today: Date, days: i64) -> Option<Date> {
    today.checked_add(days.days()).ok()
}

/// Returns the next given weekday from today on, or the last one up to today.
fn weekday(today: Date, weekday: Weekday, is_past: bool) -> Option<Date> {
    if today.weekday() == weekday {
        return Some(today);
    }
    today.nth_weekday(if is_past { -1 } else { 1 }, weekday).ok()
}

/// Returns the weekday of the week that is `weeks` after this one, which begins on Monday.
fn in_week(today: Date, of: Weekday, weeks: i64) -> Option<Date> {
    let monday = shifted(today, -i64::from(today.weekday().to_monday_zero_offset()))?;
    shifted(monday, 7 * weeks + i64::from(of.to_monday_zero_offset()))
}

/// The date of a day of the year that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occurrence {
    /// The last one up to today.
    Last,
    /// The next one from today on.
    Next,
    /// The nearer one: "from 1 January" means this year's in January and in December next year's.
    Nearer,
}

impl Occurrence {
    /// Returns the occurrence that a sentence means; `is_first` for the first day of a time.
    fn of(is_past: bool, is_first: bool) -> Self {
        match (is_past, is_first) {
            (true, _) => Self::Last,
            (false, true) => Self::Nearer,
            (false, false) => Self::Next,
        }
    }
}

/// Returns a date; without a year, the occurrence of the day that is meant.
fn date(year: Option<&str>, month: i8, day: i8, today: Date, meant: Occurrence) -> Option<Date> {
    let of = |year: i16| Date::new(year, month, day).ok();
    if let Some(year) = year {
        return of(year.parse().ok()?).filter(is_near);
    }
    let mut years = [-1, 0, 1].into_iter().filter_map(|by| of(today.year() + by));
    let days = |date: &Date| today.until(*date).map_or(0, |span| span.get_days());
    match meant {
        Occurrence::Last => years.rfind(|date| *date <= today),
        Occurrence::Next => years.find(|date| *date >= today),
        Occurrence::Nearer => years.min_by_key(|date| days(date).abs()),
    }
}

/// Returns `true` for a date within a lifetime or two.
fn is_near(date: &Date) -> bool {
    (1800..=2200).contains(&date.year())
}

fn number(word: &str) -> Option<i64> {
    const WORDS: [&str; 10] = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    const HAN: [char; 10] = ['一', '二', '三', '四', '五', '六', '七', '八', '九', '十'];
    let lower = word.to_lowercase();
    let place = |place: usize| place as i64 + 1;
    match &*lower {
        "a" | "an" => Some(1),
        "两" => Some(2),
        _ => lower
            .parse()
            .ok()
            .or_else(|| WORDS.iter().position(|known| *known == lower).map(place))
            .or_else(|| HAN.iter().position(|known| lower.chars().eq([*known])).map(place)),
    }
    .filter(|many| (1..=MANY_MAX).contains(many))
}

/// The words between a weekday and its date: "Saturday evening, 12 December".
static BETWEEN: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?i)^[\s,、（(]*(?:morning|afternoon|evening|night)?[\s,、（(]*(?:the )?$"));

/// Returns the first match. If it is a weekday that a full date (one of these groups) follows, it returns that date:
/// "Saturday, 12 December" is the 12th.
fn most_exact<'s>(pattern: &Regex, statement: &'s str, groups: &[&str]) -> Option<Captures<'s>> {
    let mut found = pattern.captures_iter(statement);
    let (first, next) = (found.next()?, found.next());
    let is_exact = |found: &Captures<'_>| groups.iter().any(|group| found.name(group).is_some());
    let range = |found: &Captures<'_>| found.get(0).map(|whole| whole.range()).unwrap_or_default();
    let follows = |next: &Captures<'_>| BETWEEN.is_match(&statement[range(&first).end..range(next).start]);
    let date = next.filter(|next| first.name("weekday").is_some() && is_exact(next) && follows(next));
    Some(date.unwrap_or(first))
}

/// The number of days within which "Friday the 11th" is looked for.
const DAY_OF_MONTH_WITHIN: i64 = 400;

/// Returns the next date from today on with a weekday and a day of the month, or the last one up to today.
fn weekday_of_month(today: Date, of: Weekday, day: i8, is_past: bool) -> Option<Date> {
    let days = (0..DAY_OF_MONTH_WITHIN).filter_map(|days| shifted(today, if is_past { -days } else { days }));
    days.into_iter().find(|date| date.weekday() == of && date.day() == day)
}

fn english(statement: &str, today: Date) -> Option<Dates> {
    let found = most_exact(&ENGLISH, statement, &["iso", "d1", "d2"])?;
    let part = |name: &str| found.name(name).map(|part| part.as_str().to_lowercase());
    let before = &statement[..found.get(0)?.start()];
    if AGAIN.is_match(before) || NEGATED.is_match(before) {
        return None;
    }
    // The clause with the day decides, if it has a verb that tells.
    let whole = found.get(0)?;
    let start = before.len() - before.rsplit(CLAUSES).next().unwrap_or(before).len();
    let end = statement[whole.end()..].find(CLAUSES).map_or(statement.len(), |at| whole.end() + at);
    let clause = statement.get(start..end).unwrap_or(statement);
    // "On Friday, I went to the dentist": the clause says nothing but the day.
    let besides = format!("{} {}", &statement[start..whole.start()], &statement[whole.end()..end]);
    let tells = besides.split_whitespace().count() >= 2 || PAST.is_match(clause) || PRESENT.is_match(clause);
    let clause = if tells { clause } else { statement };
    let is_past = PAST.is_match(clause)
        && !PRESENT.is_match(clause)
        && !PRESENT.is_match(&statement[start..whole.start()])
        && !STILL.is_match(before);
    let days = |many: &str, unit: &str| Some(number(many)? * if unit.starts_with('w') { 7 } else { 1 });
    let day = if let Some(name) = part("name") {
        shifted(
            today,
            match &*name {
                "day after tomorrow" => 2,
                "day before yesterday" => -2,
                "tomorrow" => 1,
                "yesterday" => -1,
                _ => 0,
            },
        )
    } else if let Some(name) = part("weekday") {
        let of = weekday_named(&name)?;
        let after = &statement[found.get(0)?.end()..];
        let day = OF_MONTH.captures(after).and_then(|day| day.name("th").or(day.name("of"))?.as_str().parse().ok());
        match part("which").as_deref().map(str::trim) {
            which if day.is_some() => weekday_of_month(today, of, day?, is_past || which == Some("last")),
            Some("last") => today.nth_weekday(-1, of).ok(),
            Some("next" | "coming") => today.nth_weekday(1, of).ok(),
            _ => weekday(today, of, is_past),
        }
    } else if let (Some(many), Some(unit)) = (part("in"), part("inunit")) {
        shifted(today, days(&many, &unit)?)
    } else if let (Some(many), Some(unit)) = (part("ago"), part("agounit")) {
        shifted(today, -days(&many, &unit)?)
    } else if let Some(iso) = part("iso") {
        iso.parse().ok().filter(is_near)
    } else {
        let (d, m, y) = match part("d1") {
            Some(d) => (d, part("m1")?, part("y1")),
            None => (part("d2")?, part("m2")?, part("y2")),
        };
        let from = part("from");
        let meant = Occurrence::of(is_past || from.as_deref() == Some("since"), from.is_some());
        date(y.as_deref(), month_named(&m)?, d.parse().ok()?, today, meant)
    }?;
    Some(dated(day, part("from").is_some(), part("until").is_some()))
}

/// Returns the day of the members that Chinese and Japanese share.
fn eastern(found: &Captures<'_>, today: Date, weekdays: &str, is_past: bool) -> Option<Date> {
    let part = |name: &str| found.name(name).map(|part| part.as_str());
    if let Some(name) = part("weekday") {
        let place = weekdays.chars().position(|known| name.starts_with(known))?.min(6);
        let of = Weekday::from_monday_zero_offset(i8::try_from(place).ok()?).ok()?;
        return match part("which") {
            Some(which) if which.starts_with("上上") || which.starts_with("先々") => in_week(today, of, -2),
            Some(which) if which.starts_with("下下") || which.starts_with("再来") => in_week(today, of, 2),
            Some(which) if which.starts_with(['上', '先']) => in_week(today, of, -1),
            Some(which) if which.starts_with(['下', '来']) => in_week(today, of, 1),
            _ => weekday(today, of, is_past),
        };
    }
    if let (Some(many), Some(unit), Some(side)) = (part("n"), part("unit"), part("side")) {
        let days = number(many)? * if unit == "天" || unit == "日" { 1 } else { 7 };
        return shifted(today, if side.contains('前') { -days } else { days });
    }
    let is_first = part("from").is_some() || found.name("end").is_some_and(|end| end.as_str() == "から");
    date(part("y"), small(part("m")?)?, small(part("d")?)?, today, Occurrence::of(is_past, is_first))
}

/// Returns the number of a month or of a day of the month, in digits or in characters as in 二十三.
fn small(text: &str) -> Option<i8> {
    let one = |text: &str| number(text).and_then(|number| i8::try_from(number).ok());
    match text.split_once('十').filter(|_| text.chars().count() > 1) {
        Some((tens, ones)) => {
            let tens = if tens.is_empty() { 1 } else { one(tens)? };
            Some(10 * tens + if ones.is_empty() { 0 } else { one(ones)? })
        }
        None => one(text),
    }
}

/// A day of the next month, and the first to fourth weekday of a month, in Chinese and Japanese.
static OF_NEXT_MONTH: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?P<from>从|自)?(?P<until>到|直到)?(?:下个?月|来月の?)(?P<day>\d{1,2})[日号](?P<end>から|まで|間)?")
});
static NTH: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?:(?P<m>\d{1,2})月の?|(?P<next>下个?月|来月の?))第(?P<n>[1-4一二三四])(?:个?(?:周|星期|礼拜)(?P<zh>[一二三四五六日天])(?P<together>起)?|の?(?P<ja>[月火水木金土日])曜)",
    )
});

/// The dates of a phrase, and where it begins.
struct Phrase {
    start: usize,
    dates: Dates,
}

impl Phrase {
    /// Returns `true` if no other match begins earlier.
    fn is_before(&self, other: Option<&Captures<'_>>) -> bool {
        other.and_then(|other| other.get(0)).is_none_or(|other| self.start <= other.start())
    }
}

/// Returns the day of the next month, or the weekday of a month by its number, that a statement names.
fn of_a_month(statement: &str, today: Date, is_past: bool) -> Option<Phrase> {
    let first_of_next = || today.first_of_month().checked_add(1.month()).ok();
    let phrase = |found: &Captures<'_>, dates| Some(Phrase { start: found.get(0)?.start(), dates });
    if let Some(found) = OF_NEXT_MONTH.captures(statement) {
        let end = found.name("end").map(|end| end.as_str());
        // "来月3日間" is a length.
        let day = found["day"].parse().ok().filter(|_| end != Some("間"))?;
        let day = first_of_next()?.with().day(day).build().ok()?;
        let (is_from, is_until) = (found.name("from").is_some(), found.name("until").is_some());
        return phrase(&found, dated(day, is_from || end == Some("から"), is_until || end == Some("まで")));
    }
    // "下个月第一周一起吃饭" is about the first week.
    let found = NTH.captures(statement).filter(|found| found.name("together").is_none() || &found["zh"] != "一")?;
    let nth = number(&found["n"])?;
    let weekday = found.name("zh").or(found.name("ja"))?.as_str();
    let place =
        ["一月", "二火", "三水", "四木", "五金", "六土", "日天"].iter().position(|names| names.contains(weekday))?;
    let of = Weekday::from_monday_zero_offset(i8::try_from(place).ok()?).ok()?;
    let month = match found.name("m") {
        Some(month) => {
            let (month, day) = (month.as_str().parse().ok()?, if is_past { 1 } else { 28 });
            date(None, month, day, today, Occurrence::of(is_past, false))?
        }
        None => first_of_next()?,
    };
    let day = month.first_of_month().nth_weekday_of_month(i8::try_from(nth).ok()?, of).ok()?;
    phrase(&found, dated(day, false, false))
}

fn chinese(statement: &str, today: Date) -> Option<Dates> {
    let is_past = statement.contains(['了', '过']);
    let other = most_exact(&CHINESE, statement, &["m"]);
    if let Some(found) = of_a_month(statement, today, is_past).filter(|found| found.is_before(other.as_ref())) {
        return Some(found.dates);
    }
    let found = other?;
    // "改到周日" moves it to Sunday, and does not end on it.
    let before = found.get(0).map_or("", |whole| &statement[..whole.start()]);
    if AGAIN.is_match(before) {
        return None;
    }
    let is_moved = ["改", "改期", "延期", "推迟", "提前", "换", "挪", "调"].iter().any(|words| before.ends_with(words));
    let day = match found.name("name").map(|name| name.as_str()) {
        Some("大后天") => shifted(today, 3),
        Some("后天") => shifted(today, 2),
        Some("明天" | "明早" | "明晚") => shifted(today, 1),
        Some("大前天") => shifted(today, -3),
        Some("前天") => shifted(today, -2),
        Some("昨天" | "昨晚") => shifted(today, -1),
        Some(_) => Some(today),
        None => eastern(&found, today, "一二三四五六日天", is_past && !is_moved),
    }?;
    Some(dated(day, found.name("from").is_some(), found.name("until").is_some() && !is_moved))
}

fn japanese(statement: &str, today: Date) -> Option<Dates> {
    let is_past = statement.trim_end_matches(['。', '！']).ends_with('た');
    let other = most_exact(&JAPANESE, statement, &["m"]);
    if let Some(found) = of_a_month(statement, today, is_past).filter(|found| found.is_before(other.as_ref())) {
        return Some(found.dates);
    }
    let found = other?;
    if AGAIN.is_match(&statement[..found.get(0)?.start()]) {
        return None;
    }
    let day = match found.name("name").map(|name| name.as_str()) {
        Some("明後日" | "あさって") => shifted(today, 2),
        Some("明日" | "あした") => shifted(today, 1),
        Some("一昨日" | "おととい") => shifted(today, -2),
        Some("昨日" | "昨夜" | "昨晩" | "ゆうべ" | "きのう") => shifted(today, -1),
        Some(_) => Some(today),
        None => eastern(&found, today, "月火水木金土日", is_past),
    }?;
    let end = found.name("end").map(|end| end.as_str());
    Some(dated(day, end == Some("から"), end == Some("まで")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Tuesday.
    const TODAY: Date = jiff::civil::date(2026, 11, 24);

    #[test]
    fn the_day_of_a_statement_is_resolved_when_it_is_heard() {
        for (statement, on) in [
            ("My exam is on Friday.", "2026-11-27"),
            ("I fly to Oslo tomorrow.", "2026-11-25"),
            ("Yesterday I broke my arm.", "2026-11-23"),
            ("On Friday I went to the dentist.", "2026-11-20"),
            ("I am scheduled for surgery on Friday.", "2026-11-27"),
            ("I'm getting married on Friday.", "2026-11-27"),
            ("My flight was moved to Friday.", "2026-11-27"),
            ("We meet next Tuesday.", "2026-12-01"),
            ("The play is in two weeks.", "2026-12-08"),
            ("I moved here 3 days ago.", "2026-11-21"),
            ("My birthday is on 3 December.", "2026-12-03"),
            ("My birthday is March 9th.", "2027-03-09"),
            ("I married on 2 May 2019.", "2019-05-02"),
            ("The deadline is 2027-01-15.", "2027-01-15"),
            ("My move is on Saturday, 12 December 2026.", "2026-12-12"),
            ("My move is on Saturday, 2026-12-12.", "2026-12-12"),
            ("We pack on Sunday, 13 December.", "2026-12-13"),
            ("The party is on Friday the 11th.", "2026-12-11"),
            ("I lost my wallet on Friday the 13th.", "2026-11-13"),
            ("Tomorrow I get my results from the test of 3 November.", "2026-11-25"),
            ("我明天去上海，12月12日回来。", "2026-11-25"),
            ("我下周六（12月12日）搬家。", "2026-12-12"),
            ("土曜日、12月12日に引っ越します。", "2026-12-12"),
            ("我明天去上海。", "2026-11-25"),
            ("下周五我有考试。", "2026-12-04"),
            ("我下下周五有考试。", "2026-12-11"),
            ("再来週の金曜日に会います。", "2026-12-11"),
            ("我三天前搬家了。", "2026-11-21"),
            ("我的生日是12月3日。", "2026-12-03"),
            ("明後日、大阪に行きます。", "2026-11-26"),
            ("来週の月曜日に引っ越します。", "2026-11-30"),
            ("My exam is on Friday, 2 to 4 pm.", "2026-11-27"),
            ("Thursday 10 and Friday 11 I am in Oslo.", "2026-12-10"),
            ("Today I quit the job that I began on 3 May 2019.", "2026-11-24"),
            ("The trip is off — I went home on Friday.", "2026-11-20"),
            ("I lost my passport, the exam starts on Friday.", "2026-11-27"),
            ("会议改到周日了。", "2026-11-29"),
            ("会议延期到12月3日。", "2026-12-03"),
            ("明天我订下个月5号的票。", "2026-11-25"),
            ("下个月5号我入职。", "2026-12-05"),
            ("10月第二个星期日我搬家了。", "2026-10-11"),
            ("来月の第1土曜日に会います。", "2026-12-05"),
            ("2週間後に試験があります。", "2026-12-08"),
        ] {
            assert_eq!(dates(statement, TODAY).on, on.parse().ok(), "{statement}");
        }
        for none in [
            "My cat is called Miso.",
            "I may come.",
            "I have 3 cats.",
            "Every Monday I go to yoga.",
            "我有三只猫。",
            "日本に住んでいます。",
        ] {
            assert_eq!(dates(none, TODAY).on, None, "{none}");
        }
    }

    #[test]
    fn a_question_names_a_day_a_month_or_a_year() {
        for (question, first, last) in [
            ("What did Melanie paint in July 2023?", "2023-07-01", "2023-07-31"),
            ("What happened in February?", "2026-02-01", "2026-02-28"),
            ("What do I have planned in December?", "2026-12-01", "2026-12-31"),
            ("What did I do in December?", "2025-12-01", "2025-12-31"),
            ("Where was I in 2022?", "2022-01-01", "2022-12-31"),
            ("What did I plan on 3 May 2023?", "2023-05-03", "2023-05-03"),
            ("我2023年5月在哪里？", "2023-05-01", "2023-05-31"),
            ("5月に何をしましたか？", "2026-05-01", "2026-05-31"),
        ] {
            let days = period(question, TODAY, None).map(|(first, last)| (first.to_string(), last.to_string()));
            assert_eq!(days, Some((first.into(), last.into())), "{question}");
        }
        for none in ["What may I eat?", "Where do I live?", "I have 2023 books"] {
            assert_eq!(period(none, TODAY, None), None, "{none}");
        }
    }

    #[test]
    fn words_of_a_period_bound_its_validity() {
        let of = |statement: &str| {
            let Dates { on, from, until, .. } = dates(statement, TODAY);
            let text = |date: Option<Date>| date.map(|date| date.to_string()).unwrap_or_default();
            [text(on), text(from), text(until)]
        };
        assert_eq!(of("I am in Rome until Friday."), ["", "", "2026-11-27"]);
        assert_eq!(of("I worked at Siemens until 3 May 2020."), ["", "", ""]);
        assert_eq!(of("I work at night since 3 May."), ["", "2026-05-03", ""]);
        assert_eq!(of("我到周五都在北京。"), ["", "", "2026-11-27"]);
        assert_eq!(of("金曜日まで東京にいます。"), ["", "", "2026-11-27"]);
        assert_eq!(of("明日から休みです。"), ["", "2026-11-25", ""]);
        assert_eq!(of("I am in Rome from Monday until Friday."), ["", "2026-11-30", "2026-12-04"]);
        assert_eq!(of("We lived in Rome from 1 February until 30 June."), ["", "2026-02-01", ""]);
        assert_eq!(of("From 1 February until 30 June I will be in Rome."), ["", "2027-02-01", "2027-06-30"]);
        assert_eq!(of("The course is from 1 May 2025 until 30 June."), ["", "2025-05-01", ""]);
    }
}
