//! A meeting: a topic that a lifeform coordinates. Its state follows from the stance and from the messages after it, so it
//! survives whatever the canvas survives, and a word that is amended or retracted counts as it stands. The rules ask no model.

mod record;
mod requests;
mod texts;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use store::Timestamp;

use crate::canvas::chat::{self, MessageView, Stance, TopicRole};
use crate::canvas::{State, user};
use crate::reminders::Language;
pub(crate) use requests::{Request, request};
pub(crate) use texts::Texts;
pub(crate) use views::Side;
use views::{Word, options, side, word};

/// The time, and the number of messages, after which the coordinator asks who is silent, and then sums up.
const WAITS: SignedDuration = SignedDuration::from_mins(15);
const WAITS_FOR: usize = 10;
/// The maximum number of people of a meeting.
const PEOPLE_MAX: usize = 32;

/// The kinds of a coordinator's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    /// The agenda, which is pinned and amended.
    Agenda,
    /// The beginning of an item.
    Item(usize),
    /// A question to those who are silent about an item.
    Ask(usize),
    /// The views about an item.
    Sum(usize),
    /// A question which of several is decided.
    Which(usize),
    /// The decision about an item.
    Decided(usize),
    /// An item that is left open.
    Left(usize),
}

impl Post {
    /// Returns the id of the message in a meeting that began at a revision. A repetition after a crash posts it once.
    pub(crate) fn id(self, rev: u64) -> Arc<str> {
        match self {
            Self::Agenda => format!("msg_meeting_{rev}_agenda"),
            Self::Item(n) => format!("msg_meeting_{rev}_item_{n}"),
            Self::Ask(n) => format!("msg_meeting_{rev}_ask_{n}"),
            Self::Sum(n) => format!("msg_meeting_{rev}_sum_{n}"),
            Self::Which(n) => format!("msg_meeting_{rev}_which_{n}"),
            Self::Decided(n) => format!("msg_meeting_{rev}_decided_{n}"),
            Self::Left(n) => format!("msg_meeting_{rev}_left_{n}"),
        }
        .into()
    }
}

/// The word of a person about an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    /// The side; `None` if the person spoke and took none.
    pub(crate) side: Option<Side>,
    /// The message.
    pub(crate) message: Arc<str>,
    /// The text.
    pub(crate) text: String,
    /// The revision at which the message was posted; 0 for a reaction.
    posted_at: u64,
}

/// A decision about an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// The people who decided.
    pub(crate) by: Vec<Arc<str>>,
    /// The message that decides; the last view where all agree.
    pub(crate) message: Arc<str>,
    /// The words of the message.
    pub(crate) text: String,
    /// The side, if the words name one.
    pub(crate) side: Option<Side>,
}

/// An item of the agenda.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    /// The text.
    pub(crate) text: String,
    /// The alternatives; none if the answer is yes or no.
    pub(crate) options: Vec<String>,
    /// The latest view of each person who spoke about it.
    pub(crate) views: BTreeMap<Arc<str>, View>,
    /// The decision.
    pub(crate) decision: Option<Decision>,
    /// `true` if a moderator left it open.
    pub(crate) is_left: bool,
    /// `true` if a moderator decided, and it is not clear for what.
    is_unclear: bool,
    begun_at: Option<Timestamp>,
    asked_at: Option<Timestamp>,
    is_summed: bool,
    /// The messages of people since the coordinator last spoke of it.
    said: usize,
}

impl Item {
    fn is_over(&self) -> bool {
        self.decision.is_some() || self.is_left
    }

    /// Returns the people on a side.
    pub(crate) fn on(&self, wanted: Option<Side>) -> impl Iterator<Item = (&Arc<str>, &View)> {
        self.views.iter().filter(move |(_, view)| view.side == wanted)
    }

    /// Returns the sides that somebody takes, in their order.
    pub(crate) fn sides(&self) -> BTreeSet<Side> {
        self.views.values().filter_map(|view| view.side).collect()
    }

    /// Returns the side that most take; `None` if there is no such side.
    fn leading(&self) -> Option<Side> {
        let mut counted: Vec<(usize, Side)> =
            self.sides().into_iter().map(|side| (self.on(Some(side)).count(), side)).collect();
        counted.sort_unstable_by_key(|(count, _)| std::cmp::Reverse(*count));
        match counted[..] {
            [] => None,
            [(one, _), (other, _), ..] if one == other => None,
            [(_, side), ..] => Some(side),
        }
    }
}

/// The state of a meeting.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// The revision at which it began.
    pub(crate) rev: u64,
    /// The title of the topic.
    pub(crate) title: String,
    /// The items.
    pub(crate) items: Vec<Item>,
    /// The people, with their names.
    pub(crate) people: BTreeMap<Arc<str>, String>,
    /// The people who may decide.
    pub(crate) moderators: BTreeSet<Arc<str>>,
    /// The language of the agenda.
    pub(crate) language: Language,
    /// The id of the pinned message of the topic.
    pub(crate) pinned: Option<Arc<str>>,
    /// The text of the posted agenda.
    pub(crate) posted: Option<String>,
    until: Option<Timestamp>,
}

impl Meeting {
    /// Reads the meeting that `me` coordinates in a topic; `None` if it coordinates none, or the topic is archived.
    pub(crate) fn read(state: &State, topic: &str, me: &str, is_operator: impl Fn(&str) -> bool) -> Option<Self> {
        let in_topic = chat::topic_in(state, topic).filter(|topic| !topic.is_archived())?;
        let stance = in_topic.stance_of(me).filter(|own| own.stance() == Stance::Coordinator)?;
        let rev = stance.rev();
        let listens = |who: &str| in_topic.role_of(who) == Some(TopicRole::Listener);
        let posters = chat::messages_in(state, topic).map(|message| (message.sender(), None));
        let people = in_topic.principals().chain(posters).map(|(who, _)| who).filter(|who| who.starts_with("user:"));
        let people: BTreeSet<&str> = people.filter(|who| !listens(who)).take(PEOPLE_MAX * 4).collect();
        let moderates = |who: &str| {
            in_topic.is_created_by(who) || in_topic.role_of(who) == Some(TopicRole::Moderator) || is_operator(who)
        };
        let name = |who: &str| {
            user::name_in(state, who).unwrap_or_else(|| who.split_once(':').map_or(who, |(_, name)| name)).to_owned()
        };
        let mut meeting = Self {
            rev,
            title: in_topic.title().to_owned(),
            items: stance
                .agenda()
                .map(|text| Item { text: text.to_owned(), options: options(text), ..Item::default() })
                .collect(),
            moderators: people.iter().filter(|who| moderates(who)).map(|who| Arc::from(*who)).collect(),
            people: people.into_iter().take(PEOPLE_MAX).map(|who| (who.into(), name(who))).collect(),
            language: Language::of(&stance.agenda().collect::<String>()),
            pinned: in_topic.pinned().map(Arc::from),
            posted: chat::message_in(state, topic, &Post::Agenda.id(rev)).map(|agenda| agenda.content().to_owned()),
            until: stance.until(),
        };
        for message in chat::messages_in(state, topic) {
            let is_heard = message.is_by(me) || message.is_said();
            if is_heard && message.created_rev().is_some_and(|said| said > rev) {
                meeting.hear(message, me);
            }
        }
        meeting.count_reactions(state, topic);
        meeting.settle();
        Some(meeting)
    }

    /// Returns the item that is spoken about; `None` at the end.
    pub(crate) fn current(&self) -> Option<usize> {
        self.items.iter().position(|item| !item.is_over())
    }

    fn hear(&mut self, message: MessageView<'_>, me: &str) {
        let id = message.id();
        if message.is_by(me) {
            let posted = |post: fn(usize) -> Post| (0..self.items.len()).find(|n| *post(*n).id(self.rev) == *id);
            if let Some(n) = posted(Post::Item) {
                self.items[n].begun_at = message.at();
            } else if let Some(n) = posted(Post::Ask) {
                (self.items[n].asked_at, self.items[n].said) = (message.at(), 0);
            } else if let Some(n) = posted(Post::Sum) {
                self.items[n].is_summed = true;
            }
            return;
        }
        let Some(n) = self.item_of(message).filter(|_| self.people.contains_key(message.sender())) else { return };
        let is_moderator = self.moderators.contains(message.sender());
        let item = &mut self.items[n];
        if item.begun_at.is_none() || item.is_over() {
            return;
        }
        item.said += 1;
        let (text, sender) = (message.content().to_owned(), Arc::<str>::from(message.sender()));
        let side = side(&text, &item.options);
        match word(&text).filter(|word| is_moderator && (*word != Word::Chosen || item.is_summed)) {
            Some(Word::Next) => item.is_left = true,
            Some(Word::Decided | Word::Chosen) => {
                let side = side.or_else(|| item.leading());
                item.is_unclear = side.is_none() && !item.options.is_empty();
                if !item.is_unclear {
                    item.decision = Some(Decision { by: vec![sender], message: id.into(), text, side });
                }
            }
            None => {
                // A word without a side does not take the side back.
                let known = item.views.get(&sender).and_then(|view| view.side);
                if side.is_some() || known.is_none() {
                    item.views.insert(
                        sender,
                        View { side, message: id.into(), text, posted_at: message.created_rev().unwrap_or_default() },
                    );
                }
            }
        }
    }

    /// Returns the item that a message concerns: the one that it replies to or whose number it begins with, otherwise the
    /// present one.
    fn item_of(&self, message: MessageView<'_>) -> Option<usize> {
        let of_reply = message.reply_to().and_then(|to| {
            (0..self.items.len())
                .find(|n| [Post::Item(*n), Post::Ask(*n), Post::Sum(*n)].iter().any(|post| *post.id(self.rev) == *to))
        });
        let content = message.content().trim_start();
        let digits: String = content.chars().take_while(char::is_ascii_digit).take(2).collect();
        let is_marked = content[digits.len()..].starts_with(['.', ':', ')', '：', '、', '）']);
        let of_number = digits.parse::<usize>().ok().filter(|n| is_marked && (1..=self.items.len()).contains(n));
        of_reply.or_else(|| of_number.map(|n| n - 1)).or_else(|| self.current())
    }

    /// Counts thumbs at an item as words for and against it, where a person said nothing else.
    fn count_reactions(&mut self, state: &State, topic: &str) {
        for n in 0..self.items.len() {
            let id = Post::Item(n).id(self.rev);
            let reactions = chat::message_in(state, topic, &id).and_then(MessageView::reactions);
            for (sign, who) in reactions.into_iter().flatten() {
                let side = match sign.as_str() {
                    "👍" | "+1" | "✅" => Side::For,
                    "👎" | "-1" | "❌" => Side::Against,
                    _ => continue,
                };
                let item = &mut self.items[n];
                let who = who.as_array().into_iter().flatten().filter_map(|who| who.as_str());
                for who in who.filter(|who| self.people.contains_key(*who)).map(Arc::<str>::from) {
                    let is_silent = item.views.get(&who).is_none_or(|view| view.side.is_none());
                    if is_silent && item.options.is_empty() && !item.is_over() {
                        item.views.insert(
                            who,
                            View { side: Some(side), message: id.clone(), text: sign.clone(), posted_at: 0 },
                        );
                    }
                }
            }
        }
    }

    /// Decides items about which all people, at least two, say the same.
    fn settle(&mut self) {
        for item in &mut self.items {
            let sides = item.sides();
            let all_agree = sides.len() == 1
                && self.people.len() > 1
                && item.on(sides.first().copied()).count() == self.people.len();
            if !all_agree || item.is_over() {
                continue;
            }
            let last = item.views.values().max_by_key(|view| view.posted_at);
            let (message, text) = last.map(|view| (view.message.clone(), view.text.clone())).unwrap_or_default();
            let by = item.views.keys().cloned().collect();
            item.decision = Some(Decision { by, message, text, side: sides.first().copied() });
        }
    }

    /// Returns the people who have not spoken about an item.
    pub(crate) fn silent(&self, n: usize) -> Vec<&Arc<str>> {
        self.people.keys().filter(|who| !self.items[n].views.contains_key(*who)).collect()
    }

    /// Returns the messages that are to be posted at `now`, without the agenda, and the next time at which there may be
    /// another one. `is_posted` returns `true` for the id of a message that exists.
    pub(crate) fn due(&self, now: Timestamp, is_posted: impl Fn(&str) -> bool) -> (Vec<Post>, Option<Timestamp>) {
        let mut posts = Vec::new();
        for (n, item) in self.items.iter().enumerate() {
            let over = match (&item.decision, item.is_left) {
                (Some(_), _) => Some(Post::Decided(n)),
                (None, true) => Some(Post::Left(n)),
                (None, false) => None,
            };
            posts.extend(over.filter(|post| !is_posted(&post.id(self.rev))));
        }
        let Some(n) = self.current() else { return (posts, None) };
        let item = &self.items[n];
        let Some(begun_at) = item.begun_at else {
            posts.push(Post::Item(n));
            return (posts, now.checked_add(WAITS).ok());
        };
        let after = |at: Timestamp| at.checked_add(WAITS).unwrap_or(at);
        let is_late = self.until.is_some_and(|until| until <= now);
        let is_silent = !self.silent(n).is_empty();
        if item.is_unclear && !is_posted(&Post::Which(n).id(self.rev)) {
            posts.push(Post::Which(n));
        }
        if item.is_summed {
            return (posts, None);
        }
        let waited_since = item.asked_at.unwrap_or(begun_at);
        let has_waited = now >= after(waited_since) || item.said >= WAITS_FOR;
        match () {
            () if !is_silent || is_late => posts.push(Post::Sum(n)),
            () if has_waited && item.asked_at.is_none() => posts.push(Post::Ask(n)),
            () if has_waited => posts.push(Post::Sum(n)),
            () => return (posts, Some(self.until.map_or(after(waited_since), |until| until.min(after(waited_since))))),
        }
        (posts, now.checked_add(WAITS).ok())
    }
}
