//! The journal of paid calls, and the settlement of calls with an unknown outcome.

use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use store::ledger::AccountOp;
use store::{Batch, Entry, Origin, PAGE_MAX, Principal, Store, StoreError};

use super::{calls_stream, joined};
use crate::NeuronError;
use crate::conversation;

/// Settles every reservation that an earlier process left open in full: these calls were sent, and their outcome is
/// unknown. Returns their number.
///
/// # Errors
/// Returns the store's error.
pub async fn settle_unknown(store: &Store, account: &str) -> Result<usize, NeuronError> {
    // The reservation of a job is no call; the job continues with it.
    let is_call = |hold: &&Arc<str>| !hold.starts_with("job:");
    let holds: Vec<Arc<str>> = store
        .account(account)
        .await?
        .map(|account| account.holds.keys().filter(is_call).cloned().collect())
        .unwrap_or_default();
    let sent = sent_calls(store, account, &holds).await?;
    for hold in &holds {
        let account_now = store.account(account).await?;
        let charged = account_now.and_then(|account| account.holds.get(hold).map(|hold| hold.left));
        let entry = json!({
            "call": hold,
            "charged": charged.unwrap_or_default(),
            "error": "the daemon stopped while this call was under way; its reservation is charged in full",
            "outcome": "unknown",
        });
        // The settlement names the origin and the invocation of the call.
        let (origin, entry) = match sent.get(hold) {
            None => (Origin::system("restart"), entry),
            Some((asked, model)) => {
                let origin = Origin::new(Principal::system(), asked.cause.clone());
                (origin, joined(entry, json!({"model": model, "asked_by": asked.by})))
            }
        };
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

/// Returns the journal entries of calls that were sent, by call, and the called models. The search starts at the newest
/// entries and goes back as far as necessary.
pub(super) async fn sent_calls(
    store: &Store,
    account: &str,
    calls: &[Arc<str>],
) -> Result<HashMap<Arc<str>, (Entry, String)>, StoreError> {
    #[derive(Deserialize)]
    struct Sent {
        call: Arc<str>,
        model: String,
    }
    let (stream, mut found) = (calls_stream(account), HashMap::new());
    let mut upto = if calls.is_empty() { 0 } else { store.head(&stream).await? };
    while upto > 0 && found.len() < calls.len() {
        let from = upto.saturating_sub(PAGE_MAX as u64);
        let page = store.entries(&stream, from, PAGE_MAX).await?;
        // Older entries have been removed.
        let is_last = page.first().is_none_or(|entry| entry.seq > from + 1);
        for entry in page.into_iter().filter(|entry| &*entry.kind == "sent") {
            if let Ok(Sent { call, model }) = entry.decode()
                && calls.contains(&call)
            {
                found.insert(call, (entry, model));
            }
        }
        upto = if is_last { 0 } else { from };
    }
    Ok(found)
}

/// Returns recorded calls together with their messages, which are stored in their conversations.
///
/// # Errors
/// Returns the store's error.
pub async fn recorded(store: &Store, entries: Vec<Value>) -> Result<Vec<Value>, NeuronError> {
    let mut conversations: HashMap<String, Vec<Value>> = HashMap::new();
    let mut shown = Vec::with_capacity(entries.len());
    for mut entry in entries {
        let data = &mut entry["data"];
        let stream = data["conversation"].as_str().map(str::to_owned);
        if let (Some(stream), Some(place)) = (stream, data["messages"].as_u64()) {
            let said = match conversations.entry(stream) {
                hash_map::Entry::Occupied(known) => known.into_mut(),
                hash_map::Entry::Vacant(new) => {
                    let invocation = new.key().trim_start_matches("invocation:").to_owned();
                    new.insert(conversation::messages(store, &invocation.into()).await?)
                }
            };
            let place = place as usize;
            match data.get("finish") {
                None => data["messages"] = said.iter().take(place).cloned().collect(),
                Some(_) => {
                    let reply = said.get(place).cloned().unwrap_or_default();
                    data["text"] = reply["content"].as_str().unwrap_or_default().into();
                    data["tool_calls"] = reply.get("tool_calls").cloned().unwrap_or_else(|| json!([]));
                }
            }
        }
        shown.push(entry);
    }
    Ok(shown)
}
