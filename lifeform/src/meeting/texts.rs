//! The messages of a coordinator, in the language of its agenda. They quote what people said and add nothing of their own.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{Item, Meeting, Post, Side, View};
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

    /// Returns the agenda with the state of each item.
    pub(crate) fn agenda(&self) -> String {
        let items = &self.0.items;
        let begins = self.by("I coordinate this topic. ", "我来主持这个话题。", "この話題の進行役をします。");
        let mut text = format!("{begins}{}", self.by("Agenda:", "议程：", "議題："));
        let now = self.0.current();
        for (n, item) in items.iter().enumerate() {
            let colon = self.by(": ", "：", "：");
            let sides: Vec<String> = item
                .sides()
                .into_iter()
                .map(|side| {
                    format!("{}{colon}{}", self.side(item, side), self.names(item.on(Some(side)).map(|(who, _)| who)))
                })
                .collect();
            let silent = Some(self.names(self.0.silent(n))).filter(|silent| !silent.is_empty());
            let silent =
                silent.map(|silent| format!("{}{colon}{silent}", self.by("not heard yet", "还没发言", "未発言")));
            let sides = sides.into_iter().chain(silent).collect::<Vec<_>>().join("; ");
            let state = match (&item.decision, item.is_left) {
                (Some(decision), _) => {
                    let decided = self.by("decided", "已决定", "決定");
                    format!("{decided}{colon}{} ({})", self.quote(&decision.text), self.names(&decision.by))
                }
                (None, true) => self.by("left open", "先放着", "保留").to_owned(),
                (None, false) if now == Some(n) && !item.views.is_empty() => {
                    format!("{} ({sides})", self.by("open", "讨论中", "議論中"))
                }
                (None, false) if now == Some(n) => self.by("open", "讨论中", "議論中").to_owned(),
                (None, false) => self.by("later", "稍后", "このあと").to_owned(),
            };
            let _ = write!(text, "\n{}. {} – {state}", n + 1, item.text);
        }
        text
    }

    /// Returns the text of another message.
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
                let names = self.names(self.0.silent(n));
                match self.0.language {
                    Language::English => {
                        format!("{names}: we have not heard you about “{}”. What do you think?", text_of(n))
                    }
                    Language::Chinese => format!("{names}：关于“{}”还没听到你的意见，你怎么看？", text_of(n)),
                    Language::Japanese => {
                        format!("{names}さん：「{}」についてまだご意見を伺っていません。どう思いますか。", text_of(n))
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
            Post::Decided(n) => {
                let Some(decision) = &self.0.items[n].decision else { return String::new() };
                let (by, words, last) = (self.names(&decision.by), self.quote(&decision.text), self.end());
                match self.0.language {
                    Language::English => format!("Decided about “{}”: {words} ({by}).{last}", text_of(n)),
                    Language::Chinese => format!("关于“{}”已决定：{words}（{by}）。{last}", text_of(n)),
                    Language::Japanese => format!("「{}」は決まりました：{words}（{by}）。{last}", text_of(n)),
                }
            }
            Post::Left(n) => match self.0.language {
                Language::English => format!("“{}” stays open.{}", text_of(n), self.end()),
                Language::Chinese => format!("“{}”先放着。{}", text_of(n), self.end()),
                Language::Japanese => format!("「{}」は保留にします。{}", text_of(n), self.end()),
            },
        }
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

    /// Returns the sentence that ends the last item; an empty text before.
    fn end(&self) -> &str {
        match self.0.current() {
            None => self.by(" That was the last item.", "议程到此结束。", "以上で議題は終わりです。"),
            Some(_) => "",
        }
    }

    fn sum(&self, n: usize) -> String {
        let item = &self.0.items[n];
        let colon = self.by(": ", "：", "：");
        let said = |view: &View| self.quote(&view.text);
        let mut lines = vec![match self.0.language {
            Language::English => format!("So far about “{}”:", item.text),
            Language::Chinese => format!("关于“{}”，目前的意见：", item.text),
            Language::Japanese => format!("「{}」について、これまでの意見：", item.text),
        }];
        for side in item.sides().into_iter().map(Some).chain([None]) {
            let people: Vec<String> =
                item.on(side).map(|(who, view)| format!("{} {}", self.names([who]), said(view))).collect();
            let name = side.map_or_else(
                || self.by("no side", "没有表态", "どちらでもない").to_owned(),
                |side| self.side(item, side),
            );
            if !people.is_empty() {
                lines.push(format!("- {name}{colon}{}", people.join("; ")));
            }
        }
        let silent = self.names(self.0.silent(n));
        if !silent.is_empty() {
            lines.push(format!("- {}{colon}{silent}", self.by("not heard", "没有发言", "未発言")));
        }
        let who = self.names(&self.0.moderators);
        lines.push(match self.0.language {
            Language::English => format!("{who}: what is decided? (“Decided: …”, or “next” to leave it open.)"),
            Language::Chinese => format!("{who}：怎么决定？（“决定：……”，或者“下一个”先放着。）"),
            Language::Japanese => format!("{who}さん：どうしますか。（「決定：…」、または「次へ」で保留。）"),
        });
        lines.join("\n")
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
