//! The conversation of an invocation in its journal `invocation:{id}`: each message is stored once, and each answer in
//! the commit that pays for it. A restarted invocation continues where the journal ends and pays for no answer twice.

mod made;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use store::{Batch, Hash, Op, Store, StoreError, Stream, Timestamp, json};

use crate::invocation::tool_message;
use crate::llm::{ChatMessage, ChatReply, Usage, WireToolCall};
use crate::neuron::{Completed, ToolResult};
use crate::tools::effect::Decision;
use crate::tools::form::{AskedForm, FilledForm};
use crate::tools::{Form, Made, cut_to, handles, projection};

pub use made::{CallMade, calls_made};

/// The maximum number of whole results that a conversation keeps. Further ones are cut.
const WHOLES_MAX: usize = 16;

/// The size in bytes from which a system message is stored once and shared by all conversations that start with it.
const SHARED_BYTES_MIN: usize = 256;

/// Returns the journal stream of an invocation.
pub fn stream(invocation: &str) -> Stream {
    format!("{PREFIX}{invocation}").into()
}

pub(crate) const PREFIX: &str = "invocation:";

/// A message as stored in the journal.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    message: ChatMessage,
    /// The hash under which the content is stored, if it is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_hash: Option<String>,
    /// `true` if the message reports a failed tool call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    /// `true` if the message holds the whole result that was kept last only in part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
}

/// An answer as stored in the journal.
#[derive(Serialize, Deserialize)]
struct Replied {
    message: ChatMessage,
    finish: String,
    usage: Option<Usage>,
}

/// The state of a conversation: see the module.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    stream: Stream,
    /// The messages so far.
    pub(crate) messages: Vec<ChatMessage>,
    /// The last answer, until results or other messages consume it.
    pub(crate) reply: Option<ChatReply>,
    /// The ids of the calls of this answer that have a result.
    results: Vec<String>,
    /// The ids of the calls that were approved.
    approved: Vec<String>,
    /// The ids of the calls that were announced and cannot be repeated.
    announced: Vec<String>,
    /// The calls that were paid before they were made.
    paid: Vec<String>,
    /// The calls of named tools that a person is asked about, each with the tool as it was then: see [`ToolSpec::pin`].
    asked: Vec<(String, Arc<str>)>,
    /// The calls about which a person is asked whether they were done, with their effects and the number of attempts so far.
    doubted: Vec<(String, Arc<str>, u32)>,
    /// The calls whose servers ask a person, each with the form and, once the person has decided, the answers.
    forms: Vec<(String, AskedForm, Option<FilledForm>)>,
    /// The effects about which a person has decided: one with a result was done, one without is left at that.
    decided: Vec<(Arc<str>, Option<String>)>,
    /// The whole results of which messages hold the beginning; the handle of the first is `r1`.
    wholes: Vec<String>,
    /// The places of the messages that hold a part of a result, each with the place of the whole one.
    parts: BTreeMap<usize, usize>,
    /// `true` if no model reads on in a result.
    is_read_by_none: bool,
    /// `true` if the last message reports a failed tool call.
    pub(crate) has_failed: bool,
    /// The number of answers that did not fit.
    pub(crate) misfits: u32,
    /// The number of answers.
    pub(crate) rounds: u32,
    /// The tool that the selection by similarity chose for the next answer.
    pub(crate) chosen: Option<Value>,
    /// The output that the selection by similarity produced without a conversation.
    pub(crate) completed: Option<Completed>,
    /// The number of consecutive calls with an unknown outcome.
    pub(crate) lost: u32,
    /// The time that calls outside which only read took since this process began with the conversation.
    pub(crate) read_for: Duration,
    /// The time at which the conversation began, if that was before this process read it.
    pub(crate) began_at: Option<Timestamp>,
    /// The operations for the next commit.
    fresh: Vec<Op>,
    /// `true` if the caller sends all messages again with its next request.
    repeated: bool,
    /// The invocation's name, as long as nothing has been written under it.
    made: Option<Arc<str>>,
}

impl Conversation {
    /// Creates an empty conversation on an invocation's stream, which may exist.
    pub(crate) fn new(invocation: &str) -> Self {
        Self { stream: stream(invocation), ..Self::default() }
    }

    /// Creates a conversation under a unique name, which no other task can have.
    pub(crate) fn first(invocation: &Arc<str>) -> Self {
        Self { made: Some(invocation.clone()), ..Self::new(invocation) }
    }

    /// Creates a conversation that the caller keeps and sends again with its next request. Its messages are stored once
    /// for all these requests.
    pub(crate) fn repeated(invocation: &Arc<str>) -> Self {
        Self { repeated: true, ..Self::first(invocation) }
    }

    /// The name of the invocation.
    pub(crate) fn invocation(&self) -> &str {
        self.stream.strip_prefix(PREFIX).unwrap_or(&self.stream)
    }

    /// Reads a conversation from its journal.
    ///
    /// # Errors
    /// Returns the store's error.
    pub(crate) async fn read(store: &Store, invocation: &str) -> Result<Self, StoreError> {
        let (mut this, mut after) = (Self::new(invocation), 0);
        loop {
            let page = store.entries(&this.stream, after, usize::MAX).await?;
            let Some(last) = page.last() else { return Ok(this) };
            after = last.seq;
            for entry in &page {
                this.began_at.get_or_insert(entry.at);
                match &*entry.kind {
                    "message" | "misfit" => {
                        let mut kept: Kept = entry.decode()?;
                        if let Some(hash) = kept.content_hash.as_deref().and_then(Hash::parse) {
                            let content = store.payload(&hash).await?.unwrap_or_default();
                            kept.message.content = Some(String::from_utf8_lossy(&content).into_owned());
                        }
                        if this.fill(&kept.message, kept.failed) {
                            continue;
                        }
                        this.misfits += u32::from(&*entry.kind == "misfit");
                        this.decide(&kept.message, kept.failed);
                        this.take_up(&kept.message);
                        this.note_part(&kept);
                        this.has_failed = kept.failed;
                        this.messages.push(kept.message);
                    }
                    "reply" => {
                        let Replied { message, finish, usage } = entry.decode()?;
                        let (text, tool_calls) = (message.content.clone(), message.tool_calls.clone());
                        this.answered(ChatReply {
                            text: text.unwrap_or_default(),
                            tool_calls: tool_calls.unwrap_or_default(),
                            finish,
                            usage,
                        });
                    }
                    "sent" => this.lost += 1,
                    "failed" => this.lost = this.lost.saturating_sub(1),
                    "chosen" => {
                        this.chosen = Some(entry.decode()?);
                        this.lost = 0;
                    }
                    "approved" => this.approved.extend(entry.decode::<Vec<String>>()?),
                    "calling" => this.mark_announced(&entry.decode::<Vec<String>>()?),
                    "doubted" => {
                        let (call, effect, tries): (String, Arc<str>, u32) = entry.decode()?;
                        this.mark_doubted(call, effect, tries);
                    }
                    "form" => {
                        let (call, asked): (String, AskedForm) = entry.decode()?;
                        this.mark_form(call, asked);
                    }
                    "asked" => {
                        let (call, pin): (String, Arc<str>) = entry.decode()?;
                        this.mark_asked(call, pin);
                    }
                    "paid" => this.mark_paid(entry.decode()?),
                    "whole" => this.wholes.push(entry.decode()?),
                    "heeded" => this.decided.clear(),
                    "completed" => this.completed = Some(entry.decode()?),
                    _ => {}
                }
            }
        }
    }

    /// Consumes the last answer by a message. An answer that calls tools is consumed once every call has a result.
    fn take_up(&mut self, message: &ChatMessage) {
        let Some(reply) = &self.reply else { return };
        if let (Some(id), false) = (&message.tool_call_id, reply.tool_calls.is_empty()) {
            self.results.push(id.clone());
            if reply.tool_calls.iter().any(|call| !self.results.contains(&call.id)) {
                return;
            }
        }
        self.reply = None;
        self.forget_calls();
    }

    fn forget_calls(&mut self) {
        self.results.clear();
        self.approved.clear();
        self.announced.clear();
        self.doubted.clear();
        self.forms.clear();
        self.asked.clear();
        self.paid.clear();
    }

    fn mark_asked(&mut self, call: String, pin: Arc<str>) {
        self.asked.retain(|(asked, _)| *asked != call);
        self.asked.push((call, pin));
    }

    /// Announces calls. What a person decided about an earlier attempt does not hold for the next one.
    pub(crate) fn mark_announced(&mut self, calls: &[String]) {
        self.approved.retain(|call| !calls.contains(call));
        self.doubted.retain(|(call, ..)| !calls.contains(call));
        self.forms.retain(|(call, ..)| !calls.contains(call));
        self.announced.extend_from_slice(calls);
    }

    fn mark_doubted(&mut self, call: String, effect: Arc<str>, tries: u32) {
        self.approved.retain(|approved| *approved != call);
        self.doubted.retain(|(doubted, ..)| *doubted != call);
        self.doubted.push((call, effect, tries));
    }

    fn mark_form(&mut self, call: String, asked: AskedForm) {
        self.forms.retain(|(known, ..)| *known != call);
        self.forms.push((call, asked, None));
    }

    /// Takes the result of a call whose server asks a person as the answers to the form. The call itself has none yet.
    fn fill(&mut self, message: &ChatMessage, failed: bool) -> bool {
        let Some(id) = &message.tool_call_id else { return false };
        let open = self.forms.iter_mut().find(|(call, _, filled)| call == id && filled.is_none());
        let Some((_, asked, filled)) = open else { return false };
        let written = message.content.as_deref().filter(|_| !failed);
        let answers = written.and_then(|written| serde_json::from_str(written).ok());
        *filled = Some(FilledForm { asked: asked.clone(), answers });
        true
    }

    /// Records that the server of a call asks a person.
    pub(crate) fn ask_form(&mut self, call: &str, asked: AskedForm) {
        self.fresh.push(self.entry("form", json(&(call, &asked))));
        self.mark_form(call.to_owned(), asked);
    }

    /// Returns the form of a call that no person has answered.
    pub(crate) fn open_form(&self, call: &str) -> Option<&Form> {
        let open = self.forms.iter().find(|(known, _, filled)| known == call && filled.is_none());
        open.map(|(_, asked, _)| &asked.form)
    }

    /// Returns the answers of a person to the form of a call, until the call is made with them.
    pub(crate) fn filled_form(&self, call: &str) -> Option<&FilledForm> {
        self.forms.iter().find(|(known, ..)| known == call).and_then(|(.., filled)| filled.as_ref())
    }

    /// Takes the result of a call about which a person was asked as the person's decision.
    fn decide(&mut self, message: &ChatMessage, failed: bool) {
        let Some(id) = &message.tool_call_id else { return };
        if let Some(at) = self.doubted.iter().position(|(call, ..)| call == id) {
            let (_, effect, _) = self.doubted.remove(at);
            self.decided.push((effect, message.content.clone().filter(|_| !failed)));
        }
    }

    /// Records the approval of a call.
    pub(crate) fn approve(&mut self, call: &str) {
        self.fresh.push(self.entry("approved", json(&[call])));
        self.approved.push(call.to_owned());
    }

    /// Returns `true` if a call is approved.
    pub(crate) fn is_approved(&self, call: &str) -> bool {
        self.approved.iter().any(|known| known == call)
    }

    /// Records that non-repeatable calls are about to be made.
    pub(crate) fn announce(&mut self, calls: &[String]) {
        self.fresh.push(self.announcement(calls));
        self.mark_announced(calls);
    }

    /// Returns the entry that announces calls, for a commit that may be refused; afterwards see [`Self::mark_announced`].
    pub(crate) fn announcement(&self, calls: &[String]) -> Op {
        self.entry("calling", json(calls))
    }

    /// Returns the entry that says that a call was paid, for the commit of the payment; afterwards see [`Self::mark_paid`].
    pub(crate) fn payment(&self, call: &str) -> Op {
        self.entry("paid", json(&call))
    }

    pub(crate) fn mark_paid(&mut self, call: String) {
        self.paid.push(call);
    }

    /// Returns `true` if a call was paid, though it may not have been made before the daemon stopped.
    pub(crate) fn is_paid(&self, call: &str) -> bool {
        self.paid.iter().any(|paid| paid == call)
    }

    /// Records that a person is asked about a call of a named tool as it is now.
    pub(crate) fn ask_about(&mut self, call: &str, pin: &Arc<str>) {
        if self.pin_asked_about(call) != Some(pin) {
            self.fresh.push(self.entry("asked", json(&(call, pin))));
            self.mark_asked(call.to_owned(), pin.clone());
        }
    }

    /// Returns the named tool, as it was, with which a person was asked about a call.
    pub(crate) fn pin_asked_about(&self, call: &str) -> Option<&Arc<str>> {
        self.asked.iter().find(|(asked, _)| asked == call).map(|(_, pin)| pin)
    }

    /// Records that a person is asked whether a call was done.
    pub(crate) fn doubt(&mut self, call: &str, effect: &Arc<str>, tries: u32) {
        self.fresh.push(self.entry("doubted", json(&(call, effect, tries))));
        self.mark_doubted(call.to_owned(), effect.clone(), tries);
    }

    /// Returns the decision of a person about a call since its latest announcement.
    pub(crate) fn decision(&self, call: &str) -> Decision {
        match self.doubted.iter().find(|(doubted, ..)| doubted == call) {
            _ if !self.is_approved(call) => Decision::None,
            Some((.., tries)) => Decision::NotDone { tries: *tries },
            None => Decision::Approved,
        }
    }

    /// Returns the effects about which a person has decided, with the result of each that was done.
    pub(crate) fn decided(&self) -> Vec<(Arc<str>, Option<String>)> {
        self.decided.clone()
    }

    /// Records that the decisions are in the records of the effects.
    pub(crate) fn heed(&mut self) {
        self.fresh.push(self.entry("heeded", json(&())));
        self.decided.clear();
    }

    /// Returns `true` if the journal announces a call, so it may have been made before the daemon stopped.
    pub(crate) fn is_announced(&self, call: &str) -> bool {
        self.announced.iter().any(|known| known == call)
    }

    /// Adds the client's results of calls, and its decisions about calls that need an approval.
    pub(crate) fn hear(&mut self, results: &[ToolResult]) {
        for result in results {
            match result.approved {
                Some(true) => self.approve(&result.id),
                Some(false) => {
                    let refused = ToolResult { error: Some("it was not approved".into()), ..result.clone() };
                    self.say_result(&refused);
                }
                None => self.say_result(result),
            }
        }
    }

    /// Returns `true` if a call has a result, even if other calls of the same answer have none.
    pub(crate) fn has_result(&self, call: &str) -> bool {
        self.results.iter().any(|known| known == call)
    }

    /// Adds a message.
    pub(crate) fn say(&mut self, message: ChatMessage) {
        self.note("message", plain(message));
    }

    /// Adds the result of a tool.
    pub(crate) fn say_result(&mut self, result: &ToolResult) {
        self.say_part(result, false);
    }

    fn say_part(&mut self, result: &ToolResult, partial: bool) {
        self.has_failed = result.error.is_some();
        let message = tool_message(result);
        self.note("message", Kept { message, content_hash: None, failed: self.has_failed, partial });
    }

    /// Records what the message that comes next is a part of.
    fn note_part(&mut self, kept: &Kept) {
        if kept.partial {
            self.parts.insert(self.messages.len(), self.wholes.len().saturating_sub(1));
        }
    }

    /// Returns the whole result of which a message holds a part.
    pub(crate) fn whole_of(&self, place: usize) -> Option<&str> {
        self.wholes.get(*self.parts.get(&place)?).map(String::as_str)
    }

    /// Returns the call of which a message is the result: the last one with its id, since some servers give the same ids in each answer.
    pub(crate) fn call_of(&self, place: usize) -> Option<&WireToolCall> {
        let id = self.messages.get(place)?.tool_call_id.as_ref()?;
        let mut calls = self.messages[..place].iter().rev().filter_map(|message| message.tool_calls.as_ref()).flatten();
        calls.find(|call| call.id == *id)
    }

    /// Returns the places of the results in the conversation, each with its call.
    pub(crate) fn results(&self) -> impl Iterator<Item = (usize, &WireToolCall)> + Clone {
        (0..self.messages.len()).filter_map(|place| Some((place, self.call_of(place)?)))
    }

    /// Adds the result of a tool that was called. If it is only the beginning of the whole result, the model gets a handle to read on.
    pub(crate) fn say_made(&mut self, made: &Made) {
        let keeps = !self.is_read_by_none && self.wholes.len() < WHOLES_MAX;
        let (Some(whole), Some(shown), true) = (&made.whole, &made.result.result, keeps) else {
            return self.say_result(&made.result);
        };
        self.fresh.push(self.entry("whole", json(whole)));
        self.wholes.push(whole.clone());
        let shown = handles::beginning(whole, &format!("r{}", self.wholes.len()), shown.len());
        self.say_part(&ToolResult { result: Some(shown), ..made.result.clone() }, true);
    }

    /// Adds the result of a tool without the prose of others, which is kept under a handle: see [`projection`].
    pub(crate) fn say_projected(&mut self, made: &Made, readable: &[String], most: usize) {
        let Some(shown) = &made.result.result else {
            let error = made.result.error.as_deref().map(projection::projected_error);
            return self.say_result(&ToolResult { error, ..made.result.clone() });
        };
        let whole = made.whole.as_ref().unwrap_or(shown);
        let keeps = self.wholes.len() < WHOLES_MAX;
        let handle = if keeps { format!("r{}", self.wholes.len() + 1) } else { String::new() };
        let (projected, hides) = projection::projected(whole, &handle, readable);
        if hides && keeps {
            self.fresh.push(self.entry("whole", json(whole)));
            self.wholes.push(whole.clone());
        }
        let result = Some(cut_to(projected, most));
        self.say_part(&ToolResult { result, ..made.result.clone() }, hides && keeps);
    }

    /// Cuts results that are too long without a handle, since no model reads them.
    pub(crate) fn read_by_none(&mut self) {
        self.is_read_by_none = true;
    }

    /// Returns the whole result of a handle.
    pub(crate) fn whole(&self, handle: &str) -> Option<&str> {
        let place: usize = handle.strip_prefix('r')?.parse().ok()?;
        self.wholes.get(place.checked_sub(1)?).map(String::as_str)
    }

    /// Returns `true` if a message holds only the beginning of a result.
    pub(crate) fn has_handles(&self) -> bool {
        !self.wholes.is_empty()
    }

    /// Adds the messages that reject an answer that did not fit.
    pub(crate) fn object(&mut self, messages: Vec<ChatMessage>) {
        self.misfits += 1;
        for (place, message) in messages.into_iter().enumerate() {
            self.note(if place == 0 { "misfit" } else { "message" }, plain(message));
        }
    }

    fn note(&mut self, kind: &str, mut kept: Kept) {
        let (message, failed) = (kept.message.clone(), kept.failed);
        let shares = self.repeated || message.role == "system";
        let shared = shares && message.content.as_ref().is_some_and(|it| it.len() > SHARED_BYTES_MIN);
        if let (true, Some(content)) = (shared, kept.message.content.take_if(|_| shared)) {
            let hash = Hash::of(content.as_bytes());
            kept.content_hash = Some(hash.hex());
            self.fresh.push(Op::Payload { hash, body: content.into() });
        }
        self.fresh.push(self.entry(kind, json(&kept)));
        self.decide(&message, failed);
        self.take_up(&message);
        self.note_part(&kept);
        self.messages.push(message);
    }

    fn entry(&self, kind: &str, data: bytes::Bytes) -> Op {
        Op::Append { stream: self.stream.clone(), expect: None, kind: kind.into(), data }
    }

    /// Records an answer that is already in the journal.
    pub(crate) fn answered(&mut self, reply: ChatReply) {
        self.messages.push(message_of(&reply));
        self.forget_calls();
        self.reply = Some(reply);
        self.rounds += 1;
        self.chosen = None;
        self.lost = 0;
    }

    /// Adds an operation to the next commit.
    pub(crate) fn with(&mut self, op: Op) {
        self.fresh.push(op);
    }

    /// Adds all pending operations to `batch`.
    pub(crate) fn write(&mut self, batch: Batch) -> Batch {
        let batch = self.written_into(batch);
        self.is_written();
        batch
    }

    /// Adds all pending operations to `batch`. They stay pending until [`Self::is_written`] is called.
    pub(crate) fn written_into(&self, mut batch: Batch) -> Batch {
        batch.ops.extend(self.fresh.iter().cloned());
        match &self.made {
            Some(name) => batch.made(name),
            None => batch,
        }
    }

    /// Marks the operations that were last handed out as durable.
    pub(crate) fn is_written(&mut self) {
        self.fresh.clear();
        self.made = None;
    }

    /// Returns `true` if the conversation has no messages.
    pub(crate) fn is_new(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns `true` if there are operations to commit.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Returns the name of the invocation.
    pub(crate) fn name(&self) -> Arc<str> {
        self.stream.trim_start_matches(PREFIX).into()
    }

    /// Adds an answer that does not come from a model: the calls that a fascicle makes.
    pub(crate) fn ask(&mut self, calls: Vec<WireToolCall>) {
        let reply = ChatReply { tool_calls: calls, finish: "tool_calls".into(), ..ChatReply::default() };
        self.fresh.push(self.entry(replied(&reply).0, json(&replied(&reply).1)));
        self.answered(reply);
    }

    /// Returns the journal stream.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }
}

fn plain(message: ChatMessage) -> Kept {
    Kept { message, content_hash: None, failed: false, partial: false }
}

fn message_of(reply: &ChatReply) -> ChatMessage {
    ChatMessage {
        role: "assistant".into(),
        content: (!reply.text.is_empty()).then(|| reply.text.clone()),
        tool_calls: (!reply.tool_calls.is_empty()).then(|| reply.tool_calls.clone()),
        ..ChatMessage::default()
    }
}

/// Returns the journal entry of an answer.
pub(crate) fn replied(reply: &ChatReply) -> (&'static str, Value) {
    let kept = Replied { message: message_of(reply), finish: reply.finish.clone(), usage: reply.usage };
    ("reply", value!(kept))
}

/// Returns all messages of an invocation as JSON, for readers of the record of calls.
///
/// # Errors
/// Returns the store's error.
pub async fn messages(store: &Store, invocation: &Arc<str>) -> Result<Vec<Value>, StoreError> {
    let conversation = Conversation::read(store, invocation).await?;
    Ok(conversation.messages.iter().map(|message| value!(message)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some servers number the calls of each answer from zero.
    #[test]
    fn a_result_is_of_the_last_call_with_its_id() {
        let call = |name: &str| -> WireToolCall {
            serde_json::from_value(
                value!({"id": "call_0", "type": "function", "function": {"name": name, "arguments": "{}"}}),
            )
            .unwrap()
        };
        let result = ToolResult { id: "call_0".into(), result: Some("{}".into()), ..ToolResult::default() };
        let mut talk = Conversation::new("i1");
        for name in ["page", "search"] {
            talk.ask(vec![call(name)]);
            talk.say_result(&result);
        }
        let made: Vec<_> = talk.results().map(|(place, call)| (place, &*call.function.name)).collect();
        assert_eq!(made, [(1, "page"), (3, "search")]);
    }
}
