//! The statements about the people and things of a question, which it names, or mentions by a relation ("my husband") or over several. The
//! graph leads to them where it has no answer itself, because sentences say more than claims.

use std::collections::BTreeSet;

use nexus::NexusError;
use serde_json::{Value, json};
use store::Origin;

use super::answering::Answer;
use super::query::Query;
use crate::formation::is_said_in;
use crate::memory::{Memory, Readers, StoredFact, rows};

/// The maximum number of concepts of one mention and of a question, and of the facts about each, that are looked at.
const CONCEPTS_MAX: usize = 12;
const CONCEPTS_IN_ALL_MAX: usize = 24;
const ABOUT_MAX: usize = 12;
/// The maximum number of names that are searched for.
const NAMES_MAX: usize = 6;

/// Finds the newest active facts that mention a concept.
const ABOUT: &str = r#"
FIND(?f) WHERE { (?f, "mentions", {id: $concept}) FILTER(?f.metadata.status == "active") } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;
/// Finds facts that say names: a statement from which no claim was made has no link to a person.
const NAMING: &str = r#"SEARCH CONCEPT $names WITH TYPE "Fact" MODE "keyword" LIMIT 48"#;

impl Memory {
    /// Returns the active facts about the people and things of a question, as the concepts of KIP. `read` is the query of a model. The
    /// links and names that lead to them are those that all readers heard; it is for the caller to check who may know a fact.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn about_those_in(
        &self,
        (question, read): (&str, Option<&Query>),
        asks: &str,
        readers: Readers<'_>,
        cause: &Origin,
    ) -> Result<Vec<Value>, NexusError> {
        let mut found: Vec<Answer> = Vec::new();
        for path in super::mentioned(question) {
            found.extend(self.answer(&Query::of(&path), asks, readers, cause).await?);
        }
        for query in (1..).map_while(|count| read?.beginning(count)) {
            match self.answer(&query, asks, readers, cause).await? {
                Some(answer) => found.push(answer),
                // What follows hangs on it.
                None => break,
            }
        }
        let mut facts: Vec<Value> = Vec::new();
        let mut add = |fact: &Value| {
            if facts.iter().all(|known| known["id"] != fact["id"]) {
                facts.push(fact.clone());
            }
        };
        let mut looked_at: BTreeSet<&str> = BTreeSet::new();
        for id in found.iter().flat_map(|answer| answer.ids.iter().take(CONCEPTS_MAX)) {
            if looked_at.len() < CONCEPTS_IN_ALL_MAX && looked_at.insert(id) {
                let about = self.ask(ABOUT, json!({"concept": id, "limit": ABOUT_MAX}), cause).await?;
                rows(&about).iter().for_each(&mut add);
            }
        }
        let names: BTreeSet<&str> = found.iter().flat_map(|answer| &answer.called).map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().take(NAMES_MAX).collect();
        if !names.is_empty() {
            let naming = self.ask(NAMING, json!({"names": names.join(" ")}), cause).await?;
            let says_one = |fact: &&Value| {
                let statement = StoredFact::of(fact).statement().unwrap_or_default();
                names.iter().any(|name| is_said_in(name, statement))
            };
            rows(&naming).iter().filter(says_one).for_each(&mut add);
        }
        Ok(facts)
    }
}
