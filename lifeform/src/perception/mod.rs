//! Derives the meaning of a canvas change for a lifeform that did not make the change. Plain functions of the journal
//! entry and the present canvas.

mod decisions;
mod interjections;
pub(crate) mod maps;

use std::collections::BTreeSet;
use std::sync::Arc;

use neurons::tools::EffectScope;
use serde::{Deserialize, Serialize};
use store::{Cause, Entry, PrincipalId, Timestamp};

use crate::canvas::chat::{self, MessageView, TopicRole, Turns};
use crate::canvas::user::name_in;
use crate::canvas::{Kind, Op, State, called as calls};
use crate::memory::forget_requests_by_rule;
use crate::metabolism::Mode;
use crate::reminders;
pub(crate) use decisions::{approval_asked_above, decision_in, is_about_an_approval, is_below, is_word};
pub(crate) use interjections::is_stop;
use interjections::{begins_with_stop, corrects};

/// The maximum number of consecutive messages of lifeforms. After that, lifeforms answer each other only after a person
/// has posted a message.
const ECHO_MAX: usize = 6;
/// The time in seconds after a call during which the same call for another message of the topic needs an approval: a day.
const ECHOES_S: u32 = 86_400;
/// The maximum number of restarts of a silent thought because of newer messages.
const EXTENSIONS_MAX: u32 = 3;

/// A topic of a chat, or a node of a mind map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ThreadRef {
    /// The canvas, as `{lifeform}/{canvas}`.
    pub(crate) canvas: Arc<str>,
    /// The id of the topic or the node.
    pub(crate) topic: Arc<str>,
}

/// Returns the name of a message among all canvases: `{lifeform}/{canvas}/{topic}/{message}`.
pub(crate) fn message_name(place: &ThreadRef, message: &str) -> Arc<str> {
    format!("{}/{}/{message}", place.canvas, place.topic).into()
}

/// The kind of change to a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub(crate) enum Change {
    /// The message is new.
    #[default]
    New,
    /// The message was amended.
    Amended {
        /// The earlier text.
        before: String,
        /// The reason of the change.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The message was retracted.
    Retracted,
}

/// A message that the lifeform has perceived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerceivedMessage {
    /// The canvas revision of the change.
    pub(crate) rev: u64,
    /// The first revision that an answer to this message covers. It is earlier than `rev` if the message was amended
    /// while it waited.
    #[serde(default)]
    pub(crate) since: u64,
    /// The id of the message.
    pub(crate) message: Arc<str>,
    /// The sender.
    pub(crate) sender: Arc<str>,
    /// The text.
    pub(crate) content: String,
    /// The reference of the revision.
    pub(crate) source: Arc<str>,
    /// The change.
    #[serde(default)]
    pub(crate) change: Change,
    /// `true` to interrupt an answer that is being written.
    #[serde(default)]
    pub(crate) urgent: bool,
    /// `true` if this lifeform must answer the message, `false` if it only takes note of it.
    #[serde(default)]
    pub(crate) to_answer: bool,
    /// `true` if this lifeform stores the reminders that the message requests. Of several lifeforms on a canvas, this
    /// is the addressed one, otherwise the owner of the canvas. If the owner only listens, each of the others stores
    /// them.
    #[serde(default)]
    pub(crate) keeps_reminders: bool,
    /// The id of the message that this message supplements.
    #[serde(default)]
    pub(crate) supplements: Option<Arc<str>>,
    /// The cause.
    #[serde(default)]
    pub(crate) cause: Cause,
    /// The time.
    #[serde(default)]
    pub(crate) at: Timestamp,
}

/// The means of a thought, as its prompt depends on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Supply {
    /// The metabolic mode.
    pub(crate) mode: Mode,
    /// `true` if the lifeform has to rest soon.
    pub(crate) rests_soon: bool,
    /// `true` if the model is marked `small`.
    pub(crate) small: bool,
    /// `true` if the model has the tools of the mind.
    pub(crate) tools: bool,
    /// The number of tokens of earlier messages in the prompt.
    pub(crate) history_tokens: u32,
    /// `true` in a storm: the answer is one sentence, and nothing else is done.
    pub(crate) storm: bool,
}

impl Default for Supply {
    fn default() -> Self {
        Self {
            mode: Mode::Standard,
            rests_soon: false,
            small: false,
            tools: false,
            history_tokens: 1_000,
            storm: false,
        }
    }
}

impl Supply {
    /// Returns the maximum length of an earlier message in the prompt, in characters.
    pub(crate) fn past_chars(self) -> usize {
        (self.history_tokens as usize * 2).clamp(600, 16_000)
    }

    /// Returns the maximum length of an answered message in the prompt, in characters.
    pub(crate) fn said_chars(self) -> usize {
        (self.history_tokens as usize * 4).clamp(4_000, 32_000)
    }
}

/// The messages that one reply answers together: the event that starts a reply job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Perception {
    /// The place.
    pub(crate) place: ThreadRef,
    /// The messages, oldest first; never empty.
    pub(crate) said: Vec<PerceivedMessage>,
    /// The means of the thought.
    #[serde(default)]
    pub(crate) supply: Supply,
    /// The id of an interrupted answer that this reply completes.
    #[serde(default)]
    pub(crate) resumes: Option<Arc<str>>,
    /// The number of earlier attempts that were interrupted.
    #[serde(default)]
    pub(crate) tries: u32,
    /// The participant whose share pays, if another one than the first that asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) payer: Option<PrincipalId>,
    /// `true` if memory settles the answer and the lifeform cannot pay for a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_memory: bool,
}

impl PerceivedMessage {
    /// Returns `true` if the message begins as a correction.
    pub(crate) fn is_correction(&self) -> bool {
        corrects(&self.content)
    }

    /// Returns `true` if the message requests only reminders, or only to forget something.
    pub(crate) fn is_answered_by_rule(&self, has_tools: bool) -> bool {
        let is_by_rule = || {
            reminders::asks_for_nothing_else(&self.content, has_tools)
                || forget_requests_by_rule(&self.content, has_tools).1
        };
        self.to_answer && self.change == Change::New && is_by_rule()
    }
}

impl Perception {
    /// Returns the first message.
    pub(crate) fn first(&self) -> &PerceivedMessage {
        self.said.first().unwrap_or_else(|| unreachable!("a perception is of something"))
    }

    /// Returns the last message.
    pub(crate) fn last(&self) -> &PerceivedMessage {
        self.said.last().unwrap_or_else(|| unreachable!("a perception is of something"))
    }

    /// Returns the work in which the effects of an answer happen once: the earliest message that it answers. It stays the same
    /// when the answer is begun again, and for another lifeform that answers the same message.
    pub(crate) fn effect_scope(&self) -> EffectScope {
        let ThreadRef { canvas, topic } = &self.place;
        let answered = self.said.iter().find(|said| said.to_answer).unwrap_or_else(|| self.first());
        let root: Arc<str> = format!("{canvas}/{topic}").into();
        EffectScope {
            work: format!("{root}/{}", answered.message).into(),
            root,
            echoes_s: ECHOES_S,
            echoes_in: None,
            noted_in: None,
            since: None,
        }
    }

    /// Returns the text of all messages.
    pub(crate) fn content(&self) -> String {
        self.said.iter().map(|said| said.content.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns `true` if the lifeform must answer at least one of the messages.
    pub(crate) fn to_answer(&self) -> bool {
        self.said.iter().any(|said| said.to_answer)
    }

    /// Returns `true` if all messages that need an answer request only reminders. The answer then needs no model.
    pub(crate) fn is_answered_by_rule(&self) -> bool {
        let mut asked = self.said.iter().filter(|said| said.to_answer).peekable();
        let tools = self.supply.tools;
        // A model with tools acts on several messages at once.
        asked.peek().is_some() && (!tools || self.is_one()) && asked.all(|said| said.is_answered_by_rule(tools))
    }

    /// Returns `true` if one message is to be answered.
    pub(crate) fn is_one(&self) -> bool {
        self.said.iter().filter(|said| said.to_answer).count() == 1
    }

    /// Returns the cause.
    pub(crate) fn cause(&self) -> Cause {
        let last = self.last();
        last.cause.and(last.source.clone())
    }
}

/// A perception that a job is processing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ActiveReply {
    /// The job.
    pub(crate) job: Arc<str>,
    /// The perception.
    pub(crate) perception: Perception,
    /// The number of restarts because of newer messages.
    #[serde(default)]
    pub(crate) extended: u32,
}

impl ActiveReply {
    /// Returns the id of the message that the job writes. A restarted job has the same id.
    pub(crate) fn answer(&self) -> Arc<str> {
        format!("msg_{}", self.job).into()
    }
}

/// The meaning of a canvas entry for a lifeform.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CanvasEvent {
    /// A participant posted, amended or retracted a message in a topic.
    PerceivedMessage(Arc<str>, PerceivedMessage),
    /// A participant interrupted a message of the lifeform.
    BrokenOff(Arc<str>, Arc<str>),
    /// A participant reacted to a message of the lifeform; `true` means that the message helped.
    Judged(Arc<str>, Arc<str>, bool),
}

/// The reactions for an answer that helped, and for one that did not.
const HELPED: [&str; 8] = ["👍", "❤️", "❤", "✅", "🙏", "💯", "+1", "helpful"];
const HARMED: [&str; 5] = ["👎", "❌", "-1", "harmful", "wrong"];

/// The lifeform that perceives an entry.
#[derive(Clone, Copy)]
pub(crate) struct Me<'a> {
    /// The id of the lifeform.
    pub(crate) id: &'a PrincipalId,
    /// The name of the lifeform.
    pub(crate) name: &'a str,
    /// The lifeform that owns the canvas.
    pub(crate) home_of: &'a str,
}

/// Returns the meaning for `me` of `entry`, which applied `op` on a canvas of `kind` and resulted in `state`.
pub(crate) fn perceive(
    kind: &Kind,
    me: Me<'_>,
    entry: &Entry,
    op: Op,
    state: &State,
    source: Arc<str>,
) -> Option<CanvasEvent> {
    if entry.by == *me.id {
        return None;
    }
    kind.rules().perceive(me, entry, op, state, source)
}

/// Returns the meaning for `me` of an entry of a chat.
pub(crate) fn in_chat(me: Me<'_>, entry: &Entry, op: chat::Op, state: &State, source: Arc<str>) -> Option<CanvasEvent> {
    let (whom, me) = (me, me.id);
    let (topic, id, content, change) = match op {
        chat::Op::Append { topic, id, content, .. } | chat::Op::Finish { topic, id, content, .. } => {
            (topic, id, Some(content), Change::New)
        }
        chat::Op::Amend { topic, id, .. } | chat::Op::Settle { topic, id, accept: true, .. } => {
            let (before, reason) = before(chat::message_in(state, &topic, &id)?);
            (topic, id, None, Change::Amended { before, reason })
        }
        chat::Op::Restore { topic, id, .. } => (topic, id, None, Change::New),
        chat::Op::Retract { topic, id, .. } | chat::Op::Purge { topic, id, .. } => (topic, id, None, Change::Retracted),
        chat::Op::React { topic, id, reaction, on: true } => {
            let message = chat::message_in(state, &topic, &id)?;
            let helpful = match &*reaction {
                sign if HELPED.contains(&sign) => true,
                sign if HARMED.contains(&sign) => false,
                _ => return None,
            };
            return message.is_by(&me.0).then_some(CanvasEvent::Judged(topic, id, helpful));
        }
        chat::Op::Interrupt { topic, id, .. } => {
            let message = chat::message_in(state, &topic, &id)?;
            return message.is_by(&me.0).then_some(CanvasEvent::BrokenOff(topic, id));
        }
        _ => return None,
    };
    let message = chat::message_in(state, &topic, &id)?;
    if message.is_by(&me.0) {
        return None;
    }
    let is_addressed = is_addressed(whom, state, &topic, message);
    let keeps_reminders = is_addressed || keeps_unaddressed(whom, state, &topic);
    let said = PerceivedMessage {
        rev: entry.seq,
        since: entry.seq,
        to_answer: is_for(whom, state, &topic, message, is_addressed, &change)
            && (keeps_reminders || !reminders::asks_for_nothing_else(message.content(), false)),
        keeps_reminders,
        content: content.unwrap_or_else(|| message.content().to_owned()),
        urgent: change == Change::New && message.is_urgent(),
        supplements: message.supplements().map(Arc::from),
        message: id,
        sender: message.sender().into(),
        source,
        change,
        cause: entry.cause.clone(),
        at: entry.at,
    };
    Some(CanvasEvent::PerceivedMessage(topic, said))
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

/// Returns `true` if `me` answers messages that mention no lifeform, and stores the reminders in them: it is at home, or
/// the one at home only listens.
fn keeps_unaddressed(Me { id: me, home_of, .. }: Me<'_>, state: &State, topic: &str) -> bool {
    let home = format!("lifeform:{home_of}");
    let role = || chat::topic_in(state, topic)?.role_of(&home);
    *me.0 == *home || role() == Some(TopicRole::Listener)
}

/// Returns `true` if `me` must answer a message, by the turn rule and the roles of its topic. Only the addressed
/// lifeform answers a message of a lifeform; otherwise two lifeforms could answer each other forever.
fn is_for(me: Me<'_>, state: &State, topic: &str, message: MessageView<'_>, addressed: bool, change: &Change) -> bool {
    let Some(in_topic) = chat::topic_in(state, topic) else { return false };
    let calls_another = message.mentions().any(|who| is_lifeform(who) && *who != *me.id.0);
    let from_lifeform = is_lifeform(message.sender());
    in_topic.role_of(&me.id.0) != Some(TopicRole::Listener)
        && match (change, in_topic.turns()) {
            (Change::Retracted, _) => false,
            // An amended message needs a new answer only if `me` had answered it.
            (Change::Amended { .. }, _) => is_answered(me.id, state, topic, message.id()),
            (Change::New, Turns::Mentioned) => addressed && !(from_lifeform && is_echo(state, topic)),
            (Change::New, _) if from_lifeform => addressed && !is_echo(state, topic),
            // Of several lifeforms, the one at home answers what is addressed to none.
            (Change::New, Turns::Free) => {
                let is_for_another = calls_another || begins_with_a_person(state, topic, message);
                addressed || (!is_for_another && keeps_unaddressed(me, state, topic))
            }
            (Change::New, Turns::OneAtATime) => addressed || !calls_another,
        }
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

/// Returns `true` for the id of a lifeform.
fn is_lifeform(id: &str) -> bool {
    id.starts_with("lifeform:")
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

/// The progress of a reply on the canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyProgress {
    /// The canvas shows nothing of the reply yet.
    Silent,
    /// The reply is being written.
    Speaking,
    /// The reply is complete.
    Over,
}

/// The effect of a newer message on the reply in its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preemption {
    /// The message waits until the reply is complete.
    Waits,
    /// The thought restarts with both messages.
    Extends,
    /// The lifeform answers the message first, and completes the interrupted reply after that.
    Redirects,
    /// The lifeform abandons the thought.
    Cancels,
    /// The lifeform abandons the thought and answers the message instead.
    Replaces,
}

/// Returns the effect of a newer message on the present thought; see [`Preemption`]. `moderates` is `true` if its sender may end
/// answers to others.
pub(crate) fn bearing(
    said: &PerceivedMessage,
    thought: &ActiveReply,
    speech: ReplyProgress,
    moderates: bool,
) -> Preemption {
    let thinks_of = |message: &Arc<str>| thought.perception.said.iter().any(|known| known.message == *message);
    let is_answered = thought.perception.said.iter().any(|known| known.to_answer && known.sender == said.sender);
    let may_stop = moderates || is_answered;
    let is_all_of_it = thought.perception.said.iter().all(|known| known.message == said.message);
    if speech == ReplyProgress::Over || !thought.perception.to_answer() {
        return Preemption::Waits;
    }
    match &said.change {
        Change::Retracted if is_all_of_it => Preemption::Cancels,
        Change::Amended { .. } if thinks_of(&said.message) => Preemption::Extends,
        Change::Retracted | Change::Amended { .. } => Preemption::Waits,
        Change::New if said.to_answer && may_stop && is_stop(&said.content) => Preemption::Cancels,
        Change::New if said.to_answer && may_stop && begins_with_stop(&said.content) => Preemption::Replaces,
        Change::New if said.to_answer && said.urgent && speech == ReplyProgress::Speaking => Preemption::Redirects,
        Change::New if said.to_answer && said.urgent => Preemption::Extends,
        Change::New if said.to_answer && said.supplements.as_ref().is_some_and(thinks_of) => Preemption::Extends,
        // What is being said rests on a mistake.
        Change::New
            if said.to_answer && is_answered && corrects(&said.content) && thought.extended < EXTENSIONS_MAX =>
        {
            Preemption::Extends
        }
        Change::New if said.to_answer && speech == ReplyProgress::Silent && thought.extended < EXTENSIONS_MAX => {
            Preemption::Extends
        }
        Change::New => Preemption::Waits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str, content: &str) -> PerceivedMessage {
        PerceivedMessage {
            rev: 1,
            since: 1,
            message: message.into(),
            sender: "user:ada".into(),
            content: content.into(),
            source: "canvas:lf/c@1".into(),
            change: Change::New,
            urgent: false,
            to_answer: true,
            keeps_reminders: true,
            supplements: None,
            cause: Cause::default(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    fn thought(said: Vec<PerceivedMessage>) -> ActiveReply {
        let place = ThreadRef { canvas: "lf/c".into(), topic: "t".into() };
        let perception = Perception {
            place,
            said,
            supply: Supply::default(),
            resumes: None,
            tries: 0,
            payer: None,
            by_memory: false,
        };
        ActiveReply { job: "j".into(), perception, extended: 0 }
    }

    #[test]
    fn a_new_message_extends_a_thought_or_waits_or_interrupts_it() {
        let busy = thought(vec![said("m1", "What is my cat called?")]);
        let at = |said: &PerceivedMessage, speech| bearing(said, &busy, speech, false);
        let more = said("m2", "And how old is it?");
        assert_eq!(at(&more, ReplyProgress::Silent), Preemption::Extends);
        assert_eq!(at(&more, ReplyProgress::Speaking), Preemption::Waits);
        assert_eq!(
            bearing(&more, &ActiveReply { extended: EXTENSIONS_MAX, ..busy.clone() }, ReplyProgress::Silent, false),
            Preemption::Waits
        );
        let added = PerceivedMessage { supplements: Some("m1".into()), ..more.clone() };
        assert_eq!(at(&added, ReplyProgress::Speaking), Preemption::Extends);
        let urgent = PerceivedMessage { urgent: true, ..more.clone() };
        assert_eq!(at(&urgent, ReplyProgress::Speaking), Preemption::Redirects);
        assert_eq!(at(&said("m3", "Stop!"), ReplyProgress::Speaking), Preemption::Cancels);
        assert_eq!(at(&said("m3", "Stop the music"), ReplyProgress::Speaking), Preemption::Waits);
        let instead = said("m3", "Stop! What was the number again?");
        assert_eq!(at(&instead, ReplyProgress::Speaking), Preemption::Replaces);
        assert_eq!(at(&said("m3", "停！那个号码是多少？"), ReplyProgress::Speaking), Preemption::Replaces);
        let mistake = said("m4", "No, wait: at most two pills!");
        assert_eq!(at(&mistake, ReplyProgress::Speaking), Preemption::Extends);
        let by_another = PerceivedMessage { sender: "user:ben".into(), ..said("m3", "Stop!") };
        assert_eq!(at(&by_another, ReplyProgress::Speaking), Preemption::Waits);
        assert_eq!(bearing(&by_another, &busy, ReplyProgress::Speaking, true), Preemption::Cancels);
        let of_another = PerceivedMessage { sender: "user:ben".into(), ..mistake };
        assert_eq!(at(&of_another, ReplyProgress::Speaking), Preemption::Waits);
        assert_eq!(
            at(&PerceivedMessage { to_answer: false, ..urgent.clone() }, ReplyProgress::Speaking),
            Preemption::Waits
        );
        assert_eq!(at(&urgent, ReplyProgress::Over), Preemption::Waits, "there is nothing left to break off");
        let amended = PerceivedMessage {
            change: Change::Amended { before: "x".into(), reason: String::new() },
            ..said("m1", "y")
        };
        assert_eq!(at(&amended, ReplyProgress::Speaking), Preemption::Extends);
        let gone = PerceivedMessage { change: Change::Retracted, to_answer: false, ..said("m1", "") };
        assert_eq!(at(&gone, ReplyProgress::Speaking), Preemption::Cancels);
        let both = thought(vec![said("m1", "a"), said("m2", "b")]);
        assert_eq!(bearing(&gone, &both, ReplyProgress::Speaking, false), Preemption::Waits);
    }
}
