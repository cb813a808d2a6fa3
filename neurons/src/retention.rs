//! The retention of calls. An invocation is removed with its record, its journal and its pauses; its payments stay in
//! the ledger and in `calls:{account}`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Batch, Expect, Key, Kind as Document, Origin, StoreError, Timestamp};

use crate::NeuronError;
use crate::conversation::{PREFIX, stream};
use crate::effects::effects_key;
use crate::invocations::Invocation;
use crate::llm::paid::calls_stream;
use crate::neurons::{HOUSE, Neurons};

/// The number of records examined before the task yields.
const PAGE: usize = 64;

/// The position up to which the calls of the house were examined.
#[derive(Default, Serialize, Deserialize)]
struct Cursor {
    calls: u64,
}

impl Neurons {
    /// Removes invocations that ended, or have waited without an answer, since before a time. Returns their number.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn prune(&self, before: Timestamp) -> Result<usize, NeuronError> {
        let (mut after, mut pruned) = (String::new(), 0);
        loop {
            let page = self.store.documents::<Invocation>(Document::Invocation, &after, PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = last.to_string();
            for (id, found) in page {
                let record = found.value;
                if record.updated_at >= before || self.under_way().contains_key(&id) {
                    continue;
                }
                let gone = Batch::new(&Origin::system("retention"));
                let mut gone = gone.delete(Invocation::key(&id), Expect::Version(found.version)).forget(stream(&id));
                gone = gone.delete(effects_key(&id), Expect::Any);
                for pause in 1..=record.pauses() {
                    gone = gone.delete(Key::new(Document::Continuation, format!("{id}.{pause}")), Expect::Any);
                }
                match self.store.commit(gone).await {
                    Ok(_) => pruned += 1,
                    // The invocation was continued meanwhile.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(pruned + self.prune_conversations(before).await?)
    }

    /// Removes conversations that callers keep, such as those of the OpenAI-compatible API. They have no record.
    async fn prune_conversations(&self, before: Timestamp) -> Result<usize, NeuronError> {
        let (key, calls) = (Key::new(Document::Cursor, "retention"), calls_stream(HOUSE));
        let mut cursor: Cursor = self.store.document(&key).await?.map(|found| found.value).unwrap_or_default();
        let mut pruned = 0;
        loop {
            let page = self.store.entries(&calls, cursor.calls, PAGE).await?;
            let old: Vec<_> = page.iter().take_while(|entry| entry.at < before).collect();
            let Some(last) = old.last() else { return Ok(pruned) };
            cursor.calls = last.seq;
            let mut gone = Batch::new(&Origin::system("retention"));
            for entry in old.iter().filter(|entry| &*entry.kind == "sent") {
                let sent: Value = entry.decode()?;
                // Conversations with a record are removed with it, and those of a job with the job.
                let name = sent["conversation"].as_str().and_then(|stream| stream.strip_prefix(PREFIX));
                let Some(name) = name.filter(|name| name.starts_with("inv_")) else { continue };
                let known = self.store.document::<Invocation>(&Invocation::key(&name.into())).await?;
                if known.is_none() && self.store.head(&stream(name)).await? > 0 {
                    gone = gone.forget(stream(name)).delete(effects_key(name), Expect::Any);
                    pruned += 1;
                }
            }
            self.store.commit(gone.put(key.clone(), &cursor)).await?;
            tokio::task::yield_now().await;
        }
    }
}
