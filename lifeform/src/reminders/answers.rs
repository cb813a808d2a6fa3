//! The answers to a request for a reminder, in the language of the request.

use jiff::{Timestamp, Zoned};

use super::{Language, Reminder, When, period};

impl Language {
    /// Returns the message for a reading that is not a reminder.
    pub(crate) fn refusal(self, is_over: bool) -> &'static str {
        match (self, is_over) {
            (Self::English, false) => {
                "I did not put that down: I cannot read when. Say it as in \"in two hours\", \"tomorrow at 9:00\" or \"every day at 7\"; what repeats does so every ten minutes or less often."
            }
            (Self::English, true) => "I did not put that down: that time is over.",
            (Self::Chinese, false) => {
                "我没有记下来：看不出是什么时候。请这样说：“两小时后”“明天早上九点”或“每天七点”；重复的提醒最短间隔十分钟。"
            }
            (Self::Chinese, true) => "我没有记下来：那个时间已经过去了。",
            (Self::Japanese, false) => {
                "登録していません。いつなのか読み取れませんでした。「2時間後」「明日の9時」「毎日7時」のように言ってください。繰り返しは10分以上の間隔です。"
            }
            (Self::Japanese, true) => "登録していません。その時刻はもう過ぎています。",
        }
    }
}

impl Reminder {
    /// Returns the confirmation of a reminder, with its next time and its text.
    pub(crate) fn confirmation(&self, next: Timestamp, now: &Zoned) -> String {
        let at = next.to_zoned(now.time_zone().clone());
        let is_today = at.date() == now.date();
        let clock = at.strftime("%H:%M");
        let again = match &self.when {
            When::Once(_) => None,
            When::Again(cron) => period::in_words(cron, self.language),
        };
        let what = &self.what;
        match self.language {
            Language::English => {
                let day = if is_today { String::new() } else { at.strftime("on %A, %-d %B, ").to_string() };
                let first = match again {
                    Some(again) => format!("{again}, first {day}at {clock}"),
                    None => format!("{day}at {clock}"),
                };
                if what.is_empty() {
                    format!("I will remind you {first}.")
                } else {
                    format!("I will remind you {first}: {what}")
                }
            }
            Language::Chinese => {
                let day = if is_today { "今天".to_owned() } else { at.strftime("%-m月%-d日").to_string() };
                let first = match again {
                    Some(again) => format!("我会{again}提醒你，第一次在{day} {clock}"),
                    None => format!("我会在{day} {clock} 提醒你"),
                };
                if what.is_empty() { format!("{first}。") } else { format!("{first}：{what}") }
            }
            Language::Japanese => {
                let day = if is_today { "今日".to_owned() } else { at.strftime("%-m月%-d日").to_string() };
                let first = match again {
                    Some(again) => format!("{again}お知らせします。最初は{day} {clock} です"),
                    None => format!("{day} {clock} にお知らせします"),
                };
                if what.is_empty() { format!("{first}。") } else { format!("{first}：{what}") }
            }
        }
    }

    /// Returns the message for a reminder that is due.
    pub(crate) fn text_to_say(&self) -> String {
        match (self.what.is_empty(), self.language) {
            (true, Language::English) => "You asked to be reminded now.".to_owned(),
            (true, Language::Chinese) => "您让我现在提醒您。".to_owned(),
            (true, Language::Japanese) => "お知らせの時間です。".to_owned(),
            (false, _) => self.what.clone(),
        }
    }
}
