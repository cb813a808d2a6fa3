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
    let bound = model.price.of(Usage { prompt_tokens: prompt, completion_tokens: u64::from(output), total_tokens: 0 });
    let id: Arc<str> = format!("call_{}", uuid::Uuid::now_v7().simple()).into();
    let stream = calls_stream(account);

    let mut announce =
        Batch::new(origin).account(account, AccountOp::Hold { id: id.clone(), parent: None, amount: bound }, "reserve");
    let messages: Vec<String> =
        request.messages.iter().map(|message| announce.payload(nexus::store::json(message)).hex()).collect();
    let entry = json!({"call": id, "provider": model.provider.name(), "model": model.name, "messages": messages, "tools": request.tools.len(), "response_format": request.response_format, "max_tokens": output, "reserved": bound});
    store.commit(announce.append(stream.clone(), "sent", &entry)).await?;

    // From here on the call is the daemon's: whoever asked may go away, and it is settled all the same.
    let (asker, gone) = oneshot::channel::<()>();
    let (store, origin, account, model) = (store.clone(), origin.clone(), account.to_owned(), model.clone());
    let sent = tokio::spawn(async move {
        let answered = tokio::select! {
            answered = model.provider.chat(request, deltas) => answered,
            _ = gone => Err(LlmError::Broken { provider: model.provider.name().into(), message: "whoever asked went away".into() }),
        };
        let used = match &answered {
            Ok(reply) => reply.usage.map(|usage| model.price.of(usage)),
            Err(error) if error.outcome_unknown() => None,
            Err(_) => Some(Amount::default()),
        };
        let charged = used.unwrap_or(bound);
        let entry = match &answered {
            Ok(reply) => {
                json!({"call": id, "text": reply.text, "tool_calls": reply.tool_calls, "finish": reply.finish, "usage": reply.usage, "charged": charged})
            }
            Err(error) => json!({"call": id, "error": error.to_string(), "charged": charged}),
        };
        let kind = if answered.is_ok() { "answered" } else { "failed" };
        let settle = AccountOp::Settle { id: id.clone(), used };
        store.commit(Batch::new(&origin).account(account, settle, "settle").append(stream, kind, &entry)).await?;
        Ok(Paid { reply: answered?, charged, call: id })
    });
    let paid = sent.await.map_err(|panic| NeuronError::Died(panic.to_string()))?;
    drop(asker);
    paid
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
