//! The removal of copies. When a fact is deleted from a mind, the matching records in the commons are deleted too. When
//! a record is deleted, the matching facts are removed from the minds of the lifeforms that heard the message.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use knowledge::{Deleted, is_copy};
use nexus::{Forgotten, NexusError};
use serde_json::Value;
use store::{Batch, Cause, Expect, Key, Kind, Origin, Principal, Role, Scope, StoreError, Versioned};

use super::{Inner, Lifeforms};
use crate::LifeformError;
use crate::memory::{Forgettable, Stated, StoredFact};
use crate::spec::LifeformId;
use crate::tools::Wish;

/// The number of notes per read.
const NOTES_AT_ONCE: usize = 64;
/// The pause before a failed removal of copies is retried.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A fact that is forgotten by request.
#[derive(Clone, Debug)]
pub struct ForgottenFact {
    /// The id of the concept.
    pub fact: String,
    /// The statement.
    pub statement: String,
    /// The person who stated it.
    pub person: String,
    /// The references of the messages that state it.
    pub messages: Vec<String>,
}

impl Lifeforms {
    /// Forgets facts by their ids, with their other wordings: they leave the mind, the commons, the summaries and the prompts. A principal
    /// forgets what it stated and what was found out for it, and an operator everything. What was forgotten before is left out of the
    /// answer. With `dry_run`, nothing changes.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::NoFact`] for a fact that is not there or not the principal's, after which nothing is
    /// forgotten, and [`LifeformError::NotAwake`].
    pub async fn forget_facts(
        &self,
        origin: &Origin,
        id: &LifeformId,
        facts: &[String],
        dry_run: bool,
    ) -> Result<Vec<ForgottenFact>, LifeformError> {
        self.get(id).await?;
        let tools = self.tools_of(id).await.map_err(|_| LifeformError::NotAwake(id.clone()))?;
        let (found, at) = tools.facts_to_forget(facts, origin).await?;
        let may = |one: &Forgettable| {
            let is_own = origin.principal.answers_for(&one.author);
            origin.principal.may(Role::Operator)
                || is_own
                || one.found_for.iter().any(|who| origin.principal.answers_for(who))
        };
        let is_there = |fact: &&String| found.iter().any(|one| one.gone.fact == **fact && may(one));
        if let Some(fact) = facts.iter().find(|fact| !is_there(fact)) {
            return Err(LifeformError::NoFact(fact.clone()));
        }
        let found: Vec<Forgettable> = found.into_iter().filter(|one| one.holds).collect();
        if !dry_run {
            let source = origin.cause.0.last().cloned().unwrap_or_default();
            let authors: BTreeSet<&str> = found.iter().map(|one| one.author.as_str()).collect();
            for person in authors {
                let of = found.iter().filter(|one| one.author == person).map(|one| one.gone.clone());
                let wish = Wish { person, at, source: &source, message: None };
                tools.forget_by_wish(&of.collect::<Vec<_>>(), &wish, origin).await?;
            }
        }
        let forgotten = found.into_iter().map(|Forgettable { gone, author, .. }| ForgottenFact {
            fact: gone.fact,
            statement: gone.statement,
            person: author,
            messages: gone.messages,
        });
        Ok(forgotten.collect())
    }

    /// Starts the background task that removes copies, including those that were left when the daemon last ended.
    pub(super) fn keep_copies_together(&self) {
        let Some(mut signals) = self.inner.nexus.outbox().listen() else { return };
        let this = Arc::downgrade(&self.inner);
        tokio::spawn(store::vital("removal of copies", async move {
            while let Some(lifeforms) = upgraded(&this) {
                let is_done = lifeforms.remove_copies().await;
                drop(lifeforms);
                if !is_done {
                    tokio::time::sleep(RETRY_AFTER).await;
                } else if signals.recv().await.is_none() {
                    break;
                }
            }
        }));
    }

    /// Removes the copies that the stored notes name. Returns `false` if some could not be removed.
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
            let mut done = Vec::new();
            for (name, Versioned { value, version }) in notes {
                match self.remove_copies_of(&name, value).await {
                    Ok(()) => done.push((name, version)),
                    Err(error) => {
                        tracing::warn!(note = %name, %error, "copies of what was deleted cannot be removed yet");
                        is_done = false;
                    }
                }
            }
            if let Err(error) = self.remove_notes(done).await {
                tracing::warn!(%error, "notes of what was deleted cannot be removed yet");
                is_done = false;
            }
        }
    }

    async fn remove_copies_of(&self, name: &str, note: Value) -> Result<(), LifeformError> {
        let done = match name.starts_with("fact/") {
            true => serde_json::from_value(note).map(|fact: Forgotten| Either::Fact(fact)),
            false => serde_json::from_value(note).map(Either::Record),
        };
        match done {
            Ok(Either::Fact(fact)) => self.forget_records_of(&fact).await,
            Ok(Either::Record(deleted)) => self.forget_facts_of(&deleted).await,
            Err(error) => {
                tracing::error!(note = %name, %error, "a note of what was deleted cannot be read and is removed");
                Ok(())
            }
        }
    }

    /// Removes notes in one commit. A note that was written again in the meantime stays, and the task is signalled for
    /// it.
    async fn remove_notes(&self, notes: Vec<(Arc<str>, u64)>) -> Result<(), LifeformError> {
        let origin = Origin::system("copies removed");
        let without = |batch: Batch, (name, version): &(Arc<str>, u64)| {
            batch.delete(Key::new(Kind::Forgotten, name.clone()), Expect::Version(*version))
        };
        if notes.is_empty() {
            return Ok(());
        }
        match self.inner.store.commit(notes.iter().fold(Batch::new(&origin), without)).await {
            Err(StoreError::Conflict { .. }) => {}
            done => return Ok(done.map(drop)?),
        }
        for note in &notes {
            match self.inner.store.commit(without(Batch::new(&origin), note)).await {
                Ok(_) | Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Deletes the records that state the same as a deleted fact, as far as its lifeform heard them in the same
    /// messages. They stay if another fact still states the same, as after a merge of duplicates.
    async fn forget_records_of(&self, fact: &Forgotten) -> Result<(), LifeformError> {
        let Forgotten { nexus, attributes, metadata } = fact;
        let concept = serde_json::json!({"attributes": attributes, "metadata": metadata});
        let stored = StoredFact::of(&concept);
        let (Some(person), Some(statement)) = (stored.author_text(), stored.statement()) else { return Ok(()) };
        let places = stored.places();
        if let Ok(head) = self.get(&(**nexus).into()).await
            && self.memory(&head).still_holds(person, statement, &places).await.map_err(LifeformError::Nexus)?
        {
            return Ok(());
        }
        let messages: Vec<String> = places.iter().map(|place| place.message()).collect();
        let mut me = Principal::lifeform(nexus);
        me.scopes.insert(Scope(person.into()));
        let origin = Origin::new(me, Cause::of(format!("nexus:{nexus}")));
        let agent = format!("lifeform:{nexus}");
        let forgotten = self.inner.knowledge.forget(person, &agent, &messages, statement, &origin);
        forgotten.await.map(drop).map_err(LifeformError::Knowledge)
    }

    /// Removes the facts that state the same as a deleted record from the minds of the lifeforms that heard the
    /// message.
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
            // Repetitions of the statement elsewhere are removed too.
            memory.unsay_everywhere(stated, status, content, &origin).await.map_err(LifeformError::Nexus)?;
            memory.sweep(&origin).await.map_err(LifeformError::Nexus)?;
        }
        Ok(())
    }
}

/// A parsed note.
enum Either {
    Fact(Forgotten),
    Record(Deleted),
}

fn upgraded(this: &Weak<Inner>) -> Option<Lifeforms> {
    this.upgrade().map(|inner| Lifeforms { inner })
}

/// Returns the lifeform, canvas, topic and message of a record's source.
fn parts_of(message_id: &str) -> Option<[&str; 4]> {
    let parts: Vec<&str> = message_id.splitn(4, '/').collect();
    parts.try_into().ok()
}
