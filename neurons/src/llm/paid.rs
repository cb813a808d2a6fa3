//! The paid call: no model is asked before its cost is set aside, and what it used is settled in the
//! same commit that records what it said.

use std::sync::Arc;

use nexus::ledger::{AccountOp, Amount};
use nexus::store::Hash;
use nexus::{Batch, Origin, Store};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{ChatReply, ChatRequest, LlmError, Model, Usage};
use crate::NeuronError;

/// Output tokens when neither the neuron nor the tier says otherwise.
pub const OUTPUT_TOKENS_DEFAULT: u32 = 512;

/// The stream that records every call of `account`.
pub fn calls_stream(account: &str) -> Arc<str> {
    format!("calls:{account}").into()
}

/// What a paid call answers.
#[derive(Clone, Debug)]
pub struct Paid {
    /// What the model said.
    pub reply: ChatReply,
    /// What was charged.
    pub charged: Amount,
    /// The call's id, as it stands in `calls:{account}`.
    pub call: Arc<str>,
}

/// What paid embeddings bring.
#[derive(Clone, Debug)]
pub struct PaidVectors {
    /// One for each text, in order.
    pub vectors: Vec<Vec<f32>>,
    /// What they used; `None` when the provider does not say.
    pub usage: Option<Usage>,
    /// The call's id, as it stands in `calls:{account}`.
    pub call: Arc<str>,
}

/// An upper bound of the tokens a request reads: no tokenizer makes more tokens than there are bytes, and
/// the frame of a message is small. It is far above what is used, and given back at once.
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

/// Asks `model`, paid from `account`. The reservation and the request are durable before the request
/// leaves; the settlement and the answer are durable before this returns.
///
/// # Errors
/// [`NeuronError::Store`] with the ledger's refusal when the account cannot pay, [`NeuronError::Llm`]
/// when the model does not answer; whatever it may have used is charged.
pub async fn call(
    store: &Store,
    origin: &Origin,
    account: &str,
    model: &Model,
    mut request: ChatRequest,
    deltas: Option<mpsc::Sender<String>>,
) -> Result<Paid, NeuronError> {
    request.model.clone_from(&model.name);
    let prompt = prompt_tokens_bound(&request).min(u64::from(model.context_tokens));
    let output = request.max_tokens.unwrap_or(OUTPUT_TOKENS_DEFAULT).min(model.context_tokens);
    request.max_tokens = Some(output);
    let bound = Usage { prompt_tokens: prompt, completion_tokens: u64::from(output), total_tokens: 0 };
    let mut announce = Batch::new(origin);
    let messages: Vec<String> =
        request.messages.iter().map(|message| announce.payload(nexus::store::json(message)).hex()).collect();
    let asked = json!({"messages": messages, "tools": request.tools.len(), "response_format": request.response_format, "max_tokens": output});
    let told = |reply: &ChatReply| {
        let answer = json!({"text": reply.text, "tool_calls": reply.tool_calls, "finish": reply.finish});
        (reply.usage, answer)
    };
    let provider = model.provider.clone();
    let work = async move { provider.chat(request, deltas).await };
    let purchase = Purchase { store, origin, account, model, bound };
    let (reply, charged, call) = purchase.make(announce, asked, work, told).await?;
    Ok(Paid { reply, charged, call })
}

/// The embeddings of texts by `model`, paid from `account` like any other call. The texts are not recorded, only how
/// many they were.
///
/// # Errors
/// As [`call`].
pub async fn embed(
    store: &Store,
    origin: &Origin,
    account: &str,
    model: &Model,
    texts: Vec<String>,
) -> Result<PaidVectors, NeuronError> {
    let prompt = texts.iter().map(|text| text.len() as u64 + 8).sum();
    let bound = Usage { prompt_tokens: prompt, completion_tokens: 0, total_tokens: 0 };
    let asked = json!({"texts": texts.len()});
    let (provider, name) = (model.provider.clone(), model.name.clone());
    let work = async move { provider.embed(&name, texts).await };
    let told = |(_, usage): &(Vec<Vec<f32>>, Option<Usage>)| (*usage, json!({}));
    let purchase = Purchase { store, origin, account, model, bound };
    let ((vectors, usage), _, call) = purchase.make(Batch::new(origin), asked, work, told).await?;
    Ok(PaidVectors { vectors, usage, call })
}

/// One call of a model, whatever it is asked for.
struct Purchase<'p> {
    store: &'p Store,
    origin: &'p Origin,
    account: &'p str,
    model: &'p Model,
    /// What it may use at most.
    bound: Usage,
}

impl Purchase<'_> {
    /// Sets the cost aside with what is `asked`, does the `work`, and settles with what it `told`.
    async fn make<T: Send + 'static>(
        self,
        announce: Batch,
        asked: Value,
        work: impl Future<Output = Result<T, LlmError>> + Send + 'static,
        told: impl Fn(&T) -> (Option<Usage>, Value) + Send + 'static,
    ) -> Result<(T, Amount, Arc<str>), NeuronError> {
        let Self { store, origin, account, model, bound } = self;
        let bound = model.price.of(bound);
        let id: Arc<str> = format!("call_{}", uuid::Uuid::now_v7().simple()).into();
        let stream = calls_stream(account);
        let hold = AccountOp::Hold { id: id.clone(), parent: None, amount: bound };
        let sent = json!({"call": id, "provider": model.provider.name(), "model": model.name, "reserved": bound});
        let announce = announce.account(account, hold, "reserve").append(stream.clone(), "sent", &joined(sent, asked));
        store.commit(announce).await?;

        // From here on the call is the daemon's: whoever asked may go away, and it is settled all the same.
        let (asker, gone) = oneshot::channel::<()>();
        let (store, origin, account, model) = (store.clone(), origin.clone(), account.to_owned(), model.clone());
        let sent = tokio::spawn(async move {
            let went_away = || LlmError::Broken {
                provider: model.provider.name().into(),
                message: "whoever asked went away".into(),
            };
            let answered = tokio::select! {
                answered = work => answered,
                _ = gone => Err(went_away()),
            };
            let (kind, used, entry) = match &answered {
                Ok(answer) => {
                    let (usage, answer) = told(answer);
                    let entry = joined(answer, json!({"usage": usage}));
                    ("answered", usage.map(|usage| model.price.of(usage)), entry)
                }
                Err(error) => {
                    let used = (!error.outcome_unknown()).then(Amount::default);
                    ("failed", used, json!({"error": error.to_string()}))
                }
            };
            let charged = used.unwrap_or(bound);
            let entry = joined(json!({"call": id}), joined(entry, json!({"charged": charged})));
            let settle = AccountOp::Settle { id: id.clone(), used };
            store.commit(Batch::new(&origin).account(account, settle, "settle").append(stream, kind, &entry)).await?;
            Ok((answered?, charged, id))
        });
        let paid = sent.await.map_err(|panic| NeuronError::Died(panic.to_string()))?;
        drop(asker);
        paid
    }
}

/// Two objects as one.
fn joined(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}

/// Settles every reservation a former life left open, in full: those calls were sent and nobody knows
/// what became of them. Answers how many there were.
///
/// # Errors
/// The store's own.
pub async fn settle_unknown(store: &Store, account: &str) -> Result<usize, NeuronError> {
    let holds: Vec<Arc<str>> =
        store.account(account).map(|account| account.holds.into_keys().collect()).unwrap_or_default();
    let origin = Origin::system("restart");
    for hold in &holds {
        let entry = json!({"call": hold, "error": "the daemon stopped while this call was under way; its reservation is charged in full", "outcome": "unknown"});
        store
            .commit(
                Batch::new(&origin)
                    .account(
                        account,
                        AccountOp::Settle { id: hold.clone(), used: None },
                        "outcome unknown after a restart",
                    )
                    .append(calls_stream(account), "failed", &entry),
            )
            .await?;
    }
    Ok(holds.len())
}

/// A recorded call with its prompt put back together.
///
/// # Errors
/// The store's own.
pub async fn recorded(store: &Store, mut entry: Value) -> Result<Value, NeuronError> {
    let hashes: Vec<Hash> = entry["data"]["messages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|hash| Hash::parse(hash.as_str()?))
        .collect();
    if hashes.is_empty() {
        return Ok(entry);
    }
    let mut messages = Vec::new();
    for hash in hashes {
        let body = store.payload(&hash).await?.unwrap_or_default();
        messages.push(serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null));
    }
    entry["data"]["messages"] = messages.into();
    Ok(entry)
}
