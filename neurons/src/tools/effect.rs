//! The effects of tool calls outside the daemon: their identity, their record, and the decision about a call that may repeat
//! one. Plain functions; `neurons/src/effects.rs` stores the records and makes the calls.
//!
//! An effect is a call of a tool with certain arguments for one piece of work (its *scope*). It has an idempotency key of its
//! own, so a model that asks again, a retry and a restart mean the same effect.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Cause, Hash, Timestamp, json};

/// The maximum number of effects that one document holds. Older ones that are settled make room.
const EFFECTS_MAX: usize = 512;
/// The time after which a settled effect is removed.
const KEPT: jiff::SignedDuration = jiff::SignedDuration::from_hours(90 * 24);

/// The work in which an effect happens once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectScope {
    /// The piece of work: a message that is answered, a goal, a due schedule, a step of a job, or an invocation. The same call
    /// in it is the same effect.
    pub scope: Arc<str>,
    /// The work around it: a topic, the topmost goal, a job, or an invocation. An unknown outcome in it stops further writes
    /// to the same place.
    pub root: Arc<str>,
    /// `true` if a call that was made in another scope of the root is made again only with an approval: the scopes are of the
    /// same conversation or plan.
    #[serde(default)]
    pub echoes: bool,
}

/// The effect class of a call: whether it may be repeated under the same key when its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// A repetition changes nothing: `PUT`, `DELETE`, and tools that are declared `repeatable`.
    Idempotent,
    /// A repetition may happen twice.
    Write,
}

/// The state of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// An announced call: it is under way, or its outcome was lost with the process.
    Announced,
    /// A call that was done.
    Done,
    /// A call that was certainly not done.
    Refused,
    /// A call of which nobody knows whether it was done.
    Unknown,
    /// A call of which nobody knows whether it was done, and which a person left at that.
    Left,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The SHA-256 of scope, tool and arguments, in hexadecimal; also the idempotency key of the call.
    pub id: Arc<str>,
    /// The piece of work: see [`EffectScope`].
    pub scope: Arc<str>,
    /// The name of the tool.
    pub tool: String,
    /// The SHA-256 of tool and arguments.
    pub call: Arc<str>,
    /// The host or MCP server.
    pub place: Arc<str>,
    /// The class.
    pub class: EffectClass,
    /// The state.
    pub state: EffectState,
    /// The number of attempts.
    pub tries: u32,
    /// The time of the first announcement.
    pub announced_at: Timestamp,
    /// The time of the latest attempt or of the outcome.
    pub at: Timestamp,
    /// The invocation and the call that made the latest attempt.
    pub made_by: (Arc<str>, String),
    /// The payload with the result; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The reason why it was refused or is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The cause of the latest attempt.
    pub cause: Cause,
}

/// The effects of one root, as stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effects {
    /// The effects, oldest first.
    pub effects: Vec<Effect>,
}

/// A call that would have an effect.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) id: Arc<str>,
    pub(crate) scope: EffectScope,
    pub(crate) tool: String,
    pub(crate) call: Arc<str>,
    pub(crate) place: Arc<str>,
    pub(crate) class: EffectClass,
    /// `true` if a call that was done is made again when it is asked for: nobody said whether the tool only reads.
    pub(crate) may_read: bool,
}

/// The decision about a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// A call to make.
    Make,
    /// A call that was made: the result of its effect is the answer.
    Answer(Box<Effect>),
    /// A call that is under way elsewhere.
    Await,
    /// A call whose outcome is unknown and must be found out first.
    Settle(Box<Effect>),
    /// A call that a person must approve, with the reason.
    Ask(String),
    /// A call that is not made, with the reason.
    Refuse(String),
}

/// The sentence about an effect whose outcome is unknown.
pub(crate) const UNSURE: &str =
    "it is not known whether this was done, so it is not done again; it is being looked into";

/// Returns arguments in a canonical form (RFC 8785), without members that are null.
fn canonical(arguments: &Map<String, Value>) -> String {
    let given: Map<String, Value> = arguments
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    serde_json_canonicalizer::to_string(&given).unwrap_or_default()
}

impl Wanted {
    /// Returns the call of a tool, which `runs` identifies, with arguments in a scope.
    pub(crate) fn new(
        (tool, runs): (&str, &Hash),
        arguments: &Map<String, Value>,
        place: Arc<str>,
        class: EffectClass,
        scope: EffectScope,
    ) -> Self {
        let call = Hash::of(&json(&(runs.hex(), canonical(arguments)))).hex();
        let id = Hash::of(&json(&(&scope.scope, &call))).hex().into();
        Self { id, scope, tool: tool.to_owned(), call: call.into(), place, class, may_read: false }
    }
}

impl Effects {
    /// Returns the effect with an id.
    pub(crate) fn of(&self, id: &str) -> Option<&Effect> {
        self.effects.iter().find(|effect| *effect.id == *id)
    }

    /// Decides about a call. `is_under_way` says whether this process is making a call with an id; `is_approved` is `true` if a
    /// person has approved this very call.
    pub(crate) fn judge(&self, wanted: &Wanted, is_approved: bool, is_under_way: impl Fn(&str) -> bool) -> Verdict {
        let is_open = |effect: &&Effect| {
            effect.state == EffectState::Unknown
                || (effect.state == EffectState::Announced && !is_under_way(&effect.id))
        };
        match self.of(&wanted.id).map(|effect| (effect, effect.state)) {
            Some((_, EffectState::Announced)) if is_under_way(&wanted.id) => return Verdict::Await,
            Some((_, EffectState::Announced | EffectState::Unknown)) if is_approved => return Verdict::Make,
            Some((effect, EffectState::Announced | EffectState::Unknown)) => {
                return Verdict::Settle(Box::new(effect.clone()));
            }
            Some((effect, EffectState::Done)) if !wanted.may_read => return Verdict::Answer(Box::new(effect.clone())),
            Some((_, EffectState::Left)) if !is_approved => {
                return Verdict::Refuse("it is not known whether this was done, and it was left at that".into());
            }
            Some(_) | None => {}
        }
        // While an outcome is unknown, neither other arguments nor a sister tool slip through.
        if wanted.class == EffectClass::Write
            && let Some(open) = self.effects.iter().filter(is_open).find(|open| open.place == wanted.place)
        {
            return Verdict::Refuse(format!(
                "it is not known whether {} was done, so nothing else is changed at {} until that is settled",
                open.tool, open.place
            ));
        }
        let echo = self.effects.iter().filter(|other| wanted.scope.echoes && other.call == wanted.call);
        let echo = echo.filter(|other| other.scope != wanted.scope.scope).max_by_key(|other| other.at);
        match echo {
            Some(echo) if is_open(&echo) => Verdict::Refuse(UNSURE.into()),
            Some(echo) if matches!(echo.state, EffectState::Done | EffectState::Left) && !is_approved => {
                let done = if echo.state == EffectState::Done { "was done" } else { "may have been done" };
                Verdict::Ask(format!("the same {done} on {}", echo.at.strftime("%Y-%m-%d at %H:%M UTC")))
            }
            _ => Verdict::Make,
        }
    }

    /// Records that a call is about to be made.
    ///
    /// # Errors
    /// A sentence if there are too many effects whose outcome is open.
    pub(crate) fn announce(
        &mut self,
        wanted: &Wanted,
        made_by: (Arc<str>, String),
        cause: &Cause,
        now: Timestamp,
    ) -> Result<(), String> {
        if let Some(effect) = self.effects.iter_mut().find(|effect| effect.id == wanted.id) {
            (effect.state, effect.at, effect.made_by) = (EffectState::Announced, now, made_by);
            (effect.tries, effect.why, effect.cause) = (effect.tries + 1, None, cause.clone());
            return Ok(());
        }
        let is_settled = |effect: &Effect| !matches!(effect.state, EffectState::Announced | EffectState::Unknown);
        self.effects.retain(|effect| !is_settled(effect) || now.duration_since(effect.at) < KEPT);
        if self.effects.len() >= EFFECTS_MAX {
            let oldest = self.effects.iter().position(is_settled);
            let oldest = oldest.ok_or("too many calls are open whose outcome is unknown")?;
            self.effects.remove(oldest);
        }
        self.effects.push(Effect {
            id: wanted.id.clone(),
            scope: wanted.scope.scope.clone(),
            tool: wanted.tool.clone(),
            call: wanted.call.clone(),
            place: wanted.place.clone(),
            class: wanted.class,
            state: EffectState::Announced,
            tries: 1,
            announced_at: now,
            at: now,
            made_by,
            result: None,
            why: None,
            cause: cause.clone(),
        });
        Ok(())
    }

    /// Records an outcome. What the server answered counts more than an unknown outcome.
    pub(crate) fn conclude(
        &mut self,
        id: &str,
        state: EffectState,
        result: Option<String>,
        why: Option<String>,
        now: Timestamp,
    ) {
        if let Some(effect) = self.effects.iter_mut().find(|effect| *effect.id == *id) {
            (effect.state, effect.at, effect.why) = (state, now, why);
            effect.result = result.or(effect.result.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(scope: &str, arguments: Value) -> Wanted {
        let scope = EffectScope { scope: scope.into(), root: "r".into(), echoes: true };
        let arguments = arguments.as_object().cloned().unwrap();
        Wanted::new(("book", &Hash::of(b"book")), &arguments, "port.example".into(), EffectClass::Write, scope)
    }

    fn with(wanted: &Wanted, state: EffectState) -> Effects {
        let mut effects = Effects::default();
        let by = ("inv".into(), "c".to_owned());
        effects.announce(wanted, by, &Cause::default(), Timestamp::UNIX_EPOCH).unwrap();
        effects.conclude(&wanted.id, state, None, None, Timestamp::UNIX_EPOCH);
        effects
    }

    fn judged(effects: &Effects, wanted: &Wanted) -> Verdict {
        effects.judge(wanted, false, |_| false)
    }

    #[test]
    fn equal_calls_in_one_scope_are_one_effect() {
        let one = wanted("a", json!({"vessel": "V-1", "nights": 2, "note": null}));
        assert_eq!(one.id, wanted("a", json!({"nights": 2.0, "vessel": "V-1"})).id);
        assert_ne!(one.id, wanted("a", json!({"vessel": "V-1", "nights": 3})).id);
        assert_ne!(one.id, wanted("b", json!({"vessel": "V-1", "nights": 2})).id);
    }

    #[test]
    fn what_was_done_or_may_have_been_is_not_made_again() {
        let one = wanted("a", json!({"vessel": "V-1"}));
        assert_eq!(judged(&Effects::default(), &one), Verdict::Make);
        assert!(matches!(judged(&with(&one, EffectState::Done), &one), Verdict::Answer(_)));
        assert!(matches!(judged(&with(&one, EffectState::Unknown), &one), Verdict::Settle(_)));
        assert!(matches!(judged(&with(&one, EffectState::Announced), &one), Verdict::Settle(_)));
        assert!(matches!(judged(&with(&one, EffectState::Left), &one), Verdict::Refuse(_)));
        assert_eq!(judged(&with(&one, EffectState::Refused), &one), Verdict::Make);
        let open = with(&one, EffectState::Announced);
        assert_eq!(open.judge(&one, false, |_| true), Verdict::Await);
        assert_eq!(open.judge(&one, true, |_| false), Verdict::Make, "a person said that it was not done");
    }

    #[test]
    fn an_unknown_outcome_stops_other_writes_to_the_same_place() {
        let (one, other) = (wanted("a", json!({"vessel": "V-1"})), wanted("a", json!({"vessel": "V-2"})));
        let open = with(&one, EffectState::Unknown);
        assert!(matches!(judged(&open, &other), Verdict::Refuse(_)));
        let elsewhere = Wanted { place: "bank.example".into(), ..other.clone() };
        assert_eq!(judged(&open, &elsewhere), Verdict::Make);
        assert_eq!(judged(&open, &Wanted { class: EffectClass::Idempotent, ..other.clone() }), Verdict::Make);
        assert_eq!(judged(&with(&one, EffectState::Left), &other), Verdict::Make, "no fence stands for ever");
    }

    #[test]
    fn the_same_call_for_another_message_is_asked_about() {
        let (one, again) = (wanted("a", json!({"vessel": "V-1"})), wanted("b", json!({"vessel": "V-1"})));
        assert!(matches!(judged(&with(&one, EffectState::Done), &again), Verdict::Ask(_)));
        assert_eq!(with(&one, EffectState::Done).judge(&again, true, |_| false), Verdict::Make);
        assert!(matches!(judged(&with(&one, EffectState::Unknown), &again), Verdict::Refuse(_)));
        let mut apart = again.clone();
        apart.scope.echoes = false;
        assert_eq!(judged(&with(&one, EffectState::Done), &apart), Verdict::Make, "steps of a job are apart");
    }
}
