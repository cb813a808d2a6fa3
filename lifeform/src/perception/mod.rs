//! The meaning of a change of a canvas for a lifeform that did not make it (MISSION L7, L8). Plain functions of the
//! entry and the present canvas.

mod maps;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Cause, Entry, PrincipalId, Timestamp};

use crate::canvas::chat::{self, TopicRole, Turns};
use crate::canvas::{Op, State, called as calls};
use crate::reminders;

/// Messages of lifeforms in a row after which none of them answers another one until a person says something.
const ECHO_MAX: usize = 6;
/// The most times that a silent thought is begun again because of newer messages.
const EXTENSIONS_MAX: u32 = 3;

/// Messages that stop a thought.
const STOP_WORDS: [&str; 14] = [
    "stop",
    "stop it",
    "cancel",
    "never mind",
    "nevermind",
    "forget it",
    "停",
    "停下",
    "算了",
    "别说了",
    "やめて",
    "止めて",
    "ストップ",
    "もういい",
];

/// A topic of some chat, or a node of some mind map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The canvas, as `{lifeform}/{canvas}`.
    pub(crate) canvas: Arc<str>,
    /// The topic, or the node.
    pub(crate) topic: Arc<str>,
}

/// The change of a message.
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

/// A message that was heard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Said {
    /// The revision of the canvas that made it so.
    pub(crate) rev: u64,
    /// The first revision that is still to be answered by it: what was amended while it waited began earlier.
    #[serde(default)]
    pub(crate) since: u64,
    /// The id of the message.
    pub(crate) message: Arc<str>,
    /// The sender.
    pub(crate) sender: Arc<str>,
    /// The text.
    pub(crate) content: String,
    /// The revision as a reference.
    pub(crate) source: Arc<str>,
    /// The change.
    #[serde(default)]
    pub(crate) change: Change,
    /// `true` to interrupt a present answer.
    #[serde(default)]
    pub(crate) urgent: bool,
    /// `true` if this lifeform is to answer it, `false` if it is only to be noted.
    #[serde(default)]
    pub(crate) to_answer: bool,
    /// `true` if this lifeform keeps the reminders that it asks for. Of several on a canvas it is the one that is
    /// addressed, else the canvas's own; where that only listens, each of the others.
    #[serde(default)]
    pub(crate) keeps_reminders: bool,
    /// The message that it adds to.
    #[serde(default)]
    pub(crate) supplements: Option<Arc<str>>,
    /// The cause.
    #[serde(default)]
    pub(crate) cause: Cause,
    /// The time.
    #[serde(default)]
    pub(crate) at: Timestamp,
}

/// The messages that are answered together: the event with which a reply job begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Perception {
    /// The place.
    pub(crate) place: Place,
    /// The messages, oldest first; never empty.
    pub(crate) said: Vec<Said>,
    /// Earlier messages of the topic that an answer is given.
    #[serde(default)]
    pub(crate) history: usize,
    /// An answer that was broken off and is completed by this one.
    #[serde(default)]
    pub(crate) resumes: Option<Arc<str>>,
    /// The number of interruptions.
    #[serde(default)]
    pub(crate) tries: u32,
}

impl Said {
    /// Returns `true` for a message that asks for nothing but reminders.
    pub(crate) fn is_answered_by_rule(&self) -> bool {
        self.to_answer && self.change == Change::New && reminders::asks_for_nothing_else(&self.content)
    }
}

impl Perception {
    /// The first thing that was said.
    pub(crate) fn first(&self) -> &Said {
        self.said.first().unwrap_or_else(|| unreachable!("a perception is of something"))
    }

    /// The last thing that was said.
    pub(crate) fn last(&self) -> &Said {
        self.said.last().unwrap_or_else(|| unreachable!("a perception is of something"))
    }

    /// All that was said.
    pub(crate) fn content(&self) -> String {
        self.said.iter().map(|said| said.content.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// Returns `true` if any of the messages is to be answered.
    pub(crate) fn to_answer(&self) -> bool {
        self.said.iter().any(|said| said.to_answer)
    }

    /// Returns `true` if all that is to be answered asks for reminders alone: then an answer takes no model.
    pub(crate) fn is_answered_by_rule(&self) -> bool {
        let mut asked = self.said.iter().filter(|said| said.to_answer).peekable();
        asked.peek().is_some() && asked.all(Said::is_answered_by_rule)
    }

    /// Returns the cause.
    pub(crate) fn cause(&self) -> Cause {
        let last = self.last();
        last.cause.and(last.source.clone())
    }
}

/// A perception that a job is busy with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Thought {
    /// The job.
    pub(crate) job: Arc<str>,
    /// The perception.
    pub(crate) perception: Perception,
    /// The number of times that it was begun again because of newer messages.
    #[serde(default)]
    pub(crate) extended: u32,
}

impl Thought {
    /// The message that the job writes, which is the same after a restart.
    pub(crate) fn answer(&self) -> Arc<str> {
        format!("msg_{}", self.job).into()
    }
}

/// The meaning of an entry for a lifeform.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    /// Somebody said something there, or said it differently.
    Said(Arc<str>, Said),
    /// Somebody broke off what the lifeform was saying there.
    BrokenOff(Arc<str>, Arc<str>),
    /// Somebody put a sign on what it said there: that it helped, or did not.
    Judged(Arc<str>, Arc<str>, bool),
}

/// Signs that say that an answer helped, and that it did not.
const HELPED: [&str; 8] = ["👍", "❤️", "❤", "✅", "🙏", "💯", "+1", "helpful"];
const HARMED: [&str; 5] = ["👎", "❌", "-1", "harmful", "wrong"];

/// Whoever perceives.
#[derive(Clone, Copy)]
pub(crate) struct Me<'a> {
    /// By its id.
    pub(crate) id: &'a PrincipalId,
    /// By its name.
    pub(crate) name: &'a str,
    /// The lifeform that the canvas belongs to.
    pub(crate) home_of: &'a str,
}

/// Returns the meaning of `entry`, which did `op` and left `state`, for `me`.
pub(crate) fn perceive(me: Me, entry: &Entry, op: Op, state: &State, source: Arc<str>) -> Option<Heard> {
    if entry.by == *me.id {
        return None;
    }
    let op = match op {
        Op::Chat(op) => op,
        Op::Mind(op) => return maps::perceive(me, entry, &op, state, source),
    };
    let (whom, me) = (me, me.id);
    let (topic, id, content, change) = match op {
        chat::Op::Append { topic, id, content, .. } | chat::Op::Finish { topic, id, content, .. } => {
            (topic, id, Some(content), Change::New)
        }
        chat::Op::Amend { topic, id, .. } | chat::Op::Settle { topic, id, accept: true, .. } => {
            let (before, reason) = before(state.get(&chat::message_path(&topic, &id))?);
            (topic, id, None, Change::Amended { before, reason })
        }
        chat::Op::Restore { topic, id, .. } => (topic, id, None, Change::New),
        chat::Op::Retract { topic, id, .. } | chat::Op::Purge { topic, id, .. } => (topic, id, None, Change::Retracted),
        chat::Op::React { topic, id, reaction, on: true } => {
            let message = state.get(&chat::message_path(&topic, &id))?;
            let helpful = match &*reaction {
                sign if HELPED.contains(&sign) => true,
                sign if HARMED.contains(&sign) => false,
                _ => return None,
            };
            return (message["sender"] == *me.0).then_some(Heard::Judged(topic, id, helpful));
        }
        chat::Op::Interrupt { topic, id, .. } => {
            let message = state.get(&chat::message_path(&topic, &id))?;
            return (message["sender"] == *me.0).then_some(Heard::BrokenOff(topic, id));
        }
        _ => return None,
    };
    let message = state.get(&chat::message_path(&topic, &id))?;
    let sender: Arc<str> = message["sender"].as_str()?.into();
    if *sender == *me.0 {
        return None;
    }
    let link = |member: &str| message[member].as_str().map(Arc::from);
    let is_addressed = is_addressed(whom, state, &topic, message);
    let keeps_reminders = is_addressed || keeps_unaddressed_reminders(whom, state, &topic);
    let said = Said {
        rev: entry.seq,
        since: entry.seq,
        to_answer: is_for(whom, state, &topic, message, is_addressed, &change)
            && (keeps_reminders || !reminders::asks_for_nothing_else(message["content"].as_str().unwrap_or_default())),
        keeps_reminders,
        content: content.unwrap_or_else(|| message["content"].as_str().unwrap_or_default().to_owned()),
        urgent: change == Change::New && message["urgent"] == true,
        supplements: link("supplements"),
        message: id,
        sender,
        source,
        change,
        cause: entry.cause.clone(),
        at: entry.at,
    };
    Some(Heard::Said(topic, said))
}

/// Returns the text of a message before its last change, and the reason of the change.
fn before(message: &Value) -> (String, String) {
    let past = message["revisions"].as_object().into_iter().flatten().map(|(_, past)| past);
    let last = past.max_by_key(|past| past["n"].as_u64().unwrap_or(0));
    let text = |member: &str| last.and_then(|past| past[member].as_str()).unwrap_or_default().to_owned();
    (text("content"), text("reason"))
}

/// Returns `true` if a message calls `me`, or replies to what it said.
fn is_addressed(Me { id: me, name, .. }: Me<'_>, state: &State, topic: &str, message: &Value) -> bool {
    let mut called = message["mentions"].as_array().into_iter().flatten().filter_map(Value::as_str).peekable();
    // Where it has not spoken yet its name is nobody's.
    let is_named = || calls(message["content"].as_str().unwrap_or_default()).contains(&name.to_lowercase());
    let is_called = if called.peek().is_none() { is_named() } else { called.any(|who| *who == *me.0) };
    let sender_of = |id: &Value| Some(state.get(&chat::message_path(topic, id.as_str()?))?["sender"] == *me.0);
    is_called || sender_of(&message["reply_to"]).unwrap_or(false)
}

/// Returns `true` if `me` keeps reminders that are asked for without an address.
fn keeps_unaddressed_reminders(Me { id: me, home_of, .. }: Me<'_>, state: &State, topic: &str) -> bool {
    let home = format!("lifeform:{home_of}");
    let role = || serde_json::from_value(state.get(&chat::topic_path(topic))?["roles"][&home].clone()).ok();
    *me.0 == *home || role() == Some(TopicRole::Listener)
}

/// Returns `true` if `me` is to answer a message, by the turns and roles of its topic. A lifeform's message is answered
/// only by the lifeform that it addresses: two that answer everything would never end.
fn is_for(me: Me<'_>, state: &State, topic: &str, message: &Value, addressed: bool, change: &Change) -> bool {
    let Some(in_topic) = state.get(&chat::topic_path(topic)) else { return false };
    let role = serde_json::from_value::<TopicRole>(in_topic["roles"][&*me.id.0].clone()).ok();
    let turns = serde_json::from_value::<Turns>(in_topic["turns"].clone()).unwrap_or_default();
    let mut called = message["mentions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let calls_another = called.any(|who| who.starts_with("lifeform:") && *who != *me.id.0);
    let from_lifeform = message["sender"].as_str().is_some_and(is_lifeform);
    role != Some(TopicRole::Listener)
        && match (change, turns) {
            (Change::Retracted, _) => false,
            // What was never answered needs no other answer now.
            (Change::Amended { .. }, _) => is_answered(me.id, state, topic, &message["id"]),
            (Change::New, Turns::Mentioned) => addressed && !(from_lifeform && is_echo(state, topic)),
            (Change::New, _) if from_lifeform => addressed && !is_echo(state, topic),
            (Change::New, _) => addressed || !calls_another,
        }
}

/// Returns `true` for the id of a lifeform.
fn is_lifeform(id: &str) -> bool {
    id.starts_with("lifeform:")
}

/// Returns `true` if only lifeforms have spoken in a topic for so long that no person can want it.
fn is_echo(state: &State, topic: &str) -> bool {
    let newest = state.children(&format!("{}/messages", chat::topic_path(topic))).rev().take(ECHO_MAX);
    let by_lifeforms = newest.filter(|message| message["sender"].as_str().is_some_and(is_lifeform));
    by_lifeforms.count() == ECHO_MAX
}

/// Returns `true` if `me` answered a message.
fn is_answered(me: &PrincipalId, state: &State, topic: &str, id: &Value) -> bool {
    let mut said = state.children(&format!("{}/messages", chat::topic_path(topic)));
    said.any(|message| {
        let answers = message["answers"].as_array().is_some_and(|answers| answers.contains(id));
        message["sender"] == *me.0 && (message["reply_to"] == *id || answers)
    })
}

/// The progress of a reply on the canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Nothing yet.
    Silent,
    /// The reply is being written.
    Speaking,
    /// The reply is complete.
    Over,
}

/// The effect of a newer message on the reply in its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearing {
    /// The message waits until the reply is complete.
    Waits,
    /// Both are thought about together, from the beginning.
    Extends,
    /// The message comes first; the reply is completed after it.
    Redirects,
    /// The thought is given up.
    Cancels,
}

/// See [`Bearing`].
pub(crate) fn bearing(said: &Said, thought: &Thought, speech: Speech) -> Bearing {
    let thinks_of = |message: &Arc<str>| thought.perception.said.iter().any(|known| known.message == *message);
    let is_all_of_it = thought.perception.said.iter().all(|known| known.message == said.message);
    if speech == Speech::Over || !thought.perception.to_answer() {
        return Bearing::Waits;
    }
    match &said.change {
        Change::Retracted if is_all_of_it => Bearing::Cancels,
        Change::Amended { .. } if thinks_of(&said.message) => Bearing::Extends,
        Change::Retracted | Change::Amended { .. } => Bearing::Waits,
        Change::New if said.to_answer && is_stop(&said.content) => Bearing::Cancels,
        Change::New if said.to_answer && said.urgent && speech == Speech::Speaking => Bearing::Redirects,
        Change::New if said.to_answer && said.urgent => Bearing::Extends,
        Change::New if said.to_answer && said.supplements.as_ref().is_some_and(thinks_of) => Bearing::Extends,
        Change::New if said.to_answer && speech == Speech::Silent && thought.extended < EXTENSIONS_MAX => {
            Bearing::Extends
        }
        Change::New => Bearing::Waits,
    }
}

/// Returns `true` if a message says only to stop.
pub(crate) fn is_stop(content: &str) -> bool {
    let words = content.trim().trim_end_matches(['.', '!', '。', '！', '…']).to_lowercase();
    STOP_WORDS.contains(&words.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str, content: &str) -> Said {
        Said {
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

    fn thought(said: Vec<Said>) -> Thought {
        let place = Place { canvas: "lf/c".into(), topic: "t".into() };
        let perception = Perception { place, said, history: 6, resumes: None, tries: 0 };
        Thought { job: "j".into(), perception, extended: 0 }
    }

    #[test]
    fn more_extends_a_silent_thought_waits_for_a_spoken_one_and_urgency_and_stop_break_it_off() {
        let busy = thought(vec![said("m1", "What is my cat called?")]);
        let at = |said: &Said, speech| bearing(said, &busy, speech);
        let more = said("m2", "And how old is it?");
        assert_eq!(at(&more, Speech::Silent), Bearing::Extends);
        assert_eq!(at(&more, Speech::Speaking), Bearing::Waits);
        assert_eq!(
            bearing(&more, &Thought { extended: EXTENSIONS_MAX, ..busy.clone() }, Speech::Silent),
            Bearing::Waits
        );
        let added = Said { supplements: Some("m1".into()), ..more.clone() };
        assert_eq!(at(&added, Speech::Speaking), Bearing::Extends);
        let urgent = Said { urgent: true, ..more.clone() };
        assert_eq!(at(&urgent, Speech::Speaking), Bearing::Redirects);
        assert_eq!(at(&said("m3", "Stop!"), Speech::Speaking), Bearing::Cancels);
        assert_eq!(at(&said("m3", "Stop the music"), Speech::Speaking), Bearing::Waits);
        assert_eq!(at(&Said { to_answer: false, ..urgent.clone() }, Speech::Speaking), Bearing::Waits);
        assert_eq!(at(&urgent, Speech::Over), Bearing::Waits, "there is nothing left to break off");
        let amended = Said { change: Change::Amended { before: "x".into(), reason: String::new() }, ..said("m1", "y") };
        assert_eq!(at(&amended, Speech::Speaking), Bearing::Extends);
        let gone = Said { change: Change::Retracted, to_answer: false, ..said("m1", "") };
        assert_eq!(at(&gone, Speech::Speaking), Bearing::Cancels);
        let both = thought(vec![said("m1", "a"), said("m2", "b")]);
        assert_eq!(bearing(&gone, &both, Speech::Speaking), Bearing::Waits);
    }
}
