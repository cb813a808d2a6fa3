//! The calls that have an effect outside the daemon: each is announced with its effect in one commit before it is made, its
//! outcome shares the commit of its result, and an unknown outcome is settled before a model is asked again.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use store::{Batch, Expect, Hash, Key, Kind, Op, Origin, StoreError, Timestamp};

use crate::NeuronError;
use crate::conversation::Conversation;
use crate::invocation::Run;
use crate::neuron::{ToolCall, ToolResult};
use crate::spec::compile;
use crate::tools::effect::{Effect, EffectClass, EffectScope, EffectState, Effects, UNSURE, Verdict, Wanted};
use crate::tools::spec::{Check, Settle, ToolSpec};
use crate::tools::{Caller, Made};

/// The maximum number of attempts of a call that may be repeated.
const TRIES_MAX: u32 = 4;
/// The pause before the second attempt. It doubles with each further one.
const AGAIN: Duration = Duration::from_millis(250);
/// The time for which servers are taken to remember an idempotency key, and the time for which a call without one may be
/// repeated: later it could overwrite what others wrote.
const KEY_HOLDS: SignedDuration = SignedDuration::from_hours(23);
const REPEATS_WITHIN: SignedDuration = SignedDuration::from_mins(15);
/// The longest wait until the absence of an effect counts.
const ABSENCE_WAIT_MAX: SignedDuration = SignedDuration::from_mins(10);
/// The maximum number of attempts to write the effects of a root that other jobs write, too.
const WRITES_MAX: usize = 64;

/// The outcome of an effect that was looked into.
enum Settled {
    Done(String),
    Absent,
    Unknown,
}

/// The state after a call: it has a result, which may be in the conversation already, or it waits for a person.
enum After {
    Said,
    Answered(ToolResult),
    Waits(ToolCall),
}

/// Returns the key of the effects of a root.
pub fn effects_key(root: &str) -> Key {
    Key::new(Kind::Effect, root)
}

/// Returns the result of an effect that was done before, marked as such.
fn already(result: &str) -> String {
    match serde_json::from_str(result) {
        Ok(Value::Object(mut members)) => {
            members.insert("already".into(), true.into());
            Value::Object(members).to_string()
        }
        Ok(other) => json!({"already": true, "result": other}).to_string(),
        Err(_) => json!({"already": true, "result": result}).to_string(),
    }
}

impl Run {
    /// Returns the scope of the effects of this run.
    fn scope(&self, talk: &Conversation) -> EffectScope {
        self.caller.scope.clone().unwrap_or_else(|| {
            let own = talk.name();
            EffectScope { scope: own.clone(), root: own, echoes: false }
        })
    }

    /// Returns the effect that a call would have; `None` for a call that only reads or stays in the daemon.
    pub(crate) fn wanted(&self, tool: &ToolSpec, call: &ToolCall, talk: &Conversation) -> Option<Wanted> {
        let (class, place, may_read) = self.tools.effect_of(tool, call)?;
        let arguments: Map<String, Value> = serde_json::from_str(&call.params).unwrap_or_default();
        let runs = Hash::of(&store::json(&tool.run));
        let wanted = Wanted::new((&tool.name, &runs), &arguments, place, class, self.scope(talk));
        Some(Wanted { may_read, ..wanted })
    }

    async fn effects(&self, root: &str) -> Result<(u64, Effects), StoreError> {
        let known = self.store.document::<Effects>(&effects_key(root)).await?;
        Ok(known.map_or_else(Default::default, |known| (known.version, known.value)))
    }

    /// Makes a call that has an effect, unless it was made before. Adds its result to the conversation, or returns the call if
    /// a person must decide about it.
    pub(crate) async fn make_effect(
        &self,
        call: &ToolCall,
        wanted: &Wanted,
        talk: &mut Conversation,
        caller: &Caller,
    ) -> Result<Option<ToolCall>, NeuronError> {
        let after = self.effect(call, wanted, talk, caller).await?;
        match after {
            After::Waits(call) => Ok(Some(call)),
            After::Said => Ok(None),
            After::Answered(result) => {
                talk.say_result(&result);
                Ok(None)
            }
        }
    }

    async fn effect(
        &self,
        call: &ToolCall,
        wanted: &Wanted,
        talk: &mut Conversation,
        caller: &Caller,
    ) -> Result<After, NeuronError> {
        let refused = |why: String| {
            After::Answered(ToolResult { id: call.id.clone(), error: Some(why), ..ToolResult::default() })
        };
        let Some(tool) = self.tool(call).cloned() else { return Ok(refused("there is no such tool".into())) };
        for _ in 0..WRITES_MAX {
            let (version, known) = self.effects(&wanted.scope.root).await?;
            let is_approved = talk.is_approved(&call.id);
            match known.judge(wanted, is_approved, |id| self.tools.is_under_way(id)) {
                Verdict::Await => self.tools.until_over(&wanted.id).await,
                Verdict::Answer(effect) => {
                    let result = Some(already(&self.result_of(&effect).await?));
                    return Ok(After::Answered(ToolResult { id: call.id.clone(), result, ..ToolResult::default() }));
                }
                Verdict::Refuse(why) => return Ok(refused(why)),
                Verdict::Ask(why) if self.may_wait => {
                    tracing::info!(tool = call.name, why, "a call waits for an approval");
                    return Ok(After::Waits(ToolCall { needs_approval: true, ..call.clone() }));
                }
                Verdict::Ask(why) => return Ok(refused(format!("{why}, and nobody can be asked here"))),
                Verdict::Settle(effect) => match self.settle(&effect, &tool, call, caller).await {
                    Settled::Done(result) => {
                        let done =
                            ToolResult { id: call.id.clone(), result: Some(already(&result)), ..ToolResult::default() };
                        self.conclude(wanted, EffectState::Done, Some(result), None, Some(&done), talk).await?;
                        return Ok(After::Said);
                    }
                    Settled::Absent => {
                        let why = Some("it was looked for and not found".to_owned());
                        self.conclude(wanted, EffectState::Refused, None, why, None, talk).await?;
                    }
                    Settled::Unknown => return self.unsure(&effect, call, wanted, talk).await,
                },
                Verdict::Make => {
                    let Some(made) =
                        self.announce_and_make((version, known), &tool, call, wanted, talk, caller).await?
                    else {
                        self.tools.until_over(&wanted.id).await;
                        continue;
                    };
                    let Made { result, is_unknown } = made;
                    if !is_unknown {
                        let state = if result.error.is_none() { EffectState::Done } else { EffectState::Refused };
                        let (kept, why) = (result.result.clone(), result.error.clone());
                        self.conclude(wanted, state, kept, why, Some(&result), talk).await?;
                        return Ok(After::Said);
                    }
                    self.conclude(wanted, EffectState::Unknown, None, result.error.clone(), None, talk).await?;
                    let (_, known) = self.effects(&wanted.scope.root).await?;
                    let Some(effect) = known.of(&wanted.id).cloned() else { return Ok(After::Answered(result)) };
                    if self.may_repeat_effect(&effect, &tool) {
                        tokio::time::sleep(AGAIN * 2u32.saturating_pow(effect.tries.saturating_sub(1))).await;
                    } else if tool.settle.is_none() {
                        return self.unsure(&effect, call, wanted, talk).await;
                    }
                }
            }
        }
        Ok(refused("too many others are changing the same".into()))
    }

    /// Announces a call together with its effect and makes it. Returns `None` if another job changed the effects meanwhile.
    async fn announce_and_make(
        &self,
        (version, mut known): (u64, Effects),
        tool: &ToolSpec,
        call: &ToolCall,
        wanted: &Wanted,
        talk: &mut Conversation,
        caller: &Caller,
    ) -> Result<Option<Made>, NeuronError> {
        let made_by = (talk.name(), call.id.clone());
        let cause = &self.origin.cause;
        if let Err(why) = known.announce(wanted, made_by, cause, self.store.clock().now()) {
            let result = ToolResult { id: call.id.clone(), error: Some(why), ..ToolResult::default() };
            return Ok(Some(Made { result, is_unknown: false }));
        }
        // Two callers that race for one effect find each other here.
        let Some(_under_way) = self.tools.begin(&wanted.id) else { return Ok(None) };
        if !talk.is_announced(&call.id) {
            talk.announce(std::slice::from_ref(&call.id));
        }
        let key = effects_key(&wanted.scope.root);
        let batch = talk.written_into(Batch::new(&self.origin)).put_expecting(key, Expect::Version(version), &known);
        match self.store.commit(batch).await {
            Ok(_) => talk.is_written(),
            Err(StoreError::Conflict { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        Ok(Some(self.make(tool, call, wanted.id.to_string(), &talk.name(), caller).await))
    }

    /// Records the outcome of an effect, with the result of the call in one commit.
    async fn conclude(
        &self,
        wanted: &Wanted,
        state: EffectState,
        kept: Option<String>,
        why: Option<String>,
        result: Option<&ToolResult>,
        talk: &mut Conversation,
    ) -> Result<(), NeuronError> {
        if let Some(result) = result {
            talk.say_result(result);
        }
        let payload = kept.map(|text| (Hash::of(text.as_bytes()), text));
        loop {
            let (version, mut known) = self.effects(&wanted.scope.root).await?;
            let hash = payload.as_ref().map(|(hash, _)| hash.hex());
            known.conclude(&wanted.id, state, hash, why.clone(), self.store.clock().now());
            let key = effects_key(&wanted.scope.root);
            let mut batch =
                talk.written_into(Batch::new(&self.origin)).put_expecting(key, Expect::Version(version), &known);
            if let Some((hash, text)) = &payload {
                batch.push(Op::Payload { hash: *hash, body: text.clone().into() });
            }
            match self.store.commit_at_last(batch).await {
                Ok(_) => {
                    talk.is_written();
                    return Ok(());
                }
                // Another job wrote an effect of the same root.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ends a call whose effect nobody knows: a person is asked where the run can wait, and the model gets a sentence elsewhere.
    async fn unsure(
        &self,
        effect: &Effect,
        call: &ToolCall,
        wanted: &Wanted,
        talk: &mut Conversation,
    ) -> Result<After, NeuronError> {
        let is_ours = effect.made_by == (talk.name(), call.id.clone());
        let lost = || "the daemon stopped while this call was under way; its outcome is unknown".to_owned();
        let why = match effect.state {
            EffectState::Announced => lost(),
            _ => effect.why.clone().unwrap_or_else(lost),
        };
        if effect.state == EffectState::Announced {
            self.conclude(wanted, EffectState::Unknown, None, Some(why.clone()), None, talk).await?;
        }
        if self.may_wait && self.caller.job.is_some() {
            return Ok(After::Waits(ToolCall { needs_approval: true, unsure: true, ..call.clone() }));
        }
        let error = Some(if is_ours { why } else { UNSURE.to_owned() });
        Ok(After::Answered(ToolResult { id: call.id.clone(), error, ..ToolResult::default() }))
    }

    async fn result_of(&self, effect: &Effect) -> Result<String, StoreError> {
        let Some(hash) = effect.result.as_deref().and_then(Hash::parse) else { return Ok(String::new()) };
        let kept = self.store.payload(&hash).await?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&kept).into_owned())
    }

    /// Returns `true` if a call whose outcome is unknown may be made again under the same key.
    fn may_repeat_effect(&self, effect: &Effect, tool: &ToolSpec) -> bool {
        let holds = if tool.repeatable { KEY_HOLDS } else { REPEATS_WITHIN };
        let is_young = self.store.clock().now().duration_since(effect.announced_at) <= holds;
        effect.class == EffectClass::Idempotent && effect.tries < TRIES_MAX && is_young
    }

    /// Finds out whether an effect was done.
    async fn settle(&self, effect: &Effect, tool: &ToolSpec, call: &ToolCall, caller: &Caller) -> Settled {
        if self.may_repeat_effect(effect, tool) {
            return Settled::Absent;
        }
        let Some(settle) = &tool.settle else { return Settled::Unknown };
        let looks = ToolSpec { name: tool.name.clone(), run: settle.run.clone(), ..ToolSpec::default() };
        let given: Value = serde_json::from_str(&call.params).unwrap_or_default();
        let look = ToolCall {
            id: call.id.clone(),
            name: tool.name.clone(),
            params: Value::Object(filled(&settle.arguments, effect, &given)).to_string(),
            ..ToolCall::default()
        };
        let countable = self.absence_counts_from(effect, tool, settle);
        for _ in 0..2 {
            let made = self.make(&looks, &look, effect.id.to_string(), &effect.made_by.0, caller).await.result;
            let seen = match (made.result, made.error) {
                (Some(result), _) => serde_json::from_str(&result).unwrap_or(Value::String(result)),
                (None, error) => json!({"error": error}),
            };
            if holds(&settle.done, &seen) {
                return Settled::Done(seen.to_string());
            }
            if !settle.absent.as_ref().is_some_and(|absent| holds(absent, &seen)) {
                return Settled::Unknown;
            }
            // The request may still be on its way.
            let left = countable.duration_since(self.store.clock().now());
            match left {
                left if !left.is_positive() => return Settled::Absent,
                left if left > ABSENCE_WAIT_MAX => return Settled::Unknown,
                left => tokio::time::sleep(left.try_into().unwrap_or_default()).await,
            }
        }
        Settled::Unknown
    }

    /// Returns the time from which on the absence of an effect counts: the request can no longer be on its way.
    fn absence_counts_from(&self, effect: &Effect, tool: &ToolSpec, settle: &Settle) -> Timestamp {
        let timeout = SignedDuration::from_secs(tool.seconds() as i64);
        let after = settle.after_s.map_or(timeout * 2, |seconds| SignedDuration::from_secs(seconds.into()));
        let after = if settle.after_s.is_none() { after.max(SignedDuration::from_secs(60)) } else { after };
        let sent = match effect.state {
            // Between announcement and sending, a call waits for permits.
            EffectState::Announced => effect.at.max(self.tools.started_at()),
            _ => effect.at,
        };
        sent + after
    }

    /// Settles the effects about which a person has decided: one that was refused is left at that, and one with a result was
    /// done.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn heed_decisions(&self, talk: &mut Conversation) -> Result<(), NeuronError> {
        if !self.spec.tools.iter().any(|tool| self.tools.may_have_effects(tool)) {
            return Ok(());
        }
        let (scope, origin): (EffectScope, &Origin) = (self.scope(talk), &self.origin);
        let (version, mut known) = self.effects(&scope.root).await?;
        let name = talk.name();
        let decided: Vec<(Arc<str>, Option<String>)> = known
            .effects
            .iter()
            .filter(|effect| effect.state == EffectState::Unknown && effect.made_by.0 == name)
            .filter_map(|effect| {
                let said =
                    talk.messages.iter().rev().find(|said| said.tool_call_id.as_ref() == Some(&effect.made_by.1))?;
                let text = said.content.clone().unwrap_or_default();
                let is_error = serde_json::from_str::<Value>(&text).is_ok_and(|text| text.get("error").is_some());
                Some((effect.id.clone(), (!is_error).then_some(text)))
            })
            .collect();
        if decided.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new(origin);
        for (id, result) in decided {
            let state = if result.is_some() { EffectState::Done } else { EffectState::Left };
            let hash = result.map(|text| {
                let hash = Hash::of(text.as_bytes());
                batch.push(Op::Payload { hash, body: text.into() });
                hash.hex()
            });
            known.conclude(&id, state, hash, Some("a person said so".into()), self.store.clock().now());
        }
        let batch = batch.put_expecting(effects_key(&scope.root), Expect::Version(version), &known);
        match self.store.commit(batch).await {
            // The next run of the conversation heeds it.
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Fills the placeholders of a look-up: `{{effect}}`, and `{{/pointer}}` into the arguments of the call.
fn filled(arguments: &Map<String, Value>, effect: &Effect, given: &Value) -> Map<String, Value> {
    let fill = |text: &str| {
        let inner = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
        match inner {
            Some("effect") => Value::String(effect.id.to_string()),
            Some(pointer) if pointer.starts_with('/') => given.pointer(pointer).cloned().unwrap_or_default(),
            _ => Value::String(text.to_owned()),
        }
    };
    let value = |value: &Value| value.as_str().map_or_else(|| value.clone(), fill);
    arguments.iter().map(|(key, one)| (key.clone(), value(one))).collect()
}

/// Returns `true` if the part of a document that a check names fits its schema.
fn holds(check: &Check, seen: &Value) -> bool {
    let Some(part) = seen.pointer(&check.at) else { return false };
    compile(&check.is).is_ok_and(|schema| schema.is_valid(part))
}
