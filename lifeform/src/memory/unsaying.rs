//! The retraction of statements.

use std::collections::BTreeSet;

use nexus::NexusError;
use serde_json::json;
use store::Origin;

use super::{
    Memory, Place, REMOVE, STATED_AGAIN, STATED_IN, STATEMENTS_OF, STILL_SAID, Stated, StoredFact, UNSAY, also_in, rows,
};

impl Memory {
    /// Marks the facts of a message as `superseded` (amended message) or `retracted`, except facts that another message
    /// also states.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn unsay(&self, stated: Stated<'_>, status: &str, cause: &Origin) -> Result<(), NexusError> {
        self.unsay_those(stated, Some(status), |_| true, cause).await
    }

    /// Marks those facts of a message for which `which` returns `true`. Without a status, they are removed.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn unsay_those(
        &self,
        stated: Stated<'_>,
        status: Option<&str>,
        which: impl Fn(&str) -> bool,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let Stated { topic, message, source, .. } = stated;
        let _turn = self.turn.lock().await;
        let last = self.run(STATED_IN, json!({"message": message, "topic": topic}), cause).await?;
        let again = self.run(STATED_AGAIN, json!({}), cause).await?;
        let facts = [&last, &again].into_iter().flat_map(rows).map(StoredFact::of);
        let (mut seen, mut ended) = (BTreeSet::new(), Vec::new());
        // A person can retract only its own statements, whatever place it names.
        let fits = |fact: &StoredFact| {
            let is_theirs = fact.author_text().is_none_or(|author| author == stated.person);
            is_theirs && fact.statement().is_some_and(&which)
        };
        for fact in facts.filter(|fact| seen.insert(fact.id()) && fits(fact)) {
            let mut places = fact.places();
            let before = places.len();
            places.retain(|place| !place.is_of(stated));
            if places.len() == before {
                continue;
            }
            match places.pop() {
                Some(Place(canvas, topic, message)) => {
                    let still = json!({
                        "fact": fact.id(),
                        "canvas": canvas,
                        "topic": topic,
                        "message": message,
                        "also_in": also_in(places),
                        // Words that are for all in one place are so no longer when any of the places is taken back.
                        "among": fact.audience(None),
                    });
                    self.run(STILL_SAID, still, cause).await?;
                }
                None => {
                    let unsaid = json!({"fact": fact.id(), "status": status, "source": source});
                    let (command, unsaid) = match status {
                        Some(_) => (UNSAY, unsaid),
                        None => (REMOVE, json!({"fact": fact.id()})),
                    };
                    self.run(command, unsaid, cause).await?;
                    ended.push(fact.id());
                }
            }
        }
        self.end_descriptions(Some(&ended), cause).await
    }

    /// Marks all facts that `person` stated in these words, in any place.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn unsay_everywhere(
        &self,
        stated: Stated<'_>,
        status: Option<&str>,
        content: &str,
        cause: &Origin,
    ) -> Result<(), NexusError> {
        let _turn = self.turn.lock().await;
        let found = self.run(STATEMENTS_OF, json!({"person": stated.person}), cause).await?;
        let says_it = |fact: &StoredFact| fact.statement().is_some_and(|said| knowledge::says_the_same(said, content));
        for fact in rows(&found).iter().map(StoredFact::of).filter(says_it) {
            let (command, parameters) = match status {
                Some(status) => (UNSAY, json!({"fact": fact.id(), "status": status, "source": stated.source})),
                None => (REMOVE, json!({"fact": fact.id()})),
            };
            self.run(command, parameters, cause).await?;
        }
        Ok(())
    }

    /// Returns `true` if a valid fact covers everything that `person` stated in one of `places`.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn still_holds(
        &self,
        person: &str,
        statement: &str,
        places: &[Place],
    ) -> Result<bool, NexusError> {
        let cause = Origin::system("copies removed");
        let says = |fact: StoredFact| {
            let said = fact.statement().filter(|_| fact.holds() && fact.author_text() == Some(person));
            said.is_some_and(|said| knowledge::adds_nothing(statement, said))
        };
        for Place(_, topic, message) in places {
            let found = self.run(STATED_IN, json!({"message": message, "topic": topic}), &cause).await?;
            if rows(&found).iter().map(StoredFact::of).any(says) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
