//! When something is to be done, as people say it.

use std::ops::Range;
use std::sync::LazyLock;

use jiff::civil::{Date, Weekday};
use jiff::{Span, Timestamp, ToSpan, Zoned};
use regex::{Captures, Regex};

use super::{Language, regex};

/// When something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Once.
    Once(Timestamp),
    /// Again and again, by a cron pattern of five fields.
    Again(String),
}

/// The latest that something is put down for: ten years ahead.
const YEARS_MAX: i64 = 10;
/// What an hour of the day is called without a number.
const MORNING: i8 = 9;
const NOON: i8 = 12;
const AFTERNOON: i8 = 15;
const EVENING: i8 = 20;

/// A time that was found: `None` for one that is over; and where in the words it stands.
pub(super) type Found = (Option<When>, Vec<Range<usize>>);

/// Finds the time that a sentence names, reckoned from `now`.
pub(super) fn find(sentence: &str, language: Language, now: &Zoned) -> Option<Found> {
    let mut words = Words { text: sentence.to_lowercase(), spans: Vec::new() };
    // Lower case may be longer in some writings; then places would be others.
    if words.text.len() != sentence.len() {
        words.text = sentence.to_owned();
    }
    let found = match language {
        Language::English => english(&mut words, now),
        Language::Chinese => chinese(&mut words, now),
        Language::Japanese => japanese(&mut words, now),
    };
    let when = found?;
    let latest = now.checked_add(YEARS_MAX.years()).map(|at| at.timestamp()).unwrap_or(Timestamp::MAX);
    let when = match when {
        Some(When::Once(at)) if at > latest => return None,
        when => when,
    };
    Some((when, words.spans))
}

/// A sentence, and the parts of it that were read as a time.
struct Words {
    text: String,
    spans: Vec<Range<usize>>,
}

impl Words {
    /// What a pattern finds first in what was not read yet.
    fn take(&mut self, pattern: &Regex) -> Option<Captured> {
        let mut from = 0;
        loop {
            let found = pattern.captures_at(&self.text, from)?;
            let whole = found.get(0)?.range();
            // The last digits of a longer number are no number.
            let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
            if is_digit(self.text[..whole.start].chars().next_back())
                && is_digit(self.text[whole.start..].chars().next())
            {
                from = whole.end;
                continue;
            }
            if let Some(read) = self.spans.iter().find(|span| span.start < whole.end && whole.start < span.end) {
                from = read.end;
                continue;
            }
            let captured = Captured::of(pattern, &found);
            self.spans.push(whole);
            return Some(captured);
        }
    }
}

/// What a pattern found, by name.
struct Captured(Vec<(String, String)>);

impl Captured {
    fn of(pattern: &Regex, found: &Captures<'_>) -> Self {
        let named = pattern.capture_names().flatten();
        Self(named.filter_map(|name| Some((name.to_owned(), found.name(name)?.as_str().to_owned()))).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// An hour of the day, as far as it was said.
#[derive(Clone, Copy, Default)]
struct Clock {
    hour: i8,
    minute: i8,
    /// Whether it may be meant in the morning or in the evening.
    is_open: bool,
}

/// Part of a day.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Morning,
    Noon,
    Afternoon,
    Evening,
}

impl Part {
    fn hour(self) -> i8 {
        match self {
            Self::Morning => MORNING,
            Self::Noon => NOON,
            Self::Afternoon => AFTERNOON,
            Self::Evening => EVENING,
        }
    }
}

/// The time of a day and a clock as they were said.
fn once(day: Option<Date>, part: Option<Part>, clock: Option<Clock>, now: &Zoned) -> Option<Option<When>> {
    if day.is_none() && part.is_none() && clock.is_none() {
        return None;
    }
    let clock = match (clock, part) {
        // Twelve in the evening is midnight.
        (Some(clock), Some(Part::Evening)) if clock.is_open && clock.hour == 12 => {
            Clock { hour: 24, is_open: false, ..clock }
        }
        (Some(clock), Some(Part::Afternoon | Part::Evening)) if clock.is_open && clock.hour < 12 => {
            Clock { hour: clock.hour + 12, is_open: false, ..clock }
        }
        (Some(clock), Some(Part::Noon)) if clock.is_open && clock.hour < 5 => {
            Clock { hour: clock.hour + 12, is_open: false, ..clock }
        }
        (Some(clock), Some(_)) => Clock { is_open: false, ..clock },
        // "On Friday at 3" is in the afternoon.
        (Some(clock), None) if day.is_some() && clock.is_open && (1..=5).contains(&clock.hour) => {
            Clock { hour: clock.hour + 12, is_open: false, ..clock }
        }
        (Some(clock), None) => clock,
        (None, part) => Clock { hour: part.map_or(MORNING, Part::hour), minute: 0, is_open: false },
    };
    let at = |date: Date, hour: i8| {
        let at = date.at(hour % 24, clock.minute, 0, 0).to_zoned(now.time_zone().clone()).ok()?;
        if hour >= 24 { at.checked_add(1.day()).ok() } else { Some(at) }
    };
    let at = match day {
        Some(day) => at(day, clock.hour).filter(|at| at > now),
        None => {
            let today = now.date();
            let hours: &[i8] = if clock.is_open { &[clock.hour, clock.hour + 12] } else { &[clock.hour] };
            let days = [today, today.tomorrow().unwrap_or(today)];
            let mut times = days.iter().flat_map(|day| hours.iter().filter_map(|hour| at(*day, *hour)));
            times.find(|at| at > now)
        }
    };
    Some(at.map(|at| When::Once(at.timestamp())))
}

/// The next day of the week after `today`; `today` itself if the clock is still to come.
fn next(weekday: Weekday, clock: Option<Clock>, now: &Zoned) -> Option<Date> {
    let today = now.date();
    let is_to_come = clock.is_some_and(|clock| {
        let at = today.at(clock.hour % 24, clock.minute, 0, 0).to_zoned(now.time_zone().clone());
        at.is_ok_and(|at| at > *now)
    });
    if today.weekday() == weekday && is_to_come { Some(today) } else { today.nth_weekday(1, weekday).ok() }
}

/// A date of this year, or of the next one if it is over.
fn date_of(month: i8, day: i8, now: &Zoned) -> Option<Date> {
    let of = |year: i16| Date::new(year, month, day).ok();
    of(now.year()).filter(|date| *date >= now.date()).or_else(|| of(now.year() + 1))
}

fn after(span: Span, now: &Zoned) -> Option<Option<When>> {
    let at = now.checked_add(span).ok()?.timestamp();
    (at > now.timestamp()).then_some(Some(When::Once(at)))
}

/// A cron pattern for a time of the day, on days of the week as cron names them.
fn again(clock: Option<Clock>, part: Option<Part>, days: &str) -> Option<Option<When>> {
    let mut clock = clock.unwrap_or(Clock { hour: part.map_or(MORNING, Part::hour), ..Clock::default() });
    if clock.is_open && clock.hour < 12 && matches!(part, Some(Part::Afternoon | Part::Evening)) {
        clock.hour += 12;
    }
    Some(Some(When::Again(format!("{} {} * * {days}", clock.minute, clock.hour % 24))))
}

/// A cron pattern for every so many minutes or hours.
fn every(many: i64, minutes: i64) -> Option<Option<When>> {
    let all = many.checked_mul(minutes)?;
    let pattern = match all {
        10..=30 if 60 % all == 0 => format!("*/{all} * * * *"),
        60 => "0 * * * *".to_owned(),
        120.. if all % 60 == 0 && 24 % (all / 60) == 0 && all < 1_440 => format!("0 */{} * * *", all / 60),
        _ => return None,
    };
    Some(Some(When::Again(pattern)))
}

fn cron_day(weekday: Weekday) -> String {
    weekday.to_sunday_zero_offset().to_string()
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

fn weekday_of(name: &str) -> Option<Weekday> {
    WEEKDAYS.into_iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, day)| day)
}

/// A number in English words or digits.
fn english_number(word: &str) -> Option<i64> {
    const WORDS: [(&str, i64); 22] = [
        ("a", 1),
        ("an", 1),
        ("one", 1),
        ("two", 2),
        ("a couple of", 2),
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("seven", 7),
        ("eight", 8),
        ("nine", 9),
        ("ten", 10),
        ("eleven", 11),
        ("twelve", 12),
        ("fifteen", 15),
        ("twenty", 20),
        ("thirty", 30),
        ("forty", 40),
        ("forty-five", 45),
        ("sixty", 60),
        ("ninety", 90),
    ];
    let named = WORDS.iter().find(|(name, _)| *name == word).map(|(_, number)| *number);
    named.or_else(|| word.parse().ok()).filter(|number| *number > 0)
}

const NUMBER: &str = r"(?P<n>\d{1,5}|a couple of|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty-five|forty|sixty|ninety)";
const DAY_NAME: &str = r"(?:mon|tues?|wednes|thurs?|fri|satur|sun)day|mon|tue|wed|thu|fri|sat|sun";

static IN: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"\b(?:in (?:about )?(?P<half1>half an hour|half-hour)|in (?:about )?{NUMBER}(?P<half2> and a half)? ?(?P<unit>minutes?|mins?|hours?|hrs?|h|days?|weeks?|months?|years?)\b(?P<half3> and a half)?)"
    ))
});
static FROM_NOW: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!(r"\b{NUMBER} (?P<unit>minutes?|hours?|days?|weeks?) from now\b")));
static EVERY: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"\b(?:(?:every|each) (?:{NUMBER} )?(?P<unit>minutes?|hours?|days?|mornings?|afternoons?|evenings?|nights?|weekday|working day|weeks?|months?|years?|other \w+|(?P<day>{DAY_NAME}))s?\b|(?P<daily>daily|hourly)\b|on (?P<on>weekdays|(?:mon|tues|wednes|thurs|fri|satur|sun)days)\b)(?: (?P<part>morning|afternoon|evening|night))?"
    ))
});
static CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"\b(?:at|by|around)? ?(?:(?P<word>noon|midday|midnight)|(?P<h1>\d{1,2})[:h](?P<m>\d{2}) ?(?P<half1>am|pm)?|(?P<h2>\d{1,2}) ?(?P<half2>am|pm|o'clock))\b",
    )
});
static AT: LazyLock<Regex> = LazyLock::new(|| {
    let hour = "(?P<n>one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)";
    regex(&format!(
        r"\bat (?:{hour}|(?P<digits>\d{{1,2}}))\b(?: ?o'clock)?(?: in the (?P<part>morning|afternoon|evening))?"
    ))
});
static DAY: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"\b(?:(?P<after>(?:the )?day after tomorrow)|(?P<tomorrow>tomorrow)|(?P<tonight>tonight)|(?P<today>today)|this (?P<this>morning|afternoon|evening)|(?:on |this |next |coming )+(?P<day>{DAY_NAME}))\b(?: (?P<part>morning|noon|afternoon|evening|night))?"
    ))
});
static DATE: LazyLock<Regex> = LazyLock::new(|| {
    let month = r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?";
    regex(&format!(
        r"\b(?:on )?(?:(?P<y>\d{{4}})-(?P<mo>\d{{1,2}})-(?P<d>\d{{1,2}})|(?:the )?(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<mo1>{month})|(?P<mo2>{month}) (?:the )?(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?)\b"
    ))
});
static PART: LazyLock<Regex> = LazyLock::new(|| regex(r"\bin the (?P<part>morning|afternoon|evening)\b"));

fn part_of(name: Option<&str>) -> Option<Part> {
    match name?.trim_end_matches('s') {
        "morning" => Some(Part::Morning),
        "noon" => Some(Part::Noon),
        "afternoon" => Some(Part::Afternoon),
        "evening" | "night" => Some(Part::Evening),
        _ => None,
    }
}

fn english_clock(words: &mut Words) -> Option<(Clock, Option<Part>)> {
    if let Some(found) = words.take(&CLOCK) {
        let number = |name: &str| found.get(name).and_then(|digits| digits.parse::<i8>().ok());
        let clock = match found.get("word") {
            Some("midnight") => Clock { hour: 24, ..Clock::default() },
            Some(_) => Clock { hour: NOON, ..Clock::default() },
            None => {
                let (hour, minute) = (number("h1").or(number("h2"))?, number("m").unwrap_or(0));
                let half = found.get("half1").or(found.get("half2"));
                let hour = match half {
                    Some("pm") if (1..=11).contains(&hour) => hour + 12,
                    Some("am") if hour == 12 => 0,
                    _ => hour,
                };
                // Two digits, or a colon, are of a clock of 24 hours.
                let is_open = half == Some("o'clock") && (1..=12).contains(&hour);
                Clock { hour, minute, is_open }
            }
        };
        return ((0..=24).contains(&clock.hour) && clock.minute < 60).then_some((clock, None));
    }
    let found = words.take(&AT)?;
    let hour = found.get("digits").or(found.get("n")).and_then(english_number)?;
    let hour = i8::try_from(hour).ok().filter(|hour| (0..=24).contains(hour))?;
    Some((Clock { hour, minute: 0, is_open: (1..=12).contains(&hour) }, part_of(found.get("part"))))
}

fn english(words: &mut Words, now: &Zoned) -> Option<Option<When>> {
    if let Some(found) = words.take(&IN).or_else(|| words.take(&FROM_NOW)) {
        if found.get("half1").is_some() {
            return after(30.minutes(), now);
        }
        let (many, unit) = (english_number(found.get("n")?)?, found.get("unit")?);
        let half = found.get("half2").is_some() || found.get("half3").is_some();
        let span = match unit {
            unit if unit.starts_with("mi") => many.minutes().seconds(if half { 30 } else { 0 }),
            unit if unit.starts_with('h') => many.try_hours_and(half)?,
            unit if unit.starts_with('d') => many.days_and(half, 24)?,
            unit if unit.starts_with('w') => Span::new().try_weeks(many).ok()?,
            unit if unit.starts_with("mo") => Span::new().try_months(many).ok()?,
            _ => Span::new().try_years(many).ok()?,
        };
        // A day has a clock of its own: "in three days at 9".
        let at = english_clock(words);
        if let (Some((clock, part)), true) = (at, unit.starts_with(['d', 'w'])) {
            return once(Some(now.checked_add(span).ok()?.date()), part, Some(Clock { is_open: false, ..clock }), now);
        }
        return after(span, now);
    }
    if let Some(found) = words.take(&EVERY) {
        let at = english_clock(words);
        let (clock, more) = at.map_or((None, None), |(clock, part)| (Some(clock), part));
        let loose = words.take(&PART).and_then(|found| part_of(found.get("part")));
        let part = part_of(found.get("part")).or(part_of(found.get("unit"))).or(more).or(loose);
        let many = found.get("n").map_or(Some(1), english_number)?;
        return match (found.get("unit"), found.get("daily"), found.get("on")) {
            (_, Some("hourly"), _) => every(1, 60),
            (_, Some(_), _) => again(clock, part, "*"),
            (_, _, Some("weekdays")) => again(clock, part, "1-5"),
            (_, _, Some(day)) => again(clock, part, &cron_day(weekday_of(day)?)),
            (Some(unit), ..) => match unit {
                unit if unit.starts_with("minute") => every(many, 1),
                unit if unit.starts_with("hour") => every(many, 60),
                unit if unit.starts_with("weekday") || unit.starts_with("working") => again(clock, part, "1-5"),
                _ if found.get("day").is_some() && many == 1 => again(clock, part, &cron_day(weekday_of(unit)?)),
                unit if (unit.starts_with("day") || part_of(Some(unit)).is_some()) && many == 1 => {
                    again(clock, part, "*")
                }
                _ => None,
            },
            _ => None,
        };
    }
    let found = words.take(&DAY);
    let dated = if found.is_none() { words.take(&DATE) } else { None };
    let at = english_clock(words);
    let (clock, more) = at.map_or((None, None), |(clock, part)| (Some(clock), part));
    let loose = words.take(&PART).and_then(|found| part_of(found.get("part")));
    let mut part = more.or(loose);
    let today = now.date();
    let day = match (&found, &dated) {
        (Some(found), _) => {
            part = part_of(found.get("part")).or(part_of(found.get("this"))).or(part);
            if found.get("tonight").is_some() {
                part = Some(Part::Evening);
            }
            match found.get("day") {
                Some(name) => Some(next(weekday_of(name)?, clock, now)?),
                None if found.get("after").is_some() => Some(today.checked_add(2.days()).ok()?),
                None if found.get("tomorrow").is_some() => Some(today.tomorrow().ok()?),
                None => Some(today),
            }
        }
        (None, Some(found)) => {
            let number = |name: &str| found.get(name).and_then(|digits| digits.parse::<i8>().ok());
            let month = |name: &str| {
                let named =
                    MONTHS.iter().position(|month| found.get(name).is_some_and(|name| name.starts_with(month)))?;
                i8::try_from(named + 1).ok()
            };
            Some(match found.get("y") {
                Some(year) => Date::new(year.parse().ok()?, number("mo")?, number("d")?).ok()?,
                None => date_of(month("mo1").or(month("mo2"))?, number("d1").or(number("d2"))?, now)?,
            })
        }
        (None, None) => None,
    };
    once(day, part, clock, now)
}

/// Spans of hours and days with a half.
trait Halves {
    fn try_hours_and(self, half: bool) -> Option<Span>;
    fn days_and(self, half: bool, hours: i64) -> Option<Span>;
}

impl Halves for i64 {
    fn try_hours_and(self, half: bool) -> Option<Span> {
        Some(Span::new().try_hours(self).ok()?.minutes(if half { 30 } else { 0 }))
    }

    fn days_and(self, half: bool, hours: i64) -> Option<Span> {
        Some(Span::new().try_days(self).ok()?.hours(if half { hours / 2 } else { 0 }))
    }
}

/// A number in digits or in Chinese ones, up to 99.
fn eastern_number(word: &str) -> Option<i64> {
    if let Ok(number) = word.parse::<i64>() {
        return Some(number);
    }
    let digit = |c: char| match c {
        '〇' | '零' => Some(0),
        '两' | '二' => Some(2),
        c => "一二三四五六七八九".chars().position(|known| known == c).map(|place| place as i64 + 1),
    };
    let letters: Vec<char> = word.chars().collect();
    match letters.as_slice() {
        [one] if *one == '十' => Some(10),
        [one] => digit(*one),
        ['十', ones] => Some(10 + digit(*ones)?),
        [tens, '十'] => Some(10 * digit(*tens)?),
        [tens, '十', ones] => Some(10 * digit(*tens)? + digit(*ones)?),
        _ => None,
    }
}

const DIGITS: &str = r"\d{1,5}|[零〇一二两三四五六七八九十]{1,3}";

static ZH_IN: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"(?:(?P<half>半)(?:个)?(?:小时|钟头)|(?P<n>{DIGITS})(?:个)?(?P<more>半)?(?P<unit>分钟|分|小时|钟头|天|周|星期|礼拜|月|年)(?P<more2>半)?)(?:之后|以后|过后|后)"
    ))
});
static ZH_EVERY: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"每(?:隔)?(?:(?P<n>{DIGITS})(?:个)?(?P<unit>分钟|小时)|(?:个)?(?P<one>小时)|(?P<work>(?:个)?工作日)|(?:周|星期|礼拜)(?P<day>[一二三四五六日天])|(?P<daily>天|日)|(?P<part>早|晚))(?:的)?"
    ))
});
static ZH_CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"(?:的)?(?P<part>凌晨|清晨|早上|早晨|上午|中午|下午|傍晚|晚上|夜里|早|晚)?(?:的)?(?P<h>{DIGITS})(?:点钟|点|时|[:：])(?:(?P<half>半)|(?P<quarter>一刻)|(?P<three>三刻)|(?P<m>{DIGITS})分?)?"
    ))
});
static ZH_PART: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?P<part>凌晨|清晨|早上|早晨|上午|中午|下午|傍晚|晚上|夜里)"));
static ZH_DAY: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"(?:(?P<three>大后天)|(?P<two>后天)|(?P<tomorrow>明(?:天|日))|明(?P<p1>早|晚)|(?P<today>今(?:天|日))|今(?P<p2>早|晚)|(?P<week>这|下下|下|本)?(?:个)?(?:周|星期|礼拜)(?P<day>[一二三四五六日天])|(?P<mo>{DIGITS})月(?P<d>{DIGITS})(?:日|号))(?:的)?"
    ))
});

fn chinese_part(name: Option<&str>) -> Option<Part> {
    Some(match name? {
        "凌晨" | "清晨" | "早上" | "早晨" | "上午" | "早" | "朝" | "午前" => Part::Morning,
        "中午" | "昼" | "正午" => Part::Noon,
        "下午" | "午後" => Part::Afternoon,
        "傍晚" | "晚上" | "夜里" | "晚" | "夜" | "夕方" | "晩" => Part::Evening,
        _ => return None,
    })
}

fn eastern_day(name: &str) -> Option<Weekday> {
    Some(match name {
        "一" | "月" => Weekday::Monday,
        "二" | "火" => Weekday::Tuesday,
        "三" | "水" => Weekday::Wednesday,
        "四" | "木" => Weekday::Thursday,
        "五" | "金" => Weekday::Friday,
        "六" | "土" => Weekday::Saturday,
        "日" | "天" => Weekday::Sunday,
        _ => return None,
    })
}

/// A clock as a Chinese or a Japanese pattern found it.
fn eastern_clock(found: &Captured) -> Option<(Clock, Option<Part>)> {
    let hour = i8::try_from(eastern_number(found.get("h")?)?).ok()?;
    let minute = match (found.get("half"), found.get("quarter"), found.get("three"), found.get("m")) {
        (Some(_), ..) => 30,
        (_, Some(_), ..) => 15,
        (_, _, Some(_), _) => 45,
        (.., Some(minutes)) => i8::try_from(eastern_number(minutes)?).ok()?,
        _ => 0,
    };
    let is_open = (1..=12).contains(&hour);
    let part = chinese_part(found.get("part"));
    ((0..=24).contains(&hour) && minute < 60).then_some((Clock { hour, minute, is_open }, part))
}

fn chinese(words: &mut Words, now: &Zoned) -> Option<Option<When>> {
    if let Some(found) = words.take(&ZH_IN) {
        if found.get("half").is_some() {
            return after(30.minutes(), now);
        }
        let (many, half) = (eastern_number(found.get("n")?)?, found.get("more").or(found.get("more2")).is_some());
        let unit = found.get("unit")?.to_owned();
        return eastern_after(words, &ZH_CLOCK, eastern_span(many, half, &unit)?, &unit, now);
    }
    let repeated = words.take(&ZH_EVERY);
    let day = if repeated.is_none() { words.take(&ZH_DAY) } else { None };
    let clock = words.take(&ZH_CLOCK);
    let (clock, mut part) = match &clock {
        Some(found) => eastern_clock(found).map(|(clock, part)| (Some(clock), part))?,
        None if repeated.is_some() || day.is_some() => {
            (None, words.take(&ZH_PART).and_then(|found| chinese_part(found.get("part"))))
        }
        None => (None, None),
    };
    if let Some(found) = repeated {
        part = chinese_part(found.get("part")).or(part);
        return match (found.get("n"), found.get("day")) {
            (Some(many), _) => every(eastern_number(many)?, if found.get("unit") == Some("分钟") { 1 } else { 60 }),
            _ if found.get("one").is_some() => every(1, 60),
            _ if found.get("work").is_some() => again(clock, part, "1-5"),
            (_, Some(name)) => again(clock, part, &cron_day(eastern_day(name)?)),
            _ => again(clock, part, "*"),
        };
    }
    if let Some(found) = &day {
        part = part.or(chinese_part(found.get("p1"))).or(chinese_part(found.get("p2")));
    }
    once(
        match &day {
            Some(found) => Some(eastern_date(found, clock, now)?),
            None => None,
        },
        part,
        clock,
        now,
    )
}

fn eastern_span(many: i64, half: bool, unit: &str) -> Option<Span> {
    match unit {
        "分钟" | "分" => Span::new().try_minutes(many).ok(),
        "小时" | "钟头" | "時間" => many.try_hours_and(half),
        "天" | "日" => many.days_and(half, 24),
        "周" | "星期" | "礼拜" | "週間" => Span::new().try_weeks(many).ok(),
        "月" | "か月" | "ヶ月" | "カ月" => Span::new().try_months(many).ok(),
        _ => Span::new().try_years(many).ok(),
    }
}

/// A time after a span; one of days has a clock of its own: 三天后下午两点.
fn eastern_after(words: &mut Words, clock: &Regex, span: Span, unit: &str, now: &Zoned) -> Option<Option<When>> {
    let is_of_days = !["分钟", "分", "小时", "钟头", "時間"].contains(&unit);
    match words.take(clock).filter(|_| is_of_days) {
        Some(found) => {
            let (clock, part) = eastern_clock(&found)?;
            once(Some(now.checked_add(span).ok()?.date()), part, Some(clock), now)
        }
        None => after(span, now),
    }
}

fn eastern_date(found: &Captured, clock: Option<Clock>, now: &Zoned) -> Option<Date> {
    let today = now.date();
    if let Some(name) = found.get("day") {
        let weekday = eastern_day(name)?;
        let weeks = match found.get("week") {
            Some("下下") => 2,
            Some("下" | "来週" | "次") => 1,
            _ => return next(weekday, clock, now),
        };
        // Weeks begin on Monday.
        let monday = today.checked_sub(i64::from(today.weekday().to_monday_zero_offset()).days()).ok()?;
        return monday.checked_add((7 * weeks + i64::from(weekday.to_monday_zero_offset())).days()).ok();
    }
    if let (Some(month), Some(day)) = (found.get("mo"), found.get("d")) {
        let number = |word: &str| i8::try_from(eastern_number(word)?).ok();
        return date_of(number(month)?, number(day)?, now);
    }
    let days = match () {
        () if found.get("three").is_some() => 3,
        () if found.get("two").is_some() => 2,
        () if found.get("tomorrow").or(found.get("p1")).is_some() => 1,
        () => 0,
    };
    today.checked_add(days.days()).ok()
}

static JA_IN: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(r"(?P<n>{DIGITS})(?P<unit>分|時間|日|週間|か月|ヶ月|カ月|年)(?P<more>半)?後(?:に|の)?"))
});
static JA_EVERY: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"(?:(?P<n>{DIGITS})(?P<unit>分|時間)(?:ごと|毎|おき)|毎(?P<one>時間?)|(?P<work>平日)(?:毎日)?|毎週の?(?P<day>[月火水木金土日])曜日?|毎(?P<part>朝|晩)|(?P<daily>毎日))(?:に|の)?"
    ))
});
static JA_CLOCK: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"(?P<part>午前|午後|朝|昼|夕方|夜)?の?(?:(?P<h>{DIGITS})(?:時|[:：])(?:(?P<half>半)|(?P<m>{DIGITS})分?)?)(?:ごろ|頃)?(?:に|の)?"
    ))
});
static JA_PART: LazyLock<Regex> = LazyLock::new(|| regex(r"(?P<part>正午|午前|午後|夕方|朝|昼|夜)(?:に|の)?"));
static JA_DAY: LazyLock<Regex> = LazyLock::new(|| {
    regex(&format!(
        r"(?:(?P<two>明後日|あさって)|(?P<tomorrow>明日|あした)|明(?P<p1>朝|晩)|(?P<today>今日|本日)|今(?P<p2>夜|晩|朝)|(?P<week>今週|来週|次)?の?(?P<day>[月火水木金土日])曜日?|(?P<mo>{DIGITS})月(?P<d>{DIGITS})日)(?:に|の)?"
    ))
});

fn japanese(words: &mut Words, now: &Zoned) -> Option<Option<When>> {
    if let Some(found) = words.take(&JA_IN) {
        let (many, half) = (eastern_number(found.get("n")?)?, found.get("more").is_some());
        let unit = found.get("unit")?.to_owned();
        return eastern_after(words, &JA_CLOCK, eastern_span(many, half, &unit)?, &unit, now);
    }
    let repeated = words.take(&JA_EVERY);
    let day = if repeated.is_none() { words.take(&JA_DAY) } else { None };
    let clock = words.take(&JA_CLOCK);
    let (clock, mut part) = match &clock {
        Some(found) => eastern_clock(found).map(|(clock, part)| (Some(clock), part))?,
        None if repeated.is_some() || day.is_some() => {
            (None, words.take(&JA_PART).and_then(|found| chinese_part(found.get("part"))))
        }
        None => (None, None),
    };
    if let Some(found) = repeated {
        part = chinese_part(found.get("part")).or(part);
        return match (found.get("n"), found.get("day")) {
            (Some(many), _) => every(eastern_number(many)?, if found.get("unit") == Some("分") { 1 } else { 60 }),
            _ if found.get("one").is_some() => every(1, 60),
            _ if found.get("work").is_some() => again(clock, part, "1-5"),
            (_, Some(name)) => again(clock, part, &cron_day(eastern_day(name)?)),
            _ => again(clock, part, "*"),
        };
    }
    if let Some(found) = &day {
        part = part.or(chinese_part(found.get("p1"))).or(chinese_part(found.get("p2")));
    }
    once(
        match &day {
            Some(found) => Some(eastern_date(found, clock, now)?),
            None => None,
        },
        part,
        clock,
        now,
    )
}
