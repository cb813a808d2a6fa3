//! Derives the meaning of a chat change for a lifeform that did not make the change.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use store::{Entry, PrincipalId};

use super::{Change, Incoming, Me, PerceivedMessage, Stimulus, is_lifeform, quoted};
use crate::canvas::chat::{self, MessageView, TopicRole, TopicView};
use crate::canvas::user::name_in;
use crate::canvas::{Op, State, called as calls, undone};
use crate::meeting::is_meeting_post;
use crate::reminders;

/// The reactions for an answer that helped, and for one that did not.
const HELPED: [&str; 8] = ["👍", "❤️", "❤", "✅", "🙏", "💯", "+1", "helpful"];
const HARMED: [&str; 5] = ["👎", "❌", "-1", "harmful", "wrong"];

/// The maximum number of consecutive messages of lifeforms. After that, lifeforms answer each other only after a person
/// has posted a message.
const ECHO_MAX: usize = 6;

/// A change of a chat.
struct ChatStimulus<'s> {
    whom: Me<'s>,
    entry: &'s Entry,
    op: chat::Op,
    state: &'s State,
    topic: Arc<str>,
    in_topic: TopicView<'s>,
    message: Option<MessageView<'s>>,
    change: Change,
}

/// Returns a change of a chat as rules of perception read it; `None` for a change without a topic, or of a message that
/// is gone.
pub(crate) fn in_chat<'s>(incoming: &Incoming<'s>, op: chat::Op) -> Option<Box<dyn Stimulus + 's>> {
    let Incoming { me: whom, entry, state, .. } = *incoming;
    let (topic, id) = place_of(&op)?;
    let message = id.as_ref().map(|id| chat::message_in(state, &topic, id));
    if matches!(message, Some(None)) {
        return None;
    }
    let (message, in_topic) = (message.flatten(), chat::topic_in(state, &topic)?);
    let change = match op {
        chat::Op::Append { .. } | chat::Op::Finish { .. } | chat::Op::Restore { .. } => Change::New,
        chat::Op::Amend { .. } | chat::Op::Settle { accept: true, .. } => {
            let (before, reason) = before(message?);
            Change::Amended { before, reason }
        }
        chat::Op::Retract { .. } | chat::Op::Purge { .. } => Change::Retracted,
        _ => Change::Act,
    };
    Some(Box::new(ChatStimulus { whom, entry, op, state, topic, in_topic, message, change }))
}

/// Returns the topic of an op of a chat.
pub(crate) fn topic_of(op: &Op) -> Option<Arc<str>> {
    if let Op::Chat(op) = op { place_of(op).map(|(topic, _)| topic) } else { None }
}

/// Returns the topic of an op, and its message if it concerns one.
fn place_of(op: &chat::Op) -> Option<(Arc<str>, Option<Arc<str>>)> {
    Some(match op {
        chat::Op::UserName { .. } => return None,
        chat::Op::TopicCreate { id, .. }
        | chat::Op::TopicEdit { id, .. }
        | chat::Op::TopicRole { id, .. }
        | chat::Op::TopicStance { id, .. }
        | chat::Op::TopicPin { id, .. }
        | chat::Op::Read { id, .. }
        | chat::Op::Summarize { id, .. } => (id.clone(), None),
        chat::Op::Append { topic, id, .. }
        | chat::Op::Open { topic, id, .. }
        | chat::Op::Reopen { topic, id, .. }
        | chat::Op::Checkpoint { topic, id, .. }
        | chat::Op::Finish { topic, id, .. }
        | chat::Op::Interrupt { topic, id, .. }
        | chat::Op::Amend { topic, id, .. }
        | chat::Op::Retract { topic, id, .. }
        | chat::Op::Restore { topic, id, .. }
        | chat::Op::Purge { topic, id, .. }
        | chat::Op::React { topic, id, .. }
        | chat::Op::Suggest { topic, id, .. }
        | chat::Op::Settle { topic, id, .. } => (topic.clone(), Some(id.clone())),
    })
}

impl Stimulus for ChatStimulus<'_> {
    fn fact(&self, member: &str) -> Value {
        let Self { whom, state, topic, in_topic, message, .. } = self;
        let of_topic = || match member {
            "title" => json!(in_topic.title()),
            "turns" => json!(in_topic.turns()),
            "role" => json!(in_topic.role_of(&whom.id.0)),
            "stance" => json!(in_topic.stance_of(&whom.id.0).map(|own| own.stance()).unwrap_or_default()),
            "is_host" => json!(keeps_unaddressed(*whom, state, topic)),
            "change" => json!(self.change.name()),
            "sign" => json!(self.sign()),
            _ => Value::Null,
        };
        let Some(message) = *message else { return of_topic() };
        match member {
            "sender" => json!(message.sender()),
            "is_own" => json!(message.is_by(&whom.id.0)),
            "from_lifeform" => json!(is_lifeform(message.sender())),
            "is_urgent" => json!(message.is_urgent()),
            "chars" => json!(message.content().chars().count()),
            "asks" => json!(message.content().trim_end().ends_with(['?', '？'])),
            "attachments" => json!(self.attachments()),
            "is_meeting_post" => json!(is_meeting_post(message.id())),
            "is_of_meeting" => json!(self.is_of_meeting(message)),
            "is_called" => json!(is_addressed(*whom, state, topic, message)),
            "calls_another" => json!(message.mentions().any(|who| is_lifeform(who) && *who != *whom.id.0)),
            "calls_person" => json!(begins_with_a_person(state, topic, message)),
            "is_answered" => json!(is_answered(whom.id, state, topic, message.id())),
            "is_echo" => json!(is_echo(state, topic)),
            "only_reminders" => json!(reminders::asks_for_nothing_else(message.content(), false)),
            _ => of_topic(),
        }
    }

    fn target(&self) -> Option<(Arc<str>, Arc<str>)> {
        Some((self.topic.clone(), self.message?.id().into()))
    }

    fn message(&self, _to_answer: bool) -> (Arc<str>, PerceivedMessage) {
        let Self { whom, entry, op, state, topic, message, change, .. } = self;
        let is_act = *change == Change::Act;
        let content = match (op, message) {
            (chat::Op::Append { content, .. } | chat::Op::Finish { content, .. }, _) => content.clone(),
            (_, Some(message)) if !is_act => message.content().to_owned(),
            _ => self.act(),
        };
        let of_message = || message.filter(|_| !is_act);
        let said = PerceivedMessage {
            message: of_message().map_or_else(|| format!("act_{}", entry.seq).into(), |message| message.id().into()),
            sender: of_message().map_or(&*entry.by.0, MessageView::sender).into(),
            keeps_reminders: of_message().is_some_and(|message| is_addressed(*whom, state, topic, message))
                || keeps_unaddressed(*whom, state, topic),
            content,
            urgent: *change == Change::New && message.is_some_and(MessageView::is_urgent),
            supplements: of_message().and_then(MessageView::supplements).map(Arc::from),
            ..PerceivedMessage::of(entry, change.clone())
        };
        (topic.clone(), said)
    }
}

impl ChatStimulus<'_> {
    /// Returns `true` if a message replies to what the lifeform posts as coordinator, and does not mention it.
    fn is_of_meeting(&self, message: MessageView<'_>) -> bool {
        let is_reply = message.reply_to().is_some_and(is_meeting_post);
        is_reply && message.mentions().all(|who| *who != *self.whom.id.0)
    }

    /// Returns the verdict that a new reaction expresses.
    fn sign(&self) -> Option<&'static str> {
        match &self.op {
            chat::Op::React { reaction, on: true, .. } if HELPED.contains(&&**reaction) => Some("helped"),
            chat::Op::React { reaction, on: true, .. } if HARMED.contains(&&**reaction) => Some("harmed"),
            _ => None,
        }
    }

    fn attachments(&self) -> usize {
        if let chat::Op::Append { attachments, .. } = &self.op { attachments.len() } else { 0 }
    }

    /// Returns a change that is no message as a sentence of the principal who made it.
    fn act(&self) -> String {
        let excerpt = quoted(self.message.map(MessageView::content).unwrap_or_default());
        match &self.op {
            chat::Op::TopicCreate { title, .. } => format!("I opened this topic, {}.", quoted(title)),
            chat::Op::TopicEdit { title, turns, archived, .. } => {
                let path = format!("{}/title", chat::topic_path(&self.topic));
                let before = undone(self.entry, &path).and_then(|title| title.as_str().map(quoted));
                let before = before.map(|before| format!(" from {before}")).unwrap_or_default();
                let renamed = title.as_ref().map(|title| format!("I renamed this topic{before} to {}.", quoted(title)));
                let turns = turns.as_ref().map(|turns| format!("I set the turns of this topic to {}.", json!(turns)));
                let archived = archived.map(|archived| match archived {
                    true => "I archived this topic.".to_owned(),
                    false => "I opened this topic again.".to_owned(),
                });
                [renamed, turns, archived].into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
            chat::Op::TopicRole { who, role: Some(role), .. } => format!("I made {} a {} here.", who.0, text_of(role)),
            chat::Op::TopicRole { who, role: None, .. } => format!("I took the role of {} in this topic away.", who.0),
            chat::Op::TopicStance { who, stance, .. } => format!("I made {} the {} here.", who.0, text_of(stance)),
            chat::Op::TopicPin { message: Some(message), .. } => {
                let pinned = chat::message_in(self.state, &self.topic, message).map_or("", MessageView::content);
                format!("I pinned the message {}.", quoted(pinned))
            }
            chat::Op::TopicPin { .. } => "I removed the pin of this topic.".into(),
            chat::Op::Read { .. } => "I read this topic.".into(),
            chat::Op::Summarize { content, .. } => format!("I summarised this topic: {}.", quoted(content)),
            chat::Op::Open { .. } | chat::Op::Checkpoint { .. } => "I am writing a message.".into(),
            chat::Op::Reopen { .. } => format!("I go on with the message {excerpt}."),
            chat::Op::Interrupt { reason, .. } => format!("I interrupted the message {excerpt}.{}", why(reason)),
            chat::Op::React { reaction, on: true, .. } => format!("I reacted to {excerpt} with {}.", quoted(reaction)),
            chat::Op::React { reaction, .. } => format!("I took back my reaction {} to {excerpt}.", quoted(reaction)),
            chat::Op::Suggest { content, reason, .. } => {
                format!("I suggest to change {excerpt} to {}.{}", quoted(content), why(reason))
            }
            chat::Op::Settle { .. } => format!("I declined a suggestion for {excerpt}."),
            op => format!("I did {} here.", op.name()),
        }
    }
}

fn text_of(value: &impl serde::Serialize) -> String {
    json!(value).as_str().unwrap_or_default().to_owned()
}

fn why(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" Why: {}.", quoted(reason)) }
}

/// Returns the text of a message before its last change, and the reason for the change.
fn before(message: MessageView<'_>) -> (String, String) {
    message.last_revision().map(|past| (past.content().to_owned(), past.reason().to_owned())).unwrap_or_default()
}

/// Returns `true` if a message mentions `me`, or replies to a message of `me`.
fn is_addressed(Me { id: me, name, .. }: Me<'_>, state: &State, topic: &str, message: MessageView<'_>) -> bool {
    let mut called = message.mentions().peekable();
    // The users of the canvas do not include the name of a lifeform that has not posted yet.
    let is_named = || calls(message.content()).contains(&name.to_lowercase());
    let is_called = if called.peek().is_none() { is_named() } else { called.any(|who| *who == *me.0) };
    let answers_me = || chat::message_in(state, topic, message.reply_to()?).map(|answered| answered.is_by(&me.0));
    is_called || answers_me().unwrap_or(false)
}

/// Returns `true` if `me` answers messages that mention no lifeform, and stores the reminders in them: the canvas is its own,
/// or the lifeform of the canvas only listens.
fn keeps_unaddressed(Me { id: me, home_of, .. }: Me<'_>, state: &State, topic: &str) -> bool {
    let home = format!("lifeform:{home_of}");
    let role = || chat::topic_in(state, topic)?.role_of(&home);
    *me.0 == *home || role() == Some(TopicRole::Listener)
}

/// Returns `true` if a message begins with the name of another person who has spoken in its topic: "Ben, could you ask her?".
fn begins_with_a_person(state: &State, topic: &str, message: MessageView<'_>) -> bool {
    let content = message.content().trim_start().trim_start_matches('@');
    let is_called = |name: &str| {
        let lower = name.to_lowercase();
        let rest = content.to_lowercase().starts_with(&lower).then(|| content.get(lower.len()..)).flatten();
        let rest = rest.map(|rest| rest.trim_start_matches(['さ', 'ん', '様']));
        let said = rest.and_then(|rest| rest.strip_prefix([',', ':', '，', '：', '、']));
        // "Ben, Mia and I come to dinner" is about them, and "Hello, Iris" is a greeting even where a person is named Hello.
        !GREETINGS.contains(&&*lower) && said.is_some_and(|said| !begins_with_a_name(said))
    };
    let people = chat::messages_in(state, topic).map(MessageView::sender).collect::<BTreeSet<_>>().into_iter();
    let others = people.filter(|who| who.starts_with("user:") && *who != message.sender());
    others.into_iter().any(|who| {
        let own = who.split_once(':').map_or(who, |(_, own)| own);
        [name_in(state, who), Some(own)].into_iter().flatten().any(is_called)
    })
}

/// The first words of messages that are no names.
const GREETINGS: [&str; 20] = [
    "hello",
    "hi",
    "hey",
    "good morning",
    "good evening",
    "morning",
    "yes",
    "no",
    "ok",
    "okay",
    "so",
    "well",
    "please",
    "thanks",
    "sorry",
    "now",
    "and",
    "but",
    "你好",
    "こんにちは",
];

/// Returns `true` if a text begins with a capitalized word that is not the speaker.
fn begins_with_a_name(text: &str) -> bool {
    let first: String = text.trim_start().chars().take_while(|c| c.is_alphanumeric()).collect();
    first.chars().count() > 1 && first.starts_with(char::is_uppercase)
}

/// Returns `true` if the newest messages of a topic are all by lifeforms, up to the limit [`ECHO_MAX`].
fn is_echo(state: &State, topic: &str) -> bool {
    let newest = chat::messages_in(state, topic).rev().take(ECHO_MAX);
    newest.filter(|message| is_lifeform(message.sender())).count() == ECHO_MAX
}

/// Returns `true` if `me` has answered a message.
fn is_answered(me: &PrincipalId, state: &State, topic: &str, id: &str) -> bool {
    let mut own = chat::messages_in(state, topic).filter(|message| message.is_by(&me.0));
    own.any(|message| message.reply_to() == Some(id) || message.answers().any(|answered| answered == id))
}
