//! The settlement of effects whose outcome is unknown: a repetition under the same key, or a look-up.

use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use store::Timestamp;

use super::TRIES_MAX;
use crate::invocation::Run;
use crate::neuron::ToolCall;
use crate::spec::compile;
use crate::tools::Caller;
use crate::tools::effect::{Effect, EffectClass, EffectState};
use crate::tools::form::Forms;
use crate::tools::spec::{Check, Settle, ToolSpec};

/// The time for which servers are taken to remember an idempotency key, and the time for which a call without one may be
/// repeated: later it could overwrite what others wrote.
const KEY_HOLDS: SignedDuration = SignedDuration::from_hours(23);
const REPEATS_WITHIN: SignedDuration = SignedDuration::from_mins(15);
/// The longest wait until the absence of an effect counts.
const ABSENCE_WAIT_MAX: SignedDuration = SignedDuration::from_mins(10);

/// The outcome of a look-up.
pub(super) enum Settled {
    Done(String),
    Absent,
    /// The call may be repeated under its key.
    Repeat,
    Unknown,
}

impl Run {
    /// Returns `true` if a call whose outcome is unknown may be made again under the same key.
    fn may_repeat_effect(&self, effect: &Effect, tool: &ToolSpec) -> bool {
        let holds = if tool.repeatable { KEY_HOLDS } else { REPEATS_WITHIN };
        let is_young = self.store.clock().now().duration_since(effect.announced_at) <= holds;
        let repeats = tool.repeatable || effect.class == EffectClass::Idempotent;
        // Under another id of its step it would have had another key.
        let has_key = !(tool.repeatable && effect.may_have_been_made());
        repeats && has_key && effect.tries < TRIES_MAX && is_young
    }

    /// Finds out whether an effect was done.
    pub(super) async fn settle(&self, effect: &Effect, tool: &ToolSpec, call: &ToolCall, caller: &Caller) -> Settled {
        if self.may_repeat_effect(effect, tool) {
            return Settled::Repeat;
        }
        let Some(settle) = &tool.settle else { return Settled::Unknown };
        let looks = ToolSpec { name: tool.name.clone(), run: settle.run.clone(), ..ToolSpec::default() };
        let given = tool.with_key(serde_json::from_str(&call.params).unwrap_or_default(), &effect.sent_key(tool));
        let given = Value::Object(given);
        let look = ToolCall {
            id: call.id.clone(),
            name: tool.name.clone(),
            params: Value::Object(filled(&settle.arguments, &effect.sent_key(tool), &given)).to_string(),
            ..ToolCall::default()
        };
        // A look-up that would itself need an approval does not happen unseen.
        if self.tools.needs_approval(&looks, &look, caller) {
            return Settled::Unknown;
        }
        let countable = self.absence_counts_from(effect, tool, settle);
        for _ in 0..2 {
            let made =
                self.make((&looks, &look, Forms::default()), effect.id.to_string(), &effect.by, caller).await.result;
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
                // Under another id of its step it would have had another key.
                left if !left.is_positive() && effect.may_have_been_made() => return Settled::Unknown,
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
        let after = match settle.after_s {
            Some(seconds) => SignedDuration::from_secs(seconds.into()),
            None => (timeout * 2).max(SignedDuration::from_secs(60)),
        };
        let (started, at) = (self.tools.started_at(), effect.at);
        match effect.state {
            // The process that would have sent the request has ended since.
            EffectState::Announced if at < started => started + after,
            // The call was cancelled. It may have waited for its turn before it was sent.
            EffectState::Announced => at + timeout + after,
            _ => at + after,
        }
    }
}

/// Fills the placeholders of a look-up: `{{effect}}`, and `{{/pointer}}` into the arguments of the call.
fn filled(arguments: &Map<String, Value>, key: &str, given: &Value) -> Map<String, Value> {
    let fill = |text: &str| {
        let inner = text.strip_prefix("{{").and_then(|text| text.strip_suffix("}}"));
        match inner {
            Some("effect") => Value::String(key.to_owned()),
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
