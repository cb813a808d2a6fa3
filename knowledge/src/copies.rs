//! Copies of statements: a person's statement is stored as a fact in a mind and as a record in the commons. If one of
//! them is deleted, the other one is deleted too.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{Op, Origin, PrincipalKind};

use crate::learn::EXTRACTED;
use crate::likeness::{likeness, telling, words, words_the_same};
use crate::list::Which;
use crate::record::Record;
use crate::{Knowledge, KnowledgeError};

/// The share of common words from which two texts count as copies.
const SAME: f64 = 0.8;

/// A deleted record that lifeforms had learned from a conversation, and that was not deleted by a lifeform. This is the
/// body of a note in the [`Outbox`](nexus::Outbox).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deleted {
    /// The id of the record.
    pub id: String,
    /// The person who made the statement.
    pub owner: String,
    /// The content of the record.
    pub content: String,
    /// The id of the message that the record was learned from.
    pub message_id: String,
    /// The ids of the agents that heard the statement.
    pub heard_by: Vec<String>,
    /// `true` if the record was removed permanently, `false` if it was marked as deleted.
    pub purged: bool,
}

/// Returns `true` if a text from the same message has the meaning of `statement`, in more or fewer words, since a model
/// may rephrase it.
pub fn is_copy(text: &str, statement: &str) -> bool {
    adds_nothing(statement, text) || adds_nothing(text, statement) || likeness(&words(text), &words(statement)) >= SAME
}

/// Returns `true` if two texts have the same significant words, in whatever message.
pub fn says_the_same(one: &str, other: &str) -> bool {
    adds_nothing(one, other) && adds_nothing(other, one)
}

/// Returns `true` if `other` contains every significant word of a text. A text without significant words returns
/// `false`.
pub fn adds_nothing(text: &str, other: &str) -> bool {
    let (said, known) = (telling(text), telling(other));
    !said.is_empty() && said.iter().all(|word| known.contains(word))
}

impl Record {
    /// Returns the agents that heard the record's statement from its owner; lifeforms are named by their ids. A record
    /// that was not learned from a conversation was heard by none.
    pub fn heard_by(&self) -> impl Iterator<Item = &str> {
        let is_extracted = self.source.get("category").and_then(Value::as_str) == Some(EXTRACTED);
        let first = self.source.get("agent_id").and_then(Value::as_str).filter(|_| is_extracted);
        let others = self.tags.get(HEARD_BY).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        first.into_iter().chain(others)
    }

    /// Returns `true` if a record was learned from conversations in which `agent` did not take part.
    pub fn is_of_other_talks_than(&self, agent: &str) -> bool {
        let mut heard_by = self.heard_by().peekable();
        heard_by.peek().is_some() && !heard_by.any(|one| one == agent)
    }
}

/// The tag that lists further agents that heard a record's statement.
pub(crate) const HEARD_BY: &str = "heard_by";

impl Knowledge {
    /// Returns the outbox note for a record that `origin` deletes.
    pub(crate) fn note_of(&self, record: &Record, purged: bool, origin: &Origin) -> Option<Op> {
        let heard_by: Vec<String> = record.heard_by().map(str::to_owned).collect();
        // A lifeform needs no note about its own deletion.
        if origin.principal.kind == PrincipalKind::Lifeform || heard_by.is_empty() {
            return None;
        }
        let Record { id, owner, content, message_id, .. } = record.clone();
        let deleted = Deleted { id: id.clone(), owner, content, message_id: message_id?, heard_by, purged };
        self.nexus.outbox().note(format!("record/{id}"), &deleted)
    }

    /// Deletes the records of `owner` that `agent` heard and that contain `statement`; records of these messages are
    /// deleted even in other words. Earlier versions with the statement stay in a record's history, but a retracted
    /// message does not restore them. Returns the number of deleted records.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read or written.
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
            let is_one =
                is_of_one && (is_copy(&record.content, statement) || words_the_same(&record.content, statement));
            record.heard_by().any(|heard| heard == agent) && (is_one || says_the_same(&record.content, statement))
        };
        let (of_them, others): (Vec<Record>, Vec<Record>) =
            self.all(&which, origin).await?.into_iter().partition(is_of_them);
        // A revised record lists only the agents of its present content; the messages identify its earlier versions.
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
