//! The period of a repeating reminder, in words. It covers the cron patterns that `when` makes.

use super::Language;

/// The days of the week, from 0 for Sunday.
const ENGLISH_DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const CHINESE_DAYS: [&str; 7] = ["日", "一", "二", "三", "四", "五", "六"];
const JAPANESE_DAYS: [&str; 7] = ["日曜日", "月曜日", "火曜日", "水曜日", "木曜日", "金曜日", "土曜日"];

/// Describes the period of a cron pattern: "every Monday", 每天, 2時間ごと. `None` for a pattern of another form.
pub(super) fn in_words(cron: &str, language: Language) -> Option<String> {
    let fields: Vec<&str> = cron.split(' ').collect();
    let [minute, hour, "*", "*", days] = fields[..] else { return None };
    if let Some(minutes) = minute.strip_prefix("*/") {
        return Some(match language {
            Language::English => format!("every {minutes} minutes"),
            Language::Chinese => format!("每{minutes}分钟"),
            Language::Japanese => format!("{minutes}分ごとに"),
        });
    }
    if hour == "*" || hour.starts_with("*/") {
        let hours = hour.strip_prefix("*/").unwrap_or("1");
        return Some(match (language, hours) {
            (Language::English, "1") => "every hour".to_owned(),
            (Language::English, _) => format!("every {hours} hours"),
            (Language::Chinese, "1") => "每小时".to_owned(),
            (Language::Chinese, _) => format!("每{hours}小时"),
            (Language::Japanese, _) => format!("{hours}時間ごとに"),
        });
    }
    of_days(days, language)
}

fn of_days(days: &str, language: Language) -> Option<String> {
    let named = |names: [&'static str; 7], day: &str| names.get(day.parse::<usize>().ok()?).copied();
    if days == "*" {
        let every = match language {
            Language::English => "every day",
            Language::Chinese => "每天",
            Language::Japanese => "毎日",
        };
        return Some(every.to_owned());
    }
    let (first, last) = days.split_once('-').unwrap_or((days, days));
    Some(match language {
        Language::English if first == last => format!("every {}", named(ENGLISH_DAYS, first)?),
        Language::English => format!("every {} to {}", named(ENGLISH_DAYS, first)?, named(ENGLISH_DAYS, last)?),
        Language::Chinese if first == last => format!("每周{}", named(CHINESE_DAYS, first)?),
        Language::Chinese => format!("每周{}到周{}", named(CHINESE_DAYS, first)?, named(CHINESE_DAYS, last)?),
        Language::Japanese if first == last => format!("毎週{}に", named(JAPANESE_DAYS, first)?),
        Language::Japanese => {
            format!("毎週{}から{}まで", named(JAPANESE_DAYS, first)?, named(JAPANESE_DAYS, last)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_said_in_words() {
        for (cron, words) in [
            ("0 7 * * *", ["every day", "每天", "毎日"]),
            ("15 9 * * 1", ["every Monday", "每周一", "毎週月曜日に"]),
            ("0 9 * * 1-5", ["every Monday to Friday", "每周一到周五", "毎週月曜日から金曜日まで"]),
            ("*/30 * * * *", ["every 30 minutes", "每30分钟", "30分ごとに"]),
            ("0 * * * *", ["every hour", "每小时", "1時間ごとに"]),
            ("0 */2 * * *", ["every 2 hours", "每2小时", "2時間ごとに"]),
        ] {
            let languages = [Language::English, Language::Chinese, Language::Japanese];
            assert_eq!(languages.map(|language| in_words(cron, language).unwrap()), words, "{cron}");
        }
        assert_eq!(in_words("0 7 1 * *", Language::English), None);
    }
}
