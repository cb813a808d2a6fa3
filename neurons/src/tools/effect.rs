//! The effects of tool calls outside the daemon: their identity, their record, and the decision about a call that may repeat
//! one. Plain functions; `neurons/src/effects.rs` stores the records and makes the calls.
//!
//! An effect is a call of a tool with certain arguments for one piece of work. It has an idempotency key of its own, so a model
//! that asks again, a retry and a restart mean the same effect.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use store::{Cause, Hash, Timestamp, json};

use super::mcp::Task;
use super::spec::ToolSpec;

/// The reason why it is not known whether a call was done of which the record may be lost.
const RESTORED: &str = "this daemon was restored to an earlier moment; it may have been done since";
/// The maximum number of effects that one document holds. Older ones that are settled make room.
const EFFECTS_MAX: usize = 256;
/// The maximum size of a result in a record, in bytes, and of a reason.
const RESULT_BYTES_MAX: usize = 4 << 10;
const WHY_BYTES_MAX: usize = 256;
const ARGUMENTS_BYTES_MAX: usize = 1 << 10;
/// The time after which a settled effect is removed.
const KEPT: jiff::SignedDuration = jiff::SignedDuration::from_hours(90 * 24);
/// The time for which an effect whose outcome is unknown stands in the way of other writes to the same place.
const FENCED: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);

/// The time for which a call that another root noted is an echo.
const NOTED: jiff::SignedDuration = jiff::SignedDuration::from_hours(7 * 24);

/// The work in which an effect happens once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectScope {
    /// The piece of work: a message that is answered, a goal, a due schedule, a step of a job, or an invocation. The same call
    /// in it is the same effect.
    pub work: Arc<str>,
    /// The work around it: a topic, the topmost goal, a job, or an invocation. An unknown outcome in it stops further writes
    /// to the same place.
    pub root: Arc<str>,
    /// The time in seconds after a call during which the same call for other work of the root needs an approval. 0: none does,
    /// because the works have nothing to do with each other.
    #[serde(default)]
    pub echoes_s: u32,
    /// The beginning of the works that this holds for, if it is not all of the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echoes_in: Option<Arc<str>>,
    /// The name of a document of [`Effects`] in which several roots note their calls. The same call for another of these roots
    /// needs an approval for a week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted_in: Option<Arc<str>>,
    /// The time at which the work began, if it did so before the invocation: calls of before may have left no record in a store that was
    /// restored to an earlier moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// The effect class of a call, from the most harmless to the most serious: what the call may change, and whether it may be
/// repeated under the same key when its outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// The call changes nothing.
    Read,
    /// A repetition changes nothing: `PUT`, `DELETE`, and tools that are declared `repeatable`.
    Idempotent,
    /// A repetition may happen twice.
    Write,
    /// A repetition may happen twice, and nothing takes it back. A lifeform asks before each such call.
    Irreversible,
}

/// The state of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
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
    Abandoned,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The SHA-256 of work, tool and arguments, in hexadecimal; also the idempotency key of the call, unless it has a `key`.
    pub id: Arc<str>,
    /// The idempotency key as the service gets it in an argument, if the tool has such an argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    /// The piece of work: see [`EffectScope`].
    pub work: Arc<str>,
    /// The name of the tool.
    pub tool: String,
    /// The SHA-256 of tool and arguments.
    pub call: Arc<str>,
    /// The arguments as canonical JSON, cut to 1 KiB. Secrets are not filled in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// The host or MCP server.
    pub place: Arc<str>,
    /// The class.
    pub class: EffectClass,
    /// The state.
    pub state: EffectState,
    /// `true` if the outcome of an attempt is unknown, so that the refusal of a later attempt proves nothing.
    #[serde(default)]
    pub is_doubted: bool,
    /// The number of attempts.
    pub tries: u32,
    /// The time of the first announcement.
    pub announced_at: Timestamp,
    /// The time of the latest attempt or of the outcome.
    pub at: Timestamp,
    /// The invocation that made the latest attempt.
    pub by: Arc<str>,
    /// The result, cut to 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The account from which the price of the call is paid; `None` if it is free or was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_from: Option<Arc<str>>,
    /// The reason why it was refused or is unknown, cut to 256 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The task as which an MCP server carries the latest attempt out, or did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The cause of the latest attempt.
    pub cause: Cause,
}

impl Effect {
    /// Returns the idempotency key that was sent. Later attempts send the same, whatever the tool's schema says by then. A record of
    /// before has none, and its key had the form that the tool asks for.
    pub(crate) fn sent_key(&self, tool: &ToolSpec) -> String {
        self.key.as_ref().map_or_else(|| tool.key_of(&self.id), |key| key.to_string())
    }

    /// Returns `true` if no attempt is on record, but one may have been made before the daemon was restored to an earlier moment.
    pub(crate) fn may_have_been_made(&self) -> bool {
        self.why.as_deref() == Some(RESTORED)
    }

    /// Returns the reason why the same call needs an approval.
    pub(crate) fn as_reason(&self) -> String {
        let done = if self.state == EffectState::Done { "was done" } else { "may have been done" };
        format!("the same {done} on {}", self.at.strftime("%Y-%m-%d at %H:%M UTC"))
    }

    /// Returns `true` if it is not known whether the effect was done, and no person has left it at that.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, EffectState::Announced | EffectState::Unknown)
    }
}

/// The effects of one root, as stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effects {
    /// The effects, oldest first.
    pub effects: Vec<Effect>,
    /// The calls of several roots, oldest first: see [`EffectScope::noted_in`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<NotedCall>,
}

/// A call that a root noted for others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotedCall {
    /// The SHA-256 of tool and arguments: see [`Effect::call`].
    pub call: Arc<str>,
    /// The root: see [`EffectScope::root`].
    pub root: Arc<str>,
    /// The time of the call.
    pub at: Timestamp,
}

/// A call that would have an effect.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) id: Arc<str>,
    pub(crate) key: Option<Arc<str>>,
    pub(crate) scope: EffectScope,
    pub(crate) tool: String,
    pub(crate) call: Arc<str>,
    pub(crate) arguments: String,
    pub(crate) place: Arc<str>,
    pub(crate) class: EffectClass,
    /// `true` if a call that was done is made again when it is asked for: nobody said whether the tool only reads.
    pub(crate) may_read: bool,
}

/// The decision of a person about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// No decision.
    None,
    /// The call may be made.
    Approved,
    /// None of so many attempts was done, and the call is to be made again.
    NotDone {
        /// The number of attempts of which the person knew.
        tries: u32,
    },
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The call was done, with this result.
    Done(String),
    /// The server refused the call, so this attempt was not done.
    Refused(String),
    /// A look-up found that no attempt was done.
    Absent,
    /// Nobody knows.
    Unknown(String),
    /// A person left it at that.
    Abandoned,
}

/// The verdict about a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// A call to make.
    Make,
    /// A call that was made: the result of its effect is the answer.
    Answer(Box<Effect>),
    /// A call whose outcome is unknown and must be found out first.
    Settle(Box<Effect>),
    /// A call that a person must approve, with the reason.
    Ask(String),
    /// A call that is not made, with the reason.
    Refuse(String),
}

/// Returns arguments in a canonical form: members in order, whole numbers alike, and no members that are null unless null is a
/// value to the tool. Integers stay exact, so RFC 8785 does not serve.
pub(super) fn canonical(arguments: &Map<String, Value>, keeps_null: bool) -> Value {
    let given = arguments.iter().filter(|(_, value)| keeps_null || !value.is_null());
    ordered(&given.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Returns a value with the members of its objects in order, and whole numbers alike.
pub(super) fn ordered(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            sorted.into_iter().map(|(name, value)| (name.clone(), ordered(value))).collect()
        }
        Value::Array(items) => items.iter().map(ordered).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
                serde_json::from_str(&format!("{float:.0}")).unwrap_or_else(|_| value.clone())
            }
            _ => value.clone(),
        },
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// The bound below which a float holds a whole number exactly.
const EXACT: f64 = (1_u64 << 53) as f64;

/// The tool of a call as it counts for its identity.
pub(crate) struct Called<'c> {
    pub(crate) tool: &'c str,
    /// The hash of what the tool runs.
    pub(crate) runs: Hash,
    pub(crate) place: Arc<str>,
    pub(crate) class: EffectClass,
    pub(crate) may_read: bool,
    /// `true` if null is a value to the tool, as it is in a `PATCH`.
    pub(crate) keeps_null: bool,
}

impl Wanted {
    /// Returns the call of a tool with arguments in a scope.
    pub(crate) fn new(called: Called<'_>, arguments: &Map<String, Value>, scope: EffectScope) -> Self {
        let Called { tool, runs, place, class, may_read, keeps_null } = called;
        let arguments = canonical(arguments, keeps_null);
        let call = Hash::of(&json(&(tool, runs.hex(), &arguments))).hex();
        let arguments = super::cut_to(arguments.to_string(), ARGUMENTS_BYTES_MAX);
        let id = Hash::of(&json(&(&scope.work, &call))).hex().into();
        Self { id, key: None, scope, tool: tool.to_owned(), call: call.into(), arguments, place, class, may_read }
    }
}

impl Effects {
    /// Returns the effect with an id.
    pub(crate) fn of(&self, id: &str) -> Option<&Effect> {
        self.effects.iter().find(|effect| *effect.id == *id)
    }

    /// Judges a call. `is_under_way` says whether this process is making a call with an id.
    pub(crate) fn judge(
        &self,
        wanted: &Wanted,
        decision: Decision,
        now: Timestamp,
        is_under_way: impl Fn(&str) -> bool,
    ) -> Verdict {
        match self.of(&wanted.id) {
            // A word about earlier attempts says nothing about a later one.
            Some(effect) if effect.is_open() && decision == (Decision::NotDone { tries: effect.tries }) => {
                return Verdict::Make;
            }
            Some(effect) if effect.is_open() => return Verdict::Settle(Box::new(effect.clone())),
            Some(effect) if effect.state == EffectState::Done && !wanted.may_read => {
                return Verdict::Answer(Box::new(effect.clone()));
            }
            Some(effect) if effect.state == EffectState::Abandoned && decision == Decision::None => {
                return Verdict::Refuse("it is not known whether this was done, and a person left it at that".into());
            }
            Some(_) | None => {}
        }
        if decision != Decision::None {
            return Verdict::Make;
        }
        // While an outcome is unknown, neither other arguments nor a sister tool slip through, and nothing irreversible is done
        // anywhere.
        let is_fence = |open: &&Effect| {
            (open.is_open() || open.state == EffectState::Abandoned)
                && !is_under_way(&open.id)
                && (open.place == wanted.place || wanted.class == EffectClass::Irreversible)
                && now.duration_since(open.at) < FENCED
        };
        if wanted.class >= EffectClass::Write
            && let Some(open) = self.effects.iter().find(is_fence)
        {
            return Verdict::Ask(format!("it is not known whether {} was done at {}", open.tool, open.place));
        }
        let echoes = jiff::SignedDuration::from_secs(wanted.scope.echoes_s.into());
        let is_echo = |other: &&Effect| {
            let is_near = wanted.scope.echoes_in.as_ref().is_none_or(|works| other.work.starts_with(&**works));
            is_near
                && other.call == wanted.call
                && other.work != wanted.scope.work
                && other.state != EffectState::Refused
                && now.duration_since(other.at) < echoes
        };
        match self.effects.iter().filter(is_echo).max_by_key(|other| other.at) {
            Some(echo) if !wanted.may_read => Verdict::Ask(echo.as_reason()),
            _ => Verdict::Make,
        }
    }

    /// Records that a call may have been made since a time, although no record says so: the daemon was restored to an earlier moment.
    ///
    /// # Errors
    /// The error of [`Effects::announce`].
    pub(crate) fn doubt(
        &mut self,
        wanted: &Wanted,
        by: Arc<str>,
        cause: &Cause,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<(), String> {
        self.announce(wanted, Decision::None, by, cause, None, now)?;
        if let Some(effect) = self.effects.iter_mut().find(|effect| effect.id == wanted.id) {
            effect.announced_at = since;
        }
        self.conclude(&wanted.id, &Outcome::Unknown(RESTORED.into()), now);
        Ok(())
    }

    /// Returns the latest effect of the same call, unless it was not done.
    pub(crate) fn same(&self, wanted: &Wanted) -> Option<&Effect> {
        let same = self.effects.iter().filter(|other| other.call == wanted.call && other.state != EffectState::Refused);
        same.max_by_key(|other| other.at)
    }

    /// Returns the other roots that noted the same call within the time for which it is an echo.
    pub(crate) fn noted(&self, wanted: &Wanted, now: Timestamp) -> impl Iterator<Item = &Arc<str>> {
        let is_echo = move |noted: &&NotedCall| {
            noted.call == wanted.call && noted.root != wanted.scope.root && now.duration_since(noted.at) < NOTED
        };
        self.calls.iter().rev().filter(is_echo).map(|noted| &noted.root)
    }

    /// Notes a call of a root.
    pub(crate) fn note(&mut self, wanted: &Wanted, now: Timestamp) {
        let (call, root) = (wanted.call.clone(), wanted.scope.root.clone());
        self.calls.retain(|noted| now.duration_since(noted.at) < NOTED && (&noted.call, &noted.root) != (&call, &root));
        if self.calls.len() >= EFFECTS_MAX {
            self.calls.remove(0);
        }
        self.calls.push(NotedCall { call, root, at: now });
    }

    /// Records that a call is about to be made. An earlier attempt whose outcome is open stays in doubt, unless a person said
    /// that it was not done.
    ///
    /// # Errors
    /// A sentence if there are too many effects whose outcome is open.
    pub(crate) fn announce(
        &mut self,
        wanted: &Wanted,
        decision: Decision,
        by: Arc<str>,
        cause: &Cause,
        paid_from: Option<Arc<str>>,
        now: Timestamp,
    ) -> Result<(), String> {
        if let Some(effect) = self.effects.iter_mut().find(|effect| effect.id == wanted.id) {
            let is_undone = decision == (Decision::NotDone { tries: effect.tries });
            effect.is_doubted = !is_undone && (effect.is_doubted || effect.is_open());
            (effect.state, effect.at, effect.by) = (EffectState::Announced, now, by);
            (effect.tries, effect.why, effect.cause) = (effect.tries + 1, None, cause.clone());
            effect.task = None;
            effect.paid_from = paid_from.or(effect.paid_from.take());
            return Ok(());
        }
        self.effects.retain(|effect| effect.is_open() || now.duration_since(effect.at) < KEPT);
        if self.effects.len() >= EFFECTS_MAX {
            let oldest = self.effects.iter().position(|effect| !effect.is_open());
            let oldest = oldest.ok_or("too many calls are open whose outcome is unknown")?;
            self.effects.remove(oldest);
        }
        self.effects.push(Effect {
            id: wanted.id.clone(),
            key: wanted.key.clone(),
            work: wanted.scope.work.clone(),
            tool: wanted.tool.clone(),
            call: wanted.call.clone(),
            arguments: wanted.arguments.clone(),
            place: wanted.place.clone(),
            class: wanted.class,
            state: EffectState::Announced,
            is_doubted: false,
            tries: 1,
            announced_at: now,
            at: now,
            by,
            result: None,
            paid_from,
            why: None,
            task: None,
            cause: cause.clone(),
        });
        Ok(())
    }

    /// Records the task as which a server carries a call out.
    pub(crate) fn record_task(&mut self, id: &str, task: &Task) {
        if let Some(effect) = self.effects.iter_mut().find(|effect| *effect.id == *id) {
            effect.task = Some(task.clone());
        }
    }

    /// Records an outcome and returns the state after it. A refusal of one attempt leaves an effect unknown while the outcome
    /// of an earlier attempt is in doubt.
    pub(crate) fn conclude(&mut self, id: &str, outcome: &Outcome, now: Timestamp) -> Option<EffectState> {
        let effect = self.effects.iter_mut().find(|effect| *effect.id == *id)?;
        let (state, why) = match outcome {
            Outcome::Done(result) => {
                effect.result = Some(super::cut_to(result.clone(), RESULT_BYTES_MAX));
                (EffectState::Done, None)
            }
            Outcome::Refused(why) if effect.is_doubted => (EffectState::Unknown, Some(why.clone())),
            Outcome::Refused(why) => (EffectState::Refused, Some(why.clone())),
            Outcome::Absent => (EffectState::Refused, Some("it was looked for and not found".to_owned())),
            Outcome::Unknown(why) => (EffectState::Unknown, Some(why.clone())),
            Outcome::Abandoned => (EffectState::Abandoned, effect.why.take()),
        };
        effect.is_doubted = state == EffectState::Unknown;
        (effect.state, effect.at) = (state, now);
        effect.why = why.map(|why| super::cut_to(why, WHY_BYTES_MAX));
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn called(keeps_null: bool) -> Called<'static> {
        let (runs, place, class) = (Hash::of(b"book"), "port.example".into(), EffectClass::Write);
        Called { tool: "book", runs, place, class, may_read: false, keeps_null }
    }

    fn wanted(work: &str, arguments: Value) -> Wanted {
        let scope = EffectScope {
            work: work.into(),
            root: "r".into(),
            echoes_s: 86_400,
            echoes_in: None,
            noted_in: None,
            since: None,
        };
        Wanted::new(called(false), arguments.as_object().unwrap(), scope)
    }

    fn announced(wanted: &Wanted) -> Effects {
        let mut effects = Effects::default();
        effects.announce(wanted, Decision::None, "inv".into(), &Cause::default(), None, NOW).unwrap();
        effects
    }

    fn with(wanted: &Wanted, outcome: Outcome) -> Effects {
        let mut effects = announced(wanted);
        effects.conclude(&wanted.id, &outcome, NOW);
        effects
    }

    fn unknown() -> Outcome {
        Outcome::Unknown("it answered 502".into())
    }

    fn judged(effects: &Effects, wanted: &Wanted) -> Verdict {
        effects.judge(wanted, Decision::None, NOW, |_| false)
    }

    #[test]
    fn roots_note_their_calls_for_each_other_for_a_week() {
        let of = |root: &str, slot: usize| {
            let scope = EffectScope {
                work: format!("{root}/1").into(),
                root: root.into(),
                echoes_s: 86_400,
                echoes_in: None,
                noted_in: Some("goals".into()),
                since: None,
            };
            Wanted::new(called(false), json!({"slot": slot}).as_object().unwrap(), scope)
        };
        let mut known = Effects::default();
        known.note(&of("a", 1), NOW);
        known.note(&of("a", 1), NOW);
        assert_eq!(known.calls.len(), 1, "a root notes a call once");
        let later = |hours: i64| NOW + jiff::SignedDuration::from_hours(hours);
        let noted = |wanted: &Wanted, now| known.noted(wanted, now).map(|root| root.to_string()).collect::<Vec<_>>();
        assert_eq!(noted(&of("b", 1), later(167)), ["a"]);
        assert_eq!(noted(&of("b", 1), later(168)).len(), 0, "a week later it is meant");
        assert_eq!(noted(&of("b", 2), NOW).len(), 0);
        assert_eq!(noted(&of("a", 1), NOW).len(), 0, "its own root knows it by the effect");
        (0..300).for_each(|slot| known.note(&of("a", slot), NOW));
        assert_eq!(known.calls.len(), EFFECTS_MAX);
    }

    #[test]
    fn equal_calls_for_one_work_are_one_effect() {
        let one = wanted("a", json!({"vessel": "V-1", "nights": 2, "note": null}));
        assert_eq!(one.id, wanted("a", json!({"nights": 2.0, "vessel": "V-1"})).id);
        assert_ne!(one.id, wanted("a", json!({"vessel": "V-1", "nights": 3})).id);
        assert_ne!(one.id, wanted("b", json!({"vessel": "V-1", "nights": 2})).id);
        // Identifiers beyond the exact floats are not one.
        let of = |id: u64| wanted("a", json!({"id": id})).id;
        assert_ne!(of(9_007_199_254_740_992), of(9_007_199_254_740_993));
        let patch = |arguments: Value| {
            Wanted::new(called(true), arguments.as_object().unwrap(), wanted("a", json!({})).scope).id
        };
        assert_ne!(patch(json!({"note": null})), patch(json!({})), "null is a value to a PATCH");
    }

    #[test]
    fn what_was_done_or_may_have_been_is_not_made_again() {
        let one = wanted("a", json!({"vessel": "V-1"}));
        assert_eq!(judged(&Effects::default(), &one), Verdict::Make);
        assert!(matches!(judged(&with(&one, Outcome::Done("B1".into())), &one), Verdict::Answer(_)));
        assert!(matches!(judged(&with(&one, unknown()), &one), Verdict::Settle(_)));
        assert!(matches!(judged(&announced(&one), &one), Verdict::Settle(_)));
        assert!(matches!(judged(&with(&one, Outcome::Abandoned), &one), Verdict::Refuse(_)));
        assert_eq!(judged(&with(&one, Outcome::Refused("409".into())), &one), Verdict::Make);
        let decided = |decision| announced(&one).judge(&one, decision, NOW, |_| false);
        assert!(
            matches!(decided(Decision::Approved), Verdict::Settle(_)),
            "an approval does not say that it was not done"
        );
        assert_eq!(decided(Decision::NotDone { tries: 1 }), Verdict::Make);
        assert!(matches!(decided(Decision::NotDone { tries: 0 }), Verdict::Settle(_)), "a later attempt is in doubt");
    }

    #[test]
    fn a_refusal_proves_nothing_after_an_attempt_in_doubt() {
        let one = wanted("a", json!({"vessel": "V-1"}));
        let again = |decision| {
            let mut effects = with(&one, unknown());
            effects.announce(&one, decision, "inv".into(), &Cause::default(), None, NOW).unwrap();
            effects.conclude(&one.id, &Outcome::Refused("429".into()), NOW)
        };
        assert_eq!(again(Decision::None), Some(EffectState::Unknown));
        assert_eq!(again(Decision::NotDone { tries: 1 }), Some(EffectState::Refused));
        let mut effects = with(&one, unknown());
        assert_eq!(effects.conclude(&one.id, &Outcome::Absent, NOW), Some(EffectState::Refused));
    }

    #[test]
    fn what_is_scheduled_echoes_only_within_its_own_goal() {
        let of = |work: &str, echoes_in: &str| {
            let one = wanted(work, json!({"vessel": "V-1"}));
            let scope = EffectScope { echoes_in: Some(echoes_in.into()), ..one.scope.clone() };
            Wanted { scope, ..one }
        };
        let done = with(&wanted("lf/goal/g1/s1", json!({"vessel": "V-1"})), Outcome::Done("B1".into()));
        assert_eq!(judged(&done, &of("lf/goal/g2/s1", "lf/goal/g2/")), Verdict::Make, "the next week means it again");
        assert!(matches!(judged(&done, &of("lf/goal/g1/s2", "lf/goal/g1/")), Verdict::Ask(_)));
        assert_eq!(judged(&done, &of("lf/goal/g12/s1", "lf/goal/g12/")), Verdict::Make);
    }

    #[test]
    fn an_unknown_outcome_stops_other_writes_to_the_same_place() {
        let (one, other) = (wanted("a", json!({"vessel": "V-1"})), wanted("a", json!({"vessel": "V-2"})));
        let open = with(&one, unknown());
        assert!(matches!(judged(&open, &other), Verdict::Ask(_)));
        assert_eq!(open.judge(&other, Decision::Approved, NOW, |_| false), Verdict::Make);
        let elsewhere = Wanted { place: "bank.example".into(), ..other.clone() };
        assert_eq!(judged(&open, &elsewhere), Verdict::Make);
        assert_eq!(judged(&open, &Wanted { class: EffectClass::Idempotent, ..other.clone() }), Verdict::Make);
        assert_eq!(announced(&one).judge(&other, Decision::None, NOW, |_| true), Verdict::Make, "it is under way");
        assert!(matches!(judged(&with(&one, Outcome::Abandoned), &other), Verdict::Ask(_)), "nobody knows it still");
        assert_eq!(
            open.judge(&other, Decision::None, NOW + FENCED, |_| false),
            Verdict::Make,
            "no fence stands for ever"
        );
    }

    #[test]
    fn the_same_call_for_another_message_is_asked_about() {
        let (one, again) = (wanted("a", json!({"vessel": "V-1"})), wanted("b", json!({"vessel": "V-1"})));
        let done = with(&one, Outcome::Done("B1".into()));
        assert!(matches!(judged(&done, &again), Verdict::Ask(_)));
        assert_eq!(done.judge(&again, Decision::Approved, NOW, |_| false), Verdict::Make);
        assert!(matches!(judged(&with(&one, unknown()), &again), Verdict::Ask(_)));
        let mut apart = again.clone();
        apart.scope.echoes_s = 0;
        assert_eq!(judged(&done, &apart), Verdict::Make, "steps of a job are apart");
        assert_eq!(done.judge(&again, Decision::None, NOW + FENCED, |_| false), Verdict::Make, "a day later");
        // A refusal in between does not hide that it was done.
        let mut effects = done;
        effects.announce(&again, Decision::Approved, "inv".into(), &Cause::default(), None, NOW).unwrap();
        effects.conclude(&again.id, &Outcome::Refused("409".into()), NOW);
        assert!(matches!(judged(&effects, &wanted("c", json!({"vessel": "V-1"}))), Verdict::Ask(_)));
        assert_eq!(
            judged(&effects, &Wanted { may_read: true, ..wanted("c", json!({"vessel": "V-1"})) }),
            Verdict::Make
        );
    }
}
