//! Copies of what people said: a fact that goes out of a mind goes out of the commons, too, and a record that is deleted out of
//! the minds of those who heard it.

use std::sync::{Arc, Weak};

use knowledge::{Deleted, is_copy};
use nexus::{Cause, Forgotten, NexusError, Origin, Principal, Scope};

use super::{Inner, Lifeforms};
use crate::LifeformError;
use crate::memory::{Stated, places_of};

impl Lifeforms {
    /// Begins to keep copies together, in the background.
    pub(super) fn keep_copies_together(&self) {
        let this = Arc::downgrade(&self.inner);
        if let Some(mut forgotten) = self.inner.nexus.forgotten() {
            let this = this.clone();
            tokio::spawn(nexus::vital("forgetting of facts", async move {
                while let (Some(fact), Some(lifeforms)) = (forgotten.recv().await, upgraded(&this)) {
                    if let Err(error) = lifeforms.forget_records_of(&fact).await {
                        tracing::warn!(nexus = %fact.nexus, %error, "a record of a fact that is gone cannot be deleted");
                    }
                }
            }));
        }
        if let Some(mut deleted) = self.inner.knowledge.deleted() {
            tokio::spawn(nexus::vital("forgetting of records", async move {
                while let (Some(gone), Some(lifeforms)) = (deleted.recv().await, upgraded(&this)) {
                    if let Err(error) = lifeforms.forget_facts_of(&gone).await {
                        tracing::warn!(record = gone.record.id, %error, "a fact of a record that is gone cannot be removed");
                    }
                }
            }));
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
        let Deleted { record, purged } = deleted;
        let Some([lifeform, canvas, topic, message]) = record.message_id.as_deref().and_then(parts_of) else {
            return Ok(());
        };
        let canvas = format!("{lifeform}/{canvas}");
        for agent in record.heard_by() {
            let Some(id) = agent.strip_prefix("lifeform:") else { continue };
            let head = match self.get(&id.into()).await {
                Ok(head) => head,
                Err(LifeformError::NotFound(_)) => continue,
                Err(error) => return Err(error),
            };
            let memory = self.memory(&head);
            let (person, source) = (record.owner.as_str(), format!("record:{}", record.id));
            let stated = Stated { person, topic, message, canvas: &canvas, source: &source };
            let status = (!purged).then_some("retracted");
            let origin = Origin::new(head.principal(), Cause::of(source.clone()));
            let unsaid = memory.unsay_those(stated, status, |statement| is_copy(&record.content, statement), &origin);
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
