//! Times at which something is to be done, read from the words of people: English, Chinese, Japanese.

mod eastern;
mod english;

use std::ops::{Range, RangeInclusive};

use jiff::civil::{Date, Weekday};
use jiff::{Span, Timestamp, ToSpan, Zoned};
use regex::{Captures, Regex};

use super::Language;

/// The time at which something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Once.
    Once(Timestamp),
    /// Repeatedly, by a cron pattern of five fields.
    Again(String),
}

/// The latest that something is put down for: ten years ahead.
const YEARS_MAX: i64 = 10;
/// The hours of the parts of a day, when no clock time is given.
const BEFORE_DAWN: i8 = 5;
const MORNING: i8 = 9;
const NOON: i8 = 12;
const AFTERNOON: i8 = 15;
const EVENING: i8 = 20;

/// A time in a sentence: `None` for one that is over; and its places in the sentence.
pub(super) type Found = (Option<When>, Vec<Range<usize>>);

/// Finds the time that a sentence names, reckoned from `now`.
pub(super) fn find(sentence: &str, language: Language, now: &Zoned) -> Option<Found> {
    let mut words = Words { text: sentence.to_lowercase(), spans: Vec::new() };
    // Lower case may be longer in some writings; then places would be others.
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

/// A sentence, and the parts of it that were read as a time.
struct Words {
    text: String,
    spans: Vec<Range<usize>>,
}

impl Words {
    /// Takes the first match of a pattern in the text that was not read yet.
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

/// An hour of the day, as far as it was said.
#[derive(Clone, Copy, Default)]
struct Clock {
    hour: i8,
    minute: i8,
    /// `true` if the hour can be meant in the morning or in the evening.
    is_open: bool,
}

impl Clock {
    /// Returns the time of a part of a day when no hour is given: the morning when no part is given either.
    fn of(part: Option<Part>) -> Self {
        Self { hour: part.map_or(MORNING, Part::hour), ..Self::default() }
    }

    /// The clock in a part of the day, with 24 for the midnight that ends the day. Without a part an open hour from 1
    /// to 5 is in the afternoon `if_dated`, and stays open otherwise: "on Friday at 3", but "at 3" is the next 3 of
    /// either kind.
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

/// Part of a day.
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

/// The time of a day and a clock as they were said.
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

/// Days of the week on which a reminder comes again, from 0 for Sunday; `None` for every day.
type Days = Option<RangeInclusive<i8>>;

/// Monday to Friday.
const WORKING_DAYS: Days = Some(1..=5);

/// A single day of the week.
fn each(weekday: Weekday) -> Days {
    let day = weekday.to_sunday_zero_offset();
    Some(day..=day)
}

/// A cron pattern for a time of the day, on days of the week. The midnight that ends a day is on the next one.
fn again(clock: Option<Clock>, part: Option<Part>, days: Days) -> Option<Option<When>> {
    let clock = clock.map_or(Clock::of(part), |clock| clock.within(part, days.is_some()));
    let later = clock.hour / 24;
    let days = days.map_or("*".to_owned(), |days| {
        let (first, last) = ((days.start() + later) % 7, (days.end() + later) % 7);
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
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

/// A span of hours, with half an hour more if `half`.
fn hours(many: i64, half: bool) -> Option<Span> {
    Some(Span::new().try_hours(many).ok()?.minutes(if half { 30 } else { 0 }))
}

/// A span of days, with half a day more if `half`.
fn days(many: i64, half: bool) -> Option<Span> {
    Some(Span::new().try_days(many).ok()?.hours(if half { 12 } else { 0 }))
}
