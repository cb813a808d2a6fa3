//! Copies: a person's statement is kept as a fact in a mind and as a record here, and deleting one deletes the other.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Op, Origin, PrincipalKind};

use crate::learn::EXTRACTED;
use crate::likeness::{likeness, telling, words};
use crate::list::Which;
use crate::record::Record;
use crate::{Knowledge, KnowledgeError};

/// Two texts that share so much of their words are copies.
const SAME: f64 = 0.8;

/// A deleted record that lifeforms heard of in a talk, and whose deletion was not a lifeform's doing: the body of a
/// note in the [`Outbox`](nexus::Outbox).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deleted {
    /// The record's id.
    pub id: String,
    /// The person whose statement it was.
    pub owner: String,
    /// The content of the record.
    pub content: String,
    /// The message it was made of.
    pub message_id: String,
    /// The agents that heard it.
    pub heard_by: Vec<String>,
    /// `true` if the record was removed for good, `false` if it was marked as deleted.
    pub purged: bool,
}

/// Returns `true` if a text of the same message says what `statement` does, in more words or in fewer, as a model may
/// read it.
pub fn is_copy(text: &str, statement: &str) -> bool {
    adds_nothing(statement, text) || adds_nothing(text, statement) || likeness(&words(text), &words(statement)) >= SAME
}

/// Returns `true` if two texts say the same in the same telling words, wherever they were said.
pub fn says_the_same(one: &str, other: &str) -> bool {
    adds_nothing(one, other) && adds_nothing(other, one)
}

/// Returns `true` if every telling word of a text is in `other`. A text without any is no repetition.
pub fn adds_nothing(text: &str, other: &str) -> bool {
    let (said, known) = (telling(text), telling(other));
    !said.is_empty() && said.iter().all(|word| known.contains(word))
}

impl Record {
    /// Returns the agents that heard what the record says from its owner: lifeforms by their ids. A record that was not
    /// made of a talk was heard by none.
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
    /// Returns the note to be made of a record that `origin` deletes.
    pub(crate) fn note_of(&self, record: &Record, purged: bool, origin: &Origin) -> Option<Op> {
        let heard_by: Vec<String> = record.heard_by().map(str::to_owned).collect();
        // A lifeform knows itself what it did.
        if origin.principal.kind == PrincipalKind::Lifeform || heard_by.is_empty() {
            return None;
        }
        let Record { id, owner, content, message_id, .. } = record.clone();
        let deleted = Deleted { id: id.clone(), owner, content, message_id: message_id?, heard_by, purged };
        self.nexus.outbox().note(format!("record/{id}"), &deleted)
    }

    /// Deletes the records of `owner` that `agent` heard and that say what `statement` does: those of these messages in
    /// other words, too. What a record said so before stays in its history, and no message that is taken back makes it
    /// say that again. Returns the number of deleted records.
    ///
    /// # Errors
    /// When the commons cannot be read or written.
    pub async fn forget(
        &self,
        owner: &str,
        agent: &str,
        messages: &[String],
        statement: &str,
        origin: &Origin,
    ) -> Result<usize, KnowledgeError> {
        let which = Which { owner: Some(owner.to_owned()), ..Which::default() };
        let is_of_them = |record: &Record| {
            let is_of_one = record.message_id.as_ref().is_some_and(|message| messages.contains(message));
            let is_one = is_of_one && is_copy(&record.content, statement);
            record.heard_by().any(|heard| heard == agent) && (is_one || says_the_same(&record.content, statement))
        };
        let (of_them, others): (Vec<Record>, Vec<Record>) =
            self.all(&which, origin).await?.into_iter().partition(is_of_them);
        // A record that was revised names the agents of its present content alone; the messages bind its history.
        self.unsay_earlier(&others, messages, statement, origin).await?;
        let mut gone = 0;
        for record in of_them {
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
