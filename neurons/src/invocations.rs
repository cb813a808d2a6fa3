//! Invocations: `invoke`, `continue`, and the records of calls (MISSION N3).
//!
//! A call has a record with its status, and a journal with its messages. The record is made in the commit that pays for
//! the first answer. A call under an `Idempotency-Key` is made once: a repeated request is answered from the record,
//! and after a crash the call continues where its journal ends.

mod carrying;
mod record;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use store::{
    Batch, Expect, Hash, Key, Kind as Document, Op, Origin, Place, PrincipalId, PrincipalKind, Role, StoreError,
    Timestamp, Versioned, json,
};
use tokio::sync::mpsc;

use crate::NeuronError;
use crate::continuation::{Continuation, EXPIRY_S, Stage, body_hash, check_results};
use crate::conversation::Conversation;
use crate::invocation::{Answer, Run, Spent};
use crate::llm::{Delta, Usage};
use crate::neuron::{self, Begun, ToolCall, ToolResult};
use crate::neurons::{CallOptions, HOUSE, Neurons, fresh_id};
use crate::spec::NeuronId;
pub(crate) use carrying::UnderWay;
pub use record::{Invocation, InvocationStatus};

/// Records that one listing looks at.
const LOOKED_AT_MAX: usize = 2_000;

/// The options of a call.
#[derive(Clone, Debug, Default)]
pub struct InvokeOptions {
    /// The same caller's call of the same neuron under the same key is made once.
    pub key: Option<Arc<str>>,
    /// The deadline, after which the call is cancelled.
    pub deadline: Option<Duration>,
    /// The receiver of the text as it comes; a receiver that was dropped cancels the call.
    pub deltas: Option<mpsc::Sender<Delta>>,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub struct Invoked {
    /// The invocation.
    pub id: Arc<str>,
    /// The answer.
    pub answer: Answer,
    /// The usage so far.
    pub usage: Usage,
}

/// The results that an invocation goes on with.
#[derive(Clone)]
struct Continued {
    key: Key,
    paused: Continuation,
    body: String,
}

/// The state of an invocation at the beginning of a run.
#[derive(Clone)]
struct Standing {
    record: Invocation,
    continued: Option<Continued>,
}

impl Standing {
    /// The record as a stretch that came to `answer` leaves it, and what writes it. Nobody else writes it meanwhile:
    /// the stretch began by changing it from the version it was read at, and is the only one of its invocation.
    fn ended(&self, answer: Result<&Answer, &NeuronError>, spent: &Spent, now: Timestamp) -> (Invocation, Vec<Op>) {
        let mut record = self.record.clone();
        record.usage = record.usage.plus(spent.usage);
        record.paid_calls += spent.paid_calls;
        record.pauses += u32::from(matches!(answer, Ok(Answer::Paused { .. })));
        record.updated_at = now;
        record.status = match answer {
            Ok(Answer::Completed(_)) => InvocationStatus::Completed,
            Ok(Answer::Paused { .. }) => InvocationStatus::ToolCallRequired,
            Err(NeuronError::Cancelled) => InvocationStatus::Cancelled,
            Err(_) => InvocationStatus::Failed,
        };
        record.answer = answer.ok().cloned();
        record.error = answer.err().map(ToString::to_string);
        let put = |key: Key, body| Op::Put { key, expect: Expect::Any, body };
        let mut ops = vec![put(Invocation::key(&record.id), json(&record))];
        if let Some(Continued { key, paused, body }) = &self.continued {
            let stage = match answer {
                Ok(answer) => Stage::Done { body: body.clone(), answer: Box::new(answer.clone()) },
                // The results were not lost: the same call may be made again.
                Err(_) => Stage::Consumed { body: body.clone(), life: "failed".into() },
            };
            ops.push(put(key.clone(), json(&Continuation { stage, ..paused.clone() })));
        }
        (record, ops)
    }
}

/// A stretch of an invocation that is about to run.
struct Stretch {
    run: Run,
    begun: Begun,
    talk: Conversation,
    record: Invocation,
    continued: Option<Continued>,
    /// The operations that consume the results with which it continues.
    take: Option<Batch>,
    /// `true` if the run continues when its caller disconnects.
    stays: bool,
    place: Place,
}

impl Neurons {
    /// `POST /v1/neurons/{id}/invoke`: begins a call, paid by the house.
    ///
    /// # Errors
    /// Any [`NeuronError`].
    pub async fn invoke(
        &self,
        origin: &Origin,
        id: &NeuronId,
        input: &Value,
        options: InvokeOptions,
    ) -> Result<Invoked, NeuronError> {
        let asked = Hash::of(&json(input)).hex();
        let (invocation, known) = self.identified(origin, id, options.key.as_ref()).await?;
        if let Some(known) = &known {
            if known.value.asked != asked {
                return Err(NeuronError::KeyReused);
            }
            match (known.value.status, &known.value.answer) {
                (InvocationStatus::Completed | InvocationStatus::ToolCallRequired, Some(answer)) => {
                    let usage = known.value.usage;
                    return Ok(Invoked { id: invocation, answer: answer.clone(), usage });
                }
                (InvocationStatus::Cancelled, _) => return Err(NeuronError::Cancelled),
                (InvocationStatus::Running, _) if known.value.life == self.life => return Err(NeuronError::InFlight),
                // What failed, or was cut short with its daemon, is taken up again.
                _ => {}
            }
        }
        let (found, author) = self.written(id).await?;
        let mut spec = found.value;
        let begun = neuron::begin(&mut spec, input)?;
        let place = self.places.take(&origin.principal)?;
        self.complete(&mut spec).await?;
        let (version, mut talk) = match &known {
            Some(known) => (known.version, Conversation::read(&self.store, &invocation).await?),
            None if options.key.is_none() => (0, Conversation::first(&invocation)),
            None => (0, Conversation::new(&invocation)),
        };
        let now = self.store.clock().now();
        let fresh = Invocation {
            id: invocation.clone(),
            neuron: id.clone(),
            principal: origin.principal.id.clone(),
            status: InvocationStatus::Running,
            answer: None,
            error: None,
            usage: Usage::default(),
            paid_calls: 0,
            pauses: 0,
            created_at: now,
            updated_at: now,
            asked,
            life: self.life.clone(),
        };
        let record = match known {
            Some(Versioned { value: known, .. }) => Invocation {
                created_at: known.created_at,
                usage: known.usage,
                paid_calls: known.paid_calls,
                pauses: known.pauses,
                ..fresh
            },
            None => fresh,
        };
        talk.with(Op::Put { key: Invocation::key(&invocation), expect: Expect::Version(version), body: json(&record) });
        let origin = origin.because(format!("invocation:{invocation}"));
        let call = CallOptions { deltas: options.deltas.clone(), author, ..CallOptions::default() };
        let run = self.run(origin, HOUSE.into(), spec, call);
        let stays = options.key.is_some() && options.deltas.is_none();
        self.carry(Stretch { run, begun, talk, record, continued: None, take: None, stays, place }, options).await
    }

    /// The id of a call and what is known of it.
    async fn identified(
        &self,
        origin: &Origin,
        neuron: &NeuronId,
        key: Option<&Arc<str>>,
    ) -> Result<(Arc<str>, Option<Versioned<Invocation>>), NeuronError> {
        let Some(key) = key else {
            return Ok((fresh_id(), None));
        };
        let name = Hash::of(&json(&(&origin.principal.id, neuron, key))).hex();
        let id: Arc<str> = format!("inv_{}", &name[..32]).into();
        let known = self.store.document(&Invocation::key(&id)).await?;
        Ok((id, known))
    }

    /// `POST /v1/neurons/{id}/continue`: brings the results a paused call waits for.
    ///
    /// # Errors
    /// [`NeuronError::NoContinuation`] for any token that is not this principal's for this neuron,
    /// [`NeuronError::Expired`], [`NeuronError::InFlight`], [`NeuronError::NotApprover`], and [`NeuronError::Results`]
    /// when the results are not the ones asked for or not the ones given before.
    pub async fn resume(
        &self,
        origin: &Origin,
        id: &NeuronId,
        token: &str,
        results: Vec<ToolResult>,
        options: InvokeOptions,
    ) -> Result<Invoked, NeuronError> {
        let opened = self.key.open(token, id, &origin.principal.id).ok_or(NeuronError::NoContinuation)?;
        let key = Key::new(Document::Continuation, opened);
        let found: Versioned<Continuation> = self.store.document(&key).await?.ok_or(NeuronError::NoContinuation)?;
        let (version, mut paused) = (found.version, found.value);
        let invocation = paused.invocation.clone();
        let record: Option<Versioned<Invocation>> = self.store.document(&Invocation::key(&invocation)).await?;
        let now = self.store.clock().now();
        let recorded = record.as_ref().map_or(0, |found| found.version);
        let mut record = record.map_or_else(|| Invocation::of(&paused, now), |found| found.value);
        let body = body_hash(&results);
        // A pause that another one took the place of is over.
        if paused.step < record.pauses && matches!(paused.stage, Stage::Pending | Stage::Consumed { .. }) {
            return Err(NeuronError::Expired);
        }
        let again = match &paused.stage {
            Stage::Done { body: given, answer } if *given == body => {
                return Ok(Invoked { id: invocation, answer: (**answer).clone(), usage: record.usage });
            }
            Stage::Done { .. } => {
                return Err(NeuronError::Results("this call was continued already, with other results".into()));
            }
            _ if record.status == InvocationStatus::Cancelled => return Err(NeuronError::Cancelled),
            Stage::Consumed { body: given, .. } if *given != body => {
                return Err(NeuronError::Results("this call is being continued with other results".into()));
            }
            Stage::Consumed { life, .. } if *life == self.life => return Err(NeuronError::InFlight),
            // Taken by a life that ended: its model call was settled, and is made once more.
            Stage::Consumed { .. } => true,
            Stage::Pending => false,
        };
        if paused.expires_at < now {
            return Err(NeuronError::Expired);
        }
        let is_own = origin.principal.kind == PrincipalKind::Lifeform && !origin.principal.may(Role::Operator);
        if is_own && results.iter().any(|result| result.approved == Some(true)) {
            return Err(NeuronError::NotApprover);
        }
        check_results(&paused.expected, &paused.approvals, &results).map_err(NeuronError::Results)?;
        let place = self.places.take(&origin.principal)?;

        paused.stage = Stage::Consumed { body: body.clone(), life: self.life.clone() };
        record.status = InvocationStatus::Running;
        record.life = self.life.clone();
        let origin = origin.because(format!("invocation:{invocation}"));
        let mut talk = Conversation::read(&self.store, &invocation).await?;
        if !again {
            talk.hear(&results);
        }
        let take = Batch::new(&origin).put_expecting(key.clone(), Expect::Version(version), &paused);
        let take = take.put_expecting(Invocation::key(&invocation), Expect::Version(recorded), &record);
        let take = Some(talk.write(take));
        let call =
            CallOptions { deltas: options.deltas.clone(), author: paused.author.clone(), ..CallOptions::default() };
        let run = self.run(origin, paused.account.clone(), paused.neuron.clone(), call);
        let begun = Begun::Conversation(Vec::new());
        let continued = Some(Continued { key, paused, body });
        // The results are the daemon's: a caller that disconnects changes nothing, unless it was receiving a stream.
        let stays = options.deltas.is_none();
        self.carry(Stretch { run, begun, talk, record, continued, take, stays, place }, options).await
    }

    /// Adds the next pause of `record` to `batch`: the paused call, and the token that names it.
    fn pause(&self, run: &Run, batch: Batch, record: &Invocation, calls: Vec<ToolCall>) -> (Batch, Answer) {
        let expires_at = self.store.clock().now() + jiff::SignedDuration::from_secs(EXPIRY_S);
        let paused = Continuation {
            invocation: record.id.clone(),
            step: record.pauses + 1,
            neuron: (*run.spec).clone(),
            neuron_id: record.neuron.clone(),
            author: run.author.clone(),
            principal: run.origin.principal.id.clone(),
            account: run.account.clone(),
            expected: calls.iter().map(|call| call.id.clone()).collect(),
            approvals: calls.iter().filter(|call| call.needs_approval).map(|call| call.id.clone()).collect(),
            expires_at,
            stage: Stage::Pending,
        };
        let name: Arc<str> = format!("{}.{}", record.id, paused.step).into();
        let token = self.key.seal(&name, &paused);
        let batch = batch.create(Key::new(Document::Continuation, name), &paused);
        (batch, Answer::Paused { token, calls })
    }

    /// Returns the record of an invocation; operators see all.
    ///
    /// # Errors
    /// [`NeuronError::NoInvocation`].
    pub async fn invocation(&self, origin: &Origin, id: &Arc<str>) -> Result<Invocation, NeuronError> {
        let found: Option<Versioned<Invocation>> = self.store.document(&Invocation::key(id)).await?;
        let found = found.and_then(|found| self.shown(origin, found.value));
        found.ok_or_else(|| NeuronError::NoInvocation(id.clone()))
    }

    /// A record as `origin` may see it, if it may.
    fn shown(&self, origin: &Origin, mut found: Invocation) -> Option<Invocation> {
        if found.principal != origin.principal.id && !origin.principal.may(Role::Operator) {
            return None;
        }
        if found.status == InvocationStatus::Running && found.life != self.life {
            found.status = InvocationStatus::Failed;
            found.error = Some("the daemon stopped while it was under way".into());
        }
        Some(found)
    }

    /// Invocations that `origin` may see with ids after `after`, at most `limit`, and where the next ones begin, if
    /// there may be any.
    ///
    /// # Errors
    /// The store's own.
    pub async fn invocations(
        &self,
        origin: &Origin,
        status: Option<InvocationStatus>,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Invocation>, Option<Arc<str>>), NeuronError> {
        let (mut found, mut after, mut looked_at) = (Vec::new(), after.to_owned(), 0);
        loop {
            let page = self.store.documents::<Invocation>(Document::Invocation, &after, limit.max(64)).await?;
            let Some((last, _)) = page.last() else { return Ok((found, None)) };
            let last = last.clone();
            looked_at += page.len();
            for (id, record) in page {
                let record = self.shown(origin, record.value);
                found.extend(record.filter(|record| status.is_none_or(|status| record.status == status)));
                if found.len() == limit {
                    return Ok((found, Some(id)));
                }
            }
            if looked_at >= LOOKED_AT_MAX {
                return Ok((found, Some(last)));
            }
            after = last.to_string();
        }
    }

    /// Stops the running invocations of a principal, and does not wait for their end.
    pub fn cancel_all_of(&self, principal: &PrincipalId) {
        let mut under_way = self.under_way();
        let own = under_way.values_mut().filter(|known| known.principal == *principal);
        for cancel in own.filter_map(|known| known.cancel.take()) {
            let _ = cancel.send(());
        }
    }

    /// Stops an invocation: its model is no longer listened to, its reservation is settled, and a pause of it cannot be
    /// continued. One that has ended stays as it is.
    ///
    /// # Errors
    /// [`NeuronError::NoInvocation`].
    pub async fn cancel(&self, origin: &Origin, id: &Arc<str>) -> Result<Invocation, NeuronError> {
        self.invocation(origin, id).await?;
        self.tools.cancel(id).await;
        let under_way = self.under_way().get_mut(id).map(|known| (known.cancel.take(), known.ended.clone()));
        if let Some((cancel, mut ended)) = under_way {
            if let Some(cancel) = cancel {
                let _ = cancel.send(());
            }
            // The task that carries it writes what became of it.
            while ended.changed().await.is_ok() {}
        }
        loop {
            let known: Option<Versioned<Invocation>> = self.store.document(&Invocation::key(id)).await?;
            let version = known.as_ref().map_or(0, |known| known.version);
            let found = known.and_then(|known| self.shown(origin, known.value));
            let mut found = found.ok_or_else(|| NeuronError::NoInvocation(id.clone()))?;
            if !matches!(found.status, InvocationStatus::ToolCallRequired | InvocationStatus::Failed) {
                return Ok(found);
            }
            found.status = InvocationStatus::Cancelled;
            found.updated_at = self.store.clock().now();
            let batch = Batch::new(origin).put_expecting(Invocation::key(id), Expect::Version(version), &found);
            match self.store.commit(batch).await {
                Ok(_) => return Ok(found),
                // It was continued meanwhile, and is looked at again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
