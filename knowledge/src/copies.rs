//! Copies: a person's statement is kept as a fact in a mind and as a record here, and deleting one deletes the other.

use std::sync::{Arc, OnceLock};

use nexus::Origin;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::learn::EXTRACTED;
use crate::likeness::{likeness, telling, words};
use crate::list::Which;
use crate::record::Record;
use crate::{Knowledge, KnowledgeError};

/// Two texts that share so much of their words are copies.
const SAME: f64 = 0.8;

/// A deleted record whose deletion was not its own agent's doing.
#[derive(Clone, Debug)]
pub struct Deleted {
    /// The record, as it was.
    pub record: Record,
    /// `true` if the record was removed for good, `false` if it was marked as deleted.
    pub purged: bool,
}

/// The channel that carries deleted records; without a listener they are dropped.
#[derive(Clone, Default)]
pub(crate) struct Deletions(Arc<OnceLock<mpsc::UnboundedSender<Deleted>>>);

impl Deletions {
    pub(crate) fn report(&self, record: Record, purged: bool) {
        if let Some(listener) = self.0.get() {
            // The listener ends with the daemon.
            let _ = listener.send(Deleted { record, purged });
        }
    }
}

/// Returns `true` if a text of the same message says what `statement` does, in more words or in fewer, as a model may read it.
pub fn is_copy(text: &str, statement: &str) -> bool {
    adds_nothing(statement, text) || adds_nothing(text, statement) || likeness(&words(text), &words(statement)) >= SAME
}

/// Returns `true` if every telling word of a text is in `other`. A text without any is no repetition.
pub fn adds_nothing(text: &str, other: &str) -> bool {
    let (said, known) = (telling(text), telling(other));
    !said.is_empty() && said.iter().all(|word| known.contains(word))
}

impl Record {
    /// Returns the agents that heard what the record says from its owner: lifeforms by their ids. A record that was not made of
    /// a talk was heard by none.
    pub fn heard_by(&self) -> impl Iterator<Item = &str> {
        let is_extracted = self.source.get("category").and_then(Value::as_str) == Some(EXTRACTED);
        let first = self.source.get("agent_id").and_then(Value::as_str).filter(|_| is_extracted);
        let others = self.tags.get(HEARD_BY).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        first.into_iter().chain(others)
    }

    /// Returns `true` if a record was made of a talk that `agent` had no part in.
    pub fn is_of_other_talks_than(&self, agent: &str) -> bool {
        let mut heard_by = self.heard_by().peekable();
        heard_by.peek().is_some() && !heard_by.any(|one| one == agent)
    }
}

/// The label of a record that more agents heard of than the one that made it.
pub(crate) const HEARD_BY: &str = "heard_by";

impl Knowledge {
    /// Returns the receiver of deleted records. `None` if the receiver was taken already.
    pub fn deleted(&self) -> Option<mpsc::UnboundedReceiver<Deleted>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.deleted.0.set(sender).is_ok().then_some(receiver)
    }

    /// Deletes the records of `owner` that were made of these messages and say what `statement` does. Returns their number.
    ///
    /// # Errors
    /// When the commons cannot be read or written.
    pub async fn forget(
        &self,
        owner: &str,
        messages: &[String],
        statement: &str,
        origin: &Origin,
    ) -> Result<usize, KnowledgeError> {
        let which = Which { owner: Some(owner.to_owned()), ..Which::default() };
        let is_of_them = |record: &Record| {
            record.message_id.as_ref().is_some_and(|message| messages.contains(message))
                && record.heard_by().next().is_some()
                && is_copy(&record.content, statement)
        };
        let mut gone = 0;
        for record in self.all(&which, origin).await?.into_iter().filter(is_of_them) {
            match self.delete(&record.id, false, origin).await {
                Ok(()) => gone += 1,
                Err(KnowledgeError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_says_a_statement_and_more_is_a_copy_of_it() {
        let boat = "The name of my sailing boat is Petrel.";
        assert!(is_copy("The name of my sailing boat is Petrel. She is green.", boat));
        assert!(is_copy("the name of my sailing boat is Petrel", boat));
        assert!(is_copy("Petrel is a boat.", boat), "as a model may read it");
        assert!(!is_copy("The name of my sailing boat is Heron.", boat));
        assert!(!is_copy("My cat is called Miso.", boat));
        assert!(is_copy("我的猫叫味噌，它三岁。", "我的猫叫味噌。"));
        assert!(adds_nothing("The name of my sailing boat is Petrel. It is a sailing boat.", boat));
        assert!(!adds_nothing("The name of my sailing boat is Petrel. She is green.", boat));
    }
}
