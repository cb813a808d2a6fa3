//! The calls that have an effect outside the daemon: each is announced with its effect in one commit before it is made, its
//! outcome shares the commit of its result, and an unknown outcome is settled before the same call is answered.
//!
//! The calls of one effect are made one after the other, and so are the writes of the effects of one root.

mod paying;
mod settling;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use store::{Batch, Expect, Hash, Key, Kind, StoreError, Timestamp};
use tokio::sync::OwnedMutexGuard;

pub(crate) use self::paying::hold_of;
use self::settling::Settled;
use crate::NeuronError;
use crate::conversation::Conversation;
use crate::invocation::Run;
use crate::neuron::{ToolCall, ToolResult};
use crate::tool_calls::{NOBODY_APPROVES, asking};
use crate::tools::effect::{
    Called, Decision, Effect, EffectClass, EffectScope, EffectState, Effects, Outcome, Verdict, Wanted,
};
use crate::tools::form::Forms;
use crate::tools::spec::ToolSpec;
use crate::tools::{Caller, Grant, Made, RESULT_BYTES_MAX, Task, UnderWay, cut_to, names_a_secret};

/// The maximum number of attempts of a call that may be repeated.
const TRIES_MAX: u32 = 4;
/// The pause before the second attempt. It doubles with each further one.
const AGAIN: Duration = Duration::from_millis(250);
/// The maximum number of attempts to write the effects of a root while something else writes the same document.
const WRITES_MAX: usize = 8;

/// The maximum length of the reason in such a result, in characters.
const WHY_CHARS: usize = 300;
/// The number of refusals after which a step of a plan does not make the same call again.
pub(crate) const REFUSED_MAX: u32 = 2;

/// The reason why a call is asked about that follows from words of others.
const READ_OUTSIDE: &str = "words that I read, and nobody here wrote, may have led to it";
/// The beginning of the result of a call that failed in the same way before.
pub(crate) const SAME_AGAIN: &str = "not called: this very call failed before";

/// Returns the result of a call that failed in the same way before.
pub(crate) fn same_again(why: &str) -> String {
    let why: String = why.chars().take(WHY_CHARS).collect();
    format!("{SAME_AGAIN} ({why}); change the arguments, or end the step")
}

/// The reason why the outcome of an announced call is unknown.
pub(crate) const STOPPED: &str = "this call was cut off while it was under way; its outcome is unknown";

/// Returns the reason why a call is asked about whose sinks no person here named.
fn why_sinks(sinks: &[String]) -> Option<String> {
    (!sinks.is_empty()).then(|| format!("nobody here named {}", sinks.join(" and ")))
}

/// The calls that several roots noted for each other: see [`EffectScope::noted_in`].
struct SharedCalls {
    key: Key,
    version: u64,
    noted: Effects,
    _lock: OwnedMutexGuard<()>,
}

/// The verdict about a call after its announcement.
enum Begun {
    Answered(ToolResult),
    Waits(ToolCall),
    Settle(Box<Effect>),
    /// The call is announced.
    Make(UnderWay, String),
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

/// Returns what the result of a call says about its effect.
fn outcome_of(made: &Made) -> Outcome {
    let error = || made.result.error.clone().unwrap_or_default();
    match &made.result.result {
        _ if made.is_unknown => Outcome::Unknown(error()),
        Some(result) => Outcome::Done(result.clone()),
        None => Outcome::Refused(error()),
    }
}

fn failed(call: &ToolCall, why: impl Into<String>) -> ToolResult {
    ToolResult { id: call.id.clone(), error: Some(why.into()), ..ToolResult::default() }
}

fn done(call: &ToolCall, result: &str) -> ToolResult {
    ToolResult { id: call.id.clone(), result: Some(already(result)), ..ToolResult::default() }
}

impl Run {
    /// Returns the scope of the effects of this run.
    pub(crate) fn scope(&self, talk: &Conversation) -> EffectScope {
        self.caller.scope.clone().unwrap_or_else(|| {
            let own = talk.name();
            EffectScope { work: own.clone(), root: own, echoes_s: 0, echoes_in: None, noted_in: None, since: None }
        })
    }

    /// Returns the effect that a call would have; `None` for a call that only reads or stays in the daemon.
    pub(crate) fn wanted(&self, tool: &ToolSpec, call: &ToolCall, talk: &Conversation) -> Option<Wanted> {
        let (class, place, may_read) = self.tools.effect_of(tool, call)?;
        let arguments: Map<String, Value> = serde_json::from_str(&call.params).unwrap_or_default();
        // A named tool that is changed between two calls stays the same tool.
        let runs = match tool.pin.as_deref().and_then(|pin| pin.split('@').next()) {
            Some(id) if tool.run.is_single() => Hash::of(id.as_bytes()),
            _ => Hash::of(&store::json(&tool.run)),
        };
        let keeps_null = tool.run.keeps_null();
        let called = Called { tool: &tool.name, runs, place, class, may_read, keeps_null };
        let wanted = Wanted::new(called, &arguments, self.scope(talk));
        let key = tool.key_argument.as_ref().map(|_| tool.key_of(&wanted.id).into());
        Some(Wanted { key, ..wanted })
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
        let Some(tool) = self.tool(call).cloned() else {
            talk.say_result(&failed(call, "there is no such tool"));
            return Ok(None);
        };
        let _effect = self.tools.alone(&format!("effect {}", wanted.id)).await;
        // The answers to a form go with the very call that was begun.
        let mut filled = talk.filled_form(&call.id).cloned();
        if filled.is_some() {
            let (_, known) = self.effects(&wanted.scope.root).await?;
            let is_ours = |effect: &Effect| effect.is_open() && effect.by == talk.name();
            filled = filled.filter(|_| known.of(&wanted.id).is_some_and(is_ours));
        }
        let (mut repeats, mut was_made) = (filled.is_some(), false);
        loop {
            let begun = match self.begin(call, wanted, &tool, repeats, talk, caller).await? {
                Begun::Waits(call) => return Ok(Some(call)),
                Begun::Answered(result) => {
                    if result.error.is_some() {
                        self.heed_not_done(call, wanted, talk).await?;
                    }
                    self.say_made(&Made::of(result), talk);
                    return Ok(None);
                }
                Begun::Settle(effect) => match effect.task.clone().filter(|_| !was_made) {
                    Some(task) => Ok((self.tools.under_way(&wanted.id), effect.sent_key(&tool), Some(task))),
                    None => Err(effect),
                },
                Begun::Make(under_way, key) => Ok((under_way, key, None)),
            };
            let effect = match begun {
                Err(effect) => effect,
                Ok((_under_way, key, task)) => {
                    was_made = true;
                    let of = (&tool, call, self.forms(filled.as_ref()));
                    let mut made = self.carry_out(of, (wanted, &key), task, &talk.name(), caller).await?;
                    filled = None;
                    if let Some(asked) = made.form.take() {
                        let waits = Outcome::Unknown("its server waits for an answer of a person".into());
                        talk.ask_form(&call.id, (*asked).clone());
                        self.conclude(wanted, &waits, None, talk).await?;
                        return Ok(Some(asking(call, &asked.form)));
                    }
                    match self.conclude(wanted, &outcome_of(&made), Some(&made), talk).await? {
                        Some(unknown) => unknown,
                        None => return Ok(None),
                    }
                }
            };
            repeats = false;
            match self.settle(&effect, &tool, call, caller).await {
                Settled::Done(result) => {
                    let most = tool.limits.result_bytes.unwrap_or(RESULT_BYTES_MAX);
                    let said = ToolResult {
                        id: call.id.clone(),
                        result: Some(cut_to(result.clone(), most)),
                        ..ToolResult::default()
                    };
                    self.conclude(wanted, &Outcome::Done(result), Some(&Made::of(said)), talk).await?;
                    return Ok(None);
                }
                Settled::Absent if effect.tries < TRIES_MAX => {
                    self.conclude(wanted, &Outcome::Absent, None, talk).await?;
                }
                Settled::Repeat => {
                    if effect.state == EffectState::Unknown {
                        tokio::time::sleep(AGAIN * 2u32.saturating_pow(effect.tries.saturating_sub(1))).await;
                    }
                    repeats = true;
                }
                Settled::Absent | Settled::Unknown => return self.unsure(&effect, call, wanted, talk).await,
            }
        }
    }

    /// Makes the call of an effect, or waits for the task as which its server carries it out already.
    async fn carry_out(
        &self,
        of: (&ToolSpec, &ToolCall, Forms<'_>),
        (wanted, key): (&Wanted, &str),
        task: Option<Task>,
        parent: &Arc<str>,
        caller: &Caller,
    ) -> Result<Made, NeuronError> {
        let key = || key.to_owned();
        let (task, pause) = match task {
            Some(task) => (task, Duration::ZERO),
            None => {
                let mut made = self.attempt(of, key(), parent, caller, None).await;
                let Some((task, pause)) = made.task.take() else { return Ok(made) };
                self.keep_task(wanted, &task).await?;
                (task, pause)
            }
        };
        Ok(self.attempt(of, key(), parent, caller, Some((&task, pause))).await)
    }

    /// Records the task as which a server carries a call out, before it is waited for.
    async fn keep_task(&self, wanted: &Wanted, task: &Task) -> Result<(), NeuronError> {
        let root = &wanted.scope.root;
        let _root = self.tools.alone(&format!("root {root}")).await;
        for _ in 0..WRITES_MAX {
            let (version, mut known) = self.effects(root).await?;
            known.record_task(&wanted.id, task);
            let batch = Batch::new(&self.origin).put_expecting(effects_key(root), Expect::Version(version), &known);
            match self.store.commit_at_last(batch).await {
                Err(StoreError::Conflict { .. }) => {}
                done => return done.map(drop).map_err(NeuronError::from),
            }
        }
        // Without the record the outcome is found out as that of any other call.
        Ok(())
    }

    /// Records what a person said of a call that is not made again after all: that it was not done.
    pub(crate) async fn heed_not_done(
        &self,
        call: &ToolCall,
        wanted: &Wanted,
        talk: &mut Conversation,
    ) -> Result<(), NeuronError> {
        let Decision::NotDone { tries } = talk.decision(&call.id) else { return Ok(()) };
        let (_, known) = self.effects(&wanted.scope.root).await?;
        if known.of(&wanted.id).is_some_and(|effect| effect.is_open() && effect.tries == tries) {
            self.conclude(wanted, &Outcome::Absent, None, talk).await?;
        }
        Ok(())
    }

    /// Judges a call and, if it is to be made, announces it together with its effect.
    async fn begin(
        &self,
        call: &ToolCall,
        wanted: &Wanted,
        tool: &ToolSpec,
        repeats: bool,
        talk: &mut Conversation,
        caller: &Caller,
    ) -> Result<Begun, NeuronError> {
        let (root, now) = (&wanted.scope.root, self.store.clock().now());
        let caller = &caller.of_call(tool, call);
        let _root = self.tools.alone(&format!("root {root}")).await;
        let (mut version, mut known) = self.effects(root).await?;
        let (was_announced, decision) = (talk.is_announced(&call.id), talk.decision(&call.id));
        let (by, cause) = (talk.name(), &self.origin.cause);
        if let Some(since) = self.lost_since(&known, wanted, talk, was_announced) {
            let recorded = match since {
                Some(since) => known.doubt(wanted, by.clone(), cause, since, now),
                None => known.announce(wanted, Decision::None, by.clone(), cause, None, now),
            };
            if let Err(why) = recorded {
                return Ok(Begun::Answered(failed(call, why)));
            }
            let batch = Batch::new(&self.origin).put_expecting(effects_key(root), Expect::Version(version), &known);
            self.store.commit(batch).await?;
            (version, known) = self.effects(root).await?;
        }
        let waits = |why: Option<String>| Begun::Waits(ToolCall { needs_approval: true, why, ..call.clone() });
        let verdict = match repeats {
            true => Verdict::Make,
            false => known.judge(wanted, decision, now, |id| self.tools.is_under_way(id)),
        };
        let mut shared = self.shared_calls(wanted).await?;
        let is_new = !was_announced && !repeats && decision == Decision::None;
        let verdict = match &shared {
            Some(shared) if is_new && verdict == Verdict::Make => {
                let echo = self.find_echo(&shared.noted, wanted, now).await?;
                echo.map_or(Verdict::Make, |echo| Verdict::Ask(echo.as_reason()))
            }
            _ => verdict,
        };
        if let (Some(binding), Verdict::Make, Decision::None, false) =
            (&caller.binding, &verdict, decision, was_announced)
            && let Some(effect) = known.of(&wanted.id).filter(|effect| effect.tries >= REFUSED_MAX)
        {
            tracing::debug!(step = %binding.step, tool = tool.name, "a call that was refused before is not made again");
            return Ok(Begun::Answered(failed(call, same_again(effect.why.as_deref().unwrap_or_default()))));
        }
        let foreign_sinks = self.foreign_sinks(tool, call, talk);
        match verdict {
            Verdict::Answer(effect) => {
                return Ok(Begun::Answered(done(call, effect.result.as_deref().unwrap_or_default())));
            }
            Verdict::Settle(effect) => return Ok(Begun::Settle(effect)),
            Verdict::Refuse(why) => return Ok(Begun::Answered(failed(call, why))),
            Verdict::Ask(why) if self.may_wait => return Ok(waits(Some(why))),
            Verdict::Ask(why) => {
                return Ok(Begun::Answered(failed(call, format!("{why}, and nobody can be asked here"))));
            }
            // A call that was announced was approved before.
            Verdict::Make if was_announced || repeats || decision != Decision::None => {}
            Verdict::Make if self.is_granted(tool, call, wanted, caller) => {}
            Verdict::Make if !foreign_sinks.is_empty() || self.tools.needs_approval(tool, call, caller) => {
                // A person is not asked about what cannot be done.
                if let Some(why) = self.limit_reached(tool, caller).await? {
                    return Ok(Begun::Answered(failed(call, why)));
                }
                return Ok(match self.may_wait {
                    true => waits(self.why_asked(tool, call, caller).or_else(|| why_sinks(&foreign_sinks))),
                    false => Begun::Answered(failed(call, NOBODY_APPROVES)),
                });
            }
            Verdict::Make => {}
        }
        // An attempt of an effect that is open is part of the call that was counted, and an effect is paid once.
        let is_known = known.of(&wanted.id).is_some_and(Effect::is_open);
        let is_paid = |effect: &Effect| effect.paid_from.is_some() && effect.state != EffectState::Done;
        let is_paid = known.of(&wanted.id).is_some_and(is_paid);
        let hold = if is_paid { None } else { self.hold(tool, &wanted.id).await? };
        let used = match is_known || (was_announced && decision == Decision::None) {
            true => None,
            false => match self.admit(tool, caller).await? {
                Err(why) => return Ok(Begun::Answered(failed(call, why))),
                Ok(used) => used,
            },
        };
        let paid_from = hold.is_some().then(|| self.account.clone());
        // A server that asked first had done nothing so far.
        let asked = talk.filled_form(&call.id).filter(|_| repeats).and_then(|_| known.of(&wanted.id));
        let undone = asked.map(|effect| Decision::NotDone { tries: effect.tries });
        if let Err(why) = known.announce(wanted, undone.unwrap_or(decision), by, cause, paid_from, now) {
            return Ok(Begun::Answered(failed(call, why)));
        }
        let under_way = self.tools.under_way(&wanted.id);
        let mut batch = talk.written_into(Batch::new(&self.origin));
        batch.push(talk.announcement(std::slice::from_ref(&call.id)));
        batch = batch.put_expecting(effects_key(root), Expect::Version(version), &known);
        if let Some(SharedCalls { key, version, noted, .. }) = &mut shared {
            noted.note(wanted, now);
            batch = batch.put_expecting(key.clone(), Expect::Version(*version), &*noted);
        }
        if let Some((key, used)) = used {
            batch = batch.put(key, &used);
        }
        if let Some(hold) = hold {
            batch = batch.account(self.account.clone(), hold, "tool");
        }
        match self.store.commit(batch).await {
            Err(StoreError::Ledger(why)) => return Ok(Begun::Answered(failed(call, format!("not called: {why}")))),
            committed => committed?,
        };
        talk.is_written();
        talk.mark_announced(std::slice::from_ref(&call.id));
        let key = known.of(&wanted.id).map_or_else(|| tool.key_of(&wanted.id), |effect| effect.sent_key(tool));
        Ok(Begun::Make(under_way, key))
    }

    /// Returns `Some` for a call that has no record, although it may have been made: one that was announced, or, with the beginning of its
    /// work, one of work that began before the daemon was restored to an earlier moment. A call that may only read is simply made.
    fn lost_since(
        &self,
        known: &Effects,
        wanted: &Wanted,
        talk: &Conversation,
        was_announced: bool,
    ) -> Option<Option<Timestamp>> {
        let effect = known.of(&wanted.id);
        if was_announced && effect.is_none() {
            return Some(None);
        }
        let restored_at = self.tools.restored_at().filter(|_| !wanted.may_read)?;
        let since = [wanted.scope.since, talk.began_at].into_iter().flatten().min()?;
        // A refusal of before says nothing about later attempts.
        let is_before = |effect: &Effect| effect.state == EffectState::Refused && effect.at < restored_at;
        (since < restored_at && effect.is_none_or(is_before)).then_some(Some(since))
    }

    /// Returns the calls that other roots noted, and keeps others from them until the result is dropped.
    async fn shared_calls(&self, wanted: &Wanted) -> Result<Option<SharedCalls>, StoreError> {
        let Some(name) = wanted.scope.noted_in.as_ref().filter(|_| !wanted.may_read) else { return Ok(None) };
        let lock = self.tools.alone(&format!("noted {name}")).await;
        let (version, noted) = self.effects(name).await?;
        Ok(Some(SharedCalls { key: effects_key(name), version, noted, _lock: lock }))
    }

    /// Returns the effect of the same call for another root that noted it, unless it was not done.
    async fn find_echo(&self, noted: &Effects, wanted: &Wanted, now: Timestamp) -> Result<Option<Effect>, StoreError> {
        for root in noted.noted(wanted, now) {
            let (_, known) = self.effects(root).await?;
            if let Some(echo) = known.same(wanted) {
                return Ok(Some(echo.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the reason why a call needs an approval, if it is not a rule of the tool.
    fn why_asked(&self, tool: &ToolSpec, call: &ToolCall, caller: &Caller) -> Option<String> {
        let trusted = Caller { by_stranger: false, tainted: false, ..caller.clone() };
        let is_rule = self.tools.needs_approval(tool, call, &trusted) || !self.tools.needs_approval(tool, call, caller);
        let why = if caller.by_stranger { "it was not asked for by people I trust alone" } else { READ_OUTSIDE };
        (!is_rule).then(|| why.to_owned())
    }

    /// Returns `true` if a person approved a call together with the plan whose step makes it. What cannot be undone, and what
    /// sends a secret, is asked about each time.
    fn is_granted(&self, tool: &ToolSpec, call: &ToolCall, wanted: &Wanted, caller: &Caller) -> bool {
        let now = self.store.clock().now();
        let Some(binding) = &caller.binding else { return false };
        let is_covered = |grant: &Grant| grant.covers(tool, call, now, &binding.found);
        let may_be = wanted.class < EffectClass::Irreversible && !names_a_secret(call);
        may_be && binding.grants.iter().any(is_covered)
    }

    /// Records the outcome of an effect, with the result of the call in one commit. Returns the effect if its outcome is unknown
    /// or it was not done, and otherwise adds the result to the conversation.
    async fn conclude(
        &self,
        wanted: &Wanted,
        outcome: &Outcome,
        said: Option<&Made>,
        talk: &mut Conversation,
    ) -> Result<Option<Box<Effect>>, NeuronError> {
        let root = &wanted.scope.root;
        let _root = self.tools.alone(&format!("root {root}")).await;
        let mut tries = 0;
        loop {
            let (version, mut known) = self.effects(root).await?;
            let state = known.conclude(&wanted.id, outcome, self.store.clock().now());
            let is_open = matches!(state, Some(EffectState::Unknown)) || said.is_none();
            if let (Some(made), false, 0) = (said, is_open, tries) {
                self.say_made(made, talk);
            }
            let batch = talk.written_into(Batch::new(&self.origin));
            let batch = match self.settlement(&mut known, &wanted.id).await? {
                Some((account, settle)) => batch.account(account, settle, "tool"),
                None => batch,
            };
            let batch = batch.put_expecting(effects_key(root), Expect::Version(version), &known);
            match self.store.commit_at_last(batch).await {
                Ok(_) => {
                    talk.is_written();
                    return Ok(known.of(&wanted.id).filter(|_| is_open).cloned().map(Box::new));
                }
                // Retention or an import wrote the document.
                Err(StoreError::Conflict { .. }) if tries < WRITES_MAX => tries += 1,
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
    ) -> Result<Option<ToolCall>, NeuronError> {
        let why = effect.why.clone().unwrap_or_else(|| STOPPED.to_owned());
        if effect.state == EffectState::Announced {
            self.conclude(wanted, &Outcome::Unknown(why.clone()), None, talk).await?;
        }
        if self.may_wait && self.caller.job.is_some() {
            talk.doubt(&call.id, &effect.id, effect.tries);
            return Ok(Some(ToolCall { needs_approval: true, unsure: true, why: Some(why), ..call.clone() }));
        }
        self.say_made(&Made::of(failed(call, why)), talk);
        Ok(None)
    }

    /// Settles the effects about which a person has decided: one that was refused is left at that, and one with a result was
    /// done.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn heed_decisions(&self, talk: &mut Conversation) -> Result<(), NeuronError> {
        let decided = talk.decided();
        if decided.is_empty() {
            return Ok(());
        }
        let (root, now) = (self.scope(talk).root, self.store.clock().now());
        let _root = self.tools.alone(&format!("root {root}")).await;
        let (version, mut known) = self.effects(&root).await?;
        for (id, result) in decided {
            if known.of(&id).is_some_and(Effect::is_open) {
                known.conclude(&id, &result.map_or(Outcome::Abandoned, Outcome::Done), now);
            }
        }
        talk.heed();
        let batch = talk.written_into(Batch::new(&self.origin));
        self.store.commit(batch.put_expecting(effects_key(&root), Expect::Version(version), &known)).await?;
        talk.is_written();
        Ok(())
    }
}
