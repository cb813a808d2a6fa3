//! The messages of a coordinator, in the language of its agenda. They name who takes which side, and quote decisions only.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Item, Meeting, Post, Side};
use crate::reminders::Language;

/// The maximum length of a quotation, in characters.
const QUOTED_CHARS: usize = 100;

/// The texts of a meeting.
pub(crate) struct Texts<'m>(pub(crate) &'m Meeting);

impl Texts<'_> {
    /// Returns the text in the language of the meeting.
    fn by<'t>(&self, english: &'t str, chinese: &'t str, japanese: &'t str) -> &'t str {
        match self.0.language {
            Language::English => english,
            Language::Chinese => chinese,
            Language::Japanese => japanese,
        }
    }

    fn names<'w>(&self, who: impl IntoIterator<Item = &'w Arc<str>>) -> String {
        let names = who.into_iter().map(|who| self.0.people.get(who).map_or(&**who, String::as_str));
        names.collect::<Vec<_>>().join(self.by(", ", "、", "、"))
    }

    /// Returns the name of a side of an item.
    pub(crate) fn side(&self, item: &Item, side: Side) -> String {
        match side {
            Side::For => self.by("for", "赞成", "賛成").to_owned(),
            Side::Against => self.by("against", "反对", "反対").to_owned(),
            Side::Option(n) => item.options.get(n).cloned().unwrap_or_default(),
        }
    }

    /// Returns who takes which side of an item, who takes none, and who was not heard.
    fn views(&self, n: usize) -> Vec<String> {
        let item = &self.0.items[n];
        let colon = self.by(": ", "：", "：");
        let line = |name: &str, names: String| (!names.is_empty()).then(|| format!("{name}{colon}{names}"));
        let sides = item.sides().into_iter();
        let sides = sides.filter_map(|side| line(&self.side(item, side), self.names(item.on(Some(side)))));
        let none = line(self.by("no side", "没有表态", "どちらでもない"), self.names(item.on(None)));
        let silent = line(self.by("not heard yet", "还没发言", "未発言"), self.names(self.0.silent(n)));
        sides.chain(none).chain(silent).collect()
    }

    /// Returns the result of a decided item: its side, or only that it is decided.
    fn result(&self, item: &Item) -> String {
        let decided = self.by("decided", "已决定", "決定");
        match item.decision.as_ref().and_then(|decision| decision.side) {
            Some(side) => format!("{decided}{}{}", self.by(": ", "：", "："), self.side(item, side)),
            None => decided.to_owned(),
        }
    }

    /// Returns the agenda with the state of each item. It quotes nobody.
    fn agenda(&self) -> String {
        let begins = self.by("I coordinate this topic. ", "我来主持这个话题。", "この話題の進行役をします。");
        let mut text = format!("{begins}{}", self.by("Agenda:", "议程：", "議題："));
        let now = self.0.current();
        for (n, item) in self.0.items.iter().enumerate() {
            let open = self.by("open", "讨论中", "議論中");
            let state = match () {
                () if item.decision.is_some() => self.result(item),
                () if item.left_by.is_some() => self.by("left open", "先放着", "保留").to_owned(),
                () if now == Some(n) && !item.views.is_empty() => format!("{open} ({})", self.views(n).join("; ")),
                () if now == Some(n) => open.to_owned(),
                () => self.by("later", "稍后", "このあと").to_owned(),
            };
            let _ = write!(text, "\n{}. {} – {state}", n + 1, item.text);
        }
        text
    }

    /// Returns the text of a message.
    pub(crate) fn post(&self, post: Post) -> String {
        let text_of = |n: usize| self.0.items[n].text.as_str();
        match post {
            Post::Agenda => self.agenda(),
            Post::Item(n) => {
                let names = self.names(self.0.people.keys());
                let asks = self.by("what do you think?", "大家怎么看？", "どう思いますか。");
                format!("{}. {}\n{names}{}{asks}", n + 1, text_of(n), self.by(": ", "：", "："))
            }
            Post::Ask(n) => {
                let (names, text) = (self.names(self.0.silent(n)), text_of(n));
                match self.0.language {
                    Language::English => format!("{names}: we have not heard you about “{text}”. What do you think?"),
                    Language::Chinese => format!("{names}：关于“{text}”还没听到你的意见，你怎么看？"),
                    Language::Japanese => {
                        format!("{names}さん：「{text}」についてまだご意見を伺っていません。どう思いますか。")
                    }
                }
            }
            Post::Sum(n) => self.sum(n),
            Post::Which(n) => {
                let sides = self.0.items[n].options.join(self.by(", ", "、", "、"));
                match self.0.language {
                    Language::English => format!("Which one is decided: {sides}? Please name it."),
                    Language::Chinese => format!("决定的是哪一个：{sides}？请写出来。"),
                    Language::Japanese => format!("どれに決まりましたか：{sides}。名前を書いてください。"),
                }
            }
            Post::End(n) => self.end(n),
        }
    }

    /// Returns the decision about an item in the words of the moderator, or that the item stays open.
    fn end(&self, n: usize) -> String {
        let item = &self.0.items[n];
        let is_last = self.0.current().is_none() && n + 1 == self.0.items.len();
        let last = self.by(" That was the last item.", "议程到此结束。", "以上で議題は終わりです。");
        let last = if is_last { last } else { "" };
        let text = &item.text;
        match &item.decision {
            Some(decision) => {
                let (by, words) = (self.names([&decision.by]), self.quote(&decision.text));
                match self.0.language {
                    Language::English => format!("Decided about “{text}”: {words} ({by}).{last}"),
                    Language::Chinese => format!("关于“{text}”已决定：{words}（{by}）。{last}"),
                    Language::Japanese => format!("「{text}」は決まりました：{words}（{by}）。{last}"),
                }
            }
            None if item.left_by.is_some() => match self.0.language {
                Language::English => format!("“{text}” stays open.{last}"),
                Language::Chinese => format!("“{text}”先放着。{last}"),
                Language::Japanese => format!("「{text}」は保留にします。{last}"),
            },
            // The word that ended it was taken back.
            None => match self.0.language {
                Language::English => format!("“{text}” is open again."),
                Language::Chinese => format!("“{text}”重新讨论。"),
                Language::Japanese => format!("「{text}」はまた議論します。"),
            },
        }
    }

    fn sum(&self, n: usize) -> String {
        let text = &self.0.items[n].text;
        let begins = match self.0.language {
            Language::English => format!("So far about “{text}”:"),
            Language::Chinese => format!("关于“{text}”，目前的意见："),
            Language::Japanese => format!("「{text}」について、これまでの意見："),
        };
        let who = self.names(&self.0.moderators);
        let asks = match self.0.language {
            Language::English => format!("{who}: what is decided? (“Decided: …”, or “next” to leave it open.)"),
            Language::Chinese => format!("{who}：怎么决定？（“决定：……”，或者“下一个”先放着。）"),
            Language::Japanese => format!("{who}さん：どうしますか。（「決定：…」、または「次へ」で保留。）"),
        };
        let lines = self.views(n).into_iter().map(|line| format!("- {line}"));
        std::iter::once(begins).chain(lines).chain([asks]).collect::<Vec<_>>().join("\n")
    }

    /// Returns a decision as a sentence, for the mind.
    pub(super) fn decision(&self, item: &Item) -> String {
        let Some(decision) = &item.decision else { return String::new() };
        let (words, text) = (self.quote(&decision.text), &item.text);
        match self.0.language {
            Language::English => format!("It was decided about “{text}”: {words}."),
            Language::Chinese => format!("关于“{text}”的决定：{words}。"),
            Language::Japanese => format!("「{text}」の決定：{words}。"),
        }
    }

    /// Returns the words of a person on one line and in quotation marks, so that they are not taken for the coordinator's.
    pub(super) fn quote(&self, text: &str) -> String {
        let line: String = text.chars().take(QUOTED_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let more = if text.chars().nth(QUOTED_CHARS).is_some() { "…" } else { "" };
        let bare = line.replace(['“', '”', '「', '」', '"'], "'");
        match self.0.language {
            Language::Japanese => format!("「{bare}{more}」"),
            Language::English | Language::Chinese => format!("“{bare}{more}”"),
        }
    }
}
