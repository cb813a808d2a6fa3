//! Parses times in English.

use std::sync::LazyLock;

use jiff::civil::Date;
use jiff::{Span, ToSpan, Zoned};
use knowledge::{month_named, weekday_named};
use regex::Regex;

use super::super::regex;
use super::{
    Clock, NOON, Part, WORKING_DAYS, When, Words, after, again, date_of, days, each, every, hours, next, once,
};

/// Parses a number in English words or digits.
fn number_of(word: &str) -> Option<i64> {
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

fn clock_of(words: &mut Words) -> Option<(Clock, Option<Part>)> {
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
                // Two digits, or a colon, indicate a 24-hour clock.
                let is_open = half == Some("o'clock") && (1..=12).contains(&hour);
                Clock { hour, minute, is_open }
            }
        };
        return ((0..=24).contains(&clock.hour) && clock.minute < 60).then_some((clock, None));
    }
    let found = words.take(&AT)?;
    let hour = found.get("digits").or(found.get("n")).and_then(number_of)?;
    let hour = i8::try_from(hour).ok().filter(|hour| (0..=24).contains(hour))?;
    Some((Clock { hour, minute: 0, is_open: (1..=12).contains(&hour) }, part_of(found.get("part"))))
}

pub(super) fn read(words: &mut Words, now: &Zoned) -> Option<Option<When>> {
    if let Some(found) = words.take(&IN).or_else(|| words.take(&FROM_NOW)) {
        if found.get("half1").is_some() {
            return after(30.minutes(), now);
        }
        let (many, unit) = (number_of(found.get("n")?)?, found.get("unit")?);
        let half = found.get("half2").is_some() || found.get("half3").is_some();
        let span = match unit {
            unit if unit.starts_with("mi") => many.minutes().seconds(if half { 30 } else { 0 }),
            unit if unit.starts_with('h') => hours(many, half)?,
            unit if unit.starts_with('d') => days(many, half)?,
            unit if unit.starts_with('w') => Span::new().try_weeks(many).ok()?,
            unit if unit.starts_with("mo") => Span::new().try_months(many).ok()?,
            _ => Span::new().try_years(many).ok()?,
        };
        // A span of days may have a clock time: "in three days at 9".
        let at = clock_of(words);
        if let (Some((clock, part)), true) = (at, unit.starts_with(['d', 'w'])) {
            return once(Some(now.checked_add(span).ok()?.date()), part, Some(clock), now);
        }
        return after(span, now);
    }
    if let Some(found) = words.take(&EVERY) {
        let at = clock_of(words);
        let (clock, more) = at.map_or((None, None), |(clock, part)| (Some(clock), part));
        let loose = words.take(&PART).and_then(|found| part_of(found.get("part")));
        let part = part_of(found.get("part")).or(part_of(found.get("unit"))).or(more).or(loose);
        let many = found.get("n").map_or(Some(1), number_of)?;
        return match (found.get("unit"), found.get("daily"), found.get("on")) {
            (_, Some("hourly"), _) => every(1, 60),
            (_, Some(_), _) => again(clock, part, None),
            (_, _, Some("weekdays")) => again(clock, part, WORKING_DAYS),
            (_, _, Some(day)) => again(clock, part, each(weekday_named(day)?)),
            (Some(unit), ..) => match unit {
                unit if unit.starts_with("minute") => every(many, 1),
                unit if unit.starts_with("hour") => every(many, 60),
                unit if unit.starts_with("weekday") || unit.starts_with("working") => again(clock, part, WORKING_DAYS),
                _ if found.get("day").is_some() && many == 1 => again(clock, part, each(weekday_named(unit)?)),
                unit if (unit.starts_with("day") || part_of(Some(unit)).is_some()) && many == 1 => {
                    again(clock, part, None)
                }
                _ => None,
            },
            _ => None,
        };
    }
    let found = words.take(&DAY);
    let dated = if found.is_none() { words.take(&DATE) } else { None };
    let at = clock_of(words);
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
                Some(name) => Some(next(weekday_named(name)?, clock, now)?),
                None if found.get("after").is_some() => Some(today.checked_add(2.days()).ok()?),
                None if found.get("tomorrow").is_some() => Some(today.tomorrow().ok()?),
                None => Some(today),
            }
        }
        (None, Some(found)) => {
            let number = |name: &str| found.get(name).and_then(|digits| digits.parse::<i8>().ok());
            let month = |name: &str| found.get(name).and_then(month_named);
            Some(match found.get("y") {
                Some(year) => Date::new(year.parse().ok()?, number("mo")?, number("d")?).ok()?,
                None => date_of(month("mo1").or(month("mo2"))?, number("d1").or(number("d2"))?, now)?,
            })
        }
        (None, None) => None,
    };
    once(day, part, clock, now)
}
