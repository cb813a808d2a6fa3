//! Parses the time of a reminder in English, Chinese and Japanese.

mod eastern;
mod english;

use std::ops::{Range, RangeInclusive};

use jiff::civil::{Date, Weekday};
use jiff::{Span, Timestamp, ToSpan, Zoned};
use regex::{Captures, Regex};

use super::Language;

/// The time of a reminder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// A single time.
    Once(Timestamp),
    /// A repetition, as a cron pattern of five fields.
    Again(String),
}

/// The maximum distance of a reminder, in years.
const YEARS_MAX: i64 = 10;
/// The default hours of the parts of a day.
const BEFORE_DAWN: i8 = 5;
const MORNING: i8 = 9;
const NOON: i8 = 12;
const AFTERNOON: i8 = 15;
const EVENING: i8 = 20;

/// A time in a sentence, with its ranges in the sentence. The time is `None` if it is past.
pub(super) type Found = (Option<When>, Vec<Range<usize>>);

/// Finds the time that a sentence names, relative to `now`.
pub(super) fn find(sentence: &str, language: Language, now: &Zoned) -> Option<Found> {
    let mut words = Words { text: sentence.to_lowercase(), spans: Vec::new() };
    // In some scripts, lower case has another length, which would shift the ranges.
    if words.text.len() != sentence.len() {
        words.text = sentence.to_owned();
    }
    let found = match language {
        Language::English => english::read(&mut words, now),
        Language::Chinese => eastern::read(&mut words, &eastern::CHINESE, now),
        Language::Japanese => eastern::read(&mut words, &eastern::JAPANESE, now),
    };
    let when = found?;
    let latest = now.checked_add(YEARS_MAX.years()).map(|at| at.timestamp()).unwrap_or(Timestamp::MAX);
    let when = match when {
        Some(When::Once(at)) if at > latest => return None,
        when => when,
    };
    Some((when, words.spans))
}

/// A sentence, and the parts of it that were parsed as a time.
struct Words {
    text: String,
    spans: Vec<Range<usize>>,
}

impl Words {
    /// Takes the first match of a pattern in the text that is not parsed yet.
    fn take(&mut self, pattern: &Regex) -> Option<Captured> {
        let mut from = 0;
        loop {
            let found = pattern.captures_at(&self.text, from)?;
            let whole = found.get(0)?.range();
            // The last digits of a longer number are not a number of their own.
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

/// The named groups that a pattern matched.
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

/// An hour of the day, as far as the sentence determines it.
#[derive(Clone, Copy, Default)]
struct Clock {
    hour: i8,
    minute: i8,
    /// `true` if the hour can be in the morning or in the evening.
    is_open: bool,
}

impl Clock {
    /// Returns the default time of a part of a day. Without a part, this is the morning.
    fn of(part: Option<Part>) -> Self {
        Self { hour: part.map_or(MORNING, Part::hour), ..Self::default() }
    }

    /// Returns the clock time in a part of the day. The midnight at the end of the day is 24. Without a part, an
    /// ambiguous hour from 1 to 5 is in the afternoon `if_dated`, and stays ambiguous otherwise: "on Friday at 3", but
    /// "at 3" is the next 3 of either kind.
    fn within(self, part: Option<Part>, if_dated: bool) -> Self {
        if !self.is_open {
            return self;
        }
        let hour = match (part, self.hour) {
            (Some(Part::BeforeDawn), 12) => 0,
            (Some(Part::Evening), 12) => 24,
            (Some(Part::Afternoon | Part::Evening), hour @ ..12) => hour + 12,
            (Some(Part::Noon), hour @ ..5) => hour + 12,
            (None, hour @ 1..=5) if if_dated => hour + 12,
            (None, _) => return self,
            (Some(_), hour) => hour,
        };
        Self { hour, is_open: false, ..self }
    }
}

/// A part of a day.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    BeforeDawn,
    Morning,
    Noon,
    Afternoon,
    Evening,
}

impl Part {
    fn hour(self) -> i8 {
        match self {
            Self::BeforeDawn => BEFORE_DAWN,
            Self::Morning => MORNING,
            Self::Noon => NOON,
            Self::Afternoon => AFTERNOON,
            Self::Evening => EVENING,
        }
    }
}

/// Returns the time for a day, a part of the day and a clock time.
fn once(day: Option<Date>, part: Option<Part>, clock: Option<Clock>, now: &Zoned) -> Option<Option<When>> {
    if day.is_none() && part.is_none() && clock.is_none() {
        return None;
    }
    let clock = clock.map_or(Clock::of(part), |clock| clock.within(part, day.is_some()));
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

/// Returns the next given weekday after today; today itself if the clock time is still ahead.
fn next(weekday: Weekday, clock: Option<Clock>, now: &Zoned) -> Option<Date> {
    let today = now.date();
    let is_to_come = clock.is_some_and(|clock| {
        let at = today.at(clock.hour % 24, clock.minute, 0, 0).to_zoned(now.time_zone().clone());
        at.is_ok_and(|at| at > *now)
    });
    if today.weekday() == weekday && is_to_come { Some(today) } else { today.nth_weekday(1, weekday).ok() }
}

/// Returns a date of this year, or of the next one if it is past.
fn date_of(month: i8, day: i8, now: &Zoned) -> Option<Date> {
    let of = |year: i16| Date::new(year, month, day).ok();
    of(now.year()).filter(|date| *date >= now.date()).or_else(|| of(now.year() + 1))
}

fn after(span: Span, now: &Zoned) -> Option<Option<When>> {
    let at = now.checked_add(span).ok()?.timestamp();
    (at > now.timestamp()).then_some(Some(When::Once(at)))
}

/// The weekdays of a repeating reminder, from 0 for Sunday; `None` for every day.
type Days = Option<RangeInclusive<i8>>;

/// Monday to Friday.
const WORKING_DAYS: Days = Some(1..=5);

/// Returns the days for a single weekday.
fn each(weekday: Weekday) -> Days {
    let day = weekday.to_sunday_zero_offset();
    Some(day..=day)
}

/// Returns a cron pattern for a time of day on weekdays. The midnight at the end of a day belongs to the next day.
fn again(clock: Option<Clock>, part: Option<Part>, days: Days) -> Option<Option<When>> {
    let clock = clock.map_or(Clock::of(part), |clock| clock.within(part, days.is_some()));
    let later = clock.hour / 24;
    let days = days.map_or("*".to_owned(), |days| {
        let (first, last) = ((days.start() + later) % 7, (days.end() + later) % 7);
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    Some(Some(When::Again(format!("{} {} * * {days}", clock.minute, clock.hour % 24))))
}

/// Returns a cron pattern for an interval of minutes or hours.
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

/// Returns a span of hours, plus half an hour if `half`.
fn hours(many: i64, half: bool) -> Option<Span> {
    Some(Span::new().try_hours(many).ok()?.minutes(if half { 30 } else { 0 }))
}

/// Returns a span of days, plus half a day if `half`.
fn days(many: i64, half: bool) -> Option<Span> {
    Some(Span::new().try_days(many).ok()?.hours(if half { 12 } else { 0 }))
}
