//! Paid calls of a model. The cost is reserved before the call is sent. The settlement is in the same commit as the
//! record of the answer.

mod embeddings;
mod records;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use store::ledger::{AccountOp, Amount};
use store::{Batch, Op, Origin, Store, StoreError, Stream, Turn};
use tokio::sync::{mpsc, oneshot};

use super::{ChatReply, ChatRequest, Class, Delta, LlmError, Model, Usage, WireToolCall};
use crate::NeuronError;
use crate::conclusion::WithAnswer;
use crate::conversation::{Conversation, replied};
pub use embeddings::{PaidVectors, embed};
pub(crate) use embeddings::{embed_at_once, embed_to_decide};
pub use records::{recorded, settle_unknown};

/// The maximum number of output tokens of a call that sets none.
pub const OUTPUT_TOKENS_DEFAULT: u32 = 512;

/// Returns the stream that records every call of `account`.
pub fn calls_stream(account: &str) -> Arc<str> {
    format!("calls:{account}").into()
}

/// The payer of a call.
#[derive(Clone, Copy)]
pub struct Payer<'p> {
    /// The store that records the call.
    pub store: &'p Store,
    /// The origin on whose behalf the call is made.
    pub origin: &'p Origin,
    /// The account that pays.
    pub account: &'p str,
    /// The class of the call, which determines its priority at the provider.
    pub class: Class,
}

/// The answer of a paid call.
#[derive(Clone, Debug)]
pub struct Paid {
    /// The model's reply.
    pub reply: ChatReply,
    /// The amount charged.
    pub charged: Amount,
    /// The id of the call in `calls:{account}`.
    pub call: Arc<str>,
}

/// Returns an upper bound of a request's input tokens: a tokenizer makes at most one token per byte, and the overhead
/// of a message is small. The bound is far above the real usage; the settlement releases the rest.
pub fn prompt_tokens_bound(request: &ChatRequest) -> u64 {
    let text = |text: &str| text.len() as u64 + 8;
    let messages: u64 = request
        .messages
        .iter()
        .map(|message| {
            text(message.content.as_deref().unwrap_or_default())
                + message.tool_calls.iter().flatten().map(|call| text(&call.function.arguments)).sum::<u64>()
        })
        .sum();
    let tools: u64 = request.tools.iter().map(|tool| text(&tool.to_string())).sum();
    let schema = request.response_format.as_ref().map_or(0, |format| text(&format.to_string()));
    messages + tools + schema + 32
}

/// Requests the next answer of `talk` from `model`, paid by `account`. The reservation and all earlier messages are
/// durable before the request is sent. The settlement, the answer and the operations that `with` derives from it are
/// durable before this function returns.
///
/// # Errors
/// Returns [`NeuronError::Store`] if the account cannot pay, and [`NeuronError::Llm`] if the model does not answer.
/// Tokens that it may have used are charged.
pub(crate) async fn call(
    payer: Payer<'_>,
    model: &Model,
    mut request: ChatRequest,
    deltas: Option<mpsc::Sender<Delta>>,
    talk: &mut Conversation,
    with: Option<WithAnswer>,
) -> Result<Paid, NeuronError> {
    request.model.clone_from(&model.name);
    let prompt = prompt_tokens_bound(&request).min(u64::from(model.context_tokens));
    let output = request.max_tokens.unwrap_or(OUTPUT_TOKENS_DEFAULT).min(model.context_tokens);
    request.max_tokens = Some(output);
    let bound = Usage { prompt_tokens: prompt, completion_tokens: u64::from(output), ..Usage::default() };
    let place = json!({"conversation": talk.stream(), "messages": talk.messages.len()});
    let asked = json!({"tools": request.tools.len(), "response_format": request.response_format, "max_tokens": output});
    let answered_at = place.clone();
    let reported: Arc<OnceLock<Usage>> = Arc::default();
    let beyond = reported.clone();
    let result_of = move |reply: &ChatReply| CallResult {
        usage: reply.usage,
        answer: joined(joined(answered_at.clone(), json!({"finish": reply.finish})), beyond_bound(&beyond)),
        entry: Some(replied(reply)),
        // The answer is paid and must be recorded, so a panic of the caller's closure is caught.
        more: catch_unwind(AssertUnwindSafe(|| with.map(|with| with(reply)))).ok().flatten().unwrap_or_default(),
    };
    let provider = model.provider.clone();
    request.caller = payer.origin.participant().cloned();
    let work = async move {
        let mut reply = provider.chat(request, deltas).await?;
        name_calls(&mut reply.tool_calls);
        reply.usage = reply.usage.map(|usage| believed(usage, bound, &reported));
        Ok(reply)
    };
    let purchase = Purchase { payer, model, bound, journal: Some(talk.stream().clone()) };
    // A call that waits for its turn has not been sent, so it must not reserve anything yet.
    let turn = purchase.turn().await?;
    let reserved = purchase.reserve(turn, talk.written_into(Batch::new(payer.origin)), joined(place, asked)).await?;
    talk.is_written();
    let (reply, charged, call) = reserved.make(work, result_of).await?;
    talk.answered(reply.clone());
    Ok(Paid { reply, charged, call })
}

/// Returns the provider's reported usage, limited to `bound`. A report above the bound is stored in `reported`.
fn believed(usage: Usage, bound: Usage, reported: &OnceLock<Usage>) -> Usage {
    let believed = usage.within(bound);
    if believed != usage {
        tracing::warn!(
            ?usage,
            ?bound,
            "a provider reports more usage than the call could have: it is charged up to the bound"
        );
        let _ = reported.set(usage);
    }
    believed
}

/// Returns a note for the record about reported usage above the bound.
fn beyond_bound(reported: &OnceLock<Usage>) -> Value {
    reported.get().map_or_else(|| json!({}), |usage| json!({"usage_reported": usage}))
}

/// Gives tool calls unique ids, if ids are missing or repeated.
fn name_calls(calls: &mut [WireToolCall]) {
    for place in 0..calls.len() {
        let (before, rest) = calls.split_at_mut(place);
        let call = &mut rest[0];
        let mut number = place;
        while call.id.is_empty() || before.iter().any(|known| known.id == call.id) {
            call.id = format!("call_{number}");
            number += 1;
        }
    }
}

/// A function that derives a journal entry of an invocation from embeddings.
pub(crate) type Decision = Box<dyn Fn(&[Vec<f32>]) -> (&'static str, Value) + Send>;

async fn buy(
    payer: Payer<'_>,
    model: &Model,
    texts: Vec<String>,
    deciding: Option<(Stream, Decision)>,
    made: Option<oneshot::Sender<Vec<Vec<f32>>>>,
) -> Result<PaidVectors, NeuronError> {
    let prompt = texts.iter().map(|text| text.len() as u64 + 8).sum();
    let bound = Usage { prompt_tokens: prompt, ..Usage::default() };
    let asked = json!({"texts": texts.len()});
    let (provider, name) = (model.provider.clone(), model.name.clone());
    let reported: Arc<OnceLock<Usage>> = Arc::default();
    let beyond = reported.clone();
    let work = async move {
        let embedded = provider.embed(&name, texts).await;
        let embedded = embedded.map(|(vectors, usage)| (vectors, usage.map(|usage| believed(usage, bound, &reported))));
        if let (Ok((vectors, _)), Some(made)) = (&embedded, made) {
            let _ = made.send(vectors.clone());
        }
        embedded
    };
    let (journal, decide) = deciding.unzip();
    let result_of = move |(vectors, usage): &(Vec<Vec<f32>>, Option<Usage>)| CallResult {
        usage: *usage,
        answer: beyond_bound(&beyond),
        entry: decide.as_ref().map(|decide| decide(vectors)),
        more: Vec::new(),
    };
    let purchase = Purchase { payer, model, bound, journal };
    let turn = purchase.turn().await?;
    let reserved = purchase.reserve(turn, Batch::new(payer.origin), asked).await?;
    let ((vectors, usage), _, call) = reserved.make(work, result_of).await?;
    Ok(PaidVectors { vectors, usage, call })
}

/// One call of a model, for chat or for embeddings.
struct Purchase<'p> {
    payer: Payer<'p>,
    model: &'p Model,
    /// The upper bound of the usage.
    bound: Usage,
    /// The journal of the invocation that makes the call.
    journal: Option<Stream>,
}

/// The data of an answer for the records.
struct CallResult {
    usage: Option<Usage>,
    /// The entry for the record of the call.
    answer: Value,
    /// The entry for the journal of the invocation.
    entry: Option<(&'static str, Value)>,
    /// Further operations for the commit.
    more: Vec<Op>,
}

impl<'p> Purchase<'p> {
    /// Waits for a turn at the provider.
    async fn turn(&self) -> Result<Option<Turn<Class>>, NeuronError> {
        let wants = self.payer.class.wants(self.payer.origin);
        Ok(self.model.provider.turn(self.bound.prompt_tokens as usize, wants).await?)
    }

    /// Reserves the cost and records the request `asked`, after the provider granted the `turn`.
    async fn reserve(
        self,
        turn: Option<Turn<Class>>,
        announce: Batch,
        asked: Value,
    ) -> Result<Reserved<'p>, NeuronError> {
        let Self { payer: Payer { store, origin, account, .. }, model, bound, journal } = self;
        let bought = model;
        let bound = model.price.of(bound);
        let id: Arc<str> = format!("call_{}", uuid::Uuid::now_v7().simple()).into();
        let parent = paying_hold(store, origin, account).await?;
        let op = AccountOp::Hold { id: id.clone(), parent, amount: bound, of: origin.participant().cloned() };
        let sent = json!({"call": id, "provider": model.provider.name(), "model": model.name, "reserved": bound});
        let mut announce =
            announce.account(account, op, "reserve").append(calls_stream(account), "sent", &joined(sent, asked));
        if let Some(journal) = &journal {
            announce = announce.append(journal.clone(), "sent", &json!({"call": id}));
        }
        debug_assert_eq!(announce.origin.principal, origin.principal, "the origin is the purchase's");
        let (store, origin, account) = (store.clone(), origin.clone(), Arc::from(account));
        let model = model.name.as_str().into();
        let hold =
            Hold { store: store.clone(), origin, account, journal, id, model, bound, is_sent: false, is_open: true };
        // The caller may be dropped during the commit. Then the spawned task drops the reservation, which releases it.
        let (reserving, reserved) = oneshot::channel();
        tokio::spawn(async move {
            let mut hold = hold;
            let committed = store.commit(announce).await;
            hold.is_open = committed.is_ok();
            let _ = reserving.send(committed.map(|_| hold));
        });
        let hold = reserved.await.map_err(|_| NeuronError::Died("nothing could be set aside".into()))??;
        Ok(Reserved { model: bought, turn, hold })
    }
}

/// Returns the reservation that pays first: that of the job, or of an enclosing job.
pub(crate) async fn paying_hold(store: &Store, origin: &Origin, account: &str) -> Result<Option<Arc<str>>, StoreError> {
    let jobs = origin.cause.0.iter().rev().filter(|reference| reference.starts_with("job:"));
    let mut jobs = jobs.map(|job| job.split_once('/').map_or(&**job, |(job, _)| job));
    let holds = store.account(account).await?.map(|account| account.holds).unwrap_or_default();
    Ok(jobs.find(|job| holds.contains_key(*job)).map(Arc::from))
}

/// The reservation of a call. If it is dropped before its settlement, it is settled automatically: with zero if the
/// call was never sent, else in full, since the outcome is unknown.
struct Hold {
    store: Store,
    origin: Origin,
    account: Arc<str>,
    /// The journal of the invocation that makes the call.
    journal: Option<Stream>,
    id: Arc<str>,
    model: Arc<str>,
    bound: Amount,
    is_sent: bool,
    is_open: bool,
}

impl Hold {
    /// Returns the batch that settles the reservation with `used`, or in full, writes the record and adds to the
    /// journal.
    fn settlement(&self, used: Option<Amount>, kind: &str, entry: Value, noted: (&str, Value)) -> Batch {
        let entry = joined(
            json!({"call": self.id, "model": self.model}),
            joined(entry, json!({"charged": used.unwrap_or(self.bound)})),
        );
        let settle = AccountOp::Settle { id: self.id.clone(), used };
        let batch = Batch::new(&self.origin).account(self.account.clone(), settle, "settle");
        let batch = batch.append(calls_stream(&self.account), kind, &entry);
        match &self.journal {
            Some(journal) => batch.append(journal.clone(), noted.0, &noted.1),
            None => batch,
        }
    }

    /// Marks the reservation as settled.
    fn close(&mut self) {
        self.is_open = false;
    }

    fn failed(&self, used: Option<Amount>, error: &dyn std::fmt::Display) -> Batch {
        let error = json!({"error": error.to_string()});
        self.settlement(used, "failed", error.clone(), ("failed", error))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (true, Ok(runtime)) = (self.is_open, tokio::runtime::Handle::try_current()) else { return };
        let (used, why) = match self.is_sent {
            true => (None, "it was sent, and its outcome is unknown"),
            false => (Some(Amount::default()), "whoever asked went away before it was sent"),
        };
        let (store, batch) = (self.store.clone(), self.failed(used, &why));
        runtime.spawn(async move { store.commit_at_last(batch).await });
    }
}

/// A call with a reservation.
struct Reserved<'p> {
    model: &'p Model,
    turn: Option<Turn<Class>>,
    hold: Hold,
}

impl Reserved<'_> {
    /// Does the `work` and settles the reservation with the outcome.
    async fn make<T: Send + 'static>(
        self,
        work: impl Future<Output = Result<T, LlmError>> + Send + 'static,
        result_of: impl FnOnce(&T) -> CallResult + Send + 'static,
    ) -> Result<(T, Amount, Arc<str>), NeuronError> {
        let Self { model, turn, mut hold } = self;
        // From here on the call runs in a task of its own: it is settled even if the caller disconnects.
        let (asker, gone) = oneshot::channel::<()>();
        let model = model.clone();
        let sent = tokio::spawn(async move {
            let went_away = || LlmError::Unheard {
                provider: model.provider.name().into(),
                message: "whoever asked went away".into(),
            };
            let answered = tokio::select! {
                // If the caller has already disconnected, the request is not sent.
                biased;
                _ = gone => Err(went_away()),
                answered = async {
                    hold.is_sent = true;
                    work.await
                } => answered,
            };
            drop(turn);
            let (used, batch) = match &answered {
                Ok(answer) => {
                    let CallResult { usage, answer, entry, more } = result_of(answer);
                    let used = usage.map(|usage| model.price.of(usage));
                    let noted = entry.unwrap_or_else(|| ("answered", json!({"call": hold.id})));
                    let mut batch = hold.settlement(used, "answered", joined(answer, json!({"usage": usage})), noted);
                    batch.ops.extend(more);
                    (used, batch)
                }
                Err(error) => {
                    let used = (!hold.is_sent || !error.outcome_unknown()).then(Amount::default);
                    (used, hold.failed(used, error))
                }
            };
            // A paid answer must be recorded, so the commit is retried for as long as the disk fails.
            match hold.store.commit_at_last(batch).await {
                Ok(_) => hold.close(),
                Err(error @ store::StoreError::TooLarge { .. }) => {
                    hold.store.commit_at_last(hold.failed(used, &error)).await?;
                    hold.close();
                    // The store refused the size of the provider's answer, not of the caller's request.
                    let (provider, message) =
                        (model.provider.name().into(), format!("its answer cannot be kept: {error}"));
                    return Err(LlmError::Broken { provider, message }.into());
                }
                Err(error) => return Err(error.into()),
            }
            Ok((answered?, used.unwrap_or(hold.bound), hold.id.clone()))
        });
        let paid = sent.await.map_err(|panic| NeuronError::Died(panic.to_string()))?;
        drop(asker);
        paid
    }
}

/// Merges two objects.
fn joined(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}
