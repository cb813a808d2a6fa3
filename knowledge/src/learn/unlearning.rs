//! Removal of learned statements after their message was changed or retracted.

use std::collections::BTreeSet;

use nexus::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{Batch, Entry, Hash, Key, Kind, Origin};

use super::{EXTRACTED, Learned};
use crate::copies::is_copy;
use crate::draft::Body;
use crate::list::Which;
use crate::record::{Record, SOURCE_KEY};
use crate::{Knowledge, KnowledgeError};

impl Knowledge {
    /// Withdraws the records that were learned from a message that was changed or retracted, except for those in
    /// `learned`, which its new text supports. A statement that another message repeats is kept. A statement that the
    /// withdrawn one had replaced becomes valid again, unless it was retracted too. Returns the number of withdrawn
    /// records.
    ///
    /// # Errors
    /// Returns the errors of [`Self::learn`].
    pub async fn unlearn(
        &self,
        message: &str,
        owner: &str,
        learned: &[Learned],
        origin: &Origin,
    ) -> Result<usize, KnowledgeError> {
        let which = Which { owner: Some(owner.to_owned()), ..Which::default() };
        let still: BTreeSet<String> =
            learned.iter().filter_map(|learned| learned.record().map(str::to_owned)).collect();
        let now = Unsaid { is_changed: true, still, deleted: BTreeSet::new() };
        let mut records = self.all(&which, origin).await?;
        records.retain(|record| record.source.get("category").and_then(Value::as_str) == Some(EXTRACTED));
        if records.is_empty() {
            return Ok(0);
        }
        {
            let _turn = self.once.lock().await;
            self.store.commit(Batch::new(origin).put(unsaid(owner, message), &now)).await?;
        }
        let mut gone = 0;
        records.retain(|record| !now.still.contains(&record.id));
        let of_it = |record: &Record| record.message_id.as_deref() == Some(message);
        let (of_it, others): (Vec<Record>, Vec<Record>) = records.into_iter().partition(of_it);
        for record in of_it {
            let mut versions = self.own_versions(&record.id).await?;
            let said = |(_, version): &(Entry, Version)| version.metadata.get("message_id").cloned();
            let since = versions.iter().rev().take_while(|version| said(version) == Some(message.into())).last();
            if self.is_said_again(&record, since.map_or(record.created_at, |(entry, _)| entry.at), message).await? {
                continue;
            }
            versions.retain(|version| said(version) != Some(message.into()));
            gone += 1;
            if !self.say_before(&record, versions, origin).await? {
                match self.delete(&record.id, false, origin).await {
                    Ok(()) | Err(KnowledgeError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        // Records of other messages that this message only repeated may have lost their last support.
        for record in others {
            let Some(first) = record.message_id.as_deref() else { continue };
            if self.is_unsaid(&record, first).await?
                && !self.is_said_again(&record, record.created_at, message).await?
                && self.delete(&record.id, false, origin).await.is_ok()
            {
                gone += 1;
            }
        }
        Ok(gone)
    }

    /// Returns `true` if a message was changed, retracted or deleted, and no longer supports a record.
    pub(crate) async fn is_unsaid(&self, record: &Record, message: &str) -> Result<bool, KnowledgeError> {
        let known = self.store.document::<Unsaid>(&unsaid(&record.owner, message)).await?;
        Ok(known.is_some_and(|known| known.value.holds(&record.id)))
    }

    /// Marks that `messages` no longer support the records whose earlier versions contain `statement`.
    /// [`Self::unlearn`] then does not restore those versions.
    pub(crate) async fn unsay_earlier(
        &self,
        records: &[Record],
        messages: &[String],
        statement: &str,
        origin: &Origin,
    ) -> Result<(), KnowledgeError> {
        for record in records.iter().filter(|record| record.version > 1) {
            for (_, version) in self.own_versions(&record.id).await? {
                let then = version.attributes.unwrap_or_default();
                let content = then.get("content").and_then(Value::as_str);
                let message = version.metadata.get("message_id").and_then(Value::as_str);
                let (Some(content), Some(message)) = (content, message) else { continue };
                if messages.iter().any(|one| one == message) && is_copy(content, statement) {
                    let key = unsaid(&record.owner, message);
                    let _turn = self.once.lock().await;
                    let known = self.store.document::<Unsaid>(&key).await?.map(|known| known.value);
                    let mut known = known.unwrap_or_else(Unsaid::of_an_unchanged_message);
                    if known.deleted.insert(record.id.clone()) {
                        self.store.commit(Batch::new(origin).put(key, &known)).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Restores the last version of a record that a message still supports. Returns `true` if there is one.
    pub(super) async fn say_before(
        &self,
        record: &Record,
        versions: Vec<(Entry, Version)>,
        origin: &Origin,
    ) -> Result<bool, KnowledgeError> {
        for (_, version) in versions.into_iter().rev() {
            let (then, metadata) = (version.attributes.unwrap_or_default(), version.metadata);
            let text = |from: &Map<String, Value>, key: &str| from.get(key).and_then(Value::as_str).map(str::to_owned);
            let (Some(content), Some(message)) = (text(&then, "content"), text(&metadata, "message_id")) else {
                continue;
            };
            if self.is_unsaid(record, &message).await? {
                continue;
            }
            let of_then = ["confidence", "message_id", SOURCE_KEY, "evidence", "source"].into_iter();
            let known = of_then.filter_map(|key| Some((key.to_owned(), metadata.get(key)?.clone())));
            let body = Body { task: text(&then, "task"), content: Some(content), ..Body::default() };
            self.rewrite(record, body, &Value::Object(known.collect()), origin).await?;
            return Ok(true);
        }
        Ok(false)
    }
}

/// The records that a message no longer supports.
#[derive(Serialize, Deserialize)]
pub(super) struct Unsaid {
    /// `true` if the message was changed or retracted: it then supports only the records in `still`.
    #[serde(default = "yes")]
    pub(super) is_changed: bool,
    /// The records that a changed message still supports, or supports again.
    #[serde(default)]
    pub(super) still: BTreeSet<String>,
    /// The records from which a person deleted the statement of this message.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) deleted: BTreeSet<String>,
}

impl Unsaid {
    /// Creates the state of an unchanged message, which supports all its records.
    pub(super) fn of_an_unchanged_message() -> Self {
        Self { is_changed: false, still: BTreeSet::new(), deleted: BTreeSet::new() }
    }

    pub(super) fn holds(&self, record: &str) -> bool {
        self.deleted.contains(record) || self.is_changed && !self.still.contains(record)
    }
}

/// Returns the key of the [`Unsaid`] document of a message.
pub(super) fn unsaid(owner: &str, message: &str) -> Key {
    Key::new(Kind::Feedback, Hash::of(json!(["unsaid", owner, message]).to_string().as_bytes()).hex())
}

fn yes() -> bool {
    true
}
