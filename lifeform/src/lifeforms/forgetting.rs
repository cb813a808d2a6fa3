//! Copies of what people said: a fact that goes out of a mind goes out of the commons, too, and a record that is deleted out of
//! the minds of those who heard it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use knowledge::{Deleted, is_copy};
use nexus::store::{Expect, Key, Kind, Versioned};
use nexus::{Batch, Cause, Forgotten, NexusError, Origin, Principal, Scope, StoreError};
use serde_json::Value;

use super::{Inner, Lifeforms};
use crate::LifeformError;
use crate::memory::{Stated, places_of};

/// Notes read at once.
const NOTES_AT_ONCE: usize = 64;
/// How long copies stay that could not be removed, before that is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

impl Lifeforms {
    /// Begins to remove the copies of what is deleted, in the background, and of what was deleted before the daemon ended.
    pub(super) fn keep_copies_together(&self) {
        let Some(mut signals) = self.inner.nexus.outbox().listen() else { return };
        let this = Arc::downgrade(&self.inner);
        tokio::spawn(nexus::vital("removal of copies", async move {
            while let Some(lifeforms) = upgraded(&this) {
                let is_done = lifeforms.remove_copies().await;
                drop(lifeforms);
                let signal = match is_done {
                    true => signals.recv().await,
                    false => tokio::time::timeout(RETRY_AFTER, signals.recv()).await.unwrap_or(Some(())),
                };
                if signal.is_none() {
                    break;
                }
            }
        }));
    }

    /// Removes the copies that there are notes of. Returns `false` if some could not be removed.
    async fn remove_copies(&self) -> bool {
        let (mut after, mut is_done) = (Arc::<str>::from(""), true);
        loop {
            let notes = match self.inner.store.documents::<Value>(Kind::Forgotten, &after, NOTES_AT_ONCE).await {
                Ok(notes) => notes,
                Err(error) => {
                    tracing::warn!(%error, "notes of what was deleted cannot be read");
                    return false;
                }
            };
            let Some((last, _)) = notes.last() else { return is_done };
            after = last.clone();
            for (name, note) in notes {
                if let Err(error) = self.remove_copies_of(&name, note).await {
                    tracing::warn!(note = %name, %error, "copies of what was deleted cannot be removed yet");
                    is_done = false;
                }
            }
        }
    }

    async fn remove_copies_of(&self, name: &str, note: Versioned<Value>) -> Result<(), LifeformError> {
        let Versioned { value: note, version } = note;
        let unread = |error: serde_json::Error| StoreError::Corrupt(format!("note {name}: {error}"));
        if name.starts_with("fact/") {
            self.forget_records_of(&serde_json::from_value(note).map_err(unread)?).await?;
        } else {
            self.forget_facts_of(&serde_json::from_value(note).map_err(unread)?).await?;
        }
        // A note that was made again meanwhile stays, and was signalled.
        let (key, expect) = (Key::new(Kind::Forgotten, name), Expect::Version(version));
        match self.inner.store.commit(Batch::new(&Origin::system("copies removed")).delete(key, expect)).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the records that say what a fact said, as far as they were made of the same messages.
    async fn forget_records_of(&self, fact: &Forgotten) -> Result<(), LifeformError> {
        let Forgotten { nexus, attributes, metadata } = fact;
        let text = |value: Option<&serde_json::Value>| value.and_then(|value| value.as_str()).map(str::to_owned);
        let (Some(person), Some(statement)) = (text(metadata.get("author")), text(attributes.get("statement"))) else {
            return Ok(());
        };
        let places = places_of(&serde_json::json!({"attributes": attributes}));
        let messages: Vec<String> = places.iter().map(|place| place.message()).collect();
        let mut me = Principal::lifeform(nexus);
        me.scopes.insert(Scope(person.as_str().into()));
        let origin = Origin::new(me, Cause::of(format!("nexus:{nexus}")));
        self.inner.knowledge.forget(&person, &messages, &statement, &origin).await.map_err(LifeformError::Knowledge)?;
        Ok(())
    }

    /// Takes what a record said out of the minds of the lifeforms that heard it.
    async fn forget_facts_of(&self, deleted: &Deleted) -> Result<(), LifeformError> {
        let Deleted { id, owner, content, message_id, heard_by, purged } = deleted;
        let Some([lifeform, canvas, topic, message]) = parts_of(message_id) else { return Ok(()) };
        let canvas = format!("{lifeform}/{canvas}");
        for agent in heard_by {
            let Some(lifeform) = agent.strip_prefix("lifeform:") else { continue };
            let head = match self.get(&lifeform.into()).await {
                Ok(head) => head,
                Err(LifeformError::NotFound(_)) => continue,
                Err(error) => return Err(error),
            };
            let memory = self.memory(&head);
            let (person, source) = (owner.as_str(), format!("record:{id}"));
            let stated = Stated { person, topic, message, canvas: &canvas, source: &source };
            let status = (!*purged).then_some("retracted");
            let origin = Origin::new(head.principal(), Cause::of(source.clone()));
            let unsaid = memory.unsay_those(stated, status, |statement| is_copy(content, statement), &origin);
            unsaid.await.map_err(|error: NexusError| LifeformError::Nexus(error))?;
        }
        Ok(())
    }
}

fn upgraded(this: &Weak<Inner>) -> Option<Lifeforms> {
    this.upgrade().map(|inner| Lifeforms { inner })
}

/// The lifeform, canvas, topic and message that a record names as where it comes from.
fn parts_of(message_id: &str) -> Option<[&str; 4]> {
    let parts: Vec<&str> = message_id.splitn(4, '/').collect();
    parts.try_into().ok()
}
