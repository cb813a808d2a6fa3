//! The numbers in the words of people, in digits and in words of English, Chinese and Japanese: what a small model writes into a call
//! counts only if it was said, and once as often as it was said. Pure functions.

use std::collections::BTreeSet;

use rust_decimal::Decimal;
use serde_json::{Map, Value};

use super::expression::decimal_of;

/// The English words of numbers.
const WORDS: [(&str, u32); 33] = [
    ("a", 1),
    ("an", 1),
    ("one", 1),
    ("two", 2),
    ("couple", 2),
    ("weekend", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("week", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("dozen", 12),
    ("twelve", 12),
    ("thirteen", 13),
    ("fourteen", 14),
    ("fortnight", 14),
    ("fifteen", 15),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("sixty", 60),
    ("hundred", 100),
    ("thousand", 1000),
];

/// Returns the arguments of a call without the numbers that nobody said. A number fills as many members as it was said times, in the
/// order in which the schema requires them. Another member is null where the schema of the parameters allows it, and absent
/// elsewhere. Arguments that are no JSON object stay as they are.
pub(crate) fn only_said(params: &str, said: &str, parameters: &Value) -> String {
    let Ok(Value::Object(given)) = serde_json::from_str::<Value>(params) else { return params.to_owned() };
    let mut numbers = numbers_in(said);
    let allows_null = |name: &str| {
        let kinds = &parameters["properties"][name]["type"];
        kinds == "null" || kinds.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"))
    };
    let required: Vec<&str> =
        parameters["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut members: Vec<(String, Value)> = given.into_iter().collect();
    members.sort_by_key(|(name, _)| required.iter().position(|known| known == name).unwrap_or(required.len()));
    let mut is_said = |value: &Value| {
        let Some(number) = decimal_of(value).filter(|_| value.is_number()) else { return true };
        let place = numbers.iter().position(|readings| readings.contains(&number));
        place.map(|place| numbers.swap_remove(place)).is_some()
    };
    let kept = members.into_iter().filter_map(|(name, value)| match is_said(&value) {
        true => Some((name, value)),
        false if allows_null(&name) => Some((name, Value::Null)),
        false => None,
    });
    Value::Object(kept.collect::<Map<_, _>>()).to_string()
}

/// Returns the numbers in a text, each with its readings: `1,200` may be 1200 and 1.2.
fn numbers_in(text: &str) -> Vec<BTreeSet<Decimal>> {
    let text: String = text.chars().map(super::expression::narrow).collect::<String>().to_lowercase();
    let mut all: Vec<BTreeSet<Decimal>> = Vec::new();
    let mut rest = &*text;
    while let Some(first) = rest.chars().next() {
        let mut numbers = BTreeSet::new();
        let run = |fits: &dyn Fn(char) -> bool| &rest[..rest.find(|c| !fits(c)).unwrap_or(rest.len())];
        let taken = if first.is_ascii_digit() {
            let digits = run(&|c| c.is_ascii_digit() || matches!(c, '.' | ',' | '\'' | '_'));
            let plain = digits.trim_end_matches(['.', ',', '\'', '_']);
            let next = rest[plain.len()..].trim_start();
            let after = next.chars().next();
            let grouped: String = plain.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
            // Dots before three digits each group thousands, too.
            let is_grouped = plain.split('.').skip(1).all(|group| group.len() == 3) && plain.contains('.');
            let dotted = is_grouped.then(|| plain.replace('.', ""));
            for read in [Some(grouped), Some(plain.replace(',', ".")), dotted].into_iter().flatten() {
                let Ok(number) = read.parse::<Decimal>() else { continue };
                numbers.insert(number);
                let times = match after {
                    Some('k' | '千') => 1_000,
                    Some('百') => 100,
                    Some('万' | '萬') => 10_000,
                    Some('亿' | '億') => 100_000_000,
                    _ if next.starts_with("million") => 1_000_000,
                    _ if next.starts_with("thousand") => 1_000,
                    Some('%') => {
                        numbers.insert(number / Decimal::ONE_HUNDRED);
                        1
                    }
                    _ => 1,
                };
                numbers.extend(number.checked_mul(Decimal::from(times)));
            }
            digits
        } else if first.is_ascii_alphabetic() {
            let word = run(&|c| c.is_ascii_alphabetic());
            let compound = compound(rest);
            numbers.extend(compound.iter().flat_map(|(readings, _)| readings.iter().copied()));
            compound.map_or(word, |(_, bytes)| &rest[..bytes])
        } else if ideograph(first).is_some() {
            let word = run(&|c| ideograph(c).is_some());
            numbers.extend(of_ideographs(word));
            word
        } else {
            &rest[..first.len_utf8()]
        };
        all.extend((!numbers.is_empty()).then_some(numbers));
        rest = &rest[taken.len()..];
    }
    all
}

/// Returns the readings of the number words with which a text begins, and their length in bytes: `two thousand five hundred` is 2500, and
/// each word is a number of its own, too.
fn compound(text: &str) -> Option<(Vec<Decimal>, usize)> {
    let (mut readings, mut bytes) = (Vec::new(), 0);
    let (mut whole, mut part) = (0_u64, 0_u64);
    loop {
        let rest = &text[bytes..];
        let skipped = rest.len() - rest.trim_start_matches([' ', '-']).len();
        let word = &rest[skipped..];
        let word = &word[..word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len())];
        // `and` stands within a number only.
        if word == "and" && !readings.is_empty() && compound(rest[skipped + 3..].trim_start()).is_some() && part >= 100
        {
            bytes += skipped + 3;
            continue;
        }
        let singular = word.strip_suffix('s').unwrap_or(word);
        let known =
            WORDS.iter().find(|(known, _)| *known == word || *known == singular).map(|(_, number)| u64::from(*number));
        let Some(number) = known.filter(|_| skipped == 0 || !readings.is_empty()) else { break };
        // `two nights` after `a week` is another number.
        let joins = match number {
            100 | 1_000 => part > 0,
            1..=9 => part == 0 || (part % 10 == 0 && part % 100 != 10),
            10..=90 => part == 0 || part % 100 == 0,
            _ => part == 0,
        };
        if !joins && !readings.is_empty() {
            break;
        }
        bytes += skipped + word.len();
        readings.push(Decimal::from(number));
        match number {
            100 => part = part.max(1).saturating_mul(100),
            1_000 => (whole, part) = (whole.saturating_add(part.max(1).saturating_mul(1_000)), 0),
            number => part = part.saturating_add(number),
        }
    }
    if readings.is_empty() {
        return None;
    }
    readings.push(Decimal::from(whole.saturating_add(part)));
    Some((readings, bytes))
}

/// Returns the value of a Chinese or Japanese numeral, and whether it multiplies the one before it.
fn ideograph(c: char) -> Option<(u32, bool)> {
    Some(match c {
        '〇' | '零' => (0, false),
        '一' => (1, false),
        '二' | '两' | '兩' => (2, false),
        '三' => (3, false),
        '四' => (4, false),
        '五' => (5, false),
        '六' => (6, false),
        '七' => (7, false),
        '八' => (8, false),
        '九' => (9, false),
        '十' => (10, true),
        '百' => (100, true),
        '千' => (1_000, true),
        '万' | '萬' => (10_000, true),
        _ => return None,
    })
}

/// Returns the number that a run of numerals writes; `None` if it is too large.
fn of_ideographs(word: &str) -> Option<Decimal> {
    let (mut whole, mut below_ten_thousand, mut digit) = (0_u64, 0_u64, None::<u64>);
    for (value, multiplies) in word.chars().filter_map(ideograph) {
        let value = u64::from(value);
        match multiplies {
            false => digit = Some(digit.unwrap_or_default().checked_mul(10)?.checked_add(value)?),
            true if value == 10_000 => {
                let before = below_ten_thousand.checked_add(digit.take().unwrap_or_default())?.max(1);
                whole = whole.checked_add(before.checked_mul(value)?)?;
                below_ten_thousand = 0;
            }
            true => {
                let before = digit.take().unwrap_or(1);
                below_ten_thousand = below_ten_thousand.checked_add(before.checked_mul(value)?)?;
            }
        }
    }
    Some(Decimal::from(whole.checked_add(below_ten_thousand)?.checked_add(digit.unwrap_or_default())?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn has(text: &str, number: &str) -> bool {
        let number = number.parse().unwrap();
        numbers_in(text).iter().any(|readings| readings.contains(&number))
    }

    #[test]
    fn numbers_are_read_in_digits_and_in_words() {
        for (text, number) in [
            ("3 nights", "3"),
            ("at 12,000 a night", "12000"),
            ("12,50 each", "12.50"),
            ("$99.90.", "99.9"),
            ("about 2k", "2000"),
            ("15% off", "0.15"),
            ("for two of us", "2"),
            ("Three nights", "3"),
            ("a fortnight", "14"),
            ("twenty-five nights", "25"),
            ("two thousand five hundred euros", "2500"),
            ("one hundred and twenty", "120"),
            ("2 million", "2000000"),
            ("1.200 Euro", "1200"),
            ("1.5 km", "1.5"),
            ("住三晚", "3"),
            ("两个人", "2"),
            ("预算１２００元", "1200"),
            ("一万二千元", "12000"),
            ("三万", "30000"),
            ("1.5万", "15000"),
            ("十二泊", "12"),
            ("百二十", "120"),
        ] {
            assert!(has(text, number), "{text}: {:?}", numbers_in(text));
        }
        assert!(!has("3 nights at 500", "1500") && !has("no figure", "0") && !has("one-way", "2"));
        assert_eq!(numbers_in(&"九".repeat(60)).len(), 0, "too large");
    }

    #[test]
    fn what_nobody_said_is_left_out_of_a_call() {
        let parameters = json!({"properties": {"nights": {"type": "integer"}, "budget": {"type": ["number", "null"]}}});
        let params = r#"{"city": "Kyoto", "nights": 4, "budget": 500}"#;
        let kept = |said| serde_json::from_str::<Value>(&only_said(params, said, &parameters)).unwrap();
        assert_eq!(kept("four nights for 500"), json!({"city": "Kyoto", "nights": 4, "budget": 500}));
        assert_eq!(kept("some nights"), json!({"city": "Kyoto", "budget": null}));
        let twice = |said| only_said(r#"{"b": 3, "a": 3, "c": 3}"#, said, &json!({"required": ["a", "b", "c"]}));
        assert_eq!(twice("3 nights"), r#"{"a":3}"#, "a number fills one member");
        assert_eq!(twice("three of us for 3 nights"), r#"{"a":3,"b":3}"#);
        assert_eq!(only_said("{\"nights\": ", "x", &parameters), "{\"nights\": ");
    }
}
