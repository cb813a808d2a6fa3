//! Derives the meaning of a canvas change for a lifeform that did not make the change. Plain functions of the journal
//! entry and the present canvas.

mod chats;
mod decisions;
#[cfg(test)]
mod golden;
mod interjections;
mod maps;
mod passed;
mod rules;

use std::sync::Arc;

use fascicles::FascicleId;
use neurons::tools::EffectScope;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Cause, Entry, PrincipalId, Timestamp};

use crate::memory::forget_requests_by_rule;
use crate::metabolism::Mode;
use crate::reminders;
pub(crate) use chats::{in_chat, topic_of};
pub(crate) use decisions::{approval_asked_above, decision_in, is_about_an_approval, is_below, is_word};
pub(crate) use interjections::is_stop;
use interjections::{begins_with_stop, corrects};
pub(crate) use maps::on_map;
pub(crate) use passed::PassLog;
pub use passed::{Passed, PassedOver};
pub(crate) use rules::{Heard, Incoming, Rules, check, perceive};

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

/// The maximum length of a quoted text in the description of a change, in characters.
const QUOTED_CHARS: usize = 200;

/// Returns `true` for the id of a lifeform.
fn is_lifeform(id: &str) -> bool {
    id.starts_with("lifeform:")
}

/// Returns a text in quotation marks, on one line and shortened.
fn quoted(text: &str) -> String {
    let line: String = text.chars().take(QUOTED_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if text.chars().nth(QUOTED_CHARS).is_some() { " …" } else { "" };
    format!("\"{}{more}\"", line.replace('"', "'"))
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
    /// The sender did something other than to post, for example renamed the topic. The text says what.
    Act,
}

impl Change {
    /// Returns the name for rules.
    fn name(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Amended { .. } => "amended",
            Self::Retracted => "retracted",
            Self::Act => "act",
        }
    }
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
    /// The rule of perception that led it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<Arc<str>>,
    /// The fascicle that the rule names for it, instead of the one of the lifeform's definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fascicle: Option<FascicleId>,
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
    /// Replaces the secrets of the message by placeholders: what is perceived goes to models, to the memory and to goals.
    pub(crate) fn hide_secrets(&mut self, place: &ThreadRef) {
        let reference = message_name(place, &self.message);
        self.content = knowledge::without_secrets(&self.content, &reference);
        if let Change::Amended { before, reason } = &mut self.change {
            for text in [before, reason] {
                *text = store::secrets::redacted(text).map_or(std::mem::take(text), |(left, _)| left);
            }
        }
    }

    /// Returns the message of a journal entry, without what depends on the kind of canvas.
    fn of(entry: &Entry, change: Change) -> Self {
        Self {
            rev: entry.seq,
            since: entry.seq,
            message: Arc::default(),
            sender: entry.by.0.clone(),
            content: String::new(),
            source: Arc::default(),
            change,
            urgent: false,
            to_answer: false,
            keeps_reminders: false,
            supplements: None,
            rule: None,
            fascicle: None,
            cause: entry.cause.clone(),
            at: entry.at,
        }
    }

    /// Returns `true` if the message states something: it is new or amended.
    pub(crate) fn is_said(&self) -> bool {
        matches!(self.change, Change::New | Change::Amended { .. })
    }

    /// Returns the id of the message that an answer names; `None` if there is no message.
    pub(crate) fn reply_to(&self) -> Option<Arc<str>> {
        Some(self.message.clone()).filter(|_| self.change != Change::Act)
    }

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
    PerceivedMessage(Arc<str>, Box<PerceivedMessage>),
    /// A participant interrupted a message of the lifeform.
    BrokenOff(Arc<str>, Arc<str>),
    /// A participant reacted to a message of the lifeform; `true` means that the message helped.
    Judged(Arc<str>, Arc<str>, bool),
}

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

/// A change of a canvas, before the rules of perception decide about it.
pub(crate) trait Stimulus {
    /// Returns the value of a member that rules may read (`config/fascicles/perceive.toml` lists them); `Null` if the
    /// change has none. It is computed when a rule asks for it.
    fn fact(&self, member: &str) -> Value;

    /// Returns the topic and the message that the change concerns, for verdicts and interruptions.
    fn target(&self) -> Option<(Arc<str>, Arc<str>)> {
        None
    }

    /// Returns the topic or node, and the message as far as no rule decides about it.
    fn message(&self, to_answer: bool) -> (Arc<str>, PerceivedMessage);
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
        Change::New | Change::Act => Preemption::Waits,
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
            rule: None,
            fascicle: None,
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
