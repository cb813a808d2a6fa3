//! Parses times in Chinese and Japanese, which write them in the same order.

use std::sync::LazyLock;

use jiff::civil::{Date, Weekday};
use jiff::{Span, ToSpan, Zoned};
use regex::Regex;

use super::super::regex;
use super::{
    Captured, Clock, Part, WORKING_DAYS, When, Words, after, again, date_of, days, each, every, hours, next, once,
};

/// Parses a number in Arabic or Chinese digits, up to 99.
fn number_of(word: &str) -> Option<i64> {
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

fn part_of(name: Option<&str>) -> Option<Part> {
    Some(match name? {
        "凌晨" => Part::BeforeDawn,
        "清晨" | "早上" | "早晨" | "上午" | "早" | "朝" | "午前" => Part::Morning,
        "中午" | "昼" | "正午" => Part::Noon,
        "下午" | "午後" => Part::Afternoon,
        "傍晚" | "晚上" | "夜里" | "晚" | "夜" | "夕方" | "晩" => Part::Evening,
        _ => return None,
    })
}

fn weekday_of(name: &str) -> Option<Weekday> {
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

/// Returns the clock time that a Chinese or Japanese pattern matched.
fn clock_of(found: &Captured) -> Option<(Clock, Option<Part>)> {
    let hour = i8::try_from(number_of(found.get("h")?)?).ok()?;
    let minute = match (found.get("half"), found.get("quarter"), found.get("three"), found.get("m")) {
        (Some(_), ..) => 30,
        (_, Some(_), ..) => 15,
        (_, _, Some(_), _) => 45,
        (.., Some(minutes)) => i8::try_from(number_of(minutes)?).ok()?,
        _ => 0,
    };
    let is_open = (1..=12).contains(&hour);
    let part = part_of(found.get("part"));
    ((0..=24).contains(&hour) && minute < 60).then_some((Clock { hour, minute, is_open }, part))
}

/// The patterns of Chinese or Japanese.
pub(super) struct Language {
    within: &'static LazyLock<Regex>,
    every: &'static LazyLock<Regex>,
    day: &'static LazyLock<Regex>,
    clock: &'static LazyLock<Regex>,
    part: &'static LazyLock<Regex>,
}

pub(super) const CHINESE: Language =
    Language { within: &ZH_IN, every: &ZH_EVERY, day: &ZH_DAY, clock: &ZH_CLOCK, part: &ZH_PART };
pub(super) const JAPANESE: Language =
    Language { within: &JA_IN, every: &JA_EVERY, day: &JA_DAY, clock: &JA_CLOCK, part: &JA_PART };

pub(super) fn read(words: &mut Words, patterns: &Language, now: &Zoned) -> Option<Option<When>> {
    if let Some(found) = words.take(patterns.within) {
        if found.get("half").is_some() {
            return after(30.minutes(), now);
        }
        let (many, half) = (number_of(found.get("n")?)?, found.get("more").or(found.get("more2")).is_some());
        let unit = found.get("unit")?.to_owned();
        return after_span(words, patterns.clock, span_of(many, half, &unit)?, &unit, now);
    }
    let repeated = words.take(patterns.every);
    let day = if repeated.is_none() { words.take(patterns.day) } else { None };
    let clock = words.take(patterns.clock);
    let (clock, mut part) = match &clock {
        Some(found) => clock_of(found).map(|(clock, part)| (Some(clock), part))?,
        None if repeated.is_some() || day.is_some() => {
            (None, words.take(patterns.part).and_then(|found| part_of(found.get("part"))))
        }
        None => (None, None),
    };
    if let Some(found) = repeated {
        part = part_of(found.get("part")).or(part);
        return match (found.get("n"), found.get("day")) {
            (Some(many), _) => {
                every(number_of(many)?, if matches!(found.get("unit"), Some("分钟" | "分")) { 1 } else { 60 })
            }
            _ if found.get("one").is_some() => every(1, 60),
            _ if found.get("work").is_some() => again(clock, part, WORKING_DAYS),
            (_, Some(name)) => again(clock, part, each(weekday_of(name)?)),
            _ => again(clock, part, None),
        };
    }
    if let Some(found) = &day {
        part = part.or(part_of(found.get("p1"))).or(part_of(found.get("p2")));
    }
    once(
        match &day {
            Some(found) => Some(date_of_words(found, clock, now)?),
            None => None,
        },
        part,
        clock,
        now,
    )
}

fn span_of(many: i64, half: bool, unit: &str) -> Option<Span> {
    match unit {
        "分钟" | "分" => Span::new().try_minutes(many).ok(),
        "小时" | "钟头" | "時間" => hours(many, half),
        "天" | "日" => days(many, half),
        "周" | "星期" | "礼拜" | "週間" => Span::new().try_weeks(many).ok(),
        "月" | "か月" | "ヶ月" | "カ月" => Span::new().try_months(many).ok(),
        _ => Span::new().try_years(many).ok(),
    }
}

/// Returns the time after a span. A span of days may have a clock time: 三天后下午两点.
fn after_span(words: &mut Words, clock: &Regex, span: Span, unit: &str, now: &Zoned) -> Option<Option<When>> {
    let is_of_days = !["分钟", "分", "小时", "钟头", "時間"].contains(&unit);
    match words.take(clock).filter(|_| is_of_days) {
        Some(found) => {
            let (clock, part) = clock_of(&found)?;
            once(Some(now.checked_add(span).ok()?.date()), part, Some(clock), now)
        }
        None => after(span, now),
    }
}

fn date_of_words(found: &Captured, clock: Option<Clock>, now: &Zoned) -> Option<Date> {
    let today = now.date();
    if let Some(name) = found.get("day") {
        let weekday = weekday_of(name)?;
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
        let number = |word: &str| i8::try_from(number_of(word)?).ok();
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
