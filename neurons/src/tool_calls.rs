//! The tool calls of one answer: calls for the client, calls that need an approval, and calls that the server makes. A
//! call that changes something is announced in the journal before it is made, so the state after a crash is
//! unambiguous.

mod bounds;
mod egress;
mod unread;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use store::ledger::AccountOp;
use store::{Batch, Hash, Origin, StoreError, json};

use crate::NeuronError;
use crate::conversation::Conversation;
use crate::effects::{STOPPED, hold_of};
use crate::invocation::Run;
use crate::neuron::{ToolCall, ToolResult};
use crate::neurons::acting;
use crate::spec::{Runner, ToolSpec};
use crate::tools::effect::Wanted;
use crate::tools::form::{FilledForm, Forms};
use crate::tools::handles::{self, RESULT_READ};
use crate::tools::{self, Caller, Calling, Form, Made, Task};

/// The maximum number of concurrent calls of one answer.
const AT_ONCE: usize = 8;

/// The maximum number of calls of one answer; further calls are refused.
const CALLS_MAX: usize = 128;

/// The disposition of a tool call.
enum Due {
    /// The client must make the call or approve it.
    Waits(ToolCall),
    /// The call is answered without being made.
    Answered(ToolResult),
    /// The server makes the call.
    Serve(ToolCall),
    /// The server makes the call, which has an effect outside the daemon.
    Effect(ToolCall, Box<Wanted>),
}

/// The result of a call that needs an approval where nobody can give one.
pub(crate) const NOBODY_APPROVES: &str = "this call must be approved first, and nobody can be asked here";
/// The result of a look-up that takes longer than a person waits for the answer.
const TOO_SLOW: &str = "it takes longer than this answer may wait for calls outside: what takes longer needs a goal";
/// The result of an approved call of a tool that was changed after the question.
const CHANGED: &str =
    "not called: the tool was changed since its approval was asked for; call it again if it is still wanted";
/// The result of a call that would carry memory out after words of others were read.
const LEAKS: &str = "not called: it holds what people told you, and you have read words of others since; leave that out, or let the \
    person say it";
/// The reason why a person is asked about a call of a step that would carry memory out.
const CARRIES: &str = "it holds what people told me, and words that nobody here wrote may have led to it";
/// The prefix of the result of a call that names an unknown tool.
const NO_TOOL: &str = "there is no tool ";

/// Returns a call that waits for a person's answers to a form of its server.
pub(crate) fn asking(call: &ToolCall, form: &Form) -> ToolCall {
    ToolCall { needs_approval: true, form: Some(Box::new(form.clone())), ..call.clone() }
}

/// A call that a model asks for, with the texts that it passes on.
struct Asked {
    call: ToolCall,
    /// `true` if it passes on a text that the model has not read.
    passes: bool,
    /// `true` if the plan of its step named it in these words.
    is_planned: bool,
}

fn refused(call: &ToolCall, error: impl Into<String>) -> Due {
    Due::Answered(ToolResult { id: call.id.clone(), error: Some(error.into()), ..ToolResult::default() })
}

/// Returns the result of a call that took longer than the neuron's calls outside may take.
fn too_slow(call: &ToolCall) -> Made {
    let error = Some(TOO_SLOW.to_owned());
    let result = ToolResult { id: call.id.clone(), error, ..ToolResult::default() };
    Made::of(result)
}

impl Run {
    /// Makes those of `calls` that the server runs. Returns the calls to wait for: calls for the client, and calls that
    /// need an approval.
    pub(crate) async fn serve(
        &self,
        calls: Vec<ToolCall>,
        talk: &mut Conversation,
    ) -> Result<Vec<ToolCall>, NeuronError> {
        let (mut waiting, mut due, mut announced, mut effects) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        // Foreign content that this run has read taints its calls, at any nesting depth.
        let (tainted, scope) = (self.caller.tainted || self.is_tainted(talk), Some(self.scope(talk)));
        let caller = Caller { tainted, scope, ..self.caller.clone() };
        // A text of others that a call passes on taints that call, although the model has not read it. A call that the plan named before
        // is the plan's.
        let passing = Caller { tainted: true, ..caller.clone() };
        let planned = Caller { tainted: false, ..caller.clone() };
        let calls: Vec<ToolCall> = calls.into_iter().filter(|call| !talk.has_result(&call.id)).collect();
        let calls = self.answer_own(calls, talk).await?;
        self.check_end(&calls, talk, &caller)?;
        let order: Vec<String> = calls.iter().map(|asked| asked.call.id.clone()).collect();
        // The calls that pass a text on: an error of the daemon's own tools could quote it.
        let passed: BTreeSet<String> =
            calls.iter().filter(|asked| asked.passes).map(|asked| asked.call.id.clone()).collect();
        // The names of the calls of this answer that are made or wait.
        let mut begun: Vec<String> = Vec::new();
        for (place, Asked { call, passes, is_planned }) in calls.into_iter().enumerate() {
            let runs_fascicle = self.tool(&call).is_some_and(|tool| tool.run.runs_fascicle());
            let caller = match passes {
                true if is_planned && !runs_fascicle => &planned,
                true => &passing,
                false => &caller,
            };
            if let Some(form) = talk.open_form(&call.id) {
                waiting.push(asking(&call, form));
                continue;
            }
            let due_now = match self.tool(&call).and_then(|tool| self.is_too_much((tool, &call), talk, caller, &begun))
            {
                _ if place >= CALLS_MAX => refused(&call, "too many calls in one answer"),
                Some(why) => refused(&call, why),
                None if self.is_another_than_asked_about(&call, talk) => {
                    if let Some(wanted) = self.tool(&call).and_then(|tool| self.wanted(tool, &call, talk)) {
                        self.heed_not_done(&call, &wanted, talk).await?;
                    }
                    refused(&call, CHANGED)
                }
                None => match self.may_send(&call, talk, caller).await {
                    Ok(()) if self.leaks((&call, passes), talk, caller) => match self.may_ask_to_send(&call, caller) {
                        true => Due::Waits(ToolCall { needs_approval: true, why: Some(CARRIES.into()), ..call }),
                        false => refused(&call, LEAKS),
                    },
                    Ok(()) => self.due(call, talk, caller),
                    Err(why) => refused(&call, why),
                },
            };
            if let Due::Waits(call) | Due::Serve(call) | Due::Effect(call, _) = &due_now {
                begun.push(call.name.clone());
            }
            match due_now {
                Due::Waits(call) => waiting.push(call),
                Due::Answered(result) => self.say_refused(&result, passes, talk),
                Due::Serve(call) if self.has_no_time_for(&call, talk) => talk.say_result(&too_slow(&call).result),
                Due::Serve(call) => {
                    if let Err(why) = self.pay(&call, talk, caller).await? {
                        talk.say_result(&ToolResult { id: call.id, error: Some(why), ..ToolResult::default() });
                        continue;
                    }
                    if !self.can_repeat(&call) {
                        announced.push(call.id.clone());
                    }
                    due.push((call, caller));
                }
                Due::Effect(call, wanted) => effects.push((call, wanted, caller)),
            }
        }
        if !announced.is_empty() {
            talk.announce(&announced);
            self.store.commit(talk.write(Batch::new(&self.origin))).await?;
        }
        waiting.extend(self.make_due(&due, &passed, talk).await?);
        // One after the other, so that an unknown outcome stops the next.
        let mut asked: Vec<Arc<str>> = Vec::new();
        for (call, wanted, caller) in &effects {
            // A person says once whether equal calls were done; the others are answered by the first.
            if asked.contains(&wanted.id) {
                continue;
            }
            if let Some(waits) = Box::pin(self.make_effect(call, wanted, talk, caller)).await? {
                asked.extend((waits.unsure || waits.form.is_some()).then(|| wanted.id.clone()));
                waiting.push(waits);
            }
        }
        let mut waiting = self.questions(waiting, talk);
        waiting.sort_by_key(|call| order.iter().position(|id| *id == call.id));
        if waiting.is_empty() && talk.is_fresh() {
            self.store.commit(talk.write(Batch::new(&self.origin))).await?;
        }
        Ok(waiting)
    }

    /// Makes the calls of an answer that have no effect, several at a time. Returns those whose server asks a person.
    async fn make_due(
        &self,
        due: &[(ToolCall, &Caller)],
        passed: &BTreeSet<String>,
        talk: &mut Conversation,
    ) -> Result<Vec<ToolCall>, NeuronError> {
        let mut waiting = Vec::new();
        let (name, stream, rounds) = (talk.name(), talk.stream().clone(), talk.rounds);
        // In a retry, a fascicle gets a new key, so it runs again instead of returning the failed job.
        let key = |call: &ToolCall| {
            let of_fascicle = self.tool(call).is_some_and(|tool| tool.run.runs_fascicle());
            let named = self.calls_as.as_ref().filter(|_| !of_fascicle);
            let key = Hash::of(&json(&(named.unwrap_or(&stream), rounds, &call.id))).hex();
            self.tool(call).map_or_else(|| key.clone(), |tool| tool.key_of(&key))
        };
        // A person waits for the answer, so look-ups take no longer than the neuron allows.
        let reads_outside = |tool: &ToolSpec| tool.run.is_outside();
        let (begun_at, read_until) = (tokio::time::Instant::now(), Mutex::new(Duration::ZERO));
        let left = self.spec.reads_s.map(|most| Duration::from_secs(most.into()).saturating_sub(talk.read_for));
        let filled: Vec<Option<FilledForm>> = due.iter().map(|(call, _)| talk.filled_form(&call.id).cloned()).collect();
        let made: Vec<_> = due
            .iter()
            .zip(&filled)
            .filter_map(|((call, caller), filled)| {
                let tool = self.tool(call)?;
                let made = self.make((tool, call, self.forms(filled.as_ref())), key(call), &name, caller);
                Some(match left.filter(|_| reads_outside(tool)) {
                    None => made.boxed(),
                    Some(left) => {
                        let timed = tokio::time::timeout(left, made);
                        let ended = |made: Result<Made, _>| {
                            let mut until = read_until.lock().unwrap_or_else(PoisonError::into_inner);
                            *until = (*until).max(begun_at.elapsed());
                            made.unwrap_or_else(|_| too_slow(call))
                        };
                        timed.map(ended).boxed()
                    }
                })
            })
            .collect();
        // Each result is committed as soon as it is available, with retries if the disk fails, so that no call is
        // repeated.
        let mut results = futures::stream::iter(made).buffer_unordered(AT_ONCE).ready_chunks(AT_ONCE);
        while let Some(some) = results.next().await {
            for made in &some {
                if let Some((asked, call)) =
                    made.form.as_ref().zip(due.iter().map(|(call, _)| call).find(|call| call.id == made.result.id))
                {
                    waiting.push(asking(call, &asked.form));
                    talk.ask_form(&call.id, (**asked).clone());
                    continue;
                }
                match passed.contains(&made.result.id) && made.result.error.is_some() {
                    true => self.say_refused(&made.result, true, talk),
                    false => self.say_made(made, talk),
                }
                // Several whole results could be more than a commit holds.
                if made.whole.is_some() {
                    self.store.commit_at_last(talk.write(Batch::new(&self.origin))).await?;
                }
            }
            if talk.is_fresh() {
                self.store.commit_at_last(talk.write(Batch::new(&self.origin))).await?;
            }
        }
        drop(results);
        talk.read_for += read_until.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(waiting)
    }

    /// Returns the questions of an answer that are asked now, with the origins of their arguments.
    fn questions(&self, mut waiting: Vec<ToolCall>, talk: &mut Conversation) -> Vec<ToolCall> {
        // The answers to a form are for one call alone.
        if let Some(first) = waiting.iter().position(|call| call.form.is_some()) {
            waiting = vec![waiting.swap_remove(first)];
        }
        // What nobody knows is said first, and apart: a "yes" to one call must not say that another one was not done.
        if waiting.iter().any(|call| call.unsure) {
            waiting.retain(|call| call.unsure);
        }
        for call in waiting.iter().filter(|call| call.needs_approval) {
            if let Some(pin) = self.tool(call).and_then(|tool| tool.pin.as_ref()) {
                talk.ask_about(&call.id, pin);
            }
        }
        for call in waiting.iter_mut().filter(|call| call.needs_approval && call.form.is_none()) {
            call.origins = self.origins(call, talk);
        }
        waiting
    }

    /// Answers the calls that read on in a result or search for tools, and returns the others with the texts that they pass on.
    async fn answer_own(&self, calls: Vec<ToolCall>, talk: &mut Conversation) -> Result<Vec<Asked>, NeuronError> {
        let mut others = Vec::with_capacity(calls.len());
        for mut call in calls {
            let (mut passes, mut is_planned) = (false, false);
            if self.reads_no_prose() {
                match self.with_texts(&call, talk) {
                    Ok(params) => {
                        let binding = self.caller.binding.as_ref();
                        is_planned = self.tool(&call).zip(binding).is_some_and(|(tool, step)| step.plans(tool, &call));
                        passes = params != call.params;
                        call.params = params;
                    }
                    Err(why) => {
                        talk.say_result(&ToolResult { id: call.id, error: Some(why), ..ToolResult::default() });
                        continue;
                    }
                }
            }
            if self.reads_on(&call, talk) {
                let done = handles::read(&call.params, |handle| talk.whole(handle));
                let (result, error) = done.map_or_else(|why| (None, Some(why)), |part| (Some(part), None));
                talk.say_result(&ToolResult { id: call.id, result, error, ..ToolResult::default() });
            } else if self.searches(&call, talk) {
                self.search(&call, talk).await?;
            } else {
                others.push(Asked { call, passes, is_planned });
            }
        }
        Ok(others)
    }

    fn due(&self, call: ToolCall, talk: &Conversation, caller: &Caller) -> Due {
        let Some(tool) = self.tool(&call) else { return refused(&call, format!("{NO_TOOL}{}", call.name)) };
        if tool.run == Runner::Client {
            return Due::Waits(call);
        }
        let (wanted, is_announced) = (self.wanted(tool, &call, talk), talk.is_announced(&call.id));
        if wanted.is_none() && is_announced {
            return refused(&call, STOPPED);
        }
        if !is_announced && let Err(why) = tools::fits(tool, &call) {
            return refused(&call, why);
        }
        if let Some(wanted) = wanted {
            return Due::Effect(call, Box::new(wanted));
        }
        if self.tools.needs_approval(tool, &call, caller) && !talk.is_approved(&call.id) {
            if !self.may_wait {
                return refused(&call, NOBODY_APPROVES);
            }
            return Due::Waits(ToolCall { needs_approval: true, ..call });
        }
        Due::Serve(call)
    }

    pub(crate) fn tool(&self, call: &ToolCall) -> Option<&ToolSpec> {
        self.tool_named(&call.name)
    }

    pub(crate) fn tool_named(&self, name: &str) -> Option<&ToolSpec> {
        self.spec.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns `true` if a call reads on in a result of this conversation.
    fn reads_on(&self, call: &ToolCall, talk: &Conversation) -> bool {
        call.name == RESULT_READ && self.tool(call).is_none() && talk.has_handles() && !self.reads_no_prose()
    }

    /// Returns `true` if the tool of an approved call was changed since a person was asked about the call.
    fn is_another_than_asked_about(&self, call: &ToolCall, talk: &Conversation) -> bool {
        let asked = talk.pin_asked_about(&call.id).filter(|_| talk.is_approved(&call.id));
        asked.is_some_and(|asked| self.tool(call).is_some_and(|tool| tool.pin.as_ref() != Some(asked)))
    }

    /// Counts and pays a call that has no effect, unless it was paid before the daemon stopped. The inner error says why it is not
    /// made.
    async fn pay(
        &self,
        call: &ToolCall,
        talk: &mut Conversation,
        caller: &Caller,
    ) -> Result<Result<(), String>, NeuronError> {
        let Some(tool) = self.tool(call).filter(|_| !talk.is_paid(&call.id)) else { return Ok(Ok(())) };
        let used = match self.admit(tool, caller).await? {
            Err(why) => return Ok(Err(why)),
            Ok(used) => used,
        };
        if let Some((key, used)) = used {
            self.store.commit(Batch::new(&self.origin).put(key, &used)).await?;
        }
        let id = Hash::of(&json(&(talk.name(), talk.rounds, &call.id))).hex();
        let Some(hold) = self.hold(tool, &id).await? else { return Ok(Ok(())) };
        let settle = AccountOp::Settle { id: hold_of(&id), used: None };
        let mut batch = talk.written_into(Batch::new(&self.origin));
        batch.push(talk.payment(&call.id));
        let batch = batch.account(self.account.clone(), hold, "tool").account(self.account.clone(), settle, "tool");
        match self.store.commit(batch).await {
            Err(StoreError::Ledger(why)) => return Ok(Err(format!("not called: {why}"))),
            paid => paid?,
        };
        talk.is_written();
        talk.mark_paid(call.id.clone());
        Ok(Ok(()))
    }

    /// Returns `true` for a look-up outside after those before it took all the time that the neuron allows.
    fn has_no_time_for(&self, call: &ToolCall, talk: &Conversation) -> bool {
        let is_over = self.spec.reads_s.is_some_and(|most| talk.read_for >= Duration::from_secs(most.into()));
        is_over && self.tool(call).is_some_and(|tool| tool.run.is_outside())
    }

    fn can_repeat(&self, call: &ToolCall) -> bool {
        self.tool(call).is_none_or(|tool| self.tools.is_repeatable(tool, call))
    }

    /// Makes a call with an idempotency key, and waits for its result.
    pub(crate) async fn make(
        &self,
        (tool, call, forms): (&ToolSpec, &ToolCall, Forms<'_>),
        key: String,
        parent: &Arc<str>,
        caller: &Caller,
    ) -> Made {
        let mut made = self.attempt((tool, call, forms), key.clone(), parent, caller, None).await;
        match made.task.take() {
            Some((task, pause)) => self.attempt((tool, call, forms), key, parent, caller, Some((&task, pause))).await,
            None => made,
        }
    }

    /// Returns the questions that the server of a call may ask: where the run can wait for a person.
    pub(crate) fn forms<'f>(&self, filled: Option<&'f FilledForm>) -> Forms<'f> {
        Forms { may_ask: self.may_wait && self.caller.job.is_some(), filled }
    }

    /// Makes a call with an idempotency key, or waits for the task as which its server carries it out.
    pub(crate) async fn attempt(
        &self,
        (tool, call, forms): (&ToolSpec, &ToolCall, Forms<'_>),
        key: String,
        parent: &Arc<str>,
        caller: &Caller,
        task: Option<(&Task, Duration)>,
    ) -> Made {
        // Rights that were taken away since the invocation began count no more.
        let now = self.directory.present(&self.origin.principal);
        let owner = Origin { principal: self.origin.principal.at_most(&now), ..self.origin.clone() };
        let origin = acting(&*self.directory, &owner, &self.caller.authors);
        let (owner, origin, account) = (&owner, &origin, &self.account);
        let beside = &self.spec.tools;
        let calling = Calling { call, tool, key, owner, origin, account, caller, parent, beside, forms };
        match task {
            Some((task, pause)) => Box::pin(self.tools.follow(calling, task, pause)).await,
            None => Box::pin(self.tools.run(calling)).await,
        }
    }
}
