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

use crate::canvas::chat::{self, MessageView, Stance, TopicRole, TopicView};
use crate::canvas::{State, user};
use crate::reminders::Language;
pub(crate) use requests::{Request, request};
pub(crate) use texts::Texts;
pub(crate) use views::Side;
use views::{Word, decided_words, options, side, word};

/// The time, and the number of messages, after which the coordinator asks who is silent, and then sums up.
const WAITS: SignedDuration = SignedDuration::from_mins(15);
const WAITS_FOR: usize = 10;
/// The maximum number of people whose views are kept.
const PEOPLE_MAX: usize = 32;
/// The number of messages before the meeting whose writers take part in it.
const BEFORE_MAX: usize = 200;
/// The length of the beginning of a message that rules read, in characters.
const READ_CHARS: usize = 400;

/// The kinds of a coordinator's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    /// The agenda, which is pinned.
    Agenda,
    /// The beginning of an item.
    Item(usize),
    /// A question to those who are silent about an item.
    Ask(usize),
    /// The views about an item.
    Sum(usize),
    /// A question which of several is decided.
    Which(usize),
    /// The decision about an item, or that it stays open.
    End(usize),
}

impl Post {
    /// Returns the name of the message in a meeting.
    fn name(self) -> String {
        match self {
            Self::Agenda => "agenda".to_owned(),
            Self::Item(n) => format!("item_{n}"),
            Self::Ask(n) => format!("ask_{n}"),
            Self::Sum(n) => format!("sum_{n}"),
            Self::Which(n) => format!("which_{n}"),
            Self::End(n) => format!("end_{n}"),
        }
    }

    /// Returns `true` for a message that is amended when the state changes.
    fn is_kept_true(self) -> bool {
        matches!(self, Self::Agenda | Self::Sum(_) | Self::End(_))
    }
}

/// Returns `true` for the id of a message that a lifeform posted as coordinator.
pub(crate) fn is_meeting_post_of(me: &str, id: &str) -> bool {
    let own = me.strip_prefix("lifeform:").unwrap_or(me);
    id.strip_prefix("msg_").and_then(|rest| rest.strip_prefix(own)).is_some_and(|rest| rest.starts_with(MARK))
}

/// Returns `true` for the id of a message that a coordinator posted as such. Only the lifeform itself can use such ids.
pub(crate) fn is_meeting_post(id: &str) -> bool {
    // The id of an answer holds that of its topic, which people choose, after a dot.
    let rest = id.strip_prefix("msg_lf_").and_then(|rest| rest.split_once(MARK));
    rest.is_some_and(|(own, _)| own.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// The mark of the ids of these messages.
const MARK: &str = "_meeting_";

/// The word of a person about an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct View {
    /// The side; `None` if the person spoke and took none.
    pub(crate) side: Option<Side>,
    /// The message; for a reaction, the message of the item.
    pub(crate) message: Arc<str>,
    /// The revision at which the message was posted; 0 for a reaction.
    pub(crate) posted_at: u64,
}

/// A decision about an item.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// The moderator who decided.
    pub(crate) by: Arc<str>,
    /// The message that decides.
    pub(crate) message: Arc<str>,
    /// The revision at which it was posted.
    pub(crate) posted_at: u64,
    /// The words of the message.
    pub(crate) text: String,
    /// The side, if the words name one.
    pub(crate) side: Option<Side>,
    /// `true` if the words name none, and what most want is decided.
    is_for_most: bool,
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
    /// The message by which a moderator left it open.
    pub(crate) left_by: Option<Arc<str>>,
    /// `true` if a moderator decided, and it is not clear for what.
    is_unclear: bool,
    /// `true` once the coordinator asked which alternative is decided.
    was_asked_which: bool,
    begun_at: Option<Timestamp>,
    asked_at: Option<Timestamp>,
    is_summed: bool,
    /// The messages of people since the coordinator last spoke of it.
    said: usize,
}

impl Item {
    pub(crate) fn is_over(&self) -> bool {
        self.decision.is_some() || self.left_by.is_some()
    }

    /// Returns the people on a side.
    pub(crate) fn on(&self, wanted: Option<Side>) -> impl Iterator<Item = &Arc<str>> {
        self.views.iter().filter(move |(_, view)| view.side == wanted).map(|(who, _)| who)
    }

    /// Returns the sides that people take, in their order.
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
    /// The people, with their names: those who wrote in it or shortly before, opened the topic, or have a role.
    pub(crate) people: BTreeMap<Arc<str>, String>,
    /// The people who may decide.
    pub(crate) moderators: BTreeSet<Arc<str>>,
    /// The language of the agenda.
    pub(crate) language: Language,
    /// The id of the pinned message of the topic.
    pub(crate) pinned: Option<Arc<str>>,
    /// The texts of the coordinator's messages that exist, by id.
    posted: BTreeMap<Arc<str>, String>,
    me: Arc<str>,
    until: Option<Timestamp>,
    /// The item that was opened last, while messages are read.
    opened: Option<usize>,
}

/// Returns `true` if a principal may decide in a topic: the person who opened it, a moderator, or an operator.
fn moderates(topic: TopicView<'_>, who: &str, is_operator: &impl Fn(&str) -> bool) -> bool {
    topic.is_created_by(who) || topic.role_of(who) == Some(TopicRole::Moderator) || is_operator(who)
}

impl Meeting {
    /// Reads the meeting that `me` coordinates in a topic; `None` if it coordinates none, or the topic is archived.
    pub(crate) fn read(state: &State, topic: &str, me: &str, is_operator: impl Fn(&str) -> bool) -> Option<Self> {
        let in_topic = chat::topic_in(state, topic).filter(|topic| !topic.is_archived())?;
        let stance = in_topic.stance_of(me).filter(|own| own.stance() == Stance::Coordinator)?;
        if in_topic.role_of(me) == Some(TopicRole::Listener) {
            return None;
        }
        let rev = stance.rev();
        let is_since = |message: &MessageView<'_>| message.created_rev().is_some_and(|posted| posted > rev);
        let newest = || chat::messages_in(state, topic).rev();
        let mut since: Vec<MessageView<'_>> = newest().take_while(is_since).collect();
        let before = newest().skip(since.len()).take(BEFORE_MAX).map(MessageView::sender);
        since.reverse();
        let listens = |who: &str| in_topic.role_of(who) == Some(TopicRole::Listener);
        let writers = since.iter().map(|message| message.sender());
        let people: BTreeSet<&str> = in_topic.principals().map(|(who, _)| who).chain(writers).chain(before).collect();
        let people = people.into_iter().filter(|who| who.starts_with("user:") && !listens(who));
        let mut people: Vec<(bool, &str)> = people.map(|who| (!moderates(in_topic, who, &is_operator), who)).collect();
        people.sort_unstable();
        let name = |who: &str| {
            user::name_in(state, who).unwrap_or_else(|| who.split_once(':').map_or(who, |(_, name)| name)).to_owned()
        };
        let item = |text: &str| Item { text: text.to_owned(), options: options(text), ..Item::default() };
        let mut meeting = Self {
            rev,
            title: in_topic.title().to_owned(),
            items: stance.agenda().map(item).collect(),
            moderators: people.iter().filter(|(is_other, _)| !is_other).map(|(_, who)| Arc::from(*who)).collect(),
            people: people.iter().take(PEOPLE_MAX).map(|(_, who)| (Arc::from(*who), name(who))).collect(),
            language: Language::of(&stance.agenda().collect::<String>()),
            pinned: in_topic.pinned().map(Arc::from),
            posted: BTreeMap::new(),
            me: me.strip_prefix("lifeform:").unwrap_or(me).into(),
            until: stance.until(),
            opened: None,
        };
        for message in &since {
            if message.is_by(me) {
                meeting.hear_own(*message);
            } else if message.is_said() {
                meeting.hear(*message);
            }
        }
        meeting.count_reactions(state, topic);
        Some(meeting)
    }

    /// Returns the id of a message. A repetition after a crash posts it once.
    pub(crate) fn id(&self, post: Post) -> Arc<str> {
        format!("msg_{}{MARK}{}_{}", self.me, self.rev, post.name()).into()
    }

    fn is_posted(&self, post: Post) -> bool {
        self.posted.contains_key(&self.id(post))
    }

    /// Returns the item that is spoken about; `None` at the end.
    pub(crate) fn current(&self) -> Option<usize> {
        self.items.iter().position(|item| !item.is_over())
    }

    fn hear_own(&mut self, message: MessageView<'_>) {
        let (id, all) = (message.id(), 0..self.items.len());
        let of = |post: fn(usize) -> Post| all.clone().find(|n| *self.id(post(*n)) == *id);
        let which = of(Post::Which);
        match (of(Post::Item), of(Post::Ask), of(Post::Sum)) {
            (Some(n), ..) => (self.items[n].begun_at, self.opened) = (message.at(), Some(n)),
            (_, Some(n), _) => (self.items[n].asked_at, self.items[n].said) = (message.at(), 0),
            (.., Some(n)) => self.items[n].is_summed = true,
            _ => {}
        }
        if let Some(n) = which {
            self.items[n].was_asked_which = true;
        }
        self.posted.insert(id.into(), message.content().to_owned());
    }

    fn hear(&mut self, message: MessageView<'_>) {
        let text: String = message.content().chars().take(READ_CHARS).collect();
        let Some(n) = self.item_of(message, &text) else { return };
        let is_moderator = self.moderators.contains(message.sender());
        let is_counted = self.people.contains_key(message.sender());
        let item = &mut self.items[n];
        let words = unnumbered(&text);
        let (mut side, word) = (side(words, &item.options), word(words).filter(|_| is_moderator));
        // What is said after the end counts no more, but a moderator may decide otherwise.
        if item.is_over() && word != Some(Word::Decided) {
            return;
        }
        item.said += usize::from(is_counted && item.begun_at.is_some());
        let sender = Arc::<str>::from(message.sender());
        let posted_at = message.created_rev().unwrap_or_default();
        let names_one = matches!(side, Some(Side::Option(_)));
        let word = word.filter(|word| match word {
            Word::Decided | Word::Next => true,
            Word::Agreed => item.is_summed,
            Word::Chosen => item.is_summed && names_one,
        });
        // The answer to the question which one is decided.
        let is_answer = is_moderator && names_one && item.was_asked_which;
        let mut is_for_most = false;
        let decides = match word {
            Some(Word::Next) => {
                item.left_by = Some(message.id().into());
                return;
            }
            Some(Word::Decided) => {
                // "Decided: …" says for what, or for something else; "Decided." is for what most want.
                let named = decided_words(words);
                is_for_most = named.is_empty();
                side = if is_for_most { item.leading() } else { views::side(named, &item.options) };
                item.is_unclear = is_for_most && side.is_none() && !item.options.is_empty();
                !item.is_unclear
            }
            Some(Word::Agreed) => {
                is_for_most = true;
                side = item.leading();
                item.is_unclear = side.is_none() && !item.options.is_empty();
                !item.is_unclear
            }
            Some(Word::Chosen) => true,
            None => is_answer,
        };
        if decides {
            (item.left_by, item.is_unclear) = (None, false);
            let message = message.id().into();
            item.decision = Some(Decision { by: sender, message, posted_at, text, side, is_for_most });
            return;
        }
        if is_counted && word.is_none() {
            // A word without a side does not take the side back.
            let known = item.views.get(&sender).and_then(|view| view.side);
            if side.is_some() || known.is_none() {
                item.views.insert(sender, View { side, message: message.id().into(), posted_at });
            }
        }
    }

    /// Returns the item that a message concerns: the one that it replies to or whose number it begins with, otherwise the one
    /// that was opened last before it.
    fn item_of(&self, message: MessageView<'_>, text: &str) -> Option<usize> {
        let is_of = |n: usize, to: &str| {
            [Post::Item(n), Post::Ask(n), Post::Sum(n), Post::Which(n), Post::End(n)]
                .iter()
                .any(|post| *self.id(*post) == *to)
        };
        let of_reply = message.reply_to().and_then(|to| (0..self.items.len()).find(|n| is_of(*n, to)));
        let of_number = number_of(text).filter(|n| *n < self.items.len());
        of_reply.or(of_number).or(self.opened)
    }

    /// Counts thumbs at an item as words for and against it, where a person said nothing else.
    fn count_reactions(&mut self, state: &State, topic: &str) {
        for n in 0..self.items.len() {
            let id = self.id(Post::Item(n));
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
                    if is_silent && item.options.is_empty() {
                        item.views.insert(who, View { side: Some(side), message: id.clone(), posted_at: 0 });
                    }
                }
            }
            // Thumbs have no time: where they say something else than the words, nobody knows what most wanted.
            let item = &mut self.items[n];
            let leading = item.leading();
            if let Some(decision) = item.decision.as_mut().filter(|decision| decision.is_for_most) {
                decision.side = decision.side.filter(|side| leading == Some(*side));
            }
        }
    }

    /// Returns the people who have not spoken about an item.
    pub(crate) fn silent(&self, n: usize) -> Vec<&Arc<str>> {
        self.people.keys().filter(|who| !self.items[n].views.contains_key(*who)).collect()
    }

    /// Returns the messages that are to be posted at `now`, and the next time at which there may be another one.
    pub(crate) fn due(&self, now: Timestamp) -> (Vec<Post>, Option<Timestamp>) {
        let (mut posts, mut next) = (Vec::new(), None::<Timestamp>);
        if !self.is_posted(Post::Agenda) {
            posts.push(Post::Agenda);
        }
        for (n, item) in self.items.iter().enumerate() {
            let at = match () {
                () if item.is_over() => {
                    posts.extend(Some(Post::End(n)).filter(|post| !self.is_posted(*post)));
                    continue;
                }
                () if item.begun_at.is_none() => {
                    posts.push(Post::Item(n));
                    now.checked_add(WAITS).ok()
                }
                () => self.due_of(n, now, &mut posts),
            };
            next = next.into_iter().chain(at).min();
            // The next item is opened when this one is over.
            if self.items[n + 1..].iter().all(|later| later.begun_at.is_none()) {
                break;
            }
        }
        (posts, next)
    }

    /// Adds the message that an open item asks for now, and returns the time at which it may ask for another one.
    fn due_of(&self, n: usize, now: Timestamp, posts: &mut Vec<Post>) -> Option<Timestamp> {
        let item = &self.items[n];
        if item.is_unclear && !self.is_posted(Post::Which(n)) {
            posts.push(Post::Which(n));
        }
        let since = item.asked_at.or(item.begun_at).filter(|_| !item.is_summed)?;
        let waits_until = since.checked_add(WAITS).unwrap_or(since);
        let is_late = self.until.is_some_and(|until| until <= now);
        let has_waited = now >= waits_until || item.said >= WAITS_FOR;
        let post = match () {
            () if self.silent(n).is_empty() || is_late => Post::Sum(n),
            () if has_waited && item.asked_at.is_none() => Post::Ask(n),
            () if has_waited => Post::Sum(n),
            () => return Some(self.until.map_or(waits_until, |until| until.min(waits_until))),
        };
        posts.push(post);
        now.checked_add(WAITS).ok()
    }

    /// Returns the messages whose texts are no longer true.
    pub(crate) fn outdated(&self) -> Vec<Post> {
        let each = (0..self.items.len()).flat_map(|n| [Post::Sum(n), Post::End(n)]);
        let all = std::iter::once(Post::Agenda).chain(each).filter(|post| post.is_kept_true());
        all.filter(|post| self.posted.get(&self.id(*post)).is_some_and(|text| *text != Texts(self).post(*post)))
            .collect()
    }

    /// Returns the ids of the messages whose words a message bears.
    pub(crate) fn answered_by(&self, post: Post) -> Vec<Arc<str>> {
        match post {
            Post::End(n) => {
                let item = &self.items[n];
                let decided = item.decision.as_ref().map(|decision| decision.message.clone());
                decided.or_else(|| item.left_by.clone()).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Returns the number of the item with which a text begins, from 0: "2: the Heron". A time of day is none.
fn number_of(text: &str) -> Option<usize> {
    let text = text.trim_start();
    let digits: String = text.chars().take_while(char::is_ascii_digit).take(2).collect();
    let rest = text[digits.len()..].strip_prefix(['.', ':', ')', '：', '、', '）'])?;
    digits.parse::<usize>().ok().filter(|n| *n > 0 && !rest.starts_with(|c: char| c.is_ascii_digit())).map(|n| n - 1)
}

/// Returns a text without the number of an item before it.
fn unnumbered(text: &str) -> &str {
    match number_of(text) {
        Some(_) => text
            .trim_start()
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start_matches(['.', ':', ')', '：', '、', '）'])
            .trim_start(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_posts_of_a_coordinator_are_taken_for_one() {
        let post = "msg_lf_01a225_meeting_9_item_0";
        assert!(is_meeting_post(post) && is_meeting_post_of("lifeform:lf_01a225", post));
        assert!(!is_meeting_post_of("lifeform:lf_02b336", post));
        // An answer in a topic with such a name is an answer.
        for other in ["msg_lf_01a225.team_meeting_9.r5", "msg_team_meeting_9", "msg_lf_01a225_hub_9"] {
            assert!(!is_meeting_post(other), "{other}");
        }
    }

    #[test]
    fn a_time_of_day_is_no_number_of_an_item() {
        for (text, number) in
            [("2: the Heron", Some(1)), ("3) no", Some(2)), ("2:30 suits me", None), ("0. x", None), ("Two", None)]
        {
            assert_eq!(number_of(text), number, "{text}");
        }
        assert_eq!((unnumbered("2: the Heron"), unnumbered("2:30 suits me")), ("the Heron", "2:30 suits me"));
    }
}
