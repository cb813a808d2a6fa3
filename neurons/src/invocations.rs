//! Invocations: `invoke`, `continue`, and the records of calls (MISSION N3).
//!
//! An invocation has a record with its status and a journal with its messages. The commit that pays for the first
//! answer creates the record. An invocation with an `Idempotency-Key` runs once: the record answers a repeated request,
//! and after a crash the invocation continues where its journal ends.

mod carrying;
mod record;
mod segment;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use store::{
    Batch, Expect, Hash, Key, Kind as Document, Op, Origin, PrincipalId, PrincipalKind, Role, StoreError, Versioned,
    json,
};
use tokio::sync::mpsc;

use crate::NeuronError;
use crate::continuation::{Continuation, EXPIRY_S, Stage, body_hash, check_results};
use crate::conversation::Conversation;
use crate::invocation::{Answer, Run};
use crate::llm::{Delta, Usage};
use crate::neuron::{self, FirstStep, ToolCall, ToolResult};
use crate::neurons::{CallOptions, HOUSE, Neurons, fresh_id};
use crate::spec::NeuronId;
pub(crate) use carrying::UnderWay;
pub use record::{Invocation, InvocationStatus};
use segment::{Continued, RunSegment, SegmentBase};

/// The maximum number of records that one listing reads.
const LOOKED_AT_MAX: usize = 2_000;

/// The options of an invocation.
#[derive(Clone, Debug, Default)]
pub struct InvokeOptions {
    /// The idempotency key, scoped to the caller and the neuron; `None` makes a new invocation.
    pub key: Option<Arc<str>>,
    /// The time limit of this request; `None` means none. After it the run stops, the record is `failed`, and the
    /// caller gets [`NeuronError::Deadline`].
    pub deadline: Option<Duration>,
    /// The receiver of the streamed text. If the receiver is dropped, the invocation is cancelled.
    pub deltas: Option<mpsc::Sender<Delta>>,
}

/// The result of an invocation.
#[derive(Clone, Debug)]
pub struct Invoked {
    /// The id of the invocation.
    pub id: Arc<str>,
    /// The answer.
    pub answer: Answer,
    /// The tokens used so far.
    pub usage: Usage,
}

impl Neurons {
    /// `POST /v1/neurons/{id}/invoke`: starts an invocation that the house account pays.
    ///
    /// # Errors
    /// Returns any [`NeuronError`].
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
                // A failed invocation, or one that a daemon stop interrupted, is resumed.
                _ => {}
            }
        }
        let (found, author) = self.written(id).await?;
        let mut spec = found.value;
        spec.fit(self.is_small(spec.tier));
        let begun = neuron::begin(&mut spec, input)?;
        let place = self.places.take(&origin.principal)?;
        let call = CallOptions { deltas: options.deltas.clone(), author, ..CallOptions::default() };
        self.complete(&mut spec, &call).await?;
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
        let run = self.run(origin, HOUSE.into(), spec, call);
        let stays = options.key.is_some() && options.deltas.is_none();
        self.carry(RunSegment { run, begun, talk, record, continued: None, take: None, stays, place }, options).await
    }

    /// Returns the id of an invocation and its existing record, if any.
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

    /// `POST /v1/neurons/{id}/continue`: sends the results that a paused invocation waits for.
    ///
    /// # Errors
    /// Returns [`NeuronError::NoContinuation`] for a token that does not belong to this principal and neuron,
    /// [`NeuronError::Expired`], [`NeuronError::InFlight`], [`NeuronError::NotApprover`], and [`NeuronError::Results`]
    /// if the results do not match the requested calls or differ from results sent before.
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
        // A later pause has replaced this one.
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
            // An earlier process consumed the results and stopped. Its model call was settled, and this process repeats
            // the call.
            Stage::Consumed { .. } => true,
            Stage::Pending => false,
        };
        if paused.expires_at < now {
            return Err(NeuronError::Expired);
        }
        let by = &origin.principal;
        let is_own = by.id.0.starts_with("lifeform:") || by.kind == PrincipalKind::Lifeform && !by.may(Role::Operator);
        if is_own && results.iter().any(|result| result.approved == Some(true)) {
            return Err(NeuronError::NotApprover);
        }
        check_results(&paused.expected, &paused.approvals, &[], &results).map_err(NeuronError::Results)?;
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
        let begun = FirstStep::Conversation(Vec::new());
        let continued = Some(Continued { key, paused, body });
        // Once the results are stored, the run continues without its caller, unless the caller receives a stream.
        let stays = options.deltas.is_none();
        self.carry(RunSegment { run, begun, talk, record, continued, take, stays, place }, options).await
    }

    /// Adds the next pause of `record` to `batch`: the paused invocation and the token that names it.
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

    /// Returns the record of an invocation of this principal. Operators may read all records.
    ///
    /// # Errors
    /// Returns [`NeuronError::NoInvocation`].
    pub async fn invocation(&self, origin: &Origin, id: &Arc<str>) -> Result<Invocation, NeuronError> {
        let found: Option<Versioned<Invocation>> = self.store.document(&Invocation::key(id)).await?;
        let found = found.and_then(|found| self.visible(origin, found.value));
        found.ok_or_else(|| NeuronError::NoInvocation(id.clone()))
    }

    /// Returns a record if `origin` may read it. A run of an earlier process is shown as failed.
    fn visible(&self, origin: &Origin, mut found: Invocation) -> Option<Invocation> {
        if found.principal != origin.principal.id && !origin.principal.may(Role::Operator) {
            return None;
        }
        if found.status == InvocationStatus::Running && found.life != self.life {
            found.status = InvocationStatus::Failed;
            found.error = Some("the daemon stopped while it was under way".into());
        }
        Some(found)
    }

    /// Returns at most `limit` invocations with ids after `after` that `origin` may see, and the id after which the
    /// next page starts, if there may be one.
    ///
    /// # Errors
    /// Returns the store's error.
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
                let record = self.visible(origin, record.value);
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

    /// Cancels the running invocations of a principal, without waiting for their end.
    pub fn cancel_all_of(&self, principal: &PrincipalId) {
        let mut under_way = self.under_way();
        let own = under_way.values_mut().filter(|known| known.principal == *principal);
        for cancel in own.filter_map(|known| known.cancel.take()) {
            let _ = cancel.send(());
        }
    }

    /// Cancels an invocation: the daemon stops reading the model's answer, settles the reservation, and invalidates a
    /// pause. A failed invocation becomes cancelled, so that its idempotency key does not resume it. Others that have
    /// ended do not change.
    ///
    /// # Errors
    /// Returns [`NeuronError::NoInvocation`].
    pub async fn cancel(&self, origin: &Origin, id: &Arc<str>) -> Result<Invocation, NeuronError> {
        self.invocation(origin, id).await?;
        self.tools.cancel(id).await;
        let under_way = self.under_way().get_mut(id).map(|known| (known.cancel.take(), known.ended.clone()));
        if let Some((cancel, mut ended)) = under_way {
            if let Some(cancel) = cancel {
                let _ = cancel.send(());
            }
            // The task that runs the invocation writes the final record.
            while ended.changed().await.is_ok() {}
        }
        loop {
            let known: Option<Versioned<Invocation>> = self.store.document(&Invocation::key(id)).await?;
            let version = known.as_ref().map_or(0, |known| known.version);
            let found = known.and_then(|known| self.visible(origin, known.value));
            let mut found = found.ok_or_else(|| NeuronError::NoInvocation(id.clone()))?;
            if !matches!(found.status, InvocationStatus::ToolCallRequired | InvocationStatus::Failed) {
                return Ok(found);
            }
            found.status = InvocationStatus::Cancelled;
            found.updated_at = self.store.clock().now();
            let batch = Batch::new(origin).put_expecting(Invocation::key(id), Expect::Version(version), &found);
            match self.store.commit(batch).await {
                Ok(_) => return Ok(found),
                // The client continued it meanwhile, so the record is read again.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
